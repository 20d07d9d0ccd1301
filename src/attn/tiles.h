/*
 * tiles.h - the sizes that cut the work; numbers only.
 *
 * PH_BLOCK and PH_SPLIT are part of the result: a row's running softmax is rescaled at
 * every block and merged at every split, at these absolute key positions, whoever
 * computes it. The others only say who computes what and may change freely.
 */
#ifndef PH_ATTN_TILES_H
#define PH_ATTN_TILES_H

#include "kernels/kernels.h"

enum {
    PH_BLOCK = PH_STRIP_LD, /* keys between two updates of row_max */
    PH_CHUNK = 256,         /* keys whose partial sum of dq stands on its own */

    PH_ROWS_MAX = 512,   /* rows of one forward work item, for which k is packed once; a
                            multiple of mr, halved twice too */
    PH_ROWS_MIN = 96,    /* ... when there would be too few items for all threads */
    PH_ITEMS_WANTED = 4, /* items per thread that even out their unequal cost */
    PH_GRAD_ROWS = 96    /* rows of a backward tile */
};

#endif
