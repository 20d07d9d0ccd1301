/*
 * kernel_packs.c - checks and benches of packing and conversion: pack_panel,
 * pack_row_major, load_row, pack_panels, store_row, finite; and of scores_in_place, which
 * saves packing.
 *
 * Rows are given by pointers, so each row of a check lies in a slot of its own, against a
 * guard page. test_kernels.c checks the conversions themselves over all values.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernel_bed.h"

#define REF ph_kernels_ref

enum { MOST = 288, K_MOST = 76, ROWS = PH_NR_MAX, FIRST_ROW = 16 };

static const ph_dtype types[] = {PH_F32,  PH_F16,  PH_BF16, PH_Q8_0, PH_Q4_0,
                                 PH_Q4_1, PH_Q4_K, PH_Q5_K, PH_Q6_K};
static const char *const type_names[] = {"f32",  "f16",  "bf16", "Q8_0", "Q4_0",
                                         "Q4_1", "Q4_K", "Q5_K", "Q6_K"};
static const float scales[] = {1.0f, 0.125f, -0.3f, 3e38f, 0.0f};
enum { TYPES = 3, ALL_TYPES = 9, SCALES = sizeof scales / sizeof scales[0] };

static float expected[ROWS * MOST + PH_PACK_SLACK];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* The shortest part of a row that kernels read, and the next one: K types have steps that
   end in every sub-block. */
static int first_length(int type)
{
    return type < TYPES ? 1 : PH_LANES;
}

static int next_length(int type, int n)
{
    return n + (ph_dtype_is_k(types[type]) ? 5 * PH_LANES : first_length(type));
}

static int last_length(int type, int n)
{
    return ph_dtype_is_k(types[type]) ? PH_K_BLOCK + PH_LANES : n;
}

/* ---- pack_panel ------------------------------------------------------------------- */

static void panel_at(const ph_kernels *t, const void *const *rows, int ld, int count,
                     int k, ph_dtype type, float scale)
{
    bed_say("%s pack_panel ld=%d count=%d k=%d %s scale %g", t->name, ld, count, k,
            type_names[type], (double)scale);
    float *dst = bed_floats(0, (int64_t)k * ld + PH_PACK_SLACK, side());
    REF.pack_panel(expected, ld, rows, count, k, type, scale);
    t->pack_panel(dst, ld, rows, count, k, type, scale);
    bed_same("dst", dst, expected, (int64_t)k * ld);
    bed_intact(0);
}

void check_pack_panel(const ph_kernels *t)
{
    const int lds[] = {t->mr, t->nr, 16, 8, 12, 20, 32};
    for (int type = 0; type < ALL_TYPES; type++)
        for (int k = first_length(type); k <= last_length(type, K_MOST);
             k = next_length(type, k)) {
            const void *rows[ROWS];
            for (int i = 0; i < ROWS; i++)
                rows[i] = bed_elements(FIRST_ROW + i, k, types[type], BED_MIXED);
            /* every count with the two widths in use, some with others */
            for (int which = 0; which < 2; which++)
                for (int count = 1; count <= lds[which]; count++)
                    panel_at(t, rows, lds[which], count, k, types[type],
                             scales[(count + k) % SCALES]);
            for (size_t i = 2; i < sizeof lds / sizeof lds[0]; i++)
                panel_at(t, rows, lds[i], 1 + bed_below(lds[i]), k, types[type], 1.0f);
        }
}

void bench_pack_panel(const ph_kernels *t)
{
    static float dst[ROWS * 128 + PH_PACK_SLACK];
    for (int type = 0; type < TYPES; type++) {
        const void *rows[ROWS];
        char shape[40];
        bed_timer timer;
        for (int i = 0; i < ROWS; i++)
            rows[i] = bed_elements(FIRST_ROW + i, 64, types[type], BED_EVEN);
        BED_TIME(&timer, t->pack_panel(dst, t->nr, rows, t->nr, 64, types[type], 0.5f));
        snprintf(shape, sizeof shape, "%d x 64 %s", t->nr, type_names[type]);
        bed_report("pack_panel", t, shape, &timer, 0,
                   64.0 * t->nr * (4 + (double)ph_dtype_size(types[type])));
    }
}

