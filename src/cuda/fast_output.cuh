/*
 * fast_output.cuh - results of the fast kernels: rows of an accumulator divided and stored,
 * splits of decoded rows merged.
 */
#ifndef PH_CUDA_FAST_OUTPUT_CUH
#define PH_CUDA_FAST_OUTPUT_CUH

#include "cuda/fast_softmax.cuh"
#include "cuda/fast_tiles.cuh"

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

/* Up to 8 columns, wherever they lie. */
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

/* Do rows have all columns of the tile, in aligned pieces of 8? */
template <class T> DEVICE int has_pieces(const ph_attn &a, const item &it)
{
    return a.v_dim == T::DIM &&
           ((int64_t)it.out | a.out.time * 2 | a.out.head * 2) % 16 == 0;
}

/* Where a row of the output begins. */
DEVICE uint16_t *output_row(const ph_cuda_call &c, const item &it, query at)
{
    return it.out + (at.head - it.head) * c.attn.out.head +
           (at.token - it.row) * c.attn.out.time;
}

/* Index of a row in lse and gate. */
DEVICE int64_t packed_row(const ph_attn &a, const item &it, query at)
{
    return it.row_at + (at.head - it.head) * (a.ragged ? a.q_total : a.q_len) + at.token -
           it.row;
}

/* What multiplies the output of a row; a row with 0 is not computed. */
DEVICE float gate_of(const ph_cuda_call &c, const item &it, query at)
{
    if (!c.args.gate) return 1;
    if (c.attn.gate == PH_GATE_HEAD) return c.args.gate[at.head];
    return c.args.gate[packed_row(c.attn, it, at)];
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

/* max2 ln 2 + log_sum; ln 2 in two parts. */
DEVICE float natural(float max2, float log_sum)
{
    return __fmaf_rn(max2, 0.6931471824645996f,
                     __fmaf_rn(max2, -1.9046542121259336e-09f, log_sum));
}

/* What a row's result depends on besides its sums. */
struct row_end {
    float gate, sink; /* of a row that is not computed gate is 0 */
    int64_t at;       /* its index in lse; < 0: the row is not stored */
};

DEVICE row_end end_of_row(const ph_cuda_call &c, const item &it, query at)
{
    const int stored = at.token < it.stored;
    const int computed = stored && at.token < it.size.q_len;
    row_end e = {computed ? 1.0f : 0.0f, -INFINITY, -1};
    if (c.args.gate) e.gate = computed ? gate_of(c, it, at) : 0;
    if (c.args.sink && stored) e.sink = c.args.sink[at.head];
    if (c.args.lse && stored) e.at = packed_row(c.attn, it, at);
    return e;
}

/* 1 / x of what weights add up to: at least about 1. */
DEVICE float inverse(float x)
{
    const float y = reciprocal(x);
    return __fmaf_rn(y, __fmaf_rn(-x, y, 1), y);
}

/* What weighted values of a row are multiplied by; `store`: also stores its lse. */
template <class T>
DEVICE float finish_row(const ph_cuda_call &c, const row_end &e, float max, float sum,
                        int store)
{
    float factor = T::SCORES == PH_SCORES_DROPOUT ? c.drop_keep : 1;
    const int seen = sum != 0 && e.gate != 0;
    if (c.args.sink || c.args.lse) {
        float max2 = reference(max, c.score_scale);
        if (c.args.sink) factor *= add_sink(e.sink, max2, sum);
        if (store && e.at >= 0)
            c.args.lse[e.at] =
                e.gate != 0 && sum != 0 ? natural(max2, logf(sum)) : -INFINITY;
    }
    return seen ? e.gate * (factor * inverse(sum)) : 0;
}

/* What the thread's two rows are multiplied by. Without gates, sinks and lse in a stretch
   without branches: nothing of this consumer runs beside it. */
template <class T>
DEVICE void finish_rows(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                        const item &it, const running &r, int row, float (&factor)[2])
{
    const int plain = !c.args.gate && !c.args.sink && !c.args.lse;
    const int rows = min(it.stored, it.size.q_len);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const query at = query_of<T>(c.attn, plan, it, row + 8 * i);
        factor[i] = __fmul_rn(T::SCORES == PH_SCORES_DROPOUT ? c.drop_keep : 1,
                              inverse(r.sum[i]));
        if (r.sum[i] == 0 || at.token >= rows) factor[i] = 0;
    }
    if (plain) return;
#pragma unroll
    for (int i = 0; i < 2; i++)
        factor[i] = finish_row<T>(
            c, end_of_row(c, it, query_of<T>(c.attn, plan, it, row + 8 * i)), r.max[i],
            r.sum[i], thread_now() % 4 == 0);
}

