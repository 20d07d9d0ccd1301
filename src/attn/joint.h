/*
 * joint.h - attention whose heads are mixed or whose rows are not softmax.
 *
 * The weights of a row need the row's statistic (lse, or the threshold of entmax) before
 * heads are mixed, so one pass over the keys with an online softmax cannot compute them.
 * A row item therefore holds the logits of a few query rows, all heads that are mixed,
 * against every key they see, one joint block per block of keys:
 *
 *     joint block: (heads, rows, PH_BLOCK)   row (h, i) at w + (h*rows + i)*PH_BLOCK
 *
 * Each key is multiplied once, and every step between the products works on one joint
 * block. Backward has two passes: row items compute dq and all other gradients of a
 * query; key items recompute the joint blocks, block of keys by block of rows, and
 * compute dk, dv and all other gradients of a key. Every output has one owner, so there
 * are no atomics.
 *
 * Memory is bounded at any number of keys (joint.c chooses): packed keys take 64 MB, or
 * those of a single batch row up to 288 MB; held joint blocks forward 6 MB per thread or
 * 64 MB for all, backward 24 MB per thread or 256 MB for all. A single row of all heads
 * is held forward even if it takes more. Beyond, items pack keys themselves, threads
 * share an item, and backward recomputes its joint blocks, all with the same bits. On top
 * come blocks of 128 keys and of up to 96 rows of all heads per thread (18 MB at 32 heads
 * of 128), and three floats per query row.
 *
 * Without mixing a joint block has one "head" whose rows are those of a group of q heads
 * that share k and v, as in the online softmax.
 */
#ifndef PH_ATTN_JOINT_H
#define PH_ATTN_JOINT_H

#include "attn/cut.h"
#include "attn/grad.h"

/* Which keys: batch rows, heads and blocks from the first on. */
typedef struct ph_joint_span {
    int batch, batches;
    int k_head, k_heads, v_head, v_heads;
    int block, blocks;
} ph_joint_span;

/* Keys packed for products; NULL: not packed. */
typedef struct ph_joint_keys {
    ph_joint_span span;
    float *k_panels, *v_panels; /* packed panels, by (batch row, head, block) */
    float *k_rows; /* (.., PH_BLOCK, k_pad), row-major; NULL: the caller's k, in place */
    uint8_t *k_finite, *v_finite; /* by (batch row, head, block) */
    float *key_factors[2];        /* by place: w1, w2, g of keys, by (batch row, block) */
} ph_joint_keys;

/* Query rows of an item. */
typedef struct ph_joint_rows {
    int batch, heads;
    int count;     /* rows of each head */
    int low, high; /* keys that any of them sees by position */
    ph_rows *rows; /* (heads) */
    uint8_t *
        gated_off; /* (heads, PH_ROWS_MAX) 1: a mixed head with gate 0, all keys hidden */
    int uneven;    /* 1: a key may be hidden from one head and seen by another */
    float *matrix[2];     /* by place: (count, q_heads, q_heads) [from][to] ... */
    float *transposed[2]; /* ... and [to][from], for the backward pass; NULL in forward */
    float *scratch;       /* for decompose */
    double *alpha;        /* (heads of the set) of entmax */
} ph_joint_rows;

/* Rows of an item against keys j0 + [c0, c1); computed up to `end`. */
typedef struct ph_joint_block {
    int j0, c0, c1, end;
    int rows;             /* distance of heads, in rows */
    const float *keys[2]; /* by place: w1, w2, g of the key matrices */
} ph_joint_block;

static inline int64_t ph_joint_at(const ph_joint_block *t, int h, int i)
{
    return ((int64_t)h * t->rows + i) * PH_BLOCK;
}

/* Floats of a joint block of `rows` rows. */
static inline size_t ph_joint_floats(const ph_plan *plan, int rows)
{
    return (size_t)plan->joint.heads * (size_t)rows * PH_BLOCK;
}

/* ---- keys ---- */

/* All keys of `count` batch rows; and one block of what a set of heads needs. */
ph_joint_span ph_joint_batch_rows(const ph_plan *plan, int first, int count);
ph_joint_span ph_joint_one_block(const ph_plan *plan, int batch, int set, int j0);

void ph_joint_keys_take(const ph_plan *plan, ph_arena *arena, const ph_joint_span *span,
                        int backward, ph_joint_keys *out);
/* Packs the keys of the wave that starts at batch row `first`. */
void ph_joint_keys_pack(const ph_call *call, ph_joint_keys *keys, int first);
/* The block at j0 of a set of heads: in `packed`, or packed now into `own`. */
const ph_joint_keys *ph_joint_keys_find(const ph_call *call, const ph_joint_keys *packed,
                                        ph_joint_keys *own, int batch, int set, int j0);

/* Block at j0 of a head; packed into `scratch` unless packed beforehand. */
const float *ph_joint_k(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0, int n, float *scratch);
const float *ph_joint_v(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0);
const float *ph_joint_k_rows(const ph_call *call, const ph_joint_keys *keys, int batch,
                             int head, int j0, int64_t *ld);
int ph_joint_k_finite(const ph_joint_keys *keys, int batch, int head, int j0);
int ph_joint_v_finite(const ph_joint_keys *keys, int batch, int head, int j0);

/* ---- rows ---- */

