/*
 * features.c - features of sound from a file: one F32 tensor (mels, frames), as .npy or
 * safetensors.
 *
 * .npy: "\x93NUMPY", version, the length of a header in little endian, the header, a dict
 * of Python in ASCII: {'descr': '<f4', 'fortran_order': False, 'shape': (80, 3000), },
 * and the elements.
 */
#include "model/features.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

typedef struct feature_file {
    const ph_model *m;
    const char *path;
    size_t shape[3];
    int rank;
    const void *data;
    size_t bytes;
} feature_file;

static ph_status refuse(const feature_file *f, const char *what)
{
    return ph_fail(f->m->ctx, PH_BAD_FILE,
                   "'%.200s' %s, expected F32 features (%d, frames) in .npy or "
                   "safetensors",
                   f->path, what, f->m->config.mels);
}

/* ---- .npy -------------------------------------------------------------------------- */

/* What stands behind a key of the header and its colon; NULL: there is no such key. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    return at + strspn(at, "': ");
}

static ph_status read_shape(feature_file *f, const char *at)
{
    if (*at++ != '(') return refuse(f, "has no shape");
    for (f->rank = 0; f->rank < 3; f->rank++) {
        char *end;
        at += strspn(at, ", ");
        if (*at < '0' || *at > '9') break;
        f->shape[f->rank] = (size_t)strtoull(at, &end, 10);
        at = end;
    }
    at += strspn(at, ", ");
    return *at == ')' ? PH_OK : refuse(f, "has a shape that cannot be read");
}

static ph_status read_npy(feature_file *f, const ph_map *map)
{
    char header[512];
    size_t wide = map->bytes[6] >= 2, start = wide ? 12 : 10, length = 0;
    if (map->size < start) return refuse(f, "ends in its header");
    for (size_t i = start; i > 8; i--) length = length << 8 | map->bytes[i - 1];
    if (length >= sizeof header || length > map->size - start)
        return refuse(f, "ends in its header");
    memcpy(header, map->bytes + start, length);
    header[length] = 0;
    const char *type = value_of(header, "'descr'");
    const char *order = value_of(header, "'fortran_order'");
    const char *shape = value_of(header, "'shape'");
    if (!type || !order || !shape) return refuse(f, "has no header of NumPy");
    if (strncmp(type, "<f4", 3)) return refuse(f, "is not of type '<f4'");
    if (strncmp(order, "False", 5)) return refuse(f, "is in Fortran order");
    f->data = map->bytes + start + length;
    f->bytes = map->size - start - length;
    return read_shape(f, shape);
}

/* ---- either ------------------------------------------------------------------------ */

static ph_status read_tensors(feature_file *f, const ph_file *file)
{
    const ph_tensor *t = ph_file_tensor(file, 0);
    if (!t || ph_file_tensor(file, 1)) return refuse(f, "has not one tensor");
    if (t->type != PH_F32) return refuse(f, "is of another type");
    f->rank = t->rank > 3 ? 4 : t->rank;
    for (int i = 0; i < t->rank && i < 3; i++) f->shape[i] = t->shape[i];
    f->data = t->data, f->bytes = t->bytes;
    return PH_OK;
}

static int are_finite(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return 0;
    return 1;
}

/* Frames come in pairs, of which the encoder makes a row. */
static ph_status copy_features(feature_file *f, float **features, int *rows)
{
    const ph_config *c = &f->m->config;
    size_t count, most = 2 * (size_t)ph_config_source_len(c);
    if (f->rank == 3 && f->shape[0] == 1)
        f->rank = 2, f->shape[0] = f->shape[1], f->shape[1] = f->shape[2];
    if (f->rank != 2 || f->shape[0] != (size_t)c->mels)
        return refuse(f, "has another shape");
    if (!f->shape[1] || f->shape[1] % 2 || f->shape[1] > most)
        return ph_fail(f->m->ctx, PH_BAD_SHAPE,
                       "'%.200s' has %zu frames, expected an even number up to %zu",
                       f->path, f->shape[1], most);
    count = f->shape[0] * f->shape[1];
    if (f->bytes != count * sizeof(float)) return refuse(f, "has another size");
    *features = ph_ctx_alloc(f->m->ctx, f->bytes);
    if (!*features)
        return ph_fail(f->m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu features", count);
    memcpy(*features, f->data, f->bytes);
    if (!are_finite(*features, count)) {
        ph_ctx_release(f->m->ctx, *features);
        *features = NULL;
        return ph_fail(f->m->ctx, PH_BAD_VALUE,
                       "'%.200s' holds NaN or Inf, expected finite features", f->path);
    }
    *rows = (int)(f->shape[1] / 2);
    return PH_OK;
}

static ph_status parse_tensors(feature_file *f, const ph_map *map, float **features,
                               int *rows)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_file *file;
    ph_status status = ph_file_parse(&file, f->path, map->bytes, map->size, &io);
    if (status != PH_OK) return ph_fail(f->m->ctx, status, "%s", error);
    status = read_tensors(f, file);
    if (status == PH_OK) status = copy_features(f, features, rows);
    ph_file_free(file);
    return status;
}

static ph_status parse_features(feature_file *f, const ph_map *map, float **features,
                                int *rows)
{
    if (map->size < 8 || memcmp(map->bytes, "\x93NUMPY", 6))
        return parse_tensors(f, map, features, rows);
    PH_TRY(read_npy(f, map));
    return copy_features(f, features, rows);
}

ph_status ph_features_open(const ph_model *m, const char *path, const ph_map *file,
                           float **features, int *rows)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    feature_file f = {.m = m, .path = path};
    ph_map map;
    *features = NULL, *rows = 0;
    if (file) return parse_features(&f, file, features, rows);
    ph_status status = ph_map_open(&map, path, &io);
    if (status != PH_OK) return ph_fail(m->ctx, status, "%s", error);
    status = parse_features(&f, &map, features, rows);
    ph_map_close(&map);
    return status;
}