/* Two columns of an output row; fma makes -0 to +0. */
template <class TYPE> DEVICE uint32_t divided(TYPE type, float low, float high, float f)
{
    if (f == 0) return 0; /* whatever the row holds */
    return packed(type, __fmaf_rn(low, f, 0.0f), __fmaf_rn(high, f, 0.0f));
}

/* The lane's 8 columns of row i, of the 32 from column 8 x on. */
template <class TYPE, int N>
DEVICE void divide_piece(TYPE type, const float (&o)[N], int x, int i, float factor,
                         uint32_t (&u)[4])
{
#pragma unroll
    for (int g = 0; g < 4; g++)
        u[g] = divided(type, o[4 * (x + g) + 2 * i], o[4 * (x + g) + 2 * i + 1], factor);
    exchange_quad(u, thread_now() % 32);
}

/* Divides and stores the thread's rows. Aligned ones without a branch: the shuffles of all
   pieces overlap. */
template <class T, class TYPE>
DEVICE void store_rows(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                       const item &it, const float (&o)[T::DIM / 2],
                       const float (&factor)[2], int row)
{
    const ph_attn &a = c.attn;
    const int first = 8 * (thread_now() % 4), pieces = has_pieces<T>(a, it);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const query at = query_of<T>(a, plan, it, row + 8 * i);
        const int columns = at.token < it.stored ? a.v_dim : 0;
        uint16_t *out = output_row(c, it, at) + first;
        uint32_t u[4];
        if (pieces) {
#pragma unroll
            for (int x = 0; x < T::DIM / 8; x += 4) {
                divide_piece(type, o, x, i, factor[i], u);
                store_if(out + 8 * x, u, columns > 0);
            }
        } else {
#pragma unroll
            for (int x = 0; x < T::DIM / 8; x += 4) {
                divide_piece(type, o, x, i, factor[i], u);
                store_columns(out + 8 * x, u, columns - first - 8 * x);
            }
        }
    }
}

/* Divides AT_ONCE columns from `first` on of a warp's 16 rows into shared memory, from
   where the copy engine stores them. */
template <class T, class TYPE>
DEVICE void stage_rows(TYPE type, const float (&o)[T::DIM / 2], int first,
                       const float (&factor)[2], uint32_t staged)
{
    const int lane = thread_now() % 32;
    const uint32_t piece = staged + lane % 16 * PH_LINE + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
    for (int x = 0; x < T::AT_ONCE / 16; x++) {
        const float *from = &o[first / 2 + 8 * x];
        uint32_t u[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            u[i] = divided(type, from[2 * i], from[2 * i + 1], factor[i % 2]);
        store_matrices((piece ^ x % 4 * 32) + x / 4 * STAGED_PANEL, u);
    }
    async_proxy_fence();
    __syncwarp();
}

/* Can the copy engine store 16 rows? It leaves out what lies behind the last row of the
   tensor, but in a ragged batch the next sequence follows. */
DEVICE int has_copied_rows(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                           const item &it, int row)
{
    return plan.out_map &&
           (!c.attn.ragged || it.row + row + PH_FAST_ROWS_STORED <= it.stored);
}

/* Lets the copy engine store staged columns from `first` on; row: the warp's first. */
template <class T>
DEVICE void copy_rows(const ph_cuda_call &c, const item &it, const tensor_map *map,
                      int row, int first, uint32_t staged)
{
    if (thread_now() % 32) return;
#pragma unroll
    for (int x = 0; x < T::AT_ONCE; x += 64)
        if (first + x < c.attn.v_dim)
            store_box(map, staged + x / 64 * STAGED_PANEL, first + x, it.q_row + row,
                      it.head, it.q_batch);
    commit_boxes();
}

/* ---- splits of decoded rows ---- */

/* Rows of one split of a tile: where its weighted values, maxima and sums begin. */
template <class T>
DEVICE int64_t split_at(const ph_cuda_schedule &plan, const item &it, int split)
{
    return ((int64_t)it.tile * plan.splits.by + it.first_split + split) * plan.tokens *
           plan.group;
}

/* Where a thread stores its two rows of a split, 8 apart. */
struct split_place {
    float *partial;
    float2 *stats;
    int there[2]; /* rows that are padding are not stored: they would be most of it */
};

/* row, column: the thread's first. */
template <class T>
DEVICE split_place place_of_split(const ph_attn &a, const ph_cuda_schedule &plan,
                                  const item &it, int row, int column)
{
    const int64_t at = split_at<T>(plan, it, it.split) + row;
    split_place to = {plan.partial + at * T::DIM + column, (float2 *)plan.stats + at, {}};
#pragma unroll
    for (int i = 0; i < 2; i++)
        to.there[i] = query_of<T>(a, plan, it, row + 8 * i).token < it.size.q_len;
    return to;
}

/* stats: the thread also stores maxima and sums. */
template <class T, int N>
DEVICE void store_split(const split_place &to, const float (&o)[N], const running &r,
                        int stats)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!to.there[i]) continue;
