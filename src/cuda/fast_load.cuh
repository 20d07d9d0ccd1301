/*
 * fast_load.cuh - the producer warpgroup of the fast kernels: warp 0 issues tensor copies,
 * warp 1 takes items, warps 2 and 3 clean the values at the edges of a mask. Where consumers
 * have streams of their own, a warp does all that for one of them.
 *
 * Masked NaN/Inf. A hidden pair has the weight 0, and 0 times NaN would reach rows that do
 * not see the key. K needs nothing, since hidden scores are replaced. Of V, a block in
 * which some row of the tile does not see some key is an edge. A tile is computed as if V
 * were finite. Where its result is not, it is computed once more, and its edges go to the
 * cleaners first, which put 0 where a value is not finite and note the keys; consumers add
 * those values to the rows that see them. While decoding edges are few, and always go to
 * the cleaners.
 */
#ifndef PH_CUDA_FAST_LOAD_CUH
#define PH_CUDA_FAST_LOAD_CUH

#include "cuda/fast_clean.cuh"
#include "cuda/fast_output.cuh"
#include "cuda/fast_tiles.cuh"

/* ---- items ---- */

/* Are all of `count` gates 0? Four loads at once, because only one thread looks. */
DEVICE int are_zero(const float *gate, int count)
{
    for (int n = 0; n < count; n += 4) {
        float any = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) any += fabsf(gate[min(n + i, count - 1)]);
        if (any != 0) return 0;
    }
    return 1;
}

/* Are all rows of the tile gated off? */
DEVICE int is_gated_off(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                        const item &it)
{
    const ph_attn &a = c.attn;
    if (!c.args.gate) return 0;
    if (a.gate == PH_GATE_HEAD) return are_zero(c.args.gate + it.head, plan.group);
    const int before = max(-it.row, 0); /* padding, see rows_before */
    const int count = min(plan.tokens, it.size.q_len - it.row) - before;
    const float *gate = c.args.gate + it.row_at + before;
    const int step = a.ragged ? a.q_total : a.q_len;
    for (int head = 0; head < plan.group; head++, gate += step)
        if (!are_zero(gate, count)) return 0;
    return 1;
}

/* Which blocks of keys the item visits. */
template <class T> DEVICE void cut_keys(item &it, int lo, int hi)
{
    it.first = lo / T::KEYS;
    it.end = lo < hi ? (hi + T::KEYS - 1) / T::KEYS : it.first;
}

/* One split of the keys. Returns 0 if there is nothing to do, not even to store rows that
   see no key. */
template <class T> DEVICE int cut_split(item &it, int split)
{
    it.first_split = it.lo / T::SPLIT;
    it.splits = it.lo < it.hi ? (it.hi - 1) / T::SPLIT - it.first_split + 1 : 1;
    it.split = split - it.first_split;
    cut_keys<T>(it, max(it.lo, split * T::SPLIT), min(it.hi, (split + 1) * T::SPLIT));
    return it.split >= 0 && it.split < it.splits;
}

/* What the first row sees, not cut to keys that there are: so both ends move with the token,
   and a row of the tile is cut to them as it would be by `interval`. */
template <class T> DEVICE void cut_row(const ph_attn &a, item &it)
{
    const int64_t position = it.row + it.size.offset, end = it.size.kv_len;
    const int64_t least = T::GATHERED ? -PH_FAST_GATHERED : -T::ROWS; /* tokens to the last */
    const int band = a.mask == PH_MASK_BAND;
    const int right = band ? a.band_right : a.mask == PH_MASK_CAUSAL ? 0 : -1;
    const int64_t low = band && a.band_left >= 0 ? position - a.band_left : least;
    const int64_t high = right >= 0 ? position + right + 1 : end;
    it.row_lo = (int)max(min(low, end), least);
    it.row_hi = (int)max(min(high, end), least);
}

/* How many tokens a row lies behind the first one of the tile. */
template <class T> DEVICE int tokens_on(const item &it, int row)
{
    return T::GATHERED ? it.tokens[min(row, it.listed - 1)] - it.row : row;
}

