/*
 * layer_backward.c - one backward call of a layer: output, attend, position, project.
 *
 *     dheads = dout wo^T    dwo = heads^T dout    dbo = sum of the rows of dout
 *     dq, dk, dv from attention and the kind, then back through rotation and norm
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
    const float *param[PH_LAYER_PARAMS];
    float *dparam[PH_LAYER_PARAMS];
    ph_layer_kept kept;
    ph_kind_call kind;
    int want_q, want_k, want_v; /* whether anything needs dq, dk, dv */
    const void *x, *source; /* x and where keys come from, with zeros beyond lengths */
    const float *dout;      /* as floats, with zeros beyond lengths */
    float *x_copy, *source_copy, *dout_copy;
    const float *dwide;  /* gradient of what wo multiplies ... */
    float *dwide_own;    /* ... in scratch, or dout itself */
    const float *dheads; /* gradient of what attention gave */
    float *dq, *dk, *dv; /* of the parts */
    float *dx, *dmemory; /* as floats */
    float *ones;         /* (q_rows or kv_rows, the larger) */
    float *q_table, *kv_table, *q_sums, *k_sums;
    float *gates; /* the kind's and the caller's together */
    void *work;   /* for one product or attention at a time */
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

static const float *matrix_of(const call *c, const ph_part *part, const float *named)
{
    return part->w < 0 ? named : c->kind.param[part->w];
}

static float *gradient_of(const call *c, const ph_part *part, float *named)
{
    return part->w < 0 ? named : c->kind.dparam[part->w];
}

static products heads_step(const call *c)
{
    const ph_layer *l = c->layer;
    products p = {.count = 0};
    add_product(&p, !l->desc.concat,
                ph_layer_product_dx(&l->out, c->weights->wo, l->q_rows, c->dout,
                                    c->dwide_own, 0));
    return p;
}

static void add_weights(const call *c, products *p)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_args *lens = &c->args->attn;
    ph_dtype type = l->desc.attn.dtype;
    int one_source =
        !l->desc.memory_dim && !lens->q_lens && !lens->kv_lens && s->q.from < 0;
    float *dwq = gradient_of(c, &s->q, c->grads->dwq);
    float *dwk = gradient_of(c, &s->k, c->grads->dwk);
    float *dwv = gradient_of(c, &s->v, c->grads->dwv), *dwo = c->grads->dwo;
    ph_gemm q = ph_layer_product_dw(&s->q, l->q_rows, c->x, type, c->dq, dwq);
    if (s->q.from >= 0) q.a = c->kept.kind[s->q.from], q.a_type = PH_F32;
    ph_gemm k = ph_layer_product_dw(&s->k, l->kv_rows, c->source, type, c->dk, dwk);
    ph_gemm v = ph_layer_product_dw(&s->v, l->kv_rows, c->source, type, c->dv, dwv);
    k.same_a = dwq && one_source;
    v.same_a = dwk || k.same_a;
    add_product(p, dwq != NULL, q);
    add_product(p, dwk != NULL, k);
    add_product(p, dwv != NULL, v);
    add_product(
        p, dwo != NULL,
        ph_layer_product_dw(&l->out, l->q_rows, c->kept.out, PH_F32, c->dout, dwo));
}

/* All gradients of parameters, and what q gives to dx. */
static products first_step(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_layer_grads *g = c->grads;
    const float *wq = matrix_of(c, &s->q, c->weights->wq);
    products p = {.count = 0};
    add_weights(c, &p);
    float *to = s->q.from < 0 ? c->dx : c->kind.back[s->q.from];
    add_product(&p, g->dx != NULL || s->q.from >= 0,
                ph_layer_product_dx(&s->q, wq, l->q_rows, c->dq, to, 0));
    add_product(&p, g->dbq != NULL,
                ph_layer_sum(&s->q, l->q_rows, c->ones, c->dq, g->dbq));
    add_product(&p, g->dbk != NULL,
                ph_layer_sum(&s->k, l->kv_rows, c->ones, c->dk, g->dbk));
    add_product(&p, g->dbv != NULL,
                ph_layer_sum(&s->v, l->kv_rows, c->ones, c->dv, g->dbv));
    add_product(&p, g->dbo != NULL,
                ph_layer_sum(&l->out, l->q_rows, c->ones, c->dout, g->dbo));
    return p;
}

