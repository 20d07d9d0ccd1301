/*
 * chunk.h - gradients of one chunk of keys, for backward.c.
 */
#ifndef PH_ATTN_CHUNK_H
#define PH_ATTN_CHUNK_H

#include "attn/delta.h"
#include "attn/targets.h"

enum {
    PH_FLUSH =
        8 /* blocks of PH_GRAD_ROWS rows after which dk and dv are flushed: the rounding
             error of one chain over all rows would grow with the length of the text */
};

/* Scratch of ph_chunk_run. */
size_t ph_chunk_bytes(const ph_plan *plan);

/* One chunk of PH_CHUNK keys against all rows of a cluster of heads, head0 the first, of
   one batch row. Stores dk and dv; dq goes to the target. */
void ph_chunk_run(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int batch,
                  int head0, int chunk, ph_dq_target target);

#endif
