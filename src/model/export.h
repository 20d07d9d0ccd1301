/*
 * export.h - files that a folder has beside config.json and its tensors.
 */
#ifndef PH_MODEL_EXPORT_H
#define PH_MODEL_EXPORT_H

#include "model/model.h"

enum { PH_EXPORT_FILES = 3, PH_EXPORT_TEXT = 2048 };

typedef struct ph_export_file {
    const char *name;
    const char *prefix; /* of its keys where a checkpoint is read */
    char text[PH_EXPORT_TEXT];
    size_t length;
} ph_export_file;

typedef struct ph_export_files {
    ph_export_file file[PH_EXPORT_FILES];
    int count;
} ph_export_files;

/* Those that this model needs. */
void ph_export_list(const ph_model *m, ph_export_files *files);

#endif
