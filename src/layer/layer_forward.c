/*
 * layer_forward.c - one forward call of a layer: project, position, before, attend,
 * after, output.
 */
#include <string.h>

#include "layer/layer.h"

/* Arguments and scratch of one call. */
typedef struct forward_call {
    const ph_layer *layer;
    const ph_layer_weights *weights;
    const ph_layer_args *args;
    const float *param[PH_LAYER_PARAMS];
    ph_layer_activations saved;
    ph_tokens x_tokens, key_tokens;
    float *out; /* input of wo: the heads, unless a kind computes another */
    ph_kind_call kind;
    ph_gather gather;
    int32_t *filled; /* cache: (batch) keys it holds after this call */
    float *q_table;  /* rotation of the tokens of x ... */
    float *kv_table; /* ... and of memory; the same table where there is none */
    float *gates;    /* product of the kind's and the caller's */
    ph_gemm list[3]; /* the projections */
    int count;
    ph_gemm output;
    ph_workspace work; /* for one product or attention at a time */
} forward_call;

static void add_projection(forward_call *c, const ph_projection *proj, const void *named,
                           const float *bias, int rows, const void *x, float *y, int same)
{
    const void *w = proj->w < 0 ? named : c->kind.param[proj->w];
    if (!proj->heads) return;
    c->list[c->count] =
        ph_projection_product(proj, w, bias, rows, x, c->layer->desc.attn.dtype, y);
    c->list[c->count].same_a = same && c->count;
    c->count++;
}

static void list_products(forward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_weights *w = c->weights;
    const ph_layer_activations *p = &c->saved;
    const ph_shape *s = &l->shape;
    int memory = l->desc.memory_dim > 0, from = s->q.from;
    const void *x = c->args->x, *source = memory ? c->args->memory : x;
    c->count = 0;
    if (!s->sparse_q) add_projection(c, &s->q, w->wq, w->bq, l->q_rows, x, p->q_raw, 0);
    if (from >= 0) c->list[0].a = c->saved.kind[from], c->list[0].a_type = PH_F32;
    add_projection(c, &s->k, w->wk, w->bk, c->key_tokens.rows, source, p->k_raw,
                   !memory && from < 0);
    add_projection(c, &s->v, w->wv, w->bv, c->key_tokens.rows, source, p->v,
                   s->k.heads > 0);
    c->output =
        ph_projection_product(&l->out, w->wo, w->bo, l->q_rows, c->out, PH_F32, NULL);
    c->output.c = c->args->out, c->output.c_type = l->desc.attn.dtype;
}

static void layout_kind(forward_call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_layer_args *a = c->args;
    ph_kind_call *k = &c->kind;
    *k = (ph_kind_call){.shape = &l->shape,
                        .ctx = l->ctx,
                        .args = a,
                        .weights = c->weights,
                        .param = c->param + l->named,
                        .x_tokens = c->x_tokens,
                        .key_tokens = c->key_tokens,
                        .x = a->x,
                        .source = l->desc.memory_dim ? a->memory : a->x,
                        .q_proj = c->saved.q_raw,
                        .k_proj = c->saved.k_raw,
                        .v_proj = c->saved.v,
                        .q_heads = l->shape.attn.q_heads,
                        .out_heads = l->shape.out_heads,
                        .heads = c->saved.heads,
                        .heads_row = (int64_t)l->shape.attn.q_heads * l->shape.attn.v_dim,
                        .out = c->out};
    size_t gates = (size_t)l->q_rows * (size_t)l->shape.attn.q_heads;
    memcpy(k->saved, c->saved.kind, sizeof k->saved);
    for (int i = 0; i < PH_BUFFERS; i++) {
        k->scratch[i] = ph_arena_floats(arena, l->shape.scratch[i]);
        k->forward_only[i] = ph_arena_floats(arena, l->shape.forward_only[i]);
    }
    if (l->shape.makes_gate) k->gate = ph_arena_floats(arena, gates);
    if (l->shape.makes_gate && a->attn.gate) c->gates = ph_arena_floats(arena, gates);
}

