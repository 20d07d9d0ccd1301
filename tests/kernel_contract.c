/*
 * kernel_contract.c - what the kernels mean, in double: the check of `ref` itself, which
 * the other tables are compared with bit by bit.
 *
 * Bounds: a chain of n roundings is off by at most n * 2^-24 of the sum of magnitudes;
 * exp2 adds 2 ulp.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel_bed.h"

enum { M = 4, N = 48, K = 37, LD = PH_STRIP_LD };

static const double unit = 0x1p-24;

static void near(const char *what, int i, int j, float got, double want, double bound)
{
    if (!(fabs((double)got - want) <= bound))
        bed_fail("%s [%d][%d]: %.9g, expected %.9g, off by more than %.3g", what, i, j,
                 (double)got, want, bound);
}

/* ---- products ---------------------------------------------------------------------- */

static float a[M][K], b[K][N], transposed[N][K], c[M][N], s[M * LD];
static float lane_max[M * PH_LANES];

/* start + sum_k a[i][k] b[k][j], and the sum of magnitudes */
static double dense(int i, int j, double start, double *size)
{
    double sum = start;
    *size = fabs(start);
    for (int k = 0; k < K; k++) {
        sum += (double)a[i][k] * (double)b[k][j];
        *size += fabs((double)a[i][k] * (double)b[k][j]);
    }
    return sum;
}

static void scores_mean(const ph_kernels *t, const float *packed_b)
{
    double size;
    for (int i = 0; i < M * PH_LANES; i++) lane_max[i] = i % 2 ? 100.0f : -INFINITY;
    t->scores(M, N, K, &a[0][0], K, packed_b, s, lane_max);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double want = dense(i, j, 0, &size);
            near("scores", i, j, s[i * LD + j], want, (K + 1) * unit * size);
        }
    for (int i = 0; i < M; i++)
        for (int lane = 0; lane < PH_LANES; lane++) {
            float *row = s + i * LD + lane, most = fmaxf(row[0], fmaxf(row[16], row[32]));
            near("lane_max", i, lane, lane_max[i * PH_LANES + lane],
                 lane % 2 ? 100.0 : (double)most, 0);
        }
}

void check_products_mean(const ph_kernels *t)
{
    static float packed_a[M * K + PH_PACK_SLACK], packed_b[64 * K + PH_PACK_SLACK];
    const void *rows_a[M], *rows_b[N];
    const float rescale[M] = {1, 0.5f, 0, 0.25f};
    double size;
    bed_say("%s products", t->name);
    bed_fill(&a[0][0], M * K, BED_NORMAL);
    bed_fill(&b[0][0], K * N, BED_NORMAL);
    for (int k = 0; k < K; k++)
        for (int j = 0; j < N; j++) transposed[j][k] = b[k][j];
    for (int i = 0; i < M; i++) rows_a[i] = a[i];
    for (int j = 0; j < N; j++) rows_b[j] = transposed[j];
    t->pack_panel(packed_a, t->mr, rows_a, M, K, PH_F32, 1.0f);
    for (int j = 0; j < N; j += t->nr)
        t->pack_panel(packed_b + j * K, t->nr, rows_b + j, ph_min(N - j, t->nr), K,
                      PH_F32, 1.0f);
    scores_mean(t, packed_b);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) c[i][j] = (float)(i - j);
    t->product(M, N, K, packed_a, t->mr, packed_b, t->nr, (int64_t)t->nr * K, &c[0][0], N,
               1, NULL);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double want = dense(i, j, i - j, &size);
            near("product", i, j, c[i][j], want, (K + 1) * unit * size);
        }
    for (int i = 0; i < M; i++) memcpy(s + i * LD, a[i], sizeof a[i]);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) c[i][j] = (float)(i - j);
    t->multiply_v(M, N, K, s, &b[0][0], N, &c[0][0], N, rescale, NULL);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double want = dense(i, j, (i - j) * (double)rescale[i], &size);
            near("multiply_v", i, j, c[i][j], want, (K + 1) * unit * size);
        }
    memset(c, 0, sizeof c);
    t->product_few_rows(M, N, K, &a[0][0], K, &b[0][0], N, PH_F32, &c[0][0], N);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double want = dense(i, j, 0, &size);
            near("stream", i, j, c[i][j], want, (K + 1) * unit * size);
        }
}