/* ---- pack_row_major, load_row ------------------------------------------------------ */

void check_pack_row_major(const ph_kernels *t)
{
    for (int type = 0; type < TYPES; type++)
        for (int n = 1; n <= 130; n++)
            for (int count = 1; count <= 4; count++) {
                int padded = ph_round_up(n, PH_LANES), ld = padded + bed_below(2) * 16;
                float scale = scales[(count + n) % SCALES];
                const void *rows[4];
                bed_say("%s pack_row_major n=%d rows=%d ld=%d %s scale %g", t->name, n,
                        count, ld, type_names[type], (double)scale);
                for (int i = 0; i < count; i++)
                    rows[i] = bed_elements(FIRST_ROW + i, n, types[type], BED_MIXED);
                float *dst = bed_floats(0, (count - 1) * ld + padded, side());
                REF.pack_row_major(expected, ld, rows, count, n, types[type], scale);
                t->pack_row_major(dst, ld, rows, count, n, types[type], scale);
                bed_same_rows("dst", dst, ld, expected, ld, count, padded, padded);
                bed_intact(0);
            }
}

void check_load_row(const ph_kernels *t)
{
    for (int type = 0; type < ALL_TYPES; type++)
        for (int n = first_length(type); n <= last_length(type, 130);
             n = next_length(type, n))
            for (int s = 0; s < SCALES; s++) {
                int padded = ph_round_up(n, PH_LANES), at = bed_below(30);
                at *= first_length(type);
                bed_say("%s load_row at=%d n=%d %s scale %g", t->name, at, n,
                        type_names[type], (double)scales[s]);
                const void *src = bed_elements(FIRST_ROW, at + n, types[type], BED_MIXED);
                float *dst = bed_floats(0, padded, side());
                REF.load_row(expected, src, at, n, types[type], scales[s]);
                t->load_row(dst, src, at, n, types[type], scales[s]);
                bed_same("dst", dst, expected, padded);
                bed_intact(0);
            }
}

void bench_pack_row_major(const ph_kernels *t)
{
    static float dst[4 * MOST];
    for (int type = 0; type < TYPES; type++) {
        const void *rows[4];
        char shape[40];
        bed_timer timer;
        for (int i = 0; i < 4; i++)
            rows[i] = bed_elements(FIRST_ROW + i, 128, types[type], BED_EVEN);
        BED_TIME(&timer, t->pack_row_major(dst, 128, rows, 4, 128, types[type], 0.5f));
        snprintf(shape, sizeof shape, "4 x 128 %s", type_names[type]);
        bed_report("pack_row_major", t, shape, &timer, 0,
                   4 * 128.0 * (4 + (double)ph_dtype_size(types[type])));
    }
}

void bench_load_row(const ph_kernels *t)
{
    static float dst[MOST];
    for (int type = 0; type < TYPES; type++) {
        char shape[40];
        bed_timer timer;
        const void *src = bed_elements(FIRST_ROW, 128, types[type], BED_EVEN);
        BED_TIME(&timer, t->load_row(dst, src, 0, 128, types[type], 0.5f));
        snprintf(shape, sizeof shape, "128 %s", type_names[type]);
        bed_report("load_row", t, shape, &timer, 0,
                   128.0 * (4 + (double)ph_dtype_size(types[type])));
    }
}

/* ---- scores_in_place --------------------------------------------------------------- */

static void scores_in_place_at(const ph_kernels *t, int m, int n, int k, ph_dtype type)
{
    int lda = k + bed_below(2) * 5, ldb = k + bed_below(3), cols = ph_round_up(n, 16);
    int data = bed_below(4) ? BED_CALM : BED_MIXED;
    float wanted[PH_MR_MAX * PH_STRIP_LD], highest[PH_MR_MAX * PH_LANES];
    bed_say("%s scores_in_place m=%d n=%d k=%d ldb=%d %s", t->name, m, n, k, ldb,
            type_names[type]);
    const float *a = bed_elements(0, (m - 1) * lda + k, PH_F32, data);
    const void *b = bed_elements(1, (n - 1) * ldb + k, type, data);
    for (int i = 0; i < m * PH_LANES; i++) highest[i] = bed_below(2) ? -INFINITY : 0.5f;
    float *s = bed_floats(2, (m - 1) * PH_STRIP_LD + cols, side());
    float *lane_max = bed_copy(3, highest, m * PH_LANES, side());
    int next_keys = bed_below(2) ? ph_min(n, 16) : 0;
    t->scores_in_place(m, n, k, a, lda, b, ldb, type, next_keys ? b : NULL, next_keys, s,
                       lane_max);
    REF.scores_in_place(m, n, k, a, lda, b, ldb, type, NULL, 0, wanted, highest);
    bed_same_rows("s", s, PH_STRIP_LD, wanted, PH_STRIP_LD, m, cols, cols);
    bed_same("lane_max", lane_max, highest, m * PH_LANES);
    bed_intact(2);
    bed_intact(3);
}