/* Carves the scratch, or measures it. */
static void layout(forward_call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_layer_args *a = c->args;
    ph_arena saved = ph_arena_of(a->saved, ph_layer_saved(l));
    c->saved = ph_layer_take_activations(l, a->saved ? &saved : arena, a->saved != NULL);
    int own = ph_layer_makes_out(l);
    if (l->recomputes_v) c->saved.v = ph_arena_floats(arena, ph_layer_v_floats(l));
    if (!a->saved && a->heads && !own) c->saved.heads = a->heads;
    c->out = c->saved.heads;
    if (own && a->heads) c->out = a->heads;
    if (own && !a->heads)
        c->out = ph_arena_floats(arena, (size_t)l->q_rows * (size_t)l->out.in);
    if (!a->saved) c->saved.lse = a->attn.lse;
    size_t batch = (size_t)l->desc.attn.batch;
    c->filled = ph_arena_take(arena, batch * sizeof *c->filled);
    c->q_table = ph_arena_floats(arena, ph_layer_rope_floats(l, &c->x_tokens, a->past));
    c->kv_table = c->q_table;
    if (l->desc.memory_dim)
        c->kv_table =
            ph_arena_floats(arena, ph_layer_rope_floats(l, &c->key_tokens, NULL));
    layout_kind(c, arena);
    c->gather = ph_layer_gather_scratch(l, arena);
    list_products(c);
    size_t work = ph_plan_workspace(l->plan);
    size_t bytes = ph_gemm_bytes(l->ctx, c->list, c->count);
    if (bytes > work) work = bytes;
    bytes = ph_gemm_bytes(l->ctx, &c->output, 1);
    if (bytes > work) work = bytes;
    if (l->shape.work > work) work = l->shape.work;
    bytes = ph_layer_gather_bytes(l);
    if (bytes > work) work = bytes;
    c->work = c->kind.work = (ph_workspace){ph_arena_take(arena, work), work};
}

/* Queries of the routed (token, head) pairs, once the router has run. */
static void project_sparse_q(forward_call *c)
{
    c->layer->kind[0]->before(&c->kind);
    ph_layer_gather(c->layer, c->weights, c->args->x, c->kind.gate, &c->gather, c->work,
                    c->saved.q_raw);
}

/* Norm and rotation of one projection; into the cache where there is one. */
static void position_projection(const forward_call *c, ph_position_args args,
                                float *cache, ph_strides cached)
{
    const ph_projection *proj = args.proj;
    args.layer = c->layer;
    if (proj->gain >= 0) args.gain = c->kind.param[proj->gain];
    args.cache = cache, args.to = cached;
    args.type = ph_kv_type(&c->layer->attn);
    args.page_table = c->args->attn.page_table;
    if (ph_desc_grows(&c->layer->desc)) args.past = c->args->past;
    if (proj->heads && (cache || ph_layer_positions(proj))) ph_layer_position(&args);
}

static void position(const forward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_layer_args *args = c->args;
    const ph_layer_activations *p = &c->saved;
    const ph_tokens *keys = &c->key_tokens;
    ph_rope_table q_rope = ph_layer_rope_table(l, &c->x_tokens, args->past, c->q_table);
    ph_rope_table k_rope = q_rope;
    if (l->desc.memory_dim) k_rope = ph_layer_rope_table(l, keys, NULL, c->kv_table);
    position_projection(c,
                        (ph_position_args){.proj = &s->q,
                                           .tokens = &c->x_tokens,
                                           .rope = q_rope,
                                           .gain = c->weights->q_norm,
                                           .raw = p->q_raw,
                                           .x = p->q},
                        NULL, (ph_strides){0});
    position_projection(c,
                        (ph_position_args){.proj = &s->k,
                                           .tokens = keys,
                                           .rope = k_rope,
                                           .gain = c->weights->k_norm,
                                           .raw = p->k_raw,
                                           .x = p->k},
                        args->k_cache, l->k_cache);
    position_projection(
        c, (ph_position_args){.proj = &s->v, .tokens = keys, .raw = p->v, .x = p->v},
        args->v_cache, l->v_cache);
}

/* What attention reads: projections or caches, or what the kind computes from them. */
static void before(forward_call *c)
{
    ph_kind_call *k = &c->kind;
    const ph_layer_args *a = c->args;
    k->q_proj = c->saved.q, k->k_proj = c->saved.k, k->v_proj = c->saved.v;
    k->q = k->q_proj;
    k->k = a->k_cache ? a->k_cache : k->k_proj;
    k->v = a->v_cache ? a->v_cache : k->v_proj;
    for (int i = c->layer->shape.sparse_q; i < PH_KINDS; i++) {
        const ph_layer_kind *kind = c->layer->kind[i];
        if (kind && kind->before) kind->before(k);
    }
    const ph_shape *s = &c->layer->shape;
    const float *const *given = c->param + c->layer->named + s->params;
    for (int e = s->makes_extras; ph_plan_extra(c->layer->plan, e); e++)
        k->extra[e] = *given++;
}

