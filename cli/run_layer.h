/*
 * run_layer.h - what the two files of layer mode share: the layer that IN describes.
 *
 *     run_layer.c       finds, checks and measures its tensors and options
 *     run_layer_call.c  makes a ph_layer of it, runs it, brings its results into OUT
 */
#ifndef PH_CLI_RUN_LAYER_H
#define PH_CLI_RUN_LAYER_H

#include "run.h"

/* Parameters, in the order of ph_layer_weights. */
enum { WQ, WK, WV, WO, BQ, BK, BV, BO, Q_NORM, K_NORM, RUN_PARAMETERS };

/* A matrix of the layer, found and measured. */
typedef struct run_matrix {
    const ph_tensor *tensor;
    int per_head; /* 1: (heads, in_dim, dim) */
    int heads, in_dim, dim;
} run_matrix;

typedef struct run_layer_job {
    run_common common;
    const ph_tensor *x, *memory, *dout;
    const ph_tensor *parameter[RUN_PARAMETERS]; /* NULL: not in IN */
    run_matrix q, k, v;
    int model_dim, memory_dim, out_dim; /* memory_dim: of x where IN has no memory */
    double rope_base;                   /* 0: no rotary positions */
    int rope_interleaved;
} run_layer_job;

/* Forward, and backward where dout is given; makes every tensor of OUT. */
int run_layer_call(run_job *job, run_layer_job *m);

#endif
