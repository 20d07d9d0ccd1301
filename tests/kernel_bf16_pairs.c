/*
 * kernel_bf16_pairs.c - checks and benches of products of bf16 as it is (ph_bf16_pairs):
 * packing, scores, softmax into terms and what these weigh. A table without them passes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernel_bed.h"

#define REF ph_bf16_pairs_ref

enum { DEPTH = 160, FIRST_ROW = 16, KEYS = PH_STRIP_LD };
enum { STRIP = PH_AMX_TILE * PH_STRIP_LD, TILE = PH_AMX_TILE * PH_AMX_STEP };

static _Alignas(PH_ALIGN) uint16_t left[PH_AMX_TILE * DEPTH], right[KEYS * DEPTH];
static _Alignas(PH_ALIGN) float strip[STRIP], expected[STRIP];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* bf16 elements of a kind of bed_fill, in two bytes each */
static void fill(uint16_t *x, int64_t count, int kind)
{
    for (int64_t i = 0; i < count; i++) {
        float f;
        bed_fill(&f, 1, kind);
        x[i] = ph_to_bf16(f);
    }
}

static void same_bytes(const char *what, const void *got, const void *want, size_t bytes)
{
    if (memcmp(got, want, bytes)) bed_fail("%s differs", what);
}

/* ---- packing ----------------------------------------------------------------------- */

static void packs_at(const ph_bf16_pairs *p, const void *const *rows, int count, int k)
{
    static uint16_t want[PH_AMX_STEP * DEPTH];
    size_t strip_bytes = (size_t)PH_AMX_TILE * (size_t)ph_round_up(k, PH_AMX_STEP) * 2;
    size_t step_bytes = (size_t)PH_AMX_STEP * (size_t)ph_round_up(k, PH_AMX_TILE) * 2;
    if (count <= PH_AMX_TILE) {
        uint16_t *dst = bed_place(0, strip_bytes, side());
        REF.pack_rows(want, rows, count, k);
        p->pack_rows(dst, rows, count, k);
        same_bytes("pack_rows", dst, want, strip_bytes);
        bed_intact(0);
        dst = bed_place(1, strip_bytes, side());
        REF.pack_panel(want, rows, count, k, 0);
        p->pack_panel(dst, rows, count, k, 1 << 20);
        same_bytes("pack_panel", dst, want, strip_bytes);
        bed_intact(1);
    }
    uint16_t *dst = bed_place(2, step_bytes, side());
    int normal = REF.pack_pairs(want, rows, count, k, 0);
    if (p->pack_pairs(dst, rows, count, k, 1 << 20) != normal)
        bed_fail("pack_pairs says %s", normal ? "not normal" : "normal");
    same_bytes("pack_pairs", dst, want, step_bytes);
    bed_intact(2);
    dst = bed_place(3, step_bytes, side());
    if (REF.pack_columns(want, rows, count, k) != normal ||
        p->pack_columns(dst, rows, count, k) != normal ||
        REF.all_normal(rows, count, k) != normal ||
        p->all_normal(rows, count, k) != normal)
        bed_fail("not everybody says %s", normal ? "normal" : "not normal");
    same_bytes("pack_columns", dst, want, step_bytes);
    bed_intact(3);
}

void check_pairs_pack(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int k = 1; k <= 100; k += k < 70 ? 1 : 13) {
        const void *rows[PH_AMX_STEP];
        for (int r = 0; r < PH_AMX_STEP; r++) {
            rows[r] = bed_place(FIRST_ROW + r, (size_t)k * 2, side());
            fill((uint16_t *)rows[r], k, r % 8 ? BED_NORMAL : bed_below(BED_KINDS));
        }
        for (int count = 1; count <= PH_AMX_STEP; count++) {
            bed_say("%s packs of pairs, %d rows of %d", t->name, count, k);
            packs_at(t->bf16_pairs, rows, count, k);
        }
    }
}

/* `count` contiguous rows of k elements, as panels of PH_AMX_TILE rows (transposed), or
   as pairs of PH_AMX_STEP rows */
static void pack(uint16_t *dst, const uint16_t *from, int count, int k, int panels)
{
    const void *rows[PH_AMX_STEP];
    int height = panels ? PH_AMX_TILE : PH_AMX_STEP;
    for (int r = 0; r < count; r += height) {
        int n = ph_min(height, count - r);
        for (int i = 0; i < n; i++) rows[i] = from + (r + i) * k;
        if (panels)
            REF.pack_panel(dst + r * ph_round_up(k, PH_AMX_STEP), rows, n, k, 0);
        else
            REF.pack_pairs(dst + r * ph_round_up(k, PH_AMX_TILE), rows, n, k, 0);
    }
}

