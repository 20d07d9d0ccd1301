/*
 * variants.c - finds variants by name, and takes "kind:options+core:options" apart.
 */
#include "variants/variants.h"

#include <stdio.h>
#include <string.h>

#include "base/ctx.h"

static const ph_variant *const variants[] = {
#define VARIANT(name) &ph_variant_##name,
#include "variants/list.h"
#undef VARIANT
};

enum { VARIANTS = sizeof variants / sizeof variants[0] };

const ph_variant *ph_variant_at(int i)
{
    return i >= 0 && i < VARIANTS ? variants[i] : NULL;
}

ph_status ph_variant_find(ph_ctx *ctx, const char *text, const ph_variant **out)
{
    size_t length = strcspn(text, ":+");
    char known[256] = "";
    for (int i = 0; i < VARIANTS; i++) {
        const char *name = variants[i]->info.name;
        *out = variants[i];
        if (strlen(name) == length && !memcmp(name, text, length)) return PH_OK;
    }
    if (length == 0)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "variant has an empty part, expected names around '+'");
    for (int i = 0, n = 0; i < VARIANTS && n < (int)sizeof known; i++)
        n += snprintf(known + n, sizeof known - (size_t)n, "%s%s", i ? ", " : "",
                      variants[i]->info.name);
    return ph_fail(ctx, PH_UNSUPPORTED, "variant is \"%.64s\", this build has: %s", text,
                   known);
}

/* Up to the next '+' that is not part of a number. */
size_t ph_variant_part(const char *text)
{
    size_t n = strcspn(text, "+");
    while (text[n] && text[n + 1] >= '0' && text[n + 1] <= '9')
        n += 1 + strcspn(text + n + 1, "+");
    return n;
}

/* One part of the text, `length` characters. */
static ph_status take_part(ph_ctx *ctx, const char *part, size_t length,
                           ph_variant_parts *parts)
{
    const ph_variant *variant;
    PH_TRY(ph_variant_find(ctx, part, &variant));
    size_t name = strlen(variant->info.name), skip = name + (name < length);
    if (variant->setup) {
        size_t used = strlen(parts->core);
        snprintf(parts->core + used, sizeof parts->core - used, "%s%.*s", used ? "+" : "",
                 (int)length, part);
    }
    if (!variant->layer) return PH_OK;
    if (parts->kind)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "variants %s and %s both change the layer, expected one of them",
                       parts->kind->info.name, variant->info.name);
    parts->kind = variant;
    snprintf(parts->options, sizeof parts->options, "%.*s", (int)(length - skip),
             part + skip);
    return PH_OK;
}

ph_status ph_variant_split(ph_ctx *ctx, const char *text, ph_variant_parts *parts)
{
    *parts = (ph_variant_parts){0};
    if (!text) text = "mha";
    if (strlen(text) >= sizeof parts->core)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "variant has %zu characters, expected %zu",
                       strlen(text), sizeof parts->core - 1);
    for (size_t length = 0;; text += length + 1) {
        length = ph_variant_part(text);
        PH_TRY(take_part(ctx, text, length, parts));
        if (!text[length]) break;
    }
    if (!parts->core[0]) strcpy(parts->core, "mha");
    return PH_OK;
}
