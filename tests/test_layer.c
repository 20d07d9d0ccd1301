/*
 * test_layer.c - the multi-head layer (polyhead_layer.h): against its formulas in double,
 * the formulas against finite differences, and the promises: same bits for every number
 * of threads, instruction set and form of the matrices, and token by token.
 */
#include <math.h>

#include "base/ctx.h"
#include "base/half.h"
#include "cases.h"
#include "check.h"
#include "guard.h"
#include "kernels/kernels.h"
#include "layer_oracle.h"
#include "polyhead_layer.h"

static ph_ctx *open_ctx(const char *isa, int threads)
{
    ph_ctx *ctx = NULL;
    ph_options o = guard_options(isa, threads);
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    return ctx;
}

/* Runs a case; backward too if its layer can. */
static ph_status run(ph_ctx *ctx, layer_case *c)
{
    ph_layer *layer = NULL;
    ph_status status = ph_layer_create(&layer, ctx, &c->desc);
    if (status == PH_OK && !c->saved && c->desc.attn.backward) {
        c->saved_bytes = ph_layer_saved(layer);
        c->saved = aligned_alloc(64, c->saved_bytes + 64);
        memset(c->saved, 0xff, c->saved_bytes);
        c->args.saved = c->saved, c->args.saved_size = c->saved_bytes;
    }
    if (status == PH_OK) status = ph_layer_forward(layer, &c->weights, &c->args);
    if (status == PH_OK && c->desc.attn.backward)
        status = ph_layer_backward(layer, &c->weights, &c->args, &c->grads);
    ph_layer_free(layer);
    return status;
}

/* ---- the formulas ------------------------------------------------------------------ */

/* Every gradient of the oracle by central differences of its own loss. */
static void finite_differences(void)
{
    for (int n = 0; n < 40 / CASES_SLOW; n++) {
        layer_case c;
        layer_draw(&c, check_seed + 1, n);
        int usable = c.desc.attn.dropout == 0 && c.desc.attn.q_len < 12;
        if (usable) layer_oracle_backward(&c);
        for (int id = 0; id < LT_GRADS && usable; id++) {
            uint64_t r = (uint64_t)n;
            layer_tensor *t = &c.t[id];
            for (int k = 0; t->data && k < 12; k++) {
                size_t i = (size_t)check_below(&r, (int)t->count);
                double here = t->value[i], step = 1e-5, want = c.g[id].value[i];
                if (!isfinite(here) || here == 0) continue;
                t->value[i] = here + step;
                double up = layer_oracle_loss(&c);
                t->value[i] = here - step;
                double found = (up - layer_oracle_loss(&c)) / (2 * step);
                t->value[i] = here;
                CHECK(fabs(found - want) <= 1e-6 + 1e-6 * fabs(want),
                      "case %d: d%s[%zu] is %.10g, differences give %.10g; %s", n,
                      layer_names[id], i, want, found, layer_text(&c));
            }
        }
        layer_case_free(&c);
    }
}

static void against_oracle(const char *isa, int count, uint64_t seed)
{
    ph_ctx *ctx = open_ctx(isa, 2);
    for (int n = 0; n < count; n++) {
        layer_case c;
        layer_draw(&c, seed, n);
        ph_status status = run(ctx, &c);
        CHECK(status == PH_OK, "case %d: %s; %s", n, ph_error(ctx), layer_text(&c));
        layer_oracle_forward(&c);
        const char *why = layer_compare(&c, 0);
        CHECK(!why, "case %d, %s: %s; %s", n, isa, why, layer_text(&c));
        layer_oracle_backward(&c);
        why = layer_compare(&c, 1);
        CHECK(!why, "case %d, %s: %s; %s", n, isa, why, layer_text(&c));
        layer_case_free(&c);
    }
    ph_close(ctx);
}

static void random_layers(void)
{
    against_oracle(NULL, 1000 / CASES_SLOW, check_seed + 2);
}

static void random_layers_ref(void)
{
    against_oracle("ref", 150 / CASES_SLOW, check_seed + 3);
}

/* Gradients of f32 in tiles, where the CPU has them. */
static void random_layers_tiles(void)
{
    against_oracle("amx-f32", 400 / CASES_SLOW, check_seed + 5);
}

/* ---- same bits --------------------------------------------------------------------- */

