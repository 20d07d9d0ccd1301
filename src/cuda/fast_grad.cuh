/*
 * fast_grad.cuh - the backward pass of 16-bit tensors on tensor cores: what a consumer
 * warpgroup does with 64 owned rows or keys of a tile, and the kernels.
 *
 * The accumulators of s and dp have the layout of the A operand of the next product, so p
 * and ds are converted to 16 bits and never leave registers. One consumer weighs while the
 * other's products run.
 *
 * Same bits. A gradient is one chain of products over blocks at absolute positions, head by
 * head of those that share keys, and pairs that do not meet add 0: it depends on what it
 * meets alone, not on tiles, batch or the number of SMs.
 */
#ifndef PH_CUDA_FAST_GRAD_CUH
#define PH_CUDA_FAST_GRAD_CUH

#include "cuda/fast_consume.cuh"
#include "cuda/fast_grad_load.cuh"

/* ---- products ---- */

/* d = owned walked^T, both K-major in shared memory. */
template <class T, class TYPE>
DEVICE void begin_pairs(TYPE type, float (&d)[T::BLOCK / 2], uint32_t owned, uint32_t walked)
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

/* lse2 and delta: of the thread's two owned rows, or of walked rows in shared memory. */
struct grad_rows {
    float lse2[2], delta[2];
    uint32_t walked;
};

/* Two columns of lse2 (0) or delta (1) of walked rows, for elements x to x + 3. */
template <class T> DEVICE float2 walked_stats(const grad_rows &rows, int which, int x)
{
    const uint32_t at = rows.walked + which * (T::BLOCK * 4) + (thread_now() % 4) * 8;
    return *(const float2 *)shared_pointer(at + x / 4 * 32);
}

