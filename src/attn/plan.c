/*
 * plan.c - checks a ph_attn and fills in its defaults; its backend cuts the work.
 */
#include "attn/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn/backend.h"
#include "base/dtype.h"
#include "base/size.h"

/* Fails with "field: found, expected". */
#define REFUSE(status, ...) return ph_fail(plan->ctx, status, __VA_ARGS__)

static ph_status check_counts(ph_plan *plan)
{
    const struct {
        const char *name;
        int value, least;
    } fields[] = {
        {"batch", plan->attn.batch, 0},     {"q_heads", plan->attn.q_heads, 1},
        {"k_heads", plan->attn.k_heads, 1}, {"v_heads", plan->attn.v_heads, 1},
        {"q_len", plan->attn.q_len, 0},     {"kv_len", plan->attn.kv_len, 0},
        {"qk_dim", plan->attn.qk_dim, 0},   {"v_dim", plan->attn.v_dim, 0},
    };
    const ph_attn *a = &plan->attn;
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value < fields[i].least)
            REFUSE(PH_BAD_ARGUMENT, "%s is %d, expected at least %d", fields[i].name,
                   fields[i].value, fields[i].least);
    if (a->q_heads % a->k_heads)
        REFUSE(PH_BAD_SHAPE, "k_heads is %d, expected a divisor of q_heads %d",
               a->k_heads, a->q_heads);
    if (a->q_heads % a->v_heads)
        REFUSE(PH_BAD_SHAPE, "v_heads is %d, expected a divisor of q_heads %d",
               a->v_heads, a->q_heads);
    if (a->qk_dim > 1 << 20 || a->v_dim > 1 << 20)
        REFUSE(PH_UNSUPPORTED, "qk_dim %d or v_dim %d is above 1048576", a->qk_dim,
               a->v_dim);
    return PH_OK;
}

/* Rows times heads times batch must be countable with int, tensors with ptrdiff_t. */
static ph_status check_sizes(ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    const size_t most = PTRDIFF_MAX / 16;
    int longest = ph_max(a->q_len, a->kv_len), total = ph_max(a->q_total, a->kv_total);
    size_t tokens = (size_t)ph_max(ph_max(longest, total), a->page_len);
    size_t dim = (size_t)(a->qk_dim > a->v_dim ? a->qk_dim : a->v_dim), rows, all;
    if (ph_size_mul((size_t)a->batch, (size_t)a->q_heads, &rows) || rows > INT32_MAX / 4)
        REFUSE(PH_UNSUPPORTED, "batch %d times q_heads %d is too large", a->batch,
               a->q_heads);
    if (ph_size_mul((size_t)a->q_len, (size_t)a->q_heads, &all) || all > INT32_MAX / 2)
        REFUSE(PH_UNSUPPORTED, "q_len %d times q_heads %d is too large", a->q_len,
               a->q_heads);
    if (ph_size_mul((size_t)total, (size_t)a->q_heads, &all) || all > INT32_MAX / 2)
        REFUSE(PH_UNSUPPORTED, "%d tokens times q_heads %d are too many", total,
               a->q_heads);
    if (a->kv_len > INT32_MAX / 2)
        REFUSE(PH_UNSUPPORTED, "kv_len %d is too large", a->kv_len);
    if (ph_size_mul(rows, tokens, &all) || ph_size_mul(all, dim, &all) || all > most)
        REFUSE(PH_UNSUPPORTED, "batch %d, q_heads %d, length %zu, dim %zu is too large",
               a->batch, a->q_heads, tokens, dim);
    return PH_OK;
}

/* Checks what a ragged batch says of itself, and fills in what it leaves out. */
static ph_status settle_ragged(ph_plan *plan)
{
    ph_attn *a = &plan->attn;
    const ph_broadcast *shapes[2] = {&a->bias, &a->visible};
    if ((unsigned)a->ragged > PH_RAGGED_QUERIES)
        REFUSE(PH_BAD_ARGUMENT, "ragged is %d, expected PH_RAGGED_NONE, _ALL or _QUERIES",
               (int)a->ragged);
    if (!a->ragged && a->q_total)
        REFUSE(PH_BAD_ARGUMENT, "q_total is %d but the batch is not ragged, expected 0",
               a->q_total);
    if (a->ragged != PH_RAGGED_ALL && a->kv_total)
        REFUSE(PH_BAD_ARGUMENT, "kv_total is %d but the keys are not ragged, expected 0",
               a->kv_total);
    if (!a->ragged) return PH_OK;
    for (int i = 0; i < 2; i++)
        if (shapes[i]->batch || shapes[i]->heads || shapes[i]->q_len)
            REFUSE(PH_UNSUPPORTED, "%s has a shape, expected none in a ragged batch",
                   i ? "visible" : "bias");
    if (a->q_total < 0 || a->q_len < 0 || a->q_len > a->q_total)
        REFUSE(PH_BAD_SHAPE, "q_len is %d and q_total %d, expected 0 to q_total",
               a->q_len, a->q_total);
    if (a->q_len == 0) a->q_len = a->q_total;
    if (a->mask != PH_MASK_NONE && a->anchor == PH_ANCHOR_UNSET)
        a->anchor = PH_ANCHOR_END;
    if (a->ragged == PH_RAGGED_QUERIES) return PH_OK;
    if (a->kv_total < 0 || a->kv_len < 0 || a->kv_len > a->kv_total)
        REFUSE(PH_BAD_SHAPE, "kv_len is %d and kv_total %d, expected 0 to kv_total",
               a->kv_len, a->kv_total);
    if (a->kv_len == 0) a->kv_len = a->kv_total;
    if (a->page_len)
        REFUSE(PH_UNSUPPORTED,
               "page_len is %d with ragged keys, expected PH_RAGGED_QUERIES with pages",
               a->page_len);
    return PH_OK;
}

