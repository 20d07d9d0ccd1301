/*
 * alias.c - the memory ranges of the tensors of a call; see alias.h.
 */
#include "attn/alias.h"

/* Sizes in elements; plans were checked, so none overflows. */
typedef struct elements {
    size_t rows, heads, keys, columns, bias, visible, gate, relative;
} elements;

static size_t cells(const ph_broadcast *shape, size_t keys)
{
    return (size_t)shape->batch * (size_t)shape->heads * (size_t)shape->q_len * keys;
}

static elements elements_of(const ph_attn *a)
{
    size_t heads = (size_t)a->q_heads, keys = (size_t)a->kv_len;
    size_t rows = heads * ph_attn_rows(a);
    return (elements){.rows = rows,
                      .heads = heads,
                      .keys = keys,
                      .columns = heads * ph_attn_keys(a),
                      .bias = cells(&a->bias, keys),
                      .visible = cells(&a->visible, keys),
                      .gate = a->gate == PH_GATE_HEAD ? heads : rows,
                      .relative = heads * (2 * (size_t)a->reach + 1)};
}

static void add_floats(ph_mem_ranges *s, const char *prefix, const char *name,
                       const float *base, size_t count, int written)
{
    ph_mem_ranges_add(s, prefix, name, base, count * sizeof *base, written);
}

static void add_look(ph_mem_ranges *s, const ph_attn *a, const ph_look_at *look)
{
    elements n = elements_of(a);
    size_t top = n.rows * (size_t)(look->top_k > 0 ? look->top_k : 0);
    add_floats(s, "look.", "weights", look->weights, n.rows * n.keys, PH_WRITTEN);
    add_floats(s, "look.", "col_sum", look->col_sum, n.columns, PH_WRITTEN);
    add_floats(s, "look.", "entropy", look->entropy, n.rows, PH_WRITTEN);
    add_floats(s, "look.", "top_weight", look->top_weight, top, PH_WRITTEN);
    ph_mem_ranges_add(s, "look.", "top_index", look->top_index, top * sizeof(int32_t),
                      PH_WRITTEN);
    add_floats(s, "look.", "rect", look->rect,
               (size_t)ph_max(look->rows, 0) * (size_t)ph_max(look->cols, 0), PH_WRITTEN);
}

void ph_alias_args(ph_mem_ranges *s, const ph_attn *a, const ph_args *args, int what)
{
    elements n = elements_of(a);
    size_t lens = (size_t)a->batch * sizeof(int32_t), offsets = lens + sizeof(int32_t);
    add_floats(s, "", "lse", args->lse, n.rows, what == PH_DO_FORWARD);
    add_floats(s, "", "bias", args->bias, n.bias, PH_READ);
    ph_mem_ranges_add(s, "", "visible", args->visible, n.visible, PH_READ);
    add_floats(s, "", "gate", args->gate, n.gate, PH_READ);
    add_floats(s, "", "sink", args->sink, n.heads, PH_READ);
    add_floats(s, "", "alibi", args->alibi, n.heads, PH_READ);
    add_floats(s, "", "relative", args->relative, n.relative, PH_READ);
    ph_mem_ranges_add(s, "", "q_lens", args->q_lens, lens, PH_READ);
    ph_mem_ranges_add(s, "", "kv_lens", args->kv_lens, lens, PH_READ);
    ph_mem_ranges_add(s, "", "q_offsets", args->q_offsets, offsets, PH_READ);
    ph_mem_ranges_add(s, "", "kv_offsets", args->kv_offsets, offsets, PH_READ);
    if (a->page_len)
        ph_mem_ranges_add(s, "", "page_table", args->page_table,
                          lens * (size_t)ph_div_up(a->kv_len, a->page_len), PH_READ);
    if (args->look && what != PH_DO_BACKWARD) add_look(s, a, args->look);
}

