/*
 * survey_text.c - measures every head of a report on a text.
 *
 * Weights are read once, a few rows of as many heads at a time as there are threads, and
 * of a report that gives its layers one after the other while it holds them.
 */
#include <stdatomic.h>
#include <string.h>

#include "base/ctx.h"
#include "io/io.h"
#include "io/sort.h"
#include "view/survey_inside.h"

enum {
    LOOK_ROWS = 96,        /* rows of a head that one thread makes weights of at once */
    MOST_WEIGHTS = 1 << 24 /* of all threads: 64 MiB */
};

/* ---- what is known of an axis ---- */

typedef struct word {
    const char *text;
    int32_t place;
} word;

static int by_text(const void *left, const void *right)
{
    const word *a = left, *b = right;
    int order = strcmp(a->text, b->text);
    return order ? order : (a->place > b->place) - (a->place < b->place);
}

/* Equal words get equal ids. */
static ph_status assign_ids(ph_survey *s, const ph_axis *axis, int32_t *ids)
{
    size_t count = (size_t)axis->count;
    word *words = ph_survey_take(s, count, sizeof *words);
    if (!words) return PH_OUT_OF_MEMORY;
    for (size_t j = 0; j < count; j++) words[j] = (word){axis->tokens[j], (int32_t)j};
    ph_sort(words, count, sizeof *words, by_text);
    for (size_t j = 0; j < count; j++) {
        int same = j > 0 && !strcmp(words[j - 1].text, words[j].text);
        ids[words[j].place] = same ? ids[words[j - 1].place] : (int32_t)j;
    }
    ph_io_release(&s->hooks, words);
    return PH_OK;
}

/* The text that is measured. */
typedef struct survey_text {
    const ph_report *report;
    const ph_survey_facts *facts; /* or NULL */
    const ph_io *io;
} survey_text;

/* Facts of the axis: the caller's, or ids and classes derived from its words. */
static ph_status know_axis(ph_survey *s, const survey_text *r, int index, int32_t *ids,
                           uint8_t *classes, ph_heads_text *text)
{
    const ph_survey_facts *facts = r->facts;
    const ph_axis *axis = &r->report->axes[index];
    ph_status status = PH_OK;
    text->ids = facts && facts->ids ? facts->ids[index] : NULL;
    text->classes = facts && facts->classes ? facts->classes[index] : NULL;
    text->ranks = facts && facts->ranks ? facts->ranks[index] : NULL;
    if (!text->ids) {
        status = assign_ids(s, axis, ids);
        text->ids = ids;
    }
    if (!text->classes) {
        for (int j = 0; j < axis->count; j++)
            classes[j] = ph_token_classes(axis->tokens[j]);
        text->classes = classes;
    }
    return status;
}

/* ---- measuring ---- */

/* A stack while a text is measured. */
typedef struct stack_text {
    ph_heads_text text;
    int32_t *ids; /* of the survey, where the caller has none */
    uint8_t *classes;
} stack_text;

/* Heads of layers whose weights are available. Each is measured by one thread and in the
   order of its rows, so that sums do not depend on the number of threads. */
typedef struct survey_job {
    ph_survey *s;
    const survey_text *r;
    stack_text *stacks; /* (stack_count) */
    ph_ctx *ctx;        /* or NULL */
    float *blocks;      /* (threads, block_size) rows of weights */
    size_t block_size;
    int stack, first;  /* the current heads: of this stack, from this one on */
    atomic_int failed; /* status of a head that failed, and its index */
    atomic_int failed_head;
} survey_job;

/* Rows of a head at once: what a look packs keys for, within the block. */
static int rows_at_once(const survey_job *j, const ph_heads_text *text)
{
    size_t keys = (size_t)ph_max(1, text->keys);
    return ph_max(1, (int)(j->block_size / keys));
}

static ph_status measure_head(survey_job *j, int n, float *block)
{
    const ph_report *report = j->r->report;
    const ph_stack *stack = &report->stacks[j->stack];
    const ph_heads_text *text = &j->stacks[j->stack].text;
    ph_heads *sums = j->s->found[j->stack].sums;
    int layer = n / stack->heads, head = n % stack->heads, step = rows_at_once(j, text);
    if (stack->absent && stack->absent[n]) return PH_OK;
    for (int row = 0; row < text->rows; row += step) {
        int rows = ph_min(step, text->rows - row);
        PH_TRY((report->rows && j->ctx ? report->rows : report->weights)(
            report->user, j->stack, layer, head, row, rows, block));
        PH_TRY(ph_heads_add(sums, layer, head, row, rows, block));
    }
    return PH_OK;
}

static void head_item(void *arg, int lane, int index)
{
    survey_job *j = arg;
    int n = j->first + index;
    ph_status status = measure_head(j, n, j->blocks + (size_t)lane * j->block_size);
    if (status == PH_OK) return;
    atomic_store(&j->failed_head, n);
    atomic_store(&j->failed, (int)status);
}

/* count heads of a stack from `first` on. */
static ph_status measure_heads(survey_job *j, int stack, int first, int count)
{
    int heads = j->r->report->stacks[stack].heads;
    j->stack = stack, j->first = first;
    if (j->ctx && j->r->report->rows)
        ph_ctx_run(j->ctx, count, head_item, j);
    else
        for (int n = 0; n < count && !atomic_load(&j->failed); n++) head_item(j, 0, n);
    ph_status status = (ph_status)atomic_load(&j->failed);
    int n = atomic_load(&j->failed_head);
    if (status != PH_OK)
        ph_io_fail(j->r->io, status, "the weights of layer %d, head %d: %s",
                   n / heads + 1, n % heads + 1, ph_status_text(status));
    return status;
}

