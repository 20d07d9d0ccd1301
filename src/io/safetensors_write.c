/*
 * safetensors_write.c - ph_file_write of polyhead_io.h.
 *
 * The order of the tensors is the one of the format's own writer: types with the largest
 * alignment first, then names. So every tensor is aligned in the file, whatever the
 * others are, and the same tensors give the same bytes.
 */
#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "base/reserved.h"
#include "base/size.h"
#include "io/file.h"
#include "io/json_write.h"
#include "io/safetensors.h"
#include "io/sort.h"
#include "io/types.h"
#include "io/utf8.h"

/* What is to be written, in order, and the header that grows from it. */
typedef struct writing {
    const ph_io *io;
    const ph_tensor **tensors; /* sorted */
    size_t count;
    const ph_pair **pairs; /* sorted */
    size_t pair_count;
    void *header;
    size_t length, capacity;  /* of the header, bytes */
    int failed;               /* 1: no memory for the header */
    ph_tensor_writer *writer; /* of the data */
    void *user;
} writing;

/* ---- checks ------------------------------------------------------------------------ */

static ph_status check_text(const ph_io *io, const char *text, const char *what)
{
    if (!text) return ph_io_fail(io, PH_BAD_ARGUMENT, "%s is NULL", what);
    if (ph_utf8_valid(text, strlen(text)) < strlen(text))
        return ph_io_fail(io, PH_BAD_ARGUMENT, "%s %s is not valid UTF-8", what,
                          ph_io_quote(text, strlen(text)).text);
    return PH_OK;
}

static ph_status check_tensor(const ph_io *io, const ph_tensor *tensor, int in_memory,
                              size_t *total)
{
    const char *type_name = ph_dtype_name(tensor->type);
    size_t bytes = 0;
    PH_TRY(check_text(io, tensor->name, "tensor name"));
    ph_io_quoted name = ph_io_quote(tensor->name, strlen(tensor->name));
    if (strlen(tensor->name) > PH_SAFETENSORS_NAME)
        return ph_io_fail(io, PH_BAD_ARGUMENT,
                          "tensor %s: its name has %zu bytes, at most "
                          "%d are allowed",
                          name.text, strlen(tensor->name), PH_SAFETENSORS_NAME);
    if (strcmp(tensor->name, "__metadata__") == 0)
        return ph_io_fail(io, PH_BAD_ARGUMENT,
                          "tensor %s: the format keeps this name for "
                          "metadata",
                          name.text);
    if (ph_types_rank(tensor->type) < 0)
        return ph_io_fail(io, PH_BAD_ARGUMENT,
                          "tensor %s: type %d (%s) is none of the format", name.text,
                          (int)tensor->type, type_name ? type_name : "unknown");
    if (!PH_ALL_ZERO(tensor->reserved))
        return ph_io_fail(io, PH_BAD_ARGUMENT, "tensor %s: reserved " PH_RESERVED_WORDS,
                          name.text);
    if (tensor->rank < 0 || tensor->rank > PH_MAX_RANK)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "tensor %s: rank is %d, expected 0 to %d",
                          name.text, tensor->rank, PH_MAX_RANK);
    const char *wrong = ph_types_bytes(tensor, &bytes);
    for (int i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] > INT64_MAX) wrong = "a size in its shape is above 2^63";
    if (!wrong && ph_size_add(*total, bytes, total))
        wrong = "the file would be too large";
    if (!wrong && bytes > 0 && in_memory && !tensor->data) wrong = "its data is NULL";
    return wrong ? ph_io_fail(io, PH_BAD_ARGUMENT, "tensor %s: %s", name.text, wrong)
                 : PH_OK;
}

static ph_status write_data(void *user, const ph_tensor *tensor, ph_output *output);

static ph_status check_all(const writing *w, const ph_tensor *tensors,
                           const ph_pair *metadata)
{
    const ph_io *io = w->io;
    size_t total = 0, count = w->count, pairs = w->pair_count;
    int in_memory = w->writer == write_data;
    if (count > PH_SAFETENSORS_TENSORS)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "%zu tensors, at most %d are allowed",
                          count, PH_SAFETENSORS_TENSORS);
    for (size_t i = 0; i < count; i++)
        PH_TRY(check_tensor(io, &tensors[i], in_memory, &total));
    if (total > INT64_MAX)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "the file is too large");
    for (size_t i = 0; i < pairs; i++) {
        PH_TRY(check_text(io, metadata[i].key, "metadata key"));
        PH_TRY(check_text(io, metadata[i].value, "metadata value"));
    }
    return PH_OK;
}

/* ---- order ------------------------------------------------------------------------- */

