/*
 * online.c - the online softmax: blocks, splits, merging, the final division.
 */
#include "attn/online.h"

#include <math.h>
#include <string.h>

#include "attn/online_amx.h"
#include "kernels/sink.h"

void ph_running_take(const ph_plan *plan, ph_arena *arena, int rows, ph_running *out)
{
    out->row_max = ph_arena_floats(arena, (size_t)rows);
    out->sum = ph_arena_floats(arena, (size_t)rows * PH_LANES);
    if (plan->bf16_pairs && rows > PH_AMX_TILE) rows = ph_round_up(rows, PH_AMX_TILE);
    out->acc = ph_arena_floats(arena, (size_t)rows * (size_t)plan->v_pad);
}

/* Packed operands: bf16 for AMX, or f32. */
static void take_operands(const ph_plan *plan, ph_arena *arena, int rows, ph_online *out)
{
    if (plan->bf16_pairs) {
        ph_online_amx_take(plan, arena, rows, &out->amx);
        return;
    }
    out->q = ph_arena_floats(arena, ph_scores_q_floats(plan, rows));
    out->k = ph_arena_floats(arena, ph_scores_k_floats(plan, PH_BLOCK));
    out->v = ph_arena_floats(arena, (size_t)PH_BLOCK * (size_t)plan->v_pad);
}

void ph_online_take(const ph_plan *plan, ph_arena *arena, int rows, int splits,
                    ph_online *out)
{
    size_t height = (size_t)plan->strip, strip = height * PH_STRIP_LD;
    out->rows = ph_arena_take(arena, sizeof *out->rows);
    take_operands(plan, arena, rows, out);
    ph_running_take(plan, arena, rows, &out->split);
    out->whole = out->split;
    if (splits > 1) ph_running_take(plan, arena, rows, &out->whole);
    out->scores = ph_arena_floats(arena, strip);
    out->drop = ph_arena_floats(arena, plan->drop_limit ? strip : 0);
    out->lane_max = ph_arena_floats(arena, height * PH_LANES);
    out->rescale = ph_arena_floats(arena, height);
    out->started = ph_arena_take(arena, (size_t)ph_div_up(rows, plan->strip));
}

void ph_online_begin(const ph_call *call, ph_online *st)
{
    if (call->plan->bf16_pairs) {
        ph_online_amx_begin(call, st);
        return;
    }
    st->packed = 0;
}

/* Packs q of the rows before `end` on first use, so that its cache misses are spread over
   the strips. */
static void pack_queries(const ph_call *call, ph_online *st, int end)
{
    const ph_attn *a = call->attn;
    const void *from[PH_ROWS_MAX];
    int first = st->packed, count = end - first, pad = call->plan->k_pad;
    if (count <= 0) return;
    ph_rows_pointers(call, st->rows, first, count, call->args->q, &a->q, from);
    call->kernels->pack_row_major(st->q + (int64_t)first * pad, pad, from, count,
                                  a->qk_dim, a->dtype, call->plan->scale2);
    st->packed = end;
}

void ph_running_reset(int rows, ph_running *r)
{
    for (int i = 0; i < rows; i++) r->row_max[i] = -INFINITY;
    memset(r->sum, 0, (size_t)rows * PH_LANES * sizeof(float));
}

/* acc += p v where v of a key hidden from some row is NaN or Inf: hidden keys are
   skipped, because 0 * NaN is NaN. Same order, same bits. */
static void multiply_visible(const ph_call *call, const ph_online *st, int first, int m,
                             int j0, int c0, int c1, const float *v, int64_t ld,
                             const float *rescale)
{
    int pad = call->plan->v_pad;
    for (int i = 0; i < m; i++) {
        float *acc = st->split.acc + (int64_t)(first + i) * pad;
        for (int c = 0; c < pad; c++) acc[c] = rescale ? acc[c] * rescale[i] : 0;
        for (int c = c0; c < c1; c++)
            if (ph_rows_sees(call, st->rows, first + i, j0 + c))
                call->kernels->axpy(pad, st->scores[i * PH_STRIP_LD + c], v + c * ld,
                                    acc);
    }
}

