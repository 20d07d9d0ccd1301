/*
 * fast_consume_few.cuh - a consumer of at most 16 rows: decoding.
 *
 * A product of 64 rows would compute padding, and one warpgroup waits for each of its
 * products. Here the rows are one tile of mma.sync, which adds up as wgmma does, bit by
 * bit. The four warps share a block: a quarter of the keys each for scores and weights, a
 * quarter of the columns each for weighted values. Maxima, sums and weights go through
 * shared memory; a lane's weights are what the same lane of every warp needs as operand.
 */
#ifndef PH_CUDA_FAST_CONSUME_FEW_CUH
#define PH_CUDA_FAST_CONSUME_FEW_CUH

#include "cuda/fast_consume.cuh"

/* A thread: its warp of the four, and its lane. */
struct few {
    uint32_t base; /* of shared memory */
    int warp, lane;
};

/* Row of the tile: the thread's first; the other is 8 further on. */
DEVICE int first_row(const few &at)
{
    return at.lane / 4;
}

template <class T> DEVICE int first_key(const few &at, int block)
{
    return block * T::KEYS + at.warp * (T::KEYS / 4) + at.lane % 4 * 2;
}

/* Of weighted values. */
template <class T> DEVICE int first_column(const few &at)
{
    return at.warp * (T::DIM / 4) + at.lane % 4 * 2;
}

/* Address of 8 columns of a row in a tile of so many rows. */
DEVICE uint32_t piece_at(uint32_t tile, int rows, int row, int column)
{
    return tile + column / 64 * rows * PH_LINE +
           ph_swizzled((uint32_t)(row * PH_LINE + column % 64 * 2));
}

/* ---- products ---- */

/* Queries as the A operand, by step of 16 columns. */
template <class T>
DEVICE void load_queries(uint32_t (&q)[T::DIM / 16][4], uint32_t tile, int lane)
{
#pragma unroll
    for (int x = 0; x < T::DIM / 16; x++)
        load_matrices(q[x], piece_at(tile, T::ROWS, lane % 16, 16 * x + lane / 16 * 8));
}

/* Scores of the warp's quarter of a block. */
template <class T, class TYPE>
DEVICE void score_quarter(TYPE type, float (&s)[T::KEYS / 8],
                          const uint32_t (&q)[T::DIM / 16][4], uint32_t tile,
                          const few &at)
{
    const int key = at.warp * (T::KEYS / 4) + at.lane % 8, column = at.lane / 8 * 8;
#pragma unroll
    for (int x = 0; x < T::KEYS / 8; x++) s[x] = 0;
#pragma unroll
    for (int x = 0; x < T::DIM / 16; x += 2)
#pragma unroll
        for (int j = 0; j < T::KEYS / 32; j++) {
            uint32_t k[4];
            load_matrices(k, piece_at(tile, T::KEYS, key + 8 * j, 16 * x + column));
            multiply(type, &s[4 * j], q[x], k[0], k[1]);
            multiply(type, &s[4 * j], q[x + 1], k[2], k[3]);
        }
}

/* Adds weights times values of a block to the warp's quarter of the columns. */
template <class T, class TYPE>
DEVICE void add_values(TYPE type, float (&o)[T::DIM / 8], uint32_t tile, const few &at)
{
    const int key = at.lane % 16;
    const int column = at.warp * (T::DIM / 4) + at.lane / 16 * 8;
#pragma unroll
    for (int x = 0; x < T::KEYS / 16; x++) {
        const uint4 piece = load_piece(at.base + T::WEIGHTS_AT + (x * 32 + at.lane) * 16);
        const uint32_t p[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (int j = 0; j < T::DIM / 64; j++) {
            uint32_t v[4];
            load_transposed(v, piece_at(tile, T::KEYS, 16 * x + key, column + 16 * j));
            multiply(type, &o[8 * j], p, v[0], v[1]);
            multiply(type, &o[8 * j + 4], p, v[2], v[3]);
        }
    }
}

/* ---- softmax ---- */

DEVICE float4 load_floats(uint32_t address)
{
    const uint4 x = load_piece(address);
    return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                       __uint_as_float(x.w));
}

/* The largest score of a row in the whole block, from the maxima of quarters. */
template <class T> DEVICE void share_maxima(const few &at, float (&row_max)[2])
{
    const uint32_t maxima = at.base + T::MAXIMA_AT + first_row(at) * 16;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (at.lane % 4 == 0)
            store_shared(maxima + i * 128 + at.warp * 4, __float_as_int(row_max[i]));
    meet<PH_WARPGROUP>(CONSUMERS_MEET);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 x = load_floats(maxima + i * 128);
        row_max[i] = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
    }
}

