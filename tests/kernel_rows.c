/*
 * kernel_rows.c - checks and benches of the kernels that work on rows of scores: softmax,
 * gradient, weights, logs, row_lane_max, add_bias, add_alibi, softcap, hide, dropout.
 *
 * Rows whose length need not be a multiple of 16 have padding up to there, unless the
 * contract says that nothing behind n is touched (add_bias, hide); what a kernel leaves
 * in that padding is unspecified.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel_bed.h"

#define REF ph_kernels_ref

enum { ROWS = PH_MR_MAX, LD = PH_STRIP_LD, STRIP = ROWS * LD, MOST = 144 };

/* aligned as the library's own strips are */
static _Alignas(PH_ALIGN) float scores[STRIP], grads[STRIP], factors[STRIP],
    derivatives[STRIP];
static float s_expected[STRIP], dp_expected[STRIP];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* Scores in base 2, some hidden; or with one special value; all hidden; special values
   in many places; both zeros, which are equal and yet different bits. */
enum { USUAL, NON_FINITE, EMPTY, WILD, ZEROS, ROW_KINDS };

static void fill_row(float *s, int n, int kind)
{
    float width = bed_below(4) ? 20 : 150;
    for (int c = 0; c < n; c++) {
        s[c] = bed_between(-width, width);
        if (kind == EMPTY || !bed_below(6)) s[c] = -INFINITY;
        if (kind == WILD && !bed_below(8)) s[c] = bed_special();
        if (kind == ZEROS) s[c] = bed_below(2) ? 0.0f : -0.0f;
    }
    if (kind == NON_FINITE) s[bed_below(n)] = bed_special();
}

static int has_nan(const float *s, int n)
{
    int found = 0;
    for (int c = 0; c < n; c++) found |= isnan(s[c]);
    return found;
}

/* What scores are measured from, as exp2 wants it: not below any of them. */
static float base_of(const float *s, int n, float above)
{
    float most = -100;
    for (int c = 0; c < n; c++) most = fmaxf(most, s[c]);
    return has_nan(s, n) ? NAN : most + above;
}

/* m rows of a strip as a kernel may see them: no padding behind the last column */
static float *place_strip(int slot, const float *from, int m, int n)
{
    float *to = bed_floats(slot, (m - 1) * LD + n, side());
    for (int i = 0; i < m; i++)
        memcpy(to + i * LD, from + i * LD, (size_t)n * sizeof *to);
    return to;
}

/* ---- clip, lane_sums --------------------------------------------------------------- */

static void clip_at(const ph_kernels *t, int m, int n)
{
    float peaks[ROWS * PH_LANES];
    int lows[ROWS], highs[ROWS];
    for (int i = 0; i < m; i++) {
        lows[i] = bed_below(n + 1);
        highs[i] = lows[i] + bed_below(n - lows[i] + 1);
    }
    memcpy(s_expected, scores, sizeof scores);
    float *s = place_strip(0, scores, m, n),
          *lane_max = bed_floats(1, m * PH_LANES, side());
    REF.clip(m, n, s_expected, lows, highs, peaks);
    t->clip(m, n, s, lows, highs, lane_max);
    bed_same("lane_max", lane_max, peaks, m * PH_LANES);
    bed_same_rows("s", s, LD, s_expected, LD, m, n, n);
    bed_intact(0), bed_intact(1);
}

void check_clip(const ph_kernels *t)
{
    for (int round = 0; round < 24; round++)
        for (int m = 1; m <= t->mr; m++)
            for (int n = 16; n <= LD; n += 16) {
                int kind = round % ROW_KINDS;
                bed_say("%s clip m=%d n=%d kind %d", t->name, m, n, kind);
                for (int i = 0; i < m; i++) fill_row(scores + i * LD, n, kind);
                clip_at(t, m, n);
            }
}

void bench_clip(const ph_kernels *t)
{
    bed_timer timer;
    int lows[ROWS] = {0}, highs[ROWS];
    float peaks[ROWS * PH_LANES];
    for (int i = 0; i < ROWS; i++) highs[i] = 100, fill_row(scores + i * LD, LD, USUAL);
    BED_TIME(&timer, t->clip(t->mr, LD, scores, lows, highs, peaks));
    bed_report("clip", t, "mr x 128", &timer, 0, 8.0 * t->mr * LD);
}

void check_lane_sums(const ph_kernels *t)
{
    for (int round = 0; round < 80; round++)
        for (int m = 1; m <= 40; m++) {
            float total[40];
            bed_say("%s lane_sums m=%d", t->name, m);
            bed_fill(scores, m * PH_LANES, round % BED_KINDS);
            const float *lanes = bed_copy(0, scores, m * PH_LANES, side());
            float *got = bed_floats(1, m, side());
            REF.lane_sums(m, scores, total);
            t->lane_sums(m, lanes, got);
            bed_same("total", got, total, m);
            bed_intact(1);
        }
}

