/*
 * layer_backward.c - one backward call of a layer: output, attend, position, project.
 *
 *     dheads = dout wo^T    dwo = heads^T dout    dbo = sum of the rows of dout
 *     dq, dk, dv from attention, then back through rotation and norm
 *     dwq = x^T dq          dx = dq wq^T (+ dk wk^T + dv wv^T where keys come from x)
 *
 * Rows beyond their length hold anything, NaN included: their gradients are zero, and
 * where they are the other factor of a product a copy with zeros takes their place.
 */
#include <string.h>

#include "layer/layer.h"

/* One call: what it was given and the pieces of scratch it works in. */
typedef struct call {
    const ph_layer *layer;
    const ph_layer_weights *weights;
    const ph_layer_args *args;
    const ph_layer_grads *grads;
    ph_layer_kept kept;
    int want_q, want_k, want_v; /* whether anything needs dq, dk, dv */
    const void *x, *source; /* x and where keys come from, with zeros beyond lengths */
    const float *dout;      /* as floats, with zeros beyond lengths */
    float *x_copy, *source_copy, *dout_copy;
    const float *dheads; /* gradient of what attention gave */
    float *dheads_own, *dq, *dk, *dv;
    float *dx, *dmemory; /* as floats */
    float *ones;         /* (q_rows or kv_rows, the larger) */
    float *q_table, *kv_table, *q_sums, *k_sums;
    void *work; /* for one product or attention at a time */
} call;

/* A list of products that run side by side. */
typedef struct products {
    ph_gemm list[PH_GEMM_MAX];
    int count;
} products;

static void add_product(products *p, int wanted, ph_gemm g)
{
    if (wanted) p->list[p->count++] = g;
}

/* ---- the steps as products --------------------------------------------------------- */

static products heads_step(const call *c)
{
    const ph_layer *l = c->layer;
    products p = {.count = 0};
    add_product(&p, !l->desc.concat,
                ph_layer_product_dx(&l->wo, c->weights->wo, l->q_rows, c->dout,
                                    c->dheads_own, 0));
    return p;
}

static void add_weights(const call *c, products *p)
{
    const ph_layer *l = c->layer;
    const ph_layer_grads *g = c->grads;
    const ph_args *lens = &c->args->attn;
    ph_dtype type = l->desc.attn.dtype;
    int one_source = !l->desc.memory_dim && !lens->q_lens && !lens->kv_lens;
    ph_gemm q = ph_layer_product_dw(&l->wq, l->q_rows, c->x, type, c->dq, g->dwq);
    ph_gemm k = ph_layer_product_dw(&l->wk, l->kv_rows, c->source, type, c->dk, g->dwk);
    ph_gemm v = ph_layer_product_dw(&l->wv, l->kv_rows, c->source, type, c->dv, g->dwv);
    k.same_a = g->dwq && one_source;
    v.same_a = g->dwk || k.same_a;
    add_product(p, g->dwq != NULL, q);
    add_product(p, g->dwk != NULL, k);
    add_product(p, g->dwv != NULL, v);
    add_product(
        p, g->dwo != NULL,
        ph_layer_product_dw(&l->wo, l->q_rows, c->kept.heads, PH_F32, c->dout, g->dwo));
}

/* All gradients of parameters, and what q gives to dx. */
static products first_step(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_grads *g = c->grads;
    int q = ph_layer_columns(&l->wq), k = ph_layer_columns(&l->wk);
    int v = ph_layer_columns(&l->wv);
    products p = {.count = 0};
    add_weights(c, &p);
    add_product(&p, g->dx != NULL,
                ph_layer_product_dx(&l->wq, c->weights->wq, l->q_rows, c->dq, c->dx, 0));
    add_product(&p, g->dbq != NULL, ph_layer_sum(l->q_rows, q, c->ones, c->dq, g->dbq));
    add_product(&p, g->dbk != NULL, ph_layer_sum(l->kv_rows, k, c->ones, c->dk, g->dbk));
    add_product(&p, g->dbv != NULL, ph_layer_sum(l->kv_rows, v, c->ones, c->dv, g->dbv));
    add_product(&p, g->dbo != NULL,
                ph_layer_sum(l->q_rows, l->out_cols, c->ones, c->dout, g->dbo));
    return p;
}

