/*
 * kernel_values.c - results over all values of a type: exp2, tanh, f16 and bf16.
 *
 * exp2 is seen through `weights` (and `softmax`), tanh through `softcap`, conversions
 * through load_row and store_row, all in comparison with definitions in double that share
 * nothing with the library. Usually every STRIDE-th float is tried; with
 * bed_all each one is.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "kernel_bed.h"

enum { CHUNK = 4096, STRIDE = 509 };

int bed_all;

/* ---- floats one after the other ---------------------------------------------------- */

/* The largest error of a function over a range. */
typedef struct worst {
    double ulps;
    float x;
} worst;

/* Distance of `got` from `want` in units of the last place of a float near `want`. */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, exponent > -125 ? exponent - 24 : -149);
}

/* The next CHUNK floats from the bits *at on, below `end`; the last one fills up. */
static int next_chunk(float *x, uint32_t *at, uint32_t end)
{
    uint32_t stride = bed_all ? 1 : STRIDE * EVERY;
    int count = 0;
    for (; count < CHUNK && *at < end; count++, *at += stride) x[count] = ph_float(*at);
    for (int i = count; i < CHUNK && count; i++) x[i] = x[count - 1];
    return count;
}

static void note(worst *w, float x, float got, double want)
{
    double error = ulps(got, want);
    if (!(error <= w->ulps)) *w = (worst){error, x};
}

/* ---- exp2 -------------------------------------------------------------------------- */

/* softmax with row_max 0 must do what weights does with lse 0 */
static void same_in_softmax(const ph_kernels *t, const float *x, const float *y)
{
    float s[PH_STRIP_LD], lane_max[PH_LANES], sum[PH_LANES] = {0}, row_max = 0, rescale;
    memcpy(s, x, sizeof s);
    for (int i = 0; i < PH_LANES; i++) lane_max[i] = 0;
    t->softmax(1, PH_STRIP_LD, s, lane_max, &row_max, sum, &rescale);
    bed_same("softmax", s, y, PH_STRIP_LD);
}

static void sweep_exp2(const ph_kernels *t, uint32_t from, uint32_t end, worst *w)
{
    static float x[CHUNK], y[CHUNK], ref[CHUNK];
    for (int count; (count = next_chunk(x, &from, end)) > 0;) {
        memcpy(y, x, sizeof x);
        memcpy(ref, x, sizeof x);
        t->weights(CHUNK, y, 0.0f);
        ph_kernels_ref.weights(CHUNK, ref, 0.0f);
        bed_same("2^x", y, ref, count);
        for (int i = 0; i < count; i++) {
            if (x[i] >= -126.5f)
                note(w, x[i], y[i], exp2((double)x[i]));
            else if (ph_bits(y[i]) != 0)
                bed_fail("2^%a is %a, expected 0", (double)x[i], (double)y[i]);
        }
        if (x[0] <= 0) same_in_softmax(t, x, y);
    }
}

/* Every float near a place where the method changes course. */
static void seam(const ph_kernels *t, float at, int is_tanh)
{
    float x[64], y[64], ref[64], lane_max[PH_LANES];
    for (uint32_t i = 0; i < 64; i++) x[i] = ph_float(ph_bits(at) - 32 + i);
    memcpy(y, x, sizeof x);
    memcpy(ref, x, sizeof x);
    if (is_tanh) {
        t->softcap(1, 64, y, 1.0f, lane_max, NULL);
        ph_kernels_ref.softcap(1, 64, ref, 1.0f, lane_max, NULL);
    } else {
        t->weights(64, y, 0.0f);
        ph_kernels_ref.weights(64, ref, 0.0f);
    }
    bed_same(is_tanh ? "tanh at a seam" : "2^x at a seam", y, ref, 64);
}

void check_exp2(const ph_kernels *t)
{
    worst w = {0, 0};
    bed_say("%s exp2", t->name);
    sweep_exp2(t, 0x80000000u, ph_bits(-130.0f) + 1, &w); /* -0 down to -130 */
    sweep_exp2(t, 0, ph_bits(0.5f), &w); /* a maximum that was rounded down */
    for (int i = 1; i <= 260; i++)
        seam(t, (float)i * -0.5f, 0); /* nearest whole number */
    float ends[16] = {-INFINITY, -130, -127, -126.6f, -1e30f, 0, -0.0f, -1, -2, -126};
    t->weights(16, ends, 0.0f);
    const float expected[10] = {0, 0, 0, 0, 0, 1, 1, 0.5f, 0.25f, 0x1p-126f};
    bed_same("2^x", ends, expected, 10);
    if (bed_all) printf("    %s exp2: %.3f ulp at %a\n", t->name, w.ulps, (double)w.x);
    if (!(w.ulps < 2.1)) bed_fail("2^%a is wrong by %.3f ulp", (double)w.x, w.ulps);
}

