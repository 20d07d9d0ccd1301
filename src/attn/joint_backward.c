/*
 * joint_backward.c - the row pass of the joint backward driver, and the call.
 *
 * A row item holds weights and their gradients for a few rows against all their keys. The
 * first pass over the keys computes them and sums delta, the second converts them to
 * gradients of the logits and multiplies by k:
 *
 *     delta = sum p' dp (/ sum p' with entmax)    ds = p' (dp - delta)    dq = ds k
 *
 * p' is the derivative of a weight by its logit up to the normalisation: p itself with
 * softmax. The item also computes all gradients of a query or of the whole call (dgate,
 * dsink, the variant's matrices, alpha). The key pass (joint_keys.c) follows.
 */
#include <math.h>
#include <string.h>

#include "attn/joint_grad.h"
#include "attn/targets.h"

enum { PARTIAL_BUDGET = 64 << 20 }; /* bytes of partial sums of one round of items */

typedef struct joint_backward_worker {
    ph_joint_grad w;
    ph_joint_block *blocks;   /* (blocks) */
    ph_joint_grad_block held; /* (grad_blocks) of each buffer but x */
    float *dc[2];         /* by place: (rows, heads, heads) gradient of the matrices */
    double *dot, *mass;   /* (heads, rows): sum derivative dp, sum derivative */
    ph_alpha_sums *alpha; /* (heads, rows): entmax */
    float *dq;            /* (heads, rows, k_pad) */
    float *x, *y;         /* (v_pad) */
    float *ones;          /* (PH_BLOCK) 1 */
} joint_backward_worker;

/* ---- layout ---- */

static size_t extra_floats(const ph_plan *plan, int e)
{
    return ph_param_size(&plan->needs.extra[e]);
}

static int is_shared(const ph_plan *plan, int e)
{
    return plan->needs.shared >> e & 1;
}

/* Sums that every item keeps in double: dgate, dsink, dalpha by head, and drelative. */
static size_t sum_count(const ph_plan *plan)
{
    size_t distances = plan->attn.reach ? 2 * (size_t)plan->attn.reach + 1 : 0;
    return (size_t)plan->attn.q_heads * (3 + distances);
}

static size_t partial_floats(const ph_plan *plan)
{
    size_t floats = 0;
    for (int e = 0; e < plan->needs.extras; e++)
        if (is_shared(plan, e)) floats += extra_floats(plan, e);
    return floats;
}

/* Row items of all batch rows, at most. */
static int64_t most_items(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int64_t rows = (int64_t)ph_attn_rows(a) * plan->joint.per_token;
    return plan->joint.sets * (rows / plan->joint.grad_rows + a->batch);
}

/* Items whose partial sums are added at once. */
static int round_items(const ph_plan *plan)
{
    size_t bytes =
        partial_floats(plan) * sizeof(float) + sum_count(plan) * sizeof(double);
    int64_t all = most_items(plan);
    int64_t n = bytes < PARTIAL_BUDGET ? (int64_t)(PARTIAL_BUDGET / bytes) : 1;
    return (int)(n < all ? n : all);
}

static void take(const ph_plan *plan, ph_arena *arena, joint_backward_worker *w)
{
    const ph_joint_plan *j = &plan->joint;
    size_t rows = (size_t)j->grad_rows, heads = (size_t)j->heads;
    ph_joint_grad_take(plan, arena, j->grad_rows, &w->w);
    ph_joint_grad_block_take(plan, arena, j->grad_rows, j->grad_blocks, &w->held);
    w->blocks = ph_arena_take(arena, (size_t)j->blocks * sizeof *w->blocks);
    for (int p = 0; p < 2; p++)
        w->dc[p] = ph_arena_floats(arena, plan->needs.mix[p] ? rows * heads * heads : 0);
    w->dot = ph_arena_take(arena, heads * rows * sizeof(double));
    w->mass = ph_arena_take(arena, heads * rows * sizeof(double));
    w->alpha =
        ph_arena_take(arena, plan->needs.power ? heads * rows * sizeof *w->alpha : 0);
    w->dq = ph_arena_floats(arena, heads * rows * (size_t)plan->k_pad);
    w->x = ph_arena_floats(arena, (size_t)plan->v_pad);
    w->y = ph_arena_floats(arena, (size_t)plan->v_pad);
    w->ones = ph_arena_floats(arena, PH_BLOCK);
    for (int c = 0; arena->base && c < PH_BLOCK; c++) w->ones[c] = 1;
}

