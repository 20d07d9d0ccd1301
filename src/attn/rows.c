/*
 * rows.c - gathers query rows, packs operands, computes masked scores.
 */
#include "attn/rows.h"

#include <math.h>

#include "base/rng.h"

ph_extent ph_rows_extent(const ph_call *call, int batch)
{
    const ph_attn *a = call->attn;
    const ph_args *args = call->args;
    ph_extent e = {.q_size = a->q_len, .kv_size = a->kv_len};
    if (a->ragged) e.q_size = args->q_offsets[batch + 1] - args->q_offsets[batch];
    if (a->ragged == PH_RAGGED_ALL)
        e.kv_size = call->kv_offsets[batch + 1] - call->kv_offsets[batch];
    e.q_len = args->q_lens ? args->q_lens[batch] : e.q_size;
    e.kv_len = args->kv_lens ? args->kv_lens[batch] : e.kv_size;
    if (a->anchor == PH_ANCHOR_OFFSET) e.offset = a->q_offset;
    if (a->anchor == PH_ANCHOR_END) e.offset = (int64_t)e.kv_len - e.q_len;
    return e;
}

void ph_rows_window(const ph_attn *attn, const ph_extent *extent, int token, int64_t *lo,
                    int64_t *hi)
{
    int64_t position = token + extent->offset;
    int left = attn->mask == PH_MASK_BAND ? attn->band_left : -1;
    int right = attn->mask == PH_MASK_BAND ? attn->band_right : -1;
    if (attn->mask == PH_MASK_CAUSAL) right = 0;
    *lo = left >= 0 ? position - left : INT64_MIN / 2; /* half: sums do not overflow */
    *hi = right >= 0 ? position + right + 1 : INT64_MAX / 2;
}

void ph_rows_interval(const ph_attn *attn, const ph_extent *extent, int token, int *lo,
                      int *hi)
{
    int64_t low, high;
    ph_rows_window(attn, extent, token, &low, &high);
    if (low < 0) low = 0;
    if (high > extent->kv_len) high = extent->kv_len;
    if (low >= high) low = high = 0; /* sees nothing */
    *lo = (int)low, *hi = (int)high;
}

float ph_rows_gate(const ph_call *call, int batch, int head, int token)
{
    const ph_attn *a = call->attn;
    const float *gate = call->args->gate;
    if (!gate) return 1;
    if (a->gate == PH_GATE_HEAD) return gate[head];
    return gate[ph_row_index(call, batch, head, token)];
}

int ph_rows_active(const ph_call *call, int batch, int head, int token)
{
    return ph_rows_gate(call, batch, head, token) != 0;
}

void ph_rows_begin(const ph_call *call, ph_rows *rows, int batch, int head0, int group)
{
    rows->batch = batch;
    rows->head0 = head0;
    rows->group = group;
    rows->k_head = head0 / call->plan->per_k;
    rows->v_head = head0 / call->plan->per_v;
    rows->extent = ph_rows_extent(call, batch);
    rows->count = rows->low = rows->high = rows->all_lo = rows->all_hi = 0;
}

/* Union and intersection of the intervals of the first n rows. */
static void combine_intervals(ph_rows *rows, int n)
{
    int low = INT32_MAX, high = 0;
    rows->all_lo = 0, rows->all_hi = INT32_MAX;
    for (int r = 0; r < n; r++) {
        if (rows->hi[r] > 0) low = ph_min(low, rows->lo[r]);
        high = ph_max(high, rows->hi[r]);
        rows->all_lo = ph_max(rows->all_lo, rows->lo[r]);
        rows->all_hi = ph_min(rows->all_hi, rows->hi[r]);
    }
    rows->low = high ? low : 0;
    rows->high = high;
}

int ph_rows_gather(const ph_call *call, ph_rows *rows, int first, int end, int most)
{
    int n = 0, row = first, gated = call->args->gate != NULL, lo, hi;
    int token = first / rows->group, head = first % rows->group;
    int alike = call->attn->mask == PH_MASK_NONE; /* all rows see the same keys */
    ph_rows_interval(call->attn, &rows->extent, token, &lo, &hi);
    end = (int)((int64_t)rows->extent.q_len * rows->group < end
                    ? (int64_t)rows->extent.q_len * rows->group
                    : end);
    for (; row < end && n < most; row++, head++) {
        if (head == rows->group) head = 0, token++;
        if (gated && !ph_rows_active(call, rows->batch, rows->head0 + head, token))
            continue;
        rows->token[n] = token, rows->head[n] = rows->head0 + head;
        if (!alike) ph_rows_interval(call->attn, &rows->extent, token, &lo, &hi);
        rows->lo[n] = lo, rows->hi[n] = hi;
        n++;
    }
    rows->count = n;
    combine_intervals(rows, alike ? ph_min(n, 1) : n);
    return row;
}

