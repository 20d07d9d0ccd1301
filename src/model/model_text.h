/*
 * model_text.h - tokens of a model as text, the tokenizer of a checkpoint.
 */
#ifndef PH_MODEL_MODEL_TEXT_H
#define PH_MODEL_MODEL_TEXT_H

#include "model/model.h"

struct ph_checkpoint;

typedef struct ph_token_list {
    const int32_t *tokens;
    int count;
} ph_token_list;

/* Tokens that become text one by one. */
typedef struct ph_text {
    const ph_model *model;
    ph_detokenizer *detokenizer; /* NULL: the model has a vocabulary of its own */
    ph_io io;
    char error[512];
    int words;  /* so far */
    char *data; /* the text so far, of whole characters, with a NUL behind it */
    size_t length, capacity;
} ph_text;

/* An empty text; what comes before decides whether a word begins with a blank. The others
   append the text of a token, and what was held back for a character to be complete. */
ph_status ph_text_begin(ph_text *t, const ph_model *m, ph_token_list before);
ph_status ph_text_add(ph_text *t, int token);
ph_status ph_text_end(ph_text *t);
void ph_text_free(ph_text *t);

/* Tokenizer and marks of a checkpoint at path; a model may have no tokenizer. */
ph_status ph_tokens_import(ph_model *m, const struct ph_checkpoint *c, const char *path);

/* tokenizer_files.c: the tokenizer of a checkpoint at path, or NULL if there is none; and
   that of a decoder's texts, where a folder has one. */
ph_status ph_tokens_read(ph_tokenizer **out, const struct ph_checkpoint *c,
                         const char *path, const ph_io *io);
ph_status ph_tokens_read_target(ph_tokenizer **out, const char *path, const ph_io *io);

/* A tokenizer from the bytes of its file, GGUF's metadata included, with options (NULL:
   none); and the sentence for a token without an embedding: a tokenizer may have more
   tokens than the model, and only a text that holds one of these is refused. */
struct ph_token_options;
ph_status ph_tokens_parse(ph_tokenizer **out, const char *name, const char *bytes,
                          size_t size, const struct ph_token_options *options,
                          const ph_io *io);
ph_status ph_tokens_refuse(const ph_model *m, int token);

/* merges.txt, source.spm or target.spm with vocab.json of a folder as a tokenizer.json,
   which ph_io_release gives back; NULL: there is no file of that name. */
ph_status ph_tokens_joined(const char *folder, const char *name, char **json,
                           size_t *length, const ph_io *io);

/* marks.c: what the configuration of a checkpoint says of tokens; the token that a value
   names, -1: none. */
struct ph_values;
struct ph_value;
ph_status ph_marks_import(ph_model *m, const struct ph_values *values);
void ph_marks_add_end(ph_model *m, int32_t token); /* once; none outside the vocabulary */
void ph_marks_known_ends(ph_model *m);             /* those that a GGUF file leaves out */
ph_status ph_marks_force(ph_model *m, const struct ph_value *v); /* NULL, null: a
                                                                     language */
ph_status ph_marks_suppress(ph_model *m);    /* memory for `suppressed`, cleared */
int ph_marks_limit(const ph_model *m, int before); /* new tokens behind so many at most */
ph_status ph_marks_check(const ph_model *m); /* some token may begin a text */
int32_t ph_token_of(const struct ph_value *v);

/* sound_marks.c: what a text of sound begins with. */
ph_status ph_marks_sound(ph_model *m, const struct ph_values *values);

/* generation_settings.c: how it wants texts generated; after the marks. */
ph_status ph_settings_import(ph_model *m, const struct ph_values *values);

/* gguf_tokenizer.c: the tokenizer inside a GGUF file, or NULL if there is none. */
ph_status ph_tokens_of_gguf(ph_tokenizer **out, const struct ph_values *values,
                            const ph_io *io);

/* prompt.c: what sentence-transformers puts before a text, if a checkpoint says so, and
   the side that a text is truncated on. */
ph_status ph_prompt_import(ph_model *m, const struct ph_values *values);

/* model_chat.c: the chat template of a checkpoint, if it has one; and the prompt that a
   message becomes by it, which ph_ctx_release gives back. */
ph_status ph_chat_import(ph_model *m, const struct ph_checkpoint *c, const char *path);
ph_status ph_chat_wrap(const ph_model *m, const char *message, const char *system,
                       char **prompt);

/* Words of a text: within the marks that the tokenizer puts around it, without them, or
   as a decoder reads them, without marks too. */
enum { PH_TOKENS_SOURCE = 0, PH_TOKENS_BARE, PH_TOKENS_TARGET };
ph_status ph_tokens_split(const ph_model *m, const char *text, int how, ph_word *words,
                          int capacity, int *count);

/* The same of a text that becomes a vector: words of the prompt before it are marks. */
ph_status ph_tokens_split_prompted(const ph_model *m, const char *text, ph_word *words,
                                   int capacity, int *count);

/* Tokens of a text, or of two that belong together, truncated to `most` tokens; types are
   in the same memory, which ph_ctx_release(tokens) gives back. */
ph_status ph_tokens_take(const ph_model *m, const char *text, const char *pair, int most,
                         int32_t **tokens, int32_t **types, int *count);

/* The same of a text that becomes a vector: the prompt of the model stands before it. */
ph_status ph_tokens_take_prompted(const ph_model *m, const char *text, int most,
                                  int32_t **tokens, int32_t **types, int *count);

/* The same of a text that a decoder reads. */
ph_status ph_tokens_take_target(const ph_model *m, const char *text, int most,
                                int32_t **tokens, int *count);

static inline int ph_is_end(const ph_model *m, int token)
{
    int i = 0;
    while (i < m->marks.end_count && m->marks.ends[i] != token) i++;
    return i < m->marks.end_count;
}

/* Whether number `at` of a new text is a certain token; `at`: ph_context_at. */
static inline int ph_is_forced(const ph_model *m, int at)
{
    return at < m->marks.forced_count && m->marks.forced[at] >= 0;
}

/* Whether it is one that the model finds before it generates: a language. */
static inline int ph_is_found(const ph_model *m, int at)
{
    return at < m->marks.forced_count && m->marks.forced[at] < 0;
}

/* Whether a token may be number `at` of a new text. Padding and start marks are never
   generated unless they are ends too; a checkpoint may force and suppress others. */
static inline int ph_is_generated(const ph_model *m, int token, int at)
{
    int first = at == m->marks.forced_count;
    if (ph_is_forced(m, at)) return token == m->marks.forced[at];
    if (ph_is_found(m, at) && m->marks.languages)
        return (m->suppressed[token] & PH_LANGUAGE) != 0;
    int not_now = first ? PH_NEVER | PH_NOT_FIRST : PH_NEVER;
    if (m->suppressed && m->suppressed[token] & not_now) return 0;
    return (token != m->marks.start && token != m->marks.padding) || ph_is_end(m, token);
}

#endif
