/*
 * reading.h - the inside of a ph_reading; reading_words.c: what its stacks read.
 */
#ifndef PH_MODEL_READING_H
#define PH_MODEL_READING_H

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
    float *pixels;   /* of a picture, in place of tokens; or NULL */
    float *features; /* of sound, likewise */
    int site_count;
    reading_site *sites;
    int head_count;
    uint8_t *ablation; /* (head_count) */
    float *gate;       /* (head_count) the output of each head is multiplied by it */
    int ungated;       /* 1: gates do not count in this run */
    int frozen;
    float *scratch; /* (words, heads * dim) heads of a look that recomputes attention */
    void *memory;
};

/* Rows of both stacks, from a text or the path of a picture or of features of sound, and
   the decoder's text; target NULL: what the model generates. */
ph_status ph_reading_rows(ph_reading *r, const char *text, const char *target);

#endif
