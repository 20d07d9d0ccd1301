/*
 * chunk.h - gradients of one chunk of keys, for backward.c.
 */
#ifndef PH_ATTN_CHUNK_H
#define PH_ATTN_CHUNK_H

#include "attn/delta.h"

enum {
    PH_FOLD = 8 /* tiles of PH_GRAD_ROWS rows after which sums of dk and dv are set aside:
                   one chain over all rows of a long text would lose digits */
};

/* Where a chunk's share of dq goes: row of (head in cluster, token), and its strides. */
typedef struct ph_dq_target {
    float *base;
    int64_t head, time;
    int fresh; /* 1: nothing is there yet, all rows are to be written; not where a single
                  chunk stores dq */
} ph_dq_target;

/* Bytes of the arena that the calls below want. */
size_t ph_chunk_bytes(const ph_plan *plan);

/* One chunk of PH_CHUNK keys against all rows of the pair (batch row, head cluster). dk
   and dv are stored, dq is added to the target; of a single chunk it is stored. */
void ph_chunk_run(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int pair,
                  int chunk, ph_dq_target target);

#endif
