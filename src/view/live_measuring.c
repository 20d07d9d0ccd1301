/*
 * live_measuring.c - see live_measuring.h.
 *
 * A text is opened, then measured head by head, or all heads at once where the method
 * takes one pass for them. A step is one of these.
 */
#include "view/live_measuring.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "base/moments.h"
#include "io/io.h"
#include "model/reading.h"

#define BY_ANSWERS "answers"

struct ph_measuring {
    ph_io hooks;
    ph_measuring_job job;
    ph_worth worth; /* PH_WORTHS: by answers, or a comparison */
    int compare, by_answers;
    int heads;
    uint8_t *plan, *removed, *ablation; /* (heads) */
    ph_moments *sums;                   /* (heads) over texts */
    ph_estimate *values;                /* (heads) of one text */
    int text, head;                     /* what comes next; head -1: the text is opened */
    int done, measured;                 /* steps, texts */
    double loss[2], accuracy[2], divergence; /* compared: sums over texts */
    /* the text that is open */
    ph_eval *eval;
    double whole; /* its loss under the plan */
    ph_reading *readings[2];
    ph_scene *scenes[2];
    ph_prune changed; /* of readings[1] */
};

/* ---- methods ---- */

/* What ph_eval_create would refuse. */
static int has_loss(const ph_model *model, int pairs)
{
    const ph_config *c = ph_model_config(model);
    if (c->image_size || c->mels || model->links >= 0) return 0;
    if (c->classes) return pairs && c->pooling;
    if (c->no_output && !c->pooling) return 0;
    return c->arch != PH_ARCH_ENCODER_DECODER || pairs;
}

void ph_measuring_methods(const ph_model *model, int pairs,
                          const char *names[PH_MEASURING_METHODS])
{
    int count = 0, loss = has_loss(model, pairs);
    if (loss) names[count++] = ph_worth_name(PH_WORTH_PATH); /* best for many heads */
    for (int i = 0; loss && i < PH_WORTHS; i++)
        if (i != PH_WORTH_PATH && i != PH_WORTH_RESAMPLED) /* which needs other texts */
            names[count++] = ph_worth_name((ph_worth)i);
    names[count++] = BY_ANSWERS;
    names[count] = NULL;
}

static ph_worth find_worth(const char *method)
{
    int i = 0;
    while (i < PH_WORTHS && strcmp(ph_worth_name((ph_worth)i), method)) i++;
    return (ph_worth)i;
}

/* Whether a head is measured by a pass of its own. */
static int is_single(const ph_measuring *m)
{
    if (m->compare) return 0;
    return m->by_answers || m->worth == PH_WORTH_ZERO || m->worth == PH_WORTH_MEAN ||
           m->worth == PH_WORTH_ALONE;
}

static int steps_of_text(const ph_measuring *m)
{
    int steps = 1;
    for (int h = 0; h < m->heads && is_single(m); h++) steps += !m->removed[h];
    return steps;
}

/* ---- one text ---- */

static void close_text(ph_measuring *m)
{
    ph_eval_free(m->eval);
    ph_prune_free(&m->changed, &m->hooks);
    for (int i = 0; i < 2; i++) {
        ph_scene_free(m->scenes[i]);
        ph_reading_free(m->readings[i]);
        m->scenes[i] = NULL, m->readings[i] = NULL;
    }
    m->eval = NULL;
}

static ph_status open_eval(ph_measuring *m)
{
    const ph_texts *all = m->job.texts;
    const ph_texts one = {.texts = all->texts + m->text,
                          .pairs = all->pairs ? all->pairs + m->text : NULL,
                          .count = 1};
    ph_result result;
    PH_TRY(ph_eval_create(&m->eval, m->job.model, &one, 0));
    if (!is_single(m)) return PH_OK;
    PH_TRY(ph_eval_loss(m->eval, m->plan, &result));
    m->whole = result.loss.value;
    return PH_OK;
}

