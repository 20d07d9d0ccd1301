/*
 * layer_oracle.h - the multi-head layer from its formulas: dense, in double.
 *
 *     q = x wq + bq    k = m wk + bk    v = m wv + bv      m = memory, or x itself
 *     norm      y_d = gain_d x_d / sqrt(mean of x^2 over the head + eps)
 *     rotation  (a, b) -> (a cos t - b sin t, b cos t + a sin t), t = pos base^(-2p/n)
 *     out = concat over heads( attention ) wo + bo, rows beyond q_lens 0
 *
 * Attention itself is the dense oracle of oracle.h. The struct holds one problem twice:
 * as the library sees it (types, forms of the matrices, NaN in rows that must not be
 * read) and as plain doubles, where every matrix is whole and such rows are 0.
 *
 *     layer_case c;
 *     layer_draw(&c, seed, index);        a random problem
 *     ph_layer_forward(layer, &c.weights, &c.args); ...
 *     layer_oracle_forward(&c); layer_oracle_backward(&c);
 *     layer_compare(&c, ...)              NULL, or what is wrong
 *     layer_case_free(&c);
 */
#ifndef LAYER_ORACLE_H
#define LAYER_ORACLE_H

#include "polyhead_layer.h"

/* Tensors; the first LT_GRADS of them have gradients. */
enum {
    LT_X,
    LT_MEMORY,
    LT_WQ,
    LT_WK,
    LT_WV,
    LT_WO,
    LT_BQ,
    LT_BK,
    LT_BV,
    LT_BO,
    LT_Q_NORM,
    LT_K_NORM,
    LT_BIAS,
    LT_GATE,
    LT_SINK,
    LT_GRADS,
    LT_ALIBI = LT_GRADS,
    LT_DOUT,
    LT_DLSE,
    LT_OUT,
    LT_HEADS,
    LT_LSE,
    LT_WEIGHTS, /* the attention weights, where dropout must be known */
    LT_COUNT
};

extern const char *const layer_names[LT_COUNT];

typedef struct layer_tensor {
    size_t count;
    ph_dtype type;
    void *data;    /* as the library sees it; NULL: no such tensor */
    double *value; /* (count) exact, matrices whole */
} layer_tensor;

typedef struct layer_case {
    ph_layer_desc desc; /* forms and options; head counts and dims are all said */
    layer_tensor t[LT_COUNT];
    layer_tensor g[LT_GRADS]; /* gradients */
    uint8_t *visible;
    int32_t *q_lens, *kv_lens, *past; /* (batch) or NULL */
    void *saved;
    size_t saved_bytes;
    ph_look_at look;
    ph_layer_weights weights;
    ph_layer_args args;
    ph_layer_grads grads;
} layer_case;

/* A random problem, the same for the same seed and index. */
void layer_draw(layer_case *c, uint64_t seed, int index);

/* Memory and values for c->desc and the presence that `have` says (1 << LT_...); lens:
   1 q_lens, 2 kv_lens, 4 past. What the library writes holds a pattern. */
void layer_build(layer_case *c, uint64_t seed, unsigned have, int lens);
void layer_case_free(layer_case *c);

/* Puts the pattern back over everything the library writes. */
void layer_wipe(layer_case *c);
/* Whether it still holds it everywhere. */
int layer_untouched(const layer_case *c);

/* Changes the form of a projection (LT_WQ, LT_WK, LT_WV), with the same elements. */
void layer_set_form(layer_case *c, int id, ph_form form);
/* Element of a gradient or tensor in the library's memory, in the order of `value`. */
double layer_get(const layer_case *c, const layer_tensor *t, int id, size_t index);

/* Fill value of LT_OUT, LT_HEADS, LT_LSE, and of every gradient. */
void layer_oracle_forward(layer_case *c);
void layer_oracle_backward(layer_case *c);
/* sum of out * dout and lse * dlse: what the gradients are gradients of */
double layer_oracle_loss(layer_case *c);

/* Compares what the library wrote with the oracle; NULL if it is close enough, else one
   sentence. */
const char *layer_compare(const layer_case *c, int backward);
/* One line that says what the problem is. */
const char *layer_text(const layer_case *c);

#endif
