/*
 * survey.c - measures every head of a report and adds the findings to it.
 *
 * Weights are read once, a few rows of a few heads at a time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ctx.h"
#include "base/format.h"
#include "base/size.h"
#include "io/io.h"
#include "io/sort.h"
#include "polyhead_heads.h"
#include "polyhead_picture.h"

enum {
    LOOK_ROWS = 96,         /* rows of a head that one thread makes weights of at once */
    MOST_WEIGHTS = 1 << 24, /* of a batch: 64 MiB */
    MAX_BATCH = 16,         /* heads of a batch, one for each thread */
    WHY_SIZE = 96,          /* bytes of a reason */
    RELATION_SIZE = 48,     /* of the name of a relation */
    MAX_ROLES = 1 + PH_LABELS + PH_MAX_RELATIONS + 1, /* no label; the answer */
    FOUND_SIZE = 512
};

/* What was found in one stack; arrays are (layers, heads, ...). */
typedef struct found_stack {
    ph_heads *sums; /* of all texts */
    ph_head_stats *heads;
    float *scores;
    float *offsets;
    uint8_t *role;
    const char **why;
    char (*why_text)[WHY_SIZE];
} found_stack;

struct ph_survey {
    ph_io hooks;
    ph_stack *stacks; /* a copy, at the end with the pointers filled in */
    found_stack *found;
    int stack_count;
    ph_metric metrics[PH_MEASURES];
    ph_measure measures[PH_MEASURES]; /* of the metrics */
    int metric_count;
    ph_role roles[MAX_ROLES]; /* the label of links once for each relation */
    int role_count;
    int role_of[PH_LABELS]; /* the (first) role of each label */
    char relation_names[PH_MAX_RELATIONS][2][RELATION_SIZE]; /* key, name */
    char sentence[FOUND_SIZE];
};

