/*
 * convert_bed.h - small models with random weights, and changes of their heads, for tests
 * of conversions.
 *
 * Bounds. A converted model computes the same function with weights that were rounded
 * once more, at 2^-24 of their size, and sums them in the same order. Outputs come from a
 * norm, so they are of size 1; in each of 2 layers an element passes products of 24 (q,
 * k, v, wo), 8 (scores), 12 (weights) and 48 + 24 (feed-forward) terms, so it gathers at
 * most 2 * (4 * 24 + 8 + 12 + 72) = 376 roundings; norms in between at most double what
 * they are given, twice in each layer: 16 * 376 * 2^-24 = 3.6e-4.
 */
#ifndef CONVERT_BED_H
#define CONVERT_BED_H

#include <math.h>

#include "check.h"
#include "convert/convert.h"
#include "guard.h"
#include "model/pass.h"

enum { DIM = 24, TOKENS = 12, WORDS = 10 };
#define EXACT  3.6e-4
#define BROKEN (10 * EXACT) /* what is not exact is off by more than that */

static const char *const words[WORDS] = {"a", "b", "c", "d", "e",
                                         "f", "g", "h", "i", "j"};
static const char *const texts[] = {"a b c d e f g h i j a c e g", "j i h g f e d c b a",
                                    "c a d b e a f b g c", "d d e e f g a i h"};
static const char *const pairs[] = {"a b c", "j i h g", "c a", "d d e e"};

static inline ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    ph_options options = guard_options(NULL, 1);
    CHECK(ph_open(&ctx, &options) == PH_OK, "ph_open failed");
    return ctx;
}

static inline ph_config config_of(ph_arch arch, ph_positions positions, int heads, int kv)
{
    ph_config c = {.arch = arch,
                   .layers = 2,
                   .model_dim = DIM,
                   .heads = heads,
                   .kv_heads = kv,
                   .head_dim = 8,
                   .ff_dim = 48,
                   .max_len = 32,
                   .positions = positions};
    if (arch == PH_ARCH_ENCODER) c.pooling = PH_POOL_MEAN;
    return c;
}

/* Biases and gains are random too. */
static inline ph_model *make(ph_ctx *ctx, const ph_config *c)
{
    ph_model *m;
    size_t floats;
    uint64_t state = check_seed + 5;
    CHECK(ph_model_create(&m, ctx, c, PH_SPLIT_WORDS, words, WORDS, check_seed) == PH_OK,
          "%s", ph_error(ctx));
    float *block = ph_model_block(m, &floats);
    for (size_t i = m->decayed; i < floats; i++) block[i] += 0.3f * check_normal(&state);
    return m;
}

/* Outputs of the last stack, (TOKENS, DIM). */
static inline void outputs_of(ph_model *m, float *out)
{
    int32_t tokens[TOKENS], target[TOKENS];
    int both = m->config.arch == PH_ARCH_ENCODER_DECODER;
    ph_pass *p;
    ph_pass_shape shape = {
        .batch = 1, .source_len = TOKENS, .target_len = both ? TOKENS : 0};
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = 4 + i % WORDS, target[i] = 4 + i * 3 % WORDS;
    ph_batch batch = {.source = tokens, .target = target};
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(m->ctx));
    memcpy(out, ph_pass_output(p), TOKENS * DIM * sizeof *out);
    ph_pass_free(p);
}

/* The largest difference from outputs that were stored. */
static inline double distance(ph_model *m, const float *before)
{
    float after[TOKENS * DIM];
    double worst = 0;
    outputs_of(m, after);
    for (int i = 0; i < TOKENS * DIM; i++) {
        double d = fabs((double)after[i] - (double)before[i]);
        if (!(d <= worst)) worst = d; /* NaN too */
    }
    return worst;
}

static inline void convert(ph_model *m, const char *to, ph_conversion how,
                           ph_conversion_report **report)
{
    int both = m->config.arch == PH_ARCH_ENCODER_DECODER;
    const ph_texts data = {.texts = texts, .pairs = both ? pairs : NULL, .count = 4};
    strcpy(how.to, to);
    CHECK(ph_convert(m, &how, &data, report) == PH_OK, "%s: %s", to, ph_error(m->ctx));
}

/* ---- transforms of single heads ---------------------------------------------------- */

typedef struct transform {
    double key[64], query[64]; /* (8, 8) that keys and queries are multiplied by */
    double value[64], inverse[64];
} transform;

static inline void set_identity(double *r)
{
    memset(r, 0, 64 * sizeof *r);
    for (int i = 0; i < 8; i++) r[i * 9] = 1;
}

/* A rotation of that freedom, from a random matrix. */
static inline void random_rotation(ph_freedom freedom, uint64_t *state, double *r)
{
    double c[64], work[2 * 64 + 8];
    for (int i = 0; i < 64; i++) c[i] = (double)check_normal(state);
    ph_align(freedom, 8, c, r, work);
}

static inline void multiply(int rows, double *w, const double *r)
{
    double copy[(DIM + 1) * 8];
    ph_multiply(rows, 8, 8, w, r, copy);
    memcpy(w, copy, (size_t)rows * 8 * sizeof *w);
}

/* Multiplies heads of every self-attention of the model itself. */
static inline void apply(ph_model *m, const transform *t)
{
    for (int s = 0; s < m->stacks[0].count; s++) {
        const ph_sublayer *sublayer = &m->stacks[0].sublayers[s];
        ph_chain chain = {.ctx = m->ctx};
        ph_head_weights w;
        double o[8 * DIM];
        if (sublayer->kind == PH_SUBLAYER_FEED) continue;
        ph_convert_site site = {.from = m, .to = m, .old = sublayer, .new = sublayer};
        CHECK(ph_head_weights_load(&w, &site, &chain) == PH_OK, "no weights");
        for (int h = 0; h < w.kv; h++) {
            multiply(DIM + 1, ph_head_k(&w, h), t->key);
            multiply(DIM + 1, ph_head_v(&w, h), t->value);
        }
        for (int h = 0; h < w.heads; h++) {
            multiply(DIM + 1, ph_head_q(&w, h), t->query);
            ph_multiply(8, 8, DIM, t->inverse, ph_head_o(&w, h), o);
            memcpy(ph_head_o(&w, h), o, sizeof o);
        }
        ph_head_weights_store(&w, &site);
        ph_chain_free(&chain);
    }
}

static inline void transpose(const double *r, double *to)
{
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) to[i * 8 + j] = r[j * 8 + i];
}

static inline double change_of(const ph_config *c, const transform *t)
{
    float before[TOKENS * DIM];
    ph_ctx *ctx = open_ctx();
    ph_model *m = make(ctx, c);
    outputs_of(m, before);
    apply(m, t);
    double found = distance(m, before);
    ph_model_free(m);
    ph_close(ctx);
    return found;
}

/* Keys and queries by the same rotation. */
static inline void rotation_of_keys(ph_freedom freedom, transform *t)
{
    uint64_t state = check_seed + 77;
    random_rotation(freedom, &state, t->key);
    memcpy(t->query, t->key, sizeof t->key);
    set_identity(t->value);
    set_identity(t->inverse);
}

#endif
