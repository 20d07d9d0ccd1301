/*
 * polyhead.c - plans and calls of polyhead.h: check arguments, then one call inward.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/alias.h"
#include "attn/backend.h"
#include "attn/plan.h"
#include "base/arena.h"
#include "base/reserved.h"
#include "variants/variants.h"

/* ---- variants ---- */

const ph_variant_info *ph_variant_list(int i)
{
    const ph_variant *variant = ph_variant_at(i);
    return variant ? &variant->info : NULL;
}

ph_status ph_variant_heads(ph_ctx *ctx, ph_attn *attn)
{
    if (!ctx || !attn) return ph_ctx_null(ctx, "attn");
    return PH_WITHIN(ctx, ph_variant_take_heads(ctx, attn));
}

/* ---- plan ---- */

ph_status ph_plan_make(ph_plan **out, ph_ctx *ctx, const ph_attn *attn,
                       const ph_backward_layout *backward)
{
    ph_core core;
    ph_attn counted = *attn;
    PH_TRY(ph_variant_take_heads(ctx, &counted));
    PH_TRY(ph_variant_core(ctx, counted.variant, &core));
    ph_plan *plan = ph_ctx_alloc(ctx, sizeof *plan);
    if (!plan) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a plan");
    memset(plan, 0, sizeof *plan);
    plan->ctx = ctx;
    plan->backward = *backward;
    ph_status status = ph_plan_init(plan, &counted, &core);
    if (status == PH_OK)
        *out = plan;
    else
        ph_ctx_release(ctx, plan);
    return status;
}

static ph_status create(ph_plan **out, ph_ctx *ctx, const ph_attn *attn)
{
    if (!attn) return ph_fail(ctx, PH_BAD_ARGUMENT, "attn is NULL");
    PH_CHECK_RESERVED(ctx, "ph_attn", attn->reserved);
    return ph_plan_make(out, ctx, attn, &(ph_backward_layout){0});
}

ph_status ph_plan_create(ph_plan **out, ph_ctx *ctx, const ph_attn *attn)
{
    if (out) *out = NULL;
    if (!out || !ctx) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, create(out, ctx, attn));
}

void ph_plan_free(ph_plan *plan)
{
    if (!plan) return;
    plan->ctx->backend->destroy(plan);
    ph_ctx_release(plan->ctx, plan);
}

/* Bytes of an lse at the start of the workspace: a forward call with a look needs one
   even if the caller passes none. */
static size_t lse_bytes(const ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    ph_arena arena = {0};
    ph_arena_floats(&arena, (size_t)a->q_heads * ph_attn_rows(a));
    return arena.used;
}

size_t ph_plan_workspace(const ph_plan *plan)
{
    if (!plan) return 0;
    size_t most = 0;
    for (int what = PH_DO_FORWARD; what <= PH_DO_LOOK; what++) {
        size_t bytes = ph_plan_bytes(plan, what);
        if (bytes > most) most = bytes;
    }
    return most + lse_bytes(plan);
}

const ph_param *ph_plan_extra(const ph_plan *plan, int i)
{
    return plan && i >= 0 && i < plan->needs.extras ? &plan->needs.extra[i] : NULL;
}

int ph_plan_describe(const ph_plan *plan, char *text, size_t size)
{
    if (!text) size = 0;
    if (!plan) return snprintf(text, size, "%s", "");
    int used = plan->ctx->backend->describe(plan, text, size);
    size_t at = (size_t)used < size ? (size_t)used : size;
    return used + snprintf(at < size ? text + at : NULL, size - at,
                           ", %zu bytes of workspace", ph_plan_workspace(plan));
}

/* ---- calls ---- */

static ph_status check_lens(const ph_plan *plan, const char *name, const int32_t *lens,
                            int most)
{
    for (int b = 0; lens && b < plan->attn.batch; b++)
        if (lens[b] < 0 || lens[b] > most)
            return ph_fail(plan->ctx, PH_BAD_SHAPE, "%s[%d] is %d, expected 0 to %d",
                           name, b, lens[b], most);
    return PH_OK;
}

