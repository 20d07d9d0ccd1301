/*
 * model_text.c - text to tokens and back: by a model's own vocabulary, or by the
 * tokenizer that came with a published checkpoint.
 */
#include "model/model_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

/* ---- text to tokens ---------------------------------------------------------------- */

static int copy_words(const ph_text_token *tokens, size_t count, ph_word *words,
                      int capacity)
{
    for (size_t i = 0; i < count && i < (size_t)capacity; i++)
        words[i] = (ph_word){.token = tokens[i].id,
                             .start = (int)tokens[i].start,
                             .length = (int)(tokens[i].end - tokens[i].start),
                             .type = tokens[i].type,
                             .mark = tokens[i].sequence < 0};
    return (int)count;
}

static const ph_tokenizer *tokenizer_of(const ph_model *m, int target)
{
    return target && m->target_tokenizer ? m->target_tokenizer : m->tokenizer;
}

static ph_status encode(const ph_model *m, const char *text, int how, ph_word *words,
                        int capacity, int *count)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_encoder *encoder;
    ph_encode_args args = {
        .text = text, .length = strlen(text), .bare = how != PH_TOKENS_SOURCE};
    const ph_text_token *tokens = NULL;
    size_t found = 0;
    if (args.length > INT32_MAX / 2)
        return ph_fail(m->ctx, PH_BAD_SHAPE, "the text has %zu bytes, too many",
                       args.length);
    ph_status status =
        ph_encoder_create(&encoder, tokenizer_of(m, how == PH_TOKENS_TARGET), &io);
    if (status == PH_OK) status = ph_encode(encoder, &args, &tokens, &found);
    if (status == PH_OK)
        *count = copy_words(tokens, found, words, capacity);
    else
        ph_fail(m->ctx, status, "%s", error);
    ph_encoder_free(encoder);
    return status;
}

/* ---- tokens of a text for a pass --------------------------------------------------- */

static ph_status take_memory(const ph_model *m, size_t count, int32_t **tokens,
                             int32_t **types)
{
    *tokens = ph_ctx_alloc(m->ctx, 2 * (count ? count : 1) * sizeof **tokens);
    if (!*tokens)
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu tokens", count);
    *types = *tokens + count;
    return PH_OK;
}

static ph_status take_encoded(const ph_model *m, const ph_tokenizer *tokenizer,
                              const ph_encode_args *args, int32_t **tokens,
                              int32_t **types, int *count)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_encoder *encoder;
    const ph_text_token *list = NULL;
    size_t found = 0;
    ph_status status = ph_encoder_create(&encoder, tokenizer, &io);
    if (status == PH_OK) status = ph_encode(encoder, args, &list, &found);
    if (status != PH_OK)
        ph_fail(m->ctx, status, "%s", error);
    else
        status = take_memory(m, found, tokens, types);
    for (size_t i = 0; status == PH_OK && i < found; i++)
        (*tokens)[i] = list[i].id, (*types)[i] = list[i].type;
    *count = (int)found;
    ph_encoder_free(encoder);
    return status;
}

static ph_status take_words(const ph_model *m, const char *text, int most,
                            int32_t **tokens, int32_t **types, int *count)
{
    ph_word *words = ph_ctx_alloc(m->ctx, (size_t)most * sizeof *words);
    ph_status status =
        words ? ph_model_split(m, text, words, most, count)
              : ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for %d tokens", most);
    if (status == PH_OK && *count > most) *count = most;
    if (status == PH_OK) status = take_memory(m, (size_t)*count, tokens, types);
    for (int i = 0; status == PH_OK && i < *count; i++)
        (*tokens)[i] = words[i].token, (*types)[i] = 0;
    ph_ctx_release(m->ctx, words);
    return status;
}

ph_status ph_tokens_take(const ph_model *m, const char *text, const char *pair, int most,
                         int32_t **tokens, int32_t **types, int *count)
{
    *tokens = NULL, *count = 0;
    if (!text)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "a text is NULL, expected a string");
    ph_encode_args args = {.text = text,
                           .length = strlen(text),
                           .pair = pair,
                           .pair_length = pair ? strlen(pair) : 0,
                           .max_tokens = (size_t)most,
                           .truncate_left = m->truncate_left};
    if (m->tokenizer) return take_encoded(m, m->tokenizer, &args, tokens, types, count);
    if (pair)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "a pair of texts needs the tokenizer of a checkpoint");
    return take_words(m, text, most, tokens, types, count);
}

