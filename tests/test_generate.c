/*
 * test_generate.c - generation from tiny models: beam search against a search through all
 * texts, sampling against exact probabilities, and what is accepted as a prompt.
 *
 * Probabilities are those of the oracle, in double.
 */
#include <math.h>

#include "check.h"
#include "model_oracle.h"

enum { LETTERS = 3, VOCAB = PH_TOKEN_FIRST + LETTERS, LIVE = VOCAB - PH_TOKEN_UNKNOWN };
enum { DEPTH = 4, PREFIXES = 1 + 4 + 16 + 64, MAX_LEN = 6 }; /* LIVE is 4 */

static const char *const letters[LETTERS] = {"a", "b", "c"};

typedef struct bed {
    ph_ctx *ctx;
    ph_model *m;
    double log_p[PREFIXES][VOCAB]; /* of the token after each prefix of the answer */
} bed;

/* Prefixes in breadth-first order: 0 is empty, those of prefix n follow from
   LIVE * n + 1 on. */
static int child(int prefix, int token)
{
    return LIVE * prefix + 1 + token - PH_TOKEN_UNKNOWN;
}

static void log_softmax(const double *logits, double *log_p)
{
    double sum = 0;
    for (int v = 0; v < VOCAB; v++) sum += exp(logits[v]);
    for (int v = 0; v < VOCAB; v++) log_p[v] = logits[v] - log(sum);
}

/* Fills log_p of a prefix and of all that continue it; target is the start mark and the
   prefix. */
static void fill(bed *b, oracle_model *o, oracle_batch *batch, int32_t *target,
                 int prefix)
{
    double logits[(DEPTH + 1) * VOCAB];
    int n = batch->target_len;
    oracle_model_loss(o, batch, 0, logits);
    log_softmax(logits + (n - 1) * VOCAB, b->log_p[prefix]);
    for (int v = PH_TOKEN_UNKNOWN; v < VOCAB && n < DEPTH; v++) {
        target[n] = v, batch->target_len = n + 1;
        fill(b, o, batch, target, child(prefix, v));
        batch->target_len = n;
    }
}

/* A model of random parameters, made decisive enough that texts differ in length. */
static void open_bed(bed *b, uint64_t seed)
{
    ph_config c = {.arch = PH_ARCH_ENCODER_DECODER,
                   .layers = 1,
                   .model_dim = 8,
                   .heads = 2,
                   .ff_dim = 8,
                   .max_len = MAX_LEN};
    CHECK(ph_open(&b->ctx, &(ph_options){.threads = 1}) == PH_OK, "no ctx");
    CHECK(ph_model_create(&b->m, b->ctx, &c, PH_SPLIT_CHARS, letters, LETTERS, seed) ==
              PH_OK,
          "%s", ph_error(b->ctx));
    size_t floats;
    float *block = ph_model_block(b->m, &floats);
    for (size_t i = 0; i < floats; i++) block[i] *= 1.5f;
    oracle_model o;
    int32_t target[DEPTH + 1] = {PH_TOKEN_START},
                           labels[DEPTH + 1] = {-1, -1, -1, -1, -1};
    int32_t source[] = {PH_TOKEN_FIRST, PH_TOKEN_FIRST + 1};
    oracle_batch batch = {.batch = 1, .source_len = 2, .target_len = 1, .source = source};
    batch.target = target, batch.labels = labels;
    oracle_model_take(&o, b->m);
    fill(b, &o, &batch, target, 0);
    oracle_model_free(&o);
}

static void close_bed(bed *b)
{
    ph_model_free(b->m);
    ph_close(b->ctx);
}

/* The tokens of a text of single letters and "<unk>"; returns how many. */
static int tokens_of(const char *text, int *tokens)
{
    int n = 0;
    for (; *text; n++) {
        int unknown = *text == '<';
        tokens[n] = unknown ? PH_TOKEN_UNKNOWN : PH_TOKEN_FIRST + *text - 'a';
        text += unknown ? strlen("<unk>") : 1;
    }
    return n;
}

static int generate(const bed *b, const ph_generation *how, uint64_t number, int *tokens)
{
    char text[64];
    ph_prompt one = {.text = "ab", .number = number, .out = text, .size = sizeof text};
    CHECK(ph_generate_batch(b->m, &one, 1, how) == PH_OK, "%s", ph_error(b->ctx));
    return tokens_of(text, tokens);
}

/* ---- beam search ------------------------------------------------------------------- */

/* Log-probability per token of an answer; one shorter than the limit has an end mark. */
static double score_of(const bed *b, const int *tokens, int n, int limit)
{
    double sum = 0;
    int prefix = 0;
    for (int i = 0; i < n; i++) {
        sum += b->log_p[prefix][tokens[i]];
        prefix = child(prefix, tokens[i]);
    }
    if (n == limit) return sum / n;
    return (sum + b->log_p[prefix][PH_TOKEN_END]) / (n + 1);
}

