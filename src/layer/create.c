/*
 * create.c - checks the description of a layer and the arguments of its calls.
 */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/size.h"
#include "layer/layer.h"

/* ---- description ------------------------------------------------------------------- */

static ph_status check_sizes(ph_ctx *ctx, const ph_layer_desc *d)
{
    const struct {
        const char *name;
        int value, least;
    } fields[] = {
        {"model_dim", d->model_dim, 1},       {"memory_dim", d->memory_dim, 0},
        {"out_dim", d->out_dim, 0},           {"attn.q_heads", d->attn.q_heads, 1},
        {"attn.k_heads", d->attn.k_heads, 1}, {"attn.v_heads", d->attn.v_heads, 1},
        {"attn.qk_dim", d->attn.qk_dim, 1},   {"attn.v_dim", d->attn.v_dim, 1},
        {"attn.batch", d->attn.batch, 0},     {"attn.q_len", d->attn.q_len, 0},
        {"attn.kv_len", d->attn.kv_len, 0}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].value < fields[i].least)
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %d, expected at least %d",
                           fields[i].name, fields[i].value, fields[i].least);
    return PH_OK;
}

/* Every row and column number fits an int, every tensor easily fits the address space. */
static ph_status check_large(ph_ctx *ctx, const ph_layer_desc *d)
{
    const ph_attn *a = &d->attn;
    const size_t most = PTRDIFF_MAX / 256;
    size_t tokens = (size_t)ph_max(a->q_len, a->kv_len), width = 0, rows, all;
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
    if (ph_size_mul((size_t)a->batch, tokens, &rows) || rows > INT_MAX / 64)
        return ph_fail(ctx, PH_UNSUPPORTED, "batch %d of %zu tokens is too large",
                       a->batch, tokens);
    if (ph_size_mul(rows, width, &all) || all > most || ph_size_mul(width, width, &all) ||
        all > most)
        return ph_fail(ctx, PH_UNSUPPORTED, "%zu tokens of %zu numbers are too many",
                       rows, width);
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
    if (d->cache && d->memory_dim)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "cache is 1 and memory_dim %d, expected only one of them",
                       d->memory_dim);
    if (d->cache && a->backward)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "cache is 1 and attn.backward 1, expected only one of them");
    if (d->cache && a->anchor != PH_ANCHOR_UNSAID && a->anchor != PH_ANCHOR_END)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "attn.anchor is %d, expected PH_ANCHOR_END with a cache",
                       (int)a->anchor);
    if (!d->cache && !d->memory_dim && a->q_len != a->kv_len)
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "attn.q_len is %d and attn.kv_len %d, expected the same length "
                       "without memory and cache",
                       a->q_len, a->kv_len);
    if (d->concat && d->out_dim != a->q_heads * a->v_dim)
        return ph_fail(ctx, PH_BAD_SHAPE, "out_dim is %d, expected 0 or %d with concat",
                       d->out_dim, a->q_heads * a->v_dim);
    return PH_OK;
}

static ph_status check_options(ph_ctx *ctx, const ph_layer_desc *d)
{
    const ph_form forms[3] = {d->q_form, d->k_form, d->v_form};
    for (int i = 0; i < 3; i++)
        if ((unsigned)forms[i] > PH_FORM_HEADS)
            return ph_fail(ctx, PH_BAD_ARGUMENT,
                           "%c_form is %d, expected PH_FORM_WHOLE or PH_FORM_HEADS",
                           "qkv"[i], (int)forms[i]);
    if ((unsigned)d->rope > PH_ROPE_INTERLEAVED)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope is %d, expected PH_ROPE_NONE, _HALF or _INTERLEAVED",
                       (int)d->rope);
    if (!(d->rope_base > 0) || !isfinite(d->rope_base))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "rope_base is %g, expected a positive number",
                       (double)d->rope_base);
    if (d->rope_dims < 0 || d->rope_dims > d->attn.qk_dim ||
        (d->rope && d->rope_dims % 2))
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "rope_dims is %d, expected an even number of at most %d",
                       d->rope_dims, d->attn.qk_dim);
    if (!(d->norm_eps > 0) || !isfinite(d->norm_eps))
        return ph_fail(ctx, PH_BAD_ARGUMENT, "norm_eps is %g, expected a positive number",
                       (double)d->norm_eps);
    return PH_OK;
}

