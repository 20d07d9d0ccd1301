/*
 * test_gates.c - Hard Concrete gates and training with them, on models with heads that
 * are known to be of use or not; training after heads were removed.
 */
#define _GNU_SOURCE
#include "model_oracle.h"
#include "prune/hard_concrete.h"
#include "prune_bed.h"

/* ---- the distribution -------------------------------------------------------------- */

/* Computed from the formulas to four digits. */
static const struct {
    double beta, logit, closed, open;
} anchors[] = {{0.33, -3, 0.9010, 0.0221},  {0.33, 0, 0.3119, 0.3119},
               {0.33, 2, 0.0578, 0.7701},   {0.50, 0, 0.2317, 0.2317},
               {0.50, 2, 0.0392, 0.6902},   {0.50, -3, 0.8583, 0.0148},
               {2 / 3.0, 0, 0.1682, 0.1682}};

static void probabilities(void)
{
    for (size_t i = 0; i < sizeof anchors / sizeof anchors[0]; i++) {
        ph_hard_concrete c = {anchors[i].beta, -0.1, 1.1};
        double closed = ph_gate_closed(&c, anchors[i].logit);
        double open = ph_gate_open(&c, anchors[i].logit);
        CHECK(fabs(closed - anchors[i].closed) < 6e-5 &&
                  fabs(open - anchors[i].open) < 6e-5,
              "row %zu: %.5f and %.5f", i, closed, open);
    }
}

/* Frequencies of n draws are off by 3 sqrt(p (1 - p) / n) in one of 370 cases; the seed
   is fixed. */
static void frequencies(void)
{
    enum { DRAWS = 100000 };
    for (int logit = -3; logit <= 3; logit++) {
        uint64_t state = 9;
        int zeros = 0, ones = 0;
        double derivative;
        for (int i = 0; i < DRAWS; i++) {
            double g = ph_gate_sample(&ph_hard_concrete_default, logit,
                                      check_uniform(&state), &derivative);
            zeros += g == 0, ones += g == 1;
            CHECK((g > 0 && g < 1) || derivative == 0,
                  "a gate at its end has a derivative");
        }
        double p = ph_gate_closed(&ph_hard_concrete_default, logit);
        double q = ph_gate_open(&ph_hard_concrete_default, logit);
        CHECK(fabs(zeros / (double)DRAWS - p) < 3 * sqrt(p * (1 - p) / DRAWS) &&
                  fabs(ones / (double)DRAWS - q) < 3 * sqrt(q * (1 - q) / DRAWS),
              "logit %d: %d zeros, %d ones, expected %.0f and %.0f", logit, zeros, ones,
              p * DRAWS, q * DRAWS);
    }
}

/* Differences in double are off by h^2 / 6 times the third derivative, some 1e-9 here. */
static void derivatives(void)
{
    const double h = 1e-5;
    for (double logit = -4; logit <= 4; logit += 0.5)
        for (double u = 0.05; u < 1; u += 0.1) {
            double derivative, penalty_derivative, other;
            const ph_hard_concrete *c = &ph_hard_concrete_default;
            double g = ph_gate_sample(c, logit, u, &derivative);
            double near = (ph_gate_sample(c, logit + h, u, &other) -
                           ph_gate_sample(c, logit - h, u, &other)) /
                          (2 * h);
            ph_gate_penalty(c, logit, &penalty_derivative);
            double penalty = (ph_gate_penalty(c, logit + h, &other) -
                              ph_gate_penalty(c, logit - h, &other)) /
                             (2 * h);
            CHECK(g == 0 || g == 1 || fabs(derivative - near) < 1e-8,
                  "logit %g, u %g: %.9g, expected %.9g", logit, u, derivative, near);
            CHECK(fabs(penalty_derivative - penalty) < 1e-8,
                  "penalty at %g: %.9g, not %.9g", logit, penalty_derivative, penalty);
        }
}

/* ---- gradients of gates ------------------------------------------------------------ */

