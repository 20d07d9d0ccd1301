/*
 * head_args.c - biases, masks and dropout of a call in the layout of the head kernels.
 */
#include "attn/head_args.h"

#include "base/rng.h"

enum { FAR = 1 << 20 }; /* larger than the rows and keys of any kernel call */

/* Entries of one head's table: one per distance between its tokens and keys. */
static size_t table_floats(int rows, int group, int keys)
{
    return (size_t)(rows / group + 2) + (size_t)keys;
}

void ph_head_rows_take(const ph_plan *plan, ph_arena *arena, int rows, int group,
                       int keys, ph_head_rows *out)
{
    size_t n = (size_t)rows;
    size_t tables = plan->attn.reach ? table_floats(rows, group, keys) : 0;
    out->bias = ph_arena_take(arena, n * sizeof *out->bias);
    out->relative = ph_arena_take(arena, n * sizeof *out->relative);
    out->visible = ph_arena_take(arena, n * sizeof *out->visible);
    out->alibi = ph_arena_floats(arena, n);
    out->distance = ph_arena_floats(arena, n);
    out->gate = ph_arena_floats(arena, n);
    out->drop_low = ph_arena_take(arena, n * sizeof *out->drop_low);
    out->drop_high = ph_arena_take(arena, n * sizeof *out->drop_high);
    out->tables = ph_arena_floats(arena, tables * (size_t)group);
}

static int token_of(const ph_head_span *s, int i)
{
    return (s->first + i) / s->rows->group;
}

static int head_of(const ph_head_span *s, int i)
{
    return s->rows->head0 + (s->first + i) % s->rows->group;
}

/* Expands each head's table to all distances between these rows and keys, so that a row
   reads it like a bias: consecutive keys, consecutive entries. */
static void set_relative(const ph_call *call, const ph_head_span *s, ph_head_rows *a)
{
    const ph_rows *rows = s->rows;
    int64_t reach = call->attn->reach;
    int first = token_of(s, 0), last = token_of(s, s->count - 1);
    int entries = last - first + s->keys;
    int64_t lowest = s->k0 - (last + rows->extent.offset);
    for (int n = 0; n < rows->group; n++) {
        float *table = a->tables + (int64_t)n * entries;
        const float *centre =
            call->args->relative + (rows->head0 + n) * (2 * reach + 1) + reach;
        for (int i = 0; i < entries; i++) {
            int64_t d = lowest + i;
            table[i] = centre[d < -reach ? -reach : d > reach ? reach : d];
        }
    }
    for (int i = 0; i < s->count; i++)
        a->relative[i] = a->tables + (int64_t)(head_of(s, i) - rows->head0) * entries +
                         (last - token_of(s, i));
}

static void set_alibi(const ph_call *call, const ph_head_span *s, ph_head_rows *a)
{
    for (int i = 0; i < s->count; i++) {
        a->alibi[i] = call->args->alibi[head_of(s, i)] * (float)PH_LOG2E;
        a->distance[i] = (float)(s->k0 - (token_of(s, i) + s->rows->extent.offset));
    }
}

void ph_head_mods(const ph_call *call, const ph_head_span *s, ph_head_rows *arrays,
                  ph_score_mods *mods)
{
    const ph_args *args = call->args;
    const ph_attn *a = call->attn;
    *mods = (ph_score_mods){.cap = a->softcap > 0 ? call->plan->cap2 : 0};
    for (int i = 0; i < s->count && args->bias; i++)
        arrays->bias[i] =
            args->bias + s->k0 +
            ph_broadcast_row(a, &a->bias, s->rows->batch, head_of(s, i), token_of(s, i));
    for (int i = 0; i < s->count && args->visible; i++)
        arrays->visible[i] = args->visible + s->k0 +
                             ph_broadcast_row(a, &a->visible, s->rows->batch,
                                              head_of(s, i), token_of(s, i));
    if (args->relative) set_relative(call, s, arrays);
    if (args->alibi) set_alibi(call, s, arrays);
    if (args->bias) mods->bias = arrays->bias;
    if (args->relative) mods->relative = arrays->relative;
    if (args->alibi) mods->alibi = arrays->alibi, mods->distance = arrays->distance;
    if (args->visible) mods->visible = arrays->visible;
}

ph_drop ph_head_drop(const ph_call *call, const ph_head_span *s, ph_head_rows *arrays)
{
    const ph_plan *plan = call->plan;
    if (!plan->drop_limit) return (ph_drop){.low = NULL};
    for (int i = 0; i < s->count; i++) {
        uint64_t key = ph_rng_key(call->args->seed, (uint64_t)s->rows->batch,
                                  (uint64_t)head_of(s, i), (uint64_t)token_of(s, i));
        arrays->drop_low[i] = (uint32_t)key;
        arrays->drop_high[i] = (uint32_t)(key >> 32);
    }
    return (ph_drop){.low = arrays->drop_low,
                     .high = arrays->drop_high,
                     .first = (uint32_t)s->k0,
                     .limit = plan->drop_limit,
                     .keep = plan->drop_keep};
}

int ph_head_all_active(const ph_call *call, const ph_rows *rows, int first, int end)
{
    for (int row = first; row < end && call->args->gate; row++)
        if (!ph_rows_active(call, rows->batch, rows->head0 + row % rows->group,
                            row / rows->group))
            return 0;
    return 1;
}

static int within(int64_t x)
{
    return x < -FAR ? -FAR : x > FAR ? FAR : (int)x;
}

ph_window ph_head_window(const ph_call *call, const ph_extent *extent, int token, int k0)
{
    int64_t lo, hi;
    ph_rows_window(call->attn, extent, token, &lo, &hi);
    return (ph_window){within(lo - k0), within(hi - k0), 1, 0};
}

void ph_head_prefetch_next(const ph_call *call, const ph_rows *rows, ph_prefetch *ahead)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    const ph_strides *dout = &call->plan->backward.dout;
    int b = rows->batch, head = rows->head0 + 1;
    if (head == a->q_heads && a->ragged) return; /* the longest sequences come first */
    if (head == a->q_heads) b++, head = 0;
    if (b == a->batch) return;
    const ph_extent *size = &rows->extent; /* of every sequence, or it is this one */
    const ph_keys k = ph_keys_k(call, b, head / call->plan->per_k);
    const ph_keys v = ph_keys_v(call, b, head / call->plan->per_v);
    ph_keys_prefetch(&k, 0, size->kv_size, ahead, 0);
    ph_prefetch_rows(ahead, 1, args->q, a->dtype, &a->q,
                     ph_row_at(call, &a->q, b, head, 0), size->q_size, a->qk_dim);
    ph_keys_prefetch(&v, 0, size->kv_size, ahead, 2);
    if (!call->grads) return;
    ph_prefetch_rows(ahead, 3, call->grads->dout, a->dtype, dout,
                     ph_row_at(call, dout, b, head, 0), size->q_size, a->v_dim);
    ph_prefetch_rows(ahead, 4, args->out, a->dtype, &a->out,
                     ph_row_at(call, &a->out, b, head, 0), size->q_size, a->v_dim);
}
