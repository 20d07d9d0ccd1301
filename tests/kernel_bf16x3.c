/*
 * kernel_bf16x3.c - checks and benches of products of f32 operands as terms in bf16:
 * split, multiply, stream and few of ph_bf16_pairs. A table without them passes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernel_bed.h"

#define REF ph_bf16_pairs_ref

enum { DEPTH = 320, CAPACITY = PH_BF16_TERMS * PH_AMX_BLOCK * DEPTH };

static _Alignas(PH_ALIGN) uint16_t left[CAPACITY], right[CAPACITY];

static int side(void)
{
    return bed_below(2) ? BED_START : BED_END;
}

/* Numbers of a kind; every third time such as bf16 holds exactly. */
static void fill(void *x, ph_dtype type, int64_t count, int kind)
{
    int exact = !bed_below(3);
    for (int64_t i = 0; i < count; i++) {
        float f;
        bed_fill(&f, 1, kind);
        uint16_t half = ph_to_bf16(f);
        if (type == PH_BF16)
            ((uint16_t *)x)[i] = half;
        else
            ((float *)x)[i] = exact ? ph_from_bf16(half) : f;
    }
}

/* ---- split ------------------------------------------------------------------------- */

static int is_nan(uint16_t x)
{
    return (x & 0x7fff) > 0x7f80;
}

static void split_at(const ph_bf16_pairs *p, const char *name, ph_dtype type, int lines,
                     int k, int form, int kind)
{
    static uint16_t want[CAPACITY];
    int contiguous = form & 1, pairs = form >> 1, size = type == PH_F32 ? 4 : 2;
    int rows = contiguous ? lines : k, n = contiguous ? k : lines;
    int stride = n + bed_below(4);
    int tiles = 2 * ph_div_up(k, PH_AMX_STEP) * PH_AMX_TILE * PH_AMX_STEP;
    size_t count = (size_t)((rows - 1) * stride + n);
    bed_say("%s pairs_bf16x3 type %d lines=%d k=%d contiguous %d pairs %d", name, type,
            lines, k, contiguous, pairs);
    void *from = bed_place(0, count * (size_t)size, side());
    fill(from, type, (int64_t)count, kind);
    uint16_t *got = bed_place(1, (size_t)(PH_BF16_TERMS * tiles) * sizeof *got, side());
    int terms = REF.split_bf16x3(want, from, type, stride, lines, k, contiguous, pairs);
    int found = p->split_bf16x3(got, from, type, stride, lines, k, contiguous, pairs);
    if (found != terms) bed_fail("%d terms, expected %d", found, terms);
    for (int i = 0; i < terms * tiles; i++)
        if (got[i] != want[i] && !(is_nan(got[i]) && is_nan(want[i])))
            bed_fail("element %d is %04x, expected %04x", i, got[i], want[i]);
    bed_intact(0);
    bed_intact(1);
}

/* The terms of an element add up to it exactly. */
static void split_is_exact(void)
{
    static uint16_t to[PH_BF16_TERMS * PH_AMX_BLOCK * PH_AMX_STEP];
    float x[PH_AMX_STEP];
    bed_fill(x, PH_AMX_STEP, BED_WIDE);
    int terms = REF.split_bf16x3(to, x, PH_F32, PH_AMX_STEP, 1, PH_AMX_STEP, 1, 0);
    for (int i = 0; i < PH_AMX_STEP; i++) {
        double sum = 0;
        for (int p = 0; p < terms; p++)
            sum += ph_from_bf16(to[p * PH_AMX_BLOCK * PH_AMX_STEP + i % PH_AMX_TILE * 2 +
                                   i / PH_AMX_TILE]);
        if (sum != x[i]) bed_fail("the terms of %a are %a", (double)x[i], sum);
    }
}

