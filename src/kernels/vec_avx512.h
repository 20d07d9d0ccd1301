/*
 * vec_avx512.h - the vector vocabulary for AVX-512 (F, DQ, BW, VL): 16 floats.
 *
 * Everything after this include is compiled for AVX-512. See vec_avx2.h for the meaning
 * of each name; both files define the same ones.
 */
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(                                                            \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl"))),         \
    apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl")
#endif

#define VL 16
#define MR 12
#define NR 32

typedef __m512 vec;
typedef __m512i vint;
typedef __mmask16 vmask;

#define V static inline __attribute__((always_inline))

V vec v_load(const float *p) { return _mm512_loadu_ps(p); }
V void v_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
V vec v_set1(float x) { return _mm512_set1_ps(x); }
V vec v_zero(void) { return _mm512_setzero_ps(); }
V vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
V vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
V vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
V vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
V vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
V vec v_fnma(vec a, vec b, vec c) { return _mm512_fnmadd_ps(a, b, c); }
V vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
V vec v_abs(vec a) { return _mm512_abs_ps(a); }
V vec v_copysign(vec a, vec s)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, s));
}

V vmask v_lt(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
V vmask v_eq(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
V int v_any(vmask m) { return m != 0; }
V vec v_select(vmask m, vec yes, vec no) { return _mm512_mask_blend_ps(m, no, yes); }

V vec v_fraction(vec x) { return _mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT); }
V vec v_scale2(vec p, vec x, vec fraction)
{
    __mmask16 seen = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.5f), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(seen, p, _mm512_sub_ps(x, fraction));
}

