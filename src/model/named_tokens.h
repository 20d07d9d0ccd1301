/*
 * named_tokens.h - tokens that files beside tokenizer.json or vocab.txt name.
 */
#ifndef PH_MODEL_NAMED_TOKENS_H
#define PH_MODEL_NAMED_TOKENS_H

#include "checkpoint/values.h"
#include "polyhead_text.h"

/* A token that is set apart from text, by what it is set apart as; -1: there is none. */
int32_t ph_named_token(const ph_tokenizer *tokenizer, const char *text, size_t length);

/* Refuses a tokenizer that was read from `file` and does not set apart from text what
   the folder names, or (roles) has other tokens around a text. values:
   tokenizer_config.json under tokenizer_config. */
ph_status ph_named_tokens_check(const ph_tokenizer *tokenizer, const ph_values *values,
                                const char *folder, const char *file, int roles,
                                const ph_io *io);

/* Refuses what stands under the prefix in the place of a token, or of several, and is
   none. */
ph_status ph_named_tokens_form(const ph_values *values, const char *prefix,
                               const ph_io *io);

/* tokenizer_files.c: adds a JSON file of the folder, an object (modules.json: a list), if
   there is one, to values. */
ph_status ph_values_add_file(ph_values *values, const char *folder, const char *name,
                             const char *prefix, const ph_io *io);

#endif
