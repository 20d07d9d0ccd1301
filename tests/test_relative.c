/*
 * test_relative.c - the bias by distance, and the buckets of T5.
 *
 * A bias by distance is a full bias whose diagonals are constant, so both must give the
 * same numbers, and its gradient is that of the full one summed along diagonals. The full
 * bias is checked against the oracle elsewhere.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "polyhead_layer.h"

enum { MOST = 40000 };

typedef struct bench {
    ph_attn attn;
    float q[MOST], k[MOST], v[MOST], dout[MOST], bias[MOST], relative[MOST];
    float table[2][MOST]; /* w_logits, w_weights of talking heads */
} bench;

typedef struct numbers {
    float out[MOST], lse[MOST], dq[MOST], dk[MOST], dv[MOST], dbias[MOST], far[MOST];
} numbers;

static uint64_t state;

static float uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (1 << 24) * 2 - 1;
}

static void fill(float *x, int n)
{
    for (int i = 0; i < n; i++) x[i] = uniform();
}

/* Entry of `relative` for key j seen from row i of batch row b. */
static int entry(const ph_attn *a, const int32_t *kv_lens, int b, int i, int j)
{
    int offset = a->anchor == PH_ANCHOR_END
                     ? (kv_lens ? kv_lens[b] : a->kv_len) - a->q_len
                     : a->q_offset;
    int d = j - (i + offset);
    return a->reach + (d < -a->reach ? -a->reach : d > a->reach ? a->reach : d);
}

static int run(ph_ctx *ctx, const bench *t, int far, const int32_t *kv_lens, numbers *n)
{
    ph_attn a = t->attn;
    ph_plan *plan = NULL;
    const float *extra[2] = {t->table[0], t->table[1]};
    if (far)
        a.bias = (ph_broadcast){0, 0, 0};
    else
        a.reach = 0;
    ph_args args = {.q = t->q,
                    .k = t->k,
                    .v = t->v,
                    .out = n->out,
                    .lse = n->lse,
                    .kv_lens = kv_lens,
                    .bias = far ? NULL : t->bias,
                    .relative = far ? t->relative : NULL,
                    .extra = extra};
    ph_grads grads = {.dout = t->dout,
                      .dq = n->dq,
                      .dk = n->dk,
                      .dv = n->dv,
                      .dbias = far ? NULL : n->dbias,
                      .drelative = far ? n->far : NULL};
    ph_status status = ph_plan_create(&plan, ctx, &a);
    if (status == PH_OK) status = ph_forward(plan, &args);
    if (status == PH_OK) status = ph_backward(plan, &args, &grads);
    ph_plan_free(plan);
    CHECK(status == PH_OK, "%s", ph_error(ctx));
    return status == PH_OK;
}

static void compare(const char *what, const float *x, const float *y, int n, double bound)
{
    double worst = 0, size = 1;
    for (int i = 0; i < n; i++) {
        if (isinf(y[i]) && x[i] == y[i]) continue;
        worst = fmax(worst, fabs((double)x[i] - y[i]));
        size = fmax(size, fabs((double)y[i]));
    }
    CHECK(worst <= bound * size, "%s differs by %g of %g", what, worst, size);
}

