/*
 * cmd_train.h - what train and compare share: options of a training, its log, its clock.
 */
#ifndef PH_CLI_TRAIN_H
#define PH_CLI_TRAIN_H

#include <signal.h>

#include "framework/cli.h"
#include "polyhead_model.h"

/* ---- options that change a recipe ---- */

typedef struct train_change {
    int given[32]; /* which of the options below were given, by row */
    int64_t steps, batch, accumulate, warmup, seed;
    int64_t layers, model_dim, heads, kv_heads, ff_dim, length;
    int64_t buckets, bucket_distance;
    double lr, dropout, weight_decay, max_grad_norm, smoothing, balance;
    int positions, norm, norm_place, activation, schedule;
    int no_bias, depth_scaled, untied, multi_label;
    const char *variant, *cross;
} train_change;

#define TRAIN_OPTIONS 30 /* rows of PH_TRAIN_OPTIONS */

extern const char *const train_position_names[], *const train_norm_names[],
    *const train_norm_place_names[], *const train_activation_names[],
    *const train_schedule_names[];

#define TRAIN_ROW(struct_name, field, row, member) \
    .at = offsetof(struct_name, field.member), \
    .given = offsetof(struct_name, field.given) + (row) * sizeof(int)
#define TRAIN_INT(s, f, row, word, member, least, text) \
    {.name = word, .kind = PH_OPT_INT, .metavar = "N", .low = least, .high = 1 << 24, \
     TRAIN_ROW(s, f, row, member), .help = text}
#define TRAIN_REAL(s, f, row, word, member, text) \
    {.name = word, .kind = PH_OPT_REAL, .metavar = "X", .least = 0, .most = 1e6, \
     TRAIN_ROW(s, f, row, member), .help = text}
#define TRAIN_NAME(s, f, row, word, member, names, text) \
    {.name = word, .kind = PH_OPT_CHOICE, .choices = names, \
     TRAIN_ROW(s, f, row, member), .help = text}

#define TRAIN_FLAG(s, f, row, word, member, text) \
    {.name = word, .kind = PH_OPT_FLAG, TRAIN_ROW(s, f, row, member), .help = text}

/* In the order of the table in train_options.c. `compare` has --heads of its own. */
#define PH_TRAIN_OPTIONS(s, f) \
    PH_TRAIN_OPTIONS_BUT_HEADS(s, f), \
    TRAIN_INT(s, f, 12, "heads", heads, 1, "heads of each layer")

