/*
 * train.c - the training step with gradient accumulation, and evaluation.
 *
 * Samples, dropout masks and initial parameters are functions of (seed, step), so a
 * checkpoint needs no state but the step number, the parameters and Adam's two moments.
 */
#include <math.h>
#include <string.h>

#include "base/reserved.h"
#include "model/generate.h"
#include "model/train.h"

enum { STREAM_SAMPLES = 2, STREAM_TESTS, STREAM_DROPOUT }; /* of random numbers */
enum { TEST_SEED = 20260101 };

/* ---- samples ----------------------------------------------------------------------- */

/* Most labels of a text. */
static int label_len(const ph_data *d)
{
    if (d->per_text) return 1;
    return d->target_len ? d->target_len : d->source_len;
}

/* Offsets of micro-batch `pass`: those of the texts, or of what the decoder reads. */
static int32_t *offsets_of(const ph_trainer *t, int pass, int target)
{
    int32_t *all = target ? t->target_offsets : t->source_offsets;
    return all + (size_t)pass * ((size_t)t->train.batch + 1);
}

/* A sample is drawn behind those before it, its padding is overwritten by the next. */
void ph_trainer_fill(const ph_trainer *t, uint64_t index, int texts, int test, int pass)
{
    const ph_data *d = &t->data;
    int batch = t->train.batch;
    size_t classes = d->multi_label ? (size_t)d->classes : 0;
    int32_t *sources = offsets_of(t, pass, 0), *targets = offsets_of(t, pass, 1);
    const ph_batch to = ph_trainer_batch(t, pass);
    uint64_t seed = test ? TEST_SEED : t->train.seed;
    sources[0] = targets[0] = 0;
    for (int b = 0; b < batch; b++) {
        uint64_t number = index * (uint64_t)batch + (uint64_t)b;
        uint64_t key = ph_rng_key(seed, test ? STREAM_TESTS : STREAM_SAMPLES, number, 0);
        int at = d->per_text ? b : d->target_len ? targets[b] : sources[b];
        ph_sample s = {.source = (int32_t *)to.source + sources[b],
                       .target = (int32_t *)to.target + targets[b],
                       .pixels = (float *)to.pixels + (size_t)b * (size_t)d->pixels,
                       .labels = (int32_t *)to.labels + at,
                       .wanted =
                           classes ? (float *)to.wanted + (size_t)b * classes : NULL};
        sources[b + 1] = sources[b], targets[b + 1] = targets[b];
        if (d->per_text) s.labels[0] = -1;
        if (b >= texts) continue;
        t->recipe->sample(d, key, test, &s);
        sources[b + 1] += s.length;
        targets[b + 1] += s.target_length;
    }
}

ph_batch ph_trainer_batch(const ph_trainer *t, int pass)
{
    size_t row = (size_t)pass * (size_t)t->train.batch;
    if (t->data.pixels) /* every picture has as many rows */
        return (ph_batch){.pixels = t->pixels + row * (size_t)t->data.pixels,
                          .labels = t->labels + row};
    return (ph_batch){.source = t->source + row * (size_t)t->data.source_len,
                      .source_offsets = offsets_of(t, pass, 0),
                      .target = t->target + row * (size_t)t->data.target_len,
                      .target_offsets = offsets_of(t, pass, 1),
                      .wanted =
                          t->wanted ? t->wanted + row * (size_t)t->data.classes : NULL,
                      .labels = t->labels + row * (size_t)label_len(&t->data)};
}

/* Where the labels of text b begin. */
static int labels_at(const ph_trainer *t, int pass, int b)
{
    return t->data.per_text ? b : offsets_of(t, pass, t->data.target_len > 0)[b];
}

static int64_t count_labels(const ph_trainer *t, int passes)
{
    int64_t count = 0;
    for (int i = 0; i < passes; i++) {
        const int32_t *labels = ph_trainer_batch(t, i).labels;
        int end = labels_at(t, i, t->train.batch);
        for (int r = 0; r < end; r++) count += labels[r] >= 0;
    }
    return count;
}

/* ---- steps ------------------------------------------------------------------------- */

static ph_status one_pass(ph_trainer *t, int pass, float scale, double *loss)
{
    ph_batch batch = ph_trainer_batch(t, pass);
    uint64_t seed =
        ph_rng_key(t->train.seed, STREAM_DROPOUT, (uint64_t)t->step, (uint64_t)pass);
    float *grads = pass ? t->pass_grads : t->grads;
    t->pass->balance = t->train.balance / (float)t->train.accumulate;
    PH_TRY(ph_pass_forward(t->pass, &batch, seed));
    PH_TRY(ph_pass_loss(t->pass, t->train.smoothing, scale, loss));
    PH_TRY(ph_pass_backward(t->pass, grads));
    if (pass) ph_pass_add(t->pass, t->model->floats, t->grads, t->pass_grads);
    return PH_OK;
}

