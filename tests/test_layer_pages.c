/*
 * test_layer_pages.c - caches of a layer in pages and in types of their own: rows of a
 * paged cache have the bits of one in one piece; a typed one rounds each element by half
 * a step, and gives the same bits in chunks and token by token.
 */
#include <math.h>

#include "check.h"
#include "guard.h"
#include "polyhead_layer.h"

enum { BATCH = 2, TOKENS = 150, MODEL = 48, HEADS = 4, KEY_HEADS = 2, DIM = 32 };
enum { CAPACITY = 160, K_ROW = KEY_HEADS * DIM };

typedef struct weights {
    float wq[MODEL * HEADS * DIM], wk[MODEL * K_ROW], wv[MODEL * K_ROW],
        wo[HEADS * DIM * MODEL];
} weights;

static weights w;
static float x[BATCH * TOKENS * MODEL];

static void fill(float *to, int count, uint64_t seed)
{
    for (int i = 0; i < count; i++)
        to[i] = (float)((int)(check_random(&seed) >> 40) % 2001 - 1000) * 0.002f;
}

static void fill_all(void)
{
    fill(w.wq, MODEL * HEADS * DIM, check_seed + 1);
    fill(w.wk, MODEL * K_ROW, check_seed + 2);
    fill(w.wv, MODEL * K_ROW, check_seed + 3);
    fill(w.wo, HEADS * DIM * MODEL, check_seed + 4);
    fill(x, BATCH * TOKENS * MODEL, check_seed + 5);
}

static ph_layer_desc desc_of(int count, int page_len, ph_dtype type)
{
    ph_layer_desc d = {.model_dim = MODEL,
                       .rope = PH_ROPE_HALF,
                       .qk_norm = PH_QK_NORM_HEAD,
                       .cache = 1,
                       .attn = {.batch = BATCH,
                                .q_heads = HEADS,
                                .k_heads = KEY_HEADS,
                                .v_heads = KEY_HEADS,
                                .q_len = count,
                                .kv_len = CAPACITY,
                                .qk_dim = DIM,
                                .page_len = page_len,
                                .kv_dtype = type,
                                .mask = PH_MASK_CAUSAL}};
    if (page_len) d.attn.pages = BATCH * ((CAPACITY + page_len - 1) / page_len) + 1;
    return d;
}

/* A cache and its page table. */
typedef struct cache {
    void *k, *v;
    size_t k_bytes, v_bytes;
    int32_t table[BATCH * CAPACITY];
} cache;

static ph_layer *make_layer(ph_ctx *ctx, ph_layer_desc d)
{
    ph_layer *layer = NULL;
    ph_status status = ph_layer_create(&layer, ctx, &d);
    CHECK(status == PH_OK, "refused: %s", ph_error(ctx));
    return layer;
}

static void make_cache(ph_ctx *ctx, int page_len, ph_dtype type, cache *c)
{
    ph_layer_desc d = desc_of(1, page_len, type);
    ph_layer *layer = make_layer(ctx, d);
    ph_layer_caches bytes = ph_layer_cache(layer);
    ph_layer_free(layer);
    c->k_bytes = bytes.k, c->v_bytes = bytes.v;
    c->k = guard_alloc(bytes.k), c->v = guard_alloc(bytes.v);
    for (int i = 0; page_len && i < d.attn.pages - 1; i++)
        c->table[i] = d.attn.pages - 1 - i; /* page 0 is never used */
}

static void free_cache(cache *c)
{
    guard_free(c->k), guard_free(c->v);
}

/* Tokens [first, first + count) of every batch row. */
static ph_status step(ph_ctx *ctx, int page_len, ph_dtype type, cache *c, int first,
                      int count, float *out)
{
    static float part[BATCH * TOKENS * MODEL];
    ph_layer *layer = make_layer(ctx, desc_of(count, page_len, type));
    int32_t past[BATCH] = {first, first};
    for (int b = 0; b < BATCH; b++)
        memcpy(part + b * count * MODEL, x + (b * TOKENS + first) * MODEL,
               (size_t)(count * MODEL) * sizeof(float));
    ph_layer_weights weight = {.wq = w.wq, .wk = w.wk, .wv = w.wv, .wo = w.wo};
    ph_layer_args args = {.x = part,
                          .out = out,
                          .past = past,
                          .k_cache = c->k,
                          .v_cache = c->v,
                          .k_cache_size = c->k_bytes,
                          .v_cache_size = c->v_bytes};
    if (page_len) args.attn.page_table = c->table;
    ph_status status = ph_layer_forward(layer, &weight, &args);
    ph_layer_free(layer);
    return status;
}

/* All tokens in steps of `count`; rows as (batch, TOKENS, MODEL). */
static void decode(ph_ctx *ctx, int page_len, ph_dtype type, int count, cache *c,
                   float *rows)
{
    static float out[BATCH * TOKENS * MODEL];
    for (int first = 0, n; first < TOKENS; first += n) {
        n = TOKENS - first < count ? TOKENS - first : count;
        ph_status status = step(ctx, page_len, type, c, first, n, out);
        CHECK(status == PH_OK, "refused: %s", ph_error(ctx));
        for (int b = 0; b < BATCH; b++)
            memcpy(rows + (b * TOKENS + first) * MODEL, out + b * n * MODEL,
                   (size_t)(n * MODEL) * sizeof(float));
    }
}

