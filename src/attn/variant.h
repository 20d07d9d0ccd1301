/*
 * variant.h - what a head variant is to the engine.
 *
 *     q k^T -> mix heads of the logits -> mask, normalise rows -> mix heads of the
 *     weights -> times v
 *
 * A variant changes attention in at most three places, all between the two products: it
 * may mix the heads of the logits, normalise rows in its own way, and mix the heads of
 * the weights. One that does none of this runs in the stream driver, all others in the
 * joint one. What a variant adds around attention (how a layer makes q, k, v and a gate)
 * is in variants/kind.h.
 */
#ifndef PH_ATTN_VARIANT_H
#define PH_ATTN_VARIANT_H

#include "base/base.h"

struct ph_plan;
struct ph_call;
struct ph_layer_kind;

/* Who sums a gradient: the item that owns the query rows, the one that owns the keys, or
   nobody (only the gradient of the tile itself is wanted). Extras that belong to neither
   are summed by row items into shares that are added in order. */
typedef enum ph_own { PH_OWN_NONE, PH_OWN_ROWS, PH_OWN_KEYS } ph_own;

/* One block of keys against some query rows, all heads that are mixed. Row (h, i) of w
   has PH_STRIP_LD floats; columns [c0, c1) are in use, computed up to the next multiple
   of 16. */
typedef struct ph_tile {
    int batch, heads, rows;
    const int *token; /* (rows) query index */
    int j0, c0, c1;   /* keys j0 + [c0, c1) */
    float *w;         /* (heads, rows, PH_STRIP_LD) */
} ph_tile;

/* A linear map over the heads of every (row, key). */
typedef struct ph_stage {
    /* tile->w in place. `spare` has room for (heads, PH_STRIP_LD) floats. */
    void (*forward)(const struct ph_call *call, ph_tile *tile, float *spare);
    /* grad->w holds the gradient of the result and becomes that of `in`. Gradients of
       extras are added to where ph_extra_gradient says for this owner. */
    void (*backward)(const struct ph_call *call, const ph_tile *in, ph_tile *grad,
                     ph_own own, float *const *dextra, float *spare);
} ph_stage;

enum { PH_EXTRAS_MAX = 16, PH_STATE_MAX = 64 };

typedef struct ph_variant {
    ph_variant_info info;
    /* Reads the text behind "name:" ("" if none), fills plan->state and plan->extra;
       fails with a sentence in the plan's ctx. NULL: exists in layers only. */
    ph_status (*setup)(struct ph_plan *plan, const char *options);
    ph_stage mix_logits, mix_weights;  /* forward NULL: none */
    const struct ph_norm *norm;        /* NULL: softmax */
    const struct ph_layer_kind *layer; /* NULL: q, k, v as usual; extras are parameters */
} ph_variant;

/* ---- options: "key=value,key=value" ---- */

typedef struct ph_option {
    const char *key;
    double *number;     /* where a number goes, already set to its default; or NULL */
    double least, most; /* its range */
    int whole;          /* 1: only whole numbers */
    int *word;          /* where the index of a word goes, or NULL */
    const char *words;  /* the words, separated by '|' */
} ph_option;

/* Reads `text`; every key at most once, unknown ones are refused by name. An option with
   key "" takes a value that stands alone ("head" in "gated:head"). */
ph_status ph_options_read(ph_ctx *ctx, const char *variant, const char *text,
                          const ph_option *list, int count);

#endif