static ph_status step(ph_trainer *t, ph_progress *out)
{
    double sum = 0, loss;
    int passes = t->train.accumulate;
    uint64_t first = (uint64_t)t->step * (uint64_t)passes;
    for (int i = 0; i < passes; i++)
        ph_trainer_fill(t, first + (uint64_t)i, t->train.batch, 0, i);
    int64_t tokens = count_labels(t, passes);
    for (int i = 0; i < passes; i++) {
        PH_TRY(one_pass(t, i, 1.0f / (float)tokens, &loss));
        sum += loss;
    }
    double grad_norm = ph_optimise_grad_norm(t);
    if (!isfinite(sum) || !isfinite(grad_norm))
        return ph_fail(t->ctx, PH_BAD_VALUE,
                       "the loss became NaN or Inf at step %d; a smaller learning "
                       "rate may help",
                       t->step + 1);
    t->step++;
    ph_optimise_step(t, grad_norm);
    *out = (ph_progress){.step = t->step,
                         .loss = sum / (double)tokens,
                         .grad_norm = grad_norm,
                         .lr = ph_optimise_lr(&t->train, t->step),
                         .tokens = tokens};
    return PH_OK;
}

ph_status ph_trainer_step(ph_trainer *t, ph_progress *out)
{
    if (!t) return PH_BAD_ARGUMENT;
    if (!out) return ph_ctx_null(t->ctx, "out");
    return PH_WITHIN(t->ctx, step(t, out));
}

/* ---- creating a trainer ------------------------------------------------------------ */

static ph_status check(ph_ctx *ctx, const ph_train *o)
{
    const struct {
        const char *name;
        double value, least, most;
    } all[] = {{"steps", o->steps, 0, PH_STEPS_MOST},
               {"batch", o->batch, 1, 65536},
               {"accumulate", o->accumulate, 1, 4096},
               {"warmup", o->warmup, 0, PH_STEPS_MOST},
               {"lr", o->lr, 0, 100},
               {"weight_decay", o->weight_decay, 0, 100},
               {"max_grad_norm", o->max_grad_norm, 0, 1e9},
               {"smoothing", o->smoothing, 0, 0.99},
               {"balance", o->balance, 0, 100}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (!(all[i].value >= all[i].least && all[i].value <= all[i].most))
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %g, expected %g to %g",
                           all[i].name, all[i].value, all[i].least, all[i].most);
    return PH_OK;
}

static ph_status allocate(ph_trainer *t, size_t bytes, void *to)
{
    void *memory = ph_ctx_alloc(t->ctx, bytes ? bytes : 1);
    memcpy(to, &memory, sizeof memory);
    if (!memory)
        return ph_fail(t->ctx, PH_OUT_OF_MEMORY, "no memory for training (%zu bytes)",
                       bytes);
    memset(memory, 0, bytes);
    return PH_OK;
}

static ph_status allocate_all(ph_trainer *t)
{
    const ph_data *d = &t->data;
    size_t rows = (size_t)t->train.batch * (size_t)t->train.accumulate;
    size_t bytes = t->model->floats * sizeof(float),
           items = t->model->floats / PH_ITEM_FLOATS;
    PH_TRY(allocate(t, bytes, &t->grads));
    if (t->train.accumulate > 1) PH_TRY(allocate(t, bytes, &t->pass_grads));
    PH_TRY(allocate(t, bytes, &t->first_moment));
    PH_TRY(allocate(t, bytes, &t->second_moment));
    PH_TRY(allocate(t, (items + 1) * sizeof(double), &t->partial_sums));
    PH_TRY(allocate(t, rows * (size_t)d->source_len * sizeof(int32_t), &t->source));
    PH_TRY(allocate(t, rows * (size_t)d->pixels * sizeof(float), &t->pixels));
    PH_TRY(allocate(t, rows * (size_t)d->target_len * sizeof(int32_t), &t->target));
    if (d->multi_label)
        PH_TRY(allocate(t, rows * (size_t)d->classes * sizeof(float), &t->wanted));
    PH_TRY(allocate(t, rows * (size_t)label_len(d) * sizeof(int32_t), &t->labels));
    size_t offsets = rows + (size_t)t->train.accumulate;
    PH_TRY(allocate(t, offsets * sizeof(int32_t), &t->target_offsets));
    return allocate(t, offsets * sizeof(int32_t), &t->source_offsets);
}