void check_scores_in_place(const ph_kernels *t)
{
    for (int type = 0; type < TYPES; type++)
        for (int k = 1; k <= K_MOST; k += EVERY) {
            for (int m = 1; m <= t->mr; m++)
                scores_in_place_at(t, m, 1 + bed_below(48), k, types[type]);
            scores_in_place_at(t, 1 + bed_below(t->mr), 16 * (1 + k % 8), k, types[type]);
        }
}

void bench_scores_in_place(const ph_kernels *t)
{
    for (int type = 0; type < TYPES; type++)
        for (int m = 1; m <= 4; m += 3) {
            char shape[40];
            bed_timer timer;
            const float *a = bed_elements(0, m * 64, PH_F32, BED_EVEN);
            const void *b = bed_elements(1, PH_STRIP_LD * 64, types[type], BED_EVEN);
            float *s = bed_floats(2, m * PH_STRIP_LD, BED_START);
            float *lane_max = bed_floats(3, m * PH_LANES, BED_START);
            BED_TIME(&timer, t->scores_in_place(m, PH_STRIP_LD, 64, a, 64, b, 64,
                                                types[type], NULL, 0, s, lane_max));
            snprintf(shape, sizeof shape, "%d x 128, k 64 %s", m, type_names[type]);
            bed_report("scores_in_place", t, shape, &timer, 2.0 * m * PH_STRIP_LD * 64,
                       PH_STRIP_LD * 64.0 * (double)ph_dtype_size(types[type]));
        }
}

/* ---- pack_panels ------------------------------------------------------------------- */

/* The last panel is filled up; gaps between panels and all behind them are left alone. */
static void panels_at(const ph_kernels *t, int width, int k, int n, ph_dtype type)
{
    int unit = ph_quant_block(type);
    int stride = n + bed_below(3) * unit, gap = bed_below(3);
    int panels = ph_div_up(n, width);
    int64_t panel = (int64_t)k * width + gap;
    bed_say("%s pack_panels width=%d k=%d n=%d stride=%d panel=%d %s", t->name, width, k,
            n, stride, (int)panel, type_names[type]);
    const void *src = bed_elements(FIRST_ROW, (k - 1) * stride + n, type, BED_MIXED);
    float *dst = bed_floats(0, (panels - 1) * panel + k * width, side());
    REF.pack_panels(expected, width, panel, src, stride, k, n, type);
    t->pack_panels(dst, width, panel, src, stride, k, n, type);
    bed_same_rows("panel", dst, panel, expected, panel, panels, k * width, k * width);
    bed_intact(0);
}

void check_pack_panels(const ph_kernels *t)
{
    for (int type = 0; type < TYPES; type++)
        for (int n = 1; n <= 100; n++)
            for (int k = 1 + n % 3; k <= 33; k += k < 6 ? 1 : 9) {
                panels_at(t, t->mr, k, n, types[type]);
                panels_at(t, t->nr, k, n, types[type]);
            }
    for (int type = TYPES; type < ALL_TYPES; type++)
        for (int k = 1; k <= 33; k++)
            panels_at(t, t->nr, k,
                      ph_round_up(1 + bed_below(256), ph_quant_block(types[type])),
                      types[type]);
}

