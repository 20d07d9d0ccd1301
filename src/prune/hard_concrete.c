/*
 * hard_concrete.c - see hard_concrete.h.
 */
#include "prune/hard_concrete.h"

#include <math.h>

const ph_hard_concrete ph_hard_concrete_default = {0.33, -0.1, 1.1};

static const double EPS = 1e-6; /* u and probabilities stay this far from 0 and 1 */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double clip(double x)
{
    return fmin(fmax(x, EPS), 1 - EPS);
}

double ph_gate_sample(const ph_hard_concrete *c, double logit, double u,
                      double *derivative)
{
    double v = clip(u), width = c->zeta - c->gamma;
    double s = sigmoid((log(v) - log1p(-v) + logit) / c->beta);
    double stretched = s * width + c->gamma;
    int inside = stretched > 0 && stretched < 1;
    *derivative = inside ? width / c->beta * s * (1 - s) : 0;
    return fmin(1, fmax(0, stretched));
}

double ph_gate_closed(const ph_hard_concrete *c, double logit)
{
    return sigmoid(c->beta * log(-c->gamma / c->zeta) - logit);
}

double ph_gate_open(const ph_hard_concrete *c, double logit)
{
    return sigmoid(logit - c->beta * log((1 - c->gamma) / (c->zeta - 1)));
}

double ph_gate_penalty(const ph_hard_concrete *c, double logit, double *derivative)
{
    double open = clip(1 - ph_gate_closed(c, logit));
    *derivative = open * (1 - open);
    return open;
}
