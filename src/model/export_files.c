/*
 * export_files.c - the small files beside config.json: what a tokenizer does that its
 * file does not say, how sentence-transformers pools a text, what becomes of a picture
 * before it is pixels and of sound before it is features, and how an encoder-decoder
 * generates.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"
#include "model/export.h"
#include "model/model_text.h"
#include "model/named_tokens.h"
#include "text/tokenizer.h"

static void append(void *user, const char *bytes, size_t count)
{
    ph_export_file *f = user;
    if (f->length + count < sizeof f->text) memcpy(f->text + f->length, bytes, count);
    f->length += count;
}

/* The next file, and a writer for it. */
static ph_json_writer begin(ph_export_files *files, const char *name, const char *prefix)
{
    ph_export_file *f = &files->file[files->count++];
    f->name = name, f->prefix = prefix, f->length = 0;
    return (ph_json_writer){.write = append, .user = f, .indent = 2};
}

/* ---- tokenizers -------------------------------------------------------------------- */

/* What a chat template writes by name; NULL: nothing. Whoever reads the folder sets such
   a token apart from text, so one that is a word too is left out. */
static const char *chat_token(const ph_model *m, int i)
{
    const char *text = m->chat_tokens[i];
    int apart = text && ph_named_token(m->tokenizer, text, strlen(text)) >= 0;
    return apart ? text : NULL;
}

/* Only what differs from the usual of the class that config.json stands for: that class
   goes by this file, whatever tokenizer.json says. */
static void print_tokenizer(const ph_model *m, ph_export_files *files)
{
    ph_token_options o = ph_tokenizer_options(m->tokenizer);
    int keeps_case = o.lowercase == PH_OPTION_NO, accents = o.accents != o.lowercase;
    int chinese = o.chinese == PH_OPTION_NO, prefix = o.prefix_space == PH_OPTION_YES;
    int untrimmed = o.trim_offsets == PH_OPTION_NO;
    int named = 0;
    for (int i = 0; i < PH_CHAT_TOKENS; i++) named += chat_token(m, i) != NULL;
    if (!keeps_case && !accents && !chinese && !prefix && !untrimmed &&
        !m->truncate_left && !named)
        return;
    ph_json_writer json = begin(files, "tokenizer_config.json", "tokenizer_config.");
    ph_json_begin_object(&json, NULL);
    if (keeps_case) ph_json_bool(&json, "do_lower_case", 0);
    if (accents) ph_json_bool(&json, "strip_accents", o.accents == PH_OPTION_YES);
    if (chinese) ph_json_bool(&json, "tokenize_chinese_chars", 0);
    if (prefix) ph_json_bool(&json, "add_prefix_space", 1);
    if (untrimmed) ph_json_bool(&json, "trim_offsets", 0);
    if (m->truncate_left) ph_json_string(&json, "truncation_side", "left");
    for (int i = 0; named && i < PH_CHAT_TOKENS; i++)
        if (chat_token(m, i)) ph_json_string(&json, ph_chat_names[i], chat_token(m, i));
    ph_json_end(&json);
}

/* ---- sentence encoders ------------------------------------------------------------- */

static void print_module(const char *name, const char *path, const char *type,
                         ph_json_writer *json)
{
    char class[64];
    snprintf(class, sizeof class, "sentence_transformers.models.%s", type);
    ph_json_begin_object(json, NULL);
    ph_json_integer(json, "idx", name[0] - '0');
    ph_json_string(json, "name", name);
    ph_json_string(json, "path", path);
    ph_json_string(json, "type", class);
    ph_json_end(json);
}

static void print_modules(const ph_config *c, ph_export_files *files)
{
    ph_json_writer json = begin(files, "modules.json", "modules.");
    ph_json_begin_array(&json, NULL);
    print_module("0", "", "Transformer", &json);
    print_module("1", "1_Pooling", "Pooling", &json);
    if (c->pooler) print_module("2", PH_EXPORT_DENSE, "Dense", &json);
    if (c->unit_norm && c->pooler) print_module("3", "3_Normalize", "Normalize", &json);
    if (c->unit_norm && !c->pooler) print_module("2", "2_Normalize", "Normalize", &json);
    ph_json_end(&json);
}

