/*
 * chunk_pairs.h - the tiles of chunk.c for bf16 tensors whose numbers are multiplied as
 * they are (ph_bf16_pairs in kernels.h).
 *
 * q, k, v and dout go in as they are, p and ds as three terms that are the number
 * exactly. Rows are the lines of p and ds, so dk and dv come out turned: of each
 * PH_AMX_BLOCK keys a matrix (dim rounded up to PH_AMX_BLOCK, PH_AMX_BLOCK), such
 * matrices behind each other.
 */
#ifndef PH_ATTN_CHUNK_PAIRS_H
#define PH_ATTN_CHUNK_PAIRS_H

#include "attn/delta.h"

enum {
    PH_GROUPS = PH_GRAD_ROWS / PH_AMX_STEP, /* of rows in a tile: one step of dk and dv */
    PH_PANELS = PH_BLOCK / PH_AMX_TILE      /* of keys in a block */
};

typedef struct ph_chunk_pairs {
    int k_wide,
        v_wide;  /* dims rounded up to PH_AMX_BLOCK: numbers of a key in dk and dv */
    int v_steps; /* v_dim rounded up to PH_AMX_STEP */
    /* the chunk: k and v as right operands of s and dp, k as that of dq */
    uint16_t *k_across, *v_across, *k_along;
    uint8_t *k_odd, *v_odd; /* (PH_CHUNK) 1: some number of the key is not plain */
    int keys_odd;           /* 1: so it is for some of them */
    /* a tile of rows: left operands of s and dp, and of dk and dv */
    uint16_t *q_rows, *dout_rows, *q_columns, *dout_columns;
    uint8_t *q_odd, *dout_odd; /* (PH_GRAD_ROWS) */
    int any_odd;               /* 1: so it is for some of the rows or keys */
    float *lse, *delta, *gate; /* (PH_GRAD_ROWS) */
    /* PH_AMX_STEP rows against a block of keys */
    float *s, *dp, *drop, *lane_max;
    float *derivative;         /* strips of slopes of the soft-cap; NULL: there is none */
    float *p_plain, *ds_plain; /* one row of p and ds as they are, for rare paths */
    /* the same in terms: of all groups, right operands of dv and dk; of one group, the
       left operand of dq; and which columns each group has made */
    uint16_t *p, *ds, *ds_rows;
    int from[PH_GROUPS], to[PH_GROUPS];
    float *dq;          /* (PH_GRAD_ROWS, k_wide) share of the chunk */
    float *turned;      /* PH_AMX_BLOCK keys of dk or dv as rows */
    const void **lines; /* where their lines are */
} ph_chunk_pairs;

void ph_chunk_pairs_take(const ph_plan *plan, ph_arena *arena, ph_chunk_pairs *out);

/* Packs keys [k0, k0 + keys). */
void ph_chunk_pairs_keys(const ph_call *call, ph_chunk_pairs *t, const ph_rows *rows,
                         int k0, int keys);

/* The gathered rows against the chunk: adds to dk and dv, and makes dq. */
void ph_chunk_pairs_tile(const ph_call *call, ph_chunk_pairs *t, const ph_deltas *deltas,
                         const ph_rows *rows, int k0, int keys, float *dk, float *dv);

/* Keys [c, c + PH_AMX_BLOCK) of dk or dv as rows of `dim` numbers, rounded up to 16. */
const float *ph_chunk_pairs_rows(const ph_call *call, ph_chunk_pairs *t,
                                 const float *sums, int c, int dim);

#endif