/* Everything the library wrote, in plain order, for comparison. */
static void snapshot(const layer_case *c, double *to)
{
    for (int id = LT_OUT; id < LT_COUNT; id++)
        for (size_t i = 0; c->t[id].data && i < c->t[id].count; i++)
            *to++ = layer_get(c, &c->t[id], id, i);
    for (int id = 0; id < LT_GRADS; id++)
        for (size_t i = 0; c->g[id].data && i < c->g[id].count; i++)
            *to++ = layer_get(c, &c->g[id], id, i);
}

static size_t snapshot_count(const layer_case *c)
{
    size_t count = 0;
    for (int id = LT_OUT; id < LT_COUNT; id++) count += c->t[id].count;
    for (int id = 0; id < LT_GRADS; id++) count += c->g[id].count;
    return count;
}

static void check_same(ph_ctx *ctx, layer_case *c, const double *want, const char *what)
{
    size_t count = snapshot_count(c);
    double *found = calloc(count + 1, sizeof *found);
    layer_wipe(c);
    CHECK(run(ctx, c) == PH_OK, "%s: %s", what, ph_error(ctx));
    snapshot(c, found);
    for (size_t i = 0; i < count; i++)
        CHECK(!memcmp(&found[i], &want[i], sizeof *want),
              "%s: number %zu is %.9g, was %.9g; %s", what, i, found[i], want[i],
              layer_text(c));
    free(found);
}

/* Tables agree; what tiles multiply has bits of its own, which plain loops have too:
   bf16, and gradients of f32 if wanted. `want` is what `best` gave. */
static void check_tables(const ph_kernels *best, ph_ctx *ref, ph_ctx *avx2, layer_case *c,
                         const double *want)
{
    ph_kernels tiled = ph_kernels_ref;
    ph_dtype type = c->desc.attn.dtype;
    int own =
        best->bf16_pairs && (type == PH_BF16 || (type == PH_F32 && best->f32_tiles));
    tiled.bf16_pairs = own ? &ph_bf16_pairs_ref : NULL;
    tiled.f32_tiles = best->f32_tiles;
    ref->kernels = &tiled;
    check_same(ref, c, want, "ref");
    ref->kernels = &ph_kernels_ref;
    double *plain = calloc(snapshot_count(c) + 1, sizeof *plain);
    layer_wipe(c);
    CHECK(run(ref, c) == PH_OK, "%s", ph_error(ref));
    snapshot(c, plain);
    check_same(avx2, c, plain, "avx2");
    if (!own) check_same(avx2, c, want, "avx2");
    free(plain);
}

static void same_bits_of(const char *isa, int cases)
{
    ph_ctx *one = open_ctx(isa, 1), *two = open_ctx(isa, 2), *seven = open_ctx(isa, 7);
    ph_ctx *ref = open_ctx("ref", 2), *avx2 = open_ctx("avx2", 3);
    for (int n = 0; n < cases; n++) {
        layer_case c;
        layer_draw(&c, check_seed + 4, n);
        double *want = calloc(snapshot_count(&c) + 1, sizeof *want);
        CHECK(run(one, &c) == PH_OK, "%s", ph_error(one));
        snapshot(&c, want);
        check_same(two, &c, want, "two threads");
        check_same(seven, &c, want, "seven threads");
        check_tables(one->kernels, ref, avx2, &c, want);
        for (int id = LT_WQ; id <= LT_WV; id++)
            for (int form = PH_FORM_WHOLE; form <= PH_FORM_HEADS; form++) {
                layer_set_form(&c, id, (ph_form)form);
                check_same(two, &c, want, form ? "per head" : "whole");
            }
        free(want);
        layer_case_free(&c);
    }
    ph_close(one), ph_close(two), ph_close(seven), ph_close(ref), ph_close(avx2);
}

static void same_bits(void)
{
    same_bits_of(NULL, 120 / CASES_SLOW);
}

static void same_bits_tiles(void)
{
    same_bits_of("amx-f32", 60 / CASES_SLOW);
}

