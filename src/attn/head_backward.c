/*
 * head_backward.c - gradients of a chunk of keys: one call of the kernel head_backward
 * per block of rows.
 *
 * Every sum has the order of chunk.c, so the bits are the same.
 */
#include "attn/head_args.h"

#include <string.h>

/* Rows of one chain of dk and dv, a multiple of those of a kernel call. */
enum { FLUSH_ROWS = PH_FLUSH * PH_GRAD_ROWS };

/* dk or dv of the chunk. */
typedef struct key_sums {
    ph_key_target target;
    int pad;
    int direct;     /* 1: accumulated in the tensor itself */
    float *partial; /* (PH_CHUNK, pad) of the last FLUSH_ROWS rows; NULL: not needed */
    float *sums;    /* of the rows before, likewise */
} key_sums;

/* Rows of one group of heads against one chunk. */
typedef struct head_backward_work {
    const ph_call *call;
    const ph_deltas *deltas;
    ph_rows *rows; /* batch, heads and lengths; nothing is gathered */
    int k0;
    int first, end; /* rows that may see a key of the chunk */
    ph_grad_block block;
    ph_head_rows arrays;
    float *q_scratch, *dout_scratch, *k_scratch, *v_scratch; /* NULL: read in place */
    float *dq_scratch;
    float *lse_scratch, *delta_scratch;
    key_sums dk, dv;
} head_backward_work;

/* ---- scratch ---- */

/* Heads that stay in cache. */
static int is_short(int q_len, int kv_len)
{
    return q_len <= PH_BLOCK && kv_len <= PH_BLOCK;
}

/* Whether rows of a tensor are read in place: contiguous ones, and any that stay in
   cache. */
static int in_place(const ph_plan *plan, int cached, const ph_strides *s, int dim,
                    int pad)
{
    return plan->attn.dtype == PH_F32 && dim == pad && (cached || s->time == dim);
}

static int rows_in_place(const ph_plan *plan, int cached, const ph_strides *s, int dim,
                         int pad)
{
    return plan->group == 1 && in_place(plan, cached, s, dim, pad);
}

static int stores_in_place(const ph_plan *plan, int dim, int pad)
{
    return plan->attn.dtype == PH_F32 && dim == pad;
}

static float *take_rows(ph_arena *arena, int needed, int rows, int pad)
{
    return needed ? ph_arena_floats(arena, (size_t)rows * (size_t)pad) : NULL;
}

static void take_key_sums(const ph_plan *plan, ph_arena *arena, int dim, int pad,
                          key_sums *s)
{
    int long_text = plan->attn.q_len > FLUSH_ROWS / plan->group;
    int needs_scratch = long_text || !stores_in_place(plan, dim, pad);
    s->pad = pad;
    s->partial = take_rows(arena, needs_scratch, PH_CHUNK, pad);
    s->sums = take_rows(arena, long_text, PH_CHUNK, pad);
}

static void take_work(const ph_plan *plan, ph_arena *arena, head_backward_work *w)
{
    const ph_attn *a = &plan->attn;
    int64_t rows = (int64_t)a->q_len * plan->group;
    int k_pad = plan->k_pad, v_pad = plan->v_pad, keys = ph_min(a->kv_len, PH_CHUNK);
    int most = rows < PH_GRAD_BLOCK_ROWS ? (int)rows : PH_GRAD_BLOCK_ROWS;
    w->rows = ph_arena_take(arena, sizeof *w->rows);
    int cached = is_short(a->q_len, a->kv_len);
    w->q_scratch = take_rows(arena, !rows_in_place(plan, cached, &a->q, a->qk_dim, k_pad),
                             most, k_pad);
    w->dout_scratch = take_rows(arena, 1, most, v_pad);
    w->k_scratch =
        take_rows(arena, !in_place(plan, cached, &a->k, a->qk_dim, k_pad), keys, k_pad);
    w->v_scratch =
        take_rows(arena, !in_place(plan, cached, &a->v, a->v_dim, v_pad), keys, v_pad);
    w->dq_scratch = take_rows(arena, 1, most, k_pad);
    w->lse_scratch = take_rows(arena, plan->group > 1, most, 1);
    w->delta_scratch = take_rows(arena, plan->group > 1, most, 1);
    ph_head_rows_take(plan, arena, most, plan->group, keys, &w->arrays);
    take_key_sums(plan, arena, a->qk_dim, k_pad, &w->dk);
    take_key_sums(plan, arena, a->v_dim, v_pad, &w->dv);
    w->block.scratch =
        ph_arena_floats(arena, ph_grad_block_floats(a->qk_dim, a->v_dim, most, keys));
}

