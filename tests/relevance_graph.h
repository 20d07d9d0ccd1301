/*
 * relevance_graph.h - a Transformer as a graph of single neurons in double, in which each
 * hands its relevance to those it was computed from.
 *
 * The graph of one text starts from the embeddings of the pass; all else it computes
 * itself. Positions are in the embeddings here, so that queries and keys are plain
 * products.
 */
#ifndef RELEVANCE_GRAPH_H
#define RELEVANCE_GRAPH_H

#include <float.h>

#include "prune_bed.h"

/* ---- a graph of neurons ------------------------------------------------------------ */

typedef struct neuron {
    double value, r;
    size_t first;  /* of its contributions */
    int count;     /* of them; 0: an embedding */
    int unchanged; /* 1: a norm or an activation, whose only input gets everything */
} neuron;

typedef struct contribution {
    int from;
    double z;
} contribution;

enum { NEURONS = 1 << 14, CONTRIBUTIONS = 1 << 18, STATES = 512 };

typedef struct graph {
    const ph_model *m;
    ph_relevance rule;
    uint64_t rounding; /* not 0: every value is off by up to a unit of float, at random */
    int count, most;
    size_t used;
    double moved; /* sum of |relevance| over all contributions */
    neuron *neurons;
    contribution *all;
    int heads[64][STATES]; /* the neurons of every head of the model ... */
    int head_size[64];     /* ... and how many */
} graph;

static int add(graph *g, double value)
{
    CHECK(g->count < NEURONS, "too many neurons");
    if (g->rounding)
        value *= 1 + (2 * check_uniform(&g->rounding) - 1) * (double)FLT_EPSILON;
    g->neurons[g->count] = (neuron){.value = value, .first = g->used};
    return g->count++;
}

/* To the neuron that was added last. */
static void contribute(graph *g, int from, double z)
{
    CHECK(g->used < CONTRIBUTIONS, "too many contributions");
    g->all[g->used++] = (contribution){from, z};
    if (++g->neurons[g->count - 1].count > g->most)
        g->most = g->neurons[g->count - 1].count;
}

static double value_of(const graph *g, int i)
{
    return g->neurons[i].value;
}

static int unchanged(graph *g, int from, double value)
{
    int i = add(g, value);
    contribute(g, from, 1);
    g->neurons[i].unchanged = 1;
    return i;
}

static int product(graph *g, int a, int b)
{
    int i = add(g, value_of(g, a) * value_of(g, b));
    contribute(g, a, g->rule.alpha_beta ? 1 : value_of(g, a));
    contribute(g, b, g->rule.alpha_beta ? 1 : value_of(g, b));
    return i;
}

/* The relevance that contribution z brings to its neuron. */
static double part(const graph *g, const neuron *n, double z)
{
    double above = 0, below = 0;
    for (int k = 0; k < n->count; k++) {
        double other = g->all[n->first + (size_t)k].z;
        *(other > 0 ? &above : &below) += other;
    }
    double sum = !g->rule.alpha_beta ? above + below : z > 0 ? above : below;
    double of = g->rule.alpha_beta && above > 0 && below < 0 ? n->r / 2 : n->r;
    return of * z / (sum + (sum < 0 ? -g->rule.eps : g->rule.eps));
}

static void run_backward(graph *g)
{
    for (int i = g->count - 1; i >= 0; i--) {
        const neuron *n = &g->neurons[i];
        for (int k = 0; k < n->count; k++) {
            const contribution *c = &g->all[n->first + (size_t)k];
            double r = n->unchanged ? n->r : part(g, n, c->z);
            g->neurons[c->from].r += r;
            g->moved += fabs(r);
        }
    }
}

/* ---- a Transformer as such a graph ------------------------------------------------- */

static const float *tensor(const graph *g, const char *stem, const char *last)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", stem, last);
    for (int i = 0; i < g->m->param_count; i++)
        if (!strcmp(g->m->params[i].name, name)) return g->m->block + g->m->params[i].at;
    return NULL;
}