/* What k (second) and v (third) give to dmemory, or add to dx. */
static products next_step(const call *c, int third)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    int memory = l->desc.memory_dim > 0;
    float *to = memory ? c->dmemory : c->dx;
    const float *wk = matrix_of(c, &s->k, c->weights->wk);
    const float *wv = matrix_of(c, &s->v, c->weights->wv);
    products p = {.count = 0};
    int wanted = (memory ? c->grads->dmemory : c->grads->dx) != NULL;
    if (third)
        add_product(&p, wanted && s->v.heads,
                    ph_layer_product_dx(&s->v, wv, l->kv_rows, c->dv, to, 1));
    else
        add_product(&p, wanted,
                    ph_layer_product_dx(&s->k, wk, l->kv_rows, c->dk, to, !memory));
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
    size_t work = larger(ph_plan_workspace(l->plan), l->shape.work);
    for (int i = 0; i < 4; i++)
        work = larger(work, ph_gemm_bytes(l->ctx, steps[i].list, steps[i].count));
    c->work = c->kind.work = ph_arena_take(arena, work);
}

/* The gradient of what attention saw: that of the part, unless they stand apart. */
static float *lay_seen(ph_arena *arena, const ph_part *part, float *own, int rows,
                       int heads, int dim)
{
    return part->apart ? lay_copy(arena, 1, rows, heads * dim, PH_F32) : own;
}

static void lay_kind(call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_attn *a = &s->attn;
    const ph_layer_args *args = c->args;
    int memory = l->desc.memory_dim > 0;
    ph_kind_call *k = &c->kind;
    *k = (ph_kind_call){.shape = s,
                        .ctx = l->ctx,
                        .args = args,
                        .weights = c->weights,
                        .grads = c->grads,
                        .param = c->param + l->named,
                        .dparam = c->dparam + l->named,
                        .q_rows = l->q_rows,
                        .kv_rows = l->kv_rows,
                        .kv_len = l->kv_len,
                        .q_lens = args->attn.q_lens,
                        .kv_lens = args->attn.kv_lens,
                        .x = c->x,
                        .source = c->source,
                        .q_part = c->kept.q,
                        .k_part = c->kept.k,
                        .v_part = c->kept.v,
                        .q = c->kept.q,
                        .k = c->kept.k,
                        .v = c->kept.v,
                        .heads = c->kept.heads,
                        .out = c->kept.out,
                        .dout = c->dwide,
                        .dq_part = c->dq,
                        .dk_part = c->dk,
                        .dv_part = c->dv,
                        .dx = c->dx,
                        .dsource = memory ? c->dmemory : c->dx};
    memcpy(k->kept, c->kept.kind, sizeof k->kept);
    for (int i = 0; i < PH_PIECES; i++) k->spare[i] = ph_arena_floats(arena, s->spare[i]);
    for (int i = 0; i < PH_PIECES; i++) k->back[i] = ph_arena_floats(arena, s->back[i]);
    k->dq = lay_seen(arena, &s->q, c->dq, l->q_rows, a->q_heads, a->qk_dim);
    k->dk = lay_seen(arena, &s->k, c->dk, l->kv_rows, a->k_heads, a->qk_dim);
    k->dv = lay_seen(arena, &s->v, c->dv, l->kv_rows, a->v_heads, a->v_dim);
    if (s->makes_out)
        k->dheads = lay_copy(arena, 1, l->q_rows, a->q_heads * a->v_dim, PH_F32);
    c->dheads = k->dheads ? k->dheads : c->dwide;
    size_t gates = (size_t)l->q_rows * (size_t)a->q_heads;
    if (s->makes_gate) k->gate = ph_arena_floats(arena, gates);
    if (s->makes_gate) k->dgate = ph_arena_floats(arena, gates);
    if (s->makes_gate && args->attn.gate) c->gates = ph_arena_floats(arena, gates);
}

