/*
 * kv_cache.c - see kv_cache.h.
 */
#include "model/kv_cache.h"

#include <string.h>

#include "base/size.h"

static const ph_model_stack *stack_of(const ph_kv_cache *kv)
{
    return &kv->model->stacks[kv->model->stack_count - 1];
}

/* ---- layers ------------------------------------------------------------------------ */

int ph_kv_is_plain_cross(const ph_sublayer *sublayer, const ph_layer_desc *desc)
{
    return sublayer->kind == PH_SUBLAYER_CROSS && !strcmp(desc->attn.variant, "mha");
}

int ph_kv_reads_memory(const ph_model *m)
{
    const ph_model_stack *s = &m->stacks[m->stack_count - 1];
    int reads = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->sublayers[i].kind != PH_SUBLAYER_CROSS) continue;
        ph_layer_desc d = ph_model_layer(m, s, &s->sublayers[i], 1, 1, 1);
        reads |= !ph_kv_is_plain_cross(&s->sublayers[i], &d);
    }
    return reads;
}

ph_layer_desc ph_kv_layer(const ph_kv_cache *kv, const ph_sublayer *sublayer, int rows,
                          int longest)
{
    int cross = sublayer->kind == PH_SUBLAYER_CROSS;
    int keys = cross ? kv->shape.source_len : kv->shape.capacity;
    ph_layer_desc d =
        ph_model_layer(kv->model, stack_of(kv), sublayer, kv->shape.texts, longest, keys);
    d.attn.dropout = 0;
    d.cache = 1;
    if (cross && !ph_kv_is_plain_cross(sublayer, &d)) return d;
    d.attn.ragged = PH_RAGGED_QUERIES, d.attn.q_total = rows;
    if (!cross && kv->sites[sublayer->site].paged) {
        d.attn.page_len = kv->page_len, d.attn.pages = kv->pages;
        d.attn.kv_dtype = kv->shape.kv_dtype;
    }
    return d;
}

/* ---- sites ------------------------------------------------------------------------- */

static ph_status take(const ph_kv_cache *kv, size_t bytes, void *to)
{
    void *memory = bytes ? ph_ctx_alloc(kv->model->ctx, bytes) : NULL;
    if (bytes && !memory)
        return ph_fail(kv->model->ctx, PH_OUT_OF_MEMORY,
                       "no memory for caches (%zu bytes)", bytes);
    if (bytes) memset(memory, 0, bytes);
    memcpy(to, &memory, sizeof memory);
    return PH_OK;
}

static ph_status refuse_type(const ph_kv_cache *kv, const ph_sublayer *sublayer)
{
    if (!kv->shape.kv_dtype) return PH_OK;
    return ph_fail(kv->model->ctx, PH_UNSUPPORTED,
                   "kv_dtype is %s, but variant %s caches other tensors than keys and "
                   "values, expected F32",
                   ph_dtype_name(kv->shape.kv_dtype), sublayer->variant);
}

/* Plain cross-attention: keys and values of each source, token by token. */
static ph_status add_source(const ph_kv_cache *kv, const ph_layer_desc *d, ph_cache *c)
{
    int heads = d->attn.k_heads ? d->attn.k_heads : d->attn.q_heads;
    size_t sources = kv->shape.one_source ? 1 : (size_t)kv->shape.texts;
    size_t floats = sources * (size_t)kv->shape.source_len;
    c->bytes.k = c->bytes.v =
        floats * (size_t)heads * (size_t)d->attn.qk_dim * sizeof(float);
    PH_TRY(take(kv, c->bytes.k, &c->k));
    return take(kv, c->bytes.v, &c->v);
}

/* A layer tells what it caches: k and v of a token, which may lie in pages, or tensors of
   its own. */
static ph_status add_layer(const ph_kv_cache *kv, const ph_sublayer *sublayer,
                           const ph_layer_desc *d, ph_cache *c)
{
    ph_layer *layer;
    PH_TRY(ph_layer_create(&layer, kv->model->ctx, d));
    ph_layer_caches bytes = ph_layer_cache(layer);
    c->paged = !d->memory_dim && layer->takes_pages;
    size_t tokens = (size_t)d->attn.batch * (size_t)d->attn.kv_len;
    ph_layer_free(layer);
    if (c->paged) {
        size_t k = bytes.k / tokens / sizeof(float), v = bytes.v / tokens / sizeof(float);
        c->k_page = ph_dtype_bytes(kv->shape.kv_dtype, (size_t)kv->page_len * k);
        c->v_page = ph_dtype_bytes(kv->shape.kv_dtype, (size_t)kv->page_len * v);
        return PH_OK;
    }
    if (!d->memory_dim) PH_TRY(refuse_type(kv, sublayer));
    c->reads_memory = d->memory_dim > 0;
    c->bytes = bytes;
    PH_TRY(take(kv, bytes.k, &c->k));
    PH_TRY(take(kv, bytes.v, &c->v));
    return take(kv, bytes.extra, &c->extra);
}

