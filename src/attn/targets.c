/*
 * targets.c - stores, adds and clears gradients of q, k and v.
 */
#include "attn/targets.h"

#include "attn/address.h"

#include <string.h>

ph_dq_target ph_dq_tensor(const ph_call *call, int batch, int head)
{
    const ph_attn *a = call->attn;
    void *base = call->grads->dq;
    if (base) base = ph_at_out(base, a->dtype, ph_row_at(call, &a->dq, batch, head, 0));
    return (ph_dq_target){base, a->dq.head, a->dq.time, PH_DQ_STORE};
}

static void *dq_row(const ph_call *call, const ph_dq_target *t, int head, int token)
{
    ph_dtype type = t->how == PH_DQ_STORE ? call->attn->dtype : PH_F32;
    return ph_at_out(t->base, type, head * t->head + token * t->time);
}

void ph_clear_dq(const ph_call *call, const ph_dq_target *t, int heads, int64_t first,
                 int64_t end)
{
    const ph_attn *a = call->attn;
    size_t bytes = t->how == PH_DQ_STORE ? (size_t)a->qk_dim * ph_dtype_size(a->dtype)
                                         : (size_t)call->plan->k_pad * sizeof(float);
    if (!t->base || t->how == PH_DQ_ADD) return;
    for (int64_t row = first; row < end; row++)
        memset(dq_row(call, t, (int)(row % heads), (int)(row / heads)), 0, bytes);
}

void ph_dq_put(const ph_call *call, const ph_dq_target *t, int head, int token,
               const float *partial)
{
    const ph_attn *a = call->attn;
    int pad = call->plan->k_pad;
    void *row = dq_row(call, t, head, token);
    if (t->how == PH_DQ_STORE)
        call->kernels->store_row(row, partial, a->qk_dim, a->dtype, a->scale);
    else if (t->how == PH_DQ_FRESH)
        memcpy(row, partial, (size_t)pad * sizeof(float));
    else
        call->kernels->axpy(pad, 1, partial, row);
}

static ph_key_target key_target(const ph_call *call, void *grad, const ph_strides *s,
                                int64_t at, int dim, float scale)
{
    void *base = grad ? ph_at_out(grad, call->attn->dtype, at) : NULL;
    return (ph_key_target){base, s->time, dim, scale};
}

ph_key_target ph_dk_target(const ph_call *call, int batch, int head, int k0)
{
    const ph_attn *a = call->attn;
    int64_t at = ph_key_at(call, &a->dk, batch, head, k0);
    return key_target(call, call->grads->dk, &a->dk, at, a->qk_dim, a->scale);
}

ph_key_target ph_dv_target(const ph_call *call, int batch, int head, int k0)
{
    const ph_attn *a = call->attn;
    int64_t at = ph_key_at(call, &a->dv, batch, head, k0);
    return key_target(call, call->grads->dv, &a->dv, at, a->v_dim, 1);
}

void ph_store_keys(const ph_call *call, const ph_key_target *t, int first, int end,
                   const float *sums)
{
    ph_dtype type = call->attn->dtype;
    int pad = ph_round_up(t->dim, PH_LANES);
    for (int c = first; t->base && c < end; c++) {
        void *to = ph_at_out(t->base, type, c * t->time);
        if (sums)
            call->kernels->store_row(to, sums + (int64_t)(c - first) * pad, t->dim, type,
                                     t->scale);
        else
            memset(to, 0, (size_t)t->dim * ph_dtype_size(type));
    }
}
