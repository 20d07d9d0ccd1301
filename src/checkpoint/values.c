/*
 * values.c - keys with values of a type, from JSON and from GGUF; see values.h.
 */
#include "checkpoint/values.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/format.h"
#include "checkpoint/gguf.h"
#include "io/json_read.h"
#include "io/sort.h"

enum { DEPTH = 16, PATH = 512 };

void ph_values_free(ph_values *v)
{
    for (size_t i = 0; i < v->text_count; i++) ph_io_release(&v->io, v->texts[i]);
    ph_io_release(&v->io, v->texts);
    ph_io_release(&v->io, v->list);
    v->texts = NULL, v->list = NULL, v->count = v->text_count = 0;
    v->capacity = v->text_capacity = 0;
}

/* ---- adding ------------------------------------------------------------------------ */

static ph_status copy_text(ph_values *v, const char *text, size_t length,
                           const char **out)
{
    void *texts = v->texts;
    ph_status status = ph_io_grow(&v->io, &texts, &v->text_capacity, v->text_count + 1,
                                  sizeof *v->texts);
    v->texts = texts;
    char *copy = status == PH_OK ? ph_io_alloc(&v->io, length + 1) : NULL;
    if (!copy) return PH_OUT_OF_MEMORY;
    if (length) memcpy(copy, text, length);
    copy[length] = 0;
    *out = v->texts[v->text_count++] = copy;
    return PH_OK;
}

ph_status ph_values_add(ph_values *v, const ph_value *value, const ph_io *io)
{
    ph_value copy = *value;
    void *list = v->list;
    ph_status status =
        ph_io_grow(&v->io, &list, &v->capacity, v->count + 1, sizeof *v->list);
    v->list = list;
    if (status == PH_OK) status = copy_text(v, value->key, strlen(value->key), &copy.key);
    if (status == PH_OK && value->kind == PH_VALUE_TEXT)
        status = copy_text(v, value->text, value->length, &copy.text);
    if (status != PH_OK) return ph_io_no_memory(io, value->length, "metadata");
    v->list[v->count++] = copy;
    return PH_OK;
}

/* ---- JSON -------------------------------------------------------------------------- */

typedef struct json_walk {
    ph_values *values;
    const char *name;
    const ph_io *io;
    ph_json_reader json;
    char path[PATH];
} json_walk;

static ph_status bad_json(const json_walk *w)
{
    char text[256];
    if (w->json.status == PH_OUT_OF_MEMORY)
        return ph_io_no_memory(w->io, w->json.key_count * sizeof(ph_json_key),
                               "the keys of a JSON object");
    ph_json_explain(&w->json, text, sizeof text);
    return ph_io_fail(w->io, PH_BAD_FILE, "%.200s is not valid JSON: %s", w->name, text);
}

/* What stands between a path and the next part: nothing after a prefix. */
static const char *dot_after(const char *path)
{
    size_t used = strlen(path);
    return used > 0 && path[used - 1] != '.' ? "." : "";
}

/* Appends ".part" to the path; -1: it does not fit. */
static int push(json_walk *w, const char *part)
{
    size_t used = strlen(w->path);
    int more = snprintf(w->path + used, PATH - used, "%s%s", dot_after(w->path), part);
    return more < 0 || (size_t)more >= PATH - used ? -1 : 0;
}

static ph_status add_value(json_walk *w, ph_value value)
{
    value.key = w->path;
    return ph_values_add(w->values, &value, w->io);
}

static ph_status too_long(const json_walk *w)
{
    return ph_io_fail(w->io, PH_BAD_FILE, "%.200s: the keys around %s are too long",
                      w->name, ph_io_quote(w->path, strlen(w->path)).text);
}

static ph_status walk(json_walk *w);

static ph_status walk_object(json_walk *w)
{
    size_t used = strlen(w->path);
    ph_json_token token;
    PH_TRY(add_value(w, (ph_value){.kind = PH_VALUE_OBJECT}));
    while ((token = ph_json_next(&w->json)) == PH_JSON_KEY) {
        if (memchr(w->json.text, 0, w->json.length) || push(w, w->json.text))
            return too_long(w);
        ph_json_next(&w->json);
        PH_TRY(walk(w));
        w->path[used] = 0;
    }
    return token == PH_JSON_ERROR ? bad_json(w) : PH_OK;
}

static ph_status walk_array(json_walk *w)
{
    size_t used = strlen(w->path), at = w->values->count, count = 0;
    char number[24];
    PH_TRY(add_value(w, (ph_value){.kind = PH_VALUE_LIST}));
    while (ph_json_next(&w->json) != PH_JSON_ARRAY_END) {
        snprintf(number, sizeof number, "%zu", count++);
        if (push(w, number)) return too_long(w);
        PH_TRY(walk(w));
        w->path[used] = 0;
    }
    w->values->list[at].count = count;
    return PH_OK;
}

/* The value of the current token. */
static ph_status walk(json_walk *w)
{
    ph_value value = {.kind = PH_VALUE_NULL};
    switch (w->json.token) {
    case PH_JSON_OBJECT: return walk_object(w);
    case PH_JSON_ARRAY: return walk_array(w);
    case PH_JSON_TRUE:
    case PH_JSON_FALSE:
        value.kind = PH_VALUE_BOOL;
        value.number = w->json.token == PH_JSON_TRUE;
        break;
    case PH_JSON_NUMBER:
        value.kind = PH_VALUE_NUMBER;
        ph_json_as_double(&w->json, &value.number);
        break;
    case PH_JSON_STRING:
        value.kind = PH_VALUE_TEXT;
        value.text = w->json.text, value.length = w->json.length;
        break;
    case PH_JSON_NULL: break;
    default: return bad_json(w);
    }
    return add_value(w, value);
}

