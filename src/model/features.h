/*
 * features.h - features of sound that an encoder reads in place of tokens.
 */
#ifndef PH_MODEL_FEATURES_H
#define PH_MODEL_FEATURES_H

#include "model/model.h"

/* Features in a file, (mels, 2 rows), for as many rows of the encoder; ph_ctx_release
   gives them back. */
ph_status ph_features_open(const ph_model *m, const char *path, float **features,
                           int *rows);

#endif
