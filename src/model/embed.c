/*
 * embed.c - many texts, or pictures, through an encoder: vectors, scores of classes.
 *
 * Texts are sorted by length and go through a pass in batches, side by side: nothing is
 * padded, and a batch of short texts is not as long as one of long texts. Where there are
 * as many as threads, each thread has batches of its own (lanes.c). Each text has the
 * bits it has alone.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/reserved.h"
#include "io/sort.h"
#include "model/model_text.h"
#include "model/pass.h"

enum { BATCH = 32, LANE_TEXTS = 8, PICTURES = 4 }; /* at a time; of one thread */

typedef struct embed_text {
    int32_t *tokens, *types; /* one block */
    int count, number;       /* tokens; index among all texts */
} embed_text;

typedef struct embed_task {
    ph_model *m;
    embed_text *texts; /* longest first */
    int count;
    int scores;   /* 1: of classes, 0: vectors */
    int per_item; /* texts that a thread runs at a time */
    float *out;   /* (count, width) */
    size_t width;
} embed_task;

static ph_status take(const embed_task *t, const ph_texts *given, int i, int most,
                      embed_text *text)
{
    const char *pair = given->pairs ? given->pairs[i] : NULL;
    if (t->scores || pair)
        return ph_tokens_take(t->m, given->texts[i], pair, most, &text->tokens,
                              &text->types, &text->count);
    return ph_tokens_take_prompted(t->m, given->texts[i], most, &text->tokens,
                                   &text->types, &text->count);
}

/* A text of as many tokens as are taken may have had more. */
static ph_status count_truncated(const embed_task *t, const ph_texts *given, int i,
                                 int most)
{
    embed_text longer = {0};
    if (!given->truncated || t->texts[i].count < most) return PH_OK;
    ph_status status = take(t, given, i, most + 1, &longer);
    *given->truncated += longer.count > most;
    ph_ctx_release(t->m->ctx, longer.tokens);
    return status;
}

static ph_status tokenize(embed_task *t, const ph_texts *given)
{
    const ph_config *c = &t->m->config;
    int most = c->pool_len ? c->pool_len : c->max_len;
    ph_status status = PH_OK;
    if (given->truncated) *given->truncated = 0;
    for (int i = 0; status == PH_OK && i < t->count; i++) {
        embed_text *text = &t->texts[i];
        text->number = i;
        status = take(t, given, i, most, text);
        if (status == PH_OK) status = count_truncated(t, given, i, most);
        if (status == PH_OK && text->count < 1)
            return ph_fail(t->m->ctx, PH_BAD_SHAPE, "text %d is empty, expected a word",
                           i);
    }
    return status;
}

static int longest_first(const void *left, const void *right)
{
    const embed_text *a = left, *b = right;
    if (a->count != b->count) return a->count < b->count ? 1 : -1;
    return a->number - b->number;
}

/* Texts [first, first + count) through a pass of that many. */
static ph_status run_batch(const embed_task *t, ph_pass *p, int first, int count,
                           int32_t *tokens, int32_t *types)
{
    int32_t offsets[BATCH + 1] = {0};
    for (int b = 0; b < p->shape.batch; b++) {
        const embed_text *text = b < count ? &t->texts[first + b] : &(embed_text){0};
        size_t bytes = (size_t)text->count * sizeof *tokens;
        offsets[b + 1] = offsets[b] + text->count;
        if (!bytes) continue;
        memcpy(tokens + offsets[b], text->tokens, bytes);
        memcpy(types + offsets[b], text->types, bytes);
    }
    ph_batch batch = {.source = tokens, .source_offsets = offsets};
    const ph_config *c = &t->m->config;
    if (c->types) batch.types = types;
    PH_TRY(ph_pass_forward(p, &batch, 0));
    const float *found = t->scores ? p->pooled->scores : p->pooled->out;
    for (int b = 0; b < count; b++)
        memcpy(t->out + (size_t)t->texts[first + b].number * t->width,
               found + (size_t)b * t->width, t->width * sizeof *found);
    return PH_OK;
}

