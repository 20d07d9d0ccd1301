/*
 * vec_avx2.h - the vector vocabulary for AVX2 with FMA and F16C: 8 floats.
 *
 * Everything after this include is compiled for AVX2. This is the file to read for the
 * meaning of the names; vec_avx512.h and vec_neon.h define the same ones.
 *
 *   VL, MR, NR            floats in a vector; rows and columns of the register tile
 *   vec, vint, vmask      floats, 32-bit integers, one truth value per lane
 *   v_fma(a,b,c)          a*b + c rounded once;  v_fnma: c - a*b
 *   v_max(a,b)            b where either is NaN, so put the data second to keep NaN
 *   v_select(m,yes,no)    per lane;  v_any(m): whether one lane is true
 *   v_fraction(x)         x minus the nearest whole number (ties to even); 0 for -inf
 *   v_scale2(p,x,f)       p * 2^(x - f), f = v_fraction(x); exactly 0 where x < -126.5
 *   v_bytes(p)            lanes whose byte is not 0
 *   v_transpose(r)        a VL x VL square in VL vectors
 *   v_transpose4(r)       the same where only the first four rows are not 0
 *   vi_srl, vi_sll, vi_sra   shifts by a constant;  vi_srl_by: by any number
 *   vi_load_bytes(p)      VL bytes, zeros above them
 *   vi_load_quads(quad)   16 bytes each from quad[0], quad[1], ...: VL/4 rows
 *   vi_top_byte(a,e)      byte e of each word as its top one, zeros below
 *   vi_transpose_quads(r)   4 x 4 words in each 16 bytes: r[w] is then word w of VL rows
 *   v_sum16, v_max16(g)   over a group of 16/VL vectors, added by halves
 *   v_load_n, v_store_n   the first n < VL lanes, nothing else is touched
 *   v_bits, v_float       the bits as integers and back;  v_from_int: signed numbers
 *   v_load_pairs(p)       2*VL numbers of bf16; v_low_bf16, v_high_bf16: those in the low
 *                         or high half of each lane
 *   v_pack(p,a,m)         stores the lanes of m side by side (capacity VL), counts them
 */
#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif

#define VL 8
#define MR 6
#define NR 16

typedef __m256 vec;
typedef __m256i vint;
typedef __m256 vmask;

#define V static inline __attribute__((always_inline))

V vec v_load(const float *p) { return _mm256_loadu_ps(p); }
V void v_store(float *p, vec a) { _mm256_storeu_ps(p, a); }
V vec v_set1(float x) { return _mm256_set1_ps(x); }
V vec v_zero(void) { return _mm256_setzero_ps(); }
V vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
V vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
V vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
V vec v_div(vec a, vec b) { return _mm256_div_ps(a, b); }
V vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
V vec v_fnma(vec a, vec b, vec c) { return _mm256_fnmadd_ps(a, b, c); }
V vec v_max(vec a, vec b) { return _mm256_max_ps(a, b); }
V vec v_abs(vec a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
V vec v_copysign(vec a, vec s)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, s));
}

