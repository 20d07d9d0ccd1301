/*
 * chunk.h - gradients of one chunk of keys, for backward.c.
 */
#ifndef PH_ATTN_CHUNK_H
#define PH_ATTN_CHUNK_H

#include "attn/delta.h"
#include "attn/targets.h"

enum {
    PH_FLUSH = 8 /* tiles of PH_GRAD_ROWS rows after which sums of dk and dv are flushed:
                    one chain over all rows of a long text would lose digits */
};

/* Bytes of the arena that the calls below want. */
size_t ph_chunk_bytes(const ph_plan *plan);

/* One chunk of PH_CHUNK keys against all rows of the pair (batch row, head cluster). dk
   and dv are stored, dq goes to the target. */
void ph_chunk_run(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int pair,
                  int chunk, ph_dq_target target);

#endif
