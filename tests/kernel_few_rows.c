/*
 * kernel_few_rows.c - checks and benches of the products of few rows, in both storage
 * orders and all types of the right matrix.
 */
#include <stdio.h>
#include <string.h>

#include "kernel_bed.h"

#define REF ph_kernels_ref

enum { MORE = 26, LD = 288 };

static float start[MORE * LD], expected[MORE * LD];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

typedef void product_fn(int m, int n, int k, const float *a, int64_t lda, const void *b,
                        int64_t ldb, ph_dtype type, float *c, int64_t ldc);

/* Rows of b are `length` elements, of which the product uses the first. */
static void few_rows_at(const char *name, product_fn *f, product_fn *ref, int transposed,
                        int m, int n, int k, ph_dtype type)
{
    int unit = ph_quant_block(type);
    int lines = transposed ? n : k, length = transposed ? k : n;
    int ldb = length + bed_below(3) * unit, data = bed_below(4) ? BED_CALM : BED_MIXED;
    int64_t lda = k + bed_below(3), ldc = n + bed_below(4);
    bed_say("%s m=%d n=%d k=%d lda=%d ldb=%d ldc=%d %s", name, m, n, k, (int)lda, ldb,
            (int)ldc, ph_dtype_name(type));
    const float *a = bed_elements(0, (m - 1) * (int)lda + k, PH_F32, data);
    const void *b = bed_elements(1, (lines - 1) * ldb + length, type, data);
    float *c = bed_floats(2, (m - 1) * ldc + n, side());
    for (int i = 0; i < m; i++) {
        memcpy(c + i * ldc, start + i * LD, (size_t)n * sizeof(float));
        memcpy(expected + i * LD, start + i * LD, (size_t)n * sizeof(float));
    }
    ref(m, n, k, a, lda, b, ldb, type, expected, LD);
    f(m, n, k, a, lda, b, ldb, type, c, ldc);
    bed_same_rows("c", c, ldc, expected, LD, m, n, n);
    bed_intact(2);
}

void check_product_few_rows(const ph_kernels *t)
{
    for (int n = 1; n <= 130; n += EVERY) {
        bed_fill(start, MORE * LD, n % BED_KINDS);
        for (int m = 1; m <= MORE; m = m < 9 ? m + 1 : 2 * m - 5)
            for (int k = 1 + (n + m) % 4; k <= 70; k += k < 12 ? 2 : 19) {
                ph_dtype type = bed_below(2) ? PH_F32 : (ph_dtype)bed_below(PH_Q6_K + 1);
                int cols = ph_round_up(n, ph_quant_block(type));
                few_rows_at("product_few_rows", t->product_few_rows, REF.product_few_rows,
                            0, m, cols, k, type);
            }
    }
}

/* Every number of rows against blocks: tiles that are full, that lack rows, and a single
   one; one block, and enough that loads run ahead. */
static void few_rows_blocks(const ph_kernels *t)
{
    static const int lines[] = {1, 7, 16, 31, 32, 33, 67}, depths[] = {32, 64, 160};
    bed_fill(start, MORE * LD, BED_NORMAL);
    for (int type = PH_Q8_0; type <= PH_Q6_K; type++)
        for (int m = 1; m <= t->few_rows; m++)
            for (int i = 0; i < 7; i++) {
                int unit = ph_dtype_is_k((ph_dtype)type) ? 8 : 1; /* of 32 elements */
                few_rows_at("product_few_rows_t", t->product_few_rows_t,
                            REF.product_few_rows_t, 1, m, lines[i],
                            unit * depths[(i + m) % 3], (ph_dtype)type);
            }
}

void check_product_few_rows_t(const ph_kernels *t)
{
    for (int k = 1; k <= 130; k += EVERY) {
        bed_fill(start, MORE * LD, k % BED_KINDS);
        for (int m = 1; m <= t->few_rows; m++)
            for (int n = 1 + (k + m) % 4; n <= 70; n += n < 12 ? 2 : 19) {
                ph_dtype type = (ph_dtype)bed_below(PH_Q6_K + 1);
                int deep = ph_round_up(k, ph_quant_block(type));
                few_rows_at("product_few_rows_t", t->product_few_rows_t,
                            REF.product_few_rows_t, 1, m, n, deep, type);
            }
    }
    few_rows_blocks(t);
}

/* In cache, so that what conversion costs is seen. */
static void bench_few_rows(const ph_kernels *t, const char *name, product_fn *f, int n,
                           int k, int transposed)
{
    for (int type = 0; type <= PH_Q6_K; type++)
        for (int m = 1; m <= t->few_rows; m *= 4) {
            char shape[60];
            bed_timer timer;
            const float *a = bed_elements(0, m * k, PH_F32, BED_EVEN);
            const void *b = bed_elements(1, n * k, (ph_dtype)type, BED_EVEN);
            float *c = bed_floats(2, (int64_t)m * n, BED_START);
            memset(c, 0, (size_t)m * (size_t)n * sizeof *c);
            BED_TIME(&timer,
                     f(m, n, k, a, k, b, transposed ? k : n, (ph_dtype)type, c, n));
            snprintf(shape, sizeof shape, "%d x %d, k %d %s", m, n, k,
                     ph_dtype_name((ph_dtype)type));
            bed_report(name, t, shape, &timer, 2.0 * m * n * k,
                       (double)ph_offset((ph_dtype)type, (int64_t)n * k));
        }
}

void bench_product_few_rows(const ph_kernels *t)
{
    bench_few_rows(t, "product_few_rows", t->product_few_rows, 256, 512, 0);
}

void bench_product_few_rows_t(const ph_kernels *t)
{
    bench_few_rows(t, "product_few_rows_t", t->product_few_rows_t, 128, 768, 1);
}
