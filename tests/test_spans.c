/*
 * test_spans.c - the loops of models over single rows (model/spans.h): values against
 * libm in double, same bits on every instruction set, NaN and infinity.
 */
#include <math.h>

#include "check.h"
#include "model/spans.h"
#include "polyhead.h"

enum { N = 4000 };

static const ph_span_activation curves[] = {
    PH_SPAN_GELU,  PH_SPAN_RELU, PH_SPAN_SWIGLU,   PH_SPAN_GELU_ERF,
    PH_SPAN_GEGLU, PH_SPAN_SILU, PH_SPAN_GEGLU_ERF};
enum { CURVES = sizeof curves / sizeof curves[0] };

static double expected(ph_span_activation activation, double x)
{
    const double root = sqrt(2 / 3.14159265358979323846);
    if (activation == PH_SPAN_RELU) return x > 0 ? x : 0;
    if (activation == PH_SPAN_GELU_ERF || activation == PH_SPAN_GEGLU_ERF)
        return 0.5 * x * erfc(-x / sqrt(2));
    int tanh_form = activation == PH_SPAN_GELU || activation == PH_SPAN_GEGLU;
    double u = tanh_form ? 2 * root * (x + 0.044715 * x * x * x) : x;
    return x / (1 + exp(-u));
}

static const ph_spans *table(int i)
{
    ph_isa_info info;
    const char *isa = ph_isa_list()[i];
    if (!isa) return NULL;
    info = ph_isa_about(isa);
    return ph_spans_pick(info.vectors);
}

/* Within four units in the last place of x, from where exp is 0 to where it is huge. */
static void activations(void)
{
    static float h[N], w[N], g[N], first[N];
    for (int c = 0; c < N; c++) h[c] = (float)(c - N / 2) * 0.05f, w[c] = 1;
    for (int k = 0; k < CURVES; k++)
        for (int i = 0; table(i); i++) {
            table(i)->activation(curves[k], N, h, w, g);
            for (int c = 0; c < N; c++) {
                double want = expected(curves[k], h[c]);
                CHECK(fabs(g[c] - want) <= 4 * 0x1p-23 * fabs((double)h[c]),
                      "activation %d of %g is %g, not %g", k, (double)h[c], (double)g[c],
                      want);
            }
            if (i == 0) memcpy(first, g, sizeof g);
            CHECK(!memcmp(first, g, sizeof g), "activation %d has other bits on %s", k,
                  ph_isa_list()[i]);
        }
}

/* The erf form and its derivative F(x) + x f(x) near the last place of their result, also
   where that is tiny. About 18 roundings lie between: P (1.4e-8 and five roundings), its
   argument (up to six), two quotients and products, the exponential (six), the last
   product. Below -13 the exponential is cut off. */
static void gelu_erf(void)
{
    static float h[N], g[N], dg[N], dh[N], first[N];
    const double unit = 18 * 0x1p-24, root = sqrt(0.5);
    for (int c = 0; c < N; c++) h[c] = (float)(c - N / 2) * 0.0065f, dg[c] = 1;
    for (int i = 0; table(i); i++) {
        table(i)->activation(PH_SPAN_GELU_ERF, N, h, NULL, g);
        table(i)->activation_backward(PH_SPAN_GELU_ERF, N, h, NULL, dg, dh, NULL);
        for (int c = 0; c < N; c++) {
            double x = h[c], F = 0.5 * erfc(-x * root);
            double density_term = x * exp(-0.5 * x * x) * 0.39894228040143268;
            CHECK(fabs(g[c] - x * F) <= unit * fabs(x * F), "of %g: %.9g, not %.9g", x,
                  (double)g[c], x * F);
            CHECK(fabs(dh[c] - F - density_term) <= unit * (F + fabs(density_term)),
                  "derivative at %g: %.9g, not %.9g", x, (double)dh[c], F + density_term);
        }
        if (i == 0) memcpy(first, dh, sizeof dh);
        CHECK(!memcmp(first, dh, sizeof dh), "other bits on %s", ph_isa_list()[i]);
    }
}

/* NaN stays NaN and nothing overflows on its way (undefined sanitizer). */
static void non_finite(void)
{
    float h[] = {NAN, -NAN, INFINITY, -INFINITY, 3e38f, -3e38f}, w[6], g[6], x[6];
    for (int i = 0; table(i); i++) {
        for (int c = 0; c < 6; c++) w[c] = 1;
        for (int k = 0; k < CURVES; k++) {
            if (curves[k] == PH_SPAN_RELU) continue;
            table(i)->activation(curves[k], 6, h, w, g);
            CHECK(isnan(g[0]) && isnan(g[1]), "activation %d of NaN is %g", k,
                  (double)g[0]);
            CHECK(g[2] == INFINITY && g[4] == h[4], "activation %d of 3e38 is %g", k,
                  (double)g[4]);
        }
        memcpy(x, h, sizeof x);
        table(i)->softmax(6, x);
        CHECK(isnan(x[0]), "a weight of NaN is %g", (double)x[0]);
    }
}

/* Sums in double, of n terms each within n roundings of the sum of sizes. */
static void products(void)
{
    static float w[N];
    static double sum[N], size[N], first[4];
    uint64_t state = check_seed;
    for (int c = 0; c < N; c++) w[c] = (float)(check_uniform(&state) - 0.5);
    for (int i = 0; table(i); i++)
        for (int n = N - 17; n < N; n += 8) {
            double found[4] = {0}, plain = 0, sizes = 0;
            memset(sum, 0, sizeof sum), memset(size, 0, sizeof size);
            table(i)->add_products(n, -3, w, sum, size);
            table(i)->add_products(n, 2, w, sum, NULL);
            for (int c = 0; c < n; c++) {
                CHECK(sum[c] == -(double)w[c] && size[c] == 3 * fabs((double)w[c]),
                      "%g and %g of %g", sum[c], size[c], (double)w[c]);
                plain += (double)w[c] * sum[c], sizes += fabs((double)w[c]) * size[c];
            }
            CHECK(sum[n] == 0 && size[n] == 0, "beyond the end");
            found[0] = table(i)->weigh(n, w, sum, size, &found[1]);
            found[2] = table(i)->weigh(n, w, sum, NULL, &found[3]);
            CHECK(fabs(found[0] - plain) <= n * 0x1p-53 * sizes &&
                      fabs(found[1] - sizes) <= n * 0x1p-53 * sizes &&
                      found[2] == found[0] && found[3] == 0,
                  "%g %g %g %g, expected %g and %g", found[0], found[1], found[2],
                  found[3], plain, sizes);
            if (i == 0 && n == N - 17) memcpy(first, found, sizeof found);
            CHECK(n > N - 17 || !memcmp(first, found, sizeof found),
                  "other bits on %s", ph_isa_list()[i]);
        }
}

static const check_case cases[] = {{"products", products},
                                   {"activations", activations},
                                   {"gelu_erf", gelu_erf},
                                   {"non_finite", non_finite},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
