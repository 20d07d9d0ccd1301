/*
 * launch.c - the GPU as a backend: what it can run, its workspace, its passes.
 *
 * A pass puts kernels into a stream and returns; nothing here waits for the device but a
 * checked ctx, which reads small tensors back to look at them.
 */
#include <stdio.h>
#include <string.h>

#include "attn/plan.h"
#include "base/arena.h"
#include "cuda/cuda_call.h"
#include "cuda/device.h"
#include "cuda/fast_launch.h"

enum {
    TILE = 64, /* rows and keys of a tile, columns of an output: plain.cuh */
    COLUMNS = 128,
    THREADS = 256,
    ROWS_OF_DELTA = 256,    /* of a CTA: plain_backward.cu */
    GATHER_PARTS = 64,      /* of a head: each counts the gates before it */
    PACK_PARTS = 1024,      /* of a head */
    SLICE_BYTES = 32 << 20, /* partial sums of drelative, at most */
    SLICE_CTAS = 1024       /* CTAs that make them, about */
};

/* What the plan owns: workspace for calls that bring none, and who used it last. */
typedef struct plan_memory {
    void *workspace;
    CUstream last; /* where it was used last */
    int in_use;    /* it was used */
    CUevent used;  /* the last pass that used it has ended */
} plan_memory;

/* ---- plans ---- */

/* Counted from sizes of the plan alone: the order of a sum must not depend on the GPU. */
static int slice_count(const ph_attn *a)
{
    int64_t bytes = (int64_t)a->q_heads * (2 * (int64_t)a->reach + 1) * 8;
    int64_t most = (int64_t)a->batch * ph_div_up(a->q_len, TILE);
    int64_t count = SLICE_BYTES / bytes;
    if (count > SLICE_CTAS / a->q_heads) count = SLICE_CTAS / a->q_heads;
    if (count > most) count = most;
    return count < 1 ? 1 : (int)count;
}

static void take_backward(const ph_attn *a, ph_arena *arena, ph_cuda_call *c)
{
    size_t rows = (size_t)a->batch * (size_t)a->q_heads * (size_t)a->q_len;
    size_t numbers = (size_t)a->q_heads * (2 * (size_t)a->reach + 1);
    c->lse2 = ph_arena_floats(arena, rows);
    c->delta = ph_arena_floats(arena, rows);
    c->row_dgate = ph_arena_take(arena, rows * sizeof(double));
    c->row_dsink = ph_arena_take(arena, rows * sizeof(double));
    c->slice_count = slice_count(a);
    c->slices = ph_arena_take(
        arena, a->reach ? (size_t)c->slice_count * numbers * sizeof(double) : 0);
}

static ph_status make_memory(ph_plan *plan, plan_memory *m)
{
    ph_ctx *ctx = plan->ctx;
    size_t bytes = ph_plan_workspace(plan);
    const ph_driver *d = &ph_cuda_of(ctx)->driver;
    CUstream stream = ph_cuda_of(ctx)->stream;
    if (bytes) PH_TRY(ph_cuda_alloc(ctx, bytes, &m->workspace));
    PH_TRY(ph_cuda_enter(ctx));
    CUresult result = d->cuEventCreate(&m->used, PH_CU_EVENT_NO_TIMING);
    /* Counters of the fast kernels begin with 0. */
    if (bytes && result == PH_CU_SUCCESS)
        result = d->cuMemsetD32Async((uintptr_t)m->workspace, 0, bytes / 4, stream);
    if (result == PH_CU_SUCCESS) result = d->cuStreamSynchronize(stream);
    ph_cuda_leave(ctx);
    return ph_cuda_check(ctx, result, "making a plan");
}

static void destroy(ph_plan *plan)
{
    plan_memory *m = plan->device;
    if (!m) return;
    ph_cuda_free(plan->ctx, m->workspace);
    if (m->used && ph_cuda_enter(plan->ctx) == PH_OK) {
        ph_cuda_of(plan->ctx)->driver.cuEventDestroy(m->used);
        ph_cuda_leave(plan->ctx);
    }
    ph_ctx_release(plan->ctx, m);
    plan->device = NULL;
}

