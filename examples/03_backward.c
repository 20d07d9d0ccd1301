/*
 * 03_backward.c - gradients.
 *
 * One thing is new here: a plan made with .backward = 1 also runs backwards. The forward
 * call leaves out and lse; ph_backward takes both, with dout, the gradient of the loss,
 * and gives dq, dk and dv. No T x T matrix is kept in between. One number of dq is then
 * checked the slow way: that number is moved a little and the loss computed twice.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <polyhead.h>

enum { HEADS = 2, TIME = 40, DIM = 24, COUNT = HEADS * TIME * DIM };

static float q[COUNT], k[COUNT], v[COUNT], out[COUNT], lse[HEADS * TIME];
static float dout[COUNT], dq[COUNT], dk[COUNT], dv[COUNT];

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

static void fill(float *x)
{
    for (int i = 0; i < COUNT; i++) x[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
}

/* A loss whose gradient with respect to out is dout: their product. */
static double loss(const ph_plan *plan, const ph_args *args, const ph_ctx *ctx)
{
    double sum = 0;
    must(ph_forward(plan, args), ctx);
    for (int i = 0; i < COUNT; i++) sum += (double)out[i] * dout[i];
    return sum;
}

int main(void)
{
    srand(1);
    fill(q), fill(k), fill(v), fill(dout);

    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL;
    must(ph_open(&ctx, NULL), ctx);
    const ph_attn attn = {.batch = 1,
                          .q_heads = HEADS,
                          .q_len = TIME,
                          .kv_len = TIME,
                          .qk_dim = DIM,
                          .mask = PH_MASK_CAUSAL,
                          .backward = 1};
    must(ph_plan_create(&plan, ctx, &attn), ctx);

    const ph_args args = {.q = q, .k = k, .v = v, .out = out, .lse = lse};
    const ph_grads grads = {.dout = dout, .dq = dq, .dk = dk, .dv = dv};
    must(ph_forward(plan, &args), ctx);
    must(ph_backward(plan, &args, &grads), ctx);

    const int at = (1 * TIME + 30) * DIM + 5; /* head 1, row 30, element 5 */
    const float step = 1.0f / 64, here = q[at];
    q[at] = here + step;
    double above = loss(plan, &args, ctx);
    q[at] = here - step;
    double below = loss(plan, &args, ctx), slow = (above - below) / (2 * step);
    q[at] = here;
    printf("dq[%d]  by ph_backward %.6f, by differences %.6f\n", at, (double)dq[at],
           slow);

    ph_plan_free(plan);
    ph_close(ctx);
    return fabs(dq[at] - slow) < 1e-4 ? 0 : 1;
}
