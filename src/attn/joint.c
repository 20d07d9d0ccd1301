/*
 * joint.c - what the passes of the joint driver share: how work is cut, packed keys,
 * gathered rows, and the steps between the products on one tile.
 */
#include "attn/joint.h"

#include <math.h>
#include <string.h>

enum {
    ROW_UNIT = 12,  /* rows come in multiples if they fit; a multiple of every mr */
    ROWS_MOST = 48, /* rows of an item or tile */
    HELD_BUDGET =
        6 << 20, /* bytes of held tiles: more rows share one trip over the keys */
    UNIT_BUDGET = 64 << 20, /* the same where they are more for ROW_UNIT rows */
    TILE_BUDGET = 1 << 20,  /* bytes of the tiles of a key item */
    PACK_BUDGET = 64 << 20, /* bytes of packed keys that may be alive at once, ... */
    PACK_MOST = 1 << 30,    /* ... and at most where a batch row has more */
    KEEP_TILES = 4          /* tiles at work in a backward pass */
};

/* ---- how work is cut: by shape alone, so that bits do not depend on threads ---- */

static int fit(size_t budget, size_t row, int most)
{
    return budget / row < (size_t)most ? (int)(budget / row) : most;
}

/* As many rows as `buffers` tiles of `blocks` keys each may have. Many heads and keys
   leave room for less than a unit; a single row is held whatever it takes, so an item
   takes UNIT_BUDGET or one row, whichever is more. */
static int choose_rows(const ph_plan *plan, int buffers, int blocks, size_t budget)
{
    const ph_joint_plan *j = &plan->joint;
    size_t row = (size_t)buffers * (size_t)j->heads * (size_t)ph_max(blocks, 1) *
                 PH_BLOCK * sizeof(float);
    int all = plan->attn.q_len * j->per_token;
    int rows = fit(budget, row, ROWS_MOST) / ROW_UNIT * ROW_UNIT;
    if (!rows) rows = fit(UNIT_BUDGET, row, ROW_UNIT);
    return ph_max(ph_min(rows, ph_round_up(all, rows < ROW_UNIT ? 1 : ROW_UNIT)), 1);
}

/* Blocks of keys that ROWS_MOST rows next to each other may see. */
static int choose_blocks(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int all = ph_div_up(a->kv_len, PH_BLOCK);
    if (a->mask != PH_MASK_BAND || a->band_left < 0 || a->band_right < 0) return all;
    int64_t span = (int64_t)a->band_left + a->band_right + ROWS_MOST;
    return span / PH_BLOCK + 2 < all ? (int)(span / PH_BLOCK) + 2 : all;
}

/* Tiles that a backward row item holds of every block (ph_joint_tiles). */
static int grad_tiles(const ph_plan *plan)
{
    const ph_asks *asks = &plan->asks;
    return 2 + (asks->mix[PH_LOGITS] != 0) + asks->power + (plan->attn.softcap > 0);
}

/* Rows of k are what products want where they are floats without a ragged edge. */
static int along_in_place(const ph_plan *plan)
{
    return plan->attn.dtype == PH_F32 && plan->attn.qk_dim == plan->k_pad;
}

static size_t across_floats(int dim)
{
    return (size_t)PH_BLOCK * (size_t)dim + PH_PACK_SLACK;
}

/* Batch rows whose packed keys fit the budget. With few rows packing beforehand would
   only be one more trip through memory; where the keys of one batch row are far too many,
   row items pack what they need. Key items, backward, read packed keys only. */
static int choose_wave(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int few = a->q_len * plan->joint.per_token <= 2 * ROW_UNIT;
    size_t k =
        (size_t)a->k_heads * (across_floats(a->qk_dim) + (size_t)plan->k_pad * PH_BLOCK);
    size_t v = (size_t)a->v_heads * across_floats(a->v_dim);
    size_t row = (k + v) * (size_t)ph_max(plan->joint.key_blocks, 1) * sizeof(float);
    if (!a->backward && (few || row > PACK_MOST)) return 0;
    return ph_max(fit(PACK_BUDGET, row, a->batch), 1);
}

