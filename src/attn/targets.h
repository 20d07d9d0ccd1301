/*
 * targets.h - where the gradients of one chunk of keys go.
 */
#ifndef PH_ATTN_TARGETS_H
#define PH_ATTN_TARGETS_H

#include "attn/plan.h"

/* dq of a cluster of heads: the row of (head in cluster, token). */
enum {
    PH_DQ_STORE, /* a single chunk: scaled and rounded into the caller's tensor */
    PH_DQ_FRESH, /* the first chunk: overwrites k_pad floats */
    PH_DQ_ADD    /* later chunks: added to k_pad floats */
};
typedef struct ph_dq_target {
    void *base; /* NULL: not wanted */
    int64_t head, time;
    int how;
} ph_dq_target;

/* dq of consecutive heads in the caller's tensor. */
ph_dq_target ph_dq_tensor(const ph_call *call, int batch, int head);

/* Clears rows [first, end) of `heads` consecutive heads, row = token * heads + head,
   unless sums of earlier chunks lie there. */
void ph_clear_dq(const ph_call *call, const ph_dq_target *target, int heads,
                 int64_t first, int64_t end);

/* A chunk's partial sum, k_pad floats. */
void ph_dq_put(const ph_call *call, const ph_dq_target *target, int head, int token,
               const float *partial);

/* dk or dv of a chunk of one head. */
typedef struct ph_key_target {
    void *base; /* of the chunk's first key; NULL: not wanted */
    int64_t time;
    int dim;
    float scale;
} ph_key_target;

ph_key_target ph_dk_target(const ph_call *call, int batch, int head, int k0);
ph_key_target ph_dv_target(const ph_call *call, int batch, int head, int k0);

/* Rounds and stores rows of keys [first, end); sums NULL: zeros, as keys beyond their
   length get. */
void ph_store_keys(const ph_call *call, const ph_key_target *target, int first, int end,
                   const float *sums);

#endif
