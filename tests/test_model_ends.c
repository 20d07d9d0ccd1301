/*
 * test_model_ends.c - what an encoder ends in: masked tokens, one vector of a text,
 * classes; gradients of every parameter against the oracle, and what is refused.
 */
#include "model_bed.h"

/* What an encoder may end in. */
static const ph_config ends[] = {
    {.masked = 1},
    {.masked = 1, .untied = 1, .norm = PH_NORM_RMS, .activation = PH_RELU},
    {.classes = 3},
    {.classes = 3, .pooling = PH_POOL_FIRST, .pooler = PH_POOLER_TANH},
    {.classes = 2, .pooling = PH_POOL_MEAN, .pooler = PH_POOLER_RELU, .unit_norm = 1},
    {.classes = 2, .pooling = PH_POOL_MAX, .masked = 1},
    {.classes = 5, .pooling = PH_POOL_LAST, .pooler = PH_POOLER_TANH, .unit_norm = 1},
    {.classes = 2, .pooling = PH_POOL_MEAN_SQRT},
    {.classes = 2, .pooling = PH_POOL_WEIGHTED, .unit_norm = 1},
    {.masked = 1, .pooling = PH_POOL_FIRST, .pooler = PH_POOLER_TANH},
    {.classes = 2, .pooling = PH_POOL_FIRST, .pooler = PH_POOLER_GELU, .unit_norm = 1},
    {.masked = 1, .activation = PH_SWIGLU, .no_dense_bias = 1},
    {.masked = 1, .activation = PH_GEGLU, .no_head_bias = 1},
    {.masked = 1, .activation = PH_GEGLU_ERF, .no_bias = PH_NO_BIAS, .no_dense_bias = 1},
    {.classes = 3, .pooler = PH_POOLER_GELU, .pooler_norm = 1, .no_dense_bias = 1},
    {.classes = 3, .pooler = PH_POOLER_TANH, .norm = PH_NORM_RMS, .pooler_norm = 1},
    {.classes = 3, .pooler = PH_POOLER_RELU, .no_head_bias = 1},
    {.classes = 2,
     .pooling = PH_POOL_MEAN,
     .pooler = PH_POOLER_GELU,
     .pooler_norm = 1,
     .no_bias = PH_NO_BIAS_NORM},
    {.classes = 2,
     .pooling = PH_POOL_FIRST,
     .pooler = PH_POOLER_TANH,
     .pooler_norm = 1,
     .unit_norm = 1}};

enum { ENDS = sizeof ends / sizeof ends[0] };

static ph_config end_of(int end)
{
    ph_config c = ends[end];
    c.layers = 1, c.model_dim = c.max_len = 8, c.heads = 2, c.ff_dim = 12;
    c.vocab = VOCAB, c.norm_place = PH_POST_NORM, c.positions = PH_POS_LEARNED;
    c.position_offset = 3, c.types = 2, c.embed_norm = 1, c.embed_scale = 1;
    if (!c.activation) c.activation = PH_GELU_ERF;
    return c;
}

static void end_gradients(void)
{
    for (int end = 0; end < ENDS; end++) {
        ph_config c = end_of(end);
        check_gradients(&c, end % 2 ? 0.1f : 0, end);
    }
}

/* Pictures of 4 x 4 pixels and two channels: four patches behind a class token. */
static void picture_gradients(void)
{
    for (int end = 2; end < 5; end++) {
        ph_config c = end_of(end);
        c.image_size = 4, c.patch_size = 2, c.channels = 2, c.class_tokens = 1;
        c.vocab = c.max_len = c.types = c.position_offset = 0;
        check_gradients(&c, 0, end);
    }
}

/* Vectors without classes have no loss, and say so. */
static void no_loss(void)
{
    bed b;
    double loss;
    ph_config c = end_of(3);
    c.classes = 0;
    make_bed(&b, &c, 1, 1);
    CHECK(ph_pass_forward(b.p, &b.batch, 0) == PH_OK, "%s", ph_error(b.ctx));
    CHECK(ph_pass_loss(b.p, 0, 1, &loss) == PH_UNSUPPORTED &&
              strstr(ph_error(b.ctx), "no loss"),
          "%s", ph_error(b.ctx));
    b.all_types[3] = 2;
    CHECK(ph_pass_forward(b.p, &b.batch, 0) == PH_BAD_VALUE &&
              strstr(ph_error(b.ctx), "token type 2"),
          "%s", ph_error(b.ctx));
    free_bed(&b);
}

/* Fields that need another one. */
static void refused(void)
{
    ph_ctx *ctx = open_ctx(1);
    static const struct {
        ph_config c;
        const char *sentence;
    } alone[] = {{{.embed_norm = 1, .parallel = 1}, "sublayers that are not parallel"},
                 {{.position_offset = 2}, "expected with it learned positions"},
                 {{.masked = 1, .arch = PH_ARCH_DECODER}, "expected with it an encoder"},
                 {{.no_dense_bias = 1}, "expected with it a pooler or masked tokens"},
                 {{.no_head_bias = 1}, "expected with it classes or masked tokens"},
                 {{.classes = 2, .pooler_norm = 1}, "expected with it a pooler"},
                 {{.pooling = PH_POOL_MEAN, .arch = PH_ARCH_DECODER}, "an encoder"},
                 {{.classes = 2, .arch = PH_ARCH_ENCODER_DECODER}, "an encoder"},
                 {{.pooler = PH_POOLER_TANH},
                  "pooler is set, expected with it pooling or classes"},
                 {{.unit_norm = 1}, "unit_norm is set, expected with it pooling"},
                 {{.pooling = PH_POOL_MEAN, .pool_len = 9}, "pool_len is 9"},
                 {{.pooling = (ph_pooling)7}, "pooling is 7, expected 0 to 6"},
                 {{.classes = -1}, "classes is -1"},
                 {{.image_size = 5, .patch_size = 2}, "no multiple of patch_size 2"},
                 {{.image_size = 4}, "no multiple of patch_size 0"},
                 {{.image_size = 4, .patch_size = 2, .classes = 2}, "nothing of tokens"},
                 {{.types = 1 << 20}, "types is 1048576"}};
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) {
        ph_config c = alone[i].c;
        c.layers = 1, c.model_dim = c.max_len = 8, c.heads = 2, c.vocab = VOCAB;
        CHECK(ph_config_check(ctx, &c, 0) != PH_OK &&
                  strstr(ph_error(ctx), alone[i].sentence),
              "case %zu: %s", i, ph_error(ctx));
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"end_gradients", end_gradients},
                                   {"picture_gradients", picture_gradients},
                                   {"no_loss", no_loss},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
