/*
 * fast_consume.cuh - what a consumer warpgroup of the fast kernels does with an item:
 * blocks of keys through tensor cores and the online softmax.
 *
 * For one block of keys j a consumer does
 *
 *     S' = Q K(j+1)^T              in flight together with
 *     O += P(j) V(j)
 *     mask, row maxima, P' = exp2(S' scale2 - max), row sums
 *     O *= rescale
 *
 * so tensor cores and the exponential unit work at the same time; consumers take turns in
 * issuing products, so that one's softmax runs under the other's products.
 */
#ifndef PH_CUDA_FAST_CONSUME_CUH
#define PH_CUDA_FAST_CONSUME_CUH

#include "base/rng.h"
#include "cuda/fast_output.cuh"
#include "cuda/fast_softmax.cuh"
#include "cuda/fast_tiles.cuh"

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
template <class T> DEVICE void wait_for_turn(int group)
{
    if (T::TURNS) meet<2 * PH_WARPGROUP>(FIRST_TURN + group);
}

template <class T> DEVICE void pass_turn(int group)
{
    if (T::TURNS) arrive<2 * PH_WARPGROUP>(FIRST_TURN + (group + 1) % T::CONSUMERS);
}

/* ---- a thread of a consumer ---- */

struct place {
    uint32_t base; /* of shared memory */
    int group;     /* 0 is the first consumer */
};

/* The thread, counted from the first one of the consumers that share its items. */
template <class T> DEVICE int consumer_thread()
{
    return T::STREAMS ? thread_now() % PH_WARPGROUP : thread_now() - PH_WARPGROUP;
}

/* Row of the tile: the thread's first; the other is 8 further on. */
DEVICE int first_row(const place &at)
{
    return at.group * 64 + ph_fragment_row(thread_now() % PH_WARPGROUP, 0);
}

/* Where the thread keeps weighted values of earlier splits: in shared memory, or where
   they do not fit it in the workspace. */
template <class T>
DEVICE float4 *whole_slots(const ph_cuda_schedule &plan, const place &at)
{
    const int thread = consumer_thread<T>();
    const int slot = thread / 32 * (16 * T::DIM / 4) + thread % 32;
    if (T::WHOLE_SHARED)
        return (float4 *)shared_pointer(at.base + T::WHOLE_AT) + slot;
    return (float4 *)plan.whole + blockIdx.x * (T::ROWS * T::DIM / 4) + slot;
}

/* Where a warp puts the 16 rows it stores, one panel of 64 columns after the other: in
   its own slots of the whole, once what was stored before has been read from there. With
   256 columns in the stage of V that held the item's last block, two panels at a time; n:
   blocks so far. */
template <class T> DEVICE uint32_t staged_at(const place &at, int n)
{
    const int warp = consumer_thread<T>() / 32;
    if (T::HELD)
        return at.base + T::V_AT + stage_of<T::V_STAGES>(n - 1) * T::BLOCK_BYTES +
               warp * (2 * STAGED_PANEL);
    return at.base + T::WHOLE_AT + warp * (16 * T::DIM * 4);
}

/* Waits until the copy engine has read what this warp staged before, but for the last
   PENDING copies. */
template <int PENDING> DEVICE void wait_for_output()
{
    if (thread_now() % 32 == 0) wait_for_boxes<PENDING>();
    __syncwarp();
}

/* Maxima and sums of the whole: one slot for the two rows of a quad. */
template <class T> DEVICE float4 *stats_slot(const place &at)
{
    return (float4 *)shared_pointer(at.base + T::STATS_AT) +
           consumer_thread<T>() / 4;
}

/* Key of the thread's first column. */
template <class T> DEVICE int first_key(int block)
{
    return block * T::KEYS + (int)thread_now() % 4 * 2;
}

/* Hides keys of a block that the thread's two rows do not see; row, key: its first. Returns
   1 if no row of the warp sees the second half of the block; with less than 256 columns
   looking for that costs more than it saves. */
template <class T, int N>
DEVICE int hide_edge(const ph_attn &a, const ph_cuda_schedule &plan, const item &it,
                     float (&s)[N], int row, int key)
{
    int lo[2], hi[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int on = query_of<T>(a, plan, it, row + 8 * i).token - it.row;
        lo[i] = min(it.row_lo + on, it.size.kv_len) - key;
        hi[i] = min(it.row_hi + on, it.size.kv_len) - key;
    }
    hide(s, lo, hi, -INFINITY);
    return T::HALVES && __all_sync(~0u, max(hi[0], hi[1]) <= T::KEYS / 2);
}

