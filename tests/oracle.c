/*
 * oracle.c - see oracle.h. Here: reading a call into plain arrays, the visible set,
 * number
 * formats, and the loops of oracle_loops.h once in double and once in float.
 */
#include "oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- number formats --------------------------------------------------------------- */

size_t oracle_size(ph_dtype dtype)
{
    return dtype == PH_F32 ? 4 : 2;
}

/* Bits of the fraction and smallest exponent of a normal number, the way frexp counts. */
static void format_of(ph_dtype dtype, int *fraction, int *lowest)
{
    *fraction = dtype == PH_F32 ? 24 : dtype == PH_F16 ? 11 : 8;
    *lowest = dtype == PH_F16 ? -13 : -125;
}

double oracle_ulp(ph_dtype dtype, double x)
{
    int fraction, lowest, exponent;
    format_of(dtype, &fraction, &lowest);
    frexp(x, &exponent);
    if (x == 0 || exponent < lowest) exponent = lowest;
    return ldexp(1, exponent - fraction);
}

double oracle_decode(ph_dtype dtype, const void *data, int64_t index)
{
    const unsigned char *at =
        (const unsigned char *)data + index * (int64_t)oracle_size(dtype);
    if (dtype == PH_F32) {
        float value;
        memcpy(&value, at, 4);
        return (double)value;
    }
    uint16_t bits;
    memcpy(&bits, at, 2);
    int wide = dtype == PH_F16 ? 10 : 7; /* stored bits of the fraction */
    int bias = dtype == PH_F16 ? 15 : 127;
    int exponent = (bits & 0x7fff) >> wide, fraction = bits & ((1 << wide) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == 2 * bias + 1) return fraction ? (double)NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - wide);
    return sign * ldexp(fraction + (1 << wide), exponent - bias - wide);
}

/* The bits of |value| in a 16-bit format, rounded to nearest, ties to even. */
static unsigned encode_half(ph_dtype dtype, double value)
{
    int wide = dtype == PH_F16 ? 10 : 7, bias = dtype == PH_F16 ? 15 : 127;
    unsigned infinity = (unsigned)(2 * bias + 1) << wide;
    if (isnan(value)) return infinity | 1u << (wide - 1);
    double step = oracle_ulp(dtype, value);
    double rounded = isinf(value) ? value : nearbyint(value / step) * step;
    int exponent;
    double fraction = frexp(rounded, &exponent); /* in [0.5, 1) */
    if (rounded == 0) return 0;
    if (exponent > bias + 1 || isinf(rounded)) return infinity;
    if (exponent < 2 - bias) return (unsigned)(rounded / step);
    unsigned low = (unsigned)ldexp(fraction, wide + 1) & ((1u << wide) - 1);
    return (unsigned)(exponent - 1 + bias) << wide | low;
}

void oracle_encode(ph_dtype dtype, void *data, int64_t index, double value)
{
    unsigned char *at = (unsigned char *)data + index * (int64_t)oracle_size(dtype);
    if (dtype == PH_F32) {
        float narrow = (float)value;
        memcpy(at, &narrow, 4);
        return;
    }
    unsigned bits = encode_half(dtype, fabs(value)) | (signbit(value) ? 0x8000u : 0);
    uint16_t narrow = (uint16_t)bits;
    memcpy(at, &narrow, 2);
}

/* ---- where things are ------------------------------------------------------------- */

static size_t at_row(const dense *p, int b, int h, int i)
{
    return ((size_t)b * (size_t)p->q_heads + (size_t)h) * (size_t)p->q_len + (size_t)i;
}

static size_t at_q(const dense *p, int b, int h, int i)
{
    return at_row(p, b, h, i) * (size_t)p->qk_dim;
}

/* Query head h reads key head h / (q_heads / k_heads): neighbours share. */
static size_t at_k(const dense *p, int b, int h, int j)
{
    int head = h / (p->q_heads / p->k_heads);
    size_t row = ((size_t)b * (size_t)p->k_heads + (size_t)head) * (size_t)p->kv_len;
    return (row + (size_t)j) * (size_t)p->qk_dim;
}

