/*
 * folder.c - a Hugging Face folder.
 *
 *     config.json                        what the model is
 *     model.safetensors                  its tensors, or
 *     model.safetensors.index.json       {"weight_map": {tensor: file}} for several files
 *     generation_config.json, modules.json, 1_Pooling/config.json,
 *     sentence_bert_config.json          optional
 *
 * Pickles are refused: reading one can run code.
 */
#define _XOPEN_SOURCE 700 /* access */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "io/json_read.h"
#include "io/sort.h"

enum { PATH = 4096, INDEX_BYTES = 64 << 20, FILES = 10000, NAME = 255 };

typedef struct folder {
    ph_checkpoint *c;
    const char *path;
    const ph_io *io;
} folder;

static ph_status path_of(const folder *f, const char *name, char *out)
{
    size_t used = strlen(f->path);
    const char *slash = used && f->path[used - 1] == '/' ? "" : "/";
    int count = snprintf(out, PATH, "%s%s%s", f->path, slash, name);
    if (count > 0 && count < PATH) return PH_OK;
    return ph_io_fail(f->io, PH_IO_ERROR, "the path %.200s... is too long", f->path);
}

static int exists(const folder *f, const char *name)
{
    char path[PATH];
    ph_io silent = {0};
    folder quiet = {f->c, f->path, &silent};
    return path_of(&quiet, name, path) == PH_OK && access(path, F_OK) == 0;
}

/* ---- configuration ----------------------------------------------------------------- */

static ph_status read_values(const folder *f, const char *name, const char *prefix)
{
    char path[PATH];
    ph_map map;
    PH_TRY(path_of(f, name, path));
    PH_TRY(ph_map_open(&map, path, f->io));
    ph_status status = ph_values_read(&f->c->values, path, prefix,
                                      (const char *)map.bytes, map.size, f->io);
    ph_map_close(&map);
    return status;
}

static ph_status read_config(const folder *f)
{
    static const struct {
        const char *name, *prefix;
    } optional[] = {{"generation_config.json", "generation."},
                    {"modules.json", "modules."},
                    {"1_Pooling/config.json", "pooling."},
                    {"sentence_bert_config.json", "sentence."}};
    PH_TRY(read_values(f, "config.json", ""));
    for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++)
        if (exists(f, optional[i].name))
            PH_TRY(read_values(f, optional[i].name, optional[i].prefix));
    PH_TRY(ph_values_sort(&f->c->values, f->path, f->io));
    const ph_value *q = ph_values_find(&f->c->values, "quantization_config");
    if (!q || q->kind == PH_VALUE_NULL) return PH_OK;
    q = ph_values_find(&f->c->values, "quantization_config.quant_method");
    return ph_io_fail(f->io, PH_UNSUPPORTED,
                      "%.200s: quantization_config %s, expected weights in F32, F16 or "
                      "BF16",
                      f->path,
                      q && q->kind == PH_VALUE_TEXT ? ph_io_quote(q->text, q->length).text
                                                    : "is set");
}

/* ---- tensors ----------------------------------------------------------------------- */

/* Older files call gain and shift of a norm LayerNorm.gamma and LayerNorm.beta. */
static ph_status rename_old(ph_checkpoint *c, ph_tensor *t, const ph_io *io)
{
    static const char *const old[] = {"LayerNorm.gamma", "LayerNorm.beta"};
    static const char *const now[] = {"LayerNorm.weight", "LayerNorm.bias"};
    size_t length = strlen(t->name);
    for (int i = 0; i < 2; i++) {
        size_t tail = strlen(old[i]);
        if (length < tail || strcmp(t->name + length - tail, old[i])) continue;
        char *name;
        PH_TRY(ph_checkpoint_keep(c, length + 8, (void **)&name, io));
        memcpy(name, t->name, length - tail);
        strcpy(name + length - tail, now[i]);
        t->name = name;
        break;
    }
    return PH_OK;
}

static ph_status open_file(const folder *f, const char *name)
{
    ph_checkpoint *c = f->c;
    char path[PATH];
    const ph_tensor *t;
    PH_TRY(path_of(f, name, path));
    PH_TRY(ph_file_map(&c->files[c->file_count], path, f->io));
    ph_file *file = c->files[c->file_count++];
    for (size_t i = 0; (t = ph_file_tensor(file, i)); i++) {
        ph_stored s = {.tensor = *t};
        PH_TRY(rename_old(c, &s.tensor, f->io));
        PH_TRY(ph_checkpoint_add(c, &s, f->io));
    }
    return PH_OK;
}

