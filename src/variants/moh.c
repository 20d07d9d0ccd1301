/*
 * moh.c - mixture of heads: every token uses the shared heads and some of the others.
 *
 * H heads: S shared, E = H - S routed, of which a token uses the K best. Per token:
 *
 *     zr = x moh_wr (E)     zs = x moh_ws (S)     zh = x moh_wh (2)
 *     A  = the K largest of zr, equal ones by index
 *
 *     gate     score=code                               score=paper
 *     shared   2 softmax(zh)_0 * S softmax(zs)          softmax(zh)_0 * softmax(zs)
 *     routed   2 softmax(zh)_1 * K softmax(zr in A)     softmax(zh)_1 * softmax(zr)
 *     else     0: not computed, forward or backward
 *
 * The constants of the code make every gate exactly 1 where logits are equal. Without
 * shared heads there is no zh, its factor is 1; one shared head needs no zs; where all
 * are shared (K = 0) there is only zs: gate = S softmax(zs).
 */
#include <string.h>

#include "variants/route.h"

#define MAX_SPARSE_HEADS 0.375 /* of all heads: up to here gathering tokens pays */

enum { ZR, ZS, ZH }; /* saved: logits */
enum { GATES };      /* scratch: (rows, H + 2) factors */

typedef struct moh_state {
    ph_route route;
    int has_s, has_h;
    int linears;
    ph_linear linear[3]; /* those of ZR, ZS, ZH that exist */
} moh_state;

_Static_assert(sizeof(moh_state) <= PH_KIND_STATE, "state of moh");

static const moh_state *state_of(const ph_kind_call *c)
{
    return (const moh_state *)c->shape->state;
}

static void add_linear(ph_shape *s, moh_state *own, const char *name, int columns,
                       int buffer)
{
    own->linear[own->linears++] =
        (ph_linear){.param = s->params, .columns = columns, .buffer = buffer};
    ph_shape_param(s, name, 0, s->desc->model_dim, columns, 0, 0);
}

static ph_status shape(ph_shape *s, const char *options)
{
    moh_state *own = (moh_state *)s->state;
    const ph_route *r = &own->route;
    PH_TRY(ph_route_shape(s, "moh", options, 1, &own->route));
    own->has_h = r->shared && r->routed;
    own->has_s = r->shared > 1 || !r->routed;
    if (r->routed) add_linear(s, own, "moh_wr", r->routed, ZR);
    if (own->has_s) add_linear(s, own, "moh_ws", r->shared, ZS);
    if (own->has_h) add_linear(s, own, "moh_wh", 2, ZH);
    ph_shape_linears(s, own->linear, own->linears);
    s->sparse_q = s->active <= MAX_SPARSE_HEADS && s->desc->qk_norm != PH_QK_NORM_WHOLE;
    s->scratch[GATES] = (size_t)ph_desc_rows(s->desc) * (size_t)(s->attn.q_heads + 2);
    return PH_OK;
}

static void project(ph_kind_call *c)
{
    ph_kind_linears(c, state_of(c)->linear, state_of(c)->linears);
}

/* ---- from logits to gates ---------------------------------------------------------- */

/* The factors of one token: a gate is type * shared or type * routed. */
typedef struct moh_factors {
    float *shared, *routed; /* (S), (E) */
    float *type;            /* (2) */
} moh_factors;

static moh_factors factors_of(const ph_kind_call *c, int row)
{
    const ph_route *r = &state_of(c)->route;
    float *at = c->scratch[GATES] + (int64_t)row * (c->shape->attn.q_heads + 2);
    return (moh_factors){at, at + r->shared, at + r->shared + r->routed};
}

/* K softmax over the heads that are on; 0 for the others. */
static void spread(const ph_kind_call *c, const ph_route *r, int row, const float *z,
                   float *g)
{
    float some[PH_ROUTE_MAX], part[PH_ROUTE_MAX];
    const float *on = c->scratch[PH_ROUTE_ON] + (int64_t)row * r->routed;
    int n = 0;
    for (int e = 0; e < r->routed; e++)
        if (on[e] != 0) some[n++] = z[e];
    ph_kind_softmax(c->ctx, n, some, (float)r->top, part);
    for (int e = 0, i = 0; e < r->routed; e++) g[e] = on[e] != 0 ? part[i++] : 0;
}

static void route_heads(ph_kind_call *c, const moh_state *own, int row, float *g)
{
    const ph_route *r = &own->route;
    const float *z = c->saved[ZR] + (int64_t)row * r->routed;
    const float *on = c->scratch[PH_ROUTE_ON] + (int64_t)row * r->routed;
    const float *p = c->scratch[PH_ROUTE_P] + (int64_t)row * r->routed;
    ph_route_token(c, r, row, z);
    if (!r->paper) spread(c, r, row, z, g);
    for (int e = 0; e < r->routed && r->paper; e++) g[e] = on[e] * p[e];
}