/* y = x w + b, a row */
static void multiply(graph *g, const int *x, int in, int out, const float *w,
                     const float *b, int *y)
{
    for (int v = 0; v < out; v++) {
        double sum = b ? (double)b[v] : 0;
        for (int u = 0; u < in; u++) sum += value_of(g, x[u]) * (double)w[u * out + v];
        y[v] = add(g, sum);
        for (int u = 0; u < in; u++)
            contribute(g, x[u], value_of(g, x[u]) * (double)w[u * out + v]);
    }
}

static void normalise(graph *g, const int *x, const char *stem, int *y)
{
    const float *gain = tensor(g, stem, ".gain"), *bias = tensor(g, stem, ".bias");
    double mean = 0, variance = 0;
    int rms = g->m->config.norm == PH_NORM_RMS;
    for (int d = 0; d < MODEL_DIM && !rms; d++) mean += value_of(g, x[d]) / MODEL_DIM;
    for (int d = 0; d < MODEL_DIM; d++)
        variance += pow(value_of(g, x[d]) - mean, 2) / MODEL_DIM;
    for (int d = 0; d < MODEL_DIM; d++)
        y[d] = unchanged(g, x[d],
                         (value_of(g, x[d]) - mean) * (double)gain[d] /
                                 sqrt(variance + (double)g->m->config.norm_eps) +
                             (bias ? (double)bias[d] : 0));
}