/* Token ids of a resumed model must mean the same tokens in its data. */
static ph_status check_vocab(const ph_trainer *t, const ph_model *model)
{
    const ph_vocab *a = &model->vocab, *b = &t->data.vocab;
    int same = a->split == b->split && a->count == b->count;
    for (int i = 0; same && a->text && i < a->count; i++)
        same = !strcmp(a->text[i], b->text[i]);
    if (same) return PH_OK;
    return ph_fail(
        t->ctx, PH_BAD_FILE,
        "the model's vocabulary of %d tokens is not that of its training data, "
        "which has %d",
        a->count, b->count);
}

/* A model for the data, unless there is one. */
static ph_status begin_new(ph_trainer *t)
{
    ph_config config = t->train.config;
    PH_TRY(ph_data_open(&t->data, t->ctx, t->recipe, &t->train, NULL));
    if (t->model) return check_vocab(t, t->model);
    config.vocab = t->data.vocab.count;
    config.classes = t->data.classes;
    if (!t->data.pixels &&
        config.max_len < ph_max(t->data.source_len, t->data.target_len))
        config.max_len = ph_max(t->data.source_len, t->data.target_len);
    return ph_model_create(&t->model, t->ctx, &config, t->data.split, t->data.tokens,
                           t->data.token_count, t->train.seed);
}

static ph_status begin_tuned(ph_trainer *t)
{
    float dropout = t->train.config.dropout;
    PH_TRY(ph_tune_open(t));
    t->model->config.dropout = dropout;
    return ph_data_open(&t->data, t->ctx, t->recipe, &t->train, &t->origin);
}

static ph_status begin(ph_trainer *t)
{
    PH_TRY(check(t->ctx, &t->train));
    PH_TRY(t->train.tuned ? begin_tuned(t) : begin_new(t));
    PH_TRY(ph_tune_classes(t));
    t->train.data_hash = t->data.hash;
    t->train.config = t->model->config;
    ph_pass_shape shape = {.batch = t->train.batch,
                           .source_len = t->data.source_len,
                           .target_len = t->data.target_len,
                           .backward = 1};
    PH_TRY(ph_pass_create(&t->pass, t->model, &shape));
    return allocate_all(t);
}

ph_status ph_trainer_begin(ph_trainer **out, ph_ctx *ctx, const ph_train *train,
                           ph_model *model)
{
    const ph_recipe *recipe = ph_recipe_find(train->recipe);
    ph_trainer *t = recipe ? ph_ctx_alloc(ctx, sizeof *t) : NULL;
    *out = NULL;
    if (!t) {
        ph_model_free(model);
        return recipe ? ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a trainer")
                      : ph_fail(ctx, PH_UNSUPPORTED, "there is no recipe \"%.32s\"",
                                train->recipe);
    }
    memset(t, 0, sizeof *t);
    t->ctx = ctx, t->train = *train, t->recipe = recipe;
    if (t->train.accumulate < 1) t->train.accumulate = 1;
    t->model = model;
    ph_status status = begin(t);
    if (status == PH_OK)
        *out = t;
    else
        ph_trainer_free(t);
    return status;
}

static ph_status check_options(ph_ctx *ctx, const ph_train *train, const ph_model *model)
{
    if (!train) return ph_fail(ctx, PH_BAD_ARGUMENT, "train is NULL");
    PH_CHECK_RESERVED(ctx, "ph_train", train->reserved);
    PH_CHECK_RESERVED(ctx, "ph_pace", train->pace.reserved);
    if (!model && train->tuned && !train->from[0])
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "from is empty, expected the path of a model or ph_trainer_tune");
    if (model && (!train->tuned || model->ctx != ctx))
        return ph_fail(
            ctx, PH_BAD_ARGUMENT,
            "expected options that ph_train_from changed, and a model of the same ctx");
    return PH_OK;
}

static ph_status create(ph_trainer **out, ph_ctx *ctx, const ph_train *train,
                        ph_model *model)
{
    ph_status status = check_options(ctx, train, model);
    if (status == PH_OK) return ph_trainer_begin(out, ctx, train, model);
    ph_model_free(model);
    return status;
}

ph_status ph_trainer_create(ph_trainer **out, ph_ctx *ctx, const ph_train *train)
{
    if (out) *out = NULL;
    if (!out || !ctx) return ph_ctx_null(ctx, "out");
    return PH_WITHIN(ctx, create(out, ctx, train, NULL));
}

