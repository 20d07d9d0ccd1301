/*
 * scene_inside.h - the inside of a ph_scene.
 *
 *     scene.c          words, stacks, the report
 *     scene_answers.c  what the model answers, how far answers move
 *     scene_heads.c    what heads write
 *     joined.c         the same report by words
 */
#ifndef PH_VIEW_SCENE_INSIDE_H
#define PH_VIEW_SCENE_INSIDE_H

#include "io/io.h"
#include "model/reading.h"
#include "polyhead_scene.h"

enum { PH_SCENE_KINDS = 4, PH_SCENE_OUTCOMES = 64, PH_OUTCOME_TEXT = 80 };

/* Words of one text. */
typedef struct ph_scene_words {
    char *bytes;
    const char **list;
    int32_t *ids;
    uint8_t *unknown; /* 1: not in the vocabulary */
    int count;
} ph_scene_words;

struct ph_scene {
    ph_io hooks;
    const ph_model *model;
    const ph_reading *reading;
    char *title, *text, *target; /* target: of an encoder-decoder, or NULL */
    int shown;               /* 0: only measured */
    uint8_t *picture;        /* or NULL */
    ph_scene_words words[2]; /* of the encoder or the only stack, of the decoder */
    ph_axis axes[2];
    int axis_count;
    ph_stack stacks[PH_SCENE_KINDS];
    int *sites[PH_SCENE_KINDS];      /* attention site of each layer; -1: it has no head
                                        any more */
    uint8_t *absent[PH_SCENE_KINDS]; /* (layers, heads), of a model that lost heads; or
                                        NULL */
    float *norms[PH_SCENE_KINDS], *contributions[PH_SCENE_KINDS];
    char *circuit_text[PH_SCENE_KINDS];
    const char **circuits[PH_SCENE_KINDS];
    float *share; /* (words) of the pointer: all 1 */
    int stack_count;
    char outcome_text[PH_SCENE_OUTCOMES][PH_OUTCOME_TEXT];
    ph_outcome outcomes[PH_SCENE_OUTCOMES];
    int outcome_count;
    float loss, divergence, cosine; /* NaN: not known */
};

/* What a model answers; an encoder of vectors has nothing that can be listed. */
typedef enum ph_scene_answers {
    ANSWER_NONE,
    ANSWER_LINKS,
    ANSWER_NEXT,
    ANSWER_MASKED,
    ANSWER_CLASSES
} ph_scene_answers;

ph_scene_answers ph_scene_answer(const ph_scene *s);

/* Cleared memory of count items, by the hooks of the scene; NULL: there is none. */
void *ph_scene_take(ph_scene *s, size_t count, size_t item);

#endif
