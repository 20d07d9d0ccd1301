/*
 * variant.h - what a head variant is to the engine.
 *
 * For now a variant is its description and a check of its options; plain attention needs
 * no hook. Variants that mix heads or change the normaliser will hang their hooks here.
 */
#ifndef PH_ATTN_VARIANT_H
#define PH_ATTN_VARIANT_H

#include "base/base.h"

struct ph_plan;

typedef struct ph_variant {
    ph_variant_info info;
    /* Reads the text behind "name:" ("" if none); fails with a sentence in the plan's
       ctx. */
    ph_status (*setup)(struct ph_plan *plan, const char *options);
} ph_variant;

#endif
