/*
 * sizes.h - constants of the kernels, and what they prefetch.
 */
#ifndef PH_KERNELS_SIZES_H
#define PH_KERNELS_SIZES_H

#include "base/base.h"

#define PH_LOG2E 1.4426950408889634
#define PH_LN2   0.69314718055994531

enum {
    PH_STRIP_LD = 128,   /* columns of a score strip, and keys in a block */
    PH_SPLIT = 512,      /* keys whose softmax runs on its own, then is merged in order */
    PH_SPLIT_BLOCKS = 4, /* blocks of PH_STRIP_LD keys in it */
    PH_LANES = 16,       /* lanes of a row sum */
    PH_PACK_SLACK = 64,  /* floats that may be written behind a packed operand */
    PH_PREFETCH_BYTES = 128, /* prefetched per step of k by memory-bound products */
    PH_PREFETCH_TRICKLE = 32,/* the same by compute-bound ones */
    PH_RANK_MAX = 16,        /* largest rank of the key part of a mix */
    PH_MR_MAX = 12,          /* largest mr of any table */
    PH_AMX_TILE = 16,        /* rows of an AMX tile, and columns of an accumulator */
    PH_AMX_STEP = 32,        /* bf16 elements of k that one AMX product sums */
    PH_BF16_TERMS = 3,       /* terms of a bf16x3 split */
    PH_AMX_BLOCK = 32,       /* rows and columns of one bf16x3 product */
    PH_FEW_ROWS = 2,         /* rows for which FMAs are faster than AMX tiles */
    PH_STRIP_MAX = 16,       /* largest strip: mr rows, or those of an AMX tile */
    PH_NR_MAX = 32           /* largest nr of any table */
};

/* Memory that is needed next, for kernels that have time to prefetch it. */
enum { PH_PREFETCH = 5 };
typedef struct ph_prefetch {
    struct {
        const char *at, *end;
    } part[PH_PREFETCH];
    int done; /* parts that have been prefetched */
} ph_prefetch;

/* The next `bytes` to prefetch, or NULL if none are left. The tail of a part is skipped
   if it has less than seven eighths of them. */
static inline const void *ph_prefetch_take(ph_prefetch *p, int64_t bytes)
{
    for (; p->done < PH_PREFETCH; p->done++) {
        const char *at = p->part[p->done].at;
        if (p->part[p->done].end - at < bytes - bytes / 8) continue;
        p->part[p->done].at += bytes;
        return at;
    }
    return NULL;
}

#endif
