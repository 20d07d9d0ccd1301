/*
 * importance.c - what each head is worth.
 *
 * The gradient of the loss with respect to a gate of one head and token is the product of
 * the head's output and its gradient, so a pass whose gates are all 1 gives the
 * contributions of all heads to all tokens at once:
 *
 *     token    sum_t |O_t . dO_t|        sample   |sum_t O_t . dO_t|
 *
 * for each text, then the mean over texts.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "prune/eval.h"

enum { SIGNS_SEED = 20260103 };

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
    if (!m || !out) return PH_BAD_ARGUMENT;
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
    {"zero", "how much the loss grows when the head gives 0"},
    {"mean", "how much it grows when the head gives every token of a text its mean"},
    {"resampled", "how much it grows when the head has its output for another text"},
    {"alone", "minus how much it grows when the other heads of the layer give 0"},
    {"confidence", "mean over tokens of the head's largest weight"}};

const char *ph_worth_name(ph_worth method)
{
    return (unsigned)method < PH_WORTHS ? methods[method].name : NULL;
}

const char *ph_worth_help(ph_worth method)
{
    return (unsigned)method < PH_WORTHS ? methods[method].help : NULL;
}

/* Sums of every head over texts, in double. */
typedef struct head_sums {
    double *sum, *squares; /* (heads) */
} head_sums;

static void add_value(head_sums *t, int head, double value)
{
    t->sum[head] += value, t->squares[head] += value * value;
}

static ph_estimate estimate(const head_sums *t, int head, int count)
{
    double mean = t->sum[head] / count;
    double variance = fmax(t->squares[head] / count - mean * mean, 0);
    return (ph_estimate){mean, count > 1 ? sqrt(variance / (count - 1)) : 0};
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
                    : ph_fail(e->m->ctx, PH_OUT_OF_MEMORY,
                              "no memory for %zu gradients", e->m->floats);
}

/* The distance of a vector to itself has no gradient. To one that is moved by 1 or -1 in
   every element, by chance, it has: the change of the vector, projected on that move. */
static void displace(ph_eval *e)
{
    size_t dim = (size_t)e->m->config.model_dim;
    const float *out = e->graded->pooled->out;
    for (int b = 0; b < e->used; b++) {
        uint64_t key = ph_rng_key(SIGNS_SEED, (uint64_t)(e->first + b), 0, 0);
        for (size_t d = 0; d < dim; d++) {
            float sign = ph_rng_at(key, (uint32_t)d) >> 31 ? 1.0f : -1.0f;
            e->wanted[(size_t)b * dim + d] = out[(size_t)b * dim + d] + sign;
        }
    }
    e->graded->batch.vectors = e->wanted;
}

static void add_site(const ph_eval *e, const ph_eval_site *site, int by_token,
                     head_sums *t)
{
    const ph_pass_stack *stack = &e->graded->stacks[site->stack];
    const float *dgate = stack->acts[site->sublayer].dgate;
    for (int h = 0; h < site->heads; h++)
        for (int b = 0; b < e->used; b++) {
            const float *row = dgate + (size_t)h * (size_t)stack->rows;
            double sum = 0;
            for (int r = stack->offsets[b]; r < stack->offsets[b + 1]; r++)
                sum += by_token ? fabs((double)row[r]) : (double)row[r];
            add_value(t, site->first_head + h,
                      fabs(sum) / e->texts[e->first + b].counted);
        }
}

static ph_status add_gradients(ph_eval *e, const float *gates, int by_token, head_sums *t)
{
    double loss;
    PH_TRY(make_graded(e));
    e->graded->gates = gates;
    for (int i = 0; i < e->batches; i++) {
        ph_batch batch = ph_eval_fill(e, i);
        PH_TRY(ph_pass_forward(e->graded, &batch, 0));
        if (e->own) displace(e);
        PH_TRY(ph_pass_loss(e->graded, 0, 1, &loss));
        PH_TRY(ph_pass_backward(e->graded, e->grads));
        for (int s = 0; s < e->m->site_count; s++)
            add_site(e, &e->sites[s], by_token, t);
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
                            double *whole, uint8_t *ablation, head_sums *t)
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
                add_value(t, head, sign * (e->loss[i] - whole[i]));
        }
    return PH_OK;
}

/* ---- confidence -------------------------------------------------------------------- */

/* A causal head sees nothing but itself at the first token, which says nothing. */
static void add_confidence(const ph_eval *e, const ph_eval_site *site, const float *top,
                           head_sums *t)
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
            add_value(t, site->first_head + h, end > first ? sum / (end - first) : 0);
        }
}

static ph_status look_batch(ph_eval *e, int i, head_sums *t)
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

/* ---- all of them ------------------------------------------------------------------- */

static ph_status measure(ph_eval *e, ph_worth method, const uint8_t *removed,
                         double *scratch, head_sums *t)
{
    size_t heads = (size_t)e->m->head_count;
    float *gates = (float *)(scratch + e->count);
    ph_status status = PH_OK;
    for (size_t i = 0; i < heads; i++) gates[i] = !(removed && removed[i]);
    if (method == PH_WORTH_TOKEN || method == PH_WORTH_SAMPLE)
        return add_gradients(e, gates, method == PH_WORTH_TOKEN, t);
    if (method != PH_WORTH_CONFIDENCE)
        return add_losses(e, method, removed, scratch, (uint8_t *)gates, t);
    e->ablation = removed;
    for (int i = 0; status == PH_OK && i < e->batches; i++) status = look_batch(e, i, t);
    e->ablation = NULL;
    return status;
}

static ph_status importance(ph_eval *e, ph_worth method, const uint8_t *removed,
                            ph_estimate *out)
{
    if ((unsigned)method >= PH_WORTHS)
        return ph_fail(e->m->ctx, PH_BAD_ARGUMENT, "method is %d, expected 0 to %d",
                       (int)method, PH_WORTHS - 1);
    for (int i = 0; removed && i < e->m->head_count; i++)
        if (removed[i] > 1)
            return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                           "removed[%d] is %d, expected 0 or 1", i, removed[i]);
    size_t heads = (size_t)e->m->head_count;
    size_t doubles = 3 * heads + (size_t)e->count;
    double *memory = ph_ctx_alloc(e->m->ctx, doubles * sizeof *memory);
    if (!memory) return ph_fail(e->m->ctx, PH_OUT_OF_MEMORY, "no memory for heads");
    memset(memory, 0, doubles * sizeof *memory);
    head_sums t = {memory, memory + heads};
    ph_status status = measure(e, method, removed, memory + 2 * heads, &t);
    for (size_t i = 0; status == PH_OK && i < heads; i++)
        out[i] = removed && removed[i] ? (ph_estimate){0, 0}
                                       : estimate(&t, (int)i, e->count);
    ph_ctx_release(e->m->ctx, memory);
    return status;
}

ph_status ph_importance(ph_eval *e, ph_worth method, const uint8_t *removed,
                        ph_estimate *out)
{
    if (!e || !out) return PH_BAD_ARGUMENT;
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
