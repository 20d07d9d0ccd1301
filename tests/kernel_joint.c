/*
 * kernel_joint.c - checks and benches of the kernels of mixed heads and of entmax:
 * compose, decompose, center, gram, near_row_max, power_sums, entmax; and what they mean,
 * in double.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_bed.h"

#define REF ph_kernels_ref

enum { MOST = 144, HEADS = 7, LD = 160 };

static _Alignas(PH_ALIGN) float left[HEADS * LD], right[HEADS * LD], result[HEADS * LD];
static float expected[HEADS * LD];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* ---- rows -------------------------------------------------------------------------- */

enum { RANK = 3, ROWS = 5, PARTS = RANK * HEADS * PH_STRIP_LD };

static float w1[PARTS], w2[PARTS], diagonal[PARTS], in[ROWS * HEADS * PH_STRIP_LD];
static float out[ROWS * HEADS * PH_STRIP_LD], summed[3][PARTS], wanted[3][PARTS];

static void fill_parts(int kind)
{
    bed_fill(w1, PARTS, kind);
    bed_fill(w2, PARTS, kind);
    bed_fill(diagonal, PARTS, kind);
    bed_fill(in, ROWS * HEADS * PH_STRIP_LD, kind);
    bed_fill(out, ROWS * HEADS * PH_STRIP_LD, kind);
}

void check_compose(const ph_kernels *t)
{
    for (int round = 0; round < 60; round += EVERY)
        for (int n = 16; n <= PH_STRIP_LD; n += 16) {
            int heads = 1 + bed_below(HEADS), rank = 1 + bed_below(RANK);
            int64_t ld = PH_STRIP_LD * (1 + bed_below(ROWS));
            int64_t size = (heads - 1) * ld + n;
            bed_say("%s compose heads=%d rank=%d n=%d", t->name, heads, rank, n);
            fill_parts(round % BED_KINDS);
            const float *x = bed_copy(0, in, size, side());
            float *y = bed_copy(1, out, size, side());
            REF.compose(heads, rank, n, w1, w2, diagonal, in, out, ld);
            t->compose(heads, rank, n, w1, w2, diagonal, x, y, ld);
            for (int h = 0; h < heads; h++) bed_same("y", y + h * ld, out + h * ld, n);
            bed_intact(1);
        }
}

void bench_compose(const ph_kernels *t)
{
    bed_timer timer;
    const int n = PH_STRIP_LD;
    fill_parts(BED_NORMAL);
    BED_TIME(&timer, t->compose(HEADS, 2, n, w1, w2, diagonal, in, out, n));
    bed_report("compose", t, "7 heads, rank 2, 128", &timer, 10.0 * HEADS * n, 0);
}

void check_decompose(const ph_kernels *t)
{
    static float scratch[2 * RANK * ROWS * PH_LANES];
    for (int round = 0; round < 60; round += EVERY)
        for (int n = 16; n <= PH_STRIP_LD; n += 16) {
            int heads = 1 + bed_below(HEADS), rank = 1 + bed_below(RANK);
            int rows = 1 + bed_below(ROWS);
            int64_t ld = PH_STRIP_LD * ROWS, part = (int64_t)rank * heads * PH_STRIP_LD;
            bed_say("%s decompose heads=%d rank=%d rows=%d n=%d", t->name, heads, rank,
                    rows, n);
            fill_parts(round % BED_KINDS);
            for (int i = 0; i < 3; i++) bed_fill(wanted[i], PARTS, BED_NORMAL);
            memcpy(summed, wanted, sizeof summed);
            REF.decompose(heads, rank, rows, n, w1, w2, in, out, ld, wanted[0], wanted[1],
                          wanted[2], scratch);
            t->decompose(heads, rank, rows, n, w1, w2, in, out, ld, summed[0], summed[1],
                         summed[2], scratch);
            bed_same("dw1", summed[0], wanted[0], part);
            bed_same("dw2", summed[1], wanted[1], part);
            bed_same("dg", summed[2], wanted[2], (int64_t)heads * PH_STRIP_LD);
        }
}

void bench_decompose(const ph_kernels *t)
{
    static float scratch[2 * RANK * ROWS * PH_LANES];
    bed_timer timer;
    const int n = PH_STRIP_LD;
    fill_parts(BED_NORMAL);
    BED_TIME(&timer, t->decompose(HEADS, 2, ROWS, n, w1, w2, in, out, ROWS * n, summed[0],
                                  summed[1], summed[2], scratch));
    bed_report("decompose", t, "7 heads, rank 2, 5 x 128", &timer,
               18.0 * HEADS * ROWS * n, 0);
}

