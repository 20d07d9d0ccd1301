/*
 * test_recipes.c - what recipes make: samples that follow from their number alone, tests
 * apart from training, and the first steps of the shipped model, bit for bit.
 */
#define _GNU_SOURCE
#include <math.h>
#include <unistd.h>

#include "check.h"
#include "kernels/kernels.h"
#include "model/train.h"

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    return ctx;
}

/* ---- bits -------------------------------------------------------------------------- */

static uint64_t hash_block(const ph_model *m)
{
    uint64_t h = 1;
    for (size_t i = 0; i < m->floats; i++) {
        uint32_t bits;
        memcpy(&bits, &m->block[i], sizeof bits);
        h = ph_rng_mix(h ^ bits);
    }
    return h;
}

/* The first steps of the training that made models/pronouns.safetensors. The hash is the
   same for every instruction set and any number of threads; but for the level whose
   gradients have bits of their own. */
static void first_steps(void)
{
    enum { STEPS = 3 };
    static const uint64_t expected = 0xbd7bb1cdbf91a421u;
    for (int i = 0; ph_isa_list()[i] && !ph_kernels_pick(ph_isa_list()[i])->f32_tiles;
         i++) {
        ph_ctx *ctx;
        ph_train train;
        ph_trainer *t;
        ph_progress p;
        ph_options options = {.isa = ph_isa_list()[i], .threads = 1 + i};
        CHECK(ph_open(&ctx, &options) == PH_OK, "no %s", ph_isa_list()[i]);
        CHECK(ph_train_defaults(&train, "pronouns") == PH_OK, "no recipe");
        CHECK(ph_trainer_create(&t, ctx, &train) == PH_OK, "%s", ph_error(ctx));
        for (int step = 0; step < STEPS; step++)
            CHECK(ph_trainer_step(t, &p) == PH_OK, "%s", ph_error(ctx));
        uint64_t found = hash_block(ph_trainer_model(t));
        CHECK(found == expected, "%s: hash %016llx, expected %016llx", ph_isa_list()[i],
              (unsigned long long)found, (unsigned long long)expected);
        ph_trainer_free(t);
        ph_close(ctx);
    }
}

