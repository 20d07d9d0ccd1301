/*
 * online_amx.c - one strip of rows against one block of keys, on AMX tiles.
 */
#include "attn/online_amx.h"

#include <math.h>

#include "base/half.h"

enum { TILE = PH_AMX_TILE * PH_AMX_STEP }; /* elements */

void ph_online_amx_take(const ph_plan *plan, ph_arena *arena, int rows,
                        ph_amx_operands *out)
{
    const size_t element = sizeof(uint16_t),
                 strips = (size_t)ph_div_up(rows, PH_AMX_TILE);
    out->q = ph_arena_take(arena, strips * PH_AMX_TILE * (size_t)plan->k_steps * element);
    out->q_panel = ph_arena_take(arena, PH_AMX_TILE * (size_t)plan->k_steps * element);
    out->k = ph_arena_floats(arena, ph_scores_k_floats(plan, PH_BLOCK));
    out->v = ph_arena_take(arena, PH_BLOCK * (size_t)plan->v_pad * element);
    out->terms = ph_arena_take(arena, PH_BLOCK / PH_AMX_STEP *
                                          (size_t)(PH_BF16_TERMS * TILE) * element);
}

/* A single strip uses each key once, so k is multiplied in place if qk_dim is a multiple
   of a step. */
static int keys_in_place(const ph_call *call, const ph_online *st)
{
    const ph_attn *a = call->attn;
    return st->rows->count <= PH_AMX_TILE && a->qk_dim % PH_AMX_STEP == 0 &&
           a->page_len % PH_AMX_TILE == 0;
}

void ph_online_amx_begin(const ph_call *call, ph_online *st)
{
    const ph_attn *a = call->attn;
    const void *from[PH_AMX_TILE];
    for (int r = 0; r < st->rows->count; r += PH_AMX_TILE) {
        int m = ph_min(PH_AMX_TILE, st->rows->count - r);
        ph_rows_pointers(call, st->rows, r, m, call->args->q, &a->q, from);
        call->plan->bf16_pairs->pack_rows(st->amx.q + (int64_t)r * call->plan->k_steps,
                                          from, m, a->qk_dim);
    }
    if (!keys_in_place(call, st)) return;
    ph_rows_pointers(call, st->rows, 0, st->rows->count, call->args->q, &a->q, from);
    call->plan->bf16_pairs->pack_panel(st->amx.q_panel, from, st->rows->count, a->qk_dim,
                                       0);
}

/* With so few rows, packing v takes longer than the product. */
static int values_in_place(const ph_call *call, const ph_online *st, int j, int keys)
{
    return st->rows->count <= PH_FEW_ROWS && call->attn->v_dim % PH_AMX_STEP == 0 &&
           keys <= ph_key_run(call, j);
}

/* Packs v of keys j0 + [c0, c1). Subnormal and non-finite elements become 0; returns 1 if
   there are none. */
static int pack_values(const ph_call *call, ph_online *st, int j0, int c0, int c1)
{
    const ph_plan *plan = call->plan;
    const ph_keys values = ph_keys_v(call, st->rows->batch, st->rows->v_head);
    const void *from[PH_AMX_STEP];
    int all_normal = 1;
    for (int c = c0; c < c1; c += PH_AMX_STEP) {
        int n = ph_min(PH_AMX_STEP, c1 - c);
        uint16_t *v = st->amx.v + (int64_t)c * plan->v_pad;
        ph_keys_pointers(&values, j0 + c, n, from);
        if (plan->bf16_pairs->pack_pairs(v, from, n, values.dim,
                                         ph_keys_next_block(&values, j0 + c)))
            continue;
        all_normal = 0;
        for (int i = 0; i < PH_AMX_STEP * plan->v_pad; i++)
            if (!ph_is_normal(v[i])) v[i] = 0;
    }
    return all_normal;
}

int ph_online_amx_pack(const ph_call *call, ph_online *st, int j0, int c0, int c1)
{
    const ph_rows *rows = st->rows;
    int in_place = keys_in_place(call, st) ? c1 / PH_AMX_TILE * PH_AMX_TILE : 0;
    st->amx.in_place = in_place;
    ph_scores_pack_k(call, rows->batch, rows->k_head, j0, ph_max(c0, in_place), c1,
                     st->amx.k);
    st->amx.v_in_place = values_in_place(call, st, j0 + c0, c1 - c0);
    return st->amx.v_in_place || pack_values(call, st, j0, c0, c1);
}

/* Weight c of row i, from its terms. */
static float weight(const uint16_t *terms, int i, int c)
{
    const uint16_t *high =
        terms + c / PH_AMX_STEP * PH_BF16_TERMS * TILE + i * PH_AMX_STEP;
    int at = c % PH_AMX_TILE * 2 + c % PH_AMX_STEP / PH_AMX_TILE;
    float sum = 0;
    for (int p = PH_BF16_TERMS - 1; p >= 0; p--) sum += ph_from_bf16(high[p * TILE + at]);
    return sum;
}

