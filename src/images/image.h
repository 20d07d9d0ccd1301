/*
 * image.h - pictures from files, as 8-bit RGB, and their resizing.
 *
 *     image.c    which format a file has
 *     ppm.c      P6 and P3
 *     png.c      PNG without interlacing; decompress.c inflates its data
 *     jpeg.c     JPEG, baseline and progressive; see jpeg.h
 *     orientation.c  how a photo is rotated and mirrored
 *     resize.c   bilinear and bicubic with antialiasing, as Pillow computes them
 *
 * Files are hostile: every size is checked before it is multiplied, and memory is
 * allocated only in proportion to bytes that are there.
 */
#ifndef PH_IMAGES_IMAGE_H
#define PH_IMAGES_IMAGE_H

#include <stdint.h>

#include "io/io.h"

typedef struct ph_image {
    int width, height;
    uint8_t *rgb; /* (height, width, 3) */
} ph_image;

/* Reads PNG, JPEG or PPM; name stands in sentences, which go to io->error. Grey and
   palette become RGB, 16 bits their upper 8, alpha is dropped, as Pillow's
   convert("RGB") has it; a JPEG file is rotated as its EXIF says. */
ph_status ph_image_read(ph_image *out, const char *name, const uint8_t *bytes,
                        size_t size, const ph_io *io);
ph_status ph_image_open(ph_image *out, const char *path, const ph_io *io);
void ph_image_free(ph_image *image, const ph_io *io); /* accepts a cleared one */

typedef enum ph_resample { PH_RESAMPLE_BILINEAR = 0, PH_RESAMPLE_BICUBIC } ph_resample;

ph_status ph_image_resize(ph_image *out, const ph_image *in, int width, int height,
                          ph_resample filter, const ph_io *io);

/* ---- between these files ----------------------------------------------------------- */

enum { PH_IMAGE_SIDE = 1 << 15, PH_IMAGE_PIXELS = 1 << 26 };

/* Refuses sizes that are not allowed; then they can be multiplied. */
ph_status ph_image_check(const char *name, size_t width, size_t height, const ph_io *io);

/* Checks and sets the sizes, and allocates the pixels. */
ph_status ph_image_create(ph_image *out, const char *name, size_t width, size_t height,
                          const ph_io *io);

ph_status ph_ppm_read(ph_image *out, const char *name, const uint8_t *bytes, size_t size,
                      const ph_io *io);
ph_status ph_png_read(ph_image *out, const char *name, const uint8_t *bytes, size_t size,
                      const ph_io *io);

ph_status ph_jpeg_read(ph_image *out, const char *name, const uint8_t *bytes, size_t size,
                       const ph_io *io);

/* Of a segment of EXIF: 1 to 8, as it numbers them; 0: it does not say. */
int ph_exif_orientation(const uint8_t *bytes, size_t size);

/* Rotates and mirrors a picture that is stored like this; up to 1: as it is shown. */
ph_status ph_image_orient(ph_image *image, const char *name, int orientation,
                          const ph_io *io);

/* Decompresses a zlib stream (RFC 1950) until out is full; 0, or -1: the stream is
   malformed or ends before. */
int ph_inflate(const uint8_t *in, size_t size, uint8_t *out, size_t count);

#endif
