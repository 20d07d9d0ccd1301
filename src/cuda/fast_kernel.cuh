/*
 * fast_kernel.cuh - the fast forward kernels: roles of the warpgroups of a CTA.
 *
 * A CTA holds one producer warpgroup, which copies tiles into shared memory (TMA), and up
 * to three consumer warpgroups of 64 query rows each, which multiply them (wgmma). Consumers
 * share items, or each has a stream of its own.
 *
 * Same bits. Blocks and splits of keys lie at absolute positions, a hidden score becomes
 * -inf and a weight of 0 is neutral in a product, so a row's result depends on what it
 * sees alone: not on its tile, its batch, or how a prompt was cut.
 */
#ifndef PH_CUDA_FAST_KERNEL_CUH
#define PH_CUDA_FAST_KERNEL_CUH

#include "cuda/fast_consume.cuh"
#include "cuda/fast_consume_few.cuh"
#include "cuda/fast_load.cuh"
#include "cuda/fast_output.cuh"

/* Where consumers that share items meet; each stream has a barrier of its own. */
template <class T> DEVICE int meeting_point()
{
    return T::STREAMS ? uniform(thread_now() / PH_WARPGROUP) + CONSUMERS_MEET - 1
                      : CONSUMERS_MEET;
}

/* Stores the rows of a tile through shared memory, so that the consumer does not wait. What
   will be computed again is not stored, since copies have no order. */
template <class T, class TYPE>
DEVICE void store_tile(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                       const maps &map, const item &it, const place &at,
                       const float (&o)[T::DIM / 2], const float (&factor)[2], int n,
                       int spoilt)
{
    const int row = uniform(16 * (consumer_thread<T>() / 32));
    const int blocks = it.first < it.end;
    if (T::HELD && blocks) meet<T::CONSUMERS * PH_WARPGROUP>(meeting_point<T>());
    if (!has_copied_rows(c, plan, it, row) || (T::HELD && !blocks)) {
        store_rows<T>(type, c, plan, it, o, factor, first_row(at));
    } else if (!spoilt) {
        const uint32_t staged = staged_at<T>(at, n);
        wait_for_output<0>();
#pragma unroll
        for (int x = 0; x < T::DIM; x += T::AT_ONCE) {
            const uint32_t to = staged + x / T::AT_ONCE % 2 * STAGED_PANEL;
            if (x >= 2 * T::AT_ONCE) wait_for_output<1>();
            stage_rows<T>(type, o, x, factor, to);
            copy_rows<T>(c, it, map.out, row, x, to);
        }
    }
}

/* Stores what an item gave. The cleaners merge splits of a tile. */
template <class T, class TYPE>
DEVICE void finish_item(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                        const maps &map, const item &it, const place &at,
                        const float (&o)[T::DIM / 2], const running &now,
                        float (&factor)[2], int n)
{
    if (T::PARTS && it.row + 64 * at.group < 0) return; /* see rows_before */
    const int spoilt = !it.clean && is_nonfinite(o);
    if (spoilt && thread_now() % 32 == 0) or_shared(shared_address(&it.spoilt), 1);
    const int whole = !has_partial_sums<T>(it);
    if (!T::EARLY && whole) finish_rows<T>(c, plan, it, now, first_row(at), factor);
    if constexpr (T::STAGED) {
        store_tile<T>(type, c, plan, map, it, at, o, factor, n, spoilt);
        return;
    }
    if (whole) {
        store_rows<T>(type, c, plan, it, o, factor, first_row(at));
        return;
    }
    store_split<T>(
        place_of_split<T>(c.attn, plan, it, first_row(at), threadIdx.x % 4 * 2), o, now,
        threadIdx.x % 4 == 0);
    __syncwarp();
    release(at.base + T::STORED);
}

