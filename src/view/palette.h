/*
 * palette.h - the colours of pages, figures and terminals, in one table.
 *
 * Lightness is monotone along a scale: its order survives greyscale print and every kind
 * of colour blindness. Colours of roles and heads differ for every common colour vision,
 * and a letter or a name always says the same.
 */
#ifndef PH_VIEW_PALETTE_H
#define PH_VIEW_PALETTE_H

#include <stdint.h>

enum { PH_RAMP = 8, PH_DIVERGING = 9, PH_TERMINAL_RAMP = 12, PH_ROLE_COLORS = 12 };

/* A colour as 0xrrggbb on light and on dark paper, and its index of the 256 colours of
   terminals. */
typedef struct ph_color {
    uint32_t light, dark;
    unsigned char terminal;
} ph_color;

typedef struct ph_palette {
    uint32_t ramp[2][PH_RAMP];           /* light, dark: weights from 0 to 1 */
    uint32_t diverging[2][PH_DIVERGING]; /* from -1 to 1 */
    unsigned char terminal[PH_TERMINAL_RAMP];
    ph_color roles[PH_ROLE_COLORS]; /* of roles, repeated; the first 8 also of heads that
                                       are shown together */
} ph_palette;

extern const ph_palette ph_colors;

/* The colour of a role that is not 0 ("no label"). There are more roles than colours that
   everybody can tell apart: those beyond the first PH_ROLE_COLORS have a bar too. */
const ph_color *ph_role_color(int role);
int ph_role_bars(int role); /* 0: none; bit 0: a bar below the letter, bit 1: above it */

#endif
