/*
 * layer.h - the inside of a ph_layer, and what its files share.
 *
 *     create.c         checks a description; the variant's kind changes the shape
 *     about.c          properties of a layer
 *     check.c          checks the arguments of a call
 *     project.c        rows of tensors: copies, padding
 *     position.c       RMS norm and rotation of q and k, and their backward pass
 *     cache.c          rows of keys and values in the type and the pages of a cache
 *     gate.c           the product of the caller's gate and the kind's
 *     gather.c         queries of routed (token, head) pairs only
 *     helpers.c        schedules and bounds for initialising layers
 *     layer_forward.c  project, position, before, attend, after, output
 *     layer_backward.c the same steps from the end
 *     backward_products.c  those of them that are matrix products (backward_call.h)
 *     slices.c         the backward pass of attention for a few heads at a time
 *
 * Inside a layer all activations are floats, token-major: q is
 * (batch, q_len, q_heads*qk_dim) and so on; attention reads them through strides. The
 * projections of a ph_shape (variants/kind.h) say the exact sizes.
 */
#ifndef PH_LAYER_LAYER_H
#define PH_LAYER_LAYER_H

#include "variants/kind.h"

/* The named fields of ph_layer_weights, in the order in which they are listed. */
enum {
    PH_WQ,
    PH_WK,
    PH_WV,
    PH_WO,
    PH_BQ,
    PH_BK,
    PH_BV,
    PH_BO,
    PH_Q_NORM,
    PH_K_NORM,
    PH_NAMED,
    PH_LAYER_PARAMS = PH_NAMED + PH_EXTRAS_MAX
};

struct ph_layer {
    ph_ctx *ctx;
    ph_layer_desc desc; /* defaults filled in */
    ph_shape shape;
    const ph_layer_kind *kind[PH_KINDS]; /* NULL: mha; the second follows the first */
    ph_attn attn;   /* of the plan: shape.attn, where keys with summed gradients have one
                       head per gradient */
    ph_plan *plan;  /* attention on floats */
    ph_plan *slice; /* backward: attention of slice_heads; NULL: of all at once */
    int slice_heads;
    int recomputes_v;  /* 1: v is not saved, each slice recomputes its own */
    ph_projection out; /* wo */
    int q_rows;        /* tokens of x */
    int kv_rows;       /* tokens that a call projects to keys */
    int out_cols;      /* of out */
    int takes_pages;   /* 1: its caches may lie in pages */
    ph_param param[PH_LAYER_PARAMS]; /* all parameters */
    int params, named;               /* how many, and how many of them are named fields */
    int field[PH_NAMED];             /* which named field each of those is */
    ph_strides k_cache, v_cache;     /* layout of the caches */
    int angles;                      /* pairs of a head that are rotated; 0: none */
    double theta[];                  /* (angles) rotation of each pair per position */
};

/* Activations that backward needs; in ph_layer_args.saved or in the scratch. */
typedef struct ph_layer_activations {
    float *q, *k, *v;     /* the projections */
    float *q_raw, *k_raw; /* before the norm; equal to q, k where there is none */
    float *heads;         /* output of attention */
    float *lse;           /* (batch, q_heads, q_len) */
    float *kind[PH_BUFFERS];
} ph_layer_activations;

/* all: also what only backward needs. */
ph_layer_activations ph_layer_take_activations(const ph_layer *layer, ph_arena *arena,
                                               int all);

/* Floats of the projection v. */
size_t ph_layer_v_floats(const ph_layer *layer);

/* Whether the input of wo is not the output of attention itself. */
int ph_layer_makes_out(const ph_layer *layer);

/* ---- check.c ---- */

/* The named fields and the others of a call, by their place in ph_layer.param. */
void ph_layer_list(const ph_layer *layer, const ph_layer_weights *weights,
                   const float *list[PH_LAYER_PARAMS]);
void ph_layer_list_grads(const ph_layer *layer, const ph_layer_grads *grads,
                         float *list[PH_LAYER_PARAMS]);

/* Checks what forward and backward have in common; outputs are untouched until then. */
ph_status ph_layer_check(const ph_layer *layer, const ph_layer_weights *weights,
                         const ph_layer_args *args);
/* A checked ctx refuses outputs that overlap another tensor. */
ph_status ph_layer_check_alias(const ph_layer *layer, const ph_layer_weights *weights,
                               const ph_layer_args *args);
ph_status ph_layer_check_grads_alias(const ph_layer *layer,
                                     const ph_layer_weights *weights,
                                     const ph_layer_args *args,
                                     const ph_layer_grads *grads);
/* Refuses caches that are given but too small. */
ph_status ph_layer_check_cache_sizes(const ph_layer *layer, const ph_layer_args *args);

/* Like ph_layer_check for a backward call. */
ph_status ph_layer_check_grads(const ph_layer *layer, const ph_layer_weights *weights,
                               const ph_layer_args *args, const ph_layer_grads *grads);

/* ---- project.c ---- */

/* The tokens of x in a call, and those it projects to keys; `len` of the latter is 0
   where all keys are cached. */
ph_tokens ph_layer_x_tokens(const ph_layer *layer, const ph_layer_args *args);
ph_tokens ph_layer_key_tokens(const ph_layer *layer, const ph_layer_args *args);

/* to = from, converted; padding rows become 0. */
void ph_layer_copy(ph_ctx *ctx, const ph_tokens *tokens, int columns, void *to,
                   ph_dtype to_type, const void *from, ph_dtype from_type);
