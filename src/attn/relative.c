/*
 * relative.c - the gradient of the bias by distance: ds, summed along diagonals.
 *
 * A work item owns one head and recomputes ds of all its rows, in order. Sums are in
 * double: one element may be the sum of a whole T x T matrix.
 */
#include <string.h>

#include "attn/grad.h"

typedef struct relative_worker {
    ph_grad_rows g;
    ph_ds_block block;
    float *k, *v; /* one block of keys, packed */
    double *sums; /* (2*reach + 1) */
} relative_worker;

typedef struct relative_task {
    const ph_call *call;
    const float *lse, *delta;
} relative_task;

static void take(const ph_plan *plan, ph_arena *arena, relative_worker *w)
{
    const ph_attn *a = &plan->attn;
    size_t block = PH_BLOCK;
    ph_grad_rows_take(plan, arena, &w->g);
    ph_ds_block_take(plan, arena, &w->block);
    w->k = ph_arena_floats(arena, ph_scores_k_floats(plan, PH_BLOCK));
    w->v = ph_arena_floats(arena, block * (size_t)a->v_dim + PH_PACK_SLACK);
    w->sums = ph_arena_take(arena, (2 * (size_t)a->reach + 1) * sizeof(double));
}

size_t ph_relative_gradient_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    relative_worker w;
    if (!plan->attn.reach) return 0;
    take(plan, &arena, &w);
    return arena.used;
}

void ph_relative_add(const ph_call *call, int64_t first, int n, const float *ds,
                     double *sums)
{
    double *centre = sums + call->attn->reach;
    int from, to;
    ph_rows_within(call, first, n, &from, &to);
    for (int c = 0; c < from; c++) centre[-call->attn->reach] += ds[c];
    for (int c = from; c < to; c++) centre[first + c] += ds[c];
    for (int c = to; c < n; c++) centre[call->attn->reach] += ds[c];
}

/* All rows of the head in one batch row against the block of keys at j0. */
static void add_block(const relative_task *t, relative_worker *w, int j0)
{
    const ph_call *call = t->call;
    const ph_rows *rows = w->g.rows;
    const ph_keys v = ph_keys_v(call, rows->batch, rows->v_head);
    int keys = ph_min(PH_BLOCK, rows->extent.kv_len - j0), mr = call->kernels->mr, c0, c1;
    ph_scores_pack_k(call, rows->batch, rows->k_head, j0, 0, keys, w->k);
    ph_keys_panels(&v, j0, 0, keys, w->v);
    for (int row = 0, next; row < rows->extent.q_len; row = next) {
        next = ph_rows_gather(call, w->g.rows, row, rows->extent.q_len, PH_GRAD_ROWS);
        if (next == row) break;
        if (rows->high <= j0 || rows->low >= j0 + keys) continue;
        ph_grad_rows_pack(call, &w->g, NULL, t->lse, t->delta);
        for (int r = 0; r < rows->count; r += mr)
            ph_grad_strip(call, &w->g, &w->block, r, ph_min(mr, rows->count - r), j0,
                          keys, w->k, w->v, &c0, &c1);
        for (int r = 0; r < rows->count; r++)
            ph_relative_add(call, j0 - (rows->token[r] + rows->extent.offset), keys,
                            w->block.ds + (int64_t)r * PH_STRIP_LD, w->sums);
    }
}

static void run_item(void *arg, int lane, int head)
{
    const relative_task *t = arg;
    const ph_call *call = t->call;
    int entries = 2 * call->attn->reach + 1;
    ph_arena arena = ph_call_lane(call, lane);
    relative_worker w;
    take(call->plan, &arena, &w);
    memset(w.sums, 0, (size_t)entries * sizeof(double));
    for (int b = 0; b < call->attn->batch; b++) {
        ph_rows_begin(call, w.g.rows, b, head, 1);
        for (int j0 = 0; j0 < w.g.rows->extent.kv_len; j0 += PH_BLOCK)
            add_block(t, &w, j0);
    }
    for (int i = 0; i < entries; i++)
        call->grads->drelative[(int64_t)head * entries + i] = (float)w.sums[i];
}

void ph_attn_relative_gradient(const ph_call *call, const float *lse, const float *delta)
{
    relative_task t = {.call = call, .lse = lse, .delta = delta};
    ph_ctx_run(call->plan->ctx, call->attn->q_heads, run_item, &t);
}
