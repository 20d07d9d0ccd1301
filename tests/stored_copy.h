/*
 * stored_copy.h - floats as a file would store them.
 */
#ifndef STORED_COPY_H
#define STORED_COPY_H

#include "polyhead.h"

/* A copy in another type that ends at an unmapped page (guard_free). Of block types count
   is a multiple of 32. */
void *stored_copy(const float *x, size_t count, ph_dtype type);

#endif