/* The factor gate / sum and the lse of up to PH_LANES rows. */
static void finish_sums(const ph_call *call, const ph_rows *rows, int first, int n,
                        const ph_running *result, float *factor, float *lse)
{
    const ph_args *args = call->args;
    float sum[PH_LANES] = {0};
    call->kernels->lane_sums(n, result->sum + first * PH_LANES, sum);
    for (int i = 0; i < PH_LANES; i++) lse[i] = sum[i] > 0 ? sum[i] : 1;
    call->kernels->logs(PH_LANES, lse);
    for (int i = 0; i < n; i++) {
        int r = first + i;
        float gate = ph_rows_gate(call, rows->batch, rows->head[r], rows->token[r]);
        float row_max = result->row_max[r];
        factor[i] = sum[i] == 0 ? 0 : gate / sum[i]; /* 0: no visible key */
        lse[i] = (float)((double)row_max * PH_LN2 + lse[i]);
        if (sum[i] == 0) lse[i] = -INFINITY;
        if (isnan(sum[i])) lse[i] = NAN;
        if (args->sink) ph_add_sink(args->sink[rows->head[r]], &lse[i], &factor[i]);
    }
}

/* One block of keys, shared by all strips. */
typedef struct key_block {
    int j0, c0, c1; /* keys j0 + [c0, c1) are packed */
    int k_packed;   /* 0: k is used once, in place or converted on the way */
    const float *v; /* row of key j0 + c at v + c * ld; NULL: not packed */
    int64_t ld;
    int v_finite;         /* -1: not checked yet */
    ph_prefetch prefetch; /* what strips prefetch for the next block */
} key_block;

static int v_is_finite(const ph_call *call, key_block *b)
{
    if (b->v_finite < 0)
        b->v_finite = call->kernels->finite(b->v + b->c0 * b->ld, b->ld, b->c1 - b->c0,
                                            call->plan->v_pad);
    return b->v_finite;
}

/* Scores of a single strip, with k read in place. */
static void scores_in_place(const ph_call *call, const ph_score_strip *t, const float *q)
{
    const ph_keys k = ph_keys_k(call, t->rows->batch, t->rows->k_head);
    for (int c = t->c0, n; c < t->c1; c += n) {
        int j = t->j0 + c;
        n = ph_min(t->c1 - c, ph_key_run(call, j));
        int further = ph_min(PH_LANES, t->rows->high - (j + n));
        call->kernels->scores_in_place(
            t->m, n, k.dim, q, k.pad, ph_keys_at(&k, j), k.strides->time, k.type,
            further > 0 ? ph_keys_at(&k, j + n) : NULL, further, t->s + c, t->lane_max);
    }
}

/* Keys of a single strip that are multiplied at a time where they are not f32 in place:
   meanwhile those that the next step reads are prefetched. */
enum { FEW_KEYS = 32 };

/* How many keys from c on lie one stride apart, up to FEW_KEYS and c1. */
static int few_keys(const ph_call *call, int j0, int c, int c1)
{
    return ph_min(ph_min(FEW_KEYS, c1 - c), ph_key_run(call, j0 + c));
}

/* The same for k of a block type, or in pages that 16 keys may straddle: as a product of
   few rows. v of the block is prefetched. */
static void scores_few_keys(const ph_call *call, const ph_score_strip *t, const float *q)
{
    const ph_keys k = ph_keys_k(call, t->rows->batch, t->rows->k_head);
    const ph_keys v = ph_keys_v(call, t->rows->batch, t->rows->v_head);
    int end = ph_round_up(t->c1, PH_LANES);
    for (int i = 0; i < t->m; i++)
        memset(t->s + i * PH_STRIP_LD + t->c0, 0, (size_t)(end - t->c0) * sizeof(float));
    for (int c = t->c0, n; c < t->c1; c += n) {
        n = few_keys(call, t->j0, c, t->c1);
        ph_keys_prefetch_all(&v, t->j0 + c, n);
        call->kernels->product_few_rows_t(t->m, n, k.dim, q, k.pad,
                                          ph_keys_at(&k, t->j0 + c), k.strides->time,
                                          k.type, t->s + c, PH_STRIP_LD);
    }
    for (int i = 0; i < t->m; i++)
        call->kernels->row_lane_max(end - t->c0, t->s + i * PH_STRIP_LD + t->c0,
                                    t->lane_max + i * PH_LANES);
}

