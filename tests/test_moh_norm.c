/*
 * test_moh_norm.c - gradients of moh-norm in f32 against double: within four times the
 * error that the same layer has with the same gates given, and what the router makes of
 * it.
 *
 * With gates given, nothing runs through the router, and the gradient of a gate has an
 * error E (the largest of all gates). The router's own gradient is linear in those of the
 * gates and divides by the deviation of a token's norms: by a hundredth of their mean
 * where they lie close together, and E comes out a hundred times as large. Y is what
 * errors of E with random signs become in a tensor, the largest of some draws:
 *
 *     |found - truth| <= 4 (error with gates given + Y)
 */
#include <math.h>

#include "check.h"
#include "every.h"
#include "guard.h"
#include "layer_oracle.h"

enum { SHARED = 1, TOP = 2, TOKENS = 24, DRAWS = 8 };

typedef struct size {
    int heads, dim, model;
} size;

static void build(layer_case *c, const size *s, uint64_t seed)
{
    unsigned have = 1u << LT_X | 1u << LT_WQ | 1u << LT_WK | 1u << LT_WV | 1u << LT_WO |
                    1u << LT_GATE | 1u << LT_DOUT | 1u << LT_OUT | 1u << LT_HEADS |
                    1u << LT_LSE;
    memset(c, 0, sizeof *c);
    c->desc = (ph_layer_desc){.model_dim = s->model, .out_dim = s->model};
    c->desc.attn = (ph_attn){.batch = 1,
                             .q_heads = s->heads,
                             .k_heads = s->heads,
                             .v_heads = s->heads,
                             .q_len = TOKENS,
                             .kv_len = TOKENS,
                             .qk_dim = s->dim,
                             .v_dim = s->dim,
                             .gate = PH_GATE_ROW,
                             .backward = 1};
    layer_build(c, seed, have, 0);
}

/* Forward and backward of the library. */
static void run(ph_ctx *ctx, layer_case *c)
{
    ph_layer *layer = NULL;
    CHECK(ph_layer_create(&layer, ctx, &c->desc) == PH_OK, "%s", ph_error(ctx));
    c->args.saved_size = ph_layer_saved(layer);
    c->args.saved = guard_alloc(c->args.saved_size);
    CHECK(ph_layer_forward(layer, &c->weights, &c->args) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_layer_backward(layer, &c->weights, &c->args, &c->grads) == PH_OK, "%s",
          ph_error(ctx));
    guard_free(c->args.saved);
    ph_layer_free(layer);
}

/* Norms of the routed queries of a token in double, their mean and deviation. */
static void measure(const layer_case *c, int t, double *q, double *n, double *mean,
                    double *deviation)
{
    const ph_attn *a = &c->desc.attn;
    int model = c->desc.model_dim, wide = a->q_heads * a->qk_dim, count = a->q_heads;
    double squares = 0;
    *mean = 0;
    for (int e = 0; e < wide; e++) {
        q[e] = 0;
        for (int m = 0; m < model; m++)
            q[e] += c->t[LT_X].value[t * model + m] * c->t[LT_WQ].value[m * wide + e];
    }
    for (int h = SHARED; h < count; h++) {
        n[h] = 0;
        for (int d = 0; d < a->qk_dim; d++)
            n[h] += q[h * a->qk_dim + d] * q[h * a->qk_dim + d];
        n[h] = sqrt(n[h]);
        *mean += n[h] / (count - SHARED);
    }
    for (int h = SHARED; h < count; h++) squares += (n[h] - *mean) * (n[h] - *mean);
    *deviation = sqrt(squares / (count - SHARED - 1));
}

/* How far the f32 norm of head h may be from the one in double: each element of q is a
   chain of `model` fused multiply-adds. */
static double norm_error(const layer_case *c, int t, int h)
{
    const ph_attn *a = &c->desc.attn;
    int model = c->desc.model_dim, wide = a->q_heads * a->qk_dim;
    double squares = 0;
    for (int d = 0; d < a->qk_dim; d++) {
        double terms = 0;
        for (int m = 0; m < model; m++)
            terms += fabs(c->t[LT_X].value[t * model + m] *
                         c->t[LT_WQ].value[m * wide + h * a->qk_dim + d]);
        squares += terms * terms;
    }
    return model * 0x1p-24 * sqrt(squares);
}

static int is_on(const layer_case *c, const double *n, int h)
{
    int rank = 0;
    for (int i = SHARED; i < c->desc.attn.q_heads; i++) rank += n[i] > n[h];
    return h < SHARED || rank < TOP;
}

/* 0: two norms of a token are so close that f32 may choose the other head. */
static int set_gates(layer_case *c)
{
    const ph_attn *a = &c->desc.attn;
    double *q = calloc((size_t)(a->q_heads * a->qk_dim), sizeof *q), n[64], mean, sd;
    int clear = 1;
    for (int t = 0; t < TOKENS; t++) {
        measure(c, t, q, n, &mean, &sd);
        for (int h = 0; h < a->q_heads; h++) {
            int on = is_on(c, n, h);
            c->t[LT_GATE].value[h * TOKENS + t] = on;
            ((float *)c->t[LT_GATE].data)[h * TOKENS + t] = (float)on;
            for (int i = SHARED; on && h >= SHARED && i < a->q_heads; i++)
                clear &= is_on(c, n, i) ||
                         n[h] - n[i] > norm_error(c, t, h) + norm_error(c, t, i);
        }
    }
    free(q);
    return clear;
}

