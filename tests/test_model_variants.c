/*
 * test_model_variants.c - whole models with every variant in self- and cross-attention:
 * every parameter tensor's gradient against differences of the oracle in double, and
 * decoding against caches.
 */
#define _GNU_SOURCE
#include <math.h>

#include "decoder_bed.h"
#include "model_bed.h"

/* Self-attention, and cross-attention where it may differ. */
static const char *const variants[][2] = {
    {"gqa:2", "mqa"},
    {"mqa", "gqa:2"},
    {"gqa:2+talking", "mqa+entmax"},
    {"entmax", "entmax:alpha=1.3"},
    {"sparsemax", "entmax"},
    {"talking", "talking"},
    {"dcmha:rank=2", "dcmha:rank=2"},
    {"dcmha:rank=1,pre=0", "dcmha:rank=1,side=k"},
    {"gated:head", "gated:element"},
    {"gated:element", "gated:head"},
    {"moh:shared=1,top=2", "moh:shared=2,top=1"},
    {"moh-norm:shared=1,top=2", "moh-norm:top=2"},
    {"mohsa:overlap=1", "mohsa:overlap=1"},
    {"diff:depth=1", "diff"},
    {"diff;diff+gated:head", "diff2;gated:head+diff"},
    {"diff2", "diff2"},
    {"collab", "collab"},
    {"mla:rope=2,latent=6", "mla:rope=2,latent=6"},
    {"mla:rope=2,latent=6,q_latent=5", "mha"},
    {"mha", "mla:rope=2,latent=6,q_latent=5"},
    {"mha;talking", "merged"},
    {"mha", "mha;merged"},
    {"gated:head+talking", "merged+entmax"},
    {"gated:element+mla:rope=2,latent=6", "gated:head+diff"},
    {"diff+gated:head", "gated:element+merged"},
    {"gated:head+moh:shared=1,top=2", "collab+gated:head"},
    {"moh:shared=1,top=2+entmax", "merged+talking"}};

enum { VARIANTS = sizeof variants / sizeof variants[0] };

static ph_config config_of(int arch, int v)
{
    ph_config c = {.arch = (ph_arch)arch,
                   .vocab = VOCAB,
                   .layers = strchr(variants[v][0], ';') ? 2 : 1,
                   .model_dim = 16,
                   .heads = 4,
                   .ff_dim = 12,
                   .max_len = 8};
    if (strchr(variants[v][1], ';')) c.decoder_layers = 2;
    snprintf(c.variant, sizeof c.variant, "%s", variants[v][0]);
    if (arch == PH_ARCH_ENCODER_DECODER)
        snprintf(c.cross, sizeof c.cross, "%s", variants[v][1]);
    return c;
}

/* ---- gradients --------------------------------------------------------------------- */

/* Derivative of the oracle's loss when tensor t moves along a direction; *corner: the two
   sides disagree, because a key or a head enters or leaves right here. */
static double derivative_of(const bed *b, oracle_model *o, int t, const double *direction,
                            int *corner)
{
    size_t n = b->m->params[t].count;
    double *x = malloc(n * sizeof *x), derivative = 0, at[3];
    memcpy(x, o->values[t], n * sizeof *x);
    *corner = 1;
    for (double h = 1e-5; *corner && h > 1e-8; h /= 10) {
        for (int side = -1; side <= 1; side++) {
            for (size_t i = 0; i < n; i++)
                o->values[t][i] = x[i] + side * h * direction[i];
            at[side + 1] = oracle_of(b, o, 0);
        }
        derivative = (at[2] - at[0]) / (2 * h);
        *corner = fabs(at[2] - 2 * at[1] + at[0]) > 1e-2 * h * (1 + fabs(derivative));
    }
    memcpy(o->values[t], x, n * sizeof *x);
    free(x);
    return derivative;
}

/* How far it strays if every value of the forward pass is off by up to a unit in the last
   place of a float: the largest difference of some draws. */
static double stray_derivative(const bed *b, int t, const double *direction, double truth)
{
    double stray = 0;
    for (int n = 0, corner; n < 3; n++) {
        oracle_model o = take_oracle(b);
        o.noise = 0x1p-23, o.noise_seed = 17 + (uint64_t)n;
        oracle_of(b, &o, 0); /* what stands still is taken here */
        stray = fmax(stray, fabs(derivative_of(b, &o, t, direction, &corner) - truth));
        oracle_model_free(&o);
    }
    return stray;
}

