/*
 * config.c - the configuration of a model: JSON fields, defaults, checks.
 */
#include <math.h>
#include <string.h>

#include "base/reserved.h"
#include "model/fields.h"
#include "model/model.h"

static const char *const arch_names[] = {"encoder", "decoder", "encoder-decoder", NULL};
static const char *const place_names[] = {"pre", "post", "sandwich", "output", NULL};
static const char *const norm_names[] = {"layer", "rms", NULL};
static const char *const activation_names[] = {"gelu",  "relu", "swiglu",    "gelu_erf",
                                               "geglu", "silu", "geglu_erf", NULL};
static const char *const position_names[] = {
    "sinusoidal", "learned", "rope", "alibi", "none", "t5", "sinusoidal_halves",
    "learned_t5", NULL};

static const char *const pooling_names[] = {"none", "first",     "mean",     "max",
                                            "last", "mean_sqrt", "weighted", NULL};
static const char *const pooler_names[] = {"none", "tanh", "relu", "identity",
                                           "gelu", NULL};
static const char *const problem_names[] = {"single_label", "multi_label", "regression",
                                            NULL};
static const char *const scaling_names[] = {"none", "linear", "llama3",
                                            "yarn", "longrope", NULL};
static const char *const bias_names[] = {"q", "k", "v", "o", "ff", "norm", NULL};

#define AT(member) offsetof(ph_config, member)

enum { IMAGE_MOST = 1 << 14 };

