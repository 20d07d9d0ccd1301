/*
 * polyhead_layer.h - the whole multi-head layer, forward and backward
 *
 *     q = x wq + bq    k = m wk + bk    v = m wv + bv      m = memory, or x itself
 *     q, k: RMS norm over each head, then rotary embedding        both optional
 *     out = concat over heads( attention(q, k, v) ) wo + bo
 *
 *     ph_layer_create    sizes and options                          -> ph_layer
 *     ph_layer_forward   weights and activations in, out
 *     ph_layer_backward  gradients of activations and of every parameter
 *
 * A layer holds no weights: they stay in the caller's memory and are given to every call.
 * The rules of polyhead.h hold here too, above all: the bits of a row of out depend on
 * the inputs that row sees and on nothing else, so decoding token by token against a
 * cache gives what one call over the whole prompt gives.
 *
 * Types. x, memory, out, dout, dx, dmemory are of ph_attn.dtype; parameters, their
 * gradients and all intermediate tensors are float. wq, wk, wv, wo may also be stored as
 * f16, bf16, Q8_0, Q4_0, Q4_1, Q4_K, Q5_K or Q6_K. They are read in place and their
 * elements become f32 in registers or while they are packed: the result has the bits of a
 * layer that has the same values as f32. Blocks lie along stored rows, which are
 * multiples of 32, or 256 (K types); pointers are aligned to 4 bytes (f32) or 2.
 * Gradients are float; there are none through blocks.
 *
 * Matrices act from the right, y = x w + b, and come in forms with the same result:
 *
 *     PH_FORM_WHOLE   (in_dim, heads*dim)   one matrix, the heads side by side
 *     PH_FORM_HEADS   (heads, in_dim, dim)  one matrix per head
 *     PH_FORM_LINEAR  (heads*dim, in_dim)   as nn.Linear and most model files store it
 *
 * wo is (q_heads*v_dim, out_dim); per head, (q_heads, v_dim, out_dim), its layout is the
 * same; PH_FORM_LINEAR: (out_dim, q_heads*v_dim).
 *
 * Lengths. Rows of out beyond q_lens are 0. Padding in x beyond q_lens, and in the source
 * of the keys beyond kv_lens, influences no other row, gets zero gradients and adds
 * nothing to the gradients of parameters, even if it holds NaN. (A row that sees no key,
 * or whose gate is 0, still gets bo.)
 *
 * Ragged. With PH_RAGGED_ALL sequences are side by side and no row is padding: x is
 * (q_total, model_dim), memory (kv_total, memory_dim), out and gradients likewise; lse
 * and gates are (q_heads, q_total). Without memory kv_total is q_total and kv_offsets
 * NULL. A layer with a cache of x takes PH_RAGGED_QUERIES: each sequence appends its own
 * number of tokens after its own `past`. Every variant can.
 */
#ifndef POLYHEAD_LAYER_H
#define POLYHEAD_LAYER_H

#include "polyhead.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a layer is --------------------------------------------------------------- */

typedef enum ph_form { PH_FORM_WHOLE = 0, PH_FORM_HEADS, PH_FORM_LINEAR } ph_form;

/* Rotary positions: pair p of a head is rotated by the angle
   position * base^(-2p / rope_dims). */
typedef enum ph_rope {
    PH_ROPE_NONE = 0,
    PH_ROPE_HALF,       /* pairs (p, p + rope_dims/2), as in most model files */
    PH_ROPE_INTERLEAVED /* pairs (2p, 2p + 1), as first published */
} ph_rope;

/* How frequencies change for texts longer than those of training: rope_factor is the
   length wanted over rope_length, that of training. */
