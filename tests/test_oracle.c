/*
 * test_oracle.c - is the oracle right? Its gradients against finite differences of its
 * own
 * forward pass, its values against cases that can be worked out by hand, the equivalences
 * of sinks, and its number formats. No code of the library runs here.
 */
#include <math.h>

#include "cases.h"
#include "check.h"
#include "oracle.h"

/* ---- finite differences ----------------------------------------------------------- */

/* sum(out dout) + sum(lse dlse): the number whose gradients oracle_backward gives. size:
   the sum of its terms without sign, or NULL. */
static double loss(const dense *p, double *size)
{
    answer a;
    double sum = 0, all = 0;
    answer_init(&a, p, 0);
    oracle_forward(p, &a, NULL);
    size_t rows = dense_rows(p), dim = (size_t)p->v_dim;
    for (size_t n = 0; n < rows * dim; n++) {
        sum += a.out[n] * p->dout[n];
        all += fabs(a.out[n] * p->dout[n]);
    }
    for (size_t n = 0; p->dlse && n < rows; n++) {
        if (a.lse[n] == -INFINITY) continue;
        sum += a.lse[n] * p->dlse[n];
        all += fabs(a.lse[n] * p->dlse[n]);
    }
    answer_free(&a);
    if (size) *size = all;
    return sum;
}

static const double step_size = 2e-4; /* step of the differences */

/* Central difference of fourth order: error h^4, rounding 1e-16 / h. */
static double derivative(const dense *p, double *x)
{
    double keep = *x, value[4];
    static const double step[] = {-2, -1, 1, 2};
    for (int n = 0; n < 4; n++) {
        *x = keep + step[n] * step_size;
        value[n] = loss(p, NULL);
    }
    *x = keep;
    return (value[0] - 8 * value[1] + 8 * value[2] - value[3]) / (12 * step_size);
}

typedef struct checked {
    const char *name;
    double *x;        /* the input         */
    const double *dx; /* its gradient      */
    size_t count;
    int skip_zero; /* 0 is a special value, not a number to vary */
} checked;

static int checks_done; /* differences taken in all */

static void check_derivatives(const dense *p, const checked *c, uint64_t *rng, int index)
{
    double top = 0, size;
    loss(p, &size);
    for (size_t n = 0; n < c->count; n++) top = fmax(top, fabs(c->dx[n]));
    for (int tries = 0; tries < 6 && c->count; tries++) {
        size_t n = (size_t)check_below(rng, (int)c->count);
        if (isinf(c->x[n]) || (c->skip_zero && c->x[n] == 0)) continue;
        double found = derivative(p, &c->x[n]), want = c->dx[n];
        double noise = 1e-14 * (1 + size) / step_size; /* rounding of the loss itself */
        double allowed = 1e-6 * fmax(fabs(want), 1e-3 * top) + noise;
        checks_done++;
        CHECK(fabs(found - want) <= allowed,
              "case %d: d%s[%zu] is %.12g by formula, %.12g by difference", index,
              c->name, n, want, found);
    }
}

static uint8_t *random_keep(const dense *p, uint64_t *rng)
{
    size_t cells = dense_rows(p) * (size_t)p->kv_len;
    uint8_t *keep = malloc(cells + 1);
    for (size_t n = 0; n < cells; n++) keep[n] = check_uniform(rng) >= p->dropout;
    return keep;
}

