/*
 * test_prune.c - what heads are worth, against the dense oracle and differences.
 */
#define _GNU_SOURCE
#include <math.h>

#include "model_oracle.h"
#include "prune_bed.h"

/* ---- the oracle -------------------------------------------------------------------- */

static double oracle_loss(const bed *b, oracle_model *o, int number)
{
    const ph_eval_text *t = &b->e->texts[number];
    oracle_batch batch = {.batch = 1,
                          .source_len = t->source_len,
                          .target_len = t->target_len,
                          .source = t->source,
                          .target = t->target,
                          .labels = t->labels};
    return oracle_model_loss(o, &batch, 0, NULL) / t->counted;
}

/* Multiplies the output of a head. */
static void gate_head(const bed *b, oracle_model *o, int head, double gate)
{
    size_t count;
    int param;
    const float *rows = output_rows(b->m, head, &param, &count);
    double *values = o->values[param] + (rows - (b->m->block + b->m->params[param].at));
    for (size_t i = 0; i < count; i++) values[i] = (double)rows[i] * gate;
}

/* The derivative of a text's loss with respect to the gate of a head, which is `gate`. */
static double oracle_derivative(const bed *b, oracle_model *o, int head, int number,
                                double gate)
{
    const double h = 1e-5;
    double loss[2];
    for (int up = 0; up < 2; up++) {
        gate_head(b, o, head, up ? gate + h : gate - h);
        loss[up] = oracle_loss(b, o, number);
    }
    gate_head(b, o, head, gate);
    return (loss[1] - loss[0]) / (2 * h);
}

static void sample_form(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed b;
        oracle_model o;
        ph_estimate found[64];
        double largest = 0;
        make_bed(&b, kinds[k], 2);
        oracle_model_take(&o, b.m);
        CHECK(ph_importance(b.e, PH_WORTH_SAMPLE, NULL, found) == PH_OK, "%s",
              ph_error(b.ctx));
        for (int h = 0; h < ph_model_heads(b.m); h++) {
            double each[TEXTS];
            for (int i = 0; i < TEXTS; i++)
                each[i] = fabs(oracle_derivative(&b, &o, h, i, 1));
            ph_estimate truth = ph_eval_mean(each, TEXTS);
            largest = fmax(largest, truth.value);
            double most = GRADIENT_ERROR * (1 + largest);
            CHECK(fabs(found[h].value - truth.value) < most,
                  "kind %d head %d: %.9g, expected %.9g", k, h, found[h].value,
                  truth.value);
            CHECK(fabs(found[h].error - truth.error) < most,
                  "kind %d head %d: error %.9g, expected %.9g", k, h, found[h].error,
                  truth.error);
        }
        CHECK(largest > 1e-3, "kind %d: no head counts", k);
        oracle_model_free(&o);
        free_bed(&b);
    }
}

/* Minus the mean of the derivatives with all gates at 1/6, 1/2 and 5/6. */
static void path_form(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed b;
        oracle_model o;
        ph_estimate found[64];
        double each[64][TEXTS] = {{0}};
        make_bed(&b, kinds[k], 2);
        oracle_model_take(&o, b.m);
        int heads = ph_model_heads(b.m);
        for (int point = 0; point < 3; point++) {
            double gate = (2 * point + 1) / 6.0;
            for (int h = 0; h < heads; h++) gate_head(&b, &o, h, gate);
            for (int h = 0; h < heads; h++)
                for (int i = 0; i < TEXTS; i++)
                    each[h][i] -= oracle_derivative(&b, &o, h, i, gate) / 3;
        }
        CHECK(ph_importance(b.e, PH_WORTH_PATH, NULL, found) == PH_OK, "%s",
              ph_error(b.ctx));
        for (int h = 0; h < heads; h++) {
            ph_estimate truth = ph_eval_mean(each[h], TEXTS);
            double most = GRADIENT_ERROR * (1 + fabs(truth.value));
            CHECK(fabs(found[h].value - truth.value) < most &&
                      fabs(found[h].error - truth.error) < most,
                  "kind %d, head %d: %g +- %g, expected %g +- %g", k, h, found[h].value,
                  found[h].error, truth.value, truth.error);
        }
        oracle_model_free(&o);
        free_bed(&b);
    }
}

