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
 * The layer drives; it walks the left column forward, and back for the gradients. A kind
 * says in `shape` what differs from plain attention, and does its own steps in hooks,
 * each with its way back. A hook that is NULL changes nothing. A layer has at most one
 * kind, and behind it a gate (gated.c), which is written as a kind too.
 *
 * Slices. Going back, everything between dout and the gradients of the parts may be done
 * for a few heads at a time, so that what attention saw and its gradients need little
 * room. Hooks of a kind with `by_heads` then see `q_heads` heads from `first` on, in
 * arrays that hold no others (and out_heads from first_out on); parts are always whole.
 * The bits are the same.
 *
 * Whatever a hook keeps lies in pieces whose sizes `shape` has said; nothing is allocated
 * on the way. Loops over tokens run through ph_ctx_run in items cut by shape alone.
 */
#ifndef PH_VARIANTS_KIND_H
#define PH_VARIANTS_KIND_H

#include "attn/plan.h"
#include "base/arena.h"
#include "kernels/gemm.h"
#include "polyhead_layer.h"

enum { PH_PIECES = 13, PH_CACHE_PARTS = 8, PH_KIND_STATE = 512, PH_KINDS = 2 };
enum { PH_GATE_Z = PH_PIECES - 4 }; /* piece: (rows, columns) logits of the gate */

/* A product of the kind's own, y = x w: from x, or from the source of the keys. y lies in
   a kept piece, its gradient in the back piece of the same number; or both, one after the
   other, in a spare piece, and `remake` makes y once more. */
typedef struct ph_linear {
    int param;      /* own parameter that holds w (in, columns) ... */
    int64_t offset; /* ... from this number on */
    int columns;
    int keys; /* 1: from the source of the keys */
    int piece;
    int again; /* 1: not kept, in a spare piece */
    size_t at; /* where y starts in the piece */
} ph_linear;

/* The gate behind a layer's heads, see gated.c. */
typedef struct ph_gate_step {
    int per;   /* a head or a number */
    int out;   /* 1: on what wo would see; 0: attention's own gate does it ... */
    int joins; /* ... 1: together with one that the kind makes */
    ph_linear z;
} ph_gate_step;

/* q, k or v as the layer makes it: a matrix product cut into heads, then norm and
   rotation. A row holds the heads of a token, `pad` zeros before and behind them; `tail`
   numbers behind each head are the kind's to fill, in `project`. */
typedef struct ph_part {
    int in;         /* columns of x or memory */
    int heads, dim; /* columns of the matrix; no heads: there is no such part */
    int tail, pad;
    ph_form form;
    int norm;   /* leading numbers of a head that are divided by their RMS; 0: none */
    int angles; /* pairs that are turned, from number `turn` of a head on */
    int turn;
    int w, gain; /* own parameter that is its matrix, its gain; -1: the named field */
    int from;    /* kept piece that it is a product of, filled in `project`; its gradient
                    comes in the back piece; -1: x or memory. q only */
    int apart;   /* 1: attention saw something else: before_back makes its gradient from
                    that of what attention saw */
    int tiles;   /* 1: it may be made in tiles of bf16 (kernels/gemm.h), ... */
    int back_tiles; /* ... 1: its gradients may */
} ph_part;

static inline int ph_part_width(const ph_part *p) /* of a row of gradients */
{
    return p->heads * (p->dim + p->tail);
}

static inline int ph_part_row(const ph_part *p) /* of a row */
{
    return ph_part_width(p) + 2 * p->pad;
}

/* Whether every call adds its tokens to a cache. One of memory is filled once. */
static inline int ph_desc_grows(const ph_layer_desc *d)
{
    return d->cache && !d->memory_dim;
}

/* Tokens that a call makes keys of; none where it finds those of memory in the cache. */
static inline int ph_desc_key_rows(const ph_layer_desc *d)
{
    return d->attn.batch * (ph_desc_grows(d) ? d->attn.q_len : d->attn.kv_len);
}

