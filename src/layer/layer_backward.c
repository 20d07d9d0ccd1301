/*
 * layer_backward.c - one backward call of a layer: output, attend, position, project.
 *
 *     dheads = dout wo^T    dwo = heads^T dout    dbo = sum of the rows of dout
 *     dq, dk, dv from attention and the kind, then through rotation and norm
 *     dwq = x^T dq          dx = dq wq^T (+ dk wk^T + dv wv^T where keys come from x)
 *
 * From dout to dq, dk, dv it runs slice by slice (slices.c); mostly there is one, of all
 * heads. Every intermediate has a buffer of its own.
 *
 * Padding rows are unspecified, possibly NaN: their gradients are zero, and a product
 * that sums over rows reads a copy in which they are zero.
 */
#include <string.h>

#include "layer/backward_call.h"

/* ---- workspace --------------------------------------------------------------------- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A buffer for a copy of rows if `wanted`. */
static float *layout_copy(ph_arena *arena, int wanted, int rows, int columns,
                          ph_dtype type)
{
    if (!wanted) return NULL;
    return ph_arena_take(arena, (size_t)rows * (size_t)columns * ph_dtype_size(type));
}

/* Gradients of activations are accumulated in floats, in the caller's tensor if it is
   f32. */
static float *layout_sum(ph_arena *arena, void *wanted, int rows, int columns,
                         ph_dtype type)
{
    if (!wanted || type == PH_F32) return wanted;
    return layout_copy(arena, 1, rows, columns, PH_F32);
}

static void layout_work(ph_backward_call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    ph_products steps[] = {ph_backward_dconcat(c),     ph_backward_dwo(c),
                           ph_backward_recompute_v(c), ph_backward_weights(c),
                           ph_backward_dsource(c, 0),  ph_backward_dsource(c, 1)};
    size_t work = ph_plan_workspace(l->slice ? l->slice : l->plan);
    work = larger(work, l->shape.work);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        work = larger(work, ph_gemm_bytes(l->ctx, steps[i].list, steps[i].count));
    c->work = c->kind.work = (ph_workspace){ph_arena_take(arena, work), work};
}

/* The gradient of what attention read, where that is not the projection itself. */
static float *layout_seen(ph_arena *arena, const ph_projection *proj, int rows,
                          int columns)
{
    return layout_copy(arena, proj->transformed, rows, columns, PH_F32);
}

static int slice_heads(const ph_layer *l, int heads) /* of k, v or out in a slice */
{
    return ph_max(heads * l->slice_heads / l->shape.attn.q_heads, 1);
}

/* Scratch of a slice. */
static void layout_slice(ph_backward_call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->shape.attn;
    ph_layer_slice *s = &c->slice;
    int cut = l->slice != NULL, rows = l->q_rows, n = l->slice_heads;
    int wide = slice_heads(l, l->shape.out_heads) * l->shape.out_dim;
    int given = (l->shape.twins ? n / 2 : n) * a->v_dim;
    int values = slice_heads(l, a->v_heads) * a->v_dim;
    int read = l->desc.concat && !cut && !l->shape.gate.out; /* dout is read in place */
    s->dconcat = read ? (float *)c->dout : layout_copy(arena, 1, rows, wide, PH_F32);
    s->dheads = layout_copy(arena, l->shape.makes_out, rows, given, PH_F32);
    if (!l->shape.makes_out) s->dheads = s->dconcat;
    s->out = layout_copy(arena, ph_layer_makes_out(l), rows, wide, PH_F32);
    s->v = layout_copy(arena, l->recomputes_v, l->kv_rows, values, PH_F32);
    float **lines[] = {&s->lse, &s->dlse, &s->gate, &s->dgate};
    for (int i = 0; i < 4; i++) *lines[i] = layout_copy(arena, cut, rows, n, PH_F32);
}

