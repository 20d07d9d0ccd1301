/*
 * gguf_tokenizer.c - the tokenizer inside a GGUF file: its fields, each of the kind it
 * must be, as lists for ph_tokenizer_of_gguf.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "checkpoint/gguf.h"
#include "model/model_text.h"

typedef struct gguf_reader {
    const ph_values *values;
    ph_gguf_tokens tokens;
    void *memory[4];
    int count;
    int failed; /* out of memory */
} gguf_reader;

static const ph_value *gguf_value(const gguf_reader *r, const char *name)
{
    char key[96];
    snprintf(key, sizeof key, "tokenizer.ggml.%s", name);
    return ph_values_find(r->values, key);
}

/* What each field is: texts and numbers are lists of them where they end in s. */
static const struct {
    const char *name;
    enum { TEXT, ID, KNOWN_ID, FLAG, TEXTS, NUMBERS, BYTES } kind;
} gguf_fields[] = {{"model", TEXT},
                   {"pre", TEXT},
                   {"tokens", TEXTS},
                   {"merges", TEXTS},
                   {"scores", NUMBERS},
                   {"token_type", NUMBERS},
                   {"bos_token_id", KNOWN_ID},
                   {"eos_token_id", ID},
                   {"unknown_token_id", ID},
                   {"seperator_token_id", ID}, /* as llama.cpp spells it */
                   {"padding_token_id", ID},
                   {"add_bos_token", FLAG},
                   {"add_eos_token", FLAG},
                   {"add_space_prefix", FLAG},
                   {"remove_extra_whitespaces", FLAG},
                   {"precompiled_charsmap", BYTES}};

/* An id that no vocabulary has stands for none; a text would begin without the token that
   KNOWN_ID names, so there only -1 does, which without a sign is the largest. */
static int gguf_fits(const ph_value *v, int kind, const ph_value *tokens)
{
    int list = v->kind == PH_VALUE_LIST, text = list && v->item_type == PH_GGUF_TEXT;
    int number = v->kind == PH_VALUE_NUMBER && v->number >= -1 &&
                 v->number <= UINT32_MAX && v->number == floor(v->number);
    switch (kind) {
    case TEXT: return v->kind == PH_VALUE_TEXT;
    case ID: return number;
    case KNOWN_ID:
        return number && (!tokens || v->number < (double)tokens->count ||
                          v->number == (double)UINT32_MAX);
    case FLAG: return v->kind == PH_VALUE_BOOL;
    case TEXTS: return text;
    case NUMBERS: return list && !text;
    default: return list && v->item_type <= PH_GGUF_I8;
    }
}

static ph_status check_gguf(const gguf_reader *r, const ph_io *io)
{
    static const char *const expected[] = {
        "a text",        "a token",         "a token of the vocabulary",
        "true or false", "a list of texts", "a list of numbers",
        "a list of bytes"};
    const ph_value *tokens = gguf_value(r, "tokens");
    for (size_t i = 0; i < sizeof gguf_fields / sizeof gguf_fields[0]; i++) {
        const ph_value *v = gguf_value(r, gguf_fields[i].name);
        int kind = gguf_fields[i].kind;
        if (v && !gguf_fits(v, kind, tokens))
            return ph_io_fail(io, PH_BAD_FILE, "%s is %s, expected %s", v->key,
                              ph_value_show(v).text, expected[kind]);
        if (v && kind == NUMBERS && (!tokens || v->count != tokens->count))
            return ph_io_fail(io, PH_BAD_FILE,
                              "%s has %zu items, expected one for each of %zu tokens",
                              v->key, v->count, tokens ? tokens->count : 0);
    }
    return PH_OK;
}

static int32_t gguf_id(const gguf_reader *r, const char *name)
{
    return ph_token_of(gguf_value(r, name));
}

static int gguf_flag(const gguf_reader *r, const char *name)
{
    const ph_value *v = gguf_value(r, name);
    return v ? v->number != 0 : -1;
}

static void *gguf_memory(gguf_reader *r, size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) r->failed = 1;
    return r->memory[r->count++] = memory;
}

static const ph_chars *gguf_texts(gguf_reader *r, const char *name, size_t *count)
{
    const ph_value *v = gguf_value(r, name);
    if (!v) return NULL;
    ph_chars *list = gguf_memory(r, v->count * sizeof *list);
    const unsigned char *at = v->items;
    for (size_t i = 0; list && i < v->count; i++)
        list[i].text = ph_gguf_next_text(&at, &list[i].length);
    *count = v->count;
    return list;
}

static void gguf_columns(gguf_reader *r)
{
    const ph_value *scores = gguf_value(r, "scores");
    const ph_value *types = gguf_value(r, "token_type");
    size_t count = r->tokens.count;
    float *score = scores ? gguf_memory(r, count * sizeof *score) : NULL;
    int32_t *type = types ? gguf_memory(r, count * sizeof *type) : NULL;
    ph_value item = {0};
    for (size_t i = 0; score && i < count; i++)
        score[i] = ph_gguf_item(scores, i, &item) ? (float)item.number : 0;
    for (size_t i = 0; type && i < count; i++) {
        int good = ph_gguf_item(types, i, &item) && item.number >= 0 && item.number < 100;
        type[i] = good ? (int32_t)item.number : 0;
    }
    r->tokens.scores = score, r->tokens.types = type;
}

ph_status ph_tokens_of_gguf(ph_tokenizer **out, const ph_values *values, const ph_io *io)
{
    gguf_reader r = {.values = values};
    const ph_value *model = gguf_value(&r, "model"), *pre = gguf_value(&r, "pre");
    PH_TRY(check_gguf(&r, io));
    if (!model) return PH_OK;
    r.tokens.model = model->text;
    r.tokens.pre = pre ? pre->text : NULL;
    r.tokens.tokens = gguf_texts(&r, "tokens", &r.tokens.count);
    r.tokens.merges = gguf_texts(&r, "merges", &r.tokens.merge_count);
    gguf_columns(&r);
    r.tokens.bos = gguf_id(&r, "bos_token_id");
    r.tokens.eos = gguf_id(&r, "eos_token_id");
    r.tokens.unknown = gguf_id(&r, "unknown_token_id");
    r.tokens.separator = gguf_id(&r, "seperator_token_id");
    r.tokens.padding = gguf_id(&r, "padding_token_id");
    r.tokens.add_bos = gguf_flag(&r, "add_bos_token");
    r.tokens.add_eos = gguf_flag(&r, "add_eos_token");
    r.tokens.add_space_prefix = gguf_flag(&r, "add_space_prefix");
    r.tokens.remove_extra_whitespaces = gguf_flag(&r, "remove_extra_whitespaces");
    const ph_value *map = gguf_value(&r, "precompiled_charsmap");
    if (map) r.tokens.charsmap = map->items, r.tokens.charsmap_size = map->count;
    ph_status status = r.failed ? ph_io_no_memory(io, r.tokens.count, "a tokenizer")
                                : ph_tokenizer_of_gguf(out, &r.tokens, io);
    for (int i = 0; i < r.count; i++) free(r.memory[i]);
    return status;
}
