/*
 * fuzz_features.c - any bytes as a file of features of sound.
 *
 * Beyond not crashing: a refusal has a sentence, and what is accepted has pairs of
 * frames, as many as the encoder has rows at most.
 */
#define _GNU_SOURCE
#include "fuzz_file.h"
#include "model/features.h"

static ph_model *model;

static void make_model(void)
{
    ph_ctx *ctx;
    ph_config c = {.arch = PH_ARCH_ENCODER_DECODER, .layers = 1, .model_dim = 4};
    c.heads = 1, c.vocab = 8, c.max_len = 4, c.encoder_len = 9, c.mels = 5;
    REQUIRE(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK);
    REQUIRE(ph_model_create(&model, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1) == PH_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    float *features;
    int rows;
    if (!model) make_model();
    fuzz_file file = fuzz_file_open(data, size);
    ph_status status = ph_features_open(model, file.path, NULL, &features, &rows);
    REQUIRE(status == PH_OK ? features && rows >= 1 && rows <= 9
                            : !features && ph_error(model->ctx)[0]);
    ph_ctx_release(model->ctx, features);
    close(file.fd);
    return 0;
}
