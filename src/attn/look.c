/*
 * look.c - attention weights and their summaries, from q, k and lse.
 *
 *     w[i][j] = 2^(s[i][j] - lse[i]) * dropout
 *
 * Two loops over the same scores: one in which a work item owns rows (weights, entropy,
 * largest weights, a rectangle) and one in which it owns keys (column sums). Memory is
 * that of one strip per thread; only the caller's full weights are T x T.
 */
#include <math.h>
#include <string.h>

#include "attn/cut.h"
#include "attn/look.h"
#include "base/arena.h"

typedef struct looker {
    ph_rows *rows;
    float *q;        /* packed for scores */
    float *k;        /* one block of keys, packed */
    float *scores;   /* one strip, becomes the weights */
    float *logs;     /* one strip: log2 of the weights */
    float *drop;     /* one strip */
    float *lane_max; /* (mr, 16) */
    double *sums;    /* (group, PH_BLOCK) column sums */
    double *entropy; /* (rows) */
} looker;

static void take(const ph_plan *plan, ph_arena *arena, looker *out)
{
    size_t strip = (size_t)plan->kernels->mr * PH_STRIP_LD;
    out->rows = ph_arena_take(arena, sizeof *out->rows);
    out->q = ph_arena_floats(arena, ph_scores_q_floats(plan, PH_ROWS_MIN));
    out->k = ph_arena_floats(arena, ph_scores_k_floats(plan, PH_BLOCK));
    out->scores = ph_arena_floats(arena, strip);
    out->logs = ph_arena_floats(arena, strip);
    out->drop = ph_arena_floats(arena, plan->drop_limit ? strip : 0);
    out->lane_max = ph_arena_floats(arena, (size_t)plan->kernels->mr * PH_LANES);
    out->sums = ph_arena_take(arena, (size_t)plan->group * PH_BLOCK * sizeof(double));
    out->entropy = ph_arena_take(arena, PH_ROWS_MIN * sizeof(double));
}

void ph_look_measure(ph_plan *plan)
{
    ph_arena arena = {0}, shared = {0};
    looker l;
    ph_work_cut cut;
    if (ph_plan_is_joint(plan)) {
        ph_joint_look_measure(plan);
        return;
    }
    take(plan, &arena, &l);
    plan->lane_bytes[PH_DO_LOOK] = arena.used;
    ph_cut_take(plan, &shared, &cut);
    plan->shared_bytes[PH_DO_LOOK] = shared.used;
}

/* Items of a call are the blocks of a cut, of rows or of keys, times the groups. */
typedef struct look_task {
    const ph_call *call;
    ph_work_cut cut;
} look_task;

/* Begins with an item; returns the first row or key of its block of `size`. */
static int begin(const look_task *t, int lane, int index, int size, looker *l)
{
    const ph_plan *plan = t->call->plan;
    const ph_piece piece = ph_cut_find(&t->cut, index / plan->groups);
    ph_arena arena = ph_call_lane(t->call, lane);
    take(plan, &arena, l);
    ph_rows_begin(t->call, l->rows, piece.batch, index % plan->groups * plan->group,
                  plan->group);
    return piece.block * size;
}

/* Weights of rows [first, first+m) against keys [c0, c1) of a block; their log2 in
   logs. */
static void strip_weights(const ph_call *call, looker *l, int first, int m, int j0,
                          int c0, int c1)
{
    const ph_kernels *k = call->kernels;
    int end = ph_round_up(c1, PH_LANES);
    float keep = call->plan->drop_limit ? log2f(call->plan->drop_keep) : 0;
    ph_score_strip strip = {l->rows, first, m, j0, c0, c1, l->scores, l->lane_max, NULL};
    ph_rows_scores(call, &strip, l->q, l->k);
    if (call->plan->drop_limit)
        ph_rows_dropout(call, l->rows, first, m, j0, c0, c1, l->drop);
    for (int i = 0; i < m; i++) {
        float *s = l->scores + i * PH_STRIP_LD, *log = l->logs + i * PH_STRIP_LD;
        float lse = call->args->lse[ph_rows_index(call, l->rows, first + i)];
        lse = lse == -INFINITY ? 0 : (float)(lse * PH_LOG2E);
        for (int c = c0; c < end; c++) log[c] = s[c] - lse + keep;
        k->weights(end - c0, s + c0, lse);
        if (call->plan->drop_limit)
            k->times(end - c0, s + c0, l->drop + i * PH_STRIP_LD + c0);
    }
}

/* ---- items that own rows ---- */

static void add_entropy(const ph_call *call, double *entropy, const float *w, float *log,
                        int n)
{
    for (int c = 0; c < n; c++)
        if (!(w[c] > 0)) log[c] = 0;
    *entropy -= PH_LN2 * call->kernels->dot(n, w, log);
}

/* Keeps the top_k largest weights of visible keys sorted; the earlier key wins a tie.
   Unused entries hold the weight -1. */
