/*
 * olmo2.c - OLMo 2: RMS norms of what sublayers give, none before them, and of all heads
 * of q and of k together; rotary positions, SwiGLU.
 */
#include "architectures/architecture.h"

static const char *const types[] = {"olmo2", NULL};

#define MATRIX(ours, folder, gguf) PH_TENSOR(ours, folder ".weight", gguf ".weight")
#define BIAS(ours, folder, gguf)   PH_TENSOR(ours, folder ".bias", gguf ".bias")

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "embed_tokens.weight", "token_embd.weight"),
    MATRIX("decoder.#.self.wq", "layers.#.self_attn.q_proj", "blk.#.attn_q"),
    MATRIX("decoder.#.self.wk", "layers.#.self_attn.k_proj", "blk.#.attn_k"),
    MATRIX("decoder.#.self.wv", "layers.#.self_attn.v_proj", "blk.#.attn_v"),
    MATRIX("decoder.#.self.wo", "layers.#.self_attn.o_proj", "blk.#.attn_output"),
    BIAS("decoder.#.self.bq", "layers.#.self_attn.q_proj", "blk.#.attn_q"),
    BIAS("decoder.#.self.bk", "layers.#.self_attn.k_proj", "blk.#.attn_k"),
    BIAS("decoder.#.self.bv", "layers.#.self_attn.v_proj", "blk.#.attn_v"),
    BIAS("decoder.#.self.bo", "layers.#.self_attn.o_proj", "blk.#.attn_output"),
    MATRIX("decoder.#.self.q_norm", "layers.#.self_attn.q_norm", "blk.#.attn_q_norm"),
    MATRIX("decoder.#.self.k_norm", "layers.#.self_attn.k_norm", "blk.#.attn_k_norm"),
    MATRIX("decoder.#.post_norm1.gain", "layers.#.post_attention_layernorm",
           "blk.#.post_attention_norm"),
    MATRIX("decoder.#.ff.w1", "layers.#.mlp.gate_proj", "blk.#.ffn_gate"),
    MATRIX("decoder.#.ff.w3", "layers.#.mlp.up_proj", "blk.#.ffn_up"),
    MATRIX("decoder.#.ff.w2", "layers.#.mlp.down_proj", "blk.#.ffn_down"),
    MATRIX("decoder.#.post_norm2.gain", "layers.#.post_feedforward_layernorm",
           "blk.#.post_ffw_norm"),
    MATRIX("decoder.norm.gain", "norm", "output_norm"),
    PH_TABLE("output", "/lm_head.weight", "output.weight"),
    PH_LINEAR("classifier", "/score"),
    PH_LINEAR("pooler", "/dense.linear"),
    PH_TENSOR(NULL, NULL, NULL)};

/* An output head beside a classifier or modules that make a vector. */
static const char *const ignored[] = {"/lm_head.weight", NULL};

static void configure(ph_import *in, ph_config *c)
{
    c->arch = PH_ARCH_DECODER;
    c->norm = PH_NORM_RMS;
    c->norm_place = PH_OUTPUT_NORM;
    c->qk_norm = c->qk_norm_whole = 1;
    c->embed_scale = 1;
    c->layers = ph_import_size(in, "num_hidden_layers", "block_count", 32);
    c->model_dim = ph_import_size(in, "hidden_size", "embedding_length", 4096);
    c->heads = ph_import_size(in, "num_attention_heads", "attention.head_count", 32);
    c->kv_heads = ph_import_size(in, "num_key_value_heads", "attention.head_count_kv",
                                 c->heads);
    c->head_dim = ph_import_size(in, "head_dim", "attention.key_length",
                                 c->heads > 0 ? c->model_dim / c->heads : 0);
    c->ff_dim = ph_import_size(in, "intermediate_size", "feed_forward_length", 11008);
    c->max_len = ph_import_size(in, "max_position_embeddings", "context_length", 2048);
    c->norm_eps = (float)ph_import_positive(in, "rms_norm_eps",
                                            "attention.layer_norm_rms_epsilon", 1e-5);
    const char *name = ph_import_text(in, "hidden_act", NULL, "silu");
    ph_import_activation(in, "hidden_act", name, 1, c);
    ph_import_rope(in, c, 10000);
    ph_import_decoder_end(in, c);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    int attention = PH_NO_BIAS_Q | PH_NO_BIAS_K | PH_NO_BIAS_V | PH_NO_BIAS_O;
    int biased = !(c->no_bias & attention);
    ph_publish_decoder_class(c, "Olmo2", "ForCausalLM", "Model", json);
    ph_json_string(json, "model_type", "olmo2");
    ph_publish_sizes(c, json);
    ph_json_string(json, "hidden_act", "silu");
    ph_publish_rope(c, json);
    ph_json_bool(json, "attention_bias", biased);
    return biased ? PH_NO_BIAS & ~attention : PH_NO_BIAS;
}

const ph_architecture ph_olmo2 = {.types = types,
                                  .gguf = types,
                                  .anchor = "embed_tokens.weight",
                                  .untied = 1,
                                  .configure = configure,
                                  .publish = publish,
                                  .prefix = "model.",
                                  .names = names,
                                  .ignored = ignored};
