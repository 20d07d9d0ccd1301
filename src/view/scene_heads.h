/*
 * scene_heads.h - what heads of a stack write: norms of values, shares of the output.
 */
#ifndef PH_VIEW_SCENE_HEADS_H
#define PH_VIEW_SCENE_HEADS_H

#include "polyhead_model.h"
#include "polyhead_view.h"

typedef struct ph_scene_stack {
    const ph_model *model;
    const ph_reading *reading;
    const int *sites; /* (layers) -1: no head is left */
    const ph_stack *stack;
    int keys;
    const ph_io *io;
} ph_scene_stack;

/* norms (layers, heads, keys): |v[j] W_O| for every key, W_O the head's rows of it. */
ph_status ph_scene_norms(const ph_scene_stack *at, float *norms);

/* texts (layers, heads, PH_CIRCUIT_TEXT): "it > cross; the > dog\nit: animal, dog", the
   pairs of words of the text that a head prefers and what it writes; "" where it has no
   plain circuits. ids (count): of the text. Where it would take long: PH_UNSUPPORTED. */
enum { PH_CIRCUIT_TEXT = 320 };
ph_status ph_scene_circuits(const ph_scene_stack *at, const int32_t *ids, int count,
                            char *texts);

/* share (layers, heads), of ph_head_shares. */
ph_status ph_scene_contributions(const ph_scene_stack *at, float *share);

/* Of p (count, count), the word that every word belongs to, in links (count), and behind
   these its relation. tokens (count): scratch. */
ph_status ph_scene_links(const ph_model *model, const int32_t *ids, int count,
                         const float *p, const char **tokens, int *links);

#endif
