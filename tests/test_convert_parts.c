/*
 * test_convert_parts.c - the parts of a conversion: groups of heads, their alignment, the
 * decomposition into collaborative heads.
 */
#include <float.h>
#include <math.h>

#include "check.h"
#include "convert/convert.h"
#include "guard.h"
#include "model/pass.h"

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    ph_options options = guard_options(NULL, 1);
    CHECK(ph_open(&ctx, &options) == PH_OK, "ph_open failed");
    return ctx;
}

/* ---- groups ------------------------------------------------------------------------ */

enum { MOST_HEADS = 20 };

static void random_similarity(int heads, double *s)
{
    uint64_t state = check_seed + (uint64_t)heads;
    for (int i = 0; i < heads; i++)
        for (int j = 0; j <= i; j++)
            s[i * heads + j] = s[j * heads + i] = check_uniform(&state);
}

/* The best score of all partitions, group sizes checked at the end. */
static double try_all(int heads, int groups, const double *s, int *group_of, int head)
{
    double best = -INFINITY;
    int size[MOST_HEADS] = {0};
    if (head == heads) return ph_grouping_score(heads, s, group_of);
    for (int i = 0; i < head; i++) size[group_of[i]]++;
    for (int g = 0; g < groups; g++) {
        if (size[g] == heads / groups) continue;
        group_of[head] = g;
        best = fmax(best, try_all(heads, groups, s, group_of, head + 1));
    }
    return best;
}

static void groups_are_best(void)
{
    static const int sizes[][2] = {{4, 2}, {6, 2}, {6, 3}, {8, 2}, {8, 4}, {9, 3}};
    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        int heads = sizes[n][0], groups = sizes[n][1], found[MOST_HEADS], all[MOST_HEADS];
        static double s[MOST_HEADS * MOST_HEADS], work[3 << 9];
        random_similarity(heads, s);
        ph_group_heads(heads, groups, s, 0, found, work);
        double score = ph_grouping_score(heads, s, found);
        double best = try_all(heads, groups, s, all, 0);
        CHECK(fabs(score - best) <= heads * heads * DBL_EPSILON, /* other order of sums */
              "%d heads in %d groups: %.17g, the best is %.17g", heads, groups, score,
              best);
        CHECK(found[0] == 0, "the first head is in group %d", found[0]);
    }
}

/* 20 heads in 5 groups that are alike within: annealing finds them whatever the seed. */
static void annealing_finds_groups(void)
{
    enum { HEADS = 20, GROUPS = 5 };
    double s[HEADS * HEADS], work[HEADS];
    int planted[HEADS], found[HEADS];
    uint64_t state = check_seed;
    random_similarity(HEADS, s);
    for (int i = 0; i < HEADS; i++) planted[i] = i % GROUPS;
    for (int i = 0; i < HEADS; i++)
        for (int j = 0; j < HEADS; j++)
            if (planted[i] == planted[j]) s[i * HEADS + j] += 1;
    for (int trial = 0; trial < 3; trial++) {
        ph_group_heads(HEADS, GROUPS, s, check_random(&state), found, work);
        for (int i = 0; i < HEADS; i++)
            CHECK(found[i] == planted[i], "head %d is in group %d, expected %d", i,
                  found[i], planted[i]);
    }
}

static void one_group_and_all(void)
{
    double s[16] = {0}, work[3 << 4];
    int group_of[4];
    ph_group_heads(4, 1, s, 0, group_of, work);
    for (int i = 0; i < 4; i++) CHECK(group_of[i] == 0, "head %d is elsewhere", i);
    ph_group_heads(4, 4, s, 0, group_of, work);
    for (int i = 0; i < 4; i++) CHECK(group_of[i] == i, "head %d is not alone", i);
}

/* ---- alignment --------------------------------------------------------------------- */

