/*
 * test_layer_variants.c - layers of every variant: gradients of all parameters against
 * finite differences, same bits for every number of threads, token by token as whole, and
 * what is refused.
 */
#include <math.h>

#include "check.h"
#include "guard.h"
#include "layer_bed.h"

/* One layer of each kind, small enough to try all its elements. */
typedef struct spec {
    const char *variant;
    int size[5]; /* q_heads, k_heads, v_heads, qk_dim, v_dim */
    int memory;  /* 1: cross-attention */
    int rope;    /* ph_rope */
    int norm;    /* PH_NORM_ */
    int routes;  /* 1: makes a gate and has a balance loss */
    int one_way; /* 1: its gradient is not that of its loss (straight through) */
    int absorbs; /* 1: decoding runs another arithmetic */
} spec;

static const spec specs[] = {
    {.variant = "mha", .size = {4, 2, 4, 6, 5}},
    {.variant = "mha",
     .size = {4, 2, 4, 6, 5},
     .rope = PH_ROPE_HALF,
     .norm = PH_QK_NORM_WHOLE},
    {.variant = "gated:head", .size = {4, 2, 2, 6, 5}},
    {.variant = "gated:element", .size = {4, 4, 2, 6, 5}, .memory = 1},
    {.variant = "moh:shared=2,top=2", .size = {5, 5, 5, 4, 4}, .routes = 1},
    {.variant = "moh:shared=2,top=2,score=paper",
     .size = {5, 5, 5, 4, 4},
     .routes = 1,
     .memory = 1},
    {.variant = "moh:shared=0,top=2",
     .size = {4, 2, 2, 4, 4},
     .routes = 1,
     .rope = PH_ROPE_HALF},
    {.variant = "moh:shared=1,top=1", .size = {3, 3, 3, 4, 4}, .routes = 1},
    {.variant = "moh:shared=3,top=0", .size = {3, 3, 3, 4, 4}, .routes = 1},
    {.variant = "moh:shared=1,top=1", .size = {6, 2, 3, 4, 4}, .routes = 1, .rope = 1},
    {.variant = "moh:shared=0,top=1,score=paper",
     .size = {4, 4, 4, 4, 5},
     .routes = 1,
     .memory = 1,
     .norm = PH_QK_NORM_HEAD},
    {.variant = "moh:shared=0,top=1+gated:head", .size = {3, 3, 3, 4, 4}, .routes = 1},
    {.variant = "moh:shared=1,top=3", .size = {4, 4, 4, 4, 4}, .routes = 1},
    {.variant = "moh-norm:shared=1,top=2",
     .size = {4, 2, 4, 4, 4},
     .routes = 1,
     .one_way = 1},
    {.variant = "mohsa:overlap=0", .size = {3, 3, 3, 4, 4}},
    {.variant = "mohsa:overlap=1", .size = {3, 3, 3, 4, 5}, .rope = PH_ROPE_HALF},
    {.variant = "mohsa:overlap=3", .size = {3, 3, 3, 4, 4}, .norm = PH_QK_NORM_HEAD},
    {.variant = "mohsa:overlap=6", .size = {2, 2, 2, 4, 4}, .memory = 1},
    {.variant = "diff:depth=2", .size = {4, 4, 2, 4, 8}},
    {.variant = "diff", .size = {4, 2, 1, 4, 5}, .rope = PH_ROPE_HALF},
    {.variant = "collab", .size = {3, 1, 3, 6, 4}, .norm = PH_QK_NORM_HEAD},
    {.variant = "collab:content=1", .size = {4, 1, 2, 6, 3}, .rope = PH_ROPE_HALF},
    {.variant = "collab:content=1", .size = {3, 0, 3, 5, 4}, .memory = 1},
    {.variant = "mla:rope=2,latent=5", .size = {3, 3, 3, 6, 4}, .absorbs = 1},
    {.variant = "mla:rope=4,latent=6,q_latent=5", .size = {2, 2, 2, 7, 4}, .absorbs = 1},
    {.variant = "talking", .size = {3, 3, 3, 4, 4}},
    {.variant = "dcmha:rank=2", .size = {3, 3, 3, 4, 4}},
    {.variant = "dcmha:rank=1,side=q,gelu=erf", .size = {4, 2, 2, 4, 4}, .rope = 1},
    {.variant = "dcmha:rank=1,side=k,pre=0", .size = {4, 2, 2, 4, 4}},
    {.variant = "dcmha:rank=1,post=0", .size = {3, 3, 3, 4, 4}, .memory = 1},
    {.variant = "collab:content=1+entmax:alpha=1.5", .size = {3, 1, 3, 6, 4}},
    {.variant = "mohsa:overlap=2+talking", .size = {3, 3, 3, 4, 4}},
    {.variant = "diff+sparsemax", .size = {4, 4, 2, 4, 4}},
    {.variant = "talking+entmax", .size = {4, 2, 2, 4, 4}},
    {.variant = "sparsemax+talking", .size = {2, 2, 2, 4, 4}},
    {.variant = "dcmha:rank=1+entmax", .size = {3, 3, 3, 4, 4}},
    {.variant = "entmax:alpha=1.2+dcmha:rank=2,pre=0",
     .size = {4, 2, 4, 4, 3},
     .rope = PH_ROPE_HALF},
    {.variant = "moh:shared=1,top=2+talking+entmax:alpha=1.5",
     .size = {4, 4, 4, 4, 4},
     .routes = 1},
    {.variant = "mla:rope=2,latent=5+entmax", .size = {3, 3, 3, 6, 4}, .absorbs = 1},
    {.variant = "gated:head+entmax", .size = {4, 2, 2, 6, 5}},
    {.variant = "mohsa:overlap=1+entmax", .size = {3, 3, 3, 4, 5}},
    {.variant = "diff2", .size = {4, 2, 2, 4, 4}},
    {.variant = "diff2+talking", .size = {4, 4, 1, 4, 5}, .memory = 1},
    {.variant = "merged", .size = {3, 3, 3, 4, 4}, .memory = 1},
    {.variant = "merged+entmax:alpha=1", .size = {2, 1, 2, 4, 4}, .memory = 1},
    {.variant = "mla:latent=5,q_latent=3",
     .size = {2, 2, 2, 4, 4},
     .memory = 1,
     .absorbs = 1},
    {.variant = "gated:head+moh:shared=2,top=2", .size = {5, 5, 5, 4, 4}, .routes = 1},
    {.variant = "moh:shared=1,top=2,score=paper+gated:element",
     .size = {4, 2, 4, 4, 5},
     .routes = 1,
     .memory = 1},
    {.variant = "gated:head+moh-norm:shared=1,top=2",
     .size = {4, 2, 4, 4, 4},
     .routes = 1,
     .one_way = 1},
    {.variant = "gated:head+diff:depth=1", .size = {4, 4, 2, 4, 8}},
    {.variant = "gated:element+diff", .size = {4, 2, 1, 4, 5}, .rope = PH_ROPE_HALF},
    {.variant = "gated:element+diff2", .size = {4, 2, 2, 4, 4}},
    {.variant = "gated:head+collab:content=1", .size = {4, 1, 2, 6, 3}},
    {.variant = "gated:element+collab", .size = {3, 1, 3, 6, 4}, .memory = 1},
    {.variant = "gated:head+mohsa:overlap=1", .size = {3, 3, 3, 4, 5}},
    {.variant = "mohsa:overlap=3+gated:element", .size = {3, 3, 3, 4, 4}},
    {.variant = "gated:head+mla:rope=2,latent=5", .size = {3, 3, 3, 6, 4}, .absorbs = 1},
    {.variant = "mla:rope=4,latent=6,q_latent=5+gated:element",
     .size = {2, 2, 2, 7, 4},
     .absorbs = 1},
    {.variant = "gated:head+merged", .size = {3, 3, 3, 4, 4}, .memory = 1},
    {.variant = "gated:head+dcmha:rank=1", .size = {4, 2, 2, 4, 4}},
    {.variant = "gated:head+mohsa:overlap=2+talking", .size = {3, 3, 3, 4, 4}},
};

