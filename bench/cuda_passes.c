/*
 * cuda_passes.c - time of the forward and the backward pass on a GPU, by shape and type.
 *
 * Host clock around 10 calls and one ph_sync, after a warm-up; the fastest and the median
 * of 7 such rounds. FLOP count 4 B H T^2 d forward, 2.5 times that backward, half of it
 * where the mask is causal.
 */
#define _POSIX_C_SOURCE 199309L
#include <polyhead.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEATS = 10, ROUNDS = 7, TENSORS = 9 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void must(ph_ctx *ctx, ph_status status)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

static float between_ones(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(int32_t)state * 0x1p-31f;
}

/* Random elements about as large as normal ones, because zeros run faster; the same block
   over and over. */
static void *make(ph_ctx *ctx, size_t count, ph_dtype dtype)
{
    static float block[1 << 18];
    const size_t size = dtype == PH_F32 ? 4 : 2, bytes = count * size;
    char *there = NULL, *here = (char *)block;
    for (size_t i = 0; i < sizeof block / size; i++) {
        float x = between_ones() + between_ones();
        memcpy(here + i * size, (char *)&x + 4 - size, size); /* bf16: the upper half */
    }
    must(ctx, ph_device_alloc(ctx, bytes, (void **)&there));
    for (size_t at = 0; at < bytes; at += sizeof block) {
        size_t part = bytes - at < sizeof block ? bytes - at : sizeof block;
        must(ctx, ph_device_copy(ctx, there + at, at ? (void *)there : block, part, NULL));
    }
    must(ctx, ph_sync(ctx, NULL));
    return there;
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void report(const char *pass, ph_ctx *ctx, const ph_plan *plan,
                   const ph_args *args, const ph_grads *grads, double flop)
{
    double time[ROUNDS];
    for (int round = -1; round < ROUNDS; round++) {
        double begin = seconds();
        for (int n = 0; n < REPEATS; n++)
            must(ctx, grads ? ph_backward(plan, args, grads) : ph_forward(plan, args));
        must(ctx, ph_sync(ctx, NULL));
        if (round >= 0) time[round] = (seconds() - begin) / REPEATS;
    }
    qsort(time, ROUNDS, sizeof *time, ascending);
    printf("  %s %8.3f ms, %.1f / %.1f TFLOP/s", pass, time[0] * 1e3,
           flop / time[0] * 1e-12, flop / time[ROUNDS / 2] * 1e-12);
}

static void measure(ph_ctx *ctx, ph_dtype dtype, int batch, int heads, int len, int dim,
                    ph_mask mask)
{
    ph_attn attn = {.batch = batch,
                    .q_heads = heads,
                    .q_len = len,
                    .kv_len = len,
                    .qk_dim = dim,
                    .dtype = dtype,
                    .mask = mask,
                    .backward = dtype == PH_F32};
    size_t rows = (size_t)batch * (size_t)heads * (size_t)len;
    void *t[TENSORS]; /* q, k, v, out, dout, dq, dk, dv, lse */
    ph_plan *plan = NULL;
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    for (int i = 0; i < TENSORS - 1; i++) t[i] = make(ctx, rows * (size_t)dim, dtype);
    t[TENSORS - 1] = make(ctx, rows, PH_F32);
    ph_args args = {.q = t[0], .k = t[1], .v = t[2], .out = t[3], .lse = t[8]};
    ph_grads grads = {.dout = t[4], .dq = t[5], .dk = t[6], .dv = t[7]};
    double flop = 4.0 * (double)rows * len * dim * (mask == PH_MASK_CAUSAL ? 0.5 : 1);
    printf("%-4s %3d x %2d x %5d x %3d %-6s", dtype == PH_F32 ? "f32" : "bf16", batch,
           heads, len, dim, mask == PH_MASK_CAUSAL ? "causal" : "full");
    report("forward", ctx, plan, &args, NULL, flop);
    if (attn.backward) report("backward", ctx, plan, &args, &grads, 2.5 * flop);
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < TENSORS; i++) ph_device_free(ctx, t[i]);
    ph_plan_free(plan);
}

