/*
 * create.c - checks the description of a layer and computes its shape.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/reserved.h"
#include "base/size.h"
#include "layer/layer.h"
#include "variants/variants.h"

/* ---- description ------------------------------------------------------------------- */

static ph_status check_sizes(ph_ctx *ctx, const ph_layer_desc *d)
{
    const struct {
        const char *name;
        int value, least;
    } fields[] = {{"model_dim", d->model_dim, 1},
                  {"memory_dim", d->memory_dim, 0},
                  {"out_dim", d->out_dim, 0},
                  {"attn.q_heads", d->attn.q_heads, 1},
                  {"attn.k_heads", d->attn.k_heads, 1},
                  {"attn.v_heads", d->attn.v_heads, 1},
                  {"attn.qk_dim", d->attn.qk_dim, 1},
                  {"attn.v_dim", d->attn.v_dim, 1},
                  {"attn.batch", d->attn.batch, 0},
                  {"attn.q_len", d->attn.q_len, 0},
                  {"attn.kv_len", d->attn.kv_len, 0},
                  {"attn.q_total", d->attn.q_total, 0},
                  {"attn.kv_total", d->attn.kv_total, 0}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value < fields[i].least)
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %d, expected at least %d",
                           fields[i].name, fields[i].value, fields[i].least);
    return PH_OK;
}

/* Row and column counts fit an int, and every tensor the address space. */
static ph_status check_large(ph_ctx *ctx, const ph_layer_desc *d)
{
    const ph_attn *a = &d->attn;
    const size_t most = PTRDIFF_MAX / 256;
    size_t rows = ph_attn_rows(a), keys = ph_attn_keys(a), width = 0, all;
    const struct {
        const char *name;
        size_t heads, dim;
    } columns[] = {{"q", (size_t)a->q_heads, (size_t)a->qk_dim},
                   {"k", (size_t)a->k_heads, (size_t)a->qk_dim},
                   {"v", (size_t)a->v_heads, (size_t)a->v_dim},
                   {"heads", (size_t)a->q_heads, (size_t)a->v_dim},
                   {"x", 1, (size_t)d->model_dim},
                   {"memory", 1, (size_t)d->memory_dim},
                   {"out", 1, (size_t)d->out_dim}};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        if (ph_size_mul(columns[i].heads, columns[i].dim, &all) || all > INT_MAX / 64)
            return ph_fail(ctx, PH_UNSUPPORTED, "%s of %zu heads of %zu is too wide",
                           columns[i].name, columns[i].heads, columns[i].dim);
        if (all > width) width = all;
    }
    if (keys > rows) rows = keys;
    if (rows > INT_MAX / 64)
        return ph_fail(ctx, PH_UNSUPPORTED, "a batch of %zu tokens is too large", rows);
    if (ph_size_mul(rows, width, &all) || all > most || ph_size_mul(width, width, &all) ||
        all > most)
        return ph_fail(ctx, PH_UNSUPPORTED, "%zu tokens of width %zu are too many", rows,
                       width);
    return PH_OK;
}

static ph_status check_strides(ph_ctx *ctx, const ph_attn *a)
{
    const struct {
        const char *name;
        const ph_strides *s;
    } all[] = {{"q", &a->q},   {"k", &a->k},   {"v", &a->v},  {"out", &a->out},
               {"dq", &a->dq}, {"dk", &a->dk}, {"dv", &a->dv}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].s->batch || all[i].s->head || all[i].s->time)
            return ph_fail(ctx, PH_BAD_ARGUMENT,
                           "attn.%s has strides, expected none in a layer", all[i].name);
    return PH_OK;
}

static ph_status check_source(ph_ctx *ctx, const ph_layer_desc *d)
{
    const ph_attn *a = &d->attn;
    if (d->cache && a->backward)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "cache is 1 and attn.backward 1, expected only one of them");
    if (ph_desc_grows(d) && a->anchor != PH_ANCHOR_UNSET && a->anchor != PH_ANCHOR_END)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "attn.anchor is %d, expected PH_ANCHOR_END with a cache",
                       (int)a->anchor);
    if (a->ragged && d->cache && (d->memory_dim || a->ragged != PH_RAGGED_QUERIES))
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "attn.ragged is %d, expected PH_RAGGED_QUERIES with a cache of x, "
                       "and PH_RAGGED_NONE with one of memory",
                       (int)a->ragged);
    if (!d->cache && a->ragged == PH_RAGGED_QUERIES)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "attn.ragged is PH_RAGGED_QUERIES without a cache, expected "
                       "PH_RAGGED_ALL");
    if (!d->cache && !d->memory_dim && a->q_total != a->kv_total)
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "attn.q_total is %d and attn.kv_total %d, expected the same "
                       "without memory",
                       a->q_total, a->kv_total);
    if (!d->cache && !d->memory_dim && a->q_len != a->kv_len)
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "attn.q_len is %d and attn.kv_len %d, expected the same length "
                       "without memory and cache",
                       a->q_len, a->kv_len);
    return PH_OK;
}

