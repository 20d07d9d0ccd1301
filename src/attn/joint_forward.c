/*
 * joint_forward.c - row items of the joint driver: compute the logits of a few rows
 * against all their keys, each row's statistic, the weights, and the product with v.
 *
 * Threads take an item each. Where there are fewer items than threads (decoding), or
 * one each would take too much memory, they share one: block by block where heads are
 * mixed, head by head where rows are summed, so every sum runs in the same order either
 * way.
 */
#include <math.h>
#include <string.h>

#include "attn/joint.h"
#include "attn/online.h"

typedef struct joint_worker {
    ph_joint_rows r;
    ph_joint_block *blocks; /* (blocks) */
    int count;              /* of blocks that the rows see */
    float *held;            /* (blocks) joint blocks of logits, then weights */
    float **q;              /* (heads) rows, scaled */
    float *row_max, *stat;  /* (heads, rows): largest score; lse or base, in base 2 */
    float *lse;             /* (heads, rows) as the caller gets it */
    float *sum;             /* (heads, rows, 16) */
    float *acc;             /* (heads, rows, v_pad) */
    int started;            /* 1: acc holds sums */
    /* scratch of a thread: */
    float *other;          /* one more joint block where heads are mixed */
    float *key_factors[2]; /* w1, w2, g of key matrices */
    float *k, *v;          /* for one block */
    float *drop;           /* (PH_BLOCK) */
    float *list;           /* scores near row_max: entmax */
} joint_worker;

typedef struct joint_task {
    const ph_call *call;
    ph_joint_keys keys;
    ph_work_cut cut;    /* items are its blocks, times the sets */
    float *bases;       /* out: (batch, q_heads, q_len), if only bases are computed */
    joint_worker *item; /* shared by all threads */
} joint_task;

static void take_rows(const ph_plan *plan, ph_arena *arena, joint_worker *w)
{
    const ph_joint_plan *j = &plan->joint;
    size_t heads = (size_t)j->heads, all = heads * (size_t)j->rows;
    size_t scaled = (size_t)j->rows * (size_t)plan->k_pad;
    ph_joint_rows_take(plan, arena, j->rows, 0, &w->r);
    w->blocks = ph_arena_take(arena, (size_t)j->blocks * sizeof *w->blocks);
    w->held = ph_arena_floats(arena, (size_t)j->blocks * ph_joint_floats(plan, j->rows));
    w->q = ph_arena_take(arena, heads * sizeof *w->q);
    float *q = ph_arena_floats(arena, heads * scaled);
    for (int h = 0; arena->base && h < j->heads; h++) w->q[h] = q + (size_t)h * scaled;
    w->row_max = ph_arena_floats(arena, all);
    w->stat = ph_arena_floats(arena, all);
    w->lse = ph_arena_floats(arena, all);
    w->sum = ph_arena_floats(arena, all * PH_LANES);
    w->acc = ph_arena_floats(arena, all * (size_t)plan->v_pad);
}

static void take_scratch(const ph_plan *plan, ph_arena *arena, joint_worker *w)
{
    const ph_joint_plan *j = &plan->joint;
    w->other = ph_arena_floats(arena, j->mixes ? ph_joint_floats(plan, j->rows) : 0);
    for (int p = 0; p < 2; p++)
        w->key_factors[p] = ph_arena_floats(arena, ph_joint_mix_floats(plan, p));
    w->k = ph_arena_floats(arena,
                           (size_t)PH_BLOCK * (size_t)plan->attn.qk_dim + PH_PACK_SLACK);
    w->v = ph_arena_floats(arena, (size_t)PH_BLOCK * (size_t)plan->v_pad);
    w->drop = ph_arena_floats(arena, plan->drop_limit ? PH_BLOCK : 0);
    w->list = ph_arena_floats(arena,
                              plan->needs.power ? (size_t)(j->blocks + 1) * PH_BLOCK : 0);
}

static void take(const ph_plan *plan, ph_arena *arena, joint_worker *w)
{
    take_rows(plan, arena, w);
    take_scratch(plan, arena, w);
}

void ph_joint_item_measure(const ph_plan *plan, ph_arena *lane, ph_arena *shared)
{
    joint_worker w;
    ph_work_cut cut;
    ph_cut_take(plan, shared, &cut);
    take_rows(plan, plan->joint.together ? shared : lane, &w);
    take_scratch(plan, lane, &w);
}

