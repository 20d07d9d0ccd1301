/*
 * head_set.h - a head as its kernels want it: what both directions share.
 */
#ifndef PH_ATTN_HEAD_SET_H
#define PH_ATTN_HEAD_SET_H

#include "attn/head.h"

/* Whether a call says of a score no more than lengths and a mask by position do. */
int ph_head_plain(const ph_call *call);

/* Keys from k0 on that a token sees, [*lo, *hi); the next one sees one further. */
void ph_head_interval(const ph_call *call, const ph_extent *extent, int token, int k0,
                      int *lo, int *hi);

/* While a head runs it asks for the one behind it: each thread has heads in a row. */
void ph_head_beyond(const ph_call *call, const ph_rows *rows, ph_soon *soon);

#endif
