/*
 * about.c - properties of a layer: parameters, sizes, caches, FLOPs.
 */
#include <string.h>

#include "layer/layer.h"

const ph_param *ph_layer_param(const ph_layer *layer, int i)
{
    return layer && i >= 0 && i < layer->params ? &layer->param[i] : NULL;
}

int ph_layer_named(const ph_layer *layer)
{
    return layer ? layer->named : 0;
}

ph_layer_caches ph_layer_cache(const ph_layer *layer)
{
    if (!layer) return (ph_layer_caches){0};
    const ph_shape *s = &layer->shape;
    size_t tokens = (size_t)ph_key_blocks(&s->attn) * (size_t)ph_key_block_len(&s->attn);
    ph_dtype type = ph_kv_type(&s->attn);
    ph_layer_caches bytes = {.extra = s->cache * sizeof(float)};
    if (!layer->desc.cache) return bytes;
    bytes.k = ph_dtype_bytes(type, tokens * (size_t)ph_projection_row(&s->k));
    bytes.v = ph_dtype_bytes(type, tokens * (size_t)ph_projection_row(&s->v));
    return bytes;
}

/* ---- caches of beam search --------------------------------------------------------- */

/* A tensor whose batch rows are `count` spans of `length` bytes. */
typedef struct cache_rows {
    char *x;
    int count;
    size_t length, step, row; /* stride of spans, of batch rows */
} cache_rows;

static void copy_row(const cache_rows *r, char *to, size_t to_step, const char *from,
                     size_t from_step)
{
    for (int i = 0; i < r->count; i++)
        memcpy(to + (size_t)i * to_step, from + (size_t)i * from_step, r->length);
}

/* Rows that are both read and overwritten are copied to scratch first. */
static void move_rows(int batch, const int *from, const cache_rows *r, char *scratch)
{
    size_t saved = (size_t)r->count * r->length;
    for (int b = 0; b < batch; b++)
        if (from[from[b]] != from[b])
            copy_row(r, scratch + (size_t)from[b] * saved, r->length,
                     r->x + (size_t)from[b] * r->row, r->step);
    for (int b = 0; b < batch; b++) {
        char *to = r->x + (size_t)b * r->row;
        if (from[b] == b) continue;
        if (from[from[b]] != from[b])
            copy_row(r, to, r->step, scratch + (size_t)from[b] * saved, r->length);
        else
            copy_row(r, to, r->step, r->x + (size_t)from[b] * r->row, r->step);
    }
}

/* Keys or values, head-major or token-major. */
static cache_rows rows_of(void *x, ph_dtype type, const ph_strides *s,
                          const ph_projection *p, int tokens)
{
    int apart = s->head > s->time;
    return (cache_rows){.x = x,
                        .count = apart ? p->heads : 1,
                        .length = (size_t)ph_offset(type, tokens * s->time),
                        .step = (size_t)ph_offset(type, s->head),
                        .row = (size_t)ph_offset(type, s->batch)};
}

/* The variant's own cache: all of it, or its parts token by token. */
static void reorder_extra(const ph_layer *layer, const int *from, int tokens,
                          float *extra, char *scratch)
{
    const ph_shape *s = &layer->shape;
    size_t batch = (size_t)s->attn.batch, len = (size_t)s->attn.kv_len;
    for (int i = 0; i < PH_CACHE_PARTS; i++) {
        size_t floats = s->cache_part[0] ? s->cache_part[i] : i ? 0 : s->cache;
        size_t row = floats / batch * sizeof *extra;
        cache_rows r = {(char *)extra, 1, row, 0, row};
        if (s->cache_part[0]) r.length = row / len * (size_t)tokens;
        if (floats) move_rows(s->attn.batch, from, &r, scratch);
        extra += floats;
    }
}

static ph_status check_reorder(const ph_layer *layer, const ph_layer_args *args,
                               const int *from, int tokens)
{
    int batch = layer->shape.attn.batch, len = layer->shape.attn.kv_len;
    int too_many = ph_desc_grows(&layer->desc) && tokens > len;
    if (!args || !from) return ph_ctx_null(layer->ctx, "args or from");
    if (layer->shape.attn.page_len)
        return ph_fail(layer->ctx, PH_UNSUPPORTED,
                       "the caches are in pages, expected rows of page_table to be "
                       "copied instead");
    for (int b = 0; b < batch; b++)
        if (!from || from[b] < 0 || from[b] >= batch || tokens < 0 || too_many)
            return ph_fail(layer->ctx, PH_BAD_ARGUMENT,
                           "from or tokens is out of range, expected %d rows and at most "
                           "%d tokens",
                           batch, len);
    return ph_layer_check_cache_sizes(layer, args);
}

static ph_status reorder(const ph_layer *layer, const ph_layer_args *args,
                         const int *from, int tokens)
{
    const ph_shape *s = &layer->shape;
    ph_layer_caches size = ph_layer_cache(layer);
    int batch = s->attn.batch, grows = ph_desc_grows(&layer->desc);
    void *scratch;
    PH_TRY(check_reorder(layer, args, from, tokens));
    size_t most = size.k > size.v ? size.k : size.v;
    if (size.extra > most) most = size.extra;
    PH_TRY(ph_ctx_scratch(layer->ctx, most, &scratch));
    ph_dtype type = ph_kv_type(&s->attn);
    cache_rows k = rows_of(args->k_cache, type, &layer->k_cache, &s->k, tokens);
    cache_rows v = rows_of(args->v_cache, type, &layer->v_cache, &s->v, tokens);
    if (k.x && size.k && grows) move_rows(batch, from, &k, scratch);
    if (v.x && size.v && grows) move_rows(batch, from, &v, scratch);
    int moves = grows || !s->cache_part[0]; /* coefficients of memory's keys stay */
    if (args->extra_cache && moves && batch)
        reorder_extra(layer, from, tokens, args->extra_cache, scratch);
    return PH_OK;
}

ph_status ph_layer_reorder(const ph_layer *layer, const ph_layer_args *args,
                           const int *from, int tokens)
{
    if (!layer) return PH_BAD_ARGUMENT;
    return PH_WITHIN(layer->ctx, reorder(layer, args, from, tokens));
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
    double sequences =
        (double)ph_attn_rows(a) / ph_max(a->q_len, 1); /* all the longest */
    for (int place = 0; place < 2; place++)
        if (needs->mix[place])
            each += 2 * heads * heads + 2 * heads * (2 * needs->key_rank[place] + 1);
    return l->shape.active * pairs * sequences * each;
}

ph_layer_info ph_layer_about(const ph_layer *layer)
{
    if (!layer) return (ph_layer_info){0};
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
