/*
 * kernel_products.c - checks and benches of the products: scores, weigh, product,
 * stream, add_rows, axpy, dot, dots, times, blend.
 *
 * An element of a product does not depend on how many rows are computed, so `ref` runs
 * once per (n, k) on ROWS rows and every m is compared with the top of that.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_bed.h"

#define REF ph_kernels_ref

enum { ROWS = PH_MR_MAX, MORE = 26, COLS = 160, DEPTH = 520, LD = 192 };

/* What the checks start from, and what ref makes of it; aligned as the library's own
   buffers are, for the benches. */
#define ALIGNED static _Alignas(PH_ALIGN) float
ALIGNED left[ROWS * DEPTH], right[COLS * DEPTH];
ALIGNED packed_b[(COLS + PH_NR_MAX) * DEPTH + PH_PACK_SLACK];
ALIGNED start[MORE * LD], expected[MORE * LD];
static float lane_max_start[ROWS * PH_LANES], lane_max_expected[ROWS * PH_LANES];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* EVERY size to 70, then some of the sizes in use, up to `most`. */
static int next_k(int k, int most)
{
    static const int large[] = {71, 96, 127, 128, 255, 256, 511, 512};
    if (k < 70) return k + EVERY <= most ? k + EVERY : 0;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        if (large[i] > k) return large[i] <= most ? large[i] : 0;
    return 0;
}

/* ---- scores ------------------------------------------------------------------------ */

/* n rows of `right` (n x k) as panels of nr */
static void pack_right(const ph_kernels *t, float *to, int n, int k)
{
    const void *row[PH_NR_MAX];
    for (int j = 0; j < n; j += t->nr) {
        int count = ph_min(n - j, t->nr);
        for (int i = 0; i < count; i++) row[i] = right + (j + i) * k;
        t->pack_panel(to + (int64_t)j * k, t->nr, row, count, k, PH_F32, 1.0f);
    }
}

/* Rows of `left` touch each other, or not. */
static int left_ld(int k)
{
    return k % 3 ? k : k + 5;
}

static void expected_scores(int n, int k)
{
    pack_right(&REF, packed_b, n, k);
    memcpy(lane_max_expected, lane_max_start, sizeof lane_max_expected);
    for (int i = 0; i < ROWS; i += REF.mr) {
        int m = ph_min(ROWS - i, REF.mr);
        REF.scores(m, n, k, left + i * left_ld(k), left_ld(k), packed_b,
                   expected + i * PH_STRIP_LD, lane_max_expected + i * PH_LANES);
    }
}

/* Floats of n columns in panels of nr: the last line of the last panel may be short. */
static int64_t panel_floats(int n, int k, int nr)
{
    int full = n / nr * nr, rest = n - full;
    return (int64_t)full * k + (rest ? (int64_t)(k - 1) * nr + rest : 0);
}

static void scores_at(const ph_kernels *t, int n, int k)
{
    pack_right(t, packed_b, n, k);
    const float *b = bed_copy(1, packed_b, panel_floats(n, k, t->nr), side());
    for (int m = 1; m <= t->mr; m++) {
        bed_say("%s scores m=%d n=%d k=%d", t->name, m, n, k);
        const float *a = bed_copy(0, left, (int64_t)(m - 1) * left_ld(k) + k, side());
        float *s = bed_floats(2, (m - 1) * PH_STRIP_LD + n, side());
        float *lane_max = bed_copy(3, lane_max_start, m * PH_LANES, side());
        int wanted = bed_below(4) != 0;
        t->scores(m, n, k, a, left_ld(k), b, s, wanted ? lane_max : NULL);
        bed_same_rows("s", s, PH_STRIP_LD, expected, PH_STRIP_LD, m, n, n);
        bed_same("lane_max", lane_max, wanted ? lane_max_expected : lane_max_start,
                 m * PH_LANES);
        bed_intact(2);
        bed_intact(3);
    }
}