typedef enum ph_rope_scaling {
    PH_ROPE_UNSCALED = 0,
    PH_ROPE_LINEAR, /* all are divided by rope_factor */
    PH_ROPE_LLAMA3, /* those that make less than rope_low rotations within rope_length are
                       divided, those that make more than rope_high are kept, with a ramp
                       by rotations between */
    PH_ROPE_YARN,   /* likewise with a ramp by pairs, and sines and cosines are multiplied
                       by rope_scale */
    PH_ROPE_LONGROPE /* that of pair p is divided by rope_divisors[p], and sines and
                        cosines are multiplied by rope_scale; no factor */
} ph_rope_scaling;

/* Over what the RMS norm of q and k runs. */
enum {
    PH_QK_NORM_NONE = 0,
    PH_QK_NORM_HEAD, /* each head; one gain per element of a head, shared by the heads */
    PH_QK_NORM_WHOLE /* all heads of a token together; one gain per column of wq, wk */
};

typedef struct ph_layer_desc {
    int model_dim;  /* columns of x */
    int memory_dim; /* columns of memory; 0: keys and values come from x */
    int out_dim;    /* columns of out; 0: model_dim */
    int concat;     /* 1: no output projection, out is (batch, q_len, q_heads*v_dim) */

    ph_attn attn; /* sizes and options of attention; all strides 0. Without memory and
                     cache q_len and kv_len are equal. backward 1: ph_layer_backward */

    ph_form q_form, k_form, v_form, o_form; /* of the matrices and their gradients; of wo
                                               PH_FORM_WHOLE or PH_FORM_LINEAR */
    ph_dtype wq_dtype, wk_dtype, wv_dtype, wo_dtype; /* that they are stored in */

    ph_rope rope;
    float rope_base; /* 0: 10000 */
    int rope_dims;   /* leading elements of a head that are rotated, even; 0: all */
    ph_rope_scaling rope_scaling;
    float rope_factor;    /* at least 1 */
    int rope_length;      /* PH_ROPE_LLAMA3, _YARN: length of training */
    float rope_low;       /* PH_ROPE_LLAMA3, _YARN (beta_slow); 0: 1 */
    float rope_high;      /* PH_ROPE_LLAMA3; 0: 4; _YARN (beta_fast); 0: 32 */
    float rope_scale;     /* PH_ROPE_YARN; 0: 0.1 ln(rope_factor) + 1; _LONGROPE; 0: 1 */
    int yarn_untruncated; /* 1: the ends of YaRN's ramp are not rounded to whole pairs
                             ("truncate": false, as gpt-oss has it) */

    int qk_norm;       /* PH_QK_NORM_: q and k are normalised before they are rotated */
    float norm_eps;    /* added to the mean square; 0: 1e-6 */
    int norm_plus_one; /* 1: the gain is 1 + the stored parameter */

    int cache; /* 1: keys and values are cached, see ph_layer_cache. x holds the next
                  q_len tokens (or q_lens), kv_len is the capacity, x comes after what the
                  cache holds (PH_ANCHOR_END). Those of memory are computed by a call that
                  has memory, and reused by calls without. No backward */
    const float *rope_divisors; /* PH_ROPE_LONGROPE: (rope_dims / 2), read by
                                   ph_layer_create alone; else NULL */
    uint64_t reserved[15];
} ph_layer_desc;

typedef struct ph_layer ph_layer;

/* Checks everything that can be checked without data. On failure *out is NULL. The ctx
   must outlive the layer. */
PH_API ph_status ph_layer_create(ph_layer **out, ph_ctx *ctx, const ph_layer_desc *desc);
PH_API void ph_layer_free(ph_layer *layer); /* accepts NULL */

/* Bytes of ph_layer_args.saved. */
PH_API size_t ph_layer_saved(const ph_layer *layer);

/* The i-th parameter of the layer, or NULL after the last: first those of wq, wk, wv, wo,
   bq, bk, bv, bo, q_norm, k_norm that it can have, then the variant's own. Shapes are
   those this layer expects, per head where the form says so. */
PH_API const ph_param *ph_layer_param(const ph_layer *layer, int i);

/* How many of them are named fields of ph_layer_weights; the others, from this index on,
   are ph_layer_weights.extra. */