/* What k (second) and v (third) give to dmemory, or add to dx. */
static products next_step(const call *c, int third)
{
    const ph_layer *l = c->layer;
    int memory = l->desc.memory_dim > 0;
    int wanted = (memory ? c->grads->dmemory : c->grads->dx) != NULL;
    float *to = memory ? c->dmemory : c->dx;
    products p = {.count = 0};
    if (third)
        add_product(
            &p, wanted,
            ph_layer_product_dx(&l->wv, c->weights->wv, l->kv_rows, c->dv, to, 1));
    else
        add_product(
            &p, wanted,
            ph_layer_product_dx(&l->wk, c->weights->wk, l->kv_rows, c->dk, to, !memory));
    return p;
}

/* ---- workspace --------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Room for a copy of rows if `wanted`. */
static float *lay_copy(ph_arena *arena, int wanted, int rows, int columns, ph_dtype type)
{
    if (!wanted) return NULL;
    return ph_arena_take(arena, (size_t)rows * (size_t)columns * ph_dtype_size(type));
}

/* Gradients of activations are summed in floats; the caller's tensor serves if it is. */
static float *lay_sum(ph_arena *arena, void *wanted, int rows, int columns, ph_dtype type)
{
    if (!wanted || type == PH_F32) return wanted;
    return lay_copy(arena, 1, rows, columns, PH_F32);
}

static void lay_work(call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    products steps[4] = {heads_step(c), first_step(c), next_step(c, 0), next_step(c, 1)};
    size_t work = ph_plan_workspace(l->plan);
    for (int i = 0; i < 4; i++)
        work = larger(work, ph_gemm_bytes(l->ctx, steps[i].list, steps[i].count));
    c->work = ph_arena_take(arena, work);
}

/* Carves the scratch, or measures it. */
static void lay(call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_layer_desc *d = &l->desc;
    const ph_layer_grads *g = c->grads;
    const int32_t *q_lens = c->args->attn.q_lens, *kv_lens = c->args->attn.kv_lens;
    ph_dtype type = d->attn.dtype;
    int q = ph_layer_columns(&l->wq), k = ph_layer_columns(&l->wk);
    int v = ph_layer_columns(&l->wv), dim = d->attn.qk_dim;
    int copy_dout = q_lens || type != PH_F32;
    c->x_copy = lay_copy(arena, q_lens && g->dwq, l->q_rows, l->wq.in, type);
    c->source_copy =
        lay_copy(arena, kv_lens && (g->dwk || g->dwv), l->kv_rows, l->wk.in, type);
    c->dout_copy = lay_copy(arena, copy_dout, l->q_rows, l->out_cols, PH_F32);
    c->dheads_own = lay_copy(arena, !d->concat, l->q_rows, l->wo.in, PH_F32);
    c->dq = lay_copy(arena, c->want_q, l->q_rows, q, PH_F32);
    c->dk = lay_copy(arena, c->want_k, l->kv_rows, k, PH_F32);
    c->dv = lay_copy(arena, c->want_v, l->kv_rows, v, PH_F32);
    c->dx = lay_sum(arena, g->dx, l->q_rows, d->model_dim, type);
    c->dmemory = lay_sum(arena, g->dmemory, l->kv_rows, l->wk.in, type);
    c->ones = ph_arena_floats(arena, (size_t)ph_max(l->q_rows, l->kv_rows));
    c->q_table = ph_arena_floats(arena, ph_layer_table(l, d->attn.q_len, c->args->past));
    c->kv_table = c->q_table;
    if (d->memory_dim)
        c->kv_table = ph_arena_floats(arena, ph_layer_table(l, l->kv_len, NULL));
    ph_layer_rows q_rows = {.batch = d->attn.batch, .len = d->attn.q_len};
    ph_layer_rows k_rows = {.batch = d->attn.batch, .len = l->kv_len};
    c->q_sums =
        lay_copy(arena, g->dq_norm != NULL, ph_layer_chunks(&q_rows), dim, PH_F32);
    c->k_sums =
        lay_copy(arena, g->dk_norm != NULL, ph_layer_chunks(&k_rows), dim, PH_F32);
    c->x = c->x_copy ? c->x_copy : c->args->x;
    c->source = d->memory_dim ? c->args->memory : c->args->x;
    if (c->source_copy) c->source = c->source_copy;
    c->dout = c->dout_copy ? c->dout_copy : g->dout;
    c->dheads = d->concat ? c->dout : c->dheads_own;
    lay_work(c, arena);
}