static size_t at_v(const dense *p, int b, int h, int j)
{
    int head = h / (p->q_heads / p->v_heads);
    size_t row = ((size_t)b * (size_t)p->v_heads + (size_t)head) * (size_t)p->kv_len;
    return (row + (size_t)j) * (size_t)p->v_dim;
}

static size_t at_cell(const dense *p, int b, int h, int i, int j)
{
    return at_row(p, b, h, i) * (size_t)p->kv_len + (size_t)j;
}

static size_t at_col(const dense *p, int b, int h, int j)
{
    return ((size_t)b * (size_t)p->q_heads + (size_t)h) * (size_t)p->kv_len + (size_t)j;
}

static size_t at_gate(const dense *p, int b, int h, int i)
{
    return p->gate_rows ? at_row(p, b, h, i) : (size_t)h;
}

/* Index into a tensor that repeats along every axis of size 1. */
static size_t at_broadcast(ph_broadcast shape, int kv_len, int b, int h, int i, int j)
{
    size_t row = shape.batch > 1 ? (size_t)b : 0;
    row = row * (size_t)shape.heads + (shape.heads > 1 ? (size_t)h : 0);
    row = row * (size_t)shape.q_len + (shape.q_len > 1 ? (size_t)i : 0);
    return row * (size_t)kv_len + (size_t)j;
}

static size_t at_bias(const dense *p, int b, int h, int i, int j)
{
    return at_broadcast(p->bias_shape, p->kv_len, b, h, i, j);
}

size_t dense_rows(const dense *p)
{
    return (size_t)p->batch * (size_t)p->q_heads * (size_t)p->q_len;
}

static size_t broadcast_count(ph_broadcast s, int kv_len)
{
    return (size_t)s.batch * (size_t)s.heads * (size_t)s.q_len * (size_t)kv_len;
}

size_t dense_bias_count(const dense *p)
{
    return p->bias ? broadcast_count(p->bias_shape, p->kv_len) : 0;
}

size_t dense_gate_count(const dense *p)
{
    if (!p->gate) return 0;
    return p->gate_rows ? dense_rows(p) : (size_t)p->q_heads;
}

/* ---- the visible set -------------------------------------------------------------- */

int dense_dead(const dense *p, int b, int h, int i)
{
    if (i >= p->q_lens[b]) return 1;
    return p->gate && p->gate[at_gate(p, b, h, i)] == 0;
}

int dense_sees(const dense *p, int b, int h, int i, int j)
{
    int64_t position = (int64_t)i + p->offset[b];
    if (dense_dead(p, b, h, i)) return 0;
    if (j >= p->kv_lens[b]) return 0;
    if (p->mask == PH_MASK_CAUSAL && j > position) return 0;
    if (p->mask == PH_MASK_BAND) {
        if (p->band_left >= 0 && j < position - p->band_left) return 0;
        if (p->band_right >= 0 && j > position + p->band_right) return 0;
    }
    if (p->visible && !p->visible[at_broadcast(p->visible_shape, p->kv_len, b, h, i, j)])
        return 0;
    if (p->bias && p->bias[at_bias(p, b, h, i, j)] == -INFINITY) return 0;
    return 1;
}

/* ---- reading a call --------------------------------------------------------------- */

/* A typed, strided tensor as packed doubles. */
static double *unpack(ph_dtype dtype, const void *data, ph_strides at, int batch,
                      int heads, int len, int dim)
{
    if (!at.batch && !at.head && !at.time) {
        at.time = dim;
        at.head = (int64_t)len * dim;
        at.batch = (int64_t)heads * len * dim;
    }
    size_t count = (size_t)batch * (size_t)heads * (size_t)len * (size_t)dim;
    double *to = malloc((count + 1) * sizeof *to), *next = to;
    for (int b = 0; b < batch; b++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < len; i++)
                for (int d = 0; d < dim; d++)
                    *next++ = oracle_decode(dtype, data,
                                            b * at.batch + h * at.head + i * at.time + d);
    return to;
}

