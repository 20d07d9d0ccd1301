/*
 * test_cuda_gates.c - 16-bit plans on the GPU's tensor cores with a gate per row: rows
 * whose gate is 0 take no part, and the others have the bits they have without them.
 */
#include <math.h>

#include "fast_bed.h"
#include "ragged_twin.h"
#include "sweep.h"

/* Is a row gated off? Kinds: every second row, as a mixture of heads has it; all; none;
   whole heads; all but a few rows; whole tiles. The last two rows of a head always are,
   unless no row is. */
static int is_gated_off(const problem *p, int kind, int h, int i, uint64_t *rng)
{
    const int half = check_below(rng, 2), rare = check_below(rng, 50) == 0;
    if (kind == 2) return 0;
    if (i >= p->attn.q_len - 2) return 1;
    return kind == 0   ? half
           : kind == 1 ? 1
           : kind == 3 ? h % 2
           : kind == 4 ? !rare
                       : i / 192 % 2;
}

/* NaN wherever only a row that is off sees it: its query and, where a causal mask ends
   with the keys, the last two of those. */
static void gate_off(problem *p, int kind, uint64_t seed)
{
    const ph_attn *a = &p->attn;
    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->q_heads; h++)
            for (int i = 0; i < a->q_len; i++) {
                if (!is_gated_off(p, kind, h, i, &seed)) continue;
                tensor_set(&p->gate, b, h, i, 0, i % 3 ? 0 : -0.0);
                for (int d = 0; d < p->q.dim; d++)
                    tensor_set(&p->q, b, h, i, d, (double)NAN);
            }
    if (a->mask != PH_MASK_CAUSAL || a->anchor != PH_ANCHOR_END || kind == 2) return;
    for (int b = 0; b < a->batch; b++)
        for (int j = a->kv_len - 2; j < a->kv_len; j++) {
            for (int h = 0; h < p->k.heads; h++)
                tensor_set(&p->k, b, h, j, 1, (double)NAN);
            for (int h = 0; h < p->v.heads; h++)
                tensor_set(&p->v, b, h, j, 1, (double)NAN);
        }
}

static void check_same_bits(const problem *p, const problem *all)
{
    for (int b = 0; b < p->attn.batch; b++)
        for (int h = 0; h < p->attn.q_heads; h++)
            for (int i = 0; i < p->attn.q_len; i++)
                CHECK(tensor_get(&p->gate, b, h, i, 0) == 0 ||
                          (tensor_same_row(&p->out, b, h, i, &all->out, b, h, i) &&
                           tensor_same_row(&p->lse, b, h, i, &all->lse, b, h, i)),
                      "batch row %d, head %d, row %d has other bits: %s", b, h, i,
                      problem_text(p));
}

/* A row's bits do not depend on which other rows are gated off. */
static void check_gated(ph_ctx *ctx, problem *all, int kind, uint64_t seed)
{
    problem p;
    problem_build(all, seed);
    must(ctx, device_run(ctx, all, 0));
    problem_twin(&p, all, seed);
    gate_off(&p, kind, seed);
    run_and_judge(ctx, &p);
    check_same_bits(&p, all);
    problem_free(&p);
    problem_free(all);
}

/* A NaN in the values of key 70 reaches rows that are on and see it, and no others. */
static void gate_values(ph_ctx *ctx, int n)
{
    problem p = {.attn = {.batch = 1,
                          .q_heads = 2,
                          .q_len = 300,
                          .kv_len = 300,
                          .qk_dim = 64 << n,
                          .dtype = PH_BF16,
                          .mask = PH_MASK_CAUSAL,
                          .gate = PH_GATE_ROW},
                 .with = {.lse = 1, .clean = 1, .gate = 1, .gate_zeros = 1}};
    problem_build(&p, (uint64_t)n);
    for (int h = 0; h < 2; h++) tensor_set(&p.v, 0, h, 70, 3, (double)NAN);
    must(ctx, device_run(ctx, &p, 0));
    for (int h = 0; h < 2; h++)
        for (int i = 0; i < 300; i++)
            for (int d = 0; d < p.v.dim; d++) {
                int on = tensor_get(&p.gate, 0, h, i, 0) != 0;
                int found = isnan(tensor_get(&p.out, 0, h, i, d));
                CHECK(found == (on && i >= 70 && d == 3),
                      "case %d: head %d, row %d, column %d: NaN %d", n, h, i, d, found);
            }
    problem_free(&p);
}

