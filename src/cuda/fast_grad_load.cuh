/*
 * fast_grad_load.cuh - the producer warpgroup of the backward pass on tensor cores: warp 0
 * takes items and issues tensor copies, warp 1 brings lse and delta of walked rows, warps 2
 * and 3 clean operands.
 *
 * NaN and Inf. Hidden pairs have p = ds = 0, and 0 times NaN would reach gradients of
 * others. An item is computed as if all were finite; if its result is not, it is computed
 * once more from operands with 0 in place of what is not finite. What sees NaN in q or k
 * has it from lse, and in v from delta and lse; what is missing is dout in dv, and that is
 * added where it was noted.
 */
#ifndef PH_CUDA_FAST_GRAD_LOAD_CUH
#define PH_CUDA_FAST_GRAD_LOAD_CUH

#include "base/rng.h"
#include "cuda/fast_clean.cuh"
#include "cuda/fast_grad_tiles.cuh"

enum { ROWS_WARP = 1 };

/* ---- items ---- */

/* What the first owned one sees, not cut to the sequence: so both ends move with the owned
   one, and are cut when they are used. */
template <class T> DEVICE void cut_walk(const ph_attn &a, grad_item &it)
{
    const int64_t least = -T::TILE, end = it.walked;
    const int band = a.mask == PH_MASK_BAND;
    const int left = band ? a.band_left : -1;
    const int right = band ? a.band_right : a.mask == PH_MASK_CAUSAL ? 0 : -1;
    const int64_t at =
        T::OWNS_KEYS ? it.first - it.size.offset : it.first + it.size.offset;
    const int before = T::OWNS_KEYS ? right : left, behind = T::OWNS_KEYS ? left : right;
    it.lo = (int)max(min(before >= 0 ? at - before : least, end), least);
    it.hi = (int)max(min(behind >= 0 ? at + behind + 1 : end, end), least);
}

/* One end, `on` owned ones further on. */
DEVICE int walk_end(const grad_item &it, int end, int on)
{
    return min(max(end + on, 0), it.walked);
}

template <class T> DEVICE void cut_blocks(grad_item &it)
{
    const int count = min((int)T::TILE, it.owned - it.first), last = count - 1;
    const int lo = walk_end(it, it.lo, 0), hi = walk_end(it, it.hi, last);
    it.all_lo = walk_end(it, it.lo, last);
    it.all_hi = count < T::TILE ? 0 : walk_end(it, it.hi, 0);
    it.begin = it.end = 0;
    if (count <= 0 || lo >= hi) return;
    it.begin = lo / T::BLOCK;
    it.end = (hi + T::BLOCK - 1) / T::BLOCK;
}

/* Returns 0 if the item has no place in the gradients. */
template <class T>
DEVICE int fill_grad_item(const ph_cuda_call &c, const ph_cuda_schedule &plan, int index,
                          grad_item &it)
{
    int unit, tile;
    ph_cuda_item(&plan, index, &unit, &tile);
    const int batch = ph_divide(unit, &plan.batch_units);
    const extent size = extent_of(c, batch);
    /* Under a causal mask most rows see the first keys: the longest items come first. */
    if (T::OWNS_KEYS) tile = plan.row_tiles.by - 1 - tile;
    it.size = size, it.batch = batch, it.head = unit - batch * plan.batch_units.by;
    it.first = tile * T::TILE;
    it.owned = T::OWNS_KEYS ? size.kv_len : size.q_len;
    it.walked = T::OWNS_KEYS ? size.q_len : size.kv_len;
    if (it.first >=
        (T::OWNS_KEYS ? stored_keys(c.attn, size) : stored_rows(c.attn, size)))
        return 0;
    cut_walk<T>(c.attn, it);
    cut_blocks<T>(it);
    return 1;
}

/* Waits for the item before the n-th in its slot. Its index if it has to be computed again,
   else -1. */
template <class T> DEVICE int spoilt_grad_item(uint32_t base, int n)
{
    wait_empty<ITEMS>(base + T::ITEM_EMPTY, n);
    grad_item &it = *grad_slot<T>(base, n);
    const int index = it.spoilt ? it.index : -1;
    it.spoilt = 0;
    return index;
}

/* Takes the n-th item; index: the next of the schedule, which moves on. 1, or 0 if it has
   nothing to do; -1: there are no more. */