void check_pairs_bf16x3(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int i = 0; i < 40; i++) split_is_exact();
    for (int k = 1; k <= 100; k += k < 70 ? 1 : 13)
        for (int form = 0; form < 4; form++)
            for (int type = 0; type < 2; type++) {
                int lines = 1 + bed_below(PH_AMX_BLOCK), kind = bed_below(BED_KINDS);
                split_at(t->bf16_pairs, t->name, type ? PH_BF16 : PH_F32, lines, k, form,
                         kind);
            }
}

void bench_pairs_bf16x3(const ph_kernels *t)
{
    static _Alignas(PH_ALIGN) float x[PH_AMX_BLOCK * DEPTH];
    if (!t->bf16_pairs) return;
    for (int form = 0; form < 4; form++)
        for (int type = 0; type < 2; type++) {
            char shape[40];
            bed_timer timer;
            int contiguous = form & 1, pairs = form >> 1;
            bed_fill(x, PH_AMX_BLOCK * DEPTH, BED_NORMAL);
            BED_TIME(&timer,
                     t->bf16_pairs->split_bf16x3(left, x, type ? PH_BF16 : PH_F32,
                                                 contiguous ? 128 : PH_AMX_BLOCK,
                                                 PH_AMX_BLOCK, 128, contiguous, pairs));
            snprintf(shape, sizeof shape, "32 x 128, %s%s%s", type ? "bf16" : "f32",
                     contiguous ? ", contiguous" : "", pairs ? ", pairs" : "");
            bed_report("pairs_bf16x3", t, shape, &timer, 0, 0);
        }
}

/* ---- multiply ---------------------------------------------------------------------- */

/* Both operands for k steps of elements, with 1 or PH_BF16_TERMS terms. */
static void operands(int k, int a_terms, int b_terms, int kind)
{
    static float x[PH_AMX_BLOCK * DEPTH];
    bed_fill(x, PH_AMX_BLOCK * k, kind);
    for (int i = 0; i < PH_AMX_BLOCK * k && a_terms == 1; i++)
        x[i] = ph_from_bf16(ph_to_bf16(x[i]));
    REF.split_bf16x3(left, x, PH_F32, k, PH_AMX_BLOCK, k, 1, 0);
    bed_fill(x, PH_AMX_BLOCK * k, kind);
    for (int i = 0; i < PH_AMX_BLOCK * k && b_terms == 1; i++)
        x[i] = ph_from_bf16(ph_to_bf16(x[i]));
    REF.split_bf16x3(right, x, PH_F32, PH_AMX_BLOCK, PH_AMX_BLOCK, k, 0, 1);
}

static void multiply_at(const ph_bf16_pairs *p, const char *name, int m, int k,
                        int a_terms, int b_terms)
{
    static float want[PH_AMX_BLOCK * 40];
    int steps = ph_div_up(k, PH_AMX_STEP), ld = PH_AMX_BLOCK + 4 * bed_below(3);
    int rows = m <= PH_AMX_TILE ? m : PH_AMX_BLOCK, add = bed_below(2);
    bed_say("%s pairs_multiply m=%d k=%d terms %d %d add %d", name, m, k, a_terms,
            b_terms, add);
    bed_fill(want, rows * ld, BED_NORMAL);
    float *c = bed_copy(0, want, (rows - 1) * ld + PH_AMX_BLOCK, side());
    ph_operand a = ph_bf16x3_operand(left, a_terms, steps);
    ph_operand b = ph_bf16x3_operand(right, b_terms, steps);
    REF.multiply(m, steps, &a, &b, want, ld, add);
    p->begin(ph_min(m, PH_AMX_TILE));
    p->multiply(m, steps, &a, &b, c, ld, add);
    p->end();
    for (int i = 0; i < m; i++) bed_same("c", c + i * ld, want + i * ld, PH_AMX_BLOCK);
    bed_intact(0);
}

