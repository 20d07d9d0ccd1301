/*
 * test_variant_oracle_layer.c - the oracle of variants, where the layer itself is another
 * one: collab, mohsa, diff, mla, gated, the generators of dcmha. See
 * test_variant_oracle.c.
 */
#include "variant_check.h"

enum { BATCH = 2, HEADS = 3, LEN = 4, KEYS = 5, MODEL = 6, SOURCE = 4, DIM = 4, OUT = 5 };

static const variant_shape usual = {.batch = BATCH,
                                    .heads = HEADS,
                                    .q_len = LEN,
                                    .kv_len = KEYS,
                                    .qk_dim = DIM,
                                    .model = MODEL,
                                    .source = SOURCE,
                                    .out_dim = OUT};

/* Numbers of the plain layer c put into d, where both have them. */
static void take_over(variant_case *d, const variant_case *c)
{
    for (int n = 0; n < d->in.count; n++) {
        const bag_tensor *t = &d->in.t[n], *from = bag_find(&c->in, t->name);
        if (from && bag_size(from) == bag_size(t))
            memcpy(t->data, from->data, (size_t)bag_size(t) * sizeof(double));
    }
}

static void same_out(const variant_case *c, const variant_case *d, double tolerance)
{
    bag a = solve(c), b = solve(d);
    same(&a, &b, "out", tolerance);
    bag_free(&a), bag_free(&b);
}

/* ---- collab ------------------------------------------------------------------------ */

/* Plain attention with biases bq and bk, and the collaborative layer that equals it:
   mix has a block of ones per head, content is bq wk^T. */
static void concatenated(variant_case *c, variant_case *d)
{
    variant_shape wide = usual;
    wide.qk_dim = HEADS * DIM, wide.v_dim = DIM;
    variant_layer_case(c, "mha", &usual, check_seed);
    variant_layer_case(d, "collab", &wide, check_seed);
    take_over(d, c);
    d->o.scale = 1 / sqrt(DIM);
    const double *bq = variant_put(c, "bq", 1, HEADS * DIM, -1, -1, -1);
    double *content = bag_put(&d->in, "content", HEADS, SOURCE, -1, -1);
    variant_put(c, "bk", 1, HEADS * DIM, -1, -1, -1);
    for (int n = 0; n < HEADS * HEADS * DIM; n++) {
        int h = n / (HEADS * DIM), r = n % (HEADS * DIM);
        bag_data(&d->in, "mix")[n] = r / DIM == h;
        for (int m = 0; m < SOURCE && r / DIM == h; m++)
            content[h * SOURCE + m] +=
                bq[r] * bag_data(&c->in, "wk")[m * HEADS * DIM + r];
    }
}

static void collab_concatenated(void)
{
    variant_case c, d;
    concatenated(&c, &d);
    same_out(&c, &d, 1e-13);
    bag_drop(&c.in, "bq"), bag_drop(&c.in, "bk"), bag_drop(&d.in, "content");
    equal(&c, &d, 1e-13);
    variant_case_free(&c), variant_case_free(&d);
}

/* mix s and scale 1/s; wq diag(a) and mix diag(1/a): nothing changes. */
static void collab_scaled(void)
{
    variant_case c;
    variant_layer_case(&c, "collab", &usual, check_seed);
    bag_drop(&c.in, "content");
    c.o.scale = 0.5;
    variant_case d = renamed(&c, "collab");
    for (int n = 0; n < HEADS * DIM; n++)
        bag_data(&d.in, "mix")[n] *= 4 * (1.0 / (1 + n % DIM));
    for (int n = 0; n < MODEL * DIM; n++) bag_data(&d.in, "wq")[n] *= 1 + n % DIM;
    d.o.scale = 0.125;
    equal(&c, &d, 1e-13);
    variant_case_free(&c), variant_case_free(&d);
}

/* One head with a mix of ones is plain; equal rows of mix give equal weights; values that
   are equal for all keys make mix irrelevant. */
