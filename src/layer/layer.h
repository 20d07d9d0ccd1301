/*
 * layer.h - the inside of a ph_layer, and what its files share.
 *
 *     create.c         checks a description, lays out what backward keeps
 *     project.c        a projection and its gradients as matrix products; rows by length
 *     position.c       RMS norm and rotation of q and k, and the way back
 *     layer_forward.c  project, position, attend, output
 *     layer_backward.c the same steps from the end
 *
 * Inside a layer all activations are floats, a token's heads side by side: q is
 * (batch, q_len, q_heads*qk_dim) and so on; attention takes them through strides.
 */
#ifndef PH_LAYER_LAYER_H
#define PH_LAYER_LAYER_H

#include "attn/plan.h"
#include "base/arena.h"
#include "base/ctx.h"
#include "kernels/gemm.h"
#include "polyhead_layer.h"

/* A parameter matrix: y = x w, x has `in` columns, y heads*dim. */
typedef struct ph_layer_matrix {
    int in, heads, dim;
    ph_form form;
} ph_layer_matrix;

/* Parameters that have a field of their own in ph_layer_weights. */
enum { PH_LAYER_NAMED = 10, PH_LAYER_PARAMS = PH_LAYER_NAMED + PH_EXTRAS_MAX };

struct ph_layer {
    ph_ctx *ctx;
    ph_layer_desc desc; /* defaults filled in */
    ph_plan *plan;      /* attention on floats */
    ph_layer_matrix wq, wk, wv, wo;
    int q_rows;   /* batch * q_len: tokens of x */
    int kv_len;   /* tokens that keys are made of in one batch row of a call */
    int kv_rows;  /* batch * kv_len */
    int out_cols; /* of out */
    ph_param param[PH_LAYER_PARAMS]; /* all parameters */
    int params, named;               /* how many, and how many of them are named fields */
    int angles;                      /* rope_dims / 2; 0: no rotation */
    double theta[]; /* (angles) by how much each pair turns per position */
};

/* What forward leaves for backward; pieces of ph_layer_args.saved or of the scratch. */
typedef struct ph_layer_kept {
    float *q, *k, *v;     /* as attention sees them */
    float *q_raw, *k_raw; /* before the norm; equal to q, k where there is none */
    float *heads;         /* what attention gives */
    float *lse;           /* (batch, q_heads, q_len) */
} ph_layer_kept;

static inline int ph_layer_columns(const ph_layer_matrix *w)
{
    return w->heads * w->dim;
}

/* all: also what only backward needs. */
ph_layer_kept ph_layer_keep(const ph_layer *layer, ph_arena *arena, int all);

/* Checks what forward and backward have in common; outputs are untouched until then. */
ph_status ph_layer_check(const ph_layer *layer, const ph_layer_weights *weights,
                         const ph_layer_args *args);

/* ---- project.c ---- */

/* y = x w + bias, x of `type` */
ph_gemm ph_layer_product(const ph_layer_matrix *w, const float *weights,
                         const float *bias, int rows, const void *x, ph_dtype type,
                         float *y);
/* dx (+)= dy w^T */
ph_gemm ph_layer_product_dx(const ph_layer_matrix *w, const float *weights, int rows,
                            const float *dy, float *dx, int add);
/* dw = x^T dy */
ph_gemm ph_layer_product_dw(const ph_layer_matrix *w, int rows, const void *x,
                            ph_dtype type, const float *dy, float *dw);
/* sums[c] = sum over rows of y[row][c]; ones holds `rows` ones */
ph_gemm ph_layer_sum(int rows, int columns, const float *ones, const float *y,
                     float *sums);

/* Rows of a (batch, len, columns) tensor. */
typedef struct ph_layer_rows {
    int batch, len, columns;
    const int32_t *lens; /* (batch) valid ones; NULL: all */
} ph_layer_rows;

/* to = from, converted; rows beyond their length become 0. */
void ph_layer_copy(ph_ctx *ctx, ph_layer_rows rows, void *to, ph_dtype to_type,
                   const void *from, ph_dtype from_type);
/* Rows of x beyond their length become 0. */
void ph_layer_clear(ph_layer_rows rows, void *x, ph_dtype type);

/* ---- position.c ---- */

/* Positions of a (batch, len) set of tokens: start[b] + t. */
typedef struct ph_layer_turns {
    const float
        *table;    /* cos and sin of each angle, `angles` each, one line per position */
    int per_batch; /* 1: every batch row has its own lines, else they are shared */
} ph_layer_turns;

/* q or k, forward or backward; v where it is cached. */
typedef struct ph_layer_side {
    const ph_layer *layer;
    ph_layer_rows rows; /* columns = heads*dim */
    ph_layer_turns turns;
    int heads;
    int copy;            /* 1: neither norm nor rotation: v on its way into the cache */
    const float *gain;   /* (qk_dim) or NULL: 1 */
    const float *raw;    /* as projected */
    float *x;            /* forward: normed and turned, may be raw; backward: gradient in
                            place */
    float *cache;        /* forward: where it goes instead of x, or NULL */
    const int32_t *past; /* rows of each batch row that the cache holds */
    float *sums;         /* backward: (ph_layer_chunks, qk_dim) for dgain, or NULL */
} ph_layer_side;

/* Fills theta[angles]. */
void ph_layer_angles(double base, int angles, double *theta);

/* Floats of the table for `len` positions from start (NULL: 0), and the table itself. */
size_t ph_layer_table(const ph_layer *layer, int len, const int32_t *start);
ph_layer_turns ph_layer_turn(const ph_layer *layer, int len, const int32_t *start,
                             float *table);

int ph_layer_chunks(const ph_layer_rows *rows);
void ph_layer_position(const ph_layer_side *side);
void ph_layer_unposition(const ph_layer_side *side, float *dgain);

#endif