V vmask v_lt(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
V vmask v_eq(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
V int v_any(vmask m) { return _mm256_movemask_ps(m) != 0; }
V vec v_select(vmask m, vec yes, vec no) { return _mm256_blendv_ps(no, yes, m); }

V vec v_above(vec x) { return _mm256_max_ps(_mm256_set1_ps(-127.0f), x); } /* keeps NaN */
V vec v_whole(vec x)
{
    return _mm256_round_ps(v_above(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

V vec v_fraction(vec x) { return v_sub(v_above(x), v_whole(x)); }
V vec v_scale2(vec p, vec x, vec fraction)
{
    /* whole + 127 in the low bits of the sum, moved into the exponent: 0 for -127 */
    __m256i bits = _mm256_castps_si256(v_add(v_whole(x), v_set1(0x1.8p23f + 127.0f)));
    (void)fraction;
    return v_mul(p, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}

V vec v_iota(void) { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

V vint vi_set1(uint32_t x) { return _mm256_set1_epi32((int)x); }
V vint vi_iota(void) { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
V vint vi_add(vint a, vint b) { return _mm256_add_epi32(a, b); }
V vint vi_mul(vint a, vint b) { return _mm256_mullo_epi32(a, b); }
V vint vi_xor(vint a, vint b) { return _mm256_xor_si256(a, b); }
#define vi_srl(a, n) _mm256_srli_epi32(a, n)
#define vi_sra(a, n) _mm256_srai_epi32(a, n)
#define vi_sll(a, n) _mm256_slli_epi32(a, n)
V vint vi_srl_by(vint a, int n) { return _mm256_srlv_epi32(a, _mm256_set1_epi32(n)); }
V vint vi_and(vint a, vint b) { return _mm256_and_si256(a, b); }
V vint vi_and_xor(vint a, vint b, vint c) /* (a & b) ^ c */
{
    return _mm256_xor_si256(_mm256_and_si256(a, b), c);
}
V vint v_bits(vec a) { return _mm256_castps_si256(a); }
V vec v_float(vint a) { return _mm256_castsi256_ps(a); }
V vec v_from_int(vint a) { return _mm256_cvtepi32_ps(a); }
V vmask vi_below(vint a, vint b) /* unsigned: flip the top bits and compare signed */
{
    const __m256i top = _mm256_set1_epi32((int)0x80000000u);
    __m256i less = _mm256_cmpgt_epi32(_mm256_xor_si256(b, top), _mm256_xor_si256(a, top));
    return _mm256_castsi256_ps(less);
}

V vmask v_bytes(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(wide, _mm256_setzero_si256()));
}

V vec v_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

V vec v_load_pairs(const uint16_t *p)
{
    return v_float(_mm256_loadu_si256((const __m256i *)p));
}
V vec v_low_bf16(vec a) { return v_float(_mm256_slli_epi32(v_bits(a), 16)); }
V vec v_high_bf16(vec a) { return v_float(vi_and(v_bits(a), vi_set1(0xffff0000u))); }

V vec v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

V vec v_load_i8(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_cvtepi32_ps(wide);
}

V vint vi_load_bytes(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}

V vec v_set1_f16(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}

V void v_store_f16(uint16_t *p, vec a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

V void v_store_bf16(uint16_t *p, vec a)
{
    __m256i bits = _mm256_castps_si256(a), top = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i half_way = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i round = _mm256_add_epi32(bits, half_way);
    __m256i nan = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
    __m256i half = _mm256_blendv_epi8(_mm256_srli_epi32(round, 16), nan, is_nan);
    __m128i low = _mm256_castsi256_si128(half), high = _mm256_extracti128_si256(half, 1);
    _mm_storeu_si128((__m128i *)p, _mm_packus_epi32(low, high));
}

V vint vi_first(int n) /* all ones in the first n lanes */
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), vi_iota());
}

V vec v_load_n(const float *p, int n) { return _mm256_maskload_ps(p, vi_first(n)); }
V void v_store_n(float *p, vec a, int n) { _mm256_maskstore_ps(p, vi_first(n), a); }

V void v_transpose(vec r[VL])
{
    __m256 t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        u[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        u[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        u[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        u[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x20);
        r[4 + i] = _mm256_permute2f128_ps(u[i], u[4 + i], 0x31);
    }
}

V void v_transpose4(vec r[VL]) { v_transpose(r); }

V float v_sum16(const vec g[2])
{
    __m256 a = _mm256_add_ps(g[0], g[1]);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

V float v_max16(const vec g[2])
{
    __m256 a = _mm256_max_ps(g[0], g[1]);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

V int v_pack(float *p, vec a, vmask m)
{
    float lanes[VL];
    int n = 0;
    v_store(lanes, a);
    for (int left = _mm256_movemask_ps(m); left; left &= left - 1)
        p[n++] = lanes[__builtin_ctz((unsigned)left)];
    return n;
}

V __m128i load_16_bytes(const char *p) { return _mm_loadu_si128((const void *)p); }
V vint vi_load_quads(const char *const quad[2])
{
    __m256i low = _mm256_castsi128_si256(load_16_bytes(quad[0]));
    return _mm256_inserti128_si256(low, load_16_bytes(quad[1]), 1);
}

V vint vi_top_byte(vint a, const int e)
{
    const __m256i top = _mm256_set1_epi32((int)0xff000000u);
    const __m256i left = e == 0   ? _mm256_slli_epi32(a, 24)
                         : e == 1 ? _mm256_slli_epi32(a, 16)
                         : e == 2 ? _mm256_slli_epi32(a, 8)
                                  : a;
    return e == 0 ? left : _mm256_and_si256(left, top);
}

V void vi_transpose_quads(vint r[4])
{
    __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpackhi_epi32(r[0], r[1]);
    __m256i c = _mm256_unpacklo_epi32(r[2], r[3]), d = _mm256_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm256_unpacklo_epi64(a, c), r[1] = _mm256_unpackhi_epi64(a, c);
    r[2] = _mm256_unpacklo_epi64(b, d), r[3] = _mm256_unpackhi_epi64(b, d);
}

V float v_first(vec a) { return _mm256_cvtss_f32(a); }
