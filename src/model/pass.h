/*
 * pass.h - one forward and backward pass of a model over a batch.
 *
 * A pass holds the layers and one workspace for all activations of a step. Tokens of all
 * texts are rows of (rows, model_dim) matrices, text after text: nothing is padded. A
 * batch of other sizes than the last gets layers of its own; the workspace only grows.
 *
 * Two matrices run through a stack: r, the residual stream, and a, the input of the next
 * sublayer. After each sublayer f comes a residual connection,
 *
 *     s = r + dropout(f(a))    n = norm(s)        pre-norm:  r = s, a = n
 *                                                 post-norm: r = a = n
 *
 * (a sandwich is pre-norm with norm(f(a)) in place of f(a)), so all kinds of stack take
 * the same steps, and the output of a stack is the last n.
 */
#ifndef PH_MODEL_PASS_H
#define PH_MODEL_PASS_H

#include "model/kv_cache.h"

typedef struct ph_pass ph_pass;

/* The tokens of a batch, text after text. Text b is tokens [offsets[b], offsets[b + 1]);
   offsets NULL: every text has as many as the shape says. */
typedef struct ph_batch {
    const int32_t *source;         /* tokens of the first stack */
    const int32_t *source_offsets; /* (batch + 1) */
    const int32_t *target;         /* tokens of the decoder, BOTH only */
    const int32_t *target_offsets; /* (batch + 1) */
    const float *pixels;           /* in place of tokens: (batch, channels, image_size,
                                      image_size) */
    const float *features;         /* in place of tokens, of sound: text after text,
                                      (mels, 2 rows) for a text of so many rows */
    const int32_t *types;          /* of each token of the first stack; NULL: 0 */
    const float
        *vectors;        /* (batch, vector_dim) in place of labels, for encoders that give
                             vectors: the loss is half the squared distance to them */
    const float *scores; /* in place of labels, where these count: the loss is half the
                             mean squared distance of the scores to these */
    const int32_t *labels; /* of each token of the last stack: next token; encoder: role *
                              source_len + word it belongs to; masked: the token in its
                              place; classes: of each text, or of each token without
                              pooling; negative: not counted */
    const float *wanted; /* (rows, classes) in place of labels of 0 or more, where a model
                            is multi_label: 1 for each class of the row, else 0; NULL: the
                            label is its one class */
} ph_batch;

/* What an open pass holds. */
enum {
    PH_OPEN_ALL = 1, /* all activations */
    PH_OPEN_SITES,   /* what looks at attention sites need: 2 GB less for 32 layers of
                        model_dim 1024 and 4,000 tokens */
    PH_OPEN_SITE     /* the same of one attention site, until the next one runs */
};

typedef struct ph_pass_shape {
    int batch, source_len, target_len; /* texts; most tokens of one; target_len 0 unless
                                          BOTH */
    int backward;                      /* 1: training, with dropout; 0: neither */
    int no_dropout;                    /* 1: not even then */
    int gated;                         /* 1: heads are multiplied by `gates` of the pass,
                                          and backward gives their gradient */
    int open;                          /* PH_OPEN_...: heads are shown to `see` before wo;
                                          0: no */
    int encoder_only;                  /* BOTH: 1: nothing but the encoder */
    int pooled_only;                   /* encoder: 1: no scores of tokens */
    const ph_kv_cache *kv;             /* the decoder alone, with these caches; or NULL */
} ph_pass_shape;

/* What one residual connection saves. */
typedef struct ph_residual {
    float *s, *n; /* (rows, model_dim) */
    float *stats; /* (rows, 2) mean and 1 / standard deviation */
} ph_residual;

/* What one sublayer saves. */
typedef struct ph_act {
    ph_layer *layer;     /* attention */
    ph_plan *plan;       /* plain attention to cached keys of the encoder */
    void *saved;         /* of the layer: ph_layer_saved bytes */
    float *heads;        /* open: (rows, heads*v_dim) */
    float *gate, *dgate; /* gated: (heads, rows) what each head of each token is
                            multiplied by; its gradient, 0 where the gate is */
    float *relative; /* of the heads that are left, where some were removed; or NULL */
    float *h, *g;    /* feed-forward: before and after the activation */
    const float *a;  /* its input */
    ph_residual residual;
    ph_residual post; /* sandwich: s: f(a), n: its norm, which is added in its place */
} ph_act;

