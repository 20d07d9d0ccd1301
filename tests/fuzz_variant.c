/*
 * fuzz_variant.c - any text as the variant of a layer and of attention alone.
 *
 * What is refused has a sentence; what is accepted has parameters of a legal shape, and
 * is accepted again.
 */
#include <string.h>

#include "fuzz.h"
#include "polyhead_layer.h"

static ph_ctx *open_ctx(void)
{
    static ph_ctx *ctx;
    ph_options options = {.threads = 1};
    if (!ctx) REQUIRE(ph_open(&ctx, &options) == PH_OK);
    return ctx;
}

static ph_attn attention(const char *variant)
{
    return (ph_attn){.batch = 1,
                     .q_heads = 4,
                     .k_heads = 4,
                     .v_heads = 4,
                     .q_len = 3,
                     .kv_len = 3,
                     .qk_dim = 4,
                     .v_dim = 4,
                     .variant = variant};
}

static void check_params(const ph_layer *layer)
{
    const ph_param *p;
    for (int i = 0; (p = ph_layer_param(layer, i)) != NULL; i++) {
        REQUIRE(p->name && p->rank >= 1 && p->rank <= 4);
        for (int d = 0; d < p->rank; d++) REQUIRE(p->dims[d] > 0);
        REQUIRE(p->unused <= ph_param_size(p));
    }
}

static ph_status try_layer(ph_ctx *ctx, const char *variant)
{
    ph_layer_desc desc = {.model_dim = 16, .attn = attention(variant)};
    ph_layer *layer;
    ph_status status = ph_layer_create(&layer, ctx, &desc);
    REQUIRE(status == PH_OK ? layer != NULL : layer == NULL && *ph_error(ctx));
    if (layer) check_params(layer);
    ph_layer_free(layer);
    return status;
}

static ph_status try_plan(ph_ctx *ctx, const char *variant)
{
    ph_attn attn = attention(variant);
    ph_plan *plan;
    ph_status status = ph_plan_create(&plan, ctx, &attn);
    REQUIRE(status == PH_OK ? plan != NULL : plan == NULL && *ph_error(ctx));
    for (int i = 0; plan && ph_plan_extra(plan, i); i++)
        REQUIRE(ph_plan_extra(plan, i)->name);
    ph_plan_free(plan);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ph_ctx *ctx = open_ctx();
    char *text = malloc(size + 1);
    REQUIRE(text);
    if (size) memcpy(text, data, size);
    text[size] = 0;
    REQUIRE(try_layer(ctx, text) == try_layer(ctx, text));
    REQUIRE(try_plan(ctx, text) == try_plan(ctx, text));
    free(text);
    return 0;
}
