/*
 * joint_keys.c - the key pass of the joint backward driver: dk, dv, and the gradients of
 * a variant's key matrices.
 *
 *     dk = ds^T q      dv = (mixed, dropped p)^T dout
 *
 * A key item owns one block of keys for all heads that share them and walks over the rows
 * that see it, joint block by joint block, in order.
 */
#include <string.h>

#include "attn/joint_grad.h"
#include "attn/targets.h"

enum {
    FLUSH_ROWS = 768
}; /* rows after which dk and dv are flushed: a long chain loses digits */

typedef struct joint_keys_worker {
    ph_joint_grad w;
    ph_joint_grad_block blocks;
    float *mixed; /* weights after mixing and dropout; NULL: p itself */
    float *dk, *dv, *dk_sum, *dv_sum; /* (heads, PH_BLOCK, pad): last rows, all rows */
    float *dkey_factors[2];           /* by place: gradients of w1, w2, g */
    int k_heads, v_heads;             /* of the item */
} joint_keys_worker;

static int item_heads(const ph_plan *plan)
{
    return plan->joint.mixes ? plan->attn.q_heads : plan->cluster;
}

static void take(const ph_plan *plan, ph_arena *arena, joint_keys_worker *w)
{
    const ph_attn *a = &plan->attn;
    int rows = plan->joint.key_item_rows, heads = item_heads(plan);
    int apart = plan->needs.mix[PH_WEIGHTS] || plan->drop_limit;
    w->k_heads = heads * a->k_heads / a->q_heads;
    w->v_heads = heads * a->v_heads / a->q_heads;
    size_t k = (size_t)w->k_heads * PH_BLOCK * (size_t)plan->k_pad;
    size_t v = (size_t)w->v_heads * PH_BLOCK * (size_t)plan->v_pad;
    ph_joint_grad_take(plan, arena, rows, &w->w);
    ph_joint_grad_block_take(plan, arena, rows, 1, &w->blocks);
    w->mixed = apart ? ph_arena_floats(arena, ph_joint_floats(plan, rows)) : NULL;
    w->dk = ph_arena_floats(arena, k);
    w->dv = ph_arena_floats(arena, v);
    w->dk_sum = ph_arena_floats(arena, k);
    w->dv_sum = ph_arena_floats(arena, v);
    for (int p = 0; p < 2; p++)
        w->dkey_factors[p] = ph_arena_floats(arena, ph_joint_mix_floats(plan, p));
}

size_t ph_joint_key_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    joint_keys_worker w;
    take(plan, &arena, &w);
    return arena.used;
}

/* sum[key] += coefficients^T rows: one head, mr keys at a time. */
static void add_products(const ph_call *call, const joint_keys_worker *w,
                         const ph_joint_block *t, int h, const float *coefficients,
                         const float *rows, int pad, float *sum)
{
    const ph_kernels *k = call->kernels;
    for (int c = t->c0; c < t->c1; c += k->mr)
        k->product(ph_min(k->mr, t->c1 - c), pad, w->w.r.count,
                   coefficients + ph_joint_at(t, h, 0) + c, PH_BLOCK, rows, pad, k->nr,
                   sum + (int64_t)c * pad, pad, 1, NULL);
}

/* The same where a row may have NaN or Inf: keys that head `by` (-1: any head) does not
   see are skipped. */
static void add_visible(const ph_call *call, const joint_keys_worker *w,
                        const ph_joint_block *t, int h, int by, const float *coefficients,
                        const float *rows, int pad, float *sum)
{
    for (int i = 0; i < w->w.r.count; i++)
        for (int c = t->c0; c < t->c1; c++)
            if (ph_joint_sees(call, &w->w.r, by, i, t->j0 + c))
                call->kernels->axpy(pad, coefficients[ph_joint_at(t, h, i) + c],
                                    rows + (int64_t)i * pad, sum + (int64_t)c * pad);
}

