/*
 * vec_neon.h - the vector vocabulary for NEON (Advanced SIMD) on aarch64: 4 floats.
 *
 * See vec_avx2.h for the meaning of each name; both files define the same ones. NEON and
 * the f16 conversions belong to the base architecture, so nothing is switched on here.
 * The tile of 6 x 16 keeps 24 sums, 4 vectors of the right operand and one number of the
 * left one in 29 of the 32 registers.
 *
 * fmaxq is not v_max: it keeps a NaN from either side and orders the two zeros, where
 * v_max gives b unless a > b. Compare and select give that rule, and with it the bits of
 * the other instruction sets.
 */
#include <arm_neon.h>
#include <string.h>

/* Before it hands out registers gcc moves loads upwards, until six numbers of the left
   operand are there at once; that is too many, and sums would go through memory. */
#if !defined(__clang__)
#pragma GCC optimize("no-schedule-insns")
#endif

#define VL 4
#define MR 6
#define NR 16

typedef float32x4_t vec;
typedef uint32x4_t vint;
typedef uint32x4_t vmask;

#define V static inline __attribute__((always_inline))

V vec v_load(const float *p) { return vld1q_f32(p); }
V void v_store(float *p, vec a) { vst1q_f32(p, a); }
V vec v_set1(float x) { return vdupq_n_f32(x); }
V vec v_zero(void) { return vdupq_n_f32(0); }
V vec v_add(vec a, vec b) { return vaddq_f32(a, b); }
V vec v_sub(vec a, vec b) { return vsubq_f32(a, b); }
V vec v_mul(vec a, vec b) { return vmulq_f32(a, b); }
V vec v_div(vec a, vec b) { return vdivq_f32(a, b); }
V vec v_fma(vec a, vec b, vec c) { return vfmaq_f32(c, a, b); }
V vec v_fnma(vec a, vec b, vec c) { return vfmsq_f32(c, a, b); }
V vec v_max(vec a, vec b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
V vec v_abs(vec a) { return vabsq_f32(a); }
V vec v_copysign(vec a, vec s) { return vbslq_f32(vdupq_n_u32(0x80000000u), s, a); }

V vmask v_lt(vec a, vec b) { return vcltq_f32(a, b); }
V vmask v_eq(vec a, vec b) { return vceqq_f32(a, b); }
V int v_any(vmask m) { return vmaxvq_u32(m) != 0; }
V vec v_select(vmask m, vec yes, vec no) { return vbslq_f32(m, yes, no); }

V vec v_above(vec x) { return v_max(vdupq_n_f32(-127.0f), x); } /* keeps NaN */
V vec v_whole(vec x) { return vrndnq_f32(v_above(x)); }
V vec v_fraction(vec x) { return v_sub(v_above(x), v_whole(x)); }
V vec v_scale2(vec p, vec x, vec fraction)
{
    (void)fraction;
    vec sum = v_add(v_whole(x), v_set1(0x1.8p23f + 127.0f));
    uint32x4_t bits = vreinterpretq_u32_f32(sum);
    return v_mul(p, vreinterpretq_f32_u32(vshlq_n_u32(bits, 23)));
}

V vec v_iota(void)
{
    static const float lanes[VL] = {0, 1, 2, 3};
    return vld1q_f32(lanes);
}

V vint vi_set1(uint32_t x) { return vdupq_n_u32(x); }
V vint vi_iota(void)
{
    static const uint32_t lanes[VL] = {0, 1, 2, 3};
    return vld1q_u32(lanes);
}

V vint vi_add(vint a, vint b) { return vaddq_u32(a, b); }
V vint vi_mul(vint a, vint b) { return vmulq_u32(a, b); }
V vint vi_xor(vint a, vint b) { return veorq_u32(a, b); }
#define vi_srl(a, n) vshrq_n_u32(a, n)
#define vi_sra(a, n) vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(a), n))
#define vi_sll(a, n) vshlq_n_u32(a, n)
V vint vi_srl_by(vint a, int n) { return vshlq_u32(a, vdupq_n_s32(-n)); }
V vint vi_and(vint a, vint b) { return vandq_u32(a, b); }
V vint vi_and_xor(vint a, vint b, vint c) /* (a & b) ^ c */
{
    return veorq_u32(vandq_u32(a, b), c);
}
V vmask vi_below(vint a, vint b) { return vcltq_u32(a, b); }
V vint v_bits(vec a) { return vreinterpretq_u32_f32(a); }
V vec v_float(vint a) { return vreinterpretq_f32_u32(a); }
V vec v_from_int(vint a) { return vcvtq_f32_s32(vreinterpretq_s32_u32(a)); }
V int v_pack(float *p, vec a, vmask m)
{
    float lanes[VL];
    uint32_t inside[VL];
    int n = 0;
    v_store(lanes, a);
    vst1q_u32(inside, m);
    for (int i = 0; i < VL; i++)
        if (inside[i]) p[n++] = lanes[i];
    return n;
}

V uint16x4_t v_four_bytes(const uint8_t *p) /* a vector load would read eight */
{
    uint32_t four;
    memcpy(&four, p, sizeof four);
    return vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four))));
}

