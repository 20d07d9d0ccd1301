/*
 * page_plan.c - how exactly weights can be stored within the budget of a page.
 *
 * Decided from sizes, before anything is computed: all exact if that takes a quarter of
 * the budget, else as many decimals as are printed if that fits, else the largest of each
 * row.
 */
#include <string.h>

#include "base/base.h"
#include "view/page.h"

enum {
    FIXED = 256 << 10,  /* bytes of frame, styles and scripts, rounded up generously */
    MAX_TOP = 64,       /* more are not readable */
    MIN_TOP = 4,        /* rather than fewer, leave heads out */
    LARGEST_THUMB = 64, /* cells along one side */
    LEAST_THUMB = 8
};

/* What all stacks of all reports come to. */
typedef struct totals {
    size_t cells, rows, heads; /* rows: over all heads */
    int longest;               /* axis of keys */
} totals;

static totals count_all(const ph_page_source *source)
{
    totals t = {0, 0, 0, 0};
    for (int r = 0; r < source->count; r++) {
        const ph_report *report = source->reports[r];
        for (int s = 0; s < report->stack_count; s++) {
            const ph_stack *k = &report->stacks[s];
            size_t heads = (size_t)k->layers * (size_t)k->heads;
            size_t rows = (size_t)report->axes[k->q_axis].count;
            int keys = report->axes[k->k_axis].count;
            t.heads += heads;
            t.rows += heads * rows;
            t.cells += heads * rows * (size_t)keys;
            t.longest = ph_max(t.longest, keys);
        }
    }
    return t;
}

/* Estimated size of words and measures of heads as JSON; escapes make some of it
   longer. */
static size_t text_bytes(const ph_report *report)
{
    size_t bytes = strlen(report->text ? report->text : "");
    for (int a = 0; a < report->axis_count; a++)
        for (int i = 0; i < report->axes[a].count; i++)
            bytes += strlen(report->axes[a].tokens[i]) + 3;
    for (int s = 0; s < report->stack_count; s++) {
        const ph_stack *k = &report->stacks[s];
        size_t numbers = (size_t)report->metric_count + 2 * (size_t)k->reach + 8;
        bytes += (size_t)k->layers * (size_t)k->heads * numbers * 10;
    }
    return bytes;
}

/* Bytes of arrays that the budget leaves: base64 turns 3 bytes into 4. */
static size_t array_bytes(const ph_page_source *source)
{
    size_t budget = source->page.budget ? source->page.budget : PH_PAGE_BUDGET;
    size_t other = FIXED;
    for (int r = 0; r < source->count; r++) other += text_bytes(source->reports[r]);
    return budget > other + FIXED ? (budget - other) / 4 * 3 : FIXED / 2;
}

static void plan_top(ph_page_plan *plan, const totals *t, size_t bytes)
{
    size_t entry = (size_t)(4 + plan->col_bytes), top;
    plan->mode = PH_PAGE_TOP;
    plan->side = LARGEST_THUMB;
    while (plan->side > LEAST_THUMB &&
           t->heads * (size_t)(plan->side * plan->side) > bytes / 4)
        plan->side /= 2;
    size_t thumbs = t->heads * (size_t)(plan->side * plan->side + 4);
    plan->map_left = thumbs < bytes ? bytes - thumbs : 0;
    size_t row = plan->map_left / (t->rows + 1);
    top = row > 4 ? (row - 4) / entry : 0;
    plan->top = top > MAX_TOP ? MAX_TOP : ph_max((int)top, MIN_TOP);
}

ph_page_plan ph_page_make_plan(const ph_page_source *source)
{
    totals t = count_all(source);
    ph_page_plan plan = {.col_bytes = t.longest < 65535 ? 2 : 4,
                         .digits = source->tight ? 3 : 4};
    size_t bytes = array_bytes(source);
    plan.pair_left = bytes / 16;
    plan.map_left = bytes - plan.pair_left;
    if (t.cells <= bytes / 16) { /* four bytes each */
        plan.mode = PH_PAGE_F32;
        plan.pair_left = bytes / 4;
    } else if (source->live)
        plan.mode = PH_PAGE_LIVE;
    else if (source->tight < 2 && t.cells + t.cells / 4 + 9 * t.rows <= plan.map_left)
        plan.mode = PH_PAGE_DECIMAL; /* two bytes each, the upper one mostly zero */
    else
        plan_top(&plan, &t, plan.map_left);
    return plan;
}