void check_pairs_multiply(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int k = 1; k <= DEPTH; k += k < 34 ? 4 : 21)
        for (int form = 0; form < 4; form++) {
            int a_terms = form & 1 ? PH_BF16_TERMS : 1,
                b_terms = form & 2 ? PH_BF16_TERMS : 1;
            operands(k, a_terms, b_terms, (k + form) % BED_KINDS);
            multiply_at(t->bf16_pairs, t->name, 1 + bed_below(PH_AMX_BLOCK), k, a_terms,
                        b_terms);
            multiply_at(t->bf16_pairs, t->name, PH_AMX_BLOCK, k, a_terms, b_terms);
        }
}

void bench_pairs_multiply(const ph_kernels *t)
{
    static _Alignas(PH_ALIGN) float c[PH_AMX_BLOCK * PH_AMX_BLOCK];
    if (!t->bf16_pairs) return;
    for (int form = 0; form < 4; form++) {
        char shape[40];
        bed_timer timer;
        int a_terms = form & 1 ? PH_BF16_TERMS : 1,
            b_terms = form & 2 ? PH_BF16_TERMS : 1;
        operands(128, a_terms, b_terms, BED_NORMAL);
        ph_operand a = ph_bf16x3_operand(left, a_terms, 128 / PH_AMX_STEP);
        ph_operand b = ph_bf16x3_operand(right, b_terms, 128 / PH_AMX_STEP);
        t->bf16_pairs->begin(PH_AMX_TILE);
        BED_TIME(&timer, t->bf16_pairs->multiply(PH_AMX_BLOCK, 128 / PH_AMX_STEP, &a, &b,
                                                 c, PH_AMX_BLOCK, 0));
        t->bf16_pairs->end();
        int products = form == 3 ? 6 : form ? 3 : 1;
        snprintf(shape, sizeof shape, "32 x 32 x 128, %d products", products);
        bed_report("pairs_multiply", t, shape, &timer, 2.0 * 32 * 32 * 128 * products, 0);
    }
}

/* ---- stream ------------------------------------------------------------------------ */

enum { WIDTH = 96 };

/* Numbers of one part here and there: a tile of them is not like its neighbours. */
static void sprinkle(float *b, int k, int n, int64_t ldb)
{
    int j0 = bed_below(n), k0 = bed_below(k);
    for (int kk = k0; kk < k; kk++)
        for (int j = j0; j < n; j++)
            b[kk * ldb + j] = ph_from_bf16(ph_to_bf16(b[kk * ldb + j]));
}

/* stream, or few. */
static void stream_at(const ph_bf16_pairs *p, const char *name, int few, int m, int n,
                      int k, int a_terms, int kind)
{
    static float want[PH_AMX_BLOCK * (WIDTH + 8)];
    int ldb = n + bed_below(4), ldc = ph_round_up(n, PH_AMX_TILE) + 4 * bed_below(3);
    int rows = m <= PH_AMX_TILE ? m : PH_AMX_BLOCK, steps = ph_div_up(k, PH_AMX_STEP);
    bed_say("%s pairs_%s m=%d n=%d k=%d terms %d kind %d", name, few ? "few" : "stream",
            m, n, k, a_terms, kind);
    operands(k, a_terms, 1, kind);
    float *b = bed_floats(0, (int64_t)(k - 1) * ldb + n, side());
    bed_fill(b, (int64_t)(k - 1) * ldb + n, kind);
    sprinkle(b, k, n, ldb);
    bed_fill(want, rows * ldc, BED_NORMAL);
    float *c = bed_copy(1, want, (rows - 1) * ldc + ph_round_up(n, PH_AMX_TILE), side());
    ph_operand a = ph_bf16x3_operand(left, a_terms, steps);
    REF.multiply_in_place(m, n, k, &a, b, ldb, want, ldc);
    int done = few ? p->multiply_few_rows(m, n, k, &a, b, ldb, c, ldc) : 1;
    if (!few) {
        p->begin(ph_min(m, PH_AMX_TILE));
        p->multiply_in_place(m, n, k, &a, b, ldb, c, ldc);
        p->end();
    }
    for (int i = 0; i < m && done; i++) bed_same("c", c + i * ldc, want + i * ldc, n);
    if (!done && (kind == BED_NORMAL || kind == BED_WIDE)) bed_fail("nothing is small");
    bed_intact(0);
    bed_intact(1);
}

