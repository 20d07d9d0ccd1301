/*
 * modernbert.c - ModernBERT: an encoder with norms before its sublayers, of which the
 * first reads the norm of the embeddings, rotary positions, a gated activation, and in
 * most layers a window on both sides with a rotary base of its own. Tokens that are
 * masked, texts and tokens that are classified have the same head: a layer and a norm.
 */
#include <string.h>

#include "architectures/architecture.h"

static const char *const types[] = {"modernbert", NULL};
static const char *const no_gguf[] = {NULL};

#define BOTH(ours_w, ours_b, theirs)                                                     \
    PH_TENSOR(ours_w, theirs ".weight", NULL), PH_TENSOR(ours_b, theirs ".bias", NULL)
#define NORM(ours, theirs)  BOTH(ours ".gain", ours ".bias", theirs)
#define LAYER(ours, theirs) BOTH(ours ".w", ours ".b", theirs)

/* One of several that share a matrix and a bias. */
#define SHARED(place, last, theirs, part, parts)                                         \
    PH_PART("encoder.#." place ".w" last, theirs ".weight", NULL, part, parts),          \
        PH_PART("encoder.#." place ".b" last, theirs ".bias", NULL, part, parts)
#define QKV(last, part)   SHARED("self", last, "layers.#.attn.Wqkv", part, 3)
#define GATED(last, part) SHARED("ff", last, "layers.#.mlp.Wi", part, 2)

/* Of a Dense module behind the pooling of a sentence encoder. */
#define DENSE(ours, theirs)                                                              \
    {                                                                                    \
        ours, theirs, NULL, 0, 0, 0, 0, 1, 0, 0                                          \
    }

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "embeddings.tok_embeddings.weight", NULL),
    NORM("encoder.embed_norm", "embeddings.norm"),
    NORM("encoder.#.norm1", "layers.#.attn_norm"),
    QKV("q", 0),
    QKV("k", 1),
    QKV("v", 2),
    BOTH("encoder.#.self.wo", "encoder.#.self.bo", "layers.#.attn.Wo"),
    NORM("encoder.#.norm2", "layers.#.mlp_norm"),
    GATED("1", 0),
    GATED("3", 1),
    BOTH("encoder.#.ff.w2", "encoder.#.ff.b2", "layers.#.mlp.Wo"),
    NORM("encoder.norm", "final_norm"),
    LAYER("masked", "/head.dense"),
    NORM("masked.norm", "/head.norm"),
    PH_TENSOR("masked.bias", "/decoder.bias", NULL),
    PH_TABLE("output", "/decoder.weight", NULL),
    LAYER("pooler", "/head.dense"),
    NORM("pooler.norm", "/head.norm"),
    DENSE("pooler.w", "/dense.linear.weight"),
    DENSE("pooler.b", "/dense.linear.bias"),
    LAYER("classifier", "/classifier"),
    PH_TENSOR(NULL, NULL, NULL)};

/* ---- layers with and without a window ---------------------------------------------- */

/* Older files say that every so many-th layer sees all, from the first on. */
static void set_window(ph_import *in, ph_config *c)
{
    int every = ph_import_size(in, "global_attn_every_n_layers", NULL, 3);
    c->window = ph_import_size(in, "local_attention", NULL, 128);
    if (ph_import_list(in, "layer_types")) {
        ph_import_layer_types(in, c);
        return;
    }
    if (every > c->layers) every = c->layers;
    if (every >= PH_WINDOW_TEXT) {
        ph_import_fail(in, PH_UNSUPPORTED,
                       "global_attn_every_n_layers is %d, expected at most %d", every,
                       PH_WINDOW_TEXT - 1);
        return;
    }
    c->window_layers[0] = 'f';
    for (int l = 1; l < every; l++) c->window_layers[l] = 's';
}

/* rope_scaling of older files holds for all layers, here for those that see all. */
static void set_rope(ph_import *in, ph_config *c)
{
    const char *scaled = ph_import_text(in, "rope_scaling.type", NULL, "default");
    scaled = ph_import_text(in, "rope_scaling.rope_type", NULL, scaled);
    if (strcmp(scaled, "default"))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "rope_scaling.rope_type is %s, expected default",
                       ph_io_quote(scaled, strlen(scaled)).text);
    ph_import_rope(in, c, ph_import_positive(in, "global_rope_theta", NULL, 160000));
    const ph_value *local = ph_import_value(in, "local_rope_theta", NULL);
    int same = local && local->kind == PH_VALUE_NULL;
    double base = same ? (double)c->rope_base : 10000;
    ph_import_rope_local(in, c, ph_import_positive(in, "local_rope_theta", NULL, base));
    if (!c->rope_scaling && c->rope_local_base == c->rope_base) c->rope_local_base = 0;
}

/* ---- what the encoder ends in ------------------------------------------------------ */

static const struct {
    const char *name;
    ph_pooler pooler;
} poolers[] = {{"gelu", PH_POOLER_GELU},
               {"relu", PH_POOLER_RELU},
               {"tanh", PH_POOLER_TANH},
               {"linear", PH_POOLER_IDENTITY}};

