/*
 * safetensors.h - the limits of the format that reader and writer share, and the writer
 * for tensors that are not in memory.
 */
#ifndef PH_IO_SAFETENSORS_H
#define PH_IO_SAFETENSORS_H

#include "io/file.h"

enum {
    PH_SAFETENSORS_HEADER =
        100000000, /* bytes of the header, as in the format's reader */
    PH_SAFETENSORS_TENSORS = 1 << 20,
    PH_SAFETENSORS_NAME = 1024, /* bytes of a name */
    PH_SAFETENSORS_DEPTH = 8
};

/* Writes the elements of a tensor, all its bytes, in pieces of its own choice. */
typedef ph_status ph_tensor_writer(void *user, const ph_tensor *tensor,
                                   ph_output *output);

/* ph_file_write for tensors whose data is made while it is written: their `data` is
   for the writer to use as it likes, so a file may be larger than memory. */
ph_status ph_safetensors_write(const char *path, const ph_tensor *tensors, size_t count,
                               ph_tensor_writer *writer, void *user, const ph_io *io);

#endif
