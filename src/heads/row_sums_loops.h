/*
 * row_sums_loops.h - the pass of row_sums.h; included once per instruction set, ROW_SUMS
 * names the function.
 *
 * A row of 4,000 keys is read once per head and token, so this is where the time of a
 * survey goes. The sums run in LANES lanes, lane = key mod LANES, without a branch and
 * without a call, so that compilers vectorise them; the lanes are added in order. Nothing
 * is contracted, so all instruction sets give the same bits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "heads/row_sums.h"

enum { LANES = 16 };

typedef struct lanes {
    double sum[LANES], entropy[LANES], distance[LANES];
    float largest[LANES], smallest[LANES]; /* beside 0 */
} lanes;

/*
 * log of the float with these bits, 0 < w < Inf: w = m 2^e, m in [sqrt(1/2), sqrt(2)),
 * log m = 2 atanh s, s = (m - 1) / (m + 1). z = s^2 < 0.0295, so the first omitted term,
 * z^5 / 11, is below 2^-28. In float, u = 2^-24: m - 1 is exact, m + 1, the quotient and
 * the last sum of log m are rounded once each, the rest is below u / 2, so log m is off
 * by 3.5 u |log m| at most. e is 0 wherever log m could cancel e log 2; elsewhere |log m|
 * <= |log w| and |e| log 2 <= 2 |log w|, with one rounding for the product and one for
 * the sum: the relative error is below (3.5 + 2.2 + 1) u < 7 u. Weights of a model are
 * off by as much or more, and a division in double would take most of a survey's time. 0
 * gives a finite value. Subnormal w give the log of another one below 2^-126, which moves
 * w log w by less than 2e-37.
 */
static inline float log_of_bits(uint32_t bits)
{
    const uint32_t root_half = 0x3f3504f3u; /* sqrt(1/2) */
    const float log_2 = 0.693147180559945309417f;
    int32_t e = (int32_t)(bits - root_half) >> 23;
    uint32_t mantissa = bits - ((uint32_t)e << 23);
    float m;
    memcpy(&m, &mantissa, sizeof m);
    float s = (m - 1) / (m + 1), z = s * s;
    float p = 1.0f / 9;
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    return (float)e * log_2 + 2 * (s + s * (z * p));
}

/* distance: of the block's first key from the position. */
static inline void add_block(lanes *t, const float *w, int distance)
{
    uint32_t bits[LANES];
    memcpy(bits, w, sizeof bits);
    for (int l = 0; l < LANES; l++) {
        double x = (double)w[l];
        t->largest[l] = w[l] > t->largest[l] ? w[l] : t->largest[l];
        t->smallest[l] = w[l] < t->smallest[l] ? w[l] : t->smallest[l];
        t->sum[l] += x;
        t->distance[l] += x * abs(distance + l);
        t->entropy[l] -= x * (double)log_of_bits(bits[l]);
    }
}

/* A NaN is in no maximum, and in the sum. */
static inline ph_row_sums sum_lanes(const lanes *t, float *largest)
{
    ph_row_sums r = {.good = 1};
    *largest = 0;
    for (int l = 0; l < LANES; l++) {
        r.sum += t->sum[l];
        r.entropy += t->entropy[l];
        r.distance += t->distance[l];
        r.good &= !(t->smallest[l] < 0);
        if (t->largest[l] > *largest) *largest = t->largest[l];
    }
    r.good &= *largest <= 1e30f && r.sum == r.sum;
    return r;
}

ph_row_sums ROW_SUMS(const float *w, int keys, int position)
{
    lanes t = {.sum = {0}};
    float last[LANES] = {0}, largest;
    int whole = keys - keys % LANES;
    for (int j = 0; j < whole; j += LANES) add_block(&t, w + j, j - position);
    if (whole < keys) { /* a weight of 0 adds nothing */
        memcpy(last, w + whole, (size_t)(keys - whole) * sizeof *w);
        add_block(&t, last, whole - position);
    }
    ph_row_sums r = sum_lanes(&t, &largest);
    while (r.good && r.best + 1 < keys && w[r.best] != largest) r.best++;
    return r;
}
