/*
 * test_variant_oracle.c - the oracle of variants against what is known about them:
 * printed numbers, exact solutions, cases that equal plain attention, written-out
 * gradients.
 *
 * Here plain attention and the entmax family; test_variant_oracle_mix.c has talking and
 * dcmha, test_variant_oracle_layer.c and _route.c what exists in layers only.
 */
#include "oracle.h"
#include "variant_check.h"

static const variant_shape usual = {.batch = 2,
                                    .heads = 4,
                                    .k_heads = 2,
                                    .v_heads = 1,
                                    .q_len = 5,
                                    .kv_len = 7,
                                    .qk_dim = 3,
                                    .v_dim = 2};

/* ---- plain attention --------------------------------------------------------------- */

static void put_masks(variant_case *c)
{
    variant_put(c, "bias", 1, 1, 4, 5, 7)[3] = -INFINITY;
    double *visible = bag_put(&c->in, "visible", 2, 1, 1, 7);
    for (int i = 0; i < 14; i++) visible[i] = i % 5 != 0;
    variant_put(c, "gate", 1, 2, 4, 5, -1)[6] = 0;
    variant_put(c, "sink", 1, 4, -1, -1, -1);
    variant_put(c, "alibi", 0.3, 4, -1, -1, -1);
    variant_put(c, "dlse", 1, 2, 4, 5, -1);
    bag_put(&c->in, "q_lens", 2, -1, -1, -1)[0] = 4;
    bag_data(&c->in, "q_lens")[1] = 5;
    bag_put(&c->in, "kv_lens", 2, -1, -1, -1)[0] = 7;
    bag_data(&c->in, "kv_lens")[1] = 6;
    c->o.window = 1, c->o.left = 3, c->o.right = 2, c->o.offset = 1;
    c->o.scale = 0.7, c->o.softcap = 2;
}

/* The other oracle's view of the same tensors; lens, offset and visible are copies. */
static dense as_dense(const variant_case *c)
{
    const bag *in = &c->in;
    dense p = {.batch = 2, .q_heads = 4, .k_heads = 2, .v_heads = 1, .q_len = 5};
    p.kv_len = 7, p.qk_dim = 3, p.v_dim = 2;
    p.scale = c->o.scale, p.softcap = c->o.softcap, p.mask = PH_MASK_BAND;
    p.band_left = c->o.left, p.band_right = c->o.right;
    p.q = bag_data(in, "q"), p.k = bag_data(in, "k"), p.v = bag_data(in, "v");
    p.bias = bag_data(in, "bias"), p.bias_shape = (ph_broadcast){1, 4, 5};
    p.visible_shape = (ph_broadcast){2, 1, 1};
    p.visible = malloc(14);
    for (int i = 0; i < 14; i++) p.visible[i] = bag_data(in, "visible")[i] != 0;
    p.gate = bag_data(in, "gate"), p.gate_rows = 1;
    p.sink = bag_data(in, "sink"), p.alibi = bag_data(in, "alibi");
    p.q_lens = malloc(2 * sizeof(int));
    p.kv_lens = malloc(2 * sizeof(int));
    p.offset = malloc(2 * sizeof(int));
    for (int b = 0; b < 2; b++) {
        p.q_lens[b] = (int)bag_data(in, "q_lens")[b];
        p.kv_lens[b] = (int)bag_data(in, "kv_lens")[b];
        p.offset[b] = c->o.offset;
    }
    p.dout = bag_data(in, "dout"), p.dlse = bag_data(in, "dlse");
    return p;
}

static void compare_gradient(variant_case *c, const char *name, const double *expected)
{
    double *g = gradient(c, name);
    int count = bag_size(bag_find(&c->in, name));
    near(name, g, expected, count, 1e-8);
    free(g);
}