/* ph_rows_scores of a single strip, with k not packed. */
static int scores_unpacked(const ph_call *call, const ph_score_strip *t, const float *q)
{
    for (int i = 0; i < t->m * PH_LANES; i++) t->lane_max[i] = -INFINITY;
    if (ph_dtype_is_block(ph_kv_type(call->attn)) || call->attn->page_len % PH_LANES)
        scores_few_keys(call, t, q);
    else
        scores_in_place(call, t, q);
    return ph_rows_mask(call, t);
}

static void drop_weights(const ph_call *call, ph_online *st, const ph_score_strip *t)
{
    int n = ph_round_up(t->c1, PH_LANES) - t->c0;
    ph_rows_dropout(call, t->rows, t->first, t->m, t->j0, t->c0, t->c1, st->drop);
    for (int i = 0; i < t->m; i++)
        call->kernels->times(n, t->s + i * PH_STRIP_LD + t->c0,
                             st->drop + i * PH_STRIP_LD + t->c0);
}

static void pack_values(const ph_call *call, ph_online *st, key_block *b)
{
    const ph_keys v = ph_keys_v(call, st->rows->batch, st->rows->v_head);
    int one_strip = st->rows->count <= call->kernels->mr; /* packing would not pay */
    b->v = ph_keys_rows(&v, b->j0, b->c0, b->c1, one_strip, st->v, &b->ld);
}

/* acc += p v of a single strip, as a product of few rows. k of the next block is
   prefetched. */
static void multiply_v_few_keys(const ph_call *call, ph_online *st, const key_block *b,
                                int m, int c0, int c1, const float *rescale)
{
    const ph_keys k = ph_keys_k(call, st->rows->batch, st->rows->k_head);
    const ph_keys v = ph_keys_v(call, st->rows->batch, st->rows->v_head);
    int pad = call->plan->v_pad;
    for (int i = 0; i < m; i++)
        for (int c = 0; c < pad; c++) {
            float *acc = st->split.acc + i * pad + c;
            *acc = rescale ? *acc * rescale[i] : 0;
        }
    for (int c = c0, n; c < c1; c += n) {
        n = few_keys(call, b->j0, c, c1);
        ph_keys_prefetch_all(&k, b->j0 + c + PH_BLOCK, n);
        call->kernels->product_few_rows(m, v.dim, n, st->scores + c, PH_STRIP_LD,
                                        ph_keys_at(&v, b->j0 + c), v.strides->time,
                                        v.type, st->split.acc, pad);
    }
}

static void run_strip(const ph_call *call, ph_online *st, key_block *b, int first)
{
    const ph_kernels *k = call->kernels;
    int m = ph_min(k->mr, st->rows->count - first), pad = call->plan->v_pad, c0, c1;
    if (!ph_rows_range(call, st->rows, first, m, b->j0, &c0, &c1)) return;
    pack_queries(call, st, first + m);
    ph_score_strip t = {st->rows,   first,        m,   b->j0, c0, c1,
                        st->scores, st->lane_max, NULL};
    int hidden = b->k_packed ? ph_rows_scores(call, &t, st->q, st->k)
                             : scores_unpacked(call, &t, st->q);
    k->softmax(m, ph_round_up(c1, PH_LANES) - c0, st->scores + c0, st->lane_max,
               st->split.row_max + first, st->split.sum + first * PH_LANES, st->rescale);
    if (call->plan->drop_limit) drop_weights(call, st, &t);
    uint8_t *started = &st->started[first / k->mr];
    const float *rescale = *started ? st->rescale : NULL;
    *started = 1;
    if (hidden && !b->v) pack_values(call, st, b);
    if (!b->v)
        multiply_v_few_keys(call, st, b, m, c0, c1, rescale);
    else if (hidden && !v_is_finite(call, b))
        multiply_visible(call, st, first, m, b->j0, c0, c1, b->v, b->ld, rescale);
    else
        k->multiply_v(m, pad, c1 - c0, st->scores + c0, b->v + c0 * b->ld, b->ld,
                      st->split.acc + (int64_t)first * pad, pad, rescale,
                      ph_prefetch_take(&b->prefetch, (int64_t)pad * (c1 - c0)));
}