static void add_top(const ph_look_at *look, int64_t index, const float *w,
                    const float *log, int j, int n)
{
    float *best = look->top_weight + index * look->top_k;
    int32_t *key = look->top_index + index * look->top_k;
    int last = look->top_k - 1;
    for (int c = 0; c < n; c++) {
        if (!(w[c] > best[last]) || log[c] == -INFINITY) continue;
        int at = last;
        for (; at > 0 && w[c] > best[at - 1]; at--)
            best[at] = best[at - 1], key[at] = key[at - 1];
        best[at] = w[c], key[at] = j + c;
    }
}

/* Marks the unused entries of a row's top_k with -1, or sets them to 0 at the end. */
static void set_top(const ph_look_at *look, int64_t index, float from, float to)
{
    float *best = look->top_weight + index * look->top_k;
    for (int i = 0; i < look->top_k; i++)
        if (best[i] == from) best[i] = to;
}

static void add_rect(const ph_look_at *look, int batch, int head, int token,
                     const float *w, int j, int n)
{
    int row = token - look->row0;
    int from = ph_max(look->col0, j), to = ph_min(look->col0 + look->cols, j + n);
    if (batch != look->rect_batch || head != look->rect_head) return;
    if (row < 0 || row >= look->rows || from >= to) return;
    memcpy(look->rect + (int64_t)row * look->cols + (from - look->col0), w + (from - j),
           (size_t)(to - from) * sizeof(float));
}

void ph_look_clear(const ph_call *call, int batch, int head, int token)
{
    const ph_attn *a = call->attn;
    const ph_look_at *look = call->args->look;
    int64_t index = ph_row_index(call, batch, head, token);
    if (look->weights)
        memset(look->weights + index * a->kv_len, 0, (size_t)a->kv_len * sizeof(float));
    if (look->entropy) look->entropy[index] = 0;
    for (int i = 0; look->top_index && i < look->top_k; i++) {
        look->top_index[index * look->top_k + i] = -1;
        look->top_weight[index * look->top_k + i] = 0;
    }
    int row = token - look->row0;
    if (look->rect && batch == look->rect_batch && head == look->rect_head && row >= 0 &&
        row < look->rows)
        memset(look->rect + (int64_t)row * look->cols, 0,
               (size_t)look->cols * sizeof(float));
}

void ph_look_add(const ph_call *call, const ph_rows *rows, int r, const float *w,
                 float *log, int j, int n, double *entropy)
{
    const ph_look_at *look = call->args->look;
    int64_t index = ph_rows_index(call, rows, r);
    if (look->weights)
        memcpy(look->weights + index * call->attn->kv_len + j, w,
               (size_t)n * sizeof(float));
    if (look->top_index) add_top(look, index, w, log, j, n);
    if (look->entropy) add_entropy(call, entropy, w, log, ph_round_up(n, PH_LANES));
    if (look->rect) add_rect(look, rows->batch, rows->head[r], rows->token[r], w, j, n);
}

void ph_look_begin(const ph_call *call, int64_t index)
{
    if (call->args->look->top_index) set_top(call->args->look, index, 0, -1);
}

void ph_look_end(const ph_call *call, int64_t index, double entropy)
{
    const ph_look_at *look = call->args->look;
    if (look->entropy) look->entropy[index] = (float)entropy;
    if (look->top_index) set_top(look, index, -1, 0);
}

static void look_strip(const ph_call *call, looker *l, int first, int j0)
{
    int m = ph_min(call->kernels->mr, l->rows->count - first), c0, c1;
    if (!ph_rows_range(call, l->rows, first, m, j0, &c0, &c1)) return;
    strip_weights(call, l, first, m, j0, c0, c1);
    for (int i = 0; i < m; i++)
        ph_look_add(call, l->rows, first + i, l->scores + i * PH_STRIP_LD + c0,
                    l->logs + i * PH_STRIP_LD + c0, j0 + c0, c1 - c0,
                    &l->entropy[first + i]);
}

/* Rows [first, end) of a group, at most PH_ROWS_MIN, against keys [low, high). */
static void look_rows(const ph_call *call, looker *l, int first, int end, int low,
                      int high)
{
    ph_rows *rows = l->rows;
    for (int row = first; row < end; row++)
        ph_look_clear(call, rows->batch, rows->head0 + row % rows->group,
                      row / rows->group);
    ph_rows_gather(call, rows, first, end, PH_ROWS_MIN);
    memset(l->entropy, 0, PH_ROWS_MIN * sizeof(double));
    for (int r = 0; r < rows->count; r++)
        ph_look_begin(call, ph_rows_index(call, rows, r));
    ph_scores_pack_q(call, rows, l->q);
    low = ph_max(low, rows->low), high = ph_min(high, rows->high);
    for (int j0 = low / PH_BLOCK * PH_BLOCK; j0 < high; j0 += PH_BLOCK) {
        ph_scores_pack_k(call, rows->batch, rows->k_head, j0, 0,
                         ph_min(PH_BLOCK, rows->high - j0), l->k);
        for (int r = 0; r < rows->count; r += call->kernels->mr)
            look_strip(call, l, r, j0);
    }
    for (int r = 0; r < rows->count; r++)
        ph_look_end(call, ph_rows_index(call, rows, r), l->entropy[r]);
}