/* The largest gradient of a tensor. A bias of keys moves all scores of a row alike, so
   its gradient is 0: the terms of its sums are those of wk, without the rows of x, whose
   elements are near 1 behind a norm, and what is left of them is their rounding. */
static double size_of(const bed *b, int t)
{
    const ph_weight *p = &b->m->params[t];
    size_t stem = strlen(p->name) - 2;
    double largest = 0;
    for (size_t i = 0; i < p->count; i++)
        largest = fmax(largest, fabs((double)b->grads[p->at + i]));
    if (strcmp(p->name + stem, "bk")) return largest;
    for (int i = 0; i < b->m->param_count; i++) {
        const char *name = b->m->params[i].name;
        if (!strncmp(name, p->name, stem) && !strcmp(name + stem, "wk"))
            largest = fmax(largest, size_of(b, i));
    }
    return largest;
}

typedef struct tally {
    int tried, corners;
} tally;

/* One direction through the whole tensor, and some of its elements by themselves. */
static void check_tensor(const bed *b, oracle_model *o, int t, const char *what,
                         uint64_t *state, tally *sum)
{
    enum { SINGLE = 3 };
    const ph_weight *p = &b->m->params[t];
    double *direction = malloc(p->count * sizeof *direction), largest = size_of(b, t);
    for (int n = 0; n <= SINGLE; n++) {
        double found = 0, length = 0;
        int corner;
        for (size_t i = 0; i < p->count; i++)
            direction[i] = n ? 0 : check_uniform(state) - 0.5;
        if (n) direction[check_random(state) % p->count] = 1;
        for (size_t i = 0; i < p->count; i++) {
            found += direction[i] * (double)b->grads[p->at + i];
            length += direction[i] * direction[i];
        }
        double truth = derivative_of(b, o, t, direction, &corner);
        sum->tried++, sum->corners += corner;
        double allowed = 5e-6 * (0.1 + largest) * fmax(1, sqrt(length));
        if (!corner && fabs(found - truth) >= allowed)
            allowed += 3 * stray_derivative(b, t, direction, truth); /* as model_bed.h */
        CHECK(corner || fabs(found - truth) < allowed,
              "%s, %s: derivative %.9g, expected %.9g, allowed %.2e, largest gradient %g",
              what, p->name, found, truth, allowed, largest);
    }
    free(direction);
}

static void gradients(void)
{
    uint64_t state = check_seed;
    for (int arch = 0; arch < 3; arch++)
        for (int v = 0; v < VARIANTS; v++) {
            bed b;
            oracle_model o;
            tally sum = {0};
            char what[3 * PH_VARIANT_TEXT];
            ph_config c = config_of(arch, v);
            snprintf(what, sizeof what, "%s %s, arch %d", c.variant, c.cross, arch);
            make_bed(&b, &c, 2, 1);
            b.p->balance = 3;
            oracle_model_take(&o, b.m);
            double loss = run_bed(&b, 0), truth = oracle_of(&b, &o, 0);
            CHECK(fabs(loss - truth) < 1e-5 * (1 + fabs(truth)),
                  "%s: loss %.9g, expected %.9g", what, loss, truth);
            for (int t = 0; t < b.m->param_count; t++)
                check_tensor(&b, &o, t, what, &state, &sum);
            CHECK(20 * sum.corners <= sum.tried, "%s: %d corners in %d places", what,
                  sum.corners, sum.tried);
            oracle_model_free(&o);
            free_bed(&b);
        }
}

/* ---- caches ------------------------------------------------------------------------ */

/* Latent attention decodes in its absorbed form: other sums, the same values but for
   rounding. */
static int is_absorbed(const ph_config *c)
{
    return strstr(c->variant, "mla") || strstr(c->cross, "mla");
}

static void compare_logits(const ph_config *c, const float *found, const float *whole,
                           int t)
{
    float worst = 0;
    for (int i = 0; i < VOCAB; i++) worst = fmaxf(worst, fabsf(found[i] - whole[i]));
    CHECK(is_absorbed(c) ? worst < 1e-5f : !memcmp(found, whole, VOCAB * sizeof *found),
          "%s %s, arch %d: logits of token %d are off by %g", c->variant, c->cross,
          (int)c->arch, t, (double)worst);
}

