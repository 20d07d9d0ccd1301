/*
 * tuning.c - training on the texts of an eval: labels or the outputs of another model,
 * with or without a gate for every head.
 *
 * A step is a function of parameters, optimiser and step number. Gates are drawn once for
 * a batch; their gradient is the sum over tokens of what the pass gives for each.
 */
#include <math.h>
#include <string.h>

#include "base/reserved.h"
#include "base/rng.h"
#include "model/train.h"
#include "prune/eval.h"
#include "prune/hard_concrete.h"

enum { STREAM_SHUFFLE = 13, STREAM_GATES = 17 };

typedef struct tuning {
    ph_eval *e;
    const ph_tuning *how;
    ph_trainer t; /* what the optimiser reads: model, gradients, moments, options */
    ph_pass *teacher;
    float *gates, *derivatives; /* (heads) of this step, and their derivatives */
    double *dgates;             /* (heads) gradient of the logits */
    double *first, *second;     /* (heads) moments of Adam */
    float *logits;
} tuning;

/* ---- making one -------------------------------------------------------------------- */

static ph_status take(tuning *x, size_t bytes, void *to)
{
    void *memory = ph_ctx_alloc(x->e->m->ctx, bytes ? bytes : 1);
    memcpy(to, &memory, sizeof memory);
    if (!memory)
        return ph_fail(x->e->m->ctx, PH_OUT_OF_MEMORY,
                       "no memory for training (%zu bytes)", bytes);
    memset(memory, 0, bytes);
    return PH_OK;
}

static ph_pass_shape shape_of(const tuning *x, int teacher)
{
    const ph_eval *e = x->e;
    return (ph_pass_shape){.batch = e->batch,
                           .source_len = e->source_len,
                           .target_len = e->target_len,
                           .backward = !teacher,
                           .no_dropout = 1,
                           .gated = !teacher && x->how->gated,
                           .pooled_only = ph_eval_is_vectors(e)};
}

static int is_amount(float value)
{
    return value >= 0 && isfinite(value);
}

static ph_status check(const tuning *x)
{
    const ph_tuning *how = x->how;
    ph_ctx *ctx = x->e->m->ctx;
    const ph_model *teacher = how->teacher;
    PH_CHECK_RESERVED(ctx, "ph_tuning", how->reserved);
    if (how->steps < 0 || how->steps > PH_STEPS_MOST || !is_amount(how->lr) ||
        !is_amount(how->l0) || !is_amount(how->gate_lr) ||
        !is_amount(how->weight_decay) || !is_amount(how->max_grad_norm))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "steps, lr, l0, gate_lr, weight_decay or max_grad_norm is below 0 "
                       "or too large");
    if (how->gated && !x->logits)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "logits is NULL, expected those of gates");
    if (how->only_gates && !how->gated)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "only_gates is set, expected gates with it");
    if (!teacher && ph_eval_is_vectors(x->e))
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "the model gives vectors, which have no labels, expected a "
                       "teacher");
    if (teacher && x->e->m->links >= 0)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "the model points from word to word and has no scores that could "
                       "be learned from a teacher, expected training on labels");
    const ph_config *c = &x->e->m->config;
    if (teacher &&
        (teacher->config.arch != c->arch ||
         ph_config_poolings(&teacher->config) != ph_config_poolings(c) ||
         teacher->config.pooling != c->pooling ||
         ph_config_vector_dim(&teacher->config) != ph_config_vector_dim(c) ||
         teacher->config.vocab != c->vocab || teacher->config.model_dim != c->model_dim ||
         teacher->config.classes != c->classes))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "the teacher is another kind of model, expected the one before "
                       "heads were removed");
    return PH_OK;
}

static ph_status begin(tuning *x)
{
    ph_model *m = x->e->m;
    size_t bytes = m->floats * sizeof(float), heads = (size_t)m->head_count;
    PH_TRY(check(x));
    const ph_tuning *how = x->how;
    x->t = (ph_trainer){.ctx = m->ctx, .model = m};
    x->t.train.lr = how->lr > 0 ? how->lr : 1e-4f;
    x->t.train.steps = how->steps, x->t.train.warmup = how->steps / 10;
    x->t.train.weight_decay = how->weight_decay;
    x->t.train.max_grad_norm = how->max_grad_norm;
    PH_TRY(take(x, bytes, &x->t.grads));
    PH_TRY(take(x, how->only_gates ? 0 : bytes, &x->t.first_moment));
    PH_TRY(take(x, how->only_gates ? 0 : bytes, &x->t.second_moment));
    PH_TRY(
        take(x, (m->floats / PH_ITEM_FLOATS + 1) * sizeof(double), &x->t.partial_sums));
    PH_TRY(take(x, 2 * heads * sizeof(float), &x->gates));
    PH_TRY(take(x, 3 * heads * sizeof(double), &x->dgates));
    x->derivatives = x->gates + heads;
    x->first = x->dgates + heads, x->second = x->first + heads;
    ph_pass_shape student = shape_of(x, 0), teacher = shape_of(x, 1);
    PH_TRY(ph_pass_create(&x->t.pass, m, &student));
    if (!how->teacher) return PH_OK;
    return ph_pass_create(&x->teacher, (ph_model *)how->teacher, &teacher);
}

static void end(tuning *x)
{
    ph_ctx *ctx = x->e->m->ctx;
    ph_pass_free(x->t.pass);
    ph_pass_free(x->teacher);
    void *const buffers[] = {x->t.grads,        x->t.first_moment, x->t.second_moment,
                             x->t.partial_sums, x->gates,          x->dgates};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        ph_ctx_release(ctx, buffers[i]);
    for (int i = 0; i < x->e->count; i++) x->e->order[i] = i;
}

