/*
 * head.c - f32 heads forward, each by one kernel: head_forward.
 */
#include <math.h>

#include "attn/head_args.h"
#include "attn/online.h"

/* Few rows run faster online, with k read in place; grouped heads too, unless each has
   enough rows of its own to fill the lanes. */
static int fits(const ph_plan *plan, int q_len)
{
    const ph_attn *a = &plan->attn;
    const ph_kernels *k = plan->kernels;
    return a->dtype == PH_F32 && !plan->by_split &&
           q_len > (plan->group > 1 ? k->nr - 1 : k->few_rows) && a->qk_dim > 0 &&
           a->v_dim > 0;
}

/* Scratch of a lane. */
typedef struct head_lane {
    ph_head_rows arrays;
    float *scratch;
    float *k, *v; /* of a split, where they are not read in place; else NULL */
} head_lane;

static float *take_split(const ph_plan *plan, ph_arena *arena, int pad)
{
    int keys = ph_min(plan->attn.kv_len, PH_SPLIT);
    return ph_arena_floats(arena, (size_t)keys * (size_t)pad);
}

static void take_work(const ph_plan *plan, ph_arena *arena, head_lane *w)
{
    const ph_attn *a = &plan->attn;
    int rows = ph_div_up(plan->rows, plan->group);
    ph_head_rows_take(plan, arena, rows, 1, a->kv_len, &w->arrays);
    w->scratch =
        ph_arena_floats(arena, ph_head_floats(rows, a->kv_len, a->qk_dim, a->v_dim));
    int whole = a->page_len % PH_BLOCK == 0 && !a->kv_dtype; /* blocks in place */
    w->k = whole ? NULL : take_split(plan, arena, plan->k_pad);
    w->v = whole && a->v_dim == plan->v_pad ? NULL : take_split(plan, arena, plan->v_pad);
}

size_t ph_head_forward_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    head_lane w;
    if (!fits(plan, plan->attn.q_len)) return 0;
    take_work(plan, &arena, &w);
    return arena.used;
}

static const float *set_gate(const ph_call *call, const ph_head_span *s, float *array)
{
    const ph_attn *a = call->attn;
    const float *gate = call->args->gate;
    int head = s->rows->head0;
    if (!gate) return NULL;
    if (a->gate == PH_GATE_ROW)
        return gate + ph_row_index(call, s->rows->batch, head, s->first);
    for (int i = 0; i < s->count; i++) array[i] = gate[head];
    return array;
}

static int clamp(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

static void set_head(const ph_call *call, const ph_head_span *s, head_lane *w, ph_head *h)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    const ph_rows *rows = s->rows;
    int b = rows->batch, head = rows->head0, first = s->first;
    h->rows = s->count, h->keys = s->keys, h->scratch = w->scratch;
    h->k_dim = a->qk_dim, h->v_dim = a->v_dim;
    h->q_ld = a->q.time, h->out_ld = a->out.time;
    h->scale = call->plan->scale2;
    ph_head_mods(call, s, &w->arrays, &h->mods);
    h->drop = ph_head_drop(call, s, &w->arrays);
    h->gate = set_gate(call, s, w->arrays.gate);
    h->sink = args->sink ? args->sink + head : NULL;
    h->q = (const float *)args->q + ph_row_at(call, &a->q, b, head, first);
    h->out = (float *)args->out + ph_row_at(call, &a->out, b, head, first);
    h->lse = args->lse ? args->lse + ph_row_index(call, b, head, first) : NULL;
    h->prefetch = (ph_prefetch){0};
    h->window = ph_head_window(call, &rows->extent, first, 0);
    h->window.lo = clamp(h->window.lo, -h->rows, h->keys);
    h->window.hi = clamp(h->window.hi, -h->rows, h->keys);
}

/* The blocks of a split from key j on, and the one behind it, in place. */
static void find_in_place(const ph_keys *keys, int j, const float **blocks)
{
    int n = 0;
    for (; n <= PH_SPLIT_BLOCKS && j < keys->len; j += PH_BLOCK)
        blocks[n++] = ph_keys_at(keys, j);
    if (n <= PH_SPLIT_BLOCKS) blocks[n] = NULL;
}

