/*
 * schedule.h - how the CTAs of a fast kernel share tiles of query rows.
 */
#ifndef PH_CUDA_SCHEDULE_H
#define PH_CUDA_SCHEDULE_H

#include "cuda/wgmma_layout.h"

/* Tiles of the fast kernels, by head dim. Keys of a block, and rows, are what a box of a
   tensor copy holds. Blocks and splits are part of the result. */
enum {
    PH_FAST_KEYS = 128,
    PH_FAST_KEYS_256 = 64,
    PH_FAST_SPLIT = 2048, /* keys that are summed from nothing, then merged in order */
    PH_FAST_SPLIT_256 = 4096,
    PH_FAST_ROWS_64 = 192,
    PH_FAST_ROWS = 128,
    PH_FAST_ROWS_GRAD = 128,     /* or keys, of the backward pass: of a tile, */
    PH_FAST_ROWS_GRAD_256 = 64,  /* those of keys at head dim 256, */
    PH_FAST_BLOCK_GRAD = 64,     /* and at most of a tensor copy, */
    PH_FAST_BLOCK_GRAD_256 = 32, /* those of rows' blocks at head dim 256 */
    PH_FAST_DIM_CAPPED = 64,     /* head dims with a soft-cap at most, of that pass */
    PH_FAST_ROWS_DECODE = 64,
    PH_FAST_ROWS_FEW = 16,
    PH_FAST_ROWS_STREAM = 64, /* see fast_short.cu */
    PH_FAST_STREAMS = 3,
    PH_FAST_GATHERED = 1 << 30, /* rows, and keys, where rows are gathered, at most */
    PH_FAST_ROWS_STORED = 16, /* of a tensor copy of the output: those of a warp */
    PH_FAST_MERGERS = 2,      /* warps of a CTA that merge decoded rows: the cleaners */
    PH_FAST_BYTES = 227 << 10 /* of shared memory: all of an SM */
};

/* What makes a score besides scale and positions; a kernel each, because a kernel of all
   would spill registers. Few rows have registers for any but dropout. */
typedef enum ph_cuda_scores {
    PH_SCORES_PLAIN,
    PH_SCORES_SOFTCAP,
    PH_SCORES_ALIBI,
    PH_SCORES_DROPOUT, /* of weights; not while decoding */
    PH_SCORES_COUNT,
    PH_SCORES_ANY = PH_SCORES_COUNT /* of those before dropout: the call says which */
} ph_cuda_scores;

/* A number that the kernels divide by, as a product and a shift: the thread that takes
   items would wait longest for its divisions. */
typedef struct ph_divisor {
    int by;
    uint32_t factor;
    int shift;
} ph_divisor;

static inline ph_divisor ph_divisor_of(int by)
{
    ph_divisor d = {by, 0, 0};
    while (d.shift < 31 && 1u << d.shift < (uint32_t)by) d.shift++;
    d.factor = (uint32_t)((((1ull << d.shift) - (uint64_t)by) << 32) / (uint64_t)by + 1);
    return d;
}

/* n / d.by, of n >= 0. */
PH_BOTH int ph_divide(int n, const ph_divisor *d)
{
    uint32_t high = (uint32_t)((uint64_t)(uint32_t)n * d->factor >> 32);
    return (int)((high + (uint32_t)n) >> d->shift);
}

typedef struct ph_cuda_schedule {
    int units;              /* batch * q_heads / group */
    int group;              /* q heads of a tile: they share keys and values */
    int tokens;             /* of a tile */
    ph_divisor row_tiles;   /* of one unit */
    ph_divisor splits;      /* of a tile, at most; 1 where a tile is one item */
    ph_divisor batch_units; /* of one batch row */
    int items;              /* of all units */
    int section_shift;      /* 1 << this many units are computed together, */
    int last;               /* up to this one, where the last section begins, */
    ph_divisor last_units;  /* of all units that are left */
    int box;                /* keys of one tensor copy */
    int out_map;            /* 1: the copy engine can store the output */
    ph_divisor k_group, v_group; /* q heads that share a key head, a value head */

    /* In the workspace. Counters are 0 before a launch, and again behind it. */
    unsigned *taken;   /* items, besides the first one of every CTA */
    unsigned *arrived; /* (units, row_tiles, mergers) splits that were stored */
    float *whole;      /* a tile per CTA: weighted values of earlier splits */
    float *partial;    /* (units, row_tiles, splits, tokens * group, dim) */
    float *stats;      /* (units, row_tiles, splits, tokens * group, 2) maximum and sum */
} ph_cuda_schedule;

/* Item `index`: the unit and the tile of rows. One section after the other, so that all
   SMs together read few keys and values at a time; within it the last tiles first, which
   see most keys under a causal mask, so that the short ones fill the end; heads of a
   group side by side. */
PH_BOTH void ph_cuda_item(const ph_cuda_schedule *s, int index, int *unit, int *tile)
{
    const int before = s->last * s->row_tiles.by;
    int rank; /* of the tile, from the last one on */
    if (index >= before) {
        rank = ph_divide(index - before, &s->last_units);
        *unit = s->last + index - before - rank * s->last_units.by;
    } else {
        const int row = index >> s->section_shift;
        const int section = ph_divide(row, &s->row_tiles);
        rank = row - section * s->row_tiles.by;
        *unit = index - (row << s->section_shift) + (section << s->section_shift);
    }
    *tile = s->row_tiles.by - 1 - rank;
}

/* The same where an item is one split of a tile: tiles that read the same keys side by
   side. */
PH_BOTH void ph_cuda_split_item(const ph_cuda_schedule *s, int index, int *unit,
                                int *tile, int *split)
{
    const int column = ph_divide(index, &s->row_tiles);
    *tile = index - column * s->row_tiles.by;
    *unit = ph_divide(column, &s->splits);
    *split = column - *unit * s->splits.by;
}

#endif
