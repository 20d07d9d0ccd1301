/*
 * test_clusters.c - distances between heads, their map and clusters: values that can be
 * computed by hand, points that are known, the same bits for any number of threads.
 */
#define _GNU_SOURCE
#include <math.h>
#include <unistd.h>

#include "check.h"
#include "heads/plane.h"
#include "polyhead_clusters.h"

static char error[512];
static const ph_io io = {.error = error, .error_size = sizeof error};

/* ---- eigenvectors ------------------------------------------------------------------ */

/* Each sweep of n^2/2 rotations adds a few roundings of |a| to an element: 30 sweeps of a
   16 x 16 matrix stay below 2e4 units of 2^-53, 3e-12. */
static const double JACOBI_ERROR = 3e-12;

static void jacobi_by_hand(void)
{
    /* characters: 2 - sqrt 2, 2, 2 + sqrt 2 */
    double a[9] = {2, -1, 0, -1, 2, -1, 0, -1, 2}, values[3], v[9];
    ph_jacobi(3, a, values, v);
    const double expected[3] = {2 + sqrt(2), 2, 2 - sqrt(2)};
    for (int i = 0; i < 3; i++)
        CHECK(fabs(values[i] - expected[i]) < JACOBI_ERROR, "value %d is %.17g", i,
              values[i]);
    CHECK(fabs(fabs(v[0 * 3 + 1]) - sqrt(0.5)) < JACOBI_ERROR &&
              fabs(v[1 * 3 + 1]) < JACOBI_ERROR,
          "the second vector is not (1, 0, -1) / sqrt 2");
}

static void jacobi_random(void)
{
    enum { N = 16 };
    static double a[N * N], b[N * N], values[N], v[N * N];
    uint64_t state = check_seed;
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++)
            a[i * N + j] = a[j * N + i] =
                (double)(check_random(&state) >> 11) * 0x1p-53 - 0.5;
    memcpy(b, a, sizeof a);
    ph_jacobi(N, b, values, v);
    for (int k = 0; k < N; k++) {
        CHECK(k == 0 || values[k] <= values[k - 1], "values are not sorted");
        for (int i = 0; i < N; i++) {
            double sum = 0;
            for (int j = 0; j < N; j++) sum += a[i * N + j] * v[j * N + k];
            CHECK(fabs(sum - values[k] * v[i * N + k]) < JACOBI_ERROR,
                  "A v differs from its multiple by %.2e",
                  sum - values[k] * v[i * N + k]);
        }
    }
}

/* ---- distances --------------------------------------------------------------------- */

/* Clark et al.'s smoothing on 8 keys: disjoint rows 0.691379, one key against all of them
   0.493521, equal rows 0; the six digits are those of the specification. */
static void divergences(void)
{
    float rows[4 * 8] = {0};
    ph_clusters *c;
    rows[0 * 8 + 2] = 1, rows[1 * 8 + 5] = 1, rows[3 * 8 + 2] = 1;
    for (int j = 0; j < 8; j++) rows[2 * 8 + j] = 0.125f;
    CHECK(ph_clusters_create(&c, 4, &io) == PH_OK, "%s", error);
    for (int row = 0; row < 3; row++)
        CHECK(ph_clusters_add(c, rows, 8, 8, NULL, &io) == PH_OK, "%s", error);
    CHECK(ph_clusters_end(c, &io) == PH_OK, "%s", error);
    CHECK(fabs(ph_clusters_distance(c, 0, 1) - 0.691379) < 5e-7, "disjoint: %.9f",
          ph_clusters_distance(c, 0, 1));
    CHECK(fabs(ph_clusters_distance(c, 2, 0) - 0.493521) < 5e-7, "uniform: %.9f",
          ph_clusters_distance(c, 2, 0));
    /* a difference of sums of 8 terms below 0.4 each */
    CHECK(ph_clusters_distance(c, 0, 3) < 32 * 0x1p-53, "equal: %.3e",
          ph_clusters_distance(c, 0, 3));
    CHECK(ph_clusters_add(c, rows, 8, 8, NULL, &io) == PH_BAD_ARGUMENT, "after the end");
    CHECK(ph_clusters_end(c, &io) == PH_BAD_ARGUMENT, "a second end");
    ph_clusters_free(c);
    CHECK(ph_clusters_create(&c, 0, &io) == PH_BAD_SHAPE && !c, "no heads");
}