/* Token by token and in chunks: what one pass over the whole text gives. */
static void cached(void)
{
    for (int arch = 1; arch < 3; arch++)
        for (int v = 0; v < VARIANTS; v++)
            for (int chunk = 1; chunk <= 3; chunk += 2) {
                bed b;
                ph_decoder *d;
                ph_config c = config_of(arch, v);
                make_bed(&b, &c, 2, 0);
                set_full_batch(&b);
                const int32_t *tokens = arch == 2 ? b.target : b.source;
                int len = arch == 2 ? TARGET : SOURCE;
                CHECK(ph_pass_forward(b.p, &b.batch, 0) == PH_OK, "%s", ph_error(b.ctx));
                CHECK(ph_pass_logits(b.p) == PH_OK, "%s", ph_error(b.ctx));
                d = make_decoder(b.m, 1, b.source, SOURCE);
                for (int t = 0; t + chunk <= len; t += chunk) {
                    const float *logits = NULL;
                    logits = feed_decoder(b.m, d, 1, tokens + t, chunk);
                    compare_logits(&c, logits, b.p->logits + (t + chunk - 1) * VOCAB, t);
                }
                ph_decoder_free(d);
                free_bed(&b);
            }
}

/* Texts side by side that change places go on as alone. */
static void reordered(void)
{
    enum { BEAMS = 3, HALF = 3 };
    static const int from[BEAMS] = {2, 0, 2};
    for (int v = 0; v < VARIANTS; v++) {
        bed b;
        ph_decoder *all, *one;
        ph_config c = config_of(PH_ARCH_ENCODER_DECODER, v);
        make_bed(&b, &c, 2, 0);
        all = make_decoder(b.m, BEAMS, b.source, SOURCE);
        const float *logits = NULL, *alone = NULL;
        float first[BEAMS * VOCAB];
        int32_t tokens[BEAMS];
        for (int t = 0; t < TARGET; t++) {
            if (t == HALF)
                CHECK(ph_decoder_reorder(all, from) == PH_OK, "%s", ph_error(b.ctx));
            for (int i = 0; i < BEAMS; i++) tokens[i] = b.target[(t + 2 * i) % TARGET];
            logits = feed_decoder(b.m, all, BEAMS, tokens, 1);
        }
        memcpy(first, logits, sizeof first);
        for (int i = 0; i < BEAMS; i++) {
            one = make_decoder(b.m, 1, b.source, SOURCE);
            for (int t = 0; t < TARGET; t++) {
                int32_t token = b.target[(t + 2 * (t < HALF ? from[i] : i)) % TARGET];
                alone = feed_decoder(b.m, one, 1, &token, 1);
            }
            CHECK(!memcmp(alone, first + i * VOCAB, VOCAB * sizeof *alone),
                  "%s %s: text %d differs", c.variant, c.cross, i);
            ph_decoder_free(one);
        }
        ph_decoder_free(all);
        free_bed(&b);
    }
}

static int best(const float *x)
{
    int at = 0;
    for (int i = 1; i < VOCAB; i++) at = x[i] > x[at] ? i : at;
    return at;
}

/* The likeliest token each time, from many beginnings: with caches and with the whole
   text computed again for each token. */
static void same_tokens(void)
{
    enum { PROMPTS = 12, PROMPT = 4, LEN = 24 };
    uint64_t state = check_seed;
    for (int v = 0; v < VARIANTS; v++) {
        ph_ctx *ctx = open_ctx(2);
        ph_model *m;
        ph_pass *p;
        ph_decoder *d;
        ph_config c = config_of(PH_ARCH_DECODER, v);
        ph_pass_shape shape = {.batch = 1, .source_len = LEN};
        c.max_len = LEN;
        CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 5) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(ctx));
        for (int n = 0; n < PROMPTS; n++) {
            int32_t text[LEN + 1] = {0};
            const float *logits = NULL;
            for (int i = 0; i < PROMPT; i++)
                text[i] = (int32_t)(check_random(&state) % VOCAB);
            d = make_decoder(m, 1, NULL, 0);
            for (int t = PROMPT; t <= LEN; t++) {
                int first = t == PROMPT ? 0 : t - 1;
                ph_batch batch = {.source = text};
                logits = feed_decoder(m, d, 1, text + first, t - first);
                CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(ctx));
                CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(ctx));
                text[t] = best(logits);
                CHECK(text[t] == best(p->logits + (t - 1) * VOCAB),
                      "%s: token %d of prompt %d differs", c.variant, t, n);
            }
            ph_decoder_free(d);
        }
        ph_pass_free(p);
        ph_model_free(m);
        ph_close(ctx);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static void refused(void)
{
    static const struct {
        ph_arch arch;
        const char *variant, *cross, *words;
    } bad[] = {
        {PH_ARCH_DECODER, "mha", "talking", "only an encoder-decoder has"},
        {PH_ARCH_ENCODER_DECODER, "merged", "mha", "cross-attention"},
        {PH_ARCH_ENCODER_DECODER, "mha", "nonsense", "variant is \"nonsense\""},
        {PH_ARCH_ENCODER_DECODER, "mha", "talking;moh:top=9", "top"},
        {PH_ARCH_ENCODER_DECODER, "mha", "gqa:3", "k_heads"},
        {PH_ARCH_ENCODER_DECODER, "gqa:2heads", "mha",
         "gqa is \"2heads\", expected a whole number"},
        {PH_ARCH_ENCODER_DECODER, "gqa:2+nonsense", "mha", "variant is \"nonsense\""},
        {PH_ARCH_ENCODER_DECODER, "mqa+", "mha", "empty part"},
        {PH_ARCH_ENCODER_DECODER, "mha;talking;nonsense", "mha", "variant has 3 entries"},
        {PH_ARCH_ENCODER_DECODER, "mha", "mha;mha;mha", "cross has 3 entries"},
    };
    ph_ctx *ctx = open_ctx(1);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ph_model *m;
        ph_config c = config_of(bad[i].arch, 0);
        c.layers = 2;
        strcpy(c.variant, bad[i].variant);
        strcpy(c.cross, bad[i].cross);
        ph_status status = ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1);
        CHECK(status != PH_OK && !m, "case %zu was accepted", i);
        CHECK(strstr(ph_error(ctx), bad[i].words), "case %zu: %s", i, ph_error(ctx));
    }
    ph_close(ctx);
}

