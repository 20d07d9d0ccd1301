/*
 * plain_backward.cu - dq, dk, dv, and what one number per row gives: delta, dgate, dsink.
 *
 * A CTA owns rows (dq) or keys (dk, dv) of one head and adds in order of keys or of heads
 * and rows: no atomics, so the bits do not depend on the order in which CTAs run.
 */
#include "cuda/plain_grad.cuh"

/* ---- delta ---- */

enum {
    ROW_LANES = 8, /* that share a row */
    ROWS_AT_ONCE = THREADS / ROW_LANES,
    ROWS_OF_DELTA = 256 /* of a CTA */
};

/* A sum over the lanes of a row; all threads of the warp take part. */
static __device__ float sum_of_row(float x)
{
#pragma unroll
    for (int lane = ROW_LANES / 2; lane; lane /= 2) x += __shfl_xor_sync(~0u, x, lane);
    return x;
}

/* Is it the lse of a row that saw no key but a sink? The fast kernels have it in base 2,
   so it may be off by three roundings. */
static __device__ int is_lse_of_sink(float lse, float sink)
{
    return fabsf(lse - sink) <= fmaxf(fabsf(sink) * 2.4e-7f, FLT_MIN);
}

/* Whether a row saw no key; only with a sink does lse leave that open. */
static __device__ int saw_nothing(const ph_cuda_call &c, const extent &e, int batch,
                                  int head, int token, float lse)
{
    int lo = 0, hi = 0, any = 0;
    if (!c.args.sink) return lse == -INFINITY;
    if (lse != -INFINITY && is_lse_of_sink(lse, c.args.sink[head]))
        interval(c.attn, e, token, &lo, &hi);
    else
        any = lse != -INFINITY;
    for (int j = lo + threadIdx.x % ROW_LANES; j < hi; j += ROW_LANES)
        any |= !is_excluded(c, batch, head, token, j);
    return sum_of_row((float)any) == 0;
}

/* The lane's part of it. */
static __device__ float dout_dot_out(const matrix &dout, const matrix &out, int token)
{
    float sum = 0;
    if (dout.quads && out.quads) {
        for (int d = threadIdx.x % ROW_LANES * 4; d < dout.columns; d += ROW_LANES * 4) {
            const float4 x = load4(dout.base, dout.type, token * dout.stride + d);
            const float4 y = load4(out.base, out.type, token * out.stride + d);
            sum = fmaf(x.w, y.w, fmaf(x.z, y.z, fmaf(x.y, y.y, fmaf(x.x, y.x, sum))));
        }
        return sum;
    }
    for (int d = threadIdx.x % ROW_LANES; d < dout.columns; d += ROW_LANES)
        sum = fmaf(element(dout, token, d), element(out, token, d), sum);
    return sum;
}

/* One computed row, from dout . out; row: its place in the workspace, at: in lse. */
static __device__ void finish_delta(const ph_cuda_call &c, int head, int64_t row,
                                    int64_t at, float product, float gate)
{
    double lse = c.args.lse[at], dlse = 0, dsink = 0;
    float sink = c.args.sink ? c.args.sink[head] : -INFINITY;
    if (c.grads.dlse && lse != -INFINITY) dlse = c.grads.dlse[at];
    double delta = product - dlse, dgate = c.args.gate ? (double)product / gate : 0;
    if (sink != -INFINITY) dsink = -exp(sink - lse) * delta;
    c.delta[row] = (float)delta;
    c.lse2[row] = lse == -INFINITY ? INFINITY : (float)(lse * 1.4426950408889634);
    if (c.row_dgate) c.row_dgate[row] = dgate;
    if (c.row_dsink) c.row_dsink[row] = dsink;
    if (c.grads.dgate && c.attn.gate == PH_GATE_ROW) c.grads.dgate[at] = (float)dgate;
}

