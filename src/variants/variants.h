/*
 * variants.h - the variants of this build.
 */
#ifndef PH_VARIANTS_VARIANTS_H
#define PH_VARIANTS_VARIANTS_H

#include "attn/variant.h"

#define VARIANT(name) extern const ph_variant ph_variant_##name;
#include "variants/list.h"
#undef VARIANT

#endif
