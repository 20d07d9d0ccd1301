/*
 * head_back.c - gradients of a chunk of keys, tile of rows by tile of rows, each by one
 * kernel: head_backward.
 *
 * The order of every sum is that of chunk.c, so are its bits.
 */
#include "attn/head_set.h"

#include <string.h>

/* Rows in one chain of dk and dv, a multiple of a tile's. */
enum { FLUSH_ROWS = PH_FLUSH * PH_GRAD_ROWS };

/* dk or dv of the chunk. */
typedef struct key_sums {
    ph_key_target target;
    int pad;
    int direct;  /* 1: sums stand there */
    float *part; /* (PH_CHUNK, pad) of the last FLUSH_ROWS rows; NULL: never needed */
    float *sums; /* of those before, likewise */
} key_sums;

/* Rows of one group of heads against one chunk. */
typedef struct work {
    const ph_call *call;
    const ph_deltas *deltas;
    ph_rows *rows; /* batch, heads and lengths; nothing is gathered */
    int k0;
    int first, end; /* rows that may see a key of the chunk */
    ph_grad_block tile;
    ph_head_rows arrays;
    float *q_room, *dout_room, *k_room, *v_room; /* NULL: the tensor itself serves */
    float *dq_room;
    float *lse_room, *delta_room;
    key_sums dk, dv;
} work;

/* ---- room ---- */

/* Whether rows of a tensor serve where they lie: of short heads whatever their distance,
   else behind each other. */
static int in_place(const ph_plan *plan, const ph_strides *s, int dim, int pad)
{
    const ph_attn *a = &plan->attn;
    int few = a->q_len <= PH_BLOCK && a->kv_len <= PH_BLOCK;
    return a->dtype == PH_F32 && dim == pad && (few || s->time == dim);
}

static int rows_in_place(const ph_plan *plan, const ph_strides *s, int dim, int pad)
{
    return plan->group == 1 && in_place(plan, s, dim, pad);
}

static int stores_in_place(const ph_plan *plan, int dim, int pad)
{
    return plan->attn.dtype == PH_F32 && dim == pad;
}

static float *take_rows(ph_arena *arena, int needed, int rows, int pad)
{
    return needed ? ph_arena_floats(arena, (size_t)rows * (size_t)pad) : NULL;
}

static void take_key_sums(const ph_plan *plan, ph_arena *arena, int dim, int pad,
                          key_sums *s)
{
    int long_text = plan->attn.q_len > FLUSH_ROWS / plan->group;
    int rooms = long_text || !stores_in_place(plan, dim, pad);
    s->pad = pad;
    s->part = take_rows(arena, rooms, PH_CHUNK, pad);
    s->sums = take_rows(arena, long_text, PH_CHUNK, pad);
}

static void take_work(const ph_plan *plan, ph_arena *arena, work *w)
{
    const ph_attn *a = &plan->attn;
    int64_t rows = (int64_t)a->q_len * plan->group;
    int k_pad = plan->k_pad, v_pad = plan->v_pad, keys = ph_min(a->kv_len, PH_CHUNK);
    int most = rows < PH_GRAD_BLOCK_ROWS ? (int)rows : PH_GRAD_BLOCK_ROWS;
    w->rows = ph_arena_take(arena, sizeof *w->rows);
    w->q_room =
        take_rows(arena, !rows_in_place(plan, &a->q, a->qk_dim, k_pad), most, k_pad);
    w->dout_room = take_rows(arena, 1, most, v_pad);
    w->k_room = take_rows(arena, !in_place(plan, &a->k, a->qk_dim, k_pad), keys, k_pad);
    w->v_room = take_rows(arena, !in_place(plan, &a->v, a->v_dim, v_pad), keys, v_pad);
    w->dq_room = take_rows(arena, 1, most, k_pad);
    w->lse_room = take_rows(arena, plan->group > 1, most, 1);
    w->delta_room = take_rows(arena, plan->group > 1, most, 1);
    ph_head_rows_take(plan, arena, most, plan->group, keys, &w->arrays);
    take_key_sums(plan, arena, a->qk_dim, k_pad, &w->dk);
    take_key_sums(plan, arena, a->v_dim, v_pad, &w->dv);
    w->tile.scratch =
        ph_arena_floats(arena, ph_grad_block_floats(a->qk_dim, a->v_dim, most, keys));
}

