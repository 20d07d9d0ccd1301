/*
 * scene_answers.c - what the model of a scene answers, and how far answers have moved.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "polyhead_train.h"
#include "view/scene_heads.h"
#include "view/scene_inside.h"

enum { NEXT_TOKENS = 10, NEXT_ROWS = 64 };

/* ---- answers ---- */

/* The text of one more outcome; NULL: there are enough. */
static char *next_outcome(ph_scene *s, float value, int about)
{
    if (s->outcome_count == PH_SCENE_OUTCOMES) return NULL;
    char *text = s->outcome_text[s->outcome_count];
    s->outcomes[s->outcome_count++] = (ph_outcome){text, value, about, NULL};
    return text;
}

/* Every word that belongs to another one, with its probability. Of a word that is not in
   the vocabulary the model sees only where it stands: that is a guess, not an answer. */
static void list_links(ph_scene *s, const float *p, const int *best, const int *relation)
{
    const ph_scene_words *w = &s->words[0];
    for (int i = 0; i < w->count; i++) {
        float value = p[(size_t)i * (size_t)w->count + (size_t)best[i]];
        if (best[i] == i || w->unknown[i] || w->unknown[best[i]]) continue;
        char *text = next_outcome(s, value, i);
        if (!text) break;
        snprintf(text, PH_OUTCOME_TEXT, "%.36s -> %.36s", w->list[i], w->list[best[i]]);
        if (s->shown)
            s->outcomes[s->outcome_count - 1].relation = ph_link_name(relation[i], value);
    }
}

static ph_status answer_links(ph_scene *s)
{
    size_t count = (size_t)s->words[0].count;
    float *p = ph_scene_take(s, count * count, sizeof *p);
    int *best = ph_scene_take(s, 2 * count, sizeof *best);
    const char **tokens = ph_scene_take(s, count, sizeof *tokens);
    ph_status status = p && best && tokens ? PH_OK : PH_OUT_OF_MEMORY;
    if (status == PH_OK) status = ph_reading_links(s->reading, p);
    if (status == PH_OK)
        status = ph_scene_links(s->model, s->words[0].ids, (int)count, p, tokens, best);
    if (status == PH_OK) list_links(s, p, best, best + count);
    ph_io_release(&s->hooks, (void *)tokens);
    ph_io_release(&s->hooks, best);
    ph_io_release(&s->hooks, p);
    return status;
}

/* The likeliest tokens of a row, which are taken out of it. */
static void list_tokens(ph_scene *s, float *row, size_t vocab)
{
    for (int n = 0; n < NEXT_TOKENS && (size_t)n < vocab; n++) {
        size_t best = 0;
        for (size_t v = 1; v < vocab; v++)
            if (row[v] > row[best]) best = v;
        char *text = next_outcome(s, expf(row[best]), (int)best);
        if (text) ph_model_spell(s->model, (int)best, text, PH_OUTCOME_TEXT);
        row[best] = -INFINITY;
    }
}

/* Loss and likeliest tokens of rows [first, end), a few at a time: log-probabilities of a
   long text would take more memory than its activations. */
static ph_status answer_rows(ph_scene *s, int first, int end, int place, float *log_p)
{
    const ph_scene_words *w = &s->words[s->axis_count - 1];
    size_t vocab = (size_t)ph_model_config(s->model)->vocab;
    double sum = 0;
    for (int row = first; row < end; row += NEXT_ROWS) {
        int rows = ph_min(NEXT_ROWS, end - row);
        PH_TRY(ph_reading_next_rows(s->reading, row, rows, log_p));
        for (int i = row; i < row + rows && i + 1 < w->count; i++)
            sum -= log_p[(size_t)(i - row) * vocab + (size_t)w->ids[i + 1]];
        if (place >= row && place < row + rows)
            list_tokens(s, log_p + (size_t)(place - row) * vocab, vocab);
    }
    if (s->model->masked < 0 && w->count > 1) s->loss = (float)(sum / (w->count - 1));
    return PH_OK;
}

/* The likeliest tokens after the last word, or in the place of the first mask. */
static ph_status answer_tokens(ph_scene *s)
{
    const ph_scene_words *w = &s->words[s->axis_count - 1];
    int masked = s->model->masked >= 0, place = masked ? 0 : w->count - 1;
    size_t vocab = (size_t)ph_model_config(s->model)->vocab;
    float *log_p =
        ph_scene_take(s, (size_t)ph_min(NEXT_ROWS, w->count) * vocab, sizeof *log_p);
    if (!log_p) return PH_OUT_OF_MEMORY;
    while (masked && place < w->count && w->ids[place] != ph_model_mask(s->model))
        place++;
    int end = masked ? ph_min(place + 1, w->count) : w->count;
    ph_status status = answer_rows(s, masked ? place : 0, end, place, log_p);
    ph_io_release(&s->hooks, log_p);
    return status;
}

