/*
 * model_oracle.c - a Transformer as dense loops in double.
 *
 * One text at a time, one word at a time: slow and plain.
 */
#include "model_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parameters -------------------------------------------------------------------- */

void oracle_model_take(oracle_model *o, const ph_model *m)
{
    int count = 0;
    while (ph_model_tensor(m, count)) count++;
    o->config = ph_model_config(m);
    o->count = count;
    o->tensors = calloc((size_t)count, sizeof *o->tensors);
    o->values = calloc((size_t)count, sizeof *o->values);
    for (int i = 0; i < count; i++) {
        const ph_tensor *t = o->tensors[i] = ph_model_tensor(m, i);
        size_t n = t->bytes / sizeof(float);
        o->values[i] = calloc(n, sizeof(double));
        for (size_t k = 0; k < n; k++) o->values[i][k] = ((const float *)t->data)[k];
    }
}

void oracle_model_free(oracle_model *o)
{
    for (int i = 0; i < o->count; i++) free(o->values[i]);
    free(o->values);
    free((void *)o->tensors);
}

/* The parameter STACK.LAYER.LAST, or NULL where the model has none. */
static const double *find(const oracle_model *o, const char *stack, int layer,
                          const char *last)
{
    char name[160];
    if (layer >= 0)
        snprintf(name, sizeof name, "%s.%d.%s", stack, layer, last);
    else
        snprintf(name, sizeof name, "%s%s%s", stack, *stack ? "." : "", last);
    for (int i = 0; i < o->count; i++)
        if (!strcmp(o->tensors[i]->name, name)) return o->values[i];
    return NULL;
}

/* ---- parts ------------------------------------------------------------------------- */

static double *room(int rows, int columns)
{
    return calloc((size_t)rows * (size_t)columns + 1, sizeof(double));
}

/* y = x w + b */
static double *linear(const double *x, int rows, int in, int out, const double *w,
                      const double *b)
{
    double *y = room(rows, out);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < out; c++) {
            double sum = b ? b[c] : 0;
            for (int k = 0; k < in; k++) sum += x[r * in + k] * w[k * out + c];
            y[r * out + c] = sum;
        }
    return y;
}

static double *normed(const oracle_model *o, const double *x, int rows, const char *stack,
                      int layer, const char *name)
{
    char part[32];
    int dim = o->config->model_dim, rms = o->config->norm == PH_NORM_RMS;
    double *y = room(rows, dim);
    snprintf(part, sizeof part, "%s.gain", name);
    const double *gain = find(o, stack, layer, part);
    snprintf(part, sizeof part, "%s.bias", name);
    const double *bias = find(o, stack, layer, part);
    for (int r = 0; r < rows; r++) {
        double mean = 0, square = 0;
        for (int c = 0; c < dim && !rms; c++) mean += x[r * dim + c] / dim;
        for (int c = 0; c < dim; c++) square += pow(x[r * dim + c] - mean, 2) / dim;
        for (int c = 0; c < dim; c++)
            y[r * dim + c] = (x[r * dim + c] - mean) / sqrt(square + 1e-5) * gain[c] +
                             (bias ? bias[c] : 0);
    }
    return y;
}

/* Pairs (p, p + dim/2) turn by position * 10000^(-2p/dim). */
static void rotate(double *x, int len, int heads, int dim)
{
    for (int t = 0; t < len; t++)
        for (int h = 0; h < heads; h++)
            for (int p = 0; p < dim / 2; p++) {
                double *a = x + (t * heads + h) * dim + p, *b = a + dim / 2;
                double angle = t * pow(10000, -2.0 * p / dim), old = *a;
                *a = old * cos(angle) - *b * sin(angle);
                *b = *b * cos(angle) + old * sin(angle);
            }
}

static double slope(int head, int heads)
{
    int power = 1;
    while (2 * power <= heads) power *= 2;
    return head < power ? pow(2, -8.0 * (head + 1) / power)
                        : pow(2, -4.0 * (2 * (head - power) + 1) / power);
}

/* Bucket of a relative position by the formula with logarithms. */
static int bucket(int relative, int causal)
{
    int n = causal ? 32 : 16, offset = 0;
    if (!causal && relative > 0) offset = n;
    int far = causal ? (relative < 0 ? -relative : 0) : abs(relative);
    if (far < n / 2) return offset + far;
    int step = (int)floor(n / 2 + log(far / (n / 2.0)) / log(128 / (n / 2.0)) * (n / 2));
    return offset + (step < n - 1 ? step : n - 1);
}

