/*
 * prune_bed.h - small models of every kind, and texts to measure them on.
 */
#ifndef PRUNE_BED_H
#define PRUNE_BED_H

#include <math.h>

#include "check.h"
#include "guard.h"
#include "model_errors.h"
#include "prune/eval.h"

enum { WORDS = 8, TEXTS = 3, MODEL_DIM = 8 };

static const char *const words[WORDS] = {"a", "b", "c", "d", "e", "f", "g", "[MASK]"};
static const char *const texts[TEXTS] = {"a b c d e", "f g a", "c c b g d f"};
static const char *const targets[TEXTS] = {"b a d", "g", "a f c e"};
static const char *const classes[TEXTS] = {"1", "0", "2"};

/* What is measured on: each arch and kind of loss. */
static const ph_config kinds[] = {
    {.arch = PH_ARCH_DECODER, .positions = PH_POS_ROPE, .kv_heads = 2},
    {.arch = PH_ARCH_DECODER, .positions = PH_POS_ALIBI, .norm_place = PH_POST_NORM},
    {.arch = PH_ARCH_ENCODER_DECODER, .dropout = 0.2f},
    {.arch = PH_ARCH_ENCODER_DECODER, .positions = PH_POS_T5, .kv_heads = 1},
    {.arch = PH_ARCH_ENCODER, .masked = 1, .norm_place = PH_POST_NORM},
    {.arch = PH_ARCH_ENCODER, .pooling = PH_POOL_MEAN, .pooler = 1, .classes = 3}};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct bed {
    ph_ctx *ctx;
    ph_model *m;
    ph_eval *e;
} bed;

static inline ph_texts texts_of(const ph_config *c)
{
    ph_texts all = {.texts = texts, .count = TEXTS};
    if (c->arch == PH_ARCH_ENCODER_DECODER) all.pairs = targets;
    if (c->classes) all.pairs = classes;
    return all;
}

static inline void make_model(bed *b, ph_config c, int threads)
{
    ph_options options = guard_options(NULL, threads);
    uint64_t state = check_seed + 5;
    memset(b, 0, sizeof *b);
    CHECK(ph_open(&b->ctx, &options) == PH_OK, "ph_open failed");
    c.model_dim = MODEL_DIM, c.max_len = 8, c.ff_dim = 12;
    if (!c.heads) c.heads = 4;
    if (!c.layers) c.layers = 2;
    CHECK(ph_model_create(&b->m, b->ctx, &c, PH_SPLIT_WORDS, words, WORDS, 3) == PH_OK,
          "%s", ph_error(b->ctx));
    if (c.masked) b->m->marks.mask = PH_TOKEN_FIRST + WORDS - 1;
    for (size_t i = b->m->decayed; i < b->m->floats; i++)
        b->m->block[i] += (float)(check_uniform(&state) - 0.5) * 0.4f;
}

static inline void make_eval(bed *b)
{
    ph_texts all = texts_of(&b->m->config);
    CHECK(ph_eval_create(&b->e, b->m, &all, 0) == PH_OK, "%s", ph_error(b->ctx));
}

static inline void make_bed(bed *b, ph_config c, int threads)
{
    make_model(b, c, threads);
    make_eval(b);
}

static inline void free_bed(bed *b)
{
    ph_eval_free(b->e);
    ph_model_free(b->m);
    ph_close(b->ctx);
}

static inline int find_param(const ph_model *m, const char *site)
{
    char name[48];
    int i = 0;
    snprintf(name, sizeof name, "%s.wo", site);
    while (strcmp(m->params[i].name, name)) i++;
    return i;
}

/* Rows of W_O of a head: multiplying them is gating the head. */
static inline float *output_rows(const ph_model *m, int head, int *param, size_t *count)
{
    ph_head_place place;
    CHECK(ph_model_head(m, head, &place) == PH_OK, "no head %d", head);
    *param = find_param(m, place.site);
    *count = (size_t)(m->config.head_dim * MODEL_DIM);
    return m->block + m->params[*param].at + (size_t)place.head * *count;
}

#endif
