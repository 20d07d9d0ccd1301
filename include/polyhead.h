/*
 * polyhead.h - multi-head attention, forward and backward, as a C library
 *
 *     out[i] = gate[i] * sum_j softmax_j( scale * q[i].k[j] + ... ) v[j]
 *
 * A program uses the parts of this header in this order:
 *
 *     ph_open         where to run: threads, instruction set         -> ph_ctx
 *     ph_plan_create  what to compute: sizes, strides, mask, variant -> ph_plan
 *     ph_forward      one call: pointers in, pointers out
 *     ph_backward     its gradients
 *     ph_look         what the heads looked at, without a T x T matrix
 *
 * Rules that hold everywhere
 *   - Zero is the usual value of every optional field: a designated initialiser names
 *     only what is special.
 *   - A function that can fail returns ph_status. ph_error(ctx) then holds one sentence
 *     that says which field, what was found and what was expected. Outputs are untouched
 *     when a call is refused.
 *   - NULL in place of a handle, or of a pointer that is not said to be optional, is
 *     refused with PH_BAD_ARGUMENT. A function without a status then answers 0, NULL, ""
 *     or what means "none" (-1), or does nothing; what frees accepts NULL. A `text` to
 *     print into may be NULL.
 *   - The library never keeps, frees or resizes a pointer it was given, prints nothing,
 *     never exits and installs no signal handler. It computes in the default
 *     floating-point mode (round to nearest, subnormals kept, no traps), whatever mode
 *     the caller is in, and restores the caller's.
 *   - Inputs may overlap in memory (k may be v). An output, the workspace included, must
 *     not share an element with any other tensor of the call: its results would silently
 *     be wrong. A ctx with `checked` refuses such a call.
 *   - Strides count elements, not bytes. The last axis of every tensor is contiguous.
 *   - A plan is immutable. A ctx runs one call at a time, those on its plans, layers and
 *     models included: a second thread is refused with PH_BUSY. Different ctx are
 *     independent. A child of fork may go on with a ctx of its parent.
 *
 * Compatibility. Before 1.0 every minor version may change anything: it has a library
 * name of its own (libpolyhead.so.0.1), and ph_open refuses a program that was compiled
 * with headers of another one. Patch versions, and minor ones from 1.0 on, only add:
 * functions, enumerators, and fields in place of a part of `reserved`. So no struct
 * changes its size, neither alone nor inside another struct or an array. `reserved` is 0,
 * as a designated initialiser leaves it: a program compiled with newer headers that uses
 * a new field is refused by an older library. Structs without `reserved` never change,
 * except those that the library owns and only points to, which may grow at the end.
 *
 * Reproducible bits. The bits of an output row, of its lse and of every gradient depend
 * on the inputs that row sees and on nothing else: not on the number of threads, the
 * batch size, the other rows of the batch, or on how a prompt was cut into calls (whole,
 * in chunks, or one token at a time against a cache). They are also the same for every
 * instruction set, with two exceptions: bf16 tensors with "amx", and gradients of f32
 * layers and models with "amx-f32", which is never chosen unless requested by name.
 *
 * Meaning of masks, in this order:
 *   1. s = scale * q.k, then s += bias, s += relative[j - position of i],
 *      s -= alibi * |position of i - j|
 *   2. s = softcap * tanh(s / softcap)
 *   3. key j is hidden from row i by: the band, kv_lens, visible = 0, bias = -inf; in a
 *      ragged batch a row sees keys of its own sequence only
 *   4. softmax over the visible keys, together with the sink if there is one
 *   - A hidden key or value takes no part in the arithmetic: NaN or Inf there changes
 *     no bit.
 *   - A row that sees no key gives out 0, lse -inf (with a sink: lse = sink), weights 0
 *     and gradients 0.
 *   - NaN in a visible q, k or v gives NaN in the rows that see it, and in no other row.
 *   - A bias of -inf hides the key; a large negative finite bias (-FLT_MAX) is only added
 *     to the score.
 *   - q_len, kv_len, batch and the head sizes may be 0: empty or zero results.
 *   - A weight below 2^-126 of its row's largest (or of 1, when looked at) may be 0.
 */
