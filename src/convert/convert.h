/*
 * convert.h - the parts of a conversion.
 *
 *     conversion.c    checks, the converted model, the report
 *     calibrate.c     texts through the model: what its attention sees, its loss
 *     head_weights.c  weights of an attention site, head by head in double
 *     grouping.c      which heads are merged
 *     alignment.c     how heads of a group are rotated before
 *     fit_heads.c     what a group has in common, by least squares
 *     merge_heads.c   fewer key and value heads; or more, by copies
 *     collaborate.c   one query and key for all heads
 *     carry_over.c    heads of a variant that has the weights of plain ones
 */
#ifndef PH_CONVERT_CONVERT_H
#define PH_CONVERT_CONVERT_H

#include "linear/linear.h"
#include "model/model.h"
#include "polyhead_convert.h"

/* ---- memory ------------------------------------------------------------------------ */

/* Memory that is released together: each piece holds the address of the one before. */
typedef struct ph_chain {
    ph_ctx *ctx;
    void *last;
} ph_chain;

ph_status ph_chain_take(ph_chain *chain, size_t count, size_t size, void *to);
ph_status ph_chain_doubles(ph_chain *chain, size_t count, double **to);
void ph_chain_free(ph_chain *chain);

/* ---- calibrate.c ------------------------------------------------------------------- */

typedef struct ph_calibration_text {
    int32_t *tokens, *types; /* NULL: a picture */
    int count;
    int32_t *target; /* encoder-decoder: what the decoder reads, then its labels */
    int target_count;
    const char *path; /* of a picture */
} ph_calibration_text;

/* Sums over tokens of products of the inputs of a site, x with a 1 behind it:
   (columns + 1, columns + 1). The sum over tokens of (x w)^T (x v) is w^T gram v, so
   nothing of the size of a text is needed to compare heads on it. */
typedef struct ph_calibration {
    ph_model *m;
    ph_chain chain;
    ph_calibration_text *texts; /* (count) the first `fit` of them fill the Gram matrices,
                                   those from `test` on measure the loss */
    int count, fit, test;
    int longest, longest_target;
    int tokens, test_tokens; /* rows of the last stack */
    double **grams;          /* (sites) inputs of queries; of self-attention's keys too */
    double *memory_gram;     /* of what cross-attention sees, or NULL */
    float *outputs;          /* of the original, (test_tokens, model_dim) */
} ph_calibration;

/* texts NULL: Gram matrices are the identity. */
ph_status ph_calibrate(ph_calibration *c, ph_model *m, const ph_texts *texts,
                       int max_tokens);
void ph_calibration_free(ph_calibration *c);

/* Mean loss of a model on the test texts, NaN where it predicts no next token. The first
   model's outputs are stored; distance: of this one's to them. */
ph_status ph_calibration_test(ph_calibration *c, ph_model *m, double *loss,
                              double *distance);

/* ---- head_weights.c ---------------------------------------------------------------- */

typedef struct ph_head_weights {
    int in, source; /* rows of wq; of wk and wv; without biases */
    int heads, kv, dim;
    int out;
    double *q, *k,
        *v;    /* (heads, in + 1, dim), (kv, source + 1, dim); last rows: biases */
    double *o; /* (heads, dim, out) */
} ph_head_weights;

static inline double *ph_head_q(const ph_head_weights *w, int head)
{
    return w->q + (size_t)head * (size_t)(w->in + 1) * (size_t)w->dim;
}

static inline double *ph_head_k(const ph_head_weights *w, int head)
{
    return w->k + (size_t)head * (size_t)(w->source + 1) * (size_t)w->dim;
}

static inline double *ph_head_v(const ph_head_weights *w, int head)
{
    return w->v + (size_t)head * (size_t)(w->source + 1) * (size_t)w->dim;
}

static inline double *ph_head_o(const ph_head_weights *w, int head)
{
    return w->o + (size_t)head * (size_t)w->dim * (size_t)w->out;
}

