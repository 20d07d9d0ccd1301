/*
 * test_cuda_grads.c - dq, dk and dv of 16-bit plans on the GPU's tensor cores: judged by
 * the oracle, same bits in any batch, and NaN and Inf only where they are seen.
 */
#include <math.h>

#include "fast_bed.h"
#include "ragged_twin.h"

static void run_grads(ph_ctx *ctx, problem *p)
{
    must(ctx, device_run(ctx, p, 1));
    CHECK(p->tensor_grads, "took the plain kernels: %s", problem_text(p));
}

static void judge_grads(ph_ctx *ctx, problem *p)
{
    judge j;
    run_grads(ctx, p);
    judge_open(&j, p);
    const char *why = judge_backward(&j, p);
    CHECK(!why, "%s: %s", why, problem_text(p));
    sweep_tolerance(0, &j);
    judge_close(&j);
}

/* Every mask, lengths around the edges of tiles and blocks, hidden NaN and Inf. */
static void grad_case(ph_ctx *ctx, int n)
{
    static const int dims[][2] = {{64, 64},   {128, 128}, {8, 8},     {32, 64},
                                  {128, 40},  {96, 128},  {64, 16},   {120, 72},
                                  {256, 256}, {192, 192}, {136, 256}, {256, 40}};
    static const int lens[] = {1, 63, 64, 65, 127, 129, 192, 260};
    static const int keys[] = {1, 64, 127, 128, 129, 200, 256, 300};
    const int *dim = dims[n / 2 % 12], drop = n % 7 == 6;
    const int cap = n % 7 == 3 && dim[0] <= 64 && dim[1] <= 64;
    problem p = {.attn = {.batch = 2,
                          .q_heads = n % 5 ? 2 : 6,
                          .k_heads = n % 5 ? 2 : 2 + n % 2,
                          .v_heads = n % 5 ? 2 : 2 + n % 2,
                          .q_len = lens[n % 8],
                          .kv_len = keys[n / 3 % 8],
                          .qk_dim = dim[0],
                          .v_dim = dim[1],
                          .dtype = n % 2 ? PH_BF16 : PH_F16,
                          .mask = (ph_mask)(n % 3),
                          .band_left = n % 5 ? 3 * n : -1,
                          .band_right = n % 7 ? n : -1,
                          .anchor = PH_ANCHOR_END,
                          .softcap = cap ? 2.0f + n % 3 * 20.0f : 0,
                          .dropout = drop ? 0.3f : 0,
                          .gate = n % 18 == 1 ? PH_GATE_HEAD : PH_GATE_ROW,
                          .backward = 1},
                 .with = {.lse = 1,
                          .weights = drop, /* say to the judge what was dropped */
                          .alibi = n % 11 == 5 || n % 7 == 5,
                          .gate = n % 6 == 1,
                          .gate_zeros = n % 12 == 1,
                          .kv_lens = n % 4 == 1,
                          .q_lens = n % 4 >= 2,
                          .sink = n % 5 == 1,
                          .dlse = n % 3 == 1}};
    problem_build(&p, (uint64_t)n);
    judge_grads(ctx, &p);
    problem_free(&p);
}

static void grads_judged(void)
{
    ph_ctx *ctx = need_gpu();
    sweep_begin();
    for (int n = 0; n < 144; n++)
        if (!left_out(n)) grad_case(ctx, n);
    printf("    at most %.2f of the tolerance used (%s)\n", sweep_worst, sweep_worst_in);
    ph_close(ctx);
}

static const tensor *gradient(const problem *p, int n)
{
    return n == 0 ? &p->dq : n == 1 ? &p->dk : &p->dv;
}

/* Batch row b alone, and wanting one gradient only: same bits. */
static void grads_alone(ph_ctx *ctx, const problem *all, int b, int wanted)
{
    problem one = {.attn = all->attn, .with = all->with};
    one.attn.batch = 1;
    problem_build(&one, 1);
    one.kv_lens[0] = all->kv_lens[b], one.q_lens[0] = all->q_lens[b];
    for (int h = 0; h < one.attn.q_heads; h++)
        for (int i = 0; i < one.attn.q_len; i++) {
            tensor_copy_row(&one.q, 0, h, i, &all->q, b, h, i);
            tensor_copy_row(&one.dout, 0, h, i, &all->dout, b, h, i);
        }
    copy_keys(&one, all, b, one.attn.kv_len);
    if (wanted != 0) one.grads.dq = NULL;
    if (wanted != 1) one.grads.dk = NULL;
    if (wanted != 2) one.grads.dv = NULL;
    run_grads(ctx, &one);
    const tensor *x = gradient(&one, wanted), *y = gradient(all, wanted);
    for (int h = 0; h < x->heads; h++)
        for (int i = 0; i < x->len; i++)
            CHECK(tensor_same_row(x, 0, h, i, y, b, h, i),
                  "gradient %d of batch row %d, head %d, row %d differs alone", wanted, b,
                  h, i);
    problem_free(&one);
}

