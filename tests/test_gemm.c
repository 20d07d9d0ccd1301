/*
 * test_gemm.c - the packed product (kernels/gemm.h) against plain loops, bit by bit.
 *
 *     c(i,j) = [c(i,j) +] chain of fmaf over k [+ bias(j)], rounded once to c's type
 *
 * and with tiles, for tables that have them, the sum that ph_bf16_pairs_ref makes of row
 * i and column j, all three terms of every f32 element.
 *
 * Every buffer ends where an unmapped page begins, and all of c's buffer is compared, the
 * gaps between its rows included, so a touch outside is a fault or a difference.
 *
 * test_gemm --bench [isa [shape]] measures it against OpenBLAS instead, in interleaved
 * runs; OPENBLAS_CORETYPE=SkylakeX or Haswell where OpenBLAS does not know the CPU.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <time.h>

#include "base/half.h"
#include "check.h"
#include "every.h"
#include "guard.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"

#define REF ph_bf16_pairs_ref
enum { PANEL_STEP = PH_BF16_TERMS * PH_AMX_BLOCK * PH_AMX_STEP }; /* elements */

/* ---- memory that ends at an unmapped page ------------------------------------------ */

typedef struct guarded {
    char *start;
    size_t bytes;
} guarded;

static guarded guarded_new(size_t bytes)
{
    guarded g = {guard_alloc(bytes), bytes};
    CHECK(g.start, "no memory for %zu bytes", bytes);
    return g;
}

static void guarded_free(guarded *g)
{
    guard_free(g->start);
}

static ph_workspace workspace_new(const ph_ctx *ctx, const ph_gemm *list, int count)
{
    size_t bytes = ph_gemm_bytes(ctx, list, count);
    return (ph_workspace){guard_alloc(bytes), bytes};
}

/* ---- a context without the engine -------------------------------------------------- */

static ph_ctx ctx_new(const ph_kernels *kernels, int threads)
{
    ph_ctx ctx = {.threads = threads, .kernels = kernels};
    ctx.pool = ph_pool_init(malloc(ph_pool_bytes(threads)), threads);
    return ctx;
}

static void ctx_free(ph_ctx *ctx)
{
    ph_pool_stop(ctx->pool);
    free(ctx->pool);
}

/* ---- the definition ---------------------------------------------------------------- */

static float get(const void *x, ph_dtype type, int64_t at)
{
    if (type == PH_F32) return ((const float *)x)[at];
    uint16_t half = ((const uint16_t *)x)[at];
    return type == PH_BF16 ? ph_from_bf16(half) : ph_from_f16(half);
}

static void put(void *x, ph_dtype type, int64_t at, float value)
{
    if (type == PH_F32)
        ((float *)x)[at] = value;
    else
        ((uint16_t *)x)[at] = type == PH_BF16 ? ph_to_bf16(value) : ph_to_f16(value);
}

static int64_t blocked(int block, int64_t step, int e)
{
    return block ? e / block * step + e % block : e;
}

static int64_t b_at(const ph_gemm *g, int k, int j)
{
    if (g->b_col == 1) return k * g->b_row + blocked(g->b_block, g->b_step, j);
    return blocked(g->b_block, g->b_step, k) + j * g->b_col;
}

static int64_t a_at(const ph_gemm *g, int i, int k)
{
    if (g->a_col == 1) return i * g->a_row + blocked(g->a_block, g->a_step, k);
    return i * g->a_row + k * g->a_col;
}

static const float *row_of(const ph_gemm *g, int i, float *to)
{
    for (int k = 0; k < g->k; k++) to[k] = get(g->a, g->a_type, a_at(g, i, k));
    return to;
}

static const float *column_of(const ph_gemm *g, int j, float *to)
{
    for (int k = 0; k < g->k; k++) to[k] = g->b[b_at(g, k, j)];
    return to;
}

static void plain(const ph_gemm *g, void *c)
{
    float *rows = malloc((size_t)g->m * (size_t)g->k * sizeof *rows + 1);
    float *column = malloc((size_t)g->k * sizeof *column + 1);
    for (int i = 0; i < g->m; i++) row_of(g, i, rows + (int64_t)i * g->k);
    for (int j = 0; j < g->n; j++) {
        column_of(g, j, column);
        for (int i = 0; i < g->m; i++) {
            int64_t at = i * g->c_row + blocked(g->c_block, g->c_step, j);
            const float *row = rows + (int64_t)i * g->k;
            float sum = g->add ? get(c, g->c_type, at) : 0;
            for (int k = 0; k < g->k; k++) sum = fmaf(row[k], column[k], sum);
            if (g->bias) sum += g->bias[j];
            put(c, g->c_type, at, sum);
        }
    }
    free(rows), free(column);
}