static void layout_kind(ph_backward_call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_attn *a = &l->attn;
    const ph_layer_args *args = c->args;
    int memory = l->desc.memory_dim > 0, n = l->slice_heads;
    ph_kind_call *k = &c->kind;
    *k = (ph_kind_call){.shape = s,
                        .ctx = l->ctx,
                        .args = args,
                        .weights = c->weights,
                        .grads = c->grads,
                        .param = c->param + l->named,
                        .dparam = c->dparam + l->named,
                        .q_heads = n,
                        .k_heads = slice_heads(l, a->k_heads),
                        .out_heads = slice_heads(l, s->out_heads),
                        .x_tokens = c->x_tokens,
                        .key_tokens = c->key_tokens,
                        .x = c->x,
                        .source = c->source,
                        .q_proj = c->saved.q,
                        .k_proj = c->saved.k,
                        .v_proj = c->saved.v,
                        .q = c->saved.q,
                        .heads_row = (int64_t)a->q_heads * a->v_dim,
                        .out = c->slice.out,
                        .dout = c->slice.dconcat,
                        .dheads = c->slice.dheads,
                        .dq_proj = c->dq,
                        .dk_proj = c->dk,
                        .dv_proj = c->dv,
                        .dx = c->dx,
                        .dsource = memory ? c->dmemory : c->dx};
    memcpy(k->saved, c->saved.kind, sizeof k->saved);
    for (int i = 0; i < PH_BUFFERS; i++) {
        k->scratch[i] = ph_arena_floats(arena, s->scratch[i]);
        k->backward_only[i] = ph_arena_floats(arena, s->backward_only[i]);
        k->slice[i] = ph_arena_floats(arena, s->slice[i] * (size_t)n);
    }
    k->dq = layout_seen(arena, &s->q, l->q_rows, n * a->qk_dim);
    k->dk = layout_seen(arena, &s->k, l->kv_rows, k->k_heads * a->qk_dim);
    k->dv = layout_seen(arena, &s->v, l->kv_rows, slice_heads(l, a->v_heads) * a->v_dim);
    size_t gates = (size_t)l->q_rows * (size_t)a->q_heads;
    if (s->makes_gate) k->gate = ph_arena_floats(arena, gates);
    if (s->makes_gate) k->dgate = ph_arena_floats(arena, gates);
    if (s->makes_gate && args->attn.gate) c->gates = ph_arena_floats(arena, gates);
}

/* Carves the scratch, or measures it. */
static void layout(ph_backward_call *c, ph_arena *arena)
{
    const ph_layer *l = c->layer;
    const ph_layer_desc *d = &l->desc;
    const ph_layer_grads *g = c->grads;
    const ph_shape *s = &l->shape;
    const int32_t *q_lens = c->x_tokens.lens, *kv_lens = c->key_tokens.lens;
    ph_dtype type = d->attn.dtype;
    int copy_dout = q_lens || type != PH_F32;
    int kind = l->kind[0] || l->kind[1];
    c->x_copy =
        layout_copy(arena, q_lens && (g->dwq || kind), l->q_rows, d->model_dim, type);
    c->source_copy = layout_copy(arena, kv_lens && (g->dwk || g->dwv || kind), l->kv_rows,
                                 s->k.in, type);
    c->dout_copy = layout_copy(arena, copy_dout, l->q_rows, l->out_cols, PH_F32);
    c->dx = layout_sum(arena, g->dx, l->q_rows, d->model_dim, type);
    c->dmemory = layout_sum(arena, g->dmemory, l->kv_rows, s->k.in, type);
    c->dq = layout_copy(arena, c->want_q, l->q_rows, ph_projection_width(&s->q), PH_F32);
    c->dk = layout_copy(arena, c->want_k, l->kv_rows, ph_projection_width(&s->k), PH_F32);
    c->dv = layout_copy(arena, c->want_v, l->kv_rows, ph_projection_width(&s->v), PH_F32);
    c->ones = ph_arena_floats(arena, (size_t)ph_max(l->q_rows, l->kv_rows));
    c->q_table =
        ph_arena_floats(arena, ph_layer_rope_floats(l, &c->x_tokens, c->args->past));
    c->kv_table = c->q_table;
    if (d->memory_dim)
        c->kv_table =
            ph_arena_floats(arena, ph_layer_rope_floats(l, &c->key_tokens, NULL));
    c->q_sums = layout_copy(arena, s->q.norm, ph_layer_chunks(l->q_rows),
                            ph_layer_gains(l, &s->q), PH_F32);
    c->k_sums = layout_copy(arena, s->k.norm, ph_layer_chunks(l->kv_rows),
                            ph_layer_gains(l, &s->k), PH_F32);
    c->x = c->x_copy ? c->x_copy : c->args->x;
    c->source = d->memory_dim ? c->args->memory : c->args->x;
    if (c->source_copy) c->source = c->source_copy;
    c->dout = c->dout_copy ? c->dout_copy : g->dout;
    layout_slice(c, arena);
    layout_kind(c, arena);
    layout_work(c, arena);
}

