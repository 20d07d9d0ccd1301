/*
 * folder_copy.c - a Hugging Face folder written as another one; see checkpoint.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/half.h"
#include "checkpoint/checkpoint.h"
#include "io/file.h"
#include "io/json_read.h"
#include "io/safetensors.h"

/* What a folder may hold besides tensors: configuration, tokenizer, templates. */
static const char *const companions[] = {"generation_config.json",
                                         "tokenizer.json",
                                         "target_tokenizer.json",
                                         "tokenizer_config.json",
                                         "tokenizer.model",
                                         "special_tokens_map.json",
                                         "added_tokens.json",
                                         "vocab.txt",
                                         "vocab.json",
                                         "merges.txt",
                                         "spiece.model",
                                         "source.spm",
                                         "target.spm",
                                         "chat_template.json",
                                         "chat_template.jinja",
                                         "preprocessor_config.json",
                                         "modules.json",
                                         "config_sentence_transformers.json"};

enum { PIECE = 4096 }; /* elements that are converted at a time */

typedef struct copying {
    const ph_directory *to;
    const char *path;
    const ph_dtype *type;
    const ph_io *io;
} copying;

const char *ph_folder_dtype(ph_dtype type)
{
    return type == PH_F16 ? "float16" : type == PH_BF16 ? "bfloat16" : "float32";
}

static ph_status path_of(const copying *c, const char *name, char path[PH_DIRECTORY_PATH])
{
    int length = snprintf(path, PH_DIRECTORY_PATH, "%s/%s", c->path, name);
    if (length > 0 && length < PH_DIRECTORY_PATH) return PH_OK;
    return ph_io_fail(c->io, PH_IO_ERROR, "the path %.200s... is too long", c->path);
}

static ph_status copy_file(const copying *c, const char *name)
{
    char path[PH_DIRECTORY_PATH];
    ph_map map;
    PH_TRY(path_of(c, name, path));
    if (!ph_source_exists(path)) return PH_OK;
    PH_TRY(ph_map_open(&map, path, c->io));
    ph_status status = ph_directory_write(c->to, name, map.bytes, map.size);
    ph_map_close(&map);
    return status;
}

static ph_status copy_companions(const copying *c, const ph_checkpoint *from)
{
    const char *const modules[] = {from->pooling, from->dense};
    for (size_t i = 0; i < sizeof companions / sizeof companions[0]; i++)
        PH_TRY(copy_file(c, companions[i]));
    for (int i = 0; ph_sentence_files[i]; i++) PH_TRY(copy_file(c, ph_sentence_files[i]));
    for (int i = 0; i < 2; i++) {
        char name[PH_MODULE_PATH + 16];
        snprintf(name, sizeof name, "%s/config.json", modules[i]);
        if (modules[i][0]) PH_TRY(copy_file(c, name));
    }
    return PH_OK;
}

/* ---- config.json ------------------------------------------------------------------- */

/* Where the next value of a key dtype or torch_dtype lies in the text, quotes included;
   0: there is none left. `json` decodes a copy of it in place. */
static int find_dtype(ph_json_reader *json, size_t *begin, size_t *end)
{
    ph_json_token token;
    while ((token = ph_json_next(json)) > PH_JSON_END) {
        if (token != PH_JSON_KEY) continue;
        if (strcmp(json->text, "dtype") && strcmp(json->text, "torch_dtype")) continue;
        if (ph_json_next(json) != PH_JSON_STRING) continue;
        *begin = (size_t)(json->text - json->input) - 1;
        *end = json->at;
        return 1;
    }
    return 0;
}

/* The text with every dtype replaced; out holds twice its size. */
static ph_status replace_dtypes(const copying *c, const char *text, size_t size,
                                char *copy, char *out, size_t *length)
{
    ph_json_reader json;
    size_t done = 0, begin, end;
    *length = 0;
    memcpy(copy, text, size);
    ph_json_open(&json, copy, size, (ph_json_limits){PH_JSON_MAX_DEPTH, size}, c->io);
    while (find_dtype(&json, &begin, &end)) {
        memcpy(out + *length, text + done, begin - done);
        *length += begin - done;
        *length += (size_t)sprintf(out + *length, "\"%s\"", ph_folder_dtype(*c->type));
        done = end;
    }
    memcpy(out + *length, text + done, size - done);
    *length += size - done;
    ph_status status = json.token == PH_JSON_ERROR ? json.status : PH_OK;
    ph_json_close(&json);
    return status;
}

static ph_status write_config(const copying *c, const ph_map *map)
{
    const char *text = (const char *)map->bytes;
    if (!c->type) return ph_directory_write(c->to, "config.json", text, map->size);
    /* "dtype":"" has 10 bytes and becomes at most 18: twice the size is enough */
    size_t length = 0, bytes = 3 * map->size;
    char *copy = ph_io_alloc(c->io, bytes);
    if (!copy) return ph_io_no_memory(c->io, bytes, "config.json");
    ph_status status =
        replace_dtypes(c, text, map->size, copy, copy + map->size, &length);
    if (status == PH_OK)
        status = ph_directory_write(c->to, "config.json", copy + map->size, length);
    else
        ph_io_fail(c->io, status, "config.json is not valid JSON");
    ph_io_release(c->io, copy);
    return status;
}

