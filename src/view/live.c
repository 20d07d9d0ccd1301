/*
 * live.c - the model behind a live page: ph_serve_model and ph_serve_report.
 *
 * A text is run as it is once, before the first request or when the page sends another
 * one (live_run.c), and again for each request with edits. Edits of heads are a pruning
 * plan; masked words are replaced in the text. Measuring heads goes on in steps between
 * requests (live_measuring.h).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "io/io.h"
#include "model/reading.h"
#include "polyhead_heads.h"
#include "polyhead_scene.h"
#include "view/live_run.h"

enum { MAX_PLANS = 10000 };

/* ---- edits ---- */

static int is_masked(const ph_live_request *request, int word)
{
    for (int n = 0; n < request->count; n++) {
        const ph_edit *edit = &request->edits[n];
        if (edit->kind == PH_EDIT_MASK && edit->axis == 0 && edit->word == word) return 1;
    }
    return 0;
}

static int masks_words(const ph_live_request *request)
{
    for (int n = 0; n < request->count; n++)
        if (request->edits[n].kind == PH_EDIT_MASK) return 1;
    return 0;
}

/* The text with masked words replaced by a character that no vocabulary has. */
static char *mask_words(const live_run *before, const ph_live_request *request,
                        const ph_io *io)
{
    static const char sign[] = "\xe2\x96\xa1"; /* U+25A1 */
    size_t length = strlen(before->text), used = 0, at = 0;
    char *out = ph_io_alloc(io, length + (size_t)request->count * sizeof sign + 1);
    for (int i = 0; out && i < ph_reading_length(before->reading, 0); i++) {
        const ph_word *word = ph_reading_word(before->reading, 0, i);
        if (word->length == 0 || !is_masked(request, i)) continue;
        memcpy(out + used, before->text + at, (size_t)word->start - at);
        used += (size_t)word->start - at;
        memcpy(out + used, sign, sizeof sign - 1);
        used += sizeof sign - 1;
        at = (size_t)(word->start + word->length);
    }
    if (out) memcpy(out + used, before->text + at, length - at + 1);
    return out;
}

/* Enters one edit of a head into the plan. */
static ph_status plan_edit(const live_run *run, const ph_edit *edit, ph_prune *plan,
                           const ph_io *io)
{
    int site = ph_scene_site(run->scene, edit->stack, edit->layer);
    int entry = ph_prune_entry(run->reading, site, edit->head);
    if (entry < 0)
        return ph_io_fail(io, PH_BAD_ARGUMENT,
                          "there is no head %d in layer %d of stack %d, counted from 0",
                          edit->head, edit->layer, edit->stack);
    if (edit->kind == PH_EDIT_GATE)
        plan->gates[entry] = edit->gate;
    else
        plan->ablation[entry] = edit->kind == PH_EDIT_ZERO ? PH_HEAD_ZERO : PH_HEAD_MEAN;
    return PH_OK;
}

/* The edits of heads as a plan, which the caller frees. */
static ph_status plan_edits(const live_run *run, const ph_live_request *request,
                            ph_prune *plan, const ph_io *io)
{
    ph_status status = ph_prune_create(plan, run->reading, io);
    for (int n = 0; n < request->count && status == PH_OK; n++)
        if (request->edits[n].kind != PH_EDIT_MASK)
            status = plan_edit(run, &request->edits[n], plan, io);
    return status;
}

static ph_status run_plan(live_session *s, const ph_live_request *request,
                          const ph_io *io)
{
    ph_prune plan = {0};
    ph_status status = plan_edits(&s->before, request, &plan, io);
    if (status == PH_OK) status = ph_prune_run(&plan, s->after.reading, request->frozen);
    ph_prune_free(&plan, io);
    return status;
}

