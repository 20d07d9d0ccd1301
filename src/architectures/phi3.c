/*
 * phi3.c - Phi-3, Phi-3.5 and Phi-4-mini: what LLaMA has, with q, k and v in one matrix,
 * gate and up in another; a part of each head may be left unrotated, all layers may have
 * a window.
 *
 * LongRoPE divides frequencies by one list for texts within the length of training and by
 * another for longer ones. Keys in a cache are rotated already, so a text cannot change
 * lists while it grows: texts end where the first list does, unless both are the same.
 */
#include <math.h>
#include <string.h>

#include "architectures/architecture.h"

static const char *const types[] = {"phi3", NULL};

#define QKV(ours, number)                                                                \
    PH_PART("decoder.#.self." ours, "layers.#.self_attn.qkv_proj.weight",                \
            "blk.#.attn_qkv.weight", number, 3)
#define GATE_UP(ours, number)                                                            \
    PH_PART("decoder.#.ff." ours, "layers.#.mlp.gate_up_proj.weight",                    \
            "blk.#.ffn_up.weight", number, 2)

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "embed_tokens.weight", "token_embd.weight"),
    PH_TENSOR("decoder.#.norm1.gain", "layers.#.input_layernorm.weight",
              "blk.#.attn_norm.weight"),
    QKV("wq", 0),
    QKV("wk", 1),
    QKV("wv", 2),
    PH_TENSOR("decoder.#.self.wo", "layers.#.self_attn.o_proj.weight",
              "blk.#.attn_output.weight"),
    PH_TENSOR("decoder.#.norm2.gain", "layers.#.post_attention_layernorm.weight",
              "blk.#.ffn_norm.weight"),
    GATE_UP("w1", 0),
    GATE_UP("w3", 1),
    PH_TENSOR("decoder.#.ff.w2", "layers.#.mlp.down_proj.weight",
              "blk.#.ffn_down.weight"),
    PH_TENSOR("decoder.norm.gain", "norm.weight", "output_norm.weight"),
    PH_TABLE("output", "/lm_head.weight", "output.weight"),
    PH_LINEAR("classifier", "/score"),
    PH_LINEAR("pooler", "/dense.linear"),
    PH_TENSOR(NULL, NULL, NULL)};

/* An output head beside a classifier or modules that make a vector. */
static const char *const ignored[] = {"/lm_head.weight", NULL};

/* ---- LongRoPE ---------------------------------------------------------------------- */

static int pairs_of(const ph_config *c)
{
    return (c->rope_dims ? c->rope_dims : c->head_dim) / 2;
}

/* A list of config.json with one divisor for each pair. */
static void read_list(ph_import *in, const ph_config *c, const char *name, float *to)
{
    char key[PH_IMPORT_KEY];
    ph_value item;
    int pairs = pairs_of(c);
    ph_import_rope_key(in, name, key);
    const ph_value *list = ph_import_list(in, key);
    const ph_values *values = &in->checkpoint->values;
    for (int p = 0; p < pairs && in->status == PH_OK; p++)
        if (list && ph_values_item(values, list, (size_t)p, &item) &&
            item.kind == PH_VALUE_NUMBER && item.number >= 1e-30 && item.number <= 1e30)
            to[p] = (float)item.number;
        else
            ph_import_fail(in, PH_BAD_FILE, "%s has no number above 0 for pair %d of %d",
                           key, p, pairs);
    if (list && ph_values_item(values, list, (size_t)pairs, &item))
        ph_import_fail(in, PH_BAD_FILE, "%s has more than %d numbers", key, pairs);
}

/* The same of GGUF, a tensor. */
static void read_tensor(ph_import *in, const ph_config *c, const char *name, float *to)
{
    ph_stored *s = ph_checkpoint_find(in->checkpoint, name);
    size_t pairs = (size_t)pairs_of(c);
    if (s && s->tensor.type == PH_F32 && s->tensor.rank == 1 && s->tensor.data &&
        s->tensor.shape[0] == pairs) {
        memcpy(to, s->tensor.data, pairs * sizeof *to);
        s->read = 1;
    } else {
        ph_import_fail(in, PH_BAD_FILE, "%s is not F32 (%zu)", name, pairs);
    }
}

/* Sines and cosines grow with the length that the second list is for. */
static double scale_for(ph_import *in, const ph_config *c, int trained)
{
    char key[PH_IMPORT_KEY];
    ph_import_rope_key(in, "factor", key);
    double factor = ph_import_positive(in, key, NULL, (double)c->max_len / trained);
    double usual = factor <= 1 ? 1 : sqrt(1 + log(factor) / log(fmax(trained, 2)));
    ph_import_rope_key(in, "attention_factor", key);
    return ph_import_positive(in, key, "rope.scaling.attn_factor", usual);
}

