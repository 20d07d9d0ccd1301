/*
 * plane.c - multidimensional scaling and average linkage; see plane.h.
 *
 * Classical scaling: with D the squared distances, centred by rows and columns, the
 * points are the two largest eigenvectors of -D/2 times the square roots of their
 * eigenvalues. These come from subspace iteration, whose projected problem is small
 * enough for Jacobi. Everything is double and in a fixed order.
 */
#include "heads/plane.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "io/io.h"

/* ---- eigenvectors ------------------------------------------------------------------ */

/* Makes a[p][q] zero by a rotation of rows and columns p and q. */
static void rotate(int n, double *a, double *v, int p, int q)
{
    double off = a[p * n + q];
    if (off == 0) return;
    double theta = (a[q * n + q] - a[p * n + p]) / (2 * off);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < n; k++) {
        double x = a[k * n + p], y = a[k * n + q];
        a[k * n + p] = c * x - s * y, a[k * n + q] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {
        double x = a[p * n + k], y = a[q * n + k];
        a[p * n + k] = c * x - s * y, a[q * n + k] = s * x + c * y;
        x = v[k * n + p], y = v[k * n + q];
        v[k * n + p] = c * x - s * y, v[k * n + q] = s * x + c * y;
    }
}

static void swap_columns(int n, double *v, int i, int j)
{
    for (int k = 0; k < n; k++) {
        double x = v[k * n + i];
        v[k * n + i] = v[k * n + j], v[k * n + j] = x;
    }
}

void ph_jacobi(int n, double *a, double *values, double *vectors)
{
    enum { SWEEPS = 30 }; /* converges quadratically: about six are needed */
    for (int i = 0; i < n * n; i++) vectors[i] = i / n == i % n;
    for (int sweep = 0; sweep < SWEEPS; sweep++)
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) rotate(n, a, vectors, p, q);
    for (int i = 0; i < n; i++) values[i] = a[i * n + i];
    for (int i = 0; i < n; i++) {
        int best = i;
        for (int j = i + 1; j < n; j++)
            if (values[j] > values[best]) best = j;
        double x = values[i];
        values[i] = values[best], values[best] = x;
        if (best != i) swap_columns(n, vectors, i, best);
    }
}

/* Columns of x (n, k) become orthonormal, each after those before it. */
static void orthonormalise(int n, int k, double *x)
{
    for (int j = 0; j < k; j++) {
        for (int i = 0; i < j; i++) {
            double dot = 0;
            for (int r = 0; r < n; r++) dot += x[r * k + i] * x[r * k + j];
            for (int r = 0; r < n; r++) x[r * k + j] -= dot * x[r * k + i];
        }
        double square = 0;
        for (int r = 0; r < n; r++) square += x[r * k + j] * x[r * k + j];
        double scale = square > 0 ? 1 / sqrt(square) : 0;
        for (int r = 0; r < n; r++) x[r * k + j] *= scale;
    }
}

static void multiply(int n, int k, const double *b, const double *x, double *y)
{
    for (int i = 0; i < n; i++) {
        double *row = y + (size_t)i * (size_t)k;
        memset(row, 0, (size_t)k * sizeof *row);
        for (int j = 0; j < n; j++)
            for (int c = 0; c < k; c++)
                row[c] += b[(size_t)i * (size_t)n + (size_t)j] *
                          x[(size_t)j * (size_t)k + (size_t)c];
    }
}

/* x becomes x times the eigenvectors of the projected matrix x^T y, y = b x. */
static void project(int n, int k, double *x, const double *y, double *values)
{
    double small[PH_JACOBI_MOST * PH_JACOBI_MOST], v[PH_JACOBI_MOST * PH_JACOBI_MOST];
    double row[PH_JACOBI_MOST];
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++) {
            double dot = 0;
            for (int r = 0; r < n; r++)
                dot += x[r * k + i] * y[r * k + j] + y[r * k + i] * x[r * k + j];
            small[i * k + j] = dot / 2;
        }
    ph_jacobi(k, small, values, v);
    for (int r = 0; r < n; r++) {
        for (int j = 0; j < k; j++) {
            row[j] = 0;
            for (int i = 0; i < k; i++) row[j] += x[r * k + i] * v[i * k + j];
        }
        memcpy(x + r * k, row, (size_t)k * sizeof *row);
    }
}

