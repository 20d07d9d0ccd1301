/*
 * amx_score_grad.c - P and dS of the backward pass, recomputed and split into AMX
 * operands.
 *
 * Rows i and i+16 are processed together, 32 columns of each: four vectors a b (row i)
 * and c d (row i+16). Interleaving two of them is one shuffle: a with c and b with d for
 * operands whose k axis is rows (dk, dv), a with b and c with d where it is columns (dq).
 */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/amx_tiles.h"

/* 16 columns of a row: gradient_row of tmpl_rows.h. */
V void gradient_at(const ph_score_grad *x, int64_t at, int r, const int derives,
                   const int dropped, vec *weight, vec *gradient)
{
    const vec minus_inf = v_set1(-__builtin_inff());
    vec score = v_mul(v_load(x->s + at), v_set1(x->scale)), g = v_load(x->dp + at);
    vmask seen = _mm512_cmp_ps_mask(score, minus_inf, _CMP_NEQ_UQ);
    vec p = v_exp2(_mm512_mask_sub_ps(minus_inf, seen, score, v_set1(x->lse[r])));
    if (dropped) g = v_mul(g, v_load(x->drop + at));
    vec ds = _mm512_maskz_mul_ps(seen, p, v_sub(g, v_set1(x->delta[r])));
    if (derives) ds = _mm512_maskz_mul_ps(seen, ds, v_load(x->derivative + at));
    *weight = dropped ? _mm512_maskz_mul_ps(seen, p, v_load(x->drop + at)) : p;
    *gradient = ds;
}

/* Row i of the tiles of 32 columns, for one term: P and dS in pairs of rows, dS in pairs
   of columns. */
V void store_lines(uint16_t *p, uint16_t *ds, uint16_t *ds_rows, const vec w[4],
                   const vec g[4])
{
    const int next = PH_BF16_TERMS * TILE; /* 16 columns, or 16 rows further */
    _mm512_storeu_si512(p, upper_halves(w[0], w[2]));
    _mm512_storeu_si512(p + next, upper_halves(w[1], w[3]));
    _mm512_storeu_si512(ds, upper_halves(g[0], g[2]));
    _mm512_storeu_si512(ds + next, upper_halves(g[1], g[3]));
    _mm512_storeu_si512(ds_rows, upper_halves(g[0], g[1]));
    _mm512_storeu_si512(ds_rows + next, upper_halves(g[2], g[3]));
}

/* The third term of an element below 2^16 is below 2, so this bit of its exponent is 0;
   the third term of a non-finite one is NaN, where it is 1. */
enum { LARGE = 0x40000000 };

V vint or_bits(vint bits, vec a, vec b)
{
    return _mm512_ternarylogic_epi32(bits, v_bits(a), v_bits(b), 0xfe);
}

V int score_grad(const ph_score_grad *x, const int m, const int derives,
                 const int dropped)
{
    vec w[4], g[4];
    vint bits = vi_set1(0);
    for (int c = 0; c < x->n; c += PH_AMX_STEP)
        for (int i = 0; i < PH_AMX_TILE; i++) {
            int64_t to = c / PH_AMX_TILE * PH_BF16_TERMS * TILE + i * PH_AMX_STEP;
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                int r = i + v / 2 * PH_AMX_TILE, at = r * PH_STRIP_LD + c + v % 2 * VL;
                w[v] = g[v] = v_zero();
                if (r < m) gradient_at(x, at, r, derives, dropped, &w[v], &g[v]);
            }
#pragma GCC unroll 3
            for (int term = 0; term < PH_BF16_TERMS; term++, to += TILE) {
                store_lines(x->p + to, x->ds + to, x->ds_rows + to, w, g);
#pragma GCC unroll 4
                for (int v = 0; v < 4 && term < PH_BF16_TERMS - 1; v++)
                    w[v] = without_upper_half(w[v]), g[v] = without_upper_half(g[v]);
            }
            bits = or_bits(or_bits(bits, g[0], g[1]), g[2], g[3]);
        }
    return !_mm512_test_epi32_mask(bits, vi_set1(LARGE));
}

int ph_amx_score_grad(const ph_score_grad *x)
{
    if (x->derivative && x->drop) return score_grad(x, x->m, 1, 1);
    if (x->derivative) return score_grad(x, x->m, 1, 0);
    if (x->drop) return score_grad(x, x->m, 0, 1);
    return x->m == PH_AMX_STEP ? score_grad(x, PH_AMX_STEP, 0, 0)
                               : score_grad(x, x->m, 0, 0);
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