/* The text read twice: as it is compared with, and with one more head off. */
static ph_status open_readings(ph_measuring *m, const ph_io *io)
{
    const ph_model *model = m->job.model;
    const ph_texts *all = m->job.texts;
    int translates = ph_model_config(model)->arch == PH_ARCH_ENCODER_DECODER;
    const char *text = all->texts[m->text];
    const char *target = translates && all->pairs ? all->pairs[m->text] : NULL;
    for (int i = 0; i < 2; i++) {
        if (!m->readings[i])
            PH_TRY(ph_reading_create(&m->readings[i], model, text, target));
        PH_TRY(ph_scene_create(&m->scenes[i], model, m->readings[i], NULL, text, target,
                               io));
    }
    PH_TRY(ph_prune_create(&m->changed, m->readings[0], io));
    memcpy(m->changed.ablation, m->plan, (size_t)m->heads);
    return m->compare ? PH_OK : ph_prune_run(&m->changed, m->readings[0], 0);
}

/* How far the answers of the second reading are from the first. */
static ph_status compare_answers(ph_measuring *m, const ph_io *io, double *moved)
{
    PH_TRY(ph_prune_run(&m->changed, m->readings[1], 0));
    PH_TRY(ph_scene_compare(m->scenes[0], m->scenes[1], io));
    const ph_report report = ph_scene_report(m->scenes[1]);
    if (!report.divergence && !report.cosine)
        return ph_io_fail(io, PH_UNSUPPORTED, "the model gives no answers to compare");
    *moved = report.divergence ? (double)*report.divergence : 1 - (double)*report.cosine;
    return PH_OK;
}

/* ---- heads ---- */

static void keep_alone(const ph_measuring *m, int head)
{
    ph_head_place place, other;
    ph_model_head(m->job.model, head, &place);
    for (int h = 0; h < m->heads; h++)
        if (h != head && ph_model_head(m->job.model, h, &other) == PH_OK &&
            !strcmp(place.site, other.site))
            m->ablation[h] = PH_HEAD_ZERO;
}

static ph_status measure_loss(ph_measuring *m, int head)
{
    ph_result result;
    memcpy(m->ablation, m->plan, (size_t)m->heads);
    if (m->worth == PH_WORTH_ALONE)
        keep_alone(m, head);
    else
        m->ablation[head] = m->worth == PH_WORTH_ZERO ? PH_HEAD_ZERO : PH_HEAD_MEAN;
    PH_TRY(ph_eval_loss(m->eval, m->ablation, &result));
    double growth = result.loss.value - m->whole;
    ph_moments_add(&m->sums[head], m->worth == PH_WORTH_ALONE ? -growth : growth);
    return PH_OK;
}

static ph_status measure_answers(ph_measuring *m, int head, const ph_io *io)
{
    double moved = 0;
    m->changed.ablation[head] = PH_HEAD_ZERO;
    ph_status status = compare_answers(m, io, &moved);
    m->changed.ablation[head] = PH_HEAD_ON;
    if (status == PH_OK) ph_moments_add(&m->sums[head], moved);
    return status;
}

static ph_status compare_text(ph_measuring *m, const ph_io *io)
{
    ph_result result[2];
    double moved = 0;
    if (m->by_answers) {
        PH_TRY(compare_answers(m, io, &moved));
        m->divergence += moved;
        return PH_OK;
    }
    PH_TRY(ph_eval_loss(m->eval, NULL, &result[0]));
    PH_TRY(ph_eval_loss(m->eval, m->plan, &result[1]));
    for (int i = 0; i < 2; i++) {
        m->loss[i] += result[i].loss.value;
        m->accuracy[i] += result[i].accuracy.value;
    }
    return PH_OK;
}

static ph_status measure_together(ph_measuring *m)
{
    PH_TRY(ph_importance(m->eval, m->worth, m->removed, m->values));
    for (int h = 0; h < m->heads; h++) ph_moments_add(&m->sums[h], m->values[h].value);
    return PH_OK;
}

/* ---- steps ---- */

/* The next head that is not gone, or the next text. */
static void advance(ph_measuring *m)
{
    do m->head++;
    while (m->head < m->heads && m->removed[m->head]);
    if (is_single(m) && m->head < m->heads) return;
    close_text(m);
    m->measured++, m->text++;
    m->head = -1;
}

