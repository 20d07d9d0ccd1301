/*
 * open.c - what kind of checkpoint a path is, and the tensors of one; see checkpoint.h.
 */
#define _XOPEN_SOURCE 700 /* stat */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/gguf.h"
#include "io/sort.h"

/* ---- tensors ----------------------------------------------------------------------- */

ph_status ph_checkpoint_keep(ph_checkpoint *c, size_t bytes, void **out, const ph_io *io)
{
    void *list = c->memory;
    ph_status status = ph_io_grow(&c->io, &list, &c->memory_capacity, c->memory_count + 1,
                                  sizeof *c->memory);
    c->memory = list;
    *out = status == PH_OK ? ph_io_alloc(&c->io, bytes) : NULL;
    if (!*out) return ph_io_no_memory(io, bytes, "a checkpoint");
    c->memory[c->memory_count++] = *out;
    return PH_OK;
}

ph_status ph_checkpoint_add(ph_checkpoint *c, const ph_stored *stored, const ph_io *io)
{
    void *list = c->tensors;
    ph_status status =
        ph_io_grow(&c->io, &list, &c->capacity, c->count + 1, sizeof *c->tensors);
    c->tensors = list;
    if (status != PH_OK)
        return ph_io_no_memory(io, c->count * sizeof *stored, "the list of tensors");
    c->tensors[c->count++] = *stored;
    return PH_OK;
}

static int compare_names(const void *left, const void *right)
{
    const ph_stored *const *a = left, *const *b = right;
    return strcmp((*a)->tensor.name, (*b)->tensor.name);
}

/* Sorts pointers, then moves each entry once: an entry is larger than ph_sort takes. */
ph_status ph_checkpoint_sort(ph_checkpoint *c, const char *name, const ph_io *io)
{
    size_t bytes = c->count * sizeof *c->tensors;
    ph_stored *sorted = ph_io_alloc(&c->io, bytes);
    const ph_stored **order = ph_io_alloc(io, c->count * sizeof *order);
    ph_status status = PH_OK;
    if (!sorted || !order) {
        ph_io_release(&c->io, sorted);
        ph_io_release(io, order);
        return ph_io_no_memory(io, bytes, "the list of tensors");
    }
    for (size_t i = 0; i < c->count; i++) order[i] = &c->tensors[i];
    ph_sort(order, c->count, sizeof *order, compare_names);
    for (size_t i = 0; i < c->count; i++) sorted[i] = *order[i];
    for (size_t i = 1; i < c->count && status == PH_OK; i++) {
        const char *tensor = sorted[i].tensor.name;
        if (!strcmp(sorted[i - 1].tensor.name, tensor))
            status = ph_io_fail(io, PH_BAD_FILE, "%.200s: tensor %s exists twice", name,
                                ph_io_quote(tensor, strlen(tensor)).text);
    }
    ph_io_release(io, order);
    ph_io_release(&c->io, c->tensors);
    c->tensors = sorted, c->capacity = c->count;
    return status;
}