static void *take(ph_survey *s, size_t count, size_t item)
{
    size_t bytes = 0;
    if (ph_size_mul(count, item, &bytes)) return NULL;
    void *memory = ph_io_alloc(&s->hooks, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static size_t head_count(const ph_stack *stack)
{
    return (size_t)stack->layers * (size_t)stack->heads;
}

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
    word *words = take(s, count, sizeof *words);
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

/* Heads that are measured in parallel, each by one thread and in the order of its rows,
   so that sums do not depend on the number of threads. */
typedef struct survey_batch {
    const survey_text *r;
    ph_heads *sums;
    const ph_heads_text *text;
    ph_pick at[MAX_BATCH];
    int count;         /* heads of the batch */
    float *blocks;     /* (batch, block_size) */
    size_t block_size; /* weights of a block */
    int row, rows;
} survey_batch;

static void add_item(void *user, int lane, int index)
{
    const survey_batch *b = user;
    const ph_pick *at = &b->at[index];
    (void)lane;
    ph_heads_add(b->sums, at->layer, at->head, b->row, b->rows,
                 b->blocks + (size_t)index * b->block_size);
}

static ph_status ask_rows(survey_batch *b)
{
    const ph_report *report = b->r->report;
    ph_status status = PH_OK;
    for (int n = 0; n < b->count && status == PH_OK; n++) {
        const ph_pick *at = &b->at[n];
        status = report->weights(report->user, at->stack, at->layer, at->head, b->row,
                                 b->rows, b->blocks + (size_t)n * b->block_size);
        if (status != PH_OK)
            ph_io_fail(b->r->io, status, "the weights of layer %d, head %d: %s",
                       at->layer + 1, at->head + 1, ph_status_text(status));
    }
    return status;
}

static ph_status feed_batch(survey_batch *b)
{
    ph_ctx *ctx = b->r->facts ? b->r->facts->ctx : NULL;
    int keys = ph_max(1, b->text->keys),
        step = ph_max(1, (int)(b->block_size / (size_t)keys));
    for (b->row = 0; b->row < b->text->rows; b->row += step) {
        b->rows = ph_min(step, b->text->rows - b->row);
        PH_TRY(ask_rows(b));
        if (ctx)
            ph_ctx_run(ctx, b->count, add_item, b);
        else
            for (int n = 0; n < b->count; n++) add_item(b, 0, n);
    }
    b->count = 0;
    return PH_OK;
}

static ph_status feed_heads(survey_batch *b, int index, int most)
{
    const ph_stack *stack = &b->r->report->stacks[index];
    ph_status status = PH_OK;
    for (int n = 0; n < stack->layers * stack->heads && status == PH_OK; n++) {
        if (!stack->absent || !stack->absent[n])
            b->at[b->count++] = (ph_pick){index, n / stack->heads, n % stack->heads};
        if (b->count == most) status = feed_batch(b);
    }
    return status == PH_OK && b->count > 0 ? feed_batch(b) : status;
}

static ph_status feed_stack(ph_survey *s, const survey_text *r, int index,
                            const ph_heads_text *text)
{
    int threads = r->facts && r->facts->ctx ? r->facts->ctx->threads : 1;
    int most = ph_min(threads, MAX_BATCH);
    size_t keys = (size_t)text->keys, all = keys * (size_t)text->rows;
    size_t block_size = (size_t)threads * LOOK_ROWS * keys;
    if (block_size > MOST_WEIGHTS / (size_t)most)
        block_size = MOST_WEIGHTS / (size_t)most;
    if (block_size < keys) block_size = keys;
    if (block_size > all) block_size = all;
    survey_batch b = {
        .r = r, .sums = s->found[index].sums, .text = text, .block_size = block_size};
    b.blocks = take(s, block_size * (size_t)most, sizeof *b.blocks);
    if (!b.blocks)
        return ph_io_no_memory(r->io, block_size * sizeof *b.blocks, "weights");
    ph_status status = ph_heads_begin(b.sums, text, r->io);
    if (status == PH_OK) status = feed_heads(&b, index, most);
    ph_heads_end(b.sums);
    ph_io_release(&s->hooks, b.blocks);
    return status;
}

static ph_status read_stack(ph_survey *s, const survey_text *r, int index)
{
    const ph_stack *stack = &r->report->stacks[index];
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
    int32_t *ids = take(s, (size_t)keys->count, sizeof *ids);
    uint8_t *classes = take(s, (size_t)keys->count, 1);
    ph_status status = ids && classes ? PH_OK : PH_OUT_OF_MEMORY;
    if (status == PH_OK) status = know_axis(s, r, stack->k_axis, ids, classes, &text);
    if (status != PH_OK)
        ph_io_fail(r->io, status, "out of memory for %d words", keys->count);
    if (status == PH_OK) status = feed_stack(s, r, index, &text);
    ph_io_release(&s->hooks, ids);
    ph_io_release(&s->hooks, classes);
    return status;
}

static ph_status check_shape(const ph_survey *s, const ph_report *report, const ph_io *io)
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
    ph_status status = check_shape(s, report, io);
    for (int k = 0; k < s->stack_count && status == PH_OK; k++)
        status = read_stack(s, &r, k);
    return status;
}

/* ---- writing the findings down ---- */

static int known_anywhere(const ph_survey *s, ph_measure measure)
{
    for (int k = 0; k < s->stack_count; k++)
        for (size_t n = 0; n < head_count(&s->stacks[k]); n++)
            if (!isnan(s->found[k].heads[n].value[measure])) return 1;
    return 0;
}

static void list_metrics(ph_survey *s)
{
    for (int m = 0; m < PH_MEASURES; m++) {
        const ph_measure_info *info = ph_measure_about((ph_measure)m);
        if (!known_anywhere(s, (ph_measure)m)) continue;
        ph_metric *metric = &s->metrics[s->metric_count];
        *metric = (ph_metric){.key = info->key, .name = info->name, .help = info->help};
        for (int i = 0; i < PH_LABELS; i++) {
            const ph_label_rule *rule = ph_label_rules(i);
            if (rule->measure != (ph_measure)m) continue;
            metric->threshold = (float)rule->threshold;
            metric->at = rule->at;
        }
        s->measures[s->metric_count++] = (ph_measure)m;
    }
}

/* The first letter of the name that no role has yet. */
static char free_letter(const ph_survey *s, const char *name)
{
    for (const char *at = name; *at; at++) {
        int taken = *at < 'a' || *at > 'z';
        for (int r = 0; r < s->role_count; r++) taken |= s->roles[r].glyph == *at;
        if (!taken) return *at;
    }
    return 'x';
}

static void list_relations(ph_survey *s, const ph_label_rule *rule,
                           const char *const *relations, int count)
{
    for (int r = 0; r < count; r++) {
        char *key = s->relation_names[r][0], *name = s->relation_names[r][1];
        snprintf(key, RELATION_SIZE, "%.40s", relations[r]);
        snprintf(name, RELATION_SIZE, "%.40s links", relations[r]);
        s->roles[s->role_count] = (ph_role){free_letter(s, key), key, name, rule->help};
        s->role_count++;
    }
}

/* Relations that some head was measured on. */
static int count_relations(const ph_survey *s)
{
    int count = 0;
    for (int k = 0; k < s->stack_count; k++)
        for (size_t n = 0; n < head_count(&s->stacks[k]); n++)
            for (int r = count; r < PH_MAX_RELATIONS; r++)
                if (s->found[k].heads[n].link[r].links) count = r + 1;
    return count;
}

static void list_roles(ph_survey *s, const char *const *relations)
{
    s->roles[s->role_count++] = (ph_role){'.', "none", "no label", "no rule fired"};
    for (int i = 0; i < PH_LABELS; i++) {
        const ph_label_rule *rule = ph_label_rules(i);
        s->role_of[i] = s->role_count;
        if (rule->measure == PH_LINK && relations) {
            list_relations(s, rule, relations, count_relations(s));
            continue;
        }
        s->roles[s->role_count++] =
            (ph_role){rule->glyph, rule->key, rule->name, rule->help};
    }
}

/* A head whose weights are the answer finds every relation: its role is that alone. */
static void list_answer(ph_survey *s)
{
    int answers = 0;
    for (int k = 0; k < s->stack_count; k++) answers |= s->stacks[k].share != NULL;
    if (answers)
        s->roles[s->role_count++] =
            (ph_role){'=', "answer", "the answer", "its weights are the answer"};
}

static int role_of(const ph_survey *s, const ph_label *label, const ph_head_stats *head,
                   int named)
{
    int relation = named && label->rule->measure == PH_LINK ? head->relation : 0;
    return s->role_of[label->rule - ph_label_rules(0)] + relation;
}

static ph_status take_stack(ph_survey *s, int index)
{
    found_stack *f = &s->found[index];
    size_t count = head_count(&s->stacks[index]);
    f->scores = take(s, count * (size_t)s->metric_count, sizeof *f->scores);
    f->offsets = take(s, count * PH_OFFSETS, sizeof *f->offsets);
    f->role = take(s, count, 1);
    f->why = take(s, count, sizeof *f->why);
    f->why_text = take(s, count, sizeof *f->why_text);
    int good = f->scores && f->offsets && f->role && f->why && f->why_text;
    return good ? PH_OK : PH_OUT_OF_MEMORY;
}

/* The reasons of all labels, as far as they fit, the one that gives the role first. */
static void explain(char *text, const ph_head_stats *head, const ph_label *labels,
                    int count, const char *const *relations)
{
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        char one[WHY_SIZE];
        ph_label_why(&labels[i], head, relations, one, sizeof one);
        if (used + strlen(one) + 3 > WHY_SIZE) break;
        used +=
            (size_t)snprintf(text + used, WHY_SIZE - used, "%s%s", i ? ", " : "", one);
    }
}

