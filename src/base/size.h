/*
 * size.h - checked size arithmetic.
 *
 * The only place where sizes that come from outside (a file, a caller, a command line)
 * are multiplied, added or rounded up. Every function returns 0 and stores the result, or
 * returns -1 and leaves *out alone when the true result does not fit.
 */
#ifndef PH_BASE_SIZE_H
#define PH_BASE_SIZE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

static inline int ph_size_mul(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b) return -1;
    *out = a * b;
    return 0;
}

static inline int ph_size_add(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b) return -1;
    *out = a + b;
    return 0;
}

/* The next multiple of `unit`, a power of two. */
static inline int ph_size_align_up(size_t a, size_t unit, size_t *out)
{
    if (a > SIZE_MAX - (unit - 1)) return -1;
    *out = (a + unit - 1) & ~(unit - 1);
    return 0;
}

/* Product of the dims in order; 1 for rank 0. Dims before a zero may still overflow,
   those after it cannot. */
static inline int ph_size_product(const size_t *dims, int rank, size_t *out)
{
    size_t product = 1;
    for (int i = 0; i < rank; i++)
        if (ph_size_mul(product, dims[i], &product)) return -1;
    *out = product;
    return 0;
}

/* size_t to int, where it fits. */
static inline int ph_size_to_int(size_t a, int *out)
{
    if (a > INT_MAX) return -1;
    *out = (int)a;
    return 0;
}

#endif
