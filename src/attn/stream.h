/*
 * stream.h - the online softmax of a block of rows over their keys.
 *
 *     for each split of PH_SPLIT keys              (independent of each other)
 *         for each block of PH_BLOCK keys          (k and v of the block stay in cache)
 *             for each strip of rows               s = q k, mask, softmax step,
 *                                                  acc += p v
 *         merge the split into the whole, in order
 *     divide, gate, store
 *
 * The same steps serve long prompts (all splits in one work item) and decoding (one work
 * item per split, merged afterwards): that is why both give the same bits.
 */
#ifndef PH_ATTN_STREAM_H
#define PH_ATTN_STREAM_H

#include "attn/rows.h"
#include "base/arena.h"

/* Online softmax of some rows: maxima, sums in 16 lanes, weighted sums of v. */
typedef struct ph_running {
    float *row_max; /* (rows)      base 2; -inf: nothing seen */
    float *sum;     /* (rows, 16) */
    float *acc;     /* (rows, v_pad) */
} ph_running;

/* Operands of AMX products of bf16 (kernels.h). */
typedef struct ph_tiles {
    uint16_t *q;        /* strips of PH_AMX_TILE rows */
    uint16_t *q_across; /* the first of them transposed */
    int along;          /* column of the block up to which keys are multiplied in place */
    float *k;           /* one block, as ph_scores_pack_k leaves it */
    uint16_t *v; /* one block: steps of PH_AMX_STEP keys; what is not plain is 0 here */
    uint16_t *terms; /* weights of one strip */
} ph_tiles;

typedef struct ph_stream {
    ph_rows *rows;
    ph_tiles tiles;   /* with plan->bf16_pairs; q, k, v below without */
    float *q;         /* as scores want it */
    int packed;       /* so many rows of it are there */
    ph_running split; /* of the current split */
    ph_running whole; /* of all splits so far */
    float *k;         /* one block, packed across */
    float *v;         /* one block, rows; unused where v is read in place */
    float *scores;    /* one strip */
    float *drop;      /* one strip of dropout factors */
    float *lane_max;  /* (strip, 16) */
    float *rescale;   /* (strip) of acc */
    uint8_t *started; /* (strips) acc of the strip holds something */
} ph_stream;

/* Carves running sums for so many rows. */
void ph_running_take(const ph_plan *plan, ph_arena *arena, int rows, ph_running *out);

/* Nothing seen yet; acc is not touched: whoever sees the first key overwrites it. */
void ph_running_reset(int rows, ph_running *running);

/* Carves a stream for so many rows. With one split `whole` is `split`. */
void ph_stream_take(const ph_plan *plan, ph_arena *arena, int rows, int splits,
                    ph_stream *out);

/* Makes ready for the gathered rows. */
void ph_stream_begin(const ph_call *call, ph_stream *stream);

/* Runs over keys [first, end) into stream->split, from nothing. */
void ph_stream_run(const ph_call *call, ph_stream *stream, int first, int end);

/* into = into and part, for `rows` rows. */
void ph_stream_merge(const ph_call *call, int rows, ph_running *into,
                     const ph_running *part);

/* Adds the sink, divides, gates, stores out and lse of the gathered rows. */
void ph_stream_finish(const ph_call *call, const ph_rows *rows, ph_running *result);

/* Zero output and lse -inf for rows [first, end) of the group that are not computed. */
void ph_stream_clear(const ph_call *call, const ph_rows *rows, int first, int end);

#endif
