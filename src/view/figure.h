/*
 * figure.h - a sheet to draw on: figure.c has the layout, figure_svg.c and figure_png.c
 * the output formats.
 *
 * Lengths are units; a letter is 6 units wide and a line 10 high. SVG uses them as they
 * are, PNG has PH_PNG_SCALE pixels for each. Colours are an index into one palette.
 */
#ifndef PH_VIEW_FIGURE_H
#define PH_VIEW_FIGURE_H

#include "polyhead_picture.h"
#include "view/bytes.h"

enum {
    PH_LETTER = 6,
    PH_FIGURE_LINE = 10,
    PH_PNG_SCALE = 2,

    PH_PAPER = 0, /* the palette: paper, ink, half ink, masked cells, */
    PH_BLACK = 1,
    PH_GREY = 2,
    PH_HATCH = 3,
    PH_ROLE_COLOR = 4, /* no role and PH_ROLE_COLORS of them, */
    PH_HEAT = 20,      /* weights from 0 to 1 */
    PH_HEATS = 64,
    PH_PALETTE = PH_HEAT + PH_HEATS
};

typedef enum ph_anchor_at { PH_LEFT, PH_MIDDLE, PH_RIGHT } ph_anchor_at;

typedef struct ph_sheet ph_sheet;
struct ph_sheet {
    void (*open)(ph_sheet *sheet, int width, int height);
    void (*box)(ph_sheet *sheet, int x, int y, int width, int height, int color);
    /* Clean text; y is the base line. upright: it climbs from (x, y), and an anchor at
       the right means that it ends there. */
    void (*text)(ph_sheet *sheet, int x, int y, const char *text, ph_anchor_at anchor,
                 int upright, int color);
    /* A map of colours (rows, columns), each cell `size` units wide and high. */
    void (*map)(ph_sheet *sheet, int x, int y, int size, int rows, int columns,
                const uint8_t *colors);
    void (*close)(ph_sheet *sheet);

    int ascii;     /* 1: only ASCII can be drawn */
    ph_bytes *out; /* the file */
    const ph_io *io;
    unsigned char palette[PH_PALETTE][3]; /* red, green, blue */

    unsigned char *pixels; /* PNG: (height, width) palette indices */
    int width, height;     /* of pixels */
};

ph_sheet ph_sheet_svg(ph_bytes *out, const ph_io *io);
ph_sheet ph_sheet_png(ph_bytes *out, const ph_io *io);

/* Fills the palette. */
void ph_sheet_colors(ph_sheet *sheet);

#endif
