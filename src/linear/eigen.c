/*
 * eigen.c - eigenvalues and eigenvectors of a symmetric matrix by cyclic Jacobi sweeps.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "linear/linear.h"

enum { SWEEPS = 60 };

static double *row_of(double *a, int n, int i)
{
    return a + (size_t)i * (size_t)n;
}

/* Rotates rows and columns p < q so that element (p, q) becomes 0. */
static void rotate(int n, double *a, double *vt, int p, int q)
{
    double c, s;
    double *x = row_of(a, n, p), *y = row_of(a, n, q);
    ph_jacobi_angle(x[p], y[q], x[q], &c, &s);
    ph_rotate(n, c, s, x, y);
    for (int i = 0; i < n; i++) {
        double *row = row_of(a, n, i);
        ph_rotate(1, c, s, &row[p], &row[q]);
    }
    x[q] = y[p] = 0;
    ph_rotate(n, c, s, row_of(vt, n, p), row_of(vt, n, q));
}

static int sweep(int n, double *a, double *vt, double tiny)
{
    int rotated = 0;
    for (int p = 0; p < n; p++)
        for (int q = p + 1; q < n; q++) {
            if (fabs(row_of(a, n, p)[q]) <= tiny) continue;
            rotate(n, a, vt, p, q);
            rotated = 1;
        }
    return rotated;
}

static void sort_descending(int n, double *w, double *vt)
{
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++)
            if (w[j] > w[best]) best = j;
        if (best == i) continue;
        double *x = row_of(vt, n, i), *y = row_of(vt, n, best), t = w[i];
        w[i] = w[best], w[best] = t;
        for (int k = 0; k < n; k++) t = x[k], x[k] = y[k], y[k] = t;
    }
}

int ph_eigen(int n, double *a, double *w, double *vt)
{
    size_t count = (size_t)n * (size_t)n;
    double norm = 0;
    int sweeps = 0;
    memset(vt, 0, count * sizeof *vt);
    for (int i = 0; i < n; i++) row_of(vt, n, i)[i] = 1;
    for (size_t i = 0; i < count; i++) norm = hypot(norm, a[i]);
    /* n^2 elements of this size together are below one rounding of the norm */
    while (sweeps < SWEEPS && sweep(n, a, vt, DBL_EPSILON * norm / n)) sweeps++;
    for (int i = 0; i < n; i++) w[i] = row_of(a, n, i)[i];
    sort_descending(n, w, vt);
    return sweeps;
}
