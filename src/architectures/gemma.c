/*
 * gemma.c - Gemma: RMS norms, rotary positions, gated GELU, embeddings scaled by
 * sqrt(model_dim). Gemma 1 has norms before its sublayers; Gemma 2 and 3 around them, and
 * windows in some layers; Gemma 2 soft-caps of scores and logits; Gemma 3 a norm of q and
 * k, and in layers with a window a rotary base of their own. A folder holds gains minus
 * 1; a checkpoint of Gemma 3 that sees pictures too has the same text model.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"
#include "base/half.h"

static const char *const types[] = {"gemma3_text", "gemma3", "gemma2", NULL};
static const char *const gguf[] = {"gemma3", "gemma2", NULL};
static const char *const types_1[] = {"gemma", NULL};

#define GAIN(ours, folder, gguf)                                                         \
    {                                                                                    \
        ours, folder ".weight", gguf ".weight", 0, 0, 0, 1, 0, 0, 0                      \
    }
#define MATRIX(ours, folder, gguf) PH_TENSOR(ours, folder ".weight", gguf ".weight")

/* What all of them have. */
#define COMMON                                                                           \
    PH_TABLE("embed", "embed_tokens.weight", "token_embd.weight"),                       \
        GAIN("decoder.#.norm1.gain", "layers.#.input_layernorm", "blk.#.attn_norm"),     \
        MATRIX("decoder.#.self.wq", "layers.#.self_attn.q_proj", "blk.#.attn_q"),        \
        MATRIX("decoder.#.self.wk", "layers.#.self_attn.k_proj", "blk.#.attn_k"),        \
        MATRIX("decoder.#.self.wv", "layers.#.self_attn.v_proj", "blk.#.attn_v"),        \
        MATRIX("decoder.#.self.wo", "layers.#.self_attn.o_proj", "blk.#.attn_output"),   \
        MATRIX("decoder.#.ff.w1", "layers.#.mlp.gate_proj", "blk.#.ffn_gate"),           \
        MATRIX("decoder.#.ff.w3", "layers.#.mlp.up_proj", "blk.#.ffn_up"),               \
        MATRIX("decoder.#.ff.w2", "layers.#.mlp.down_proj", "blk.#.ffn_down"),           \
        GAIN("decoder.norm.gain", "norm", "output_norm"),                                \
        PH_TABLE("output", "/lm_head.weight", "output.weight"),                          \
        PH_LINEAR("classifier", "/score"), PH_LINEAR("pooler", "/dense.linear")

static const ph_tensor_name names_1[] = {
    COMMON,
    GAIN("decoder.#.norm2.gain", "layers.#.post_attention_layernorm", "blk.#.ffn_norm"),
    PH_TENSOR(NULL, NULL, NULL)};

static const ph_tensor_name names[] = {
    COMMON,
    GAIN("decoder.#.self.q_norm", "layers.#.self_attn.q_norm", "blk.#.attn_q_norm"),
    GAIN("decoder.#.self.k_norm", "layers.#.self_attn.k_norm", "blk.#.attn_k_norm"),
    GAIN("decoder.#.post_norm1.gain", "layers.#.post_attention_layernorm",
         "blk.#.post_attention_norm"),
    GAIN("decoder.#.norm2.gain", "layers.#.pre_feedforward_layernorm", "blk.#.ffn_norm"),
    GAIN("decoder.#.post_norm2.gain", "layers.#.post_feedforward_layernorm",
         "blk.#.post_ffw_norm"),
    PH_TABLE("output", "/language_model.lm_head.weight", NULL),
    PH_TENSOR(NULL, NULL, NULL)};

/* What sees pictures: the text model reads no token of theirs; and an output head beside
   what makes classes or a vector. */
static const char *const ignored[] = {
    "/vision_tower.*",       "/multi_modal_projector.*",
    "/model.vision_tower.*", "/model.multi_modal_projector.*",
    "/lm_head.weight",       NULL};

/* ---- layers with and without a window ---------------------------------------------- */

