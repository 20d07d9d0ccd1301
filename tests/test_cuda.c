/*
 * test_cuda.c - the GPU behind the same calls. Without one: what ph_open says, that it
 * leaks nothing, and that our declarations of the driver are those of the CUDA toolkit.
 * With one: what the random plans of the other programs (tests/gpu_check) do not reach.
 */
#if __has_include(<cuda.h>)
#include <cuda.h>
#define HAVE_CUDA_H 1
#else
#define HAVE_CUDA_H 0
#endif

#include <dlfcn.h>
#include <math.h>

#include "cuda/device.h"
#include "cuda/images.h"
#include "polyhead_layer.h"
#include "run_trial.h"
#include "sweep.h"

/* ---- without a GPU ---- */

#if HAVE_CUDA_H
#define SAME_TYPE(name, arguments)                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(name), CUresult arguments),   \
                   #name " is declared as in cuda.h");
PH_DRIVER_FUNCTIONS(SAME_TYPE)
#define SAME_VALUE(ours, theirs)                                                         \
    _Static_assert((int)ours == (int)theirs, #ours " is " #theirs);
SAME_VALUE(PH_CU_SUCCESS, CUDA_SUCCESS)
SAME_VALUE(PH_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
SAME_VALUE(PH_CU_ATTRIBUTE_SM_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
SAME_VALUE(PH_CU_ATTRIBUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
SAME_VALUE(PH_CU_ATTRIBUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
SAME_VALUE(PH_CU_EVENT_NO_TIMING, CU_EVENT_DISABLE_TIMING)
SAME_VALUE(PH_CU_STREAM_DEFAULT, CU_STREAM_DEFAULT)
SAME_VALUE(PH_CU_NOT_CAPTURING, CU_STREAM_CAPTURE_STATUS_NONE)
SAME_VALUE(PH_CU_MAX_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
SAME_VALUE(PH_CU_OVERLAPPED, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
SAME_VALUE(PH_CU_MAP_F16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
SAME_VALUE(PH_CU_MAP_BF16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
SAME_VALUE(PH_CU_MAP_NO_INTERLEAVE, CU_TENSOR_MAP_INTERLEAVE_NONE)
SAME_VALUE(PH_CU_MAP_SWIZZLE_128B, CU_TENSOR_MAP_SWIZZLE_128B)
SAME_VALUE(PH_CU_MAP_L2_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B)
SAME_VALUE(PH_CU_MAP_FILL_ZERO, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
_Static_assert(sizeof(CUtensorMap) == 128, "a tensor map is 128 bytes");
_Static_assert(sizeof(CUlaunchAttribute) == 72 && sizeof(CUlaunchConfig) == 56,
               "launches are configured by structs of these sizes");
_Static_assert(sizeof(CUresult) == sizeof(int), "results are int");
_Static_assert(sizeof(CUdevice_attribute) == sizeof(int), "attributes are int");
_Static_assert(sizeof(CUstreamCaptureStatus) == sizeof(int), "capture status is int");
_Static_assert(sizeof(CUdeviceptr) == sizeof(void *), "device addresses are addresses");
#endif

/* Compared when this file is compiled. */
static void declarations(void)
{
    if (!HAVE_CUDA_H) SKIP("there is no cuda.h to compare with");
}

typedef struct counter {
    int taken, given; /* allocations */
} counter;

static void *counted_alloc(void *user, size_t bytes)
{
    ((counter *)user)->taken++;
    return malloc(bytes);
}

static void counted_release(void *user, void *ptr)
{
    ((counter *)user)->given += ptr != NULL;
    free(ptr);
}

/* Opens or says in one sentence why not; all memory comes back. */
static void opening(void)
{
    ph_ctx *ctx = NULL;
    char text[300] = "";
    counter count = {0, 0};
    ph_options o = {.device = PH_CUDA,
                    .alloc = counted_alloc,
                    .release = counted_release,
                    .user = &count,
                    .error = text,
                    .error_size = sizeof text};
    ph_status status = ph_open(&ctx, &o);
    if (status == PH_OK) CHECK(!strcmp(ph_isa(ctx), "sm90"), "isa %s", ph_isa(ctx));
    ph_close(ctx);
    CHECK(count.taken == count.given, "%d allocations, %d given back", count.taken,
          count.given);
    if (status == PH_OK) return;
    CHECK(status == PH_UNSUPPORTED && !ctx, "status %s", ph_status_text(status));
    const char *expected = ph_cuda_images[0].name ? "NVIDIA driver" : "no GPU kernels";
    CHECK(strstr(text, expected) || strstr(text, "compute capability"),
          "the sentence is \"%s\"", text);
}

static void other_isa(void)
{
    ph_ctx *ctx = NULL;
    char text[300] = "";
    ph_options o = {
        .device = PH_CUDA, .isa = "avx2", .error = text, .error_size = sizeof text};
    CHECK(ph_open(&ctx, &o) == PH_BAD_ARGUMENT && !ctx, "a GPU with avx2");
    CHECK(strstr(text, "sm90"), "\"%s\"", text);
}

/* On the CPU the memory functions are those of the host. */
static void host_memory(void)
{
    ph_ctx *ctx = NULL;
    void *memory = NULL;
    char back[8] = "";
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_device_alloc(ctx, 8, &memory) == PH_OK && memory, "no memory");
    CHECK(ph_device_copy(ctx, memory, "polyhea", 8, NULL) == PH_OK, "no copy");
    CHECK(ph_device_copy(ctx, back, memory, 8, NULL) == PH_OK, "no copy back");
    CHECK(ph_sync(ctx, NULL) == PH_OK && !strcmp(back, "polyhea"), "\"%s\"", back);
    CHECK(ph_device_copy(ctx, NULL, back, 1, NULL) == PH_BAD_ARGUMENT, "to NULL");
    ph_device_free(ctx, memory);
    CHECK(ph_device_alloc(ctx, SIZE_MAX - 9, &memory) == PH_OUT_OF_MEMORY && !memory,
          "more than all memory");
    ph_device_free(ctx, NULL);
    ph_close(ctx);
}

/* ---- on the GPU ---- */

static ph_ctx *need_gpu(void)
{
    ph_ctx *ctx = NULL;
    static char text[300];
    ph_options o = {.device = PH_CUDA, .error = text, .error_size = sizeof text};
    if (ph_open(&ctx, &o) != PH_OK) SKIP("%s", text);
    return ctx;
}

/* Heads wider than an output tile, many splits of columns, long rows: by the judge. */
static void wide_heads(void)
{
    static const int dims[][2] = {{129, 64},  {64, 129},  {256, 256}, {300, 20},
                                  {20, 300},  {192, 128}, {576, 512}, {1, 1},
                                  {128, 128}, {96, 80}};
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 10; n++) {
        problem p = {.attn = {.batch = 2,
                              .q_heads = 4,
                              .k_heads = 2,
                              .v_heads = 1,
                              .q_len = 70 + 30 * n,
                              .kv_len = 200,
                              .qk_dim = dims[n][0],
                              .v_dim = dims[n][1],
                              .dtype = (ph_dtype)(n % 3),
                              .mask = n % 2 ? PH_MASK_CAUSAL : PH_MASK_NONE,
                              .anchor = PH_ANCHOR_END,
                              .backward = 1},
                     .with = {.lse = 1, .dlse = 1, .kv_lens = 1}};
        judge j;
        problem_build(&p, (uint64_t)n);
        must(ctx, device_run(ctx, &p, 1));
        judge_open(&j, &p);
        const char *why = judge_forward(&j, &p);
        if (!why) why = judge_backward(&j, &p);
        CHECK(!why, "dims %d and %d: %s", dims[n][0], dims[n][1], why);
        judge_close(&j);
        problem_free(&p);
    }
    ph_close(ctx);
}

/* A bias by distance: as the CPU's, which test_relative compares with a full bias. */
static tensor add_floats(problem *p, const char *name, slab_kind kind, int heads, int dim)
{
    tensor t = {PH_F32, 1, heads, 1, dim, {0, dim, dim}, NULL, 0};
    t.mem = slab_new(p, name, kind, (size_t)heads * (size_t)dim, 4);
    if (kind != SLAB_INPUT) memset(t.mem->mark, 1, t.mem->count);
    return t;
}

static double distance_of(const tensor *x, const tensor *y)
{
    double most = 0, size = 1;
    for (int b = 0; b < x->batch; b++)
        for (int h = 0; h < x->heads; h++)
            for (int i = 0; i < x->len; i++)
                for (int d = 0; d < x->dim; d++) {
                    double u = tensor_get(x, b, h, i, d), v = tensor_get(y, b, h, i, d);
                    if (u == v) continue;
                    most = fmax(most, isfinite(u - v) ? fabs(u - v) : INFINITY);
                    size = fmax(size, fabs(v));
                }
    return most / size;
}

static void relative_case(ph_ctx *gpu, ph_ctx *cpu, int n)
{
    static const int lens[] = {1, 7, 40, 131, 300};
    problem p = {.attn = {.batch = 1 + n % 3,
                          .q_heads = 2,
                          .k_heads = 1 + n % 2,
                          .v_heads = 2,
                          .q_len = lens[n % 5],
                          .kv_len = lens[n / 2 % 5],
                          .qk_dim = 5,
                          .reach = 1 + n % 11 * 7,
                          .mask = n % 4 == 1 ? PH_MASK_CAUSAL : PH_MASK_NONE,
                          .softcap = n % 4 == 2 ? 3 : 0,
                          .anchor = n % 3 ? PH_ANCHOR_OFFSET : PH_ANCHOR_END,
                          .q_offset = n % 3 ? n % 5 - 2 : 0,
                          .backward = 1},
                 .with = {.lse = 1, .kv_lens = n % 2}};
    problem q = p;
    problem *both[] = {&p, &q};
    tensor table[2], gradient[2];
    uint64_t rng = (uint64_t)n;
    for (int k = 0; k < 2; k++) {
        problem *x = both[k];
        problem_build(x, (uint64_t)n);
        table[k] = add_floats(x, "relative", SLAB_INPUT, 2, 2 * x->attn.reach + 1);
        gradient[k] = add_floats(x, "drelative", SLAB_GRADIENT, 2, table[k].dim);
        x->args.relative = tensor_data(&table[k]);
        x->grads.drelative = tensor_data(&gradient[k]);
    }
    for (int h = 0; h < 2; h++)
        for (int d = 0; d < table[0].dim; d++) {
            double value = (double)check_normal(&rng);
            tensor_set(&table[0], 0, h, 0, d, value);
            tensor_set(&table[1], 0, h, 0, d, value);
        }
    must(gpu, device_run(gpu, &p, 1));
    must(cpu, drive_backward(cpu, &q));
    const tensor *x[] = {&p.out, &p.lse, &p.dq, &p.dk, &p.dv, &gradient[0]};
    const tensor *y[] = {&q.out, &q.lse, &q.dq, &q.dk, &q.dv, &gradient[1]};
    static const char *const names[] = {"out", "lse", "dq", "dk", "dv", "drelative"};
    for (int k = 0; k < 6; k++) {
        double far = distance_of(x[k], y[k]);
        CHECK(far < 1e-5, "case %d: %s is %g of its largest from the CPU's: %s", n,
              names[k], far, problem_text(&p));
    }
    problem_free(&p);
    problem_free(&q);
}

static void relative(void)
{
    ph_ctx *gpu = need_gpu();
    for (int n = 0; n < 60; n++) relative_case(gpu, drive_ctx(NULL, 2), n);
    ph_close(gpu);
}

/* What the GPU does not have is refused by name, and nothing is written. */
static void refusals(void)
{
    ph_ctx *ctx = need_gpu();
    ph_plan *plan = NULL;
    ph_layer *layer = NULL;
    problem p = {.attn = {.batch = 1, .q_heads = 2, .q_len = 3, .kv_len = 4, .qk_dim = 8},
                 .with = {.lse = 1, .entropy = 1}};
    ph_attn mixed = p.attn;
    mixed.variant = "talking";
    CHECK(ph_plan_create(&plan, ctx, &mixed) == PH_UNSUPPORTED && !plan, "talking");
    CHECK(strstr(ph_error(ctx), "talking"), "\"%s\"", ph_error(ctx));
    problem_build(&p, 1);
    must(ctx, ph_plan_create(&plan, ctx, &p.attn));
    CHECK(ph_forward(plan, &p.args) == PH_UNSUPPORTED, "a look was taken");
    CHECK(strstr(ph_error(ctx), "look"), "\"%s\"", ph_error(ctx));
    CHECK(problem_untouched(&p), "a refused call wrote something");
    ph_layer_desc desc = {.attn = p.attn, .model_dim = 16};
    CHECK(ph_layer_create(&layer, ctx, &desc) == PH_UNSUPPORTED && !layer, "a layer");
    CHECK(strstr(ph_error(ctx), "PH_CUDA"), "\"%s\"", ph_error(ctx));
    ph_plan_free(plan);
    problem_free(&p);
    ph_close(ctx);
}

/* A checked ctx reads lengths and values back; another clamps lengths. */
static void checked(void)
{
    ph_ctx *plain = need_gpu(), *ctx = NULL;
    ph_options o = {.device = PH_CUDA, .checked = 1};
    problem p = {.attn = {.batch = 2, .q_heads = 1, .q_len = 5, .kv_len = 9, .qk_dim = 4},
                 .with = {.lse = 1, .kv_lens = 1, .sink = 1, .clean = 1}};
    CHECK(ph_open(&ctx, &o) == PH_OK, "no checked ctx");
    problem_build(&p, 3);
    p.kv_lens[0] = 9, p.kv_lens[1] = 10;
    CHECK(device_run(ctx, &p, 0) == PH_BAD_SHAPE, "10 of 9 keys");
    CHECK(strstr(ph_error(ctx), "kv_lens[1] is 10"), "\"%s\"", ph_error(ctx));
    CHECK(problem_untouched(&p), "a refused call wrote something");
    must(plain, device_run(plain, &p, 0));
    p.kv_lens[1] = 9;
    judge j;
    judge_open(&j, &p);
    const char *why = judge_forward(&j, &p);
    CHECK(!why, "lengths were not clamped: %s", why);
    judge_close(&j);
    tensor_set(&p.sink, 0, 0, 0, 0, (double)NAN);
    CHECK(device_run(ctx, &p, 0) == PH_BAD_VALUE, "a sink of NaN");
    ph_close(ctx);
    ph_close(plain);
    problem_free(&p);
}

/* Calls in streams of the caller give the bits of the ctx's own. */
static void streams(void)
{
    ph_ctx *ctx = need_gpu();
    const ph_driver *d = &ph_cuda_of(ctx)->driver;
    CUstream stream[2];
    problem p = {.attn = {.batch = 2,
                          .q_heads = 4,
                          .q_len = 300,
                          .kv_len = 300,
                          .qk_dim = 64,
                          .mask = PH_MASK_CAUSAL,
                          .backward = 1},
                 .with = {.lse = 1}};
    problem q = p;
    problem_build(&p, 5);
    problem_build(&q, 5);
    must(ctx, device_run(ctx, &p, 1));
    must(ctx, ph_cuda_enter(ctx));
    for (int n = 0; n < 2; n++)
        CHECK((int)d->cuStreamCreate(&stream[n], 0) == PH_CU_SUCCESS, "no stream");
    ph_cuda_leave(ctx);
    for (int n = 0; n < 2; n++) {
        problem_wipe(&q);
        q.args.stream = stream[n];
        must(ctx, device_run(ctx, &q, 1));
        CHECK(tensor_same(&p.out, &q.out) && tensor_same(&p.dq, &q.dq) &&
                  tensor_same(&p.dk, &q.dk) && tensor_same(&p.dv, &q.dv),
              "other bits in stream %d", n);
    }
    must(ctx, ph_cuda_enter(ctx));
    for (int n = 0; n < 2; n++) d->cuStreamDestroy(stream[n]);
    ph_cuda_leave(ctx);
    problem_free(&p);
    problem_free(&q);
    ph_close(ctx);
}

/* What capturing a graph takes, beyond what the library itself calls. */
typedef struct graphs {
    int (*cuStreamBeginCapture_v2)(CUstream, int mode);
    int (*cuStreamEndCapture)(CUstream, void **graph);
    int (*cuGraphInstantiateWithFlags)(void **ready, void *graph, unsigned long long);
    int (*cuGraphLaunch)(void *ready, CUstream);
    int (*cuGraphExecDestroy)(void *ready);
    int (*cuGraphDestroy)(void *graph);
} graphs;

static graphs find_graphs(const ph_driver *d)
{
    static const char *const names[] = {
        "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
        "cuGraphLaunch",           "cuGraphExecDestroy", "cuGraphDestroy"};
    void *found[6];
    graphs g;
    for (int n = 0; n < 6; n++) {
        found[n] = dlsym(d->library, names[n]);
        CHECK(found[n], "the driver has no %s", names[n]);
    }
    memcpy(&g, found, sizeof g);
    return g;
}

enum { GRAPH_ROWS = 2 * 100, GRAPH_DIM = 32, GRAPH_TENSORS = 9 };

/* Both passes captured into a graph give the bits of the calls themselves. */
static void capture(void)
{
    static float host[GRAPH_ROWS * GRAPH_DIM], direct[5][GRAPH_ROWS * GRAPH_DIM];
    ph_ctx *ctx = need_gpu();
    const ph_driver *d = &ph_cuda_of(ctx)->driver;
    graphs g = find_graphs(d);
    ph_attn attn = {.batch = 1,
                    .q_heads = 2,
                    .q_len = 100,
                    .kv_len = 100,
                    .qk_dim = 32,
                    .mask = PH_MASK_CAUSAL,
                    .backward = 1};
    void *t[GRAPH_TENSORS], *graph = NULL,
                            *ready = NULL; /* inputs first: q, k, v, dout */
    uint64_t rng = 1;
    ph_plan *plan = NULL;
    CUstream stream;
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    must(ctx, ph_cuda_enter(ctx));
    CHECK((int)d->cuStreamCreate(&stream, 0) == PH_CU_SUCCESS, "no stream");
    for (int n = 0; n < GRAPH_TENSORS; n++) {
        for (int i = 0; i < GRAPH_ROWS * GRAPH_DIM; i++) host[i] = check_normal(&rng);
        must(ctx, ph_device_alloc(ctx, sizeof host, &t[n]));
        must(ctx, ph_device_copy(ctx, t[n], host, sizeof host, stream));
    }
    ph_args args = {.q = t[0], .k = t[1], .v = t[2], .out = t[4], .lse = t[8]};
    ph_grads grads = {.dout = t[3], .dq = t[5], .dk = t[6], .dv = t[7]};
    args.stream = stream;
    for (int round = 0; round < 2; round++) {
        if (round) CHECK(g.cuStreamBeginCapture_v2(stream, 2) == 0, "no capture");
        must(ctx, ph_forward(plan, &args));
        must(ctx, ph_backward(plan, &args, &grads));
        if (!round) must(ctx, ph_sync(ctx, stream));
        if (round) {
            CHECK(g.cuStreamEndCapture(stream, &graph) == 0 && graph, "no graph");
            CHECK(g.cuGraphInstantiateWithFlags(&ready, graph, 0) == 0, "not ready");
            for (int n = 4; n < GRAPH_TENSORS; n++)
                must(ctx, ph_device_copy(ctx, t[n], host, sizeof host, stream));
            CHECK(g.cuGraphLaunch(ready, stream) == 0, "not launched");
        }
        for (int n = 4; n < GRAPH_TENSORS; n++) {
            size_t bytes = n == 8 ? GRAPH_ROWS * sizeof(float) : sizeof host;
            must(ctx,
                 ph_device_copy(ctx, round ? host : direct[n - 4], t[n], bytes, stream));
            must(ctx, ph_sync(ctx, stream));
            CHECK(!round || !memcmp(host, direct[n - 4], bytes), "tensor %d differs", n);
        }
    }
    g.cuGraphExecDestroy(ready), g.cuGraphDestroy(graph);
    for (int n = 0; n < GRAPH_TENSORS; n++) ph_device_free(ctx, t[n]);
    d->cuStreamDestroy(stream);
    ph_cuda_leave(ctx);
    ph_plan_free(plan);
    ph_close(ctx);
}

/* `polyhead run --device cuda` gives what the CPU gives, every output. */
static void program(void)
{
    const ph_dtype F = PH_F32;
    static float values[2 * 4 * 37 * 16];
    uint64_t rng = check_seed;
    ph_close(need_gpu());
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        values[i] = check_normal(&rng);
    trial t = {.count = 0};
    trial_add(&t, "q", F, values, 2, 4, 37, 16);
    trial_add(&t, "k", F, values + 7, 2, 2, 50, 16);
    trial_add(&t, "v", F, values + 11, 2, 1, 50, 8);
    trial_add(&t, "dout", F, values + 13, 2, 4, 37, 8);
    trial_add(&t, "dlse", F, values + 17, 2, 4, 37, -1);
    trial_add(&t, "bias", F, values + 19, 1, 4, 1, 50);
    trial_add(&t, "gate", F, values + 23, 4, -1, -1, -1);
    trial_add(&t, "sink", F, values + 29, 4, -1, -1, -1);
    trial_add(&t, "alibi", F, values + 31, 4, -1, -1, -1);
    trial_add(&t, "relative", F, values + 37, 4, 9, -1, -1);
    const char *words = "--causal --offset 13 --softcap 5 --dropout 0.2 --seed 3";
    char line[120];
    CHECK(trial_begin() == 0, "no folder");
    snprintf(line, sizeof line, "%s --device cuda", words);
    trial_result cpu = trial_run(&t, words), gpu = trial_run(&t, line);
    CHECK(cpu.code == 0 && gpu.code == 0, "codes %d, %d: %s", cpu.code, gpu.code,
          gpu.said);
    static const char *const names[] = {"out",   "lse",   "dq",    "dk",       "dv",
                                        "dbias", "dgate", "dsink", "drelative"};
    for (int n = 0; n < 9; n++) {
        const ph_tensor *x = ph_file_find(gpu.out, names[n]),
                        *y = ph_file_find(cpu.out, names[n]);
        CHECK(x && y && x->bytes == y->bytes, "%s is missing", names[n]);
        const float *u = x->data, *v = y->data;
        for (size_t i = 0; i < x->bytes / 4; i++)
            CHECK(u[i] == v[i] || fabsf(u[i] - v[i]) < 2e-5f * (1 + fabsf(v[i])),
                  "%s[%zu] is %g, on the CPU %g", names[n], i, (double)u[i],
                  (double)v[i]);
    }
    trial_free(&cpu);
    trial_free(&gpu);
    trial_end();
}

static const check_case cases[] = {
    {"declarations", declarations}, {"opening", opening},
    {"host_memory", host_memory},   {"wide_heads", wide_heads},
    {"relative", relative},         {"refusals", refusals},
    {"checked", checked},           {"streams", streams},
    {"capture", capture},           {"program", program},
    {"other_isa", other_isa},       {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
