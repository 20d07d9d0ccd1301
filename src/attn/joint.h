/*
 * joint.h - attention whose heads are mixed or whose rows are not softmax.
 *
 * The weights of a row cannot be had in one sweep over the keys: they need the row's
 * statistic (lse, or the threshold of entmax), and mixing needs them of all heads. So a
 * row item holds the logits of a few query rows, all heads that are mixed, against every
 * key they see, as one tile per block of keys:
 *
 *     tile: (heads, rows, PH_BLOCK)          row (h, i) at w + (h*rows + i)*PH_BLOCK
 *
 * That is O(T) memory: 64 MB of logits for each thread at most, unless a single row of
 * all heads takes more. Each key is multiplied once, and every step between the products
 * works on one tile. Backward has two passes: row items give dq and everything that
 * belongs to a query, key items make tiles again, block of keys by block of rows, and
 * give dk, dv and everything that belongs to a key. Nobody adds to what another owns.
 *
 * Without mixing a tile has one "head" whose rows are those of a group of q heads that
 * share k and v, as in the stream driver.
 */
#ifndef PH_ATTN_JOINT_H
#define PH_ATTN_JOINT_H

#include "attn/grad.h"

/* Keys of `wave` batch rows from `first` on, packed for products; NULL: not packed. */
typedef struct ph_joint_keys {
    int first;
    float *k_across, *v_across;   /* blocks in panels, by (batch row, head, block) */
    float *k_along;               /* (.., PH_BLOCK, k_pad); NULL: the caller's k serves */
    uint8_t *k_finite, *v_finite; /* by (batch row, head, block) */
    float *parts[2]; /* by place: key parts of the mixes, by (batch row, block) */
} ph_joint_keys;

/* Query rows of an item. */
typedef struct ph_joint_rows {
    int batch, heads;
    int count;        /* rows of each head */
    int low, high;    /* keys that any of them sees by position */
    ph_rows *rows;    /* (heads) */
    uint8_t *silent;  /* (heads, PH_ROWS_MAX) 1: a mixed head with gate 0, sees nothing */
    int uneven;       /* 1: a key may be hidden from one head and seen by another */
    float *matrix[2]; /* by place: (count, q_heads, q_heads) [from][to] ... */
    float *turned[2]; /* ... and [to][from], for the way back; NULL in forward */
    float *spare;     /* for decompose */
    double *alpha;    /* (heads of the set) of entmax */
} ph_joint_rows;

/* One tile: rows of an item against keys j0 + [c0, c1); computed up to `end`. */
typedef struct ph_joint_tile {
    int j0, c0, c1, end;
    int rows;             /* distance of heads, in rows */
    const float *keys[2]; /* by place: key parts of the mix, (2*rank+1, heads, BLOCK) */
} ph_joint_tile;

static inline int64_t ph_joint_at(const ph_joint_tile *t, int h, int i)
{
    return ((int64_t)h * t->rows + i) * PH_BLOCK;
}

/* Floats of a tile of so many rows. */
static inline size_t ph_joint_floats(const ph_plan *plan, int rows)
{
    return (size_t)plan->joint.heads * (size_t)rows * PH_BLOCK;
}

/* ---- keys ---- */

void ph_joint_keys_take(const ph_plan *plan, ph_arena *arena, int backward,
                        ph_joint_keys *out);
/* Packs the keys of the wave that starts at batch row `first`. */
void ph_joint_keys_pack(const ph_call *call, ph_joint_keys *keys, int first);

/* Block at j0 of a head; `room` where keys are not packed beforehand. */
const float *ph_joint_k(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0, int n, float *room);
const float *ph_joint_v(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0);
const float *ph_joint_k_along(const ph_call *call, const ph_joint_keys *keys, int batch,
                              int head, int j0, int64_t *ld);
int ph_joint_k_finite(const ph_call *call, const ph_joint_keys *keys, int batch, int head,
                      int j0);
int ph_joint_v_finite(const ph_call *call, const ph_joint_keys *keys, int batch, int head,
                      int j0);

/* ---- rows ---- */

void ph_joint_rows_take(const ph_plan *plan, ph_arena *arena, int rows, int backward,
                        ph_joint_rows *out);
/* Gathers rows [first, end) of a set of heads, `most` at most; returns where it
   stopped. */
int ph_joint_gather(const ph_call *call, ph_joint_rows *r, int batch, int set, int first,
                    int end, int most);

/* Makes the matrices of the gathered rows. */
void ph_joint_matrices(const ph_call *call, ph_joint_rows *r);

