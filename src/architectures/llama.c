/*
 * llama.c - the LLaMA family: RMS norm before, rotary positions, SwiGLU; LLaMA 2 and 3,
 * Mistral (window), Qwen 2 (biases of q, k, v), Qwen 3 (norm of q and k), SmolLM, SmolLM3
 * (layers without positions).
 */
#include <string.h>

#include "architectures/architecture.h"

static const char *const types[] = {"llama", "mistral", "qwen2", "qwen3", NULL};
static const char *const gguf[] = {"llama", "qwen2", "qwen3", NULL};
static const char *const types_smollm3[] = {"smollm3", NULL};

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "embed_tokens.weight", "token_embd.weight"),
    PH_TENSOR("decoder.#.norm1.gain", "layers.#.input_layernorm.weight",
              "blk.#.attn_norm.weight"),
    PH_TENSOR("decoder.#.self.wq", "layers.#.self_attn.q_proj.weight",
              "blk.#.attn_q.weight"),
    PH_TENSOR("decoder.#.self.wk", "layers.#.self_attn.k_proj.weight",
              "blk.#.attn_k.weight"),
    PH_TENSOR("decoder.#.self.wv", "layers.#.self_attn.v_proj.weight",
              "blk.#.attn_v.weight"),
    PH_TENSOR("decoder.#.self.wo", "layers.#.self_attn.o_proj.weight",
              "blk.#.attn_output.weight"),
    PH_TENSOR("decoder.#.self.bq", "layers.#.self_attn.q_proj.bias", "blk.#.attn_q.bias"),
    PH_TENSOR("decoder.#.self.bk", "layers.#.self_attn.k_proj.bias", "blk.#.attn_k.bias"),
    PH_TENSOR("decoder.#.self.bv", "layers.#.self_attn.v_proj.bias", "blk.#.attn_v.bias"),
    PH_TENSOR("decoder.#.self.bo", "layers.#.self_attn.o_proj.bias",
              "blk.#.attn_output.bias"),
    PH_TENSOR("decoder.#.self.q_norm", "layers.#.self_attn.q_norm.weight",
              "blk.#.attn_q_norm.weight"),
    PH_TENSOR("decoder.#.self.k_norm", "layers.#.self_attn.k_norm.weight",
              "blk.#.attn_k_norm.weight"),
    PH_TENSOR("decoder.#.norm2.gain", "layers.#.post_attention_layernorm.weight",
              "blk.#.ffn_norm.weight"),
    PH_TENSOR("decoder.#.ff.w1", "layers.#.mlp.gate_proj.weight",
              "blk.#.ffn_gate.weight"),
    PH_TENSOR("decoder.#.ff.w3", "layers.#.mlp.up_proj.weight", "blk.#.ffn_up.weight"),
    PH_TENSOR("decoder.#.ff.w2", "layers.#.mlp.down_proj.weight",
              "blk.#.ffn_down.weight"),
    PH_TENSOR("decoder.#.ff.b1", "layers.#.mlp.gate_proj.bias", "blk.#.ffn_gate.bias"),
    PH_TENSOR("decoder.#.ff.b3", "layers.#.mlp.up_proj.bias", "blk.#.ffn_up.bias"),
    PH_TENSOR("decoder.#.ff.b2", "layers.#.mlp.down_proj.bias", "blk.#.ffn_down.bias"),
    PH_TENSOR("decoder.norm.gain", "norm.weight", "output_norm.weight"),
    PH_TABLE("output", "/lm_head.weight", "output.weight"),
    PH_LINEAR("classifier", "/score"),
    PH_LINEAR("pooler", "/dense.linear"),
    PH_LINEAR("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

/* An output head beside a classifier or modules that make a vector. */
static const char *const ignored[] = {"/lm_head.weight", NULL};

/* Where the reference does not ask layer_types it must say what is so. */
static void check_layer_types(ph_import *in, const ph_config *c)
{
    const ph_value *list = ph_import_list(in, "layer_types");
    ph_value item;
    for (int l = 0; list && l < c->layers; l++) {
        int windowed = c->window && l >= c->window_from;
        const char *expected = windowed ? "sliding_attention" : "full_attention";
        if (!ph_values_item(&in->checkpoint->values, list, (size_t)l, &item) ||
            item.kind != PH_VALUE_TEXT || strcmp(item.text, expected)) {
            ph_import_fail(in, PH_UNSUPPORTED, "layer_types.%d is not %s", l, expected);
            return;
        }
    }
}

/* Mistral has one unless it is null; Qwen only if it says so, from some layer on. */
static void set_window(ph_import *in, ph_config *c)
{
    int mistral = ph_import_is(in, "mistral");
    int qwen = !strncmp(in->type, "qwen", 4);
    if (qwen && !ph_import_is_gguf(in)) {
        if (ph_import_flag(in, "use_sliding_window", NULL, 0)) {
            c->window = ph_import_size(in, "sliding_window", NULL, 4096);
            c->window_from = ph_import_int(in, "max_window_layers", NULL, 28);
        }
    } else if (mistral && !ph_import_value(in, "sliding_window", NULL)) {
        c->window = 4096;
    } else if (mistral || ph_import_is_gguf(in)) {
        c->window = ph_import_size(in, "sliding_window", "attention.sliding_window", 0);
    }
    if (qwen)
        ph_import_layer_types(in, c);
    else
        check_layer_types(in, c);
    if (c->window_from >= c->layers) c->window = c->window_from = 0;
}

/* null is not what an absent number is: as many as heads. */
static int default_kv_heads(ph_import *in, int heads)
{
    const ph_value *given = ph_import_value(in, "num_key_value_heads", NULL);
    if (given && given->kind == PH_VALUE_NULL) return heads;
    if (ph_import_is_gguf(in) || ph_import_is(in, "llama")) return heads;
    if (ph_import_is(in, "smollm3")) return 4;
    return ph_import_is(in, "mistral") ? 8 : 32;
}

static void set_common(ph_import *in, ph_config *c)
{
    c->arch = PH_ARCH_DECODER;
    c->norm = PH_NORM_RMS;
    c->embed_scale = 1;
    c->layers =
        ph_import_size(in, "num_hidden_layers", "block_count", PH_IMPORT_REQUIRED);
    c->model_dim =
        ph_import_size(in, "hidden_size", "embedding_length", PH_IMPORT_REQUIRED);
    c->heads = ph_import_size(in, "num_attention_heads", "attention.head_count",
                              PH_IMPORT_REQUIRED);
    c->kv_heads = ph_import_size(in, "num_key_value_heads", "attention.head_count_kv",
                                 default_kv_heads(in, c->heads));
    c->head_dim = ph_import_size(in, "head_dim", "attention.key_length",
                                 ph_import_is(in, "qwen3") ? 128
                                 : c->heads > 0            ? c->model_dim / c->heads
                                                           : 0);
    c->ff_dim = ph_import_size(in, "intermediate_size", "feed_forward_length",
                               PH_IMPORT_REQUIRED);
    c->max_len = ph_import_size(in, "max_position_embeddings", "context_length", 2048);
    c->norm_eps = (float)ph_import_positive(in, "rms_norm_eps",
                                            "attention.layer_norm_rms_epsilon", 1e-6);
    c->qk_norm = ph_import_is(in, "qwen3");
    const char *name = ph_import_text(in, "hidden_act", NULL, "silu");
    ph_import_activation(in, "hidden_act", name, 1, c);
    int gguf_file = ph_import_is_gguf(in);
    ph_import_rope(in, c, ph_import_is(in, "smollm3") && !gguf_file ? 2e6 : 1e4);
    /* llama.cpp stores rows of q and k so that pairs are interleaved in these types */
    c->rope_interleaved = ph_import_is_gguf(in) && strncmp(in->type, "qwen", 4);
    ph_import_decoder_end(in, c);
}

static void configure(ph_import *in, ph_config *c)
{
    set_common(in, c);
    set_window(in, c);
}

/* Layers without positions have the window, if there is one, unless layer_types says
   otherwise. */
static void configure_smollm3(ph_import *in, ph_config *c)
{
    set_common(in, c);
    ph_import_rope_layers(in, c);
    if (ph_import_flag(in, "use_sliding_window", NULL, 0) && *c->rope_layers)
        c->window = ph_import_size(in, "sliding_window", NULL, 0);
    for (int i = 0; c->window && c->rope_layers[i]; i++)
        c->window_layers[i] = c->rope_layers[i] == 'n' ? 's' : 'f';
    ph_import_layer_types(in, c);
}

/* ---- writing ----------------------------------------------------------------------- */

enum { OF_QKV = PH_NO_BIAS_Q | PH_NO_BIAS_K | PH_NO_BIAS_V };

/* The type of the family that has what the model has. */
static const char *type_of(const ph_config *c)
{
    if (c->qk_norm) return "qwen3";
    if (!(c->no_bias & OF_QKV) && (c->no_bias & PH_NO_BIAS_O)) return "qwen2";
    return c->window ? "mistral" : "llama";
}

static void publish_window(const ph_config *c, const char *type, ph_json_writer *json)
{
    if (!c->window) return;
    ph_json_integer(json, "sliding_window", c->window);
    if (strncmp(type, "qwen", 4)) return;
    ph_json_bool(json, "use_sliding_window", 1);
    ph_json_integer(json, "max_window_layers", c->window_from);
    if (*c->window_layers) ph_publish_layer_types(c, json);
}

/* Biases the type has: Qwen 2 of q, k and v, others those that two flags say. */
static int publish_biases(const ph_config *c, const char *type, ph_json_writer *json)
{
    int none = PH_NO_BIAS, attention = !(c->no_bias & (OF_QKV | PH_NO_BIAS_O));
    int ff = !(c->no_bias & PH_NO_BIAS_FF);
    if (!strcmp(type, "qwen2")) return none & ~OF_QKV;
    if (!strcmp(type, "mistral")) return none;
    ph_json_bool(json, "attention_bias", attention);
    if (attention) none &= ~(OF_QKV | PH_NO_BIAS_O);
    if (strcmp(type, "llama")) return none;
    ph_json_bool(json, "mlp_bias", ff);
    return ff ? none & ~PH_NO_BIAS_FF : none;
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    static const char *const stems[][2] = {{"llama", "Llama"},
                                           {"mistral", "Mistral"},
                                           {"qwen2", "Qwen2"},
                                           {"qwen3", "Qwen3"}};
    const char *type = type_of(c);
    for (int i = 0; i < 4; i++)
        if (!strcmp(type, stems[i][0]))
            ph_publish_decoder_class(c, stems[i][1], "ForCausalLM", "Model", json);
    ph_json_string(json, "model_type", type);
    ph_publish_sizes(c, json);
    ph_json_string(json, "hidden_act", "silu");
    ph_publish_rope(c, json);
    publish_window(c, type, json);
    return publish_biases(c, type, json);
}

static int publish_smollm3(const ph_config *c, ph_json_writer *json)
{
    ph_publish_decoder_class(c, "SmolLM3", "ForCausalLM", "Model", json);
    ph_json_string(json, "model_type", "smollm3");
    ph_publish_sizes(c, json);
    ph_json_string(json, "hidden_act", "silu");
    ph_publish_rope(c, json);
    ph_publish_rope_layers(c, json);
    ph_json_bool(json, "use_sliding_window", c->window != 0);
    if (c->window) ph_json_integer(json, "sliding_window", c->window);
    if (c->window && *c->rope_layers) ph_publish_layer_types(c, json);
    return publish_biases(c, "llama", json);
}

const ph_architecture ph_smollm3 = {.types = types_smollm3,
                                    .gguf = types_smollm3,
                                    .anchor = "embed_tokens.weight",
                                    .configure = configure_smollm3,
                                    .publish = publish_smollm3,
                                    .prefix = "model.",
                                    .names = names,
                                    .ignored = ignored};

const ph_architecture ph_llama = {.types = types,
                                  .gguf = gguf,
                                  .anchor = "embed_tokens.weight",
                                  .untied = 1,
                                  .configure = configure,
                                  .publish = publish,
                                  .prefix = "model.",
                                  .names = names,
                                  .ignored = ignored};