static ph_status make_files(const folder *f, size_t count)
{
    size_t bytes = count * sizeof *f->c->files;
    f->c->files = ph_io_alloc(&f->c->io, bytes);
    if (!f->c->files) return ph_io_no_memory(f->io, bytes, "the list of files");
    memset(f->c->files, 0, bytes);
    return PH_OK;
}

static ph_status read_one_file(const folder *f)
{
    PH_TRY(make_files(f, 1));
    return open_file(f, "model.safetensors");
}

/* ---- shards ------------------------------------------------------------------------ */

typedef struct shard_entry {
    const char *tensor, *file;
} shard_entry;

typedef struct shard_index {
    const folder *f;
    const char *path;
    ph_json_reader json;
    shard_entry *list;
    size_t count, capacity;
} shard_index;

static ph_status bad_index(const shard_index *x, const char *what, const char *name)
{
    return ph_io_fail(x->f->io, PH_BAD_FILE, "%.200s: %s %s", x->path, what,
                      ph_io_quote(name, strlen(name)).text);
}

static ph_status bad_json(const shard_index *x)
{
    char text[256];
    ph_json_explain(&x->json, text, sizeof text);
    return ph_io_fail(x->f->io, PH_BAD_FILE, "%.200s is not valid JSON: %s", x->path,
                      text);
}

static int ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), more = strlen(tail);
    return length >= more && !strcmp(text + length - more, tail);
}

/* A name in the same folder and no other file than safetensors. */
static int is_file_name(const ph_json_reader *json)
{
    return !memchr(json->text, 0, json->length) && json->length <= NAME &&
           json->text[0] != '.' && !strchr(json->text, '/') &&
           ends_with(json->text, ".safetensors");
}

static ph_status read_map(shard_index *x)
{
    ph_json_token token;
    if (ph_json_next(&x->json) != PH_JSON_OBJECT)
        return bad_index(x,
                         "weight_map is no object:", ph_json_token_words(x->json.token));
    while ((token = ph_json_next(&x->json)) == PH_JSON_KEY) {
        shard_entry e = {.tensor = x->json.text};
        void *list = x->list;
        if (memchr(x->json.text, 0, x->json.length))
            return bad_index(x, "a NUL byte in the tensor name", x->json.text);
        if (ph_json_next(&x->json) != PH_JSON_STRING)
            return bad_index(x, "no text is given for tensor", e.tensor);
        if (!is_file_name(&x->json))
            return bad_index(x, "expected NAME.safetensors in the same folder, not",
                             x->json.text);
        e.file = x->json.text;
        if (ph_io_grow(x->f->io, &list, &x->capacity, x->count + 1, sizeof e))
            return ph_io_no_memory(x->f->io, x->count * sizeof e, "the index");
        x->list = list;
        x->list[x->count++] = e;
    }
    return token == PH_JSON_ERROR ? bad_json(x) : PH_OK;
}

static ph_status read_index(shard_index *x)
{
    ph_json_token token;
    if (ph_json_next(&x->json) != PH_JSON_OBJECT) return bad_json(x);
    while ((token = ph_json_next(&x->json)) == PH_JSON_KEY) {
        if (!strcmp(x->json.text, "weight_map")) {
            PH_TRY(read_map(x));
        } else {
            ph_json_next(&x->json);
            if (ph_json_skip(&x->json) != PH_OK) return bad_json(x);
        }
    }
    if (token != PH_JSON_OBJECT_END || ph_json_next(&x->json) != PH_JSON_END)
        return bad_json(x);
    return x->count ? PH_OK : bad_index(x, "it names no tensor in", "weight_map");
}

static int by_file(const void *left, const void *right)
{
    const shard_entry *a = left, *b = right;
    return strcmp(a->file, b->file);
}