static int fits(const ph_plan *plan)
{
    return !plan->bf16_pairs && !plan->backward.twins && plan->cluster == plan->group;
}

size_t ph_head_chunk_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    head_backward_work w;
    if (!fits(plan)) return 0;
    take_work(plan, &arena, &w);
    return arena.used;
}

/* ---- rows and keys of a block ---- */

/* Whether one of the rows [first, end) may see a key of the chunk. */
static int sees_chunk(const head_backward_work *w, int first, int end)
{
    int low = INT32_MAX, high = 0, group = w->rows->group, lo, hi;
    int last = (end - 1) / group;
    for (int token = first / group; token <= last; token++) {
        ph_rows_interval(w->call->attn, &w->rows->extent, token, &lo, &hi);
        if (hi > 0) low = ph_min(low, lo);
        high = ph_max(high, hi);
        if (hi > 0 && token < last) token = last - 1; /* rows in between see no less */
    }
    return high > w->k0 && low < w->k0 + w->block.keys;
}

/* The rows that see the chunk, in steps of PH_GRAD_ROWS: chains of dk and dv start
   there. */
static int find_range(head_backward_work *w)
{
    int total = w->rows->extent.q_len * w->rows->group, step = PH_GRAD_ROWS;
    w->first = 0, w->end = total;
    if (w->call->attn->mask == PH_MASK_NONE) return total > 0;
    while (w->first < total && !sees_chunk(w, w->first, ph_min(w->first + step, total)))
        w->first += step;
    for (int last; w->end > w->first; w->end = last) {
        last = (w->end - 1) / step * step;
        if (sees_chunk(w, last, w->end)) break;
    }
    return w->first < w->end;
}

static int64_t row_at(const head_backward_work *w, int row, const ph_strides *s)
{
    int group = w->rows->group, head = w->rows->head0 + row % group;
    return ph_row_at(w->call, s, w->rows->batch, head, row / group);
}

/* `count` rows of a q-like tensor from `first` on: the tensor itself, or a copy. */
static const float *find_rows(const head_backward_work *w, const void *base,
                              const ph_strides *s, int dim, int pad, int first, int count,
                              float *scratch, int64_t *ld)
{
    ph_dtype type = w->call->attn->dtype;
    const void *from[PH_GRAD_BLOCK_ROWS];
    *ld = scratch ? pad : s->time;
    if (!scratch) return (const float *)base + row_at(w, first, s);
    for (int i = 0; i < count; i++) from[i] = ph_at(base, type, row_at(w, first + i, s));
    w->call->kernels->pack_row_major(scratch, pad, from, count, dim, type, 1);
    return scratch;
}

static const float *find_keys(const head_backward_work *w, const ph_keys *keys,
                              float *scratch, int64_t *ld)
{
    const void *from[PH_CHUNK];
    *ld = scratch ? keys->pad : keys->strides->time;
    if (!scratch) return ph_keys_at(keys, w->k0);
    ph_keys_pointers(keys, w->k0, w->block.keys, from);
    w->call->kernels->pack_row_major(scratch, keys->pad, from, w->block.keys, keys->dim,
                                     keys->type, 1);
    return scratch;
}

static void set_keys(head_backward_work *w)
{
    const ph_keys k = ph_keys_k(w->call, w->rows->batch, w->rows->k_head);
    const ph_keys v = ph_keys_v(w->call, w->rows->batch, w->rows->v_head);
    w->block.k = find_keys(w, &k, w->k_scratch, &w->block.k_ld);
    w->block.v = find_keys(w, &v, w->v_scratch, &w->block.v_ld);
}