/* What strips prefetch during a block: v of the next block; with more than one strip also
   the rest of q, k of the next block, and during the last block the rows of out. */
static void plan_prefetch(const ph_call *call, const ph_online *st, key_block *b)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    const ph_rows *rows = st->rows;
    int j = b->j0 + PH_BLOCK, keys = ph_min(PH_BLOCK, rows->high - j);
    int mr = call->kernels->mr;
    const ph_keys k = ph_keys_k(call, rows->batch, rows->k_head);
    const ph_keys v = ph_keys_v(call, rows->batch, rows->v_head);
    ph_keys_prefetch(&v, j, keys, &b->prefetch, 2);
    if (rows->count <= mr) return;
    ph_keys_prefetch(&k, j, keys, &b->prefetch, 1);
    if (rows->group > 1) return;
    if (st->packed == 0)
        ph_prefetch_rows(&b->prefetch, 0, args->q, a->dtype, &a->q,
                         ph_rows_at(call, rows, mr, &a->q), rows->count - mr, a->qk_dim);
    if (keys <= 0)
        ph_prefetch_rows(&b->prefetch, 1, args->out, a->dtype, &a->out,
                         ph_rows_at(call, rows, 0, &a->out), rows->count, a->v_dim);
}

/* The values of a page that begins with the block, which are needed after its keys; and
   the keys of the next page, unless one or two rows wait for memory anyway. */
static void prefetch_pages(const ph_call *call, const ph_rows *rows, int j0)
{
    const ph_keys k = ph_keys_k(call, rows->batch, rows->k_head);
    const ph_keys v = ph_keys_v(call, rows->batch, rows->v_head);
    ph_keys_prefetch_page(&v, j0, PH_LANES, 0);
    if (rows->count > PH_FEW_ROWS)
        ph_keys_prefetch_page(&k, j0 + PH_BLOCK, 2 * PH_LANES, 1);
}

/* Packs k and v of the block. With few rows k is used too rarely to pay for packing. */
static void pack_block(const ph_call *call, ph_online *st, key_block *b)
{
    const ph_rows *rows = st->rows;
    const ph_keys v = ph_keys_v(call, rows->batch, rows->v_head);
    b->k_packed = rows->count > call->kernels->few_rows;
    if (!b->k_packed) prefetch_pages(call, rows, b->j0);
    if (b->k_packed)
        ph_scores_pack_k(call, rows->batch, rows->k_head, b->j0, b->c0, b->c1, st->k);
    int in_place = v.type == PH_F32 && v.dim == v.pad &&
                   ph_keys_adjoin(&v, b->j0 + b->c0, b->c1 - b->c0);
    if (b->k_packed || in_place) pack_values(call, st, b);
    plan_prefetch(call, st, b);
}

void ph_online_run(const ph_call *call, ph_online *st, int first, int end)
{
    const ph_rows *rows = st->rows;
    const ph_bf16_pairs *pairs = call->plan->bf16_pairs;
    int nr = pairs ? PH_AMX_STEP : call->kernels->nr;
    ph_running_reset(rows->count, &st->split);
    memset(st->started, 0, (size_t)ph_div_up(rows->count, call->plan->strip));
    first = ph_max(first, rows->low / PH_BLOCK * PH_BLOCK);
    end = ph_min(end, rows->high);
    if (pairs) pairs->begin(ph_min(rows->count, PH_AMX_TILE));
    for (int j0 = first; j0 < end; j0 += PH_BLOCK) {
        key_block b = {.j0 = j0, .c1 = ph_min(end - j0, PH_BLOCK), .v_finite = -1};
        int v_normal = 0, strip = call->plan->strip;
        if (rows->low > j0) b.c0 = (rows->low - j0) / nr * nr;
        if (pairs)
            v_normal = ph_online_amx_pack(call, st, b.j0, b.c0, b.c1);
        else
            pack_block(call, st, &b);
        for (int r = 0; r < rows->count; r += strip)
            if (pairs)
                ph_online_amx_strip(call, st, j0, v_normal, r);
            else
                run_strip(call, st, &b, r);
    }
    if (pairs) pairs->end();
}