/* Two oracles written apart: all masks at once, forward and gradients. */
static void mha(void)
{
    variant_case c;
    variant_core_case(&c, "mha", &usual, check_seed);
    put_masks(&c);
    dense p = as_dense(&c);
    answer a;
    answer_init(&a, &p, 1);
    oracle_forward(&p, &a, NULL);
    oracle_backward(&p, &a, NULL);
    bag out = solve(&c);
    near("out", bag_data(&out, "out"), a.out, 80, 1e-14);
    near("lse", bag_data(&out, "lse"), a.lse, 40, 1e-14);
    near("weights", bag_data(&out, "weights"), a.weights, 280, 1e-14);
    compare_gradient(&c, "q", a.dq);
    compare_gradient(&c, "k", a.dk);
    compare_gradient(&c, "v", a.dv);
    compare_gradient(&c, "bias", a.dbias);
    compare_gradient(&c, "gate", a.dgate);
    compare_gradient(&c, "sink", a.dsink);
    answer_free(&a);
    free(p.visible), free(p.q_lens), free(p.kv_lens), free(p.offset);
    bag_free(&out), variant_case_free(&c);
}

/* out = softmax(s) v sigmoid(lse - sink); a huge cap is none. */
static void sink_and_cap(void)
{
    variant_case c;
    variant_core_case(&c, "mha", &usual, check_seed);
    bag without = solve(&c);
    const double *sink = variant_put(&c, "sink", 1, 4, -1, -1, -1);
    c.o.softcap = 1e6;
    bag with = solve(&c);
    for (int n = 0; n < 80; n++) {
        double lse = bag_data(&without, "lse")[n / 2];
        double share = 1 / (1 + exp(sink[n / 10 % 4] - lse));
        double expected = bag_data(&without, "out")[n] * share;
        near("out", &bag_data(&with, "out")[n], &expected, 1, 1e-10);
    }
    bag_free(&with), bag_free(&without), variant_case_free(&c);
}

/* ---- entmax ------------------------------------------------------------------------ */

static void entmax_printed(void)
{
    static const struct {
        double alpha, z[3], p[3];
    } known[] = {{2, {-2, 0, 0.5}, {0, 0.25, 0.75}},
                 {1.5, {-2, 0, 0.5}, {0, 0.3260, 0.6740}},
                 {1.33, {-1, 0, 0.5}, {0.0460, 0.3276, 0.6264}},
                 {1.33, {1, 2, 3.5}, {0.0026, 0.1012, 0.8963}}};
    for (int n = 0; n < 4; n++) {
        double p[3];
        memcpy(p, known[n].z, sizeof p);
        variant_entmax(p, 3, known[n].alpha, NULL);
        near("p", p, known[n].p, 3, n ? 5e-5 : 1e-15);
    }
    double up[3] = {-1, 0, 0.5}, down[3] = {-1, 0, 0.5};
    variant_entmax(up, 3, 1.33 + 1e-6, NULL);
    variant_entmax(down, 3, 1.33 - 1e-6, NULL);
    double derivative = (up[0] - down[0]) / 2e-6, expected = -0.2562;
    near("dp/dalpha", &derivative, &expected, 1, 5e-5);
}

static int descending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The exact threshold by sorting. */
static double sorted_tau(const double *z, int n, double alpha)
{
    double x[64], sum = 0, squares = 0, tau = 0;
    for (int i = 0; i < n; i++) x[i] = (alpha - 1) * z[i];
    qsort(x, (size_t)n, sizeof x[0], descending);
    for (int k = 1; k <= n; k++) {
        sum += x[k - 1], squares += x[k - 1] * x[k - 1];
        double mean = sum / k, spread = squares - k * mean * mean;
        double root = alpha == 2 ? 1.0 / k : sqrt(fmax(0, (1 - spread) / k));
        if (mean - root > x[k - 1] || (alpha != 2 && spread > 1)) break;
        tau = mean - root;
    }
    return tau;
}

