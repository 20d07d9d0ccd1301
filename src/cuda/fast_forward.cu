/*
 * fast_forward.cu - the forward pass of 16-bit tensors on tensor cores.
 *
 * A CTA holds one producer warpgroup, which copies tiles into shared memory (TMA), and
 * two or three consumer warpgroups of 64 query rows each, which multiply them (wgmma).
 * For one block of keys j a consumer does
 *
 *     S' = Q K(j+1)^T              in flight together with
 *     O += P(j) V(j)
 *     mask, row maxima, P' = exp2(S' scale2 - max), row sums
 *     O *= rescale
 *
 * so tensor cores and the exponential unit work at the same time; consumers take turns in
 * issuing products, so that one's softmax runs under the other's products.
 *
 * Same bits. Blocks and splits of keys lie at absolute positions, a hidden score becomes
 * -inf and a weight of 0 is neutral in a product, so a row's result depends on what it
 * sees alone: not on its tile, its batch, or how a prompt was cut.
 */
#include "cuda/fast_load.cuh"
#include "cuda/fast_softmax.cuh"

#define LN2 0.6931471805599453

/* ---- products ---- */

template <class T, class TYPE>
DEVICE void begin_scores(TYPE type, float (&s)[T::KEYS / 2], uint32_t q, uint32_t k)
{
    pin(s);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < T::DIM / PH_DEPTH; x++)
        multiply(type, s, ph_wgmma_descriptor(q, ph_k_major_step(x, T::ROWS)),
                 ph_wgmma_descriptor(k, ph_k_major_step(x, T::KEYS)), x == 0);
    wgmma_commit();
}

template <class T, class TYPE>
DEVICE void begin_values(TYPE type, float (&o)[T::DIM / 2], const uint32_t *p, uint32_t v,
                         int fresh)
{
    pin(o);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < T::KEYS / PH_DEPTH; x++)
        multiply(type, o, p + 4 * x, ph_wgmma_descriptor(v, ph_mn_major_step(x)),
                 x == 0 && fresh);
    wgmma_commit();
}

/* Lets the other consumers issue products before this one does again. */
DEVICE void wait_for_turn(int group)
{
    meet<2 * PH_WARPGROUP>(FIRST_TURN + group);
}

template <class T> DEVICE void pass_turn(int group)
{
    arrive<2 * PH_WARPGROUP>(FIRST_TURN + (group + 1) % T::CONSUMERS);
}

/* ---- a thread of a consumer ---- */

struct place {
    uint32_t base; /* of shared memory */
    int group;     /* 0 is the first consumer */
    int row;       /* of the tile: the thread's first; the other is 8 further on */
};

/* Where the thread keeps weighted values of earlier splits. */
template <class T> DEVICE float4 *whole_slots(const place &at)
{
    return (float4 *)__cvta_shared_to_generic(at.base + T::WHOLE_AT) +
           at.group * (64 * T::DIM / 4) + threadIdx.x % PH_WARPGROUP;
}

/* Maxima and sums of the whole: one slot for the two rows of a quad. */
template <class T> DEVICE float4 *stats_slot(const place &at)
{
    return (float4 *)__cvta_shared_to_generic(at.base + T::STATS_AT) +
           (threadIdx.x / 4 - PH_WARPGROUP / 4);
}

/* Keys that the thread's two rows see. */
DEVICE void row_intervals(const ph_attn &a, const item &it, int row, int (&lo)[2],
                          int (&hi)[2])
{
#pragma unroll
    for (int i = 0; i < 2; i++)
        interval(a, it.size, it.row + row + 8 * i, &lo[i], &hi[i]);
}

template <class T>
DEVICE void hide_edge(const ph_attn &a, const item &it, float (&s)[T::KEYS / 2], int row,
                      int block)
{
    int lo[2], hi[2];
    row_intervals(a, it, row, lo, hi);
    hide(s, lo, hi, block * T::KEYS + threadIdx.x % 4 * 2);
}

/* ---- values that are not finite ---- */

DEVICE float widened(bf16_tag, uint32_t bits)
{
    return __uint_as_float(bits << 16);
}

DEVICE float widened(f16_tag, uint32_t bits)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"((uint16_t)bits));
    return y;
}

