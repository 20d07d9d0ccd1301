/*
 * fuzz_prune.c - any bytes as a plan of heads that are switched off or weakened.
 *
 * What is refused has a sentence. What is accepted holds legal values only, and the same
 * plan comes back when it is written and read again.
 */
#define _GNU_SOURCE
#include "fuzz_file.h"
#include "polyhead_scene.h"

static const ph_reading *open_reading(void)
{
    static const char *const words[] = {"the", "dog", "saw", "a", "cat", "."};
    static ph_ctx *ctx;
    static ph_model *model;
    static ph_reading *reading;
    ph_options options = {.threads = 1};
    ph_config config = {.arch = PH_ARCH_ENCODER_DECODER,
                        .layers = 2,
                        .model_dim = 16,
                        .heads = 4,
                        .max_len = 16};
    if (reading) return reading;
    REQUIRE(ph_open(&ctx, &options) == PH_OK);
    REQUIRE(ph_model_create(&model, ctx, &config, PH_SPLIT_WORDS, words, 6, 7) == PH_OK);
    REQUIRE(ph_reading_create(&reading, model, "the dog", "a cat") == PH_OK);
    return reading;
}

static void check_plan(const ph_prune *plan)
{
    for (int i = 0; i < plan->count; i++) {
        REQUIRE(plan->ablation[i] <= PH_HEAD_MEAN);
        REQUIRE(plan->gates[i] >= 0 && plan->gates[i] <= 1);
    }
}

static void check_round_trip(const ph_prune *plan, const ph_reading *reading)
{
    char path[64];
    ph_prune again;
    snprintf(path, sizeof path, "/dev/shm/fuzz-prune-%ld.json", (long)getpid());
    unlink(path);
    if (ph_prune_write(plan, path, reading, NULL) != PH_OK) return; /* no such folder */
    REQUIRE(ph_prune_read(&again, path, reading, NULL) == PH_OK);
    unlink(path);
    REQUIRE(again.count == plan->count);
    REQUIRE(!memcmp(again.ablation, plan->ablation, (size_t)plan->count));
    REQUIRE(!memcmp(again.gates, plan->gates, (size_t)plan->count * sizeof(float)));
    ph_prune_free(&again, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char sentence[512] = "";
    const ph_io io = {.error = sentence, .error_size = sizeof sentence};
    const ph_reading *reading = open_reading();
    fuzz_file file = fuzz_file_open(data, size);
    ph_prune plan;
    ph_status status = ph_prune_read(&plan, file.path, reading, &io);
    close(file.fd);
    REQUIRE(status == PH_OK || *sentence);
    if (status == PH_OK) {
        check_plan(&plan);
        check_round_trip(&plan, reading);
    }
    ph_prune_free(&plan, &io);
    return 0;
}
