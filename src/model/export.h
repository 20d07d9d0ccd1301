/*
 * export.h - models as Hugging Face folders: what a folder has beside config.json and its
 * tensors (export_files.c), and all of it (export.c).
 */
#ifndef PH_MODEL_EXPORT_H
#define PH_MODEL_EXPORT_H

#include "io/directory.h"
#include "io/json_write.h"
#include "model/model.h"

enum { PH_EXPORT_FILES = 6, PH_EXPORT_TEXT = 1 << 15 };

typedef struct ph_export_file {
    const char *name;
    const char *prefix; /* of its keys where a checkpoint is read */
    char text[PH_EXPORT_TEXT];
    size_t length; /* more than the text holds: it was cut off */
} ph_export_file;

typedef struct ph_export_files {
    ph_export_file file[PH_EXPORT_FILES];
    int count;
} ph_export_files;

/* The folder of a Dense module. */
#define PH_EXPORT_DENSE "2_Dense"

/* Whether a model is written with the files of sentence-transformers. */
static inline int ph_export_is_sentence(const ph_config *c)
{
    return !c->image_size && c->pooling && !c->classes && !c->masked;
}

/* Those that this model needs. */
ph_status ph_export_list(const ph_model *m, ph_export_files *files);

/* Tokens that begin, end and pad a text, as fields of a configuration. */
void ph_export_marks(const ph_model *m, ph_json_writer *json);

/* A model that is no Hugging Face folder, into the folder `to`. */
ph_status ph_export_model(ph_ctx *ctx, const char *from, const ph_directory *to,
                          const ph_dtype *type, const ph_io *io);

#endif
