/*
 * joint.c - what the passes of the joint driver share: how work is cut, packed keys,
 * gathered rows, and the steps between the products on one joint block.
 */
#include "attn/joint.h"

#include <math.h>
#include <string.h>

enum {
    ROW_UNIT = 12,  /* rows come in multiples if they fit; a multiple of every mr */
    ROWS_MOST = 48, /* rows of an item or joint block */
    HELD_BUDGET =
        6 << 20, /* bytes of held joint blocks: more rows share one pass over the keys */
    UNIT_BUDGET = 64 << 20,    /* the same where ROW_UNIT rows take more */
    KEY_ITEM_BUDGET = 1 << 20, /* bytes of the joint blocks of a key item */
    PACK_BUDGET = 64 << 20,    /* bytes of packed keys at a time, ... */
    PACK_MOST = 1 << 30,       /* ... and at most where a batch row has more */
    WORKING_BLOCKS = 4         /* joint blocks in use at once, backward */
};

/* ---- how work is cut: by shape alone, so that bits do not depend on threads ---- */

static int fit(size_t budget, size_t row, int most)
{
    return budget / row < (size_t)most ? (int)(budget / row) : most;
}

/* Rows for which `buffers` times `blocks` joint blocks fit the budget. With many heads
   and keys that is less than a unit; one row is held in any case, so an item takes
   UNIT_BUDGET or one row, whichever is more. */
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

/* Blocks of keys that ROWS_MOST consecutive rows may see. */
static int choose_blocks(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int all = ph_div_up(a->kv_len, PH_BLOCK);
    if (a->mask != PH_MASK_BAND || a->band_left < 0 || a->band_right < 0) return all;
    int64_t span = (int64_t)a->band_left + a->band_right + ROWS_MOST;
    return span / PH_BLOCK + 2 < all ? (int)(span / PH_BLOCK) + 2 : all;
}

/* Buffers that a backward row item holds per block (ph_joint_grad_block). */
static int grad_buffers(const ph_plan *plan)
{
    const ph_variant_needs *needs = &plan->needs;
    return 2 + (needs->mix[PH_LOGITS] != 0) + needs->power + (plan->attn.softcap > 0);
}

/* Products read f32 rows of k in place if they need no padding. */
static int rows_in_place(const ph_plan *plan)
{
    return plan->attn.dtype == PH_F32 && plan->attn.qk_dim == plan->k_pad;
}

static size_t panel_floats(int dim)
{
    return (size_t)PH_BLOCK * (size_t)dim + PH_PACK_SLACK;
}

/* Batch rows whose packed keys fit the budget. With few rows, packing beforehand would
   only cost one more pass through memory; where the keys of one batch row exceed
   PACK_MOST, row items pack what they need. Key items, backward, read packed keys
   only. */
static int choose_wave(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int few_rows = a->q_len * plan->joint.per_token <= 2 * ROW_UNIT;
    size_t k =
        (size_t)a->k_heads * (panel_floats(a->qk_dim) + (size_t)plan->k_pad * PH_BLOCK);
    size_t v = (size_t)a->v_heads * panel_floats(a->v_dim);
    size_t row = (k + v) * (size_t)ph_max(plan->joint.key_blocks, 1) * sizeof(float);
    if (!a->backward && (few_rows || row > PACK_MOST)) return 0;
    return ph_max(fit(PACK_BUDGET, row, a->batch), 1);
}

void ph_joint_choose(ph_plan *plan)
{
    ph_joint_plan *j = &plan->joint;
    const ph_attn *a = &plan->attn;
    int mixes = plan->needs.mix[PH_LOGITS] || plan->needs.mix[PH_WEIGHTS];
    if (!mixes && !plan->needs.power) return;
    j->mixes = mixes;
    j->heads = mixes ? a->q_heads : 1;
    j->per_token = mixes ? 1 : plan->group;
    j->sets = mixes ? 1 : plan->groups;
    j->key_blocks = ph_div_up(a->kv_len, PH_BLOCK);
    j->blocks = choose_blocks(plan);
    j->rows = choose_rows(plan, 1, j->blocks, HELD_BUDGET);
    j->grad_rows = choose_rows(plan, grad_buffers(plan), j->blocks, 4 * HELD_BUDGET);
    j->key_item_rows = choose_rows(plan, WORKING_BLOCKS, 1, KEY_ITEM_BUDGET);
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
    size_t factors = 2 * (size_t)plan->needs.key_rank[place] + 1;
    if (!plan->needs.key_rank[place]) return 0;
    return factors * (size_t)plan->joint.heads * PH_BLOCK;
}

