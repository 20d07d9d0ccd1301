/*
 * fuzz_model.c - any bytes as a model file or a checkpoint, and any bytes as its header.
 *
 * The input is read as it is; then once more with its first two bytes as the number of
 * floats behind the rest, which is the header. The file's hash is not checked: it would
 * hide the readers behind it.
 *
 * Beyond not crashing: memory in use stays in proportion to the file, all of it comes
 * back, and what was accepted is printed and read as the same.
 */
#include "fuzz_ctx.h"
#include "model/store.h"
#include "model/train.h"

enum { TEXT = 8192 };

/* ---- what must hold ---- */

static void check_model(ph_ctx *ctx, const ph_model *m, size_t bytes)
{
    char text[TEXT], again[TEXT];
    ph_config config;
    ph_word words[8] = {0};
    int count = ph_config_print(&m->config, text, sizeof text);
    REQUIRE(count > 0 && count < TEXT);
    memcpy(again, text, (size_t)count + 1);
    REQUIRE(ph_config_read(ctx, &config, again, (size_t)count) == PH_OK);
    ph_config_print(&config, again, sizeof again);
    REQUIRE(strcmp(text, again) == 0);
    REQUIRE((size_t)ph_model_parameters(m) * sizeof(float) <= bytes);
    if (m->tokenizer) {
        ph_status status = ph_model_split(m, "a b. c", words, 8, &count);
        for (int i = 0; status == PH_OK && i < count && i < 8; i++)
            REQUIRE(words[i].token >= 0 && words[i].token < m->config.vocab);
    }
    if (m->vocab.count && !m->tokenizer)
        REQUIRE(ph_model_split(m, "The cat's 本 \xff.", words, 8, &count) == PH_OK);
}

static void check_options(ph_ctx *ctx, const ph_file *file)
{
    ph_train train;
    int step = -1;
    char text[TEXT];
    ph_status status = ph_checkpoint_options(ctx, file, &train, &step);
    REQUIRE(status == PH_OK || status == PH_BAD_FILE);
    if (status != PH_OK) return;
    REQUIRE(step >= 0 && step <= PH_STEPS_MOST);
    REQUIRE(ph_train_print(&train, text, sizeof text) < TEXT);
}

static void read_one(const uint8_t *data, size_t size)
{
    ph_ctx *ctx = open_ctx();
    size_t before = in_use;
    ph_file *file = NULL;
    ph_model *model = NULL;
    if (ph_file_parse(&file, "fuzz", data, size, NULL) != PH_OK) return;
    most = in_use;
    ph_status status = ph_store_model(&model, ctx, file, "fuzz");
    REQUIRE((status == PH_OK) == (model != NULL) && status != PH_OUT_OF_MEMORY);
    REQUIRE(most - before <= 256 * size + (1 << 20));
    if (model) check_model(ctx, model, size);
    check_options(ctx, file);
    ph_model_free(model);
    ph_file_free(file);
    REQUIRE(in_use == before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_one(data, size);
    if (size < 2) return 0;
    size_t header = size - 2, values = 4 * (data[0] + 256 * (size_t)data[1]);
    uint8_t *whole = calloc(1, 8 + header + values);
    REQUIRE(whole);
    for (int i = 0; i < 8; i++) whole[i] = (uint8_t)((uint64_t)header >> 8 * i);
    memcpy(whole + 8, data + 2, header);
    read_one(whole, 8 + header + values);
    free(whole);
    return 0;
}