static void fill_defaults(ph_layer_desc *d)
{
    ph_attn *a = &d->attn;
    if (a->k_heads == 0) a->k_heads = a->q_heads;
    if (a->v_heads == 0) a->v_heads = a->q_heads;
    if (a->v_dim == 0) a->v_dim = a->qk_dim;
    if (d->rope_base == 0) d->rope_base = 10000;
    if (d->rope_dims == 0) d->rope_dims = a->qk_dim;
    if (d->norm_eps == 0) d->norm_eps = 1e-6f;
}

/* ---- layer ------------------------------------------------------------------------- */

/* Attention on floats, heads side by side; a cache is packed head by head. */
static ph_attn plan_attn(const ph_layer *l)
{
    ph_attn a = l->desc.attn;
    int q = ph_layer_columns(&l->wq), k = ph_layer_columns(&l->wk);
    int v = ph_layer_columns(&l->wv), out = l->wo.in;
    a.dtype = PH_F32;
    a.q = (ph_strides){(int64_t)a.q_len * q, a.qk_dim, q};
    a.out = (ph_strides){(int64_t)a.q_len * out, a.v_dim, out};
    if (l->desc.cache) {
        a.anchor = PH_ANCHOR_END;
    } else {
        a.k = (ph_strides){(int64_t)a.kv_len * k, a.qk_dim, k};
        a.v = (ph_strides){(int64_t)a.kv_len * v, a.v_dim, v};
    }
    return a;
}

/* A matrix (in, heads*dim), or (heads, in, dim). */
static void add_matrix(ph_layer *l, const char *name, const ph_layer_matrix *w)
{
    ph_param p = {.name = name, .rank = 2, .dims = {w->in, ph_layer_columns(w)}};
    if (w->form == PH_FORM_HEADS)
        p = (ph_param){.name = name, .rank = 3, .dims = {w->heads, w->in, w->dim}};
    l->param[l->params++] = p;
}

static void add_vector(ph_layer *l, const char *name, int size)
{
    l->param[l->params++] =
        (ph_param){.name = name, .rank = 1, .dims = {size}, .optional = 1};
}

static void list_params(ph_layer *l)
{
    const ph_layer_desc *d = &l->desc;
    add_matrix(l, "wq", &l->wq);
    add_matrix(l, "wk", &l->wk);
    add_matrix(l, "wv", &l->wv);
    if (!d->concat) add_matrix(l, "wo", &l->wo);
    add_vector(l, "bq", ph_layer_columns(&l->wq));
    add_vector(l, "bk", ph_layer_columns(&l->wk));
    add_vector(l, "bv", ph_layer_columns(&l->wv));
    if (!d->concat) add_vector(l, "bo", d->out_dim);
    if (d->qk_norm) add_vector(l, "q_norm", d->attn.qk_dim);
    if (d->qk_norm) add_vector(l, "k_norm", d->attn.qk_dim);
    l->named = l->params;
    for (int i = 0; ph_plan_extra(l->plan, i); i++)
        l->param[l->params++] = *ph_plan_extra(l->plan, i);
}

static ph_status init(ph_layer *l, ph_ctx *ctx, const ph_layer_desc *d)
{
    const ph_attn *a = &d->attn;
    int source = d->memory_dim ? d->memory_dim : d->model_dim;
    l->ctx = ctx;
    l->desc = *d;
    l->wq = (ph_layer_matrix){d->model_dim, a->q_heads, a->qk_dim, d->q_form};
    l->wk = (ph_layer_matrix){source, a->k_heads, a->qk_dim, d->k_form};
    l->wv = (ph_layer_matrix){source, a->v_heads, a->v_dim, d->v_form};
    l->wo = (ph_layer_matrix){a->q_heads * a->v_dim, 1, d->out_dim, PH_FORM_WHOLE};
    l->kv_len = d->cache ? a->q_len : a->kv_len;
    l->q_rows = a->batch * a->q_len;
    l->kv_rows = a->batch * l->kv_len;
    l->out_cols = d->out_dim;
    l->angles = d->rope ? d->rope_dims / 2 : 0;
    ph_layer_angles(d->rope_base, l->angles, l->theta);
    ph_attn attn = plan_attn(l);
    PH_TRY(ph_plan_create(&l->plan, ctx, &attn));
    list_params(l);
    return PH_OK;
}

