/*
 * visible.cuh - which rows are computed, where rows and keys lie, and which keys a row
 * sees by lengths and position.
 */
#ifndef PH_CUDA_VISIBLE_CUH
#define PH_CUDA_VISIBLE_CUH

#include "cuda/cuda_call.h"

struct extent {
    int q_len, kv_len;     /* of one batch row */
    int q_first, kv_first; /* where it begins on the token axis: 0 unless ragged */
    int64_t offset;        /* position of query 0 */
};

static __device__ inline int clamp_length(const int32_t *lens, int batch, int most)
{
    return lens ? min(max(lens[batch], 0), most) : most;
}

/* A sequence of a ragged batch: its length. */
static __device__ inline int clamp_sequence(const int32_t *offsets, int batch, int total,
                                            int most, int *first)
{
    *first = min(max(offsets[batch], 0), total);
    return min(max(offsets[batch + 1] - *first, 0), min(total - *first, most));
}

static __device__ inline extent extent_of(const ph_cuda_call &c, int batch)
{
    const ph_attn &a = c.attn;
    const ph_args &args = c.args;
    extent e;
    e.q_first = e.kv_first = 0;
    e.q_len = a.ragged
                  ? clamp_sequence(args.q_offsets, batch, a.q_total, a.q_len, &e.q_first)
                  : clamp_length(args.q_lens, batch, a.q_len);
    e.kv_len =
        a.ragged == PH_RAGGED_ALL
            ? clamp_sequence(args.kv_offsets, batch, a.kv_total, a.kv_len, &e.kv_first)
            : clamp_length(args.kv_lens, batch, a.kv_len);
    e.offset = c.attn.anchor == PH_ANCHOR_OFFSET ? c.attn.q_offset
               : c.attn.anchor == PH_ANCHOR_END  ? (int64_t)e.kv_len - e.q_len
                                                 : 0;
    return e;
}

/* ---- where rows and keys lie ---- */

/* Rows that have a place in out and lse: a ragged batch has no padding. */
static __device__ inline int stored_rows(const ph_attn &a, const extent &e)
{
    return a.ragged ? e.q_len : a.q_len;
}

/* The same of keys in dk and dv. */
static __device__ inline int stored_keys(const ph_attn &a, const extent &e)
{
    return a.ragged == PH_RAGGED_ALL ? e.kv_len : a.kv_len;
}

/* Index of row 0 in a packed (batch, q_heads, q_len) tensor: lse, gate; tokens lie side by
   side. */
static __device__ inline int64_t row_index(const ph_attn &a, const extent &e, int batch,
                                           int head)
{
    if (a.ragged) return (int64_t)head * a.q_total + e.q_first;
    return ((int64_t)batch * a.q_heads + head) * a.q_len;
}

/* Element index of row `first` of a batch row; a ragged tensor has no batch stride. */
static __device__ inline int64_t start_of(const ph_strides &s, int batch, int head,
                                          int first)
{
    return batch * s.batch + head * s.head + first * s.time;
}

/* What multiplies the output of a row; a row with 0 is not computed. */
static __device__ inline float gate_of(const ph_cuda_call &c, const extent &e, int batch,
                                       int head, int token)
{
    if (!c.args.gate) return 1;
    if (c.attn.gate == PH_GATE_HEAD) return c.args.gate[head];
    return c.args.gate[row_index(c.attn, e, batch, head) + token];
}

/* ---- which keys a row sees ---- */

/* Keys [lo, hi) that the mask by position shows to a token; lo >= hi: none. */
static __device__ inline void interval(const ph_attn &a, const extent &e, int token,
                                       int *lo, int *hi)
{
    int64_t position = token + e.offset, low = 0, high = e.kv_len;
    int left = a.mask == PH_MASK_BAND ? a.band_left : -1;
    int right = a.mask == PH_MASK_BAND ? a.band_right : a.mask == PH_MASK_CAUSAL ? 0 : -1;
    if (left >= 0) low = max(low, position - left);
    if (right >= 0) high = min(high, position + right + 1);
    *lo = (int)min(low, (int64_t)e.kv_len);
    *hi = (int)max(high, (int64_t)0);
}

static __device__ inline int is_visible(const ph_attn &a, const extent &e, int token,
                                        int key)
{
    int lo, hi;
    interval(a, e, token, &lo, &hi);
    return key >= lo && key < hi;
}

/* Keys that some token of [first, first + count) may see: both ends only grow. */
static __device__ inline void tile_interval(const ph_attn &a, const extent &e, int first,
                                            int count, int *lo, int *hi)
{
    int unused, last = min(first + count, e.q_len) - 1;
    *lo = *hi = 0;
    if (last < first) return;
    interval(a, e, first, lo, &unused);
    interval(a, e, last, &unused, hi);
}

#endif