void ph_joint_choose(ph_plan *plan)
{
    ph_joint_plan *j = &plan->joint;
    const ph_attn *a = &plan->attn;
    int mixes = plan->asks.mix[PH_LOGITS] || plan->asks.mix[PH_WEIGHTS];
    if (!mixes && !plan->asks.power) return;
    j->mixes = mixes;
    j->heads = mixes ? a->q_heads : 1;
    j->per_token = mixes ? 1 : plan->group;
    j->sets = mixes ? 1 : plan->groups;
    j->key_blocks = ph_div_up(a->kv_len, PH_BLOCK);
    j->blocks = choose_blocks(plan);
    j->rows = choose_rows(plan, 1, j->blocks, HELD_BUDGET);
    j->grad_rows = choose_rows(plan, grad_tiles(plan), j->blocks, 4 * HELD_BUDGET);
    j->tile_rows = choose_rows(plan, KEEP_TILES, 1, TILE_BUDGET);
    j->wave = choose_wave(plan);
    int64_t items =
        (int64_t)a->batch * j->sets * ph_div_up(a->q_len * j->per_token, j->rows);
    j->together = items < plan->ctx->threads && j->blocks > 1;
}

/* ---- keys ---- */

static size_t block_index(const ph_call *call, const ph_joint_keys *keys, int heads,
                          int batch, int head, int j0)
{
    size_t plane = (size_t)(batch - keys->first) * (size_t)heads + (size_t)head;
    return plane * (size_t)call->plan->joint.key_blocks + (size_t)(j0 / PH_BLOCK);
}

size_t ph_joint_mix_floats(const ph_plan *plan, int place)
{
    size_t parts = 2 * (size_t)plan->asks.key_rank[place] + 1;
    if (!plan->asks.key_rank[place]) return 0;
    return parts * (size_t)plan->joint.heads * PH_BLOCK;
}

/* The variant's numbers of one block of keys; 0 behind the last key. */
static void make_part(const ph_call *call, int place, int batch, int j0, float *w)
{
    int n = ph_min(PH_BLOCK, ph_rows_extent(call, batch).kv_len - j0);
    memset(w, 0, ph_joint_mix_floats(call->plan, place) * sizeof(float));
    call->plan->mixer->key_weights(call, (ph_mix_at)place, batch, j0, n, w);
}

void ph_joint_keys_take(const ph_plan *plan, ph_arena *arena, int backward,
                        ph_joint_keys *out)
{
    const ph_attn *a = &plan->attn;
    size_t blocks = (size_t)plan->joint.wave * (size_t)plan->joint.key_blocks;
    size_t k = blocks * (size_t)a->k_heads, v = blocks * (size_t)a->v_heads;
    *out = (ph_joint_keys){0};
    if (!plan->joint.wave) return;
    for (int p = 0; p < 2; p++)
        if (plan->asks.key_rank[p])
            out->parts[p] = ph_arena_floats(arena, blocks * ph_joint_mix_floats(plan, p));
    out->k_across = ph_arena_floats(arena, k * across_floats(a->qk_dim));
    if (!backward) return;
    out->v_across = ph_arena_floats(arena, v * across_floats(a->v_dim));
    if (!along_in_place(plan))
        out->k_along = ph_arena_floats(arena, k * PH_BLOCK * (size_t)plan->k_pad);
    out->k_finite = ph_arena_take(arena, k);
    out->v_finite = ph_arena_take(arena, v);
}

typedef struct pack_job {
    const ph_call *call;
    ph_joint_keys *keys;
    int rows; /* batch rows of the wave */
} pack_job;