ph_status ph_layer_create(ph_layer **out, ph_ctx *ctx, const ph_layer_desc *desc)
{
    if (out) *out = NULL;
    if (!out || !ctx) return PH_BAD_ARGUMENT;
    if (!desc) return ph_fail(ctx, PH_BAD_ARGUMENT, "desc is NULL");
    ph_layer_desc d = *desc;
    fill_defaults(&d);
    PH_TRY(check_sizes(ctx, &d));
    PH_TRY(check_large(ctx, &d));
    if (d.out_dim == 0)
        d.out_dim = d.concat ? d.attn.q_heads * d.attn.v_dim : d.model_dim;
    PH_TRY(check_strides(ctx, &d.attn));
    PH_TRY(check_source(ctx, &d));
    PH_TRY(check_options(ctx, &d));
    if ((unsigned)d.attn.dtype > PH_BF16) /* the plan sees floats only */
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "attn.dtype is %d, expected PH_F32, PH_F16 or PH_BF16",
                       (int)d.attn.dtype);
    size_t theta = (size_t)(d.rope ? d.rope_dims / 2 : 0) * sizeof(double);
    ph_layer *l = ph_ctx_alloc(ctx, sizeof *l + theta);
    if (!l) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a layer");
    memset(l, 0, sizeof *l + theta);
    ph_status status = init(l, ctx, &d);
    if (status == PH_OK)
        *out = l;
    else
        ph_ctx_release(ctx, l);
    return status;
}

void ph_layer_free(ph_layer *layer)
{
    if (!layer) return;
    ph_plan_free(layer->plan);
    ph_ctx_release(layer->ctx, layer);
}

const ph_param *ph_layer_param(const ph_layer *layer, int i)
{
    return i >= 0 && i < layer->params ? &layer->param[i] : NULL;
}

int ph_layer_named(const ph_layer *layer)
{
    return layer->named;
}

ph_layer_kept ph_layer_keep(const ph_layer *l, ph_arena *arena, int all)
{
    ph_layer_kept p = {0};
    const ph_attn *a = &l->desc.attn;
    size_t q_rows = (size_t)l->q_rows, kv_rows = (size_t)l->kv_rows;
    size_t q = q_rows * (size_t)ph_layer_columns(&l->wq);
    size_t k = kv_rows * (size_t)ph_layer_columns(&l->wk);
    p.q = p.q_raw = ph_arena_floats(arena, q);
    p.k = p.k_raw = ph_arena_floats(arena, k);
    p.v = ph_arena_floats(arena, kv_rows * (size_t)ph_layer_columns(&l->wv));
    p.heads = ph_arena_floats(arena, q_rows * (size_t)l->wo.in);
    if (!all) return p;
    p.lse = ph_arena_floats(arena, q_rows * (size_t)a->q_heads);
    if (!l->desc.qk_norm) return p;
    p.q_raw = ph_arena_floats(arena, q);
    p.k_raw = ph_arena_floats(arena, k);
    return p;
}

size_t ph_layer_saved(const ph_layer *layer)
{
    ph_arena arena = {0};
    ph_layer_keep(layer, &arena, 1);
    return arena.used;
}

/* ---- calls ------------------------------------------------------------------------- */

static ph_status need(ph_ctx *ctx, const char *name, const void *pointer, int wanted,
                      int elements)
{
    if (wanted && !pointer && elements)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is NULL, expected a tensor", name);
    if (!wanted && pointer)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is given, expected NULL in this layer",
                       name);
    return PH_OK;
}

static ph_status check_lens(ph_ctx *ctx, const char *name, const int32_t *lens, int batch,
                            int most)
{
    for (int b = 0; lens && b < batch; b++)
        if (lens[b] < 0 || lens[b] > most)
            return ph_fail(ctx, PH_BAD_SHAPE, "%s[%d] is %d, expected 0 to %d", name, b,
                           lens[b], most);
    return PH_OK;
}