static ph_status add_sites(ph_kv_cache *kv)
{
    const ph_model_stack *s = stack_of(kv);
    for (int i = 0; i < s->count; i++) {
        const ph_sublayer *sublayer = &s->sublayers[i];
        if (sublayer->site < 0) continue;
        ph_cache *c = &kv->sites[sublayer->site];
        ph_layer_desc d = ph_kv_layer(kv, sublayer, kv->shape.texts, 1);
        PH_TRY(ph_kv_is_plain_cross(sublayer, &d) ? add_source(kv, &d, c)
                                                  : add_layer(kv, sublayer, &d, c));
    }
    return PH_OK;
}

/* ---- making one -------------------------------------------------------------------- */

static void layout(ph_kv_cache *kv, ph_arena *arena)
{
    size_t texts = (size_t)kv->shape.texts, all = texts * (size_t)kv->table_len;
    kv->sites = ph_arena_take(arena, (size_t)kv->model->site_count * sizeof *kv->sites);
    kv->past = ph_arena_take(arena, texts * sizeof *kv->past);
    kv->source_lens = ph_arena_take(arena, texts * sizeof *kv->source_lens);
    kv->table = ph_arena_take(arena, all * sizeof *kv->table);
    kv->held = ph_arena_take(arena, texts * sizeof *kv->held);
    kv->holders = ph_arena_take(arena, all * sizeof *kv->holders);
    kv->old_table = ph_arena_take(arena, all * sizeof *kv->old_table);
    kv->old_held = ph_arena_take(arena, texts * sizeof *kv->old_held);
    kv->old_past = ph_arena_take(arena, texts * sizeof *kv->old_past);
}

static ph_status build(ph_kv_cache *kv)
{
    ph_arena count = {0};
    size_t tokens;
    if (ph_size_mul((size_t)kv->shape.texts, (size_t)kv->shape.capacity, &tokens) ||
        tokens > INT32_MAX)
        return ph_fail(kv->model->ctx, PH_OUT_OF_MEMORY,
                       "%d texts of %d tokens are too many", kv->shape.texts,
                       kv->shape.capacity);
    kv->page_len = ph_min(PH_PAGE_TOKENS, ph_round_up(kv->shape.capacity, 16));
    kv->table_len = ph_div_up(kv->shape.capacity, kv->page_len);
    layout(kv, &count);
    PH_TRY(take(kv, count.used, &kv->memory));
    ph_arena arena = ph_arena_of(kv->memory, count.used);
    layout(kv, &arena);
    return add_sites(kv);
}

ph_status ph_kv_create(ph_kv_cache **out, ph_model *model, const ph_decoder_shape *shape)
{
    ph_kv_cache *kv = ph_ctx_alloc(model->ctx, sizeof *kv);
    *out = NULL;
    if (!kv) return ph_fail(model->ctx, PH_OUT_OF_MEMORY, "no memory for caches");
    *kv = (ph_kv_cache){.model = model, .shape = *shape};
    if (!kv->shape.capacity) kv->shape.capacity = model->config.max_len;
    ph_status status = build(kv);
    if (status == PH_OK)
        *out = kv;
    else
        ph_kv_free(kv);
    return status;
}

void ph_kv_free(ph_kv_cache *kv)
{
    if (!kv) return;
    ph_ctx *ctx = kv->model->ctx;
    for (int i = 0; kv->memory && i < kv->model->site_count; i++) {
        ph_ctx_release(ctx, kv->sites[i].k);
        ph_ctx_release(ctx, kv->sites[i].v);
        ph_ctx_release(ctx, kv->sites[i].extra);
    }
    ph_ctx_release(ctx, kv->memory);
    ph_ctx_release(ctx, kv);
}

size_t ph_kv_bytes(const ph_kv_cache *kv)
{
    size_t sum = 0;
    for (int i = 0; i < kv->model->site_count; i++) {
        const ph_layer_caches *b = &kv->sites[i].bytes;
        sum += b->k + b->v + b->extra;
    }
    return sum;
}

/* ---- pages ------------------------------------------------------------------------- */

static ph_status grow_tensor(const ph_kv_cache *kv, void **x, size_t *bytes,
                             size_t wanted)
{
    void *larger = NULL;
    PH_TRY(take(kv, wanted, &larger));
    if (*bytes) memcpy(larger, *x, *bytes);
    ph_ctx_release(kv->model->ctx, *x);
    *x = larger, *bytes = wanted;
    return PH_OK;
}

