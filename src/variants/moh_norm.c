/*
 * moh_norm.c - mixture of heads without parameters: a token uses the heads whose queries
 * are longest.
 *
 *     n_e = |q of head S+e|    z = n / (sd + 1e-6)    sd: of n over the E routed heads
 *     gate = 1 for the shared heads and the K largest z, 0 for the others
 *
 * q is as attention sees it; turning it by position does not change its length. The way
 * back is straight through: the gradient of a gate that is on is taken for that of
 * p = softmax(z). With m the mean of n and u = sd + 1e-6:
 *
 *     dn_e = dz_e / u - sum(dz n) / u^2 * (n_e - m) / ((E-1) sd)      dq += dn_e q / n_e
 *
 * sd = 0 and n_e = 0 give 0 there, not NaN.
 */
#include <math.h>

#include "variants/route.h"

enum { NORMS }; /* spare: (rows, E) n */

static const ph_route *route_of(const ph_kind_call *c)
{
    return (const ph_route *)c->shape->state;
}

static ph_status shape(ph_shape *s, const char *options)
{
    ph_route *r = (ph_route *)s->state;
    PH_TRY(ph_route_shape(s, "moh-norm", options, 0, r));
    s->spare[NORMS] = s->spare[PH_ROUTE_P];
    return PH_OK;
}

/* Mean and deviation of the norms of a token. */
static void measure(const float *n, int count, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (int e = 0; e < count; e++) sum += n[e];
    *mean = sum / count;
    for (int e = 0; e < count; e++) squares += (n[e] - *mean) * (n[e] - *mean);
    *deviation = count > 1 ? sqrt(squares / (count - 1)) : 0;
}

static const float *query_of(const ph_kind_call *c, int row, int e)
{
    const ph_attn *a = &c->shape->attn;
    return c->q + ((int64_t)row * a->q_heads + route_of(c)->shared + e) * a->qk_dim;
}

static void open_token(ph_kind_call *c, int row, int b, int t)
{
    const ph_route *r = route_of(c);
    float *n = c->spare[NORMS] + (int64_t)row * r->routed, z[PH_ROUTE_MOST];
    const float *on = c->spare[PH_ROUTE_ON] + (int64_t)row * r->routed;
    double mean, deviation;
    for (int e = 0; e < r->routed; e++) {
        const float *q = query_of(c, row, e);
        double sum = 0;
        for (int d = 0; d < c->shape->attn.qk_dim; d++) sum += (double)q[d] * q[d];
        n[e] = (float)sqrt(sum);
    }
    measure(n, ph_max(r->routed, 1), &mean, &deviation);
    for (int e = 0; e < r->routed; e++) z[e] = (float)(n[e] / (deviation + 1e-6));
    ph_route_token(c, r, row, z);
    for (int h = 0; h < c->shape->attn.q_heads; h++)
        c->gate[ph_gate_at(c, b, h, t)] = h < r->shared ? 1 : on[h - r->shared];
}

static void before(ph_kind_call *c)
{
    ph_kind_tokens(c, open_token, ph_kind_close);
    ph_route_count(c, route_of(c));
}

/* ---- and back ---------------------------------------------------------------------- */

/* dz of a token, straight through its gates. */
static void straight_through(const ph_kind_call *c, int row, int b, int t, float *dz)
{
    const ph_route *r = route_of(c);
    const float *on = c->spare[PH_ROUTE_ON] + (int64_t)row * r->routed;
    const float *p = c->spare[PH_ROUTE_P] + (int64_t)row * r->routed;
    float dp[PH_ROUTE_MOST];
    for (int e = 0; e < r->routed; e++)
        dp[e] = on[e] * c->dgate[ph_gate_at(c, b, r->shared + e, t)];
    ph_softmax_back(r->routed, p, dp, 1, dz);
    ph_route_balance(c, r, row, dz);
}

static void open_token_back(ph_kind_call *c, int row, int b, int t)
{
    const ph_route *r = route_of(c);
    const ph_attn *a = &c->shape->attn;
    const float *n = c->spare[NORMS] + (int64_t)row * r->routed;
    float dz[PH_ROUTE_MOST];
    double mean, deviation, sum = 0;
    straight_through(c, row, b, t, dz);
    measure(n, r->routed, &mean, &deviation);
    double unit = deviation + 1e-6, spread = (r->routed - 1) * deviation;
    for (int e = 0; e < r->routed; e++) sum += (double)dz[e] * n[e];
    for (int e = 0; e < r->routed; e++) {
        double dn = dz[e] / unit;
        if (spread > 0) dn -= sum / (unit * unit) * (n[e] - mean) / spread;
        const float *q = query_of(c, row, e);
        float *dq = c->dq + (q - c->q), factor = (float)(dn / (n[e] + 1e-12));
        for (int d = 0; d < a->qk_dim; d++) dq[d] += factor * q[d];
    }
}

static void before_back(ph_kind_call *c)
{
    if (route_of(c)->routed) ph_kind_tokens(c, open_token_back, NULL);
}

static const ph_layer_kind kind = {
    .shape = shape, .before = before, .before_back = before_back};

const ph_variant ph_variant_moh_norm = {
    .info = {.name = "moh-norm",
             .options = "moh-norm:shared=S,top=K",
             .help = "mixture of heads that routes by the length of the query, without "
                     "parameters; gates are 0 or 1",
             .tensors = ""},
    .layer = &kind,
};
