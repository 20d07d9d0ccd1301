/*
 * layer_loops.h - the whole layer as plain loops in double: x W + b, heads, norm,
 * rotation, attention, concatenation, wo. They follow the definitions and know nothing of
 * the library. Also random problems for them, and their tensors for a file.
 */
#ifndef LAYER_LOOPS_H
#define LAYER_LOOPS_H

#include "run_trial.h"

enum { LAYER_MOST = 1024 };

/* Tensors of IN that hold numbers with a gradient, and those without. */
/* clang-format off */
enum { X, MEMORY, WQ, WK, WV, WO, BQ, BK, BV, BO, Q_NORM, K_NORM, BIAS, GATE, SINK,
       GRADIENTS, ALIBI = GRADIENTS, DOUT, DLSE, ITEMS };
/* clang-format on */

extern const char *const layer_names[ITEMS];

typedef struct layer_item {
    int there, rank, n[4];
    ph_type type;
    double v[LAYER_MOST];   /* exactly what stands in the file */
    float file[LAYER_MOST]; /* in its type */
} layer_item;

typedef struct layer_problem {
    int batch, heads, k_heads, v_heads, q_len, kv_len, qk_dim, v_dim;
    int model, source, out_dim;
    layer_item t[ITEMS];
    uint8_t visible[LAYER_MOST]; /* (1, heads, 1, kv_len) */
    int32_t q_lens[4], kv_lens[4];
    int has_visible, has_lens;
    int per_head; /* the matrices go into the file in that form */
    int rope;     /* 0 none, 1 half, 2 interleaved */
    double base;
    int norm;
    double scale, softcap; /* scale 0: default */
    int left, right;       /* -1: no limit */
    int offset;
    const float *kept; /* (batch, heads, q_len, kv_len): 0 where dropout took a weight */
    double grown;      /* factor of those that stayed */
} layer_problem;

typedef struct layer_result {
    double q[LAYER_MOST], k[LAYER_MOST], v[LAYER_MOST]; /* (batch, len, heads, dim) */
    double out[LAYER_MOST], lse[LAYER_MOST], weights[4 * LAYER_MOST], heads[LAYER_MOST],
        col_sum[LAYER_MOST];
    double entropy[LAYER_MOST];
} layer_result;

extern const uint64_t *layer_seed; /* of the random numbers; the test sets it */

void layer_solve(const layer_problem *p, layer_result *r);

/* What dout and dlse are the gradients of. */
double layer_loss(const layer_problem *p);

/* 2 sequences of 5 tokens of 6; heads of 4 for q and k, of 3 for v; out 7. kv_len 0:
   self-attention. `type`: of x, memory and dout. No biases, nothing special. */
layer_problem *layer_make(int heads, int k_heads, int v_heads, int kv_len, ph_type type);

/* A tensor of random numbers, in place of what was there; sizes below 0 end the list. */
void layer_put(layer_problem *p, int i, ph_type type, int n0, int n1, int n2, int n3);
void layer_put_biases(layer_problem *p, ph_type type);
void layer_put_norm(layer_problem *p, ph_type type);

int layer_size(const layer_item *t);            /* how many numbers */
int layer_heads(const layer_problem *p, int i); /* of the matrix i */
trial layer_load(const layer_problem *p);       /* good until the next call */

#endif