static void pack_left(uint16_t *dst, int k)
{
    const void *rows[PH_AMX_TILE];
    for (int i = 0; i < PH_AMX_TILE; i++) rows[i] = left + i * k;
    REF.pack_rows(dst, rows, PH_AMX_TILE, k);
}

void bench_pairs_pack(const ph_kernels *t)
{
    static uint16_t dst[KEYS * DEPTH];
    const void *rows[PH_AMX_STEP];
    bed_timer timer;
    if (!t->bf16_pairs) return;
    fill(right, KEYS * 64, BED_NORMAL);
    for (int i = 0; i < PH_AMX_STEP; i++) rows[i] = right + i * 64;
    BED_TIME(&timer, t->bf16_pairs->pack_panel(dst, rows, PH_AMX_TILE, 64, 0));
    bed_report("pairs_pack", t, "panel, 16 x 64", &timer, 0, 2.0 * PH_AMX_TILE * 64 * 2);
    BED_TIME(&timer, t->bf16_pairs->pack_pairs(dst, rows, PH_AMX_STEP, 64, 0));
    bed_report("pairs_pack", t, "pairs, 32 x 64", &timer, 0, 2.0 * PH_AMX_STEP * 64 * 2);
}

/* ---- scores ------------------------------------------------------------------------ */

static void scores_at(const ph_bf16_pairs *p, const char *name, int m, int n, int k)
{
    static uint16_t a[PH_AMX_TILE * DEPTH], b[KEYS * DEPTH];
    float start[PH_AMX_TILE * PH_LANES], want[PH_AMX_TILE * PH_LANES],
        scale = bed_between(-1, 1);
    int pad = ph_round_up(k, PH_AMX_STEP), peaks = bed_below(4) > 0;
    bed_say("%s pairs_scores m=%d n=%d k=%d", name, m, n, k);
    for (int i = 0; i < PH_AMX_TILE * PH_LANES; i++)
        start[i] = bed_below(2) ? -INFINITY : bed_between(-2, 2);
    memcpy(want, start, sizeof want);
    pack_left(a, k);
    pack(b, right, n, k, 1);
    REF.scores(m, n, pad, a, b, scale, expected, peaks ? want : NULL);
    float *s = bed_floats(2, (m - 1) * PH_STRIP_LD + n, side());
    float *lane_max = bed_copy(3, start, m * PH_LANES, side());
    p->begin(m);
    p->scores(m, n, pad, a, b, scale, s, peaks ? lane_max : NULL);
    p->end();
    bed_same_rows("s", s, PH_STRIP_LD, expected, PH_STRIP_LD, m, n, n);
    bed_same("lane_max", lane_max, want, m * PH_LANES);
    bed_intact(2);
    bed_intact(3);
}

void check_pairs_scores(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int k = 1; k <= DEPTH; k += k < 34 ? 3 : 21)
        for (int n = 16; n <= KEYS; n += 16) {
            int kind = (k + n / 16) % BED_KINDS;
            fill(left, PH_AMX_TILE * k, kind);
            fill(right, (int64_t)n * k, kind);
            scores_at(t->bf16_pairs, t->name, 1 + bed_below(PH_AMX_TILE), n, k);
            scores_at(t->bf16_pairs, t->name, PH_AMX_TILE, n, k);
        }
}

/* Keys read in place give the bits of packed ones. */
static void in_place_at(const ph_bf16_pairs *p, const char *name, int m, int n, int k,
                        int kind)
{
    static uint16_t a[PH_AMX_TILE * DEPTH], rows[PH_AMX_TILE * DEPTH], b[KEYS * DEPTH];
    float want[PH_AMX_TILE * PH_LANES], scale = bed_between(-1, 1);
    int peaks = bed_below(4) > 0, ldb = k + 8 * bed_below(3);
    bed_say("%s pairs_scores_in_place m=%d n=%d k=%d", name, m, n, k);
    fill(left, PH_AMX_TILE * k, kind);
    fill(right, (int64_t)n * k, kind);
    for (int i = 0; i < m * PH_LANES; i++) want[i] = bed_between(-2, 2);
    float *s = bed_floats(2, (m - 1) * PH_STRIP_LD + n, side());
    float *lane_max = bed_copy(3, want, m * PH_LANES, side());
    uint16_t *keys = bed_place(4, (size_t)((n - 1) * ldb + k) * sizeof *keys, side());
    for (int j = 0; j < n; j++) memcpy(keys + j * ldb, right + j * k, (size_t)k * 2);
    pack_left(rows, k);
    pack(a, left, PH_AMX_TILE, k, 1);
    pack(b, right, n, k, 1);
    REF.scores(m, n, k, rows, b, scale, expected, peaks ? want : NULL);
    p->begin(m);
    p->scores_in_place(m, n, k, a, keys, ldb, 64, scale, s, peaks ? lane_max : NULL);
    p->end();
    bed_same_rows("s", s, PH_STRIP_LD, expected, PH_STRIP_LD, m, n, n);
    bed_same("lane_max", lane_max, want, m * PH_LANES);
    REF.scores_in_place(m, n, k, a, keys, ldb, 64, scale, s, NULL);
    REF.scores(m, n, k, rows, b, scale, expected, NULL);
    bed_same_rows("s of the reference", s, PH_STRIP_LD, expected, PH_STRIP_LD, m, n, n);
    for (int slot = 2; slot < 5; slot++) bed_intact(slot);
}

