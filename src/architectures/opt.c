/*
 * opt.c - OPT: learned positions that begin at row 2 of their table, ReLU, all biases;
 * norms before sublayers or after them.
 */
#include "architectures/architecture.h"

static const char *const types[] = {"opt", NULL};
static const char *const gguf[] = {NULL};

#define BOTH(ours_w, ours_b, folder)                                                     \
    PH_TENSOR(ours_w, "decoder." folder ".weight", NULL),                                \
        PH_TENSOR(ours_b, "decoder." folder ".bias", NULL)

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "decoder.embed_tokens.weight", NULL),
    PH_TABLE("decoder.positions", "decoder.embed_positions.weight", NULL),
    BOTH("decoder.#.self.wq", "decoder.#.self.bq", "layers.#.self_attn.q_proj"),
    BOTH("decoder.#.self.wk", "decoder.#.self.bk", "layers.#.self_attn.k_proj"),
    BOTH("decoder.#.self.wv", "decoder.#.self.bv", "layers.#.self_attn.v_proj"),
    BOTH("decoder.#.self.wo", "decoder.#.self.bo", "layers.#.self_attn.out_proj"),
    BOTH("decoder.#.norm1.gain", "decoder.#.norm1.bias", "layers.#.self_attn_layer_norm"),
    BOTH("decoder.#.ff.w1", "decoder.#.ff.b1", "layers.#.fc1"),
    BOTH("decoder.#.ff.w2", "decoder.#.ff.b2", "layers.#.fc2"),
    BOTH("decoder.#.norm2.gain", "decoder.#.norm2.bias", "layers.#.final_layer_norm"),
    BOTH("decoder.norm.gain", "decoder.norm.bias", "final_layer_norm"),
    PH_TABLE("output", "/lm_head.weight", NULL),
    PH_LINEAR("classifier", "/score"),
    PH_LINEAR("pooler", "/dense.linear"),
    PH_LINEAR("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

/* An output head beside a classifier or modules that make a vector. */
static const char *const ignored[] = {"/lm_head.weight", NULL};

static void configure(ph_import *in, ph_config *c)
{
    c->arch = PH_ARCH_DECODER;
    c->positions = PH_POS_LEARNED;
    c->position_offset = 2;
    c->embed_scale = 1;
    c->norm_eps = 1e-5f;
    c->layers = ph_import_size(in, "num_hidden_layers", NULL, 12);
    c->model_dim = ph_import_size(in, "hidden_size", NULL, 768);
    c->heads = ph_import_size(in, "num_attention_heads", NULL, 12);
    c->ff_dim = ph_import_size(in, "ffn_dim", NULL, 3072);
    c->max_len = ph_import_size(in, "max_position_embeddings", NULL, 2048);
    if (!ph_import_flag(in, "do_layer_norm_before", NULL, 1))
        c->norm_place = PH_POST_NORM;
    const char *name = ph_import_text(in, "activation_function", NULL, "relu");
    ph_import_activation(in, "activation_function", name, 0, c);
    int dim = ph_import_size(in, "word_embed_proj_dim", NULL, c->model_dim);
    if (dim != c->model_dim)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "word_embed_proj_dim is %d, expected hidden_size, %d", dim,
                       c->model_dim);
    if (ph_import_flag(in, "_remove_final_layer_norm", NULL, 0))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "_remove_final_layer_norm is true, expected a last norm");
    if (!ph_import_flag(in, "layer_norm_elementwise_affine", NULL, 1))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "layer_norm_elementwise_affine is false, expected norms with "
                       "gains and biases");
    ph_import_decoder_end(in, c);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    int none = PH_NO_BIAS & ~PH_NO_BIAS_NORM, biased = !(c->no_bias & PH_NO_BIAS_FF);
    ph_publish_decoder_class(c, "OPT", "ForCausalLM", "Model", json);
    ph_json_string(json, "model_type", "opt");
    ph_json_integer(json, "num_hidden_layers", c->layers);
    ph_json_integer(json, "hidden_size", c->model_dim);
    ph_json_integer(json, "word_embed_proj_dim", c->model_dim);
    ph_json_integer(json, "num_attention_heads", c->heads);
    ph_json_integer(json, "ffn_dim", c->ff_dim);
    ph_json_integer(json, "max_position_embeddings", c->max_len);
    ph_json_bool(json, "do_layer_norm_before", c->norm_place == PH_PRE_NORM);
    ph_json_string(json, "activation_function", ph_publish_activation(c));
    ph_json_bool(json, "enable_bias", biased);
    return biased ? 0 : none;
}

const ph_architecture ph_opt = {.types = types,
                                .gguf = gguf,
                                .anchor = "decoder.embed_tokens.weight",
                                .configure = configure,
                                .publish = publish,
                                .prefix = "model.",
                                .names = names,
                                .ignored = ignored};