static void set_classifier(ph_import *in, ph_config *c)
{
    const char *name = ph_import_text(in, "classifier_activation", NULL, "gelu");
    const char *pooling = ph_import_text(in, "classifier_pooling", NULL, "cls");
    int mean = !strcmp(pooling, "mean");
    for (int i = 0; i < 4; i++)
        if (!strcmp(name, poolers[i].name)) c->pooler = poolers[i].pooler;
    if (!c->pooler)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "classifier_activation is %s, expected gelu, relu, tanh or linear",
                       ph_io_quote(name, strlen(name)).text);
    if (!mean && strcmp(pooling, "cls"))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "classifier_pooling is %s, expected cls or mean",
                       ph_io_quote(pooling, strlen(pooling)).text);
    c->pooler_norm = 1;
    c->no_dense_bias = !ph_import_find(in, "pooler.b");
    if (!ph_import_by_token(in)) c->pooling = mean ? PH_POOL_MEAN : PH_POOL_FIRST;
}

/* The layer of masked tokens has the activation of the others, without a gate. */
static void set_masked(ph_import *in, ph_config *c, const char *activation)
{
    const char *name = ph_import_text(in, "classifier_activation", NULL, "gelu");
    ph_config own = {0}, others = {0};
    c->masked = 1;
    c->no_dense_bias = !ph_import_find(in, "masked.b");
    c->no_head_bias = !ph_import_find(in, "masked.bias");
    ph_import_activation(in, "classifier_activation", name, 0, &own);
    ph_import_activation(in, "hidden_activation", activation, 0, &others);
    if (own.activation != others.activation)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "classifier_activation is %s, expected that of hidden_activation",
                       ph_io_quote(name, strlen(name)).text);
}

static void configure(ph_import *in, ph_config *c)
{
    const char *activation = ph_import_text(in, "hidden_activation", NULL, "gelu");
    c->arch = PH_ARCH_ENCODER;
    c->norm_place = PH_PRE_NORM;
    c->embed_norm = 1, c->embed_scale = 1;
    c->layers = ph_import_size(in, "num_hidden_layers", NULL, 22);
    c->model_dim = ph_import_size(in, "hidden_size", NULL, 768);
    c->heads = ph_import_size(in, "num_attention_heads", NULL, 12);
    c->ff_dim = ph_import_size(in, "intermediate_size", NULL, 1152);
    c->max_len = ph_import_size(in, "max_position_embeddings", NULL, 8192);
    c->norm_eps = (float)ph_import_positive(in, "norm_eps", NULL, 1e-5);
    ph_import_activation(in, "hidden_activation", activation, 1, c);
    set_window(in, c);
    set_rope(in, c);
    if (ph_import_classes(in, c)) {
        set_classifier(in, c);
        return;
    }
    if (ph_import_find(in, "masked.w")) set_masked(in, c, activation);
    ph_import_pooling(in, c);
}

/* ---- writing ----------------------------------------------------------------------- */

/* Older readers know no layer_types. What a model without a window lacks gets a value
   that shows in the comparison. */
static void publish_window(const ph_config *c, ph_json_writer *json)
{
    size_t period = strlen(c->window_layers);
    double base = c->rope_base != 0 ? (double)c->rope_base : 10000;
    double local = c->rope_local_base != 0 ? (double)c->rope_local_base : base;
    ph_json_integer(json, "local_attention", c->window > 0 ? c->window : 1);
    if (c->window_layers[0] == 'f' && strspn(c->window_layers + 1, "s") == period - 1)
        ph_json_integer(json, "global_attn_every_n_layers", (int)period);
    ph_publish_layer_types(c, json);
    ph_json_float(json, "global_rope_theta", (float)base);
    ph_json_float(json, "local_rope_theta", (float)local);
}

/* Of an activation without a gate, which this type has not, the comparison shows it. */
static const char *activation_of(const ph_config *c)
{
    return c->activation == PH_RELU ? "gelu" : ph_publish_activation(c);
}

static void publish_head(const ph_config *c, ph_json_writer *json)
{
    const char *activation = c->classes ? "gelu" : activation_of(c);
    for (int i = 0; i < 4 && c->classes; i++)
        if (c->pooler == poolers[i].pooler) activation = poolers[i].name;
    ph_json_string(json, "classifier_activation", activation);
    ph_json_string(json, "classifier_pooling",
                   c->pooling == PH_POOL_MEAN ? "mean" : "cls");
    ph_json_bool(json, "classifier_bias", !c->no_dense_bias);
    ph_json_bool(json, "decoder_bias", !(c->masked && c->no_head_bias));
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    const int attention = PH_NO_BIAS_Q | PH_NO_BIAS_K | PH_NO_BIAS_V | PH_NO_BIAS_O;
    int none = c->no_bias & (PH_NO_BIAS_FF | PH_NO_BIAS_NORM);
    if (c->no_bias & attention) none |= attention;
    ph_publish_encoder_class(c, "ModernBert", json);
    ph_json_string(json, "model_type", "modernbert");
    ph_json_integer(json, "num_hidden_layers", c->layers);
    ph_json_integer(json, "hidden_size", c->model_dim);
    ph_json_integer(json, "num_attention_heads", c->heads);
    ph_json_integer(json, "intermediate_size", c->ff_dim);
    ph_json_integer(json, "max_position_embeddings", c->max_len);
    ph_json_float(json, "norm_eps", c->norm_eps);
    ph_json_string(json, "hidden_activation", activation_of(c));
    ph_json_bool(json, "attention_bias", !(none & attention));
    ph_json_bool(json, "mlp_bias", !(none & PH_NO_BIAS_FF));
    ph_json_bool(json, "norm_bias", !(none & PH_NO_BIAS_NORM));
    publish_head(c, json);
    publish_window(c, json);
    return none;
}

const ph_architecture ph_modernbert = {.types = types,
                                       .gguf = no_gguf,
                                       .anchor = "embeddings.tok_embeddings.weight",
                                       .configure = configure,
                                       .publish = publish,
                                       .prefix = "model.",
                                       .names = names};
