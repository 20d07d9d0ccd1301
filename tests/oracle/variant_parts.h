/*
 * variant_parts.h - the steps of one evaluation of variant_oracle.h, and the hooks of
 * variants.
 *
 *     project    q, k, v from x and memory                     mla, collab
 *                norm over each head
 *     route      gates from x or q                             moh, moh-norm
 *                rotation
 *     arrange    q, k, v as attention wants them               collab, mohsa
 *                cell = scale q.k
 *     pre        cell, all heads of (i, j) at once             talking, dcmha
 *                bias, alibi, soft-cap, masks
 *     normalise  one row of cells becomes weights              entmax
 *     post       cell, all heads at once                       talking, dcmha
 *                out = gate cell v
 *     combine    out of all heads                              diff, merged
 *     gate       out of each head                              gated
 *                concatenation, wo
 *
 * In core mode q, k and v are given: it starts at cell and ends after out.
 */
#ifndef VARIANT_PARTS_H
#define VARIANT_PARTS_H

#include "variant_oracle.h"

enum { WORK_MOST = 64 };

typedef struct work {
    const variant_options *o;
    const bag *in;
    bag *result;
    int layer; /* 1: layer mode */

    int batch, heads, k_heads, v_heads, q_len, kv_len, qk_dim, v_dim;
    int model, source;       /* columns of x, and of what keys are made from */
    const double *x, *other; /* (batch, q_len, model), (batch, kv_len, source) */
    double scale;
    const bag_tensor *bias, *visible, *gate;       /* or NULL */
    const double *q_lens, *kv_lens, *alibi, *sink; /* or NULL */

    int q_heads;         /* heads in q: `heads`, until arrange 1 for collab */
    int rotated;         /* 1: the variant has seen to positions itself */
    double *q, *k, *v;   /* (batch, heads, len, dim) */
    double *content;     /* (batch, heads, kv_len): added to q.k; or NULL */
    double *route;       /* (batch, heads, q_len): gates of the router; or NULL */
    double *cell;        /* (batch, heads, q_len, kv_len): scores, then weights */
    unsigned char *seen; /* like cell: 1 where the key is visible */
    double *lse;         /* (batch, heads, q_len) */
    double *out;         /* (batch, out_heads, q_len, v_dim) */
    int out_heads;
    double peak; /* largest score */

    void *taken[WORK_MOST]; /* released at the end */
    int takes, places;      /* places: how many arrays noise has touched */
    int recomputes;         /* 1: inside attention, with the noise of a recomputation */
} work;

typedef struct variant {
    const char *name;
    int core; /* 1: exists in core mode */
    void (*project)(work *w);
    void (*route)(work *w);
    void (*arrange)(work *w);
    void (*pre)(work *w);
    double (*normalise)(work *w, int h, double *s, int n, const double *sink);
    void (*post)(work *w);
    void (*combine)(work *w);
    void (*gate)(work *w);
} variant;

extern const variant variant_mha, variant_entmaxed, variant_sparsemax, variant_talking,
    variant_dcmha, variant_moh, variant_moh_norm, variant_collab, variant_mohsa,
    variant_diff, variant_mla, variant_gated, variant_merged, variant_diff2;

/* ---- helpers, variant_steps.c ------------------------------------------------------ */

double *take(work *w, int count); /* zeros, released with the work */
double *given(const work *w, const char *name);

/* Noise of the options on an array. */
void jitter(work *w, double *a, int count);

/* key=value of the variant string; a key alone has the value 1. */
double option_number(const work *w, const char *key, double otherwise);
int option_is(const work *w, const char *key, const char *value);

/* (batch, len, in) times a matrix (in, heads*dim) or (heads, in, dim) plus b (or NULL),
   as (batch, heads, len, dim). */
double *apply(work *w, const double *x, int len, int in, const char *matrix,
              const char *b, int heads, int dim);
int columns(const work *w, const char *matrix); /* heads * dim of either form */

/* x / rms(x) * gain over rows of dim elements; gain NULL: 1. */
void rms_rows(double *x, int rows, int dim, const double *gain, double eps);

/* Rotates the first `dims` of each row's `stride` elements; row r has position start + r
   % len. Pairs, base and stretching are those of the options. */
void rotate(const work *w, double *y, int rows, int len, int stride, int dims, int start,
            int interleaved);

/* ---- attention, variant_core.c ----------------------------------------------------- */

int sees(const work *w, int b, int h, int i, int j); /* key j is visible to row i */

/* The lse or tau of a row as its weights have it: where they are recomputed, off by an
   ulp of the float that the forward pass left. */
double recomputed(work *w, double statistic);
/* Scores become weights; returns lse. */
double softmax(work *w, double *s, int n, const double *sink);
void attend(work *w, const variant *v);              /* from cell to combine */

#endif
