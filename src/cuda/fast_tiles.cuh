/*
 * fast_tiles.cuh - how the fast kernels cut their work: tiles of query rows and blocks of
 * keys, what lies where in shared memory, and the rings of stages between warps.
 */
#ifndef PH_CUDA_FAST_TILES_CUH
#define PH_CUDA_FAST_TILES_CUH

#include "cuda/cuda_call.h"
#include "cuda/hopper.cuh"
#include "cuda/schedule.h"
#include "cuda/visible.cuh"

enum {
    SCHEDULER = 32, /* the threads that take items, copy, and clean */
    COPIER = 0,
    FIRST_CLEANER = 64,
    CLEANERS = 32 * PH_FAST_MERGERS,
    CLEANERS_MEET = 1, /* named barriers; 0 is __syncthreads */
    CONSUMERS_MEET = 2,
    FIRST_TURN = 2,                               /* one per consumer */
    ITEMS = 2,                                    /* slots of items */
    NOTED_BYTES = 16,                             /* a bit per key of a block */
    STAGED_PANEL = PH_FAST_ROWS_STORED * PH_LINE, /* bytes; see staged_at */
    MESSAGES = 4,                                 /* see fast_consume_few.cuh */
    SLOT = 8                                      /* bytes of a barrier */
};

/* What the 64 rows of one consumer see: blocks of keys, and keys that all of them see. */
struct span {
    int first, end; /* first == end: none */
    int all_lo, all_hi;
};

/* A tile of query rows, in shared memory: warp 1 writes it, the others read it. In a
   kernel of splits, those rows and one split of keys. */
struct alignas(16) item {
    extent size;
    int batch, head, row;    /* of the first row; batch < 0: there are no more items */
    uint16_t *out;           /* of the first row */
    int64_t row_at;          /* its index in lse and gate */
    int stored;              /* tokens below have a place in out */
    int listed;              /* rows of the tile, where they are gathered */
    const uint16_t *v;       /* where values begin: in page 0 if there are pages, */
    const int32_t *pages;    /* which are these */
    int q_group;             /* of heads in their batch row */
    int k_head, v_head;      /* that the rows share */
    int q_row;               /* of the first row on the token axis, */
    int q_batch, kv_batch;   /* and batch rows: 0 where the tensor is ragged */
    int first, end;          /* blocks of keys to visit */
    span part[3];            /* of them, by consumer: see part_of */
    int lo, hi;              /* keys that some row may see */
    int row_lo, row_hi;      /* keys that the first row sees, see cut_row */
    int all_lo, all_hi;      /* keys that all rows see */
    int index;               /* in the schedule */
    int clean;               /* 1: values at edges go to the cleaners first */
    int spoilt;              /* set by consumers: has to be computed again, with clean */
    int queries;             /* tiles of queries that this CTA loaded before */
    int tile;                /* of all tiles */
    int first_split, splits; /* of all that the rows see */
    int split;               /* this one */
    const int32_t *tokens;   /* of gathered rows */
};

/* What the warpgroups of a CTA share out by setmaxnreg, in registers of a thread: what a
   launch took, which is rounded down to 8 for each, not all that an SM has. */
constexpr int registers_of_launch(int threads)
{
    return 65536 / threads / 8 * 8 * (threads / PH_WARPGROUP);
}

/* Rings hold a number of stages that the head dim leaves memory for. */
template <int SCORES_, int DIM_, int ROWS_, int Q_STAGES_, int K_STAGES_, int V_STAGES_,
          int PRODUCER_REGISTERS_, int CONSUMER_REGISTERS_, int PAIR_ = 0,
          int STREAMS_ = 0, int GATHERED_ = 0>
