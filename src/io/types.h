/*
 * types.h - the element types of safetensors by name, and the size of a tensor.
 */
#ifndef PH_IO_TYPES_H
#define PH_IO_TYPES_H

#include "polyhead_io.h"

/* Where the format's order has the type, smallest alignment first; -1: it does not have
   it. */
int ph_types_rank(ph_dtype type);

/* 0 if the name is a type of the format. */
int ph_types_find(const char *name, size_t length, ph_dtype *out);

/* Bytes of the tensor's data from its type and shape. NULL, or what is wrong with them:
   "the product of its shape overflows". */
const char *ph_types_bytes(const ph_tensor *tensor, size_t *bytes);

#endif
