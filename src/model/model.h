/*
 * model.h - the inside of a ph_model: its sublayers, and the layout of its parameters.
 *
 *     config.c     configuration as JSON and back, defaults, checks
 *     model_text.c text to tokens and back, by its vocabulary or by the tokenizer of a
 *                  checkpoint
 *     model.c      the list of sublayers and parameters, initial values
 *     sublayer.c   attention of a sublayer, and its parameters
 *     shared.c     layers that share parameters, and their gradients
 *     sinusoids.c  fixed positions
 *     kept.c       which heads it still has; remove.c: takes heads out
 *     store.c      models in files
 *     companions.c what such a file holds beside parameters: the tokenizer and so on
 *     prepack.c    an encoder's matrices in the order that products read them
 *     import.c     models from checkpoints of other programs; export.c: into them,
 *                  export_files.c: what lies beside tensors
 *     activations.c  memory of passes, kept between calls
 *     lanes.c        the model once for each thread
 *     pass.c       one forward and backward pass over a batch; its parts:
 *                  residual.c (embeddings, residual connections, norms, dropout),
 *                  patches.c, frames.c, attend.c, feed.c, buckets.c, products.c; what
 *                  models end in: output.c, links.c, masked.c, pooled.c
 *     kv_cache.c   keys and values of texts that are decoded, in pages
 *     decoder.c, generate.c, beams.c, generate_text.c  decoding: tokens, then text
 *     features.c   features of sound from files; marks.c: tokens that mean something,
 *                  sound_marks.c: those of sound
 *     generation_settings.c  what generation_config.json says; logit_rules.c: what
 *                  that does to the next token
 *     reading.c    one text with everything open to view
 */
#ifndef PH_MODEL_MODEL_H
#define PH_MODEL_MODEL_H

#include "base/arena.h"
#include "base/ctx.h"
#include "layer/layer.h"
#include "model/kept.h"
#include "model/spans.h"
#include "polyhead_model.h"
#include "polyhead_text.h"
#include "text/chat.h"
#include "text/vocab.h"

/* Tokens with a meaning of their own; -1: there is none. */
enum { PH_MARKS_ENDS = 64, PH_MARKS_FORCED = 8 };

typedef struct ph_marks {
    int start, padding;      /* never generated */
    int mask;                /* stands for a hidden token */
    int ends[PH_MARKS_ENDS]; /* each ends a text */
    int end_count;
    int forced[PH_MARKS_FORCED]; /* tokens that every new text begins with; -1: the
                                    likeliest language */
    int forced_count;
    int languages; /* 1: PH_LANGUAGE says which tokens are; 0: all may be */
    int min_tokens; /* of a text before one that ends it ... */
    int min_length; /* ... and with those it continues, or its start */
    int max_tokens; /* of a text, where a call does not say; 0: as many as fit ... */
    int max_length; /* ... and with those it continues, or its start */
    int no_repeat;  /* tokens in a row that are not generated twice; 0: any are */
    float penalty;  /* of tokens that are there already; 0: none */
} ph_marks;

/* Of tokens: not generated; names of languages. */
enum { PH_NEVER = 1, PH_NOT_FIRST = 2, PH_LANGUAGE = 4 };

/* ---- parameters -------------------------------------------------------------------- */

typedef enum ph_start {
    PH_START_ZERO,
    PH_START_ONE,
    PH_START_NORMAL,
    PH_START_UNIFORM,
    PH_START_EYE,  /* 1 where row and column are equal */
    PH_START_BLOCK /* (heads, columns): 1 in the head's own columns */
} ph_start;

/* A matrix as it is stored. */
typedef struct ph_matrix {
    const void *data;
    ph_dtype type;
    ph_form form; /* PH_FORM_WHOLE: as its shape says, row by row; PH_FORM_LINEAR: the
                     transpose */
} ph_matrix;

static inline ph_matrix ph_matrix_of(const float *data)
{
    return (ph_matrix){.data = data};
}

typedef struct ph_weight {
    char name[48];
    int rank, dims[4];
    size_t at, count; /* offset in the block, elements */
    size_t unused;    /* of these, as ph_param says */
    ph_start start;   /* how it is initialised */
    float size;       /* standard deviation, or bound of the uniform values */
    ph_matrix stored; /* where it lies if not in the block; data NULL: there */
} ph_weight;

