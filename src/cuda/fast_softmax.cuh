/*
 * fast_softmax.cuh - the online softmax of the fast kernels, on accumulators of wgmma.
 *
 * A thread holds columns of two rows, which it shares with its quad of lanes. Element x of
 * an accumulator is row x / 2 % 2 of them (wgmma_layout.h).
 */
#ifndef PH_CUDA_FAST_SOFTMAX_CUH
#define PH_CUDA_FAST_SOFTMAX_CUH

#include <math.h>

#include "cuda/hopper.cuh"

#define LOG2E 1.4426950408889634f

/* A row's reference, about its largest score so far, and the sum of its weights. */
struct running {
    float max[2]; /* of q k^T, not yet scaled; see REFERENCE_LAG */
    float sum[2]; /* of this thread's columns in a split; of the row behind its end */
};

DEVICE void reset(running &r)
{
    r.max[0] = r.max[1] = -INFINITY;
    r.sum[0] = r.sum[1] = 0;
}

/* What exponents are measured against; 0 where no key was seen. */
DEVICE float reference(float row_max, float scale2)
{
    return row_max == -INFINITY ? 0 : __fmul_rn(row_max, scale2);
}

/* By how much sums against an old maximum shrink: exactly 1 where it did not change, so
   that a block in which a row sees nothing leaves the row as it is, bit by bit. */
DEVICE float shrink(float old_max, float scale2, float now)
{
    return exp2_of(__fsub_rn(__fmul_rn(old_max, scale2), now));
}

/* ... where the reference of a row is raised. */
DEVICE float rescale_of(float old_max, float most, float scale2)
{
    return most == -INFINITY ? 1 : shrink(old_max, scale2, reference(most, scale2));
}

/* A bit for each column that the thread has of a row, set for those below `key`, which
   counts from its first: columns come in pairs, 8 apart. */
DEVICE uint32_t bits_below(int key, int columns)
{
    const int most = min(max(key, 0), columns * 4);
    return (uint32_t)((1ull << (most / 8 * 2 + min(most % 8, 2))) - 1);
}

/* Columns outside [lo, hi) of their row become `hidden`. Predicates are set from bits by
   sevens: a comparison for each score would take as long as its exponential. */
template <int N>
DEVICE void hide(float (&s)[N], const int (&lo)[2], const int (&hi)[2], float hidden)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t seen = bits_below(hi[i], N / 2) & ~bits_below(lo[i], N / 2);
#pragma unroll
        for (int x = 0; x < N / 2; x++)
            if (!(seen >> x & 1)) s[x / 2 * 4 + 2 * i + x % 2] = hidden;
    }
}

/* The largest score of both rows in a quad. CHAINS of elements side by side do not wait for
   each other: rows, and even and odd columns. */
template <int N, int CHAINS> DEVICE void max_of_rows(const float *s, float (&row_max)[2])
{
    float most[CHAINS];
#pragma unroll
    for (int x = 0; x < CHAINS; x++) most[x] = s[x];
#pragma unroll
    for (int x = CHAINS; x < N; x++) most[x % CHAINS] = fmaxf(most[x % CHAINS], s[x]);
#pragma unroll
    for (int x = 4; x < CHAINS; x++) most[x % 4] = fmaxf(most[x % 4], most[x]);
#pragma unroll
    for (int i = 0; i < 2; i++) most[i] = fmaxf(most[2 * i], most[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 2; i++)
        most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 1));
#pragma unroll
    for (int i = 0; i < 2; i++)
        row_max[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 2));
}

/* How far a score may exceed the reference of its row, in base 2, so that sums have to be
   rescaled less often. A weight of 1 is exact in 16 bits, others are rounded: where one key
   dominates a row its weight should be 1. With a lag of 1 some earlier key has half its
   weight or more, so that no weight above 2/3 of the sum is rounded
   (bench/reference_lag.py). Each row decides for itself: its bits do not depend on its
   neighbours. */
constexpr float REFERENCE_LAG = 1;

/* Takes the maximum of a block into the running one; rescale: what earlier sums shrink by,
   zero: what exponents are measured against. */
DEVICE void raise_max(running &r, const float (&row_max)[2], float scale2,
                      float (&rescale)[2], float (&zero)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float above = __fmul_rn(__fsub_rn(row_max[i], r.max[i]), scale2);
        const float most = above > REFERENCE_LAG ? row_max[i] : r.max[i];
        zero[i] = reference(most, scale2);
        rescale[i] = rescale_of(r.max[i], most, scale2);
        r.max[i] = most;
    }
}