/* The end of what a row of the tile sees, `on` tokens behind its first. */
DEVICE int cut_end(const item &it, int end, int on)
{
    return min(max(end + on, 0), it.size.kv_len);
}

/* What rows [first, last] of the tile see: some, and all of them. Both ends grow with the
   row. */
template <class T>
DEVICE void cut_rows(const item &it, int first, int last, int &lo, int &hi, int &all_lo,
                     int &all_hi)
{
    first = tokens_on<T>(it, first), last = tokens_on<T>(it, last);
    lo = cut_end(it, it.row_lo, first), hi = cut_end(it, it.row_hi, last);
    all_lo = cut_end(it, it.row_lo, last), all_hi = cut_end(it, it.row_hi, first);
}

/* Where the rows, keys and values of the item lie. */
template <class T>
DEVICE void find_tensors(const ph_cuda_call &c, const ph_cuda_schedule &plan, item &it)
{
    const ph_attn &a = c.attn;
    it.row_at = row_index(a, it.size, it.batch, it.head) + it.row;
    it.out = (uint16_t *)c.args.out +
             start_of(a.out, it.batch, it.head, it.size.q_first + it.row);
    it.k_head = ph_divide(it.head, &plan.k_group);
    it.v_head = ph_divide(it.head, &plan.v_group);
    if (!T::GATHERED) it.q_row = it.size.q_first + it.row;
    it.q_batch = a.ragged ? 0 : it.batch;
    it.kv_batch = a.ragged == PH_RAGGED_ALL ? 0 : it.batch;
    it.v = (const uint16_t *)c.args.v +
           start_of(a.v, a.page_len ? 0 : it.batch, it.v_head, it.size.kv_first);
    it.pages = c.args.page_table + (int64_t)it.batch * c.table_len;
}

/* What a consumer sees of it. */
template <class T> DEVICE void cut_parts(item &it)
{
#pragma unroll 1
    for (int i = 0; i < T::CONSUMERS; i++) {
        const int rows = T::GATHERED ? it.listed : it.size.q_len - it.row;
        const int first = 64 * i, last = min(first + 64, rows) - 1;
        int lo, hi;
        span &part = it.part[i];
        cut_rows<T>(it, first, last, lo, hi, part.all_lo, part.all_hi);
        part.first = max(it.first, lo / (int)T::KEYS);
        part.end = min(it.end, (hi + T::KEYS - 1) / (int)T::KEYS);
        if (it.row + first < 0 || last < first || lo >= hi || part.first >= part.end)
            part.first = part.end = it.end;
    }
}

/* Tiles of three parts end where the sequence does, so that under a causal mask no tile of
   all its keys has a single part: the first one has parts before row 0 instead. */
template <class T> DEVICE int rows_before(int rows)
{
    return T::PARTS && !T::GATHERED ? (T::ROWS - 1 - (rows - 1) % T::ROWS) / 64 * 64 : 0;
}

/* The rows of a gathered tile, from row it.row of the list on, which becomes the token of
   that row; returns 0 if there are none. */
DEVICE int find_listed(const ph_cuda_call &c, const ph_cuda_schedule &plan, item &it)
{
    const int count = c.gathered.count[it.batch * c.attn.q_heads + it.head];
    it.listed = min(count - it.row, plan.tokens);
    if (it.listed <= 0) return 0;
    it.q_row = it.size.q_first + it.row;
    it.tokens =
        c.gathered.token + row_index(c.attn, it.size, it.batch, it.head) + it.row;
    asm volatile("" ::: "memory"); /* as in fill_item */
    it.row = it.tokens[0];
    return 1;
}