static int compare_tensors(const void *left, const void *right)
{
    const ph_tensor *const *a = left, *const *b = right;
    int order = ph_types_rank((*b)->type) - ph_types_rank((*a)->type);
    if (order) return order;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_names(const void *left, const void *right)
{
    const ph_tensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static int compare_pairs(const void *left, const void *right)
{
    const ph_pair *const *a = left, *const *b = right;
    return strcmp((*a)->key, (*b)->key);
}

static ph_status sort_all(writing *w, const ph_tensor *tensors, const ph_pair *metadata)
{
    w->tensors = ph_io_alloc(w->io, w->count * sizeof *w->tensors);
    w->pairs = ph_io_alloc(w->io, w->pair_count * sizeof *w->pairs);
    if (!w->tensors || !w->pairs)
        return ph_io_no_memory(w->io, (w->count + w->pair_count) * sizeof *w->tensors,
                               "the order of the tensors");
    for (size_t i = 0; i < w->count; i++) w->tensors[i] = &tensors[i];
    for (size_t i = 0; i < w->pair_count; i++) w->pairs[i] = &metadata[i];
    ph_sort(w->tensors, w->count, sizeof *w->tensors, compare_names);
    for (size_t i = 1; i < w->count; i++)
        if (compare_names(&w->tensors[i - 1], &w->tensors[i]) == 0)
            return ph_io_fail(
                w->io, PH_BAD_ARGUMENT, "two tensors are called %s",
                ph_io_quote(w->tensors[i]->name, strlen(w->tensors[i]->name)).text);
    ph_sort(w->tensors, w->count, sizeof *w->tensors, compare_tensors);
    ph_sort(w->pairs, w->pair_count, sizeof *w->pairs, compare_pairs);
    for (size_t i = 1; i < w->pair_count; i++)
        if (compare_pairs(&w->pairs[i - 1], &w->pairs[i]) == 0)
            return ph_io_fail(
                w->io, PH_BAD_ARGUMENT, "two metadata keys are %s",
                ph_io_quote(w->pairs[i]->key, strlen(w->pairs[i]->key)).text);
    return PH_OK;
}

/* ---- header and data --------------------------------------------------------------- */

static void append(void *user, const char *bytes, size_t count)
{
    writing *w = user;
    if (w->failed || ph_io_grow(w->io, &w->header, &w->capacity, w->length + count, 1)) {
        w->failed = 1;
        return;
    }
    memcpy((char *)w->header + w->length, bytes, count);
    w->length += count;
}

static size_t bytes_of(const ph_tensor *tensor) /* checked before */
{
    size_t bytes = 0;
    (void)ph_types_bytes(tensor, &bytes);
    return bytes;
}

static void describe(ph_json_writer *json, const ph_tensor *tensor, size_t *offset)
{
    ph_json_begin_object(json, tensor->name);
    ph_json_string(json, "dtype", ph_dtype_name(tensor->type));
    ph_json_begin_array(json, "shape");
    for (int i = 0; i < tensor->rank; i++)
        ph_json_integer(json, NULL, (int64_t)tensor->shape[i]);
    ph_json_end(json);
    ph_json_begin_array(json, "data_offsets");
    ph_json_integer(json, NULL, (int64_t)*offset);
    *offset += bytes_of(tensor);
    ph_json_integer(json, NULL, (int64_t)*offset);
    ph_json_end(json);
    ph_json_end(json);
}

static ph_status make_header(writing *w)
{
    ph_json_writer json = {.write = append, .user = w};
    size_t offset = 0;
    ph_json_begin_object(&json, NULL);
    if (w->pair_count > 0) {
        ph_json_begin_object(&json, "__metadata__");
        for (size_t i = 0; i < w->pair_count; i++)
            ph_json_string(&json, w->pairs[i]->key, w->pairs[i]->value);
        ph_json_end(&json);
    }
    for (size_t i = 0; i < w->count; i++) describe(&json, w->tensors[i], &offset);
    ph_json_end(&json);
    append(w, "       ", (8 - w->length % 8) % 8);
    if (w->failed) return ph_io_no_memory(w->io, w->length, "the header");
    if (w->length > PH_SAFETENSORS_HEADER)
        return ph_io_fail(w->io, PH_BAD_ARGUMENT,
                          "the header would have %zu bytes, at most "
                          "%d are allowed",
                          w->length, PH_SAFETENSORS_HEADER);
    return PH_OK;
}

static ph_status write_data(void *user, const ph_tensor *tensor, ph_output *output)
{
    (void)user;
    return ph_output_write(output, tensor->data, bytes_of(tensor));
}

static ph_status write_parts(const writing *w, ph_output *output)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)w->length >> 8 * i);
    PH_TRY(ph_output_write(output, length, sizeof length));
    PH_TRY(ph_output_write(output, w->header, w->length));
    for (size_t i = 0; i < w->count; i++)
        PH_TRY(w->writer(w->user, w->tensors[i], output));
    return ph_output_commit(output);
}

static ph_status write_all(writing *w, const char *path, const ph_tensor *tensors,
                           const ph_pair *metadata)
{
    ph_output output;
    PH_TRY(check_all(w, tensors, metadata));
    PH_TRY(sort_all(w, tensors, metadata));
    PH_TRY(make_header(w));
    PH_TRY(ph_output_open(&output, path, w->io));
    ph_status status = write_parts(w, &output);
    ph_output_abandon(&output);
    return status;
}

static ph_status write_file(writing *w, const char *path, const ph_tensor *tensors,
                            const ph_pair *metadata)
{
    ph_status status = write_all(w, path, tensors, metadata);
    ph_io_release(w->io, w->header);
    ph_io_release(w->io, w->pairs);
    ph_io_release(w->io, w->tensors);
    return status;
}

ph_status ph_file_write(const char *path, const ph_tensor *tensors, size_t count,
                        const ph_pair *metadata, size_t pairs, const ph_io *io)
{
    if (!path || (count && !tensors) || (pairs && !metadata))
        return ph_io_null(io, "path, tensors or metadata");
    writing w = {.io = io, .count = count, .pair_count = pairs, .writer = write_data};
    return write_file(&w, path, tensors, metadata);
}

ph_status ph_safetensors_write(const char *path, const ph_tensor *tensors, size_t count,
                               ph_tensor_writer *writer, void *user, const ph_io *io)
{
    const ph_pair format = {"format", "pt"}; /* transformers refuses files without it */
    writing w = {.io = io, .count = count, .pair_count = 1, .writer = writer};
    w.user = user;
    return write_file(&w, path, tensors, &format);
}
