/*
 * backward_call.h - one backward call of a layer: arguments, scratch, and its matrix
 * products (backward_products.c); layer_backward.c runs them in order.
 */
#ifndef PH_LAYER_BACKWARD_CALL_H
#define PH_LAYER_BACKWARD_CALL_H

#include "layer/layer.h"

/* Arguments and scratch of one call. */
typedef struct ph_backward_call {
    const ph_layer *layer;
    const ph_layer_weights *weights;
    const ph_layer_args *args;
    const ph_layer_grads *grads;
    const float *param[PH_LAYER_PARAMS];
    float *dparam[PH_LAYER_PARAMS];
    ph_tokens x_tokens, key_tokens;
    ph_layer_activations saved;
    ph_kind_call kind;
    int want_q, want_k, want_v; /* whether anything needs dq, dk, dv */
    const void *x, *source;     /* x and the source of the keys, padding rows zero */
    const float *dout;          /* as floats, padding rows zero */
    float *x_copy, *source_copy, *dout_copy;
    ph_layer_slice slice;
    float *dq, *dk, *dv; /* of the projections */
    float *dx, *dmemory; /* as floats */
    float *ones;         /* (q_rows or kv_rows, the larger) */
    float *q_table, *kv_table, *q_sums, *k_sums;
    float *gates;      /* product of the kind's and the caller's */
    ph_workspace work; /* for one product or attention at a time */
} ph_backward_call;

/* A list of products that run in parallel. */
typedef struct ph_products {
    ph_gemm list[PH_GEMM_MAX];
    int count;
} ph_products;

/* Of the current slice: dconcat = dout wo^T; dwo; v of its heads, recomputed. */
ph_products ph_backward_dconcat(const ph_backward_call *c);
ph_products ph_backward_dwo(const ph_backward_call *c);
ph_products ph_backward_recompute_v(const ph_backward_call *c);

/* Gradients of parameters, and dx = dq wq^T. */
ph_products ph_backward_weights(const ph_backward_call *c);
/* dk wk^T (third 0) and dv wv^T (third 1), added to dmemory or dx. */
ph_products ph_backward_dsource(const ph_backward_call *c, int third);

#endif