static float add_lanes(const ph_call *call, const float *lanes)
{
    static const float ones[PH_LANES] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    return call->kernels->dot(PH_LANES, lanes, ones);
}

/* Whether a row has seen a key. row_max may lose a NaN, the sum does not. */
static int has_seen(const ph_call *call, const ph_running *running, int i)
{
    return running->row_max[i] != -INFINITY ||
           add_lanes(call, running->sum + i * PH_LANES) != 0;
}

/* Up to PH_LANES rows of ph_online_merge: one call of the exp2 kernel for all. */
static void merge_rows(const ph_call *call, int first, int n, ph_running *into,
                       const ph_running *partial)
{
    const ph_kernels *k = call->kernels;
    int pad = call->plan->v_pad;
    float row_max[PH_LANES], a[PH_LANES] = {0}, b[PH_LANES] = {0};
    for (int i = 0; i < n; i++) {
        float x = into->row_max[first + i], y = partial->row_max[first + i];
        row_max[i] = x > y ? x : y;
        a[i] = x - row_max[i], b[i] = y - row_max[i];
    }
    k->weights(PH_LANES, a, 0);
    k->weights(PH_LANES, b, 0);
    for (int i = 0; i < n; i++) {
        int r = first + i;
        float *sum = into->sum + r * PH_LANES, *acc = into->acc + (int64_t)r * pad;
        const float *more = partial->sum + r * PH_LANES,
                    *add = partial->acc + (int64_t)r * pad;
        if (!has_seen(call, partial, r)) continue;
        int begun = has_seen(call, into, r);
        into->row_max[r] = row_max[i];
        if (begun) {
            k->blend(PH_LANES, sum, a[i], more, b[i]);
            k->blend(pad, acc, a[i], add, b[i]);
        } else {
            memcpy(sum, more, PH_LANES * sizeof(float));
            memcpy(acc, add, (size_t)pad * sizeof(float));
        }
    }
}

void ph_online_merge(const ph_call *call, int rows, ph_running *into,
                     const ph_running *partial)
{
    for (int first = 0; first < rows; first += PH_LANES)
        merge_rows(call, first, ph_min(PH_LANES, rows - first), into, partial);
}

void ph_online_finish(const ph_call *call, const ph_rows *rows, ph_running *result)
{
    const ph_attn *a = call->attn;
    size_t pad = (size_t)call->plan->v_pad;
    float factor[PH_LANES], lse[PH_LANES];
    for (int first = 0; first < rows->count; first += PH_LANES) {
        int n = ph_min(PH_LANES, rows->count - first);
        finish_sums(call, rows, first, n, result, factor, lse);
        for (int i = 0; i < n; i++) {
            int r = first + i;
            float *acc = result->acc + (size_t)r * pad;
            void *out =
                ph_at_out(call->args->out, a->dtype, ph_rows_at(call, rows, r, &a->out));
            if (factor[i] == 0 && !has_seen(call, result, r))
                memset(acc, 0, pad * sizeof(float));
            if (call->args->lse) call->args->lse[ph_rows_index(call, rows, r)] = lse[i];
            call->kernels->store_row(out, acc, a->v_dim, a->dtype, factor[i]);
        }
    }
}

void ph_online_clear(const ph_call *call, const ph_rows *rows, int first, int end)
{
    const ph_attn *a = call->attn;
    size_t bytes = (size_t)a->v_dim * ph_dtype_size(a->dtype);
    if (!call->args->gate) first = ph_max(first, rows->extent.q_len * rows->group);
    for (int row = first; row < end; row++) {
        int token = row / rows->group, head = rows->head0 + row % rows->group;
        if (token < rows->extent.q_len && ph_rows_active(call, rows->batch, head, token))
            continue;
        int64_t at = ph_row_at(call, &a->out, rows->batch, head, token);
        int64_t index = ph_row_index(call, rows->batch, head, token);
        memset(ph_at_out(call->args->out, a->dtype, at), 0, bytes);
        if (call->args->lse) call->args->lse[index] = -INFINITY;
    }
}
