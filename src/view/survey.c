/*
 * survey.c - what was measured of the heads of a report, added to it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/format.h"
#include "base/size.h"
#include "io/io.h"
#include "view/survey_inside.h"

void *ph_survey_take(ph_survey *s, size_t count, size_t item)
{
    size_t bytes = 0;
    if (ph_size_mul(count, item, &bytes)) return NULL;
    void *memory = ph_io_alloc(&s->hooks, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

/* ---- writing the findings down ---- */

static int known_anywhere(const ph_survey *s, ph_measure measure)
{
    for (int k = 0; k < s->stack_count; k++)
        for (size_t n = 0; n < ph_survey_heads(&s->stacks[k]); n++)
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
        snprintf(key, PH_RELATION_SIZE, "%.40s", relations[r]);
        snprintf(name, PH_RELATION_SIZE, "%.40s links", relations[r]);
        s->roles[s->role_count] = (ph_role){free_letter(s, key), key, name, rule->help};
        s->role_count++;
    }
}

/* Relations that some head was measured on. */
static int count_relations(const ph_survey *s)
{
    int count = 0;
    for (int k = 0; k < s->stack_count; k++)
        for (size_t n = 0; n < ph_survey_heads(&s->stacks[k]); n++)
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
    ph_found_stack *f = &s->found[index];
    size_t count = ph_survey_heads(&s->stacks[index]);
    f->scores = ph_survey_take(s, count * (size_t)s->metric_count, sizeof *f->scores);
    f->offsets = ph_survey_take(s, count * PH_OFFSETS, sizeof *f->offsets);
    f->role = ph_survey_take(s, count, 1);
    f->why = ph_survey_take(s, count, sizeof *f->why);
    f->why_text = ph_survey_take(s, count, sizeof *f->why_text);
    int good = f->scores && f->offsets && f->role && f->why && f->why_text;
    return good ? PH_OK : PH_OUT_OF_MEMORY;
}

/* The reasons of all labels, as far as they fit, the one that gives the role first. */
static void explain(char *text, const ph_head_stats *head, const ph_label *labels,
                    int count, const char *const *relations)
{
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        char one[PH_WHY_SIZE];
        ph_label_why(&labels[i], head, relations, one, sizeof one);
        if (used + strlen(one) + 3 > PH_WHY_SIZE) break;
        used +=
            (size_t)snprintf(text + used, PH_WHY_SIZE - used, "%s%s", i ? ", " : "", one);
    }
}

static void describe_head(ph_survey *s, ph_found_stack *f, size_t n,
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
    ph_found_stack *f = &s->found[index];
    ph_stack *stack = &s->stacks[index];
    for (size_t n = 0; n < ph_survey_heads(stack); n++) describe_head(s, f, n, relations);
    if (stack->share) {
        memset(f->role, s->role_count - 1, ph_survey_heads(stack)); /* list_answer */
        memset(f->why, 0, ph_survey_heads(stack) * sizeof *f->why);
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
    int count[PH_MAX_ROLES] = {0}, heads = 0, measured = 0;
    double first = 0;
    for (int k = 0; k < s->stack_count; k++)
        for (size_t n = 0; n < ph_survey_heads(&s->stacks[k]); n++) {
            double share = s->found[k].heads[n].value[PH_FIRST];
            if (s->stacks[k].absent && s->stacks[k].absent[n]) continue;
            heads++;
            count[s->found[k].role[n]]++;
            if (isnan(share)) continue;
            measured++;
            first += share;
        }
    char *text = s->sentence;
    size_t used = (size_t)snprintf(text, PH_FOUND_SIZE, "%d head%s: ", heads,
                                   heads == 1 ? "" : "s");
    for (int r = 1; r < s->role_count; r++)
        if (count[r] && used < PH_FOUND_SIZE)
            used += (size_t)snprintf(text + used, PH_FOUND_SIZE - used, "%d %s, ",
                                     count[r], s->roles[r].name);
    if (used < PH_FOUND_SIZE)
        used += (size_t)snprintf(text + used, PH_FOUND_SIZE - used, "%d without a label",
                                 count[0]);
    if (used < PH_FOUND_SIZE && measured)
        ph_format(text + used, PH_FOUND_SIZE - used,
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
        s->found[k].heads =
            ph_survey_take(s, ph_survey_heads(&s->stacks[k]), sizeof(ph_head_stats));
        if (!s->found[k].heads) return PH_OUT_OF_MEMORY;
        for (int n = 0; n < (int)ph_survey_heads(&s->stacks[k]) && status == PH_OK; n++)
            status = ph_heads_read(s->found[k].sums, n / heads, n % heads,
                                   &s->found[k].heads[n]);
    }
    return status;
}

ph_status ph_survey_end(ph_survey *s, ph_report *report, const char *const *relations,
                        const ph_io *io)
{
    if (!s || !report) return ph_io_null(io, "survey or report");
    ph_status status = ph_survey_check(s, report, io);
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
    s->stacks = ph_survey_take(s, (size_t)report->stack_count, sizeof *s->stacks);
    s->found = ph_survey_take(s, (size_t)report->stack_count, sizeof *s->found);
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
        ph_found_stack *f = &s->found[k];
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
    if (!s) return NULL;
    if (stack < 0 || stack >= s->stack_count) return NULL;
    const ph_stack *k = &s->stacks[stack];
    if (layer < 0 || layer >= k->layers || head < 0 || head >= k->heads) return NULL;
    const ph_head_stats *heads = s->found[stack].heads;
    return heads ? &heads[layer * k->heads + head] : NULL;
}
