/*
 * cmd_prune.h - what `polyhead prune` does, shared by its files.
 */
#ifndef PH_CLI_PRUNE_H
#define PH_CLI_PRUNE_H

#include "commands/prune_input.h"

typedef struct prune_options {
    int64_t heads;
    int has_heads, has_share;
    int has_method, has_rescore, has_structure, has_keep; /* of importance */
    int has_l0, has_gate_steps, has_lr, has_seed;
    double share;
    const char *plan, *remove, *method, *out, *curve;
    int gates, only_gates, raw, structure, distil, json;
    int64_t rescore, keep, gate_steps, tune, seed;
    double l0, lr;
    prune_data data;
    ph_machine machine;
} prune_options;

enum { PRUNE_WHOLE = 0, PRUNE_REMOVED, PRUNE_TUNED, PRUNE_STAGES };

typedef struct pruning {
    const prune_options *o;
    prune_input p;
    ph_eval *score, *learn, *test; /* each or NULL */
    ph_model *whole;     /* the model as it was, where its outputs are needed; or NULL */
    ph_eval *whole_test;
    int heads;
    ph_head_place *place; /* (heads) before any is removed */
    int *order;           /* (heads) worth least first */
    uint8_t *removed;     /* (heads) */
    ph_worth method;      /* of --heads and --share */
    int undecided;        /* gates that ended between open and closed */
    int training_gates, steps;
    ph_result result[PRUNE_STAGES];
    int64_t parameters[2];
} pruning;

/* Whether there is something to measure losses on. */
static inline int prune_has_texts(const pruning *x)
{
    return x->o->data.data || x->o->data.recipe;
}

/* prune_report.c */
void prune_print(const pruning *x);
void prune_print_json(const pruning *x);
int prune_curve(pruning *x); /* writes o->curve */

#endif
