/*
 * layer_oracle.c - see layer_oracle.h. Here: the formulas, forward and backward.
 *
 * Everything is (batch, len, heads, dim) in double; attention wants (batch, heads, len,
 * dim), so tensors are copied on the way into the dense oracle and back again.
 */
#include "layer_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "oracle.h"

static double *zeros(size_t count)
{
    return calloc(count + 1, sizeof(double));
}

/* ---- products ---------------------------------------------------------------------- */

/* y[rows][n] = x[rows][k] w[k][n] + b[n] */
static double *apply(const double *x, const double *w, const double *b, size_t rows,
                     int k, int n)
{
    double *y = zeros(rows * (size_t)n);
    for (size_t r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            double sum = b ? b[j] : 0;
            for (int i = 0; i < k; i++)
                sum += x[r * (size_t)k + (size_t)i] * w[i * n + j];
            y[r * (size_t)n + (size_t)j] = sum;
        }
    return y;
}

/* The gradients of the above; dx is added to, each result may be NULL. */
static void apply_back(const double *x, const double *w, const double *dy, size_t rows,
                       int k, int n, double *dx, double *dw, double *db)
{
    for (size_t r = 0; r < rows; r++)
        for (int j = 0; j < n; j++) {
            double g = dy[r * (size_t)n + (size_t)j];
            if (db) db[j] += g;
            for (int i = 0; i < k; i++) {
                if (dw) dw[i * n + j] += x[r * (size_t)k + (size_t)i] * g;
                if (dx) dx[r * (size_t)k + (size_t)i] += g * w[i * n + j];
            }
        }
}

/* ---- norm and rotation ------------------------------------------------------------- */

typedef struct side {
    int len, heads, dim;
    const int32_t *past;
    const double *gain;
} side;

/* Where the elements of pair p of a head lie. */
static void pair(const ph_layer_desc *d, int p, int *a, int *b)
{
    int half = d->rope == PH_ROPE_HALF;
    *a = half ? p : 2 * p;
    *b = half ? p + d->rope_dims / 2 : 2 * p + 1;
}

/* Rotates one head; sign -1: the transposed rotation. */
static void rotate(const ph_layer_desc *d, double *y, double position, double sign)
{
    for (int p = 0; d->rope && p < d->rope_dims / 2; p++) {
        double t = position * pow((double)d->rope_base, -2.0 * p / d->rope_dims);
        int a, b;
        pair(d, p, &a, &b);
        double ya = y[a], yb = y[b];
        y[a] = ya * cos(t) - sign * yb * sin(t);
        y[b] = yb * cos(t) + sign * ya * sin(t);
    }
}

static double mean_square(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    return sum / n;
}

/* raw (batch, len, heads, dim) as attention sees it, (batch, heads, len, dim) */
static double *positioned(const layer_case *c, const double *raw, side s)
{
    const ph_layer_desc *d = &c->desc;
    int batch = d->attn.batch;
    size_t dim = (size_t)s.dim, count = (size_t)batch * (size_t)(s.len * s.heads);
    double *y = zeros(count * dim);
    for (size_t i = 0; i < count; i++) {
        int h = (int)(i % (size_t)s.heads), t = (int)(i / (size_t)s.heads) % s.len;
        int b = (int)(i / (size_t)s.heads) / s.len;
        double *to = y + ((size_t)(b * s.heads + h) * (size_t)s.len + (size_t)t) * dim;
        memcpy(to, raw + i * dim, dim * sizeof *to);
        if (d->qk_norm) {
            double rms = sqrt(mean_square(to, s.dim) + (double)d->norm_eps);
            for (size_t e = 0; e < dim; e++)
                to[e] = to[e] / rms * (s.gain ? s.gain[e] : 1);
        }
        rotate(d, to, t + (s.past ? s.past[b] : 0), 1);
    }
    return y;
}

/* dy as positioned gave y; returns the gradient of raw, adds to dgain. Every element of
   the Jacobian of the norm is written out. */
