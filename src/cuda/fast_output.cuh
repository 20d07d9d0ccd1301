/*
 * fast_output.cuh - results of the fast kernels: rows of an accumulator divided and stored,
 * splits of decoded rows merged.
 */
#ifndef PH_CUDA_FAST_OUTPUT_CUH
#define PH_CUDA_FAST_OUTPUT_CUH

#include "cuda/fast_softmax.cuh"
#include "cuda/fast_tiles.cuh"

#define LN2 0.6931471805599453

/* A quad exchanges its pairs of columns, so that each lane has 16 bytes of a row. */
DEVICE void exchange_quad(uint32_t (&u)[4], int lane)
{
    int odd = lane & 1, upper = lane & 2;
    uint32_t x = __shfl_xor_sync(~0u, odd ? u[0] : u[1], 1);
    uint32_t y = __shfl_xor_sync(~0u, odd ? u[2] : u[3], 1);
    if (odd)
        u[0] = x, u[2] = y;
    else
        u[1] = x, u[3] = y;
    x = __shfl_xor_sync(~0u, upper ? u[0] : u[2], 2);
    y = __shfl_xor_sync(~0u, upper ? u[1] : u[3], 2);
    if (upper)
        u[0] = x, u[1] = y;
    else
        u[2] = x, u[3] = y;
}

DEVICE void store_columns(uint16_t *out, const uint32_t (&u)[4], int columns)
{
    if (columns >= 8 && (uintptr_t)out % 16 == 0) {
        *(uint4 *)out = make_uint4(u[0], u[1], u[2], u[3]);
        return;
    }
#pragma unroll
    for (int x = 0; x < 8; x++)
        if (x < columns) out[x] = (uint16_t)(u[x / 2] >> 16 * (x % 2));
}

/* Where a row of the output begins. */
DEVICE uint16_t *output_row(const ph_cuda_call &c, int batch, query at)
{
    const ph_strides &s = c.attn.out;
    return (uint16_t *)c.args.out + batch * s.batch + at.head * s.head +
           at.token * s.time;
}

DEVICE void store_lse(const ph_cuda_call &c, const item &it, query at, double lse)
{
    const ph_attn &a = c.attn;
    c.args.lse[((int64_t)it.batch * a.q_heads + at.head) * a.q_len + at.token] =
        (float)lse;
}

/* What weighted values of a row are multiplied by; `store`: also stores its lse. */
DEVICE float finish_row(const ph_cuda_call &c, const item &it, query at, float max,
                        float sum, int store)
{
    const int computed = at.token < it.size.q_len;
    if (store && c.args.lse && at.token < c.attn.q_len) {
        const double lse = (double)reference(max, c.scale2) * LN2 + (double)logf(sum);
        store_lse(c, it, at, computed && sum != 0 ? lse : -INFINITY);
    }
    return sum == 0 || !computed ? 0 : __frcp_rn(sum);
}

/* Two columns of an output row; fma makes -0 to +0. */
template <class TYPE> DEVICE uint32_t divided(TYPE type, float low, float high, float f)
{
    if (f == 0) return 0; /* whatever the row holds */
    return packed(type, __fmaf_rn(low, f, 0.0f), __fmaf_rn(high, f, 0.0f));
}

/* Divides and stores the thread's rows. */
template <class T, class TYPE>
DEVICE void store_rows(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                       const item &it, const float (&o)[T::DIM / 2], const running &r,
                       int row)
{
    const ph_attn &a = c.attn;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const query at = query_of<T>(a, plan, it, row + 8 * i);
        const float factor = finish_row(c, it, at, r.max[i], r.sum[i], lane % 4 == 0);
        uint16_t *out = output_row(c, it.batch, at);
#pragma unroll
        for (int x = 0; x < T::DIM / 8; x += 4) {
            uint32_t u[4];
#pragma unroll
            for (int g = 0; g < 4; g++)
                u[g] = divided(type, o[4 * (x + g) + 2 * i], o[4 * (x + g) + 2 * i + 1],
                               factor);
            exchange_quad(u, lane);
            const int column = 8 * (x + lane % 4);
            if (at.token < a.q_len && column < a.v_dim)
                store_columns(out + column, u, a.v_dim - column);
        }
    }
}

