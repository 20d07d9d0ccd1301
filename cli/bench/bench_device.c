/*
 * bench_device.c - `polyhead bench --device cuda`: attention on a GPU, in TFLOP/s, and
 * decoding in TB/s of keys and values.
 *
 * A call only puts work into a stream, so rounds of several calls are timed, each up to
 * the end of its work. Caches of decoding take turns: one alone might stay in the GPU's
 * own cache. Elements are random, because zeros run faster.
 */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/probe.h"
#include "bench/work.h"
#include "framework/json.h"
#include "framework/panel.h"
#include "framework/term.h"

enum {
    ROUNDS = 7,
    CALLS = 12,     /* of a round, at least; a multiple of caches */
    CACHES_MAX = 6, /* keys and values that take turns */
    TENSORS = 6,    /* q, out, lse, dout, dq, and dk with dv */
    BLOCK = 1 << 20 /* bytes of random elements, repeated */
};
static const double beyond_cache = 200e6; /* bytes of all caches together, about */
static const double round_time = 0.01;    /* seconds: waiting for its end costs 0.0001 */

typedef enum device_pass { FORWARD, DECODE, BACKWARD } device_pass;

typedef struct device_shape {
    const char *name;
    device_pass pass;
    int batch, q_heads, kv_heads, q_len, kv_len, dim;
    ph_dtype dtype;
    int causal;
} device_shape;