/* lse and delta of the block's rows. */
static void set_sums(head_backward_work *w, int first, int count)
{
    const ph_rows *rows = w->rows;
    int group = rows->group, head = rows->head0;
    int64_t at = ph_row_index(w->call, rows->batch, head, first);
    w->block.lse = group > 1 ? w->lse_scratch : w->deltas->lse + at;
    w->block.delta = group > 1 ? w->delta_scratch : w->deltas->delta + at;
    for (int i = 0; i < count && group > 1; i++) {
        int row = first + i;
        int64_t index =
            ph_row_index(w->call, rows->batch, head + row % group, row / group);
        w->lse_scratch[i] = w->deltas->lse[index];
        w->delta_scratch[i] = w->deltas->delta[index];
    }
}

/* The rows of the block from `first` on and their visible keys; returns its end. */
static int set_window(head_backward_work *w, int first)
{
    ph_grad_block *t = &w->block;
    int group = w->rows->group;
    t->rows = ph_min(PH_GRAD_BLOCK_ROWS, w->end - first);
    t->window = ph_head_window(w->call, &w->rows->extent, first / group, w->k0);
    t->window.group = group, t->window.phase = first % group;
    return first + t->rows;
}

/* dout of the block's rows times their gates. */
static void gate_dout(head_backward_work *w, int first)
{
    const ph_call *call = w->call;
    const ph_attn *a = call->attn;
    ph_grad_block *t = &w->block;
    int64_t pad = call->plan->v_pad;
    for (int i = 0; i < t->rows; i++) {
        int64_t at = row_at(w, first + i, &call->plan->backward.dout);
        int group = w->rows->group, head = w->rows->head0 + (first + i) % group;
        float gate = ph_rows_gate(call, w->rows->batch, head, (first + i) / group);
        call->kernels->load_row(w->dout_scratch + i * pad, call->grads->dout, at,
                                a->v_dim, a->dtype, gate);
    }
    t->dout = w->dout_scratch, t->dout_ld = pad;
}

static void set_rows(head_backward_work *w, int first)
{
    const ph_attn *a = w->call->attn;
    const ph_plan *plan = w->call->plan;
    ph_grad_block *t = &w->block;
    int count = t->rows;
    t->q = find_rows(w, w->call->args->q, &a->q, a->qk_dim, plan->k_pad, first, count,
                     w->q_scratch, &t->q_ld);
    if (w->call->args->gate)
        gate_dout(w, first);
    else
        t->dout = find_rows(w, w->call->grads->dout, &plan->backward.dout, a->v_dim,
                            plan->v_pad, first, count, w->dout_scratch, &t->dout_ld);
    set_sums(w, first, count);
}

/* Biases, masks and dropout of the block. */
static void set_mods(head_backward_work *w, int first)
{
    ph_head_span span = {w->rows, first, w->block.rows, w->k0, w->block.keys};
    ph_head_mods(w->call, &span, &w->arrays, &w->block.mods);
    w->block.drop = ph_head_drop(w->call, &span, &w->arrays);
}

/* Whether a key is hidden from a row of the block by its position. */
static int block_hides(const ph_grad_block *t)
{
    const ph_window *w = &t->window;
    return w->lo + (w->phase + t->rows - 1) / w->group > 0 || w->hi < t->keys;
}

/* Whether every element that is multiplied by the weight 0 of a hidden key is finite. */
static int is_safe(head_backward_work *w)
{
    const ph_kernels *k = w->call->kernels;
    const ph_plan *plan = w->call->plan;
    const ph_grad_block *t = &w->block;
    int k_finite = -1, excludes = ph_head_excludes(w->call);
    if (w->call->attn->mask == PH_MASK_NONE && !excludes) return 1;
    for (int next, row = w->first; row < w->end; row = next) {
        next = set_window(w, row);
        if (!excludes && !block_hides(t)) continue;
        set_rows(w, row);
        if (k_finite < 0) k_finite = k->finite(t->k, t->k_ld, t->keys, plan->k_pad);
        if (!k_finite || !k->finite(t->q, t->q_ld, t->rows, plan->k_pad) ||
            !k->finite(t->dout, t->dout_ld, t->rows, plan->v_pad))
            return 0;
    }
    return 1;
}

/* ---- where gradients go ---- */

