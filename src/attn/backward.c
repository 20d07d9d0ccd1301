/*
 * backward.c - gradients of q, k and v: who runs which chunk of keys, and where dq goes.
 *
 * An item is one (batch row, head cluster). A chunk of PH_CHUNK keys is handled together
 * with every q head of its cluster, so one thread sums dk and dv of the chunk, over rows
 * in order, without atomics. dq needs all chunks: each gives a partial sum, and these are
 * added in order of the keys. With enough items for all threads, one thread walks the
 * chunks of an item and accumulates dq directly. With few items, chunks run in parallel,
 * in waves, each with a private dq that is added afterwards. The order of the sums, and
 * so the bits, is the same. In a ragged batch the few sequences that would keep a thread
 * busy when the others are done run in waves, the others item by item.
 */
#include "attn/chunk.h"
#include "attn/cut.h"
#include "attn/head.h"

enum {
    WAVE_BUDGET = 32 << 20, /* bytes of private dq in one wave */
    LONG_ITEMS = 2 /* ragged: a long item has more work than a thread's share of it
                      divided by this, so there are at most so many per thread */
};

/* State of one call, shared by all threads. */
typedef struct backward_task {
    const ph_call *call;
    ph_deltas deltas;
    float *dq;       /* (items of waves, or lanes, cluster, q_len, k_pad); NULL: the
                        caller's dq itself, or a single chunk */
    float *partials; /* (wave, cluster, q_len, k_pad) */
    ph_work_cut cut; /* sequences: the first `waved` run in waves */
    int waved;
    int first; /* first chunk of the current wave, counted over all items */
    int count; /* chunks in it */
} backward_task;

static size_t dq_floats(const ph_plan *plan)
{
    return (size_t)plan->cluster * (size_t)plan->attn.q_len * (size_t)plan->k_pad;
}

static int clusters_of(const ph_plan *plan)
{
    return plan->attn.q_heads / plan->cluster;
}

/* Sums of dq: for each item that may run in a wave, or for each lane. */
static size_t dq_sums(const ph_plan *plan)
{
    int threads = plan->ctx->threads;
    if (!plan->wave) return (size_t)threads;
    if (plan->attn.ragged) return (size_t)threads * LONG_ITEMS;
    return (size_t)plan->attn.batch * (size_t)clusters_of(plan);
}

