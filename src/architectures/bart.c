/*
 * bart.c - BART: encoder-decoder, norm after, learned positions that begin at row 2 of
 * their tables, norms of the embeddings, all biases, a bias of the scores; and what
 * Marian and Whisper have of it.
 */
#include <math.h>
#include <string.h>

#include "architectures/bart.h"

static const char *const types[] = {"bart", NULL};
static const char *const gguf[] = {NULL};

/* Files without `shared` hold the same table under another name. */
static const ph_tensor_name names[] = {
    PH_TABLE("embed", "shared.weight", NULL),
    PH_TABLE("embed", "decoder.embed_tokens.weight", NULL),
    PH_TABLE("embed", "encoder.embed_tokens.weight", NULL),
    PH_TABLE("encoder.positions", "encoder.embed_positions.weight", NULL),
    PH_TABLE("decoder.positions", "decoder.embed_positions.weight", NULL),
    PH_BART_NORM("encoder.embed_norm", "encoder.layernorm_embedding"),
    PH_BART_NORM("decoder.embed_norm", "decoder.layernorm_embedding"),
    PH_BART_LAYERS,
    PH_TABLE("output", "/lm_head.weight", NULL),
    PH_TENSOR("output_bias", "/final_logits_bias", NULL),
    PH_TENSOR(NULL, NULL, NULL)};

/* The embeddings again, and numbers of a version that older files hold. */
static const char *const ignored[] = {"encoder.embed_tokens.weight",
                                      "decoder.embed_tokens.weight", "encoder.version",
                                      "decoder.version", NULL};

/* A size that both stacks have. */
static int same_size(ph_import *in, const char *encoder, const char *decoder,
                     int fallback)
{
    int size = ph_import_size(in, encoder, NULL, fallback);
    int other = ph_import_size(in, decoder, NULL, fallback);
    if (size != other)
        ph_import_fail(in, PH_UNSUPPORTED, "%s is %d and %s %d, expected the same",
                       encoder, size, decoder, other);
    return size;
}

void ph_import_bart(ph_import *in, ph_config *c)
{
    c->arch = PH_ARCH_ENCODER_DECODER;
    c->model_dim = ph_import_size(in, "d_model", NULL, c->model_dim);
    c->decoder_layers = ph_import_size(in, "decoder_layers", NULL, c->layers);
    c->layers = ph_import_size(in, "encoder_layers", NULL, c->layers);
    c->heads =
        same_size(in, "encoder_attention_heads", "decoder_attention_heads", c->heads);
    c->ff_dim = same_size(in, "encoder_ffn_dim", "decoder_ffn_dim", c->ff_dim);
    c->embed_scale = ph_import_flag(in, "scale_embedding", NULL, 0) && c->model_dim > 0
                         ? (float)sqrt((double)c->model_dim)
                         : 1;
    c->norm_eps = 1e-5f;
    const char *name = ph_import_text(in, "activation_function", NULL, "gelu");
    ph_import_activation(in, "activation_function", name, 0, c);
}

/* Classes that lack a stack, or end in something else than scores of tokens. */
static void check_class(ph_import *in)
{
    static const char *const others[] = {"BartForSequenceClassification",
                                         "BartForQuestionAnswering", "BartForCausalLM"};
    const char *class = ph_import_text(in, "architectures.0", NULL, "");
    for (int i = 0; i < 3; i++)
        if (!strcmp(class, others[i]))
            ph_import_fail(in, PH_UNSUPPORTED,
                           "the class of the model is %s, expected "
                           "BartForConditionalGeneration or BartModel",
                           class);
}

static void configure(ph_import *in, ph_config *c)
{
    check_class(in);
    c->norm_place = PH_POST_NORM;
    c->positions = PH_POS_LEARNED;
    c->position_offset = 2;
    c->embed_norm = 1;
    c->layers = 12, c->model_dim = 1024, c->heads = 16, c->ff_dim = 4096;
    ph_import_bart(in, c);
    c->max_len = ph_import_size(in, "max_position_embeddings", NULL, 1024);
    c->output_bias = ph_import_find(in, "output_bias") != NULL;
}

/* ---- writing ----------------------------------------------------------------------- */

void ph_publish_bart(const ph_config *c, const char *type, const char *class,
                     ph_json_writer *json)
{
    ph_json_begin_array(json, "architectures");
    ph_json_string(json, NULL, class);
    ph_json_end(json);
    ph_json_string(json, "model_type", type);
    ph_json_bool(json, "is_encoder_decoder", 1);
    ph_json_integer(json, "d_model", c->model_dim);
    ph_json_integer(json, "encoder_layers", c->layers);
    ph_json_integer(json, "decoder_layers",
                    c->decoder_layers > 0 ? c->decoder_layers : c->layers);
    ph_json_integer(json, "encoder_attention_heads", c->heads);
    ph_json_integer(json, "decoder_attention_heads", c->heads);
    ph_json_integer(json, "encoder_ffn_dim", c->ff_dim);
    ph_json_integer(json, "decoder_ffn_dim", c->ff_dim);
    ph_json_string(json, "activation_function", ph_publish_activation(c));
    ph_json_bool(json, "scale_embedding", c->embed_scale != 1);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    const char *class = c->no_output ? "BartModel" : "BartForConditionalGeneration";
    ph_publish_bart(c, "bart", class, json);
    ph_json_integer(json, "max_position_embeddings", c->max_len);
    return 0;
}

const ph_architecture ph_bart = {.types = types,
                                 .gguf = gguf,
                                 .anchor = PH_BART_ANCHOR,
                                 .configure = configure,
                                 .publish = publish,
                                 .scaled = 1,
                                 .copies = 1,
                                 .prefix = "model.",
                                 .names = names,
                                 .ignored = ignored};
