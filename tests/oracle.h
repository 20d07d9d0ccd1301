/*
 * oracle.h - attention from its definition: dense, in double, and no tricks.
 *
 *     s_ij  = scale q_i.k_j + bias_ij - alibi |pos_i - j|,  pos_i = i + offset
 *     t_ij  = softcap tanh(s_ij / softcap)
 *     p_ij  = exp(t_ij) / (sum over seen j' of exp(t_ij') + exp(sink))
 *     w_ij  = p_ij keep_ij / (1 - dropout)
 *     out_i = gate_i sum_j w_ij v_j          lse_i = ln of the denominator of p
 *
 * The way through: dense_load turns a call of the library (types, strides, broadcasts,
 * defaults) into plain packed arrays of double; oracle_forward and oracle_backward fill
 * an answer. yard_forward and yard_backward are the same loops in float, sums in index
 * order: the yardstick that says how much error a plain implementation makes on the same
 * numbers. Nothing here knows how the engine works.
 *
 * Every result also comes with its magnitude: the same sums with each term replaced by
 * its absolute value. Rounding errors are measured in units of that magnitude, which is
 * what cancellation leaves intact.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <stddef.h>
#include <stdint.h>

#include "polyhead.h"

/* One problem in packed arrays. NULL: there is no such tensor. */
typedef struct dense {
    int batch, q_heads, k_heads, v_heads, q_len, kv_len, qk_dim, v_dim;
    double scale, softcap, dropout;
    ph_mask mask;
    int band_left, band_right;

    double *q; /* (batch, q_heads, q_len, qk_dim)                       */
    double *k; /* (batch, k_heads, kv_len, qk_dim)                      */
    double *v; /* (batch, v_heads, kv_len, v_dim)                       */
    double *bias;
    ph_broadcast bias_shape; /* leading axes of bias; 1 broadcasts      */
    uint8_t *visible;
    ph_broadcast visible_shape;
    double *gate;      /* (q_heads), or (batch, q_heads, q_len)         */
    int gate_rows;     /* 1: the second shape                           */
    double *sink;      /* (q_heads)                                     */
    double *alibi;     /* (q_heads)                                     */
    int *q_lens;       /* (batch) always there                          */
    int *kv_lens;      /* (batch) always there                          */
    int *offset;       /* (batch) position of query 0                   */
    uint8_t *keep;     /* (batch, q_heads, q_len, kv_len) 0: dropped    */
    double *dout;      /* (batch, q_heads, q_len, v_dim)                */
    double *dlse;      /* (batch, q_heads, q_len)                       */
    double *given_out; /* like dout: what yard_backward reads, or NULL  */
    double *given_lse; /* like dlse                                     */
} dense;

/* The tensors a computation can give, or their magnitudes. */
typedef struct answer {
    double *out, *lse;                   /* as in ph_args                            */
    double *weights, *col_sum, *entropy; /* as in ph_look_at                         */
    double *undropped;                   /* p: the weights before dropout            */
    double *dq, *dk, *dv, *dbias, *dgate, *dsink;
    double peak;  /* of a magnitude: the largest score or lse, without its sign */
    double chain; /* of a magnitude: how far floats let a score stray, see rounding_of */
} answer;

/* Reads a call into plain arrays; grads may be NULL. Free it with dense_free. */
void dense_load(dense *to, const ph_attn *attn, const ph_args *args,
                const ph_grads *grads);
void dense_free(dense *p);

/* Number of elements. */
size_t dense_rows(const dense *p);       /* batch q_heads q_len */
size_t dense_bias_count(const dense *p); /* 0 without bias      */
size_t dense_gate_count(const dense *p); /* 0 without gate      */

/* Row i is not computed: beyond q_lens, or its gate is 0. */
int dense_dead(const dense *p, int b, int h, int i);
/* Key j takes part in the softmax of row i; nothing is seen from a dead row. */
int dense_sees(const dense *p, int b, int h, int i, int j);

/* Zeroed arrays for every tensor of p; backward 0: none of the gradients. */
void answer_init(answer *a, const dense *p, int backward);
void answer_free(answer *a);

/* Fill value, and magnitude unless it is NULL. */
void oracle_forward(const dense *p, answer *value, answer *magnitude);
void oracle_backward(const dense *p, answer *value, answer *magnitude);

/* The same in float. yard_backward takes the softmax from given_lse and dout.out from
   given_out, because that is all that the interface hands to a backward pass. */
void yard_forward(const dense *p, answer *value);
void yard_backward(const dense *p, answer *value);

/* One element of a tensor of this type, exactly, or rounded to nearest even. */
double oracle_decode(ph_dtype dtype, const void *data, int64_t index);
void oracle_encode(ph_dtype dtype, void *data, int64_t index, double value);
size_t oracle_size(ph_dtype dtype); /* bytes of one element */

/* Distance between neighbours of this type at |x|; never below the subnormal step. */
double oracle_ulp(ph_dtype dtype, double x);

#endif
