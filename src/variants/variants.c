/*
 * variants.c - finds variants by name, and parses "kind:options+core:options".
 */
#include "variants/variants.h"

#include <stdio.h>
#include <string.h>

#include "base/ctx.h"
#include "variants/kind.h"

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

/* Length of the first part: up to the next '+' that is not part of a number. */
static size_t part_length(const char *text)
{
    size_t n = strcspn(text, "+");
    while (text[n] && text[n + 1] >= '0' && text[n + 1] <= '9')
        n += 1 + strcspn(text + n + 1, "+");
    return n;
}

typedef struct variant_part {
    const ph_variant *variant;
    const char *text, *options;
    int length, options_length;
} variant_part;

typedef ph_status take_part(ph_ctx *ctx, const variant_part *p, void *to);

/* Calls take for every variant of the text. */
static ph_status each_part(ph_ctx *ctx, const char *text, take_part *take, void *to)
{
    if (!text) text = "mha";
    if (strlen(text) >= PH_VARIANT_MAX)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "variant has %zu characters, expected at most %d", strlen(text),
                       PH_VARIANT_MAX - 1);
    for (;;) {
        variant_part p = {.text = text, .length = (int)part_length(text)};
        PH_TRY(ph_variant_find(ctx, text, &p.variant));
        if (p.variant->counts_heads)
            return ph_fail(ctx, PH_UNSUPPORTED,
                           "variant %s stands behind another, expected it first",
                           p.variant->info.name);
        int name = (int)strlen(p.variant->info.name), skip = name + (name < p.length);
        p.options = text + skip, p.options_length = p.length - skip;
        PH_TRY(take(ctx, &p, to));
        text += p.length;
        if (!*text++) return PH_OK;
    }
}

static ph_status not_alone(ph_ctx *ctx)
{
    return ph_fail(ctx, PH_UNSUPPORTED,
                   "variant mha combines with no other, expected it alone");
}

/* ---- of a layer ---- */

static ph_status take_layer(ph_ctx *ctx, const variant_part *p, void *to)
{
    static const char *const does[] = {"change the layer", "gate the output of heads"};
    ph_variant_parts *parts = to;
    size_t used = strlen(parts->core);
    if (p->variant->setup)
        snprintf(parts->core + used, sizeof parts->core - used, "%s%.*s", used ? "+" : "",
                 p->length, p->text);
    if (!p->variant->layer) return PH_OK;
    int place = p->variant->layer->behind;
    if (parts->kind[place])
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "variants %s and %s both %s, expected one of them",
                       parts->kind[place]->info.name, p->variant->info.name, does[place]);
    parts->kind[place] = p->variant;
    snprintf(parts->options[place], sizeof parts->options[place], "%.*s",
             p->options_length, p->options);
    return PH_OK;
}

ph_status ph_variant_split(ph_ctx *ctx, const char *text, ph_variant_parts *parts)
{
    *parts = (ph_variant_parts){0};
    PH_TRY(each_part(ctx, text, take_layer, parts));
    if (!strcmp(parts->core, "mha") && (parts->kind[0] || parts->kind[1]))
        return not_alone(ctx);
    if (!parts->core[0]) strcpy(parts->core, "mha");
    return PH_OK;
}

/* ---- of a plan ---- */

static int is_plain(const ph_variant *v)
{
    return v && !v->row_matrix && !v->alpha;
}

static ph_status take_core(ph_ctx *ctx, const variant_part *p, void *to)
{
    static const char *const does[PH_STAGES] = {"mix heads", "normalise rows"};
    const ph_variant *variant = p->variant;
    ph_core *core = to;
    int role = variant->alpha ? PH_STAGE_NORM : PH_STAGE_MIX;
    const ph_variant *same = core->variant[role], *other = core->variant[!role];
    if (!variant->setup)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "variant %s changes the projections of a layer, expected one that "
                       "works on q, k and v",
                       variant->info.name);
    if (is_plain(same) || is_plain(other) || (is_plain(variant) && (same || other)))
        return not_alone(ctx);
    if (same)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "variants %s and %s both %s, expected one of them",
                       same->info.name, variant->info.name, does[role]);
    core->variant[role] = variant;
    snprintf(core->options[role], sizeof core->options[role], "%.*s", p->options_length,
             p->options);
    return PH_OK;
}

ph_status ph_variant_core(ph_ctx *ctx, const char *text, ph_core *core)
{
    *core = (ph_core){0};
    return each_part(ctx, text, take_core, core);
}