/* A copy of keys [j, j + n) and its blocks. */
static void copy_split(const ph_keys *keys, int j, int n, float *copy,
                       const float **blocks)
{
    const void *from[PH_SPLIT];
    for (int i = 0, c = 0; i <= PH_SPLIT_BLOCKS; i++, c += PH_BLOCK)
        blocks[i] = c < n ? copy + (int64_t)c * keys->pad : NULL;
    ph_keys_pointers(keys, j, n, from);
    keys->call->kernels->pack_row_major(copy, keys->pad, from, n, keys->dim, keys->type,
                                        1);
}

/* The blocks of keys [j, j + n): a copy where there is scratch for it. Returns their
   leading dimension. */
static int64_t find_split(const ph_keys *keys, int j, int n, float *scratch,
                          const float **blocks)
{
    if (!scratch) {
        find_in_place(keys, j, blocks);
        return keys->strides->time;
    }
    copy_split(keys, j, n, scratch, blocks);
    return keys->pad;
}

/* Whether v of the keys [from, to) is finite, of those in the split. */
static int finite_keys(const ph_call *call, const ph_head *h, int from, int to)
{
    from = ph_max(from - h->split, 0), to = ph_min(to - h->split, PH_SPLIT);
    for (int c = from, end; c < to; c = end) {
        const float *v = h->v[c / PH_BLOCK] + c % PH_BLOCK * h->v_ld;
        end = ph_min(to, (c / PH_BLOCK + 1) * PH_BLOCK);
        if (!call->kernels->finite(v, h->v_ld, end - c, call->plan->v_pad)) return 0;
    }
    return 1;
}

/* Whether v of every key that is multiplied for a row that does not see it is finite. */
static int hidden_finite(const ph_call *call, const ph_head *h)
{
    const int lo = h->window.lo, hi = h->window.hi, further = h->rows - 1;
    if (ph_head_excludes(call)) return finite_keys(call, h, 0, h->keys);
    return finite_keys(call, h, ph_max(lo, 0), ph_min(lo + further, h->keys)) &&
           finite_keys(call, h, ph_max(hi, 0), ph_min(hi + further, h->keys));
}

/* All splits in order; keys that no row sees are not touched. Returns 0 where a hidden
   value is not finite: the rows are then computed anew. */
static int run_splits(const ph_call *call, const ph_rows *rows, const head_lane *w,
                      ph_head *h)
{
    const ph_keys k = ph_keys_k(call, rows->batch, rows->k_head);
    const ph_keys v = ph_keys_v(call, rows->batch, rows->v_head);
    for (h->split = 0; h->split < h->keys; h->split += PH_SPLIT) {
        int j = h->split, n = ph_min(PH_SPLIT, h->keys - j);
        int seen = h->window.lo < j + n && h->window.hi + h->rows - 1 > j;
        if (seen) {
            h->k_ld = find_split(&k, j, n, w->k, h->k);
            h->v_ld = find_split(&v, j, n, w->v, h->v);
            if (!hidden_finite(call, h)) return 0;
        }
        call->kernels->head_forward(h);
    }
    return 1;
}

int ph_head_forward(const ph_call *call, ph_arena arena, int batch, int head, int first,
                    int end)
{
    ph_rows rows;
    head_lane w;
    ph_head h;
    const ph_plan *plan = call->plan;
    ph_rows_begin(call, &rows, batch, head, 1);
    if (!fits(plan, rows.extent.q_size)) return 0;
    ph_head_span span = {&rows, first, ph_min(end, rows.extent.q_len) - first, 0,
                         rows.extent.kv_len};
    if (span.keys < 1 || !ph_head_all_active(call, &rows, first, first + span.count))
        return 0;
    if (span.count > 0) {
        take_work(call->plan, &arena, &w);
        set_head(call, &span, &w, &h);
        if (rows.extent.q_size * plan->group <= plan->rows)
            ph_head_prefetch_next(call, &rows, &h.prefetch);
        if (!run_splits(call, &rows, &w, &h)) return 0;
    }
    ph_online_clear(call, &rows, first, end);
    return 1;
}