static const ph_field fields[] = {
    {"arch", PH_FIELD_NAME, AT(arch), 0, 0, arch_names},
    {"image_size", PH_FIELD_INT, AT(image_size), 0, IMAGE_MOST, NULL},
    {"patch_size", PH_FIELD_INT, AT(patch_size), 0, IMAGE_MOST, NULL},
    {"channels", PH_FIELD_INT, AT(channels), 0, 64, NULL},
    {"class_tokens", PH_FIELD_INT, AT(class_tokens), 0, PH_CLASS_TOKENS, NULL},
    {"vocab", PH_FIELD_INT, AT(vocab), 0, 1 << 24, NULL},
    {"layers", PH_FIELD_INT, AT(layers), 1, 1000, NULL},
    {"layer_groups", PH_FIELD_INT, AT(layer_groups), 0, 1000, NULL},
    {"decoder_layers", PH_FIELD_INT, AT(decoder_layers), 0, 1000, NULL},
    {"model_dim", PH_FIELD_INT, AT(model_dim), 1, 1 << 16, NULL},
    {"heads", PH_FIELD_INT, AT(heads), 1, 1 << 12, NULL},
    {"kv_heads", PH_FIELD_INT, AT(kv_heads), 0, 1 << 12, NULL},
    {"head_dim", PH_FIELD_INT, AT(head_dim), 0, 1 << 12, NULL},
    {"ff_dim", PH_FIELD_INT, AT(ff_dim), 0, 1 << 18, NULL},
    {"max_len", PH_FIELD_INT, AT(max_len), 1, 1 << 20, NULL},
    {"encoder_len", PH_FIELD_INT, AT(encoder_len), 0, 1 << 20, NULL},
    {"mels", PH_FIELD_INT, AT(mels), 0, 1 << 12, NULL},
    {"norm_place", PH_FIELD_NAME, AT(norm_place), 0, 0, place_names},
    {"parallel", PH_FIELD_BOOL, AT(parallel), 0, 0, NULL},
    {"norm", PH_FIELD_NAME, AT(norm), 0, 0, norm_names},
    {"activation", PH_FIELD_NAME, AT(activation), 0, 0, activation_names},
    {"positions", PH_FIELD_NAME, AT(positions), 0, 0, position_names},
    {"position_offset", PH_FIELD_INT, AT(position_offset), 0, 1 << 20, NULL},
    {"buckets", PH_FIELD_INT, AT(buckets), 0, 1 << 12, NULL},
    {"bucket_distance", PH_FIELD_INT, AT(bucket_distance), 0, 1 << 16, NULL},
    {"types", PH_FIELD_INT, AT(types), 0, 1 << 16, NULL},
    {"embed_norm", PH_FIELD_BOOL, AT(embed_norm), 0, 0, NULL},
    {"embed_dim", PH_FIELD_INT, AT(embed_dim), 0, 1 << 16, NULL},
    {"tied", PH_FIELD_NOT, AT(untied), 0, 0, NULL},
    {"output_bias", PH_FIELD_BOOL, AT(output_bias), 0, 0, NULL},
    {"no_output", PH_FIELD_BOOL, AT(no_output), 0, 0, NULL},
    {"bias", PH_FIELD_SET, AT(no_bias), 0, PH_NO_BIAS, bias_names},
    {"depth_scaled", PH_FIELD_BOOL, AT(depth_scaled), 0, 0, NULL},
    {"dropout", PH_FIELD_REAL, AT(dropout), 0, 0, NULL},
    {"norm_eps", PH_FIELD_REAL, AT(norm_eps), 0, 0, NULL},
    {"embed_scale", PH_FIELD_REAL, AT(embed_scale), 0, 0, NULL},
    {"output_scale", PH_FIELD_REAL, AT(output_scale), 0, 0, NULL},
    {"output_softcap", PH_FIELD_REAL, AT(output_softcap), 0, 0, NULL},
    {"attn_scale", PH_FIELD_REAL, AT(attn_scale), 0, 0, NULL},
    {"scale_by_layer", PH_FIELD_BOOL, AT(scale_by_layer), 0, 0, NULL},
    {"attn_softcap", PH_FIELD_REAL, AT(attn_softcap), 0, 0, NULL},
    {"qk_norm", PH_FIELD_BOOL, AT(qk_norm), 0, 0, NULL},
    {"qk_norm_whole", PH_FIELD_BOOL, AT(qk_norm_whole), 0, 0, NULL},
    {"rope_interleaved", PH_FIELD_BOOL, AT(rope_interleaved), 0, 0, NULL},
    {"rope_local_base", PH_FIELD_REAL, AT(rope_local_base), 0, 0, NULL},
    {"rope_base", PH_FIELD_REAL, AT(rope_base), 0, 0, NULL},
    {"rope_dims", PH_FIELD_INT, AT(rope_dims), 0, 1 << 12, NULL},
    {"rope_scaling", PH_FIELD_NAME, AT(rope_scaling), 0, 0, scaling_names},
    {"rope_factor", PH_FIELD_REAL, AT(rope_factor), 0, 0, NULL},
    {"rope_length", PH_FIELD_INT, AT(rope_length), 0, 1 << 30, NULL},
    {"rope_low", PH_FIELD_REAL, AT(rope_low), 0, 0, NULL},
    {"rope_high", PH_FIELD_REAL, AT(rope_high), 0, 0, NULL},
    {"rope_scale", PH_FIELD_REAL, AT(rope_scale), 0, 0, NULL},
    {"yarn_untruncated", PH_FIELD_BOOL, AT(yarn_untruncated), 0, 0, NULL},
    {"rope_divisors", PH_FIELD_REALS, AT(rope_divisors), 0, PH_ROPE_PAIRS, NULL},
    {"rope_layers", PH_FIELD_TEXT, AT(rope_layers), 0, PH_WINDOW_TEXT, NULL},
    {"window", PH_FIELD_INT, AT(window), 0, 1 << 30, NULL},
    {"window_from", PH_FIELD_INT, AT(window_from), 0, 1000, NULL},
    {"window_period", PH_FIELD_INT, AT(window_period), 0, 1000, NULL},
    {"window_layers", PH_FIELD_TEXT, AT(window_layers), 0, PH_WINDOW_TEXT, NULL},
    {"masked", PH_FIELD_BOOL, AT(masked), 0, 0, NULL},
    {"pooling", PH_FIELD_NAME, AT(pooling), 0, 0, pooling_names},
    {"pooling_2", PH_FIELD_NAME, AT(pooling_more[0]), 0, 0, pooling_names},
    {"pooling_3", PH_FIELD_NAME, AT(pooling_more[1]), 0, 0, pooling_names},
    {"pooling_4", PH_FIELD_NAME, AT(pooling_more[2]), 0, 0, pooling_names},
    {"pooler", PH_FIELD_NAME, AT(pooler), 0, 0, pooler_names},
    {"pooler_dim", PH_FIELD_INT, AT(pooler_dim), 0, 1 << 16, NULL},
    {"pooler_norm", PH_FIELD_BOOL, AT(pooler_norm), 0, 0, NULL},
    {"unit_norm", PH_FIELD_BOOL, AT(unit_norm), 0, 0, NULL},
    {"pool_len", PH_FIELD_INT, AT(pool_len), 0, 1 << 20, NULL},
    {"classes", PH_FIELD_INT, AT(classes), 0, 1 << 24, NULL},
    {"no_dense_bias", PH_FIELD_BOOL, AT(no_dense_bias), 0, 0, NULL},
    {"no_head_bias", PH_FIELD_BOOL, AT(no_head_bias), 0, 0, NULL},
    {"problem_type", PH_FIELD_NAME, AT(problem_type), 0, 0, problem_names},
    {"multi_label", PH_FIELD_OLDER, AT(problem_type), 0, 0, NULL},
    {"distilled", PH_FIELD_BOOL, AT(distilled), 0, 0, NULL},
    {"variant", PH_FIELD_TEXT, AT(variant), 0, PH_VARIANT_TEXT, NULL},
    {"cross", PH_FIELD_TEXT, AT(cross), 0, PH_VARIANT_TEXT, NULL}};

