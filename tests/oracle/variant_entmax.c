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

/* With e = alpha - 1 and base = (tau + 1)/e, which tends to lse as alpha tends to 1, the
   same is p = [1 + e (s - base)]_+ ^ (1/e): near 1 a rounding of tau would be 1/e times
   as large in p. (1 + y) ^ (1/e) from y, so that it keeps its digits too. */
static double power(double y, double e)
{
    if (y <= -1) return 0;
    return e == 1 ? 1 + y : e == 0.5 ? (1 + y) * (1 + y) : exp(log1p(y) / e);
}

enum { LOST = 32 }; /* tau / e from which on the base is not taken from tau */

static double largest_of(const double *s, int n, const double *sink)
{
    double top = sink ? *sink : -INFINITY;
    for (int j = 0; j < n; j++) top = fmax(top, s[j]);
    return top;
}

/* Sum of p at this base minus 1, and its derivative by the base. */
static double mass(const double *s, int n, const double *sink, double e, double top,
                   double above, double *derivative)
{
    double sum = -1;
    *derivative = 0;
    for (int j = 0; j < n + (sink != NULL); j++) {
        double y = e * ((j < n ? s[j] : *sink) - top - above), p = power(y, e);
        sum += p;
        if (p > 0) *derivative -= p / (1 + y);
    }
    return sum;
}

/* How far the base is above the largest score: between 0, where the mass is at least 1,
   and 1/e, where it is 0. Newton's step where it stays inside, else the middle. */
static double solve(const double *s, int n, const double *sink, double e, double top)
{
    double derivative, low = 0, high = 1 / e, above = 0;
    for (int step = 0; step < 200; step++) {
        double f = mass(s, n, sink, e, top, above, &derivative);
        double next = above - f / derivative;
        if (f >= 0)
            low = above;
        else
            high = above;
        if (!(next >= low && next <= high)) next = (low + high) / 2;
        double moved = fabs(next - above);
        above = next;
        if (moved <= 0x1p-53 * (1 + above) || f == 0) break;
    }
    return above;
}

/* alpha = 1; lse instead of tau. */
static double exact_softmax(double *s, int n, const double *sink)
{
    double top = largest_of(s, n, sink), sum = 0;
    for (int j = 0; j < n; j++) sum += exp(s[j] - top);
    double lse = top + log(sum + (sink ? exp(*sink - top) : 0));
    for (int j = 0; j < n; j++) s[j] = exp(s[j] - lse);
    return lse;
}

double variant_entmax(double *s, int n, double alpha, const double *sink)
{
    double e = alpha - 1;
    if (e == 0) return exact_softmax(s, n, sink);
    double top = largest_of(s, n, sink), above = solve(s, n, sink, e, top);
    for (int j = 0; j < n; j++) s[j] = power(e * (s[j] - top - above), e);
    return e * (top + above) - 1;
}

/* The same with noise, as an engine may round that knows what near 1 is asked of it:
   rounded are the largest score, what base has more, and every e (base - s); not tau, of
   which nothing would be left there. */
static double one_row(work *w, double *s, int n, double alpha, const double *sink)
{
    double e = alpha - 1;
    if (e == 0) return softmax(w, s, n, sink);
    double top = largest_of(s, n, sink), part[2] = {top, solve(s, n, sink, e, top)};
    double tau = e * (part[0] + part[1]) - 1, error = recomputed(w, tau) - tau;
    jitter(w, part, 2);
    if (fabs(tau) <= LOST * e) part[1] += error / e;
    for (int j = 0; j < n; j++) s[j] = e * (s[j] - part[0] - part[1]);
    jitter(w, s, n);
    for (int j = 0; j < n; j++) s[j] = power(s[j], e);
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