/* Row i, f32 in all three terms or bf16 in one, times every column. */
static void tiled_row(const ph_gemm *g, int i, const uint16_t *columns, float *sums)
{
    int steps = ph_div_up(g->k, PH_AMX_STEP), panel = PANEL_STEP * steps;
    float *row = calloc((size_t)g->k + 1, sizeof *row);
    uint16_t *a = malloc((size_t)panel * sizeof *a + 1);
    REF.split_bf16x3(a, row_of(g, i, row), PH_F32, 0, 1, g->k, 1, 0);
    ph_operand left = ph_bf16x3_operand(a, g->a_type == PH_F32 ? 3 : 1, steps);
    for (int j = 0; j < g->n; j += PH_AMX_BLOCK, columns += panel) {
        ph_operand right = ph_bf16x3_operand(columns, PH_BF16_TERMS, steps);
        REF.multiply(1, steps, &left, &right, sums + j, PH_AMX_BLOCK, g->add);
    }
    free(a), free(row);
}

/* The definition of the same product with tiles. */
static void plain_tiled(const ph_gemm *g, void *c)
{
    int panels = ph_div_up(g->n, PH_AMX_BLOCK);
    size_t panel = PANEL_STEP * (size_t)ph_div_up(g->k, PH_AMX_STEP);
    float *lines = calloc((size_t)(PH_AMX_BLOCK * g->k) + 1, sizeof *lines);
    float *sums = calloc((size_t)(panels * PH_AMX_BLOCK) + 1, sizeof *sums);
    uint16_t *b = malloc(panel * (size_t)panels * sizeof *b + 1);
    for (int p = 0; p < panels; p++) {
        int j0 = p * PH_AMX_BLOCK, count = ph_min(PH_AMX_BLOCK, g->n - j0);
        for (int j = 0; j < count; j++) column_of(g, j0 + j, lines + (int64_t)j * g->k);
        REF.split_bf16x3(b + (size_t)p * panel, lines, PH_F32, g->k, count, g->k, 1, 1);
    }
    for (int i = 0; i < g->m; i++) {
        for (int j = 0; j < g->n && g->add; j++)
            sums[j] = get(c, g->c_type, i * g->c_row + blocked(g->c_block, g->c_step, j));
        tiled_row(g, i, b, sums);
        for (int j = 0; j < g->n; j++) {
            int64_t at = i * g->c_row + blocked(g->c_block, g->c_step, j);
            float sum = sums[j] + 0.0f;
            put(c, g->c_type, at, g->bias ? sum + g->bias[j] : sum);
        }
    }
    free(lines), free(sums), free(b);
}

/* ---- random products --------------------------------------------------------------- */

typedef struct problem {
    ph_gemm g;
    guarded a, b, bias, c;
    void *before, *want, *tiled; /* c before, as it should be after, and with tiles */
} problem;

static void fill(guarded *g, ph_dtype type, uint64_t *r)
{
    int64_t count = (int64_t)(g->bytes / ph_dtype_size(type));
    for (int64_t i = 0; i < count; i++) put(g->start, type, i, check_normal(r));
}

static size_t span(int rows, int64_t stride, int n) /* elements from first to last */
{
    return rows > 0 && n > 0 ? (size_t)((rows - 1) * stride + n) : 0;
}

/* Lays out a, optionally in blocks along k that a row holds with gaps between them. */
static size_t lay_a(ph_gemm *g, uint64_t *r, int transposed, int block)
{
    int blocks = block ? ph_div_up(g->k, block) : 1;
    int64_t step = block ? block + check_below(r, 5) : g->k;
    int64_t stride = (transposed ? g->m : blocks * step) + check_below(r, 3);
    g->a_row = transposed ? 1 : stride;
    g->a_col = transposed ? stride : 1;
    if (transposed) return span(g->k, stride, g->m);
    g->a_block = block;
    g->a_step = step;
    return span(g->m, stride, block ? (int)(blocks * step) : g->k);
}

