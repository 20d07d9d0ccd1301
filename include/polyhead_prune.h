/*
 * polyhead_prune.h - what heads are worth, and models without some of them
 *
 *     ph_eval_create     texts with what a model should make of them   -> ph_eval
 *     ph_eval_loss       its loss on them, with heads changed
 *     ph_importance      what each head is worth, by one of several methods
 *     ph_model_remove    takes heads out of a model, which is smaller and faster then
 *
 * The rules of polyhead.h hold here too. Heads are those of all attention sites of a
 * model in order, as ph_reading lists them, without the pointer of an encoder that
 * points at words: these are its answer. Variants whose heads are mixed are refused.
 *
 * The loss of a text is the mean over its counted tokens, the loss of many is the mean
 * over texts, and so are the errors given here standard errors over texts. What is
 * counted depends on the model:
 *
 *     decoder            every token but the first, given those before it
 *     encoder-decoder    every token of the target and its end, given the source
 *     masked             about 15 of 100 tokens, which are replaced by the mask; which
 *                        ones depends on their places alone
 *     classes            the class of a text
 *     links              the word each word belongs to (recipes only)
 *     vectors            nothing has a label: half the squared distance to the vector
 *                        that the whole model gave the text when the eval was created
 */
#ifndef POLYHEAD_PRUNE_H
#define POLYHEAD_PRUNE_H

#include "polyhead_model.h"
#include "polyhead_train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- texts to measure on ----------------------------------------------------------- */

typedef struct ph_eval ph_eval;

/* pairs of texts: the target of each (encoder-decoder), or its class, by name or number;
   NULL for all others. Longer texts than max_tokens, 0: than the model takes, are
   truncated. Parameters that are read in place become the model's own (ph_model_own); the
   model must outlive the eval. */
PH_API ph_status ph_eval_create(ph_eval **out, ph_model *model, const ph_texts *texts,
                                int max_tokens);

/* Samples of a recipe that training never sees, or (seen 1) those it sees. */
PH_API ph_status ph_eval_recipe(ph_eval **out, ph_model *model, const ph_train *train,
                                int texts, int seen);
PH_API void ph_eval_free(ph_eval *eval); /* accepts NULL */

PH_API int ph_eval_texts(const ph_eval *eval);

/* Vectors: from now on distances are to those of `whole`, an eval of the same texts. */
PH_API ph_status ph_eval_compare(ph_eval *eval, const ph_eval *whole);

/* A mean over texts. */
typedef struct ph_estimate {
    double value;
    double error; /* standard error; 0 for one text */
} ph_estimate;

/* How well the model does with heads changed: one ph_ablation for each head, NULL: all
   on. accuracy: share of the counted tokens, classes or links that are likeliest; of
   vectors: the mean cosine to those of the whole model. exact: share of the texts with an
   accuracy of 1. */
typedef struct ph_result {
    ph_estimate loss, accuracy, exact;
    int64_t tokens; /* counted */
    uint64_t reserved[4];
} ph_result;

PH_API ph_status ph_eval_loss(ph_eval *eval, const uint8_t *ablation, ph_result *out);

/* ---- heads ------------------------------------------------------------------------- */

typedef struct ph_head_place {
    char site[32]; /* "encoder.0.self" */
    int head;      /* index in the model before any was removed */
    int group;     /* heads with the same one share keys and values */
} ph_head_place;

PH_API int ph_model_heads(const ph_model *model); /* of all sites */
PH_API ph_status ph_model_head(const ph_model *model, int i, ph_head_place *out);

typedef enum ph_worth {
    PH_WORTH_TOKEN = 0, /* gradient: sum over tokens of |output . its gradient|. Vectors:
                            of a random projection of the change */
    PH_WORTH_SAMPLE,    /* |sum over tokens of output . its gradient| */
    PH_WORTH_PATH,      /* minus the mean gradient of a head's gate while all gates go
                           from 1 to 0: the head's part of what the loss grows by then */
    PH_WORTH_ZERO,      /* how much the loss grows when the head alone gives 0 ... */
    PH_WORTH_MEAN,      /* ... its mean over the tokens of the text ... */
    PH_WORTH_RESAMPLED, /* ... what it gives for another text */
    PH_WORTH_ALONE,      /* minus how much it grows with the others of its site at 0 */
    PH_WORTH_CONFIDENCE, /* mean over tokens of its largest weight */
    PH_WORTH_LRP_RATIO,  /* layer-wise relevance: the head's part, of that of its site, in
                            the likeliest answers; for sentence encoders in the vector's
                            product with itself. By the ratio rule, with signs ... */
    PH_WORTH_LRP_AB,     /* ... by the alpha-beta rule, alpha = beta = 1/2, at least 0 */
    PH_WORTHS
} ph_worth;

