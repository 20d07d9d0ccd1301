/*
 * check.c - checks the arguments of a call.
 */
#include <limits.h>

#include "attn/alias.h"
#include "base/reserved.h"
#include "layer/layer.h"

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
    const int32_t *past = args->past;
    const ph_tokens tokens = ph_layer_x_tokens(l, args);
    for (int b = 0; b < a->batch; b++) {
        int start = past ? past[b] : 0, len = ph_tokens_valid(&tokens, b);
        int most = ph_desc_grows(&l->desc) ? a->kv_len - len : INT_MAX - a->q_len;
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

void ph_layer_list(const ph_layer *l, const ph_layer_weights *w,
                   const float *list[PH_LAYER_PARAMS])
{
    const float *const fields[PH_NAMED] = {w->wq, w->wk, w->wv, w->wo,     w->bq,
                                           w->bk, w->bv, w->bo, w->q_norm, w->k_norm};
    for (int i = 0; i < l->params; i++)
        list[i] = i < l->named ? fields[l->field[i]]
                  : w->extra   ? w->extra[i - l->named]
                               : NULL;
}

void ph_layer_list_grads(const ph_layer *l, const ph_layer_grads *g,
                         float *list[PH_LAYER_PARAMS])
{
    float *const fields[PH_NAMED] = {g->dwq, g->dwk, g->dwv, g->dwo,     g->dbq,
                                     g->dbk, g->dbv, g->dbo, g->dq_norm, g->dk_norm};
    for (int i = 0; i < l->params; i++)
        list[i] = i < l->named ? fields[l->field[i]]
                  : g->dextra  ? g->dextra[i - l->named]
                               : NULL;
}

/* Whether the layer has this named parameter. */
static int has_field(const ph_layer *l, int field)
{
    int found = 0;
    for (int i = 0; i < l->named; i++) found |= l->field[i] == field;
    return found;
}

static ph_status check_weights(const ph_layer *l, const ph_layer_weights *w)
{
    const struct {
        const char *name;
        const void *pointer;
    } fields[PH_NAMED] = {{"wq", w->wq},        {"wk", w->wk}, {"wv", w->wv},
                          {"wo", w->wo},        {"bq", w->bq}, {"bk", w->bk},
                          {"bv", w->bv},        {"bo", w->bo}, {"q_norm", w->q_norm},
                          {"k_norm", w->k_norm}};
    const float *list[PH_LAYER_PARAMS];
    ph_layer_list(l, w, list);
    for (int i = 0; i < PH_NAMED; i++)
        if (!has_field(l, i))
            PH_TRY(need(l->ctx, fields[i].name, fields[i].pointer, 0, 0));
    for (int i = 0; i < l->params; i++)
        if (!l->param[i].optional) PH_TRY(need(l->ctx, l->param[i].name, list[i], 1, 1));
    return PH_OK;
}

static ph_status check_size(ph_ctx *ctx, const char *name, const void *memory,
                            size_t size, size_t least)
{
    if (!memory || size >= least) return PH_OK;
    return ph_fail(ctx, PH_BAD_ARGUMENT, "%s_size is %zu, expected at least %zu", name,
                   size, least);
}

ph_status ph_layer_check_cache_sizes(const ph_layer *l, const ph_layer_args *args)
{
    ph_layer_caches least = ph_layer_cache(l);
    PH_TRY(check_size(l->ctx, "k_cache", args->k_cache, args->k_cache_size, least.k));
    PH_TRY(check_size(l->ctx, "v_cache", args->v_cache, args->v_cache_size, least.v));
    return check_size(l->ctx, "extra_cache", args->extra_cache, args->extra_cache_size,
                      least.extra);
}

static ph_status check_caches(const ph_layer *l, const ph_layer_args *args)
{
    ph_layer_caches least = ph_layer_cache(l);
    int cache = l->desc.cache;
    PH_TRY(
        need(l->ctx, "k_cache", args->k_cache, cache && l->shape.k.heads, least.k > 0));
    PH_TRY(
        need(l->ctx, "v_cache", args->v_cache, cache && l->shape.v.heads, least.v > 0));
    if (cache || !least.extra) /* optional where it is the only cache */
        PH_TRY(need(l->ctx, "extra_cache", args->extra_cache, least.extra > 0, 1));
    return ph_layer_check_cache_sizes(l, args);
}

ph_status ph_layer_check(const ph_layer *l, const ph_layer_weights *w,
                         const ph_layer_args *args)
{
    ph_ctx *ctx = l->ctx;
    const ph_attn *a = &l->desc.attn;
    int cache = l->desc.cache, memory = l->desc.memory_dim > 0;
    if (!w) return ph_fail(ctx, PH_BAD_ARGUMENT, "weights is NULL");
    if (!args) return ph_fail(ctx, PH_BAD_ARGUMENT, "args is NULL");
    PH_CHECK_RESERVED(ctx, "ph_layer_weights", w->reserved);
    PH_CHECK_RESERVED(ctx, "ph_layer_args", args->reserved);
    PH_TRY(check_weights(l, w));
    PH_TRY(need(ctx, "x", args->x, 1, l->q_rows));
    PH_TRY(need(ctx, "memory", args->memory, memory, !cache && l->kv_rows));
    PH_TRY(check_caches(l, args));
    PH_TRY(need(ctx, "attn.q", args->attn.q, 0, 0));
    PH_TRY(need(ctx, "attn.k", args->attn.k, 0, 0));
    PH_TRY(need(ctx, "attn.v", args->attn.v, 0, 0));
    PH_TRY(need(ctx, "attn.out", args->attn.out, 0, 0));
    PH_TRY(need(ctx, "attn.extra", args->attn.extra, 0, 0));
    PH_TRY(need(ctx, "attn.workspace", args->attn.workspace, 0, 0));
    if (!l->shape.makes_gate) PH_TRY(need(ctx, "gate_out", args->gate_out, 0, 0));
    if (!l->shape.routes) PH_TRY(need(ctx, "balance_loss", args->balance_loss, 0, 0));
    if (ph_desc_grows(&l->desc))
        PH_TRY(need(ctx, "attn.kv_lens", args->attn.kv_lens, 0, 0));
    if (!memory) PH_TRY(need(ctx, "attn.kv_offsets", args->attn.kv_offsets, 0, 0));
    PH_TRY(ph_check_sequences(l->plan, &args->attn));
    PH_TRY(check_lens(ctx, "q_lens", args->attn.q_lens, a->batch, a->q_len));
    PH_TRY(check_lens(ctx, "kv_lens", args->attn.kv_lens, a->batch, a->kv_len));
    PH_TRY(check_past(l, args));
    if ((uintptr_t)args->saved % PH_ALIGN)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "saved is not aligned to %d bytes",
                       PH_ALIGN);
    return check_size(ctx, "saved", args->saved, args->saved_size, ph_layer_saved(l));
}

