/*
 * png_write.h - pixels as the bytes of a PNG file.
 */
#ifndef PH_VIEW_PNG_WRITE_H
#define PH_VIEW_PNG_WRITE_H

#include "view/bytes.h"

typedef struct ph_png {
    int width, height;
    const uint8_t *pixels; /* (height, width, 3) RGB; with a palette (height, width) */
    int colors;            /* of the palette; 0: none */
    const unsigned char (*palette)[3];
} ph_png;

void ph_png_write(ph_bytes *out, const ph_png *png);

#endif