/* Weights of a quarter of a block, and their sums by row. */
template <int N>
DEVICE void weigh_quarter(float *s, float scale2, const float (&zero)[2], float (&sum)[2])
{
    float chain[4];
#pragma unroll
    for (int x = 0; x < N; x++) {
        s[x] = exp2_of(__fmaf_rn(s[x], scale2, -zero[x / 2 % 2]));
        chain[x % 4] = x < 4 ? s[x] : __fadd_rn(chain[x % 4], s[x]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) sum[i] = __fadd_rn(chain[2 * i], chain[2 * i + 1]);
}

/* Sums of the quarters of a block: a warp may hold one, or all. */
DEVICE float add_quarters(float a, float b, float c, float d)
{
    return __fadd_rn(__fadd_rn(a, b), __fadd_rn(c, d));
}

/* Scores become weights. Rows see keys of the first SEEN quarters of the block only. */
template <int SEEN, int N>
DEVICE void weigh(float (&s)[N], const float (&row_max)[2], running &r, float scale2,
                  float (&rescale)[2])
{
    float zero[2], sum[4][2] = {};
    raise_max(r, row_max, scale2, rescale, zero);
#pragma unroll
    for (int k = 0; k < SEEN; k++)
        weigh_quarter<N / 4>(s + k * N / 4, scale2, zero, sum[k]);
#pragma unroll
    for (int x = SEEN * N / 4; x < N; x++) s[x] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++)
        r.sum[i] = __fmaf_rn(r.sum[i], rescale[i],
                             add_quarters(sum[0][i], sum[1][i], sum[2][i], sum[3][i]));
}

/* Weights as the A operand of the next product. */
template <class TYPE, int N>
DEVICE void pack(TYPE type, const float (&s)[N], uint32_t (&p)[N / 2])
{
#pragma unroll
    for (int x = 0; x < N / 2; x++) p[x] = packed(type, s[2 * x], s[2 * x + 1]);
}

/* Does a warp hold NaN or Inf? */
template <int N> DEVICE int is_nonfinite(const float (&o)[N])
{
    float zero[4] = {};
#pragma unroll
    for (int x = 0; x < N; x++) zero[x % 4] = __fmaf_rn(o[x], 0, zero[x % 4]);
    return __any_sync(
        ~0u, __fadd_rn(__fadd_rn(zero[0], zero[1]), __fadd_rn(zero[2], zero[3])) != 0);
}

template <int N> DEVICE void scale_rows(float (&o)[N], const float (&factor)[2])
{
    if (__all_sync(~0u, factor[0] == 1 && factor[1] == 1)) return; /* exact, and common */
#pragma unroll
    for (int x = 0; x < N; x++) o[x] = __fmul_rn(o[x], factor[x / 2 % 2]);
}

/* ---- splits ---- */

/* What a split and the whole before it are multiplied by when they add up. */
struct factors {
    float whole[2], split[2];
};

DEVICE float merged(float whole, float a, float split, float b)
{
    return __fmaf_rn(whole, a, __fmul_rn(split, b));
}

/* Adds a split to maximum and sum of the whole; gives the factors of weighted values. */
DEVICE void merge_sums(float &max, float &sum, float split_max, float split_sum,
                       float scale2, float &whole_factor, float &split_factor)
{
    const float both = fmaxf(max, split_max), zero = reference(both, scale2);
    whole_factor = shrink(max, scale2, zero);
    split_factor = shrink(split_max, scale2, zero);
    sum = merged(sum, whole_factor, split_sum, split_factor);
    max = both;
}

DEVICE float sum_of_quad(float x)
{
    x = __fadd_rn(x, __shfl_xor_sync(~0u, x, 1));
    return __fadd_rn(x, __shfl_xor_sync(~0u, x, 2));
}

/* Ends a split: adds up its sums over the quad and with those of the whole, which are in
   `slot` unless this split is the first. */
DEVICE void end_sums(float4 *slot, running &split, float scale2, int first, factors &f)
{
#pragma unroll
    for (int i = 0; i < 2; i++) split.sum[i] = sum_of_quad(split.sum[i]);
    if (!first) {
        const float4 before = *slot;
        float max[2] = {before.x, before.y}, sum[2] = {before.z, before.w};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            merge_sums(max[i], sum[i], split.max[i], split.sum[i], scale2, f.whole[i],
                       f.split[i]);
            split.max[i] = max[i], split.sum[i] = sum[i];
        }
    }
    __syncwarp();
    if (threadIdx.x % 4 == 0)
        *slot = make_float4(split.max[0], split.max[1], split.sum[0], split.sum[1]);
    __syncwarp();
}

/* ... and its weighted values: into the slots, which the lanes of a warp have side by side,
   or at the last split into o. AT_ONCE slots together: as many as registers allow. */
template <int SHARED, int AT_ONCE, int N>
DEVICE void end_values(float4 *slots, float (&o)[N], const factors &f, int first,
                       int last)
{
    if (first && last) return;
#pragma unroll
    for (int x = 0; x < N; x += 4 * AT_ONCE) {
        float4 *slot = &slots[x / 4 * 32], before[AT_ONCE];
        if (!first) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                before[i] = SHARED ? slot[i * 32] : load_global(&slot[i * 32]);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                float *y = &o[x + 4 * i];
                y[0] = merged(before[i].x, f.whole[0], y[0], f.split[0]);
                y[1] = merged(before[i].y, f.whole[0], y[1], f.split[0]);
                y[2] = merged(before[i].z, f.whole[1], y[2], f.split[1]);
                y[3] = merged(before[i].w, f.whole[1], y[3], f.split[1]);
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE && !last; i++) {
            const float *y = &o[x + 4 * i];
            const float4 now = make_float4(y[0], y[1], y[2], y[3]);
            if (SHARED)
                slot[i * 32] = now;
            else
                store_global(&slot[i * 32], now);
        }
        if (SHARED)
            asm volatile("" ::: "memory"); /* not all loads at once */
        else
            __threadfence_block(); /* nor by the assembler */
    }
}

#endif
