/*
 * test_linear.c - SVD, Procrustes, eigenvalues and Cholesky factors against their
 * definitions.
 *
 * Bounds. A Jacobi rotation rounds each element twice and its coefficients are off by at
 * most 4 roundings, so it changes a matrix by at most 6 eps of its norm, and a sweep over
 * n rows makes n - 1 rotations of each row: after so many sweeps residuals are below
 * 6 eps sweeps (n - 1) of the norm, plus n eps of the last sums. Rows count as orthogonal
 * when their cosine is below sqrt(m) eps and gain at most m eps when it is computed here.
 */
#include <float.h>
#include <math.h>

#include "check.h"
#include "linear/linear.h"

enum { MOST = 24 };

typedef struct factors {
    int m, n, k, sweeps;
    double a[MOST * MOST], ut[MOST * MOST], s[MOST], vt[MOST * MOST];
} factors;

static double norm_of(int count, const double *a)
{
    return sqrt(ph_dot(count, a, a));
}

static void fill_random(int count, double *a)
{
    uint64_t state = check_seed * 31 + (uint64_t)count;
    for (int i = 0; i < count; i++) a[i] = (double)check_normal(&state);
}

/* How far rows are from orthonormal: the largest element of x x^T - I. */
static double off_orthonormal(int rows, int n, const double *x)
{
    double worst = 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j <= i; j++)
            worst = fmax(worst, fabs(ph_dot(n, x + i * n, x + j * n) - (i == j)));
    return worst;
}

static double rotation_bound(int n, int sweeps)
{
    return DBL_EPSILON * (6.0 * sweeps * n + n);
}

static void check_svd(factors *f)
{
    double rest[MOST * MOST];
    int m = f->m, n = f->n;
    f->k = m < n ? m : n;
    int most = m < n ? n : m;
    f->sweeps = ph_svd(m, n, f->a, f->ut, f->s, f->vt);
    memcpy(rest, f->a, sizeof rest);
    for (int i = 0; i < f->k; i++) {
        CHECK(f->s[i] >= 0 && (!i || f->s[i] <= f->s[i - 1]),
              "singular value %d is %g after %g", i, f->s[i], i ? f->s[i - 1] : 0);
        for (int r = 0; r < m; r++)
            ph_axpy(n, -f->s[i] * f->ut[i * m + r], f->vt + i * n, rest + r * n);
    }
    double bound = rotation_bound(most, f->sweeps);
    CHECK(norm_of(m * n, rest) <= bound * norm_of(m * n, f->a),
          "%d x %d: residual %g of norm %g, expected at most %g", m, n,
          norm_of(m * n, rest), norm_of(m * n, f->a), bound);
    double u = off_orthonormal(f->k, m, f->ut), v = off_orthonormal(f->k, n, f->vt);
    CHECK(u <= bound && v <= bound, "%d x %d: factors off orthonormal by %g and %g", m, n,
          u, v);
}

static void svd_random(void)
{
    static const int sizes[][2] = {{1, 1}, {1, 5},   {5, 1},  {2, 2},  {7, 4},
                                   {4, 7}, {16, 16}, {24, 9}, {9, 24}, {24, 24}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        factors f = {.m = sizes[i][0], .n = sizes[i][1]};
        fill_random(f.m * f.n, f.a);
        check_svd(&f);
        CHECK(f.sweeps < 20, "%d x %d took %d sweeps", f.m, f.n, f.sweeps);
    }
}

/* Rank 1, rank 2 of 6, and nothing at all: the other rows complete a basis. */
static void svd_singular(void)
{
    for (int rank = 0; rank <= 2; rank++) {
        factors f = {.m = 9, .n = 6};
        double x[18], y[12];
        fill_random(18, x);
        fill_random(12, y);
        for (int r = 0; r < rank; r++)
            for (int i = 0; i < 9; i++) ph_axpy(6, x[r * 9 + i], y + r * 6, f.a + i * 6);
        check_svd(&f);
        for (int i = 0; i < 6; i++)
            CHECK((f.s[i] > 0) == (i < rank), "rank %d: singular value %d is %g", rank, i,
                  f.s[i]);
    }
}