static int fits(const ph_plan *plan)
{
    return !plan->bf16_pairs && !plan->back.twins && plan->cluster == plan->group;
}

size_t ph_head_chunk_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    work w;
    if (!fits(plan)) return 0;
    take_work(plan, &arena, &w);
    return arena.used;
}

/* ---- rows and keys of a tile ---- */

/* Whether one of the rows [first, end) may see a key of the chunk. */
static int see_chunk(const work *w, int first, int end)
{
    int low = INT32_MAX, high = 0, group = w->rows->group, lo, hi;
    int last = (end - 1) / group;
    for (int token = first / group; token <= last; token++) {
        ph_rows_interval(w->call->attn, &w->rows->extent, token, &lo, &hi);
        if (hi > 0) low = ph_min(low, lo);
        high = ph_max(high, hi);
        if (hi > 0 && token < last) token = last - 1; /* what is between sees no less */
    }
    return high > w->k0 && low < w->k0 + w->tile.keys;
}

/* Rows that matter, by tiles of PH_GRAD_ROWS: where a chain of dk and dv begins. */
static int find_range(work *w)
{
    int total = w->rows->extent.q_len * w->rows->group, step = PH_GRAD_ROWS;
    w->first = 0, w->end = total;
    if (w->call->attn->mask == PH_MASK_NONE) return total > 0;
    while (w->first < total && !see_chunk(w, w->first, ph_min(w->first + step, total)))
        w->first += step;
    for (int last; w->end > w->first; w->end = last) {
        last = (w->end - 1) / step * step;
        if (see_chunk(w, last, w->end)) break;
    }
    return w->first < w->end;
}

static int64_t row_at(const work *w, int row, const ph_strides *s)
{
    int group = w->rows->group, head = w->rows->head0 + row % group;
    return w->rows->batch * s->batch + head * s->head + row / group * s->time;
}

static int64_t key_at(const work *w, int key, int head, const ph_strides *s)
{
    return w->rows->batch * s->batch + head * s->head + key * s->time;
}

/* `count` rows of a q-like tensor from `first` on: the tensor itself, or a copy. */
static const float *find_rows(const work *w, const void *base, const ph_strides *s,
                              int dim, int pad, int first, int count, float *room,
                              int64_t *ld)
{
    ph_dtype type = w->call->attn->dtype;
    const void *from[PH_GRAD_BLOCK_ROWS];
    *ld = room ? pad : s->time;
    if (!room) return (const float *)base + row_at(w, first, s);
    for (int i = 0; i < count; i++) from[i] = ph_at(base, type, row_at(w, first + i, s));
    w->call->kernels->pack_row_major(room, pad, from, count, dim, type, 1);
    return room;
}

static const float *find_keys(const work *w, const void *base, const ph_strides *s,
                              int head, int dim, int pad, float *room, int64_t *ld)
{
    ph_dtype type = w->call->attn->dtype;
    const void *from[PH_CHUNK];
    int64_t at = key_at(w, w->k0, head, s);
    *ld = room ? pad : s->time;
    if (!room) return (const float *)base + at;
    for (int c = 0; c < w->tile.keys; c++, at += s->time) from[c] = ph_at(base, type, at);
    w->call->kernels->pack_row_major(room, pad, from, w->tile.keys, dim, type, 1);
    return room;
}

static void set_keys(work *w)
{
    const ph_attn *a = w->call->attn;
    const ph_plan *plan = w->call->plan;
    ph_grad_block *t = &w->tile;
    t->k = find_keys(w, w->call->args->k, &a->k, w->rows->k_head, a->qk_dim, plan->k_pad,
                     w->k_room, &t->k_ld);
    t->v = find_keys(w, w->call->args->v, &a->v, w->rows->v_head, a->v_dim, plan->v_pad,
                     w->v_room, &t->v_ld);
}