#ifndef POLYHEAD_H
#define POLYHEAD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(PH_STATIC) || !defined(__GNUC__)
#define PH_API
#else
#define PH_API __attribute__((visibility("default")))
#endif

#define PH_VERSION_MAJOR 0
#define PH_VERSION_MINOR 1
#define PH_VERSION_PATCH 0

/* The version of these headers as one number: 1000 for 0.1.0. */
#define PH_VERSION                                                                       \
    (PH_VERSION_MAJOR * 1000000 + PH_VERSION_MINOR * 1000 + PH_VERSION_PATCH)

/* "0.1.0" */
PH_API const char *ph_version(void);

/* ---- status --------------------------------------------------------------------- */

typedef enum ph_status {
    PH_OK = 0,
    PH_BAD_ARGUMENT,  /* a field or pointer is wrong by itself */
    PH_BAD_SHAPE,     /* sizes, strides or lengths do not fit together */
    PH_BAD_VALUE,     /* an element of a tensor is not allowed (checked ctx only) */
    PH_UNSUPPORTED,   /* legal, but this build, device or variant does not have it */
    PH_OUT_OF_MEMORY, /* the allocator failed */
    PH_BAD_FILE,      /* a file is malformed */
    PH_IO_ERROR,      /* the system could not read or write */
    PH_BUSY,          /* another thread runs a call on this ctx; nothing was done, and
                         ph_error(ctx) is left to that call */
    PH_DEVICE_ERROR   /* the accelerator reported a fault, perhaps of an earlier call */
} ph_status;

/* A short constant text for a status. */
PH_API const char *ph_status_text(ph_status status);

/* ---- context: where to run ------------------------------------------------------ */

typedef struct ph_ctx ph_ctx;

typedef enum ph_device { PH_CPU = 0, PH_CUDA } ph_device;

/* One piece of parallel work: called with each index in [0, count), in any order. */
typedef void ph_task(void *arg, int index);

typedef struct ph_options {
    char *error;       /* if ph_open fails, its sentence is written here */
    size_t error_size; /* bytes at error; these two come first in every version */

    ph_device device; /* PH_CPU */
    int device_index; /* which accelerator */
    int threads;      /* 0: one per core this process may use */
    const char *isa;  /* upper limit: "ref", then "avx2", "avx512", "amx", "amx-f32" on
                         x86-64, "neon" on AArch64, "sm90" with PH_CUDA; other names are
                         refused. NULL: the best but "amx-f32". The environment variable
                         POLYHEAD_ISA lowers it further, or is the limit if this is
                         NULL. */
    int checked;      /* 1: also refuse NaN and +inf in bias, NaN in gate, sink and alibi,
                         and outputs that overlap another tensor */

    /* Hooks, each optional. alloc must align to at least 16 bytes. release accepts NULL.
       parallel must call task(arg, i) once for every i and return when all are done. */
    void *(*alloc)(void *user, size_t bytes);
    void (*release)(void *user, void *ptr);
    void (*parallel)(void *user, int count, ph_task *task, void *arg);
    void *user;
    /* Asked again and again while a model is written: 1 gives it up, removes what was
       begun and returns PH_IO_ERROR. What a signal handler sets for it must be atomic. */
    int (*stopped)(void *user);
    uint64_t reserved[7];
} ph_options;

/* options may be NULL. On failure *out is NULL. PH_UNSUPPORTED: the library is of another
   version than the headers this program was compiled with. */
static inline ph_status ph_open(ph_ctx **out, const ph_options *options);
PH_API ph_status ph_open_version(ph_ctx **out, const ph_options *options, int version);

static inline ph_status ph_open(ph_ctx **out, const ph_options *options)
{
    return ph_open_version(out, options, PH_VERSION);
}

PH_API void ph_close(ph_ctx *ctx); /* accepts NULL; free plans and layers first */