ph_status ph_trainer_tune(ph_trainer **out, ph_ctx *ctx, const ph_train *train,
                          ph_model *model)
{
    if (out) *out = NULL;
    if (!out || !ctx || !model) {
        ph_model_free(model);
        return ph_ctx_null(ctx, "out or model");
    }
    return PH_WITHIN(ctx, create(out, ctx, train, model));
}

void ph_trainer_free(ph_trainer *t)
{
    if (!t) return;
    void *const buffers[] = {t->grads,         t->pass_grads,     t->first_moment,
                             t->second_moment, t->partial_sums,   t->source,
                             t->target,        t->source_offsets, t->target_offsets,
                             t->labels,        t->pixels,         t->wanted};
    ph_pass_free(t->pass);
    ph_pass_free(t->eval_pass);
    ph_model_free(t->model);
    ph_data_close(&t->data, t->recipe);
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        ph_ctx_release(t->ctx, buffers[i]);
    ph_ctx_release(t->ctx, t);
}

ph_model *ph_trainer_model(ph_trainer *t)
{
    return t ? t->model : NULL;
}

int ph_trainer_steps(const ph_trainer *t)
{
    return t ? t->step : 0;
}

ph_pace *ph_trainer_pace(ph_trainer *t)
{
    return t ? &t->train.pace : NULL;
}

const ph_train *ph_trainer_options(const ph_trainer *t)
{
    return t ? &t->train : NULL;
}

/* ---- evaluation -------------------------------------------------------------------- */

typedef struct tally {
    int64_t tokens, correct, texts, exact;
    double loss;
} tally;

static int argmax(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* Whether exactly the wanted classes have a probability of more than a half. */
static int has_wanted(const float *scores, const float *wanted, int classes)
{
    int i = 0;
    while (i < classes && (scores[i] > 0) == (wanted[i] > 0)) i++;
    return i == classes;
}

/* The predictions of one forward pass, compared with every label. */
static void count_correct(const ph_trainer *t, const ph_batch *batch, int texts,
                          tally *sum)
{
    const int32_t *labels = batch->labels;
    const ph_pass *p = t->eval_pass;
    int len = t->data.source_len, links = t->model->links >= 0;
    int classes = t->model->config.classes;
    int width = links ? len : classes ? classes : t->model->config.vocab;
    const float *scores = links ? p->links->p : classes ? p->pooled->scores : p->logits;
    for (int b = 0; b < texts; b++) {
        int wrong = 0;
        for (int r = labels_at(t, 0, b); r < labels_at(t, 0, b + 1); r++) {
            if (labels[r] < 0) continue;
            const float *row = scores + (size_t)r * (size_t)width;
            int correct = batch->wanted
                              ? has_wanted(row, batch->wanted + (size_t)r * width, width)
                              : argmax(row, width) == labels[r];
            sum->tokens++, sum->correct += correct, wrong += !correct;
        }
        sum->texts++, sum->exact += !wrong;
    }
}

static ph_status test_batch(ph_trainer *t, int index, int texts, tally *sum)
{
    double loss;
    ph_trainer_fill(t, (uint64_t)index, texts, 1, 0);
    ph_batch batch = ph_trainer_batch(t, 0);
    PH_TRY(ph_pass_forward(t->eval_pass, &batch, 0));
    if (t->model->links < 0 && !t->model->config.classes)
        PH_TRY(ph_pass_logits(t->eval_pass));
    count_correct(t, &batch, texts, sum);
    PH_TRY(ph_pass_loss(t->eval_pass, 0, 1, &loss));
    sum->loss += loss;
    return PH_OK;
}

static ph_status test(ph_trainer *t, int texts, ph_score *out)
{
    tally sum = {0};
    ph_pass_shape shape = {.batch = t->train.batch,
                           .source_len = t->data.source_len,
                           .target_len = t->data.target_len};
    if (!t->eval_pass) PH_TRY(ph_pass_create(&t->eval_pass, t->model, &shape));
    for (int done = 0; done < texts; done += t->train.batch)
        PH_TRY(test_batch(t, done / t->train.batch, ph_min(t->train.batch, texts - done),
                          &sum));
    double tokens = sum.tokens ? (double)sum.tokens : 1;
    *out =
        (ph_score){.loss = sum.loss / tokens,
                   .token_accuracy = (double)sum.correct / tokens,
                   .exact_match = sum.texts ? (double)sum.exact / (double)sum.texts : 0,
                   .texts = (int)sum.texts};
    return PH_OK;
}

ph_status ph_trainer_test(ph_trainer *t, int texts, ph_score *out)
{
    if (!t) return PH_BAD_ARGUMENT;
    if (!out) return ph_ctx_null(t->ctx, "out");
    return PH_WITHIN(t->ctx, test(t, texts, out));
}