void check_center(const ph_kernels *t)
{
    for (int round = 0; round < 40; round++)
        for (int n = 16; n <= MOST; n += 16) {
            float delta = bed_between(-3, 3);
            bed_say("%s center n=%d", t->name, n);
            bed_fill(left, n, round % BED_KINDS);
            bed_fill(expected, n, round % BED_KINDS);
            for (int c = 0; c < n; c++) /* nothing may come out of a weight of 0 */
                if (!bed_below(4)) left[c] = 0, expected[c] = bed_special();
            const float *p = bed_copy(0, left, n, side());
            float *dp = bed_copy(2, expected, n, side());
            REF.center(n, left, delta, expected);
            t->center(n, p, delta, dp);
            for (int c = 0; c < n; c++)
                if (left[c] == 0 && expected[c] != 0) bed_fail("column %d is not 0", c);
            bed_same("dp", dp, expected, n);
            bed_intact(2);
        }
}

void bench_center(const ph_kernels *t)
{
    bed_timer timer;
    bed_fill(left, PH_STRIP_LD, BED_NORMAL);
    BED_TIME(&timer, t->center(PH_STRIP_LD, left, 0.5f, result));
    bed_report("center", t, "128", &timer, 2.0 * PH_STRIP_LD, 12.0 * PH_STRIP_LD);
}

/* ---- all heads against all --------------------------------------------------------- */

static void gram_at(const ph_kernels *t, int m, int n, int k, int kind)
{
    bed_say("%s gram m=%d n=%d k=%d kind %d", t->name, m, n, k, kind);
    bed_fill(left, HEADS * LD, kind);
    bed_fill(right, HEADS * LD, kind);
    bed_fill(expected, HEADS * HEADS, BED_NORMAL);
    const float *x = bed_copy(0, left, (m - 1) * LD + k, side());
    const float *y = bed_copy(1, right, (n - 1) * LD + k, side());
    float *g = bed_copy(2, expected, (m - 1) * HEADS + n, side());
    REF.gram(m, n, k, left, LD, right, LD, expected, HEADS);
    t->gram(m, n, k, x, LD, y, LD, g, HEADS);
    for (int i = 0; i < m; i++) bed_same("g", g + i * HEADS, expected + i * HEADS, n);
    bed_intact(2);
}

void check_gram(const ph_kernels *t)
{
    for (int round = 0; round < 4; round++)
        for (int m = 1; m <= HEADS; m++)
            for (int n = 1; n <= HEADS; n++)
                for (int k = 16; k <= MOST; k += 32)
                    gram_at(t, m, n, k, round % BED_KINDS);
}

void bench_gram(const ph_kernels *t)
{
    bed_timer timer;
    const int heads = HEADS, k = PH_STRIP_LD;
    bed_fill(left, HEADS * LD, BED_NORMAL);
    bed_fill(right, HEADS * LD, BED_NORMAL);
    BED_TIME(&timer, t->gram(heads, heads, k, left, LD, right, LD, result, LD));
    bed_report("gram", t, "7 x 7, k 128", &timer, 2.0 * heads * heads * k, 0);
}

/* ---- entmax ------------------------------------------------------------------------ */

static void fill_scores(float *s, int n, float *row_max)
{
    *row_max = -INFINITY;
    for (int c = 0; c < n; c++) {
        s[c] = bed_below(8) ? bed_between(-12, 12) : -INFINITY;
        *row_max = fmaxf(*row_max, s[c]);
    }
    if (*row_max == -INFINITY) *row_max = 0;
}

void check_near_row_max(const ph_kernels *t)
{
    for (int round = 0; round < 60; round += EVERY)
        for (int n = 16; n <= MOST; n += 16) {
            float row_max, scale = bed_between(0.05f, 0.7f);
            bed_say("%s near_row_max n=%d", t->name, n);
            fill_scores(left, n, &row_max);
            const float *s = bed_copy(0, left, n, side());
            int want = REF.near_row_max(n, left, scale, row_max, expected);
            float *list = bed_floats(2, want + 16, side());
            int got = t->near_row_max(n, s, scale, row_max, list);
            if (got != want) bed_fail("%d listed, expected %d", got, want);
            bed_same("list", list, expected, want);
            bed_intact(2);
        }
}

