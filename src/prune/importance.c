/*
 * importance.c - what each head is worth.
 *
 * The gradient of the loss with respect to a gate of one head and token is the product of
 * the head's output and its gradient, so a pass whose gates are all 1 gives the
 * contributions of all heads to all tokens at once:
 *
 *     token    sum_t |O_t . dO_t|        sample   |sum_t O_t . dO_t|
 *
 * for each text, then the mean over texts. At a loss near 0 these gradients say nothing
 * about how it grows, so `path` takes them where all gates are 5/6, 1/2 and 1/6: with
 * L(g) the loss with all gates g,
 *
 *     path     - integral over g from 0 to 1 of sum_t O_t . dO_t    (midpoint rule)
 *
 * whose sum over heads is L(0) - L(1).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/moments.h"
#include "base/rng.h"
#include "prune/eval.h"

enum { SIGNS_SEED = 20260103, PATH_POINTS = 3 };
#define RELEVANCE_EPS 1e-5 /* as the published code has it */

/* ---- heads ------------------------------------------------------------------------- */

int ph_model_heads(const ph_model *m)
{
    return m ? m->head_count : 0;
}

static const ph_sublayer *find_head(const ph_model *m, int i, int *stack)
{
    for (int s = 0; s < m->stack_count; s++)
        for (int n = 0; n < m->stacks[s].count; n++) {
            const ph_sublayer *def = &m->stacks[s].sublayers[n];
            if (def->site < 0 || i < def->first_head || i >= def->first_head + def->heads)
                continue;
            *stack = s;
            return def;
        }
    return NULL;
}

ph_status ph_model_head(const ph_model *m, int i, ph_head_place *out)
{
    int stack = 0;
    if (!m) return PH_BAD_ARGUMENT;
    if (!out) return ph_ctx_null(m->ctx, "out");
    const ph_sublayer *def = find_head(m, i, &stack);
    if (!def) return PH_BAD_ARGUMENT;
    ph_layer_desc d = ph_model_layer(m, &m->stacks[stack], def, 1, 1, 1);
    int shared = d.attn.k_heads ? d.attn.q_heads / d.attn.k_heads : 1;
    snprintf(out->site, sizeof out->site, "%s.%d.%s",
             m->stacks[stack].causal ? "decoder" : "encoder", def->layer,
             def->kind == PH_SUBLAYER_CROSS ? "cross" : "self");
    out->head = ph_sublayer_original(def, i - def->first_head);
    out->group = (i - def->first_head) / (shared ? shared : 1);
    return PH_OK;
}

/* ---- methods ----------------------------------------------------------------------- */

static const struct {
    const char *name, *help;
} methods[PH_WORTHS] = {
    {"token", "gradient: sum over the tokens of a text of |output . its gradient|"},
    {"sample", "gradient: |sum over the tokens of a text of output . its gradient|"},
    {"path", "gradient: growth of the loss due to the head while all heads fade out"},
    {"zero", "how much the loss grows when the head gives 0"},
    {"mean", "how much it grows when the head gives every token of a text its mean"},
    {"resampled", "how much it grows when the head has its output for another text"},
    {"alone", "minus how much it grows when the other heads of the layer give 0"},
    {"confidence", "mean over tokens of the head's largest weight"},
    {"lrp_ratio", "layer-wise relevance: the head's part of its layer's, ratio rule"},
    {"lrp_ab", "layer-wise relevance by the alpha-beta rule, alpha = beta = 1/2"}};

const char *ph_worth_name(ph_worth method)
{
    return (unsigned)method < PH_WORTHS ? methods[method].name : NULL;
}

const char *ph_worth_help(ph_worth method)
{
    return (unsigned)method < PH_WORTHS ? methods[method].help : NULL;
}

static int is_gradient(ph_worth method)
{
    return method == PH_WORTH_TOKEN || method == PH_WORTH_SAMPLE ||
           method == PH_WORTH_PATH;
}

/* ---- gradients --------------------------------------------------------------------- */

static ph_status make_graded(ph_eval *e)
{
    ph_pass_shape shape = {.batch = e->batch,
                           .source_len = e->source_len,
                           .target_len = e->target_len,
                           .backward = 1,
                           .no_dropout = 1,
                           .gated = 1,
                           .pooled_only = ph_eval_is_vectors(e)};
    if (!e->graded) PH_TRY(ph_pass_create(&e->graded, e->m, &shape));
    if (!e->grads) e->grads = ph_ctx_alloc(e->m->ctx, e->m->floats * sizeof *e->grads);
    return e->grads ? PH_OK
                    : ph_fail(e->m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu gradients",
                              e->m->floats);
}