static double *unpositioned(const layer_case *c, const double *raw, const double *dy,
                            side s, double *dgain)
{
    const ph_layer_desc *d = &c->desc;
    size_t dim = (size_t)s.dim, count = (size_t)d->attn.batch * (size_t)(s.len * s.heads);
    double *dx = zeros(count * dim), *g = zeros(dim);
    for (size_t i = 0; i < count; i++) {
        int h = (int)(i % (size_t)s.heads), t = (int)(i / (size_t)s.heads) % s.len;
        int b = (int)(i / (size_t)s.heads) / s.len;
        const double *x = raw + i * dim;
        memcpy(g, dy + ((size_t)(b * s.heads + h) * (size_t)s.len + (size_t)t) * dim,
               dim * sizeof *g);
        rotate(d, g, t + (s.past ? s.past[b] : 0), -1);
        double r = 1 / sqrt(mean_square(x, s.dim) + (double)d->norm_eps);
        for (size_t j = 0; j < dim; j++) {
            if (!d->qk_norm) {
                dx[i * dim + j] = g[j];
                continue;
            }
            if (dgain) dgain[j] += g[j] * x[j] * r;
            for (size_t e = 0; e < dim; e++) {
                double derivative = (e == j ? r : 0) - x[e] * x[j] * r * r * r / s.dim;
                dx[i * dim + j] += g[e] * (s.gain ? s.gain[e] : 1) * derivative;
            }
        }
    }
    free(g);
    return dx;
}

/* (batch, len, heads, dim) to (batch, heads, len, dim), or back */
static double *swap(const double *x, int batch, int first, int second, int dim)
{
    size_t row = (size_t)dim, next = 0;
    double *y = zeros((size_t)batch * (size_t)(first * second) * row);
    for (int b = 0; b < batch; b++)
        for (int j = 0; j < second; j++)
            for (int i = 0; i < first; i++, next++)
                memcpy(y + next * row,
                       x + ((size_t)(b * first + i) * (size_t)second + (size_t)j) * row,
                       row * sizeof *y);
    return y;
}

/* ---- the whole --------------------------------------------------------------------- */

typedef struct pass {
    double *q, *k, *v; /* as projected */
    side q_side, k_side;
    dense p;
    answer a;
    double *heads; /* (batch, q_len, q_heads*v_dim) */
} pass;

static double *copy(const double *x, size_t count)
{
    double *y = x ? zeros(count) : NULL;
    if (x) memcpy(y, x, count * sizeof *y);
    return y;
}

static int *lengths(const int32_t *lens, int batch, int full)
{
    int *to = malloc(((size_t)batch + 1) * sizeof *to);
    for (int b = 0; b < batch; b++) to[b] = lens ? lens[b] : full;
    return to;
}