/* Gates per row, most of them 0; many: more tiles than half of 132 SMs. */
static void gate_rows(ph_ctx *ctx, int many, int n)
{
    static const int kinds[] = {0, 4, 0, 0, 5, 0, 0, 3, 0, 1, 0, 2};
    const int drop = n % 12 == 6, splits = n % 5 == 3;
    const int one = n % 4 == 2 || (splits && !many);
    const int few = 1 + (n == 1 || n == 7);
    const int batch = !many                   ? few
                      : one                   ? 40
                      : n % 4 == 3 || splits ? 18
                                              : 9;
    problem p = {.attn = {.batch = batch,
                          .q_heads = one ? 1 : 4,
                          .k_heads = one ? 1 : 2,
                          .v_heads = 1,
                          .q_len = splits       ? 70
                                   : n % 4 == 3 ? 130
                                                : 300,
                          .kv_len = splits ? 4200 : 270,
                          .qk_dim = 64 << n % 3,
                          .v_dim = n % 4 == 1 ? 40 : 64 << n % 3,
                          .dtype = n % 2 ? PH_F16 : PH_BF16,
                          .mask = (ph_mask)((n + n / 3) % 3),
                          .band_left = 90,
                          .band_right = n % 2 ? 20 : -1,
                          .softcap = n % 4 ? 0 : 20,
                          .dropout = drop ? 0.3f : 0,
                          .gate = PH_GATE_ROW,
                          .anchor = n % 2 ? PH_ANCHOR_OFFSET : PH_ANCHOR_END},
                 .with = {.lse = 1,
                          .clean = 1,
                          .again = n % 3 == 1,
                          .gate = 1,
                          .weights = drop, /* say to the judge what was dropped */
                          .alibi = n % 12 == 10,
                          .sink = n % 4 == 0,
                          .layout = n % 2 ? LAYOUT_PACKED : LAYOUT_TIME,
                          .out = n % 3 ? LAYOUT_PADDED : LAYOUT_PACKED,
                          .kv_lens = n % 4 == 1,
                          .q_lens = n % 5 == 1}};
    case_gap = n % 2 ? 1 : 8; /* tensor copies want rows of q aligned */
    check_gated(ctx, &p, kinds[n % 12], (uint64_t)n);
}

/* Side by side, too; and rows of more parts than a head is gathered in. */
static void gate_ragged(ph_ctx *ctx, int heads, int n)
{
    ragged_twin t = {.padded = {.attn = {.batch = 3,
                                         .q_heads = heads,
                                         .q_len = 200,
                                         .kv_len = 260,
                                         .qk_dim = 64 << n,
                                         .dtype = n % 2 ? PH_F16 : PH_BF16,
                                         .mask = (ph_mask)n,
                                         .band_left = 90,
                                         .band_right = 5,
                                         .anchor = PH_ANCHOR_END,
                                         .gate = PH_GATE_ROW},
                                .with = {.gate = 1, .gate_zeros = 1}}};
    twin_build(&t, (uint64_t)n, 1);
    run_and_judge(ctx, &t.padded);
    must(ctx, device_run(ctx, &t.ragged, 0));
    CHECK(t.ragged.tensor_cores, "a ragged batch took the plain kernels");
    const char *why = twin_differs(&t);
    CHECK(!why, "ragged case %d: %s", n, why);
    twin_free(&t);
}

static void gate_long(ph_ctx *ctx)
{
    problem p = {.attn = {.batch = 1,
                          .q_heads = 1,
                          .q_len = 64 * 256 + 10,
                          .kv_len = 16,
                          .qk_dim = 8,
                          .dtype = PH_BF16,
                          .gate = PH_GATE_ROW},
                 .with = {.lse = 1, .clean = 1, .gate = 1}};
    check_gated(ctx, &p, 0, 1);
}

static void fast_gates(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 12; n++) gate_rows(ctx, 0, n);
    for (int n = 0; n < 3; n++) gate_ragged(ctx, 2, n);
    for (int n = 0; n < 3; n++) gate_values(ctx, n);
    gate_long(ctx);
    ph_close(ctx);
}

/* The same with as many tiles as a GPU of many SMs does not decode. */
static void fast_many_gates(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 18; n++) gate_rows(ctx, 1, n);
    for (int n = 0; n < 3; n++) gate_ragged(ctx, 40, n);
    ph_close(ctx);
}

static const check_case cases[] = {
    {"fast_gates", fast_gates},
    {"fast_many_gates", fast_many_gates},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