void ph_rows_all(const ph_call *call, ph_rows *rows, int first, int end)
{
    int n = 0;
    for (int token = first; token < ph_min(end, rows->extent.q_len); token++, n++) {
        rows->token[n] = token, rows->head[n] = rows->head0;
        ph_rows_interval(call->attn, &rows->extent, token, &rows->lo[n], &rows->hi[n]);
    }
    rows->count = n;
    combine_intervals(rows, n);
}

void ph_rows_pointers(const ph_call *call, const ph_rows *rows, int first, int count,
                      const void *base, const ph_strides *strides, const void **out)
{
    ph_dtype type = call->attn->dtype;
    for (int r = 0; r < count; r++)
        out[r] = ph_at(base, type, ph_rows_at(call, rows, first + r, strides));
}

void ph_rows_pack_q(const ph_call *call, const ph_rows *rows, float scale, float *dst)
{
    const ph_attn *a = call->attn;
    const void *from[PH_ROWS_MAX];
    ph_rows_pointers(call, rows, 0, rows->count, call->args->q, &a->q, from);
    call->kernels->pack_row_major(dst, call->plan->k_pad, from, rows->count, a->qk_dim,
                                  a->dtype, scale);
}

size_t ph_scores_q_floats(const ph_plan *plan, int rows)
{
    size_t strips = (size_t)ph_div_up(rows, plan->kernels->mr);
    return strips * (size_t)plan->q_floats;
}

void ph_scores_pack_q(const ph_call *call, const ph_rows *rows, float *dst)
{
    const ph_attn *a = call->attn;
    const ph_plan *plan = call->plan;
    const void *from[PH_MR_MAX];
    int mr = call->kernels->mr;
    if (!plan->bf16_pairs) {
        ph_rows_pack_q(call, rows, plan->scale2, dst);
        return;
    }
    for (int r = 0; r < rows->count; r += mr, dst += plan->q_floats) {
        int m = ph_min(mr, rows->count - r);
        ph_rows_pointers(call, rows, r, m, call->args->q, &a->q, from);
        plan->bf16_pairs->pack_rows((uint16_t *)dst, from, m, a->qk_dim);
    }
}

int ph_rows_range(const ph_call *call, const ph_rows *rows, int first, int m, int j0,
                  int *c0, int *c1)
{
    int low = INT32_MAX, high = 0,
        nr = call->plan->bf16_pairs ? PH_AMX_STEP : call->kernels->nr;
    *c0 = 0, *c1 = PH_BLOCK;
    if (ph_rows_all_see(rows, j0, j0 + PH_BLOCK)) return 1;
    for (int r = first; r < first + m; r++) {
        if (rows->hi[r] > 0 && rows->lo[r] < low) low = rows->lo[r];
        if (rows->hi[r] > high) high = rows->hi[r];
    }
    *c0 = low > j0 ? (low - j0) / nr * nr : 0;
    *c1 = ph_min(high - j0, PH_BLOCK);
    return *c0 < *c1;
}

int64_t ph_broadcast_row(const ph_attn *a, const ph_broadcast *shape, int batch, int head,
                         int token)
{
    int64_t b = shape->batch == 1 ? 0 : batch, h = shape->heads == 1 ? 0 : head;
    int64_t t = shape->q_len == 1 ? 0 : token;
    return ((b * shape->heads + h) * shape->q_len + t) * a->kv_len;
}

void ph_rows_within(const ph_call *call, int64_t first, int n, int *from, int *to)
{
    int64_t low = -call->attn->reach - first, high = call->attn->reach + 1 - first;
    *from = low < 0 ? 0 : low < n ? (int)low : n;
    *to = high < *from ? *from : high < n ? (int)high : n;
}

/* s[c] += one bias for n keys. */
static void add_constant(const ph_call *call, float bias, int n, float *s)
{
    float biases[PH_STRIP_LD];
    for (int c = 0; c < n; c++) biases[c] = bias;
    if (n > 0) call->kernels->add_bias(n, s, biases, (float)PH_LOG2E);
}

/* s[c] += the head's bias of the distance first + c, clipped to its reach. */
static void add_relative(const ph_call *call, int head, int64_t first, int n, float *s)
{
    int64_t reach = call->attn->reach;
    const float *centre = call->args->relative + head * (2 * reach + 1) + reach;
    int from, to;
    ph_rows_within(call, first, n, &from, &to);
    add_constant(call, centre[-reach], from, s);
    if (from < to)
        call->kernels->add_bias(to - from, s + from, centre + (first + from),
                                (float)PH_LOG2E);
    add_constant(call, centre[reach], n - to, s + to);
}

