/*
 * test_workspace.c - no scratch is smaller than what runs in it: layers whose token
 * counts, widths and routes differ from those their scratch was measured with, in memory
 * that ends at an unmapped page.
 */
#include "check.h"
#include "guard.h"
#include "layer_bed.h"

static ph_layer_desc describe(const char *variant, int heads, int v_heads, int dim,
                              int v_dim, int len)
{
    ph_layer_desc d = {.model_dim = heads * dim};
    d.attn = (ph_attn){.batch = 1,
                       .q_heads = heads,
                       .k_heads = heads,
                       .v_heads = v_heads,
                       .q_len = len,
                       .kv_len = len,
                       .qk_dim = dim,
                       .v_dim = v_dim,
                       .mask = PH_MASK_CAUSAL,
                       .variant = variant,
                       .backward = 1};
    return d;
}

static ph_ctx *open_guarded(const char *isa, int threads)
{
    ph_options o = guard_options(isa, threads);
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    return ctx;
}

/* `count` of the tokens go to the first routed head, the others to none of their own. */
static void route_to_one(layer_bed *b, int count)
{
    int at = layer_bed_find(b, "moh_wr"), dim = b->desc.model_dim;
    int routed = b->param[at]->dims[1];
    for (int i = 0; i < dim; i++) b->w[at][(size_t)i * (size_t)routed] = i ? 0 : 10;
    for (int t = 0; t < b->desc.attn.q_len; t++)
        b->x[(size_t)t * (size_t)dim] = t < count ? 10.0f : -10.0f;
}

static void run_guarded(const char *isa, int threads, const ph_layer_desc *d, int routed)
{
    layer_bed b;
    ph_ctx *ctx = open_guarded(isa, threads);
    CHECK(layer_bed_make(&b, ctx, d, check_seed) == PH_OK, "%s: %s", d->attn.variant,
          ph_error(ctx));
    if (routed) route_to_one(&b, routed);
    CHECK(layer_bed_run(&b) == PH_OK, "%s: %s", d->attn.variant, ph_error(ctx));
    for (size_t i = 0; i < b.out_count; i++)
        CHECK(b.out[i] == b.out[i], "%s: out has a NaN", d->attn.variant);
    for (size_t i = 0; i < b.x_count && d->attn.backward; i++)
        CHECK(b.dx[i] == b.dx[i], "%s: dx has a NaN", d->attn.variant);
    layer_bed_free(&b);
    ph_close(ctx);
}

/* A head may get any number of tokens, 320 of 600 too. */
static void tokens_of_one_head(void)
{
    ph_layer_desc d = describe("moh:shared=1,top=4", 24, 24, 64, 64, 600);
    d.attn.backward = 0;
    run_guarded(NULL, 1, &d, 320);
}

static void gated_remainder(void)
{
    ph_layer_desc d = describe("gated:element", 24, 24, 64, 64, 1521);
    run_guarded(NULL, 2, &d, 0);
}

static void diff_remainder(void)
{
    ph_layer_desc d = describe("diff", 24, 12, 64, 128, 1336);
    run_guarded(NULL, 1, &d, 0);
}

static const check_case cases[] = {{"tokens_of_one_head", tokens_of_one_head},
                                   {"gated_remainder", gated_remainder},
                                   {"diff_remainder", diff_remainder},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
