/*
 * fast_output.cuh - results of the fast kernels: rows of an accumulator divided and stored,
 * splits of decoded rows merged.
 */
#ifndef PH_CUDA_FAST_OUTPUT_CUH
#define PH_CUDA_FAST_OUTPUT_CUH

#include "cuda/fast_softmax.cuh"
#include "cuda/fast_tiles.cuh"

#define LN2   0.6931471805599453
#define LOG2E 1.4426950408889634f

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

/* A sink takes part in the sum of a row like one more key; max2 is in base 2. Returns what
   the weighted values shrink by. */
DEVICE float add_sink(float sink, float &max2, float &sum)
{
    const float sink2 = __fmul_rn(sink, LOG2E), old = sum == 0 ? -INFINITY : max2;
    if (sink == -INFINITY) return 1;
    max2 = fmaxf(old, sink2);
    const float shrunk = exp2_of(__fsub_rn(old, max2));
    sum = __fmaf_rn(sum, shrunk, exp2_of(__fsub_rn(sink2, max2)));
    return shrunk;
}

/* What weighted values of a row are multiplied by; `store`: also stores its lse. */
DEVICE float finish_row(const ph_cuda_call &c, const item &it, query at, float max,
                        float sum, int store)
{
    float max2 = reference(max, c.scale2), factor = 1;
    if (at.token >= c.attn.q_len) return 0;
    const float gate = gate_of(c, it.batch, at.head, at.token);
    const int computed = at.token < it.size.q_len && gate != 0;
    const int seen = sum != 0;
    if (c.args.sink) factor = add_sink(c.args.sink[at.head], max2, sum);
    if (store && c.args.lse)
        store_lse(c, it, at,
                  computed && sum != 0 ? (double)max2 * LN2 + (double)logf(sum)
                                       : -INFINITY);
    return seen && computed ? gate * (factor * __frcp_rn(sum)) : 0;
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
    const int lane = thread_now() % 32;
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
    if (threadIdx.x == FIRST_CLEANER) {
        __threadfence(); /* consumers stored it, and arrived at a barrier */
        const int last = (int)atomicAdd(&plan.arrived[it.tile], 1u) == it.splits - 1;
        if (last) plan.arrived[it.tile] = 0;
        __threadfence();
        store_shared(base + T::LAST_AT, last);
    }
    meet<CLEANERS>(CLEANERS_MEET);
    const int last = load_shared(base + T::LAST_AT);
    meet<CLEANERS>(CLEANERS_MEET);
    return last;
}

/* Four columns of a row in one split. */
struct part {
    float2 stats; /* maximum, sum */
    float4 o;
};

/* Other CTAs wrote it: it is read past the first cache. */
template <class T>
DEVICE part load_part(const ph_cuda_schedule &plan, int64_t row, int column)
{
    const float4 *from = (const float4 *)(plan.partial + row * T::DIM + column);
    return part{__ldcg((const float2 *)plan.stats + row), __ldcg(from)};
}

/* The columns of a row, and its maximum and sum. */
struct merged_row {
    float o[4], max, sum;
};

DEVICE void merge_part(merged_row &r, const part &p, int first, float scale2)
{
    const float o[4] = {p.o.x, p.o.y, p.o.z, p.o.w};
    float whole = 0, split = 1;
    if (first)
        r.max = p.stats.x, r.sum = p.stats.y;
    else
        merge_sums(r.max, r.sum, p.stats.x, p.stats.y, scale2, whole, split);
#pragma unroll
    for (int i = 0; i < 4; i++) r.o[i] = first ? o[i] : merged(r.o[i], whole, o[i], split);
}

/* Split by split in order, as a prefill does at the end of each; several loads at once,
   because each takes longer than all arithmetic. */
template <class T>
DEVICE void merge_columns(const ph_cuda_schedule &plan, const item &it, int row,
                          int column, float scale2, merged_row &r)
{
    enum { AT_ONCE = 8 };
    const int splits = it.splits, step = plan.tokens * plan.group;
    const int64_t at = split_at<T>(plan, it, 0) + row;
    for (int first = 0; first < splits; first += AT_ONCE) {
        part p[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            p[i] = load_part<T>(plan, at + (int64_t)min(first + i, splits - 1) * step,
                                column);
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (first + i < splits) merge_part(r, p[i], first + i == 0, scale2);
    }
}

/* By the cleaners, while consumers compute the next item. */
template <class T, class TYPE>
DEVICE void merge_splits(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         const item &it)
{
    const int pieces = T::DIM / 4, rows = plan.tokens * plan.group;
    for (int n = threadIdx.x - FIRST_CLEANER; n < rows * pieces; n += CLEANERS) {
        const int row = n / pieces, column = n % pieces * 4;
        const query at = query_of<T>(c.attn, plan, it, row);
        merged_row r = {{}, -INFINITY, 0};
        if (at.token >= c.attn.q_len || column >= c.attn.v_dim) continue;
        if (at.token < it.size.q_len)
            merge_columns<T>(plan, it, row, column, c.scale2, r);
        const float factor = finish_row(c, it, at, r.max, r.sum, column == 0);
        uint16_t *out = output_row(c, it.batch, at) + column; /* perhaps not aligned */
#pragma unroll
        for (int i = 0; i < 4; i += 2) {
            const uint32_t u = divided(type, r.o[i], r.o[i + 1], factor);
            out[i] = (uint16_t)u, out[i + 1] = (uint16_t)(u >> 16);
        }
    }
}

#endif
