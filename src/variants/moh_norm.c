/*
 * moh_norm.c - mixture of heads without parameters: a token uses the heads whose queries
 * have the largest norm.
 *
 *     n_e = |q of head S+e|    z = n / (sd + 1e-6)    sd: of n over the E routed heads
 *     gate = 1 for the shared heads and the K largest z, 0 for the others
 *
 * Rotating q does not change its norm, so the rotated q is read. Gradients are straight
 * through: the gradient of a gate that is on is used as that of p = softmax(z). With u =
 * sd + 1e-6, y = (n - mean) / sd and c = sum(dz y) / (E-1):
 *
 *     dn = (dz - c y + c y 1e-6/u) / u        dq += dn q / n
 *
 * sd = 0 and n = 0 give 0 there, not NaN. It runs in double: with E = 2 dz and c y nearly
 * cancel.
 */
#include <math.h>

#include "base/half.h"
#include "variants/route.h"

#define EPS   1e-6 /* added to the deviation */
#define CLOSE 0.25 /* see measure_backward */

static const ph_route *route_of(const ph_kind_call *c)
{
    return (const ph_route *)c->shape->state;
}

static ph_status shape(ph_shape *s, const char *options)
{
    ph_route *r = (ph_route *)s->state;
    return ph_route_shape(s, "moh-norm", options, 0, r);
}

static const float *query_of(const ph_kind_call *c, int row, int e)
{
    const ph_attn *a = &c->shape->attn;
    return c->q + ((int64_t)row * a->q_heads + route_of(c)->shared + e) * a->qk_dim;
}

/* Factor on the square of element d: YaRN scales rotated elements, and the norm is that
   of the query before the rotation. */
static double square_factor(const ph_kind_call *c, int d)
{
    const ph_projection *q = &c->shape->q;
    double scale = c->shape->rope_scale;
    int rotated = d >= q->rope_at && d < q->rope_at + 2 * q->angles;
    return rotated ? 1 / (scale * scale) : 1;
}

static double norm_of(const ph_kind_call *c, int row, int e)
{
    const float *q = query_of(c, row, e);
    double squares = 0;
    for (int d = 0; d < c->shape->attn.qk_dim; d++)
        squares += (double)q[d] * q[d] * square_factor(c, d);
    return sqrt(squares);
}

static void deviation_of(int count, const double *n, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (int e = 0; e < count; e++) sum += n[e];
    *mean = count ? sum / count : 0;
    for (int e = 0; e < count; e++) squares += (n[e] - *mean) * (n[e] - *mean);
    *deviation = count > 1 ? sqrt(squares / (count - 1)) : 0;
}

/* Norms of the routed queries of a token, their mean and deviation. */
static void measure(const ph_kind_call *c, int row, double *n, double *mean,
                    double *deviation)
{
    for (int e = 0; e < route_of(c)->routed; e++) n[e] = norm_of(c, row, e);
    deviation_of(route_of(c)->routed, n, mean, deviation);
}

/* The same norm from x and wq, in double throughout. */
static double exact_norm(const ph_kind_call *c, int row, int e)
{
    enum { COLUMNS = 64 };
    const ph_projection *q = &c->shape->q;
    int head = route_of(c)->shared + e;
    const float *bias = c->weights->bq;
    double squares = 0;
    for (int d = 0; d < q->dim; d += COLUMNS) {
        double sum[COLUMNS] = {0};
        int count = ph_min(COLUMNS, q->dim - d);
        for (int i = 0; i < count && bias; i++) sum[i] = bias[head * q->dim + d + i];
        for (int m = 0; m < q->in; m++) {
            double x = (double)ph_element(c->x, c->shape->desc->attn.dtype,
                                          (int64_t)row * q->in + m);
            for (int i = 0; i < count; i++)
                sum[i] += x * (double)ph_projection_element(q, c->weights->wq, m,
                                                            head * q->dim + d + i);
        }
        for (int i = 0; i < count; i++) squares += sum[i] * sum[i];
    }
    return sqrt(squares);
}

/* Gradients divide by the deviation, and where norms lie close together the rounding of q
   is a large part of it: there the norms are computed again in double. Norms of random
   queries deviate by 0.7 / sqrt(dim) of their mean; below a third of that the errors were
   up to 60 times those of a layer with given gates, now up to 4. */