static void pack_k(const ph_call *call, ph_joint_keys *keys, int batch, int head, int j0,
                   int n)
{
    const ph_attn *a = call->attn;
    int pad = call->plan->k_pad;
    int64_t ld;
    size_t at = block_index(call, keys, a->k_heads, batch, head, j0);
    ph_keys_across(call, call->args->k, &a->k, batch, head, a->qk_dim, j0, 0, n,
                   keys->k_across + at * across_floats(a->qk_dim));
    if (!keys->k_finite) return; /* forward */
    float *room = keys->k_along ? keys->k_along + at * PH_BLOCK * (size_t)pad : NULL;
    const float *along = ph_keys_along(call, call->args->k, &a->k, batch, head, a->qk_dim,
                                       pad, j0, 0, n, 1, room, &ld);
    keys->k_finite[at] = (uint8_t)call->kernels->finite(along, ld, n, pad);
}

static void pack_v(const ph_call *call, ph_joint_keys *keys, int batch, int head, int j0,
                   int n)
{
    const ph_attn *a = call->attn;
    size_t at = block_index(call, keys, a->v_heads, batch, head, j0);
    float *panels = keys->v_across + at * across_floats(a->v_dim);
    int width = call->kernels->nr, end = ph_round_up(n, width);
    ph_keys_across(call, call->args->v, &a->v, batch, head, a->v_dim, j0, 0, n, panels);
    keys->v_finite[at] = (uint8_t)call->kernels->finite(
        panels, PH_LANES, end * a->v_dim / PH_LANES, PH_LANES);
}

static void pack_parts(const ph_call *call, ph_joint_keys *keys, int batch, int j0)
{
    size_t at = block_index(call, keys, 1, batch, 0, j0);
    for (int p = 0; p < 2; p++)
        if (keys->parts[p])
            make_part(call, p, batch, j0,
                      keys->parts[p] + at * ph_joint_mix_floats(call->plan, p));
}

static void pack_item(void *arg, int lane, int index)
{
    const pack_job *job = arg;
    const ph_call *call = job->call;
    const ph_attn *a = call->attn;
    int blocks = call->plan->joint.key_blocks, heads = a->k_heads + a->v_heads + 1;
    int j0 = index % blocks * PH_BLOCK, plane = index / blocks;
    int batch = job->keys->first + plane / heads, head = plane % heads;
    int n = ph_min(PH_BLOCK, ph_rows_extent(call, batch).kv_len - j0);
    (void)lane;
    if (n <= 0) return;
    if (head < a->k_heads)
        pack_k(call, job->keys, batch, head, j0, n);
    else if (head == heads - 1)
        pack_parts(call, job->keys, batch, j0);
    else if (job->keys->v_across)
        pack_v(call, job->keys, batch, head - a->k_heads, j0, n);
}

void ph_joint_keys_pack(const ph_call *call, ph_joint_keys *keys, int first)
{
    const ph_attn *a = call->attn;
    const ph_joint_plan *j = &call->plan->joint;
    pack_job job = {.call = call, .keys = keys};
    keys->first = first;
    job.rows = ph_min(j->wave, a->batch - first);
    if (j->wave)
        ph_ctx_run(call->plan->ctx,
                   job.rows * (a->k_heads + a->v_heads + 1) * j->key_blocks, pack_item,
                   &job);
}

const float *ph_joint_k(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0, int n, float *room)
{
    const ph_attn *a = call->attn;
    if (keys->k_across)
        return keys->k_across + block_index(call, keys, a->k_heads, batch, head, j0) *
                                    across_floats(a->qk_dim);
    ph_keys_across(call, call->args->k, &a->k, batch, head, a->qk_dim, j0, 0, n, room);
    return room;
}

const float *ph_joint_v(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0)
{
    const ph_attn *a = call->attn;
    return keys->v_across +
           block_index(call, keys, a->v_heads, batch, head, j0) * across_floats(a->v_dim);
}

const float *ph_joint_k_along(const ph_call *call, const ph_joint_keys *keys, int batch,
                              int head, int j0, int64_t *ld)
{
    const ph_strides *s = &call->attn->k;
    size_t at = block_index(call, keys, call->attn->k_heads, batch, head, j0);
    *ld = keys->k_along ? call->plan->k_pad : s->time;
    if (keys->k_along) return keys->k_along + at * PH_BLOCK * (size_t)call->plan->k_pad;
    return (const float *)call->args->k + batch * s->batch + head * s->head +
           j0 * s->time;
}

