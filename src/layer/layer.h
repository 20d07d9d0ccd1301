/*
 * layer.h - the inside of a ph_layer, and what its files share.
 *
 *     create.c         checks a description, asks the variant's kind what differs
 *     about.c          what a layer says of itself
 *     check.c          checks the arguments of a call
 *     project.c        a projection and its gradients as matrix products; rows by length
 *     position.c       RMS norm and rotation of q and k, and the way back
 *     gate.c           the caller's gate and the kind's
 *     gather.c         queries of the pairs that a router uses alone
 *     helpers.c        schedules and bounds for those who make layers
 *     layer_forward.c  project, position, before, attend, after, output
 *     layer_backward.c the same steps from the end
 *     back_products.c  those of them that are matrix products (back.h)
 *     slices.c         the heads of a layer, some at a time, through attention and back
 *
 * Inside a layer all activations are floats, a token's heads side by side: q is
 * (batch, q_len, q_heads*qk_dim) and so on; attention takes them through strides. What
 * they are exactly is said by the parts of a ph_shape (variants/kind.h).
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
    const ph_layer_kind *kind[PH_KINDS]; /* NULL: plain; the second stands behind */
    ph_attn attn;   /* as it is planned: shape.attn, with views of a key whose gradients
                      are summed */
    ph_plan *plan;  /* attention on floats */
    ph_plan *slice; /* going back, attention of slice_heads; NULL: of all at once */
    int slice_heads;
    int remakes_v; /* 1: v is not kept, each slice makes its own again */
    ph_part out;   /* wo, as if it were a part */
    int q_rows;    /* batch * q_len: tokens of x */
    int kv_len;    /* tokens that keys are made of in one batch row of a call */
    int kv_rows;   /* batch * kv_len */
    int out_cols;  /* of out */
    ph_param param[PH_LAYER_PARAMS]; /* all parameters */
    int params, named;               /* how many, and how many of them are named fields */
    int field[PH_NAMED];             /* which named field each of those is */
    ph_strides k_cache, v_cache;     /* how the caches lie */
    int angles;                      /* pairs of a head that turn; 0: no rotation */
    double theta[]; /* (angles) by how much each pair turns per position */
};

/* What forward leaves for backward; pieces of ph_layer_args.saved or of the scratch. */
typedef struct ph_layer_kept {
    float *q, *k, *v;     /* the parts */
    float *q_raw, *k_raw; /* before the norm; equal to q, k where there is none */
    float *heads;         /* what attention gives */
    float *lse;           /* (batch, q_heads, q_len) */
    float *kind[PH_PIECES];
} ph_layer_kept;

/* all: also what only backward needs. */
ph_layer_kept ph_layer_keep(const ph_layer *layer, ph_arena *arena, int all);

/* Floats of the part v. */
size_t ph_layer_v_floats(const ph_layer *layer);

/* Whether wo sees something else than what attention gives. */
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
/* The same for a backward call. */
ph_status ph_layer_check_grads(const ph_layer *layer, const ph_layer_weights *weights,
                               const ph_layer_args *args, const ph_layer_grads *grads);

/* ---- project.c ---- */

/* y = x w + bias, x of `type`; y are rows of the part */
ph_gemm ph_layer_product(const ph_part *part, const float *weights, const float *bias,
                         int rows, const void *x, ph_dtype type, float *y);
/* dx (+)= dy w^T */
ph_gemm ph_layer_product_dx(const ph_part *part, const float *weights, int rows,
                            const float *dy, float *dx, int add);
/* dw = x^T dy */
ph_gemm ph_layer_product_dw(const ph_part *part, int rows, const void *x, ph_dtype type,
                            const float *dy, float *dw);
