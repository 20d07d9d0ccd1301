/*
 * kind.h - how a variant changes a layer.
 *
 *                                            project: products of its own from x, memory
 *     project   q, k, v = x w + b
 *     position  norm, rotation, cache
 *     before                                 q, k, v, gate or extras as attention is to
 *     attend                                 see them
 *     after                                  heads as wo is to see them
 *     output    out = heads wo + bo
 *
 * The layer runs the steps of the left column, and their gradients in reverse order. A
 * kind says in `shape` what differs from mha, and does its own steps in hooks, each with
 * its backward pass. A hook that is NULL changes nothing. A layer has at most one kind,
 * followed by a gate (gated.c), which is written as a kind too.
 *
 * Slices. In the backward pass everything between dout and the gradients of the
 * projections may be done for a few heads at a time, so that the inputs of attention and
 * their gradients need little memory. Hooks of a kind with `by_heads` then see `q_heads`
 * heads from `first` on, in arrays that hold no others (and out_heads from first_out on);
 * projections are always whole. The bits are the same.
 *
 * What a hook stores goes to buffers whose sizes `shape` has set; no call allocates.
 * Loops over tokens run through ph_ctx_run in items that depend on the shape alone.
 */
#ifndef PH_VARIANTS_KIND_H
#define PH_VARIANTS_KIND_H

#include "attn/plan.h"
#include "base/arena.h"
#include "kernels/gemm.h"
#include "polyhead_layer.h"

enum { PH_BUFFERS = 13, PH_CACHE_PARTS = 8, PH_KIND_STATE = 512, PH_KINDS = 2 };
enum { PH_GATE_Z = PH_BUFFERS - 4 }; /* buffer: (rows, columns) logits of the gate */

/* A projection of the kind's own, y = x w: from x, or from the source of the keys. y is
   in a saved buffer and its gradient in the backward_only buffer of the same index; or
   both, one after the other, are in a scratch buffer, and the backward pass recomputes
   y. */
typedef struct ph_linear {
    int param;      /* own parameter that holds w (in, columns) ... */
    int64_t offset; /* ... from this element on */
    int columns;
    int keys; /* 1: from the source of the keys */
    int buffer;
    int recomputed; /* 1: not saved, in a scratch buffer */
    size_t at;      /* where y starts in the buffer */
} ph_linear;

/* The gate on the output of the heads, see gated.c. */
typedef struct ph_gate_step {
    int per;   /* a head or an element */
    int out;   /* 1: applied to the input of wo; 0: attention's own gate does it ... */
    int joins; /* ... 1: multiplied by one that the kind computes */
    ph_linear z;
} ph_gate_step;

/* q, k or v as the layer projects it: a matrix product cut into heads, then norm and
   rotation. A row holds the heads of a token, with `pad` zeros before and after them;
   `tail` elements after each head are filled by the kind, in `project`. */
typedef struct ph_projection {
    int in;         /* columns of x or memory */
    int heads, dim; /* columns of the matrix; heads 0: there is no such projection */
    int tail, pad;
    ph_form form; /* of the matrix */
    ph_dtype type;
    int first_head, all_heads; /* part of a stored matrix: where it begins there, ... */
    int first_in, all_in;      /* ... and what that has; 0: this is all of it */
    int norm;   /* leading elements of a head that are divided by their RMS; 0: none */
    int angles; /* pairs that are rotated, from element `rope_at` of a head on */
    int rope_at;
    int w, gain;     /* own parameter that is its matrix, its gain; -1: the named field */
    int from;        /* saved buffer that it is a projection of, filled in `project`; its
                    gradient goes to the backward_only buffer; -1: x or memory. q only */
    int transformed; /* 1: `before` computes what attention reads from it, and
                        before_backward its gradient from that of what attention read */
    int tiles;      /* 1: the product may run in AMX tiles of bf16 (kernels/gemm.h) ... */
    int back_tiles; /* ... 1: its gradients may */
} ph_projection;

static inline int ph_projection_width(const ph_projection *p) /* of a row of gradients */
{
    return p->heads * (p->dim + p->tail);
}

static inline int ph_projection_row(const ph_projection *p) /* of a row */
{
    return ph_projection_width(p) + 2 * p->pad;
}

