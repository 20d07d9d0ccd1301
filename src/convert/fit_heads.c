/*
 * fit_heads.c - what heads of a group have in common, by least squares.
 *
 * With weights l_i l_i^T the errors of a group are those of y_i = x_i l_i in the usual
 * norm. If y_i ~ u e_i and the e_i side by side have orthonormal rows, the best u is the
 * sum of y_i e_i^T, and the best rows span the leading eigenvectors of the
 * Gram matrix of all y_i side by side. So to_i = l_i e_i^T, back_i = e_i l_i^-1.
 *
 * Freely, the eigenvectors come from orthogonal iteration, which starts at the rotations
 * of the group and never gets worse. With rotary positions a pair of elements is one
 * complex number, whose factors commute with the rotation: e_i is a complex number for
 * each pair, the leading eigenvector of a Hermitian matrix of the size of the group.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "convert/convert.h"

enum { ROUNDS = 200 };

typedef struct fit {
    int dim, heads, count;
    const double *grams, *weight;
    const int *members;
    double *to, *back;
    double *gram;           /* (count * dim, count * dim) of all y_i */
    double *l;              /* (count, dim, dim) Cholesky factors of the weights */
    double *e, *y;          /* (dim, count * dim) */
    double *square, *other; /* (dim, dim) */
} fit;

size_t ph_fit_work(int dim, int count)
{
    size_t d = (size_t)dim, all = d * (size_t)count, pairs = 4 * (size_t)count;
    return all * all + (size_t)count * d * d + 2 * all * d + 2 * d * d +
           pairs * (2 * pairs + 1);
}

static double *square_at(double *list, int dim, int i)
{
    return list + (size_t)i * (size_t)dim * (size_t)dim;
}

/* ---- freely ------------------------------------------------------------------------ */

/* Directions that cost nothing on these texts count a hundredth of the mean, for other
   texts. */
static int factor_weights(const fit *f)
{
    size_t bytes = (size_t)f->dim * (size_t)f->dim * sizeof *f->l;
    for (int n = 0; n < f->count; n++) {
        double *l = square_at(f->l, f->dim, n), mean = 0;
        memcpy(l, square_at((double *)f->weight, f->dim, f->members[n]), bytes);
        for (int i = 0; i < f->dim; i++) mean += l[i * f->dim + i] / f->dim;
        if (ph_cholesky(f->dim, l, 0.01 * mean)) return 1;
        for (int i = 0; i < f->dim; i++)
            for (int j = i + 1; j < f->dim; j++) l[i * f->dim + j] = 0;
    }
    return 0;
}

/* Blocks l_i^T gram_ij l_j. */
static void fill_gram(const fit *f)
{
    size_t all = (size_t)f->count * (size_t)f->dim;
    for (int i = 0; i < f->count; i++)
        for (int j = 0; j < f->count; j++) {
            int pair = f->members[i] * f->heads + f->members[j];
            ph_multiply(f->dim, f->dim, f->dim,
                        square_at((double *)f->grams, f->dim, pair),
                        square_at(f->l, f->dim, j), f->square);
            ph_multiply_left(f->dim, f->dim, f->dim, square_at(f->l, f->dim, i),
                             f->square, f->other);
            for (int r = 0; r < f->dim; r++)
                memcpy(f->gram + ((size_t)(i * f->dim + r)) * all + (size_t)(j * f->dim),
                       f->other + r * f->dim, (size_t)f->dim * sizeof *f->gram);
        }
}

static void iterate(const fit *f)
{
    int all = f->count * f->dim;
    double last = -1;
    for (int round = 0; round < ROUNDS; round++) {
        ph_multiply(f->dim, all, all, f->e, f->gram, f->y);
        double common = ph_dot(f->dim * all, f->e, f->y);
        if (common - last <= 1e-7 * common) return;
        last = common;
        memcpy(f->e, f->y, (size_t)f->dim * (size_t)all * sizeof *f->e);
        ph_orthonormalise(f->dim, all, f->e);
    }
}