static void fill_dense(const layer_case *c, pass *s)
{
    const ph_attn *a = &c->desc.attn;
    const layer_tensor *t = c->t;
    dense *p = &s->p;
    size_t cells = (size_t)(a->batch * a->q_heads) * (size_t)(a->q_len * a->kv_len);
    size_t shown = (size_t)(a->visible.batch * a->visible.heads) *
                   (size_t)(a->visible.q_len * a->kv_len);
    *p = (dense){.batch = a->batch,
                 .q_heads = a->q_heads,
                 .k_heads = a->k_heads,
                 .v_heads = a->v_heads,
                 .q_len = a->q_len,
                 .kv_len = a->kv_len,
                 .qk_dim = a->qk_dim,
                 .v_dim = a->v_dim,
                 .mask = a->mask,
                 .softcap = (double)a->softcap,
                 .dropout = (double)a->dropout,
                 .band_left = a->band_left,
                 .band_right = a->band_right,
                 .bias_shape = a->bias,
                 .visible_shape = a->visible,
                 .gate_rows = a->gate == PH_GATE_ROW};
    p->scale = a->scale != 0 ? (double)a->scale : 1 / sqrt(a->qk_dim);
    p->q = positioned(c, s->q, s->q_side);
    p->k = positioned(c, s->k, s->k_side);
    p->v = swap(s->v, a->batch, a->kv_len, a->v_heads, a->v_dim);
    p->bias = copy(t[LT_BIAS].value, t[LT_BIAS].count);
    p->gate = copy(t[LT_GATE].value, t[LT_GATE].count);
    p->sink = copy(t[LT_SINK].value, t[LT_SINK].count);
    p->alibi = copy(t[LT_ALIBI].value, t[LT_ALIBI].count);
    p->dlse = copy(t[LT_DLSE].value, t[LT_DLSE].count);
    if (c->visible) p->visible = malloc(shown + 1), memcpy(p->visible, c->visible, shown);
    p->q_lens = lengths(c->q_lens, a->batch, a->q_len);
    p->kv_lens = lengths(c->kv_lens, a->batch, a->kv_len);
    p->offset = lengths(NULL, a->batch, a->anchor == PH_ANCHOR_OFFSET ? a->q_offset : 0);
    for (int b = 0; b < a->batch && a->anchor == PH_ANCHOR_END; b++)
        p->offset[b] = p->kv_lens[b] - p->q_lens[b];
    if (a->dropout > 0) { /* which weights were dropped is read from the library's */
        p->keep = malloc(cells + 1);
        for (size_t i = 0; i < cells; i++)
            p->keep[i] = layer_get(c, &t[LT_WEIGHTS], LT_WEIGHTS, i) != 0;
    }
}

static void open_pass(const layer_case *c, pass *s, int backward)
{
    const ph_layer_desc *d = &c->desc;
    const ph_attn *a = &d->attn;
    const layer_tensor *t = c->t, *m = t[LT_MEMORY].value ? &t[LT_MEMORY] : &t[LT_X];
    size_t q_rows = (size_t)(a->batch * a->q_len),
           kv_rows = (size_t)(a->batch * a->kv_len);
    int in = d->memory_dim ? d->memory_dim : d->model_dim;
    s->q = apply(t[LT_X].value, t[LT_WQ].value, t[LT_BQ].value, q_rows, d->model_dim,
                 a->q_heads * a->qk_dim);
    s->k = apply(m->value, t[LT_WK].value, t[LT_BK].value, kv_rows, in,
                 a->k_heads * a->qk_dim);
    s->v = apply(m->value, t[LT_WV].value, t[LT_BV].value, kv_rows, in,
                 a->v_heads * a->v_dim);
    s->q_side = (side){a->q_len, a->q_heads, a->qk_dim, c->past, t[LT_Q_NORM].value};
    s->k_side = (side){a->kv_len, a->k_heads, a->qk_dim, d->memory_dim ? NULL : c->past,
                       t[LT_K_NORM].value};
    fill_dense(c, s);
    answer_init(&s->a, &s->p, backward);
    oracle_forward(&s->p, &s->a, NULL);
    s->heads = swap(s->a.out, a->batch, a->q_heads, a->q_len, a->v_dim);
}

static void close_pass(pass *s)
{
    answer_free(&s->a);
    dense_free(&s->p);
    free(s->q), free(s->k), free(s->v), free(s->heads);
}

void layer_oracle_forward(layer_case *c)
{
    const ph_layer_desc *d = &c->desc;
    const ph_attn *a = &d->attn;
    layer_tensor *t = c->t;
    size_t rows = (size_t)(a->batch * a->q_len), wide = (size_t)(a->q_heads * a->v_dim);
    pass s = {0};
    open_pass(c, &s, 0);
    memcpy(t[LT_HEADS].value, s.heads, rows * wide * sizeof(double));
    memcpy(t[LT_LSE].value, s.a.lse, rows * (size_t)a->q_heads * sizeof(double));
    double *out = d->concat ? copy(s.heads, rows * wide)
                            : apply(s.heads, t[LT_WO].value, t[LT_BO].value, rows,
                                    (int)wide, d->out_dim);
    for (size_t r = 0; r < rows; r++)
        for (int j = 0; j < d->out_dim; j++) {
            size_t at = r * (size_t)d->out_dim + (size_t)j;
            int dead = (int)r % a->q_len >= s.p.q_lens[(int)r / a->q_len];
            t[LT_OUT].value[at] = dead ? 0 : out[at];
        }
    free(out);
    close_pass(&s);
}

