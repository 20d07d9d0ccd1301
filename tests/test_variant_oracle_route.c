/*
 * test_variant_oracle_route.c - the oracle of variants, where heads are chosen: moh and
 * moh-norm. See test_variant_oracle.c. Gradients of the routers are written out here as
 * in the spec and compared with differences.
 */
#include "variant_check.h"

enum { BATCH = 2, HEADS = 6, LEN = 4, MODEL = 5, DIM = 3, OUT = 4, TOKENS = BATCH * LEN };

static const variant_shape usual = {.batch = BATCH,
                                    .heads = HEADS,
                                    .k_heads = 3,
                                    .v_heads = 2,
                                    .q_len = LEN,
                                    .qk_dim = DIM,
                                    .model = MODEL,
                                    .out_dim = OUT};

static void zero(variant_case *c, const char *name)
{
    bag_tensor *t = bag_find(&c->in, name);
    memset(t->data, 0, (size_t)bag_size(t) * sizeof(double));
}

/* ---- printed numbers --------------------------------------------------------------- */

static void printed(void)
{
    const variant_shape shape = {
        .batch = 1, .heads = 3, .q_len = 1, .qk_dim = 1, .model = 1};
    const double wr[] = {0.5, -0.5}, wh[] = {0.2, -0.2}, loss = 1.462117;
    const double expected[] = {1.197375, 0.802625, 0};
    variant_case c;
    variant_layer_case(&c, "moh:shared=1,top=1", &shape, check_seed);
    bag_data(&c.in, "x")[0] = 1;
    memcpy(bag_data(&c.in, "moh_wr"), wr, sizeof wr);
    memcpy(bag_data(&c.in, "moh_wh"), wh, sizeof wh);
    bag out = solve(&c);
    near("gate", bag_data(&out, "gate"), expected, 3, 1e-6);
    near("balance_loss", bag_data(&out, "balance_loss"), &loss, 1, 1e-6);
    bag_free(&out), variant_case_free(&c);
}

/* 60% choose the first head with 0.51, 40% the second with 0.99: below K. */
static void printed_balance(void)
{
    const variant_shape shape = {
        .batch = 1, .heads = 2, .q_len = 10, .qk_dim = 1, .model = 1};
    const double wr[] = {1, 0}, loss = 0.924, half = 0.462;
    variant_case c;
    variant_layer_case(&c, "moh:shared=0,top=1", &shape, check_seed);
    memcpy(bag_data(&c.in, "moh_wr"), wr, sizeof wr);
    for (int t = 0; t < 10; t++)
        bag_data(&c.in, "x")[t] = t < 6 ? log(0.51 / 0.49) : log(0.01 / 0.99);
    bag out = solve(&c);
    near("balance_loss", bag_data(&out, "balance_loss"), &loss, 1, 1e-12);
    bag_free(&out);
    variant_case d = renamed(&c, "moh:shared=0,top=1,score=paper");
    out = solve(&d);
    near("balance_loss", bag_data(&out, "balance_loss"), &half, 1, 1e-12);
    bag_free(&out), variant_case_free(&c), variant_case_free(&d);
}

/* ---- cases that equal something simpler -------------------------------------------- */

/* The result is plain attention with the gates of OUT, whatever the sizes. */
static void equals_gated(void)
{
    static const char *const specs[] = {
        "moh:shared=2,top=2",      "moh:shared=0,top=3",
        "moh:shared=1,top=2",      "moh:shared=6,top=0",
        "moh:shared=2,top=4",      "moh-norm:shared=2,top=2",
        "moh-norm:shared=0,top=5", "moh:shared=2,top=2,score=paper"};
    for (int n = 0; n < 8; n++) {
        variant_case c;
        variant_layer_case(&c, specs[n], &usual, check_seed);
        bag out = solve(&c);
        variant_case d = renamed(&c, "mha");
        double *gate = bag_put(&d.in, "gate", BATCH, HEADS, LEN, -1);
        memcpy(gate, bag_data(&out, "gate"), sizeof(double) * TOKENS * HEADS);
        equal(&c, &d, 1e-15);
        bag_free(&out), variant_case_free(&c), variant_case_free(&d);
    }
}