/* The shipped model solves what it never saw, in both languages. */
static void shipped(void)
{
    enum { TEXTS = 500, MOST = 64 };
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    ph_data data;
    ph_train train;
    int words[2] = {0, 0}, right[2] = {0, 0};
    CHECK(ph_model_embedded(&m, ctx) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_train_defaults(&train, "pronouns") == PH_OK, "no recipe");
    CHECK(ph_data_open(&data, ctx, &ph_recipe_pronouns, &train, NULL) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(m->config.vocab == data.vocab.count,
          "the shipped model has another vocabulary");
    ph_pass *pass;
    ph_pass_shape shape = {.batch = 1, .source_len = data.source_len};
    CHECK(ph_pass_create(&pass, m, &shape) == PH_OK, "%s", ph_error(ctx));
    for (int n = 0; n < TEXTS; n++) {
        int32_t source[MOST], labels[MOST];
        ph_sample s = {.source = source, .labels = labels};
        ph_recipe_pronouns.sample(&data, ph_rng_key(77, (uint64_t)n, 0, 0), 1, &s);
        ph_batch batch = {.source = source, .source_lens = &s.length, .labels = labels};
        CHECK(ph_pass_forward(pass, &batch, 0) == PH_OK, "%s", ph_error(ctx));
        int chinese = (unsigned char)ph_model_token(m, source[0])[0] > 127;
        for (int i = 0; i < s.length; i++) {
            const float *p = pass->links->p + i * data.source_len;
            int best = 0;
            for (int j = 1; j < s.length; j++)
                if (p[j] > p[best]) best = j;
            words[chinese]++;
            right[chinese] += best == labels[i] % data.source_len;
        }
    }
    for (int l = 0; l < 2; l++)
        CHECK(right[l] > 0.99 * words[l], "%s: %d of %d links right",
              l ? "Chinese" : "English", right[l], words[l]);
    ph_pass_free(pass);
    ph_data_close(&data, &ph_recipe_pronouns);
    ph_model_free(m);
    ph_close(ctx);
}

/* ---- samples ----------------------------------------------------------------------- */

/* No test sample appears among many of training. */
static void apart(void)
{
    enum { TRAINING = 20000, TESTS = 300, MOST = 64 };
    static const char *const names[] = {"copy", "pronouns"};
    for (int r = 0; r < 2; r++) {
        ph_ctx *ctx = open_ctx();
        ph_data data;
        ph_train train;
        const ph_recipe *recipe = ph_recipe_find(names[r]);
        static uint64_t seen[TRAINING];
        int32_t source[MOST], target[MOST], labels[MOST];
        ph_sample s = {.source = source, .target = target, .labels = labels};
        CHECK(ph_train_defaults(&train, names[r]) == PH_OK, "no recipe");
        CHECK(ph_data_open(&data, ctx, recipe, &train, NULL) == PH_OK, "%s",
              ph_error(ctx));
        for (int n = 0; n < TRAINING + TESTS; n++) {
            uint64_t h = 1;
            recipe->sample(&data, ph_rng_key(3, (uint64_t)n, 0, 0), n >= TRAINING, &s);
            for (int i = 0; i < s.length; i++) h = ph_rng_mix(h + (uint64_t)source[i]);
            if (n < TRAINING) seen[n] = h;
            for (int k = 0; n >= TRAINING && k < TRAINING; k++)
                CHECK(seen[k] != h, "%s: test %d is sample %d", names[r], n, k);
        }
        ph_data_close(&data, recipe);
        ph_close(ctx);
    }
}

/* Every date is what its ISO form says. */
static void dates(void)
{
    ph_ctx *ctx = open_ctx();
    ph_data data;
    ph_train train;
    int32_t source[64], target[64], labels[64];
    ph_sample s = {.source = source, .target = target, .labels = labels};
    CHECK(ph_train_defaults(&train, "dates") == PH_OK, "no recipe");
    CHECK(ph_data_open(&data, ctx, &ph_recipe_dates, &train, NULL) == PH_OK, "%s",
          ph_error(ctx));
    for (int n = 0; n < 2000; n++) {
        char text[128] = "", iso[32] = "", year[8];
        ph_recipe_dates.sample(&data, ph_rng_key(5, (uint64_t)n, 0, 0), n & 1, &s);
        for (int i = 0; i < s.length; i++) strcat(text, data.vocab.text[source[i]]);
        for (int i = 0; i < 10; i++) strcat(iso, data.vocab.text[labels[i]]);
        CHECK(labels[10] == PH_TOKEN_END && target[0] == PH_TOKEN_START, "marks");
        for (int i = 0; i < s.length; i++)
            CHECK(source[i] > PH_TOKEN_UNKNOWN, "unknown sign in %s", text);
        snprintf(year, sizeof year, "%.4s", iso);
        CHECK(strstr(text, year), "%s and %s", text, iso);
        CHECK(iso[4] == '-' && iso[7] == '-', "%s", iso);
    }
    ph_data_close(&data, &ph_recipe_dates);
    ph_close(ctx);
}

/* Two passes of half a batch give the gradients of one, but for rounding. */
static void accumulation(void)
{
    ph_ctx *ctx = open_ctx();
    float *first = NULL;
    for (int passes = 1; passes <= 2; passes++) {
        ph_train train;
        ph_trainer *t;
        ph_progress p;
        CHECK(ph_train_defaults(&train, "copy") == PH_OK, "no recipe");
        train.batch = 8 / passes, train.accumulate = passes;
        train.config.layers = 1, train.config.model_dim = 16, train.config.ff_dim = 16;
        CHECK(ph_trainer_create(&t, ctx, &train) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_trainer_step(t, &p) == PH_OK, "%s", ph_error(ctx));
        size_t floats = t->model->floats;
        if (!first) {
            first = malloc(floats * sizeof *first);
            memcpy(first, t->grads, floats * sizeof *first);
        }
        for (size_t i = 0; i < floats; i++)
            CHECK(fabsf(first[i] - t->grads[i]) < 1e-6f, "float %zu: %g and %g", i,
                  (double)first[i], (double)t->grads[i]);
        ph_trainer_free(t);
    }
    free(first);
    ph_close(ctx);
}

/* A program that offers recipes finds them all by number, with a sentence each. */
static void listed(void)
{
    ph_train train;
    int count = 0;
    for (; ph_recipe_name(count); count++) {
        const char *help = ph_recipe_help(count);
        CHECK(help && strlen(help) > 20, "%s: no sentence", ph_recipe_name(count));
        CHECK(ph_train_defaults(&train, ph_recipe_name(count)) == PH_OK, "%s: unknown",
              ph_recipe_name(count));
    }
    CHECK(count == 5, "%d recipes", count);
    CHECK(!ph_recipe_help(count) && !ph_recipe_help(-1) && !ph_recipe_name(-1),
          "a recipe behind the last or before the first");
    CHECK(ph_train_defaults(&train, "copies") == PH_UNSUPPORTED, "a recipe from nowhere");
}

/* Thirty lines "number TAB number", the last with `tail` behind it. */
static void write_pairs(const char *path, const char *tail)
{
    FILE *file = fopen(path, "w");
    CHECK(file, "%s cannot be written", path);
    for (int i = 0; i < 30; i++)
        fprintf(file, "%d\t%d%s\n", i, i * i, i == 29 ? tail : "");
    fclose(file);
}

/* Begins training on the file, with a new model or one whose vocabulary is `tokens`. */
static ph_status begin_pairs(ph_ctx *ctx, const char *path, const char *const *tokens,
                             int count, ph_trainer **out)
{
    ph_train train;
    ph_model *model = NULL;
    CHECK(ph_train_defaults(&train, "pairs") == PH_OK, "no recipe");
    snprintf(train.file, sizeof train.file, "%s", path);
    train.batch = 2;
    if (tokens)
        CHECK(ph_model_create(&model, ctx, &train.config, PH_SPLIT_CHARS, tokens, count,
                              1) == PH_OK,
              "%s", ph_error(ctx));
    return ph_trainer_begin(out, ctx, &train, model);
}

/* The TAB between two texts is no sign of either. A model that was begun when it counted
   as one goes on with it. */
static void tabs(void)
{
    static const char *const digits[] = {"0", "1", "2", "3", "4", "5",
                                         "6", "7", "8", "9", "\t"};
    char path[] = "/tmp/test_recipes.XXXXXX";
    ph_ctx *ctx = open_ctx();
    ph_trainer *t;
    ph_progress p;
    close(mkstemp(path));
    for (int old = 0; old < 2; old++) {
        write_pairs(path, "");
        CHECK(begin_pairs(ctx, path, old ? digits : NULL, 11, &t) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(t->model->config.vocab == PH_TOKEN_FIRST + 10 + old, "%d tokens",
              t->model->config.vocab);
        CHECK(t->data.vocab.count == t->model->config.vocab, "%d tokens in the data",
              t->data.vocab.count);
        CHECK(ph_trainer_step(t, &p) == PH_OK, "%s", ph_error(ctx));
        ph_trainer_free(t);
        write_pairs(path, "\t7");
        ph_status status = begin_pairs(ctx, path, old ? digits : NULL, 11, &t);
        CHECK(old ? status == PH_OK
                  : status == PH_BAD_FILE && strstr(ph_error(ctx), "line 30: more than"),
              "status %d, %s", status, ph_error(ctx));
        ph_trainer_free(t);
    }
    remove(path);
    ph_close(ctx);
}

static const check_case cases[] = {{"first_steps", first_steps},
                                   {"listed", listed},
                                   {"shipped", shipped},
                                   {"apart", apart},
                                   {"dates", dates},
                                   {"accumulation", accumulation},
                                   {"tabs", tabs},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
