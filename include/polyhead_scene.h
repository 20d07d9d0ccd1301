/*
 * polyhead_scene.h - a model that has read a text, as a report to look at
 *
 *     ph_reading_create   run the model on the text (polyhead_model.h)     -> ph_reading
 *     ph_scene_create     its words, places and answers                    -> ph_scene
 *     ph_scene_report     as a report: weights and vectors come from the reading
 *
 * Places of one kind are a stack: "encoder", "decoder", "cross", and "links", the heads
 * whose weights are an encoder's answer. When heads of the reading are changed
 * (ph_reading_run), the weights of the report change with it; ph_scene_refresh brings the
 * answers up to date.
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
   and reading must outlive the scene. */
PH_API ph_status ph_scene_create(ph_scene **out, const ph_model *model,
                                 const ph_reading *reading, const char *title,
                                 const char *text, const char *target, const ph_io *io);
PH_API void ph_scene_free(ph_scene *scene); /* accepts NULL */

PH_API ph_report ph_scene_report(const ph_scene *scene);

/* Asks the reading for its answers again: which word each word belongs to, or the next
   token. They appear in the reports made from then on. */
PH_API ph_status ph_scene_refresh(ph_scene *scene, const ph_io *io);

/* The place of the reading that a layer of a stack is, as in ph_reading_site; -1: there
   is none. */
PH_API int ph_scene_site(const ph_scene *scene, int stack, int layer);

/* Ids of the tokens of an axis, for ph_survey_facts. */
PH_API const int32_t *ph_scene_ids(const ph_scene *scene, int axis);

#ifdef __cplusplus
}
#endif
#endif
