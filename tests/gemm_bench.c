/*
 * gemm_bench.c - the product of kernels/gemm.h against OpenBLAS, in interleaved runs;
 * OPENBLAS_CORETYPE=SkylakeX or Haswell where OpenBLAS does not know the CPU.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "gemm_bench.h"
#include "guard.h"
#include "kernels/kernels.h"

/* ---- a context without the engine -------------------------------------------------- */

ph_ctx gemm_ctx_new(const ph_kernels *kernels, int threads)
{
    ph_ctx ctx = {.threads = threads, .kernels = kernels};
    ctx.pool = ph_pool_init(malloc(ph_pool_bytes(threads)), threads);
    return ctx;
}

void gemm_ctx_free(ph_ctx *ctx)
{
    ph_pool_stop(ctx->pool);
    free(ctx->pool);
}

ph_workspace gemm_workspace(const ph_ctx *ctx, const ph_gemm *list, int count)
{
    size_t bytes = ph_gemm_bytes(ctx, list, count);
    return (ph_workspace){guard_alloc(bytes), bytes};
}

/* ---- bench: interleaved with OpenBLAS ---------------------------------------------- */

typedef void blas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha,
                        const float *a, int lda, const float *b, int ldb, float beta,
                        float *c, int ldc);

typedef struct peer {
    blas_sgemm *sgemm;
    void (*set_threads)(int);
    char *(*core)(void);
} peer;

/* A symbol as a function pointer: C has no conversion from void *. */
#define SYMBOL(library, name, to) (*(void **)&(to) = dlsym(library, name), (to) != NULL)

static int peer_open(peer *p)
{
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    memset(p, 0, sizeof *p);
    return library && SYMBOL(library, "cblas_sgemm", p->sgemm) &&
           SYMBOL(library, "openblas_set_num_threads", p->set_threads) &&
           SYMBOL(library, "openblas_get_corename", p->core);
}

/* With one thread the thread's own time is taken: others on the machine count less. */
static double seconds(int threads)
{
    struct timespec t;
    clock_gettime(threads > 1 ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int rising(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

enum { ROUNDS = 100, CALLS = 3 }; /* most rounds */

/* Times of one side: a call to warm up, then CALLS; its threads may fall asleep. */
static void bench_side(ph_ctx *ctx, const ph_gemm *g, ph_workspace space, const peer *p,
                       double *t)
{
    int tb = g->b_col == 1 ? 111 : 112, ta = g->a_col == 1 ? 111 : 112;
    for (int i = -1; i < CALLS; i++) {
        double start = seconds(ctx->threads);
        if (p)
            p->sgemm(101, ta, tb, g->m, g->n, g->k, 1, g->a,
                     (int)(g->a_col == 1 ? g->a_row : g->a_col), g->b,
                     (int)(g->b_col == 1 ? g->b_row : g->b_col), 0, g->c, g->n);
        else
            ph_gemm_run(ctx, g, 1, space);
        if (i >= 0) t[i] = seconds(ctx->threads) - start;
    }
    if (p && ctx->threads > 1) nanosleep(&(struct timespec){0, 60000000}, NULL);
}

static void bench_shape(const char *isa, int threads, const int *shape, int form,
                        const peer *p)
{
    static const char *const forms[] = {"x w  ", "x w^T", "x^T w"};
    int m = shape[0], n = shape[1], k = shape[2];
    ph_ctx ctx = gemm_ctx_new(ph_kernels_pick(isa), threads);
    ph_gemm g = {.m = m, .n = n, .k = k, .a_row = k, .a_col = 1, .b_row = n, .b_col = 1};
    float *a = malloc((size_t)m * (size_t)k * 4), *b = malloc((size_t)n * (size_t)k * 4);
    double ours[ROUNDS * CALLS], theirs[ROUNDS * CALLS], ratio[ROUNDS * CALLS];
    uint64_t r = 1;
    double work = 2e-9 * m * n * k; /* a second or so for each side */
    int turns = ph_max(ph_min((int)(150 / (CALLS + 1) / work), ROUNDS), 6);
    if (form == 1) g.b_row = 1, g.b_col = k;
    if (form == 2 && m > 1) g.a_row = 1, g.a_col = m;
    for (int64_t i = 0; i < (int64_t)m * k; i++) a[i] = (float)check_uniform(&r) - 0.5f;
    for (int64_t i = 0; i < (int64_t)n * k; i++) b[i] = (float)check_uniform(&r) - 0.5f;
    g.a = a, g.b = b, g.c_row = n, g.c = malloc((size_t)m * (size_t)n * 4);
    ph_workspace space = gemm_workspace(&ctx, &g, 1);
    p->set_threads(threads);
    for (int i = 0; i < turns; i++) {
        bench_side(&ctx, &g, space, NULL, ours + i * CALLS);
        bench_side(&ctx, &g, space, p, theirs + i * CALLS);
    }
    int count = turns * CALLS;
    for (int i = 0; i < count; i++) ratio[i] = theirs[i] / ours[i];
    qsort(ours, (size_t)count, sizeof(double), rising);
    qsort(theirs, (size_t)count, sizeof(double), rising);
    qsort(ratio, (size_t)count, sizeof(double), rising);
    printf("%-6s %d threads  %s %5d %5d %5d  ours %6.1f (median %6.1f) GFLOP/s  OpenBLAS "
           "%6.1f (%6.1f)  ratio %.3f (%.3f, of pairs %.3f)\n",
           isa, threads, forms[form], m, n, k, work / ours[0], work / ours[count / 2],
           work / theirs[0], work / theirs[count / 2], theirs[0] / ours[0],
           theirs[count / 2] / ours[count / 2], ratio[count / 2]);
    guard_free(space.data), free(a), free(b), free(g.c);
    gemm_ctx_free(&ctx);
}

int gemm_bench(int argc, char **argv)
{
    static const int shapes[][3] = {{640, 1536, 512}, {512, 768, 768}, {2048, 2048, 2048},
                                    {640, 512, 512},  {1, 4096, 4096}, {8, 4096, 4096},
                                    {16, 4096, 4096}, {64, 2048, 2048}};
    const char *isa = argc > 2 ? argv[2] : ph_kernels_pick(NULL)->name;
    int chosen = argc > 3 ? atoi(argv[3]) : -1;
    peer p;
    if (!peer_open(&p)) {
        printf("libopenblas.so.0 is not here: nothing to compare with\n");
        return 0;
    }
    printf("OpenBLAS runs its kernels for %s\n", p.core());
    for (int threads = 1; threads <= 2; threads++)
        for (int s = 0; s < (int)(sizeof shapes / sizeof shapes[0]); s++)
            for (int form = 0; form < 3 && (chosen < 0 || s == chosen); form++)
                bench_shape(isa, threads, shapes[s], form, &p);
    return 0;
}
