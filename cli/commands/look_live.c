/*
 * look_live.c - `polyhead look --serve`: the page, live, with the model behind it.
 *
 * Every question runs the text twice at most: as it is, and with heads changed or words
 * hidden. Roles of the embedded model belong to the model and are measured once; those of
 * other models are measured on the text that is asked about.
 */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "framework/term.h"

enum { STACKS = 8, MOST_PLANS = 10000 };

/* One run of the model. */
typedef struct side {
    char *text; /* what it read */
    ph_reading *reading;
    ph_scene *scene;
    ph_survey *survey; /* NULL: roles are those of the model */
    ph_stack stacks[STACKS];
    ph_report report;
} side;

typedef struct stage {
    const look_source *source;
    const look_choice *choice;
    side before, after;
    int plans; /* saved so far */
} stage;

static atomic_int signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

static int was_signalled(void *user)
{
    (void)user;
    return signalled;
}

/* ---- one run ---- */

static void close_side(side *s)
{
    ph_survey_free(s->survey);
    ph_scene_free(s->scene);
    ph_reading_free(s->reading);
    free(s->text);
    memset(s, 0, sizeof *s);
}

/* Roles and numbers that were measured on sentences hold for every text. */
static void borrow_roles(side *s, const ph_report *from)
{
    for (int k = 0; k < s->report.stack_count && k < STACKS; k++) {
        s->stacks[k] = s->report.stacks[k];
        s->stacks[k].scores = from->stacks[k].scores;
        s->stacks[k].role = from->stacks[k].role;
        s->stacks[k].why = from->stacks[k].why;
        s->stacks[k].offsets = from->stacks[k].offsets;
        s->stacks[k].reach = from->stacks[k].reach;
    }
    s->report.stacks = s->stacks;
    s->report.metrics = from->metrics;
    s->report.metric_count = from->metric_count;
    s->report.roles = from->roles;
    s->report.role_count = from->role_count;
    s->report.found = from->found;
}

static ph_status measure(side *s, ph_ctx *ctx, const ph_io *io)
{
    const int32_t *const ids[] = {ph_scene_ids(s->scene, 0), ph_scene_ids(s->scene, 1)};
    const ph_survey_facts facts = {.ids = ids, .ctx = ctx};
    ph_status status = ph_survey_create(&s->survey, &s->report, io);
    if (status == PH_OK) status = ph_survey_text(s->survey, &s->report, &facts, io);
    if (status == PH_OK) status = ph_survey_end(s->survey, &s->report, NULL, io);
    return status;
}

static ph_status show(stage *st, side *s, const ph_io *io)
{
    ph_status status =
        ph_scene_create(&s->scene, st->source->model, s->reading,
                        st->source->report.title, s->text, st->choice->target, io);
    if (status != PH_OK) return status;
    s->report = ph_scene_report(s->scene);
    if (!st->source->sentences) return measure(s, st->source->ctx, io);
    borrow_roles(s, &st->source->report);
    return PH_OK;
}

/* ---- changes ---- */

/* The text with some words replaced by a sign that no vocabulary knows. */
static char *hide_words(const side *before, const ph_live_ask *ask)
{
    static const char sign[] = "\xe2\x96\xa1"; /* U+25A1 */
    size_t length = strlen(before->text), used = 0, at = 0;
    char *out = malloc(length + (size_t)ask->count * sizeof sign + 1);
    for (int i = 0; out && i < ph_reading_length(before->reading, 0); i++) {
        const ph_word *word = ph_reading_word(before->reading, 0, i);
        int hidden = 0;
        for (int n = 0; n < ask->count; n++)
            hidden |= ask->edits[n].kind == PH_EDIT_MASK && ask->edits[n].axis == 0 &&
                      ask->edits[n].word == i;
        if (!hidden || word->length == 0) continue;
        memcpy(out + used, before->text + at, (size_t)word->start - at);
        used += (size_t)word->start - at;
        memcpy(out + used, sign, sizeof sign - 1);
        used += sizeof sign - 1;
        at = (size_t)(word->start + word->length);
    }
    if (out) memcpy(out + used, before->text + at, length - at + 1);
    return out;
}