enum { FIELDS = sizeof fields / sizeof fields[0] };

int ph_config_print(const ph_config *config, char *text, size_t size)
{
    return ph_fields_print(fields, FIELDS, config, text, size);
}

ph_status ph_config_read(ph_ctx *ctx, ph_config *config, char *text, size_t length)
{
    memset(config, 0, sizeof *config);
    return ph_fields_read(ctx, "the configuration", fields, FIELDS, config, text, length);
}

const char *ph_config_differs(const ph_config *a, const ph_config *b)
{
    for (int i = 0; i < FIELDS; i++) {
        const char *x = (const char *)a + fields[i].at,
                   *y = (const char *)b + fields[i].at;
        int text = fields[i].kind == PH_FIELD_TEXT;
        int count = fields[i].kind == PH_FIELD_REALS ? fields[i].most : 1;
        if (text ? strcmp(x, y) != 0 : memcmp(x, y, (size_t)count * sizeof(int)) != 0)
            return fields[i].name;
    }
    return NULL;
}

/* An entry beyond the last layer would never be used. */
static ph_status check_entries(ph_ctx *ctx, const char *name, const char *list,
                               int layers)
{
    int entries = 1;
    for (const char *at = list; (at = strchr(at, ';')); at++) entries++;
    if (entries > layers)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "%s has %d entries, expected at most one for each of %d layers",
                       name, entries, layers);
    return PH_OK;
}

static int most_layers(const ph_config *c)
{
    int decoder = c->arch == PH_ARCH_ENCODER_DECODER && c->decoder_layers > c->layers;
    return decoder ? c->decoder_layers : c->layers;
}

/* A float that must be finite and at least `least`. */
static ph_status check_real(ph_ctx *ctx, const char *name, float value, double least)
{
    if ((double)value >= least && isfinite(value)) return PH_OK;
    return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is %g, expected a number of at least %g",
                   name, (double)value, least);
}

/* The fields of rope are checked by the layer. */
static ph_status check_reals(ph_ctx *ctx, ph_config *c)
{
    if (c->norm_eps == 0) c->norm_eps = 1e-5f;
    if (c->embed_scale == 0) c->embed_scale = sqrtf((float)c->model_dim);
    if (c->output_scale == 0) c->output_scale = 1;
    PH_TRY(check_real(ctx, "norm_eps", c->norm_eps, 0));
    PH_TRY(check_real(ctx, "embed_scale", c->embed_scale, 0));
    PH_TRY(check_real(ctx, "output_scale", c->output_scale, 0));
    PH_TRY(check_real(ctx, "output_softcap", c->output_softcap, 0));
    PH_TRY(check_real(ctx, "attn_scale", c->attn_scale, 0));
    PH_TRY(check_real(ctx, "attn_softcap", c->attn_softcap, 0));
    PH_TRY(check_real(ctx, "rope_local_base", c->rope_local_base, 0));
    if (!(c->dropout >= 0) || c->dropout >= 1)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "dropout is %g, expected 0 up to below 1",
                       (double)c->dropout);
    return PH_OK;
}