template <class T>
DEVICE int fill_item(const ph_cuda_call &c, const ph_cuda_schedule &plan, int index,
                     item &it)
{
    const ph_attn &a = c.attn;
    int unit, tile, split = 0;
    if (T::ONE_SPLIT)
        ph_cuda_split_item(&plan, index, &unit, &tile, &split);
    else
        ph_cuda_item(&plan, index, &unit, &tile);
    const int batch = ph_divide(unit, &plan.batch_units);
    const extent size = extent_of(c, batch);
    it.stored = stored_rows(a, size);
    it.row = tile * plan.tokens - rows_before<T>(it.stored);
    it.q_group = unit - batch * plan.batch_units.by;
    it.batch = batch, it.head = it.q_group * plan.group, it.size = size;
    it.tile = unit * plan.row_tiles.by + tile;
    if (T::GATHERED ? !find_listed(c, plan, it) : it.row >= it.stored) return 0;
    find_tensors<T>(c, plan, it);
    cut_row<T>(a, it);
    asm volatile("" ::: "memory"); /* reads the item again: registers are short */
    const int rows = T::GATHERED ? it.listed : min(plan.tokens, it.size.q_len - it.row);
    const int first = max(-it.row, 0), last = rows - 1;
    cut_rows<T>(it, first, last, it.lo, it.hi, it.all_lo, it.all_hi);
    if (last < first || it.lo >= it.hi || (!T::GATHERED && is_gated_off(c, plan, it)))
        it.lo = it.hi = 0;
    int there = 1;
    if (T::ONE_SPLIT)
        there = cut_split<T>(it, split);
    else
        cut_keys<T>(it, it.lo, it.hi);
    if (there && T::PARTS) cut_parts<T>(it);
    return there;
}

/* The first item of a CTA, pair or stream has its number; the others come from a counter, so that
   CTAs with short items take more. As many are drawn as there are items: the last one sets
   the counter back for the next launch. */
template <class T> DEVICE int first_item()
{
    if (T::STREAMS) return blockIdx.x * T::STREAMS + threadIdx.x / 32;
    return T::PAIR ? blockIdx.x / 2 : blockIdx.x;
}

template <class T> DEVICE int next_item(const ph_cuda_schedule &plan)
{
    const int taken = (int)atomicAdd(plan.taken, 1u);
    if (taken == plan.items - 1) *plan.taken = 0;
    return (T::STREAMS ? gridDim.x * T::STREAMS
            : T::PAIR  ? gridDim.x / 2
                       : gridDim.x) +
           taken;
}

/* Says that the n-th item is in its slot, and sends it to the other CTA of a pair. */
template <class T> DEVICE void publish_item(uint32_t base, int n)
{
    const uint32_t full = base + T::ITEM_FULL + SLOT * stage_of<ITEMS>(n);
    if (T::PAIR) {
        const uint4 *from = (const uint4 *)item_slot<T>(base, n);
        const uint32_t to = address_in(T::VALUES_CTA, shared_address(from));
#pragma unroll 1
        for (int i = 0; i < (int)sizeof(item) / 16; i++)
            send(to + 16 * i, from[i], address_in(T::VALUES_CTA, full));
    }
    barrier_arrive(full);
}

/* Items of the other CTA of a pair. */
template <class T> DEVICE void receive_items(uint32_t base)
{
    for (int n = 0;; n++) {
        barrier_expect(base + T::ITEM_FULL + SLOT * stage_of<ITEMS>(n), sizeof(item));
        if (begin_item<T>(base, n).batch < 0) return;
    }
}

/* Waits for the item before the n-th in its slot. Its index if it has to be computed
   again, else -1. */
template <class T> DEVICE int spoilt_item(uint32_t base, int n)
{
    wait_empty<ITEMS>(base + T::ITEM_EMPTY, n);
    item &it = *item_slot<T>(base, n);
    const int index = it.spoilt ? it.index : -1;
    it.spoilt = 0;
    return index;
}

struct maps {
    const tensor_map *q, *k, *v, *out;
};

/* Prefetches the queries of an item into the L2 cache, one tile before they are copied: they
   have only one stage, and all SMs would wait for them at the same time. */
template <class T> DEVICE void prefetch_queries(const maps &map, const item &it)
{
    if (it.first == it.end) return;
#pragma unroll
    for (int x = 0; x < T::DIM; x += 64)
        prefetch_box(map.q, x, 0, it.q_row, it.q_group, it.q_batch);
}

/* Is the first item of few rows made while the kernel before this one ends? It must not read
   what that one may write: then its place and size are known from the plan. */