/* Texts [first, end), at most `batch` at a time; m is the model, or that of a lane. */
static ph_status run_texts(const embed_task *t, ph_model *m, int first, int end,
                           int batch)
{
    ph_pass_shape shape = {.batch = ph_min(end - first, batch),
                           .source_len = t->texts[first].count,
                           .pooled_only = 1};
    size_t rows = (size_t)shape.batch * (size_t)shape.source_len;
    int32_t *tokens = ph_ctx_alloc(m->ctx, 2 * rows * sizeof *tokens);
    ph_pass *p = NULL;
    ph_status status =
        tokens ? ph_pass_create(&p, m, &shape)
               : ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for %zu tokens", rows);
    for (int i = first; status == PH_OK && i < end; i += batch)
        status = run_batch(t, p, i, ph_min(batch, end - i), tokens, tokens + rows);
    ph_pass_free(p);
    ph_ctx_release(m->ctx, tokens);
    return status;
}

static ph_status lane_texts(void *arg, ph_model *lane, int index)
{
    const embed_task *t = arg;
    int first = index * t->per_item;
    return run_texts(t, lane, first, first + t->per_item, t->per_item);
}

/* Every thread takes the same number of items; the rest is run by all together. */
static ph_status run_all(embed_task *t)
{
    int batch = ph_min(t->count, BATCH), threads = t->m->ctx->threads, done = 0;
    ph_model_prepack(t->m, batch * t->texts[0].count);
    if (t->count >= threads && ph_model_open_lanes(t->m, t->texts[0].count)) {
        t->per_item = ph_min(t->count / threads, LANE_TEXTS);
        int items = t->count / t->per_item / threads * threads;
        PH_TRY(ph_model_run_lanes(t->m, items, lane_texts, t));
        done = items * t->per_item;
    }
    return done < t->count ? run_texts(t, t->m, done, t->count, BATCH) : PH_OK;
}

static ph_status run(const ph_model *m, const ph_texts *texts, int scores, float *out)
{
    embed_task t = {.m = (ph_model *)m, .count = texts->count, .scores = scores};
    size_t bytes = (size_t)t.count * sizeof *t.texts;
    t.out = out;
    t.width = (size_t)(scores ? m->config.classes : ph_config_vector_dim(&m->config));
    t.texts = ph_ctx_alloc(m->ctx, bytes);
    if (!t.texts) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for texts");
    memset(t.texts, 0, bytes);
    ph_status status = tokenize(&t, texts);
    ph_sort(t.texts, (size_t)t.count, sizeof *t.texts, longest_first);
    if (status == PH_OK) status = run_all(&t);
    if (status == PH_OK)
        status = ph_model_check_output(m, scores ? "scores" : "vectors", out,
                                       (size_t)t.count * t.width);
    for (int i = 0; i < t.count; i++) ph_ctx_release(m->ctx, t.texts[i].tokens);
    ph_ctx_release(m->ctx, t.texts);
    return status;
}

static ph_status check(const ph_model *m, const ph_texts *texts, const float *out)
{
    if (!texts || texts->count < 1 || !texts->texts || !out)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "texts or out is NULL, or there is none");
    PH_CHECK_RESERVED(m->ctx, "ph_texts", texts->reserved);
    if (m->config.image_size)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model reads pictures, not text");
    for (int i = 0; i < texts->count; i++)
        if (!texts->texts[i])
            return ph_fail(m->ctx, PH_BAD_ARGUMENT, "text %d is NULL", i);
    if (m->config.pooling) return PH_OK;
    return ph_fail(m->ctx, PH_UNSUPPORTED,
                   "the model makes no vector of a text: it has no pooling");
}

/* ---- pictures ---------------------------------------------------------------------- */

typedef struct picture_task {
    const float *pixels;
    float *vectors, *scores; /* or NULL */
    int per_item;            /* pictures that a thread runs at a time */
} picture_task;

/* Pictures side by side, through one pass. */
static ph_status run_some(const picture_task *t, ph_model *m, int first, int count)
{
    const ph_config *c = &m->config;
    size_t dim = (size_t)ph_config_vector_dim(c), classes = (size_t)c->classes;
    size_t n = (size_t)count;
    size_t each = (size_t)c->channels * (size_t)c->image_size * (size_t)c->image_size;
    size_t at = (size_t)first;
    ph_pass_shape shape = {.batch = count, .source_len = c->max_len};
    ph_batch batch = {.pixels = t->pixels + at * each};
    ph_pass *p = NULL;
    ph_status status = ph_pass_create(&p, m, &shape);
    if (status == PH_OK) status = ph_pass_forward(p, &batch, 0);
    if (status == PH_OK && t->vectors)
        memcpy(t->vectors + at * dim, p->pooled->out, n * dim * sizeof(float));
    if (status == PH_OK && t->scores)
        memcpy(t->scores + at * classes, p->pooled->scores, n * classes * sizeof(float));
    ph_pass_free(p);
    return status;
}