int ph_joint_k_finite(const ph_call *call, const ph_joint_keys *keys, int batch, int head,
                      int j0)
{
    return keys->k_finite[block_index(call, keys, call->attn->k_heads, batch, head, j0)];
}

int ph_joint_v_finite(const ph_call *call, const ph_joint_keys *keys, int batch, int head,
                      int j0)
{
    return keys->v_finite[block_index(call, keys, call->attn->v_heads, batch, head, j0)];
}

/* ---- rows ---- */

void ph_joint_rows_take(const ph_plan *plan, ph_arena *arena, int rows, int backward,
                        ph_joint_rows *out)
{
    size_t heads = (size_t)plan->joint.heads, square = heads * heads;
    int rank = ph_max(plan->asks.key_rank[0], plan->asks.key_rank[1]);
    *out = (ph_joint_rows){.heads = plan->joint.heads};
    out->rows = ph_arena_take(arena, heads * sizeof *out->rows);
    out->silent = ph_arena_take(arena, heads * PH_ROWS_MAX);
    for (int p = 0; p < 2; p++) {
        size_t floats = plan->asks.mix[p] ? (size_t)rows * square : 0;
        out->matrix[p] = ph_arena_floats(arena, floats);
        out->turned[p] = backward ? ph_arena_floats(arena, floats) : NULL;
    }
    out->spare = ph_arena_floats(arena, 2 * (size_t)rank * (size_t)rows * PH_LANES);
    out->alpha = ph_arena_take(arena, (size_t)plan->attn.q_heads * sizeof(double));
}

void ph_joint_matrices(const ph_call *call, ph_joint_rows *r)
{
    const ph_asks *asks = &call->plan->asks;
    int n = r->heads;
    for (int p = 0; p < 2; p++)
        for (int i = 0; asks->mix[p] && i < r->count; i++) {
            float *c = r->matrix[p] + (int64_t)i * n * n;
            float *t = r->turned[p] ? r->turned[p] + (int64_t)i * n * n : NULL;
            call->plan->mixer->row_matrix(call, (ph_mix_at)p, r->batch,
                                          r->rows[0].token[i], c);
            for (int from = 0; t && from < n; from++)
                for (int to = 0; to < n; to++) t[to * n + from] = c[from * n + to];
        }
}

/* Mixed heads whose gate is 0 count as rows that see no key. */
static void find_silent(const ph_call *call, ph_joint_rows *r)
{
    const ph_attn *a = call->attn;
    int mixes = call->plan->joint.mixes;
    r->uneven = mixes && ((call->args->visible && a->visible.heads > 1) ||
                          (call->args->bias && a->bias.heads > 1));
    memset(r->silent, 0, (size_t)r->heads * PH_ROWS_MAX);
    for (int h = 0; mixes && h < r->heads; h++)
        for (int i = 0; i < r->count; i++)
            if (!ph_rows_active(call, r->batch, h, r->rows[h].token[i]))
                r->silent[h * PH_ROWS_MAX + i] = 1, r->uneven = 1;
}

int ph_joint_gather(const ph_call *call, ph_joint_rows *r, int batch, int set, int first,
                    int end, int most)
{
    const ph_plan *plan = call->plan;
    int next;
    r->batch = batch;
    if (!plan->joint.mixes) {
        ph_rows_begin(call, r->rows, batch, set * plan->group, plan->group);
        next = ph_rows_gather(call, r->rows, first, end, most);
    } else {
        next = ph_min(first + most, end);
        for (int h = 0; h < r->heads; h++) {
            ph_rows_begin(call, &r->rows[h], batch, h, 1);
            ph_rows_all(call, &r->rows[h], first, next);
        }
    }
    r->count = r->rows[0].count, r->low = r->rows[0].low, r->high = r->rows[0].high;
    find_silent(call, r);
    if (plan->asks.power)
        for (int h = 0; h < call->attn->q_heads; h++)
            r->alpha[h] = plan->norm->alpha(call, h);
    return next;
}

