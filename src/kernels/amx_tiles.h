/*
 * amx_tiles.h - what the AMX files share.
 *
 * Everything after this include is compiled for AVX-512 with AMX.
 */
#ifndef PH_KERNELS_AMX_TILES_H
#define PH_KERNELS_AMX_TILES_H

#include "kernels/kernels.h"

/* amx_bf16x3.c */
int ph_amx_split_bf16x3(uint16_t *dst, const void *from, ph_dtype type, int64_t stride,
                        int lines, int k, int k_contiguous, int pairs);
void ph_amx_multiply(int m, int steps, const ph_operand *a, const ph_operand *b, float *c,
                     int64_t ldc, int add);
void ph_amx_multiply_in_place(int m, int n, int k, const ph_operand *a, const float *b,
                              int64_t ldb, float *c, int64_t ldc);

/* amx_few_rows.c */
int ph_amx_multiply_few_rows(int m, int n, int k, const ph_operand *a, const float *b,
                             int64_t ldb, float *c, int64_t ldc);

/* amx_in_place.c */
int ph_amx_attend_in_place(const ph_strip *x, const uint16_t *v, int64_t ldv, int keys,
                           int64_t prefetch_bytes);

/* amx_score_grad.c */
int ph_amx_score_grad(const ph_score_grad *x);

#include "kernels/vec_avx512.h"

#include "kernels/tmpl_math.h"

#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(                                                            \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,"            \
                          "avx512bf16,amx-tile,amx-bf16"))),                             \
    apply_to = function)
#else
#pragma GCC target("avx512bf16,amx-tile,amx-bf16")
#endif

/* A compiler barrier: gcc does not know that tile loads read memory. */
#define TILE_BARRIER() __asm__ volatile("" : : : "memory")

enum {
    TILE = PH_AMX_TILE * PH_AMX_STEP,
    LINE = 64
}; /* elements of a tile; bytes of its rows */

/* Interleaves the upper 16 bits of two vectors, those of `first` in the low halves: one
   masked byte shuffle into `second`. */
V __m512i upper_halves(vec first, vec second)
{
    const __m512i upper =
        _mm512_set4_epi32(0x0f0e0f0e, 0x0b0a0b0a, 0x07060706, 0x03020302);
    return _mm512_mask_shuffle_epi8(v_bits(second), 0x3333333333333333u, v_bits(first),
                                    upper);
}

/* x minus its truncation to bf16: exact. */
V vec without_upper_half(vec x)
{
    const vint mask = vi_set1(0xffff0000u);
    return v_sub(x, v_float(vi_and(v_bits(x), mask)));
}

#endif
