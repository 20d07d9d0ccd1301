/*
 * refused_text.h - which line of a file holds the text that a model refused.
 */
#ifndef PH_CLI_REFUSED_TEXT_H
#define PH_CLI_REFUSED_TEXT_H

#include "framework/cli.h"
#include "polyhead_model.h"

/* Texts, and where they come from. */
typedef struct text_origin {
    const char *const *texts;
    int count;
    const char *file;  /* NULL: they are no lines of a file */
    const char *bytes; /* of the file, with a NUL in place of the first byte of the end of
                          each line and nowhere else */
} text_origin;

/* cli_fail_status of a call that was given the texts; in front of the sentence, where one
   of them is to blame by itself, stands which. */
int fail_with_text(const text_origin *from, const ph_model *m, const ph_ctx *ctx,
                   ph_status status);

#endif
