/*
 * fuzz_import.c - any bytes as config.json beside tensors that fit, and any bytes as a
 * model in one file.
 *
 * The first byte names one of the checkpoints below, whose config.json the rest is; any
 * other: the rest is a GGUF file, one of llama2.c, or a checkpoint of ours.
 *
 * Beyond not crashing: a refusal has a sentence, memory stays below MOST bytes, all of it
 * comes back, and what is accepted can be asked for its configuration.
 */
#define _GNU_SOURCE
#include "architectures/architecture.h"
#include "fuzz_ctx.h"
#include "fuzz_file.h"
#include "model/model.h"
#include "model/store.h"

#define FOLDER "tests/golden/checkpoints/"

static const char *const folders[] = {
    FOLDER "llama", FOLDER "gpt2",   FOLDER "bert-classes", FOLDER "vit",
    FOLDER "t5",    FOLDER "gemma3", FOLDER "marian",       FOLDER "whisper",
    FOLDER "qwen2", FOLDER "roberta", FOLDER "bart"};

enum { FOLDERS = sizeof folders / sizeof folders[0], MOST = 1 << 24 };

/* ---- what must hold ---- */

static void check(ph_status status, ph_model *m)
{
    ph_ctx *ctx = open_ctx();
    REQUIRE((status == PH_OK) == (m != NULL) && status != PH_OUT_OF_MEMORY);
    REQUIRE(status == PH_OK || ph_error(ctx)[0]);
    if (m) REQUIRE(ph_model_config(m)->layers > 0 && ph_model_parameters(m) > 0);
    ph_model_free(m);
}

static void read_config(const char *folder, const uint8_t *data, size_t size)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_checkpoint *c;
    ph_model *m = NULL;
    REQUIRE(ph_checkpoint_open(&c, folder, &io) == PH_OK);
    ph_values_free(&c->values);
    ph_status status =
        ph_values_read(&c->values, folder, "", (const char *)data, size, &io);
    if (status == PH_OK) status = ph_values_sort(&c->values, folder, &io);
    if (status != PH_OK) {
        REQUIRE(error[0]);
        ph_checkpoint_free(c);
        return;
    }
    status = ph_model_import(&m, open_ctx(), c, folder);
    check(status, m);
    if (status != PH_OK) ph_checkpoint_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    open_ctx();
    size_t before = most = in_use;
    if (data[0] < FOLDERS) {
        read_config(folders[data[0]], data + 1, size - 1);
    } else {
        fuzz_file file = fuzz_file_open(data + 1, size - 1);
        ph_model *m = NULL;
        ph_status status = ph_model_read(&m, open_ctx(), file.path);
        check(status, m);
        close(file.fd);
    }
    REQUIRE(in_use == before && most < MOST);
    return 0;
}