template <class T, class TYPE>
DEVICE void consume_items(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                          const maps &map, uint32_t base, const place &at)
{
    int n = 0; /* blocks so far */
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        if (it.batch < 0) break;
        float o[T::DIM / 2] = {};
        running now;
        reset(now);
        float factor[2] = {};
        if (it.first < it.end)
            consume_item<T>(type, c, plan, it, at, o, now, factor, n);
        else if constexpr (T::EARLY)
            finish_rows<T>(c, plan, it, now, first_row(at), factor);
        finish_item<T>(type, c, plan, map, it, at, o, now, factor, n);
        if (T::HELD) asm volatile("" : "+r"(i)); /* not kept: registers are short */
        end_item<T>(base, i);
    }
    if (T::STAGED) wait_for_output<0>();
}

/* Consumers of few rows that have keys. */
template <class T, class TYPE>
DEVICE void consume_keys(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         uint32_t base, const few &at)
{
    int n = 0; /* blocks so far */
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        if (it.batch < 0) break;
        if (it.first < it.end) weigh_keys<T>(type, c, plan, it, at, n);
        end_item<T>(base, i);
    }
    /* The other CTA still arrives here. */
    for (int i = 0; i < MESSAGES; i++) wait_empty<MESSAGES>(base + T::RECEIVED, n + i);
}

/* Those that have values, and store. */
template <class T, class TYPE>
DEVICE void consume_values(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                           uint32_t base, const few &at)
{
    const int column = first_column<T>(at) + at.lane % 4 * 2;
    int n = 0; /* blocks so far */
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        if (it.batch < 0) break;
        if (column < T::DIM) {
            const split_place to =
                place_of_split<T>(c.attn, plan, it, first_row(at), column);
            float o[T::WARP_COLUMNS / 2] = {};
            running now;
            reset(now);
            if (it.first < it.end) weigh_values<T>(type, c, plan, it, at, o, now, n);
            wait_for_stream(); /* where no copy did: the rows see no key */
            store_split<T>(to, o, now, column == 0);
            __syncwarp();
            release(base + T::STORED);
        }
        end_item<T>(base, i);
    }
}

template <class T, class TYPE>
DEVICE void consume(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                    const maps &map, uint32_t base)
{
    if constexpr (T::FEW) {
        const int warp = uniform(threadIdx.x / 32), group = warp / 4 - 1;
        const few at = {base, T::PAIR ? group : 0, warp % 4, (int)threadIdx.x % 32};
        if (T::PAIR ? has_keys<T>() : group == 0)
            consume_keys<T>(type, c, plan, base, at);
        else
            consume_values<T>(type, c, plan, base, at);
    } else if constexpr (T::STREAMS) {
        const uint32_t own = region_of<T>(base, uniform(threadIdx.x / PH_WARPGROUP) - 1);
        consume_items<T>(type, c, plan, map, own, place{own, 0});
    } else {
        const int group = uniform(threadIdx.x / PH_WARPGROUP) - 1;
        if (group == T::CONSUMERS - 1) pass_turn<T>(group);
        consume_items<T>(type, c, plan, map, base, place{base, group});
    }
}

template <class T> DEVICE void init_barriers(uint32_t base)
{
    const int all = 4 * T::CONSUMERS;               /* warps of consumers, */
    const int warps = T::FEW ? 4 * T::SHARES : all; /* those that share keys, */
    const int value_warps = T::FEW ? (int)T::VALUE_WARPS : all; /* or values */
    barrier_init(base + T::STORED, value_warps);
    for (int i = 0; i < T::Q_STAGES; i++) {
        barrier_init(base + T::Q_FULL + SLOT * i, 1);
        barrier_init(base + T::Q_EMPTY + SLOT * i, warps);
    }
    for (int i = 0; i < T::K_STAGES; i++) {
        barrier_init(base + T::K_FULL + SLOT * i, 1);
        barrier_init(base + T::K_EMPTY + SLOT * i, T::FEW ? 4 : warps);
    }
    for (int i = 0; i < T::V_STAGES; i++) {
        barrier_init(base + T::V_RAW + SLOT * i, 1);
        barrier_init(base + T::V_FULL + SLOT * i, T::CLEANING);
        barrier_init(base + T::V_EMPTY + SLOT * i, value_warps);
    }
    for (int i = 0; i < ITEMS; i++) {
        barrier_init(base + T::ITEM_FULL + SLOT * i, 1);
        barrier_init(base + T::ITEM_EMPTY + SLOT * i,
                     T::STREAMS ? all : (all + CLEANERS / 32 + 1) * (T::PAIR ? 2 : 1));
    }
    for (int i = 0; T::FEW && i < MESSAGES; i++) {
        barrier_init(base + T::SENT + SLOT * i, 1);
        barrier_init(base + T::RECEIVED + SLOT * i, value_warps);
    }
    for (int i = 0; i < 2 * T::PAIR; i++)
        barrier_init(base + T::TURN + SLOT * i, PH_WARPGROUP);
    for (int i = 0; i < ITEMS; i++) item_slot<T>(base, i)->spoilt = 0;
    barrier_init_fence();
}

