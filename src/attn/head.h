/*
 * head.h - whole heads by one kernel, forward and backward.
 *
 * With short heads the calls between kernels would cost as much as the products, and long
 * ones do without packed keys. The functions return 0 and leave everything to the online
 * softmax or chunk.c where rows must be gathered (some are gated off), a hidden element
 * is NaN or Inf, or the plan does not fit.
 */
#ifndef PH_ATTN_HEAD_H
#define PH_ATTN_HEAD_H

#include "attn/chunk.h"

/* out and lse of rows [first, end) of a head; its scratch. */
size_t ph_head_forward_bytes(const ph_plan *plan);
int ph_head_forward(const ph_call *call, ph_arena arena, int batch, int head, int first,
                    int end);

/* The same as ph_chunk_run; its scratch. */
size_t ph_head_chunk_bytes(const ph_plan *plan);
int ph_head_chunk(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int batch,
                  int head0, int chunk, ph_dq_target target);

#endif