static ph_status check_past(const ph_layer *l, const ph_layer_args *args)
{
    const ph_attn *a = &l->desc.attn;
    const int32_t *past = args->past, *lens = args->attn.q_lens;
    for (int b = 0; b < a->batch; b++) {
        int start = past ? past[b] : 0, len = lens ? lens[b] : a->q_len;
        int most = l->desc.cache ? a->kv_len - len : INT_MAX - a->q_len;
        if (most < 0)
            return ph_fail(l->ctx, PH_BAD_SHAPE,
                           "batch row %d has %d tokens, expected at most the %d of the "
                           "cache",
                           b, len, a->kv_len);
        if (start < 0 || start > most)
            return ph_fail(l->ctx, PH_BAD_SHAPE, "past[%d] is %d, expected 0 to %d", b,
                           start, most);
    }
    return PH_OK;
}

static ph_status check_weights(const ph_layer *l, const ph_layer_weights *w)
{
    int wo = !l->desc.concat, norm = l->desc.qk_norm;
    PH_TRY(need(l->ctx, "wq", w->wq, 1, 1));
    PH_TRY(need(l->ctx, "wk", w->wk, 1, 1));
    PH_TRY(need(l->ctx, "wv", w->wv, 1, 1));
    PH_TRY(need(l->ctx, "wo", w->wo, wo, 1));
    if (!wo) PH_TRY(need(l->ctx, "bo", w->bo, 0, 0));
    if (!norm) PH_TRY(need(l->ctx, "q_norm", w->q_norm, 0, 0));
    if (!norm) PH_TRY(need(l->ctx, "k_norm", w->k_norm, 0, 0));
    for (int i = l->named; i < l->params; i++)
        if (!l->param[i].optional)
            PH_TRY(need(l->ctx, l->param[i].name,
                        w->extra ? w->extra[i - l->named] : NULL, 1, 1));
    return PH_OK;
}

ph_status ph_layer_check(const ph_layer *l, const ph_layer_weights *w,
                         const ph_layer_args *args)
{
    ph_ctx *ctx = l->ctx;
    const ph_attn *a = &l->desc.attn;
    int cache = l->desc.cache, memory = l->desc.memory_dim > 0;
    if (!w) return ph_fail(ctx, PH_BAD_ARGUMENT, "weights is NULL");
    if (!args) return ph_fail(ctx, PH_BAD_ARGUMENT, "args is NULL");
    PH_TRY(check_weights(l, w));
    PH_TRY(need(ctx, "x", args->x, 1, l->q_rows));
    PH_TRY(need(ctx, "memory", args->memory, memory, l->kv_rows));
    PH_TRY(need(ctx, "k_cache", args->k_cache, cache, a->batch * a->kv_len));
    PH_TRY(need(ctx, "v_cache", args->v_cache, cache, a->batch * a->kv_len));
    PH_TRY(need(ctx, "attn.q", args->attn.q, 0, 0));
    PH_TRY(need(ctx, "attn.k", args->attn.k, 0, 0));
    PH_TRY(need(ctx, "attn.v", args->attn.v, 0, 0));
    PH_TRY(need(ctx, "attn.out", args->attn.out, 0, 0));
    PH_TRY(need(ctx, "attn.extra", args->attn.extra, 0, 0));
    PH_TRY(need(ctx, "attn.workspace", args->attn.workspace, 0, 0));
    PH_TRY(need(ctx, "gate_out", args->gate_out, 0, 0));
    PH_TRY(need(ctx, "balance_loss", args->balance_loss, 0, 0));
    if (cache) PH_TRY(need(ctx, "attn.kv_lens", args->attn.kv_lens, 0, 0));
    PH_TRY(check_lens(ctx, "q_lens", args->attn.q_lens, a->batch, a->q_len));
    PH_TRY(check_lens(ctx, "kv_lens", args->attn.kv_lens, a->batch, a->kv_len));
    PH_TRY(check_past(l, args));
    if ((uintptr_t)args->saved % PH_ALIGN)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "saved is not aligned to %d bytes",
                       PH_ALIGN);
    return PH_OK;
}
