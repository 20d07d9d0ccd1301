/*
 * test_moh_norm.c - gradients of moh-norm in f32 against double: within four times the
 * error that the same layer has with the same gates given, where nothing runs through the
 * router.
 */
#include <math.h>

#include "check.h"
#include "every.h"
#include "guard.h"
#include "layer_oracle.h"

enum { SHARED = 1, TOP = 2, TOKENS = 24 };

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

static void set_gates(layer_case *c)
{
    const ph_attn *a = &c->desc.attn;
    double *q = calloc((size_t)(a->q_heads * a->qk_dim), sizeof *q), n[64], mean, sd;
    for (int t = 0; t < TOKENS; t++) {
        measure(c, t, q, n, &mean, &sd);
        for (int h = 0; h < a->q_heads; h++) {
            int rank = 0;
            for (int i = SHARED; i < a->q_heads; i++) rank += n[i] > n[h];
            double gate = h < SHARED || rank < TOP;
            c->t[LT_GATE].value[h * TOKENS + t] = gate;
            ((float *)c->t[LT_GATE].data)[h * TOKENS + t] = (float)gate;
        }
    }
    free(q);
}

/* Adds what runs through the router: dz -> dn -> dq -> dwq, dx; all in double. */
static void add_route(layer_case *c)
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
            p[h] /= sum, dz[h] = on ? c->g[LT_GATE].value[h * TOKENS + t] : 0;
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
                c->g[LT_WQ].value[m * wide + e] += c->t[LT_X].value[t * model + m] * dq;
                c->g[LT_X].value[t * model + m] += c->t[LT_WQ].value[m * wide + e] * dq;
            }
        }
    }
    free(q);
}

/* Largest error of a gradient, in units of its largest element. */
static double error_of(const layer_case *found, const layer_case *truth, int id)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < truth->g[id].count; i++) {
        double want = truth->g[id].value[i];
        worst = fmax(worst, fabs(layer_get(found, &found->g[id], id, i) - want));
        largest = fmax(largest, fabs(want));
    }
    return worst / largest;
}

static void gradients(void)
{
    static const size sizes[] = {{4, 16, 32}, {4, 64, 64}, {5, 64, 64}, {4, 8, 64}};
    static const int tensors[] = {LT_X, LT_WQ, LT_WK, LT_WV, LT_WO};
    ph_options o = guard_options(NULL, 2);
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    for (int i = 0; i < 160 / EVERY; i++) {
        const size *s = &sizes[i % 4];
        layer_case plain, routed;
        build(&plain, s, check_seed + (uint64_t)i);
        build(&routed, s, check_seed + (uint64_t)i);
        routed.desc.attn.variant = "moh-norm:shared=1,top=2";
        routed.desc.attn.gate = 0;
        routed.args.attn.gate = NULL, routed.grads.dgate = NULL;
        set_gates(&plain);
        run(ctx, &plain);
        run(ctx, &routed);
        layer_oracle_forward(&plain);
        layer_oracle_backward(&plain);
        double before[5];
        for (int n = 0; n < 5; n++) before[n] = error_of(&plain, &plain, tensors[n]);
        add_route(&plain);
        for (int n = 0; n < 5; n++) {
            double after = error_of(&routed, &plain, tensors[n]);
            double most = 4 * fmax(before[n], 0x1p-22);
            CHECK(after <= most, "case %d: d%s is off by %g of its largest, at most %g",
                  i, layer_names[tensors[n]], after, most);
        }
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
