/*
 * eval.c - the loss of a model on texts, with heads changed.
 *
 * Texts go through an open pass in batches, side by side; each has the bits it has alone.
 * Heads are changed before the output projection, where the pass shows them.
 */
#include <math.h>
#include <string.h>

#include "prune/eval.h"

enum { BATCH = 16, SCORES_MOST = 1 << 26 }; /* texts, floats of scores of one pass */

/* ---- making one -------------------------------------------------------------------- */

static void find_lengths(ph_eval *e)
{
    for (int i = 0; i < e->count; i++) {
        e->source_len = ph_max(e->source_len, e->texts[i].source_len);
        e->target_len = ph_max(e->target_len, e->texts[i].target_len);
    }
}

/* As many texts as memory for scores allows, batches of about the same size. Two at
   least, so that a head can be given the output for another text. */
static void choose_batch(ph_eval *e)
{
    int64_t len = ph_max(e->source_len, e->target_len), vocab = e->m->config.vocab;
    int64_t fit = SCORES_MOST / (len * (vocab ? vocab : 1));
    int most = (int)(fit < 2 ? 2 : fit > BATCH ? BATCH : fit);
    e->batches = ph_div_up(e->count, most);
    e->batches = ph_max(ph_min(e->batches, e->count / 2), 1);
    e->batch = ph_div_up(e->count, e->batches);
}

static ph_status list_sites(ph_eval *e)
{
    ph_eval_site *site = e->sites;
    for (int i = 0; i < e->open->stack_count; i++) {
        const ph_pass_stack *stack = &e->open->stacks[i];
        for (int s = 0; s < stack->def->count; s++) {
            const ph_sublayer *def = &stack->def->sublayers[s];
            if (def->site < 0) continue;
            ph_layer_info info = ph_layer_about(stack->acts[s].layer);
            if (info.heads != def->heads)
                return ph_fail(e->m->ctx, PH_UNSUPPORTED,
                               "heads of %s cannot be changed one by one", def->variant);
            *site++ = (ph_eval_site){i, s, def->first_head, def->heads, info.dim};
        }
    }
    return PH_OK;
}

static ph_status make(ph_eval *e, size_t bytes, void *to)
{
    void *memory = ph_ctx_alloc(e->m->ctx, bytes);
    memcpy(to, &memory, sizeof memory);
    return memory ? PH_OK : ph_fail(e->m->ctx, PH_OUT_OF_MEMORY, "no memory for texts");
}

static ph_status see(void *user, int site, float *heads);

/* The vectors of the whole model. */
static ph_status take_own(ph_eval *e)
{
    size_t dim = (size_t)ph_config_vector_dim(&e->m->config);
    PH_TRY(make(e, (size_t)e->count * dim * sizeof(float), &e->own));
    PH_TRY(make(e, (size_t)e->batch * dim * sizeof(float), &e->wanted));
    for (int i = 0; i < e->batches; i++) {
        ph_batch batch = ph_eval_fill(e, i);
        PH_TRY(ph_pass_forward(e->open, &batch, 0));
        memcpy(e->own + (size_t)e->first * dim, e->open->pooled->out,
               (size_t)e->used * dim * sizeof(float));
    }
    return PH_OK;
}

ph_status ph_eval_begin(ph_eval *e)
{
    find_lengths(e);
    choose_batch(e);
    size_t texts = (size_t)e->batch;
    size_t sources = texts * (size_t)e->source_len;
    size_t targets = texts * (size_t)e->target_len;
    size_t labels = ph_max(e->source_len, e->target_len) * texts;
    size_t all = 2 * sources + targets + labels;
    PH_TRY(make(e, all * sizeof(int32_t), &e->tokens));
    PH_TRY(make(e, 2 * (texts + 1) * sizeof(int32_t), &e->source_offsets));
    e->target_offsets = e->source_offsets + texts + 1;
    PH_TRY(make(e, ((size_t)e->m->site_count + 1) * sizeof *e->sites, &e->sites));
    ph_pass_shape shape = {.batch = e->batch,
                           .source_len = e->source_len,
                           .target_len = e->target_len,
                           .open = PH_OPEN_ALL,
                           .pooled_only = ph_eval_is_vectors(e)};
    PH_TRY(ph_pass_create(&e->open, e->m, &shape));
    e->open->see = see, e->open->user = e;
    PH_TRY(list_sites(e));
    return ph_eval_is_vectors(e) ? take_own(e) : PH_OK;
}