static ph_status open_after(live_session *s, const ph_live_request *request,
                            const ph_io *io)
{
    live_run *run = &s->after;
    run->text = mask_words(&s->before, request, io);
    if (!run->text) return PH_OUT_OF_MEMORY;
    PH_TRY(ph_live_copy(&run->target, s->before.target, io));
    const reading_source source = {.text = run->text,
                                   .target = run->target,
                                   .same =
                                       masks_words(request) ? NULL : s->before.reading};
    PH_TRY(ph_reading_open(&run->reading, s->live->model, &source));
    PH_TRY(run_plan(s, request, io));
    PH_TRY(ph_live_report(s, run, request->words, io));
    /* A masked word may split differently: texts of other length have no divergence. */
    if (ph_scene_compare(s->before.scene, run->scene, NULL) == PH_OK) {
        const ph_report compared = ph_scene_report(run->scene);
        run->report.divergence = compared.divergence;
        run->report.cosine = compared.cosine;
    }
    return PH_OK;
}

/* Where models fail, the sentence is in their ctx. */
static ph_status explain(const live_session *s, ph_status status, const ph_io *io)
{
    if (status == PH_OK || !io || !io->error_size || io->error[0]) return status;
    return ph_io_fail(io, status, "%s", ph_error(s->live->ctx));
}

static void clear_error(const ph_io *io)
{
    if (io && io->error_size) io->error[0] = 0;
}

/* ---- callbacks of the server ---- */

/* The caller's memory hooks, with the sentence going to the page. */
static ph_io request_io(const live_session *s, const ph_live_request *request)
{
    ph_io io = ph_io_hooks(s->io);
    io.error = request->error;
    io.error_size = request->error_size;
    clear_error(&io);
    return io;
}

static ph_status run_request(void *user, const ph_live_request *request,
                             const ph_report **before, const ph_report **after)
{
    live_session *s = user;
    const ph_io io = request_io(s, request);
    ph_live_close(&s->after, s->io);
    *before = *after = NULL;
    ph_status status = ph_live_before(s, request, &io);
    if (status == PH_OK && request->count == 0 && !s->before.effect)
        status = ph_live_effects(s, &s->before, &io);
    if (status == PH_OK && request->count > 0) status = open_after(s, request, &io);
    if (status != PH_OK) return explain(s, status, &io);
    *before = &s->before.report;
    if (request->count > 0) *after = &s->after.report;
    return PH_OK;
}

/* Takes the first free name, since a plan never replaces a file. Running the text first
   refuses edits of heads that do not exist. */
static ph_status save_plan(void *user, const ph_live_request *request, char *name,
                           size_t size)
{
    live_session *s = user;
    const ph_io io = request_io(s, request);
    ph_prune plan = {0};
    const ph_report *before, *after;
    ph_status status = run_request(user, request, &before, &after);
    if (status == PH_OK) status = plan_edits(&s->before, request, &plan, &io);
    if (status == PH_OK) status = PH_IO_ERROR;
    for (int n = 1; status == PH_IO_ERROR && n <= MAX_PLANS; n++) {
        snprintf(name, size, "%s-%d.json", s->live->save_as, n);
        status = ph_prune_write(&plan, name, s->before.reading, &io);
    }
    ph_prune_free(&plan, &io);
    return status;
}

/* ---- measuring heads ---- */

static void end_measuring(void *user)
{
    live_session *s = user;
    live_measurement *m = &s->measuring;
    ph_measuring_free(m->run);
    ph_io_release(s->io, m->text);
    ph_io_release(s->io, m->target);
    ph_io_release(s->io, m->entry);
    memset(m, 0, sizeof *m);
}

/* The name as the library has it; NULL: there is no such method. */
static const char *find_method(const live_session *s, const ph_live_request *request)
{
    const char *const *names = request->data ? s->data_methods : s->methods;
    if (!request->method) return names[0];
    if (!strcmp(request->method, PH_LIVE_COMPARE)) return PH_LIVE_COMPARE;
    while (*names && strcmp(*names, request->method)) names++;
    return *names;
}

