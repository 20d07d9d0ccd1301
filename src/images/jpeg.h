/*
 * jpeg.h - a JPEG file while it is decoded (ITU-T T.81).
 *
 *     jpeg.c         markers: sizes, tables, scans one after the other
 *     jpeg_scan.c    Huffman codes of a scan become coefficients of 8 x 8 blocks
 *     jpeg_pixels.c  coefficients become samples, samples pixels
 *
 * All coefficients are held until the last scan: a progressive file refines them.
 */
#ifndef PH_IMAGES_JPEG_H
#define PH_IMAGES_JPEG_H

#include "images/image.h"

enum { PH_JPEG_PARTS = 3, PH_JPEG_TABLES = 4, PH_JPEG_FAST = 8 };

/* Canonical Huffman codes; those of up to 8 bits by their first 8 bits. */
typedef struct ph_jpeg_codes {
    int known;
    uint8_t values[256];
    uint16_t fast[1 << PH_JPEG_FAST]; /* length << 8 | value; 0: the code is longer */
    int last[17];                     /* by length: the largest code, -1: none, */
    int first[17], index[17];         /* the smallest, and the index of its value */
} ph_jpeg_codes;

/* A component: brightness, or one of two colours. */
typedef struct ph_jpeg_part {
    int id, h, v;      /* samples of a unit, across and down */
    int quant;         /* index of its quantisation table */
    int width, height; /* blocks that the picture has, */
    int across, down;  /* and with those that fill the last units */
    int16_t *blocks;   /* (down, across, 64), rows of a block from the top */
    uint8_t *samples;  /* (8 * down, 8 * across) */
    int dc, ac;        /* tables in this scan */
    int previous;      /* DC of the block before */
} ph_jpeg_part;

typedef struct ph_jpeg {
    const char *name;
    const ph_io *io;
    const uint8_t *at, *end;

    int width, height, progressive, rgb;
    int orientation;      /* by the first EXIF that says one; 0: none does */
    int h, v;             /* the largest of all components */
    int units_x, units_y; /* units of h x v blocks */
    int part_count;       /* 1 or 3; 0: no frame so far */
    ph_jpeg_part parts[PH_JPEG_PARTS];
    int restart;                        /* units between restarts; 0: none */
    uint16_t quant[PH_JPEG_TABLES][64]; /* in the order of the file */
    int has_quant[PH_JPEG_TABLES];
    ph_jpeg_codes codes[2][PH_JPEG_TABLES]; /* DC, AC */

    /* the scan */
    ph_jpeg_part *list[PH_JPEG_PARTS];
    int list_count;
    int from, to, high, low; /* coefficients, and bits of them */
    uint32_t bits;           /* unread ones, the next at the top */
    int bit_count;
    int run;    /* blocks that end here without a code */
    int failed; /* a code that does not exist, or bits beyond the data */
} ph_jpeg;

/* Where coefficient k of the file stands in a block. */
extern const uint8_t ph_jpeg_zigzag[64];

/* Reads the codes of the scan; 0, or -1: they are malformed or end too early. */
int ph_jpeg_scan(ph_jpeg *j);

/* Makes the table from counts by length; 0, or -1: there are no such codes. */
int ph_jpeg_set_codes(ph_jpeg_codes *codes, const uint8_t counts[16]);

/* All pixels from all coefficients. */
void ph_jpeg_pixels(const ph_jpeg *j, uint8_t *rgb);

#endif