void check_pairs_scores_in_place(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int k = PH_AMX_STEP; k <= DEPTH; k += PH_AMX_STEP)
        for (int n = 16; n <= KEYS; n += 16)
            in_place_at(t->bf16_pairs, t->name, 1 + bed_below(PH_AMX_TILE), n, k,
                        (k / PH_AMX_STEP + n / 16) % BED_KINDS);
}

void bench_pairs_scores_in_place(const ph_kernels *t)
{
    static _Alignas(PH_ALIGN) uint16_t a[PH_AMX_TILE * DEPTH], b[KEYS * DEPTH];
    float lane_max[PH_AMX_TILE * PH_LANES];
    if (!t->bf16_pairs) return;
    fill(a, PH_AMX_TILE * 64, BED_NORMAL);
    fill(b, 128 * 64, BED_NORMAL);
    bed_timer timer;
    for (int i = 0; i < PH_AMX_TILE * PH_LANES; i++) lane_max[i] = 0;
    t->bf16_pairs->begin(4);
    BED_TIME(&timer, t->bf16_pairs->scores_in_place(4, 128, 64, a, b, 64, 0, 0.5f,
                                                    expected, lane_max));
    t->bf16_pairs->end();
    bed_report("pairs_scores_in_place", t, "4 x 128, k 64", &timer, 0, 128 * 64 * 2);
}

void bench_pairs_scores(const ph_kernels *t)
{
    static _Alignas(PH_ALIGN) uint16_t a[PH_AMX_TILE * DEPTH], b[KEYS * DEPTH];
    float lane_max[PH_AMX_TILE * PH_LANES];
    if (!t->bf16_pairs) return;
    for (int k = 64; k <= 128; k *= 2) {
        char shape[40];
        bed_timer timer;
        fill(left, PH_AMX_TILE * k, BED_NORMAL);
        fill(right, KEYS * k, BED_NORMAL);
        pack_left(a, k);
        pack(b, right, KEYS, k, 1);
        for (int i = 0; i < PH_AMX_TILE * PH_LANES; i++) lane_max[i] = -INFINITY;
        t->bf16_pairs->begin(PH_AMX_TILE);
        BED_TIME(&timer, t->bf16_pairs->scores(PH_AMX_TILE, KEYS, k, a, b, 0.1f, strip,
                                               lane_max));
        t->bf16_pairs->end();
        snprintf(shape, sizeof shape, "%d x %d, k %d", PH_AMX_TILE, KEYS, k);
        bed_report("pairs_scores", t, shape, &timer, 2.0 * PH_AMX_TILE * KEYS * k, 0);
    }
}

/* ---- softmax and what it weighs ---------------------------------------------------- */

/* Scores with some hidden, and their maxima. */
static void draw_scores(int m, int n, float *lane_max)
{
    for (int i = 0; i < m; i++) {
        float *row = strip + i * PH_STRIP_LD;
        for (int c = 0; c < n; c++)
            row[c] = bed_below(6) ? bed_between(-140, 3) : -INFINITY;
        if (!bed_below(9)) row[bed_below(n)] = NAN;
        ph_kernels_ref.row_lane_max(n, row, lane_max + i * PH_LANES);
    }
}

/* What a strip starts from and ends as. */
typedef struct state {
    float row_max[PH_AMX_TILE], sum[PH_AMX_TILE * PH_LANES], rescale[PH_AMX_TILE];
    float c[PH_AMX_TILE * DEPTH];
    uint16_t terms[PH_BF16_TERMS * STRIP];
} state;

static ph_strip strip_of(state *x, int m, int n, int width)
{
    return (ph_strip){.m = m,
                      .n = n,
                      .s = strip,
                      .row_max = x->row_max,
                      .sum = x->sum,
                      .rescale = x->rescale,
                      .terms = x->terms,
                      .width = width,
                      .c = x->c,
                      .ldc = width};
}

