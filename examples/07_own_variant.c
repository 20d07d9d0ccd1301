/*
 * 07_own_variant.c - a variant of your own, without touching the library.
 *
 * One thing is new here: the numbers by which a core variant works are inputs of a plan,
 * and their gradients are outputs. In core mode `dcmha` asks for w1, w2 and g of every
 * token and mixes the heads by I + diag(g) + w1 w2^T; where these numbers come from is up
 * to the caller. So any mix that is low-rank plus a diagonal, made from whatever you
 * have, runs fused, forward and backward, in O(T) memory.
 *
 * The variant of this program: heads that agree. Each token has a share a = sigmoid(x u)
 * by which its heads give up their own weights for the mean of all heads:
 *
 *     weights[h] = (1 - a) p[h] + a mean over heads of p
 *
 * which is w1 = 1, w2 = a / H, g = -a. Both ways are checked: one number of out from the
 * definition, and one of du, the gradient of the only parameter, by differences.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <polyhead.h>

enum { HEADS = 4, TIME = 50, DIM = 16, WIDTH = 8, COUNT = HEADS * TIME * DIM };

static float x[TIME][WIDTH], u[WIDTH], du[WIDTH], share[TIME];
static float q[HEADS][TIME][DIM], k[HEADS][TIME][DIM], v[HEADS][TIME][DIM];
static float out[HEADS][TIME][DIM], dout[HEADS][TIME][DIM], lse[HEADS * TIME];
static float dq[COUNT], dk[COUNT], dv[COUNT];

/* What the plan asks for, and the gradients it gives back. */
typedef struct numbers {
    float w1[TIME][HEADS], w2[TIME][HEADS], g[TIME][HEADS];
} numbers;

static numbers mix, dmix;

static void must(ph_status status, const ph_ctx *ctx)
{
    if (status == PH_OK) return;
    fprintf(stderr, "%s: %s\n", ph_status_text(status), ph_error(ctx));
    exit(1);
}

static void fill(void *to, int count)
{
    float *y = to;
    for (int i = 0; i < count; i++) y[i] = (float)rand() / (float)RAND_MAX * 2 - 1;
}

/* ---- the variant: from x and u to numbers, and back ---- */

static void make_numbers(void)
{
    for (int t = 0; t < TIME; t++) {
        float z = 0;
        for (int c = 0; c < WIDTH; c++) z += x[t][c] * u[c];
        share[t] = 1 / (1 + expf(-z));
        for (int h = 0; h < HEADS; h++) {
            mix.w1[t][h] = 1;
            mix.w2[t][h] = share[t] / HEADS;
            mix.g[t][h] = -share[t];
        }
    }
}

static void numbers_back(void)
{
    memset(du, 0, sizeof du);
    for (int t = 0; t < TIME; t++) {
        float da = 0;
        for (int h = 0; h < HEADS; h++) da += dmix.w2[t][h] / HEADS - dmix.g[t][h];
        for (int c = 0; c < WIDTH; c++) du[c] += da * share[t] * (1 - share[t]) * x[t][c];
    }
}

/* Points to the tensors in the order in which the plan asks for them, by their names. */
static void connect(const ph_plan *plan, const float **extra, float **dextra)
{
    for (int i = 0; ph_plan_extra(plan, i); i++) {
        const char *name = ph_plan_extra(plan, i)->name;
        extra[i] = NULL, dextra[i] = NULL; /* dc_static, which is optional */
        if (!strcmp(name, "postq_w1")) extra[i] = mix.w1[0], dextra[i] = dmix.w1[0];
        if (!strcmp(name, "postq_w2")) extra[i] = mix.w2[0], dextra[i] = dmix.w2[0];
        if (!strcmp(name, "postq_g")) extra[i] = mix.g[0], dextra[i] = dmix.g[0];
    }
}

/* ---- checks ---- */

/* The definition, in double: one element of one row. */
static double expected(int h, int t, int d)
{
    double p[HEADS][TIME], sum = 0;
    for (int m = 0; m < HEADS; m++) {
        double total = 0;
        for (int j = 0; j <= t; j++) {
            double s = 0;
            for (int c = 0; c < DIM; c++) s += (double)q[m][t][c] * k[m][j][c];
            total += p[m][j] = exp(s / sqrt(DIM));
        }
        for (int j = 0; j <= t; j++) p[m][j] /= total;
    }
    for (int j = 0; j <= t; j++) {
        double mean = 0;
        for (int m = 0; m < HEADS; m++) mean += p[m][j] / HEADS;
        sum += ((1 - share[t]) * p[h][j] + share[t] * mean) * v[h][j][d];
    }
    return sum;
}

/* A loss whose gradient with respect to out is dout: their product. */
static double loss(const ph_plan *plan, const ph_args *args, const ph_ctx *ctx)
{
    double sum = 0;
    make_numbers();
    must(ph_forward(plan, args), ctx);
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < TIME; t++)
            for (int d = 0; d < DIM; d++) sum += (double)out[h][t][d] * dout[h][t][d];
    return sum;
}

int main(void)
{
    srand(1);
    fill(x, TIME * WIDTH), fill(u, WIDTH), fill(dout, COUNT);
    fill(q, COUNT), fill(k, COUNT), fill(v, COUNT);

    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL;
    must(ph_open(&ctx, NULL), ctx);
    const ph_attn attn = {.batch = 1,
                          .q_heads = HEADS,
                          .q_len = TIME,
                          .kv_len = TIME,
                          .qk_dim = DIM,
                          .mask = PH_MASK_CAUSAL,
                          .variant = "dcmha:rank=1,side=q,pre=0", /* weights, by query */
                          .backward = 1};
    must(ph_plan_create(&plan, ctx, &attn), ctx);

    const float *extra[8];
    float *dextra[8];
    connect(plan, extra, dextra);
    const ph_args args = {.q = q, .k = k, .v = v, .out = out, .lse = lse, .extra = extra};
    const ph_grads grads = {.dout = dout, .dq = dq, .dk = dk, .dv = dv, .dextra = dextra};
    make_numbers();
    must(ph_forward(plan, &args), ctx);
    must(ph_backward(plan, &args, &grads), ctx);
    numbers_back();
    double found = (double)out[2][40][5], right = expected(2, 40, 5);
    printf("out   by ph_forward %.6f, from the definition %.6f\n", found, right);

    const float step = 1.0f / 64, here = u[3];
    u[3] = here + step;
    double above = loss(plan, &args, ctx);
    u[3] = here - step;
    double below = loss(plan, &args, ctx), slow = (above - below) / (2 * (double)step);
    printf("du[3] by ph_backward %.6f, by differences %.6f\n", (double)du[3], slow);

    ph_plan_free(plan);
    ph_close(ctx);
    return fabs(found - right) < 1e-5 && fabs((double)du[3] - slow) < 1e-3 ? 0 : 1;
}