/* Where all gates are 1 the distance of a vector to itself has no gradient. To one that
   is moved by 1 or -1 in every element, by chance, it has: the change of the vector,
   projected on that move. */
static void displace(ph_eval *e)
{
    size_t dim = (size_t)ph_config_vector_dim(&e->m->config);
    const float *out = e->graded->pooled->out;
    for (int b = 0; b < e->used; b++) {
        uint64_t key = ph_rng_key(SIGNS_SEED, (uint64_t)(e->first + b), 0, 0);
        for (size_t d = 0; d < dim; d++) {
            float sign = ph_rng_at(key, (uint32_t)d) >> 31 ? 1.0f : -1.0f;
            e->wanted[(size_t)b * dim + d] = out[(size_t)b * dim + d] + sign;
        }
    }
}

/* What the loss of vectors is measured from. */
static void want_vectors(ph_eval *e, ph_worth method)
{
    size_t dim = (size_t)ph_config_vector_dim(&e->m->config);
    if (method != PH_WORTH_PATH)
        displace(e);
    else
        memcpy(e->wanted, e->own + (size_t)e->first * dim,
               (size_t)e->used * dim * sizeof *e->wanted);
    e->graded->batch.vectors = e->wanted;
}

/* Gradients of the gates of a text, summed over its tokens, with signs or without. */
static double sum_tokens(const ph_eval *e, const ph_eval_site *site, int h, int text,
                         ph_worth method)
{
    const ph_pass_stack *stack = &e->graded->stacks[site->stack];
    const float *row =
        stack->acts[site->sublayer].dgate + (size_t)h * (size_t)stack->rows;
    double sum = 0;
    for (int r = stack->offsets[text]; r < stack->offsets[text + 1]; r++)
        sum += method == PH_WORTH_TOKEN ? fabs((double)row[r]) : (double)row[r];
    return sum / e->texts[e->first + text].counted;
}

/* One forward and backward pass of a batch; sums (heads, batch) get what it adds. */
static ph_status add_pass(ph_eval *e, int number, ph_worth method, double *sums)
{
    ph_batch batch = ph_eval_fill(e, number);
    double loss;
    PH_TRY(ph_pass_forward(e->graded, &batch, 0));
    if (e->own) want_vectors(e, method);
    PH_TRY(ph_pass_loss(e->graded, 0, 1, &loss));
    PH_TRY(ph_pass_backward(e->graded, e->grads));
    for (int s = 0; s < e->m->site_count; s++) {
        const ph_eval_site *site = &e->sites[s];
        for (int h = 0; h < site->heads; h++)
            for (int b = 0; b < e->used; b++)
                sums[(size_t)(site->first_head + h) * (size_t)e->batch + (size_t)b] +=
                    sum_tokens(e, site, h, b, method);
    }
    return PH_OK;
}

static void set_gates(float *gates, const uint8_t *removed, int heads, double to)
{
    for (int h = 0; h < heads; h++) gates[h] = removed && removed[h] ? 0 : (float)to;
}

static ph_status add_gradients(ph_eval *e, ph_worth method, const uint8_t *removed,
                               float *gates, double *sums, ph_moments *t)
{
    int heads = e->m->head_count, points = method == PH_WORTH_PATH ? PATH_POINTS : 1;
    PH_TRY(make_graded(e));
    e->graded->gates = gates;
    for (int i = 0; i < e->batches; i++) {
        memset(sums, 0, (size_t)heads * (size_t)e->batch * sizeof *sums);
        for (int k = 0; k < points; k++) {
            set_gates(gates, removed, heads, points > 1 ? (k + 0.5) / points : 1);
            PH_TRY(add_pass(e, i, method, sums));
        }
        for (int h = 0; h < heads; h++)
            for (int b = 0; b < e->used; b++) {
                double sum = sums[(size_t)h * (size_t)e->batch + (size_t)b];
                if (method == PH_WORTH_PATH) sum = -sum / points;
                ph_moments_add(&t[h], method == PH_WORTH_PATH ? sum : fabs(sum));
            }
    }
    return PH_OK;
}

/* ---- ablations --------------------------------------------------------------------- */

static void keep_alone(const ph_eval_site *site, int head, uint8_t *ablation)
{
    for (int i = site->first_head; i < site->first_head + site->heads; i++)
        if (i != head) ablation[i] = PH_HEAD_ZERO;
}

