/*
 * train.h - the fields of a ph_trainer, and what its source files share.
 */
#ifndef PH_MODEL_TRAIN_H
#define PH_MODEL_TRAIN_H

#include "model/pass.h"
#include "recipes/recipes.h"

enum { PH_ITEM_FLOATS = 16384 }; /* parameters one work item of the optimiser handles */

enum { PH_STEPS_MOST = 99999999 }; /* eight digits in the name of a checkpoint */

struct ph_trainer {
    ph_ctx *ctx;
    ph_train train;
    const ph_recipe *recipe;
    ph_origin origin; /* tuned: the model as the data sees it */
    ph_data data;
    ph_model *model;
    ph_pass *pass;      /* training */
    ph_pass *eval_pass; /* without dropout; created by the first test */
    int step;           /* steps done */
    float *grads;       /* laid out like the parameters; summed over micro-batches */
    float *pass_grads;  /* of one micro-batch where a step accumulates several */
    float *first_moment, *second_moment; /* of Adam */
    double *partial_sums; /* of the squared gradient norm, one per work item */
    int32_t *source, *target, *labels;        /* of all micro-batches */
    float *pixels;                            /* the same, in place of source */
    float *wanted;                            /* the same, of classes of multi_label */
    int32_t *source_offsets, *target_offsets; /* (accumulate, batch + 1) */
};

/* Draws the first texts of micro-batch number `index` of the training (test 0) or of the
   test set into micro-batch `pass` of the step; the others are empty. */
void ph_trainer_fill(const ph_trainer *t, uint64_t index, int texts, int test, int pass);
ph_batch ph_trainer_batch(const ph_trainer *t, int pass);

/* tune.c: before the data is opened, the model it goes on from and its origin; after
   that, classes for the labels of the data. */
ph_status ph_tune_open(ph_trainer *t);
ph_status ph_tune_classes(ph_trainer *t);

/* optimise.c */
double ph_optimise_grad_norm(const ph_trainer *t);
double ph_optimise_lr(const ph_train *train, int step);
void ph_optimise_step(const ph_trainer *t, double grad_norm);

/* A trainer for this model, or (NULL) a new one, with the moments of Adam at 0. Owns the
   model from here on, even where it fails. */
ph_status ph_trainer_begin(ph_trainer **out, ph_ctx *ctx, const ph_train *train,
                           ph_model *model);

/* checkpoint.c: the options and the step in a checkpoint. */
ph_status ph_checkpoint_options(ph_ctx *ctx, const ph_file *file, ph_train *train,
                                int *step);

#endif
