/*
 * quant.h - block types: 32 or 256 consecutive elements of a row that share a scale.
 *
 *     Q8_0   f16 s, 32 int8           s * n
 *     Q4_0   f16 s, 16 bytes          s * (n - 8)      elements 0-15: the low nibbles,
 *     Q4_1   f16 s, f16 m, 16 bytes   s * n + m        16-31: the high ones
 *
 * K types: eight sub-blocks of 32, each with a scale a and a minimum b of its own, or a
 * scale for every 16 elements (Q6_K). The bits of n are a nibble and, elsewhere in the
 * block, those above it (ph_k_bits).
 *
 *     Q4_K   f16 s, f16 m, 12 bytes of a, b, 128 of nibbles          s * a * n - m * b
 *     Q5_K   f16 s, f16 m, 12 bytes, 32 of fifth bits, 128 nibbles   the same
 *     Q6_K   128 bytes of nibbles, 64 of two bits, 16 int8 a, f16 s  s * a * (n - 32)
 *
 * Products with n, but for that of Q6_K, are exact in f32, so an element has one value
 * however it is computed: sums, and the product of Q6_K, are rounded once.
 */
#ifndef PH_BASE_QUANT_H
#define PH_BASE_QUANT_H

#include "base/dtype.h"
#include "base/half.h"

enum {
    PH_QUANT_BLOCK = 32,
    PH_Q8_0_BYTES = 34,
    PH_Q4_0_BYTES = 18,
    PH_Q4_1_BYTES = 20,
    PH_K_BLOCK = 256,
    PH_Q4_K_BYTES = 144,
    PH_Q5_K_BYTES = 176,
    PH_Q6_K_BYTES = 210
};

/* Elements of a block; 1: the type has no blocks. */
static inline int ph_quant_block(ph_dtype type)
{
    return ph_dtype_is_k(type)       ? PH_K_BLOCK
           : ph_dtype_is_block(type) ? PH_QUANT_BLOCK
                                     : 1;
}

static inline int ph_quant_bytes(ph_dtype type)
{
    return type == PH_Q8_0   ? PH_Q8_0_BYTES
           : type == PH_Q4_0 ? PH_Q4_0_BYTES
           : type == PH_Q4_1 ? PH_Q4_1_BYTES
           : type == PH_Q4_K ? PH_Q4_K_BYTES
           : type == PH_Q5_K ? PH_Q5_K_BYTES
                             : PH_Q6_K_BYTES;
}

static inline float ph_quant_f16(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return ph_from_f16(half);
}

/* ---- K types ---- */

/* Where sub-block u of eight has its bits: n of element l of 32 is
   (block[nibble + l] >> shift & 15) + 16 * (block[high + l] >> high_shift & high_mask) */
typedef struct ph_k_bits {
    int nibble, shift, high, high_shift, high_mask;
} ph_k_bits;

static inline ph_k_bits ph_k_bits_of(ph_dtype type, int u)
{
    if (type == PH_Q6_K)
        return (ph_k_bits){u / 4 * 64 + u % 2 * 32, u % 4 / 2 * 4, 128 + u / 4 * 32,
                           u % 4 * 2, 3};
    const int five = type == PH_Q5_K;
    return (ph_k_bits){(five ? 48 : 16) + u / 2 * 32, u % 2 * 4, 16, u, five};
}

enum { PH_Q6_K_SCALES = 192, PH_Q6_K_SCALE = 208 }; /* bytes: where a and s are */

static inline int ph_k_scale_at(ph_dtype type)
{
    return type == PH_Q6_K ? PH_Q6_K_SCALE : 0;
}

/* a and b of element e; Q6_K has no b. In the others those of sub-blocks 4 to 7 are cut
   into four bits and two. */
static inline void ph_k_steps(ph_dtype type, const uint8_t *block, int e, int *a, int *b)
{
    const uint8_t *y = block + 4;
    const int u = e / 32;
    *b = 0;
    if (type == PH_Q6_K)
        *a = (int8_t)block[PH_Q6_K_SCALES + e / 16];
    else if (u < 4)
        *a = y[u] & 63, *b = y[u + 4] & 63;
    else
        *a = (y[u + 4] & 15) | (y[u - 4] >> 6 << 4),
        *b = y[u + 4] >> 4 | (y[u] >> 6 << 4);
}

static inline float ph_k_element(const uint8_t *block, ph_dtype type, int e)
{
    const ph_k_bits bits = ph_k_bits_of(type, e / 32);
    const int low = block[bits.nibble + e % 32] >> bits.shift & 15;
    const int n =
        low + 16 * (block[bits.high + e % 32] >> bits.high_shift & bits.high_mask);
    int a, b;
    ph_k_steps(type, block, e, &a, &b);
    const float scale = ph_quant_f16(block + ph_k_scale_at(type)) * (float)a;
    if (type == PH_Q6_K) return scale * (float)(n - 32);
    return scale * (float)n - ph_quant_f16(block + 2) * (float)b;
}

/* ---- all of them ---- */

/* Element i of a row of blocks. */
static inline float ph_quant_element(const void *row, ph_dtype type, int64_t i)
{
    const uint8_t *block = row;
    if (ph_dtype_is_k(type))
        return ph_k_element(block + i / PH_K_BLOCK * ph_quant_bytes(type), type,
                            (int)(i % PH_K_BLOCK));
    block += i / PH_QUANT_BLOCK * ph_quant_bytes(type);
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