/* Lays out b, optionally in blocks along its contiguous axis. */
static size_t lay_b(ph_gemm *g, uint64_t *r, int transposed, int block)
{
    int inner = transposed ? g->k : g->n, outer = transposed ? g->n : g->k;
    int64_t stride = (block ? block : inner) + check_below(r, 3);
    if (stride < 2) stride = 2;
    g->b_row = transposed ? 1 : stride;
    g->b_col = transposed ? stride : 1;
    g->b_block = block;
    g->b_step = block ? outer * stride + check_below(r, 5) : 0;
    if (!block) return span(outer, stride, inner);
    if (inner == 0 || outer == 0) return 0;
    return (size_t)((inner - 1) / block * g->b_step) + span(outer, stride, block);
}

static size_t lay_c(ph_gemm *g, uint64_t *r, int block)
{
    g->c_row = (block ? block : g->n) + check_below(r, 4);
    g->c_block = block;
    g->c_step = block ? g->m * g->c_row + check_below(r, 5) : 0;
    if (!block) return span(g->m, g->c_row, g->n);
    if (g->m == 0 || g->n == 0) return 0;
    return (size_t)((g->n - 1) / block * g->c_step) + span(g->m, g->c_row, block);
}

static int may_be_tiled(const ph_gemm *g)
{
    return g->tiles && g->a_type != PH_F16 && !g->a_block;
}

/* What c should be, for what p->g is now. */
static void define(problem *p)
{
    memcpy(p->want, p->before, p->c.bytes);
    memcpy(p->tiled, p->before, p->c.bytes);
    plain(&p->g, p->want);
    if (may_be_tiled(&p->g)) plain_tiled(&p->g, p->tiled);
}

static void problem_new(problem *p, int m, int n, int k, uint64_t *r)
{
    ph_gemm *g = &p->g;
    int a_transposed = check_below(r, 2), b_transposed = check_below(r, 2);
    memset(p, 0, sizeof *p);
    g->m = m, g->n = n, g->k = k;
    g->a_type = (ph_dtype)check_below(r, 3);
    g->c_type = check_below(r, 2) ? PH_F32 : (ph_dtype)check_below(r, 3);
    g->add = check_below(r, 2);
    g->tiles = !check_below(r, 3) && (int64_t)m * n * k < 3 << 20;
    int a_block = check_below(r, 3) ? 0 : 1 + check_below(r, 70);
    int b_block = check_below(r, 3) ? 0 : 1 + check_below(r, 70);
    int c_block = check_below(r, 3) ? 0 : 1 + check_below(r, 70);
    size_t a = lay_a(g, r, a_transposed, a_block);
    size_t b = lay_b(g, r, b_transposed, b_block), c = lay_c(g, r, c_block);
    p->a = guarded_new(a * ph_dtype_size(g->a_type));
    p->b = guarded_new(b * sizeof(float));
    p->c = guarded_new(c * ph_dtype_size(g->c_type));
    p->bias = guarded_new((size_t)n * sizeof(float));
    fill(&p->a, g->a_type, r);
    fill(&p->b, PH_F32, r);
    fill(&p->bias, PH_F32, r);
    fill(&p->c, g->c_type, r);
    g->a = p->a.start, g->b = (float *)p->b.start, g->c = p->c.start;
    if (!check_below(r, 3)) /* exact in one term */
        for (size_t i = 0; i < b; i++)
            put(p->b.start, PH_F32, (int64_t)i, (float)(check_below(r, 255) - 127));
    g->bias = check_below(r, 2) ? (float *)p->bias.start : NULL;
    p->before = malloc(p->c.bytes + 1);
    p->want = malloc(p->c.bytes + 1);
    memcpy(p->before, p->c.start, p->c.bytes);
    p->tiled = malloc(p->c.bytes + 1);
    define(p);
}

static void problem_free(problem *p)
{
    guarded_free(&p->a), guarded_free(&p->b);
    guarded_free(&p->c), guarded_free(&p->bias);
    free(p->before), free(p->want), free(p->tiled);
}

