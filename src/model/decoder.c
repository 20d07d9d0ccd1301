/*
 * decoder.c - decoding with caches.
 *
 * The layers' caches hold keys and values of self-attention, and those of the encoder's
 * output, which are computed once: where cross-attention is plain before the first token,
 * for all texts together, else with the first token. Every row has the bits of a pass
 * over the whole text: rows do not depend on how a text is split into calls.
 */
#include <string.h>

#include "model/generate.h"

struct ph_decoder {
    ph_model *model;
    int beams, source_len, capacity;
    ph_pass *encoder; /* of an encoder-decoder */
    ph_pass *step;    /* one token for each text */
    ph_cache *caches; /* (sites) */
    float *encoded;   /* (beams, source_len, model_dim), until the caches have its keys;
                         NULL where all sites have them from the start */
    int32_t *past;    /* (beams) tokens so far */
    void *memory;
};

static int is_encoder_decoder(const ph_model *m)
{
    return m->config.arch == PH_ARCH_ENCODER_DECODER;
}

static const ph_model_stack *stack_of(const ph_model *m)
{
    return &m->stacks[m->stack_count - 1];
}

static const ph_act *act_of(const ph_decoder *d, int sublayer)
{
    return &d->step->stacks[d->step->first_stack].acts[sublayer];
}

/* ---- keys and values of the encoder's output --------------------------------------- */

/* Columns of a token's keys, or values. */
static int keys_width(const ph_act *act)
{
    const ph_attn *a = &act->plan->attn;
    return a->k_heads * a->qk_dim;
}

/* Keys and values of the encoder's output for one attention site. */
static ph_status fill_cache(const ph_decoder *d, int sublayer)
{
    const ph_model *m = d->model;
    const ph_sublayer *def = &stack_of(m)->sublayers[sublayer];
    const ph_cache *cache = &d->caches[def->site];
    const float *x = ph_pass_output(d->encoder);
    int rows = d->source_len, in = m->config.model_dim,
        out = keys_width(act_of(d, sublayer));
    ph_bound b;
    ph_model_bind(m, def, m->block, NULL, &b);
    ph_gemm list[2] = {
        ph_product(rows, in, out, x, b.wk, b.weights.bk, cache->k),
        ph_product(rows, in, out, x, b.wv, b.weights.bv, cache->v)};
    list[1].same_a = 1;
    return ph_model_multiply(m, list, 2);
}

static ph_status read_source(ph_decoder *d, const int32_t *source)
{
    ph_batch batch = {.source = source};
    size_t floats = (size_t)d->source_len * (size_t)d->model->config.model_dim;
    PH_TRY(ph_pass_forward(d->encoder, &batch, 0));
    for (int b = 0; d->encoded && b < d->beams; b++)
        memcpy(d->encoded + (size_t)b * floats, ph_pass_output(d->encoder),
               floats * sizeof(float));
    for (int i = 0; i < stack_of(d->model)->count; i++)
        if (act_of(d, i)->plan) PH_TRY(fill_cache(d, i));
    return PH_OK;
}

/* ---- making one -------------------------------------------------------------------- */

/* Sizes of the caches of a sublayer. */
static ph_layer_caches sizes_of(const ph_decoder *d, int sublayer)
{
    const ph_act *act = act_of(d, sublayer);
    if (!act->plan) return ph_layer_cache(act->layer);
    size_t bytes = (size_t)d->source_len * (size_t)keys_width(act) * sizeof(float);
    return (ph_layer_caches){.k = bytes, .v = bytes};
}

