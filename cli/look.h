/*
 * look.h - where `polyhead look` and `polyhead heads` get their report from, and how they
 * print it as numbers.
 */
#ifndef PH_CLI_LOOK_H
#define PH_CLI_LOOK_H

#include "cli.h"
#include "polyhead_heads.h"
#include "polyhead_maps.h"
#include "polyhead_picture.h"
#include "polyhead_scene.h"

/* What to look at; options that both commands have. */
typedef struct look_choice {
    const char *model, *target;
    const char *weights, *tokens, *row_tokens;
    ph_machine machine;
    const char *text; /* NULL: the usual sentence; "-": standard input */
    const char *file; /* of texts, one per line; or NULL */
    int by_text;      /* 1: heads are measured on the texts, also of the embedded model */
} look_choice;

/* clang-format off */
#define LOOK_SOURCE_OPTIONS(struct_name, field) \
    {.name = "model", .letter = 'm', .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.model), .group = "What to look at", \
     .help = "a checkpoint of ours; without it the model inside the program, which " \
             "knows what words belong together in English and Chinese sentences"}, \
    {.name = "target", .kind = PH_OPT_TEXT, .metavar = "TEXT", \
     .at = offsetof(struct_name, field.target), \
     .help = "what the decoder of an encoder-decoder reads; without it what it " \
             "generates"}, \
    {.name = "weights", .letter = 'w', .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.weights), \
     .help = "anybody's attention maps: safetensors, (layers, heads, rows, keys) or " \
             "one (heads, rows, keys) per layer, F32, F16 or BF16"}, \
    {.name = "tokens", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.tokens), \
     .help = "words of the maps: one per line, or a JSON list"}, \
    {.name = "row-tokens", .kind = PH_OPT_TEXT, .metavar = "FILE", \
     .at = offsetof(struct_name, field.row_tokens), \
     .help = "words of the rows where they are another text than the keys"}
/* clang-format on */

enum { LOOK_PATH = 4096 };

#define LOOK_SENTENCE "The animal didn't cross the street because it was too tired."

/* A report, measured, and what it stands on. */
typedef struct look_source {
    ph_maps *maps; /* of a file, or */
    ph_ctx *ctx;   /* a model that has read a text */
    ph_model *model;
    ph_reading *reading;
    ph_scene *scene;
    char *bytes;        /* of texts that were read */
    const char **texts; /* (text_count) */
    int text_count, left_out;
    int32_t *ranks; /* of every token among the texts, 0 the most frequent; or NULL */
    ph_report report;
    ph_survey *survey;
    char roles[PH_ROLES_TEXT]; /* names of the kinds of links, closed by NUL each */
    const char *relations[PH_MOST_RELATIONS];
    int relation_count; /* 0: links are not known */
    int sentences;      /* unseen ones that roles were measured on */
    char found[640];    /* what was found, and on what */
} look_source;

/* Says what is wrong and returns an exit code; close it in any case. */
int look_open(look_source *source, const look_choice *choice);
void look_close(look_source *source);

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

/* The live page, until Ctrl-C. port 0: any that is free. */
int look_serve(const look_source *source, const look_choice *choice, int port);

/* The numbers of every head. */
int heads_json(const look_source *source);
int heads_csv(const look_source *source);

/* 1: a folder, or a file that ends in .safetensors: a model, not a text. */
int look_is_model(const char *word);
int look_is_file(const char *word);

/* A word as it may be printed. */
enum { LOOK_WORD = 256 };
const char *look_word(const char *word, char room[LOOK_WORD]);

/* 1: the terminal's locale says UTF-8. */
int look_utf8(void);

#endif
