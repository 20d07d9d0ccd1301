/*
 * reading.h - the inside of a ph_reading; reading_words.c: what its stacks read,
 * reading_answers.c: what it says.
 */
#ifndef PH_MODEL_READING_H
#define PH_MODEL_READING_H

#include "io/map.h"
#include "model/pass.h"

/* An attention site and where its activations are. */
typedef struct reading_site {
    ph_site info;
    char name[32];
    const ph_act *act;   /* NULL: the links */
    int stack, sublayer; /* where in the pass */
    int plain;      /* 1: plain heads, whose vectors and weights can be taken apart */
    int first_head; /* index of its head 0 among the heads of all sites */
    float *frozen;  /* (heads, q_len, kv_len) weights of the first run, or NULL */
} reading_site;

struct ph_reading {
    const ph_model *model;
    ph_pass *pass;
    int words[2]; /* of each stack */
    ph_word *word[2];
    int32_t *tokens[2];
    int32_t *types; /* of the tokens of the first stack */
    float *pixels;   /* of a picture, in place of tokens; or NULL */
    float *features; /* of sound, likewise */
    int site_count;
    reading_site *sites;
    int head_count;
    uint8_t *ablation; /* (head_count) */
    float *gate;       /* (head_count) the output of each head is multiplied by it */
    int ungated;       /* 1: gates do not count in this run */
    int frozen;
    int passes; /* 1: made by ph_reading_prepare */
    int at;     /* the site that is held, while it is visited; else -1 */
    ph_status (*visit)(void *user, int site);
    void *visitor;
    float *scratch; /* (words, heads * dim) heads of a look that recomputes attention */
    void *memory;
};

/* What is read. */
typedef struct reading_source {
    const char *text;       /* or the path of a picture or of features of sound */
    const char *target;     /* the decoder's text, or NULL: what the model generates */
    const ph_map *file;     /* the bytes of the picture or features, where text is only a
                               name for sentences; or NULL */
    const ph_reading *same; /* rows as of this one, and nothing of the above; or NULL */
} reading_source;

/* Rows of both stacks. */
ph_status ph_reading_rows(ph_reading *r, const reading_source *source);

/* As ph_reading_create, but the model is not run yet: ph_reading_run does. */
ph_status ph_reading_open(ph_reading **out, const ph_model *model,
                          const reading_source *source);

/* Another reading of the same rows, run with all heads on. */
ph_status ph_reading_again(ph_reading **out, const ph_reading *reading);

/* Whether ph_reading_rect may be called, by several threads at once. */
int ph_reading_parallel(const ph_reading *r);

/* The rectangle of a look at a site, by the calling thread alone; nothing is checked. */
ph_status ph_reading_rect(const ph_reading *r, int site, const ph_look_at *at);

/* Refuses answers and other runs of a reading that passes. */
ph_status ph_reading_whole(const ph_reading *r);

/* Some rows of ph_reading_next. */
ph_status ph_reading_next_rows(const ph_reading *r, int first, int rows, float *log_p);

#endif