/* dq, and dk with dv: 0 if tensor cores never compute them. */
static int cut_backward(const ph_plan *plan, ph_arena *arena, ph_cuda_fast (*fast)[2])
{
    if (!ph_cuda_grad_plan(plan)) return 0;
    for (int keys = 0; keys < 2; keys++)
        ph_cuda_grad_cut(plan, keys, arena, &(*fast)[keys]);
    return 1;
}

static ph_status measure(ph_plan *plan)
{
    const ph_variant_needs *needs = &plan->needs;
    ph_arena arena = {0};
    ph_cuda_call c;
    if (needs->extras || needs->mix[0] || needs->mix[1] || needs->power)
        return ph_fail(plan->ctx, PH_UNSUPPORTED,
                       "variant %s is not available on PH_CUDA, expected mha",
                       plan->attn.variant);
    if (plan->attn.kv_dtype)
        return ph_fail(plan->ctx, PH_UNSUPPORTED,
                       "kv_dtype is not available on PH_CUDA, expected 0");
    if (plan->attn.backward) {
        ph_cuda_fast fast[2];
        take_backward(&plan->attn, &arena, &c);
        cut_backward(plan, &arena, &fast);
    }
    plan->shared_bytes[PH_DO_BACKWARD] = arena.used;
    if (ph_cuda_fast_plan(plan)) {
        ph_arena fast_arena = {0};
        ph_cuda_fast fast;
        ph_cuda_fast_cut(plan, &fast_arena, &fast);
        plan->shared_bytes[PH_DO_FORWARD] = fast_arena.used;
    }
    plan->device = ph_ctx_alloc(plan->ctx, sizeof(plan_memory));
    if (!plan->device)
        return ph_fail(plan->ctx, PH_OUT_OF_MEMORY, "no memory for a plan");
    memset(plan->device, 0, sizeof(plan_memory));
    ph_status status = make_memory(plan, plan->device);
    if (status != PH_OK) destroy(plan);
    return status;
}

static int describe(const ph_plan *plan, char *text, size_t size)
{
    const ph_cuda *gpu = ph_cuda_of(plan->ctx);
    const char *why = ph_cuda_why_plain(plan);
    int copied[3] = {0};
    if (!why) ph_cuda_copied(plan, &copied);
    return snprintf(text, size, "%s %s: %s, %d SMs, %s%s%s%s%s%s%s", plan->attn.variant,
                    ph_cuda_backend.isa, gpu->name, gpu->sm_count,
                    why ? "plain kernels because of " : "forward pass on tensor cores",
                    why ? why : "",
                    plan->attn.backward && ph_cuda_grad_plan(plan)
                        ? ", backward pass too"
                        : "",
                    copied[0] || copied[1] || copied[2] ? ", copied first:" : "",
                    copied[0] ? " q" : "", copied[1] ? " k" : "", copied[2] ? " v" : "");
}

/* ---- before a call ---- */

/* A host copy of n elements in device memory, or NULL where there are none. */
static ph_status fetch(const ph_plan *plan, const void *from, int64_t n, size_t size,
                       void *stream, void **out)
{
    *out = NULL;
    if (!from || n <= 0) return PH_OK;
    *out = ph_ctx_alloc(plan->ctx, (size_t)n * size);
    if (!*out) return ph_fail(plan->ctx, PH_OUT_OF_MEMORY, "no memory to check a tensor");
    PH_TRY(ph_cuda_copy(plan->ctx, *out, from, (size_t)n * size, stream));
    return ph_cuda_sync(plan->ctx, stream);
}

/* The check, on host copies of what it reads. */
static ph_status check_copies(const ph_plan *plan, const ph_args *args,
                              ph_tensor_check *check)
{
    const ph_attn *a = &plan->attn;
    int64_t heads = a->q_heads, rows = heads * (int64_t)ph_attn_rows(a);
    int64_t entries = (int64_t)a->batch * plan->table_len;
    int64_t cells = (int64_t)a->bias.batch * a->bias.heads * a->bias.q_len * a->kv_len;
    ph_args seen = *args;
    struct {
        const void *from;
        int64_t count;
        size_t size;
    } all[] = {{args->q_lens, a->batch, 4},
               {args->kv_lens, a->batch, 4},
               {args->bias, cells, 4},
               {args->gate, a->gate == PH_GATE_HEAD ? heads : rows, 4},
               {args->sink, heads, 4},
               {args->alibi, heads, 4},
               {args->relative, heads * (2 * (int64_t)a->reach + 1), 4},
               {args->q_offsets, (int64_t)a->batch + 1, 4},
               {args->kv_offsets, (int64_t)a->batch + 1, 4},
               {args->page_table, entries, 4}};
    enum { COUNT = sizeof all / sizeof all[0] };
    void *copy[COUNT] = {NULL};
    ph_status status = PH_OK;
    for (int i = 0; i < COUNT && status == PH_OK; i++)
        status =
            fetch(plan, all[i].from, all[i].count, all[i].size, args->stream, &copy[i]);
    seen.q_lens = copy[0], seen.kv_lens = copy[1], seen.bias = copy[2];
    seen.gate = copy[3], seen.sink = copy[4], seen.alibi = copy[5];
    seen.relative = copy[6], seen.q_offsets = copy[7], seen.kv_offsets = copy[8];
    seen.page_table = copy[9];
    if (status == PH_OK) status = check(plan, &seen);
    for (int i = 0; i < COUNT; i++) ph_ctx_release(plan->ctx, copy[i]);
    return status;
}

