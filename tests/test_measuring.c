/*
 * test_measuring.c - heads measured in steps, as the live page does, against
 * ph_importance.
 */
#include "prune_bed.h"
#include "view/live_measuring.h"
#include "view/web.h"

/* Runs all steps; returns how many. */
static int run_all(ph_measuring *m)
{
    char error[200] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    int done = 0, of = 1, steps = 0;
    while (done < of) {
        CHECK(ph_measuring_step(m, &done, &of, &io) == PH_OK, "%s", error);
        steps++;
        CHECK(done >= steps && done <= of, "step %d: %d of %d", steps, done, of);
    }
    return steps;
}

static ph_measuring *begin(const bed *b, const char *method, const ph_texts *all,
                           const uint8_t *plan)
{
    ph_measuring *m = NULL;
    const ph_measuring_job job = {
        .model = b->m, .method = method, .texts = all, .plan = plan};
    CHECK(ph_measuring_create(&m, &job, NULL) == PH_OK, "%s", method);
    return m;
}

static ph_worth worth_of(const char *method)
{
    for (int i = 0; i < PH_WORTHS; i++)
        if (!strcmp(ph_worth_name((ph_worth)i), method)) return (ph_worth)i;
    return PH_WORTHS;
}

/* The same numbers: texts in a batch have the bits they have alone. Which tokens are
   masked depends on the number of a text: those models are measured on the first. */
static void as_importance(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed b;
        const char *names[PH_MEASURING_METHODS];
        make_model(&b, kinds[k], 1);
        int heads = ph_model_heads(b.m);
        ph_texts all = texts_of(&b.m->config);
        if (b.m->config.masked) all.count = 1;
        ph_measuring_methods(b.m, all.pairs != NULL, names);
        for (int off = 0; off < 2; off++) {
            uint8_t plan[64] = {[2] = off ? PH_HEAD_ZERO : PH_HEAD_ON};
            for (int n = 0; names[n] && worth_of(names[n]) < PH_WORTHS; n++) {
                ph_estimate whole[64];
                ph_measuring *m = begin(&b, names[n], &all, plan);
                run_all(m);
                CHECK(ph_eval_create(&b.e, b.m, &all, 0) == PH_OK, "%s", ph_error(b.ctx));
                CHECK(ph_importance(b.e, worth_of(names[n]), plan, whole) == PH_OK, "%s",
                      ph_error(b.ctx));
                for (int h = 0; h < heads; h++) {
                    ph_estimate got = ph_measuring_worth(m, h);
                    int gone = off && h == 2;
                    CHECK(gone ? isnan(got.value) : got.value == whole[h].value,
                          "kind %d, %s, head %d: %g, not %g", k, names[n], h, got.value,
                          whole[h].value);
                    CHECK(gone || got.error == whole[h].error, "error of head %d", h);
                }
                ph_measuring_free(m);
                ph_eval_free(b.e);
                b.e = NULL;
            }
        }
        free_bed(&b);
    }
}

/* Every kind of model has answers; those of a head that gives 0 anyway do not move. */
static void by_answers(void)
{
    const uint8_t none[64] = {0};
    for (int k = 0; k < KINDS; k++) {
        bed b;
        make_model(&b, kinds[k], 1);
        ph_texts all = texts_of(&b.m->config);
        int heads = ph_model_heads(b.m), moved = 0;
        ph_measuring *m = begin(&b, "answers", &all, none);
        CHECK(run_all(m) == TEXTS * (heads + 1), "kind %d: steps", k);
        for (int h = 0; h < heads; h++) {
            double worth = ph_measuring_worth(m, h).value;
            CHECK(worth >= 0, "kind %d, head %d: %g", k, h, worth);
            moved += worth > 0;
        }
        CHECK(moved > 0 && ph_measuring_texts(m) == TEXTS, "kind %d: nothing moves", k);
        ph_measuring_free(m);
        free_bed(&b);
    }
}

/* What a plan does: the losses of ph_eval_loss. */
static void compared(void)
{
    bed b;
    ph_result whole, planned;
    ph_live_measured out;
    const uint8_t plan[64] = {PH_HEAD_ZERO, 0, PH_HEAD_MEAN, PH_HEAD_ZERO};
    make_bed(&b, kinds[0], 1);
    ph_texts all = texts_of(&b.m->config);
    CHECK(ph_eval_loss(b.e, NULL, &whole) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(ph_eval_loss(b.e, plan, &planned) == PH_OK, "%s", ph_error(b.ctx));
    ph_measuring *m = begin(&b, PH_LIVE_COMPARE, &all, plan);
    CHECK(run_all(m) == TEXTS, "a step for each text");
    ph_measuring_compared(m, &out);
    CHECK(out.loss[0] == (float)whole.loss.value &&
              out.loss[1] == (float)planned.loss.value,
          "loss %g and %g", (double)out.loss[0], (double)out.loss[1]);
    CHECK(isnan(out.divergence), "divergence %g", (double)out.divergence);
    ph_measuring_free(m);
    free_bed(&b);
}

/* Texts that cannot be read are left out; where none is left, a sentence says so. */
static void unreadable(void)
{
    static const char *const some[] = {"", "a b c", ""};
    const uint8_t none[64] = {0};
    for (int way = 0; way < 2; way++) {
        bed b;
        char error[200] = "";
        const ph_io io = {.error = error, .error_size = sizeof error};
        int done, of;
        make_model(&b, kinds[0], 1);
        ph_texts all = {.texts = some, .count = 3};
        ph_measuring *m = begin(&b, way ? "answers" : "zero", &all, none);
        run_all(m);
        CHECK(ph_measuring_texts(m) == 1, "%d texts", ph_measuring_texts(m));
        ph_measuring_free(m);
        all = (ph_texts){.texts = (const char *const[]){"", ""}, .count = 2};
        m = begin(&b, way ? "answers" : "token", &all, none);
        CHECK(ph_measuring_step(m, &done, &of, &io) == PH_OK, "%s", error);
        CHECK(ph_measuring_step(m, &done, &of, &io) == PH_BAD_SHAPE &&
                  strstr(error, "no text"),
              "%s", error);
        ph_measuring_free(m);
        free_bed(&b);
    }
}

/* The page shows each method by a name and explains it, in both languages. */
static void explained(void)
{
    const char *names[PH_MEASURING_METHODS];
    bed b;
    size_t size = ph_web_words_js_size;
    char *script = malloc(size + 1);
    memcpy(script, ph_web_words_js, size);
    script[size] = 0;
    make_bed(&b, kinds[0], 1);
    ph_measuring_methods(b.m, 1, names);
    CHECK(names[PH_WORTHS - 1], "methods are missing");
    for (int i = 0; names[i]; i++)
        for (int help = 0; help < 2; help++) {
            char key[40];
            snprintf(key, sizeof key, " m%s_%s: ", help ? "h" : "", names[i]);
            const char *first = strstr(script, key);
            CHECK(first && strstr(first + 1, key), "'%s' is not in both languages", key);
        }
    free(script);
    free_bed(&b);
}

static const check_case cases[] = {
    {"as_importance", as_importance}, {"by_answers", by_answers}, {"compared", compared},
    {"unreadable", unreadable},       {"explained", explained},   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
