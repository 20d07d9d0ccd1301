/*
 * whole_head.h - arguments of the kernels that handle a whole head at once: head_forward
 * and head_backward of kernels.h.
 */
#ifndef PH_KERNELS_WHOLE_HEAD_H
#define PH_KERNELS_WHOLE_HEAD_H

#include "kernels/sizes.h"

/* A mask by position: row r belongs to token (phase + r) / group, and token i sees the
   keys [lo + i, hi + i). |lo|, |hi| <= 2^20. */
typedef struct ph_window {
    int lo, hi, group, phase;
} ph_window;

/* What the scores of rows go through between the product and the softmax, in this order:
   bias, bias by distance, ALiBi, soft-cap; then a bias of -inf and `visible` exclude
   keys. Arrays have an entry for each row; NULL (cap: 0) leaves a step out. */
typedef struct ph_score_mods {
    const float *const *bias;      /* from key 0 on; added times log2(e) */
    const float *const *relative;  /* the same, from a table by distance */
    const float *alibi;            /* slopes times log2(e) */
    const float *distance;         /* of key 0 from the row's position, for alibi */
    float cap;                     /* in base 2 */
    const uint8_t *const *visible; /* from key 0 on; 0 hides */
} ph_score_mods;

/* Which weights are dropped, as `dropout` below has it. */
typedef struct ph_drop {
    const uint32_t *low, *high; /* (rows) halves of their keys; NULL: no dropout */
    uint32_t first, limit;      /* first: the index of key 0 */
    float keep;
} ph_drop;

/* A whole head of attention; rows are q_ld, k_ld, ... floats apart.

       s = mods(scale q k^T)     p = 2^(s - max s)     out = gate drop(p) v / sum of p

   Where a row sees no key out is 0 and lse -inf, or the sink. v is finite where a key is
   hidden from some rows only: [lo, lo + rows - 1) and [hi, hi + rows - 1); with bias or
   visible everywhere. The kernel is called once per split of PH_SPLIT keys, in order and
   with the same scratch: only k and v of one split at a time are in f32 blocks. */
typedef struct ph_head {
    int rows, keys, k_dim, v_dim;
    ph_window window; /* of group 1, lo and hi in [-rows, keys] */
    int split;        /* its first key, a multiple of PH_SPLIT */
    const float *q;
    /* blocks of PH_STRIP_LD keys of the split, then the one that follows it, which is
       only prefetched; NULL: none. Rows of v have v_dim elements rounded up to 16. */
    const float *k[PH_SPLIT_BLOCKS + 1], *v[PH_SPLIT_BLOCKS + 1];
    int64_t q_ld, k_ld, v_ld, out_ld;
    float scale; /* of q, times log2(e) */
    ph_score_mods mods;
    ph_drop drop;
    const float *gate; /* (rows), or NULL: 1 */
    const float *sink; /* one logit that takes part but has no value; or NULL */
    float *out;
    float *lse;           /* (rows) natural logarithm, or NULL: not wanted */
    ph_prefetch prefetch; /* meanwhile: k, q and v of another head */
    float *scratch;       /* ph_head_floats */
} ph_head;

/* Running sums of a row: maximum, 16 lanes, weighted sum of v. */
static inline int64_t ph_running_floats(int v_pad)
{
    return 1 + PH_LANES + v_pad;
}

/* Floats for the scores of a block, transposed rows and their running sums, of all rows
   if there are several splits. */
static inline size_t ph_head_floats(int rows, int keys, int k_dim, int v_dim)
{
    int64_t k_pad = ph_round_up(k_dim, PH_LANES), v_pad = ph_round_up(v_dim, PH_LANES);
    int64_t saved = keys > PH_SPLIT ? ph_round_up(rows, PH_NR_MAX) : PH_NR_MAX;
    int64_t running = ph_running_floats((int)v_pad);
    return (size_t)(saved * (k_pad + running) + PH_NR_MAX * (running + PH_STRIP_LD));
}

/* Where a gradient goes. */
enum {
    PH_SUM_STORE,    /* to = scale * sum */
    PH_SUM_CONTINUE, /* dk, dv: the same, and the sum goes on from what is there */
    PH_SUM_ADD       /* dq: to += sum */
};
typedef struct ph_grad_sum {
    float *to; /* NULL: not wanted */
    int64_t ld;
    float scale;
    int how;
} ph_grad_sum;

/* The backward pass of a head, or of a part of it: rows against keys.

       p = 2^(s - lse)    ds = p (drop dout v^T - delta) (derivative of the soft-cap)
       dq = ds k          dk = ds^T q          dv = (drop p)^T dout

   Rows of the window's group of heads stand side by side. Rows of q, k, v and dout have
   zeros behind k_dim and v_dim up to the next 16; k, q and dout are finite where a key is
   hidden from a row. */
enum { PH_GRAD_BLOCK_ROWS = 192, PH_GRAD_BLOCK_KEYS = 256, PH_GRAD_BLOCK_PIECE = 48 };
typedef struct ph_grad_block {
    int rows, keys; /* at most PH_GRAD_BLOCK_ROWS, PH_GRAD_BLOCK_KEYS */
    int k_dim, v_dim;
    ph_window window;
    const float *q, *k, *v, *dout;
    int64_t q_ld, k_ld, v_ld, dout_ld;
    float scale; /* of q, times log2(e) */
    ph_score_mods mods;
    ph_drop drop;
    const float *lse, *delta; /* (rows) lse in base 2, +inf: a row without p */
    ph_grad_sum dq, dk, dv;
    ph_prefetch prefetch; /* meanwhile */
    float *scratch;       /* ph_grad_block_floats */
} ph_grad_block;

/* Distance between the lines of two keys: p and ds of all rows, and padding against
   cache-set conflicts. */
static inline int ph_head_line(int rows)
{
    return 2 * ph_round_up(rows, PH_NR_MAX) + PH_LANES;
}

/* A transposed panel, the derivatives of the soft-cap of up to two pieces of keys, and p
   and ds. */
static inline size_t ph_grad_block_floats(int k_dim, int v_dim, int rows, int keys)
{
    int dim = ph_round_up(ph_max(k_dim, v_dim), PH_LANES);
    return (size_t)PH_NR_MAX * (size_t)(dim + 2 * PH_GRAD_BLOCK_PIECE) +
           (size_t)ph_head_line(rows) * (size_t)keys;
}

#endif
