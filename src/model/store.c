/*
 * store.c - model files: safetensors with this metadata
 *
 *     polyhead.config  the configuration, JSON
 *     polyhead.split   words, chars or bytes
 *     polyhead.vocab   the tokens after the first four, a JSON array
 *     polyhead.heads   the heads of sites that lost some, JSON (kept.h)
 *     polyhead.about   see companions.c, which also says what tensor tokenizer is
 *     polyhead.hash    16 digits over all tensors (by name) and the other pairs
 *
 * The hash detects damage; safetensors itself has no checksum.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "io/json_read.h"
#include "io/json_write.h"
#include "model/companions.h"
#include "model/store.h"

static const char *const split_names[] = {"words", "chars", "bytes", NULL};

/* ---- hash -------------------------------------------------------------------------- */

/* The hash of a file is a sum, so that the order of tensors and pairs does not count. */
static uint64_t hash_tensor(const char *name, const void *data, size_t bytes)
{
    return ph_hash_bytes(ph_hash_bytes(1, name, strlen(name)), data, bytes);
}

static uint64_t hash_pair(const ph_pair *pair)
{
    if (!strcmp(pair->key, "polyhead.hash")) return 0;
    return ph_hash_bytes(ph_hash_bytes(2, pair->key, strlen(pair->key)), pair->value,
                         strlen(pair->value));
}

static uint64_t hash_file(const ph_file *file)
{
    uint64_t sum = 0;
    const ph_tensor *t;
    const ph_pair *p;
    for (size_t i = 0; (t = ph_file_tensor(file, i)); i++)
        sum += hash_tensor(t->name, t->data, t->bytes);
    for (size_t i = 0; (p = ph_file_metadata(file, i)); i++) sum += hash_pair(p);
    return sum;
}

/* ---- writing ----------------------------------------------------------------------- */

typedef struct text {
    char *bytes;
    size_t used, capacity;
    int failed;
} text;

static void text_write(void *user, const char *bytes, size_t count)
{
    text *t = user;
    if (t->used + count + 1 > t->capacity && !t->failed) {
        size_t capacity = 2 * (t->capacity + count + 1);
        char *more = realloc(t->bytes, capacity);
        if (more) t->bytes = more, t->capacity = capacity;
        t->failed = !more;
    }
    if (t->failed) return;
    memcpy(t->bytes + t->used, bytes, count);
    t->used += count;
    t->bytes[t->used] = 0;
}

static void print_vocab(const ph_vocab *v, text *to)
{
    ph_json_writer out = {.write = text_write, .user = to};
    ph_json_begin_array(&out, NULL);
    for (int i = PH_TOKEN_FIRST; v->text && i < v->count; i++)
        ph_json_string(&out, NULL, v->text[i]);
    ph_json_end(&out);
}

static void print_about(const ph_model *m, text *to)
{
    ph_json_writer out = {.write = text_write, .user = to};
    if (ph_companions_exist(m)) ph_companions_print(m, &out);
}

static void print_heads(const ph_model *m, text *to)
{
    ph_json_writer out = {.write = text_write, .user = to};
    if (m->kept.removed) ph_kept_print(&m->kept, &m->config, &out);
}

/* What a file holds beside tensors, as text. */
typedef struct store_texts {
    text vocab, about, heads;
} store_texts;

static ph_tensor tensor_of(const char *name, char *bytes, size_t size)
{
    return (ph_tensor){.name = name,
                       .type = PH_U8,
                       .rank = 1,
                       .shape = {size},
                       .data = bytes,
                       .bytes = size};
}

