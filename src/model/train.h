/*
 * train.h - the inside of a ph_trainer.
 */
#ifndef PH_MODEL_TRAIN_H
#define PH_MODEL_TRAIN_H

#include "model/pass.h"
#include "model/recipes.h"

enum { PH_STRETCH = 16384 }; /* floats of the block that are handed out together */

enum { PH_STEPS_MOST = 99999999 }; /* eight digits in the name of a checkpoint */

struct ph_trainer {
    ph_ctx *ctx;
    ph_train train;
    const ph_recipe *recipe;
    ph_data data;
    ph_model *model;
    ph_pass *pass;        /* training */
    ph_pass *tester;      /* without dropout; made when first needed */
    int step;             /* steps done */
    float *grads;         /* like the block; summed over the passes of a step */
    float *part;          /* gradients of one pass where a step has several */
    float *mean, *square; /* of the optimiser */
    double *chunk_sums;   /* squares of the gradient by stretches */
    int32_t *source, *target, *labels, *lens, *target_lens; /* of all passes of a step */
};

/* One batch of samples: number `index` of the training (test 0) or of the tests. */
void ph_trainer_fill(const ph_trainer *t, uint64_t index, int test, int pass);
ph_batch ph_trainer_batch(const ph_trainer *t, int pass);

/* optimise.c */
double ph_optimise_grad_norm(const ph_trainer *t);
double ph_optimise_lr(const ph_train *train, int step);
void ph_optimise_step(const ph_trainer *t, double grad_norm);

/* A trainer with its model in place; the optimiser at rest. Takes over the model. */
ph_status ph_trainer_begin(ph_trainer **out, ph_ctx *ctx, const ph_train *train,
                           ph_model *model);

/* checkpoint.c: the options and the step in a checkpoint. */
ph_status ph_checkpoint_options(ph_ctx *ctx, const ph_file *file, ph_train *train,
                                int *step);

#endif