/* The sentence of the last failed call on this ctx; "" before the first. */
PH_API const char *ph_error(const ph_ctx *ctx);

PH_API int ph_threads(const ph_ctx *ctx);     /* number of threads in use */
PH_API const char *ph_isa(const ph_ctx *ctx); /* kernel table in use, e.g. "avx512" */

/* Names of the kernel tables this CPU can run, weakest first, ended by NULL. */
PH_API const char *const *ph_isa_list(void);

/* What distinguishes a kernel table. */
typedef struct ph_isa_info {
    const char *vectors; /* the table whose f32 kernels it uses: "avx512" for "amx", its
                            own name for most; NULL: no such table on this CPU */
    int own_bf16;        /* 1: bf16 results differ in bits from those of other tables */
    int own_gradients;   /* 1: so do gradients of f32 layers and models; such a table is
                            used only when requested by name */
    uint64_t reserved[2];
} ph_isa_info;

PH_API ph_isa_info ph_isa_about(const char *isa);

/* ---- memory of the device ------------------------------------------------------- */

/* With PH_CUDA every tensor, the lengths and the workspace lie in device memory; structs
   and arrays of pointers stay in host memory. A call puts its work into `stream` (a
   CUstream or cudaStream_t; NULL: one of the ctx, ordered with the legacy default stream)
   and returns: results are there after ph_sync, or for later work in the same stream. A
   fault of the device surfaces at the next call or at ph_sync. Calls can be captured into
   a graph. Lengths out of range are clamped; a checked ctx reads small tensors back and
   refuses them instead. On the CPU the functions below work on host memory. */

PH_API ph_status ph_device_alloc(ph_ctx *ctx, size_t bytes, void **out);
PH_API void ph_device_free(ph_ctx *ctx, void *memory); /* accepts NULL */

/* Between host and device in any direction. Host memory may be used again when the call
   returns, unless it is page-locked. */
PH_API ph_status ph_device_copy(ph_ctx *ctx, void *to, const void *from, size_t bytes,
                                void *stream);

/* Returns when all work in the stream is done. */
PH_API ph_status ph_sync(ph_ctx *ctx, void *stream);

/* ---- plan: what to compute ------------------------------------------------------ */

/* Types of elements. Attention computes on the first three; the others are stored only.
   Block types hold 32 consecutive elements of a row, n nibbles or bytes that share a
   scale s (f16) and perhaps a minimum m (f16); nibbles 0-15 are the low halves of 16
   bytes, 16-31 the high ones. K types hold 256 elements of 4, 5 or 6 bits, and integers
   of 6 or 8 bits for every 32 or 16 of them: a scale a, perhaps a minimum b. They are
   GGUF's, for matrices only. */
typedef enum ph_dtype {
    PH_F32 = 0,
    PH_F16,
    PH_BF16,
    PH_Q8_0, /* 34 bytes: s, 32 int8; s * n */
    PH_Q4_0, /* 18 bytes: s, 16 bytes of nibbles; s * (n - 8) */
    PH_Q4_1, /* 20 bytes: s, m, 16 bytes of nibbles; s * n + m */
    PH_Q4_K, /* 144 bytes; s * a * n - m * b */
    PH_Q5_K, /* 176 bytes; the same */
    PH_Q6_K, /* 210 bytes; s * a * (n - 32) */
    PH_F64,
    PH_C64, /* two f32 */
    PH_I64,
    PH_U64,
    PH_I32,
    PH_U32,
    PH_I16,
    PH_U16,
    PH_I8,
    PH_U8,
    PH_BOOL,
    PH_F8_E8M0,
    PH_F8_E4M3,
    PH_F8_E4M3FNUZ,
    PH_F8_E5M2,
    PH_F8_E5M2FNUZ,
    PH_F6_E3M2,
    PH_F6_E2M3,
    PH_F4,
    PH_DTYPE_COUNT
} ph_dtype;

/* "BF16", "Q4_0"; NULL for no type. */
PH_API const char *ph_dtype_name(ph_dtype dtype);