/* ---- points ------------------------------------------------------------------------ */

/* -1/2 of the squared distances, centred. */
static void centre(int n, const double *d, double *b, double *means)
{
    double all = 0;
    for (int i = 0; i < n; i++) {
        means[i] = 0;
        for (int j = 0; j < n; j++) means[i] += d[i * n + j] * d[i * n + j] / n;
        all += means[i] / n;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            b[i * n + j] =
                -0.5 * (d[i * n + j] * d[i * n + j] - means[i] - means[j] + all);
}

static void classical(int n, const double *b, double *x, double *y, double *points)
{
    enum { ROUNDS = 100 };
    int k = ph_min(n, 8);
    double values[PH_JACOBI_MOST];
    for (int i = 0; i < n * k; i++) x[i] = cos((double)(i / k + 1) * (i % k + 1));
    for (int round = 0; round < ROUNDS; round++) {
        orthonormalise(n, k, x);
        multiply(n, k, b, x, y);
        if (round + 1 < ROUNDS) memcpy(x, y, (size_t)(n * k) * sizeof *x);
    }
    project(n, k, x, y, values);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < 2; c++)
            points[2 * i + c] =
                c < k && values[c] > 0 ? x[i * k + c] * sqrt(values[c]) : 0;
}

static double apart(const double *p, int i, int j)
{
    double x = p[2 * i] - p[2 * j], y = p[2 * i + 1] - p[2 * j + 1];
    return sqrt(x * x + y * y);
}

static double stress_of(int n, const double *d, const double *points)
{
    double wrong = 0, all = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            double off = d[i * n + j] - apart(points, i, j);
            wrong += off * off, all += d[i * n + j] * d[i * n + j];
        }
    return all > 0 ? sqrt(wrong / all) : 0;
}

/* One Guttman transform: the stress never grows. */
static void improve(int n, const double *d, const double *from, double *to)
{
    for (int i = 0; i < n; i++) {
        double x = 0, y = 0;
        for (int j = 0; j < n; j++) {
            double distance = i == j ? 0 : apart(from, i, j);
            double ratio = distance > 0 ? d[i * n + j] / distance : 0;
            x += ratio * (from[2 * i] - from[2 * j]);
            y += ratio * (from[2 * i + 1] - from[2 * j + 1]);
        }
        to[2 * i] = x / n, to[2 * i + 1] = y / n;
    }
}

static void fix_signs(int n, double *points)
{
    for (int c = 0; c < 2; c++) {
        double most = 0;
        for (int i = 0; i < n; i++)
            if (fabs(points[2 * i + c]) > fabs(most)) most = points[2 * i + c];
        for (int i = 0; most < 0 && i < n; i++) points[2 * i + c] = -points[2 * i + c];
    }
}

ph_status ph_plane_points(int n, const double *d, double *points, double *stress,
                          const ph_io *io)
{
    enum { STEPS = 300, WIDEST = 8 };
    size_t count = (size_t)n, bytes = count * (count + 2 * WIDEST + 3) * sizeof(double);
    double *b = ph_io_alloc(io, bytes);
    if (!b) return ph_io_no_memory(io, bytes, "a map of heads");
    double *x = b + count * count, *y = x + count * WIDEST, *means = y + count * WIDEST;
    double *next = means + count;
    centre(n, d, b, means);
    classical(n, b, x, y, points);
    *stress = stress_of(n, d, points);
    for (int step = 0; step<STEPS && * stress> 0; step++) {
        improve(n, d, points, next);
        double now = stress_of(n, d, next);
        if (!(now < *stress)) break;
        int done = *stress - now < 1e-10 * *stress;
        memcpy(points, next, 2 * count * sizeof *points);
        *stress = now;
        if (done) break;
    }
    fix_signs(n, points);
    ph_io_release(io, b);
    return PH_OK;
}