/* An orthogonal matrix of which every singular value is 1, and a planted spectrum. */
static void svd_repeated(void)
{
    static const double planted[] = {3, 3, 3, 1, 1, 1e-9};
    double q[36], s[6], p[36];
    fill_random(36, q);
    factors f = {.m = 6, .n = 6};
    memcpy(f.a, q, sizeof q);
    check_svd(&f);
    memcpy(q, f.ut, sizeof q);
    memcpy(p, f.vt, sizeof p);
    memset(f.a, 0, sizeof f.a);
    for (int i = 0; i < 6; i++)
        for (int r = 0; r < 6; r++)
            ph_axpy(6, planted[i] * q[i * 6 + r], p + i * 6, f.a + r * 6);
    check_svd(&f);
    memcpy(s, f.s, sizeof s);
    for (int i = 0; i < 6; i++) /* the sums above round 6 times, by 3 eps each */
        CHECK(fabs(s[i] - planted[i]) <= 3 * (rotation_bound(6, f.sweeps) + 6e-16),
              "singular value %d is %.17g, expected %g", i, s[i], planted[i]);
    for (int i = 0; i < 36; i++) f.a[i] = q[i];
    check_svd(&f);
    for (int i = 0; i < 6; i++)
        CHECK(fabs(f.s[i] - 1) <= rotation_bound(6, 20), "an orthogonal matrix has %.17g",
              f.s[i]);
}

/* Elements near the ends of the range of a double. */
static void svd_scales(void)
{
    static const double scales[] = {1e-300, 1e-160, 1e160, 1e300};
    for (int i = 0; i < 4; i++) {
        factors f = {.m = 5, .n = 4}, g = {.m = 5, .n = 4};
        fill_random(20, f.a);
        for (int j = 0; j < 20; j++) g.a[j] = f.a[j] * scales[i];
        check_svd(&f);
        ph_svd(5, 4, g.a, g.ut, g.s, g.vt);
        for (int j = 0; j < 4; j++)
            CHECK(fabs(g.s[j] / scales[i] - f.s[j]) <=
                      2 * rotation_bound(5, f.sweeps) * f.s[0],
                  "scale %g: %.17g, expected %.17g", scales[i], g.s[j] / scales[i],
                  f.s[j]);
    }
}

/* Rows that depend on those before them become other directions; the others keep the
   space they span with those before them. */
static void orthonormalised(void)
{
    double x[5 * 7], y[5 * 7];
    fill_random(5 * 7, x);
    for (int i = 0; i < 7; i++) x[2 * 7 + i] = 3 * x[i] - x[7 + i], x[4 * 7 + i] = 0;
    memcpy(y, x, sizeof x);
    ph_orthonormalise(5, 7, y);
    /* each of two passes leaves a rounding of 7 terms against up to 4 rows */
    double off = off_orthonormal(5, 7, y);
    CHECK(off <= 2 * 4 * 7 * DBL_EPSILON, "rows are off orthonormal by %g", off);
    for (int i = 0; i < 4; i++) {
        if (i == 2) continue;
        for (int k = 0; k <= i; k++) {
            const double *axis = y + k * 7;
            ph_axpy(7, -ph_dot(7, axis, x + i * 7), axis, x + i * 7);
        }
        CHECK(norm_of(7, x + i * 7) <= 5 * 7 * 8 * DBL_EPSILON,
              "row %d has %g outside of those up to it", i, norm_of(7, x + i * 7));
    }
}

/* ---- Procrustes -------------------------------------------------------------------- */

/* c (n, n) = x^T y for x, y (rows, n) */
static void cross(int rows, int n, const double *x, const double *y, double *c)
{
    memset(c, 0, (size_t)(n * n) * sizeof *c);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) ph_axpy(n, x[r * n + i], y + r * n, c + i * n);
}