static void same_terms(const uint16_t *got, const uint16_t *want, int m, int n)
{
    for (int i = 0; i < ph_div_up(n, PH_AMX_STEP) * PH_BF16_TERMS * TILE; i++)
        if (i % TILE < m * PH_AMX_STEP &&
            !bed_equal(ph_from_bf16(got[i]), ph_from_bf16(want[i])))
            bed_fail("part %d is %04x, expected %04x", i, got[i], want[i]);
}

static void attend_at(const ph_bf16_pairs *p, const char *name, int m, int n, int width)
{
    static uint16_t v[KEYS * DEPTH];
    static state want, got;
    float lane_max[PH_AMX_TILE * PH_LANES], drop[STRIP];
    int dropped = bed_below(2), keep = bed_below(2), kind = bed_below(BED_KINDS);
    bed_say("%s pairs_attend m=%d n=%d width=%d drop %d keep %d", name, m, n, width,
            dropped, keep);
    draw_scores(m, n, lane_max);
    fill(right, (int64_t)n * width, kind);
    pack(v, right, n, width, 0);
    for (int i = 0; i < PH_AMX_TILE; i++)
        want.row_max[i] = bed_below(3) ? bed_between(-3, 3) : -INFINITY;
    for (int i = 0; i < PH_AMX_TILE * PH_LANES; i++) want.sum[i] = bed_between(0, 2);
    for (int i = 0; i < STRIP; i++) drop[i] = bed_below(4) ? 4.0f / 3 : 0;
    bed_fill(want.c, m * width, BED_NORMAL);
    got = want;
    ph_strip x = strip_of(&want, m, n, width), y = strip_of(&got, m, n, width);
    size_t tiles = (size_t)(ph_div_up(n, PH_AMX_STEP) * PH_BF16_TERMS);
    x.lane_max = y.lane_max = lane_max, x.v = y.v = v,
    x.drop = y.drop = dropped ? drop : NULL;
    x.fresh = y.fresh = !bed_below(3), y.keep = keep;
    y.s = bed_copy(0, strip, (m - 1) * PH_STRIP_LD + n, side());
    y.terms = bed_place(1, tiles * TILE * sizeof *y.terms, side());
    y.c = bed_copy(2, want.c, m * width, side());
    REF.attend(&x);
    p->begin(m);
    p->attend(&y);
    p->end();
    if (keep) same_terms(y.terms, want.terms, m, n);
    bed_same("row_max", got.row_max, want.row_max, m);
    bed_same("sum", got.sum, want.sum, m * PH_LANES);
    bed_same("rescale", got.rescale, want.rescale, m);
    bed_same("c", y.c, want.c, m * width);
    bed_intact(1);
    bed_intact(2);
}

void check_pairs_attend(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int m = 1; m <= PH_AMX_TILE; m++)
        for (int n = 16; n <= KEYS; n += 16)
            for (int i = 0; i < 3; i += EVERY)
                attend_at(t->bf16_pairs, t->name, m, n, 16 * (1 + bed_below(DEPTH / 16)));
    for (int width = 16; width <= DEPTH; width += 16)
        attend_at(t->bf16_pairs, t->name, PH_AMX_TILE, KEYS, width);
}

/* ---- few rows against values in place ------------------------------------------- */