static ph_status no_such_head(const ph_live_ask *ask, const ph_edit *edit)
{
    if (ask->error_size)
        snprintf(ask->error, ask->error_size,
                 "there is no head %d in layer %d of stack %d, counted from 0",
                 edit->head, edit->layer, edit->stack);
    return PH_BAD_ARGUMENT;
}

/* The changes of heads as a plan, which the caller frees. */
static ph_status plan_edits(const stage *st, const ph_live_ask *ask, ph_prune *plan)
{
    const side *s = &st->before;
    ph_status status = ph_prune_create(plan, s->reading, NULL);
    for (int n = 0; n < ask->count && status == PH_OK; n++) {
        const ph_edit *edit = &ask->edits[n];
        if (edit->kind == PH_EDIT_MASK) continue;
        int site = ph_scene_site(s->scene, edit->stack, edit->layer);
        int entry = ph_prune_entry(s->reading, site, edit->head);
        if (entry < 0)
            status = no_such_head(ask, edit);
        else if (edit->kind == PH_EDIT_GATE)
            plan->gates[entry] = edit->gate;
        else
            plan->ablation[entry] =
                edit->kind == PH_EDIT_ZERO ? PH_HEAD_ZERO : PH_HEAD_MEAN;
    }
    return status;
}

static ph_status run_plan(stage *st, const ph_live_ask *ask)
{
    ph_prune plan = {0};
    ph_status status = plan_edits(st, ask, &plan);
    if (status == PH_OK) status = ph_prune_run(&plan, st->after.reading, ask->frozen);
    ph_prune_free(&plan, NULL);
    return status;
}

static ph_status open_after(stage *st, const ph_live_ask *ask, const ph_io *io)
{
    side *s = &st->after;
    s->text = hide_words(&st->before, ask);
    if (!s->text) return PH_OUT_OF_MEMORY;
    ph_status status =
        ph_reading_create(&s->reading, st->source->model, s->text, st->choice->target);
    if (status == PH_OK) status = run_plan(st, ask);
    if (status == PH_OK) status = show(st, s, io);
    if (status == PH_OK && ph_scene_compare(st->before.scene, s->scene, NULL) == PH_OK)
        s->report.divergence = ph_scene_report(s->scene).divergence;
    return status;
}

/* ---- what the server asks ---- */

static ph_status answer(void *user, const ph_live_ask *ask, const ph_report **before,
                        const ph_report **after)
{
    stage *st = user;
    const ph_io io = {.error = ask->error, .error_size = ask->error_size};
    close_side(&st->after);
    close_side(&st->before);
    st->before.text = malloc(strlen(ask->text) + 1);
    if (!st->before.text) return PH_OUT_OF_MEMORY;
    strcpy(st->before.text, ask->text);
    if (ask->error_size) ask->error[0] = 0;
    ph_status status = ph_reading_create(&st->before.reading, st->source->model,
                                         st->before.text, st->choice->target);
    if (status == PH_OK) status = show(st, &st->before, &io);
    if (status == PH_OK && ask->count > 0) status = open_after(st, ask, &io);
    if (status != PH_OK && ask->error_size && !ask->error[0])
        snprintf(ask->error, ask->error_size, "%s", ph_error(st->source->ctx));
    *before = status == PH_OK ? &st->before.report : NULL;
    *after = status == PH_OK && ask->count > 0 ? &st->after.report : NULL;
    return status;
}

/* Maps of a file: there is nothing to run. */
static ph_status answer_maps(void *user, const ph_live_ask *ask, const ph_report **before,
                             const ph_report **after)
{
    const stage *st = user;
    (void)ask;
    *before = &st->source->report;
    *after = NULL;
    return PH_OK;
}

/* The first name that is free: a plan never replaces another file. The text is run first,
   so that changes of heads that are not there are refused. */
static ph_status save_plan(void *user, const ph_live_ask *ask, char *name, size_t size)
{
    stage *st = user;
    ph_prune plan = {0};
    const ph_report *before, *after;
    ph_status status = answer(user, ask, &before, &after);
    if (status == PH_OK) status = plan_edits(st, ask, &plan);
    if (status == PH_OK) status = PH_IO_ERROR;
    while (status == PH_IO_ERROR && st->plans++ < MOST_PLANS) {
        snprintf(name, size, "polyhead-plan-%d.json", st->plans);
        status = ph_prune_write(&plan, name, st->before.reading, NULL);
    }
    ph_prune_free(&plan, NULL);
    return status;
}