static ph_status copy_config(const copying *c)
{
    char path[PH_DIRECTORY_PATH];
    ph_map map;
    PH_TRY(path_of(c, "config.json", path));
    PH_TRY(ph_map_open(&map, path, c->io));
    ph_status status = write_config(c, &map);
    ph_map_close(&map);
    return status;
}

/* ---- tensors ----------------------------------------------------------------------- */

static int is_converted(const ph_tensor *t, const ph_dtype *type)
{
    int floats = t->type == PH_F32 || t->type == PH_F16 || t->type == PH_BF16;
    return type && floats && t->type != *type;
}

static int overflows(ph_dtype type, float value)
{
    if (type == PH_F16) return (ph_to_f16(value) & 0x7fff) == 0x7c00;
    return type == PH_BF16 && (ph_to_bf16(value) & 0x7fff) == 0x7f80;
}

ph_status ph_folder_holds(ph_dtype type, float value, const char *tensor, const ph_io *io)
{
    /* most values are far from any limit */
    if (fabsf(value) <= 65504 || !isfinite(value) || !overflows(type, value))
        return PH_OK;
    return ph_io_fail(io, PH_BAD_VALUE, "tensor %s holds %.6g, which %s cannot hold: %s",
                      ph_io_quote(tensor, strlen(tensor)).text, (double)value,
                      type == PH_F16 ? "f16" : "bf16",
                      overflows(PH_BF16, value) ? "f32 can" : "bf16 and f32 can");
}

/* Where a conversion made a value infinite that was not. */
static ph_status check_piece(const ph_tensor *some, const ph_tensor *to, const ph_io *io)
{
    float value[PIECE];
    if (to->type == PH_F32) return PH_OK;
    PH_TRY(ph_tensor_convert(some, PH_F32, value));
    for (size_t i = 0; i < some->shape[0]; i++)
        PH_TRY(ph_folder_holds(to->type, value[i], to->name, io));
    return PH_OK;
}

/* Elements of another type, a piece at a time: data is the tensor as it is stored. */
static ph_status write_tensor(void *user, const ph_tensor *tensor, ph_output *output)
{
    const ph_tensor *from = tensor->data;
    const ph_io *io = user;
    float piece[PIECE];
    if (from->type == tensor->type)
        return ph_output_write(output, from->data, from->bytes);
    size_t unit = ph_dtype_bytes(from->type, 1), count = from->bytes / unit;
    for (size_t at = 0; at < count; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        ph_tensor some = {.type = from->type,
                          .rank = 1,
                          .shape = {n},
                          .data = (const char *)from->data + at * unit};
        PH_TRY(check_piece(&some, tensor, io));
        PH_TRY(ph_tensor_convert(&some, tensor->type, piece));
        PH_TRY(ph_output_write(output, piece, ph_dtype_bytes(tensor->type, n)));
    }
    return PH_OK;
}

/* The tensors of some files, under the names they have there. */
static size_t list_tensors(const ph_checkpoint *c, size_t first, size_t end,
                           const ph_dtype *type, ph_tensor *list)
{
    const ph_tensor *t;
    size_t count = 0;
    for (size_t f = first; f < end; f++)
        for (size_t i = 0; (t = ph_file_tensor(c->files[f], i)); i++) {
            list[count] = *t;
            if (is_converted(t, type)) list[count].type = *type;
            list[count++].data = t;
        }
    return count;
}

static ph_status copy_tensors(const copying *c, const ph_checkpoint *from, size_t first,
                              size_t end, const char *name)
{
    char path[PH_DIRECTORY_PATH];
    PH_TRY(ph_directory_file(c->to, name, path));
    ph_tensor *list = ph_io_alloc(c->io, (from->count + 1) * sizeof *list);
    if (!list) return ph_io_no_memory(c->io, from->count * sizeof *list, "tensors");
    size_t count = list_tensors(from, first, end, c->type, list);
    ph_status status = ph_safetensors_write(path, list, count, write_tensor,
                                            (void *)c->io, c->io);
    ph_io_release(c->io, list);
    return status;
}

ph_status ph_folder_copy(const ph_checkpoint *from, const char *path,
                         const ph_directory *to, const ph_dtype *type, const ph_io *io)
{
    const copying c = {to, path, type, io};
    PH_TRY(copy_config(&c));
    PH_TRY(copy_companions(&c, from));
    size_t files = from->file_count - from->module_files;
    PH_TRY(copy_tensors(&c, from, 0, files, "model.safetensors"));
    if (!from->module_files) return PH_OK;
    char name[PH_MODULE_PATH + 24];
    snprintf(name, sizeof name, "%s/model.safetensors", from->dense);
    return copy_tensors(&c, from, files, from->file_count, name);
}