/* What a layer is made of. Filled in for plain attention; a kind changes it. */
typedef struct ph_shape {
    ph_ctx *ctx;
    const ph_layer_desc *given; /* as the caller wrote it */
    ph_layer_desc *desc;        /* defaults filled in */
    ph_attn attn;               /* the plan; strides that stay 0 follow from the parts */
    ph_part q, k, v;
    int out_heads, out_dim;        /* of a row that wo multiplies */
    ph_param param[PH_EXTRAS_MAX]; /* own parameters */
    int params;
    int makes_gate;          /* 1: `before` makes a gate for every row */
    int makes_extras;        /* how many of what the plan asks for `before` makes: the
                                first ones; the others are parameters */
    int makes_out;           /* 1: `after` makes what wo multiplies */
    int twins;               /* 1: dheads has a row for each pair of heads, which share
                                their v head: see `twin` below */
    int makes_q, makes_kv;   /* 1: `before` makes what attention sees, in strides that
                                `shape` has set */
    int wants_slices;        /* 1: going back by heads saves much room */
    int sums_keys;           /* 1: of a key that all heads share each head of v gives a
                                gradient of its own, which before_back adds up */
    int routes;              /* 1: there is a load-balance loss */
    int few;                 /* 1: it uses so few (token, head) pairs that queries are
                                made for those alone; `before` runs before them then */
    size_t kept[PH_PIECES];  /* floats that live until the backward call */
    size_t spare[PH_PIECES]; /* floats that live for one call */
    size_t fore[PH_PIECES];  /* floats of the forward call alone */
    size_t back[PH_PIECES];  /* floats of the backward call alone: gradients of pieces */
    size_t slice[PH_PIECES]; /* the same for one q head: as many as are at hand */
    size_t cache;            /* floats of a cache of its own, beside those of k and v */
    size_t cache_part[PH_CACHE_PARTS]; /* tensors (batch, kv_len, ...) that lie there one
                                          behind the other; none said: one (batch, ...) */
    size_t work;                       /* bytes for its products */
    double flops;                      /* of its own products, forward */
    double active;                     /* share of the rows that attention computes */
    float turn_scale; /* by which rotation lets the turned numbers grow; set when
                                `shape` is done */
    ph_gate_step gate;
    _Alignas(8) char state[PH_KIND_STATE];
} ph_shape;

/* One call. Rows beyond q_lens and kv_lens hold anything in x and source going forward,
   zeros going back; a kind writes zeros to what attention reads there. */
typedef struct ph_kind_call {
    const ph_shape *shape;
    ph_ctx *ctx;
    const ph_layer_args *args;
    const ph_layer_weights *weights; /* as the caller gave them */
    const ph_layer_grads *grads;     /* going back */
    const float *const *param;       /* own parameters */
    float *kept[PH_PIECES], *spare[PH_PIECES];
    float *fore[PH_PIECES], *back[PH_PIECES], *slice[PH_PIECES];
    int first, q_heads;              /* the heads at hand: all of them, or a slice ... */
    int k_heads;                     /* ... of dk ... */
    int first_out, out_heads;        /* ... and as wo sees them */
    ph_workspace work;               /* for one list of products at a time */
    int q_rows, kv_rows;             /* tokens of x and of the source of keys */
    int kv_len;                      /* of the latter in one batch row */
    const int32_t *q_lens, *kv_lens; /* of these tokens; NULL: all are valid */
    const void *x, *source;          /* of the layer's type */

    float *q_part, *k_part, *v_part;   /* rows of the parts; project: before the norm */
    const float *q, *k, *v;            /* what attention sees: the parts or the caches */
    float *gate;                       /* (batch, q_heads, q_len), where it makes one */
    const float *extra[PH_EXTRAS_MAX]; /* what the plan asks for, where it makes them */
    const float *heads; /* (rows, q_heads, v_dim) what attention gives, ... */
    int64_t heads_row;  /* ... numbers from one row to the next */
    float *out;         /* (rows, out_heads, out_dim) */

    float *const *dparam;               /* entries NULL: not wanted */
    float *dout;                        /* of out; the gate's way back changes it */
    float *dheads;                      /* of heads; with twins, of each even one ... */
    const float *twin;                  /* ... and by what it is multiplied for the odd
                                           one: (pairs), set by after_back */
    float *dq, *dk, *dv;                /* of what attention saw: (rows, heads, dim) */
    float *dq_part, *dk_part, *dv_part; /* of the parts; the same where not apart */
    float *dgate;
    float *dextra[PH_EXTRAS_MAX]; /* set by `before`'s pieces, filled by attention */
    float *dx, *dsource;          /* floats to be added to, or NULL */
} ph_kind_call;