/* One consumer has registers enough without those of the producer. */
template <class T, class TYPE>
DEVICE void forward(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                    const maps &map)
{
    const uint32_t base = (dynamic_shared() + PH_ATOM - 1) & ~(PH_ATOM - 1u);
    if (threadIdx.x == 0) {
        prefetch_map(map.q), prefetch_map(map.k), prefetch_map(map.v);
        if (T::STAGED && plan.out_map) prefetch_map(map.out);
        for (int i = 0; i < (T::STREAMS ? T::STREAMS : 1); i++)
            init_barriers<T>(region_of<T>(base, i));
    }
    if (T::FEW && threadIdx.x == COPIER) prefetch_item<T>(c, plan, map);
    if (T::PAIR)
        cluster_meet();
    else
        __syncthreads();
    if (!T::FEW) wait_for_stream();
    if (threadIdx.x < PH_WARPGROUP) {
        if (T::PRODUCER_REGISTERS) registers_down<T::PRODUCER_REGISTERS>();
        if (T::STREAMS)
            produce_items<T>(type, c, plan, base, map);
        else if (threadIdx.x >= FIRST_CLEANER)
            clean_items<T>(type, c, plan, base);
        else if (threadIdx.x == SCHEDULER)
            schedule_items<T>(c, plan, base, map);
        else if (threadIdx.x == COPIER)
            copy_items<T>(c, plan, base, map);
    } else {
        if (T::PRODUCER_REGISTERS) registers_up<T::CONSUMER_REGISTERS>();
        consume<T>(type, c, plan, map, base);
    }
}

#ifndef CLUSTER
#define CLUSTER /* of CTAs: none */
#endif

/* The kernels of a file, by head dim and type. */
#define KERNELS(name, scores)                                                            \
    KERNEL(name##_64_f16, tiles_64<scores>, f16_tag)                                     \
    KERNEL(name##_64_bf16, tiles_64<scores>, bf16_tag)                                   \
    KERNELS_WIDE(name, scores)

#define KERNELS_WIDE(name, scores)                                                       \
    KERNEL(name##_128_f16, tiles_128<scores>, f16_tag)                                   \
    KERNEL(name##_128_bf16, tiles_128<scores>, bf16_tag)                                 \
    KERNEL(name##_256_f16, tiles_256<scores>, f16_tag)                                   \
    KERNEL(name##_256_bf16, tiles_256<scores>, bf16_tag)

#define KERNEL(name, T, TYPE)                                                            \
    extern "C" __global__ void CLUSTER __launch_bounds__(T::THREADS, 1)                  \
        name(const __grid_constant__ ph_cuda_call c,                                     \
             const __grid_constant__ ph_cuda_schedule schedule,                          \
             const __grid_constant__ tensor_map q_map,                                   \
             const __grid_constant__ tensor_map k_map,                                   \
             const __grid_constant__ tensor_map v_map,                                   \
             const __grid_constant__ tensor_map out_map)                                 \
    {                                                                                    \
        forward<T>(TYPE(), c, schedule, maps{&q_map, &k_map, &v_map, &out_map});         \
    }

#endif