/* ---- points and clusters ----------------------------------------------------------- */

/* Distances of points of a plane give those points, but for rotation. The matrix is of
   rank 2, so the classical solution is exact up to n products of rounding. */
static void known_points(void)
{
    enum { N = 40 };
    static double given[2 * N], d[N * N], points[2 * N];
    double stress;
    uint64_t state = check_seed + 3;
    for (int i = 0; i < 2 * N; i++)
        given[i] = (double)(check_random(&state) >> 11) * 0x1p-53;
    for (int i = 0; i < N * N; i++)
        d[i] = hypot(given[2 * (i / N)] - given[2 * (i % N)],
                     given[2 * (i / N) + 1] - given[2 * (i % N) + 1]);
    CHECK(ph_plane_points(N, d, points, &stress, &io) == PH_OK, "%s", error);
    CHECK(stress < 1e-12, "stress %.2e", stress);
    double most[2] = {0, 0}, sum[2] = {0, 0};
    for (int i = 0; i < 2 * N; i++) {
        sum[i % 2] += points[i];
        if (fabs(points[i]) > fabs(most[i % 2])) most[i % 2] = points[i];
    }
    CHECK(most[0] > 0 && most[1] > 0, "signs");
    CHECK(fabs(sum[0]) < 1e-12 && fabs(sum[1]) < 1e-12, "not centred");
}

/* Distances that no plane has: SMACOF lowers the stress of the corners of a simplex below
   that of the classical solution, which is any two of its axes. */
static void no_plane(void)
{
    enum { N = 8 };
    double d[N * N], points[2 * N], stress;
    for (int i = 0; i < N * N; i++) d[i] = i / N != i % N;
    CHECK(ph_plane_points(N, d, points, &stress, &io) == PH_OK, "%s", error);
    CHECK(stress > 0.1 && stress < 0.45, "stress %.3f", stress);
}

/* Heads of three kinds: previous key, first key, all alike; a little different each. */
static void add_kinds(ph_clusters *c, ph_ctx *ctx)
{
    enum { HEADS = 24, KEYS = 20 };
    static float rows[HEADS * KEYS];
    uint64_t state = check_seed + 5;
    for (int row = 1; row < KEYS; row++) {
        int keys = row + 1;
        for (int h = 0; h < HEADS; h++) {
            float *w = rows + h * KEYS, sum = 0;
            for (int j = 0; j < keys; j++) {
                w[j] = 0.01f * (float)(check_random(&state) % 8);
                if (h % 3 == 1 || (h % 3 == 0 && h < 15 && j == row - 1)) w[j] += 1;
                if (h % 3 == 2 && j == 0) w[j] += 1;
                if (h % 3 == 0 && h >= 15) w[j] += 1;
                sum += w[j];
            }
            for (int j = 0; j < keys; j++) w[j] /= sum;
        }
        CHECK(ph_clusters_add(c, rows, KEYS, keys, ctx, &io) == PH_OK, "%s", error);
    }
    CHECK(ph_clusters_end(c, &io) == PH_OK, "%s", error);
}

static int kind_of(int h)
{
    return h % 3 == 2 ? 1 : h % 3 == 0 && h < 15 ? 2 : 0; /* 11, 8 and 5 of them */
}