ph_stored *ph_checkpoint_find(const ph_checkpoint *c, const char *name)
{
    size_t low = 0, high = c->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(c->tensors[middle].tensor.name, name);
        if (order == 0) return &c->tensors[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

ph_status ph_checkpoint_load(ph_checkpoint *c, ph_stored *s, const ph_io *io)
{
    void *floats;
    if (s->tensor.data) return PH_OK;
    PH_TRY(ph_checkpoint_keep(c, s->tensor.bytes, &floats, io));
    ph_kquant_floats(s->raw_type, s->raw, s->tensor.bytes / sizeof(float), floats);
    s->tensor.data = floats;
    return PH_OK;
}

/* ---- opening ----------------------------------------------------------------------- */

static int begins(const ph_map *m, const char *bytes, size_t count)
{
    return m->size >= count && !memcmp(m->bytes, bytes, count);
}

/* Pickles, bare or in the archive that torch.save writes. */
static int is_pickle(const ph_map *m)
{
    return begins(m, "PK\3\4", 4) ||
           (m->size > 2 && m->bytes[0] == 0x80 && m->bytes[1] >= 2 && m->bytes[1] <= 5);
}

/* The length of a header, then a JSON object. */
static int is_safetensors(const ph_map *m)
{
    uint64_t length = 0;
    if (m->size < 10) return 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | m->bytes[i];
    return length <= m->size - 8 && m->bytes[8] == '{';
}

static ph_status read_safetensors(ph_checkpoint *c, const char *path, const ph_io *io)
{
    ph_file *file;
    const ph_pair *p;
    PH_TRY(ph_file_map(&file, path, io));
    int own = 0;
    for (size_t i = 0; (p = ph_file_metadata(file, i)); i++)
        own |= !strcmp(p->key, "polyhead.config");
    ph_file_free(file);
    c->kind = PH_CHECKPOINT_OWN;
    if (own) return PH_OK;
    return ph_io_fail(io, PH_BAD_FILE,
                      "%.200s has no configuration: give the folder that holds it "
                      "together with config.json",
                      path);
}

static ph_status read_file(ph_checkpoint *c, const char *path, const ph_io *io)
{
    PH_TRY(ph_map_open(&c->map, path, io));
    const ph_map *m = &c->map;
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (begins(m, "GGUF", 4)) return ph_gguf_read(c, path, m->bytes, m->size, io);
    if (ph_llama2c_fits(m->bytes, m->size)) return ph_llama2c_read(c, m->bytes, io);
    if (is_safetensors(m)) return read_safetensors(c, path, io);
    if (is_pickle(m)) return ph_io_fail(io, PH_UNSUPPORTED, PH_PICKLE_SENTENCE, name);
    return ph_io_fail(io, PH_BAD_FILE,
                      "%.200s is no checkpoint, expected a Hugging Face folder, a GGUF "
                      "file, a llama2.c file or a file this program wrote",
                      path);
}

static ph_status keep_path(ph_checkpoint *c, const char *path, const ph_io *io)
{
    size_t bytes = strlen(path) + 1;
    void *copy;
    PH_TRY(ph_checkpoint_keep(c, bytes, &copy, io));
    c->path = memcpy(copy, path, bytes);
    return PH_OK;
}

/* "name" or "owner/name", as model hubs have them. */
static int names_a_model(const char *path)
{
    const char *slash = strchr(path, '/');
    return path[0] != '.' && slash != path && (!slash || !strchr(slash + 1, '/'));
}

ph_status ph_checkpoint_open(ph_checkpoint **out, const char *path, const ph_io *io)
{
    struct stat info;
    ph_checkpoint *c = ph_io_alloc(io, sizeof *c);
    *out = NULL;
    if (!c) return ph_io_no_memory(io, sizeof *c, "a checkpoint");
    *c = (ph_checkpoint){.io = ph_io_hooks(io)};
    c->values.io = c->io;
    int there = stat(path, &info) == 0, missing = !there && errno == ENOENT;
    int folder = there && S_ISDIR(info.st_mode);
    ph_status status = keep_path(c, path, io);
    if (status == PH_OK && missing && names_a_model(path))
        status = ph_io_fail(io, PH_IO_ERROR,
                            "cannot read '%.200s': %s; models are read from disk, "
                            "nothing is downloaded",
                            path, ph_io_system_error(ENOENT).text);
    if (status == PH_OK)
        status = folder ? ph_folder_read(c, path, io) : read_file(c, path, io);
    if (status == PH_OK)
        *out = c;
    else
        ph_checkpoint_free(c);
    return status;
}

void ph_checkpoint_free(ph_checkpoint *c)
{
    if (!c) return;
    ph_io io = c->io; /* it holds the hooks that release it */
    for (size_t i = 0; i < c->file_count; i++) ph_file_free(c->files[i]);
    for (size_t i = 0; i < c->memory_count; i++) ph_io_release(&io, c->memory[i]);
    ph_io_release(&io, c->files);
    ph_io_release(&io, c->memory);
    ph_io_release(&io, c->tensors);
    ph_values_free(&c->values);
    ph_map_close(&c->map);
    ph_io_release(&io, c);
}
