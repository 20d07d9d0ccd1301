/*
 * conversion.c - checks, the converted model, the report; see polyhead_convert.h.
 *
 * A second model is made beside the first, its attention is filled site by site, and in
 * the end the two exchange everything but what belongs to text, so that a conversion
 * which fails changes nothing.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/reserved.h"
#include "convert/convert.h"
#include "model/companions.h"

enum { NUMBER_MOST = 1 << 20 };

typedef enum target_kind { TO_MERGED, TO_MHA, TO_COLLAB, TO_VARIANT } target_kind;

typedef struct report_memory {
    ph_conversion_report public; /* first: it is what callers have */
    ph_chain chain;
} report_memory;

typedef struct conversion {
    ph_model *from, *to;
    const ph_conversion *how;
    ph_texts texts; /* count 0: none */
    target_kind kind;
    int number; /* of key and value heads, or the rank; 0: not known yet */
    ph_calibration calibration;
    report_memory *report;
    ph_converted_site *sites;
} conversion;

static ph_status each_site(conversion *c, ph_status (*step)(conversion *, int, int))
{
    for (int i = 0; i < c->from->stack_count; i++)
        for (int s = 0; s < c->from->stacks[i].count; s++)
            if (c->from->stacks[i].sublayers[s].kind != PH_SUBLAYER_FEED)
                PH_TRY(step(c, i, s));
    return PH_OK;
}

/* ---- what is asked for ------------------------------------------------------------- */

/* The number behind the ':' of "name:N"; -1: not that name, 0: no number. */
static int number_of(const char *text, const char *name)
{
    size_t length = strlen(name);
    char *end;
    if (strncmp(text, name, length) || (text[length] && text[length] != ':')) return -1;
    if (!text[length]) return 0;
    long number = strtol(text + length + 1, &end, 10);
    return *end || end == text + length + 1 || number < 1 || number > NUMBER_MOST
               ? 0
               : (int)number;
}

static ph_status read_target(conversion *c)
{
    const char *to = c->how->to;
    ph_ctx *ctx = c->from->ctx;
    int groups = number_of(to, "gqa"), rank = number_of(to, "collab");
    c->kind = TO_MERGED;
    if (!strcmp(to, "mqa")) groups = 1;
    if (!strcmp(to, "mha")) c->kind = TO_MHA, groups = c->from->config.heads;
    if (rank >= 0) c->kind = TO_COLLAB, groups = rank;
    c->number = groups;
    if (groups > 0 || (!strcmp(to, "collab") && c->how->error > 0)) return PH_OK;
    if (groups == 0)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "'%.40s' has no number from 1 to %d, expected gqa:G, collab:R, or "
                       "collab with an error",
                       to, NUMBER_MOST);
    c->kind = TO_VARIANT, c->number = 0;
    return ph_carry_check(ctx, to);
}

/* Plain heads, grouped or not. */
static int is_plain(const char *variant)
{
    return !strcmp(variant, "mha") || !strcmp(variant, "mqa") ||
           (!strncmp(variant, "gqa:", 4) && !strchr(variant, '+'));
}

/* A variant stays with the key and value heads that there are: the same in all layers. */
static ph_status check_same_kv(conversion *c, int kv)
{
    if (!c->number) c->number = kv;
    if (c->number == kv) return PH_OK;
    return ph_fail(c->from->ctx, PH_UNSUPPORTED,
                   "layers have %d and %d key and value heads, expected the same number "
                   "in all of them: convert to mha first",
                   c->number, kv);
}

/* Whether its heads are plain and all there, and can be merged to so many. */
static ph_status check_site(conversion *c, int stack_index, int index)
{
    const ph_model_stack *stack = &c->from->stacks[stack_index];
    const ph_sublayer *sublayer = &stack->sublayers[index];
    ph_ctx *ctx = c->from->ctx;
    if (sublayer->original)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "heads of layer %d were removed, expected a model with all of its "
                       "heads",
                       sublayer->layer);
    if (!is_plain(sublayer->variant))
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "attention of layer %d is %s, expected mha, gqa or mqa",
                       sublayer->layer, sublayer->variant);
    ph_layer_desc d = ph_model_layer(c->from, stack, sublayer, 1, 1, 1);
    int kv = d.attn.k_heads ? d.attn.k_heads : d.attn.q_heads;
    if (c->kind != TO_VARIANT && c->from->config.qk_norm_whole)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "the model normalises all keys of a token together "
                       "(qk_norm_whole), which fewer or more of them change");
    if (c->from->config.layer_groups)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "layers of the model share parameters (layer_groups), expected "
                       "one whose layers have their own");
    if (c->kind == TO_VARIANT) return check_same_kv(c, kv);
    if (c->kind != TO_MERGED || (c->number <= kv && kv % c->number == 0)) return PH_OK;
    return ph_fail(
        ctx, PH_BAD_ARGUMENT,
        "%d key and value heads cannot be merged to %d, expected a number that "
        "divides %d",
        kv, c->number, kv);
}

