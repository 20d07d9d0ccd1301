/*
 * test_run_chunks.c - layer mode of `polyhead run` over long texts: a causal forward pass
 * runs in chunks of rows, with the bits of one call and less memory.
 */
#include <stdlib.h>

#include "check.h"
#include "run_trial.h"
#include "sanitized.h"

enum { LONG = 1500, MODEL = 16 }; /* tokens: a chunk and a part of one */

static float x[2 * LONG * MODEL], w[4][MODEL * MODEL], gain[MODEL];
static uint16_t x_16[2 * LONG * MODEL];

/* Two batch rows, 4 heads of 4, 2 key heads, 1 value head. */
static trial make(ph_dtype type)
{
    uint64_t state = check_seed;
    trial t = {0};
    for (int i = 0; i < 2 * LONG * MODEL; i++) {
        uint32_t bits;
        x[i] = check_normal(&state);
        memcpy(&bits, &x[i], sizeof bits);
        x_16[i] = (uint16_t)(bits >> 16);
    }
    for (int i = 0; i < 4 * MODEL * MODEL; i++)
        w[i / (MODEL * MODEL)][i % (MODEL * MODEL)] = check_normal(&state) / 4;
    for (int i = 0; i < MODEL; i++) gain[i] = 1 + (float)i / MODEL;
    const void *data = type == PH_F32 ? (const void *)x : x_16;
    trial_add(&t, "x", type, data, 2, LONG, MODEL, -1);
    trial_add(&t, "wq", PH_F32, w[0], MODEL, 16, -1, -1);
    trial_add(&t, "wk", PH_F32, w[1], MODEL, 8, -1, -1);
    trial_add(&t, "wv", PH_F32, w[2], MODEL, 4, -1, -1);
    trial_add(&t, "wo", PH_F32, w[3], 16, 12, -1, -1);
    return t;
}

static void same_tensor(const trial_result *a, const trial_result *b, const char *name,
                        const char *words)
{
    const ph_tensor *one = ph_file_find(a->out, name), *two = ph_file_find(b->out, name);
    CHECK(one && two && one->bytes == two->bytes, "%s: no %s", words, name);
    CHECK(!memcmp(one->data, two->data, one->bytes), "%s: %s differs", words, name);
}

/* --stats sums over all rows, so that it takes one call over the whole text. */
static void same_bits_as(const trial *t, const char *words)
{
    char stats[200];
    snprintf(stats, sizeof stats, "%s --stats", words);
    trial_result chunks = trial_run(t, words), whole = trial_run(t, stats);
    CHECK(chunks.code == 0 && whole.code == 0, "%s%s", chunks.said, whole.said);
    same_tensor(&chunks, &whole, "out", words);
    same_tensor(&chunks, &whole, "lse", words);
    trial_free(&chunks);
    trial_free(&whole);
}

#define HEADS "--heads 4 --k-heads 2 --v-heads 1 "

static void same_bits(void)
{
    static const float slopes[] = {0.5f, 0.25f, 0.125f, 0.0625f}, sink[] = {0, 1, 2, -1};
    trial t = make(PH_F32);
    same_bits_as(&t, HEADS "--causal");
    same_bits_as(&t, HEADS "--causal --offset 0 --rope 10000 --threads 3");
    same_bits_as(&t, HEADS "--window 40,0 --dtype bf16");
    trial_add(&t, "alibi", PH_F32, slopes, 4, -1, -1, -1);
    trial_add(&t, "sink", PH_F32, sink, 4, -1, -1, -1);
    trial_add(&t, "gate", PH_F32, slopes, 4, -1, -1, -1);
    trial_add(&t, "q_norm", PH_F32, gain, 4, -1, -1, -1);
    trial_add(&t, "k_norm", PH_F32, gain, 4, -1, -1, -1);
    same_bits_as(&t, HEADS "--causal --qk-norm --softcap 3");
    static float k_cache[2 * 2 * (LONG + 5) * 4], v_cache[2 * (LONG + 5) * 4];
    static const int32_t past[] = {5, 3};
    for (int i = 0; i < 20; i++) k_cache[i] = v_cache[i] = (float)i / 20;
    t = make(PH_F32);
    trial_add(&t, "past", PH_I32, past, 2, -1, -1, -1);
    trial_add(&t, "k_cache", PH_F32, k_cache, 2, 2, LONG + 5, 4);
    trial_add(&t, "v_cache", PH_F32, v_cache, 2, 1, LONG + 5, 4);
    same_bits_as(&t, HEADS "--causal"); /* x comes after a cache of IN */
    t = make(PH_BF16);
    same_bits_as(&t, HEADS "--causal --rope 10000,interleaved");
}

/* k, v, and of x and out together as much as one: with the program below 4 times x. */
static void memory(void)
{
    enum { LEN = 16384, DIM = 256 };
    if (SANITIZED) SKIP("a sanitizer has memory of its own");
    const size_t count = (size_t)LEN * DIM, bytes = count * sizeof(float);
    float *data = calloc(count, sizeof *data);
    for (size_t i = 0; i < count; i++) data[i] = (float)(i % 31) / 31;
    trial t = {0};
    trial_add(&t, "x", PH_F32, data, 1, LEN, DIM, -1);
    trial_add(&t, "wq", PH_F32, data, DIM, DIM, -1, -1);
    trial_add(&t, "wk", PH_F32, data, DIM, DIM, -1, -1);
    trial_add(&t, "wv", PH_F32, data, DIM, DIM, -1, -1);
    trial_add(&t, "wo", PH_F32, data, DIM, DIM, -1, -1);
    trial_result r = trial_run(&t, "--heads 4 --window 16,0 --threads 2");
    CHECK(r.code == 0, "%s", r.said);
    CHECK(r.peak < 4 * bytes, "%zu MB for x of %zu MB", r.peak >> 20, bytes >> 20);
    trial_free(&r);
    free(data);
}

static const check_case cases[] = {{"same_bits", same_bits}, {"memory", memory}, {0, 0}};

int main(int argc, char **argv)
{
    if (trial_begin() != 0) return 1;
    int failed = check_main(argc, argv, cases);
    trial_end();
    return failed;
}