static ph_status choose_texts(live_session *s, const ph_live_request *request,
                              const ph_io *io)
{
    live_measurement *m = &s->measuring;
    if (request->data) {
        m->texts = *s->live->data;
        return PH_OK;
    }
    PH_TRY(ph_live_copy(&m->text, s->before.text, io));
    PH_TRY(ph_live_copy(&m->target, s->before.target, io));
    m->texts = (ph_texts){.texts = (const char *const *)&m->text,
                          .pairs = m->target ? (const char *const *)&m->target : NULL,
                          .count = 1};
    return PH_OK;
}

/* Where each head of the report is among those of the model. The pointer of an encoder,
   whose weights are its answer, is not. */
static ph_status list_entries(live_session *s, const ph_io *io)
{
    live_measurement *m = &s->measuring;
    const ph_report *report = &s->before.report;
    m->count = ph_live_heads(report);
    size_t bytes = (size_t)m->count * (sizeof *m->entry + 2 * sizeof *m->worth);
    m->entry = ph_io_alloc(io, bytes);
    if (!m->entry) return ph_io_no_memory(io, bytes, "heads");
    m->worth = (float *)(m->entry + m->count), m->error = m->worth + m->count;
    for (int k = 0, at = 0; k < report->stack_count; k++) {
        const ph_stack *stack = &report->stacks[k];
        for (int n = 0; n < stack->layers * stack->heads; n++, at++) {
            int site = ph_scene_site(s->before.scene, k, n / stack->heads);
            int entry = ph_prune_entry(s->before.reading, site, n % stack->heads);
            m->entry[at] = entry < ph_model_heads(s->live->model) ? entry : -1;
        }
    }
    return PH_OK;
}

static ph_status check_plan(const live_session *s, const ph_prune *plan, const ph_io *io)
{
    int compare = !strcmp(s->measuring.method, PH_LIVE_COMPARE);
    for (int i = 0; i < plan->count; i++) {
        if (plan->gates[i] < 1)
            return ph_io_fail(
                io, PH_UNSUPPORTED,
                "a head is gated: measuring takes heads that are on or off");
        if (plan->ablation[i] == PH_HEAD_MEAN && !compare)
            return ph_io_fail(io, PH_UNSUPPORTED,
                              "a head gives its mean: measuring takes heads that are on "
                              "or off");
    }
    return PH_OK;
}

static ph_status make_measure(live_session *s, const ph_live_request *request,
                              const ph_io *io)
{
    ph_prune plan = {0};
    live_measurement *m = &s->measuring;
    const char *const *names = request->data ? s->data_methods : s->methods;
    ph_status status = plan_edits(&s->before, request, &plan, io);
    if (status == PH_OK) status = check_plan(s, &plan, io);
    if (status == PH_OK) {
        const ph_measuring_job job = {.model = s->live->model,
                                      .method = m->method,
                                      .texts = &m->texts,
                                      .same = request->data ? NULL : s->before.reading,
                                      .by_answers = names[1] == NULL,
                                      .plan = plan.ablation};
        status = ph_measuring_create(&m->run, &job, io);
    }
    ph_prune_free(&plan, io);
    return status;
}

/* The text of the request. A loss needs parameters of the model's own, and what was made
   from those in a file goes with them: then the request is run again. */
static ph_status open_for_measuring(live_session *s, const ph_live_request *request,
                                    const ph_io *io)
{
    const ph_report *before, *after;
    int by_loss = strcmp(s->measuring.method, s->methods[0]) || s->methods[1];
    if (!by_loss || !s->live->model->checkpoint) return ph_live_before(s, request, io);
    ph_live_close(&s->after, s->io);
    ph_live_close(&s->before, s->io);
    PH_TRY(explain(s, ph_model_own(s->live->model), io));
    return run_request(s, request, &before, &after);
}