/* ---- a plan to begin with ---- */

/* The changes that a plan makes, as the page knows them. */
static int list_edits(const look_source *source, const ph_prune *plan, ph_edit *edits)
{
    int count = 0;
    for (int s = 0; s < source->report.stack_count; s++) {
        const ph_stack *stack = &source->report.stacks[s];
        for (int n = 0; n < stack->layers * stack->heads; n++) {
            int layer = n / stack->heads, head = n % stack->heads;
            int site = ph_scene_site(source->scene, s, layer);
            int entry = ph_prune_entry(source->reading, site, head);
            int ablation = entry < 0 ? PH_HEAD_ON : plan->ablation[entry];
            if (entry < 0 || (ablation == PH_HEAD_ON && plan->gates[entry] == 1))
                continue;
            edits[count++] = (ph_edit){.kind = ablation == PH_HEAD_ZERO   ? PH_EDIT_ZERO
                                               : ablation == PH_HEAD_MEAN ? PH_EDIT_MEAN
                                                                          : PH_EDIT_GATE,
                                       .stack = s,
                                       .layer = layer,
                                       .head = head,
                                       .gate = plan->gates[entry]};
        }
    }
    return count;
}

/* Returns an exit code; *edits is to be freed. */
static int open_plan(const look_source *source, const char *path, ph_edit **edits,
                     int *count)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    ph_prune plan = {0};
    if (!path) return EXIT_OK;
    if (!source->reading) return cli_fail(EXIT_USAGE, "--plan needs a model");
    ph_status status = ph_prune_read(&plan, path, source->reading, &io);
    *edits = calloc((size_t)plan.count + 1, sizeof **edits);
    if (status == PH_OK && *edits) *count = list_edits(source, &plan, *edits);
    ph_prune_free(&plan, &io);
    if (status == PH_OK && !*edits) return cli_fail(EXIT_MEMORY, "out of memory");
    return status == PH_OK ? EXIT_OK : cli_fail(cli_exit_code(status), "%s", error);
}

/* ---- the server ---- */

static void say_ready(void *user, const char *address)
{
    (void)user;
    printf("The page is live at %s%s%s\nCtrl-C ends it.\n", term_on(stdout, TERM_BOLD),
           address, term_on(stdout, TERM_PLAIN));
    fflush(stdout);
}

static unsigned abilities(const look_source *source)
{
    unsigned heads = 1u << PH_EDIT_ZERO | 1u << PH_EDIT_MEAN | 1u << PH_EDIT_GATE |
                     PH_LIVE_FROZEN | PH_LIVE_SAVE;
    if (!source->model) return 0;
    return heads |
           (ph_model_splits(source->model) == PH_SPLIT_WORDS ? 1u << PH_EDIT_MASK : 0);
}

static int serve(const look_source *source, const look_choice *choice, int port,
                 const ph_edit *edits, int count)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    stage st = {.source = source, .choice = choice};
    const ph_live live = {.can = abilities(source),
                          .text = source->report.text ? source->report.text : "",
                          .edits = edits,
                          .edit_count = count,
                          .run = source->model ? answer : answer_maps,
                          .save = source->model ? save_plan : NULL,
                          .user = &st};
    const ph_serve serve = {.port = port, .stopped = was_signalled, .ready = say_ready};
    struct sigaction on = {.sa_handler = on_signal}, old[2];
    sigaction(SIGINT, &on, &old[0]);
    sigaction(SIGTERM, &on, &old[1]);
    ph_status status = ph_serve_run(&live, &serve, &io);
    sigaction(SIGINT, &old[0], NULL);
    sigaction(SIGTERM, &old[1], NULL);
    close_side(&st.after);
    close_side(&st.before);
    if (status == PH_OK) return EXIT_OK;
    return cli_fail(cli_exit_code(status), "%s", *error ? error : ph_status_text(status));
}

int look_serve(const look_source *source, const look_choice *choice, const char *plan,
               int port)
{
    ph_edit *edits = NULL;
    int count = 0, rc = open_plan(source, plan, &edits, &count);
    if (rc == EXIT_OK) rc = serve(source, choice, port, edits, count);
    free(edits);
    return rc;
}
