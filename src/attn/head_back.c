/*
 * head_back.c - the gradients of a head of few keys, by one kernel.
 */
#include "attn/head_set.h"

#include <string.h>

size_t ph_head_backward_room(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    if (!ph_head_short(plan) || a->q_len > PH_BLOCK || plan->cluster > 1) return 0;
    return ph_head_floats(a->qk_dim, a->v_dim, a->q_len);
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
    if (!ph_head_backward_room(call->plan) || !ph_head_plain(call) || grads->dlse)
        return 0;
    ph_rows_begin(call, &rows, batch, head, 1);
    if (rows.extent.q_len < 1 || rows.extent.kv_len < 1) return 0;
    ph_head_set(call, &rows, room, 0, rows.extent.q_len, &h);
    ph_head_grads g = {.dout = ph_head_of(grads->dout, dout, batch, head),
                       .dq = ph_head_out(grads->dq, &a->dq, batch, head),
                       .dk = ph_head_out(grads->dk, &a->dk, batch, rows.k_head),
                       .dv = ph_head_out(grads->dv, &a->dv, batch, rows.v_head),
                       .dout_ld = dout->time,
                       .dq_ld = a->dq.time,
                       .dk_ld = a->dk.time,
                       .dv_ld = a->dv.time,
                       .scale = a->scale};
    if (ph_head_hides(&h) && !all_finite(call, &h, &g)) return 0;
    ph_head_beyond(call, &rows, &h);
    call->kernels->head_backward(&h, &g);
    clear_rows(g.dq, g.dq_ld, h.rows, a->q_len, a->qk_dim);
    clear_rows(g.dk, g.dk_ld, h.keys, a->kv_len, a->qk_dim);
    clear_rows(g.dv, g.dv_ld, h.keys, a->kv_len, a->v_dim);
    return 1;
}