/* lse and delta of a tile's rows. */
static void set_sums(work *w, int first, int count)
{
    const ph_attn *a = w->call->attn;
    const ph_rows *rows = w->rows;
    int64_t head = (int64_t)rows->batch * a->q_heads + rows->head0;
    w->tile.lse =
        rows->group > 1 ? w->lse_room : w->deltas->lse + head * a->q_len + first;
    w->tile.delta =
        rows->group > 1 ? w->delta_room : w->deltas->delta + head * a->q_len + first;
    for (int i = 0; i < count && rows->group > 1; i++) {
        int row = first + i;
        int64_t index = (head + row % rows->group) * a->q_len + row / rows->group;
        w->lse_room[i] = w->deltas->lse[index];
        w->delta_room[i] = w->deltas->delta[index];
    }
}

/* Which rows the tile from `first` on has, and what they see; returns its end. */
static int set_window(work *w, int first)
{
    ph_grad_block *t = &w->tile;
    int group = w->rows->group;
    t->rows = ph_min(PH_GRAD_BLOCK_ROWS, w->end - first);
    t->window = ph_head_window(w->call, &w->rows->extent, first / group, w->k0);
    t->window.group = group, t->window.phase = first % group;
    return first + t->rows;
}

/* dout of a tile's rows times their gates. */
static void gate_dout(work *w, int first)
{
    const ph_call *call = w->call;
    const ph_attn *a = call->attn;
    ph_grad_block *t = &w->tile;
    int64_t pad = call->plan->v_pad;
    for (int i = 0; i < t->rows; i++) {
        int64_t at = row_at(w, first + i, &call->plan->back.dout);
        int group = w->rows->group, head = w->rows->head0 + (first + i) % group;
        float gate = ph_rows_gate(call, w->rows->batch, head, (first + i) / group);
        call->kernels->load_row(w->dout_room + i * pad,
                                ph_at(call->grads->dout, a->dtype, at), a->v_dim,
                                a->dtype, gate);
    }
    t->dout = w->dout_room, t->dout_ld = pad;
}

static void set_rows(work *w, int first)
{
    const ph_attn *a = w->call->attn;
    const ph_plan *plan = w->call->plan;
    ph_grad_block *t = &w->tile;
    int count = t->rows;
    t->q = find_rows(w, w->call->args->q, &a->q, a->qk_dim, plan->k_pad, first, count,
                     w->q_room, &t->q_ld);
    if (w->call->args->gate)
        gate_dout(w, first);
    else
        t->dout = find_rows(w, w->call->grads->dout, &plan->back.dout, a->v_dim,
                            plan->v_pad, first, count, w->dout_room, &t->dout_ld);
    set_sums(w, first, count);
}

/* What becomes of the tile's scores and weights. */
static void set_mods(work *w, int first)
{
    ph_head_span span = {w->rows, first, w->tile.rows, w->k0, w->tile.keys};
    w->tile.mods = ph_head_mods(w->call, &span, &w->arrays);
    w->tile.drop = ph_head_drop(w->call, &span, &w->arrays);
}

/* Whether a key is hidden from a row of the tile. */
static int tile_hides(const ph_grad_block *t)
{
    const ph_window *w = &t->window;
    return w->lo + (w->phase + t->rows - 1) / w->group > 0 || w->hi < t->keys;
}

/* Whether all that a hidden pair would multiply by 0 is finite. */
static int is_safe(work *w)
{
    const ph_kernels *k = w->call->kernels;
    const ph_plan *plan = w->call->plan;
    const ph_grad_block *t = &w->tile;
    int k_finite = -1, excludes = ph_head_excludes(w->call);
    if (w->call->attn->mask == PH_MASK_NONE && !excludes) return 1;
    for (int next, row = w->first; row < w->end; row = next) {
        next = set_window(w, row);
        if (!excludes && !tile_hides(t)) continue;
        set_rows(w, row);
        if (k_finite < 0) k_finite = k->finite(t->k, t->k_ld, t->keys, plan->k_pad);
        if (!k_finite || !k->finite(t->q, t->q_ld, t->rows, plan->k_pad) ||
            !k->finite(t->dout, t->dout_ld, t->rows, plan->v_pad))
            return 0;
    }
    return 1;
}