static ph_status begin_measuring(void *user, const ph_live_request *request)
{
    live_session *s = user;
    const ph_io io = request_io(s, request);
    end_measuring(s);
    if (request->data && !s->live->data)
        return ph_io_fail(&io, PH_UNSUPPORTED, "there is no data: give --data FILE");
    s->measuring.method = find_method(s, request);
    s->measuring.data = request->data;
    if (!s->measuring.method)
        return ph_io_fail(&io, PH_BAD_ARGUMENT,
                          "this model cannot be measured by this method");
    ph_status status = open_for_measuring(s, request, &io);
    if (status == PH_OK) status = choose_texts(s, request, &io);
    if (status == PH_OK) status = list_entries(s, &io);
    if (status == PH_OK) status = make_measure(s, request, &io);
    if (status != PH_OK) end_measuring(s);
    return explain(s, status, &io);
}

static void list_worth(live_measurement *m, ph_live_measured *out)
{
    for (int i = 0; i < m->count; i++) {
        ph_estimate found = {NAN, NAN};
        if (m->entry[i] >= 0) found = ph_measuring_worth(m->run, m->entry[i]);
        m->worth[i] = (float)found.value, m->error[i] = (float)found.error;
    }
    out->heads = m->count, out->worth = m->worth, out->error = m->error;
}

static ph_status step_measuring(void *user, ph_live_measured *out, char *error,
                                size_t error_size)
{
    live_session *s = user;
    live_measurement *m = &s->measuring;
    ph_io io = ph_io_hooks(s->io);
    io.error = error, io.error_size = error_size;
    clear_error(&io);
    *out = (ph_live_measured){.method = m->method,
                              .data = m->data,
                              .loss = {NAN, NAN},
                              .accuracy = {NAN, NAN},
                              .divergence = NAN};
    ph_status status = ph_measuring_step(m->run, &out->done, &out->of, &io);
    if (status != PH_OK) return explain(s, status, &io);
    out->texts = ph_measuring_texts(m->run);
    if (out->done < out->of) return PH_OK;
    if (strcmp(m->method, PH_LIVE_COMPARE))
        list_worth(m, out);
    else
        ph_measuring_compared(m->run, out);
    return PH_OK;
}

/* ---- initial edits ---- */

static ph_edit_kind edit_kind(int ablation)
{
    if (ablation == PH_HEAD_ON) return PH_EDIT_GATE;
    return ablation == PH_HEAD_ZERO ? PH_EDIT_ZERO : PH_EDIT_MEAN;
}

/* Writes at most plan->count edits and returns how many. */
static int list_edits(const live_run *run, const ph_prune *plan, ph_edit *edits)
{
    int count = 0;
    for (int k = 0; k < run->report.stack_count; k++) {
        const ph_stack *stack = &run->report.stacks[k];
        for (int n = 0; n < stack->layers * stack->heads; n++) {
            int layer = n / stack->heads, head = n % stack->heads;
            int site = ph_scene_site(run->scene, k, layer);
            int entry = ph_prune_entry(run->reading, site, head);
            if (entry < 0) continue;
            int ablation = plan->ablation[entry];
            float gate = plan->gates[entry];
            if (ablation == PH_HEAD_ON && gate == 1) continue;
            edits[count++] = (ph_edit){.kind = edit_kind(ablation),
                                       .stack = k,
                                       .layer = layer,
                                       .head = head,
                                       .gate = gate};
        }
    }
    return count;
}

/* Runs the initial text, so that the page finds it done; and the heads that the plan
   changes, as edits of it. *edits is to be released. */