/* The reference is what split and multiply make of it. */
static void stream_means(int m, int n, int k)
{
    static float b[DEPTH * PH_AMX_BLOCK], want[PH_AMX_BLOCK * PH_AMX_BLOCK],
        got[PH_AMX_BLOCK * PH_AMX_BLOCK];
    bed_say("stream of the reference, m=%d n=%d k=%d", m, n, k);
    operands(k, PH_BF16_TERMS, 1, BED_WIDE);
    bed_fill(b, k * n, BED_WIDE);
    bed_fill(want, PH_AMX_BLOCK * PH_AMX_BLOCK, BED_NORMAL);
    memcpy(got, want, sizeof got);
    int steps = ph_div_up(k, PH_AMX_STEP),
        terms = REF.split_bf16x3(right, b, PH_F32, n, n, k, 0, 1);
    ph_operand a = ph_bf16x3_operand(left, PH_BF16_TERMS, steps);
    ph_operand tiles = ph_bf16x3_operand(right, terms, steps);
    REF.multiply(m, steps, &a, &tiles, want, PH_AMX_BLOCK, 1);
    REF.multiply_in_place(m, n, k, &a, b, n, got, PH_AMX_BLOCK);
    for (int i = 0; i < m; i++)
        bed_same("c", got + i * PH_AMX_BLOCK, want + i * PH_AMX_BLOCK, n);
}

void check_pairs_multiply_in_place(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    for (int i = 0; i < 10; i++)
        stream_means(1 + bed_below(PH_AMX_BLOCK), 1 + bed_below(PH_AMX_BLOCK),
                     1 + bed_below(DEPTH));
    for (int m = 1; m <= PH_AMX_BLOCK; m += EVERY)
        for (int form = 0; form < 4; form++)
            stream_at(t->bf16_pairs, t->name, 0, m, 1 + bed_below(WIDTH),
                      1 + bed_below(DEPTH), form & 1 ? PH_BF16_TERMS : 1,
                      (m + form / 2) % BED_KINDS);
}

static void bench_once(const ph_kernels *t, int few)
{
    static _Alignas(PH_ALIGN) float b[DEPTH * WIDTH], c[PH_AMX_BLOCK * WIDTH];
    for (int form = 0; form < 8; form++) {
        char shape[40];
        bed_timer timer;
        int a_terms = form & 1 ? PH_BF16_TERMS : 1, exact = form & 2;
        int m = form & 4 ? (few ? PH_FEW_ROWS : PH_AMX_TILE) : 1;
        operands(128, a_terms, 1, BED_NORMAL);
        ph_operand a = ph_bf16x3_operand(left, a_terms, 128 / PH_AMX_STEP);
        bed_fill(b, 128 * 64, BED_NORMAL);
        for (int i = 0; i < 128 * 64 && exact; i++) b[i] = ph_from_bf16(ph_to_bf16(b[i]));
        memset(c, 0, sizeof c);
        if (!few) t->bf16_pairs->begin(m);
        if (few)
            BED_TIME(&timer,
                     t->bf16_pairs->multiply_few_rows(m, 64, 128, &a, b, 64, c, 64));
        else
            BED_TIME(&timer,
                     t->bf16_pairs->multiply_in_place(m, 64, 128, &a, b, 64, c, 64));
        if (!few) t->bf16_pairs->end();
        snprintf(shape, sizeof shape, "%d x 64 x 128, terms %d %d", m, a_terms,
                 exact ? 1 : PH_BF16_TERMS);
        bed_report(few ? "pairs_few_rows" : "pairs_multiply_in_place", t, shape, &timer,
                   0, 128 * 64 * sizeof *b);
    }
}

