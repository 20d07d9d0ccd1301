/*
 * slices.c - the backward pass of attention for a few heads of a layer at a time.
 *
 * Heads are independent in attention, so gradients can be computed for a few of them at a
 * time: the inputs and outputs of attention and all their gradients are in buffers that
 * the next slice reuses; v is not saved by the forward call but recomputed, which costs
 * one product. The order of every sum is the same, so the bits do not depend on slices.
 */
#include <string.h>

#include "layer/layer.h"

/* ---- the plan ---------------------------------------------------------------------- */

/* A packed tensor with one entry per (batch row, head) has no strides to select a slice,
   and a gradient that is summed over heads cannot be computed slice by slice. */
static int can_cut(const ph_broadcast *b, int heads, int summed)
{
    return b->heads == 0 || (b->heads == 1 && !summed) ||
           (b->heads == heads && b->batch == 1);
}

static int is_wanted(const ph_layer *l)
{
    const ph_attn *a = &l->attn;
    int wanted = a->backward && l->shape.wants_slices && !ph_plan_is_joint(l->plan);
    for (int i = 0; i < PH_KINDS; i++) wanted &= !l->kind[i] || l->kind[i]->by_heads;
    return wanted && a->dropout == 0 && can_cut(&a->bias, a->q_heads, 1) &&
           can_cut(&a->visible, a->q_heads, 0) && ph_shape_is_long(&l->shape);
}

/* Heads of a slice: the smallest number that shares no k, v or columns of out with
   others. */
static int slice_size(const ph_layer *l)
{
    int unit = l->plan->cluster;
    while (unit % (l->attn.q_heads / l->shape.out_heads)) unit *= 2;
    return unit;
}

static ph_strides side_by_side(int len, int heads, int dim)
{
    return (ph_strides){(int64_t)len * heads * dim, dim, (int64_t)heads * dim};
}

/* The plan of n heads: that of all heads, but for buffers that hold the slice only. */
static ph_attn cut_attn(const ph_layer *l, int n)
{
    const ph_shape *s = &l->shape;
    ph_attn a = l->attn;
    int all = a.q_heads;
    a.q_heads = n;
    a.k_heads = ph_max(a.k_heads * n / all, 1);
    a.v_heads = ph_max(a.v_heads * n / all, 1);
    if (s->makes_q) a.q = side_by_side(a.q_len, n, a.qk_dim);
    if (s->makes_kv) a.k = side_by_side(a.kv_len, a.k_heads, a.qk_dim);
    if (s->makes_kv) a.v = side_by_side(a.kv_len, a.v_heads, a.v_dim);
    if (l->recomputes_v) a.v = side_by_side(a.kv_len, a.v_heads, a.v_dim);
    if (s->q.transformed) a.dq = side_by_side(a.q_len, n, a.qk_dim);
    if (s->k.transformed) a.dk = side_by_side(a.kv_len, a.k_heads, a.qk_dim);
    if (s->v.transformed) a.dv = side_by_side(a.kv_len, a.v_heads, a.v_dim);
    if (a.bias.heads == all) a.bias.heads = n;
    if (a.visible.heads == all) a.visible.heads = n;
    return a;
}

/* The gradients of the n heads of a token are contiguous. */
static ph_backward_layout backward_layout(const ph_layer *l, int n, int lean)
{
    int twins = l->shape.twins;
    ph_strides dout = side_by_side(l->attn.q_len, twins ? n / 2 : n, l->attn.v_dim);
    if (l->attn.ragged) dout.batch = 0;
    return (ph_backward_layout){.dout = dout, .lean = lean, .twins = twins};
}

/* A ragged tensor has no batch axis. */
static void drop_batch_axes(ph_attn *a)
{
    if (a->ragged) a->q.batch = a->out.batch = a->dq.batch = 0;
    if (a->ragged == PH_RAGGED_ALL)
        a->k.batch = a->v.batch = a->dk.batch = a->dv.batch = 0;
}

ph_status ph_layer_plans(ph_layer *l)
{
    drop_batch_axes(&l->attn);
    ph_attn whole = l->attn;
    ph_backward_layout together = backward_layout(l, whole.q_heads, 0);
    PH_TRY(ph_plan_make(&l->plan, l->ctx, &whole, &together));
    int n = l->slice_heads = whole.q_heads;
    if (is_wanted(l)) n = slice_size(l);
    if (n == whole.q_heads) return PH_OK;
    const ph_projection *v = &l->shape.v;
    l->recomputes_v = v->heads && v->w < 0 && !v->pad && !v->tail && !l->shape.makes_kv;
    ph_attn cut = cut_attn(l, n);
    drop_batch_axes(&cut);
    ph_backward_layout apart = backward_layout(l, n, 1);
    PH_TRY(ph_plan_make(&l->slice, l->ctx, &cut, &apart));
    ph_plan_free(l->plan); /* the plan of all heads is for the forward pass only */
    l->plan = NULL;
    whole.backward = 0;
    l->slice_heads = n;
    return ph_plan_create(&l->plan, l->ctx, &whole);
}