/* Bias and visibility of row r, from key j on. */
static const float *bias_of(const ph_call *call, const ph_rows *rows, int r, int j)
{
    const ph_attn *a = call->attn;
    return call->args->bias + j +
           ph_broadcast_row(a, &a->bias, rows->batch, rows->head[r], rows->token[r]);
}

static const uint8_t *visible_of(const ph_call *call, const ph_rows *rows, int r, int j)
{
    const ph_attn *a = call->attn;
    return call->args->visible + j +
           ph_broadcast_row(a, &a->visible, rows->batch, rows->head[r], rows->token[r]);
}

/* The biases, which act before the soft-cap. */
static void add_biases(const ph_call *call, const ph_rows *rows, int r, int j, int n,
                       float *s)
{
    const ph_args *args = call->args;
    if (args->bias)
        call->kernels->add_bias(n, s, bias_of(call, rows, r, j), (float)PH_LOG2E);
    if (args->relative)
        add_relative(call, rows->head[r], j - (rows->token[r] + rows->extent.offset), n,
                     s);
}

/* What hides a key, which acts after the soft-cap. */
static void hide(const ph_call *call, const ph_rows *rows, int r, int j, int n, float *s)
{
    const ph_args *args = call->args;
    if (args->bias &&
        (args->relative || call->attn->softcap > 0)) /* these may have made -inf finite */
        call->kernels->add_bias(n, s, bias_of(call, rows, r, j), 0);
    if (args->visible) call->kernels->hide(n, s, visible_of(call, rows, r, j));
}

/* Bias, ALiBi, soft-cap and the boolean mask; ALiBi and soft-cap update lane_max. */
static void modify(const ph_call *call, const ph_score_strip *t)
{
    const ph_args *args = call->args;
    const ph_kernels *k = call->kernels;
    float slope[PH_STRIP_MAX], distance[PH_STRIP_MAX];
    int j = t->j0 + t->c0, n = t->c1 - t->c0;
    float *s = t->s + t->c0;
    for (int i = 0; i < t->m && (args->bias || args->relative); i++)
        add_biases(call, t->rows, t->first + i, j, n, s + i * PH_STRIP_LD);
    for (int i = 0; i < t->m && args->alibi; i++) {
        int r = t->first + i;
        slope[i] = args->alibi[t->rows->head[r]] * (float)PH_LOG2E;
        distance[i] = (float)(j - (t->rows->token[r] + t->rows->extent.offset));
    }
    if (args->alibi) k->add_alibi(t->m, n, s, slope, distance, t->lane_max);
    if (call->attn->softcap > 0)
        k->softcap(t->m, n, s, call->plan->cap2, t->lane_max,
                   t->derivative ? t->derivative + t->c0 : NULL);
    for (int i = 0; i < t->m && (args->bias || args->visible); i++)
        hide(call, t->rows, t->first + i, j, n, s + i * PH_STRIP_LD);
}

static int is_modified(const ph_call *call)
{
    const ph_args *args = call->args;
    return args->bias || args->relative || args->alibi || args->visible ||
           call->attn->softcap > 0;
}

/* Columns c0 + [*lo, *hi) of [c0, c1) that the row sees by position; returns 1 if some
   are hidden. */
static int visible_columns(const ph_rows *rows, int r, int j0, int c0, int c1, int *lo,
                           int *hi)
{
    *lo = ph_min(ph_max(rows->lo[r] - j0 - c0, 0), c1 - c0);
    *hi = ph_max(ph_min(rows->hi[r] - j0, c1) - c0, *lo);
    return *lo > 0 || *hi < c1 - c0;
}

int ph_rows_modify(const ph_call *call, const ph_rows *rows, int r, int j0, int c0,
                   int c1, float *s, float *derivative)
{
    int end = ph_round_up(c1, PH_LANES) - c0, lo, hi;
    float lane_max[PH_LANES];
    ph_score_strip strip = {rows, r, 1, j0, c0, c1, s, lane_max, derivative};
    if (is_modified(call)) modify(call, &strip);
    int hidden = visible_columns(rows, r, j0, c0, c1, &lo, &hi);
    for (int c = 0; c < lo; c++) s[c0 + c] = -INFINITY;
    for (int c = hi; c < end; c++) s[c0 + c] = -INFINITY;
    return hidden;
}

