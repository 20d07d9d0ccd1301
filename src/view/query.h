/*
 * query.h - POST requests of the live page: their JSON body, and responses made of
 * weights.
 */
#ifndef PH_VIEW_QUERY_H
#define PH_VIEW_QUERY_H

#include "polyhead_view.h"
#include "view/bytes.h"

enum { PH_QUERY_EDITS = 4096, PH_QUERY_CELLS = 4 << 20 }; /* at most, per request */

typedef struct ph_query {
    ph_live_request live; /* text and edits */
    ph_edit *edits;       /* owned; live.edits points to it */
    int which;            /* 0: the report without edits, 1: with edits */
    int stack, layer, head;
    int row0, rows, col0, cols; /* window of the map */
    int height, width;          /* of the pooled window; at most rows, cols */
} ph_query;

/* Parses the body in place. On failure live.error holds the sentence. Every key is
   optional and may stand once; unknown keys are refused. */
ph_status ph_query_read(ph_query *query, char *body, size_t count, const ph_io *io);
void ph_query_free(ph_query *query, const ph_io *io);

/* Appends (height, width) floats: the window max-pooled by magnitude. With height = rows
   and width = cols these are the weights themselves; masked ones are 0. */
ph_status ph_query_window(const ph_query *query, const ph_report *report, ph_bytes *out);

/* Appends q (rows, qk_dim) and k (keys, qk_dim). */
ph_status ph_query_vectors(const ph_query *query, const ph_report *report, ph_bytes *out);

#endif
