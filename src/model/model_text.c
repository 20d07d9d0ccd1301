/*
 * model_text.c - text to tokens and back: by a model's own vocabulary, or by the
 * tokenizer that came with a published checkpoint.
 */
#include "model/model_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint.h"
#include "io/map.h"
#include "text/merge_files.h"
#include "text/sentencepiece.h"

/* ---- text to tokens ---------------------------------------------------------------- */

static int copy_words(const ph_text_token *tokens, size_t count, ph_word *words,
                      int capacity)
{
    for (size_t i = 0; i < count && i < (size_t)capacity; i++)
        words[i] = (ph_word){tokens[i].id, (int)tokens[i].start,
                             (int)(tokens[i].end - tokens[i].start)};
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
                           .max_tokens = (size_t)most};
    if (m->tokenizer) return take_encoded(m, m->tokenizer, &args, tokens, types, count);
    if (pair)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "a pair of texts needs the tokenizer of a checkpoint");
    return take_words(m, text, most, tokens, types, count);
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
    if (!m->vocab.count)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "this model has no vocabulary: its folder needs tokenizer.json, "
                       "vocab.txt, or vocab.json with merges.txt or source.spm; load its "
                       "tokenizer once with transformers (from_pretrained, then "
                       "save_pretrained)");
    *count = ph_vocab_split(&m->vocab, text, words, capacity);
    return PH_OK;
}

ph_status ph_model_split(const ph_model *m, const char *text, ph_word *words,
                         int capacity, int *count)
{
    if (!m) return PH_BAD_ARGUMENT;
    if (!text || !count) return ph_ctx_null(m->ctx, "text or count");
    return PH_WITHIN(m->ctx,
                     ph_tokens_split(m, text, PH_TOKENS_SOURCE, words, capacity, count));
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

static ph_status append(ph_text *t, const char *text, size_t length)
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
    return fail(t, status);
}