static void start_from(uint8_t *ablation, const uint8_t *removed, int heads)
{
    for (int i = 0; i < heads; i++)
        ablation[i] = removed && removed[i] ? PH_HEAD_ZERO : PH_HEAD_ON;
}

static ph_status ablate(ph_eval *e, const ph_eval_site *site, ph_worth method, int head,
                        uint8_t *ablation)
{
    ph_result result;
    if (method == PH_WORTH_ALONE)
        keep_alone(site, head, ablation);
    else
        ablation[head] = method == PH_WORTH_ZERO   ? PH_HEAD_ZERO
                         : method == PH_WORTH_MEAN ? PH_HEAD_MEAN
                                                   : PH_HEAD_RESAMPLED;
    return ph_eval_loss(e, ablation, &result);
}

/* whole: the loss of every text with nothing changed but what is removed. */
static ph_status add_losses(ph_eval *e, ph_worth method, const uint8_t *removed,
                            double *whole, uint8_t *ablation, ph_moments *t)
{
    ph_result result;
    double sign = method == PH_WORTH_ALONE ? -1 : 1;
    start_from(ablation, removed, e->m->head_count);
    PH_TRY(ph_eval_loss(e, ablation, &result));
    memcpy(whole, e->loss, (size_t)e->count * sizeof *whole);
    for (int s = 0; s < e->m->site_count; s++)
        for (int h = 0; h < e->sites[s].heads; h++) {
            int head = e->sites[s].first_head + h;
            if (removed && removed[head]) continue;
            start_from(ablation, removed, e->m->head_count);
            PH_TRY(ablate(e, &e->sites[s], method, head, ablation));
            for (int i = 0; i < e->count; i++)
                ph_moments_add(&t[head], sign * (e->loss[i] - whole[i]));
        }
    return PH_OK;
}

/* ---- confidence -------------------------------------------------------------------- */

/* A causal head sees nothing but itself at the first token, which says nothing. */
static void add_confidence(const ph_eval *e, const ph_eval_site *site, const float *top,
                           ph_moments *t)
{
    const ph_pass_stack *stack = &e->open->stacks[site->stack];
    const ph_sublayer *def = &stack->def->sublayers[site->sublayer];
    int skip = stack->def->causal && def->kind == PH_SUBLAYER_SELF;
    for (int h = 0; h < site->heads; h++)
        for (int b = 0; b < e->used; b++) {
            int first = stack->offsets[b] + skip, end = stack->offsets[b + 1];
            double sum = 0;
            for (int r = first; r < end; r++)
                sum += (double)top[(size_t)h * (size_t)stack->rows + (size_t)r];
            ph_moments_add(&t[site->first_head + h],
                           end > first ? sum / (end - first) : 0);
        }
}

static ph_status look_batch(ph_eval *e, int i, ph_moments *t)
{
    ph_batch batch = ph_eval_fill(e, i);
    ph_status status = ph_pass_forward(e->open, &batch, 0);
    for (int s = 0; status == PH_OK && s < e->m->site_count; s++) {
        const ph_eval_site *site = &e->sites[s];
        const ph_pass_stack *stack = &e->open->stacks[site->stack];
        size_t rows = (size_t)stack->rows, heads = (size_t)site->heads;
        float *top = ph_ctx_alloc(e->m->ctx, 2 * heads * rows * sizeof *top);
        ph_look_at at = {.top_k = 1, .top_weight = top};
        if (top) at.top_index = (int32_t *)(top + heads * rows);
        status = top ? ph_attend_look(e->open, site->stack, site->sublayer, &at,
                                      stack->acts[site->sublayer].heads)
                     : ph_fail(e->m->ctx, PH_OUT_OF_MEMORY, "no memory for weights");
        if (status == PH_OK) add_confidence(e, site, top, t);
        ph_ctx_release(e->m->ctx, top);
    }
    return status;
}

/* ---- relevance --------------------------------------------------------------------- */

static ph_status trace_batch(ph_eval *e, int i, ph_worth method, double *values,
                             ph_moments *t)
{
    ph_relevance rule = {.alpha_beta = method == PH_WORTH_LRP_AB, .eps = RELEVANCE_EPS};
    ph_batch batch = ph_eval_fill(e, i);
    PH_TRY(ph_pass_forward(e->open, &batch, 0));
    PH_TRY(ph_relevance_batch(e, &rule, values));
    for (int h = 0; h < e->m->head_count; h++)
        for (int b = 0; b < e->used; b++)
            ph_moments_add(&t[h], values[(size_t)h * (size_t)e->batch + (size_t)b]);
    return PH_OK;
}