static double activate(const ph_config *c, double x)
{
    if (c->activation == PH_RELU) return x > 0 ? x : 0;
    if (c->activation == PH_SWIGLU) return x / (1 + exp(-x));
    if (c->activation == PH_GEGLU_ERF) return 0.5 * x * erfc(-x / sqrt(2));
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static void feed(graph *g, const char *layer, const int *a, int *y)
{
    const ph_config *c = &g->m->config;
    char stem[32];
    int h[64], other[64], n = c->ff_dim;
    snprintf(stem, sizeof stem, "%s.ff", layer);
    multiply(g, a, MODEL_DIM, n, tensor(g, stem, ".w1"), tensor(g, stem, ".b1"), h);
    for (int i = 0; i < n; i++) h[i] = unchanged(g, h[i], activate(c, value_of(g, h[i])));
    if (ph_config_gated(c)) {
        multiply(g, a, MODEL_DIM, n, tensor(g, stem, ".w3"), tensor(g, stem, ".b3"),
                 other);
        for (int i = 0; i < n; i++) h[i] = product(g, h[i], other[i]);
    }
    multiply(g, h, n, MODEL_DIM, tensor(g, stem, ".w2"), tensor(g, stem, ".b2"), y);
}

/* Weights of a token of a head over the keys it sees. */
static void softmax(const graph *g, const int *q, const int *k, int step, int keys,
                    double *p)
{
    double row_max = -DBL_MAX, sum = 0;
    int dim = g->m->config.head_dim;
    for (int j = 0; j < keys; j++) {
        p[j] = 0;
        for (int d = 0; d < dim; d++)
            p[j] += value_of(g, q[d]) * value_of(g, k[j * step + d]) / sqrt(dim);
        row_max = fmax(row_max, p[j]);
    }
    for (int j = 0; j < keys; j++) sum += p[j] = exp(p[j] - row_max);
    for (int j = 0; j < keys; j++) p[j] /= sum;
}

/* a: (rows, model_dim) of queries, x: (keys, model_dim) of keys and values. */
static void attend(graph *g, const char *layer, int cross, int first_head, const int *a,
                   int rows, const int *x, int keys, int causal, int *y)
{
    const ph_config *c = &g->m->config;
    char stem[32];
    int width = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, dim = c->head_dim;
    int q[64], k[STATES], v[STATES], heads[64];
    snprintf(stem, sizeof stem, "%s.%s", layer, cross ? "cross" : "self");
    for (int j = 0; j < keys; j++) {
        multiply(g, x + j * MODEL_DIM, MODEL_DIM, kv, tensor(g, stem, ".wk"),
                 tensor(g, stem, ".bk"), k + j * kv);
        multiply(g, x + j * MODEL_DIM, MODEL_DIM, kv, tensor(g, stem, ".wv"),
                 tensor(g, stem, ".bv"), v + j * kv);
    }
    for (int i = 0; i < rows; i++) {
        multiply(g, a + i * MODEL_DIM, MODEL_DIM, width, tensor(g, stem, ".wq"),
                 tensor(g, stem, ".bq"), q);
        for (int h = 0; h < c->heads; h++) {
            double p[16];
            int at = h / (c->heads / c->kv_heads) * dim, seen = causal ? i + 1 : keys;
            int head = first_head + h;
            softmax(g, q + h * dim, k + at, kv, seen, p);
            for (int d = 0; d < dim; d++) {
                double sum = 0;
                for (int j = 0; j < seen; j++)
                    sum += p[j] * value_of(g, v[j * kv + at + d]);
                heads[h * dim + d] = add(g, sum);
                for (int j = 0; j < seen; j++)
                    contribute(g, v[j * kv + at + d],
                               p[j] * value_of(g, v[j * kv + at + d]));
                g->heads[head][g->head_size[head]++] = heads[h * dim + d];
            }
        }
        multiply(g, heads, width, MODEL_DIM, tensor(g, stem, ".wo"),
                 tensor(g, stem, ".bo"), y + i * MODEL_DIM);
    }
}

/* r: the residual stream, to which y is added in place; post-norm: n, its norm, replaces
   it. */
static void connect(graph *g, const char *layer, int number, int rows, int *r,
                    const int *y, int *n)
{
    char stem[32];
    const ph_config *c = &g->m->config;
    int pre = c->norm_place == PH_PRE_NORM;
    snprintf(stem, sizeof stem, "%s.norm%d", layer, number);
    for (int i = 0; i < rows * MODEL_DIM; i++) {
        int s = add(g, value_of(g, r[i]) + value_of(g, y[i]));
        contribute(g, r[i], value_of(g, r[i]));
        contribute(g, y[i], value_of(g, y[i]));
        r[i] = s;
    }
    for (int i = 0; i < rows && !pre; i++) {
        normalise(g, r + i * MODEL_DIM, stem, n + i * MODEL_DIM);
        memcpy(r + i * MODEL_DIM, n + i * MODEL_DIM, MODEL_DIM * sizeof *r);
    }
}

/* Pre-norm: norm1 is before the first sublayer, and so on. */
static void read_stream(graph *g, const char *layer, int number, int rows, const int *r,
                        int *n)
{
    char stem[32];
    int pre = g->m->config.norm_place == PH_PRE_NORM;
    if (g->m->config.embed_norm && number == 1 && strstr(layer, ".0")) pre = 0;
    snprintf(stem, sizeof stem, number ? "%s.norm%d" : "%s.norm", layer, number);
    for (int i = 0; i < rows; i++)
        if (pre)
            normalise(g, r + i * MODEL_DIM, stem, n + i * MODEL_DIM);
        else
            memcpy(n + i * MODEL_DIM, r + i * MODEL_DIM, MODEL_DIM * sizeof *n);
}

/* The output of a stack for a text, whose embeddings are those of the pass. */
static void run_stack(graph *g, const bed *b, int index, int text, const int *memory,
                      int keys, int *n)
{
    const ph_pass_stack *stack = &b->e->open->stacks[index];
    int first = stack->offsets[text], rows = stack->offsets[text + 1] - first;
    int r[STATES], y[STATES];
    const char *name = stack->def->causal ? "decoder" : "encoder";
    const float *x = g->m->config.embed_norm ? stack->entry.n : stack->entry.s;
    char layer[24];
    for (int i = 0; i < rows * MODEL_DIM; i++)
        r[i] = add(g, (double)x[first * MODEL_DIM + i]);
    for (int l = 0; l < g->m->config.layers; l++) {
        int number = 1, sites = memory ? 2 : 1;
        snprintf(layer, sizeof layer, "%s.%d", name, l);
        for (int s = 0; s < sites; s++, number++) {
            const ph_sublayer *def = &stack->def->sublayers[l * (sites + 1) + s];
            read_stream(g, layer, number, rows, r, n);
            attend(g, layer, s, def->first_head, n, rows, s ? memory : n, s ? keys : rows,
                   stack->def->causal && !s, y);
            connect(g, layer, number, rows, r, y, n);
        }
        read_stream(g, layer, number, rows, r, n);
        for (int i = 0; i < rows; i++)
            feed(g, layer, n + i * MODEL_DIM, y + i * MODEL_DIM);
        connect(g, layer, number, rows, r, y, n);
    }
    read_stream(g, name, 0, rows, r, n);
}

#endif