/* The weight of key `at` of a block in row i of the thread's two: some lane of its quad
   holds it. */
template <class TYPE, int N>
DEVICE float weight_of(TYPE type, const uint32_t (&p)[N], int at, int i)
{
    uint32_t pair = 0;
#pragma unroll
    for (int y = 0; y < N; y++) pair |= p[y] & (0u - (y == at / 8 * 2 + i));
    pair = __shfl_sync(~0u, pair, (threadIdx.x % 32 & ~3) + at % 8 / 2);
    return widened(type, at % 2 ? pair >> 16 : pair & 0xffff);
}

/* Not to be moved: all loads of a row at once would spill registers. */
DEVICE uint32_t load_element(const uint16_t *at)
{
    uint16_t bits;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(at) : "memory");
    return bits;
}

/* Adds what the cleaners took out of one key's values to row i, which sees it. */
template <class TYPE, int N>
DEVICE void add_key(TYPE type, const uint16_t *v, int columns, int i, float weight,
                    float (&o)[N])
{
#pragma unroll
    for (int x = 0; x < N; x++) {
        if (x / 2 % 2 != i || x / 4 * 8 + x % 2 >= columns) continue;
        const float value = widened(type, load_element(v + x / 4 * 8 + x % 2));
        if (!isfinite(value)) o[x] = __fmaf_rn(weight, value, o[x]);
    }
}

/* The same for all keys noted of an edge: hardly ever one. */
template <class T, class TYPE>
DEVICE void add_noted(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                      const item &it, const place &at, int stage, int block,
                      const uint32_t (&p)[T::KEYS / 4], float (&o)[T::DIM / 2])
{
    const ph_attn &a = c.attn;
    const uint32_t noted = at.base + T::NOTED_AT + stage * (T::KEYS / 8);
    const uint4 any = load_piece(noted);
    if (!(any.x | any.y | any.z | any.w)) return;
    for (int x = 0; x < T::KEYS; x++) {
        if (!(uniform(load_shared(noted + x / 32 * 4)) >> x % 32 & 1)) continue;
        const int key = block * T::KEYS + x, column = threadIdx.x % 4 * 2;
        const uint16_t *v = (const uint16_t *)c.args.v + it.batch * a.v.batch +
                            it.head / plan.v_group * a.v.head + key * a.v.time + column;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float weight = weight_of(type, p, x, i);
            if (is_visible(a, it.size, it.row + at.row + 8 * i, key))
                add_key(type, v, a.v_dim - column, i, weight, o);
        }
    }
}

/* ---- an item ---- */