void ph_joint_forward_measure(ph_plan *plan)
{
    ph_arena lane = {0}, shared = {0};
    ph_joint_keys keys;
    ph_joint_span span = ph_joint_batch_rows(plan, 0, plan->joint.wave);
    ph_joint_keys_take(plan, &shared, &span, 0, &keys);
    ph_joint_item_measure(plan, &lane, &shared);
    plan->lane_bytes[PH_DO_FORWARD] = lane.used;
    plan->shared_bytes[PH_DO_FORWARD] = shared.used;
}

static float *held_block(const ph_call *call, const joint_worker *w, int b)
{
    return w->held + (size_t)b * ph_joint_floats(call->plan, call->plan->joint.rows);
}

/* ---- logits of all keys ---- */

/* Updates row_max of head h with block b. */
static void raise_row_max(const ph_call *call, joint_worker *w, int b, int h)
{
    const ph_joint_block *t = &w->blocks[b];
    const float *s = held_block(call, w, b);
    float lane_max[PH_LANES];
    for (int i = 0; i < w->r.count; i++) {
        float *row_max = &w->row_max[h * t->rows + i];
        call->kernels->row_lane_max(t->end - t->c0, s + ph_joint_at(t, h, i) + t->c0,
                                    lane_max);
        for (int l = 0; l < PH_LANES; l++)
            if (lane_max[l] > *row_max) *row_max = lane_max[l];
    }
}

static void list_blocks(const ph_call *call, joint_worker *w)
{
    int rows = call->plan->joint.rows;
    w->count = 0;
    for (int j0 = w->r.low / PH_BLOCK * PH_BLOCK; j0 < w->r.high; j0 += PH_BLOCK)
        w->count += ph_joint_range(call, &w->r, j0, rows, &w->blocks[w->count]);
}

/* Computes the logits of block b. */
static void hold_block(const ph_call *call, joint_worker *w, const ph_joint_keys *keys,
                       int b)
{
    int mixed = call->plan->needs.mix[PH_LOGITS];
    ph_joint_block *t = &w->blocks[b];
    float *s = held_block(call, w, b);
    ph_joint_scores(call, &w->r, t, keys, w->q, w->k, mixed ? w->other : s);
    if (mixed) {
        ph_joint_key_factors(call, keys, &w->r, t, w->key_factors);
        ph_joint_mix(call, &w->r, t, PH_LOGITS, w->other, s);
    }
    ph_joint_modify(call, &w->r, t, s, NULL);
}

/* ---- statistics ---- */

/* lse of one row and the factor of its weights, which are 2^(s - row_max) so far. */
static float finish_row(const ph_call *call, int head, int gated_off, float row_max,
                        float sum, float *lse)
{
    const float *sink = gated_off ? NULL : call->args->sink;
    double low = sum > 0 || isnan(sum) ? row_max * PH_LN2 + log(sum) : -INFINITY;
    double factor = sum > 0 || isnan(sum) ? 1.0 / sum : 0;
    if (sink && sink[head] != -INFINITY) {
        double high = low > sink[head] ? low : sink[head];
        double both = high + log(exp(low - high) + exp(sink[head] - high));
        factor *= exp(low - both);
        low = both;
    }
    *lse = (float)low;
    return (float)factor;
}

/* Logits of head h become weights: softmax in base 2, all keys at once. */
static void softmax(const ph_call *call, joint_worker *w, int h)
{
    static const float zeros[PH_BLOCK];
    const ph_kernels *k = call->kernels;
    int rows = call->plan->joint.rows;
    float lane_max[PH_MR_MAX * PH_LANES], rescale[PH_MR_MAX], total[PH_ROWS_MAX];
    float *row_max = w->row_max + h * rows, *sum = w->sum + (size_t)(h * rows) * PH_LANES;
    for (int i = 0; i < PH_MR_MAX * PH_LANES; i++) lane_max[i] = -INFINITY;
    memset(sum, 0, (size_t)rows * PH_LANES * sizeof(float));
    for (int b = 0; b < w->count; b++)
        for (int i = 0; i < w->r.count; i += k->mr) {
            const ph_joint_block *t = &w->blocks[b];
            float *s = held_block(call, w, b) + ph_joint_at(t, h, i) + t->c0;
            k->softmax(ph_min(k->mr, w->r.count - i), t->end - t->c0, s, lane_max,
                       row_max + i, sum + i * PH_LANES, rescale);
        }
    k->lane_sums(w->r.count, sum, total);
    for (int i = 0; i < w->r.count; i++) {
        float factor =
            finish_row(call, w->r.rows[h].head[i], w->r.gated_off[h * PH_ROWS_MAX + i],
                       row_max[i], total[i], &w->lse[h * rows + i]);
        for (int b = 0; b < w->count; b++) {
            const ph_joint_block *t = &w->blocks[b];
            k->blend(t->end - t->c0,
                     held_block(call, w, b) + ph_joint_at(t, h, i) + t->c0, factor, zeros,
                     0);
        }
    }
}

