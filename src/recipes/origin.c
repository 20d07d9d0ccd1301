/*
 * origin.c - tokens of a file as the model has them that training goes on from: by its
 * tokenizer, or by the vocabulary of a model of this program.
 */
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "recipes/corpus.h"

ph_status ph_origin_begin(ph_origin_encoder *e, const ph_data *data)
{
    *e = (ph_origin_encoder){.data = data};
    e->io = (ph_io){.error = e->error, .error_size = sizeof e->error};
    if (!data->origin->tokenizer && !data->origin->vocab->count)
        return ph_fail(data->ctx, PH_UNSUPPORTED,
                       "the model has no tokenizer, expected one beside it");
    if (!data->origin->tokenizer) return PH_OK;
    ph_status status = ph_encoder_create(&e->encoder, data->origin->tokenizer, &e->io);
    if (status == PH_OK && data->origin->target_tokenizer)
        status = ph_encoder_create(&e->target, data->origin->target_tokenizer, &e->io);
    return status == PH_OK ? PH_OK : ph_fail(data->ctx, status, "%s", e->error);
}

void ph_origin_end(ph_origin_encoder *e)
{
    ph_encoder_free(e->encoder);
    ph_encoder_free(e->target);
}

static ph_status grow(const ph_data *data, size_t more)
{
    ph_corpus *c = data->own;
    void *tokens = c->tokens;
    ph_status status =
        ph_io_grow(NULL, &tokens, &c->capacity, c->count + more, sizeof *c->tokens);
    c->tokens = tokens;
    return status == PH_OK ? PH_OK : ph_corpus_no_memory(data);
}

static ph_status encode(ph_origin_encoder *e, const ph_encode_args *args)
{
    ph_corpus *c = e->data->own;
    const ph_text_token *list;
    size_t count;
    ph_encoder *encoder = args->bare && e->target ? e->target : e->encoder;
    ph_status status = ph_encode(encoder, args, &list, &count);
    if (status != PH_OK)
        return ph_fail(e->data->ctx, status, "%s: %s", e->data->train->file, e->error);
    PH_TRY(grow(e->data, count));
    for (size_t i = 0; i < count; i++) c->tokens[c->count++] = list[i].id;
    return PH_OK;
}

/* The bytes behind the text are put aside while it is split: that takes a C string. */
static ph_status split(const ph_origin_encoder *e, size_t at, size_t end, size_t most)
{
    ph_corpus *c = e->data->own;
    const ph_vocab *vocab = e->data->origin->vocab;
    char behind = c->bytes[end];
    c->bytes[end] = 0;
    int count = ph_vocab_split(vocab, c->bytes + at, NULL, 0);
    ph_word *words = malloc(((size_t)count + 1) * sizeof *words);
    if (words) ph_vocab_split(vocab, c->bytes + at, words, count);
    c->bytes[end] = behind;
    if (most && (size_t)count > most) count = (int)most;
    ph_status status =
        words ? grow(e->data, (size_t)count) : ph_corpus_no_memory(e->data);
    for (int i = 0; status == PH_OK && i < count; i++)
        c->tokens[c->count++] = words[i].token;
    free(words);
    return status;
}

ph_status ph_origin_add(ph_origin_encoder *e, int token)
{
    ph_corpus *c = e->data->own;
    PH_TRY(grow(e->data, 1));
    c->tokens[c->count++] = token;
    return PH_OK;
}

ph_status ph_origin_tokenize(ph_origin_encoder *e, size_t at, size_t end, int marks,
                             size_t most)
{
    const ph_corpus *c = e->data->own;
    if (!e->encoder) return split(e, at, end, most);
    ph_encode_args args = {.text = c->bytes + at,
                           .length = end - at,
                           .bare = !marks,
                           .special_as_text = 1,
                           .max_tokens = most,
                           .truncate_left = e->data->origin->truncate_left};
    return encode(e, &args);
}

/* A letter with its marks tells where they stand. */
ph_status ph_origin_find_marks(ph_origin_encoder *e)
{
    ph_corpus *c = e->data->own;
    const ph_text_token *list;
    size_t count;
    if (!e->encoder) return PH_OK;
    ph_encode_args args = {.text = "a", .length = 1};
    ph_status status = ph_encode(e->encoder, &args, &list, &count);
    if (status != PH_OK) return ph_fail(e->data->ctx, status, "%s", e->error);
    for (size_t i = 0, text = 0; i < count; i++) {
        text |= list[i].sequence == 0;
        if (list[i].sequence >= 0) continue;
        if (!text && c->before_count < 8) c->before[c->before_count++] = list[i].id;
        if (text && c->after_count < 8) c->after[c->after_count++] = list[i].id;
    }
    return PH_OK;
}
