/*
 * test_variant_oracle_mix.c - the oracle of variants, where heads are mixed: talking and
 * dcmha. See test_variant_oracle.c.
 */
#include "variant_check.h"

static const variant_shape usual = {.batch = 2,
                                    .heads = 4,
                                    .k_heads = 2,
                                    .v_heads = 1,
                                    .q_len = 5,
                                    .kv_len = 7,
                                    .qk_dim = 3,
                                    .v_dim = 2};

/* ---- talking ----------------------------------------------------------------------- */

static void identity(double *m, int n, const int *order)
{
    for (int i = 0; i < n * n; i++) m[i] = i % n == (order ? order[i / n] : i / n);
}

static void talking_identity(void)
{
    variant_case c;
    variant_core_case(&c, "talking", &usual, check_seed);
    identity(bag_data(&c.in, "w_logits"), 4, NULL);
    identity(bag_data(&c.in, "w_weights"), 4, NULL);
    variant_case d = renamed(&c, "mha");
    equal(&c, &d, 0);
    variant_case_free(&c), variant_case_free(&d);
}

/* Scores permuted on the way in, weights back on the way out: heads attend as they would,
   whatever bias they meet; only lse shows it. */
static void talking_permuted(void)
{
    static const int order[] = {2, 0, 3, 1}, back[] = {1, 3, 0, 2};
    variant_case c;
    variant_core_case(&c, "talking", &usual, check_seed);
    identity(bag_data(&c.in, "w_logits"), 4, order);
    identity(bag_data(&c.in, "w_weights"), 4, back);
    variant_case d = renamed(&c, "mha");
    bag a = solve(&c), b = solve(&d);
    same(&a, &b, "out", 1e-15);
    same(&a, &b, "weights", 1e-15);
    for (int i = 0; i < 40; i++) {
        int at = (i / 20 * 4 + order[i / 5 % 4]) * 5 + i % 5;
        near("lse", &bag_data(&a, "lse")[at], &bag_data(&b, "lse")[i], 1, 1e-15);
    }
    bag_free(&a), bag_free(&b);
    variant_case_free(&c), variant_case_free(&d);
}

/* dPw[h][c] = sum W_h dY_c and dPl[a][h] = sum J_a dL_h; dL comes from the bias. */
static void talking_gradients(void)
{
    const variant_shape shape = {
        .batch = 2, .heads = 3, .q_len = 2, .kv_len = 4, .qk_dim = 2, .v_dim = 3};
    variant_case c;
    variant_core_case(&c, "talking", &shape, check_seed);
    variant_case plain_weights = renamed(&c, "talking");
    identity(bag_data(&plain_weights.in, "w_weights"), 3, NULL);
    bag before = solve(&plain_weights);
    double *dw = gradient(&c, "w_weights"), *dl = gradient(&c, "w_logits");
    memset(bag_put(&c.in, "bias", 2, 3, 2, 4), 0, 48 * sizeof(double));
    double *dlogit = gradient(&c, "bias");
    const bag *in = &c.in;
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            double weights = 0, logits = 0;
            for (int n = 0; n < 16; n++) {
                int b = n / 8, i = n / 4 % 2, j = n % 4;
                int row = (b * 3 + from) * 2 + i, target = (b * 3 + to) * 2 + i;
                double dy = 0, score = 0;
                for (int d = 0; d < 3; d++)
                    dy += bag_data(in, "dout")[target * 3 + d] *
                          bag_data(in, "v")[((b * 3 + to) * 4 + j) * 3 + d];
                for (int d = 0; d < 2; d++)
                    score += bag_data(in, "q")[row * 2 + d] *
                             bag_data(in, "k")[((b * 3 + from) * 4 + j) * 2 + d];
                weights += bag_data(&before, "weights")[row * 4 + j] * dy;
                logits += score / sqrt(2) * dlogit[target * 4 + j];
            }
            near("dw_weights", &dw[from * 3 + to], &weights, 1, 1e-9);
            near("dw_logits", &dl[from * 3 + to], &logits, 1, 1e-8);
        }
    free(dw), free(dl), free(dlogit), bag_free(&before);
    variant_case_free(&c), variant_case_free(&plain_weights);
}

/* ---- dcmha ------------------------------------------------------------------------- */

