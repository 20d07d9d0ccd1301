/*
 * encoder_input.h - what embed, fill and classify begin with: a model, and texts from the
 * command line or the lines of a file.
 */
#ifndef PH_CLI_ENCODER_INPUT_H
#define PH_CLI_ENCODER_INPUT_H

#include "framework/cli.h"
#include "polyhead_model.h"

typedef struct encoder_input {
    ph_ctx *ctx;
    ph_model *m;
    const char **texts;
    int count;
    char *bytes;      /* of a file that was read */
    const char *file; /* its name; NULL: none was */
} encoder_input;

/* Reads the model at a path; "pronouns", where there is no such file, is the model in the
   program. */
ph_status encoder_read(ph_model **m, ph_ctx *ctx, const char *name);

/* Opens the model, by the name that encoder_read takes. */
int encoder_open(encoder_input *in, const char *model, const ph_machine *machine);

/* Which lines of a file are texts: where each has a row in the result, a blank one is the
   empty text; where they are data, it is none. */
typedef enum encoder_lines { ENCODER_EVERY_LINE, ENCODER_NO_BLANKS } encoder_lines;

/* *text "-" becomes all of standard input, without the end of its last line. */
int encoder_stdin(encoder_input *in, const char **text);

/* The words, or (file) lines; "-", as a file or the only word: of standard input. */
int encoder_texts(encoder_input *in, int count, const char *const *words,
                  const char *file, encoder_lines which);

/* cli_fail_status of a call that was given the texts, with the line that it refused. */
int encoder_fail(const encoder_input *in, ph_status status);

/* Vectors or scores of the pictures whose paths the texts are; either may be NULL. */
ph_status encoder_pictures(const encoder_input *in, float *vectors, float *scores);

/* Says on stderr how many texts were truncated to what the model takes, if any were. */
void encoder_say_truncated(const encoder_input *in, int truncated);

/* Cuts every line at its tab: the text before it, and in *pairs, to be freed, what comes
   after. expected: "source TAB target". */
int encoder_pairs(encoder_input *in, const char *expected, const char ***pairs);

/* The same for "label TAB text": the texts are what comes after the tab. */
int encoder_labels(encoder_input *in, const char ***labels);

/* Refuses, before any work is done, a directory that encoder_write would refuse after
   it; NULL: nothing will be written. Returns an exit code. */
int encoder_check_out(const char *directory);

/* Writes the model as DIRECTORY/model.safetensors, which must not exist. */
int encoder_write(const encoder_input *in, const char *directory);

void encoder_close(encoder_input *in); /* accepts a cleared one */

#define ENCODER_OPTION_FILE(struct_name)                                                 \
    {                                                                                    \
        .name = "file", .kind = PH_OPT_TEXT, .metavar = "FILE",                          \
        .at = offsetof(struct_name, file),                                               \
        .help = "texts are the lines of FILE, a blank one the empty text; -: of "        \
                "standard input"                                                         \
    }

#endif
