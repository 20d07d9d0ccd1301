/*
 * kernel_parts.c - checks and benches of products of f32 numbers as parts in bf16:
 * split, multiply, stream and few of ph_pairs. A table without them passes.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernel_bed.h"

#define REF ph_pairs_ref

enum { DEPTH = 320, ROOM = PH_PARTS * PH_WIDE * DEPTH };

static _Alignas(PH_ALIGN) uint16_t left[ROOM], right[ROOM];

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

static void split_at(const ph_pairs *p, const char *name, ph_dtype type, int lines, int k,
                     int form, int kind)
{
    static uint16_t want[ROOM];
    int along = form & 1, pairs = form >> 1, size = type == PH_F32 ? 4 : 2;
    int rows = along ? lines : k, n = along ? k : lines, stride = n + bed_below(4);
    int tiles = 2 * ph_div_up(k, PH_STEP) * PH_TILE * PH_STEP;
    size_t count = (size_t)((rows - 1) * stride + n);
    bed_say("%s pairs_split type %d lines=%d k=%d along %d pairs %d", name, type, lines,
            k, along, pairs);
    void *from = bed_place(0, count * (size_t)size, side());
    fill(from, type, (int64_t)count, kind);
    uint16_t *got = bed_place(1, (size_t)(PH_PARTS * tiles) * sizeof *got, side());
    int parts = REF.split(want, from, type, stride, lines, k, along, pairs);
    int found = p->split(got, from, type, stride, lines, k, along, pairs);
    if (found != parts) bed_fail("%d parts, expected %d", found, parts);
    for (int i = 0; i < parts * tiles; i++)
        if (got[i] != want[i] && !(is_nan(got[i]) && is_nan(want[i])))
            bed_fail("number %d is %04x, expected %04x", i, got[i], want[i]);
    bed_intact(0);
    bed_intact(1);
}

/* The parts of a number are that number. */
static void split_is_exact(void)
{
    static uint16_t to[PH_PARTS * PH_WIDE * PH_STEP];
    float x[PH_STEP];
    bed_fill(x, PH_STEP, BED_WIDE);
    int parts = REF.split(to, x, PH_F32, PH_STEP, 1, PH_STEP, 1, 0);
    for (int i = 0; i < PH_STEP; i++) {
        double sum = 0;
        for (int p = 0; p < parts; p++)
            sum +=
                ph_from_bf16(to[p * PH_WIDE * PH_STEP + i % PH_TILE * 2 + i / PH_TILE]);
        if (sum != x[i]) bed_fail("the parts of %a are %a", (double)x[i], sum);
    }
}

void check_pairs_split(const ph_kernels *t)
{
    if (!t->pairs) return;
    for (int i = 0; i < 40; i++) split_is_exact();
    for (int k = 1; k <= 100; k += k < 70 ? 1 : 13)
        for (int form = 0; form < 4; form++)
            for (int type = 0; type < 2; type++) {
                int lines = 1 + bed_below(PH_WIDE), kind = bed_below(BED_KINDS);
                split_at(t->pairs, t->name, type ? PH_BF16 : PH_F32, lines, k, form,
                         kind);
            }
}

void bench_pairs_split(const ph_kernels *t)
{
    static _Alignas(PH_ALIGN) float x[PH_WIDE * DEPTH];
    if (!t->pairs) return;
    for (int form = 0; form < 4; form++)
        for (int type = 0; type < 2; type++) {
            char shape[40];
            bed_timer timer;
            int along = form & 1, pairs = form >> 1;
            bed_fill(x, PH_WIDE * DEPTH, BED_PLAIN);
            BED_TIME(&timer,
                     t->pairs->split(left, x, type ? PH_BF16 : PH_F32,
                                     along ? 128 : PH_WIDE, PH_WIDE, 128, along, pairs));
            snprintf(shape, sizeof shape, "32 x 128, %s%s%s", type ? "bf16" : "f32",
                     along ? ", along" : "", pairs ? ", pairs" : "");
            bed_report("pairs_split", t, shape, &timer, 0, 0);
        }
}

/* ---- multiply ---------------------------------------------------------------------- */

/* Both operands for k steps of numbers, with 1 or PH_PARTS parts. */
static void operands(int k, int a_parts, int b_parts, int kind)
{
    static float x[PH_WIDE * DEPTH];
    bed_fill(x, PH_WIDE * k, kind);
    for (int i = 0; i < PH_WIDE * k && a_parts == 1; i++)
        x[i] = ph_from_bf16(ph_to_bf16(x[i]));
    REF.split(left, x, PH_F32, k, PH_WIDE, k, 1, 0);
    bed_fill(x, PH_WIDE * k, kind);
    for (int i = 0; i < PH_WIDE * k && b_parts == 1; i++)
        x[i] = ph_from_bf16(ph_to_bf16(x[i]));
    REF.split(right, x, PH_F32, PH_WIDE, PH_WIDE, k, 0, 1);
}