/* ---- backward ---------------------------------------------------------------------- */

static ph_status unwanted(const ph_layer *l, const char *name)
{
    return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                   "d%s is wanted but the layer has no %s, expected NULL", name, name);
}

/* A parameter that was not given has no gradient. */
static ph_status check_parameters(const ph_layer *l, const ph_layer_weights *w,
                                  const ph_layer_grads *g)
{
    const float *param[PH_LAYER_PARAMS];
    float *dparam[PH_LAYER_PARAMS];
    ph_layer_list(l, w, param);
    ph_layer_list_grads(l, g, dparam);
    for (int i = 0; i < l->params; i++)
        if (dparam[i] && !param[i]) return unwanted(l, l->param[i].name);
    const struct {
        const char *name;
        const void *gradient, *tensor;
    } fields[] = {{"wo", g->dwo, w->wo},
                  {"bo", g->dbo, w->bo},
                  {"q_norm", g->dq_norm, w->q_norm},
                  {"k_norm", g->dk_norm, w->k_norm}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (fields[i].gradient && !fields[i].tensor) return unwanted(l, fields[i].name);
    return PH_OK;
}

ph_status ph_layer_check_grads(const ph_layer *l, const ph_layer_weights *w,
                               const ph_layer_args *args, const ph_layer_grads *g)
{
    if (!l->desc.attn.backward)
        return ph_fail(l->ctx, PH_UNSUPPORTED,
                       "the layer was made with attn.backward 0, expected 1");
    if (!g) return ph_fail(l->ctx, PH_BAD_ARGUMENT, "grads is NULL");
    PH_CHECK_RESERVED(l->ctx, "ph_layer_grads", g->reserved);
    PH_TRY(ph_layer_check(l, w, args));
    if (!args->saved && l->q_rows + l->kv_rows)
        return ph_fail(l->ctx, PH_BAD_ARGUMENT,
                       "saved is NULL, expected what the forward call left");
    if (!g->dout && l->q_rows)
        return ph_fail(l->ctx, PH_BAD_ARGUMENT, "dout is NULL, expected a tensor");
    PH_TRY(check_parameters(l, w, g));
    const struct {
        const char *name;
        const void *gradient;
        int there;
    } wanted[] = {{"memory", g->dmemory, l->desc.memory_dim > 0},
                  {"bias", g->dbias, args->attn.bias != NULL},
                  {"gate", g->dgate, args->attn.gate != NULL},
                  {"sink", g->dsink, args->attn.sink != NULL},
                  {"relative", g->drelative, args->attn.relative != NULL}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (wanted[i].gradient && !wanted[i].there) return unwanted(l, wanted[i].name);
    return PH_OK;
}

/* ---- overlapping memory ------------------------------------------------------------ */

/* Sizes of what the caller brings; the gate that a variant computes may have another. */
static ph_attn given_attn(const ph_layer *l)
{
    ph_attn a = l->shape.attn;
    a.gate = l->desc.attn.gate;
    return a;
}

static void add_inputs(ph_mem_ranges *s, const ph_layer *l, const ph_layer_weights *w,
                       const ph_layer_args *args, int what)
{
    size_t size = ph_dtype_size(l->desc.attn.dtype);
    const float *param[PH_LAYER_PARAMS];
    ph_layer_list(l, w, param);
    for (int i = 0; i < l->params; i++)
        ph_alias_param(s, "", &l->param[i], param[i], PH_READ);
    ph_mem_ranges_add(s, "", "x", args->x,
                      (size_t)l->q_rows * (size_t)l->desc.model_dim * size, PH_READ);
    ph_mem_ranges_add(s, "", "memory", args->memory,
                      (size_t)l->kv_rows * (size_t)l->desc.memory_dim * size, PH_READ);
    ph_mem_ranges_add(s, "", "past", args->past,
                      (size_t)l->desc.attn.batch * sizeof *args->past, PH_READ);
    ph_mem_ranges_add(s, "", "saved", args->saved, ph_layer_saved(l),
                      what == PH_DO_FORWARD);
    const ph_attn attn = given_attn(l);
    ph_alias_args(s, &attn, &args->attn, what);
}

ph_status ph_layer_check_alias(const ph_layer *l, const ph_layer_weights *w,
                               const ph_layer_args *args)
{
    ph_mem_ranges s = {0};
    if (!l->ctx->options.checked) return PH_OK;
    const ph_layer_caches cache = ph_layer_cache(l);
    const ph_layer_info info = ph_layer_about(l);
    const size_t rows = (size_t)l->q_rows, f = sizeof(float);
    add_inputs(&s, l, w, args, PH_DO_FORWARD);
    ph_mem_ranges_add(&s, "", "out", args->out,
                      rows * (size_t)info.out_dim * ph_dtype_size(l->desc.attn.dtype),
                      PH_WRITTEN);
    ph_mem_ranges_add(&s, "", "heads", args->heads,
                      rows * (size_t)info.heads * (size_t)info.dim * f, PH_WRITTEN);
    ph_mem_ranges_add(&s, "", "balance_loss", args->balance_loss, f, PH_WRITTEN);
    ph_mem_ranges_add(&s, "", "gate_out", args->gate_out,
                      rows * (size_t)info.attn->q_heads * f, PH_WRITTEN);
    ph_mem_ranges_add(&s, "", "k_cache", args->k_cache, cache.k, PH_WRITTEN);
    ph_mem_ranges_add(&s, "", "v_cache", args->v_cache, cache.v, PH_WRITTEN);
    ph_mem_ranges_add(&s, "", "extra_cache", args->extra_cache, cache.extra, PH_WRITTEN);
    return ph_mem_ranges_check(&s, l->ctx);
}

ph_status ph_layer_check_grads_alias(const ph_layer *l, const ph_layer_weights *w,
                                     const ph_layer_args *args, const ph_layer_grads *g)
{
    ph_mem_ranges s = {0};
    if (!l->ctx->options.checked) return PH_OK;
    const size_t size = ph_dtype_size(l->desc.attn.dtype), rows = (size_t)l->q_rows;
    const ph_attn attn = given_attn(l);
    const ph_grads grads = {.dlse = g->dlse,
                            .dbias = g->dbias,
                            .dgate = g->dgate,
                            .dsink = g->dsink,
                            .drelative = g->drelative};
    float *dparam[PH_LAYER_PARAMS];
    add_inputs(&s, l, w, args, PH_DO_BACKWARD);
    ph_mem_ranges_add(&s, "d", "out", g->dout, rows * (size_t)l->out_cols * size,
                      PH_READ);
    ph_mem_ranges_add(&s, "d", "x", g->dx, rows * (size_t)l->desc.model_dim * size,
                      PH_WRITTEN);
    ph_mem_ranges_add(&s, "d", "memory", g->dmemory,
                      (size_t)l->kv_rows * (size_t)l->desc.memory_dim * size, PH_WRITTEN);
    ph_layer_list_grads(l, g, dparam);
    for (int i = 0; i < l->params; i++) {
        ph_param grad = l->param[i];
        grad.dtype = PH_F32;
        ph_alias_param(&s, "d", &grad, dparam[i], PH_WRITTEN);
    }
    ph_alias_grads(&s, &attn, &grads);
    return ph_mem_ranges_check(&s, l->ctx);
}
