/*
 * safetensors.h - the limits of the format that reader and writer share.
 */
#ifndef PH_IO_SAFETENSORS_H
#define PH_IO_SAFETENSORS_H

enum {
    PH_SAFETENSORS_HEADER =
        100000000, /* bytes of the header, as in the format's reader */
    PH_SAFETENSORS_TENSORS = 1 << 20,
    PH_SAFETENSORS_NAME = 1024, /* bytes of a name */
    PH_SAFETENSORS_DEPTH = 8
};

#endif
