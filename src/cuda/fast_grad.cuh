/*
 * fast_grad.cuh - the backward pass of 16-bit tensors on tensor cores: what a consumer
 * warpgroup does with 64 owned rows or keys of a tile, and the kernels.
 *
 * The accumulators of s and dp have the layout of the A operand of the next product, so p
 * and ds are converted to 16 bits and never leave registers. One consumer weighs while the
 * other's products run.
 *
 * Same bits. A gradient is one chain of products over blocks at absolute positions, head by
 * head of those that share keys, and hidden pairs add 0: it depends on what it sees
 * alone, not on tiles, batch or the number of SMs.
 */
#ifndef PH_CUDA_FAST_GRAD_CUH
#define PH_CUDA_FAST_GRAD_CUH

#include "cuda/fast_consume.cuh"
#include "cuda/fast_grad_load.cuh"
#include "cuda/fast_grad_weights.cuh"

/* ---- products ---- */

/* d = owned walked^T, both K-major in shared memory. */
template <class T, class TYPE>
DEVICE void begin_pairs(TYPE type, float (&d)[T::BLOCK / 2], uint32_t owned,
                        uint32_t walked)
{
    pin(d);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < T::DIM / PH_DEPTH; x++)
        multiply(type, d, ph_wgmma_descriptor(owned, ph_k_major_step(x, T::TILE)),
                 ph_wgmma_descriptor(walked, ph_k_major_step(x, T::BLOCK)), x == 0);
    wgmma_commit();
}

/* g += weights walked */
template <class T, class TYPE>
DEVICE void begin_gradient(TYPE type, float (&g)[T::DIM / 2],
                           const uint32_t (&weights)[T::BLOCK / 4], uint32_t walked)
{
    pin(g);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < T::BLOCK / PH_DEPTH; x++)
        multiply(type, g, weights + 4 * x,
                 ph_wgmma_descriptor(walked, ph_mn_major_step(x)), 0);
    wgmma_commit();
}

/* ---- a block ---- */

/* Adds what the cleaners took out of dout to dv: rows from `token` on, of a q head. */
template <class T, class TYPE>
DEVICE void add_noted_rows(TYPE type, const ph_cuda_call &c, const grad_item &it,
                           uint32_t noted, int head, int token,
                           const uint32_t (&p)[T::BLOCK / 4], float (&dv)[T::DIM / 2])
{
    const ph_attn &a = c.attn;
    if (!has_noted_keys(noted)) return;
    for (int x = 0; x < T::BLOCK; x++) {
        if (!(noted_keys(noted, x / 32 * 32) >> x % 32 & 1)) continue;
        const int column = threadIdx.x % 4 * 2;
        const uint16_t *dout = (const uint16_t *)c.grads.dout +
                               start_of(a.out, it.batch, head, it.size.q_first) +
                               (token + x) * a.out.time + column;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float weight = weight_of(type, p, x, i);
            if (weight != 0) add_key(type, dout, a.v_dim - column, i, weight, dv);
        }
    }
}

/* ---- an item ---- */

/* Operands of products, as halves of descriptors: x, and a of stage 0. Where the others lie
   is a constant away. */
struct grad_operands {
    uint32_t x, a;
};

template <class T> DEVICE grad_operands operands_of(uint32_t base, int group)
{
    const uint32_t rows = T::SHARES ? 0 : group * 64 * PH_LINE;
    return grad_operands{ph_wgmma_operand(base + T::X_AT + rows, 16),
                         ph_wgmma_operand(base + T::A_AT, 16)};
}

/* Bytes between two tensors, and from a K-major operand to the same as an MN-major one, in
   such a half. */
template <class T> struct grad_steps {
    enum {
        TILE = T::TILE_BYTES >> 4,
        WALKED = T::STAGES * T::BLOCK_BYTES >> 4,
        TRANSPOSED = ((T::BLOCK * PH_LINE >> 4) - 1) << 16
    };
};

/* Block j of a head, the n-th of the ring: adds to dq, or to dk and dv. last: no product
   reads the tile behind this one. */
