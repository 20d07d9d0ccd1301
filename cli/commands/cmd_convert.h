/*
 * cmd_convert.h - `polyhead convert`: cmd_convert.c converts and shows, convert_tune.c
 * trains afterwards.
 */
#ifndef PH_CLI_CMD_CONVERT_H
#define PH_CLI_CMD_CONVERT_H

#include "commands/encoder_input.h"
#include "polyhead_convert.h"
#include "polyhead_prune.h"

typedef struct convert_options {
    const char *to, *data, *out;
    int align, group, merge, renorm;
    int64_t max_tokens, seed, tune;
    double error, lr;
    int distil, json;
    int has_align, has_group, has_merge, has_seed, has_max_tokens, has_error, has_lr;
    ph_machine machine;
} convert_options;

/* The converted model on the texts held out, before and after training. */
typedef struct convert_tuned {
    int steps;   /* 0: there was none */
    int vectors; /* 1: the model gives vectors; accuracy is a cosine */
    ph_result before, after;
} convert_tuned;

/* Whether --tune has labels to learn, or a teacher: before texts are read. */
int convert_check_tune(const encoder_input *in, const convert_options *o);

/* Trains the converted model; path: where the original is. */
int convert_tune(encoder_input *in, const convert_options *o, const char *path,
                 const char *const *pairs, convert_tuned *out);

#endif
