/*
 * prune_input.h - a model and what it is measured on, for importance and prune.
 */
#ifndef PH_CLI_PRUNE_INPUT_H
#define PH_CLI_PRUNE_INPUT_H

#include "commands/encoder_input.h"
#include "polyhead_prune.h"

/* Where texts come from, as options say. */
typedef struct prune_data {
    const char *data, *recipe, *test;
    int64_t texts, max_tokens;
    int has_max_tokens;
} prune_data;

#define PRUNE_DATA_OPTIONS(struct_name, field)                                           \
    {.name = "data", .kind = PH_OPT_TEXT, .metavar = "FILE", .group = "What to measure", \
     .at = offsetof(struct_name, field.data),                                            \
     .help = "a text per line; source TAB target for an encoder-decoder, label TAB text "\
             "for a classifier"},                                                        \
    {.name = "recipe", .kind = PH_OPT_TEXT, .metavar = "NAME",                           \
     .at = offsetof(struct_name, field.recipe),                                          \
     .help = "samples of a recipe of polyhead train instead, for a model it trained"},   \
    {.name = "texts", .kind = PH_OPT_INT, .metavar = "N", .low = 1, .high = 1 << 24,     \
     .at = offsetof(struct_name, field.texts), .fallback = "256",                        \
     .help = "measure on so many texts at most"},                                        \
    {.name = "max-tokens", .kind = PH_OPT_INT, .metavar = "N", .low = 2,                 \
     .high = 1 << 20, .at = offsetof(struct_name, field.max_tokens), .fallback = "256",  \
     .given = offsetof(struct_name, field.has_max_tokens),                               \
     .help = "truncate texts to so many tokens"}

typedef struct prune_input {
    encoder_input in;
    encoder_input held; /* --test: its texts, no model */
    const char **pairs, **held_pairs; /* of the texts; or NULL */
    const prune_data *data;
    ph_train train; /* the recipe */
} prune_input;

/* The texts of a file; in *pairs, to be freed, the target or class of each where the
   model has such. */
int prune_texts(const ph_model *m, encoder_input *in, const char *file,
                const char ***pairs);

/* Opens the model; then reads the texts. Between the two stands all that can be refused
   without them. needed 0: there may be no texts at all. */
int prune_open(prune_input *p, const char *model, const prune_data *data, int needed,
               const ph_machine *machine);
int prune_read(prune_input *p);
void prune_close(prune_input *p); /* accepts a cleared one */

/* An eval of all texts; or of those that heads are scored on and that are learned from
   (of a recipe more), and of those held out: another file, the last fifth of the only
   one, samples that training never sees. */
typedef enum prune_part { PRUNE_ALL, PRUNE_SCORE, PRUNE_LEARN, PRUNE_TEST } prune_part;
int prune_eval(prune_input *p, ph_model *model, prune_part part, ph_eval **out);

/* Whether values of a method are to be compared within a layer first. */
static inline int prune_layered(ph_worth method)
{
    return method == PH_WORTH_TOKEN || method == PH_WORTH_SAMPLE;
}

/* Where a head stands, counted from 1: its stack as `look` and `heads` call it, encoder,
   decoder or cross, and the layer there. Tables show it so; files have the site. */
int prune_layer(const ph_head_place *place, const char **stack);

/* The method of this name; says what names there are where it is none. */
int prune_method(const char *name, size_t length, ph_worth *method);

#endif