/* dk or dv of the chunk: accumulated in its tensor if it is a single chain. */
static void set_key_sums(const head_backward_work *w, ph_key_target target, key_sums *out)
{
    out->target = target;
    out->direct =
        !out->partial || (stores_in_place(w->call->plan, target.dim, out->pad) &&
                          w->end - w->first <= FLUSH_ROWS);
    if (out->sums && !out->direct)
        memset(out->sums, 0, (size_t)w->block.keys * (size_t)out->pad * sizeof(float));
}

/* Where a block's sums go; `done` rows came before, `last`: none follow. */
static void set_key_target(const key_sums *s, int done, int last, ph_grad_sum *to)
{
    to->to = s->direct || !s->target.base ? s->target.base : s->partial;
    to->ld = s->direct ? s->target.time : s->pad;
    to->scale = s->direct && last ? s->target.scale : 1;
    to->how = done % FLUSH_ROWS ? PH_SUM_CONTINUE : PH_SUM_STORE;
}

/* Adds the partial sums to the sums. */
static void flush(const head_backward_work *w, const key_sums *s)
{
    if (s->target.base && !s->direct && s->sums)
        w->call->kernels->axpy(w->block.keys * s->pad, 1, s->partial, s->sums);
}

/* Stores dk or dv unless it was accumulated in its tensor; keys beyond the length get
   0. */
static void finish_keys(const head_backward_work *w, const key_sums *s)
{
    int keys = w->block.keys, all = ph_min(PH_CHUNK, w->rows->extent.kv_size - w->k0);
    if (!s->direct)
        ph_store_keys(w->call, &s->target, 0, keys, s->sums ? s->sums : s->partial);
    ph_store_keys(w->call, &s->target, keys, all, NULL);
}

/* Sums of several chunks have k_pad floats per row, whatever the tensor has. */
static int dq_in_place(const ph_plan *plan, const ph_dq_target *target)
{
    const ph_attn *a = &plan->attn;
    return plan->group == 1 &&
           (target->how != PH_DQ_STORE || stores_in_place(plan, a->qk_dim, plan->k_pad));
}

/* Where the kernel writes the chunk's partial sums of dq. */
static void set_dq_target(const head_backward_work *w, int first,
                          const ph_dq_target *target, ph_grad_sum *to)
{
    const ph_plan *plan = w->call->plan;
    int in_scratch = !dq_in_place(plan, target), store = target->how == PH_DQ_STORE;
    to->how = in_scratch || target->how != PH_DQ_ADD ? PH_SUM_STORE : PH_SUM_ADD;
    to->scale = store && !in_scratch ? plan->attn.scale : 1;
    to->ld = in_scratch ? plan->k_pad : target->time;
    if (!target->base)
        to->to = NULL;
    else
        to->to =
            in_scratch ? w->dq_scratch : (float *)target->base + first * target->time;
}

/* Adds dq from scratch to its target. */
static void put_dq(const head_backward_work *w, int first, const ph_dq_target *target)
{
    int group = w->rows->group, pad = w->call->plan->k_pad;
    if (!target->base || dq_in_place(w->call->plan, target)) return;
    for (int row = first; row < first + w->block.rows; row++)
        ph_dq_put(w->call, target, row % group, row / group,
                  w->dq_scratch + (int64_t)(row - first) * pad);
}

/* ---- the chunk ---- */

/* While a block runs it prefetches the rows of the next one, at the end of a chunk the
   keys of the next, and at the end of a head the next head. */
static void plan_prefetch(head_backward_work *w, int next)
{
    const ph_attn *a = w->call->attn;
    const ph_args *args = w->call->args;
    const ph_strides *dout = &w->call->plan->backward.dout;
    ph_grad_block *t = &w->block;
    int rows = ph_min(PH_GRAD_BLOCK_ROWS, w->end - next), key = w->k0 + PH_CHUNK;
    int keys = ph_min(PH_CHUNK, w->rows->extent.kv_len - key);
    memset(&t->prefetch, 0, sizeof t->prefetch);
    if (t->dq.how == PH_SUM_ADD && t->dq.ld == a->qk_dim) {
        t->prefetch.part[0].at = (const char *)t->dq.to;
        t->prefetch.part[0].end = (const char *)(t->dq.to + (int64_t)t->rows * a->qk_dim);
    }
    if (next < w->end) {
        if (!w->q_scratch)
            ph_prefetch_rows(&t->prefetch, 1, args->q, a->dtype, &a->q,
                             row_at(w, next, &a->q), rows, a->qk_dim);
        if (!w->dout_scratch)
            ph_prefetch_rows(&t->prefetch, 2, w->call->grads->dout, a->dtype, dout,
                             row_at(w, next, dout), rows, a->v_dim);
    } else if (keys > 0) {
        const ph_keys k = ph_keys_k(w->call, w->rows->batch, w->rows->k_head);
        const ph_keys v = ph_keys_v(w->call, w->rows->batch, w->rows->v_head);
        if (!w->k_scratch) ph_keys_prefetch(&k, key, keys, &t->prefetch, 1);
        if (!w->v_scratch) ph_keys_prefetch(&v, key, keys, &t->prefetch, 2);
    } else if (w->call->plan->group == 1) {
        ph_head_prefetch_next(w->call, w->rows, &t->prefetch);
    }
}

