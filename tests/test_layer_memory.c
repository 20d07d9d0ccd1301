/*
 * test_layer_memory.c - how much memory a layer of each variant takes beyond its inputs,
 * outputs and gradients, and that a backward pass slice by slice has the same bits.
 *
 *     SHOW=1          prints the bytes of each
 */
#include <math.h>

#include "check.h"
#include "layer_bed.h"

typedef struct spec {
    const char *variant;
    int size[5]; /* q_heads, k_heads, v_heads, qk_dim, v_dim, in sixteenths of a head */
    int memory;  /* 1: cross-attention */
} spec;

/* The layers of bench/variant_peers.py, and what else makes a difference. */
static const spec specs[] = {
    {"mha", {8, 8, 8, 16, 16}, 0},
    {"mha", {8, 2, 2, 16, 16}, 1},
    {"moh:shared=2,top=2", {8, 8, 8, 16, 16}, 0},
    {"moh-norm:shared=2,top=2", {8, 8, 8, 16, 16}, 0},
    {"collab", {8, 1, 8, 32, 16}, 0},
    {"collab:content=1", {8, 1, 8, 32, 16}, 0},
    {"mohsa:overlap=8", {8, 8, 8, 16, 16}, 0},
    {"diff", {8, 8, 4, 16, 32}, 0},
    {"diff2", {8, 4, 4, 16, 16}, 0},
    {"mla:rope=32,latent=256", {8, 8, 8, 24, 16}, 0},
    {"merged", {8, 8, 8, 16, 16}, 1},
    {"gated:head", {8, 8, 8, 16, 16}, 0},
    {"gated:element", {8, 8, 8, 16, 16}, 0},
    {"gated:head+moh:shared=2,top=2", {8, 8, 8, 16, 16}, 0},
    {"gated:head+mohsa:overlap=8", {8, 8, 8, 16, 16}, 0},
    {"gated:head+diff", {8, 8, 4, 16, 32}, 0},
    {"gated:head+mla:rope=32,latent=256", {8, 8, 8, 24, 16}, 0},
    {"gated:element+collab", {8, 1, 8, 32, 16}, 0},
};

enum { SPECS = sizeof specs / sizeof specs[0] };

static int shows;

/* A layer with heads of `dim` numbers where the list says 16. */
static ph_layer_desc describe(const spec *s, int dim, int batch, int len)
{
    int width = 8 * dim;
    ph_layer_desc d = {.model_dim = width, .memory_dim = s->memory ? width : 0};
    d.attn = (ph_attn){.batch = batch,
                       .q_heads = s->size[0],
                       .k_heads = s->size[1],
                       .v_heads = s->size[2],
                       .q_len = len,
                       .kv_len = len,
                       .qk_dim = s->size[3] * dim / 16,
                       .v_dim = s->size[4] * dim / 16,
                       .mask = s->memory ? PH_MASK_NONE : PH_MASK_CAUSAL,
                       .variant = s->variant,
                       .backward = 1};
    return d;
}

/* ---- bytes ------------------------------------------------------------------------- */

/* Memory hooks that know how much is held at most; closed ones only say how much would
   be, so a call ends before it computes anything. */
typedef struct meter {
    size_t held, most;
    int closed;
} meter;

enum { FRONT = 64 };

static void *take(void *user, size_t bytes)
{
    meter *m = user;
    size_t held = m->held + bytes;
    if (held > m->most) m->most = held;
    if (m->closed) return NULL;
    char *block = aligned_alloc(FRONT, (bytes + 2 * FRONT - 1) / FRONT * FRONT);
    memcpy(block, &bytes, sizeof bytes);
    m->held = held;
    return block + FRONT;
}

static void give(void *user, void *ptr)
{
    meter *m = user;
    size_t bytes;
    if (!ptr) return;
    memcpy(&bytes, (char *)ptr - FRONT, sizeof bytes);
    m->held -= bytes;
    free((char *)ptr - FRONT);
}