static void kinds(void)
{
    ph_clusters *c;
    CHECK(ph_clusters_create(&c, 24, &io) == PH_OK, "%s", error);
    add_kinds(c, NULL);
    CHECK(ph_clusters_count(c) == 3, "%d clusters", ph_clusters_count(c));
    for (int h = 0; h < 24; h++)
        CHECK(ph_clusters_of(c, h) == kind_of(h), "head %d is in cluster %d", h,
              ph_clusters_of(c, h));
    ph_clusters_free(c);
}

static void same_bits(void)
{
    ph_clusters *c[2];
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 3}) == PH_OK, "ph_open");
    for (int i = 0; i < 2; i++) {
        CHECK(ph_clusters_create(&c[i], 24, &io) == PH_OK, "%s", error);
        add_kinds(c[i], i ? ctx : NULL);
    }
    for (int h = 0; h < 24; h++) {
        double a[2], b[2];
        ph_clusters_point(c[0], h, a);
        ph_clusters_point(c[1], h, b);
        CHECK(!memcmp(a, b, sizeof a), "head %d: other bits", h);
    }
    ph_clusters_free(c[0]);
    ph_clusters_free(c[1]);
    ph_close(ctx);
}

/* One head, and heads that do the same: one cluster, one point. */
static void degenerate(void)
{
    static const float rows[3 * 2] = {.5f, .5f, .5f, .5f, .5f, .5f};
    for (int heads = 1; heads <= 3; heads++) {
        ph_clusters *c;
        double point[2];
        CHECK(ph_clusters_create(&c, heads, &io) == PH_OK, "%s", error);
        CHECK(ph_clusters_add(c, rows, 2, 2, NULL, &io) == PH_OK, "%s", error);
        CHECK(ph_clusters_end(c, &io) == PH_OK, "%s", error);
        ph_clusters_point(c, heads - 1, point);
        CHECK(ph_clusters_count(c) == 1 && ph_clusters_of(c, heads - 1) == 0 &&
                  fabs(point[0]) < 1e-12 && fabs(point[1]) < 1e-12,
              "%d heads: %d clusters", heads, ph_clusters_count(c));
        ph_clusters_free(c);
    }
}

/* ---- the figure -------------------------------------------------------------------- */

static void figure(void)
{
    static const char *const names[24] = {"1-1", "1-2", "<&",  "1-4", "1-5", "1-6",
                                          "2-1", "2-2", "2-3", "2-4", "2-5", "2-6",
                                          "3-1", "3-2", "3-3", "3-4", "3-5", "3-6",
                                          "4-1", "4-2", "4-3", "4-4", "4-5", "4-6"};
    static char text[16384];
    char path[] = "/tmp/polyhead-clusters-XXXXXX";
    ph_clusters *c;
    int fd = mkstemp(path), circles = 0;
    CHECK(fd >= 0, "no temporary file");
    close(fd);
    CHECK(ph_clusters_create(&c, 24, &io) == PH_OK, "%s", error);
    add_kinds(c, NULL);
    CHECK(ph_clusters_write(c, path, "a <b>", names, &io) == PH_OK, "%s", error);
    FILE *f = fopen(path, "rb");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0, "no figure");
    fclose(f);
    unlink(path);
    for (const char *at = text; (at = strstr(at, "<circle")); at++) circles++;
    CHECK(circles == 24 && strstr(text, "a &lt;b&gt;") &&
              strstr(text, "&lt;&amp;</text>") && strstr(text, "</svg>\n"),
          "%d circles: %.300s", circles, text);
    CHECK(ph_clusters_write(c, "/nothing/at/all.svg", "", names, &io) == PH_IO_ERROR,
          "%s", error);
    ph_clusters_free(c);
}

static const check_case cases[] = {{"jacobi_by_hand", jacobi_by_hand},
                                   {"jacobi_random", jacobi_random},
                                   {"divergences", divergences},
                                   {"known_points", known_points},
                                   {"no_plane", no_plane},
                                   {"kinds", kinds},
                                   {"same_bits", same_bits},
                                   {"degenerate", degenerate},
                                   {"figure", figure},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