/* Columns of the input of the output projection. */
static inline int ph_act_width(const ph_act *act)
{
    ph_layer_info info = ph_layer_about(act->layer);
    return info.heads * info.dim;
}

/* Whether the first sublayer reads the norm of the embeddings. */
static inline int ph_stack_normed(const ph_model_stack *stack)
{
    return stack->gain >= 0 && stack->projection < 0;
}

typedef struct ph_pass_stack {
    const ph_model_stack *def;
    int len, rows;          /* tokens of the longest text, and of all */
    int32_t *even;          /* (batch + 1) offsets of texts of the same length */
    const int32_t *offsets; /* (batch + 1) those of this batch */
    int32_t *positions;     /* (rows) of each token in its text */
    int32_t *position_rows; /* (rows) of each in the table of learned positions */
    int max_len;            /* most tokens of a text */
    int32_t *places;        /* (rows) b * max_len + t of token t of text b: what does not
                               depend on the lengths of the others */
    float *relative;        /* T5's: (heads, distances) bias, see ph_args.relative */
    float *drelative;       /* its gradient, summed over the layers */
    ph_residual entry; /* s: embeddings; n, stats: the first norm where there is one */
    ph_residual embedded; /* embed_dim: embeddings and their norm, (rows, embed_dim);
                             entry.s is the projection of n then */
    ph_act *acts;      /* (def->count) */
} ph_pass_stack;

struct ph_pass {
    ph_model *model;
    ph_pass_shape shape;
    const float *block; /* parameters in use: the model's */
    float *grads;       /* backward: where gradients go */
    ph_batch batch;
    uint64_t seed;                /* of this step's dropout */
    const float *gates;           /* gated: of every head of every site, in order; NULL:
                                     all 1 */
    float balance;                /* weight of the balance loss of variants that route */
    float *balance_loss;          /* (sites) as the last forward pass left it */
    int first_stack, stack_count; /* stacks [first_stack, stack_count) run */
    ph_pass_stack stacks[2];
    const float *encoded;   /* with caches: the encoder's output for every text; NULL: the
                               caches have what is needed of it */
    int pages;              /* of the caches that the layers are made for */
    const float *sinusoids; /* (positions, model_dim), of the model; or NULL */
    float *slopes;          /* ALiBi: of the heads of all sites */

    /* transient, shared by all sublayers */
    float *y;         /* (rows, model_dim) output of a sublayer */
    void *site_saved; /* PH_OPEN_SITE: saved and heads of every site */
    float *site_heads;
    float *dr, *da, *dy; /* (rows, model_dim) gradients of r, a, and of y with dropout */
    float *dg;           /* (rows, ff_dim) gradient of g, then of h in place */
    float *dmemory, *dmemory_part; /* (source rows, model_dim) */
    float *layer_drelative;        /* T5's: gradient of one layer's bias */
    float *held; /* gradients of a sublayer in the layers behind (shared.c), or NULL */
    float *ones;                   /* (rows) */
    float *lanes;                  /* (threads, model_dim) */
    float *sums;                   /* (chunks, 2 * model_dim) of gains and shifts */
    float *row_loss;               /* (rows) */
    float *logits;                 /* (rows, vocab); with caches: (batch, vocab) */
    float *capped;          /* backward with output_softcap: (threads, vocab) */
    float *chosen;          /* with caches: (batch, model_dim) rows that have logits; with
                      output_scale: (rows, model_dim) */
    struct ph_links *links; /* what an encoder ends in, or NULL */
    struct ph_masked *masked;
    struct ph_patches *patches; /* of pictures, or NULL */
    struct ph_frames *frames;   /* of sound, or NULL */
    struct ph_pooled *pooled;

    ph_status (*see)(void *user, int site, float *heads);
    void *user;

    void *memory; /* the workspace */
    size_t memory_size;
};

ph_status ph_pass_create(ph_pass **out, ph_model *model, const ph_pass_shape *shape);
void ph_pass_free(ph_pass *pass);

/* Everything up to the output of the last stack. seed: of dropout. */
ph_status ph_pass_forward(ph_pass *pass, const ph_batch *batch, uint64_t seed);