/* Calls that end before they read anything may point anywhere. */
typedef struct stand_in {
    const float *extra[BED_MOST];
    float *dextra[BED_MOST];
    ph_layer_weights weights;
    ph_layer_args args;
    ph_layer_grads grads;
} stand_in;

static void stand(stand_in *s, const ph_layer *layer, int memory)
{
    static _Alignas(64) float x[16];
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    for (int i = 0; i < BED_MOST; i++) s->extra[i] = s->dextra[i] = x;
    s->weights = (ph_layer_weights){.extra = s->extra};
    s->args = (ph_layer_args){.x = x, .out = x, .memory = memory ? x : NULL, .saved = x};
    s->args.saved_size = SIZE_MAX;
    s->grads = (ph_layer_grads){.dout = x, .dx = x, .dextra = s->dextra};
    if (memory) s->grads.dmemory = x;
    const void **w[] = {&s->weights.wq, &s->weights.wk, &s->weights.wv, &s->weights.wo};
    float **dw[] = {&s->grads.dwq, &s->grads.dwk, &s->grads.dwv, &s->grads.dwo};
    for (int i = 0; i < ph_layer_named(layer); i++)
        for (int n = 0; n < 4; n++)
            if (!strcmp(ph_layer_param(layer, i)->name, names[n])) *w[n] = *dw[n] = x;
}