void check_scores(const ph_kernels *t)
{
    for (int k = 1; k; k = next_k(k, 512))
        for (int n = 16; n <= PH_STRIP_LD; n += k < 71 ? 16 : 48) {
            int kind = (k + n / 16) % BED_KINDS;
            bed_fill(left, ROWS * left_ld(k), kind);
            bed_fill(right, (int64_t)n * k, kind);
            for (int i = 0; i < ROWS * PH_LANES; i++)
                lane_max_start[i] = bed_below(2) ? -INFINITY : bed_between(-2, 2);
            expected_scores(n, k);
            scores_at(t, n, k);
        }
}

void bench_scores(const ph_kernels *t)
{
    for (int k = 64; k <= 128; k *= 2) {
        const int n = PH_STRIP_LD, m = t->mr;
        char shape[40];
        bed_timer timer;
        bed_fill(left, ROWS * k, BED_NORMAL);
        bed_fill(right, (int64_t)n * k, BED_NORMAL);
        pack_right(t, packed_b, n, k);
        float *s = bed_floats(2, ROWS * PH_STRIP_LD, BED_START);
        float *lane_max = bed_floats(3, ROWS * PH_LANES, BED_START);
        BED_TIME(&timer, t->scores(m, n, k, left, k, packed_b, s, lane_max));
        snprintf(shape, sizeof shape, "%d x %d, k %d", m, n, k);
        bed_report("scores", t, shape, &timer, 2.0 * m * n * k, 0);
    }
}

/* ---- multiply_v -------------------------------------------------------------------- */

static void multiply_v_at(const ph_kernels *t, int n, int k, int64_t ldb)
{
    float alpha_start[ROWS];
    for (int i = 0; i < ROWS; i++) alpha_start[i] = bed_between(0, 1);
    int64_t ldc = n + (bed_below(2) ? 0 : 5);
    int fresh = !bed_below(3); /* rescale NULL: c is overwritten */
    memcpy(expected, start, sizeof start);
    for (int i = 0; i < ROWS; i += REF.mr)
        REF.multiply_v(ph_min(ROWS - i, REF.mr), n, k, left + i * PH_STRIP_LD, right, ldb,
                       expected + i * LD, LD, fresh ? NULL : alpha_start + i, NULL);
    const float *b = bed_copy(1, right, (k - 1) * ldb + n, side());
    for (int m = 1; m <= t->mr; m++) {
        bed_say("%s multiply_v m=%d n=%d k=%d ldb=%d ldc=%d%s", t->name, m, n, k,
                (int)ldb, (int)ldc, fresh ? " no rescale" : "");
        const float *p = bed_copy(0, left, (m - 1) * PH_STRIP_LD + k, side());
        const float *rescale = fresh ? NULL : bed_copy(4, alpha_start, m, side());
        float *c = bed_floats(2, (m - 1) * ldc + n, side());
        for (int i = 0; i < m && !fresh; i++)
            memcpy(c + i * ldc, start + i * LD, (size_t)n * sizeof(float));
        t->multiply_v(m, n, k, p, b, ldb, c, ldc, rescale, m % 2 ? expected : NULL);
        bed_same_rows("c", c, ldc, expected, LD, m, n, n);
        bed_intact(2);
    }
}

void check_multiply_v(const ph_kernels *t)
{
    for (int k = 1; k; k = next_k(k, PH_STRIP_LD))
        for (int n = 16; n <= COLS; n += 16) {
            int kind = (k + n / 16) % BED_KINDS;
            int64_t ldb = n + (n + k) % 3 * 8;
            bed_fill(left, ROWS * PH_STRIP_LD, kind);
            bed_fill(right, (k - 1) * ldb + n, kind);
            bed_fill(start, ROWS * LD, kind);
            multiply_v_at(t, n, k, ldb);
        }
}