static void layout(ph_decoder *d, ph_arena *arena)
{
    const ph_model *m = d->model;
    const ph_model_stack *s = stack_of(m);
    size_t rows = (size_t)d->beams * (size_t)d->source_len;
    int reads = 0; /* the encoder's output itself */
    d->past = ph_arena_take(arena, (size_t)d->beams * sizeof *d->past);
    d->caches = ph_arena_take(arena, (size_t)m->site_count * sizeof *d->caches);
    for (int i = 0; i < s->count; i++) {
        if (s->sublayers[i].kind == PH_SUBLAYER_FEED) continue;
        ph_layer_caches size = sizes_of(d, i);
        ph_cache cache = {.k = size.k ? ph_arena_take(arena, size.k) : NULL,
                          .v = size.v ? ph_arena_take(arena, size.v) : NULL,
                          .extra = size.extra ? ph_arena_take(arena, size.extra) : NULL,
                          .bytes = size};
        if (arena->base) d->caches[s->sublayers[i].site] = cache;
        reads |= s->sublayers[i].kind == PH_SUBLAYER_CROSS && !act_of(d, i)->plan;
    }
    d->encoded =
        reads ? ph_arena_floats(arena, rows * (size_t)m->config.model_dim) : NULL;
}

static ph_status make_pass(const ph_decoder *d, int count, ph_pass **out)
{
    int both = is_encoder_decoder(d->model);
    ph_pass_shape shape = {.batch = d->beams,
                           .source_len = both ? d->source_len : count,
                           .target_len = both ? count : 0,
                           .capacity = d->capacity,
                           .last_logits = 1};
    PH_TRY(ph_pass_create(out, d->model, &shape));
    (*out)->caches = d->caches, (*out)->past = d->past, (*out)->encoded = d->encoded;
    return PH_OK;
}

static ph_status build(ph_decoder *d, const int32_t *source)
{
    ph_model *m = d->model;
    ph_arena count = {0};
    if (m->output < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "an encoder generates no text");
    PH_TRY(make_pass(d, 1, &d->step));
    layout(d, &count);
    d->memory = ph_ctx_alloc(m->ctx, count.used);
    if (!d->memory) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for caches");
    memset(d->memory, 0, count.used);
    ph_arena arena = ph_arena_of(d->memory, count.used);
    layout(d, &arena);
    d->step->caches = d->caches, d->step->past = d->past;
    d->step->encoded = d->encoded;
    if (!is_encoder_decoder(m)) return PH_OK;
    ph_pass_shape shape = {.batch = 1, .source_len = d->source_len, .encoder_only = 1};
    PH_TRY(ph_pass_create(&d->encoder, m, &shape));
    return read_source(d, source);
}

ph_status ph_decoder_create(ph_decoder **out, const ph_model *model, int beams,
                            int capacity, const int32_t *source, int source_len)
{
    ph_decoder *d = ph_ctx_alloc(model->ctx, sizeof *d);
    *out = NULL;
    if (!d) return ph_fail(model->ctx, PH_OUT_OF_MEMORY, "no memory for a decoder");
    *d = (ph_decoder){
        .model = (ph_model *)model, .beams = beams, .source_len = source_len};
    d->capacity = capacity ? capacity : model->config.max_len;
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
    if (d->past[0] + count > d->capacity)
        return ph_fail(d->model->ctx, PH_BAD_SHAPE,
                       "the text reaches %d tokens, expected at most %d",
                       d->past[0] + count, d->capacity);
    if (count != 1) PH_TRY(make_pass(d, count, &pass));
    ph_status status = ph_pass_forward(pass, &batch, 0);
    if (status == PH_OK) status = ph_pass_logits(pass);
    if (status == PH_OK && count > 1)
        memcpy(d->step->logits, pass->logits, (size_t)d->beams * vocab * sizeof(float));
    for (int b = 0; status == PH_OK && b < d->beams; b++) d->past[b] += count;
    if (count != 1) ph_pass_free(pass);
    if (status == PH_OK) d->step->encoded = d->encoded = NULL;
    *logits = d->step->logits;
    return status;
}

ph_status ph_decoder_reorder(ph_decoder *d, const int *from)
{
    const ph_model_stack *s = stack_of(d->model);
    for (int i = 0; i < s->count; i++) {
        const ph_layer *layer = act_of(d, i)->layer;
        if (!layer) continue; /* feed-forward, or one encoder's keys for all texts */
        ph_layer_args args = {0};
        ph_cache_give(&d->caches[s->sublayers[i].site], &args);
        PH_TRY(ph_layer_reorder(layer, &args, from, d->past[0]));
    }
    return PH_OK;
}
