/*
 * report_case.h - made-up reports for the tests of the page: patterns that everybody can
 * check by eye, in sizes from nothing to thousands of words.
 *
 *     report_case c;
 *     report_case_make(&c, "demo");
 *     ph_page_write(path, &c.report, NULL, NULL, NULL);
 *     report_case_free(&c);
 *
 * Weights are made of additions and divisions only, so pages have the same bytes on every
 * machine; "demo" alone computes q, k and a softmax, for the view of neurons.
 */
#ifndef REPORT_CASE_H
#define REPORT_CASE_H

#include "polyhead_view.h"

enum { REPORT_STACKS = 3, REPORT_AXES = 2 };

typedef struct report_case {
    ph_report report;
    ph_axis axes[REPORT_AXES];
    ph_stack stacks[REPORT_STACKS];
    char **words[REPORT_AXES];
    float *scores[REPORT_STACKS], *offsets[REPORT_STACKS], *norms[REPORT_STACKS];
    uint8_t *roles[REPORT_STACKS], *absent, *unknown;
    float *share, *effect;
    const char **why;
    uint64_t seed;
    int learned;  /* 1: weights are a softmax of q.k */
    int noisy;    /* 1: every head is the same broad noise, which deflates badly */
    int negative; /* 1: some weights are below 0, as in differential attention */
} report_case;

/* Names: demo, other (like it, another seed), patterns, answers (weights that are
   answers, a word that is not known), cross, wide (70,000 keys), causal, grouped,
   negative, chinese, single, empty, hostile, large (12 x 12 x 128), noisy (as large),
   long (12 x 12 x 512), longest (3 heads x 4,096), many (128 heads). Returns 0, or -1 for
   no such name. */
int report_case_make(report_case *c, const char *name);
void report_case_free(report_case *c);

/* One weight, in double, without the page's machinery. */
double report_case_weight(const report_case *c, int s, int layer, int head, int i, int j);

#endif
