/*
 * report_heads.h - walking over the heads of a report.
 */
#ifndef PH_VIEW_REPORT_HEADS_H
#define PH_VIEW_REPORT_HEADS_H

#include "polyhead_picture.h"

/* Scores of a head, one per metric of the report; NULL: not known. */
const float *ph_report_scores(const ph_report *report, const ph_pick *pick);

/* Index into the report's roles. */
int ph_report_role(const ph_report *report, const ph_pick *pick);

/* Moves to the next head that is there; start with {0, 0, -1}. 0: that was the last. */
int ph_report_next(const ph_report *report, ph_pick *pick);

#endif