void bench_pack_panels(const ph_kernels *t)
{
    static float dst[64 * (128 + PH_NR_MAX) + PH_PACK_SLACK];
    for (int type = 0; type < TYPES; type++) {
        const int widths[2] = {t->nr, t->mr};
        for (int w = 0; w < 2; w++) {
            char shape[40];
            bed_timer timer;
            const void *src = bed_elements(FIRST_ROW, 64 * 128, types[type], BED_EVEN);
            BED_TIME(&timer, t->pack_panels(dst, widths[w], 64 * widths[w], src, 128, 64,
                                            128, types[type]));
            snprintf(shape, sizeof shape, "64 x 128 to %d %s", widths[w],
                     type_names[type]);
            bed_report("pack_panels", t, shape, &timer, 0,
                       64 * 128.0 * (4 + (double)ph_dtype_size(types[type])));
        }
    }
}

/* ---- store_row --------------------------------------------------------------------- */

void check_store_row(const ph_kernels *t)
{
    static float widened[MOST]; /* compared as f32, which tells all halves apart */
    static const float factors[] = {1.0f, 0.3f, -2.0f, 0x1p-20f, 0.0f, 0x1p-149f};
    for (int type = 0; type < TYPES; type++)
        for (int n = 1; n <= 130; n++)
            for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
                size_t bytes = (size_t)n * ph_dtype_size(types[type]);
                bed_say("%s store_row n=%d %s scale %g", t->name, n, type_names[type],
                        (double)factors[f]);
                const float *src = bed_elements(FIRST_ROW, n, PH_F32, BED_MIXED);
                void *want = bed_place(1, bytes, BED_END);
                void *got = bed_place(0, bytes, side());
                REF.store_row(want, src, n, types[type], factors[f]);
                t->store_row(got, src, n, types[type], factors[f]);
                REF.load_row(widened, got, 0, n, types[type], 1.0f);
                REF.load_row(expected, want, 0, n, types[type], 1.0f);
                bed_same("dst", widened, expected, n);
                bed_intact(0);
            }
}

void bench_store_row(const ph_kernels *t)
{
    for (int type = 0; type < TYPES; type++) {
        char shape[40];
        bed_timer timer;
        const float *src = bed_elements(FIRST_ROW, 128, PH_F32, BED_EVEN);
        static float dst[128];
        BED_TIME(&timer, t->store_row(dst, src, 128, types[type], 0.5f));
        snprintf(shape, sizeof shape, "128 %s", type_names[type]);
        bed_report("store_row", t, shape, &timer, 0,
                   128.0 * (4 + (double)ph_dtype_size(types[type])));
    }
}

/* ---- finite ------------------------------------------------------------------------ */

/* One non-finite element anywhere is seen; padding between the rows is not read. */
static void finite_at(const ph_kernels *t, int rows, int n, int ld)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    int64_t floats = (rows - 1) * ld + n;
    const int step = rows > 1 ? 7 : 1;
    float *x = bed_floats(0, floats, side()); /* the pattern between the rows is a NaN */
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < n; c++) {
            float special = bed_special();
            bed_fill(&x[r * ld + c], 1, BED_WIDE);
            if (isfinite(special)) x[r * ld + c] = special;
        }
    bed_say("%s finite rows=%d n=%d ld=%d", t->name, rows, n, ld);
    if (t->finite(x, ld, rows, n) != 1) bed_fail("says no, all elements are finite");
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < n; c += step) {
            float *at = &x[r * ld + c], before = *at;
            *at = bad[bed_below(3)];
            if (t->finite(x, ld, rows, n) != 0)
                bed_fail("says yes, row %d column %d is %g", r, c, (double)*at);
            *at = before;
        }
}

void check_finite(const ph_kernels *t)
{
    for (int n = 16; n <= MOST; n += 16)
        for (int rows = 1; rows <= 5; rows++) {
            finite_at(t, rows, n, n);
            finite_at(t, rows, n, n + 3);
        }
}

void bench_finite(const ph_kernels *t)
{
    bed_timer timer;
    volatile int sink;
    float *x = bed_floats(0, 16 * 128, BED_START);
    bed_fill(x, 16 * 128, BED_NORMAL);
    BED_TIME(&timer, sink = t->finite(x, 128, 16, 128));
    (void)sink;
    bed_report("finite", t, "16 x 128", &timer, 0, 4.0 * 16 * 128);
}
