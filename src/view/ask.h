/*
 * ask.h - what the live page asks for: the JSON body of a request, and the answers that
 * are made of weights.
 */
#ifndef PH_VIEW_ASK_H
#define PH_VIEW_ASK_H

#include "polyhead_view.h"
#include "view/bytes.h"

enum { PH_ASK_EDITS = 4096, PH_ASK_CELLS = 4 << 20 }; /* at most, of one answer */

typedef struct ph_ask {
    ph_live_ask live; /* text and changes */
    ph_edit *edits;   /* live.edits, to be released */
    int which;        /* 0: the report without changes, 1: with them */
    int stack, layer, head;
    int row0, rows, col0, cols; /* of the map */
    int height, width;          /* of the picture of it; at most rows, cols */
} ph_ask;

/* Reads the body, which is changed. On refusal error (of live) holds the sentence. Every
   key is optional, each at most once, others are refused. */
ph_status ph_ask_read(ph_ask *ask, char *body, size_t count, const ph_io *io);
void ph_ask_free(ph_ask *ask, const ph_io *io);

/* Appends (height, width) floats: of all weights that fall into a cell the one that is
   farthest from 0. With height = rows and width = cols these are the weights; what
   causality forbids is 0. */
ph_status ph_ask_window(const ph_ask *ask, const ph_report *report, ph_bytes *out);

/* Appends q (rows, qk_dim) and k (keys, qk_dim). */
ph_status ph_ask_vectors(const ph_ask *ask, const ph_report *report, ph_bytes *out);

#endif
