/*
 * gather.c - queries of the routed (token, head) pairs only, where those are few.
 *
 * For each head the rows of x routed to it are gathered, multiplied by the columns of
 * that head, and scattered to q, with the bits of a product of all tokens. Queries of
 * pairs that are gated off are 0. bench/log/variants.md has the break-even point.
 */
#include <string.h>

#include "layer/layer.h"

enum { MAX_ROWS = 512, CHUNK = 32 }; /* tokens gathered at a time; of one item */

typedef struct gather_job {
    const ph_layer *layer;
    const void *x;
    float *q;
    int head, count;
    ph_gather scratch;
} gather_job;

ph_gather ph_layer_gather_scratch(const ph_layer *l, ph_arena *arena)
{
    const ph_projection *q = &l->shape.q;
    size_t rows = (size_t)ph_min(MAX_ROWS, l->q_rows),
           item = ph_dtype_size(l->desc.attn.dtype);
    ph_gather g = {0};
    if (!l->shape.sparse_q) return g;
    g.tokens = ph_arena_take(arena, rows * sizeof *g.tokens);
    g.x = ph_arena_take(arena, rows * (size_t)q->in * item);
    g.q = ph_arena_floats(arena, rows * (size_t)q->dim);
    return g;
}

/* `rows` tokens times the columns of a head. */
static ph_gemm product(const ph_layer *l, const ph_layer_weights *w, int head, int rows,
                       const ph_gather *scratch)
{
    ph_projection one = ph_projection_heads(&l->shape.q, head, 1);
    one.pad = one.tail = 0;
    return ph_projection_product(&one, w->wq,
                                 ph_float_at(w->bq, (int64_t)head * one.dim), rows,
                                 scratch->x, l->desc.attn.dtype, scratch->q);
}

/* For any number of tokens that a head may get. */
size_t ph_layer_gather_bytes(const ph_layer *l)
{
    const ph_layer_weights none = {0};
    const ph_gather nowhere = {0};
    ph_gemm g = product(l, &none, 0, ph_min(MAX_ROWS, l->q_rows), &nowhere);
    return l->shape.sparse_q ? ph_gemm_bytes(l->ctx, &g, 1) : 0;
}

static void collect(void *arg, int lane, int index)
{
    const gather_job *j = arg;
    ph_dtype type = j->layer->desc.attn.dtype;
    int in = j->layer->shape.q.in, end = ph_min((index + 1) * CHUNK, j->count);
    (void)lane;
    for (int i = index * CHUNK; i < end; i++)
        memcpy(ph_at_out(j->scratch.x, type, (int64_t)i * in),
               ph_at(j->x, type, (int64_t)j->scratch.tokens[i] * in),
               (size_t)in * ph_dtype_size(type));
}

static void place(void *arg, int lane, int index)
{
    const gather_job *j = arg;
    const ph_projection *p = &j->layer->shape.q;
    int end = ph_min((index + 1) * CHUNK, j->count);
    (void)lane;
    for (int i = index * CHUNK; i < end; i++)
        memcpy(j->q + (int64_t)j->scratch.tokens[i] * ph_projection_row(p) +
                   j->head * p->dim,
               j->scratch.q + (int64_t)i * p->dim, (size_t)p->dim * sizeof *j->q);
}

void ph_layer_gather(const ph_layer *l, const ph_layer_weights *w, const void *x,
                     const float *gate, const ph_gather *scratch, ph_workspace work,
                     float *q)
{
    int len = ph_line_tokens(&l->desc.attn), heads = l->shape.q.heads;
    memset(q, 0, (size_t)l->q_rows * (size_t)ph_projection_row(&l->shape.q) * sizeof *q);
    for (int h = 0; h < heads; h++)
        for (int row = 0; row < l->q_rows;) {
            gather_job j = {l, x, q, h, 0, *scratch};
            for (; row < l->q_rows && j.count < MAX_ROWS; row++)
                if (gate[((int64_t)(row / len) * heads + h) * len + row % len] != 0)
                    scratch->tokens[j.count++] = row;
            ph_gemm g = product(l, w, h, j.count, scratch);
            ph_ctx_run(l->ctx, ph_div_up(j.count, CHUNK), collect, &j);
            ph_gemm_run(l->ctx, &g, 1, work);
            ph_ctx_run(l->ctx, ph_div_up(j.count, CHUNK), place, &j);
        }
}