static void measure_backward(const ph_kind_call *c, int row, double *n, double *mean,
                             double *deviation)
{
    measure(c, row, n, mean, deviation);
    int close = *deviation * sqrt(c->shape->attn.qk_dim) < CLOSE * *mean;
    if (!close || c->shape->q.norm) return;
    for (int e = 0; e < route_of(c)->routed; e++) n[e] = exact_norm(c, row, e);
    deviation_of(route_of(c)->routed, n, mean, deviation);
}

static void open_token(ph_kind_call *c, int row)
{
    const ph_route *r = route_of(c);
    const float *on = c->scratch[PH_ROUTE_ON] + (int64_t)row * r->routed;
    double n[PH_ROUTE_MAX], mean, deviation;
    float z[PH_ROUTE_MAX];
    measure(c, row, n, &mean, &deviation);
    for (int e = 0; e < r->routed; e++) z[e] = (float)(n[e] / (deviation + EPS));
    ph_route_token(c, r, row, z);
    for (int h = 0; h < c->shape->attn.q_heads; h++)
        c->gate[ph_gate_at(c, row, h)] = h < r->shared ? 1 : on[h - r->shared];
}

static void before(ph_kind_call *c)
{
    ph_kind_tokens(c, open_token, ph_kind_close);
    ph_route_count(c, route_of(c));
}

/* ---- and back ---------------------------------------------------------------------- */

/* dz of a token, straight through its gates and from the balance loss; its sum is 0. */
static void logits_backward(const ph_kind_call *c, int row, const double *n, double unit,
                            double *dz)
{
    const ph_route *r = route_of(c);
    const float *on = c->scratch[PH_ROUTE_ON] + (int64_t)row * r->routed;
    double p[PH_ROUTE_MAX], largest = 0;
    const float *share = c->scratch[PH_ROUTE_SHARE];
    double weight = (double)c->args->balance * r->routed / share[r->routed];
    double mass = 0, mean = 0;
    for (int e = 0; e < r->routed; e++) largest = n[e] > largest ? n[e] : largest;
    for (int e = 0; e < r->routed; e++) {
        p[e] = exp((n[e] - largest) / unit);
        dz[e] = weight * share[e]; /* dp for now */
        if (on[e] != 0) dz[e] += c->dgate[ph_gate_at(c, row, r->shared + e)];
        mass += p[e], mean += p[e] * dz[e];
    }
    for (int e = 0; e < r->routed; e++) dz[e] = p[e] / mass * (dz[e] - mean / mass);
}

static void open_token_backward(ph_kind_call *c, int row)
{
    int count = route_of(c)->routed;
    double n[PH_ROUTE_MAX], dz[PH_ROUTE_MAX], mean, deviation, sum = 0;
    measure_backward(c, row, n, &mean, &deviation);
    double unit = deviation + EPS;
    logits_backward(c, row, n, unit, dz);
    for (int e = 0; e < count && deviation > 0; e++)
        sum += dz[e] * (n[e] - mean) / deviation / (count - 1);
    for (int e = 0; e < count; e++) {
        double y = deviation > 0 ? sum * (n[e] - mean) / deviation : 0;
        double dn = (dz[e] - y + y * (EPS / unit)) / unit;
        const float *q = query_of(c, row, e);
        float *dq = c->dq + (q - c->q), factor = (float)(dn / (n[e] + 1e-12));
        for (int d = 0; d < c->shape->attn.qk_dim; d++)
            dq[d] += factor * q[d] * (float)square_factor(c, d);
    }
}

static void before_backward(ph_kind_call *c)
{
    if (route_of(c)->routed) ph_kind_tokens(c, open_token_backward, NULL);
}

static const ph_layer_kind kind = {
    .shape = shape, .before = before, .before_backward = before_backward, .by_heads = 1};

const ph_variant ph_variant_moh_norm = {
    .info = {.name = "moh-norm",
             .options = "moh-norm:shared=S,top=K",
             .help = "mixture of heads routed by the norm of the query, without "
                     "parameters; gates are 0 or 1",
             .tensors = ""},
    .layer = &kind,
};
