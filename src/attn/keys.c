/*
 * keys.c - the keys or the values of one head: found, packed, converted, prefetched.
 */
#include "attn/keys.h"

ph_keys ph_keys_k(const ph_call *call, int batch, int head)
{
    const ph_attn *a = call->attn;
    return (ph_keys){call,      call->args->k,     &a->k, a->dtype,
                     a->qk_dim, call->plan->k_pad, batch, head};
}

ph_keys ph_keys_v(const ph_call *call, int batch, int head)
{
    const ph_attn *a = call->attn;
    return (ph_keys){call,     call->args->v,     &a->v, a->dtype,
                     a->v_dim, call->plan->v_pad, batch, head};
}

void ph_keys_pointers(const ph_keys *keys, int j, int count, const void **out)
{
    int64_t at = ph_key_at(keys->call, keys->strides, keys->batch, keys->head, j);
    for (int c = 0; c < count; c++, at += keys->strides->time)
        out[c] = ph_at(keys->base, keys->type, at);
}

void ph_prefetch_rows(const ph_call *call, ph_prefetch *ahead, int i, const void *base,
                      const ph_strides *strides, int64_t at, int n, int dim)
{
    ph_dtype type = call->attn->dtype;
    if (strides->time != dim || n <= 0) return;
    ahead->part[i].at = ph_at(base, type, at);
    ahead->part[i].end = ph_at(base, type, at + (int64_t)n * dim);
}

void ph_keys_prefetch(const ph_keys *keys, int j, int n, ph_prefetch *ahead, int i)
{
    int64_t at = ph_key_at(keys->call, keys->strides, keys->batch, keys->head, j);
    ph_prefetch_rows(keys->call, ahead, i, keys->base, keys->strides, at, n, keys->dim);
}

void ph_keys_panels(const ph_keys *keys, int j0, int c0, int c1, float *panels)
{
    const ph_kernels *k = keys->call->kernels;
    const void *from[PH_NR_MAX];
    for (int c = c0; c < c1; c += k->nr) {
        int n = ph_min(k->nr, c1 - c);
        ph_keys_pointers(keys, j0 + c, n, from);
        k->pack_panel(panels + (int64_t)c * keys->dim, k->nr, from, n, keys->dim,
                      keys->type, 1);
    }
}

const float *ph_keys_rows(const ph_keys *keys, int j0, int c0, int c1, int in_place,
                          float *scratch, int64_t *ld)
{
    const void *from[PH_BLOCK];
    int64_t time = keys->strides->time;
    int pad = keys->pad, compact = time == keys->dim || in_place;
    if (keys->type == PH_F32 && keys->dim == pad && compact) {
        *ld = time;
        return (const float *)ph_keys_at(keys, j0 + c0) - c0 * time;
    }
    ph_keys_pointers(keys, j0 + c0, c1 - c0, from);
    keys->call->kernels->pack_row_major(scratch + (int64_t)c0 * pad, pad, from, c1 - c0,
                                        keys->dim, keys->type, 1);
    *ld = pad;
    return scratch;
}
