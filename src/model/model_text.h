/*
 * model_text.h - tokens of a model as text, the tokenizer of a checkpoint.
 */
#ifndef PH_MODEL_MODEL_TEXT_H
#define PH_MODEL_MODEL_TEXT_H

#include "model/model.h"

struct ph_checkpoint;

/* Tokens that continue `before` as text, like snprintf; its full length in *length, which
   may be NULL. What comes before decides whether a word begins with a blank. */
typedef struct ph_token_list {
    const int32_t *tokens;
    int count;
} ph_token_list;

ph_status ph_tokens_print(const ph_model *m, ph_token_list before, ph_token_list list,
                          char *out, size_t size, int *length);

/* Tokenizer and marks of a checkpoint at path; a model may have no tokenizer. */
ph_status ph_tokens_import(ph_model *m, const struct ph_checkpoint *c, const char *path);

/* Padding and start marks are never generated. */
static inline int ph_is_generated(const ph_model *m, int token)
{
    return token != m->marks.padding && token != m->marks.start;
}

static inline int ph_is_end(const ph_model *m, int token)
{
    int i = 0;
    while (i < m->marks.end_count && m->marks.ends[i] != token) i++;
    return i < m->marks.end_count;
}

#endif