enum { SPECS = sizeof specs / sizeof specs[0] };

static ph_ctx *open_ctx(int threads)
{
    ph_ctx *ctx = NULL;
    ph_options o = guard_options(NULL, threads);
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    return ctx;
}

static ph_layer_desc describe(const spec *s, int len)
{
    ph_layer_desc d = {.model_dim = 8,
                       .memory_dim = s->memory ? 8 : 0,
                       .out_dim = 7,
                       .rope = (ph_rope)s->rope,
                       .qk_norm = s->norm};
    d.attn = (ph_attn){.batch = 2,
                       .q_heads = s->size[0],
                       .k_heads = s->size[1],
                       .v_heads = s->size[2],
                       .q_len = len,
                       .kv_len = len + (s->memory ? 2 : 0),
                       .qk_dim = s->size[3],
                       .v_dim = s->size[4],
                       .mask = s->memory ? PH_MASK_NONE : PH_MASK_CAUSAL,
                       .variant = s->variant,
                       .backward = 1};
    return d;
}

static void make(layer_bed *b, ph_ctx *ctx, const spec *s, const ph_layer_desc *d)
{
    ph_status status = layer_bed_make(b, ctx, d, check_seed + 7);
    CHECK(status == PH_OK, "%s: %s", s->variant, ph_error(ctx));
    if (!s->routes) return;
    b->args.balance = 0.5f;
    b->args.balance_loss = &b->balance_loss;
    b->args.gate_out = b->gate;
}

