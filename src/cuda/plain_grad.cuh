/*
 * plain_grad.cuh - one tile of the backward pass: p and ds recomputed from q, k, v, dout,
 * lse and delta, with every mask and bias.
 */
#ifndef PH_CUDA_PLAIN_GRAD_CUH
#define PH_CUDA_PLAIN_GRAD_CUH

#include "cuda/plain.cuh"

/* Whether some of the rows from `first` on may see some of the keys from j0 on. */
static __device__ inline int tile_sees(const ph_cuda_call &c, const memory &m, int first,
                                       int j0)
{
    int lo, hi;
    tile_interval(c.attn, m.at.e, first, TILE, &lo, &hi);
    return lo < hi && lo < j0 + TILE && hi > j0;
}

/* ds (DS), or p after dropout and gate, of rows from `first` on (in m) against keys
   from j0 on; hidden pairs are marked. */
template <bool DS>
static __device__ void grad_tile(const ph_cuda_call &c, memory &m, int first, int j0,
                                 float (&g)[4][4])
{
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const head_operands &o = m.at;
    float derivative;
    multiply(m, o.q, first, o.k, j0, g);
    keep_by_row(m, g); /* each thread reads its own again: registers are short */
    if (DS) multiply(m, o.dout, first, o.v, j0, g);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int r = spread(y, i / 4), key = j0 + spread(x, i % 4);
        float w = hidden_weight();
        if (key >= m.lo[r] && key < m.hi[r] &&
            !is_excluded(c, o.batch, o.head, first + r, key)) {
            float t = score(c, o.e.offset, o.batch, o.head, first + r, key,
                            m.weight[r][4 * x + i % 4] * c.scale2, &derivative);
            float p = exp2f(t - m.lse2[r]), drop = drop_factor(c, m.seed[r], key);
            float dp = g[i / 4][i % 4] * m.gate[r], dt = p * (dp * drop - m.delta[r]);
            if (DS) w = t == -INFINITY ? 0 : visible_weight(dt * derivative);
            if (!DS) w = visible_weight(p * drop * m.gate[r]);
        }
        g[i / 4][i % 4] = w;
    }
    __syncthreads(); /* the caller writes m.weight in an order of its own */
}

#endif