static void row_item(void *arg, int lane, int index)
{
    const ph_call *call = ((const look_task *)arg)->call;
    looker l;
    int first = begin(arg, lane, index, PH_ROWS_MIN, &l);
    int rows = l.rows->extent.q_size * call->plan->group;
    look_rows(call, &l, first, ph_min(first + PH_ROWS_MIN, rows), 0, INT32_MAX);
}

/* A part of a rectangle, where nothing else is wanted: rows of its head only. */
static void rect_item(void *arg, int lane, int index)
{
    const ph_call *call = ((const look_task *)arg)->call;
    const ph_look_at *look = call->args->look;
    ph_arena arena = ph_call_lane(call, lane);
    looker l;
    take(call->plan, &arena, &l);
    ph_rows_begin(call, l.rows, look->rect_batch, look->rect_head, 1);
    int first = look->row0 + index * PH_ROWS_MIN;
    look_rows(call, &l, first, ph_min(first + PH_ROWS_MIN, look->row0 + look->rows),
              look->col0, look->col0 + look->cols);
}

/* ---- items that own keys ---- */

static void sum_strip(const ph_call *call, looker *l, int first, int j0)
{
    int m = ph_min(call->kernels->mr, l->rows->count - first), c0, c1;
    if (!ph_rows_range(call, l->rows, first, m, j0, &c0, &c1)) return;
    strip_weights(call, l, first, m, j0, c0, c1);
    for (int i = 0; i < m; i++) {
        const float *w = l->scores + i * PH_STRIP_LD;
        double *sum = l->sums + (l->rows->head[first + i] - l->rows->head0) * PH_BLOCK;
        for (int c = c0; c < c1; c++) sum[c] += w[c];
    }
}

static void key_item(void *arg, int lane, int index)
{
    const ph_call *call = ((const look_task *)arg)->call;
    const ph_plan *plan = call->plan;
    looker l;
    int j0 = begin(arg, lane, index, PH_BLOCK, &l);
    int n = ph_min(PH_BLOCK, l.rows->extent.kv_size - j0);
    int total = l.rows->extent.q_size * plan->group;
    memset(l.sums, 0, (size_t)plan->group * PH_BLOCK * sizeof(double));
    int valid = ph_min(n, l.rows->extent.kv_len - j0);
    if (valid > 0)
        ph_scores_pack_k(call, l.rows->batch, l.rows->k_head, j0, 0, valid, l.k);
    for (int row = 0; valid > 0 && row < total;) {
        int next = ph_rows_gather(call, l.rows, row, total, PH_ROWS_MIN);
        if (next == row) break; /* beyond the valid queries */
        row = next;
        if (l.rows->high <= j0 || l.rows->low >= j0 + n) continue;
        ph_scores_pack_q(call, l.rows, l.q);
        for (int r = 0; r < l.rows->count; r += call->kernels->mr)
            sum_strip(call, &l, r, j0);
    }
    for (int g = 0; g < plan->group; g++) {
        float *out = call->args->look->col_sum +
                     ph_key_index(call, l.rows->batch, l.rows->head0 + g, j0);
        for (int c = 0; c < n; c++) out[c] = (float)l.sums[g * PH_BLOCK + c];
    }
}

void ph_attn_look(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    const ph_look_at *look = call->args->look;
    int batch = call->attn->batch;
    look_task t = {.call = call};
    if (ph_plan_is_joint(plan)) {
        ph_joint_look(call);
        return;
    }
    ph_arena arena = ph_call_shared(call);
    ph_cut_take(plan, &arena, &t.cut);
    ph_cut_rows(call, 0, batch, plan->group, PH_ROWS_MIN, &t.cut);
    if (ph_look_only_rect(look))
        ph_ctx_run(plan->ctx, ph_div_up(look->rows, PH_ROWS_MIN), rect_item, &t);
    else if (look->weights || look->entropy || look->top_index)
        ph_ctx_run(plan->ctx, t.cut.count * plan->groups, row_item, &t);
    ph_cut_keys(call, 0, batch, PH_BLOCK, &t.cut);
    if (look->col_sum) ph_ctx_run(plan->ctx, t.cut.count * plan->groups, key_item, &t);
}

void ph_look_rect(const ph_plan *plan, const ph_args *args, void *memory)
{
    const ph_call call = {.plan = plan,
                          .kernels = plan->kernels,
                          .attn = &plan->attn,
                          .args = args,
                          .kv_offsets =
                              args->kv_offsets ? args->kv_offsets : args->q_offsets,
                          .lanes = memory,
                          .lane_bytes = plan->lane_bytes[PH_DO_LOOK]};
    look_task t = {.call = &call};
    for (int i = 0; i < ph_div_up(args->look->rows, PH_ROWS_MIN); i++)
        rect_item(&t, 0, i);
}
