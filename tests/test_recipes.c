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
#include "polyhead_picture.h"

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
    static const uint64_t expected = 0xa8c714eb26bacca9u;
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
        const int32_t offsets[] = {0, s.length};
        ph_batch batch = {.source = source, .source_offsets = offsets, .labels = labels};
        CHECK(ph_pass_forward(pass, &batch, 0) == PH_OK, "%s", ph_error(ctx));
        int chinese = (unsigned char)ph_model_token(m, source[0])[0] > 127;
        for (int i = 0; i < s.length; i++) {
            const float *p = pass->links->p + i * data.source_len;
            int best = 0;
            for (int j = 1; j < s.length; j++)
                if (p[j] > p[best]) best = j;
            words[chinese]++;
            right[chinese] += best == labels[i];
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

/* Answers to unseen sentences that are right, in per cent, with some heads off. changed:
   answers that are another one than `before`, which is filled where all heads are on. */
static double answers(ph_reading *const *readings, const ph_sentence *sentences,
                      int count, const uint8_t *off, int (*before)[PH_SENTENCE_WORDS],
                      int *changed)
{
    float p[PH_SENTENCE_WORDS * PH_SENTENCE_WORDS];
    int right = 0, words = 0;
    *changed = 0;
    for (int n = 0; n < count; n++) {
        int len = ph_reading_length(readings[n], 0);
        CHECK(ph_reading_run(readings[n], off, 0) == PH_OK, "a run failed");
        ph_reading_links(readings[n], p);
        for (int i = 0; i < len; i++) {
            int best = 0;
            for (int j = 1; j < len; j++)
                if (p[i * len + j] > p[i * len + best]) best = j;
            if (!off) before[n][i] = best;
            words++, right += best == sentences[n].link[i];
            *changed += best != before[n][i];
        }
    }
    return 100.0 * right / words;
}

/* Attention in the encoder does the work, and no two heads the same: without all of its
   heads the answers collapse, and four or more change some answer when they alone are
   off. */
static void heads_matter(void)
{
    enum { TEXTS = 60, HEADS_MOST = 64 };
    static ph_sentence sentences[TEXTS];
    static int before[TEXTS][PH_SENTENCE_WORDS];
    ph_reading *readings[TEXTS];
    uint8_t off[HEADS_MOST] = {0};
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    ph_sentences *list;
    int changed, telling = 0;
    CHECK(ph_model_embedded(&m, ctx) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_sentences_create(&list, ctx) == PH_OK, "%s", ph_error(ctx));
    for (int n = 0; n < TEXTS; n++) {
        ph_sentences_get(list, (uint64_t)n, &sentences[n]);
        CHECK(ph_reading_create(&readings[n], m, sentences[n].text, NULL) == PH_OK, "%s",
              ph_error(ctx));
    }
    int heads = ph_model_config(m)->layers * ph_model_config(m)->heads;
    double all = answers(readings, sentences, TEXTS, NULL, before, &changed);
    CHECK(all > 98 && changed == 0, "%.1f %% right", all);
    for (int h = 0; h < heads; h++) {
        off[h] = PH_HEAD_ZERO;
        answers(readings, sentences, TEXTS, off, before, &changed);
        telling += changed > 0;
        off[h] = PH_HEAD_ON;
    }
    CHECK(telling >= 4, "only %d of %d heads change an answer alone", telling, heads);
    memset(off, PH_HEAD_ZERO, (size_t)heads);
    double none = answers(readings, sentences, TEXTS, off, before, &changed);
    CHECK(none < 60, "%.1f %% right without the encoder's heads", none);
    for (int n = 0; n < TEXTS; n++) ph_reading_free(readings[n]);
    ph_sentences_free(list);
    ph_model_free(m);
    ph_close(ctx);
}

/* The words of a sentence, cut at blanks; returns how many. */
static int cut(char *text, const char *words[PH_SENTENCE_WORDS])
{
    int count = 0;
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " ")) words[count++] = at;
    return count;
}

/* Relations follow from all links and the classes of words, nearly always. */
static void relations(void)
{
    enum { TEXTS = 500 };
    ph_ctx *ctx = open_ctx();
    ph_sentences *list;
    int links = 0, same = 0;
    CHECK(ph_sentences_create(&list, ctx) == PH_OK, "%s", ph_error(ctx));
    for (int n = 0; n < TEXTS; n++) {
        ph_sentence s;
        const char *words[PH_SENTENCE_WORDS];
        int found[PH_SENTENCE_WORDS];
        ph_sentences_get(list, (uint64_t)n, &s);
        int count = cut(s.text, words);
        CHECK(ph_relations_of(words, s.link, count, found) == PH_OK, "no memory");
        for (int i = 0; i < count; i++) {
            if (s.link[i] == i) continue;
            links++;
            same += found[i] == s.role[i];
        }
    }
    CHECK(same >= 0.995 * links, "%d of %d relations", same, links);
    ph_sentences_free(list);
    ph_close(ctx);
}