void bench_near_row_max(const ph_kernels *t)
{
    bed_timer timer;
    float row_max;
    fill_scores(left, PH_STRIP_LD, &row_max);
    BED_TIME(&timer, (void)t->near_row_max(PH_STRIP_LD, left, 0.35f, row_max, result));
    bed_report("near_row_max", t, "128", &timer, 0, 4.0 * PH_STRIP_LD);
}

static const float powers[] = {1, 2, 3, 1.25f, 10, 100, 1.0f / 0.7f, 1e6f};
enum { POWERS = sizeof powers / sizeof powers[0] };

void check_power_sums(const ph_kernels *t)
{
    for (int round = 0; round < 20 * POWERS; round++)
        for (int n = 16; n <= MOST; n += 16) {
            float a = powers[round % POWERS], d = bed_between(0, 0.9f), got[2], want[2];
            bed_say("%s power_sums n=%d a=%g", t->name, n, (double)a);
            for (int c = 0; c < n; c++)
                left[c] = bed_below(6) ? bed_between(-1, d) : c % 2 ? -2 : d;
            const float *x = bed_copy(0, left, n, side());
            REF.power_sums(n, left, d, a, want);
            t->power_sums(n, x, d, a, got);
            bed_same("sums", got, want, 2);
            bed_intact(0);
        }
}

void bench_power_sums(const ph_kernels *t)
{
    for (int i = 1; i < 3; i++) {
        bed_timer timer;
        float sums[2];
        char shape[32];
        for (int c = 0; c < PH_STRIP_LD; c++) left[c] = bed_between(-1, 0);
        BED_TIME(&timer, t->power_sums(PH_STRIP_LD, left, 0.1f, powers[i], sums));
        snprintf(shape, sizeof shape, "128, a %g", (double)powers[i]);
        bed_report("power_sums", t, shape, &timer, 0, 4.0 * PH_STRIP_LD);
    }
}

/* u^a against double, u = 1 + t: rounding t costs a/u ulp of it, the method a few. */
static void check_power(float got, double t, double a, const char *what)
{
    double u = 1 + t, want = u > 0 ? pow(u, a) : 0;
    double lost = u > 0 ? a * (fabs(t) / u + fabs(log2(u))) : 0;
    double bound = want * (3e-7 * (2 + lost)) + (u < 1e-6 ? pow(2e-7, a) : 0) + 1e-37;
    if (fabs(got - want) > bound)
        bed_fail("%s of t = %g, a = %g is %g, expected %g", what, t, a, (double)got,
                 want);
}

static void entmax_at(const ph_kernels *t, int n, float a)
{
    float scale = (float)(log(2.0) / a), row_max;
    fill_scores(left, n, &row_max);
    float base = row_max + bed_between(0, 0.9f) / scale * (a > 50 ? 0.05f : 1);
    memcpy(expected, left, sizeof left);
    float *s = bed_copy(0, left, n, side()), *derivative = bed_floats(1, n, side());
    float *alone = bed_copy(2, left, n, side());
    REF.entmax(n, expected, result, scale, base, a);
    t->entmax(n, s, derivative, scale, base, a);
    t->entmax(n, alone, NULL, scale, base, a);
    bed_same("p", s, expected, n);
    bed_same("p without derivative", alone, expected, n);
    bed_same("derivative", derivative, result, n);
    for (int slot = 0; slot < 3; slot++) bed_intact(slot);
    for (int c = 0; c < n; c++) {
        double x = ((double)left[c] - base) * scale;
        if (isinf(left[c])) x = -2;
        check_power(s[c], x, a, "p");
        if (a > 1) check_power(derivative[c], x, a - 1, "derivative");
    }
}

void check_entmax(const ph_kernels *t)
{
    for (int round = 0; round < 20 * POWERS; round++)
        for (int n = 16; n <= MOST; n += 16) {
            bed_say("%s entmax n=%d a=%g", t->name, n, (double)powers[round % POWERS]);
            entmax_at(t, n, powers[round % POWERS]);
        }
}

void bench_entmax(const ph_kernels *t)
{
    for (int i = 1; i < 3; i++) {
        bed_timer timer;
        char shape[32];
        for (int c = 0; c < PH_STRIP_LD; c++) left[c] = bed_between(-1, 0);
        BED_TIME(&timer, t->entmax(PH_STRIP_LD, left, NULL, 0.35f, 0.4f, powers[i]));
        snprintf(shape, sizeof shape, "128, a %g", (double)powers[i]);
        bed_report("entmax", t, shape, &timer, 0, 8.0 * PH_STRIP_LD);
    }
}
