/*
 * variant.h - the interface between the engine and head variants.
 *
 *     q k^T -> mix heads of the logits -> mask, normalise rows -> mix heads of the
 *     weights -> times v
 *
 * A variant changes attention between the two products: it mixes the heads of the logits
 * and of the weights, or it normalises rows in its own way. A plan may have one of each
 * (ph_core); with any but mha it runs in the joint driver (joint.h). What a variant adds
 * around attention (how a layer makes q, k, v and a gate) is in variants/kind.h.
 *
 * Mixing is linear in the heads of each (query i, key j):
 *
 *     out[to] = sum_from C[from][to] in[from]      C = row matrix of i + key matrix of j
 *     key matrix = diag(g_j) + sum_r w1_j^r (w2_j^r)^T
 *
 * so a variant only supplies the elements of these matrices and takes their gradients;
 * the driver has the loops.
 */
#ifndef PH_ATTN_VARIANT_H
#define PH_ATTN_VARIANT_H

#include "base/base.h"

struct ph_plan;
struct ph_call;
struct ph_layer_kind;

enum { PH_EXTRAS_MAX = 16, PH_STATE_MAX = 64, PH_VARIANT_MAX = 256 /* characters */ };

/* The two places where heads may be mixed. */
typedef enum ph_mix_at { PH_LOGITS, PH_WEIGHTS } ph_mix_at;

/* What the variants of a plan need; filled by their setup, which appends its extras. */
typedef struct ph_variant_needs {
    ph_param extra[PH_EXTRAS_MAX]; /* tensors of a call, in the order of ph_args.extra */
    int extras;
    unsigned
        shared; /* bit e: dextra[e] belongs to no single row or key: each row item has a
                            partial sum, and these are added in order */
    int mix[2]; /* by place: 1: heads are mixed there */
    int key_rank[2]; /* by place: rank of the key matrix; 0: there is none */
    int power;       /* 1: rows are entmax, not softmax */
    int learned;     /* entmax: 1 + the extra from which alpha is learned; 0: none */
    _Alignas(8) char mix_state[PH_STATE_MAX];  /* private to the variant that mixes */
    _Alignas(8) char norm_state[PH_STATE_MAX]; /* private to the one that normalises */
} ph_variant_needs;

typedef struct ph_variant {
    ph_variant_info info;
    /* Reads the text behind "name:" ("" if none) and fills plan->needs; fails with a
       sentence in the plan's ctx. NULL: exists in layers only. */
    ph_status (*setup)(struct ph_plan *plan, const char *options);

    /* Mixes heads: (q_heads, q_heads) [from][to] of one query. */
    void (*row_matrix)(const struct ph_call *call, ph_mix_at place, int batch, int token,
                       float *c);
    /* Backward of row_matrix: adds to dextra, from the gradient dc of the matrix. */
    void (*row_gradient)(const struct ph_call *call, ph_mix_at place, int batch,
                         int token, const float *dc, float *const *dextra);
    /* w1 (rank), w2 (rank), g of n keys from j0 on: (2*rank + 1, q_heads, PH_BLOCK);
       columns from n on are unspecified. */
    void (*key_weights)(const struct ph_call *call, ph_mix_at place, int batch, int j0,
                        int n, float *w);
    /* Backward of key_weights: stores gradients, from dw of the same layout. */
    void (*key_gradient)(const struct ph_call *call, ph_mix_at place, int batch, int j0,
                         int n, const float *dw, float *const *dextra);

    /* Normalises rows by entmax: alpha of a head, above 1; and its backward. */
    double (*alpha)(const struct ph_call *call, int head);
    void (*alpha_gradient)(const struct ph_call *call, int head, double dalpha,
                           float *const *dextra);

    int counts_heads; /* 1: gqa, mqa: only says how many heads k and v have */

    const struct ph_layer_kind *layer; /* NULL: q, k, v as usual; extras are parameters */
} ph_variant;

/* The variants between the two products: one that mixes heads (or mha, which does not),
   one that normalises rows. */
typedef enum ph_core_stage { PH_STAGE_MIX, PH_STAGE_NORM, PH_STAGES } ph_core_stage;

typedef struct ph_core {
    const ph_variant *variant[PH_STAGES]; /* NULL: none */
    char options[PH_STAGES][PH_VARIANT_MAX];
} ph_core;

/* ---- options: "key=value,key=value" ---- */

typedef struct ph_variant_option {
    const char *key;
    double *number;     /* where a number goes, already set to its default; or NULL */
    double least, most; /* its range */
    int whole;          /* 1: only whole numbers */
    int *word;          /* where the index of a word goes, or NULL */
    const char *words;  /* the words, separated by '|' */
} ph_variant_option;

/* Reads `text`; every key at most once, unknown ones are refused by name. An option with
   key "" takes a value that stands alone ("head" in "gated:head"). */
ph_status ph_options_read(ph_ctx *ctx, const char *variant, const char *text,
                          const ph_variant_option *list, int count);

#endif
