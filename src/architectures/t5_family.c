/*
 * t5_family.c - T5: encoder-decoder, or its encoder alone, RMS norm before, no biases,
 * positions as a learned bias per bucket of distances; the first version (ReLU, tied
 * embeddings, scaled output) and 1.1 (gated GELU, an output matrix of its own), which
 * FLAN-T5 and mT5 have too.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"

static const char *const types[] = {"t5", "mt5", NULL};
static const char *const gguf[] = {NULL};

#define ATTENTION(ours, theirs)                                                          \
    PH_TENSOR(ours ".wq", theirs ".q.weight", NULL),                                     \
        PH_TENSOR(ours ".wk", theirs ".k.weight", NULL),                                 \
        PH_TENSOR(ours ".wv", theirs ".v.weight", NULL),                                 \
        PH_TENSOR(ours ".wo", theirs ".o.weight", NULL)

/* w1 is wi, or wi_0 where wi_1 is its gate's other factor. */
#define FEED(ours, theirs)                                                               \
    PH_TENSOR(ours ".w1", theirs ".wi.weight", NULL),                                    \
        {ours ".w1", theirs ".wi_0.weight", NULL, 0, 0, 0, 0, 1, 0, 0},                  \
        PH_TENSOR(ours ".w3", theirs ".wi_1.weight", NULL),                              \
        PH_TENSOR(ours ".w2", theirs ".wo.weight", NULL)

#define GAIN(ours, theirs) PH_TENSOR(ours ".gain", theirs ".weight", NULL)
#define BUCKETS(stack)                                                                   \
    PH_TABLE(stack ".buckets",                                                           \
             stack ".block.0.layer.0.SelfAttention.relative_attention_bias.weight",      \
             NULL)

/* Files without `shared` hold the same table under another name. */
static const ph_tensor_name names[] = {
    PH_TABLE("embed", "shared.weight", NULL),
    PH_TABLE("embed", "decoder.embed_tokens.weight", NULL),
    PH_TABLE("embed", "encoder.embed_tokens.weight", NULL),
    BUCKETS("encoder"),
    GAIN("encoder.#.norm1", "encoder.block.#.layer.0.layer_norm"),
    ATTENTION("encoder.#.self", "encoder.block.#.layer.0.SelfAttention"),
    GAIN("encoder.#.norm2", "encoder.block.#.layer.1.layer_norm"),
    FEED("encoder.#.ff", "encoder.block.#.layer.1.DenseReluDense"),
    GAIN("encoder.norm", "encoder.final_layer_norm"),
    BUCKETS("decoder"),
    GAIN("decoder.#.norm1", "decoder.block.#.layer.0.layer_norm"),
    ATTENTION("decoder.#.self", "decoder.block.#.layer.0.SelfAttention"),
    GAIN("decoder.#.norm2", "decoder.block.#.layer.1.layer_norm"),
    ATTENTION("decoder.#.cross", "decoder.block.#.layer.1.EncDecAttention"),
    GAIN("decoder.#.norm3", "decoder.block.#.layer.2.layer_norm"),
    FEED("decoder.#.ff", "decoder.block.#.layer.2.DenseReluDense"),
    GAIN("decoder.norm", "decoder.final_layer_norm"),
    PH_TABLE("output", "/lm_head.weight", NULL),
    PH_LINEAR("pooler", "/dense.linear"),
    PH_TENSOR(NULL, NULL, NULL)};