/* A tensor is given if and only if the plan has its shape. */
static ph_status check_declared(const ph_plan *plan, const char *name, const void *tensor,
                                const ph_broadcast *shape)
{
    int declared = shape->batch || shape->heads || shape->q_len;
    if (tensor && !declared)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                       "%s is given but ph_attn.%s has no shape, expected one", name,
                       name);
    if (!tensor && declared && shape->batch && shape->q_len && plan->attn.kv_len)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                       "%s is NULL but ph_attn.%s has a shape, expected the tensor", name,
                       name);
    return PH_OK;
}

static ph_status check_values(const ph_plan *plan, const char *name, const float *x,
                              int64_t n, int allow_minus_inf)
{
    for (int64_t i = 0; x && i < n; i++)
        if (!(isfinite(x[i]) || (allow_minus_inf && x[i] == -INFINITY)))
            return ph_fail(plan->ctx, PH_BAD_VALUE, "%s[%lld] is %g, expected %s", name,
                           (long long)i, (double)x[i],
                           allow_minus_inf ? "a finite number or -inf"
                                           : "a finite number");
    return PH_OK;
}

static ph_status check_all_values(const ph_plan *plan, const ph_args *args)
{
    const ph_attn *a = &plan->attn;
    int64_t rows = a->q_heads * (int64_t)ph_attn_rows(a);
    int64_t cells = (int64_t)a->bias.batch * a->bias.heads * a->bias.q_len * a->kv_len;
    PH_TRY(check_values(plan, "bias", args->bias, cells, 1));
    PH_TRY(check_values(plan, "gate", args->gate,
                        a->gate == PH_GATE_HEAD ? a->q_heads : rows, 0));
    PH_TRY(check_values(plan, "relative", args->relative,
                        (int64_t)a->q_heads * (2 * a->reach + 1), 0));
    PH_TRY(check_values(plan, "sink", args->sink, a->q_heads, 1));
    return check_values(plan, "alibi", args->alibi, a->q_heads, 0);
}

static ph_status check_tensors(const ph_plan *plan, const ph_args *args)
{
    PH_TRY(ph_check_sequences(plan, args));
    PH_TRY(check_lens(plan, "q_lens", args->q_lens, plan->attn.q_len));
    PH_TRY(check_lens(plan, "kv_lens", args->kv_lens, plan->attn.kv_len));
    PH_TRY(ph_check_table(plan, args));
    return plan->ctx->options.checked ? check_all_values(plan, args) : PH_OK;
}

static ph_status need(const ph_plan *plan, const char *name, const void *pointer,
                      int64_t elements)
{
    if (pointer || elements == 0) return PH_OK;
    return ph_fail(plan->ctx, PH_BAD_ARGUMENT, "%s is NULL, expected a tensor", name);
}

static ph_status check_extra(const ph_plan *plan, const ph_args *args)
{
    for (int e = 0; e < plan->needs.extras; e++) {
        const ph_param *p = &plan->needs.extra[e];
        int64_t elements = p->optional ? 0 : (int64_t)ph_param_size(p);
        PH_TRY(need(plan, p->name, args->extra ? args->extra[e] : NULL, elements));
    }
    return PH_OK;
}

static ph_status check_workspace(const ph_plan *plan, const ph_args *args)
{
    size_t least = ph_plan_workspace(plan);
    if ((uintptr_t)args->workspace % PH_ALIGN)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT, "workspace is not aligned to %d bytes",
                       PH_ALIGN);
    if (args->workspace && args->workspace_size < least)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                       "workspace_size is %zu, expected at least %zu",
                       args->workspace_size, least);
    return PH_OK;
}

/* k or v. */
static ph_status need_keys(const ph_plan *plan, const char *name, const void *pointer,
                           int dim)
{
    const ph_attn *a = &plan->attn;
    return need(plan, name, pointer, ph_key_blocks(a) && a->kv_len && dim);
}