/* Arithmetic of a decoder: matrices, and the products of attention that are done: of the
   two of four heads that a router chooses, over the keys that the mask shows. */
static void arithmetic(void)
{
    enum { LEN = 8, DIM = 16, WIDE = 12, ALL = LEN * (LEN + 1) / 2 };
    const double all = 4.0 * ALL * DIM; /* two products of attention */
    const double plain = 2.0 * LEN * DIM * (4 * DIM + 2 * WIDE + VOCAB) + all;
    static const struct {
        const char *variant;
        double more; /* than plain attention */
    } list[] = {{"mha", 0},
                {"gated:head", 2.0 * LEN * DIM * 4},
                {"moh:shared=1,top=1", 2.0 * LEN * DIM * (3 + 2) - 2.0 * ALL * DIM},
                {"moh-norm:shared=1,top=1", -2.0 * ALL * DIM}};
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no context");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ph_config c = config_of(PH_ARCH_DECODER, 0);
        ph_model *m;
        double flops;
        strcpy(c.variant, list[i].variant);
        CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(ph_model_flops(m, LEN, &flops) == PH_OK, "%s", ph_error(ctx));
        CHECK(flops == plain + list[i].more, "%s: %g, expected %g", list[i].variant,
              flops, plain + list[i].more);
        CHECK(ph_model_flops(m, LEN + 1, &flops) == PH_BAD_ARGUMENT, "longer than texts");
        ph_model_free(m);
    }
    ph_close(ctx);
}

/* A parameter that no option leaves in has no gradient, and does not count. */
static void unused_parameters(void)
{
    static const char *const list[] = {"dcmha:rank=2", "dcmha:rank=2,side=q",
                                       "dcmha:rank=2,side=k", "dcmha:rank=1,pre=0",
                                       "dcmha:rank=1,side=q,post=0"};
    for (size_t v = 0; v < sizeof list / sizeof list[0]; v++) {
        bed b;
        ph_config c = config_of(PH_ARCH_DECODER, 0);
        int64_t used = 0;
        strcpy(c.variant, list[v]);
        make_bed(&b, &c, 1, 1);
        run_bed(&b, 0);
        for (int t = 0; t < b.m->param_count; t++) {
            const ph_weight *p = &b.m->params[t];
            int own = strstr(p->name, ".dc_") != NULL;
            for (size_t i = 0; i < p->count; i++) used += !own || b.grads[p->at + i] != 0;
        }
        CHECK(ph_model_parameters(b.m) == used, "%s: %lld parameters, %lld are used",
              list[v], (long long)ph_model_parameters(b.m), (long long)used);
        free_bed(&b);
    }
}

static const check_case cases[] = {
    {"gradients", gradients},   {"cached", cached},
    {"reordered", reordered},   {"same_tokens", same_tokens},
    {"arithmetic", arithmetic}, {"unused_parameters", unused_parameters},
    {"refused", refused},       {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