static void take_task(const ph_plan *plan, ph_arena *arena, ph_joint_task *t)
{
    const ph_attn *a = &plan->attn;
    size_t rows = (size_t)a->q_heads * ph_attn_rows(a);
    size_t items = (size_t)round_items(plan);
    ph_joint_span span = ph_joint_batch_rows(plan, 0, plan->joint.grad_wave);
    ph_joint_keys_take(plan, arena, &span, 1, &t->keys);
    ph_cut_take(plan, arena, &t->cut);
    t->stat = ph_arena_floats(arena, rows);
    t->delta = ph_arena_floats(arena, rows);
    t->sums = ph_arena_take(arena, items * sum_count(plan) * sizeof(double));
    t->totals = ph_arena_take(arena, sum_count(plan) * sizeof(double));
    t->partials = ph_arena_floats(arena, items * partial_floats(plan));
}

void ph_joint_backward_measure(ph_plan *plan)
{
    ph_arena lane = {0}, shared = {0};
    joint_backward_worker w;
    ph_joint_task t;
    take(plan, &lane, &w);
    take_task(plan, &shared, &t);
    ph_arena item = {0};
    if (plan->needs.power) ph_joint_item_measure(plan, &item, &shared);
    size_t bytes = lane.used, keys = ph_joint_key_bytes(plan);
    size_t bias = ph_joint_bias_bytes(plan);
    if (keys > bytes) bytes = keys;
    if (bias > bytes) bytes = bias;
    if (item.used > bytes) bytes = item.used;
    plan->lane_bytes[PH_DO_BACKWARD] = bytes;
    plan->shared_bytes[PH_DO_BACKWARD] = shared.used;
}

static int holds_blocks(const ph_plan *plan)
{
    return plan->joint.grad_blocks == plan->joint.blocks;
}

/* The buffers of block b. */
static ph_joint_grad_block grad_block_at(const ph_plan *plan,
                                         const joint_backward_worker *w, int b)
{
    size_t at = (size_t)(holds_blocks(plan) ? b : 0) *
                ph_joint_floats(plan, plan->joint.grad_rows);
    ph_joint_grad_block t = w->held;
    t.p += at, t.d += at;
    if (t.s) t.s += at;
    if (t.derivative) t.derivative += at;
    if (t.cap) t.cap += at;
    return t;
}

/* ---- first pass over the keys ---- */

static int is_learned(const ph_call *call)
{
    int learned = call->plan->needs.learned;
    return learned && call->grads->dextra && call->grads->dextra[learned - 1];
}

static void add_deltas(const ph_call *call, joint_backward_worker *w,
                       const ph_joint_block *t, const ph_joint_grad_block *b)
{
    const float *derivative = b->derivative ? b->derivative : b->p;
    const ph_joint_rows *r = &w->w.r;
    int n = t->end - t->c0, learned = is_learned(call);
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            int64_t at = ph_joint_at(t, h, i) + t->c0;
            int row = h * t->rows + i;
            w->dot[row] += call->kernels->dot(n, derivative + at, b->d + at);
            w->mass[row] += call->kernels->dot(n, derivative + at, w->ones);
            if (learned)
                ph_alpha_add(&w->alpha[row], r->alpha[r->rows[h].head[i]] - 1, n,
                             b->p + at, b->d + at);
        }
}

/* Weights and their gradients of one block. */
static void build_block(const ph_call *call, joint_backward_worker *w, ph_joint_block *t,
                        const ph_joint_grad_block *b)
{
    ph_joint_build(call, &w->w, t, b);
    if (call->plan->needs.mix[PH_WEIGHTS])
        ph_joint_unmix(call, &w->w.r, t, PH_WEIGHTS, b->x, b->d);
}

