/*
 * live_run.h - a live page between requests: the last run without and with edits, and
 * heads that are being measured.
 */
#ifndef PH_VIEW_LIVE_RUN_H
#define PH_VIEW_LIVE_RUN_H

#include "polyhead_heads.h"
#include "view/live_measuring.h"

enum { PH_LIVE_STACKS = 8 };

/* The model run on one text. */
typedef struct live_run {
    char *text;
    ph_reading *reading;
    ph_scene *scene;
    ph_survey *survey; /* NULL: scores and roles are the caller's */
    float *effect;     /* (heads of all stacks) or NULL */
    int complete;      /* 1: all of this is there */
    ph_stack stacks[PH_LIVE_STACKS];
    ph_report report;
} live_run;

/* Heads that are being measured. */
typedef struct live_measurement {
    ph_measuring *run; /* NULL: none are */
    char *text;        /* that is measured, unless it is the data */
    const char *one_text, *one_target;
    ph_texts texts;
    const char *method;
    int data;
    int count;            /* heads of all stacks */
    int *entry;           /* (count) of ph_model_heads; -1: is not measured */
    float *worth, *error; /* (count) */
} live_measurement;

typedef struct live_session {
    const ph_live_model *live;
    const ph_io *io;
    live_run before, after; /* without edits, with them */
    const char *methods[PH_MEASURING_METHODS], *data_methods[PH_MEASURING_METHODS];
    live_measurement measuring;
} live_session;

/* Heads of all stacks. */
int ph_live_heads(const ph_report *report);

/* Adds to a run without edits how far the answers move without each head, where that
   takes no more than a moment. */
ph_status ph_live_effects(const live_session *s, live_run *run, const ph_io *io);

#endif