/* The variant's w1, w2, g of one block of keys; 0 after the last key. */
static void make_key_factors(const ph_call *call, int place, int batch, int j0, float *w)
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
        if (plan->needs.key_rank[p])
            out->key_factors[p] =
                ph_arena_floats(arena, blocks * ph_joint_mix_floats(plan, p));
    out->k_panels = ph_arena_floats(arena, k * panel_floats(a->qk_dim));
    if (!backward) return;
    out->v_panels = ph_arena_floats(arena, v * panel_floats(a->v_dim));
    if (!rows_in_place(plan))
        out->k_rows = ph_arena_floats(arena, k * PH_BLOCK * (size_t)plan->k_pad);
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
    const ph_keys k = ph_keys_k(call, batch, head);
    int64_t ld;
    size_t at = block_index(call, keys, a->k_heads, batch, head, j0);
    ph_keys_panels(&k, j0, 0, n, keys->k_panels + at * panel_floats(a->qk_dim));
    if (!keys->k_finite) return; /* forward */
    float *scratch = keys->k_rows ? keys->k_rows + at * PH_BLOCK * (size_t)k.pad : NULL;
    const float *rows = ph_keys_rows(&k, j0, 0, n, 1, scratch, &ld);
    keys->k_finite[at] = (uint8_t)call->kernels->finite(rows, ld, n, k.pad);
}

static void pack_v(const ph_call *call, ph_joint_keys *keys, int batch, int head, int j0,
                   int n)
{
    const ph_attn *a = call->attn;
    size_t at = block_index(call, keys, a->v_heads, batch, head, j0);
    float *panels = keys->v_panels + at * panel_floats(a->v_dim);
    int width = call->kernels->nr, end = ph_round_up(n, width);
    const ph_keys v = ph_keys_v(call, batch, head);
    ph_keys_panels(&v, j0, 0, n, panels);
    keys->v_finite[at] = (uint8_t)call->kernels->finite(
        panels, PH_LANES, end * a->v_dim / PH_LANES, PH_LANES);
}

static void pack_key_factors(const ph_call *call, ph_joint_keys *keys, int batch, int j0)
{
    size_t at = block_index(call, keys, 1, batch, 0, j0);
    for (int p = 0; p < 2; p++)
        if (keys->key_factors[p])
            make_key_factors(call, p, batch, j0,
                             keys->key_factors[p] +
                                 at * ph_joint_mix_floats(call->plan, p));
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
        pack_key_factors(call, job->keys, batch, j0);
    else if (job->keys->v_panels)
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
                        int head, int j0, int n, float *scratch)
{
    const ph_attn *a = call->attn;
    if (keys->k_panels)
        return keys->k_panels + block_index(call, keys, a->k_heads, batch, head, j0) *
                                    panel_floats(a->qk_dim);
    const ph_keys k = ph_keys_k(call, batch, head);
    ph_keys_panels(&k, j0, 0, n, scratch);
    return scratch;
}

const float *ph_joint_v(const ph_call *call, const ph_joint_keys *keys, int batch,
                        int head, int j0)
{
    const ph_attn *a = call->attn;
    return keys->v_panels +
           block_index(call, keys, a->v_heads, batch, head, j0) * panel_floats(a->v_dim);
}

const float *ph_joint_k_rows(const ph_call *call, const ph_joint_keys *keys, int batch,
                             int head, int j0, int64_t *ld)
{
    const ph_keys k = ph_keys_k(call, batch, head);
    size_t at = block_index(call, keys, call->attn->k_heads, batch, head, j0);
    *ld = keys->k_rows ? k.pad : k.strides->time;
    if (keys->k_rows) return keys->k_rows + at * PH_BLOCK * (size_t)k.pad;
    return ph_keys_at(&k, j0);
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
    int rank = ph_max(plan->needs.key_rank[0], plan->needs.key_rank[1]);
    *out = (ph_joint_rows){.heads = plan->joint.heads};
    out->rows = ph_arena_take(arena, heads * sizeof *out->rows);
    out->gated_off = ph_arena_take(arena, heads * PH_ROWS_MAX);
    for (int p = 0; p < 2; p++) {
        size_t floats = plan->needs.mix[p] ? (size_t)rows * square : 0;
        out->matrix[p] = ph_arena_floats(arena, floats);
        out->transposed[p] = backward ? ph_arena_floats(arena, floats) : NULL;
    }
    out->scratch = ph_arena_floats(arena, 2 * (size_t)rank * (size_t)rows * PH_LANES);
    out->alpha = ph_arena_take(arena, (size_t)plan->attn.q_heads * sizeof(double));
}

