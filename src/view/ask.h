/*
 * ask.h - requests of the live page: their JSON body, and answers that consist of
 * weights.
 */
#ifndef PH_VIEW_ASK_H
#define PH_VIEW_ASK_H

#include "polyhead_view.h"
#include "view/bytes.h"

enum { PH_ASK_EDITS = 4096, PH_ASK_CELLS = 4 << 20 }; /* at most, of one answer */

typedef struct ph_ask {
    ph_live_ask live; /* text and edits */
    ph_edit *edits;   /* live.edits, to be released */
    int which;        /* 0: the report without edits, 1: with them */
    int stack, layer, head;
    int row0, rows, col0, cols; /* of the map */
    int height, width;          /* of the picture of it; at most rows, cols */
} ph_ask;

/* Reads the body, which is changed. On refusal error (of live) holds the sentence. Every
   key is optional, each at most once, others are refused. */
ph_status ph_ask_read(ph_ask *ask, char *body, size_t count, const ph_io *io);
void ph_ask_free(ph_ask *ask, const ph_io *io);

/* Appends (height, width) floats: of all weights in a cell the one of largest magnitude.
   With height = rows and width = cols these are the weights; masked ones are 0. */
ph_status ph_ask_window(const ph_ask *ask, const ph_report *report, ph_bytes *out);

/* Appends q (rows, qk_dim) and k (keys, qk_dim). */
ph_status ph_ask_vectors(const ph_ask *ask, const ph_report *report, ph_bytes *out);

#endif
