/*
 * test_alias.c - a checked ctx refuses outputs that overlap another tensor, and nothing
 * else: tensors that lie side by side in one buffer stay allowed.
 */
#include "base/overlap.h"
#include "layer_bed.h"
#include "sweep.h"

static ph_ctx *checked_ctx(void)
{
    ph_ctx *ctx = NULL;
    ph_options options = {.checked = 1, .threads = 2};
    CHECK(ph_open(&ctx, &options) == PH_OK, "no checked ctx");
    return ctx;
}

/* ---- spans against marked bytes ---- */

enum { ARENA = 4096 };

static char arena[ARENA];

/* A random strided tensor in the arena, and the bytes it has. */
static void draw(uint64_t *random, ph_mem_ranges *s, const char *name,
                 unsigned char *mark, int written)
{
    int sizes[4];
    for (int i = 0; i < 4; i++) sizes[i] = 1 + check_below(random, 4);
    ph_strides at = {check_below(random, 200), check_below(random, 60),
                     check_below(random, 20)};
    int start = check_below(random, 700);
    memset(mark, 0, ARENA);
    for (int b = 0; b < sizes[0]; b++)
        for (int h = 0; h < sizes[1]; h++)
            for (int t = 0; t < sizes[2]; t++)
                memset(mark + 2 * (start + b * at.batch + h * at.head + t * at.time), 1,
                       2 * (size_t)sizes[3]);
    ph_spans_add_rows(s, name, arena + 2 * start, PH_F16, sizes, &at, written);
}

static void against_bytes(void)
{
    static unsigned char x[ARENA], y[ARENA];
    ph_ctx *ctx = checked_ctx();
    uint64_t random = check_seed;
    int apart = 0;
    for (int n = 0; n < 20000; n++) {
        ph_mem_ranges s = {0};
        int shared = 0;
        draw(&random, &s, "x", x, n & 1);
        draw(&random, &s, "y", y, !(n & 1));
        for (int i = 0; i < ARENA; i++) shared |= x[i] & y[i];
        ph_status status = ph_mem_ranges_check(&s, ctx);
        CHECK((status != PH_OK) == shared, "pair %d: %s, %s in truth", n,
              status ? "refused" : "accepted", shared ? "overlapping" : "apart");
        apart += !shared;
    }
    CHECK(apart > 1000 && apart < 19000, "%d of 20000 pairs are apart", apart);
    ph_close(ctx);
}

/* ---- attention ---- */

/* Every layout of the tests, q, k and v in one buffer among them. */
static void every_layout(void)
{
    ph_ctx *ctx = checked_ctx();
    for (int index = 0; index < 80 / CASES_SLOW; index++) {
        problem p;
        case_draw(&p.attn, &p.with, check_seed, index, CASE_TINY);
        p.attn.backward = 1;
        problem_build(&p, (uint64_t)index);
        ph_status status = drive_backward(ctx, &p);
        CHECK(status != PH_BAD_ARGUMENT, "case %d: %s", index, ph_error(ctx));
        problem_free(&p);
    }
    ph_close(ctx);
}

typedef struct bed {
    float q[240], k[240], v[240], out[240], lse[60];
    float dout[240], dq[240], dk[240], dv[240];
    ph_args args;
    ph_grads grads;
} bed;

static void fill(bed *b)
{
    memset(b, 0, sizeof *b);
    for (int i = 0; i < 240; i++) b->q[i] = b->k[i] = b->v[i] = (float)(i % 7) / 7;
    b->args = (ph_args){.q = b->q, .k = b->k, .v = b->v, .out = b->out, .lse = b->lse};
    b->grads = (ph_grads){.dout = b->dout, .dq = b->dq, .dk = b->dk, .dv = b->dv};
}

static void refused_attention(void)
{
    ph_ctx *ctx = checked_ctx();
    ph_plan *plan = NULL;
    ph_attn attn = {
        .batch = 2, .q_heads = 3, .q_len = 10, .kv_len = 10, .qk_dim = 4, .backward = 1};
    static bed b;
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    fill(&b);
    b.args.k = b.args.v; /* inputs may */
    must(ctx, ph_forward(plan, &b.args));
    const struct {
        void *out;
        float *lse;
        const char *words;
    } calls[] = {{b.v, b.lse, "v and out"},
                 {b.q, NULL, "q and out"},
                 {b.k + 239, NULL, "k and out"},
                 {b.out, b.out + 200, "out and lse"},
                 {b.out, b.q, "q and lse"}};
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        fill(&b);
        static bed before;
        b.args.out = calls[n].out, b.args.lse = calls[n].lse;
        before = b;
        CHECK(ph_forward(plan, &b.args) == PH_BAD_ARGUMENT, "%s", calls[n].words);
        CHECK(strstr(ph_error(ctx), calls[n].words), "%s", ph_error(ctx));
        CHECK(!memcmp(&b, &before, sizeof b), "%s: written", calls[n].words);
    }
    fill(&b);
    must(ctx, ph_forward(plan, &b.args));
    must(ctx, ph_backward(plan, &b.args, &b.grads));
    b.grads.dq = b.q;
    CHECK(ph_backward(plan, &b.args, &b.grads) == PH_BAD_ARGUMENT, "dq = q");
    CHECK(strstr(ph_error(ctx), "q and dq"), "%s", ph_error(ctx));
    b.grads.dq = b.dq, b.grads.dv = b.dk;
    CHECK(ph_backward(plan, &b.args, &b.grads) == PH_BAD_ARGUMENT, "dv = dk");
    b.grads.dv = b.dout;
    CHECK(ph_backward(plan, &b.args, &b.grads) == PH_BAD_ARGUMENT, "dv = dout");
    ph_plan_free(plan);
    ph_close(ctx);
}

/* ---- layers ---- */

static void refused_layers(void)
{
    ph_ctx *ctx = checked_ctx();
    layer_bed b;
    ph_layer_desc desc = {.model_dim = 12,
                          .attn = {.batch = 2,
                                   .q_heads = 3,
                                   .q_len = 5,
                                   .kv_len = 5,
                                   .qk_dim = 4,
                                   .backward = 1}};
    must(ctx, layer_bed_make(&b, ctx, &desc, 3));
    must(ctx, layer_bed_run(&b));
    ph_layer_args args = b.args;
    args.out = b.x;
    CHECK(ph_layer_forward(b.layer, &b.weights, &args) == PH_BAD_ARGUMENT, "out = x");
    CHECK(strstr(ph_error(ctx), "x and out"), "%s", ph_error(ctx));
    args.out = b.w[3];
    CHECK(ph_layer_forward(b.layer, &b.weights, &args) == PH_BAD_ARGUMENT, "out = wo");
    ph_layer_grads grads = b.grads;
    grads.dx = b.dout;
    CHECK(ph_layer_backward(b.layer, &b.weights, &b.args, &grads) == PH_BAD_ARGUMENT,
          "dx = dout");
    CHECK(strstr(ph_error(ctx), "dout and dx"), "%s", ph_error(ctx));
    grads = b.grads;
    grads.dwq = b.w[0];
    CHECK(ph_layer_backward(b.layer, &b.weights, &b.args, &grads) == PH_BAD_ARGUMENT,
          "dwq = wq");
    must(ctx, ph_layer_backward(b.layer, &b.weights, &b.args, &b.grads));
    layer_bed_free(&b);
    ph_close(ctx);
}

static const check_case cases[] = {{"against_bytes", against_bytes},
                                   {"every_layout", every_layout},
                                   {"refused_attention", refused_attention},
                                   {"refused_layers", refused_layers},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