static void check_relations(const char *sentence, const int *links, const char *expected)
{
    char text[256], names[256];
    const char *words[PH_SENTENCE_WORDS], *want[PH_SENTENCE_WORDS];
    int found[PH_SENTENCE_WORDS];
    snprintf(text, sizeof text, "%s", sentence);
    snprintf(names, sizeof names, "%s", expected);
    int count = cut(text, words);
    CHECK(cut(names, want) == count, "%s", sentence);
    CHECK(ph_relations_of(words, links, count, found) == PH_OK, "no memory");
    for (int i = 0; i < count; i++) {
        const char *name = ph_relation_name(found[i]);
        CHECK(!strcmp(name ? name : "-", want[i]), "%s: %s is %s, expected %s", sentence,
              words[i], name ? name : "-", want[i]);
    }
}

static void relation_names(void)
{
    check_relations("the robot picked up the block because it was light",
                    (const int[]){1, 2, 1, 2, 5, 2, 2, 5, 7, 7},
                    "determiner actor actor helper determiner object reason reference "
                    "actor state");
    check_relations("i like coffee", (const int[]){1, 0, 1}, "actor actor object");
    check_relations("the cat sat on the mat", (const int[]){1, 2, 1, 5, 5, 2},
                    "determiner actor actor place determiner place");
    check_relations("anna 's dog isn't as big as quetzals",
                    (const int[]){2, 0, 3, 2, 5, 2, 7, 5},
                    "determiner helper actor actor helper state - -");
    check_relations("hello !", (const int[]){0, 0}, "- clause");
    check_relations("请 打开 窗户", (const int[]){1, 1, 1}, "helper - object");
    CHECK(!ph_relation_name(-1) && !ph_relation_name(1000), "no such relation");
    CHECK(!strcmp(ph_link_name(0, 0.9f), "determiner") &&
              !strcmp(ph_link_name(0, 0.5f), "unsure") && !ph_link_name(-1, 0.9f),
          "names of links");
    CHECK(!strcmp(ph_link_name(4, 0.8f), "unsure") &&
              !strcmp(ph_link_name(4, 0.9f), "reference"),
          "a pronoun needs a clearer answer");
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

/* Every word of the grammars is in the vocabulary, and belongs to a word of its sentence;
   the links of a test are the grammar's, those of training may be mixed up. */
static void sentences_are_whole(void)
{
    enum { TEXTS = 3000, MOST = 64 };
    ph_ctx *ctx = open_ctx();
    ph_data data;
    ph_train train;
    int32_t source[MOST], labels[MOST];
    int mixed = 0;
    CHECK(ph_train_defaults(&train, "pronouns") == PH_OK, "no recipe");
    CHECK(ph_data_open(&data, ctx, &ph_recipe_pronouns, &train, NULL) == PH_OK, "%s",
          ph_error(ctx));
    for (int n = 0; n < TEXTS; n++) {
        ph_sample s = {.source = source, .labels = labels};
        int test = n & 1, unlinked = 0;
        ph_recipe_pronouns.sample(&data, ph_rng_key(6, (uint64_t)n, 0, 0), test, &s);
        for (int i = 0; i < s.length; i++) {
            CHECK(source[i] >= PH_TOKEN_UNKNOWN, "sentence %d: word %d has no token", n,
                  i);
            CHECK(labels[i] >= -1 && labels[i] < s.length, "sentence %d: word %d", n, i);
            unlinked += labels[i] < 0;
        }
        CHECK(!test || !unlinked, "sentence %d: %d words without a link", n, unlinked);
        mixed += unlinked > 0;
    }
    CHECK(mixed > 0 && mixed < TEXTS / 10, "%d sentences are mixed up", mixed);
    ph_data_close(&data, &ph_recipe_pronouns);
    ph_close(ctx);
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
    CHECK(count == 7, "%d recipes", count);
    CHECK(!ph_recipe_help(count) && !ph_recipe_help(-1) && !ph_recipe_name(-1),
          "a recipe behind the last or before the first");
    CHECK(ph_train_defaults(&train, "copies") == PH_UNSUPPORTED, "a recipe from nowhere");
}

/* ---- files ------------------------------------------------------------------------- */

static char path[] = "/tmp/test_recipes.XXXXXX";

static void write_file(const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(bytes, 1, count, file) == count && !fclose(file),
          "%s cannot be written", path);
}

/* `count` lines of `format`, which prints two numbers. */
static void write_lines(int count, const char *format)
{
    static char text[1 << 16];
    size_t used = 0;
    for (int i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, format, i, i * i);
    write_file(text, used);
}

