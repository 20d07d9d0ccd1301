/*
 * model_bed.h - a small model with a pass and a batch of random numbers, for tests of
 * whole models.
 */
#ifndef MODEL_BED_H
#define MODEL_BED_H

#include <math.h>

#include "check.h"
#include "guard.h"
#include "kernels/kernels.h"
#include "model/pass.h"
#include "model_errors.h"
#include "model_oracle.h"

enum { BATCH = 2, SOURCE = 5, TARGET = 6, VOCAB = 11, DROPOUT_SEED = 7 };

typedef struct bed {
    ph_ctx *ctx;
    ph_model *m;
    ph_pass *p;
    /* texts padded to the same length, as the oracle takes them ... */
    int32_t source[BATCH * SOURCE], target[BATCH * TARGET], labels[BATCH * TARGET];
    int32_t lens[BATCH], target_lens[BATCH], types[BATCH * SOURCE];
    /* ... and side by side */
    int32_t sources[BATCH * SOURCE], targets[BATCH * TARGET], all_labels[BATCH * TARGET];
    int32_t source_offsets[BATCH + 1], target_offsets[BATCH + 1];
    int32_t all_types[BATCH * SOURCE];
    float pixels[BATCH * 32]; /* of pictures */
    ph_batch batch;
    float *grads;
} bed;

/* 1: gradients of f32 in AMX tiles, or in loops that mean the same. */
static int bed_tiles;

static inline ph_ctx *open_ctx(int threads)
{
    static ph_kernels tiled;
    ph_ctx *ctx;
    ph_options options = guard_options(NULL, threads);
    CHECK(ph_open(&ctx, &options) == PH_OK, "ph_open failed");
    if (!bed_tiles) return ctx;
    tiled = *ctx->kernels;
    tiled.f32_tiles = 1;
    if (!tiled.bf16_pairs) tiled.bf16_pairs = &ph_bf16_pairs_ref;
    ctx->kernels = &tiled;
    return ctx;
}

/* Padded texts side by side; beyond their lengths nothing is counted. */
static inline void pack_texts(int len, const int32_t *lens, const int32_t *padded,
                              int32_t *to, int32_t *offsets)
{
    offsets[0] = 0;
    for (int i = 0; i < BATCH; i++) {
        memcpy(to + offsets[i], padded + i * len, (size_t)lens[i] * sizeof *to);
        offsets[i + 1] = offsets[i] + lens[i];
    }
}

static inline int label_len(const bed *b)
{
    return b->m->config.arch == PH_ARCH_ENCODER_DECODER ? TARGET : SOURCE;
}

/* Pictures all have the same number of rows. */
static inline void set_pictures(bed *b)
{
    uint64_t state = check_seed + 9;
    for (int i = 0; i < BATCH * 32; i++) b->pixels[i] = check_normal(&state);
    for (int i = 0; i < BATCH; i++) b->lens[i] = SOURCE;
    b->batch = (ph_batch){.pixels = b->pixels, .labels = b->labels};
}

