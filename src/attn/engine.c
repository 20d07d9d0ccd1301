/*
 * engine.c - the CPU as a backend: it cuts the work of a plan and runs its passes.
 */
#include <stdio.h>
#include <string.h>

#include "attn/backend.h"
#include "attn/plan.h"

/* ---- memory ---- */

static ph_status alloc(ph_ctx *ctx, size_t bytes, void **out)
{
    *out = ph_ctx_alloc(ctx, bytes);
    if (*out) return PH_OK;
    return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for %zu bytes", bytes);
}

static ph_status copy(ph_ctx *ctx, void *to, const void *from, size_t bytes, void *stream)
{
    (void)ctx, (void)stream;
    if (bytes) memmove(to, from, bytes);
    return PH_OK;
}

static ph_status sync(ph_ctx *ctx, void *stream)
{
    (void)ctx, (void)stream; /* calls return when their work is done */
    return PH_OK;
}

static void close_device(ph_ctx *ctx)
{
    (void)ctx; /* ph_close frees the pool and the scratch */
}

/* ---- cutting the work ---- */

/* Items of plan->rows rows; of a ragged batch as if it were one sequence, so that threads
   share a long sequence among short ones. */
static int64_t count_items(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int64_t sequences = a->ragged ? 1 : a->batch;
    int64_t rows = (int64_t)(a->ragged ? a->q_total : a->q_len) * plan->group;
    return sequences * plan->groups * ((rows + plan->rows - 1) / plan->rows);
}

/* Rows of an item: many reuse packed keys, few give enough items for all threads. */
static void choose_rows(ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    int threads = plan->ctx->threads, rows = a->q_len * plan->group;
    int groups = a->batch * plan->groups;
    plan->rows = PH_ROWS_MAX;
    while (threads > 1 && plan->rows / 2 >= PH_ROWS_MIN &&
           count_items(plan) < PH_ITEMS_WANTED * threads)
        plan->rows /= 2;
    plan->rows = ph_min(plan->rows, ph_max(rows, 1));
    plan->splits = ph_max(1, ph_div_up(a->kv_len, PH_SPLIT));
    plan->by_split = threads > 1 && plan->splits > 1 && rows <= PH_ROWS_MIN &&
                     groups < PH_ITEMS_WANTED * threads;
}

/* Operands of the products: bf16 unchanged where the CPU multiplies bf16, else f32. */
static void choose_operands(ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    const ph_kernels *k = plan->kernels;
    plan->bf16_pairs =
        a->dtype == PH_BF16 && !ph_plan_is_joint(plan) ? k->bf16_pairs : NULL;
    plan->k_steps = ph_round_up(a->qk_dim, PH_AMX_STEP);
    plan->strip = plan->bf16_pairs ? PH_AMX_TILE : k->mr;
    plan->k_floats = plan->bf16_pairs ? plan->k_steps / 2 : a->qk_dim;
    plan->q_floats =
        plan->bf16_pairs ? PH_AMX_TILE * plan->k_steps / 2 : k->mr * plan->k_pad;
}

static ph_status measure(ph_plan *plan)
{
    plan->kernels = plan->ctx->kernels;
    plan->k_pad = ph_round_up(plan->attn.qk_dim, PH_LANES);
    plan->v_pad = ph_round_up(plan->attn.v_dim, PH_LANES);
    choose_rows(plan);
    ph_joint_choose(plan);
    choose_operands(plan);
    ph_forward_measure(plan);
    ph_look_measure(plan);
    if (plan->attn.backward) ph_backward_measure(plan);
    return PH_OK;
}

static void destroy(ph_plan *plan)
{
    (void)plan; /* a plan of the CPU is one allocation */
}

static int describe(const ph_plan *plan, char *text, size_t size)
{
    int joint = ph_plan_is_joint(plan);
    return snprintf(text, size,
                    "%s %s: %d threads, %d x %d tile, %s of %d rows, groups of %d heads",
                    plan->attn.variant, plan->kernels->name, plan->ctx->threads,
                    plan->kernels->mr, plan->kernels->nr,
                    joint            ? "held rows, blocks"
                    : plan->by_split ? "key splits"
                                     : "row blocks",
                    joint ? plan->joint.rows : plan->rows, plan->group);
}

/* ---- calls ---- */

static ph_status inspect(const ph_plan *plan, const ph_args *args, ph_tensor_check *check)
{
    return check(plan, args);
}

static ph_status scratch(const ph_plan *plan, size_t bytes, void **out)
{
    return ph_ctx_scratch(plan->ctx, bytes, out);
}

static int is_empty(const ph_call *call)
{
    return call->attn->batch == 0;
}

static ph_status forward(const ph_call *call)
{
    if (!is_empty(call)) ph_attn_forward(call);
    return PH_OK;
}

static ph_status look(const ph_call *call)
{
    if (!is_empty(call)) ph_attn_look(call);
    return PH_OK;
}

/* An empty batch: gradients of what the batch shares are empty sums. */
static void clear_grads(const ph_plan *plan, const ph_grads *grads)
{
    const ph_attn *a = &plan->attn;
    size_t heads = (size_t)a->q_heads;
    size_t cells = (size_t)a->bias.batch * (size_t)a->bias.heads * (size_t)a->bias.q_len;
    if (grads->dsink) memset(grads->dsink, 0, heads * sizeof(float));
    if (grads->drelative)
        memset(grads->drelative, 0, heads * (2 * (size_t)a->reach + 1) * sizeof(float));
    if (grads->dgate && a->gate == PH_GATE_HEAD)
        memset(grads->dgate, 0, heads * sizeof(float));
    if (grads->dbias) memset(grads->dbias, 0, cells * (size_t)a->kv_len * sizeof(float));
    for (int e = 0; grads->dextra && e < plan->needs.extras; e++)
        if (grads->dextra[e])
            memset(grads->dextra[e], 0,
                   ph_param_size(&plan->needs.extra[e]) * sizeof(float));
}

static ph_status backward(const ph_call *call)
{
    if (is_empty(call))
        clear_grads(call->plan, call->grads);
    else
        ph_attn_backward(call);
    return PH_OK;
}

const ph_backend ph_cpu_backend = {.alloc = alloc,
                                   .release = ph_ctx_release,
                                   .copy = copy,
                                   .sync = sync,
                                   .close = close_device,
                                   .measure = measure,
                                   .destroy = destroy,
                                   .describe = describe,
                                   .inspect = inspect,
                                   .scratch = scratch,
                                   .forward = forward,
                                   .backward = backward,
                                   .look = look};
