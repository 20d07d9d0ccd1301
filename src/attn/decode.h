/*
 * decode.h - few queries against many keys.
 */
#ifndef PH_ATTN_DECODE_H
#define PH_ATTN_DECODE_H

#include "attn/plan.h"

size_t ph_decode_bytes(const ph_plan *plan);
void ph_decode(const ph_call *call);

#endif