static inline void set_batch(bed *b)
{
    uint64_t state = check_seed;
    const ph_config *c = &b->m->config;
    int links = b->m->links >= 0, last = label_len(b);
    int most = links ? 3 : c->classes ? c->classes : VOCAB;
    int32_t offsets[BATCH + 1], *lens = last == TARGET ? b->target_lens : b->lens;
    b->lens[0] = SOURCE, b->lens[1] = 3;
    b->target_lens[0] = TARGET - 1, b->target_lens[1] = TARGET;
    for (int i = 0; i < BATCH * SOURCE; i++) {
        b->source[i] = (int32_t)(check_random(&state) % VOCAB);
        b->types[i] = c->types ? i % c->types : 0;
    }
    for (int i = 0; i < BATCH * TARGET; i++) {
        b->target[i] = (int32_t)(check_random(&state) % VOCAB);
        b->labels[i] = (int32_t)(check_random(&state) % (uint64_t)most);
        if (i % 4 == 3) b->labels[i] = -1;
        if (i < BATCH * last && i % last >= lens[i / last]) b->labels[i] = -1;
    }
    pack_texts(SOURCE, b->lens, b->source, b->sources, b->source_offsets);
    pack_texts(SOURCE, b->lens, b->types, b->all_types, offsets);
    pack_texts(TARGET, b->target_lens, b->target, b->targets, b->target_offsets);
    pack_texts(last, lens, b->labels, b->all_labels, offsets);
    if (c->classes && c->pooling) memcpy(b->all_labels, b->labels, sizeof b->labels);
    b->batch = (ph_batch){.source = b->sources,
                          .source_offsets = b->source_offsets,
                          .target = b->targets,
                          .target_offsets = b->target_offsets,
                          .types = c->types ? b->all_types : NULL,
                          .labels = b->all_labels};
    if (c->image_size) set_pictures(b);
}

/* Texts that all have the same length, all tokens of type 0. */
static inline void set_full_batch(bed *b)
{
    b->batch = (ph_batch){.source = b->source, .target = b->target, .labels = b->labels};
}

static inline void make_bed(bed *b, const ph_config *c, int threads, int backward)
{
    memset(b, 0, sizeof *b);
    b->ctx = open_ctx(threads);
    CHECK(ph_model_create(&b->m, b->ctx, c, PH_SPLIT_WORDS, NULL, 0, 3) == PH_OK, "%s",
          ph_error(b->ctx));
    ph_pass_shape shape = {.batch = BATCH,
                           .source_len = SOURCE,
                           .target_len = c->arch == PH_ARCH_ENCODER_DECODER ? TARGET : 0,
                           .backward = backward};
    CHECK(ph_pass_create(&b->p, b->m, &shape) == PH_OK, "%s", ph_error(b->ctx));
    b->grads = calloc(b->m->floats, sizeof(float));
    /* gains and biases that are not 1 and 0, so that mistakes show */
    uint64_t state = check_seed + 5;
    for (size_t i = b->m->decayed; i < b->m->floats; i++)
        b->m->block[i] += (float)(check_uniform(&state) - 0.5) * 0.4f;
    set_batch(b);
}

static inline void free_bed(bed *b)
{
    free(b->grads);
    ph_pass_free(b->p);
    ph_model_free(b->m);
    ph_close(b->ctx);
}

/* Loss of the library with its balance loss; gradients in b->grads. */
static inline double run_bed(bed *b, float smoothing)
{
    double loss = 0;
    CHECK(ph_pass_forward(b->p, &b->batch, DROPOUT_SEED) == PH_OK, "%s",
          ph_error(b->ctx));
    CHECK(ph_pass_loss(b->p, smoothing, 1, &loss) == PH_OK, "%s", ph_error(b->ctx));
    CHECK(ph_pass_backward(b->p, b->grads) == PH_OK, "%s", ph_error(b->ctx));
    return loss + b->p->balance * ph_pass_balance(b->p);
}

/* The same of the oracle. */
static inline double oracle_of(const bed *b, oracle_model *o, double smoothing)
{
    oracle_batch all = {BATCH,
                        SOURCE,
                        TARGET,
                        b->source,
                        b->lens,
                        b->target,
                        b->target_lens,
                        b->batch.types ? b->types : NULL,
                        b->labels,
                        b->pixels};
    double loss = oracle_model_loss(o, &all, smoothing, NULL);
    return loss + b->p->balance * o->balance;
}

/* The oracle's gradient of every parameter, by central differences in double.
   Of a step h they are off by h^2 / 6 times the third derivative and by 2^-53 / h of the
   loss, both about 1e-11 here: four digits beyond what floats are compared to. Where an
   activation has a corner within the step, a smaller one stays on one side of it. */