/* Logits (decoders) of the last stack's output; with caches of these rows only. */
ph_status ph_pass_logits(ph_pass *pass);
ph_status ph_pass_logits_of(ph_pass *pass, const int32_t *rows, int count);

/* Sum of the losses of all counted rows; with backward also the gradient of `scale` times
   it with respect to the last stack's output. smoothing: of labels. */
ph_status ph_pass_loss(ph_pass *pass, float smoothing, float scale, double *loss);

/* Sum of the balance losses of all attention sites, not weighted. */
double ph_pass_balance(const ph_pass *pass);

/* Gradients of all parameters after ph_pass_loss; they replace what grads held. */
ph_status ph_pass_backward(ph_pass *pass, float *grads);

/* The last stack's output (rows, model_dim). */
const float *ph_pass_output(const ph_pass *pass);

/* ---- parts ------------------------------------------------------------------------- */

/* residual.c */
ph_status ph_embed_forward(const ph_pass *p, const ph_pass_stack *stack);
void ph_residual_forward(const ph_pass *p, const ph_pass_stack *stack, int sublayer);
enum { PH_RESIDUAL_ROWS = 16 }; /* rows of one work item */
void ph_residual_backward(const ph_pass *p, const ph_pass_stack *stack, int sublayer,
                          int first);
ph_status ph_entry_backward(const ph_pass *p, const ph_pass_stack *stack);
void ph_embed_backward(const ph_pass *p, const ph_pass_stack *stack);
/* A norm alone: n from s; dr, that of s, from da, that of n. */
void ph_norm_forward(const ph_pass *p, const ph_pass_stack *stack,
                     const ph_residual *norm, int gain, int shift);
void ph_norm_backward(const ph_pass *p, const ph_pass_stack *stack,
                      const ph_residual *norm, int gain, int shift);
void ph_pass_add(const ph_pass *p, size_t count, float *y, const float *x);

/* output.c: gradients of the scores of tokens, da that of the last stack's output */
ph_status ph_output_backward(ph_pass *p);

/* shared.c: around the backward pass of a sublayer and its norm. */
size_t ph_shared_floats(const ph_model *m);
void ph_shared_hold(const ph_pass *p, const ph_pass_stack *stack, int sublayer);
void ph_shared_add(const ph_pass *p, const ph_pass_stack *stack, int sublayer);

/* buckets.c */
size_t ph_buckets_floats(const ph_model *m); /* of a bias by distance */
/* The bias from the table, and the table's gradient. */
void ph_buckets_forward(const ph_pass *p, const ph_pass_stack *stack);
void ph_buckets_backward(const ph_pass *p, const ph_pass_stack *stack);
/* The bias of the heads that a sublayer has; and adds its gradient, layer_drelative, to
   that of all heads. */
const float *ph_buckets_take(const ph_pass *p, const ph_pass_stack *stack, int sublayer);
void ph_buckets_add(const ph_pass *p, const ph_pass_stack *stack, int sublayer);

/* attend.c, feed.c; positions: what self-attention of a sublayer adds to its scores */
void ph_attend_positions(const ph_pass *p, int stack, int sublayer, ph_args *args);
ph_status ph_attend_forward(ph_pass *p, int stack, int sublayer);
ph_status ph_attend_backward(ph_pass *p, int stack, int sublayer);
ph_status ph_attend_look(ph_pass *p, int stack, int sublayer, const ph_look_at *at,
                         float *out);
int ph_feed_rows(const ph_pass *p, const ph_pass_stack *stack); /* of h and g at once */
ph_status ph_feed_forward(ph_pass *p, int stack, int sublayer);
ph_status ph_feed_backward(ph_pass *p, int stack, int sublayer);

/* links.c: the pointer of an encoder */
typedef struct ph_links {
    ph_plan *plan;  /* attention whose values are one-hot positions */
    float *q, *k;   /* (rows, model_dim) */
    float *one_hot; /* (rows, len) values: the identity of each text; len: source_len of
                       the shape */
    float *p;       /* (rows, len) the answer */
    float *lse;     /* (rows) */
    float *dq, *dk, *dp;
} ph_links;

ph_status ph_links_create(ph_pass *p);
void ph_links_layout(ph_pass *p, ph_arena *arena);
ph_status ph_links_forward(ph_pass *p);
ph_status ph_links_loss(ph_pass *p, float scale, double *loss);
ph_status ph_links_backward(ph_pass *p);

