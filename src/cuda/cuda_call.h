/*
 * cuda_call.h - what a kernel is given: one call, by value, in plain C for both sides.
 */
#ifndef PH_CUDA_CALL_H
#define PH_CUDA_CALL_H

#include "polyhead.h"

/* Elements of a row that tensor copies can read: 16 bytes are 8 of them. */
#define PH_CUDA_PADDED(dim) (((dim) + 7) / 8 * 8)

/* One of q, k and v in a layout that tensor copies can read: pack_rows.cu. */
typedef struct ph_cuda_packed {
    uint16_t *base; /* in the workspace; NULL: it is read as the caller has it */
    ph_strides at;
} ph_cuda_packed;

/* Rows that a call with a gate per row computes, in the workspace: gather_rows.cu. */
typedef struct ph_cuda_gathered {
    int32_t *count; /* (batch, q_heads) */
    int32_t *token; /* shape of the gate: the first `count` of each head, in order */
    uint16_t *q;    /* (shape of the gate, qk_dim padded) and their queries */
} ph_cuda_gathered;

typedef struct ph_cuda_call {
    ph_attn attn;        /* of the plan: defaults filled in */
    ph_args args;        /* tensors in device memory */
    ph_grads grads;      /* all NULL in a forward pass */
    float scale2;        /* scale * log2(e): scores are in base 2 */
    float cap2;          /* softcap * log2(e) */
    float cap_rate;      /* fast kernels: 2 log2(e) / softcap, times the scale */
    float cap_decay;     /* 2 / softcap: exp(-2 |s| / softcap) of a score in base 2 */
    float score_scale;   /* fast kernels: unit of scores in base 2: scale2 or cap2 */
    float drop_keep;     /* 1/(1 - dropout) */
    uint32_t drop_limit; /* a random number below it drops a weight */
    int table_len;       /* of a batch row in page_table */
    int modified;        /* 1: more than positions and the scale makes a score */

    /* Workspace of the backward pass. */
    float *lse2;       /* (batch, q_heads, q_len) base 2; +inf: the row saw no key */
    float *delta;      /* (batch, q_heads, q_len) dout . out - dlse */
    double *row_dgate; /* (batch, q_heads, q_len) terms of dgate per head */
    double *row_dsink; /* (batch, q_heads, q_len) terms of dsink */
    double *slices;    /* (slice_count, q_heads, 2*reach + 1) partial sums of drelative */
    int slice_count;

    ph_cuda_packed packed[3];  /* of q, k, v, for pack_rows.cu */
    ph_cuda_gathered gathered; /* all NULL unless rows were gathered */
} ph_cuda_call;

#endif