static ph_status check_args(const ph_plan *plan, const ph_args *args)
{
    const ph_attn *a = &plan->attn;
    if (!args) return ph_fail(plan->ctx, PH_BAD_ARGUMENT, "args is NULL");
    PH_CHECK_RESERVED(plan->ctx, "ph_args", args->reserved);
    PH_TRY(need(plan, "q", args->q, (int64_t)ph_attn_rows(a) * a->qk_dim));
    PH_TRY(need_keys(plan, "k", args->k, a->qk_dim));
    if (args->page_table && !a->page_len)
        return ph_fail(
            plan->ctx, PH_BAD_ARGUMENT,
            "page_table is given but ph_attn.page_len is 0, expected a length");
    PH_TRY(
        need(plan, "page_table", args->page_table, (int64_t)a->batch * plan->table_len));
    PH_TRY(check_declared(plan, "bias", args->bias, &a->bias));
    PH_TRY(check_declared(plan, "visible", args->visible, &a->visible));
    if (!args->relative != !a->reach)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                       "relative is %s and ph_attn.reach %d, expected both or none",
                       args->relative ? "given" : "NULL", a->reach);
    PH_TRY(check_extra(plan, args));
    PH_TRY(check_workspace(plan, args));
    return plan->ctx->backend->inspect(plan, args, check_tensors);
}

static ph_status check_look(const ph_plan *plan, const ph_look_at *look)
{
    const ph_attn *a = &plan->attn;
    if (!look) return PH_OK;
    PH_CHECK_RESERVED(plan->ctx, "ph_look_at", look->reserved);
    if (!look->top_weight != !look->top_index)
        return ph_fail(
            plan->ctx, PH_BAD_ARGUMENT,
            "top_weight and top_index are wanted together, one of them is NULL");
    if (look->top_index && look->top_k < 1)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT, "top_k is %d, expected at least 1",
                       look->top_k);
    if (!look->rect) return PH_OK;
    if (look->rect_batch < 0 || look->rect_batch >= a->batch || look->rect_head < 0 ||
        look->rect_head >= a->q_heads)
        return ph_fail(plan->ctx, PH_BAD_SHAPE,
                       "rect is of batch row %d and head %d, expected below %d and %d",
                       look->rect_batch, look->rect_head, a->batch, a->q_heads);
    if (look->row0 < 0 || look->rows < 0 || look->rows > a->q_len - look->row0)
        return ph_fail(plan->ctx, PH_BAD_SHAPE,
                       "rect has rows %d and %d more, expected them inside %d",
                       look->row0, look->rows, a->q_len);
    if (look->col0 < 0 || look->cols < 0 || look->cols > a->kv_len - look->col0)
        return ph_fail(plan->ctx, PH_BAD_SHAPE,
                       "rect has keys %d and %d more, expected them inside %d",
                       look->col0, look->cols, a->kv_len);
    return PH_OK;
}

static ph_status check_alias(const ph_plan *plan, const ph_args *args,
                             const ph_grads *grads, int what)
{
    return plan->ctx->options.checked ? ph_alias_check(plan, args, grads, what) : PH_OK;
}

/* Finds the workspace; all checks are over. */
static ph_status begin(ph_call *call, const ph_plan *plan, const ph_args *args,
                       const ph_grads *grads, int what)
{
    void *space = args->workspace;
    size_t front = lse_bytes(plan);
    if (!space)
        PH_TRY(
            plan->ctx->backend->scratch(plan, front + ph_plan_bytes(plan, what), &space));
    space = (char *)space + front;
    *call = (ph_call){.plan = plan,
                      .kernels = plan->kernels,
                      .attn = &plan->attn,
                      .args = args,
                      .grads = grads,
                      .kv_offsets = args->kv_offsets ? args->kv_offsets : args->q_offsets,
                      .shared = space,
                      .lanes = (char *)space + plan->shared_bytes[what],
                      .lane_bytes = plan->lane_bytes[what],
                      .shared_bytes = plan->shared_bytes[what]};
    return PH_OK;
}

static ph_status run_look(const ph_plan *plan, const ph_args *args)
{
    ph_call call;
    PH_TRY(begin(&call, plan, args, NULL, PH_DO_LOOK));
    return plan->ctx->backend->look(&call);
}

ph_status ph_check_forward(const ph_plan *plan, const ph_args *args)
{
    const ph_attn *a = &plan->attn;
    PH_TRY(check_args(plan, args));
    PH_TRY(need_keys(plan, "v", args->v, a->v_dim));
    PH_TRY(need(plan, "out", args->out, (int64_t)ph_attn_rows(a) * a->v_dim));
    return check_look(plan, args->look);
}

