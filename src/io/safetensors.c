/*
 * safetensors.c - the strict reader of polyhead_io.h.
 *
 *     8 bytes   header length N, little-endian
 *     N bytes   {"__metadata__": {"key": "text", ...},
 *                "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...}
 *     the rest  data; offsets count from its first byte
 *
 * No size from the file is used for an allocation before it was compared with the size of
 * the file. Header strings are decoded in place, and all names point into the header,
 * which stays in memory. Each tensor is then copied to a 64-byte boundary, unless the
 * file is mapped: then only those that are not aligned to their elements are.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/format.h"
#include "base/size.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/map.h"
#include "io/safetensors.h"
#include "io/sort.h"
#include "io/types.h"

typedef struct header_entry {
    ph_tensor tensor;
    size_t begin, end; /* in the data */
    size_t order;      /* in the header */
} header_entry;

_Static_assert(sizeof(header_entry) <= PH_SORT_MAX_SIZE, "entries are sorted in place");

struct ph_file {
    ph_io io;              /* the hooks; no error buffer */
    char *header;          /* as read, strings decoded in place */
    header_entry *entries; /* in the order of the data */
    size_t count, capacity;
    const ph_tensor **by_name; /* sorted */
    ph_pair *pairs;
    size_t pair_count, pair_capacity;
    void *data; /* of all tensors that are not used in place */
    ph_map map; /* of the file, or cleared */
};

/* What the functions below share while one file is read. */
typedef struct header_reading {
    const ph_source *source;
    const ph_io *io;
    ph_file *file;
    ph_json_reader json;
    size_t header_size, data_size;
} header_reading;

/* ---- sentences --------------------------------------------------------------------- */

static ph_status bad(const header_reading *r, const char *format, ...) PH_IO_PRINTF(2, 3);

static ph_status bad(const header_reading *r, const char *format, ...)
{
    char text[320];
    va_list list;
    va_start(list, format);
    ph_format_list(text, sizeof text, format, list);
    va_end(list);
    return ph_io_fail(r->io, PH_BAD_FILE, "%.200s: %s", r->source->name, text);
}

static ph_status bad_tensor(const header_reading *r, const ph_tensor *tensor,
                            const char *format, ...) PH_IO_PRINTF(3, 4);

static ph_status bad_tensor(const header_reading *r, const ph_tensor *tensor,
                            const char *format, ...)
{
    char text[240];
    va_list list;
    va_start(list, format);
    ph_format_list(text, sizeof text, format, list);
    va_end(list);
    return bad(r, "tensor %s: %s", ph_io_quote(tensor->name, strlen(tensor->name)).text,
               text);
}

static ph_status bad_json(const header_reading *r)
{
    char text[256];
    if (r->json.status == PH_OUT_OF_MEMORY)
        return ph_io_no_memory(r->io, r->json.key_count * sizeof(ph_json_key),
                               "the keys of a header");
    ph_json_explain(&r->json, text, sizeof text);
    return bad(r, "header is not valid JSON: %s", text);
}

/* ---- the header -------------------------------------------------------------------- */

/* The next token must be this one; `what` names the place in the sentence. */
static ph_status expect(header_reading *r, ph_json_token token, const char *what)
{
    ph_json_token found = ph_json_next(&r->json);
    if (found == PH_JSON_ERROR) return bad_json(r);
    if (found == token) return PH_OK;
    return bad(r, "%s is %s, expected %s", what, ph_json_token_words(found),
               ph_json_token_words(token));
}

/* C strings end at the first NUL, so two names could look like one. */
static int has_nul(const ph_json_reader *json)
{
    return memchr(json->text, 0, json->length) != NULL;
}