/* An attention site of the model that is converted, and its place in the new one. */
typedef struct ph_convert_site {
    const ph_model *from;
    ph_model *to;
    const ph_sublayer *old, *new;
    const double *query_gram, *key_gram;
    int rotary; /* 1: queries and keys are rotated by position */
} ph_convert_site;

/* Index of a sublayer's parameter, or -1: "wq", "bk". */
int ph_sublayer_param(const ph_model *m, const ph_sublayer *sublayer, const char *name);

/* Memory for so many heads; and weights from the old model, to the new one. */
ph_status ph_head_weights_take(ph_head_weights *w, ph_chain *chain);
ph_status ph_head_weights_load(ph_head_weights *w, const ph_convert_site *site,
                               ph_chain *chain);
void ph_head_weights_store(const ph_head_weights *w, const ph_convert_site *site);

/* ---- grouping.c -------------------------------------------------------------------- */

/* Groups of equal size with the largest sum of similarities, (heads, heads), within
   groups: exact for up to 16 heads, by simulated annealing beyond. Groups are numbered by
   their first head. work: ph_grouping_work(heads) doubles. */
void ph_group_heads(int heads, int groups, const double *similarity, uint64_t seed,
                    int *group_of, double *work);
size_t ph_grouping_work(int heads);
double ph_grouping_score(int heads, const double *similarity, const int *group_of);

/* ---- alignment.c ------------------------------------------------------------------- */

typedef enum ph_freedom {
    PH_FREEDOM_NONE,
    PH_FREEDOM_HALF,        /* a rotation of each pair (p, p + dim/2) */
    PH_FREEDOM_INTERLEAVED, /* of each pair (2p, 2p + 1) */
    PH_FREEDOM_ALL          /* any orthogonal matrix */
} ph_freedom;

/* The r (dim, dim) of that freedom for which x r is closest to y; c = x^T y. Returns the
   trace of r^T c. work: 2 dim^2 + dim. */
double ph_align(ph_freedom freedom, int dim, const double *c, double *r, double *work);

/* One r for each of `count` heads so that all x_i r_i are close to their mean. grams:
   (heads, heads, dim, dim) products x_i^T x_j; members: which heads. r: (count, dim,
   dim). work: (count + 5) dim^2. */
void ph_align_group(ph_freedom freedom, int dim, int heads, const double *grams,
                    const int *members, int count, double *r, double *work);

/* ---- fit_heads.c ------------------------------------------------------------------- */

/* The least squares: to_i and back_i, (heads, dim, dim) each, for which
   merged = sum x_i to_i has the smallest errors x_i - merged back_i, an error e costing
   e weight_i e^T. They commute with rotary positions as the freedom says. Given are
   rotations to start from, in back. work: ph_fit_work doubles. */
void ph_fit_group(ph_freedom freedom, int dim, int heads, const double *grams,
                  const double *weight, const int *members, int count, double *to,
                  double *back, double *work);
size_t ph_fit_work(int dim, int count);

/* ---- conversions of a site --------------------------------------------------------- */

/* To as many key and value heads as the new site has. group_of: (kv heads), filled. */
ph_status ph_merge_heads(const ph_convert_site *site, const ph_conversion *how,
                         int *group_of, ph_converted_site *report);
ph_status ph_copy_heads(const ph_convert_site *site);
ph_status ph_collaborate(const ph_convert_site *site, ph_converted_site *report);

/* Whether all variants of a list, as a model has it, keep the weights of plain heads; and
   to such a variant. seed: of what begins as random values. */
ph_status ph_carry_check(ph_ctx *ctx, const char *variants);
void ph_carry_over(const ph_convert_site *site, uint64_t seed);

/* The smallest rank, a multiple of the head size, with at most that error. */
ph_status ph_collab_rank(const ph_convert_site *site, double error, int *rank);

#endif