static void add_heads(const ph_call *call, joint_keys_worker *w, const ph_joint_block *t,
                      const float *weights, const float *ds, int first_head)
{
    const ph_plan *plan = call->plan;
    for (int h = 0; h < w->w.r.heads; h++) {
        const ph_grad_rows *g = &w->w.g[h];
        int64_t kh = g->rows->k_head - first_head / plan->per_k;
        int64_t vh = g->rows->v_head - first_head / plan->per_v;
        float *dk = w->dk + kh * PH_BLOCK * plan->k_pad;
        float *dv = w->dv + vh * PH_BLOCK * plan->v_pad;
        if (w->w.finite) {
            add_products(call, w, t, h, weights, g->dout, plan->v_pad, dv);
            add_products(call, w, t, h, ds, g->q, plan->k_pad, dk);
        } else {
            add_visible(call, w, t, h, h, weights, g->dout, plan->v_pad, dv);
            add_visible(call, w, t, h, -1, ds, g->q, plan->k_pad, dk);
        }
    }
}

/* The gathered rows against the block. */
static void run_block(const ph_call *call, joint_keys_worker *w, ph_joint_block *t,
                      int first_head)
{
    const ph_variant_needs *needs = &call->plan->needs;
    const ph_joint_rows *r = &w->w.r;
    const ph_joint_grad_block *b = &w->blocks;
    const float *weights = b->p, *ds = b->d;
    ph_joint_build(call, &w->w, t, b);
    if (w->mixed) {
        if (needs->mix[PH_WEIGHTS])
            ph_joint_mix(call, r, t, PH_WEIGHTS, b->p, w->mixed);
        else
            memcpy(w->mixed, b->p, ph_joint_floats(call->plan, t->rows) * sizeof(float));
        if (r->uneven) ph_joint_clear_masked(call, r, t, 0, w->mixed);
        if (call->plan->drop_limit) ph_joint_drop(call, r, t, w->w.drop, w->mixed);
        weights = w->mixed;
    }
    if (needs->mix[PH_WEIGHTS]) {
        if (needs->key_rank[PH_WEIGHTS])
            ph_joint_key_gradient(call, r, t, PH_WEIGHTS, b->p, b->x,
                                  w->dkey_factors[PH_WEIGHTS]);
        ph_joint_unmix(call, r, t, PH_WEIGHTS, b->x, b->d);
    }
    ph_joint_center(call, &w->w, t, b);
    if (needs->mix[PH_LOGITS]) {
        if (needs->key_rank[PH_LOGITS])
            ph_joint_key_gradient(call, r, t, PH_LOGITS, b->s, b->d,
                                  w->dkey_factors[PH_LOGITS]);
        ph_joint_unmix(call, r, t, PH_LOGITS, b->d, b->x);
        ds = b->x;
    }
    add_heads(call, w, t, weights, ds, first_head);
}

static void flush(const ph_call *call, joint_keys_worker *w)
{
    int k = w->k_heads * PH_BLOCK * call->plan->k_pad;
    int v = w->v_heads * PH_BLOCK * call->plan->v_pad;
    call->kernels->axpy(k, 1, w->dk, w->dk_sum);
    call->kernels->axpy(v, 1, w->dv, w->dv_sum);
    memset(w->dk, 0, (size_t)k * sizeof(float));
    memset(w->dv, 0, (size_t)v * sizeof(float));
}

/* All rows of one set of heads. */
static void run_set(const ph_joint_task *task, joint_keys_worker *w, int batch, int set,
                    int j0, int first_head)
{
    const ph_call *call = task->call;
    const ph_joint_plan *j = &call->plan->joint;
    ph_joint_rows *r = &w->w.r;
    int total = ph_rows_extent(call, batch).q_size * j->per_token, rows = 0;
    ph_joint_grad_keys(task, &w->w, batch, set, j0);
    for (int row = 0, next; row < total; row = next) {
        ph_joint_block t;
        next = ph_joint_gather(call, r, batch, set, row, total, j->key_item_rows);
        if (r->count == 0) break; /* beyond the valid queries */
        if (r->low >= j0 + PH_BLOCK || r->high <= j0) continue;
        if (!ph_joint_range(call, r, j0, j->key_item_rows, &t)) continue;
        ph_joint_matrices(call, r);
        ph_joint_grad_pack(task, &w->w, j->key_item_rows);
        run_block(call, w, &t, first_head);
        rows += r->count;
        if (rows >= FLUSH_ROWS) flush(call, w), rows = 0;
    }
    flush(call, w);
}