/* `stored`: the row has a place in dgate. */
static __device__ void skip_delta(const ph_cuda_call &c, int64_t row, int64_t at,
                                  int stored)
{
    c.delta[row] = 0;
    c.lse2[row] = INFINITY;
    if (c.row_dgate) c.row_dgate[row] = 0;
    if (c.row_dsink) c.row_dsink[row] = 0;
    if (stored && c.grads.dgate && c.attn.gate == PH_GATE_ROW) c.grads.dgate[at] = 0;
}

/* Rows of a head, from `first` on. */
static __device__ void delta_tile(const ph_cuda_call &c, int batch, int head, int first)
{
    const ph_attn &a = c.attn;
    const extent e = extent_of(c, batch);
    const int64_t start = start_of(a.out, batch, head, e.q_first);
    const matrix dout =
        matrix_of(c.grads.dout, a.dtype, start, a.out.time, e.q_len, a.v_dim);
    const matrix out =
        matrix_of(c.args.out, a.dtype, start, a.out.time, e.q_len, a.v_dim);
    const int64_t at = row_index(a, e, batch, head), lanes = threadIdx.x / ROW_LANES;
    const int64_t row = ((int64_t)batch * a.q_heads + head) * a.q_len;
    for (int n = 0; n < ROWS_OF_DELTA && first + n < a.q_len; n += ROWS_AT_ONCE) {
        const int token = first + n + (int)lanes, there = token < e.q_len;
        const float gate = there ? gate_of(c, e, batch, head, token) : 0;
        const float lse = gate != 0 ? c.args.lse[at + token] : -INFINITY;
        const int nothing = saw_nothing(c, e, batch, head, token, lse);
        const int used = gate != 0 && !nothing;
        const float product = sum_of_row(used ? dout_dot_out(dout, out, token) : 0);
        if (threadIdx.x % ROW_LANES || token >= a.q_len) continue;
        if (gate != 0)
            finish_delta(c, head, row + token, at + token, product, gate);
        else
            skip_delta(c, row + token, at + token, token < stored_rows(a, e));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ph_plain_delta(const __grid_constant__ ph_cuda_call c)
{
    const ph_attn &a = c.attn;
    const int tiles = (a.q_len + ROWS_OF_DELTA - 1) / ROWS_OF_DELTA;
    const int64_t items = (int64_t)a.batch * a.q_heads * tiles;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const int unit = (int)(item / tiles), first = (int)(item % tiles) * ROWS_OF_DELTA;
        delta_tile(c, unit / a.q_heads, unit % a.q_heads, first);
    }
}

/* Sum over the rows of one head in all batch rows. */
static __device__ double sum_of_head(const ph_cuda_call &c, const double *terms, int head)
{
    __shared__ double partial[THREADS];
    const ph_attn &a = c.attn;
    double sum = 0;
    for (int b = 0; b < a.batch; b++)
        for (int t = threadIdx.x; t < a.q_len; t += THREADS)
            sum += terms[((int64_t)b * a.q_heads + head) * a.q_len + t];
    partial[threadIdx.x] = sum;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    __syncthreads();
    sum = partial[0];
    __syncthreads();
    return sum;
}

/* dgate per head and dsink. */
extern "C" __global__ void __launch_bounds__(THREADS)
    ph_plain_head_sums(const __grid_constant__ ph_cuda_call c)
{
    for (int head = blockIdx.x; head < c.attn.q_heads; head += gridDim.x) {
        if (c.grads.dgate && c.attn.gate == PH_GATE_HEAD) {
            double sum = sum_of_head(c, c.row_dgate, head);
            if (threadIdx.x == 0) c.grads.dgate[head] = (float)sum;
        }
        if (c.grads.dsink) {
            double sum = sum_of_head(c, c.row_dsink, head);
            if (threadIdx.x == 0) c.grads.dsink[head] = (float)sum;
        }
    }
}

/* ---- dq, dk, dv ---- */

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ph_plain_dq(const __grid_constant__ ph_cuda_call c)
{
    __shared__ memory m;
    const ph_attn &a = c.attn;
    int tiles = (a.q_len + TILE - 1) / TILE, c0 = blockIdx.y * COLUMNS, lo, hi;
    int64_t items = (int64_t)a.batch * a.q_heads * tiles;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        int first = (int)(item % tiles) * TILE, head = (int)(item / tiles % a.q_heads);
        int batch = (int)(item / tiles / a.q_heads);
        float acc[4][8] = {}, ds[4][4] = {};
        const float scale[4] = {a.scale, a.scale, a.scale, a.scale};
        load_head(c, batch, head, m);
        load_rows(c, first, m);
        tile_interval(a, m.at.e, first, TILE, &lo, &hi);
        for (int j0 = lo / TILE * TILE; j0 < hi; j0 += TILE) {
            grad_tile<true>(c, m, first, j0, ds);
            keep_by_key(m, ds);
            accumulate(m, m.at.k, j0, c0, acc);
        }
        store_tile(c.grads.dq, a.dtype, start_of(a.dq, batch, head, m.at.e.q_first),
                   a.dq.time, first, stored_rows(a, m.at.e), a.qk_dim, c0, acc, scale);
    }
}