static ph_status open_text(ph_measuring *m, const ph_io *io)
{
    ph_status status = m->by_answers ? open_readings(m, io) : open_eval(m);
    if (status == PH_OK && m->compare) status = compare_text(m, io);
    if (status == PH_OK && !m->compare && !is_single(m)) status = measure_together(m);
    return status;
}

static void leave_out(ph_measuring *m)
{
    close_text(m);
    m->done += steps_of_text(m);
    m->text++;
}

ph_status ph_measuring_step(ph_measuring *m, int *done, int *of, const ph_io *io)
{
    ph_status status = m->head < 0     ? open_text(m, io)
                       : m->by_answers ? measure_answers(m, m->head, io)
                                       : measure_loss(m, m->head);
    *of = m->job.texts->count * steps_of_text(m);
    if (status == PH_BAD_SHAPE && m->head < 0 && m->job.texts->count > 1) {
        leave_out(m);
    } else {
        PH_TRY(status);
        m->done++;
        advance(m);
    }
    *done = m->done;
    if (m->done == *of && !m->measured)
        return ph_io_fail(io, PH_BAD_SHAPE, "no text of the data can be read");
    return PH_OK;
}

/* ---- results ---- */

ph_estimate ph_measuring_worth(const ph_measuring *m, int head)
{
    if (m->removed[head]) return (ph_estimate){NAN, NAN};
    return (ph_estimate){ph_moments_mean(&m->sums[head], m->measured),
                         ph_moments_error(&m->sums[head], m->measured)};
}

int ph_measuring_texts(const ph_measuring *m)
{
    return m->measured;
}

void ph_measuring_compared(const ph_measuring *m, ph_live_measured *out)
{
    double n = m->measured;
    for (int i = 0; i < 2; i++) {
        out->loss[i] = m->by_answers ? NAN : (float)(m->loss[i] / n);
        out->accuracy[i] = m->by_answers ? NAN : (float)(m->accuracy[i] / n);
    }
    out->divergence = m->by_answers ? (float)(m->divergence / n) : NAN;
}

/* ---- making and freeing ---- */

static ph_status take_all(ph_measuring *m, const ph_io *io)
{
    size_t heads = (size_t)m->heads, item = sizeof(ph_moments) + sizeof(ph_estimate) + 3;
    m->sums = ph_io_alloc(io, heads * item + 1);
    if (!m->sums) return ph_io_no_memory(io, heads * item, "heads");
    memset(m->sums, 0, heads * item + 1);
    m->values = (ph_estimate *)(m->sums + heads);
    m->plan = (uint8_t *)(m->values + heads);
    m->removed = m->plan + heads, m->ablation = m->removed + heads;
    memcpy(m->plan, m->job.plan, heads);
    for (size_t h = 0; h < heads; h++) m->removed[h] = m->plan[h] == PH_HEAD_ZERO;
    return PH_OK;
}

ph_status ph_measuring_create(ph_measuring **out, const ph_measuring_job *job,
                              const ph_io *io)
{
    *out = NULL;
    ph_measuring *m = ph_io_alloc(io, sizeof *m);
    if (!m) return ph_io_no_memory(io, sizeof *m, "a measurement");
    memset(m, 0, sizeof *m);
    m->hooks = ph_io_hooks(io);
    m->job = *job;
    m->worth = find_worth(job->method);
    m->compare = !strcmp(job->method, PH_LIVE_COMPARE);
    m->by_answers = m->compare ? job->by_answers : m->worth == PH_WORTHS;
    m->heads = ph_model_heads(job->model);
    m->head = -1;
    ph_status status = take_all(m, io);
    for (int i = 0; i < 2 && m->by_answers && job->same && status == PH_OK; i++)
        status = ph_reading_again(&m->readings[i], job->same);
    if (status == PH_OK)
        *out = m;
    else
        ph_measuring_free(m);
    return status;
}

void ph_measuring_free(ph_measuring *m)
{
    if (!m) return;
    ph_io hooks = m->hooks;
    close_text(m);
    ph_io_release(&hooks, m->sums);
    ph_io_release(&hooks, m);
}