static ph_status check_numbers(ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    if (!isfinite(a->scale)) REFUSE(PH_BAD_ARGUMENT, "scale is not finite");
    if (!(a->softcap >= 0) || !isfinite(a->softcap))
        REFUSE(PH_BAD_ARGUMENT, "softcap is %g, expected 0 or a positive number",
               (double)a->softcap);
    if (!(a->dropout >= 0 && a->dropout < 1))
        REFUSE(PH_BAD_ARGUMENT, "dropout is %g, expected 0 <= dropout < 1",
               (double)a->dropout);
    if ((unsigned)a->dtype > PH_BF16)
        REFUSE(PH_BAD_ARGUMENT, "dtype is %d, expected PH_F32, PH_F16 or PH_BF16",
               (int)a->dtype);
    if ((unsigned)a->gate > PH_GATE_ROW)
        REFUSE(PH_BAD_ARGUMENT, "gate is %d, expected PH_GATE_HEAD or PH_GATE_ROW",
               (int)a->gate);
    return PH_OK;
}

static ph_status check_mask(ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    if (a->reach < 0 || a->reach > 1 << 16)
        REFUSE(PH_BAD_ARGUMENT, "reach is %d, expected 0 to 65536", a->reach);
    if ((unsigned)a->mask > PH_MASK_BAND)
        REFUSE(PH_BAD_ARGUMENT, "mask is %d, expected PH_MASK_NONE, _CAUSAL or _BAND",
               (int)a->mask);
    if ((unsigned)a->anchor > PH_ANCHOR_END)
        REFUSE(PH_BAD_ARGUMENT, "anchor is %d, expected PH_ANCHOR_UNSET, _OFFSET or _END",
               (int)a->anchor);
    if (a->mask != PH_MASK_NONE && a->anchor == PH_ANCHOR_UNSET && a->q_len != a->kv_len)
        REFUSE(PH_BAD_ARGUMENT,
               "anchor is PH_ANCHOR_UNSET, expected the position of query 0 because "
               "q_len %d and kv_len %d differ",
               a->q_len, a->kv_len);
    if (a->anchor == PH_ANCHOR_UNSET && a->q_offset != 0)
        REFUSE(PH_BAD_ARGUMENT,
               "q_offset is %d but anchor is PH_ANCHOR_UNSET, expected "
               "PH_ANCHOR_OFFSET",
               a->q_offset);
    return PH_OK;
}

static ph_status check_broadcast(ph_plan *plan, const char *name, const ph_broadcast *s)
{
    const ph_attn *a = &plan->attn;
    const int found[3] = {s->batch, s->heads, s->q_len};
    const int full[3] = {a->batch, a->q_heads, a->q_len};
    static const char *const axis[3] = {"batch", "heads", "q_len"};
    if (!found[0] && !found[1] && !found[2]) return PH_OK;
    for (int i = 0; i < 3; i++)
        if (found[i] != 1 && found[i] != full[i])
            REFUSE(PH_BAD_SHAPE, "%s.%s is %d, expected 1 or %d", name, axis[i], found[i],
                   full[i]);
    return PH_OK;
}

/* Rows of a block type consist of whole blocks. */
static ph_status check_blocks(ph_plan *plan, const char *name, int dim,
                              const ph_strides *s)
{
    const ph_dtype_unit unit = ph_dtype_about(plan->attn.kv_dtype);
    if ((dim | s->batch | s->head | s->time) % unit.elements)
        REFUSE(PH_BAD_SHAPE,
               "kv_dtype is %s and %s has rows of %d with strides (%lld, %lld, %lld), "
               "expected multiples of %d",
               unit.name, name, dim, (long long)s->batch, (long long)s->head,
               (long long)s->time, unit.elements);
    return PH_OK;
}

