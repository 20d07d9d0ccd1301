/*
 * vocab.h - the vocabulary of a model: words, characters or bytes, and how text is split.
 */
#ifndef PH_TEXT_VOCAB_H
#define PH_TEXT_VOCAB_H

#include "base/ctx.h"
#include "polyhead_model.h"

typedef struct ph_vocab {
    ph_split split;
    int count;         /* tokens, the first four included */
    const char **text; /* (count) */
    int *slots;        /* hash table: token or -1 */
    int slot_count;    /* a power of two */
    int longest;       /* bytes of the longest token */
    void *memory;      /* all of the above in one piece */
} ph_vocab;

ph_status ph_vocab_create(ph_vocab *vocab, ph_ctx *ctx, ph_split split,
                          const char *const *tokens, int count);
void ph_vocab_free(ph_vocab *vocab, ph_ctx *ctx);
int ph_vocab_find(const ph_vocab *vocab, const char *text, size_t length); /* or -1 */
int ph_vocab_split(const ph_vocab *vocab, const char *text, ph_word *words, int capacity);

#endif