/* Stores dk and dv of all heads of the item. */
static void finish_keys(const ph_call *call, const joint_keys_worker *w, int batch,
                        int head0, int j0)
{
    const ph_attn *a = call->attn;
    int n = ph_min(PH_BLOCK, ph_rows_extent(call, batch).kv_size - j0);
    int64_t k_size = (int64_t)PH_BLOCK * call->plan->k_pad;
    int64_t v_size = (int64_t)PH_BLOCK * call->plan->v_pad;
    for (int h = 0; h < w->k_heads; h++) {
        ph_key_target dk =
            ph_dk_target(call, batch, head0 * a->k_heads / a->q_heads + h, j0);
        ph_store_keys(call, &dk, 0, n, w->dk_sum + h * k_size);
    }
    for (int h = 0; h < w->v_heads; h++) {
        ph_key_target dv =
            ph_dv_target(call, batch, head0 * a->v_heads / a->q_heads + h, j0);
        ph_store_keys(call, &dv, 0, n, w->dv_sum + h * v_size);
    }
}

static void clear(const ph_plan *plan, joint_keys_worker *w)
{
    size_t k = (size_t)w->k_heads * PH_BLOCK * (size_t)plan->k_pad * sizeof(float);
    size_t v = (size_t)w->v_heads * PH_BLOCK * (size_t)plan->v_pad * sizeof(float);
    memset(w->dk, 0, k);
    memset(w->dk_sum, 0, k);
    memset(w->dv, 0, v);
    memset(w->dv_sum, 0, v);
    for (int p = 0; p < 2; p++)
        memset(w->dkey_factors[p], 0, ph_joint_mix_floats(plan, p) * sizeof(float));
}

static void run_item(void *arg, int lane, int index)
{
    const ph_joint_task *task = arg;
    const ph_call *call = task->call;
    const ph_plan *plan = call->plan;
    const ph_attn *a = call->attn;
    int heads = item_heads(plan), clusters = a->q_heads / heads;
    const ph_piece piece = ph_cut_find(&task->cut, index / clusters);
    int j0 = piece.block * PH_BLOCK, batch = piece.batch, cluster = index % clusters;
    int head0 = cluster * heads, sets = plan->joint.sets / clusters;
    int n = ph_min(PH_BLOCK, ph_rows_extent(call, batch).kv_len - j0);
    ph_arena arena = ph_call_lane(call, lane);
    joint_keys_worker w;
    take(plan, &arena, &w);
    clear(plan, &w);
    for (int s = 0; n > 0 && s < sets; s++)
        run_set(task, &w, batch, cluster * sets + s, j0, head0);
    finish_keys(call, &w, batch, head0, j0);
    for (size_t i = 0; i < ph_joint_mix_floats(plan, PH_LOGITS); i++)
        w.dkey_factors[PH_LOGITS][i] *= (float)PH_LN2; /* held logits are in base 2 */
    for (int p = 0; n > 0 && call->grads->dextra && p < 2; p++)
        if (plan->needs.key_rank[p])
            plan->mixer->key_gradient(call, (ph_mix_at)p, batch, j0, n, w.dkey_factors[p],
                                      call->grads->dextra);
}

void ph_joint_key_pass(ph_joint_task *task, int batch_rows)
{
    const ph_call *call = task->call;
    const ph_plan *plan = call->plan;
    int ranks = plan->needs.key_rank[0] + plan->needs.key_rank[1];
    int clusters = call->attn->q_heads / item_heads(plan);
    if (!call->grads->dk && !call->grads->dv && !(ranks && call->grads->dextra)) return;
    ph_cut_keys(call, task->batch, batch_rows, PH_BLOCK, &task->cut);
    ph_ctx_run(plan->ctx, task->cut.count * clusters, run_item, task);
}