template <class T> DEVICE int is_made_early(const ph_cuda_call &c)
{
    return T::FEW && !c.attn.ragged && !c.args.q_lens && !c.args.kv_lens && !c.args.gate;
}

/* Who takes items for a CTA or stream: the slot of the next one, tiles of queries so far,
   and which item of the schedule comes next; taken: that one is in a slot already. */
struct taker {
    int n, queries, index, taken;
};

/* Draws the next item. The counter is far away: whoever copies issues copies first. */
template <class T>
DEVICE void draw_item(const ph_cuda_call &c, const ph_cuda_schedule &plan, taker &t)
{
    if (!t.taken) return;
    if (t.n <= 1 && is_made_early<T>(c)) wait_for_stream();
    t.index = next_item<T>(plan);
    t.taken = 0;
}

/* Takes an item into its slot: 1, or 0 if that one has nothing to do. -1: there are no
   more. */
template <class T>
DEVICE int take_item(const ph_cuda_call &c, const ph_cuda_schedule &plan, uint32_t base,
                     const maps &map, taker &t)
{
    int again = spoilt_item<T>(base, t.n);
    if (again < 0 && t.index >= plan.items) again = spoilt_item<T>(base, t.n + 1);
    item &it = *item_slot<T>(base, t.n);
    if (again < 0 && t.index >= plan.items) {
        it.batch = -1;
        publish_item<T>(base, t.n);
        return -1;
    }
    const int index = again < 0 ? t.index : again;
    const int there = fill_item<T>(c, plan, index, it);
    t.taken = again < 0;
    if (there) {
        it.index = index;
        it.clean = again >= 0 || T::ONE_SPLIT;
        it.queries = t.queries;
        t.queries += it.first < it.end;
        publish_item<T>(base, t.n);
        if (!T::ONE_SPLIT && t.n) prefetch_queries<T>(map, it);
        t.n++;
    }
    return there;
}

template <class T>
DEVICE void schedule_items(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                           uint32_t base, const maps &map)
{
    taker own, &t = T::GATHERED ? *(taker *)shared_pointer(base + T::TAKER_AT) : own;
    t = taker{0, 0, first_item<T>(), 0};
    if (T::PAIR && cluster_rank() == T::VALUES_CTA) return receive_items<T>(base);
    if (T::FEW && !is_made_early<T>(c)) wait_for_stream();
    while (take_item<T>(c, plan, base, map, t) >= 0) draw_item<T>(c, plan, t);
}

/* ---- copies ---- */

/* One box per panel of 64 columns, and per page or part of one. Keys behind the last are
   masked: whatever lies there will do. */
template <class T>
DEVICE void load_block(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                       const item &it, uint32_t to, const tensor_map *map,
                       uint32_t barrier, int first, int head)
{
    const int page_len = c.attn.page_len;
    barrier_expect(barrier, T::BLOCK_BYTES);
    for (int n = 0; n < T::KEYS; n += plan.box) {
        int key = first + n, batch = it.kv_batch;
        if (page_len) {
            key = min(key, it.size.kv_len - 1);
            batch = __ldg(it.pages + key / page_len);
            key = key % page_len / plan.box * plan.box;
        }
#pragma unroll
        for (int x = 0; x < T::DIM; x += 64) {
            const uint32_t at = to + x * T::KEYS * 2 + n * PH_LINE;
            if (T::FEW)
                copy_box_once(at, map, barrier, x, it.size.kv_first + key, head, batch);
            else
                copy_box(at, map, barrier, x, it.size.kv_first + key, head, batch);
        }
    }
}

/* Rows of all heads of the group, token by token. */
template <class T>
DEVICE void load_queries(uint32_t to, const tensor_map *map, uint32_t barrier,
                         const ph_cuda_schedule &plan, const item &it)
{
    barrier_expect(barrier, (uint32_t)(plan.tokens * plan.group * T::DIM * 2));
#pragma unroll
    for (int x = 0; x < T::DIM; x += 64)
        copy_box(to + x * T::ROWS * 2, map, barrier, x, 0, it.q_row, it.q_group,
                 it.q_batch);
}

