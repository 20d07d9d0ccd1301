/*
 * whisper.c - Whisper: encoder-decoder, norm before; the encoder reads log-mel features
 * of sound through two convolutions, the decoder writes down what is said.
 */
#include "architectures/bart.h"

static const char *const types[] = {"whisper", NULL};
static const char *const gguf[] = {NULL};

static const ph_tensor_name names[] = {
    PH_TABLE("embed", "decoder.embed_tokens.weight", NULL),
    PH_BART_LINEAR("conv1.w", "conv1.b", "encoder.conv1"),
    PH_BART_LINEAR("conv2.w", "conv2.b", "encoder.conv2"),
    PH_TABLE("encoder.positions", "encoder.embed_positions.weight", NULL),
    PH_TABLE("decoder.positions", "decoder.embed_positions.weight", NULL),
    PH_BART_LAYERS,
    PH_BART_NORM("encoder.norm", "encoder.layer_norm"),
    PH_BART_NORM("decoder.norm", "decoder.layer_norm"),
    PH_TABLE("output", "/proj_out.weight", NULL),
    PH_TENSOR(NULL, NULL, NULL)};

static void configure(ph_import *in, ph_config *c)
{
    c->positions = PH_POS_LEARNED;
    c->layers = 4, c->model_dim = 384, c->heads = 6, c->ff_dim = 1536;
    ph_import_bart(in, c);
    c->embed_scale = 1; /* scale_embedding means nothing to the reference either */
    c->mels = ph_import_size(in, "num_mel_bins", NULL, 80);
    c->encoder_len = ph_import_size(in, "max_source_positions", NULL, 1500);
    c->max_len = ph_import_size(in, "max_target_positions", NULL, 448);
}

static int publish(const ph_config *c, ph_json_writer *json)
{
    const char *class = c->no_output ? "WhisperModel" : "WhisperForConditionalGeneration";
    ph_publish_bart(c, "whisper", class, json);
    if (c->mels) ph_json_integer(json, "num_mel_bins", c->mels);
    ph_json_integer(json, "max_source_positions",
                    c->encoder_len ? c->encoder_len : c->max_len);
    ph_json_integer(json, "max_target_positions", c->max_len);
    return PH_NO_BIAS_K;
}

const ph_architecture ph_whisper = {.types = types,
                                    .gguf = gguf,
                                    .anchor = PH_BART_ANCHOR,
                                    .configure = configure,
                                    .publish = publish,
                                    .prefix = "model.",
                                    .names = names};