/* ---- gradients --------------------------------------------------------------------- */

/* The loss with one number changed; *same becomes 0 if other heads are used then. */
static double loss_at(layer_bed *b, float *element, float value, int *same)
{
    float old = *element, gate[512];
    memcpy(gate, b->gate, b->gate_count * sizeof *gate);
    *element = value;
    CHECK(ph_layer_forward(b->layer, &b->weights, &b->args) == PH_OK, "%s",
          ph_error(b->ctx));
    for (size_t i = 0; i < b->gate_count && b->args.gate_out; i++)
        if ((gate[i] == 0) != (b->gate[i] == 0)) *same = 0;
    memcpy(b->gate, gate, b->gate_count * sizeof *gate);
    *element = old;
    return layer_bed_loss(b);
}

/* The derivative of the loss in one element. Central differences d(t) of a smooth loss
   are g + c t^2, so any two steps give the same g up to t^4. Four steps make three
   estimates; beside a corner (a key enters the support of entmax, a head the chosen
   ones) they differ, and the steps are made smaller until the corner lies outside. At a
   corner they agree on the mean of both sides, but the sides do not:
   (f(x+t) + f(x-t) - 2 f(x)) / t does not go to 0 with t. Several corners may agree by
   chance: steps of half the size must say the same. Returns 0 where it is never smooth.
   The gradient that is to be judged has no part in the decision. */
static int derivative(layer_bed *b, float *element, double allowed, double *found)
{
    const float x = *element, parts[4] = {1, 0.75f, 0.5f, 0.25f};
    int unchanged = 1, was_smooth = 0;
    double before = 0, here = loss_at(b, element, x, &unchanged);
    for (float h = 0x1p-4f; h >= 0x1p-8f; h /= 2) {
        double d[4], bend[4], low = INFINITY, high = -INFINITY;
        int same = 1;
        for (int i = 0; i < 4; i++) {
            float step = h * parts[i];
            double right = loss_at(b, element, x + step, &same) - here;
            double left = here - loss_at(b, element, x - step, &same);
            d[i] = (right + left) / (2 * (double)step);
            bend[i] = (right - left) / (double)step;
        }
        for (int i = 0; i < 3; i++) {
            double u = parts[i] * parts[i], v = parts[i + 1] * parts[i + 1];
            double g = (u * d[i + 1] - v * d[i]) / (u - v);
            low = fmin(low, g), high = fmax(high, g);
        }
        double g = (4 * d[2] - d[0]) / 3;
        double jump = fabs(2 * bend[2] - bend[0]); /* what is left at t = 0 */
        int smooth = same && high - low <= allowed / 4 && jump <= allowed;
        *found = g;
        if (smooth && was_smooth && fabs(g - before) <= allowed / 4) return 1;
        was_smooth = smooth, before = g;
    }
    return 0;
}