/* ---- tiles ---- */

int ph_joint_range(const ph_call *call, const ph_joint_rows *r, int j0, int rows,
                   ph_joint_tile *t)
{
    *t = (ph_joint_tile){.j0 = j0, .rows = rows};
    int seen = ph_rows_range(call, &r->rows[0], 0, r->count, j0, &t->c0, &t->c1);
    t->end = ph_round_up(t->c1, PH_LANES);
    return seen;
}

void ph_joint_key_parts(const ph_call *call, const ph_joint_keys *keys,
                        const ph_joint_rows *r, ph_joint_tile *t, float *const room[2])
{
    for (int p = 0; p < 2; p++) {
        if (!call->plan->asks.key_rank[p]) continue;
        if (keys->parts[p]) {
            t->keys[p] = keys->parts[p] + block_index(call, keys, 1, r->batch, 0, t->j0) *
                                              ph_joint_mix_floats(call->plan, p);
        } else {
            make_part(call, p, r->batch, t->j0, room[p]);
            t->keys[p] = room[p];
        }
    }
}

/* w1, w2 and g of the key part, at column c0 of the tile. */
typedef struct key_part {
    const float *w1, *w2, *g;
} key_part;

static key_part find_part(const ph_joint_rows *r, const ph_joint_tile *t, const float *w,
                          int rank)
{
    int64_t step = (int64_t)rank * r->heads * PH_BLOCK;
    return (key_part){w + t->c0, w + step + t->c0, w + 2 * step + t->c0};
}

/* to = matrix^T x over the heads, for every row of the tile. */
static void mix_heads(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                      ph_mix_at place, const float *matrix, int back, const float *x,
                      float *to)
{
    const ph_kernels *k = call->kernels;
    int heads = r->heads, n = t->end - t->c0, rank = call->plan->asks.key_rank[place];
    int64_t step = (int64_t)t->rows * PH_BLOCK;
    for (int i = 0; i < r->count; i++, matrix += heads * heads) {
        int64_t at = (int64_t)i * PH_BLOCK + t->c0;
        for (int h = 0; h < heads; h += k->mr)
            k->product(ph_min(k->mr, heads - h), n, heads, matrix + h, heads, x + at,
                       step, k->nr, to + h * step + at, step, 0, NULL);
        if (!rank) continue;
        key_part w = find_part(r, t, t->keys[place], rank);
        k->compose(heads, rank, n, back ? w.w2 : w.w1, back ? w.w1 : w.w2, w.g, x + at,
                   to + at, step);
    }
}

void ph_joint_mix(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                  ph_mix_at place, const float *in, float *out)
{
    mix_heads(call, r, t, place, r->matrix[place], 0, in, out);
}

void ph_joint_unmix(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                    ph_mix_at place, const float *dout, float *din)
{
    mix_heads(call, r, t, place, r->turned[place], 1, dout, din);
}

void ph_joint_row_part(const ph_call *call, const ph_joint_rows *r,
                       const ph_joint_tile *t, const float *in, const float *dout,
                       float *dc)
{
    int64_t step = (int64_t)t->rows * PH_BLOCK;
    for (int i = 0; i < r->count; i++, dc += r->heads * r->heads) {
        int64_t at = (int64_t)i * PH_BLOCK + t->c0;
        call->kernels->gram(r->heads, r->heads, t->end - t->c0, in + at, step, dout + at,
                            step, dc, r->heads);
    }
}

void ph_joint_key_part(const ph_call *call, const ph_joint_rows *r,
                       const ph_joint_tile *t, ph_mix_at place, const float *in,
                       const float *dout, float *dw)
{
    int rank = call->plan->asks.key_rank[place];
    key_part w = find_part(r, t, t->keys[place], rank), d = find_part(r, t, dw, rank);
    call->kernels->decompose(r->heads, rank, r->count, t->end - t->c0, w.w1, w.w2,
                             in + t->c0, dout + t->c0, (int64_t)t->rows * PH_BLOCK,
                             (float *)d.w1, (float *)d.w2, (float *)d.g, r->spare);
}

