/*
 * fast_load.cuh - the producer warpgroup of the fast kernels: warp 0 issues tensor copies,
 * warp 1 takes items, warps 2 and 3 clean the values at the edges of a mask.
 *
 * Masked NaN/Inf. A hidden pair has the weight 0, and 0 times NaN would reach rows that do
 * not see the key. K needs nothing, since hidden scores are replaced. Of V, a block in
 * which some row of the tile does not see some key is an edge: it goes to the cleaners
 * first, which put 0 where a value is not finite and note the keys; consumers add those
 * values to the rows that see them. Other blocks go straight to the consumers.
 */
#ifndef PH_CUDA_FAST_LOAD_CUH
#define PH_CUDA_FAST_LOAD_CUH

#include "cuda/cuda_call.h"
#include "cuda/hopper.cuh"
#include "cuda/schedule.h"
#include "cuda/visible.cuh"

enum {
    STAGES = 2,
    SCHEDULER = 32, /* the threads that take items, copy, and clean */
    COPIER = 0,
    FIRST_CLEANER = 64,
    CLEANERS = 64,
    CLEANERS_MEET = 1, /* named barriers; 0 is __syncthreads */
    FIRST_TURN = 2
};

/* A tile of rows of one head, in shared memory: warp 1 writes it, the others read it. */
struct item {
    extent size;
    int batch, head, row; /* row: the first; batch < 0: there are no more items */
    int first, end;       /* blocks of keys to visit */
    int lo, hi;           /* keys that some row may see */
    int all_lo, all_hi;   /* keys that all rows see */
};

/* How a head dim is cut: rows of a tile, keys of a block, keys of a split; and what lies
   where in shared memory. */
template <int DIM_, int CONSUMERS_, int PRODUCER_REGISTERS_, int CONSUMER_REGISTERS_>
struct tiles {
    enum {
        DIM = DIM_,
        CONSUMERS = CONSUMERS_, /* warpgroups of 64 rows */
        PRODUCER_REGISTERS = PRODUCER_REGISTERS_,
        CONSUMER_REGISTERS = CONSUMER_REGISTERS_,
        KEYS = PH_FAST_KEYS,
        SPLIT = 2048,
        ROWS = 64 * CONSUMERS,
        THREADS = PH_WARPGROUP * (CONSUMERS + 1),
        BLOCK_BYTES = KEYS * DIM * 2, /* of K, and of V */

        K_AT = ROWS * DIM * 2, /* behind Q */
        V_AT = K_AT + STAGES * BLOCK_BYTES,
        WHOLE_AT = V_AT + STAGES * BLOCK_BYTES, /* sums of earlier splits */
        STATS_AT = WHOLE_AT + ROWS * DIM * 4,
        NOTED_AT = STATS_AT + ROWS * 8, /* a bit per key of a stage */
        ITEMS_AT = NOTED_AT + KEYS / 8 * STAGES,
        Q_FULL = ITEMS_AT + sizeof(item) * STAGES, /* barriers; but for Q one per stage */
        Q_EMPTY = Q_FULL + 8,
        K_FULL = Q_EMPTY + 8,
        K_EMPTY = K_FULL + 8 * STAGES,
        V_RAW = K_EMPTY + 8 * STAGES, /* an edge, for the cleaners */
        V_FULL = V_RAW + 8 * STAGES,
        V_EMPTY = V_FULL + 8 * STAGES,
        ITEM_FULL = V_EMPTY + 8 * STAGES,
        ITEM_EMPTY = ITEM_FULL + 8 * STAGES,
        BYTES = ITEM_EMPTY + 8 * STAGES + PH_ATOM /* to align the start */
    };
    static_assert((int)BYTES <= (int)PH_FAST_BYTES, "shared memory of an SM");
};

/* A ring of stages, walked by counting uses: which stage the n-th use has, and the parity
   of its round. */
DEVICE int stage_of(int n)
{
    return n % STAGES;
}
DEVICE uint32_t parity_of(int n)
{
    return n / STAGES % 2;
}

