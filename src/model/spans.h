/*
 * spans.h - loops over contiguous floats: norms, activations, losses, the optimiser.
 *
 * They are plain C (spans_loops.h) that compilers vectorise, compiled once per
 * instruction set. No fused multiply-adds and sums in 16 lanes
 * (lane = column mod 16, lanes added by halves), so every table gives the same bits.
 */
#ifndef PH_MODEL_SPANS_H
#define PH_MODEL_SPANS_H

#include "base/base.h"

typedef enum ph_span_activation {
    PH_SPAN_GELU = 0,
    PH_SPAN_RELU,
    PH_SPAN_SWIGLU,
    PH_SPAN_GELU_ERF,
    PH_SPAN_GEGLU,
    PH_SPAN_SILU,
    PH_SPAN_GEGLU_ERF
} ph_span_activation;

/* One update of the optimiser. */
typedef struct ph_adam {
    float rate;         /* learning rate of this step */
    float beta1, beta2; /* of the running means */
    float fix1, fix2;   /* bias correction, 1 / (1 - beta^t) */
    float eps;
    float decay; /* weight decay, already times the rate */
    float clip;  /* factor for the gradient */
} ph_adam;

typedef struct ph_spans {
    /* out = gain * (x - mean) * rstd + bias; rms 1: mean is 0; bias may be NULL. Leaves
       mean and rstd in stats[2]. */
    void (*norm)(int n, const float *x, const float *gain, const float *bias, float eps,
                 int rms, float *out, float *stats);

    /* dx from dout; dgain += dout * xhat, dbias += dout (dbias may be NULL). */
    void (*norm_backward)(int n, const float *dout, const float *x, const float *stats,
                          const float *gain, int rms, float *dx, float *dgain,
                          float *dbias);

    /* g[c] = f(h[c]), with a gate f(h[c]) * w[c] (swiglu, geglu, geglu_erf). g is
       apart from both. */
    void (*activation)(ph_span_activation kind, int n, const float *h, const float *w,
                       float *g);

    /* dh, and with a gate dw, from dg; both are apart from the others. */
    void (*activation_backward)(ph_span_activation kind, int n, const float *h,
                                const float *w, const float *dg, float *dh, float *dw);

    /* s = r + y * factor; factor may be NULL: 1. */
    void (*add_residual)(int n, const float *r, const float *y, const float *factor,
                         float *s);

    void (*add)(int n, float *y, const float *x);                 /* y += x */
    void (*scaled)(int n, float a, const float *x, float *y);     /* y = a x */
    void (*add_scaled)(int n, float a, const float *x, float *y); /* y += a x */
    void (*times)(int n, float *y, const float *x);               /* y *= x */

    /* Cross-entropy of a row of logits against `target` with smoothing: returns the loss
       and replaces the logits by scale * gradient. */
    float (*cross_entropy)(int n, float *logits, int target, float smoothing,
                           float scale);

    /* x = softmax(x); returns log(sum exp). */
    float (*softmax)(int n, float *x);

    double (*sum_of_squares)(int n, const float *x);

    /* In double: sum += x w, and size += |x w| unless it is NULL; the sum of w f, and of
       |w| g unless g is NULL. */
    void (*add_products)(int n, double x, const float *w, double *sum, double *size);
    double (*weigh)(int n, const float *w, const double *f, const double *g,
                    double *sizes);
    void (*adam)(int n, const ph_adam *step, const float *grad, float *x, float *m,
                 float *v);
} ph_spans;

/* The table that fits kernels with these vectors (ph_kernels). */
const ph_spans *ph_spans_pick(const char *vectors);

extern const ph_spans ph_spans_base, ph_spans_avx2, ph_spans_avx512;

#endif
