/*
 * unknown_words.h - which words of a text a model does not know.
 */
#ifndef PH_CLI_UNKNOWN_WORDS_H
#define PH_CLI_UNKNOWN_WORDS_H

#include "polyhead_model.h"

enum { UNKNOWN_LIST = 256 };

/* What some texts have of them; begins as zeros. */
typedef struct unknown_words {
    long long words, unknown;
    int listed, left_out;
    char list[UNKNOWN_LIST]; /* the first of them, each once, ", " between */
    size_t used;
} unknown_words;

void unknown_words_add(unknown_words *u, const ph_model *m, const char *text);

/* Warns how many there are, and which, if there are any. */
void unknown_words_warn(const unknown_words *u);

/* Warns how many words of the texts, and which, are not in the vocabulary. */
void warn_unknown_words(const ph_model *m, const char *const *texts, int count);

#endif
