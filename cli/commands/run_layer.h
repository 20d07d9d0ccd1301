/*
 * run_layer.h - what the files of layer mode share: the layer that IN describes.
 *
 *     run_layer.c          finds, checks and measures its tensors and options
 *     run_layer_variant.c  the same where a variant has other tensors
 *     run_rewrite.c        tensors in other forms: --transposed, value_memory
 *     run_cache.c          past, k_cache, v_cache
 *     run_layer_call.c     makes a ph_layer of it, runs it
 *     run_layer_chunks.c   runs it in chunks of rows, which takes less memory
 *     run_layer_params.c   its parameters, by the list of the library; gradients
 */
#ifndef PH_CLI_RUN_LAYER_H
#define PH_CLI_RUN_LAYER_H

#include "commands/cmd_run.h"
#include "polyhead_layer.h"

enum { RUN_PARAMETERS = 40 }; /* at most */

enum { RUN_PAST, RUN_K_CACHE, RUN_V_CACHE, RUN_CACHE_TENSORS };

/* A matrix of the layer, found and measured. */
typedef struct run_matrix {
    const ph_tensor *tensor;
    int per_head; /* 1: (heads, in_dim, dim) */
    int heads, in_dim, dim;
} run_matrix;

typedef struct run_layer_job {
    run_common common;
    char variant[320]; /* as the library is told: with sizes that only tensors say */
    int plain;         /* 1: all its tensors are the usual ones */
    const ph_tensor *x, *memory, *dout, *wo;
    run_matrix q, k, v;
    int model_dim, memory_dim, out_dim; /* memory_dim: of x where IN has no memory */
    double rope_base;                   /* 0: no rotary positions */
    int rope_interleaved;

    const ph_tensor *cache[RUN_CACHE_TENSORS]; /* NULL: no cache */

    ph_layer_desc desc;
    int zero_scale; /* --scale 0, which the library would take for the default */
    int shifted;    /* 1: keys from x, but queries at other positions: x is memory too */
    const ph_tensor *parameter[RUN_PARAMETERS]; /* as ph_layer_param lists them; NULL:
                                                   not in IN */
    size_t count[RUN_PARAMETERS];    /* elements of each, as the library sees them */
    float *gradient[RUN_PARAMETERS]; /* as the library gives them; NULL: not wanted */
    void *result[RUN_PARAMETERS];    /* as they stand in OUT, in their own types */
} run_layer_job;

/* ---- run_layer.c ---- */

/* wq, wk or wv, in both forms. fallback: heads when the option is not given; 0: it must
   be. */
int run_measure(run_job *job, const char *name, const char *option, int64_t given,
                int fallback, int in_dim, run_matrix *w);

/* ---- run_rewrite.c ---- */

/* Tensors in the form that the library takes, and afterwards gradients as IN has them. */
int run_rewrite_inputs(run_job *job);
int run_rewrite_gradients(run_job *job);

/* Whether --transposed concerns this tensor. */
int run_is_matrix(const char *name);

/* ---- run_cache.c ---- */

/* past, k_cache and v_cache, if IN has them: the capacity becomes attn.kv_len. */
int run_find_caches(run_job *job, run_layer_job *m);
/* The caches in OUT with what IN holds; the call appends to them. */
int run_make_caches(run_job *job, run_layer_job *m, const ph_layer *layer,
                    ph_layer_args *args);
ph_dtype run_cache_type(const run_job *job, const run_layer_job *m); /* in OUT */

/* ---- run_layer_variant.c ---- */

/* The next part of "kind:options+core:options", or NULL. */
const char *run_next_part(const char *text);

/* Is this one of the parts of --variant? */
int run_variant_is(const run_job *job, const char *name);

/* Every tensor of IN must be one that the variant may have. */
int run_layer_names_check(run_job *job);

/* Heads and their sizes, where the tensors of a variant say them in their own way. */
int run_measure_variant(run_job *job, run_layer_job *m);

/* ---- run_layer_params.c ---- */

/* Finds and checks every parameter of the layer; no other may be in IN. */
int run_find_parameters(run_job *job, run_layer_job *m, const ph_layer *layer);
/* As floats, for the library. `list` is what ph_layer_weights.extra points into. */
int run_load_parameters(run_job *job, run_layer_job *m, const ph_layer *layer,
                        const float *list[RUN_PARAMETERS], ph_layer_weights *weights);
/* Buffers of their gradients, in OUT and for the library. */
int run_make_gradients(run_job *job, run_layer_job *m, const ph_layer *layer,
                       ph_layer_grads *grads);
/* Gradients in the types in which they stand in OUT. */
int run_finish_gradients(run_job *job, run_layer_job *m, const ph_layer *layer);

/* ---- run_layer_chunks.c ---- */

/* 1: a forward pass that run_chunks can run. */
int run_chunks_apply(const run_job *job, const run_layer_job *m);
/* The forward pass with the bits of ph_layer_forward. x is not readable afterwards. */
ph_status run_chunks(run_job *job, const run_layer_job *m,
                     const ph_layer_weights *weights, const ph_layer_args *args);

/* ---- run_layer_call.c ---- */

/* Forward, and backward where dout is given; makes every tensor of OUT. */
int run_layer_call(run_job *job, run_layer_job *m);

#endif
