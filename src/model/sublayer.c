/*
 * sublayer.c - the attention of a sublayer: its layer, described by the configuration,
 * and its parameters as the layer takes them.
 */
#include <math.h>
#include <string.h>

#include "architectures/windows.h"
#include "model/model.h"
#include "variants/variants.h"

static void set_variant(const ph_model *m, ph_attn *a, const char *variant)
{
    a->variant = variant;
    ph_variant_take_heads(m->ctx, a); /* what it refuses, ph_layer_create refuses too */
    if (strstr(variant, "diff")) a->v_dim = 2 * a->qk_dim; /* of diff, diff2 */
}

/* Whether self-attention of a layer sees through the window. */
static int has_window(const ph_config *c, const ph_model_stack *stack, int layer)
{
    return (stack->causal || c->arch == PH_ARCH_ENCODER) && ph_config_windowed(c, layer);
}

static void set_band(const ph_config *c, int causal, ph_attn *a)
{
    a->mask = PH_MASK_BAND;
    a->band_left = causal ? c->window - 1 : c->window / 2;
    a->band_right = causal ? 0 : c->window / 2;
}

static void set_rope(const ph_config *c, int windowed, ph_layer_desc *d)
{
    d->rope = c->rope_interleaved ? PH_ROPE_INTERLEAVED : PH_ROPE_HALF;
    d->rope_base = c->rope_base, d->rope_dims = c->rope_dims;
    if (c->rope_local_base != 0 && windowed) {
        d->rope_base = c->rope_local_base;
        return;
    }
    d->rope_scaling = c->rope_scaling;
    if (c->rope_scaling == PH_ROPE_LONGROPE) d->rope_divisors = c->rope_divisors;
    d->rope_factor = c->rope_factor, d->rope_length = c->rope_length;
    d->rope_low = c->rope_low, d->rope_high = c->rope_high;
    d->rope_scale = c->rope_scale, d->yarn_untruncated = c->yarn_untruncated;
}

/* The scale of the scores; 0: the library's. */
static float scale_of(const ph_config *c, int layer)
{
    double scale = c->attn_scale;
    if (!c->scale_by_layer) return c->attn_scale;
    if (scale == 0) scale = 1 / sqrt((double)c->head_dim);
    return (float)(scale / (layer + 1));
}

ph_layer_desc ph_model_layer(const ph_model *m, const ph_model_stack *stack,
                             const ph_sublayer *sublayer, int batch, int q_len,
                             int kv_len)
{
    const ph_config *c = &m->config;
    int cross = sublayer->kind == PH_SUBLAYER_CROSS, pruned = sublayer->original != NULL;
    int heads = pruned ? sublayer->heads : c->heads;
    int kv_heads = pruned ? heads / sublayer->group : c->kv_heads;
    int groups = kv_heads < heads;
    ph_layer_desc d = {.model_dim = c->model_dim};
    d.memory_dim = cross ? c->model_dim : 0;
    d.attn = (ph_attn){.batch = batch,
                       .q_heads = heads,
                       .k_heads = groups ? kv_heads : 0,
                       .v_heads = groups ? kv_heads : 0,
                       .q_len = q_len,
                       .kv_len = kv_len,
                       .qk_dim = c->head_dim,
                       .dropout = c->dropout};
    set_variant(m, &d.attn, sublayer->variant);
    d.attn.scale = scale_of(c, sublayer->layer), d.attn.softcap = c->attn_softcap;
    if (c->qk_norm && !cross) {
        d.qk_norm = c->qk_norm_whole ? PH_QK_NORM_WHOLE : PH_QK_NORM_HEAD;
        d.norm_eps = c->norm_eps;
    }
    int windowed = !cross && has_window(c, stack, sublayer->layer);
    if (stack->causal && !cross) d.attn.mask = PH_MASK_CAUSAL;
    if (windowed) set_band(c, stack->causal, &d.attn);
    if (!cross && ph_config_rotates(c, sublayer->layer)) set_rope(c, windowed, &d);
    if (ph_config_bucketed(c) && !cross) d.attn.reach = c->bucket_distance;
    ph_model_describe_stored(m, sublayer, &d);
    return d;
}

