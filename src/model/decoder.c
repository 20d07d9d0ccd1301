/*
 * decoder.c - decoding with caches.
 *
 * Keys and values of self-attention are kept by the layers' caches; those of the
 * encoder's output are made once. Every row gets the bits it gets in a pass over the
 * whole text, since rows do not depend on how a text is cut.
 */
#include <string.h>

#include "model/generate.h"

struct ph_decoder {
    ph_model *model;
    int beams, source_len;
    ph_pass *encoder; /* of an encoder-decoder */
    ph_pass *step;    /* one token for each text */
    ph_cache *caches; /* (sites) */
    float *spare;     /* as large as the largest cache, for reordering */
    int32_t *past;    /* (beams) tokens so far */
    void *memory;
};

static int is_both(const ph_model *m)
{
    return m->config.arch == PH_ARCH_BOTH;
}

static const ph_stack *stack_of(const ph_model *m)
{
    return &m->stacks[m->stack_count - 1];
}

/* ---- keys and values of the encoder's output --------------------------------------- */

static ph_gemm product(const ph_decoder *d, const float *w, const float *b, float *y)
{
    const ph_config *c = &d->model->config;
    ph_gemm g = {.m = d->encoder->sides[0].rows, .n = c->kv_heads * c->head_dim};
    g.k = c->model_dim,
    g.a = d->encoder->sides[0].acts[d->model->stacks[0].count - 1].join.n;
    g.a_row = g.k, g.a_col = 1, g.b = w, g.b_row = g.n, g.b_col = 1;
    g.c = y, g.c_row = g.n, g.bias = b;
    return g;
}

static ph_status read_source(ph_decoder *d, const int32_t *source)
{
    ph_batch batch = {.source = source};
    const ph_stack *s = stack_of(d->model);
    PH_TRY(ph_pass_forward(d->encoder, &batch, 0));
    for (int i = 0; i < s->count; i++) {
        ph_bound b;
        if (s->subs[i].kind != PH_SUB_CROSS) continue;
        const ph_cache *cache = &d->caches[s->subs[i].site];
        ph_model_bind(d->model, &s->subs[i], d->model->block, NULL, &b);
        ph_gemm list[2] = {product(d, b.weights.wk, b.weights.bk, cache->k),
                           product(d, b.weights.wv, b.weights.bv, cache->v)};
        list[1].same_a = 1;
        PH_TRY(ph_model_multiply(d->model->ctx, list, 2));
    }
    return PH_OK;
}

/* ---- making one -------------------------------------------------------------------- */

/* Sizes of the caches of a sublayer. */
static ph_layer_caches sizes_of(const ph_decoder *d, int sub)
{
    const ph_config *c = &d->model->config;
    const ph_act *act = &d->step->sides[d->step->first_side].acts[sub];
    size_t wide = (size_t)d->source_len * (size_t)c->kv_heads * (size_t)c->head_dim;
    if (act->plan) return (ph_layer_caches){.k = wide, .v = wide};
    return ph_layer_cache(act->layer);
}

static size_t largest(ph_layer_caches c)
{
    size_t kv = c.k > c.v ? c.k : c.v;
    return kv > c.extra ? kv : c.extra;
}

static void lay(ph_decoder *d, ph_arena *arena)
{
    const ph_model *m = d->model;
    const ph_stack *s = stack_of(m);
    size_t most = 0;
    d->past = ph_arena_take(arena, (size_t)d->beams * sizeof *d->past);
    d->caches = ph_arena_take(arena, (size_t)m->site_count * sizeof *d->caches);
    for (int i = 0; i < s->count; i++) {
        if (s->subs[i].kind == PH_SUB_FEED) continue;
        ph_layer_caches size = sizes_of(d, i);
        ph_cache cache = {.k = size.k ? ph_arena_floats(arena, size.k) : NULL,
                          .v = size.v ? ph_arena_floats(arena, size.v) : NULL,
                          .extra =
                              size.extra ? ph_arena_floats(arena, size.extra) : NULL};
        if (arena->base) d->caches[s->subs[i].site] = cache;
        if (largest(size) > most) most = largest(size);
    }
    d->spare = ph_arena_floats(arena, most);
}

static ph_status make_pass(const ph_decoder *d, int count, ph_pass **out)
{
    int both = is_both(d->model);
    ph_pass_shape shape = {.batch = d->beams,
                           .source_len = both ? d->source_len : count,
                           .target_len = both ? count : 0,
                           .capacity = d->model->config.max_len};
    PH_TRY(ph_pass_create(out, d->model, &shape));
    (*out)->caches = d->caches, (*out)->past = d->past;
    return PH_OK;
}