/* All blocks of one item: products of scores run one block ahead of those of values. */
template <class T, class TYPE>
DEVICE void consume_item(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         const item &it, const place &at, float (&o)[T::DIM / 2],
                         running &now, int &n)
{
    const int all_lo = it.all_lo, all_hi = it.all_hi, first = it.first, end = it.end;
    const float scale2 = c.scale2;
    const uint32_t q = ph_wgmma_operand(at.base + at.group * 64 * PH_LINE, 16);
    const uint32_t k = ph_wgmma_operand(at.base + T::K_AT, 16);
    const uint32_t v = ph_wgmma_operand(at.base + T::V_AT, T::KEYS * PH_LINE);
    const uint32_t step = T::BLOCK_BYTES >> 4; /* from stage to stage */
    float s[T::KEYS / 2], rescale[2];
    uint32_t p[T::KEYS / 4];
    factors f;
    int fresh = 1, splits = 0; /* fresh: o begins with the next product of values */
    barrier_wait(at.base + T::K_FULL + 8 * stage_of(n), parity_of(n));
    wait_for_turn(at.group);
    begin_scores<T>(type, s, q, k + stage_of(n) * step);
    pass_turn<T>(at.group);
    wgmma_wait<0>();
    pin(s);
    release(at.base + T::K_EMPTY + 8 * stage_of(n));
    if (is_edge<T>(all_lo, all_hi, first)) hide_edge<T>(c.attn, it, s, at.row, first);
    softmax(s, now, scale2, rescale);
    pack(type, s, p);
    for (int j = first + 1; j < end; j++) {
        barrier_wait(at.base + T::K_FULL + 8 * stage_of(n + 1), parity_of(n + 1));
        wait_for_turn(at.group);
        begin_scores<T>(type, s, q, k + stage_of(n + 1) * step);
        if (!fresh)
            scale_rows(o, rescale); /* under the product of scores, as is this: */
        else if (splits)
            end_values(whole_slots<T>(at), o, f, splits == 1, 0);
        barrier_wait(at.base + T::V_FULL + 8 * stage_of(n), parity_of(n));
        begin_values<T>(type, o, p, v + stage_of(n) * step, fresh);
        pass_turn<T>(at.group);
        wgmma_wait<1>();
        pin(s);
        release(at.base + T::K_EMPTY + 8 * stage_of(n + 1));
        if (is_edge<T>(all_lo, all_hi, j)) hide_edge<T>(c.attn, it, s, at.row, j);
        fresh = j * T::KEYS % T::SPLIT == 0;
        if (fresh) {
            end_sums(stats_slot<T>(at), now, scale2, splits == 0, f);
            splits++;
            reset(now);
        }
        softmax(s, now, scale2, rescale);
        wgmma_wait<0>();
        pin(o);
        if (is_edge<T>(all_lo, all_hi, j - 1))
            add_noted<T>(type, c, plan, it, at, stage_of(n), j - 1, p, o);
        __syncwarp();
        release(at.base + T::V_EMPTY + 8 * stage_of(n));
        pack(type, s, p);
        n++;
    }
    release(at.base + T::Q_EMPTY);
    if (!fresh)
        scale_rows(o, rescale);
    else if (splits)
        end_values(whole_slots<T>(at), o, f, splits == 1, 0);
    barrier_wait(at.base + T::V_FULL + 8 * stage_of(n), parity_of(n));
    begin_values<T>(type, o, p, v + stage_of(n) * step, fresh);
    end_sums(stats_slot<T>(at), now, scale2, splits == 0, f);
    wgmma_wait<0>();
    pin(o);
    if (is_edge<T>(all_lo, all_hi, end - 1))
        add_noted<T>(type, c, plan, it, at, stage_of(n), end - 1, p, o);
    __syncwarp();
    release(at.base + T::V_EMPTY + 8 * stage_of(n));
    n++;
    end_values(whole_slots<T>(at), o, f, splits == 0, 1);
}

/* ---- outputs ---- */

/* A quad exchanges its pairs of columns, so that each lane has 16 bytes of a row. */
DEVICE void exchange_quad(uint32_t (&u)[4], int lane)
{
    int odd = lane & 1, upper = lane & 2;
    uint32_t x = __shfl_xor_sync(~0u, odd ? u[0] : u[1], 1);
    uint32_t y = __shfl_xor_sync(~0u, odd ? u[2] : u[3], 1);
    if (odd)
        u[0] = x, u[2] = y;
    else
        u[1] = x, u[3] = y;
    x = __shfl_xor_sync(~0u, upper ? u[0] : u[2], 2);
    y = __shfl_xor_sync(~0u, upper ? u[1] : u[3], 2);
    if (upper)
        u[0] = x, u[1] = y;
    else
        u[2] = x, u[3] = y;
}

DEVICE void store_columns(uint16_t *out, const uint32_t (&u)[4], int columns)
{
    if (columns >= 8 && (uintptr_t)out % 16 == 0) {
        *(uint4 *)out = make_uint4(u[0], u[1], u[2], u[3]);
        return;
    }
#pragma unroll
    for (int x = 0; x < 8; x++)
        if (x < columns) out[x] = (uint16_t)(u[x / 2] >> 16 * (x % 2));
}

DEVICE void store_lse(const ph_cuda_call &c, const item &it, int token, int computed,
                      float max, float sum)
{
    const ph_attn &a = c.attn;
    if (!c.args.lse || threadIdx.x % 4 != 0 || token >= a.q_len) return;
    const double lse = (double)reference(max, c.scale2) * LN2 + (double)logf(sum);
    c.args.lse[((int64_t)it.batch * a.q_heads + it.head) * a.q_len + token] =
        computed && sum != 0 ? (float)lse : -INFINITY;
}

