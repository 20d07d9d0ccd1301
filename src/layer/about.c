/*
 * about.c - properties of a layer: parameters, sizes, caches, FLOPs.
 */
#include <string.h>

#include "layer/layer.h"

const ph_param *ph_layer_param(const ph_layer *layer, int i)
{
    return i >= 0 && i < layer->params ? &layer->param[i] : NULL;
}

int ph_layer_named(const ph_layer *layer)
{
    return layer->named;
}

ph_layer_caches ph_layer_cache(const ph_layer *layer)
{
    const ph_shape *s = &layer->shape;
    size_t tokens = (size_t)s->attn.batch * (size_t)s->attn.kv_len;
    if (!layer->desc.cache) return (ph_layer_caches){.extra = s->cache};
    return (ph_layer_caches){tokens * (size_t)ph_projection_row(&s->k),
                             tokens * (size_t)ph_projection_row(&s->v), s->cache};
}

/* ---- caches of beam search --------------------------------------------------------- */

/* A tensor whose batch rows are `count` spans of `length` floats. */
typedef struct cache_rows {
    float *x;
    int count;
    size_t length, step, row; /* stride of spans, of batch rows */
} cache_rows;

static void copy_row(const cache_rows *r, float *to, size_t to_step, const float *from,
                     size_t from_step)
{
    for (int i = 0; i < r->count; i++)
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step,
               r->length * sizeof *to);
}

/* Rows that are both read and overwritten are copied to scratch first. */
static void move_rows(int batch, const int *from, const cache_rows *r, float *scratch)
{
    size_t saved = (size_t)r->count * r->length;
    for (int b = 0; b < batch; b++)
        if (from[from[b]] != from[b])
            copy_row(r, scratch + (size_t)from[b] * saved, r->length,
                     r->x + (size_t)from[b] * r->row, r->step);
    for (int b = 0; b < batch; b++) {
        float *to = r->x + (size_t)b * r->row;
        if (from[b] == b) continue;
        if (from[from[b]] != from[b])
            copy_row(r, to, r->step, scratch + (size_t)from[b] * saved, r->length);
        else
            copy_row(r, to, r->step, r->x + (size_t)from[b] * r->row, r->step);
    }
}

/* Keys or values, head-major or token-major. */
static cache_rows rows_of(float *x, const ph_strides *s, const ph_projection *p,
                          int tokens)
{
    int apart = s->head > s->time;
    return (cache_rows){.x = x,
                        .count = apart ? p->heads : 1,
                        .length = (size_t)tokens * (size_t)s->time,
                        .step = (size_t)s->head,
                        .row = (size_t)s->batch};
}

static ph_status reorder(const ph_layer *layer, const int *from, int tokens,
                         float *k_cache, float *v_cache, float *extra_cache)
{
    const ph_shape *s = &layer->shape;
    ph_layer_caches size = ph_layer_cache(layer);
    int batch = s->attn.batch, len = s->attn.kv_len, grows = ph_desc_grows(&layer->desc);
    void *scratch;
    for (int b = 0; b < batch; b++)
        if (!from || from[b] < 0 || from[b] >= batch || tokens < 0 ||
            (grows && tokens > len))
            return ph_fail(layer->ctx, PH_BAD_ARGUMENT,
                           "from or tokens is out of range, expected %d rows and at most "
                           "%d tokens",
                           batch, len);
    size_t most = size.k > size.v ? size.k : size.v;
    if (size.extra > most) most = size.extra;
    PH_TRY(ph_ctx_scratch(layer->ctx, most * sizeof(float), &scratch));
    cache_rows k = rows_of(k_cache, &layer->k_cache, &s->k, tokens);
    cache_rows v = rows_of(v_cache, &layer->v_cache, &s->v, tokens);
    if (k_cache && size.k && grows) move_rows(batch, from, &k, scratch);
    if (v_cache && size.v && grows) move_rows(batch, from, &v, scratch);
    int moves = grows || !s->cache_part[0]; /* coefficients of memory's keys stay */
    for (int i = 0; extra_cache && moves && i < PH_CACHE_PARTS; i++) {
        size_t floats = s->cache_part[0] ? s->cache_part[i] : i ? 0 : size.extra;
        size_t row = floats / (size_t)batch;
        cache_rows r = {extra_cache, 1, row, 0, row};
        if (s->cache_part[0]) r.length = row / (size_t)len * (size_t)tokens;
        if (floats) move_rows(batch, from, &r, scratch);
        extra_cache += floats;
    }
    return PH_OK;
}

ph_status ph_layer_reorder(const ph_layer *layer, const int *from, int tokens,
                           float *k_cache, float *v_cache, float *extra_cache)
{
    if (!layer) return PH_BAD_ARGUMENT;
    return PH_WITHIN(layer->ctx,
                     reorder(layer, from, tokens, k_cache, v_cache, extra_cache));
}

/* ---- work -------------------------------------------------------------------------- */

/* Keys that query i sees, with all lengths at their capacity. */
static int64_t keys_seen(const ph_attn *a, int i)
{
    int64_t at = i, low = 0, high = a->kv_len - 1;
    if (a->anchor == PH_ANCHOR_OFFSET) at += a->q_offset;
    if (a->anchor == PH_ANCHOR_END) at += a->kv_len - a->q_len;
    int causal = a->mask == PH_MASK_CAUSAL, band = a->mask == PH_MASK_BAND;
    int64_t right = causal ? at : band && a->band_right >= 0 ? at + a->band_right : high;
    int64_t left = band && a->band_left >= 0 ? at - a->band_left : low;
    if (right < high) high = right;
    if (left > low) low = left;
    return high < low ? 0 : high - low + 1;
}

static double part_flops(const ph_projection *p, int rows)
{
    return 2.0 * rows * p->in * p->heads * p->dim;
}

/* Products with k and v, and the mixes of heads between them. */
static double attention_flops(const ph_layer *l)
{
    const ph_attn *a = &l->shape.attn;
    const ph_variant_needs *needs = &l->plan->needs;
    double pairs = 0, heads = a->q_heads, each = 2.0 * (a->qk_dim + a->v_dim) * heads;
    for (int i = 0; i < a->q_len; i++) pairs += (double)keys_seen(a, i);
    for (int place = 0; place < 2; place++)
        if (needs->mix[place])
            each += 2 * heads * heads + 2 * heads * (2 * needs->key_rank[place] + 1);
    return l->shape.active * pairs * a->batch * each;
}

ph_layer_info ph_layer_about(const ph_layer *layer)
{
    const ph_shape *s = &layer->shape;
    double q = part_flops(&s->q, layer->q_rows) * (s->sparse_q ? s->active : 1);
    double flops = attention_flops(layer) + s->flops + q +
                   part_flops(&s->k, layer->kv_rows) + part_flops(&s->v, layer->kv_rows);
    if (!layer->desc.concat) flops += part_flops(&layer->out, layer->q_rows);
    return (ph_layer_info){.attn = &s->attn,
                           .heads = s->out_heads,
                           .dim = s->out_dim,
                           .out_dim = layer->out_cols,
                           .gates = s->makes_gate,
                           .balances = s->routes,
                           .flops = flops};
}
