/*
 * model_bed.h - a small model with a pass and a batch of random numbers, for tests of
 * whole models.
 */
#ifndef MODEL_BED_H
#define MODEL_BED_H

#include "check.h"
#include "guard.h"
#include "kernels/kernels.h"
#include "model/pass.h"
#include "model_oracle.h"

enum { BATCH = 2, SOURCE = 5, TARGET = 6, VOCAB = 11 };

typedef struct bed {
    ph_ctx *ctx;
    ph_model *m;
    ph_pass *p;
    int32_t source[BATCH * SOURCE], target[BATCH * TARGET], labels[BATCH * TARGET];
    int32_t lens[BATCH], target_lens[BATCH];
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

static inline void set_batch(bed *b)
{
    uint64_t state = check_seed;
    int links = b->m->config.arch == PH_ARCH_ENCODER;
    int most = links ? b->m->config.heads : VOCAB;
    for (int i = 0; i < BATCH * SOURCE; i++)
        b->source[i] = (int32_t)(check_random(&state) % VOCAB);
    for (int i = 0; i < BATCH * TARGET; i++) {
        b->target[i] = (int32_t)(check_random(&state) % VOCAB);
        b->labels[i] = (int32_t)(check_random(&state) % (uint64_t)most);
        if (links) b->labels[i] = b->labels[i] * SOURCE + (int32_t)(i % 3);
        if (i % 4 == 3) b->labels[i] = -1;
    }
    b->lens[0] = SOURCE, b->lens[1] = 3;
    b->target_lens[0] = TARGET - 1, b->target_lens[1] = TARGET;
    b->batch = (ph_batch){b->source, b->lens, b->target, b->target_lens, b->labels};
    if (b->m->config.arch == PH_ARCH_DECODER) b->batch.source_lens = NULL;
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
    CHECK(ph_pass_forward(b->p, &b->batch, 7) == PH_OK, "%s", ph_error(b->ctx));
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
                        b->batch.source_lens,
                        b->target,
                        b->batch.target_lens,
                        b->labels};
    double loss = oracle_model_loss(o, &all, smoothing, NULL);
    return loss + b->p->balance * o->balance;
}

#endif
