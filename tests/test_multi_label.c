/*
 * test_multi_label.c - classifiers of which any number of classes may be right: the
 * gradient of their loss against finite differences, lines with several labels, what
 * training learns from them, and what is refused. Gradients of every parameter are
 * compared with PyTorch's in test_encoders (distilbert-multi).
 */
#define _GNU_SOURCE
#include <math.h>

#include "golden_checkpoint.h"
#include "model/train.h"

enum { CLASSES = 5 };

static double loss_of(checkpoint *c)
{
    double loss;
    CHECK(ph_pass_forward(c->p, &c->batch, 0) == PH_OK, "%s", ph_error(c->ctx));
    for (int i = 0; i < CLASSES; i++)
        CHECK(fabsf(c->p->pooled->scores[i]) < 8, "score %d is %g", i,
              (double)c->p->pooled->scores[i]);
    CHECK(ph_pass_loss(c->p, 0, 1, &loss) == PH_OK, "%s", ph_error(c->ctx));
    return loss;
}

/* (L(b + h) - L(b - h)) / 2h for each element of the classifier's bias. A class adds
   softplus(z) - y z, over CLASSES; the third derivative of softplus is at most 0.1, so
   the formula is off by 0.1 h^2 / 6. Scores below 8 and the loss are rounded once in each
   of the two passes, the gradient once. */
static void finite_differences(void)
{
    checkpoint c;
    begin(&c, "distilbert-multi", 1);
    const ph_weight *bias = &c.m->params[c.m->classifier + 1];
    CHECK(!strcmp(bias->name, "classifier.b") && bias->count == CLASSES, "%s",
          bias->name);
    float h = 0x1p-6f, *b = c.m->block + bias->at, found[CLASSES];
    double loss = loss_of(&c);
    for (int i = 0; i < CLASSES; i++) found[i] = c.p->pooled->scores[i];
    for (int i = 0; i < CLASSES; i++) {
        float old = b[i];
        b[i] = old + h;
        double plus = loss_of(&c);
        b[i] = old - h;
        double minus = loss_of(&c), expected = (plus - minus) / (2 * (double)h);
        b[i] = old;
        double limit = 0.1 * h * h / (6 * CLASSES) + (8 + loss) * 0x1p-24 / h + 0x1p-24;
        CHECK(fabs(found[i] - expected) <= limit, "class %d: %.6g, expected %.6g +- %.2g",
              i, found[i], expected, limit);
        CHECK(limit < 1e-4, "a limit of %.3g says nothing", limit);
    }
    end(&c);
}

/* ---- training ---- */

static char path[64];

static void write_lines(const char *const labels[4])
{
    static const char *const texts[4] = {"a b a b", "e d e d", "a e b d", "g h g h"};
    strcpy(path, "/tmp/test_multi_label.XXXXXX");
    int handle = mkstemp(path);
    FILE *file = handle >= 0 ? fdopen(handle, "w") : NULL;
    CHECK(file, "no file");
    for (int i = 0; i < 80; i++) {
        fprintf(file, "%s\t%s", labels[i % 4], texts[i % 4]);
        for (int k = 0; k < i / 8; k++) fprintf(file, " %c", 'i' + k % 9);
        fprintf(file, "\n");
    }
    fclose(file);
}

static ph_trainer *begin_training(ph_ctx *ctx, const char *from, int multi_label)
{
    ph_train train;
    ph_trainer *t;
    CHECK(ph_train_defaults(&train, "classes") == PH_OK, "no recipe");
    if (from) CHECK(ph_train_from(&train, from) == PH_OK, "no path");
    strcpy(train.file, path);
    train.length = 16, train.batch = 8, train.lr = 3e-3f, train.warmup = 2;
    train.config.problem_type = multi_label ? PH_MULTI_LABEL : PH_SINGLE_LABEL;
    train.config.dropout = 0;
    if (!from) train.config.layers = 1, train.config.model_dim = 32;
    CHECK(ph_trainer_create(&t, ctx, &train) == PH_OK, "%s", ph_error(ctx));
    return t;
}

/* Lines with both labels, one and none are told apart. */
static void learn(ph_ctx *ctx, const char *from, int multi_label, int classes)
{
    ph_trainer *t = begin_training(ctx, from, multi_label);
    ph_progress p;
    ph_score score;
    CHECK(t->model->config.problem_type == PH_MULTI_LABEL &&
              t->model->config.classes == classes,
          "%d classes", t->model->config.classes);
    for (int i = 0; i < 60; i++)
        CHECK(ph_trainer_step(t, &p) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_trainer_test(t, 20, &score) == PH_OK, "%s", ph_error(ctx));
    CHECK(score.texts == 20 && score.exact_match == 1, "%s: %g right, loss %g",
          from ? from : "a new model", score.exact_match, score.loss);
    ph_trainer_free(t);
    unlink(path);
}

static void learns(void)
{
    static const char *const known[4] = {"LABEL_0", "LABEL_3", "LABEL_0, LABEL_3", ""};
    static const char *const words[4] = {"joy", "fear", "joy,fear", ""};
    ph_ctx *ctx = open_ctx();
    write_lines(known);
    learn(ctx, FOLDER "distilbert-multi", 0, CLASSES);
    write_lines(words);
    learn(ctx, FOLDER "distilbert-multi", 0, 2);
    write_lines(words);
    learn(ctx, FOLDER "bert", 1, 2);
    write_lines(words);
    learn(ctx, NULL, 1, 2);
    ph_close(ctx);
}

/* Commas belong to a label where a text has one. */
static void single(void)
{
    static const char *const labels[4] = {"a,b", "c", "a,b", "c"};
    ph_ctx *ctx = open_ctx();
    write_lines(labels);
    ph_trainer *t = begin_training(ctx, FOLDER "bert", 0);
    CHECK(!t->model->config.problem_type && !strcmp(ph_model_class(t->model, 0), "a,b"),
          "class 0 is %s", ph_model_class(t->model, 0));
    ph_trainer_free(t);
    unlink(path);
    ph_close(ctx);
}

static void refused(void)
{
    ph_ctx *ctx = open_ctx();
    ph_train train;
    ph_trainer *t;
    CHECK(ph_train_defaults(&train, "shapes") == PH_OK, "no recipe");
    train.config.problem_type = PH_MULTI_LABEL;
    CHECK(ph_trainer_create(&t, ctx, &train) == PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "recipe shapes has one label"),
          "%s", ph_error(ctx));
    train.config.problem_type = PH_REGRESSION;
    CHECK(ph_trainer_create(&t, ctx, &train) == PH_UNSUPPORTED &&
              strstr(ph_error(ctx), "is a regression (problem_type), which has no loss"),
          "%s", ph_error(ctx));
    ph_close(ctx);
}

static const check_case cases[] = {{"finite_differences", finite_differences},
                                   {"learns", learns},
                                   {"single", single},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