static void run_blocks(head_backward_work *w, const ph_dq_target *target)
{
    const ph_kernels *k = w->call->kernels;
    ph_grad_block *t = &w->block;
    for (int next, row = w->first; row < w->end; row = next) {
        next = set_window(w, row);
        set_rows(w, row);
        set_mods(w, row);
        set_key_target(&w->dk, row - w->first, next == w->end, &t->dk);
        set_key_target(&w->dv, row - w->first, next == w->end, &t->dv);
        set_dq_target(w, row, target, &t->dq);
        plan_prefetch(w, next);
        k->head_backward(t);
        put_dq(w, row, target);
        if ((next - w->first) % FLUSH_ROWS && next < w->end) continue;
        flush(w, &w->dk);
        flush(w, &w->dv);
    }
}

/* Scratch of what is read in place is not used. */
static void read_in_place(head_backward_work *w, int cached)
{
    const ph_plan *plan = w->call->plan;
    const ph_attn *a = &plan->attn;
    int k_pad = plan->k_pad, v_pad = plan->v_pad, gated = w->call->args->gate != NULL;
    if (rows_in_place(plan, cached, &a->q, a->qk_dim, k_pad)) w->q_scratch = NULL;
    if (in_place(plan, cached, &a->k, a->qk_dim, k_pad)) w->k_scratch = NULL;
    if (in_place(plan, cached, &a->v, a->v_dim, v_pad)) w->v_scratch = NULL;
    if (!gated && rows_in_place(plan, cached, &plan->backward.dout, a->v_dim, v_pad))
        w->dout_scratch = NULL;
}

static void set_work(head_backward_work *w, int batch, int head0, int chunk)
{
    const ph_call *call = w->call;
    const ph_plan *plan = call->plan;
    const ph_attn *a = call->attn;
    ph_grad_block *t = &w->block;
    ph_rows_begin(call, w->rows, batch, head0, plan->group);
    w->k0 = chunk * PH_CHUNK;
    t->keys = ph_min(PH_CHUNK, w->rows->extent.kv_len - w->k0);
    t->k_dim = a->qk_dim, t->v_dim = a->v_dim, t->scale = plan->scale2;
    read_in_place(w, is_short(w->rows->extent.q_size, w->rows->extent.kv_size));
}

int ph_head_chunk(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int batch,
                  int head0, int chunk, ph_dq_target target)
{
    head_backward_work w;
    if (!fits(call->plan)) return 0;
    take_work(call->plan, &arena, &w);
    w.call = call, w.deltas = deltas;
    set_work(&w, batch, head0, chunk);
    if (w.block.keys < 1 || !find_range(&w)) return 0;
    if (!ph_head_all_active(call, w.rows, w.first, w.end)) return 0;
    set_keys(&w);
    if (!is_safe(&w)) return 0;
    const ph_rows *rows = w.rows;
    set_key_sums(&w, ph_dk_target(call, rows->batch, rows->k_head, w.k0), &w.dk);
    set_key_sums(&w, ph_dv_target(call, rows->batch, rows->v_head, w.k0), &w.dv);
    run_blocks(&w, &target);
    finish_keys(&w, &w.dk);
    finish_keys(&w, &w.dv);
    ph_clear_dq(call, &target, rows->group, 0, w.first);
    ph_clear_dq(call, &target, rows->group, w.end, rows->extent.q_size * rows->group);
    return 1;
}