/* Divides and stores the thread's rows; fma makes -0 to +0. */
template <class T, class TYPE>
DEVICE void store_rows(TYPE type, const ph_cuda_call &c, const item &it,
                       const float (&o)[T::DIM / 2], const running &r, int row)
{
    const ph_attn &a = c.attn;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int token = it.row + row + 8 * i, computed = token < it.size.q_len;
        const float sum = r.sum[i], factor = sum == 0 || !computed ? 0 : __frcp_rn(sum);
        const int64_t at =
            it.batch * a.out.batch + it.head * a.out.head + token * a.out.time;
        store_lse(c, it, token, computed, r.max[i], sum);
#pragma unroll
        for (int x = 0; x < T::DIM / 8; x += 4) {
            uint32_t u[4];
#pragma unroll
            for (int g = 0; g < 4; g++) {
                float low = o[4 * (x + g) + 2 * i], high = o[4 * (x + g) + 2 * i + 1];
                u[g] = factor == 0 ? 0
                                   : packed(type, __fmaf_rn(low, factor, 0.0f),
                                            __fmaf_rn(high, factor, 0.0f));
            }
            exchange_quad(u, lane);
            const int column = 8 * (x + lane % 4);
            if (token < a.q_len && column < a.v_dim)
                store_columns((uint16_t *)c.args.out + at + column, u, a.v_dim - column);
        }
    }
}

/* ---- the kernel ---- */

template <class T, class TYPE>
DEVICE void consume(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                    uint32_t base)
{
    const int group = uniform(threadIdx.x / PH_WARPGROUP) - 1;
    const int row = group * 64 + ph_fragment_row(threadIdx.x % PH_WARPGROUP, 0);
    const place at = {base, group, row};
    uint32_t q_parity = 0;
    int n = 0; /* blocks so far */
    float o[T::DIM / 2];
    running now;
    if (group == T::CONSUMERS - 1) pass_turn<T>(group);
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        if (it.batch < 0) break;
        reset(now);
        if (it.first < it.end) {
            barrier_wait(base + T::Q_FULL, q_parity);
            q_parity ^= 1;
            consume_item<T>(type, c, plan, it, at, o, now, n);
        }
        store_rows<T>(type, c, it, o, now, row);
        end_item<T>(base, i);
    }
}

template <class T> DEVICE void init_barriers(uint32_t base)
{
    const int warps = 4 * T::CONSUMERS;
    barrier_init(base + T::Q_FULL, 1);
    barrier_init(base + T::Q_EMPTY, warps);
    for (int i = 0; i < 8 * STAGES; i += 8) {
        barrier_init(base + T::K_FULL + i, 1);
        barrier_init(base + T::V_RAW + i, 1);
        barrier_init(base + T::V_FULL + i, 1);
        barrier_init(base + T::ITEM_FULL + i, 1);
        barrier_init(base + T::K_EMPTY + i, warps);
        barrier_init(base + T::V_EMPTY + i, warps);
        barrier_init(base + T::ITEM_EMPTY + i, warps + CLEANERS / 32 + 1);
    }
    barrier_init_fence();
}

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
    if (threadIdx.x < PH_WARPGROUP) {
        registers_down<T::PRODUCER_REGISTERS>();
        if (threadIdx.x >= FIRST_CLEANER)
            clean_items<T>(type, base);
        else if (threadIdx.x == SCHEDULER)
            schedule_items<T>(c, plan, base);
        else if (threadIdx.x == COPIER)
            copy_items<T>(plan, base, map);
    } else {
        registers_up<T::CONSUMER_REGISTERS>();
        consume<T>(type, c, plan, base);
    }
}

typedef tiles<64, PH_FAST_ROWS_64 / 64, 32, 160> tiles_64;
typedef tiles<128, PH_FAST_ROWS_128 / 64, 40, 232> tiles_128;

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

KERNEL(ph_fast_forward_64_f16, tiles_64, f16_tag)
KERNEL(ph_fast_forward_64_bf16, tiles_64, bf16_tag)
KERNEL(ph_fast_forward_128_f16, tiles_128, f16_tag)
KERNEL(ph_fast_forward_128_bf16, tiles_128, bf16_tag)