/* `count` heads, or rows of the matrix, from `first` on. */
static inline ph_projection ph_projection_heads(const ph_projection *p, int first,
                                                int count)
{
    ph_projection part = *p;
    part.all_heads = p->heads, part.first_head = first, part.heads = count;
    return part;
}

static inline ph_projection ph_projection_inputs(const ph_projection *p, int first,
                                                 int count)
{
    ph_projection part = *p;
    part.all_in = p->in, part.first_in = first, part.in = count;
    return part;
}

/* ---- projection.c ---- */

/* y = x w + bias, x of `type`; y are rows of the projection */
ph_gemm ph_projection_product(const ph_projection *proj, const void *w, const float *bias,
                              int rows, const void *x, ph_dtype type, float *y);
/* dx (+)= dy w^T */
ph_gemm ph_projection_dx(const ph_projection *proj, const void *w, int rows,
                         const float *dy, float *dx, int add);
/* dw = x^T dy; rows of x are x_row elements apart */
ph_gemm ph_projection_dw(const ph_projection *proj, int rows, const void *x,
                         ph_dtype type, int64_t x_row, const float *dy, float *dw);
/* sums[c] = sum over rows of dy[row][c]; ones holds `rows` ones */
ph_gemm ph_projection_sum(const ph_projection *proj, int rows, const float *ones,
                          const float *dy, float *sums);

/* The element of the matrix for input i and a column. */
float ph_projection_element(const ph_projection *proj, const void *w, int i, int column);

/* Elements of a row as it is stored: what a block type divides. */
int ph_projection_stored_row(const ph_projection *proj);

/* Whether every call appends its tokens to a cache. One of memory is filled once. */
static inline int ph_desc_grows(const ph_layer_desc *d)
{
    return d->cache && !d->memory_dim;
}

/* Tokens of x, and those that a call projects to keys; none of the latter where those of
   memory are in the cache. */
static inline int ph_desc_rows(const ph_layer_desc *d)
{
    return (int)ph_attn_rows(&d->attn);
}

static inline int ph_desc_key_rows(const ph_layer_desc *d)
{
    return ph_desc_grows(d) ? ph_desc_rows(d) : (int)ph_attn_keys(&d->attn);
}

/* Which tokens the rows of a (rows, columns) tensor are: `len` of each batch row, or, in
   a ragged batch, those from offsets[b] to offsets[b + 1], at most `len`. */
typedef struct ph_tokens {
    int rows, batch, len;
    const int32_t *lens;    /* (batch) valid ones; NULL: all */
    const int32_t *offsets; /* (batch + 1) where ragged, else NULL */
} ph_tokens;

/* Row of token 0 of batch row b, and how many rows and valid tokens follow. */
static inline int ph_tokens_first(const ph_tokens *t, int b)
{
    return t->offsets ? t->offsets[b] : b * t->len;
}

static inline int ph_tokens_count(const ph_tokens *t, int b)
{
    return t->offsets ? t->offsets[b + 1] - t->offsets[b] : t->len;
}

static inline int ph_tokens_valid(const ph_tokens *t, int b)
{
    return t->lens ? t->lens[b] : ph_tokens_count(t, b);
}

