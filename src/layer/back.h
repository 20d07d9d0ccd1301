/*
 * back.h - one backward call of a layer: what it was given, what it works in, and its
 * steps as lists of products (back_products.c); layer_backward.c walks through them.
 */
#ifndef PH_LAYER_BACK_H
#define PH_LAYER_BACK_H

#include "layer/layer.h"

/* One call: what it was given and the pieces of scratch it works in. */
typedef struct ph_back {
    const ph_layer *layer;
    const ph_layer_weights *weights;
    const ph_layer_args *args;
    const ph_layer_grads *grads;
    const float *param[PH_LAYER_PARAMS];
    float *dparam[PH_LAYER_PARAMS];
    ph_layer_kept kept;
    ph_kind_call kind;
    int want_q, want_k, want_v; /* whether anything needs dq, dk, dv */
    const void *x, *source; /* x and where keys come from, with zeros beyond lengths */
    const float *dout;      /* as floats, with zeros beyond lengths */
    float *x_copy, *source_copy, *dout_copy;
    ph_layer_slice slice;
    float *dq, *dk, *dv; /* of the parts */
    float *dx, *dmemory; /* as floats */
    float *ones;         /* (q_rows or kv_rows, the larger) */
    float *q_table, *kv_table, *q_sums, *k_sums;
    float *gates;      /* the kind's and the caller's together */
    ph_workspace work; /* for one product or attention at a time */
} ph_back;

/* A list of products that run side by side. */
typedef struct ph_products {
    ph_gemm list[PH_GEMM_MAX];
    int count;
} ph_products;

/* Of the slice at hand: from dout through wo; dwo; v of its heads, made again. */
ph_products ph_back_wide(const ph_back *c);
ph_products ph_back_wo(const ph_back *c);
ph_products ph_back_values(const ph_back *c);

/* Gradients of parameters, and what q gives to dx; what k (third 0) and v (third 1) give
   to dmemory, or add to dx. */
ph_products ph_back_first(const ph_back *c);
ph_products ph_back_next(const ph_back *c, int third);

#endif
