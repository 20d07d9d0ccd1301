/*
 * joint_look.c - looks at weights of the joint driver; see look.c.
 */
#include <math.h>
#include <string.h>

#include "attn/joint.h"
#include "attn/look.h"

static const ph_joint_keys no_keys; /* not packed beforehand */

typedef struct joint_looker {
    ph_joint_rows r;
    float **q;
    float *w, *other; /* joint blocks */
    float *key_factors[2];
    float *k, *drop;
    float *stat;     /* (heads, rows) */
    float *log;      /* (PH_BLOCK) */
    double *entropy; /* (heads, rows) */
    double *sums;    /* (q_heads, PH_BLOCK) */
} joint_looker;

typedef struct joint_look_task {
    const ph_call *call;
    const float *stat; /* (batch, q_heads, q_len) */
    ph_work_cut cut;
} joint_look_task;

static void take(const ph_plan *plan, ph_arena *arena, joint_looker *l)
{
    const ph_joint_plan *j = &plan->joint;
    size_t heads = (size_t)j->heads, all = heads * (size_t)j->rows;
    size_t scaled = (size_t)j->rows * (size_t)plan->k_pad;
    ph_joint_rows_take(plan, arena, j->rows, 0, &l->r);
    l->q = ph_arena_take(arena, heads * sizeof *l->q);
    float *q = ph_arena_floats(arena, heads * scaled);
    for (size_t h = 0; arena->base && h < heads; h++) l->q[h] = q + h * scaled;
    l->w = ph_arena_floats(arena, ph_joint_floats(plan, j->rows));
    l->other = ph_arena_floats(arena, ph_joint_floats(plan, j->rows));
    for (int p = 0; p < 2; p++)
        l->key_factors[p] = ph_arena_floats(arena, ph_joint_mix_floats(plan, p));
    l->k = ph_arena_floats(arena,
                           (size_t)PH_BLOCK * (size_t)plan->attn.qk_dim + PH_PACK_SLACK);
    l->drop = ph_arena_floats(arena, PH_BLOCK);
    l->stat = ph_arena_floats(arena, all);
    l->log = ph_arena_floats(arena, PH_BLOCK);
    l->entropy = ph_arena_take(arena, all * sizeof(double));
    l->sums =
        ph_arena_take(arena, (size_t)plan->attn.q_heads * PH_BLOCK * sizeof(double));
}

static float *take_stat(const ph_plan *plan, ph_arena *arena)
{
    const ph_attn *a = &plan->attn;
    return ph_arena_floats(arena, (size_t)a->q_heads * ph_attn_rows(a));
}

void ph_joint_look_measure(ph_plan *plan)
{
    ph_arena arena = {0}, item = {0}, shared = {0};
    joint_looker l;
    ph_work_cut cut;
    take(plan, &arena, &l);
    take_stat(plan, &shared);
    ph_cut_take(plan, &shared, &cut);
    if (plan->needs.power) ph_joint_item_measure(plan, &item, &shared);
    plan->lane_bytes[PH_DO_LOOK] = item.used > arena.used ? item.used : arena.used;
    plan->shared_bytes[PH_DO_LOOK] = shared.used;
}

static void prepare(const joint_look_task *job, joint_looker *l)
{
    const ph_call *call = job->call;
    int rows = call->plan->joint.rows;
    ph_joint_matrices(call, &l->r);
    for (int h = 0; h < l->r.heads; h++) {
        const ph_rows *r = &l->r.rows[h];
        ph_rows_pack_q(call, r, call->plan->scale2, l->q[h]);
        for (int i = 0; i < r->count; i++)
            l->stat[h * rows + i] = job->stat[ph_rows_index(call, r, i)];
    }
}

/* The weights of a joint block as they multiply v; 0 where hidden. */
static const float *compute_weights(const ph_call *call, joint_looker *l,
                                    ph_joint_block *t)
{
    const ph_variant_needs *needs = &call->plan->needs;
    float *w = l->w;
    ph_joint_key_factors(call, &no_keys, &l->r, t, l->key_factors);
    ph_joint_scores(call, &l->r, t, &no_keys, l->q, l->k,
                    needs->mix[PH_LOGITS] ? l->other : l->w);
    if (needs->mix[PH_LOGITS]) ph_joint_mix(call, &l->r, t, PH_LOGITS, l->other, l->w);
    ph_joint_modify(call, &l->r, t, w, NULL);
    ph_joint_weights(call, &l->r, t, l->stat, w, NULL);
    if (needs->mix[PH_WEIGHTS]) {
        ph_joint_mix(call, &l->r, t, PH_WEIGHTS, l->w, l->other);
        w = l->other;
        ph_joint_clear_masked(call, &l->r, t, 0, w);
    }
    if (call->plan->drop_limit) ph_joint_drop(call, &l->r, t, l->drop, w);
    return w;
}

static void look_block(const ph_call *call, joint_looker *l, ph_joint_block *t)
{
    const float *w = compute_weights(call, l, t);
    for (int h = 0; h < l->r.heads; h++)
        for (int i = 0; i < l->r.count; i++) {
            const float *row = w + ph_joint_at(t, h, i) + t->c0;
            for (int c = 0; c < t->end - t->c0; c++)
                l->log[c] = row[c] > 0 ? log2f(row[c]) : row[c] == 0 ? -INFINITY : 0;
            ph_look_add(call, &l->r.rows[h], i, row, l->log, t->j0 + t->c0, t->c1 - t->c0,
                        &l->entropy[h * t->rows + i]);
        }
}