static ph_status check_scaling(ph_ctx *ctx, const ph_layer_desc *d)
{
    int divided = d->rope_scaling == PH_ROPE_LONGROPE;
    if ((unsigned)d->rope_scaling > PH_ROPE_LONGROPE)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope_scaling is %d, expected PH_ROPE_UNSCALED, _LINEAR, _LLAMA3, "
                       "_YARN or _LONGROPE",
                       (int)d->rope_scaling);
    if (divided != (d->rope_divisors != NULL))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope_divisors is%s NULL, expected divisors with "
                       "PH_ROPE_LONGROPE alone",
                       divided ? "" : " not");
    if (!d->rope_scaling) return PH_OK;
    if (!divided && (!(d->rope_factor >= 1) || !isfinite(d->rope_factor)))
        return ph_fail(ctx, PH_BAD_ARGUMENT, "rope_factor is %g, expected at least 1",
                       (double)d->rope_factor);
    if (d->rope_scaling >= PH_ROPE_LLAMA3 && !divided &&
        (d->rope_length < 1 || d->rope_base <= 1))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope_length is %d and rope_base %g, expected a length and a base "
                       "above 1",
                       d->rope_length, (double)d->rope_base);
    if (!(d->rope_low > 0) || !(d->rope_high > d->rope_low) || !isfinite(d->rope_high))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope_low is %g and rope_high %g, expected more than 0 and more "
                       "than rope_low",
                       (double)d->rope_low, (double)d->rope_high);
    if (!(d->rope_scale >= 0) || !isfinite(d->rope_scale))
        return ph_fail(ctx, PH_BAD_ARGUMENT, "rope_scale is %g, expected at least 0",
                       (double)d->rope_scale);
    return PH_OK;
}

static ph_status check_options(ph_ctx *ctx, const ph_layer_desc *d)
{
    const ph_form forms[3] = {d->q_form, d->k_form, d->v_form};
    for (int i = 0; i < 3; i++)
        if ((unsigned)forms[i] > PH_FORM_LINEAR)
            return ph_fail(ctx, PH_BAD_ARGUMENT,
                           "%c_form is %d, expected PH_FORM_WHOLE, _HEADS or _LINEAR",
                           "qkv"[i], (int)forms[i]);
    if (d->o_form != PH_FORM_WHOLE && d->o_form != PH_FORM_LINEAR)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "o_form is %d, expected PH_FORM_WHOLE or PH_FORM_LINEAR",
                       (int)d->o_form);
    if ((unsigned)d->rope > PH_ROPE_INTERLEAVED)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope is %d, expected PH_ROPE_NONE, _HALF or _INTERLEAVED",
                       (int)d->rope);
    if (!(d->rope_base > 0) || !isfinite(d->rope_base))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope_base is %g, expected a positive number",
                       (double)d->rope_base);
    PH_TRY(check_scaling(ctx, d));
    if (d->qk_norm < PH_QK_NORM_NONE || d->qk_norm > PH_QK_NORM_WHOLE)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "qk_norm is %d, expected PH_QK_NORM_NONE, _HEAD or _WHOLE",
                       d->qk_norm);
    if (!(d->norm_eps > 0) || !isfinite(d->norm_eps))
        return ph_fail(ctx, PH_BAD_ARGUMENT, "norm_eps is %g, expected a positive number",
                       (double)d->norm_eps);
    return PH_OK;
}

/* Checked after the variant has changed the shape. */
static ph_status check_rope_dims(ph_ctx *ctx, const ph_layer_desc *d)
{
    if (d->rope_dims < 0 || d->rope_dims > d->attn.qk_dim ||
        (d->rope && d->rope_dims % 2))
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "rope_dims is %d, expected an even number of at most %d",
                       d->rope_dims, d->attn.qk_dim);
    return PH_OK;
}