enum { EARLY_BLOCKS = 3 }; /* more would take the cache from the kernel before */

/* Prefetches the first blocks of a first item into the L2 cache while the kernel before
   this one ends. That one may still write them, or lengths: it does so in the same cache,
   and what is read here only chooses what to prefetch. */
template <class T>
DEVICE void prefetch_item(const ph_cuda_call &c, const ph_cuda_schedule &plan,
                          const maps &map)
{
    const ph_attn &a = c.attn;
    int unit, tile, split, len = a.kv_len;
    if (a.ragged || a.page_len || a.mask == PH_MASK_BAND) return;
    ph_cuda_split_item(&plan, first_item<T>(), &unit, &tile, &split);
    const int batch = ph_divide(unit, &plan.batch_units);
    const int head = unit * plan.group - batch * a.q_heads;
    const int k_head = ph_divide(head, &plan.k_group);
    const int v_head = ph_divide(head, &plan.v_group);
    if (c.args.kv_lens) len = min(len, __ldcg(c.args.kv_lens + batch));
    for (int n = 0; n < EARLY_BLOCKS; n++) {
        const int key = split * T::SPLIT + n * T::KEYS;
        if (key >= len) break;
#pragma unroll
        for (int x = 0; x < T::DIM; x += 64) {
            if (has_keys<T>()) prefetch_box(map.k, x, key, k_head, batch);
            if (has_values<T>()) prefetch_box(map.v, x, key, v_head, batch);
        }
    }
}

/* Before the first copy, as late as possible: all that it needs is there then. */
DEVICE void begin_reading()
{
    wait_for_stream();
    let_next_begin();
}

/* Copies block j of the item, the n-th of its ring, and with the first one the queries. */
template <class T>
DEVICE void copy_block(const ph_cuda_call &c, const ph_cuda_schedule &plan, uint32_t base,
                       const maps &map, const item &it, int j, int n)
{
    const int keys = has_keys<T>(), values = has_values<T>();
    const int k = stage_of<T::K_STAGES>(n), v = stage_of<T::V_STAGES>(n);
    if (keys) {
        wait_empty<T::K_STAGES>(base + T::K_EMPTY, n);
        if (n == 0) begin_reading();
        load_block<T>(c, plan, it, base + T::K_AT + k * T::BLOCK_BYTES, map.k,
                      base + T::K_FULL + SLOT * k, j * T::KEYS, it.k_head);
    }
    if (keys && j == it.first) {
        const int q = stage_of<T::Q_STAGES>(it.queries);
        wait_empty<T::Q_STAGES>(base + T::Q_EMPTY, it.queries);
        load_queries<T>(base + T::Q_AT + q * T::Q_BYTES, map.q,
                        base + T::Q_FULL + SLOT * q, plan, it);
    }
    if (values) {
        const int cleaned = is_cleaned<T>(it, j);
        wait_empty<T::V_STAGES>(base + T::V_EMPTY, n);
        if (!cleaned) barrier_arrive(base + T::V_FULL + SLOT * v, T::CLEANING - 1);
        if (!keys && n == 0) begin_reading();
        load_block<T>(c, plan, it, base + T::V_AT + v * T::BLOCK_BYTES, map.v,
                      base + (cleaned ? T::V_RAW : T::V_FULL) + SLOT * v, j * T::KEYS,
                      it.v_head);
    }
}

template <class T>
DEVICE void copy_items(const ph_cuda_call &c, const ph_cuda_schedule &plan, uint32_t base,
                       const maps &map)
{
    int n = 0; /* blocks so far */
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        const int first = it.first, end = it.end;
        if (it.batch < 0) break;
#pragma unroll 1
        for (int j = first; j < end; j++, n++) copy_block<T>(c, plan, base, map, it, j, n);
        leave_item<T>(base, i);
    }
}

/* ---- cleaners ---- */

/* Puts 0 where a value is not finite, and notes its key if some row of the tile sees it;
   key: the first of the block. */