static void gradients_case(int index)
{
    problem c;
    dense p;
    answer a;
    uint64_t rng = check_seed * 77 + (uint64_t)index;
    case_draw(&c.attn, &c.with, check_seed, index, CASE_TINY);
    c.attn.backward = c.with.clean = 1;
    c.with.q_gain = fminf(c.with.q_gain, 3); /* keeps the fifth derivative small */
    c.with.bias_holes *= 2; /* -inf only: no score swallows the differences */
    problem_build(&c, check_seed + (uint64_t)index);
    dense_load(&p, &c.attn, &c.args, &c.grads);
    if (p.dropout > 0) p.keep = random_keep(&p, &rng);
    answer_init(&a, &p, 1);
    oracle_backward(&p, &a, NULL);
    size_t keys = (size_t)p.batch * (size_t)p.kv_len;
    checked all[] = {
        {"q", p.q, a.dq, dense_rows(&p) * (size_t)p.qk_dim, 0},
        {"k", p.k, a.dk, keys * (size_t)p.k_heads * (size_t)p.qk_dim, 0},
        {"v", p.v, a.dv, keys * (size_t)p.v_heads * (size_t)p.v_dim, 0},
        {"bias", p.bias, a.dbias, dense_bias_count(&p), 0},
        {"gate", p.gate, a.dgate, dense_gate_count(&p), 1},
        {"sink", p.sink, a.dsink, p.sink ? (size_t)p.q_heads : 0, 0},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        check_derivatives(&p, &all[n], &rng, index);
    answer_free(&a);
    dense_free(&p);
    problem_free(&c);
}

static void gradients(void)
{
    int cases = 1500 / CASES_SLOW;
    checks_done = 0;
    for (int index = 0; index < cases; index++) gradients_case(index);
    CHECK(checks_done > 8 * cases, "only %d differences in %d cases", checks_done, cases);
}

/* The float loops must be the same computation: close to the double ones. */
static void yardstick(void)
{
    for (int index = 0; index < 600 / CASES_SLOW; index++) {
        problem c;
        dense p;
        answer a, m, y;
        case_draw(&c.attn, &c.with, check_seed, index, CASE_TINY);
        c.attn.backward = 1;
        c.with.q_gain = fminf(c.with.q_gain, 8);
        c.with.bias_holes *= 2;
        problem_build(&c, check_seed + (uint64_t)index);
        dense_load(&p, &c.attn, &c.args, &c.grads);
        answer_init(&a, &p, 1);
        answer_init(&m, &p, 1);
        answer_init(&y, &p, 1);
        oracle_forward(&p, &a, &m);
        oracle_backward(&p, &a, &m);
        yard_forward(&p, &y);
        memcpy(p.given_out, y.out, dense_rows(&p) * (size_t)p.v_dim * sizeof(double));
        memcpy(p.given_lse, y.lse, dense_rows(&p) * sizeof(double));
        yard_backward(&p, &y);
        for (size_t n = 0; n < dense_rows(&p) * (size_t)p.v_dim; n++)
            CHECK(fabs(a.out[n] - y.out[n]) <= 1e-4 * m.out[n], "case %d out[%zu] %g %g",
                  index, n, a.out[n], y.out[n]);
        for (size_t n = 0; n < dense_rows(&p) * (size_t)p.qk_dim; n++)
            CHECK(fabs(a.dq[n] - y.dq[n]) <= 1e-4 * m.dq[n], "case %d dq[%zu] %g %g",
                  index, n, a.dq[n], y.dq[n]);
        answer_free(&a);
        answer_free(&m);
        answer_free(&y);
        dense_free(&p);
        problem_free(&c);
    }
}

/* ---- values by hand --------------------------------------------------------------- */

/* One head, one batch row; q, k, v given as packed floats. */
typedef struct hand {
    ph_attn attn;
    ph_args args;
    dense p;
    answer a;
} hand;

static void hand_run(hand *h, const float *q, const float *k, const float *v)
{
    h->args.q = q;
    h->args.k = k;
    h->args.v = v;
    if (!h->attn.batch) h->attn.batch = 1;
    if (!h->attn.q_heads) h->attn.q_heads = 1;
    dense_load(&h->p, &h->attn, &h->args, NULL);
    answer_init(&h->a, &h->p, 0);
    oracle_forward(&h->p, &h->a, NULL);
}

static void hand_end(hand *h)
{
    dense_free(&h->p);
    answer_free(&h->a);
}

#define NEAR(x, y)                                                                       \
    CHECK(fabs((x) - (y)) <= 1e-6 * (1 + fabs((double)(y))),                             \
          #x " is %.9g, expected %.9g", (double)(x), (double)(y))

static void one_key(void)
{
    hand h = {.attn = {.q_len = 1, .kv_len = 1, .qk_dim = 2, .v_dim = 3, .scale = 0.5f}};
    float q[] = {1, 2}, k[] = {3, -4}, v[] = {7, 8, 9};
    hand_run(&h, q, k, v);
    NEAR(h.a.lse[0], -2.5);
    for (int d = 0; d < 3; d++) NEAR(h.a.out[d], (double)v[d]);
    NEAR(h.a.entropy[0], 0);
    hand_end(&h);
}

static void two_keys(void) /* scores 0 and ln 3: weights 1/4 and 3/4 */
{
    hand h = {.attn = {.q_len = 1, .kv_len = 2, .qk_dim = 1, .scale = 1}};
    float q[] = {1}, k[] = {0, 1.0986122886681098f}, v[] = {4, 8};
    hand_run(&h, q, k, v);
    NEAR(h.a.weights[0], 0.25);
    NEAR(h.a.weights[1], 0.75);
    NEAR(h.a.out[0], 7);
    NEAR(h.a.lse[0], log(4));
    NEAR(h.a.entropy[0], 0.25 * log(4) + 0.75 * log(4.0 / 3));
    hand_end(&h);
}

static void uniform(void) /* equal scores: means, ln n, and running means when causal */
{
    hand h = {.attn = {.q_len = 4, .kv_len = 4, .qk_dim = 1, .mask = PH_MASK_CAUSAL}};
    float q[] = {0, 0, 0, 0}, k[] = {5, -1, 2, 9}, v[] = {1, 3, 8, 4};
    static const double want[] = {1, 2, 4, 4};
    hand_run(&h, q, k, v);
    for (int i = 0; i < 4; i++) {
        NEAR(h.a.out[i], want[i]);
        NEAR(h.a.lse[i], log(i + 1.0));
        NEAR(h.a.entropy[i], log(i + 1.0));
    }
    NEAR(h.a.col_sum[0], 1 + 0.5 + 1.0 / 3 + 0.25);
    NEAR(h.a.col_sum[3], 0.25);
    hand_end(&h);
}

static void soft_cap(void)
{
    hand h = {.attn = {.q_len = 1, .kv_len = 1, .qk_dim = 1, .scale = 1, .softcap = 2}};
    float q[] = {10}, k[] = {1}, v[] = {1};
    hand_run(&h, q, k, v);
    NEAR(h.a.lse[0], 2 * tanh(5));
    hand_end(&h);
}

static void alibi(void) /* q = 0: scores are minus slope times distance */
{
    float slopes[] = {0.5f}, q[] = {0, 0}, k[] = {1, 1, 1}, v[] = {1, 0, 0};
    hand h = {.attn = {.q_len = 2, .kv_len = 3, .qk_dim = 1, .anchor = PH_ANCHOR_END},
              .args = {.alibi = slopes}};
    hand_run(&h, q, k, v); /* rows stand at 1 and 2 */
    NEAR(h.a.out[0], exp(-0.5) / (1 + 2 * exp(-0.5)));
    NEAR(h.a.out[1], exp(-1) / (1 + exp(-0.5) + exp(-1)));
    hand_end(&h);
}

static void band(void) /* row at position 3 of 6, one to the left, two to the right */
{
    hand h = {.attn = {.q_len = 1,
                       .kv_len = 6,
                       .qk_dim = 1,
                       .mask = PH_MASK_BAND,
                       .band_left = 1,
                       .band_right = 2,
                       .anchor = PH_ANCHOR_OFFSET,
                       .q_offset = 3}};
    float q[] = {0}, k[] = {1, 1, 1, 1, 1, 1}, v[] = {1, 2, 4, 8, 16, 32};
    hand_run(&h, q, k, v);
    NEAR(h.a.out[0], (4 + 8 + 16 + 32) / 4.0);
    hand_end(&h);
}

static void empty_rows(void)
{
    float q[] = {1, 1, 1}, k[] = {NAN}, v[] = {NAN}, sink[] = {0.25f}, gate[] = {1, 1, 0};
    int32_t none[] = {0};
    hand h = {.attn = {.q_len = 3, .kv_len = 1, .qk_dim = 1, .gate = PH_GATE_ROW},
              .args = {.kv_lens = none, .gate = gate}};
    hand_run(&h, q, k, v);
    CHECK(h.a.lse[0] == -INFINITY && h.a.out[0] == 0, "lse %g out %g", h.a.lse[0],
          h.a.out[0]);
    hand_end(&h);
    h.args.sink = sink;
    hand_run(&h, q, k, v);
    CHECK(h.a.lse[0] == 0.25 && h.a.out[0] == 0, "lse %g out %g", h.a.lse[0], h.a.out[0]);
    CHECK(h.a.lse[2] == -INFINITY && h.a.out[2] == 0, "gate 0: lse %g", h.a.lse[2]);
    hand_end(&h);
}

/* X, the two query matrices and their products; then attention of head 1 with itself. */
static void worked_example(void)
{
    static const double x[2][4] = {{1, 0.5, -1, 2}, {-0.5, 1, 0.3, -2}};
    static const double w[2][4][2] = {
        {{0.1, 0.4}, {-0.2, 0.3}, {1.0, -0.5}, {0.5, 0.2}},
        {{-0.3, 0.2}, {1.1, 0.6}, {-0.4, 0.8}, {0.7, -0.1}}};
    static const double want[2][2][2] = {{{0, 1.45}, {-0.95, -0.45}},
                                         {{2.05, -0.5}, {-0.27, 0.94}}};
    float q[2][2][2];
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 2; i++)
            for (int d = 0; d < 2; d++) {
                double sum = 0;
                for (int c = 0; c < 4; c++) sum += x[i][c] * w[h][c][d];
                NEAR(sum, want[h][i][d]);
                q[h][i][d] = (float)sum;
            }
    hand h = {.attn = {.q_heads = 2, .q_len = 2, .kv_len = 2, .qk_dim = 2}};
    hand_run(&h, &q[0][0][0], &q[0][0][0], &q[0][0][0]);
    for (int head = 0; head < 2; head++)
        for (int i = 0; i < 2; i++) { /* two keys: the weight is a logistic function */
            const double(*k)[2] = want[head];
            double gap = k[i][0] * (k[0][0] - k[1][0]) + k[i][1] * (k[0][1] - k[1][1]);
            double first = 1 / (1 + exp(-gap / sqrt(2)));
            for (int d = 0; d < 2; d++)
                NEAR(h.a.out[(head * 2 + i) * 2 + d],
                     first * k[0][d] + (1 - first) * k[1][d]);
        }
    hand_end(&h);
}

/* ---- equivalences ----------------------------------------------------------------- */

/* out with a sink = out without, times sigmoid(lse - sink); sink -inf is none. */
static void sinks(void)
{
    for (int index = 0; index < 50; index++) {
        problem c;
        dense p;
        answer plain, with;
        case_draw(&c.attn, &c.with, check_seed + 9, index, CASE_TINY);
        c.with.sink = 1;
        problem_build(&c, (uint64_t)index);
        dense_load(&p, &c.attn, &c.args, NULL);
        double *sink = p.sink;
        answer_init(&plain, &p, 0);
        answer_init(&with, &p, 0);
        oracle_forward(&p, &with, NULL);
        p.sink = NULL;
        oracle_forward(&p, &plain, NULL);
        p.sink = sink;
        for (size_t n = 0; n < dense_rows(&p) * (size_t)p.v_dim; n++) {
            size_t row = n / (size_t)p.v_dim,
                   h = row / (size_t)p.q_len % (size_t)p.q_heads;
            double share =
                isinf(plain.lse[row]) ? 0 : 1 / (1 + exp(sink[h] - plain.lse[row]));
            CHECK(fabs(with.out[n] - plain.out[n] * share) <=
                      1e-12 * (1 + fabs(plain.out[n])),
                  "case %d out[%zu]: %.15g, expected %.15g", index, n, with.out[n],
                  plain.out[n] * share);
        }
        answer_free(&plain);
        answer_free(&with);
        dense_free(&p);
        problem_free(&c);
    }
}

/* 12 query heads on 4 key and 3 value heads: the same as repeating those heads. */
static void grouped(void)
{
    problem c = {.attn = {.batch = 2,
                          .q_heads = 12,
                          .k_heads = 4,
                          .v_heads = 3,
                          .q_len = 3,
                          .kv_len = 5,
                          .qk_dim = 2,
                          .v_dim = 3}};
    problem r = c;
    r.attn.k_heads = r.attn.v_heads = 12;
    problem_build(&c, check_seed);
    problem_build(&r, check_seed);
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 12; h++) {
            for (int i = 0; i < 3; i++) tensor_copy_row(&r.q, b, h, i, &c.q, b, h, i);
            for (int j = 0; j < 5; j++) tensor_copy_row(&r.k, b, h, j, &c.k, b, h / 3, j);
            for (int j = 0; j < 5; j++) tensor_copy_row(&r.v, b, h, j, &c.v, b, h / 4, j);
        }
    dense p, s;
    answer x, y;
    dense_load(&p, &c.attn, &c.args, NULL);
    dense_load(&s, &r.attn, &r.args, NULL);
    answer_init(&x, &p, 0);
    answer_init(&y, &s, 0);
    oracle_forward(&p, &x, NULL);
    oracle_forward(&s, &y, NULL);
    for (size_t n = 0; n < dense_rows(&p) * 3; n++)
        CHECK(x.out[n] == y.out[n], "out[%zu]: %g and %g", n, x.out[n], y.out[n]);
    answer_free(&x);
    answer_free(&y);
    dense_free(&p);
    dense_free(&s);
    problem_free(&c);
    problem_free(&r);
}

