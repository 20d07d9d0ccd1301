/*
 * model_oracle_parts.h - parts of the model oracle that know nothing of stacks: its
 * parameters by name, products, norms, activations, all in double.
 */
#ifndef MODEL_ORACLE_PARTS_H
#define MODEL_ORACLE_PARTS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_oracle.h"

/* The layer whose number the parameters of a layer have. */
static inline int named_layer(const oracle_model *o, int layer)
{
    int groups = o->config->layer_groups;
    return groups && layer > 0 ? layer * groups / o->config->layers : layer;
}

/* The parameter STACK.LAYER.LAST, or NULL. */
static inline const double *find(const oracle_model *o, const char *stack, int layer,
                                 const char *last)
{
    char name[160];
    if (layer >= 0)
        snprintf(name, sizeof name, "%s.%d.%s", stack, named_layer(o, layer), last);
    else
        snprintf(name, sizeof name, "%s%s%s", stack, *stack ? "." : "", last);
    for (int i = 0; i < o->count; i++)
        if (!strcmp(o->tensors[i]->name, name)) return o->values[i];
    return NULL;
}

/* ---- parts ------------------------------------------------------------------------- */

static inline double *zeros(int rows, int columns)
{
    return calloc((size_t)rows * (size_t)columns + 1, sizeof(double));
}

/* What floats would round; nothing without o->noise. */
static inline void round_off(oracle_model *o, double *a, int count)
{
    variant_jitter(o->noise, o->noise_seed, o->arrays++, a, count);
}

/* y = x w + b */
static inline double *linear(oracle_model *o, const double *x, int rows, int in, int out,
                             const double *w, const double *b)
{
    double *y = zeros(rows, out);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < out; c++) {
            double sum = b ? b[c] : 0;
            for (int k = 0; k < in; k++) sum += x[r * in + k] * w[k * out + c];
            y[r * out + c] = sum;
        }
    round_off(o, y, rows * out);
    return y;
}

static inline double *normed(oracle_model *o, const double *x, int rows,
                             const char *stack, int layer, const char *name)
{
    char part[32];
    int dim = o->config->model_dim, rms = o->config->norm == PH_NORM_RMS;
    double *y = zeros(rows, dim);
    snprintf(part, sizeof part, "%s.gain", name);
    const double *gain = find(o, stack, layer, part);
    snprintf(part, sizeof part, "%s.bias", name);
    const double *bias = find(o, stack, layer, part);
    for (int r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int c = 0; c < dim && !rms; c++) mean += x[r * dim + c] / dim;
        for (int c = 0; c < dim; c++) square += pow(x[r * dim + c] - mean, 2) / dim;
        for (int c = 0; c < dim; c++)
            y[r * dim + c] =
                (x[r * dim + c] - mean) / sqrt(square + o->config->norm_eps) * gain[c] +
                (bias ? bias[c] : 0);
    }
    round_off(o, y, rows * dim);
    return y;
}

static inline double slope(int head, int heads)
{
    int power = 1;
    while (2 * power <= heads) power *= 2;
    return head < power ? pow(2, -8.0 * (head + 1) / power)
                        : pow(2, -4.0 * (2 * (head - power) + 1) / power);
}

/* Bucket of a relative position by the formula with logarithms. */
static inline int bucket(const ph_config *c, int relative, int causal)
{
    int n = causal ? c->buckets : c->buckets / 2, offset = 0, exact = n / 2;
    if (!causal && relative > 0) offset = n;
    int far = causal ? (relative < 0 ? -relative : 0) : abs(relative);
    if (far < exact) return offset + far;
    double share = log((double)far / exact) / log((double)c->bucket_distance / exact);
    int step = (int)floor(exact + share * (n - exact));
    return offset + (step < n - 1 ? step : n - 1);
}

static inline double activate(ph_activation kind, double x)
{
    if (kind == PH_RELU) return x > 0 ? x : 0;
    if (kind == PH_SWIGLU || kind == PH_SILU) return x / (1 + exp(-x));
    if (kind == PH_GELU_ERF || kind == PH_GEGLU_ERF) return 0.5 * x * erfc(-x / sqrt(2));
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

#endif