static float one[BATCH * TOKENS * MODEL], other[BATCH * TOKENS * MODEL];

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx = NULL;
    ph_options o = {.threads = 2, .checked = 1};
    CHECK(ph_open(&ctx, &o) == PH_OK, "no ctx");
    return ctx;
}

static void paged_rows(void)
{
    static const int lens[] = {16, 48, 128, 7}, steps[] = {TOKENS, 33, 1};
    ph_ctx *ctx = open_ctx();
    cache whole, paged;
    fill_all();
    make_cache(ctx, 0, PH_F32, &whole);
    decode(ctx, 0, PH_F32, TOKENS, &whole, one);
    for (int l = 0; l < 4; l++)
        for (int s = 0; s < 3; s++) {
            make_cache(ctx, lens[l], PH_F32, &paged);
            char first[64], now[64];
            memcpy(first, paged.k, sizeof first);
            decode(ctx, lens[l], PH_F32, steps[s], &paged, other);
            memcpy(now, paged.k, sizeof now);
            CHECK(!memcmp(one, other, sizeof one), "page_len %d, steps of %d differ",
                  lens[l], steps[s]);
            CHECK(!memcmp(first, now, sizeof now), "a page that no row has was written");
            free_cache(&paged);
        }
    free_cache(&whole);
    ph_close(ctx);
}

/* ---- types --- */

static float half(const uint8_t *p)
{
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    int sign = bits >> 15, exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value =
        exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return (float)(sign ? -value : value);
}