static void collab_ones(void)
{
    variant_shape one = usual;
    one.heads = 1;
    variant_case c, d;
    variant_layer_case(&c, "collab", &one, check_seed);
    bag_drop(&c.in, "content");
    for (int r = 0; r < DIM; r++) bag_data(&c.in, "mix")[r] = 1;
    c.o.scale = 0.3;
    d = renamed(&c, "mha");
    equal(&c, &d, 1e-15);
    variant_case_free(&c), variant_case_free(&d);
    variant_layer_case(&c, "collab", &usual, check_seed);
    bag_drop(&c.in, "content");
    for (int r = 0; r < HEADS * DIM; r++) bag_data(&c.in, "mix")[r] = 1;
    bag out = solve(&c);
    for (int h = 1; h < HEADS; h++)
        near("weights", bag_data(&out, "weights") + h * LEN * KEYS,
             bag_data(&out, "weights"), LEN * KEYS, 0);
    memset(bag_data(&c.in, "wv"), 0, sizeof(double) * SOURCE * HEADS * DIM);
    variant_put(&c, "bv", 1, HEADS * DIM, -1, -1, -1);
    double *g = gradient(&c, "mix"), none[HEADS * DIM] = {0};
    near("dmix", g, none, HEADS * DIM, 1e-10);
    free(g), bag_free(&out), variant_case_free(&c);
}

/* ---- mohsa ------------------------------------------------------------------------- */

/* (rows, HEADS*DIM) to windows (rows, HEADS*(DIM+2o)), zeros outside. */
static void widen(variant_case *to, const variant_case *from, const char *name, int rows,
                  int o)
{
    int wide = DIM + 2 * o;
    double *w = bag_put(&to->in, name, rows, HEADS * wide, -1, -1);
    for (int n = 0; n < rows * HEADS * wide; n++) {
        int channel = n / wide % HEADS * DIM - o + n % wide;
        if (channel >= 0 && channel < HEADS * DIM)
            w[n] = bag_data(&from->in, name)[n / (HEADS * wide) * HEADS * DIM + channel];
    }
}

/* Plain attention whose matrices repeat the columns that overlap. */
static void mohsa_tied(void)
{
    static const char *const specs[] = {"mohsa:overlap=0", "mohsa:overlap=1",
                                        "mohsa:overlap=3", "mohsa:overlap=4",
                                        "mohsa:overlap=6"};
    for (int n = 0; n < 5; n++) {
        int o = variant_number(specs[n], "overlap", 0);
        variant_case c;
        variant_layer_case(&c, specs[n], &usual, check_seed);
        variant_case d = renamed(&c, "mha");
        widen(&d, &c, "wq", MODEL, o);
        widen(&d, &c, "wk", SOURCE, o);
        widen(&d, &c, "wv", SOURCE, o);
        d.o.scale = 1 / sqrt(DIM);
        equal(&c, &d, 1e-14);
        variant_case_free(&c), variant_case_free(&d);
    }
}

/* The outer rows of wo meet zeros. One head: the middle of wo is plain attention. */
static void mohsa_border(void)
{
    enum { O = 2, WIDE = DIM + 2 * O };
    variant_case c;
    variant_layer_case(&c, "mohsa:overlap=2", &usual, check_seed);
    double *g = gradient(&c, "wo"), none[O * OUT] = {0};
    near("dwo", g, none, O * OUT, 0);
    near("dwo", g + (HEADS * WIDE - O) * OUT, none, O * OUT, 0);
    free(g), variant_case_free(&c);
    variant_shape one = usual;
    one.heads = 1;
    variant_layer_case(&c, "mohsa:overlap=2", &one, check_seed);
    variant_case d = renamed(&c, "mha");
    memcpy(bag_put(&d.in, "wo", DIM, OUT, -1, -1), bag_data(&c.in, "wo") + O * OUT,
           sizeof(double) * DIM * OUT);
    equal(&c, &d, 0);
    variant_case_free(&c), variant_case_free(&d);
}

/* Scores of collab with a banded mix. */
static void mohsa_is_banded(void)
{
    variant_shape wide = usual;
    wide.qk_dim = HEADS * DIM, wide.v_dim = DIM;
    variant_case c, d;
    variant_layer_case(&c, "mohsa:overlap=3", &usual, check_seed);
    variant_layer_case(&d, "collab", &wide, check_seed);
    take_over(&d, &c);
    bag_drop(&d.in, "content");
    d.o.scale = 1 / sqrt(DIM);
    for (int n = 0; n < HEADS * HEADS * DIM; n++) {
        int h = n / (HEADS * DIM), r = n % (HEADS * DIM);
        bag_data(&d.in, "mix")[n] = r >= h * DIM - 3 && r < h * DIM + DIM + 3;
    }
    bag a = solve(&c), b = solve(&d);
    same(&a, &b, "weights", 1e-14);
    same(&a, &b, "lse", 1e-14);
    bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
}

