/*
 * rows.h - query rows and their visible keys.
 *
 * The engine works on rows, not on heads: the rows of a group of q heads that share their
 * k and v heads are interleaved, token by token, so k and v are read once for all:
 *
 *     row = token * group + head within the group
 *
 * Rows that are not computed (gate 0, beyond q_lens) are left out when rows are gathered.
 * A strip is mr consecutive gathered rows.
 */
#ifndef PH_ATTN_ROWS_H
#define PH_ATTN_ROWS_H

#include "attn/keys.h"

/* Valid lengths of one batch row, its rows and keys in memory, and the position of its
   query 0. */
typedef struct ph_extent {
    int q_len, kv_len;
    int q_size, kv_size; /* with padding; a sequence of a ragged batch has none */
    int64_t offset;
} ph_extent;

typedef struct ph_rows {
    int batch, head0, group; /* batch row, first q head, heads interleaved */
    int k_head, v_head;
    ph_extent extent;
    int count;              /* rows gathered */
    int low, high;          /* union of [lo, hi) */
    int all_lo, all_hi;     /* intersection of [lo, hi) */
    int token[PH_ROWS_MAX]; /* query index */
    int head[PH_ROWS_MAX];  /* q head */
    int lo[PH_ROWS_MAX];    /* keys [lo, hi) visible by position: band and lengths */
    int hi[PH_ROWS_MAX];
} ph_rows;

ph_extent ph_rows_extent(const ph_call *call, int batch);

/* Keys [*lo, *hi) inside the band of the query, not clipped to the keys that exist; the
   band moves by one key per query, except on a side without a limit. */
void ph_rows_window(const ph_attn *attn, const ph_extent *extent, int token, int64_t *lo,
                    int64_t *hi);

/* Keys [*lo, *hi) that the query sees by position. */
void ph_rows_interval(const ph_attn *attn, const ph_extent *extent, int token, int *lo,
                      int *hi);

/* The gate of a row; 1 if the call has none. */
float ph_rows_gate(const ph_call *call, int batch, int head, int token);

/* 1 if the row is computed: its gate is not 0. */
int ph_rows_active(const ph_call *call, int batch, int head, int token);

/* Sets batch, heads and extent; count 0. */
void ph_rows_begin(const ph_call *call, ph_rows *rows, int batch, int head0, int group);

/* Gathers up to `most` active rows of [first, end); returns the row after the last. */
int ph_rows_gather(const ph_call *call, ph_rows *rows, int first, int end, int most);

/* Gathers every row of the tokens [first, end) of one head, gated off or not: where heads
   are mixed, the others need its logits. */
void ph_rows_all(const ph_call *call, ph_rows *rows, int first, int end);

/* Index of row r in a (batch, q_heads, q_len) tensor. */
static inline int64_t ph_rows_index(const ph_call *call, const ph_rows *rows, int r)
{
    return ph_row_index(call, rows->batch, rows->head[r], rows->token[r]);
}

/* Element index of row r in a tensor with q-like strides. */
static inline int64_t ph_rows_at(const ph_call *call, const ph_rows *rows, int r,
                                 const ph_strides *s)
{
    return ph_row_at(call, s, rows->batch, rows->head[r], rows->token[r]);
}

/* The same for dout. */
static inline int64_t ph_dout_at(const ph_call *call, const ph_rows *rows, int r)
{
    return ph_row_at(call, &call->plan->backward.dout, rows->batch,
                     ph_dout_head(call, rows->head[r]), rows->token[r]);
}

/* Whether every row sees all keys [from, to) by position. */
static inline int ph_rows_all_see(const ph_rows *rows, int from, int to)
{
    return rows->all_lo <= from && to <= rows->all_hi;
}

/* Pointers to rows [first, first+count) of a q-like tensor. */
void ph_rows_pointers(const ph_call *call, const ph_rows *rows, int first, int count,
                      const void *base, const ph_strides *strides, const void **out);

/* q of all rows as f32, times scale: row r at dst + r * k_pad. */
void ph_rows_pack_q(const ph_call *call, const ph_rows *rows, float scale, float *dst);

/* q of all rows packed for scores: strips of plan->q_floats. */
void ph_scores_pack_q(const ph_call *call, const ph_rows *rows, float *dst);
size_t ph_scores_q_floats(const ph_plan *plan, int rows);

/* Packs keys [j0 + c0, j0 + c1) for scores, c0 a multiple of nr: key c at
   dst + c * plan->k_floats. The second function returns the capacity for `keys` keys. */
void ph_scores_pack_k(const ph_call *call, int batch, int head, int j0, int c0, int c1,
                      float *dst);
size_t ph_scores_k_floats(const ph_plan *plan, int keys);

/* Keys [*c0, *c1) of the block [j0, j0 + PH_BLOCK) that rows [first, first+m) need, as
   offsets from j0; c0 is a multiple of nr, with bf16 pairs of PH_AMX_STEP. Returns 0 if
   there are none. */
int ph_rows_range(const ph_call *call, const ph_rows *rows, int first, int m, int j0,
                  int *c0, int *c1);

/* A strip of scores: rows [first, first+m) against keys [c0, c1) of the block at j0. s
   has columns c0 up to c1 rounded up to 16, PH_STRIP_LD floats per row. */
typedef struct ph_score_strip {
    const ph_rows *rows;
    int first, m;
    int j0, c0, c1;
    float *s;
    float *lane_max;   /* (m, 16) for softmax */
    float *derivative; /* out: a strip of derivatives of the soft-cap; or NULL */
} ph_score_strip;

/* Scores in base 2, hidden ones -inf. q are the packed rows, k the packed block. Returns
   1 if a key in [c0, c1) is hidden from a row. */
int ph_rows_scores(const ph_call *call, const ph_score_strip *strip, const float *q,
                   const float *k);

/* The same after the product, which s and lane_max already hold. */
int ph_rows_mask(const ph_call *call, const ph_score_strip *strip);

/* Whether ph_rows_mask would change nothing for these rows and keys. */
int ph_rows_whole(const ph_call *call, const ph_rows *rows, int first, int m, int j0,
                  int c0, int c1);

/* bias, alibi, soft-cap and masks on the scores of row r against the keys [c0, c1) of the
   block at j0; hidden ones, and columns up to the next multiple of 16, become -inf.
   derivative as above, of one row. Returns 1 if one is hidden by position. */
int ph_rows_modify(const ph_call *call, const ph_rows *rows, int r, int j0, int c0,
                   int c1, float *s, float *derivative);

/* Row of a broadcast tensor that belongs to (batch, head, token), as an element index. */
int64_t ph_broadcast_row(const ph_attn *attn, const ph_broadcast *shape, int batch,
                         int head, int token);

/* Columns [*from, *to) of n whose distance first + c is within the reach of
   ph_args.relative. */
void ph_rows_within(const ph_call *call, int64_t first, int n, int *from, int *to);

/* 1 if the row sees key j. Slow, for rare paths. */
int ph_rows_sees(const ph_call *call, const ph_rows *rows, int r, int j);

/* Fills columns c0 up to c1 rounded up to 16 of a strip with the factors of dropout. */
void ph_rows_dropout(const ph_call *call, const ph_rows *rows, int first, int m, int j0,
                     int c0, int c1, float *factors);

#endif
