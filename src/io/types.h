/*
 * types.h - the element types of safetensors by name, and the size of a tensor.
 */
#ifndef PH_IO_TYPES_H
#define PH_IO_TYPES_H

#include "polyhead_io.h"

/* 0 if the name is a type. */
int ph_types_find(const char *name, size_t length, ph_tensor_type *out);

/* Bytes of the tensor's data from its type and shape. NULL, or what is wrong with them:
   "the product of its shape overflows". */
const char *ph_types_bytes(const ph_tensor *tensor, size_t *bytes);

#endif