void ph_joint_matrices(const ph_call *call, ph_joint_rows *r)
{
    const ph_variant_needs *needs = &call->plan->needs;
    int n = r->heads;
    for (int p = 0; p < 2; p++)
        for (int i = 0; needs->mix[p] && i < r->count; i++) {
            float *c = r->matrix[p] + (int64_t)i * n * n;
            float *t = r->transposed[p] ? r->transposed[p] + (int64_t)i * n * n : NULL;
            call->plan->mixer->row_matrix(call, (ph_mix_at)p, r->batch,
                                          r->rows[0].token[i], c);
            for (int from = 0; t && from < n; from++)
                for (int to = 0; to < n; to++) t[to * n + from] = c[from * n + to];
        }
}

/* Mixed heads whose gate is 0 see no key. */
static void find_gated_off(const ph_call *call, ph_joint_rows *r)
{
    const ph_attn *a = call->attn;
    int mixes = call->plan->joint.mixes;
    r->uneven = mixes && ((call->args->visible && a->visible.heads > 1) ||
                          (call->args->bias && a->bias.heads > 1));
    memset(r->gated_off, 0, (size_t)r->heads * PH_ROWS_MAX);
    for (int h = 0; mixes && h < r->heads; h++)
        for (int i = 0; i < r->count; i++)
            if (!ph_rows_active(call, r->batch, h, r->rows[h].token[i]))
                r->gated_off[h * PH_ROWS_MAX + i] = 1, r->uneven = 1;
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
    find_gated_off(call, r);
    if (plan->needs.power)
        for (int h = 0; h < call->attn->q_heads; h++)
            r->alpha[h] = plan->norm->alpha(call, h);
    return next;
}

/* ---- joint blocks ---- */

int ph_joint_range(const ph_call *call, const ph_joint_rows *r, int j0, int rows,
                   ph_joint_block *t)
{
    *t = (ph_joint_block){.j0 = j0, .rows = rows};
    int seen = ph_rows_range(call, &r->rows[0], 0, r->count, j0, &t->c0, &t->c1);
    t->end = ph_round_up(t->c1, PH_LANES);
    return seen;
}

void ph_joint_key_factors(const ph_call *call, const ph_joint_keys *keys,
                          const ph_joint_rows *r, ph_joint_block *t,
                          float *const scratch[2])
{
    for (int p = 0; p < 2; p++) {
        if (!call->plan->needs.key_rank[p]) continue;
        if (keys->key_factors[p]) {
            t->keys[p] =
                keys->key_factors[p] + block_index(call, keys, 1, r->batch, 0, t->j0) *
                                           ph_joint_mix_floats(call->plan, p);
        } else {
            make_key_factors(call, p, r->batch, t->j0, scratch[p]);
            t->keys[p] = scratch[p];
        }
    }
}

/* w1, w2 and g of the key matrices, from column c0 on. */
typedef struct key_factors {
    const float *w1, *w2, *g;
} key_factors;

static key_factors find_key_factors(const ph_joint_rows *r, const ph_joint_block *t,
                                    const float *w, int rank)
{
    int64_t step = (int64_t)rank * r->heads * PH_BLOCK;
    return (key_factors){w + t->c0, w + step + t->c0, w + 2 * step + t->c0};
}

/* to = matrix^T x over the heads, for every row. */
static void mix_heads(const ph_call *call, const ph_joint_rows *r,
                      const ph_joint_block *t, ph_mix_at place, const float *matrix,
                      int transposed, const float *x, float *to)
{
    const ph_kernels *k = call->kernels;
    int heads = r->heads, n = t->end - t->c0, rank = call->plan->needs.key_rank[place];
    int64_t step = (int64_t)t->rows * PH_BLOCK;
    for (int i = 0; i < r->count; i++, matrix += heads * heads) {
        int64_t at = (int64_t)i * PH_BLOCK + t->c0;
        for (int h = 0; h < heads; h += k->mr)
            k->product(ph_min(k->mr, heads - h), n, heads, matrix + h, heads, x + at,
                       step, k->nr, to + h * step + at, step, 0, NULL);
        if (!rank) continue;
        key_factors w = find_key_factors(r, t, t->keys[place], rank);
        k->compose(heads, rank, n, transposed ? w.w2 : w.w1, transposed ? w.w1 : w.w2,
                   w.g, x + at, to + at, step);
    }
}

void ph_joint_mix(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                  ph_mix_at place, const float *in, float *out)
{
    mix_heads(call, r, t, place, r->matrix[place], 0, in, out);
}

