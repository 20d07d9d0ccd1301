/*
 * amx_few_rows.c - the bf16x3 product of one or two rows in f32 FMAs, with the bits of
 * tiles.
 *
 * Products of bf16 terms are exact in f32, so FMAs in the order of TDPBF16PS give the
 * same bits, except that tiles flush subnormals to 0. MXCSR's flags say whether there was
 * one; then the tiles must compute the product.
 *
 *     for each 16 rows of b          one of the two chains of a step
 *         for each 32 columns        its sums, for each product of terms
 *
 * The sums of the first chain wait in L1 for those of the second. b is read in row-major
 * order, 16 rows at a time: as many streams as the hardware prefetchers track.
 */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/amx_tiles.h"

enum {
    PAIR = 2,            /* vectors of a row of b in registers at a time */
    PRODUCTS = 6,        /* products of terms */
    FIRST_FLOATS = 6144, /* floats of sums of first chains: half of L1 */
    UNDERFLOW = 0x12,    /* MXCSR: a subnormal operand, or an underflow */
};

typedef struct chain {
    float left[PH_FEW_ROWS][PH_BF16_TERMS][PH_AMX_TILE]; /* elements of a */
    int lines; /* rows of b, up to PH_AMX_TILE */
    const float *b;
    int64_t ldb;
    int second; /* 1: adds the saved sums of the first chain */
    float *first_sums, *c;
    int64_t ldc;
} chain;

/* Which terms product o multiplies, in the order of kernels.h; returns 0 if an operand
   lacks its term. */
V int terms_of_product(const int o, const int a_terms, const int b_terms, int *p, int *q)
{
    static const int order[PRODUCTS][2] = {{0, 2}, {0, 1}, {1, 1},
                                           {1, 0}, {2, 0}, {0, 0}};
    *p = order[o][0], *q = order[o][1];
    return *p < a_terms && *q < b_terms;
}

V void split_bf16x3(vec x, vec term[PH_BF16_TERMS], const int b_terms)
{
    const vint mask = vi_set1(0xffff0000u), half = vi_set1(0x8000);
    term[0] = x;
    if (b_terms == 1) return;
    term[0] = v_float(vi_and(vi_add(v_bits(x), half), mask));
    x = v_sub(x, term[0]);
    term[1] = v_float(vi_and(vi_add(v_bits(x), half), mask));
    term[2] = v_sub(x, term[1]);
}

/* Saves the sums of the first chain, or adds those of both to c[i][j..j+VL). */
V void end_chain(const int a_terms, const chain *x, int i, int j, const vec sum[PRODUCTS],
                 float *first_sums)
{
    float *c = x->c + i * x->ldc + j;
    vec total = v_load(c);
    int p, q;
#pragma GCC unroll 6
    for (int o = 0; o < PRODUCTS; o++) {
        if (!terms_of_product(o, a_terms, PH_BF16_TERMS, &p, &q)) continue;
        if (!x->second)
            v_store(first_sums, sum[o]);
        else
            total = v_add(total, v_add(v_load(first_sums), sum[o]));
        first_sums += VL;
    }
    if (x->second) v_store(c, total);
}

/* One chain for `width` vectors from column j on; the last one has n columns. */
V void run_chain(const int m, const int a_terms, const int b_terms, const int width,
                 int lines, const chain *x, int j, int n)
{
    const int products = a_terms > 1 ? PRODUCTS : PH_BF16_TERMS;
    vec sum[PH_FEW_ROWS][PAIR][PRODUCTS], term[PH_BF16_TERMS];
    int p, q;
#pragma GCC unroll 24
    for (int s = 0; s < PH_FEW_ROWS * PAIR * PRODUCTS; s++)
        sum[s / PRODUCTS / PAIR][s / PRODUCTS % PAIR][s % PRODUCTS] = v_zero();
#pragma GCC unroll 4
    for (int k = 0; k < lines; k++)
#pragma GCC unroll 2
        for (int w = 0; w < width; w++) {
            const float *b = x->b + k * x->ldb + j + w * VL;
            split_bf16x3(n < VL ? v_load_n(b, n) : v_load(b), term, b_terms);
#pragma GCC unroll 12
            for (int s = 0; s < m * PRODUCTS; s++) {
                vec *to = &sum[s / PRODUCTS][w][s % PRODUCTS];
                if (terms_of_product(s % PRODUCTS, a_terms, b_terms, &p, &q))
                    *to = v_fma(v_set1(x->left[s / PRODUCTS][p][k]), term[q], *to);
            }
        }
#pragma GCC unroll 4
    for (int s = 0; s < m * width; s++) {
        int i = s % m, w = s / m, at = (j / VL + w) * m + i;
        end_chain(a_terms, x, i, j + w * VL, sum[i][w],
                  x->first_sums + at * products * VL);
    }
}