#pragma unroll
        for (int x = 0; x < N / 4; x++)
            *(float2 *)(to.partial + 8 * i * T::DIM + 8 * x) =
                make_float2(o[4 * x + 2 * i], o[4 * x + 2 * i + 1]);
        if (stats) to.stats[8 * i] = make_float2(r.max[i], r.sum[i]);
    }
}

/* Says that a split is stored, behind everything that the consumer stored of it. Returns 1
   in the CTA that was last, which sets the counter back. Each warp that merges rows has a
   counter, so that they need not wait for each other. */
DEVICE int is_last_split(const ph_cuda_schedule &plan, const item &it, int warp)
{
    int last = 0;
    if (threadIdx.x % 32 == 0) {
        unsigned *arrived = &plan.arrived[it.tile * PH_FAST_MERGERS + warp];
        last = (int)add_ordered(arrived, 1) == it.splits - 1;
        if (last) *arrived = 0;
    }
    return __shfl_sync(~0u, last, 0);
}

/* How a warp merges splits: a lane has pieces of 4 columns, of one row or more. Splits are
   loaded together, because a load takes longer than all arithmetic; their factors are
   computed by one lane per row and split. */
template <class T> struct merge_shape {
    enum {
        PIECES = T::DIM > 64 ? 2 : 1,
        ROWS = PIECES * 128 / T::DIM,
        SPLITS = T::DIM > 128 ? 4 : 8 /* at most 32 / ROWS */
    };
};

/* What merging split by split, in order, multiplies the whole and a split by. */
struct merge_step {
    float whole, split, sum; /* sum: of the split's weights */
};

/* The steps of up to SPLITS splits side by side, since maxima so far are a prefix maximum;
   stats: maximum and sum of the lane's row and split, row_max: of its row before. */
template <int SPLITS>
DEVICE merge_step step_of(float2 stats, int first, float scale2, float &row_max)
{
    const int lane = threadIdx.x % SPLITS;
    float most = stats.x;
#pragma unroll
    for (int n = 1; n < SPLITS; n *= 2) {
        const float x = __shfl_up_sync(~0u, most, n, SPLITS);
        if (lane >= n) most = fmaxf(most, x);
    }
    most = fmaxf(most, row_max);
    float before = __shfl_up_sync(~0u, most, 1, SPLITS);
    if (lane == 0) before = row_max;
    row_max = __shfl_sync(~0u, most, SPLITS - 1, SPLITS);
    if (first && lane == 0) return merge_step{0, 1, stats.y};
    const float zero = reference(most, scale2);
    return merge_step{shrink(before, scale2, zero), shrink(stats.x, scale2, zero),
                      stats.y};
}

/* What a lane merges: pieces of its warp's rows, and one split's factors of one row. */
template <class T> struct merging {
    enum { PIECES = merge_shape<T>::PIECES, SPLITS = merge_shape<T>::SPLITS };
    const float4 *partial[PIECES]; /* its pieces of split 0 */
    const float2 *stats;           /* of its row, in split 0 */
    int step;                      /* rows from split to split */
    row_end end;                   /* of its row */
    uint16_t *out[PIECES];         /* NULL: is not stored */
};

/* Which of its warp's rows the lane's k-th piece belongs to, and where in the row it is. */
template <class T> DEVICE int piece_row(int k)
{
    return (threadIdx.x % 32 + 32 * k) / (T::DIM / 4);
}

template <class T> DEVICE int piece_column(int k)
{
    return (threadIdx.x % 32 + 32 * k) % (T::DIM / 4) * 4;
}

/* Everything that can be known before the splits are there; row: the warp's first. Pieces
   and rows behind the last are read from the last. */
