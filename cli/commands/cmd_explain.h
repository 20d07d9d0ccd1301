/*
 * cmd_explain.h - the two halves of `polyhead explain`: a worked example, a layer's cost.
 */
#ifndef PH_CLI_EXPLAIN_H
#define PH_CLI_EXPLAIN_H

#include "framework/cli.h"

/* A layer of attention: model_dim = heads * head_dim, all sizes at least 1. */
typedef struct cost_shape {
    int64_t batch;
    int64_t len;       /* tokens of a sequence; with decode: keys in the cache */
    int64_t model_dim;
    int64_t heads, k_heads;
    int decode;        /* 1: one new token per sequence */
    int causal;        /* 1: half of the scores */
    int dtype;         /* index into cli_dtype_names */
} cost_shape;

/* Both print their result and return an exit code. */
int explain_example(ph_ctx *ctx, int as_json);
int explain_cost(ph_ctx *ctx, const cost_shape *shape, int compare, int as_json);

#endif