/* Every tensor lies where the index says, and there is no other. */
static ph_status check_shard(const shard_index *x, const ph_file *file, size_t first,
                             size_t end)
{
    size_t tensors = 0;
    for (size_t i = first; i < end; i++)
        if (!ph_file_find(file, x->list[i].tensor))
            return bad_index(x, "its file does not hold tensor", x->list[i].tensor);
    while (ph_file_tensor(file, tensors)) tensors++;
    if (tensors == end - first) return PH_OK;
    return ph_io_fail(
        x->f->io, PH_BAD_FILE, "%.200s names %zu tensors of %s, which holds %zu", x->path,
        end - first, ph_io_quote(x->list[first].file, strlen(x->list[first].file)).text,
        tensors);
}

static ph_status open_shards(shard_index *x)
{
    ph_checkpoint *c = x->f->c;
    size_t files = 0;
    ph_sort(x->list, x->count, sizeof *x->list, by_file);
    for (size_t i = 0; i < x->count; i++)
        files += i == 0 || strcmp(x->list[i - 1].file, x->list[i].file);
    if (files > FILES)
        return ph_io_fail(x->f->io, PH_BAD_FILE, "%.200s names %zu files, at most %d",
                          x->path, files, FILES);
    PH_TRY(make_files(x->f, files));
    for (size_t first = 0, end; first < x->count; first = end) {
        for (end = first; end < x->count; end++)
            if (strcmp(x->list[first].file, x->list[end].file)) break;
        PH_TRY(open_file(x->f, x->list[first].file));
        PH_TRY(check_shard(x, c->files[c->file_count - 1], first, end));
    }
    return PH_OK;
}

static ph_status read_shards(const folder *f)
{
    char path[PATH];
    ph_map map;
    shard_index x = {.f = f, .path = path};
    PH_TRY(path_of(f, "model.safetensors.index.json", path));
    PH_TRY(ph_map_open(&map, path, f->io));
    ph_status status = PH_OK;
    if (map.size > INDEX_BYTES)
        status = ph_io_fail(f->io, PH_BAD_FILE, "%.200s has %zu bytes, at most %d", path,
                            map.size, INDEX_BYTES);
    char *copy = status == PH_OK ? ph_io_alloc(f->io, map.size) : NULL;
    if (status == PH_OK && !copy) status = ph_io_no_memory(f->io, map.size, "the index");
    if (copy) {
        if (map.size) memcpy(copy, map.bytes, map.size);
        ph_json_open(&x.json, copy, map.size, (ph_json_limits){4, 4096}, f->io);
        status = read_index(&x);
        ph_json_close(&x.json);
        if (status == PH_OK) status = open_shards(&x);
    }
    ph_io_release(f->io, x.list);
    ph_io_release(f->io, copy);
    ph_map_close(&map);
    return status;
}

/* ---- all of it --------------------------------------------------------------------- */

static ph_status no_tensors(const folder *f)
{
    static const char *const pickles[] = {"pytorch_model.bin",
                                          "pytorch_model.bin.index.json", "model.pt",
                                          "model.pth", "model.ckpt"};
    static const char *const others[] = {"tf_model.h5", "flax_model.msgpack"};
    for (size_t i = 0; i < sizeof pickles / sizeof pickles[0]; i++)
        if (exists(f, pickles[i]))
            return ph_io_fail(f->io, PH_UNSUPPORTED, PH_PICKLE_SENTENCE, pickles[i]);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (exists(f, others[i]))
            return ph_io_fail(f->io, PH_UNSUPPORTED,
                              "%s is not read: load it once with transformers "
                              "(from_pretrained, then save_pretrained) and give the "
                              "directory that writes",
                              others[i]);
    return ph_io_fail(f->io, PH_IO_ERROR,
                      "%.200s holds neither model.safetensors nor "
                      "model.safetensors.index.json",
                      f->path);
}

ph_status ph_folder_read(ph_checkpoint *c, const char *path, const ph_io *io)
{
    folder f = {c, path, io};
    c->kind = PH_CHECKPOINT_FOLDER;
    if (!exists(&f, "config.json"))
        return ph_io_fail(io, PH_IO_ERROR,
                          "%.200s is a directory without config.json, expected a Hugging "
                          "Face folder",
                          path);
    PH_TRY(read_config(&f));
    if (exists(&f, "model.safetensors"))
        PH_TRY(read_one_file(&f));
    else if (exists(&f, "model.safetensors.index.json"))
        PH_TRY(read_shards(&f));
    else
        return no_tensors(&f);
    return ph_checkpoint_sort(c, path, io);
}
