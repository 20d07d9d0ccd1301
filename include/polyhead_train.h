/*
 * polyhead_train.h - training Transformers by recipes, with checkpoints
 *
 *     ph_train_defaults  the hyperparameters of a recipe, to be changed
 *     ph_train_from      those of training that goes on from a model
 *     ph_trainer_create  a model and what it learns from                -> ph_trainer
 *     ph_trainer_step    one step of the optimiser, again and again
 *     ph_trainer_test    how good it is on what training never sees
 *     ph_trainer_save    a checkpoint; ph_trainer_resume goes on from the newest
 *
 * The rules of polyhead.h hold here too. A step is a function of parameters, optimiser
 * and step number: a training that is stopped and resumed ends with the same bits.
 */
#ifndef POLYHEAD_TRAIN_H
#define POLYHEAD_TRAIN_H

#include "polyhead_model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ph_schedule {
    PH_SCHEDULE_COSINE = 0, /* warm up, then down to a tenth along a cosine */
    PH_SCHEDULE_CLASSIC     /* warm up, then down as 1/sqrt(step) */
} ph_schedule;

enum { PH_RECIPE_TEXT = 32, PH_PATH_TEXT = 1024 };

/* How often a program that drives a trainer saves, logs and tests. The trainer keeps it
   in its checkpoints, so that a resumed training goes on at the pace it began with. */
typedef struct ph_pace {
    int checkpoint_every; /* steps; 0: only at the end */
    int keep;             /* how many checkpoints ph_trainer_save leaves; 0: all */
    int log_every;        /* steps; 0: never */
    int test_texts;       /* of the last test */
    uint64_t reserved[4];
} ph_pace;

/* Hyperparameters. ph_train_defaults fills in those of a recipe. */
typedef struct ph_train {
    char recipe[PH_RECIPE_TEXT]; /* a name that ph_recipe_name gives */
    char file[PH_PATH_TEXT]; /* "text": what to learn; "pairs": lines source TAB target;
                                "classes": lines label TAB text */
    int tuned;               /* 1: goes on from a model, see ph_train_from */
    char from[PH_PATH_TEXT]; /* that model: anything that ph_model_read takes; "": it is
                                given to ph_trainer_tune */
    ph_config config;        /* vocab is set by the recipe; tuned: only dropout counts */
    int length;              /* most tokens of a text of the file; 0: config.max_len */
    int steps;
    int batch;      /* texts of one forward and backward pass */
    int accumulate; /* passes whose gradients one step sums; 0: 1 */
    float lr;       /* peak learning rate */
    int warmup;     /* steps */
    ph_schedule schedule;
    float weight_decay;  /* AdamW: of matrices */
    float max_grad_norm; /* gradients are clipped to this norm; 0: no limit */
    float smoothing;     /* label smoothing, of decoders */
    float balance;       /* weight of the balance loss of variants that route */
    uint64_t seed;       /* of everything: initial parameters, samples, dropout */
    uint64_t data_hash; /* of the file, which must have it; 0: any, set when it is read */
    ph_pace pace;
    uint64_t reserved[16];
} ph_train;

/* The i-th recipe's name and one sentence, or NULL after the last. */
PH_API const char *ph_recipe_name(int i);
PH_API const char *ph_recipe_help(int i);

/* PH_UNSUPPORTED: no such recipe. */
PH_API ph_status ph_train_defaults(ph_train *train, const char *recipe);

/* Changes the defaults of recipe "text", "classes" or "pairs" to those of training that
   goes on from the model at path, or (NULL) from one in memory: fewer steps, a peak
   learning rate of 5e-5, texts of 128 tokens or what it takes, no dropout, no label
   smoothing. PH_BAD_ARGUMENT: too long a path. */
PH_API ph_status ph_train_from(ph_train *train, const char *path);

/* JSON text of everything but config, like snprintf. */
PH_API int ph_train_print(const ph_train *train, char *text, size_t size);

typedef struct ph_trainer ph_trainer;

PH_API ph_status ph_trainer_create(ph_trainer **out, ph_ctx *ctx, const ph_train *train);

/* Goes on from a model in memory, after ph_train_from(train, NULL): a decoder predicts
   the next token, an encoder with a layer for masked tokens those that are hidden, recipe
   "classes" gives an encoder a classifier unless it has one for these labels. Its
   tokenizer or vocabulary reads the file. Parameters become f32 in memory of the model
   (ph_model_own). The trainer owns the model from here on, even where this fails. */