template <class T, class TYPE>
DEVICE void consume_block(TYPE type, const ph_cuda_call &c, const grad_item &it,
                          uint32_t base, const grad_operands &o, grad_rows &rows,
                          int head, int j, int n, int last, float (&dx)[T::DIM / 2],
                          float (&dy)[T::TWO ? T::DIM / 2 : 4])
{
    const uint32_t stage = stage_of<T::STAGES>(n);
    using step = grad_steps<T>;
    const uint32_t a = o.a + stage * (T::BLOCK_BYTES >> 4);
    float s[T::BLOCK / 2], dp[T::BLOCK / 2];
    uint32_t p[T::BLOCK / 4], ds[T::BLOCK / 4], dropped[T::DROPPED];
    rows.walked = base + T::ROWS_AT + stage * T::ROWS_BYTES;
    wait_stage<T::STAGES>(base + T::FULL, n);
    if constexpr (T::DROPS)
        draw_pairs<T>(c, it, rows, j, dropped); /* registers are free */
    begin_pairs<T>(type, s, o.x, a);
    begin_pairs<T>(type, dp, o.x + step::TILE, a + step::WALKED);
    wgmma_wait<1>();
    pin(s);
    weigh_pairs<T>(type, c, it, rows, j, head, s, p);
    if constexpr (T::DROPS && T::TWO) drop_weights_of<T>(dropped, p);
    wgmma_wait<0>();
    pin(dp);
    if (last) release(base + T::TILE_EMPTY);
    if constexpr (T::TWO)
        begin_gradient<T>(type, dy, p, a + step::WALKED + step::TRANSPOSED);
    center_pairs<T>(c, it, rows, s, dropped, dp);
    pack(type, dp, ds);
    begin_gradient<T>(type, dx, ds, a + step::TRANSPOSED);
    wgmma_wait<0>();
    pin(dx);
    if constexpr (T::TWO) {
        pin(dy);
        if (it.clean)
            add_noted_rows<T>(type, c, it, base + T::NOTED_AT + stage * NOTED_BYTES, head,
                              j * T::BLOCK, p, dy);
    }
    barrier_arrive(base + T::EMPTY + SLOT * stage);
}

/* ---- a block, of keys that consumers share ---- */

/* p crosses from one consumer to the other, thread to thread. */
template <class T> DEVICE uint32_t place_of_p(uint32_t base)
{
    return base + T::P_AT + thread_now() % PH_WARPGROUP * 16;
}

/* Of the n-th block. */
template <class T, int N> DEVICE void give_p(uint32_t base, int n, const float (&p)[N])
{
    const uint32_t to = place_of_p<T>(base);
    wait_empty<1>(base + T::P_EMPTY, n);
#pragma unroll
    for (int x = 0; x < N; x += 4)
        store_piece(to + x * (PH_WARPGROUP * 4),
                    make_uint4(__float_as_uint(p[x]), __float_as_uint(p[x + 1]),
                               __float_as_uint(p[x + 2]), __float_as_uint(p[x + 3])));
    barrier_arrive(base + T::P_FULL);
}

template <class T, int N> DEVICE void take_p(uint32_t base, int n, float (&p)[N])
{
    const uint32_t from = place_of_p<T>(base);
    wait_stage<1>(base + T::P_FULL, n);
#pragma unroll
    for (int x = 0; x < N; x += 4) {
        const uint4 four = load_piece(from + x * (PH_WARPGROUP * 4));
        p[x] = __uint_as_float(four.x), p[x + 1] = __uint_as_float(four.y);
        p[x + 2] = __uint_as_float(four.z), p[x + 3] = __uint_as_float(four.w);
    }
    barrier_arrive(base + T::P_EMPTY);
}

/* As consume_block, where dk and dv of 64 keys fill the registers of a consumer each: the
   first (group 0) has s, p and dv, the second dp, ds and dk. */
template <class T, class TYPE>
DEVICE void share_block(TYPE type, const ph_cuda_call &c, const grad_item &it,
                        uint32_t base, const grad_operands &o, grad_rows &rows, int group,
                        int head, int j, int n, int last, float (&g)[T::DIM / 2])
{
    const uint32_t stage = stage_of<T::STAGES>(n);
    using step = grad_steps<T>;
    const uint32_t a = o.a + stage * (T::BLOCK_BYTES >> 4);
    float pairs[T::BLOCK / 2];
    uint32_t weights[T::BLOCK / 4], dropped[T::DROPPED];
    rows.walked = base + T::ROWS_AT + stage * T::ROWS_BYTES;
    wait_stage<T::STAGES>(base + T::FULL, n);
    if constexpr (T::DROPS) draw_pairs<T>(c, it, rows, j, dropped);
    begin_pairs<T>(type, pairs, o.x + group * step::TILE, a + group * step::WALKED);
    wgmma_wait<0>();
    pin(pairs);
    if (last) release(base + T::TILE_EMPTY);
    if (group == 0) {
        weigh_pairs<T>(type, c, it, rows, j, head, pairs, weights);
        give_p<T>(base, n, pairs);
        if constexpr (T::DROPS) drop_weights_of<T>(dropped, weights);
    } else {
        float p[T::BLOCK / 2];
        take_p<T>(base, n, p);
        center_pairs<T>(c, it, rows, p, dropped, pairs);
        pack(type, pairs, weights);
    }
    begin_gradient<T>(type, g, weights, a + (1 - group) * step::WALKED + step::TRANSPOSED);
    wgmma_wait<0>();
    pin(g);
    if (group == 0 && it.clean)
        add_noted_rows<T>(type, c, it, base + T::NOTED_AT + stage * NOTED_BYTES, head,
                          j * T::BLOCK, weights, g);
    barrier_arrive(base + T::EMPTY + SLOT * stage);
}

