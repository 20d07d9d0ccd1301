/*
 * bias.c - the gradient of the additive bias: ds, summed over the axes bias was broadcast
 * on.
 *
 * A work item owns elements of dbias: one head (or all), one batch row (or all), a block
 * of rows (or all), PH_BLOCK keys. It recomputes ds of every (batch row, head, row) that
 * used them, in order, and adds. That costs two more products per block than saving ds
 * would, but no T x T memory and no atomics, and gives the same bits for any number of
 * threads.
 */
#include <string.h>

#include "attn/grad.h"

typedef struct bias_worker {
    ph_grad_rows g;
    ph_ds_block block;
    float *k, *v; /* one block of keys, packed */
} bias_worker;

typedef struct bias_task {
    const ph_call *call;
    const float *lse, *delta;
    int row_blocks, key_blocks;
} bias_task;

static void take(const ph_plan *plan, ph_arena *arena, bias_worker *w)
{
    ph_grad_rows_take(plan, arena, &w->g);
    ph_ds_block_take(plan, arena, &w->block);
    w->k = ph_arena_floats(arena, ph_scores_k_floats(plan, PH_BLOCK));
    w->v = ph_arena_floats(arena,
                           (size_t)PH_BLOCK * (size_t)plan->attn.v_dim + PH_PACK_SLACK);
}

size_t ph_bias_gradient_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    bias_worker w;
    take(plan, &arena, &w);
    return arena.used;
}

/* Adds ds of tokens [first, end) of one head to `cells`, the row of dbias of token
   `first` (or its only row). */
static void add_head(const bias_task *t, bias_worker *w, int batch, int head, int first,
                     int end, int j0, int cols, float *cells)
{
    const ph_call *call = t->call;
    const ph_attn *a = call->attn;
    int c0, c1, mr = call->kernels->mr;
    ph_rows_begin(call, w->g.rows, batch, head, 1);
    int keys = ph_min(cols, w->g.rows->extent.kv_len - j0);
    if (keys <= 0) return;
    const ph_rows *rows = w->g.rows;
    const ph_keys v = ph_keys_v(call, batch, rows->v_head);
    ph_scores_pack_k(call, batch, rows->k_head, j0, 0, keys, w->k);
    ph_keys_panels(&v, j0, 0, keys, w->v);
    for (int row = first, next; row < end; row = next) {
        next = ph_rows_gather(call, w->g.rows, row, end, PH_GRAD_ROWS);
        if (next == row) break;
        if (rows->high <= j0) continue;
        ph_grad_rows_pack(call, &w->g, NULL, t->lse, t->delta);
        for (int r = 0; r < rows->count; r += mr)
            ph_grad_strip(call, &w->g, &w->block, r, ph_min(mr, rows->count - r), j0,
                          keys, w->k, w->v, &c0, &c1);
        for (int r = 0; r < rows->count; r++) {
            float *cell = cells;
            if (a->bias.q_len > 1) cell += (int64_t)(rows->token[r] - first) * a->kv_len;
            for (int c = 0; c < keys; c++)
                cell[c] += w->block.ds[(int64_t)r * PH_STRIP_LD + c];
        }
    }
}

static void run_item(void *arg, int lane, int index)
{
    const bias_task *t = arg;
    const ph_call *call = t->call;
    const ph_attn *a = call->attn;
    ph_arena arena = ph_call_lane(call, lane);
    bias_worker w;
    take(call->plan, &arena, &w);
    int j0 = index % t->key_blocks * PH_BLOCK, rest = index / t->key_blocks;
    int block = rest % t->row_blocks, plane = rest / t->row_blocks;
    int head = plane % a->bias.heads, batch = plane / a->bias.heads;
    int one_row = a->bias.q_len == 1;
    int first = one_row ? 0 : block * PH_GRAD_ROWS;
    int end = one_row ? a->q_len : ph_min(first + PH_GRAD_ROWS, a->q_len);
    int cols = ph_min(PH_BLOCK, a->kv_len - j0);
    int64_t row = (int64_t)plane * a->bias.q_len + (one_row ? 0 : first);
    float *cells = call->grads->dbias + row * a->kv_len + j0;
    for (int r = 0; r < (one_row ? 1 : end - first); r++)
        memset(cells + (int64_t)r * a->kv_len, 0, (size_t)cols * sizeof(float));
    int b0 = a->bias.batch == 1 ? 0 : batch,
        b1 = a->bias.batch == 1 ? a->batch : batch + 1;
    int h0 = a->bias.heads == 1 ? 0 : head,
        h1 = a->bias.heads == 1 ? a->q_heads : head + 1;
    for (int b = b0; b < b1; b++)
        for (int h = h0; h < h1; h++) add_head(t, &w, b, h, first, end, j0, cols, cells);
}

void ph_attn_bias_gradient(const ph_call *call, const float *lse, const float *delta)
{
    const ph_attn *a = call->attn;
    bias_task t = {.call = call, .lse = lse, .delta = delta};
    t.key_blocks = ph_div_up(a->kv_len, PH_BLOCK);
    t.row_blocks = a->bias.q_len == 1 ? 1 : ph_div_up(a->q_len, PH_GRAD_ROWS);
    ph_ctx_run(call->plan->ctx,
               a->bias.batch * a->bias.heads * t.row_blocks * t.key_blocks, run_item, &t);
}
