/*
 * diff.c - differential attention: the output of a head minus lambda times its twin's.
 *
 * 2h heads of q and k in pairs (2m, 2m + 1), h heads of v of twice the size:
 *
 *     u_m = heads_2m - lambda heads_2m+1
 *     out_m = u_m / rms(u_m) * diff_norm * (1 - init)       eps 1e-5, over v_dim
 *     lambda = exp(lambda_q1 . lambda_k1) - exp(lambda_q2 . lambda_k2) + init
 *     init = 0.8 - 0.6 exp(-0.3 depth)                      depth: of the layer, from 0
 *
 * Backward, e = diff_norm * (1 - init) * dout, n = u r, r = 1/rms:
 *
 *     du = r (e - n mean(n e))      dheads_2m = du      dheads_2m+1 = -lambda du
 *     dlambda = -sum du . heads_2m+1, then through the exponentials
 */
#include <math.h>
#include <string.h>

#include "variants/kind.h"

enum { LAMBDA_Q1, LAMBDA_K1, LAMBDA_Q2, LAMBDA_K2, DIFF_NORM }; /* own parameters */
enum {
    TWIN, /* scratch: (pairs) -lambda */
    SUMS  /* backward_only: (chunks, pairs, v_dim + 1) doubles, partial
                        sums of the gradients of diff_norm and lambda */
};
enum { CHUNK = 32 }; /* tokens of one item */
#define EPS 1e-5

typedef struct diff_state {
    double init;
} diff_state;

static size_t sum_count(const ph_shape *s)
{
    size_t rows = (size_t)ph_desc_rows(s->desc);
    return (rows + CHUNK - 1) / CHUNK * (size_t)s->out_heads *
           (size_t)(s->attn.v_dim + 1);
}

static ph_status shape(ph_shape *s, const char *options)
{
    static const char *const names[] = {"lambda_q1", "lambda_k1", "lambda_q2",
                                        "lambda_k2"};
    const ph_layer_desc *given = s->given;
    ph_attn *a = &s->attn;
    double depth = 0;
    const ph_variant_option list[] = {
        {.key = "depth", .number = &depth, .most = 1 << 16, .whole = 1}};
    PH_TRY(ph_options_read(s->ctx, "diff", options, list, 1));
    if (a->q_heads % 2)
        return ph_fail(s->ctx, PH_BAD_SHAPE,
                       "q_heads is %d, expected an even number with variant diff",
                       a->q_heads);
    if (!given->attn.v_heads) a->v_heads = s->v.heads = a->q_heads / 2;
    if (!given->attn.v_dim) a->v_dim = s->v.dim = s->out_dim = 2 * a->qk_dim;
    PH_TRY(ph_shape_width(s, "v", a->q_heads, a->v_dim));
    if (a->q_heads / 2 % a->v_heads)
        return ph_fail(s->ctx, PH_BAD_SHAPE,
                       "v_heads is %d, expected a divisor of the %d pairs of q heads",
                       a->v_heads, a->q_heads / 2);
    for (int i = 0; i < 4; i++) ph_shape_param(s, names[i], 0, a->qk_dim, 0, 0, 0);
    ph_shape_param(s, "diff_norm", 0, a->v_dim, 0, 0, 0);
    ((diff_state *)s->state)->init = 0.8 - 0.6 * exp(-0.3 * depth);
    s->out_heads = a->q_heads / 2;
    s->makes_out = s->wants_slices = s->twins = 1;
    s->backward_only[SUMS] = sum_count(s) * sizeof(double) / sizeof(float);
    s->scratch[TWIN] = (size_t)s->out_heads;
    return PH_OK;
}

/* ---- lambda ------------------------------------------------------------------------ */

/* exp(q . k) of one of the two pairs of vectors */
static double exp_dot(const ph_kind_call *c, int q, int k)
{
    double sum = 0;
    for (int d = 0; d < c->shape->attn.qk_dim; d++)
        sum += (double)c->param[q][d] * c->param[k][d];
    return exp(sum);
}

static double lambda_of(const ph_kind_call *c)
{
    return exp_dot(c, LAMBDA_Q1, LAMBDA_K1) - exp_dot(c, LAMBDA_Q2, LAMBDA_K2) +
           ((const diff_state *)c->shape->state)->init;
}

static void set_twins(ph_kind_call *c)
{
    float twin = (float)-lambda_of(c);
    for (int m = 0; m < c->shape->out_heads; m++) c->scratch[TWIN][m] = twin;
    c->twin = c->scratch[TWIN];
}

/* dq = factor * k, dk = factor * q */
static void exp_dot_backward(const ph_kind_call *c, int q, int k, double factor)
{
    for (int d = 0; d < c->shape->attn.qk_dim; d++) {
        if (c->dparam[q]) c->dparam[q][d] = (float)(factor * c->param[k][d]);
        if (c->dparam[k]) c->dparam[k][d] = (float)(factor * c->param[q][d]);
    }
}

/* ---- one pair of one token --------------------------------------------------------- */

static float keep_of(const ph_kind_call *c)
{
    return (float)(1 - ((const diff_state *)c->shape->state)->init);
}

/* Both heads of a pair. */
static const float *heads_of(const ph_kind_call *c, int row, int m)
{
    return c->heads + row * c->heads_row + 2 * (int64_t)m * c->shape->attn.v_dim;
}