/* Whether all elements of a chain are exact in bf16, so that one term is enough. */
V int exact_in_bf16(const chain *x, int j)
{
    __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 4
    for (int k = 0; k < PH_AMX_TILE; k++) {
        const float *b = x->b + k * x->ldb + j;
        bits = _mm512_ternarylogic_epi32(bits, v_bits(v_load(b)), v_bits(v_load(b + VL)),
                                         0xfe); /* or */
    }
    return !_mm512_test_epi32_mask(bits, vi_set1(0xffff));
}

/* n columns; returns the terms that the last of them needed. A matrix is rarely mixed, so
   once an element has needed three terms the cheap test is skipped. */
V int run_columns(const int m, const int a_terms, const chain *x, int n, int b_terms)
{
    int j = 0;
    for (; x->lines == PH_AMX_TILE && j + PAIR * VL <= n; j += PAIR * VL) {
        if (b_terms == 1 && !exact_in_bf16(x, j)) b_terms = PH_BF16_TERMS;
        if (b_terms == 1)
            run_chain(m, a_terms, 1, PAIR, PH_AMX_TILE, x, j, VL);
        else
            run_chain(m, a_terms, PH_BF16_TERMS, PAIR, PH_AMX_TILE, x, j, VL);
    }
    for (; j < n; j += VL)
        run_chain(m, a_terms, PH_BF16_TERMS, 1, x->lines, x, j, ph_min(n - j, VL));
    return b_terms;
}

/* The elements of a for one chain of a step: the first or second ones of its pairs. */
V void load_left(chain *x, const int m, const int a_terms, const ph_operand *a, int step)
{
    for (int i = 0; i < m; i++)
        for (int p = 0; p < a_terms; p++) {
            __m512i pairs = _mm512_loadu_si512(a->tiles + p * a->term + step * a->step +
                                               i * PH_AMX_STEP);
            pairs = x->second ? vi_and(pairs, vi_set1(0xffff0000u))
                              : _mm512_slli_epi32(pairs, 16);
            v_store(x->left[i][p], v_float(pairs));
        }
}

V void run_rows(const int m, const int a_terms, int n, int k, const ph_operand *a,
                const float *b, int64_t ldb, float *c, int64_t ldc)
{
    _Alignas(PH_ALIGN) float first_sums[FIRST_FLOATS];
    const int products = a_terms > 1 ? PRODUCTS : PH_BF16_TERMS,
              most = FIRST_FLOATS / (m * products);
    int terms = 1;
    for (int j = 0; j < n; j += most)
        for (int kk = 0; kk < ph_round_up(k, PH_AMX_STEP); kk += PH_AMX_TILE) {
            chain x = {.lines = ph_max(0, ph_min(PH_AMX_TILE, k - kk)),
                       .b = b + kk * ldb + j,
                       .ldb = ldb,
                       .second = kk / PH_AMX_TILE % 2,
                       .first_sums = first_sums,
                       .c = c + j,
                       .ldc = ldc};
            load_left(&x, m, a_terms, a, kk / PH_AMX_STEP);
            terms = run_columns(m, a_terms, &x, ph_min(most, n - j), terms);
        }
    for (int i = 0; i < m; i++) /* as operands, subnormal results raise the flag too */
        for (int j = 0; j < n; j += VL)
            v_store(c + i * ldc + j, v_add(v_load(c + i * ldc + j), v_zero()));
}

static __attribute__((noinline)) void run(int m, int n, int k, const ph_operand *a,
                                          const float *b, int64_t ldb, float *c,
                                          int64_t ldc)
{
    if (m > 1 && a->terms > 1)
        run_rows(2, PH_BF16_TERMS, n, k, a, b, ldb, c, ldc);
    else if (m > 1)
        run_rows(2, 1, n, k, a, b, ldb, c, ldc);
    else if (a->terms > 1)
        run_rows(1, PH_BF16_TERMS, n, k, a, b, ldb, c, ldc);
    else
        run_rows(1, 1, n, k, a, b, ldb, c, ldc);
}

int ph_amx_multiply_few_rows(int m, int n, int k, const ph_operand *a, const float *b,
                             int64_t ldb, float *c, int64_t ldc)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before & ~(unsigned)UNDERFLOW);
    run(m, n, k, a, b, ldb, c, ldc);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before | after);
    return !(after & UNDERFLOW);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
