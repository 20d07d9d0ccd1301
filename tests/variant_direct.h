/*
 * variant_direct.h - a random problem of variant_case.h straight through the library, its
 * results as the file that `polyhead run --weights --stats` would write.
 */
#ifndef VARIANT_DIRECT_H
#define VARIANT_DIRECT_H

#include "polyhead_layer.h"
#include "variant_case.h"

/* NULL when the library refuses; *why says why. Release the file with ph_file_free.
   `path`: where the file may be written. *why is NULL too for the one thing that a layer
   cannot say: rotation where queries are elsewhere than the keys of the same x. */
ph_file *variant_direct(ph_ctx *ctx, const variant_case *c, const char *path,
                        const char **why);

/* Called with every plan of core mode before it runs, unless NULL. */
extern void (*variant_direct_change)(ph_plan *plan);

#endif
