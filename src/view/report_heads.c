/*
 * report_heads.c - which heads of a report are most worth a look.
 */
#include <math.h>
#include <string.h>

#include "view/report_heads.h"

const float *ph_report_scores(const ph_report *report, const ph_pick *pick)
{
    const ph_stack *stack = &report->stacks[pick->stack];
    int64_t n = (int64_t)pick->layer * stack->heads + pick->head;
    return stack->scores ? stack->scores + n * report->metric_count : NULL;
}

int ph_report_role(const ph_report *report, const ph_pick *pick)
{
    const ph_stack *stack = &report->stacks[pick->stack];
    return stack->role ? stack->role[pick->layer * stack->heads + pick->head] : 0;
}

int ph_report_next(const ph_report *report, ph_pick *pick)
{
    while (pick->stack < report->stack_count) {
        const ph_stack *stack = &report->stacks[pick->stack];
        pick->head++;
        if (pick->head >= stack->heads) {
            pick->head = 0;
            pick->layer++;
        }
        if (pick->layer >= stack->layers || stack->heads < 1) {
            *pick = (ph_pick){pick->stack + 1, 0, -1};
            continue;
        }
        if (!stack->absent || !stack->absent[pick->layer * stack->heads + pick->head])
            return 1;
    }
    return 0;
}

static int metric_of(const ph_report *report, const char *key)
{
    for (int m = 0; m < report->metric_count; m++)
        if (!strcmp(report->metrics[m].key, key)) return m;
    return -1;
}

static int is_taken(const ph_pick *picks, int count, const ph_pick *one)
{
    for (int n = 0; n < count; n++)
        if (picks[n].stack == one->stack && picks[n].layer == one->layer &&
            picks[n].head == one->head)
            return 1;
    return 0;
}

/* The head of this role (-1: of any) that scores highest in the metric and is not taken
   yet; the first of equal ones. */
static int best_of(const ph_report *report, int role, const char *key,
                   const ph_pick *picks, int count, ph_pick *best)
{
    int metric = metric_of(report, key), found = 0;
    float top = 0;
    for (ph_pick at = {0, 0, -1}; ph_report_next(report, &at);) {
        const float *scores = ph_report_scores(report, &at);
        float score = metric >= 0 && scores ? scores[metric] : -1;
        if (isnan(score)) score = -1;
        if (role >= 0 && ph_report_role(report, &at) != role) continue;
        if ((found && score <= top) || is_taken(picks, count, &at)) continue;
        found = 1;
        top = score;
        *best = at;
    }
    return found;
}

int ph_report_picks(const ph_report *report, ph_pick *picks, int most)
{
    if (!report || !picks) return 0;
    int count = 0;
    for (int role = 1; role < report->role_count && count < most; role++) {
        const char *key = report->roles[role].key;
        if (metric_of(report, key) < 0) key = "link"; /* the role is a relation */
        count += best_of(report, role, key, picks, count, &picks[count]);
    }
    while (count < most && best_of(report, 0, "confidence", picks, count, &picks[count]))
        count++;
    while (count < most && best_of(report, -1, "confidence", picks, count, &picks[count]))
        count++;
    return count;
}
