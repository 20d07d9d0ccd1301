/*
 * joint.c - what the passes of the joint driver share: how work is cut, gathered rows,
 * and the steps between the products on one joint block.
 */
#include "attn/joint.h"

#include <math.h>
#include <string.h>

enum {
    ROW_UNIT = 12,  /* rows come in multiples if they fit; a multiple of every mr */
    ROWS_MOST = 48, /* rows of an item or joint block */
    HELD_BUDGET =
        6 << 20, /* bytes of held joint blocks: more rows share one pass over the keys */
    GRAD_BUDGET = 24 << 20, /* the same of a backward item */
    /* Where ROW_UNIT rows take more than that, of all threads together: */
    SHARED_BUDGET = 64 << 20,
    GRAD_SHARED_BUDGET = 256 << 20,
    WAVE_BUDGET = 64 << 20,   /* bytes of keys packed beforehand, ... */
    PACK_BUDGET = 288 << 20,  /* ... and of a single batch row: 8192 of 32 heads of 128 */
    WORKING_BUDGET = 1 << 20, /* bytes of the joint blocks of one block of keys */
    WORKING_BLOCKS = 4        /* joint blocks in use at once, backward */
};

/* ---- how work is cut ----

   Rows of items by shape alone, so that bits do not depend on threads; what is held,
   shared or packed changes no bit. */

static int fit(size_t budget, size_t row, int most)
{
    return budget / row < (size_t)most ? (int)(budget / row) : most;
}

/* Bytes of one row of `buffers` times `blocks` joint blocks. */
static size_t row_bytes(const ph_plan *plan, int buffers, int blocks)
{
    return (size_t)buffers * (size_t)plan->joint.heads * (size_t)ph_max(blocks, 1) *
           PH_BLOCK * sizeof(float);
}

/* At most all rows there are, in whole units. */
static int limit_rows(const ph_plan *plan, int rows)
{
    int all = ph_round_up(plan->attn.q_len * plan->joint.per_token, ROW_UNIT);
    return ph_min(rows, ph_max(all, ROW_UNIT));
}

/* Rows, in whole units, that fit the budget; 0: not even a unit does. */
static int fit_units(const ph_plan *plan, size_t row, size_t budget)
{
    return limit_rows(plan, fit(budget, row, ROWS_MOST) / ROW_UNIT * ROW_UNIT);
}

/* Forward items; of a ragged batch as if it were one sequence. */
static int64_t count_items(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    const ph_joint_plan *j = &plan->joint;
    int64_t sequences = a->ragged ? 1 : a->batch;
    int64_t rows = (int64_t)(a->ragged ? a->q_total : a->q_len) * j->per_token;
    return sequences * j->sets * ((rows + j->rows - 1) / j->rows);
}

/* Forward items hold the logits of their rows against all keys. Where a unit of rows
   exceeds HELD_BUDGET, fewer are held, and threads share an item if one each exceeds
   SHARED_BUDGET. One row is held in any case. */
static void choose_rows(ph_plan *plan)
{
    ph_joint_plan *j = &plan->joint;
    size_t row = row_bytes(plan, 1, j->blocks), threads = (size_t)plan->ctx->threads;
    int all = plan->attn.q_len * j->per_token;
    j->rows = fit_units(plan, row, HELD_BUDGET);
    int long_rows = !j->rows;
    if (long_rows) j->rows = ph_max(ph_min(fit(SHARED_BUDGET, row, ROW_UNIT), all), 1);
    int64_t items = count_items(plan);
    int too_much = long_rows && threads * (size_t)j->rows * row > SHARED_BUDGET;
    j->together = j->blocks > 1 && threads > 1 && (items < (int64_t)threads || too_much);
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

/* Backward row items hold their joint blocks between the two passes over the keys, or
   recompute them: two more products, and bounded memory at any length. Items that pack
   keys themselves take many rows, so that a block is packed for all of them. */
static void choose_grad_rows(ph_plan *plan)
{
    ph_joint_plan *j = &plan->joint;
    size_t row = row_bytes(plan, grad_buffers(plan), j->blocks);
    size_t threads = (size_t)plan->ctx->threads;
    int units = fit_units(plan, row, GRAD_BUDGET);
    j->key_item_rows =
        fit_units(plan, row_bytes(plan, WORKING_BLOCKS, 1), WORKING_BUDGET);
    if (!j->key_item_rows) j->key_item_rows = ROW_UNIT;
    j->grad_rows = units ? units : ROW_UNIT;
    int hold = units || threads * ROW_UNIT * row <= GRAD_SHARED_BUDGET;
    if (!j->grad_wave) j->grad_rows = limit_rows(plan, ROWS_MOST), hold = 0;
    j->grad_blocks = hold ? j->blocks : 1;
}

/* Batch rows whose keys are packed at once. Where one exceeds PACK_BUDGET, items pack
   what they need, block by block. */
static int fit_wave(const ph_plan *plan, int backward)
{
    ph_arena arena = {0};
    ph_joint_keys keys;
    ph_joint_span span = ph_joint_batch_rows(plan, 0, 1);
    ph_joint_keys_take(plan, &arena, &span, backward, &keys);
    if (arena.used > PACK_BUDGET || !arena.used) return 0;
    return ph_max(fit(WAVE_BUDGET, arena.used, plan->attn.batch), 1);
}

/* With few rows, packing beforehand would only cost one more pass through memory. */
static void choose_waves(ph_plan *plan)
{
    ph_joint_plan *j = &plan->joint;
    int few_rows = plan->attn.q_len * j->per_token <= 2 * ROW_UNIT;
    j->wave = few_rows ? 0 : fit_wave(plan, 0);
    j->grad_wave = plan->attn.backward ? fit_wave(plan, 1) : 0;
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
    choose_rows(plan);
    choose_waves(plan);
    choose_grad_rows(plan);
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
    int lines = a->ragged ? 1 : a->batch, len = a->ragged ? a->q_total : a->q_len;
    for (int line = 0; line < lines * a->q_heads; line++) {
        double alpha = power ? plan->norm->alpha(call, line % a->q_heads) : 1;
        for (int i = 0; i < len; i++, lse++, stat++) {
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
