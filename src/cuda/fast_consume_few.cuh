/*
 * fast_consume_few.cuh - consumers of at most 16 rows: decoding.
 *
 * A product of 64 rows would compute padding, and one warpgroup waits for each of its
 * products. Here the rows are one tile of mma.sync, which adds up as wgmma does, bit by
 * bit.
 *
 * One consumer has the keys: it sends weights, block by block, to another, which has the
 * values. A warp of the first has a quarter of the keys of a block, one of the other some
 * of the columns. A lane's weights are what the same lane of every warp needs as operand.
 *
 * Where items are few a pair of CTAs, a cluster, shares one, because one SM reads too
 * slowly: two warpgroups of the first CTA take blocks in turn, two of the other share the
 * columns.
 */
#ifndef PH_CUDA_FAST_CONSUME_FEW_CUH
#define PH_CUDA_FAST_CONSUME_FEW_CUH

#include "cuda/fast_consume.cuh"

/* A thread of those that have keys, or values: its warpgroup among them, its warp in there,
   and its lane. */
struct few {
    uint32_t base; /* of shared memory */
    int group, warp, lane;
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

/* The first column of weighted values that a warp has. All its columns share the weights that
   it reads: with fewer than 32 the reading would take longer than the products. */
template <class T> DEVICE int first_column(const few &at)
{
    return (at.group * 4 + at.warp) * T::WARP_COLUMNS;
}

/* Address of 8 columns of a row in a tile of so many rows. */
DEVICE uint32_t piece_at(uint32_t tile, int rows, int row, int column)
{
    return tile + column / 64 * rows * PH_LINE +
           ph_swizzled((uint32_t)(row * PH_LINE + column % 64 * 2));
}

/* ---- products ---- */

/* Queries as the A operand, by step of 16 columns. */
template <class T> DEVICE void load_queries(uint32_t (&q)[T::DIM / 16][4], uint32_t tile)
{
    const int lane = thread_now() % 32; /* addresses are not kept: registers are short */
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

/* Adds weights times values of a block to the warp's columns. */
template <class T, class TYPE, int N>
DEVICE void add_values(TYPE type, float (&o)[N], uint32_t weights, uint32_t tile,
                       const few &at)
{
    const int key = at.lane % 16, column = first_column<T>(at) + at.lane / 16 * 8;
#pragma unroll
    for (int x = 0; x < T::KEYS / 16; x++) {
        const uint4 piece = load_piece(weights + (x * 32 + at.lane) * 16);
        const uint32_t p[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            uint32_t v[4];
            load_transposed(v, piece_at(tile, T::KEYS, 16 * x + key, column + 16 * j));
            multiply(type, &o[8 * j], p, v[0], v[1]);
            multiply(type, &o[8 * j + 4], p, v[2], v[3]);
        }
    }
}

/* ---- messages ---- */

/* Where the n-th one lies. */
template <class T> DEVICE uint32_t message_at(uint32_t base, int n)
{
    return base + T::MESSAGES_AT + stage_of<MESSAGES>(n) * T::MESSAGE_BYTES;
}

/* The n-th message, once it is here. */
template <class T> DEVICE uint32_t receive(const few &at, int n)
{
    const uint32_t sent = at.base + T::SENT + SLOT * stage_of<MESSAGES>(n);
    if (at.group == 0 && at.warp == 0 && at.lane == 0)
        barrier_expect(sent, T::MESSAGE_BYTES);
    barrier_wait(sent, parity_of<MESSAGES>(n));
    return message_at<T>(at.base, n);
}

/* A warp has read it. */
template <class T> DEVICE void end_message(const few &at, int n)
{
    __syncwarp();
    if (at.lane == 0)
        barrier_arrive_in_cluster(address_in(
            T::KEYS_CTA, at.base + T::RECEIVED + SLOT * stage_of<MESSAGES>(n)));
}

/* ---- softmax ---- */

DEVICE float4 load_floats(uint32_t address)
{
    const uint4 x = load_piece(address);
    return make_float4(__uint_as_float(x.x), __uint_as_float(x.y), __uint_as_float(x.z),
                       __uint_as_float(x.w));
}

/* Two floats, of the thread's two rows, where each row has one. */
DEVICE void load_rows(uint32_t rows, const few &at, float (&x)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        x[i] = __int_as_float(load_shared(rows + (first_row(at) + 8 * i) * 4));
}

DEVICE void store_rows(uint32_t rows, const few &at, const float (&x)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        store_shared(rows + (first_row(at) + 8 * i) * 4, __float_as_int(x[i]));
}

/* The largest score of a row in the whole n-th block, from the maxima of quarters. Every
   second block of a warpgroup has the same place, which has been read by then. */
template <class T> DEVICE void share_maxima(const few &at, int n, float (&row_max)[2])
{
    const uint32_t maxima = at.base + T::MAXIMA_AT + n % (2 * T::SHARES) * T::ROWS * 16 +
                            first_row(at) * 16;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (at.lane % 4 == 0)
            store_shared(maxima + i * 128 + at.warp * 4, __float_as_int(row_max[i]));
    meet<PH_WARPGROUP>(CONSUMERS_MEET + at.group);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 x = load_floats(maxima + i * 128);
        row_max[i] = fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w));
    }
}

