/*
 * marian.c - Marian, the translation models of OPUS-MT: encoder-decoder, norm after,
 * sinusoidal positions with all sines before all cosines, a bias of the scores.
 */
#include "architectures/bart.h"

static const char *const types[] = {"marian", NULL};
static const char *const gguf[] = {NULL};

/* Files without `shared` hold the same table under another name. */
static const ph_tensor_name names[] = {
    PH_TABLE("embed", "shared.weight", NULL),
    PH_TABLE("embed", "decoder.embed_tokens.weight", NULL),
    PH_TABLE("embed", "encoder.embed_tokens.weight", NULL),
    PH_BART_LAYERS,
    PH_TABLE("output", "/lm_head.weight", NULL),
    PH_TENSOR("output_bias", "/final_logits_bias", NULL),
    PH_TENSOR(NULL, NULL, NULL)};

/* The embeddings again, and positions, which are computed. */
static const char *const ignored[] = {
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
    "encoder.embed_positions.weight", "decoder.embed_positions.weight", NULL};

static void configure(ph_import *in, ph_config *c)
{
    c->norm_place = PH_POST_NORM;
    c->positions = PH_POS_SINUSOIDAL_HALVES;
    c->layers = 12, c->model_dim = 1024, c->heads = 16, c->ff_dim = 4096;
    ph_import_bart(in, c);
    c->max_len = ph_import_size(in, "max_position_embeddings", NULL, 1024);
    c->output_bias = ph_import_find(in, "output_bias") != NULL;
    int vocab = ph_import_int(in, "vocab_size", NULL, 58101);
    int other = ph_import_int(in, "decoder_vocab_size", NULL, vocab);
    if (!ph_import_flag(in, "share_encoder_decoder_embeddings", NULL, 1) ||
        other != vocab)
        ph_import_fail(in, PH_UNSUPPORTED,
                       "encoder and decoder have vocabularies of their own (vocab_size "
                       "%d, decoder_vocab_size %d, share_encoder_decoder_embeddings), "
                       "expected one",
                       vocab, other);
}

/* ---- writing ----------------------------------------------------------------------- */

static int publish(const ph_config *c, ph_json_writer *json)
{
    ph_publish_bart(c, "marian", c->no_output ? "MarianModel" : "MarianMTModel", json);
    ph_json_integer(json, "max_position_embeddings", c->max_len);
    ph_json_bool(json, "share_encoder_decoder_embeddings", 1);
    ph_json_integer(json, "decoder_vocab_size", c->vocab);
    return 0;
}

const ph_architecture ph_marian = {.types = types,
                                   .gguf = gguf,
                                   .anchor = PH_BART_ANCHOR,
                                   .configure = configure,
                                   .publish = publish,
                                   .scaled = 1,
                                   .copies = 1,
                                   .prefix = "model.",
                                   .names = names,
                                   .ignored = ignored};
