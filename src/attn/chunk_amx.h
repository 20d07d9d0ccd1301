/*
 * chunk_amx.h - the products of chunk.c on AMX: bf16 tensors are operands unchanged
 * (ph_bf16_pairs in kernels.h).
 *
 * q, k, v and dout are bf16 already; p and ds are bf16x3 splits, exact in sum. dk and dv
 * are computed transposed, as dk^T = q^T ds and dv^T = dout^T p: one matrix (dim rounded
 * up to PH_AMX_BLOCK, PH_AMX_BLOCK) for each PH_AMX_BLOCK keys, contiguous.
 */
#ifndef PH_ATTN_CHUNK_AMX_H
#define PH_ATTN_CHUNK_AMX_H

#include "attn/delta.h"

enum {
    PH_GROUPS =
        PH_GRAD_ROWS / PH_AMX_STEP,    /* of PH_AMX_STEP rows: one step of dk and dv */
    PH_PANELS = PH_BLOCK / PH_AMX_TILE /* of keys in a block */
};

typedef struct ph_chunk_amx {
    int k_cols, v_cols; /* dims rounded up to PH_AMX_BLOCK */
    int v_steps;        /* v_dim rounded up to PH_AMX_STEP */
    /* the chunk: k and v as right operands of s and dp, k as that of dq */
    uint16_t *k_panels, *v_panels, *k_rows;
    uint8_t *k_special, *v_special; /* (PH_CHUNK) 1: the key has a subnormal or
                                           non-finite element */
    int keys_special;               /* 1: some key has */
    /* the gathered rows: left operands of s and dp, and of dk and dv */
    uint16_t *q_rows, *dout_rows, *q_columns, *dout_columns;
    uint8_t *q_special, *dout_special; /* (PH_GRAD_ROWS) */
    int any_special;                   /* 1: some row or key has */
    float *lse, *delta, *gate;         /* (PH_GRAD_ROWS) */
    /* PH_AMX_STEP rows against a block of keys */
    float *s, *dp, *drop, *lane_max;
    float *derivative;     /* of the soft-cap, strips; NULL: there is none */
    float *p_f32, *ds_f32; /* one row of p and ds in f32, for rare paths */
    /* bf16x3 splits of p and ds: of all groups, right operands of dv and dk; of one
       group, the left operand of dq; and the columns [from, to) that each group has
       computed */
    uint16_t *p, *ds, *ds_rows;
    int from[PH_GROUPS], to[PH_GROUPS];
    float *dq;          /* (PH_GRAD_ROWS, k_cols) partial sum of the chunk */
    float *transposed;  /* PH_AMX_BLOCK keys of dk or dv, row-major */
    const void **lines; /* pointers to the rows of such a matrix */
} ph_chunk_amx;

void ph_chunk_amx_take(const ph_plan *plan, ph_arena *arena, ph_chunk_amx *out);

/* Packs keys [k0, k0 + keys). */
void ph_chunk_amx_pack_keys(const ph_call *call, ph_chunk_amx *t, const ph_rows *rows,
                            int k0, int keys);

/* The gathered rows against the chunk: adds to dk and dv, computes dq. */
void ph_chunk_amx_rows(const ph_call *call, ph_chunk_amx *t, const ph_deltas *deltas,
                       const ph_rows *rows, int k0, int keys, float *dk, float *dv);

/* Transposes keys [c, c + PH_AMX_BLOCK) of dk or dv back to rows of `dim` floats, rounded
   up to 16. */
const float *ph_chunk_amx_transpose(const ph_call *call, ph_chunk_amx *t,
                                    const float *sums, int c, int dim);

#endif