/* A text behind the prompt, which ph_ctx_release gives back. */
static ph_status put_prompt(const ph_model *m, const char *text, char **both)
{
    size_t before = strlen(m->prompt), size = before + strlen(text) + 1;
    *both = ph_ctx_alloc(m->ctx, size);
    if (!*both) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a text");
    memcpy(*both, m->prompt, before);
    strcpy(*both + before, text);
    return PH_OK;
}

ph_status ph_tokens_take_prompted(const ph_model *m, const char *text, int most,
                                  int32_t **tokens, int32_t **types, int *count)
{
    char *both;
    if (!m->prompt || !text)
        return ph_tokens_take(m, text, NULL, most, tokens, types, count);
    *tokens = NULL, *count = 0;
    PH_TRY(put_prompt(m, text, &both));
    ph_status status = ph_tokens_take(m, both, NULL, most, tokens, types, count);
    ph_ctx_release(m->ctx, both);
    return status;
}

ph_status ph_tokens_take_target(const ph_model *m, const char *text, int most,
                                int32_t **tokens, int *count)
{
    int32_t *types;
    if (!m->target_tokenizer || !text)
        return ph_tokens_take(m, text, NULL, most, tokens, &types, count);
    ph_encode_args args = {
        .text = text, .length = strlen(text), .max_tokens = (size_t)most};
    *tokens = NULL, *count = 0;
    return take_encoded(m, m->target_tokenizer, &args, tokens, &types, count);
}

/* ---- words ------------------------------------------------------------------------- */

ph_status ph_tokens_split(const ph_model *m, const char *text, int how, ph_word *words,
                          int capacity, int *count)
{
    if (!text || !count || (capacity && !words))
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "text, words or count is NULL");
    if (m->tokenizer) return encode(m, text, how, words, capacity, count);
    if (!m->vocab.count && m->checkpoint && m->checkpoint->llama2c)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "this model has no vocabulary: its llama2.c file needs "
                       "tokenizer.bin beside it");
    if (!m->vocab.count)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "this model has no vocabulary: its folder needs tokenizer.json, "
                       "vocab.txt, or vocab.json with merges.txt or source.spm; load its "
                       "tokenizer once with transformers (from_pretrained, then "
                       "save_pretrained)");
    *count = ph_vocab_split(&m->vocab, text, words, capacity);
    return PH_OK;
}

/* A word of a text behind a prompt of so many bytes becomes one of the text alone. */
static void cut_prompt(ph_word *word, int before)
{
    int end = word->start + word->length;
    if (word->start < before && end <= before) word->mark = 1;
    word->start = ph_max(word->start - before, 0);
    word->length = ph_max(end - before, 0) - word->start;
}

ph_status ph_tokens_split_prompted(const ph_model *m, const char *text, ph_word *words,
                                   int capacity, int *count)
{
    char *both;
    if (!m->prompt || !text)
        return ph_tokens_split(m, text, PH_TOKENS_SOURCE, words, capacity, count);
    PH_TRY(put_prompt(m, text, &both));
    ph_status status =
        ph_tokens_split(m, both, PH_TOKENS_SOURCE, words, capacity, count);
    for (int i = 0; status == PH_OK && i < ph_min(*count, capacity); i++)
        cut_prompt(&words[i], (int)strlen(m->prompt));
    ph_ctx_release(m->ctx, both);
    return status;
}

ph_status ph_model_split(const ph_model *m, const char *text, ph_word *words,
                         int capacity, int *count)
{
    if (!m) return PH_BAD_ARGUMENT;
    if (!text || !count) return ph_ctx_null(m->ctx, "text or count");
    return PH_WITHIN(m->ctx,
                     ph_tokens_split(m, text, PH_TOKENS_SOURCE, words, capacity, count));
}

const ph_tokenizer *ph_model_tokenizer(const ph_model *m)
{
    return m ? m->tokenizer : NULL;
}