/* dk or dq: from attention's order through the norm into a projection's gradients */
static void back_side(layer_case *c, const double *raw, const double *dy, side s,
                      int norm, int w, int b, int in, const layer_tensor *x, double *dx)
{
    layer_tensor *g = c->g;
    double *dgain = g[norm].value;
    double *draw = unpositioned(c, raw, dy, s, dgain);
    apply_back(x->value, c->t[w].value, draw, (size_t)(c->desc.attn.batch * s.len), in,
               s.heads * s.dim, dx, g[w].value, g[b].value);
    free(draw);
}

void layer_oracle_backward(layer_case *c)
{
    const ph_layer_desc *d = &c->desc;
    const ph_attn *a = &d->attn;
    layer_tensor *t = c->t, *g = c->g;
    int memory = d->memory_dim > 0, in = memory ? d->memory_dim : d->model_dim;
    int wide = a->q_heads * a->v_dim, source = memory ? LT_MEMORY : LT_X;
    size_t rows = (size_t)(a->batch * a->q_len);
    pass s = {0};
    open_pass(c, &s, 1);
    for (int i = 0; i < LT_GRADS; i++)
        if (g[i].value) memset(g[i].value, 0, g[i].count * sizeof(double));
    double *dheads = d->concat ? copy(t[LT_DOUT].value, rows * (size_t)wide)
                               : zeros(rows * (size_t)wide);
    if (!d->concat)
        apply_back(s.heads, t[LT_WO].value, t[LT_DOUT].value, rows, wide, d->out_dim,
                   dheads, g[LT_WO].value, g[LT_BO].value);
    s.p.dout = swap(dheads, a->batch, a->q_len, a->q_heads, a->v_dim);
    oracle_backward(&s.p, &s.a, NULL);
    back_side(c, s.q, s.a.dq, s.q_side, LT_Q_NORM, LT_WQ, LT_BQ, d->model_dim, &t[LT_X],
              g[LT_X].value);
    back_side(c, s.k, s.a.dk, s.k_side, LT_K_NORM, LT_WK, LT_BK, in, &t[source],
              g[source].value);
    double *dv = swap(s.a.dv, a->batch, a->v_heads, a->kv_len, a->v_dim);
    apply_back(t[source].value, t[LT_WV].value, dv, (size_t)(a->batch * a->kv_len), in,
               a->v_heads * a->v_dim, g[source].value, g[LT_WV].value, g[LT_BV].value);
    const struct {
        int id;
        const double *from;
    } rest[] = {{LT_BIAS, s.a.dbias}, {LT_GATE, s.a.dgate}, {LT_SINK, s.a.dsink}};
    for (int i = 0; i < 3; i++)
        if (g[rest[i].id].value)
            memcpy(g[rest[i].id].value, rest[i].from,
                   g[rest[i].id].count * sizeof(double));
    free(dv), free(dheads);
    close_pass(&s);
}

double layer_oracle_loss(layer_case *c)
{
    const layer_tensor *t = c->t;
    double loss = 0;
    layer_oracle_forward(c);
    for (size_t i = 0; i < t[LT_OUT].count; i++)
        loss += t[LT_OUT].value[i] * t[LT_DOUT].value[i];
    for (size_t i = 0; t[LT_DLSE].value && i < t[LT_LSE].count; i++)
        if (isfinite(t[LT_LSE].value[i]))
            loss += t[LT_LSE].value[i] * t[LT_DLSE].value[i];
    return loss;
}