/* ---- where gradients go ---- */

/* dk or dv of the chunk: in its tensor, if one chain is all of it. */
static void set_key_sums(const work *w, ph_key_target target, key_sums *out)
{
    out->target = target;
    out->direct = !out->part || (stores_in_place(w->call->plan, target.dim, out->pad) &&
                                 w->end - w->first <= FLUSH_ROWS);
    if (out->sums && !out->direct)
        memset(out->sums, 0, (size_t)w->tile.keys * (size_t)out->pad * sizeof(float));
}

/* Where a tile's sums go: `done` rows are behind it; `last`: none comes after it. */
static void set_key_target(const key_sums *s, int done, int last, ph_grad_sum *to)
{
    to->to = s->direct || !s->target.base ? s->target.base : s->part;
    to->ld = s->direct ? s->target.time : s->pad;
    to->scale = s->direct && last ? s->target.scale : 1;
    to->how = done % FLUSH_ROWS ? PH_SUM_CONTINUE : PH_SUM_STORE;
}

/* Adds the sums of the last rows to those before. */
static void flush(const work *w, const key_sums *s)
{
    if (s->target.base && !s->direct && s->sums)
        w->call->kernels->axpy(w->tile.keys * s->pad, 1, s->part, s->sums);
}

/* Stores what is not in its tensor yet. */
static void store_keys(const work *w, const key_sums *s)
{
    int keys = w->tile.keys, all = ph_min(PH_CHUNK, w->call->attn->kv_len - w->k0);
    if (!s->direct)
        ph_store_keys(w->call, &s->target, 0, keys, s->sums ? s->sums : s->part);
    ph_store_keys(w->call, &s->target, keys, all, NULL);
}

static int dq_in_place(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    return plan->group == 1 &&
           (plan->chunks > 1 || stores_in_place(plan, a->qk_dim, plan->k_pad));
}

/* Where the kernel leaves the chunk's partial sums of dq of a tile. */
static void set_dq_target(const work *w, int first, const ph_dq_target *target,
                          ph_grad_sum *to)
{
    const ph_plan *plan = w->call->plan;
    int in_room = !dq_in_place(plan), store = target->how == PH_DQ_STORE;
    to->how = in_room || target->how != PH_DQ_ADD ? PH_SUM_STORE : PH_SUM_ADD;
    to->scale = store && !in_room ? plan->attn.scale : 1;
    to->ld = in_room ? plan->k_pad : target->time;
    if (!target->base)
        to->to = NULL;
    else
        to->to = in_room ? w->dq_room : (float *)target->base + first * target->time;
}

/* Brings what stands in scratch to its target. */
static void put_dq(const work *w, int first, const ph_dq_target *target)
{
    int group = w->rows->group, pad = w->call->plan->k_pad;
    if (!target->base || dq_in_place(w->call->plan)) return;
    for (int row = first; row < first + w->tile.rows; row++)
        ph_dq_put(w->call, target, row % group, row / group,
                  w->dq_room + (int64_t)(row - first) * pad);
}

/* Rows of dq that see no key of the only chunk, or of the first. */
static void clear_dq(const work *w, int first, int end, const ph_dq_target *target)
{
    int group = w->rows->group;
    if (!target->base || target->how == PH_DQ_ADD) return;
    for (int row = first; row < end; row++)
        ph_dq_clear(w->call, target, row % group, row / group);
}

/* ---- the chunk ---- */

/* Prefetches `count` rows of a tensor, if they are read in place. */
static void prefetch(work *w, int part, const void *base, const ph_strides *s, int64_t at,
                     int count, int dim, const float *room)
{
    if (room) return;
    ph_prefetch_rows(w->call, &w->tile.prefetch, part, base, s, at, count, dim);
}

/* While a tile runs it prefetches the rows of the next one, at the end of a chunk the
   keys of the next, and at the end of a head the next head. */
