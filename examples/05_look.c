/*
 * 05_look.c - what the heads look at, without a T x T matrix.
 *
 * One thing is new here: ph_look_at. The largest weights of each row, its entropy and the
 * sums of the columns come from q, k and the lse of a finished call, tile by tile, in
 * memory that grows with T and not with its square. Two heads are built by hand: head 0
 * copies the token before, head 1 does not care; their summaries must say so.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polyhead.h>

enum { HEADS = 2, TIME = 3000, DIM = 64, TOP = 3 };

static float q[HEADS][TIME][DIM], k[HEADS][TIME][DIM], v[HEADS][TIME][DIM];
static float out[HEADS][TIME][DIM], lse[HEADS][TIME];
static float entropy[HEADS][TIME], col_sum[HEADS][TIME], top_weight[HEADS][TIME][TOP];
static int32_t top_index[HEADS][TIME][TOP];

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

/* Keys are random; queries of head 0 are twice the key before, those of head 1 zero. */
static void build_heads(void)
{
    float *key = &k[0][0][0];
    srand(1);
    for (int i = 0; i < HEADS * TIME * DIM; i++)
        key[i] = ((float)rand() / (float)RAND_MAX * 2 - 1) * 1.7f;
    memcpy(v, k, sizeof v);
    for (int t = 1; t < TIME; t++)
        for (int d = 0; d < DIM; d++) q[0][t][d] = 2 * k[0][t - 1][d];
}

int main(void)
{
    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL;
    build_heads();
    must(ph_open(&ctx, NULL), ctx);
    const ph_attn attn = {.batch = 1,
                          .q_heads = HEADS,
                          .q_len = TIME,
                          .kv_len = TIME,
                          .qk_dim = DIM,
                          .mask = PH_MASK_CAUSAL};
    must(ph_plan_create(&plan, ctx, &attn), ctx);

    const ph_look_at look = {.entropy = entropy[0],
                             .col_sum = col_sum[0],
                             .top_k = TOP,
                             .top_weight = top_weight[0][0],
                             .top_index = top_index[0][0]};
    const ph_args args = {
        .q = q, .k = k, .v = v, .out = out, .lse = lse[0], .look = &look};
    must(ph_forward(plan, &args), ctx); /* or later: ph_look, from q, k and lse */

    int copies = 0;
    double sharp = 0, last = log(TIME);
    for (int t = 1; t < TIME; t++) {
        copies += top_index[0][t][0] == t - 1;
        sharp += (double)entropy[0][t] / (TIME - 1);
    }
    for (int h = 0; h < HEADS; h++) {
        printf("head %d, last row: entropy %.4f, largest weights", h,
               (double)entropy[h][TIME - 1]);
        for (int i = 0; i < TOP; i++)
            printf("  %.4f at %d", (double)top_weight[h][TIME - 1][i],
                   (int)top_index[h][TIME - 1][i]);
        printf("\n        all rows together on key 0: %.3f\n", (double)col_sum[h][0]);
    }
    printf("head 0 looks at the token before in %d of %d rows\n", copies, TIME - 1);
    printf("workspace %.1f MB, all weights would be %.0f MB\n",
           (double)ph_plan_workspace(plan) * 1e-6, 4e-6 * HEADS * TIME * TIME);
    ph_plan_free(plan);
    ph_close(ctx);
    return copies == TIME - 1 && sharp < 0.1 && fabs(entropy[1][TIME - 1] - last) < 1e-3
               ? 0
               : 1;
}