/* The best score of all answers that begin with these n tokens. */
static double best_of_all(const bed *b, int *tokens, int n, int limit)
{
    double best = score_of(b, tokens, n, limit);
    for (int v = PH_TOKEN_UNKNOWN; v < VOCAB && n < limit; v++) {
        tokens[n] = v;
        best = fmax(best, best_of_all(b, tokens, n + 1, limit));
    }
    return best;
}

typedef struct hypothesis {
    double sum;
    int tokens[DEPTH], prefix;
} hypothesis;

static int by_sum(const void *a, const void *b)
{
    const hypothesis *x = a, *y = b;
    return (x->sum < y->sum) - (x->sum > y->sum);
}

/* The score that a search with `beams` hypotheses finds when it never stops early. */
static double best_of_beams(const bed *b, int beams, int limit)
{
    hypothesis live[256] = {{0}}, next[256 * LIVE];
    double best = -INFINITY;
    int count = 1;
    for (int n = 0; n < limit; n++) {
        int found = 0;
        for (int i = 0; i < count; i++) {
            best = fmax(best, score_of(b, live[i].tokens, n, limit));
            for (int v = PH_TOKEN_UNKNOWN; v < VOCAB; v++) {
                hypothesis h = live[i];
                h.sum += b->log_p[h.prefix][v];
                h.tokens[n] = v, h.prefix = child(h.prefix, v);
                next[found++] = h;
            }
        }
        qsort(next, (size_t)found, sizeof *next, by_sum);
        count = found < beams ? found : beams;
        memcpy(live, next, (size_t)count * sizeof *live);
    }
    for (int i = 0; i < count; i++)
        best = fmax(best, score_of(b, live[i].tokens, limit, limit));
    return best;
}

/* Scores are sums of at most DEPTH logarithms that the model gives in float: what its
   logits differ from the oracle's by is some 1e-6 of their size, which is below 20. */
#define ROUNDING 1e-4

static void beams_find_the_best(void)
{
    int lengths[DEPTH + 1] = {0};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        bed b;
        open_bed(&b, seed);
        for (int limit = 1; limit <= DEPTH; limit++)
            for (int beams = 2; beams <= 256; beams *= 2) {
                int tokens[DEPTH], all[DEPTH];
                ph_generation how = {.max_tokens = limit, .beams = beams};
                int n = generate(&b, &how, 0, tokens);
                double score = score_of(&b, tokens, n, limit);
                double expected = best_of_beams(&b, beams, limit);
                CHECK(fabs(score - expected) < ROUNDING,
                      "model %d, limit %d, %d beams: score %.6f, expected %.6f",
                      (int)seed, limit, beams, score, expected);
                lengths[n]++;
                if (beams < 256) continue; /* 256 keep every prefix of DEPTH tokens */
                double best = best_of_all(&b, all, 0, limit);
                CHECK(fabs(score - best) < ROUNDING,
                      "model %d, limit %d: score %.6f, the best text has %.6f", (int)seed,
                      limit, score, best);
            }
        close_bed(&b);
    }
    for (int n = 0; n <= DEPTH; n++) CHECK(lengths[n], "no answer has %d tokens", n);
}

/* ---- sampling ---------------------------------------------------------------------- */

enum { DRAWS = 8000 };

/* Probabilities of the tokens after a prefix as temperature, top_k and top_p make them:
   each step as it is defined, on a sorted copy. */
static void exact(const bed *b, int prefix, const ph_generation *how, double *p)
{
    double sum = 0, kept = 0;
    int order[VOCAB], count = VOCAB - PH_TOKEN_END;
    memset(p, 0, VOCAB * sizeof *p);
    for (int v = PH_TOKEN_END; v < VOCAB; v++)
        sum += p[v] = exp(b->log_p[prefix][v] / (double)how->temperature);
    for (int v = PH_TOKEN_END; v < VOCAB; v++) {
        int rank = 0;
        p[v] /= sum;
        for (int w = PH_TOKEN_END; w < VOCAB; w++)
            rank += b->log_p[prefix][w] > b->log_p[prefix][v];
        order[rank] = v;
    }
    if (how->top_k && how->top_k < count) count = how->top_k;
    double before = 0, whole = 0; /* of the likelier tokens; of those top_k leaves */
    for (int i = 0; i < count; i++) whole += p[order[i]];
    for (int i = 0; i < VOCAB - PH_TOKEN_END; i++) {
        double own = p[order[i]];
        CHECK(how->top_p == 0 || fabs(before / whole - (double)how->top_p) > 1e-4,
              "top_p falls on an edge: choose another");
        if (i >= count || (how->top_p > 0 && before >= (double)how->top_p * whole))
            p[order[i]] = 0;
        before += own, kept += p[order[i]];
    }
    for (int v = 0; v < VOCAB; v++) p[v] /= kept;
}

/* Bernstein: a count of N draws at probability p is off by more than this in one of 1e9
   tests of all outcomes. */
static double allowed(double p, int outcomes)
{
    double a = log(2.0 * outcomes * 1e9), variance = DRAWS * p * (1 - p);
    return a / 3 + sqrt(a * a / 9 + 2 * a * variance);
}