void bench_pairs_multiply_in_place(const ph_kernels *t)
{
    if (t->bf16_pairs) bench_once(t, 0);
}

/* ---- few --------------------------------------------------------------------------- */

/* Sums whose small terms only show in one place: an operand, a part, a product, a sum
   of chains, the result; or just not small. */
static void small_at(const ph_bf16_pairs *p, float a0, float b0, float a1, float b1,
                     float c0)
{
    float x[PH_AMX_STEP] = {0}, b[PH_AMX_STEP * PH_AMX_TILE] = {0};
    float c[PH_AMX_TILE] = {c0}, want[PH_AMX_TILE] = {c0};
    x[0] = a0, x[PH_AMX_TILE - 1] = a1, b[0] = b0,
    b[(PH_AMX_TILE - 1) * PH_AMX_TILE] = b1;
    bed_say("pairs_few_rows %a %a + %a %a + %a", (double)a0, (double)b0, (double)a1,
            (double)b1, (double)c0);
    int terms = REF.split_bf16x3(left, x, PH_F32, PH_AMX_STEP, 1, PH_AMX_STEP, 1, 0);
    ph_operand a = ph_bf16x3_operand(left, terms, 1);
    REF.multiply_in_place(1, PH_AMX_TILE, PH_AMX_STEP, &a, b, PH_AMX_TILE, want,
                          PH_AMX_TILE);
    if (p->multiply_few_rows(1, PH_AMX_TILE, PH_AMX_STEP, &a, b, PH_AMX_TILE, c,
                             PH_AMX_TILE))
        bed_same("c", c, want, 1);
    c[0] = c0;
    p->begin(1);
    p->multiply_in_place(1, PH_AMX_TILE, PH_AMX_STEP, &a, b, PH_AMX_TILE, c, PH_AMX_TILE);
    p->end();
    bed_same("c of stream", c, want, 1);
}

static void check_small(const ph_bf16_pairs *p)
{
    small_at(p, 1, 0x1.8p-127f, 0, 0, 0);
    small_at(p, 0x1p-130f, 1, 0, 0, 0);
    small_at(p, 1, 0x1.fffffep-127f, 0, 0, 1);
    small_at(p, 1, 0x1.00fffep-118f, 0, 0, 0);
    small_at(p, 1, 0x1.01fffep-118f, 1, 0x1p-126f, 0);
    small_at(p, 0x1p-70f, 0x1p-70f, 0, 0, 1);
    small_at(p, 0x1p-63f, 0x1p-64f, 0x1p-63f, 0x1p-64f, 0);
    small_at(p, 0x1p-63f, 0x1.8p-63f, -0x1p-63f, 0x1p-63f, 0);
    small_at(p, 0x1p-63f, 0x1.8p-63f, 0, 0, -0x1p-126f);
    small_at(p, 0x1p-63f, 0x1p-63f, -0x1p-76f, 0x1p-76f, 0);
    small_at(p, 0x1p-63f, 0x1p-63f, -0x1p-76f, 0x1.8p-75f, 0);
    small_at(p, 0x1p-63f, 0x1p-63f, -0x1p-75f, 0x1p-75f, 0);
    small_at(p, 0, 0, 0, 0, 0x1p-130f);
    small_at(p, 0, 0, 0, 0, -0.0f);
}

void check_pairs_few_rows(const ph_kernels *t)
{
    if (!t->bf16_pairs) return;
    check_small(t->bf16_pairs);
    for (int k = 1; k <= DEPTH; k += k < 66 ? EVERY : 13)
        for (int form = 0; form < 8; form++)
            stream_at(t->bf16_pairs, t->name, 1, 1 + form % PH_FEW_ROWS,
                      1 + bed_below(WIDTH), k, form & 2 ? PH_BF16_TERMS : 1,
                      (k + form / 4) % BED_KINDS);
}

void bench_pairs_few_rows(const ph_kernels *t)
{
    if (t->bf16_pairs) bench_once(t, 1);
}
