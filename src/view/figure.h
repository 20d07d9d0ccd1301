/*
 * figure.h - a sheet of SVG to draw on: figure.c has the layout, figure_svg.c strokes.
 *
 * Lengths are units; a letter is 6 units wide and a line 10 high. Colours are an index
 * into one palette.
 */
#ifndef PH_VIEW_FIGURE_H
#define PH_VIEW_FIGURE_H

#include "polyhead_picture.h"
#include "view/bytes.h"

enum {
    PH_LETTER = 6,
    PH_FIGURE_LINE = 10,

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

typedef struct ph_sheet {
    ph_bytes *out; /* the file */
    unsigned char palette[PH_PALETTE][3]; /* red, green, blue */
} ph_sheet;

void ph_sheet_colors(ph_sheet *sheet); /* fills the palette */
void ph_sheet_open(ph_sheet *sheet, int width, int height);
void ph_sheet_box(ph_sheet *sheet, int x, int y, int width, int height, int color);
/* Clean text; y is the base line. upright: it climbs from (x, y), and an anchor at the
   right means that it ends there. */
void ph_sheet_text(ph_sheet *sheet, int x, int y, const char *text, ph_anchor_at anchor,
                   int upright, int color);
/* A map of colours (rows, columns), each cell `size` units wide and high: as paths, which
   programs that edit figures can change. */
void ph_sheet_map(ph_sheet *sheet, int x, int y, int size, int rows, int columns,
                  const uint8_t *colors);
/* The same as an image, a tenth of the size: for many maps at once. */
void ph_sheet_image(ph_sheet *sheet, int x, int y, int size, int rows, int columns,
                    const uint8_t *colors);
void ph_sheet_close(ph_sheet *sheet);

#endif