/* Routers of zeros: active heads have weight 1, the lowest are chosen; the loss is K. */
static void zero_routers(void)
{
    const double top[] = {4, 2};
    for (int n = 0; n < 2; n++) {
        variant_case c;
        variant_layer_case(&c, n ? "moh:shared=2,top=2" : "moh:shared=2,top=4", &usual,
                           check_seed);
        zero(&c, "moh_wr"), zero(&c, "moh_ws"), zero(&c, "moh_wh");
        bag out = solve(&c);
        for (int i = 0; i < TOKENS * HEADS; i++) {
            double expected = i / LEN % HEADS < 2 + (int)top[n];
            near("gate", &bag_data(&out, "gate")[i], &expected, 1, 1e-15);
        }
        near("balance_loss", bag_data(&out, "balance_loss"), &top[n], 1, 1e-14);
        variant_case d = renamed(&c, "mha");
        if (n)
            memset(bag_data(&d.in, "wo") + 4 * DIM * OUT, 0,
                   sizeof(double) * 2 * DIM * OUT);
        bag plain = solve(&d);
        same(&out, &plain, "out", 1e-14);
        bag_free(&out), bag_free(&plain), variant_case_free(&c), variant_case_free(&d);
    }
}

/* Gates of all shared heads are H softmax, sum H; with S and K: 2 (al_0 S + al_1 K). */
static void sums(void)
{
    static const char *const specs[] = {"moh:shared=6,top=0", "moh:shared=0,top=3",
                                        "moh:shared=2,top=2", "moh:shared=1,top=3"};
    for (int n = 0; n < 4; n++) {
        variant_case c;
        variant_layer_case(&c, specs[n], &usual, check_seed);
        int shared = variant_number(specs[n], "shared", 0),
            top = variant_number(specs[n], "top", 0);
        bag out = solve(&c);
        for (int t = 0; t < TOKENS; t++) {
            double sum = 0, expected = n == 0 ? 6 : 3, z[2] = {0};
            for (int h = 0; h < HEADS; h++)
                sum += bag_data(&out, "gate")[(t / LEN * HEADS + h) * LEN + t % LEN];
            for (int m = 0; n > 1 && m < 2 * MODEL; m++)
                z[m % 2] += bag_data(&c.in, "x")[t * MODEL + m / 2] *
                            bag_data(&c.in, "moh_wh")[m];
            double first = 1 / (1 + exp(z[1] - z[0]));
            if (n > 1) expected = 2 * (first * shared + (1 - first) * top);
            near("sum of gates", &sum, &expected, 1, 1e-13);
        }
        bag_free(&out), variant_case_free(&c);
    }
}

/* One head far ahead, K = 1: attention of that head alone. */
static void one_head(void)
{
    variant_case c;
    variant_layer_case(&c, "moh:shared=0,top=1", &usual, check_seed);
    zero(&c, "moh_wr");
    for (int t = 0; t < TOKENS; t++) bag_data(&c.in, "x")[t * MODEL] = 1;
    bag_data(&c.in, "moh_wr")[3] = 50;
    variant_case d = renamed(&c, "mha");
    double *gate = bag_put(&d.in, "gate", HEADS, -1, -1, -1);
    gate[3] = 1;
    equal(&c, &d, 1e-15);
    variant_case_free(&c), variant_case_free(&d);
}

/* Padding takes no part in the statistics and gets no gate. */
static void lengths(void)
{
    variant_case c;
    variant_layer_case(&c, "moh:shared=2,top=2", &usual, check_seed);
    double *lens = bag_put(&c.in, "q_lens", BATCH, -1, -1, -1);
    lens[0] = 0, lens[1] = LEN;
    bag out = solve(&c);
    const variant_shape one = {.batch = 1,
                               .heads = HEADS,
                               .k_heads = 3,
                               .v_heads = 2,
                               .q_len = LEN,
                               .qk_dim = DIM,
                               .model = MODEL,
                               .out_dim = OUT};
    variant_case d;
    variant_layer_case(&d, "moh:shared=2,top=2", &one, check_seed);
    memcpy(bag_data(&d.in, "x"), bag_data(&c.in, "x") + LEN * MODEL,
           sizeof(double) * LEN * MODEL);
    static const char *const names[] = {"moh_wr", "moh_ws", "moh_wh"};
    for (int n = 0; n < 3; n++)
        memcpy(bag_data(&d.in, names[n]), bag_data(&c.in, names[n]),
               sizeof(double) * (size_t)bag_size(bag_find(&d.in, names[n])));
    bag alone = solve(&d);
    same(&out, &alone, "balance_loss", 1e-15);
    near("gate", bag_data(&out, "gate") + HEADS * LEN, bag_data(&alone, "gate"),
         HEADS * LEN, 1e-15);
    for (int i = 0; i < HEADS * LEN; i++)
        CHECK(bag_data(&out, "gate")[i] == 0, "a gate beyond q_lens is not 0");
    bag_free(&out), bag_free(&alone), variant_case_free(&c), variant_case_free(&d);
}

/* ---- gradients --------------------------------------------------------------------- */

