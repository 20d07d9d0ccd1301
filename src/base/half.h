/*
 * half.h - f16 and bf16 to and from f32, one element at a time, in integer arithmetic.
 *
 *     f16   1 sign, 5 exponent, 10 fraction      bf16   1 sign, 8 exponent, 7 fraction
 *
 * Rounding is to nearest, ties to even, as the vector instructions do it. A NaN stays a
 * NaN: its quiet bit is set so that truncation cannot make it Inf.
 */
#ifndef PH_BASE_HALF_H
#define PH_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ph_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ph_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float ph_from_bf16(uint16_t half)
{
    return ph_float((uint32_t)half << 16);
}

static inline uint16_t ph_to_bf16(float x)
{
    uint32_t bits = ph_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static inline float ph_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) { /* Inf, NaN (made quiet) */
        uint32_t nan = rest > 0x7c00u ? 0x400000u : 0;
        return ph_float(sign | 0x7f800000u | ((rest & 0x3ffu) << 13) | nan);
    }
    if (rest >= 0x400u) return ph_float(sign | ((rest << 13) + 0x38000000u));
    /* subnormal: fraction * 2^-24, exact in f32 */
    float value = (float)rest * 0x1p-24f;
    return ph_float(sign | ph_bits(value));
}

static inline uint16_t ph_to_f16(float x)
{
    uint32_t bits = ph_bits(x), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | ((rest >> 13) & 0x3ffu));
    if (rest >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to Inf */
    if (rest < 0x38800000u) { /* below 2^-14: let f32 addition round at 2^-24 */
        float shifted = ph_float(rest) + 0.5f;
        return (uint16_t)(sign | (ph_bits(shifted) - 0x3f000000u));
    }
    uint32_t odd = (rest >> 13) & 1u;
    return (uint16_t)(sign | ((rest - 0x38000000u + 0xfffu + odd) >> 13));
}

#endif
