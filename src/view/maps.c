/*
 * maps.c - attention maps of a safetensors file as a report; see polyhead_maps.h.
 *
 * The file stays in memory; rows are converted to float when they are read.
 */
#include "polyhead_maps.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "io/io.h"
#include "io/sort.h"
#include "view/word_list.h"

enum { MAX_STACKS = 16, STACK_NAME = 64 };

/* A tensor, and its stack and layer by its name. */
typedef struct map_tensor {
    const ph_tensor *tensor;
    size_t number;     /* its last number; 0: there is none */
    size_t before, at; /* bytes of the name before the number, where it goes on */
} map_tensor;

typedef struct layer {
    const ph_tensor *tensor;
    size_t first; /* element where its (heads, rows, keys) begin */
    int heads;
} layer;

struct ph_maps {
    ph_io hooks;
    ph_file *file;
    char title[256];
    ph_words words[2]; /* keys, rows */
    ph_axis axes[2 + MAX_STACKS];
    int axis_count;
    ph_stack stacks[MAX_STACKS];
    char names[MAX_STACKS][STACK_NAME];
    layer *layers[MAX_STACKS]; /* of each stack */
    uint8_t *absent[MAX_STACKS];
    int rows[MAX_STACKS], keys[MAX_STACKS];
    int stack_count;
};

/* ---- names ---- */

/* "model.layers.11.attn": number 11, "model.layers." before, ".attn" after it. */
static map_tensor parse_name(const ph_tensor *tensor)
{
    const char *name = tensor->name;
    size_t end = strlen(name), start;
    while (end > 0 && !isdigit((unsigned char)name[end - 1])) end--;
    for (start = end; start > 0 && isdigit((unsigned char)name[start - 1]);) start--;
    map_tensor p = {tensor, 0, start, end};
    if (start == end) p.before = p.at = strlen(name);
    for (size_t i = start; i < end && p.number < SIZE_MAX / 10 - 9; i++)
        p.number = p.number * 10 + (size_t)(name[i] - '0');
    return p;
}

/* By the name without its number. */
static int compare_stems(const map_tensor *a, const map_tensor *b)
{
    size_t shorter = a->before < b->before ? a->before : b->before;
    int order = memcmp(a->tensor->name, b->tensor->name, shorter);
    if (order == 0) order = (a->before > b->before) - (a->before < b->before);
    return order ? order : strcmp(a->tensor->name + a->at, b->tensor->name + b->at);
}