/* Raises what weights of the n-th block are measured against; zero: the same in base 2. Two
   warpgroups take turns: each goes on from what the other left, but for the first block of
   an item. All threads arrive, also those that only read, and so that racecheck sees the
   order. */
template <class T>
DEVICE void raise_reference(const few &at, int first, int n, const float (&row_max)[2],
                            float scale2, running &r, float (&zero)[2])
{
    const uint32_t last = at.base + T::LAST_AT, turn = at.base + T::TURN;
    float unused[2];
    if (T::SHARES == 2) {
        if (at.group == 0)
            wait_empty<1>(turn, n / 2);
        else
            wait_stage<1>(turn + SLOT, n / 2);
        load_rows(last + (1 - at.group) * T::ROWS * 4, at, r.max);
    }
    if (first) reset(r);
    raise_max(r, row_max, scale2, unused, zero);
    if (T::SHARES == 2) {
        if (at.warp == 0 && at.lane % 4 == 0)
            store_rows(last + at.group * T::ROWS * 4, at, r.max);
        barrier_arrive(turn + SLOT * (1 - at.group));
    }
}

/* Scores of a block become weights, which are sent as the n-th message. */
template <class T, class TYPE>
DEVICE void send_weights(TYPE type, float (&s)[T::KEYS / 8], float scale2, int first,
                         running &r, const few &at, int n)
{
    float row_max[2], zero[2], sum[2];
    uint32_t p[T::KEYS / 16];
    max_of_rows<T::KEYS / 8, 4>(s, row_max);
    share_maxima<T>(at, n, row_max);
    raise_reference<T>(at, first, n, row_max, scale2, r, zero);
    weigh_quarter<T::KEYS / 8>(s, scale2, zero, sum);
    pack(type, s, p);
    const uint32_t to = address_in(T::VALUES_CTA, message_at<T>(at.base, n));
    const uint32_t sent =
        address_in(T::VALUES_CTA, at.base + T::SENT + SLOT * stage_of<MESSAGES>(n));
    wait_empty<MESSAGES>(at.base + T::RECEIVED, n);
#pragma unroll
    for (int x = 0; x < T::KEYS / 64; x++)
        send(to + ((at.warp * (T::KEYS / 64) + x) * 32 + at.lane) * 16,
             make_uint4(p[4 * x], p[4 * x + 1], p[4 * x + 2], p[4 * x + 3]), sent);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        send(to + T::SUMS_AT + (i * 32 + at.lane) * 16 + at.warp * 4, sum[i], sent);
        if (at.warp == 0 && at.lane % 4 == 0)
            send(to + T::REFERENCE_AT + (first_row(at) + 8 * i) * 4, r.max[i], sent);
    }
}

/* Goes on to a message's reference; rescale: what sums so far shrink by. It seldom moves. */
template <class T>
DEVICE void follow_reference(uint32_t message, const few &at, float scale2, running &r,
                             float (&rescale)[2])
{
    float now[2];
    load_rows(message + T::REFERENCE_AT, at, now);
    rescale[0] = rescale[1] = 1;
    if (__all_sync(~0u, now[0] == r.max[0] && now[1] == r.max[1])) return;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        rescale[i] = rescale_of(r.max[i], now[i], scale2);
        r.max[i] = now[i];
    }
}

template <class T>
DEVICE void add_sums(uint32_t message, const few &at, const float (&rescale)[2],
                     running &r)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float4 x = load_floats(message + T::SUMS_AT + (i * 32 + at.lane) * 16);
        r.sum[i] = __fmaf_rn(r.sum[i], rescale[i], add_quarters(x.x, x.y, x.z, x.w));
    }
}

