/*
 * test_reading_pass.c - readings that hold one attention site at a time: the weights of
 * every site, and the measures of every head, are those of a reading that holds all, in
 * every bit, whatever the threads and whoever allocates; with less memory.
 */
#include <math.h>

#include "check.h"
#include "polyhead_heads.h"
#include "polyhead_scene.h"

enum { WORDS = 6, LONGEST = 240 };

static const char *const words[WORDS] = {"the", "dog", "saw", "a", "cat", "."};

static ph_model *make_model(ph_ctx *ctx, ph_arch arch, const char *variant, int layers)
{
    ph_model *model = NULL;
    ph_config config = {.arch = arch,
                        .layers = layers,
                        .model_dim = 16,
                        .heads = 4,
                        .kv_heads = arch == PH_ARCH_DECODER && !*variant ? 2 : 0,
                        .max_len = LONGEST + 2,
                        .positions =
                            arch == PH_ARCH_DECODER ? PH_POS_ROPE : PH_POS_SINUSOIDAL};
    snprintf(config.variant, sizeof config.variant, "%s", variant);
    CHECK(ph_model_create(&model, ctx, &config, PH_SPLIT_WORDS, words, WORDS, 7) == PH_OK,
          "%s", ph_error(ctx));
    return model;
}

/* More rows than one look makes weights of at once. */
static const char *make_text(int count)
{
    static char text[LONGEST * 5 + 1];
    uint64_t state = 3;
    *text = 0;
    for (int i = 0; i < count; i++) {
        strcat(text, words[check_below(&state, WORDS)]);
        strcat(text, " ");
    }
    return text;
}

