/*
 * polyhead_scene.h - a model that has read a text, as a report to look at
 *
 *     ph_reading_create   run the model on the text (polyhead_model.h)     -> ph_reading
 *     ph_scene_create     its words, attention sites and predictions       -> ph_scene
 *     ph_scene_report     as a report: weights and vectors come from the reading
 *     ph_joined_create    the same with tokens joined to words             -> ph_joined
 *     ph_serve_model      the same live: texts and heads are changed on a page
 *
 * Attention sites of one kind are a stack: "encoder", "decoder", "cross", and "links",
 * the heads whose weights are an encoder's answer. When heads of the reading are changed
 * (ph_reading_run), the weights of the report change with it; ph_scene_refresh brings the
 * predictions up to date.
 */
#ifndef POLYHEAD_SCENE_H
#define POLYHEAD_SCENE_H

#include "polyhead_model.h"
#include "polyhead_view.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ph_scene ph_scene;

/* title, text and target (of an encoder-decoder, or NULL) as the reading got them; model
   and reading must outlive the scene. title NULL: a scene that is measured and not shown,
   without what heads write (value_norm, contribution, circuit), which takes long. A
   reading of ph_reading_prepare needs that: its report runs the model when its layers are
   visited (ph_survey_text does), and has no predictions. */
PH_API ph_status ph_scene_create(ph_scene **out, const ph_model *model,
                                 const ph_reading *reading, const char *title,
                                 const char *text, const char *target, const ph_io *io);
PH_API void ph_scene_free(ph_scene *scene); /* accepts NULL */

PH_API ph_report ph_scene_report(const ph_scene *scene);

/* Reads the predictions again: which word each word belongs to, or the next token. They
   appear in the reports made from then on. */
PH_API ph_status ph_scene_refresh(ph_scene *scene, const ph_io *io);

/* The attention site of a layer of a stack, as in ph_reading_site; -1: there is none. */
PH_API int ph_scene_site(const ph_scene *scene, int stack, int layer);

/* Ids of the tokens of an axis, for ph_survey_facts. */
PH_API const int32_t *ph_scene_ids(const ph_scene *scene, int axis);

/* ---- tokens joined to words -------------------------------------------------------- */

typedef struct ph_joined ph_joined;

/* The scene's report by words: a word's column is the sum of the columns of its tokens,
   its row the mean of their rows. Tokens that touch in the text, with letters, digits or
   marks on both sides, are one word; Han characters, kana, Hangul syllables, punctuation
   and tokens like [CLS] stay alone. There are no vectors and no value_norm. What reads
   whole words, pictures or sound is refused. The scene must outlive it, and be as it
   was. */
PH_API ph_status ph_joined_create(ph_joined **out, const ph_scene *scene,
                                  const ph_io *io);
PH_API ph_report ph_joined_report(const ph_joined *joined);
PH_API void ph_joined_free(ph_joined *joined); /* accepts NULL */

/* How far the predictions of the same model on the same text have moved: the mean over
   words of the Kullback-Leibler divergence of `after` from `before`, in nats; for
   encoders that give a vector and nothing else, its cosine. Reports of `after` made from
   then on include it. Texts of different length are refused. */
PH_API ph_status ph_scene_compare(const ph_scene *before, ph_scene *after,
                                  const ph_io *io);

/* ---- plans: heads that are switched off or weakened -------------------------------- */

/* One entry for every head of every attention site of a reading, in order. */
typedef struct ph_prune {
    uint8_t *ablation; /* (count) of ph_ablation */
    float *gates;      /* (count) 0 to 1 */
    int count;
} ph_prune;

PH_API ph_status ph_prune_create(ph_prune *plan, const ph_reading *reading,
                                 const ph_io *io); /* all heads on */
PH_API void ph_prune_free(ph_prune *plan, const ph_io *io);

/* The entry of a head, by the index it had before any was removed from the model; -1:
   there is no such head. */
PH_API int ph_prune_entry(const ph_reading *reading, int site, int head);

/* A JSON file, "polyhead.plan/1": for each head that is changed the name of its attention
   site, its index from 0 and the ablation or gate. Reading creates the plan and refuses
   heads that the model does not have; writing never replaces a file. */
PH_API ph_status ph_prune_read(ph_prune *plan, const char *path,
                               const ph_reading *reading, const ph_io *io);
PH_API ph_status ph_prune_write(const ph_prune *plan, const char *path,
                                const ph_reading *reading, const ph_io *io);

/* Runs the text again as planned; frozen as in ph_reading_run. */
PH_API ph_status ph_prune_run(const ph_prune *plan, ph_reading *reading, int frozen);

/* ---- live: the page with a model behind it ----------------------------------------- */

typedef struct ph_live_model {
    ph_model *model;     /* its parameters become its own (ph_model_own) where heads are
                            measured by a loss */
    ph_ctx *ctx;         /* of the model */
    const char *title;   /* of the page: name of the model */
    const char *text;    /* initial text, or the path of a picture or of features; what
                            the page sends is never taken for a path */
    const char *target;  /* initial text of the decoder of an encoder-decoder, or NULL */
    const char *plan;    /* file of a plan whose edits the page begins with, or NULL */
    const char *save_as; /* the page saves plans as SAVE_AS-1.json, SAVE_AS-2.json, ...;
                            NULL: it cannot */
    const ph_report *measured; /* scores and roles that hold for every text; NULL: they
                                  are measured on each text that is run */
    const ph_texts *data;      /* to measure heads on, with targets or classes as
                             ph_eval_create takes them; NULL: the text shown only */
    const char *command;       /* as of ph_live_measuring, or NULL */
    int words; /* 1: words are shown first, not tokens (ph_joined_create) */
    uint64_t reserved[1];
} ph_live_model;

/* Runs the texts, pictures or features that the page requests, heads ablated or gated and
   words masked as it says, until serve->stopped(). */
PH_API ph_status ph_serve_model(const ph_live_model *live, const ph_serve *serve,
                                const ph_io *io);

#ifdef __cplusplus
}
#endif
#endif