enum { SAMPLES = 32 };

/* Takes out of y what lies along q; returns how much of q that was. */
static double take_out(double *y, const double *q)
{
    double along = 0, size = 0;
    for (int n = 0; n < SAMPLES; n++) along += y[n] * q[n], size += q[n] * q[n];
    for (int n = 0; n < SAMPLES; n++) y[n] -= along / size * q[n];
    return along / size;
}

/* The derivative at 0 of an odd function known at 1/SAMPLES, ..., 1: that of the nearest
   a t + b t^3 + c t^5. *error: how far off what this leaves lets it be, be that noise or
   a bend that three terms do not follow. odd is used up. */
static double fit(double *odd, double *error)
{
    double terms[3][SAMPLES], derivative = 0, left = 0, size = 0;
    for (int n = 0; n < SAMPLES; n++) {
        double t = (n + 1.0) / SAMPLES;
        terms[2][n] = t, terms[1][n] = t * t * t, terms[0][n] = t * t * t * t * t;
    }
    for (int k = 0; k < 3; k++) {
        for (int j = 0; j < k; j++) take_out(terms[k], terms[j]);
        derivative = take_out(odd, terms[k]);
    }
    for (int n = 0; n < SAMPLES; n++)
        left += odd[n] * odd[n], size += terms[2][n] * terms[2][n];
    *error = sqrt(left / (SAMPLES - 3) / size);
    return derivative;
}

/* The derivative of a loss that is smooth but may be sharply bent: no two steps agree
   where large ones leave the bend and small ones drown in the noise of f32. Many steps
   within a window are fitted; the window counts that leaves the derivative least open. */
static double fitted_derivative(layer_bed *b, float *element)
{
    double best = INFINITY, found = NAN;
    const float x = *element;
    for (float h = 0x1p-3f; h >= 0x1p-12f; h /= 2) {
        double odd[SAMPLES], error;
        int same;
        for (int n = 0; n < SAMPLES; n++) {
            float step = h * (float)(n + 1) / SAMPLES;
            odd[n] = loss_at(b, element, x + step, &same);
            odd[n] = (odd[n] - loss_at(b, element, x - step, &same)) / 2;
        }
        double tilt = fit(odd, &error) / (double)h;
        if (error / (double)h < best) best = error / (double)h, found = tilt;
    }
    return found;
}

typedef struct counts {
    int tried, corners;
} counts;

/* Only a choice makes corners: of heads, or of the keys that entmax supports. Every
   difference of another variant counts. */
static int has_corners(const spec *s)
{
    const char *entmax = strstr(s->variant, "entmax");
    int softmax = entmax && !strcmp(entmax, "entmax:alpha=1");
    return s->routes || strstr(s->variant, "sparsemax") || (entmax && !softmax);
}

static void check_tensor(layer_bed *b, const spec *s, const char *name, float *x,
                         const float *dx, size_t count, counts *tally)
{
    uint64_t random = check_seed + count;
    double size = 0, found;
    for (size_t i = 0; i < count; i++) size = fmax(size, fabs((double)dx[i]));
    double allowed = 2e-3 * (0.2 + size);
    for (int n = 0; n < 24; n++) {
        size_t i = (size_t)check_below(&random, (int)count);
        int smooth = derivative(b, &x[i], allowed, &found);
        int judged = smooth || !has_corners(s);
        if (judged && !smooth) found = fitted_derivative(b, &x[i]);
        tally->tried++, tally->corners += !judged;
        CHECK(!judged || fabs(found - dx[i]) <= allowed,
              "%s: d%s[%zu] is %g, differences give %g", s->variant, name, i,
              (double)dx[i], found);
    }
}