static ph_status read_document(json_walk *w)
{
    ph_json_next(&w->json);
    PH_TRY(walk(w));
    return ph_json_next(&w->json) == PH_JSON_END ? PH_OK : bad_json(w);
}

ph_status ph_values_read(ph_values *v, const char *name, const char *prefix,
                         const char *bytes, size_t size, const ph_io *io)
{
    json_walk w = {.values = v, .name = name, .io = io};
    if (size > PH_VALUES_JSON)
        return ph_io_fail(io, PH_BAD_FILE, "%.200s has %zu bytes, expected at most %d",
                          name, size, PH_VALUES_JSON);
    char *copy = ph_io_alloc(io, size);
    if (!copy) return ph_io_no_memory(io, size, "a JSON document");
    if (size) memcpy(copy, bytes, size);
    snprintf(w.path, sizeof w.path, "%s", prefix);
    ph_json_open(&w.json, copy, size, (ph_json_limits){DEPTH, PH_VALUES_JSON}, io);
    ph_status status = read_document(&w);
    ph_json_close(&w.json);
    ph_io_release(io, copy);
    return status;
}

ph_status ph_values_check_root(const ph_values *v, size_t first, ph_value_kind kind,
                               const char *path, const ph_io *io)
{
    if (first < v->count && v->list[first].kind == kind) return PH_OK;
    return ph_io_fail(io, PH_BAD_FILE, "%.200s is %s, expected %s", path,
                      first < v->count ? ph_value_show(&v->list[first]).text : "empty",
                      kind == PH_VALUE_LIST ? "a list" : "an object");
}

/* ---- finding ----------------------------------------------------------------------- */

static int compare_keys(const void *left, const void *right)
{
    const ph_value *a = left, *b = right;
    return strcmp(a->key, b->key);
}

ph_status ph_values_sort(ph_values *v, const char *name, const ph_io *io)
{
    ph_sort(v->list, v->count, sizeof *v->list, compare_keys);
    for (size_t i = 1; i < v->count; i++)
        if (!strcmp(v->list[i - 1].key, v->list[i].key))
            return ph_io_fail(io, PH_BAD_FILE, "%.200s: the key %s exists twice", name,
                              ph_io_quote(v->list[i].key, strlen(v->list[i].key)).text);
    return PH_OK;
}

const ph_value *ph_values_find(const ph_values *v, const char *key)
{
    size_t low = 0, high = v->count;
    if (v->asked) v->asked(key);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(v->list[middle].key, key);
        if (order == 0) return &v->list[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* Whether a value can hold what comes next in a key: objects everything, lists items. */
static int can_hold(const ph_value *v, char next)
{
    int item = next >= '0' && next <= '9';
    return v->kind == PH_VALUE_OBJECT || v->kind == PH_VALUE_NULL ||
           (v->kind == PH_VALUE_LIST && item);
}

const ph_value *ph_values_around(const ph_values *v, const char *key)
{
    char path[PATH];
    for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.')) {
        int length = snprintf(path, sizeof path, "%.*s", (int)(dot - key), key);
        const ph_value *outer = length < PATH ? ph_values_find(v, path) : NULL;
        if (outer && !can_hold(outer, dot[1])) return outer;
    }
    return NULL;
}

ph_io_quoted ph_value_show(const ph_value *v)
{
    static const char *const others[] = {"null", NULL, NULL, NULL, "a list", "an object"};
    ph_io_quoted shown;
    if (v->kind == PH_VALUE_TEXT) return ph_io_quote(v->text, v->length);
    if (v->kind == PH_VALUE_NUMBER)
        ph_format(shown.text, sizeof shown.text, "%.12g", v->number);
    else if (v->kind == PH_VALUE_BOOL)
        strcpy(shown.text, v->number != 0 ? "true" : "false");
    else
        strcpy(shown.text, others[v->kind]);
    return shown;
}

ph_value_name ph_value_field(const char *key)
{
    static const char *const files[][2] = {
        {"generation.", "generation_config.json"},
        {"tokenizer_config.", "tokenizer_config.json"},
        {"special_tokens_map.", "special_tokens_map.json"},
        {"sentence_transformers.", "config_sentence_transformers.json"},
        {"preprocessor.", "preprocessor_config.json"}};
    ph_value_name name;
    ph_format(name.text, sizeof name.text, "%s", key);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t length = strlen(files[i][0]);
        if (strncmp(key, files[i][0], length)) continue;
        ph_format(name.text, sizeof name.text, "%s%s%s", files[i][1],
                  key[length] ? ": " : "", key + length);
    }
    return name;
}

int ph_values_item(const ph_values *v, const ph_value *list, size_t i, ph_value *out)
{
    char path[PATH + 24];
    if (list->kind != PH_VALUE_LIST || i >= list->count) return 0;
    if (list->items) return ph_gguf_item(list, i, out);
    snprintf(path, sizeof path, "%s%s%zu", list->key, dot_after(list->key), i);
    const ph_value *item = ph_values_find(v, path);
    if (item) *out = *item;
    return item != NULL;
}
