/*
 * variant_oracle.h - every variant of the heads from its definition: dense, in double, no
 * tricks.
 *
 *     variant_forward     what `polyhead run` puts into OUT, from the tensors of IN
 *     variant_loss        sum(out dout) + sum(lse dlse) + balance * balance_loss,
 *                         and sum(gate dgate) where a router has gates and IN a dgate
 *     variant_gradient    one element of the gradient of that loss, by differences
 *     variant_derivative       its directional derivative
 *
 * Tensors travel in a bag under the names of the files. A bag that holds `q` is core
 * mode, one that holds `x` is layer mode. One file per variant holds its formula; they
 * plug into the steps of variant_parts.h. Nothing here knows how the engine works.
 *
 * Where the documents leave a choice, this is what is computed:
 *   - lse of the entmax family is tau of p = [(alpha-1) s - tau]_+ ^ (1/(alpha-1)); at
 *     alpha = 1 the plain lse. A row that sees nothing has lse -inf in every variant, and
 *     with a sink (and a gate that is not 0) the tau of the sink alone.
 *   - Where heads are mixed, lse belongs to the mixed scores; bias, alibi, soft-cap and
 *     masks act after the first mixing; a weight is 0 again after the second one where
 *     the key is hidden from that head. A head whose gate is 0 adds nothing to others.
 *   - `heads` is what enters wo: gated, normed, combined.
 *   - Statistics of the router leave out tokens beyond q_lens; their gate is 0.
 *   - collab: the default scale is 1/sqrt(model_dim/heads).
 *
 * Gradients. Differences are exact enough in double (see variant_grad.c), and for `moh`
 * they are its gradient: which heads are chosen is piecewise constant, and so is the
 * share f of the balance loss. `moh-norm` has weights of exactly 1, whose plain
 * derivative is 0; its gradient is by convention that of w = 1 + score - constant for
 * the chosen heads (straight through), so differences are taken of that. No gradient
 * has a formula here.
 */
#ifndef VARIANT_ORACLE_H
#define VARIANT_ORACLE_H

#include <stddef.h>
#include <stdint.h>

enum { BAG_MOST = 48 };

typedef struct bag_tensor {
    const char *name; /* not copied */
    int rank, dim[4];
    double *data; /* C-contiguous; owned by the bag */
} bag_tensor;

typedef struct bag {
    bag_tensor t[BAG_MOST];
    int count;
} bag;

/* A tensor of zeros in place of one of that name; sizes below 0 end the list. */
double *bag_put(bag *b, const char *name, int n0, int n1, int n2, int n3);
bag_tensor *bag_find(const bag *b, const char *name); /* NULL: there is none */
double *bag_data(const bag *b, const char *name);     /* NULL: there is none */
int bag_size(const bag_tensor *t);                    /* number of elements */
void bag_drop(bag *b, const char *name);
bag bag_copy(const bag *b);
void bag_free(bag *b);

typedef struct variant_options {
    const char *variant; /* "name", "name:key=value,...", "one+other"; NULL: mha */
    int heads, k_heads, v_heads; /* layer mode; 0: k_heads and v_heads like heads */
    int causal;
    int window, left, right; /* window 1: left and right are limits, -1: none */
    int offset;              /* position of query 0 */
    double scale;            /* 0: the variant's default */
    double softcap;          /* 0: none */
    int rope;                /* 0 none, 1 half, 2 interleaved */
    double rope_base;        /* 0: 10000 */
    int rope_dims;           /* leading elements of a head that are rotated; 0: all */
    double yarn_factor;      /* positions stretched beyond yarn_length; 0: not */
    double yarn_length;
    const float *rope_divisors; /* of the frequencies, or NULL; then a factor on ... */
    double rope_grown;          /* ... sines and cosines */
    double linear_factor;           /* frequencies are divided by it; 0: not */
    double llama3_factor;           /* slow frequencies are; 0: not */
    double llama3_length;           /* length of training */
    double llama3_low, llama3_high; /* rotations within it that count as slow, as fast */
    int qk_norm;
    double norm_eps; /* of qk_norm; 0: 1e-6 */
    double balance;  /* beta */
    double dropout;  /* of the weights, by the library's random numbers */
    uint64_t seed;

    /* Simulated rounding: every intermediate value is multiplied by 1 + noise * u, u in
       [-1, 1] drawn once per element. 0: exact. */
    double noise;
    uint64_t noise_seed;

    /* Simulated recomputation. A backward pass computes the weights once more, from lse,
       and rounds them otherwise than the forward pass did, whose outputs the steps behind
       attention go by. recompute_seed, if not 0, seeds the noise inside attention; what
       comes out is moved by a constant, attended (or NULL), back to what it is with the
       noise of noise_seed: values are those of the forward pass, derivatives of attention
       those of the recomputed one. */
    uint64_t recompute_seed;
    const double *attended;

    int brief;            /* 1: only what the loss is made of */
    const double *frozen; /* scores of the chosen heads that stand still; see above */
} variant_options;

/* Simulated rounding of `count` values; place: which array of the evaluation it is. */
void variant_jitter(double noise, uint64_t seed, int place, double *a, int count);

/* Dropout of a row, by the library's random numbers of this key. */
void variant_drop(double rate, uint64_t key, double *row, int count);

/* Fills an empty bag: out, lse, weights, col_sum, entropy, in layer mode heads, of
   routers gate, balance_loss and their scores; attended is what attention gives, before
   heads are combined or gated. Returns the largest score that was
   seen. */
double variant_forward(const variant_options *o, const bag *in, bag *out);

double variant_loss(const variant_options *o, const bag *in);

/* Does the variant exist without a layer around it? */
int variant_has_core(const char *spec);

/* Derivative of the loss when t moves along a direction (like t), or when one element of
   it moves. *kink becomes 1 where the two sides disagree: the loss has a corner or a jump
   right there and no derivative. `in` is changed and put back. */
double variant_derivative(const variant_options *o, bag *in, bag_tensor *t,
                          const double *direction, int *kink);
double variant_gradient(const variant_options *o, bag *in, bag_tensor *t, int index,
                        int *kink);

/* attended of these inputs and seeds; release it with free. */
double *variant_recompute(const variant_options *o, const bag *in);

/* The constant of straight-through gradients, of these inputs; NULL where the variant
   needs none. Put it into options.frozen; release it with free. */
double *variant_freeze(const variant_options *o, const bag *in);

/* The normaliser by itself: s becomes p, returns tau (lse at alpha = 1). sink: a further
   candidate without a place, or NULL. */
double variant_entmax(double *s, int n, double alpha, const double *sink);

#endif
