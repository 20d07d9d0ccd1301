/*
 * convert_tune.c - training of a converted model, on the half of the texts that aligned
 * its heads; the other half says what that was good for.
 */
#include "commands/cmd_convert.h"
#include "framework/term.h"

typedef struct training {
    encoder_input *in;
    ph_model *whole; /* as it was before its conversion, or NULL */
    ph_eval *learn, *test, *whole_test;
    int steps;
} training;

static int fail(const training *t, ph_status status)
{
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, t->in->ctx);
}

/* Texts [first, end) of the data. */
static int make_eval(const training *t, ph_model *m, const convert_options *o,
                     const char *const *pairs, int first, int end, ph_eval **out)
{
    const ph_texts texts = {.texts = t->in->texts + first,
                            .pairs = pairs ? pairs + first : NULL,
                            .count = end - first};
    const ph_config *c = ph_model_config(m);
    int most = (int)o->max_tokens < c->max_len ? (int)o->max_tokens : c->max_len;
    return fail(t, ph_eval_create(out, m, &texts, most));
}

static void show_step(void *user, const ph_tuned *at)
{
    const training *t = user;
    char line[64];
    snprintf(line, sizeof line, "step %d, loss %.4f", at->step, at->loss);
    term_progress((double)at->step / t->steps, line);
}

static int train(training *t, const convert_options *o)
{
    ph_tuning how = {.steps = t->steps,
                     .lr = (float)o->lr,
                     .max_grad_norm = 1,
                     .teacher = o->distil ? t->whole : NULL,
                     .seed = (uint64_t)o->seed,
                     .each = show_step,
                     .user = t};
    int rc = fail(t, ph_eval_tune(t->learn, &how, NULL));
    term_progress_end();
    return rc;
}

/* A model whose answers are vectors: it has no labels. */
static int gives_vectors(const encoder_input *in)
{
    const ph_config *c = ph_model_config(in->m);
    return c->pooling && !c->classes && !c->masked;
}

int convert_check_tune(const encoder_input *in, const convert_options *o)
{
    if (!o->tune || o->distil || !gives_vectors(in)) return EXIT_OK;
    return cli_fail(EXIT_USAGE,
                    "the model gives vectors, which have no labels: --tune needs "
                    "--distil");
}

int convert_tune(encoder_input *in, const convert_options *o, const char *path,
                 const char *const *pairs, convert_tuned *out)
{
    training t = {.in = in, .steps = (int)o->tune};
    int half = in->count > 1 ? in->count / 2 : 1, test = in->count > 1 ? half : 0;
    int rc = EXIT_OK;
    out->vectors = gives_vectors(in);
    if (o->distil) rc = fail(&t, encoder_read(&t.whole, in->ctx, path));
    if (!rc) rc = make_eval(&t, in->m, o, pairs, 0, half, &t.learn);
    if (!rc) rc = make_eval(&t, in->m, o, pairs, test, in->count, &t.test);
    if (!rc && out->vectors) {
        rc = make_eval(&t, t.whole, o, pairs, test, in->count, &t.whole_test);
        if (!rc) rc = fail(&t, ph_eval_compare(t.test, t.whole_test));
    }
    if (!rc) rc = fail(&t, ph_eval_loss(t.test, NULL, &out->before));
    if (!rc) rc = train(&t, o);
    if (!rc) rc = fail(&t, ph_eval_loss(t.test, NULL, &out->after));
    out->steps = t.steps;
    ph_eval_free(t.learn);
    ph_eval_free(t.test);
    ph_eval_free(t.whole_test);
    ph_model_free(t.whole);
    return rc;
}
