/*
 * test_layer_ragged.c - ragged layers of every variant: the rows, and the gradients of
 * their inputs, that the same sequences have in a padded batch, bit by bit; tokens that
 * go to caches, each sequence as many as it has; what is refused.
 */
#include <float.h>
#include <math.h>

#include "check.h"
#include "layer_bed.h"

enum { BATCH = 4, LEN = 37, MODEL = 12, TOTAL = 61, KEYS = 70, KEY_LEN = 40 };

static const int32_t q_lens[BATCH] = {5, 0, 37, 19}, kv_lens[BATCH] = {40, 11, 1, 18};
static const int32_t q_offsets[BATCH + 1] = {0, 5, 5, 42, TOTAL};
static const int32_t kv_offsets[BATCH + 1] = {0, 40, 51, 52, KEYS};

typedef struct ragged_spec {
    const char *variant;
    int heads[3], dims[2];
    int memory, rope, norm;
} ragged_spec;

static const ragged_spec specs[] = {
    {"mha", {4, 2, 2}, {16, 16}, 0, PH_ROPE_HALF, PH_QK_NORM_HEAD},
    {"mha", {4, 2, 4}, {6, 5}, 0, PH_ROPE_INTERLEAVED, PH_QK_NORM_WHOLE},
    {"mha", {3, 3, 3}, {8, 8}, 1, PH_ROPE_HALF, 0},
    {"gated:head", {4, 2, 2}, {6, 5}, 0, PH_ROPE_HALF, 0},
    {"gated:element", {4, 4, 2}, {6, 5}, 1, 0, 0},
    {"moh:shared=1,top=2", {5, 5, 5}, {4, 4}, 0, PH_ROPE_HALF, 0},
    {"moh:shared=0,top=1", {6, 2, 3}, {4, 4}, 0, 0, 0},
    {"moh-norm:shared=1,top=2", {4, 2, 4}, {4, 4}, 0, 0, 0},
    {"mohsa:overlap=1", {3, 3, 3}, {4, 5}, 0, PH_ROPE_HALF, 0},
    {"diff:depth=2", {4, 4, 2}, {4, 8}, 0, PH_ROPE_HALF, 0},
    {"diff2", {4, 2, 2}, {4, 8}, 0, 0, 0},
    {"collab", {4, 1, 4}, {8, 4}, 0, 0, 0},
    {"mla:rope=4,latent=7", {3, 3, 3}, {10, 6}, 0, 0, 0},
    {"merged", {3, 3, 3}, {4, 4}, 1, 0, 0},
    {"talking", {4, 4, 4}, {6, 6}, 0, PH_ROPE_HALF, 0},
    {"entmax:alpha=1.5", {4, 2, 2}, {6, 6}, 0, 0, 0},
    {"dcmha:rank=2", {4, 4, 4}, {6, 6}, 0, PH_ROPE_HALF, 0},
};

static ph_ctx *ctx;

static ph_layer_desc describe(const ragged_spec *s, int ragged)
{
    ph_layer_desc d = {.model_dim = MODEL, .memory_dim = s->memory ? MODEL : 0};
    d.rope = (ph_rope)s->rope, d.qk_norm = s->norm;
    d.attn = (ph_attn){.batch = BATCH,
                       .q_heads = s->heads[0],
                       .k_heads = s->heads[1],
                       .v_heads = s->heads[2],
                       .qk_dim = s->dims[0],
                       .v_dim = s->dims[1],
                       .q_len = LEN,
                       .kv_len = s->memory ? KEY_LEN : LEN,
                       .mask = s->memory ? PH_MASK_NONE : PH_MASK_CAUSAL,
                       .variant = s->variant,
                       .backward = 1};
    if (!ragged) return d;
    d.attn.ragged = PH_RAGGED_ALL;
    d.attn.q_total = TOTAL, d.attn.kv_total = s->memory ? KEYS : TOTAL;
    return d;
}