template <class T>
DEVICE int take_grad_item(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                          uint32_t base, int n, int &index)
{
    int again = spoilt_grad_item<T>(base, n);
    if (again < 0 && index >= plan.items) again = spoilt_grad_item<T>(base, n + 1);
    grad_item &it = *grad_slot<T>(base, n);
    const uint32_t full = base + T::ITEM_FULL + SLOT * stage_of<ITEMS>(n);
    if (again < 0 && index >= plan.items) {
        it.batch = -1;
        barrier_arrive(full);
        return -1;
    }
    const int there = fill_grad_item<T>(c, plan, again < 0 ? index : again, it);
    it.index = again < 0 ? index : again;
    it.clean = again >= 0;
    if (again < 0) index = (int)(gridDim.x + atomicAdd(plan.taken, 1u));
    if (there) barrier_arrive(full);
    return there;
}

/* ---- copies ---- */

/* Rows of a head, of both of a pair of tensors, in panels of 64 columns. */
template <class T>
DEVICE void load_pair(uint32_t first, uint32_t second, const tensor_map *map_first,
                      const tensor_map *map_second, uint32_t barrier, int rows, int row,
                      int head, int batch)
{
#pragma unroll
    for (int x = 0; x < T::DIM; x += 64) {
#pragma unroll 1
        for (int n = 0; n < rows; n += T::BOX) {
            const uint32_t on = x * rows * 2 + n * PH_LINE;
            copy_box(first + on, map_first, barrier, x, row + n, head, batch);
            copy_box(second + on, map_second, barrier, x, row + n, head, batch);
        }
    }
}

/* The batch row of a tensor map: ragged tensors have one. */
DEVICE int map_batch(const ph_attn &a, int keys, int batch)
{
    return (keys ? a.ragged == PH_RAGGED_ALL : a.ragged != 0) ? 0 : batch;
}

template <class T>
DEVICE void load_tile(const ph_cuda_call &c, const ph_cuda_schedule &plan, uint32_t base,
                      const grad_maps &map, const grad_item &it)
{
    const int first = T::OWNS_KEYS ? it.size.kv_first : it.size.q_first;
    barrier_expect(base + T::TILE_FULL, 2 * T::TILE_BYTES);
    load_pair<T>(base + T::X_AT, base + T::Y_AT, map.x, map.y, base + T::TILE_FULL, T::TILE,
                 first + it.first, it.head, map_batch(c.attn, T::OWNS_KEYS, it.batch));
}

/* Block j of a head, the n-th of the ring. */
template <class T>
DEVICE void load_grad_block(const ph_cuda_call &c, uint32_t base, const grad_maps &map,
                            const grad_item &it, int head, int j, int n)
{
    const int stage = stage_of<T::STAGES>(n);
    const int first = T::OWNS_KEYS ? it.size.q_first : it.size.kv_first;
    const uint32_t full = base + T::FULL + SLOT * stage;
    const uint32_t barrier = it.clean ? base + T::RAW + SLOT * stage : full;
    wait_empty<T::STAGES>(base + T::EMPTY, n);
    if (!it.clean) barrier_arrive(full, CLEANERS - 1);
    barrier_expect(barrier, 2 * T::BLOCK_BYTES);
    load_pair<T>(base + T::A_AT + stage * T::BLOCK_BYTES,
                 base + T::B_AT + stage * T::BLOCK_BYTES, map.a, map.b, barrier, T::BLOCK,
                 first + j * T::BLOCK, head, map_batch(c.attn, !T::OWNS_KEYS, it.batch));
}

template <class T>
DEVICE void copy_grad_items(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                            uint32_t base, const grad_maps &map)
{
    const int heads = walked_heads<T>(plan);
    int index = blockIdx.x, blocks = 0, tiles = 0;
    for (int n = 0;;) {
        const int there = take_grad_item<T>(c, plan, base, n, index);
        if (there < 0) return;
        if (!there) continue;
        const grad_item &it = *grad_slot<T>(base, n++);
        if (it.begin == it.end) continue;
        wait_empty<1>(base + T::TILE_EMPTY, tiles++);
        load_tile<T>(c, plan, base, map, it);
#pragma unroll 1
        for (int h = 0; h < heads; h++)
#pragma unroll 1
            for (int j = it.begin; j < it.end; j++)
                load_grad_block<T>(c, base, map, it, walked_head<T>(plan, it, h), j,
                                   blocks++);
    }
}

/* ---- numbers of walked rows ---- */

/* What is known of a row; one that is not computed has p = 0. */
template <class T>
DEVICE row_numbers numbers_of_row(const ph_cuda_call &c, const extent &e, int batch,
                                  int head, int token)
{
    const ph_attn &a = c.attn;
    const int64_t row = ((int64_t)batch * a.q_heads + head) * a.q_len + token;
    if (token >= a.q_len) return row_numbers{{INFINITY, 0, 1}, 0};
    const float gate =
        T::MODIFIES && token < e.q_len ? gate_of(c, e, batch, head, token) : 1;
    return row_numbers{{c.lse2[row], c.delta[row], gate},
                       T::DROPS ? ph_rng_key(c.args.seed, batch, head, token) : 0};
}