/* ---- the steps --------------------------------------------------------------------- */

static void run_products(const call *c, products p)
{
    if (p.count) ph_gemm_run(c->layer->ctx, p.list, p.count, c->work);
}

static void make_copies(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    const ph_layer_args *args = c->args;
    const void *source = l->desc.memory_dim ? args->memory : args->x;
    const int32_t *q_lens = args->attn.q_lens, *kv_lens = args->attn.kv_lens;
    ph_layer_rows out = {a->batch, a->q_len, l->out_cols, q_lens};
    ph_layer_rows x = {a->batch, a->q_len, l->wq.in, q_lens};
    ph_layer_rows keys = {a->batch, l->kv_len, l->wk.in, kv_lens};
    if (c->dout_copy)
        ph_layer_copy(l->ctx, out, c->dout_copy, PH_F32, c->grads->dout, a->dtype);
    if (c->x_copy) ph_layer_copy(l->ctx, x, c->x_copy, a->dtype, args->x, a->dtype);
    if (c->source_copy)
        ph_layer_copy(l->ctx, keys, c->source_copy, a->dtype, source, a->dtype);
    for (int i = 0; i < ph_max(l->q_rows, l->kv_rows); i++) c->ones[i] = 1;
}

static ph_status attend(const call *c)
{
    const ph_layer_grads *g = c->grads;
    ph_args a = c->args->attn;
    a.q = c->kept.q, a.k = c->kept.k, a.v = c->kept.v;
    a.out = c->kept.heads, a.lse = c->kept.lse, a.workspace = c->work, a.look = NULL;
    a.extra = c->weights->extra;
    ph_grads out = {.dout = c->dheads,
                    .dlse = g->dlse,
                    .dq = c->dq,
                    .dk = c->dk,
                    .dv = c->dv,
                    .dbias = g->dbias,
                    .dgate = g->dgate,
                    .dsink = g->dsink,
                    .dextra = g->dextra};
    return ph_backward(c->layer->plan, &a, &out);
}

static void position(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    const ph_args *lens = &c->args->attn;
    if (!l->desc.qk_norm && !l->angles) return;
    ph_layer_side q = {.layer = l,
                       .heads = a->q_heads,
                       .gain = c->weights->q_norm,
                       .raw = c->kept.q_raw,
                       .x = c->dq,
                       .sums = c->q_sums};
    ph_layer_side k = {.layer = l,
                       .heads = a->k_heads,
                       .gain = c->weights->k_norm,
                       .raw = c->kept.k_raw,
                       .x = c->dk,
                       .sums = c->k_sums};
    q.rows = (ph_layer_rows){a->batch, a->q_len, ph_layer_columns(&l->wq), lens->q_lens};
    k.rows =
        (ph_layer_rows){a->batch, l->kv_len, ph_layer_columns(&l->wk), lens->kv_lens};
    q.turns = k.turns = ph_layer_turn(l, a->q_len, c->args->past, c->q_table);
    if (l->desc.memory_dim) k.turns = ph_layer_turn(l, l->kv_len, NULL, c->kv_table);
    if (c->want_q) ph_layer_unposition(&q, c->grads->dq_norm);
    if (c->want_k) ph_layer_unposition(&k, c->grads->dk_norm);
}