/* Once per warp. */
DEVICE void release(uint32_t barrier)
{
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* ---- items ---- */

template <class T> DEVICE item *item_slot(uint32_t base, int n)
{
    return (item *)__cvta_shared_to_generic(base + T::ITEMS_AT) + stage_of(n);
}

/* The n-th item of this CTA, once it is there. */
template <class T> DEVICE const item &begin_item(uint32_t base, int n)
{
    barrier_wait(base + T::ITEM_FULL + 8 * stage_of(n), parity_of(n));
    return *item_slot<T>(base, n);
}

template <class T> DEVICE void end_item(uint32_t base, int n)
{
    __syncwarp();
    release(base + T::ITEM_EMPTY + 8 * stage_of(n));
}

template <class T>
DEVICE void fill_item(const ph_cuda_call &c, const ph_cuda_schedule &plan, int index,
                      item &it)
{
    const ph_attn &a = c.attn;
    int head, tile, lo, hi, unused;
    it.batch = -1;
    if (index >= plan.items) return;
    ph_cuda_item(&plan, index, &head, &tile);
    const int batch = head / a.q_heads, row = tile * T::ROWS;
    const extent size = extent_of(c, batch);
    it.batch = batch, it.head = head % a.q_heads, it.row = row, it.size = size;
    tile_interval(a, size, row, T::ROWS, &lo, &hi);
    it.lo = lo, it.hi = hi;
    it.first = lo / T::KEYS;
    it.end = lo < hi ? (hi + T::KEYS - 1) / T::KEYS : lo / T::KEYS;
    interval(a, size, row + T::ROWS - 1, &lo, &unused);
    interval(a, size, row, &unused, &hi);
    it.all_lo = lo, it.all_hi = hi;
}

template <class T>
DEVICE void schedule_items(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                           uint32_t base)
{
    for (int i = 0;; i++) {
        const int index = (int)atomicAdd(plan.counter, 1u);
        barrier_wait(base + T::ITEM_EMPTY + 8 * stage_of(i), parity_of(i) ^ 1);
        fill_item<T>(c, plan, index, *item_slot<T>(base, i));
        barrier_arrive(base + T::ITEM_FULL + 8 * stage_of(i));
        if (index >= plan.items) break;
    }
}

/* Does some row of the tile not see some key of the block? */
template <class T> DEVICE int is_edge(int all_lo, int all_hi, int block)
{
    return block * T::KEYS < all_lo || block * T::KEYS + T::KEYS > all_hi;
}

/* ---- copies ---- */

template <class T>
DEVICE void load_panels(uint32_t to, const tensor_map *map, uint32_t barrier, int rows,
                        int row, int head, int batch)
{
    barrier_expect(barrier, (uint32_t)(rows * T::DIM * 2));
#pragma unroll
    for (int x = 0; x < T::DIM; x += 64)
        copy_box(to + x * rows * 2, map, barrier, x, row, head, batch);
}

struct maps {
    const tensor_map *q, *k, *v;
};

template <class T>
DEVICE void copy_items(const ph_cuda_schedule &plan, uint32_t base, const maps &map)
{
    uint32_t q_parity = 1;
    int n = 0; /* blocks so far */
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        const int batch = it.batch, head = it.head, first = it.first, end = it.end;
        if (batch < 0) break;
        for (int j = first; j < end; j++, n++) {
            const uint32_t stage = base + 8 * stage_of(n), parity = parity_of(n) ^ 1;
            const uint32_t block = base + stage_of(n) * T::BLOCK_BYTES;
            const int edge = is_edge<T>(it.all_lo, it.all_hi, j);
            barrier_wait(stage + T::K_EMPTY, parity);
            load_panels<T>(block + T::K_AT, map.k, stage + T::K_FULL, T::KEYS,
                           j * T::KEYS, head / plan.k_group, batch);
            if (j == first) {
                barrier_wait(base + T::Q_EMPTY, q_parity);
                load_panels<T>(base, map.q, base + T::Q_FULL, T::ROWS, it.row, head,
                               batch);
                q_parity ^= 1;
            }
            barrier_wait(stage + T::V_EMPTY, parity);
            load_panels<T>(block + T::V_AT, map.v, stage + (edge ? T::V_RAW : T::V_FULL),
                           T::KEYS, j * T::KEYS, head / plan.v_group, batch);
        }
        barrier_arrive(base + T::ITEM_EMPTY + 8 * stage_of(i));
    }
}

