/*
 * joint_bias.c - dbias in the joint driver: gradients of the logits after mixing, summed
 * over the axes bias was broadcast on.
 *
 * A work item owns elements of dbias, all heads: one batch row (or all), a block of rows
 * (or all), PH_BLOCK keys. It recomputes the joint blocks of every row that used them, in
 * order.
 */
#include "attn/joint_grad.h"

typedef struct joint_bias_worker {
    ph_joint_grad w;
    ph_joint_grad_block blocks;
} joint_bias_worker;

typedef struct joint_bias_job {
    const ph_joint_task *task;
    int batch_rows, planes, row_blocks;
} joint_bias_job;

static void take(const ph_plan *plan, ph_arena *arena, joint_bias_worker *w)
{
    ph_joint_grad_take(plan, arena, plan->joint.key_item_rows, &w->w);
    ph_joint_grad_block_take(plan, arena, plan->joint.key_item_rows, 1, &w->blocks);
}

size_t ph_joint_bias_bytes(const ph_plan *plan)
{
    ph_arena arena = {0};
    joint_bias_worker w;
    take(plan, &arena, &w);
    return arena.used;
}

static void add_cells(const ph_call *call, const joint_bias_worker *w,
                      const ph_joint_block *t)
{
    const ph_attn *a = call->attn;
    const ph_joint_rows *r = &w->w.r;
    for (int h = 0; h < r->heads; h++)
        for (int i = 0; i < r->count; i++) {
            int64_t batch = a->bias.batch == 1 ? 0 : r->batch;
            int64_t head = a->bias.heads == 1 ? 0 : r->rows[h].head[i];
            int64_t token = a->bias.q_len == 1 ? 0 : r->rows[h].token[i];
            float *cells =
                call->grads->dbias +
                ((batch * a->bias.heads + head) * a->bias.q_len + token) * a->kv_len +
                t->j0;
            const float *d = w->blocks.d + ph_joint_at(t, h, i);
            for (int c = t->c0; c < t->c1; c++) cells[c] += d[c];
        }
}

/* Rows [first, end) of all sets of one batch row against one block of keys. */
static void add_rows(const ph_joint_task *task, joint_bias_worker *w, int batch,
                     int first, int end, int j0)
{
    const ph_call *call = task->call;
    const ph_joint_plan *j = &call->plan->joint;
    for (int set = 0; set < j->sets; set++) {
        ph_joint_grad_keys(task, &w->w, batch, set, j0);
        for (int row = first, next; row < end; row = next) {
            ph_joint_block t;
            next = ph_joint_gather(call, &w->w.r, batch, set, row, end, j->key_item_rows);
            if (w->w.r.count == 0) break;
            if (!ph_joint_range(call, &w->w.r, j0, j->key_item_rows, &t)) continue;
            ph_joint_matrices(call, &w->w.r);
            ph_joint_grad_pack(task, &w->w, j->key_item_rows);
            ph_joint_build(call, &w->w, &t, &w->blocks);
            if (call->plan->needs.mix[PH_WEIGHTS])
                ph_joint_unmix(call, &w->w.r, &t, PH_WEIGHTS, w->blocks.x, w->blocks.d);
            ph_joint_center(call, &w->w, &t, &w->blocks);
            add_cells(call, w, &t);
        }
    }
}

static void run_item(void *arg, int lane, int index)
{
    const joint_bias_job *own = arg;
    const ph_call *call = own->task->call;
    const ph_joint_plan *j = &call->plan->joint;
    int j0 = index % j->key_blocks * PH_BLOCK, rest = index / j->key_blocks;
    int block = rest % own->row_blocks, plane = rest / own->row_blocks;
    int total = call->attn->q_len * j->per_token;
    int size = own->row_blocks > 1 ? PH_GRAD_ROWS * j->per_token : total;
    int first = block * size, end = ph_min(first + size, total);
    ph_arena arena = ph_call_lane(call, lane);
    joint_bias_worker w;
    take(call->plan, &arena, &w);
    for (int b = 0; b < own->batch_rows; b++)
        if (own->planes == 1 || b == plane)
            add_rows(own->task, &w, own->task->batch + b, first, end, j0);
}

void ph_joint_bias_gradient(const ph_joint_task *task, int batch_rows)
{
    const ph_attn *a = task->call->attn;
    joint_bias_job j = {.task = task, .batch_rows = batch_rows};
    j.planes = a->bias.batch == 1 ? 1 : batch_rows;
    j.row_blocks = a->bias.q_len == 1 ? 1 : ph_div_up(a->q_len, PH_GRAD_ROWS);
    ph_ctx_run(task->call->plan->ctx,
               j.planes * j.row_blocks * task->call->plan->joint.key_blocks, run_item,
               &j);
}
