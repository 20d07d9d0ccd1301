/*
 * corpus.h - the file of a user that a recipe learns from, and its tokens.
 *
 *     corpus.c   reads it; tokens by characters, or by bytes
 *     origin.c   tokens as a model has them that training goes on from
 *     windows.c  recipe text, pairs.c: pairs, classes.c: classes
 */
#ifndef PH_RECIPES_CORPUS_H
#define PH_RECIPES_CORPUS_H

#include "recipes/recipes.h"

enum { PH_TEST_SHARE = 10 }; /* one sample in ten is held out */

typedef struct ph_corpus {
    char *bytes; /* the file, closed by NUL */
    size_t size;
    int32_t *tokens;
    size_t count, capacity;
    size_t held; /* text: the first held-out token; else: index into order */

    size_t *start; /* (texts + 1) where each text begins in tokens */
    size_t texts;
    int32_t *labels;     /* classes: of all texts */
    size_t *label_start; /* (texts + 1) where those of each text begin */
    size_t *order;   /* samples for training, then those held out */

    int32_t before[8], after[8]; /* marks that belong around a window */
    int before_count, after_count;
} ph_corpus;

ph_status ph_corpus_no_memory(const ph_data *data);

/* Reads the file into data->own, which ph_corpus_close gives back. */
ph_status ph_corpus_open(ph_data *data);
void ph_corpus_close(ph_data *data);

/* Lines may end with CR LF: the CR belongs to the line end, not to the text. */
void ph_corpus_strip_cr(ph_corpus *c);

/* Walks over the lines that are not empty: 0 after the last. */
typedef struct ph_line {
    size_t number; /* from 1 */
    size_t at, end;
    size_t next; /* where the next one begins; 0 at first */
} ph_line;

int ph_corpus_line(const ph_corpus *c, ph_line *line);
size_t ph_corpus_lines(const ph_corpus *c); /* at most */
ph_status ph_corpus_bad_line(const ph_data *data, size_t line, const char *what);

/* The only TAB of a line, or a sentence that says what was expected. */
ph_status ph_corpus_tab(const ph_data *data, const ph_line *line, const char *expected,
                        size_t *tab);

/* The vocabulary of a model made for this file: all characters but the separators, by
   code point; or bytes, where there are more than 1,024 different ones, a NUL or bytes
   that are not valid UTF-8. */
ph_status ph_corpus_find_chars(ph_data *data, const char *separators);

/* Memory for so many texts and for all of their tokens by that vocabulary. */
ph_status ph_corpus_reserve(ph_data *data, size_t texts);

/* Appends the tokens of bytes [at, end) by that vocabulary. */
void ph_corpus_tokenize(ph_data *data, size_t at, size_t end);

/* Puts the samples for training first in c->order: those with the same key stay together,
   one key in ten is held out; where that is none or all of them, as may happen in a small
   file, the lowest. PH_BAD_FILE, without a sentence: all keys are the same. */
ph_status ph_corpus_hold_out(ph_corpus *c, size_t samples, const uint64_t *keys);

/* The key of a text: its tokens. */
uint64_t ph_corpus_key(const ph_corpus *c, size_t text);

/* ---- origin.c ---------------------------------------------------------------------- */

/* Tokens by the tokenizer or vocabulary of the model that training goes on from. */
typedef struct ph_origin_encoder {
    const ph_data *data;
    ph_encoder *encoder; /* NULL: by its vocabulary */
    ph_encoder *target;  /* of texts that a decoder reads; NULL: encoder */
    ph_io io;
    char error[512];
} ph_origin_encoder;

ph_status ph_origin_begin(ph_origin_encoder *e, const ph_data *data);
void ph_origin_end(ph_origin_encoder *e);

/* Appends a token. */
ph_status ph_origin_add(ph_origin_encoder *e, int token);

/* Appends the tokens of bytes [at, end), at most `most` (0: all), cut on the side that
   the model says. marks 1: with those that the tokenizer puts around a text; 0: without,
   as a decoder reads it. */
ph_status ph_origin_tokenize(ph_origin_encoder *e, size_t at, size_t end, int marks,
                             size_t most);

/* The marks around a text. */
ph_status ph_origin_find_marks(ph_origin_encoder *e);

#endif