template <class T, class TYPE>
DEVICE void clean_block(TYPE type, const item &it, uint32_t v, uint32_t noted, int key)
{
    const int thread = T::STREAMS ? threadIdx.x % 32 : threadIdx.x - FIRST_CLEANER;
    for (int i = 0; thread == 0 && i < NOTED_BYTES; i += 4) store_shared(noted + i, 0);
    if (T::STREAMS)
        __syncwarp();
    else
        meet<CLEANERS>(CLEANERS_MEET);
    clean_rows<T::CLEANING, T::KEYS>(type, v, T::BLOCK_BYTES, thread, [&](int row) {
        if (key + row >= it.lo && key + row < it.hi)
            or_shared(noted + row / 32 * 4, 1u << row % 32);
    });
    async_proxy_fence();
}

/* Cleans block j of the item, the n-th of the ring, once it is there; parity: of V_RAW, a
   bit per stage. */
template <class T, class TYPE>
DEVICE void clean_edge(TYPE type, const item &it, uint32_t base, int j, int n,
                       uint32_t &parity)
{
    const int stage = stage_of<T::V_STAGES>(n);
    barrier_wait(base + T::V_RAW + SLOT * stage, parity >> stage & 1);
    parity ^= 1u << stage;
    /* Noted keys of this stage have been read, for which the copier waited too;
       racecheck sees that order only if the thread that writes them waits. */
    wait_empty<T::V_STAGES>(base + T::V_EMPTY, n);
    clean_block<T>(type, it, base + T::V_AT + stage * T::BLOCK_BYTES,
                   base + T::NOTED_AT + stage * NOTED_BYTES, j * T::KEYS);
    barrier_arrive(base + T::V_FULL + SLOT * stage);
}

/* Cleans the edges of all items. Merges the splits of a tile where the last of them was
   stored, while the consumer is at the next item. */
template <class T, class TYPE>
DEVICE void clean_items(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                        uint32_t base)
{
    const int warp = (threadIdx.x - FIRST_CLEANER) / 32;
    const int values = has_values<T>();
    if (T::FEW) wait_for_stream(); /* sinks may be written by the kernel before */
    uint32_t parity = 0;           /* a bit per stage */
    int n = 0, stored = 0;         /* blocks, and splits, so far */
    for (int i = 0;; i++) {
        const item &it = begin_item<T>(base, i);
        const int end = it.end;
        if (it.batch < 0) break;
        for (int j = it.first; values && j < end; j++, n++)
            if (is_cleaned<T>(it, j)) clean_edge<T>(type, it, base, j, n, parity);
        if (values && has_partial_sums<T>(it))
            merge_item<T>(type, c, plan, it, base + T::STORED, stored++, warp);
        end_item<T>(base, i);
    }
}

/* ---- streams ---- */

/* Everything that a producer does for one stream, by a warp: lane 0 takes items and copies,
   all lanes clean. The first warps have a stream each. */
template <class T, class TYPE>
DEVICE void produce_items(TYPE type, const ph_cuda_call &c, const ph_cuda_schedule &plan,
                          uint32_t base, const maps &map)
{
    const int stream = uniform(threadIdx.x / 32), first_lane = threadIdx.x % 32 == 0;
    const uint32_t own = region_of<T>(base, stream);
    taker &t = *(taker *)shared_pointer(own + T::TAKER_AT); /* registers are short */
    uint32_t parity = 0;
    if (stream >= T::STREAMS) return;
    if (first_lane) t = taker{0, 0, first_item<T>(), 0};
    for (int i = 0, n = 0;;) { /* items, blocks so far */
        const int there = uniform(first_lane ? take_item<T>(c, plan, own, map, t) : 0);
        if (there < 0) break;
        __syncwarp();
        const item &it = *item_slot<T>(own, i);
        const int end = there ? it.end : it.first;
        i += there;
#pragma unroll 1
        for (int j = it.first; j < end; j++, n++) {
            if (first_lane) copy_block<T>(c, plan, own, map, it, j, n);
            if (first_lane) draw_item<T>(c, plan, t);
            if (is_cleaned<T>(it, j)) clean_edge<T>(type, it, own, j, n, parity);
            __syncwarp();
        }
        if (first_lane) draw_item<T>(c, plan, t);
    }
}

#endif
