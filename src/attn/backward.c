/*
 * backward.c - gradients of q, k and v: who runs which chunk of keys, and where dq goes.
  * An item is one (batch row, head cluster). A chunk of PH_CHUNK keys is handled together
 * with every q head of its cluster, so one thread sums dk and dv of the chunk, over rows
 * in order, without atomics. dq needs all chunks: each gives a partial sum, and these are
 * added in order of the keys. With enough items for all threads, one thread walks the
 * chunks of an item and accumulates dq directly. With few items, chunks run in parallel,
 * in waves, each with a private dq that is added afterwards. The order of the sums, and
 * so the bits, is the same.
 */
#include "attn/chunk.h"
#include "attn/head.h"

enum { WAVE_BUDGET = 32 << 20 }; /* bytes of private dq in one wave */

/* State of one call, shared by all threads. */
typedef struct backward_task {
    const ph_call *call;
    ph_deltas deltas;
    float *dq;       /* (items, or lanes without waves, cluster, q_len, k_pad); NULL: the
                        caller's dq itself, or a single chunk */
    float *partials; /* (wave, cluster, q_len, k_pad) */
    int first;       /* first chunk of the current wave, counted over all items */
    int count;       /* chunks in it */
} backward_task;

static size_t dq_floats(const ph_plan *plan)
{
    return (size_t)plan->cluster * (size_t)plan->attn.q_len * (size_t)plan->k_pad;
}

static int item_count(const ph_plan *plan)
{
    return plan->attn.batch * (plan->attn.q_heads / plan->cluster);
}

static void take_task(const ph_plan *plan, ph_arena *arena, backward_task *t)
{
    size_t sums = (size_t)(plan->wave ? item_count(plan) : plan->ctx->threads);
    ph_deltas_take(plan, arena, &t->deltas);
    /* dq accumulates in the caller's tensor if that is f32 and needs no padding */
    int in_place = plan->attn.dtype == PH_F32 && plan->attn.qk_dim == plan->k_pad;
    t->dq = NULL;
    if (plan->chunks > 1 && !in_place)
        t->dq = ph_arena_floats(arena, sums * dq_floats(plan));
    t->partials = ph_arena_floats(arena, (size_t)plan->wave * dq_floats(plan));
}

/* Chunks run in parallel only where items alone would leave threads idle. */
static void choose_wave(ph_plan *plan)
{
    int threads = plan->ctx->threads, items = item_count(plan);
    int64_t chunks = (int64_t)items * plan->chunks;
    int even = items % threads == 0 && items > 0;
    plan->wave = 0;
    if (threads == 1 || plan->chunks <= 1 || items >= 4 * threads || even) return;
    size_t bytes = dq_floats(plan) * sizeof(float);
    int64_t wave = bytes ? (int64_t)(WAVE_BUDGET / bytes) : chunks;
    if (plan->backward.lean) wave = 0;
    if (wave < threads) wave = threads;
    plan->wave = (int)(wave < chunks ? wave : chunks);
}

void ph_backward_measure(ph_plan *plan)
{
    ph_arena shared = {0};
    backward_task t;
    if (ph_plan_is_joint(plan)) {
        ph_joint_backward_measure(plan);
        return;
    }
    plan->chunks = ph_max(1, ph_div_up(plan->attn.kv_len, PH_CHUNK));
    choose_wave(plan);
    take_task(plan, &shared, &t);
    size_t chunk = ph_chunk_bytes(plan), bias = ph_bias_gradient_bytes(plan),
           relative = ph_relative_gradient_bytes(plan), head = ph_head_chunk_bytes(plan);
    if (relative > bias) bias = relative;
    if (head > chunk) chunk = head;
    plan->lane_bytes[PH_DO_BACKWARD] = chunk > bias ? chunk : bias;
    plan->shared_bytes[PH_DO_BACKWARD] = shared.used;
}

/* ---- where dq goes ---- */

static ph_dq_target target_of(const backward_task *t, int item, float *buffer, int how)
{
    const ph_plan *plan = t->call->plan;
    const ph_attn *a = t->call->attn;
    int clusters = a->q_heads / plan->cluster;
    ph_dq_target target =
        ph_dq_tensor(t->call, item / clusters, item % clusters * plan->cluster);
    if (target.base && buffer)
        target =
            (ph_dq_target){buffer, (int64_t)a->q_len * plan->k_pad, plan->k_pad, how};
    target.how = how;
    return target;
}

/* With waves: the sums that partial sums are added to. */
static ph_dq_target item_sums(const backward_task *t, int item)
{
    float *buffer = t->dq ? t->dq + (size_t)item * dq_floats(t->call->plan) : NULL;
    return target_of(t, item, buffer, PH_DQ_ADD);
}

/* ---- delta ---- */

/* Work item: one head of one batch row. */
static void prepare_head(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    const ph_call *call = t->call;
    int batch = index / call->attn->q_heads, head = index % call->attn->q_heads;
    int cluster = call->plan->cluster;
    if (call->plan->wave && call->grads->dq) {
        ph_dq_target sums = item_sums(t, index / cluster);
        sums.base = (float *)sums.base + index % cluster * sums.head;
        sums.how = PH_DQ_FRESH;
        ph_clear_dq(call, &sums, 1, 0, call->attn->q_len);
    }
    ph_deltas_head(call, &t->deltas, ph_call_lane(call, lane), batch, head);
}