/* The largest scores of the thread's rows in a block; edge: some row of the tile or part
   does not see some key of it. Returns 1 if no row of the warp sees the second half. The
   two ways differ, or the assembler would make them one, with the wait for the last
   product of values before it: so that product ends meanwhile. */
template <class T, int N>
DEVICE int find_max(const ph_attn &a, const ph_cuda_schedule &plan, const item &it,
                    const place &at, int block, int edge, float (&s)[N],
                    float (&row_max)[2])
{
    int half = 0;
    if (edge) {
        half = hide_edge<T>(a, plan, it, s, first_row(at), first_key<T>(block));
        max_of_rows<N, 8>(s, row_max);
    } else {
        max_of_rows<N, 4>(s, row_max);
    }
    return half;
}

/* Scores of a block become weights. */
template <class T, int N>
DEVICE void weigh_block(float (&s)[N], const float (&row_max)[2], int half, running &now,
                        float scale2, float (&rescale)[2])
{
    if (T::HALVES && half)
        weigh<2>(s, row_max, now, scale2, rescale);
    else
        weigh<4>(s, row_max, now, scale2, rescale);
}

/* ---- what else makes a score ---- */

/* Has the call, or has the kernel, scores of this kind? */
template <class T> DEVICE int has_scores(const ph_cuda_call &c, ph_cuda_scores kind)
{
    if ((int)T::SCORES != PH_SCORES_ANY) return (int)T::SCORES == kind;
    return kind == PH_SCORES_SOFTCAP ? c.attn.softcap > 0
                                     : kind == PH_SCORES_ALIBI && c.args.alibi;
}

/* Soft-cap or ALiBi. With a soft-cap the unit of scores is the cap from here on, and
   tanh(x) is 1 - 2 / (1 + e^2x); with ALiBi it stays that of q k^T. */
template <class T, int N>
DEVICE void modify_scores(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                          const item &it, float (&s)[N], int row, int key)
{
    if (has_scores<T>(c, PH_SCORES_SOFTCAP)) {
#pragma unroll
        for (int x = 0; x < N; x++) {
            const float u =
                reciprocal(__fadd_rn(exp2_of(__fmul_rn(s[x], c.cap_rate)), 1));
            s[x] = __fmaf_rn(-2, u, 1);
            pin(s[x]); /* not all at once: registers are short */
        }
    }
    if (has_scores<T>(c, PH_SCORES_ALIBI)) {
        float slope[2], distance[2]; /* of the two rows; from the thread's first column */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const query q = query_of<T>(c.attn, plan, it, row + 8 * i);
            const int head = min(q.head, c.attn.q_heads - 1);
            slope[i] = __fdiv_rn(__fmul_rn(-c.args.alibi[head], LOG2E), c.scale2);
            distance[i] = (float)(key - (q.token + it.size.offset));
        }
#pragma unroll
        for (int x = 0; x < N; x++)
            s[x] = __fmaf_rn(
                slope[x / 2 % 2],
                fabsf(__fadd_rn(distance[x / 2 % 2], (float)(x / 4 * 8 + x % 2))), s[x]);
    }
}

/* Dropped weights become 0 behind the sums; what the others grow by is in the factor of
   the row. Packed ones, which take half the registers. */
template <class T>
DEVICE void drop_weights(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         const item &it, uint32_t (&p)[T::KEYS / 4], const place &at,
                         int block)
{
    if constexpr (T::SCORES == PH_SCORES_DROPOUT) {
        const uint32_t key = first_key<T>(block);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const query q = query_of<T>(c.attn, plan, it, first_row(at) + 8 * i);
            const uint64_t seed = ph_rng_key(c.args.seed, it.batch, q.head, q.token);
#pragma unroll
            for (int x = i; x < T::KEYS / 4; x += 2) {
                if (ph_rng_at(seed, key + x / 2 * 8) < c.drop_limit) p[x] &= 0xffff0000;
                if (ph_rng_at(seed, key + x / 2 * 8 + 1) < c.drop_limit) p[x] &= 0xffff;
            }
        }
    }
}

/* ---- values that are not finite ---- */

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

