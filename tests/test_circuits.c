/*
 * test_circuits.c - what heads contribute, their circuits and ranks, against dense loops
 * in double over the tensors of the model.
 */
#include <math.h>

#include "check.h"
#include "guard.h"
#include "linear/linear.h"
#include "polyhead_circuits.h"
#include "polyhead_scene.h"

enum { DIM = 16, HEADS = 4, HEAD = 4, WORDS = 6, VOCAB = 10 };

typedef struct bed {
    ph_ctx *ctx;
    ph_model *model;
    ph_reading *reading;
    int kv_heads;
    const char *site; /* name of the first */
} bed;

static void open_bed(bed *b, ph_arch arch, ph_norm_place place, const char *variant)
{
    static const char *const words[] = {"the", "dog", "saw", "a", "cat", "."};
    int decoder = arch == PH_ARCH_DECODER;
    ph_config config = {.arch = arch,
                        .layers = 2,
                        .model_dim = DIM,
                        .heads = HEADS,
                        .kv_heads = decoder ? 2 : 0,
                        .max_len = 16,
                        .norm_place = place,
                        .norm = decoder ? PH_NORM_RMS : PH_NORM_LAYER};
    snprintf(config.variant, sizeof config.variant, "%s", variant);
    CHECK(ph_open(&b->ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_model_create(&b->model, b->ctx, &config, PH_SPLIT_WORDS, words, 6, 3) ==
              PH_OK,
          "%s", ph_error(b->ctx));
    CHECK(ph_reading_create(&b->reading, b->model, "the dog saw a cat .", NULL) == PH_OK,
          "%s", ph_error(b->ctx));
    b->kv_heads = decoder ? 2 : HEADS;
    b->site = ph_reading_site(b->reading, 0)->name;
}

static void close_bed(bed *b)
{
    ph_reading_free(b->reading);
    ph_model_free(b->model);
    ph_close(b->ctx);
}

/* A tensor of the model by its whole name; NULL: there is none. */
static const float *tensor(const bed *b, const char *stem, const char *last)
{
    char name[80];
    const ph_tensor *t;
    snprintf(name, sizeof name, last ? "%s.%s" : "%s", stem, last);
    for (int i = 0; (t = ph_model_tensor(b->model, i)) != NULL; i++)
        if (!strcmp(t->name, name)) return t->data;
    return NULL;
}

/* ---- contributions ---- */

/* Roundings of floats between what is compared: the engine's weights and those of the
   look have 16 each (score, log-sum-exp, exponential), then come a sum over WORDS + 1
   keys, one over HEAD rows of W_O, one over HEADS. */
enum { FLOAT_ROUNDINGS = 2 * 16 + (WORDS + 1) + HEAD + HEADS };
#define FLOAT_ERROR (FLOAT_ROUNDINGS * 0x1p-24)

/* o (rows, dim) from weights, values and W_O: no output of a head is used. size: the same
   sums of absolute values. */
static void dense_output(const bed *b, int rows, double *o, double *size)
{
    const float *wo = tensor(b, b->site, "wo");
    float weights[HEADS * 16 * 16], v[16 * HEAD];
    CHECK(ph_reading_look(b->reading, 0, &(ph_look_at){.weights = weights}) == PH_OK,
          "no weights");
    memset(o, 0, (size_t)(rows * DIM) * sizeof *o);
    memset(size, 0, (size_t)(rows * DIM) * sizeof *size);
    for (int h = 0; h < HEADS; h++) {
        ph_reading_vectors(b->reading, 0, h, NULL, NULL, v, NULL);
        for (int i = 0; i < rows; i++)
            for (int d = 0; d < HEAD; d++) {
                double value = 0, absolute = 0;
                for (int j = 0; j < rows; j++) {
                    double part = (double)weights[(h * rows + i) * rows + j] *
                                  (double)v[j * HEAD + d];
                    value += part, absolute += fabs(part);
                }
                for (int c = 0; c < DIM; c++) {
                    double w = (double)wo[(h * HEAD + d) * DIM + c];
                    o[i * DIM + c] += value * w;
                    size[i * DIM + c] += absolute * fabs(w);
                }
            }
    }
}

static void contributions(void)
{
    for (int decoder = 0; decoder < 2; decoder++) {
        bed b;
        double o[16 * DIM], sum[16 * DIM] = {0}, share[HEADS], square = 0, total = 0;
        double along[HEADS] = {0}, size[16 * DIM], error = 0, parts = 0;
        open_bed(&b, decoder ? PH_ARCH_DECODER : PH_ARCH_ENCODER, PH_POST_NORM, "");
        int rows = ph_reading_site(b.reading, 0)->q_len;
        dense_output(&b, rows, o, size);
        for (int n = 0; n < rows * DIM; n++) square += o[n] * o[n];
        /* a share is a product of two outputs over a third: each has its error */
        for (int n = 0; n < rows * DIM; n++)
            error += 4 * FLOAT_ERROR * size[n] * (fabs(o[n]) + size[n] * FLOAT_ERROR);
        for (int h = 0; h < HEADS; h++) {
            float c[16 * DIM];
            CHECK(ph_head_contribution(b.model, b.reading, 0, h, c, NULL) == PH_OK, "%d",
                  h);
            for (int n = 0; n < rows * DIM; n++) {
                sum[n] += (double)c[n];
                along[h] += (double)c[n] * o[n] / square;
                parts += fabs((double)c[n] * o[n]) / square;
            }
        }
        for (int n = 0; n < rows * DIM; n++)
            CHECK(fabs(sum[n] - o[n]) <= FLOAT_ERROR * size[n], "element %d: %g, not %g",
                  n, sum[n], o[n]);
        CHECK(ph_head_shares(b.model, b.reading, 0, share, NULL) == PH_OK, "no shares");
        for (int h = 0; h < HEADS; h++) {
            total += share[h];
            CHECK(fabs(share[h] - along[h]) <= error / square, "head %d: %g, not %g", h,
                  share[h], along[h]);
        }
        /* sums in double over all elements, then over heads, and a division */
        CHECK(fabs(total - 1) <= (rows * DIM + HEADS + 1) * 2 * parts * 0x1p-53,
              "shares sum to %.15f", total);
        close_bed(&b);
    }
}

/* ---- circuits ---- */

/* The input of the first site for one token. */
static void dense_input(const bed *b, int token, int normed, double *x)
{
    const ph_config *c = ph_model_config(b->model);
    const float *embed = tensor(b, "embed", NULL);
    int rms = c->norm == PH_NORM_RMS;
    double mean = 0, variance = 0;
    for (int i = 0; i < DIM; i++)
        x[i] = (double)embed[token * DIM + i] * (double)c->embed_scale;
    if (!normed) return;
    for (int i = 0; i < DIM; i++) mean += rms ? 0 : x[i] / DIM;
    for (int i = 0; i < DIM; i++) variance += (x[i] - mean) * (x[i] - mean) / DIM;
    for (int i = 0; i < DIM; i++) /* a new model's gain is 1, its shift 0 */
        x[i] = (x[i] - mean) / sqrt(variance + (double)c->norm_eps);
}

/* A sum with that of its absolute values, which bounds its rounding. */
typedef struct bounded {
    double value, size;
} bounded;

static bounded dense_column(const double *x, const float *w, int width, int column)
{
    bounded s = {0, 0};
    for (int i = 0; i < DIM; i++) {
        double part = x[i] * (double)w[i * width + column];
        s.value += part, s.size += fabs(part);
    }
    return s;
}

static bounded dense_score(const bed *b, int head, const double *from, const double *to)
{
    const float *wq = tensor(b, b->site, "wq"), *wk = tensor(b, b->site, "wk");
    int shared = head * b->kv_heads / HEADS;
    bounded score = {0, 0};
    for (int d = 0; d < HEAD; d++) {
        bounded q = dense_column(from, wq, HEADS * HEAD, head * HEAD + d);
        bounded k = dense_column(to, wk, b->kv_heads * HEAD, shared * HEAD + d);
        score.value += q.value * k.value / 2; /* sqrt(HEAD) */
        score.size += q.size * k.size / 2;
    }
    return score;
}

static bounded dense_write(const bed *b, int head, const double *x, const float *target)
{
    const float *wv = tensor(b, b->site, "wv"), *wo = tensor(b, b->site, "wo");
    int shared = head * b->kv_heads / HEADS;
    bounded all = {0, 0};
    for (int d = 0; d < HEAD; d++) {
        bounded v = dense_column(x, wv, b->kv_heads * HEAD, shared * HEAD + d);
        for (int c = 0; c < DIM; c++) {
            double w = (double)wo[(head * HEAD + d) * DIM + c] * (double)target[c];
            all.value += v.value * w, all.size += v.size * fabs(w);
        }
    }
    return all;
}

/* Both sides sum in double: norms of two inputs (2 DIM + 6 roundings each), two columns
   of DIM, at most HEAD * DIM products of three factors. */
static int is_near(double found, bounded expected)
{
    const int roundings = 2 * (2 * DIM + 6) + 2 * DIM + 3 * HEAD * DIM;
    return fabs(found - expected.value) <= 2 * roundings * 0x1p-53 * expected.size;
}

static void check_circuit(const bed *b, int head, int normed)
{
    static const int32_t tokens[] = {4, 5, 9};
    ph_circuit *c = NULL;
    double scores[9], writes[VOCAB], x[3][DIM];
    const float *targets = tensor(b, "output", NULL);
    if (!targets) targets = tensor(b, "embed", NULL);
    CHECK(ph_circuit_create(&c, b->model, b->reading, 0, head, NULL) == PH_OK,
          "no circuit");
    CHECK(ph_circuit_scores(c, tokens, 3, scores) == PH_OK, "no scores");
    for (int i = 0; i < 3; i++) dense_input(b, tokens[i], normed, x[i]);
    for (int n = 0; n < 9; n++) {
        bounded expected = dense_score(b, head, x[n / 3], x[n % 3]);
        CHECK(is_near(scores[n], expected), "head %d, pair %d: %g, not %g", head, n,
              scores[n], expected.value);
    }
    CHECK(ph_circuit_writes(c, 5, writes) == PH_OK, "nothing written");
    for (int t = 0; t < VOCAB; t++) {
        bounded expected = dense_write(b, head, x[1], targets + t * DIM);
        CHECK(is_near(writes[t], expected), "head %d, token %d: %g, not %g", head, t,
              writes[t], expected.value);
    }
    CHECK(ph_circuit_scores(c, &(int32_t){VOCAB}, 1, scores) == PH_BAD_VALUE, "no token");
    ph_circuit_free(c);
}

static void circuits(void)
{
    bed b;
    for (int h = 0; h < HEADS; h++) {
        open_bed(&b, PH_ARCH_ENCODER, PH_POST_NORM, ""); /* embeddings as they are */
        check_circuit(&b, h, 0);
        close_bed(&b);
        open_bed(&b, PH_ARCH_DECODER, PH_PRE_NORM, ""); /* RMS norm before, shared keys */
        check_circuit(&b, h, 1);
        close_bed(&b);
    }
}

/* ---- ranks ---- */

/* The heads' products W_Q W_K^T side by side: (DIM, HEADS * DIM). */
static void dense_products(const bed *b, double *m)
{
    const float *wq = tensor(b, b->site, "wq"), *wk = tensor(b, b->site, "wk");
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < DIM; i++)
            for (int j = 0; j < DIM; j++) {
                int shared = h * b->kv_heads / HEADS;
                double sum = 0;
                for (int d = 0; d < HEAD; d++)
                    sum += (double)wq[i * HEADS * HEAD + h * HEAD + d] *
                           (double)wk[j * b->kv_heads * HEAD + shared * HEAD + d];
                m[i * HEADS * DIM + h * DIM + j] = sum;
            }
}