/* Heads that are zeroed one by one, and left alone, against the oracle with those rows of
   W_O at 0. */
static void ablated(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed b;
        oracle_model o;
        ph_estimate zero[64], alone[64];
        make_bed(&b, kinds[k], 1);
        oracle_model_take(&o, b.m);
        CHECK(ph_importance(b.e, PH_WORTH_ZERO, NULL, zero) == PH_OK &&
                  ph_importance(b.e, PH_WORTH_ALONE, NULL, alone) == PH_OK,
              "%s", ph_error(b.ctx));
        for (int h = 0; h < ph_model_heads(b.m); h++) {
            double without = 0, with = 0, whole = 0, most;
            size_t count;
            int param;
            float *rows = output_rows(b.m, h, &param, &count);
            size_t first = (size_t)(rows - (b.m->block + b.m->params[param].at));
            for (int i = 0; i < TEXTS; i++) whole += oracle_loss(&b, &o, i) / TEXTS;
            double *all = o.values[param], kept[1024];
            size_t size = b.m->params[param].count;
            memcpy(kept, all, size * sizeof *kept);
            for (size_t i = 0; i < count; i++) all[first + i] = 0;
            for (int i = 0; i < TEXTS; i++) without += oracle_loss(&b, &o, i) / TEXTS;
            for (size_t i = 0; i < size; i++)
                all[i] = i >= first && i < first + count ? kept[i] : 0;
            for (int i = 0; i < TEXTS; i++) with += oracle_loss(&b, &o, i) / TEXTS;
            memcpy(all, kept, size * sizeof *kept);
            most = 2 * LOSS_ERROR * (1 + fabs(whole) + fabs(without) + fabs(with));
            CHECK(fabs(zero[h].value - (without - whole)) < most,
                  "kind %d head %d without: %.9g, expected %.9g", k, h, zero[h].value,
                  without - whole);
            CHECK(fabs(alone[h].value - (whole - with)) < most,
                  "kind %d head %d alone: %.9g, expected %.9g", k, h, alone[h].value,
                  whole - with);
        }
        oracle_model_free(&o);
        free_bed(&b);
    }
}

/* ---- token by token ---------------------------------------------------------------- */

/* One row of one head is multiplied. */
typedef struct scaled_row {
    const ph_eval_site *site;
    int index, head, row;
    float by;
} scaled_row;

static ph_status scale_row(void *user, int site, float *heads)
{
    const scaled_row *s = user;
    if (site != s->index) return PH_OK;
    float *x = heads + (size_t)((s->row * s->site->heads + s->head) * s->site->dim);
    for (int d = 0; d < s->site->dim; d++) x[d] *= s->by;
    return PH_OK;
}

static double moved_loss(bed *b, const ph_batch *batch, scaled_row *s, float by)
{
    double loss;
    s->by = by;
    CHECK(ph_pass_forward(b->e->open, batch, 0) == PH_OK &&
              ph_pass_loss(b->e->open, 0, 1, &loss) == PH_OK,
          "%s", ph_error(b->ctx));
    return loss;
}

/* Differences of the library's own loss, extrapolated from h and 2h, so that the error of
   order h^2 is gone; what is left may be as large as that was, a third of what they
   change by when h doubles. Rounding: 4/3 of two losses over 2h, and 1/3 over 4h. */
