/*
 * reading_answers.c - what the model of a reading says: links, tokens, classes, vectors.
 */
#include <math.h>
#include <string.h>

#include "model/reading.h"

ph_status ph_reading_whole(const ph_reading *r)
{
    if (!r->passes) return PH_OK;
    return ph_fail(r->model->ctx, PH_UNSUPPORTED,
                   "a reading made by ph_reading_prepare has no answers, no other runs");
}

static ph_status links(const ph_reading *r, float *p)
{
    const ph_links *l = r->pass->links;
    size_t len = (size_t)r->pass->stacks[0].len;
    PH_TRY(ph_reading_whole(r));
    if (!l) return ph_fail(r->model->ctx, PH_UNSUPPORTED, "the model points at no words");
    memcpy(p, l->p, len * len * sizeof *p);
    return PH_OK;
}

ph_status ph_reading_links(const ph_reading *r, float *p)
{
    if (!p) return ph_ctx_null(r ? r->model->ctx : NULL, "p");
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, links(r, p));
}

/* Rows of logits whose log-probabilities are wanted. */
typedef struct next_rows {
    const ph_reading *r;
    int first;
    float *log_p;
} next_rows;

static void next_item(void *arg, int lane, int index)
{
    const next_rows *j = arg;
    size_t vocab = (size_t)j->r->model->config.vocab;
    const float *row = j->r->pass->logits + (size_t)(j->first + index) * vocab;
    float max = row[0], *log_p = j->log_p + (size_t)index * vocab;
    double sum = 0;
    (void)lane;
    for (size_t v = 1; v < vocab; v++) max = row[v] > max ? row[v] : max;
    for (size_t v = 0; v < vocab; v++) sum += exp((double)row[v] - max);
    double log_sum = log(sum);
    for (size_t v = 0; v < vocab; v++) log_p[v] = (float)((double)row[v] - max - log_sum);
}

static ph_status next(const ph_reading *r, int first, int rows, float *log_p)
{
    const ph_model *m = r->model;
    PH_TRY(ph_reading_whole(r));
    if (m->output < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model predicts no tokens");
    ph_ctx_run(m->ctx, rows, next_item, &(next_rows){r, first, log_p});
    return ph_model_check_output(m, "logits", log_p,
                                 (size_t)rows * (size_t)m->config.vocab);
}

ph_status ph_reading_next_rows(const ph_reading *r, int first, int rows, float *log_p)
{
    return PH_WITHIN(r->model->ctx, next(r, first, rows, log_p));
}

ph_status ph_reading_next(const ph_reading *r, float *log_p)
{
    if (!log_p) return ph_ctx_null(r ? r->model->ctx : NULL, "log_p");
    if (!r) return PH_BAD_ARGUMENT;
    int rows = r->pass->stacks[r->pass->stack_count - 1].len;
    return PH_WITHIN(r->model->ctx, next(r, 0, rows, log_p));
}

static ph_status classes(const ph_reading *r, float *p)
{
    const ph_config *c = &r->model->config;
    PH_TRY(ph_reading_whole(r));
    if (!c->classes || !c->pooling)
        return ph_fail(r->model->ctx, PH_UNSUPPORTED, "the model has no classifier");
    memcpy(p, r->pass->pooled->scores, (size_t)c->classes * sizeof *p);
    PH_TRY(ph_model_check_output(r->model, "scores", p, (size_t)c->classes));
    ph_class_probabilities(r->model, p);
    return PH_OK;
}

ph_status ph_reading_classes(const ph_reading *r, float *p)
{
    if (!p) return ph_ctx_null(r ? r->model->ctx : NULL, "p");
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, classes(r, p));
}

static ph_status token_classes(const ph_reading *r, float *p)
{
    const ph_config *c = &r->model->config;
    size_t rows = (size_t)r->pass->stacks[0].len, classes_of = (size_t)c->classes;
    PH_TRY(ph_reading_whole(r));
    if (!c->classes || c->pooling)
        return ph_fail(r->model->ctx, PH_UNSUPPORTED,
                       "the model has no classifier of tokens");
    memcpy(p, r->pass->pooled->scores, rows * classes_of * sizeof *p);
    PH_TRY(ph_model_check_output(r->model, "scores", p, rows * classes_of));
    for (size_t i = 0; i < rows; i++)
        ph_class_probabilities(r->model, p + i * classes_of);
    return PH_OK;
}

ph_status ph_reading_token_classes(const ph_reading *r, float *p)
{
    if (!p) return ph_ctx_null(r ? r->model->ctx : NULL, "p");
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, token_classes(r, p));
}

static ph_status embedding(const ph_reading *r, float *vector)
{
    const ph_config *c = &r->model->config;
    PH_TRY(ph_reading_whole(r));
    if (!c->pooling)
        return ph_fail(r->model->ctx, PH_UNSUPPORTED,
                       "the model has no vector of a text");
    memcpy(vector, r->pass->pooled->out,
           (size_t)ph_config_vector_dim(c) * sizeof *vector);
    return PH_OK;
}

ph_status ph_reading_embedding(const ph_reading *r, float *vector)
{
    if (!vector) return ph_ctx_null(r ? r->model->ctx : NULL, "vector");
    if (!r) return PH_BAD_ARGUMENT;
    return PH_WITHIN(r->model->ctx, embedding(r, vector));
}

ph_status ph_reading_picture(const ph_reading *r, uint8_t *rgb)
{
    if (!rgb) return ph_ctx_null(r ? r->model->ctx : NULL, "rgb");
    if (!r) return PH_BAD_ARGUMENT;
    if (!r->pixels)
        return ph_fail(r->model->ctx, PH_UNSUPPORTED, "the model has read a text");
    ph_preprocess_invert(r->model, r->pixels, rgb);
    return PH_OK;
}
