/*
 * grad.c - one tile of p and ds.
 */
#include "attn/grad.h"

#include <string.h>

void ph_grad_rows_take(const ph_plan *plan, ph_arena *arena, ph_grad_rows *out)
{
    const size_t rows = PH_GRAD_ROWS;
    out->rows = ph_arena_take(arena, sizeof *out->rows);
    out->q_across = ph_arena_floats(arena, ph_scores_q_floats(plan, PH_GRAD_ROWS));
    out->do_across =
        ph_arena_floats(arena, ph_rows_pack_floats(plan, PH_GRAD_ROWS, plan->attn.v_dim));
    out->q = ph_arena_floats(arena, rows * (size_t)plan->k_pad);
    out->dout = ph_arena_floats(arena, rows * (size_t)plan->v_pad);
    out->lse = ph_arena_floats(arena, rows);
    out->delta = ph_arena_floats(arena, rows);
}

void ph_grad_tile_take(const ph_plan *plan, ph_arena *arena, ph_grad_tile *out)
{
    const size_t floats = (size_t)PH_GRAD_ROWS * PH_STRIP_LD;
    int mr = plan->kernels->mr;
    out->p = ph_arena_floats(arena, floats);
    out->ds = ph_arena_floats(arena, floats);
    out->drop = ph_arena_floats(arena, plan->drop_limit ? (size_t)mr * PH_STRIP_LD : 0);
    out->peak = ph_arena_floats(arena, (size_t)mr * PH_LANES);
}

/* Packs dout times the gate, which differs from row to row. */
static void pack_dout(const ph_call *call, ph_grad_rows *g)
{
    const ph_attn *a = call->attn;
    const ph_kernels *k = call->kernels;
    const float *gate = call->args->gate;
    const void *from[PH_GRAD_ROWS];
    int pad = call->plan->v_pad, count = g->rows->count;
    ph_rows_pointers(call, g->rows, 0, count, call->grads->dout, &call->plan->dout, from);
    for (int r = 0; r < count; r++) {
        int64_t at =
            a->gate == PH_GATE_HEAD ? g->rows->head[r] : ph_rows_index(call, g->rows, r);
        if (gate && gate[at] == 0) /* a silent row where heads are mixed */
            memset(g->dout + (int64_t)r * pad, 0, (size_t)pad * sizeof(float));
        else
            k->load_row(g->dout + (int64_t)r * pad, from[r], a->v_dim, a->dtype,
                        gate ? gate[at] : 1);
    }
    for (int r = 0; r < count; r += k->mr) {
        int m = ph_min(k->mr, count - r);
        for (int i = 0; i < m; i++) from[i] = g->dout + (int64_t)(r + i) * pad;
        k->pack_across(g->do_across + (int64_t)r * a->v_dim, k->mr, from, m, a->v_dim,
                       PH_F32, 1);
    }
}

void ph_grad_rows_pack(const ph_call *call, ph_grad_rows *g, const float *lse,
                       const float *delta)
{
    const ph_plan *plan = call->plan;
    const ph_attn *a = call->attn;
    const ph_kernels *k = call->kernels;
    const void *from[PH_GRAD_ROWS];
    int count = g->rows->count;
    ph_scores_pack_q(call, g->rows, g->q_across);
    ph_rows_pointers(call, g->rows, 0, count, call->args->q, &a->q, from);
    k->pack_along(g->q, plan->k_pad, from, count, a->qk_dim, a->dtype, 1);
    pack_dout(call, g);
    for (int r = 0; r < count; r++) {
        int64_t index = ph_rows_index(call, g->rows, r);
        g->lse[r] = lse[index];
        g->delta[r] = delta[index];
    }
    g->finite = k->finite(g->q, plan->k_pad, count, plan->k_pad) &&
                k->finite(g->dout, plan->v_pad, count, plan->v_pad);
}

/* Zeros outside the computed columns, where products will still look. */
static void clear_columns(float *tile, int m, int from, int to)
{
    for (int i = 0; i < m && from < to; i++)
        memset(tile + i * PH_STRIP_LD + from, 0, (size_t)(to - from) * sizeof(float));
}

int ph_grad_strip(const ph_call *call, const ph_grad_rows *g, ph_grad_tile *tile,
                  int first, int m, int j0, int keys, const float *k, const float *v,
                  int *c0, int *c1)
{
    const ph_kernels *kernels = call->kernels;
    const ph_attn *a = call->attn;
    float *p = tile->p + (int64_t)first * PH_STRIP_LD;
    float *ds = tile->ds + (int64_t)first * PH_STRIP_LD;
    int nr = kernels->nr, seen = ph_rows_range(call, g->rows, first, m, j0, c0, c1);
    if (!seen) *c0 = *c1 = 0;
    int end = ph_round_up(*c1, PH_LANES), last = ph_round_up(keys, PH_LANES);
    if (*c0 > 0) clear_columns(p, m, 0, *c0), clear_columns(ds, m, 0, *c0);
    clear_columns(p, m, end, last);
    clear_columns(ds, m, end, last);
    tile->partial |= *c0 > 0 || *c1 < keys;
    if (!seen) return 0;
    tile->partial |= ph_rows_scores(call, g->rows, first, m, j0, *c0, *c1, g->q_across, k,
                                    p, tile->peak, NULL);
    kernels->product(m, end - *c0, a->v_dim, g->do_across + (int64_t)first * a->v_dim,
                     kernels->mr, v + (int64_t)*c0 * a->v_dim, nr, (int64_t)nr * a->v_dim,
                     ds + *c0, PH_STRIP_LD, 0);
    int drop = call->plan->drop_limit != 0;
    if (drop) ph_rows_dropout(call, g->rows, first, m, j0, *c0, *c1, tile->drop);
    kernels->gradient(m, end - *c0, p + *c0, ds + *c0, drop ? tile->drop + *c0 : NULL,
                      g->lse + first, g->delta + first, call->plan->cap2);
    return 1;
}
