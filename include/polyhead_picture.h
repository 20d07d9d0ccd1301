/*
 * polyhead_picture.h - a report as text on a terminal, and as a figure for a paper
 *
 *     ph_report_picks    the heads most worth a look
 *     ph_text_clean      a word as it may be printed
 *     ph_terminal_write  grid of layers x heads, findings, heat maps of some heads
 *     ph_figure_write    heat maps of some heads, or all of them small, as SVG
 *     ph_picture_write   any pixels as PNG
 *
 * Everything drawn comes from a ph_report of polyhead_view.h. Words are shown with
 * control and direction characters as escapes, so no text can move a cursor or break a
 * file. Heads are named layer-head and counted from 1, as papers do: "2-7".
 *
 * The colour scale always runs from 0 to 1, never normalised per head, and follows the
 * square root of the weight so that small weights stay visible; every picture shows it.
 */
#ifndef POLYHEAD_PICTURE_H
#define POLYHEAD_PICTURE_H

#include "polyhead_view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A head of a report, counted from 0. */
typedef struct ph_pick {
    int stack, layer, head;
} ph_pick;

/* The best head of each role, most telling role first, then heads without one by
   confidence, then the rest; at most `max`. Returns how many there are. */
PH_API int ph_report_picks(const ph_report *report, ph_pick *picks, int max);

/* ---- words ------------------------------------------------------------------------- */

/* Copies word to out (at most size - 1 bytes, whole clusters, then "..." or U+2026)
   with control and direction characters as \n, \x1b, \u202e, bytes that are no UTF-8 as
   U+FFFD (ascii: \xff), blanks alone as U+2423 (ascii: _). ascii: every other character
   as \u4e2d. A backslash stays as it is. Returns the bytes written, without the NUL. */
PH_API size_t ph_text_clean(const char *word, int ascii, char *out, size_t size);

/* Columns that clean text takes: two for Chinese and emoji, none for combining marks. */
PH_API int ph_text_columns(const char *text);

/* ---- terminal ---------------------------------------------------------------------- */

typedef struct ph_terminal {
    int width;            /* columns; 0: 80; less than 40 counts as 40 */
    int ascii;            /* 1: nothing but ASCII */
    int colors;           /* 0: none; 256: escape codes of the 256-colour palette */
    const ph_pick *picks; /* heat maps to draw; a single one shows values too */
    int pick_count;       /* 0: of the most interesting heads, one row of maps */
    void (*write)(void *user, const char *bytes, size_t count);
    void *user;
    uint64_t reserved[4];
} ph_terminal;

PH_API ph_status ph_terminal_write(const ph_report *report, const ph_terminal *terminal,
                                   const ph_io *io);

/* ---- figures ----------------------------------------------------------------------- */

/* SVG, with the fonts of whoever opens it; the page saves pixels (PNG) of what it shows,
   Chinese included, which a program without fonts cannot. */
typedef struct ph_figure {
    const ph_pick *picks; /* maps with words, side by side and below each other */
    int pick_count;       /* 0: every head small, in a grid of layers x heads */
    uint64_t reserved[4];
} ph_figure;

/* The file appears whole or not at all; the same report gives the same bytes. Maps of
   more than 256 rows or keys are max-pooled, and say so. */
PH_API ph_status ph_figure_write(const char *path, const ph_report *report,
                                 const ph_figure *figure, const ph_io *io);

/* ---- pictures ---------------------------------------------------------------------- */

/* rgb (height, width, 3) as a PNG file, whole or not at all. */
PH_API ph_status ph_picture_write(const char *path, const uint8_t *rgb, int width,
                                  int height, const ph_io *io);

#ifdef __cplusplus
}
#endif
#endif
