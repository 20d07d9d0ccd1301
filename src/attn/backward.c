/*
 * backward.c - gradients of q, k and v: who runs which chunk of keys, and where dq goes.
 *
 * A work item owns a chunk of PH_CHUNK keys and every q head that shares them, so dk and
 * dv of the chunk are summed in one place, over rows in order. dq needs all chunks: each
 * chunk's partial sum stands on its own, and these are added in order of the keys. With
 * enough (batch row, head cluster) pairs one item walks all its chunks and adds directly;
 * with few pairs chunks run side by side, in waves, each with a dq of its own that is
 * added afterwards. The order of the sums, and so the bits, is the same. With a single
 * chunk its partial sum is dq.
 */
#include "attn/chunk.h"
#include "attn/head.h"

enum { WAVE_BUDGET = 32 << 20 }; /* bytes of private dq that may be alive at once */

/* Everything that is shared by the items of one call. */
typedef struct task {
    const ph_call *call;
    ph_deltas deltas;
    float *dq;    /* (pairs, or lanes without waves, cluster, q_len, k_pad); NULL: the
                     caller's dq itself, or a single chunk */
    float *parts; /* (wave, cluster, q_len, k_pad) */
    int first;    /* first item of the current wave */
    int count;    /* items in it */
} task;

static size_t dq_floats(const ph_plan *plan)
{
    return (size_t)plan->cluster * (size_t)plan->attn.q_len * (size_t)plan->k_pad;
}

static int pair_count(const ph_plan *plan)
{
    return plan->attn.batch * (plan->attn.q_heads / plan->cluster);
}

static void take_task(const ph_plan *plan, ph_arena *arena, task *t)
{
    size_t sums = (size_t)(plan->wave ? pair_count(plan) : plan->ctx->threads);
    ph_deltas_take(plan, arena, &t->deltas);
    /* dq can be summed in the caller's tensor when that is f32 without a ragged edge */
    int in_place = plan->attn.dtype == PH_F32 && plan->attn.qk_dim == plan->k_pad;
    t->dq = NULL;
    if (plan->chunks > 1 && !in_place)
        t->dq = ph_arena_floats(arena, sums * dq_floats(plan));
    t->parts = ph_arena_floats(arena, (size_t)plan->wave * dq_floats(plan));
}

/* Chunks side by side only where pairs alone would leave threads idle. */
static void choose_wave(ph_plan *plan)
{
    int threads = plan->ctx->threads, pairs = pair_count(plan);
    int64_t items = (int64_t)pairs * plan->chunks;
    int even = pairs % threads == 0 && pairs > 0;
    plan->wave = 0;
    if (threads == 1 || plan->chunks <= 1 || pairs >= 4 * threads || even) return;
    size_t bytes = dq_floats(plan) * sizeof(float);
    int64_t wave = bytes ? (int64_t)(WAVE_BUDGET / bytes) : items;
    if (plan->back.lean) wave = 0;
    if (wave < threads) wave = threads;
    plan->wave = (int)(wave < items ? wave : items);
}

void ph_backward_measure(ph_plan *plan)
{
    ph_arena shared = {0};
    task t;
    if (ph_plan_is_joint(plan)) {
        ph_joint_backward_measure(plan);
        return;
    }
    plan->chunks = ph_max(1, ph_div_up(plan->attn.kv_len, PH_CHUNK));
    choose_wave(plan);
    take_task(plan, &shared, &t);
    size_t chunk = ph_chunk_bytes(plan), bias = ph_bias_gradient_bytes(plan),
           far = ph_relative_gradient_bytes(plan), head = ph_head_chunk_bytes(plan);
    if (far > bias) bias = far;
    if (head > chunk) chunk = head;
    plan->lane_bytes[PH_DO_BACKWARD] = chunk > bias ? chunk : bias;
    plan->shared_bytes[PH_DO_BACKWARD] = shared.used;
}

/* ---- where dq goes ---- */

static ph_dq_target target_of(const task *t, int pair, float *buffer, int how)
{
    const ph_plan *plan = t->call->plan;
    const ph_attn *a = t->call->attn;
    int clusters = a->q_heads / plan->cluster;
    int64_t at =
        pair / clusters * a->dq.batch + pair % clusters * plan->cluster * a->dq.head;
    if (!t->call->grads->dq) return (ph_dq_target){.base = NULL};
    if (buffer)
        return (ph_dq_target){buffer, (int64_t)a->q_len * plan->k_pad, plan->k_pad, how};
    return (ph_dq_target){ph_at_out(t->call->grads->dq, a->dtype, at), a->dq.head,
                          a->dq.time, how};
}

/* With waves: what their partial sums are added to. */
static ph_dq_target pair_sums(const task *t, int pair)
{
    float *buffer = t->dq ? t->dq + (size_t)pair * dq_floats(t->call->plan) : NULL;
    return target_of(t, pair, buffer, PH_DQ_ADD);
}

/* ---- before ---- */

/* Work item: one head of one batch row. */
static void prepare_head(void *arg, int lane, int item)
{
    const task *t = arg;
    const ph_call *call = t->call;
    int batch = item / call->attn->q_heads, head = item % call->attn->q_heads;
    int cluster = call->plan->cluster;
    if (call->plan->wave && call->grads->dq) {
        ph_dq_target sums = pair_sums(t, item / cluster);
        for (int token = 0; token < call->attn->q_len; token++)
            ph_dq_clear(call, &sums, item % cluster, token);
    }
    ph_deltas_head(call, &t->deltas, ph_call_lane(call, lane), batch, head);
}