struct tiles {
    enum {
        SCORES = SCORES_, /* ph_cuda_scores */
        DIM = DIM_,
        ROWS = ROWS_,
        FEW = ROWS == PH_FAST_ROWS_FEW, /* one tile of a warp: mma.sync */
        PAIR = PAIR_, /* two CTAs share an item: one has the keys, one the values */
        STREAMS = STREAMS_, /* consumers with items and rings of their own, or 0 */
        GATHERED = GATHERED_, /* rows are those of a list, see gather_rows.cu */
        KEYS_CTA = 0,
        VALUES_CTA = PAIR,
        SHARES = PAIR ? 2 : 1, /* few rows: warpgroups that share keys, or values; */
        VALUE_WARPS = DIM / 32 < 4 * SHARES ? DIM / 32 : 4 * SHARES, /* those at work */
        WARP_COLUMNS = DIM / VALUE_WARPS, /* of weighted values */
        ONE_SPLIT = ROWS <= PH_FAST_ROWS_DECODE && !STREAMS, /* of keys is an item */
        CONSUMERS = FEW ? 2 : ROWS / 64, /* warpgroups that share items */
        Q_STAGES = Q_STAGES_,
        K_STAGES = K_STAGES_,
        V_STAGES = V_STAGES_,
        PRODUCER_REGISTERS = PRODUCER_REGISTERS_,
        CONSUMER_REGISTERS = CONSUMER_REGISTERS_,
        KEYS = DIM > 128 ? PH_FAST_KEYS_256 : PH_FAST_KEYS,
        SPLIT = DIM > 128 ? PH_FAST_SPLIT_256 : PH_FAST_SPLIT,
        SPLITS = !ONE_SPLIT && !STREAMS, /* an item may have several splits: their sums */
        WHOLE_SHARED = DIM <= 128 && SPLITS, /* lie there, else in the workspace */
        HELD = ((DIM > 128 && !ONE_SPLIT) || STREAMS) && !GATHERED, /* rows are staged */
        STAGED = (HELD || WHOLE_SHARED) && !GATHERED, /* in the last stage of V: staged_at */
        AT_ONCE = HELD ? 64 : DIM, /* columns of them; HELD has room for twice as many */
        TURNS = CONSUMERS > 1 && DIM <= 128 && !FEW, /* see wait_for_turn */
        HALVES = DIM > 128,                          /* see weigh_block */
        EARLY = DIM > 64 && !ONE_SPLIT, /* see consume_item; slower at d 64 */
        PARTS = ROWS > PH_FAST_ROWS,    /* see part_of */
        CLEANING = STREAMS ? 32 : CLEANERS, /* threads that clean a block */
        THREADS = PH_WARPGROUP * ((STREAMS ? STREAMS : CONSUMERS) + 1),
        Q_BYTES = ROWS * DIM * 2,
        BLOCK_BYTES = KEYS * DIM * 2, /* of K, and of V */

        Q_AT = 0,
        K_AT = Q_AT + Q_STAGES * Q_BYTES,
        V_AT = PAIR ? K_AT : K_AT + K_STAGES * BLOCK_BYTES, /* a CTA of a pair has one */
        WHOLE_AT = V_AT + V_STAGES * BLOCK_BYTES,           /* sums of earlier splits */
        STATS_AT = WHOLE_AT + WHOLE_SHARED * ROWS * DIM * 4,
        /* A message: weights of a block, their sums by row, quad lane and quarter, and
           what they were measured against. */
        SUMS_AT = KEYS * ROWS * 2,
        REFERENCE_AT = SUMS_AT + ROWS * 64,
        MESSAGE_BYTES = REFERENCE_AT + ROWS * 4,
        MESSAGES_AT = STATS_AT + ROWS * 8,
        MAXIMA_AT = MESSAGES_AT + FEW * MESSAGES * MESSAGE_BYTES, /* of quarters, and */
        LAST_AT = MAXIMA_AT + FEW * ROWS * 16 * 2 * SHARES, /* the last references */
        NOTED_AT = LAST_AT + FEW * ROWS * 4 * 2,
        TAKER_AT = NOTED_AT + NOTED_BYTES * V_STAGES, /* where registers are short */
        ITEMS_AT = TAKER_AT + (STREAMS || GATHERED ? 16 : 0), /* aligned to 16 bytes */
        STORED = ITEMS_AT + sizeof(item) * ITEMS,     /* barriers: a split is stored; */
        SENT = STORED + SLOT,                         /* one per message, */
        RECEIVED = SENT + SLOT * MESSAGES * FEW,
        TURN = RECEIVED + SLOT * MESSAGES * FEW, /* see raise_reference; */
        Q_FULL = TURN + SLOT * 2 * PAIR,         /* and one per stage: */
        Q_EMPTY = Q_FULL + SLOT * Q_STAGES,
        K_FULL = Q_EMPTY + SLOT * Q_STAGES,
        K_EMPTY = K_FULL + SLOT * K_STAGES,
        V_RAW = K_EMPTY + SLOT * K_STAGES, /* an edge, for the cleaners */
        V_FULL = V_RAW + SLOT * V_STAGES,
        V_EMPTY = V_FULL + SLOT * V_STAGES,
        ITEM_FULL = V_EMPTY + SLOT * V_STAGES,
        ITEM_EMPTY = ITEM_FULL + SLOT * ITEMS,
        END = ITEM_EMPTY + SLOT * ITEMS,
        REGION = (END + PH_ATOM - 1) / PH_ATOM * PH_ATOM, /* of a stream */
        BYTES = (STREAMS ? STREAMS * REGION : END) + PH_ATOM /* to align the start */
    };
    static_assert((int)BYTES <= (int)PH_FAST_BYTES, "shared memory of an SM");
    static_assert(PRODUCER_REGISTERS == 0 ||
                      PRODUCER_REGISTERS + (THREADS / PH_WARPGROUP - 1) * CONSUMER_REGISTERS <=
                          registers_of_launch(THREADS),
                  "consumers would wait for registers for ever");
};