static inline double *true_gradients(const bed *b, oracle_model *o, double smoothing)
{
    double *gradients = calloc(b->m->floats, sizeof *gradients);
    double here = oracle_of(b, o, smoothing);
    for (int i = 0; i < o->count; i++) {
        const ph_weight *p = &b->m->params[i];
        for (size_t k = 0; k < p->count; k++) {
            double old = o->values[i][k], *to = &gradients[p->at + k];
            int corner = 1;
            for (double h = 1e-5; corner && h > 1e-8; h /= 10) {
                o->values[i][k] = old + h;
                double up = oracle_of(b, o, smoothing);
                o->values[i][k] = old - h;
                double down = oracle_of(b, o, smoothing);
                *to = (up - down) / (2 * h);
                corner = fabs(up - 2 * here + down) > 1e-2 * h * (1 + fabs(*to));
            }
            o->values[i][k] = old;
        }
    }
    return gradients;
}

/* The oracle of b's parameters, with dropout. */
static inline oracle_model take_oracle(const bed *b)
{
    oracle_model o;
    oracle_model_take(&o, b->m);
    o.dropout = b->m->config.dropout, o.seed = DROPOUT_SEED;
    return o;
}

/* How far gradients stray if every value of the forward pass is off by up to a unit in
   the last place of a float: the largest difference of some draws. */
static inline double stray_gradients(const bed *b, const double *truth, double smoothing)
{
    double stray = 0;
    for (int n = 0; n < 3; n++) {
        oracle_model o = take_oracle(b);
        o.noise = 0x1p-23, o.noise_seed = 17 + (uint64_t)n;
        double *noisy = true_gradients(b, &o, smoothing);
        for (size_t k = 0; k < b->m->floats; k++)
            stray = fmax(stray, fabs(noisy[k] - truth[k]));
        free(noisy);
        oracle_model_free(&o);
    }
    return stray;
}

/* Within GRADIENT_ERROR and, where a model makes more of rounding errors, three times (F
   of judge.h) what it makes of those of a forward pass. */
static inline void compare_gradients(const bed *b, const double *truth, float smoothing,
                                     int number)
{
    double worst = 0, largest = 0;
    const char *where = "";
    for (int i = 0; i < b->m->param_count; i++) {
        const ph_weight *p = &b->m->params[i];
        for (size_t k = p->at; k < p->at + p->count; k++) {
            double error = fabs(truth[k] - (double)b->grads[k]);
            if (fabs(truth[k]) > largest) largest = fabs(truth[k]);
            if (error > worst) worst = error, where = p->name;
        }
    }
    double allowed = GRADIENT_ERROR * (1 + largest);
    if (worst >= allowed) allowed += 3 * stray_gradients(b, truth, (double)smoothing);
    CHECK(worst < allowed, "model %d: %s is off by %.2e, allowed %.2e of %.2e", number,
          where, worst, allowed, largest);
}

/* Loss and gradients without and with AMX tiles, which a CPU that has none computes in
   plain loops. One truth for both: the parameters and the batch are the same. */
static inline void check_gradients(const ph_config *c, float smoothing, int number)
{
    double *truth = NULL, loss = 0;
    for (bed_tiles = 0; bed_tiles < 2; bed_tiles++) {
        bed b;
        make_bed(&b, c, 2, 1);
        memset(b.grads, 77, b.m->floats * sizeof(float));
        if (!truth) {
            oracle_model o = take_oracle(&b);
            loss = oracle_of(&b, &o, (double)smoothing);
            truth = true_gradients(&b, &o, (double)smoothing);
            oracle_model_free(&o);
        }
        double found = run_bed(&b, smoothing);
        CHECK(fabs(found - loss) < LOSS_ERROR * (1 + fabs(loss)),
              "model %d: loss %.9g, expected %.9g", number, found, loss);
        compare_gradients(&b, truth, smoothing, number);
        free_bed(&b);
    }
    bed_tiles = 0;
    free(truth);
}

#endif
