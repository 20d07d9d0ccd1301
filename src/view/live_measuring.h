/*
 * live_measuring.h - what the heads of a model are worth, measured in steps, so that a
 * server can answer between them.
 *
 * Models that have a loss on a text are measured by it (polyhead_prune.h); by "answers"
 * every model can be: how far they move when the head is off, as Kullback-Leibler
 * divergence in nats, or of encoders that give vectors as 1 - cosine.
 */
#ifndef PH_VIEW_LIVE_MEASURING_H
#define PH_VIEW_LIVE_MEASURING_H

#include "polyhead_prune.h"
#include "polyhead_scene.h"

enum { PH_MEASURING_METHODS = PH_WORTHS + 2 };

/* Names of methods, NULL after the last: those of the model's loss, then "answers".
   pairs: whether texts come with their targets or classes. */
void ph_measuring_methods(const ph_model *model, int pairs,
                          const char *names[PH_MEASURING_METHODS]);

typedef struct ph_measuring_job {
    ph_model *model;
    const char *method;     /* of ph_measuring_methods, or PH_LIVE_COMPARE */
    const ph_texts *texts;  /* to outlive it; pairs: targets or classes */
    const ph_reading *same; /* of the only text, so that it is not split, decoded or
                               generated again; or NULL */
    int by_answers;         /* PH_LIVE_COMPARE: the model has no loss on them */
    const uint8_t *plan;    /* (ph_model_heads) of ph_ablation, heads that are changed */
} ph_measuring_job;

typedef struct ph_measuring ph_measuring;

/* Where the model fails, the sentence is in its ctx. */
ph_status ph_measuring_create(ph_measuring **out, const ph_measuring_job *job,
                              const ph_io *io);
void ph_measuring_free(ph_measuring *m); /* accepts NULL */

/* One pass over one text. Texts that are too long or empty are left out. */
ph_status ph_measuring_step(ph_measuring *m, int *done, int *of, const ph_io *io);

/* When all are done. Of a head (ph_model_heads): its worth with its standard error; NaN:
   it was off. */
ph_estimate ph_measuring_worth(const ph_measuring *m, int head);
int ph_measuring_texts(const ph_measuring *m);

/* PH_LIVE_COMPARE: mean loss and accuracy without [0] and with the plan, divergence. */
void ph_measuring_compared(const ph_measuring *m, ph_live_measured *out);

#endif