/* At least `pages` of them; twice as many as before, so that copies cost little. */
static ph_status grow(ph_kv_cache *kv, int pages)
{
    int most = kv->shape.texts * kv->table_len;
    pages = ph_min(ph_max(pages, 2 * kv->pages), most);
    for (int i = 0; i < kv->model->site_count; i++) {
        ph_cache *c = &kv->sites[i];
        size_t k, v;
        if (!c->paged) continue;
        if (ph_size_mul(c->k_page, (size_t)pages, &k) ||
            ph_size_mul(c->v_page, (size_t)pages, &v))
            return ph_fail(kv->model->ctx, PH_OUT_OF_MEMORY, "the caches are too large");
        PH_TRY(grow_tensor(kv, &c->k, &c->bytes.k, k));
        PH_TRY(grow_tensor(kv, &c->v, &c->bytes.v, v));
    }
    kv->pages = pages;
    return PH_OK;
}

static int32_t *pages_of(const ph_kv_cache *kv, int text)
{
    return kv->table + (size_t)text * (size_t)kv->table_len;
}

/* The page that the next token goes to belongs to other texts too: they have part of it
   in common. */
static int is_shared(const ph_kv_cache *kv, int text)
{
    int past = kv->past[text], page = past / kv->page_len;
    return past % kv->page_len && kv->holders[pages_of(kv, text)[page]] > 1;
}

static int missing_pages(const ph_kv_cache *kv, int text, int count)
{
    int needed = ph_div_up(kv->past[text] + count, kv->page_len);
    if (!count) return 0;
    return ph_max(needed - kv->held[text], 0) + is_shared(kv, text);
}

static int unused_pages(const ph_kv_cache *kv)
{
    int unused = 0;
    for (int p = 0; p < kv->pages; p++) unused += kv->holders[p] == 0;
    return unused;
}

static int take_page(const ph_kv_cache *kv)
{
    int page = 0;
    while (kv->holders[page]) page++;
    kv->holders[page] = 1;
    return page;
}

static void copy_page(const ph_kv_cache *kv, int from, int to)
{
    for (int i = 0; i < kv->model->site_count; i++) {
        const ph_cache *c = &kv->sites[i];
        char *k = c->k, *v = c->v;
        if (!c->paged) continue;
        memcpy(k + (size_t)to * c->k_page, k + (size_t)from * c->k_page, c->k_page);
        memcpy(v + (size_t)to * c->v_page, v + (size_t)from * c->v_page, c->v_page);
    }
}

static void take_pages(const ph_kv_cache *kv, int text, int count)
{
    int32_t *pages = pages_of(kv, text);
    int needed = ph_div_up(kv->past[text] + count, kv->page_len);
    if (count && is_shared(kv, text)) {
        int32_t *last = &pages[kv->past[text] / kv->page_len];
        int own = take_page(kv);
        copy_page(kv, *last, own);
        kv->holders[*last]--;
        *last = own;
    }
    while (count && kv->held[text] < needed) pages[kv->held[text]++] = take_page(kv);
}

ph_status ph_kv_reserve(ph_kv_cache *kv, const int32_t *offsets)
{
    int missing = 0, paged = 0;
    for (int b = 0; b < kv->shape.texts; b++) {
        int count = offsets[b + 1] - offsets[b];
        if (count > kv->shape.capacity - kv->past[b])
            return ph_fail(kv->model->ctx, PH_BAD_SHAPE,
                           "the text reaches %d tokens, expected at most %d",
                           kv->past[b] + count, kv->shape.capacity);
        missing += missing_pages(kv, b, count);
    }
    for (int i = 0; i < kv->model->site_count; i++) paged |= kv->sites[i].paged;
    if (!paged) return PH_OK;
    int unused = unused_pages(kv);
    if (unused < missing) PH_TRY(grow(kv, kv->pages + missing - unused));
    for (int b = 0; b < kv->shape.texts; b++)
        take_pages(kv, b, offsets[b + 1] - offsets[b]);
    return PH_OK;
}

void ph_kv_end(ph_kv_cache *kv, int text)
{
    const int32_t *pages = pages_of(kv, text);
    for (int i = 0; i < kv->held[text]; i++) kv->holders[pages[i]]--;
    kv->held[text] = kv->past[text] = 0;
}

void ph_kv_reorder(ph_kv_cache *kv, const int *from)
{
    size_t texts = (size_t)kv->shape.texts, row = (size_t)kv->table_len;
    memcpy(kv->old_table, kv->table, texts * row * sizeof *kv->table);
    memcpy(kv->old_held, kv->held, texts * sizeof *kv->held);
    memcpy(kv->old_past, kv->past, texts * sizeof *kv->past);
    for (int b = 0; b < kv->shape.texts; b++) {
        const int32_t *pages = kv->old_table + (size_t)from[b] * row;
        for (int i = 0; i < kv->old_held[from[b]]; i++) kv->holders[pages[i]]++;
    }
    for (int b = 0; b < kv->shape.texts; b++) {
        ph_kv_end(kv, b);
        kv->held[b] = kv->old_held[from[b]], kv->past[b] = kv->old_past[from[b]];
        memcpy(pages_of(kv, b), kv->old_table + (size_t)from[b] * row,
               row * sizeof *kv->table);
    }
}