/* y = x r: the rotation comes back, reflections too. The Gram matrix of 24 random rows of
   5 has a condition number below 100 here, by which its rounding of 24 eps grows. */
static void procrustes_recovers(void)
{
    enum { ROWS = 24, N = 5 };
    double x[ROWS * N], y[ROWS * N], c[N * N], r[N * N], work[2 * N * N + N];
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        factors f = {.m = N, .n = N};
        fill_random(ROWS * N, x);
        fill_random(N * N, f.a);
        check_svd(&f); /* ut is orthogonal */
        for (int j = 0; j < N && mirrored; j++) f.ut[j] = -f.ut[j];
        memset(y, 0, sizeof y);
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < N; j++) ph_axpy(N, x[i * N + j], f.ut + j * N, y + i * N);
        cross(ROWS, N, x, y, c);
        double trace = ph_procrustes(N, c, r, work);
        for (int i = 0; i < N * N; i++)
            CHECK(fabs(r[i] - f.ut[i]) <= 100 * (24 + 6 * 20 * N) * DBL_EPSILON,
                  "element %d is %.17g, expected %.17g", i, r[i], f.ut[i]);
        double norm = ph_dot(ROWS * N, x, x);
        CHECK(fabs(trace - norm) <= norm * rotation_bound(ROWS, 20),
              "the trace is %.17g, expected %.17g", trace, norm);
    }
}

/* No rotation is better than the one that was found. */
static void procrustes_is_best(void)
{
    enum { N = 6 };
    double c[N * N], r[N * N], work[2 * N * N + N];
    fill_random(N * N, c);
    double best = ph_procrustes(N, c, r, work);
    CHECK(fabs(ph_dot(N * N, r, c) - best) <= best * rotation_bound(N, 20),
          "the trace of r^T c is %g, said was %g", ph_dot(N * N, r, c), best);
    for (int p = 0; p < N; p++)
        for (int q = p + 1; q < N; q++) {
            double rotated[N * N];
            memcpy(rotated, r, sizeof r);
            ph_rotate(N, cos(0.01), sin(0.01), rotated + p * N, rotated + q * N);
            CHECK(ph_dot(N * N, rotated, c) < best, "rotating %d and %d is better", p, q);
        }
}

static void procrustes_singular(void)
{
    enum { N = 6 };
    double c[N * N] = {0}, r[N * N], work[2 * N * N + N];
    for (int rank = 0; rank <= 1; rank++) {
        c[7] = rank;
        CHECK(ph_procrustes(N, c, r, work) == rank, "the trace of rank %d is wrong",
              rank);
        CHECK(off_orthonormal(N, N, r) <= rotation_bound(N, 1),
              "rank %d: r is off orthogonal by %g", rank, off_orthonormal(N, N, r));
    }
}

/* ---- eigenvalues ------------------------------------------------------------------- */

static void check_eigen(int n, const double *given, double *w)
{
    double a[MOST * MOST], vt[MOST * MOST], rest[MOST * MOST];
    memcpy(a, given, (size_t)(n * n) * sizeof *a);
    int sweeps = ph_eigen(n, a, w, vt);
    memcpy(rest, given, (size_t)(n * n) * sizeof *a);
    for (int i = 0; i < n; i++) {
        CHECK(!i || w[i] <= w[i - 1], "eigenvalue %d is %g after %g", i, w[i], w[i - 1]);
        for (int r = 0; r < n; r++)
            ph_axpy(n, -w[i] * vt[i * n + r], vt + i * n, rest + r * n);
    }
    double bound = 2 * rotation_bound(n, sweeps + 1); /* rows and columns */
    CHECK(norm_of(n * n, rest) <= bound * norm_of(n * n, given),
          "n %d: residual %g, expected at most %g", n, norm_of(n * n, rest), bound);
    CHECK(off_orthonormal(n, n, vt) <= bound, "n %d: vectors off orthonormal by %g", n,
          off_orthonormal(n, n, vt));
}