static void print_dense(const ph_config *c, ph_export_files *files)
{
    static const char *const names[] = {"", "torch.nn.modules.activation.Tanh",
                                        "torch.nn.modules.activation.ReLU",
                                        "torch.nn.modules.linear.Identity",
                                        "torch.nn.modules.activation.GELU"};
    ph_json_writer json = begin(files, PH_EXPORT_DENSE "/config.json", "dense.");
    ph_json_begin_object(&json, NULL);
    ph_json_integer(&json, "in_features", ph_config_pooled_dim(c));
    ph_json_integer(&json, "out_features", ph_config_vector_dim(c));
    ph_json_bool(&json, "bias", !c->no_dense_bias);
    ph_json_string(&json, "activation_function", names[c->pooler]);
    ph_json_end(&json);
}

static void print_pooling(const ph_model *m, ph_export_files *files)
{
    const ph_config *c = &m->config;
    ph_json_writer json = begin(files, "1_Pooling/config.json", "pooling.");
    ph_json_begin_object(&json, NULL);
    ph_json_integer(&json, "word_embedding_dimension", c->model_dim);
    ph_publish_pooling(c, &json);
    ph_json_end(&json);
    json = begin(files, "sentence_bert_config.json", "sentence.");
    ph_json_begin_object(&json, NULL);
    ph_json_integer(&json, "max_seq_length", c->pool_len ? c->pool_len : c->max_len);
    ph_json_bool(&json, "do_lower_case",
                 m->tokenizer &&
                     ph_tokenizer_options(m->tokenizer).lowercase_first == PH_OPTION_YES);
    ph_json_end(&json);
    if (!m->prompt) return;
    json = begin(files, "config_sentence_transformers.json", "sentence_transformers.");
    ph_json_begin_object(&json, NULL);
    ph_json_begin_object(&json, "prompts");
    ph_json_string(&json, "default", m->prompt);
    ph_json_end(&json);
    ph_json_string(&json, "default_prompt_name", "default");
    ph_json_end(&json);
}

/* ---- pictures ---------------------------------------------------------------------- */

static void print_size(const ph_preprocess *p, int side, ph_json_writer *json)
{
    ph_json_bool(json, "do_resize", p->width > 0 || p->shortest > 0);
    ph_json_begin_object(json, "size");
    if (p->shortest) {
        ph_json_integer(json, "shortest_edge", p->shortest);
    } else {
        ph_json_integer(json, "height", p->height ? p->height : side);
        ph_json_integer(json, "width", p->width ? p->width : side);
    }
    ph_json_end(json);
    ph_json_integer(json, "resample", p->bicubic ? 3 : 2);
    ph_json_bool(json, "do_center_crop", p->crop);
    ph_json_begin_object(json, "crop_size");
    ph_json_integer(json, "height", side);
    ph_json_integer(json, "width", side);
    ph_json_end(json);
}

static void print_channels(const char *key, const float *values, ph_json_writer *json)
{
    ph_json_begin_array(json, key);
    for (int i = 0; i < 3; i++) ph_json_float(json, NULL, values[i]);
    ph_json_end(json);
}

static void print_preprocess(const ph_model *m, ph_export_files *files)
{
    const ph_preprocess *p = &m->preprocess;
    ph_json_writer json = begin(files, "preprocessor_config.json", "preprocessor.");
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, "image_processor_type",
                   m->config.class_tokens == 2 ? "DeiTImageProcessor"
                                               : "ViTImageProcessor");
    print_size(p, m->config.image_size, &json);
    ph_json_bool(&json, "do_rescale", 1);
    ph_json_float(&json, "rescale_factor", p->scale);
    ph_json_bool(&json, "do_normalize", 1);
    print_channels("image_mean", p->mean, &json);
    print_channels("image_std", p->std, &json);
    ph_json_end(&json);
}

