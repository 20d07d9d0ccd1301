/*
 * variant_moh.c - mixture of heads (spec moh, sections 2 to 4).
 *
 * H heads, the first S shared, E = H - S routed, of which each token uses K. Per token:
 *
 *     pr = softmax(x moh_wr) over E    A = its K largest, ties to the lowest index
 *     ps = softmax(x moh_ws) over S    al = softmax(x moh_wh), 2 entries
 *     code:   w = 2 al_0 S ps_s   and   2 al_1 K pr_e / sum_A pr   for e in A, else 0
 *     paper:  w =   al_0   ps_s   and     al_1   pr_e              for e in A, else 0
 *     S = 0: no al (its factor is 1); S = 1: ps = 1; K = 0: w = S ps_s (paper: ps_s)
 *
 *     balance_loss = E sum_e P_e f_e (paper: without E), P mean of pr over tokens, f the
 *     fraction of the tokens that use e; 0 when nothing is routed
 *
 * moh-norm routes by n_e = |q of head S+e| before the rotation:
 *
 *     pr = softmax(n / (sd + 1e-6)), sd unbiased over E    w = 1 for shared and chosen
 */
#include <math.h>

#include "variant_parts.h"

typedef struct router {
    int shared, routed, top;
    int paper;   /* 1: score=paper */
    int by_norm; /* 1: moh-norm */
} router;

static router describe(const work *w, int by_norm)
{
    router r = {.shared = (int)option_number(w, "shared", 0),
                .top = (int)option_number(w, "top", 0),
                .paper = option_is(w, "score", "paper"),
                .by_norm = by_norm};
    r.routed = w->heads - r.shared;
    return r;
}

static void soften(double *z, int n)
{
    variant_entmax(z, n, 1, NULL);
}

/* softmax(x m), columns 0..n-1, of token t. */
static void scores_of(const work *w, int t, const char *matrix, int n, double *p)
{
    const double *m = given(w, matrix), *x = w->x + t * w->model;
    for (int e = 0; e < n; e++) {
        p[e] = 0;
        for (int c = 0; c < w->model; c++) p[e] += x[c] * m[c * n + e];
    }
    soften(p, n);
}

/* softmax over the routed heads of the norms of q, in units of their deviation. */
static void norms_of(const work *w, int t, const router *r, double *p)
{
    int b = t / w->q_len, i = t % w->q_len, n = r->routed;
    double mean = 0, spread = 0;
    for (int e = 0; e < n; e++) {
        int row = (b * w->heads + r->shared + e) * w->q_len + i;
        double sum = 0;
        for (int d = 0; d < w->qk_dim; d++) sum += pow(w->q[row * w->qk_dim + d], 2);
        p[e] = sqrt(sum);
        mean += p[e] / n;
    }
    for (int e = 0; e < n; e++) spread += pow(p[e] - mean, 2);
    double unit = (n > 1 ? sqrt(spread / (n - 1)) : 0) + 1e-6;
    for (int e = 0; e < n; e++) p[e] /= unit;
    soften(p, n);
}

static int is_chosen(const double *p, int n, int top, int e)
{
    int before = 0;
    for (int a = 0; a < n; a++) before += p[a] > p[e] || (p[a] == p[e] && a < e);
    return before < top;
}

/* Gates of the routed heads of one token from pr. */
static void gates_routed(const work *w, const router *r, const double *pr, double factor,
                         int t, double *gate)
{
    double sum = 0;
    for (int e = 0; e < r->routed; e++)
        if (is_chosen(pr, r->routed, r->top, e)) sum += pr[e];
    for (int e = 0; e < r->routed; e++) {
        gate[e] = 0;
        if (!is_chosen(pr, r->routed, r->top, e)) continue;
        gate[e] = factor * (r->paper ? pr[e] : r->top * pr[e] / sum);
        if (r->by_norm) gate[e] = 1;
        if (r->by_norm && w->o->frozen)
            gate[e] += pr[e] - w->o->frozen[t * r->routed + e];
    }
}

static void gates_shared(const work *w, const router *r, double factor, int t,
                         double *gate)
{
    for (int s = 0; s < r->shared; s++) gate[s] = 1;
    if (r->by_norm) return;
    if (r->shared > 1 || r->routed == 0) scores_of(w, t, "moh_ws", r->shared, gate);
    for (int s = 0; s < r->shared; s++) gate[s] *= r->paper ? factor : factor * r->shared;
}

static void gates_of(const work *w, const router *r, int t, double *pr, double *gate)
{
    double al[2] = {1, 1};
    if (!r->by_norm && r->shared > 0 && r->top > 0) {
        scores_of(w, t, "moh_wh", 2, al);
        for (int c = 0; c < 2 && !r->paper; c++) al[c] *= 2;
    }
    gates_shared(w, r, al[0], t, gate);
    if (r->top == 0) return;
    if (r->by_norm)
        norms_of(w, t, r, pr);
    else
        scores_of(w, t, "moh_wr", r->routed, pr);
    gates_routed(w, r, pr, al[1], t, gate + r->shared);
}

/* Over all tokens, with gates in place. */
static double balance(const work *w, const router *r, const double *pr)
{
    double loss = 0, tokens = 0;
    for (int b = 0; b < w->batch; b++) tokens += w->q_lens ? w->q_lens[b] : w->q_len;
    for (int e = 0; e < r->routed && r->top > 0 && tokens > 0; e++) {
        double p = 0, f = 0;
        for (int t = 0; t < w->batch * w->q_len; t++) {
            int b = t / w->q_len, i = t % w->q_len;
            if (w->q_lens && i >= (int)w->q_lens[b]) continue;
            p += pr[t * r->routed + e];
            f += is_chosen(pr + t * r->routed, r->routed, r->top, e);
        }
        loss += p / tokens * (f / tokens);
    }
    return r->paper ? loss : r->routed * loss;
}

static void route_by(work *w, int by_norm)
{
    router r = describe(w, by_norm);
    int heads = w->heads, tokens = w->batch * w->q_len;
    double *pr = bag_put(w->result, "scores", w->batch, w->q_len, r.routed, -1);
    double *gate = bag_put(w->result, "gate", w->batch, heads, w->q_len, -1);
    double *one = take(w, heads);
    for (int t = 0; t < tokens; t++) {
        int b = t / w->q_len, i = t % w->q_len;
        if (w->q_lens && i >= (int)w->q_lens[b]) continue;
        gates_of(w, &r, t, pr + t * r.routed, one);
        for (int h = 0; h < heads; h++) gate[(b * heads + h) * w->q_len + i] = one[h];
    }
    jitter(w, pr, tokens * r.routed);
    jitter(w, gate, tokens * heads);
    w->route = gate;
    bag_put(w->result, "balance_loss", 1, -1, -1, -1)[0] = balance(w, &r, pr);
}

static void route(work *w)
{
    route_by(w, 0);
}

static void route_norm(work *w)
{
    route_by(w, 1);
}

const variant variant_moh = {.name = "moh", .route = route};
const variant variant_moh_norm = {.name = "moh-norm", .route = route_norm};