typedef enum ph_sublayer_kind {
    PH_SUBLAYER_SELF = 0,
    PH_SUBLAYER_CROSS,
    PH_SUBLAYER_FEED,
    PH_SUBLAYER_BIAS /* attention without any head left: its output is its bias */
} ph_sublayer_kind;

/* A sublayer and the residual connection after it: s = r + dropout(f(a)), n = norm(s). */
typedef struct ph_sublayer {
    ph_sublayer_kind kind;
    int layer;                 /* from 0 */
    int first, count;          /* its parameters, see model.c for their order */
    int named;                 /* attention: how many have a field in ph_layer_weights */
    int gain, shift;           /* parameters of the norm n; gain -1: none, n is s; shift
                                  -1: none */
    int post_gain, post_shift; /* sandwich: of a norm of f(a), before it is added; else
                                  -1 */
    int site;                  /* attention: index of the attention site; else -1 */
    int heads;                 /* attention: of queries ... */
    int first_head; /* ... and the index of the first among those of all sites */
    int *original;  /* (heads) index of each before any was removed; NULL: none was */
    int group;      /* original: heads that share keys and values */
    char variant[PH_VARIANT_TEXT + 24]; /* with the depth of the layer, see set_depth */
} ph_sublayer;

typedef struct ph_model_stack {
    int decoder; /* 1: tokens of the decoder */
    int causal;
    int gain, shift; /* norm before the first sublayer: pre-norm or embed_norm, whose
                        output is the stream; else -1 */
    int positions;   /* parameter, or -1 */
    int types;       /* parameter, or -1 */
    int buckets;     /* parameter of T5's bias, or -1 */
    int projection;  /* embed_dim: w of the layer behind the norm of the embeddings, its
                        bias after it; or -1 */
    int count;
    ph_sublayer *sublayers;
} ph_model_stack;

typedef struct ph_sinusoids ph_sinusoids;
typedef struct ph_activations ph_activations;
typedef struct ph_model_lane ph_model_lane; /* lanes.c */

/* What becomes of a picture before it is pixels of an encoder (preprocess.c). */
typedef struct ph_preprocess {
    int width, height; /* it is resized to this; 0: not resized */
    int shortest;      /* or until its shorter side is this; 0: see above */
    int bicubic;       /* 0: bilinear */
    int crop;          /* 1: then its centre, image_size x image_size, is taken */
    float scale;       /* then x becomes (x * scale - mean) / std */
    float mean[3], std[3];
} ph_preprocess;

struct ph_model {
    ph_ctx *ctx;
    ph_config config; /* defaults filled in */
    ph_vocab vocab;
    ph_tokenizer *tokenizer; /* of a published checkpoint, in place of vocab; or NULL */
    char *tokenizer_file;    /* the bytes it was read from (companions.c), of a model that
                                owns its parameters; or NULL */
    size_t tokenizer_size;
    ph_tokenizer *target_tokenizer; /* the same of what a decoder reads, where it ... */
    char *target_file;              /* ... is not tokenized like a source (Marian) */
    size_t target_size;
    ph_marks marks;
    uint8_t *suppressed; /* (vocab) PH_NEVER, PH_NOT_FIRST behind the forced, PH_LANGUAGE;
                            or NULL */
    int32_t *banned;     /* sequences that are not generated, each behind its length */
    int banned_count;    /* numbers in it */
    char *ignored;       /* settings of generation that count for nothing; or NULL */
    char *chat_template; /* of a published checkpoint; or NULL */
    char *chat_tokens[PH_CHAT_TOKENS]; /* texts of those that it names; or NULL */
    char *prompt;        /* before every text that is embedded; or NULL */
    int truncate_left;   /* 1: a text that is too long loses its first tokens */
    char *labels; /* (classes) names, each closed by NUL; or NULL */
    ph_preprocess preprocess; /* of pictures */
    const ph_spans *spans;
    ph_kept kept;       /* heads that were removed; config has those before */
    int *original;      /* memory for those of sublayers that lost heads ... */
    int original_count; /* ... as far as it is used */
    int stack_count;
    ph_model_stack stacks[2]; /* encoder first where there are both */
    int site_count;           /* attention sites, links not counted */
    int head_count;           /* heads of queries of all of them */
    int param_count;
    ph_weight *params;
    ph_tensor *tensors; /* the same for the public */
    size_t floats;      /* of the block */
    size_t decayed;     /* matrices come first: weight decay acts on these floats */
    float *block;
    struct ph_checkpoint *checkpoint; /* that parameters are stored in, or NULL */
    struct ph_model_panels *panels;   /* of an encoder's matrices (prepack.c), or NULL */
    ph_sinusoids *sinusoids;          /* tables so far, the longest first */
    _Atomic(ph_activations *) activations; /* memory that no pass uses, or NULL */
    ph_model_lane *lanes;                  /* (threads) of an encoder, or NULL */
    int embed, output; /* parameters; output = embed where tied; -1: no tokens */
    int patches;       /* w of patches, the bias after it; -1: rows are tokens */
    int class_tokens;  /* first of them, a parameter each, or -1 */
    int convolutions;  /* w of the first, its bias, w and bias of the second; -1: none */
    int links;         /* first of wq wk; -1: none */
    int masked;        /* w of its layer, the bias after it unless no_dense_bias; -1:
                          none */
    int masked_gain, masked_shift;     /* of its norm; shift -1: none */
    int output_bias;                   /* of the scores of tokens; -1: none */
    int pooler, classifier, distilled; /* w of each, the bias after it unless there is
                                          none; -1: none */
    int pooler_gain, pooler_shift;     /* of its norm; -1: none */
};