/* ---- number formats --------------------------------------------------------------- */

/* Every 16-bit pattern survives, and what lies between two goes to the nearer one, or to
   the even one from the middle. */
static void half_formats(void)
{
    for (int type = PH_F16; type <= PH_BF16; type++) {
        unsigned infinity = type == PH_F16 ? 0x7c00 : 0x7f80;
        for (unsigned bits = 0; bits < infinity; bits++) {
            uint16_t pair[2] = {(uint16_t)bits, (uint16_t)(bits + 1)}, found = 0;
            double low = oracle_decode((ph_dtype)type, pair, 0);
            double high = oracle_decode((ph_dtype)type, pair, 1);
            if (isinf(high)) high = low + oracle_ulp((ph_dtype)type, low);
            double middle = (low + high) / 2,
                   tests[] = {low, middle * (1 - 1e-9), middle, middle * (1 + 1e-9)};
            unsigned want[] = {bits, bits, bits + (bits & 1), bits + 1};
            for (int n = 0; n < 4; n++) {
                oracle_encode((ph_dtype)type, &found, 0, tests[n]);
                CHECK(found == want[n], "type %d: %.12g became %04x, expected %04x", type,
                      tests[n], found, want[n]);
                oracle_encode((ph_dtype)type, &found, 0, -tests[n]);
                CHECK(found == (want[n] | 0x8000), "type %d: %.12g became %04x", type,
                      -tests[n], found);
            }
        }
    }
}

static const check_case cases[] = {
    {"gradients", gradients},
    {"yardstick", yardstick},
    {"one_key", one_key},
    {"two_keys", two_keys},
    {"uniform", uniform},
    {"soft_cap", soft_cap},
    {"alibi", alibi},
    {"band", band},
    {"empty_rows", empty_rows},
    {"worked_example", worked_example},
    {"sinks", sinks},
    {"grouped", grouped},
    {"half_formats", half_formats},
    {0, 0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