static void zero(variant_case *c, const char *name)
{
    bag_tensor *t = bag_find(&c->in, name);
    memset(t->data, 0, (size_t)bag_size(t) * sizeof(double));
}

/* The spec's example: scores (1, 2) become (1.811127, 1.377746). */
static void dcmha_printed(void)
{
    const variant_shape shape = {.batch = 1, .heads = 2, .q_len = 1, .qk_dim = 1};
    variant_case c;
    variant_core_case(&c, "dcmha:rank=1,side=q,post=0", &shape, check_seed);
    const double length = sqrt((9.0 + 16.0) / 2 + 1e-6);
    const double w1[] = {3 / length, 4 / length}, w2[] = {0.1, -0.2}, g[] = {0.5, 0};
    const double scores[] = {1, 2}, one[] = {1, 1}, expected[] = {1.811127, 1.377746};
    bag_drop(&c.in, "dc_static");
    memcpy(bag_data(&c.in, "preq_w1"), w1, sizeof w1);
    memcpy(bag_data(&c.in, "preq_w2"), w2, sizeof w2);
    memcpy(bag_data(&c.in, "preq_g"), g, sizeof g);
    memcpy(bag_data(&c.in, "q"), scores, sizeof scores);
    memcpy(bag_data(&c.in, "k"), one, sizeof one);
    bag out = solve(&c); /* with one key lse is the score */
    near("lse", bag_data(&out, "lse"), expected, 2, 1e-6);
    bag_free(&out), variant_case_free(&c);
}

/* w2 = 0 and g = 0: plain attention for any w1. */
static void dcmha_off(void)
{
    static const char *const none[] = {"preq_w2", "prek_w2", "postq_w2", "postk_w2",
                                       "preq_g",  "prek_g",  "postq_g",  "postk_g"};
    variant_case c;
    variant_core_case(&c, "dcmha:rank=2", &usual, check_seed);
    bag_drop(&c.in, "dc_static");
    for (int n = 0; n < 8; n++) zero(&c, none[n]);
    variant_case d = renamed(&c, "mha"), e = renamed(&c, "dcmha:rank=2,pre=0,post=0");
    equal(&c, &d, 0);
    equal(&e, &d, 0);
    variant_case_free(&c), variant_case_free(&d), variant_case_free(&e);
}

/* A static part alone is talking heads with 1 on the diagonal added. */
static void dcmha_static(void)
{
    variant_case c;
    variant_core_case(&c, "talking", &usual, check_seed);
    variant_put(&c, "bias", 1, 2, 4, 5, 7);
    c.o.softcap = 3;
    double *base = variant_put(&c, "dc_static", 0.5, 2, 4, 4, -1);
    for (int n = 0; n < 16; n++) {
        double diagonal = n / 4 == n % 4;
        base[n] = bag_data(&c.in, "w_logits")[n] - diagonal;
        base[16 + n] = bag_data(&c.in, "w_weights")[n] - diagonal;
    }
    variant_case d = renamed(&c, "dcmha:rank=1,side=q");
    static const char *const names[] = {"preq_w1", "preq_w2", "postq_w1", "postq_w2"};
    for (int n = 0; n < 4; n++) bag_put(&d.in, names[n], 2, 5, 1, 4);
    bag_put(&d.in, "preq_g", 2, 5, 4, -1), bag_put(&d.in, "postq_g", 2, 5, 4, -1);
    equal(&c, &d, 1e-14);
    variant_case_free(&c), variant_case_free(&d);
}

/* A constant gate c: temperature 1+c before, outputs times 1+c after. */
static void dcmha_gates(void)
{
    variant_case c;
    variant_core_case(&c, "dcmha:rank=1,side=k", &usual, check_seed);
    bag_drop(&c.in, "dc_static");
    zero(&c, "prek_w2"), zero(&c, "postk_w2"), zero(&c, "postk_g");
    for (int n = 0; n < 2 * 7 * 4; n++) bag_data(&c.in, "prek_g")[n] = 0.3;
    variant_case d = renamed(&c, "mha");
    d.o.scale = 1.3 / sqrt(3);
    equal(&c, &d, 1e-14);
    zero(&c, "prek_g");
    for (int n = 0; n < 2 * 7 * 4; n++) bag_data(&c.in, "postk_g")[n] = 0.3;
    d.o.scale = 0;
    bag a = solve(&c), b = solve(&d);
    for (int n = 0; n < 80; n++) bag_data(&b, "out")[n] *= 1.3;
    same(&a, &b, "out", 1e-14);
    bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
}