/* What a decomposition of the scores cannot express. */
static ph_status check_collab(const conversion *c)
{
    const ph_config *config = &c->from->config;
    ph_ctx *ctx = c->from->ctx;
    int biased = (config->no_bias & (PH_NO_BIAS_Q | PH_NO_BIAS_K)) !=
                 (PH_NO_BIAS_Q | PH_NO_BIAS_K);
    int width = ph_config_heads_width(config);
    if (config->positions == PH_POS_ROPE)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "the model has rotary positions, with which no shared query and "
                       "key exist: scores depend on the distance of tokens");
    if (config->qk_norm)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "the model normalises queries and keys of each head, which a "
                       "shared query and key cannot do");
    if (config->attn_softcap > 0 && biased)
        return ph_fail(ctx, PH_UNSUPPORTED,
                       "the model caps its scores and has biases of keys, which only a "
                       "softmax of uncapped scores ignores");
    if (c->number > width)
        return ph_fail(
            ctx, PH_BAD_ARGUMENT,
            "the rank is %d, expected 1 to %d: all heads together have no more",
            c->number, width);
    return PH_OK;
}

static ph_status check(conversion *c)
{
    const ph_conversion *how = c->how;
    ph_ctx *ctx = c->from->ctx;
    PH_CHECK_RESERVED(ctx, "ph_texts", c->texts.reserved);
    if (c->texts.count < 0 || (c->texts.count && !c->texts.texts))
        return ph_fail(ctx, PH_BAD_ARGUMENT, "there are %d texts, or texts is NULL",
                       c->texts.count);
    PH_CHECK_RESERVED(ctx, "ph_conversion", how->reserved);
    if (!memchr(how->to, 0, sizeof how->to))
        return ph_fail(ctx, PH_BAD_ARGUMENT, "to is no text that ends with 0");
    if ((unsigned)how->align > PH_ALIGN_NONE ||
        (unsigned)how->group > PH_GROUP_CONSECUTIVE ||
        (unsigned)how->merge > PH_MERGE_RANDOM || how->max_tokens < 0 ||
        !(how->error >= 0))
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "align %d, group %d, merge %d, max_tokens %d or error %g is "
                       "unknown",
                       (int)how->align, (int)how->group, (int)how->merge, how->max_tokens,
                       how->error);
    PH_TRY(read_target(c));
    PH_TRY(each_site(c, check_site));
    return c->kind == TO_COLLAB ? check_collab(c) : PH_OK;
}

/* ---- the new model ----------------------------------------------------------------- */

static ph_config new_config(const conversion *c)
{
    ph_config n = c->from->config;
    int content = !(n.no_bias & PH_NO_BIAS_Q);
    char *const variants[2] = {n.variant, n.cross};
    int counted = c->kind == TO_MERGED || c->kind == TO_VARIANT;
    n.kv_heads = counted ? c->number : n.heads;
    for (int i = 0; i < 2; i++) {
        if (!variants[i][0]) continue;
        if (c->kind == TO_COLLAB)
            snprintf(variants[i], PH_VARIANT_TEXT, "collab:dim=%d%s", c->number,
                     content ? ",content=1" : "");
        else
            strcpy(variants[i], c->kind == TO_VARIANT ? c->how->to : "mha");
    }
    if (c->kind != TO_COLLAB) return n;
    n.no_bias |= PH_NO_BIAS_Q | PH_NO_BIAS_K;
    if (n.attn_scale == 0) n.attn_scale = (float)(1 / sqrt((double)n.head_dim));
    return n;
}

/* Matrices of attention that keep their size are among what is copied here, and
   overwritten later. */
static ph_status make_model(conversion *c)
{
    ph_config config = new_config(c);
    PH_TRY(ph_model_shape(&c->to, c->from->ctx, &config, NULL, PH_SPLIT_WORDS, NULL, 0));
    PH_TRY(ph_model_allocate(c->to));
    ph_model_copy_same(c->from, c->to);
    return PH_OK;
}

/* ---- sites ------------------------------------------------------------------------- */

static ph_convert_site site_of(const conversion *c, int stack, int sublayer)
{
    const ph_sublayer *old = &c->from->stacks[stack].sublayers[sublayer];
    int cross = old->kind == PH_SUBLAYER_CROSS;
    const double *gram = c->calibration.grams[old->site];
    return (ph_convert_site){
        .from = c->from,
        .to = c->to,
        .old = old,
        .new = c->to ? &c->to->stacks[stack].sublayers[sublayer] : NULL,
        .query_gram = gram,
        .key_gram = cross ? c->calibration.memory_gram : gram,
        .rotary = !cross && c->from->config.positions == PH_POS_ROPE};
}

/* One rank for all layers: what the worst of them needs. */
static ph_status find_rank(conversion *c, int stack, int sublayer)
{
    ph_convert_site site = site_of(c, stack, sublayer);
    int rank;
    PH_TRY(ph_collab_rank(&site, c->how->error, &rank));
    c->number = ph_max(c->number, rank);
    return PH_OK;
}

