/*
 * alignment.c - rotations that bring heads of a group together and change nothing else.
 *
 * Which rotations those are, positions decide (polyhead_convert.h). All that is needed of
 * the heads are products x_i^T x_j over the tokens of a text. A group is aligned by
 * generalised Procrustes: each head to the mean of all, again and again.
 */
#include <math.h>
#include <string.h>

#include "convert/convert.h"

enum { ROUNDS = 100 };

/* The best rotation of elements a and b: that which rotates the complex numbers
   x_a + i x_b towards y_a + i y_b. */
static double align_pair(int dim, int a, int b, const double *c, double *r)
{
    double imaginary = c[a * dim + b] - c[b * dim + a];
    double real = c[a * dim + a] + c[b * dim + b];
    double length = hypot(imaginary, real);
    double cosine = length > 0 ? real / length : 1;
    double sine = length > 0 ? imaginary / length : 0;
    r[a * dim + a] = r[b * dim + b] = cosine;
    r[a * dim + b] = sine, r[b * dim + a] = -sine;
    return length;
}

double ph_align(ph_freedom freedom, int dim, const double *c, double *r, double *work)
{
    double trace = 0;
    if (freedom == PH_FREEDOM_ALL) return ph_procrustes(dim, c, r, work);
    memset(r, 0, (size_t)dim * (size_t)dim * sizeof *r);
    for (int i = 0; i < dim; i++) r[i * dim + i] = 1;
    for (int i = 0; freedom == PH_FREEDOM_NONE && i < dim; i++) trace += c[i * dim + i];
    for (int p = 0; freedom == PH_FREEDOM_HALF && p < dim / 2; p++)
        trace += align_pair(dim, p, p + dim / 2, c, r);
    for (int p = 0; freedom == PH_FREEDOM_INTERLEAVED && p < dim / 2; p++)
        trace += align_pair(dim, 2 * p, 2 * p + 1, c, r);
    return trace;
}

/* c = x_i^T (sum over the group of x_j r_j) */
static void towards_mean(int dim, int heads, const double *grams, const int *members,
                         int count, int i, const double *r, double *c)
{
    size_t size = (size_t)dim * (size_t)dim;
    memset(c, 0, size * sizeof *c);
    for (int j = 0; j < count; j++) {
        const double *pair = grams + (size_t)(members[i] * heads + members[j]) * size;
        for (int a = 0; a < dim; a++)
            for (int b = 0; b < dim; b++)
                ph_axpy(dim, pair[a * dim + b],
                        r + (size_t)j * size + (size_t)b * (size_t)dim,
                        c + (size_t)a * (size_t)dim);
    }
}

/* Each round makes the squared norm of the mean larger, which is what all heads have in
   common. */
void ph_align_group(ph_freedom freedom, int dim, int heads, const double *grams,
                    const int *members, int count, double *r, double *work)
{
    size_t size = (size_t)dim * (size_t)dim;
    double *c = work, *next = work + size, *scratch = next + (size_t)count * size;
    double last = 0, total = 0;
    for (int i = 0; i < count; i++) {
        const double *pair = grams + (size_t)(members[i] * heads + members[0]) * size;
        const double *own = grams + (size_t)(members[i] * heads + members[i]) * size;
        ph_align(i ? freedom : PH_FREEDOM_NONE, dim, pair, r + (size_t)i * size, scratch);
        for (int a = 0; a < dim; a++) total += own[a * dim + a];
    }
    for (int round = 0; count > 2 && freedom != PH_FREEDOM_NONE && round < ROUNDS;
         round++) {
        double sum = 0;
        for (int i = 0; i < count; i++) {
            towards_mean(dim, heads, grams, members, count, i, r, c);
            sum += ph_align(freedom, dim, c, next + (size_t)i * size, scratch);
        }
        memcpy(r, next, (size_t)count * size * sizeof *r);
        if (round && sum - last <= 1e-9 * count * total) return;
        last = sum;
    }
}