void bench_multiply_v(const ph_kernels *t)
{
    for (int n = 64; n <= 128; n *= 2) {
        const int k = PH_STRIP_LD, m = t->mr;
        char shape[40];
        float rescale[ROWS];
        bed_timer timer;
        bed_fill(left, ROWS * PH_STRIP_LD, BED_NORMAL);
        bed_fill(right, (int64_t)k * n, BED_NORMAL);
        bed_fill(start, ROWS * LD, BED_NORMAL);
        for (int i = 0; i < ROWS; i++) rescale[i] = 0.5f;
        BED_TIME(&timer,
                 t->multiply_v(m, n, k, left, right, n, start, LD, rescale, NULL));
        snprintf(shape, sizeof shape, "%d x %d, k %d", m, n, k);
        bed_report("multiply_v", t, shape, &timer, 2.0 * m * n * k, 0);
    }
}

/* ---- product ----------------------------------------------------------------------- */

/* add 0 and 1 on `start`; left is k x ROWS, right is k x n */
static void product_at(const ph_kernels *t, int n, int k, int add)
{
    const int64_t tail = bed_below(3);
    memcpy(expected, start, sizeof start);
    for (int i = 0; i < ROWS; i += REF.mr)
        REF.product(ph_min(ROWS - i, REF.mr), n, k, left + i, ROWS, right, n, REF.nr,
                    expected + i * LD, LD, add, NULL);
    int in_place = bed_below(2); /* b row-major in place, or packed */
    int64_t ldb = in_place ? n : t->nr;
    int64_t panel = in_place ? t->nr : (int64_t)t->nr * k + tail;
    int64_t floats = in_place ? (int64_t)k * n
                              : (ph_div_up(n, t->nr) - 1) * panel + (k - 1) * ldb +
                                    (n - 1) % t->nr + 1;
    if (!in_place) t->pack_panels(packed_b, t->nr, panel, right, n, k, n, PH_F32);
    const float *b = bed_copy(1, in_place ? right : packed_b, floats, side());
    for (int m = 1; m <= t->mr; m++) {
        int64_t lda = m + bed_below(3), ldc = n + bed_below(2) * 7;
        bed_say("%s product m=%d n=%d k=%d lda=%d ldc=%d add=%d %s", t->name, m, n, k,
                (int)lda, (int)ldc, add, in_place ? "in place" : "panels");
        float *a = bed_floats(0, (k - 1) * lda + m, side());
        for (int i = 0; i < k; i++)
            memcpy(a + i * lda, left + i * ROWS, (size_t)m * sizeof(float));
        float *c = bed_floats(2, (m - 1) * ldc + n, side());
        for (int i = 0; i < m; i++)
            memcpy(c + i * ldc, start + i * LD, (size_t)n * sizeof(float));
        t->product(m, n, k, a, lda, b, ldb, panel, c, ldc, add, m % 2 ? a : NULL);
        bed_same_rows("c", c, ldc, expected, LD, m, n, n);
        bed_intact(2);
    }
}

void check_product(const ph_kernels *t)
{
    for (int k = 1; k; k = next_k(k, 512))
        for (int n = 16; n <= COLS; n += k < 71 ? 16 : 48) {
            int kind = (k + n / 16) % BED_KINDS;
            bed_fill(left, ROWS * k, kind);
            bed_fill(right, (int64_t)n * k, kind);
            bed_fill(start, ROWS * LD, kind);
            product_at(t, n, k, (k + n / 16) / BED_KINDS % 2);
        }
}

void bench_product(const ph_kernels *t)
{
    for (int add = 0; add <= 1; add++) {
        const int n = 128, k = 256, m = t->mr;
        char shape[40];
        bed_timer timer;
        bed_fill(left, ROWS * k, BED_NORMAL);
        bed_fill(right, (int64_t)n * k, BED_NORMAL);
        bed_fill(start, ROWS * LD, BED_NORMAL);
        t->pack_panels(packed_b, t->nr, (int64_t)t->nr * k, right, n, k, n, PH_F32);
        BED_TIME(&timer, t->product(m, n, k, left, m, packed_b, t->nr, (int64_t)t->nr * k,
                                    start, LD, add, NULL));
        snprintf(shape, sizeof shape, "%d x %d, k %d%s", m, n, k, add ? ", add" : "");
        bed_report("product", t, shape, &timer, 2.0 * m * n * k, 0);
    }
}