/* A trainer of a small model on the file. */
static ph_status begin(ph_ctx *ctx, const char *recipe, ph_trainer **out)
{
    ph_train train;
    CHECK(ph_train_defaults(&train, recipe) == PH_OK, "no recipe");
    snprintf(train.file, sizeof train.file, "%s", path);
    train.batch = 2;
    train.config.layers = 1, train.config.model_dim = 16, train.config.ff_dim = 16;
    if (!strcmp(recipe, "text")) train.config.max_len = 16;
    return ph_trainer_create(out, ctx, &train);
}

/* TAB, LF and CR LF stand between texts: none of them is a token. */
static void separators(void)
{
    static const char *const formats[] = {"%d\t%d\n", "%d\t%d\r\n"};
    ph_ctx *ctx = open_ctx();
    ph_trainer *t;
    ph_progress p;
    for (int crlf = 0; crlf < 2; crlf++) {
        write_lines(30, formats[crlf]);
        CHECK(begin(ctx, "pairs", &t) == PH_OK, "%s", ph_error(ctx));
        CHECK(t->data.vocab.count == PH_TOKEN_FIRST + 10, "%d tokens",
              t->data.vocab.count);
        CHECK(t->data.target_len == 4, "longest target %d", t->data.target_len);
        CHECK(ph_trainer_step(t, &p) == PH_OK, "%s", ph_error(ctx));
        ph_trainer_free(t);
    }
    write_lines(30, "%d\t%d\t7\n");
    CHECK(begin(ctx, "pairs", &t) == PH_BAD_FILE &&
              strstr(ph_error(ctx), "line 1: more than one TAB"),
          "%s", ph_error(ctx));
    ph_close(ctx);
}

/* What is not valid UTF-8 is tokenized by bytes, and the model can be read again. */
static void not_utf8(void)
{
    static const struct {
        const char *what, *bytes;
    } cases[] = {{"a surrogate in three bytes", "\xed\xa0\xbd\xed\xb8\x80"},
                 {"NUL in three bytes", "\xe0\x80\x80"},
                 {"an overlong slash", "\xc0\xaf"},
                 {"an overlong letter in four bytes", "\xf0\x80\x81\x81"},
                 {"beyond the last code point", "\xf4\x90\x80\x80"},
                 {"half a character", "\xe2\x82"},
                 {"a lone continuation byte", "\x80"}};
    ph_ctx *ctx = open_ctx();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[2000];
        ph_trainer *t;
        ph_model *again;
        ph_progress p;
        size_t length = strlen(cases[i].bytes);
        memset(text, 'a', sizeof text);
        for (size_t at = 0; at + length < sizeof text; at += 10)
            memcpy(text + at, cases[i].bytes, length);
        write_file(text, sizeof text);
        CHECK(begin(ctx, "text", &t) == PH_OK, "%s: %s", cases[i].what, ph_error(ctx));
        CHECK(t->data.split == PH_SPLIT_BYTES, "%s passed for UTF-8", cases[i].what);
        for (int step = 0; step < 3; step++)
            CHECK(ph_trainer_step(t, &p) == PH_OK, "%s: %s", cases[i].what,
                  ph_error(ctx));
        CHECK(ph_model_write(t->model, path) == PH_OK &&
                  ph_model_read(&again, ctx, path) == PH_OK,
              "%s: %s", cases[i].what, ph_error(ctx));
        ph_model_free(again);
        ph_trainer_free(t);
    }
    ph_close(ctx);
}

/* However small the file: tests see no source that training sees, and see some. */
static void held_out(void)
{
    enum { DRAWS = 400, MOST = 64 };
    ph_ctx *ctx = open_ctx();
    for (int start = 0; start < 40; start++) {
        char format[32];
        uint64_t seen[DRAWS];
        int32_t source[MOST], target[MOST], labels[MOST];
        ph_sample s = {.source = source, .target = target, .labels = labels};
        ph_trainer *t;
        snprintf(format, sizeof format, "%d%%d\t%%d\n", start);
        write_lines(20, format);
        CHECK(begin(ctx, "pairs", &t) == PH_OK, "%s", ph_error(ctx));
        for (int n = 0; n < 2 * DRAWS; n++) {
            uint64_t h = 1;
            t->recipe->sample(&t->data, ph_rng_key(3, (uint64_t)n, 0, 0), n >= DRAWS, &s);
            for (int i = 0; i < s.length; i++) h = ph_rng_mix(h + (uint64_t)source[i]);
            if (n < DRAWS) seen[n] = h;
            for (int k = 0; n >= DRAWS && k < DRAWS; k++)
                CHECK(seen[k] != h, "file %d: a test is training sample %d", start, k);
        }
        ph_trainer_free(t);
    }
    ph_trainer *t;
    write_lines(20, "a\t%d\n");
    CHECK(begin(ctx, "pairs", &t) == PH_BAD_FILE &&
              strstr(ph_error(ctx), "same source in every pair"),
          "%s", ph_error(ctx));
    ph_close(ctx);
}