#define PH_TRAIN_OPTIONS_BUT_HEADS(s, f)                                                 \
    {.name = "steps",                                                                    \
     .kind = PH_OPT_INT,                                                                 \
     .metavar = "N",                                                                     \
     .low = 1,                                                                           \
     .high = 1 << 24,                                                                    \
     .group = "Training (defaults: the recipe's)",                                       \
     TRAIN_ROW(s, f, 0, steps),                                                          \
     .help = "steps of the optimiser"},                                                  \
        TRAIN_INT(s, f, 1, "batch", batch, 1, "sequences of a micro-batch"),             \
        TRAIN_INT(s, f, 2, "accumulate", accumulate, 1,                                  \
                  "micro-batches per step, their gradients summed"),                     \
        TRAIN_REAL(s, f, 3, "lr", lr, "peak learning rate"),                             \
        TRAIN_INT(s, f, 4, "warmup", warmup, 0, "steps until the learning rate peaks"),  \
        TRAIN_NAME(s, f, 5, "schedule", schedule, train_schedule_names,                  \
                   "how the learning rate decays after that"),                           \
        TRAIN_REAL(s, f, 6, "weight-decay", weight_decay, "of matrices (AdamW)"),        \
        TRAIN_REAL(s, f, 7, "max-grad-norm", max_grad_norm,                              \
                   "gradients are clipped to this norm; 0: no limit"),                   \
        TRAIN_REAL(s, f, 8, "smoothing", smoothing, "label smoothing"),                  \
        {.name = "seed",                                                                 \
         .kind = PH_OPT_INT,                                                             \
         .metavar = "N",                                                                 \
         .high = INT64_MAX,                                                              \
         TRAIN_ROW(s, f, 9, seed),                                                       \
         .help = "of parameters, samples and dropout"},                                  \
        {.name = "layers",                                                               \
         .kind = PH_OPT_INT,                                                             \
         .metavar = "N",                                                                 \
         .low = 1,                                                                       \
         .high = 1000,                                                                   \
         .group = "The model (defaults: the recipe's)",                                  \
         TRAIN_ROW(s, f, 10, layers),                                                    \
         .help = "layers of each stack"},                                                \
        TRAIN_INT(s, f, 11, "model-dim", model_dim, 1, "width of the model"),            \
        TRAIN_INT(s, f, 13, "kv-heads", kv_heads, 1, "key and value heads"),             \
        TRAIN_INT(s, f, 14, "ff-dim", ff_dim, 1, "width of the feed-forward layers"),    \
        TRAIN_INT(s, f, 15, "length", length, 2, "maximum sequence length in tokens"),   \
        TRAIN_REAL(s, f, 16, "dropout", dropout,                                         \
                   "probability of dropping an activation"),                             \
        TRAIN_NAME(s, f, 17, "positions", positions, train_position_names,               \
                   "position encoding"),                                                 \
        TRAIN_NAME(s, f, 18, "norm", norm, train_norm_names, "LayerNorm or RMSNorm"),    \
        TRAIN_NAME(s, f, 19, "norm-place", norm_place, train_norm_place_names,           \
                   "norm before (pre) or after (post) sublayers, or both (sandwich)"),   \
        TRAIN_NAME(s, f, 20, "activation", activation, train_activation_names,           \
                   "of the feed-forward layers"),                                        \
        {.name = "variant",                                                              \
         .kind = PH_OPT_TEXT,                                                            \
         .metavar = "NAME",                                                              \
         TRAIN_ROW(s, f, 21, variant),                                                   \
         .help =                                                                         \
             "head variant of self-attention; several with ';' between: one per layer"}, \
        {.name = "cross",                                                                \
         .kind = PH_OPT_TEXT,                                                            \
         .metavar = "NAME",                                                              \
         TRAIN_ROW(s, f, 22, cross),                                                     \
         .help = "the same for the decoder's cross-attention; merged: it replaces "      \
                 "self-attention too"},                                                  \
        TRAIN_REAL(s, f, 23, "balance", balance,                                         \
                   "weight of the balance loss of variants that route (moh)"),           \
        TRAIN_FLAG(s, f, 24, "no-bias", no_bias, "no biases, in norms neither"),         \
        TRAIN_FLAG(s, f, 25, "depth-scaled", depth_scaled,                               \
                   "initial matrices of layer l are scaled by 1/sqrt(l)"),               \
        TRAIN_FLAG(s, f, 26, "untied", untied,                                           \
                   "the output has a matrix of its own, not that of the embeddings"),    \
        TRAIN_INT(s, f, 27, "buckets", buckets, 2,                                       \
                  "with --positions t5: buckets of distances, an even number"),          \
        TRAIN_INT(s, f, 28, "bucket-distance", bucket_distance, 1,                       \
                  "with --positions t5: distances from this on share the last bucket"),  \
        TRAIN_FLAG(                                                                      \
            s, f, 29, "multi-label", multi_label,                                        \
            "recipe classes: a line has any number of labels, with commas between; a "   \
            "checkpoint that says so itself needs no option")

/* Overrides the recipe's values with the options given. Returns an exit code. */
int train_apply(const train_change *change, ph_train *train);

/* Sets what the option of that name sets, from text. Returns an exit code. */
int train_set(ph_train *train, const char *name, const char *value);

/* The recipe's defaults, or an error that lists the recipes. */
int train_defaults(const char *recipe, ph_train *train);

/* What the recipe learns from. Returns an exit code. */
int train_set_file(const char *path, ph_train *train);

/* ---- the run ---- */

double train_now(void);    /* seconds of a monotonic clock */
long train_peak_kib(void); /* peak resident memory of this process */
int train_make_directory(const char *path); /* and its parents; 0: done */

/* Locks the directory until this process ends, in whatever way. Returns 0, or an exit
   code with the error printed: another training is running there. */
int train_lock_directory(const char *path);

/* Set by the first SIGINT, SIGTERM or SIGHUP to its number; the second ends the
   program. */
extern volatile sig_atomic_t train_signal;
void train_catch_signals(void);

#endif
