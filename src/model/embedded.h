/*
 * embedded.h - the bytes of the embedded model; made from models/ by tools/embed.
 */
#ifndef PH_MODEL_EMBEDDED_H
#define PH_MODEL_EMBEDDED_H

#include "model/store.h"

extern const unsigned char ph_model_pronouns_safetensors[];
extern const size_t ph_model_pronouns_safetensors_size;

#endif