/* The likeliest classes of the text or picture. */
static ph_status answer_classes(ph_scene *s)
{
    int count = ph_model_config(s->model)->classes;
    float *p = ph_scene_take(s, (size_t)count, sizeof *p);
    if (!p) return PH_OUT_OF_MEMORY;
    ph_status status = ph_reading_classes(s->reading, p);
    for (int n = 0; n < NEXT_TOKENS && n < count && status == PH_OK; n++) {
        int best = 0;
        for (int i = 1; i < count; i++)
            if (p[i] > p[best]) best = i;
        const char *name = ph_model_class(s->model, best);
        char *text = next_outcome(s, p[best], best);
        if (text && *name)
            snprintf(text, PH_OUTCOME_TEXT, "%.70s", name);
        else if (text)
            snprintf(text, PH_OUTCOME_TEXT, "class %d", best);
        p[best] = -1;
    }
    ph_io_release(&s->hooks, p);
    return status;
}

ph_scene_answers ph_scene_answer(const ph_scene *s)
{
    if (s->model->links >= 0) return ANSWER_LINKS;
    const ph_config *c = &s->model->config;
    if (c->classes > 1 && c->pooling && ph_model_has_probabilities(s->model))
        return ANSWER_CLASSES;
    if (s->model->output < 0) return ANSWER_NONE;
    return s->model->masked >= 0 ? ANSWER_MASKED : ANSWER_NEXT;
}

ph_status ph_scene_refresh(ph_scene *s, const ph_io *io)
{
    if (!s) return ph_io_null(io, "scene");
    ph_scene_answers kind = ph_scene_answer(s);
    s->outcome_count = 0;
    s->loss = s->divergence = s->cosine = NAN;
    ph_status status = kind == ANSWER_NONE      ? PH_OK
                       : kind == ANSWER_LINKS   ? answer_links(s)
                       : kind == ANSWER_CLASSES ? answer_classes(s)
                                                : answer_tokens(s);
    if (status != PH_OK)
        ph_io_fail(io, status, "the answers of the model: %s", ph_status_text(status));
    return status;
}

/* ---- how far answers have moved ---- */

/* Log-probabilities per word: of links, or of tokens; of classes one row. */
static ph_status log_answers(const ph_scene *s, size_t count, float *log_p)
{
    ph_scene_answers kind = ph_scene_answer(s);
    if (kind == ANSWER_NEXT || kind == ANSWER_MASKED)
        return ph_reading_next(s->reading, log_p);
    ph_status status = kind == ANSWER_LINKS ? ph_reading_links(s->reading, log_p)
                                            : ph_reading_classes(s->reading, log_p);
    for (size_t i = 0; i < count && status == PH_OK; i++)
        log_p[i] = logf(fmaxf(log_p[i], FLT_MIN));
    return status;
}

static double mean_divergence(const float *before, const float *after, size_t count,
                              int rows)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += exp((double)before[i]) * ((double)before[i] - (double)after[i]);
    return sum > 0 ? sum / rows : 0; /* below 0 by rounding only */
}

static double cosine_of(const float *a, const float *b, size_t count)
{
    double product = 0, first = 0, second = 0;
    for (size_t i = 0; i < count; i++) {
        product += (double)a[i] * (double)b[i];
        first += (double)a[i] * (double)a[i], second += (double)b[i] * (double)b[i];
    }
    return first > 0 && second > 0 ? product / sqrt(first * second) : NAN;
}

/* count floats of both answers, side by side in p. */
static ph_status compare_answers(const ph_scene *before, ph_scene *after, int rows,
                                 size_t count, float *p)
{
    if (ph_scene_answer(after) == ANSWER_NONE) {
        PH_TRY(ph_reading_embedding(before->reading, p));
        PH_TRY(ph_reading_embedding(after->reading, p + count));
        after->cosine = (float)cosine_of(p, p + count, count);
        return PH_OK;
    }
    PH_TRY(log_answers(before, count, p));
    PH_TRY(log_answers(after, count, p + count));
    after->divergence = (float)mean_divergence(p, p + count, count, rows);
    return PH_OK;
}

ph_status ph_scene_compare(const ph_scene *before, ph_scene *after, const ph_io *io)
{
    if (!before || !after) return ph_io_null(io, "a scene");
    const ph_config *c = ph_model_config(after->model);
    ph_scene_answers kind = ph_scene_answer(after);
    int side = after->axis_count - 1, rows = after->words[side].count;
    size_t tokens = (size_t)rows, count = tokens * (size_t)c->vocab;
    if (before->words[side].count != rows)
        return ph_io_fail(io, PH_BAD_SHAPE, "texts of %d and %d tokens do not compare",
                          before->words[side].count, rows);
    if (kind == ANSWER_NONE ? !c->pooling : c->problem_type == PH_MULTI_LABEL)
        return PH_OK;
    if (kind == ANSWER_NONE) count = (size_t)ph_model_vector_dim(after->model);
    if (kind == ANSWER_LINKS) count = tokens * tokens;
    if (kind == ANSWER_CLASSES) count = (size_t)c->classes, rows = 1;
    float *p = ph_scene_take(after, 2 * count, sizeof *p);
    if (!p) return ph_io_no_memory(io, 2 * count * sizeof *p, "answers");
    ph_status status = compare_answers(before, after, rows, count, p);
    ph_io_release(&after->hooks, p);
    return status;
}
