/*
 * test_layer_refused.c - what a layer refuses, with which status and which sentence; that
 * refused calls leave outputs alone; and memory that runs out at every request.
 */
#include <math.h>

#include "check.h"
#include "guard.h"
#include "layer_bed.h"
#include "layer_oracle.h"

/* ---- descriptions ------------------------------------------------------------------ */

static ph_layer_desc good_desc(void)
{
    ph_layer_desc d = {.model_dim = 12,
                       .out_dim = 10,
                       .rope = PH_ROPE_HALF,
                       .qk_norm = 1,
                       .rope_base = 10000,
                       .rope_dims = 4,
                       .norm_eps = 1e-6f};
    d.attn = (ph_attn){.batch = 2,
                       .q_heads = 4,
                       .k_heads = 2,
                       .v_heads = 2,
                       .q_len = 5,
                       .kv_len = 5,
                       .qk_dim = 4,
                       .v_dim = 3,
                       .backward = 1};
    return d;
}

typedef struct wrong_desc {
    void (*spoil)(ph_layer_desc *d);
    ph_status status;
    const char *text; /* part of the sentence */
} wrong_desc;

#define SPOIL(name, change)                                                              \
    static void name(ph_layer_desc *d)                                                   \
    {                                                                                    \
        change;                                                                          \
    }
SPOIL(no_model, d->model_dim = 0)
SPOIL(negative_memory, d->memory_dim = -3)
SPOIL(negative_out, d->out_dim = -1)
SPOIL(no_heads, d->attn.q_heads = d->attn.k_heads = 0)
SPOIL(no_dim, d->attn.qk_dim = 0)
SPOIL(negative_batch, d->attn.batch = -1)
SPOIL(negative_len, d->attn.q_len = d->attn.kv_len = -2)
SPOIL(uneven_heads, d->attn.k_heads = 3)
SPOIL(too_wide, (d->attn.q_heads = 1 << 20, d->attn.qk_dim = 1 << 12))
SPOIL(too_many, (d->attn.batch = 1 << 20, d->attn.q_len = d->attn.kv_len = 1 << 20))
SPOIL(too_much, (d->attn.batch = 1 << 20, d->attn.q_len = d->attn.kv_len = 31))
SPOIL(strides, d->attn.k.time = 4)
SPOIL(lengths, d->attn.kv_len = 6)
SPOIL(cache_backward, d->cache = 1)
SPOIL(cache_anchor,
      (d->cache = 1, d->attn.backward = 0, d->attn.anchor = PH_ANCHOR_OFFSET))
SPOIL(concat_out, d->concat = 1)
SPOIL(bad_form, d->k_form = (ph_form)3)
SPOIL(bad_rope, d->rope = (ph_rope)3)
SPOIL(bad_base, d->rope_base = -1)
SPOIL(nan_base, d->rope_base = NAN)
SPOIL(odd_dims, d->rope_dims = 3)
SPOIL(many_dims, d->rope_dims = 6)
SPOIL(bad_eps, d->norm_eps = -1)
SPOIL(bad_type, d->attn.dtype = (ph_dtype)7)
SPOIL(bad_mask, d->attn.mask = (ph_mask)9)
SPOIL(bad_dropout, d->attn.dropout = 1)
SPOIL(bad_variant, d->attn.variant = "nothing")