/* ---- rows -------------------------------------------------------------------------- */

static void gradient_means(const ph_kernels *t, const float *logit)
{
    float grad[LD], drop[LD], derivative[LD], p[LD], before[LD], lse = 3.5f, delta = 0.3f;
    memcpy(p, logit, sizeof p);
    for (int j = 0; j < N; j++) {
        before[j] = grad[j] = bed_between(-2, 2);
        drop[j] = j % 3 ? 1.5f : 0;
        derivative[j] = bed_between(0, 1);
    }
    t->gradient(1, N, p, grad, drop, derivative, &lse, &delta);
    for (int j = 0; j < N; j++) {
        double w = exp2((double)logit[j] - (double)lse);
        double ds = w * ((double)drop[j] * (double)before[j] - (double)delta) *
                    (double)derivative[j];
        if (logit[j] == -INFINITY) w = ds = 0;
        near("gradient p", 0, j, p[j], w * (double)drop[j], 6 * 40 * unit * w);
        near("gradient ds", 0, j, grad[j], ds, 16 * 40 * unit * w);
    }
}

void check_rows_mean(const ph_kernels *t)
{
    float logit[LD], row[LD], sums[PH_LANES] = {0}, lanes[PH_LANES];
    float row_max = -INFINITY, shrink;
    double total = 0, most = -HUGE_VAL;
    bed_say("%s rows", t->name);
    for (int j = 0; j < N; j++) {
        logit[j] = j % 5 == 4 ? -INFINITY : bed_between(-20, 3);
        most = fmax(most, (double)logit[j]);
    }
    gradient_means(t, logit);
    memcpy(row, logit, sizeof row);
    t->row_lane_max(N, row, lanes);
    t->softmax(1, N, row, lanes, &row_max, sums, &shrink);
    near("row_max", 0, 0, row_max, most, 0);
    for (int j = 0; j < N; j++) {
        double want = exp2((double)logit[j] - most);
        near("softmax", 0, j, row[j], want, 6 * 24 * unit * want);
        total += (double)row[j];
    }
    for (int lane = 1; lane < PH_LANES; lane++) sums[0] += sums[lane];
    near("sum", 0, 0, sums[0], total, N * unit * total);
    memcpy(row, logit, sizeof row);
    for (int l = 0; l < PH_LANES; l++)
        lanes[l] = row_max + 2; /* a later block, higher by 2 */
    t->softmax(1, 16, row, lanes, &row_max, sums, &shrink);
    near("rescale", 0, 0, shrink, 0.25, unit);
    memcpy(row, logit, sizeof row);
    const float slope = 0.5f, first = -20;
    t->add_alibi(1, N, row, &slope, &first, lanes);
    for (int j = 0; j < N; j++)
        if (logit[j] != -INFINITY)
            near("alibi", 0, j, row[j], (double)logit[j] - 0.5 * abs(j - 20), 40 * unit);
}

/* ---- dropout ----------------------------------------------------------------------- */

/* The share that is dropped, alone and together with the neighbour, key by key. */
void check_random_means(const ph_kernels *t)
{
    enum { COUNT = 16000, KEYS = 25 };
    static float f[COUNT];
    double dropped = 0, both = 0, p = 0.25, n = (double)COUNT * KEYS;
    bed_say("%s dropout", t->name);
    for (int key = 0; key < KEYS; key++) {
        t->dropout(COUNT, f, bed_random(), (uint32_t)key, 0x40000000u, 4.0f / 3);
        for (int i = 0; i < COUNT; i++) dropped += f[i] == 0;
        for (int i = 1; i < COUNT; i++) both += f[i] == 0 && f[i - 1] == 0;
    }
    double off = (dropped - n * p) / sqrt(n * p * (1 - p));
    double pairs = (both - n * p * p) / sqrt(n * p * p * (1 + 2 * p - 3 * p * p));
    if (fabs(off) > 5)
        bed_fail("a share of %.4f is dropped instead of 0.25", dropped / n);
    if (fabs(pairs) > 5) bed_fail("%.4f of the neighbours instead of 0.0625", both / n);
}
