/*
 * test_rope.c - frequencies of rotary positions against golden values.
 */
#include <math.h>

#include "check.h"
#include "layer/layer.h"

/* A frequency that a layer must have. */
typedef struct frequency {
    int pair;
    double theta;
} frequency;

/* theta = exp(-x), x at most 16 and the result of three roundings: 48 units of 2^-53 in
   theta, and a few more of the ramp that mixes two of them. */
static const double FREQUENCY_ERROR = 0x1p-47;

/* The layer of this scaling has them; `rope` holds only fields of rotary positions. */
static void check_frequencies(ph_layer_desc rope, int dim, const frequency *at, int count)
{
    ph_ctx *ctx;
    ph_layer *layer;
    rope.model_dim = 256, rope.rope = PH_ROPE_HALF;
    rope.attn = (ph_attn){.batch = 1, .q_heads = 2, .q_len = 1, .kv_len = 1};
    rope.attn.qk_dim = dim;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "no ctx");
    CHECK(ph_layer_create(&layer, ctx, &rope) == PH_OK, "%s", ph_error(ctx));
    for (int k = 0; k < count; k++)
        CHECK(fabs(layer->theta[at[k].pair] / at[k].theta - 1) < FREQUENCY_ERROR,
              "base %g, factor %g, pair %d: %.17g, expected %.17g",
              (double)rope.rope_base, (double)rope.rope_factor, at[k].pair,
              layer->theta[at[k].pair], at[k].theta);
    ph_layer_free(layer);
    ph_close(ctx);
}

/* Frequencies of the YaRN paper's code (beta 32 and 1), computed in double apart from
   this library: first, last, and on the ramp between. */