static double rank_of(const double *s, int count)
{
    double sum = 0, entropy = 0;
    for (int i = 0; i < count; i++) sum += s[i];
    for (int i = 0; i < count; i++)
        if (s[i] > 0) entropy -= s[i] / sum * log(s[i] / sum);
    return exp(entropy);
}

/* Squares of singular values come from eigenvalues of Gram matrices: off by 8 sweeps of
   rotations (6 roundings for each of DIM) and sums of DIM, all relative to the largest
   (test_linear), twice: the root of W_K^T W_K before. */
static double square_error(double largest)
{
    return 2 * (8 * 6 + 2) * DIM * 0x1p-52 * largest * largest;
}

/* What that does to the rank: an entropy with terms p ln p, where each s may be off by
   the root of the error of its square, if it is that small. */
static double rank_error(const double *s, int count)
{
    double all = 0, off = 0, squares = square_error(s[0]);
    for (int i = 0; i < count; i++) all += s[i];
    for (int i = 0; i < count; i++) {
        double change = fmin(sqrt(squares), squares / fmax(s[i], 1e-300)) / all;
        off += change * (2 - 2 * log(fmax(s[i] / all, change)));
    }
    return count * off; /* the rank is at most count */
}

static void ranks(void)
{
    for (int decoder = 0; decoder < 2; decoder++) {
        bed b;
        double m[DIM * HEADS * DIM], one_head[DIM * DIM], s[DIM], ut[DIM * DIM];
        double vt[DIM * HEADS * DIM], one = 0, all = 0, energy[DIM], expected = 0;
        double error = 0;
        open_bed(&b, decoder ? PH_ARCH_DECODER : PH_ARCH_ENCODER, PH_POST_NORM, "");
        CHECK(ph_qk_ranks(b.model, b.reading, 0, &one, &all, energy, NULL) == PH_OK,
              "no ranks");
        dense_products(&b, m);
        for (int h = 0; h < HEADS; h++) {
            for (int i = 0; i < DIM; i++)
                memcpy(one_head + i * DIM, m + i * HEADS * DIM + h * DIM,
                       DIM * sizeof *m);
            ph_svd(DIM, DIM, one_head, ut, s, vt);
            expected += rank_of(s, HEAD) / HEADS; /* it has no more than HEAD */
            error += rank_error(s, HEAD) / HEADS;
        }
        CHECK(fabs(one - expected) <= error, "a head: %g, not %g within %g", one,
              expected, error);
        ph_svd(DIM, HEADS * DIM, m, ut, s, vt);
        error = rank_error(s, DIM);
        CHECK(fabs(all - rank_of(s, DIM)) <= error, "all: %g, not %g within %g", all,
              rank_of(s, DIM), error);
        for (int i = 0; i < DIM; i++)
            CHECK(fabs(energy[i] - s[i] * s[i]) <= square_error(s[0]), "energy %d: %g", i,
                  energy[i] - s[i] * s[i]);
        CHECK(one > 1 && one <= HEAD && all > one && all <= DIM, "%g and %g", one, all);
        close_bed(&b);
    }
}

