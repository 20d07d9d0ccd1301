/*
 * decoder.c - decoding with caches.
 *
 * Keys and values of the encoder's output are computed once: where cross-attention is
 * plain before the first token, else with the first token. Every row has the bits of a
 * pass over the whole text alone: rows depend neither on how a text is split into calls
 * nor on the texts beside it.
 */
#include <string.h>

#include "model/generate.h"

struct ph_decoder {
    ph_model *model;
    ph_kv_cache *kv;
    ph_pass *encoder; /* of an encoder-decoder */
    ph_pass *step;
    int32_t *last;  /* (texts) row of the last token fed to each */
    int32_t *rows;  /* (texts) that have logits */
    float *encoded; /* (texts, source_len, model_dim), until the caches have its keys;
                       NULL where all sites have them from the start */
};

static int is_encoder_decoder(const ph_model *m)
{
    return m->config.arch == PH_ARCH_ENCODER_DECODER;
}

static const ph_model_stack *stack_of(const ph_model *m)
{
    return &m->stacks[m->stack_count - 1];
}

/* ---- keys and values of the encoder's output --------------------------------------- */

/* Keys and values of one source, of `rows` tokens from row `first` of the encoder's
   output on, for one attention site. */
static ph_status fill_cache(const ph_decoder *d, const ph_sublayer *def, int text,
                            int first, int rows)
{
    const ph_model *m = d->model;
    const ph_cache *cache = &d->kv->sites[def->site];
    size_t sources = d->kv->shape.one_source ? 1 : (size_t)d->kv->shape.texts;
    size_t source = cache->bytes.k / sizeof(float) / sources;
    int in = m->config.model_dim, out = (int)(source / (size_t)d->kv->shape.source_len);
    const float *x = ph_pass_output(d->encoder) + (size_t)first * (size_t)in;
    ph_bound b;
    ph_model_bind(m, def, m->block, NULL, &b);
    float *k = (float *)cache->k + (size_t)text * source;
    float *v = (float *)cache->v + (size_t)text * source;
    ph_gemm list[2] = {ph_product(rows, in, out, x, b.wk, b.weights.bk, k),
                       ph_product(rows, in, out, x, b.wv, b.weights.bv, v)};
    list[1].same_a = 1;
    return ph_model_multiply(m, list, 2);
}

static ph_status fill_caches(const ph_decoder *d, int text, int first, int rows)
{
    const ph_model_stack *s = stack_of(d->model);
    for (int i = 0; rows && i < s->count; i++) {
        const ph_sublayer *def = &s->sublayers[i];
        if (def->kind == PH_SUBLAYER_CROSS && !d->kv->sites[def->site].reads_memory)
            PH_TRY(fill_cache(d, def, text, first, rows));
    }
    return PH_OK;
}

/* The encoder's output for every beam, where a layer computes keys from it. */
static ph_status copy_encoded(ph_decoder *d)
{
    size_t texts = (size_t)d->kv->shape.texts;
    size_t floats = (size_t)d->kv->shape.source_len * (size_t)d->model->config.model_dim;
    d->encoded = ph_ctx_alloc(d->model->ctx, texts * floats * sizeof *d->encoded);
    if (!d->encoded)
        return ph_fail(d->model->ctx, PH_OUT_OF_MEMORY, "no memory for caches");
    for (size_t b = 0; b < texts; b++)
        memcpy(d->encoded + b * floats, ph_pass_output(d->encoder),
               floats * sizeof *d->encoded);
    d->step->encoded = d->encoded;
    return PH_OK;
}

ph_status ph_decoder_read(ph_decoder *d, const ph_batch *batch)
{
    const int32_t *offsets = batch->source_offsets;
    const ph_decoder_shape *shape = &d->kv->shape;
    int sources = shape->one_source ? 1 : shape->texts;
    PH_TRY(ph_pass_forward(d->encoder, batch, 0));
    for (int b = 0; b < sources; b++) {
        int rows = offsets[b + 1] - offsets[b];
        PH_TRY(fill_caches(d, b, offsets[b], rows));
        if (rows) d->kv->source_lens[b] = rows;
    }
    for (int b = 1; shape->one_source && b < shape->texts; b++)
        d->kv->source_lens[b] = d->kv->source_lens[0];
    return ph_kv_reads_memory(d->model) ? copy_encoded(d) : PH_OK;
}