/* Where the values of a key begin, from item.v on. */
DEVICE int64_t value_of(const ph_attn &a, const item &it, int key)
{
    if (!a.page_len) return key * a.v.time;
    return __ldg(it.pages + key / a.page_len) * a.v.batch + key % a.page_len * a.v.time;
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

/* What the cleaners noted of an edge: a bit for each of 32 keys from `first` on. Lane 0
   reads for its warp, because it is also the one that releases the stage. */
DEVICE uint32_t noted_keys(uint32_t noted, int first)
{
    uint32_t bits = 0;
    if (thread_now() % 32 == 0) bits = (uint32_t)load_shared(noted + first / 8);
    return __shfl_sync(~0u, bits, 0);
}

DEVICE int has_noted_keys(uint32_t noted)
{
    uint32_t bits = 0;
    if (thread_now() % 32 == 0) {
        const uint4 all = load_piece(noted);
        bits = all.x | all.y | all.z | all.w;
    }
    return __shfl_sync(~0u, bits, 0) != 0;
}

/* The same for all keys noted of an edge: hardly ever one. */
template <class T, class TYPE>
DEVICE void add_noted(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                      const item &it, const place &at, int stage, int block,
                      const uint32_t (&p)[T::KEYS / 4], float (&o)[T::DIM / 2])
{
    const ph_attn &a = c.attn;
    const int row = first_row(at);
    const uint32_t noted = at.base + T::NOTED_AT + stage * NOTED_BYTES;
    if (!has_noted_keys(noted)) return;
    for (int x = 0; x < T::KEYS; x++) {
        if (!(noted_keys(noted, x / 32 * 32) >> x % 32 & 1)) continue;
        const int key = block * T::KEYS + x, column = threadIdx.x % 4 * 2;
        const uint16_t *v = it.v + value_of(a, it, key) + column;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float weight = weight_of(type, p, x, i);
            if (is_visible(a, it.size, query_of<T>(a, plan, it, row + 8 * i).token, key))
                add_key(type, v, a.v_dim - column, i, weight, o);
        }
    }
}

/* ---- an item ---- */

/* Passes over blocks that only other consumers' rows see, in turn as if it used them. */
template <class T> DEVICE void skip_blocks(const place &at, int count, int &n)
{
#pragma unroll 1
    for (; count > 0; count--, n++) {
        wait_stage<T::K_STAGES>(at.base + T::K_FULL, n);
        release(at.base + T::K_EMPTY + SLOT * stage_of<T::K_STAGES>(n));
        wait_for_turn<T>(at.group);
        pass_turn<T>(at.group);
        wait_stage<T::V_STAGES>(at.base + T::V_FULL, n);
        release(at.base + T::V_EMPTY + SLOT * stage_of<T::V_STAGES>(n));
    }
}

/* Waits for the product of a block's weights and values; held: its stage is not released
   yet, see staged_at. */
template <class T, class TYPE>
DEVICE void finish_values(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                          const item &it, const place &at, int clean, int n, int block,
                          const uint32_t (&p)[T::KEYS / 4], float (&o)[T::DIM / 2],
                          int held)
{
    wgmma_wait<0>();
    pin(o);
    if (clean && is_edge<T>(it, block))
        add_noted<T>(type, c, plan, it, at, stage_of<T::V_STAGES>(n), block, p, o);
    if (held) return;
    __syncwarp();
    release(at.base + T::V_EMPTY + SLOT * stage_of<T::V_STAGES>(n));
}

/* All blocks of one item: products of scores run one block ahead of those of values.
   EARLY kernels compute the factors of the thread's rows beside the last product.
   n: blocks so far. */