static ph_status inspect(const ph_plan *plan, const ph_args *args, ph_tensor_check *check)
{
    if (args->look)
        return ph_fail(plan->ctx, PH_UNSUPPORTED,
                       "look is not available on PH_CUDA, expected NULL");
    return plan->ctx->options.checked ? check_copies(plan, args, check) : PH_OK;
}

static ph_status scratch(const ph_plan *plan, size_t bytes, void **out)
{
    (void)bytes; /* measured when the plan was made */
    *out = ((const plan_memory *)plan->device)->workspace;
    return PH_OK;
}

/* ---- passes ---- */

static void fill_call(const ph_call *call, ph_cuda_call *c)
{
    const ph_plan *plan = call->plan;
    memset(c, 0, sizeof *c);
    c->attn = plan->attn;
    c->args = *call->args;
    if (call->grads) c->grads = *call->grads;
    c->args.kv_offsets = call->kv_offsets;
    c->table_len = plan->table_len;
    c->scale2 = plan->scale2, c->cap2 = plan->cap2;
    c->score_scale = plan->attn.softcap > 0 ? plan->cap2 : plan->scale2;
    c->cap_rate = plan->attn.softcap > 0 ? 2 * plan->scale2 / plan->attn.softcap : 0;
    c->cap_decay = plan->attn.softcap > 0 ? 2 / plan->attn.softcap : 0;
    c->drop_limit = plan->drop_limit, c->drop_keep = plan->drop_keep;
    c->modified = c->args.bias || c->args.relative || c->args.alibi || c->args.visible ||
                  plan->attn.softcap > 0;
}

typedef struct launcher {
    ph_ctx *ctx;
    CUstream stream;
    ph_cuda_call c;
    CUresult result; /* of the first launch that failed */
} launcher;

/* CTAs walk over items in steps of the grid, so any number of them is right. */
static void launch(launcher *l, ph_cuda_kernel kernel, int64_t items, int column_tiles)
{
    const ph_cuda *gpu = ph_cuda_of(l->ctx);
    const int64_t most = 1 << 24;
    void *parameters[] = {&l->c};
    if (l->result != PH_CU_SUCCESS || items <= 0 || column_tiles <= 0) return;
    l->result = gpu->driver.cuLaunchKernel(
        (CUfunction)gpu->kernel[kernel], (unsigned)(items < most ? items : most),
        (unsigned)column_tiles, 1, THREADS, 1, 1, 0, l->stream, parameters, NULL);
}

/* The plan's own workspace: a pass in another stream waits for the last one. While a
   graph is captured the order is the graph's. An event costs time between two kernels, so
   it is recorded late in the stream of the ctx, which is sure to exist then. */
static void order_streams(launcher *l, plan_memory *m, int before)
{
    const ph_driver *d = &ph_cuda_of(l->ctx)->driver;
    const CUstream own = ph_cuda_of(l->ctx)->stream;
    CUstreamCaptureStatus capturing = PH_CU_NOT_CAPTURING;
    d->cuStreamIsCapturing(l->stream, &capturing);
    if (capturing != PH_CU_NOT_CAPTURING || l->result != PH_CU_SUCCESS) return;
    if (!before) {
        if (l->stream != own) l->result = d->cuEventRecord(m->used, l->stream);
        m->last = l->stream, m->in_use = 1;
    } else if (m->in_use && m->last != l->stream) {
        if (m->last == own) l->result = d->cuEventRecord(m->used, own);
        if (l->result == PH_CU_SUCCESS)
            l->result = d->cuStreamWaitEvent(l->stream, m->used, 0);
    }
}