/* ---- the steps --------------------------------------------------------------------- */

static void run_products(const ph_backward_call *c, ph_products p)
{
    if (p.count) ph_gemm_run(c->layer->ctx, p.list, p.count, c->work);
}

static void make_copies(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    const ph_layer_args *args = c->args;
    const void *source = l->desc.memory_dim ? args->memory : args->x;
    if (c->dout_copy)
        ph_layer_copy(l->ctx, &c->x_tokens, l->out_cols, c->dout_copy, PH_F32,
                      c->grads->dout, a->dtype);
    if (c->x_copy)
        ph_layer_copy(l->ctx, &c->x_tokens, l->desc.model_dim, c->x_copy, a->dtype,
                      args->x, a->dtype);
    if (c->source_copy)
        ph_layer_copy(l->ctx, &c->key_tokens, l->shape.k.in, c->source_copy, a->dtype,
                      source, a->dtype);
    for (int i = 0; i < ph_max(l->q_rows, l->kv_rows); i++) c->ones[i] = 1;
}

/* Runs a hook of one of the kinds, if it has it. */
#define HOOK(c, i, name)                                                                 \
    do {                                                                                 \
        const ph_layer_kind *kind_ = (c)->layer->kind[i];                                \
        if (kind_ && kind_->name) kind_->name(&(c)->kind);                               \
    } while (0)

/* Sets the kind's call to the slice from head `first` on. */
static void set_slice(ph_backward_call *c, int first)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    const ph_attn *a = &l->attn;
    ph_kind_call *k = &c->kind;
    int64_t first_k = (int64_t)first * a->k_heads / a->q_heads;
    int64_t first_v = (int64_t)first * a->v_heads / a->q_heads;
    k->first = first;
    k->first_out = first * s->out_heads / a->q_heads;
    k->q = c->saved.q, k->k = c->saved.k, k->v = c->saved.v;
    if (!s->makes_q) k->q += first * a->q.head;
    if (!s->makes_kv) k->k += first_k * a->k.head;
    if (!s->makes_kv) k->v = l->recomputes_v ? c->slice.v : k->v + first_v * a->v.head;
    k->heads = c->saved.heads + (int64_t)first * a->v_dim;
    if (!s->q.transformed) k->dq = ph_float_at_out(c->dq, first * a->dq.head);
    if (!s->k.transformed) k->dk = ph_float_at_out(c->dk, first_k * a->dk.head);
    if (!s->v.transformed) k->dv = ph_float_at_out(c->dv, first_v * a->dv.head);
}

/* dconcat and dwo of the slice; `after` is recomputed where wo reads its result. */
static void output(ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_shape *s = &l->shape;
    ph_kind_call *k = &c->kind;
    int wide = s->out_heads * s->out_dim, n = k->out_heads * s->out_dim;
    run_products(c, ph_backward_dconcat(c));
    if (l->desc.concat && c->slice.dconcat != c->dout)
        ph_layer_columns(l->ctx, l->q_rows, c->dout, wide, k->first_out * s->out_dim, n,
                         c->slice.dconcat);
    if (s->makes_out) HOOK(c, 0, after);
    HOOK(c, 1, after_backward);
    run_products(c, ph_backward_dwo(c));
    if (s->makes_out) HOOK(c, 0, after_backward);
}