/* ---- diff -------------------------------------------------------------------------- */

static const variant_shape pairs = {.batch = BATCH,
                                    .heads = 4,
                                    .v_heads = 2,
                                    .q_len = LEN,
                                    .qk_dim = DIM,
                                    .v_dim = 2 * DIM,
                                    .model = MODEL,
                                    .out_dim = OUT};

/* Two plain heads, then norm, from the definition. */
static void diff_defined(void)
{
    variant_case c;
    variant_layer_case(&c, "diff:depth=3", &pairs, check_seed);
    variant_case d = renamed(&c, "mha");
    bag_drop(&d.in, "wo");
    bag a = solve(&c), b = solve(&d);
    double one = 0, two = 0, start = 0.8 - 0.6 * exp(-0.9);
    for (int n = 0; n < DIM; n++) {
        one += bag_data(&c.in, "lambda_q1")[n] * bag_data(&c.in, "lambda_k1")[n];
        two += bag_data(&c.in, "lambda_q2")[n] * bag_data(&c.in, "lambda_k2")[n];
    }
    double lambda = exp(one) - exp(two) + start;
    for (int row = 0; row < BATCH * 2 * LEN; row++) {
        int pair = row / LEN, i = row % LEN, dim = 2 * DIM;
        const double *p = bag_data(&b, "heads") + (2 * pair * LEN + i) * dim;
        const double *m = bag_data(&b, "heads") + ((2 * pair + 1) * LEN + i) * dim;
        double y[2 * DIM], square = 0;
        for (int e = 0; e < dim; e++) y[e] = p[e] - lambda * m[e], square += y[e] * y[e];
        for (int e = 0; e < dim; e++)
            y[e] *=
                (1 - start) * bag_data(&c.in, "diff_norm")[e] / sqrt(square / dim + 1e-5);
        near("heads", bag_data(&a, "heads") + row * dim, y, dim, 1e-14);
    }
    same(&a, &b, "lse", 0);
    bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
}

/* Equal pairs cancel to 1 - lambda, which the norm then hides but for its sign. */
static void diff_equal_pairs(void)
{
    variant_case c;
    variant_layer_case(&c, "diff:depth=0", &pairs, check_seed);
    static const char *const names[] = {"wq", "wk"};
    for (int n = 0; n < 2; n++)
        for (int e = 0; e < MODEL * 4 * DIM; e++)
            if (e / DIM % 2)
                bag_data(&c.in, names[n])[e] = bag_data(&c.in, names[n])[e - DIM];
    variant_case d = renamed(&c, "mha");
    bag_drop(&c.in, "wo"), bag_drop(&d.in, "wo");
    bag a = solve(&c), b = solve(&d);
    for (int row = 0; row < BATCH * 2 * LEN; row++) {
        const double *y = bag_data(&a, "heads") + row * 2 * DIM;
        const double *x =
            bag_data(&b, "heads") + (2 * (row / LEN) * LEN + row % LEN) * 2 * DIM;
        const double *gain = bag_data(&c.in, "diff_norm");
        for (int e = 1; e < 2 * DIM; e++) {
            double found = y[e] * x[0] * gain[0], expected = y[0] * x[e] * gain[e];
            near("ratio", &found, &expected, 1, 1e-13);
        }
    }
    bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
}

/* ---- mla --------------------------------------------------------------------------- */

enum { ROPE = 2, LATENT = 3 + MODEL / 2, WIDE_KEY = LATENT + ROPE };

/* The latent [c | rotated r] of token t at position pos, by hand. */
static void latent_of(const variant_case *c, int t, int pos, double *to)
{
    double square = 0;
    for (int n = 0; n < WIDE_KEY; n++) {
        to[n] = 0;
        for (int m = 0; m < MODEL; m++)
            to[n] += bag_data(&c->in, "x")[t * MODEL + m] *
                     bag_data(&c->in, "w_dkv")[m * WIDE_KEY + n];
        if (n < LATENT) square += to[n] * to[n];
    }
    for (int n = 0; n < LATENT; n++)
        to[n] *= bag_data(&c->in, "kv_norm")[n] / sqrt(square / LATENT + 1e-6);
    double a = to[LATENT], b = to[LATENT + 1];
    to[LATENT] = a * cos(pos) - b * sin(pos);
    to[LATENT + 1] = b * cos(pos) + a * sin(pos);
}