/* Pictures are cut into whole patches, and a row of the encoder is a patch. */
static ph_status check_pictures(ph_ctx *ctx, ph_config *c)
{
    if (!c->image_size && c->vocab < 1)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "vocab is %d, expected 1 at least",
                       c->vocab);
    int wrong = c->image_size < 0 || c->image_size > IMAGE_MOST || c->class_tokens < 0 ||
                c->class_tokens > PH_CLASS_TOKENS;
    if (!c->image_size || wrong) return PH_OK; /* ph_fields_check says so */
    if (!c->channels) c->channels = 3;
    if (c->patch_size < 1 || c->image_size % c->patch_size)
        return ph_fail(ctx, PH_BAD_SHAPE,
                       "image_size %d is no multiple of patch_size %d, expected one",
                       c->image_size, c->patch_size);
    if (c->arch != PH_ARCH_ENCODER || c->vocab || c->masked || c->types ||
        !(c->classes || c->pooling))
        return ph_fail(
            ctx, PH_BAD_ARGUMENT,
            "image_size is %d, expected an encoder with classes or pooling and "
            "nothing of tokens: vocab, types, masked",
            c->image_size);
    int side = c->image_size / c->patch_size, rows = side * side + c->class_tokens;
    if (!c->max_len) c->max_len = rows;
    if (c->max_len == rows) return PH_OK;
    return ph_fail(ctx, PH_BAD_SHAPE, "max_len is %d, but a picture has %d rows",
                   c->max_len, rows);
}

/* One divisor for each pair that is rotated with longrope, none otherwise. */
static int has_divisors(const ph_config *c)
{
    int count = PH_ROPE_PAIRS, pairs = (c->rope_dims ? c->rope_dims : c->head_dim) / 2;
    while (count && c->rope_divisors[count - 1] == 0) count--;
    return count == (c->rope_scaling == PH_ROPE_LONGROPE ? pairs : 0);
}

/* Fields that mean nothing without another one. */
static ph_status check_together(ph_ctx *ctx, const ph_config *c)
{
    int one_stack =
        c->arch == PH_ARCH_ENCODER || (c->arch == PH_ARCH_DECODER && c->no_output);
    const struct {
        const char *name, *expected;
        int wrong;
    } all[] = {
        {"layer_groups",
         "an encoder with norms after sublayers, layers that are a multiple of it, and "
         "one variant for all",
         c->layer_groups &&
             (c->arch != PH_ARCH_ENCODER || c->norm_place != PH_POST_NORM ||
              c->layers % c->layer_groups || strchr(c->variant, ';'))},
        {"embed_norm", "sublayers that are not parallel", c->embed_norm && c->parallel},
        {"parallel", "pre-norm and one stack",
         c->parallel &&
             (c->norm_place != PH_PRE_NORM || c->arch == PH_ARCH_ENCODER_DECODER)},
        {"embed_dim", "an encoder of tokens with embed_norm",
         c->embed_dim && (c->arch != PH_ARCH_ENCODER || !c->embed_norm || c->image_size)},
        {"position_offset", "learned positions",
         c->position_offset && !ph_config_learned(c)},
        {"buckets", "T5 positions", c->buckets && !ph_config_bucketed(c)},
        {"bucket_distance", "T5 positions", c->bucket_distance && !ph_config_bucketed(c)},
        {"qk_norm_whole", "qk_norm", c->qk_norm_whole && !c->qk_norm},
        {"rope_dims", "rope positions and at most head_dim",
         c->rope_dims && (c->positions != PH_POS_ROPE || c->rope_dims > c->head_dim)},
        {"rope_divisors", "rope_scaling longrope, and as many as there are pairs",
         !has_divisors(c)},
        {"rope_layers", "rope positions and the letters r and n alone",
         *c->rope_layers && (c->positions != PH_POS_ROPE ||
                             c->rope_layers[strspn(c->rope_layers, "rn")])},
        {"rope_local_base", "a window and rope positions",
         c->rope_local_base != 0 && !(c->window && c->positions == PH_POS_ROPE)},
        {"window_layers", "a window and the letters s and f alone",
         *c->window_layers && (!c->window || c->window_from || c->window_period ||
                               c->window_layers[strspn(c->window_layers, "sf")])},
        {"encoder_len", "an encoder-decoder",
         c->encoder_len && c->arch != PH_ARCH_ENCODER_DECODER},
        {"mels", "an encoder-decoder without types",
         c->mels && (c->arch != PH_ARCH_ENCODER_DECODER || c->types)},
        {"output_bias", "a decoder", c->output_bias && c->arch == PH_ARCH_ENCODER},
        {"no_output", "a decoder and the embeddings alone",
         c->no_output && (c->arch == PH_ARCH_ENCODER || c->untied || c->output_bias)},
        {"output_softcap", "scores of tokens",
         c->output_softcap != 0 &&
             (c->no_output || (c->arch == PH_ARCH_ENCODER && !c->masked))},
        {"masked", "an encoder", c->masked && c->arch != PH_ARCH_ENCODER},
        {"pooling", "an encoder, or a decoder with no_output", c->pooling && !one_stack},
        {"classes", "an encoder, or a decoder with no_output", c->classes && !one_stack},
        {"no_dense_bias", "a pooler or masked tokens",
         c->no_dense_bias && !c->pooler && !c->masked},
        {"no_head_bias", "classes or masked tokens",
         c->no_head_bias && !c->classes && !c->masked},
        {"problem_type", "classes", c->problem_type && !c->classes},
        {"distilled", "classes of the first of two class tokens",
         c->distilled &&
             (!c->classes || c->class_tokens < 2 || c->pooling != PH_POOL_FIRST ||
              c->pooling_more[0] || c->pooler || c->unit_norm)},
        {"pooling_2", "pooling, and no gap before or behind it",
         (c->pooling_more[0] && !c->pooling) ||
             (c->pooling_more[1] && !c->pooling_more[0]) ||
             (c->pooling_more[2] && !c->pooling_more[1])},
        {"pooler", "pooling or classes", c->pooler && !c->pooling && !c->classes},
        {"pooler_norm", "a pooler", c->pooler_norm && !c->pooler},
        {"pooler_dim", "a pooler", c->pooler_dim && !c->pooler},
        {"unit_norm", "pooling", c->unit_norm && !c->pooling}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].wrong)
            return ph_fail(ctx, PH_BAD_ARGUMENT, "%s is set, expected with it %s",
                           all[i].name, all[i].expected);
    if (c->pool_len > c->max_len)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "pool_len is %d, expected at most max_len %d", c->pool_len,
                       c->max_len);
    return PH_OK;
}