static void entmax_sorted(void)
{
    uint64_t r = check_seed;
    for (int n = 1; n < 64; n++)
        for (int half = 0; half < 2; half++) {
            double z[64], p[64], sum = 0, alpha = half ? 1.5 : 2;
            for (int i = 0; i < n; i++) p[i] = z[i] = 2 * (double)check_normal(&r);
            double expected = sorted_tau(z, n, alpha);
            double tau = variant_entmax(p, n, alpha, NULL);
            for (int i = 0; i < n; i++) sum += p[i];
            near("tau", &tau, &expected, 1, 1e-13);
            CHECK(fabs(sum - 1) < 1e-13, "weights sum to %.15g", sum);
        }
}

static void entmax_limits(void)
{
    const double alphas[] = {1, 1.01, 1.25, 1.5, 1.75, 2};
    for (int n = 0; n < 6; n++) {
        double flat[5] = {3, 3, 3, 3, 3}, one[1] = {-7}, fifth = 0.2, whole = 1;
        variant_entmax(flat, 5, alphas[n], NULL);
        variant_entmax(one, 1, alphas[n], NULL);
        for (int i = 0; i < 5; i++) near("flat", &flat[i], &fifth, 1, 1e-13);
        near("one", one, &whole, 1, 1e-13);
        if (alphas[n] < 1.1) continue;
        double apart[3] = {1, 1 + 1.001 / (alphas[n] - 1), -5}, expected[3] = {0, 1, 0};
        variant_entmax(apart, 3, alphas[n], NULL);
        near("one-hot", apart, expected, 3, 0);
    }
}

/* To first order in alpha - 1: softmax + (alpha-1) p/2 (E t^2 - t^2), t = -ln p. */
static void entmax_near_softmax(void)
{
    uint64_t r = check_seed;
    double p[9], e[9], mean = 0;
    for (int i = 0; i < 9; i++) p[i] = e[i] = (double)check_normal(&r);
    variant_entmax(p, 9, 1, NULL);
    variant_entmax(e, 9, 1 + 1e-4, NULL);
    for (int i = 0; i < 9; i++) mean += p[i] * log(p[i]) * log(p[i]);
    for (int i = 0; i < 9; i++) {
        double expected = p[i] + 1e-4 * p[i] / 2 * (mean - log(p[i]) * log(p[i]));
        near("p", &e[i], &expected, 1, 1e-7);
    }
}

/* Translation, hidden keys, and a sink as one more key. */
static void entmax_candidates(void)
{
    uint64_t r = check_seed;
    double z[8], p[8], q[8], sink;
    for (int i = 0; i < 8; i++) z[i] = p[i] = q[i] = (double)check_normal(&r);
    double tau = variant_entmax(p, 8, 1.4, NULL);
    for (int i = 0; i < 8; i++) q[i] += 5;
    double moved = variant_entmax(q, 8, 1.4, NULL) - 0.4 * 5;
    near("shifted", q, p, 8, 1e-13);
    near("tau", &moved, &tau, 1, 1e-13);
    memcpy(q, z, sizeof q);
    sink = z[7];
    double with = variant_entmax(q, 7, 1.4, &sink);
    near("sink", q, p, 7, 1e-13);
    near("tau", &with, &tau, 1, 1e-13);
}

/* Keys that are hidden might as well not be there; alpha 1 is plain attention; a learned
   alpha of logit 0 is 1.5. */
static void entmax_attention(void)
{
    variant_case c, d;
    variant_core_case(&c, "entmax:alpha=1", &usual, check_seed);
    d = renamed(&c, "mha");
    equal(&c, &d, 1e-15);
    variant_case_free(&c), variant_case_free(&d);
    variant_core_case(&c, "entmax", &usual, check_seed);
    d = renamed(&c, "entmax:alpha=1.5");
    bag_drop(&d.in, "alpha_logit");
    memset(bag_data(&c.in, "alpha_logit"), 0, 4 * sizeof(double));
    equal(&c, &d, 0);
    variant_case_free(&c);
    c = renamed(&d, "entmax:alpha=2");
    variant_case e = renamed(&d, "sparsemax");
    equal(&c, &e, 0);
    variant_case_free(&c), variant_case_free(&d), variant_case_free(&e);
}

