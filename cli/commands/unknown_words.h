/*
 * unknown_words.h - which words of a text a model does not know.
 */
#ifndef PH_CLI_UNKNOWN_WORDS_H
#define PH_CLI_UNKNOWN_WORDS_H

#include "polyhead_model.h"

/* Warns how many words of the texts, and which, are not in the vocabulary. */
void warn_unknown_words(const ph_model *m, const char *const *texts, int count);

#endif