/* Head h's query of token t with w_uk absorbed: [w_uk^T nope | rotated]. */
static void query_of(const variant_case *c, int t, int h, int pos, double *to)
{
    double q[DIM + ROPE] = {0}, latent[LATENT + 1], square = 0;
    const bag *in = &c->in;
    int wide = HEADS * (DIM + ROPE), from = bag_find(in, "w_dq") ? LATENT + 1 : MODEL;
    const double *x = bag_data(in, "x") + t * MODEL, *w = bag_data(in, "wq");
    for (int n = 0; from != MODEL && n < from; n++) {
        latent[n] = 0;
        for (int m = 0; m < MODEL; m++)
            latent[n] += x[m] * bag_data(in, "w_dq")[m * from + n];
        square += latent[n] * latent[n];
    }
    for (int n = 0; from != MODEL && n < from; n++)
        latent[n] *= bag_data(in, "q_norm")[n] / sqrt(square / from + 1e-6);
    if (from != MODEL) x = latent, w = bag_data(in, "w_uq");
    for (int n = 0; n < DIM + ROPE; n++)
        for (int m = 0; m < from; m++) q[n] += x[m] * w[m * wide + h * (DIM + ROPE) + n];
    for (int n = 0; n < LATENT; n++) {
        to[n] = 0;
        for (int d = 0; d < DIM; d++)
            to[n] += q[d] * bag_data(in, "w_uk")[n * HEADS * DIM + h * DIM + d];
    }
    to[LATENT] = q[DIM] * cos(pos) - q[DIM + 1] * sin(pos);
    to[LATENT + 1] = q[DIM + 1] * cos(pos) + q[DIM] * sin(pos);
}

/* Expanded equals absorbed: attention with one key head [c | r] and the value c. */
static void mla_absorbed(void)
{
    const variant_shape shape = {.batch = 1,
                                 .heads = HEADS,
                                 .q_len = LEN,
                                 .qk_dim = DIM,
                                 .v_dim = 3,
                                 .model = MODEL};
    const variant_shape wide = {.batch = 1,
                                .heads = HEADS,
                                .k_heads = 1,
                                .v_heads = 1,
                                .q_len = LEN,
                                .qk_dim = WIDE_KEY,
                                .v_dim = LATENT};
    for (int seed = 0; seed < 4; seed++) { /* with and without w_dq */
        variant_case c, d;
        variant_layer_case(&c, "mla:rope=2", &shape, check_seed + (uint64_t)seed);
        variant_core_case(&d, "mha", &wide, check_seed);
        c.o.causal = d.o.causal = 1;
        d.o.scale = 1 / sqrt(DIM + ROPE);
        for (int t = 0; t < LEN; t++) {
            latent_of(&c, t, t, bag_data(&d.in, "k") + t * WIDE_KEY);
            memcpy(bag_data(&d.in, "v") + t * LATENT, bag_data(&d.in, "k") + t * WIDE_KEY,
                   sizeof(double) * LATENT);
            for (int h = 0; h < HEADS; h++)
                query_of(&c, t, h, t, bag_data(&d.in, "q") + (h * LEN + t) * WIDE_KEY);
        }
        bag a = solve(&c), b = solve(&d);
        same(&a, &b, "lse", 1e-12);
        same(&a, &b, "weights", 1e-12);
        for (int n = 0; n < HEADS * LEN * 3; n++) {
            int h = n / 3 / LEN;
            double expected = 0;
            for (int m = 0; m < LATENT; m++)
                expected += bag_data(&b, "out")[n / 3 * LATENT + m] *
                            bag_data(&c.in, "w_uv")[m * HEADS * 3 + h * 3 + n % 3];
            near("heads", &bag_data(&a, "heads")[n], &expected, 1, 1e-12);
        }
        bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
    }
}

/* ---- gated ------------------------------------------------------------------------- */