/* Weights of one row: softmax over the first `keys` keys that the row may see. */
static void attend_row(const oracle_model *o, const double *q, const double *k, int head,
                       int kv_heads, int i, int keys, int alibi, const double *buckets,
                       int causal, double *p)
{
    const ph_config *c = o->config;
    int dim = c->head_dim, shared = head / (c->heads / kv_heads);
    double top = -INFINITY, sum = 0;
    for (int j = 0; j < keys; j++) {
        double s = 0;
        for (int d = 0; d < dim; d++)
            s +=
                q[(i * c->heads + head) * dim + d] * k[(j * kv_heads + shared) * dim + d];
        p[j] = s / sqrt(dim);
        if (buckets) p[j] += buckets[bucket(j - i, causal) * c->heads + head];
        if (alibi) p[j] -= slope(head, c->heads) * abs(i - j);
        if (p[j] > top) top = p[j];
    }
    for (int j = 0; j < keys; j++) sum += p[j] = exp(p[j] - top);
    for (int j = 0; j < keys; j++) p[j] /= sum;
}

static double *attention(const oracle_model *o, const char *stack, int layer,
                         const char *kind, const double *x, int len, const double *source,
                         int source_len, int valid, int causal)
{
    const ph_config *c = o->config;
    char n[8][16];
    const double *w[8];
    static const char *const parts[] = {"wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo"};
    int self = source == x, dim = c->head_dim, wide = c->heads * dim;
    int keys_wide = c->kv_heads * dim, group = c->heads / c->kv_heads;
    for (int i = 0; i < 8; i++) {
        snprintf(n[i], sizeof n[i], "%s.%s", kind, parts[i]);
        w[i] = find(o, stack, layer, n[i]);
    }
    double *q = linear(x, len, c->model_dim, wide, w[0], w[4]);
    double *k = linear(source, source_len, c->model_dim, keys_wide, w[1], w[5]);
    double *v = linear(source, source_len, c->model_dim, keys_wide, w[2], w[6]);
    double *out = room(len, wide), *p = room(1, source_len);
    if (self && c->positions == PH_POS_ROPE) {
        rotate(q, len, c->heads, dim);
        rotate(k, source_len, c->kv_heads, dim);
    }
    const double *buckets = self ? find(o, stack, -1, "buckets") : NULL;
    for (int h = 0; h < c->heads; h++)
        for (int i = 0; i < len; i++) {
            int keys = causal ? i + 1 : valid;
            attend_row(o, q, k, h, c->kv_heads, i, keys,
                       self && c->positions == PH_POS_ALIBI, buckets, causal, p);
            for (int j = 0; j < keys; j++)
                for (int d = 0; d < dim; d++)
                    out[i * wide + h * dim + d] +=
                        p[j] * v[j * keys_wide + h / group * dim + d];
        }
    double *y = linear(out, len, wide, c->model_dim, w[3], w[7]);
    free(q), free(k), free(v), free(out), free(p);
    return y;
}