void bench_lane_sums(const ph_kernels *t)
{
    bed_timer timer;
    float total[PH_LANES];
    bed_fill(scores, PH_LANES * PH_LANES, BED_NORMAL);
    BED_TIME(&timer, t->lane_sums(PH_LANES, scores, total));
    bed_report("lane_sums", t, "16 x 16", &timer, 15.0 * PH_LANES, 0);
}

/* ---- softmax ----------------------------------------------------------------------- */

static void softmax_at(const ph_kernels *t, int m, int n)
{
    float peaks[ROWS * PH_LANES], sums[ROWS * PH_LANES], row_max_expected[ROWS],
        alphas[ROWS];
    memcpy(s_expected, scores, sizeof scores);
    for (int i = 0; i < m; i++) {
        REF.row_lane_max(n, scores + i * LD, peaks + i * PH_LANES);
        row_max_expected[i] = bed_below(3) ? bed_between(-30, 30) : -INFINITY;
        for (int l = 0; l < PH_LANES; l++)
            sums[i * PH_LANES + l] =
                row_max_expected[i] == -INFINITY ? 0 : bed_between(0, 9);
    }
    const float *lane_max = bed_copy(1, peaks, m * PH_LANES, side());
    float *s = place_strip(0, scores, m, n),
          *row_max = bed_copy(2, row_max_expected, m, side());
    float *sum = bed_copy(3, sums, m * PH_LANES, side()),
          *rescale = bed_floats(4, m, side());
    for (int i = 0; i < m; i++)
        REF.softmax(1, n, s_expected + i * LD, peaks + i * PH_LANES, row_max_expected + i,
                    sums + i * PH_LANES, alphas + i);
    t->softmax(m, n, s, lane_max, row_max, sum, rescale);
    for (int slot = 0; slot <= 4; slot++) bed_intact(slot);
    for (int i = 0; i < m; i++) {
        if (has_nan(scores + i * LD,
                    n)) { /* a lost row: NaN shows, other bits are free */
            memcpy(s + i * LD, s_expected + i * LD, (size_t)n * sizeof *s);
            if (!has_nan(sum + i * PH_LANES, PH_LANES))
                bed_fail("row %d lost its NaN", i);
            continue;
        }
        bed_same("row_max", &row_max[i], &row_max_expected[i], 1);
        bed_same("rescale", &rescale[i], &alphas[i], 1);
        bed_same("sum", sum + i * PH_LANES, sums + i * PH_LANES, PH_LANES);
    }
    bed_same_rows("s", s, LD, s_expected, LD, m, n, n);
}

void check_softmax(const ph_kernels *t)
{
    for (int round = 0; round < 24; round++)
        for (int m = 1; m <= t->mr; m++)
            for (int n = 16; n <= LD; n += 16) {
                int kind = round % 2 ? bed_below(ROW_KINDS) : USUAL;
                bed_say("%s softmax m=%d n=%d kind %d", t->name, m, n, kind);
                for (int i = 0; i < m; i++) fill_row(scores + i * LD, n, kind);
                softmax_at(t, m, n);
            }
}

void bench_softmax(const ph_kernels *t)
{
    float lane_max[ROWS * PH_LANES], sum[ROWS * PH_LANES] = {0}, row_max[ROWS],
                                                rescale[ROWS];
    char shape[40];
    bed_timer timer;
    for (int i = 0; i < STRIP; i++) scores[i] = bed_between(-8, 0);
    for (int i = 0; i < ROWS * PH_LANES; i++) lane_max[i] = 0;
    for (int i = 0; i < ROWS; i++) row_max[i] = 0;
    BED_TIME(&timer, t->softmax(t->mr, LD, scores, lane_max, row_max, sum, rescale));
    snprintf(shape, sizeof shape, "%d x %d", t->mr, LD);
    bed_report("softmax", t, shape, &timer, 0, 8.0 * t->mr * LD);
}

/* ---- gradient ---------------------------------------------------------------------- */

