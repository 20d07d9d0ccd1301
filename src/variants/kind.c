/*
 * kind.c - what kinds of layers share: parameters, products, loops over tokens, softmax.
 */
#include "variants/kind.h"

#include <limits.h>
#include <math.h>
#include <string.h>

void ph_shape_param(ph_shape *shape, const char *name, int optional, int a, int b, int c,
                    int d)
{
    ph_param *p = &shape->param[shape->params++];
    *p = (ph_param){.name = name, .optional = optional, .dims = {a, b, c, d}};
    while (p->rank < 4 && p->dims[p->rank]) p->rank++;
}

ph_status ph_shape_width(const ph_shape *shape, const char *what, int heads, int64_t dim)
{
    if (dim <= INT_MAX / 64 / heads) return PH_OK;
    return ph_fail(shape->ctx, PH_UNSUPPORTED, "%s of %d heads of %lld is too wide", what,
                   heads, (long long)dim);
}

int ph_shape_is_long(const ph_shape *s)
{
    const double min_floats = 4 << 20; /* floats of q and v of all heads */
    const ph_attn *a = &s->attn;
    return (double)ph_desc_rows(s->desc) * a->q_heads * (a->qk_dim + a->v_dim) >=
           min_floats;
}

void ph_shape_products(ph_shape *shape, const ph_gemm *list, int count)
{
    size_t bytes = ph_gemm_bytes(shape->ctx, list, count);
    if (bytes > shape->work) shape->work = bytes;
}

/* ---- products ---------------------------------------------------------------------- */

static int rows_of(const ph_layer_desc *d, int keys)
{
    return keys ? ph_desc_key_rows(d) : ph_desc_rows(d);
}

static int columns_of(const ph_layer_desc *d, int keys)
{
    return keys && d->memory_dim ? d->memory_dim : d->model_dim;
}

/* y = x w */
static ph_gemm product(const ph_layer_desc *d, const ph_linear *l, const void *x,
                       const float *w, float *y)
{
    int in = columns_of(d, l->keys), n = l->columns;
    ph_gemm g = {.m = rows_of(d, l->keys), .n = n, .k = in};
    g.a = x, g.a_type = d->attn.dtype, g.a_row = in, g.a_col = 1;
    g.b = w, g.b_row = n, g.b_col = 1;
    g.c = y, g.c_row = n;
    return g;
}

/* dx += dy w^T */
static ph_gemm product_dx(const ph_layer_desc *d, const ph_linear *l, const float *dy,
                          const float *w, float *dx)
{
    int in = columns_of(d, l->keys), n = l->columns;
    ph_gemm g = {.m = rows_of(d, l->keys), .n = in, .k = n, .add = 1};
    g.a = dy, g.a_row = n, g.a_col = 1;
    g.b = w, g.b_row = 1, g.b_col = n;
    g.c = dx, g.c_row = in;
    return g;
}

/* dw = x^T dy */
static ph_gemm product_dw(const ph_layer_desc *d, const ph_linear *l, const void *x,
                          const float *dy, float *dw)
{
    int in = columns_of(d, l->keys), n = l->columns;
    ph_gemm g = {.m = in, .n = n, .k = rows_of(d, l->keys)};
    g.a = x, g.a_type = d->attn.dtype, g.a_row = 1, g.a_col = in;
    g.b = dy, g.b_row = n, g.b_col = 1;
    g.c = dw, g.c_row = n;
    return g;
}

void ph_shape_linears(ph_shape *s, ph_linear *list, int count)
{
    ph_gemm y[PH_GEMM_MAX], dw[PH_GEMM_MAX];
    for (int i = 0; i < count; i++) {
        ph_linear *l = &list[i];
        ph_gemm dx = product_dx(s->desc, l, NULL, NULL, NULL);
        y[i] = product(s->desc, l, NULL, NULL, NULL);
        dw[i] = product_dw(s->desc, l, NULL, NULL, NULL);
        ph_shape_products(s, &dx, 1);
        s->flops += 2.0 * y[i].m * y[i].n * y[i].k;
        y[i].same_a = dw[i].same_a = i && l[-1].keys == l->keys;
        size_t *size = l->recomputed ? s->scratch : s->saved;
        l->at = size[l->buffer];
        size[l->buffer] += (size_t)y[i].m * (size_t)y[i].n;
        if (!l->recomputed) s->backward_only[l->buffer] = size[l->buffer];
    }
    ph_shape_products(s, y, count);
    ph_shape_products(s, dw, count);
}

void ph_kind_linears(ph_kind_call *c, const ph_linear *list, int count)
{
    ph_gemm y[PH_GEMM_MAX];
    for (int i = 0; i < count; i++) {
        const ph_linear *l = &list[i];
        float *const *buffers = l->recomputed ? c->scratch : c->saved;
        y[i] = product(c->shape->desc, l, l->keys ? c->source : c->x,
                       c->param[l->param] + l->offset, buffers[l->buffer] + l->at);
        y[i].m = l->keys ? c->key_tokens.rows : c->x_tokens.rows;
        y[i].same_a = i && l[-1].keys == l->keys;
    }
    if (count) ph_gemm_run(c->ctx, y, count, c->work);
}