/* Whether rows [first, end) of a batch row have nothing that is wanted. */
static int outside_rect(const ph_call *call, int batch, int first, int end)
{
    const ph_look_at *look = call->args->look;
    const int per_token = call->plan->joint.per_token;
    return ph_look_only_rect(look) &&
           (batch != look->rect_batch || end <= look->row0 * per_token ||
            first >= (look->row0 + look->rows) * per_token);
}

static void row_item(void *arg, int lane, int index)
{
    const joint_look_task *job = arg;
    const ph_call *call = job->call;
    const ph_joint_plan *j = &call->plan->joint;
    const ph_piece piece = ph_cut_find(&job->cut, index / j->sets);
    int total = ph_rows_extent(call, piece.batch).q_size * j->per_token;
    int first = piece.block * j->rows, end = ph_min(first + j->rows, total);
    int batch = piece.batch, set = index % j->sets;
    ph_arena arena = ph_call_lane(call, lane);
    joint_looker l;
    ph_joint_block t;
    if (outside_rect(call, batch, first, end)) return;
    take(call->plan, &arena, &l);
    for (int h = 0; h < j->heads; h++)
        for (int row = first; row < end; row++)
            ph_look_clear(call, batch,
                          j->mixes ? h : set * j->per_token + row % j->per_token,
                          row / j->per_token);
    ph_joint_gather(call, &l.r, batch, set, first, end, j->rows);
    prepare(job, &l);
    memset(l.entropy, 0, (size_t)j->heads * (size_t)j->rows * sizeof(double));
    for (int h = 0; h < j->heads; h++)
        for (int i = 0; i < l.r.count; i++)
            ph_look_begin(call, ph_rows_index(call, &l.r.rows[h], i));
    for (int j0 = l.r.low / PH_BLOCK * PH_BLOCK; j0 < l.r.high; j0 += PH_BLOCK)
        if (ph_joint_range(call, &l.r, j0, j->rows, &t)) look_block(call, &l, &t);
    for (int h = 0; h < j->heads; h++)
        for (int i = 0; i < l.r.count; i++)
            ph_look_end(call, ph_rows_index(call, &l.r.rows[h], i),
                        l.entropy[h * j->rows + i]);
}

/* Adds the weights of a joint block to the column sums. */
static void sum_block(const ph_call *call, joint_looker *l, ph_joint_block *t)
{
    const float *w = compute_weights(call, l, t);
    for (int h = 0; h < l->r.heads; h++)
        for (int i = 0; i < l->r.count; i++) {
            double *sum = l->sums + l->r.rows[h].head[i] * PH_BLOCK;
            for (int c = t->c0; c < t->c1; c++) sum[c] += w[ph_joint_at(t, h, i) + c];
        }
}

static void key_item(void *arg, int lane, int index)
{
    const joint_look_task *job = arg;
    const ph_call *call = job->call;
    const ph_attn *a = call->attn;
    const ph_joint_plan *j = &call->plan->joint;
    const ph_piece piece = ph_cut_find(&job->cut, index);
    const ph_extent extent = ph_rows_extent(call, piece.batch);
    int j0 = piece.block * PH_BLOCK, batch = piece.batch;
    int total = extent.q_size * j->per_token, n = ph_min(PH_BLOCK, extent.kv_size - j0);
    ph_arena arena = ph_call_lane(call, lane);
    joint_looker l;
    ph_joint_block t;
    take(call->plan, &arena, &l);
    memset(l.sums, 0, (size_t)a->q_heads * PH_BLOCK * sizeof(double));
    for (int set = 0; set < j->sets; set++)
        for (int row = 0; row < total;) {
            row = ph_joint_gather(call, &l.r, batch, set, row, total, j->rows);
            if (l.r.count == 0) break;
            if (l.r.low >= j0 + PH_BLOCK || l.r.high <= j0) continue;
            if (!ph_joint_range(call, &l.r, j0, j->rows, &t)) continue;
            prepare(job, &l);
            sum_block(call, &l, &t);
        }
    for (int h = 0; h < a->q_heads; h++)
        for (int c = 0; c < n; c++)
            call->args->look->col_sum[ph_key_index(call, batch, h, j0 + c)] =
                (float)l.sums[h * PH_BLOCK + c];
}

void ph_joint_look(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    const ph_joint_plan *j = &plan->joint;
    const ph_look_at *look = call->args->look;
    int batch = call->attn->batch;
    ph_arena arena = ph_call_shared(call);
    float *stat = take_stat(plan, &arena);
    joint_look_task t = {.call = call, .stat = stat};
    ph_cut_take(plan, &arena, &t.cut);
    if (ph_joint_stats(call, stat)) ph_joint_bases(call, &no_keys, arena, 0, batch, stat);
    ph_cut_rows(call, 0, batch, j->per_token, j->rows, &t.cut);
    if (look->weights || look->entropy || look->top_index || look->rect)
        ph_ctx_run(plan->ctx, t.cut.count * j->sets, row_item, &t);
    ph_cut_keys(call, 0, batch, PH_BLOCK, &t.cut);
    if (look->col_sum) ph_ctx_run(plan->ctx, t.cut.count, key_item, &t);
}