static void describe_head(ph_survey *s, found_stack *f, size_t n,
                          const char *const *relations)
{
    const ph_head_stats *head = &f->heads[n];
    ph_label labels[PH_MAX_LABELS];
    int count = ph_head_labels(head, labels);
    for (int m = 0; m < s->metric_count; m++)
        f->scores[n * (size_t)s->metric_count + (size_t)m] =
            (float)head->value[s->measures[m]];
    for (int o = 0; o < PH_OFFSETS; o++)
        f->offsets[n * PH_OFFSETS + (size_t)o] = (float)head->mass[o];
    if (count == 0) return;
    f->role[n] = (uint8_t)role_of(s, &labels[0], head, relations != NULL);
    f->why[n] = f->why_text[n];
    explain(f->why_text[n], head, labels, count, relations);
}

static void fill_stack(ph_survey *s, int index, const char *const *relations)
{
    found_stack *f = &s->found[index];
    ph_stack *stack = &s->stacks[index];
    for (size_t n = 0; n < head_count(stack); n++) describe_head(s, f, n, relations);
    if (stack->share) {
        memset(f->role, s->role_count - 1, head_count(stack)); /* list_answer */
        memset(f->why, 0, head_count(stack) * sizeof *f->why);
    }
    stack->scores = f->scores;
    stack->offsets = f->offsets;
    stack->reach = PH_REACH;
    stack->role = f->role;
    stack->why = f->why;
}

/* "16 heads: 3 previous token, 2 broad, 11 without a label; 12 % of the weight rests on
   the first token" */
static void summarise(ph_survey *s)
{
    int count[MAX_ROLES] = {0}, heads = 0, measured = 0;
    double first = 0;
    for (int k = 0; k < s->stack_count; k++)
        for (size_t n = 0; n < head_count(&s->stacks[k]); n++) {
            double share = s->found[k].heads[n].value[PH_FIRST];
            if (s->stacks[k].absent && s->stacks[k].absent[n]) continue;
            heads++;
            count[s->found[k].role[n]]++;
            if (isnan(share)) continue;
            measured++;
            first += share;
        }
    char *text = s->sentence;
    size_t used =
        (size_t)snprintf(text, FOUND_SIZE, "%d head%s: ", heads, heads == 1 ? "" : "s");
    for (int r = 1; r < s->role_count; r++)
        if (count[r] && used < FOUND_SIZE)
            used += (size_t)snprintf(text + used, FOUND_SIZE - used, "%d %s, ", count[r],
                                     s->roles[r].name);
    if (used < FOUND_SIZE)
        used += (size_t)snprintf(text + used, FOUND_SIZE - used, "%d without a label",
                                 count[0]);
    if (used < FOUND_SIZE && measured)
        ph_format(text + used, FOUND_SIZE - used,
                  "; %.0f %% of the weight rests on the first token",
                  100 * first / measured);
}