static void plan_prefetch(work *w, int next)
{
    const ph_attn *a = w->call->attn;
    const ph_args *args = w->call->args;
    const ph_strides *dout = &w->call->plan->back.dout;
    ph_grad_block *t = &w->tile;
    int rows = ph_min(PH_GRAD_BLOCK_ROWS, w->end - next), key = w->k0 + PH_CHUNK;
    int keys = ph_min(PH_CHUNK, w->rows->extent.kv_len - key);
    memset(&t->prefetch, 0, sizeof t->prefetch);
    if (t->dq.how == PH_SUM_ADD && t->dq.ld == a->qk_dim) {
        t->prefetch.part[0].at = (const char *)t->dq.to;
        t->prefetch.part[0].end = (const char *)(t->dq.to + (int64_t)t->rows * a->qk_dim);
    }
    if (next < w->end) {
        prefetch(w, 1, args->q, &a->q, row_at(w, next, &a->q), rows, a->qk_dim,
                 w->q_room);
        prefetch(w, 2, w->call->grads->dout, dout, row_at(w, next, dout), rows, a->v_dim,
                 w->dout_room);
    } else if (keys > 0) {
        prefetch(w, 1, args->k, &a->k, key_at(w, key, w->rows->k_head, &a->k), keys,
                 a->qk_dim, w->k_room);
        prefetch(w, 2, args->v, &a->v, key_at(w, key, w->rows->v_head, &a->v), keys,
                 a->v_dim, w->v_room);
    } else if (w->call->plan->group == 1) {
        ph_head_prefetch_next(w->call, w->rows, &t->prefetch);
    }
}

static void run_tiles(work *w, const ph_dq_target *target)
{
    const ph_kernels *k = w->call->kernels;
    ph_grad_block *t = &w->tile;
    for (int next, row = w->first; row < w->end; row = next) {
        next = set_window(w, row);
        set_rows(w, row);
        set_mods(w, row);
        set_key_target(&w->dk, row - w->first, next == w->end, &t->dk);
        set_key_target(&w->dv, row - w->first, next == w->end, &t->dv);
        set_dq_target(w, row, target, &t->dq);
        plan_prefetch(w, next);
        k->head_backward(t);
        put_dq(w, row, target);
        if ((next - w->first) % FLUSH_ROWS && next < w->end) continue;
        flush(w, &w->dk);
        flush(w, &w->dv);
    }
}

static void set_work(work *w, int pair, int chunk)
{
    const ph_call *call = w->call;
    const ph_plan *plan = call->plan;
    const ph_attn *a = call->attn;
    int clusters = a->q_heads / plan->cluster;
    ph_grad_block *t = &w->tile;
    ph_rows_begin(call, w->rows, pair / clusters, pair % clusters * plan->cluster,
                  plan->group);
    w->k0 = chunk * PH_CHUNK;
    t->keys = ph_min(PH_CHUNK, w->rows->extent.kv_len - w->k0);
    t->k_dim = a->qk_dim, t->v_dim = a->v_dim, t->scale = plan->scale2;
    if (!call->args->gate && rows_in_place(plan, &plan->back.dout, a->v_dim, plan->v_pad))
        w->dout_room = NULL;
}

int ph_head_chunk(const ph_call *call, const ph_deltas *deltas, ph_arena arena, int pair,
                  int chunk, ph_dq_target target)
{
    work w;
    if (!fits(call->plan)) return 0;
    take_work(call->plan, &arena, &w);
    w.call = call, w.deltas = deltas;
    set_work(&w, pair, chunk);
    if (w.tile.keys < 1 || !find_range(&w)) return 0;
    if (!ph_head_all_active(call, w.rows, w.first, w.end)) return 0;
    set_keys(&w);
    if (!is_safe(&w)) return 0;
    const ph_rows *rows = w.rows;
    set_key_sums(&w, ph_dk_target(call, rows->batch, rows->k_head, w.k0), &w.dk);
    set_key_sums(&w, ph_dv_target(call, rows->batch, rows->v_head, w.k0), &w.dv);
    run_tiles(&w, &target);
    store_keys(&w, &w.dk);
    store_keys(&w, &w.dv);
    clear_dq(&w, 0, w.first, &target);
    clear_dq(&w, w.end, call->attn->q_len * call->plan->group, &target);
    return 1;
}
