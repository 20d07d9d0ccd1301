/*
 * model_list.c - what a model consists of: its sublayers, and its parameters in the order
 * of the forward pass. The order of one sublayer:
 *
 *     attention     as ph_layer_param lists them: wq wk wv wo, bq bk bv bo, its own
 *     feed-forward  w1 w2, w3 of a gated activation, then b1 b2, b3
 *     masked, pooler, classifier, distilled  w b, and what is theirs
 */
#include <math.h>
#include <stdio.h>

#include "model/model.h"
#include "variants/variants.h"

static int add(ph_model *m, const char *name, int rank, const int *dims, ph_start start,
               double size)
{
    ph_weight *p = &m->params[m->param_count];
    *p = (ph_weight){.rank = rank, .start = start, .size = (float)size, .count = 1};
    for (int d = 0; d < rank; d++) {
        p->dims[d] = dims[d];
        p->count *= (size_t)dims[d];
    }
    snprintf(p->name, sizeof p->name, "%s", name);
    return m->param_count++;
}

static int add_two(ph_model *m, const char *name, int first, int second, ph_start start,
                   double size)
{
    return add(m, name, 2, (int[]){first, second}, start, size);
}

static int add_one(ph_model *m, const char *name, int size, ph_start start)
{
    return add(m, name, 1, &size, start, 0);
}

static double bound(const ph_model *m, int layer, int in, int out)
{
    double depth = m->config.depth_scaled ? sqrt(layer + 1.0) : 1.0;
    return sqrt(6.0 / ((double)in + out)) / depth;
}

static const char *stack_name(const ph_model_stack *s)
{
    return s->decoder || s->causal ? "decoder" : "encoder";
}

static void add_norm(ph_model *m, const char *stem, int dim, int *gain, int *shift)
{
    char name[48];
    snprintf(name, sizeof name, "%s.gain", stem);
    *gain = add_one(m, name, dim, PH_START_ONE);
    *shift = -1;
    if (m->config.norm == PH_NORM_RMS || m->config.no_bias & PH_NO_BIAS_NORM) return;
    snprintf(name, sizeof name, "%s.bias", stem);
    *shift = add_one(m, name, dim, PH_START_ZERO);
}

static void add_matrix(ph_model *m, const char *stem, const char *last, int layer, int in,
                       int out)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%s", stem, last);
    add_two(m, name, in, out, PH_START_UNIFORM, bound(m, layer, in, out));
}

static void add_vector(ph_model *m, const char *stem, const char *last, int size)
{
    char name[48];
    snprintf(name, sizeof name, "%s.%s", stem, last);
    if (!(m->config.no_bias & PH_NO_BIAS_FF)) add_one(m, name, size, PH_START_ZERO);
}

/* Parameters that do not start as a random matrix or a bias of 0. Variants start as plain
   heads where they can. */
static const struct {
    const char *name;
    ph_start start;
    float size;
} starts[] = {{"w_logits", PH_START_EYE, 0},        {"w_weights", PH_START_EYE, 0},
              {"dc_w2", PH_START_NORMAL, 0.02f},    {"dc_wg", PH_START_NORMAL, 0.02f},
              {"dc_static", PH_START_ZERO, 0},      {"mix", PH_START_BLOCK, 0},
              {"content", PH_START_ZERO, 0},        {"lambda_q1", PH_START_NORMAL, 0.1f},
              {"lambda_k1", PH_START_NORMAL, 0.1f}, {"lambda_q2", PH_START_NORMAL, 0.1f},
              {"lambda_k2", PH_START_NORMAL, 0.1f}, {"diff_norm", PH_START_ONE, 0},
              {"kv_norm", PH_START_ONE, 0},         {"q_norm", PH_START_ONE, 0},
              {"k_norm", PH_START_ONE, 0}};

static void choose_start(const ph_model *m, ph_weight *w, const char *name, int layer)
{
    if (w->rank > 1) {
        w->start = PH_START_UNIFORM;
        w->size = (float)bound(m, layer, w->dims[w->rank - 2], w->dims[w->rank - 1]);
    }
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (!strcmp(name, starts[i].name))
            w->start = starts[i].start, w->size = starts[i].size;
}