template <class T>
DEVICE merging<T> begin_merge(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                              const item &it, int row)
{
    merging<T> m;
    m.step = plan.tokens * plan.group;
    const int64_t first = split_at<T>(plan, it, 0);
    const int own = row + threadIdx.x % 32 / merging<T>::SPLITS;
    const int own_there = threadIdx.x % 32 / merging<T>::SPLITS < merge_shape<T>::ROWS;
    m.stats = (const float2 *)plan.stats + first + min(own, m.step - 1);
    m.end = row_end{0, -INFINITY, -1};
    if (own_there && own < m.step)
        m.end = end_of_row(c, it, query_of<T>(c.attn, plan, it, own));
#pragma unroll
    for (int k = 0; k < merging<T>::PIECES; k++) {
        const int at = row + piece_row<T>(k), column = piece_column<T>(k);
        const query q = query_of<T>(c.attn, plan, it, at);
        m.partial[k] = (const float4 *)(plan.partial +
                                        (first + min(at, m.step - 1)) * T::DIM + column);
        m.out[k] = at < m.step && q.token < it.stored && column < c.attn.v_dim
                       ? output_row(c, it, q) + column
                       : NULL;
    }
    return m;
}

DEVICE float4 merged(float4 whole, float a, float4 split, float b)
{
    return make_float4(merged(whole.x, a, split.x, b), merged(whole.y, a, split.y, b),
                       merged(whole.z, a, split.z, b), merged(whole.w, a, split.w, b));
}

/* Divides and stores up to 4 columns of a row. */
template <class TYPE>
DEVICE void store_merged(TYPE type, uint16_t *out, float4 o, float factor, int columns)
{
    const uint32_t u[2] = {divided(type, o.x, o.y, factor),
                           divided(type, o.z, o.w, factor)};
    if (columns >= 4 && (uintptr_t)out % 8 == 0) {
        *(uint2 *)out = make_uint2(u[0], u[1]);
        return;
    }
#pragma unroll
    for (int x = 0; x < 4; x++)
        if (x < columns) out[x] = (uint16_t)(u[x / 2] >> 16 * (x % 2));
}

/* Merges the splits of a warp's rows and stores the rows. Other CTAs wrote the splits: they
   are read past the first cache, those behind the last as the last. */
template <class T, class TYPE>
DEVICE void merge_rows(TYPE type, const ph_cuda_call &c, const merging<T> &m, int splits)
{
    enum { PIECES = merging<T>::PIECES, SPLITS = merging<T>::SPLITS };
    const int own_split = threadIdx.x % SPLITS;
    float4 o[PIECES] = {};
    float max = -INFINITY, sum = 0;
    for (int first = 0; first < splits; first += SPLITS) {
        float4 part[SPLITS][PIECES];
#pragma unroll
        for (int i = 0; i < SPLITS; i++)
#pragma unroll
            for (int k = 0; k < PIECES; k++)
                part[i][k] = __ldcg(m.partial[k] +
                                    min(first + i, splits - 1) * (m.step * (T::DIM / 4)));
        float2 stats = __ldcg(m.stats + min(first + own_split, splits - 1) * m.step);
        if (first + own_split >= splits) stats = make_float2(-INFINITY, 0);
        const merge_step f = step_of<SPLITS>(stats, first == 0, c.score_scale, max);
#pragma unroll
        for (int i = 0; i < SPLITS; i++) {
            if (first + i >= splits) break;
            sum = merged(sum, __shfl_sync(~0u, f.whole, i, SPLITS),
                         __shfl_sync(~0u, f.sum, i, SPLITS),
                         __shfl_sync(~0u, f.split, i, SPLITS));
#pragma unroll
            for (int k = 0; k < PIECES; k++) {
                const int from = piece_row<T>(k) * SPLITS + i;
                o[k] = merged(o[k], __shfl_sync(~0u, f.whole, from), part[i][k],
                              __shfl_sync(~0u, f.split, from));
            }
        }
    }
    const float factor = finish_row<T>(c, m.end, max, sum, own_split == 0);
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        const float f = __shfl_sync(~0u, factor, piece_row<T>(k) * SPLITS);
        if (m.out[k])
            store_merged(type, m.out[k], o[k], f, c.attn.v_dim - piece_column<T>(k));
    }
}

/* Waits until the consumer has stored the n-th split. If it is the last of its tile, merges
   the splits of the tile's rows: every PH_FAST_MERGERS-th group of them from `warp` on. */
template <class T, class TYPE>
DEVICE void merge_item(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                       const item &it, uint32_t stored, int n, int warp)
{
    enum { ROWS = merge_shape<T>::ROWS };
    const int rows = min(it.stored - it.row, plan.tokens) * plan.group;
    int row = warp * ROWS;
    merging<T> m = begin_merge<T>(c, plan, it, row);
    wait_stage<1>(stored, n);
    if (!is_last_split(plan, it, warp)) return;
    while (row < rows) {
        merge_rows<T>(type, c, m, it.splits);
        row += PH_FAST_MERGERS * ROWS;
        if (row < rows) m = begin_merge<T>(c, plan, it, row);
    }
}

#endif