static int weights_pass(const ph_joint_task *task, joint_backward_worker *w, int set)
{
    const ph_call *call = task->call;
    const ph_plan *plan = call->plan;
    ph_joint_rows *r = &w->w.r;
    int n = 0;
    for (int j0 = r->low / PH_BLOCK * PH_BLOCK; j0 < r->high; j0 += PH_BLOCK) {
        ph_joint_block *t = &w->blocks[n];
        if (!ph_joint_range(call, r, j0, plan->joint.grad_rows, t)) continue;
        ph_joint_grad_block b = grad_block_at(plan, w, n++);
        ph_joint_grad_keys(task, &w->w, r->batch, set, j0);
        build_block(call, w, t, &b);
        if (plan->needs.mix[PH_WEIGHTS])
            ph_joint_row_gradient(call, r, t, b.p, b.x, w->dc[PH_WEIGHTS]);
        add_deltas(call, w, t, &b);
    }
    return n;
}

/* ---- between the passes: what follows from delta ---- */

/* The sink is one more candidate of entmax, with no value: adds its weight and
   derivative. */
static void add_sink(joint_backward_worker *w, int row, double sink, double e,
                     double base, double *derivative)
{
    double u = 1 + e * (sink - base);
    float p = u > 0 ? (float)pow(u, 1 / e) : 0, zero = 0;
    *derivative = u > 0 ? pow(u, 1 / e - 1) : 0;
    w->mass[row] += *derivative;
    ph_alpha_add(&w->alpha[row], e, 1, &p, &zero);
}

static double finish_entmax(const ph_call *call, joint_backward_worker *w, int h, int i,
                            double dlse, double *sums)
{
    int heads = call->attn->q_heads, head = w->w.r.rows[h].head[i];
    int row = h * call->plan->joint.grad_rows + i;
    double e = w->w.r.alpha[head] - 1, base = w->w.stat[row] * PH_LN2, derivative = 0;
    if (!isfinite(base)) return 0; /* sees nothing */
    if (call->args->sink) add_sink(w, row, call->args->sink[head], e, base, &derivative);
    if (!(w->mass[row] > 0)) return isnan(w->mass[row]) ? NAN : 0;
    double delta = (w->dot[row] - e * dlse) / w->mass[row];
    sums[heads + head] -= derivative * delta;
    sums[2 * heads + head] += ph_alpha_gradient(&w->alpha[row], e, base, dlse);
    return delta;
}

static double finish_softmax(const ph_call *call, joint_backward_worker *w, int h, int i,
                             double lse, double dlse, double *sums)
{
    int head = w->w.r.rows[h].head[i], row = h * call->plan->joint.grad_rows + i;
    const float *sink = call->args->sink;
    if (lse == -INFINITY) return 0;
    /* Weights recomputed from a rounded lse do not sum to exactly 1, which would give a
       row with one visible key a gradient: divide by their sum. */
    double taken = sink ? exp(sink[head] - lse) : 0, mean = 0;
    if (w->mass[row] != 0) mean = w->dot[row] * ((1 - taken) / w->mass[row]);
    if (sink) sums[call->attn->q_heads + head] -= taken * (mean - dlse);
    return mean - dlse;
}

/* dgate of one row: dout . out / gate. */
static double gate_gradient(const ph_call *call, joint_backward_worker *w,
                            const ph_rows *r, int i)
{
    const ph_attn *a = call->attn;
    int64_t index = a->gate == PH_GATE_HEAD ? r->head[i] : ph_rows_index(call, r, i);
    int64_t at = ph_rows_at(call, r, i, &a->out);
    float gate = call->args->gate[index];
    if (gate == 0 || call->args->lse[ph_rows_index(call, r, i)] == -INFINITY) return 0;
    call->kernels->load_row(w->x, call->args->out, at, a->v_dim, a->dtype, 1);
    call->kernels->load_row(w->y, call->grads->dout, ph_dout_at(call, r, i), a->v_dim,
                            a->dtype, ph_twin_factor(call, r->head[i]));
    return (double)call->kernels->dot(a->v_dim, w->x, w->y) / gate;
}

