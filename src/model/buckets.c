/*
 * buckets.c - relative positions of T5: a learned bias per head and bucket of
 * distances, added to the scores of self-attention.
 *
 * Attention takes the bias by distance (ph_args.relative), so nothing of size T x T is
 * stored. One table of buckets serves all layers of a stack.
 */
#include <string.h>

#include "model/pass.h"

static ph_t5 buckets_of(const ph_model *m, const ph_model_stack *stack)
{
    return (ph_t5){.buckets = m->config.buckets,
                   .max_distance = m->config.bucket_distance,
                   .two_sided = !stack->causal};
}

size_t ph_buckets_floats(const ph_model *m)
{
    return (size_t)m->config.heads * (2 * (size_t)m->config.bucket_distance + 1);
}

void ph_buckets_forward(const ph_pass *p, const ph_pass_stack *stack)
{
    const ph_model *m = p->model;
    ph_t5 t5 = buckets_of(m, stack->def);
    const float *table = p->block + m->params[stack->def->buckets].at;
    ph_t5_expand(&t5, m->config.heads, table, stack->relative);
}

void ph_buckets_backward(const ph_pass *p, const ph_pass_stack *stack)
{
    const ph_model *m = p->model;
    ph_t5 t5 = buckets_of(m, stack->def);
    ph_t5_reduce(&t5, m->config.heads, stack->drelative,
                 p->grads + m->params[stack->def->buckets].at);
}

/* ---- heads that were removed ------------------------------------------------------- */

static size_t distances(const ph_model *m)
{
    return 2 * (size_t)m->config.bucket_distance + 1;
}

const float *ph_buckets_take(const ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    float *own = stack->acts[sublayer].relative;
    size_t n = distances(p->model);
    if (!own) return stack->relative;
    for (int h = 0; h < def->heads; h++)
        memcpy(own + (size_t)h * n, stack->relative + (size_t)def->original[h] * n,
               n * sizeof *own);
    return own;
}

void ph_buckets_add(const ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    size_t n = distances(p->model);
    for (int h = 0; h < def->heads; h++)
        p->model->spans->add((int)n,
                             stack->drelative + (size_t)ph_sublayer_original(def, h) * n,
                             p->layer_drelative + (size_t)h * n);
}