/* What rotations have in common, y_i ~ u r_i^T l_i: block i of e is r_i^T l_i. */
static void start(const fit *f)
{
    size_t all = (size_t)f->count * (size_t)f->dim;
    for (int n = 0; n < f->count; n++) {
        ph_multiply(f->dim, f->dim, f->dim, square_at(f->back, f->dim, f->members[n]),
                    square_at(f->l, f->dim, n), f->square);
        for (int i = 0; i < f->dim; i++)
            memcpy(f->e + (size_t)i * all + (size_t)(n * f->dim), f->square + i * f->dim,
                   (size_t)f->dim * sizeof *f->e);
    }
    ph_orthonormalise(f->dim, (int)all, f->e);
}

static void store_free(const fit *f, int n)
{
    int d = f->dim;
    double *l = square_at(f->l, d, n), *to = square_at(f->to, d, f->members[n]);
    double *back = square_at(f->back, d, f->members[n]);
    for (int i = 0; i < d; i++) {
        const double *e = f->e + (size_t)i * (size_t)(f->count * d) + (size_t)(n * d);
        for (int r = 0; r < d; r++) to[r * d + i] = ph_dot(r + 1, l + r * d, e);
        memcpy(back + i * d, e, (size_t)d * sizeof *e);
        ph_solve_upper(d, l, back + i * d);
    }
}

/* ---- pair by pair ------------------------------------------------------------------ */

/* Elements a, b of all heads; matrix, vectors: (2 count, 2 count), values: (2 count). */
static void fit_pair(const fit *f, int a, int b, double *matrix, double *vectors,
                     double *values)
{
    int d = f->dim, n = f->count, size = 2 * n;
    double cost[2];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int pair = f->members[i] * f->heads + f->members[j];
            const double *g = square_at((double *)f->grams, d, pair);
            for (int k = 0; k < 2; k++) {
                const double *w =
                    square_at((double *)f->weight, d, f->members[k ? j : i]);
                cost[k] = sqrt((w[a * d + a] + w[b * d + b]) / 2) + DBL_MIN;
            }
            double real = (g[a * d + a] + g[b * d + b]) * cost[0] * cost[1];
            double imaginary = (g[a * d + b] - g[b * d + a]) * cost[0] * cost[1];
            matrix[i * size + j] = matrix[(n + i) * size + n + j] = real;
            matrix[(n + i) * size + j] = imaginary, matrix[i * size + n + j] = -imaginary;
        }
    ph_eigen(size, matrix, values, vectors);
    for (int i = 0; i < n; i++) {
        const double *w = square_at((double *)f->weight, d, f->members[i]);
        double *to = square_at(f->to, d, f->members[i]);
        double *back = square_at(f->back, d, f->members[i]);
        double l = sqrt((w[a * d + a] + w[b * d + b]) / 2) + DBL_MIN;
        double re = vectors[i], im = vectors[n + i];
        to[a * d + a] = to[b * d + b] = l * re;
        to[a * d + b] = l * im, to[b * d + a] = -l * im;
        back[a * d + a] = back[b * d + b] = re / l;
        back[b * d + a] = im / l, back[a * d + b] = -im / l;
    }
}

void ph_fit_group(ph_freedom freedom, int dim, int heads, const double *grams,
                  const double *weight, const int *members, int count, double *to,
                  double *back, double *work)
{
    size_t d = (size_t)dim, all = d * (size_t)count,
           pairs = 4 * (size_t)count * (size_t)count;
    fit f = {.dim = dim, .heads = heads, .count = count, .members = members};
    f.grams = grams, f.weight = weight, f.to = to, f.back = back;
    if (freedom == PH_FREEDOM_NONE) return; /* the mean */
    if (freedom != PH_FREEDOM_ALL) {
        int half = freedom == PH_FREEDOM_HALF;
        for (int p = 0; p < dim / 2; p++)
            fit_pair(&f, half ? p : 2 * p, half ? p + dim / 2 : 2 * p + 1, work,
                     work + pairs, work + 2 * pairs);
        return;
    }
    f.gram = work, f.l = f.gram + all * all, f.e = f.l + (size_t)count * d * d;
    f.y = f.e + all * d, f.square = f.y + all * d, f.other = f.square + d * d;
    if (factor_weights(&f)) return;
    fill_gram(&f);
    start(&f);
    iterate(&f);
    for (int n = 0; n < count; n++) store_free(&f, n);
}