PH_API ph_status ph_trainer_tune(ph_trainer **out, ph_ctx *ctx, const ph_train *train,
                                 ph_model *model);
PH_API void ph_trainer_free(ph_trainer *trainer); /* accepts NULL; the model goes too */
PH_API ph_model *ph_trainer_model(ph_trainer *trainer);
PH_API const ph_train *ph_trainer_options(const ph_trainer *trainer);
PH_API ph_pace *ph_trainer_pace(ph_trainer *trainer);   /* may be changed at any time */
PH_API int ph_trainer_steps(const ph_trainer *trainer); /* done so far */

typedef struct ph_progress {
    int step;         /* steps done */
    double loss;      /* mean per counted token, of this step */
    double grad_norm; /* before clipping */
    double lr;        /* learning rate of this step */
    int64_t tokens;   /* counted tokens of this step */
    uint64_t reserved[4];
} ph_progress;

/* One step. PH_BAD_VALUE: the loss became NaN or Inf; parameters are then those
   before the step. */
PH_API ph_status ph_trainer_step(ph_trainer *trainer, ph_progress *out);

typedef struct ph_score {
    double loss;           /* mean per counted token */
    double token_accuracy; /* share of the tokens predicted correctly */
    double exact_match;    /* share of the texts with every token correct */
    int texts;
    uint64_t reserved[4];
} ph_score;

/* On `texts` samples that training never sees. A text is an exact match if greedy
   decoding gives all of it. */
PH_API ph_status ph_trainer_test(ph_trainer *trainer, int texts, ph_score *out);

/* Writes directory/step-NNNNNNNN.safetensors, whole or not at all, then removes
   older ones as the pace says. */
PH_API ph_status ph_trainer_save(ph_trainer *trainer, const char *directory);

/* Resumes from the newest checkpoint in the directory, with the same bits as a training
   that was never stopped; a damaged one is skipped, and what was wrong with it is written
   to `note` ("" if nothing). */
PH_API ph_status ph_trainer_resume(ph_trainer **out, ph_ctx *ctx, const char *directory,
                                   char *note, size_t note_size);

/* ---- sentences with known links ---------------------------------------------------- */

/* Sentences of the recipe "pronouns" that training never sees, each word with the word it
   belongs to and the kind of that link: what heads are judged by. */
typedef struct ph_sentences ph_sentences;

enum { PH_SENTENCE_WORDS = 32, PH_SENTENCE_BYTES = 1024 };

typedef struct ph_sentence {
    char text[PH_SENTENCE_BYTES]; /* words with blanks between */
    int words;
    int link[PH_SENTENCE_WORDS]; /* the word each belongs to; itself: to none */
    int role[PH_SENTENCE_WORDS]; /* relation, see ph_relation_name */
} ph_sentence;

/* "actor", "object", ...; NULL after the last. */
PH_API const char *ph_relation_name(int relation);

/* How every word belongs to the one that links names, by the links of the whole text and
   the classes of its words in the lexicon of recipe "pronouns": a relation, or -1 where a
   word is not in it or belongs to itself. Returns PH_OUT_OF_MEMORY or PH_OK. */
PH_API ph_status ph_relations_of(const char *const *words, const int *links, int count,
                                 int *relations);

/* What to call a link that was answered with probability p; "unsure" where it is low. */
PH_API const char *ph_link_name(int relation, float p);

PH_API ph_status ph_sentences_create(ph_sentences **out, ph_ctx *ctx);
PH_API void ph_sentences_free(ph_sentences *sentences); /* accepts NULL */
PH_API void ph_sentences_get(const ph_sentences *sentences, uint64_t number,
                             ph_sentence *out);

/* ---- pictures of shapes ------------------------------------------------------------ */

enum { PH_SHAPE_SIDE = 64 };

/* Draws a picture of recipe "shapes" that training never sees, rgb (64, 64, 3). Returns
   its class; ph_shape_name: "circle", ..., NULL after the last. */
PH_API int ph_shape_draw(uint64_t number, uint8_t *rgb);
PH_API const char *ph_shape_name(int i);

#ifdef __cplusplus
}
#endif
#endif