/* ---- all of them ------------------------------------------------------------------- */

static ph_status measure(ph_eval *e, ph_worth method, const uint8_t *removed,
                         double *scratch, ph_moments *t)
{
    size_t heads = (size_t)e->m->head_count;
    float *gates = (float *)(scratch + e->count);
    ph_status status = PH_OK;
    if (is_gradient(method))
        return add_gradients(e, method, removed, gates, scratch + e->count + heads, t);
    if (method < PH_WORTH_CONFIDENCE)
        return add_losses(e, method, removed, scratch, (uint8_t *)gates, t);
    e->ablation = removed;
    for (int i = 0; status == PH_OK && i < e->batches; i++)
        status = method == PH_WORTH_CONFIDENCE
                     ? look_batch(e, i, t)
                     : trace_batch(e, i, method, scratch + e->count + heads, t);
    e->ablation = NULL;
    return status;
}

static ph_status check_value(const ph_eval *e, int head, const ph_estimate *value)
{
    ph_head_place place;
    if (isfinite(value->value) && isfinite(value->error)) return PH_OK;
    PH_TRY(ph_model_head(e->m, head, &place));
    return ph_fail(
        e->m->ctx, PH_BAD_VALUE,
        "what head %d of %s is worth became NaN or Inf, expected a model whose "
        "activations and gradients stay finite",
        place.head, place.site);
}

static ph_status check_method(const ph_model *m, ph_worth method)
{
    if ((unsigned)method >= PH_WORTHS)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "method is %d, expected 0 to %d",
                       (int)method, PH_WORTHS - 1);
    return method < PH_WORTH_LRP_RATIO ? PH_OK : ph_relevance_check(m);
}

ph_status ph_worth_check(const ph_model *model, ph_worth method)
{
    if (!model) return PH_BAD_ARGUMENT;
    return PH_WITHIN(model->ctx, check_method(model, method));
}

static ph_status importance(ph_eval *e, ph_worth method, const uint8_t *removed,
                            ph_estimate *out)
{
    PH_TRY(check_method(e->m, method));
    for (int i = 0; removed && i < e->m->head_count; i++)
        if (removed[i] > 1)
            return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                           "removed[%d] is %d, expected 0 or 1", i, removed[i]);
    size_t heads = (size_t)e->m->head_count;
    size_t doubles = (3 + (size_t)e->batch) * heads + (size_t)e->count;
    double *memory = ph_ctx_alloc(e->m->ctx, doubles * sizeof *memory);
    if (!memory) return ph_fail(e->m->ctx, PH_OUT_OF_MEMORY, "no memory for heads");
    memset(memory, 0, doubles * sizeof *memory);
    ph_moments *t = (ph_moments *)memory; /* two doubles each */
    ph_status status = measure(e, method, removed, memory + 2 * heads, t);
    for (size_t i = 0; status == PH_OK && i < heads; i++) {
        int gone = removed && removed[i];
        out[i] = gone ? (ph_estimate){0, 0}
                      : (ph_estimate){ph_moments_mean(&t[i], e->count),
                                      ph_moments_error(&t[i], e->count)};
        status = check_value(e, (int)i, &out[i]);
    }
    ph_ctx_release(e->m->ctx, memory);
    return status;
}

ph_status ph_importance(ph_eval *e, ph_worth method, const uint8_t *removed,
                        ph_estimate *out)
{
    if (!e) return PH_BAD_ARGUMENT;
    if (!out) return ph_ctx_null(e->m->ctx, "out");
    return PH_WITHIN(e->m->ctx, importance(e, method, removed, out));
}

void ph_importance_normalise(const ph_model *m, ph_estimate *values)
{
    if (!m || !values) return;
    for (int s = 0; s < m->stack_count; s++)
        for (int n = 0; n < m->stacks[s].count; n++) {
            const ph_sublayer *def = &m->stacks[s].sublayers[n];
            ph_estimate *v = def->site >= 0 ? values + def->first_head : NULL;
            double sum = 0;
            for (int h = 0; v && h < def->heads; h++) sum += v[h].value * v[h].value;
            for (int h = 0; sum > 0 && h < def->heads; h++)
                v[h].value /= sqrt(sum), v[h].error /= sqrt(sum);
        }
}