/* Bytes of so many consecutive elements; 0: no type, not whole bytes or whole blocks, or
   more than a size_t can hold. */
PH_API size_t ph_dtype_bytes(ph_dtype dtype, size_t elements);

/* Distance between consecutive entries along each axis, in elements. All zero: packed,
   that is (heads*len*dim, len*dim, dim). Input heads may overlap in memory. */
typedef struct ph_strides {
    int64_t batch, head, time;
} ph_strides;

/* Leading axes of bias or visible: each 1 (broadcast) or full size; the last axis is
   always kv_len. All zero: the plan takes no such tensor. Packed. */
typedef struct ph_broadcast {
    int batch, heads, q_len;
} ph_broadcast;

typedef enum ph_mask {
    PH_MASK_NONE = 0,
    PH_MASK_CAUSAL, /* row i sees keys j <= position of i */
    PH_MASK_BAND    /* position - band_left <= j <= position + band_right */
} ph_mask;

/* Where query 0 is among the keys: position of row i = i + offset. With PH_MASK_CAUSAL
   or PH_MASK_BAND it must be set whenever q_len and kv_len differ. */
typedef enum ph_anchor {
    PH_ANCHOR_UNSET = 0, /* offset 0; ragged, with a mask: PH_ANCHOR_END */
    PH_ANCHOR_OFFSET,    /* offset = q_offset (0: top-left; may be negative) */
    PH_ANCHOR_END        /* bottom-right: the last valid query is at the last valid key:
                            offset = kv_lens[b] - q_lens[b] or the plan's lengths */
} ph_anchor;

/* Sequences of different lengths side by side, without padding: batch of them, sequence b
   is tokens [q_offsets[b], q_offsets[b + 1]) of tensors that have q_total tokens and no
   batch axis (strides.batch is 0). Wherever this header says (batch, heads, q_len, ...)
   it is then (heads, q_total, ...); (batch, ..., kv_len) of the keys likewise with
   kv_total. Each sequence has the bits it has alone, at its place in the batch. No bias,
   no visible. */
typedef enum ph_ragged {
    PH_RAGGED_NONE = 0,
    PH_RAGGED_ALL,    /* queries and keys */
    PH_RAGGED_QUERIES /* queries only: keys are (batch, heads, kv_len, dim), with kv_lens,
                         as caches are */
} ph_ragged;

typedef enum ph_gate { PH_GATE_HEAD = 0, PH_GATE_ROW } ph_gate;

typedef struct ph_attn {
    int batch;
    int q_heads;
    int k_heads, v_heads;    /* must divide q_heads; 0: equal to it */
    int q_len, kv_len;       /* capacity: q_lens and kv_lens of a call may be less */
    int qk_dim, v_dim;       /* v_dim 0: equal to qk_dim */
    ph_dtype dtype;          /* of q, k, v, out and of their gradients */
    ph_dtype kv_dtype; /* of k and v where it is another one, with dtype PH_F32: PH_F16,
                          PH_BF16, or PH_Q8_0, PH_Q4_0, PH_Q4_1, whose dims and strides
                          are multiples of 32; 0: like dtype. Same bits as the same values
                          in f32. Forward and look only */
    ph_strides q, k, v, out; /* zero: packed */
    int page_len; /* > 0: k and v lie in pages of so many keys: k is (pages, k_heads,
                     page_len, qk_dim), v likewise, and the batch stride of both is the
                     distance between pages. ph_args.page_table says which pages a batch
                     row has. Multiples of 16 are read in place while decoding, those of
                     128 always. Forward and look only; same bits as without pages */
    int pages;    /* how many pages k and v have */
    ph_strides dq, dk, dv; /* zero: like q, k, v, which then must not overlap;
                                dout has the strides of out */

    float scale;   /* 0: 1/sqrt(qk_dim) */
    float softcap; /* 0: none; logits become softcap * tanh(logit / softcap) */
    float dropout; /* probability p that a weight is dropped; the others are scaled by
                      1/(1-p) */

    ph_mask mask;
    int band_left, band_right; /* PH_MASK_BAND: how far a row sees; negative: no limit */
    ph_anchor anchor;
    int q_offset;
    ph_broadcast bias, visible; /* which tensors of a call exist, and their shapes */
    int reach; /* of ph_args.relative: larger distances are clipped to it; 0: no table */
    ph_gate gate; /* shape of ph_args.gate where one is given */

    const char *variant; /* "name" or "name:key=value,...", several with '+' between;
                            NULL: "mha". See ph_variant_heads for "gqa:G" and "mqa" */
    int backward;        /* 1: the plan must support ph_backward */

    ph_ragged ragged;      /* then q_len, kv_len are of the longest sequence; 0: totals */
    int q_total, kv_total; /* tokens of all sequences; kv_total with PH_RAGGED_ALL */

    uint64_t reserved[16];
} ph_attn;