/* Adds the products with the elements of v that ph_online_amx_pack replaced by 0, for
   visible keys only. They come after the others: NaN and Inf do not depend on the order,
   and subnormals are below the rounding of nearly every sum. */
static void add_left_out(const ph_call *call, ph_online *st, int first, int m, int j0,
                         int c0, int c1)
{
    const ph_keys values = ph_keys_v(call, st->rows->batch, st->rows->v_head);
    const void *keys[PH_BLOCK];
    ph_keys_pointers(&values, j0 + c0, c1 - c0, keys);
    for (int i = 0; i < m; i++) {
        float *acc = st->split.acc + (int64_t)(first + i) * call->plan->v_pad;
        for (int c = 0; c < c1 - c0; c++) {
            const uint16_t *v = keys[c];
            if (!ph_rows_sees(call, st->rows, first + i, j0 + c0 + c)) continue;
            for (int d = 0; d < values.dim; d++)
                if (!ph_is_normal(v[d]))
                    acc[d] += weight(st->amx.terms, i, c) * ph_from_bf16(v[d]);
        }
    }
}

/* Scores of columns [c0, c1), multiples of 16, and their lane_max. */
static void strip_scores(const ph_call *call, ph_online *st, int j0, int first, int m,
                         int c0, int c1)
{
    const ph_plan *plan = call->plan;
    const ph_amx_operands *t = &st->amx;
    const ph_keys k = ph_keys_k(call, st->rows->batch, st->rows->k_head);
    int in_place = ph_max(c0, ph_min(t->in_place, c1));
    for (int i = 0; i < m * PH_LANES; i++) st->lane_max[i] = -INFINITY;
    for (int c = c0, n; c < in_place; c += n) {
        n = ph_min(in_place - c, ph_key_run(call, j0 + c));
        plan->bf16_pairs->scores_in_place(
            m, n, plan->k_steps, t->q_panel, ph_keys_at(&k, j0 + c), k.strides->time,
            ph_keys_next_block(&k, j0 + c), plan->scale2, st->scores + c, st->lane_max);
    }
    if (c1 > in_place)
        plan->bf16_pairs->scores(
            m, c1 - in_place, plan->k_steps, t->q + (int64_t)first * plan->k_steps,
            (const uint16_t *)(t->k + (int64_t)in_place * plan->k_floats), plan->scale2,
            st->scores + in_place, st->lane_max);
}

/* The strip against v in place; returns 0 if v has subnormal or non-finite elements. */
static int attend_in_place(const ph_call *call, const ph_online *st,
                           const ph_strip *strip, int j, int keys)
{
    const ph_keys v = ph_keys_v(call, st->rows->batch, st->rows->v_head);
    return call->plan->bf16_pairs->attend_in_place(
        strip, ph_keys_at(&v, j), v.strides->time, keys, ph_keys_next_block(&v, j));
}

void ph_online_amx_strip(const ph_call *call, ph_online *st, int j0, int v_normal,
                         int first)
{
    const ph_plan *plan = call->plan;
    const ph_bf16_pairs *k = plan->bf16_pairs;
    const ph_amx_operands *t = &st->amx;
    int m = ph_min(PH_AMX_TILE, st->rows->count - first), pad = plan->v_pad, c0, c1;
    if (!ph_rows_range(call, st->rows, first, m, j0, &c0, &c1)) return;
    int n = ph_round_up(c1, PH_LANES) - c0, drop = plan->drop_limit != 0;
    strip_scores(call, st, j0, first, m, c0, c0 + n);
    ph_score_strip masked = {st->rows,   first,        m,   j0, c0, c1,
                             st->scores, st->lane_max, NULL};
    ph_rows_mask(call, &masked);
    if (drop) ph_rows_dropout(call, st->rows, first, m, j0, c0, c1, st->drop);
    uint8_t *started = &st->started[first / PH_AMX_TILE];
    ph_strip strip = {.m = m,
                      .n = n,
                      .s = st->scores + c0,
                      .lane_max = st->lane_max,
                      .drop = drop ? st->drop + c0 : NULL,
                      .row_max = st->split.row_max + first,
                      .sum = st->split.sum + first * PH_LANES,
                      .rescale = st->rescale,
                      .terms = t->terms,
                      .keep = !v_normal,
                      .v = t->v + (int64_t)c0 * pad,
                      .width = pad,
                      .fresh = !*started,
                      .c = st->split.acc + (int64_t)first * pad,
                      .ldc = pad};
    *started = 1;
    if (t->v_in_place) {
        if (attend_in_place(call, st, &strip, j0 + c0, c1 - c0)) return;
        strip.keep = !(v_normal = pack_values(call, st, j0, c0, c1));
    }
    k->attend(&strip);
    if (!v_normal) add_left_out(call, st, first, m, j0, c0, c1);
}