static const wrong_desc wrong_descs[] = {
    {no_model, PH_BAD_ARGUMENT, "model_dim is 0, expected at least 1"},
    {negative_memory, PH_BAD_ARGUMENT, "memory_dim is -3, expected at least 0"},
    {negative_out, PH_BAD_ARGUMENT, "out_dim is -1, expected at least 0"},
    {no_heads, PH_BAD_ARGUMENT, "attn.q_heads is 0, expected at least 1"},
    {no_dim, PH_BAD_ARGUMENT, "attn.qk_dim is 0, expected at least 1"},
    {negative_batch, PH_BAD_ARGUMENT, "attn.batch is -1, expected at least 0"},
    {negative_len, PH_BAD_ARGUMENT, "attn.q_len is -2, expected at least 0"},
    {uneven_heads, PH_BAD_SHAPE, "k_heads is 3, expected a divisor of q_heads 4"},
    {too_wide, PH_UNSUPPORTED, "is too wide"},
    {too_many, PH_UNSUPPORTED, "is too large"},
    {strides, PH_BAD_ARGUMENT, "attn.k has strides, expected none in a layer"},
    {lengths, PH_BAD_SHAPE, "attn.q_len is 5 and attn.kv_len 6, expected the same"},
    {cache_backward, PH_UNSUPPORTED, "cache is 1 and attn.backward 1, expected only one"},
    {cache_anchor, PH_BAD_ARGUMENT, "attn.anchor is 1, expected PH_ANCHOR_END"},
    {concat_out, PH_BAD_SHAPE, "out_dim is 10, expected 0 or 12 with concat"},
    {bad_form, PH_BAD_ARGUMENT, "k_form is 3, expected PH_FORM_WHOLE, _HEADS or"},
    {bad_rope, PH_BAD_ARGUMENT, "rope is 3, expected PH_ROPE_NONE"},
    {bad_base, PH_BAD_ARGUMENT, "rope_base is -1, expected a positive number"},
    {nan_base, PH_BAD_ARGUMENT, "rope_base is nan, expected a positive number"},
    {odd_dims, PH_BAD_SHAPE, "rope_dims is 3, expected an even number of at most 4"},
    {many_dims, PH_BAD_SHAPE, "rope_dims is 6, expected an even number of at most 4"},
    {bad_eps, PH_BAD_ARGUMENT, "norm_eps is -1, expected a positive number"},
    {bad_type, PH_BAD_ARGUMENT, "attn.dtype is 7, expected PH_F32"},
    {bad_mask, PH_BAD_ARGUMENT, "mask is 9, expected"},
    {bad_dropout, PH_BAD_ARGUMENT, "dropout is 1, expected"},
    {bad_variant, PH_UNSUPPORTED, "variant is \"nothing\""},
};

static void descriptions(void)
{
    ph_ctx *ctx = NULL;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no context");
    for (size_t i = 0; i < sizeof wrong_descs / sizeof wrong_descs[0]; i++) {
        const wrong_desc *w = &wrong_descs[i];
        ph_layer_desc d = good_desc();
        ph_layer *layer = (ph_layer *)&d;
        w->spoil(&d);
        ph_status status = ph_layer_create(&layer, ctx, &d);
        CHECK(status == w->status && strstr(ph_error(ctx), w->text),
              "%zu: status %d \"%s\", expected %d \"%s\"", i, (int)status, ph_error(ctx),
              (int)w->status, w->text);
        CHECK(!layer, "%zu: a refused layer is not NULL", i);
    }
    ph_layer_desc d = good_desc();
    ph_layer *layer = NULL;
    too_much(&d); /* legal, but more than there is memory for at most */
    ph_status status = ph_layer_create(&layer, ctx, &d);
    CHECK(status == PH_OK || status == PH_UNSUPPORTED, "status %d", (int)status);
    ph_layer_free(layer);
    CHECK(ph_layer_create(NULL, ctx, &d) == PH_BAD_ARGUMENT, "out NULL");
    CHECK(ph_layer_create(&layer, NULL, &d) == PH_BAD_ARGUMENT && !layer, "ctx NULL");
    CHECK(ph_layer_create(&layer, ctx, NULL) == PH_BAD_ARGUMENT && !layer, "desc NULL");
    ph_layer_free(NULL);
    ph_close(ctx);
}

/* ---- calls ------------------------------------------------------------------------- */

enum { EVERYTHING = (1 << LT_ALIBI) - 1 };

static void build(layer_case *c)
{
    memset(c, 0, sizeof *c);
    c->desc = good_desc();
    layer_build(c, check_seed,
                (EVERYTHING & ~(1u << LT_MEMORY | 1u << LT_BIAS | 1u << LT_GATE)) |
                    1u << LT_DOUT | 1u << LT_OUT | 1u << LT_HEADS | 1u << LT_LSE,
                0);
}

typedef struct wrong_call {
    void (*spoil)(layer_case *c);
    int backward;
    ph_status status;
    const char *text;
} wrong_call;

static const int32_t long_lens[2] = {5, 6}, negative[2] = {-1, 0},
                     too_far[2] = {0, INT32_MAX};
static float somewhere[4096];

#define SPOIL_CALL(name, change)                                                         \
    static void name(layer_case *c)                                                      \
    {                                                                                    \
        change;                                                                          \
    }