/* Shared memory of a stream. */
template <class T> DEVICE uint32_t region_of(uint32_t base, int stream)
{
    return base + stream * T::REGION;
}

/* A ring of stages is walked by counting uses: which stage the n-th use has, and the
   parity of its round. */
template <int STAGES> DEVICE uint32_t stage_of(uint32_t n)
{
    return n % STAGES;
}
template <int STAGES> DEVICE uint32_t parity_of(uint32_t n)
{
    return n / STAGES % 2;
}

template <int STAGES> DEVICE void wait_stage(uint32_t barriers, uint32_t n)
{
    barrier_wait(barriers + SLOT * stage_of<STAGES>(n), parity_of<STAGES>(n));
}

/* What fills a stage waits for its last use, and at first for nothing. */
template <int STAGES> DEVICE void wait_empty(uint32_t barriers, uint32_t n)
{
    barrier_wait(barriers + SLOT * stage_of<STAGES>(n), parity_of<STAGES>(n) ^ 1);
}

/* Once per warp. */
DEVICE void release(uint32_t barrier)
{
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/* ---- items ---- */

template <class T> DEVICE item *item_slot(uint32_t base, int n)
{
    return (item *)shared_pointer(base + T::ITEMS_AT) + stage_of<ITEMS>(n);
}

/* The n-th item of this CTA, once it is there. */
template <class T> DEVICE const item &begin_item(uint32_t base, int n)
{
    wait_stage<ITEMS>(base + T::ITEM_FULL, n);
    return *item_slot<T>(base, n);
}

/* A thread is through with the n-th item. A pair has the barrier of the CTA that writes
   items for both. */
template <class T> DEVICE void leave_item(uint32_t base, int n)
{
    const uint32_t empty = base + T::ITEM_EMPTY + SLOT * stage_of<ITEMS>(n);
    if (T::PAIR)
        barrier_arrive_in_cluster(address_in(T::KEYS_CTA, empty));
    else
        barrier_arrive(empty);
}

/* The same for a warp. */
template <class T> DEVICE void end_item(uint32_t base, int n)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0) leave_item<T>(base, n);
}

/* What a consumer's rows see of the item. Where a tile has more rows than a block has keys,
   some consumers see blocks less than others; elsewhere it would cost registers. */
template <class T> DEVICE const auto &part_of(const item &it, int group)
{
    if constexpr (T::PARTS)
        return it.part[group];
    else
        return it;
}

/* Does this CTA multiply with keys; with values? */
template <class T> DEVICE int has_keys()
{
    return !T::PAIR || cluster_rank() == T::KEYS_CTA;
}
template <class T> DEVICE int has_values()
{
    return !T::PAIR || cluster_rank() == T::VALUES_CTA;
}

/* Does some row of a tile, or of a part of it, not see some key of the block? */
template <class T, class SPAN> DEVICE int is_edge(const SPAN &it, int block)
{
    return block * T::KEYS < it.all_lo || block * T::KEYS + T::KEYS > it.all_hi;
}

/* Do the cleaners look at the values of the block? */
template <class T> DEVICE int is_cleaned(const item &it, int block)
{
    return it.clean && is_edge<T>(it, block);
}

/* Does a consumer store sums of a split, to be merged? Few rows always do: their columns lie
   in different warps. */
template <class T> DEVICE int has_partial_sums(const item &it)
{
    return T::FEW || (T::ONE_SPLIT && it.splits > 1);
}

/* Whose query a row of a tile is: tiles hold tokens of all heads that share keys, or those
   of a list. A row that is padding has a token behind the last. */
struct query {
    int token, head;
};

template <class T>
DEVICE query query_of(const ph_attn &a, const ph_cuda_schedule &plan, const item &it,
                      int row)
{
    if (T::GATHERED) return query{row < it.listed ? it.tokens[row] : a.q_len, it.head};
    if (!T::ONE_SPLIT) return query{it.row + row, it.head};
    return query{row < plan.tokens * plan.group ? it.row + row / plan.group : a.q_len,
                 it.head + row % plan.group};
}

#endif
