/*
 * eval.h - the inside of a ph_eval: texts as tokens with labels, and passes over them.
 *
 *     eval_texts.c   texts and samples of recipes, with their labels
 *     eval.c         the loss with heads changed
 *     importance.c   what each head is worth; order.c: which go first
 *     relevance.c    how much of the answers goes back to each head
 *     tuning.c       training on the texts, with gates of heads (hard_concrete.c)
 */
#ifndef PH_PRUNE_EVAL_H
#define PH_PRUNE_EVAL_H

#include "model/pass.h"
#include "polyhead_prune.h"

typedef struct ph_eval_text {
    int32_t *source; /* its memory, which all others are in */
    int32_t *types, *target, *labels;
    int source_len, target_len, label_len;
    int counted; /* labels that are not negative */
} ph_eval_text;

/* An attention site: where it is in a pass. */
typedef struct ph_eval_site {
    int stack, sublayer;
    int first_head, heads, dim;
} ph_eval_site;

struct ph_eval {
    ph_model *m;
    ph_eval_text *texts;
    int *order; /* (count) in which batches take them; measured as they come */
    int count;
    int source_len, target_len; /* most tokens of a text */
    int batch, batches;         /* texts of one pass at most, passes */
    ph_eval_site *sites;        /* (site_count) */
    int32_t *tokens;            /* source, types, target, labels of a batch, one block */
    int32_t *source_offsets, *target_offsets; /* (batch + 1) */
    int first, used;                          /* the texts of this batch */
    float *own;              /* vectors: (count, vector_dim) of the whole model ... */
    float *wanted;           /* ... and (batch, vector_dim) those that it should have */
    ph_pass *open;           /* forward, with heads open to changes */
    ph_pass *graded;         /* with gradients of gates */
    float *grads;            /* of the parameters, which nobody reads */
    const uint8_t *ablation; /* of the call that runs */
    double *loss, *accuracy; /* (count) of each text */
};

/* Texts of batch number i, side by side. */
ph_batch ph_eval_fill(ph_eval *e, int i);

/* Whether the model gives vectors and nothing else. */
static inline int ph_eval_is_vectors(const ph_eval *e)
{
    const ph_config *c = &e->m->config;
    return c->pooling && !c->classes && !c->masked;
}

/* Rows of a text of the batch in a stack. */
static inline const int32_t *ph_eval_rows(const ph_pass *p, int stack, int text)
{
    return p->stacks[stack].offsets + text;
}

/* The mean of the values and its standard error. */
ph_estimate ph_eval_mean(const double *values, int count);

/* relevance.c: layer-wise relevance of the heads. */
typedef struct ph_relevance {
    int alpha_beta; /* 1: contributions above and below 0 get half each; 0: ratio rule */
    double eps;     /* added to sums, away from 0, before they divide */
    double entering, leaving; /* what a batch began with, and what its embeddings got */
} ph_relevance;

ph_status ph_relevance_check(const ph_model *m); /* whether it goes through the model */

/* After a forward pass of `open`: values (heads, batch), of each head its part of the
   relevance of its site. */
ph_status ph_relevance_batch(ph_eval *e, ph_relevance *rule, double *values);

/* eval_texts.c: the texts, then what all evals need. */
ph_status ph_eval_open(ph_eval **out, ph_model *model, int count);
ph_status ph_eval_begin(ph_eval *e);

#endif