static double *widen(const float *from, size_t count)
{
    if (!from) return NULL;
    double *to = malloc((count + 1) * sizeof *to);
    for (size_t n = 0; n < count; n++) to[n] = (double)from[n];
    return to;
}

static int *lengths(const int32_t *from, int batch, int full)
{
    int *to = malloc(((size_t)batch + 1) * sizeof *to);
    for (int b = 0; b < batch; b++) to[b] = from ? (int)from[b] : full;
    return to;
}

static void load_sizes(dense *to, const ph_attn *attn)
{
    to->batch = attn->batch;
    to->q_heads = attn->q_heads;
    to->k_heads = attn->k_heads ? attn->k_heads : attn->q_heads;
    to->v_heads = attn->v_heads ? attn->v_heads : attn->q_heads;
    to->q_len = attn->q_len;
    to->kv_len = attn->kv_len;
    to->qk_dim = attn->qk_dim;
    to->v_dim = attn->v_dim ? attn->v_dim : attn->qk_dim;
    to->scale = attn->scale != 0 ? (double)attn->scale : 1 / sqrt((double)attn->qk_dim);
    to->softcap = (double)attn->softcap;
    to->dropout = (double)attn->dropout;
    to->mask = attn->mask;
    to->band_left = attn->band_left;
    to->band_right = attn->band_right;
}

static void load_masks(dense *to, const ph_attn *attn, const ph_args *args)
{
    to->bias_shape = attn->bias;
    to->visible_shape = attn->visible;
    if (attn->bias.batch)
        to->bias = widen(args->bias, broadcast_count(attn->bias, attn->kv_len));
    if (attn->visible.batch) {
        size_t count = broadcast_count(attn->visible, attn->kv_len);
        to->visible = malloc(count + 1);
        memcpy(to->visible, args->visible, count);
    }
    to->q_lens = lengths(args->q_lens, attn->batch, attn->q_len);
    to->kv_lens = lengths(args->kv_lens, attn->batch, attn->kv_len);
    to->offset = lengths(NULL, attn->batch, 0);
    for (int b = 0; b < attn->batch; b++) {
        if (attn->anchor == PH_ANCHOR_OFFSET) to->offset[b] = attn->q_offset;
        if (attn->anchor == PH_ANCHOR_END) to->offset[b] = to->kv_lens[b] - to->q_lens[b];
    }
}

void dense_load(dense *to, const ph_attn *attn, const ph_args *args,
                const ph_grads *grads)
{
    memset(to, 0, sizeof *to);
    load_sizes(to, attn);
    load_masks(to, attn, args);
    ph_dtype type = attn->dtype;
    int batch = to->batch, heads = to->q_heads, q_len = to->q_len, kv_len = to->kv_len;
    to->q = unpack(type, args->q, attn->q, batch, heads, q_len, to->qk_dim);
    to->k = unpack(type, args->k, attn->k, batch, to->k_heads, kv_len, to->qk_dim);
    if (args->v)
        to->v = unpack(type, args->v, attn->v, batch, to->v_heads, kv_len, to->v_dim);
    to->gate_rows = attn->gate == PH_GATE_ROW;
    size_t rows = dense_rows(to);
    to->gate = widen(args->gate, to->gate_rows ? rows : (size_t)heads);
    to->sink = widen(args->sink, (size_t)heads);
    to->alibi = widen(args->alibi, (size_t)heads);
    if (!grads) return;
    to->dout = unpack(type, grads->dout, attn->out, batch, heads, q_len, to->v_dim);
    to->dlse = widen(grads->dlse, rows);
    if (args->out)
        to->given_out =
            unpack(type, args->out, attn->out, batch, heads, q_len, to->v_dim);
    to->given_lse = widen(args->lse, rows);
}

