/*
 * kernel_slopes.c - check and bench of slopes of ph_pairs: weights and gradients of
 * scores as parts in bf16. A table without it passes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernel_bed.h"

#define REF ph_pairs_ref

enum { STRIP = PH_STEP * PH_STRIP_LD, TILE = PH_TILE * PH_STEP };
enum { ROOM = PH_STRIP_LD / PH_TILE * PH_PARTS * TILE };

static _Alignas(PH_ALIGN) float scores[STRIP], slopes[STRIP], factors[STRIP];
static _Alignas(PH_ALIGN) float steep[STRIP];
static _Alignas(PH_ALIGN) uint16_t want[3][ROOM];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* Scores below what they are measured from, some hidden; behind those anything. */
static void draw(int kind)
{
    for (int i = 0; i < STRIP; i++) {
        scores[i] = bed_below(6) ? bed_between(-140, 0) : -INFINITY;
        factors[i] = bed_below(4) ? 4.0f / 3 : 0;
        steep[i] = bed_between(0, 1);
        if (scores[i] == -INFINITY) factors[i] = bed_special(), steep[i] = bed_special();
    }
    bed_fill(slopes, STRIP, kind);
}

static int is_nan(uint16_t x)
{
    return (x & 0x7fff) > 0x7f80;
}

static void same_parts(const char *what, const uint16_t *got, const uint16_t *expected,
                       int count)
{
    for (int i = 0; i < count; i++)
        if (got[i] != expected[i] && !(is_nan(got[i]) && is_nan(expected[i])))
            bed_fail("%s: number %d is %04x, expected %04x", what, i, got[i],
                     expected[i]);
}

static int all_finite(const uint16_t *parts, int count)
{
    int finite = 1;
    for (int i = 0; i < count; i++) finite &= (parts[i] & 0x7f80) != 0x7f80;
    return finite;
}

static void slopes_at(const ph_pairs *p, const char *name, int m, int n, int kind)
{
    float lse[PH_STEP], delta[PH_STEP];
    int rows = (m - 1) * PH_STRIP_LD + n, tiles = n / PH_TILE * PH_PARTS * TILE;
    size_t bytes = (size_t)tiles * sizeof **want;
    ph_slopes x = {.m = m, .n = n, .lse = lse, .delta = delta, .s = scores, .dp = slopes};
    x.scale = bed_below(2) ? 1 : bed_between(0.1f, 1);
    x.slope = bed_below(2) ? NULL : steep;
    x.drop = bed_below(2) ? NULL : factors;
    x.p = want[0], x.ds = want[1], x.ds_rows = want[2];
    bed_say("%s pairs_slopes m=%d n=%d kind %d slope %d drop %d", name, m, n, kind,
            x.slope != NULL, x.drop != NULL);
    for (int i = 0; i < PH_STEP; i++)
        lse[i] = bed_between(0, 9), delta[i] = bed_between(-1, 1);
    ph_slopes y = x;
    y.s = bed_copy(0, scores, rows, side());
    y.dp = bed_copy(1, slopes, rows, side());
    y.p = bed_place(2, bytes, side());
    y.ds = bed_place(3, bytes, side());
    y.ds_rows = bed_place(4, bytes, side());
    int small = REF.slopes(&x), finite = all_finite(want[1], tiles), said = p->slopes(&y);
    if ((small && !said) || (!finite && said))
        bed_fail("ds is said to be %sfinite", said ? "" : "not ");
    same_parts("p", y.p, want[0], tiles);
    same_parts("ds", y.ds, want[1], tiles);
    same_parts("ds_rows", y.ds_rows, want[2], tiles);
    bed_intact(2), bed_intact(3), bed_intact(4);
}

void check_pairs_slopes(const ph_kernels *t)
{
    if (!t->pairs) return;
    for (int m = 1; m <= PH_STEP; m++)
        for (int n = PH_STEP; n <= PH_STRIP_LD; n += PH_STEP)
            for (int kind = 0; kind < BED_KINDS; kind++) {
                draw(kind);
                slopes_at(t->pairs, t->name, m, n, kind);
                slopes_at(t->pairs, t->name, PH_STEP, n, kind);
            }
}

void bench_pairs_slopes(const ph_kernels *t)
{
    float lse[PH_STEP] = {0}, delta[PH_STEP] = {0};
    bed_timer timer;
    if (!t->pairs) return;
    draw(BED_PLAIN);
    ph_slopes x = {.m = PH_STEP,
                   .n = PH_STRIP_LD,
                   .s = scores,
                   .dp = slopes,
                   .lse = lse,
                   .delta = delta,
                   .scale = 1,
                   .p = want[0],
                   .ds = want[1],
                   .ds_rows = want[2]};
    BED_TIME(&timer, t->pairs->slopes(&x));
    bed_report("pairs_slopes", t, "32 x 128", &timer, 0, 0);
}
