/*
 * attend.c - an attention sublayer: y = attention(a), and da from dy.
 *
 * In an open pass the layer stops before its output projection, the callback sees the
 * heads, and the projection runs here.
 */
#include <string.h>

#include "base/rng.h"
#include "model/pass.h"

/* The encoder's output, input of the decoder's cross-attention; with caches only for the
   first token. */
static const float *memory_of(const ph_pass *p)
{
    const ph_pass_stack *s = &p->stacks[0];
    return p->shape.kv ? p->encoded : s->acts[s->def->count - 1].residual.n;
}

static void give_caches(const ph_kv_cache *kv, const ph_sublayer *def,
                        ph_layer_args *args)
{
    const ph_cache *cache = &kv->sites[def->site];
    ph_cache_give(cache, args);
    args->past = kv->past;
    if (cache->paged) args->attn.page_table = kv->table;
}

void ph_attend_positions(const ph_pass *p, int stack_index, int sublayer, ph_args *args)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    if (p->slopes) args->alibi = p->slopes + def->first_head;
    if (stack->relative) args->relative = ph_buckets_take(p, stack, sublayer);
}

static ph_layer_args args_of(const ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    const ph_act *act = &stack->acts[sublayer];
    int cross = def->kind == PH_SUBLAYER_CROSS;
    ph_layer_args args = {.x = act->a, .out = p->y, .saved = act->saved};
    args.saved_size = ph_layer_saved(act->layer);
    args.attn.seed =
        ph_rng_key(p->seed, ph_dropout_stream(PH_DROPOUT_ATTEND, stack, sublayer), 0, 0);
    if (cross) args.memory = memory_of(p);
    if (!cross || !p->shape.kv) args.attn.q_offsets = stack->offsets;
    if (cross && !p->shape.kv) args.attn.kv_offsets = p->stacks[0].offsets;
    if (p->shape.kv) give_caches(p->shape.kv, def, &args);
    if (ph_layer_about(act->layer).balances) {
        args.balance = p->balance;
        args.balance_loss = &p->balance_loss[def->site];
    }
    args.attn.gate = act->gate;
    if (!cross) ph_attend_positions(p, (int)(stack - p->stacks), sublayer, &args.attn);
    return args;
}

/* y = heads wo + bo */
static ph_status project(ph_pass *p, const ph_pass_stack *stack, int sublayer,
                         const ph_bound *b)
{
    const ph_config *c = &p->model->config;
    const ph_act *act = &stack->acts[sublayer];
    int plain = stack->def->sublayers[sublayer].heads * c->head_dim;
    int width = act->layer ? ph_act_width(act) : plain;
    ph_gemm g =
        ph_product(stack->rows, width, c->model_dim, act->heads, b->wo,
                   b->weights.bo, p->y);
    return ph_model_multiply(p->model, &g, 1);
}

/* Plain cross-attention to cached keys and values of the sources. */
static ph_status attend_cached(ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    const ph_config *c = &p->model->config;
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    const ph_act *act = &stack->acts[sublayer];
    const ph_cache *cache = &p->shape.kv->sites[def->site];
    int width = def->heads * c->head_dim;
    ph_bound bound;
    ph_model_bind(p->model, def, p->block, NULL, &bound);
    float *q = act->heads + (size_t)stack->rows * (size_t)width;
    ph_gemm g = ph_product(stack->rows, c->model_dim, width, act->a, bound.wq,
                           bound.weights.bq, q);
    ph_args args = {.q = q, .k = cache->k, .v = cache->v, .out = act->heads};
    args.q_offsets = stack->offsets, args.kv_lens = p->shape.kv->source_lens;
    PH_TRY(ph_model_multiply(p->model, &g, 1));
    PH_TRY(ph_forward(act->plan, &args));
    return project(p, stack, sublayer, &bound);
}

/* ---- without heads ----------------------------------------------------------------- */

