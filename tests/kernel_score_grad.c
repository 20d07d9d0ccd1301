/*
 * kernel_score_grad.c - check and bench of gradients of ph_bf16_pairs: weights and
 * gradients of scores as terms in bf16. A table without it passes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernel_bed.h"

#define REF ph_bf16_pairs_ref

enum { STRIP = PH_AMX_STEP * PH_STRIP_LD, TILE = PH_AMX_TILE * PH_AMX_STEP };
enum { CAPACITY = PH_STRIP_LD / PH_AMX_TILE * PH_BF16_TERMS * TILE };

static _Alignas(PH_ALIGN) float scores[STRIP], gradients[STRIP], factors[STRIP];
static _Alignas(PH_ALIGN) float derivatives[STRIP];
static _Alignas(PH_ALIGN) uint16_t want[3][CAPACITY];

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
        derivatives[i] = bed_between(0, 1);
        if (scores[i] == -INFINITY)
            factors[i] = bed_special(), derivatives[i] = bed_special();
    }
    bed_fill(gradients, STRIP, kind);
}

static int is_nan(uint16_t x)
{
    return (x & 0x7fff) > 0x7f80;
}

static void same_terms(const char *what, const uint16_t *got, const uint16_t *expected,
                       int count)
{
    for (int i = 0; i < count; i++)
        if (got[i] != expected[i] && !(is_nan(got[i]) && is_nan(expected[i])))
            bed_fail("%s: element %d is %04x, expected %04x", what, i, got[i],
                     expected[i]);
}

static int all_finite(const uint16_t *terms, int count)
{
    int finite = 1;
    for (int i = 0; i < count; i++) finite &= (terms[i] & 0x7f80) != 0x7f80;
    return finite;
}

static void score_grad_at(const ph_bf16_pairs *p, const char *name, int m, int n,
                          int kind)
{
    float lse[PH_AMX_STEP], delta[PH_AMX_STEP];
    int rows = (m - 1) * PH_STRIP_LD + n, tiles = n / PH_AMX_TILE * PH_BF16_TERMS * TILE;
    size_t bytes = (size_t)tiles * sizeof **want;
    ph_score_grad x = {
        .m = m, .n = n, .lse = lse, .delta = delta, .s = scores, .dp = gradients};
    x.scale = bed_below(2) ? 1 : bed_between(0.1f, 1);
    x.derivative = bed_below(2) ? NULL : derivatives;
    x.drop = bed_below(2) ? NULL : factors;
    x.p = want[0], x.ds = want[1], x.ds_rows = want[2];
    bed_say("%s pairs_score_grad m=%d n=%d kind %d derivative %d drop %d", name, m, n,
            kind, x.derivative != NULL, x.drop != NULL);
    for (int i = 0; i < PH_AMX_STEP; i++)
        lse[i] = bed_between(0, 9), delta[i] = bed_between(-1, 1);
    ph_score_grad y = x;
    y.s = bed_copy(0, scores, rows, side());
    y.dp = bed_copy(1, gradients, rows, side());
    y.p = bed_place(2, bytes, side());
    y.ds = bed_place(3, bytes, side());
    y.ds_rows = bed_place(4, bytes, side());
    int small = REF.score_grad(&x), finite = all_finite(want[1], tiles),
        said = p->score_grad(&y);
    if ((small && !said) || (!finite && said))
        bed_fail("ds is said to be %sfinite", said ? "" : "not ");
    same_terms("p", y.p, want[0], tiles);
    same_terms("ds", y.ds, want[1], tiles);
    same_terms("ds_rows", y.ds_rows, want[2], tiles);
    bed_intact(2), bed_intact(3), bed_intact(4);
}

void check_pairs_score_grad(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int m = 1; m <= PH_AMX_STEP; m++)
        for (int n = PH_AMX_STEP; n <= PH_STRIP_LD; n += PH_AMX_STEP)
            for (int kind = 0; kind < BED_KINDS; kind++) {
                draw(kind);
                score_grad_at(t->bf16_pairs, t->name, m, n, kind);
                score_grad_at(t->bf16_pairs, t->name, PH_AMX_STEP, n, kind);
            }
}

void bench_pairs_score_grad(const ph_kernels *t)
{
    float lse[PH_AMX_STEP] = {0}, delta[PH_AMX_STEP] = {0};
    bed_timer timer;
    if (!t->bf16_pairs) return;
    draw(BED_NORMAL);
    ph_score_grad x = {.m = PH_AMX_STEP,
                       .n = PH_STRIP_LD,
                       .s = scores,
                       .dp = gradients,
                       .lse = lse,
                       .delta = delta,
                       .scale = 1,
                       .p = want[0],
                       .ds = want[1],
                       .ds_rows = want[2]};
    BED_TIME(&timer, t->bf16_pairs->score_grad(&x));
    bed_report("pairs_score_grad", t, "32 x 128", &timer, 0, 0);
}