/* ---- values that are not finite ---- */

/* The weight of key `key` of a block in row i of the thread's two. */
template <class TYPE>
DEVICE float weight_at(TYPE type, uint32_t weights, const few &at, int key, int i)
{
    const int lane = (at.lane & ~3) + key % 8 / 2;
    const uint32_t pair = (uint32_t)load_shared(weights + (key / 16 * 32 + lane) * 16 +
                                                key / 8 % 2 * 8 + i * 4);
    return widened(type, key % 2 ? pair >> 16 : pair & 0xffff);
}

/* As add_noted of larger tiles. */
template <class T, class TYPE>
DEVICE void add_noted(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                      const item &it, const few &at, uint32_t weights, int stage,
                      int block, float (&o)[T::WARP_COLUMNS / 2])
{
    const ph_attn &a = c.attn;
    const uint32_t noted = at.base + T::NOTED_AT + stage * NOTED_BYTES;
    if (!has_noted_keys(noted)) return;
    for (int x = 0; x < T::KEYS; x++) {
        if (!(noted_keys(noted, x / 32 * 32) >> x % 32 & 1)) continue;
        const int key = block * T::KEYS + x;
        const int column = first_column<T>(at) + at.lane % 4 * 2;
        const uint16_t *v = it.v + value_of(a, it, key) + column;
        for (int i = 0; i < 2; i++) {
            const query row = query_of<T>(a, plan, it, first_row(at) + 8 * i);
            if (is_visible(a, it.size, row.token, key))
                add_key(type, v, a.v_dim - column, i, weight_at(type, weights, at, x, i),
                        o);
        }
    }
}

/* ---- items ---- */

/* Weights of an item's rows; n: blocks so far, of which each warpgroup has its share. */
template <class T, class TYPE>
DEVICE void weigh_keys(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                       const item &it, const few &at, int &n)
{
    const uint32_t q_stage = stage_of<T::Q_STAGES>(it.queries);
    uint32_t q[T::DIM / 16][4];
    float s[T::KEYS / 8];
    running now;
    wait_stage<T::Q_STAGES>(at.base + T::Q_FULL, it.queries);
    load_queries<T>(q, at.base + T::Q_AT + q_stage * T::Q_BYTES);
    __syncwarp();
    release(at.base + T::Q_EMPTY + SLOT * q_stage);
    for (int j = it.first; j < it.end; j++, n++) {
        const uint32_t stage = stage_of<T::K_STAGES>(n);
        const int edge = is_edge<T>(it, j); /* read before the wait */
        if (n % T::SHARES != at.group) continue;
        wait_stage<T::K_STAGES>(at.base + T::K_FULL, n);
        score_quarter<T>(type, s, q, at.base + T::K_AT + stage * T::BLOCK_BYTES, at);
        __syncwarp();
        release(at.base + T::K_EMPTY + SLOT * stage);
        modify_scores<T>(c, plan, it, s, first_row(at), first_key<T>(at, j));
        if (edge)
            hide_edge<T>(c.attn, plan, it, s, first_row(at), first_key<T>(at, j));
        send_weights<T>(type, s, c.score_scale, j == it.first, now, at, n);
    }
}

/* Weighted values of an item's rows, their maxima and sums. */
template <class T, class TYPE, int N>
DEVICE void weigh_values(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         const item &it, const few &at, float (&o)[N], running &now,
                         int &n)
{
    for (int j = it.first; j < it.end; j++, n++) {
        const uint32_t stage = stage_of<T::V_STAGES>(n);
        const int edge = is_edge<T>(it, j); /* read before the wait */
        const uint32_t message = receive<T>(at, n);
        float rescale[2];
        follow_reference<T>(message, at, c.score_scale, now, rescale);
        scale_rows(o, rescale);
        wait_stage<T::V_STAGES>(at.base + T::V_FULL, n);
        add_values<T>(type, o, message, at.base + T::V_AT + stage * T::BLOCK_BYTES, at);
        add_sums<T>(message, at, rescale, now);
        if (edge) add_noted<T>(type, c, plan, it, at, message, stage, j, o);
        __syncwarp();
        release(at.base + T::V_EMPTY + SLOT * stage);
        end_message<T>(at, n);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) now.sum[i] = sum_of_quad(now.sum[i]);
}

#endif