static void check_frequencies(const bed *b, const ph_generation *given)
{
    int count[VOCAB][VOCAB] = {{0}};
    double first[VOCAB], second[VOCAB];
    ph_generation how = *given;
    how.max_tokens = 2;
    for (int i = 0; i < DRAWS; i++) {
        int tokens[2] = {PH_TOKEN_END, PH_TOKEN_END};
        generate(b, &how, (uint64_t)i, tokens);
        count[tokens[0]][tokens[1]]++;
    }
    exact(b, 0, &how, first);
    for (int v = PH_TOKEN_END; v < VOCAB; v++) {
        memset(second, 0, sizeof second);
        second[PH_TOKEN_END] = 1;
        if (v != PH_TOKEN_END) exact(b, child(0, v), &how, second);
        for (int w = 0; w < VOCAB; w++) {
            double p = first[v] * second[w], off = fabs(count[v][w] - DRAWS * p);
            CHECK(p > 0 ? off <= allowed(p, VOCAB * VOCAB) : !count[v][w],
                  "temperature %g, top_k %d, top_p %g: tokens %d %d came %d times, "
                  "expected %.1f",
                  (double)how.temperature, how.top_k, (double)how.top_p, v, w,
                  count[v][w], DRAWS * p);
        }
    }
}

static void sampling_frequencies(void)
{
    static const ph_generation ways[] = {{.temperature = 1},
                                         {.temperature = 0.5f, .seed = 7},
                                         {.temperature = 2},
                                         {.temperature = 1, .top_k = 2},
                                         {.temperature = 1, .top_p = 0.7f},
                                         {.temperature = 2, .top_k = 3, .top_p = 0.55f}};
    bed b;
    open_bed(&b, 3);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        check_frequencies(&b, &ways[i]);
    close_bed(&b);
}

/* One that a prefix of another sample does not decide: seed and number of the text. */
static void samples_repeat(void)
{
    bed b;
    open_bed(&b, 3);
    int other_seed = 0, other_text = 0;
    for (int i = 0; i < 20; i++) {
        char one[64], again[64], seed[64], text[64];
        ph_generation how = {.temperature = 1, .seed = (uint64_t)i, .max_tokens = DEPTH};
        ph_generate(b.m, "ab", &how, one, sizeof one, NULL);
        ph_generate(b.m, "ab", &how, again, sizeof again, NULL);
        CHECK(!strcmp(one, again), "seed %d gives '%s', then '%s'", i, one, again);
        ph_prompt other = {.text = "ab", .number = 1, .out = text, .size = sizeof text};
        ph_generate_batch(b.m, &other, 1, &how);
        how.seed = 100 + (uint64_t)i;
        ph_generate(b.m, "ab", &how, seed, sizeof seed, NULL);
        other_seed += strcmp(one, seed) != 0, other_text += strcmp(one, text) != 0;
    }
    CHECK(other_seed && other_text, "seed or number of the text changes nothing");
    close_bed(&b);
}

/* ---- prompts ----------------------------------------------------------------------- */

/* What can be trained on can be answered. */
static void longest_source(void)
{
    bed b;
    char text[64];
    open_bed(&b, 3);
    for (int beams = 1; beams <= 2; beams++) {
        ph_generation how = {.beams = beams};
        CHECK(ph_generate(b.m, "abcabc", &how, text, sizeof text, NULL) == PH_OK, "%s",
              ph_error(b.ctx));
        CHECK(ph_generate(b.m, "abcabca", &how, text, sizeof text, NULL) == PH_BAD_SHAPE,
              "a source of max_len + 1 tokens was read");
        CHECK(strstr(ph_error(b.ctx), "has 7 tokens, expected 1 to 6"), "said: %s",
              ph_error(b.ctx));
    }
    close_bed(&b);
}

/* Where the start fills the decoder nothing is generated: look shows the start alone. */
static void no_place(void)
{
    ph_config c = {.arch = PH_ARCH_ENCODER_DECODER,
                   .layers = 1,
                   .model_dim = 32,
                   .heads = 2,
                   .max_len = 1,
                   .encoder_len = 3};
    ph_ctx *ctx;
    ph_model *m;
    ph_reading *r;
    char out[16];
    CHECK(ph_open(&ctx, NULL) == PH_OK, "ph_open failed");
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_CHARS, letters, LETTERS, 3) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_reading_create(&r, m, "a", NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_reading_length(r, 1) == 1, "%d tokens", ph_reading_length(r, 1));
    ph_reading_free(r);
    for (int beams = 0; beams < 4; beams += 3) {
        ph_generation how = {.beams = beams, .max_tokens = beams};
        CHECK(ph_generate(m, "a", &how, out, sizeof out, NULL) == PH_BAD_SHAPE &&
                  strstr(ph_error(ctx), "max_len is 1"),
              "%s", ph_error(ctx));
    }
    ph_model_free(m);
    ph_close(ctx);
}

static const check_case cases[] = {{"beams_find_the_best", beams_find_the_best},
                                   {"sampling_frequencies", sampling_frequencies},
                                   {"samples_repeat", samples_repeat},
                                   {"longest_source", longest_source},
                                   {"no_place", no_place},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