/* Values of a kind in place, `keys` of n; sometimes a subnormal or non-finite one. */
static void attend_in_place_at(const ph_bf16_pairs *p, const char *name, int m, int keys,
                               int width, int kind, int special)
{
    static _Alignas(PH_ALIGN) uint16_t tiles[KEYS * DEPTH];
    static state want, got;
    float lane_max[PH_AMX_TILE * PH_LANES], drop[STRIP];
    int n = ph_round_up(keys, PH_AMX_TILE), ld = width + 8 * bed_below(3), nan = 0;
    bed_say("%s pairs_attend_in_place m=%d keys=%d width=%d kind %d special %d", name, m,
            keys, width, kind, special);
    draw_scores(m, n, lane_max);
    for (int i = 0; i < m; i++) {
        float *row = strip + i * PH_STRIP_LD;
        for (int c = keys; c < n; c++) row[c] = -INFINITY;
        for (int c = 0; c < n; c++) nan |= isnan(row[c]);
        ph_kernels_ref.row_lane_max(n, row, lane_max + i * PH_LANES);
    }
    for (int i = 0; i < STRIP; i++) drop[i] = bed_below(4) ? 4.0f / 3 : 0;
    uint16_t *v =
        bed_place(0, ((size_t)(keys - 1) * (size_t)ld + (size_t)width) * 2, side());
    fill(v, (int64_t)(keys - 1) * ld + width, kind);
    static const uint16_t rare[] = {0x0001, 0x807f, 0x7f80, 0xff80, 0x7fc0};
    if (special) v[bed_below(keys) * ld + bed_below(width)] = rare[bed_below(5)];
    for (int k = 0; k < keys; k++)
        memcpy(right + k * width, v + k * ld, (size_t)width * 2);
    memset(right + keys * width, 0, (size_t)((n - keys) * width) * 2);
    pack(tiles, right, n, width, 0);
    for (int i = 0; i < PH_AMX_TILE; i++)
        want.row_max[i] = bed_below(3) ? bed_between(-3, 3) : -INFINITY;
    for (int i = 0; i < PH_AMX_TILE * PH_LANES; i++) want.sum[i] = bed_between(0, 2);
    bed_fill(want.c, m * width, bed_below(4) ? BED_NORMAL : BED_TINY);
    got = want;
    ph_strip x = strip_of(&want, m, n, width), y = strip_of(&got, m, n, width);
    x.lane_max = y.lane_max = lane_max, x.v = tiles, x.fresh = y.fresh = !bed_below(3);
    x.drop = y.drop = bed_below(2) ? drop : NULL;
    y.s = bed_copy(1, strip, (m - 1) * PH_STRIP_LD + n, side());
    y.c = bed_copy(2, want.c, m * width, side());
    if (p->attend_in_place(&y, v, ld, keys, 1 << 20)) {
        if (special) bed_fail("a subnormal or non-finite value was multiplied");
        REF.attend(&x);
    } else if (!special && !nan && kind == BED_NORMAL) {
        bed_fail("all values are normal");
    }
    bed_same("row_max", got.row_max, want.row_max, m);
    bed_same("sum", got.sum, want.sum, m * PH_LANES);
    bed_same("c", y.c, want.c, m * width);
    bed_intact(0);
    bed_intact(2);
}

void check_pairs_attend_in_place(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int m = 1; m <= PH_FEW_ROWS; m++)
        for (int keys = 1; keys <= KEYS; keys++)
            for (int kind = 0; kind < BED_KINDS; kind++)
                attend_in_place_at(t->bf16_pairs, t->name, m, keys,
                                   PH_AMX_STEP * (1 + bed_below(DEPTH / PH_AMX_STEP)),
                                   kind, !bed_below(5));
}

void bench_pairs_attend_in_place(const ph_kernels *t)
{
    static state now;
    float lane_max[PH_AMX_TILE * PH_LANES] = {0};
    if (!t->bf16_pairs) return;
    for (int i = 0; i < STRIP; i++) strip[i] = bed_between(-9, 0);
    for (int m = 1; m <= PH_FEW_ROWS; m++) {
        char shape[40];
        bed_timer timer;
        ph_strip x = strip_of(&now, m, KEYS, 128);
        fill(right, KEYS * 128, BED_NORMAL);
        x.lane_max = lane_max;
        BED_TIME(&timer, t->bf16_pairs->attend_in_place(&x, right, 128, KEYS, 0));
        snprintf(shape, sizeof shape, "%d x %d, width 128", m, KEYS);
        bed_report("pairs_attend_in_place", t, shape, &timer, 2.0 * m * KEYS * 128,
                   KEYS * 128 * sizeof *right);
    }
}

void bench_pairs_attend(const ph_kernels *t)
{
    static _Alignas(PH_ALIGN) uint16_t v[KEYS * DEPTH];
    static state now;
    float lane_max[PH_AMX_TILE * PH_LANES] = {0};
    if (!t->bf16_pairs) return;
    for (int i = 0; i < STRIP; i++) strip[i] = bed_between(-9, 0);
    for (int width = 64; width <= 128; width *= 2) {
        char shape[40];
        bed_timer timer;
        ph_strip x = strip_of(&now, PH_AMX_TILE, KEYS, width);
        fill(right, KEYS * width, BED_NORMAL);
        pack(v, right, KEYS, width, 0);
        x.lane_max = lane_max, x.v = v;
        t->bf16_pairs->begin(PH_AMX_TILE);
        BED_TIME(&timer, t->bf16_pairs->attend(&x));
        t->bf16_pairs->end();
        snprintf(shape, sizeof shape, "%d x %d, width %d", PH_AMX_TILE, KEYS, width);
        bed_report("pairs_attend", t, shape, &timer,
                   2.0 * PH_BF16_TERMS * PH_AMX_TILE * KEYS * width, 0);
    }
}