static void problem_check(const problem *p, const ph_kernels *table, int threads)
{
    const ph_gemm *g = &p->g;
    int tiled = table->bf16_pairs && may_be_tiled(g);
    const char *isa = table->name, *got = p->c.start, *want = tiled ? p->tiled : p->want;
    size_t at = 0;
    while (at < p->c.bytes && got[at] == want[at]) at++;
    at /= ph_dtype_size(g->c_type);
    CHECK(!memcmp(got, want, p->c.bytes),
          "%s, %d threads: (%d, %d, %d) a strides %d %d block %d type %d, b strides %d "
          "%d block %d, c type %d row %d block %d, bias %d, add %d, tiles %d: element "
          "%zu is %g, not %g",
          isa, threads, g->m, g->n, g->k, (int)g->a_row, (int)g->a_col, g->a_block,
          (int)g->a_type, (int)g->b_row, (int)g->b_col, g->b_block, (int)g->c_type,
          (int)g->c_row, g->c_block, g->bias != NULL, g->add, tiled, at,
          (double)get(got, g->c_type, (int64_t)at),
          (double)get(want, g->c_type, (int64_t)at));
}

/* One list of products in one call, against what they should be. */
static void check_call(problem *p, int count, const ph_kernels *table, int threads)
{
    ph_gemm list[PH_GEMM_MAX];
    ph_ctx ctx = ctx_new(table, threads);
    for (int i = 0; i < count; i++) {
        list[i] = p[i].g;
        memcpy(p[i].c.start, p[i].before, p[i].c.bytes);
    }
    ph_workspace space = workspace_new(&ctx, list, count);
    CHECK(space.size % PH_ALIGN == 0, "workspace of %zu bytes", space.size);
    ph_gemm_run(&ctx, list, count, space);
    guard_free(space.data);
    ctx_free(&ctx);
    for (int i = 0; i < count; i++) problem_check(&p[i], table, threads);
}

/* Every ISA and thread count; ref, which is slow, takes turns with the latter. */
static void check_list(problem *p, int count)
{
    static const int threads[] = {1, 2, 7};
    static int turn;
    const ph_kernels *const *isas = ph_kernels_list();
    for (int t = 0; isas[t] && !isas[t]->f32_tiles; t++) /* which has the same products */
        for (int n = 0; n < 3; n++)
            if (isas[t] != &ph_kernels_ref || n == turn % 3)
                check_call(p, count, isas[t], threads[n]);
    turn++;
}

/* tiled: the first that tiles may multiply */
static void one(int m, int n, int k, int tiled, uint64_t *r)
{
    problem p;
    problem_new(&p, m, n, k, r);
    for (; tiled && !may_be_tiled(&p.g); problem_new(&p, m, n, k, r)) problem_free(&p);
    check_list(&p, 1);
    problem_free(&p);
}

static void small_sizes(void)
{
    uint64_t r = check_seed;
    for (int i = 0; i < 600; i += EVERY)
        one(check_below(&r, 30), check_below(&r, 70), check_below(&r, 40), 0, &r);
}

static void few_rows(void)
{
    uint64_t r = check_seed + 1;
    for (int m = 1; m <= 40; m += EVERY)
        for (int i = 0; i < (m <= 14 ? 8 : 3); i++)
            one(m, 1 + check_below(&r, 1400), 1 + check_below(&r, 90), 0, &r);
}

static void over_blocks(void)
{
    uint64_t r = check_seed + 2;
    for (int i = 0; i < 25; i += EVERY)
        one(1 + check_below(&r, 900), 1 + check_below(&r, 300), 1 + check_below(&r, 300),
            0, &r);
}

/* more of a than one round packs: of k (f32 only), of rows, of both; as tiles, of both */
static void rounds(void)
{
    uint64_t r = check_seed + 3;
    for (int i = 0; i < 4; i += EVERY) one(13, 21, 4090 + check_below(&r, 200), 0, &r);
    for (int i = 0; i < 3; i += EVERY) one(700 + check_below(&r, 9), 5, 1600, 0, &r);
    for (int i = 0; i < 2; i += EVERY) one(3300 + check_below(&r, 9), 3, 620, 0, &r);
    for (int i = 0; i < 2; i += EVERY) {
        one(1100, 1, 1000 + check_below(&r, 9), 1, &r);
        one(300, 1, 4500 + check_below(&r, 9), 1, &r);
    }
}

static void side_by_side(void)
{
    uint64_t r = check_seed + 4;
    for (int i = 0; i < 60; i += EVERY) {
        problem p[PH_GEMM_MAX];
        int count = 1 + check_below(&r, PH_GEMM_MAX);
        for (int q = 0; q < count; q++)
            problem_new(&p[q], check_below(&r, 50), check_below(&r, 90),
                        check_below(&r, 90), &r);
        check_list(p, count);
        for (int q = 0; q < count; q++) problem_free(&p[q]);
    }
}