/* ---- a step ------------------------------------------------------------------------ */

/* Another order for every time that all texts are gone through. */
static void shuffle(const tuning *x, int epoch)
{
    uint64_t key = ph_rng_key(x->how->seed, STREAM_SHUFFLE, (uint64_t)epoch, 0);
    int *order = x->e->order;
    for (int i = x->e->count - 1; i > 0; i--) {
        uint64_t draw = ph_rng_at(key, (uint32_t)i);
        int other = (int)(draw * (uint64_t)(i + 1) >> 32), kept = order[i];
        order[i] = order[other], order[other] = kept;
    }
}

static void draw_gates(const tuning *x, int step)
{
    uint64_t key = ph_rng_key(x->how->seed, STREAM_GATES, (uint64_t)step, 0);
    for (int h = 0; h < x->e->m->head_count; h++) {
        double u = ((double)ph_rng_at(key, (uint32_t)h) + 0.5) / 4294967296.0, derivative;
        x->gates[h] = (float)ph_gate_sample(&ph_hard_concrete_default,
                                            (double)x->logits[h], u, &derivative);
        x->derivatives[h] = (float)derivative;
    }
}

/* What the teacher makes of the batch. */
static ph_status set_wanted(const tuning *x, const ph_batch *batch)
{
    ph_batch *to = &x->t.pass->batch;
    if (!x->teacher) return PH_OK;
    PH_TRY(ph_pass_forward(x->teacher, batch, 0));
    if (ph_eval_is_vectors(x->e)) {
        to->vectors = x->teacher->pooled->out;
        return PH_OK;
    }
    int classes = x->e->m->config.classes;
    if (!classes) PH_TRY(ph_pass_logits(x->teacher));
    to->scores = classes ? x->teacher->pooled->scores : x->teacher->logits;
    return PH_OK;
}

/* Gradients of the logits; returns the expected number of open gates. */
static double collect_gates(const tuning *x)
{
    double open = 0;
    for (int s = 0; s < x->e->m->site_count; s++) {
        const ph_eval_site *site = &x->e->sites[s];
        const ph_pass_stack *stack = &x->t.pass->stacks[site->stack];
        const float *d = stack->acts[site->sublayer].dgate;
        for (int h = site->first_head; h < site->first_head + site->heads; h++) {
            double sum = 0, derivative;
            for (int r = 0; r < stack->rows; r++) sum += (double)*d++;
            open += ph_gate_penalty(&ph_hard_concrete_default, (double)x->logits[h],
                                    &derivative);
            x->dgates[h] =
                sum * (double)x->derivatives[h] + (double)x->how->l0 * derivative;
        }
    }
    return open;
}

/* Adam, as for parameters. */
static void move_gates(const tuning *x)
{
    double rate = (x->how->gate_lr > 0 ? (double)x->how->gate_lr : 0.05);
    double fix1 = 1 - pow(0.9, x->t.step), fix2 = 1 - pow(0.98, x->t.step);
    for (int h = 0; h < x->e->m->head_count; h++) {
        double d = x->dgates[h];
        x->first[h] = 0.9 * x->first[h] + 0.1 * d;
        x->second[h] = 0.98 * x->second[h] + 0.02 * d * d;
        x->logits[h] -=
            (float)(rate * x->first[h] / fix1 / (sqrt(x->second[h] / fix2) + 1e-9));
    }
}

static int64_t counted_tokens(const ph_eval *e)
{
    int64_t tokens = 0;
    for (int b = 0; b < e->used; b++) tokens += e->texts[e->order[e->first + b]].counted;
    return tokens;
}

static ph_status step(tuning *x, int number)
{
    ph_eval *e = x->e;
    ph_tuned at = {.step = number + 1};
    double norm;
    if (number % e->batches == 0) shuffle(x, number / e->batches);
    ph_batch batch = ph_eval_fill(e, number % e->batches);
    int64_t tokens = counted_tokens(e);
    if (x->how->gated) {
        draw_gates(x, number);
        x->t.pass->gates = x->gates;
    }
    PH_TRY(ph_pass_forward(x->t.pass, &batch, 0));
    PH_TRY(set_wanted(x, &batch));
    PH_TRY(ph_pass_loss(x->t.pass, 0, 1.0f / (float)tokens, &at.loss));
    PH_TRY(ph_pass_backward(x->t.pass, x->t.grads));
    norm = ph_optimise_grad_norm(&x->t);
    if (!isfinite(at.loss) || !isfinite(norm))
        return ph_fail(e->m->ctx, PH_BAD_VALUE,
                       "the loss became NaN or Inf at step %d; a smaller learning rate "
                       "may help",
                       number + 1);
    x->t.step = number + 1;
    at.loss /= (double)tokens, at.lr = ph_optimise_lr(&x->t.train, x->t.step);
    if (x->how->gated) {
        at.open = collect_gates(x);
        move_gates(x);
    }
    if (!x->how->only_gates) ph_optimise_step(&x->t, norm);
    if (x->how->each) x->how->each(x->how->user, &at);
    return PH_OK;
}

static ph_status tune(ph_eval *e, const ph_tuning *how, float *logits)
{
    tuning x = {.e = e, .how = how, .logits = logits};
    ph_status status = begin(&x);
    for (int i = 0; status == PH_OK && i < how->steps; i++) status = step(&x, i);
    end(&x);
    return status;
}

ph_status ph_eval_tune(ph_eval *e, const ph_tuning *how, float *logits)
{
    if (!e) return PH_BAD_ARGUMENT;
    if (!how) return ph_ctx_null(e->m->ctx, "how");
    return PH_WITHIN(e->m->ctx, tune(e, how, logits));
}
