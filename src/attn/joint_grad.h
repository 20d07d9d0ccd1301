/*
 * joint_grad.h - what the passes of the joint backward driver share: one joint block of
 * weights and of gradients.
 *
 *     s raw logits     p weights     d gradient of the weights, then of the logits
 */
#ifndef PH_ATTN_JOINT_GRAD_H
#define PH_ATTN_JOINT_GRAD_H

#include "attn/joint.h"

/* Buffers of one joint block; those a variant does not need are NULL. */
typedef struct ph_joint_grad_block {
    float *s;          /* logits before mixing */
    float *p;          /* weights before mixing */
    float *derivative; /* entmax: derivative of the power; else p itself */
    float *cap;        /* derivative of the soft-cap */
    float *d;          /* gradients */
    float *x;          /* gradients before unmixing, or after */
} ph_joint_grad_block;

/* Rows packed for products. */
typedef struct ph_joint_grad {
    ph_joint_rows r;
    ph_grad_rows *g;     /* (heads) */
    float **q;           /* (heads) q of g, scaled */
    float *stat, *delta; /* (heads, rows) */
    float *drop;
    int finite;                /* q and dout of all rows */
    ph_joint_keys own;         /* one block of keys, where none are packed beforehand */
    const ph_joint_keys *keys; /* of the block at hand */
} ph_joint_grad;

/* What all items of a backward call share. */
typedef struct ph_joint_task {
    const ph_call *call;
    ph_joint_keys keys;
    ph_work_cut cut;     /* items of a pass: its blocks, times the sets or clusters */
    float *stat, *delta; /* (batch, q_heads, q_len): lse or base, in base 2, +inf where no
                            key is seen; delta once the row pass is over */
    double *sums;        /* (items of a round): dgate, dsink, dalpha by head, drelative */
    double *totals;      /* the same of all rounds */
    float *partials;     /* (items of a round, floats of shared extras) */
    int batch;           /* first batch row of the wave */
    int first;           /* first item of the round */
} ph_joint_task;

void ph_joint_grad_take(const ph_plan *plan, ph_arena *arena, int rows,
                        ph_joint_grad *out);
void ph_joint_grad_block_take(const ph_plan *plan, ph_arena *arena, int rows, int blocks,
                              ph_joint_grad_block *out);
/* Packs the gathered rows. */
void ph_joint_grad_pack(const ph_joint_task *task, ph_joint_grad *w, int rows);
/* Finds or packs the keys of the block at j0, which the functions below read. */
void ph_joint_grad_keys(const ph_joint_task *task, ph_joint_grad *w, int batch, int set,
                        int j0);
/* Fills s, p, derivative, cap, and with dout v^T x (where the weights are mixed) or d. */
void ph_joint_build(const ph_call *call, ph_joint_grad *w, ph_joint_block *t,
                    const ph_joint_grad_block *b);
/* d becomes the gradient of the logits after mixing, before bias and cap. */
void ph_joint_center(const ph_call *call, const ph_joint_grad *w, const ph_joint_block *t,
                     const ph_joint_grad_block *b);

/* Adds to dbias, from the batch rows of the wave; after the row pass. */
void ph_joint_bias_gradient(const ph_joint_task *task, int batch_rows);
size_t ph_joint_bias_bytes(const ph_plan *plan);

/* dk, dv and all other gradients of keys; after the row pass. */
void ph_joint_key_pass(ph_joint_task *task, int batch_rows);
size_t ph_joint_key_bytes(const ph_plan *plan);

#endif