/* Carves the scratch, or measures it. */
static void lay(call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_layer_desc *d = &l->desc;
    const ph_layer_grads *g = c->grads;
    const ph_shape *s = &l->shape;
    const int32_t *q_lens = c->args->attn.q_lens, *kv_lens = c->args->attn.kv_lens;
    ph_dtype type = d->attn.dtype;
    int copy_dout = q_lens || type != PH_F32;
    c->x_copy =
        lay_copy(arena, q_lens && (g->dwq || l->kind), l->q_rows, d->model_dim, type);
    c->source_copy = lay_copy(arena, kv_lens && (g->dwk || g->dwv || l->kind), l->kv_rows,
                              s->k.in, type);
    c->dout_copy = lay_copy(arena, copy_dout, l->q_rows, l->out_cols, PH_F32);
    c->dwide_own = lay_copy(arena, !d->concat, l->q_rows, l->out.in, PH_F32);
    c->dq = lay_copy(arena, c->want_q, l->q_rows, ph_part_width(&s->q), PH_F32);
    c->dk = lay_copy(arena, c->want_k, l->kv_rows, ph_part_width(&s->k), PH_F32);
    c->dv = lay_copy(arena, c->want_v, l->kv_rows, ph_part_width(&s->v), PH_F32);
    c->dx = lay_sum(arena, g->dx, l->q_rows, d->model_dim, type);
    c->dmemory = lay_sum(arena, g->dmemory, l->kv_rows, s->k.in, type);
    c->ones = ph_arena_floats(arena, (size_t)ph_max(l->q_rows, l->kv_rows));
    c->q_table = ph_arena_floats(arena, ph_layer_table(l, d->attn.q_len, c->args->past));
    c->kv_table = c->q_table;
    if (d->memory_dim)
        c->kv_table = ph_arena_floats(arena, ph_layer_table(l, l->kv_len, NULL));
    c->q_sums = lay_copy(arena, s->q.norm, ph_layer_chunks(l, d->attn.q_len),
                         ph_layer_gains(l, &s->q), PH_F32);
    c->k_sums = lay_copy(arena, s->k.norm, ph_layer_chunks(l, l->kv_len),
                         ph_layer_gains(l, &s->k), PH_F32);
    c->x = c->x_copy ? c->x_copy : c->args->x;
    c->source = d->memory_dim ? c->args->memory : c->args->x;
    if (c->source_copy) c->source = c->source_copy;
    c->dout = c->dout_copy ? c->dout_copy : g->dout;
    c->dwide = d->concat ? c->dout : c->dwide_own;
    lay_kind(c, arena);
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
    ph_layer_rows x = {a->batch, a->q_len, l->desc.model_dim, q_lens};
    ph_layer_rows keys = {a->batch, l->kv_len, l->shape.k.in, kv_lens};
    if (c->dout_copy)
        ph_layer_copy(l->ctx, out, c->dout_copy, PH_F32, c->grads->dout, a->dtype);
    if (c->x_copy) ph_layer_copy(l->ctx, x, c->x_copy, a->dtype, args->x, a->dtype);
    if (c->source_copy)
        ph_layer_copy(l->ctx, keys, c->source_copy, a->dtype, source, a->dtype);
    for (int i = 0; i < ph_max(l->q_rows, l->kv_rows); i++) c->ones[i] = 1;
}

static ph_status attend(call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_grads *g = c->grads;
    ph_kind_call *k = &c->kind;
    int given = l->named + l->shape.params;
    if (l->kind && l->kind->before) l->kind->before(k);
    for (int e = l->shape.makes_extras; ph_plan_extra(l->plan, e); e++, given++)
        k->extra[e] = c->param[given], k->dextra[e] = c->dparam[given];
    ph_args a = c->args->attn;
    a.q = k->q, a.k = k->k, a.v = k->v;
    a.out = c->kept.heads, a.lse = c->kept.lse, a.workspace = c->work, a.look = NULL;
    a.extra = k->extra;
    const float *gate = a.gate;
    if (c->gates) ph_layer_join_gates(l, k->gate, gate, c->gates);
    if (k->gate) a.gate = c->gates ? c->gates : k->gate;
    ph_grads out = {.dout = c->dheads,
                    .dlse = g->dlse,
                    .dq = k->dq,
                    .dk = k->dk,
                    .dv = k->dv,
                    .dbias = g->dbias,
                    .dgate = k->gate ? k->dgate : g->dgate,
                    .dsink = g->dsink,
                    .drelative = g->drelative,
                    .dextra = k->dextra};
    PH_TRY(ph_backward(l->plan, &a, &out));
    if (c->gates) ph_layer_part_gates(l, k->gate, gate, k->dgate, g->dgate);
    if (l->kind && l->kind->before_back) l->kind->before_back(k);
    return PH_OK;
}

/* Rotation and norm of one part, back. */
static void position_part(const call *c, ph_layer_side side, float *dgain)
{
    const ph_part *part = side.part;
    side.layer = c->layer;
    if (part->gain >= 0) {
        side.gain = c->kind.param[part->gain];
        dgain = c->kind.dparam[part->gain];
    }
    if (side.x && (part->norm || part->angles)) ph_layer_unposition(&side, dgain);
}

static void position(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_kind_call *k = &c->kind;
    int q_len = l->desc.attn.q_len;
    ph_layer_turns q_turns = ph_layer_turn(l, q_len, c->args->past, c->q_table);
    ph_layer_turns k_turns = q_turns;
    if (l->desc.memory_dim) k_turns = ph_layer_turn(l, l->kv_len, NULL, c->kv_table);
    position_part(c,
                  (ph_layer_side){.part = &l->shape.q,
                                  .len = q_len,
                                  .lens = k->q_lens,
                                  .turns = q_turns,
                                  .gain = c->weights->q_norm,
                                  .raw = c->kept.q_raw,
                                  .x = c->dq,
                                  .sums = c->q_sums},
                  c->grads->dq_norm);
    position_part(c,
                  (ph_layer_side){.part = &l->shape.k,
                                  .len = l->kv_len,
                                  .lens = k->kv_lens,
                                  .turns = k_turns,
                                  .gain = c->weights->k_norm,
                                  .raw = c->kept.k_raw,
                                  .x = c->dk,
                                  .sums = c->k_sums},
                  c->grads->dk_norm);
}