static ph_status read_metadata(header_reading *r)
{
    ph_file *file = r->file;
    ph_json_token token = ph_json_next(&r->json);
    if (token == PH_JSON_NULL) return PH_OK; /* written by some for no metadata */
    if (token == PH_JSON_ERROR) return bad_json(r);
    if (token != PH_JSON_OBJECT)
        return bad(r, "__metadata__ is %s, expected an object",
                   ph_json_token_words(token));
    while ((token = ph_json_next(&r->json)) == PH_JSON_KEY) {
        void *pairs = file->pairs;
        ph_pair pair = {.key = r->json.text};
        if (has_nul(&r->json)) return bad(r, "__metadata__ has a key with a NUL byte");
        token = ph_json_next(&r->json);
        if (token == PH_JSON_ERROR) return bad_json(r);
        if (token != PH_JSON_STRING)
            return bad(r, "__metadata__ %s is %s, expected a string",
                       ph_io_quote(pair.key, strlen(pair.key)).text,
                       ph_json_token_words(token));
        if (has_nul(&r->json))
            return bad(r, "__metadata__ %s has a NUL byte in its text",
                       ph_io_quote(pair.key, strlen(pair.key)).text);
        pair.value = r->json.text;
        if (ph_io_grow(r->io, &pairs, &file->pair_capacity, file->pair_count + 1,
                       sizeof pair))
            return ph_io_no_memory(r->io, file->pair_count * sizeof pair, "metadata");
        file->pairs = pairs;
        file->pairs[file->pair_count++] = pair;
    }
    return token == PH_JSON_ERROR ? bad_json(r) : PH_OK;
}

/* A list of unsigned integers into values; *count is the capacity, then how many were
   read. `what` is the field's name. */
static ph_status read_sizes(header_reading *r, const ph_tensor *tensor, const char *what,
                            size_t *values, int *count)
{
    int most = *count;
    ph_json_token token = ph_json_next(&r->json);
    *count = 0;
    if (token == PH_JSON_ERROR) return bad_json(r);
    if (token != PH_JSON_ARRAY)
        return bad_tensor(r, tensor, "%s is %s, expected an array", what,
                          ph_json_token_words(token));
    while ((token = ph_json_next(&r->json)) != PH_JSON_ARRAY_END) {
        if (token == PH_JSON_ERROR) return bad_json(r);
        if (token != PH_JSON_NUMBER)
            return bad_tensor(r, tensor, "%s[%d] is %s, expected a whole number", what,
                              *count, ph_json_token_words(token));
        if (*count == most)
            return bad_tensor(r, tensor, "%s has more than %d entries", what, most);
        if (ph_json_as_size(&r->json, &values[*count]))
            return bad_tensor(r, tensor,
                              "%s[%d] is %.*s, expected a whole number without sign, "
                              "fraction or exponent, below 2^64",
                              what, *count,
                              (int)(r->json.length < 40 ? r->json.length : 40),
                              r->json.text);
        ++*count;
    }
    return PH_OK;
}

static ph_status read_type(header_reading *r, ph_tensor *tensor)
{
    ph_json_token token = ph_json_next(&r->json);
    if (token == PH_JSON_ERROR) return bad_json(r);
    if (token != PH_JSON_STRING)
        return bad_tensor(r, tensor, "dtype is %s, expected a string",
                          ph_json_token_words(token));
    if (ph_types_find(r->json.text, r->json.length, &tensor->type))
        return bad_tensor(r, tensor, "dtype %s is unknown",
                          ph_io_quote(r->json.text, r->json.length).text);
    return PH_OK;
}

static ph_status read_offsets(header_reading *r, header_entry *e)
{
    size_t offsets[2];
    int count = 2;
    PH_TRY(read_sizes(r, &e->tensor, "data_offsets", offsets, &count));
    if (count != 2)
        return bad_tensor(r, &e->tensor, "data_offsets has %d entries, expected 2",
                          count);
    e->begin = offsets[0];
    e->end = offsets[1];
    return PH_OK;
}

static int is_key(const ph_json_reader *json, const char *key)
{
    return json->length == strlen(key) && memcmp(json->text, key, json->length) == 0;
}

/* The fields of one tensor. Fields other than the three known are skipped, as the
   format's own reader does. */
