/*
 * cuda_passes.c - time of the forward and the backward pass on a GPU, by shape.
 *
 * Host clock around 20 calls and one ph_sync, after a warm-up; FLOP count 4 B H T^2 d
 * forward, 2.5 times that backward, half of it where the mask is causal.
 */
#define _POSIX_C_SOURCE 199309L
#include <polyhead.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { REPEATS = 20, TENSORS = 9 };

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

/* Random normal-like numbers: zeros run faster than real data. */
static void *make(ph_ctx *ctx, size_t count)
{
    void *there = NULL;
    float *here = malloc(count * sizeof *here);
    if (!here) exit(1);
    for (size_t i = 0; i < count; i++)
        here[i] = ((float)(rand() % 2001) + (float)(rand() % 2001) - 2000.0f) * 1e-3f;
    must(ctx, ph_device_alloc(ctx, count * sizeof *here, &there));
    must(ctx, ph_device_copy(ctx, there, here, count * sizeof *here, NULL));
    must(ctx, ph_sync(ctx, NULL));
    free(here);
    return there;
}

static double time_of(ph_ctx *ctx, const ph_plan *plan, const ph_args *args,
                      const ph_grads *grads)
{
    double begin = 0;
    for (int n = -3; n < REPEATS; n++) {
        if (n == 0) must(ctx, ph_sync(ctx, NULL)), begin = seconds();
        must(ctx, grads ? ph_backward(plan, args, grads) : ph_forward(plan, args));
    }
    must(ctx, ph_sync(ctx, NULL));
    return (seconds() - begin) / REPEATS;
}

static void measure(ph_ctx *ctx, int batch, int heads, int len, int dim, ph_mask mask)
{
    ph_attn attn = {.batch = batch,
                    .q_heads = heads,
                    .q_len = len,
                    .kv_len = len,
                    .qk_dim = dim,
                    .mask = mask,
                    .backward = 1};
    size_t rows = (size_t)batch * (size_t)heads * (size_t)len;
    void *t[TENSORS]; /* q, k, v, out, dout, dq, dk, dv, lse */
    ph_plan *plan = NULL;
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    for (int i = 0; i < TENSORS; i++)
        t[i] = make(ctx, rows * (i == TENSORS - 1 ? 1 : (size_t)dim));
    ph_args args = {.q = t[0], .k = t[1], .v = t[2], .out = t[3], .lse = t[8]};
    ph_grads grads = {.dout = t[4], .dq = t[5], .dk = t[6], .dv = t[7]};
    double forward = time_of(ctx, plan, &args, NULL);
    double backward = time_of(ctx, plan, &args, &grads);
    double flop = 4.0 * (double)rows * len * dim * (mask == PH_MASK_CAUSAL ? 0.5 : 1);
    printf(
        "%4d x %2d x %5d x %3d %-6s  forward %8.3f ms %6.1f TFLOP/s  backward %8.3f ms "
        "%6.1f TFLOP/s\n",
        batch, heads, len, dim, mask == PH_MASK_CAUSAL ? "causal" : "full", forward * 1e3,
        flop / forward * 1e-12, backward * 1e3, 2.5 * flop / backward * 1e-12);
    for (int i = 0; i < TENSORS; i++) ph_device_free(ctx, t[i]);
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
    measure(ctx, 4, 16, 2048, 64, PH_MASK_NONE);
    measure(ctx, 4, 16, 2048, 128, PH_MASK_NONE);
    measure(ctx, 4, 16, 2048, 128, PH_MASK_CAUSAL);
    measure(ctx, 1, 16, 8192, 128, PH_MASK_CAUSAL);
    measure(ctx, 4, 8, 2048, 256, PH_MASK_NONE);
    ph_close(ctx);
    return 0;
}