/* As many CTAs as SMs take items. They may start while the kernel before them ends, and
   wait for its results themselves. Each pass leaves the counters at 0; but a workspace of
   the caller, or one that a backward pass used, may hold anything. */
static void launch_fast(launcher *l, ph_cuda_fast *fast)
{
    const ph_cuda *gpu = ph_cuda_of(l->ctx);
    void *parameters[] = {&l->c,    &fast->schedule, &fast->q,
                          &fast->k, &fast->v,        &fast->out};
    const int dirty = l->c.args.workspace || l->c.attn.backward;
    if (dirty && l->result == PH_CU_SUCCESS)
        l->result = gpu->driver.cuMemsetD32Async((uintptr_t)fast->schedule.taken, 0,
                                                 fast->counters, l->stream);
    CUlaunchAttribute overlapped = {.id = PH_CU_OVERLAPPED};
    CUlaunchConfig config = {.gridDimX = (unsigned)fast->ctas,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)fast->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = PH_FAST_BYTES,
                             .hStream = l->stream,
                             .attrs = &overlapped,
                             .numAttrs = 1};
    overlapped.value.programmaticStreamSerializationAllowed = 1;
    if (l->result == PH_CU_SUCCESS)
        l->result = gpu->driver.cuLaunchKernelEx(
            &config, (CUfunction)gpu->kernel[fast->kernel], parameters, NULL);
}

/* Copies what the fast kernel cannot read, and has it read the copies. */
static void launch_pack(launcher *l, const ph_cuda_fast *fast)
{
    const ph_attn *a = &l->c.attn;
    const ph_cuda_packed *packed = fast->packed;
    int rows = ph_max(a->q_len, a->kv_len);
    memcpy(l->c.packed, packed, sizeof fast->packed);
    if (packed[0].base || packed[1].base || packed[2].base)
        launch(l, PH_CUDA_pack_rows, (int64_t)a->batch * a->q_heads,
               ph_min(ph_div_up(rows, TILE), PACK_PARTS));
    l->c.attn = fast->attn;
    if (packed[0].base) l->c.args.q = packed[0].base;
    if (packed[1].base) l->c.args.k = packed[1].base;
    if (packed[2].base) l->c.args.v = packed[2].base;
}

/* Where rows have gates, what a fast kernel computes. */
static void launch_gather(launcher *l, const ph_cuda_fast *fast)
{
    const ph_attn *a = &l->c.attn;
    if (!fast->gathers) return;
    l->c.gathered = fast->gathered;
    launch(l, PH_CUDA_gather_rows, (int64_t)a->batch * a->q_heads,
           ph_min(ph_div_up(a->q_len, THREADS), GATHER_PARTS));
}

/* 1 if a fast kernel takes the call. */
static int is_fast(const ph_call *call, ph_cuda_fast *fast)
{
    ph_arena arena = ph_arena_of(call->shared, call->plan->shared_bytes[PH_DO_FORWARD]);
    if (!ph_cuda_fast_plan(call->plan)) return 0;
    ph_cuda_fast_cut(call->plan, &arena, fast);
    return ph_cuda_fast_call(call->plan, call->args, fast);
}

static ph_status forward(const ph_call *call)
{
    const ph_attn *a = call->attn;
    ph_ctx *ctx = call->plan->ctx;
    plan_memory *m = call->plan->device;
    launcher l = {.ctx = ctx, .stream = ph_cuda_stream(ctx, call->args->stream)};
    ph_cuda_fast fast;
    fill_call(call, &l.c);
    PH_TRY(ph_cuda_enter(ctx));
    if (is_fast(call, &fast)) {
        if (!call->args->workspace) order_streams(&l, m, 1);
        launch_pack(&l, &fast);
        launch_gather(&l, &fast);
        launch_fast(&l, &fast);
        if (!call->args->workspace) order_streams(&l, m, 0);
    } else {
        launch(&l, PH_CUDA_plain_forward,
               (int64_t)a->batch * a->q_heads * ph_div_up(a->q_len, TILE),
               ph_max(1, ph_div_up(a->v_dim, COLUMNS)));
    }
    ph_cuda_leave(ctx);
    return ph_cuda_check(ctx, l.result, "ph_forward");
}