static ph_status attend(ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_grads *g = c->grads;
    ph_kind_call *k = &c->kind;
    int given = l->named + l->shape.params;
    for (int e = l->shape.makes_extras; ph_plan_extra(l->plan, e); e++, given++)
        k->extra[e] = c->param[given], k->dextra[e] = c->dparam[given];
    ph_args a = c->args->attn;
    a.q = k->q, a.k = k->k, a.v = k->v;
    a.out = (float *)k->heads, a.lse = c->saved.lse, a.look = NULL;
    a.workspace = c->work.data, a.workspace_size = c->work.size;
    a.extra = k->extra;
    if (k->gate) a.gate = c->gates ? c->gates : k->gate;
    float *dgate = k->gate ? k->dgate : g->dgate;
    ph_grads out = {.dout = k->dheads,
                    .dlse = g->dlse,
                    .dq = k->dq,
                    .dk = k->dk,
                    .dv = k->dv,
                    .dbias = g->dbias,
                    .dgate = dgate,
                    .dsink = g->dsink,
                    .drelative = g->drelative,
                    .dextra = k->dextra};
    ph_layer_slice_args(l, k->first, &c->slice, &a, &out);
    const float *twin = l->shape.twins ? k->twin + k->first / 2 : NULL;
    PH_TRY(ph_backward_twins(l->slice ? l->slice : l->plan, &a, &out, twin));
    ph_layer_slice_gates(l, k->first, &c->slice, dgate);
    return PH_OK;
}

/* Attention's own checks before anything is written, with the caller's arguments and the
   buffers it will get from here. */
static ph_status check_attend(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_layer_grads *g = c->grads;
    int given = l->named + l->shape.params, made = l->shape.makes_extras;
    const float *extra[PH_EXTRAS_MAX];
    float *dextra[PH_EXTRAS_MAX];
    ph_args a = c->args->attn;
    for (int e = 0; ph_plan_extra(l->plan, e); e++) {
        extra[e] = e < made ? c->saved.q : c->param[given + e - made];
        dextra[e] = e < made ? NULL : c->dparam[given + e - made];
    }
    a.q = a.k = a.v = a.out = c->saved.q, a.lse = c->saved.lse, a.look = NULL;
    a.extra = extra;
    ph_grads out = {.dout = c->saved.q,
                    .dbias = g->dbias,
                    .dgate = g->dgate,
                    .dsink = g->dsink,
                    .drelative = g->drelative,
                    .dextra = dextra};
    return ph_check_backward(l->plan, &a, &out);
}

/* From dout to dq, dk, dv of the projections. A router computes its gates, and their
   gradients, for all heads at once. */
static ph_status go_backward(ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    ph_kind_call *k = &c->kind;
    const float *given = c->args->attn.gate;
    int routes = l->shape.routes;
    set_slice(c, 0);
    if (routes) HOOK(c, 0, before);
    HOOK(c, 1, before);
    if (c->gates) ph_layer_multiply_gates(l, k->gate, given, c->gates);
    for (int first = 0; first < l->shape.attn.q_heads; first += l->slice_heads) {
        set_slice(c, first);
        output(c);
        run_products(c, ph_backward_recompute_v(c));
        if (!routes) HOOK(c, 0, before);
        PH_TRY(attend(c));
        if (!routes) HOOK(c, 0, before_backward);
    }
    set_slice(c, 0);
    if (c->gates)
        ph_layer_multiply_gates_backward(l, k->gate, given, k->dgate, c->grads->dgate);
    HOOK(c, 1, before_backward);
    if (routes) HOOK(c, 0, before_backward);
    return PH_OK;
}

/* Backward of rotation and norm of one projection. */
static void position_projection(const ph_backward_call *c, ph_position_args args,
                                float *dgain)
{
    const ph_projection *proj = args.proj;
    args.layer = c->layer;
    if (proj->gain >= 0) {
        args.gain = c->kind.param[proj->gain];
        dgain = c->kind.dparam[proj->gain];
    }
    if (args.x && (proj->norm || proj->angles)) ph_layer_position_backward(&args, dgain);
}

