/*
 * grad.h - what the two backward passes share: one tile of p and ds.
 *
 *     p  = 2^(s - lse)          ds = p * (dropout * (dout v^T) - delta)
 *     delta[i] = dout[i] . out[i] - dlse[i]
 *
 * A tile is PH_GRAD_ROWS rows by PH_BLOCK keys. s and dout v^T are recomputed from q,
 * k and v.
 */
#ifndef PH_ATTN_GRAD_H
#define PH_ATTN_GRAD_H

#include "attn/rows.h"
#include "base/arena.h"

/* Rows of a tile with everything packed that products need. */
typedef struct ph_grad_rows {
    ph_rows *rows;
    float *q_scaled; /* strips, as scores want them */
    float *q_room, *dout_room;
    const float *q, *dout; /* (rows, k_pad), (rows, v_pad); dout times the gate; the room,
                              or the tensor itself */
    float *lse, *delta;    /* (rows), lse in base 2 */
} ph_grad_rows;

typedef struct ph_grad_tile {
    float *p, *ds;     /* (PH_GRAD_ROWS, PH_STRIP_LD): p as it multiplies v */
    float *drop;       /* one strip */
    float *lane_max;   /* (mr, 16) */
    float *derivative; /* one strip: of the soft-cap; NULL: there is none */
} ph_grad_tile;

void ph_grad_rows_take(const ph_plan *plan, ph_arena *arena, ph_grad_rows *out);
void ph_grad_tile_take(const ph_plan *plan, ph_arena *arena, ph_grad_tile *out);

/* Packs the gathered rows; lse and delta are the whole call's, by ph_rows_index. `like`:
   rows of the same tokens whose dout serves, or NULL. */
void ph_grad_rows_pack(const ph_call *call, ph_grad_rows *rows, const ph_grad_rows *like,
                       const float *lse, const float *delta);

/* Whether all of q and dout is finite. */
int ph_grad_rows_finite(const ph_call *call, const ph_grad_rows *rows);

/* Fills rows [first, first+m) of the tile against the block of keys at j0, of which
   `keys` are there; k packed for scores, v across. Columns the rows do not see become 0.
   Returns 0 and leaves zeros if they see none; else [*c0, *c1) is what was computed. */
int ph_grad_strip(const ph_call *call, const ph_grad_rows *rows, ph_grad_tile *tile,
                  int first, int m, int j0, int keys, const float *k, const float *v,
                  int *c0, int *c1);

/* Its three steps: what is seen, with zeros elsewhere; dout v^T in place of ds; p and
   ds. */
int ph_grad_begin(const ph_call *call, const ph_grad_rows *rows, ph_grad_tile *tile,
                  int first, int m, int j0, int keys, int *c0, int *c1);
void ph_grad_product(const ph_call *call, const ph_grad_rows *rows, ph_grad_tile *tile,
                     int first, int m, int c0, int c1, const float *v);
void ph_grad_finish(const ph_call *call, const ph_grad_rows *rows, ph_grad_tile *tile,
                    int first, int m, int j0, int c0, int c1, const float *k);

#endif
