/*
 * head_set.h - a head as its kernels want it: what both directions share.
 */
#ifndef PH_ATTN_HEAD_SET_H
#define PH_ATTN_HEAD_SET_H

#include "attn/head.h"

/* Arrays behind ph_score_mods, ph_drop and gates, an entry per row. */
typedef struct ph_head_rows {
    const float **bias, **relative;
    const uint8_t **visible;
    float *alibi, *distance, *gate;
    uint32_t *drop_low, *drop_high;
    float *tables; /* of each head of the group: relative, one entry per distance that
                      rows and keys have */
} ph_head_rows;

/* Carves them for so many rows, of plan->group or 1 head side by side, and keys. */
void ph_head_rows_take(const ph_plan *plan, ph_arena *arena, int rows, int group,
                       int keys, ph_head_rows *out);

/* `count` rows of a group of heads, from `first` on, against `keys` keys from k0 on. */
typedef struct ph_head_span {
    const ph_rows *rows; /* batch, heads and lengths; nothing is gathered */
    int first, count;
    int k0, keys;
} ph_head_span;

/* What a call says of their scores and weights. */
ph_score_mods ph_head_mods(const ph_call *call, const ph_head_span *span,
                           ph_head_rows *arrays);
ph_drop ph_head_drop(const ph_call *call, const ph_head_span *span, ph_head_rows *arrays);

/* Whether a key may be hidden from a row by more than its position. */
static inline int ph_head_excludes(const ph_call *call)
{
    return call->args->bias || call->args->visible;
}

/* Whether all rows [first, end) of the group are computed: none is gated off. */
int ph_head_all_active(const ph_call *call, const ph_rows *rows, int first, int end);

/* The keys, counted from k0 on, that tokens from `token` on see. */
ph_window ph_head_window(const ph_call *call, const ph_extent *extent, int token, int k0);

/* Prefetches the next head while one runs: each thread has heads in a row. */
void ph_head_prefetch_next(const ph_call *call, const ph_rows *rows, ph_prefetch *ahead);

#endif
