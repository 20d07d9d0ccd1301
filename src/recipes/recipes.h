/*
 * recipes.h - training data: each recipe is a function from a random key to a sample.
 *
 * A sample depends on its key alone, so the step number determines what a step sees. Test
 * samples come from a held-out set that training never draws from.
 */
#ifndef PH_RECIPES_RECIPES_H
#define PH_RECIPES_RECIPES_H

#include "base/rng.h"
#include "polyhead_text.h"
#include "text/vocab.h"

/* Random numbers of one sample. */
typedef struct ph_draw {
    uint64_t key;
    uint32_t next;
} ph_draw;

static inline int ph_draw_below(ph_draw *d, int n)
{
    return (int)((uint64_t)ph_rng_at(d->key, d->next++) * (uint64_t)n >> 32);
}

/* A model that training goes on from, as far as data must know it. */
typedef struct ph_origin {
    ph_config config;
    const ph_tokenizer *tokenizer; /* NULL: vocab counts */
    const ph_tokenizer *target_tokenizer; /* of a decoder's texts; NULL: the same */
    int truncate_left; /* 1: a text that is too long loses its first tokens */
    const ph_vocab *vocab;
    int mask;           /* the token that hides another; -1: none */
    int start, end;     /* what its decoder begins with, what ends a text; -1: none */
    int first;          /* what every text of it begins with; -1: nothing */
    const char *labels; /* names of its classes, each closed by NUL; or NULL */
} ph_origin;

/* The data of a recipe: its vocabulary and what it read from a file. */
typedef struct ph_data {
    ph_ctx *ctx;
    const ph_train *train;
    const ph_origin *origin; /* NULL: a model is made for the data */
    ph_split split;
    const char **tokens; /* after the four special tokens */
    int token_count;
    ph_vocab vocab;
    int source_len, target_len; /* most tokens of a sample */
    int pixels;                 /* floats of a picture, in place of tokens; 0: none */
    int per_text;               /* 1: a text has one label, else each token has */
    int classes;                /* that labels are of; 0: no classes */
    int multi_label;            /* 1: a text has any number of them */
    char *labels;               /* their names, each closed by NUL */
    uint64_t hash;              /* of the file; 0: the recipe has none */
    void *own;                  /* the recipe's */
} ph_data;

/* Rows to fill: source and target are padded with PH_TOKEN_PAD, labels with -1. */
typedef struct ph_sample {
    int32_t *source; /* (source_len) */
    int32_t *target; /* (target_len): the decoder's input, from the start token on */
    float *pixels;   /* (data->pixels), in place of source */
    int32_t *labels; /* of the last stack, or one */
    float *wanted;   /* (classes) multi_label: 1 where the text has the class, else 0; its
                        label is 0 then */
    int32_t length;  /* valid tokens of source */
    int32_t target_length;
} ph_sample;

typedef struct ph_recipe {
    const char *name, *help;
    int needs_file;
    void (*defaults)(ph_train *train);
    ph_status (*open)(ph_data *data);  /* tokens, split, lengths, own */
    ph_status (*ready)(ph_data *data); /* once there is a vocabulary; may be NULL */
    void (*close)(ph_data *data);      /* may be NULL */
    void (*sample)(const ph_data *data, uint64_t key, int test, ph_sample *out);
} ph_recipe;

const ph_recipe *ph_recipe_find(const char *name); /* NULL: unknown */

/* Opens the recipe's data and makes its vocabulary, unless an origin has one. */
ph_status ph_data_open(ph_data *data, ph_ctx *ctx, const ph_recipe *recipe,
                       const ph_train *train, const ph_origin *origin);
void ph_data_close(ph_data *data, const ph_recipe *recipe);

/* The most tokens that texts of a file are cut to. */
int ph_data_length(const ph_data *data);

/* Adds a token unless it is there. */
ph_status ph_data_token(ph_data *data, const char *text);

/* Text to text: the target is shifted right by a start token, labels end with the end
   token, those of the origin where there is one. */
void ph_sample_pair(const ph_data *data, const int32_t *from, int from_count,
                    const int32_t *to, int to_count, ph_sample *out);

extern const ph_recipe ph_recipe_copy, ph_recipe_dates, ph_recipe_pronouns,
    ph_recipe_text, ph_recipe_pairs, ph_recipe_classes, ph_recipe_shapes;

#endif