static void gradient_at(const ph_kernels *t, int m, int n, int capped, int dropped)
{
    float lses[ROWS], deltas[ROWS];
    for (int i = 0; i < m; i++) {
        lses[i] = base_of(scores + i * LD, n, bed_between(0, 40));
        deltas[i] = bed_between(-3, 3);
    }
    memcpy(s_expected, scores, sizeof scores);
    memcpy(dp_expected, grads, sizeof grads);
    for (int i = 0; i < m; i++)
        REF.gradient(1, n, s_expected + i * LD, dp_expected + i * LD,
                     dropped ? factors + i * LD : NULL,
                     capped ? derivatives + i * LD : NULL, lses + i, deltas + i);
    const float *lse = bed_copy(1, lses, m, side()),
                *delta = bed_copy(2, deltas, m, side());
    const float *drop = dropped ? place_strip(3, factors, m, n) : NULL;
    const float *derivative = capped ? place_strip(5, derivatives, m, n) : NULL;
    float *s = place_strip(0, scores, m, n), *dp = place_strip(4, grads, m, n);
    t->gradient(m, n, s, dp, drop, derivative, lse, delta);
    bed_same_rows("s", s, LD, s_expected, LD, m, n, n);
    bed_same_rows("dp", dp, LD, dp_expected, LD, m, n, n);
    bed_intact(0);
    bed_intact(4);
}

void check_gradient(const ph_kernels *t)
{
    for (int round = 0; round < 24; round++)
        for (int m = 1; m <= t->mr; m++)
            for (int n = 16; n <= LD; n += 16) {
                int kind = round / 4 % 2 ? bed_below(ROW_KINDS) : USUAL;
                bed_say("%s gradient m=%d n=%d kind %d derivative %d drop %d", t->name, m,
                        n, kind, round % 2, round / 2 % 2);
                for (int i = 0; i < m; i++) fill_row(scores + i * LD, n, kind);
                for (int i = 0; i < STRIP; i++) {
                    grads[i] = bed_between(-4, 4);
                    factors[i] = bed_below(4) ? 1.25f : 0;
                    derivatives[i] = bed_between(0, 1);
                    if (scores[i] == -INFINITY && bed_below(2))
                        grads[i] = bed_special(), derivatives[i] = bed_special();
                }
                gradient_at(t, m, n, round % 2, round / 2 % 2);
            }
}

void bench_gradient(const ph_kernels *t)
{
    for (int which = 0; which < 4; which++) {
        float lse[ROWS], delta[ROWS];
        const float *derivative = which & 1 ? derivatives : NULL,
                    *drop = which & 2 ? factors : NULL;
        char shape[40];
        bed_timer timer;
        for (int i = 0; i < STRIP; i++) {
            scores[i] = bed_between(-8, 0);
            grads[i] = bed_between(-1, 1);
            factors[i] = 1.25f, derivatives[i] = 0.75f;
        }
        for (int i = 0; i < ROWS; i++) lse[i] = delta[i] = 1;
        BED_TIME(&timer,
                 t->gradient(t->mr, LD, scores, grads, drop, derivative, lse, delta));
        snprintf(shape, sizeof shape, "%d x %d%s%s", t->mr, LD,
                 derivative ? " derivative" : "", drop ? " drop" : "");
        bed_report("gradient", t, shape, &timer, 0,
                   (16.0 + (drop ? 4 : 0) + (derivative ? 4 : 0)) * t->mr * LD);
    }
}

/* ---- one row ----------------------------------------------------------------------- */

/* The row kernels that change s in place and take little else, as one shape. */
typedef void row_step(const ph_kernels *t, int n, float *s, const float *extra, float a);

static void do_weights(const ph_kernels *t, int n, float *s, const float *extra, float a)
{
    (void)extra;
    t->weights(n, s, a);
}

static void do_bias(const ph_kernels *t, int n, float *s, const float *extra, float a)
{
    t->add_bias(n, s, extra, a);
}

/* Peaks of a row are those of what a kernel leaves. */
static void check_peak(int n, const float *s, const float *lane_max)
{
    float found[PH_LANES];
    if (n % PH_LANES) return;
    REF.row_lane_max(n, s, found);
    bed_same("lane_max", lane_max, found, PH_LANES);
}

/* distances are whole numbers; `a` gives the slope and, rounded, the first distance */
static void do_alibi(const ph_kernels *t, int n, float *s, const float *extra, float a)
{
    float lane_max[PH_LANES], slope = a / 64, first = rintf(a * 1000);
    (void)extra;
    t->add_alibi(1, n, s, &slope, &first, lane_max);
    check_peak(n, s, lane_max);
}

static void do_softcap(const ph_kernels *t, int n, float *s, const float *extra, float a)
{
    float lane_max[PH_LANES];
    (void)extra;
    t->softcap(1, n, s, fabsf(a) + 1, lane_max, NULL);
    check_peak(n, s, lane_max);
}

