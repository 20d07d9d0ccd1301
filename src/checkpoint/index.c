/*
 * index.c - model.safetensors.index.json: {"weight_map": {tensor: file, ...}, ...}.
 *
 * File names must be plain names ending in .safetensors: an index leads to no file
 * outside its folder.
 */
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "io/json_read.h"
#include "io/sort.h"

enum { BYTES = 64 << 20, FILES = 10000, NAME = 255 };

typedef struct index_walk {
    ph_index *index;
    const char *name;
    const ph_io *io;
    ph_json_reader json;
} index_walk;

static ph_status bad(const index_walk *w, const char *what, const char *name)
{
    return ph_io_fail(w->io, PH_BAD_FILE, "%.200s: %s %s", w->name, what,
                      ph_io_quote(name, strlen(name)).text);
}

static ph_status bad_json(const index_walk *w)
{
    char text[256];
    if (w->json.status == PH_OUT_OF_MEMORY)
        return ph_io_no_memory(w->io, w->json.key_count * sizeof(ph_json_key),
                               "the keys of an index");
    ph_json_explain(&w->json, text, sizeof text);
    return ph_io_fail(w->io, PH_BAD_FILE, "%.200s is not valid JSON: %s", w->name, text);
}

static int ends_with(const char *text, const char *tail)
{
    size_t length = strlen(text), more = strlen(tail);
    return length >= more && !strcmp(text + length - more, tail);
}

static int has_nul(const ph_json_reader *json)
{
    return memchr(json->text, 0, json->length) != NULL;
}

static int is_file_name(const ph_json_reader *json)
{
    return !has_nul(json) && json->length <= NAME && json->text[0] != '.' &&
           !strchr(json->text, '/') && ends_with(json->text, ".safetensors");
}

static ph_status read_map(index_walk *w)
{
    ph_index *x = w->index;
    ph_json_token token = ph_json_next(&w->json);
    if (token == PH_JSON_ERROR) return bad_json(w);
    if (token != PH_JSON_OBJECT)
        return bad(w, "weight_map is no object but", ph_json_token_words(token));
    while ((token = ph_json_next(&w->json)) == PH_JSON_KEY) {
        ph_shard shard = {.tensor = w->json.text};
        void *list = x->list;
        if (has_nul(&w->json)) return bad(w, "a NUL byte in the name", shard.tensor);
        token = ph_json_next(&w->json);
        if (token == PH_JSON_ERROR) return bad_json(w);
        if (token != PH_JSON_STRING)
            return bad(w, "no file name is given for tensor", shard.tensor);
        if (!is_file_name(&w->json))
            return bad(w, "expected NAME.safetensors in the same folder, not",
                       w->json.text);
        shard.file = w->json.text;
        if (ph_io_grow(w->io, &list, &x->capacity, x->count + 1, sizeof shard))
            return ph_io_no_memory(w->io, x->count * sizeof shard, "an index");
        x->list = list;
        x->list[x->count++] = shard;
    }
    return token == PH_JSON_ERROR ? bad_json(w) : PH_OK;
}

static ph_status read_all(index_walk *w)
{
    ph_json_token token = ph_json_next(&w->json);
    if (token == PH_JSON_ERROR) return bad_json(w);
    if (token != PH_JSON_OBJECT)
        return bad(w, "it is no object but", ph_json_token_words(token));
    while ((token = ph_json_next(&w->json)) == PH_JSON_KEY) {
        if (!strcmp(w->json.text, "weight_map")) {
            PH_TRY(read_map(w));
        } else {
            ph_json_next(&w->json);
            if (ph_json_skip(&w->json) != PH_OK) return bad_json(w);
        }
    }
    if (token == PH_JSON_ERROR || ph_json_next(&w->json) != PH_JSON_END)
        return bad_json(w);
    return w->index->count ? PH_OK : bad(w, "no tensor is named in", "weight_map");
}

static int by_file(const void *left, const void *right)
{
    const ph_shard *a = left, *b = right;
    return strcmp(a->file, b->file);
}

static ph_status count_files(ph_index *x, const char *name, const ph_io *io)
{
    ph_sort(x->list, x->count, sizeof *x->list, by_file);
    for (size_t i = 0; i < x->count; i++)
        x->files += i == 0 || strcmp(x->list[i - 1].file, x->list[i].file);
    if (x->files <= FILES) return PH_OK;
    return ph_io_fail(io, PH_BAD_FILE, "%.200s names %zu files, expected at most %d",
                      name, x->files, FILES);
}

ph_status ph_index_read(ph_index *x, const char *name, const char *bytes, size_t size,
                        const ph_io *io)
{
    index_walk w = {.index = x, .name = name, .io = io};
    *x = (ph_index){0};
    if (size > BYTES)
        return ph_io_fail(io, PH_BAD_FILE, "%.200s has %zu bytes, expected at most %d",
                          name, size, BYTES);
    x->text = ph_io_alloc(io, size);
    if (!x->text) return ph_io_no_memory(io, size, "an index");
    if (size) memcpy(x->text, bytes, size);
    ph_json_open(&w.json, x->text, size, (ph_json_limits){4, 4096}, io);
    ph_status status = read_all(&w);
    ph_json_close(&w.json);
    return status == PH_OK ? count_files(x, name, io) : status;
}

void ph_index_free(ph_index *x, const ph_io *io)
{
    ph_io_release(io, x->list);
    ph_io_release(io, x->text);
    *x = (ph_index){0};
}