PH_API int ph_layer_named(const ph_layer *layer);

/* Properties of a created layer; a variant may change sizes of the description. */
typedef struct ph_layer_info {
    const ph_attn *attn; /* what attention computes: sizes of lse, gate, weights */
    int heads, dim;      /* of a token in ph_layer_args.heads: what wo multiplies */
    int out_dim;         /* columns of out */
    int gates;           /* 1: it can write ph_layer_args.gate_out */
    int balances;        /* 1: and balance_loss */
    double flops;        /* of the products of a forward call, less what masks and
                            routing skip */
    uint64_t reserved[8];
} ph_layer_info;

PH_API ph_layer_info ph_layer_about(const ph_layer *layer);

/* Bytes of each cache of a layer with cache 1, in the layout that attention reads: k and
   v (batch, heads, kv_len, dim), unless the variant says otherwise. 0: no such cache.
   Without cache 1 a variant may still have an extra one, for decoders that go token by
   token (merged). */
typedef struct ph_layer_caches {
    size_t k, v, extra;
    uint64_t reserved[2];
} ph_layer_caches;

PH_API ph_layer_caches ph_layer_cache(const ph_layer *layer);

/* ---- forward ----------------------------------------------------------------------- */

typedef struct ph_layer_weights {
    const void *wq;                 /* (model_dim, q_heads*qk_dim), or another form */
    const void *wk;                 /* (memory_dim or model_dim, k_heads*qk_dim) */
    const void *wv;                 /* (memory_dim or model_dim, v_heads*v_dim) */
    const void *wo;                 /* (q_heads*v_dim, out_dim); NULL with concat */
    const float *bq, *bk, *bv, *bo; /* one element per column of the matrix; NULL: none */
    const float *q_norm, *k_norm;   /* (qk_dim) or (heads*qk_dim); NULL: gains of 1 */
    const float *const *extra;      /* the variant's own: what ph_layer_param lists from
                                       ph_layer_named on; NULL where there are none */
    uint64_t reserved[16];
} ph_layer_weights;

typedef struct ph_layer_args {
    const void *x;      /* (batch, q_len, model_dim) */
    const void *memory; /* (batch, kv_len, memory_dim), where the layer has one; NULL with
                           a cache: it holds the keys and values of an earlier call */
    void *out;          /* (batch, q_len, out_dim) */
    float *heads;       /* (batch, q_len, q_heads, v_dim) before wo, or NULL; see
                           ph_layer_about */

    ph_args attn; /* bias, visible, gate, sink, alibi, q_lens, kv_lens, look, seed, and
                     lse where wanted; the others stay NULL, so does kv_lens where tokens
                     of x go to a cache */

    float balance;       /* variants that route: weight of the load-balance loss in the
                            gradients; the same in both calls */
    float *balance_loss; /* (1) that loss, not weighted, or NULL */
    float *gate_out;     /* (batch, q_heads, q_len) the gate a variant computed, the
                            product where there are two (gated:head+moh), or NULL */

    const int32_t *past; /* (batch) position of the first token of x; NULL: 0. It shifts
                            the rotation; with a cache it is also how many tokens that
                            holds. Keys from memory count from 0 */
    void *k_cache;       /* (batch, k_heads, kv_len, qk_dim): the call appends to it; of
                            attn.kv_dtype. With attn.page_len (pages, k_heads, page_len,
                            qk_dim): what x appends goes where attn.page_table says */
    void *v_cache;       /* (batch, v_heads, kv_len, v_dim), likewise */
    float *extra_cache;  /* of the variant, where ph_layer_cache says so */
    size_t k_cache_size, v_cache_size, extra_cache_size; /* their bytes: at least those of
                                                            ph_layer_cache */

    void *saved;       /* what ph_layer_backward will need, aligned to 64; NULL: nothing
                          is saved */
    size_t saved_size; /* its bytes: at least ph_layer_saved */
    uint64_t reserved[16];
} ph_layer_args;

