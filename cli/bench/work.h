/*
 * work.h - one attention problem with random data, ready to be run again and again.
 *
 * Bench measures it, doctor compares its results between instruction sets.
 */
#ifndef PH_CLI_WORK_H
#define PH_CLI_WORK_H

#include "polyhead.h"

enum { WORK_TENSORS = 10 };

typedef struct work {
    ph_attn attn;
    ph_plan *plan;
    ph_args args;
    ph_grads grads;
    int32_t *table; /* of pages, in no order; NULL: none */
    struct {
        void *data;
        size_t bytes;
    } memory[WORK_TENSORS]; /* q, k, v, out, lse, dout, dq, dk, dv */
} work;

/* Plans `attn`, allocates every tensor, fills the inputs with random values that depend
   on nothing but the shape, and runs the forward pass once (a backward needs its result).
   offsets: of a ragged batch, else NULL; they must outlive the work.
   On failure the sentence is in ph_error(ctx), or "" when memory ran out. */
ph_status work_open(work *w, ph_ctx *ctx, const ph_attn *attn, const int32_t *offsets);
void work_close(work *w);

ph_status work_forward(work *w);
ph_status work_backward(work *w); /* only where attn.backward is set */

/* 1 if both gave the same bits in every output. */
int work_same(const work *a, const work *b);

/* Memory in large pages where it is large; NULL: there is none. Released by free. */
void *work_allocate(size_t bytes);

/* Random values in [-1, 1) of any type. */
void work_fill(void *data, size_t count, ph_dtype dtype, uint64_t seed);

#endif