ph_status ph_config_check(ph_ctx *ctx, ph_config *c, int vocab)
{
    PH_CHECK_RESERVED(ctx, "ph_config", c->reserved);
    if (c->vocab == 0) c->vocab = vocab;
    if (vocab && c->vocab != vocab)
        return ph_fail(ctx, PH_BAD_SHAPE, "vocab is %d, but the vocabulary has %d tokens",
                       c->vocab, vocab);
    PH_TRY(check_pictures(ctx, c));
    PH_TRY(ph_fields_check(ctx, fields, FIELDS, c));
    if (ph_config_bucketed(c)) {
        if (!c->buckets) c->buckets = 32;
        if (!c->bucket_distance) c->bucket_distance = 128;
    }
    if (c->buckets % 2)
        return ph_fail(ctx, PH_BAD_ARGUMENT, "buckets is %d, expected an even number",
                       c->buckets);
    if (!c->decoder_layers) c->decoder_layers = c->layers;
    if (!c->kv_heads) c->kv_heads = c->heads;
    if (!c->ff_dim) c->ff_dim = 4 * c->model_dim;
    if (!c->variant[0]) strcpy(c->variant, "mha");
    if (!c->cross[0] && c->arch == PH_ARCH_ENCODER_DECODER) strcpy(c->cross, "mha");
    if (c->cross[0] && c->arch != PH_ARCH_ENCODER_DECODER)
        return ph_fail(ctx, PH_BAD_ARGUMENT,
                       "cross is %s, expected none: only an encoder-decoder has "
                       "cross-attention",
                       c->cross);
    PH_TRY(check_entries(ctx, "variant", c->variant, most_layers(c)));
    PH_TRY(check_entries(ctx, "cross", c->cross, c->decoder_layers));
    if (!c->head_dim && c->model_dim % c->heads)
        return ph_fail(
            ctx, PH_BAD_SHAPE,
            "model_dim %d is no multiple of heads %d, expected one, or head_dim",
            c->model_dim, c->heads);
    if (!c->head_dim) c->head_dim = c->model_dim / c->heads;
    PH_TRY(check_together(ctx, c));
    if (c->heads % c->kv_heads)
        return ph_fail(ctx, PH_BAD_SHAPE, "kv_heads %d does not divide heads %d",
                       c->kv_heads, c->heads);
    if (c->positions == PH_POS_ROPE && !c->rope_dims && c->head_dim % 2)
        return ph_fail(ctx, PH_BAD_SHAPE, "head_dim is %d, expected even for rope",
                       c->head_dim);
    return check_reals(ctx, c);
}