static void gradients(void)
{
    ph_ctx *ctx = open_ctx(1);
    counts all = {0, 0};
    for (int n = 0; n < SPECS; n++) {
        const spec *s = &specs[n];
        layer_bed b;
        counts tally = {0, 0};
        ph_layer_desc d = describe(s, 5);
        if (s->one_way) continue;
        make(&b, ctx, s, &d);
        CHECK(layer_bed_run(&b) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
        check_tensor(&b, s, "x", b.x, b.dx, b.x_count, &tally);
        if (s->memory)
            check_tensor(&b, s, "memory", b.memory, b.dmemory, b.memory_count, &tally);
        for (int i = 0; i < b.params; i++)
            check_tensor(&b, s, b.param[i]->name, b.w[i], b.dw[i], b.count[i], &tally);
        CHECK(tally.corners * 3 <= tally.tried, "%s: %d of %d differences at corners",
              s->variant, tally.corners, tally.tried);
        all.tried += tally.tried, all.corners += tally.corners;
        layer_bed_free(&b);
    }
    printf("    %d of %d differences at corners\n", all.corners, all.tried);
    CHECK(all.corners * 50 <= all.tried, "%d of %d differences at corners", all.corners,
          all.tried);
    ph_close(ctx);
}

/* ---- same bits --------------------------------------------------------------------- */

static int same_floats(const float *a, const float *b, size_t count)
{
    return !memcmp(a, b, count * sizeof *a);
}

/* Longer than one chunk of tokens, so that there is something to share out. */
static void threads(void)
{
    ph_ctx *one = open_ctx(1);
    for (int n = 0; n < SPECS; n++) {
        const spec *s = &specs[n];
        ph_layer_desc d = describe(s, 70);
        layer_bed want;
        make(&want, one, s, &d);
        CHECK(layer_bed_run(&want) == PH_OK, "%s: %s", s->variant, ph_error(one));
        for (int threads = 2; threads <= 7; threads += 5) {
            ph_ctx *ctx = open_ctx(threads);
            layer_bed b;
            make(&b, ctx, s, &d);
            CHECK(layer_bed_run(&b) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
            CHECK(same_floats(b.out, want.out, b.out_count), "%s: out", s->variant);
            CHECK(same_floats(b.dx, want.dx, b.x_count), "%s: dx", s->variant);
            for (int i = 0; i < b.params; i++)
                CHECK(same_floats(b.dw[i], want.dw[i], b.count[i]), "%s: d%s", s->variant,
                      b.param[i]->name);
            layer_bed_free(&b);
            ph_close(ctx);
        }
        layer_bed_free(&want);
    }
    ph_close(one);
}

/* ---- decoding ---------------------------------------------------------------------- */

/* Tokens [from, to) of every batch row through a layer with a cache. Memory is there only
   for the first of them. */
static void decode(layer_bed *whole, ph_ctx *ctx, const spec *s, layer_bed *cache,
                   int from, int to, float *out)
{
    int len = whole->desc.attn.q_len, count = to - from;
    int in = whole->desc.model_dim, columns = whole->desc.out_dim;
    ph_layer_desc d = describe(s, count);
    layer_bed b;
    int32_t past[2] = {from, from};
    d.attn.kv_len = whole->desc.attn.kv_len, d.attn.backward = 0, d.cache = 1;
    make(&b, ctx, s, &d);
    layer_bed_copy(&b, whole);
    for (int r = 0; r < 2; r++)
        memcpy(b.x + r * count * in, whole->x + (r * len + from) * in,
               (size_t)(count * in) * sizeof(float));
    b.args.past = past;
    b.args.k_cache = cache->k_cache;
    b.args.v_cache = cache->v_cache;
    b.args.extra_cache = cache->extra_cache;
    if (from) b.args.memory = NULL;
    CHECK(layer_bed_run(&b) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
    for (int r = 0; r < 2; r++)
        memcpy(out + (r * len + from) * columns, b.out + r * count * columns,
               (size_t)(count * columns) * sizeof(float));
    layer_bed_free(&b);
}

static double difference(const float *a, const float *b, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)a[i] - b[i]));
    return most;
}

/* Whole, in two chunks, and token by token against caches: the same bits, and those of a
   layer without a cache where it runs the same arithmetic. */
