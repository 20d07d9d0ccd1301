/*
 * stored_copy.h - floats as a file would store them.
 */
#ifndef STORED_COPY_H
#define STORED_COPY_H

#include <stdint.h>

#include "polyhead.h"

/* A copy in another type that ends at an unmapped page (guard_free). Of block types count
   is a multiple of their block. */
void *stored_copy(const float *x, size_t count, ph_dtype type);

/* Writes the scale of a block and, where its type has one, the minimum, both f16. */
void stored_halves(uint8_t *block, ph_dtype type, uint16_t scale, uint16_t least);

#endif
