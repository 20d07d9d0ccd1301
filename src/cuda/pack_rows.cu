/*
 * pack_rows.cu - before a fast kernel: copies those of q, k and v that tensor copies
 * cannot read, because rows are not multiples of 16 bytes apart or pages are of an odd
 * length, into the workspace, where they are. Keys of pages lie side by side there.
 *
 * CTA (x, y) has some rows of head x, a warp at a time copies one.
 */
#include "cuda/hopper.cuh"
#include "cuda/visible.cuh"

enum { WARPS = 8 };

/* Where a row of the caller's tensor lies. */
DEVICE int64_t row_of(const ph_cuda_call &c, const ph_strides &at, int batch, int head,
                      int row, int page_len)
{
    if (!page_len) return start_of(at, batch, head, row);
    const int32_t *pages = c.args.page_table + (int64_t)batch * c.table_len;
    return start_of(at, pages[row / page_len], head, row % page_len);
}

/* Copies a row in pieces of type X; the pieces of a lane are loaded together. */
template <class X> DEVICE void copy_pieces(uint16_t *out, const uint16_t *from, int dim)
{
    enum { MOST = 256 * 2 / sizeof(X) / 32 };
    const int count = dim * 2 / (int)sizeof(X), lane = threadIdx.x % 32;
    X piece[MOST];
#pragma unroll
    for (int x = 0; x < MOST; x++)
        if (lane + 32 * x < count) piece[x] = ((const X *)from)[lane + 32 * x];
#pragma unroll
    for (int x = 0; x < MOST; x++)
        if (lane + 32 * x < count) ((X *)out)[lane + 32 * x] = piece[x];
}

/* ... in the largest pieces that its beginning and its length allow. */
DEVICE void copy_row(uint16_t *out, const uint16_t *from, int dim)
{
    const int odd = (int)((uintptr_t)from | (uintptr_t)(dim * 2)) & 7;
    if (odd == 0)
        copy_pieces<uint2>(out, from, dim);
    else if (odd == 4)
        copy_pieces<uint32_t>(out, from, dim);
    else
        copy_pieces<uint16_t>(out, from, dim);
}

/* Copies one of q, k and v. */
DEVICE void pack(const ph_cuda_call &c, const void *tensor, const ph_strides &at,
                 const ph_cuda_packed &to, int heads, int dim, int is_query)
{
    const int warp = threadIdx.x / 32;
    if (!to.base) return;
    for (int n = blockIdx.x; n < c.attn.batch * heads; n += gridDim.x) {
        const int batch = n / heads, head = n % heads;
        const extent e = extent_of(c, batch);
        const int before = is_query ? e.q_first : e.kv_first;
        const int rows = is_query ? e.q_len : e.kv_len;
        for (int row = blockIdx.y * WARPS + warp; row < rows; row += gridDim.y * WARPS) {
            const uint16_t *from =
                (const uint16_t *)tensor + row_of(c, at, batch, head, before + row,
                                                  is_query ? 0 : c.attn.page_len);
            uint16_t *out = to.base + start_of(to.at, batch, head, before + row);
            copy_row(out, from, dim);
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)
    ph_pack_rows(const __grid_constant__ ph_cuda_call c)
{
    const ph_attn &a = c.attn;
    pack(c, c.args.q, a.q, c.packed[0], a.q_heads, a.qk_dim, 1);
    pack(c, c.args.k, a.k, c.packed[1], a.k_heads, a.qk_dim, 0);
    pack(c, c.args.v, a.v, c.packed[2], a.v_heads, a.v_dim, 0);
}
