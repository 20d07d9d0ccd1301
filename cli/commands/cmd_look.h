/*
 * cmd_look.h - where `polyhead look` and `polyhead heads` get their report from, and how
 * they print it as numbers.
 */
#ifndef PH_CLI_LOOK_H
#define PH_CLI_LOOK_H

#include "framework/cli.h"
#include "polyhead_clusters.h"
#include "polyhead_heads.h"
#include "polyhead_maps.h"
#include "polyhead_picture.h"
#include "polyhead_scene.h"
#include "polyhead_train.h"

/* What to look at; options that both commands have. */
typedef struct look_choice {
    const char *model, *target;
    const char *weights, *tokens, *row_tokens;
    const char *plan, *frequencies;
    ph_machine machine;
    const char *text; /* NULL: the usual sentence; "-": standard input */
    const char *file; /* of texts, one per line; or NULL */
    int words;        /* 1: tokens are joined to words */
    int by_text;      /* 1: heads are measured on the texts, also of the embedded model */
    int measures;     /* 1: nothing but measures of a model is shown: what heads write,
                         which takes long, is left out */
    int unread;        /* 1: the model is opened and its text split, but not run */
    int weights_again; /* 1: weights are read again after measuring */
} look_choice;

/* clang-format off */
#define LOOK_SOURCE_OPTIONS(struct_name, field) \
    {.name = "model", .letter = 'm', .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.model), .group = "What to look at", \
     .help = "a Hugging Face folder, a GGUF or llama2.c file, or a checkpoint of ours; " \
             "without it the model inside the program, which knows what words belong " \
             "together in English and Chinese sentences"}, \
    {.name = "target", .kind = PH_OPT_TEXT, .metavar = "TEXT", \
     .at = offsetof(struct_name, field.target), \
     .help = "what the decoder of an encoder-decoder reads; without it what it " \
             "generates"}, \
    {.name = "words", .kind = PH_OPT_FLAG, .at = offsetof(struct_name, field.words), \
     .help = "join the tokens of a word: columns are added, rows averaged, heads are " \
             "measured by words"}, \
    {.name = "weights", .letter = 'w', .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.weights), \
     .help = "anybody's attention maps: safetensors, (layers, heads, rows, keys) or " \
             "one (heads, rows, keys) per layer, F32, F16 or BF16"}, \
    {.name = "tokens", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.tokens), \
     .help = "words of the maps: one per line, or a JSON list"}, \
    {.name = "row-tokens", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.row_tokens), \
     .help = "words of the rows where they are another text than the keys"}, \
    {.name = "plan", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.plan), \
     .help = "heads switched off or weakened as a file says; the live page saves such " \
             "files"}, \
    {.name = "frequencies", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.frequencies), \
     .help = "how frequent tokens are, for the label 'rare tokens': one per line, the " \
             "most frequent first, or each with a tab and its count; without it the " \
             "texts themselves are counted where there are several"}
/* clang-format on */

enum { LOOK_PATH = 4096 };

#define LOOK_SENTENCE "The animal didn't cross the street because it was too tired."

/* What a file says of how frequent tokens are, sorted by token. */
typedef struct look_known {
    const char *text;
    long long count;
    int32_t rank;
} look_known;

typedef struct look_frequencies {
    char *bytes;
    look_known *list;
    size_t count;
} look_frequencies;

/* A report, measured, and what it stands on. */
typedef struct look_source {
    ph_maps *maps; /* of a file, or */
    ph_ctx *ctx;   /* a model that has read a text */
    ph_model *model;
    ph_reading *reading;
    ph_scene *scene;
    ph_joined *joined;         /* the scene by words, or NULL */
    ph_prune plan;             /* of the heads; count 0: there is none */
    ph_reading *plain_reading; /* the text without the plan */
    ph_scene *plain_scene;
    char *bytes;        /* of texts that were read */
    const char **texts; /* (text_count) */
    int text_count, left_out;
    int32_t *ranks; /* of every token among the texts, 0 the most frequent; or NULL */
    look_frequencies frequencies; /* of a file; count 0: there is none */
    ph_report report;
    ph_survey *survey;
    const char *relations[PH_MAX_RELATIONS];
    int relation_count; /* 0: links are not known */
    int sentences;      /* unseen ones that roles were measured on */
    char title[LOOK_PATH]; /* of the report */
    char found[640];    /* what was found, and on what */
} look_source;

/* Says what is wrong and returns an exit code; close it in any case. */
int look_open(look_source *source, const look_choice *choice);
void look_close(look_source *source);

/* Ranks of the tokens of an axis, to be freed; NULL: not known. ids: of a model's tokens,
   or NULL. */
int32_t *look_ranks(const look_source *source, const ph_report *report,
                    const int32_t *ids, int axis);

/* Counts the tokens of all texts. */
ph_status look_ranks_count(look_source *source);

int look_frequencies_read(look_frequencies *out, const char *path);

/* Which heads; layer and head are counted from 1. */
typedef struct look_wish {
    const char *stack;   /* NULL: all of them */
    int64_t layer, head; /* 0: all of them */
} look_wish;

typedef struct look_heads {
    ph_pick *picks;
    int count;
    int chosen; /* 1: something was asked for */
} look_heads;

int look_select(const ph_report *report, const look_wish *wish, look_heads *out);

/* Where links are known, the heads that find pronouns, subjects and so on best; returns
   how many there are. */
enum { LOOK_TELLING = 4 };
int look_telling(const look_source *source, ph_pick picks[LOOK_TELLING]);

/* The weights of some heads as numbers on stdout. */
int look_plain(const ph_report *report, const look_heads *heads);
int look_csv(const ph_report *report, const look_heads *heads);
int look_json(const look_source *source, const look_heads *heads);

/* The live page, until Ctrl-C. data: a file of texts that heads are measured on, or NULL.
   port 0: any that is free. */
int look_serve(const look_source *source, const look_choice *choice, const char *plan,
               const char *data, int port);

/* The numbers of every head. */
int heads_json(const look_source *source);
int heads_csv(const look_source *source);

/* Every head against a treebank, as a table or as JSON. */
int heads_syntax(const look_choice *choice, const char *conllu, int json);

/* Which heads attend alike: a map and clusters of every stack, as text or as JSON. svg:
   a figure of the first stack, or NULL. */
int heads_clusters(const look_source *source, const char *svg, int json);

/* Distances between the heads of a stack, to be freed. */
int heads_distances(const look_source *source, int stack, const look_heads *heads,
                    ph_clusters **out);

/* What heads contribute: shares of their layer's output, how far they differ, ranks. */
int heads_contributions(const look_source *source, int json);

/* The circuits of one head, named as "2-6", of a stack (NULL: the first). */
int heads_circuit(const look_source *source, const char *stack, const char *name,
                  int json);

/* 1: a folder, or a file that ends in .safetensors: a model, not a text. */
int look_is_model(const char *word);
int look_is_file(const char *word);

/* A word as it may be printed. */
enum { LOOK_WORD = 256 };
const char *look_word(const char *word, char buffer[LOOK_WORD]);

/* 1: the terminal's locale says UTF-8. */
int look_utf8(void);

#endif