/* Checked with the number of pairs, which a variant may have changed. */
static ph_status check_divisors(const ph_layer *l)
{
    const ph_layer_desc *d = &l->desc;
    if (d->rope_divisors && l->angles && l->angles != d->rope_dims / 2)
        return ph_fail(l->ctx, PH_UNSUPPORTED,
                       "rope_divisors has %d elements, but the variant rotates %d pairs",
                       d->rope_dims / 2, l->angles);
    for (int p = 0; d->rope_divisors && p < l->angles; p++)
        if (!(d->rope_divisors[p] > 0) || !isfinite(d->rope_divisors[p]))
            return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                           "rope_divisors[%d] is %g, expected a number above 0", p,
                           (double)d->rope_divisors[p]);
    return PH_OK;
}

static void fill_defaults(ph_layer_desc *d)
{
    ph_attn *a = &d->attn;
    if (a->k_heads == 0) a->k_heads = a->q_heads;
    if (a->v_heads == 0) a->v_heads = a->q_heads;
    if (a->v_dim == 0) a->v_dim = a->qk_dim;
    if (a->ragged && a->q_len == 0) a->q_len = a->q_total;
    if (a->ragged == PH_RAGGED_ALL && a->kv_len == 0)
        a->kv_len = d->memory_dim ? a->kv_total : a->q_len;
    if (d->rope_base == 0) d->rope_base = 10000;
    if (d->rope_dims == 0) d->rope_dims = a->qk_dim;
    if (d->rope_low == 0) d->rope_low = 1;
    if (d->rope_high == 0) d->rope_high = d->rope_scaling == PH_ROPE_YARN ? 32 : 4;
    if (d->norm_eps == 0) d->norm_eps = 1e-6f;
}

/* ---- shape ------------------------------------------------------------------------- */

/* The shape of mha, which a kind then changes. */
static void mha_shape(ph_layer *l, const ph_layer_desc *given)
{
    const ph_layer_desc *d = &l->desc;
    const ph_attn *a = &d->attn;
    ph_shape *s = &l->shape;
    int source = d->memory_dim ? d->memory_dim : d->model_dim;
    *s = (ph_shape){
        .ctx = l->ctx, .given = given, .desc = &l->desc, .attn = *a, .active = 1};
    s->q = (ph_projection){d->model_dim, a->q_heads, a->qk_dim, .form = d->q_form};
    s->k = (ph_projection){source, a->k_heads, a->qk_dim, .form = d->k_form};
    s->v = (ph_projection){source, a->v_heads, a->v_dim, .form = d->v_form};
    s->q.type = d->wq_dtype, s->k.type = d->wk_dtype, s->v.type = d->wv_dtype;
    s->q.norm = s->k.norm = d->qk_norm ? a->qk_dim : 0;
    s->q.angles = s->k.angles = d->rope ? d->rope_dims / 2 : 0;
    s->q.w = s->k.w = s->v.w = s->q.gain = s->k.gain = s->v.gain = -1;
    s->q.from = s->k.from = s->v.from = -1;
    s->out_heads = a->q_heads, s->out_dim = a->v_dim;
    s->attn.dtype = PH_F32;
    if (ph_desc_grows(d)) s->attn.anchor = PH_ANCHOR_END;
}

/* Strides of a projection, (batch, len) tokens with all heads of a token contiguous. */
static ph_strides rows_of(const ph_projection *p, int len)
{
    int row = ph_projection_row(p);
    return (ph_strides){(int64_t)len * row, p->dim + p->tail, row};
}

/* A cache is head-major, so that attention reads it sequentially; padded rows keep the
   strides of the projection. */
static ph_strides cache_of(const ph_projection *p, int len)
{
    int dim = p->dim + p->tail;
    if (p->pad) return rows_of(p, len);
    return (ph_strides){(int64_t)p->heads * len * dim, (int64_t)len * dim, dim};
}

static int is_zero(const ph_strides *s)
{
    return !s->batch && !s->head && !s->time;
}

static ph_strides side_by_side(int len, int heads, int dim)
{
    return (ph_strides){(int64_t)len * heads * dim, dim, (int64_t)heads * dim};
}

