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
 * test_gemm --bench [isa [shape]] measures it against OpenBLAS instead (gemm_bench.c).
 */
#include <math.h>

#include "base/half.h"
#include "check.h"
#include "every.h"
#include "gemm_bench.h"
#include "guard.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "stored_copy.h"

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

/* ---- the definition ---------------------------------------------------------------- */

static float get(const void *x, ph_dtype type, int64_t at)
{
    return ph_element(x, type, at);
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
    for (int k = 0; k < g->k; k++) to[k] = get(g->b, g->b_type, b_at(g, k, j));
    return to;
}

/* sums[i] goes on with the chain of row i; a is (k, m), so that compilers can vectorise
   over rows. */
static inline __attribute__((always_inline)) void
chains(int m, int k, const float *a, const float *column, float *sums)
{
    for (int kk = 0; kk < k; kk++)
        for (int i = 0; i < m; i++)
            sums[i] = fmaf(a[(int64_t)kk * m + i], column[kk], sums[i]);
}

/* Where the CPU has fmaf as an instruction: the same, twenty times as fast. */
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void
fused_chains(int m, int k, const float *a, const float *column, float *sums)
{
    chains(m, k, a, column, sums);
}

static int has_fma(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
#else
#define fused_chains chains
static int has_fma(void)
{
    return 0;
}
#endif

static void plain(const ph_gemm *g, void *c)
{
    float *a = malloc((size_t)g->m * (size_t)g->k * sizeof *a + 1); /* (k, m) */
    float *column = malloc((size_t)g->k * sizeof *column + 1);
    float *sums = malloc((size_t)g->m * sizeof *sums + 1);
    for (int k = 0; k < g->k; k++)
        for (int i = 0; i < g->m; i++)
            a[(int64_t)k * g->m + i] = get(g->a, g->a_type, a_at(g, i, k));
    for (int j = 0; j < g->n; j++) {
        int64_t at = blocked(g->c_block, g->c_step, j);
        for (int i = 0; i < g->m; i++)
            sums[i] = g->add ? get(c, g->c_type, i * g->c_row + at) : 0;
        column_of(g, j, column);
        if (has_fma())
            fused_chains(g->m, g->k, a, column, sums);
        else
            chains(g->m, g->k, a, column, sums);
        for (int i = 0; i < g->m; i++) {
            if (g->bias) sums[i] += g->bias[j];
            put(c, g->c_type, i * g->c_row + at, sums[i]);
        }
    }
    free(a), free(column), free(sums);
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

/* Blocks of random bytes, but for scales and minima near 1. */
static void fill_blocks(guarded *g, ph_dtype type, uint64_t *r)
{
    for (size_t i = 0; i < g->bytes; i++) g->start[i] = (char)check_below(r, 256);
    for (size_t i = 0; i < g->bytes; i += (size_t)ph_quant_bytes(type)) {
        uint16_t scale = ph_to_f16(check_normal(r));
        stored_halves((uint8_t *)g->start + i, type, scale, ph_to_f16(check_normal(r)));
    }
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

/* Lays out b, optionally in blocks along its contiguous axis; all lengths along that are
   multiples of `unit`. */
static size_t lay_b(ph_gemm *g, uint64_t *r, int transposed, int block, int unit)
{
    int inner = transposed ? g->k : g->n, outer = transposed ? g->n : g->k;
    int64_t stride = (block ? block : inner) + check_below(r, 3) * unit;
    if (stride < 2) stride = 2;
    g->b_row = transposed ? 1 : stride;
    g->b_col = transposed ? stride : 1;
    g->b_block = block;
    g->b_step = block ? outer * stride + check_below(r, 5) * unit : 0;
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

/* A product whose b has this type and order; it has no definition yet. */
static void draw(problem *p, int m, int n, int k, ph_dtype b_type, int b_transposed,
                 uint64_t *r)
{
    ph_gemm *g = &p->g;
    int a_transposed = check_below(r, 2);
    memset(p, 0, sizeof *p);
    g->b_type = b_type;
    int unit = ph_quant_block(g->b_type);
    if (b_transposed)
        k = ph_round_up(k, unit);
    else
        n = ph_round_up(n, unit);
    g->m = m, g->n = n, g->k = k;
    g->a_type = (ph_dtype)check_below(r, 3);
    g->c_type = check_below(r, 2) ? PH_F32 : (ph_dtype)check_below(r, 3);
    g->add = check_below(r, 2);
    g->tiles = !check_below(r, 3) && (int64_t)m * n * k < 3 << 20;
    int a_block = check_below(r, 3) ? 0 : 1 + check_below(r, 70);
    int b_block = check_below(r, 3) ? 0 : ph_round_up(1 + check_below(r, 70), unit);
    int c_block = check_below(r, 3) ? 0 : 1 + check_below(r, 70);
    size_t a = lay_a(g, r, a_transposed, a_block);
    size_t b = lay_b(g, r, b_transposed, b_block, unit), c = lay_c(g, r, c_block);
    p->a = guarded_new(a * ph_dtype_size(g->a_type));
    p->b = guarded_new((size_t)ph_offset(g->b_type, (int64_t)b));
    p->c = guarded_new(c * ph_dtype_size(g->c_type));
    p->bias = guarded_new((size_t)n * sizeof(float));
    fill(&p->a, g->a_type, r);
    if (unit > 1)
        fill_blocks(&p->b, g->b_type, r);
    else
        fill(&p->b, g->b_type, r);
    fill(&p->bias, PH_F32, r);
    fill(&p->c, g->c_type, r);
    g->a = p->a.start, g->b = p->b.start, g->c = p->c.start;
    if (!check_below(r, 3) && unit == 1) /* exact in one term */
        for (size_t i = 0; i < b; i++)
            put(p->b.start, g->b_type, (int64_t)i, (float)(check_below(r, 255) - 127));
    g->bias = check_below(r, 2) ? (float *)p->bias.start : NULL;
    p->before = malloc(p->c.bytes + 1);
    p->want = malloc(p->c.bytes + 1);
    memcpy(p->before, p->c.start, p->c.bytes);
    p->tiled = malloc(p->c.bytes + 1);
}

static void draw_any(problem *p, int m, int n, int k, uint64_t *r)
{
    int type = check_below(r, 2) ? PH_F32 : check_below(r, PH_Q6_K + 1);
    draw(p, m, n, k, (ph_dtype)type, check_below(r, 2), r);
}

static void problem_new(problem *p, int m, int n, int k, uint64_t *r)
{
    draw_any(p, m, n, k, r);
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
          "%d block %d type %s, c type %d row %d block %d, bias %d, add %d, tiles %d: "
          "element %zu is %g, not %g",
          isa, threads, g->m, g->n, g->k, (int)g->a_row, (int)g->a_col, g->a_block,
          (int)g->a_type, (int)g->b_row, (int)g->b_col, g->b_block,
          ph_dtype_name(g->b_type), (int)g->c_type,
          (int)g->c_row, g->c_block, g->bias != NULL, g->add, tiled, at,
          (double)get(got, g->c_type, (int64_t)at),
          (double)get(want, g->c_type, (int64_t)at));
}

/* One list of products in one call, against what they should be. */
static void check_call(problem *p, int count, const ph_kernels *table, int threads)
{
    ph_gemm list[PH_GEMM_MAX];
    ph_ctx ctx = gemm_ctx_new(table, threads);
    for (int i = 0; i < count; i++) {
        list[i] = p[i].g;
        memcpy(p[i].c.start, p[i].before, p[i].c.bytes);
    }
    ph_workspace space = gemm_workspace(&ctx, list, count);
    CHECK(space.size % PH_ALIGN == 0, "workspace of %zu bytes", space.size);
    ph_gemm_run(&ctx, list, count, space);
    guard_free(space.data);
    gemm_ctx_free(&ctx);
    for (int i = 0; i < count; i++) problem_check(&p[i], table, threads);
}

/* Every ISA and thread count, and tiles as loops in C where no ISA has them; those and
   ref, which are slow, take turns with the thread counts. */
static void check_list(problem *p, int count)
{
    static const int threads[] = {1, 2, 7};
    static int turn;
    const ph_kernels *const *isas = ph_kernels_list(), *best = isas[0];
    for (int t = 0; isas[t] && !isas[t]->f32_tiles; t++) { /* f32_tiles: same products */
        best = isas[t];
        for (int n = 0; n < 3; n++)
            if (isas[t] != &ph_kernels_ref || n == turn % 3)
                check_call(p, count, isas[t], threads[n]);
    }
    ph_kernels with_tiles = *best;
    with_tiles.bf16_pairs = &REF;
    int tiled = 0;
    for (int i = 0; i < count; i++) {
        const ph_gemm *g = &p[i].g;
        tiled |= may_be_tiled(g) && (int64_t)g->m * g->n * g->k < 1 << 17;
    }
    if (!best->bf16_pairs && tiled) check_call(p, count, &with_tiles, threads[turn % 3]);
    turn++;
}

/* tiled: the first that tiles may multiply */
static void one(int m, int n, int k, int tiled, uint64_t *r)
{
    problem p;
    draw_any(&p, m, n, k, r);
    for (; tiled && !may_be_tiled(&p.g); draw_any(&p, m, n, k, r)) problem_free(&p);
    define(&p);
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

/* The shapes of layers: every type, either storage order, few rows and many. */
static void stored_types(void)
{
    static const int widths[][2] = {{1536, 97}, {97, 1536}, {4096, 32}, {67, 4096}};
    uint64_t r = check_seed + 8;
    for (int i = 0; i < 4; i++)
        for (int type = PH_F16; type <= PH_Q6_K; type++)
            for (int transposed = 0; transposed < 2; transposed++) {
                static const int rows[] = {1, 2, 3, 8, 13};
                problem p;
                int m = rows[check_below(&r, 5)];
                draw(&p, m, widths[i][0], widths[i][1], (ph_dtype)type, transposed, &r);
                define(&p);
                check_list(&p, 1);
                problem_free(&p);
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
            draw_any(&p[q], m, 1 + check_below(&r, 90), k, &r);
            for (; q && p[q].g.k != k; draw_any(&p[q], m, 33, k, &r))
                problem_free(&p[q]); /* blocks along k have rounded it up */
            ph_gemm *g = &p[q].g, *first = &p[0].g;
            k = first->k;
            g->a = first->a, g->a_type = first->a_type, g->same_a = q > 0;
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
        draw_any(&p, turn < 32 ? 1 + turn % 2 : turn - 28, 1 + check_below(&r, 90),
                    1 + check_below(&r, 90), &r);
        ph_gemm *g = &p.g;
        size_t bs = g->b_type == PH_F32 ? p.b.bytes / sizeof(float) : 0;
        size_t as = p.a.bytes / ph_dtype_size(g->a_type);
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
            ph_ctx ctx = gemm_ctx_new(isas[t], 2);
            ph_gemm g = {
                .m = m, .n = N, .k = K, .a = a, .b = b, .c = c, .tiles = turn % 2};
            g.a_row = K, g.b_row = g.c_row = N, g.a_col = g.b_col = 1;
            ph_workspace space = gemm_workspace(&ctx, &g, 1);
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
            gemm_ctx_free(&ctx);
        }
}

static const check_case cases[] = {{"small_sizes", small_sizes},
                                   {"few_rows", few_rows},
                                   {"over_blocks", over_blocks},
                                   {"rounds", rounds},
                                   {"side_by_side", side_by_side},
                                   {"stored_types", stored_types},
                                   {"shared_left", shared_left},
                                   {"small_numbers", small_numbers},
                                   {"non_finite", non_finite},
                                   {0, 0}};

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "--bench")) return gemm_bench(argc, argv);
    return check_main(argc, argv, cases);
}