static void take_task(const ph_plan *plan, ph_arena *arena, backward_task *t)
{
    size_t sums = dq_sums(plan);
    ph_deltas_take(plan, arena, &t->deltas);
    ph_cut_take(plan, arena, &t->cut);
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
    int threads = plan->ctx->threads,
        sequences = plan->attn.ragged ? 1 : plan->attn.batch;
    int items = sequences * clusters_of(plan);
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

/* ---- the sequences of a call ---- */

/* Chunks of a sequence; of one without keys there is one, which clears dq. */
static int chunks_of(const ph_call *call, int batch)
{
    return ph_max(1, ph_div_up(ph_rows_extent(call, batch).kv_size, PH_CHUNK));
}

/* Item i: a sequence and the first head of a cluster. */
typedef struct item_at {
    int batch, head;
} item_at;

static item_at find_item(const backward_task *t, int i)
{
    const ph_plan *plan = t->call->plan;
    int sequence = i / clusters_of(plan), head = i % clusters_of(plan) * plan->cluster;
    return (item_at){t->cut.order ? t->cut.order[sequence] : sequence, head};
}

static double work_of(const ph_call *call, int batch)
{
    ph_extent e = ph_rows_extent(call, batch);
    return (double)e.q_size * e.kv_size;
}

/* Decides which sequences run in waves. In a ragged batch these are the ones whose items
   are so long that threads would wait for them; the others begin with the longest. */
static void choose_waved(backward_task *t)
{
    const ph_call *call = t->call;
    const ph_plan *plan = call->plan;
    int batch = call->attn->batch;
    double work = 0;
    t->waved = plan->wave && !call->attn->ragged ? batch : 0;
    if (!call->attn->ragged) return;
    ph_cut_keys(call, 0, batch, PH_CHUNK, &t->cut);
    for (int b = 0; b < batch && plan->wave; b++) work += work_of(call, b);
    double share = work / plan->ctx->threads / LONG_ITEMS * clusters_of(plan);
    for (int i = 0; i < batch && plan->wave; i++) {
        int32_t b = t->cut.order[i];
        if (work_of(call, b) <= share) continue;
        t->cut.order[i] = t->cut.order[t->waved];
        t->cut.order[t->waved++] = b;
    }
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

static ph_dq_target target_of(const backward_task *t, item_at item, float *buffer,
                              int how)
{
    const ph_plan *plan = t->call->plan;
    const ph_attn *a = t->call->attn;
    ph_dq_target target = ph_dq_tensor(t->call, item.batch, item.head);
    if (target.base && buffer)
        target =
            (ph_dq_target){buffer, (int64_t)a->q_len * plan->k_pad, plan->k_pad, how};
    target.how = how;
    return target;
}

/* With waves: the sums that partial sums of item i are added to. */
static ph_dq_target item_sums(const backward_task *t, int i)
{
    float *buffer = t->dq ? t->dq + (size_t)i * dq_floats(t->call->plan) : NULL;
    return target_of(t, find_item(t, i), buffer, PH_DQ_ADD);
}

/* ---- delta ---- */

/* Work item: one head of one batch row; with waves its dq starts from zeros. */
static void prepare_head(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    const ph_call *call = t->call;
    int cluster = call->plan->cluster, i = index / cluster, h = index % cluster;
    item_at item = find_item(t, i);
    ph_deltas_head(call, &t->deltas, ph_call_lane(call, lane), item.batch, item.head + h);
    if (i >= t->waved * clusters_of(call->plan) || !call->grads->dq) return;
    ph_dq_target sums = item_sums(t, i);
    sums.base = (float *)sums.base + h * sums.head;
    sums.how = PH_DQ_FRESH;
    ph_clear_dq(call, &sums, 1, 0, ph_rows_extent(call, item.batch).q_size);
}

/* ---- who runs which chunk ---- */

/* Scales and rounds dq of head h of an item. */
static void store_head(const backward_task *t, item_at item, int h, ph_dq_target from)
{
    const ph_attn *a = t->call->attn;
    int tokens = ph_rows_extent(t->call, item.batch).q_size;
    const float *sums = (const float *)from.base + h * from.head;
    for (int token = 0; token < tokens; token++, sums += from.time) {
        int64_t at = ph_row_at(t->call, &a->dq, item.batch, item.head + h, token);
        void *dq = ph_at_out(t->call->grads->dq, a->dtype, at);
        t->call->kernels->store_row(dq, sums, a->qk_dim, a->dtype, a->scale);
    }
}

static void run_chunk(const backward_task *t, ph_arena scratch, item_at item, int chunk,
                      ph_dq_target target)
{
    if (!ph_head_chunk(t->call, &t->deltas, scratch, item.batch, item.head, chunk,
                       target))
        ph_chunk_run(t->call, &t->deltas, scratch, item.batch, item.head, chunk, target);
}

/* Without waves: one thread walks all chunks of an item; dq is complete at the end. */
static void walk_item(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    const ph_plan *plan = t->call->plan;
    int i = t->waved * clusters_of(plan) + index;
    item_at item = find_item(t, i);
    float *sums = t->dq ? t->dq + (size_t)lane * dq_floats(plan) : NULL;
    int chunks = chunks_of(t->call, item.batch);
    ph_dq_target target = target_of(t, item, chunks > 1 ? sums : NULL, PH_DQ_STORE);
    ph_arena scratch = ph_call_lane(t->call, lane);
    for (int h = 0; h < plan->cluster; h++)
        prepare_head(arg, lane, i * plan->cluster + h);
    for (int chunk = 0; chunk < chunks; chunk++) {
        if (chunks > 1) target.how = chunk ? PH_DQ_ADD : PH_DQ_FRESH;
        run_chunk(t, scratch, item, chunk, target);
    }
    for (int h = 0; t->call->grads->dq && chunks > 1 && h < plan->cluster; h++)
        store_head(t, item, h, target);
}

static void run_wave_chunk(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    const ph_plan *plan = t->call->plan;
    item_at item = find_item(t, (t->first + index) / plan->chunks);
    int chunk = (t->first + index) % plan->chunks;
    float *partial = t->partials + (size_t)index * dq_floats(plan);
    ph_dq_target target = target_of(t, item, partial, PH_DQ_FRESH);
    if (chunk < chunks_of(t->call, item.batch))
        run_chunk(t, ph_call_lane(t->call, lane), item, chunk, target);
}

/* Adds the wave's partial sums of one (head in cluster, block of tokens), in order of the
   keys. */
static void add_partials(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    const ph_plan *plan = t->call->plan;
    int len = t->call->attn->q_len, head = index % plan->cluster;
    int first = index / plan->cluster * PH_GRAD_ROWS;
    (void)lane;
    for (int i = 0; i < t->count; i++) {
        int item = (t->first + i) / plan->chunks, batch = find_item(t, item).batch;
        int end = ph_min(first + PH_GRAD_ROWS, ph_rows_extent(t->call, batch).q_size);
        ph_dq_target to = item_sums(t, item);
        const float *partial = t->partials + (size_t)i * dq_floats(plan);
        if ((t->first + i) % plan->chunks >= chunks_of(t->call, batch)) continue;
        for (int token = first; token < end; token++)
            ph_dq_put(t->call, &to, head, token,
                      partial + ((int64_t)head * len + token) * plan->k_pad);
    }
}

static void store_dq(void *arg, int lane, int index)
{
    const backward_task *t = arg;
    int cluster = t->call->plan->cluster, i = index / cluster;
    (void)lane;
    store_head(t, find_item(t, i), index % cluster, item_sums(t, i));
}

static void run_waves(backward_task *t)
{
    const ph_plan *plan = t->call->plan;
    int items = t->waved * clusters_of(plan), chunks = items * plan->chunks;
    int blocks = ph_div_up(t->call->attn->q_len, PH_GRAD_ROWS) * plan->cluster;
    for (t->first = 0; t->first < chunks; t->first += t->count) {
        t->count = ph_min(plan->wave, chunks - t->first);
        ph_ctx_run(plan->ctx, t->count, run_wave_chunk, t);
        if (t->call->grads->dq) ph_ctx_run(plan->ctx, blocks, add_partials, t);
    }
    if (t->call->grads->dq) ph_ctx_run(plan->ctx, items * plan->cluster, store_dq, t);
}

static void run_products(backward_task *t)
{
    const ph_plan *plan = t->call->plan;
    int waved = t->waved * clusters_of(plan);
    int walked = t->call->attn->batch * clusters_of(plan) - waved;
    if (waved) {
        ph_ctx_run(plan->ctx, waved * plan->cluster, prepare_head, t);
        run_waves(t);
    }
    (t->call->attn->ragged ? ph_ctx_run : ph_ctx_spread)(plan->ctx, walked, walk_item, t);
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
    choose_waved(&t);
    if (grads->dq || grads->dk || grads->dv)
        run_products(&t);
    else
        ph_ctx_run(plan->ctx, heads, prepare_head, &t);
    if (grads->dgate || grads->dsink) ph_deltas_finish(call, &t.deltas);
    if (grads->dbias) ph_attn_bias_gradient(call, t.deltas.lse, t.deltas.delta);
    if (grads->drelative) ph_attn_relative_gradient(call, t.deltas.lse, t.deltas.delta);
}