static ph_status convert_site(conversion *c, int stack, int sublayer)
{
    ph_convert_site site = site_of(c, stack, sublayer);
    const ph_sublayer *old = site.old;
    ph_converted_site *report = &c->sites[old->site];
    int cross = old->kind == PH_SUBLAYER_CROSS, *group_of = NULL;
    *report = (ph_converted_site){.kind = cross ? PH_SITE_CROSS : PH_SITE_SELF,
                                  .decoder = c->from->stacks[stack].causal,
                                  .layer = old->layer,
                                  .key_norm = 1,
                                  .value_norm = 1};
    if (c->kind == TO_MHA) return ph_copy_heads(&site);
    if (c->kind == TO_COLLAB) return ph_collaborate(&site, report);
    if (c->kind == TO_VARIANT) {
        report->key_error = report->value_error = NAN;
        ph_carry_over(&site, c->how->seed);
        return PH_OK;
    }
    PH_TRY(ph_chain_take(&c->report->chain, (size_t)c->from->config.heads,
                         sizeof *group_of, &group_of));
    report->group_of = group_of;
    return ph_merge_heads(&site, c->how, group_of, report);
}

/* ---- the report -------------------------------------------------------------------- */

/* Bytes that are cached for a token in all layers: keys, values, and what a variant adds.
   An encoder caches nothing; as a decoder it would need as much. */
static ph_status count_kv(const ph_model *m, int64_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < m->stack_count; i++)
        for (int s = 0; s < m->stacks[i].count; s++) {
            const ph_sublayer *sublayer = &m->stacks[i].sublayers[s];
            ph_layer *layer;
            if (sublayer->kind == PH_SUBLAYER_FEED) continue;
            ph_layer_desc d = ph_model_layer(m, &m->stacks[i], sublayer, 1, 1, 1);
            d.cache = 1;
            PH_TRY(ph_layer_create(&layer, m->ctx, &d));
            ph_layer_caches cached = ph_layer_cache(layer);
            *bytes += (int64_t)(cached.k + cached.v + cached.extra);
            ph_layer_free(layer);
        }
    return PH_OK;
}

static ph_status open_report(conversion *c)
{
    ph_ctx *ctx = c->from->ctx;
    size_t sites = (size_t)c->from->site_count;
    c->report = ph_ctx_alloc(ctx, sizeof *c->report);
    if (!c->report) return ph_fail(ctx, PH_OUT_OF_MEMORY, "no memory for a conversion");
    *c->report = (report_memory){.chain = {.ctx = ctx}};
    PH_TRY(ph_chain_take(&c->report->chain, sites, sizeof *c->sites, &c->sites));
    c->report->public.site_count = (int)sites;
    c->report->public.sites = c->sites;
    return PH_OK;
}

void ph_conversion_report_free(ph_conversion_report *report)
{
    if (!report) return;
    report_memory *memory = (report_memory *)report;
    ph_ctx *ctx = memory->chain.ctx;
    ph_chain_free(&memory->chain);
    ph_ctx_release(ctx, memory);
}

/* ---- all of it --------------------------------------------------------------------- */

static ph_status convert(conversion *c)
{
    const ph_texts *texts = c->texts.count ? &c->texts : NULL;
    double nothing;
    PH_TRY(ph_model_check_finite(c->from));
    PH_TRY(open_report(c));
    ph_conversion_report *r = &c->report->public;
    PH_TRY(ph_calibrate(&c->calibration, c->from, texts, c->how->max_tokens));
    PH_TRY(ph_calibration_test(&c->calibration, c->from, &r->loss, &nothing));
    if (!c->number) PH_TRY(each_site(c, find_rank));
    PH_TRY(make_model(c));
    PH_TRY(each_site(c, convert_site));
    PH_TRY(ph_model_check_finite(c->to));
    PH_TRY(ph_calibration_test(&c->calibration, c->to, &r->converted_loss, &r->distance));
    PH_TRY(count_kv(c->from, &r->kv_bytes));
    PH_TRY(count_kv(c->to, &r->converted_kv_bytes));
    r->parameters = ph_model_parameters(c->from);
    r->converted_parameters = ph_model_parameters(c->to);
    r->tokens = c->calibration.tokens, r->test_tokens = c->calibration.test_tokens;
    if (c->from->checkpoint) PH_TRY(ph_companions_keep(c->from, c->from->checkpoint));
    ph_model_exchange(c->from, c->to);
    return PH_OK;
}

static ph_status run(conversion *c, ph_conversion_report **report)
{
    PH_TRY(check(c));
    ph_status status = convert(c);
    ph_calibration_free(&c->calibration);
    ph_model_free(c->to);
    if (status == PH_OK && report)
        *report = &c->report->public;
    else if (c->report)
        ph_conversion_report_free(&c->report->public);
    return status;
}

ph_status ph_convert(ph_model *model, const ph_conversion *how, const ph_texts *texts,
                     ph_conversion_report **report)
{
    if (report) *report = NULL;
    if (!model) return PH_BAD_ARGUMENT;
    if (!how) return ph_ctx_null(model->ctx, "how");
    conversion c = {.from = model, .how = how};
    if (texts) c.texts = *texts;
    return PH_WITHIN(model->ctx, run(&c, report));
}