/* clang-format off */
#define BOTH(t, batch, d, heads)                                                         \
    {"forward-" #t "-d" #d, FORWARD, batch, heads, heads, t, t, d, PH_BF16, 0},          \
    {"forward-" #t "-d" #d "-causal", FORWARD, batch, heads, heads, t, t, d, PH_BF16, 1}
#define LENGTHS(d, heads)                                                                \
    BOTH(512, 32, d, heads), BOTH(1024, 16, d, heads), BOTH(2048, 8, d, heads),          \
    BOTH(16384, 1, d, heads)

static const device_shape shapes[] = {
    LENGTHS(64, 32), LENGTHS(128, 16), LENGTHS(256, 8),
    {"decode-1",        DECODE,    1, 32,  8,    1,   8192, 128, PH_BF16, 0},
    {"decode-4",        DECODE,    4, 32,  8,    1,   8192, 128, PH_BF16, 0},
    {"decode-16",       DECODE,   16, 32,  8,    1,   8192, 128, PH_BF16, 0},
    {"decode-64",       DECODE,   64, 32,  8,    1,   8192, 128, PH_BF16, 0},
    {"decode-128",      DECODE,  128, 32,  8,    1,   8192, 128, PH_BF16, 0},
    {"decode-long",     DECODE,    1, 32,  8,    1, 131072, 128, PH_BF16, 0},
    {"decode-16-d64",   DECODE,   16, 32,  8,    1,   8192,  64, PH_BF16, 0},
    {"decode-16-d256",  DECODE,   16, 32,  8,    1,   4096, 256, PH_BF16, 0},
    {"f32-2048-d128",   FORWARD,   4, 16, 16, 2048,   2048, 128, PH_F32,  0},
    {"backward-2048-d128", BACKWARD, 4, 16, 16, 2048, 2048, 128, PH_F32,  0}};
/* clang-format on */

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

/* A problem in device memory. */
typedef struct device_work {
    ph_ctx *ctx;
    ph_plan *plan;
    void *tensor[TENSORS];
    void *k[CACHES_MAX], *v[CACHES_MAX], *dv;
    int caches;
} device_work;

static double bytes_of(const device_shape *s) /* of keys and values */
{
    return 2.0 * s->batch * s->kv_heads * s->kv_len * s->dim *
           (double)ph_dtype_bytes(s->dtype, 1);
}

static double flops_of(const device_shape *s)
{
    double product = 2.0 * s->batch * s->q_heads * s->q_len * (double)s->kv_len * s->dim;
    return product * (s->pass == BACKWARD ? 5 : 2) * (s->causal ? 0.5 : 1);
}

/* ---- a problem ---- */

/* One random block, then copies of it on the device. */
static ph_status make(ph_ctx *ctx, double count, ph_dtype dtype, void **out)
{
    static char block[BLOCK];
    size_t bytes = ph_dtype_bytes(dtype, (size_t)count);
    work_fill(block, BLOCK / ph_dtype_bytes(dtype, 1), dtype, 1);
    ph_status status = ph_device_alloc(ctx, bytes, out);
    for (size_t at = 0; at < bytes && status == PH_OK; at += BLOCK) {
        size_t part = bytes - at < BLOCK ? bytes - at : BLOCK;
        status = ph_device_copy(ctx, (char *)*out + at, at ? *out : block, part, NULL);
    }
    return status == PH_OK ? ph_sync(ctx, NULL) : status;
}

static ph_status open_work(device_work *w, ph_ctx *ctx, const device_shape *s)
{
    ph_attn attn = {.batch = s->batch,
                    .q_heads = s->q_heads,
                    .k_heads = s->kv_heads,
                    .v_heads = s->kv_heads,
                    .q_len = s->q_len,
                    .kv_len = s->kv_len,
                    .qk_dim = s->dim,
                    .dtype = s->dtype,
                    .mask = s->causal ? PH_MASK_CAUSAL : PH_MASK_NONE,
                    .backward = s->pass == BACKWARD};
    double rows = (double)s->batch * s->q_heads * s->q_len;
    double keys = (double)s->batch * s->kv_heads * s->kv_len * s->dim;
    int tensors = s->pass == BACKWARD ? TENSORS : 3;
    *w = (device_work){.ctx = ctx, .caches = 1};
    while (s->pass == DECODE && w->caches < CACHES_MAX &&
           w->caches * bytes_of(s) < beyond_cache)
        w->caches++;
    while (CALLS % w->caches) w->caches++;
    ph_status status = ph_plan_create(&w->plan, ctx, &attn);
    for (int i = 0; i < tensors && status == PH_OK; i++)
        status = make(ctx,
                      i == 2   ? rows
                      : i == 5 ? keys
                               : rows * s->dim,
                      i == 2 ? PH_F32 : s->dtype, &w->tensor[i]);
    for (int i = 0; i < w->caches && status == PH_OK; i++) {
        status = make(ctx, keys, s->dtype, &w->k[i]);
        if (status == PH_OK) status = make(ctx, keys, s->dtype, &w->v[i]);
    }
    if (status == PH_OK && s->pass == BACKWARD)
        status = make(ctx, keys, s->dtype, &w->dv);
    return status;
}

static void close_work(device_work *w)
{
    for (int i = 0; i < TENSORS; i++) ph_device_free(w->ctx, w->tensor[i]);
    for (int i = 0; i < CACHES_MAX; i++) {
        ph_device_free(w->ctx, w->k[i]);
        ph_device_free(w->ctx, w->v[i]);
    }
    ph_device_free(w->ctx, w->dv);
    ph_plan_free(w->plan);
}

static ph_status run_call(const device_work *w, const device_shape *s, int n)
{
    ph_args args = {.q = w->tensor[0],
                    .out = w->tensor[1],
                    .lse = w->tensor[2],
                    .k = w->k[n % w->caches],
                    .v = w->v[n % w->caches]};
    ph_grads grads = {
        .dout = w->tensor[3], .dq = w->tensor[4], .dk = w->tensor[5], .dv = w->dv};
    return s->pass == BACKWARD ? ph_backward(w->plan, &args, &grads)
                               : ph_forward(w->plan, &args);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of a call, round by round; the first round warms up and says how many calls it
   takes to make waiting for them cheap. */
static ph_status time_rounds(const device_work *w, const device_shape *s, double *time)
{
    ph_status status = PH_OK;
    int calls = CALLS;
    for (int round = -1; round < ROUNDS && status == PH_OK; round++) {
        double begin = probe_clock(), each;
        for (int n = 0; n < calls && status == PH_OK; n++) status = run_call(w, s, n);
        if (status == PH_OK) status = ph_sync(w->ctx, NULL);
        each = (probe_clock() - begin) / calls;
        if (round >= 0)
            time[round] = each;
        else
            calls = CALLS * (1 + (int)(round_time / each / CALLS));
    }
    qsort(time, ROUNDS, sizeof *time, ascending);
    return status;
}

/* ---- output ---- */

static void print_shape(const device_shape *s, const double *time)
{
    char least[24], median[24];
    double amount = s->pass == DECODE ? bytes_of(s) : flops_of(s);
    printf("%s%-24s%s %8s %8s %7.2f %7.2f %s\n", term_on(stdout, TERM_NAME), s->name,
           term_on(stdout, TERM_PLAIN), panel_time(time[0], least, sizeof least),
           panel_time(time[ROUNDS / 2], median, sizeof median), 1e-12 * amount / time[0],
           1e-12 * amount / time[ROUNDS / 2], s->pass == DECODE ? "TB/s" : "TFLOP/s");
    fflush(stdout);
}

static void json_shape(ph_json_writer *j, const device_shape *s, const double *time)
{
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "name", s->name);
    ph_json_integer(j, "batch", s->batch);
    ph_json_integer(j, "q_heads", s->q_heads);
    ph_json_integer(j, "kv_heads", s->kv_heads);
    ph_json_integer(j, "q_len", s->q_len);
    ph_json_integer(j, "kv_len", s->kv_len);
    ph_json_integer(j, "head_dim", s->dim);
    ph_json_string(j, "dtype", cli_dtype_names[s->dtype]);
    ph_json_bool(j, "causal", s->causal);
    ph_json_double(j, "seconds_least", time[0]);
    ph_json_double(j, "seconds_median", time[ROUNDS / 2]);
    ph_json_double(j, "tflops", 1e-12 * flops_of(s) / time[0]);
    if (s->pass == DECODE) ph_json_double(j, "tbytes", 1e-12 * bytes_of(s) / time[0]);
    ph_json_end(j);
}

/* ---- the command ---- */

static int is_chosen(const device_shape *s, const bench_choice *choice)
{
    int wanted = choice->count == 0;
    for (int i = 0; i < choice->count; i++) {
        size_t length = strlen(choice->words[i]);
        int group = !strncmp(choice->words[i], s->name, length) && s->name[length] == '-';
        wanted |= group || !fnmatch(choice->words[i], s->name, 0);
    }
    return wanted && (!choice->filter || strstr(s->name, choice->filter));
}

static int measure_shape(ph_ctx *ctx, const device_shape *s, ph_json_writer *j)
{
    double time[ROUNDS];
    device_work w;
    ph_status status = open_work(&w, ctx, s);
    if (status == PH_OK) status = time_rounds(&w, s, time);
    close_work(&w);
    if (status != PH_OK)
        return cli_fail(cli_exit_code(status), "%s: %s", s->name, ph_error(ctx));
    if (j)
        json_shape(j, s, time);
    else
        print_shape(s, time);
    return EXIT_OK;
}

static int measure_all(ph_ctx *ctx, const bench_choice *choice, ph_json_writer *j)
{
    int rc = EXIT_OK, measured = 0;
    for (int i = 0; i < SHAPES && rc == EXIT_OK; i++) {
        if (!is_chosen(&shapes[i], choice)) continue;
        rc = measure_shape(ctx, &shapes[i], j);
        measured++;
    }
    if (rc == EXIT_OK && !measured)
        rc = cli_fail(EXIT_USAGE,
                      "no shape is left to measure: the groups of --device cuda are "
                      "forward, decode, f32 and backward");
    return rc;
}

int bench_device(ph_ctx *ctx, const bench_choice *choice, int as_json)
{
    if (!as_json) {
        printf("%s%-24s %8s %8s %7s %7s%s\n", term_on(stdout, TERM_DIM), "shape", "least",
               "median", "best", "median", term_on(stdout, TERM_PLAIN));
        return measure_all(ctx, choice, NULL);
    }
    ph_json_writer j = json_begin("polyhead.bench.device/1");
    ph_json_string(&j, "version", ph_version());
    ph_json_string(&j, "isa", ph_isa(ctx));
    ph_json_begin_array(&j, "results");
    int rc = measure_all(ctx, choice, &j);
    json_end(&j);
    return rc;
}