typedef struct ph_layer_kind {
    ph_status (*shape)(ph_shape *shape, const char *options);
    void (*project)(ph_kind_call *call);
    void (*before)(ph_kind_call *call); /* runs again in the backward call */
    void (*after)(ph_kind_call *call);

    void (*after_back)(ph_kind_call *call);   /* dout -> dheads */
    void (*before_back)(ph_kind_call *call);  /* dq, dk, dv, dgate, dextra -> the parts */
    void (*project_back)(ph_kind_call *call); /* -> dparam, dx, dsource */

    void (*remake)(ph_kind_call *call); /* first of all going back: what was not kept */
    int behind;                         /* 1: it may stand behind another kind */
    int by_heads; /* 1: after, before and their ways back work on slices */
} ph_layer_kind;

/* ---- for kinds (kind.c) ---- */

/* Adds an own parameter, (a), (a, b), (a, b, c) or (a, b, c, d): up to the first 0. */
void ph_shape_param(ph_shape *shape, const char *name, int optional, int a, int b, int c,
                    int d);

/* Fails unless rows of `heads` heads of `dim` numbers can be counted with ease; for what
   a kind makes wider than the description says. */
ph_status ph_shape_width(const ph_shape *shape, const char *what, int heads, int64_t dim);

/* Whether what attention sees of all heads is so much that it pays to go back by slices.
   In shorter texts it never does: a kind may keep what it made then. */
int ph_shape_is_long(const ph_shape *shape);

/* Makes room for these products in `work`. */
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

/* Makes room for the products; pieces grow to hold their results. */
void ph_shape_linears(ph_shape *shape, ph_linear *list, int count);
/* All products; and all gradients, dx and dsource added to in the order of the list. */
void ph_kind_linears(ph_kind_call *call, const ph_linear *list, int count);
void ph_kind_linears_back(ph_kind_call *call, const ph_linear *list, int count);

/* Calls token(call, row, b, t) for every token of x, or of the source of the keys, in
   parallel: `valid` for those within their length, `beyond` (or NULL) for the others. */
typedef void ph_token(ph_kind_call *call, int row, int b, int t);
void ph_kind_tokens(ph_kind_call *call, ph_token *valid, ph_token *beyond);
void ph_kind_key_tokens(ph_kind_call *call, ph_token *valid, ph_token *beyond);

/* Where the gate of a row lies. */
static inline int64_t ph_gate_at(const ph_kind_call *c, int b, int h, int t)
{
    const ph_attn *a = &c->shape->attn;
    return ((int64_t)b * a->q_heads + h) * a->q_len + t;
}

/* Closes all heads of a token: for tokens beyond their length. */
void ph_kind_close(ph_kind_call *call, int row, int b, int t);

/* y[i] = factor * e^x[i] / sum of e^x: multiplied before it is divided, so equal x give
   exactly factor / n. n > 0. */
void ph_kind_softmax(const ph_ctx *ctx, int n, const float *x, float factor, float *y);

/* Sums in double run in so many lanes, which no addition waits for; their total. */
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