static void combine(ph_kind_call *c, int row)
{
    const ph_shape *s = c->shape;
    const float *gain = c->param[DIFF_NORM];
    int n = s->attn.v_dim;
    float keep = keep_of(c);
    for (int m = 0; m < c->out_heads; m++) {
        float *u = c->out + ((int64_t)row * c->out_heads + m) * n;
        const float *heads = heads_of(c, row, m);
        for (int i = 0; i < n; i++) u[i] = heads[i] + *c->twin * heads[n + i];
        float r = (float)ph_kind_inverse_rms(n, u, EPS);
        for (int i = 0; i < n; i++) u[i] = u[i] * r * gain[i] * keep;
    }
}

static void after(ph_kind_call *c)
{
    set_twins(c);
    ph_kind_tokens(c, combine, combine);
}

/* Sums over the elements of a pair, h those of the second head, g = diff_norm * dout. */
typedef struct dots {
    double uu[PH_WIDE_LANES], ug[PH_WIDE_LANES], gh[PH_WIDE_LANES], uh[PH_WIDE_LANES];
} dots;

static inline void add_dots(dots *d, int lane, double u, double g, double h)
{
    d->uu[lane] += u * u;
    d->ug[lane] += u * g;
    d->gh[lane] += g * h;
    d->uh[lane] += u * h;
}

static dots dots_of(int n, const float *heads, double twin, const float *gain,
                    const float *dout)
{
    dots d = {0};
    const float *h = heads + n;
    int i = 0;
    for (; i + PH_WIDE_LANES <= n; i += PH_WIDE_LANES)
        for (int l = 0; l < PH_WIDE_LANES; l++)
            add_dots(&d, l, heads[i + l] + twin * h[i + l],
                     (double)gain[i + l] * dout[i + l], h[i + l]);
    for (; i < n; i++)
        add_dots(&d, 0, heads[i] + twin * h[i], (double)gain[i] * dout[i], h[i]);
    return d;
}

/* dout of a pair into its dheads, and its terms of the partial sums. The terms of dlambda
   nearly cancel where both heads attend alike, for du is orthogonal to u, and then to
   both heads. So u is not rounded here. */
static void separate_pair(ph_kind_call *c, int row, int m, double *sums)
{
    int n = c->shape->attn.v_dim;
    int64_t at = ((int64_t)row * c->out_heads + m) * n;
    const float *heads = heads_of(c, row, m), *dout = c->dout + at;
    const float *gain = c->param[DIFF_NORM];
    float *du = c->dheads + at;
    double twin = *c->twin;
    dots d = dots_of(n, heads, twin, gain, dout);
    double r = 1 / sqrt(ph_kind_total(d.uu) / n + EPS), keep = keep_of(c) * r;
    double pull = r * r * keep * ph_kind_total(d.ug) / n; /* du = keep g - pull u */
    for (int i = 0; i < n; i++) {
        double u = heads[i] + twin * heads[n + i];
        sums[i] += keep * u * dout[i];
        du[i] = (float)(keep * gain[i] * dout[i] - pull * u);
    }
    sums[n] -= keep * ph_kind_total(d.gh) - pull * ph_kind_total(d.uh);
}

static double *sums_of(const ph_kind_call *c, int chunk, int pair)
{
    const ph_shape *s = c->shape;
    double *sums = (double *)(void *)c->backward_only[SUMS];
    return sums + ((int64_t)chunk * s->out_heads + pair) * (s->attn.v_dim + 1);
}

static void separate_item(void *arg, int lane, int index)
{
    ph_kind_call *c = arg;
    int n = c->shape->attn.v_dim, end = ph_min((index + 1) * CHUNK, c->x_tokens.rows);
    (void)lane;
    for (int m = 0; m < c->out_heads; m++) {
        double *sums = sums_of(c, index, c->first_out + m);
        memset(sums, 0, (size_t)(n + 1) * sizeof *sums);
        for (int row = index * CHUNK; row < end; row++) separate_pair(c, row, m, sums);
    }
}

/* Partial sum i over chunks and pairs, in order. */
static double sum_of(const ph_kind_call *c, int i)
{
    double sum = 0;
    for (int chunk = 0; chunk < ph_div_up(c->x_tokens.rows, CHUNK); chunk++)
        for (int m = 0; m < c->shape->out_heads; m++) sum += sums_of(c, chunk, m)[i];
    return sum;
}

static void after_backward(ph_kind_call *c)
{
    set_twins(c);
    ph_ctx_run(c->ctx, ph_div_up(c->x_tokens.rows, CHUNK), separate_item, c);
}

static void project_backward(ph_kind_call *c)
{
    int n = c->shape->attn.v_dim;
    for (int i = 0; i < n && c->dparam[DIFF_NORM]; i++)
        c->dparam[DIFF_NORM][i] = (float)sum_of(c, i);
    double dlambda = sum_of(c, n);
    exp_dot_backward(c, LAMBDA_Q1, LAMBDA_K1, dlambda * exp_dot(c, LAMBDA_Q1, LAMBDA_K1));
    exp_dot_backward(c, LAMBDA_Q2, LAMBDA_K2,
                     -dlambda * exp_dot(c, LAMBDA_Q2, LAMBDA_K2));
}

static const ph_layer_kind kind = {.shape = shape,
                                   .after = after,
                                   .after_backward = after_backward,
                                   .project_backward = project_backward,
                                   .by_heads = 1};

const ph_variant ph_variant_diff = {
    .info = {.name = "diff",
             .options = "diff:depth=L",
             .help = "differential attention: pairs of heads, the second subtracted from "
                     "the first; twice as many q heads as v heads",
             .tensors = "lambda_q1 (qk_dim) how much is subtracted, see the formula\n"
                        "lambda_k1 (qk_dim)\n"
                        "lambda_q2 (qk_dim)\n"
                        "lambda_k2 (qk_dim)\n"
                        "diff_norm (v_dim) gains of the norm over each pair\n"},
    .layer = &kind,
};