/* Query side only: mix queries, one attention with H heads over one wide key and value,
   mix outputs (section 7.5). */
static void dcmha_reduction(void)
{
    const variant_shape shape = {.batch = 1,
                                 .heads = 4,
                                 .k_heads = 2,
                                 .v_heads = 2,
                                 .q_len = 3,
                                 .kv_len = 5,
                                 .qk_dim = 3,
                                 .v_dim = 2};
    const variant_shape wide = {.batch = 1,
                                .heads = 4,
                                .k_heads = 1,
                                .v_heads = 1,
                                .q_len = 3,
                                .kv_len = 5,
                                .qk_dim = 6,
                                .v_dim = 4};
    variant_case c, d;
    variant_core_case(&c, "dcmha:rank=2,side=q", &shape, check_seed);
    variant_core_case(&d, "mha", &wide, check_seed);
    bag_drop(&c.in, "dc_static");
    d.o.scale = 1 / sqrt(3);
    double mix[2][3][4][4]; /* [stage][i][to][from] */
    for (int n = 0; n < 2 * 48; n++) {
        int stage = n / 48, i = n / 16 % 3, to = n / 4 % 4, from = n % 4;
        const bag *in = &c.in;
        const double *w1 = bag_data(in, stage ? "postq_w1" : "preq_w1") + i * 8;
        const double *w2 = bag_data(in, stage ? "postq_w2" : "preq_w2") + i * 8;
        const double *g = bag_data(in, stage ? "postq_g" : "preq_g") + i * 4;
        double *m = &mix[stage][i][to][from];
        *m = (to == from) * (1 + g[to]);
        for (int r = 0; r < 2; r++) *m += w2[r * 4 + to] * w1[r * 4 + from];
    }
    for (int n = 0; n < 4 * 3 * 6; n++) {
        int h = n / 18, i = n / 6 % 3, group = n % 6 / 3, e = n % 3;
        double *q = &bag_data(&d.in, "q")[n];
        *q = 0;
        for (int m = 2 * group; m < 2 * group + 2; m++)
            *q += mix[0][i][h][m] * bag_data(&c.in, "q")[(m * 3 + i) * 3 + e];
    }
    for (int n = 0; n < 5 * 6; n++)
        bag_data(&d.in, "k")[n] =
            bag_data(&c.in, "k")[(n % 6 / 3 * 5 + n / 6) * 3 + n % 3];
    for (int n = 0; n < 5 * 4; n++)
        bag_data(&d.in, "v")[n] =
            bag_data(&c.in, "v")[(n % 4 / 2 * 5 + n / 4) * 2 + n % 2];
    bag a = solve(&c), b = solve(&d);
    same(&a, &b, "lse", 1e-13);
    for (int n = 0; n < 4 * 3 * 2; n++) {
        int h = n / 6, i = n / 2 % 3, e = n % 2;
        double expected = 0;
        for (int m = 0; m < 4; m++)
            expected +=
                mix[1][i][h][m] * bag_data(&b, "out")[(m * 3 + i) * 4 + h / 2 * 2 + e];
        near("out", &bag_data(&a, "out")[n], &expected, 1, 1e-13);
    }
    bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
}

/* One element of the second composition's matrix, from the definition. */
static double post_matrix(const bag *in, int b, int i, int j, int from, int to)
{
    const double *w1[] = {bag_data(in, "postq_w1") + (b * 5 + i) * 8,
                          bag_data(in, "postk_w1") + (b * 7 + j) * 8};
    const double *w2[] = {bag_data(in, "postq_w2") + (b * 5 + i) * 8,
                          bag_data(in, "postk_w2") + (b * 7 + j) * 8};
    double sum = from == to, *base = bag_data(in, "dc_static");
    if (base) sum += base[16 + from * 4 + to];
    if (from == to)
        sum += bag_data(in, "postq_g")[(b * 5 + i) * 4 + to] +
               bag_data(in, "postk_g")[(b * 7 + j) * 4 + to];
    for (int n = 0; n < 4; n++)
        sum += w1[n / 2][n % 2 * 4 + from] * w2[n / 2][n % 2 * 4 + to];
    return sum;
}

