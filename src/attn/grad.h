/*
 * grad.h - one block of p and ds, for chunk.c and the gradients of biases.
 *
 *     p  = 2^(s - lse)          ds = p * (dropout * (dout v^T) - delta)
 *     delta[i] = dout[i] . out[i] - dlse[i]
 *
 * A block is PH_GRAD_ROWS rows by PH_BLOCK keys. s and dout v^T are recomputed from q, k
 * and v: two more products, but no T x T memory.
 */
#ifndef PH_ATTN_GRAD_H
#define PH_ATTN_GRAD_H

#include "attn/rows.h"
#include "base/arena.h"

/* The rows of a block, packed for products. */
typedef struct ph_grad_rows {
    ph_rows *rows;
    float *q_scaled; /* strips, packed for scores */
    float *q_scratch, *dout_scratch;
    const float *q, *dout; /* (rows, k_pad), (rows, v_pad), dout times the gate: a copy in
                         scratch, or the tensor in place */
    float *lse, *delta;    /* (rows), lse in base 2 */
} ph_grad_rows;

typedef struct ph_ds_block {
    float *p, *ds;   /* (PH_GRAD_ROWS, PH_STRIP_LD): p with dropout, as it multiplies v */
    float *drop;     /* one strip */
    float *lane_max; /* (mr, 16) */
    float *derivative; /* one strip: of the soft-cap; NULL: there is none */
} ph_ds_block;

void ph_grad_rows_take(const ph_plan *plan, ph_arena *arena, ph_grad_rows *out);
void ph_ds_block_take(const ph_plan *plan, ph_arena *arena, ph_ds_block *out);

/* Packs the gathered rows; lse and delta are the whole call's, by ph_rows_index. `like`:
   rows of the same tokens whose packed dout is reused, or NULL. */
void ph_grad_rows_pack(const ph_call *call, ph_grad_rows *rows, const ph_grad_rows *like,
                       const float *lse, const float *delta);

/* Whether all of q and dout is finite. */
int ph_grad_rows_finite(const ph_call *call, const ph_grad_rows *rows);

/* Computes rows [first, first+m) of the block against the `keys` keys from j0 on; k is
   packed for scores, v in panels. Hidden columns become 0. Returns 0 if the rows see no
   key, else the computed columns [*c0, *c1). */
int ph_grad_strip(const ph_call *call, const ph_grad_rows *rows, ph_ds_block *block,
                  int first, int m, int j0, int keys, const float *k, const float *v,
                  int *c0, int *c1);

/* Its three steps: the visible columns, with zeros elsewhere; dout v^T, stored in ds; p
   and ds. */
int ph_grad_begin(const ph_call *call, const ph_grad_rows *rows, ph_ds_block *block,
                  int first, int m, int j0, int keys, int *c0, int *c1);
void ph_grad_product(const ph_call *call, const ph_grad_rows *rows, ph_ds_block *block,
                     int first, int m, int c0, int c1, const float *v);
void ph_grad_finish(const ph_call *call, const ph_grad_rows *rows, ph_ds_block *block,
                    int first, int m, int j0, int c0, int c1, const float *k);

#endif