static float bf16(const uint8_t *p)
{
    uint32_t bits = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float element(ph_dtype type, const uint8_t *row, size_t i)
{
    if (type == PH_F16) return half(row + 2 * i);
    if (type == PH_BF16) return bf16(row + 2 * i);
    const uint8_t *block = row + ph_dtype_bytes(type, i / 32 * 32);
    size_t e = i % 32, shift = e / 16 * 4;
    if (type == PH_Q8_0) return half(block) * (float)(int8_t)block[2 + e];
    if (type == PH_Q4_0)
        return half(block) * (float)((block[2 + e % 16] >> shift & 15) - 8);
    return half(block) * (float)(block[4 + e % 16] >> shift & 15) + half(block + 2);
}

/* What the typed cache holds is near what one of f32 holds, and so is a row computed from
   either; chunks and single tokens agree in every bit. */
static void typed_case(ph_ctx *ctx, ph_dtype type, double step_of_one)
{
    static float last[BATCH * MODEL], expected[BATCH * MODEL];
    cache typed, wide, exact;
    make_cache(ctx, 0, type, &typed);
    make_cache(ctx, 0, PH_F32, &wide);
    make_cache(ctx, 0, PH_F32, &exact);
    CHECK(typed.k_bytes == ph_dtype_bytes(type, wide.k_bytes / 4), "%zu bytes",
          typed.k_bytes);
    memset(typed.k, 0, typed.k_bytes), memset(typed.v, 0, typed.v_bytes);
    memset(exact.k, 0, exact.k_bytes), memset(exact.v, 0, exact.v_bytes);
    decode(ctx, 0, type, 37, &typed, other);
    decode(ctx, 0, PH_F32, 37, &exact, one);
    float *k = wide.k, *v = wide.v, *from = exact.k;
    for (size_t i = 0; i < wide.k_bytes / sizeof *k; i++) {
        double largest = 0;
        for (size_t e = i / 32 * 32; e < i / 32 * 32 + 32; e++)
            largest = fmax(largest, fabs(from[e]));
        k[i] = element(type, typed.k, i), v[i] = element(type, typed.v, i);
        CHECK(fabs(k[i] - from[i]) <= largest * step_of_one,
              "%s: %g became %g, largest %g", ph_dtype_name(type), (double)from[i],
              (double)k[i], largest);
    }
    /* a step that stores nothing new: its own key is stored as the typed cache has it */
    CHECK(step(ctx, 0, type, &typed, TOKENS - 1, 1, last) == PH_OK, "%s", ph_error(ctx));
    CHECK(step(ctx, 0, PH_F32, &wide, TOKENS - 1, 1, expected) == PH_OK, "%s",
          ph_error(ctx));
    double worst = 0;
    for (int i = 0; i < BATCH * MODEL; i++)
        worst = fmax(worst, fabs(last[i] - expected[i]));
    CHECK(worst < 2 * step_of_one * MODEL, "%s: rows differ by %g", ph_dtype_name(type),
          worst);
    for (int b = 0; b < BATCH; b++)
        CHECK(!memcmp(last + b * MODEL, other + (b * TOKENS + TOKENS - 1) * MODEL,
                      MODEL * sizeof(float)),
              "%s: token by token and in chunks differ", ph_dtype_name(type));
    free_cache(&typed), free_cache(&wide), free_cache(&exact);
}

static void typed_rows(void)
{
    ph_ctx *ctx = open_ctx();
    fill_all();
    typed_case(ctx, PH_F16, 0x1p-11);
    typed_case(ctx, PH_BF16, 0x1p-8);
    /* half a step, or a whole one where Q4_0 has no +8; and scale and minimum in f16 */
    typed_case(ctx, PH_Q8_0, 0.5 / 127 + 0x1p-11);
    typed_case(ctx, PH_Q4_0, 1.0 / 8 + 0x1p-10);
    typed_case(ctx, PH_Q4_1, 1.0 / 15 + 0x1p-9);
    ph_close(ctx);
}

/* ---- refused --- */

static void expect_desc(ph_ctx *ctx, ph_layer_desc d, ph_status expected,
                        const char *sentence)
{
    ph_layer *layer = NULL;
    ph_status status = ph_layer_create(&layer, ctx, &d);
    CHECK(status == expected && !layer, "gave %s", ph_status_text(status));
    CHECK(strstr(ph_error(ctx), sentence), "said \"%s\", expected \"%s\"", ph_error(ctx),
          sentence);
}

static void refused(void)
{
    static float out[BATCH * MODEL];
    ph_ctx *ctx = open_ctx();
    cache c;
    ph_layer_desc d = desc_of(TOKENS, 16, PH_F32);
    d.cache = 0, d.attn.kv_len = TOKENS;
    expect_desc(ctx, d, PH_BAD_ARGUMENT, "without a cache, expected cache 1");
    d = desc_of(1, 16, PH_F32), d.attn.variant = "mla:latent=16,rope=8";
    d.rope = PH_ROPE_NONE, d.qk_norm = 0, d.attn.k_heads = d.attn.v_heads = 0;
    ph_layer *layer = NULL;
    CHECK(ph_layer_create(&layer, ctx, &d) != PH_OK, "mla takes pages");
    d = desc_of(1, 0, PH_Q8_0), d.attn.qk_dim = 16, d.attn.v_dim = 32;
    expect_desc(ctx, d, PH_BAD_SHAPE, "kv_dtype is Q8_0");

    make_cache(ctx, 16, PH_F32, &c);
    unsigned char *copy = malloc(c.k_bytes);
    memcpy(copy, c.k, c.k_bytes);
    c.table[CAPACITY / 16] = 999; /* the first page of batch row 1 */
    CHECK(step(ctx, 16, PH_F32, &c, 0, 1, out) == PH_BAD_SHAPE, "a page out of range");
    CHECK(strstr(ph_error(ctx), "page_table[1][0] is 999"), "said \"%s\"", ph_error(ctx));
    CHECK(!memcmp(copy, c.k, c.k_bytes), "a refused call wrote to the cache");
    CHECK(step(ctx, 16, PH_F32, &c, CAPACITY, 1, out) == PH_BAD_SHAPE, "past the end");
    free(copy);

    int from[BATCH] = {1, 0};
    ph_layer_args args = {.k_cache = c.k,
                          .v_cache = c.v,
                          .k_cache_size = c.k_bytes,
                          .v_cache_size = c.v_bytes};
    layer = make_layer(ctx, desc_of(1, 16, PH_F32));
    CHECK(ph_layer_reorder(layer, &args, from, 4) == PH_UNSUPPORTED, "reordered pages");
    CHECK(strstr(ph_error(ctx), "rows of page_table"), "said \"%s\"", ph_error(ctx));
    ph_layer_free(layer);
    free_cache(&c);
    ph_close(ctx);
}

/* Beam search with a typed cache: a row becomes a copy of another. */
static void reorder_typed(void)
{
    static float a[BATCH * MODEL], b[BATCH * MODEL];
    ph_ctx *ctx = open_ctx();
    cache c;
    fill_all();
    make_cache(ctx, 0, PH_Q8_0, &c);
    decode(ctx, 0, PH_Q8_0, 50, &c, one);
    int from[BATCH] = {1, 1};
    ph_layer_args args = {.k_cache = c.k,
                          .v_cache = c.v,
                          .k_cache_size = c.k_bytes,
                          .v_cache_size = c.v_bytes};
    ph_layer *layer = make_layer(ctx, desc_of(1, 0, PH_Q8_0));
    CHECK(ph_layer_reorder(layer, &args, from, TOKENS) == PH_OK, "%s", ph_error(ctx));
    ph_layer_free(layer);
    memcpy(x, x + TOKENS * MODEL, TOKENS * MODEL * sizeof(float));
    CHECK(step(ctx, 0, PH_Q8_0, &c, TOKENS - 1, 1, a) == PH_OK, "%s", ph_error(ctx));
    memcpy(b, a + MODEL, MODEL * sizeof(float));
    CHECK(!memcmp(a, b, MODEL * sizeof(float)), "row 0 is no copy of row 1");
    free_cache(&c);
    ph_close(ctx);
}

static const check_case cases[] = {{"paged_rows", paged_rows},
                                   {"typed_rows", typed_rows},
                                   {"refused", refused},
                                   {"reorder_typed", reorder_typed},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