static ph_status read_fields(header_reading *r, header_entry *e)
{
    int has_type = 0, has_shape = 0, has_offsets = 0;
    ph_json_token token;
    while ((token = ph_json_next(&r->json)) == PH_JSON_KEY) {
        if (is_key(&r->json, "dtype")) {
            has_type = 1;
            PH_TRY(read_type(r, &e->tensor));
        } else if (is_key(&r->json, "shape")) {
            has_shape = 1;
            e->tensor.rank = PH_MAX_RANK;
            PH_TRY(read_sizes(r, &e->tensor, "shape", e->tensor.shape, &e->tensor.rank));
        } else if (is_key(&r->json, "data_offsets")) {
            has_offsets = 1;
            PH_TRY(read_offsets(r, e));
        } else {
            ph_json_next(&r->json);
            if (ph_json_skip(&r->json) != PH_OK) return bad_json(r);
        }
    }
    if (token == PH_JSON_ERROR) return bad_json(r);
    if (has_type && has_shape && has_offsets) return PH_OK;
    return bad_tensor(r, &e->tensor, "%s is missing",
                      !has_type    ? "dtype"
                      : !has_shape ? "shape"
                                   : "data_offsets");
}

static ph_status check_size(const header_reading *r, header_entry *e)
{
    char words[200];
    const char *wrong = ph_types_bytes(&e->tensor, &e->tensor.bytes);
    ph_status status = PH_OK;
    if (!wrong && e->end >= e->begin && e->end - e->begin == e->tensor.bytes)
        return PH_OK;
    ph_tensor_describe(&e->tensor, words, sizeof words);
    if (wrong)
        status = bad_tensor(r, &e->tensor, "%s: %s", words, wrong);
    else if (e->end < e->begin)
        status =
            bad_tensor(r, &e->tensor, "data_offsets end at %zu, before they begin at %zu",
                       e->end, e->begin);
    else
        status =
            bad_tensor(r, &e->tensor, "data_offsets span %zu bytes, expected %zu for %s",
                       e->end - e->begin, e->tensor.bytes, words);
    return status;
}

static ph_status check_name(const header_reading *r)
{
    const ph_json_reader *json = &r->json;
    if (has_nul(json))
        return bad(r, "tensor %s: its name has a NUL byte",
                   ph_io_quote(json->text, json->length).text);
    if (json->length > PH_SAFETENSORS_NAME)
        return bad(r, "tensor %s: its name has %zu bytes, at most %d are allowed",
                   ph_io_quote(json->text, json->length).text, json->length,
                   PH_SAFETENSORS_NAME);
    if (r->file->count == PH_SAFETENSORS_TENSORS)
        return bad(r, "more than %d tensors", PH_SAFETENSORS_TENSORS);
    return PH_OK;
}

/* After a key: the tensor of that name. */
static ph_status read_tensor(header_reading *r)
{
    ph_file *file = r->file;
    void *entries = file->entries;
    header_entry e = {.tensor.name = r->json.text, .order = file->count};
    PH_TRY(check_name(r));
    ph_json_token token = ph_json_next(&r->json);
    if (token == PH_JSON_ERROR) return bad_json(r);
    if (token != PH_JSON_OBJECT)
        return bad(r, "tensor %s is %s, expected an object",
                   ph_io_quote(e.tensor.name, strlen(e.tensor.name)).text,
                   ph_json_token_words(token));
    PH_TRY(read_fields(r, &e));
    PH_TRY(check_size(r, &e));
    if (ph_io_grow(r->io, &entries, &file->capacity, file->count + 1, sizeof e))
        return ph_io_no_memory(r->io, file->count * sizeof e, "the list of tensors");
    file->entries = entries;
    file->entries[file->count++] = e;
    return PH_OK;
}

static ph_status read_header(header_reading *r)
{
    ph_json_token token;
    PH_TRY(expect(r, PH_JSON_OBJECT, "header"));
    while ((token = ph_json_next(&r->json)) == PH_JSON_KEY)
        PH_TRY(is_key(&r->json, "__metadata__") ? read_metadata(r) : read_tensor(r));
    if (token == PH_JSON_ERROR || ph_json_next(&r->json) != PH_JSON_END)
        return bad_json(r);
    return PH_OK;
}