/* several products with one left side */
static void shared_left(void)
{
    uint64_t r = check_seed + 5;
    for (int i = 0; i < 40; i += EVERY) {
        problem p[3];
        int m = 1 + check_below(&r, 60), k = 1 + check_below(&r, 90);
        for (int q = 0; q < 3; q++) {
            problem_new(&p[q], m, 1 + check_below(&r, 90), k, &r);
            if (q == 0) continue;
            ph_gemm *g = &p[q].g, *first = &p[0].g;
            g->a = first->a, g->a_type = first->a_type, g->same_a = 1;
            g->a_row = first->a_row, g->a_col = first->a_col;
            g->a_block = first->a_block, g->a_step = first->a_step;
            define(&p[q]);
        }
        check_list(p, 3);
        for (int q = 0; q < 3; q++) problem_free(&p[q]);
    }
}

/* Numbers whose products tiles take for 0, with few rows and many. */
static void small_numbers(void)
{
    uint64_t r = check_seed + 6;
    for (int turn = 0; turn < 48; turn++) {
        problem p;
        problem_new(&p, turn < 32 ? 1 + turn % 2 : turn - 28, 1 + check_below(&r, 90),
                    1 + check_below(&r, 90), &r);
        ph_gemm *g = &p.g;
        size_t bs = p.b.bytes / sizeof(float), as = p.a.bytes / ph_dtype_size(g->a_type);
        for (size_t i = 0; i < bs; i++)
            ((float *)p.b.start)[i] *= check_below(&r, 9) ? 0x1p-60f : 0x1p-70f;
        for (size_t i = 0; i < as && g->a_type != PH_F16; i++)
            put(p.a.start, g->a_type, (int64_t)i,
                0x1p-60f * get(p.a.start, g->a_type, (int64_t)i));
        g->tiles = 1;
        define(&p);
        check_list(&p, 1);
        problem_free(&p);
    }
}

/* Inf and NaN reach the elements they belong to and no others. */
static void non_finite(void)
{
    const ph_kernels *const *isas = ph_kernels_list();
    enum { M = 19, N = 37, K = 23 };
    static float a[M * K], b[K * N], c[M * N];
    for (int t = 0; isas[t]; t++)
        for (int turn = 0; turn < 6; turn++) {
            int m = 1 + turn / 2 * 9;
            ph_ctx ctx = ctx_new(isas[t], 2);
            ph_gemm g = {
                .m = m, .n = N, .k = K, .a = a, .b = b, .c = c, .tiles = turn % 2};
            g.a_row = K, g.b_row = g.c_row = N, g.a_col = g.b_col = 1;
            ph_workspace space = workspace_new(&ctx, &g, 1);
            for (int i = 0; i < M * K; i++) a[i] = 1;
            for (int i = 0; i < K * N; i++) b[i] = 1;
            b[5 * N + 36] = NAN, b[7 * N + 2] = INFINITY, a[(m - 1) * K + 3] = INFINITY;
            ph_gemm_run(&ctx, &g, 1, space);
            for (int i = 0; i < m; i++)
                for (int j = 0; j < N; j++) {
                    float x = c[i * N + j], want = i == m - 1 || j == 2 ? INFINITY : K;
                    CHECK(j == 36 ? isnan(x) : x == want, "%s m %d: c(%d,%d) is %g",
                          isas[t]->name, m, i, j, (double)x);
                }
            guard_free(space.data);
            ctx_free(&ctx);
        }
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
    ph_ctx ctx = ctx_new(ph_kernels_pick(isa), threads);
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
    ph_workspace space = workspace_new(&ctx, &g, 1);
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
    ctx_free(&ctx);
}

static int bench(int argc, char **argv)
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

static const check_case cases[] = {{"small_sizes", small_sizes},
                                   {"few_rows", few_rows},
                                   {"over_blocks", over_blocks},
                                   {"rounds", rounds},
                                   {"side_by_side", side_by_side},
                                   {"shared_left", shared_left},
                                   {"small_numbers", small_numbers},
                                   {"non_finite", non_finite},
                                   {0, 0}};

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--bench")) return bench(argc, argv);
    return check_main(argc, argv, cases);
}
