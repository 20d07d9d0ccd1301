/*
 * variant_entmax.c - alpha-entmax, sparsemax, learned alpha (spec entmax, sections 1, 3).
 *
 *     p_j = [ (alpha-1) s_j - tau ]_+ ^ (1/(alpha-1)),   tau such that sum p = 1
 *
 * alpha = 1 is softmax, 2 sparsemax; alpha = 1 + sigmoid(alpha_logit[h]) where that
 * tensor is given. A sink is one more candidate without a value.
 */
#include <math.h>

#include "variant_parts.h"

/* u^a for u > 0, the two common exponents without pow. */
static double power(double u, double a)
{
    return a == 1 ? u : a == 2 ? u * u : pow(u, a);
}

/* Sum of p at tau minus 1, and its derivative by tau. */
static double mass(const double *s, int n, const double *sink, double e, double tau,
                   double *derivative)
{
    double sum = -1, a = 1 / e;
    *derivative = 0;
    for (int j = 0; j < n + (sink != NULL); j++) {
        double u = e * (j < n ? s[j] : *sink) - tau;
        if (u <= 0) continue;
        double mass_of_one = power(u, a);
        sum += mass_of_one;
        *derivative -= a * mass_of_one / u;
    }
    return sum;
}

/* Between max-1, where the mass is at least 1, and max, where it is 0. Newton's step
   where it stays inside, else the middle. */
static double solve(const double *s, int n, const double *sink, double e)
{
    double top = sink ? *sink : -INFINITY, derivative;
    for (int j = 0; j < n; j++) top = fmax(top, s[j]);
    double low = e * top - 1, high = e * top, tau = low;
    for (int step = 0; step < 200; step++) {
        double f = mass(s, n, sink, e, tau, &derivative), next = tau - f / derivative;
        if (f >= 0)
            low = tau;
        else
            high = tau;
        if (!(next >= low && next <= high)) next = (low + high) / 2;
        double moved = fabs(next - tau);
        tau = next;
        if (moved <= 0x1p-52 * fabs(tau) || f == 0) break;
    }
    return tau;
}

/* alpha = 1; lse instead of tau. */
static double softmax(double *s, int n, const double *sink)
{
    double top = sink ? *sink : -INFINITY, sum = 0;
    for (int j = 0; j < n; j++) top = fmax(top, s[j]);
    for (int j = 0; j < n; j++) sum += exp(s[j] - top);
    double lse = top + log(sum + (sink ? exp(*sink - top) : 0));
    for (int j = 0; j < n; j++) s[j] = exp(s[j] - lse);
    return lse;
}

/* Scores become weights. */
static void weigh(double *s, int n, double e, double tau)
{
    for (int j = 0; j < n; j++) {
        double u = e * s[j] - tau;
        s[j] = u > 0 ? power(u, 1 / e) : 0;
    }
}

double variant_entmax(double *s, int n, double alpha, const double *sink)
{
    double e = alpha - 1;
    if (e == 0) return softmax(s, n, sink);
    double tau = solve(s, n, sink, e);
    weigh(s, n, e, tau);
    return tau;
}

/* The same with noise, as an engine may round that knows what near 1 is asked of it: with
   base = (tau + 1)/e, which goes over into lse, p = [1 - e (base - s)]_+ ^ (1/e). Rounded
   are the largest score, what base has more, and every e (base - s); not tau, of which
   nothing would be left there. */
static double one_row(work *w, double *s, int n, double alpha, const double *sink)
{
    double e = alpha - 1, part[2] = {sink ? *sink : -INFINITY};
    if (e == 0) return softmax(s, n, sink);
    double tau = solve(s, n, sink, e);
    for (int j = 0; j < n; j++) part[0] = fmax(part[0], s[j]);
    part[1] = (tau + 1) / e - part[0];
    jitter(w, part, 2);
    for (int j = 0; j < n; j++) s[j] = e * (part[0] + part[1] - s[j]);
    jitter(w, s, n);
    for (int j = 0; j < n; j++) s[j] = s[j] < 1 ? power(1 - s[j], 1 / e) : 0;
    return e * (part[0] + part[1]) - 1;
}

static double entmax_row(work *w, int h, double *s, int n, const double *sink)
{
    const double *logit = given(w, "alpha_logit");
    double alpha = option_number(w, "alpha", 1.5);
    if (logit) alpha = 1 + 1 / (1 + exp(-logit[h]));
    return one_row(w, s, n, alpha, sink);
}

static double sparsemax_row(work *w, int h, double *s, int n, const double *sink)
{
    (void)h;
    return one_row(w, s, n, 2, sink);
}

const variant variant_entmaxed = {.name = "entmax", .core = 1, .normalise = entmax_row};
const variant variant_sparsemax = {
    .name = "sparsemax", .core = 1, .normalise = sparsemax_row};
