/*
 * plan.h - a checked ph_attn with everything that can be decided beforehand, and one
 * call.
 */
#ifndef PH_ATTN_PLAN_H
#define PH_ATTN_PLAN_H

#include "attn/blocks.h"
#include "attn/variant.h"
#include "base/arena.h"
#include "base/ctx.h"
#include "kernels/kernels.h"

/* How the joint driver cuts its work; heads 0: the plan does not need it. */
typedef struct ph_joint_plan {
    int mixes;     /* 1: heads are mixed */
    int heads;     /* heads of a block: all q heads if they are mixed, else 1 */
    int per_token; /* rows of a head of a block per query: 1, or the group if heads are
                      not mixed */
    int sets;      /* row items per query block: 1, or the groups */
    int rows;      /* rows of a forward item, and of a look */
    int grad_rows; /* rows of a backward item */
    int key_item_rows; /* rows that a key item handles at once */
    int blocks;        /* key blocks that the rows of an item may see */
    int key_blocks;    /* key blocks in all */
    int grad_blocks;   /* key blocks that a backward item holds; 1: it recomputes them */
    int wave, grad_wave; /* batch rows whose keys are packed at once, forward and
                            backward; 0: items pack */
    int together; /* forward, 1: all threads share each item: there are too few, or they
                     are too large */
} ph_joint_plan;

/* What a layer adds to ph_attn for the backward pass; all 0: nothing. */
typedef struct ph_backward_layout {
    ph_strides dout; /* all 0: those of out */
    int lean;  /* 1: a wave has one dq per thread, not as many as the budget allows */
    int twins; /* 1: q heads 2m and 2m+1, which share their v head, share dout up to
                        a factor too: ph_call.twin */
} ph_backward_layout;

struct ph_plan {
    ph_ctx *ctx;
    void *device; /* state of the backend, or NULL */
    const ph_kernels *kernels;
    const ph_bf16_pairs *bf16_pairs; /* kernels for bf16 operands; NULL: f32 operands */
    const ph_variant *mixer;         /* mixes heads, or NULL */
    const ph_variant *norm;          /* normalises rows; NULL: softmax */
    char name[64];                   /* of the variants */
    ph_variant_needs needs;          /* filled by their setup */
    ph_attn attn;                    /* defaults filled in: heads, dims, strides, scale */
    ph_backward_layout backward;
    int group;        /* consecutive q heads that share their k head and their v head */
    int groups;       /* q_heads / group */
    int per_k, per_v; /* consecutive q heads that share a k head, a v head */
    int k_pad, v_pad; /* qk_dim, v_dim rounded up to 16 */
    int table_len;    /* pages of a batch row in ph_args.page_table */
    int k_steps;      /* bf16_pairs: qk_dim rounded up to PH_AMX_STEP */
    int k_floats;     /* floats of a key packed for scores */
    int q_floats;     /* floats of a strip of mr rows packed for scores */
    int strip;        /* rows of a strip forward: mr, or those of an AMX tile */
    float scale2;     /* scale * log2(e): scores are kept in base 2 */
    float cap2;       /* softcap * log2(e) */
    uint32_t drop_limit; /* a random number below it drops a weight */
    float drop_keep;     /* 1/(1 - dropout) */
    int rows;            /* rows of one forward work item */
    int splits;          /* key splits at full length */
    int by_split; /* forward: one work item per key split instead of per row block */
    int cluster;  /* consecutive q heads closed under sharing k or v heads */
    int chunks;   /* key chunks of the backward pass at full length */
    int wave;     /* backward chunks that run in parallel, each with a private dq; 0: one
                 thread walks all chunks of an item */
    ph_joint_plan joint;
    size_t lane_bytes[3];   /* scratch per lane: forward, backward, look */
    size_t shared_bytes[3]; /* scratch shared by all lanes */
};

enum { PH_DO_FORWARD, PH_DO_BACKWARD, PH_DO_LOOK };

/* The type of k and v. */
static inline ph_dtype ph_kv_type(const ph_attn *a)
{
    return a->kv_dtype ? a->kv_dtype : a->dtype;
}

/* k and v are made of so many blocks of so many keys: batch rows, pages, or all ragged
   sequences together. */
static inline int ph_key_blocks(const ph_attn *a)
{
    if (a->ragged == PH_RAGGED_ALL) return 1;
    return a->page_len ? a->pages : a->batch;
}

static inline int ph_key_block_len(const ph_attn *a)
{
    if (a->ragged == PH_RAGGED_ALL) return a->kv_total;
    return a->page_len ? a->page_len : a->kv_len;
}