static void check_row(const ph_kernels *t, const char *name, row_step *step, int exact,
                      int with_extra)
{
    for (int round = 0; round < 32; round++)
        for (int n = 1; n <= MOST; n++) {
            int kind = round % 2 ? bed_below(ROW_KINDS) : USUAL;
            int capacity = exact ? n : ph_round_up(n, PH_LANES);
            float a = bed_between(-40, 40), *extra = NULL;
            bed_say("%s %s n=%d kind %d a=%g", t->name, name, n, kind, (double)a);
            fill_row(scores, MOST, kind);
            if (step == do_weights) a = base_of(scores, MOST, fabsf(a));
            if (with_extra) {
                extra = bed_floats(1, n, side());
                fill_row(extra, n, round / 2 % 2 ? kind : USUAL);
            }
            memcpy(s_expected, scores, MOST * sizeof(float));
            step(&REF, n, s_expected, extra, a);
            float *s = bed_copy(0, scores, capacity, side());
            step(t, n, s, extra, a);
            bed_same("s", s, s_expected, n);
            bed_intact(0);
        }
}

void check_weights(const ph_kernels *t)
{
    check_row(t, "weights", do_weights, 0, 0);
}
void check_add_bias(const ph_kernels *t)
{
    check_row(t, "add_bias", do_bias, 1, 1);
}

/* A strip gives what its rows give one by one. */
static void check_strip_of(const ph_kernels *t, int alibi)
{
    float slope[ROWS], first[ROWS], lane_max[ROWS * PH_LANES], one[ROWS * PH_LANES];
    for (int m = 1; m <= t->mr; m++)
        for (int n = PH_LANES; n <= LD; n += PH_LANES) {
            for (int i = 0; i < m; i++)
                fill_row(scores + i * LD, n, bed_below(ROW_KINDS));
            for (int i = 0; i < m; i++)
                slope[i] = bed_between(-1, 1), first[i] = rintf(bed_between(-4e4f, 4e4f));
            memcpy(s_expected, scores, sizeof(float) * STRIP);
            bed_say("%s strip m=%d n=%d alibi %d", t->name, m, n, alibi);
            for (int i = 0; i < m; i++)
                if (alibi)
                    REF.add_alibi(1, n, s_expected + i * LD, &slope[i], &first[i],
                                  one + i * PH_LANES);
                else
                    REF.softcap(1, n, s_expected + i * LD, 30, one + i * PH_LANES,
                                dp_expected + i * LD);
            if (alibi)
                t->add_alibi(m, n, scores, slope, first, lane_max);
            else
                t->softcap(m, n, scores, 30, lane_max, derivatives);
            for (int i = 0; i < m; i++) {
                bed_same("s", scores + i * LD, s_expected + i * LD, n);
                if (!alibi)
                    bed_same("derivative", derivatives + i * LD, dp_expected + i * LD, n);
            }
            bed_same("lane_max", lane_max, one, m * PH_LANES);
        }
}

void check_add_alibi(const ph_kernels *t)
{
    check_row(t, "add_alibi", do_alibi, 0, 0);
    check_strip_of(t, 1);
}
void check_softcap(const ph_kernels *t)
{
    check_row(t, "softcap", do_softcap, 0, 0);
    check_strip_of(t, 0);
}

static void bench_row(const ph_kernels *t, const char *name, row_step *step, double bytes)
{
    bed_timer timer;
    for (int i = 0; i < LD; i++) {
        scores[i] = bed_between(-8, 0);
        factors[i] = bed_between(-1, 1);
    }
    BED_TIME(&timer, step(t, LD, scores, factors, 0.5f));
    bed_report(name, t, "128", &timer, 0, bytes * LD);
}

/* Positive normal numbers, all exponents; and their true logarithms. */
void check_logs(const ph_kernels *t)
{
    for (int round = 0; round < 400; round++) {
        int n = 16 * (1 + bed_below(8));
        float from[PH_STRIP_LD], want[PH_STRIP_LD];
        for (int c = 0; c < n; c++) {
            float m = bed_between(1, 2);
            from[c] = want[c] = ldexpf(m < 2 ? m : 1, round ? bed_below(254) - 126 : 0);
        }
        bed_say("%s logs n=%d", t->name, n);
        float *x = bed_copy(0, from, n, bed_below(2) ? BED_START : BED_END);
        ph_kernels_ref.logs(n, want);
        t->logs(n, x);
        bed_same("x", x, want, n);
        bed_intact(0);
        for (int c = 0; c < n; c++)
            if (fabs(x[c] - log(from[c])) > 0x1p-23 * (fabs(log(from[c])) + 0x1p-20))
                bed_fail("log of %.9g is %.9g", (double)from[c], (double)x[c]);
    }
}