/* Length and bytes of the header, compared with the file before anything is allocated. */
static ph_status load_header(header_reading *r)
{
    unsigned char raw[8];
    uint64_t length = 0;
    size_t size = r->source->size;
    if (size < sizeof raw)
        return bad(r, "%zu bytes are too few for a safetensors file, expected at least 8",
                   size);
    PH_TRY(ph_source_read(r->source, 0, raw, sizeof raw, r->io));
    for (int i = 7; i >= 0; i--) length = length << 8 | raw[i];
    if (length > PH_SAFETENSORS_HEADER)
        return bad(r,
                   "header length is %llu, at most %d are allowed; is it a safetensors "
                   "file?",
                   (unsigned long long)length, PH_SAFETENSORS_HEADER);
    if (length > size - sizeof raw)
        return bad(r, "header length is %llu, but only %zu bytes follow",
                   (unsigned long long)length, size - sizeof raw);
    r->header_size = (size_t)length;
    r->data_size = size - sizeof raw - r->header_size;
    r->file->header = ph_io_alloc(r->io, r->header_size);
    if (!r->file->header) return ph_io_no_memory(r->io, r->header_size, "the header");
    return ph_source_read(r->source, sizeof raw, r->file->header, r->header_size, r->io);
}

/* ---- the data ---------------------------------------------------------------------- */

