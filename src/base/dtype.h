/*
 * dtype.h - what an element type takes in memory.
 */
#ifndef PH_BASE_DTYPE_H
#define PH_BASE_DTYPE_H

#include "polyhead.h"

/* The fewest consecutive elements that fill whole bytes, and how many bytes. Elements of
   a block type exist in whole blocks only. */
typedef struct ph_dtype_unit {
    const char *name; /* NULL: no type */
    int elements, bytes;
} ph_dtype_unit;

ph_dtype_unit ph_dtype_about(ph_dtype dtype);

/* Its name, for sentences about numbers that may be no type. */
static inline const char *ph_dtype_label(ph_dtype dtype)
{
    const char *name = ph_dtype_name(dtype);
    return name ? name : "no type";
}

static inline int ph_dtype_is_block(ph_dtype dtype)
{
    return dtype >= PH_Q8_0 && dtype <= PH_Q6_K;
}

static inline int ph_dtype_is_k(ph_dtype dtype)
{
    return dtype >= PH_Q4_K && dtype <= PH_Q6_K;
}

#endif
