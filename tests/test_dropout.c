/*
 * test_dropout.c - dropout as a random experiment: its rate, no pattern between
 * neighbouring
 * cells, rows, heads and batch rows, the right mean, and seeds that mean something.
 */
#include <math.h>

#include "sweep.h"

/* Queries of 0, so that every weight is 1/kv_len and a zero can only be a dropped one. */
static void drop_problem(problem *to, float rate, uint64_t seed)
{
    problem p = {.attn = {.batch = 2,
                          .q_heads = 3,
                          .q_len = 65,
                          .kv_len = 97,
                          .qk_dim = 4,
                          .dropout = rate,
                          .v_dim = 2},
                 .with = {.lse = 1, .weights = 1}};
    *to = p;
    problem_build(to, 4);
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 3; h++)
            for (int i = 0; i < 65; i++) tensor_set_row(&to->q, b, h, i, 0);
    to->args.seed = seed;
}

/* Pairs of cells a fixed step apart: both dropped as often as chance says. */
static void pairs(const problem *p, double rate, int db, int dh, int di, int dj)
{
    double both = 0, count = 0;
    for (int b = 0; b + db < 2; b++)
        for (int h = 0; h + dh < 3; h++)
            for (int i = 0; i + di < 65; i++)
                for (int j = 0; j + dj < 97; j++) {
                    both += tensor_get(&p->weights, b, h, i, j) == 0 &&
                            tensor_get(&p->weights, b + db, h + dh, i + di, j + dj) == 0;
                    count++;
                }
    double want = rate * rate * (db + dh + di + dj ? 1 : 1 / rate);
    double sigma = sqrt(want * (1 - want) / count);
    CHECK(fabs(both / count - want) < 6 * sigma,
          "rate %g, step (%d,%d,%d,%d): share %.5f, expected %.5f within %.5f", rate, db,
          dh, di, dj, both / count, want, 6 * sigma);
}

static void dropout_rate(void)
{
    static const float rates[] = {0.1f, 0.5f, 0.9f};
    static const int steps[][4] = {{0, 0, 0, 0}, {0, 0, 0, 1},  {0, 0, 1, 0},
                                   {0, 1, 0, 0}, {1, 0, 0, 0},  {0, 0, 0, 2},
                                   {0, 0, 0, 8}, {0, 0, 0, 16}, {0, 0, 1, 1},
                                   {0, 0, 6, 0}, {0, 0, 0, 64}};
    for (int n = 0; n < 12; n++) {
        double rate = (double)rates[n % 3];
        problem p;
        drop_problem(&p, rates[n % 3], (uint64_t)n * 1234567 + check_seed);
        ph_ctx *ctx = need_ctx(NULL);
        must(ctx, drive_forward(ctx, &p));
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            pairs(&p, rate, steps[s][0], steps[s][1], steps[s][2], steps[s][3]);
        for (int j = 0; j < 97; j++) {
            double w = tensor_get(&p.weights, 1, 1, 30, j), kept = 1 / 97.0 / (1 - rate);
            CHECK(w == 0 || fabs(w - kept) < 1e-6 * kept * 10, "weight %g, expected %g",
                  w, kept);
        }
        problem_free(&p);
    }
}

/* The mean over many seeds is the output without dropout. */
static void dropout_mean(void)
{
    enum { SEEDS = 400 };
    static double sum[65][2], square[65][2];
    memset(sum, 0, sizeof sum);
    memset(square, 0, sizeof square);
    ph_ctx *ctx = need_ctx(NULL);
    problem plain;
    drop_problem(&plain, 0, 0);
    must(ctx, drive_forward(ctx, &plain));
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        problem p;
        drop_problem(&p, 0.3f, seed + check_seed);
        must(ctx, drive_forward(ctx, &p));
        for (int i = 0; i < 65; i++)
            for (int d = 0; d < 2; d++) {
                double x = tensor_get(&p.out, 1, 2, i, d);
                sum[i][d] += x;
                square[i][d] += x * x;
            }
        problem_free(&p);
    }
    for (int i = 0; i < 65; i++)
        for (int d = 0; d < 2; d++) {
            double mean = sum[i][d] / SEEDS, var = square[i][d] / SEEDS - mean * mean;
            double want = tensor_get(&plain.out, 1, 2, i, d), sigma = sqrt(var / SEEDS);
            CHECK(fabs(mean - want) < 6 * sigma, "row %d: mean %g, expected %g, sigma %g",
                  i, mean, want, sigma);
        }
    problem_free(&plain);
}

static void dropout_seed(void)
{
    ph_ctx *ctx = need_ctx(NULL);
    problem p, q, r;
    drop_problem(&p, 0.5f, 1);
    drop_problem(&q, 0.5f, 1);
    drop_problem(&r, 0.5f, 2);
    must(ctx, drive_forward(ctx, &p));
    must(ctx, drive_forward(ctx, &q));
    must(ctx, drive_forward(ctx, &r));
    CHECK(tensor_same(&p.weights, &q.weights), "one seed gave two masks");
    CHECK(!tensor_same(&p.weights, &r.weights), "two seeds gave one mask");
    CHECK(tensor_same(&p.lse, &r.lse), "lse depends on the dropout");
    problem_free(&p);
    problem_free(&q);
    problem_free(&r);
}

static const check_case cases[] = {
    {"dropout_rate", dropout_rate},
    {"dropout_mean", dropout_mean},
    {"dropout_seed", dropout_seed},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
