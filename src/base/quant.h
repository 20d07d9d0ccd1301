/*
 * quant.h - block types: 32 consecutive elements of a row that share a scale.
 *
 *     Q8_0   f16 s, 32 int8           s * n
 *     Q4_0   f16 s, 16 bytes          s * (n - 8)      elements 0-15: the low nibbles,
 *     Q4_1   f16 s, f16 m, 16 bytes   s * n + m        16-31: the high ones
 *
 * s * n is exact in f32, so an element has one value however it is computed; s * n + m is
 * rounded once.
 */
#ifndef PH_BASE_QUANT_H
#define PH_BASE_QUANT_H

#include "base/dtype.h"
#include "base/half.h"

enum { PH_QUANT_BLOCK = 32, PH_Q8_0_BYTES = 34, PH_Q4_0_BYTES = 18, PH_Q4_1_BYTES = 20 };

static inline float ph_quant_f16(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return ph_from_f16(half);
}

/* Element i of a row of blocks. */
static inline float ph_quant_element(const void *row, ph_dtype type, int64_t i)
{
    const int bytes = type == PH_Q8_0   ? PH_Q8_0_BYTES
                      : type == PH_Q4_0 ? PH_Q4_0_BYTES
                                        : PH_Q4_1_BYTES;
    const uint8_t *block = (const uint8_t *)row + i / PH_QUANT_BLOCK * bytes;
    const int e = (int)(i % PH_QUANT_BLOCK), at = e % 16, shift = e / 16 * 4;
    const float scale = ph_quant_f16(block);
    if (type == PH_Q8_0) return scale * (float)(int8_t)block[2 + e];
    if (type == PH_Q4_0) return scale * (float)((block[2 + at] >> shift & 15) - 8);
    return scale * (float)(block[4 + at] >> shift & 15) + ph_quant_f16(block + 2);
}

/* Element i of a tensor of any type that matrices are stored in. */
static inline float ph_element(const void *x, ph_dtype type, int64_t i)
{
    if (type == PH_F32) return ((const float *)x)[i];
    if (ph_dtype_is_block(type)) return ph_quant_element(x, type, i);
    uint16_t half = ((const uint16_t *)x)[i];
    return type == PH_BF16 ? ph_from_bf16(half) : ph_from_f16(half);
}

#endif