/* The sum of all losses, with rows of W_O of every head times its gate. */
static double gated_loss(const bed *b, oracle_model *o, const double *gates)
{
    double sum = 0;
    for (int h = 0; h < ph_model_heads(b->m); h++) {
        size_t count;
        int param;
        float *rows = output_rows(b->m, h, &param, &count);
        double *to = o->values[param] + (rows - (b->m->block + b->m->params[param].at));
        for (size_t i = 0; i < count; i++) to[i] = (double)rows[i] * gates[h];
    }
    for (int i = 0; i < TEXTS; i++) {
        const ph_eval_text *t = &b->e->texts[i];
        oracle_batch batch = {.batch = 1,
                              .source_len = t->source_len,
                              .target_len = t->target_len,
                              .source = t->source,
                              .target = t->target,
                              .labels = t->labels};
        sum += oracle_model_loss(o, &batch, 0, NULL);
    }
    return sum;
}

/* Each text adds the error of one gradient. */
static void gradients(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed b;
        oracle_model o;
        ph_pass *p;
        double loss, gates[64], largest = 0;
        float values[64];
        uint64_t state = 4;
        make_bed(&b, kinds[k], 1);
        oracle_model_take(&o, b.m);
        int heads = ph_model_heads(b.m);
        float *grads = calloc(b.m->floats, sizeof *grads);
        for (int h = 0; h < heads; h++)
            gates[h] = (double)(values[h] = 0.25f + (float)check_uniform(&state) / 2);
        ph_pass_shape shape = {.batch = b.e->batch,
                               .source_len = b.e->source_len,
                               .target_len = b.e->target_len,
                               .backward = 1,
                               .no_dropout = 1,
                               .gated = 1};
        CHECK(b.e->batches == 1 && ph_pass_create(&p, b.m, &shape) == PH_OK, "%s",
              ph_error(b.ctx));
        ph_batch batch = ph_eval_fill(b.e, 0);
        p->gates = values;
        CHECK(ph_pass_forward(p, &batch, 0) == PH_OK &&
                  ph_pass_loss(p, 0, 1, &loss) == PH_OK &&
                  ph_pass_backward(p, grads) == PH_OK,
              "%s", ph_error(b.ctx));
        double truth = gated_loss(&b, &o, gates);
        CHECK(fabs(loss - truth) < LOSS_ERROR * (1 + truth), "kind %d: %.9g, not %.9g", k,
              loss, truth);
        for (int h = 0; h < heads; h++) {
            const ph_eval_site *site = b.e->sites;
            while (h >= site->first_head + site->heads) site++;
            const ph_pass_stack *stack = &p->stacks[site->stack];
            const float *d = stack->acts[site->sublayer].dgate;
            double sum = 0, step = 1e-5, old = gates[h];
            for (int r = 0; r < stack->rows; r++)
                sum += (double)d[(h - site->first_head) * stack->rows + r];
            gates[h] = old + step;
            double up = gated_loss(&b, &o, gates);
            gates[h] = old - step;
            double expected = (up - gated_loss(&b, &o, gates)) / (2 * step);
            gates[h] = old;
            largest = fmax(largest, fabs(expected));
            CHECK(fabs(sum - expected) < TEXTS * GRADIENT_ERROR * (1 + largest),
                  "kind %d head %d: %.9g, expected %.9g", k, h, sum, expected);
        }
        CHECK(largest > 1e-3, "no head counts");
        free(grads);
        oracle_model_free(&o);
        ph_pass_free(p);
        free_bed(&b);
    }
}

/* ---- training ---------------------------------------------------------------------- */

static void train(bed *b, ph_tuning how, float *logits)
{
    CHECK(ph_eval_tune(b->e, &how, logits) == PH_OK, "%s", ph_error(b->ctx));
}

/* A model that has learned its texts, whose head 3 gives nothing and cannot begin to. */
static void learn(bed *b)
{
    size_t count;
    int param;
    make_bed(b, kinds[0], 2);
    float *rows = output_rows(b->m, 3, &param, &count);
    memset(rows, 0, count * sizeof *rows);
    train(b, (ph_tuning){.steps = 300, .lr = 1e-2f}, NULL);
    memset(rows, 0, count * sizeof *rows);
}

