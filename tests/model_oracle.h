/*
 * model_oracle.h - a Transformer as dense loops in double, written from the description
 * in polyhead_model.h and not from the library's sources.
 */
#ifndef MODEL_ORACLE_H
#define MODEL_ORACLE_H

#include "polyhead_model.h"

/* The tokens of a batch; lens NULL: full. */
typedef struct oracle_batch {
    int batch, source_len, target_len;
    const int32_t *source, *source_lens, *target, *labels;
} oracle_batch;

/* A model's parameters in double, by name. */
typedef struct oracle_model {
    const ph_config *config;
    int count;
    const ph_tensor **tensors;
    double **values;
} oracle_model;

void oracle_model_take(oracle_model *o, const ph_model *m);
void oracle_model_free(oracle_model *o);

/* Sum of the losses of all counted rows. logits: (rows, vocab) of the last stack, or
   NULL. */
double oracle_model_loss(const oracle_model *o, const oracle_batch *b, double smoothing,
                         double *logits);

#endif