static void token_form(void)
{
    bed b;
    ph_estimate found[64];
    const float h = 0x1p-4f;
    make_model(&b, kinds[0], 1);
    ph_texts one = {.texts = texts, .count = 1};
    CHECK(ph_eval_create(&b.e, b.m, &one, 0) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(ph_importance(b.e, PH_WORTH_TOKEN, NULL, found) == PH_OK, "%s",
          ph_error(b.ctx));
    ph_batch batch = ph_eval_fill(b.e, 0);
    scaled_row s = {0};
    int rows = b.e->texts[0].source_len, counted = b.e->texts[0].counted;
    b.e->open->see = scale_row, b.e->open->user = &s;
    for (int i = 0; i < ph_model_heads(b.m); i++) {
        double sum = 0, most = 0;
        s.index = i / 4, s.site = &b.e->sites[i / 4], s.head = i % 4;
        for (s.row = 0; s.row < rows; s.row++) {
            double near = moved_loss(&b, &batch, &s, 1 + h) -
                          moved_loss(&b, &batch, &s, 1 - h);
            double far = moved_loss(&b, &batch, &s, 1 + 2 * h) -
                         moved_loss(&b, &batch, &s, 1 - 2 * h);
            double loss = moved_loss(&b, &batch, &s, 1);
            near /= 2 * (double)h, far /= 4 * (double)h;
            sum += fabs((4 * near - far) / 3) / counted;
            most += (1.5 * LOSS_ERROR * (1 + loss) / (double)h + fabs(far - near) / 3 +
                     GRADIENT_ERROR * (1 + fabs(near))) /
                    counted;
        }
        CHECK(fabs(found[i].value - sum) < most, "head %d: %.9g, expected %.9g +- %.1g",
              i, found[i].value, sum, most);
        CHECK(most < 0.3 * sum, "head %d: differences are too coarse", i);
    }
    free_bed(&b);
}

/* ---- vectors ----------------------------------------------------------------------- */

static double projected(const bed *b, const float *signs)
{
    float v[MODEL_DIM];
    double sum = 0;
    ph_texts one = {.texts = texts, .count = 1};
    CHECK(ph_model_embed(b->m, &one, v) == PH_OK, "%s", ph_error(b->ctx));
    for (int d = 0; d < MODEL_DIM; d++) sum += (double)signs[d] * (double)v[d];
    return sum;
}

static double moved_vector(const bed *b, int head, const float *signs, float by)
{
    size_t count;
    int param;
    float *rows = output_rows(b->m, head, &param, &count), old[64];
    memcpy(old, rows, count * sizeof *old);
    for (size_t i = 0; i < count; i++) rows[i] *= by;
    double value = projected(b, signs);
    memcpy(rows, old, count * sizeof *old);
    return value;
}

/* The change of the vector with a gate, projected on random signs: differences of the
   vector itself, off as above; a sum of MODEL_DIM elements of magnitude 1 at most. */
static void vectors(void)
{
    bed b;
    ph_estimate found[64];
    ph_result result;
    const double h = 0x1p-4;
    ph_config c = {.arch = PH_ARCH_ENCODER, .pooling = PH_POOL_MEAN, .unit_norm = 1};
    make_model(&b, c, 2);
    ph_texts one = {.texts = texts, .count = 1};
    CHECK(ph_eval_create(&b.e, b.m, &one, 0) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(ph_eval_loss(b.e, NULL, &result) == PH_OK && result.loss.value == 0 &&
              fabs(result.accuracy.value - 1) < 1e-12,
          "the whole model has loss %g, cosine %g", result.loss.value,
          result.accuracy.value);
    CHECK(ph_importance(b.e, PH_WORTH_SAMPLE, NULL, found) == PH_OK, "%s",
          ph_error(b.ctx));
    float signs[MODEL_DIM];
    for (int d = 0; d < MODEL_DIM; d++)
        signs[d] = b.e->wanted[d] - b.e->graded->pooled->out[d];
    for (int i = 0; i < ph_model_heads(b.m); i++) {
        double near = (moved_vector(&b, i, signs, (float)(1 + h)) -
                       moved_vector(&b, i, signs, (float)(1 - h))) /
                      (2 * h);
        double far = (moved_vector(&b, i, signs, (float)(1 + 2 * h)) -
                      moved_vector(&b, i, signs, (float)(1 - 2 * h))) /
                     (4 * h);
        /* Extrapolated: the error of near counts 4/3, that of far, half as large, 1/3. */
        double truth = fabs(4 * near - far) / 3;
        double most = 1.5 * MODEL_DIM * LOSS_ERROR / h + fabs(far - near) / 3 +
                      GRADIENT_ERROR;
        CHECK(fabs(found[i].value - truth) < most, "head %d: %.9g, expected %.9g +- %.1g",
              i, found[i].value, truth, most);
    }
    free_bed(&b);
}

/* A decoder that gives vectors has no labels of next tokens. */
static void vectors_of_decoder(void)
{
    bed b;
    static const char *const long_text[] = {"a b c d e f g a b c d e f g"};
    ph_config c = {.arch = PH_ARCH_DECODER, .pooling = PH_POOL_LAST, .no_output = 1};
    ph_texts one = {.texts = long_text, .count = 1};
    make_model(&b, c, 1);
    CHECK(ph_eval_create(&b.e, b.m, &one, 0) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(b.e->texts[0].source_len == 8 && b.e->texts[0].label_len == 0,
          "%d tokens, %d labels", b.e->texts[0].source_len, b.e->texts[0].label_len);
    free_bed(&b);
}

/* ---- properties -------------------------------------------------------------------- */

/* A head whose rows of W_O are 0 is worth nothing by every method but confidence. */
static void useless_head(void)
{
    bed b;
    size_t count;
    int param;
    make_bed(&b, kinds[0], 1);
    float *rows = output_rows(b.m, 5, &param, &count);
    memset(rows, 0, count * sizeof *rows);
    for (int method = 0; method <= PH_WORTH_RESAMPLED; method++) {
        ph_estimate found[64];
        CHECK(ph_importance(b.e, (ph_worth)method, NULL, found) == PH_OK, "%s",
              ph_error(b.ctx));
        CHECK(found[5].value == 0 && found[5].error == 0, "%s: %g",
              ph_worth_name((ph_worth)method), found[5].value);
        CHECK(found[4].value != 0, "%s: others are 0 too",
              ph_worth_name((ph_worth)method));
    }
    free_bed(&b);
}

/* The sum of magnitudes is at least the magnitude of the sum, and more where tokens
   disagree; a head that is removed is worth 0 and changes what others are worth. */
static void forms_and_removed(void)
{
    bed b;
    ph_estimate token[64], sample[64], later[64];
    uint8_t removed[64] = {0, 1};
    int more = 0, other = 0;
    make_bed(&b, kinds[2], 1);
    CHECK(ph_importance(b.e, PH_WORTH_TOKEN, NULL, token) == PH_OK &&
              ph_importance(b.e, PH_WORTH_SAMPLE, NULL, sample) == PH_OK &&
              ph_importance(b.e, PH_WORTH_TOKEN, removed, later) == PH_OK,
          "%s", ph_error(b.ctx));
    for (int i = 0; i < ph_model_heads(b.m); i++) {
        CHECK(token[i].value >= sample[i].value * (1 - 1e-12), "head %d", i);
        more += token[i].value > 1.01 * sample[i].value;
        other += later[i].value != token[i].value;
    }
    CHECK(more && other > 1 && later[1].value == 0, "%d differ, %d later", more, other);
    free_bed(&b);
}

static void normalised(void)
{
    bed b;
    ph_estimate values[64];
    make_bed(&b, kinds[0], 1);
    for (int i = 0; i < 8; i++) values[i] = (ph_estimate){i < 4 ? i : 0, 1};
    ph_importance_normalise(b.m, values);
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += values[i].value * values[i].value;
    CHECK(fabs(sum - 1) < 1e-12, "the norm is %g", sqrt(sum));
    CHECK(values[5].value == 0 && values[5].error == 1, "a layer of zeros was changed");
    free_bed(&b);
}

/* Equal texts: the output for another one is its own; a text of one token: so is the
   mean. */
static void nothing_to_change(void)
{
    static const char *const equal[2] = {"a b c", "a b c"}, *const single[1] = {"a"};
    bed b;
    ph_result whole, changed;
    uint8_t ablation[64];
    make_model(&b, kinds[4], 1);
    memset(ablation, PH_HEAD_RESAMPLED, sizeof ablation);
    CHECK(ph_eval_create(&b.e, b.m, &(ph_texts){.texts = equal, .count = 2}, 0) == PH_OK,
          "%s", ph_error(b.ctx));
    memcpy(b.e->texts[1].source, b.e->texts[0].source, 3 * sizeof(int32_t));
    CHECK(ph_eval_loss(b.e, NULL, &whole) == PH_OK &&
              ph_eval_loss(b.e, ablation, &changed) == PH_OK,
          "%s", ph_error(b.ctx));
    CHECK(whole.loss.value == changed.loss.value, "%.9g became %.9g", whole.loss.value,
          changed.loss.value);
    ph_eval_free(b.e);
    memset(ablation, PH_HEAD_MEAN, sizeof ablation);
    CHECK(ph_eval_create(&b.e, b.m, &(ph_texts){.texts = single, .count = 1}, 0) == PH_OK,
          "%s", ph_error(b.ctx));
    CHECK(ph_eval_loss(b.e, NULL, &whole) == PH_OK &&
              ph_eval_loss(b.e, ablation, &changed) == PH_OK,
          "%s", ph_error(b.ctx));
    CHECK(whole.loss.value == changed.loss.value, "%.9g became %.9g", whole.loss.value,
          changed.loss.value);
    free_bed(&b);
}

static void same_bits(void)
{
    for (int method = 0; method < PH_WORTHS; method++) {
        bed one, two;
        ph_estimate a[64] = {{0}}, b[64] = {{0}};
        make_bed(&one, kinds[2], 1);
        make_bed(&two, kinds[2], 3);
        CHECK(ph_importance(one.e, (ph_worth)method, NULL, a) == PH_OK &&
                  ph_importance(two.e, (ph_worth)method, NULL, b) == PH_OK,
              "%s", ph_error(one.ctx));
        CHECK(!memcmp(a, b, sizeof a), "%s depends on the number of threads",
              ph_worth_name((ph_worth)method));
        free_bed(&one);
        free_bed(&two);
    }
}

/* ---- in which order they go -------------------------------------------------------- */

static void order_of(bed *b, ph_order how, int order[8])
{
    int seen[8] = {0};
    CHECK(ph_importance_order(b->e, &how, order) == PH_OK, "%s", ph_error(b->ctx));
    for (int i = 0; i < 8; i++) seen[order[i]]++;
    for (int i = 0; i < 8; i++)
        CHECK(seen[i] == 1, "head %d stands %d times", i, seen[i]);
}

static void ordered(void)
{
    bed b;
    size_t count;
    int param, order[8], other[8], last[2] = {0};
    ph_estimate worth[8];
    make_bed(&b, kinds[0], 1);
    float *rows = output_rows(b.m, 5, &param, &count);
    memset(rows, 0, count * sizeof *rows);
    order_of(&b, (ph_order){0}, order);
    CHECK(order[0] == 5, "head %d goes first, expected the useless one", order[0]);
    CHECK(ph_importance(b.e, PH_WORTH_TOKEN, NULL, worth) == PH_OK, "%s",
          ph_error(b.ctx));
    for (int i = 1; i < 8; i++)
        CHECK(worth[order[i]].value >= worth[order[i - 1]].value, "not by worth");
    order_of(&b, (ph_order){.rescore = 1}, other);
    uint8_t removed[8] = {0};
    removed[other[0]] = 1;
    CHECK(ph_importance(b.e, PH_WORTH_TOKEN, removed, worth) == PH_OK, "%s",
          ph_error(b.ctx));
    for (int h = 0; h < 8; h++)
        CHECK(removed[h] || worth[h].value >= worth[other[1]].value,
              "not measured again");
    order_of(&b, (ph_order){.keep = 1}, order);
    for (int i = 6; i < 8; i++) last[order[i] / 4]++;
    CHECK(last[0] == 1 && last[1] == 1, "the last of each layer do not stay longest");
    order_of(&b, (ph_order){.groups = PH_ORDER_GROUPS}, order);
    for (int i = 0; i < 8; i += 2)
        CHECK(order[i] % 2 == 0 && order[i + 1] == order[i] + 1, "a group was divided");
    order_of(&b, (ph_order){.groups = PH_ORDER_EVEN}, order);
    for (int i = 0; i < 8; i += 2)
        CHECK(order[i] / 2 + 1 == order[i + 1] / 2 && order[i] / 4 == order[i + 1] / 4,
              "not one head of each group: %d, %d", order[i], order[i + 1]);
    CHECK(ph_importance(b.e, PH_WORTH_TOKEN, NULL, worth) == PH_OK &&
              worth[order[0]].value <= worth[order[0] ^ 1].value,
          "the other head of the group is worth less");
    order_of(&b, (ph_order){.random = 1, .seed = 1}, order);
    order_of(&b, (ph_order){.random = 1, .seed = 2}, other);
    CHECK(memcmp(order, other, sizeof order), "two random orders are the same");
    CHECK(ph_importance_order(b.e, &(ph_order){.keep = -1}, order) == PH_BAD_ARGUMENT,
          "accepted -1");
    CHECK(ph_importance_order(b.e, &(ph_order){.groups = PH_ORDER_EVEN + 1}, order) ==
              PH_BAD_ARGUMENT,
          "accepted another unit");
    free_bed(&b);
}

/* Links: samples of the recipe, with the model of the library. */
static void recipe(void)
{
    bed b = {0};
    ph_train train;
    ph_estimate found[64];
    ph_result result;
    ph_options options = guard_options(NULL, 2);
    CHECK(ph_open(&b.ctx, &options) == PH_OK, "ph_open failed");
    CHECK(ph_model_embedded(&b.m, b.ctx) == PH_OK &&
              ph_train_defaults(&train, "pronouns") == PH_OK,
          "%s", ph_error(b.ctx));
    CHECK(ph_eval_recipe(&b.e, b.m, &train, 20, 0) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(ph_eval_loss(b.e, NULL, &result) == PH_OK && result.accuracy.value > 0.95,
          "accuracy %g: %s", result.accuracy.value, ph_error(b.ctx));
    CHECK(ph_importance(b.e, PH_WORTH_CONFIDENCE, NULL, found) == PH_OK, "%s",
          ph_error(b.ctx));
    for (int i = 0; i < ph_model_heads(b.m); i++)
        CHECK(found[i].value > 0 && found[i].value <= 1, "head %d: %g", i,
              found[i].value);
    CHECK(ph_importance(b.e, PH_WORTH_TOKEN, NULL, found) == PH_OK &&
              found[0].value > 0,
          "%s", ph_error(b.ctx));
    free_bed(&b);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void refuse(ph_config c, const ph_texts *all, ph_status expected, const char *part)
{
    bed b;
    make_model(&b, c, 1);
    ph_status status = ph_eval_create(&b.e, b.m, all, 0);
    CHECK(status == expected && !b.e && strstr(ph_error(b.ctx), part),
          "%s, expected %s in \"%s\"", ph_status_text(status), part, ph_error(b.ctx));
    free_bed(&b);
}

static void refused(void)
{
    static const char *const empty[1] = {"  "}, *const single[1] = {"a"};
    static const char *const wrong[1] = {"3"};
    ph_config links = {.arch = PH_ARCH_ENCODER};
    ph_config twins = {.arch = PH_ARCH_DECODER, .variant = "diff"};
    ph_texts all = {.texts = texts, .count = TEXTS};
    refuse(links, &all, PH_UNSUPPORTED, "recipe");
    refuse(kinds[2], &all, PH_BAD_ARGUMENT, "its target");
    refuse(kinds[5], &all, PH_BAD_ARGUMENT, "its class");
    refuse(kinds[5], &(ph_texts){.texts = texts, .pairs = wrong, .count = 1},
           PH_BAD_VALUE, "no class");
    refuse(kinds[0], &(ph_texts){.texts = empty, .count = 1}, PH_BAD_SHAPE, "empty");
    refuse(kinds[0], &(ph_texts){.texts = single, .count = 1}, PH_BAD_SHAPE, "predict");
    refuse(kinds[0], &(ph_texts){.texts = single}, PH_BAD_ARGUMENT, "there is none");
    const char *const hole[] = {NULL};
    refuse(kinds[0], &(ph_texts){.texts = hole, .count = 1}, PH_BAD_ARGUMENT, "is NULL");
    ph_importance_normalise(NULL, NULL);
    CHECK(ph_eval_texts(NULL) == 0, "texts of no eval");
    refuse(twins, &all, PH_UNSUPPORTED, "one by one");
    bed b;
    ph_estimate found[64];
    ph_train train;
    make_model(&b, kinds[0], 1);
    ph_texts one = {.texts = texts, .count = 1};
    CHECK(ph_eval_create(&b.e, b.m, &one, 0) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(ph_importance(b.e, PH_WORTH_RESAMPLED, NULL, found) == PH_BAD_ARGUMENT &&
              strstr(ph_error(b.ctx), "expected two"),
          "%s", ph_error(b.ctx));
    const ph_tuning endless[] = {{.steps = 1, .lr = INFINITY},
                                 {.steps = 1, .weight_decay = NAN},
                                 {.steps = 1, .max_grad_norm = -1}};
    for (int i = 0; i < 3; i++)
        CHECK(ph_eval_tune(b.e, &endless[i], NULL) == PH_BAD_ARGUMENT, "accepted %d", i);
    CHECK(ph_importance(b.e, PH_WORTHS, NULL, found) == PH_BAD_ARGUMENT, "accepted");
    ph_eval *e;
    CHECK(ph_train_defaults(&train, "dates") == PH_OK &&
              ph_eval_recipe(&e, b.m, &train, 3, 0) == PH_BAD_ARGUMENT && !e &&
              strstr(ph_error(b.ctx), "not a model of this recipe"),
          "%s", ph_error(b.ctx));
    free_bed(&b);
}

/* ---- NaN and Inf ------------------------------------------------------------------- */

static void expect_bad(const bed *b, ph_status status, const char *part)
{
    CHECK(status == PH_BAD_VALUE && strstr(ph_error(b->ctx), part), "%d, %s, not %s",
          (int)status, ph_error(b->ctx), part);
}

static void not_finite(void)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    bed b;
    int param;
    size_t count;
    ph_estimate found[64];
    ph_result result;
    for (int i = 0; i < 3; i++) {
        make_model(&b, kinds[0], 1);
        ph_texts all = texts_of(&b.m->config);
        output_rows(b.m, 5, &param, &count)[3] = bad[i];
        expect_bad(&b, ph_eval_create(&b.e, b.m, &all, 0),
                   "decoder.1.self.wo has a NaN or Inf in row 2, column 3");
        CHECK(!b.e, "an eval is left");
        uint8_t removed[64] = {1};
        expect_bad(&b, ph_model_remove(b.m, removed), "decoder.1.self.wo has a NaN");
        free_bed(&b);
    }
    make_bed(&b, kinds[0], 1);
    for (size_t i = 0; i < b.m->floats; i++) b.m->block[i] *= 1e30f; /* all are finite */
    expect_bad(&b, ph_eval_loss(b.e, NULL, &result), "the loss of text 1");
    expect_bad(&b, ph_importance(b.e, PH_WORTH_ZERO, NULL, found), "the loss of text 1");
    expect_bad(&b, ph_importance(b.e, PH_WORTH_TOKEN, NULL, found),
               "head 0 of decoder.0.self");
    free_bed(&b);
}

static const check_case cases[] = {{"sample_form", sample_form},
                                   {"path_form", path_form},
                                   {"not_finite", not_finite},
                                   {"ablated", ablated},
                                   {"token_form", token_form},
                                   {"vectors", vectors},
                                   {"vectors_of_decoder", vectors_of_decoder},
                                   {"useless_head", useless_head},
                                   {"forms_and_removed", forms_and_removed},
                                   {"normalised", normalised},
                                   {"nothing_to_change", nothing_to_change},
                                   {"same_bits", same_bits},
                                   {"ordered", ordered},
                                   {"recipe", recipe},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