/* ---- add_rows: any m, n ------------------------------------------------------------ */

void check_add_rows(const ph_kernels *t)
{
    for (int n = 1; n <= 130; n++) {
        bed_fill(left, n, n % BED_KINDS);
        bed_fill(start, ROWS * LD, n % BED_KINDS);
        for (int m = 1; m <= ROWS; m++) {
            int64_t ld = n + bed_below(4);
            bed_say("%s add_rows m=%d n=%d ld=%d", t->name, m, n, (int)ld);
            memcpy(expected, start, sizeof expected);
            REF.add_rows(m, n, left, expected, LD);
            const float *x = bed_copy(0, left, n, side());
            float *y = bed_floats(2, (m - 1) * ld + n, side());
            for (int i = 0; i < m; i++)
                memcpy(y + i * ld, start + i * LD, (size_t)n * sizeof(float));
            t->add_rows(m, n, x, y, ld);
            bed_same_rows("y", y, ld, expected, LD, m, n, n);
            bed_intact(2);
        }
    }
}

void bench_add_rows(const ph_kernels *t)
{
    bed_timer timer;
    bed_fill(left, PH_STRIP_LD, BED_NORMAL);
    bed_fill(start, ROWS * LD, BED_NORMAL);
    BED_TIME(&timer, t->add_rows(ROWS, PH_STRIP_LD, left, start, LD));
    bed_report("add_rows", t, "12 x 128", &timer, ROWS * PH_STRIP_LD,
               4.0 * ROWS * PH_STRIP_LD);
}

/* ---- one row against another ------------------------------------------------------- */

void check_axpy(const ph_kernels *t)
{
    for (int round = 0; round < 40; round++)
        for (int n = 16; n <= COLS; n += 16) {
            float a;
            bed_say("%s axpy n=%d", t->name, n);
            bed_fill(left, n, round % BED_KINDS);
            bed_fill(start, n, round % BED_KINDS);
            bed_fill(&a, 1, round / 4 % BED_KINDS);
            const float *x = bed_copy(0, left, n, side());
            float *y = bed_copy(2, start, n, side());
            REF.axpy(n, a, left, start);
            t->axpy(n, a, x, y);
            bed_same("y", y, start, n);
            bed_intact(2);
        }
}

void check_blend(const ph_kernels *t)
{
    for (int round = 0; round < 40; round++)
        for (int n = 16; n <= COLS; n += 16) {
            float factor[2];
            bed_say("%s blend n=%d", t->name, n);
            bed_fill(left, n, round % BED_KINDS);
            bed_fill(start, n, round % BED_KINDS);
            bed_fill(factor, 2, round / 4 % BED_KINDS);
            const float *x = bed_copy(0, left, n, side());
            float *y = bed_copy(2, start, n, side());
            REF.blend(n, start, factor[0], left, factor[1]);
            t->blend(n, y, factor[0], x, factor[1]);
            bed_same("y", y, start, n);
            bed_intact(2);
        }
}

void check_times(const ph_kernels *t)
{
    for (int round = 0; round < 40; round++)
        for (int n = 16; n <= COLS; n += 16) {
            bed_say("%s times n=%d", t->name, n);
            bed_fill(left, n, round % BED_KINDS);
            bed_fill(start, n, round % BED_KINDS);
            const float *x = bed_copy(0, left, n, side());
            float *y = bed_copy(2, start, n, side());
            REF.times(n, start, left);
            t->times(n, y, x);
            bed_same("y", y, start, n);
            bed_intact(2);
        }
}

