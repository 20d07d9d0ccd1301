/*
 * layer_forward.c - one forward call of a layer: project, position, attend, output.
 */
#include <string.h>

#include "layer/layer.h"

/* One call: what it was given and the pieces of scratch it works in. */
typedef struct call {
    const ph_layer *layer;
    const ph_layer_weights *weights;
    const ph_layer_args *args;
    ph_layer_kept kept;
    int32_t *filled; /* cache: (batch) keys it holds after this call */
    float *q_table;  /* rotation of the tokens of x ... */
    float *kv_table; /* ... and of memory; the same table where there is none */
    ph_gemm list[3]; /* the projections */
    ph_gemm output;
    void *work; /* for one product or attention at a time */
} call;

static void list_products(call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_weights *w = c->weights;
    const ph_layer_args *a = c->args;
    const ph_layer_kept *p = &c->kept;
    ph_dtype type = l->desc.attn.dtype;
    const void *source = l->desc.memory_dim ? a->memory : a->x;
    c->list[0] = ph_layer_product(&l->wq, w->wq, w->bq, l->q_rows, a->x, type, p->q_raw);
    c->list[1] =
        ph_layer_product(&l->wk, w->wk, w->bk, l->kv_rows, source, type, p->k_raw);
    c->list[2] = ph_layer_product(&l->wv, w->wv, w->bv, l->kv_rows, source, type, p->v);
    c->list[1].same_a = !l->desc.memory_dim;
    c->list[2].same_a = 1;
    c->output = ph_layer_product(&l->wo, w->wo, w->bo, l->q_rows, p->heads, PH_F32, NULL);
    c->output.c = a->out, c->output.c_type = type;
}

/* Carves the scratch, or measures it. */
static void lay(call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_layer_args *a = c->args;
    ph_arena saved = {.base = a->saved};
    c->kept = ph_layer_keep(l, a->saved ? &saved : arena, a->saved != NULL);
    if (!a->saved && a->heads) c->kept.heads = a->heads;
    if (!a->saved) c->kept.lse = a->attn.lse;
    size_t batch = (size_t)l->desc.attn.batch;
    c->filled = ph_arena_take(arena, batch * sizeof *c->filled);
    c->q_table = ph_arena_floats(arena, ph_layer_table(l, l->desc.attn.q_len, a->past));
    c->kv_table = c->q_table;
    if (l->desc.memory_dim)
        c->kv_table = ph_arena_floats(arena, ph_layer_table(l, l->kv_len, NULL));
    list_products(c);
    size_t work = ph_plan_workspace(l->plan), bytes = ph_gemm_bytes(l->ctx, c->list, 3);
    if (bytes > work) work = bytes;
    bytes = ph_gemm_bytes(l->ctx, &c->output, 1);
    if (bytes > work) work = bytes;
    c->work = ph_arena_take(arena, work);
}

/* Norm and rotation; into the cache where there is one. */
static void position(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    const ph_layer_args *args = c->args;
    const int32_t *kv_lens = l->desc.cache ? args->attn.q_lens : args->attn.kv_lens;
    int change = l->desc.qk_norm || l->angles, memory = l->desc.memory_dim > 0;
    ph_layer_turns turns = {0};
    ph_layer_side q = {.layer = l,
                       .heads = a->q_heads,
                       .gain = c->weights->q_norm,
                       .raw = c->kept.q_raw,
                       .x = c->kept.q};
    ph_layer_side k = {.layer = l,
                       .heads = a->k_heads,
                       .gain = c->weights->k_norm,
                       .raw = c->kept.k_raw,
                       .x = c->kept.k,
                       .cache = args->k_cache,
                       .past = args->past};
    ph_layer_side v = {.layer = l,
                       .heads = a->v_heads,
                       .copy = 1,
                       .raw = c->kept.v,
                       .cache = args->v_cache,
                       .past = args->past};
    q.rows =
        (ph_layer_rows){a->batch, a->q_len, ph_layer_columns(&l->wq), args->attn.q_lens};
    k.rows = (ph_layer_rows){a->batch, l->kv_len, ph_layer_columns(&l->wk), kv_lens};
    v.rows = (ph_layer_rows){a->batch, l->kv_len, ph_layer_columns(&l->wv), kv_lens};
    if (change) turns = ph_layer_turn(l, a->q_len, args->past, c->q_table);
    q.turns = k.turns = turns;
    if (change && memory) k.turns = ph_layer_turn(l, l->kv_len, NULL, c->kv_table);
    if (change) ph_layer_position(&q);
    if (change || l->desc.cache) ph_layer_position(&k);
    if (l->desc.cache) ph_layer_position(&v);
}

static ph_status attend(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_args *args = c->args;
    ph_args a = args->attn;
    a.q = c->kept.q, a.k = c->kept.k, a.v = c->kept.v;
    a.out = c->kept.heads, a.lse = c->kept.lse, a.workspace = c->work;
    a.extra = c->weights->extra;
    if (l->desc.cache) {
        for (int b = 0; b < l->desc.attn.batch; b++)
            c->filled[b] = (args->past ? args->past[b] : 0) +
                           (a.q_lens ? a.q_lens[b] : l->desc.attn.q_len);
        a.k = args->k_cache, a.v = args->v_cache, a.kv_lens = c->filled;
    }
    return ph_forward(l->plan, &a);
}

static void output(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    const ph_layer_args *args = c->args;
    ph_layer_rows rows = {a->batch, a->q_len, l->out_cols, args->attn.q_lens};
    size_t heads = (size_t)l->q_rows * (size_t)l->wo.in;
    size_t lse = (size_t)l->q_rows * (size_t)a->q_heads;
    if (l->desc.concat) {
        ph_layer_copy(l->ctx, rows, args->out, a->dtype, c->kept.heads, PH_F32);
    } else {
        ph_gemm_run(l->ctx, &c->output, 1, c->work);
        ph_layer_clear(rows, args->out, a->dtype);
    }
    if (args->heads && args->heads != c->kept.heads && heads)
        memcpy(args->heads, c->kept.heads, heads * sizeof *args->heads);
    if (args->attn.lse && args->attn.lse != c->kept.lse && lse)
        memcpy(args->attn.lse, c->kept.lse, lse * sizeof *args->attn.lse);
}

ph_status ph_layer_forward(const ph_layer *layer, const ph_layer_weights *weights,
                           const ph_layer_args *args)
{
    void *space;
    if (!layer) return PH_BAD_ARGUMENT;
    PH_TRY(ph_layer_check(layer, weights, args));
    if (layer->q_rows && !args->out)
        return ph_fail(layer->ctx, PH_BAD_ARGUMENT, "out is NULL, expected a tensor");
    call c = {.layer = layer, .weights = weights, .args = args};
    ph_arena count = {0};
    lay(&c, &count);
    PH_TRY(ph_ctx_scratch(layer->ctx, count.used, &space));
    ph_arena arena = {.base = space};
    lay(&c, &arena);
    ph_gemm_run(layer->ctx, c.list, 3, c.work);
    position(&c);
    PH_TRY(attend(&c));
    output(&c);
    return PH_OK;
}