static ph_status forward(const ph_plan *plan, const ph_args *args)
{
    ph_call call;
    PH_TRY(ph_check_forward(plan, args));
    PH_TRY(check_alias(plan, args, NULL, PH_DO_FORWARD));
    ph_args own = *args;
    if (args->look && !args->workspace) /* one workspace for both passes */
        PH_TRY(
            plan->ctx->backend->scratch(plan, ph_plan_workspace(plan), &own.workspace));
    if (args->look && !args->lse) own.lse = own.workspace;
    PH_TRY(begin(&call, plan, &own, NULL, PH_DO_FORWARD));
    PH_TRY(plan->ctx->backend->forward(&call));
    return args->look ? run_look(plan, &own) : PH_OK;
}

ph_status ph_forward(const ph_plan *plan, const ph_args *args)
{
    if (!plan) return PH_BAD_ARGUMENT;
    return PH_WITHIN(plan->ctx, forward(plan, args));
}

static ph_status look(const ph_plan *plan, const ph_args *args)
{
    const ph_attn *a = &plan->attn;
    PH_TRY(check_args(plan, args));
    if (!args->look)
        return ph_fail(plan->ctx, PH_BAD_ARGUMENT, "look is NULL, expected what to fill");
    PH_TRY(need(plan, "lse", args->lse, (int64_t)ph_attn_rows(a)));
    PH_TRY(check_look(plan, args->look));
    PH_TRY(check_alias(plan, args, NULL, PH_DO_LOOK));
    return run_look(plan, args);
}

ph_status ph_look(const ph_plan *plan, const ph_args *args)
{
    if (!plan) return PH_BAD_ARGUMENT;
    return PH_WITHIN(plan->ctx, look(plan, args));
}

static ph_status check_grads(const ph_plan *plan, const ph_args *args, const ph_grads *g)
{
    const ph_attn *a = &plan->attn;
    const struct {
        const char *name;
        const void *gradient, *tensor;
    } pairs[] = {{"bias", g->dbias, args->bias},
                 {"gate", g->dgate, args->gate},
                 {"sink", g->dsink, args->sink},
                 {"relative", g->drelative, args->relative}};
    PH_CHECK_RESERVED(plan->ctx, "ph_grads", g->reserved);
    for (int i = 0; i < 4; i++)
        if (pairs[i].gradient && !pairs[i].tensor)
            return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                           "d%s is wanted but %s is NULL, expected the tensor",
                           pairs[i].name, pairs[i].name);
    for (int e = 0; g->dextra && e < plan->needs.extras; e++)
        if (g->dextra[e] && !(args->extra && args->extra[e]))
            return ph_fail(plan->ctx, PH_BAD_ARGUMENT,
                           "d%s is wanted but %s is NULL, expected the tensor",
                           plan->needs.extra[e].name, plan->needs.extra[e].name);
    int64_t out = (int64_t)ph_attn_rows(a) * a->v_dim;
    PH_TRY(need(plan, "dout", g->dout, out));
    PH_TRY(need(plan, "out", args->out, out));
    PH_TRY(need(plan, "lse", args->lse, (int64_t)ph_attn_rows(a)));
    return need_keys(plan, "v", args->v, a->v_dim);
}

ph_status ph_check_backward(const ph_plan *plan, const ph_args *args,
                            const ph_grads *grads)
{
    PH_TRY(check_args(plan, args));
    return check_grads(plan, args, grads);
}

static ph_status backward(const ph_plan *plan, const ph_args *args, const ph_grads *grads,
                          const float *twin)
{
    ph_call call;
    if (!plan->attn.backward)
        return ph_fail(plan->ctx, PH_UNSUPPORTED,
                       "the plan was made with backward 0, expected backward 1");
    if (!grads) return ph_fail(plan->ctx, PH_BAD_ARGUMENT, "grads is NULL");
    PH_TRY(ph_check_backward(plan, args, grads));
    PH_TRY(check_alias(plan, args, grads, PH_DO_BACKWARD));
    PH_TRY(begin(&call, plan, args, grads, PH_DO_BACKWARD));
    call.twin = twin;
    return plan->ctx->backend->backward(&call);
}

ph_status ph_backward_twins(const ph_plan *plan, const ph_args *args,
                            const ph_grads *grads, const float *twin)
{
    if (!plan) return PH_BAD_ARGUMENT;
    return PH_WITHIN(plan->ctx, backward(plan, args, grads, twin));
}

ph_status ph_backward(const ph_plan *plan, const ph_args *args, const ph_grads *grads)
{
    return ph_backward_twins(plan, args, grads, NULL);
}