PH_API ph_status ph_layer_forward(const ph_layer *layer, const ph_layer_weights *weights,
                                  const ph_layer_args *args);

/* Beam search: batch row b of the caches of args (NULL: left alone; other fields are not
   read), which hold `tokens` tokens, becomes a copy of row from[b]. Cached keys and
   values of memory stay. Caches in pages are refused: rows that share a past share its
   pages, so only the caller, who owns the table, can tell which pages need a copy. */
PH_API ph_status ph_layer_reorder(const ph_layer *layer, const ph_layer_args *args,
                                  const int *from, int tokens);

/* ---- backward ---------------------------------------------------------------------- */

/* Gradients are overwritten; each may be NULL: not wanted. */
typedef struct ph_layer_grads {
    const void *dout;  /* (batch, q_len, out_dim) */
    const float *dlse; /* (batch, q_heads, q_len), or NULL */
    void *dx;          /* like x; keys and values included where they come from x */
    void *dmemory;     /* like memory */
    float *dwq, *dwk, *dwv, *dwo; /* like the weights, in the same form */
    float *dbq, *dbk, *dbv, *dbo;
    float *dq_norm, *dk_norm;
    float *dbias, *dgate, *dsink, *drelative; /* as in ph_grads */
    float *const *dextra; /* like extra; NULL, or entries NULL: not wanted */
    uint64_t reserved[8];
} ph_layer_grads;

/* weights and args as in the forward call; saved is what it left. out and heads are not
   read. Sums over tokens run in the order of the tokens. */
PH_API ph_status ph_layer_backward(const ph_layer *layer, const ph_layer_weights *weights,
                                   const ph_layer_args *args,
                                   const ph_layer_grads *grads);

/* ---- helpers ----------------------------------------------------------------------- */

/* By how many elements heads overlap (variant mohsa) in layer 0 <= layer < layers: the
   depth schedules of its authors, as flags added together. */
enum {
    PH_OVERLAP_PLUS_ONE = 1, /* layer 0 overlaps too */
    PH_OVERLAP_HALF = 2,     /* grows every second layer */
    PH_OVERLAP_REVERSE = 4   /* largest in layer 0 */
};

PH_API int ph_mohsa_overlap(int schedule, int layer, int layers);

/* Slopes of ALiBi, (heads), for ph_args.alibi: 2^(-8(h+1)/heads) where heads is a power
   of two; otherwise those of the next smaller one, then every second of twice as many. */
PH_API void ph_alibi_slopes(int heads, float *slopes);

/* Depth-scaled initialisation: weights of a matrix (in_dim, columns) in layer `depth`,
   counted from 1, are uniform in +-sqrt(6 / (in_dim + columns)) * alpha * depth^-power.
   alpha 1 and depth 1 is Xavier's; power is 0.5 in the paper, 0.25 in its code. */
PH_API float ph_depth_bound(int in_dim, int columns, int depth, float alpha, float power);

/* ---- relative positions of T5 ------------------------------------------------------ */

/* T5 learns a table (buckets, q_heads) and adds its row bucket(j - i) to the scores (with
   scale 1). Distances below a quarter of the buckets (one-sided: half) have one each,
   then buckets widen up to max_distance, beyond which all distances share the last.
   two_sided 0: keys after the query count as distance 0, for causal attention. */
typedef struct ph_t5 {
    int buckets, max_distance; /* 0: 32, 128 */
    int two_sided;
} ph_t5;

PH_API int ph_t5_bucket(const ph_t5 *t5, int distance);

/* Expands the table to ph_args.relative, with reach = max_distance; and its backward
   pass: dtable from drelative. */
PH_API void ph_t5_expand(const ph_t5 *t5, int q_heads, const float *table,
                         float *relative);
PH_API void ph_t5_reduce(const ph_t5 *t5, int q_heads, const float *drelative,
                         float *dtable);

#ifdef __cplusplus
}
#endif
#endif