void ph_joint_modify(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                     float *w, float *slope)
{
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            float *row = w + ph_joint_at(t, h, i);
            ph_rows_modify(call, &r->rows[h], i, t->j0, t->c0, t->c1, row,
                           slope ? slope + ph_joint_at(t, h, i) : NULL);
            for (int c = t->c0; r->silent[h * PH_ROWS_MAX + i] && c < t->end; c++)
                row[c] = -INFINITY;
        }
}

static float stat_of_lse(float lse)
{
    return lse == -INFINITY ? INFINITY : (float)(lse * PH_LOG2E);
}

int ph_joint_stats(const ph_call *call, float *stat)
{
    const ph_attn *a = call->attn;
    const ph_plan *plan = call->plan;
    const float *lse = call->args->lse;
    int lost = 0, power = plan->asks.power;
    for (int head = 0; head < a->batch * a->q_heads; head++) {
        double alpha = power ? plan->norm->alpha(call, head % a->q_heads) : 1;
        for (int i = 0; i < a->q_len; i++, lse++, stat++) {
            *stat =
                power ? ph_entmax_base_of(ph_entmax_of(alpha), *lse) : stat_of_lse(*lse);
            lost |= power && ph_entmax_is_lost(alpha, *lse);
        }
    }
    return lost;
}

void ph_joint_weights(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                      const float *stat, float *w, float *slope)
{
    const ph_kernels *k = call->kernels;
    int n = t->end - t->c0;
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            int64_t at = ph_joint_at(t, h, i) + t->c0;
            float base = stat[h * t->rows + i];
            if (!call->plan->asks.power) {
                k->weights(n, w + at, base);
                continue;
            }
            ph_entmax e = ph_entmax_of(r->alpha[r->rows[h].head[i]]);
            k->entmax(n, w + at, slope ? slope + at : NULL, e.scale, base, e.power);
        }
}

void ph_joint_drop(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                   float *room, float *w)
{
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            ph_rows_dropout(call, &r->rows[h], i, 1, t->j0, t->c0, t->c1, room);
            call->kernels->times(t->end - t->c0, w + ph_joint_at(t, h, i) + t->c0,
                                 room + t->c0);
        }
}

int ph_joint_sees(const ph_call *call, const ph_joint_rows *r, int h, int i, int j)
{
    if (h >= 0)
        return !r->silent[h * PH_ROWS_MAX + i] && ph_rows_sees(call, &r->rows[h], i, j);
    for (h = 0; h < r->heads; h++)
        if (ph_joint_sees(call, r, h, i, j)) return 1;
    return 0;
}

void ph_joint_scrub(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                    int all, float *w)
{
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++)
            for (int c = t->c0; c < t->end; c++)
                if (c >= t->c1 || !ph_joint_sees(call, r, all ? -1 : h, i, t->j0 + c))
                    w[ph_joint_at(t, h, i) + c] = 0;
}

void ph_joint_scores(const ph_call *call, const ph_joint_rows *r, const ph_joint_tile *t,
                     const ph_joint_keys *keys, float *const *q, float *room, float *w)
{
    const ph_kernels *k = call->kernels;
    int dim = call->attn->qk_dim, n = ph_min(PH_BLOCK, r->rows[0].extent.kv_len - t->j0);
    for (int h = 0; h < r->heads; h++) {
        const float *panels =
            ph_joint_k(call, keys, r->batch, r->rows[h].k_head, t->j0, n, room);
        for (int i = 0; i < r->count; i += k->mr)
            k->scores(ph_min(k->mr, r->count - i), t->end - t->c0, dim,
                      q[h] + (int64_t)i * call->plan->k_pad, call->plan->k_pad,
                      panels + (int64_t)t->c0 * dim, w + ph_joint_at(t, h, i) + t->c0,
                      NULL);
    }
}