SPOIL_CALL(no_x, c->args.x = NULL)
SPOIL_CALL(no_out, c->args.out = NULL)
SPOIL_CALL(no_wq, c->weights.wq = NULL)
SPOIL_CALL(no_wk, c->weights.wk = NULL)
SPOIL_CALL(no_wv, c->weights.wv = NULL)
SPOIL_CALL(no_wo, c->weights.wo = NULL)
SPOIL_CALL(a_memory, c->args.memory = somewhere)
SPOIL_CALL(a_cache, c->args.k_cache = somewhere)
SPOIL_CALL(a_v_cache, c->args.v_cache = somewhere)
SPOIL_CALL(a_q, c->args.attn.q = somewhere)
SPOIL_CALL(a_k, c->args.attn.k = somewhere)
SPOIL_CALL(a_v, c->args.attn.v = somewhere)
SPOIL_CALL(an_out, c->args.attn.out = somewhere)
SPOIL_CALL(a_workspace, c->args.attn.workspace = somewhere)
SPOIL_CALL(long_q, c->args.attn.q_lens = long_lens)
SPOIL_CALL(long_kv, c->args.attn.kv_lens = long_lens)
SPOIL_CALL(negative_past, c->args.past = negative)
SPOIL_CALL(far_past, c->args.past = too_far)
SPOIL_CALL(crooked_saved, c->args.saved = (char *)c->saved + 4)
SPOIL_CALL(small_saved, c->args.saved_size--)
SPOIL_CALL(a_bias, c->args.attn.bias = somewhere)
SPOIL_CALL(no_saved, c->args.saved = NULL)
SPOIL_CALL(no_dout, c->grads.dout = NULL)
SPOIL_CALL(a_dmemory, c->grads.dmemory = somewhere)
SPOIL_CALL(no_bq, c->weights.bq = NULL)
SPOIL_CALL(no_q_norm, c->weights.q_norm = NULL)
SPOIL_CALL(a_dgate, c->grads.dgate = somewhere)

static const wrong_call wrong_calls[] = {
    {no_x, 0, PH_BAD_ARGUMENT, "x is NULL, expected a tensor"},
    {no_out, 0, PH_BAD_ARGUMENT, "out is NULL, expected a tensor"},
    {no_wq, 0, PH_BAD_ARGUMENT, "wq is NULL, expected a tensor"},
    {no_wk, 1, PH_BAD_ARGUMENT, "wk is NULL, expected a tensor"},
    {no_wv, 0, PH_BAD_ARGUMENT, "wv is NULL, expected a tensor"},
    {no_wo, 1, PH_BAD_ARGUMENT, "wo is NULL, expected a tensor"},
    {a_memory, 0, PH_BAD_ARGUMENT, "memory is given, expected NULL"},
    {a_cache, 0, PH_BAD_ARGUMENT, "k_cache is given, expected NULL"},
    {a_v_cache, 1, PH_BAD_ARGUMENT, "v_cache is given, expected NULL"},
    {a_q, 0, PH_BAD_ARGUMENT, "attn.q is given, expected NULL"},
    {a_k, 1, PH_BAD_ARGUMENT, "attn.k is given, expected NULL"},
    {a_v, 0, PH_BAD_ARGUMENT, "attn.v is given, expected NULL"},
    {an_out, 0, PH_BAD_ARGUMENT, "attn.out is given, expected NULL"},
    {a_workspace, 1, PH_BAD_ARGUMENT, "attn.workspace is given, expected NULL"},
    {long_q, 0, PH_BAD_SHAPE, "q_lens[1] is 6, expected 0 to 5"},
    {long_kv, 1, PH_BAD_SHAPE, "kv_lens[1] is 6, expected 0 to 5"},
    {negative_past, 0, PH_BAD_SHAPE, "past[0] is -1, expected 0 to"},
    {far_past, 0, PH_BAD_SHAPE, "past[1] is 2147483647, expected 0 to"},
    {crooked_saved, 0, PH_BAD_ARGUMENT, "saved is not aligned to 64 bytes"},
    {small_saved, 0, PH_BAD_ARGUMENT, "saved_size is "},
    {small_saved, 1, PH_BAD_ARGUMENT, "saved_size is "},
    {a_bias, 0, PH_BAD_ARGUMENT, "bias is given"},
    {a_bias, 1, PH_BAD_ARGUMENT, "bias is given"},
    {no_saved, 1, PH_BAD_ARGUMENT, "saved is NULL, expected what the forward call left"},
    {no_dout, 1, PH_BAD_ARGUMENT, "dout is NULL, expected a tensor"},
    {a_dmemory, 1, PH_BAD_ARGUMENT, "dmemory is wanted but the layer has no memory"},
    {no_bq, 1, PH_BAD_ARGUMENT, "dbq is wanted but the layer has no bq"},
    {no_q_norm, 1, PH_BAD_ARGUMENT, "dq_norm is wanted but the layer has no q_norm"},
    {a_dgate, 1, PH_BAD_ARGUMENT, "dgate is wanted but the layer has no gate"},
};