static ph_status lane_pictures(void *arg, ph_model *lane, int index)
{
    const picture_task *t = arg;
    return run_some(t, lane, index * t->per_item, t->per_item);
}

static ph_status run_pictures(picture_task *t, ph_model *m, int count)
{
    int threads = m->ctx->threads, done = 0;
    ph_model_prepack(m, m->config.max_len);
    if (count >= threads && ph_model_open_lanes(m, m->config.max_len)) {
        t->per_item = ph_min(count / threads, PICTURES);
        int items = count / t->per_item / threads * threads;
        PH_TRY(ph_model_run_lanes(m, items, lane_pictures, t));
        done = items * t->per_item;
    }
    for (; done < count; done += PICTURES)
        PH_TRY(run_some(t, m, done, ph_min(count - done, PICTURES)));
    return PH_OK;
}

static ph_status pictures(const ph_model *m, const float *pixels, int count,
                          float *vectors, float *scores)
{
    const ph_config *c = &m->config;
    if (!pixels || count < 1)
        return ph_fail(m->ctx, PH_BAD_ARGUMENT, "pixels is NULL, or there is no picture");
    if (!c->image_size)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model reads text, not pictures");
    if (scores && m->classifier < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model has no classifier");
    if (vectors && !c->pooling)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model has no pooling");
    picture_task t = {.pixels = pixels, .vectors = vectors, .scores = scores};
    size_t n = (size_t)count, dim = (size_t)ph_config_vector_dim(c);
    PH_TRY(run_pictures(&t, (ph_model *)m, count));
    if (vectors) PH_TRY(ph_model_check_output(m, "vectors", vectors, n * dim));
    return scores ? ph_model_check_output(m, "scores", scores, n * (size_t)c->classes)
                  : PH_OK;
}

ph_status ph_model_pictures(const ph_model *m, const float *pixels, int count,
                            float *vectors, float *scores)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, pictures(m, pixels, count, vectors, scores));
}

/* ---- texts ------------------------------------------------------------------------- */

static ph_status embed(const ph_model *m, const ph_texts *texts, float *out)
{
    PH_TRY(check(m, texts, out));
    return run(m, texts, 0, out);
}

static ph_status classify(const ph_model *m, const ph_texts *texts, float *scores)
{
    if (!texts || !scores) return ph_ctx_null(m->ctx, "texts or scores");
    if (m->classifier < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "the model has no classifier");
    PH_TRY(check(m, texts, scores));
    return run(m, texts, 1, scores);
}

ph_status ph_model_embed(const ph_model *m, const ph_texts *texts, float *out)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, embed(m, texts, out));
}

ph_status ph_model_classify(const ph_model *m, const ph_texts *texts, float *scores)
{
    if (!m) return PH_BAD_ARGUMENT;
    return PH_WITHIN(m->ctx, classify(m, texts, scores));
}

int ph_model_has_probabilities(const ph_model *m)
{
    if (!m || !m->config.classes) return 0;
    return !m->config.pooling || m->config.problem_type != PH_REGRESSION;
}

/* As the pipelines of transformers have it. */
void ph_class_probabilities(const ph_model *m, float *scores)
{
    if (!scores || !ph_model_has_probabilities(m)) return;
    int classes = m->config.classes, whole = m->config.pooling != PH_POOL_NONE;
    int sigmoid = whole && (m->config.problem_type == PH_MULTI_LABEL || classes == 1);
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < classes; i++) max = fmax(max, scores[i]);
    for (int i = 0; i < classes; i++) sum += exp(scores[i] - max);
    for (int i = 0; i < classes; i++)
        scores[i] = (float)(sigmoid ? 1 / (1 + exp(-(double)scores[i]))
                                    : exp(scores[i] - max) / sum);
}