static void finish_deltas(const ph_joint_task *task, joint_backward_worker *w,
                          double *sums)
{
    const ph_call *call = task->call;
    const ph_grads *grads = call->grads;
    for (int h = 0; h < w->w.r.heads; h++)
        for (int i = 0; i < w->w.r.count; i++) {
            const ph_rows *r = &w->w.r.rows[h];
            int64_t index = ph_rows_index(call, r, i);
            double lse = call->args->lse[index];
            double dlse = grads->dlse && lse != -INFINITY ? grads->dlse[index] : 0;
            double delta = call->plan->needs.power
                               ? finish_entmax(call, w, h, i, dlse, sums)
                               : finish_softmax(call, w, h, i, lse, dlse, sums);
            task->delta[index] = (float)delta;
            w->w.delta[h * call->plan->joint.grad_rows + i] = (float)delta;
            if (!call->args->gate) continue;
            double dgate = gate_gradient(call, w, r, i);
            sums[r->head[i]] += dgate;
            if (grads->dgate && call->attn->gate == PH_GATE_ROW)
                grads->dgate[index] = (float)dgate;
        }
}

/* ---- second pass over the keys ---- */

static float *dq_row(const ph_plan *plan, const joint_backward_worker *w, int h, int i)
{
    return w->dq + ((int64_t)h * plan->joint.grad_rows + i) * plan->k_pad;
}

/* dq += ds k where k is NaN or Inf: keys that no head of the row sees are skipped. */
static void add_visible(const ph_call *call, joint_backward_worker *w,
                        const ph_joint_block *t, int h, const float *ds, const float *k,
                        int64_t ld)
{
    int pad = call->plan->k_pad;
    for (int i = 0; i < w->w.r.count; i++)
        for (int c = t->c0; c < t->c1; c++)
            if (ph_joint_sees(call, &w->w.r, -1, i, t->j0 + c))
                call->kernels->axpy(pad, ds[ph_joint_at(t, h, i) + c], k + c * ld,
                                    dq_row(call->plan, w, h, i));
}