static void refusals(void)
{
    bed b;
    ph_circuit *c = NULL;
    float out[16 * DIM];
    double one, all;
    char error[200] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    open_bed(&b, PH_ARCH_ENCODER, PH_POST_NORM, "collab");
    CHECK(ph_circuit_create(&c, b.model, b.reading, 0, 0, &io) == PH_UNSUPPORTED &&
              strstr(error, "has no plain heads") && !c,
          "%s", error);
    CHECK(ph_qk_ranks(b.model, b.reading, 0, &one, &all, NULL, &io) == PH_UNSUPPORTED,
          "%s", error);
    CHECK(ph_head_contribution(b.model, b.reading, 99, 0, out, &io) == PH_UNSUPPORTED,
          "%s", error);
    CHECK(ph_head_contribution(b.model, b.reading, 0, HEADS, out, &io) == PH_UNSUPPORTED,
          "%s", error);
    close_bed(&b);
}

/* ELECTRA's embeddings have another width than what its heads read. */
static void other_width(void)
{
    static const char path[] = "tests/golden/checkpoints/electra";
    bed b = {0};
    ph_circuit *c = NULL;
    double one, all;
    char error[200] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    CHECK(ph_open(&b.ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_model_read(&b.model, b.ctx, path) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(ph_reading_create(&b.reading, b.model, "the cat sat", NULL) == PH_OK, "%s",
          ph_error(b.ctx));
    CHECK(ph_circuit_create(&c, b.model, b.reading, 0, 0, &io) == PH_UNSUPPORTED &&
              strstr(error, "embeddings have 40 elements, expected the 32") && !c,
          "%s", error);
    CHECK(ph_qk_ranks(b.model, b.reading, 0, &one, &all, NULL, &io) == PH_OK, "%s",
          error);
    close_bed(&b);
}

static void *alloc_hook(void *user, size_t bytes)
{
    (void)user;
    return guard_alloc((bytes + 15) / 16 * 16);
}

static void release_hook(void *user, void *block)
{
    (void)user;
    guard_free(block);
}

/* Heads that are wider than the model. */
static void wide_heads(void)
{
    bed b = {0};
    double one = 0, all = 0;
    static const char *const words[] = {"a", "b"};
    const ph_io io = {.alloc = alloc_hook, .release = release_hook};
    ph_config c = {.arch = PH_ARCH_DECODER, .layers = 1, .model_dim = 6, .max_len = 8};
    c.heads = 2, c.head_dim = 32;
    CHECK(ph_open(&b.ctx, NULL) == PH_OK, "no ctx");
    CHECK(ph_model_create(&b.model, b.ctx, &c, PH_SPLIT_WORDS, words, 2, 3) == PH_OK &&
              ph_reading_create(&b.reading, b.model, "a b", NULL) == PH_OK,
          "%s", ph_error(b.ctx));
    CHECK(ph_qk_ranks(b.model, b.reading, 0, &one, &all, NULL, &io) == PH_OK &&
              one > 1 && one <= 6.001 && all > 1 && all <= 6.001,
          "%g and %g", one, all);
    close_bed(&b);
}

static const check_case cases[] = {{"contributions", contributions},
                                   {"circuits", circuits},
                                   {"ranks", ranks},
                                   {"refusals", refusals},
                                   {"other_width", other_width},
                                   {"wide_heads", wide_heads},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
