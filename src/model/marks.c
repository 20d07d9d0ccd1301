/*
 * marks.c - tokens with a meaning of their own, by the configuration of a published
 * checkpoint: what ends a text, what a decoder starts with, what is forced (of sound:
 * sound_marks.c). What is suppressed: generation_settings.c.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model_text.h"

int32_t ph_token_of(const ph_value *v)
{
    int good = v && v->kind == PH_VALUE_NUMBER && v->number >= 0 && v->number < 1 << 24 &&
               v->number == floor(v->number);
    return good ? (int32_t)v->number : -1;
}

static int is_token(const ph_model *m, int token)
{
    return token >= 0 && token < m->config.vocab;
}

/* ---- fields that cannot be meant --------------------------------------------------- */

/* null and, in older files, -1 stand for none; GGUF has no signs, and -1 as 2^32 - 1. */
static ph_status check_token(const ph_model *m, const ph_value *v)
{
    int none = v->kind == PH_VALUE_NULL ||
               (v->kind == PH_VALUE_NUMBER &&
                (v->number == -1 || v->number == (double)UINT32_MAX));
    if (none || ph_token_of(v) >= 0) return PH_OK;
    return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected a token",
                   ph_value_field(v->key).text, ph_value_show(v).text);
}

/* A key that stands for one token, for a list of them, or for either. */
static ph_status check_field(const ph_model *m, const ph_values *values, const char *key,
                             int one, int many)
{
    const ph_value *v = ph_values_find(values, key);
    const ph_value *around = ph_values_around(values, key);
    ph_value item;
    if (around)
        return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected an object",
                       ph_value_field(around->key).text, ph_value_show(around).text);
    if (!v || v->kind == PH_VALUE_NULL) return PH_OK;
    if (one && !(many && v->kind == PH_VALUE_LIST)) return check_token(m, v);
    if (v->kind != PH_VALUE_LIST)
        return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected a list of tokens",
                       ph_value_field(v->key).text, ph_value_show(v).text);
    for (size_t i = 0; ph_values_item(values, v, i, &item); i++)
        PH_TRY(check_token(m, &item));
    return PH_OK;
}

static ph_status check_fields(const ph_model *m, const ph_values *values)
{
    static const struct {
        const char *key;
        int one, many;
    } fields[] = {{"generation.eos_token_id", 1, 1},
                  {"eos_token_id", 1, 1},
                  {"text_config.eos_token_id", 1, 1},
                  {"tokenizer.ggml.eos_token_id", 1, 1},
                  {"tokenizer.ggml.eot_token_id", 1, 1},
                  {"tokenizer.ggml.eom_token_id", 1, 0},
                  {"generation.decoder_start_token_id", 1, 0},
                  {"decoder_start_token_id", 1, 0},
                  {"generation.pad_token_id", 1, 0},
                  {"pad_token_id", 1, 0},
                  {"generation.no_timestamps_token_id", 1, 0},
                  {"generation.suppress_tokens", 0, 1},
                  {"suppress_tokens", 0, 1},
                  {"generation.begin_suppress_tokens", 0, 1},
                  {"begin_suppress_tokens", 0, 1}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        PH_TRY(check_field(m, values, fields[i].key, fields[i].one, fields[i].many));
    return PH_OK;
}

/* ---- ends and starts --------------------------------------------------------------- */

/* Configurations of small models still name the end of the large one they were made
   from: a token that is not in the vocabulary never comes. */
void ph_marks_add_end(ph_model *m, int32_t token)
{
    ph_marks *marks = &m->marks;
    if (is_token(m, token) && !ph_is_end(m, token) && marks->end_count < PH_MARKS_ENDS)
        marks->ends[marks->end_count++] = token;
}

/* A number or a list of them, by the first key that is there. Chat templates add ends of
   their own later. */
static ph_status find_ends(ph_model *m, const ph_values *values, const char *const *keys)
{
    for (; *keys; keys++) {
        const ph_value *v = ph_values_find(values, *keys);
        ph_value item;
        if (!v || v->kind == PH_VALUE_NULL) continue;
        if (v->kind == PH_VALUE_LIST && v->count > PH_MARKS_ENDS / 2)
            return ph_fail(m->ctx, PH_UNSUPPORTED,
                           "%s has %zu tokens, expected %d at most",
                           ph_value_field(*keys).text, v->count, PH_MARKS_ENDS / 2);
        ph_marks_add_end(m, ph_token_of(v));
        for (size_t i = 0; ph_values_item(values, v, i, &item); i++)
            ph_marks_add_end(m, ph_token_of(&item));
        return PH_OK;
    }
    return PH_OK;
}

/* A GGUF file names one or two of the tokens that end a text. llama.cpp takes tokens with
   these texts for ends too, whatever their type. Its </s> is left out: where that is no
   end by its id it is a tag of HTML, in Gemma's vocabulary. */
static const char *const known_ends[] = {
    "<|endoftext|>", "<|end_of_text|>", "<end_of_utterance>", "<|eot_id|>",
    "<|eom_id|>", "<|im_end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>",
    "<end_of_turn>", "<turn|>", "<|tool_response>", "<eos>", "<EOT>", "_<EOT>", "[EOT]",
    "[EOS]", "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>",
    "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"};

static int32_t find_text(const ph_model *m, const char *text)
{
    return ph_tokenizer_id(m->tokenizer, text, strlen(text));
}

/* <|end|> closes a part of an answer where <|call|> or <|calls|> ends it. */
void ph_marks_known_ends(ph_model *m)
{
    for (size_t i = 0; i < sizeof known_ends / sizeof known_ends[0]; i++)
        ph_marks_add_end(m, find_text(m, known_ends[i]));
    if (find_text(m, "<|call|>") < 0 && find_text(m, "<|calls|>") < 0)
        ph_marks_add_end(m, find_text(m, "<|end|>"));
}

/* What a decoder is fed before its text: published encoder-decoders name it, or start
   with their padding. */
static ph_status find_start(ph_model *m, const ph_values *values)
{
    static const char *const keys[] = {"generation.decoder_start_token_id",
                                       "decoder_start_token_id",
                                       "generation.pad_token_id", "pad_token_id"};
    const ph_value *start = NULL;
    for (int i = 0; i < 4; i++) {
        const ph_value *v = ph_values_find(values, keys[i]);
        if (!v || v->kind == PH_VALUE_NULL) continue;
        if (!start) start = v;
        if (i >= 2 && m->marks.padding < 0 && is_token(m, ph_token_of(v)))
            m->marks.padding = ph_token_of(v);
    }
    m->marks.start = ph_token_of(start);
    if (is_token(m, m->marks.start)) return PH_OK;
    return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected a token below %d",
                   ph_value_field(start ? start->key : "decoder_start_token_id").text,
                   start ? ph_value_show(start).text : "missing", m->config.vocab);
}