static ph_status measure_layer(void *user, int stack, int layer)
{
    survey_job *j = user;
    int heads = j->r->report->stacks[stack].heads;
    return measure_heads(j, stack, layer * heads, heads);
}

static ph_status measure_all(survey_job *j)
{
    const ph_report *report = j->r->report;
    if (report->layers) return report->layers(report->user, measure_layer, j);
    for (int k = 0; k < j->s->stack_count; k++)
        PH_TRY(measure_heads(j, k, 0, (int)ph_survey_heads(&report->stacks[k])));
    return PH_OK;
}

/* Memory for the rows that each thread has at once. */
static ph_status take_blocks(survey_job *j)
{
    int threads = j->ctx && j->r->report->rows ? j->ctx->threads : 1;
    int at_once = j->ctx && !j->r->report->rows ? j->ctx->threads : 1;
    size_t most = MOST_WEIGHTS / (size_t)threads, keys = 1, all = 1;
    for (int k = 0; k < j->s->stack_count; k++) {
        const ph_heads_text *text = &j->stacks[k].text;
        size_t map = (size_t)text->keys * (size_t)text->rows;
        if ((size_t)text->keys > keys) keys = (size_t)text->keys;
        if (map > all) all = map;
    }
    j->block_size = (size_t)at_once * LOOK_ROWS * keys; /* a look has all threads */
    if (j->block_size > most) j->block_size = most;
    if (j->block_size < keys) j->block_size = keys;
    if (j->block_size > all) j->block_size = all;
    j->blocks = ph_survey_take(j->s, j->block_size * (size_t)threads, sizeof *j->blocks);
    if (j->blocks) return PH_OK;
    return ph_io_no_memory(j->r->io, j->block_size * sizeof *j->blocks, "weights");
}

/* ---- a text ---- */

static ph_heads_text describe_text(const survey_text *r, const ph_stack *stack)
{
    const ph_axis *rows = &r->report->axes[stack->q_axis];
    const ph_axis *keys = &r->report->axes[stack->k_axis];
    int cross = stack->q_axis != stack->k_axis && !stack->causal;
    ph_heads_text text = {.rows = rows->count,
                          .keys = keys->count,
                          .q_offset = stack->q_offset,
                          .causal = stack->causal,
                          .cross = cross};
    if (r->report->patch_columns && stack->k_axis == 0) {
        text.patch_first = r->report->patch_first;
        text.patch_columns = r->report->patch_columns;
        text.patch_size = ph_max(r->report->picture_side / text.patch_columns, 1);
    }
    if (r->facts && !cross && stack->k_axis == 0) {
        text.links = r->facts->links;
        text.link_count = r->facts->link_count;
    }
    return text;
}

static ph_status begin_stack(ph_survey *s, const survey_text *r, int index, stack_text *t)
{
    const ph_stack *stack = &r->report->stacks[index];
    t->text = describe_text(r, stack);
    t->ids = ph_survey_take(s, (size_t)t->text.keys, sizeof *t->ids);
    t->classes = ph_survey_take(s, (size_t)t->text.keys, 1);
    ph_status status = t->ids && t->classes ? PH_OK : PH_OUT_OF_MEMORY;
    if (status == PH_OK)
        status = know_axis(s, r, stack->k_axis, t->ids, t->classes, &t->text);
    if (status != PH_OK)
        return ph_io_fail(r->io, status, "out of memory for %d words", t->text.keys);
    return ph_heads_begin(s->found[index].sums, &t->text, r->io);
}

/* Of a text that has begun. */
static void end_stack(ph_survey *s, int index, stack_text *t)
{
    ph_heads_end(s->found[index].sums);
    ph_io_release(&s->hooks, t->ids);
    ph_io_release(&s->hooks, t->classes);
}

static ph_status measure_text(ph_survey *s, const survey_text *r)
{
    survey_job j = {.s = s, .r = r, .ctx = r->facts ? r->facts->ctx : NULL};
    ph_status status = PH_OK;
    j.stacks = ph_survey_take(s, (size_t)s->stack_count, sizeof *j.stacks);
    if (!j.stacks) return ph_io_no_memory(r->io, sizeof *j.stacks, "stacks");
    for (int k = 0; k < s->stack_count && status == PH_OK; k++)
        status = begin_stack(s, r, k, &j.stacks[k]);
    if (status == PH_OK) status = take_blocks(&j);
    if (status == PH_OK) status = measure_all(&j);
    for (int k = 0; k < s->stack_count; k++) end_stack(s, k, &j.stacks[k]);
    ph_io_release(&s->hooks, j.blocks);
    ph_io_release(&s->hooks, j.stacks);
    return status;
}

ph_status ph_survey_check(const ph_survey *s, const ph_report *report, const ph_io *io)
{
    int same = report->stack_count == s->stack_count;
    for (int k = 0; same && k < s->stack_count; k++)
        same = report->stacks[k].layers == s->stacks[k].layers &&
               report->stacks[k].heads == s->stacks[k].heads;
    if (same) return PH_OK;
    return ph_io_fail(io, PH_BAD_SHAPE, "another number of stacks, layers or heads");
}

ph_status ph_survey_text(ph_survey *s, const ph_report *report,
                         const ph_survey_facts *facts, const ph_io *io)
{
    if (!s || !report) return ph_io_null(io, "survey or report");
    const survey_text r = {report, facts, io};
    if (facts) PH_IO_CHECK_RESERVED(io, "ph_survey_facts", facts->reserved);
    ph_status status = ph_survey_check(s, report, io);
    return status == PH_OK ? measure_text(s, &r) : status;
}
