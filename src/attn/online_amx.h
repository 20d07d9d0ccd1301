/*
 * online_amx.h - the steps of online.c on AMX: q, k and v are bf16 operands unchanged
 * (ph_bf16_pairs in kernels.h). Blocks, splits and masks are those of online.c.
 */
#ifndef PH_ATTN_ONLINE_AMX_H
#define PH_ATTN_ONLINE_AMX_H

#include "attn/online.h"

/* Takes scratch for the operands of `rows` rows. */
void ph_online_amx_take(const ph_plan *plan, ph_arena *arena, int rows,
                        ph_amx_operands *out);

/* Packs q of the gathered rows. */
void ph_online_amx_begin(const ph_call *call, ph_online *online);

/* Packs keys j0 + [c0, c1) of k and v, c0 a multiple of PH_AMX_STEP. Returns 1 if v
   has no subnormal or non-finite element there. */
int ph_online_amx_pack(const ph_call *call, ph_online *online, int j0, int c0, int c1);

/* One strip, from row `first` on, against the block. */
void ph_online_amx_strip(const ph_call *call, ph_online *online, int j0, int v_normal,
                         int first);

#endif