/* ---- tanh -------------------------------------------------------------------------- */

static double tanh_double(double x)
{
    double z = x * x; /* the library's tanh is slow near 0, where three terms are exact */
    return x < 1e-3 ? x - x * z * (1.0 / 3 - z * (2.0 / 15)) : tanh(x);
}

/* 1 - tanh^2 to a few units of its own last place, and of those of the exponent. */
static void check_derivative(float x, float derivative)
{
    double root = 1 / cosh((double)x), exact = root * root;
    if (!(fabs(derivative - exact) <= 0x1p-23 * (6 + 3 * fabs((double)x)) * exact))
        bed_fail("the derivative of tanh at %a is %a, expected %a", (double)x,
                 (double)derivative, exact);
}

void check_tanh(const ph_kernels *t)
{
    static float x[CHUNK], y[CHUNK], opposite[CHUNK], ref[CHUNK], derivative[CHUNK];
    float lane_max[PH_LANES];
    uint32_t at = 1;
    worst w = {0, 0};
    bed_say("%s tanh", t->name);
    for (int count; (count = next_chunk(x, &at, ph_bits(20.0f))) > 0;) {
        for (int i = 0; i < CHUNK; i++) opposite[i] = -x[i];
        memcpy(y, x, sizeof x);
        t->softcap(1, CHUNK, y, 1.0f, lane_max, derivative);
        t->softcap(1, CHUNK, opposite, 1.0f, lane_max, NULL);
        memcpy(ref, x, sizeof x);
        ph_kernels_ref.softcap(1, CHUNK, ref, 1.0f, lane_max, NULL);
        bed_same("tanh", y, ref, count);
        for (int i = 0; i < count; i++) {
            note(&w, x[i], y[i], tanh_double((double)x[i]));
            check_derivative(x[i], derivative[i]);
            if (ph_bits(opposite[i]) != (ph_bits(y[i]) ^ 0x80000000u))
                bed_fail("tanh(-%a) is not -tanh(%a)", (double)x[i], (double)x[i]);
        }
    }
    seam(t, 0.6f, 1);
    seam(t, -0.6f, 1);
    float ends[16] = {INFINITY, -INFINITY, 0, 100, -1e30f, NAN};
    t->softcap(1, 16, ends, 5.0f, lane_max, derivative);
    const float flat[6] = {0, 0, 1, derivative[3], 0, 0};
    bed_same("its derivative", derivative, flat, 6);
    const float expected[6] = {5, -5, 0, 5, -5, NAN};
    bed_same("5 tanh(x/5)", ends, expected, 6);
    if (bed_all) printf("    %s tanh: %.3f ulp at %a\n", t->name, w.ulps, (double)w.x);
    if (!(w.ulps < 3)) bed_fail("tanh(%a) is wrong by %.3f ulp", (double)w.x, w.ulps);
}

/* ---- halves: the definitions ------------------------------------------------------- */

/* A half has `digits` fraction bits and a smallest normal number of 2^low. */
typedef struct format {
    ph_dtype type;
    int digits, low, high; /* numbers from 2^high on are infinite */
    const char *name;
} format;

static const format formats[] = {{PH_F16, 10, -14, 16, "f16"},
                                 {PH_BF16, 7, -126, 128, "bf16"}};

static double value_of(const format *f, uint16_t code)
{
    int fields = 1 << f->digits, exponent = (code & 0x7fff) / fields,
        fraction = code % fields;
    double sign = code & 0x8000 ? -1 : 1;
    if (exponent == f->high - f->low + 1) return fraction ? (double)NAN : sign * HUGE_VAL;
    if (exponent == 0) return sign * ldexp(fraction, f->low - f->digits);
    return sign * ldexp(fields + fraction, f->low - 1 + exponent - f->digits);
}

