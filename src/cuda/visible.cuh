/*
 * visible.cuh - which rows are computed, and which keys they see by lengths and position.
 */
#ifndef PH_CUDA_VISIBLE_CUH
#define PH_CUDA_VISIBLE_CUH

#include "cuda/cuda_call.h"

/* What multiplies the output of a row; a row with 0 is not computed. */
static __device__ inline float gate_of(const ph_cuda_call &c, int batch, int head,
                                       int token)
{
    const ph_attn &a = c.attn;
    if (!c.args.gate) return 1;
    if (a.gate == PH_GATE_HEAD) return c.args.gate[head];
    return c.args.gate[((int64_t)batch * a.q_heads + head) * a.q_len + token];
}

struct extent {
    int q_len, kv_len; /* of one batch row */
    int64_t offset;    /* position of query 0 */
};

static __device__ inline int clamp_length(const int32_t *lens, int batch, int most)
{
    return lens ? min(max(lens[batch], 0), most) : most;
}

static __device__ inline extent extent_of(const ph_cuda_call &c, int batch)
{
    extent e;
    e.q_len = clamp_length(c.args.q_lens, batch, c.attn.q_len);
    e.kv_len = clamp_length(c.args.kv_lens, batch, c.attn.kv_len);
    e.offset = c.attn.anchor == PH_ANCHOR_OFFSET ? c.attn.q_offset
               : c.attn.anchor == PH_ANCHOR_END  ? (int64_t)e.kv_len - e.q_len
                                                 : 0;
    return e;
}

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
