/*
 * test_joined.c - tokens joined to words: which are one word, columns that add up, rows
 * that are means, with and without causality, on both texts of an encoder-decoder.
 */
#include <math.h>

#include "check.h"
#include "polyhead_scene.h"
#include "view/page.h"

static ph_ctx *ctx;

typedef struct bed {
    ph_model *model;
    ph_reading *reading;
    ph_scene *scene;
    ph_joined *joined;
    ph_report tokens, words;
} bed;

/* Tokens are characters. */
static void open_bed(bed *b, ph_arch arch, const char *text, const char *target)
{
    static const char *const letters[] = {"x",       "y", "z", " ", ",", "\xe6\xbc\xa2",
                                          "\xc3\xa9"};
    const ph_config config = {.arch = arch,
                              .layers = 2,
                              .model_dim = 16,
                              .heads = 2,
                              .max_len = 64,
                              .classes = arch == PH_ARCH_ENCODER ? 2 : 0,
                              .pooling = arch == PH_ARCH_ENCODER ? PH_POOL_MEAN : 0,
                              .positions = arch == PH_ARCH_DECODER ? PH_POS_ROPE
                                                                   : PH_POS_SINUSOIDAL};
    memset(b, 0, sizeof *b);
    if (!ctx) CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_model_create(&b->model, ctx, &config, PH_SPLIT_CHARS, letters, 7, 3) ==
              PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_reading_create(&b->reading, b->model, text, target) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_scene_create(&b->scene, b->model, b->reading, "title", text, target, NULL) ==
              PH_OK,
          "no scene");
    CHECK(ph_joined_create(&b->joined, b->scene, NULL) == PH_OK, "not joined");
    b->tokens = ph_scene_report(b->scene), b->words = ph_joined_report(b->joined);
    CHECK(ph_report_check(&b->words, NULL) == PH_OK, "no report that can be drawn");
}

static void close_bed(bed *b)
{
    ph_joined_free(b->joined);
    ph_scene_free(b->scene);
    ph_reading_free(b->reading);
    ph_model_free(b->model);
}

static void check_axis(const ph_axis *axis, const char *const *expected, int count)
{
    int first = axis->count > count ? axis->count - count : 0; /* behind marks */
    CHECK(axis->count >= count && axis->count <= count + 2, "%d words", axis->count);
    while (first > 0 && strcmp(axis->tokens[first], expected[0])) first--;
    for (int i = 0; i < count; i++)
        CHECK(!strcmp(axis->tokens[first + i], expected[i]), "word %d is \"%s\"", i,
              axis->tokens[first + i]);
}

/* Which word a token belongs to: spellings of words are those of their tokens. */
static void find_words(const ph_axis *tokens, const ph_axis *words, int *word)
{
    size_t at = 0;
    for (int t = 0, w = 0; t < tokens->count; t++) {
        if (at == strlen(words->tokens[w])) w++, at = 0;
        CHECK(w < words->count && !strncmp(words->tokens[w] + at, tokens->tokens[t],
                                           strlen(tokens->tokens[t])),
              "token %d", t);
        at += strlen(tokens->tokens[t]);
        word[t] = w;
    }
}

enum { MOST = 64 };