/* dz_i = s_i (g_i - sum s g / sum s), s = p^(2-alpha) on the support, and dalpha of the
   spec's section 5, against differences. Scores come in as the bias. */
static void entmax_gradients(void)
{
    const variant_shape shape = {
        .batch = 1, .heads = 3, .q_len = 4, .kv_len = 9, .qk_dim = 2, .v_dim = 3};
    variant_case c;
    variant_core_case(&c, "entmax", &shape, check_seed + 1);
    variant_put(&c, "bias", 2, 1, 3, 4, 9);
    bag out = solve(&c);
    double *dz = gradient(&c, "bias"), *dlogit = gradient(&c, "alpha_logit");
    double dalpha[3] = {0}, expected[9];
    for (int row = 0; row < 12; row++) {
        int h = row / 4;
        const double *p = bag_data(&out, "weights") + row * 9, *v = bag_data(&c.in, "v");
        double sigmoid = 1 / (1 + exp(-bag_data(&c.in, "alpha_logit")[h])), e = sigmoid;
        double g[9] = {0}, s[9], total = 0, mean = 0, entropy = 0;
        for (int j = 0; j < 9; j++) {
            for (int d = 0; d < 3; d++)
                g[j] += bag_data(&c.in, "dout")[row * 3 + d] * v[(h * 9 + j) * 3 + d];
            s[j] = p[j] > 0 ? pow(p[j], 1 - e) : 0;
            total += s[j], mean += s[j] * g[j];
            entropy -= p[j] > 0 ? p[j] * log(p[j]) : 0;
        }
        double derivative = 0;
        for (int j = 0; j < 9; j++) {
            double share = s[j] / total, own = p[j] > 0 ? -p[j] * log(p[j]) : 0;
            expected[j] = s[j] * (g[j] - mean / total);
            derivative += g[j] * ((p[j] - share) / (e * e) + (own - share * entropy) / e);
        }
        near("dz", dz + row * 9, expected, 9, 1e-8);
        dalpha[h] += derivative * sigmoid * (1 - sigmoid);
    }
    near("dalpha_logit", dlogit, dalpha, 3, 1e-7);
    free(dz), free(dlogit), bag_free(&out), variant_case_free(&c);
}

/* A row with no key: nothing, or with a sink the tau of the sink alone. */
static void entmax_empty(void)
{
    variant_case c;
    variant_core_case(&c, "entmax:alpha=1.25", &usual, check_seed);
    memset(bag_put(&c.in, "visible", 1, 1, 1, 7), 0, 7 * sizeof(double));
    bag out = solve(&c);
    for (int i = 0; i < 40; i++)
        CHECK(bag_data(&out, "lse")[i] == -INFINITY, "lse %g", bag_data(&out, "lse")[i]);
    bag_free(&out);
    const double *sink = variant_put(&c, "sink", 1, 4, -1, -1, -1);
    out = solve(&c);
    for (int i = 0; i < 40; i++) {
        double expected = 0.25 * sink[i / 5 % 4] - 1, nothing[2] = {0};
        near("lse", &bag_data(&out, "lse")[i], &expected, 1, 1e-15);
        near("out", &bag_data(&out, "out")[2 * i], nothing, 2, 0);
    }
    bag_free(&out), variant_case_free(&c);
}

static const check_case cases[] = {{"mha", mha},
                                   {"sink_and_cap", sink_and_cap},
                                   {"entmax_printed", entmax_printed},
                                   {"entmax_sorted", entmax_sorted},
                                   {"entmax_limits", entmax_limits},
                                   {"entmax_near_softmax", entmax_near_softmax},
                                   {"entmax_candidates", entmax_candidates},
                                   {"entmax_attention", entmax_attention},
                                   {"entmax_gradients", entmax_gradients},
                                   {"entmax_empty", entmax_empty},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
