/*
 * images.h - the compiled kernels, embedded by tools/embed: one image per file .cu.
 */
#ifndef PH_CUDA_IMAGES_H
#define PH_CUDA_IMAGES_H

#include <stddef.h>

typedef struct ph_cuda_image {
    const char *name;          /* "plain_forward.fatbin"; NULL ends the list */
    const unsigned char *data; /* aligned as the driver wants it */
    size_t size;
} ph_cuda_image;

/* Empty in a build without nvcc. */
extern const ph_cuda_image ph_cuda_images[];

#endif