/* dw = dyt . o for gate w of token t, head h, from the heads that w has multiplied. */
static double gate_gradient(const variant_case *c, const bag *out, int t, int h)
{
    int row = (t / LEN * HEADS + h) * LEN + t % LEN;
    const double *y = bag_data(out, "heads") + row * DIM;
    double sum = 0, w = bag_data(out, "gate")[row];
    for (int n = 0; n < DIM * OUT; n++)
        sum += y[n / OUT] * bag_data(&c->in, "wo")[(h * DIM + n / OUT) * OUT + n % OUT] *
               bag_data(&c->in, "dout")[t * OUT + n % OUT];
    return w == 0 ? 0 : sum / w;
}

/* Adds x^T dz of one token to a gradient of (MODEL, n). */
static void add_outer(const variant_case *c, int t, const double *dz, int n, double *to)
{
    for (int m = 0; m < MODEL; m++)
        for (int e = 0; e < n; e++)
            to[m * n + e] += bag_data(&c->in, "x")[t * MODEL + m] * dz[e];
}

/* p (dp - sum dp p) */
static void softmax_back(const double *p, const double *dp, int n, double *dz)
{
    double sum = 0;
    for (int e = 0; e < n; e++) sum += dp[e] * p[e];
    for (int e = 0; e < n; e++) dz[e] = p[e] * (dp[e] - sum);
}

/* beta E/N pr_e (f_e - sum f pr) */
static void add_balance(const variant_case *c, const bag *out, int t, int shared,
                        double *dz)
{
    int routed = HEADS - shared;
    const double *pr = bag_data(out, "scores") + t * routed;
    double f[HEADS] = {0}, back[HEADS];
    for (int n = 0; n < TOKENS * routed; n++) {
        int e = n % routed, u = n / routed;
        int row = (u / LEN * HEADS + shared + e) * LEN + u % LEN;
        f[e] += (bag_data(out, "gate")[row] != 0) / (double)TOKENS;
    }
    softmax_back(pr, f, routed, back);
    for (int e = 0; e < routed; e++) dz[e] += c->o.balance * routed / TOKENS * back[e];
}

/* Section 5 of the spec, shared 2 of 6, top 2. */
static void learned_gradients(void)
{
    variant_case c;
    variant_layer_case(&c, "moh:shared=2,top=2", &usual, check_seed);
    c.o.balance = 0.7;
    bag out = solve(&c);
    double dwr[MODEL * 4] = {0}, dws[MODEL * 2] = {0}, dwh[MODEL * 2] = {0};
    for (int t = 0; t < TOKENS; t++) {
        double dw[HEADS], w[HEADS], dz[4], dp[4], share[4], al[2], ps[2];
        for (int h = 0; h < HEADS; h++) {
            dw[h] = gate_gradient(&c, &out, t, h);
            w[h] = bag_data(&out, "gate")[(t / LEN * HEADS + h) * LEN + t % LEN];
        }
        al[0] = (w[0] + w[1]) / 4, al[1] = 1 - al[0]; /* sums are 2 S al_0, 2 K al_1 */
        ps[0] = w[0] / (4 * al[0]), ps[1] = 1 - ps[0];
        double dal[2] = {dw[0] * 4 * ps[0] + dw[1] * 4 * ps[1], 0};
        for (int e = 0; e < 4; e++) {
            share[e] = w[2 + e] / (4 * al[1]);
            dp[e] = dw[2 + e] * 4 * al[1];
            dal[1] += dw[2 + e] * 4 * share[e];
        }
        softmax_back(share, dp, 4, dz);
        add_balance(&c, &out, t, 2, dz);
        add_outer(&c, t, dz, 4, dwr);
        softmax_back(al, dal, 2, dz);
        add_outer(&c, t, dz, 2, dwh);
        for (int s = 0; s < 2; s++) dp[s] = dw[s] * 4 * al[0];
        softmax_back(ps, dp, 2, dz);
        add_outer(&c, t, dz, 2, dws);
    }
    const struct {
        const char *name;
        const double *expected;
        int count;
    } all[] = {{"moh_wr", dwr, 20}, {"moh_ws", dws, 10}, {"moh_wh", dwh, 10}};
    for (int n = 0; n < 3; n++) {
        double *g = gradient(&c, all[n].name);
        near(all[n].name, g, all[n].expected, all[n].count, 1e-7);
        free(g);
    }
    bag_free(&out), variant_case_free(&c);
}

/* The gradient of wq is that of plain attention with the gates standing still, plus what
   runs through the norms to the heads, chosen or not. */
