/*
 * fast_kernel.cuh - the fast forward kernels: roles of the warpgroups of a CTA.
 *
 * A CTA holds one producer warpgroup, which copies tiles into shared memory (TMA), and up
 * to three consumer warpgroups of 64 query rows each, which multiply them (wgmma).
 *
 * Same bits. Blocks and splits of keys lie at absolute positions, a hidden score becomes
 * -inf and a weight of 0 is neutral in a product, so a row's result depends on what it
 * sees alone: not on its tile, its batch, or how a prompt was cut.
 */
#ifndef PH_CUDA_FAST_KERNEL_CUH
#define PH_CUDA_FAST_KERNEL_CUH

#include "cuda/fast_consume.cuh"
#include "cuda/fast_load.cuh"
#include "cuda/fast_output.cuh"

/* Stores what an item gave. Splits of a tile are merged by the cleaners. */
template <class T, class TYPE>
DEVICE void finish_item(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                        const item &it, const place &at, const float (&o)[T::DIM / 2],
                        const running &now)
{
    if (!T::ONE_SPLIT || it.splits == 1) {
        store_rows<T>(type, c, plan, it, o, now, first_row(at));
        return;
    }
    store_split<T>(c.attn, plan, it, o, now, first_row(at));
    __syncwarp();
    release(at.base + T::STORED);
}

template <class T, class TYPE>
DEVICE void consume(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                    uint32_t base)
{
    const int group = uniform(threadIdx.x / PH_WARPGROUP) - 1;
    const place at = {base, group};
    int n = 0; /* blocks so far */
    if (group == T::CONSUMERS - 1) pass_turn<T>(group);
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        if (it.batch < 0) break;
        float o[T::DIM / 2] = {};
        running now;
        reset(now);
        if (it.first < it.end) consume_item<T>(type, c, plan, it, at, o, now, n);
        finish_item<T>(type, c, plan, it, at, o, now);
        end_item<T>(base, i);
    }
}

template <class T> DEVICE void init_barriers(uint32_t base)
{
    const int warps = 4 * T::CONSUMERS;
    barrier_init(base + T::STORED, warps);
    for (int i = 0; i < T::Q_STAGES; i++) {
        barrier_init(base + T::Q_FULL + SLOT * i, 1);
        barrier_init(base + T::Q_EMPTY + SLOT * i, warps);
    }
    for (int i = 0; i < T::K_STAGES; i++) {
        barrier_init(base + T::K_FULL + SLOT * i, 1);
        barrier_init(base + T::K_EMPTY + SLOT * i, warps);
    }
    for (int i = 0; i < T::V_STAGES; i++) {
        barrier_init(base + T::V_RAW + SLOT * i, 1);
        barrier_init(base + T::V_FULL + SLOT * i, 1);
        barrier_init(base + T::V_EMPTY + SLOT * i, warps);
    }
    for (int i = 0; i < ITEMS; i++) {
        barrier_init(base + T::ITEM_FULL + SLOT * i, 1);
        barrier_init(base + T::ITEM_EMPTY + SLOT * i, warps + CLEANERS / 32 + 1);
    }
    barrier_init_fence();
}

/* One consumer has registers enough without those of the producer. */
template <class T, class TYPE>
DEVICE void forward(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                    const maps &map)
{
    extern __shared__ char raw[];
    const uint32_t base = (shared_address(raw) + PH_ATOM - 1) & ~(PH_ATOM - 1u);
    if (threadIdx.x == 0) {
        prefetch_map(map.q), prefetch_map(map.k), prefetch_map(map.v);
        init_barriers<T>(base);
    }
    __syncthreads();
    wait_for_stream();
    if (threadIdx.x < PH_WARPGROUP) {
        if (T::CONSUMERS > 1) registers_down<T::PRODUCER_REGISTERS>();
        if (threadIdx.x >= FIRST_CLEANER)
            clean_items<T>(type, c, plan, base);
        else if (threadIdx.x == SCHEDULER)
            schedule_items<T>(c, plan, base);
        else if (threadIdx.x == COPIER)
            copy_items<T>(plan, base, map);
    } else {
        if (T::CONSUMERS > 1) registers_up<T::CONSUMER_REGISTERS>();
        consume<T>(type, c, plan, base);
    }
}

#define KERNEL(name, T, TYPE)                                                            \
    extern "C" __global__ void __launch_bounds__(T::THREADS, 1)                          \
        name(const __grid_constant__ ph_cuda_call c,                                     \
             const __grid_constant__ ph_cuda_schedule schedule,                          \
             const __grid_constant__ tensor_map q_map,                                   \
             const __grid_constant__ tensor_map k_map,                                   \
             const __grid_constant__ tensor_map v_map)                                   \
    {                                                                                    \
        forward<T>(TYPE(), c, schedule, maps{&q_map, &k_map, &v_map});                   \
    }

#endif
