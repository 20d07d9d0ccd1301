/*
 * amx_in_place.c - attend of amx.c for one or two query rows, with V read in place and
 * f32 FMAs instead of tiles.
 *
 * Few rows use each value once, and packing V into tiles costs more than multiplying it.
 * Products of bf16 terms are exact in f32, so FMAs in the order of TDPBF16PS give the
 * same bits if subnormals are flush_subnormals to 0: results by MXCSR's flush-to-zero,
 * weights here. Subnormal and non-finite values are left to the tiles: MXCSR's denormal
 * flag detects the first, a non-finite sum the second.
 *
 *     for each 32 keys
 *         for each 128 columns of one row, or 64 of two
 *             two chains over 16 keys, for each term of each row's weights
 *
 * 32 elements are one load: the even ones are shifted, the odd ones masked, and the sums
 * stay deinterleaved in that order until the end.
 */
#include "kernels/kernels.h"

#if defined(__x86_64__)
#include "kernels/amx_tiles.h"
#include "kernels/tmpl_row_max.h"

enum {
    SUMS = 24,        /* accumulators: rows x terms x vectors of columns */
    MAX_WIDTH = 256,  /* columns */
    FLUSH = 0x8000,   /* MXCSR: flush subnormal results to 0 */
    DENORMAL = 0x0002 /* MXCSR: an operand was subnormal */
};

/* State of a strip; copied to the caller's only once no value needs the tiles. */
typedef struct in_place_work {
    float row_max[PH_LANES], rescale[PH_LANES], base[PH_LANES];
    float sum[PH_FEW_ROWS * PH_LANES];
    _Alignas(PH_ALIGN) float terms[PH_FEW_ROWS * PH_BF16_TERMS * PH_STRIP_LD];
    float total[PH_FEW_ROWS][MAX_WIDTH];
    const uint16_t *v;
    int64_t ldv,
        prefetch_elements; /* elements between keys; prefetch distance in elements */
    int keys;
} in_place_work;

/* Subnormals become 0 of the same sign. */
V vec flush_subnormals(vec x)
{
    const vint sign = vi_set1(0x80000000u);
    vmask small = _mm512_cmp_ps_mask(v_abs(x), v_set1(0x1p-126f), _CMP_LT_OQ);
    return v_float(_mm512_mask_and_epi32(v_bits(x), small, v_bits(x), sign));
}

/* Softmax weights of row i, split into terms, and their lane sums. */
V void split_weights(const ph_strip *x, in_place_work *w, int i)
{
    const vint mask = vi_set1(0xffff0000u);
    float *to = w->terms + i * PH_BF16_TERMS * PH_STRIP_LD,
          *lanes = w->sum + i * PH_LANES;
    const vec base = v_set1(w->base[i]);
    vec total = v_mul(v_load(x->sum + i * PH_LANES), v_set1(w->rescale[i]));
    for (int c = 0; c < x->n; c += VL, to += VL) {
        int at = i * PH_STRIP_LD + c;
        vec p = v_exp2(v_sub(v_load(x->s + at), base));
        total = v_add(total, p);
        if (x->drop) p = v_mul(p, v_load(x->drop + at));
        vec high = v_float(vi_and(v_bits(p), mask)), rest = v_sub(p, high);
        vec middle = v_float(vi_and(v_bits(rest), mask));
        v_store(to, flush_subnormals(high));
        v_store(to + PH_STRIP_LD, flush_subnormals(middle));
        v_store(to + 2 * PH_STRIP_LD, flush_subnormals(v_sub(rest, middle)));
    }
    v_store(lanes, total);
}

/* 32 columns, deinterleaved into even and odd ones; `interleave` is the inverse. */
V void deinterleave(const float *c, vec *even, vec *odd)
{
    const vint first = _mm512_add_epi32(vi_iota(), vi_iota());
    vec a = v_load(c), b = v_load(c + VL);
    *even = _mm512_permutex2var_ps(a, first, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(first, vi_set1(1)), b);
}

V void interleave(vec even, vec odd, float *c)
{
    const vint half = _mm512_srli_epi32(vi_iota(), 1);
    const vint low = _mm512_mask_add_epi32(half, 0xaaaa, half, vi_set1(VL));
    v_store(c, _mm512_permutex2var_ps(even, low, odd));
    v_store(c + VL,
            _mm512_permutex2var_ps(even, _mm512_add_epi32(low, vi_set1(VL / 2)), odd));
}

static void start_totals(const ph_strip *x, in_place_work *w)
{
    for (int i = 0; i < x->m; i++)
        for (int j = 0; j < x->width; j += PH_AMX_STEP) {
            const vec rescale = v_set1(w->rescale[i]);
            vec even = v_zero(), odd = v_zero();
            if (!x->fresh) deinterleave(x->c + i * x->ldc + j, &even, &odd);
            v_store(w->total[i] + j, flush_subnormals(v_mul(even, rescale)));
            v_store(w->total[i] + j + VL, flush_subnormals(v_mul(odd, rescale)));
        }
}