void ph_kind_linears_backward(ph_kind_call *c, const ph_linear *list, int count)
{
    ph_gemm dw[PH_GEMM_MAX];
    int wanted = 0, keys = -1;
    for (int i = 0; i < count; i++) {
        const ph_linear *l = &list[i];
        float *dparam = c->dparam[l->param], *dx = l->keys ? c->dsource : c->dx;
        const float *dy =
            (l->recomputed ? c->scratch : c->backward_only)[l->buffer] + l->at;
        if (dparam) {
            dw[wanted] = product_dw(c->shape->desc, l, l->keys ? c->source : c->x, dy,
                                    dparam + l->offset);
            dw[wanted++].same_a = keys == l->keys;
            keys = l->keys;
        }
        ph_gemm g = product_dx(c->shape->desc, l, dy, c->param[l->param] + l->offset, dx);
        if (dx) ph_gemm_run(c->ctx, &g, 1, c->work);
    }
    if (wanted) ph_gemm_run(c->ctx, dw, wanted, c->work);
}

/* ---- tokens ------------------------------------------------------------------------ */

enum { CHUNK = 32 }; /* tokens of one item */

typedef struct kind_job {
    ph_kind_call *call;
    const ph_tokens *tokens;
    ph_token *valid, *beyond;
} kind_job;

static void item(void *arg, int lane, int index)
{
    const kind_job *j = arg;
    int end = ph_min((index + 1) * CHUNK, j->tokens->rows);
    (void)lane;
    for (int row = index * CHUNK; row < end; row++) {
        ph_token *step = ph_tokens_has(j->tokens, row) ? j->valid : j->beyond;
        if (step) step(j->call, row);
    }
}

static void run_tokens(ph_kind_call *c, const ph_tokens *tokens, ph_token *valid,
                       ph_token *beyond)
{
    kind_job j = {c, tokens, valid, beyond};
    ph_ctx_run(c->ctx, ph_div_up(tokens->rows, CHUNK), item, &j);
}

void ph_kind_tokens(ph_kind_call *c, ph_token *valid, ph_token *beyond)
{
    run_tokens(c, &c->x_tokens, valid, beyond);
}

void ph_kind_key_tokens(ph_kind_call *c, ph_token *valid, ph_token *beyond)
{
    run_tokens(c, &c->key_tokens, valid, beyond);
}

void ph_kind_close(ph_kind_call *c, int row)
{
    for (int h = 0; h < c->shape->attn.q_heads; h++) c->gate[ph_gate_at(c, row, h)] = 0;
}

/* ---- functions --------------------------------------------------------------------- */

/* With the kernels of attention, so the bits are the same everywhere; in blocks, because
   kernels read and write whole vectors past the end of a row. */
enum { BLOCK = 64 };

/* e[i] = e^x[i] for x <= 0 */
static void exp_below(const ph_ctx *ctx, int n, const float *x, float *e)
{
    float s[BLOCK];
    for (int at = 0; at < n; at += BLOCK) {
        int count = ph_min(BLOCK, n - at);
        for (int i = 0; i < count; i++) s[i] = (float)(x[at + i] * PH_LOG2E);
        ctx->kernels->weights(count, s, 0);
        memcpy(e + at, s, (size_t)count * sizeof *s);
    }
}

void ph_kind_softmax(const ph_ctx *ctx, int n, const float *x, float factor, float *y)
{
    float top = x[0], sum = 0;
    for (int i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    for (int i = 0; i < n; i++) y[i] = x[i] - top;
    exp_below(ctx, n, y, y);
    for (int i = 0; i < n; i++) sum += y[i];
    for (int i = 0; i < n; i++) y[i] = factor * y[i] / sum;
}

double ph_kind_inverse_rms(int n, const float *x, double eps)
{
    double lane[PH_WIDE_LANES] = {0};
    int i = 0;
    for (; i + PH_WIDE_LANES <= n; i += PH_WIDE_LANES)
        for (int l = 0; l < PH_WIDE_LANES; l++) lane[l] += (double)x[i + l] * x[i + l];
    for (; i < n; i++) lane[0] += (double)x[i] * x[i];
    return 1 / sqrt(ph_kind_total(lane) / n + eps);
}

void ph_kind_sigmoid(const ph_ctx *ctx, int n, const float *x, float *y)
{
    float e[BLOCK];
    for (int at = 0; at < n; at += BLOCK) {
        int count = ph_min(BLOCK, n - at);
        for (int i = 0; i < count; i++) e[i] = x[at + i] < 0 ? x[at + i] : -x[at + i];
        exp_below(ctx, count, e, e);
        for (int i = 0; i < count; i++)
            y[at + i] = (x[at + i] < 0 ? e[i] : 1) / (1 + e[i]);
    }
}

void ph_kind_tanh(const ph_ctx *ctx, int n, const float *x, float *y)
{
    float s[BLOCK], lane_max[PH_LANES];
    for (int at = 0; at < n; at += BLOCK) {
        int count = ph_min(BLOCK, n - at);
        memcpy(s, x + at, (size_t)count * sizeof *s);
        for (int i = count; i % PH_LANES; i++) s[i] = 0; /* whole vectors are read */
        ctx->kernels->softcap(1, count, s, 1, lane_max, NULL);
        memcpy(y + at, s, (size_t)count * sizeof *s);
    }
}
