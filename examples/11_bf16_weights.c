/* 11_bf16_weights.c - a layer with matrices as model files have them, bf16 and (out, in),
   decodes token by token; every token has the bits it gets with the whole text. */
#include <polyhead_layer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { DIM = 256, HEADS = 4, TOKENS = 12 };
static float x[TOKENS * DIM], whole[TOKENS * DIM], out[DIM];
static uint16_t w[4][DIM * DIM]; /* mapped from a file as they are, they need no copy */
static ph_layer *layer_of(ph_ctx *ctx, int tokens)
{
    ph_layer *layer = NULL;
    ph_layer_desc desc = {.model_dim = DIM, .rope = PH_ROPE_HALF, .cache = 1};
    desc.attn = (ph_attn){.batch = 1, .q_heads = HEADS, .qk_dim = DIM / HEADS};
    desc.attn.q_len = tokens, desc.attn.kv_len = TOKENS, desc.attn.mask = PH_MASK_CAUSAL;
    desc.q_form = desc.k_form = desc.v_form = desc.o_form = PH_FORM_LINEAR;
    desc.wq_dtype = desc.wk_dtype = desc.wv_dtype = desc.wo_dtype = PH_BF16;
    if (ph_layer_create(&layer, ctx, &desc)) fprintf(stderr, "%s\n", ph_error(ctx));
    return layer;
}
int main(void)
{
    ph_ctx *ctx = NULL;
    int32_t past = 0;
    size_t bytes = sizeof(float) * TOKENS * DIM;
    for (int i = 0; i < TOKENS * DIM; i++) x[i] = i % 101 / 101.0f - 0.5f;
    for (int i = 0; i < 4 * DIM * DIM; i++) /* +-2^-5 to 2^-4 */
        w[i % 4][i / 4] = (uint16_t)(0x3d00 + i * 7 % 128 + i % 3 * 0x8000);
    ph_open(&ctx, NULL);
    ph_layer *all = layer_of(ctx, TOKENS), *one = layer_of(ctx, 1);
    ph_layer_weights weights = {.wq = w[0], .wk = w[1], .wv = w[2], .wo = w[3]};
    ph_layer_args args = {.x = x, .out = whole, .past = &past};
    args.k_cache = malloc(bytes), args.v_cache = malloc(bytes);
    args.k_cache_size = args.v_cache_size = bytes;
    ph_status status = all && one ? ph_layer_forward(all, &weights, &args) : PH_BAD_SHAPE;
    int same = 0;
    for (; past < TOKENS && status == PH_OK; past++) {
        args.x = x + past * DIM, args.out = out;
        status = ph_layer_forward(one, &weights, &args);
        same += !memcmp(out, whole + past * DIM, sizeof out);
    }
    printf("%s: %d of %d tokens as in the whole text\n", ph_status_text(status), same,
           TOKENS);
    ph_layer_free(all), ph_layer_free(one), ph_close(ctx);
    free(args.k_cache), free(args.v_cache);
    return status != PH_OK || same != TOKENS;
}