static ph_status write_all(const ph_model *m, const char *path,
                           const ph_store_extra *more, ph_tensor *tensors, ph_pair *pairs,
                           const store_texts *texts)
{
    char config[8192], hash[32], error[512] = "";
    size_t tensor_count = (size_t)m->param_count, pair_count = 0;
    uint64_t sum = 0;
    ph_config_print(&m->config, config, sizeof config);
    memcpy(tensors, m->tensors, tensor_count * sizeof *tensors);
    if (m->tokenizer_file)
        tensors[tensor_count++] =
            tensor_of("tokenizer", m->tokenizer_file, m->tokenizer_size);
    if (m->target_file)
        tensors[tensor_count++] =
            tensor_of("target_tokenizer", m->target_file, m->target_size);
    for (size_t i = 0; more && i < more->tensor_count; i++)
        tensors[tensor_count++] = more->tensors[i];
    pairs[pair_count++] = (ph_pair){"polyhead.config", config};
    pairs[pair_count++] = (ph_pair){"polyhead.split", split_names[m->vocab.split]};
    pairs[pair_count++] = (ph_pair){"polyhead.vocab", texts->vocab.bytes};
    if (texts->about.bytes)
        pairs[pair_count++] = (ph_pair){"polyhead.about", texts->about.bytes};
    if (texts->heads.bytes)
        pairs[pair_count++] = (ph_pair){"polyhead.heads", texts->heads.bytes};
    for (size_t i = 0; more && i < more->pair_count; i++)
        pairs[pair_count++] = more->pairs[i];
    for (size_t i = 0; i < tensor_count; i++)
        sum += hash_tensor(tensors[i].name, tensors[i].data, tensors[i].bytes);
    for (size_t i = 0; i < pair_count; i++) sum += hash_pair(&pairs[i]);
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)sum);
    pairs[pair_count++] = (ph_pair){"polyhead.hash", hash};
    const ph_options *o = &m->ctx->options;
    ph_io io = {.error = error,
                .error_size = sizeof error,
                .stopped = o->stopped,
                .user = o->user};
    ph_status status = ph_file_write(path, tensors, tensor_count, pairs, pair_count, &io);
    return status == PH_OK ? PH_OK : ph_fail(m->ctx, status, "%s", error);
}

ph_status ph_store_write(const ph_model *m, const char *path, const ph_store_extra *more)
{
    PH_TRY(ph_model_check_own(m, "write it"));
    size_t tensors = (size_t)m->param_count + 2 + (more ? more->tensor_count : 0);
    size_t pairs = 6 + (more ? more->pair_count : 0);
    ph_tensor *all = ph_ctx_alloc(m->ctx, tensors * sizeof *all);
    ph_pair *list = ph_ctx_alloc(m->ctx, pairs * sizeof *list);
    store_texts texts = {0};
    ph_status status = PH_OK;
    print_vocab(&m->vocab, &texts.vocab);
    print_about(m, &texts.about);
    print_heads(m, &texts.heads);
    if (!all || !list || texts.vocab.failed || texts.about.failed || texts.heads.failed)
        status = ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory to write a model");
    else
        status = write_all(m, path, more, all, list, &texts);
    free(texts.vocab.bytes);
    free(texts.about.bytes);
    free(texts.heads.bytes);
    ph_ctx_release(m->ctx, list);
    ph_ctx_release(m->ctx, all);
    return status;
}

ph_status ph_model_write(const ph_model *model, const char *path)
{
    if (!model) return PH_BAD_ARGUMENT;
    if (!path) return ph_ctx_null(model->ctx, "path");
    return PH_WITHIN(model->ctx, ph_store_write(model, path, NULL));
}

/* ---- reading ----------------------------------------------------------------------- */

const char *ph_store_pair(const ph_file *file, const char *key)
{
    const ph_pair *p;
    for (size_t i = 0; (p = ph_file_metadata(file, i)); i++)
        if (!strcmp(p->key, key)) return p->value;
    return NULL;
}

/* Frees the file unless its hash is right. */
static ph_status verify(ph_file **file, ph_ctx *ctx, const char *name)
{
    char hash[32];
    const char *stored = ph_store_pair(*file, "polyhead.hash");
    ph_status status = PH_OK;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)hash_file(*file));
    if (!stored)
        status = ph_fail(ctx, PH_BAD_FILE, "%s is not a Polyhead checkpoint", name);
    else if (strcmp(stored, hash))
        status =
            ph_fail(ctx, PH_BAD_FILE, "%s is damaged: its hash is %s, expected %.16s",
                    name, hash, stored);
    if (status == PH_OK) return PH_OK;
    ph_file_free(*file);
    *file = NULL;
    return status;
}