static void hang_into(ph_survey *s, ph_report *report)
{
    report->stacks = s->stacks;
    report->metrics = s->metrics;
    report->metric_count = s->metric_count;
    report->roles = s->roles;
    report->role_count = s->role_count;
    report->found = s->sentence;
}

/* ---- the end ---- */

static ph_status read_heads(ph_survey *s)
{
    ph_status status = PH_OK;
    for (int k = 0; k < s->stack_count && status == PH_OK; k++) {
        int heads = s->stacks[k].heads;
        s->found[k].heads = take(s, head_count(&s->stacks[k]), sizeof(ph_head_stats));
        if (!s->found[k].heads) return PH_OUT_OF_MEMORY;
        for (int n = 0; n < (int)head_count(&s->stacks[k]) && status == PH_OK; n++)
            status = ph_heads_read(s->found[k].sums, n / heads, n % heads,
                                   &s->found[k].heads[n]);
    }
    return status;
}

ph_status ph_survey_end(ph_survey *s, ph_report *report, const char *const *relations,
                        const ph_io *io)
{
    if (!s || !report) return ph_io_null(io, "survey or report");
    ph_status status = check_shape(s, report, io);
    if (status != PH_OK) return status;
    memcpy(s->stacks, report->stacks, (size_t)s->stack_count * sizeof *s->stacks);
    status = read_heads(s);
    if (status == PH_OK) {
        list_metrics(s);
        list_roles(s, relations);
        list_answer(s);
    }
    for (int k = 0; k < s->stack_count && status == PH_OK; k++) {
        status = take_stack(s, k);
        if (status == PH_OK) fill_stack(s, k, relations);
    }
    if (status != PH_OK) return ph_io_fail(io, status, "out of memory for the scores");
    summarise(s);
    hang_into(s, report);
    return PH_OK;
}

/* ---- making and freeing ---- */

ph_status ph_survey_create(ph_survey **out, const ph_report *report, const ph_io *io)
{
    if (out) *out = NULL;
    if (!out || !report) return ph_io_null(io, "out or report");
    ph_survey *s = ph_io_alloc(io, sizeof *s);
    if (!s) return ph_io_no_memory(io, sizeof *s, "a survey");
    memset(s, 0, sizeof *s);
    s->hooks = ph_io_hooks(io);
    s->stacks = take(s, (size_t)report->stack_count, sizeof *s->stacks);
    s->found = take(s, (size_t)report->stack_count, sizeof *s->found);
    ph_status status = PH_OK;
    if (s->stacks && s->found) {
        s->stack_count = report->stack_count;
        memcpy(s->stacks, report->stacks, (size_t)s->stack_count * sizeof *s->stacks);
    } else {
        status = ph_io_fail(io, PH_OUT_OF_MEMORY, "out of memory for a survey");
    }
    for (int k = 0; k < s->stack_count && status == PH_OK; k++)
        status = ph_heads_create(&s->found[k].sums, s->stacks[k].layers,
                                 s->stacks[k].heads, io);
    if (status == PH_OK)
        *out = s;
    else
        ph_survey_free(s);
    return status;
}

void ph_survey_free(ph_survey *s)
{
    if (!s) return;
    ph_io hooks = s->hooks;
    for (int k = 0; k < s->stack_count; k++) {
        found_stack *f = &s->found[k];
        void *const parts[] = {f->heads, f->scores, f->offsets,
                               f->role,  f->why,    f->why_text};
        ph_heads_free(f->sums);
        for (int i = 0; i < 6; i++) ph_io_release(&hooks, parts[i]);
    }
    ph_io_release(&hooks, s->found);
    ph_io_release(&hooks, s->stacks);
    ph_io_release(&hooks, s);
}

const ph_head_stats *ph_survey_head(const ph_survey *s, int stack, int layer, int head)
{
    if (stack < 0 || stack >= s->stack_count) return NULL;
    const ph_stack *k = &s->stacks[stack];
    if (layer < 0 || layer >= k->layers || head < 0 || head >= k->heads) return NULL;
    const ph_head_stats *heads = s->found[stack].heads;
    return heads ? &heads[layer * k->heads + head] : NULL;
}
