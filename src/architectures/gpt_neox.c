/*
 * gpt_neox.c - GPT-NeoX, Pythia: norm before, both sublayers of a layer side by side or
 * one after the other, rotary positions of a part of each head, all biases; q, k and v in
 * one matrix, in a folder head by head.
 */
#include "architectures/architecture.h"

static const char *const types[] = {"gpt_neox", NULL};
static const char *const gguf[] = {"gptneox", NULL};

#define QKV(ours, last, number)                                                          \
    {                                                                                    \
        "decoder.#.self." ours, "layers.#.attention.query_key_value." last,              \
            "blk.#.attn_qkv." last, 0, number, 3, 0, 0, 0, 1                             \
    }
#define BOTH(ours_w, ours_b, folder, gguf)                                               \
    PH_TENSOR(ours_w, folder ".weight", gguf ".weight"),                                 \
        PH_TENSOR(ours_b, folder ".bias", gguf ".bias")

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "embed_in.weight", "token_embd.weight"),
    BOTH("decoder.#.norm1.gain", "decoder.#.norm1.bias", "layers.#.input_layernorm",
         "blk.#.attn_norm"),
    QKV("wq", "weight", 0),
    QKV("wk", "weight", 1),
    QKV("wv", "weight", 2),
    QKV("bq", "bias", 0),
    QKV("bk", "bias", 1),
    QKV("bv", "bias", 2),
    BOTH("decoder.#.self.wo", "decoder.#.self.bo", "layers.#.attention.dense",
         "blk.#.attn_output"),
    BOTH("decoder.#.norm2.gain", "decoder.#.norm2.bias",
         "layers.#.post_attention_layernorm", "blk.#.ffn_norm"),
    BOTH("decoder.#.ff.w1", "decoder.#.ff.b1", "layers.#.mlp.dense_h_to_4h",
         "blk.#.ffn_up"),
    BOTH("decoder.#.ff.w2", "decoder.#.ff.b2", "layers.#.mlp.dense_4h_to_h",
         "blk.#.ffn_down"),
    BOTH("decoder.norm.gain", "decoder.norm.bias", "final_layer_norm", "output_norm"),
    PH_TABLE("output", "/embed_out.weight", "output.weight"),
    PH_TABLE("output", "/lm_head.weight", NULL),
    PH_LINEAR("classifier", "/score"),
    PH_LINEAR("pooler", "/dense.linear"),
    {"classifier.w", "/classifier.weight", NULL, 0, 0, 0, 0, 1, 1, 0},
    {"classifier.b", "/classifier.bias", NULL, 0, 0, 0, 0, 1, 0, 0},
    PH_LINEAR("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

/* Masks that older files hold, and an output head beside a classifier or what makes
   a vector. */
static const char *const ignored[] = {"layers.#.attention.bias",
                                      "layers.#.attention.masked_bias",
                                      "/embed_out.weight", "/lm_head.weight", NULL};

static void configure(ph_import *in, ph_config *c)
{
    c->arch = PH_ARCH_DECODER;
    c->embed_scale = 1;
    c->layers = ph_import_size(in, "num_hidden_layers", "block_count", 44);
    c->model_dim = ph_import_size(in, "hidden_size", "embedding_length", 6144);
    c->heads = ph_import_size(in, "num_attention_heads", "attention.head_count", 64);
    c->head_dim = c->heads > 0 ? c->model_dim / c->heads : 0;
    c->ff_dim = ph_import_size(in, "intermediate_size", "feed_forward_length", 24576);
    c->max_len = ph_import_size(in, "max_position_embeddings", "context_length", 2048);
    c->norm_eps = (float)ph_import_positive(in, "layer_norm_eps",
                                            "attention.layer_norm_epsilon", 1e-5);
    c->parallel =
        ph_import_flag(in, "use_parallel_residual", "use_parallel_residual", 1);
    const char *name = ph_import_text(in, "hidden_act", NULL, "gelu");
    ph_import_activation(in, "hidden_act", name, 0, c);
    double part = ph_import_positive(in, "rotary_pct", NULL, 0.25);
    if (!ph_import_is_gguf(in)) c->rope_dims = (int)(c->head_dim * part);
    if (part > 1)
        ph_import_fail(in, PH_BAD_FILE, "rotary_pct is %g, expected at most 1", part);
    ph_import_rope(in, c, ph_import_positive(in, "rotary_emb_base", NULL, 1e4));
    ph_import_decoder_end(in, c);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    ph_publish_decoder_class(c, "GPTNeoX", "ForCausalLM", "Model", json);
    ph_json_string(json, "model_type", "gpt_neox");
    ph_json_integer(json, "num_hidden_layers", c->layers);
    ph_json_integer(json, "hidden_size", c->model_dim);
    ph_json_integer(json, "num_attention_heads", c->heads);
    ph_json_integer(json, "intermediate_size", c->ff_dim);
    ph_json_integer(json, "max_position_embeddings", c->max_len);
    ph_json_float(json, "layer_norm_eps", c->norm_eps);
    ph_json_bool(json, "use_parallel_residual", c->parallel);
    ph_json_string(json, "hidden_act", ph_publish_activation(c));
    ph_json_double(json, "rotary_pct", ph_publish_rope_part(c));
    ph_json_float(json, "rotary_emb_base", c->rope_base != 0 ? c->rope_base : 10000);
    ph_publish_rope(c, json);
    int attention = !(c->no_bias & (PH_NO_BIAS_Q | PH_NO_BIAS_O));
    ph_json_bool(json, "attention_bias", attention);
    return attention ? 0 : PH_NO_BIAS_Q | PH_NO_BIAS_K | PH_NO_BIAS_V | PH_NO_BIAS_O;
}

const ph_architecture ph_gpt_neox = {.types = types,
                                     .gguf = gguf,
                                     .anchor = "embed_in.weight",
                                     .untied = 1,
                                     .partial_rope = 1,
                                     .rotary_names = 1,
                                     .configure = configure,
                                     .publish = publish,
                                     .prefix = "gpt_neox.",
                                     .names = names,
                                     .ignored = ignored};