/* The rows of sequences: to (total, columns), from (batch, len, columns), or back. */
static void move(float *side, float *padded, int len, const int32_t *offsets, int columns,
                 int pad)
{
    for (int b = 0; b < BATCH; b++) {
        float *x = side + offsets[b] * columns, *y = padded + b * len * columns;
        size_t bytes = (size_t)((offsets[b + 1] - offsets[b]) * columns) * sizeof *x;
        memcpy(pad ? y : x, pad ? x : y, bytes);
    }
}

static int same_rows(const float *side, const float *padded, int len,
                     const int32_t *offsets, int columns)
{
    for (int b = 0; b < BATCH; b++)
        if (memcmp(side + offsets[b] * columns, padded + b * len * columns,
                   (size_t)((offsets[b + 1] - offsets[b]) * columns) * sizeof *side))
            return 0;
    return 1;
}

/* Sums over all tokens have another order with padding in between: each of the two rounds
   once per token. */
static void near(const layer_bed *x, const layer_bed *y, const char *variant)
{
    for (int i = 0; i < x->params; i++) {
        double most = 0, apart = 0;
        for (size_t n = 0; n < x->count[i]; n++) {
            most = fmax(most, fabs((double)y->dw[i][n]));
            apart = fmax(apart, fabs((double)x->dw[i][n] - y->dw[i][n]));
        }
        CHECK(apart <= KEYS * (double)FLT_EPSILON * (1 + most),
              "%s: d%s differs by %g of %g", variant, x->param[i]->name, apart, most);
    }
}

