/*
 * gqa.c - grouped-query and multi-query attention: q heads share key and value heads.
 *
 * They are head counts and nothing else, so ph_variant_take_heads takes them off the text
 * of a variant before a plan or a layer sees it.
 */
#include <string.h>

#include "base/ctx.h"
#include "variants/variants.h"

const ph_variant ph_variant_gqa = {
    .info = {.name = "gqa",
             .options = "gqa:G",
             .help =
                 "grouped-query attention: G heads of k and v; may stand before others "
                 "(gqa:2+talking)",
             .tensors = ""},
    .counts_heads = 1,
};

const ph_variant ph_variant_mqa = {
    .info = {.name = "mqa",
             .options = "mqa",
             .help = "multi-query attention: one head of k and v, as gqa:1",
             .tensors = ""},
    .counts_heads = 1,
};

static ph_status read_groups(ph_ctx *ctx, const ph_variant *v, const char *options,
                             int length, int *groups)
{
    char text[PH_VARIANT_MAX];
    double number = v == &ph_variant_mqa;
    const ph_variant_option list[] = {{.key = "",
                                       .number = &number,
                                       .least = 1,
                                       .most = 65536,
                                       .whole = 1,
                                       .words = "a number of heads"}};
    memcpy(text, options, (size_t)length);
    text[length] = 0;
    PH_TRY(ph_options_read(ctx, v->info.name, text, list, v == &ph_variant_gqa));
    if (number == 0)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "variant gqa has no number of heads, expected gqa:G");
    *groups = (int)number;
    return PH_OK;
}

static ph_status set_heads(ph_ctx *ctx, const char *name, int groups, int *heads)
{
    if (*heads && *heads != groups)
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "%s is %d, expected %d as the variant says (gqa, mqa)", name,
                       *heads, groups);
    *heads = groups;
    return PH_OK;
}

ph_status ph_variant_take_heads(ph_ctx *ctx, ph_attn *attn)
{
    const ph_variant *v;
    const char *text = attn->variant;
    int groups = 0;
    if (!text || strlen(text) >= PH_VARIANT_MAX) return PH_OK; /* refused later */
    PH_TRY(ph_variant_find(ctx, text, &v));
    if (!v->counts_heads) return PH_OK;
    size_t name = strlen(v->info.name), length = strcspn(text, "+");
    size_t skip = name + (name < length);
    PH_TRY(read_groups(ctx, v, text + skip, (int)(length - skip), &groups));
    PH_TRY(set_heads(ctx, "k_heads", groups, &attn->k_heads));
    PH_TRY(set_heads(ctx, "v_heads", groups, &attn->v_heads));
    attn->variant = text[length] ? text + length + 1 : "mha";
    return PH_OK;
}
