/*
 * online.h - online softmax: some rows against all their keys, block by block.
 *
 *     for each split of PH_SPLIT keys              (independent of each other)
 *         for each block of PH_BLOCK keys          (k and v of the block stay in cache)
 *             for each strip of rows               s = q k, mask, softmax step,
 *                                                  acc += p v
 *         merge the split into the whole, in order
 *     divide, gate, store
 *
 * A long prompt runs all splits in one work item; decoding runs one item per split and
 * merges afterwards. Splits and merges are the same, so both give the same bits.
 */
#ifndef PH_ATTN_ONLINE_H
#define PH_ATTN_ONLINE_H

#include "attn/rows.h"
#include "base/arena.h"

/* Online softmax of some rows: maxima, sums in 16 lanes, weighted sums of v. */
typedef struct ph_running {
    float *row_max; /* (rows)      base 2; -inf: nothing seen */
    float *sum;     /* (rows, 16) */
    float *acc;     /* (rows, v_pad) */
} ph_running;

/* Operands of AMX products of bf16 (kernels.h). */
typedef struct ph_amx_operands {
    uint16_t *q;       /* strips of PH_AMX_TILE rows */
    uint16_t *q_panel; /* the first strip as a packed panel */
    int in_place;      /* keys below this column of the block are multiplied in place */
    int v_in_place;    /* 1: so are its values */
    float *k;          /* one block, packed by ph_scores_pack_k */
    uint16_t
        *v; /* one block: steps of PH_AMX_STEP keys; subnormal and non-finite elements are
              0 */
    uint16_t *terms; /* weights of one strip */
} ph_amx_operands;

typedef struct ph_online {
    ph_rows *rows;
    ph_amx_operands amx; /* with plan->bf16_pairs; q, k, v below without */
    float *q;            /* packed for scores */
    int packed;          /* rows of q packed so far */
    ph_running split;    /* of the current split */
    ph_running whole;    /* of all splits so far */
    float *k;            /* one block, packed panels */
    float *v;            /* one block, row-major; unused where v is read in place */
    float *scores;       /* one strip */
    float *drop;         /* one strip of dropout factors */
    float *lane_max;     /* (strip, 16) */
    float *rescale;      /* (strip) of acc */
    uint8_t *started;    /* (strips) 1: acc of the strip is initialised */
} ph_online;

/* Takes scratch for the running softmax of `rows` rows. */
void ph_running_take(const ph_plan *plan, ph_arena *arena, int rows, ph_running *out);

/* row_max = -inf, sum = 0; acc stays uninitialised, the first block overwrites it. */
void ph_running_reset(int rows, ph_running *running);

/* Takes scratch for `rows` rows. With one split `whole` is `split`. */
void ph_online_take(const ph_plan *plan, ph_arena *arena, int rows, int splits,
                    ph_online *out);

/* Starts with the gathered rows. */
void ph_online_begin(const ph_call *call, ph_online *online);

/* Resets online->split and runs it over keys [first, end). */
void ph_online_run(const ph_call *call, ph_online *online, int first, int end);

/* Merges the softmax of further keys into `into`, for `rows` rows. */
void ph_online_merge(const ph_call *call, int rows, ph_running *into,
                     const ph_running *partial);

/* Adds the sink, divides, gates, stores out and lse of the gathered rows. */
void ph_online_finish(const ph_call *call, const ph_rows *rows, ph_running *result);

/* Zero output and lse -inf for rows [first, end) of the group that are not computed. */
void ph_online_clear(const ph_call *call, const ph_rows *rows, int first, int end);

#endif
