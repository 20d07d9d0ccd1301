/*
 * survey_inside.h - the inside of a ph_survey.
 *
 *     survey_text.c  measures the heads of a report on a text
 *     survey.c       writes the findings down
 */
#ifndef PH_VIEW_SURVEY_INSIDE_H
#define PH_VIEW_SURVEY_INSIDE_H

#include "polyhead_heads.h"
#include "polyhead_picture.h"

enum {
    PH_WHY_SIZE = 96,                                    /* bytes of a reason */
    PH_RELATION_SIZE = 48,                               /* of the name of a relation */
    PH_MAX_ROLES = 1 + PH_LABELS + PH_MAX_RELATIONS + 1, /* no label; the answer */
    PH_FOUND_SIZE = 512
};

/* What was found in one stack; arrays are (layers, heads, ...). */
typedef struct ph_found_stack {
    ph_heads *sums; /* of all texts */
    ph_head_stats *heads;
    float *scores;
    float *offsets;
    uint8_t *role;
    const char **why;
    char (*why_text)[PH_WHY_SIZE];
} ph_found_stack;

struct ph_survey {
    ph_io hooks;
    ph_stack *stacks; /* a copy, at the end with the pointers filled in */
    ph_found_stack *found;
    int stack_count;
    ph_metric metrics[PH_MEASURES];
    ph_measure measures[PH_MEASURES]; /* of the metrics */
    int metric_count;
    ph_role roles[PH_MAX_ROLES]; /* the label of links once for each relation */
    int role_count;
    int role_of[PH_LABELS]; /* the (first) role of each label */
    char relation_names[PH_MAX_RELATIONS][2][PH_RELATION_SIZE]; /* key, name */
    char sentence[PH_FOUND_SIZE];
};

/* Cleared memory of count items, by the hooks of the survey; NULL: there is none. */
void *ph_survey_take(ph_survey *s, size_t count, size_t item);

/* Refuses a report with other stacks, layers or heads. */
ph_status ph_survey_check(const ph_survey *s, const ph_report *report, const ph_io *io);

static inline size_t ph_survey_heads(const ph_stack *stack)
{
    return (size_t)stack->layers * (size_t)stack->heads;
}

#endif