ph_split ph_model_splits(const ph_model *m)
{
    if (!m) return PH_SPLIT_WORDS;
    return m->tokenizer ? PH_SPLIT_SUBWORDS : m->vocab.split;
}

/* ---- tokens to text ---------------------------------------------------------------- */

const char *ph_model_token(const ph_model *m, int token)
{
    if (!m) return "";
    size_t length;
    const char *text =
        m->tokenizer ? ph_tokenizer_token(m->tokenizer, token, &length) : NULL;
    if (text) return text;
    return token >= 0 && token < m->vocab.count && m->vocab.text ? m->vocab.text[token]
                                                                 : "";
}

/* What a text of this one token holds, without blanks before it; "" if that fails. */
static void detokenize_alone(const ph_model *m, int token, char *to, size_t size)
{
    ph_detokenizer *d = NULL;
    ph_io io = {0};
    const char *text;
    size_t length, used = 0;
    ph_status status = ph_detokenizer_create(&d, m->tokenizer, 0, &io);
    for (int end = 0; end < 2 && status == PH_OK; end++) {
        status = end ? ph_detokenize_end(d, &text, &length)
                     : ph_detokenize(d, token, &text, &length);
        if (status != PH_OK) break;
        while (!used && length && *text == ' ') text++, length--;
        if (length > size - 1 - used) length = size - 1 - used;
        memcpy(to + used, text, length);
        used += length;
    }
    to[used] = 0;
    ph_detokenizer_free(d);
}

const char *ph_model_spell(const ph_model *m, int token, char *text, size_t size)
{
    if (!text || !size) return text;
    *text = 0;
    if (m && m->tokenizer) detokenize_alone(m, token, text, size);
    if (!*text) snprintf(text, size, "%s", ph_model_token(m, token));
    return text;
}

int ph_model_knows(const ph_model *m, int token)
{
    if (!m) return 0;
    const char *text = ph_model_token(m, token);
    return strcmp(text, "<unk>") != 0 && strcmp(text, "[UNK]") != 0;
}

static ph_status append_bytes(ph_text *t, const char *text, size_t length)
{
    ph_ctx *ctx = t->model->ctx;
    if (t->length + length >= t->capacity) {
        size_t capacity = 2 * (t->length + length) + 64;
        char *data = ph_ctx_alloc(ctx, capacity);
        if (!data) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for text");
        if (t->length) memcpy(data, t->data, t->length);
        ph_ctx_release(ctx, t->data);
        t->data = data, t->capacity = capacity;
    }
    memcpy(t->data + t->length, text, length);
    t->length += length;
    t->data[t->length] = 0;
    return PH_OK;
}

/* Texts are C strings: a NUL in one becomes U+FFFD. */
static ph_status append(ph_text *t, const char *text, size_t length)
{
    const char *end = text + length, *nul;
    while ((nul = memchr(text, 0, (size_t)(end - text)))) {
        PH_TRY(append_bytes(t, text, (size_t)(nul - text)));
        PH_TRY(append_bytes(t, "\xef\xbf\xbd", 3));
        text = nul + 1;
    }
    return append_bytes(t, text, (size_t)(end - text));
}

static ph_status fail(const ph_text *t, ph_status status)
{
    return status == PH_OK ? PH_OK : ph_fail(t->model->ctx, status, "%s", t->error);
}

ph_status ph_text_begin(ph_text *t, const ph_model *m, ph_token_list before)
{
    const char *text;
    size_t length;
    *t = (ph_text){.model = m};
    t->io = (ph_io){.error = t->error, .error_size = sizeof t->error};
    PH_TRY(append(t, "", 0));
    if (!m->tokenizer) return PH_OK;
    ph_status status = ph_detokenizer_create(&t->detokenizer, m->tokenizer, 1, &t->io);
    for (int i = 0; status == PH_OK && i < before.count; i++)
        status = ph_detokenize(t->detokenizer, before.tokens[i], &text, &length);
    if (status == PH_OK) status = ph_detokenize_prompt(t->detokenizer);
    return fail(t, status);
}