void ph_eval_free(ph_eval *e)
{
    if (!e) return;
    ph_ctx *ctx = e->m->ctx;
    for (int i = 0; e->texts && i < e->count; i++)
        ph_ctx_release(ctx, e->texts[i].source);
    void *const buffers[] = {e->texts, e->order,  e->sites, e->tokens, e->source_offsets,
                             e->own,   e->wanted, e->grads, e->loss,   e->accuracy};
    ph_pass_free(e->open);
    ph_pass_free(e->graded);
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        ph_ctx_release(ctx, buffers[i]);
    ph_ctx_release(ctx, e);
}

int ph_eval_texts(const ph_eval *e)
{
    return e ? e->count : 0;
}

static ph_status compare(ph_eval *e, const ph_eval *whole)
{
    size_t dim = (size_t)ph_config_vector_dim(&e->m->config);
    int vectors = ph_eval_is_vectors(e), same = e->count == whole->count;
    if (vectors != ph_eval_is_vectors(whole) || !same ||
        dim != (size_t)ph_config_vector_dim(&whole->m->config))
        return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                       "%d texts are compared with %d, expected the same ones and models "
                       "of one kind",
                       e->count, whole->count);
    if (vectors) memcpy(e->own, whole->own, (size_t)e->count * dim * sizeof *e->own);
    return PH_OK;
}

ph_status ph_eval_compare(ph_eval *e, const ph_eval *whole)
{
    if (!e) return PH_BAD_ARGUMENT;
    if (!whole) return ph_ctx_null(e->m->ctx, "whole");
    return PH_WITHIN(e->m->ctx, compare(e, whole));
}

/* ---- batches ----------------------------------------------------------------------- */

ph_batch ph_eval_fill(ph_eval *e, int i)
{
    size_t sources = (size_t)e->batch * (size_t)e->source_len;
    int32_t *source = e->tokens, *types = source + sources, *target = types + sources;
    int32_t *labels = target + (size_t)e->batch * (size_t)e->target_len;
    const ph_batch batch = {.source = source,
                            .types = e->m->config.types ? types : NULL,
                            .target = target,
                            .labels = labels,
                            .source_offsets = e->source_offsets,
                            .target_offsets = e->target_offsets};
    e->first = (int)((int64_t)e->count * i / e->batches);
    e->used = (int)((int64_t)e->count * (i + 1) / e->batches) - e->first;
    e->source_offsets[0] = e->target_offsets[0] = 0;
    for (int b = 0; b < e->batch; b++) labels[b] = -1; /* classes of missing texts */
    for (int b = 0; b < e->batch; b++) {
        const ph_eval_text *t =
            b < e->used ? &e->texts[e->order[e->first + b]] : &(ph_eval_text){0};
        size_t from = (size_t)t->source_len * sizeof *source;
        e->source_offsets[b + 1] = e->source_offsets[b] + t->source_len;
        e->target_offsets[b + 1] = e->target_offsets[b] + t->target_len;
        if (b >= e->used) continue;
        memcpy(source + e->source_offsets[b], t->source, from);
        memcpy(types + e->source_offsets[b], t->types, from);
        memcpy(target + e->target_offsets[b], t->target,
               (size_t)t->target_len * sizeof *target);
        memcpy(labels, t->labels, (size_t)t->label_len * sizeof *labels);
        labels += t->label_len;
    }
    return batch;
}

ph_estimate ph_eval_mean(const double *values, int count)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) sum += values[i];
    double mean = sum / count;
    for (int i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    return (ph_estimate){mean, count > 1 ? sqrt(squares / (count - 1) / count) : 0};
}