/* The bases of head h, and tau, which is returned as lse of entmax. */
static void find_bases(const ph_call *call, joint_worker *w, int h)
{
    const ph_joint_rows *r = &w->r;
    int rows = call->plan->joint.rows;
    int64_t step = (int64_t)ph_joint_floats(call->plan, rows);
    for (int i = 0; i < r->count; i++) {
        int head = r->rows[h].head[i], at = h * rows + i;
        const float *sink = r->gated_off[h * PH_ROWS_MAX + i] ? NULL : call->args->sink;
        float extra = sink ? (float)(sink[head] * PH_LOG2E) : -INFINITY;
        ph_entmax e = ph_entmax_of(r->alpha[head]);
        float base =
            ph_entmax_base(call->kernels, e, w->held + (int64_t)at * PH_BLOCK, step,
                           w->count, w->blocks, w->row_max[at], extra, w->list);
        w->lse[at] = ph_entmax_tau(e, base);
        w->stat[at] = base == -INFINITY ? INFINITY : base;
    }
}

/* ---- times v ---- */

/* acc += p v where v is NaN or Inf: keys of weight 0 are skipped unless they are visible
   and their weight underflowed. Same order, same bits. */
static void multiply_visible(const ph_call *call, const joint_worker *w,
                             const ph_joint_block *t, int h, const float *p,
                             const float *v, int64_t ld)
{
    int pad = call->plan->v_pad, sparse = call->plan->needs.power;
    for (int i = 0; i < w->r.count; i++) {
        float *acc = w->acc + ((int64_t)h * t->rows + i) * pad;
        if (!w->started) memset(acc, 0, (size_t)pad * sizeof(float));
        for (int c = t->c0; c < t->c1; c++) {
            float x = p[ph_joint_at(t, h, i) + c];
            int seen = !sparse && ph_joint_sees(call, &w->r, h, i, t->j0 + c);
            if (x != 0 || seen) call->kernels->axpy(pad, x, v + c * ld, acc);
        }
    }
}

/* Whether rows [i, i + m) have no weight in this block. */
static int all_zero(const ph_call *call, const ph_joint_block *t, int h, int i, int m,
                    const float *p)
{
    float lane_max[PH_LANES];
    for (int r = i; r < i + m; r++) {
        call->kernels->row_lane_max(t->end - t->c0, p + ph_joint_at(t, h, r) + t->c0,
                                    lane_max);
        for (int l = 0; l < PH_LANES; l++)
            if (!(lane_max[l] <= 0)) return 0;
    }
    return 1;
}