/* One token of 32 heads over 8 against a cache, in TB/s of keys and values; caches in
   turn, because one alone might stay in the L2 cache. */
static void measure_decode(ph_ctx *ctx, int batch, int keys, int dim)
{
    enum { CACHES_MAX = 16 };
    const size_t q_count = (size_t)batch * 32 * (size_t)dim;
    const size_t k_count = (size_t)batch * 8 * (size_t)keys * (size_t)dim;
    const int calls = 3 * CACHES_MAX;
    int caches = (int)((size_t)200000000 / (4 * k_count)) + 1;
    ph_attn attn = {.batch = batch,
                    .q_heads = 32,
                    .k_heads = 8,
                    .v_heads = 8,
                    .q_len = 1,
                    .kv_len = keys,
                    .qk_dim = dim,
                    .dtype = PH_BF16};
    void *q = make(ctx, q_count, PH_BF16), *out = make(ctx, q_count, PH_BF16);
    void *k[CACHES_MAX], *v[CACHES_MAX];
    double time[ROUNDS];
    ph_plan *plan = NULL;
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    if (caches > CACHES_MAX) caches = CACHES_MAX;
    for (int i = 0; i < caches; i++)
        k[i] = make(ctx, k_count, PH_BF16), v[i] = make(ctx, k_count, PH_BF16);
    for (int round = -1; round < ROUNDS; round++) {
        double begin = seconds();
        for (int n = 0; n < calls; n++) {
            ph_args args = {.q = q, .k = k[n % caches], .v = v[n % caches], .out = out};
            must(ctx, ph_forward(plan, &args));
        }
        must(ctx, ph_sync(ctx, NULL));
        if (round >= 0) time[round] = (seconds() - begin) / calls;
    }
    qsort(time, ROUNDS, sizeof *time, ascending);
    printf("bf16 decode %3d x 32/8 x %6d x %3d  %8.1f us, %.2f / %.2f TB/s\n", batch, keys,
           dim, time[0] * 1e6, 4e-12 * (double)k_count / time[0],
           4e-12 * (double)k_count / time[ROUNDS / 2]);
    fflush(stdout);
    for (int i = 0; i < caches; i++) ph_device_free(ctx, k[i]), ph_device_free(ctx, v[i]);
    ph_device_free(ctx, q), ph_device_free(ctx, out);
    ph_plan_free(plan);
}

int main(void)
{
    ph_ctx *ctx = NULL;
    char why[300] = "";
    ph_options options = {.device = PH_CUDA, .error = why, .error_size = sizeof why};
    if (ph_open(&ctx, &options) != PH_OK) {
        printf("not measured: %s\n", why);
        return 0;
    }
    for (int dim = 64; dim <= 256; dim *= 2)
        for (int len = 512; len <= 16384; len *= len == 2048 ? 8 : 4)
            for (int causal = 0; causal < 2; causal++)
                measure(ctx, PH_BF16, 16384 / len, 2048 / dim, len, dim,
                        causal ? PH_MASK_CAUSAL : PH_MASK_NONE);
    for (int batch = 1; batch <= 64; batch *= 4) measure_decode(ctx, batch, 8192, 128);
    measure_decode(ctx, 128, 8192, 128);
    measure_decode(ctx, 1, 131072, 128);
    measure_decode(ctx, 16, 8192, 64);
    measure(ctx, PH_F32, 4, 16, 2048, 64, PH_MASK_NONE);
    measure(ctx, PH_F32, 4, 16, 2048, 128, PH_MASK_NONE);
    measure(ctx, PH_F32, 4, 16, 2048, 128, PH_MASK_CAUSAL);
    measure(ctx, PH_F32, 4, 8, 2048, 256, PH_MASK_NONE);
    ph_close(ctx);
    return 0;
}