/* sums[c] = sum over rows of dy[row][c]; ones holds `rows` ones */
ph_gemm ph_layer_sum(const ph_part *part, int rows, const float *ones, const float *dy,
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

/* ---- gather.c ---- */

/* Room to gather tokens in, where the kind uses few pairs; else empty. */
typedef struct ph_gather {
    int32_t *tokens; /* rows of x */
    void *x;         /* they themselves, of the layer's type */
    float *q;        /* their queries of one head */
} ph_gather;

ph_gather ph_layer_gather_room(const ph_layer *layer, ph_arena *arena);
size_t ph_layer_gather_bytes(const ph_layer *layer); /* of `work` */
/* q = x wq + bq where the gate is not 0, else 0. */
void ph_layer_gather(const ph_layer *layer, const ph_layer_weights *weights,
                     const void *x, const float *gate, const ph_gather *room,
                     ph_workspace work, float *q);

/* ---- gate.c ---- */

/* both = own * given, for every row. */
void ph_layer_join_gates(const ph_layer *layer, const float *own, const float *given,
                         float *both);
/* dboth becomes the gradient of own; dgiven, where wanted, is in the caller's shape. */
void ph_layer_part_gates(const ph_layer *layer, const float *own, const float *given,
                         float *dboth, float *dgiven);

/* ---- slices.c ---- */

/* Makes the plan of all heads, and that of a slice where the kinds want slices and
   attention allows them. */
ph_status ph_layer_plans(ph_layer *layer);

/* What a slice of a backward call works on, beside the kind's pieces. Where there is only
   one slice these are the whole tensors themselves. */
typedef struct ph_layer_slice {
    float *wide;   /* (rows, slice of out) gradient of what wo multiplies */
    float *out;    /* (rows, slice of out) what wo multiplies, where it is made */
    float *dheads; /* (rows, slice_heads, v_dim) gradient of what attention gave; of each
                      even head where there are twins */
    float *v;      /* (kv_rows, slice of v), where it is made again */
    float *lse, *dlse, *gate, *dgate; /* (batch, slice_heads, q_len) */
} ph_layer_slice;

/* The same for a slice as a->... for all: `args` and `grads` of the whole become those of
   the heads from `first` on, rows of lse, dlse and gate gathered into the slice. */
void ph_layer_slice_args(const ph_layer *layer, int first, const ph_layer_slice *slice,
                         ph_args *args, ph_grads *grads);
/* dgate of the slice goes where the whole lies. */
void ph_layer_slice_gates(const ph_layer *layer, int first, const ph_layer_slice *slice,
                          float *dgate);
/* The product that makes v of the heads from `first` on. */
ph_gemm ph_layer_slice_v(const ph_layer *layer, int first,
                         const ph_layer_weights *weights, const void *source, float *v);
/* Copies the columns of some heads: to (rows, count), from (rows, all) + first. */
void ph_layer_columns(ph_ctx *ctx, int rows, const float *from, int all, int first,
                      int count, float *to);

/* ---- position.c ---- */

/* Positions of a (batch, len) set of tokens: start[b] + t. */
typedef struct ph_layer_turns {
    const float
        *table;    /* cos and sin of each angle, `angles` each, one line per position */
    int per_batch; /* 1: every batch row has its own lines, else they are shared */
} ph_layer_turns;

/* A part, forward or backward. */
typedef struct ph_layer_side {
    const ph_layer *layer;
    const ph_part *part;
    int len;             /* tokens of a batch row */
    const int32_t *lens; /* (batch) valid ones; NULL: all */
    ph_layer_turns turns;
    const float *gain;   /* of the norm, or NULL: 1 */
    const float *raw;    /* rows as projected */
    float *x;            /* forward: where they go, may be raw; backward: rows of the
                            gradient, in place */
    ph_strides to;       /* forward: how x lies */
    const int32_t *past; /* forward into a cache: rows of each batch row it holds */
    float *sums;         /* backward: (ph_layer_chunks, gains) for dgain, or NULL */
} ph_layer_side;

/* Fills theta[angles] and the shape's turn_scale. */
void ph_layer_angles(ph_layer *layer);

/* Floats of the table for `len` positions from start (NULL: 0), and the table itself. */
size_t ph_layer_table(const ph_layer *layer, int len, const int32_t *start);
ph_layer_turns ph_layer_turn(const ph_layer *layer, int len, const int32_t *start,
                             float *table);

/* Numbers in the gain of a part. */
int ph_layer_gains(const ph_layer *layer, const ph_part *part);
/* Whether there is anything to do with a part before attention may read it. */
int ph_layer_positions(const ph_part *part);
int ph_layer_chunks(const ph_layer *layer, int len);
void ph_layer_position(const ph_layer_side *side);
void ph_layer_unposition(const ph_layer_side *side, float *dgain);

#endif
