/*
 * live_run.h - a live page between requests: the last run without and with edits, and
 * heads that are being measured.
 */
#ifndef PH_VIEW_LIVE_RUN_H
#define PH_VIEW_LIVE_RUN_H

#include "polyhead_heads.h"
#include "view/live_measuring.h"

enum { PH_LIVE_STACKS = 8 };

/* The model run on one text, picture or sound. */
typedef struct live_run {
    char *text, *target, *file; /* as requested; target and file may be NULL */
    int words;                  /* 1: the report is by words */
    ph_reading *reading;
    ph_scene *scene;
    ph_joined *joined; /* NULL: the report is by tokens */
    ph_survey *survey; /* NULL: scores and roles are the caller's */
    float *effect;     /* (heads of all stacks) or NULL */
    int complete;      /* 1: all of this is there */
    ph_stack stacks[PH_LIVE_STACKS];
    ph_report report;
} live_run;

/* Heads that are being measured. */
typedef struct live_measurement {
    ph_measuring *run;   /* NULL: none are */
    char *text, *target; /* that is measured, unless it is the data */
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

/* Whether the model reads a picture or sound in place of a text. */
int ph_live_reads_files(const ph_model *model);

/* A text to be released; NULL stays NULL. */
ph_status ph_live_copy(char **out, const char *text, const ph_io *io);

/* The report of a run whose reading is there, by words or by tokens; a second time it is
   made anew without running the model. */
ph_status ph_live_report(const live_session *s, live_run *run, int words,
                         const ph_io *io);
void ph_live_point_at_effects(live_run *run);

/* s->before becomes what is requested, without edits; it is run unless it was the last
   that was. */
ph_status ph_live_before(live_session *s, const ph_live_request *request,
                         const ph_io *io);
void ph_live_close(live_run *run, const ph_io *io);

/* Heads of all stacks. */
int ph_live_heads(const ph_report *report);

/* Adds to a run without edits how far the answers move without each head, where that
   takes no more than a moment. */
ph_status ph_live_effects(const live_session *s, live_run *run, const ph_io *io);

#endif