enum { PH_CLASS_TOKENS = 16 }; /* at most */

/* ---- shared by the files ----------------------------------------------------------- */

/* Columns of q: all heads of a token. */
static inline int ph_config_heads_width(const ph_config *c)
{
    return c->heads * c->head_dim;
}

/* Columns of embeddings, and of what is multiplied with the output matrix. */
static inline int ph_config_embed_dim(const ph_config *c)
{
    return c->embed_dim ? c->embed_dim : c->model_dim;
}

/* The layer by whose number parameters are named: layers that share them have one. */
static inline int ph_config_group(const ph_config *c, int layer)
{
    return c->layer_groups ? layer / (c->layers / c->layer_groups) : layer;
}

/* Rows of the first stack, at most. */
static inline int ph_config_source_len(const ph_config *c)
{
    return c->encoder_len ? c->encoder_len : c->max_len;
}

/* Whether a stack has a table of positions; and a bias per bucket of distances. */
static inline int ph_config_learned(const ph_config *c)
{
    return c->positions == PH_POS_LEARNED || c->positions == PH_POS_LEARNED_T5;
}

static inline int ph_config_bucketed(const ph_config *c)
{
    return c->positions == PH_POS_T5 || c->positions == PH_POS_LEARNED_T5;
}

/* Whether an activation is multiplied by a second product, x w3. */
static inline int ph_config_gated(const ph_config *c)
{
    return c->activation == PH_SWIGLU || c->activation == PH_GEGLU ||
           c->activation == PH_GEGLU_ERF;
}

/* The same without the second product. */
static inline ph_activation ph_config_ungated(const ph_config *c)
{
    return c->activation == PH_SWIGLU      ? PH_SILU
           : c->activation == PH_GEGLU     ? PH_GELU
           : c->activation == PH_GEGLU_ERF ? PH_GELU_ERF
                                           : c->activation;
}

/* Ways to pool, side by side; columns of what they give, and of the vector of a text. */
static inline int ph_config_poolings(const ph_config *c)
{
    int count = c->pooling != PH_POOL_NONE;
    while (count && count < 4 && c->pooling_more[count - 1]) count++;
    return count;
}

static inline ph_pooling ph_config_pooling(const ph_config *c, int i)
{
    return i ? c->pooling_more[i - 1] : c->pooling;
}

static inline int ph_config_pooled_dim(const ph_config *c)
{
    int ways = ph_config_poolings(c);
    if (!ways && c->pooler) ways = 1; /* which reads every token */
    return ways * c->model_dim;
}

static inline int ph_config_vector_dim(const ph_config *c)
{
    if (!c->pooler) return ph_config_pooled_dim(c);
    return c->pooler_dim ? c->pooler_dim : c->model_dim;
}

