/*
 * head.c - a head of few keys, by one kernel for each direction.
 */
#include "attn/head.h"

#include <string.h>

#include "attn/stream.h"

enum { FAR = 1 << 20 }; /* beyond any key and row of a head */

static int is_short(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    return a->dtype == PH_F32 && plan->group == 1 && a->kv_len <= PH_BLOCK &&
           a->qk_dim == plan->k_pad && a->v_dim == plan->v_pad && !plan->drop_limit &&
           a->softcap == 0;
}

size_t ph_head_forward_room(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    if (!is_short(plan) || a->q_len <= plan->kernels->few) return 0;
    return ph_head_floats(a->qk_dim, a->v_dim, 0);
}

size_t ph_head_backward_room(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    if (!is_short(plan) || a->q_len > PH_BLOCK || plan->cluster > 1) return 0;
    return ph_head_floats(a->qk_dim, a->v_dim, a->q_len);
}

static int is_plain(const ph_call *call)
{
    const ph_args *args = call->args;
    return !args->bias && !args->visible && !args->relative && !args->alibi &&
           !args->gate && !args->sink && !call->twin;
}

static int within(int64_t x)
{
    return x < -FAR ? -FAR : x > FAR ? FAR : (int)x;
}

/* What row `first` sees; the next one sees one further. */
static void set_interval(const ph_call *call, const ph_extent *extent, int first,
                         ph_head *h)
{
    const ph_attn *a = call->attn;
    int64_t position = first + extent->offset;
    int left = a->mask == PH_MASK_BAND ? a->band_left : -1;
    int right = a->mask == PH_MASK_BAND ? a->band_right : -1;
    if (a->mask == PH_MASK_CAUSAL) right = 0;
    h->lo = left >= 0 ? within(position - left) : -FAR;
    h->hi = right >= 0 ? within(position + right + 1) : FAR;
}

static int hides(const ph_head *h)
{
    return h->lo + h->rows - 1 > 0 || h->hi < h->keys;
}

static const float *head_of(const void *tensor, const ph_strides *s, int batch, int head)
{
    return (const float *)tensor + batch * s->batch + head * s->head;
}

static float *grad_of(void *tensor, const ph_strides *s, int batch, int head)
{
    return tensor ? (float *)tensor + batch * s->batch + head * s->head : NULL;
}

/* `count` rows from `first` on of the head, and the keys that are there. */
static void set_head(const ph_call *call, const ph_rows *rows, float *room, int first,
                     int count, ph_head *h)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    int b = rows->batch, head = rows->head0;
    *h = (ph_head){.rows = count, .keys = rows->extent.kv_len, .room = room};
    h->k_dim = a->qk_dim, h->v_dim = a->v_dim;
    h->q_ld = a->q.time, h->k_ld = a->k.time;
    h->v_ld = a->v.time, h->out_ld = a->out.time;
    h->scale = call->plan->scale2;
    h->q = head_of(args->q, &a->q, b, head) + first * a->q.time;
    h->k = head_of(args->k, &a->k, b, rows->k_head);
    h->v = head_of(args->v, &a->v, b, rows->v_head);
    h->out = grad_of(args->out, &a->out, b, head) + first * a->out.time;
    if (args->lse)
        h->lse = args->lse + ((int64_t)b * a->q_heads + head) * a->q_len + first;
    set_interval(call, &rows->extent, first, h);
}

/* While a head runs it asks for the one behind it: each thread has heads in a row. */
static void look_beyond(const ph_call *call, const ph_rows *rows, ph_head *h)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    const ph_strides *dout = &call->plan->back.dout;
    int64_t b = rows->batch, head = rows->head0 + 1;
    int64_t k = head / (a->q_heads / a->k_heads), v = head / (a->q_heads / a->v_heads);
    if (b == a->batch - 1 && head == a->q_heads) return;
    ph_rows_ask(call, &h->soon, 0, args->k, &a->k, b * a->k.batch + k * a->k.head,
                a->kv_len, a->qk_dim);
    ph_rows_ask(call, &h->soon, 1, args->q, &a->q, b * a->q.batch + head * a->q.head,
                a->q_len, a->qk_dim);
    ph_rows_ask(call, &h->soon, 2, args->v, &a->v, b * a->v.batch + v * a->v.head,
                a->kv_len, a->v_dim);
    if (!call->grads) return;
    ph_rows_ask(call, &h->soon, 3, call->grads->dout, dout,
                b * dout->batch + head * dout->head, a->q_len, a->v_dim);
    ph_rows_ask(call, &h->soon, 4, args->out, &a->out,
                b * a->out.batch + head * a->out.head, a->q_len, a->v_dim);
}

int ph_head_forward(const ph_call *call, float *room, int batch, int head, int first,
                    int end)
{
    ph_rows rows;
    ph_head h;
    if (!ph_head_forward_room(call->plan) || !is_plain(call)) return 0;
    ph_rows_begin(call, &rows, batch, head, 1);
    int count = ph_min(end, rows.extent.q_len) - first;
    if (count < 1 || rows.extent.kv_len < 1) return 0;
    set_head(call, &rows, room, first, count, &h);
    if (hides(&h) && !call->kernels->finite(h.v, h.v_ld, h.keys, h.v_dim)) return 0;
    look_beyond(call, &rows, &h);
    call->kernels->head_forward(&h);
    ph_stream_clear(call, &rows, first, end);
    return 1;
}

/* Rows from `first` on of a gradient, of which `len` are in the tensor. */
static void clear_rows(float *grad, int64_t ld, int first, int len, int dim)
{
    for (int i = first; grad && i < len; i++)
        memset(grad + i * ld, 0, (size_t)dim * sizeof(float));
}

static int all_finite(const ph_call *call, const ph_head *h, const ph_head_grads *g)
{
    const ph_kernels *k = call->kernels;
    return k->finite(h->k, h->k_ld, h->keys, h->k_dim) &&
           k->finite(h->q, h->q_ld, h->rows, h->k_dim) &&
           k->finite(g->dout, g->dout_ld, h->rows, h->v_dim);
}

int ph_head_backward(const ph_call *call, float *room, int batch, int head)
{
    const ph_attn *a = call->attn;
    const ph_grads *grads = call->grads;
    const ph_strides *dout = &call->plan->back.dout;
    ph_rows rows;
    ph_head h;
    if (!ph_head_backward_room(call->plan) || !is_plain(call) || grads->dlse) return 0;
    ph_rows_begin(call, &rows, batch, head, 1);
    if (rows.extent.q_len < 1 || rows.extent.kv_len < 1) return 0;
    set_head(call, &rows, room, 0, rows.extent.q_len, &h);
    ph_head_grads g = {.dout = head_of(grads->dout, dout, batch, head),
                       .dq = grad_of(grads->dq, &a->dq, batch, head),
                       .dk = grad_of(grads->dk, &a->dk, batch, rows.k_head),
                       .dv = grad_of(grads->dv, &a->dv, batch, rows.v_head),
                       .dout_ld = dout->time,
                       .dq_ld = a->dq.time,
                       .dk_ld = a->dk.time,
                       .dv_ld = a->dv.time,
                       .scale = a->scale};
    if (hides(&h) && !all_finite(call, &h, &g)) return 0;
    look_beyond(call, &rows, &h);
    call->kernels->head_backward(&h, &g);
    clear_rows(g.dq, g.dq_ld, h.rows, a->q_len, a->qk_dim);
    clear_rows(g.dk, g.dk_ld, h.keys, a->kv_len, a->qk_dim);
    clear_rows(g.dv, g.dv_ld, h.keys, a->kv_len, a->v_dim);
    return 1;
}