/* Words have blanks between; without a vocabulary they are ids. */
static ph_status add_word(ph_text *t, int token)
{
    const ph_model *m = t->model;
    const char *word = ph_model_token(m, token);
    char byte[1] = {(char)(token - PH_TOKEN_FIRST)}, id[16];
    if (m->vocab.split == PH_SPLIT_BYTES) return append(t, byte, 1);
    if (!m->vocab.count)
        snprintf(id, sizeof id, "%d", token), word = id;
    if (m->vocab.split == PH_SPLIT_WORDS && t->words++) PH_TRY(append(t, " ", 1));
    return append(t, word, strlen(word));
}

ph_status ph_text_add(ph_text *t, int token)
{
    const char *text;
    size_t length;
    if (!t->detokenizer) return add_word(t, token);
    PH_TRY(fail(t, ph_detokenize(t->detokenizer, token, &text, &length)));
    return append(t, text, length);
}

ph_status ph_text_end(ph_text *t)
{
    const char *text;
    size_t length;
    if (!t->detokenizer) return PH_OK;
    PH_TRY(fail(t, ph_detokenize_end(t->detokenizer, &text, &length)));
    return append(t, text, length);
}

void ph_text_free(ph_text *t)
{
    ph_detokenizer_free(t->detokenizer);
    if (t->model) ph_ctx_release(t->model->ctx, t->data);
    *t = (ph_text){0};
}

/* ---- the tokenizer of a checkpoint ------------------------------------------------- */

/* BERT's and RoBERTa's spelling. */
static int find_mask(const ph_tokenizer *t)
{
    int32_t id = ph_tokenizer_id(t, "[MASK]", 6);
    return id >= 0 ? id : ph_tokenizer_id(t, "<mask>", 6);
}

static const char *text_of(const ph_tokenizer *t, int token)
{
    return t ? ph_tokenizer_token(t, token, NULL) : NULL;
}

/* The target's tokenizer may be the one with more tokens. */
ph_status ph_tokens_refuse(const ph_model *m, int token)
{
    const ph_tokenizer *t = m->tokenizer;
    const char *text = text_of(t, token);
    if (!text) text = text_of(t = m->target_tokenizer, token);
    if (!text)
        return ph_fail(m->ctx, PH_BAD_VALUE, "token %d is outside the vocabulary of %d",
                       token, m->config.vocab);
    return ph_fail(m->ctx, PH_BAD_VALUE,
                   "token %d, %s, has no embedding: the tokenizer has %zu tokens, the "
                   "model %d",
                   token, ph_io_quote(text, strlen(text)).text,
                   ph_tokenizer_about(t).vocab_size, m->config.vocab);
}

ph_status ph_tokens_import(ph_model *m, const ph_checkpoint *c, const char *path)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    PH_TRY(ph_marks_import(m, &c->values));
    if (m->config.image_size) return PH_OK; /* pictures have no tokens */
    if (c->llama2c) m->marks.ends[0] = 2, m->marks.ends[1] = 1, m->marks.end_count = 2;
    ph_status status = ph_tokens_read(&m->tokenizer, c, path, &io);
    if (status == PH_OK && m->tokenizer && m->config.arch == PH_ARCH_ENCODER_DECODER &&
        c->kind == PH_CHECKPOINT_FOLDER)
        status = ph_tokens_read_target(&m->target_tokenizer, path, &io);
    if (status != PH_OK) return ph_fail(m->ctx, status, "%s", error);
    if (!m->tokenizer) return PH_OK;
    if (c->kind == PH_CHECKPOINT_GGUF) /* its lists of tokens and merges were copied */
        ph_map_drop(c->map.bytes, c->metadata);
    if (m->masked >= 0) m->marks.mask = find_mask(m->tokenizer);
    if (m->marks.mask >= m->config.vocab) m->marks.mask = -1;
    if (c->kind == PH_CHECKPOINT_GGUF && m->config.arch != PH_ARCH_ENCODER)
        ph_marks_known_ends(m);
    PH_TRY(ph_chat_import(m, c, path));
    return c->kind == PH_CHECKPOINT_FOLDER ? ph_prompt_import(m, &c->values) : PH_OK;
}