/* Words have blanks between; without a vocabulary they are ids. */
static ph_status add_word(ph_text *t, int token)
{
    const ph_model *m = t->model;
    const char *word = ph_model_token(m, token);
    char byte[2] = {(char)(token - PH_TOKEN_FIRST), 0}, id[16];
    if (m->vocab.split == PH_SPLIT_BYTES)
        word = byte;
    else if (!m->vocab.count)
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

/* ---- files of tokenizers ----------------------------------------------------------- */

static ph_status read_file(ph_tokenizer **out, const char *folder, size_t length,
                           const char *name, const ph_io *io)
{
    char path[4096];
    int count = snprintf(path, sizeof path, "%.*s%s%s", (int)length, folder,
                         length && folder[length - 1] != '/' ? "/" : "", name);
    if (count < 0 || (size_t)count >= sizeof path || access(path, F_OK) != 0)
        return PH_OK;
    return ph_tokenizer_read(out, path, io);
}

/* ---- tokenizers of several files --------------------------------------------------- */

static ph_status convert_spm(const char *const paths[2], const ph_map maps[2],
                             char **json, size_t *length, const ph_io *io)
{
    char *vocab = ph_io_alloc(io, maps[1].size + 1);
    if (!vocab) return ph_io_no_memory(io, maps[1].size, "a vocabulary");
    if (maps[1].size) memcpy(vocab, maps[1].bytes, maps[1].size);
    vocab[maps[1].size] = 0;
    ph_spm_files files = {paths[0],     paths[1], maps[0].bytes,
                          maps[0].size, vocab,    maps[1].size};
    ph_status status = ph_spm_to_json(&files, json, length, io);
    ph_io_release(io, vocab);
    return status;
}

static ph_status join_spm(const char *folder, const char *name, char **json,
                          size_t *length, const ph_io *io)
{
    char paths[2][4096];
    const char *const names[2] = {paths[0], paths[1]};
    ph_map maps[2] = {{0}};
    int fits = 1;
    for (int i = 0; i < 2; i++) {
        int count =
            snprintf(paths[i], sizeof paths[i], "%s/%s", folder, i ? "vocab.json" : name);
        fits &= count > 0 && (size_t)count < sizeof paths[i];
    }
    if (!fits || access(paths[0], F_OK) != 0) return PH_OK;
    ph_status status = ph_map_open(&maps[0], paths[0], io);
    if (status == PH_OK) status = ph_map_open(&maps[1], paths[1], io);
    if (status == PH_OK) status = convert_spm(names, maps, json, length, io);
    ph_map_close(&maps[0]);
    ph_map_close(&maps[1]);
    return status;
}

/* A whole file with a NUL behind it; none is there: text stays NULL. */
static ph_status load_text(ph_merge_text *file, const ph_io *io)
{
    ph_map map;
    if (access(file->name, F_OK) != 0) return PH_OK;
    PH_TRY(ph_map_open(&map, file->name, io));
    file->text = ph_io_alloc(io, map.size + 1);
    if (file->text) {
        if (map.size) memcpy(file->text, map.bytes, map.size);
        file->text[file->size = map.size] = 0;
    }
    ph_map_close(&map);
    return file->text ? PH_OK : ph_io_no_memory(io, file->size, "a file");
}

static ph_status join_merges(const char *folder, char **json, size_t *length,
                             const ph_io *io)
{
    static const char *const names[PH_MERGE_FILES] = {"vocab.json",
                                                      "merges.txt",
                                                      "added_tokens.json",
                                                      "special_tokens_map.json",
                                                      "tokenizer_config.json",
                                                      "config.json"};
    char paths[PH_MERGE_FILES][4096];
    ph_merge_text files[PH_MERGE_FILES] = {{0}};
    ph_status status = PH_OK;
    for (int i = 0; i < PH_MERGE_FILES; i++) {
        int count = snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
        if (count < 0 || (size_t)count >= sizeof paths[i]) return PH_OK;
        files[i].name = paths[i];
    }
    if (access(paths[PH_MERGE_PAIRS], F_OK) != 0) return PH_OK;
    for (int i = 0; i < PH_MERGE_FILES && status == PH_OK; i++)
        status = load_text(&files[i], io);
    if (status == PH_OK) status = ph_merges_to_json(files, json, length, io);
    for (int i = 0; i < PH_MERGE_FILES; i++) ph_io_release(io, files[i].text);
    return status;
}

ph_status ph_tokens_joined(const char *folder, const char *name, char **json,
                           size_t *length, const ph_io *io)
{
    *json = NULL;
    return strcmp(name, "merges.txt") ? join_spm(folder, name, json, length, io)
                                      : join_merges(folder, json, length, io);
}

static ph_status read_joined(ph_tokenizer **out, const char *folder, const char *name,
                             const ph_io *io)
{
    char *json;
    size_t length;
    PH_TRY(ph_tokens_joined(folder, name, &json, &length, io));
    ph_status status = json ? ph_tokenizer_parse(out, name, json, length, io) : PH_OK;
    ph_io_release(io, json);
    return status;
}

/* ---- the tokenizer of a checkpoint ------------------------------------------------- */

static ph_status read_tokenizer(ph_tokenizer **out, const ph_checkpoint *c,
                                const char *path, const ph_io *io)
{
    const char *slash = strrchr(path, '/');
    if (c->llama2c)
        return read_file(out, path, slash ? (size_t)(slash - path) + 1 : 0,
                         "tokenizer.bin", io);
    if (c->kind == PH_CHECKPOINT_GGUF) return ph_tokens_of_gguf(out, &c->values, io);
    PH_TRY(read_file(out, path, strlen(path), "tokenizer.json", io));
    if (!*out) PH_TRY(read_file(out, path, strlen(path), "vocab.txt", io));
    if (!*out) PH_TRY(read_joined(out, path, "merges.txt", io));
    return *out ? PH_OK : read_joined(out, path, "source.spm", io);
}

/* Of a decoder's texts: as Marian is published, or as its export has it. */
static ph_status read_target(ph_tokenizer **out, const char *path, const ph_io *io)
{
    PH_TRY(read_file(out, path, strlen(path), "target_tokenizer.json", io));
    return *out ? PH_OK : read_joined(out, path, "target.spm", io);
}

/* BERT's and RoBERTa's spelling. */
static int find_mask(const ph_tokenizer *t)
{
    int32_t id = ph_tokenizer_id(t, "[MASK]", 6);
    return id >= 0 ? id : ph_tokenizer_id(t, "<mask>", 6);
}

ph_status ph_tokens_check(const ph_model *m, const ph_tokenizer *tokenizer)
{
    size_t tokens = tokenizer ? ph_tokenizer_about(tokenizer).vocab_size : 0;
    if (tokens <= (size_t)m->config.vocab) return PH_OK;
    return ph_fail(m->ctx, PH_BAD_FILE, "the tokenizer has %zu tokens, the model %d",
                   tokens, m->config.vocab);
}

ph_status ph_tokens_import(ph_model *m, const ph_checkpoint *c, const char *path)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    PH_TRY(ph_marks_import(m, &c->values));
    if (m->config.image_size) return PH_OK; /* pictures have no tokens */
    if (c->llama2c) m->marks.ends[0] = 2, m->marks.ends[1] = 1, m->marks.end_count = 2;
    ph_status status = read_tokenizer(&m->tokenizer, c, path, &io);
    if (status == PH_OK && m->tokenizer && m->config.arch == PH_ARCH_ENCODER_DECODER &&
        c->kind == PH_CHECKPOINT_FOLDER)
        status = read_target(&m->target_tokenizer, path, &io);
    if (status != PH_OK) return ph_fail(m->ctx, status, "%s", error);
    if (!m->tokenizer) return PH_OK;
    if (c->kind == PH_CHECKPOINT_GGUF) /* its lists of tokens and merges were copied */
        ph_map_drop(c->map.bytes, c->metadata);
    if (m->masked >= 0) m->marks.mask = find_mask(m->tokenizer);
    PH_TRY(ph_chat_import(m, c));
    PH_TRY(ph_tokens_check(m, m->target_tokenizer));
    return ph_tokens_check(m, m->tokenizer);
}

