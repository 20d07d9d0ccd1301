/*
 * gpt2.c - GPT-2: norm before, learned positions, all biases; q, k and v side by side in
 * one matrix, which a folder stores (in, out).
 */
#include "architectures/architecture.h"

static const char *const types[] = {"gpt2", NULL};
static const char *const gguf[] = {"gpt2", NULL};

#define QKV(ours, last, number)                                                          \
    PH_PART("decoder.#.self." ours, "h.#.attn.c_attn." last, "blk.#.attn_qkv." last,     \
            number, 3)

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "wte.weight", "token_embd.weight"),
    PH_TABLE("decoder.positions", "wpe.weight", "position_embd.weight"),
    PH_TENSOR("decoder.#.norm1.gain", "h.#.ln_1.weight", "blk.#.attn_norm.weight"),
    PH_TENSOR("decoder.#.norm1.bias", "h.#.ln_1.bias", "blk.#.attn_norm.bias"),
    QKV("wq", "weight", 0),
    QKV("wk", "weight", 1),
    QKV("wv", "weight", 2),
    QKV("bq", "bias", 0),
    QKV("bk", "bias", 1),
    QKV("bv", "bias", 2),
    PH_TENSOR("decoder.#.self.wo", "h.#.attn.c_proj.weight", "blk.#.attn_output.weight"),
    PH_TENSOR("decoder.#.self.bo", "h.#.attn.c_proj.bias", "blk.#.attn_output.bias"),
    PH_TENSOR("decoder.#.norm2.gain", "h.#.ln_2.weight", "blk.#.ffn_norm.weight"),
    PH_TENSOR("decoder.#.norm2.bias", "h.#.ln_2.bias", "blk.#.ffn_norm.bias"),
    PH_TENSOR("decoder.#.ff.w1", "h.#.mlp.c_fc.weight", "blk.#.ffn_up.weight"),
    PH_TENSOR("decoder.#.ff.b1", "h.#.mlp.c_fc.bias", "blk.#.ffn_up.bias"),
    PH_TENSOR("decoder.#.ff.w2", "h.#.mlp.c_proj.weight", "blk.#.ffn_down.weight"),
    PH_TENSOR("decoder.#.ff.b2", "h.#.mlp.c_proj.bias", "blk.#.ffn_down.bias"),
    PH_TENSOR("decoder.norm.gain", "ln_f.weight", "output_norm.weight"),
    PH_TENSOR("decoder.norm.bias", "ln_f.bias", "output_norm.bias"),
    PH_TABLE("output", "/lm_head.weight", "output.weight"),
    PH_LINEAR("classifier", "/score"),
    PH_LINEAR("pooler", "/dense.linear"),
    {"classifier.w", "/classifier.weight", NULL, 0, 0, 0, 0, 1, 1, 0},
    {"classifier.b", "/classifier.bias", NULL, 0, 0, 0, 0, 1, 0, 0},
    PH_LINEAR("classifier", "/qa_outputs"),
    PH_TENSOR(NULL, NULL, NULL)};

/* Masks that older files hold, scores of choices beside an output that is whole
   (GPT2DoubleHeadsModel), and an output head beside what makes classes or a vector. */
static const char *const ignored[] = {"h.#.attn.bias", "h.#.attn.masked_bias",
                                      "/multiple_choice_head.*", "/lm_head.weight", NULL};

static void configure(ph_import *in, ph_config *c)
{
    c->arch = PH_ARCH_DECODER;
    c->positions = PH_POS_LEARNED;
    c->embed_scale = 1;
    c->layers = ph_import_size(in, "n_layer", "block_count", 12);
    c->model_dim = ph_import_size(in, "n_embd", "embedding_length", 768);
    c->heads = ph_import_size(in, "n_head", "attention.head_count", 12);
    c->ff_dim = ph_import_size(in, "n_inner", "feed_forward_length", 4 * c->model_dim);
    c->max_len = ph_import_size(in, "n_positions", "context_length", 1024);
    c->norm_eps = (float)ph_import_positive(in, "layer_norm_epsilon",
                                            "attention.layer_norm_epsilon", 1e-5);
    if (!ph_import_flag(in, "scale_attn_weights", NULL, 1)) c->attn_scale = 1;
    c->scale_by_layer = ph_import_flag(in, "scale_attn_by_inverse_layer_idx", NULL, 0);
    const char *name = ph_import_text(in, "activation_function", NULL, "gelu_new");
    ph_import_activation(in, "activation_function", name, 0, c);
    if (ph_import_flag(in, "add_cross_attention", NULL, 0))
        ph_import_fail(in, PH_UNSUPPORTED,
                       "add_cross_attention is true, expected a decoder alone");
    ph_import_decoder_end(in, c);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    ph_publish_decoder_class(c, "GPT2", "LMHeadModel", "Model", json);
    ph_json_string(json, "model_type", "gpt2");
    ph_json_integer(json, "n_layer", c->layers);
    ph_json_integer(json, "n_embd", c->model_dim);
    ph_json_integer(json, "n_head", c->heads);
    ph_json_integer(json, "n_inner", c->ff_dim);
    ph_json_integer(json, "n_positions", c->max_len);
    ph_json_float(json, "layer_norm_epsilon", c->norm_eps);
    ph_json_bool(json, "scale_attn_weights", c->attn_scale != 1);
    ph_json_bool(json, "scale_attn_by_inverse_layer_idx", c->scale_by_layer);
    ph_json_string(json, "activation_function", ph_publish_activation(c));
    return 0;
}

const ph_architecture ph_gpt2 = {.types = types,
                                 .gguf = gguf,
                                 .anchor = "wte.weight",
                                 .conv1d = 1,
                                 .configure = configure,
                                 .publish = publish,
                                 .prefix = "transformer.",
                                 .names = names,
                                 .ignored = ignored};
