/*
 * norm.c - entmax: the base of a row, and the gradient of alpha.
 *
 *     p_i = max(1 + e (z_i - base), 0)^(1/e)      e = alpha - 1,  sum p = 1
 *
 * base = (tau + 1)/e is to entmax what lse is to softmax, and tends to it as alpha tends
 * to 1; tau alone would lose its digits there. Only z above max(z) - 1/e can be in the
 * support, so the solver runs over a list of these only. It is Newton's method on the
 * (1/e)-norm of the excess, which is convex and falls as the base grows: started at the
 * largest score it never overshoots the root, and if all scores are equal it converges in
 * one step for every alpha. With d = e (base - max z):
 *
 *     d += (f0 - f0^(1-e)) / f1       f0 = sum u^(1/e),  f1 = sum u^(1/e - 1)
 */
#include <math.h>

#include "attn/joint.h"

enum { STEPS = 40 }; /* two or three are usual */

/* Beyond this tau/e, half an ulp of tau costs a weight more than 2^-20 of itself. */
#define FAR 32.0

ph_entmax ph_entmax_of(double alpha)
{
    double e = alpha - 1;
    return (ph_entmax){(float)(e * PH_LN2), (float)(1 / e)};
}

static int has_nan(const float *x, int n)
{
    int any = 0;
    for (int i = 0; i < n; i++) any |= x[i] != x[i];
    return any;
}

float ph_entmax_base(const ph_kernels *k, ph_entmax e, const float *row, int64_t step,
                     int blocks, const ph_joint_block *block, float row_max, float sink,
                     float *list)
{
    float sums[2], high = sink > row_max ? sink : row_max;
    int n = 0;
    if (high == -INFINITY) return -INFINITY;
    for (int b = 0; b < blocks; b++, row += step) {
        const float *scores = row + block[b].c0;
        int count = block[b].end - block[b].c0;
        if (has_nan(scores, count)) return NAN;
        n += k->near_row_max(count, scores, e.scale, high, list + n);
    }
    float extra = (sink - high) * e.scale;
    if (extra > -1) list[n++] = extra;
    while (n % PH_LANES || n == 0) list[n++] = -2; /* outside any support */
    double d = 0;
    for (int i = 0; i < STEPS; i++) {
        k->power_sums(n, list, (float)d, e.power, sums);
        double f0 = sums[0], next = d - f0 * expm1(-log(f0) / e.power) / sums[1];
        if (!((float)next > (float)d)) break;
        d = next;
    }
    return (float)(high + d / e.scale);
}

float ph_entmax_tau(ph_entmax e, float base)
{
    return base == -INFINITY ? -INFINITY : (float)((double)e.scale * base - 1);
}

float ph_entmax_base_of(ph_entmax e, float tau)
{
    return tau == -INFINITY ? INFINITY : (float)(((double)tau + 1) / e.scale);
}

int ph_entmax_is_lost(double alpha, float tau)
{
    return tau != -INFINITY && !(fabs((double)tau) <= FAR * (alpha - 1));
}

/* exp(y) - 1 - y without cancellation; y >= 0 */
static double phi(double y)
{
    if (y > 0.5) return expm1(y) - y;
    double term = y * y / 2, sum = term;
    for (int n = 3; n < 16; n++) sum += term *= y / n;
    return sum;
}

void ph_alpha_add(ph_alpha_sums *s, double e, int n, const float *p, const float *dp)
{
    for (int c = 0; c < n; c++) {
        if (!(p[c] > 0)) continue;
        double w = p[c], t = -log(w), f = phi(e * t), g = dp[c];
        s->a0 += w * f;
        s->a1 += w * t;
        s->z += w * exp(e * t);
        s->b0 += g * w;
        s->b1 += g * w * t;
        s->b2 += g * w * f;
    }
}

double ph_alpha_gradient(const ph_alpha_sums *s, double e, double base, double dtau)
{
    if (!(s->z > 0)) return 0;
    double weights = s->a0 * (s->b0 + e * s->b1) - (1 + e * s->a1) * s->b2;
    return weights / (e * e * s->z) + dtau * (base - s->a0 / (e * s->z));
}