/* The embeddings again, and a bias of cross-attention that older files hold unused. */
static const char *const ignored[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", NULL};

/* "relu", "gated-gelu" (the tanh form), "gated-silu". What is derived of it may stand in
   fields of its own, which win. */
static void set_activation(ph_import *in, ph_config *c)
{
    const char *name = ph_import_text(in, "feed_forward_proj", NULL,
                                      ph_import_is(in, "mt5") ? "gated-gelu" : "relu");
    int gated = !strncmp(name, "gated-", 6);
    const char *usual = gated ? name + 6 : name;
    if (strchr(usual, '-'))
        ph_import_fail(in, PH_BAD_FILE,
                       "feed_forward_proj is %s, expected an activation, or gated- and "
                       "one",
                       ph_io_quote(name, strlen(name)).text);
    const char *act = ph_import_text(
        in, "dense_act_fn", NULL, strcmp(name, "gated-gelu") ? usual : "gelu_new");
    int said = ph_import_flag(in, "is_gated_act", NULL, gated);
    const char *key = said != gated    ? "is_gated_act"
                      : act == usual ? "feed_forward_proj"
                                       : "dense_act_fn";
    ph_import_activation(in, key, act, said, c);
}

/* Whether the name of the class that wrote the checkpoint ends so. */
static int is_class(ph_import *in, const char *end)
{
    const char *class = ph_import_text(in, "architectures.0", NULL, "");
    size_t length = strlen(class), rest = strlen(end);
    return length >= rest && !strcmp(class + length - rest, end);
}

/* T5EncoderModel (sentence-t5, gtr-t5) writes no decoder. */
static int is_encoder(ph_import *in)
{
    return !ph_import_find(in, "decoder.norm.gain") &&
           !ph_import_find(in, "decoder.0.norm1.gain");
}

/* T5Model, MT5Model: both stacks, without the matrix that scores tokens. */
static int is_headless(ph_import *in)
{
    return is_class(in, "T5Model") && !ph_import_find(in, "output");
}

static void configure_decoder(ph_import *in, ph_config *c)
{
    c->decoder_layers = ph_import_size(in, "num_decoder_layers", NULL, c->layers);
    c->no_output = is_headless(in);
    int tied = ph_import_flag(in, "tie_word_embeddings", NULL, 1);
    if (ph_import_is(in, "mt5")) return; /* never scaled, tied or not */
    if (ph_import_flag(in, "scale_decoder_outputs", NULL, tied) && c->model_dim > 0)
        c->output_scale = (float)(1 / sqrt((double)c->model_dim));
}

/* Distances have no end: n_positions tells how long texts were in training. The reference
   reads longer ones; a text that is written ends there, if nothing ends it before. */
enum { LONGEST = 1 << 15 };

static void configure(ph_import *in, ph_config *c)
{
    c->arch = is_encoder(in) ? PH_ARCH_ENCODER : PH_ARCH_ENCODER_DECODER;
    c->norm = PH_NORM_RMS;
    c->positions = PH_POS_T5;
    c->embed_scale = c->attn_scale = 1;
    c->layers = ph_import_size(in, "num_layers", NULL, 6);
    c->model_dim = ph_import_size(in, "d_model", NULL, 512);
    c->heads = ph_import_size(in, "num_heads", NULL, 8);
    c->head_dim = ph_import_size(in, "d_kv", NULL, 64);
    c->ff_dim = ph_import_size(in, "d_ff", NULL, 2048);
    c->max_len = ph_import_size(in, "n_positions", NULL, 512);
    c->norm_eps = (float)ph_import_positive(in, "layer_norm_epsilon", NULL, 1e-6);
    c->buckets = ph_import_size(in, "relative_attention_num_buckets", NULL, 32);
    c->bucket_distance = ph_import_size(in, "relative_attention_max_distance", NULL, 128);
    set_activation(in, c);
    int *read = c->arch == PH_ARCH_ENCODER ? &c->max_len : &c->encoder_len;
    *read = ph_max(c->max_len, LONGEST);
    if (c->arch == PH_ARCH_ENCODER)
        ph_import_pooling(in, c);
    else
        configure_decoder(in, c);
}

/* ---- writing ----------------------------------------------------------------------- */

/* Of gated-gelu older readers take the tanh form; which it is says dense_act_fn. */
static void publish_activation(const ph_config *c, ph_json_writer *json)
{
    const char *name = ph_publish_activation(c);
    int gelu = c->activation == PH_GEGLU || c->activation == PH_GEGLU_ERF;
    int gated = gelu || c->activation == PH_SWIGLU;
    char both[32];
    snprintf(both, sizeof both, "%s%s", gated ? "gated-" : "",
             gelu ? "gelu" : name);
    ph_json_string(json, "feed_forward_proj", both);
    ph_json_string(json, "dense_act_fn", name);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    int encoder = c->arch == PH_ARCH_ENCODER;
    ph_json_begin_array(json, "architectures");
    ph_json_string(json, NULL,
                   encoder        ? "T5EncoderModel"
                   : c->no_output ? "T5Model"
                                  : "T5ForConditionalGeneration");
    ph_json_end(json);
    ph_json_string(json, "model_type", "t5");
    ph_json_bool(json, "is_encoder_decoder", !encoder);
    ph_json_integer(json, "num_layers", c->layers);
    ph_json_integer(json, "num_decoder_layers",
                    c->decoder_layers > 0 ? c->decoder_layers : c->layers);
    ph_json_integer(json, "d_model", c->model_dim);
    ph_json_integer(json, "num_heads", c->heads);
    ph_json_integer(json, "d_kv", c->head_dim);
    ph_json_integer(json, "d_ff", c->ff_dim);
    ph_json_integer(json, "n_positions", c->max_len);
    ph_json_float(json, "layer_norm_epsilon", c->norm_eps);
    ph_json_integer(json, "relative_attention_num_buckets", c->buckets ? c->buckets : 32);
    ph_json_integer(json, "relative_attention_max_distance",
                    c->bucket_distance ? c->bucket_distance : 128);
    publish_activation(c, json);
    ph_json_bool(json, "scale_decoder_outputs", c->output_scale != 1);
    return PH_NO_BIAS;
}

const ph_architecture ph_t5_family = {.types = types,
                                      .gguf = gguf,
                                      .anchor = "encoder.final_layer_norm.weight",
                                      .configure = configure,
                                      .publish = publish,
                                      .prefix = "",
                                      .names = names,
                                      .ignored = ignored};
