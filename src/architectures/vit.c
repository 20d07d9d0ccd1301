/*
 * vit.c - encoders of pictures: ViT, and DeiT, which has a second class token; norm
 * before, learned positions, a classifier of the first row, with a teacher of the second
 * too.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"

static const char *const vit_types[] = {"vit", NULL};
static const char *const deit_types[] = {"deit", NULL};
static const char *const gguf[] = {NULL};

/* Weight and bias. */
#define BOTH(ours_w, ours_b, theirs)                                                     \
    PH_TENSOR(ours_w, theirs ".weight", NULL), PH_TENSOR(ours_b, theirs ".bias", NULL)

static const ph_tensor_name names[] = {
    BOTH("patches.w", "patches.b", "embeddings.patch_embeddings.projection"),
    PH_TABLE("class_tokens.0", "embeddings.cls_token", NULL),
    PH_TABLE("class_tokens.1", "embeddings.distillation_token", NULL),
    PH_TABLE("encoder.positions", "embeddings.position_embeddings", NULL),
    BOTH("encoder.#.norm1.gain", "encoder.#.norm1.bias",
         "encoder.layer.#.layernorm_before"),
    BOTH("encoder.#.self.wq", "encoder.#.self.bq",
         "encoder.layer.#.attention.attention.query"),
    BOTH("encoder.#.self.wk", "encoder.#.self.bk",
         "encoder.layer.#.attention.attention.key"),
    BOTH("encoder.#.self.wv", "encoder.#.self.bv",
         "encoder.layer.#.attention.attention.value"),
    BOTH("encoder.#.self.wo", "encoder.#.self.bo",
         "encoder.layer.#.attention.output.dense"),
    BOTH("encoder.#.norm2.gain", "encoder.#.norm2.bias",
         "encoder.layer.#.layernorm_after"),
    BOTH("encoder.#.ff.w1", "encoder.#.ff.b1", "encoder.layer.#.intermediate.dense"),
    BOTH("encoder.#.ff.w2", "encoder.#.ff.b2", "encoder.layer.#.output.dense"),
    BOTH("encoder.norm.gain", "encoder.norm.bias", "layernorm"),
    BOTH("pooler.w", "pooler.b", "pooler.dense"),
    BOTH("classifier.w", "classifier.b", "/classifier"),
    {"classifier.w", "/cls_classifier.weight", NULL, 0, 0, 0, 0, 1, 0, 0},
    {"classifier.b", "/cls_classifier.bias", NULL, 0, 0, 0, 0, 1, 0, 0},
    BOTH("distilled.w", "distilled.b", "/distillation_classifier"),
    PH_TENSOR(NULL, NULL, NULL)};

static const char *const ignored[] = {"embeddings.mask_token", "pooler.dense.weight",
                                      "pooler.dense.bias", NULL};

/* The side of a square, which may be said of both sides. */
static int side_of(ph_import *in, const char *field, int fallback)
{
    const ph_value *v = ph_import_value(in, field, NULL);
    char first[32], second[32];
    if (!v || v->kind != PH_VALUE_LIST) return ph_import_size(in, field, NULL, fallback);
    snprintf(first, sizeof first, "%s.0", field);
    snprintf(second, sizeof second, "%s.1", field);
    int height = ph_import_size(in, first, NULL, PH_IMPORT_REQUIRED);
    int width = ph_import_size(in, second, NULL, PH_IMPORT_REQUIRED);
    if (height != width || v->count != 2)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "%s is no square, expected one number, or two that are the same",
                       field);
    return height;
}

static void configure(ph_import *in, ph_config *c)
{
    const ph_stored *classifier = ph_import_find(in, "classifier.w");
    const char *class = ph_import_text(in, "architectures.0", NULL, "");
    c->arch = PH_ARCH_ENCODER;
    c->positions = PH_POS_LEARNED;
    c->embed_scale = 1;
    c->layers = ph_import_size(in, "num_hidden_layers", NULL, 12);
    c->model_dim = ph_import_size(in, "hidden_size", NULL, 768);
    c->heads = ph_import_size(in, "num_attention_heads", NULL, 12);
    c->ff_dim = ph_import_size(in, "intermediate_size", NULL, 3072);
    c->norm_eps = (float)ph_import_positive(in, "layer_norm_eps", NULL, 1e-12);
    c->image_size = side_of(in, "image_size", 224);
    c->patch_size = side_of(in, "patch_size", 16);
    c->channels = ph_import_size(in, "num_channels", NULL, 3);
    c->class_tokens = ph_import_is(in, "deit") ? 2 : 1;
    const char *name = ph_import_text(in, "hidden_act", NULL, "gelu");
    ph_import_activation(in, "hidden_act", name, 0, c);
    c->pooling = PH_POOL_FIRST;
    if (classifier && classifier->tensor.rank == 2 &&
        classifier->tensor.shape[0] <= 1 << 24)
        c->classes = (int)classifier->tensor.shape[0];
    else if (ph_import_find(in, "pooler.w"))
        c->pooler = PH_POOLER_TANH;
    int teacher = c->class_tokens == 2 && ph_import_find(in, "distilled.w") != NULL;
    c->distilled = c->classes && (strstr(class, "WithTeacher") != NULL || teacher);
}

static int publish(const ph_config *c, const char *type, const char *class,
                   ph_json_writer *json)
{
    const int qkv = PH_NO_BIAS_Q | PH_NO_BIAS_K | PH_NO_BIAS_V;
    int no_bias = (c->no_bias & qkv) == qkv ? qkv : 0;
    ph_json_begin_array(json, "architectures");
    ph_json_string(json, NULL, class);
    ph_json_end(json);
    ph_json_string(json, "model_type", type);
    ph_json_integer(json, "num_hidden_layers", c->layers);
    ph_json_integer(json, "hidden_size", c->model_dim);
    ph_json_integer(json, "num_attention_heads", c->heads);
    ph_json_integer(json, "intermediate_size", c->ff_dim);
    ph_json_float(json, "layer_norm_eps", c->norm_eps);
    ph_json_integer(json, "image_size", c->image_size);
    ph_json_integer(json, "patch_size", c->patch_size);
    ph_json_integer(json, "num_channels", c->channels);
    ph_json_string(json, "hidden_act", ph_publish_activation(c));
    ph_json_bool(json, "qkv_bias", !no_bias);
    return no_bias;
}

static int publish_vit(const ph_config *c, ph_json_writer *json)
{
    return publish(c, "vit", c->classes ? "ViTForImageClassification" : "ViTModel", json);
}

static int publish_deit(const ph_config *c, ph_json_writer *json)
{
    const char *class = c->distilled ? "DeiTForImageClassificationWithTeacher"
                        : c->classes ? "DeiTForImageClassification"
                                     : "DeiTModel";
    return publish(c, "deit", class, json);
}

#define ENCODER                                                                          \
    .gguf = gguf, .anchor = "embeddings.patch_embeddings.projection.weight",             \
    .configure = configure, .pictures = 1, .names = names, .ignored = ignored

const ph_architecture ph_vit = {
    .types = vit_types, .publish = publish_vit, .prefix = "vit.", ENCODER};

const ph_architecture ph_deit = {
    .types = deit_types, .publish = publish_deit, .prefix = "deit.", ENCODER};