static void calls(void)
{
    ph_ctx *ctx = NULL;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "no context");
    for (size_t i = 0; i < sizeof wrong_calls / sizeof wrong_calls[0]; i++) {
        const wrong_call *w = &wrong_calls[i];
        layer_case c;
        ph_layer *layer = NULL;
        build(&c);
        CHECK(ph_layer_create(&layer, ctx, &c.desc) == PH_OK, "%s", ph_error(ctx));
        c.args.saved_size = ph_layer_saved(layer);
        c.args.saved = c.saved = aligned_alloc(64, c.args.saved_size + 64);
        if (w->backward)
            CHECK(ph_layer_forward(layer, &c.weights, &c.args) == PH_OK, "%s",
                  ph_error(ctx));
        layer_wipe(&c);
        w->spoil(&c);
        ph_status status = w->backward
                               ? ph_layer_backward(layer, &c.weights, &c.args, &c.grads)
                               : ph_layer_forward(layer, &c.weights, &c.args);
        CHECK(status == w->status && strstr(ph_error(ctx), w->text),
              "%zu: status %d \"%s\", expected %d \"%s\"", i, (int)status, ph_error(ctx),
              (int)w->status, w->text);
        CHECK(layer_untouched(&c), "%zu (%s): an output changed", i, w->text);
        ph_layer_free(layer);
        layer_case_free(&c);
    }
    ph_close(ctx);
}

static int all_bytes_are(const void *x, size_t bytes, int value)
{
    const unsigned char *c = x;
    for (size_t i = 0; i < bytes; i++)
        if (c[i] != value) return 0;
    return 1;
}

/* What attention itself refuses is found before caches and the balance loss change. */
static void caches_stay(void)
{
    ph_options o = guard_options(NULL, 2);
    ph_ctx *ctx = NULL;
    layer_bed b;
    ph_layer_desc d = {.model_dim = 8, .cache = 1};
    d.attn = (ph_attn){.batch = 2,
                       .q_heads = 4,
                       .k_heads = 4,
                       .v_heads = 4,
                       .q_len = 3,
                       .kv_len = 9,
                       .qk_dim = 4,
                       .v_dim = 4,
                       .mask = PH_MASK_CAUSAL,
                       .bias = {1, 1, 1},
                       .variant = "moh:shared=1,top=2"};
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    CHECK(layer_bed_make(&b, ctx, &d, 1) == PH_OK, "%s", ph_error(ctx));
    ph_layer_caches caches = ph_layer_cache(b.layer);
    memset(&b.balance_loss, 0xff, sizeof b.balance_loss);
    b.args.balance_loss = &b.balance_loss;
    CHECK(layer_bed_run(&b) == PH_BAD_ARGUMENT, "accepted without its bias");
    CHECK(strstr(ph_error(ctx), "bias is NULL"), "said \"%s\"", ph_error(ctx));
    CHECK(all_bytes_are(b.k_cache, caches.k, 0xff), "k_cache changed");
    CHECK(all_bytes_are(b.v_cache, caches.v, 0xff), "v_cache changed");
    CHECK(all_bytes_are(&b.balance_loss, sizeof(float), 0xff), "balance_loss changed");
    CHECK(all_bytes_are(b.out, b.out_count * sizeof(float), 0xff), "out changed");
    layer_bed_free(&b);
    ph_close(ctx);
}

/* One byte less than ph_layer_cache says: refused, and nothing is written; "dcmha" has
   all three caches. */
