/*
 * head.c - a head of few keys, by one kernel for each direction.
 */
#include "attn/head_set.h"

#include "attn/stream.h"

enum { FAR = 1 << 20 }; /* beyond any key and row of a head */

int ph_head_short(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    return a->dtype == PH_F32 && plan->group == 1 && a->kv_len <= PH_BLOCK &&
           a->qk_dim == plan->k_pad && a->v_dim == plan->v_pad && !plan->drop_limit &&
           a->softcap == 0;
}

size_t ph_head_forward_room(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    if (!ph_head_short(plan) || a->q_len <= plan->kernels->few) return 0;
    return ph_head_floats(a->qk_dim);
}

int ph_head_plain(const ph_call *call)
{
    const ph_args *args = call->args;
    return !args->bias && !args->visible && !args->relative && !args->alibi &&
           !args->gate && !args->sink && !call->twin;
}

static int within(int64_t x)
{
    return x < -FAR ? -FAR : x > FAR ? FAR : (int)x;
}

void ph_head_interval(const ph_call *call, const ph_extent *extent, int token, int k0,
                      int *lo, int *hi)
{
    const ph_attn *a = call->attn;
    int64_t position = token + extent->offset - k0;
    int left = a->mask == PH_MASK_BAND ? a->band_left : -1;
    int right = a->mask == PH_MASK_BAND ? a->band_right : -1;
    if (a->mask == PH_MASK_CAUSAL) right = 0;
    *lo = left >= 0 ? within(position - left) : -FAR;
    *hi = right >= 0 ? within(position + right + 1) : FAR;
}

int ph_head_hides(const ph_head *h)
{
    return h->lo + h->rows - 1 > 0 || h->hi < h->keys;
}

const float *ph_head_of(const void *tensor, const ph_strides *s, int batch, int head)
{
    return (const float *)tensor + batch * s->batch + head * s->head;
}

float *ph_head_out(void *tensor, const ph_strides *s, int batch, int head)
{
    return tensor ? (float *)tensor + batch * s->batch + head * s->head : NULL;
}

void ph_head_set(const ph_call *call, const ph_rows *rows, float *room, int first,
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
    h->q = ph_head_of(args->q, &a->q, b, head) + first * a->q.time;
    h->k = ph_head_of(args->k, &a->k, b, rows->k_head);
    h->v = ph_head_of(args->v, &a->v, b, rows->v_head);
    h->out = ph_head_out(args->out, &a->out, b, head) + first * a->out.time;
    if (args->lse)
        h->lse = args->lse + ((int64_t)b * a->q_heads + head) * a->q_len + first;
    ph_head_interval(call, &rows->extent, first, 0, &h->lo, &h->hi);
}

void ph_head_beyond(const ph_call *call, const ph_rows *rows, ph_soon *soon)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    const ph_strides *dout = &call->plan->back.dout;
    int64_t b = rows->batch, head = rows->head0 + 1;
    int64_t k = head / (a->q_heads / a->k_heads), v = head / (a->q_heads / a->v_heads);
    if (b == a->batch - 1 && head == a->q_heads) return;
    ph_rows_ask(call, soon, 0, args->k, &a->k, b * a->k.batch + k * a->k.head, a->kv_len,
                a->qk_dim);
    ph_rows_ask(call, soon, 1, args->q, &a->q, b * a->q.batch + head * a->q.head,
                a->q_len, a->qk_dim);
    ph_rows_ask(call, soon, 2, args->v, &a->v, b * a->v.batch + v * a->v.head, a->kv_len,
                a->v_dim);
    if (!call->grads) return;
    ph_rows_ask(call, soon, 3, call->grads->dout, dout,
                b * dout->batch + head * dout->head, a->q_len, a->v_dim);
    ph_rows_ask(call, soon, 4, args->out, &a->out, b * a->out.batch + head * a->out.head,
                a->q_len, a->v_dim);
}

int ph_head_forward(const ph_call *call, float *room, int batch, int head, int first,
                    int end)
{
    ph_rows rows;
    ph_head h;
    if (!ph_head_forward_room(call->plan) || !ph_head_plain(call)) return 0;
    ph_rows_begin(call, &rows, batch, head, 1);
    int count = ph_min(end, rows.extent.q_len) - first;
    if (count < 1 || rows.extent.kv_len < 1) return 0;
    ph_head_set(call, &rows, room, first, count, &h);
    if (ph_head_hides(&h) && !call->kernels->finite(h.v, h.v_ld, h.keys, h.v_dim))
        return 0;
    ph_head_beyond(call, &rows, &h.soon);
    call->kernels->head_forward(&h);
    ph_stream_clear(call, &rows, first, end);
    return 1;
}