/* Adds what runs through the router: dgate -> dz -> dn -> dq -> dwq, dx; in double. */
static void add_route(const layer_case *c, const double *dgate, double *dwq, double *dx)
{
    const ph_attn *a = &c->desc.attn;
    int model = c->desc.model_dim, wide = a->q_heads * a->qk_dim, count = a->q_heads;
    double *q = calloc((size_t)wide, sizeof *q), n[64], mean, sd, p[64], dz[64];
    for (int t = 0; t < TOKENS; t++) {
        double sum = 0, dot = 0, along = 0, top = 0;
        measure(c, t, q, n, &mean, &sd);
        double unit = sd + 1e-6;
        for (int h = SHARED; h < count; h++) top = fmax(top, n[h] / unit);
        for (int h = SHARED; h < count; h++) sum += p[h] = exp(n[h] / unit - top);
        for (int h = SHARED; h < count; h++) {
            int on = c->t[LT_GATE].value[h * TOKENS + t] != 0;
            p[h] /= sum, dz[h] = on ? dgate[h * TOKENS + t] : 0;
            dot += p[h] * dz[h];
        }
        for (int h = SHARED; h < count; h++) dz[h] = p[h] * (dz[h] - dot);
        for (int h = SHARED; h < count; h++) along += dz[h] * n[h];
        for (int e = SHARED * a->qk_dim; e < wide; e++) {
            int h = e / a->qk_dim;
            double dn = dz[h] / unit - along / (unit * unit) * (n[h] - mean) /
                                           ((count - SHARED - 1) * sd);
            double dq = dn * q[e] / n[h];
            for (int m = 0; m < model; m++) {
                dwq[m * wide + e] += c->t[LT_X].value[t * model + m] * dq;
                dx[t * model + m] += c->t[LT_WQ].value[m * wide + e] * dq;
            }
        }
    }
    free(q);
}

static double largest_of(const double *x, size_t count)
{
    double largest = 0;
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

/* The least error to count with: two roundings of the largest element. */
static double least_error(const layer_case *truth, int id)
{
    return 0x1p-22 * largest_of(truth->g[id].value, truth->g[id].count);
}

/* Y of dwq and dx where the gradients of gates are off by up to `error`. */
static void route_error(const layer_case *c, double error, uint64_t seed, double *wq,
                        double *x)
{
    size_t gates = c->g[LT_GATE].count, wide = c->g[LT_WQ].count, rows = c->g[LT_X].count;
    double *dgate = calloc(gates, sizeof *dgate);
    *wq = *x = 0;
    for (int n = 0; n < DRAWS; n++) {
        double *dwq = calloc(wide, sizeof *dwq), *dx = calloc(rows, sizeof *dx);
        for (size_t i = 0; i < gates; i++)
            dgate[i] = check_random(&seed) & 1 ? error : -error;
        add_route(c, dgate, dwq, dx);
        *wq = fmax(*wq, largest_of(dwq, wide));
        *x = fmax(*x, largest_of(dx, rows));
        free(dwq), free(dx);
    }
    free(dgate);
}

/* Largest error of a gradient. */
static double error_of(const layer_case *found, const layer_case *truth, int id)
{
    double worst = 0;
    for (size_t i = 0; i < truth->g[id].count; i++) {
        double want = truth->g[id].value[i];
        worst = fmax(worst, fabs(layer_get(found, &found->g[id], id, i) - want));
    }
    return worst;
}

/* The same layer with gates given and with the router; 0: not with these numbers. */
static int build_both(layer_case *plain, layer_case *routed, const size *s, uint64_t seed)
{
    build(plain, s, seed);
    build(routed, s, seed);
    routed->desc.attn.variant = "moh-norm:shared=1,top=2";
    routed->desc.attn.gate = 0;
    routed->args.attn.gate = NULL, routed->grads.dgate = NULL;
    if (set_gates(plain)) return 1;
    layer_case_free(plain);
    layer_case_free(routed);
    return 0;
}

static void compare(layer_case *plain, const layer_case *routed, int number)
{
    static const int tensors[] = {LT_X, LT_WQ, LT_WK, LT_WV, LT_WO};
    double before[LT_GRADS], more[LT_GRADS] = {0};
    layer_oracle_forward(plain);
    layer_oracle_backward(plain);
    for (int n = 0; n < 5; n++)
        before[tensors[n]] = error_of(plain, plain, tensors[n]);
    double gates = fmax(error_of(plain, plain, LT_GATE), least_error(plain, LT_GATE));
    route_error(plain, gates, check_seed, &more[LT_WQ], &more[LT_X]);
    add_route(plain, plain->g[LT_GATE].value, plain->g[LT_WQ].value,
              plain->g[LT_X].value);
    for (int n = 0; n < 5; n++) {
        int id = tensors[n];
        double after = error_of(routed, plain, id);
        double most = 4 * (fmax(before[id], least_error(plain, id)) + more[id]);
        CHECK(after <= most, "case %d: d%s is off by %g, at most %g", number,
              layer_names[id], after, most);
    }
}

static void gradients(void)
{
    static const size sizes[] = {{4, 16, 32}, {4, 64, 64}, {5, 64, 64}, {4, 8, 64}};
    ph_options o = guard_options(NULL, 2);
    ph_ctx *ctx;
    uint64_t seed = 1000 * check_seed;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    for (int i = 0; i < 160 / EVERY; i++) {
        layer_case plain, routed;
        while (!build_both(&plain, &routed, &sizes[i % 4], seed++)) {}
        run(ctx, &plain);
        run(ctx, &routed);
        compare(&plain, &routed, i);
        layer_case_free(&plain);
        layer_case_free(&routed);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"gradients", gradients}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
