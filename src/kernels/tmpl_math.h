/*
 * tmpl_math.h - exp2, log2 and capping in the vector vocabulary.
 *
 * exp2: x = n + f with n the nearest whole number, so f is exact; 2^x = 2^n * P(f). P has
 * P(0) = 1 exactly; its relative error is 9.2e-8 before rounding, about 2 ulp after.
 * Arguments are at most 0 up to rounding here, so only the lower end needs care: below
 * -126.5 the result is exactly 0.
 *
 * log2 of a positive normal number: x = 2^e * m with m in [1/sqrt 2, sqrt 2), f = m - 1,
 * log2 x = e + log2(e) * (f - f^2/2 + f^3 P(f)); about 2 ulp.
 *
 * cap * tanh(x), x = s / cap: s (1 + x^2 P(x^2)) where x^2 is below 0.36, else
 * cap (1 - e)/(1 + e) with e = exp(-2|x|). Its derivative is 1 - tanh^2 or 4 e/(1 + e)^2:
 * the latter keeps full relative accuracy where tanh has rounded to 1.
 *
 * ref.c has the same operations in the same order.
 */
enum { GROUP = PH_LANES / VL }; /* vectors in 16 columns */

V vec v_exp2(vec x)
{
    vec f = v_fraction(x), p = v_set1(0x1.5bba14p-10f);
    p = v_fma(p, f, v_set1(0x1.3cea88p-7f));
    p = v_fma(p, f, v_set1(0x1.c6b752p-5f));
    p = v_fma(p, f, v_set1(0x1.ebf9bcp-3f));
    p = v_fma(p, f, v_set1(0x1.62e42ap-1f));
    p = v_fma(p, f, v_set1(1.0f));
    return v_scale2(p, x, f);
}

V vec v_log2(vec x)
{
    const vint start = vi_set1(0x3f3504f3u); /* 1/sqrt(2) */
    vint bits = vi_add(v_bits(x), vi_set1(0u - 0x3f3504f3u));
    vec e = v_from_int(vi_sra(bits, 23)), p = v_set1(-0x1.38b586p-4f);
    vec f = v_sub(v_float(vi_add(vi_and(bits, vi_set1(0x7fffffu)), start)), v_set1(1.0f));
    p = v_fma(p, f, v_set1(0x1.055b6cp-3f));
    p = v_fma(p, f, v_set1(-0x1.0d8542p-3f));
    p = v_fma(p, f, v_set1(0x1.22da1cp-3f));
    p = v_fma(p, f, v_set1(-0x1.547244p-3f));
    p = v_fma(p, f, v_set1(0x1.99a008p-3f));
    p = v_fma(p, f, v_set1(-0x1.000226p-2f));
    p = v_fma(p, f, v_set1(0x1.555554p-2f));
    p = v_fma(v_mul(f, f), v_fma(f, p, v_set1(-0.5f)), f);
    return v_fma(p, v_set1(0x1.715476p+0f), e);
}

/* Natural logarithm of a positive normal number, to about an ulp: the same reduction,
   log x = e log 2 + f - f^2/2 + f^3 P(f), with log 2 in two parts. Nothing is fused. */
V vec v_log(vec x)
{
    const vint start = vi_set1(0x3f3504f3u); /* 1/sqrt(2) */
    vint bits = vi_add(v_bits(x), vi_set1(0u - 0x3f3504f3u));
    vec e = v_from_int(vi_sra(bits, 23)), p = v_set1(-0x1.38b586p-4f);
    vec f = v_sub(v_float(vi_add(vi_and(bits, vi_set1(0x7fffffu)), start)), v_set1(1.0f));
    p = v_add(v_mul(p, f), v_set1(0x1.055b6cp-3f));
    p = v_add(v_mul(p, f), v_set1(-0x1.0d8542p-3f));
    p = v_add(v_mul(p, f), v_set1(0x1.22da1cp-3f));
    p = v_add(v_mul(p, f), v_set1(-0x1.547244p-3f));
    p = v_add(v_mul(p, f), v_set1(0x1.99a008p-3f));
    p = v_add(v_mul(p, f), v_set1(-0x1.000226p-2f));
    p = v_add(v_mul(p, f), v_set1(0x1.555554p-2f));
    vec square = v_mul(f, f);
    vec rest = v_sub(v_mul(v_mul(f, square), p), v_mul(v_set1(0.5f), square));
    rest = v_add(rest, v_mul(e, v_set1(0x1.7f7d1cp-20f)));
    return v_add(v_mul(e, v_set1(0x1.62e4p-1f)), v_add(f, rest));
}

V vec v_cap(vec s, vec cap, vec inverse, const int derives, vec *derivative)
{
    const vec one = v_set1(1.0f), seam = v_set1(0.36f);
    vec x = v_mul(s, inverse), z = v_mul(x, x);
    vec p = v_set1(-0.0056607896f);
    p = v_fma(p, z, v_set1(0.020602008f));
    p = v_fma(p, z, v_set1(-0.05372923f));
    p = v_fma(p, z, v_set1(0.13331328f));
    p = v_fma(p, z, v_set1(-0.33333278f));
    vec small = v_fma(v_mul(p, z), s, s), t = v_mul(small, inverse);
    if (derives) *derivative = v_fnma(t, t, one);
    /* the division is most of the cost, and logits are seldom near their cap */
    if (!v_any(v_lt(v_set1(0x1.70a3d6p-2f), z))) return small;
    /* e = exp(-2|x|) in (0, 1]: (1 - e)/(1 + e) */
    vec e = v_exp2(v_mul(v_abs(x), v_set1(-2.8853900817779268f)));
    vec both = v_add(one, e), large = v_copysign(v_div(v_sub(one, e), both), x);
    if (derives) {
        vec far = v_div(v_mul(v_set1(4.0f), e), v_mul(both, both));
        *derivative = v_select(v_lt(z, seam), *derivative, far);
    }
    return v_select(v_lt(z, seam), small, v_mul(cap, large));
}
