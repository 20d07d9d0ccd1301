/*
 * grad.c - one block of p and ds.
 */
#include "attn/grad.h"

#include <string.h>

void ph_grad_rows_take(const ph_plan *plan, ph_arena *arena, ph_grad_rows *out)
{
    const size_t rows = PH_GRAD_ROWS;
    out->rows = ph_arena_take(arena, sizeof *out->rows);
    out->q_scaled = ph_arena_floats(arena, ph_scores_q_floats(plan, PH_GRAD_ROWS));
    out->q_scratch = ph_arena_floats(arena, rows * (size_t)plan->k_pad);
    out->dout_scratch = ph_arena_floats(arena, rows * (size_t)plan->v_pad);
    out->q = out->q_scratch, out->dout = out->dout_scratch;
    out->lse = ph_arena_floats(arena, rows);
    out->delta = ph_arena_floats(arena, rows);
}

void ph_ds_block_take(const ph_plan *plan, ph_arena *arena, ph_ds_block *out)
{
    const size_t floats = (size_t)PH_GRAD_ROWS * PH_STRIP_LD;
    int mr = plan->kernels->mr;
    out->p = ph_arena_floats(arena, floats);
    out->ds = ph_arena_floats(arena, floats);
    out->drop = ph_arena_floats(arena, plan->drop_limit ? (size_t)mr * PH_STRIP_LD : 0);
    out->lane_max = ph_arena_floats(arena, (size_t)mr * PH_LANES);
    out->derivative = NULL;
    if (plan->attn.softcap > 0)
        out->derivative = ph_arena_floats(arena, (size_t)mr * PH_STRIP_LD);
}

/* Whether the rows of a q-like tensor can be read in place: contiguous f32 rows of `pad`
   elements. */
static int is_packed(const ph_call *call, const ph_rows *rows, const ph_strides *s,
                     int dim, int pad)
{
    int last = rows->count - 1;
    if (call->attn->dtype != PH_F32 || dim != pad || s->time != pad) return 0;
    return rows->group == 1 && last >= 0 && rows->token[last] - rows->token[0] == last;
}

static void find_q(const ph_call *call, ph_grad_rows *g)
{
    const ph_attn *a = call->attn;
    const float *q = call->args->q;
    if (is_packed(call, g->rows, &a->q, a->qk_dim, call->plan->k_pad)) {
        g->q = q + ph_rows_at(call, g->rows, 0, &a->q);
    } else {
        ph_rows_pack_q(call, g->rows, 1, g->q_scratch);
        g->q = g->q_scratch;
    }
}

/* The factor of dout of row r. */
static float factor_of(const ph_call *call, const ph_rows *rows, int r)
{
    int head = rows->head[r];
    return ph_twin_factor(call, head) *
           ph_rows_gate(call, rows->batch, head, rows->token[r]);
}

/* dout times the gate of each row and the factor of a twin. */
static void find_dout(const ph_call *call, ph_grad_rows *g)
{
    const ph_attn *a = call->attn;
    const ph_kernels *k = call->kernels;
    const void *from[PH_GRAD_ROWS], *base = call->grads->dout;
    int pad = call->plan->v_pad, count = g->rows->count;
    int unscaled = !call->args->gate && !call->twin;
    if (unscaled && is_packed(call, g->rows, &call->plan->backward.dout, a->v_dim, pad)) {
        g->dout = (const float *)base + ph_dout_at(call, g->rows, 0);
        return;
    }
    g->dout = g->dout_scratch;
    for (int r = 0; r < count; r++)
        from[r] = ph_at(base, a->dtype, ph_dout_at(call, g->rows, r));
    if (unscaled)
        k->pack_row_major(g->dout_scratch, pad, from, count, a->v_dim, a->dtype, 1);
    for (int r = 0; !unscaled && r < count; r++) {
        float *to = g->dout_scratch + (int64_t)r * pad,
              factor = factor_of(call, g->rows, r);
        if (factor == 0) /* gated off, present because heads are mixed */
            memset(to, 0, (size_t)pad * sizeof(float));
        else
            k->load_row(to, from[r], 0, a->v_dim, a->dtype, factor);
    }
}