void dense_free(dense *p)
{
    void *all[] = {p->q,    p->k,     p->v,         p->bias,     p->visible, p->gate,
                   p->sink, p->alibi, p->q_lens,    p->kv_lens,  p->offset,  p->keep,
                   p->dout, p->dlse,  p->given_out, p->given_lse};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    memset(p, 0, sizeof *p);
}

/* ---- answers ---------------------------------------------------------------------- */

static double *zeros(size_t count)
{
    return calloc(count + 1, sizeof(double));
}

void answer_init(answer *a, const dense *p, int backward)
{
    size_t rows = dense_rows(p), keys = (size_t)p->batch * (size_t)p->kv_len;
    memset(a, 0, sizeof *a);
    a->out = zeros(rows * (size_t)p->v_dim);
    a->lse = zeros(rows);
    a->weights = zeros(rows * (size_t)p->kv_len);
    a->undropped = zeros(rows * (size_t)p->kv_len);
    a->col_sum = zeros(keys * (size_t)p->q_heads);
    a->entropy = zeros(rows);
    if (!backward) return;
    a->dq = zeros(rows * (size_t)p->qk_dim);
    a->dk = zeros(keys * (size_t)p->k_heads * (size_t)p->qk_dim);
    a->dv = zeros(keys * (size_t)p->v_heads * (size_t)p->v_dim);
    if (p->bias) a->dbias = zeros(dense_bias_count(p));
    if (p->gate) a->dgate = zeros(dense_gate_count(p));
    if (p->sink) a->dsink = zeros((size_t)p->q_heads);
}

void answer_free(answer *a)
{
    double *all[] = {a->out, a->lse, a->weights, a->col_sum, a->entropy, a->undropped,
                     a->dq,  a->dk,  a->dv,      a->dbias,   a->dgate,   a->dsink};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) free(all[n]);
    memset(a, 0, sizeof *a);
}

/* The sum of products in random order goes about this far from 0, wherever it ends. */
static double walk_of(const double *q, const double *k, int dim)
{
    double sum = 0;
    for (int d = 0; d < dim; d++) sum += q[d] * k[d] * q[d] * k[d];
    return sqrt(sum);
}

/* The standard deviation of q.k as a chain of floats: each step rounds the partial sum by
   up to half an ulp, 2^-24 of it at most, evenly spread and independent of the others. */
static double rounding_of(const double *q, const double *k, int dim)
{
    double partial = 0, squares = 0;
    for (int d = 0; d < dim; d++) {
        partial += q[d] * k[d];
        squares += partial * partial;
    }
    return sqrt(squares / 3) * 0x1p-24;
}

/* ---- the loops, twice ------------------------------------------------------------- */

#define REAL     double
#define FN(name) double_##name
#define EXP      exp
#define LOG      log
#define TANH     tanh
#define COSH     cosh
#define FABS     fabs
#include "oracle_loops.h"
#undef REAL
#undef FN
#undef EXP
#undef LOG
#undef TANH
#undef COSH
#undef FABS

#define REAL     float
#define FN(name) float_##name
#define EXP      expf
#define LOG      logf
#define TANH     tanhf
#define COSH     coshf
#define FABS     fabsf
#include "oracle_loops.h"

void oracle_forward(const dense *p, answer *value, answer *magnitude)
{
    double_forward(p, value, magnitude);
}

/* The truth does not read what the engine computed. */
void oracle_backward(const dense *p, answer *value, answer *magnitude)
{
    dense alone = *p;
    alone.given_out = alone.given_lse = NULL;
    double_backward(&alone, value, magnitude);
}

void yard_forward(const dense *p, answer *value)
{
    float_forward(p, value, NULL);
}

void yard_backward(const dense *p, answer *value)
{
    float_backward(p, value, NULL);
}
