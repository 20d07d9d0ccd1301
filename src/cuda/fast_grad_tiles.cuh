/*
 * fast_grad_tiles.cuh - how the backward pass on tensor cores cuts its work.
 *
 * Two kernels, so that every sum has one owner and one order, without atomics. In each an
 * item is a tile of 128 rows or keys whose gradients it owns; it walks over blocks of the
 * keys or rows that see or are seen by them:
 *
 *                   fast_dq          fast_dkv
 *     owns          rows: q, dout    keys: k, v
 *     walks over    keys: k, v       rows: q, dout
 *     a block       s = q k^T        s^T = k q^T
 *                   dp = dout v^T    dp^T = v dout^T
 *                   dq += ds k       dk += ds^T q, dv += p^T dout
 *
 *     p = 2^(scale2 s - lse2), ds = p (dp - delta)
 *
 * Seen from its tile both are alike: "owned" and "walked" are rows and keys, or keys and
 * rows, x and y the two tensors that are owned, a and b those that are walked over.
 */
#ifndef PH_CUDA_FAST_GRAD_TILES_CUH
#define PH_CUDA_FAST_GRAD_TILES_CUH

#include "cuda/fast_tiles.cuh"

/* A tile, in shared memory: the copier writes it, the others read it. */
struct alignas(16) grad_item {
    extent size;
    int batch, head;    /* that owns; batch < 0: there are no more items */
    int first;          /* owned, of the tile */
    int owned, walked;  /* of the sequence */
    int lo, hi;         /* walked that the first owned one sees; both move with it */
    int all_lo, all_hi; /* walked that all of the tile see */
    int begin, end;     /* blocks to walk over */
    int index;          /* in the schedule */
    int clean;          /* 1: operands go to the cleaners first */
    int spoilt;         /* set by consumers: has to be computed again, with clean */
};

/* What is known of a row before the pass: lse in base 2, delta, gate; the seed of its
   dropout in two halves. */
enum row_number {
    ROW_LSE2,
    ROW_DELTA,
    ROW_GATE,
    ROW_NUMBERS,
    ROW_SEED = ROW_NUMBERS,
    ROW_SEED_HIGH
};

struct row_numbers {
    float x[ROW_NUMBERS];
    uint64_t seed;
};

template <int SCORES_, int OWNS_KEYS_, int DIM_, int BLOCK_, int STAGES_>
struct grad_tiles {
    enum {
        DROPS = SCORES_ == PH_SCORES_DROPOUT,  /* weights */
        MODIFIES = SCORES_ != PH_SCORES_PLAIN, /* scores by ALiBi, rows by gates */
        OWNS_KEYS = OWNS_KEYS_,
        DIM = DIM_,
        CAPS = SCORES_ == PH_SCORES_ANY && DIM <= PH_FAST_DIM_CAPPED, /* scores */
        BLOCK = BLOCK_,
        STAGES = STAGES_,
        SHARES = OWNS_KEYS && DIM > 128, /* consumers share keys, see share_block */
        TWO = OWNS_KEYS && !SHARES,      /* else a consumer has one gradient */
        PRODUCER_REGISTERS = 40,
        CONSUMER_REGISTERS = 232,
        TILE = SHARES ? PH_FAST_ROWS_GRAD_256 : PH_FAST_ROWS_GRAD,
        BOX = BLOCK < PH_FAST_BLOCK_GRAD ? BLOCK : PH_FAST_BLOCK_GRAD, /* a tensor copy */
        DROPPED = (BLOCK + 63) / 64, /* words of a bit for each pair of a thread */
        CONSUMERS = 2,
        THREADS = PH_WARPGROUP * (CONSUMERS + 1),
        TILE_BYTES = TILE * DIM * 2,   /* of x, and of y */
        BLOCK_BYTES = BLOCK * DIM * 2, /* of a, and of b */

        X_AT = 0,
        Y_AT = X_AT + TILE_BYTES,
        A_AT = Y_AT + TILE_BYTES,
        B_AT = A_AT + STAGES * BLOCK_BYTES,
        ROWS_AT = B_AT + STAGES * BLOCK_BYTES, /* numbers of walked rows */
        ROWS_BYTES = OWNS_KEYS * BLOCK * (ROW_NUMBERS + 2 * DROPS) * 4,
        P_AT = ROWS_AT + STAGES * ROWS_BYTES, /* where consumers share keys */
        NOTED_AT = P_AT + SHARES * TILE * BLOCK * 4,
        ITEMS_AT = NOTED_AT + STAGES * NOTED_BYTES,
        TILE_FULL = ITEMS_AT + sizeof(grad_item) * ITEMS, /* barriers */
        TILE_EMPTY = TILE_FULL + SLOT,
        P_FULL = TILE_EMPTY + SLOT,
        P_EMPTY = P_FULL + SLOT,
        RAW = P_EMPTY + SLOT, /* a block for the cleaners */
        FULL = RAW + SLOT * STAGES,
        EMPTY = FULL + SLOT * STAGES,
        ITEM_FULL = EMPTY + SLOT * STAGES,
        ITEM_EMPTY = ITEM_FULL + SLOT * ITEMS,
        END = ITEM_EMPTY + SLOT * ITEMS,
        BYTES = END + PH_ATOM /* to align the start */
    };
    static_assert((int)BYTES <= (int)PH_FAST_BYTES, "shared memory of an SM");
    static_assert(PRODUCER_REGISTERS + CONSUMERS * CONSUMER_REGISTERS <=
                      registers_of_launch(THREADS),
                  "consumers would wait for registers for ever");
};

/* Which tensors an item owns and walks over. */
struct grad_maps {
    const tensor_map *x, *y, *a, *b;
};

template <class T> DEVICE grad_item *grad_slot(uint32_t base, int n)
{
    return (grad_item *)shared_pointer(base + T::ITEMS_AT) + stage_of<ITEMS>(n);
}

/* The n-th item of this CTA, once it is there. */
template <class T> DEVICE const grad_item &begin_grad_item(uint32_t base, int n)
{
    wait_stage<ITEMS>(base + T::ITEM_FULL, n);
    return *grad_slot<T>(base, n);
}

/* A thread is through with the n-th item. */
template <class T> DEVICE void end_grad_item(uint32_t base, int n)
{
    barrier_arrive(base + T::ITEM_EMPTY + SLOT * stage_of<ITEMS>(n));
}

/* Is some pair of the tile and a block hidden? */
template <class T> DEVICE int is_grad_edge(const grad_item &it, int block)
{
    return block * T::BLOCK < it.all_lo || block * T::BLOCK + T::BLOCK > it.all_hi;
}

/* q heads that share a key head, and which of them an item walks over. */
template <class T> DEVICE int walked_heads(const ph_cuda_schedule &plan)
{
    return T::OWNS_KEYS ? plan.k_group.by : 1;
}

template <class T>
DEVICE int walked_head(const ph_cuda_schedule &plan, const grad_item &it, int n)
{
    return T::OWNS_KEYS ? it.head * plan.k_group.by + n
                        : ph_divide(it.head, &plan.k_group);
}

#endif
