/*
 * head.h - plain heads, by one kernel for each direction.
 *
 * Short ones are many, and what goes on between kernels would cost them as much as the
 * products do; long ones need no packed keys. Both functions return 0 where more than
 * plain attention is asked for, or a hidden number is not finite: then all is left to be
 * done.
 */
#ifndef PH_ATTN_HEAD_H
#define PH_ATTN_HEAD_H

#include "attn/chunk.h"

/* Floats of room that a call needs; 0: the plan's heads are not of that kind. */
size_t ph_head_forward_room(const ph_plan *plan);

/* out and lse of rows [first, end) of the group of heads from `head` on. */
int ph_head_forward(const ph_call *call, float *room, int batch, int head, int first,
                    int end);

/* What ph_chunk_run does, for plain heads; bytes of the arena that it wants. */
size_t ph_head_chunk_bytes(const ph_plan *plan);
int ph_head_chunk(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int pair,
                  int chunk, ph_dq_target target);

#endif