/* Heads of a group shared keys and values before, too. */
static int is_regular(const ph_sublayer *sublayer, int shared)
{
    for (int h = 0; h < sublayer->heads; h++) {
        int first = h - h % sublayer->group;
        if (sublayer->original[h] / shared != sublayer->original[first] / shared)
            return 0;
    }
    return 1;
}

ph_status ph_sublayer_removable(const ph_model *m, const ph_model_stack *stack,
                                const ph_sublayer *sublayer)
{
    const ph_attn a = ph_model_layer(m, stack, sublayer, 1, 1, 1).attn;
    if (strcmp(a.variant, "mha"))
        return ph_fail(m->ctx, PH_UNSUPPORTED, "heads of %s cannot be removed",
                       sublayer->variant);
    if (m->config.qk_norm_whole && sublayer->kind != PH_SUBLAYER_CROSS)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "heads cannot be removed where all of a token are normalised "
                       "together (qk_norm_whole)");
    return PH_OK;
}

ph_status ph_sublayer_keep(ph_model *m, const ph_model_stack *stack,
                           ph_sublayer *sublayer)
{
    const ph_kept *k = &m->kept;
    int cross = sublayer->kind == PH_SUBLAYER_CROSS;
    int place = ph_kept_place(&m->config, stack->decoder, sublayer->layer, cross);
    if (!k->removed || !k->group[place]) return PH_OK;
    PH_TRY(ph_sublayer_removable(m, stack, sublayer));
    const ph_attn a = ph_model_layer(m, stack, sublayer, 1, 1, 1).attn;
    size_t at = (size_t)place * (size_t)k->heads;
    int *original = m->original + m->original_count;
    sublayer->heads = 0, sublayer->group = k->group[place];
    for (int h = 0; h < k->heads; h++)
        if (!k->removed[at + (size_t)h]) original[sublayer->heads++] = h;
    sublayer->original = original;
    m->original_count += sublayer->heads;
    strcpy(sublayer->variant, "mha");
    if (!sublayer->heads) sublayer->kind = PH_SUBLAYER_BIAS;
    if (is_regular(sublayer, a.k_heads ? a.q_heads / a.k_heads : 1)) return PH_OK;
    return ph_fail(m->ctx, PH_BAD_FILE,
                   "heads of one group have other keys and values, expected the same");
}

/* Fields of ph_layer_weights and ph_layer_grads by the names of ph_layer_param. */
static const struct {
    const char *name;
    size_t weight, grad;
} named[] = {
#define NAMED(x)                                                                         \
    {                                                                                    \
#x, offsetof(ph_layer_weights, x), offsetof(ph_layer_grads, d##x)                \
    }
    NAMED(wq), NAMED(wk), NAMED(wv),     NAMED(wo),    NAMED(bq), NAMED(bk),
    NAMED(bv), NAMED(bo), NAMED(q_norm), NAMED(k_norm)
#undef NAMED
};

static void bind_named(ph_bound *out, const char *name, ph_matrix weight, float *grad)
{
    ph_matrix *const matrices[4] = {&out->wq, &out->wk, &out->wv, &out->wo};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        if (strcmp(name, named[i].name)) continue;
        if (i < 4) *matrices[i] = weight;
        memcpy((char *)&out->weights + named[i].weight, &weight.data, sizeof weight.data);
        memcpy((char *)&out->grads + named[i].grad, &grad, sizeof grad);
    }
}

void ph_model_bind(const ph_model *m, const ph_sublayer *sublayer, const float *block,
                   float *grads, ph_bound *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < sublayer->count; i++) {
        const ph_weight *p = &m->params[sublayer->first + i];
        const ph_matrix weight = ph_model_matrix(m, block, sublayer->first + i);
        float *grad = grads ? grads + p->at : NULL;
        if (i < sublayer->named)
            bind_named(out, strrchr(p->name, '.') + 1, weight, grad);
        else
            out->extra[i - sublayer->named] = weight.data,
                           out->dextra[i - sublayer->named] = grad;
    }
    if (sublayer->count == sublayer->named) return;
    out->weights.extra = out->extra;
    if (grads) out->grads.dextra = out->dextra;
}