/* Where q is not made of x itself, dx starts from nothing. */
static void clear_dx(const call *c)
{
    const ph_layer *l = c->layer;
    size_t count = (size_t)l->q_rows * (size_t)l->desc.model_dim;
    if (l->shape.q.from >= 0 && c->dx && count) memset(c->dx, 0, count * sizeof *c->dx);
}

/* dx and dmemory into the caller's type */
static void round_sums(const call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    ph_layer_rows x = {.batch = a->batch, .len = a->q_len, .columns = l->desc.model_dim};
    ph_layer_rows keys = {.batch = a->batch, .len = l->kv_len, .columns = l->shape.k.in};
    if (c->dx && c->dx != c->grads->dx)
        ph_layer_copy(l->ctx, x, c->grads->dx, a->dtype, c->dx, PH_F32);
    if (c->dmemory && c->dmemory != c->grads->dmemory)
        ph_layer_copy(l->ctx, keys, c->grads->dmemory, a->dtype, c->dmemory, PH_F32);
}

/* ---- the call ---------------------------------------------------------------------- */

static ph_status unwanted(const ph_layer *l, const char *name)
{
    return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                   "d%s is wanted but the layer has no %s, expected NULL", name, name);
}

/* A parameter that was not given has no gradient. */
static ph_status check_parameters(const ph_layer *l, const ph_layer_weights *w,
                                  const ph_layer_grads *g)
{
    const float *param[PH_LAYER_PARAMS];
    float *dparam[PH_LAYER_PARAMS];
    ph_layer_list(l, w, param);
    ph_layer_list_grads(l, g, dparam);
    for (int i = 0; i < l->params; i++)
        if (dparam[i] && !param[i]) return unwanted(l, l->param[i].name);
    const struct {
        const char *name;
        const void *gradient, *tensor;
    } fields[] = {{"wo", g->dwo, w->wo},
                  {"bo", g->dbo, w->bo},
                  {"q_norm", g->dq_norm, w->q_norm},
                  {"k_norm", g->dk_norm, w->k_norm}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].gradient && !fields[i].tensor) return unwanted(l, fields[i].name);
    return PH_OK;
}

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
    PH_TRY(check_parameters(l, w, g));
    const struct {
        const char *name;
        const void *gradient;
        int there;
    } wanted[] = {{"memory", g->dmemory, l->desc.memory_dim > 0},
                  {"bias", g->dbias, args->attn.bias != NULL},
                  {"gate", g->dgate, args->attn.gate != NULL},
                  {"sink", g->dsink, args->attn.sink != NULL},
                  {"relative", g->drelative, args->attn.relative != NULL}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i].gradient && !wanted[i].there) return unwanted(l, wanted[i].name);
    return PH_OK;
}

ph_status ph_layer_backward(const ph_layer *layer, const ph_layer_weights *weights,
                            const ph_layer_args *args, const ph_layer_grads *grads)
{
    void *space;
    if (!layer) return PH_BAD_ARGUMENT;
    PH_TRY(check(layer, weights, args, grads));
    call c = {.layer = layer, .weights = weights, .args = args, .grads = grads};
    ph_layer_list(layer, weights, c.param);
    ph_layer_list_grads(layer, grads, c.dparam);
    const void *from_keys = layer->desc.memory_dim ? grads->dmemory : grads->dx;
    int kind = layer->kind != NULL; /* its gradients may need all three */
    c.want_q = kind || grads->dx || grads->dwq || grads->dbq || grads->dq_norm;
    c.want_k = kind || from_keys || grads->dwk || grads->dbk || grads->dk_norm;
    c.want_v = kind || from_keys || grads->dwv || grads->dbv;
    ph_arena count = {0}, saved = {.base = args->saved};
    c.kept = ph_layer_keep(layer, &saved, 1);
    lay(&c, &count);
    PH_TRY(ph_ctx_scratch(layer->ctx, count.used, &space));
    ph_arena arena = {.base = space};
    lay(&c, &arena);
    make_copies(&c);
    run_products(&c, heads_step(&c));
    if (layer->shape.makes_out) layer->kind->after_back(&c.kind);
    PH_TRY(attend(&c));
    position(&c);
    clear_dx(&c);
    run_products(&c, first_step(&c));
    run_products(&c, next_step(&c, 0));
    run_products(&c, next_step(&c, 1));
    if (layer->kind && layer->kind->project_back) layer->kind->project_back(&c.kind);
    round_sums(&c);
    return PH_OK;
}