DEVICE void store_float(uint32_t at, float x)
{
    store_shared(at, __float_as_int(x));
}

/* Of block j of a head, the n-th of the ring. They are read before the stage is free, which
   takes longer. */
template <class T>
DEVICE void bring_block(const ph_cuda_call &c, uint32_t base, const grad_item &it,
                        int head, int j, int n)
{
    const int stage = stage_of<T::STAGES>(n), lane = threadIdx.x % 32;
    const uint32_t at = base + T::ROWS_AT + stage * T::ROWS_BYTES + 4 * lane;
    row_numbers row[T::BLOCK / 32];
#pragma unroll
    for (int r = 0; r < T::BLOCK / 32; r++)
        row[r] =
            numbers_of_row<T>(c, it.size, it.batch, head, j * T::BLOCK + 32 * r + lane);
    wait_empty<T::STAGES>(base + T::EMPTY, n);
#pragma unroll
    for (int r = 0; r < T::BLOCK / 32; r++) {
        const uint32_t to = at + 128 * r;
#pragma unroll
        for (int i = 0; i < (T::MODIFIES ? ROW_NUMBERS : ROW_GATE); i++)
            store_float(to + i * (T::BLOCK * 4), row[r].x[i]);
        if (!T::DROPS) continue;
        store_shared(to + ROW_SEED * (T::BLOCK * 4), (int)row[r].seed);
        store_shared(to + ROW_SEED_HIGH * (T::BLOCK * 4), (int)(row[r].seed >> 32));
    }
    barrier_arrive(base + T::FULL + SLOT * stage);
}

template <class T>
DEVICE void bring_rows(const ph_cuda_call &c, const ph_cuda_schedule &plan, uint32_t base)
{
    const int heads = walked_heads<T>(plan);
    int n = 0; /* blocks so far */
    for (int i = 0;; i++) {
        const grad_item &it = begin_grad_item<T>(base, i);
        if (it.batch < 0) return;
#pragma unroll 1
        for (int h = 0; h < heads; h++)
#pragma unroll 1
            for (int j = it.begin; j < it.end; j++)
                bring_block<T>(c, base, it, walked_head<T>(plan, it, h), j, n++);
        end_grad_item<T>(base, i);
    }
}

/* ---- cleaners ---- */

/* Cleans the n-th block once it is there; of keys' gradients, notes tokens whose dout is not
   finite. */
template <class T, class TYPE>
DEVICE void clean_grad_block(TYPE type, uint32_t base, int n, uint32_t &parity)
{
    const int stage = stage_of<T::STAGES>(n), thread = threadIdx.x - FIRST_CLEANER;
    const uint32_t noted = base + T::NOTED_AT + stage * NOTED_BYTES;
    barrier_wait(base + T::RAW + SLOT * stage, parity >> stage & 1);
    parity ^= 1u << stage;
    wait_empty<T::STAGES>(base + T::EMPTY, n); /* noted rows have been read */
    for (int i = 0; thread == 0 && i < NOTED_BYTES; i += 4) store_shared(noted + i, 0);
    meet<CLEANERS>(CLEANERS_MEET);
    clean_rows<CLEANERS, T::BLOCK>(type, base + T::A_AT + stage * T::BLOCK_BYTES,
                                   T::BLOCK_BYTES, thread, [](int) {});
    if (T::OWNS_KEYS)
        clean_rows<CLEANERS, T::BLOCK>(
            type, base + T::B_AT + stage * T::BLOCK_BYTES, T::BLOCK_BYTES, thread,
            [&](int row) { or_shared(noted + row / 32 * 4, 1u << row % 32); });
    async_proxy_fence();
    barrier_arrive(base + T::FULL + SLOT * stage);
}

template <class T, class TYPE>
DEVICE void clean_grad_items(TYPE type, const ph_cuda_schedule &plan, uint32_t base)
{
    const int heads = walked_heads<T>(plan);
    uint32_t parity = 0; /* of RAW, a bit per stage */
    int n = 0;           /* blocks so far */
    for (int i = 0;; i++) {
        const grad_item &it = begin_grad_item<T>(base, i);
        if (it.batch < 0) return;
        const int blocks = heads * (it.end - it.begin);
        for (int j = 0; it.clean && j < blocks; j++)
            clean_grad_block<T>(type, base, n + j, parity);
        n += blocks;
        end_grad_item<T>(base, i);
    }
}

#endif