/* ---- sound ------------------------------------------------------------------------- */

/* Whisper's features: 100 frames a second, of which the encoder makes half as many rows;
   parts of a second are left to the reader's default. */
static void print_features(const ph_config *c, ph_export_files *files)
{
    int rows = c->encoder_len ? c->encoder_len : c->max_len;
    ph_json_writer json = begin(files, "preprocessor_config.json", "preprocessor.");
    ph_json_begin_object(&json, NULL);
    ph_json_string(&json, "feature_extractor_type", "WhisperFeatureExtractor");
    ph_json_string(&json, "processor_class", "WhisperProcessor");
    ph_json_integer(&json, "feature_size", c->mels);
    ph_json_integer(&json, "sampling_rate", 16000);
    ph_json_integer(&json, "hop_length", 160);
    ph_json_integer(&json, "n_fft", 400);
    if (rows % 50 == 0) ph_json_integer(&json, "chunk_length", rows / 50);
    ph_json_end(&json);
}

/* ---- what is generated ------------------------------------------------------------- */

/* An architecture that counts positions from its padding has said that token itself. */
void ph_export_marks(const ph_model *m, ph_json_writer *json)
{
    const ph_marks *marks = &m->marks;
    int both = m->config.arch == PH_ARCH_ENCODER_DECODER;
    if (marks->start >= 0)
        ph_json_integer(json, both ? "decoder_start_token_id" : "bos_token_id",
                        marks->start);
    /* RoBERTa's is written with its positions; the default of a type may be a token that
       the model has not */
    int written = m->config.position_offset && m->config.arch == PH_ARCH_ENCODER;
    if (marks->padding >= 0 && !written)
        ph_json_integer(json, "pad_token_id", marks->padding);
    else if (m->config.arch == PH_ARCH_DECODER)
        ph_json_string(json, "pad_token_id", NULL);
    if (marks->end_count == 1) ph_json_integer(json, "eos_token_id", marks->ends[0]);
    if (marks->end_count < 2) return;
    ph_json_begin_array(json, "eos_token_id");
    for (int i = 0; i < marks->end_count; i++)
        ph_json_integer(json, NULL, marks->ends[i]);
    ph_json_end(json);
}

static void print_suppressed(const ph_model *m, const char *key, int how,
                             ph_json_writer *json)
{
    ph_json_begin_array(json, key);
    for (int v = 0; v < m->config.vocab; v++)
        if (m->suppressed[v] & how) ph_json_integer(json, NULL, v);
    ph_json_end(json);
}

/* Which tokens are languages; a model without a tokenizer has numbers for names. */
static void print_languages(const ph_model *m, ph_json_writer *json)
{
    char number[16];
    if (!m->marks.languages) return;
    ph_json_begin_object(json, "lang_to_id");
    for (int v = 0; v < m->config.vocab; v++) {
        if (!(m->suppressed[v] & PH_LANGUAGE)) continue;
        const char *name = m->tokenizer ? ph_model_token(m, v) : "";
        snprintf(number, sizeof number, "%d", v);
        ph_json_integer(json, *name ? name : number, v);
    }
    ph_json_end(json);
}

/* [[1, token], [2, token], ...]; null: a language. */
static void print_forced(const ph_marks *marks, ph_json_writer *json)
{
    ph_json_begin_array(json, "forced_decoder_ids");
    for (int i = 0; i < marks->forced_count; i++) {
        ph_json_begin_array(json, NULL);
        ph_json_integer(json, NULL, i + 1);
        if (marks->forced[i] < 0)
            ph_json_string(json, NULL, NULL);
        else
            ph_json_integer(json, NULL, marks->forced[i]);
        ph_json_end(json);
    }
    ph_json_end(json);
}