/* ---- arguments --------------------------------------------------------------------- */

/* Rows of (batch, q_heads, q_len) that belong to a slice, into it or out of it. */
static void copy_rows(const ph_layer *l, int first, float *slice, float *whole, int out)
{
    const ph_attn *a = &l->shape.attn;
    int line = ph_line_tokens(a), lines = a->ragged ? 1 : a->batch;
    size_t rows = (size_t)l->slice_heads * (size_t)line;
    for (int b = 0; b < lines && rows; b++) {
        float *mine = slice + (size_t)b * rows;
        float *all = whole + ((int64_t)b * a->q_heads + first) * line;
        memcpy(out ? all : mine, out ? mine : all, rows * sizeof *mine);
    }
}

static float *gather(const ph_layer *l, int first, float *slice, const float *whole)
{
    if (!whole) return NULL;
    copy_rows(l, first, slice, (float *)whole, 0);
    return slice;
}

void ph_layer_slice_args(const ph_layer *l, int first, const ph_layer_slice *s,
                         ph_args *args, ph_grads *grads)
{
    const ph_attn *a = &l->shape.attn;
    int64_t lines = 2 * (int64_t)a->reach + 1;
    int64_t bias = a->bias.heads > 1 ? (int64_t)a->bias.q_len * a->kv_len * first : 0;
    int64_t seen =
        a->visible.heads > 1 ? (int64_t)a->visible.q_len * a->kv_len * first : 0;
    if (!l->slice) return;
    args->lse = gather(l, first, s->lse, args->lse);
    grads->dlse = gather(l, first, s->dlse, grads->dlse);
    if (args->bias) args->bias += bias;
    if (args->visible) args->visible += seen;
    if (args->sink) args->sink += first;
    if (args->alibi) args->alibi += first;
    if (args->relative) args->relative += lines * first;
    if (grads->dbias) grads->dbias += bias;
    if (grads->dsink) grads->dsink += first;
    if (grads->drelative) grads->drelative += lines * first;
    if (a->gate == PH_GATE_ROW) {
        args->gate = gather(l, first, s->gate, args->gate);
        if (grads->dgate) grads->dgate = s->dgate;
    } else {
        if (args->gate) args->gate += first;
        if (grads->dgate) grads->dgate += first;
    }
}

void ph_layer_slice_gates(const ph_layer *l, int first, const ph_layer_slice *s,
                          float *dgate)
{
    if (l->slice && dgate && l->shape.attn.gate == PH_GATE_ROW)
        copy_rows(l, first, s->dgate, dgate, 1);
}

ph_gemm ph_layer_slice_v(const ph_layer *l, int first, const ph_layer_weights *w,
                         const void *source, float *v)
{
    const ph_attn *a = &l->shape.attn;
    int head = first * a->v_heads / a->q_heads;
    int heads = ph_max(a->v_heads * l->slice_heads / a->q_heads, 1);
    ph_projection proj = ph_projection_heads(&l->shape.v, head, heads);
    return ph_projection_product(&proj, w->wv,
                                 ph_float_at(w->bv, (int64_t)head * proj.dim), l->kv_rows,
                                 source, l->desc.attn.dtype, v);
}

/* ---- columns ----------------------------------------------------------------------- */

typedef struct columns_job {
    const float *from;
    float *to;
    int rows, all, count;
} columns_job;

enum { CHUNK = 32 }; /* rows of one item */

static void columns_item(void *arg, int lane, int index)
{
    const columns_job *j = arg;
    int end = ph_min((index + 1) * CHUNK, j->rows);
    (void)lane;
    for (int row = index * CHUNK; row < end; row++)
        memcpy(j->to + (int64_t)row * j->count, j->from + (int64_t)row * j->all,
               (size_t)j->count * sizeof *j->to);
}

void ph_layer_columns(ph_ctx *ctx, int rows, const float *from, int all, int first,
                      int count, float *to)
{
    columns_job j = {from + first, to, rows, all, count};
    ph_ctx_run(ctx, ph_div_up(rows, CHUNK), columns_item, &j);
}