void ph_joint_unmix(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                    ph_mix_at place, const float *dout, float *din)
{
    mix_heads(call, r, t, place, r->transposed[place], 1, dout, din);
}

void ph_joint_row_gradient(const ph_call *call, const ph_joint_rows *r,
                           const ph_joint_block *t, const float *in, const float *dout,
                           float *dc)
{
    int64_t step = (int64_t)t->rows * PH_BLOCK;
    for (int i = 0; i < r->count; i++, dc += r->heads * r->heads) {
        int64_t at = (int64_t)i * PH_BLOCK + t->c0;
        call->kernels->gram(r->heads, r->heads, t->end - t->c0, in + at, step, dout + at,
                            step, dc, r->heads);
    }
}

void ph_joint_key_gradient(const ph_call *call, const ph_joint_rows *r,
                           const ph_joint_block *t, ph_mix_at place, const float *in,
                           const float *dout, float *dw)
{
    int rank = call->plan->needs.key_rank[place];
    key_factors w = find_key_factors(r, t, t->keys[place], rank),
                d = find_key_factors(r, t, dw, rank);
    call->kernels->decompose(r->heads, rank, r->count, t->end - t->c0, w.w1, w.w2,
                             in + t->c0, dout + t->c0, (int64_t)t->rows * PH_BLOCK,
                             (float *)d.w1, (float *)d.w2, (float *)d.g, r->scratch);
}

void ph_joint_modify(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                     float *w, float *derivative)
{
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            float *row = w + ph_joint_at(t, h, i);
            ph_rows_modify(call, &r->rows[h], i, t->j0, t->c0, t->c1, row,
                           derivative ? derivative + ph_joint_at(t, h, i) : NULL);
            for (int c = t->c0; r->gated_off[h * PH_ROWS_MAX + i] && c < t->end; c++)
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
    int lost = 0, power = plan->needs.power;
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

void ph_joint_weights(const ph_call *call, const ph_joint_rows *r,
                      const ph_joint_block *t, const float *stat, float *w,
                      float *derivative)
{
    const ph_kernels *k = call->kernels;
    int n = t->end - t->c0;
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            int64_t at = ph_joint_at(t, h, i) + t->c0;
            float base = stat[h * t->rows + i];
            if (!call->plan->needs.power) {
                k->weights(n, w + at, base);
                continue;
            }
            ph_entmax e = ph_entmax_of(r->alpha[r->rows[h].head[i]]);
            k->entmax(n, w + at, derivative ? derivative + at : NULL, e.scale, base,
                      e.power);
        }
}

void ph_joint_drop(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                   float *scratch, float *w)
{
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            ph_rows_dropout(call, &r->rows[h], i, 1, t->j0, t->c0, t->c1, scratch);
            call->kernels->times(t->end - t->c0, w + ph_joint_at(t, h, i) + t->c0,
                                 scratch + t->c0);
        }
}

int ph_joint_sees(const ph_call *call, const ph_joint_rows *r, int h, int i, int j)
{
    if (h >= 0)
        return !r->gated_off[h * PH_ROWS_MAX + i] &&
               ph_rows_sees(call, &r->rows[h], i, j);
    for (h = 0; h < r->heads; h++)
        if (ph_joint_sees(call, r, h, i, j)) return 1;
    return 0;
}

void ph_joint_clear_masked(const ph_call *call, const ph_joint_rows *r,
                           const ph_joint_block *t, int all, float *w)
{
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++)
            for (int c = t->c0; c < t->end; c++)
                if (c >= t->c1 || !ph_joint_sees(call, r, all ? -1 : h, i, t->j0 + c))
                    w[ph_joint_at(t, h, i) + c] = 0;
}

void ph_joint_scores(const ph_call *call, const ph_joint_rows *r, const ph_joint_block *t,
                     const ph_joint_keys *keys, float *const *q, float *scratch, float *w)
{
    const ph_kernels *k = call->kernels;
    int dim = call->attn->qk_dim, n = ph_min(PH_BLOCK, r->rows[0].extent.kv_len - t->j0);
    for (int h = 0; h < r->heads; h++) {
        const float *panels =
            ph_joint_k(call, keys, r->batch, r->rows[h].k_head, t->j0, n, scratch);
        for (int i = 0; i < r->count; i += k->mr)
            k->scores(ph_min(k->mr, r->count - i), t->end - t->c0, dim,
                      q[h] + (int64_t)i * call->plan->k_pad, call->plan->k_pad,
                      panels + (int64_t)t->c0 * dim, w + ph_joint_at(t, h, i) + t->c0,
                      NULL);
    }
}
