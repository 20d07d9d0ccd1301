/*
 * delta.h - delta of every row, which the gradients of the scores need.
 *
 *     delta[i] = dout[i] . out[i] - dlse[i]
 *
 * and dgate and dsink, which follow from it alone.
 */
#ifndef PH_ATTN_DELTA_H
#define PH_ATTN_DELTA_H

#include "attn/rows.h"
#include "base/arena.h"

/* By (batch, q_heads, q_len). */
typedef struct ph_deltas {
    float *lse;   /* base 2, and +inf where not computed */
    float *delta; /* 0 where not computed */
    double *sums; /* (2, batch, q_heads): partial sums of dgate and dsink */
} ph_deltas;

void ph_deltas_take(const ph_plan *plan, ph_arena *arena, ph_deltas *out);

/* All rows of one head of one batch row. arena: scratch for 32 rows of v. */
void ph_deltas_head(const ph_call *call, const ph_deltas *d, ph_arena arena, int batch,
                    int head);

/* dgate and dsink, once every head has been there. */
void ph_deltas_finish(const ph_call *call, const ph_deltas *d);

#endif