static void print_rules(const ph_model *m, ph_json_writer *json)
{
    const ph_marks *marks = &m->marks;
    int new_ones = marks->min_tokens - (m->config.mels ? marks->forced_count : 0);
    if (m->config.mels && marks->forced_count)
        print_forced(marks, json);
    else if (marks->forced_count)
        ph_json_integer(json, "forced_bos_token_id", marks->forced[0]);
    if (marks->min_tokens) ph_json_integer(json, "min_new_tokens", new_ones);
    if (marks->min_length) ph_json_integer(json, "min_length", marks->min_length);
    if (marks->max_tokens)
        ph_json_integer(json, "max_new_tokens",
                        marks->max_tokens - (m->config.mels ? marks->forced_count : 0));
    if (marks->no_repeat) ph_json_integer(json, "no_repeat_ngram_size", marks->no_repeat);
    if (marks->penalty > 0) ph_json_float(json, "repetition_penalty", marks->penalty);
}

static void print_sequence(const int32_t *tokens, int count, ph_json_writer *json)
{
    ph_json_begin_array(json, NULL);
    for (int i = 0; i < count; i++) ph_json_integer(json, NULL, tokens[i]);
    ph_json_end(json);
}

/* Padding is never generated here. Marian needs that said: its score may be the best. */
static void print_banned(const ph_model *m, ph_json_writer *json)
{
    int32_t padding = m->marks.padding;
    int said = m->config.arch == PH_ARCH_DECODER || padding < 0 || ph_is_end(m, padding);
    for (int i = 0; i < m->banned_count; i += m->banned[i] + 1)
        said |= m->banned[i] == 1 && m->banned[i + 1] == padding;
    if (said && !m->banned_count) return;
    ph_json_begin_array(json, "bad_words_ids");
    if (!said) print_sequence(&padding, 1, json);
    for (int i = 0; i < m->banned_count; i += m->banned[i] + 1)
        print_sequence(&m->banned[i + 1], m->banned[i], json);
    ph_json_end(json);
}

/* Whether a decoder wants more than its marks, which config.json has too. */
static int has_rules(const ph_model *m)
{
    const ph_marks *marks = &m->marks;
    return marks->forced_count || marks->min_tokens || marks->min_length ||
           marks->max_tokens || marks->max_length ||
           marks->no_repeat || marks->penalty > 0 || m->banned_count || m->suppressed;
}

static void print_generation(const ph_model *m, ph_export_files *files)
{
    ph_json_writer json = begin(files, "generation_config.json", "generation.");
    ph_json_begin_object(&json, NULL);
    ph_export_marks(m, &json);
    int before = m->config.mels ? m->marks.forced_count + 1 : 0;
    ph_json_integer(&json, "max_length",
                    m->marks.max_length ? m->marks.max_length - before
                                        : m->config.max_len);
    print_banned(m, &json);
    print_rules(m, &json);
    if (m->suppressed) {
        print_suppressed(m, "suppress_tokens", PH_NEVER, &json);
        print_suppressed(m, "begin_suppress_tokens", PH_NOT_FIRST, &json);
        print_languages(m, &json);
    }
    ph_json_end(&json);
}

/* ---- all of them ------------------------------------------------------------------- */

ph_status ph_export_list(const ph_model *m, ph_export_files *files)
{
    const ph_config *c = &m->config;
    files->count = 0;
    if (m->tokenizer && m->tokenizer_file) print_tokenizer(m, files);
    if (c->mels) print_features(c, files);
    if (c->arch == PH_ARCH_ENCODER_DECODER || has_rules(m)) print_generation(m, files);
    if (c->image_size) {
        print_preprocess(m, files);
    } else if (ph_export_is_sentence(c)) {
        print_modules(c, files);
        print_pooling(m, files);
        if (c->pooler) print_dense(c, files);
    }
    for (int i = 0; i < files->count; i++)
        if (files->file[i].length >= PH_EXPORT_TEXT)
            return ph_fail(m->ctx, PH_UNSUPPORTED, "%s would be too long",
                           files->file[i].name);
    return PH_OK;
}