/* Scores become weights in shared memory, where all warps find them. */
template <class T, class TYPE>
DEVICE void softmax_quarter(TYPE type, float (&s)[T::KEYS / 8], running &r, float scale2,
                            float (&rescale)[2], const few &at)
{
    float row_max[2], zero[2], sum[2];
    uint32_t p[T::KEYS / 16];
    max_of_rows<T::KEYS / 8, 4>(s, row_max);
    share_maxima<T>(at, row_max);
    raise_max(r, row_max, scale2, rescale, zero);
    weigh_quarter<T::KEYS / 8>(s, scale2, zero, sum);
    pack(type, s, p);
    const uint32_t weights = at.base + T::WEIGHTS_AT + at.lane * 16;
#pragma unroll
    for (int x = 0; x < T::KEYS / 64; x++)
        store_piece(weights + (at.warp * (T::KEYS / 64) + x) * 512,
                    make_uint4(p[4 * x], p[4 * x + 1], p[4 * x + 2], p[4 * x + 3]));
    const uint32_t sums = at.base + T::SUMS_AT + at.lane * 16; /* by row and quad lane */
#pragma unroll
    for (int i = 0; i < 2; i++)
        store_shared(sums + i * 512 + at.warp * 4, __float_as_int(sum[i]));
    meet<PH_WARPGROUP>(CONSUMERS_MEET);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 x = load_floats(sums + i * 512);
        r.sum[i] = __fmaf_rn(r.sum[i], rescale[i], add_quarters(x.x, x.y, x.z, x.w));
    }
}

/* ---- values that are not finite ---- */

/* The weight of key `key` of a block in row i of the thread's two. */
template <class T, class TYPE>
DEVICE float weight_at(TYPE type, const few &at, int key, int i)
{
    const int lane = (at.lane & ~3) + key % 8 / 2;
    const uint32_t pair = (uint32_t)load_shared(
        at.base + T::WEIGHTS_AT + (key / 16 * 32 + lane) * 16 + key / 8 % 2 * 8 + i * 4);
    return widened(type, key % 2 ? pair >> 16 : pair & 0xffff);
}

/* As add_noted of larger tiles. */
template <class T, class TYPE>
DEVICE void add_noted(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                      const item &it, const few &at, int stage, int block,
                      float (&o)[T::DIM / 8])
{
    const ph_attn &a = c.attn;
    const uint32_t noted = at.base + T::NOTED_AT + stage * NOTED_BYTES;
    if (!has_noted_keys(noted)) return;
    for (int x = 0; x < T::KEYS; x++) {
        if (!(noted_keys(noted, x / 32 * 32) >> x % 32 & 1)) continue;
        const int key = block * T::KEYS + x, column = first_column<T>(at);
        const uint16_t *v = it.v + value_of(a, it, key) + column;
        for (int i = 0; i < 2; i++) {
            const query row = query_of<T>(a, plan, it, first_row(at) + 8 * i);
            if (is_visible(a, it.size, row.token, key))
                add_key(type, v, a.v_dim - column, i, weight_at<T>(type, at, x, i), o);
        }
    }
}

/* ---- an item ---- */

template <class T, class TYPE>
DEVICE void consume_item(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         const item &it, const few &at, float (&o)[T::DIM / 8],
                         running &now, float (&)[2], int &n)
{
    const uint32_t q_stage = stage_of<T::Q_STAGES>(it.queries);
    const uint32_t k = at.base + T::K_AT, v = at.base + T::V_AT;
    uint32_t q[T::DIM / 16][4];
    float s[T::KEYS / 8], rescale[2];
    wait_stage<T::Q_STAGES>(at.base + T::Q_FULL, it.queries);
    load_queries<T>(q, at.base + T::Q_AT + q_stage * T::Q_BYTES, at.lane);
    __syncwarp();
    release(at.base + T::Q_EMPTY + SLOT * q_stage);
    for (int j = it.first - 1; j < it.end; j++) {
        /* Scores of the next block run beside the values of this one. */
        if (j + 1 < it.end) {
            const uint32_t stage = stage_of<T::K_STAGES>(n + (j >= it.first));
            wait_stage<T::K_STAGES>(at.base + T::K_FULL, n + (j >= it.first));
            score_quarter<T>(type, s, q, k + stage * T::BLOCK_BYTES, at);
            __syncwarp();
            release(at.base + T::K_EMPTY + SLOT * stage);
        }
        if (j >= it.first) {
            const uint32_t stage = stage_of<T::V_STAGES>(n);
            scale_rows(o, rescale);
            wait_stage<T::V_STAGES>(at.base + T::V_FULL, n);
            add_values<T>(type, o, v + stage * T::BLOCK_BYTES, at);
            if (is_edge<T>(it, j)) add_noted<T>(type, c, plan, it, at, stage, j, o);
            __syncwarp();
            release(at.base + T::V_EMPTY + SLOT * stage);
            n++;
        }
        if (j + 1 == it.end) break;
        modify_scores<T>(c, plan, it, s, first_row(at), first_key<T>(at, j + 1));
        if (is_edge<T>(it, j + 1))
            hide_edge<T>(c.attn, plan, it, it, j + 1, s, first_row(at),
                         first_key<T>(at, j + 1));
        softmax_quarter<T>(type, s, now, c.score_scale, rescale, at);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) now.sum[i] = sum_of_quad(now.sum[i]);
}

#endif