void ph_joint_rows_take(const ph_plan *plan, ph_arena *arena, int rows, int backward,
                        ph_joint_rows *out);
/* Gathers rows [first, end) of a set of heads, `most` at most; returns where it
   stopped. */
int ph_joint_gather(const ph_call *call, ph_joint_rows *r, int batch, int set, int first,
                    int end, int most);

/* Computes the row matrices of the gathered rows. */
void ph_joint_matrices(const ph_call *call, ph_joint_rows *r);

/* ---- joint blocks ---- */

/* The columns of the block at j0 that the rows see; 0 if none. */
int ph_joint_range(const ph_call *call, const ph_joint_rows *r, int j0, int rows,
                   ph_joint_block *t);

/* Scaled products q k^T of every row, in base 2; q by head, as ph_rows_pack_q
   leaves it. */
void ph_joint_scores(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                     const ph_joint_keys *keys, float *const *q, float *scratch,
                     float *w);

/* Points to w1, w2 and g of the key matrices, (2*rank+1, heads, BLOCK) for each place;
   computed in `scratch` unless packed beforehand. */
size_t ph_joint_mix_floats(const ph_plan *plan, int place);
void ph_joint_key_factors(const ph_call *call, const ph_joint_keys *keys,
                          const ph_joint_rows *r, ph_joint_block *t,
                          float *const scratch[2]);

/* out = mix of `in`; must not alias it. */
void ph_joint_mix(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                  ph_mix_at place, const float *in, float *out);
/* Backward of ph_joint_mix: din from dout; must not alias it. */
void ph_joint_unmix(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                    ph_mix_at place, const float *dout, float *din);
/* Adds the gradient of the row matrices: dc (count, q_heads, q_heads). */
void ph_joint_row_gradient(const ph_call *call, const ph_joint_rows *r,
                           const ph_joint_block *t, const float *in, const float *dout,
                           float *dc);
/* Adds the gradient of the key factors: dw (2*rank+1, heads, BLOCK). */
void ph_joint_key_gradient(const ph_call *call, const ph_joint_rows *r,
                           const ph_joint_block *t, ph_mix_at place, const float *in,
                           const float *dout, float *dw);

/* Bias, ALiBi, soft-cap and masks on every row; derivative of the soft-cap, or NULL. */
void ph_joint_modify(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                     float *w, float *derivative);
/* Logits become weights; stat (heads, rows): lse or base, in base 2. With entmax
   derivative (or NULL) gets the derivative of the power. */
void ph_joint_weights(const ph_call *call, const ph_joint_rows *r,
                      const ph_joint_block *t, const float *stat, float *w,
                      float *derivative);
/* Multiplies every row by its dropout factors. */
void ph_joint_drop(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                   float *scratch, float *w);
/* 1 if row i of head h, or of any head (h < 0), sees key j. */
int ph_joint_sees(const ph_call *call, const ph_joint_rows *r, int h, int i, int j);
/* Zeros where the head, or with `all` every head of the row, does not see the key. */
void ph_joint_clear_masked(const ph_call *call, const ph_joint_rows *r,
                           const ph_joint_block *t, int all, float *w);

/* ---- entmax (norm.c) ---- */

/* p = max(1 + scale * (s - base), 0)^power with s and base in base 2 */
typedef struct ph_entmax {
    float scale, power;
} ph_entmax;

ph_entmax ph_entmax_of(double alpha);

/* base of a row stored in `blocks` joint blocks, `step` floats apart. row_max is its
   largest score, sink a further candidate (-inf: none), list scratch for all columns and
   32 more. -inf if there is no candidate. */
float ph_entmax_base(const ph_kernels *k, ph_entmax e, const float *row, int64_t step,
                     int blocks, const ph_joint_block *block, float row_max, float sink,
                     float *list);

/* tau, which callers get as lse, and the base from it: a row without visible keys has tau
   -inf and base +inf, which makes all its weights 0. */
float ph_entmax_tau(ph_entmax e, float base);
float ph_entmax_base_of(ph_entmax e, float tau);

/* Whether tau has lost the digits of the base: near softmax, where it is near -1 whatever
   the base, and where logits are large. */
int ph_entmax_is_lost(double alpha, float tau);

/* The statistic of every row from its lse: lse or base, in base 2, +inf if it sees no
   key; stat (batch, q_heads, q_len). Returns 1 if some bases have lost digits: then
   ph_joint_bases recomputes those of `batch_rows` batch rows as forward did, with the
   scratch of a forward item. */
int ph_joint_stats(const ph_call *call, float *stat);
void ph_joint_item_measure(const ph_plan *plan, ph_arena *lane, ph_arena *shared);
void ph_joint_bases(const ph_call *call, const ph_joint_keys *keys, ph_arena shared,
                    int first, int batch_rows, float *stat);

/* Sums over the support of a row from which the gradient of alpha follows. */
typedef struct ph_alpha_sums {
    double a0, a1, z, b0, b1, b2;
} ph_alpha_sums;

void ph_alpha_add(ph_alpha_sums *sums, double e, int n, const float *p, const float *dp);
/* Through the weights, and through tau = e base - 1, whose gradient is dtau. */
double ph_alpha_gradient(const ph_alpha_sums *sums, double e, double base, double dtau);

#endif