static void compare(const ragged_spec *s, uint64_t seed)
{
    ph_layer_desc dense = describe(s, 0), sparse = describe(s, 1);
    layer_bed p, r;
    CHECK(layer_bed_make(&p, ctx, &dense, seed) == PH_OK, "%s", ph_error(ctx));
    CHECK(layer_bed_make(&r, ctx, &sparse, seed) == PH_OK, "%s", ph_error(ctx));
    layer_bed_copy(&r, &p);
    p.args.attn.q_lens = q_lens, r.args.attn.q_offsets = q_offsets;
    p.args.attn.kv_lens = s->memory ? kv_lens : q_lens;
    if (s->memory) r.args.attn.kv_offsets = kv_offsets;
    move(r.x, p.x, LEN, q_offsets, MODEL, 0);
    move(r.dout, p.dout, LEN, q_offsets, MODEL, 0);
    if (s->memory) move(r.memory, p.memory, KEY_LEN, kv_offsets, MODEL, 0);
    CHECK(layer_bed_run(&p) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
    CHECK(layer_bed_run(&r) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
    CHECK(same_rows(r.out, p.out, LEN, q_offsets, MODEL), "%s: out differs", s->variant);
    CHECK(same_rows(r.dx, p.dx, LEN, q_offsets, MODEL), "%s: dx differs", s->variant);
    if (s->memory)
        CHECK(same_rows(r.dmemory, p.dmemory, KEY_LEN, kv_offsets, MODEL),
              "%s: dmemory differs", s->variant);
    near(&r, &p, s->variant);
    layer_bed_free(&p);
    layer_bed_free(&r);
}

static void every_variant(void)
{
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        compare(&specs[i], check_seed + i);
}

/* ---- caches ---- */

/* Two calls, ragged and padded: prompts of different lengths, then a few tokens each. */
static void cached(const char *variant, int heads, int kv_heads)
{
    enum { CAPACITY = 48 };
    static const int32_t more[BATCH] = {3, 2, 1, 0}, later[BATCH + 1] = {0, 3, 5, 6, 6};
    ragged_spec s = {variant, {heads, kv_heads, kv_heads}, {8, 8}, 0, PH_ROPE_HALF, 0};
    if (!strncmp(variant, "mla", 3)) s.rope = 0;
    for (int step = 0; step < 2; step++) {
        static float k[2][1 << 16], v[2][1 << 16], extra[2][1 << 16];
        ph_layer_desc d[2] = {describe(&s, 0), describe(&s, 0)};
        layer_bed bed[2];
        const int32_t *offsets = step ? later : q_offsets;
        for (int n = 0; n < 2; n++) {
            d[n].cache = 1, d[n].attn.backward = 0, d[n].attn.kv_len = CAPACITY;
            d[n].attn.q_len = step ? 3 : LEN;
            if (n)
                d[n].attn.ragged = PH_RAGGED_QUERIES, d[n].attn.q_total = offsets[BATCH];
            CHECK(layer_bed_make(&bed[n], ctx, &d[n], check_seed) == PH_OK, "%s: %s",
                  variant, ph_error(ctx));
            if (bed[n].k_cache) bed[n].args.k_cache = k[n];
            if (bed[n].v_cache) bed[n].args.v_cache = v[n];
            if (bed[n].extra_cache) bed[n].args.extra_cache = extra[n];
            bed[n].args.past = step ? q_lens : NULL;
        }
        layer_bed_copy(&bed[1], &bed[0]);
        move(bed[1].x, bed[0].x, step ? 3 : LEN, offsets, MODEL, 0);
        bed[0].args.attn.q_lens = step ? more : q_lens;
        bed[1].args.attn.q_offsets = offsets;
        for (int n = 0; n < 2; n++)
            CHECK(layer_bed_run(&bed[n]) == PH_OK, "%s: %s", variant, ph_error(ctx));
        CHECK(same_rows(bed[1].out, bed[0].out, step ? 3 : LEN, offsets, MODEL),
              "%s: out of call %d differs", variant, step);
        for (int n = 0; n < 2; n++) layer_bed_free(&bed[n]);
    }
}

static void caches(void)
{
    cached("mha", 4, 2);
    cached("gated:head", 4, 4);
    cached("talking", 4, 4);
    cached("mla:rope=4,latent=7", 3, 3);
    cached("dcmha:rank=1", 4, 4);
}

/* ---- refused ---- */

static void refuse(ph_layer_desc d, const char *sentence)
{
    ph_layer *layer = NULL;
    CHECK(ph_layer_create(&layer, ctx, &d) != PH_OK, "made, expected \"%s\"", sentence);
    CHECK(strstr(ph_error(ctx), sentence), "said \"%s\", expected \"%s\"", ph_error(ctx),
          sentence);
}

static void refused(void)
{
    static const int32_t backwards[BATCH + 1] = {0, 9, 5, 42, TOTAL};
    ph_layer_desc d = describe(&specs[0], 1), x;
    layer_bed bed;
    x = d, x.attn.backward = 0, x.cache = 1;
    refuse(x, "expected PH_RAGGED_QUERIES with a cache");
    x = d, x.attn.ragged = PH_RAGGED_QUERIES, x.attn.kv_total = 0;
    refuse(x, "PH_RAGGED_QUERIES without a cache");
    x = d, x.attn.kv_total = TOTAL + 1;
    refuse(x, "attn.q_total is 61 and attn.kv_total 62");
    CHECK(layer_bed_make(&bed, ctx, &d, 1) == PH_OK, "%s", ph_error(ctx));
    CHECK(layer_bed_run(&bed) == PH_BAD_ARGUMENT, "no offsets were not refused");
    bed.args.attn.q_offsets = backwards;
    CHECK(layer_bed_run(&bed) == PH_BAD_SHAPE, "wrong offsets were not refused");
    CHECK(strstr(ph_error(ctx), "q_offsets[2] is 5 after 9"), "%s", ph_error(ctx));
    bed.args.attn.q_offsets = q_offsets, bed.args.attn.kv_offsets = q_offsets;
    CHECK(layer_bed_run(&bed) == PH_BAD_ARGUMENT, "kv_offsets were not refused");
    layer_bed_free(&bed);
}

static const check_case cases[] = {
    {"variants", every_variant}, {"caches", caches}, {"refused", refused}, {0, 0}};

int main(int argc, char **argv)
{
    int status = 0;
    for (int threads = 1; threads <= 3 && !status; threads += 2) {
        const ph_options options = {.threads = threads};
        if (ph_open(&ctx, &options) != PH_OK) return 1;
        status = check_main(argc, argv, cases);
        ph_close(ctx);
    }
    return status;
}
