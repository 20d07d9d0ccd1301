/*
 * variant_dcmha.c - dynamically composed heads (spec dcmha, section 2).
 *
 *     y[n] = x[n] (1 + gq_i[n] + gk_j[n]) + sum_r ( w2q_i^r[n] (w1q_i^r . x)
 *                                                 + w2k_j^r[n] (w1k_j^r . x) )
 *            + sum_m x[m] static[m][n]
 *
 * over the vector x of all heads at (i, j): once with the scores, once with the weights.
 * A layer makes w1, w2, g of a token t and a channel c from its hidden state:
 *
 *     [y1; y2] = gelu(t dc_w1[c]) dc_w2[c]    w1 = y1 / rms over heads    w2 = y2
 *     g = tanh(t dc_wg[c])
 *
 * In core mode they are given: preq_w1 and so on. Channels that are switched off by side,
 * pre or post do not exist in core mode and stand idle in a layer.
 */
#include <math.h>
#include <stdio.h>

#include "variant_parts.h"

static const char *const names[] = {"preq", "prek", "postq", "postk"};

/* The coefficients of one channel; NULL: disabled. */
typedef struct channel {
    double *w1, *w2; /* (batch, len, rank, heads) */
    double *g;       /* (batch, len, heads)       */
} channel;

static double gelu(const work *w, double z)
{
    if (option_is(w, "gelu", "erf")) return z * (1 + erf(z / sqrt(2))) / 2;
    return z * (1 + tanh(sqrt(2 / acos(-1)) * (z + 0.044715 * z * z * z))) / 2;
}

static int is_on(const work *w, int c)
{
    if (option_number(w, c < 2 ? "pre" : "post", 1) == 0) return 0;
    return !option_is(w, "side", c % 2 ? "q" : "k");
}

static double *token_numbers(const work *w, int c, const char *what)
{
    char name[16];
    snprintf(name, sizeof name, "%s_%s", names[c], what);
    return given(w, name);
}

/* One token's w1, w2 and g. */
static void generate_token(work *w, int c, const double *x, int rank, double *hidden,
                           double *w1, double *w2, double *g)
{
    int heads = w->heads, model = w->model, wide = 2 * rank * heads, n = rank * heads;
    const double *first = given(w, "dc_w1") + c * model * wide;
    const double *second = given(w, "dc_w2") + c * wide * 2 * n;
    const double *gates = given(w, "dc_wg") + c * model * heads;
    for (int k = 0; k < wide; k++) {
        double z = 0;
        for (int m = 0; m < model; m++) z += x[m] * first[m * wide + k];
        hidden[k] = gelu(w, z);
    }
    jitter(w, hidden, wide); /* the norm below may be steep in it */
    for (int a = 0; a < 2 * n; a++) {
        double y = 0;
        for (int k = 0; k < wide; k++) y += hidden[k] * second[k * 2 * n + a];
        *(a < n ? &w1[a] : &w2[a - n]) = y;
    }
    rms_rows(w1, rank, heads, NULL, 1e-6);
    for (int h = 0; h < heads; h++) {
        double z = 0;
        for (int m = 0; m < model; m++) z += x[m] * gates[m * heads + h];
        g[h] = tanh(z);
    }
}

static channel generate(work *w, int c, int rank)
{
    int len = c % 2 ? w->kv_len : w->q_len, n = rank * w->heads, rows = w->batch * len;
    const double *x = c % 2 ? w->other : w->x;
    double *hidden = take(w, 2 * n);
    channel to = {take(w, rows * n), take(w, rows * n), take(w, rows * w->heads)};
    for (int t = 0; t < rows; t++)
        generate_token(w, c, x + t * w->model, rank, hidden, to.w1 + t * n, to.w2 + t * n,
                       to.g + t * w->heads);
    jitter(w, to.w1, rows * n);
    jitter(w, to.w2, rows * n);
    jitter(w, to.g, rows * w->heads);
    return to;
}

static channel load(work *w, int c, int rank)
{
    if (!is_on(w, c)) return (channel){NULL, NULL, NULL};
    if (w->layer) return generate(w, c, rank);
    return (channel){token_numbers(w, c, "w1"), token_numbers(w, c, "w2"),
                     token_numbers(w, c, "g")};
}

/* y += what one channel's token makes of x. */
static void add_channel(const channel *c, int token, int rank, int heads, const double *x,
                        double *y)
{
    if (!c->w1) return;
    for (int n = 0; n < heads; n++) y[n] += c->g[token * heads + n] * x[n];
    for (int r = 0; r < rank; r++) {
        const double *w1 = c->w1 + (token * rank + r) * heads;
        const double *w2 = c->w2 + (token * rank + r) * heads;
        double inner = 0;
        for (int m = 0; m < heads; m++) inner += w1[m] * x[m];
        for (int n = 0; n < heads; n++) y[n] += w2[n] * inner;
    }
}

/* after: 0 scores, 1 weights. */
static void compose(work *w, int after)
{
    int heads = w->heads, tile = w->q_len * w->kv_len;
    int rank = (int)option_number(w, "rank", 2);
    if (option_number(w, after ? "post" : "pre", 1) == 0) return;
    channel q = load(w, 2 * after, rank), k = load(w, 2 * after + 1, rank);
    const double *base = given(w, "dc_static");
    double *x = take(w, heads), *y = take(w, heads);
    for (int at = 0; at < w->batch * tile; at++) {
        int b = at / tile, i = at % tile / w->kv_len, j = at % w->kv_len;
        double *cell = w->cell + b * heads * tile + at % tile;
        for (int h = 0; h < heads; h++) x[h] = y[h] = cell[h * tile];
        add_channel(&q, b * w->q_len + i, rank, heads, x, y);
        add_channel(&k, b * w->kv_len + j, rank, heads, x, y);
        for (int m = 0; base && m < heads; m++)
            for (int n = 0; n < heads; n++)
                y[n] += x[m] * base[(after * heads + m) * heads + n];
        for (int h = 0; h < heads; h++)
            cell[h * tile] = !after || sees(w, b, h, i, j) ? y[h] : 0;
    }
    jitter(w, w->cell, w->batch * heads * tile);
}

static void before(work *w)
{
    compose(w, 0);
}

static void after(work *w)
{
    compose(w, 1);
}

const variant variant_dcmha = {.name = "dcmha", .core = 1, .pre = before, .post = after};