/* Fills in strides of the plan that the kind has not set. */
static void layout_plan(ph_layer *l)
{
    ph_attn *a = &l->shape.attn;
    const ph_shape *s = &l->shape;
    int cache = l->desc.cache;
    l->k_cache = cache_of(&s->k, ph_key_block_len(a));
    l->v_cache = cache_of(&s->v, ph_key_block_len(a));
    if (is_zero(&a->q)) a->q = rows_of(&s->q, a->q_len);
    if (is_zero(&a->k)) a->k = cache ? l->k_cache : rows_of(&s->k, a->kv_len);
    if (is_zero(&a->v)) a->v = cache ? l->v_cache : rows_of(&s->v, a->kv_len);
    a->out = side_by_side(a->q_len, a->q_heads, a->v_dim);
    a->dq = side_by_side(a->q_len, a->q_heads, a->qk_dim);
    a->dk = side_by_side(a->kv_len, a->k_heads, a->qk_dim);
    a->dv = side_by_side(a->kv_len, a->v_heads, a->v_dim);
}

/* Where all heads share one key and each v head computes its own gradient of it, the plan
   has one k head per v head, all of them views of that key. */
static void settle_keys(ph_layer *l)
{
    ph_attn *a = &l->attn;
    *a = l->shape.attn;
    if (!l->shape.sums_keys) return;
    a->k_heads = a->v_heads;
    a->k.head = 0;
    a->dk = side_by_side(a->kv_len, a->k_heads, a->qk_dim);
}

/* ---- parameters -------------------------------------------------------------------- */

static void add_named(ph_layer *l, int field, ph_param param)
{
    l->field[l->params] = field;
    l->param[l->params++] = param;
}

/* A matrix (in, heads*dim), (heads, in, dim) or (heads*dim, in). */
static void add_matrix(ph_layer *l, int field, const char *name, const ph_projection *p)
{
    ph_param param = {.name = name, .rank = 2, .dims = {p->in, p->heads * p->dim}};
    if (p->form == PH_FORM_HEADS)
        param = (ph_param){.name = name, .rank = 3, .dims = {p->heads, p->in, p->dim}};
    if (p->form == PH_FORM_LINEAR)
        param.dims[0] = p->heads * p->dim, param.dims[1] = p->in;
    param.dtype = p->type;
    if (p->heads && p->w < 0) add_named(l, field, param);
}

static void add_vector(ph_layer *l, int field, const char *name, int size)
{
    ph_param param = {.name = name, .rank = 1, .dims = {size}, .optional = 1};
    if (size) add_named(l, field, param);
}

static int bias_size(const ph_projection *p)
{
    return p->w < 0 ? p->heads * p->dim : 0;
}

static int gain_size(const ph_layer *l, const ph_projection *p)
{
    return p->gain < 0 ? ph_layer_gains(l, p) : 0;
}

static void list_params(ph_layer *l)
{
    const ph_shape *s = &l->shape;
    int wo = !l->desc.concat;
    add_matrix(l, PH_WQ, "wq", &s->q);
    add_matrix(l, PH_WK, "wk", &s->k);
    add_matrix(l, PH_WV, "wv", &s->v);
    if (wo) add_matrix(l, PH_WO, "wo", &l->out);
    add_vector(l, PH_BQ, "bq", bias_size(&s->q));
    add_vector(l, PH_BK, "bk", bias_size(&s->k));
    add_vector(l, PH_BV, "bv", bias_size(&s->v));
    if (wo) add_vector(l, PH_BO, "bo", l->desc.out_dim);
    add_vector(l, PH_Q_NORM, "q_norm", gain_size(l, &s->q));
    add_vector(l, PH_K_NORM, "k_norm", gain_size(l, &s->k));
    l->named = l->params;
    for (int i = 0; i < s->params; i++) l->param[l->params++] = s->param[i];
    for (int i = s->makes_extras; ph_plan_extra(l->plan, i); i++)
        l->param[l->params++] = *ph_plan_extra(l->plan, i);
}

/* ---- layer ------------------------------------------------------------------------- */