static ph_status build(ph_decoder *d, const int32_t *source)
{
    ph_model *m = d->model;
    ph_arena count = {0};
    if (m->output < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "an encoder generates no text");
    PH_TRY(make_pass(d, 1, &d->step));
    lay(d, &count);
    d->memory = ph_ctx_alloc(m->ctx, count.used);
    if (!d->memory) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for caches");
    memset(d->memory, 0, count.used);
    ph_arena arena = {.base = d->memory};
    lay(d, &arena);
    d->step->caches = d->caches, d->step->past = d->past;
    if (!is_both(m)) return PH_OK;
    ph_pass_shape shape = {.batch = 1, .source_len = d->source_len, .encoder_only = 1};
    PH_TRY(ph_pass_create(&d->encoder, m, &shape));
    return read_source(d, source);
}

ph_status ph_decoder_create(ph_decoder **out, const ph_model *model, int beams,
                            const int32_t *source, int source_len)
{
    ph_decoder *d = ph_ctx_alloc(model->ctx, sizeof *d);
    *out = NULL;
    if (!d) return ph_fail(model->ctx, PH_OUT_OF_MEMORY, "no memory for a decoder");
    *d = (ph_decoder){
        .model = (ph_model *)model, .beams = beams, .source_len = source_len};
    ph_status status = build(d, source);
    if (status == PH_OK)
        *out = d;
    else
        ph_decoder_free(d);
    return status;
}

void ph_decoder_free(ph_decoder *d)
{
    if (!d) return;
    ph_ctx *ctx = d->model->ctx;
    ph_pass_free(d->step);
    ph_pass_free(d->encoder);
    ph_ctx_release(ctx, d->memory);
    ph_ctx_release(ctx, d);
}

/* ---- running ----------------------------------------------------------------------- */

ph_status ph_decoder_feed(ph_decoder *d, const int32_t *tokens, int count,
                          const float **logits)
{
    ph_pass *pass = d->step;
    size_t vocab = (size_t)d->model->config.vocab;
    ph_batch batch = {.source = tokens, .target = tokens};
    if (d->past[0] + count > d->model->config.max_len)
        return ph_fail(d->model->ctx, PH_BAD_SHAPE,
                       "the text reaches %d tokens, expected at most %d (max_len)",
                       d->past[0] + count, d->model->config.max_len);
    if (count != 1) PH_TRY(make_pass(d, count, &pass));
    ph_status status = ph_pass_forward(pass, &batch, 0);
    if (status == PH_OK) status = ph_pass_logits(pass);
    for (int b = 0; status == PH_OK && b < d->beams; b++) {
        size_t last = ((size_t)b * (size_t)count + (size_t)count - 1) * vocab;
        if (count > 1)
            memcpy(d->step->logits + (size_t)b * vocab, pass->logits + last,
                   vocab * sizeof(float));
        d->past[b] += count;
    }
    if (count != 1) ph_pass_free(pass);
    *logits = d->step->logits;
    return status;
}

static void reorder(ph_decoder *d, float *cache, size_t floats, const int *from)
{
    size_t one = floats / (size_t)d->beams * sizeof(float);
    if (!floats) return;
    memcpy(d->spare, cache, floats * sizeof(float));
    for (int b = 0; b < d->beams; b++)
        memcpy((char *)cache + (size_t)b * one, (char *)d->spare + (size_t)from[b] * one,
               one);
}

void ph_decoder_reorder(ph_decoder *d, const int *from)
{
    const ph_stack *s = stack_of(d->model);
    for (int i = 0; i < s->count; i++) {
        if (s->subs[i].kind != PH_SUB_SELF) continue;
        const ph_cache *cache = &d->caches[s->subs[i].site];
        ph_layer_caches size = sizes_of(d, i);
        reorder(d, cache->k, size.k, from);
        reorder(d, cache->v, size.v, from);
        reorder(d, cache->extra, size.extra, from);
    }
}

ph_status ph_generate_greedy(const ph_model *m, const int32_t *source, int source_len,
                             int32_t *out, int room, int *count)
{
    ph_decoder *d;
    const float *logits = NULL;
    int32_t token = PH_TOKEN_START;
    *count = 0;
    PH_TRY(ph_decoder_create(&d, m, 1, source, source_len));
    ph_status status = PH_OK;
    while (*count < room && status == PH_OK) {
        status = ph_decoder_feed(d, &token, 1, &logits);
        if (status != PH_OK) break;
        token = 0;
        for (int v = 1; v < m->config.vocab; v++)
            if (logits[v] > logits[token]) token = v;
        if (token == PH_TOKEN_END) break;
        out[(*count)++] = token;
    }
    ph_decoder_free(d);
    return status;
}
