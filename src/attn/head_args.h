/*
 * head_args.h - the arguments of the head kernels that forward and backward share.
 */
#ifndef PH_ATTN_HEAD_ARGS_H
#define PH_ATTN_HEAD_ARGS_H

#include "attn/head.h"

/* Storage of ph_score_mods, ph_drop and gates, an entry per row. */
typedef struct ph_head_rows {
    const float **bias, **relative;
    const uint8_t **visible;
    float *alibi, *distance, *gate;
    uint32_t *drop_low, *drop_high;
    float *
        tables; /* per head of the group: relative bias of every distance between rows and
                   keys */
} ph_head_rows;

/* Takes scratch for `rows` rows of `group` interleaved heads and `keys` keys. */
void ph_head_rows_take(const ph_plan *plan, ph_arena *arena, int rows, int group,
                       int keys, ph_head_rows *out);

/* `count` rows of a group of heads, from `first` on, against `keys` keys from k0 on. */
typedef struct ph_head_span {
    const ph_rows *rows; /* batch, heads and lengths; nothing is gathered */
    int first, count;
    int k0, keys;
} ph_head_span;

/* Biases, masks, soft-cap and dropout of these rows and keys. */
void ph_head_mods(const ph_call *call, const ph_head_span *span, ph_head_rows *arrays,
                  ph_score_mods *mods);
ph_drop ph_head_drop(const ph_call *call, const ph_head_span *span, ph_head_rows *arrays);

/* Whether a mask other than band and lengths may hide keys. */
static inline int ph_head_excludes(const ph_call *call)
{
    return call->args->bias || call->args->visible;
}

/* Whether all rows [first, end) of the group are computed: none is gated off. */
int ph_head_all_active(const ph_call *call, const ph_rows *rows, int first, int end);

/* The visible keys of tokens from `token` on, relative to k0. */
ph_window ph_head_window(const ph_call *call, const ph_extent *extent, int token, int k0);

/* Prefetches the next head while one runs: a thread runs consecutive heads. */
void ph_head_prefetch_next(const ph_call *call, const ph_rows *rows, ph_prefetch *ahead);

#endif
