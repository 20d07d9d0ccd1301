/*
 * guard.h - memory that ends where an unmapped page begins: a touch beyond the end is a
 * fault at once, in every build.
 *
 *     ph_options o = guard_options(isa, threads);     a ctx that allocates only such
 */
#ifndef GUARD_H
#define GUARD_H

#include <stddef.h>

#include "polyhead.h"

/* A block whose last byte is the last of a page, so it is aligned as its size is; filled
   with a pattern that reads as NaN. */
void *guard_alloc(size_t bytes);
void guard_free(void *block); /* accepts NULL */

ph_options guard_options(const char *isa, int threads);

#endif