/* ---- what an item gave ---- */

/* Stores the thread's two rows of a gradient; `out`: of the tile's first. */
template <class TYPE, int N>
DEVICE void store_gradient(TYPE type, const float (&g)[N], float scale, uint16_t *out,
                           int64_t stride, int row, int rows, int owned, int columns)
{
    const int first = 8 * (thread_now() % 4);
    const int pieces = columns == 2 * N && ((int64_t)out | stride * 2) % 16 == 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int n = row + 8 * i, count = n < rows ? columns - first : 0;
        const float factor = n < owned ? scale : 0;
        uint16_t *to = out + n * stride + first;
        uint32_t u[4];
        if (pieces) {
#pragma unroll
            for (int x = 0; x < N / 4; x += 4) {
                divide_piece(type, g, x, i, factor, u);
                store_if(to + 8 * x, u, count > 0);
            }
        } else {
#pragma unroll
            for (int x = 0; x < N / 4; x += 4) {
                divide_piece(type, g, x, i, factor, u);
                store_columns(to + 8 * x, u, count - 8 * x);
            }
        }
    }
}

/* dk, or dv (values), of a tile of keys. */
template <class T, class TYPE>
DEVICE void store_keys(TYPE type, const ph_cuda_call &c, const grad_item &it, int values,
                       const float (&g)[T::DIM / 2])
{
    const ph_attn &a = c.attn;
    const ph_strides &at = values ? a.dv : a.dk;
    uint16_t *to = (uint16_t *)(values ? c.grads.dv : c.grads.dk);
    if (!to) return;
    store_gradient(type, g, values ? (T::DROPS ? c.drop_keep : 1.0f) : a.scale,
                   to + start_of(at, it.batch, it.head, it.size.kv_first + it.first),
                   at.time, first_owned<T>(), stored_keys(a, it.size) - it.first,
                   it.owned - it.first, values ? a.v_dim : a.qk_dim);
}

/* Stores what an item gave a consumer, where it is wanted. */
template <class T, class TYPE>
DEVICE void store_gradients(TYPE type, const ph_cuda_call &c, const grad_item &it,
                            int group, const float (&dx)[T::DIM / 2],
                            const float (&dy)[T::TWO ? T::DIM / 2 : 4])
{
    const ph_attn &a = c.attn;
    if constexpr (T::SHARES) {
        store_keys<T>(type, c, it, group == 0, dx);
    } else if constexpr (T::OWNS_KEYS) {
        store_keys<T>(type, c, it, 0, dx);
        store_keys<T>(type, c, it, 1, dy);
    } else {
        const int first = it.first, from = it.size.q_first + first;
        store_gradient(type, dx, a.scale,
                       (uint16_t *)c.grads.dq + start_of(a.dq, it.batch, it.head, from),
                       a.dq.time, first_owned<T>(), stored_rows(a, it.size) - first,
                       it.owned - first, a.qk_dim);
    }
}

/* What is known of the thread's owned rows. */
template <class T> DEVICE grad_rows owned_rows(const ph_cuda_call &c, const grad_item &it)
{
    grad_rows rows = {};
#pragma unroll
    for (int i = 0; i < 2 && !T::OWNS_KEYS; i++) {
        const row_numbers row = numbers_of_row<T>(c, it.size, it.batch, it.head,
                                                  it.first + first_owned<T>() + 8 * i);
        rows.lse2[i] = row.x[ROW_LSE2], rows.delta[i] = row.x[ROW_DELTA];
        rows.gate[i] = row.x[ROW_GATE], rows.seed[i] = row.seed;
    }
    return rows;
}