/* Logits 0 halve; logits x w are a gate per row, or per element. */
static void gated_defined(void)
{
    for (int element = 0; element < 2; element++) {
        variant_case c;
        variant_layer_case(&c, element ? "gated:element" : "gated:head", &usual,
                           check_seed);
        variant_case d = renamed(&c, "mha");
        bag a = solve(&c), b = solve(&d);
        int wide = element ? DIM : 1;
        for (int n = 0; n < BATCH * HEADS * LEN * DIM; n++) {
            int e = n % DIM, i = n / DIM % LEN, h = n / DIM / LEN % HEADS,
                t = n / DIM / LEN / HEADS * LEN + i;
            double z = 0;
            for (int m = 0; m < MODEL; m++)
                z += bag_data(&c.in, "x")[t * MODEL + m] *
                     bag_data(&c.in, "w_gate")[(m * HEADS + h) * wide + e % wide];
            double expected = bag_data(&b, "heads")[n] / (1 + exp(-z));
            near("heads", &bag_data(&a, "heads")[n], &expected, 1, 1e-14);
        }
        bag_free(&a);
        memset(bag_data(&c.in, "w_gate"), 0,
               sizeof(double) * (size_t)(MODEL * HEADS * wide));
        a = solve(&c);
        for (int n = 0; n < BATCH * LEN * OUT; n++) bag_data(&b, "out")[n] /= 2;
        same(&a, &b, "out", 1e-14);
        bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
    }
}

/* ---- merged and parts -------------------------------------------------------------- */

/* Cross-attention plus the mean of x wv so far; tokens beyond the length give nothing. */
static void merged_mean(void)
{
    variant_shape shape = usual;
    shape.source = MODEL, shape.out_dim = 0;
    variant_case c;
    variant_layer_case(&c, "merged", &shape, check_seed);
    double *lens = bag_put(&c.in, "q_lens", BATCH, -1, -1, -1);
    lens[0] = LEN, lens[1] = LEN - 1;
    const double *bv = variant_put(&c, "bv", 1, HEADS * DIM, -1, -1, -1);
    variant_case d = renamed(&c, "mha");
    bag a = solve(&c), b = solve(&d);
    for (int n = 0; n < BATCH * LEN * HEADS * DIM; n++) {
        int e = n % (HEADS * DIM), t = n / (HEADS * DIM), i = t % LEN;
        double mean = bv[e];
        for (int m = 0; m < (i + 1) * MODEL; m++)
            mean += bag_data(&c.in, "x")[(t - i) * MODEL + m] *
                    bag_data(&c.in, "wv")[m % MODEL * HEADS * DIM + e] / (i + 1);
        bag_data(&b, "out")[n] += i < (int)lens[t / LEN] ? mean : 0;
    }
    same(&a, &b, "out", 1e-13);
    bag_free(&a), bag_free(&b), variant_case_free(&c), variant_case_free(&d);
}

/* kind+core: the kind around the attention of the core. */
static void parts(void)
{
    variant_case c;
    variant_layer_case(&c, "gated:head+entmax:alpha=1.5", &usual, check_seed);
    variant_case d = renamed(&c, "entmax:alpha=1.5");
    bag a = solve(&c), b = solve(&d);
    same(&a, &b, "weights", 0);
    bag_free(&a), bag_free(&b), variant_case_free(&d);
    d = renamed(&c, "gated:head+entmax:alpha=1");
    variant_case e = renamed(&c, "gated:head");
    equal(&d, &e, 0);
    variant_case_free(&c), variant_case_free(&d), variant_case_free(&e);
    variant_layer_case(&c, "mohsa:overlap=3+talking", &usual, check_seed);
    for (int n = 0; n < HEADS * HEADS; n++)
        bag_data(&c.in, "w_logits")[n] = bag_data(&c.in, "w_weights")[n] =
            n / HEADS == n % HEADS;
    d = renamed(&c, "mohsa:overlap=3");
    equal(&c, &d, 0);
    variant_case_free(&c), variant_case_free(&d);
}

/* ---- dcmha in a layer -------------------------------------------------------------- */