/* Nearest, ties to even: rint does that, in units of the last place. */
static uint16_t code_of(const format *f, float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0, fields = (uint16_t)(1 << f->digits);
    uint16_t infinite = (uint16_t)((f->high - f->low + 1) * fields);
    int exponent;
    if (isnan(x)) return (uint16_t)(infinite + fields / 2);
    if (isinf(x)) return sign | infinite;
    frexp(fabs((double)x), &exponent);
    exponent = x == 0 || exponent - 1 < f->low ? f->low : exponent - 1;
    int units = (int)rint(ldexp(fabs((double)x), f->digits - exponent));
    int code = units + (exponent - f->low) * fields; /* a carry moves on by itself */
    return sign | (uint16_t)(code < infinite ? code : infinite);
}

static int is_nan_code(const format *f, uint16_t code)
{
    return (code & 0x7fff) > (f->high - f->low + 1) << f->digits;
}

/* ---- halves: all of them ----------------------------------------------------------- */

void check_from_halves(const ph_kernels *t)
{
    static uint16_t codes[65536];
    static float x[65536];
    for (int i = 0; i < 65536; i++) codes[i] = (uint16_t)i;
    for (int i = 0; i < 2; i++) {
        const format *f = &formats[i];
        bed_say("%s from %s", t->name, f->name);
        t->load_row(x, codes, 0, 65536, f->type, 1.0f);
        for (int c = 0; c < 65536; c++) {
            float one =
                f->type == PH_F16 ? ph_from_f16(codes[c]) : ph_from_bf16(codes[c]);
            if (!bed_equal(x[c], (float)value_of(f, codes[c])) || !bed_equal(one, x[c]))
                bed_fail("%04x is %a, half.h has %a, expected %a", (unsigned)c,
                         (double)x[c], (double)one, value_of(f, codes[c]));
        }
    }
}

/* store_row makes +0 of -0 but keeps the sign of what underflows */
static void to_halves(const ph_kernels *t, const format *f, const float *x, int count,
                      int check_definition)
{
    static uint16_t got[CHUNK];
    t->store_row(got, x, count, f->type, 1.0f);
    for (int i = 0; i < count; i++) {
        uint16_t one = f->type == PH_F16 ? ph_to_f16(x[i]) : ph_to_bf16(x[i]);
        uint16_t want = check_definition ? code_of(f, x[i]) : one, kernel = got[i];
        if (is_nan_code(f, want) && is_nan_code(f, one) && is_nan_code(f, kernel))
            continue;
        if (x[i] == 0 ? kernel != 0 || (one & 0x7fff) : kernel != want || one != want)
            bed_fail("%a becomes %04x, half.h has %04x, expected %04x", (double)x[i],
                     (unsigned)kernel, (unsigned)one, (unsigned)want);
    }
}

/* Each half, the middle between it and the next, and the neighbours of both. */
static void ties(const ph_kernels *t, const format *f)
{
    static float x[CHUNK];
    int count = 0;
    for (int c = 0; c < 65536; c++) {
        uint32_t here = ph_bits((float)value_of(f, (uint16_t)c));
        uint32_t middle = here + (0x400000u >> f->digits);
        if ((c & 0x7fff) < 1 << f->digits) /* subnormal: even steps of the value */
            middle = ph_bits((float)((c & 0x8000 ? -1 : 1) *
                                     ldexp((c & 0x7fff) + 0.5, f->low - f->digits)));
        for (uint32_t step = 0; step < 3; step++) {
            x[count++] = ph_float(here + step - 1);
            x[count++] = ph_float(middle + step - 1);
        }
        if (count + 6 <= CHUNK && c < 65535) continue;
        to_halves(t, f, x, count, 1);
        count = 0;
    }
}

void check_to_halves(const ph_kernels *t)
{
    static float x[CHUNK];
    for (int i = 0; i < 2; i++) {
        bed_say("%s to %s", t->name, formats[i].name);
        ties(t, &formats[i]);
        for (int round = 0; round < 64; round++) {
            for (int c = 0; c < CHUNK; c++) x[c] = ph_float((uint32_t)bed_random());
            to_halves(t, &formats[i], x, CHUNK, 1);
        }
        for (uint64_t at = 0; bed_all && at < 1ull << 32; at += CHUNK) {
            for (uint32_t c = 0; c < CHUNK; c++) x[c] = ph_float((uint32_t)at + c);
            to_halves(t, &formats[i], x, CHUNK, at / CHUNK % 16 == 0);
        }
    }
}
