/*
 * variant_grad.c - gradients of variant_oracle.h by differences.
 *
 * With steps h and h/2 on both sides of x the error of
 *
 *     D = (4 D(h/2) - D(h)) / 3,   D(h) = (f(x+h) - f(x-h)) / 2h
 *
 * is of order h^4; h = 2^-11 leaves about 1e-13 of it and 1e-12 of rounding. Corners (a
 * key that enters the support of entmax, a head that enters the chosen ones) spoil that
 * when they are within h: D(h) and D(h/2) then differ, and h is made smaller until they
 * lie outside. If the two sides still disagree at the smallest step the corner is at x
 * itself.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "variant_oracle.h"

static double dot(const bag *in, const bag *out, const char *with, const char *of)
{
    const bag_tensor *d = bag_find(in, with), *t = bag_find(out, of);
    double sum = 0;
    for (int i = 0; d && i < bag_size(t); i++)
        if (isfinite(t->data[i])) sum += d->data[i] * t->data[i];
    return sum;
}

double variant_loss(const variant_options *o, const bag *in)
{
    variant_options brief = *o;
    bag out = {.count = 0};
    brief.brief = 1;
    variant_forward(&brief, in, &out);
    const double *balance = bag_data(&out, "balance_loss");
    double loss = dot(in, &out, "dout", "out") + dot(in, &out, "dlse", "lse") +
                  dot(in, &out, "dgate", "gate");
    if (balance) loss += o->balance * *balance;
    bag_free(&out);
    return loss;
}

double *variant_freeze(const variant_options *o, const bag *in)
{
    variant_options free_running = *o;
    bag out = {.count = 0};
    double *scores = NULL;
    free_running.frozen = NULL;
    if (!o->variant || strncmp(o->variant, "moh-norm", 8)) return NULL;
    variant_forward(&free_running, in, &out);
    const bag_tensor *t = bag_find(&out, "scores");
    scores = malloc(((size_t)bag_size(t) + 1) * sizeof *scores);
    memcpy(scores, t->data, (size_t)bag_size(t) * sizeof *scores);
    bag_free(&out);
    return scores;
}

static bag attended_with(const variant_options *o, const bag *in)
{
    bag out = {.count = 0};
    variant_forward(o, in, &out);
    return out;
}

double *variant_recompute(const variant_options *o, const bag *in)
{
    variant_options forward = *o, again = *o;
    forward.recompute_seed = 0;
    forward.attended = again.attended = NULL;
    bag one = attended_with(&forward, in), two = attended_with(&again, in);
    const bag_tensor *to = bag_find(&one, "attended"), *of = bag_find(&two, "attended");
    double *moved = malloc(((size_t)bag_size(to) + 1) * sizeof *moved);
    for (int i = 0; i < bag_size(to); i++) moved[i] = to->data[i] - of->data[i];
    bag_free(&one);
    bag_free(&two);
    return moved;
}

/* The loss at t + step * direction; from: what t holds when the step is 0. */
static double loss_at(const variant_options *o, bag *in, bag_tensor *t,
                      const double *from, const double *direction, double step)
{
    for (int i = 0; i < bag_size(t); i++)
        if (direction[i] != 0) t->data[i] = from[i] + step * direction[i];
    return variant_loss(o, in);
}

double variant_derivative(const variant_options *o, bag *in, bag_tensor *t,
                          const double *direction, int *kink)
{
    size_t bytes = (size_t)bag_size(t) * sizeof(double);
    double *x = malloc(bytes + 1), best = 0, here = variant_loss(o, in);
    memcpy(x, t->data, bytes);
    *kink = 1;
    for (double h = 0x1p-11; *kink && h > 1e-7; h /= 8) {
        double f[4];
        const double at[] = {-h, -h / 2, h / 2, h};
        for (int i = 0; i < 4; i++) f[i] = loss_at(o, in, t, x, direction, at[i]);
        double wide = (f[3] - f[0]) / (2 * h), narrow = (f[2] - f[1]) / h;
        double right = (4 * f[2] - f[3] - 3 * here) / h;
        double left = (3 * here + f[0] - 4 * f[1]) / h;
        double scale = fabs(narrow) + 1e-2;
        best = (4 * narrow - wide) / 3;
        *kink = fabs(wide - narrow) > 1e-6 * scale || fabs(right - left) > 1e-4 * scale;
    }
    memcpy(t->data, x, bytes);
    free(x);
    return best;
}

double variant_gradient(const variant_options *o, bag *in, bag_tensor *t, int index,
                        int *kink)
{
    const double x = t->data[index];
    *kink = 0;
    if (isinf(x) || (x == 0 && !strcmp(t->name, "gate"))) return 0; /* by rule */
    double *direction = calloc((size_t)bag_size(t), sizeof *direction);
    direction[index] = fmax(1, fabs(x));
    double derivative = variant_derivative(o, in, t, direction, kink) / direction[index];
    free(direction);
    return derivative;
}