/* ---- changing heads ---------------------------------------------------------------- */

typedef struct head_rows {
    float *at; /* of the first row */
    size_t step;
    int dim;
} head_rows;

static float *row_of(head_rows h, int row)
{
    return h.at + (size_t)row * h.step;
}

static void clear_rows(head_rows h, int first, int end)
{
    size_t bytes = (size_t)h.dim * sizeof(float);
    for (int r = first; r < end; r++) memset(row_of(h, r), 0, bytes);
}

static void average_rows(head_rows h, int first, int end)
{
    for (int d = 0; d < h.dim; d++) {
        double sum = 0;
        for (int r = first; r < end; r++) sum += (double)row_of(h, r)[d];
        for (int r = first; r < end; r++) row_of(h, r)[d] = (float)(sum / (end - first));
    }
}

/* Each text takes the rows of the next one, from the start again where that is shorter;
   the last those the first had. */
static void resample(head_rows h, const int32_t *offsets, int texts, float *scratch)
{
    int rows = offsets[texts];
    for (int r = 0; r < rows; r++)
        memcpy(scratch + (size_t)r * (size_t)h.dim, row_of(h, r),
               (size_t)h.dim * sizeof *scratch);
    for (int b = 0; b < texts; b++) {
        int next = (b + 1) % texts, first = offsets[next];
        int len = offsets[next + 1] - first;
        for (int r = offsets[b]; r < offsets[b + 1]; r++) {
            int from = first + (r - offsets[b]) % len;
            memcpy(row_of(h, r), scratch + (size_t)from * (size_t)h.dim,
                   (size_t)h.dim * sizeof *scratch);
        }
    }
}

static void change_head(const ph_eval *e, head_rows h, int stack, int how)
{
    const ph_pass_stack *s = &e->open->stacks[stack];
    if (how == PH_HEAD_RESAMPLED) /* y is written after the heads */
        resample(h, s->offsets, e->used, e->open->y);
    for (int b = 0; b < e->used && how != PH_HEAD_RESAMPLED; b++)
        (how == PH_HEAD_ZERO ? clear_rows : average_rows)(h, s->offsets[b],
                                                          s->offsets[b + 1]);
}

static ph_status see(void *user, int site, float *heads)
{
    const ph_eval *e = user;
    const ph_eval_site *s = &e->sites[site];
    for (int h = 0; e->ablation && h < s->heads; h++) {
        int how = e->ablation[s->first_head + h];
        head_rows rows = {heads + (size_t)h * (size_t)s->dim,
                          (size_t)s->heads * (size_t)s->dim, s->dim};
        if (how != PH_HEAD_ON) change_head(e, rows, s->stack, how);
    }
    return PH_OK;
}

/* ---- the loss ---------------------------------------------------------------------- */

/* After the loss a row of scores is its gradient: probabilities, less 1 at the label. */
static int is_likeliest(const float *gradient, int width, int label)
{
    float most = 0;
    for (int i = 0; i < width; i++)
        if (i != label && gradient[i] > most) most = gradient[i];
    return gradient[label] + 1 >= most;
}

static int is_linked(const ph_pass *p, int row, int label)
{
    int len = p->shape.source_len, best = 0;
    const float *found = p->links->p + (size_t)row * (size_t)len;
    for (int i = 1; i < len; i++)
        if (found[i] > found[best]) best = i;
    return best == label;
}

/* Sums of the rows of one text. */
static void score_labels(const ph_eval *e, int text, int first_row)
{
    const ph_pass *p = e->open;
    const ph_config *c = &e->m->config;
    const ph_eval_text *t = &e->texts[text];
    const float *scores = c->classes ? p->pooled->scores : p->logits;
    int width = c->classes ? c->classes : c->vocab;
    double loss = 0, right = 0;
    for (int i = 0; i < t->label_len; i++) {
        size_t row = (size_t)(first_row + i);
        if (t->labels[i] < 0) continue;
        loss += (double)p->row_loss[row];
        right += p->links
                     ? is_linked(p, (int)row, t->labels[i])
                     : is_likeliest(scores + row * (size_t)width, width, t->labels[i]);
    }
    e->loss[text] = loss / t->counted, e->accuracy[text] = right / t->counted;
}

