/*
 * output.c - scores of tokens from the output of the last stack, the loss, and back:
 *
 *     logits = output_scale x w^T + b        w (vocab, model_dim)
 *
 * and, with a soft-cap c, c tanh(logits / c) in place of them.
 */
#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "model/model_text.h"
#include "model/pass.h"

/* ---- scores of tokens -------------------------------------------------------------- */

/* The rows that scores are made of, before they are scaled. */
static const float *unscaled(const ph_pass *p)
{
    return p->masked ? p->masked->norm.n : ph_pass_output(p);
}

/* What the output matrix is multiplied with. */
static const float *output_input(const ph_pass *p)
{
    return p->model->config.output_scale == 1 ? unscaled(p) : p->chosen;
}

/* y = output_scale x, row by row. */
static void scale_rows(const ph_pass *p, int rows, const float *x, float *y)
{
    const ph_config *c = &p->model->config;
    size_t dim = (size_t)ph_config_embed_dim(c);
    if (c->output_scale == 1) return;
    for (size_t r = 0; r < (size_t)rows; r++)
        p->model->spans->scaled((int)dim, c->output_scale, x + r * dim, y + r * dim);
}

typedef struct cap_job {
    const ph_pass *p;
    size_t count;
} cap_job;

enum { CAPPED = 64 * PH_STRIP_LD }; /* logits of one work item */

static void cap_item(void *arg, int lane, int index)
{
    const cap_job *j = arg;
    const ph_model *m = j->p->model;
    size_t first = (size_t)index * CAPPED, end = first + CAPPED;
    float strip[PH_STRIP_LD], lane_max[PH_LANES];
    (void)lane;
    if (end > j->count) end = j->count;
    for (size_t at = first; at < end; at += PH_STRIP_LD) {
        size_t n = end - at < PH_STRIP_LD ? end - at : PH_STRIP_LD;
        memcpy(strip, j->p->logits + at, n * sizeof *strip);
        m->ctx->kernels->softcap(1, (int)n, strip, m->config.output_softcap, lane_max,
                                 NULL);
        memcpy(j->p->logits + at, strip, n * sizeof *strip);
    }
}

/* logits = x w^T + b, capped */
static ph_status multiply_logits(ph_pass *p, const float *x, int rows)
{
    const ph_model *m = p->model;
    const ph_weight *w = &m->params[m->output];
    ph_matrix matrix = ph_model_matrix(m, p->block, m->output);
    ph_gemm g = ph_product_transposed(rows, w->dims[0], w->dims[1], x, matrix, p->logits);
    if (m->output_bias >= 0) g.bias = p->block + m->params[m->output_bias].at;
    PH_TRY(ph_model_multiply(m, &g, 1));
    if (m->config.output_softcap == 0) return PH_OK;
    cap_job j = {p, (size_t)rows * (size_t)w->dims[0]};
    ph_ctx_spread(m->ctx, (int)((j.count + CAPPED - 1) / CAPPED), cap_item, &j);
    return PH_OK;
}

ph_status ph_pass_logits(ph_pass *p)
{
    int rows = p->stacks[p->stack_count - 1].rows;
    if (p->masked) PH_TRY(ph_masked_forward(p));
    scale_rows(p, rows, unscaled(p), p->chosen);
    return multiply_logits(p, output_input(p), rows);
}

ph_status ph_pass_logits_of(ph_pass *p, const int32_t *rows, int count)
{
    size_t dim = (size_t)p->model->config.model_dim;
    for (int i = 0; i < count; i++)
        memcpy(p->chosen + (size_t)i * dim, ph_pass_output(p) + (size_t)rows[i] * dim,
               dim * sizeof(float));
    scale_rows(p, count, p->chosen, p->chosen);
    return multiply_logits(p, p->chosen, count);
}

/* ---- the loss ---------------------------------------------------------------------- */

typedef struct loss_job {
    const ph_pass *p;
    float *scores; /* (rows, width), which become their gradient */
    int rows, width;
    float smoothing, scale;
} loss_job;

enum { LOSS_ROWS = 16 };

/* Half the mean squared distance of a row of scores to the one it should be. */
static float distance_row(const loss_job *j, float *row, size_t at)
{
    const float *wanted = j->p->batch.scores + at;
    double sum = 0;
    for (int i = 0; i < j->width; i++) {
        float off = row[i] - wanted[i];
        sum += (double)off * (double)off;
        row[i] = j->scale * off / (float)j->width;
    }
    return (float)(sum / (2 * j->width));
}

/* Mean over the classes of the binary cross-entropy of each, which is
   log(1 + exp(z)) - y z for a score z. */