/* Whether the configuration leaves out a bias of attention. */
static int is_left_out(const ph_config *c, const char *name)
{
    static const char *const names[] = {"bq", "bk", "bv", "bo"};
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, names[i])) return c->no_bias >> i & 1;
    return 0;
}

/* A layer of one token tells which tensors this variant has and how large they are. The
   alpha of entmax is learned unless it is said. */
static ph_status add_attention(ph_model *m, const ph_model_stack *s,
                               ph_sublayer *sublayer, const char *stem)
{
    ph_layer *probe;
    const ph_param *p;
    char name[48];
    PH_TRY(ph_sublayer_keep(m, s, sublayer));
    if (sublayer->kind == PH_SUBLAYER_BIAS) {
        snprintf(name, sizeof name, "%s.bo", stem);
        if (!(m->config.no_bias & PH_NO_BIAS_O))
            add_one(m, name, m->config.model_dim, PH_START_ZERO);
        sublayer->site = -1;
        return PH_OK;
    }
    ph_layer_desc d = ph_model_layer(m, s, sublayer, 1, 1, 1);
    PH_TRY(ph_layer_create(&probe, m->ctx, &d));
    int named = ph_layer_named(probe);
    for (int i = 0; (p = ph_layer_param(probe, i)); i++) {
        if (i < named && is_left_out(&m->config, p->name)) continue;
        if (!strcmp(p->name, "alpha_logit") && strstr(sublayer->variant, "alpha="))
            continue;
        snprintf(name, sizeof name, "%s.%s", stem, p->name);
        int index = add(m, name, p->rank, p->dims, PH_START_ZERO, 0);
        choose_start(m, &m->params[index], p->name, sublayer->layer);
        m->params[index].unused = p->unused;
        if (i < named) sublayer->named++;
    }
    sublayer->site = m->site_count++;
    sublayer->heads = ph_layer_about(probe).attn->q_heads;
    sublayer->first_head = m->head_count;
    m->head_count += sublayer->heads;
    ph_layer_free(probe);
    return PH_OK;
}

static void add_feed(ph_model *m, ph_sublayer *sublayer, const char *stem)
{
    const ph_config *c = &m->config;
    int gated = ph_config_gated(c), layer = sublayer->layer;
    add_matrix(m, stem, "w1", layer, c->model_dim, c->ff_dim);
    add_matrix(m, stem, "w2", layer, c->ff_dim, c->model_dim);
    if (gated) add_matrix(m, stem, "w3", layer, c->model_dim, c->ff_dim);
    add_vector(m, stem, "b1", c->ff_dim);
    add_vector(m, stem, "b2", c->model_dim);
    if (gated) add_vector(m, stem, "b3", c->ff_dim);
    sublayer->site = -1;
}

/* Entry number `layer` of a list with ';' between, the last one for the rest. */
static void pick_variant(const char *list, int layer, char *to)
{
    for (const char *next; layer > 0 && (next = strchr(list, ';')); layer--)
        list = next + 1;
    size_t length = strcspn(list, ";");
    memcpy(to, list, length);
    to[length] = 0;
}

/* Differential attention starts by the depth of its layer: "diff" becomes
   "diff:depth=LAYER" unless the depth is given. */
static void set_depth(char *variant, int layer)
{
    char rest[PH_VARIANT_TEXT];
    for (char *name = variant; name; name = strchr(name, '+')) {
        name += *name == '+';
        size_t length = strcspn(name, "+");
        if (length != 4 || strncmp(name, "diff", 4)) continue;
        snprintf(rest, sizeof rest, "%s", name + 4);
        sprintf(name + 4, ":depth=%d%s", layer, rest);
        return;
    }
}

/* Whether cross-attention of this layer replaces self-attention too. */
static int is_merged(const ph_config *c, int layer)
{
    char cross[PH_VARIANT_TEXT];
    pick_variant(c->cross, layer, cross);
    return strstr(cross, "merged") != NULL;
}

/* The norm after a sublayer: its own (post-norm), or that before the next (pre-norm); a
   sandwich has one of its output too, which with PH_OUTPUT_NORM is all there is. */