static ph_status settle_out(ph_layer *l)
{
    ph_layer_desc *d = &l->desc;
    int width = l->shape.out_heads * l->shape.out_dim;
    if (d->concat && d->out_dim && d->out_dim != width)
        return ph_fail(l->ctx, PH_BAD_SHAPE,
                       "out_dim is %d, expected 0 or %d with concat", d->out_dim, width);
    if (d->out_dim == 0) d->out_dim = d->concat ? width : d->model_dim;
    l->out = (ph_projection){width, 1, d->out_dim, .w = -1};
    l->out.form = d->o_form, l->out.type = d->wo_dtype;
    l->out_cols = d->out_dim;
    return PH_OK;
}

/* Block types: whole blocks in a stored row, and no gradients through them. */
static ph_status check_blocks(const ph_layer *l, const char *name, const ph_projection *p)
{
    const char *type = ph_dtype_name(p->type);
    int row = ph_projection_stored_row(p), block = ph_quant_block(p->type);
    if (row % block)
        return ph_fail(l->ctx, PH_BAD_SHAPE,
                       "%s is stored as %s in rows of %d elements, expected a multiple "
                       "of %d",
                       name, type, row, block);
    if (l->desc.attn.backward)
        return ph_fail(l->ctx, PH_UNSUPPORTED,
                       "%s is stored as %s and attn.backward is 1, expected F32, F16 or "
                       "BF16 where there are gradients",
                       name, type);
    return PH_OK;
}

/* A matrix that is not a named field is the variant's own: float, (in, columns). */
static ph_status check_matrix(const ph_layer *l, const char *name, int named,
                              const ph_projection *p)
{
    if ((unsigned)p->type > PH_Q6_K)
        return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                       "%s_dtype is %d, expected PH_F32, PH_F16, PH_BF16, PH_Q8_0, "
                       "PH_Q4_0, PH_Q4_1, PH_Q4_K, PH_Q5_K or PH_Q6_K",
                       name, (int)p->type);
    if (!named && (p->type != PH_F32 || p->form == PH_FORM_LINEAR))
        return ph_fail(l->ctx, PH_UNSUPPORTED,
                       "%s has a type or the form PH_FORM_LINEAR, expected neither in a "
                       "layer without %s",
                       name, name);
    return ph_dtype_is_block(p->type) ? check_blocks(l, name, p) : PH_OK;
}

static ph_status check_matrices(ph_layer *l)
{
    ph_shape *s = &l->shape;
    PH_TRY(check_matrix(l, "wq", s->q.w < 0, &s->q));
    PH_TRY(check_matrix(l, "wk", s->k.w < 0, &s->k));
    PH_TRY(check_matrix(l, "wv", s->v.heads > 0, &s->v));
    PH_TRY(check_matrix(l, "wo", !l->desc.concat, &l->out));
    if (s->q.form == PH_FORM_WHOLE && s->q.dim % ph_quant_block(s->q.type))
        s->sparse_q = 0; /* a head would begin inside a block */
    return PH_OK;
}

/* AMX tiles for bf16 layers in both passes; for f32 layers, where the kernels support it,
   in the backward pass. */
static void settle_tiles(ph_layer *l)
{
    ph_projection *parts[] = {&l->shape.q, &l->shape.k, &l->shape.v, &l->out};
    ph_dtype type = l->desc.attn.dtype;
    for (int i = 0; i < 4; i++) {
        parts[i]->tiles = type == PH_BF16;
        parts[i]->back_tiles =
            type == PH_BF16 || (type == PH_F32 && l->ctx->kernels->f32_tiles);
    }
}

static ph_status init(ph_layer *l, const ph_layer_desc *given)
{
    ph_layer_desc *d = &l->desc;
    ph_attn *a = &d->attn;
    ph_variant_parts parts;
    PH_TRY(ph_variant_split(l->ctx, a->variant, &parts));
    mha_shape(l, given);
    l->shape.attn.variant = parts.core;
    for (int i = 0; i < PH_KINDS; i++) {
        if (!parts.kind[i]) continue;
        l->kind[i] = parts.kind[i]->layer;
        PH_TRY(l->kind[i]->shape(&l->shape, parts.options[i]));
    }
    PH_TRY(check_rope_dims(l->ctx, d));
    l->takes_pages = ph_shape_takes_pages(&l->shape);
    PH_TRY(ph_layer_check_pages(l));
    if (l->shape.makes_gate) l->shape.attn.gate = PH_GATE_ROW;
    PH_TRY(settle_out(l));
    PH_TRY(check_matrices(l));
    settle_tiles(l);
    l->q_rows = ph_desc_rows(d);
    l->kv_rows = ph_desc_key_rows(d);
    l->angles = ph_max(l->shape.q.angles, l->shape.k.angles);
    PH_TRY(check_divisors(l));
    ph_layer_angles(l);
    layout_plan(l);
    settle_keys(l);
    PH_TRY(ph_layer_plans(l));
    list_params(l);
    return PH_OK;
}