static void decoding(void)
{
    enum { LEN = 9 };
    ph_ctx *ctx = open_ctx(2);
    for (int n = 0; n < SPECS; n++) {
        const spec *s = &specs[n];
        const int steps[3] = {LEN, 5, 1};
        ph_layer_desc d = describe(s, LEN), cached = d;
        layer_bed whole, cache;
        float out[3][2 * LEN * 7];
        make(&whole, ctx, s, &d);
        CHECK(layer_bed_run(&whole) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
        cached.cache = 1, cached.attn.backward = 0;
        make(&cache, ctx, s, &cached);
        for (int way = 0; way < 3; way++)
            for (int at = 0; at < LEN; at += steps[way]) {
                int end = at + steps[way] < LEN ? at + steps[way] : LEN;
                decode(&whole, ctx, s, &cache, at, end, out[way]);
            }
        CHECK(same_floats(out[0], out[1], whole.out_count), "%s: chunks", s->variant);
        CHECK(same_floats(out[0], out[2], whole.out_count), "%s: tokens", s->variant);
        double far = difference(out[0], whole.out, whole.out_count);
        CHECK(s->absorbs ? far < 1e-5 : far == 0, "%s: cached differs by %g", s->variant,
              far);
        layer_bed_free(&whole);
        layer_bed_free(&cache);
    }
    ph_close(ctx);
}

/* A merged layer has a cache of its own beside memory: the sum of what came before. */
static void merged_tokens(void)
{
    enum { LEN = 6 };
    const spec s = {.variant = "merged", .size = {3, 3, 3, 4, 4}, .memory = 1};
    ph_ctx *ctx = open_ctx(2);
    ph_layer_desc d = describe(&s, LEN);
    layer_bed whole;
    make(&whole, ctx, &s, &d);
    CHECK(layer_bed_run(&whole) == PH_OK, "%s", ph_error(ctx));
    float *cache = calloc(1, ph_layer_cache(whole.layer).extra);
    for (int t = 0; t < LEN; t++) {
        layer_bed b;
        int32_t past[2] = {t, t};
        d.attn.q_len = 1, d.attn.backward = 0;
        make(&b, ctx, &s, &d);
        layer_bed_copy(&b, &whole);
        for (int r = 0; r < 2; r++)
            memcpy(b.x + r * 8, whole.x + (r * LEN + t) * 8, 8 * sizeof(float));
        b.args.past = past;
        b.args.extra_cache = cache;
        CHECK(layer_bed_run(&b) == PH_OK, "%s", ph_error(ctx));
        for (int r = 0; r < 2; r++)
            CHECK(same_floats(b.out + r * 7, whole.out + (r * LEN + t) * 7, 7),
                  "token %d differs", t);
        layer_bed_free(&b);
    }
    free(cache);
    layer_bed_free(&whole);
    ph_close(ctx);
}

/* ---- lengths ----------------------------------------------------------------------- */

/* Tokens beyond their length change nothing and get nothing, NaN included. */
static void lengths(void)
{
    ph_ctx *ctx = open_ctx(1);
    for (int n = 0; n < SPECS; n++) {
        const spec *s = &specs[n];
        ph_layer_desc d = describe(s, 6);
        layer_bed a, b;
        int32_t lens[2] = {6, 4};
        make(&a, ctx, s, &d);
        make(&b, ctx, s, &d);
        a.args.attn.q_lens = b.args.attn.q_lens = lens;
        if (!s->memory) a.args.attn.kv_lens = b.args.attn.kv_lens = lens;
        for (int i = 10 * d.model_dim; i < 12 * d.model_dim; i++) b.x[i] = NAN;
        CHECK(layer_bed_run(&a) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
        CHECK(layer_bed_run(&b) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
        CHECK(same_floats(a.out, b.out, a.out_count), "%s: out", s->variant);
        CHECK(same_floats(a.dx, b.dx, a.x_count), "%s: dx", s->variant);
        for (int i = 0; i < d.model_dim; i++)
            CHECK(a.dx[11 * d.model_dim + i] == 0, "%s: dx of padding", s->variant);
        for (int i = 0; i < a.params; i++) {
            CHECK(same_floats(a.dw[i], b.dw[i], a.count[i]), "%s: d%s", s->variant,
                  a.param[i]->name);
            CHECK(isfinite(difference(a.dw[i], a.w[i], a.count[i])), "%s: d%s",
                  s->variant, a.param[i]->name);
        }
        layer_bed_free(&a);
        layer_bed_free(&b);
    }
    ph_close(ctx);
}

/* ---- refused ----------------------------------------------------------------------- */

static void refused(void)
{
    static const struct {
        spec layer;
        const char *sentence;
    } list[] = {
        {{.variant = "gated:tail", .size = {2, 2, 2, 4, 4}},
         "expected one of head|element"},
        {{.variant = "diff+moh:top=1", .size = {2, 2, 2, 4, 4}},
         "variants diff and moh both change the layer"},
        {{.variant = "gated+moh:top=1+gated:element", .size = {2, 2, 2, 4, 4}},
         "variants gated and gated both gate the output of heads"},
        {{.variant = "moh:shared=2,top=3", .size = {4, 4, 4, 4, 4}},
         "top of variant moh is 3, expected 1 to 2"},
        {{.variant = "moh:shared=2,top=0", .size = {4, 4, 4, 4, 4}},
         "top of variant moh is 0"},
        {{.variant = "moh-norm:top=1,score=code", .size = {4, 4, 4, 4, 4}},
         "has no option \"score\""},
        {{.variant = "merged", .size = {2, 2, 2, 4, 4}}, "there is no memory"},
        {{.variant = "gated++entmax", .size = {2, 2, 2, 4, 4}}, "has an empty part"},
        {{.variant = "gated+", .size = {2, 2, 2, 4, 4}}, "has an empty part"},
        {{.variant = "gated:head,element", .size = {2, 2, 2, 4, 4}},
         "option head|element of variant gated is given twice"},
        {{.variant = "talking+dcmha", .size = {2, 2, 2, 4, 4}}, "both mix heads"},
        {{.variant = "moh:top=1+talking+talking", .size = {2, 2, 2, 4, 4}},
         "variants talking and talking both mix heads"},
        {{.variant = "entmax+talking+sparsemax", .size = {2, 2, 2, 4, 4}},
         "variants entmax and sparsemax both normalise rows"},
        {{.variant = "mha+entmax", .size = {2, 2, 2, 4, 4}}, "mha combines with no"},
        {{.variant = "mha+gated:head", .size = {2, 2, 2, 4, 4}}, "mha combines with no"},
        {{.variant = "talking+mha", .size = {2, 2, 2, 4, 4}}, "mha combines with no"},
        {{.variant = "talking+entmax:alpha=3", .size = {2, 2, 2, 4, 4}},
         "option alpha of variant entmax"},
        {{.variant = "mohsa:overlap=1", .size = {4, 2, 4, 4, 4}},
         "expected as many of each"},
        {{.variant = "diff", .size = {3, 3, 3, 4, 4}}, "expected an even number"},
        {{.variant = "collab", .size = {4, 2, 4, 4, 4}}, "one key for all heads"},
        {{.variant = "mla:rope=2", .size = {2, 2, 2, 4, 4}},
         "option latent of variant mla"},
        {{.variant = "mla:rope=3,latent=4", .size = {2, 2, 2, 4, 4}}, "expected an even"},
        {{.variant = "none+moh", .size = {2, 2, 2, 4, 4}}, "this build has"},
    };
    ph_ctx *ctx = open_ctx(1);
    for (size_t n = 0; n < sizeof list / sizeof list[0]; n++) {
        ph_layer_desc d = describe(&list[n].layer, 3);
        ph_layer *layer;
        CHECK(ph_layer_create(&layer, ctx, &d) != PH_OK, "%s was taken",
              list[n].layer.variant);
        CHECK(strstr(ph_error(ctx), list[n].sentence), "%s said \"%s\", not \"%s\"",
              list[n].layer.variant, ph_error(ctx), list[n].sentence);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"gradients", gradients},
                                   {"threads", threads},
                                   {"decoding", decoding},
                                   {"merged_tokens", merged_tokens},
                                   {"lengths", lengths},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