typedef struct ph_plan ph_plan;

/* Checks everything that can be checked without data. On failure *out is NULL. The ctx
   must outlive the plan. */
PH_API ph_status ph_plan_create(ph_plan **out, ph_ctx *ctx, const ph_attn *attn);
PH_API void ph_plan_free(ph_plan *plan); /* accepts NULL */

/* Bytes of workspace one call needs; see ph_args.workspace. */
PH_API size_t ph_plan_workspace(const ph_plan *plan);

/* One line that says what was chosen: driver, block sizes, kernels. Truncated to size
   bytes; returns the full length, like snprintf. */
PH_API int ph_plan_describe(const ph_plan *plan, char *text, size_t size);

/* A tensor that a variant or a layer takes: packed, float but for matrices of a layer. */
typedef struct ph_param {
    const char *name; /* "w_logits" */
    ph_dtype dtype;
    int rank;
    int dims[4];   /* the first `rank` of them */
    int optional;  /* 1: may be NULL */
    size_t unused; /* elements that no result depends on: options of the variant leave
                      their part out */
} ph_param;

/* Its number of elements. */
PH_API size_t ph_param_size(const ph_param *param);

/* The i-th tensor of ph_args.extra, or NULL after the last. */
PH_API const ph_param *ph_plan_extra(const ph_plan *plan, int i);

/* ---- forward -------------------------------------------------------------------- */

struct ph_look_at;

typedef struct ph_args {
    const void *q; /* (batch, q_heads, q_len, qk_dim) */
    const void *k; /* (batch, k_heads, kv_len, qk_dim) */
    const void *v; /* (batch, v_heads, kv_len, v_dim) */
    void *out;     /* (batch, q_heads, q_len, v_dim); ph_backward reads it */
    float *lse;    /* (batch, q_heads, q_len) natural log (entmax: its threshold tau); may
                      be NULL in ph_forward; ph_backward and ph_look read it */

    const float *bias;      /* shape ph_attn.bias; added to the scaled scores */
    const uint8_t *visible; /* shape ph_attn.visible; 0 hides */
    const float *gate;      /* (q_heads) or (batch, q_heads, q_len): multiplies the output
                               row. A row whose gate is 0 is not computed: it is treated
                               as a row that sees no key, and lse is -inf even with a
                               sink */
    const float *sink;      /* (q_heads) logit that takes part but has no value */
    const float *alibi;     /* (q_heads) slopes */
    const float *relative;  /* (q_heads, 2*reach + 1): added to the score of a key at
                               distance d = j - position of i, entry reach + d */
    const int32_t *q_lens;  /* (batch) valid queries; padding rows are treated as rows
                               whose gate is 0 */
    const int32_t *kv_lens; /* (batch) valid keys */
    const int32_t *q_offsets;  /* ragged: (batch + 1) ascending from 0 to q_total; q_lens
                                  is NULL */
    const int32_t *kv_offsets; /* PH_RAGGED_ALL: likewise to kv_total, kv_lens is NULL;
                                  NULL: those of the queries */
    const int32_t *page_table; /* (batch, kv_len / page_len rounded up), with page_len:
                                  key j of batch row b lies in page
                                  page_table[b][j / page_len] at j % page_len. Entries
                                  are 0 to pages - 1 and may repeat; those beyond
                                  kv_lens are not read */
    const float *const *extra; /* what ph_plan_extra lists, in its order */

    const struct ph_look_at *look; /* also fill these, or NULL */
    uint64_t seed;                 /* of the dropout; the same in ph_backward */
    void *workspace;               /* aligned to 64; NULL: memory of the ctx */
    size_t workspace_size;         /* its bytes: at least ph_plan_workspace */
    void *stream;                  /* accelerators only */
    uint64_t reserved[16];
} ph_args;