/* What one call, or the two of a training step, would take. */
static size_t measure(const spec *s, int threads, int len, int backward)
{
    meter m = {0};
    ph_options o = {.threads = threads, .alloc = take, .release = give, .user = &m};
    ph_layer_desc d = describe(s, 64, 1, len);
    ph_ctx *ctx;
    ph_layer *layer;
    stand_in in;
    d.attn.backward = backward;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    CHECK(ph_layer_create(&layer, ctx, &d) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
    stand(&in, layer, s->memory);
    if (!backward) in.args.saved = NULL;
    m.closed = 1;
    CHECK(ph_layer_forward(layer, &in.weights, &in.args) == PH_OUT_OF_MEMORY,
          "%s: forward said \"%s\"", s->variant, ph_error(ctx));
    CHECK(!backward || ph_layer_backward(layer, &in.weights, &in.args, &in.grads) ==
                           PH_OUT_OF_MEMORY,
          "%s: backward said \"%s\"", s->variant, ph_error(ctx));
    size_t saved = backward ? ph_layer_saved(layer) : 0;
    m.closed = 0;
    ph_layer_free(layer);
    ph_close(ctx);
    return m.most + saved;
}

/* 8192 tokens of 512 elements: less than 128 MB forward and 150 MB in a training
   step, with one thread and with two. */
static void bytes(void)
{
    enum { MOST_FORWARD = 128000000, MOST_TRAINING = 150000000 };
    for (int n = 0; n < SPECS; n++)
        for (int threads = 1; threads <= 2; threads++) {
            size_t forward = measure(&specs[n], threads, 8192, 0);
            size_t training = measure(&specs[n], threads, 8192, 1);
            if (shows)
                printf("    %-34s %d  forward %6.1f MB  training %6.1f MB\n",
                       specs[n].variant, threads, (double)forward / 1e6,
                       (double)training / 1e6);
            CHECK(forward < MOST_FORWARD && training < MOST_TRAINING,
                  "%s: %zu and %zu bytes", specs[n].variant, forward, training);
        }
}

/* ---- slices ------------------------------------------------------------------------ */

static const spec sliced[] = {
    {"collab:content=1+gated:element", {8, 1, 4, 32, 16}, 0},
    {"mohsa:overlap=4", {8, 8, 8, 16, 16}, 0},
    {"diff+gated:head", {8, 8, 4, 16, 32}, 0},
    {"diff2+gated:element", {8, 4, 2, 16, 16}, 0},
    {"mla:rope=8,latent=32,q_latent=24+gated:head", {8, 8, 8, 24, 16}, 0},
    {"merged", {8, 4, 8, 16, 16}, 1},
    {"gated:element", {8, 4, 2, 16, 16}, 0},
    {"gated:element+moh:shared=2,top=2", {8, 8, 8, 16, 16}, 1},
};

enum { LEN = 32, FEW = 3, MANY = 16384 / LEN };

static void same(const spec *s, const char *name, const float *a, const float *b,
                 size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK(!memcmp(&a[i], &b[i], sizeof *a), "%s: %s[%zu] is %a and %a", s->variant,
              name, i, (double)a[i], (double)b[i]);
}

static void run(layer_bed *b, ph_ctx *ctx, const spec *s, ph_layer_desc d, float *bias)
{
    if (bias) d.attn.bias = (ph_broadcast){1, 1, 1};
    CHECK(layer_bed_make(b, ctx, &d, check_seed) == PH_OK, "%s: %s", s->variant,
          ph_error(ctx));
    b->args.attn.bias = bias;
    CHECK(layer_bed_run(b) == PH_OK, "%s: %s", s->variant, ph_error(ctx));
}

/* Copies the first batch rows of a large layer into a small one, and runs it. */
static void run_few(layer_bed *few, layer_bed *many, ph_ctx *ctx, const spec *s)
{
    ph_layer_desc d = describe(s, 16, FEW, LEN);
    CHECK(layer_bed_make(few, ctx, &d, 1) == PH_OK, "%s", ph_error(ctx));
    layer_bed_copy(few, many);
    memcpy(few->x, many->x, few->x_count * sizeof(float));
    memcpy(few->memory, many->memory, few->memory_count * sizeof(float));
    memcpy(few->dout, many->dout, few->out_count * sizeof(float));
    CHECK(layer_bed_run(few) == PH_OK, "%s", ph_error(ctx));
}

/* Enough tokens for slices, which a checked ctx accepts: rows have the bits that they
   have in a small batch, and, with another number of threads, parameters those of a layer
   that cannot be sliced because a bias (of zeros) is shared by the heads. */
static void slices(void)
{
    float bias[LEN] = {0};
    ph_ctx *ctx[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        CHECK(ph_open(&ctx[i], &(ph_options){.threads = i + 1, .checked = 1}) == PH_OK,
              "no context");
    for (size_t n = 0; n < sizeof sliced / sizeof sliced[0]; n++) {
        const spec *s = &sliced[n];
        layer_bed many, few, whole;
        int shares =
            !strncmp(s->variant, "collab", 6); /* keys: summed in another order */
        run(&many, ctx[0], s, describe(s, 16, MANY, LEN), NULL);
        run(&whole, ctx[1], s, describe(s, 16, MANY, LEN), shares ? NULL : bias);
        run_few(&few, &many, ctx[0], s);
        CHECK(shares || ph_layer_saved(whole.layer) > ph_layer_saved(many.layer) ||
                  strstr(s->variant, "mla") || strstr(s->variant, "mohsa"),
              "%s: no slices", s->variant);
        same(s, "dx", many.dx, few.dx, few.x_count);
        same(s, "dmemory", many.dmemory, few.dmemory, few.memory_count);
        same(s, "out", many.out, few.out, few.out_count);
        same(s, "dx", many.dx, whole.dx, many.x_count);
        for (int i = 0; i < many.params; i++)
            same(s, many.param[i]->name, many.dw[i], whole.dw[i], many.count[i]);
        layer_bed_free(&many);
        layer_bed_free(&few);
        layer_bed_free(&whole);
    }
    for (int i = 0; i < 2; i++) ph_close(ctx[i]);
}

static const check_case cases[] = {{"bytes", bytes}, {"slices", slices}, {0, 0}};

int main(int argc, char **argv)
{
    shows = getenv("SHOW") != NULL;
    return check_main(argc, argv, cases);
}