static ph_status read_edits(live_session *s, ph_edit **edits, int *count)
{
    ph_prune plan = {0};
    const ph_live_model *live = s->live;
    const ph_live_request first = {
        .text = live->text, .target = live->target, .words = live->words};
    clear_error(s->io);
    ph_status status = ph_live_before(s, &first, s->io);
    if (status != PH_OK) return explain(s, status, s->io);
    if (!live->plan) return PH_OK;
    PH_TRY(ph_prune_read(&plan, live->plan, s->before.reading, s->io));
    size_t bytes = (size_t)plan.count * sizeof **edits;
    *edits = ph_io_alloc(s->io, bytes);
    if (*edits)
        *count = list_edits(&s->before, &plan, *edits);
    else
        status = ph_io_no_memory(s->io, bytes, "the edits of a plan");
    ph_prune_free(&plan, s->io);
    return status;
}

/* ---- serving ---- */

static unsigned abilities(const ph_live_model *live)
{
    const ph_config *c = ph_model_config(live->model);
    const int reads_words = ph_model_splits(live->model) == PH_SPLIT_WORDS;
    unsigned can =
        1u << PH_EDIT_ZERO | 1u << PH_EDIT_MEAN | 1u << PH_EDIT_GATE | PH_LIVE_FROZEN;
    if (c->image_size)
        can |= PH_LIVE_PICTURE;
    else if (c->mels)
        can |= PH_LIVE_SOUND;
    else
        can |= PH_LIVE_TEXT | (reads_words ? 1u << PH_EDIT_MASK : PH_LIVE_WORDS);
    if (c->arch == PH_ARCH_ENCODER_DECODER) can |= PH_LIVE_TARGET;
    return live->save_as ? can | PH_LIVE_SAVE : can;
}

ph_status ph_serve_model(const ph_live_model *live, const ph_serve *serve,
                         const ph_io *io)
{
    if (!live || !serve) return ph_io_null(io, "live or serve");
    live_session s = {.live = live, .io = io};
    ph_edit *edits = NULL;
    int count = 0;
    PH_IO_CHECK_RESERVED(io, "ph_live_model", live->reserved);
    PH_IO_CHECK_RESERVED(io, "ph_serve", serve->reserved);
    if (!live->model || !live->ctx || !live->title || !live->text)
        return ph_io_fail(io, PH_BAD_ARGUMENT, "model, ctx, title or text is NULL");
    if (live->words && !(abilities(live) & PH_LIVE_WORDS))
        return ph_io_fail(io, PH_UNSUPPORTED,
                          "the model reads %s: it has no tokens to join to words",
                          ph_live_reads_files(live->model) ? "no text" : "whole words");
    ph_measuring_methods(live->model, live->target != NULL, s.methods);
    ph_measuring_methods(live->model, live->data && live->data->pairs, s.data_methods);
    ph_status status = read_edits(&s, &edits, &count);
    const ph_live_measuring measuring = {.methods = s.methods,
                                         .data_methods = s.data_methods,
                                         .data_texts = live->data ? live->data->count : 0,
                                         .command = live->command,
                                         .begin = begin_measuring,
                                         .step = step_measuring,
                                         .end = end_measuring};
    const ph_live view = {.can = abilities(live),
                          .text = live->text,
                          .target = live->target,
                          .words = live->words,
                          .edits = edits,
                          .edit_count = count,
                          .run = run_request,
                          .save = live->save_as ? save_plan : NULL,
                          .measuring = &measuring,
                          .user = &s};
    if (status == PH_OK) status = ph_serve_run(&view, serve, io);
    end_measuring(&s);
    ph_live_close(&s.after, io);
    ph_live_close(&s.before, io);
    ph_io_release(io, edits);
    return status;
}

/* There is nothing to run: every text shows the same report. */
static ph_status show_report(void *user, const ph_live_request *request,
                             const ph_report **before, const ph_report **after)
{
    const ph_report *const *report = user;
    (void)request;
    *before = *report;
    *after = NULL;
    return PH_OK;
}

ph_status ph_serve_report(const ph_report *report, const ph_serve *serve, const ph_io *io)
{
    if (!report) return ph_io_null(io, "report");
    const ph_live view = {
        .text = report->text ? report->text : "", .run = show_report, .user = &report};
    return ph_serve_run(&view, serve, io);
}