/* ---- the tokenizer of a path ------------------------------------------------------- */

static ph_status open_folder(ph_tokenizer **out, const char *path, const ph_io *io)
{
    static const char *const names[] = {"tokenizer.json", "vocab.txt", "tokenizer.bin"};
    for (int i = 0; i < 3 && !*out; i++)
        PH_TRY(read_file(out, path, strlen(path), names[i], io));
    if (!*out) PH_TRY(read_joined(out, path, "merges.txt", io));
    if (!*out) PH_TRY(read_joined(out, path, "source.spm", io));
    if (*out) return PH_OK;
    return ph_io_fail(io, PH_IO_ERROR,
                      "'%.200s' holds no tokenizer.json, vocab.txt, tokenizer.bin, "
                      "merges.txt or source.spm",
                      path);
}

static ph_status open_gguf(ph_tokenizer **out, const char *path, const ph_io *io)
{
    ph_checkpoint *c = NULL;
    PH_TRY(ph_checkpoint_open(&c, path, io));
    ph_status status = ph_tokens_of_gguf(out, &c->values, io);
    ph_checkpoint_free(c);
    if (status == PH_OK && !*out)
        return ph_io_fail(io, PH_BAD_FILE, "'%.200s' holds no tokenizer", path);
    return status;
}

static ph_status parse_gguf(ph_tokenizer **out, const char *name, const char *bytes,
                            size_t size, const ph_io *io)
{
    ph_checkpoint *c = ph_io_alloc(io, sizeof *c);
    if (!c) return ph_io_no_memory(io, sizeof *c, "a checkpoint");
    *c = (ph_checkpoint){.io = ph_io_hooks(io)};
    c->values.io = c->io;
    ph_status status = ph_gguf_read(c, name, (const unsigned char *)bytes, size, io);
    if (status == PH_OK) status = ph_tokens_of_gguf(out, &c->values, io);
    ph_checkpoint_free(c);
    if (status == PH_OK && !*out)
        return ph_io_fail(io, PH_BAD_FILE, "%s holds no tokenizer", name);
    return status;
}

ph_status ph_tokens_parse(ph_tokenizer **out, const char *name, const char *bytes,
                          size_t size, const ph_io *io)
{
    *out = NULL;
    if (size >= 4 && !memcmp(bytes, "GGUF", 4))
        return parse_gguf(out, name, bytes, size, io);
    return ph_tokenizer_parse(out, name, bytes, size, io);
}

static int begins_with_gguf(const char *path)
{
    char start[4] = "";
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    int found = fread(start, 1, 4, file) == 4 && !memcmp(start, "GGUF", 4);
    fclose(file);
    return found;
}

ph_status ph_tokenizer_open(ph_tokenizer **out, const char *path, const ph_io *io)
{
    struct stat info;
    if (out) *out = NULL;
    if (!out || !path) return ph_io_null(io, "out or path");
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return open_folder(out, path, io);
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) && begins_with_gguf(path))
        return open_gguf(out, path, io);
    return ph_tokenizer_read(out, path, io);
}