void ph_alias_grads(ph_mem_ranges *s, const ph_attn *a, const ph_grads *grads)
{
    elements n = elements_of(a);
    add_floats(s, "d", "lse", grads->dlse, n.rows, PH_READ);
    add_floats(s, "d", "bias", grads->dbias, n.bias, PH_WRITTEN);
    add_floats(s, "d", "gate", grads->dgate, n.gate, PH_WRITTEN);
    add_floats(s, "d", "sink", grads->dsink, n.heads, PH_WRITTEN);
    add_floats(s, "d", "relative", grads->drelative, n.relative, PH_WRITTEN);
}

void ph_alias_param(ph_mem_ranges *s, const char *prefix, const ph_param *param,
                    const void *base, int written)
{
    ph_mem_ranges_add(s, prefix, param->name, base,
                      ph_dtype_bytes(param->dtype, ph_param_size(param)), written);
}

/* q, k, v and out, or their gradients; `heads` of the last. */
static void add_rows(ph_mem_ranges *s, const ph_attn *a, const char *const names[4],
                     const void *const base[4], const ph_strides *const strides[4],
                     const int written[4], int heads)
{
    int batch = a->ragged ? 1 : a->batch, rows = a->ragged ? a->q_total : a->q_len;
    int blocks = ph_key_blocks(a), keys = ph_key_block_len(a);
    const int sizes[4][4] = {{batch, a->q_heads, rows, a->qk_dim},
                             {blocks, a->k_heads, keys, a->qk_dim},
                             {blocks, a->v_heads, keys, a->v_dim},
                             {batch, heads, rows, a->v_dim}};
    const ph_dtype types[4] = {a->dtype, ph_kv_type(a), ph_kv_type(a), a->dtype};
    for (int i = 0; i < 4; i++)
        ph_spans_add_rows(s, names[i], base[i], types[i], sizes[i], strides[i],
                          written[i]);
}

/* A layer may give dout a layout of its own, one row for the two heads of a twin. */
static void add_grads(ph_mem_ranges *s, const ph_plan *plan, const ph_grads *g)
{
    const ph_attn *a = &plan->attn;
    add_rows(s, a, (const char *const[]){"dq", "dk", "dv", "dout"},
             (const void *const[]){g->dq, g->dk, g->dv, g->dout},
             (const ph_strides *const[]){&a->dq, &a->dk, &a->dv, &plan->backward.dout},
             (const int[]){PH_WRITTEN, PH_WRITTEN, PH_WRITTEN, PH_READ},
             plan->backward.twins ? a->q_heads / 2 : a->q_heads);
    ph_alias_grads(s, a, g);
    for (int e = 0; g->dextra && e < plan->needs.extras; e++)
        ph_alias_param(s, "d", &plan->needs.extra[e], g->dextra[e], PH_WRITTEN);
}

ph_status ph_alias_check(const ph_plan *plan, const ph_args *args, const ph_grads *grads,
                         int what)
{
    const ph_attn *a = &plan->attn;
    ph_mem_ranges s = {0};
    add_rows(&s, a, (const char *const[]){"q", "k", "v", "out"},
             (const void *const[]){args->q, args->k, what == PH_DO_LOOK ? NULL : args->v,
                                   what == PH_DO_LOOK ? NULL : args->out},
             (const ph_strides *const[]){&a->q, &a->k, &a->v, &a->out},
             (const int[]){PH_READ, PH_READ, PH_READ, what == PH_DO_FORWARD}, a->q_heads);
    ph_alias_args(&s, a, args, what);
    for (int e = 0; args->extra && e < plan->needs.extras; e++)
        ph_alias_param(&s, "", &plan->needs.extra[e], args->extra[e], PH_READ);
    ph_mem_ranges_add(&s, "", "workspace", args->workspace, ph_plan_workspace(plan),
                      PH_WRITTEN);
    if (grads) add_grads(&s, plan, grads);
    return ph_mem_ranges_check(&s, plan->ctx);
}