/* n any; both rows hold zeros up to a multiple of 16 */
void check_dot(const ph_kernels *t)
{
    for (int round = 0; round < 40; round++)
        for (int n = 1; n <= 150; n++) {
            int padded = ph_round_up(n, PH_LANES);
            bed_say("%s dot n=%d", t->name, n);
            memset(left, 0, (size_t)padded * sizeof(float));
            memset(right, 0, (size_t)padded * sizeof(float));
            bed_fill(left, n, round % BED_KINDS);
            bed_fill(right, n, round % BED_KINDS);
            const float *x = bed_copy(0, left, padded, side());
            const float *y = bed_copy(1, right, padded, side());
            float want = REF.dot(n, left, right), got = t->dot(n, x, y);
            bed_same("sum", &got, &want, 1);
        }
}

static void report_row(const char *name, const ph_kernels *t, const bed_timer *timer,
                       double flops, double bytes)
{
    bed_report(name, t, "128", timer, flops * PH_STRIP_LD, bytes * PH_STRIP_LD);
}

void bench_axpy(const ph_kernels *t)
{
    bed_timer timer;
    bed_fill(left, PH_STRIP_LD, BED_NORMAL);
    bed_fill(start, PH_STRIP_LD, BED_NORMAL);
    BED_TIME(&timer, t->axpy(PH_STRIP_LD, 0.001f, left, start));
    report_row("axpy", t, &timer, 2, 12);
}

void bench_times(const ph_kernels *t)
{
    bed_timer timer;
    for (int i = 0; i < PH_STRIP_LD; i++) left[i] = i % 2 ? 1.0f : -1.0f;
    bed_fill(start, PH_STRIP_LD, BED_NORMAL);
    BED_TIME(&timer, t->times(PH_STRIP_LD, start, left));
    report_row("times", t, &timer, 1, 12);
}

void bench_blend(const ph_kernels *t)
{
    bed_timer timer;
    bed_fill(left, PH_STRIP_LD, BED_NORMAL);
    bed_fill(start, PH_STRIP_LD, BED_NORMAL);
    BED_TIME(&timer, t->blend(PH_STRIP_LD, start, 0.5f, left, 0.5f));
    report_row("blend", t, &timer, 3, 12);
}

void check_dots(const ph_kernels *t)
{
    for (int n = 16; n <= 144; n += 16)
        for (int m = 1; m <= ROWS; m++) {
            int64_t ldx = n + bed_below(3), ldy = n + bed_below(3);
            bed_say("%s dots m=%d n=%d", t->name, m, n);
            bed_fill(left, (m - 1) * ldx + n, m % BED_KINDS);
            bed_fill(right, (m - 1) * ldy + n, m % BED_KINDS);
            const float *x = bed_copy(0, left, (m - 1) * ldx + n, side());
            const float *y = bed_copy(1, right, (m - 1) * ldy + n, side());
            float *sums = bed_floats(2, m, side());
            REF.dots(m, n, left, ldx, right, ldy, expected);
            t->dots(m, n, x, ldx, y, ldy, sums);
            bed_same("sums", sums, expected, m);
            bed_intact(2);
        }
}

void bench_dot(const ph_kernels *t)
{
    bed_timer timer;
    volatile float sink;
    bed_fill(left, PH_STRIP_LD, BED_NORMAL);
    bed_fill(right, PH_STRIP_LD, BED_NORMAL);
    BED_TIME(&timer, sink = t->dot(PH_STRIP_LD, left, right));
    (void)sink;
    report_row("dot", t, &timer, 2, 8);
}

void bench_dots(const ph_kernels *t)
{
    bed_timer timer;
    bed_fill(left, ROWS * 64, BED_NORMAL);
    bed_fill(right, ROWS * 64, BED_NORMAL);
    BED_TIME(&timer, t->dots(ROWS, 64, left, 64, right, 64, expected));
    bed_report("dots", t, "12 x 64", &timer, 2.0 * ROWS * 64, 8.0 * ROWS * 64);
}