/* s becomes p. */
template <class T, int N>
DEVICE void weigh_pairs(float (&s)[N], const grad_rows &rows, float scale2)
{
#pragma unroll
    for (int x = 0; x < N; x += 4) {
        float lse2[4] = {rows.lse2[0], rows.lse2[0], rows.lse2[1], rows.lse2[1]};
        if (T::OWNS_KEYS) {
            const float2 two = walked_stats<T>(rows, 0, x);
            lse2[0] = lse2[2] = two.x, lse2[1] = lse2[3] = two.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[x + i] = exp2_of(__fmaf_rn(s[x + i], scale2, -lse2[i]));
    }
}

/* dp becomes ds. Where operands were cleaned, pairs that do not meet have none, whatever
   delta or dp is. */
template <class T, int N>
DEVICE void center_pairs(const float (&p)[N], float (&dp)[N], const grad_rows &rows,
                         int clean)
{
#pragma unroll
    for (int x = 0; x < N; x += 4) {
        float delta[4] = {rows.delta[0], rows.delta[0], rows.delta[1], rows.delta[1]};
        if (T::OWNS_KEYS) {
            const float2 two = walked_stats<T>(rows, 1, x);
            delta[0] = delta[2] = two.x, delta[1] = delta[3] = two.y;
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[x + i] = __fmul_rn(p[x + i], __fsub_rn(dp[x + i], delta[i]));
    }
    if (!clean) return;
#pragma unroll
    for (int x = 0; x < N; x++)
        if (p[x] == 0) dp[x] = 0;
}

/* Pairs of a block that do not meet get p = 0; on: the thread's first owned one, in the
   tile. In a clean item all rows that are not computed are such, too. */
template <class T, int N>
DEVICE void hide_pairs(const grad_item &it, const grad_rows &rows, float (&p)[N], int on,
                       int block)
{
    const int first = block * T::BLOCK + (int)thread_now() % 4 * 2;
    int lo[2], hi[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int n = on + 8 * i;
        lo[i] = min(it.lo + n, it.walked) - first;
        hi[i] = min(it.hi + n, it.walked) - first;
        if (it.first + n >= it.owned || (!T::OWNS_KEYS && rows.lse2[i] == INFINITY))
            hi[i] = lo[i];
    }
    hide(p, lo, hi, 0);
}

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

/* The thread's place: its consumer, and its first owned row or key in the tile. */
struct grad_place {
    uint32_t base;
    int group, on;
};

/* Operands of products, as halves of descriptors. */
template <class T> struct grad_operands {
    uint32_t x, y;                           /* owned rows of this consumer */
    uint32_t a, b, a_transposed, b_transposed; /* of stage 0 */
};

template <class T> DEVICE grad_operands<T> operands_of(const grad_place &at)
{
    const uint32_t rows = at.base + at.group * 64 * PH_LINE;
    grad_operands<T> o;
    o.x = ph_wgmma_operand(rows + T::X_AT, 16), o.y = ph_wgmma_operand(rows + T::Y_AT, 16);
    o.a = ph_wgmma_operand(at.base + T::A_AT, 16);
    o.b = ph_wgmma_operand(at.base + T::B_AT, 16);
    o.a_transposed = ph_wgmma_operand(at.base + T::A_AT, T::BLOCK * PH_LINE);
    o.b_transposed = ph_wgmma_operand(at.base + T::B_AT, T::BLOCK * PH_LINE);
    return o;
}

/* Block j of a head, the n-th of the ring: adds to dq, or to dk and dv. last: no product
   reads the tile behind this one. */
template <class T, class TYPE>
DEVICE void consume_block(TYPE type, const ph_cuda_call &c, const grad_item &it,
                          const grad_place &at, const grad_operands<T> &o, grad_rows &rows,
                          int head, int j, int n, int last, float (&dx)[T::DIM / 2],
                          float (&dy)[T::OWNS_KEYS ? T::DIM / 2 : 4])
{
    const uint32_t stage = stage_of<T::STAGES>(n);
    const uint32_t step = stage * (T::BLOCK_BYTES >> 4);
    float s[T::BLOCK / 2], dp[T::BLOCK / 2];
    uint32_t p[T::BLOCK / 4], ds[T::BLOCK / 4];
    rows.walked = at.base + T::ROWS_AT + stage * T::ROWS_BYTES;
    wait_stage<T::STAGES>(at.base + T::FULL, n);
    begin_pairs<T>(type, s, o.x, o.a + step);
    begin_pairs<T>(type, dp, o.y, o.b + step);
    wgmma_wait<1>();
    pin(s);
    weigh_pairs<T>(s, rows, c.scale2);
    if (it.clean || is_grad_edge<T>(it, j)) hide_pairs<T>(it, rows, s, at.on, j);
    wgmma_wait<0>();
    pin(dp);
    if (last) release(at.base + T::TILE_EMPTY);
    if constexpr (T::OWNS_KEYS) {
        pack(type, s, p);
        begin_gradient<T>(type, dy, p, o.b_transposed + step);
    }
    center_pairs<T>(s, dp, rows, it.clean);
    pack(type, dp, ds);
    begin_gradient<T>(type, dx, ds, o.a_transposed + step);
    wgmma_wait<0>();
    pin(dx);
    if constexpr (T::OWNS_KEYS) {
        pin(dy);
        if (it.clean)
            add_noted_rows<T>(type, c, it, at.base + T::NOTED_AT + stage * NOTED_BYTES, head,
                              j * T::BLOCK, p, dy);
    }
    __syncwarp();
    release(at.base + T::EMPTY + SLOT * stage);
}

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

/* Stores what an item gave, where it is wanted. */
template <class T, class TYPE>
DEVICE void store_gradients(TYPE type, const ph_cuda_call &c, const grad_item &it,
                            const grad_place &at, const float (&dx)[T::DIM / 2],
                            const float (&dy)[T::OWNS_KEYS ? T::DIM / 2 : 4])
{
    const ph_attn &a = c.attn;
    const int owned = it.owned - it.first, first = it.first;
    if constexpr (T::OWNS_KEYS) {
        const int rows = stored_keys(a, it.size) - first, from = it.size.kv_first + first;
        if (c.grads.dk)
            store_gradient(type, dx, a.scale,
                           (uint16_t *)c.grads.dk + start_of(a.dk, it.batch, it.head, from),
                           a.dk.time, at.on, rows, owned, a.qk_dim);
        if (c.grads.dv)
            store_gradient(type, dy, 1.0f,
                           (uint16_t *)c.grads.dv + start_of(a.dv, it.batch, it.head, from),
                           a.dv.time, at.on, rows, owned, a.v_dim);
    } else {
        const int rows = stored_rows(a, it.size) - first, from = it.size.q_first + first;
        store_gradient(type, dx, a.scale,
                       (uint16_t *)c.grads.dq + start_of(a.dq, it.batch, it.head, from),
                       a.dq.time, at.on, rows, owned, a.qk_dim);
    }
}

/* lse2 and delta of the thread's owned rows. */
template <class T>
DEVICE grad_rows owned_rows(const ph_cuda_call &c, const grad_item &it, int on)
{
    grad_rows rows = {};
#pragma unroll
    for (int i = 0; i < 2 && !T::OWNS_KEYS; i++) {
        const float2 both = row_stats(c, it.batch, it.head, it.first + on + 8 * i);
        rows.lse2[i] = both.x, rows.delta[i] = both.y;
    }
    return rows;
}

template <class T, class TYPE>
DEVICE void consume_grad_items(TYPE type, const ph_cuda_call &c,
                               const ph_cuda_schedule &plan, uint32_t base, int group)
{
    const int heads = walked_heads<T>(plan);
    const grad_place at = {base, group,
                           64 * group + ph_fragment_row(threadIdx.x % PH_WARPGROUP, 0)};
    const grad_operands<T> o = operands_of<T>(at);
    int n = 0, tiles = 0; /* blocks, and tiles with blocks, so far */
    for (int i = 0;; i++) {
        const grad_item &it = begin_grad_item<T>(base, i);
        float dx[T::DIM / 2] = {}, dy[T::OWNS_KEYS ? T::DIM / 2 : 4] = {};
        if (it.batch < 0) return;
        const int begin = it.begin, end = it.end;
        grad_rows rows = owned_rows<T>(c, it, at.on);
        if (begin < end) wait_stage<1>(base + T::TILE_FULL, tiles++);
#pragma unroll 1
        for (int h = 0; h < heads; h++)
#pragma unroll 1
            for (int j = begin; j < end; j++, n++)
                consume_block<T>(type, c, it, at, o, rows, walked_head<T>(plan, it, h), j, n,
                                 h == heads - 1 && j == end - 1, dx, dy);
        int spoilt = is_nonfinite(dx);
        if constexpr (T::OWNS_KEYS) spoilt |= is_nonfinite(dy);
        if (spoilt && !it.clean && threadIdx.x % 32 == 0)
            or_shared(shared_address(&it.spoilt), 1);
        store_gradients<T>(type, c, it, at, dx, dy);
        end_grad_item<T>(base, i);
    }
}

/* ---- kernels ---- */

template <class T> DEVICE void init_grad_barriers(uint32_t base)
{
    const int warps = 4 * T::CONSUMERS;
    barrier_init(base + T::TILE_FULL, 1);
    barrier_init(base + T::TILE_EMPTY, warps);
    for (int i = 0; i < T::STAGES; i++) {
        barrier_init(base + T::RAW + SLOT * i, 1);
        barrier_init(base + T::FULL + SLOT * i, CLEANERS + 32 * T::OWNS_KEYS);
        barrier_init(base + T::EMPTY + SLOT * i, warps);
    }
    for (int i = 0; i < ITEMS; i++) {
        barrier_init(base + T::ITEM_FULL + SLOT * i, 1);
        barrier_init(base + T::ITEM_EMPTY + SLOT * i,
                     warps + CLEANERS / 32 + T::OWNS_KEYS);
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
        prefetch_map(map.x), prefetch_map(map.y), prefetch_map(map.a), prefetch_map(map.b);
        init_grad_barriers<T>(base);
    }
    __syncthreads();
    wait_for_stream();
    if (warp < PH_WARPGROUP / 32) {
        registers_down<T::PRODUCER_REGISTERS>();
        if (warp * 32 >= FIRST_CLEANER)
            clean_grad_items<T>(type, plan, base);
        else if (T::OWNS_KEYS && warp == STATS_WARP)
            bring_rows<T>(c, plan, base);
        else if (threadIdx.x == COPIER)
            copy_grad_items<T>(c, plan, base, map);
    } else {
        registers_up<T::CONSUMER_REGISTERS>();
        consume_grad_items<T>(type, c, plan, base, warp / 4 - 1);
    }
}

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