void ph_grad_rows_pack(const ph_call *call, ph_grad_rows *g, const ph_grad_rows *like,
                       const float *lse, const float *delta)
{
    int count = g->rows->count;
    ph_scores_pack_q(call, g->rows, g->q_scaled);
    find_q(call, g);
    if (like)
        g->dout = like->dout;
    else
        find_dout(call, g);
    for (int r = 0; r < count; r++) {
        int64_t index = ph_rows_index(call, g->rows, r);
        g->lse[r] = lse[index];
        g->delta[r] = delta[index];
    }
}

int ph_grad_rows_finite(const ph_call *call, const ph_grad_rows *g)
{
    const ph_kernels *k = call->kernels;
    int k_pad = call->plan->k_pad, v_pad = call->plan->v_pad, count = g->rows->count;
    return k->finite(g->q, k_pad, count, k_pad) &&
           k->finite(g->dout, v_pad, count, v_pad);
}

/* Zeros outside the computed columns: products read whole rows. */
static void clear_columns(float *block, int m, int from, int to)
{
    for (int i = 0; i < m && from < to; i++)
        memset(block + i * PH_STRIP_LD + from, 0, (size_t)(to - from) * sizeof(float));
}

int ph_grad_begin(const ph_call *call, const ph_grad_rows *g, ph_ds_block *block,
                  int first, int m, int j0, int keys, int *c0, int *c1)
{
    float *p = block->p + (int64_t)first * PH_STRIP_LD;
    float *ds = block->ds + (int64_t)first * PH_STRIP_LD;
    int seen = ph_rows_range(call, g->rows, first, m, j0, c0, c1);
    if (!seen) *c0 = *c1 = 0;
    int end = ph_round_up(*c1, PH_LANES), last = ph_round_up(keys, PH_LANES);
    if (*c0 > 0) clear_columns(p, m, 0, *c0), clear_columns(ds, m, 0, *c0);
    clear_columns(p, m, end, last);
    clear_columns(ds, m, end, last);
    return seen;
}

void ph_grad_product(const ph_call *call, const ph_grad_rows *g, ph_ds_block *block,
                     int first, int m, int c0, int c1, const float *v)
{
    int dim = call->attn->v_dim, pad = call->plan->v_pad;
    call->kernels->scores(m, ph_round_up(c1, PH_LANES) - c0, dim,
                          g->dout + (int64_t)first * pad, pad, v + (int64_t)c0 * dim,
                          block->ds + (int64_t)first * PH_STRIP_LD + c0, NULL);
}

void ph_grad_finish(const ph_call *call, const ph_grad_rows *g, ph_ds_block *block,
                    int first, int m, int j0, int c0, int c1, const float *k)
{
    float *p = block->p + (int64_t)first * PH_STRIP_LD;
    float *ds = block->ds + (int64_t)first * PH_STRIP_LD;
    int drop = call->plan->drop_limit != 0, n = ph_round_up(c1, PH_LANES) - c0;
    ph_score_strip strip = {g->rows,          first, m, j0, c0, c1, p, block->lane_max,
                            block->derivative};
    ph_rows_scores(call, &strip, g->q_scaled, k);
    if (drop) ph_rows_dropout(call, g->rows, first, m, j0, c0, c1, block->drop);
    call->kernels->gradient(m, n, p + c0, ds + c0, drop ? block->drop + c0 : NULL,
                            block->derivative ? block->derivative + c0 : NULL,
                            g->lse + first, g->delta + first);
}

int ph_grad_strip(const ph_call *call, const ph_grad_rows *g, ph_ds_block *block,
                  int first, int m, int j0, int keys, const float *k, const float *v,
                  int *c0, int *c1)
{
    if (!ph_grad_begin(call, g, block, first, m, j0, keys, c0, c1)) return 0;
    ph_grad_product(call, g, block, first, m, *c0, *c1, v);
    ph_grad_finish(call, g, block, first, m, j0, *c0, *c1, k);
    return 1;
}