/* Pair angles come back, in both layouts; pairs that are 0 stay. */
static void angles_come_back(void)
{
    enum { ROWS = 50, D = 6 };
    static const ph_freedom layouts[] = {PH_FREEDOM_HALF, PH_FREEDOM_INTERLEAVED};
    for (int n = 0; n < 2; n++) {
        double x[ROWS * D], y[ROWS * D], c[D * D], r[D * D], work[2 * D * D + D];
        uint64_t state = check_seed;
        for (int i = 0; i < ROWS; i++)
            for (int p = 0; p < 3; p++) {
                int a = n ? 2 * p : p, b = n ? 2 * p + 1 : p + 3;
                double cosine = cos(p + 1.0), sine = sin(p + 1.0);
                x[i * D + a] = p ? (double)check_normal(&state) : 0;
                x[i * D + b] = p ? (double)check_normal(&state) : 0;
                y[i * D + a] = x[i * D + a] * cosine - x[i * D + b] * sine;
                y[i * D + b] = x[i * D + a] * sine + x[i * D + b] * cosine;
            }
        ph_multiply_left(D, ROWS, D, x, y, c);
        double trace = ph_align(layouts[n], D, c, r, work);
        for (int p = 0; p < 3; p++) {
            int a = n ? 2 * p : p, b = n ? 2 * p + 1 : p + 3;
            double angle = atan2(r[a * D + b], r[a * D + a]);
            double expected = p ? p + 1.0 : 0;
            CHECK(fabs(angle - expected) <= 4 * ROWS * DBL_EPSILON,
                  "layout %d, pair %d: angle %.17g, expected %.17g", n, p, angle,
                  expected);
        }
        double norm = ph_dot(ROWS * D, x, x);
        CHECK(fabs(trace - norm) <= 4 * ROWS * D * DBL_EPSILON * norm, "trace %g of %g",
              trace, norm);
    }
}