static void multiply_head(const ph_call *call, joint_worker *w, const ph_joint_block *t,
                          int h, const float *p)
{
    static const float ones[PH_MR_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const ph_keys values = ph_keys_v(call, w->r.batch, w->r.rows[h].v_head);
    const ph_kernels *k = call->kernels;
    int pad = call->plan->v_pad;
    int sparse = call->plan->needs.power && !call->plan->needs.mix[PH_WEIGHTS];
    int64_t ld;
    const float *v = ph_keys_rows(&values, t->j0, t->c0, t->c1, 0, w->v, &ld);
    if (!k->finite(v + t->c0 * ld, ld, t->c1 - t->c0, pad)) {
        multiply_visible(call, w, t, h, p, v, ld);
        return;
    }
    for (int i = 0; i < w->r.count; i += k->mr) {
        int m = ph_min(k->mr, w->r.count - i);
        if (sparse && w->started && all_zero(call, t, h, i, m, p)) continue;
        k->multiply_v(m, pad, t->c1 - t->c0, p + ph_joint_at(t, h, i) + t->c0,
                      v + t->c0 * ld, ld, w->acc + ((int64_t)h * t->rows + i) * pad, pad,
                      w->started ? ones : NULL, NULL);
    }
}

static int key_factors_finite(const ph_call *call, const ph_joint_block *t)
{
    size_t floats = ph_joint_mix_floats(call->plan, PH_WEIGHTS);
    return !floats || call->kernels->finite(t->keys[PH_WEIGHTS], PH_BLOCK,
                                            (int)(floats / PH_BLOCK), PH_BLOCK);
}

/* Mixes the weights p of a block into w->other; 0: all are 0 by entmax. */
static int mix_weights(const ph_call *call, joint_worker *w, const ph_joint_keys *keys,
                       ph_joint_block *t, const float *p)
{
    ph_joint_key_factors(call, keys, &w->r, t, w->key_factors);
    int finite = key_factors_finite(call, t), empty = call->plan->needs.power && finite;
    for (int h = 0; h < w->r.heads && empty; h++)
        empty = all_zero(call, t, h, 0, w->r.count, p);
    if (empty && w->started) return 0;
    ph_joint_mix(call, &w->r, t, PH_WEIGHTS, p, w->other);
    if (w->r.uneven || !finite) ph_joint_clear_masked(call, &w->r, t, 0, w->other);
    return 1;
}

/* The weights of block b as they multiply v; NULL: all are 0. */
static float *finish_block(const ph_call *call, joint_worker *w,
                           const ph_joint_keys *keys, int b)
{
    ph_joint_block *t = &w->blocks[b];
    float *p = held_block(call, w, b);
    if (call->plan->needs.power) ph_joint_weights(call, &w->r, t, w->stat, p, NULL);
    if (call->plan->needs.mix[PH_WEIGHTS]) {
        if (!mix_weights(call, w, keys, t, p)) return NULL;
        p = w->other;
    }
    if (call->plan->drop_limit) ph_joint_drop(call, &w->r, t, w->drop, p);
    return p;
}

/* ---- the end of a row ---- */

static float gate_of(const ph_call *call, const ph_rows *rows, int i)
{
    const float *gate = call->args->gate;
    if (!gate) return 1;
    if (call->attn->gate == PH_GATE_HEAD) return gate[rows->head[i]];
    return gate[ph_rows_index(call, rows, i)];
}

static void store_rows(const ph_call *call, const joint_worker *w)
{
    const ph_attn *a = call->attn;
    int rows = call->plan->joint.rows;
    size_t bytes = (size_t)a->v_dim * ph_dtype_size(a->dtype);
    for (int h = 0; h < w->r.heads; h++)
        for (int i = 0; i < w->r.count; i++) {
            const ph_rows *r = &w->r.rows[h];
            float gate = gate_of(call, r, i);
            void *out =
                ph_at_out(call->args->out, a->dtype, ph_rows_at(call, r, i, &a->out));
            if (call->args->lse)
                call->args->lse[ph_rows_index(call, r, i)] = w->lse[h * rows + i];
            if (gate == 0 || !w->started)
                memset(out, 0, bytes);
            else
                call->kernels->store_row(
                    out, w->acc + ((int64_t)h * rows + i) * call->plan->v_pad, a->v_dim,
                    a->dtype, gate);
        }
}

/* out 0 and lse -inf for the rows that will not be computed. */
static void clear_rows(const ph_call *call, joint_worker *w, int batch, int set,
                       int first, int end)
{
    const ph_joint_plan *j = &call->plan->joint;
    for (int h = 0; h < w->r.heads; h++) {
        ph_rows_begin(call, &w->r.rows[h], batch, j->mixes ? h : set * j->per_token,
                      j->per_token);
        ph_online_clear(call, &w->r.rows[h], first, end);
    }
}

/* ---- items ---- */

/* The rows of an item; items with most keys come first. */
typedef struct item_rows {
    int batch, set, first, end;
} item_rows;

static item_rows find_rows(const joint_task *job, int index)
{
    const ph_joint_plan *j = &job->call->plan->joint;
    const ph_piece piece = ph_cut_find(&job->cut, index / j->sets);
    int total = ph_rows_extent(job->call, piece.batch).q_size * j->per_token;
    int first = piece.block * j->rows;
    return (item_rows){piece.batch, index % j->sets, first,
                       ph_min(first + j->rows, total)};
}

/* Gathers the rows of an item and lists their blocks; 0: there are none. */
static int begin_rows(const ph_call *call, joint_worker *w, const item_rows *p)
{
    ph_joint_gather(call, &w->r, p->batch, p->set, p->first, p->end,
                    call->plan->joint.rows);
    if (w->r.count == 0) return 0;
    ph_joint_matrices(call, &w->r);
    for (int h = 0; h < w->r.heads; h++)
        ph_rows_pack_q(call, &w->r.rows[h], call->plan->scale2, w->q[h]);
    for (int i = 0; i < w->r.heads * call->plan->joint.rows; i++)
        w->row_max[i] = -INFINITY;
    list_blocks(call, w);
    w->started = 0;
    return 1;
}

static void hold_all(const ph_call *call, joint_worker *w, const ph_joint_keys *keys)
{
    for (int b = 0; b < w->count; b++) {
        hold_block(call, w, keys, b);
        for (int h = 0; h < w->r.heads; h++) raise_row_max(call, w, b, h);
    }
}

static void find_statistic(const ph_call *call, joint_worker *w, int h)
{
    if (call->plan->needs.power)
        find_bases(call, w, h);
    else
        softmax(call, w, h);
}

static void run_item(void *arg, int lane, int index)
{
    const joint_task *job = arg;
    const ph_call *call = job->call;
    item_rows at = find_rows(job, index);
    ph_arena arena = ph_call_lane(call, lane);
    joint_worker w;
    take(call->plan, &arena, &w);
    clear_rows(call, &w, at.batch, at.set, at.first, at.end);
    if (!begin_rows(call, &w, &at)) return;
    hold_all(call, &w, &job->keys);
    for (int h = 0; h < w.r.heads; h++) find_statistic(call, &w, h);
    for (int b = 0; b < w.count; b++) {
        const float *p = finish_block(call, &w, &job->keys, b);
        for (int h = 0; p && h < w.r.heads; h++)
            multiply_head(call, &w, &w.blocks[b], h, p);
        w.started = 1;
    }
    store_rows(call, &w);
}

/* ---- one item, all threads ---- */

/* The shared item with the scratch of this thread. */
static joint_worker shared_item(const joint_task *job, int lane)
{
    const ph_call *call = job->call;
    ph_arena arena = ph_call_lane(call, lane);
    joint_worker w = *job->item;
    take_scratch(call->plan, &arena, &w);
    return w;
}

static void hold_one(void *arg, int lane, int b)
{
    const joint_task *job = arg;
    joint_worker w = shared_item(job, lane);
    hold_block(job->call, &w, &job->keys, b);
}

static void normalise_head(void *arg, int lane, int h)
{
    const joint_task *job = arg;
    joint_worker w = shared_item(job, lane);
    for (int b = 0; b < w.count; b++) raise_row_max(job->call, &w, b, h);
    find_statistic(job->call, &w, h);
}

/* Overwrites the held weights with those that multiply v. */
static void finish_one(void *arg, int lane, int b)
{
    const joint_task *job = arg;
    joint_worker w = shared_item(job, lane);
    const float *p = finish_block(job->call, &w, &job->keys, b);
    float *held = held_block(job->call, &w, b);
    for (int h = 0; p != held && h < w.r.heads; h++)
        memcpy(held + ph_joint_at(&w.blocks[b], h, 0),
               p + ph_joint_at(&w.blocks[b], h, 0),
               (size_t)w.r.count * PH_BLOCK * sizeof(float));
}

static void multiply_one(void *arg, int lane, int h)
{
    const joint_task *job = arg;
    joint_worker w = shared_item(job, lane);
    for (int b = 0; b < w.count; b++, w.started = 1)
        multiply_head(job->call, &w, &w.blocks[b], h, held_block(job->call, &w, b));
}

static void run_together(joint_task *job, int index)
{
    const ph_call *call = job->call;
    ph_ctx *ctx = call->plan->ctx;
    joint_worker *w = job->item;
    item_rows at = find_rows(job, index);
    clear_rows(call, w, at.batch, at.set, at.first, at.end);
    if (!begin_rows(call, w, &at)) return;
    ph_ctx_run(ctx, w->count, hold_one, job);
    ph_ctx_run(ctx, w->r.heads, normalise_head, job);
    ph_ctx_run(ctx, w->count, finish_one, job);
    ph_ctx_run(ctx, w->r.heads, multiply_one, job);
    w->started = w->count > 0;
    store_rows(call, w);
}

/* ---- the call ---- */

static int is_lost(const ph_call *call, const ph_joint_rows *r, int h, int i)
{
    int64_t at = ph_rows_index(call, &r->rows[h], i);
    return ph_entmax_is_lost(r->alpha[r->rows[h].head[i]], call->args->lse[at]);
}

static int any_lost(const ph_call *call, const ph_joint_rows *r)
{
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++)
            if (is_lost(call, r, h, i)) return 1;
    return 0;
}