static int compare_offsets(const void *left, const void *right)
{
    const header_entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    if (a->end != b->end) return a->end < b->end ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

/* Sorted, the tensors must cover the data exactly. */
static ph_status check_cover(const header_reading *r)
{
    const ph_file *file = r->file;
    size_t at = 0;
    for (size_t i = 0; i < file->count; i++) {
        const header_entry *e = &file->entries[i];
        if (e->begin != at)
            return bad_tensor(r, &e->tensor,
                              "its data begins at byte %zu, expected %zu (%s)", e->begin,
                              at, e->begin < at ? "overlap" : "hole");
        at = e->end;
    }
    if (at > r->data_size)
        return bad_tensor(
            r, &file->entries[file->count - 1].tensor,
            "its data ends at byte %zu, but the file holds only %zu bytes of "
            "data",
            at, r->data_size);
    if (at < r->data_size)
        return bad(r, "%zu bytes of data, but the tensors end at byte %zu", r->data_size,
                   at);
    return PH_OK;
}

/* Where a tensor lies in a mapped file; NULL: not mapped, or not aligned to its elements,
   since not every writer pads the header. */
static const void *in_place(const header_reading *r, const header_entry *e)
{
    const unsigned char *at = r->file->map.bytes;
    size_t alignment = ph_dtype_bytes(e->tensor.type, 1); /* 0: less than a byte */
    if (!at) return NULL;
    at += 8 + r->header_size + e->begin;
    return alignment && (uintptr_t)at % alignment ? NULL : at;
}

/* Bytes for all tensors that are copied, each beginning at a multiple of PH_ALIGN. */
static int measure_data(const header_reading *r, size_t *out)
{
    const ph_file *file = r->file;
    size_t total = PH_ALIGN, padded = 0;
    for (size_t i = 0; i < file->count; i++)
        if (!in_place(r, &file->entries[i]) &&
            (ph_size_align_up(file->entries[i].tensor.bytes, PH_ALIGN, &padded) ||
             ph_size_add(total, padded, &total)))
            return -1;
    *out = total;
    return 0;
}

static ph_status load_data(header_reading *r)
{
    ph_file *file = r->file;
    size_t total = 0;
    if (measure_data(r, &total)) total = SIZE_MAX;
    file->data = total < SIZE_MAX ? ph_io_alloc(r->io, total) : NULL;
    if (!file->data) return ph_io_no_memory(r->io, total, "the data of the tensors");
    char *to = file->data;
    to += (PH_ALIGN - (uintptr_t)to % PH_ALIGN) % PH_ALIGN;
    for (size_t i = 0; i < file->count; i++) {
        header_entry *e = &file->entries[i];
        e->tensor.data = in_place(r, e);
        if (e->tensor.data) continue;
        PH_TRY(ph_source_read(r->source, 8 + r->header_size + e->begin, to,
                              e->tensor.bytes, r->io));
        e->tensor.data = to;
        to += (e->tensor.bytes + PH_ALIGN - 1) / PH_ALIGN * PH_ALIGN;
    }
    return PH_OK;
}

static int compare_names(const void *left, const void *right)
{
    const ph_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static ph_status make_index(header_reading *r)
{
    ph_file *file = r->file;
    size_t bytes = file->count * sizeof *file->by_name;
    file->by_name = ph_io_alloc(r->io, bytes);
    if (!file->by_name) return ph_io_no_memory(r->io, bytes, "the index of names");
    for (size_t i = 0; i < file->count; i++) file->by_name[i] = &file->entries[i].tensor;
    ph_sort(file->by_name, file->count, sizeof *file->by_name, compare_names);
    return PH_OK;
}

/* ---- the public functions ---------------------------------------------------------- */

static ph_status read_all(header_reading *r)
{
    const ph_json_limits limits = {.depth = PH_SAFETENSORS_DEPTH,
                                   .string = PH_SAFETENSORS_HEADER};
    if (r->io && r->io->max_bytes && r->source->size > r->io->max_bytes)
        return ph_io_fail(r->io, PH_OUT_OF_MEMORY, "'%s' has %zu bytes, the limit is %zu",
                          r->source->name, r->source->size, r->io->max_bytes);
    PH_TRY(load_header(r));
    ph_json_open(&r->json, r->file->header, r->header_size, limits, r->io);
    ph_status status = read_header(r);
    ph_json_close(&r->json);
    PH_TRY(status);
    ph_sort(r->file->entries, r->file->count, sizeof(header_entry), compare_offsets);
    PH_TRY(check_cover(r));
    PH_TRY(make_index(r));
    return load_data(r);
}

/* map: of the file, which it owns once it is read; or NULL. */
static ph_status read_source(ph_file **out, const ph_source *source, const ph_map *map,
                             const ph_io *io)
{
    header_reading r = {
        .source = source, .io = io, .file = ph_io_alloc(io, sizeof *r.file)};
    if (!r.file) return ph_io_no_memory(io, sizeof *r.file, "a file");
    memset(r.file, 0, sizeof *r.file);
    if (map) r.file->map = *map;
    if (io)
        r.file->io =
            (ph_io){.alloc = io->alloc, .release = io->release, .user = io->user};
    ph_status status = read_all(&r);
    if (status == PH_OK) {
        *out = r.file;
    } else {
        r.file->map = (ph_map){0};
        ph_file_free(r.file);
    }
    return status;
}

ph_status ph_file_map(ph_file **out, const char *path, const ph_io *io)
{
    ph_map map;
    if (out) *out = NULL;
    if (!out || !path) return ph_io_null(io, "out or path");
    PH_TRY(ph_map_open(&map, path, io));
    ph_source source = ph_source_memory(path, map.bytes, map.size);
    ph_status status = read_source(out, &source, &map, io);
    if (status != PH_OK) ph_map_close(&map);
    return status;
}

ph_status ph_file_read(ph_file **out, const char *path, const ph_io *io)
{
    ph_source source;
    if (out) *out = NULL;
    if (!out || !path) return ph_io_null(io, "out or path");
    PH_TRY(ph_source_open(&source, path, io));
    ph_status status = read_source(out, &source, NULL, io);
    ph_source_close(&source);
    return status;
}

ph_status ph_file_parse(ph_file **out, const char *name, const void *bytes, size_t size,
                        const ph_io *io)
{
    ph_source source = ph_source_memory(name, bytes, size);
    if (out) *out = NULL;
    if (!out || !name || (size && !bytes)) return ph_io_null(io, "out, name or bytes");
    return read_source(out, &source, NULL, io);
}

void ph_file_free(ph_file *file)
{
    if (!file) return;
    ph_io io = file->io; /* the file holds the hooks that release it */
    ph_io_release(&io, file->data);
    ph_map_close(&file->map);
    ph_io_release(&io, file->pairs);
    ph_io_release(&io, file->by_name);
    ph_io_release(&io, file->entries);
    ph_io_release(&io, file->header);
    ph_io_release(&io, file);
}

const ph_tensor *ph_file_tensor(const ph_file *file, size_t i)
{
    return file && i < file->count ? &file->entries[i].tensor : NULL;
}

const ph_pair *ph_file_metadata(const ph_file *file, size_t i)
{
    return file && i < file->pair_count ? &file->pairs[i] : NULL;
}

const ph_tensor *ph_file_find(const ph_file *file, const char *name)
{
    if (!file || !name) return NULL;
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(file->by_name[middle]->name, name);
        if (order == 0) return file->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