static void useful_and_useless(void)
{
    bed b;
    ph_estimate worth[64];
    ph_result result;
    learn(&b);
    CHECK(ph_eval_loss(b.e, NULL, &result) == PH_OK && result.loss.value < 0.7,
          "nothing was learned: %g", result.loss.value);
    CHECK(ph_importance(b.e, PH_WORTH_ZERO, NULL, worth) == PH_OK, "%s", ph_error(b.ctx));
    int best = 0;
    for (int h = 1; h < 8; h++)
        if (worth[h].value > worth[best].value) best = h;
    float *before = malloc(b.m->floats * sizeof *before);
    memcpy(before, b.m->block, b.m->floats * sizeof *before);
    for (int i = 0; i < 2; i++) {
        float logits[64];
        ph_tuning how = {.steps = 200, .gated = 1, .only_gates = 1, .gate_lr = 0.1f};
        how.l0 = i ? 100 : (float)worth[best].value / 20;
        for (int h = 0; h < 64; h++) logits[h] = PH_GATE_START;
        train(&b, how, logits);
        CHECK(logits[3] < 0, "the useless head stays, logit %g", (double)logits[3]);
        CHECK(i ? logits[best] < 0 : logits[best] > 0, "run %d: the best head has %g", i,
              (double)logits[best]);
        CHECK(!memcmp(before, b.m->block, b.m->floats * sizeof *before),
              "parameters were changed");
    }
    free(before);
    free_bed(&b);
}

enum { DISTILLED = 60 };

/* Squared distance to the teacher's outputs, in the first and the last steps. */
typedef struct distances {
    double first, last;
} distances;

static void add_distance(void *user, const ph_tuned *at)
{
    distances *d = user;
    if (at->step <= TEXTS) d->first += at->loss;
    if (at->step > DISTILLED - TEXTS) d->last += at->loss;
}

/* The teacher's own outputs are learned already; after heads are gone, they are
   approached. */
static void distilled(void)
{
    for (int k = 0; k < KINDS; k++) {
        bed teacher, b;
        uint8_t removed[64] = {0, 1, 1};
        distances d = {0, 0};
        make_bed(&teacher, kinds[k], 1);
        make_bed(&b, kinds[k], 1);
        train(&b, (ph_tuning){.steps = 2, .lr = 1e-2f, .teacher = teacher.m}, NULL);
        CHECK(!memcmp(teacher.m->block, b.m->block, b.m->floats * sizeof(float)),
              "kind %d: a model learned from itself", k);
        ph_eval_free(b.e);
        CHECK(ph_model_remove(b.m, removed) == PH_OK, "%s", ph_error(b.ctx));
        make_eval(&b);
        train(&b,
              (ph_tuning){.steps = DISTILLED,
                          .lr = 3e-3f,
                          .teacher = teacher.m,
                          .each = add_distance,
                          .user = &d},
              NULL);
        CHECK(d.last < 0.1 * d.first, "kind %d: squared distance %g, was %g", k, d.last,
              d.first);
        free_bed(&b);
        free_bed(&teacher);
    }
}

static void refused(void)
{
    bed b, v;
    float logits[64] = {0};
    ph_config c = {.arch = PH_ARCH_ENCODER, .pooling = PH_POOL_MEAN};
    make_bed(&b, kinds[0], 1);
    make_bed(&v, c, 1);
    CHECK(ph_eval_tune(v.e, &(ph_tuning){.steps = 1}, NULL) == PH_UNSUPPORTED &&
              strstr(ph_error(v.ctx), "teacher"),
          "%s", ph_error(v.ctx));
    CHECK(ph_eval_tune(b.e, &(ph_tuning){.steps = 1, .gated = 1}, NULL) ==
                  PH_BAD_ARGUMENT &&
              ph_eval_tune(b.e, &(ph_tuning){.steps = 1, .only_gates = 1}, logits) ==
                  PH_BAD_ARGUMENT &&
              ph_eval_tune(b.e, &(ph_tuning){.steps = -1}, NULL) == PH_BAD_ARGUMENT &&
              ph_eval_tune(b.e, &(ph_tuning){.steps = 1, .teacher = v.m}, NULL) ==
                  PH_BAD_ARGUMENT,
          "accepted");
    free_bed(&b);
    free_bed(&v);
}

static const check_case cases[] = {{"probabilities", probabilities},
                                   {"frequencies", frequencies},
                                   {"derivatives", derivatives},
                                   {"gradients", gradients},
                                   {"useful_and_useless", useful_and_useless},
                                   {"distilled", distilled},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