static double curve(ph_activation kind, double x)
{
    if (kind == PH_RELU) return x > 0 ? x : 0;
    if (kind == PH_SWIGLU) return x / (1 + exp(-x));
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

static double *feed(const oracle_model *o, const char *stack, int layer, const double *x,
                    int len)
{
    const ph_config *c = o->config;
    int gated = c->activation == PH_SWIGLU, wide = c->ff_dim * (1 + gated);
    double *h = linear(x, len, c->model_dim, wide, find(o, stack, layer, "ff.w1"),
                       find(o, stack, layer, "ff.b1"));
    double *g = room(len, c->ff_dim);
    for (int t = 0; t < len; t++)
        for (int d = 0; d < c->ff_dim; d++) {
            g[t * c->ff_dim + d] = curve(c->activation, h[t * wide + d]);
            if (gated) g[t * c->ff_dim + d] *= h[t * wide + c->ff_dim + d];
        }
    double *y = linear(g, len, c->ff_dim, c->model_dim, find(o, stack, layer, "ff.w2"),
                       find(o, stack, layer, "ff.b2"));
    free(h), free(g);
    return y;
}

/* ---- a stack ----------------------------------------------------------------------- */

static double *embed(const oracle_model *o, const char *stack, const int32_t *tokens,
                     int len)
{
    const ph_config *c = o->config;
    int dim = c->model_dim;
    const double *words = find(o, "", -1, "embed");
    const double *places = find(o, stack, -1, "positions");
    double *x = room(len, dim);
    for (int t = 0; t < len; t++)
        for (int d = 0; d < dim; d++) {
            double angle = t / pow(10000, (d - d % 2) / (double)dim);
            x[t * dim + d] = sqrt(dim) * words[tokens[t] * dim + d];
            if (places) x[t * dim + d] += places[t * dim + d];
            if (c->positions == PH_POS_SINUSOIDAL)
                x[t * dim + d] += d % 2 ? cos(angle) : sin(angle);
        }
    return x;
}

typedef struct text {
    const char *stack;
    int len, valid, causal;
    const double *memory; /* the encoder's output, or NULL */
    int memory_len, memory_valid;
} text;

/* f of sublayer `kind`: 0 self, 1 cross, 2 feed-forward */
static double *sublayer(const oracle_model *o, const text *t, int layer, int kind,
                        const double *x)
{
    if (kind == 2) return feed(o, t->stack, layer, x, t->len);
    if (kind == 1)
        return attention(o, t->stack, layer, "cross", x, t->len, t->memory, t->memory_len,
                         t->memory_valid, 0);
    return attention(o, t->stack, layer, "self", x, t->len, x, t->len, t->valid,
                     t->causal);
}

static double *step(const oracle_model *o, const text *t, int layer, int kind, int number,
                    double *x)
{
    char norm[16];
    int before = o->config->norm_place == PH_NORM_BEFORE;
    snprintf(norm, sizeof norm, "norm%d", number);
    double *a = before ? normed(o, x, t->len, t->stack, layer, norm) : x;
    double *y = sublayer(o, t, layer, kind, a);
    for (int i = 0; i < t->len * o->config->model_dim; i++) y[i] += x[i];
    if (before) free(a);
    free(x);
    if (before) return y;
    double *out = normed(o, y, t->len, t->stack, layer, norm);
    free(y);
    return out;
}

static double *run_stack(const oracle_model *o, const text *t, int layers,
                         const int32_t *tokens)
{
    double *x = embed(o, t->stack, tokens, t->len);
    for (int l = 0; l < layers; l++) {
        int number = 1;
        x = step(o, t, l, 0, number++, x);
        if (t->memory) x = step(o, t, l, 1, number++, x);
        x = step(o, t, l, 2, number, x);
    }
    if (o->config->norm_place == PH_NORM_AFTER) return x;
    double *out = normed(o, x, t->len, t->stack, -1, "norm");
    free(x);
    return out;
}

/* ---- losses ------------------------------------------------------------------------ */

static double next_loss(const oracle_model *o, const double *x, int len,
                        const int32_t *labels, double smoothing, double *logits)
{
    const ph_config *c = o->config;
    const double *w = find(o, "", -1, c->untied ? "output" : "embed");
    double *row = room(1, c->vocab), loss = 0;
    for (int t = 0; t < len; t++) {
        double top = -INFINITY, sum = 0, mean = 0;
        for (int v = 0; v < c->vocab; v++) {
            row[v] = 0;
            for (int d = 0; d < c->model_dim; d++)
                row[v] += x[t * c->model_dim + d] * w[v * c->model_dim + d];
            if (row[v] > top) top = row[v];
            if (logits) logits[t * c->vocab + v] = row[v];
        }
        if (labels[t] < 0) continue;
        for (int v = 0; v < c->vocab; v++) sum += exp(row[v] - top);
        for (int v = 0; v < c->vocab; v++) mean += (top + log(sum) - row[v]) / c->vocab;
        loss += (1 - smoothing) * (top + log(sum) - row[labels[t]]) + smoothing * mean;
    }
    free(row);
    return loss;
}

static double link_loss(const oracle_model *o, const double *x, int len, int valid,
                        const int32_t *labels)
{
    const ph_config *c = o->config;
    int wide = c->heads * c->head_dim;
    double *q = linear(x, len, c->model_dim, wide, find(o, "links", -1, "wq"), NULL);
    double *k = linear(x, len, c->model_dim, wide, find(o, "links", -1, "wk"), NULL);
    double *g =
        linear(x, len, c->model_dim, c->heads, find(o, "links", -1, "gate"), NULL);
    double *p = room(1, len), loss = 0;
    for (int i = 0; i < len; i++) {
        int role = labels[i] / len;
        double sum = 0;
        if (labels[i] < 0) continue;
        attend_row(o, q, k, role, c->heads, i, valid, 0, NULL, 0, p);
        for (int h = 0; h < c->heads; h++) sum += exp(g[i * c->heads + h]);
        loss -= log(p[labels[i] % len]) + g[i * c->heads + role] - log(sum);
    }
    free(q), free(k), free(g), free(p);
    return loss;
}

double oracle_model_loss(const oracle_model *o, const oracle_batch *b, double smoothing,
                         double *logits)
{
    const ph_config *c = o->config;
    int both = c->arch == PH_ARCH_BOTH, causal = c->arch == PH_ARCH_DECODER;
    double loss = 0;
    for (int i = 0; i < b->batch; i++) {
        int valid = b->source_lens ? b->source_lens[i] : b->source_len;
        int last = both ? b->target_len : b->source_len;
        const int32_t *labels = b->labels + i * last;
        text t = {causal ? "decoder" : "encoder", b->source_len, valid, causal, 0, 0, 0};
        double *x = run_stack(o, &t, c->layers, b->source + i * b->source_len);
        if (both) {
            text d = {"decoder", b->target_len, 0, 1, x, b->source_len, valid};
            double *y =
                run_stack(o, &d, c->decoder_layers, b->target + i * b->target_len);
            free(x);
            x = y;
        }
        loss += c->arch == PH_ARCH_ENCODER
                    ? link_loss(o, x, last, valid, labels)
                    : next_loss(o, x, last, labels, smoothing,
                                logits ? logits + i * last * c->vocab : NULL);
        free(x);
    }
    return loss;
}
