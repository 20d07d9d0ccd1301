/*
 * plain_forward.cu - the forward pass in f32 FFMA: online softmax over blocks of 64 keys.
 */
#include "cuda/plain.cuh"

/* The online softmax of four rows, the same in the 16 threads that share them. */
struct softmax_rows {
    float row_max[4], sum[4];
};

static __device__ __forceinline__ float max_of_row(float x)
{
#pragma unroll
    for (int lane = 8; lane; lane /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lane));
    return x;
}

static __device__ __forceinline__ float sum_of_row(float x)
{
#pragma unroll
    for (int lane = 1; lane < 16; lane *= 2) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

/* Finishes the scores of visible pairs; bit 4i + j of the result: s[i][j] is one. */
static __device__ unsigned finish_scores(const ph_cuda_call &c, const memory &m,
                                         int first, int j0, float (&s)[4][4])
{
    const head_operands &o = m.at;
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    unsigned seen = 0;
    float derivative;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int r = spread(y, i / 4), key = j0 + spread(x, i % 4);
        if (key < m.lo[r] || key >= m.hi[r]) continue;
        if (is_excluded(c, o.batch, o.head, first + r, key)) continue;
        seen |= 1u << i;
        s[i / 4][i % 4] = score(c, o.e.offset, o.batch, o.head, first + r, key,
                                s[i / 4][i % 4] * c.scale2, &derivative);
    }
    return seen;
}

/* Weights of a block, and acc rescaled to the new maximum of its rows. */
static __device__ void weigh(const ph_cuda_call &c, memory &m, int j0, unsigned seen,
                             float (&s)[4][4], softmax_rows &rows, float (&acc)[4][8])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float block_max = -INFINITY, sum = 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (seen >> (4 * i + j) & 1) block_max = fmaxf(block_max, s[i][j]);
        float old = rows.row_max[i], now = fmaxf(old, max_of_row(block_max));
        float rescale = old == now ? 1 : exp2f(old - now);
        float base = now == -INFINITY ? 0 : now;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float w = hidden_weight();
            if (seen >> (4 * i + j) & 1) {
                float p = exp2f(s[i][j] - base);
                sum += p;
                w = visible_weight(
                    p * drop_factor(c, m.seed[spread(y, i)], j0 + spread(x, j)));
            }
            s[i][j] = w;
        }
        rows.row_max[i] = now;
        rows.sum[i] = fmaf(rows.sum[i], rescale, sum_of_row(sum));
#pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] *= rescale;
    }
    keep_by_key(m, s);
}

/* Takes the sink into a row's softmax: its lse, and the factor of its output. */
static __device__ void add_sink(float sink, double *lse, double *factor)
{
    if (sink == -INFINITY) return;
    double high = *lse > sink ? *lse : sink;
    double both = high + log(exp(*lse - high) + exp(sink - high));
    *factor *= exp(*lse - both);
    *lse = both;
}

/* What acc of a row is multiplied by; stores its lse. */
static __device__ float finish_row(const ph_cuda_call &c, const head_operands &o,
                                   int token, float gate, float row_max, float sum,
                                   int store_lse)
{
    if (token >= stored_rows(c.attn, o.e)) return 0;
    int computed = token < o.e.q_len && gate != 0, head = o.head;
    double lse = sum == 0 ? -INFINITY : row_max * LN2 + log((double)sum);
    double factor = sum == 0 ? 0 : (double)gate / sum;
    if (computed && c.args.sink) add_sink(c.args.sink[head], &lse, &factor);
    if (!computed) lse = -INFINITY, factor = 0;
    if (store_lse && c.args.lse)
        c.args.lse[row_index(c.attn, o.e, o.batch, head) + token] = (float)lse;
    return (float)factor;
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ph_plain_forward(const __grid_constant__ ph_cuda_call c)
{
    __shared__ memory m;
    const ph_attn &a = c.attn;
    int tiles = (a.q_len + TILE - 1) / TILE, c0 = blockIdx.y * COLUMNS;
    int64_t items = (int64_t)a.batch * a.q_heads * tiles;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        int first = (int)(item % tiles) * TILE, head = (int)(item / tiles % a.q_heads);
        int batch = (int)(item / tiles / a.q_heads), lo, hi;
        softmax_rows rows;
        float acc[4][8] = {}, s[4][4], factor[4];
        for (int i = 0; i < 4; i++) rows.row_max[i] = -INFINITY, rows.sum[i] = 0;
        load_head(c, batch, head, m);
        load_rows(c, first, m);
        tile_interval(a, m.at.e, first, TILE, &lo, &hi);
        for (int j0 = lo / TILE * TILE; j0 < hi; j0 += TILE) {
            multiply(m, m.at.q, first, m.at.k, j0, s);
            unsigned seen = finish_scores(c, m, first, j0, s);
            weigh(c, m, j0, seen, s, rows, acc);
            accumulate(m, m.at.v, j0, c0, acc);
        }
        for (int i = 0; i < 4; i++) {
            int r = spread(threadIdx.x / 16, i);
            if (rows.sum[i] == 0) /* saw no key, or scores of -inf: 0 whatever v holds */
                for (int j = 0; j < 8; j++) acc[i][j] = 0;
            factor[i] = finish_row(c, m.at, first + r, m.gate[r], rows.row_max[i],
                                   rows.sum[i], c0 == 0 && threadIdx.x % 16 == 0);
        }
        store_tile(c.args.out, a.dtype, start_of(a.out, batch, head, m.at.e.q_first),
                   a.out.time, first, stored_rows(a, m.at.e), a.v_dim, c0, acc, factor);
    }
}