static void small_caches(void)
{
    static const char *const words[] = {"k_cache_size", "v_cache_size",
                                        "extra_cache_size"};
    ph_ctx *ctx = NULL;
    ph_layer_desc d = {.model_dim = 8, .cache = 1};
    d.attn = (ph_attn){.batch = 2,
                       .q_heads = 4,
                       .q_len = 3,
                       .kv_len = 9,
                       .qk_dim = 4,
                       .mask = PH_MASK_CAUSAL,
                       .variant = "dcmha"};
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no context");
    for (int i = 0; i < 3; i++) {
        layer_bed b;
        int from[2] = {1, 0};
        CHECK(layer_bed_make(&b, ctx, &d, 1) == PH_OK, "%s", ph_error(ctx));
        size_t *const sizes[] = {&b.args.k_cache_size, &b.args.v_cache_size,
                                 &b.args.extra_cache_size};
        CHECK(*sizes[i] > 0, "no %s", words[i]);
        *sizes[i] -= 1;
        CHECK(layer_bed_run(&b) == PH_BAD_ARGUMENT && strstr(ph_error(ctx), words[i]),
              "said \"%s\"", ph_error(ctx));
        CHECK(ph_layer_reorder(b.layer, &b.args, from, 3) == PH_BAD_ARGUMENT &&
                  strstr(ph_error(ctx), words[i]),
              "reorder said \"%s\"", ph_error(ctx));
        ph_layer_caches least = ph_layer_cache(b.layer);
        CHECK(all_bytes_are(b.k_cache, least.k, 0xff), "k_cache changed");
        CHECK(all_bytes_are(b.v_cache, least.v, 0xff), "v_cache changed");
        CHECK(all_bytes_are(b.extra_cache, least.extra, 0xff), "extra_cache changed");
        CHECK(all_bytes_are(b.out, b.out_count * sizeof(float), 0xff), "out changed");
        *sizes[i] += 1;
        CHECK(layer_bed_run(&b) == PH_OK, "%s", ph_error(ctx));
        layer_bed_free(&b);
    }
    ph_close(ctx);
}

static void null_pointers(void)
{
    ph_ctx *ctx = NULL;
    ph_layer *layer = NULL;
    layer_case c;
    build(&c);
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no context");
    CHECK(ph_layer_create(&layer, ctx, &c.desc) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_layer_forward(NULL, &c.weights, &c.args) == PH_BAD_ARGUMENT, "layer");
    CHECK(ph_layer_forward(layer, NULL, &c.args) == PH_BAD_ARGUMENT, "weights");
    CHECK(ph_layer_forward(layer, &c.weights, NULL) == PH_BAD_ARGUMENT, "args");
    CHECK(ph_layer_backward(NULL, &c.weights, &c.args, &c.grads) == PH_BAD_ARGUMENT,
          "layer");
    CHECK(ph_layer_backward(layer, &c.weights, &c.args, NULL) == PH_BAD_ARGUMENT,
          "grads");
    ph_layer_free(layer);
    c.desc.attn.backward = 0;
    CHECK(ph_layer_create(&layer, ctx, &c.desc) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_layer_backward(layer, &c.weights, &c.args, &c.grads) == PH_UNSUPPORTED,
          "a layer without backward ran it");
    ph_layer_free(layer);
    layer_case_free(&c);
    ph_close(ctx);
}

/* A cache is refused when it is missing or full. */
static void caches(void)
{
    static float x[2 * 3 * 8], out[2 * 3 * 8], w[4][64], k[2 * 10 * 8], v[2 * 10 * 8];
    ph_layer_desc d = {.model_dim = 8, .cache = 1};
    ph_ctx *ctx = NULL;
    ph_layer *layer = NULL;
    d.attn = (ph_attn){.batch = 2,
                       .q_heads = 2,
                       .q_len = 3,
                       .kv_len = 10,
                       .qk_dim = 4,
                       .mask = PH_MASK_CAUSAL};
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no context");
    CHECK(ph_layer_create(&layer, ctx, &d) == PH_OK, "%s", ph_error(ctx));
    ph_layer_weights weights = {.wq = w[0], .wk = w[1], .wv = w[2], .wo = w[3]};
    ph_layer_args args = {.x = x, .out = out, .k_cache = k, .k_cache_size = sizeof k};
    CHECK(ph_layer_forward(layer, &weights, &args) == PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "v_cache is NULL"),
          "no v_cache: %s", ph_error(ctx));
    int32_t past[2] = {7, 8}, lens[2] = {3, 2};
    args.v_cache = v, args.v_cache_size = sizeof v, args.past = past;
    CHECK(ph_layer_forward(layer, &weights, &args) == PH_BAD_SHAPE &&
              strstr(ph_error(ctx), "past[1] is 8, expected 0 to 7"),
          "full: %s", ph_error(ctx));
    args.attn.q_lens = lens;
    CHECK(ph_layer_forward(layer, &weights, &args) == PH_OK, "%s", ph_error(ctx));
    args.attn.kv_lens = lens;
    CHECK(ph_layer_forward(layer, &weights, &args) == PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "attn.kv_lens is given"),
          "kv_lens: %s", ph_error(ctx));
    ph_layer_free(layer);
    ph_close(ctx);
}

