/*
 * number.c - decimal text to double and back, exactly, in any locale.
 *
 * Reading: the text is digits * 10^exponent. When both parts are small enough that a
 * double holds each of them exactly, one multiplication or division rounds once and is
 * right. Otherwise the value is a fraction of two big integers, divided bit by bit until
 * 53 bits and the remainder are known.
 *
 * strtod and printf are avoided for the decimal point, which depends on the locale of the
 * process; printf is still used for digits, and its point is skipped whatever it is.
 */
#include "io/number.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- big integers ------------------------------------------------------------------ */

/* Digits beyond this many can only break a tie, so any of them not 0 becomes a single 1.
   The longest exact tie of a double has 767 digits. */
enum { MAX_DIGITS = 770, MAX_LIMBS = 140 };

/* Largest value: 10^(DBL_DIG of the smallest subnormal, 324 + 770 + 1) needs 3,638 bits,
   and the division shifts by at most 64 + 53 more. 140 limbs are 4,480 bits. */
typedef struct big {
    int limbs; /* in use; the top one is not 0 */
    uint32_t limb[MAX_LIMBS];
} big;

static void big_mul_add(big *a, uint32_t factor, uint32_t addend)
{
    uint64_t carry = addend;
    for (int i = 0; i < a->limbs; i++) {
        carry += (uint64_t)a->limb[i] * factor;
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    if (carry) a->limb[a->limbs++] = (uint32_t)carry;
}

static void big_shift_left(big *a, int bits)
{
    int whole = bits / 32, part = bits % 32;
    if (a->limbs == 0) return;
    for (; part > 0; part = 0) big_mul_add(a, UINT32_C(1) << part, 0);
    memmove(a->limb + whole, a->limb, (size_t)a->limbs * sizeof a->limb[0]);
    memset(a->limb, 0, (size_t)whole * sizeof a->limb[0]);
    a->limbs += whole;
}

static void big_mul_power_of_ten(big *a, int power)
{
    for (; power >= 9; power -= 9) big_mul_add(a, 1000000000u, 0);
    for (; power > 0; power--) big_mul_add(a, 10, 0);
}

static int big_bits(const big *a)
{
    int bits = 0;
    if (a->limbs == 0) return 0;
    for (uint32_t top = a->limb[a->limbs - 1]; top; top >>= 1) bits++;
    return bits + 32 * (a->limbs - 1);
}

static int big_compare(const big *a, const big *b) /* <0, 0, >0 */
{
    if (a->limbs != b->limbs) return a->limbs < b->limbs ? -1 : 1;
    for (int i = a->limbs - 1; i >= 0; i--)
        if (a->limb[i] != b->limb[i]) return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

static void big_subtract(big *a, const big *b) /* a >= b */
{
    uint64_t borrow = 0;
    for (int i = 0; i < a->limbs; i++) {
        uint64_t take = borrow + (i < b->limbs ? b->limb[i] : 0);
        borrow = a->limb[i] < take;
        a->limb[i] = (uint32_t)(a->limb[i] - take);
    }
    while (a->limbs > 0 && a->limb[a->limbs - 1] == 0) a->limbs--;
}

/* ---- reading ----------------------------------------------------------------------- */

typedef struct decimal {
    int negative;
    int count;    /* significant digits, without leading zeros */
    int exponent; /* value = digits * 10^exponent */
    char digits[MAX_DIGITS + 1];
} decimal;

/* The exponent after 'e', held within +-100,000: beyond that every double is 0 or too
   large, whatever the digits, since those are fewer than the limit in any sane text. */
static long read_exponent(const char *text, size_t length)
{
    long value = 0;
    size_t i = length > 0 && (text[0] == '-' || text[0] == '+');
    for (; i < length; i++)
        if (value < 1000000000L) value = value * 10 + (text[i] - '0');
    return length > 0 && text[0] == '-' ? -value : value;
}

static int clamp_exponent(int64_t exponent)
{
    return exponent > 100000 ? 100000 : exponent < -100000 ? -100000 : (int)exponent;
}

static void read_decimal(const char *text, size_t length, decimal *out)
{
    int64_t exponent = 0;
    int fraction = 0, rest = 0;
    size_t i = text[0] == '-';
    out->negative = (int)i;
    out->count = 0;
    for (; i < length && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.') {
            fraction = 1;
            continue;
        }
        if (out->count < MAX_DIGITS) {
            if (out->count > 0 || text[i] != '0') out->digits[out->count++] = text[i];
            exponent -= fraction;
        } else {
            rest |= text[i] != '0';
            exponent += !fraction;
        }
    }
    if (i < length) exponent += read_exponent(text + i + 1, length - i - 1);
    if (rest) { /* one more digit stands for all that was cut off */
        out->digits[out->count++] = '1';
        exponent--;
    }
    out->exponent = clamp_exponent(exponent);
}

/* One rounding is exact: fewer than 2^53 and a power of ten that is a double. */
static int read_small(const decimal *in, double *out)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    uint64_t mantissa = 0;
    if (FLT_EVAL_METHOD != 0 || in->count > 15 || abs(in->exponent) > 22) return 0;
    for (int i = 0; i < in->count; i++)
        mantissa = mantissa * 10 + (uint64_t)(in->digits[i] - '0');
    *out = in->exponent < 0 ? (double)mantissa / power[-in->exponent]
                            : (double)mantissa * power[in->exponent];
    return 1;
}