/* Rotated copies of one head meet, whichever of them is first. */
static void group_meets(void)
{
    enum { D = 5, N = 4, ROWS = 40 };
    static double x[N][ROWS * D], grams[N * N * D * D], r[N * D * D],
        work[(N + 5) * D * D];
    double c[D * D], turn[D * D], small[2 * D * D + D], first[ROWS * D], other[ROWS * D];
    static const int members[N] = {2, 0, 3, 1};
    uint64_t state = check_seed;
    for (int i = 0; i < ROWS * D; i++) x[0][i] = (double)check_normal(&state);
    for (int h = 1; h < N; h++) {
        for (int i = 0; i < D * D; i++) c[i] = (double)check_normal(&state);
        ph_procrustes(D, c, turn, small);
        ph_multiply(ROWS, D, D, x[0], turn, x[h]);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            ph_multiply_left(D, ROWS, D, x[i], x[j], grams + (i * N + j) * D * D);
    ph_align_group(PH_FREEDOM_ALL, D, N, grams, members, N, r, work);
    ph_multiply(ROWS, D, D, x[members[0]], r, first);
    for (int i = 1; i < N; i++) {
        ph_multiply(ROWS, D, D, x[members[i]], r + i * D * D, other);
        for (int k = 0; k < ROWS * D; k++)
            /* as in test_linear.c: the condition of the Gram matrix, below 100 here,
               times the roundings of its sums and of the rotations */
            CHECK(fabs(first[k] - other[k]) <= 100 * (ROWS + 6 * 20 * D) * DBL_EPSILON,
                  "head %d differs by %g", members[i], first[k] - other[k]);
    }
}

/* ---- least squares ----------------------------------------------------------------- */

enum { FIT_D = 4, FIT_N = 3, FIT_ROWS = 60 };

/* Random heads, products x_i^T x_j, weights of errors that are the identity. */
typedef struct fit_bed {
    double x[FIT_N][FIT_ROWS * FIT_D], grams[FIT_N * FIT_N * FIT_D * FIT_D];
    double weight[FIT_N * FIT_D * FIT_D];
    double to[FIT_N * FIT_D * FIT_D], back[FIT_N * FIT_D * FIT_D];
    double work[2048];
} fit_bed;

static const int fit_members[FIT_N] = {0, 1, 2};

static void fill_bed(fit_bed *b)
{
    uint64_t state = check_seed;
    memset(b, 0, sizeof *b);
    for (int h = 0; h < FIT_N; h++)
        for (int i = 0; i < FIT_ROWS * FIT_D; i++)
            b->x[h][i] = (double)check_normal(&state) + (h ? b->x[h - 1][i] : 0);
    for (int i = 0; i < FIT_N; i++)
        for (int j = 0; j < FIT_N; j++)
            ph_multiply_left(FIT_D, FIT_ROWS, FIT_D, b->x[i], b->x[j],
                             b->grams + (i * FIT_N + j) * FIT_D * FIT_D);
    for (int i = 0; i < FIT_N * FIT_D; i++) {
        size_t at = (size_t)i * FIT_D + (size_t)(i % FIT_D);
        b->weight[at] = b->back[at] = 1; /* rotations to start from: none */
    }
}

/* Squared errors of all x_i - merged back_i. */
static double lost_of(const fit_bed *b)
{
    double merged[FIT_ROWS * FIT_D] = {0}, part[FIT_ROWS * FIT_D], lost = 0;
    for (int h = 0; h < FIT_N; h++) {
        ph_multiply(FIT_ROWS, FIT_D, FIT_D, b->x[h], b->to + h * FIT_D * FIT_D, part);
        ph_axpy(FIT_ROWS * FIT_D, 1, part, merged);
    }
    for (int h = 0; h < FIT_N; h++) {
        ph_multiply(FIT_ROWS, FIT_D, FIT_D, merged, b->back + h * FIT_D * FIT_D, part);
        for (int i = 0; i < FIT_ROWS * FIT_D; i++) {
            double d = b->x[h][i] - part[i];
            lost += d * d;
        }
    }
    return lost;
}

static void run_fit(fit_bed *b, ph_freedom freedom)
{
    CHECK(ph_fit_work(FIT_D, FIT_N) <= 2048, "the bed is too small");
    ph_fit_group(freedom, FIT_D, FIT_N, b->grams, b->weight, fit_members, FIT_N, b->to,
                 b->back, b->work);
}

/* Freely, what is lost are the eigenvalues that are left out. The iteration ends when a
   round gains less than 1e-7 of all; rounds gain less and less, by the ratio of two
   eigenvalues, which is below 0.9 here: ten times that is left. */
static void fit_is_best(void)
{
    enum { ALL = FIT_N * FIT_D };
    static fit_bed b;
    double gram[ALL * ALL], values[ALL], vectors[ALL * ALL], left = 0, all = 0;
    fill_bed(&b);
    run_fit(&b, PH_FREEDOM_ALL);
    for (int i = 0; i < ALL; i++)
        for (int j = 0; j < ALL; j++)
            gram[i * ALL + j] =
                b.grams[((i / FIT_D * FIT_N + j / FIT_D) * FIT_D + i % FIT_D) * FIT_D +
                        j % FIT_D];
    ph_eigen(ALL, gram, values, vectors);
    for (int i = 0; i < ALL; i++) {
        all += values[i];
        if (i >= FIT_D) left += values[i];
    }
    double lost = lost_of(&b);
    CHECK(fabs(lost - left) <= 1e-6 * all, "%g is lost, the least is %g of %g", lost,
          left, all);
}

/* Pair by pair, factors commute with rotations, and no small change of them is better. */
static void fit_of_pairs(void)
{
    static fit_bed b;
    for (int half = 0; half < 2; half++) {
        fill_bed(&b);
        run_fit(&b, half ? PH_FREEDOM_HALF : PH_FREEDOM_INTERLEAVED);
        double best = lost_of(&b);
        for (int h = 0; h < FIT_N; h++)
            for (int p = 0; p < 2; p++) {
                int i = half ? p : 2 * p, j = half ? p + 2 : 2 * p + 1;
                double *to = b.to + h * FIT_D * FIT_D, *back = b.back + h * FIT_D * FIT_D;
                CHECK(to[i * 5] == to[j * 5] && to[i * 4 + j] == -to[j * 4 + i],
                      "head %d, pair %d does not commute with rotations", h, p);
                for (int k = 0; k < 2; k++) { /* another length, another angle */
                    int at = k ? i * 4 + j : i * 5, mirrored = k ? j * 4 + i : j * 5;
                    double step = 1e-3, sign = k ? -1 : 1;
                    back[at] += step, back[mirrored] += sign * step;
                    CHECK(lost_of(&b) > best, "head %d, pair %d is not the best", h, p);
                    back[at] -= step, back[mirrored] -= sign * step;
                }
            }
    }
}

/* ---- norms ------------------------------------------------------------------------- */

static ph_config small_config(int heads)
{
    return (ph_config){.arch = PH_ARCH_ENCODER,
                       .vocab = 8,
                       .layers = 1,
                       .model_dim = 16,
                       .heads = heads,
                       .head_dim = 4,
                       .ff_dim = 8,
                       .max_len = 8,
                       .positions = PH_POS_NONE,
                       .pooling = PH_POOL_MEAN};
}

/* Parameter of the only attention. */
static float *weights_of(ph_model *m, const char *name)
{
    int index = ph_sublayer_param(m, &m->stacks[0].sublayers[0], name);
    return index < 0 ? NULL : m->block + m->params[index].at;
}

/* The mean of g heads of equal norm with nothing in common has 1/sqrt(g) of it, and all
   of it with renorm; 4 heads read 4 inputs each here. */
static void norm_ratio(void)
{
    ph_ctx *ctx = open_ctx();
    ph_config c = small_config(4);
    for (int renorm = 0; renorm < 2; renorm++) {
        ph_model *m;
        ph_conversion_report *report;
        ph_conversion how = {.to = "mqa", .align = PH_ALIGN_NONE, .renorm = renorm};
        CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1) == PH_OK, "%s",
              ph_error(ctx));
        float *wk = weights_of(m, "wk");
        memset(wk, 0, 16 * 16 * sizeof *wk);
        for (int i = 0; i < 16; i++) wk[i * 17] = 1;
        CHECK(ph_convert(m, &how, NULL, &report) == PH_OK, "%s", ph_error(ctx));
        CHECK(report->sites[0].key_norm == 0.5, "the norm ratio is %g, expected 0.5",
              report->sites[0].key_norm);
        /* |head - mean|^2: 3/4 of a head's 1 is left, with renorm (1/2)^2 + 3 (1/2)^2 */
        double error = report->sites[0].key_error, expected = renorm ? 1 : sqrt(0.75);
        CHECK(fabs(error - expected) <= 8 * DBL_EPSILON, "the error is %.17g", error);
        wk = weights_of(m, "wk");
        CHECK(wk[0] == (renorm ? 0.5f : 0.25f), "a weight is %g", (double)wk[0]);
        ph_conversion_report_free(report);
        ph_model_free(m);
    }
    ph_close(ctx);
}