/* ---- what is forced and suppressed ------------------------------------------------- */

ph_status ph_marks_force(ph_model *m, const ph_value *v)
{
    ph_marks *marks = &m->marks;
    int any = !v || v->kind == PH_VALUE_NULL, token = any ? -1 : ph_token_of(v);
    if (!any && !is_token(m, token))
        return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected a token below %d",
                       ph_value_field(v->key).text, ph_value_show(v).text,
                       m->config.vocab);
    if (marks->forced_count == PH_MARKS_FORCED)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "forced_decoder_ids has more than %d tokens", PH_MARKS_FORCED);
    marks->forced[marks->forced_count++] = token;
    return PH_OK;
}

ph_status ph_marks_suppress(ph_model *m)
{
    size_t vocab = (size_t)m->config.vocab;
    m->suppressed = ph_ctx_alloc(m->ctx, vocab);
    if (!m->suppressed)
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu tokens", vocab);
    memset(m->suppressed, 0, vocab);
    return PH_OK;
}

int ph_marks_limit(const ph_model *m, int before)
{
    int left = m->config.max_len - before;
    if (m->marks.max_tokens) return ph_min(left, m->marks.max_tokens);
    return m->marks.max_length ? ph_min(left, m->marks.max_length - before) : left;
}

/* Sequences of one token ban it wherever it stands. */
static void mark_banned(const ph_model *m, uint8_t *is_banned)
{
    for (int i = 0; i < m->banned_count; i += m->banned[i] + 1)
        if (m->banned[i] == 1) is_banned[m->banned[i + 1]] = 1;
}

ph_status ph_marks_check(const ph_model *m)
{
    size_t vocab = (size_t)m->config.vocab;
    int left = 0;
    if (!m->suppressed && !m->banned_count) return PH_OK;
    uint8_t *is_banned = ph_ctx_alloc(m->ctx, vocab);
    if (!is_banned)
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu tokens", vocab);
    memset(is_banned, 0, vocab);
    mark_banned(m, is_banned);
    for (int v = 0; v < m->config.vocab && !left; v++)
        left = !is_banned[v] && ph_is_generated(m, v, m->marks.forced_count);
    ph_ctx_release(m->ctx, is_banned);
    return left ? PH_OK
                : ph_fail(m->ctx, PH_BAD_FILE,
                          "suppress_tokens, begin_suppress_tokens and bad_words_ids "
                          "together leave no token of %d that a text can begin with",
                          m->config.vocab);
}

ph_status ph_marks_import(ph_model *m, const ph_values *values)
{
    static const char *const eos[] = {"generation.eos_token_id", "eos_token_id",
                                      "text_config.eos_token_id",
                                      "tokenizer.ggml.eos_token_id", NULL};
    static const char *const eot[] = {"tokenizer.ggml.eot_token_id", NULL};
    static const char *const eom[] = {"tokenizer.ggml.eom_token_id", NULL};
    m->marks = (ph_marks){.start = -1, .padding = -1, .mask = -1};
    PH_TRY(check_fields(m, values));
    PH_TRY(find_ends(m, values, eos));
    PH_TRY(find_ends(m, values, eot));
    PH_TRY(find_ends(m, values, eom));
    const ph_value *padding = ph_values_find(values, "pad_token_id");
    /* that of an encoder is for export alone */
    int kept = m->config.arch == PH_ARCH_ENCODER ||
               (m->config.arch == PH_ARCH_DECODER && m->config.classes);
    if (kept && is_token(m, ph_token_of(padding)))
        m->marks.padding = ph_token_of(padding);
    if (m->config.arch == PH_ARCH_ENCODER_DECODER) PH_TRY(find_start(m, values));
    if (m->config.mels) PH_TRY(ph_marks_sound(m, values));
    int generates = m->config.arch != PH_ARCH_ENCODER && !m->config.classes;
    return generates ? ph_settings_import(m, values) : PH_OK;
}