static void add_dq(const ph_call *call, joint_backward_worker *w, const ph_joint_block *t,
                   int h, const float *ds)
{
    static const float ones[PH_MR_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const ph_kernels *kernels = call->kernels;
    const ph_joint_rows *r = &w->w.r;
    int pad = call->plan->k_pad, head = r->rows[h].k_head;
    int64_t ld;
    const float *k = ph_joint_k_rows(call, w->w.keys, r->batch, head, t->j0, &ld);
    if (!ph_joint_k_finite(w->w.keys, r->batch, head, t->j0)) {
        add_visible(call, w, t, h, ds, k, ld);
        return;
    }
    for (int i = 0; i < r->count; i += kernels->mr)
        kernels->multiply_v(ph_min(kernels->mr, r->count - i), pad, t->c1 - t->c0,
                            ds + ph_joint_at(t, h, i) + t->c0, k + t->c0 * ld, ld,
                            dq_row(call->plan, w, h, i), pad, ones, NULL);
}

static void add_relative(const ph_call *call, const joint_backward_worker *w,
                         const ph_joint_block *t, const float *d, double *sums)
{
    int64_t entries = 2 * (int64_t)call->attn->reach + 1;
    for (int h = 0; h < w->w.r.heads; h++)
        for (int i = 0; i < w->w.r.count; i++) {
            const ph_rows *r = &w->w.r.rows[h];
            ph_relative_add(call, t->j0 + t->c0 - (r->token[i] + r->extent.offset),
                            t->c1 - t->c0, d + ph_joint_at(t, h, i) + t->c0,
                            sums + r->head[i] * entries);
        }
}

/* Converts gradients of the weights to those of the logits, and multiplies by k. */
static void logits_pass(const ph_joint_task *task, joint_backward_worker *w, int set,
                        int visible_blocks, double *sums)
{
    const ph_call *call = task->call;
    const ph_plan *plan = call->plan;
    for (int b = 0; b < visible_blocks; b++) {
        ph_joint_block *t = &w->blocks[b];
        ph_joint_grad_block at = grad_block_at(plan, w, b);
        const float *ds = at.d;
        ph_joint_grad_keys(task, &w->w, w->w.r.batch, set, t->j0);
        if (!holds_blocks(plan)) build_block(call, w, t, &at);
        ph_joint_center(call, &w->w, t, &at);
        if (call->grads->drelative)
            add_relative(call, w, t, at.d, sums + 3 * call->attn->q_heads);
        if (plan->needs.mix[PH_LOGITS]) {
            ph_joint_row_gradient(call, &w->w.r, t, at.s, at.d, w->dc[PH_LOGITS]);
            ph_joint_key_factors(call, w->w.keys, &w->w.r, t, NULL);
            ph_joint_unmix(call, &w->w.r, t, PH_LOGITS, at.d, at.x);
            ds = at.x;
        }
        for (int h = 0; call->grads->dq && h < w->w.r.heads; h++)
            add_dq(call, w, t, h, ds);
    }
}

static void store_dq(const ph_call *call, joint_backward_worker *w,
                     const ph_dq_target *target, int first_head)
{
    for (int h = 0; target->base && h < w->w.r.heads; h++)
        for (int i = 0; i < w->w.r.count; i++) {
            const ph_rows *r = &w->w.r.rows[h];
            ph_dq_put(call, target, r->head[i] - first_head, r->token[i],
                      dq_row(call->plan, w, h, i));
        }
}

/* ---- items ---- */

/* Where an item adds gradients of extras: a private partial sum if all items share
   them. */
static void find_dextra(const ph_joint_task *task, int item, float **out)
{
    const ph_plan *plan = task->call->plan;
    float *partial = task->partials + (size_t)item * partial_floats(plan);
    for (int e = 0; e < plan->needs.extras; e++) {
        out[e] = task->call->grads->dextra ? task->call->grads->dextra[e] : NULL;
        if (!is_shared(plan, e)) continue;
        if (out[e]) out[e] = partial;
        partial += extra_floats(plan, e);
    }
}

static void run_item(void *arg, int lane, int index)
{
    const ph_joint_task *task = arg;
    const ph_call *call = task->call;
    const ph_plan *plan = call->plan;
    const ph_joint_plan *j = &plan->joint;
    int item = task->first + index, set = item % j->sets;
    const ph_piece piece = ph_cut_find(&task->cut, item / j->sets);
    int total = ph_rows_extent(call, piece.batch).q_size * j->per_token;
    int first = piece.block * j->grad_rows, batch = piece.batch;
    int end = ph_min(first + j->grad_rows, total);
    double *sums = task->sums + (size_t)index * sum_count(plan);
    float *dextra[PH_EXTRAS_MAX];
    ph_arena arena = ph_call_lane(call, lane);
    joint_backward_worker w;

    take(plan, &arena, &w);
    find_dextra(task, index, dextra);
    int head = j->mixes ? 0 : set * j->per_token, heads = j->heads;
    ph_dq_target dq = ph_dq_tensor(call, batch, head);
    ph_clear_dq(call, &dq, heads * j->per_token, (int64_t)first * heads,
                (int64_t)end * heads);
    ph_joint_gather(call, &w.w.r, batch, set, first, end, j->grad_rows);
    if (w.w.r.count == 0) return;
    ph_joint_matrices(call, &w.w.r);
    ph_joint_grad_pack(task, &w.w, j->grad_rows);
    size_t rows = (size_t)j->heads * (size_t)j->grad_rows, square = (size_t)j->heads;
    memset(w.dot, 0, rows * sizeof(double));
    memset(w.mass, 0, rows * sizeof(double));
    memset(w.dq, 0, rows * (size_t)plan->k_pad * sizeof(float));
    if (plan->needs.power) memset(w.alpha, 0, rows * sizeof *w.alpha);
    for (int p = 0; p < 2; p++)
        if (plan->needs.mix[p]) memset(w.dc[p], 0, rows * square * sizeof(float));
    int visible_blocks = weights_pass(task, &w, set);
    finish_deltas(task, &w, sums);
    logits_pass(task, &w, set, visible_blocks, sums);
    store_dq(call, &w, &dq, head);
    if (plan->needs.mix[PH_LOGITS]) /* held logits are in base 2 */
        for (size_t i = 0; i < rows * square; i++) w.dc[PH_LOGITS][i] *= (float)PH_LN2;
    for (int p = 0; p < 2; p++)
        for (int i = 0; plan->needs.mix[p] && i < w.w.r.count; i++)
            plan->mixer->row_gradient(call, (ph_mix_at)p, batch, w.w.r.rows[0].token[i],
                                      w.dc[p] + (size_t)i * square * square, dextra);
}

/* ---- the call ---- */

static void prepare(const ph_call *call, ph_joint_task *t)
{
    const ph_attn *a = call->attn;
    const ph_variant_needs *needs = &call->plan->needs;
    const ph_grads *grads = call->grads;
    int64_t rows = a->q_heads * (int64_t)ph_attn_rows(a);
    memset(t->delta, 0, (size_t)rows * sizeof *t->delta);
    if (grads->dbias)
        memset(grads->dbias, 0,
               (size_t)a->bias.batch * (size_t)a->bias.heads * (size_t)a->bias.q_len *
                   (size_t)a->kv_len * sizeof(float));
    if (grads->dgate)
        memset(grads->dgate, 0,
               (size_t)(a->gate == PH_GATE_ROW ? rows : a->q_heads) * sizeof(float));
    if (grads->dsink) memset(grads->dsink, 0, (size_t)a->q_heads * sizeof(float));
    for (int e = 0; grads->dextra && e < needs->extras; e++)
        if (grads->dextra[e])
            memset(grads->dextra[e], 0, extra_floats(call->plan, e) * sizeof(float));
}

/* Adds the partial sums of a round to the outputs, in order of the items. */
static void add_partials(const ph_joint_task *t, int items)
{
    const ph_plan *plan = t->call->plan;
    size_t entries = sum_count(plan);
    for (int item = 0; item < items; item++) {
        float *dextra[PH_EXTRAS_MAX];
        const double *sums = t->sums + (size_t)item * entries;
        for (size_t i = 0; i < entries; i++) t->totals[i] += sums[i];
        find_dextra(t, item, dextra);
        for (int e = 0; e < plan->needs.extras; e++) {
            if (!is_shared(plan, e) || !dextra[e]) continue;
            for (size_t i = 0; i < extra_floats(plan, e); i++)
                t->call->grads->dextra[e][i] += dextra[e][i];
        }
    }
}

/* All row items of a wave of batch rows. */
static void row_pass(ph_joint_task *t, int batch_rows)
{
    const ph_plan *plan = t->call->plan;
    const ph_joint_plan *j = &plan->joint;
    ph_cut_rows(t->call, t->batch, batch_rows, j->per_token, j->grad_rows, &t->cut);
    int all = t->cut.count * j->sets, round = round_items(plan);
    for (t->first = 0; t->first < all; t->first += round) {
        int items = ph_min(round, all - t->first);
        memset(t->sums, 0, (size_t)items * sum_count(plan) * sizeof(double));
        memset(t->partials, 0, (size_t)items * partial_floats(plan) * sizeof(float));
        ph_ctx_run(plan->ctx, items, run_item, t);
        add_partials(t, items);
    }
}

static void finish_totals(const ph_call *call, const double *totals)
{
    const ph_attn *a = call->attn;
    const ph_grads *grads = call->grads;
    for (int h = 0; h < a->q_heads; h++) {
        if (grads->dgate && a->gate == PH_GATE_HEAD) grads->dgate[h] = (float)totals[h];
        if (grads->dsink) grads->dsink[h] = (float)totals[a->q_heads + h];
        if (is_learned(call))
            call->plan->norm->alpha_gradient(call, h, totals[2 * a->q_heads + h],
                                             grads->dextra);
    }
    for (size_t i = 3 * (size_t)a->q_heads; grads->drelative && i < sum_count(call->plan);
         i++)
        grads->drelative[i - 3 * (size_t)a->q_heads] = (float)totals[i];
}

void ph_joint_backward(const ph_call *call)
{
    const ph_plan *plan = call->plan;
    int batch = call->attn->batch;
    int wave = plan->joint.grad_wave ? plan->joint.grad_wave : batch;
    ph_arena arena = ph_call_shared(call);
    ph_joint_task t = {.call = call};
    take_task(plan, &arena, &t);
    memset(t.totals, 0, sum_count(plan) * sizeof(double));
    prepare(call, &t);
    int lost = ph_joint_stats(call, t.stat);
    for (t.batch = 0; t.batch < batch; t.batch += wave) {
        int rows = ph_min(wave, batch - t.batch);
        ph_joint_keys_pack(call, &t.keys, t.batch);
        if (lost) ph_joint_bases(call, &t.keys, arena, t.batch, rows, t.stat);
        row_pass(&t, rows);
        ph_joint_key_pass(&t, rows);
        if (call->grads->dbias) ph_joint_bias_gradient(&t, rows);
    }
    finish_totals(call, t.totals);
}
