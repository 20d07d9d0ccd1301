/*
 * variants.h - the variants of this build, and how their names are read.
 */
#ifndef PH_VARIANTS_VARIANTS_H
#define PH_VARIANTS_VARIANTS_H

#include "attn/variant.h"

#define VARIANT(name) extern const ph_variant ph_variant_##name;
#include "variants/list.h"
#undef VARIANT

/* The i-th, or NULL after the last. */
const ph_variant *ph_variant_at(int i);

/* Finds the name in front of "name:options"; what follows up to '+' or the end are the
   options. PH_UNSUPPORTED with the list of names if there is none. */
ph_status ph_variant_find(ph_ctx *ctx, const char *text, const ph_variant **out);

/* "gqa:G" and "mqa" at the start of attn->variant become k_heads and v_heads; what is
   left of the text (mha, if nothing) is what plans and layers know. */
ph_status ph_variant_take_heads(ph_ctx *ctx, ph_attn *attn);

/* A variant of a layer, "kind:options+gated:options+core:options", in any order: at most
   one variant changes the layer, one more may be a gate after it, the others are for the
   plan. */
typedef struct ph_variant_parts {
    const ph_variant *kind[2];       /* NULL: none; the second follows the first */
    char options[2][PH_VARIANT_MAX]; /* of the kinds */
    char core[PH_VARIANT_MAX];       /* for the plan */
} ph_variant_parts;

ph_status ph_variant_split(ph_ctx *ctx, const char *text, ph_variant_parts *parts);

/* A variant of a plan (NULL: mha), "talking+entmax:alpha=1.5": at most one mixes heads,
   at most one normalises rows. */
ph_status ph_variant_core(ph_ctx *ctx, const char *text, ph_core *core);

#endif