V vmask v_bytes(const uint8_t *p)
{
    return vcgtq_u32(vmovl_u16(v_four_bytes(p)), vdupq_n_u32(0));
}

V vec v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(vld1_u16(p)), 16));
}

V vec v_load_pairs(const uint16_t *p) { return vreinterpretq_f32_u16(vld1q_u16(p)); }
V vec v_low_bf16(vec a) { return v_float(vshlq_n_u32(v_bits(a), 16)); }
V vec v_high_bf16(vec a) { return v_float(vi_and(v_bits(a), vi_set1(0xffff0000u))); }

V vec v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

V vec v_load_i8(const uint8_t *p)
{
    int16x4_t bytes = vreinterpret_s16_u16(vshl_n_u16(v_four_bytes(p), 8));
    return vcvtq_f32_s32(vmovl_s16(vshr_n_s16(bytes, 8)));
}

V vint vi_load_bytes(const uint8_t *p) { return vmovl_u16(v_four_bytes(p)); }

V vec v_set1_f16(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(half)));
}

V void v_store_f16(uint16_t *p, vec a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}

V void v_store_bf16(uint16_t *p, vec a)
{
    uint32x4_t bits = vreinterpretq_u32_f32(a), top = vshrq_n_u32(bits, 16);
    uint32x4_t odd = vandq_u32(top, vdupq_n_u32(1));
    uint32x4_t round = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    uint32x4_t nan = vorrq_u32(top, vdupq_n_u32(0x40)), is_number = vceqq_f32(a, a);
    vst1_u16(p, vmovn_u32(vbslq_u32(is_number, vshrq_n_u32(round, 16), nan)));
}

V vec v_load_n(const float *p, int n)
{
    vec a = v_zero();
    if (n > 0) a = vld1q_lane_f32(p, a, 0);
    if (n > 1) a = vld1q_lane_f32(p + 1, a, 1);
    if (n > 2) a = vld1q_lane_f32(p + 2, a, 2);
    return a;
}

V void v_store_n(float *p, vec a, int n)
{
    if (n > 0) vst1q_lane_f32(p, a, 0);
    if (n > 1) vst1q_lane_f32(p + 1, a, 1);
    if (n > 2) vst1q_lane_f32(p + 2, a, 2);
}

/* 2 x 2 squares of numbers, then of pairs */
V void v_transpose(vec r[VL])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(r[0], r[1]));
    float64x2_t b = vreinterpretq_f64_f32(vtrn2q_f32(r[0], r[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(r[2], r[3]));
    float64x2_t d = vreinterpretq_f64_f32(vtrn2q_f32(r[2], r[3]));
    r[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    r[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    r[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    r[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

V void v_transpose4(vec r[VL]) { v_transpose(r); }

V float v_sum16(const vec g[4])
{
    vec a = vaddq_f32(vaddq_f32(g[0], g[2]), vaddq_f32(g[1], g[3]));
    float32x2_t b = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(b, 0) + vget_lane_f32(b, 1);
}

V float v_max16(const vec g[4])
{
    vec a = v_max(v_max(g[0], g[2]), v_max(g[1], g[3]));
    a = v_max(a, vextq_f32(a, a, 2));
    return vgetq_lane_f32(v_max(a, vextq_f32(a, a, 1)), 0);
}

V vint vi_load_quads(const char *const quad[1])
{
    return vreinterpretq_u32_u8(vld1q_u8((const uint8_t *)quad[0]));
}

V vint vi_top_byte(vint a, const int e)
{
    const vint left = e == 0   ? vshlq_n_u32(a, 24)
                      : e == 1 ? vshlq_n_u32(a, 16)
                      : e == 2 ? vshlq_n_u32(a, 8)
                               : a;
    return vandq_u32(left, vdupq_n_u32(0xff000000u));
}

V void vi_transpose_quads(vint r[4])
{
    vec t[VL] = {v_float(r[0]), v_float(r[1]), v_float(r[2]), v_float(r[3])};
    v_transpose(t);
    for (int i = 0; i < VL; i++) r[i] = v_bits(t[i]);
}

V float v_first(vec a) { return vgetq_lane_f32(a, 0); }
