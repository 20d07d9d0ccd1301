/*
 * live_run.c - a model run on what a live page requests, as a report; see live_run.h.
 */
#include "view/live_run.h"

#include <string.h>

#include "base/base.h"
#include "io/io.h"
#include "model/reading.h"

void ph_live_close(live_run *run, const ph_io *io)
{
    ph_survey_free(run->survey);
    ph_joined_free(run->joined);
    ph_scene_free(run->scene);
    ph_reading_free(run->reading);
    ph_io_release(io, run->text);
    ph_io_release(io, run->target);
    ph_io_release(io, run->file);
    ph_io_release(io, run->effect);
    memset(run, 0, sizeof *run);
}

ph_status ph_live_copy(char **out, const char *text, const ph_io *io)
{
    *out = NULL;
    if (!text) return PH_OK;
    size_t size = strlen(text) + 1;
    *out = ph_io_alloc(io, size);
    if (!*out) return ph_io_no_memory(io, size, "a text");
    memcpy(*out, text, size);
    return PH_OK;
}

int ph_live_reads_files(const ph_model *model)
{
    const ph_config *c = ph_model_config(model);
    return c->image_size || c->mels;
}

/* ---- scores ---- */

/* The stacks become the run's own, so that fields of them can be set. */
static ph_status own_stacks(live_run *run, const ph_io *io)
{
    int count = run->report.stack_count;
    if (count > PH_LIVE_STACKS)
        return ph_io_fail(io, PH_UNSUPPORTED, "the model has %d stacks, expected %d",
                          count, PH_LIVE_STACKS);
    memmove(run->stacks, run->report.stacks, (size_t)count * sizeof *run->stacks);
    run->report.stacks = run->stacks;
    return PH_OK;
}

/* Scores and roles that were measured on other texts hold for every text. */
static ph_status copy_scores(live_run *run, const ph_report *from, const ph_io *io)
{
    int count = run->report.stack_count;
    if (count != from->stack_count)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "measured has %d stacks, the model has %d",
                          from->stack_count, count);
    for (int k = 0; k < count; k++) {
        run->stacks[k].scores = from->stacks[k].scores;
        run->stacks[k].role = from->stacks[k].role;
        run->stacks[k].why = from->stacks[k].why;
        run->stacks[k].offsets = from->stacks[k].offsets;
        run->stacks[k].reach = from->stacks[k].reach;
    }
    run->report.metrics = from->metrics;
    run->report.metric_count = from->metric_count;
    run->report.roles = from->roles;
    run->report.role_count = from->role_count;
    run->report.found = from->found;
    return PH_OK;
}

/* Words say by their texts which are equal, tokens by their ids. */
static ph_status measure(live_run *run, ph_ctx *ctx, const ph_io *io)
{
    const int32_t *const ids[] = {ph_scene_ids(run->scene, 0),
                                  ph_scene_ids(run->scene, 1)};
    const ph_survey_facts facts = {.ids = run->joined ? NULL : ids, .ctx = ctx};
    PH_TRY(ph_survey_create(&run->survey, &run->report, io));
    PH_TRY(ph_survey_text(run->survey, &run->report, &facts, io));
    return ph_survey_end(run->survey, &run->report, NULL, io);
}

void ph_live_point_at_effects(live_run *run)
{
    const float *effect = run->effect;
    for (int k = 0; effect && k < run->report.stack_count; k++) {
        run->stacks[k].effect = effect;
        effect += run->stacks[k].layers * run->stacks[k].heads;
    }
}

/* ---- the report ---- */

ph_status ph_live_report(const live_session *s, live_run *run, int words, const ph_io *io)
{
    const ph_live_model *live = s->live;
    ph_survey_free(run->survey);
    ph_joined_free(run->joined);
    run->survey = NULL, run->joined = NULL;
    run->words = words;
    if (!run->scene)
        PH_TRY(ph_scene_create(&run->scene, live->model, run->reading, live->title,
                               run->text, run->target, io));
    if (words) PH_TRY(ph_joined_create(&run->joined, run->scene, io));
    run->report = words ? ph_joined_report(run->joined) : ph_scene_report(run->scene);
    if (!live->measured) PH_TRY(measure(run, live->ctx, io));
    PH_TRY(own_stacks(run, io));
    if (live->measured) PH_TRY(copy_scores(run, live->measured, io));
    ph_live_point_at_effects(run);
    return PH_OK;
}

/* ---- what is requested ---- */

static int is_same(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

/* A name that the page gives to what it has sent is never a path. */
static const char *text_of(const live_session *s, const ph_live_request *request)
{
    return !ph_live_reads_files(s->live->model) || request->file ? request->text
                                                                 : s->live->text;
}

static ph_status open_before(live_session *s, const ph_live_request *request,
                             const ph_io *io)
{
    live_run *run = &s->before;
    const ph_map file = {request->bytes, request->size};
    PH_TRY(ph_live_copy(&run->text, text_of(s, request), io));
    PH_TRY(ph_live_copy(&run->target, request->target, io));
    PH_TRY(ph_live_copy(&run->file, request->file, io));
    const reading_source source = {
        .text = run->text, .target = run->target, .file = request->file ? &file : NULL};
    PH_TRY(ph_reading_open(&run->reading, s->live->model, &source));
    PH_TRY(ph_reading_run(run->reading, NULL, 0));
    PH_TRY(ph_live_report(s, run, request->words, io));
    run->complete = 1;
    return PH_OK;
}

ph_status ph_live_before(live_session *s, const ph_live_request *request, const ph_io *io)
{
    live_run *run = &s->before;
    int same = run->complete && is_same(run->text, text_of(s, request)) &&
               is_same(run->target, request->target) && is_same(run->file, request->file);
    if (same && run->words == request->words) return PH_OK;
    if (!same) {
        ph_live_close(run, s->io);
        return open_before(s, request, io);
    }
    run->complete = 0; /* until the report by words, or by tokens, is there */
    PH_TRY(ph_live_report(s, run, request->words, io));
    run->complete = 1;
    return PH_OK;
}