/* Columns of what a classifier reads: vectors of texts or of tokens, or tokens. */
static inline int ph_config_classified_dim(const ph_config *c)
{
    int vector = ph_config_vector_dim(c);
    return vector ? vector : c->model_dim;
}

/* Columns of what comes before the activation: x w1, then x w3 where there is one. */
static inline int ph_config_ff_width(const ph_config *c)
{
    return ph_config_gated(c) ? 2 * c->ff_dim : c->ff_dim;
}

/* Fills in defaults and checks; vocab is what the vocabulary has, 0: none. */
ph_status ph_config_check(ph_ctx *ctx, ph_config *config, int vocab);

/* The first field in which two of them differ, or NULL. */
const char *ph_config_differs(const ph_config *a, const ph_config *b);

/* Reads JSON; `text` is changed. */
ph_status ph_config_read(ph_ctx *ctx, ph_config *config, char *text, size_t length);

void ph_preprocess_default(ph_model *m); /* until a checkpoint says more */
void ph_preprocess_invert(const ph_model *m, const float *pixels, uint8_t *rgb);

/* Lists sublayers and parameters as the configuration has them. */
ph_status ph_model_list(ph_model *model);

/* A model that knows its parameters' names and shapes but has no memory for them, and
   that memory, cleared: a reader checks the shapes first. What `kept` holds, if not NULL,
   becomes the model's. */
ph_status ph_model_shape(ph_model **out, ph_ctx *ctx, const ph_config *config,
                         ph_kept *kept, ph_split split, const char *const *tokens,
                         int count);
ph_status ph_model_layout(ph_model *model);
ph_status ph_model_allocate(ph_model *model);

/* Parameter `index` as a new model has it. */
void ph_model_start(ph_model *model, int index, uint64_t seed);

/* ---- stored.c: parameters in place ------------------------------------------------- */

/* Between the two: parameter `index` is read in place, where a mapped file has it. form
   PH_FORM_LINEAR: (out, in), the transpose of its shape here. Memory and file outlive the
   model, which cannot be trained or written then. Only matrices of plain projections,
   feed-forward, embeddings and output may be stored; PH_UNSUPPORTED, without a sentence:
   this one must be converted into the block. */
ph_status ph_model_store(ph_model *model, int index, ph_matrix stored);

/* A parameter where it lies: in place, or in this block. */
ph_matrix ph_model_matrix(const ph_model *m, const float *block, int index);

/* One row of a matrix as floats. */
void ph_model_row(const ph_model *m, const float *block, int index, int row, float *to);

/* Rows of a matrix as floats in our order, (in, out), whatever its type and form. */
void ph_model_rows(const ph_model *m, int index, int first, int count, float *to);

/* Refuses parameters that are NaN or Inf, by name. */
ph_status ph_model_check_finite(const ph_model *m);

/* Refuses logits, scores or vectors (what) among which there is a NaN or Inf: none is the
   largest of NaNs, and no answer follows. -Inf is a token that never comes. */
ph_status ph_model_check_output(const ph_model *m, const char *what, const float *values,
                                size_t count);

/* Refuses what changes or writes parameters where some are stored in place. */
ph_status ph_model_check_own(const ph_model *m, const char *what);

/* What the public sees of such a parameter; and types and forms of a sublayer's. */
void ph_model_show_stored(const ph_weight *p, ph_tensor *tensor);
void ph_model_describe_stored(const ph_model *m, const ph_sublayer *sublayer,
                              ph_layer_desc *desc);

/* ---- prepack.c --------------------------------------------------------------------- */

/* Packs the f32 matrices of a folder once, up to 512 MB of them, if a pass of so many
   rows is about to run: same bits, no packing in each pass. */
void ph_model_prepack(ph_model *m, int rows);
void ph_model_drop_panels(ph_model *m);

/* ---- lanes.c ----------------------------------------------------------------------- */

/* Makes the model ready to be run by each thread alone, on texts of at most so many rows;
   returns the number of threads, 0: it cannot be. Then item(arg, lane, index) is called
   for every index, where `lane` is the model as its thread may use it. */