/* ---- who runs which chunk ---- */

/* Scales and rounds dq of one head of one batch row. */
static void store_head(const task *t, int batch, int head, ph_dq_target from)
{
    const ph_plan *plan = t->call->plan;
    const ph_attn *a = t->call->attn;
    const float *sums = (const float *)from.base + head % plan->cluster * from.head;
    for (int token = 0; token < a->q_len; token++, sums += from.time) {
        int64_t at = batch * a->dq.batch + head * a->dq.head + token * a->dq.time;
        void *dq = ph_at_out(t->call->grads->dq, a->dtype, at);
        t->call->kernels->store_row(dq, sums, a->qk_dim, a->dtype, a->scale);
    }
}

static void run_chunk(const task *t, ph_arena room, int pair, int chunk,
                      ph_dq_target target)
{
    if (!ph_head_chunk(t->call, &t->deltas, room, pair, chunk, target))
        ph_chunk_run(t->call, &t->deltas, room, pair, chunk, target);
}

/* Without waves: one item walks all chunks of its pair; dq is complete at the end. */
static void pair_item(void *arg, int lane, int pair)
{
    const task *t = arg;
    const ph_plan *plan = t->call->plan;
    float *sums = t->dq ? t->dq + (size_t)lane * dq_floats(plan) : NULL;
    ph_dq_target target = target_of(t, pair, sums, PH_DQ_STORE);
    ph_arena room = ph_call_lane(t->call, lane);
    int first = pair * plan->cluster, heads = t->call->attn->q_heads;
    for (int h = first; h < first + plan->cluster; h++) prepare_head(arg, lane, h);
    for (int chunk = 0; chunk < plan->chunks; chunk++) {
        if (plan->chunks > 1) target.how = chunk ? PH_DQ_ADD : PH_DQ_FRESH;
        run_chunk(t, room, pair, chunk, target);
    }
    if (!t->call->grads->dq || plan->chunks == 1) return;
    for (int h = first; h < first + plan->cluster; h++)
        store_head(t, h / heads, h % heads, target);
}

static void wave_item(void *arg, int lane, int index)
{
    const task *t = arg;
    const ph_plan *plan = t->call->plan;
    int item = t->first + index;
    float *part = t->parts + (size_t)index * dq_floats(plan);
    ph_dq_target target = target_of(t, item / plan->chunks, part, PH_DQ_FRESH);
    run_chunk(t, ph_call_lane(t->call, lane), item / plan->chunks, item % plan->chunks,
              target);
}

/* Adds the wave's partial sums of one (head in cluster, block of tokens), in order of the
   keys. */
static void add_parts(void *arg, int lane, int index)
{
    const task *t = arg;
    const ph_plan *plan = t->call->plan;
    int len = t->call->attn->q_len, head = index % plan->cluster;
    int first = index / plan->cluster * PH_GRAD_ROWS,
        end = ph_min(first + PH_GRAD_ROWS, len);
    (void)lane;
    for (int i = 0; i < t->count; i++) {
        ph_dq_target to = pair_sums(t, (t->first + i) / plan->chunks);
        const float *part = t->parts + (size_t)i * dq_floats(plan);
        for (int token = first; token < end; token++)
            ph_dq_put(t->call, &to, head, token,
                      part + ((int64_t)head * len + token) * plan->k_pad);
    }
}

static void store_item(void *arg, int lane, int item)
{
    const task *t = arg;
    int heads = t->call->attn->q_heads, pair = item / t->call->plan->cluster;
    (void)lane;
    store_head(t, item / heads, item % heads, pair_sums(t, pair));
}

static void run_waves(task *t)
{
    const ph_plan *plan = t->call->plan;
    int items = pair_count(plan) * plan->chunks;
    int blocks = ph_div_up(t->call->attn->q_len, PH_GRAD_ROWS) * plan->cluster;
    for (t->first = 0; t->first < items; t->first += t->count) {
        t->count = ph_min(plan->wave, items - t->first);
        ph_ctx_run(plan->ctx, t->count, wave_item, t);
        if (t->call->grads->dq) ph_ctx_run(plan->ctx, blocks, add_parts, t);
    }
    int heads = t->call->attn->batch * t->call->attn->q_heads;
    if (t->call->grads->dq) ph_ctx_run(plan->ctx, heads, store_item, t);
}

void ph_attn_backward(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    const ph_grads *grads = call->grads;
    int heads = call->attn->batch * call->attn->q_heads;
    ph_arena arena = ph_call_shared(call);
    task t = {.call = call};
    if (ph_plan_is_joint(plan)) {
        ph_joint_backward(call);
        return;
    }
    take_task(plan, &arena, &t);
    int products = grads->dq || grads->dk || grads->dv;
    if (!products || plan->wave) ph_ctx_run(plan->ctx, heads, prepare_head, &t);
    if (products && plan->wave) run_waves(&t);
    if (products && !plan->wave)
        ph_ctx_spread(plan->ctx, pair_count(plan), pair_item, &t);
    if (grads->dgate || grads->dsink) ph_deltas_finish(call, &t.deltas);
    if (grads->dbias) ph_attn_bias_gradient(call, t.deltas.lse, t.deltas.delta);
    if (grads->drelative) ph_attn_relative_gradient(call, t.deltas.lse, t.deltas.delta);
}