static void store_bases(const joint_task *job, const joint_worker *w)
{
    const ph_call *call = job->call;
    for (int h = 0; h < w->r.heads; h++)
        for (int i = 0; i < w->r.count; i++)
            if (is_lost(call, &w->r, h, i))
                job->bases[ph_rows_index(call, &w->r.rows[h], i)] =
                    w->stat[h * call->plan->joint.rows + i];
}

static void base_item(void *arg, int lane, int index)
{
    const joint_task *job = arg;
    const ph_call *call = job->call;
    item_rows at = find_rows(job, index);
    ph_arena arena = ph_call_lane(call, lane);
    joint_worker w;
    take(call->plan, &arena, &w);
    if (!begin_rows(call, &w, &at) || !any_lost(call, &w.r)) return;
    hold_all(call, &w, &job->keys);
    for (int h = 0; h < w.r.heads; h++) find_bases(call, &w, h);
    store_bases(job, &w);
}

static void bases_together(joint_task *job, int index)
{
    const ph_call *call = job->call;
    joint_worker *w = job->item;
    item_rows at = find_rows(job, index);
    if (!begin_rows(call, w, &at) || !any_lost(call, &w->r)) return;
    ph_ctx_run(call->plan->ctx, w->count, hold_one, job);
    ph_ctx_run(call->plan->ctx, w->r.heads, normalise_head, job);
    store_bases(job, w);
}

