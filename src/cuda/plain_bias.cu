/*
 * plain_bias.cu - gradients of the biases: ds, summed over the axes a bias was broadcast
 * on, or along diagonals.
 *
 * A CTA owns cells and recomputes ds for everything that used them: two products more per
 * tile than keeping ds would need, but no T x T memory and no atomics.
 */
#include "cuda/plain_grad.cuh"

/* ---- dbias ---- */

/* One tile of ds added to the cells of the thread. */
static __device__ void add_tile(const ph_cuda_call &c, memory &m, int first, int j0,
                                float (&cells)[4][4])
{
    float ds[4][4] = {};
    if (!tile_sees(c, m, first, j0)) return;
    load_rows(c, first, m);
    grad_tile<true>(c, m, first, j0, ds);
#pragma unroll
    for (int i = 0; i < 16; i++) cells[i / 4][i % 4] += ds[i / 4][i % 4];
}

/* A bias with one row: the rows of the tile are summed too, in order. */
static __device__ void store_row(memory &m, const float (&cells)[4][4], float *to,
                                 int keys)
{
    __syncthreads();
    keep_by_row(m, cells);
    __syncthreads();
    if (threadIdx.x < keys) {
        float sum = 0;
        for (int r = 0; r < TILE; r++) sum += m.weight[r][place(threadIdx.x)];
        to[threadIdx.x] = sum;
    }
}

static __device__ void store_cells(const float (&cells)[4][4], float *to, int64_t stride,
                                   int rows, int keys)
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < 16; i++)
        if (spread(y, i / 4) < rows && spread(x, i % 4) < keys)
            to[spread(y, i / 4) * stride + spread(x, i % 4)] =
                visible_weight(cells[i / 4][i % 4]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ph_plain_dbias(const __grid_constant__ ph_cuda_call c)
{
    __shared__ memory m;
    const ph_attn &a = c.attn;
    const ph_broadcast &s = a.bias;
    int one_row = s.q_len == 1, row_tiles = one_row ? 1 : (s.q_len + TILE - 1) / TILE;
    int key_tiles = (a.kv_len + TILE - 1) / TILE;
    int64_t items = (int64_t)s.batch * s.heads * row_tiles * key_tiles;
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        int j0 = (int)(item % key_tiles) * TILE;
        int first = (int)(item / key_tiles % row_tiles) * TILE;
        int64_t plane = item / key_tiles / row_tiles;
        int head = (int)(plane % s.heads), batch = (int)(plane / s.heads);
        int b0 = s.batch == 1 ? 0 : batch, b1 = s.batch == 1 ? a.batch : batch + 1;
        int h0 = s.heads == 1 ? 0 : head, h1 = s.heads == 1 ? a.q_heads : head + 1;
        int end = one_row ? a.q_len : min(first + TILE, a.q_len);
        int keys = min(TILE, a.kv_len - j0);
        float cells[4][4] = {};
        float *to = c.grads.dbias + (plane * s.q_len + (one_row ? 0 : first)) * a.kv_len;
        for (int b = b0; b < b1; b++)
            for (int h = h0; h < h1; h++) {
                load_head(c, b, h, m);
                for (int row = first; row < end; row += TILE)
                    add_tile(c, m, row, j0, cells);
            }
        if (one_row)
            store_row(m, cells, to + j0, keys);
        else
            store_cells(cells, to + j0, a.kv_len, end - first, keys);
    }
}

/* ---- drelative ---- */

/* ds of a tile (in m.weight, by row) along its diagonals: thread t has distance
   base + t - (TILE - 1). Those inside the reach go to `sums`, all beyond to low, high. */
static __device__ void add_diagonals(const memory &m, int64_t base, int64_t reach,
                                     double *sums, double *low, double *high)
{
    int t = threadIdx.x;
    int64_t distance = base + t - (TILE - 1);
    double sum = 0;
    if (t >= 2 * TILE - 1) return;
    for (int r = max(0, TILE - 1 - t); r < min(TILE, 2 * TILE - 1 - t); r++)
        sum += m.weight[r][place(r + t - (TILE - 1))];
    if (distance <= -reach)
        *low += sum;
    else if (distance >= reach)
        *high += sum;
    else
        sums[reach + distance] += sum;
}

static __device__ double sum_of_threads(double x)
{
    __shared__ double partial[THREADS];
    __syncthreads();
    partial[threadIdx.x] = x;
    for (int half = THREADS / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    __syncthreads();
    return partial[0];
}

/* A CTA owns one slice of one head: every slice_count-th tile of rows. */
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    ph_plain_drelative(const __grid_constant__ ph_cuda_call c)
{
    __shared__ memory m;
    const ph_attn &a = c.attn;
    int tiles = (a.q_len + TILE - 1) / TILE, head = blockIdx.x % a.q_heads;
    int slice = blockIdx.x / a.q_heads, numbers = 2 * a.reach + 1, lo, hi;
    double *sums = c.slices + ((int64_t)slice * a.q_heads + head) * numbers;
    double low = 0, high = 0;
    for (int i = threadIdx.x; i < numbers; i += THREADS) sums[i] = 0;
    __syncthreads();
    for (int64_t item = slice; item < (int64_t)a.batch * tiles; item += c.slice_count) {
        int first = (int)(item % tiles) * TILE;
        float ds[4][4] = {};
        load_head(c, (int)(item / tiles), head, m);
        load_rows(c, first, m);
        tile_interval(a, m.at.e, first, TILE, &lo, &hi);
        for (int j0 = lo / TILE * TILE; j0 < hi; j0 += TILE) {
            grad_tile<true>(c, m, first, j0, ds);
            keep_by_row(m, ds);
            __syncthreads();
            add_diagonals(m, j0 - (first + m.at.e.offset), a.reach, sums, &low, &high);
            __syncthreads();
        }
    }
    low = sum_of_threads(low), high = sum_of_threads(high);
    if (threadIdx.x == 0) sums[0] = low, sums[numbers - 1] = high;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    ph_plain_relative_sums(const __grid_constant__ ph_cuda_call c)
{
    int64_t numbers = (int64_t)c.attn.q_heads * (2 * c.attn.reach + 1);
    int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < numbers;
         i += step) {
        double sum = 0;
        for (int slice = 0; slice < c.slice_count; slice++)
            sum += c.slices[slice * numbers + i];
        c.grads.drelative[i] = (float)sum;
    }
}