/* One FMA chain over `lines` keys for each term of m rows and 32 * wide columns. */
V void run_chains(const int m, const int wide, const int lines, const in_place_work *w,
                  int key, int column, vec sum[SUMS])
{
    const float *terms = w->terms + key;
    const uint16_t *v = w->v + key * w->ldv + column;
#pragma GCC unroll 24
    for (int i = 0; i < m * PH_BF16_TERMS * 2 * wide; i++) sum[i] = v_zero();
#pragma GCC unroll 2
    for (int k = 0; k < lines; k++, v += w->ldv)
#pragma GCC unroll 4
        for (int g = 0; g < wide; g++) {
            __m512i pairs = _mm512_loadu_si512(v + g * PH_AMX_STEP);
            vec even = v_float(_mm512_slli_epi32(pairs, 16));
            vec odd = v_float(vi_and(pairs, vi_set1(0xffff0000u)));
            __builtin_prefetch(v + g * PH_AMX_STEP + w->prefetch_elements, 0, 2);
#pragma GCC unroll 6
            for (int p = 0; p < m * PH_BF16_TERMS; p++) {
                vec *to = &sum[(p * wide + g) * 2];
                const vec weight = v_set1(terms[p * PH_STRIP_LD + k]);
                to[0] = v_fma(weight, even, to[0]);
                to[1] = v_fma(weight, odd, to[1]);
            }
        }
}

/* Adds one step of 32 keys to 32 * wide columns of m rows. */
V void add_step(const int m, const int wide, in_place_work *w, int key, int column)
{
    vec first[SUMS], second[SUMS];
    int n = w->keys - key;
    if (n >= PH_AMX_STEP) {
        run_chains(m, wide, PH_AMX_TILE, w, key, column, first);
        run_chains(m, wide, PH_AMX_TILE, w, key + PH_AMX_TILE, column, second);
    } else {
        run_chains(m, wide, ph_min(n, PH_AMX_TILE), w, key, column, first);
        run_chains(m, wide, ph_max(n - PH_AMX_TILE, 0), w, key + PH_AMX_TILE, column,
                   second);
    }
#pragma GCC unroll 8
    for (int i = 0; i < m * wide * 2; i++) {
        int row = i / (wide * 2), half = i % (wide * 2);
        float *c = w->total[row] + column + half * VL;
        vec total = v_load(c);
#pragma GCC unroll 3
        for (int p = 0; p < PH_BF16_TERMS; p++) {
            int at = (row * PH_BF16_TERMS + p) * wide * 2 + half;
            total = v_add(total, v_add(first[at], second[at]));
        }
        v_store(c, total);
    }
}

V void add_steps(const int m, const int wide, const ph_strip *x, in_place_work *w)
{
    for (int key = 0; key < w->keys; key += PH_AMX_STEP) {
        int j = 0;
        for (; j + wide * PH_AMX_STEP <= x->width; j += wide * PH_AMX_STEP)
            add_step(m, wide, w, key, j);
        for (; j < x->width && wide > 1; j += PH_AMX_STEP) add_step(m, 1, w, key, j);
    }
}

/* Returns the exception flags that MXCSR collected. */
static __attribute__((noinline)) unsigned multiply_v(const ph_strip *x, in_place_work *w)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr((before | FLUSH) & ~(unsigned)DENORMAL);
    if (x->m == 1)
        add_steps(1, 4, x, w);
    else
        add_steps(2, 2, x, w);
    const unsigned flags = _mm_getcsr();
    _mm_setcsr(before);
    return flags;
}

static int all_finite(const ph_strip *x, const in_place_work *w)
{
    vmask finite = 0xffff;
    for (int i = 0; i < x->m; i++)
        for (int j = 0; j < x->width; j += VL)
            finite &= _mm512_cmp_ps_mask(v_abs(v_load(w->total[i] + j)),
                                         v_set1(__FLT_MAX__), _CMP_LE_OQ);
    return finite == 0xffff;
}

static void store_results(const ph_strip *x, const in_place_work *w)
{
    for (int i = 0; i < x->m; i++) {
        x->row_max[i] = w->row_max[i], x->rescale[i] = w->rescale[i];
        v_store(x->sum + i * PH_LANES, v_load(w->sum + i * PH_LANES));
        for (int j = 0; j < x->width; j += PH_AMX_STEP)
            interleave(v_load(w->total[i] + j), v_load(w->total[i] + j + VL),
                       x->c + i * x->ldc + j);
    }
}

int ph_amx_attend_in_place(const ph_strip *x, const uint16_t *v, int64_t ldv, int keys,
                           int64_t prefetch_bytes)
{
    in_place_work w;
    if (x->width > MAX_WIDTH) return 0;
    w.v = v, w.ldv = ldv, w.prefetch_elements = prefetch_bytes / 2, w.keys = keys;
    for (int i = 0; i < x->m; i++) w.row_max[i] = x->row_max[i];
    raise_row_max(x->m, x->lane_max, w.row_max, w.rescale, w.base);
    for (int i = 0; i < x->m; i++) split_weights(x, &w, i);
    start_totals(x, &w);
    if ((multiply_v(x, &w) & DENORMAL) || !all_finite(x, &w)) return 0;
    store_results(x, &w);
    return 1;
}

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