void bench_logs(const ph_kernels *t)
{
    bed_timer timer;
    float x[PH_STRIP_LD];
    for (int c = 0; c < PH_STRIP_LD; c++) x[c] = 2.5f;
    BED_TIME(&timer, t->logs(PH_STRIP_LD, x)); /* time does not depend on x */
    bed_report("logs", t, "128", &timer, 0, 4.0 * PH_STRIP_LD);
}

void bench_weights(const ph_kernels *t)
{
    bench_row(t, "weights", do_weights, 8);
}
void bench_add_bias(const ph_kernels *t)
{
    bench_row(t, "add_bias", do_bias, 12);
}
void bench_add_alibi(const ph_kernels *t)
{
    bench_row(t, "add_alibi", do_alibi, 8);
}
void bench_softcap(const ph_kernels *t)
{
    bench_row(t, "softcap", do_softcap, 8);
}

void check_row_lane_max(const ph_kernels *t)
{
    for (int round = 0; round < 64; round++)
        for (int n = 16; n <= MOST; n += 16) {
            float peaks[PH_LANES];
            int kind = round % 2 ? bed_below(ROW_KINDS) : USUAL;
            bed_say("%s row_lane_max n=%d kind %d", t->name, n, kind);
            fill_row(scores, n, kind);
            const float *s = bed_copy(0, scores, n, side());
            float *lane_max = bed_floats(1, PH_LANES, side());
            REF.row_lane_max(n, scores, peaks);
            t->row_lane_max(n, s, lane_max);
            bed_same("lane_max", lane_max, peaks, PH_LANES);
            bed_intact(1);
        }
}

void bench_row_lane_max(const ph_kernels *t)
{
    bed_timer timer;
    float lane_max[PH_LANES];
    bed_fill(scores, LD, BED_NORMAL);
    BED_TIME(&timer, t->row_lane_max(LD, scores, lane_max));
    bed_report("row_lane_max", t, "128", &timer, 0, 4.0 * LD);
}

/* ---- hide -------------------------------------------------------------------------- */

void check_hide(const ph_kernels *t)
{
    for (int round = 0; round < 32; round++)
        for (int n = 1; n <= MOST; n++) {
            uint8_t *visible = bed_place(1, (size_t)n, side());
            for (int c = 0; c < n; c++)
                visible[c] = (uint8_t)(bed_below(2) ? 1 << bed_below(8) : 0);
            bed_say("%s hide n=%d", t->name, n);
            fill_row(scores, n, bed_below(ROW_KINDS));
            memcpy(s_expected, scores, (size_t)n * sizeof(float));
            REF.hide(n, s_expected, visible);
            float *s = bed_copy(0, scores, n, side());
            t->hide(n, s, visible);
            bed_same("s", s, s_expected, n);
            bed_intact(0);
        }
}

void bench_hide(const ph_kernels *t)
{
    bed_timer timer;
    uint8_t visible[LD];
    for (int i = 0; i < LD; i++) visible[i] = (uint8_t)bed_below(2);
    BED_TIME(&timer, t->hide(LD, scores, visible));
    bed_report("hide", t, "128", &timer, 0, 9.0 * LD);
}

/* ---- dropout ----------------------------------------------------------------------- */

void check_dropout(const ph_kernels *t)
{
    static const uint32_t limits[] = {0, 1, 0x7fffffffu, 0x80000000u, 0xffffffffu};
    for (int round = 0; round < 32; round++)
        for (int n = 1; n <= MOST; n++) {
            uint64_t key = bed_random();
            uint32_t first = (uint32_t)bed_random(), limit = (uint32_t)bed_random();
            float keep = bed_between(1, 3);
            if (round % 4 == 0)
                first = 0u - (uint32_t)bed_below(n); /* counts over 2^32 */
            if (round % 4 == 1) limit = limits[bed_below(5)];
            bed_say("%s dropout n=%d key=%llx first=%x limit=%x", t->name, n,
                    (unsigned long long)key, (unsigned)first, (unsigned)limit);
            REF.dropout(n, s_expected, key, first, limit, keep);
            float *f = bed_floats(0, ph_round_up(n, PH_LANES), side());
            t->dropout(n, f, key, first, limit, keep);
            bed_same("f", f, s_expected, n);
            bed_intact(0);
        }
}

void bench_dropout(const ph_kernels *t)
{
    bed_timer timer;
    BED_TIME(&timer, t->dropout(LD, factors, 0x123456789abcdefu, 5, 0x40000000u, 1.25f));
    bed_report("dropout", t, "128", &timer, 0, 4.0 * LD);
}
