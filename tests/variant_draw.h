/*
 * variant_draw.h - random descriptions of problems for one variant: its options, sizes,
 * masks and further tensors, as far as they combine with it.
 */
#ifndef VARIANT_DRAW_H
#define VARIANT_DRAW_H

#include "variant_case.h"

/* Names of all variants, ended by NULL. */
extern const char *const variant_names[];

/* The index-th problem of a variant; layer 0: core mode. Of eight one is long and one has
   no rows or no keys; of four layers one has a second part after a +. */
void variant_draw(variant_case *c, const char *name, int layer, uint64_t seed, int index);

/* Its sizes and tensors in one line. */
const char *variant_text(const variant_case *c);

#endif
