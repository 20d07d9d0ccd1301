/*
 * store.h - model files: parameters as tensors, configuration and vocabulary as metadata.
 */
#ifndef PH_MODEL_STORE_H
#define PH_MODEL_STORE_H

#include "model/model.h"

/* What a checkpoint holds besides the model. */
typedef struct ph_store_extra {
    const ph_tensor *tensors;
    size_t tensor_count;
    const ph_pair *pairs;
    size_t pair_count;
} ph_store_extra;

/* Writes the model and more; the file's hash covers all of it. */
ph_status ph_store_write(const ph_model *model, const char *path,
                         const ph_store_extra *more);

/* Reads a file and verifies its hash. */
ph_status ph_store_open(ph_file **out, ph_ctx *ctx, const char *path);
ph_status ph_store_parse(ph_file **out, ph_ctx *ctx, const char *name, const void *bytes,
                         size_t size);

/* The model in it. */
ph_status ph_store_model(ph_model **out, ph_ctx *ctx, const ph_file *file,
                         const char *name);

/* The model in a checkpoint of another program, which it owns then. */
struct ph_checkpoint;
struct ph_import;
ph_status ph_model_import(ph_model **out, ph_ctx *ctx, struct ph_checkpoint *checkpoint,
                          const char *path);

/* preprocess.c: what preprocessor_config.json says of pictures. */
ph_status ph_preprocess_import(ph_model *m, struct ph_import *in);

/* Copies one tensor of exactly this many floats. */
ph_status ph_store_floats(ph_ctx *ctx, const ph_file *file, const char *name, float *to,
                          size_t count);

/* The value of a key of the metadata, or NULL. */
const char *ph_store_pair(const ph_file *file, const char *key);

#endif