typedef ph_status ph_lane_item(void *arg, ph_model *lane, int index);
int ph_model_open_lanes(ph_model *m, int rows);
ph_status ph_model_run_lanes(ph_model *m, int count, ph_lane_item *item, void *arg);
void ph_model_drop_lanes(ph_model *m);

/* ---- activations.c ----------------------------------------------------------------- */

/* Memory of at least so many bytes, `size` of them; NULL: there is none. keep 1: the
   model may hold on to it for the next pass. Safe from several threads at once. */
void *ph_model_take_activations(ph_model *m, size_t bytes, size_t *size);
void ph_model_give_activations(ph_model *m, void *memory, int keep);

/* ---- shapes ------------------------------------------------------------------------ */

/* Positions 0 to rows - 1 at least, (rows, model_dim), for as long as the model lives;
   NULL where it has no sinusoidal positions. Safe from several threads at once. */
ph_status ph_model_sinusoids(ph_model *m, int rows, const float **values);
void ph_model_free_sinusoids(ph_model *m);

/* Attention of a sublayer for these sizes, with its mask. */
ph_layer_desc ph_model_layer(const ph_model *m, const ph_model_stack *stack,
                             const ph_sublayer *sublayer, int batch, int q_len,
                             int kv_len);

/* Whether heads can be removed: not where layers share parameters, not of every
   sublayer. */
ph_status ph_model_check_unshared(const ph_model *m);
ph_status ph_sublayer_removable(const ph_model *m, const ph_model_stack *stack,
                                const ph_sublayer *sublayer);

/* Before its parameters are listed: the heads of an attention sublayer that the model
   still has. Where none is left it becomes PH_SUBLAYER_BIAS. */
ph_status ph_sublayer_keep(ph_model *m, const ph_model_stack *stack,
                           ph_sublayer *sublayer);

/* shared.c: adds a layer of an encoder with the parameters of the one before it. */
void ph_model_share(ph_model *m, ph_model_stack *stack, int layer);

/* remove.c: parameters that both models have, by name and size. */
void ph_model_copy_same(const ph_model *from, ph_model *to);

/* Two models exchange everything but what belongs to text and pictures: `other`, which
   has none of that, becomes the model that m was. */
void ph_model_exchange(ph_model *m, ph_model *other);

/* remove.c: heads that were removed come back as zeros, which give the same results. */
ph_status ph_model_restore(ph_model *m);

/* The index that a head of a sublayer had before any was removed. */
static inline int ph_sublayer_original(const ph_sublayer *sublayer, int head)
{
    return sublayer->original ? sublayer->original[head] : head;
}

/* The parameters of an attention sublayer as its layer takes them. */
typedef struct ph_bound {
    ph_layer_weights weights;
    ph_layer_grads grads;
    ph_matrix wq, wk, wv, wo;          /* as products take them */
    const float *extra[PH_EXTRAS_MAX]; /* the variant's own */
    float *dextra[PH_EXTRAS_MAX];
} ph_bound;

/* From a block of parameters, and of gradients where there is one. */
void ph_model_bind(const ph_model *m, const ph_sublayer *sublayer, const float *block,
                   float *grads, ph_bound *out);

/* ---- products.c -------------------------------------------------------------------- */

/* y = x w + b: x (rows, in), w (in, out), y (rows, out); b may be NULL. */
ph_gemm ph_product(int rows, int in, int out, const float *x, ph_matrix w, const float *b,
                   float *y);

/* x = y w^T with the same shapes. */
ph_gemm ph_product_transposed(int rows, int in, int out, const float *y, ph_matrix w,
                              float *x);

/* The gradients of y = x w + b; db takes rows times 1. */
ph_gemm ph_product_dx(const ph_model *m, int rows, int in, int out, const float *dy,
                      ph_matrix w, float *dx);
ph_gemm ph_product_dw(const ph_model *m, int rows, int in, int out, const float *x,
                      const float *dy, float *dw);
ph_gemm ph_product_db(int rows, int out, const float *ones, const float *dy, float *db);

/* The same product, in AMX tiles where the ctx computes gradients so. */
ph_gemm ph_product_of_gradients(const ph_model *m, ph_gemm product);

/* Runs products with scratch of the ctx. */
ph_status ph_model_multiply(const ph_model *m, const ph_gemm *list, int count);

#endif