static void open_token(ph_kind_call *c, int row)
{
    const moh_state *own = state_of(c);
    const ph_route *r = &own->route;
    moh_factors f = factors_of(c, row);
    f.type[0] = f.type[1] = 1;
    for (int s = 0; s < r->shared; s++) f.shared[s] = 1;
    if (own->has_h)
        ph_kind_softmax(c->ctx, 2, c->saved[ZH] + (int64_t)row * 2, r->paper ? 1 : 2,
                        f.type);
    if (own->has_s)
        ph_kind_softmax(c->ctx, r->shared, c->saved[ZS] + (int64_t)row * r->shared,
                        r->paper ? 1 : (float)r->shared, f.shared);
    if (r->routed) route_heads(c, own, row, f.routed);
    for (int h = 0; h < c->shape->attn.q_heads; h++)
        c->gate[ph_gate_at(c, row, h)] = f.shared[h] * f.type[h >= r->shared];
}

static void before(ph_kind_call *c)
{
    ph_kind_tokens(c, open_token, ph_kind_close);
    ph_route_count(c, &state_of(c)->route);
}

/* ---- and back ---------------------------------------------------------------------- */

/* Gradients of the factors of one token, from those of its gates; shared heads come
   first in both. */
static void split_gates(const ph_kind_call *c, int row, const moh_factors *f,
                        float *dfactor, float *dtype)
{
    int shared = state_of(c)->route.shared;
    dtype[0] = dtype[1] = 0;
    for (int h = 0; h < c->shape->attn.q_heads; h++) {
        float dgate = c->dgate[ph_gate_at(c, row, h)];
        dfactor[h] = dgate * f->type[h >= shared];
        dtype[h >= shared] += dgate * f->shared[h];
    }
}

static void route_heads_backward(const ph_kind_call *c, const moh_state *own, int row,
                                 const float *g, const float *dg)
{
    const ph_route *r = &own->route;
    float *dz = c->backward_only[ZR] + (int64_t)row * r->routed, dp[PH_ROUTE_MAX];
    const float *on = c->scratch[PH_ROUTE_ON] + (int64_t)row * r->routed;
    const float *p = c->scratch[PH_ROUTE_P] + (int64_t)row * r->routed;
    for (int e = 0; e < r->routed; e++) dp[e] = dg[e] * on[e];
    ph_softmax_backward(r->routed, r->paper ? p : g, dp, dz);
    ph_route_balance(c, r, row, dz);
}

static void open_token_backward(ph_kind_call *c, int row)
{
    const moh_state *own = state_of(c);
    const ph_route *r = &own->route;
    moh_factors f = factors_of(c, row);
    float dfactor[PH_ROUTE_MAX], dtype[2];
    split_gates(c, row, &f, dfactor, dtype);
    if (own->has_h)
        ph_softmax_backward(2, f.type, dtype, c->backward_only[ZH] + (int64_t)row * 2);
    if (own->has_s)
        ph_softmax_backward(r->shared, f.shared, dfactor,
                            c->backward_only[ZS] + (int64_t)row * r->shared);
    if (r->routed) route_heads_backward(c, own, row, f.routed, dfactor + r->shared);
}

static void no_token(ph_kind_call *c, int row)
{
    const moh_state *own = state_of(c);
    for (int i = 0; i < own->linears; i++) {
        int n = own->linear[i].columns;
        float *dz = c->backward_only[own->linear[i].buffer] + (int64_t)row * n;
        memset(dz, 0, (size_t)n * sizeof *dz);
    }
}

static void before_backward(ph_kind_call *c)
{
    ph_kind_tokens(c, open_token_backward, no_token);
}

static void project_backward(ph_kind_call *c)
{
    ph_kind_linears_backward(c, state_of(c)->linear, state_of(c)->linears);
}

static const ph_layer_kind kind = {.shape = shape,
                                   .project = project,
                                   .before = before,
                                   .before_backward = before_backward,
                                   .project_backward = project_backward,
                                   .by_heads = 1};

const ph_variant ph_variant_moh = {
    .info = {.name = "moh",
             .options = "moh:shared=S,top=K[,score=code|paper]",
             .help =
                 "mixture of heads: every token uses S shared heads and the top K of the "
                 "others by its router; the rest costs nothing",
             .tensors =
                 "moh_wr (model_dim, H-S) router of the routed heads; none if S = H\n"
                 "moh_ws (model_dim, S) of the shared heads; none if S = 0, S = 1 < H\n"
                 "moh_wh (model_dim, 2) shared against routed; none if S = 0 or H\n"},
    .layer = &kind,
};
