/*
 * alias.h - checks that no output of a call overlaps another tensor; layers add their own
 * tensors to the list.
 */
#ifndef PH_ATTN_ALIAS_H
#define PH_ATTN_ALIAS_H

#include "attn/plan.h"
#include "base/overlap.h"

/* Refuses a call of attention (PH_DO_FORWARD, ...) whose outputs overlap anything; grads
   of PH_DO_BACKWARD only. */
ph_status ph_alias_check(const ph_plan *plan, const ph_args *args, const ph_grads *grads,
                         int what);

/* For calls that add to the list: all of args but q, k, v, out, extra and workspace. */
void ph_alias_args(ph_mem_ranges *s, const ph_attn *a, const ph_args *args, int what);

/* dlse and the gradients of what ph_alias_args lists; dout, dq, dk, dv and dextra are
   added by the caller. */
void ph_alias_grads(ph_mem_ranges *s, const ph_attn *a, const ph_grads *grads);

/* A tensor of a variant or a layer, or its gradient. */
void ph_alias_param(ph_mem_ranges *s, const char *prefix, const ph_param *param,
                    const void *base, int written);

#endif