static ph_status add_sublayer(ph_model *m, ph_model_stack *s, ph_sublayer_kind kind,
                              int layer, int number)
{
    static const char *const names[] = {"self", "cross", "ff"};
    char stem[40], norm[40];
    ph_sublayer *sublayer = &s->sublayers[s->count];
    *sublayer = (ph_sublayer){.kind = kind, .layer = layer};
    if (kind == PH_SUBLAYER_SELF)
        pick_variant(m->config.variant, layer, sublayer->variant);
    if (kind == PH_SUBLAYER_CROSS)
        pick_variant(m->config.cross, layer, sublayer->variant);
    set_depth(sublayer->variant, layer);
    int named = ph_config_group(&m->config, layer);
    snprintf(stem, sizeof stem, "%s.%d.%s", stack_name(s), named, names[kind]);
    snprintf(norm, sizeof norm, "%s.%d.norm%d", stack_name(s), named, number);
    ph_norm_place place = m->config.norm_place;
    int pre_norm = place == PH_PRE_NORM || place == PH_SANDWICH_NORM;
    int dim = m->config.model_dim;
    sublayer->gain = sublayer->shift = sublayer->post_gain = sublayer->post_shift = -1;
    if (pre_norm && s->count)
        add_norm(m, norm, dim, &sublayer[-1].gain, &sublayer[-1].shift);
    else if (pre_norm && !m->config.embed_norm)
        add_norm(m, norm, dim, &s->gain, &s->shift);
    sublayer->first = m->param_count;
    if (kind == PH_SUBLAYER_FEED)
        add_feed(m, sublayer, stem);
    else
        PH_TRY(add_attention(m, s, sublayer, stem));
    sublayer->count = m->param_count - sublayer->first;
    if (place == PH_POST_NORM) add_norm(m, norm, dim, &sublayer->gain, &sublayer->shift);
    snprintf(norm, sizeof norm, "%s.%d.post_norm%d", stack_name(s), layer, number);
    if (place == PH_SANDWICH_NORM || place == PH_OUTPUT_NORM)
        add_norm(m, norm, dim, &sublayer->post_gain, &sublayer->post_shift);
    s->count++;
    return PH_OK;
}

/* A matrix and, unless it is left out, its bias; returns the index of the matrix. */
static int add_layer(ph_model *m, const char *stem, int in, int out, int no_bias)
{
    char name[48];
    int first = m->param_count;
    add_matrix(m, stem, "w", 0, in, out);
    snprintf(name, sizeof name, "%s.b", stem);
    if (!no_bias) add_one(m, name, out, PH_START_ZERO);
    return first;
}

static int add_linear(ph_model *m, const char *stem, int in, int out)
{
    return add_layer(m, stem, in, out, 0);
}

static ph_status add_stack(ph_model *m, ph_model_stack *s, int layers)
{
    const ph_config *c = &m->config;
    char name[48];
    int longest = s->decoder ? c->max_len : ph_config_source_len(c);
    int dim = ph_config_embed_dim(c);
    s->gain = s->shift = s->positions = s->types = s->buckets = s->projection = -1;
    snprintf(name, sizeof name, "%s.positions", stack_name(s));
    if (ph_config_learned(c))
        s->positions = add_two(m, name, longest + c->position_offset, dim,
                               PH_START_NORMAL, 0.02);
    snprintf(name, sizeof name, "%s.types", stack_name(s));
    if (c->types && !s->decoder)
        s->types = add_two(m, name, c->types, dim, PH_START_NORMAL, 0.02);
    snprintf(name, sizeof name, "%s.embed_norm", stack_name(s));
    if (c->embed_norm) add_norm(m, name, dim, &s->gain, &s->shift);
    if (c->embed_dim) s->projection = add_linear(m, "encoder.project", dim, c->model_dim);
    snprintf(name, sizeof name, "%s.buckets", stack_name(s));
    if (ph_config_bucketed(c))
        s->buckets = add_two(m, name, c->buckets, c->heads, PH_START_NORMAL, 0.1);
    for (int l = 0; l < layers; l++) {
        int number = 1;
        if (l && c->layer_groups && ph_config_group(c, l) == ph_config_group(c, l - 1)) {
            ph_model_share(m, s, l);
            continue;
        }
        if (!s->decoder || !is_merged(c, l))
            PH_TRY(add_sublayer(m, s, PH_SUBLAYER_SELF, l, number++));
        if (s->decoder) PH_TRY(add_sublayer(m, s, PH_SUBLAYER_CROSS, l, number++));
        PH_TRY(add_sublayer(m, s, PH_SUBLAYER_FEED, l, number));
    }
    ph_sublayer *last = &s->sublayers[s->count - 1];
    snprintf(name, sizeof name, "%s.norm", stack_name(s));
    if (c->norm_place != PH_POST_NORM)
        add_norm(m, name, c->model_dim, &last->gain, &last->shift);
    return PH_OK;
}

