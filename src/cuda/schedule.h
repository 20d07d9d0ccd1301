/*
 * schedule.h - how the CTAs of a fast kernel share tiles of query rows.
 */
#ifndef PH_CUDA_SCHEDULE_H
#define PH_CUDA_SCHEDULE_H

#include "cuda/wgmma_layout.h"

/* Tiles of the fast kernels, by head dim. Keys of a block, and rows, are what a box of a
   tensor copy holds. */
enum {
    PH_FAST_KEYS = 128,
    PH_FAST_ROWS_64 = 192,
    PH_FAST_ROWS_128 = 128,
    PH_FAST_BYTES = 227 << 10 /* of shared memory: all of an SM */
};

typedef struct ph_cuda_schedule {
    int heads;            /* batch * q_heads */
    int row_tiles;        /* of one head */
    int items;            /* tiles of all heads */
    int section;          /* heads whose keys and values stay in the L2 cache together */
    int k_group, v_group; /* q heads that share a key head, a value head */
    unsigned *counter;    /* items taken so far; 0 before the launch */
} ph_cuda_schedule;

/* Item `index`: the head and the tile of rows. One section after the other; within it
   the last tiles first, which see most keys under a causal mask, so that the short ones
   fill the end; heads of a group side by side. */
PH_BOTH void ph_cuda_item(const ph_cuda_schedule *s, int index, int *head, int *tile)
{
    int first = index / (s->row_tiles * s->section) * s->section;
    int count = s->section < s->heads - first ? s->section : s->heads - first;
    int rest = index - first * s->row_tiles;
    *head = first + rest % count;
    *tile = s->row_tiles - 1 - rest / count;
}

#endif