/* ---- nothing ----------------------------------------------------------------------- */

/* An empty batch, no queries, no keys: results are empty or zero. */
static void empty(void)
{
    static const int sizes[][3] = {{0, 4, 4}, {2, 0, 4}, {2, 3, 0}, {2, 0, 0}};
    ph_ctx *ctx = NULL;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "no context");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        layer_case c;
        ph_layer *layer = NULL;
        memset(&c, 0, sizeof c);
        c.desc = good_desc();
        c.desc.memory_dim = 7;
        c.desc.attn.batch = sizes[i][0];
        c.desc.attn.q_len = sizes[i][1], c.desc.attn.kv_len = sizes[i][2];
        layer_build(&c, 1,
                    (EVERYTHING & ~(1u << LT_BIAS | 1u << LT_GATE)) | 1u << LT_DOUT |
                        1u << LT_OUT | 1u << LT_HEADS | 1u << LT_LSE,
                    0);
        CHECK(ph_layer_create(&layer, ctx, &c.desc) == PH_OK, "%s", ph_error(ctx));
        c.args.saved_size = ph_layer_saved(layer);
        c.args.saved = c.saved = aligned_alloc(64, c.args.saved_size + 64);
        CHECK(ph_layer_forward(layer, &c.weights, &c.args) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_layer_backward(layer, &c.weights, &c.args, &c.grads) == PH_OK, "%s",
              ph_error(ctx));
        layer_oracle_forward(&c);
        const char *why = layer_compare(&c, 0);
        CHECK(!why, "%zu: %s", i, why);
        layer_oracle_backward(&c);
        why = layer_compare(&c, 1);
        CHECK(!why, "%zu: %s", i, why);
        ph_layer_free(layer);
        layer_case_free(&c);
    }
    ph_close(ctx);
}

/* ---- memory ------------------------------------------------------------------------ */

typedef struct heap {
    long asked, live, fail_at; /* fail_at 0: never */
} heap;

static void *heap_alloc(void *user, size_t bytes)
{
    heap *h = user;
    if (++h->asked == h->fail_at) return NULL;
    h->live++;
    void *p = malloc(bytes);
    memset(p, 0xcd, bytes);
    return p;
}

static void heap_release(void *user, void *p)
{
    heap *h = user;
    if (p) h->live--;
    free(p);
}

/* One session whose n-th request fails; returns whether any failed. */
static int session(layer_case *c, long fail_at, const char **why)
{
    heap h = {.fail_at = fail_at};
    ph_options o = {
        .threads = 2, .alloc = heap_alloc, .release = heap_release, .user = &h};
    ph_ctx *ctx = NULL;
    ph_layer *layer = NULL;
    ph_status status = ph_open(&ctx, &o);
    layer_wipe(c);
    if (status == PH_OK) status = ph_layer_create(&layer, ctx, &c->desc);
    if (status == PH_OK) status = ph_layer_forward(layer, &c->weights, &c->args);
    if (status == PH_OK)
        status = ph_layer_backward(layer, &c->weights, &c->args, &c->grads);
    int failed = fail_at && h.asked >= fail_at;
    *why = failed && status != PH_OUT_OF_MEMORY          ? "the status is wrong"
           : !failed && status != PH_OK                  ? "it fails without a reason"
           : !layer && !layer_untouched(c)               ? "an output changed"
           : status != PH_OK && ctx && !ph_error(ctx)[0] ? "there is no sentence"
                                                         : NULL;
    ph_layer_free(layer);
    ph_close(ctx);
    if (h.live) *why = "memory is lost";
    return failed;
}

static void out_of_memory(void)
{
    layer_case c;
    const char *why = NULL;
    build(&c);
    c.args.saved_size = 1 << 20;
    c.args.saved = c.saved = aligned_alloc(64, c.args.saved_size);
    long n = 1;
    for (; session(&c, n, &why); n++) CHECK(!why, "request %ld: %s", n, why);
    CHECK(!why && n > 4, "%ld requests, %s", n, why ? why : "too few");
    layer_case_free(&c);
}

static const check_case cases[] = {{"descriptions", descriptions},
                                   {"calls", calls},
                                   {"caches_stay", caches_stay},
                                   {"small_caches", small_caches},
                                   {"null_pointers", null_pointers},
                                   {"caches", caches},
                                   {"empty", empty},
                                   {"out_of_memory", out_of_memory},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
