/*
 * base.h - small helpers that every folder may use; no knowledge of attention.
 */
#ifndef PH_BASE_BASE_H
#define PH_BASE_BASE_H

#include <stddef.h>
#include <stdint.h>

#include "base/quant.h"
#include "polyhead.h"

#define PH_ALIGN 64 /* bytes: a cache line, and the widest vector */

/* Leaves the function with the status of `call` unless it is PH_OK. */
#define PH_TRY(call)                                                                     \
    do {                                                                                 \
        ph_status try_status = (call);                                                   \
        if (try_status != PH_OK) return try_status;                                      \
    } while (0)

static inline int ph_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int ph_max(int a, int b)
{
    return a > b ? a : b;
}

/* The smallest multiple of `step` that is at least n; for sizes already checked. */
static inline int ph_round_up(int n, int step)
{
    return (n + step - 1) / step * step;
}

static inline int ph_div_up(int n, int step)
{
    return n / step + (n % step != 0);
}

static inline size_t ph_dtype_size(ph_dtype type)
{
    return type == PH_F32 ? 4 : 2;
}

/* Bytes of `index` elements; of whole blocks where the type has blocks. */
static inline int64_t ph_offset(ph_dtype type, int64_t index)
{
    if (type == PH_F32) return index * 4;
    if (type == PH_F16 || type == PH_BF16) return index * 2;
    const int64_t blocks =
        ph_dtype_is_k(type) ? index / PH_K_BLOCK : index / PH_QUANT_BLOCK;
    return blocks * ph_quant_bytes(type);
}

/* The address `index` elements behind `base` in a tensor of the given type; where the
   type has blocks, that of the block which holds the element. */
static inline const void *ph_at(const void *base, ph_dtype type, int64_t index)
{
    return (const char *)base + ph_offset(type, index);
}

static inline void *ph_at_out(void *base, ph_dtype type, int64_t index)
{
    return (char *)base + index * (int64_t)ph_dtype_size(type);
}

#endif
