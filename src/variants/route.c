/*
 * route.c - see route.h.
 */
#include "variants/route.h"

ph_status ph_route_shape(ph_shape *s, const char *name, const char *options, int scores,
                         ph_route *route)
{
    double shared = 0, top = 0;
    int heads = s->attn.q_heads;
    const ph_variant_option list[] = {
        {.key = "shared", .number = &shared, .most = heads, .whole = 1},
        {.key = "top", .number = &top, .most = heads, .whole = 1},
        {.key = "score", .word = &route->paper, .words = "code|paper"}};
    if (heads > PH_ROUTE_MAX)
        return ph_fail(s->ctx, PH_UNSUPPORTED, "q_heads is %d, expected at most %d",
                       heads, PH_ROUTE_MAX);
    PH_TRY(ph_options_read(s->ctx, name, options, list, scores ? 3 : 2));
    route->shared = (int)shared;
    route->top = (int)top;
    route->routed = heads - route->shared;
    if (route->top > route->routed || (route->routed && !route->top))
        return ph_fail(s->ctx, PH_BAD_ARGUMENT,
                       "option top of variant %s is %d, expected %s%d of the %d heads "
                       "that are not shared",
                       name, route->top, route->routed ? "1 to " : "", route->routed,
                       route->routed);
    size_t rows = (size_t)ph_desc_rows(s->desc);
    s->scratch[PH_ROUTE_P] = s->scratch[PH_ROUTE_ON] = rows * (size_t)route->routed;
    s->scratch[PH_ROUTE_SHARE] = (size_t)route->routed + 1;
    s->makes_gate = s->routes = 1;
    s->active = (double)(route->shared + route->top) / heads;
    return PH_OK;
}

void ph_route_token(ph_kind_call *c, const ph_route *r, int row, const float *z)
{
    int n = r->routed;
    float *on = c->scratch[PH_ROUTE_ON] + (int64_t)row * n;
    if (!n) return;
    ph_kind_softmax(c->ctx, n, z, 1, c->scratch[PH_ROUTE_P] + (int64_t)row * n);
    for (int e = 0; e < n; e++) {
        int rank = 0;
        for (int i = 0; i < n; i++) rank += z[i] > z[e] || (z[i] == z[e] && i < e);
        on[e] = rank < r->top;
    }
}

/* Sum over the valid tokens of column e, in their order. */
static double sum_column(const ph_kind_call *c, const float *x, int n, int e)
{
    const ph_tokens *tokens = &c->x_tokens;
    double sum = 0;
    for (int b = 0; b < tokens->batch; b++)
        for (int t = 0; t < ph_tokens_valid(tokens, b); t++)
            sum += x[((int64_t)ph_tokens_first(tokens, b) + t) * n + e];
    return sum;
}

static int count_tokens(const ph_kind_call *c)
{
    int count = 0;
    for (int b = 0; b < c->x_tokens.batch; b++) count += ph_tokens_valid(&c->x_tokens, b);
    return count;
}

void ph_route_count(ph_kind_call *c, const ph_route *r)
{
    int n = r->routed;
    double loss = 0, tokens = ph_max(count_tokens(c), 1);
    for (int e = 0; e < n; e++) {
        double used = sum_column(c, c->scratch[PH_ROUTE_ON], n, e) / tokens;
        double mass = sum_column(c, c->scratch[PH_ROUTE_P], n, e) / tokens;
        c->scratch[PH_ROUTE_SHARE][e] = (float)used;
        loss += used * mass;
    }
    c->scratch[PH_ROUTE_SHARE][n] = (float)tokens;
    if (c->args->balance_loss)
        *c->args->balance_loss = (float)(r->paper ? loss : n * loss);
}

/* x minus its mean with weights y. Where one y is nearly all of the sum, its x is nearly
   the mean, and what is left of it are the others' small contributions: so the means are
   taken from there on, and divided by the sum of y as rounded. */
static void subtract_mean(int n, const float *y, const float *x, double *centered)
{
    double product = 0, sum = 0;
    int m = 0;
    for (int i = 1; i < n; i++)
        if (y[i] > y[m]) m = i;
    for (int i = 0; i < n; i++) {
        centered[i] = (double)x[i] - x[m];
        product += centered[i] * y[i], sum += y[i];
    }
    for (int i = 0; i < n && sum != 0; i++) centered[i] -= product / sum;
}

void ph_route_balance(const ph_kind_call *c, const ph_route *r, int row, float *dz)
{
    int n = r->routed;
    const float *p = c->scratch[PH_ROUTE_P] + (int64_t)row * n;
    const float *share = c->scratch[PH_ROUTE_SHARE];
    float weight = c->args->balance * (r->paper ? 1 : (float)n) / share[n];
    double centered[PH_ROUTE_MAX];
    subtract_mean(n, p, share, centered);
    for (int e = 0; e < n; e++) dz[e] += (float)(weight * p[e] * centered[e]);
}

void ph_softmax_backward(int n, const float *y, const float *dy, float *dz)
{
    double centered[PH_ROUTE_MAX];
    subtract_mean(n, y, dy, centered);
    for (int i = 0; i < n; i++) dz[i] = (float)(y[i] * centered[i]);
}
