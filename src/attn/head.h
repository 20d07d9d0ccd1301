/*
 * head.h - heads by one kernel for each direction.
 *
 * Short heads are many, and what goes on between kernels would cost them as much as the
 * products do; long ones need no packed keys. The functions return 0 where rows must be
 * gathered (some are gated off), a hidden value is not finite, or the plan is not of that
 * kind: then all is left to be done.
 */
#ifndef PH_ATTN_HEAD_H
#define PH_ATTN_HEAD_H

#include "attn/chunk.h"

/* out and lse of rows [first, end) of a head; bytes of the arena that it wants. */
size_t ph_head_forward_bytes(const ph_plan *plan);
int ph_head_forward(const ph_call *call, ph_arena arena, int batch, int head, int first,
                    int end);

/* What ph_chunk_run does; bytes of the arena that it wants. */
size_t ph_head_chunk_bytes(const ph_plan *plan);
int ph_head_chunk(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int pair,
                  int chunk, ph_dq_target target);

#endif