static void one_case(ph_ctx *ctx, const char *variant, int number)
{
    static bench t;
    static numbers full, far;
    static double sums[MOST];
    state = check_seed + (uint64_t)number * 977;
    int lens[] = {1, 7, 13, 40, 131};
    ph_attn a = {.batch = 1 + number % 2, .q_heads = 2, .k_heads = 1 + number % 2};
    a.q_len = lens[number % 5], a.kv_len = lens[(number / 2) % 5];
    a.qk_dim = 5, a.reach = 1 + number % 11 * 4, a.backward = 1, a.variant = variant;
    a.anchor = number % 3 ? PH_ANCHOR_OFFSET : PH_ANCHOR_END;
    a.q_offset = number % 3 ? number % 5 - 2 : 0;
    a.mask = number % 4 == 1 ? PH_MASK_CAUSAL : PH_MASK_NONE;
    a.softcap = number % 4 == 2 ? 3 : 0;
    a.bias = (ph_broadcast){a.batch, a.q_heads, a.q_len};
    t.attn = a;
    int32_t valid[2] = {a.kv_len, (a.kv_len + 1) / 2};
    const int32_t *kv_lens = number % 2 ? valid : NULL;
    int width = 2 * a.reach + 1, cells = a.batch * a.q_heads * a.q_len * a.kv_len;
    if (cells > MOST) return;
    fill(t.q, MOST), fill(t.k, MOST), fill(t.v, MOST), fill(t.dout, MOST);
    fill(t.relative, a.q_heads * width), fill(t.table[0], 4), fill(t.table[1], 4);
    for (int c = 0; c < cells; c++) {
        int j = c % a.kv_len, i = c / a.kv_len % a.q_len;
        int h = c / a.kv_len / a.q_len % a.q_heads,
            b = c / a.kv_len / a.q_len / a.q_heads;
        t.bias[c] = t.relative[h * width + entry(&a, kv_lens, b, i, j)];
    }
    if (!run(ctx, &t, 0, kv_lens, &full) || !run(ctx, &t, 1, kv_lens, &far)) return;
    int rows = a.batch * a.q_heads * a.q_len, keys = a.batch * a.k_heads * a.kv_len;
    compare("out", far.out, full.out, rows * a.qk_dim, 3e-6);
    compare("lse", far.lse, full.lse, rows, 3e-6);
    compare("dq", far.dq, full.dq, rows * a.qk_dim, 1e-5);
    compare("dk", far.dk, full.dk, keys * a.qk_dim, 1e-5);
    memset(sums, 0, sizeof sums);
    for (int c = 0; c < cells; c++) {
        int j = c % a.kv_len, i = c / a.kv_len % a.q_len;
        int h = c / a.kv_len / a.q_len % a.q_heads,
            b = c / a.kv_len / a.q_len / a.q_heads;
        sums[h * width + entry(&a, kv_lens, b, i, j)] += full.dbias[c];
    }
    for (int i = 0; i < a.q_heads * width; i++) full.far[i] = (float)sums[i];
    compare("drelative", far.far, full.far, a.q_heads * width, 1e-5);
}

static void by_distance(void)
{
    static const char *const variants[] = {"mha", "talking", "entmax:alpha=1.5"};
    for (int threads = 1; threads <= 3; threads += 2) {
        ph_ctx *ctx;
        CHECK(ph_open(&ctx, &(ph_options){.threads = threads}) == PH_OK, "no context");
        for (int v = 0; v < 3; v++)
            for (int n = 0; n < 40; n++) one_case(ctx, variants[v], n);
        ph_close(ctx);
    }
}

/* A bias of -inf excludes a key whatever its distance adds: row 1 sees nothing. */
static void excluded(void)
{
    static const char *const variants[] = {"mha", "entmax:alpha=1.5", "sparsemax"};
    enum { T = 40, DIM = 4, REACH = 3 };
    static float q[T * DIM], k[T * DIM], v[T * DIM], bias[T * T], far[2 * REACH + 1];
    static float out[T * DIM], lse[T];
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no context");
    state = check_seed;
    fill(q, T * DIM), fill(k, T * DIM), fill(v, T * DIM), fill(far, 2 * REACH + 1);
    for (int j = 0; j < T; j++) bias[T + j] = -INFINITY;
    for (int n = 0; n < 6; n++) {
        ph_plan *plan;
        ph_attn a = {.batch = 1, .q_heads = 1, .q_len = T, .kv_len = T, .qk_dim = DIM};
        a.reach = REACH, a.variant = variants[n / 2], a.softcap = n % 2 ? 3 : 0;
        a.bias = (ph_broadcast){1, 1, T};
        ph_args args = {.q = q, .k = k, .v = v, .bias = bias, .relative = far};
        args.out = out, args.lse = lse;
        CHECK(ph_plan_create(&plan, ctx, &a) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_forward(plan, &args) == PH_OK, "%s", ph_error(ctx));
        ph_plan_free(plan);
        CHECK(lse[1] == -INFINITY, "%s: lse %g", a.variant, (double)lse[1]);
        for (int e = 0; e < DIM; e++)
            CHECK(out[DIM + e] == 0, "%s: out %g", a.variant, (double)out[DIM + e]);
        CHECK(isfinite(lse[0]) && isfinite(lse[2]), "%s: rows beside it", a.variant);
    }
    ph_close(ctx);
}