static void position(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_tokens *x = &c->x_tokens, *keys = &c->key_tokens;
    ph_rope_table q_rope = ph_layer_rope_table(l, x, c->args->past, c->q_table);
    ph_rope_table k_rope = q_rope;
    if (l->desc.memory_dim) k_rope = ph_layer_rope_table(l, keys, NULL, c->kv_table);
    position_projection(c,
                        (ph_position_args){.proj = &l->shape.q,
                                           .tokens = x,
                                           .rope = q_rope,
                                           .gain = c->weights->q_norm,
                                           .raw = c->saved.q_raw,
                                           .x = c->dq,
                                           .sums = c->q_sums},
                        c->grads->dq_norm);
    position_projection(c,
                        (ph_position_args){.proj = &l->shape.k,
                                           .tokens = keys,
                                           .rope = k_rope,
                                           .gain = c->weights->k_norm,
                                           .raw = c->saved.k_raw,
                                           .x = c->dk,
                                           .sums = c->k_sums},
                        c->grads->dk_norm);
}

/* Where q is not projected from x itself, dx starts from zero. */
static void clear_dx(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    size_t count = (size_t)l->q_rows * (size_t)l->desc.model_dim;
    if (l->shape.q.from >= 0 && c->dx && count) memset(c->dx, 0, count * sizeof *c->dx);
}

/* dx and dmemory into the caller's type */
static void round_sums(const ph_backward_call *c)
{
    const ph_layer *l = c->layer;
    const ph_attn *a = &l->desc.attn;
    ph_tokens x = c->x_tokens, keys = c->key_tokens;
    x.lens = keys.lens = NULL; /* gradients of padding are zero already */
    if (c->dx && c->dx != c->grads->dx)
        ph_layer_copy(l->ctx, &x, l->desc.model_dim, c->grads->dx, a->dtype, c->dx,
                      PH_F32);
    if (c->dmemory && c->dmemory != c->grads->dmemory)
        ph_layer_copy(l->ctx, &keys, l->shape.k.in, c->grads->dmemory, a->dtype,
                      c->dmemory, PH_F32);
}

/* ---- the call ---------------------------------------------------------------------- */

static ph_status backward(const ph_layer *layer, const ph_layer_weights *weights,
                          const ph_layer_args *args, const ph_layer_grads *grads)
{
    void *space;
    PH_TRY(ph_layer_check_grads(layer, weights, args, grads));
    PH_TRY(ph_layer_check_grads_alias(layer, weights, args, grads));
    ph_backward_call c = {
        .layer = layer, .weights = weights, .args = args, .grads = grads};
    c.x_tokens = ph_layer_x_tokens(layer, args);
    c.key_tokens = ph_layer_key_tokens(layer, args);
    ph_layer_list(layer, weights, c.param);
    ph_layer_list_grads(layer, grads, c.dparam);
    const void *from_keys = layer->desc.memory_dim ? grads->dmemory : grads->dx;
    int kind = layer->kind[0] || layer->kind[1]; /* may need all three */
    c.want_q = kind || grads->dx || grads->dwq || grads->dbq || grads->dq_norm;
    c.want_k = kind || from_keys || grads->dwk || grads->dbk || grads->dk_norm;
    c.want_v = kind || from_keys || grads->dwv || grads->dbv;
    ph_arena count = {0}, saved = ph_arena_of(args->saved, ph_layer_saved(layer));
    c.saved = ph_layer_take_activations(layer, &saved, 1);
    PH_TRY(check_attend(&c));
    layout(&c, &count);
    PH_TRY(ph_ctx_scratch(layer->ctx, count.used, &space));
    ph_arena arena = ph_arena_of(space, count.used);
    layout(&c, &arena);
    make_copies(&c);
    for (int i = 0; i < PH_KINDS; i++) HOOK(&c, i, recompute);
    PH_TRY(go_backward(&c));
    position(&c);
    clear_dx(&c);
    run_products(&c, ph_backward_weights(&c));
    run_products(&c, ph_backward_dsource(&c, 0));
    run_products(&c, ph_backward_dsource(&c, 1));
    for (int i = 0; i < PH_KINDS; i++) HOOK(&c, i, project_backward);
    round_sums(&c);
    return PH_OK;
}

ph_status ph_layer_backward(const ph_layer *layer, const ph_layer_weights *weights,
                            const ph_layer_args *args, const ph_layer_grads *grads)
{
    if (!layer) return PH_BAD_ARGUMENT;
    return PH_WITHIN(layer->ctx, backward(layer, weights, args, grads));
}