PH_API const char *ph_worth_name(ph_worth method); /* "token"; NULL: no such */
PH_API const char *ph_worth_help(ph_worth method); /* one sentence */

/* Whether a method measures such a model: known before there are texts. PH_UNSUPPORTED:
   it does not, as relevance where attention is not plain. */
PH_API ph_status ph_worth_check(const ph_model *model, ph_worth method);

/* out (ph_model_heads): what each head is worth, larger is more. removed: 1 for heads
   that give 0 throughout, whose worth is 0; NULL: none. Token and sample take one
   forward and backward pass over the texts for all heads, path three, confidence a
   forward pass, relevance one and a backward pass of its own through plain attention
   only, the others a forward pass for each head. */
PH_API ph_status ph_importance(ph_eval *eval, ph_worth method, const uint8_t *removed,
                               ph_estimate *out);

/* Divides by the norm of each site's values, which is left alone where it is 0. */
PH_API void ph_importance_normalise(const ph_model *model, ph_estimate *values);

/* What goes at once where heads share keys and values. */
typedef enum ph_order_unit {
    PH_ORDER_HEADS = 0, /* any head; groups that are left uneven need copies of keys and
                           values, and a model may become larger */
    PH_ORDER_GROUPS,    /* all heads of a group, with its keys and values */
    PH_ORDER_EVEN       /* one head of every group of a site */
} ph_order_unit;

/* In which order heads go. */
typedef struct ph_order {
    ph_worth method;
    int layered; /* 1: values are normalised in every site first (gradient methods) */
    int rescore; /* measured again, without those that are gone, after so many heads; 0:
                    measured once */
    ph_order_unit groups; /* what goes at once */
    int keep;    /* heads that stay in every site, the last to go there */
    int random;  /* 1: by chance, from the seed; the method is not used */
    uint64_t seed;
    uint64_t reserved[4];
} ph_order;

/* order (ph_model_heads): indices of heads, those that are worth least first. */
PH_API ph_status ph_importance_order(ph_eval *eval, const ph_order *how, int *order);

/* ---- models without some heads ----------------------------------------------------- */

/* Removes heads for good, removed (ph_model_heads) 1: their columns of the projections
   and rows of the output matrix, and keys and values that no head needs any more. Where
   heads of groups are left in different numbers, keys and values are copied until each
   group has as many. A site without any head gives its output bias. Results are those of
   a model in which these heads give 0, to the last bit where sums have the same order.
   Everything made from the model before, an eval or a reading, must be freed first.
   Files keep the indices that heads had before any was removed. Variants whose heads are
   mixed, or have parameters of their own, are refused; then nothing is changed. */
PH_API ph_status ph_model_remove(ph_model *model, const uint8_t *removed);

/* Whether ph_model_remove takes these heads out of such a model, or, removed NULL, each
   of its heads: known before anything is measured or trained. PH_UNSUPPORTED: it does
   not. */
PH_API ph_status ph_model_removable(const ph_model *model, const uint8_t *removed);

/* Multiplies what every head writes by its gate, gates (ph_model_heads) 0 to 1: its rows
   of the output matrix. Everything made from the model before must be freed first. */
PH_API ph_status ph_model_gate(ph_model *model, const float *gates);

/* ---- training ---------------------------------------------------------------------- */

typedef struct ph_tuned {
    int step;
    double loss;    /* mean per counted token, of this step */
    double open;    /* expected number of open gates */
    double lr;      /* learning rate of this step */
    uint64_t reserved[4];
} ph_tuned;

/* Trains the model on the texts of an eval, by AdamW without dropout: after heads were
   removed, or with a gate for every head that is learned too. A gate is Hard Concrete: 0
   or 1 with a probability that is learned, and the loss has l0 times the expected number
   of gates that are not 0 added to it. */
typedef struct ph_tuning {
    int steps;
    float lr; /* peak: reached after a tenth of the steps, then down along a cosine; 0:
                 1e-4 */
    float weight_decay, max_grad_norm; /* as in ph_train */
    const ph_model *teacher; /* the outputs of this model, vectors or scores of tokens and
                                classes, are learned by their mean squared distance; NULL:
                                labels are */
    int gated;               /* 1: with gates */
    float l0;
    int only_gates; /* 1: parameters stay what they are */
    float gate_lr;  /* 0: 0.05 */
    uint64_t seed;
    void (*each)(void *user, const ph_tuned *at); /* called after every step, or NULL */
    void *user;
    uint64_t reserved[8];
} ph_tuning;

/* logits (ph_model_heads): gated: what gates start from and end with; a head is to be
   kept where its logit is above 0. The model's results during training are not those
   without its other heads: remove them (ph_model_remove), then train on. */
PH_API ph_status ph_eval_tune(ph_eval *eval, const ph_tuning *how, float *logits);

enum { PH_GATE_START = 2 }; /* a logit that training may start from */

#ifdef __cplusplus
}
#endif
#endif
