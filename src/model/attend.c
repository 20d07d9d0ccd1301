/*
 * attend.c - an attention sublayer of a pass: y = attention(a), and da from dy.
 *
 * In an open pass the layer stops at its heads, they are shown, and the output projection
 * runs here.
 */
#include <string.h>

#include "base/rng.h"
#include "model/pass.h"

/* The encoder's output is what the decoder's cross-attention reads; with caches only the
   first time. */
static const float *memory_of(const ph_pass *p)
{
    const ph_side *s = &p->sides[0];
    return p->caches ? p->encoded : s->acts[s->stack->count - 1].join.n;
}

static const int32_t *lens_of(const ph_pass *p, const ph_side *side)
{
    return side == &p->sides[0] ? p->batch.source_lens : p->batch.target_lens;
}

static ph_layer_args args_of(const ph_pass *p, const ph_side *side, int sub)
{
    const ph_sub *what = &side->stack->subs[sub];
    const ph_act *act = &side->acts[sub];
    int cross = what->kind == PH_SUB_CROSS;
    ph_layer_args args = {.x = act->a, .out = p->y, .saved = act->saved};
    args.attn.seed = ph_rng_key(p->seed, ph_drop_stream(PH_DROP_ATTEND, side, sub), 0, 0);
    if (cross) args.memory = memory_of(p);
    if (p->caches) {
        const ph_cache *cache = &p->caches[what->site];
        args.k_cache = cache->k, args.v_cache = cache->v;
        args.extra_cache = cache->extra, args.past = p->past;
    }
    if (ph_layer_about(act->layer).balances) {
        args.balance = p->balance;
        args.balance_loss = &p->balance_loss[what->site];
        if (p->shape.backward)
            args.attn.q_lens = lens_of(p, side); /* padding is no load */
    }
    if (cross || !side->stack->causal) args.attn.kv_lens = p->batch.source_lens;
    if (!cross) args.attn.alibi = p->slopes, args.attn.relative = side->relative;
    return args;
}

/* y = heads wo + bo */
static ph_status project(ph_pass *p, const ph_side *side, int sub,
                         const ph_layer_weights *w)
{
    const ph_config *c = &p->model->config;
    const ph_act *act = &side->acts[sub];
    int wide = act->layer ? ph_act_wide(act) : ph_config_heads_wide(c);
    ph_gemm g =
        ph_product(side->rows, wide, c->model_dim, act->heads, w->wo, w->bo, p->y);
    return ph_model_multiply(p->model, &g, 1);
}

/* Plain cross-attention to keys and values that were made before. */
static ph_status attend_cached(ph_pass *p, const ph_side *side, int sub)
{
    const ph_config *c = &p->model->config;
    const ph_sub *what = &side->stack->subs[sub];
    const ph_act *act = &side->acts[sub];
    const ph_cache *cache = &p->caches[what->site];
    int wide = ph_config_heads_wide(c);
    ph_bound bound;
    ph_model_bind(p->model, what, p->block, NULL, &bound);
    float *q = act->heads + (size_t)side->rows * (size_t)wide;
    ph_gemm g = ph_product(side->rows, c->model_dim, wide, act->a, bound.weights.wq,
                           bound.weights.bq, q);
    ph_args args = {.q = q, .k = cache->k, .v = cache->v, .out = act->heads};
    PH_TRY(ph_model_multiply(p->model, &g, 1));
    PH_TRY(ph_forward(act->plan, &args));
    return project(p, side, sub, &bound.weights);
}

ph_status ph_attend(ph_pass *p, int number, int sub)
{
    const ph_side *side = &p->sides[number];
    const ph_sub *what = &side->stack->subs[sub];
    const ph_act *act = &side->acts[sub];
    ph_bound bound;
    if (act->plan) return attend_cached(p, side, sub);
    ph_layer_args args = args_of(p, side, sub);
    ph_model_bind(p->model, what, p->block, NULL, &bound);
    if (!p->shape.open) return ph_layer_forward(act->layer, &bound.weights, &args);
    ph_layer_weights inner = bound.weights;
    inner.wo = inner.bo = NULL;
    args.out = act->heads;
    PH_TRY(ph_layer_forward(act->layer, &inner, &args));
    if (p->see) p->see(p->user, what->site, act->heads);
    return project(p, side, sub, &bound.weights);
}

/* Computes an open pass's attention once more to see its weights; out: its heads. */
ph_status ph_attend_look(ph_pass *p, int number, int sub, const ph_look_at *at,
                         float *out)
{
    const ph_side *side = &p->sides[number];
    ph_bound bound;
    ph_layer_args args = args_of(p, side, sub);
    ph_model_bind(p->model, &side->stack->subs[sub], p->block, NULL, &bound);
    bound.weights.wo = bound.weights.bo = NULL;
    args.out = out, args.attn.look = at;
    return ph_layer_forward(side->acts[sub].layer, &bound.weights, &args);
}

ph_status ph_attend_back(ph_pass *p, int number, int sub)
{
    const ph_side *side = &p->sides[number];
    const ph_sub *what = &side->stack->subs[sub];
    int cross = what->kind == PH_SUB_CROSS;
    size_t memory = (size_t)p->sides[0].rows * (size_t)p->model->config.model_dim;
    ph_bound b;
    ph_layer_args args = args_of(p, side, sub);
    ph_model_bind(p->model, what, p->block, p->grads, &b);
    b.grads.dout = p->dy, b.grads.dx = p->da;
    if (cross) b.grads.dmemory = p->dmemory_part;
    if (!cross && side->drelative) b.grads.drelative = p->layer_drelative;
    PH_TRY(ph_layer_backward(side->acts[sub].layer, &b.weights, &args, &b.grads));
    if (cross) ph_rows_add(p, memory, p->dmemory, p->dmemory_part);
    if (b.grads.drelative)
        ph_rows_add(p, ph_buckets_floats(p->model), side->drelative, p->layer_drelative);
    return PH_OK;
}