static void set_long_rope(ph_import *in, ph_config *c, int trained)
{
    float longer[PH_ROPE_PAIRS] = {0};
    int gguf = ph_import_is_gguf(in);
    if (pairs_of(c) > PH_ROPE_PAIRS) {
        ph_import_fail(in, PH_UNSUPPORTED, "%d pairs of a head are rotated, at most %d",
                       pairs_of(c), PH_ROPE_PAIRS);
        return;
    }
    c->rope_scaling = PH_ROPE_LONGROPE;
    c->rope_scale = (float)scale_for(in, c, trained);
    (gguf ? read_tensor : read_list)(
        in, c, gguf ? "rope_factors_short.weight" : "short_factor", c->rope_divisors);
    (gguf ? read_tensor : read_list)(
        in, c, gguf ? "rope_factors_long.weight" : "long_factor", longer);
    if (memcmp(longer, c->rope_divisors, sizeof longer) && trained < c->max_len)
        c->max_len = trained;
}

/* "su" and "yarn" are what LongRoPE was called before. */
static void set_rope(ph_import *in, ph_config *c)
{
    static const char *const known[] = {"longrope", "su", "yarn", "default"};
    const char *type = ph_import_rope_type(in);
    int kind = 0, gguf = ph_import_is_gguf(in), trained;
    ph_import_rope_base(in, c, 10000);
    trained = ph_import_size(in, "original_max_position_embeddings",
                             "rope.scaling.original_context_length",
                             gguf ? c->max_len : 4096);
    while (kind < 4 && strcmp(type, known[kind])) kind++;
    if (kind == 4 && !gguf)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "rope_type is %s, expected default or longrope",
                       ph_io_quote(type, strlen(type)).text);
    int lists = ph_checkpoint_find(in->checkpoint, "rope_factors_short.weight") != NULL;
    if (in->status == PH_OK && (gguf ? lists : kind < 3)) set_long_rope(in, c, trained);
}

/* ---- all fields -------------------------------------------------------------------- */

static void configure(ph_import *in, ph_config *c)
{
    c->arch = PH_ARCH_DECODER;
    c->norm = PH_NORM_RMS;
    c->embed_scale = 1;
    c->layers = ph_import_size(in, "num_hidden_layers", "block_count", 32);
    c->model_dim = ph_import_size(in, "hidden_size", "embedding_length", 3072);
    c->heads = ph_import_size(in, "num_attention_heads", "attention.head_count", 32);
    c->kv_heads = ph_import_size(in, "num_key_value_heads", "attention.head_count_kv",
                                 c->heads);
    c->head_dim = ph_import_size(in, "head_dim", "attention.key_length",
                                 c->heads > 0 ? c->model_dim / c->heads : 0);
    c->ff_dim = ph_import_size(in, "intermediate_size", "feed_forward_length", 8192);
    c->max_len = ph_import_size(in, "max_position_embeddings", "context_length", 4096);
    c->norm_eps = (float)ph_import_positive(in, "rms_norm_eps",
                                            "attention.layer_norm_rms_epsilon", 1e-5);
    c->window = ph_import_int(in, "sliding_window", "attention.sliding_window", 0);
    const char *name = ph_import_text(in, "hidden_act", NULL, "silu");
    ph_import_activation(in, "hidden_act", name, 1, c);
    set_rope(in, c);
    ph_import_decoder_end(in, c);
}

/* ---- writing ----------------------------------------------------------------------- */

static void publish_list(const ph_config *c, const char *key, ph_json_writer *json)
{
    ph_json_begin_array(json, key);
    for (int p = 0; p < PH_ROPE_PAIRS && c->rope_divisors[p] != 0; p++)
        ph_json_float(json, NULL, c->rope_divisors[p]);
    ph_json_end(json);
}

/* Both lists are the one that the model has. */
static void publish_long_rope(const ph_config *c, ph_json_writer *json)
{
    ph_json_begin_object(json, "rope_scaling");
    ph_json_string(json, "rope_type", "longrope");
    publish_list(c, "short_factor", json);
    publish_list(c, "long_factor", json);
    ph_json_float(json, "attention_factor", c->rope_scale != 0 ? c->rope_scale : 1);
    ph_json_integer(json, "original_max_position_embeddings", c->max_len);
    ph_json_end(json);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    ph_publish_decoder_class(c, "Phi3", "ForCausalLM", "Model", json);
    ph_json_string(json, "model_type", "phi3");
    ph_publish_sizes(c, json);
    ph_json_string(json, "hidden_act",
                   c->activation == PH_GEGLU ? "gelu_pytorch_tanh" : "silu");
    ph_json_float(json, "rope_theta", c->rope_base != 0 ? c->rope_base : 10000);
    ph_json_integer(json, "original_max_position_embeddings", c->max_len);
    ph_json_double(json, "partial_rotary_factor", ph_publish_rope_part(c));
    if (c->rope_scaling == PH_ROPE_LONGROPE) publish_long_rope(c, json);
    if (c->window) ph_json_integer(json, "sliding_window", c->window);
    return PH_NO_BIAS;
}

const ph_architecture ph_phi3 = {.types = types,
                                 .gguf = types,
                                 .anchor = "embed_tokens.weight",
                                 .untied = 1,
                                 .partial_rope = 1,
                                 .configure = configure,
                                 .publish = publish,
                                 .prefix = "model.",
                                 .names = names,
                                 .ignored = ignored};
