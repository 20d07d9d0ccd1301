/*
 * linear.h - small dense linear algebra in double, row-major.
 *
 *     svd.c       one-sided Jacobi SVD; orthogonal Procrustes by it
 *     eigen.c     Jacobi eigenvalues of symmetric matrices
 *     cholesky.c  Cholesky factors and triangular solves
 *     dense.c     products
 *
 * Jacobi methods are slower than those LAPACK has and simpler, they find small singular
 * values to high relative accuracy, and matrices here have the size of a head. Nothing
 * allocates: callers bring the memory.
 */
#ifndef PH_LINEAR_LINEAR_H
#define PH_LINEAR_LINEAR_H

/* a (m, n) = sum over i < k = min(m, n) of s[i] ut[i] vt[i]^T, s descending. Rows of
   ut (k, m) and of vt (k, n) are orthonormal, also those of singular values that are 0:
   what is below the rounding of the largest becomes 0. Returns the sweeps it took, each
   rotating every pair of rows at most once. */
int ph_svd(int m, int n, const double *a, double *ut, double *s, double *vt);

/* Rows of x (k, m), k <= m, become orthonormal one after the other, by Gram and Schmidt;
   one that depends on those before it becomes any direction that does not. */
void ph_orthonormalise(int k, int m, double *x);

/* The orthogonal r (n, n), reflections included, for which the trace of r^T c is largest:
   with c = x^T y, x r is closest to y. Returns that trace. Where c is singular r is one
   of several. work: 2 n^2 + n elements. */
double ph_procrustes(int n, const double *c, double *r, double *work);

/* The symmetric a (n, n) = sum over i of w[i] vt[i] vt[i]^T, w descending; a is
   overwritten. Returns sweeps as above. */
int ph_eigen(int n, double *a, double *w, double *vt);

/* a (n, n) + ridge I = l l^T: l replaces the lower triangle of a, nothing else of a is
   read. Returns 0, or 1 where that matrix is not positive definite. */
int ph_cholesky(int n, double *a, double ridge);

/* x becomes l^-1 x, l^-T x, (l l^T)^-1 x. */
void ph_solve_lower(int n, const double *l, double *x);
void ph_solve_upper(int n, const double *l, double *x);
void ph_cholesky_solve(int n, const double *l, double *x);

/* c (m, n) = a b for a (m, k), b (k, n); c = a^T b for a (k, m); c += a^T b. */
void ph_multiply(int m, int k, int n, const double *a, const double *b, double *c);
void ph_multiply_left(int m, int k, int n, const double *a, const double *b, double *c);
void ph_multiply_add_left(int m, int k, int n, const double *a, const double *b,
                          double *c);

/* ---- vectors ----------------------------------------------------------------------- */

static inline double ph_dot(int n, const double *x, const double *y)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* y += c x */
static inline void ph_axpy(int n, double c, const double *x, double *y)
{
    for (int i = 0; i < n; i++) y[i] += c * x[i];
}

/* (x, y) becomes (c x - s y, s x + c y). */
static inline void ph_rotate(int n, double c, double s, double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        double t = x[i];
        x[i] = c * t - s * y[i];
        y[i] = s * t + c * y[i];
    }
}

/* The rotation that makes [[p, off], [off, q]] diagonal: cosine and sine of the smaller
   of the two angles, which is what makes Jacobi sweeps converge. */
void ph_jacobi_angle(double p, double q, double off, double *c, double *s);

#endif