ph_status ph_store_open(ph_file **out, ph_ctx *ctx, const char *path)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_status status = ph_file_read(out, path, &io);
    if (status != PH_OK) return ph_fail(ctx, status, "%s", error);
    return verify(out, ctx, path);
}

ph_status ph_store_parse(ph_file **out, ph_ctx *ctx, const char *name, const void *bytes,
                         size_t size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_status status = ph_file_parse(out, name, bytes, size, &io);
    if (status != PH_OK) return ph_fail(ctx, status, "%s", error);
    return verify(out, ctx, name);
}

ph_status ph_store_floats(ph_ctx *ctx, const ph_file *file, const char *name, float *to,
                          size_t count)
{
    const ph_tensor *t = ph_file_find(file, name);
    char shape[96];
    if (!t) return ph_fail(ctx, PH_BAD_FILE, "tensor %s is missing", name);
    ph_tensor_describe(t, shape, sizeof shape);
    if (t->type != PH_F32 || t->bytes != count * sizeof *to)
        return ph_fail(ctx, PH_BAD_FILE,
                       "tensor %s is %s, expected F32 with %zu elements", name, shape,
                       count);
    memcpy(to, t->data, t->bytes);
    return PH_OK;
}

/* All shapes are checked before memory is taken: a configuration may claim any size. */
static ph_status check_shapes(const ph_model *m, const ph_file *file)
{
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *p = &m->params[i];
        const ph_tensor *t = ph_file_find(file, p->name);
        int same = t && t->rank == p->rank;
        if (!t) return ph_fail(m->ctx, PH_BAD_FILE, "tensor %s is missing", p->name);
        for (int d = 0; same && d < p->rank; d++)
            same = t->shape[d] == (size_t)p->dims[d];
        if (!same)
            return ph_fail(m->ctx, PH_BAD_FILE,
                           "tensor %s has another shape than the configuration gives it",
                           p->name);
    }
    return PH_OK;
}

static ph_status read_values(ph_model *m, const ph_file *file)
{
    PH_TRY(check_shapes(m, file));
    PH_TRY(ph_model_allocate(m));
    for (int i = 0; i < m->param_count; i++) {
        const ph_weight *p = &m->params[i];
        PH_TRY(ph_store_floats(m->ctx, file, p->name, m->block + p->at, p->count));
    }
    return PH_OK;
}

/* A layer has several tensors, so a file with fewer tensors than layers is damaged. */
static ph_status check_layers(ph_ctx *ctx, const ph_config *c, const ph_file *file)
{
    size_t tensors = 0, layers = (size_t)c->layers + (size_t)c->decoder_layers;
    while (ph_file_tensor(file, tensors)) tensors++;
    if (layers <= tensors) return PH_OK;
    return ph_fail(ctx, PH_BAD_FILE,
                   "the configuration has %zu layers, the file %zu tensors", layers,
                   tensors);
}

/* Strings of a JSON array, decoded in place: they point into `json`. */
static ph_status read_vocab(ph_ctx *ctx, char *json, const char ***tokens, int *count)
{
    ph_json_reader r;
    size_t length = strlen(json), capacity = 0;
    void *list = NULL;
    ph_status status = PH_OK;
    *count = 0;
    ph_json_open(&r, json, length, (ph_json_limits){2, 4096}, NULL);
    int valid = ph_json_next(&r) == PH_JSON_ARRAY;
    while (valid && status == PH_OK && ph_json_next(&r) == PH_JSON_STRING) {
        status = ph_io_grow(NULL, &list, &capacity, (size_t)*count + 1, sizeof **tokens);
        if (status == PH_OK) ((const char **)list)[(*count)++] = r.text;
        valid = strlen(r.text) == r.length;
    }
    if (status == PH_OK && (!valid || r.token != PH_JSON_ARRAY_END))
        status = ph_fail(ctx, PH_BAD_FILE, "the vocabulary is no JSON array of strings");
    ph_json_close(&r);
    *tokens = list;
    return status;
}

static ph_status read_split(ph_ctx *ctx, const char *name, ph_split *split)
{
    for (int i = 0; name && split_names[i]; i++)
        if (!strcmp(name, split_names[i])) {
            *split = (ph_split)i;
            return PH_OK;
        }
    return ph_fail(ctx, PH_BAD_FILE, "polyhead.split is not words, chars or bytes");
}