static void multiply_at(const ph_pairs *p, const char *name, int m, int k, int a_parts,
                        int b_parts)
{
    static float want[PH_WIDE * 40];
    int steps = ph_div_up(k, PH_STEP), ld = PH_WIDE + 4 * bed_below(3);
    int rows = m <= PH_TILE ? m : PH_WIDE, add = bed_below(2);
    bed_say("%s pairs_multiply m=%d k=%d parts %d %d add %d", name, m, k, a_parts,
            b_parts, add);
    bed_fill(want, rows * ld, BED_PLAIN);
    float *c = bed_copy(0, want, (rows - 1) * ld + PH_WIDE, side());
    ph_operand a = ph_split_operand(left, a_parts, steps);
    ph_operand b = ph_split_operand(right, b_parts, steps);
    REF.multiply(m, steps, &a, &b, want, ld, add);
    p->begin(ph_min(m, PH_TILE));
    p->multiply(m, steps, &a, &b, c, ld, add);
    p->end();
    for (int i = 0; i < m; i++) bed_same("c", c + i * ld, want + i * ld, PH_WIDE);
    bed_intact(0);
}

void check_pairs_multiply(const ph_kernels *t)
{
    if (!t->pairs) return;
    for (int k = 1; k <= DEPTH; k += k < 34 ? 4 : 21)
        for (int form = 0; form < 4; form++) {
            int a_parts = form & 1 ? PH_PARTS : 1, b_parts = form & 2 ? PH_PARTS : 1;
            operands(k, a_parts, b_parts, (k + form) % BED_KINDS);
            multiply_at(t->pairs, t->name, 1 + bed_below(PH_WIDE), k, a_parts, b_parts);
            multiply_at(t->pairs, t->name, PH_WIDE, k, a_parts, b_parts);
        }
}

