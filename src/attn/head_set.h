/*
 * head_set.h - a head as its kernels want it: what both directions share.
 */
#ifndef PH_ATTN_HEAD_SET_H
#define PH_ATTN_HEAD_SET_H

#include "attn/head.h"

/* Whether a call asks for plain attention. */
int ph_head_plain(const ph_call *call);

/* Where a head begins in a tensor; of one that is written, NULL if it is not there. */
const float *ph_head_of(const void *tensor, const ph_strides *s, int batch, int head);
float *ph_head_out(void *tensor, const ph_strides *s, int batch, int head);

/* Keys from k0 on that a token sees, [*lo, *hi); the next one sees one further. */
void ph_head_interval(const ph_call *call, const ph_extent *extent, int token, int k0,
                      int *lo, int *hi);

/* `count` rows from `first` on of the head, and the keys that are there. */
void ph_head_set(const ph_call *call, const ph_rows *rows, float *room, int first,
                 int count, ph_head *h);

/* While a head runs it asks for the one behind it: each thread has heads in a row. */
void ph_head_beyond(const ph_call *call, const ph_rows *rows, ph_soon *soon);

#endif