/* ---- collaborative heads ----------------------------------------------------------- */

/* Scores of all heads for unit inputs: W_h + content, less what is the same for all keys;
   dense, from the plain model (mix NULL) or the converted one. */
static void dense_scores(ph_model *m, int rank, double *w)
{
    const float *wq = weights_of(m, "wq"), *wk = weights_of(m, "wk");
    const float *mix = weights_of(m, "mix");
    int heads = m->config.heads, d = m->config.head_dim, in = m->config.model_dim;
    int columns = mix ? rank : heads * d;
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < in; i++)
            for (int j = 0; j < in; j++) {
                double sum = 0;
                for (int r = 0; r < columns; r++) {
                    double weight = mix ? (double)mix[h * rank + r] : r / d == h;
                    sum += weight * (double)wq[i * columns + r] *
                           (double)wk[j * columns + r];
                }
                *w++ = sum;
            }
}

/* The error that is reported is that of the dense matrices; it falls with the rank, and
   at full rank the model is the same. */
static void collab_error(void)
{
    enum { IN = 16, HEADS = 3, COUNT = HEADS * IN * IN };
    static const int ranks[] = {1, 2, 4, 8, 11, 12};
    static double plain[COUNT], found[COUNT];
    double last = 2;
    ph_ctx *ctx = open_ctx();
    ph_config c = small_config(HEADS);
    for (int n = 0; n < 6; n++) {
        ph_model *m;
        ph_conversion_report *report;
        ph_conversion how = {0};
        double lost = 0, all = 0;
        CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, check_seed) == PH_OK,
              "%s", ph_error(ctx));
        dense_scores(m, 0, plain);
        snprintf(how.to, sizeof how.to, "collab:%d", ranks[n]);
        CHECK(ph_convert(m, &how, NULL, &report) == PH_OK, "%s", ph_error(ctx));
        dense_scores(m, ranks[n], found);
        for (int i = 0; i < COUNT; i++) {
            lost += (plain[i] - found[i]) * (plain[i] - found[i]);
            all += plain[i] * plain[i];
        }
        double error = report->sites[0].key_error, dense = sqrt(lost / all);
        /* factors are rounded to 2^-24 in the model; terms cancel by less than 100 */
        CHECK(fabs(error - dense) <= 3 * 100 * 0x1p-24, "rank %d: error %g, dense %g",
              ranks[n], error, dense);
        CHECK(error < last, "rank %d: error %g after %g", ranks[n], error, last);
        CHECK(ranks[n] < 12 || (error == 0 && lost == 0), "full rank loses %g", dense);
        last = error;
        ph_conversion_report_free(report);
        ph_model_free(m);
    }
    ph_close(ctx);
}