/* The batch row of a row; whether its token is valid. */
static inline int ph_tokens_batch(const ph_tokens *t, int row)
{
    int low = 0, high = t->batch;
    if (!t->offsets) return row / t->len;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (t->offsets[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static inline int ph_tokens_has(const ph_tokens *t, int row)
{
    int b = ph_tokens_batch(t, row);
    return row - ph_tokens_first(t, b) < ph_tokens_valid(t, b);
}

/* Sizes and steps of a layer. Filled in for mha; a kind changes it. */
typedef struct ph_shape {
    ph_ctx *ctx;
    const ph_layer_desc *given; /* as the caller wrote it */
    ph_layer_desc *desc;        /* defaults filled in */
    ph_attn attn;               /* the plan; strides that stay 0 are those of the
                                   projections */
    ph_projection q, k, v;
    int out_heads, out_dim;        /* of a row that wo multiplies */
    ph_param param[PH_EXTRAS_MAX]; /* own parameters */
    int params;
    int makes_gate;        /* 1: `before` computes a gate for every row */
    int makes_extras;      /* how many of the plan's extras `before` computes: the first
                                ones; the others are parameters */
    int makes_out;         /* 1: `after` computes the input of wo */
    int twins;             /* 1: dheads has a row for each pair of heads, which share
                                their v head: see `twin` below */
    int makes_q, makes_kv; /* 1: `before` computes what attention reads, in strides
                                that `shape` has set */
    int wants_slices;      /* 1: a backward pass by slices saves much memory */
    int sums_keys;         /* 1: all heads share a key, each head of v has a gradient
                                of it, and before_backward sums them */
    int routes;            /* 1: there is a load-balance loss */
    int sparse_q;          /* 1: so few (token, head) pairs are routed that queries are
                                projected for those alone; `before` then runs first */
    size_t saved[PH_BUFFERS];         /* floats that live until the backward call */
    size_t scratch[PH_BUFFERS];       /* floats that live for one call */
    size_t forward_only[PH_BUFFERS];  /* floats of the forward call alone */
    size_t backward_only[PH_BUFFERS]; /* floats of the backward call alone */
    size_t slice[PH_BUFFERS];         /* the same per q head of the slice */
    size_t cache; /* floats of a cache of its own, beside those of k and v */
    size_t cache_part[PH_CACHE_PARTS]; /* consecutive tensors (batch, kv_len, ...) in it;
                                          none set: one (batch, ...) */
    size_t work;                       /* bytes for its products */
    double flops;                      /* of its own products, forward */
    double active;                     /* share of the rows that attention computes */
    float rope_scale; /* factor on rotated elements (YaRN); set when `shape` is done */
    ph_gate_step gate;
    _Alignas(8) char state[PH_KIND_STATE];
} ph_shape;

/* One call. Padding rows, beyond the valid tokens, are unspecified in x and source in the
   forward pass, zero in the backward pass; a kind writes zeros to what attention reads
   there. */
typedef struct ph_kind_call {
    const ph_shape *shape;
    ph_ctx *ctx;
    const ph_layer_args *args;
    const ph_layer_weights *weights; /* as the caller gave them */
    const ph_layer_grads *grads;     /* NULL in the forward pass */
    const float *const *param;       /* own parameters */
    float *saved[PH_BUFFERS], *scratch[PH_BUFFERS];
    float *forward_only[PH_BUFFERS], *backward_only[PH_BUFFERS], *slice[PH_BUFFERS];
    int first, q_heads;             /* the current heads: all of them, or a slice ... */
    int k_heads;                    /* ... of dk ... */
    int first_out, out_heads;       /* ... and as wo sees them */
    ph_workspace work;              /* for one list of products at a time */
    ph_tokens x_tokens, key_tokens; /* those of x and of the source of keys */
    const void *x, *source;         /* of the layer's type */

    float *q_proj, *k_proj, *v_proj;   /* rows as projected; in `project`: before norm */
    const float *q, *k, *v;            /* what attention reads: projections or caches */
    float *gate;                       /* (batch, q_heads, q_len), where makes_gate */
    const float *extra[PH_EXTRAS_MAX]; /* the plan's extras, where makes_extras */
    const float *heads; /* (rows, q_heads, v_dim) output of attention, ... */
    int64_t heads_row;  /* ... its row stride */
    float *out;         /* (rows, out_heads, out_dim) */

    float *const *dparam;               /* entries NULL: not wanted */
    float *dout;                        /* of out; the gate's backward pass changes it */
    float *dheads;                      /* of heads; with twins, of each even head ... */
    const float *twin;                  /* ... and (pairs) the factor that gives that of
                                           the odd head, set by after_backward */
    float *dq, *dk, *dv;                /* of what attention read: (rows, heads, dim) */
    float *dq_proj, *dk_proj, *dv_proj; /* of the projections; the same where those are
                                           not transformed */
    float *dgate;
    float *dextra[PH_EXTRAS_MAX]; /* buffers set by `before`, filled by attention */
    float *dx, *dsource;          /* floats to accumulate into, or NULL */
} ph_kind_call;

typedef struct ph_layer_kind {
    ph_status (*shape)(ph_shape *shape, const char *options);
    void (*project)(ph_kind_call *call);
    void (*before)(ph_kind_call *call); /* runs again in the backward call */
    void (*after)(ph_kind_call *call);

    void (*after_backward)(ph_kind_call *call);   /* dout -> dheads */
    void (*before_backward)(ph_kind_call *call);  /* dq, dk, dv, dgate, dextra ->
                                                     gradients of the projections */
    void (*project_backward)(ph_kind_call *call); /* -> dparam, dx, dsource */

    void (*recompute)(ph_kind_call *call); /* first step of the backward pass: what was
                                              not saved */
    int behind;                            /* 1: it may follow another kind */
    int by_heads; /* 1: before, after and their backward passes work on slices */
} ph_layer_kind;

/* ---- for kinds (kind.c) ---- */

/* Adds an own parameter, (a), (a, b), (a, b, c) or (a, b, c, d): up to the first 0. */
void ph_shape_param(ph_shape *shape, const char *name, int optional, int a, int b, int c,
                    int d);

/* Fails unless the size of rows of `heads` heads of `dim` elements is far from overflow;
   for what a kind makes wider than the description says. */
ph_status ph_shape_width(const ph_shape *shape, const char *what, int heads, int64_t dim);

/* Whether q and v of all heads are so large that a backward pass by slices pays. It never
   does for shorter texts: a kind may then save what it computed. */
int ph_shape_is_long(const ph_shape *shape);

/* Reserves workspace for these products in `work`. */
void ph_shape_products(ph_shape *shape, const ph_gemm *list, int count);

/* x + offset; NULL stays NULL, as it is where products are only measured. */
static inline const float *ph_float_at(const float *x, int64_t offset)
{
    return x ? x + offset : NULL;
}

static inline float *ph_float_at_out(float *x, int64_t offset)
{
    return x ? x + offset : NULL;
}

/* Reserves workspace for the projections, and their results in the buffers. */
void ph_shape_linears(ph_shape *shape, ph_linear *list, int count);
/* All projections; and all their gradients, accumulated into dx and dsource in the order
   of the list. */
void ph_kind_linears(ph_kind_call *call, const ph_linear *list, int count);
void ph_kind_linears_backward(ph_kind_call *call, const ph_linear *list, int count);

/* Calls token(call, row) for every token of x, or of the source of the keys, in
   parallel: `valid` for those within their length, `beyond` (or NULL) for the others. */
typedef void ph_token(ph_kind_call *call, int row);
void ph_kind_tokens(ph_kind_call *call, ph_token *valid, ph_token *beyond);
void ph_kind_key_tokens(ph_kind_call *call, ph_token *valid, ph_token *beyond);

/* Tokens side by side in a gate, lse or dlse: those of a batch row, or all. */
static inline int ph_line_tokens(const ph_attn *a)
{
    return a->ragged ? a->q_total : a->q_len;
}

/* Index of the gate of a head of row `row` of x. */
static inline int64_t ph_gate_at(const ph_kind_call *c, int row, int h)
{
    const ph_attn *a = &c->shape->attn;
    int line = ph_line_tokens(a);
    return ((int64_t)(row / line) * a->q_heads + h) * line + row % line;
}

/* Sets the gates of all heads of a token to 0: for padding. */
void ph_kind_close(ph_kind_call *call, int row);

/* y[i] = factor * e^x[i] / sum of e^x, in this order, so that equal x give exactly
   factor / n. n > 0. */
void ph_kind_softmax(const ph_ctx *ctx, int n, const float *x, float factor, float *y);

/* Sums in double run in independent lanes, which hides the latency of the addition; their
   total. */
enum { PH_WIDE_LANES = 4 };
static inline double ph_kind_total(const double lane[PH_WIDE_LANES])
{
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

/* 1 / sqrt(mean of x^2 + eps) */
double ph_kind_inverse_rms(int n, const float *x, double eps);

/* y[i] = sigmoid(x[i]), tanh(x[i]); y may be x. */
void ph_kind_sigmoid(const ph_ctx *ctx, int n, const float *x, float *y);
void ph_kind_tanh(const ph_ctx *ctx, int n, const float *x, float *y);

#endif