template <class T, class TYPE>
DEVICE void consume_grad_items(TYPE type, const ph_cuda_call &c,
                               const ph_cuda_schedule &plan, uint32_t base, int group)
{
    const int heads = walked_heads<T>(plan);
    const grad_operands o = operands_of<T>(base, group);
    int n = 0, tiles = 0; /* blocks, and tiles with blocks, so far */
    for (int i = 0;; i++) {
        const grad_item &it = begin_grad_item<T>(base, i);
        float dx[T::DIM / 2] = {}, dy[T::TWO ? T::DIM / 2 : 4] = {};
        if (it.batch < 0) return;
        const int begin = it.begin, end = it.end;
        grad_rows rows = owned_rows<T>(c, it);
        if (begin < end) wait_stage<1>(base + T::TILE_FULL, tiles++);
#pragma unroll 1
        for (int h = 0; h < heads; h++)
#pragma unroll 1
            for (int j = begin; j < end; j++, n++) {
                const int head = T::OWNS_KEYS ? walked_head<T>(plan, it, h) : it.head;
                const int last = h == heads - 1 && j == end - 1;
                if constexpr (T::SHARES)
                    share_block<T>(type, c, it, base, o, rows, group, head, j, n, last,
                                   dx);
                else
                    consume_block<T>(type, c, it, base, o, rows, head, j, n, last, dx,
                                     dy);
            }
        int spoilt = is_nonfinite(dx);
        if constexpr (T::TWO) spoilt |= is_nonfinite(dy);
        if (spoilt && !it.clean && threadIdx.x % 32 == 0)
            or_shared(shared_address(&it.spoilt), 1);
        store_gradients<T>(type, c, it, group, dx, dy);
        end_grad_item<T>(base, i);
    }
}

/* ---- kernels ---- */

template <class T> DEVICE void init_grad_barriers(uint32_t base)
{
    const int consumers = PH_WARPGROUP * T::CONSUMERS, rows_warp = 32 * T::OWNS_KEYS;
    barrier_init(base + T::TILE_FULL, 1);
    barrier_init(base + T::TILE_EMPTY, consumers / 32);
    barrier_init(base + T::P_FULL, PH_WARPGROUP);
    barrier_init(base + T::P_EMPTY, PH_WARPGROUP);
    for (int i = 0; i < T::STAGES; i++) {
        barrier_init(base + T::RAW + SLOT * i, 1);
        barrier_init(base + T::FULL + SLOT * i, CLEANERS + rows_warp);
        barrier_init(base + T::EMPTY + SLOT * i, consumers);
    }
    for (int i = 0; i < ITEMS; i++) {
        barrier_init(base + T::ITEM_FULL + SLOT * i, 1);
        barrier_init(base + T::ITEM_EMPTY + SLOT * i, consumers + CLEANERS + rows_warp);
        grad_slot<T>(base, i)->spoilt = 0;
    }
    barrier_init_fence();
}

template <class T, class TYPE>
DEVICE void backward(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                     const grad_maps &map)
{
    const uint32_t base = (dynamic_shared() + PH_ATOM - 1) & ~(PH_ATOM - 1u);
    const int warp = uniform(threadIdx.x / 32);
    if (threadIdx.x == 0) {
        prefetch_map(map.x), prefetch_map(map.y), prefetch_map(map.a),
            prefetch_map(map.b);
        init_grad_barriers<T>(base);
    }
    __syncthreads();
    wait_for_stream();
    if (warp < PH_WARPGROUP / 32) {
        registers_down<T::PRODUCER_REGISTERS>();
        if (warp * 32 >= FIRST_CLEANER)
            clean_grad_items<T>(type, plan, base);
        else if (T::OWNS_KEYS && warp == ROWS_WARP)
            bring_rows<T>(c, plan, base);
        else if (threadIdx.x == COPIER)
            copy_grad_items<T>(c, plan, base, map);
    } else {
        registers_up<T::CONSUMER_REGISTERS>();
        consume_grad_items<T>(type, c, plan, base, warp / 4 - 1);
    }
}

/* The kernels of a file, by head dim and type. */
#define GRAD_KERNELS(name, scores)                                                       \
    GRAD_KERNEL(name##_64_f16, tiles_64<scores>, f16_tag)                                \
    GRAD_KERNEL(name##_64_bf16, tiles_64<scores>, bf16_tag)                              \
    GRAD_KERNEL(name##_128_f16, tiles_128<scores>, f16_tag)                              \
    GRAD_KERNEL(name##_128_bf16, tiles_128<scores>, bf16_tag)                            \
    GRAD_KERNEL(name##_256_f16, tiles_256<scores>, f16_tag)                              \
    GRAD_KERNEL(name##_256_bf16, tiles_256<scores>, bf16_tag)

#define GRAD_KERNEL(name, T, TYPE)                                                       \
    extern "C" __global__ void __launch_bounds__(T::THREADS, 1)                          \
        name(const __grid_constant__ ph_cuda_call c,                                     \
             const __grid_constant__ ph_cuda_schedule schedule,                          \
             const __grid_constant__ tensor_map q_map,                                   \
             const __grid_constant__ tensor_map k_map,                                   \
             const __grid_constant__ tensor_map v_map,                                   \
             const __grid_constant__ tensor_map dout_map)                                \
    {                                                                                    \
        const grad_maps rows = {&q_map, &dout_map, &k_map, &v_map};                      \
        const grad_maps keys = {&k_map, &v_map, &q_map, &dout_map};                      \
        backward<T>(TYPE(), c, schedule, T::OWNS_KEYS ? keys : rows);                    \
    }

#endif