/* ---- making one -------------------------------------------------------------------- */

ph_status ph_decoder_check(const ph_model *m)
{
    if (m->config.arch == PH_ARCH_ENCODER)
        return ph_fail(m->ctx, PH_UNSUPPORTED, "an encoder generates no text");
    if (m->output < 0)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "the model has no output head (lm_head): it generates no text");
    return PH_OK;
}

static ph_status build(ph_decoder *d, const ph_decoder_shape *given)
{
    ph_model *m = d->model;
    int both = is_encoder_decoder(m);
    PH_TRY(ph_decoder_check(m));
    PH_TRY(ph_kv_create(&d->kv, m, given));
    const ph_decoder_shape *s = &d->kv->shape;
    d->last = ph_ctx_alloc(m->ctx, 2 * (size_t)s->texts * sizeof *d->last);
    if (!d->last) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a decoder");
    d->rows = d->last + s->texts;
    ph_pass_shape shape = {.batch = s->texts,
                           .source_len = both ? s->source_len : s->capacity,
                           .target_len = both ? s->capacity : 0,
                           .kv = d->kv};
    PH_TRY(ph_pass_create(&d->step, m, &shape));
    if (!both) return PH_OK;
    ph_pass_shape read = {.batch = s->one_source ? 1 : s->texts,
                          .source_len = s->source_len,
                          .encoder_only = 1};
    return ph_pass_create(&d->encoder, m, &read);
}

ph_status ph_decoder_create(ph_decoder **out, const ph_model *model,
                            const ph_decoder_shape *shape)
{
    ph_decoder *d = ph_ctx_alloc(model->ctx, sizeof *d);
    *out = NULL;
    if (!d) return ph_fail(model->ctx, PH_OUT_OF_MEMORY, "no memory for a decoder");
    *d = (ph_decoder){.model = (ph_model *)model};
    ph_status status = build(d, shape);
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
    ph_kv_free(d->kv);
    ph_ctx_release(ctx, d->encoded);
    ph_ctx_release(ctx, d->last);
    ph_ctx_release(ctx, d);
}

/* ---- running ----------------------------------------------------------------------- */

static const ph_pass_stack *step_stack(const ph_decoder *d)
{
    return &d->step->stacks[d->step->first_stack];
}

ph_status ph_decoder_feed(ph_decoder *d, const int32_t *tokens, const int32_t *offsets)
{
    ph_batch batch = {.source = tokens,
                      .source_offsets = offsets,
                      .target = tokens,
                      .target_offsets = offsets};
    PH_TRY(ph_kv_reserve(d->kv, offsets));
    PH_TRY(ph_pass_forward(d->step, &batch, 0));
    for (int b = 0; b < d->kv->shape.texts; b++) {
        d->kv->past[b] += offsets[b + 1] - offsets[b];
        d->last[b] = offsets[b + 1] - 1;
    }
    ph_ctx_release(d->model->ctx, d->encoded);
    d->step->encoded = d->encoded = NULL;
    return PH_OK;
}

ph_status ph_decoder_logits(ph_decoder *d, const int *texts, int count, float **logits)
{
    for (int i = 0; i < count; i++) d->rows[i] = d->last[texts[i]];
    *logits = d->step->logits;
    PH_TRY(ph_pass_logits_of(d->step, d->rows, count));
    return ph_model_check_output(d->model, "logits", *logits,
                                 (size_t)count * (size_t)d->model->config.vocab);
}

void ph_decoder_end(ph_decoder *d, int text)
{
    ph_kv_end(d->kv, text);
}

ph_status ph_decoder_reorder(ph_decoder *d, const int *from)
{
    const ph_model_stack *s = stack_of(d->model);
    for (int i = 0; i < s->count; i++) {
        const ph_layer *layer = step_stack(d)->acts[i].layer;
        if (!layer || d->kv->sites[s->sublayers[i].site].paged) continue;
        ph_layer_args args = {0};
        ph_cache_give(&d->kv->sites[s->sublayers[i].site], &args);
        PH_TRY(ph_layer_reorder(layer, &args, from, d->kv->past[0]));
    }
    ph_kv_reorder(d->kv, from);
    return PH_OK;
}

size_t ph_decoder_bytes(const ph_decoder *d)
{
    return ph_kv_bytes(d->kv);
}