V vec v_iota(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

V vint vi_set1(uint32_t x) { return _mm512_set1_epi32((int)x); }
V vint vi_iota(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

V vint vi_add(vint a, vint b) { return _mm512_add_epi32(a, b); }
V vint vi_mul(vint a, vint b) { return _mm512_mullo_epi32(a, b); }
V vint vi_xor(vint a, vint b) { return _mm512_xor_si512(a, b); }
#define vi_srl(a, n) _mm512_srli_epi32(a, n)
#define vi_sra(a, n) _mm512_srai_epi32(a, n)
#define vi_sll(a, n) _mm512_slli_epi32(a, n)
V vint vi_srl_by(vint a, int n) { return _mm512_srlv_epi32(a, _mm512_set1_epi32(n)); }
V vint vi_and(vint a, vint b) { return _mm512_and_si512(a, b); }
V vint vi_and_xor(vint a, vint b, vint c) /* (a & b) ^ c */
{
    return _mm512_ternarylogic_epi32(a, b, c, 0x6a);
}
V vmask vi_below(vint a, vint b) { return _mm512_cmplt_epu32_mask(a, b); }
V vint v_bits(vec a) { return _mm512_castps_si512(a); }
V vec v_float(vint a) { return _mm512_castsi512_ps(a); }
V vec v_from_int(vint a) { return _mm512_cvtepi32_ps(a); }
V int v_pack(float *p, vec a, vmask m)
{
    v_store(p, _mm512_maskz_compress_ps(m, a));
    return __builtin_popcount(m);
}

V vmask v_bytes(const uint8_t *p) /* lanes whose byte is not 0 */
{
    return _mm_test_epi8_mask(_mm_loadu_si128((const __m128i *)p),
                              _mm_loadu_si128((const __m128i *)p));
}

V vec v_load_bf16(const uint16_t *p)
{
    __m256i h = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

V vec v_load_pairs(const uint16_t *p) { return v_float(_mm512_loadu_si512(p)); }
V vec v_low_bf16(vec a) { return v_float(_mm512_slli_epi32(v_bits(a), 16)); }
V vec v_high_bf16(vec a) { return v_float(vi_and(v_bits(a), vi_set1(0xffff0000u))); }

V vec v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

/* VL int8; VL bytes; one f16 in all lanes */
V vec v_load_i8(const uint8_t *p)
{
    __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm512_cvtepi32_ps(wide);
}

V vint vi_load_bytes(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

V vec v_set1_f16(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}

V void v_store_f16(uint16_t *p, vec a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

V void v_store_bf16(uint16_t *p, vec a)
{
    __m512i bits = _mm512_castps_si512(a), top = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i half_way = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i round = _mm512_add_epi32(bits, half_way);
    __m512i nan = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
    __mmask16 is_nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    __m512i half = _mm512_mask_blend_epi32(is_nan, _mm512_srli_epi32(round, 16), nan);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(half));
}

/* n < VL floats; the others are 0 and are not touched in memory */
V vec v_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}

V void v_store_n(float *p, vec a, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}

/* r[0..VL) are the rows of a square; afterwards they are its columns. Three rounds: pairs
   of lanes, of pairs, then of quarters. */
V void v_transpose(vec r[VL])
{
    __m512 t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* r[4i+c]: column c + 4*quarter of rows 4i..4i+3 */
        r[4 * i] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        r[4 * i + 1] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        r[4 * i + 2] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        r[4 * i + 3] = _mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512 a = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
        __m512 b = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        __m512 d = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
        __m512 e = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_f32x4(a, b, 0x88);
        t[8 + c] = _mm512_shuffle_f32x4(a, b, 0xdd);
        t[4 + c] = _mm512_shuffle_f32x4(d, e, 0x88);
        t[12 + c] = _mm512_shuffle_f32x4(d, e, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) r[i] = t[i];
}

/* Four rows: a third of the shuffles. Quarter q of t[c] is column 4q + c. */
V void v_transpose4(vec r[VL])
{
    __m512 a = _mm512_unpacklo_ps(r[0], r[1]), b = _mm512_unpackhi_ps(r[0], r[1]);
    __m512 c = _mm512_unpacklo_ps(r[2], r[3]), d = _mm512_unpackhi_ps(r[2], r[3]);
    __m512 t[4] = {_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee),
                   _mm512_shuffle_ps(b, d, 0x44), _mm512_shuffle_ps(b, d, 0xee)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_maskz_mov_ps(0xf, t[i]);
        r[4 + i] = _mm512_maskz_shuffle_f32x4(0xf, t[i], t[i], 1);
        r[8 + i] = _mm512_maskz_shuffle_f32x4(0xf, t[i], t[i], 2);
        r[12 + i] = _mm512_maskz_shuffle_f32x4(0xf, t[i], t[i], 3);
    }
}

/* the 16 lanes of one group (here one vector), added by halves */
V float v_sum16(const vec g[1])
{
    __m256 high = _mm512_extractf32x8_ps(g[0], 1);
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(g[0]), high);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

V float v_max16(const vec g[1])
{
    __m256 high = _mm512_extractf32x8_ps(g[0], 1);
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(g[0]), high);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

V __m128i load_16_bytes(const char *p) { return _mm_loadu_si128((const void *)p); }
/* A masked broadcast from memory needs no shuffle. */
V vint vi_load_quads(const char *const quad[4])
{
    __m512i r = _mm512_castsi128_si512(load_16_bytes(quad[0]));
    r = _mm512_mask_broadcast_i32x4(r, 0x00f0, load_16_bytes(quad[1]));
    r = _mm512_mask_broadcast_i32x4(r, 0x0f00, load_16_bytes(quad[2]));
    return _mm512_mask_broadcast_i32x4(r, 0xf000, load_16_bytes(quad[3]));
}

V vint vi_top_byte(vint a, const int e)
{
    const __m512i top = _mm512_set1_epi32((int)0xff000000u);
    if (e == 0) return _mm512_slli_epi32(a, 24);
    if (e == 3) return _mm512_and_si512(a, top);
    return _mm512_maskz_shuffle_epi8(
        0x8888888888888888u, a,
        _mm512_broadcast_i32x4(
            e == 1 ? _mm_setr_epi8(0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 13)
                   : _mm_setr_epi8(0, 0, 0, 2, 0, 0, 0, 6, 0, 0, 0, 10, 0, 0, 0, 14)));
}

V void vi_transpose_quads(vint r[4])
{
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm512_unpacklo_epi64(a, c), r[1] = _mm512_unpackhi_epi64(a, c);
    r[2] = _mm512_unpacklo_epi64(b, d), r[3] = _mm512_unpackhi_epi64(b, d);
}

V float v_first(vec a) { return _mm512_cvtss_f32(a); }