/* Keys j0.. of one k head (DK) or v head: the rows of all q heads that share it. */
template <bool DK>
static __device__ void add_keys(const ph_cuda_call &c, memory &m, int batch, int kv_head,
                                int j0, int c0, float (&acc)[4][8])
{
    const ph_attn &a = c.attn;
    int group = a.q_heads / (DK ? a.k_heads : a.v_heads);
    float g[4][4] = {};
    for (int head = kv_head * group; head < (kv_head + 1) * group; head++) {
        load_head(c, batch, head, m);
        for (int first = 0; first < m.at.e.q_len; first += TILE) {
            if (!tile_sees(c, m, first, j0)) continue;
            load_rows(c, first, m);
            grad_tile<DK>(c, m, first, j0, g);
            keep_by_row(m, g);
            accumulate(m, DK ? m.at.q : m.at.dout, first, c0, acc);
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ph_plain_dk(const __grid_constant__ ph_cuda_call c)
{
    __shared__ memory m;
    const ph_attn &a = c.attn;
    int tiles = (a.kv_len + TILE - 1) / TILE, c0 = blockIdx.y * COLUMNS;
    int64_t items = (int64_t)a.batch * a.k_heads * tiles;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        int j0 = (int)(item % tiles) * TILE, head = (int)(item / tiles % a.k_heads);
        int batch = (int)(item / tiles / a.k_heads);
        float acc[4][8] = {};
        const float scale[4] = {a.scale, a.scale, a.scale, a.scale};
        add_keys<true>(c, m, batch, head, j0, c0, acc);
        const extent e = extent_of(c, batch);
        store_tile(c.grads.dk, a.dtype, start_of(a.dk, batch, head, e.kv_first),
                   a.dk.time, j0, stored_keys(a, e), a.qk_dim, c0, acc, scale);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ph_plain_dv(const __grid_constant__ ph_cuda_call c)
{
    __shared__ memory m;
    const ph_attn &a = c.attn;
    int tiles = (a.kv_len + TILE - 1) / TILE, c0 = blockIdx.y * COLUMNS;
    int64_t items = (int64_t)a.batch * a.v_heads * tiles;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        int j0 = (int)(item % tiles) * TILE, head = (int)(item / tiles % a.v_heads);
        int batch = (int)(item / tiles / a.v_heads);
        float acc[4][8] = {};
        const float one[4] = {1, 1, 1, 1};
        add_keys<false>(c, m, batch, head, j0, c0, acc);
        const extent e = extent_of(c, batch);
        store_tile(c.grads.dv, a.dtype, start_of(a.dv, batch, head, e.kv_first),
                   a.dv.time, j0, stored_keys(a, e), a.v_dim, c0, acc, one);
    }
}