/* A rank for an error: the smallest multiple of the head size that has it. */
static void collab_of_error(void)
{
    ph_ctx *ctx = open_ctx();
    ph_config c = small_config(3);
    static const double errors[] = {1e-12, 0.75, 1};
    for (int i = 0; i < 3; i++) {
        ph_model *m;
        ph_conversion_report *report;
        ph_conversion how = {.to = "collab", .error = errors[i]};
        CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, check_seed) == PH_OK,
              "%s", ph_error(ctx));
        CHECK(ph_convert(m, &how, NULL, &report) == PH_OK, "%s", ph_error(ctx));
        CHECK(report->sites[0].key_error <= errors[i], "error %g, expected at most %g",
              report->sites[0].key_error, errors[i]);
        int rank =
            m->params[ph_sublayer_param(m, &m->stacks[0].sublayers[0], "mix")].dims[1];
        CHECK(i == 1 ? rank == 4 || rank == 8 : rank == (i ? 4 : 12),
              "error %g has rank %d", errors[i], rank);
        ph_conversion_report_free(report);
        ph_model_free(m);
    }
    ph_close(ctx);
}

static void pass_output(ph_model *m, float *out, int count)
{
    static const int32_t tokens[] = {1, 5, 2, 7, 3, 3};
    ph_pass *p;
    CHECK(ph_pass_create(&p, m, &(ph_pass_shape){.batch = 1, .source_len = 6}) == PH_OK,
          "%s", ph_error(m->ctx));
    CHECK(ph_pass_forward(p, &(ph_batch){.source = tokens}, 0) == PH_OK, "%s",
          ph_error(m->ctx));
    memcpy(out, ph_pass_output(p), (size_t)count * sizeof *out);
    ph_pass_free(p);
}

/* Full rank with biases of queries and keys, from plain and from shared key heads: the
   first become content biases, the others cancel. Outputs are of size 1 and gather fewer
   than 2 * (4 * 16 + 12 + 24) roundings. */
static void collab_full_rank(void)
{
    for (int kv = 1; kv <= 3; kv += 2) {
        float before[6 * 16], after[6 * 16];
        ph_model *m;
        uint64_t state = check_seed;
        ph_ctx *ctx = open_ctx();
        ph_config c = small_config(3);
        c.kv_heads = kv;
        CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, check_seed) == PH_OK,
              "%s", ph_error(ctx));
        for (size_t i = m->decayed; i < m->floats; i++)
            m->block[i] += 0.3f * check_normal(&state);
        pass_output(m, before, 6 * 16);
        ph_conversion how = {.to = "collab:12"};
        CHECK(ph_convert(m, &how, NULL, NULL) == PH_OK, "%s", ph_error(ctx));
        CHECK(!strcmp(m->config.variant, "collab:dim=12,content=1"), "variant %s",
              m->config.variant);
        pass_output(m, after, 6 * 16);
        for (int i = 0; i < 6 * 16; i++)
            CHECK(fabs((double)after[i] - (double)before[i]) <= 200 * 0x1p-24,
                  "%d key heads: output %d is %g, expected %g", kv, i, (double)after[i],
                  (double)before[i]);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* Published sizes: BERT-base at 768, 384 and 256, DistilBERT at 384, in parameters more
   or less than plain heads. */