/* dq, dk and dv: 1 if tensor cores compute them. */
static int launch_fast_backward(launcher *l, const ph_call *call, ph_arena *arena)
{
    const ph_grads *g = call->grads;
    ph_cuda_fast fast[2];
    if (!cut_backward(call->plan, arena, &fast)) return 0;
    for (int keys = 0; keys < 2; keys++)
        if (!ph_cuda_grad_call(call->plan, keys, call->args, g, &fast[keys])) return 0;
    if (g->dq) launch_fast(l, &fast[0]);
    if (g->dk || g->dv) launch_fast(l, &fast[1]);
    return 1;
}

static void launch_backward(launcher *l, const ph_call *call, ph_arena *arena)
{
    const ph_attn *a = call->attn;
    const ph_grads *g = &l->c.grads;
    int64_t numbers = (int64_t)a->q_heads * (2 * (int64_t)a->reach + 1);
    int row_tiles = ph_div_up(a->q_len, TILE), key_tiles = ph_div_up(a->kv_len, TILE);
    int qk = ph_div_up(a->qk_dim, COLUMNS), v = ph_div_up(a->v_dim, COLUMNS);
    launch(l, PH_CUDA_plain_delta,
           (int64_t)a->batch * a->q_heads * ph_div_up(a->q_len, ROWS_OF_DELTA), 1);
    if (g->dsink || (g->dgate && a->gate == PH_GATE_HEAD))
        launch(l, PH_CUDA_plain_head_sums, a->q_heads, 1);
    if (launch_fast_backward(l, call, arena)) return;
    if (g->dq)
        launch(l, PH_CUDA_plain_dq, (int64_t)a->batch * a->q_heads * row_tiles, qk);
    if (g->dk)
        launch(l, PH_CUDA_plain_dk, (int64_t)a->batch * a->k_heads * key_tiles, qk);
    if (g->dv) launch(l, PH_CUDA_plain_dv, (int64_t)a->batch * a->v_heads * key_tiles, v);
    if (g->dbias)
        launch(l, PH_CUDA_plain_dbias,
               (int64_t)a->bias.batch * a->bias.heads * ph_div_up(a->bias.q_len, TILE) *
                   key_tiles,
               1);
    if (!g->drelative) return;
    launch(l, PH_CUDA_plain_drelative, (int64_t)a->q_heads * l->c.slice_count, 1);
    launch(l, PH_CUDA_plain_relative_sums, (numbers + THREADS - 1) / THREADS, 1);
}

static ph_status backward(const ph_call *call)
{
    const ph_attn *a = call->attn;
    ph_ctx *ctx = call->plan->ctx;
    plan_memory *m = call->plan->device;
    launcher l = {.ctx = ctx, .stream = ph_cuda_stream(ctx, call->args->stream)};
    ph_arena arena = ph_arena_of(call->shared, call->plan->shared_bytes[PH_DO_BACKWARD]);
    fill_call(call, &l.c);
    take_backward(a, &arena, &l.c);
    if (!l.c.grads.dgate || a->gate == PH_GATE_ROW) l.c.row_dgate = NULL;
    if (!l.c.grads.dsink) l.c.row_dsink = NULL;
    PH_TRY(ph_cuda_enter(ctx));
    if (!call->args->workspace) order_streams(&l, m, 1);
    launch_backward(&l, call, &arena);
    if (!call->args->workspace) order_streams(&l, m, 0);
    ph_cuda_leave(ctx);
    return ph_cuda_check(ctx, l.result, "ph_backward");
}

static ph_status look(const ph_call *call)
{
    return ph_fail(call->plan->ctx, PH_UNSUPPORTED,
                   "ph_look is not available on PH_CUDA");
}

const ph_backend ph_cuda_backend = {.isa = "sm90",
                                    .alloc = ph_cuda_alloc,
                                    .release = ph_cuda_free,
                                    .copy = ph_cuda_copy,
                                    .sync = ph_cuda_sync,
                                    .close = ph_cuda_close,
                                    .measure = measure,
                                    .destroy = destroy,
                                    .describe = describe,
                                    .inspect = inspect,
                                    .scratch = scratch,
                                    .forward = forward,
                                    .backward = backward,
                                    .look = look};
