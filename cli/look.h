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

/* What to look at; options that both commands have. */
typedef struct look_choice {
    const char *weights, *tokens, *row_tokens;
} look_choice;

#define LOOK_SOURCE_OPTIONS(struct_name, field)                                          \
    {.name = "weights",                                                                  \
     .kind = PH_OPT_TEXT,                                                                \
     .metavar = "FILE",                                                                  \
     .at = offsetof(struct_name, field.weights),                                         \
     .group = "What to look at",                                                         \
     .help = "anybody's attention maps: safetensors, (layers, heads, rows, keys) or " \
             "one (heads, rows, keys) per layer, F32, F16 or BF16"},                     \
        {.name = "tokens",                                                               \
         .kind = PH_OPT_TEXT,                                                            \
         .metavar = "FILE",                                                              \
         .at = offsetof(struct_name, field.tokens),                                      \
         .help = "words of the maps: one per line, or a JSON list"},                     \
    {                                                                                    \
        .name = "row-tokens", .kind = PH_OPT_TEXT, .metavar = "FILE",                    \
        .at = offsetof(struct_name, field.row_tokens),                                   \
        .help = "words of the rows where they are another text than the keys"            \
    }

/* A report, measured, and what it stands on. */
typedef struct look_source {
    ph_maps *maps;
    ph_report report;
    ph_survey *survey;
} look_source;

/* Says what is wrong and returns an exit code; close it in any case. */
int look_open(look_source *source, const look_choice *choice);
void look_close(look_source *source);

/* Which heads: counted from 1; 0: all of them. */
typedef struct look_heads {
    ph_pick *picks;
    int count;
} look_heads;

int look_select(const ph_report *report, int64_t layer, int64_t head, look_heads *out);

/* The weights of some heads as numbers on stdout. */
int look_plain(const ph_report *report, const look_heads *heads);
int look_csv(const ph_report *report, const look_heads *heads);
int look_json(const look_source *source, const look_heads *heads);

/* The numbers of every head. */
int heads_json(const look_source *source);
int heads_csv(const look_source *source);

/* A word as it may be printed. */
enum { LOOK_WORD = 256 };
const char *look_word(const char *word, char room[LOOK_WORD]);

/* 1: the terminal's locale says UTF-8. */
int look_utf8(void);

#endif
