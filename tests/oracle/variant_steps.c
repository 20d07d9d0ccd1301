/*
 * variant_steps.c - what the steps of variant_parts.h share: arrays, noise, options,
 * products, norm, rotation.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "variant_parts.h"

double *take(work *w, int count)
{
    if (w->takes == WORK_MOST) abort();
    double *a = calloc((size_t)count + 1, sizeof *a);
    w->taken[w->takes++] = a;
    return a;
}

double *given(const work *w, const char *name)
{
    return bag_data(w->in, name);
}

/* ---- noise ------------------------------------------------------------------------- */

/* In [-1, 1), the same for the same seed, place and index: the noisy loss is as smooth as
   the exact one, so it can be differenced too. */
static double draw(uint64_t seed, uint64_t place, uint64_t index)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + place * 0xd1b54a32d192ed03u + index;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

void variant_jitter(double noise, uint64_t seed, int place, double *a, int count)
{
    for (int i = 0; i < count && noise > 0; i++)
        a[i] *= 1 + noise * draw(seed, (uint64_t)place, (uint64_t)i);
}

void jitter(work *w, double *a, int count)
{
    uint64_t seed = w->recomputes ? w->o->recompute_seed : w->o->noise_seed;
    variant_jitter(w->o->noise, seed, w->places++, a, count);
}

/* ---- options ----------------------------------------------------------------------- */

/* Text after "key=" (or after a key alone), or NULL. */
static const char *option(const work *w, const char *key)
{
    const char *at = w->o->variant ? strpbrk(w->o->variant, ":,") : NULL;
    size_t length = strlen(key);
    for (; at; at = strpbrk(at, ":,")) {
        at++;
        if (strncmp(at, key, length)) continue;
        if (at[length] == '=') return at + length + 1;
        if (!at[length] || strchr(",+", at[length])) return "1";
    }
    return NULL;
}

double option_number(const work *w, const char *key, double otherwise)
{
    const char *text = option(w, key);
    return text ? strtod(text, NULL) : otherwise;
}

int option_is(const work *w, const char *key, const char *value)
{
    const char *text = option(w, key);
    size_t length = strlen(value);
    return text && !strncmp(text, value, length) &&
           (text[length] == 0 || strchr(",+", text[length]));
}

/* ---- products ---------------------------------------------------------------------- */

int columns(const work *w, const char *matrix)
{
    const bag_tensor *t = bag_find(w->in, matrix);
    return t->rank == 3 ? t->dim[0] * t->dim[2] : t->dim[1];
}

double *apply(work *w, const double *x, int len, int in, const char *matrix,
              const char *b, int heads, int dim)
{
    const bag_tensor *m = bag_find(w->in, matrix);
    const double *bias = b ? given(w, b) : NULL;
    double *y = take(w, w->batch * heads * len * dim);
    for (int r = 0; r < w->batch * len; r++)
        for (int h = 0; h < heads; h++)
            for (int d = 0; d < dim; d++) {
                double sum = bias ? bias[h * dim + d] : 0;
                for (int c = 0; c < in; c++)
                    sum +=
                        x[r * in + c] * m->data[m->rank == 3 ? (h * in + c) * dim + d
                                                             : (c * heads + h) * dim + d];
                y[((r / len * heads + h) * len + r % len) * dim + d] = sum;
            }
    jitter(w, y, w->batch * heads * len * dim);
    return y;
}

/* ---- norm and rotation ------------------------------------------------------------- */

void rms_rows(double *x, int rows, int dim, const double *gain, double eps)
{
    for (int r = 0; r < rows; r++, x += dim) {
        double sum = 0;
        for (int d = 0; d < dim; d++) sum += x[d] * x[d];
        double factor = 1 / sqrt(sum / dim + eps);
        for (int d = 0; d < dim; d++) x[d] *= gain ? gain[d] * factor : factor;
    }
}

/* Angle of pair p per position: base^(-2p/dims), slowed down by `factor` for the pairs
   that rotate less than once within `length` (YaRN), not for those that rotate 32
   times. */
static double pace(const variant_options *o, int p, int dims)
{
    double base = o->rope_base > 0 ? o->rope_base : 10000, factor = o->yarn_factor;
    double theta = pow(base, -2.0 * p / dims), pi = acos(-1);
    if (o->rope_divisors) return theta / o->rope_divisors[p];
    if (o->linear_factor > 0) return theta / o->linear_factor;
    if (o->llama3_factor > 0) {
        double wavelength = 2 * pi / theta, low = o->llama3_low, high = o->llama3_high;
        double kept = (o->llama3_length / wavelength - low) / (high - low);
        kept = fmin(1, fmax(0, kept));
        return theta * (kept + (1 - kept) / o->llama3_factor);
    }
    if (factor == 0) return theta;
    double low = floor(dims / 2.0 * log(o->yarn_length / (32 * 2 * pi)) / log(base));
    double high = ceil(dims / 2.0 * log(o->yarn_length / (2 * pi)) / log(base));
    low = low > 0 ? low : 0, high = high < dims - 1 ? high : dims - 1;
    double ramp = high > low ? high - low : 1e-3;
    double share = fmin(1, fmax(0, (p - low) / ramp)); /* of the slow one */
    return theta / factor * share + theta * (1 - share);
}

void rotate(const work *w, double *y, int rows, int len, int stride, int dims, int start,
            int interleaved)
{
    double factor = w->o->yarn_factor, grown = factor > 0 ? 0.1 * log(factor) + 1 : 1;
    if (w->o->rope_divisors) grown = w->o->rope_grown;
    for (int p = 0; p < dims / 2; p++) {
        double theta = pace(w->o, p, dims);
        for (int r = 0; r < rows; r++) {
            double angle = (start + r % len) * theta, *row = y + r * stride;
            double *one = row + (interleaved ? 2 * p : p);
            double *two = row + (interleaved ? 2 * p + 1 : p + dims / 2);
            double a = *one, b = *two;
            *one = grown * (a * cos(angle) - b * sin(angle));
            *two = grown * (b * cos(angle) + a * sin(angle));
        }
    }
}