static ph_status check_kv_type(ph_plan *plan)
{
    ph_attn *a = &plan->attn;
    if ((unsigned)a->kv_dtype > PH_Q4_1)
        REFUSE(PH_BAD_ARGUMENT, "kv_dtype is %d (%s), expected one of PH_F32 to PH_Q4_1",
               (int)a->kv_dtype, ph_dtype_label(a->kv_dtype));
    if (a->kv_dtype == a->dtype) a->kv_dtype = PH_F32;
    if (!a->kv_dtype) return PH_OK;
    if (a->dtype)
        REFUSE(PH_UNSUPPORTED, "kv_dtype is %s and dtype %s, expected the same or PH_F32",
               ph_dtype_name(a->kv_dtype), ph_dtype_name(a->dtype));
    if (a->backward)
        REFUSE(PH_UNSUPPORTED,
               "backward is 1 with kv_dtype %s, expected gradients only "
               "of keys and values in dtype",
               ph_dtype_name(a->kv_dtype));
    PH_TRY(check_blocks(plan, "k", a->qk_dim, &a->k));
    return check_blocks(plan, "v", a->v_dim, &a->v);
}

static ph_status check_pages(ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    if (a->page_len < 0)
        REFUSE(PH_BAD_ARGUMENT, "page_len is %d, expected at least 0", a->page_len);
    if (a->pages < 0 || (a->pages && !a->page_len))
        REFUSE(PH_BAD_ARGUMENT, "pages is %d and page_len %d, expected both or none",
               a->pages, a->page_len);
    if (a->page_len && a->backward)
        REFUSE(PH_UNSUPPORTED,
               "backward is 1 with page_len %d, expected gradients only "
               "of keys and values without pages",
               a->page_len);
    return PH_OK;
}

/* A ragged tensor has no batch axis: one batch row of all tokens. */
typedef struct token_axes {
    int batch, len, ragged;
} token_axes;

static token_axes query_axes(const ph_attn *a)
{
    return a->ragged ? (token_axes){1, a->q_total, 1}
                     : (token_axes){a->batch, a->q_len, 0};
}

static token_axes key_axes(const ph_attn *a)
{
    return (token_axes){ph_key_blocks(a), ph_key_block_len(a),
                        a->ragged == PH_RAGGED_ALL};
}

static int is_packed(const ph_strides *s)
{
    return !s->batch && !s->head && !s->time;
}

/* Zero strides become packed ones. */
static void pack_strides(ph_strides *s, int heads, token_axes tokens, int dim)
{
    if (!is_packed(s)) return;
    s->time = dim;
    s->head = (int64_t)tokens.len * dim;
    if (!tokens.ragged) s->batch = (int64_t)heads * tokens.len * dim;
}

/* Every axis must stay inside the address space, so that indices cannot overflow. */
static ph_status check_strides(ph_plan *plan, const char *name, const ph_strides *s,
                               int heads, token_axes tokens)
{
    const int64_t most = PTRDIFF_MAX / 32;
    const int64_t stride[3] = {s->batch, s->head, s->time};
    const int count[3] = {tokens.batch, heads, tokens.len};
    for (int i = 0; i < 3; i++)
        if (stride[i] < 0 || stride[i] > most / ph_max(count[i], 1))
            REFUSE(PH_BAD_SHAPE,
                   "strides of %s are (%lld, %lld, %lld), expected none below 0 or past "
                   "the end of memory",
                   name, (long long)s->batch, (long long)s->head, (long long)s->time);
    return PH_OK;
}

/* Whether writing through the strides hits each element once: sorted by stride, each axis
   must step over everything inside it. */
static int overlaps(const ph_strides *s, int heads, token_axes tokens, int dim)
{
    int batch = tokens.batch, len = tokens.len;
    struct {
        int64_t stride;
        int count;
    } axis[3] = {{s->batch, batch}, {s->head, heads}, {s->time, len}}, t;
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2 - i; j++)
            if (axis[j].stride > axis[j + 1].stride)
                t = axis[j], axis[j] = axis[j + 1], axis[j + 1] = t;
    int64_t extent = dim;
    if (batch == 0 || len == 0) return 0; /* no elements at all */
    for (int i = 0; i < 3; i++) {
        if (axis[i].count <= 1) continue;
        if (axis[i].stride < extent) return 1;
        extent += axis[i].stride * (axis[i].count - 1);
    }
    return 0;
}