PH_API ph_status ph_forward(const ph_plan *plan, const ph_args *args);

/* ---- backward ------------------------------------------------------------------- */

typedef struct ph_grads {
    const void *dout;     /* (batch, q_heads, q_len, v_dim), strides of out */
    const float *dlse;    /* (batch, q_heads, q_len) gradient through the lse, or NULL */
    void *dq, *dk, *dv;   /* like q, k, v; each may be NULL: not wanted */
    float *dbias;         /* shape of bias, broadcast axes summed; or NULL */
    float *dgate;         /* shape of gate, or NULL */
    float *dsink;         /* (q_heads), or NULL */
    float *drelative;     /* (q_heads, 2*reach + 1), or NULL */
    float *const *dextra; /* like extra; NULL, or entries NULL: not wanted */
    uint64_t reserved[8];
} ph_grads;

/* args as in the forward call that computed out and lse. Gradients are overwritten, not
   accumulated; sums run in float and are rounded once. */
PH_API ph_status ph_backward(const ph_plan *plan, const ph_args *args,
                             const ph_grads *grads);

/* ---- looking inside ------------------------------------------------------------- */

/* The weights are what multiplies v: after dropout and mixing, before the gate.
   Everything here is recomputed from q, k and lse, block by block; only `weights` itself
   has T x T elements. Pointers that are NULL are not computed. */
typedef struct ph_look_at {
    float *weights; /* (batch, q_heads, q_len, kv_len), all of them; ragged: (q_heads,
                       q_total, kv_len), keys counted from the first of the sequence */
    float *col_sum; /* (batch, q_heads, kv_len) sum over the rows */
    float *entropy; /* (batch, q_heads, q_len) -sum w ln w, natural log */

    int top_k;          /* how many of the largest weights of each row */
    float *top_weight;  /* (batch, q_heads, q_len, top_k) descending, equal ones by key;
                           0 where fewer keys are visible */
    int32_t *top_index; /* (batch, q_heads, q_len, top_k) their key; -1 there */

    float *rect; /* (rows, cols) of one head's weights: rows row0.., keys col0.. */
    int rect_batch, rect_head, row0, rows, col0, cols;
    uint64_t reserved[8];
} ph_look_at;

/* Fills args->look from q, k, lse (and the mask tensors) of a finished forward call; v
   and out are not touched and may be NULL. */
PH_API ph_status ph_look(const ph_plan *plan, const ph_args *args);

/* ---- variants ------------------------------------------------------------------- */

typedef struct ph_variant_info {
    const char *name;    /* "mha" */
    const char *options; /* "" or how its options are written */
    const char *help;    /* one sentence */
    const char *tensors; /* lines "name (shape) meaning": extras and layer parameters */
} ph_variant_info;

/* The i-th variant of this build, or NULL after the last. */
PH_API const ph_variant_info *ph_variant_list(int i);

/* "gqa:G" and "mqa", alone or before a '+', are head counts: k_heads and v_heads become G
   or 1, variant what is left of its text. Plans and layers do this by themselves; callers
   that need the counts earlier, to size tensors, call it. PH_BAD_SHAPE: attn has other
   counts already. */
PH_API ph_status ph_variant_heads(ph_ctx *ctx, ph_attn *attn);

#ifdef __cplusplus
}
#endif
#endif