static void yarn_frequencies(void)
{
    static const struct {
        int dims, length, untruncated;
        float base, factor;
        frequency at[5];
    } list[] = {{128,
                 32768,
                 0,
                 1e6f,
                 4, /* the ramp reaches from pair 23 to 40 */
                 {{0, 1},
                  {24, 0.0053753214907901019},
                  {31, 0.00080295972754523023},
                  {39, 6.4903943208370293e-05},
                  {63, 3.1023444018792988e-07}}},
                {64,
                 4096,
                 0,
                 150000,
                 32, /* 8 to 18 */
                 {{0, 1},
                  {9, 0.031620752275346484},
                  {13, 0.0040695547147582426},
                  {17, 0.00022794779579512524},
                  {31, 3.0235114281192144e-07}}},
                {64,
                 4096,
                 1,
                 150000,
                 32, /* 8.09 to 17.40 */
                 {{0, 1},
                  {10, 0.019335001126540359},
                  {12, 0.0067949594897322189},
                  {16, 0.00045648391922324086},
                  {31, 3.0235114281192144e-07}}},
                {128,
                 4096,
                 0,
                 10000,
                 16, /* 20 to 46 */
                 {{0, 1},
                  {21, 0.046940859997959404},
                  {33, 0.0046004354678503478},
                  {45, 0.0001517716047318249},
                  {63, 7.2173874043091138e-06}}}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        check_frequencies((ph_layer_desc){.rope_dims = list[i].dims,
                                          .rope_base = list[i].base,
                                          .rope_scaling = PH_ROPE_YARN,
                                          .rope_factor = list[i].factor,
                                          .rope_length = list[i].length,
                                          .yarn_untruncated = list[i].untruncated},
                          128, list[i].at, 5);
}

/* Frequencies of LLaMA 3.1 and 3.2 (heads of 128 and 64) and of a linear scaling as
   transformers computes them, here in double. */
static void scaled_frequencies(void)
{
    static const struct {
        int dims, length;
        ph_rope_scaling scaling;
        float base, factor;
        frequency at[4];
    } list[] = {{128,
                 8192,
                 PH_ROPE_LLAMA3,
                 500000,
                 8,
                 {{0, 1},
                  {29, 0.0021665707635033591},
                  {33, 0.00031269375038406517},
                  {63, 3.0689259889145111e-07}}},
                {64,
                 8192,
                 PH_ROPE_LLAMA3,
                 500000,
                 32,
                 {{0, 1},
                  {15, 0.0012905479282092638},
                  {16, 0.00042955679655936821},
                  {31, 9.41830672543491e-08}}},
                {64,
                 0,
                 PH_ROPE_LINEAR,
                 1e6f,
                 8,
                 {{0, 0.125},
                  {1, 0.081172703947026414},
                  {15, 0.0001924908157574365},
                  {31, 1.9249081575743649e-07}}}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        check_frequencies((ph_layer_desc){.rope_base = list[i].base,
                                          .rope_scaling = list[i].scaling,
                                          .rope_factor = list[i].factor,
                                          .rope_length = list[i].length},
                          list[i].dims, list[i].at, 4);
}

/* Each field of a scaling that cannot be right. */
static void scaling_refused(void)
{
    static const struct {
        ph_rope_scaling scaling;
        float factor, low, high;
        int length;
        const char *sentence;
    } list[] = {{(ph_rope_scaling)5, 2, 0, 0, 8, "rope_scaling is 5"},
                {PH_ROPE_LONGROPE, 0, 0, 0, 0, "rope_divisors is NULL"},
                {PH_ROPE_LINEAR, 0.5f, 0, 0, 0, "rope_factor is 0.5"},
                {PH_ROPE_LINEAR, INFINITY, 0, 0, 0, "rope_factor is inf"},
                {PH_ROPE_LLAMA3, 2, 0, 0, 0, "rope_length is 0"},
                {PH_ROPE_YARN, 2, 0, 0, -1, "rope_length is -1"},
                {PH_ROPE_LLAMA3, 2, -1, 0, 8, "rope_low is -1"},
                {PH_ROPE_LLAMA3, 2, 5, 5, 8, "rope_high 5"}};
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "no ctx");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ph_layer_desc d = {.model_dim = 8, .rope = PH_ROPE_HALF};
        ph_layer *layer;
        d.attn = (ph_attn){.batch = 1, .q_heads = 2, .q_len = 1, .kv_len = 1};
        d.attn.qk_dim = 4, d.rope_scaling = list[i].scaling;
        d.rope_factor = list[i].factor, d.rope_length = list[i].length;
        d.rope_low = list[i].low, d.rope_high = list[i].high;
        CHECK(ph_layer_create(&layer, ctx, &d) == PH_BAD_ARGUMENT && !layer &&
                  strstr(ph_error(ctx), list[i].sentence),
              "\"%s\" lacks \"%s\"", ph_error(ctx), list[i].sentence);
    }
    ph_close(ctx);
}

/* Divisors of the frequencies: each that cannot be right, and none without their kind. */
static void divisors_refused(void)
{
    static const float wrong[] = {0, -1, INFINITY, NAN};
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "no ctx");
    for (int i = 0; i < 5; i++) {
        float divisors[2] = {1.5f, i < 4 ? wrong[i] : 1};
        ph_layer_desc d = {.model_dim = 8, .rope = PH_ROPE_HALF};
        ph_layer *layer;
        d.attn = (ph_attn){.batch = 1, .q_heads = 2, .q_len = 1, .kv_len = 1};
        d.attn.qk_dim = 4, d.rope_divisors = divisors;
        if (i < 4) d.rope_scaling = PH_ROPE_LONGROPE;
        CHECK(ph_layer_create(&layer, ctx, &d) == PH_BAD_ARGUMENT && !layer &&
                  strstr(ph_error(ctx), i < 4 ? "rope_divisors[1] is" : "is not NULL"),
              "%s", ph_error(ctx));
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"yarn_frequencies", yarn_frequencies},
                                   {"scaled_frequencies", scaled_frequencies},
                                   {"scaling_refused", scaling_refused},
                                   {"divisors_refused", divisors_refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