static int add_links(ph_model *m)
{
    int dim = m->config.model_dim;
    add_matrix(m, "links", "wq", 0, dim, dim);
    add_matrix(m, "links", "wk", 0, dim, dim);
    return m->param_count - 2;
}

static void add_masked(ph_model *m)
{
    const ph_config *c = &m->config;
    int dim = ph_config_embed_dim(c);
    m->masked = add_layer(m, "masked", c->model_dim, dim, c->no_dense_bias);
    add_norm(m, "masked.norm", dim, &m->masked_gain, &m->masked_shift);
    if (!c->no_head_bias)
        m->output_bias = add_one(m, "masked.bias", c->vocab, PH_START_ZERO);
}

static void add_classifier(ph_model *m)
{
    const ph_config *c = &m->config;
    int vector = ph_config_vector_dim(c), bare = c->no_head_bias;
    if (c->pooler)
        m->pooler =
            add_layer(m, "pooler", ph_config_pooled_dim(c), vector, c->no_dense_bias);
    if (c->pooler_norm)
        add_norm(m, "pooler.norm", vector, &m->pooler_gain, &m->pooler_shift);
    if (c->classes)
        m->classifier =
            add_layer(m, "classifier", ph_config_classified_dim(c), c->classes, bare);
    if (c->distilled)
        m->distilled = add_layer(m, "distilled", c->model_dim, c->classes, bare);
}

static void add_output(ph_model *m)
{
    const ph_config *c = &m->config;
    int dim = c->model_dim, encoder = c->arch == PH_ARCH_ENCODER;
    m->output = m->links = m->masked = m->masked_gain = m->masked_shift = -1;
    m->output_bias = m->pooler = m->classifier = m->distilled = -1;
    m->pooler_gain = m->pooler_shift = -1;
    if (encoder && !c->masked && !c->pooling && !c->classes) m->links = add_links(m);
    if (c->masked) add_masked(m);
    if (c->masked || (!encoder && !c->no_output)) m->output = m->embed;
    if (c->untied && m->output >= 0)
        m->output = add_two(m, "output", c->vocab, ph_config_embed_dim(c),
                            PH_START_NORMAL, 1 / sqrt((double)dim));
    if (c->output_bias)
        m->output_bias = add_one(m, "output_bias", c->vocab, PH_START_ZERO);
    add_classifier(m);
}

static void add_patches(ph_model *m)
{
    const ph_config *c = &m->config;
    m->patches = add_linear(m, "patches", c->channels * c->patch_size * c->patch_size,
                            c->model_dim);
    for (int i = 0; i < c->class_tokens; i++) {
        char name[48];
        snprintf(name, sizeof name, "class_tokens.%d", i);
        int index = add_two(m, name, 1, c->model_dim, PH_START_NORMAL, 0.02);
        if (i == 0) m->class_tokens = index;
    }
}

ph_status ph_model_list(ph_model *m)
{
    const ph_config *c = &m->config;
    m->embed = m->patches = m->class_tokens = m->convolutions = -1;
    if (c->image_size)
        add_patches(m);
    else
        m->embed = add_two(m, "embed", c->vocab, ph_config_embed_dim(c), PH_START_NORMAL,
                           1 / sqrt((double)c->model_dim));
    if (c->mels) {
        m->convolutions = add_linear(m, "conv1", 3 * c->mels, c->model_dim);
        add_linear(m, "conv2", 3 * c->model_dim, c->model_dim);
    }
    PH_TRY(add_stack(m, &m->stacks[0], c->layers));
    if (m->stack_count > 1) PH_TRY(add_stack(m, &m->stacks[1], c->decoder_layers));
    add_output(m);
    return PH_OK;
}