static ph_status create(ph_layer **out, ph_ctx *ctx, const ph_layer_desc *desc)
{
    if (!desc) return ph_fail(ctx, PH_BAD_ARGUMENT, "desc is NULL");
    PH_CHECK_RESERVED(ctx, "ph_layer_desc", desc->reserved);
    PH_CHECK_RESERVED(ctx, "ph_attn", desc->attn.reserved);
    if (ctx->device)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "layers are not available on PH_CUDA, expected a ctx of PH_CPU");
    ph_layer_desc given = *desc;
    PH_TRY(ph_variant_take_heads(ctx, &given.attn));
    ph_layer_desc d = given;
    fill_defaults(&d);
    PH_TRY(check_sizes(ctx, &d));
    PH_TRY(check_large(ctx, &d));
    PH_TRY(check_strides(ctx, &d.attn));
    PH_TRY(check_source(ctx, &d));
    PH_TRY(check_options(ctx, &d));
    if ((unsigned)d.attn.dtype > PH_BF16) /* the plan sees floats only */
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "attn.dtype is %d, expected PH_F32, PH_F16 or PH_BF16",
                       (int)d.attn.dtype);
    size_t theta = (size_t)(d.attn.qk_dim / 2) * sizeof(double);
    ph_layer *l = ph_ctx_alloc(ctx, sizeof *l + theta);
    if (!l) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a layer");
    memset(l, 0, sizeof *l + theta);
    l->ctx = ctx;
    l->desc = d;
    ph_status status = init(l, &given);
    l->shape.given = NULL;
    l->shape.attn.variant = l->attn.variant = NULL;
    if (status == PH_OK)
        *out = l;
    else
        ph_layer_free(l);
    return status;
}

ph_status ph_layer_create(ph_layer **out, ph_ctx *ctx, const ph_layer_desc *desc)
{
    if (out) *out = NULL;
    if (!out || !ctx) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, create(out, ctx, desc));
}

void ph_layer_free(ph_layer *layer)
{
    if (!layer) return;
    ph_plan_free(layer->plan);
    ph_plan_free(layer->slice);
    ph_ctx_release(layer->ctx, layer);
}

/* ---- memory between the calls -------------------------------------------------- */

static float *take_rows(ph_arena *arena, int rows, int columns)
{
    return ph_arena_floats(arena, (size_t)rows * (size_t)columns);
}

size_t ph_layer_v_floats(const ph_layer *l)
{
    return (size_t)l->kv_rows * (size_t)ph_projection_row(&l->shape.v);
}

int ph_layer_makes_out(const ph_layer *l)
{
    return l->shape.makes_out || l->shape.gate.out;
}

ph_layer_activations ph_layer_take_activations(const ph_layer *l, ph_arena *arena,
                                               int all)
{
    ph_layer_activations p = {0};
    const ph_shape *s = &l->shape;
    int q = ph_projection_row(&s->q), k = ph_projection_row(&s->k);
    p.q = p.q_raw = take_rows(arena, l->q_rows, q);
    p.k = p.k_raw = take_rows(arena, l->kv_rows, k);
    if (!l->recomputes_v) p.v = take_rows(arena, l->kv_rows, ph_projection_row(&s->v));
    p.heads = take_rows(arena, l->q_rows, s->attn.q_heads * s->attn.v_dim);
    for (int i = 0; i < PH_BUFFERS; i++) p.kind[i] = ph_arena_floats(arena, s->saved[i]);
    if (!all) return p;
    p.lse = take_rows(arena, l->q_rows, s->attn.q_heads);
    if (s->q.norm) p.q_raw = take_rows(arena, l->q_rows, q);
    if (s->k.norm) p.k_raw = take_rows(arena, l->kv_rows, k);
    return p;
}

size_t ph_layer_saved(const ph_layer *layer)
{
    if (!layer) return 0;
    ph_arena arena = {0};
    ph_layer_take_activations(layer, &arena, 1);
    return arena.used;
}
