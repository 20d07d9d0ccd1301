/*
 * features.h - files that an encoder reads in place of tokens: pictures, features of
 * sound.
 */
#ifndef PH_MODEL_FEATURES_H
#define PH_MODEL_FEATURES_H

#include "io/map.h"
#include "model/model.h"

/* Features in a file, (mels, 2 rows), for as many rows of the encoder; ph_ctx_release
   gives them back. file: its bytes, where path is only a name for sentences; or NULL. */
ph_status ph_features_open(const ph_model *m, const char *path, const ph_map *file,
                           float **features, int *rows);

/* As ph_model_open_picture; file as above. */
ph_status ph_picture_open(const ph_model *m, const char *path, const ph_map *file,
                          float *pixels);

#endif
