/*
 * model_oracle.h - a Transformer as dense loops in double, written from the description
 * in polyhead_model.h and not from the library's sources.
 */
#ifndef MODEL_ORACLE_H
#define MODEL_ORACLE_H

#include "oracle/variant_oracle.h"
#include "polyhead_model.h"

enum { ORACLE_PLACES = 16 };

/* The tokens of a batch; lens NULL: full. */
typedef struct oracle_batch {
    int batch, source_len, target_len;
    const int32_t *source, *source_lens, *target, *target_lens, *types, *labels;
    const float *pixels; /* (batch, channels, image_size, image_size), or NULL */
} oracle_batch;

/* A model's parameters in double, by name. */
typedef struct oracle_model {
    const ph_config *config;
    int count;
    const ph_tensor **tensors;
    double **values;
    int place, places;             /* of attention: the next one, and those seen before */
    double *frozen[ORACLE_PLACES]; /* see variant_freeze; of the first evaluation */
    double balance;                /* sum of the balance losses of the last evaluation */
    double dropout;                /* rate; 0: none, as oracle_model_take leaves it */
    uint64_t seed;                 /* of dropout */
    int sublayer;                  /* of the stack that is being evaluated */
    double noise;                  /* simulated rounding, as in variant_options */
    uint64_t noise_seed;
    int arrays; /* that it has touched in this evaluation */
} oracle_model;

void oracle_model_take(oracle_model *o, const ph_model *m);
void oracle_model_free(oracle_model *o);

/* Sum of the losses of all counted rows. logits: (rows, vocab) of the last stack, or
   NULL. */
double oracle_model_loss(oracle_model *o, const oracle_batch *b, double smoothing,
                         double *logits);

#endif