/* ---- who runs which chunk ---- */

/* Scales and rounds dq of one head of one batch row. */
static void store_head(const backward_task *t, int batch, int head, ph_dq_target from)
{
    const ph_plan *plan = t->call->plan;
    const ph_attn *a = t->call->attn;
    const float *sums = (const float *)from.base + head % plan->cluster * from.head;
    for (int token = 0; token < a->q_len; token++, sums += from.time) {
        int64_t at = ph_row_at(t->call, &a->dq, batch, head, token);
        void *dq = ph_at_out(t->call->grads->dq, a->dtype, at);
        t->call->kernels->store_row(dq, sums, a->qk_dim, a->dtype, a->scale);
    }
}

static void run_chunk(const backward_task *t, ph_arena scratch, int item, int chunk,
                      ph_dq_target target)
{
    if (!ph_head_chunk(t->call, &t->deltas, scratch, item, chunk, target))
        ph_chunk_run(t->call, &t->deltas, scratch, item, chunk, target);
}

/* Without waves: one thread walks all chunks of an item; dq is complete at the end. */
static void cluster_item(void *arg, int lane, int item)
{
    const backward_task *t = arg;
    const ph_plan *plan = t->call->plan;
    float *sums = t->dq ? t->dq + (size_t)lane * dq_floats(plan) : NULL;
    ph_dq_target target = target_of(t, item, sums, PH_DQ_STORE);
    ph_arena scratch = ph_call_lane(t->call, lane);
    int first = item * plan->cluster, heads = t->call->attn->q_heads;
    for (int h = first; h < first + plan->cluster; h++) prepare_head(arg, lane, h);
    for (int chunk = 0; chunk < plan->chunks; chunk++) {
        if (plan->chunks > 1) target.how = chunk ? PH_DQ_ADD : PH_DQ_FRESH;
        run_chunk(t, scratch, item, chunk, target);
    }
    if (!t->call->grads->dq || plan->chunks == 1) return;
    for (int h = first; h < first + plan->cluster; h++)
        store_head(t, h / heads, h % heads, target);
}

static void run_wave_chunk(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    const ph_plan *plan = t->call->plan;
    int item = (t->first + index) / plan->chunks;
    int chunk = (t->first + index) % plan->chunks;
    float *partial = t->partials + (size_t)index * dq_floats(plan);
    ph_dq_target target = target_of(t, item, partial, PH_DQ_FRESH);
    run_chunk(t, ph_call_lane(t->call, lane), item, chunk, target);
}

/* Adds the wave's partial sums of one (head in cluster, block of tokens), in order of the
   keys. */
static void add_partials(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    const ph_plan *plan = t->call->plan;
    int len = t->call->attn->q_len, head = index % plan->cluster;
    int first = index / plan->cluster * PH_GRAD_ROWS,
        end = ph_min(first + PH_GRAD_ROWS, len);
    (void)lane;
    for (int i = 0; i < t->count; i++) {
        ph_dq_target to = item_sums(t, (t->first + i) / plan->chunks);
        const float *partial = t->partials + (size_t)i * dq_floats(plan);
        for (int token = first; token < end; token++)
            ph_dq_put(t->call, &to, head, token,
                      partial + ((int64_t)head * len + token) * plan->k_pad);
    }
}

static void store_dq(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    int heads = t->call->attn->q_heads, item = index / t->call->plan->cluster;
    (void)lane;
    store_head(t, index / heads, index % heads, item_sums(t, item));
}

static void run_waves(backward_task *t)
{
    const ph_plan *plan = t->call->plan;
    int chunks = item_count(plan) * plan->chunks;
    int blocks = ph_div_up(t->call->attn->q_len, PH_GRAD_ROWS) * plan->cluster;
    for (t->first = 0; t->first < chunks; t->first += t->count) {
        t->count = ph_min(plan->wave, chunks - t->first);
        ph_ctx_run(plan->ctx, t->count, run_wave_chunk, t);
        if (t->call->grads->dq) ph_ctx_run(plan->ctx, blocks, add_partials, t);
    }
    int heads = t->call->attn->batch * t->call->attn->q_heads;
    if (t->call->grads->dq) ph_ctx_run(plan->ctx, heads, store_dq, t);
}

void ph_attn_backward(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    const ph_grads *grads = call->grads;
    int heads = call->attn->batch * call->attn->q_heads;
    ph_arena arena = ph_call_shared(call);
    backward_task t = {.call = call};
    if (ph_plan_is_joint(plan)) {
        ph_joint_backward(call);
        return;
    }
    take_task(plan, &arena, &t);
    int products = grads->dq || grads->dk || grads->dv;
    if (!products || plan->wave) ph_ctx_run(plan->ctx, heads, prepare_head, &t);
    if (products && plan->wave) run_waves(&t);
    if (products && !plan->wave)
        ph_ctx_spread(plan->ctx, item_count(plan), cluster_item, &t);
    if (grads->dgate || grads->dsink) ph_deltas_finish(call, &t.deltas);
    if (grads->dbias) ph_attn_bias_gradient(call, t.deltas.lse, t.deltas.delta);
    if (grads->drelative) ph_attn_relative_gradient(call, t.deltas.lse, t.deltas.delta);
}