static void set_window(ph_import *in, ph_config *c, int version)
{
    c->window = ph_import_size(in, "sliding_window", "attention.sliding_window", 4096);
    c->window_period =
        version == 2 ? 2 : ph_import_size(in, "sliding_window_pattern", NULL, 6);
    ph_import_layer_types(in, c);
    double base =
        ph_import_positive(in, "rope_local_base_freq", "rope.freq_base_swa", 1e4);
    if (version == 3) ph_import_rope_local(in, c, base);
    const ph_value *window = ph_import_value(in, "sliding_window", NULL);
    if (!c->window || (window && window->kind == PH_VALUE_NULL))
        ph_import_fail(in, PH_UNSUPPORTED, "sliding_window is 0 or null, expected one");
}

/* ---- scales ------------------------------------------------------------------------ */

/* A folder is run in its own type, which the scale of the embeddings is rounded to. */
static float embed_scale(ph_import *in, int dim)
{
    const ph_stored *embed = ph_import_find(in, "embed");
    float scale = sqrtf((float)dim);
    if (!embed || ph_import_is_gguf(in)) return scale;
    if (embed->tensor.type == PH_BF16) return ph_from_bf16(ph_to_bf16(scale));
    if (embed->tensor.type == PH_F16) return ph_from_f16(ph_to_f16(scale));
    return scale;
}

/* GGUF does not say it: that of 27B, with 46 or 62 layers, is the share of a head. */
static double query_scalar(ph_import *in, const ph_config *c, int version)
{
    int largest = c->layers == (version == 2 ? 46 : 62);
    int shared = ph_import_is_gguf(in) && largest && c->heads > 0;
    double known = shared ? (double)c->model_dim / c->heads : c->head_dim;
    return ph_import_is_gguf(in)
               ? known
               : ph_import_positive(in, "query_pre_attn_scalar", NULL, 256);
}

/* Absent takes the default of the type, null switches off. */
static float softcap(ph_import *in, const char *key, double usual)
{
    const ph_value *v = ph_import_value(in, key, key);
    if (v && v->kind == PH_VALUE_NULL) return 0;
    return (float)ph_import_positive(in, key, key, usual);
}

/* ---- all fields -------------------------------------------------------------------- */

typedef struct defaults {
    int layers, dim, heads, kv_heads, ff, length;
    double base, attn_softcap, output_softcap;
} defaults;

static const defaults of_version[] = {
    {28, 3072, 16, 16, 24576, 8192, 1e4, 0, 0},
    {26, 2304, 8, 4, 9216, 8192, 1e4, 50, 30},
    {26, 2304, 8, 4, 9216, 131072, 1e6, 0, 0}};

static void set_sizes(ph_import *in, ph_config *c, const defaults *d)
{
    c->arch = PH_ARCH_DECODER;
    c->norm = PH_NORM_RMS;
    c->layers = ph_import_size(in, "num_hidden_layers", "block_count", d->layers);
    c->model_dim = ph_import_size(in, "hidden_size", "embedding_length", d->dim);
    c->heads =
        ph_import_size(in, "num_attention_heads", "attention.head_count", d->heads);
    c->kv_heads = ph_import_size(in, "num_key_value_heads", "attention.head_count_kv",
                                 d->kv_heads);
    c->head_dim = ph_import_size(in, "head_dim", "attention.key_length", 256);
    c->ff_dim = ph_import_size(in, "intermediate_size", "feed_forward_length", d->ff);
    c->max_len =
        ph_import_size(in, "max_position_embeddings", "context_length", d->length);
    c->norm_eps = (float)ph_import_positive(in, "rms_norm_eps",
                                            "attention.layer_norm_rms_epsilon", 1e-6);
    c->embed_scale = embed_scale(in, c->model_dim);
    ph_import_rope(in, c, d->base);
    if (ph_import_flag(in, "use_bidirectional_attention", NULL, 0))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "use_bidirectional_attention is true, expected none");
    ph_import_decoder_end(in, c);
}

static void configure(ph_import *in, ph_config *c)
{
    int version = ph_import_is(in, "gemma2") ? 2 : 3;
    const defaults *d = &of_version[version - 1];
    set_sizes(in, c, d);
    c->norm_place = PH_SANDWICH_NORM;
    c->qk_norm = version == 3;
    if (version == 2) /* the reference reads that of Gemma 3 and does not use it */
        c->attn_softcap = softcap(in, "attn_logit_softcapping", d->attn_softcap);
    c->output_softcap = softcap(in, "final_logit_softcapping", d->output_softcap);
    c->attn_scale = (float)(1 / sqrt(query_scalar(in, c, version)));
    const char *name = ph_import_text(in, "hidden_activation", NULL, "gelu_pytorch_tanh");
    ph_import_activation(in, "hidden_activation", name, 1, c);
    set_window(in, c, version);
}