/* du_ij[h] = p (dp - delta_i[h]) with delta_i[h] = sum_j p dp: from differences of the
   bias; sum over keys 0; sum over heads of delta = sum over heads of dout.out. */
static void dcmha_delta(void)
{
    variant_case c;
    variant_core_case(&c, "dcmha:rank=2", &usual, check_seed);
    c.o.causal = 1, c.o.offset = 2;
    memset(bag_put(&c.in, "bias", 2, 4, 5, 7), 0, 280 * sizeof(double));
    variant_case d = renamed(&c, "dcmha:rank=2,post=0");
    bag out = solve(&c), before = solve(&d);
    double *du = gradient(&c, "bias");
    for (int row = 0; row < 10; row++) {
        int b = row / 5, i = row % 5;
        double sum_delta = 0, sum_out = 0;
        for (int h = 0; h < 4; h++) {
            double dp[7] = {0}, delta = 0, expected[7], left = 0;
            int at = (b * 4 + h) * 5 + i;
            const double *p = bag_data(&before, "weights") + at * 7;
            for (int j = 0; j < 7; j++) {
                for (int n = 0; n < 8; n++) {
                    double da =
                        bag_data(&c.in, "dout")[((b * 4 + n / 2) * 5 + i) * 2 + n % 2] *
                        bag_data(&c.in, "v")[(b * 7 + j) * 2 + n % 2];
                    dp[j] += post_matrix(&c.in, b, i, j, h, n / 2) * da;
                }
                delta += p[j] * dp[j];
            }
            for (int j = 0; j < 7; j++) {
                expected[j] = p[j] * (dp[j] - delta);
                left += du[at * 7 + j];
            }
            near("du", du + at * 7, expected, 7, 1e-8);
            CHECK(fabs(left) < 1e-8, "du of a row sums to %g", left);
            sum_delta += delta;
            for (int e = 0; e < 2; e++)
                sum_out += bag_data(&c.in, "dout")[at * 2 + e] *
                           bag_data(&out, "out")[at * 2 + e];
        }
        near("sum of delta", &sum_delta, &sum_out, 1, 1e-12);
    }
    free(du), bag_free(&out), bag_free(&before);
    variant_case_free(&c), variant_case_free(&d);
}

/* Nothing of token j reaches rows before it, by k, v or the key side. */
static void dcmha_causal(void)
{
    static const char *const names[] = {"k",      "v",        "prek_w1",  "prek_w2",
                                        "prek_g", "postk_w1", "postk_w2", "postk_g"};
    const variant_shape shape = {.batch = 1, .heads = 2, .q_len = 6, .qk_dim = 2};
    variant_case c;
    variant_core_case(&c, "dcmha:rank=1", &shape, check_seed);
    c.o.causal = 1;
    bag a = solve(&c);
    for (int n = 0; n < 8; n++) {
        bag_tensor *t = bag_find(&c.in, names[n]);
        int inner = bag_size(t) / 6 / (n < 2 ? 2 : 1);
        for (int e = 0; e < bag_size(t); e++)
            if (e / inner % 6 == 4) t->data[e] += 1;
    }
    bag b = solve(&c);
    for (int n = 0; n < 24; n++) {
        double change = fabs(bag_data(&a, "out")[n] - bag_data(&b, "out")[n]);
        CHECK((change == 0) == (n / 2 % 6 < 4), "row %d changed by %g", n / 2 % 6,
              change);
    }
    bag_free(&a), bag_free(&b), variant_case_free(&c);
}

static const check_case cases[] = {{"talking_identity", talking_identity},
                                   {"talking_permuted", talking_permuted},
                                   {"talking_gradients", talking_gradients},
                                   {"dcmha_printed", dcmha_printed},
                                   {"dcmha_off", dcmha_off},
                                   {"dcmha_static", dcmha_static},
                                   {"dcmha_gates", dcmha_gates},
                                   {"dcmha_reduction", dcmha_reduction},
                                   {"dcmha_delta", dcmha_delta},
                                   {"dcmha_causal", dcmha_causal},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
