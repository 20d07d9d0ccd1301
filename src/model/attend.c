/*
 * attend.c - an attention sublayer of a pass: y = attention(a), and da from dy.
 *
 * In an open pass the layer stops at its heads, they are shown, and the output projection
 * runs here.
 */
#include <string.h>

#include "base/rng.h"
#include "model/pass.h"

/* The encoder's output is what the decoder's cross-attention reads. */
static const float *memory_of(const ph_pass *p)
{
    const ph_side *s = &p->sides[0];
    return s->acts[s->stack->count - 1].join.n;
}

static ph_layer_args args_of(const ph_pass *p, const ph_side *side, int sub)
{
    const ph_sub *what = &side->stack->subs[sub];
    const ph_act *act = &side->acts[sub];
    int cross = what->kind == PH_SUB_CROSS;
    ph_layer_args args = {.x = act->a, .out = p->y, .saved = act->saved};
    args.attn.seed =
        ph_rng_key(p->seed, ph_drop_stream(PH_DROP_ATTEND, side, sub), 0, 0);
    if (cross) args.memory = memory_of(p);
    if (cross || !side->stack->causal) args.attn.kv_lens = p->batch.source_lens;
    if (!cross) args.attn.alibi = p->slopes;
    return args;
}

/* y = heads wo + bo */
static ph_status project(ph_pass *p, const ph_side *side, int sub,
                         const ph_layer_weights *w)
{
    const ph_config *c = &p->model->config;
    int wide = c->heads * c->head_dim;
    ph_gemm g = {.m = side->rows, .n = c->model_dim, .k = wide};
    g.a = side->acts[sub].heads, g.a_row = wide, g.a_col = 1;
    g.b = w->wo, g.b_row = c->model_dim, g.b_col = 1;
    g.c = p->y, g.c_row = c->model_dim, g.bias = w->bo;
    return ph_model_multiply(p->model->ctx, &g, 1);
}

ph_status ph_attend(ph_pass *p, int number, int sub)
{
    const ph_side *side = &p->sides[number];
    const ph_sub *what = &side->stack->subs[sub];
    const ph_act *act = &side->acts[sub];
    ph_layer_weights w = ph_model_weights(p->model, what, (float *)p->block);
    ph_layer_weights inner = w;
    ph_layer_args args = args_of(p, side, sub);
    if (!p->shape.open) return ph_layer_forward(act->layer, &w, &args);
    inner.wo = inner.bo = NULL;
    args.out = act->heads;
    PH_TRY(ph_layer_forward(act->layer, &inner, &args));
    if (p->see) p->see(p->user, what->site, act->heads);
    return project(p, side, sub, &w);
}

ph_status ph_attend_back(ph_pass *p, int number, int sub)
{
    const ph_side *side = &p->sides[number];
    const ph_sub *what = &side->stack->subs[sub];
    int cross = what->kind == PH_SUB_CROSS;
    size_t memory = (size_t)p->sides[0].rows * (size_t)p->model->config.model_dim;
    ph_layer_weights w = ph_model_weights(p->model, what, (float *)p->block);
    ph_layer_args args = args_of(p, side, sub);
    ph_layer_grads g = ph_model_grads(p->model, what, p->grads);
    g.dout = p->dy, g.dx = p->da;
    if (cross) g.dmemory = p->dmemory_part;
    PH_TRY(ph_layer_backward(side->acts[sub].layer, &w, &args, &g));
    if (cross) ph_rows_add(p, memory, p->dmemory, p->dmemory_part);
    return PH_OK;
}