/* Its first folders say gelu and mean the tanh form. */
static void configure_1(ph_import *in, ph_config *c)
{
    const char *name = ph_import_text(in, "hidden_act", NULL, "gelu");
    set_sizes(in, c, &of_version[0]);
    if (!strcmp(name, "gelu")) name = "gelu_pytorch_tanh";
    ph_import_activation(in, "hidden_act", name, 1, c);
}

/* ---- writing ----------------------------------------------------------------------- */

/* The number whose root divides scores: a whole one where it gives the same scale. */
static float scalar_of(const ph_config *c)
{
    double scale = c->attn_scale > 0 ? c->attn_scale : 1 / sqrt((double)c->head_dim);
    double whole = nearbyint(1 / (scale * scale));
    if ((float)(1 / sqrt(whole)) == (float)scale) return (float)whole;
    return (float)(1 / (scale * scale));
}

/* What a model without a window lacks gets a value that shows in the comparison. */
static void publish_window(const ph_config *c, ph_json_writer *json)
{
    int period = c->window_period > 0 ? c->window_period : 1;
    ph_json_integer(json, "sliding_window", c->window > 0 ? c->window : 1);
    if (c->qk_norm) {
        ph_json_integer(json, "sliding_window_pattern", period);
        ph_json_float(json, "rope_local_base_freq",
                      c->rope_local_base > 0 ? c->rope_local_base : 10000);
    }
    ph_publish_layer_types(c, json);
}

/* transformers takes no 30 for 30.0 here. */
static void publish_softcap(const char *key, float value, ph_json_writer *json)
{
    char text[16];
    int whole = value >= 1 && value < 1e6f && value == floorf(value);
    snprintf(text, sizeof text, "%d.0", whole ? (int)value : 0);
    if (whole)
        ph_json_raw(json, key, text);
    else if (value > 0)
        ph_json_float(json, key, value);
    else
        ph_json_string(json, key, NULL);
}

/* The sizes of any of them; the activation is gated, or the comparison shows it. */
static void publish_as(const ph_config *c, const char *type, const char *stem,
                       const char *activation, ph_json_writer *json)
{
    ph_publish_decoder_class(c, stem, "ForCausalLM", "Model", json);
    ph_json_string(json, "model_type", type);
    ph_publish_sizes(c, json);
    ph_json_string(json, activation,
                   c->activation == PH_SWIGLU ? "silu" : "gelu_pytorch_tanh");
    ph_publish_rope(c, json);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    const char *stem = !c->qk_norm ? "Gemma2" : c->no_output ? "Gemma3Text" : "Gemma3";
    publish_as(c, c->qk_norm ? "gemma3_text" : "gemma2", stem, "hidden_activation", json);
    ph_json_float(json, "query_pre_attn_scalar", scalar_of(c));
    publish_softcap("attn_logit_softcapping", c->attn_softcap, json);
    publish_softcap("final_logit_softcapping", c->output_softcap, json);
    publish_window(c, json);
    return PH_NO_BIAS;
}

static int publish_1(const ph_config *c, ph_json_writer *json)
{
    publish_as(c, "gemma", "Gemma", "hidden_act", json);
    return PH_NO_BIAS;
}

const ph_architecture ph_gemma = {.types = types,
                                  .gguf = gguf,
                                  .anchor = "embed_tokens.weight",
                                  .text_config = 1,
                                  .configure = configure,
                                  .publish = publish,
                                  .scaled = 1,
                                  .prefix = "model.",
                                  .names = names,
                                  .ignored = ignored};

const ph_architecture ph_gemma_1 = {.types = types_1,
                                    .gguf = types_1,
                                    .anchor = "embed_tokens.weight",
                                    .configure = configure_1,
                                    .publish = publish_1,
                                    .scaled = 1,
                                    .prefix = "model.",
                                    .names = names_1,
                                    .ignored = ignored};