/* Arguments of attention, but for what the kind makes. */
static ph_args attend_args(const forward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_args *args = c->args;
    ph_args a = args->attn;
    a.out = c->saved.heads, a.lse = c->saved.lse;
    a.workspace = c->work.data, a.workspace_size = c->work.size;
    if (ph_desc_grows(&l->desc)) {
        for (int b = 0; b < l->desc.attn.batch; b++)
            c->filled[b] =
                (args->past ? args->past[b] : 0) + ph_tokens_valid(&c->x_tokens, b);
        a.kv_lens = c->filled;
    }
    return a;
}

/* Attention's own checks, before anything is written: what the caller gave it, and what
   it will get from here as if that were there already. */
static ph_status check_attend(const forward_call *c)
{
    const ph_layer *l = c->layer;
    int given = l->named + l->shape.params, made = l->shape.makes_extras;
    const float *extra[PH_EXTRAS_MAX];
    ph_args a = attend_args(c);
    for (int e = 0; ph_plan_extra(l->plan, e); e++)
        extra[e] = e < made ? c->saved.q : c->param[given + e - made];
    a.q = c->saved.q, a.k = c->saved.k, a.v = c->saved.v, a.extra = extra;
    return ph_check_forward(l->plan, &a);
}

static ph_status attend(const forward_call *c)
{
    const ph_kind_call *k = &c->kind;
    ph_args a = attend_args(c);
    a.q = k->q, a.k = k->k, a.v = k->v, a.extra = k->extra;
    if (c->gates) ph_layer_multiply_gates(c->layer, k->gate, a.gate, c->gates);
    if (k->gate) a.gate = c->gates ? c->gates : k->gate;
    return ph_forward(c->layer->plan, &a);
}

static void copy_floats(float *to, const float *from, size_t count)
{
    if (to && to != from && count) memcpy(to, from, count * sizeof *to);
}

static void output(forward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    const ph_layer_args *args = c->args;
    size_t tokens = (size_t)l->q_rows, heads = (size_t)l->shape.attn.q_heads;
    if (l->shape.makes_out) l->kind[0]->after(&c->kind);
    if (l->shape.gate.out) l->kind[1]->after(&c->kind);
    if (l->desc.concat) {
        ph_layer_copy(l->ctx, &c->x_tokens, l->out_cols, args->out, a->dtype, c->out,
                      PH_F32);
    } else {
        ph_gemm_run(l->ctx, &c->output, 1, c->work);
        ph_layer_clear(&c->x_tokens, l->out_cols, args->out, a->dtype);
    }
    copy_floats(args->heads, c->out, tokens * (size_t)l->out.in);
    copy_floats(args->attn.lse, c->saved.lse, tokens * heads);
    copy_floats(args->gate_out, c->kind.gate, tokens * heads);
}

static ph_status forward(const ph_layer *layer, const ph_layer_weights *weights,
                         const ph_layer_args *args)
{
    void *space;
    PH_TRY(ph_layer_check(layer, weights, args));
    if (layer->q_rows && !args->out)
        return ph_fail(layer->ctx, PH_BAD_ARGUMENT, "out is NULL, expected a tensor");
    PH_TRY(ph_layer_check_alias(layer, weights, args));
    forward_call c = {.layer = layer, .weights = weights, .args = args};
    c.x_tokens = ph_layer_x_tokens(layer, args);
    c.key_tokens = ph_layer_key_tokens(layer, args);
    ph_layer_list(layer, weights, c.param);
    ph_arena count = {0};
    layout(&c, &count);
    PH_TRY(ph_ctx_scratch(layer->ctx, count.used, &space));
    ph_arena arena = ph_arena_of(space, count.used);
    layout(&c, &arena);
    PH_TRY(check_attend(&c));
    for (int i = 0; i < PH_KINDS; i++)
        if (layer->kind[i] && layer->kind[i]->project) layer->kind[i]->project(&c.kind);
    ph_gemm_run(layer->ctx, c.list, c.count, c.work);
    if (layer->shape.sparse_q) project_sparse_q(&c);
    position(&c);
    before(&c);
    PH_TRY(attend(&c));
    output(&c);
    return PH_OK;
}

ph_status ph_layer_forward(const ph_layer *layer, const ph_layer_weights *weights,
                           const ph_layer_args *args)
{
    if (!layer) return PH_BAD_ARGUMENT;
    return PH_WITHIN(layer->ctx, forward(layer, weights, args));
}