/* ---- splits of decoded rows ---- */

/* Rows of one split of a tile: where its weighted values, maxima and sums begin. */
template <class T>
DEVICE int64_t split_at(const ph_cuda_schedule &plan, const item &it, int split)
{
    return ((int64_t)it.tile * plan.splits + it.first_split + split) * plan.tokens *
           plan.group;
}

/* Rows that are padding are not stored: they would be most of what is written. */
template <class T>
DEVICE void store_split(const ph_attn &a, const ph_cuda_schedule &plan, const item &it,
                        const float (&o)[T::DIM / 2], const running &r, int row)
{
    const int64_t first = split_at<T>(plan, it, it.split);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (query_of<T>(a, plan, it, row + 8 * i).token >= it.size.q_len) continue;
        float *partial = plan.partial + (first + row + 8 * i) * T::DIM;
#pragma unroll
        for (int x = 0; x < T::DIM / 8; x++)
            *(float2 *)(partial + 8 * x + threadIdx.x % 4 * 2) =
                make_float2(o[4 * x + 2 * i], o[4 * x + 2 * i + 1]);
        if (threadIdx.x % 4 == 0)
            ((float2 *)plan.stats)[first + row + 8 * i] = make_float2(r.max[i], r.sum[i]);
    }
}

/* Says that a split is stored. Returns 1 in the CTA that was last; that one sets the
   counter back. */
template <class T>
DEVICE int is_last_split(const ph_cuda_schedule &plan, const item &it, uint32_t base)
{
    __threadfence();
    meet<PH_WARPGROUP>(MERGE_MEET);
    if (threadIdx.x == PH_WARPGROUP) {
        const int last = (int)atomicAdd(&plan.arrived[it.tile], 1u) == it.splits - 1;
        if (last) plan.arrived[it.tile] = 0;
        __threadfence();
        store_shared(base + T::LAST_AT, last);
    }
    meet<PH_WARPGROUP>(MERGE_MEET);
    return load_shared(base + T::LAST_AT);
}

/* Eight columns of a row, split by split in order, as a prefill does at the end of each.
   Other CTAs wrote them: they are read past the first cache. */
template <class T>
DEVICE void merge_columns(const ph_cuda_schedule &plan, const item &it, int row,
                          int column, float scale2, float (&o)[8], float &max, float &sum)
{
#pragma unroll 4
    for (int split = 0; split < it.splits; split++) {
        const int64_t at = split_at<T>(plan, it, split) + row;
        const float4 *from = (const float4 *)(plan.partial + at * T::DIM + column);
        const float2 stats = __ldcg((const float2 *)plan.stats + at);
        const float4 x = __ldcg(from), y = __ldcg(from + 1);
        const float part[8] = {x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w};
        float whole_factor = 0, split_factor = 1;
        if (split == 0)
            max = stats.x, sum = stats.y;
        else
            merge_sums(max, sum, stats.x, stats.y, scale2, whole_factor, split_factor);
#pragma unroll
        for (int i = 0; i < 8; i++)
            o[i] = split == 0 ? part[i]
                              : merged(o[i], whole_factor, part[i], split_factor);
    }
}

template <class T, class TYPE>
DEVICE void merge_splits(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         const item &it)
{
    const int pieces = T::DIM / 8, rows = plan.tokens * plan.group;
    for (int n = threadIdx.x % PH_WARPGROUP; n < rows * pieces; n += PH_WARPGROUP) {
        const int row = n / pieces, column = n % pieces * 8;
        const query at = query_of<T>(c.attn, plan, it, row);
        float o[8] = {}, max = -INFINITY, sum = 0;
        uint32_t u[4];
        if (at.token >= c.attn.q_len || column >= c.attn.v_dim) continue;
        if (at.token < it.size.q_len)
            merge_columns<T>(plan, it, row, column, c.scale2, o, max, sum);
        const float factor = finish_row(c, it, at, max, sum, column == 0);
#pragma unroll
        for (int i = 0; i < 4; i++)
            u[i] = divided(type, o[2 * i], o[2 * i + 1], factor);
        store_columns(output_row(c, it.batch, at) + column, u, c.attn.v_dim - column);
    }
}

#endif