/* Every head of a stack, against sums in double. */
static void check_stack(const bed *b, int stack)
{
    const ph_stack *k = &b->words.stacks[stack];
    const ph_axis *q = &b->tokens.axes[k->q_axis], *c = &b->tokens.axes[k->k_axis];
    const int rows = b->words.axes[k->q_axis].count,
              keys = b->words.axes[k->k_axis].count;
    int row_of[MOST], key_of[MOST], length[MOST] = {0};
    float weights[MOST * MOST], joined[MOST * MOST];
    CHECK(k->qk_dim == 0 && !k->value_norm && !b->words.vectors, "vectors of words");
    find_words(q, &b->words.axes[k->q_axis], row_of);
    find_words(c, &b->words.axes[k->k_axis], key_of);
    for (int t = 0; t < q->count; t++) length[row_of[t]]++;
    for (int n = 0; n < k->layers * k->heads; n++) {
        double sums[MOST][MOST] = {{0}};
        const int layer = n / k->heads, head = n % k->heads;
        CHECK(!b->tokens.weights(b->tokens.user, stack, layer, head, 0, q->count,
                                 weights) &&
                  !b->words.weights(b->words.user, stack, layer, head, 0, rows, joined),
              "no weights");
        for (int t = 0; t < q->count; t++)
            for (int j = 0; j < c->count; j++)
                if (!k->causal || j <= t)
                    sums[row_of[t]][key_of[j]] +=
                        (double)weights[t * c->count + j] / length[row_of[t]];
        for (int i = 0; i < rows; i++) {
            double total = 0;
            for (int j = 0; j < keys; j++) {
                total += (double)joined[i * keys + j];
                CHECK(fabs(sums[i][j] - (double)joined[i * keys + j]) < 1e-6,
                      "head %d, word %d, key %d: %g, expected %g", n, i, j,
                      (double)joined[i * keys + j], sums[i][j]);
            }
            CHECK(fabs(total - 1) < 1e-5, "head %d, word %d adds up to %g", n, i, total);
        }
        /* a part of the rows alone */
        CHECK(
            !b->words.weights(b->words.user, stack, layer, head, rows - 1, 1, weights) &&
                !memcmp(weights, joined + (rows - 1) * keys,
                        (size_t)keys * sizeof *joined),
            "the last row alone");
    }
}

static void encoders(void)
{
    static const char *const expected[] = {
        "xy", " ", "z\xc3\xa9x", ",", "y", "\xe6\xbc\xa2", "\xe6\xbc\xa2", "z"};
    bed b;
    open_bed(&b, PH_ARCH_ENCODER, "xy z\xc3\xa9x,y\xe6\xbc\xa2\xe6\xbc\xa2z", NULL);
    check_axis(&b.words.axes[0], expected, 8);
    for (int k = 0; k < b.words.stack_count; k++) check_stack(&b, k);
    close_bed(&b);
}

static void decoders(void)
{
    static const char *const expected[] = {"xyz", " ", "x", ",", " ", "yyyy"};
    bed b;
    open_bed(&b, PH_ARCH_DECODER, "xyz x, yyyy", NULL);
    check_axis(&b.words.axes[0], expected, 6);
    CHECK(b.words.stacks[0].causal, "not causal");
    for (int k = 0; k < b.words.stack_count; k++) check_stack(&b, k);
    close_bed(&b);
}

static void both(void)
{
    static const char *const source[] = {"xyz", " ", "zxy"},
                             *target[] = {"yy", ",", "xz"};
    bed b;
    open_bed(&b, PH_ARCH_ENCODER_DECODER, "xyz zxy", "yy,xz");
    check_axis(&b.words.axes[0], source, 3);
    check_axis(&b.words.axes[1], target, 3);
    CHECK(b.words.stack_count == 3, "%d stacks", b.words.stack_count);
    for (int k = 0; k < b.words.stack_count; k++) check_stack(&b, k);
    close_bed(&b);
}

static void refusals(void)
{
    char said[200] = "";
    const ph_io io = {.error = said, .error_size = sizeof said};
    ph_model *model = NULL;
    ph_reading *reading = NULL;
    ph_scene *scene = NULL;
    ph_joined *joined = NULL;
    if (!ctx) CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    CHECK(!ph_model_embedded(&model, ctx) &&
              !ph_reading_create(&reading, model, "the dog", NULL) &&
              !ph_scene_create(&scene, model, reading, NULL, "the dog", NULL, NULL),
          "%s", ph_error(ctx));
    CHECK(ph_joined_create(&joined, scene, &io) == PH_UNSUPPORTED && !joined &&
              strstr(said, "reads whole words"),
          "%s", said);
    ph_scene_free(scene);
    ph_reading_free(reading);
    ph_model_free(model);
}

static const check_case cases[] = {
    {"encoders", encoders},
    {"decoders", decoders},
    {"both", both},
    {"refusals", refusals},
    {0, 0},
};

int main(int argc, char **argv)
{
    int rc = check_main(argc, argv, cases);
    ph_close(ctx);
    return rc;
}