/* ---- shapes ------------------------------------------------------------------------ */

/* The same bytes on every machine, every kind among them; a file of one becomes the
   pixels that training sees. */
static void shapes_drawn(void)
{
    static uint8_t rgb[3 * PH_SHAPE_SIDE * PH_SHAPE_SIDE];
    static float pixels[sizeof rgb];
    int counts[6] = {0};
    uint64_t hash = 1;
    for (int i = 0; i < 60; i++) {
        int kind = ph_shape_draw((uint64_t)i, rgb);
        CHECK(kind >= 0 && kind < 6, "kind %d", kind);
        counts[kind]++;
        for (size_t k = 0; k < sizeof rgb; k++) hash = ph_rng_mix(hash ^ rgb[k]);
    }
    CHECK(hash == 0x43cd44cbda0a96aau, "the pictures have changed: %016llx",
          (unsigned long long)hash);
    for (int i = 0; i < 6; i++)
        CHECK(counts[i] > 2, "%d of %s", counts[i], ph_shape_name(i));
    CHECK(!ph_shape_name(6) && !ph_shape_name(-1), "a name behind the last");
    ph_ctx *ctx = open_ctx();
    ph_train train;
    ph_trainer *t;
    CHECK(ph_train_defaults(&train, "shapes") == PH_OK, "no recipe");
    CHECK(ph_trainer_create(&t, ctx, &train) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_picture_write(path, rgb, PH_SHAPE_SIDE, PH_SHAPE_SIDE, NULL) == PH_OK,
          "PNG");
    CHECK(ph_model_open_picture(t->model, path, pixels) == PH_OK, "%s", ph_error(ctx));
    for (size_t k = 0; k < sizeof rgb; k++) {
        size_t plane = PH_SHAPE_SIDE * PH_SHAPE_SIDE, c = k / plane;
        float level = (rgb[3 * (k % plane) + c] * (1.0f / 255) - 0.5f) / 0.5f;
        CHECK(pixels[k] == level, "pixel %zu is %g, not %g", k, (double)pixels[k],
              (double)level);
    }
    ph_trainer_free(t);
    ph_close(ctx);
}

/* Steps have the same bits with any number of threads, a test on fewer pictures than a
   batch counts those, and the names of shapes are the model's classes. */
static void shapes_trained(void)
{
    uint64_t hashes[2];
    for (int i = 0; i < 2; i++) {
        ph_ctx *ctx;
        ph_train train;
        ph_trainer *t;
        ph_progress p;
        ph_score score;
        CHECK(ph_open(&ctx, &(ph_options){.threads = 1 + i}) == PH_OK, "ph_open failed");
        CHECK(ph_train_defaults(&train, "shapes") == PH_OK, "no recipe");
        train.batch = 4, train.accumulate = 2;
        CHECK(ph_trainer_create(&t, ctx, &train) == PH_OK, "%s", ph_error(ctx));
        for (int s = 0; s < 3; s++)
            CHECK(ph_trainer_step(t, &p) == PH_OK && p.tokens == 8, "%s", ph_error(ctx));
        CHECK(ph_trainer_test(t, 6, &score) == PH_OK && score.texts == 6, "%s",
              ph_error(ctx));
        CHECK(score.token_accuracy == score.exact_match, "two accuracies");
        CHECK(!strcmp(ph_model_class(t->model, 4), "star"), "class 4 is %s",
              ph_model_class(t->model, 4));
        hashes[i] = hash_block(t->model);
        ph_trainer_free(t);
        ph_close(ctx);
    }
    CHECK(hashes[0] == hashes[1], "other bits with two threads");
}

static const check_case cases[] = {{"first_steps", first_steps},
                                   {"listed", listed},
                                   {"shipped", shipped},
                                   {"heads_matter", heads_matter},
                                   {"relations", relations},
                                   {"relation_names", relation_names},
                                   {"sentences_are_whole", sentences_are_whole},
                                   {"apart", apart},
                                   {"dates", dates},
                                   {"accumulation", accumulation},
                                   {"separators", separators},
                                   {"not_utf8", not_utf8},
                                   {"held_out", held_out},
                                   {"shapes_drawn", shapes_drawn},
                                   {"shapes_trained", shapes_trained},
                                   {0, 0}};

int main(int argc, char **argv)
{
    close(mkstemp(path));
    int rc = check_main(argc, argv, cases);
    remove(path);
    return rc;
}