/* All items of `batch_rows` batch rows: a thread each, or one after the other. */
static void run_items(joint_task *job, int first, int batch_rows, ph_item *alone,
                      void (*together)(joint_task *job, int index))
{
    const ph_plan *plan = job->call->plan;
    const ph_joint_plan *j = &plan->joint;
    ph_cut_rows(job->call, first, batch_rows, j->per_token, j->rows, &job->cut);
    int items = job->cut.count * j->sets;
    if (!j->together) ph_ctx_run(plan->ctx, items, alone, job);
    for (int i = 0; j->together && i < items; i++) together(job, i);
}

void ph_joint_bases(const ph_call *call, const ph_joint_keys *keys, ph_arena shared,
                    int first, int batch_rows, float *stat)
{
    joint_worker item;
    joint_task t = {.call = call, .keys = *keys, .bases = stat, .item = &item};
    ph_cut_take(call->plan, &shared, &t.cut);
    if (call->plan->joint.together) take_rows(call->plan, &shared, &item);
    run_items(&t, first, batch_rows, base_item, bases_together);
}

void ph_joint_forward(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    const ph_joint_plan *j = &plan->joint;
    int batch = call->attn->batch, wave = j->wave ? j->wave : ph_max(batch, 1);
    ph_arena arena = ph_call_shared(call);
    joint_worker item;
    joint_task t = {.call = call, .item = &item};
    ph_joint_span span = ph_joint_batch_rows(plan, 0, j->wave);
    ph_joint_keys_take(plan, &arena, &span, 0, &t.keys);
    ph_cut_take(plan, &arena, &t.cut);
    if (j->together) take_rows(plan, &arena, &item);
    for (int first = 0; first < batch; first += wave) {
        ph_joint_keys_pack(call, &t.keys, first);
        run_items(&t, first, ph_min(wave, batch - first), run_item, run_together);
    }
}
