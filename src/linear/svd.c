/*
 * svd.c - one-sided Jacobi SVD, and orthogonal Procrustes by it.
 *
 * Rows x_i of a work matrix are rotated against each other until they are orthogonal;
 * their norms are the singular values then, and the product of the rotations is the
 * other factor. The work matrix is a or its transpose, whichever has fewer rows.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "linear/linear.h"

enum { SWEEPS = 60 }; /* quadratic convergence needs about 10 */

void ph_jacobi_angle(double p, double q, double off, double *c, double *s)
{
    double t = (q - p) / (2 * off);
    t = (t >= 0 ? 1 : -1) / (fabs(t) + sqrt(1 + t * t));
    *c = 1 / sqrt(1 + t * t);
    *s = t * *c;
}

static void identity(int n, double *a)
{
    memset(a, 0, (size_t)n * (size_t)n * sizeof *a);
    for (int i = 0; i < n; i++) a[(size_t)i * (size_t)n + (size_t)i] = 1;
}

/* Makes two rows orthogonal; 0: they were, up to the rounding of a dot product. */
static int rotate_pair(int m, int n, double *x, double *y, double *u, double *v)
{
    double p = ph_dot(m, x, x), q = ph_dot(m, y, y), off = ph_dot(m, x, y), c, s;
    if (fabs(off) <= DBL_EPSILON * sqrt((double)m) * sqrt(p) * sqrt(q)) return 0;
    ph_jacobi_angle(p, q, off, &c, &s);
    ph_rotate(m, c, s, x, y);
    ph_rotate(n, c, s, u, v);
    return 1;
}

/* Rows of x (k, m) become orthogonal, rows of v (k, k) rotate with them. */
static int orthogonalise(int k, int m, double *x, double *v)
{
    int sweeps = 0, rotated = 1;
    while (rotated && sweeps < SWEEPS) {
        rotated = 0;
        sweeps++;
        for (int i = 0; i < k; i++)
            for (int j = i + 1; j < k; j++)
                rotated |= rotate_pair(
                    m, k, x + (size_t)i * (size_t)m, x + (size_t)j * (size_t)m,
                    v + (size_t)i * (size_t)k, v + (size_t)j * (size_t)k);
    }
    return sweeps;
}

/* Removes what row `to` has of the rows before it; twice, because once leaves rounding
   of the size of what was removed. Returns its norm. */
static double project_out(int m, double *rows, int to)
{
    double *x = rows + (size_t)to * (size_t)m;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < to; i++) {
            const double *y = rows + (size_t)i * (size_t)m;
            ph_axpy(m, -ph_dot(m, y, x), y, x);
        }
    return sqrt(ph_dot(m, x, x));
}

/* Row `to` becomes a unit vector orthogonal to those before it: some axis has at least
   1/sqrt(m) of its norm outside of fewer than m directions. */
static void complete(int m, double *rows, int to)
{
    double *x = rows + (size_t)to * (size_t)m, norm = 0;
    for (int axis = 0; axis < m && norm * norm * 4 * m < 1; axis++) {
        memset(x, 0, (size_t)m * sizeof *x);
        x[axis] = 1;
        norm = project_out(m, rows, to);
    }
    for (int i = 0; i < m; i++) x[i] /= norm;
}

static void swap_rows(int n, double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        double t = x[i];
        x[i] = y[i], y[i] = t;
    }
}

static void sort_descending(int k, int m, double *s, double *x, double *v)
{
    for (int i = 0; i < k; i++) {
        int best = i;
        for (int j = i + 1; j < k; j++)
            if (s[j] > s[best]) best = j;
        if (best == i) continue;
        swap_rows(1, s + i, s + best);
        swap_rows(m, x + (size_t)i * (size_t)m, x + (size_t)best * (size_t)m);
        swap_rows(k, v + (size_t)i * (size_t)k, v + (size_t)best * (size_t)k);
    }
}

void ph_orthonormalise(int k, int m, double *x)
{
    for (int i = 0; i < k; i++) {
        double *row = x + (size_t)i * (size_t)m;
        double before = sqrt(ph_dot(m, row, row)), after = project_out(m, x, i);
        if (after > before * DBL_EPSILON * m)
            for (int j = 0; j < m; j++) row[j] /= after;
        else
            complete(m, x, i);
    }
}

/* Rows that are nothing but rounding have no direction of their own. */
static void normalise(int k, int m, double *s, double *x)
{
    double least = k ? s[0] * DBL_EPSILON * (m > k ? m : k) : 0;
    for (int i = 0; i < k; i++) {
        double *row = x + (size_t)i * (size_t)m;
        if (s[i] > least) {
            for (int j = 0; j < m; j++) row[j] /= s[i];
        } else {
            s[i] = 0;
            complete(m, x, i);
        }
    }
}

/* x (k, m), k <= m: row by row the transpose of a, or a itself. */
static int decompose(int k, int m, double *x, double *s, double *v)
{
    double scale = 0;
    size_t count = (size_t)k * (size_t)m;
    for (size_t i = 0; i < count; i++) scale = fmax(scale, fabs(x[i]));
    for (size_t i = 0; i < count && scale > 0; i++) x[i] /= scale;
    identity(k, v);
    int sweeps = orthogonalise(k, m, x, v);
    for (int i = 0; i < k; i++) {
        const double *row = x + (size_t)i * (size_t)m;
        s[i] = sqrt(ph_dot(m, row, row));
    }
    sort_descending(k, m, s, x, v);
    normalise(k, m, s, x);
    for (int i = 0; i < k; i++) s[i] *= scale;
    return sweeps;
}

int ph_svd(int m, int n, const double *a, double *ut, double *s, double *vt)
{
    size_t rows = (size_t)m, columns = (size_t)n;
    if (m < n) {
        memcpy(vt, a, rows * columns * sizeof *a);
        return decompose(m, n, vt, s, ut);
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) ut[j * rows + i] = a[i * columns + j];
    return decompose(n, m, ut, s, vt);
}

double ph_procrustes(int n, const double *c, double *r, double *work)
{
    size_t size = (size_t)n * (size_t)n;
    double *ut = work, *vt = work + size, *s = vt + size, trace = 0;
    ph_svd(n, n, c, ut, s, vt);
    memset(r, 0, size * sizeof *r);
    for (int i = 0; i < n; i++) {
        const double *u = ut + (size_t)i * (size_t)n, *v = vt + (size_t)i * (size_t)n;
        for (int j = 0; j < n; j++) ph_axpy(n, u[j], v, r + (size_t)j * (size_t)n);
        trace += s[i];
    }
    return trace;
}