/* y = bo in every row, or 0 */
static void bias_forward(const ph_pass *p, const ph_pass_stack *stack,
                         const ph_sublayer *def)
{
    size_t dim = (size_t)p->model->config.model_dim;
    const float *bias = def->count ? p->block + p->model->params[def->first].at : NULL;
    for (size_t r = 0; r < (size_t)stack->rows; r++)
        if (bias)
            memcpy(p->y + r * dim, bias, dim * sizeof *bias);
        else
            memset(p->y + r * dim, 0, dim * sizeof *p->y);
}

/* Nothing of the input is read: da is 0. */
static ph_status bias_backward(ph_pass *p, const ph_pass_stack *stack,
                               const ph_sublayer *def)
{
    int rows = stack->rows, dim = p->model->config.model_dim;
    memset(p->da, 0, (size_t)rows * (size_t)dim * sizeof *p->da);
    if (!def->count) return PH_OK;
    ph_gemm g = ph_product_db(rows, dim, p->ones, p->dy,
                              p->grads + p->model->params[def->first].at);
    return ph_model_multiply(p->model, &g, 1);
}

/* ---- all of it --------------------------------------------------------------------- */

/* One gate per head becomes one for each of its rows, whose gradients are wanted. */
static void set_gates(const ph_pass *p, const ph_pass_stack *stack, int sublayer)
{
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    float *gate = stack->acts[sublayer].gate;
    for (int h = 0; gate && h < def->heads; h++)
        for (int r = 0; r < stack->rows; r++)
            *gate++ = p->gates ? p->gates[def->first_head + h] : 1;
}

ph_status ph_attend_forward(ph_pass *p, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    const ph_act *act = &stack->acts[sublayer];
    ph_bound bound;
    if (act->plan) return attend_cached(p, stack, sublayer);
    if (def->kind == PH_SUBLAYER_BIAS) {
        bias_forward(p, stack, def);
        return PH_OK;
    }
    set_gates(p, stack, sublayer);
    ph_layer_args args = args_of(p, stack, sublayer);
    ph_model_bind(p->model, def, p->block, NULL, &bound);
    if (!p->shape.open) return ph_layer_forward(act->layer, &bound.weights, &args);
    ph_layer_weights inner = bound.weights;
    inner.wo = inner.bo = NULL;
    args.out = act->heads;
    PH_TRY(ph_layer_forward(act->layer, &inner, &args));
    if (p->see) PH_TRY(p->see(p->user, def->site, act->heads));
    return project(p, stack, sublayer, &bound);
}

/* Recomputes attention of an open pass to look at its weights; out: its heads. */
ph_status ph_attend_look(ph_pass *p, int stack_index, int sublayer, const ph_look_at *at,
                         float *out)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    ph_bound bound;
    ph_layer_args args = args_of(p, stack, sublayer);
    ph_model_bind(p->model, &stack->def->sublayers[sublayer], p->block, NULL, &bound);
    bound.weights.wo = bound.weights.bo = NULL;
    args.out = out, args.attn.look = at;
    return ph_layer_forward(stack->acts[sublayer].layer, &bound.weights, &args);
}

ph_status ph_attend_backward(ph_pass *p, int stack_index, int sublayer)
{
    const ph_pass_stack *stack = &p->stacks[stack_index];
    const ph_sublayer *def = &stack->def->sublayers[sublayer];
    int cross = def->kind == PH_SUBLAYER_CROSS;
    size_t memory = (size_t)p->stacks[0].rows * (size_t)p->model->config.model_dim;
    if (def->kind == PH_SUBLAYER_BIAS) return bias_backward(p, stack, def);
    ph_bound b;
    ph_layer_args args = args_of(p, stack, sublayer);
    ph_model_bind(p->model, def, p->block, p->grads, &b);
    b.grads.dout = p->dy, b.grads.dx = p->da;
    b.grads.dgate = stack->acts[sublayer].dgate;
    if (cross) b.grads.dmemory = p->dmemory_part;
    if (!cross && stack->drelative) b.grads.drelative = p->layer_drelative;
    PH_TRY(ph_layer_backward(stack->acts[sublayer].layer, &b.weights, &args, &b.grads));
    if (cross) ph_pass_add(p, memory, p->dmemory, p->dmemory_part);
    if (b.grads.drelative)
        ph_buckets_add(p, stack, sublayer);
    return PH_OK;
}