/* dx and dmemory into the caller's type */
static void round_sums(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    ph_layer_rows x = {.batch = a->batch, .len = a->q_len, .columns = l->wq.in};
    ph_layer_rows keys = {.batch = a->batch, .len = l->kv_len, .columns = l->wk.in};
    if (c->dx && c->dx != c->grads->dx)
        ph_layer_copy(l->ctx, x, c->grads->dx, a->dtype, c->dx, PH_F32);
    if (c->dmemory && c->dmemory != c->grads->dmemory)
        ph_layer_copy(l->ctx, keys, c->grads->dmemory, a->dtype, c->dmemory, PH_F32);
}

/* ---- the call ---------------------------------------------------------------------- */

static ph_status check(const ph_layer *l, const ph_layer_weights *w,
                       const ph_layer_args *args, const ph_layer_grads *g)
{
    if (!l->desc.attn.backward)
        return ph_fail(l->ctx, PH_UNSUPPORTED,
                       "the layer was made with attn.backward 0, expected 1");
    if (!g) return ph_fail(l->ctx, PH_BAD_ARGUMENT, "grads is NULL");
    PH_TRY(ph_layer_check(l, w, args));
    if (!args->saved && l->q_rows + l->kv_rows)
        return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                       "saved is NULL, expected what the forward call left");
    if (!g->dout && l->q_rows)
        return ph_fail(l->ctx, PH_BAD_ARGUMENT, "dout is NULL, expected a tensor");
    const struct {
        const char *name;
        const void *gradient;
        int there;
    } wanted[] = {{"memory", g->dmemory, l->desc.memory_dim > 0},
                  {"wo", g->dwo, !l->desc.concat},
                  {"bq", g->dbq, w->bq != NULL},
                  {"bk", g->dbk, w->bk != NULL},
                  {"bv", g->dbv, w->bv != NULL},
                  {"bo", g->dbo, w->bo != NULL},
                  {"q_norm", g->dq_norm, w->q_norm != NULL},
                  {"k_norm", g->dk_norm, w->k_norm != NULL},
                  {"bias", g->dbias, args->attn.bias != NULL},
                  {"gate", g->dgate, args->attn.gate != NULL},
                  {"sink", g->dsink, args->attn.sink != NULL}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i].gradient && !wanted[i].there)
            return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                           "d%s is wanted but the layer has no %s, expected NULL",
                           wanted[i].name, wanted[i].name);
    return PH_OK;
}

ph_status ph_layer_backward(const ph_layer *layer, const ph_layer_weights *weights,
                            const ph_layer_args *args, const ph_layer_grads *grads)
{
    void *space;
    if (!layer) return PH_BAD_ARGUMENT;
    PH_TRY(check(layer, weights, args, grads));
    call c = {.layer = layer, .weights = weights, .args = args, .grads = grads};
    const void *from_keys = layer->desc.memory_dim ? grads->dmemory : grads->dx;
    c.want_q = grads->dx || grads->dwq || grads->dbq || grads->dq_norm;
    c.want_k = from_keys || grads->dwk || grads->dbk || grads->dk_norm;
    c.want_v = from_keys || grads->dwv || grads->dbv;
    ph_arena count = {0}, saved = {.base = args->saved};
    lay(&c, &count);
    PH_TRY(ph_ctx_scratch(layer->ctx, count.used, &space));
    ph_arena arena = {.base = space};
    lay(&c, &arena);
    c.kept = ph_layer_keep(layer, &saved, 1);
    make_copies(&c);
    run_products(&c, heads_step(&c));
    PH_TRY(attend(&c));
    position(&c);
    run_products(&c, first_step(&c));
    run_products(&c, next_step(&c, 0));
    run_products(&c, next_step(&c, 1));
    round_sums(&c);
    return PH_OK;
}