static void score_vector(const ph_eval *e, int text, int b)
{
    size_t dim = (size_t)ph_config_vector_dim(&e->m->config);
    const float *v = e->open->pooled->out + (size_t)b * dim;
    const float *own = e->own + (size_t)text * dim;
    double product = 0, first = 0, second = 0;
    for (size_t d = 0; d < dim; d++) {
        product += (double)v[d] * (double)own[d];
        first += (double)v[d] * (double)v[d], second += (double)own[d] * (double)own[d];
    }
    e->loss[text] = (double)e->open->row_loss[b];
    e->accuracy[text] = product / sqrt(first * second + 1e-300);
}

static ph_status run_batch(ph_eval *e, int i)
{
    ph_batch batch = ph_eval_fill(e, i);
    size_t dim = (size_t)ph_config_vector_dim(&e->m->config);
    double loss;
    int row = 0;
    if (e->own) {
        memcpy(e->wanted, e->own + (size_t)e->first * dim,
               (size_t)e->used * dim * sizeof(float));
        batch.vectors = e->wanted;
    }
    PH_TRY(ph_pass_forward(e->open, &batch, 0));
    PH_TRY(ph_pass_loss(e->open, 0, 1, &loss));
    for (int b = 0; b < e->used; b++) {
        if (e->own)
            score_vector(e, e->first + b, b);
        else
            score_labels(e, e->first + b, row);
        row += e->texts[e->first + b].label_len;
    }
    return PH_OK;
}

static ph_status check_ablation(const ph_eval *e, const uint8_t *ablation)
{
    for (int i = 0; ablation && i < e->m->head_count; i++) {
        if (ablation[i] > PH_HEAD_RESAMPLED)
            return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                           "ablation[%d] is %d, expected 0 to %d", i, ablation[i],
                           PH_HEAD_RESAMPLED);
        if (ablation[i] == PH_HEAD_RESAMPLED && e->count < 2)
            return ph_fail(e->m->ctx, PH_BAD_ARGUMENT,
                           "there is one text, expected two to give a head the output "
                           "for another");
    }
    return PH_OK;
}

static ph_estimate exact_match(const ph_eval *e)
{
    double exact = 0, n = e->count;
    for (int i = 0; i < e->count; i++) exact += e->accuracy[i] >= 1;
    exact /= n;
    return (ph_estimate){exact, n > 1 ? sqrt(exact * (1 - exact) / (n - 1)) : 0};
}

static ph_status loss_of(ph_eval *e, const uint8_t *ablation, ph_result *out)
{
    int64_t tokens = 0;
    PH_TRY(check_ablation(e, ablation));
    e->ablation = ablation;
    ph_status status = PH_OK;
    for (int i = 0; status == PH_OK && i < e->batches; i++) status = run_batch(e, i);
    e->ablation = NULL;
    PH_TRY(status);
    for (int i = 0; i < e->count; i++) {
        if (!isfinite(e->loss[i]) || !isfinite(e->accuracy[i]))
            return ph_fail(e->m->ctx, PH_BAD_VALUE,
                           "the loss of text %d became NaN or Inf, expected a model "
                           "whose activations stay finite",
                           i + 1);
        tokens += e->texts[i].counted;
    }
    *out = (ph_result){.loss = ph_eval_mean(e->loss, e->count),
                       .accuracy = ph_eval_mean(e->accuracy, e->count),
                       .exact = exact_match(e),
                       .tokens = tokens};
    return PH_OK;
}

ph_status ph_eval_loss(ph_eval *e, const uint8_t *ablation, ph_result *out)
{
    if (!e) return PH_BAD_ARGUMENT;
    if (!out) return ph_ctx_null(e->m->ctx, "out");
    return PH_WITHIN(e->m->ctx, loss_of(e, ablation, out));
}