/* Padding rows of x become 0. */
void ph_layer_clear(const ph_tokens *tokens, int columns, void *x, ph_dtype type);

/* ---- gather.c ---- */

/* Scratch to gather tokens in, where shape.sparse_q; else empty. */
typedef struct ph_gather {
    int32_t *tokens; /* rows of x */
    void *x;         /* copies of those rows, of the layer's type */
    float *q;        /* their queries of one head */
} ph_gather;

ph_gather ph_layer_gather_scratch(const ph_layer *layer, ph_arena *arena);
size_t ph_layer_gather_bytes(const ph_layer *layer); /* of `work` */
/* q = x wq + bq where the gate is not 0, else 0. */
void ph_layer_gather(const ph_layer *layer, const ph_layer_weights *weights,
                     const void *x, const float *gate, const ph_gather *scratch,
                     ph_workspace work, float *q);

/* ---- gate.c ---- */

/* both = own * given, for every row. */
void ph_layer_multiply_gates(const ph_layer *layer, const float *own, const float *given,
                             float *both);
/* dboth becomes the gradient of own; dgiven, where wanted, is in the caller's shape. */
void ph_layer_multiply_gates_backward(const ph_layer *layer, const float *own,
                                      const float *given, float *dboth, float *dgiven);

/* ---- slices.c ---- */

/* Creates the plan of all heads, and that of a slice where the kinds want slices and
   attention allows them. */
ph_status ph_layer_plans(ph_layer *layer);

/* Buffers of one slice of a backward call, beside the kind's. Where there is only one
   slice these are the whole tensors. */
typedef struct ph_layer_slice {
    float *dconcat; /* (rows, slice of out) gradient of the input of wo */
    float *out;     /* (rows, slice of out) input of wo, where it is recomputed */
    float *dheads;  /* (rows, slice_heads, v_dim) gradient of the output of attention; of
                       each even head where there are twins */
    float *v;       /* (kv_rows, slice of v), where it is recomputed */
    float *lse, *dlse, *gate, *dgate; /* (batch, slice_heads, q_len) */
} ph_layer_slice;

/* Narrows `args` and `grads` of all heads to the heads from `first` on; rows of lse, dlse
   and gate are gathered into the slice. */
void ph_layer_slice_args(const ph_layer *layer, int first, const ph_layer_slice *slice,
                         ph_args *args, ph_grads *grads);
/* Scatters dgate of the slice into that of all heads. */
void ph_layer_slice_gates(const ph_layer *layer, int first, const ph_layer_slice *slice,
                          float *dgate);
/* The product that recomputes v of the heads from `first` on. */
ph_gemm ph_layer_slice_v(const ph_layer *layer, int first,
                         const ph_layer_weights *weights, const void *source, float *v);
/* Copies the columns of some heads: to (rows, count), from (rows, all) + first. */
void ph_layer_columns(ph_ctx *ctx, int rows, const float *from, int all, int first,
                      int count, float *to);

/* ---- cache.c ---- */

/* Whether the caches are k and v as attention reads them, which may lie in pages and have
   another type. */
int ph_shape_takes_pages(const ph_shape *shape);

/* Refuses pages and types that the layer's caches cannot have. */
ph_status ph_layer_check_pages(const ph_layer *layer);

/* Stores n floats as elements of the type, block types in whole blocks. */
void ph_layer_store(const ph_layer *layer, const float *x, int n, ph_dtype type,
                    void *to);

/* ---- position.c ---- */

/* Rotation of some tokens, whose positions are start[b] + t. */
typedef struct ph_rope_table {
    const float
        *table;  /* cos and sin of each angle, `angles` each, one line per position */
    int per_row; /* 1: every token has its own line; else those at t share line t */
} ph_rope_table;

/* Norm and rotation of one projection, forward or backward. */
typedef struct ph_position_args {
    const ph_layer *layer;
    const ph_projection *proj;
    const ph_tokens *tokens;
    ph_rope_table rope;
    const float *gain;         /* of the norm, or NULL: 1 */
    const float *raw;          /* rows as projected */
    float *x;                  /* forward: output rows, may be raw; backward: rows of the
                            gradient, in place */
    ph_strides to;             /* forward: strides of x, or of the cache */
    void *cache;               /* forward: where rows go instead of x; NULL: none */
    ph_dtype type;             /* of the cache */
    const int32_t *past;       /* tokens that it holds of each batch row; NULL: none */
    const int32_t *page_table; /* its pages, where it has any */
    float *sums;               /* backward: (ph_layer_chunks, gains) for dgain, or NULL */
} ph_position_args;

/* Fills theta[angles] and the shape's rope_scale. */
void ph_layer_angles(ph_layer *layer);

/* Floats of the table for positions from start (NULL: 0) on, and the table itself. */
size_t ph_layer_rope_floats(const ph_layer *layer, const ph_tokens *tokens,
                            const int32_t *start);
ph_rope_table ph_layer_rope_table(const ph_layer *layer, const ph_tokens *tokens,
                                  const int32_t *start, float *table);

/* Elements in the gain of a projection. */
int ph_layer_gains(const ph_layer *layer, const ph_projection *proj);
/* Whether a projection has a norm or a rotation. */
int ph_layer_positions(const ph_projection *proj);
int ph_layer_chunks(int rows);
void ph_layer_position(const ph_position_args *args);
void ph_layer_position_backward(const ph_position_args *args, float *dgain);

#endif