static const struct {
    const char *name;
    ph_arch arch;
    const char *variant, *target;
} kinds[] = {{"encoder", PH_ARCH_ENCODER, "", NULL},
             {"decoder", PH_ARCH_DECODER, "", NULL},
             {"both", PH_ARCH_ENCODER_DECODER, "", "a cat saw the dog ."},
             {"talking", PH_ARCH_ENCODER, "talking", NULL},
             {"moh", PH_ARCH_DECODER, "moh:shared=1,top=2", NULL},
             {"mla", PH_ARCH_DECODER, "mla:latent=8", NULL}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- weights ---- */

typedef struct visit {
    ph_reading *whole, *passing;
    int seen; /* sites */
    int end;  /* the site that ends the run, or -1 */
} visit;

static float *weights_of(const ph_reading *r, int site)
{
    const ph_site *s = ph_reading_site(r, site);
    float *all = malloc((size_t)(s->heads * s->q_len * s->kv_len) * sizeof *all);
    CHECK(ph_reading_look(r, site, &(ph_look_at){.weights = all}) == PH_OK,
          "site %d is refused", site);
    return all;
}

static ph_status compare_site(void *user, int site)
{
    visit *v = user;
    const ph_site *s = ph_reading_site(v->whole, site);
    float *want = weights_of(v->whole, site), *got = weights_of(v->passing, site);
    size_t bytes = (size_t)(s->heads * s->q_len * s->kv_len) * sizeof *want;
    CHECK(!memcmp(want, got, bytes), "other weights of site %d", site);
    CHECK(ph_reading_look(v->passing, site ? site - 1 : 1,
                          &(ph_look_at){.weights = got}) == PH_UNSUPPORTED,
          "a site that is not held can be looked at");
    free(want), free(got);
    v->seen++;
    return site == v->end ? PH_IO_ERROR : PH_OK;
}

static void same_weights(void)
{
    ph_ctx *ctx = NULL;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    for (int n = 0; n < KINDS; n++) {
        const char *text = make_text(20), *target = kinds[n].target;
        ph_model *m = make_model(ctx, kinds[n].arch, kinds[n].variant, 3);
        visit v = {.end = -1};
        CHECK(ph_reading_create(&v.whole, m, text, target) == PH_OK &&
                  ph_reading_prepare(&v.passing, m, text, target) == PH_OK,
              "%s: %s", kinds[n].name, ph_error(ctx));
        for (int again = 0; again < 2; again++) {
            v.seen = 0;
            CHECK(ph_reading_pass(v.passing, compare_site, &v) == PH_OK, "%s: %s",
                  kinds[n].name, ph_error(ctx));
            CHECK(!ph_reading_site(v.whole, v.seen) &&
                      ph_reading_site(v.whole, v.seen - 1),
                  "%s: %d sites seen", kinds[n].name, v.seen);
        }
        v.seen = 0, v.end = 1;
        CHECK(ph_reading_pass(v.passing, compare_site, &v) == PH_IO_ERROR && v.seen == 2,
              "%s: went on to %d sites", kinds[n].name, v.seen);
        ph_reading_free(v.whole);
        ph_reading_free(v.passing);
        ph_model_free(m);
    }
    ph_close(ctx);
}

static void refusals(void)
{
    ph_ctx *ctx = NULL;
    ph_reading *r = NULL, *whole = NULL;
    float some[4 * 16];
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    ph_model *m = make_model(ctx, PH_ARCH_ENCODER, "", 2);
    CHECK(ph_reading_prepare(&r, m, "", NULL) == PH_BAD_SHAPE && !r, "no text");
    CHECK(ph_reading_prepare(&r, m, "the dog saw", NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_reading_create(&whole, m, "the dog saw", NULL) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_reading_pass(whole, compare_site, NULL) == PH_BAD_ARGUMENT &&
              ph_reading_pass(r, NULL, NULL) == PH_BAD_ARGUMENT,
          "a whole reading passes");
    CHECK(ph_reading_links(r, some) == PH_UNSUPPORTED &&
              ph_reading_run(r, NULL, 0) == PH_UNSUPPORTED &&
              ph_reading_look(r, 0, &(ph_look_at){.entropy = some}) == PH_UNSUPPORTED,
          "there are answers before any run");
    ph_reading_free(r), ph_reading_free(whole);
    ph_model_free(m), ph_close(ctx);
}

/* ---- measures ---- */

enum { MOST_HEADS = 64 };

/* Stats of all heads; returns how many there are. */
static int measure(ph_model *m, ph_ctx *ctx, int n, const char *text, int passes,
                   ph_ctx *threads, ph_head_stats *stats)
{
    ph_reading *reading = NULL;
    ph_scene *scene = NULL;
    ph_survey *survey = NULL;
    const ph_survey_facts facts = {.ctx = threads};
    int count = 0;
    CHECK((passes ? ph_reading_prepare : ph_reading_create)(&reading, m, text,
                                                            kinds[n].target) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_scene_create(&scene, m, reading, NULL, text, kinds[n].target, NULL) == PH_OK,
          "no scene");
    ph_report report = ph_scene_report(scene);
    CHECK((report.layers != NULL) == passes, "%s: layers", kinds[n].name);
    CHECK(ph_survey_create(&survey, &report, NULL) == PH_OK &&
              ph_survey_text(survey, &report, &facts, NULL) == PH_OK &&
              ph_survey_end(survey, &report, NULL, NULL) == PH_OK,
          "%s: no survey", kinds[n].name);
    for (int k = 0; k < report.stack_count; k++)
        for (int h = 0; h < report.stacks[k].layers * report.stacks[k].heads; h++)
            stats[count++] = *ph_survey_head(survey, k, h / report.stacks[k].heads,
                                             h % report.stacks[k].heads);
    ph_survey_free(survey);
    ph_scene_free(scene);
    ph_reading_free(reading);
    return count;
}

static int same_values(const double *a, const double *b, int count)
{
    for (int i = 0; i < count; i++)
        if (a[i] != b[i] && !(isnan(a[i]) && isnan(b[i]))) return 0;
    return 1;
}

static void *count_alloc(void *user, size_t bytes)
{
    size_t *sum = user;
    *sum += bytes;
    return malloc(bytes);
}

static void just_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

/* 230 words are three looks, the last of them short. */
static void same_measures(void)
{
    static ph_head_stats want[MOST_HEADS], got[MOST_HEADS];
    const char *text = make_text(230);
    size_t sum = 0;
    for (int n = 0; n < KINDS; n++)
        for (int threads = 1; threads <= 4; threads++) {
            ph_ctx *ctx = NULL;
            ph_options options = {.threads = threads};
            if (threads == 4) /* hooks that may serve one thread only */
                options = (ph_options){.alloc = count_alloc,
                                       .release = just_free,
                                       .user = &sum,
                                       .threads = 2};
            CHECK(ph_open(&ctx, &options) == PH_OK, "no ctx");
            ph_model *m = make_model(ctx, kinds[n].arch, kinds[n].variant, 3);
            int count = threads > 1 ? 0 : measure(m, ctx, n, text, 0, NULL, want);
            for (int passes = 0; passes < 2; passes++) {
                int now = measure(m, ctx, n, text, passes, ctx, got);
                CHECK(!count || now == count, "%d heads", now);
                for (int h = 0; h < now; h++)
                    CHECK(same_values(got[h].value, want[h].value, PH_MEASURES) &&
                              same_values(got[h].mass, want[h].mass, PH_OFFSETS) &&
                              got[h].rows == want[h].rows && got[h].rows > 0,
                          "%s, %d threads, head %d", kinds[n].name, threads, h);
            }
            ph_model_free(m);
            ph_close(ctx);
        }
}

/* ---- memory ---- */

static ph_status just_look(void *user, int site)
{
    (void)user, (void)site;
    return PH_OK;
}

/* Bytes that a reading of a decoder of so many layers takes. */
static size_t bytes_of(int layers, int passes)
{
    ph_ctx *ctx = NULL;
    ph_reading *reading = NULL;
    size_t sum = 0;
    const ph_options options = {
        .alloc = count_alloc, .release = just_free, .user = &sum, .threads = 1};
    CHECK(ph_open(&ctx, &options) == PH_OK, "no ctx");
    ph_model *m = make_model(ctx, PH_ARCH_DECODER, "", layers);
    sum = 0;
    CHECK((passes ? ph_reading_prepare : ph_reading_create)(&reading, m, make_text(200),
                                                            NULL) == PH_OK,
          "%s", ph_error(ctx));
    if (passes)
        CHECK(ph_reading_pass(reading, just_look, NULL) == PH_OK, "%s", ph_error(ctx));
    size_t taken = sum;
    ph_reading_free(reading);
    ph_model_free(m);
    ph_close(ctx);
    return taken;
}

/* 200 tokens of 16 floats: each layer has q, heads (16 floats a token), k, v (8), lse (4
   heads) and what its projections need, and not the residual stream of its two sublayers
   (64) beside them; one that passes has nothing but what describes it. */
static void memory(void)
{
    size_t token = 200 * sizeof(float), held = bytes_of(12, 0) - bytes_of(4, 0);
    size_t passing = bytes_of(12, 1) - bytes_of(4, 1);
    CHECK(held - passing < 8 * token * (16 + 16 + 8 + 8 + 4 + 32),
          "%zu bytes for 8 layers", held - passing);
    CHECK(passing < 8 * token * 16, "%zu bytes for 8 layers of a reading that passes",
          passing);
}

static const check_case cases[] = {{"same_weights", same_weights},
                                   {"refusals", refusals},
                                   {"same_measures", same_measures},
                                   {"memory", memory},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
