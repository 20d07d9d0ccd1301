/*
 * keys.c - the keys or the values of one head: found, packed, converted, prefetched.
 */
#include "attn/keys.h"

/* Costs one comparison per page, which every ctx can afford. */
ph_status ph_check_table(const ph_plan *plan, const ph_args *args)
{
    const ph_attn *a = &plan->attn;
    const int32_t *page = args->page_table;
    if (!page) return PH_OK;
    for (int b = 0; b < a->batch; b++, page += plan->table_len) {
        int len = args->kv_lens ? args->kv_lens[b] : a->kv_len;
        for (int i = 0; i < ph_div_up(len, a->page_len); i++)
            if (page[i] < 0 || page[i] >= a->pages)
                return ph_fail(plan->ctx, PH_BAD_SHAPE,
                               "page_table[%d][%d] is %d, expected 0 to %d", b, i,
                               page[i], a->pages - 1);
    }
    return PH_OK;
}

static int valid_keys(const ph_call *call, int batch)
{
    return call->args->kv_lens ? call->args->kv_lens[batch] : call->attn->kv_len;
}

ph_keys ph_keys_k(const ph_call *call, int batch, int head)
{
    const ph_attn *a = call->attn;
    return (ph_keys){call,          call->args->k, &a->k,
                     ph_kv_type(a), a->qk_dim,     call->plan->k_pad,
                     batch,         head,          valid_keys(call, batch)};
}

ph_keys ph_keys_v(const ph_call *call, int batch, int head)
{
    const ph_attn *a = call->attn;
    return (ph_keys){call,          call->args->v, &a->v,
                     ph_kv_type(a), a->v_dim,      call->plan->v_pad,
                     batch,         head,          valid_keys(call, batch)};
}

void ph_keys_pointers(const ph_keys *keys, int j, int count, const void **out)
{
    int64_t time = keys->strides->time;
    for (int c = 0, end; c < count; c = end) {
        int64_t at = ph_key_at(keys->call, keys->strides, keys->batch, keys->head, j + c);
        end = c + ph_min(count - c, ph_key_run(keys->call, j + c));
        for (int i = c; i < end; i++, at += time)
            out[i] = ph_at(keys->base, keys->type, at);
    }
}

int64_t ph_keys_next_block(const ph_keys *keys, int j)
{
    if (j + PH_BLOCK >= keys->len) return 0;
    return (const char *)ph_keys_at(keys, j + PH_BLOCK) -
           (const char *)ph_keys_at(keys, j);
}

void ph_prefetch_rows(ph_prefetch *ahead, int i, const void *base, ph_dtype type,
                      const ph_strides *strides, int64_t at, int n, int dim)
{
    if (strides->time != dim || n <= 0) return;
    ahead->part[i].at = ph_at(base, type, at);
    ahead->part[i].end = ph_at(base, type, at + (int64_t)n * dim);
}

void ph_keys_prefetch(const ph_keys *keys, int j, int n, ph_prefetch *ahead, int i)
{
    if (j >= keys->len) return;
    int64_t at = ph_key_at(keys->call, keys->strides, keys->batch, keys->head, j);
    ph_prefetch_rows(ahead, i, keys->base, keys->type, keys->strides, at,
                     ph_min(n, ph_key_run(keys->call, j)), keys->dim);
}

void ph_keys_prefetch_all(const ph_keys *keys, int j, int n)
{
    enum { LINE = 64 };
    int64_t step = ph_offset(keys->type, keys->strides->time);
    for (int end = ph_min(j + n, keys->len), run; j < end; j += run) {
        int64_t bytes = ph_offset(keys->type, keys->dim);
        const char *at = ph_keys_at(keys, j);
        run = ph_min(end - j, ph_key_run(keys->call, j));
        int rows = step == bytes ? 1 : run; /* contiguous keys are one long row */
        if (rows == 1) bytes *= run;
        for (int i = 0; i < rows; i++)
            for (int64_t line = 0; line < bytes; line += LINE)
                __builtin_prefetch(at + i * step + line, 0, 2);
    }
}

void ph_keys_prefetch_page(const ph_keys *keys, int j, int count, int later)
{
    enum { LINE = 64 };
    int page_len = keys->call->attn->page_len;
    if (!page_len || j % page_len || j >= keys->len) return;
    const char *first = ph_keys_at(keys, j);
    int64_t bytes = ph_offset(keys->type, keys->dim),
            step = ph_offset(keys->type, keys->strides->time);
    for (int i = 0; i < ph_min(count, keys->len - j); i++)
        for (int64_t at = 0; at < bytes; at += LINE)
            if (later)
                __builtin_prefetch(first + i * step + at, 0, 1);
            else
                __builtin_prefetch(first + i * step + at);
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
    if (keys->type == PH_F32 && keys->dim == pad && compact &&
        ph_keys_adjoin(keys, j0 + c0, c1 - c0)) {
        *ld = time;
        return (const float *)ph_keys_at(keys, j0 + c0) - c0 * time;
    }
    ph_keys_pointers(keys, j0 + c0, c1 - c0, from);
    keys->call->kernels->pack_row_major(scratch + (int64_t)c0 * pad, pad, from, c1 - c0,
                                        keys->dim, keys->type, 1);
    *ld = pad;
    return scratch;
}
