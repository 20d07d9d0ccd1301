/*
 * head.h - a head of few keys, by one kernel for each direction.
 *
 * Such heads are many, and what goes on between kernels would cost them as much as the
 * products do. Both functions return 0, with nothing done, where more than plain
 * attention is asked for, or a hidden number is not finite.
 */
#ifndef PH_ATTN_HEAD_H
#define PH_ATTN_HEAD_H

#include "attn/rows.h"

/* Floats of room that a call needs; 0: the plan's heads are not of that kind. */
size_t ph_head_forward_room(const ph_plan *plan);
size_t ph_head_backward_room(const ph_plan *plan);

/* out and lse of rows [first, end) of a head. */
int ph_head_forward(const ph_call *call, float *room, int batch, int head, int first,
                    int end);

/* dq, dk and dv of a head. */
int ph_head_backward(const ph_call *call, float *room, int batch, int head);

#endif