template <class T, class TYPE>
DEVICE void consume_item(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                         const item &it, const place &at, float (&o)[T::DIM / 2],
                         running &now, float (&factor)[2], int &n)
{
    const float scale2 = c.score_scale;
    const auto &part = part_of<T>(it, at.group);
    const int first = part.first, end = part.end, clean = it.clean;
    const uint32_t q_stage = stage_of<T::Q_STAGES>(it.queries);
    const uint32_t q = ph_wgmma_operand(
        at.base + T::Q_AT + q_stage * T::Q_BYTES +
            uniform(consumer_thread<T>() / PH_WARPGROUP) * 64 * PH_LINE,
        16);
    const uint32_t k = ph_wgmma_operand(at.base + T::K_AT, 16);
    const uint32_t v = ph_wgmma_operand(at.base + T::V_AT, T::KEYS * PH_LINE);
    const uint32_t step = T::BLOCK_BYTES >> 4; /* from stage to stage */
    float s[T::KEYS / 2], row_max[2], rescale[2];
    uint32_t p[T::KEYS / 4];
    factors f;
    int fresh = 1, splits = 0; /* fresh: o begins with the next product of values */
    wait_stage<T::Q_STAGES>(at.base + T::Q_FULL, it.queries);
    if (T::PARTS) {
        skip_blocks<T>(at, first - it.first, n);
        if (first == end) {
            release(at.base + T::Q_EMPTY + SLOT * q_stage);
            return;
        }
    }
    wait_stage<T::K_STAGES>(at.base + T::K_FULL, n);
    wait_for_turn<T>(at.group);
    begin_scores<T>(type, s, q, k + stage_of<T::K_STAGES>(n) * step);
    pass_turn<T>(at.group);
    if (T::STAGED) wait_for_output<0>();
    if (T::HELD && n) release(at.base + T::V_EMPTY + SLOT * stage_of<T::V_STAGES>(n - 1));
    int edge = is_edge<T>(part, first);
    wgmma_wait<0>();
    pin(s);
    release(at.base + T::K_EMPTY + SLOT * stage_of<T::K_STAGES>(n));
    if (T::HELD && first + 1 == end) /* at once: queries of 256 columns load slowly */
        release(at.base + T::Q_EMPTY + SLOT * q_stage);
    modify_scores<T>(c, plan, it, s, first_row(at), first_key<T>(first));
    int half = find_max<T>(c.attn, plan, it, at, first, edge, s, row_max);
    weigh_block<T>(s, row_max, half, now, scale2, rescale);
    pack(type, s, p);
    drop_weights<T>(c, plan, it, p, at, first);
    for (int j = first + 1; j < end; j++) {
        wait_stage<T::K_STAGES>(at.base + T::K_FULL, n + 1);
        wait_for_turn<T>(at.group);
        begin_scores<T>(type, s, q, k + stage_of<T::K_STAGES>(n + 1) * step);
        const int merges = T::WHOLE_SHARED && fresh && splits;
        if (merges) { /* under products of the other consumers */
            pass_turn<T>(at.group);
            end_values<1, 4>(whole_slots<T>(plan, at), o, f, splits == 1, 0);
        } else if (!fresh) {
            scale_rows(o, rescale); /* under the product of scores */
        }
        wait_stage<T::V_STAGES>(at.base + T::V_FULL, n);
        begin_values<T>(type, o, p, v + stage_of<T::V_STAGES>(n) * step, fresh);
        if (!merges) pass_turn<T>(at.group);
        edge = is_edge<T>(part, j); /* read before the wait */
        wgmma_wait<1>();
        pin(s);
        release(at.base + T::K_EMPTY + SLOT * stage_of<T::K_STAGES>(n + 1));
        if (T::HELD && j + 1 == end) release(at.base + T::Q_EMPTY + SLOT * q_stage);
        modify_scores<T>(c, plan, it, s, first_row(at), first_key<T>(j));
        fresh = T::SPLITS && j * T::KEYS % T::SPLIT == 0;
        if (fresh) {
            end_sums(stats_slot<T>(at), now, scale2, splits == 0, f);
            splits++;
            reset(now);
        }
        half = find_max<T>(c.attn, plan, it, at, j, edge, s, row_max);
        if (!T::HALVES) /* so that weights are packed while others are computed */
            finish_values<T>(type, c, plan, it, at, clean, n, j - 1, p, o, 0);
        weigh_block<T>(s, row_max, half, now, scale2, rescale);
        if (T::HALVES) finish_values<T>(type, c, plan, it, at, clean, n, j - 1, p, o, 0);
        pack(type, s, p);
        drop_weights<T>(c, plan, it, p, at, j);
        n++;
        if (fresh && !T::WHOLE_SHARED) /* while no scores take registers */
            end_values<0, 8>(whole_slots<T>(plan, at), o, f, splits == 1, 0);
    }
    if (!T::HELD) release(at.base + T::Q_EMPTY + SLOT * q_stage);
    if (!fresh)
        scale_rows(o, rescale);
    else if (splits && T::WHOLE_SHARED)
        end_values<1, 4>(whole_slots<T>(plan, at), o, f, splits == 1, 0);
    wait_stage<T::V_STAGES>(at.base + T::V_FULL, n);
    begin_values<T>(type, o, p, v + stage_of<T::V_STAGES>(n) * step, fresh);
    end_sums(stats_slot<T>(at), now, scale2, splits == 0, f);
    if (T::EARLY) finish_rows<T>(c, plan, it, now, first_row(at), factor);
    finish_values<T>(type, c, plan, it, at, clean, n, end - 1, p, o, T::HELD);
    n++;
    if (T::PARTS) skip_blocks<T>(at, it.end - end, n);
    end_values<T::WHOLE_SHARED, 4>(whole_slots<T>(plan, at), o, f, splits == 0, 1);
}

#endif