/* top / bottom * 2^0 rounded to a double; both are destroyed. */
static double divide(big *top, big *bottom)
{
    /* Scale so that the quotient has 54 or 55 bits: 53, one to round, maybe one more.
       Subnormal numbers end at 2^-1074, so they get fewer. */
    int shift = 54 + big_bits(bottom) - big_bits(top);
    uint64_t quotient = 0;
    if (shift > 1075) shift = 1075; /* one bit below the last place that exists */
    big_shift_left(shift > 0 ? top : bottom, abs(shift));
    int steps = big_bits(top) - big_bits(bottom);
    if (steps < 0) steps = 0;
    big_shift_left(bottom, steps);
    for (int i = steps; i >= 0; i--) {
        quotient <<= 1;
        if (big_compare(top, bottom) >= 0) {
            big_subtract(top, bottom);
            quotient |= 1;
        }
        big_shift_left(top, 1); /* instead of halving bottom */
    }
    int extra = 0; /* bits below the last place */
    while (quotient >> extra >= UINT64_C(1) << 53) extra++;
    if (shift == 1075 && extra == 0) extra = 1;
    uint64_t half = extra ? UINT64_C(1) << (extra - 1) : 0;
    uint64_t below = quotient & ((UINT64_C(1) << extra) - 1), kept = quotient >> extra;
    if (below > half || (below == half && half && (top->limbs > 0 || (kept & 1)))) kept++;
    return ldexp((double)kept, extra - shift);
}

int ph_number_read(const char *text, size_t length, double *out)
{
    decimal in;
    double value = 0;
    read_decimal(text, length, &in);
    int magnitude = in.count + in.exponent; /* below 10^magnitude */
    if (in.count > 0 && magnitude > 310) return -1;
    if (in.count > 0 && magnitude > -330 && !read_small(&in, &value)) {
        big top = {0}, bottom = {1, {1}};
        for (int i = 0; i < in.count; i++)
            big_mul_add(&top, 10, (uint32_t)(in.digits[i] - '0'));
        big_mul_power_of_ten(in.exponent < 0 ? &bottom : &top, abs(in.exponent));
        value = divide(&top, &bottom);
        if (isinf(value)) return -1;
    }
    *out = in.negative ? -value : value;
    return 0;
}

static size_t skip_digits(const char *text, size_t length, size_t at)
{
    while (at < length && text[at] >= '0' && text[at] <= '9') at++;
    return at;
}

int ph_number_parse(const char *text, size_t length, double *out)
{
    size_t first = length > 0 && (text[0] == '-' || text[0] == '+');
    size_t at = skip_digits(text, length, first), digits = at - first;
    if (at < length && text[at] == '.') {
        size_t end = skip_digits(text, length, at + 1);
        digits += end - at - 1;
        at = end;
    }
    if (digits == 0) return -1;
    if (at < length && (text[at] == 'e' || text[at] == 'E')) {
        at++;
        if (at < length && (text[at] == '-' || text[at] == '+')) at++;
        size_t end = skip_digits(text, length, at);
        if (end == at) return -1;
        at = end;
    }
    if (at != length) return -1;
    size_t plus = text[0] == '+';
    return ph_number_read(text + plus, length - plus, out);
}

/* ---- printing ---------------------------------------------------------------------- */

/* "-d.ddde+xx" from printf into digits and exponent, whatever stands for the point. */
static int split(const char *printed, char *digits, int *exponent)
{
    int count = 0;
    const char *e = strchr(printed, 'e');
    for (const char *s = printed; s < e; s++)
        if (*s >= '0' && *s <= '9') digits[count++] = *s;
    while (count > 1 && digits[count - 1] == '0') count--;
    *exponent = (int)strtol(e + 1, NULL, 10);
    return count;
}

/* digits d.ddd * 10^exponent as people write it: plain near 1, else with an exponent. */
static int layout(int negative, const char *digits, int count, int exponent, char *text)
{
    int at = 0;
    int point = exponent >= 0 && exponent < 17 ? exponent + 1 : 1; /* digits before it */
    if (negative) text[at++] = '-';
    if (exponent < 0 && exponent >= -5) {
        at += sprintf(text + at, "0.%.*s", -exponent - 1, "0000");
        memcpy(text + at, digits, (size_t)count);
        at += count;
    } else {
        for (int i = 0; i < point || i < count; i++) {
            if (i == point) text[at++] = '.';
            text[at++] = i < count ? digits[i] : '0';
        }
        if (exponent < 0 || exponent >= 17) at += sprintf(text + at, "e%d", exponent);
    }
    text[at] = 0;
    return at;
}

/* Fewest digits that read back as the same value. A normal number that has a short form
   of at most `sure` digits shows it, followed by zeros, when printed with that many. */
static int print(double value, int sure, int most, int is_float,
                 char text[PH_NUMBER_TEXT])
{
    char printed[48], digits[40];
    int length = 0;
    if (!isfinite(value)) return sprintf(text, "null");
    for (int precision = sure; precision <= most; precision++) {
        double again = 0;
        int exponent = 0;
        snprintf(printed, sizeof printed, "%.*e", precision - 1, value);
        int count = split(printed, digits, &exponent);
        length = layout(signbit(value) != 0, digits, count, exponent, text);
        if (ph_number_read(text, (size_t)length, &again) != 0) continue;
        if (is_float ? (float)again == (float)value : again == value) break;
    }
    return length;
}

int ph_number_print(double value, char text[PH_NUMBER_TEXT])
{
    return print(value, fabs(value) >= DBL_MIN ? DBL_DIG : 1, 17, 0, text);
}

int ph_number_print_float(float value, char text[PH_NUMBER_TEXT])
{
    return print((double)value, fabsf(value) >= FLT_MIN ? FLT_DIG : 1, 9, 1, text);
}
