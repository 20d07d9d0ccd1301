/*
 * gather_rows.cu - before a fast kernel of a call with a gate per row: lists the rows of
 * each head whose gate is not 0, in order, and copies their queries side by side, where
 * tensor copies find them. All other rows are stored here: out 0, lse -inf.
 *
 * CTA (x, y) has part y of the rows of head x, and counts the gates before it itself.
 */
#include "cuda/fast_output.cuh"

enum { ROWS = 256, WARPS = ROWS / 32, PIECE = 8 /* elements */ };

/* The rows of one head of one batch row. */
struct query_head {
    extent size;
    int stored;        /* rows that have a place in out */
    int64_t at;        /* index of the first in gate, lse and the list */
    const uint16_t *q; /* where they begin */
    uint16_t *out;
};

DEVICE query_head rows_of(const ph_cuda_call &c, int head_index)
{
    const ph_attn &a = c.attn;
    const int batch = head_index / a.q_heads, head = head_index % a.q_heads;
    query_head r;
    r.size = extent_of(c, batch);
    r.stored = stored_rows(a, r.size);
    r.at = row_index(a, r.size, batch, head);
    r.q = (const uint16_t *)c.args.q + start_of(a.q, batch, head, r.size.q_first);
    r.out = (uint16_t *)c.args.out + start_of(a.out, batch, head, r.size.q_first);
    return r;
}

/* How many of the first `end` gates are not 0. */
DEVICE int count_rows(const float *gate, int end)
{
    __shared__ unsigned sum;
    unsigned own = 0;
    __syncthreads(); /* the sum before was read */
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < end; i += ROWS) own += gate[i] != 0;
    atomicAdd(&sum, own);
    __syncthreads();
    return (int)sum;
}

/* How many threads before this one have a row that is on; total: of all. */
DEVICE int rank_of(int on, int &total)
{
    __shared__ int warps[WARPS];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const unsigned lanes = __ballot_sync(~0u, on);
    int rank = __popc(lanes & ((1u << lane) - 1));
    __syncthreads(); /* those before were read */
    if (lane == 0) warps[warp] = __popc(lanes);
    __syncthreads();
    total = 0;
    for (int i = 0; i < WARPS; i++) {
        if (i < warp) rank += warps[i];
        total += warps[i];
    }
    return rank;
}

/* Lists and copies rows from `first` on, of which `count` before are on, or stores them.
   Returns how many are on. */
DEVICE int gather_block(const ph_cuda_call &c, const query_head &r, int first, int count)
{
    __shared__ int place[ROWS]; /* in the list; < 0: the row is off */
    const ph_attn &a = c.attn;
    const int token = first + threadIdx.x;
    const int on = token < r.size.q_len && c.args.gate[r.at + token] != 0;
    int total, rank = count + rank_of(on, total);
    place[threadIdx.x] = on ? rank : -1;
    if (on)
        c.gathered.token[r.at + rank] = token;
    else if (token < r.stored && c.args.lse)
        c.args.lse[r.at + token] = -INFINITY;
    __syncthreads();
    const int pieces = PH_CUDA_PADDED(max(a.qk_dim, a.v_dim)) / PIECE;
    const int rows = min(ROWS, r.stored - first), step = PH_CUDA_PADDED(a.qk_dim);
#pragma unroll 4
    for (int i = threadIdx.x; i < rows * pieces; i += ROWS) {
        const int row = i / pieces, column = i % pieces * PIECE, to = place[row];
        const uint32_t zero[4] = {};
        if (to < 0)
            store_columns(r.out + (first + row) * a.out.time + column, zero,
                          a.v_dim - column);
        else if (column < a.qk_dim)
            *(uint4 *)(c.gathered.q + (r.at + to) * step + column) =
                *(const uint4 *)(r.q + (first + row) * a.q.time + column);
    }
    return total;
}

/* Queries behind the last one of the list: a tile's products must not meet NaN there. */
DEVICE void clear_end(const ph_cuda_call &c, const query_head &r, int count)
{
    const int step = PH_CUDA_PADDED(c.attn.qk_dim), pieces = step / PIECE;
    uint4 *q = (uint4 *)(c.gathered.q + (r.at + count) * step);
    for (int i = threadIdx.x; i < min(PH_FAST_ROWS_64, r.stored - count) * pieces;
         i += ROWS)
        q[i] = make_uint4(0, 0, 0, 0);
}

extern "C" __global__ void __launch_bounds__(ROWS)
    ph_gather_rows(const __grid_constant__ ph_cuda_call c)
{
    const int blocks = (c.attn.q_len + ROWS - 1) / ROWS;
    const int part = (blocks + gridDim.y - 1) / gridDim.y * ROWS;
    const int first = min((int64_t)blockIdx.y * part, (int64_t)c.attn.q_len);
    for (int n = blockIdx.x; n < c.attn.batch * c.attn.q_heads; n += gridDim.x) {
        const query_head r = rows_of(c, n);
        const int end = min(first + part, r.stored);
        int count = count_rows(c.args.gate + r.at, min(first, r.size.q_len));
        for (int i = first; i < end; i += ROWS) count += gather_block(c, r, i, count);
        if (blockIdx.y != gridDim.y - 1) continue;
        if (threadIdx.x == 0) c.gathered.count[n] = count;
        clear_end(c, r, count);
    }
}
