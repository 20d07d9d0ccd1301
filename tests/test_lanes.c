/*
 * test_lanes.c - threads that each run texts or pictures of their own through an encoder
 * give the bits of one thread, also after the model has changed.
 */
#include "check.h"
#include "model/model.h"
#include "polyhead_prune.h"

#define FOLDER "tests/golden/checkpoints/"

enum { TEXTS = 41, PICTURES = 11, THREADS_MOST = 5, FLOATS = 1 << 16 };

static ph_model *open_model(const char *path, int threads)
{
    ph_ctx *ctx;
    ph_model *m;
    ph_options options = {.threads = threads};
    CHECK(ph_open(&ctx, &options) == PH_OK, "ph_open failed");
    CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
    return m;
}

static void close_model(ph_model *m)
{
    ph_ctx *ctx = m->ctx;
    ph_model_free(m);
    ph_close(ctx);
}

/* Vectors of `count` texts of many lengths, or of pictures. */
static size_t run(const ph_model *m, int count, float *out)
{
    static const char words[] = "the cat sat on the mat the dog is good a b c d e f g";
    const ph_config *c = &m->config;
    size_t each = (size_t)(c->channels * c->image_size * c->image_size);
    ph_status status;
    if (c->image_size) {
        float *pixels = malloc((size_t)count * each * sizeof *pixels);
        for (size_t i = 0; i < (size_t)count * each; i++)
            pixels[i] = (float)(i * 7 % 97) / 97;
        status = ph_model_pictures(m, pixels, count, out, NULL);
        free(pixels);
    } else {
        const char *texts[TEXTS];
        for (int i = 0; i < count; i++) texts[i] = words + i * 11 % 50;
        status = ph_model_embed(m, &(ph_texts){.texts = texts, .count = count}, out);
    }
    CHECK(status == PH_OK, "%s", ph_error(m->ctx));
    CHECK((size_t)count * (size_t)c->model_dim <= FLOATS, "too many floats");
    return (size_t)count * (size_t)c->model_dim;
}

static void compare(const ph_model *one, const ph_model *many, int count)
{
    static float expected[FLOATS], found[FLOATS];
    size_t floats = run(one, count, expected);
    run(many, count, found);
    CHECK(!memcmp(expected, found, floats * sizeof *found), "%d threads, %d: other bits",
          many->ctx->threads, count);
}

/* Fewer than threads, as many, and counts that leave some over. */
static void bits(void)
{
    static const char *const names[] = {FOLDER "bert-sentence", FOLDER "vit-plain"};
    for (int i = 0; i < 2; i++) {
        ph_model *one = open_model(names[i], 1);
        int most = i ? PICTURES : TEXTS;
        for (int threads = 2; threads <= THREADS_MOST; threads++) {
            ph_model *many = open_model(names[i], threads);
            compare(one, many, threads - 1);
            CHECK(!many->lanes, "%d threads: lanes for fewer items", threads);
            compare(one, many, threads);
            CHECK(many->lanes, "%d threads: no lanes", threads);
            compare(one, many, most);
            compare(one, many, most - threads + 1);
            close_model(many);
        }
        close_model(one);
    }
}

/* Lanes are copies of the model, and must not stay what it was. */
static void changes(void)
{
    ph_model *m[2] = {open_model(FOLDER "bert-sentence", 1),
                      open_model(FOLDER "bert-sentence", 3)};
    int heads = m[0]->head_count;
    float *gates = calloc((size_t)heads, sizeof *gates);
    uint8_t *removed = calloc((size_t)heads, 1);
    for (int h = 0; h < heads; h++) gates[h] = 1 / (float)(h + 1);
    removed[1] = 1;
    compare(m[0], m[1], TEXTS);
    for (int i = 0; i < 2; i++)
        CHECK(ph_model_gate(m[i], gates) == PH_OK, "%s", ph_error(m[i]->ctx));
    compare(m[0], m[1], TEXTS);
    for (int i = 0; i < 2; i++)
        CHECK(ph_model_remove(m[i], removed) == PH_OK, "%s", ph_error(m[i]->ctx));
    CHECK(!m[1]->lanes, "lanes of the model before");
    compare(m[0], m[1], TEXTS);
    free(gates);
    free(removed);
    close_model(m[0]);
    close_model(m[1]);
}

static void *count_alloc(void *user, size_t bytes)
{
    ++*(int *)user; /* a race if two threads came here */
    return malloc(bytes);
}

static void count_release(void *user, void *ptr)
{
    --*(int *)user;
    free(ptr);
}

/* Hooks of the caller are called by one thread at a time. */
static void hooks(void)
{
    static float out[FLOATS];
    int blocks = 0;
    ph_ctx *ctx;
    ph_model *m;
    ph_options options = {
        .threads = 3, .alloc = count_alloc, .release = count_release, .user = &blocks};
    CHECK(ph_open(&ctx, &options) == PH_OK, "ph_open failed");
    CHECK(ph_model_read(&m, ctx, FOLDER "bert-sentence") == PH_OK, "%s", ph_error(ctx));
    run(m, TEXTS, out);
    CHECK(!m->lanes, "lanes with hooks of the caller");
    close_model(m);
    CHECK(blocks == 0, "%d blocks are left", blocks);
}

static const check_case cases[] = {
    {"bits", bits}, {"changes", changes}, {"hooks", hooks}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
