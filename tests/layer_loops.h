/*
 * layer_loops.h - the whole layer as plain loops in double: x W + b, heads, norm,
 * rotation, attention, concatenation, wo. They follow the definitions and know nothing of
 * the library. Also random problems for them, and their tensors for a file.
 */
#ifndef LAYER_LOOPS_H
#define LAYER_LOOPS_H

#include "run_trial.h"

enum { LOOPS_MOST = 1024 };

/* Tensors of IN that have a gradient, and those without. */
/* clang-format off */
enum { X, MEMORY, VALUE_MEMORY, WQ, WK, WV, WO, BQ, BK, BV, BO, Q_NORM, K_NORM, BIAS,
       GATE, SINK, GRADIENTS, ALIBI = GRADIENTS, DOUT, DLSE, ITEMS };
/* clang-format on */

extern const char *const loops_names[ITEMS];

typedef struct loops_item {
    int there, rank, n[4];
    ph_dtype type;
    double v[LOOPS_MOST];   /* exactly what stands in the file */
    float file[LOOPS_MOST]; /* in its type */
} loops_item;

typedef struct loops_problem {
    int batch, heads, k_heads, v_heads, q_len, kv_len, qk_dim, v_dim;
    int model, source, out_dim;
    loops_item t[ITEMS];
    uint8_t visible[LOOPS_MOST]; /* (1, heads, 1, kv_len) */
    int32_t q_lens[4], kv_lens[4];
    int has_visible, has_lens;
    int per_head;   /* the matrices go into the file in that form */
    int transposed; /* or as (columns, in_dim) */
    int rope;       /* 0 none, 1 half, 2 interleaved */
    double base;
    int norm;
    double scale, softcap; /* scale 0: default */
    int left, right;       /* -1: no limit */
    int offset;
    const float *kept; /* (batch, heads, q_len, kv_len): 0 where dropout took a weight */
    double grown;      /* factor of those that stayed */
} loops_problem;

typedef struct loops_result {
    double q[LOOPS_MOST], k[LOOPS_MOST], v[LOOPS_MOST]; /* (batch, len, heads, dim) */
    double out[LOOPS_MOST], lse[LOOPS_MOST], weights[4 * LOOPS_MOST], heads[LOOPS_MOST],
        col_sum[LOOPS_MOST];
    double entropy[LOOPS_MOST];
} loops_result;

extern const uint64_t *loops_seed; /* of the random numbers; the test sets it */

void loops_solve(const loops_problem *p, loops_result *r);

/* What dout and dlse are the gradients of. */
double loops_loss(const loops_problem *p);

/* 2 sequences of 5 tokens of 6; heads of 4 for q and k, of 3 for v; out 7. kv_len 0:
   self-attention. `type`: of x, memory and dout. No biases, nothing special. */
loops_problem *loops_make(int heads, int k_heads, int v_heads, int kv_len, ph_dtype type);

/* A tensor of random numbers, in place of what was there; sizes below 0 end the list. */
void loops_put(loops_problem *p, int i, ph_dtype type, int n0, int n1, int n2, int n3);
void loops_put_biases(loops_problem *p, ph_dtype type);
/* Values come from tokens of 4, beside the memory. */
void loops_put_value_memory(loops_problem *p, ph_dtype type);
void loops_put_norm(loops_problem *p, ph_dtype type);

int loops_size(const loops_item *t);            /* in elements */
int loops_heads(const loops_problem *p, int i); /* of the matrix i */
trial loops_load(const loops_problem *p);       /* good until the next call */

#endif