/* ---- tiles ---- */

/* The part of the block at j0 that the rows see; 0 if none. */
int ph_joint_range(const ph_call *call, const ph_joint_rows *r, int j0, int rows,
                   ph_joint_tile *t);

/* Scaled products q k^T of every row, in base 2; q by head, as ph_rows_pack_q
   leaves it. */
void ph_joint_scores(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                     const ph_joint_keys *keys, float *const *q, float *room, float *w);

/* Points to the key parts of the mixes, (2*rank+1, heads, BLOCK) for each place; in
   `room` where they are not made beforehand. */
size_t ph_joint_mix_floats(const ph_plan *plan, int place);
void ph_joint_key_parts(const ph_call *call, const ph_joint_keys *keys,
                        const ph_joint_rows *r, ph_joint_tile *t, float *const room[2]);

/* out = mix of `in` at the place; another tile. */
void ph_joint_mix(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                  ph_mix_at place, const float *in, float *out);
/* din = gradient of what ph_joint_mix took, from dout; another tile. */
void ph_joint_unmix(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                    ph_mix_at place, const float *dout, float *din);
/* Adds the gradient of the row matrices: dc (count, q_heads, q_heads). */
void ph_joint_row_part(const ph_call *call, const ph_joint_rows *r,
                       const ph_joint_tile *t, const float *in, const float *dout,
                       float *dc);
/* Adds the gradient of the key part: dw (2*rank+1, heads, BLOCK). */
void ph_joint_key_part(const ph_call *call, const ph_joint_rows *r,
                       const ph_joint_tile *t, ph_mix_at place, const float *in,
                       const float *dout, float *dw);

/* Bias, alibi, cap and masks on every row; slope: a tile of those of the cap, or NULL. */
void ph_joint_modify(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                     float *w, float *slope);
/* Logits become weights; stat (heads, rows): lse or base, in base 2. With entmax slope
   (a tile, or NULL) gets the derivative of the power. */
void ph_joint_weights(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                      const float *stat, float *w, float *slope);
/* Multiplies every row by its factors of dropout. */
void ph_joint_drop(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                   float *room, float *w);
/* 1 if row i of head h, or of any head (h < 0), sees key j. */
int ph_joint_sees(const ph_call *call, const ph_joint_rows *r, int h, int i, int j);
/* Zeros where the head, or with `all` no head of the row, sees the key. */
void ph_joint_scrub(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                    int all, float *w);

/* ---- entmax (norm.c) ---- */

/* p = max(1 + scale * (s - base), 0)^power with s and base in base 2 */
typedef struct ph_entmax {
    float scale, power;
} ph_entmax;

ph_entmax ph_entmax_of(double alpha);

/* base of a row that lies in `blocks` pieces, `step` floats apart, whose columns are
   those of the tiles. row_max is its largest score, sink a further candidate (-inf:
   none), list room for all columns and 32 more. -inf if there is no candidate. */
float ph_entmax_base(const ph_kernels *k, ph_entmax e, const float *row, int64_t step,
                     int blocks, const ph_joint_tile *tiles, float row_max, float sink,
                     float *list);

/* tau, which callers know, and back: a row that sees nothing has tau -inf and the base
   +inf, which hides all. */
float ph_entmax_tau(ph_entmax e, float base);
float ph_entmax_base_of(ph_entmax e, float tau);

/* Whether tau has lost the digits of the base: near softmax, where it is near -1 whatever
   the base, and where logits are large. */
int ph_entmax_is_lost(double alpha, float tau);

/* What weights are measured from, given what rows have as lse: lse or base, in base 2,
   +inf where no key is seen; stat (batch, q_heads, q_len). Returns 1 if some are lost:
   then ph_joint_bases finds those of `batch_rows` batch rows again, as forward did; all
   others stay as they are. Lanes must have ph_joint_item_bytes. */
int ph_joint_stats(const ph_call *call, float *stat);
size_t ph_joint_item_bytes(const ph_plan *plan);
void ph_joint_bases(const ph_call *call, const ph_joint_keys *keys, int first,
                    int batch_rows, float *stat);

/* Sums over the support of a row from which the gradient of alpha follows. */
typedef struct ph_alpha_sums {
    double a0, a1, z, b0, b1, b2;
} ph_alpha_sums;

void ph_alpha_add(ph_alpha_sums *sums, double e, int n, const float *p, const float *dp);
/* Through the weights, and through tau = e base - 1 where its own gradient is dtau. */
double ph_alpha_gradient(const ph_alpha_sums *sums, double e, double base, double dtau);

#endif
