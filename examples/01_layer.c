/* 01_layer.c - a whole multi-head layer: 2 texts of 20 tokens of 512 numbers, 8 heads. */
#include <polyhead_layer.h>
#include <stdio.h>
static float x[2 * 20 * 512], out[2 * 20 * 512], w[4][512 * 512];
int main(void)
{
    ph_ctx *ctx = NULL;
    ph_layer *layer = NULL;
    ph_attn attn = {.batch = 2, .q_len = 20, .kv_len = 20, .q_heads = 8, .qk_dim = 64};
    ph_layer_desc desc = {.model_dim = 512, .attn = attn};
    ph_layer_weights weights = {.wq = w[0], .wk = w[1], .wv = w[2], .wo = w[3]};
    ph_layer_args args = {.x = x, .out = out};
    for (int i = 0; i < 2 * 20 * 512; i++) x[i] = i % 101 / 101.0f - 0.5f;
    for (int i = 0; i < 4 * 512 * 512; i++) w[i % 4][i / 4] = i % 997 / 9970.0f - 0.05f;
    ph_status status = ph_open(&ctx, NULL); /* all cores, the best instruction set */
    if (status == PH_OK) status = ph_layer_create(&layer, ctx, &desc);
    if (status == PH_OK) status = ph_layer_forward(layer, &weights, &args);
    printf("%s: %g %g %g ...\n", ph_status_text(status), out[0], out[1], out[2]);
    ph_layer_free(layer), ph_close(ctx);
    return status;
}
