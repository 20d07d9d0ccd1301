/*
 * stored_copy.c - see stored_copy.h.
 */
#include "stored_copy.h"

#include <math.h>
#include <string.h>

#include "base/quant.h"
#include "guard.h"

void stored_halves(uint8_t *block, ph_dtype type, uint16_t scale, uint16_t least)
{
    memcpy(block + (type == PH_Q6_K ? 208 : 0), &scale, 2);
    if (type == PH_Q4_1 || type == PH_Q4_K || type == PH_Q5_K)
        memcpy(block + 2, &least, 2);
}

static int nearest(float x, float step, int most)
{
    int n = step > 0 ? (int)lrintf(x / step) : 0;
    return n < 0 ? 0 : n > most ? most : n;
}

/* a and b of sub-block u of eight, six bits each. */
static void put_steps(uint8_t *y, int u, int a, int b)
{
    if (u < 4) {
        y[u] = (uint8_t)a, y[u + 4] = (uint8_t)b;
        return;
    }
    y[u + 4] = (uint8_t)(a % 16 | b % 16 << 4);
    y[u - 4] |= (uint8_t)(a / 16 << 6), y[u] |= (uint8_t)(b / 16 << 6);
}

/* n of element e. */
static void put_bits(uint8_t *block, ph_dtype type, int e, int n)
{
    const ph_k_bits at = ph_k_bits_of(type, e / 32);
    block[at.nibble + e % 32] |= (uint8_t)(n % 16 << at.shift);
    if (type != PH_Q4_K) block[at.high + e % 32] |= (uint8_t)(n / 16 << at.high_shift);
}

/* 256 floats as a block with minima: 63 steps to the widest range and to the least. */
static void put_k_block(uint8_t *to, ph_dtype type, const float *x)
{
    const int most = type == PH_Q4_K ? 15 : 31;
    float range[8], least[8], widest = 0, lowest = 0;
    for (int u = 0; u < 8; u++) {
        float high = least[u] = 0;
        for (int i = 0; i < 32; i++)
            least[u] = fminf(least[u], x[32 * u + i]), high = fmaxf(high, x[32 * u + i]);
        range[u] = (high - least[u]) / (float)most;
        widest = fmaxf(widest, range[u]), lowest = fmaxf(lowest, -least[u]);
    }
    const uint16_t s = ph_to_f16(widest / 63), m = ph_to_f16(lowest / 63);
    stored_halves(to, type, s, m);
    for (int u = 0; u < 8; u++) {
        int a = nearest(range[u], ph_from_f16(s), 63);
        int b = nearest(-least[u], ph_from_f16(m), 63);
        put_steps(to + 4, u, a, b);
        for (int i = 32 * u; i < 32 * u + 32; i++)
            put_bits(to, type, i,
                     nearest(x[i] + ph_from_f16(m) * (float)b, ph_from_f16(s) * (float)a,
                             most));
    }
}

/* The same without: a is negative for every other 16. */
static void put_q6_k(uint8_t *to, const float *x)
{
    float most[16] = {0}, all = 0;
    for (int i = 0; i < 256; i++) most[i / 16] = fmaxf(most[i / 16], fabsf(x[i]));
    for (int j = 0; j < 16; j++) all = fmaxf(all, most[j]);
    const uint16_t half = ph_to_f16(all / 31 / 127);
    stored_halves(to, PH_Q6_K, half, 0);
    for (int i = 0; i < 256; i++) {
        int a = nearest(most[i / 16] / 31, ph_from_f16(half), 127),
            sign = 1 - i / 16 % 2 * 2;
        to[192 + i / 16] = (uint8_t)(a * sign);
        float step = ph_from_f16(half) * (float)a;
        put_bits(to, PH_Q6_K, i, nearest(x[i] * (float)sign + 32 * step, step, 63));
    }
}

/* 32 floats as one block; round to nearest, the largest magnitude sets the scale. */
static void put_block(uint8_t *to, ph_dtype type, const float *x)
{
    float low = x[0], high = x[0];
    for (int i = 1; i < 32; i++) low = fminf(low, x[i]), high = fmaxf(high, x[i]);
    float most = fmaxf(fabsf(low), fabsf(high));
    float scale = type == PH_Q8_0   ? most / 127
                  : type == PH_Q4_0 ? most / 7
                                    : (high - low) / 15;
    uint16_t half = ph_to_f16(scale), least = ph_to_f16(low);
    scale = ph_from_f16(half), low = type == PH_Q4_1 ? ph_from_f16(least) : 0;
    memcpy(to, &half, 2);
    if (type == PH_Q4_1) memcpy(to + 2, &least, 2);
    memset(to + (type == PH_Q4_1 ? 4 : 2), 0, type == PH_Q8_0 ? 32 : 16);
    for (int i = 0; i < 32; i++) {
        int n = scale > 0 ? (int)lrintf((x[i] - low) / scale) : 0;
        if (type == PH_Q8_0)
            to[2 + i] = (uint8_t)(n < -127 ? -127 : n > 127 ? 127 : n);
        else {
            int least_n = type == PH_Q4_0 ? -8 : 0;
            n = n < least_n ? 0 : n > least_n + 15 ? 15 : n - least_n;
            to[(type == PH_Q4_1 ? 4 : 2) + i % 16] |= (uint8_t)(n << i / 16 * 4);
        }
    }
}

void *stored_copy(const float *x, size_t count, ph_dtype type)
{
    uint8_t *to = guard_alloc(ph_dtype_bytes(type, count));
    if (ph_dtype_is_k(type)) memset(to, 0, ph_dtype_bytes(type, count));
    for (size_t i = 0; i < count; i++) {
        uint16_t half = type == PH_BF16 ? ph_to_bf16(x[i]) : ph_to_f16(x[i]);
        if (type == PH_F32)
            memcpy(to + 4 * i, x + i, 4);
        else if (!ph_dtype_is_block(type))
            memcpy(to + 2 * i, &half, 2);
        else if (type == PH_Q6_K && i % 256 == 0)
            put_q6_k(to + ph_dtype_bytes(type, i), x + i);
        else if (ph_dtype_is_k(type) && i % 256 == 0)
            put_k_block(to + ph_dtype_bytes(type, i), type, x + i);
        else if (!ph_dtype_is_k(type) && i % 32 == 0)
            put_block(to + ph_dtype_bytes(type, i), type, x + i);
    }
    return to;
}