/* Where each bucket starts, as published. */
static void buckets(void)
{
    static const int two[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
    static const int one[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                11, 12, 13, 14, 15, 16, 19, 21, 24, 27, 31,
                                35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
    const ph_t5 both = {.two_sided = 1}, causal = {0};
    for (int d = 0, b = 0, c = 0; d < 300; d++) {
        while (b < 15 && d >= two[b + 1]) b++;
        while (c < 31 && d >= one[c + 1]) c++;
        CHECK(ph_t5_bucket(&both, -d) == b, "distance %d is in %d, expected %d", -d,
              ph_t5_bucket(&both, -d), b);
        CHECK(ph_t5_bucket(&both, d) == (d ? 16 + b : 0), "distance %d is in %d", d,
              ph_t5_bucket(&both, d));
        CHECK(ph_t5_bucket(&causal, -d) == c, "distance %d is in %d, expected %d", -d,
              ph_t5_bucket(&causal, -d), c);
        CHECK(ph_t5_bucket(&causal, d) == 0, "distance %d is not in bucket 0", d);
    }
}

/* Spreading is linear, collecting is its transpose: <spread t, r> = <t, collect r>. */
static void transpose(void)
{
    enum { HEADS = 3, WIDTH = 257 };
    static float table[32 * HEADS], back[32 * HEADS], row[HEADS * WIDTH];
    static float far[HEADS * WIDTH];
    for (int two = 0; two < 2; two++) {
        const ph_t5 t5 = {.two_sided = two};
        double a = 0, b = 0;
        state = check_seed;
        fill(table, 32 * HEADS), fill(far, HEADS * WIDTH);
        ph_t5_expand(&t5, HEADS, table, row);
        ph_t5_reduce(&t5, HEADS, far, back);
        for (int i = 0; i < HEADS * WIDTH; i++) a += (double)row[i] * far[i];
        for (int i = 0; i < 32 * HEADS; i++) b += (double)table[i] * back[i];
        CHECK(fabs(a - b) < 1e-4, "%g and %g, expected the same", a, b);
    }
}

static void refused(void)
{
    ph_ctx *ctx;
    ph_plan *plan;
    ph_attn a = {.batch = 1, .q_heads = 1, .q_len = 2, .kv_len = 2, .qk_dim = 2};
    float x[8] = {0}, lse[2];
    ph_args args = {.q = x, .k = x, .v = x, .out = x, .lse = lse, .relative = x};
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no context");
    a.reach = -1;
    CHECK(ph_plan_create(&plan, ctx, &a) == PH_BAD_ARGUMENT, "a reach of -1 was taken");
    a.reach = 0;
    CHECK(ph_plan_create(&plan, ctx, &a) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_forward(plan, &args) == PH_BAD_ARGUMENT, "relative without reach was taken");
    CHECK(strstr(ph_error(ctx), "relative") != NULL, "\"%s\"", ph_error(ctx));
    ph_plan_free(plan);
    ph_close(ctx);
}

int main(int argc, char **argv)
{
    static const check_case cases[] = {
        {"by_distance", by_distance}, {"excluded", excluded}, {"buckets", buckets},
        {"transpose", transpose},     {"refused", refused},   {0, 0}};
    return check_main(argc, argv, cases);
}
