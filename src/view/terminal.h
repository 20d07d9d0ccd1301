/*
 * terminal.h - the screen that terminal.c and the files beside it write to.
 */
#ifndef PH_VIEW_TERMINAL_H
#define PH_VIEW_TERMINAL_H

#include "polyhead_picture.h"

enum {
    PH_WORD_BYTES = 128,  /* of a clean word */
    PH_LABEL_COLUMNS = 14 /* of a row's word at most */
};

typedef enum ph_ink {
    PH_INK_PLAIN,
    PH_INK_BOLD,
    PH_INK_DIM,
} ph_ink;

typedef struct ph_screen {
    const ph_report *report;
    const ph_terminal *how;
    const ph_io *io;
    int width;
    int *blanks; /* pending: written before the next visible character, never at the end
                    of a line */
} ph_screen;

#if defined(__GNUC__)
#define PH_SCREEN_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define PH_SCREEN_PRINTF
#endif

void ph_put(const ph_screen *screen, const char *text);
void ph_putf(const ph_screen *screen, const char *format, ...) PH_SCREEN_PRINTF;
void ph_put_blanks(const ph_screen *screen, int count);
void ph_put_ink(const ph_screen *screen, ph_ink ink); /* nothing without colour */

/* A word of an axis or a title, clean and cut or filled to exactly so many columns. */
void ph_put_word(const ph_screen *screen, const char *word, int columns, int right);

/* The glyph of a role on its colour, with a blank on each side if wide. */
void ph_put_role(const ph_screen *screen, int role, int wide);

/* "2-7", with the stack's name in front where there are several. */
const char *ph_pick_name(const ph_report *report, const ph_pick *pick, char text[64]);

/* One cell: `text` of its width on the colour of the weight, or shades without colour. */
void ph_put_cell(const ph_screen *screen, float weight, int columns, const char *text);

/* Where on the picture the class token attends to, for each of the picks. */
ph_status ph_put_patches(const ph_screen *screen, const ph_pick *picks, int count);

/* Heat maps of the picks: one strip if there are several, with values if there is one. */
ph_status ph_put_maps(const ph_screen *screen, const ph_pick *picks, int count);

/* How many maps like this one fit side by side; at least 1. */
int ph_maps_that_fit(const ph_screen *screen, const ph_pick *pick);

#endif