static float multi_label_row(const loss_job *j, float *row, int r, int label)
{
    const float *wanted = j->p->batch.wanted;
    double sum = 0;
    if (wanted) wanted += (size_t)r * (size_t)j->width;
    for (int i = 0; i < j->width; i++) {
        double z = row[i], y = wanted ? wanted[i] : i == label;
        double small = exp(-fabs(z)), sigmoid = (z < 0 ? small : 1) / (1 + small);
        y += (0.5 - y) * j->smoothing;
        sum += fmax(z, 0) - y * z + log1p(small);
        row[i] = (float)(j->scale * (sigmoid - y) / j->width);
    }
    return (float)(sum / j->width);
}

/* The loss of a row of scores, which become their gradient. */
static float loss_row(const loss_job *j, float *row, int r)
{
    int label = j->p->batch.labels[r];
    if (j->p->batch.scores) return distance_row(j, row, (size_t)r * (size_t)j->width);
    if (j->p->model->config.problem_type == PH_MULTI_LABEL)
        return multi_label_row(j, row, r, label);
    return j->p->model->spans->cross_entropy(j->width, row, label, j->smoothing,
                                             j->scale);
}

/* The gradient of capped scores z becomes that of the scores before:
   d tanh(x) = (1 - tanh^2(x)) dx. */
static void uncap_row(const loss_job *j, const float *z, float *row)
{
    float inverse = 1 / j->p->model->config.output_softcap;
    for (int i = 0; i < j->width; i++) {
        float t = z[i] * inverse;
        row[i] *= 1 - t * t;
    }
}

static void loss_item(void *arg, int lane, int index)
{
    const loss_job *j = arg;
    int last = ph_min((index + 1) * LOSS_ROWS, j->rows);
    size_t width = (size_t)j->width, bytes = width * sizeof(float);
    float *capped = j->scores == j->p->logits ? j->p->capped : NULL;
    if (capped) capped += (size_t)lane * width;
    for (int r = index * LOSS_ROWS; r < last; r++) {
        float *row = j->scores + (size_t)r * width;
        if (j->p->batch.labels[r] < 0) {
            memset(row, 0, bytes);
            continue;
        }
        if (capped) memcpy(capped, row, bytes);
        j->p->row_loss[r] = loss_row(j, row, r);
        if (capped) uncap_row(j, capped, row);
    }
}

static ph_status check_labels(const ph_pass *p, int rows)
{
    const ph_config *c = &p->model->config;
    int most = p->links ? p->shape.source_len : c->classes ? c->classes : c->vocab;
    for (int r = 0; r < rows; r++)
        if (p->batch.labels[r] >= most)
            return p->links || c->classes
                       ? ph_fail(p->model->ctx, PH_BAD_VALUE, "label %d is not below %d",
                                 p->batch.labels[r], most)
                       : ph_tokens_refuse(p->model, p->batch.labels[r]);
    return PH_OK;
}

ph_status ph_pass_loss(ph_pass *p, float smoothing, float scale, double *loss)
{
    const ph_config *c = &p->model->config;
    int rows = p->stacks[p->stack_count - 1].rows;
    if (c->classes && c->pooling) rows = p->shape.batch;
    if (p->batch.vectors) return ph_pooled_loss(p, scale, loss);
    PH_TRY(check_labels(p, rows));
    if (p->links) return ph_links_loss(p, scale, loss);
    if (p->model->output < 0 && !c->classes)
        return ph_fail(p->model->ctx, PH_UNSUPPORTED,
                       "the model has no loss: it gives vectors, expected an output "
                       "head, masked or classes");
    if (!c->classes) PH_TRY(ph_pass_logits(p));
    loss_job j = {p,         c->classes ? p->pooled->scores : p->logits,
                  rows,      c->classes ? c->classes : c->vocab,
                  smoothing, scale};
    ph_ctx_spread(p->model->ctx, ph_div_up(rows, LOSS_ROWS), loss_item, &j);
    *loss = 0;
    for (int r = 0; r < rows; r++)
        if (p->batch.labels[r] >= 0) *loss += p->row_loss[r];
    return PH_OK;
}

/* da = output_scale dlogits w, dw = dlogits^T x with the scaled x */
ph_status ph_output_backward(ph_pass *p)
{
    const ph_model *m = p->model;
    const ph_weight *w = &m->params[m->output];
    int rows = p->stacks[p->stack_count - 1].rows, vocab = w->dims[0], dim = w->dims[1];
    ph_gemm da = ph_product(rows, vocab, dim, p->logits, ph_matrix_of(p->block + w->at),
                            NULL, p->da);
    ph_gemm dw =
        ph_product_dw(m, rows, vocab, dim, p->logits, output_input(p), p->grads + w->at);
    ph_gemm list[3] = {ph_product_of_gradients(m, da), dw};
    if (m->output_bias >= 0)
        list[2] = ph_product_db(rows, vocab, p->ones, p->logits,
                                p->grads + m->params[m->output_bias].at);
    PH_TRY(ph_model_multiply(m, list, m->output_bias >= 0 ? 3 : 2));
    scale_rows(p, rows, p->da, p->da);
    return p->masked ? ph_masked_backward(p) : PH_OK;
}