/* The spec's example again, this time made by the generators. */
static void dcmha_printed(void)
{
    const variant_shape shape = {
        .batch = 1, .heads = 2, .q_len = 1, .qk_dim = 1, .model = 1};
    const double wq[] = {1, 2}, w2[] = {3, 4, 0.1, -0.2};
    const double expected[] = {1.811127, 1.377746};
    for (int erf_form = 0; erf_form < 2; erf_form++) {
        variant_case c;
        variant_layer_case(&c, erf_form ? "dcmha:rank=1,gelu=erf" : "dcmha:rank=1",
                           &shape, check_seed);
        const double z = 0.8, c0 = 0.7978845608028654;
        double gelu =
            z / 2 *
            (1 + (erf_form ? erf(z / sqrt(2)) : tanh(c0 * (z + 0.044715 * z * z * z))));
        bag_drop(&c.in, "dc_static");
        memset(bag_data(&c.in, "dc_w1"), 0, sizeof(double) * 4 * 4);
        memset(bag_data(&c.in, "dc_w2"), 0, sizeof(double) * 4 * 4 * 2 * 2);
        memset(bag_data(&c.in, "dc_wg"), 0, sizeof(double) * 4 * 2);
        bag_data(&c.in, "x")[0] = 1;
        bag_data(&c.in, "dc_w1")[0] = z;
        for (int n = 0; n < 4; n++) bag_data(&c.in, "dc_w2")[n] = w2[n] / gelu;
        bag_data(&c.in, "dc_wg")[0] = atanh(0.5);
        memcpy(bag_data(&c.in, "wq"), wq, sizeof wq);
        for (int h = 0; h < 2; h++) bag_data(&c.in, "wk")[h] = 1;
        bag out = solve(&c);
        near("lse", bag_data(&out, "lse"), expected, 2, 1e-6);
        bag_free(&out), variant_case_free(&c);
    }
}

/* Head h moves to order[h]: blocks of `dim` along the last axis. */
static void permute(variant_case *c, const char *name, int dim)
{
    static const int order[] = {2, 0, 1};
    bag_tensor *t = bag_find(&c->in, name);
    double *old = malloc(sizeof(double) * (size_t)bag_size(t));
    memcpy(old, t->data, sizeof(double) * (size_t)bag_size(t));
    for (int n = 0; n < bag_size(t); n++)
        t->data[n + (order[n / dim % HEADS] - n / dim % HEADS) * dim] = old[n];
    free(old);
}

/* The order of the heads is a name only. */
static void dcmha_permuted(void)
{
    variant_shape shape = usual;
    shape.source = MODEL;
    variant_case c;
    variant_layer_case(&c, "dcmha:rank=2", &shape, check_seed);
    double *base = variant_put(&c, "dc_static", 0.4, 2, HEADS, HEADS, -1);
    variant_case d = renamed(&c, "dcmha:rank=2");
    permute(&d, "wq", DIM), permute(&d, "wk", DIM), permute(&d, "wv", DIM);
    permute(&d, "wo", DIM * OUT);
    permute(&d, "dc_w2", 1), permute(&d, "dc_wg", 1);
    permute(&d, "dc_static", 1), permute(&d, "dc_static", HEADS);
    same_out(&c, &d, 1e-13);
    CHECK(memcmp(base, bag_data(&d.in, "dc_static"), 9 * sizeof(double)), "not permuted");
    variant_case_free(&c), variant_case_free(&d);
}

/* The same for the heads that a router chooses from, and for collab. */
static void others_permuted(void)
{
    variant_case c;
    variant_layer_case(&c, "moh:shared=0,top=2", &usual, check_seed);
    variant_case d = renamed(&c, "moh:shared=0,top=2");
    permute(&d, "wq", DIM), permute(&d, "wk", DIM), permute(&d, "wv", DIM);
    permute(&d, "wo", DIM * OUT), permute(&d, "moh_wr", 1);
    same_out(&c, &d, 1e-13);
    variant_case_free(&c), variant_case_free(&d);
    variant_layer_case(&c, "collab", &usual, check_seed);
    d = renamed(&c, "collab");
    permute(&d, "wv", DIM), permute(&d, "wo", DIM * OUT), permute(&d, "mix", DIM);
    if (bag_find(&d.in, "content")) permute(&d, "content", SOURCE);
    same_out(&c, &d, 1e-13);
    variant_case_free(&c), variant_case_free(&d);
}

static const check_case cases[] = {{"collab_concatenated", collab_concatenated},
                                   {"collab_scaled", collab_scaled},
                                   {"collab_ones", collab_ones},
                                   {"mohsa_tied", mohsa_tied},
                                   {"mohsa_border", mohsa_border},
                                   {"mohsa_is_banded", mohsa_is_banded},
                                   {"diff_defined", diff_defined},
                                   {"diff_equal_pairs", diff_equal_pairs},
                                   {"mla_absorbed", mla_absorbed},
                                   {"gated_defined", gated_defined},
                                   {"merged_mean", merged_mean},
                                   {"parts", parts},
                                   {"dcmha_printed", dcmha_printed},
                                   {"dcmha_permuted", dcmha_permuted},
                                   {"others_permuted", others_permuted},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
