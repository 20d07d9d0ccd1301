/*
 * blocks.h - the sizes into which work is cut.
 *
 * PH_BLOCK, PH_SPLIT and PH_CHUNK are part of the result: the online softmax rescales at
 * every block and merges at every split, and dq is summed by chunk, at absolute key
 * positions. Row counts only distribute work and may change freely.
 */
#ifndef PH_ATTN_BLOCKS_H
#define PH_ATTN_BLOCKS_H

#include "kernels/kernels.h"

enum {
    PH_BLOCK = PH_STRIP_LD, /* keys between two updates of row_max */
    PH_CHUNK = 256,         /* keys of one partial sum of dq */

    PH_ROWS_MAX = 512,   /* rows of one forward work item, for which k is packed once; a
                            multiple of mr, halved twice too */
    PH_ROWS_MIN = 96,    /* ... when there would be too few items for all threads */
    PH_ITEMS_WANTED = 4, /* items per thread that even out their unequal cost */
    PH_GRAD_ROWS = 96    /* rows of a block of p and ds, backward */
};

#endif