static void eigen_random(void)
{
    static const int sizes[] = {1, 2, 3, 8, 24};
    double a[MOST * MOST], w[MOST];
    for (int s = 0; s < 5; s++) {
        int n = sizes[s];
        fill_random(n * n, a);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < i; j++) a[i * n + j] = a[j * n + i];
        check_eigen(n, a, w);
    }
}

/* The identity, nothing, and a matrix of ones: eigenvalues 5, 0, 0, 0, 0. */
static void eigen_repeated(void)
{
    double a[25] = {0}, w[5];
    check_eigen(5, a, w);
    CHECK(w[0] == 0 && w[4] == 0, "nothing has eigenvalues %g and %g", w[0], w[4]);
    for (int i = 0; i < 5; i++) a[i * 6] = 1;
    check_eigen(5, a, w);
    CHECK(w[0] == 1 && w[4] == 1, "the identity has %g and %g", w[0], w[4]);
    for (int i = 0; i < 25; i++) a[i] = 1;
    check_eigen(5, a, w);
    CHECK(fabs(w[0] - 5) <= 5 * rotation_bound(5, 20) &&
              fabs(w[1]) <= 5 * rotation_bound(5, 20),
          "ones have %.17g and %g", w[0], w[1]);
}

/* ---- Cholesky ---------------------------------------------------------------------- */

/* l l^T has a backward error of n + 1 roundings; each of two solves as many again. */
static void cholesky_solves(void)
{
    static const int sizes[] = {1, 2, 7, 20};
    for (int s = 0; s < 4; s++) {
        int n = sizes[s];
        double b[MOST * MOST], a[MOST * MOST] = {0}, l[MOST * MOST];
        double x[MOST] = {0}, y[MOST];
        fill_random(n * n, b);
        cross(n, n, b, b, a);
        memcpy(l, a, sizeof a);
        CHECK(ph_cholesky(n, l, 0.5) == 0, "n %d is not positive definite", n);
        fill_random(n, x);
        memcpy(y, x, sizeof x);
        ph_cholesky_solve(n, l, y);
        for (int i = 0; i < n; i++) a[i * n + i] += 0.5;
        double size = norm_of(n * n, a) * norm_of(n, y);
        for (int i = 0; i < n; i++) {
            double rest = ph_dot(n, a + i * n, y) - x[i];
            CHECK(fabs(rest) <= 4 * (n + 1) * DBL_EPSILON * size,
                  "n %d: row %d is off by %g", n, i, rest);
        }
    }
}

/* A matrix without full rank is refused, and solved with a ridge. */
static void cholesky_singular(void)
{
    double ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, a[9], x[3] = {1, 1, 1};
    memcpy(a, ones, sizeof a);
    CHECK(ph_cholesky(3, a, 0) == 1, "a matrix of ones has a factor");
    memcpy(a, ones, sizeof a);
    a[0] = -1;
    CHECK(ph_cholesky(3, a, 0) == 1, "a negative diagonal has a factor");
    memcpy(a, ones, sizeof a);
    CHECK(ph_cholesky(3, a, 1) == 0, "a ridge does not help");
    ph_cholesky_solve(3, a, x); /* (ones + I) x = 1 has x = 1/4 */
    for (int i = 0; i < 3; i++)
        CHECK(fabs(x[i] - 0.25) <= 16 * DBL_EPSILON, "x[%d] is %.17g", i, x[i]);
}

static const check_case cases[] = {{"svd_random", svd_random},
                                   {"svd_singular", svd_singular},
                                   {"svd_repeated", svd_repeated},
                                   {"svd_scales", svd_scales},
                                   {"orthonormalised", orthonormalised},
                                   {"procrustes_recovers", procrustes_recovers},
                                   {"procrustes_is_best", procrustes_is_best},
                                   {"procrustes_singular", procrustes_singular},
                                   {"eigen_random", eigen_random},
                                   {"eigen_repeated", eigen_repeated},
                                   {"cholesky_solves", cholesky_solves},
                                   {"cholesky_singular", cholesky_singular},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
