/*
 * 02_attention.c - plain attention: a context, a plan, one call, and strides.
 *
 * One thing is new here: tensors are described, not moved. A projection often leaves q, k
 * and v of a token side by side, (batch, time, [q|k|v], head, dim). Three pointers into
 * that one buffer and three strides are all the library needs; nothing is copied. The
 * output is written as (batch, time, head, dim), ready for the next matrix product.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <polyhead.h>

enum { BATCH = 2, TIME = 50, HEADS = 4, DIM = 16, TOKEN = 3 * HEADS * DIM };

static float qkv[BATCH][TIME][3][HEADS][DIM], out[BATCH][TIME][HEADS][DIM];

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

/* The definition, in double: one element of one row. */
static double expected(int b, int t, int h, int d)
{
    double sum = 0, total = 0;
    for (int j = 0; j <= t; j++) { /* causal */
        double s = 0;
        for (int c = 0; c < DIM; c++)
            s += (double)qkv[b][t][0][h][c] * qkv[b][j][1][h][c];
        double weight = exp(s / sqrt(DIM));
        sum += weight;
        total += weight * qkv[b][j][2][h][d];
    }
    return total / sum;
}

int main(void)
{
    float *numbers = &qkv[0][0][0][0][0];
    srand(1);
    for (int i = 0; i < BATCH * TIME * TOKEN; i++)
        numbers[i] = (float)rand() / (float)RAND_MAX * 4 - 2;

    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL;
    must(ph_open(&ctx, NULL), ctx); /* all cores, the best instruction set */

    const ph_strides in = {.batch = TIME * TOKEN, .head = DIM, .time = TOKEN};
    const ph_attn attn = {
        .batch = BATCH,
        .q_heads = HEADS,
        .q_len = TIME,
        .kv_len = TIME,
        .qk_dim = DIM,
        .mask = PH_MASK_CAUSAL,
        .q = in,
        .k = in,
        .v = in,
        .out = {.batch = TIME * HEADS * DIM, .head = DIM, .time = HEADS * DIM}};
    must(ph_plan_create(&plan, ctx, &attn), ctx);

    const ph_args args = {
        .q = qkv[0][0][0], .k = qkv[0][0][1], .v = qkv[0][0][2], .out = out};
    must(ph_forward(plan, &args), ctx); /* as often as there are new numbers */

    char text[200];
    ph_plan_describe(plan, text, sizeof text);
    printf("%s\n", text);

    double worst = 0;
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < TIME; t++)
            for (int h = 0; h < HEADS; h++)
                for (int d = 0; d < DIM; d++)
                    worst = fmax(worst, fabs(out[b][t][h][d] - expected(b, t, h, d)));
    printf("largest distance from the definition: %.1e\n", worst);

    ph_plan_free(plan);
    ph_close(ctx);
    return worst < 1e-5 ? 0 : 1;
}