static void grads_company(void)
{
    static const int lens[] = {330, 1, 129, 0};
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 4; n++) {
        problem p = {.attn = {.batch = 4,
                              .q_heads = 4,
                              .k_heads = n % 2 ? 2 : 4,
                              .v_heads = n % 2 ? 2 : 4,
                              .q_len = 330,
                              .kv_len = 330,
                              .qk_dim = 64 << n % 3,
                              .dtype = n % 2 ? PH_F16 : PH_BF16,
                              .mask = n < 2 ? PH_MASK_CAUSAL : PH_MASK_NONE,
                              .anchor = PH_ANCHOR_END,
                              .backward = 1},
                     .with = {.lse = 1, .clean = 1, .q_lens = 1, .kv_lens = 1}};
        problem_build(&p, (uint64_t)n);
        for (int b = 0; b < 4; b++)
            p.kv_lens[b] = lens[b], p.q_lens[b] = lens[(b + n) % 4];
        run_grads(ctx, &p);
        for (int b = 0; b < 4; b++) grads_alone(ctx, &p, b, (b + n) % 3);
        problem_free(&p);
    }
    ph_close(ctx);
}

/* Sequences side by side: the bits they have with padding. */
static void grads_ragged(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 12; n++) {
        if (left_out(n)) continue;
        ragged_twin t = {.padded = {.attn = {.batch = 4,
                                             .q_heads = 4,
                                             .k_heads = n % 2 ? 2 : 4,
                                             .v_heads = n % 2 ? 2 : 4,
                                             .q_len = n % 4 ? 150 : 3,
                                             .kv_len = 280,
                                             .qk_dim = 64 << n % 3,
                                             .dtype = n % 2 ? PH_F16 : PH_BF16,
                                             .mask = (ph_mask)(n / 2 % 3),
                                             .band_left = 90,
                                             .band_right = 5,
                                             .anchor = PH_ANCHOR_END,
                                             .backward = 1},
                                    .with = {.sink = n % 5 == 1, .dlse = n % 3 == 1}}};
        twin_build(&t, (uint64_t)n, 1 + n % 2);
        run_grads(ctx, &t.padded);
        run_grads(ctx, &t.ragged);
        const char *why = twin_grads_differ(&t);
        CHECK(!why, "case %d: %s", n, why);
        twin_free(&t);
    }
    ph_close(ctx);
}

/* NaN in column 3 of dout of token 70, head 1: in dv, the same column of keys it sees; in
   dq its row, in dk all those keys. Nothing else changes by a bit. */
static void check_nan(const problem *p, const problem *q, int n)
{
    for (int i = 0; i < 200; i++)
        for (int d = 0; d < p->q.dim; d++) {
            const double dq = tensor_get(&q->dq, 0, 1, i, d),
                         dk = tensor_get(&q->dk, 0, 1, i, d),
                         dv = tensor_get(&q->dv, 0, 1, i, d);
            CHECK(i == 70 ? isnan(dq) : dq == tensor_get(&p->dq, 0, 1, i, d),
                  "case %d: dq(%d, %d) is %g", n, i, d, dq);
            CHECK(i <= 70 ? isnan(dk) : dk == tensor_get(&p->dk, 0, 1, i, d),
                  "case %d: dk(%d, %d) is %g", n, i, d, dk);
            CHECK(i <= 70 && d == 3 ? isnan(dv) : dv == tensor_get(&p->dv, 0, 1, i, d),
                  "case %d: dv(%d, %d) is %g", n, i, d, dv);
        }
}

static void grads_values(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 6; n++) {
        problem p = {.attn = {.batch = 1,
                              .q_heads = 2,
                              .q_len = 200,
                              .kv_len = 200,
                              .qk_dim = 64 << n % 3,
                              .dtype = n / 3 ? PH_F16 : PH_BF16,
                              .mask = PH_MASK_CAUSAL,
                              .backward = 1},
                     .with = {.lse = 1, .clean = 1}};
        problem q = p;
        problem_build(&p, (uint64_t)n);
        problem_build(&q, (uint64_t)n);
        tensor_set(&q.dout, 0, 1, 70, 3, (double)NAN);
        run_grads(ctx, &p);
        run_grads(ctx, &q);
        check_nan(&p, &q, n);
        problem_free(&p);
        problem_free(&q);
    }
    ph_close(ctx);
}

static const check_case cases[] = {
    {"grads_judged", grads_judged},
    {"grads_company", grads_company},
    {"grads_ragged", grads_ragged},
    {"grads_values", grads_values},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