static int compare_parts(const void *left, const void *right)
{
    const map_tensor *a = left, *b = right;
    int order = compare_stems(a, b);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

/* ---- tensors ---- */

static ph_status refuse(const ph_tensor *tensor, const char *expected, const ph_io *io)
{
    char found[200];
    ph_tensor_describe(tensor, found, sizeof found);
    return ph_io_fail(io, PH_BAD_SHAPE, "tensor %s is %s, expected %s",
                      ph_io_quote(tensor->name, strlen(tensor->name)).text, found,
                      expected);
}

static ph_status check_tensor(const map_tensor *p, int alone, const ph_io *io)
{
    const ph_tensor *t = p->tensor;
    int layers = t->rank == 4 && (alone || t->shape[0] == 1);
    if (t->type != PH_F32 && t->type != PH_F16 && t->type != PH_BF16)
        return refuse(t, "F32, F16 or BF16", io);
    if (t->rank != 3 && !layers)
        return refuse(t,
                      alone ? "(layers, heads, rows, keys) or (heads, rows, keys)"
                            : "(heads, rows, keys), as it is one layer of several",
                      io);
    for (int d = 0; d < t->rank; d++)
        if (t->shape[d] == 0 || t->shape[d] > INT32_MAX)
            return refuse(t, "no empty axis", io);
    return PH_OK;
}

/* Layers of the tensors of one stack, in order, into maps->layers[s]. */
static ph_status list_layers(ph_maps *maps, int s, const map_tensor *tensors,
                             size_t count, const ph_io *io)
{
    const ph_tensor *first = tensors[0].tensor;
    size_t layers = count == 1 && first->rank == 4 ? first->shape[0] : count;
    maps->layers[s] = ph_io_alloc(io, layers * sizeof(layer));
    if (!maps->layers[s]) return ph_io_no_memory(io, layers * sizeof(layer), "layers");
    for (size_t l = 0; l < layers; l++) {
        const ph_tensor *t = tensors[count == 1 ? 0 : l].tensor;
        const size_t *shape = t->shape + (t->rank == 4);
        size_t size = shape[0] * shape[1] * shape[2];
        maps->layers[s][l] = (layer){t, count == 1 ? l * size : 0, (int)shape[0]};
        if (l == 0) {
            maps->rows[s] = (int)shape[1];
            maps->keys[s] = (int)shape[2];
        }
        if ((int)shape[1] != maps->rows[s] || (int)shape[2] != maps->keys[s])
            return refuse(t, "as many rows and keys as the layers before", io);
        if ((int)shape[0] > maps->stacks[s].heads) maps->stacks[s].heads = (int)shape[0];
    }
    maps->stacks[s].layers = (int)layers;
    return PH_OK;
}

/* Marks heads that layers with fewer heads do not have. */
static ph_status mark_absent(ph_maps *maps, int s, const ph_io *io)
{
    ph_stack *stack = &maps->stacks[s];
    size_t count = (size_t)stack->layers * (size_t)stack->heads;
    uint8_t *absent = ph_io_alloc(io, count);
    maps->absent[s] = absent;
    if (!absent) return ph_io_no_memory(io, count, "heads");
    int any = 0;
    for (int l = 0; l < stack->layers; l++)
        for (int h = 0; h < stack->heads; h++) {
            int missing = h >= maps->layers[s][l].heads;
            absent[l * stack->heads + h] = (uint8_t)missing;
            any |= missing;
        }
    if (any) stack->absent = absent;
    return PH_OK;
}

static void name_stack(ph_maps *maps, int s, const map_tensor *p)
{
    char *name = maps->names[s];
    snprintf(name, STACK_NAME, "%.*s%s", (int)p->before, p->tensor->name,
             p->tensor->name + p->at);
    size_t length = strlen(name); /* "attentions." loses its full stop */
    while (length > 0 && strchr("._-", name[length - 1])) name[--length] = 0;
    maps->stacks[s].name = name;
}

static ph_status add_stack(ph_maps *maps, const map_tensor *tensors, size_t count,
                           const ph_io *io)
{
    int s = maps->stack_count;
    ph_status status = PH_OK;
    if (s == MAX_STACKS)
        return ph_io_fail(io, PH_BAD_SHAPE, "more than %d stacks of maps",
                          (int)MAX_STACKS);
    for (size_t n = 0; n < count && status == PH_OK; n++)
        status = check_tensor(&tensors[n], count == 1, io);
    maps->stack_count++;
    if (status == PH_OK) status = list_layers(maps, s, tensors, count, io);
    if (status == PH_OK) status = mark_absent(maps, s, io);
    if (status == PH_OK) name_stack(maps, s, &tensors[0]);
    return status;
}

static ph_status list_stacks(ph_maps *maps, const ph_io *io)
{
    size_t count = 0;
    while (ph_file_tensor(maps->file, count)) count++;
    if (count == 0)
        return ph_io_fail(io, PH_BAD_FILE, "the file holds no tensors, expected maps");
    map_tensor *tensors = ph_io_alloc(io, count * sizeof *tensors);
    if (!tensors) return ph_io_no_memory(io, count * sizeof *tensors, "names");
    for (size_t n = 0; n < count; n++)
        tensors[n] = parse_name(ph_file_tensor(maps->file, n));
    ph_sort(tensors, count, sizeof *tensors, compare_parts);
    ph_status status = PH_OK;
    for (size_t n = 0; n < count && status == PH_OK;) {
        size_t end = n + 1;
        while (end < count && compare_stems(&tensors[n], &tensors[end]) == 0) end++;
        status = add_stack(maps, tensors + n, end - n, io);
        n = end;
    }
    ph_io_release(io, tensors);
    return status;
}

/* ---- weights ---- */

static ph_status read_rows(const ph_maps *maps, int s, int l, int h, int row0, int rows,
                           float *out)
{
    const layer *from = &maps->layers[s][l];
    size_t keys = (size_t)maps->keys[s];
    size_t element =
        from->first + ((size_t)h * (size_t)maps->rows[s] + (size_t)row0) * keys;
    size_t bytes = ph_dtype_bytes(from->tensor->type, 1);
    ph_tensor view = {.name = from->tensor->name,
                      .type = from->tensor->type,
                      .rank = 2,
                      .shape = {(size_t)rows, keys},
                      .data = (const char *)from->tensor->data + element * bytes,
                      .bytes = (size_t)rows * keys * bytes};
    return ph_tensor_convert(&view, PH_F32, out);
}

static ph_status give_weights(void *user, int stack, int l, int head, int row0, int rows,
                              float *out)
{
    return read_rows(user, stack, l, head, row0, rows, out);
}

/* 1: only zeros above the bottom-right aligned diagonal. */
static int head_is_causal(const ph_maps *maps, int s, int l, int h, float *row)
{
    int offset = maps->keys[s] - maps->rows[s];
    for (int i = 0; i < maps->rows[s]; i++) {
        if (read_rows(maps, s, l, h, i, 1, row) != PH_OK) return 0;
        for (int j = i + offset + 1; j < maps->keys[s]; j++)
            if (row[j] != 0) return 0;
    }
    return 1;
}

static ph_status find_causal(ph_maps *maps, int s, const ph_io *io)
{
    ph_stack *stack = &maps->stacks[s];
    int offset = maps->keys[s] - maps->rows[s], causal = 1;
    if (maps->rows[s] < 2 || offset < 0) return PH_OK;
    float *row = ph_io_alloc(io, (size_t)maps->keys[s] * sizeof *row);
    if (!row) return ph_io_no_memory(io, (size_t)maps->keys[s] * sizeof *row, "a row");
    for (int l = 0; l < stack->layers && causal; l++)
        for (int h = 0; h < maps->layers[s][l].heads && causal; h++)
            causal = head_is_causal(maps, s, l, h, row);
    stack->causal = causal;
    if (causal) stack->q_offset = offset;
    ph_io_release(io, row);
    return PH_OK;
}

/* ---- words ---- */

static int contains(const char *text, const char *part_of_it)
{
    size_t length = strlen(part_of_it);
    for (; *text; text++) {
        size_t n = 0;
        while (n < length && tolower((unsigned char)text[n]) == part_of_it[n]) n++;
        if (n == length) return 1;
    }
    return 0;
}

static ph_status read_words(ph_maps *maps, const ph_maps_files *files, const ph_io *io)
{
    ph_status status = PH_OK;
    int rows = maps->rows[0], keys = maps->keys[0];
    if (files->tokens)
        status = ph_words_read(&maps->words[0], files->tokens, io);
    else
        status = ph_words_count(&maps->words[0], keys, io);
    if (status == PH_OK && files->row_tokens)
        status = ph_words_read(&maps->words[1], files->row_tokens, io);
    else if (status == PH_OK && rows != keys && !maps->stacks[0].causal)
        status = ph_words_count(&maps->words[1], rows, io);
    maps->axis_count = maps->words[1].words ? 2 : 1;
    for (int a = 0; a < maps->axis_count; a++)
        maps->axes[a] = (ph_axis){.name = a                      ? "rows"
                                          : maps->axis_count > 1 ? "keys"
                                                                 : "text",
                                  .tokens = maps->words[a].words,
                                  .count = maps->words[a].count};
    return status;
}

/* The axis of this length; `wanted` if both have it. -1: none. */
static int axis_of(const ph_maps *maps, int count, int wanted)
{
    int two = maps->words[1].words != NULL;
    if (two && maps->axes[wanted].count == count) return wanted;
    for (int a = 0; a < 1 + two; a++)
        if (maps->axes[a].count == count) return a;
    return -1;
}

static ph_status wrong_words(const ph_maps *maps, int count, const char *what, int s,
                             const ph_io *io)
{
    char lengths[80];
    int used = snprintf(lengths, sizeof lengths, "%d", maps->axes[0].count);
    if (maps->words[1].words)
        snprintf(lengths + used, sizeof lengths - (size_t)used, " and %d",
                 maps->axes[1].count);
    return ph_io_fail(io, PH_BAD_SHAPE, "the maps %s have %d %s, but there are %s words",
                      ph_io_quote(maps->names[s], strlen(maps->names[s])).text, count,
                      what, lengths);
}

/* Finds the axes of a stack. Causal maps with fewer rows than keys are the end of a text
   whose start was cached. */
static ph_status join_axes(ph_maps *maps, int s, const ph_io *io)
{
    ph_stack *stack = &maps->stacks[s];
    int cross = contains(maps->names[s], "cross"),
        later = contains(maps->names[s], "dec");
    stack->k_axis = axis_of(maps, maps->keys[s], !cross && later);
    if (stack->k_axis < 0) return wrong_words(maps, maps->keys[s], "keys", s, io);
    if (stack->causal && stack->q_offset > 0) {
        const ph_axis *keys = &maps->axes[stack->k_axis];
        stack->q_axis = maps->axis_count++;
        maps->axes[stack->q_axis] =
            (ph_axis){.name = "last rows",
                      .tokens = keys->tokens + stack->q_offset,
                      .count = maps->rows[s]};
        return PH_OK;
    }
    stack->q_axis = axis_of(maps, maps->rows[s], cross || later);
    if (stack->q_axis < 0) return wrong_words(maps, maps->rows[s], "rows", s, io);
    return PH_OK;
}

/* ---- all of it ---- */

static ph_status fill(ph_maps *maps, const ph_maps_files *files, const ph_io *io)
{
    const char *slash = strrchr(files->weights, '/');
    snprintf(maps->title, sizeof maps->title, "%s", slash ? slash + 1 : files->weights);
    ph_status status = ph_file_read(&maps->file, files->weights, io);
    if (status == PH_OK) status = list_stacks(maps, io);
    for (int s = 0; s < maps->stack_count && status == PH_OK; s++)
        if (!contains(maps->names[s], "cross")) status = find_causal(maps, s, io);
    if (status == PH_OK) status = read_words(maps, files, io);
    for (int s = 0; s < maps->stack_count && status == PH_OK; s++)
        status = join_axes(maps, s, io);
    return status;
}

ph_status ph_maps_read(ph_maps **out, const ph_maps_files *files, const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !files) return ph_io_null(io, "out or files");
    PH_IO_CHECK_RESERVED(io, "ph_maps_files", files->reserved);
    if (!files->weights) return ph_io_null(io, "ph_maps_files.weights");
    ph_maps *maps = ph_io_alloc(io, sizeof *maps);
    if (!maps) return ph_io_no_memory(io, sizeof *maps, "maps");
    memset(maps, 0, sizeof *maps);
    maps->hooks = ph_io_hooks(io);
    ph_status status = fill(maps, files, io);
    if (status == PH_OK)
        *out = maps;
    else
        ph_maps_free(maps);
    return status;
}

void ph_maps_free(ph_maps *maps)
{
    if (!maps) return;
    ph_io hooks = maps->hooks;
    for (int s = 0; s < maps->stack_count; s++) {
        ph_io_release(&hooks, maps->layers[s]);
        ph_io_release(&hooks, maps->absent[s]);
    }
    ph_words_free(&maps->words[0], &hooks);
    ph_words_free(&maps->words[1], &hooks);
    ph_file_free(maps->file);
    ph_io_release(&hooks, maps);
}

ph_report ph_maps_report(const ph_maps *maps)
{
    if (!maps) return (ph_report){0};
    return (ph_report){.title = maps->title,
                       .text = "",
                       .axes = maps->axes,
                       .axis_count = maps->axis_count,
                       .stacks = maps->stacks,
                       .stack_count = maps->stack_count,
                       .weights = give_weights,
                       .rows = give_weights,
                       .user = (void *)maps};
}