/* patches.c: rows of pictures */
typedef struct ph_patches {
    float *x;    /* (pictures * patches, pixels of one) */
    float *rows; /* (pictures * patches, model_dim); after backward their gradient */
} ph_patches;

void ph_patches_layout(ph_pass *p, ph_arena *arena);
ph_status ph_patches_forward(ph_pass *p);
float *ph_patches_row(const ph_pass *p, int row); /* NULL: a class token */
ph_status ph_patches_backward(ph_pass *p);

/* frames.c: rows of sound, each of two frames */
typedef struct ph_frames {
    float *x1, *h1, *g1;   /* (frames, 3 mels), (frames, model_dim) of the first one:
                              gathered, before and after GELU */
    float *x2, *h2, *rows; /* (rows, 3 model_dim), (rows, model_dim) of the second */
    float *d1, *d2;        /* gradients of h1 and h2 */
} ph_frames;

void ph_frames_layout(ph_pass *p, ph_arena *arena);
ph_status ph_frames_forward(ph_pass *p);
ph_status ph_frames_backward(ph_pass *p);

/* Whether the rows of a stack are tokens. */
static inline int ph_reads_tokens(const ph_pass *p, const ph_pass_stack *stack)
{
    return !p->patches && (!p->frames || stack->def->decoder);
}

/* masked.c: the layer before the scores of masked tokens, n = norm(f(x w + b)) */
typedef struct ph_masked {
    float *h;         /* (rows, model_dim) before the activation */
    ph_residual norm; /* s: after it */
    float *dh;
} ph_masked;

void ph_masked_layout(ph_pass *p, ph_arena *arena);
ph_status ph_masked_forward(ph_pass *p);
ph_status ph_masked_backward(ph_pass *p); /* da: that of n, then of x */

/* pooled.c: one vector for a text, scores of classes */
typedef struct ph_pooled {
    float *sum;      /* (batch, pooled_dim) tokens as one vector */
    int32_t *origin; /* PH_POOL_MAX: (batch, pooled_dim) the row of each element */
    float *out;      /* (vectors, vector_dim) behind the pooler: of texts, or of tokens */
    float *h, *dh;   /* PH_POOLER_GELU: (vectors, vector_dim) before it, their gradient */
    float *f, *stats; /* pooler_norm: what it is the norm of, (vectors, 2) as ph_residual
                         has them */
    float *row;       /* backward: (vector_dim) */
    float *norm;     /* (batch) of `out` before it was scaled to 1 */
    float *scores;   /* (vectors, classes); after the loss their gradient */
    float *dout, *dsum;
    float *second, *second_scores, *dsecond; /* distilled: the same of the second row */
} ph_pooled;

void ph_pooled_layout(ph_pass *p, ph_arena *arena);
/* Of a token in the vector of its text, but for a factor that all share; not of the
   maximum. */
float ph_pool_weight(ph_pooling how, int token, int count);
/* Tokens of a text, as PH_POOL_LAST counts them. */
int ph_pool_count(const ph_pass *p, int text);
ph_status ph_pooled_forward(ph_pass *p);
ph_status ph_pooled_loss(ph_pass *p, float scale, double *loss); /* of batch.vectors */
ph_status ph_pooled_backward(ph_pass *p);

/* Streams of random numbers: dropout of each sublayer has its own. */
enum {
    PH_DROPOUT_EMBED = 1000,
    PH_DROPOUT_RESIDUAL = 2000,
    PH_DROPOUT_FEED = 3000,
    PH_DROPOUT_ATTEND = 4000
};

static inline uint64_t ph_dropout_stream(int what, const ph_pass_stack *stack,
                                         int sublayer)
{
    return (uint64_t)what * 8 + (uint64_t)stack->def->decoder * 4 +
           ((uint64_t)sublayer << 32);
}

/* Probability of an element to be dropped: 0 without backward. */
float ph_dropout_rate(const ph_pass *p);

/* Dropout factors of columns [c, c + n) of the token at a place, in `scratch`, whose
   capacity is a multiple of 16; NULL: all of them are 1. */
const float *ph_dropout_factors(const ph_pass *p, uint64_t stream, int place, int c,
                                int n, float *scratch);

#endif