void bench_pairs_multiply(const ph_kernels *t)
{
    static _Alignas(PH_ALIGN) float c[PH_WIDE * PH_WIDE];
    if (!t->pairs) return;
    for (int form = 0; form < 4; form++) {
        char shape[40];
        bed_timer timer;
        int a_parts = form & 1 ? PH_PARTS : 1, b_parts = form & 2 ? PH_PARTS : 1;
        operands(128, a_parts, b_parts, BED_PLAIN);
        ph_operand a = ph_split_operand(left, a_parts, 128 / PH_STEP);
        ph_operand b = ph_split_operand(right, b_parts, 128 / PH_STEP);
        t->pairs->begin(PH_TILE);
        BED_TIME(&timer,
                 t->pairs->multiply(PH_WIDE, 128 / PH_STEP, &a, &b, c, PH_WIDE, 0));
        t->pairs->end();
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
static void stream_at(const ph_pairs *p, const char *name, int few, int m, int n, int k,
                      int a_parts, int kind)
{
    static float want[PH_WIDE * (WIDTH + 8)];
    int ldb = n + bed_below(4), ldc = ph_round_up(n, PH_TILE) + 4 * bed_below(3);
    int rows = m <= PH_TILE ? m : PH_WIDE, steps = ph_div_up(k, PH_STEP);
    bed_say("%s pairs_%s m=%d n=%d k=%d parts %d kind %d", name, few ? "few" : "stream",
            m, n, k, a_parts, kind);
    operands(k, a_parts, 1, kind);
    float *b = bed_floats(0, (int64_t)(k - 1) * ldb + n, side());
    bed_fill(b, (int64_t)(k - 1) * ldb + n, kind);
    sprinkle(b, k, n, ldb);
    bed_fill(want, rows * ldc, BED_PLAIN);
    float *c = bed_copy(1, want, (rows - 1) * ldc + ph_round_up(n, PH_TILE), side());
    ph_operand a = ph_split_operand(left, a_parts, steps);
    REF.stream(m, n, k, &a, b, ldb, want, ldc);
    int done = few ? p->few(m, n, k, &a, b, ldb, c, ldc) : 1;
    if (!few) {
        p->begin(ph_min(m, PH_TILE));
        p->stream(m, n, k, &a, b, ldb, c, ldc);
        p->end();
    }
    for (int i = 0; i < m && done; i++) bed_same("c", c + i * ldc, want + i * ldc, n);
    if (!done && (kind == BED_PLAIN || kind == BED_WIDE)) bed_fail("nothing is small");
    bed_intact(0);
    bed_intact(1);
}

/* The reference is what split and multiply make of it. */
static void stream_means(int m, int n, int k)
{
    static float b[DEPTH * PH_WIDE], want[PH_WIDE * PH_WIDE], got[PH_WIDE * PH_WIDE];
    bed_say("stream of the reference, m=%d n=%d k=%d", m, n, k);
    operands(k, PH_PARTS, 1, BED_WIDE);
    bed_fill(b, k * n, BED_WIDE);
    bed_fill(want, PH_WIDE * PH_WIDE, BED_PLAIN);
    memcpy(got, want, sizeof got);
    int steps = ph_div_up(k, PH_STEP), parts = REF.split(right, b, PH_F32, n, n, k, 0, 1);
    ph_operand a = ph_split_operand(left, PH_PARTS, steps);
    ph_operand tiles = ph_split_operand(right, parts, steps);
    REF.multiply(m, steps, &a, &tiles, want, PH_WIDE, 1);
    REF.stream(m, n, k, &a, b, n, got, PH_WIDE);
    for (int i = 0; i < m; i++) bed_same("c", got + i * PH_WIDE, want + i * PH_WIDE, n);
}

void check_pairs_stream(const ph_kernels *t)
{
    if (!t->pairs) return;
    for (int i = 0; i < 10; i++)
        stream_means(1 + bed_below(PH_WIDE), 1 + bed_below(PH_WIDE),
                     1 + bed_below(DEPTH));
    for (int m = 1; m <= PH_WIDE; m += EVERY)
        for (int form = 0; form < 4; form++)
            stream_at(t->pairs, t->name, 0, m, 1 + bed_below(WIDTH), 1 + bed_below(DEPTH),
                      form & 1 ? PH_PARTS : 1, (m + form / 2) % BED_KINDS);
}

static void bench_once(const ph_kernels *t, int few)
{
    static _Alignas(PH_ALIGN) float b[DEPTH * WIDTH], c[PH_WIDE * WIDTH];
    for (int form = 0; form < 8; form++) {
        char shape[40];
        bed_timer timer;
        int a_parts = form & 1 ? PH_PARTS : 1, exact = form & 2;
        int m = form & 4 ? (few ? PH_FEW : PH_TILE) : 1;
        operands(128, a_parts, 1, BED_PLAIN);
        ph_operand a = ph_split_operand(left, a_parts, 128 / PH_STEP);
        bed_fill(b, 128 * 64, BED_PLAIN);
        for (int i = 0; i < 128 * 64 && exact; i++) b[i] = ph_from_bf16(ph_to_bf16(b[i]));
        memset(c, 0, sizeof c);
        if (!few) t->pairs->begin(m);
        if (few)
            BED_TIME(&timer, t->pairs->few(m, 64, 128, &a, b, 64, c, 64));
        else
            BED_TIME(&timer, t->pairs->stream(m, 64, 128, &a, b, 64, c, 64));
        if (!few) t->pairs->end();
        snprintf(shape, sizeof shape, "%d x 64 x 128, parts %d %d", m, a_parts,
                 exact ? 1 : PH_PARTS);
        bed_report(few ? "pairs_few" : "pairs_stream", t, shape, &timer, 0,
                   128 * 64 * sizeof *b);
    }
}

void bench_pairs_stream(const ph_kernels *t)
{
    if (t->pairs) bench_once(t, 0);
}

/* ---- few --------------------------------------------------------------------------- */

/* Sums whose small numbers only show in one place: an operand, a part, a product, a sum
   of chains, the result; or just not small. */
static void small_at(const ph_pairs *p, float a0, float b0, float a1, float b1, float c0)
{
    float x[PH_STEP] = {0}, b[PH_STEP * PH_TILE] = {0};
    float c[PH_TILE] = {c0}, want[PH_TILE] = {c0};
    x[0] = a0, x[PH_TILE - 1] = a1, b[0] = b0, b[(PH_TILE - 1) * PH_TILE] = b1;
    bed_say("pairs_few %a %a + %a %a + %a", (double)a0, (double)b0, (double)a1,
            (double)b1, (double)c0);
    int parts = REF.split(left, x, PH_F32, PH_STEP, 1, PH_STEP, 1, 0);
    ph_operand a = ph_split_operand(left, parts, 1);
    REF.stream(1, PH_TILE, PH_STEP, &a, b, PH_TILE, want, PH_TILE);
    if (p->few(1, PH_TILE, PH_STEP, &a, b, PH_TILE, c, PH_TILE))
        bed_same("c", c, want, 1);
    c[0] = c0;
    p->begin(1);
    p->stream(1, PH_TILE, PH_STEP, &a, b, PH_TILE, c, PH_TILE);
    p->end();
    bed_same("c of stream", c, want, 1);
}

static void check_small(const ph_pairs *p)
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

void check_pairs_few(const ph_kernels *t)
{
    if (!t->pairs) return;
    check_small(t->pairs);
    for (int k = 1; k <= DEPTH; k += k < 66 ? EVERY : 13)
        for (int form = 0; form < 8; form++)
            stream_at(t->pairs, t->name, 1, 1 + form % PH_FEW, 1 + bed_below(WIDTH), k,
                      form & 2 ? PH_PARTS : 1, (k + form / 4) % BED_KINDS);
}

void bench_pairs_few(const ph_kernels *t)
{
    if (t->pairs) bench_once(t, 1);
}
