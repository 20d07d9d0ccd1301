/*
 * run_layer_chunks.c - layer mode of `polyhead run`, a causal forward pass over a long
 * text in chunks of rows against a k/v cache.
 *
 * The bits are those of one call over the whole text. One call holds q, k, v and the
 * heads of every token beside x and out; chunks hold k and v, and x only until it was
 * read.
 */
#include <string.h>

#include "commands/run_layer.h"

enum { CHUNK = 1024 }; /* rows of x: their scratch is small, their products are not */

typedef struct chunks {
    run_job *job;
    const run_layer_job *m;
    const ph_layer_weights *weights;
    const ph_layer_args *args; /* of the whole text */
    float *k_cache, *v_cache;  /* of one batch row */
    ph_layer_caches cache_size;
    float *lse; /* (heads, CHUNK) */
} chunks;

/* Queries see no key after them, and nothing else is given row by row. */
int run_chunks_apply(const run_job *job, const run_layer_job *m)
{
    const ph_attn *a = &m->common.attn;
    const ph_args *args = &m->common.args;
    int causal =
        a->mask == PH_MASK_CAUSAL || (a->mask == PH_MASK_BAND && a->band_right == 0);
    int by_row = args->bias || args->visible || args->q_lens || args->kv_lens ||
                 args->q_offsets || a->gate == PH_GATE_ROW || a->dropout > 0;
    int sized = m->model_dim && a->qk_dim && a->v_dim && m->out_dim;
    return m->plain && causal && sized && !by_row && !m->common.at_end && !m->memory &&
           !m->dout && !a->q_offset && !job->options->weights && !job->options->stats &&
           a->q_len > CHUNK;
}

static ph_status make_buffers(chunks *c, const ph_layer *layer)
{
    ph_layer_caches size = ph_layer_cache(layer);
    size_t heads = (size_t)c->m->common.attn.q_heads;
    if (c->k_cache) return PH_OK;
    c->k_cache = run_buffer(c->job, size.k, 1), c->cache_size = size;
    c->v_cache = run_buffer(c->job, size.v, 1);
    c->lse = run_buffer(c->job, heads * CHUNK, sizeof(float));
    return c->k_cache && c->v_cache && c->lse ? PH_OK : PH_OUT_OF_MEMORY;
}

/* Rows from `row` on of one batch row; `past` of them are cached. */
static ph_status run_rows(chunks *c, const ph_layer *layer, size_t row, int32_t past,
                          int rows)
{
    const ph_layer_desc *d = &c->m->desc;
    size_t size = ph_dtype_bytes(d->attn.dtype, 1), x_row = (size_t)d->model_dim * size;
    size_t out_row = (size_t)c->m->out_dim * size;
    ph_layer_args args = *c->args;
    const char *x = (const char *)args.x + row * x_row;
    args.x = x;
    args.out = (char *)args.out + row * out_row;
    args.attn.lse = c->lse;
    args.past = &past;
    args.k_cache = c->k_cache, args.k_cache_size = c->cache_size.k;
    args.v_cache = c->v_cache, args.v_cache_size = c->cache_size.v;
    ph_status status = ph_layer_forward(layer, c->weights, &args);
    if (status == PH_OK) run_discard(x, (size_t)rows * x_row);
    return status;
}

/* (heads, rows) into (heads, q_len) at `past` */
static void store_lse(const chunks *c, int batch_row, int past, int rows)
{
    const ph_attn *a = &c->m->common.attn;
    for (int h = 0; h < a->q_heads; h++)
        memcpy(c->args->attn.lse +
                   ((size_t)batch_row * (size_t)a->q_heads + (size_t)h) *
                       (size_t)a->q_len +
                   past,
               c->lse + (size_t)h * (size_t)rows, (size_t)rows * sizeof *c->lse);
}

static ph_status run_chunk(chunks *c, int batch_row, int past)
{
    ph_layer_desc d = c->m->desc;
    ph_layer *layer = NULL;
    int left = d.attn.q_len - past, rows = left < CHUNK ? left : CHUNK;
    size_t row = (size_t)batch_row * (size_t)d.attn.q_len + (size_t)past;
    d.cache = 1;
    d.attn.batch = 1;
    d.attn.q_len = rows;
    d.attn.anchor = PH_ANCHOR_END;
    ph_status status = ph_layer_create(&layer, c->job->ctx, &d);
    if (status == PH_OK) status = make_buffers(c, layer);
    if (status == PH_OK) status = run_rows(c, layer, row, past, rows);
    if (status == PH_OK) store_lse(c, batch_row, past, rows);
    ph_layer_free(layer);
    return status;
}

ph_status run_chunks(run_job *job, const run_layer_job *m,
                     const ph_layer_weights *weights, const ph_layer_args *args)
{
    chunks c = {.job = job, .m = m, .weights = weights, .args = args};
    ph_status status = PH_OK;
    for (int b = 0; b < m->common.attn.batch && status == PH_OK; b++)
        for (int past = 0; past < m->common.attn.q_len && status == PH_OK; past += CHUNK)
            status = run_chunk(&c, b, past);
    return status;
}