/* A batch row alone gives the bits it gives in company. */
static void batch_alone_on(const char *isa)
{
    ph_ctx *ctx = open_ctx(isa, 2);
    enum { BATCH = 5, LEN = 7, MODEL = 24, WIDE = LEN * MODEL };
    layer_case c;
    memset(&c, 0, sizeof c);
    c.desc = (ph_layer_desc){.model_dim = MODEL,
                             .out_dim = MODEL,
                             .rope = PH_ROPE_HALF,
                             .rope_dims = 8,
                             .rope_base = 10000};
    c.desc.attn = (ph_attn){.batch = BATCH,
                            .q_heads = 3,
                            .k_heads = 3,
                            .v_heads = 3,
                            .q_len = LEN,
                            .kv_len = LEN,
                            .qk_dim = 8,
                            .v_dim = 8,
                            .mask = PH_MASK_CAUSAL,
                            .backward = 1};
    layer_build(&c, check_seed,
                1u << LT_X | 1u << LT_WQ | 1u << LT_WK | 1u << LT_WV | 1u << LT_WO |
                    1u << LT_DOUT | 1u << LT_OUT,
                0);
    CHECK(run(ctx, &c) == PH_OK, "%s", ph_error(ctx));
    ph_layer_desc alone = c.desc;
    ph_layer *layer = NULL;
    alone.attn.batch = 1;
    CHECK(ph_layer_create(&layer, ctx, &alone) == PH_OK, "%s", ph_error(ctx));
    void *saved = aligned_alloc(64, (ph_layer_saved(layer) + 63) / 64 * 64);
    for (int b = 0; b < BATCH; b++) {
        float out[WIDE], dx[WIDE];
        ph_layer_args args = c.args;
        ph_layer_grads grads = {.dout = (float *)c.t[LT_DOUT].data + b * WIDE, .dx = dx};
        args.x = (float *)c.t[LT_X].data + b * WIDE;
        args.out = out;
        args.saved = saved, args.saved_size = ph_layer_saved(layer);
        CHECK(ph_layer_forward(layer, &c.weights, &args) == PH_OK, "%s", ph_error(ctx));
        CHECK(!memcmp(out, (float *)c.t[LT_OUT].data + b * WIDE, sizeof out),
              "batch row %d differs", b);
        CHECK(ph_layer_backward(layer, &c.weights, &args, &grads) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(!memcmp(dx, (float *)c.g[LT_X].data + b * WIDE, sizeof dx),
              "dx of batch row %d differs", b);
    }
    free(saved);
    ph_layer_free(layer);
    layer_case_free(&c);
    ph_close(ctx);
}

static void batch_alone(void)
{
    batch_alone_on(NULL);
    batch_alone_on("amx-f32");
}

/* ---- decoding ---------------------------------------------------------------------- */

/* A LLaMA-like layer: grouped heads, rotation, causal, no biases. */
enum {
    D_BATCH = 3,
    D_LEN = 150,
    D_MODEL = 40,
    D_HEADS = 6,
    D_KV = 2,
    D_DIM = 10,
    D_CAP = 160,
    D_MATRIX = D_MODEL * D_HEADS * D_DIM,
    D_ROWS = D_BATCH * D_LEN,
    D_RESULT = D_MODEL + D_HEADS * D_DIM /* what is compared of a token: out, heads */
};

/* Where token t of batch row b lies. */
static int token(int b, int t)
{
    return b * D_LEN + t;
}

static ph_layer_desc decode_desc(int q_len, int cache, ph_dtype type)
{
    ph_layer_desc d = {.model_dim = D_MODEL,
                       .rope = PH_ROPE_INTERLEAVED,
                       .qk_norm = 1,
                       .rope_base = 500000,
                       .cache = cache,
                       .k_form = PH_FORM_HEADS};
    d.attn = (ph_attn){.dtype = type,
                       .batch = D_BATCH,
                       .q_heads = D_HEADS,
                       .k_heads = D_KV,
                       .v_heads = D_KV,
                       .q_len = q_len,
                       .kv_len = cache ? D_CAP : q_len,
                       .qk_dim = D_DIM,
                       .mask = PH_MASK_CAUSAL};
    return d;
}

typedef struct decoder {
    ph_dtype type; /* of x and of what comes out */
    float x[D_ROWS * D_MODEL], whole[D_ROWS * D_RESULT];
    float k_cache[D_BATCH * D_KV * D_CAP * D_DIM],
        v_cache[D_BATCH * D_KV * D_CAP * D_DIM];
    float w[4 * D_MATRIX], norm[D_DIM];
    ph_layer_weights weights;
} decoder;

/* Numbers as the layer reads or writes them. */
static void to_type(ph_dtype type, const float *from, void *to, int count)
{
    for (int i = 0; i < count; i++)
        if (type == PH_F32)
            ((float *)to)[i] = from[i];
        else
            ((uint16_t *)to)[i] = ph_to_bf16(from[i]);
}

static void from_type(ph_dtype type, const void *from, float *to, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = type == PH_F32 ? ((const float *)from)[i]
                               : ph_from_bf16(((const uint16_t *)from)[i]);
}

static void decoder_init(decoder *d, ph_dtype type)
{
    uint64_t r = check_seed;
    d->type = type;
    for (int i = 0; i < D_ROWS * D_MODEL; i++) d->x[i] = check_normal(&r);
    for (int i = 0; i < 4 * D_MATRIX; i++) d->w[i] = check_normal(&r) / 6;
    for (int i = 0; i < D_DIM; i++) d->norm[i] = 1 + check_normal(&r) / 4;
    d->weights = (ph_layer_weights){.wq = d->w,
                                    .wk = d->w + D_MATRIX,
                                    .wv = d->w + 2 * D_MATRIX,
                                    .wo = d->w + 3 * D_MATRIX,
                                    .q_norm = d->norm};
    memset(d->k_cache, 0xff, sizeof d->k_cache); /* NaN */
    memset(d->v_cache, 0xff, sizeof d->v_cache);
}

/* One call on `rows` rows of floats; the heads are floats in every layer. */
static void decoder_call(ph_ctx *ctx, const ph_layer *layer, const decoder *d, int rows,
                         const float *x, float *result, ph_layer_args args)
{
    static float in[D_ROWS * D_MODEL], out[D_ROWS * D_MODEL];
    static float heads[D_ROWS * D_HEADS * D_DIM];
    const int more = D_HEADS * D_DIM;
    to_type(d->type, x, in, rows * D_MODEL);
    args.x = in, args.out = out, args.heads = heads;
    CHECK(ph_layer_forward(layer, &d->weights, &args) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < rows; i++, result += D_RESULT) {
        from_type(d->type, ph_at(out, d->type, i * D_MODEL), result, D_MODEL);
        memcpy(result + D_MODEL, heads + i * more, (size_t)more * sizeof *heads);
    }
}

/* The next `step` tokens of each batch row (fewer at its end); rows may be at different
   places. Compares with the whole prompt. */
static void decode_step(ph_ctx *ctx, const ph_layer *layer, decoder *d, int step,
                        int32_t *past, const int32_t *ends)
{
    static float x[D_ROWS * D_MODEL], result[D_ROWS * D_RESULT];
    int32_t lens[D_BATCH];
    for (int b = 0; b < D_BATCH; b++) {
        int left = ends[b] - past[b];
        lens[b] = left < step ? left : step;
        for (int t = 0; t < step; t++)
            for (int e = 0; e < D_MODEL; e++)
                x[(b * step + t) * D_MODEL + e] =
                    t < lens[b] ? d->x[token(b, past[b] + t) * D_MODEL + e] : NAN;
    }
    ph_layer_args args = {.past = past,
                          .k_cache = d->k_cache,
                          .v_cache = d->v_cache,
                          .k_cache_size = sizeof d->k_cache,
                          .v_cache_size = sizeof d->v_cache,
                          .attn = {.q_lens = lens}};
    decoder_call(ctx, layer, d, D_BATCH * step, x, result, args);
    for (int b = 0; b < D_BATCH; b++)
        for (int t = 0; t < step; t++)
            for (int e = 0; e < D_RESULT; e++) {
                float found = result[(b * step + t) * D_RESULT + e], want = 0;
                if (t < lens[b]) want = d->whole[token(b, past[b] + t) * D_RESULT + e];
                CHECK(!memcmp(&found, &want, sizeof found),
                      "row %d token %d + %d of %d: %.9g, whole prompt %.9g", b, past[b],
                      t, step, (double)found, (double)want);
            }
    for (int b = 0; b < D_BATCH; b++) past[b] += lens[b];
}

static void decode_all(ph_dtype type)
{
    static const int threads[] = {1, 2, 7}, steps[] = {1, 5, 10, 11, 33, 150};
    decoder *d = malloc(sizeof *d);
    ph_ctx *ctx = open_ctx(NULL, 2);
    ph_layer *layer = NULL;
    ph_layer_desc desc = decode_desc(D_LEN, 0, type);
    decoder_init(d, type);
    CHECK(ph_layer_create(&layer, ctx, &desc) == PH_OK, "%s", ph_error(ctx));
    decoder_call(ctx, layer, d, D_ROWS, d->x, d->whole, (ph_layer_args){0});
    ph_layer_free(layer);
    ph_close(ctx);
    for (int n = 0; n < 18; n++) {
        int step = steps[n % 6];
        int32_t past[D_BATCH] = {0, 0, 0}, ends[D_BATCH] = {D_LEN, D_LEN - 40, D_LEN};
        ctx = open_ctx(NULL, threads[n / 6]);
        desc = decode_desc(step, 1, type);
        CHECK(ph_layer_create(&layer, ctx, &desc) == PH_OK, "%s", ph_error(ctx));
        while (past[0] < D_LEN) decode_step(ctx, layer, d, step, past, ends);
        ph_layer_free(layer);
        ph_close(ctx);
    }
    free(d);
}

/* Few rows and many run differently: 3 to 450 of them here. */
static void decoding(void)
{
    decode_all(PH_F32);
    decode_all(PH_BF16);
}

/* past moves the rotation only: scores, and so the output, hardly change. */
static void rotation_is_relative(void)
{
    ph_ctx *ctx = open_ctx(NULL, 1);
    decoder *d = malloc(sizeof *d);
    float *moved = malloc(sizeof d->whole);
    int32_t past[D_BATCH] = {1000, 7, 99999};
    ph_layer *layer = NULL;
    ph_layer_desc desc = decode_desc(D_LEN, 0, PH_F32);
    decoder_init(d, PH_F32);
    ph_layer_args args = {.x = d->x, .out = d->whole};
    CHECK(ph_layer_create(&layer, ctx, &desc) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_layer_forward(layer, &d->weights, &args) == PH_OK, "%s", ph_error(ctx));
    args.past = past, args.out = moved;
    CHECK(ph_layer_forward(layer, &d->weights, &args) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < D_ROWS * D_MODEL; i++)
        CHECK(fabsf(moved[i] - d->whole[i]) < 1e-4f, "number %d: %g, not %g", i,
              (double)moved[i], (double)d->whole[i]);
    ph_layer_free(layer);
    free(moved), free(d);
    ph_close(ctx);
}

/* Gradients that are not wanted change nothing about the others. */
static void parts_of_backward(void)
{
    ph_ctx *ctx = open_ctx(NULL, 2);
    for (int n = 0; n < 60 / CASES_SLOW; n++) {
        layer_case c;
        layer_draw(&c, check_seed + 5, n);
        CHECK(run(ctx, &c) == PH_OK, "%s", ph_error(ctx));
        layer_oracle_backward(&c);
        layer_wipe(&c);
        void **wanted[] = {&c.grads.dx,
                           &c.grads.dmemory,
                           (void **)&c.grads.dwq,
                           (void **)&c.grads.dwk,
                           (void **)&c.grads.dwv,
                           (void **)&c.grads.dwo,
                           (void **)&c.grads.dbq,
                           (void **)&c.grads.dbk,
                           (void **)&c.grads.dbv,
                           (void **)&c.grads.dbo,
                           (void **)&c.grads.dq_norm,
                           (void **)&c.grads.dk_norm,
                           (void **)&c.grads.dbias,
                           (void **)&c.grads.dgate,
                           (void **)&c.grads.dsink};
        uint64_t r = check_seed + (uint64_t)n;
        for (int id = 0; id < LT_GRADS; id++)
            if (check_below(&r, 2)) { /* forget it here, so that it is not compared */
                *wanted[id] = NULL;
                free(c.g[id].data);
                c.g[id].data = NULL;
            }
        CHECK(run(ctx, &c) == PH_OK, "%s; %s", ph_error(ctx), layer_text(&c));
        const char *why = layer_compare(&c, 1);
        CHECK(!why, "case %d: %s; %s", n, why, layer_text(&c));
        layer_case_free(&c);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"finite_differences", finite_differences},
                                   {"random_layers", random_layers},
                                   {"random_layers_ref", random_layers_ref},
                                   {"random_layers_tiles", random_layers_tiles},
                                   {"same_bits", same_bits},
                                   {"same_bits_tiles", same_bits_tiles},
                                   {"batch_alone", batch_alone},
                                   {"decoding", decoding},
                                   {"rotation_is_relative", rotation_is_relative},
                                   {"parts_of_backward", parts_of_backward},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
