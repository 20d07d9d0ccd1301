/*
 * joint_grad.c - one joint block of weights and gradients.
 */
#include "attn/joint_grad.h"

#include <string.h>

void ph_joint_grad_take(const ph_plan *plan, ph_arena *arena, int rows,
                        ph_joint_grad *out)
{
    size_t heads = (size_t)plan->joint.heads, all = heads * (size_t)rows;
    ph_joint_rows_take(plan, arena, rows, 1, &out->r);
    ph_grad_rows scratch, *g = ph_arena_take(arena, heads * sizeof *g);
    out->g = g;
    out->q = ph_arena_take(arena, heads * sizeof *out->q);
    for (size_t h = 0; h < heads; h++) {
        ph_grad_rows_take(plan, arena, &scratch);
        if (!arena->base) continue;
        scratch.rows = &out->r.rows[h];
        g[h] = scratch;
        out->q[h] = g[h].q_scaled;
    }
    out->stat = ph_arena_floats(arena, all);
    out->delta = ph_arena_floats(arena, all);
    out->drop = ph_arena_floats(arena, plan->drop_limit ? PH_BLOCK : 0);
    ph_joint_span block = ph_joint_one_block(plan, 0, 0, 0);
    if (!plan->joint.grad_wave) ph_joint_keys_take(plan, arena, &block, 1, &out->own);
}

void ph_joint_grad_block_take(const ph_plan *plan, ph_arena *arena, int rows, int blocks,
                              ph_joint_grad_block *out)
{
    const ph_variant_needs *needs = &plan->needs;
    size_t one = ph_joint_floats(plan, rows), all = one * (size_t)blocks;
    out->p = ph_arena_floats(arena, all);
    out->d = ph_arena_floats(arena, all);
    out->s = needs->mix[PH_LOGITS] ? ph_arena_floats(arena, all) : NULL;
    out->derivative = needs->power ? ph_arena_floats(arena, all) : NULL;
    out->cap = plan->attn.softcap > 0 ? ph_arena_floats(arena, all) : NULL;
    out->x = ph_arena_floats(arena, needs->mix[0] || needs->mix[1] ? one : 0);
}

void ph_joint_grad_pack(const ph_joint_task *task, ph_joint_grad *w, int rows)
{
    w->finite = 1;
    for (int h = 0; h < w->r.heads; h++) {
        ph_grad_rows_pack(task->call, &w->g[h], NULL, task->stat, task->delta);
        w->finite &= ph_grad_rows_finite(task->call, &w->g[h]);
        for (int i = 0; i < w->r.count; i++) {
            w->stat[h * rows + i] = w->g[h].lse[i];
            w->delta[h * rows + i] = w->g[h].delta[i];
        }
    }
}

void ph_joint_grad_keys(const ph_joint_task *task, ph_joint_grad *w, int batch, int set,
                        int j0)
{
    w->keys = ph_joint_keys_find(task->call, &task->keys, &w->own, batch, set, j0);
}

/* to = dout v^T of every row */
static void compute_dp(const ph_call *call, const ph_joint_grad *w,
                       const ph_joint_block *t, float *to)
{
    const ph_kernels *k = call->kernels;
    int dim = call->attn->v_dim, pad = call->plan->v_pad;
    for (int h = 0; h < w->r.heads; h++) {
        const float *v =
            ph_joint_v(call, w->keys, w->r.batch, w->r.rows[h].v_head, t->j0);
        for (int i = 0; i < w->r.count; i += k->mr)
            k->scores(ph_min(k->mr, w->r.count - i), t->end - t->c0, dim,
                      w->g[h].dout + (int64_t)i * pad, pad, v + (int64_t)t->c0 * dim,
                      to + ph_joint_at(t, h, i) + t->c0, NULL);
    }
}

static int block_finite(const ph_call *call, const ph_joint_rows *r,
                        const ph_joint_block *t, const float *x)
{
    int finite = 1;
    for (int h = 0; h < r->heads; h++)
        finite &= call->kernels->finite(x + ph_joint_at(t, h, 0) + t->c0, PH_BLOCK,
                                        r->count, t->end - t->c0);
    return finite;
}

/* Whether masked elements could reach a sum as NaN: they are non-finite, or their
   products overflow. */
static int has_masked_non_finite(const ph_call *call, const ph_joint_grad *w,
                                 const ph_joint_block *t, const float *dp, const float *s)
{
    int finite = w->finite & block_finite(call, &w->r, t, dp), batch = w->r.batch;
    if (s) finite &= block_finite(call, &w->r, t, s);
    for (int h = 0; h < w->r.heads; h++)
        finite &= ph_joint_k_finite(w->keys, batch, w->r.rows[h].k_head, t->j0) &
                  ph_joint_v_finite(w->keys, batch, w->r.rows[h].v_head, t->j0);
    for (int p = 0; p < 2; p++) {
        int rows = (int)(ph_joint_mix_floats(call->plan, p) / PH_BLOCK);
        if (rows) finite &= call->kernels->finite(t->keys[p], PH_BLOCK, rows, PH_BLOCK);
    }
    return !finite;
}

void ph_joint_build(const ph_call *call, ph_joint_grad *w, ph_joint_block *t,
                    const ph_joint_grad_block *b)
{
    const ph_variant_needs *needs = &call->plan->needs;
    float *dp = needs->mix[PH_WEIGHTS] ? b->x : b->d;
    ph_joint_key_factors(call, w->keys, &w->r, t, NULL);
    ph_joint_scores(call, &w->r, t, w->keys, w->q, NULL,
                    needs->mix[PH_LOGITS] ? b->s : b->p);
    if (needs->mix[PH_LOGITS]) ph_joint_mix(call, &w->r, t, PH_LOGITS, b->s, b->p);
    ph_joint_modify(call, &w->r, t, b->p, b->cap);
    ph_joint_weights(call, &w->r, t, w->stat, b->p, b->derivative);
    compute_dp(call, w, t, dp);
    if (call->plan->drop_limit) ph_joint_drop(call, &w->r, t, w->drop, dp);
    int non_finite =
        has_masked_non_finite(call, w, t, dp, needs->mix[PH_LOGITS] ? b->s : NULL);
    if (non_finite || w->r.uneven) ph_joint_clear_masked(call, &w->r, t, 0, dp);
    if (non_finite && needs->mix[PH_LOGITS])
        ph_joint_clear_masked(call, &w->r, t, 1, b->s);
}

void ph_joint_center(const ph_call *call, const ph_joint_grad *w, const ph_joint_block *t,
                     const ph_joint_grad_block *b)
{
    const float *derivative = b->derivative ? b->derivative : b->p;
    int n = t->end - t->c0;
    for (int h = 0; h < w->r.heads; h++)
        for (int i = 0; i < w->r.count; i++) {
            int64_t at = ph_joint_at(t, h, i) + t->c0;
            call->kernels->center(n, derivative + at, w->delta[h * t->rows + i],
                                  b->d + at);
            if (b->cap) call->kernels->times(n, b->d + at, b->cap + at);
        }
}