/* One call: what the drivers need. */
typedef struct ph_call {
    const ph_plan *plan;
    const ph_kernels *kernels;
    const ph_attn *attn;
    const ph_args *args;
    const ph_grads *grads;
    const int32_t *kv_offsets; /* PH_RAGGED_ALL: those of the keys */
    /* (q_heads/2) dout of head 2m+1 is twin[m] times that of its twin, head 2m, and only
       the latter is stored; NULL: each head has its own */
    const float *twin;
    char *lanes; /* lane_bytes each */
    char *shared;
    size_t lane_bytes, shared_bytes;
} ph_call;

/* Query rows, and keys, of one head in all sequences. */
static inline size_t ph_attn_rows(const ph_attn *a)
{
    return a->ragged ? (size_t)a->q_total : (size_t)a->batch * (size_t)a->q_len;
}

static inline size_t ph_attn_keys(const ph_attn *a)
{
    return a->ragged == PH_RAGGED_ALL ? (size_t)a->kv_total
                                      : (size_t)a->batch * (size_t)a->kv_len;
}

/* The scratch of a lane, and that of all. */
static inline ph_arena ph_call_lane(const ph_call *call, int lane)
{
    return ph_arena_of(call->lanes + (size_t)lane * call->lane_bytes, call->lane_bytes);
}

static inline ph_arena ph_call_shared(const ph_call *call)
{
    return ph_arena_of(call->shared, call->shared_bytes);
}

/* ph_plan_create for a layer. */
ph_status ph_plan_make(ph_plan **out, ph_ctx *ctx, const ph_attn *attn,
                       const ph_backward_layout *backward);

/* Checks attn and fills the plan (already allocated, ctx and back set). */
ph_status ph_plan_init(ph_plan *plan, const ph_attn *attn, const ph_core *core);

size_t ph_plan_bytes(const ph_plan *plan, int what);

/* ph_backward of a plan with twins. */
ph_status ph_backward_twins(const ph_plan *plan, const ph_args *args,
                            const ph_grads *grads, const float *twin);

/* dout of a q head is this factor times head ph_dout_head of the tensor. */
static inline float ph_twin_factor(const ph_call *call, int head)
{
    return call->twin && head % 2 ? call->twin[head / 2] : 1;
}

static inline int ph_dout_head(const ph_call *call, int head)
{
    return call->twin ? head / 2 : head;
}

/* The checks of ph_forward and ph_backward (polyhead.c), for callers that write something
   before. */
ph_status ph_check_forward(const ph_plan *plan, const ph_args *args);
ph_status ph_check_backward(const ph_plan *plan, const ph_args *args,
                            const ph_grads *grads);
/* Of these, whether a ragged batch has the offsets it needs, and a dense one none. */
ph_status ph_check_sequences(const ph_plan *plan, const ph_args *args);

/* Refuses page numbers out of range (keys.c). */
ph_status ph_check_table(const ph_plan *plan, const ph_args *args);

/* The drivers: arguments are checked, scratch is allocated. */
void ph_attn_forward(const ph_call *call);
void ph_attn_backward(const ph_call *call);
void ph_attn_look(const ph_call *call);
/* dbias, from lse (base 2) and delta of every row; part of ph_attn_backward. */
void ph_attn_bias_gradient(const ph_call *call, const float *lse, const float *delta);
size_t ph_bias_gradient_bytes(const ph_plan *plan);
/* drelative, in the same way. */
void ph_attn_relative_gradient(const ph_call *call, const float *lse, const float *delta);
size_t ph_relative_gradient_bytes(const ph_plan *plan);
/* Adds ds of n keys of one row, the first at distance `first`, to the sums of a head. */
void ph_relative_add(const ph_call *call, int64_t first, int n, const float *ds,
                     double *sums);

/* The joint driver: whether a plan needs it, its passes, their scratch. */
static inline int ph_plan_is_joint(const ph_plan *plan)
{
    return plan->joint.heads > 0;
}

void ph_joint_choose(ph_plan *plan);
void ph_joint_forward_measure(ph_plan *plan);
void ph_joint_backward_measure(ph_plan *plan);
void ph_joint_look_measure(ph_plan *plan);
void ph_joint_forward(const ph_call *call);
void ph_joint_backward(const ph_call *call);
void ph_joint_look(const ph_call *call);

/* Fill lane_bytes and shared_bytes of each pass. */
void ph_forward_measure(ph_plan *plan);
void ph_backward_measure(ph_plan *plan);
void ph_look_measure(ph_plan *plan);

#endif
