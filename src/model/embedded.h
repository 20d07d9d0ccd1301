/*
 * embedded.h - the bytes of the embedded model; made from models/ by tools/embed.
 */
#ifndef PH_MODEL_EMBEDDED_H
#define PH_MODEL_EMBEDDED_H

#include "model/store.h"

extern const unsigned char ph_embedded_bytes[];
extern const size_t ph_embedded_size;

#endif