/* ---- clusters ---------------------------------------------------------------------- */

/* Mean silhouette of labels below k: how much nearer a point is to its own cluster than
   to the next one; 0 for a cluster of one. */
static double silhouette(int n, const double *d, const int *label, int k)
{
    double sum = 0, to[PH_JACOBI_MOST];
    int size[PH_JACOBI_MOST] = {0};
    for (int i = 0; i < n; i++) size[label[i]]++;
    for (int i = 0; i < n; i++) {
        double other = HUGE_VAL;
        if (size[label[i]] < 2) continue;
        memset(to, 0, sizeof to);
        for (int j = 0; j < n; j++) to[label[j]] += d[i * n + j];
        double own = to[label[i]] / (size[label[i]] - 1);
        for (int c = 0; c < k; c++)
            if (c != label[i]) other = fmin(other, to[c] / size[c]);
        double larger = fmax(own, other);
        if (larger > 0) sum += (other - own) / larger;
    }
    return sum / n;
}

/* Names clusters 0, 1, ... by the first of their members; gives how many there are. */
static int number_clusters(int n, const int *root, int *label)
{
    int count = 0;
    for (int i = 0; i < n; i++) label[i] = root[i] == i ? count++ : label[root[i]];
    return count;
}

/* Joins the two clusters with the smallest mean distance; a cluster is named by its first
   member. */
static void join_nearest(int n, double *d, int *root, int *size)
{
    int a = -1, b = -1;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n && root[i] == i; j++)
            if (root[j] == j && (a < 0 || d[i * n + j] < d[a * n + b])) a = i, b = j;
    for (int i = 0; i < n; i++) {
        if (root[i] == b) root[i] = a;
        double mean =
            (size[a] * d[a * n + i] + size[b] * d[b * n + i]) / (size[a] + size[b]);
        d[a * n + i] = d[i * n + a] = mean;
    }
    size[a] += size[b];
}

/* The largest first, of equal ones the one with the first member. */
static void sort_clusters(int n, int count, int *cluster)
{
    int size[PH_JACOBI_MOST] = {0}, rank[PH_JACOBI_MOST] = {0};
    for (int i = 0; i < n; i++) size[cluster[i]]++;
    for (int a = 0; a < count; a++)
        for (int b = 0; b < count; b++)
            rank[a] += size[b] > size[a] || (size[b] == size[a] && b < a);
    for (int i = 0; i < n; i++) cluster[i] = rank[cluster[i]];
}

ph_status ph_plane_clusters(int n, const double *given, int most, int *cluster,
                            int *count, const ph_io *io)
{
    const double substantial = 0.25; /* Kaufman and Rousseeuw: below, there is none */
    size_t cells = (size_t)n * (size_t)n, bytes = cells * sizeof(double);
    double best = substantial, *d = ph_io_alloc(io, bytes);
    int *root = ph_io_alloc(io, 3 * (size_t)n * sizeof *root);
    *count = 1;
    memset(cluster, 0, (size_t)n * sizeof *cluster);
    if (!d || !root) {
        ph_io_release(io, d);
        ph_io_release(io, root);
        return ph_io_no_memory(io, bytes, "clusters of heads");
    }
    int *size = root + n, *label = size + n;
    memcpy(d, given, bytes);
    for (int i = 0; i < n; i++) root[i] = i, size[i] = 1;
    for (int left = n; left > 1; left--) {
        if (left <= most && left < n) {
            number_clusters(n, root, label);
            double value = silhouette(n, given, label, left);
            if (value > best) {
                best = value, *count = left;
                memcpy(cluster, label, (size_t)n * sizeof *cluster);
            }
        }
        join_nearest(n, d, root, size);
    }
    sort_clusters(n, *count, cluster);
    ph_io_release(io, root);
    ph_io_release(io, d);
    return PH_OK;
}