static ph_status settle_strides(ph_plan *plan)
{
    ph_attn *a = &plan->attn;
    const token_axes rows = query_axes(a), keys = key_axes(a);
    int like_q = is_packed(&a->dq), like_k = is_packed(&a->dk),
        like_v = is_packed(&a->dv);
    pack_strides(&a->q, a->q_heads, rows, a->qk_dim);
    pack_strides(&a->k, a->k_heads, keys, a->qk_dim);
    pack_strides(&a->v, a->v_heads, keys, a->v_dim);
    pack_strides(&a->out, a->q_heads, rows, a->v_dim);
    ph_strides *dout = &plan->backward.dout;
    if (is_packed(dout)) *dout = a->out;
    if (like_q) a->dq = a->q;
    if (like_k) a->dk = a->k;
    if (like_v) a->dv = a->v;
    const struct {
        const char *name;
        const ph_strides *s;
        int written, heads;
        token_axes tokens;
        int dim;
    } all[] = {
        {"q", &a->q, 0, a->q_heads, rows, a->qk_dim},
        {"k", &a->k, 0, a->k_heads, keys, a->qk_dim},
        {"v", &a->v, 0, a->v_heads, keys, a->v_dim},
        {"out", &a->out, 1, a->q_heads, rows, a->v_dim},
        {"dq", &a->dq, a->backward, a->q_heads, rows, a->qk_dim},
        {"dk", &a->dk, a->backward, a->k_heads, keys, a->qk_dim},
        {"dv", &a->dv, a->backward, a->v_heads, keys, a->v_dim},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        PH_TRY(check_strides(plan, all[i].name, all[i].s, all[i].heads, all[i].tokens));
        if (all[i].tokens.ragged && all[i].s->batch)
            REFUSE(PH_BAD_SHAPE,
                   "%s.batch is %lld, expected 0 because a ragged batch has no such axis",
                   all[i].name, (long long)all[i].s->batch);
        if (all[i].written && overlaps(all[i].s, all[i].heads, all[i].tokens, all[i].dim))
            REFUSE(PH_BAD_SHAPE,
                   "strides of %s make its elements overlap, expected distinct addresses",
                   all[i].name);
    }
    return PH_OK;
}

static int common_divisor(int a, int b)
{
    while (b) {
        int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

static void derive(ph_plan *plan)
{
    const ph_attn *a = &plan->attn;
    plan->per_k = a->q_heads / a->k_heads, plan->per_v = a->q_heads / a->v_heads;
    plan->group = common_divisor(plan->per_k, plan->per_v);
    plan->groups = a->q_heads / plan->group;
    plan->cluster = plan->per_k / plan->group * plan->per_v; /* least common multiple */
    plan->table_len = a->page_len ? ph_div_up(a->kv_len, a->page_len) : 0;
    plan->scale2 = (float)(a->scale * PH_LOG2E);
    plan->cap2 = (float)(a->softcap * PH_LOG2E);
    plan->drop_limit = (uint32_t)(a->dropout * 4294967296.0);
    plan->drop_keep = (float)(1.0 / (1.0 - a->dropout));
}

/* Extras of the one that mixes come first. */
static ph_status set_up(ph_plan *plan, const ph_core *core)
{
    plan->mixer = core->variant[PH_STAGE_MIX];
    plan->norm = core->variant[PH_STAGE_NORM];
    for (int role = 0; role < PH_STAGES; role++) {
        const ph_variant *v = core->variant[role];
        size_t used = strlen(plan->name);
        if (!v) continue;
        snprintf(plan->name + used, sizeof plan->name - used, "%s%s", used ? "+" : "",
                 v->info.name);
        PH_TRY(v->setup(plan, core->options[role]));
    }
    plan->attn.variant = plan->name;
    return PH_OK;
}

ph_status ph_plan_init(ph_plan *plan, const ph_attn *attn, const ph_core *core)
{
    ph_attn *a = &plan->attn;
    *a = *attn;
    if (a->k_heads == 0) a->k_heads = a->q_heads;
    if (a->v_heads == 0) a->v_heads = a->q_heads;
    if (a->v_dim == 0) a->v_dim = a->qk_dim;
    PH_TRY(settle_ragged(plan));
    PH_TRY(check_counts(plan));
    PH_TRY(check_sizes(plan));
    PH_TRY(check_numbers(plan));
    PH_TRY(check_kv_type(plan));
    PH_TRY(check_pages(plan));
    PH_TRY(check_mask(plan));
    PH_TRY(check_broadcast(plan, "bias", &a->bias));
    PH_TRY(check_broadcast(plan, "visible", &a->visible));
    if (a->scale == 0) a->scale = (float)(1.0 / sqrt(ph_max(a->qk_dim, 1)));
    PH_TRY(settle_strides(plan));
    PH_TRY(set_up(plan, core));
    derive(plan);
    return plan->ctx->backend->measure(plan);
}

size_t ph_param_size(const ph_param *param)
{
    if (!param) return 0;
    size_t n = 1;
    for (int d = 0; d < param->rank; d++) n *= (size_t)param->dims[d];
    return n;
}

size_t ph_plan_bytes(const ph_plan *plan, int what)
{
    return plan->shared_bytes[what] + plan->lane_bytes[what] * (size_t)plan->ctx->threads;
}