static void norm_gradients(void)
{
    enum { E = 4, WIDE = HEADS * DIM };
    variant_case c;
    variant_layer_case(&c, "moh-norm:shared=2,top=2", &usual, check_seed);
    c.o.balance = 0.7;
    bag out = solve(&c);
    variant_case d = renamed(&c, "mha");
    double *gate = bag_put(&d.in, "gate", BATCH, HEADS, LEN, -1);
    memcpy(gate, bag_data(&out, "gate"), sizeof(double) * TOKENS * HEADS);
    double *expected = gradient(&d, "wq"), *found = gradient(&c, "wq");
    for (int t = 0; t < TOKENS; t++) {
        double q[E * DIM] = {0}, n[E] = {0}, mean = 0, sd = 0, dp[E], dz[E], along = 0;
        const double *x = bag_data(&c.in, "x") + t * MODEL, *wq = bag_data(&c.in, "wq");
        for (int e = 0; e < E * DIM; e++)
            for (int m = 0; m < MODEL; m++) q[e] += x[m] * wq[m * WIDE + 2 * DIM + e];
        for (int e = 0; e < E * DIM; e++) n[e / DIM] += q[e] * q[e];
        for (int e = 0; e < E; e++) n[e] = sqrt(n[e]), mean += n[e] / E;
        for (int e = 0; e < E; e++) sd += pow(n[e] - mean, 2) / (E - 1);
        sd = sqrt(sd);
        for (int e = 0; e < E; e++) dp[e] = gate_gradient(&c, &out, t, 2 + e);
        softmax_back(bag_data(&out, "scores") + t * E, dp, E, dz);
        add_balance(&c, &out, t, 2, dz);
        for (int e = 0; e < E; e++) along += dz[e] * n[e];
        for (int e = 0; e < E * DIM; e++) {
            double dn = dz[e / DIM] / (sd + 1e-6) -
                        along / pow(sd + 1e-6, 2) * (n[e / DIM] - mean) / ((E - 1) * sd);
            for (int m = 0; m < MODEL; m++)
                expected[m * WIDE + 2 * DIM + e] += x[m] * dn * q[e] / n[e / DIM];
        }
    }
    near("dwq", found, expected, MODEL * WIDE, 1e-7);
    free(found), free(expected);
    bag_free(&out), variant_case_free(&c), variant_case_free(&d);
}

/* Scores do not see the scale of a token; equal norms are no trouble. */
static void norm_scale(void)
{
    variant_case c;
    variant_layer_case(&c, "moh-norm:shared=2,top=2", &usual, check_seed);
    bag a = solve(&c);
    for (int i = 0; i < MODEL; i++) bag_data(&c.in, "x")[i] *= 3;
    bag b = solve(&c);
    same(&a, &b, "scores", 1e-5); /* but for the 1e-6 beside the deviation */
    same(&a, &b, "gate", 0);
    bag_free(&a), bag_free(&b);
    zero(&c, "wq");
    a = solve(&c);
    for (int i = 0; i < TOKENS * 4; i++)
        CHECK(bag_data(&a, "scores")[i] == 0.25, "score %g", bag_data(&a, "scores")[i]);
    for (int i = 0; i < TOKENS * HEADS; i++)
        CHECK(bag_data(&a, "gate")[i] == (i / LEN % HEADS < 4), "gate %d", i);
    bag_free(&a), variant_case_free(&c);
}

/* The task alone moves no logit that was not chosen; both parts sum to 0 over heads. */
static void unchosen(void)
{
    const variant_shape shape = {.batch = 1,
                                 .heads = 5,
                                 .q_len = 1,
                                 .kv_len = 3,
                                 .qk_dim = 2,
                                 .model = 3,
                                 .source = 2,
                                 .out_dim = 2};
    variant_case c;
    variant_layer_case(&c, "moh:shared=0,top=2", &shape, check_seed);
    bag out = solve(&c);
    double *g = gradient(&c, "moh_wr");
    for (int i = 0; i < 15; i++)
        CHECK(bag_data(&out, "gate")[i % 5] != 0 || fabs(g[i]) < 1e-10,
              "gradient %g of an unchosen logit", g[i]);
    free(g);
    c.o.balance = 2;
    g = gradient(&c, "moh_wr");
    for (int m = 0; m < 3; m++) {
        double sum = 0;
        for (int e = 0; e < 5; e++) sum += g[m * 5 + e];
        CHECK(fabs(sum) < 1e-9, "sum over heads %g", sum);
    }
    free(g), bag_free(&out), variant_case_free(&c);
}

static const check_case cases[] = {{"printed", printed},
                                   {"printed_balance", printed_balance},
                                   {"equals_gated", equals_gated},
                                   {"zero_routers", zero_routers},
                                   {"sums", sums},
                                   {"one_head", one_head},
                                   {"lengths", lengths},
                                   {"learned_gradients", learned_gradients},
                                   {"norm_gradients", norm_gradients},
                                   {"norm_scale", norm_scale},
                                   {"unchosen", unchosen},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