static void collab_parameters(void)
{
    static const struct {
        int layers, rank;
        int64_t delta;
    } all[] = {
        {12, 768, 202752}, {12, 384, -6930432}, {12, 256, -9308160}, {6, 384, -3465216}};
    ph_ctx *ctx = open_ctx();
    for (int i = 0; i < 4; i++) {
        ph_model *plain, *shared;
        ph_config c = {.arch = PH_ARCH_ENCODER,
                       .vocab = 30522,
                       .layers = all[i].layers,
                       .model_dim = 768,
                       .heads = 12,
                       .ff_dim = 3072,
                       .max_len = 512,
                       .positions = PH_POS_LEARNED,
                       .pooling = PH_POOL_MEAN};
        CHECK(ph_model_shape(&plain, ctx, &c, NULL, PH_SPLIT_WORDS, NULL, 0) == PH_OK,
              "%s", ph_error(ctx));
        snprintf(c.variant, sizeof c.variant, "collab:dim=%d,content=1", all[i].rank);
        c.no_bias = PH_NO_BIAS_Q | PH_NO_BIAS_K;
        CHECK(ph_model_shape(&shared, ctx, &c, NULL, PH_SPLIT_WORDS, NULL, 0) == PH_OK,
              "%s", ph_error(ctx));
        int64_t delta = ph_model_parameters(shared) - ph_model_parameters(plain);
        CHECK(delta == all[i].delta, "rank %d: %lld parameters, expected %lld",
              all[i].rank, (long long)delta, (long long)all[i].delta);
        ph_model_free(plain);
        ph_model_free(shared);
    }
    ph_close(ctx);
}

/* collab:dim=R is what a layer with qk_dim R and values of its own size is. */
static void collab_dim(void)
{
    ph_ctx *ctx = open_ctx();
    ph_layer *layers[2];
    ph_layer_desc d = {.model_dim = 12,
                       .attn = {.batch = 1, .q_heads = 3, .q_len = 5, .kv_len = 5}};
    float x[5 * 12], w[4][12 * 12], extra[3 * 7], out[2][5 * 12], dwq[2][12 * 7];
    d.attn.backward = 1;
    uint64_t state = check_seed;
    for (int i = 0; i < 5 * 12; i++) x[i] = check_normal(&state);
    for (int i = 0; i < 4 * 144; i++) w[i / 144][i % 144] = check_normal(&state);
    for (int i = 0; i < 3 * 7; i++) extra[i] = check_normal(&state);
    const float *const own[] = {extra};
    ph_layer_weights weights = {w[0], w[1], w[2], w[3], .extra = own};
    for (int i = 0; i < 2; i++) {
        d.attn.variant = i ? "collab:dim=7" : "collab";
        d.attn.qk_dim = i ? 4 : 7, d.attn.v_dim = 4;
        CHECK(ph_layer_create(&layers[i], ctx, &d) == PH_OK, "%s", ph_error(ctx));
        ph_layer_args args = {.x = x, .out = out[i]};
        args.saved_size = ph_layer_saved(layers[i]);
        args.saved = ph_ctx_alloc(ctx, args.saved_size);
        ph_layer_grads grads = {.dout = x, .dwq = dwq[i]};
        CHECK(ph_layer_forward(layers[i], &weights, &args) == PH_OK &&
                  ph_layer_backward(layers[i], &weights, &args, &grads) == PH_OK,
              "%s", ph_error(ctx));
        ph_ctx_release(ctx, args.saved);
        ph_layer_free(layers[i]);
    }
    CHECK(!memcmp(out[0], out[1], sizeof out[0]), "dim=7 gives other bits");
    CHECK(!memcmp(dwq[0], dwq[1], sizeof dwq[0]), "dim=7 gives another gradient");
    d.rope = PH_ROPE_HALF;
    CHECK(ph_layer_create(&layers[0], ctx, &d) == PH_UNSUPPORTED &&
              strstr(ph_error(ctx), "rotary"),
          "%s", ph_error(ctx));
    ph_close(ctx);
}

static const check_case cases[] = {{"groups_are_best", groups_are_best},
                                   {"annealing_finds_groups", annealing_finds_groups},
                                   {"one_group_and_all", one_group_and_all},
                                   {"angles_come_back", angles_come_back},
                                   {"group_meets", group_meets},
                                   {"fit_is_best", fit_is_best},
                                   {"fit_of_pairs", fit_of_pairs},
                                   {"norm_ratio", norm_ratio},
                                   {"collab_error", collab_error},
                                   {"collab_of_error", collab_of_error},
                                   {"collab_full_rank", collab_full_rank},
                                   {"collab_parameters", collab_parameters},
                                   {"collab_dim", collab_dim},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