/* Heads that are left; the configuration is checked first, since it may claim any
   number. */
static ph_status read_heads(ph_ctx *ctx, const ph_file *file, const ph_config *c,
                            ph_kept *kept)
{
    const char *list = ph_store_pair(file, "polyhead.heads");
    ph_config checked = *c;
    if (!list) return PH_OK;
    PH_TRY(ph_config_check(ctx, &checked, 0));
    size_t bytes = strlen(list) + 1;
    char *copy = ph_ctx_alloc(ctx, bytes);
    if (!copy) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory to read a model");
    ph_status status = ph_kept_read(kept, ctx, &checked, memcpy(copy, list, bytes));
    ph_ctx_release(ctx, copy);
    return status;
}

static ph_status make(ph_model **out, ph_ctx *ctx, const ph_file *file, char *config,
                      char *vocab)
{
    ph_config c;
    ph_kept kept = {0};
    ph_split split = PH_SPLIT_WORDS;
    const char **tokens = NULL;
    int count = 0;
    PH_TRY(ph_config_read(ctx, &c, config, strlen(config)));
    PH_TRY(check_layers(ctx, &c, file));
    PH_TRY(read_split(ctx, ph_store_pair(file, "polyhead.split"), &split));
    ph_status status = read_vocab(ctx, vocab, &tokens, &count);
    if (status == PH_OK) status = read_heads(ctx, file, &c, &kept);
    if (status == PH_OK)
        status =
            ph_model_shape(out, ctx, &c, &kept, split, count ? tokens : NULL, count);
    ph_io_release(NULL, (void *)tokens);
    ph_kept_free(&kept, ctx);
    if (status == PH_OK) status = read_values(*out, file);
    return status == PH_OK ? ph_companions_read(*out, file) : status;
}

ph_status ph_store_model(ph_model **out, ph_ctx *ctx, const ph_file *file,
                         const char *name)
{
    const char *config = ph_store_pair(file, "polyhead.config");
    const char *vocab = ph_store_pair(file, "polyhead.vocab");
    *out = NULL;
    if (!config || !vocab)
        return ph_fail(ctx, PH_BAD_FILE, "%s is not a Polyhead checkpoint", name);
    size_t first = strlen(config) + 1, second = strlen(vocab) + 1;
    char *copy = ph_ctx_alloc(ctx, first + second);
    if (!copy) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory to read a model");
    memcpy(copy, config, first);
    memcpy(copy + first, vocab, second);
    ph_status status = make(out, ctx, file, copy, copy + first);
    ph_ctx_release(ctx, copy);
    if (status == PH_OK) return PH_OK;
    ph_model_free(*out);
    *out = NULL;
    return status;
}

static ph_status read_own(ph_model **out, ph_ctx *ctx, const char *path, int directory)
{
    ph_file *file;
    char inside[4096];
    int length = snprintf(inside, sizeof inside, "%s/model.safetensors", path);
    if (directory && length >= (int)sizeof inside)
        return ph_fail(ctx, PH_IO_ERROR, "the path %.200s... is too long", path);
    if (directory) path = inside;
    PH_TRY(ph_store_open(&file, ctx, path));
    ph_status status = ph_store_model(out, ctx, file, path);
    ph_file_free(file);
    return status;
}

static ph_status read_model(ph_model **out, ph_ctx *ctx, const char *path)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_checkpoint *checkpoint;
    if (!path) return ph_fail(ctx, PH_BAD_ARGUMENT, "path is NULL");
    ph_status status = ph_checkpoint_open(&checkpoint, path, &io);
    if (status != PH_OK) return ph_fail(ctx, status, "%s", error);
    status = checkpoint->kind == PH_CHECKPOINT_OWN
                 ? read_own(out, ctx, path, checkpoint->directory)
                 : ph_model_import(out, ctx, checkpoint, path);
    if (!*out || !(*out)->checkpoint) ph_checkpoint_free(checkpoint);
    return status;
}

ph_status ph_model_read(ph_model **out, ph_ctx *ctx, const char *path)
{
    if (out) *out = NULL;
    if (!out || !ctx) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, read_model(out, ctx, path));
}