/* ---- cleaners ---- */

/* The exponent bits of two elements, all set where one is NaN or Inf, and the lowest. */
DEVICE uint32_t exponents(bf16_tag)
{
    return 0x7f807f80;
}

DEVICE uint32_t exponents(f16_tag)
{
    return 0x7c007c00;
}

DEVICE uint32_t lowest(bf16_tag)
{
    return 0x00800080;
}

DEVICE uint32_t lowest(f16_tag)
{
    return 0x04000400;
}

/* Bits 15 and 31 are set where an element is not finite: its exponent overflows. */
template <class TYPE> DEVICE uint32_t overflow(TYPE type, uint32_t pair)
{
    return (pair & exponents(type)) + lowest(type);
}

template <class TYPE> DEVICE uint32_t overflow(TYPE type, uint4 x)
{
    return overflow(type, x.x) | overflow(type, x.y) | overflow(type, x.z) |
           overflow(type, x.w);
}

/* A pair with 0 for elements that are not finite. */
template <class TYPE> DEVICE uint32_t cleaned(TYPE type, uint32_t pair)
{
    return pair & ~__vcmpeq2(pair & exponents(type), exponents(type));
}

enum { CLEAN_AT_ONCE = 4 }; /* pieces of 16 bytes a thread looks at together */

/* Puts 0 where a value is not finite, and notes its key if some row of the tile sees it;
   key: the first of the block. */
template <class T, class TYPE>
DEVICE void clean_block(TYPE type, const item &it, uint32_t v, uint32_t noted, int key)
{
    const int thread = threadIdx.x - FIRST_CLEANER;
    if (thread < T::KEYS / 32) store_shared(noted + 4 * thread, 0);
    meet<CLEANERS>(CLEANERS_MEET);
    for (int first = thread; first < T::BLOCK_BYTES / 16;
         first += CLEAN_AT_ONCE * CLEANERS) {
        uint32_t any = 0;
#pragma unroll
        for (int i = 0; i < CLEAN_AT_ONCE; i++)
            any |= overflow(type, load_piece(v + 16 * (first + i * CLEANERS)));
        if (!(any & 0x80008000)) continue;
        for (int i = 0; i < CLEAN_AT_ONCE; i++) {
            const int piece = first + i * CLEANERS;
            const int row = piece / (PH_LINE / 16) % T::KEYS;
            const uint4 x = load_piece(v + 16 * piece);
            if (!(overflow(type, x) & 0x80008000)) continue;
            store_piece(v + 16 * piece,
                        make_uint4(cleaned(type, x.x), cleaned(type, x.y),
                                   cleaned(type, x.z), cleaned(type, x.w)));
            if (key + row >= it.lo && key + row < it.hi)
                or_shared(noted + row / 32 * 4, 1u << row % 32);
        }
    }
    async_proxy_fence();
    meet<CLEANERS>(CLEANERS_MEET);
}

template <class T, class TYPE> DEVICE void clean_items(TYPE type, uint32_t base)
{
    uint32_t parity = 0; /* a bit per stage */
    int n = 0;           /* blocks so far */
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        const int end = it.end;
        if (it.batch < 0) break;
        for (int j = it.first; j < end; j++, n++) {
            if (!is_edge<T>(it.all_lo, it.all_hi, j)) continue;
            const int stage = stage_of(n);
            barrier_wait(base + T::V_RAW + 8 * stage, parity >> stage & 1);
            parity ^= 1u << stage;
            clean_block<T>(type, it, base + T::V_AT + stage * T::BLOCK_BYTES,
                           base + T::NOTED_AT + stage * (T::KEYS / 8), j * T::KEYS);
            if (threadIdx.x == FIRST_CLEANER)
                barrier_arrive(base + T::V_FULL + 8 * stage);
        }
        end_item<T>(base, i);
    }
}

#endif