int ph_rows_mask(const ph_call *call, const ph_score_strip *t)
{
    const ph_args *args = call->args;
    int end = ph_round_up(t->c1, PH_LANES), modified = is_modified(call), hidden = 0;
    int lo[PH_STRIP_MAX], hi[PH_STRIP_MAX];
    int all_see = ph_rows_all_see(t->rows, t->j0 + t->c0, t->j0 + t->c1);
    if (!modified && t->c1 == end && all_see) return 0;
    if (modified) modify(call, t);
    for (int i = 0; i < t->m; i++)
        hidden |=
            visible_columns(t->rows, t->first + i, t->j0, t->c0, t->c1, &lo[i], &hi[i]);
    int done = args->alibi || call->attn->softcap > 0; /* these update lane_max ... */
    done = done && !args->bias && !args->visible;      /* ... and come last */
    if ((modified && !done) || hidden || t->c1 < end)
        call->kernels->clip(t->m, end - t->c0, t->s + t->c0, lo, hi, t->lane_max);
    return hidden || args->bias || args->visible; /* these may hide any key */
}

int ph_rows_whole(const ph_call *call, const ph_rows *rows, int first, int m, int j0,
                  int c0, int c1)
{
    int lo, hi;
    if (is_modified(call) || c1 % PH_LANES) return 0;
    for (int r = first; r < first + m; r++)
        if (visible_columns(rows, r, j0, c0, c1, &lo, &hi)) return 0;
    return 1;
}

int ph_rows_scores(const ph_call *call, const ph_score_strip *t, const float *q,
                   const float *k)
{
    const ph_plan *plan = call->plan;
    int m = t->m, n = ph_round_up(t->c1, PH_LANES) - t->c0;
    float *s = t->s + t->c0;
    q += plan->bf16_pairs ? t->first / call->kernels->mr * (int64_t)plan->q_floats
                          : t->first * (int64_t)plan->k_pad;
    k += (int64_t)t->c0 * plan->k_floats;
    for (int i = 0; i < m * PH_LANES; i++) t->lane_max[i] = -INFINITY;
    if (plan->bf16_pairs) {
        plan->bf16_pairs->begin(m);
        plan->bf16_pairs->scores(m, n, plan->k_steps, (const uint16_t *)q,
                                 (const uint16_t *)k, plan->scale2, s, t->lane_max);
        plan->bf16_pairs->end();
    } else {
        call->kernels->scores(m, n, call->attn->qk_dim, q, plan->k_pad, k, s,
                              t->lane_max);
    }
    return ph_rows_mask(call, t);
}

int ph_rows_sees(const ph_call *call, const ph_rows *rows, int r, int j)
{
    if (j < rows->lo[r] || j >= rows->hi[r]) return 0;
    if (call->args->visible && !*visible_of(call, rows, r, j)) return 0;
    return !call->args->bias || *bias_of(call, rows, r, j) != -INFINITY;
}

void ph_rows_dropout(const ph_call *call, const ph_rows *rows, int first, int m, int j0,
                     int c0, int c1, float *factors)
{
    const ph_plan *plan = call->plan;
    int n = ph_round_up(c1, PH_LANES) - c0; /* padding is multiplied too */
    for (int i = 0; i < m; i++) {
        int r = first + i;
        uint64_t key = ph_rng_key(call->args->seed, (uint64_t)rows->batch,
                                  (uint64_t)rows->head[r], (uint64_t)rows->token[r]);
        call->kernels->dropout(n, factors + i * PH_STRIP_LD + c0, key,
                               (uint32_t)(j0 + c0), plan->drop_limit, plan->drop_keep);
    }
}

size_t ph_scores_k_floats(const ph_plan *plan, int keys)
{
    return (size_t)keys * (size_t)plan->k_floats + PH_PACK_SLACK;
}

void ph_scores_pack_k(const ph_call *call, int batch, int head, int j0, int c0, int c1,
                      float *dst)
{
    const ph_plan *plan = call->plan;
    const ph_keys k = ph_keys_k(call, batch, head);
    const void *from[PH_AMX_TILE];
    if (!plan->bf16_pairs) {
        ph_keys_panels(&k, j0, c0, c1, dst);
        return;
    }
    for (int c = c0; c < c1; c += PH_AMX_TILE) {
        int n = ph_min(PH_AMX_TILE, c1 - c);
        ph_keys_pointers(&k, j0 + c, n, from);
        plan->bf16_pairs->pack_panel((uint16_t *)(dst + (int64_t)c * plan->k_floats),
                                     from, n, k.dim, ph_keys_next_block(&k, j0 + c));
    }
}
