/*
 * test_props.c - properties that attention has whatever the numbers are: rows that sum to
 * one, permutations, independence, options at the value where they do nothing, and the
 * floating-point mode. On every instruction set.
 */
#include <math.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "sweep.h"

/* A problem of middling size with everything deterministic that an option can add. */
static problem sample(int seed)
{
    problem p = {.attn = {.batch = 2,
                          .q_heads = 4,
                          .q_len = 37,
                          .kv_len = 71,
                          .qk_dim = 20,
                          .v_dim = 12,
                          .backward = 1},
                 .with = {.lse = 1, .clean = 1, .dlse = 1}};
    uint64_t rng = (uint64_t)seed * 3 + check_seed;
    static const int lens[] = {1, 6, 17, 37, 64, 71, 129, 300};
    p.attn.q_len = lens[check_below(&rng, 6)];
    p.attn.kv_len = lens[check_below(&rng, 8)];
    p.attn.qk_dim = 1 + check_below(&rng, 70);
    p.attn.mask = (ph_mask)check_below(&rng, 3);
    p.attn.band_left = check_below(&rng, 40);
    p.attn.band_right = check_below(&rng, 40);
    p.attn.anchor = PH_ANCHOR_END;
    p.with.alibi = check_below(&rng, 2);
    p.attn.softcap = check_below(&rng, 3) ? 0 : 8;
    return p;
}

static problem like(const problem *p)
{
    problem q = {.attn = p->attn, .with = p->with};
    return q;
}

/* Same bits in every output that both have, rows (b, h) of p against rows (c, g) of q. */
static void same_head(const problem *p, int b, int h, const problem *q, int c, int g,
                      const char *what, const char *isa)
{
    const tensor *x[] = {&p->out, &p->lse, &p->dq}, *y[] = {&q->out, &q->lse, &q->dq};
    static const char *const names[] = {"out", "lse", "dq"};
    for (int n = 0; n < 3; n++)
        for (int i = 0; x[n]->mem && y[n]->mem && i < x[n]->len; i++)
            CHECK(tensor_same_row(x[n], b, h, i, y[n], c, g, i),
                  "%s on %s: %s differs in row (%d,%d,%d)", what, isa, names[n], b, h, i);
}

static void copy_head(tensor *to, int b, int h, const tensor *from, int c, int g)
{
    for (int i = 0; to->mem && i < to->len; i++)
        tensor_copy_row(to, b, h, i, from, c, g, i);
}

/* ---- sums ------------------------------------------------------------------------- */

static void rows_sum_to_one(void)
{
    for (int index = 0; index < 40 / CASES_SLOW; index++) {
        problem p = sample(index);
        p.with.weights = 1;
        problem_build(&p, (uint64_t)index);
        dense d;
        dense_load(&d, &p.attn, &p.args, NULL);
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_forward(ctx, &p));
            for (int b = 0; b < d.batch; b++)
                for (int h = 0; h < d.q_heads; h++)
                    for (int i = 0; i < d.q_len; i++) {
                        double sum = 0, seen = 0;
                        for (int j = 0; j < d.kv_len; j++) {
                            sum += tensor_get(&p.weights, b, h, i, j);
                            seen += dense_sees(&d, b, h, i, j);
                        }
                        CHECK(fabs(sum - (seen > 0)) < 2e-6,
                              "case %d on %s: row sums to %.9g", index, *isa, sum);
                    }
        }
        dense_free(&d);
        problem_free(&p);
    }
}

/* ---- permutations ----------------------------------------------------------------- */

static void key_permutation(void)
{
    for (int index = 0; index < 30 / CASES_SLOW; index++) {
        problem p = sample(index), q = like(&p);
        p.attn.mask = q.attn.mask = PH_MASK_NONE;
        p.with.alibi = q.with.alibi = 0;
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        int n = p.attn.kv_len;
        for (int b = 0; b < 2; b++)
            for (int h = 0; h < 4; h++)
                for (int j = 0; j < n; j++) {
                    tensor_copy_row(&q.k, b, h, n - 1 - j, &p.k, b, h, j);
                    tensor_copy_row(&q.v, b, h, n - 1 - j, &p.v, b, h, j);
                }
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            for (int i = 0; i < p.attn.q_len; i++)
                for (int d = 0; d < p.attn.v_dim; d++) {
                    double x = tensor_get(&p.out, 1, 2, i, d),
                           y = tensor_get(&q.out, 1, 2, i, d);
                    CHECK(fabs(x - y) < 1e-5, "case %d on %s: %g and %g", index, *isa, x,
                          y);
                }
            for (int d = 0; d < p.attn.v_dim; d++) {
                double x = tensor_get(&p.dv, 1, 2, 0, d);
                double y = tensor_get(&q.dv, 1, 2, n - 1, d);
                CHECK(fabs(x - y) < 1e-4, "case %d on %s: dv %g and %g", index, *isa, x,
                      y);
            }
        }
        problem_free(&p);
        problem_free(&q);
    }
}

/* Heads in another order, and each batch row with another's neighbour: the same bits. */
static void head_and_batch_permutation(void)
{
    for (int index = 0; index < 30 / CASES_SLOW; index++) {
        problem p = sample(index), q;
        p.with.sink = p.with.gate = 1;
        q = like(&p);
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        for (int b = 0; b < 2; b++)
            for (int h = 0; h < 4; h++) {
                tensor *to[] = {&q.q, &q.k, &q.v, &q.dout, &q.dlse};
                const tensor *from[] = {&p.q, &p.k, &p.v, &p.dout, &p.dlse};
                for (int n = 0; n < 5; n++) copy_head(to[n], 1 - b, 3 - h, from[n], b, h);
                copy_head(&q.sink, 0, 3 - h, &p.sink, 0, h);
                copy_head(&q.gate, 0, 3 - h, &p.gate, 0, h);
                copy_head(&q.alibi, 0, 3 - h, &p.alibi, 0, h);
            }
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            for (int b = 0; b < 2; b++)
                for (int h = 0; h < 4; h++) {
                    same_head(&p, b, h, &q, 1 - b, 3 - h, "permutation", *isa);
                    for (int j = 0; j < p.attn.kv_len; j++)
                        CHECK(tensor_same_row(&p.dk, b, h, j, &q.dk, 1 - b, 3 - h, j) &&
                                  tensor_same_row(&p.dv, b, h, j, &q.dv, 1 - b, 3 - h, j),
                              "case %d on %s: dk or dv differs", index, *isa);
                }
        }
        problem_free(&p);
        problem_free(&q);
    }
}

/* ---- independence ----------------------------------------------------------------- */

/* New keys and values after position t, new queries after row t: rows up to t keep bits.
   */
static void causal_past(void)
{
    for (int index = 0; index < 30 / CASES_SLOW; index++) {
        problem p = sample(index), q;
        p.attn.mask = PH_MASK_CAUSAL;
        p.attn.kv_len = p.attn.q_len + index % 5;
        q = like(&p);
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        int shift = p.attn.kv_len - p.attn.q_len, t = p.attn.q_len / 2;
        uint64_t rng = 5;
        for (int b = 0; b < 2; b++)
            for (int h = 0; h < 4; h++) {
                for (int j = t + shift + 1; j < p.attn.kv_len; j++) {
                    tensor_set_row(&q.k, b, h, j, (double)check_normal(&rng));
                    tensor_set_row(&q.v, b, h, j, (double)check_normal(&rng));
                }
                for (int i = t + 1; i < p.attn.q_len; i++)
                    tensor_set_row(&q.q, b, h, i, (double)check_normal(&rng));
            }
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            for (int b = 0; b < 2; b++)
                for (int h = 0; h < 4; h++)
                    for (int i = 0; i <= t; i++)
                        CHECK(tensor_same_row(&p.out, b, h, i, &q.out, b, h, i) &&
                                  tensor_same_row(&p.lse, b, h, i, &q.lse, b, h, i) &&
                                  tensor_same_row(&p.dq, b, h, i, &q.dq, b, h, i),
                              "case %d on %s: row %d of %d changed", index, *isa, i,
                              p.attn.q_len);
        }
        problem_free(&p);
        problem_free(&q);
    }
}

/* Grouped heads equal the same heads written out, bit by bit. */
static void grouped_equals_repeated(void)
{
    static const int groups[][3] = {
        {4, 1, 1}, {4, 2, 2}, {6, 3, 2}, {12, 4, 3}, {8, 8, 1}};
    for (int index = 0; index < 25; index++) {
        const int *g = groups[index % 5];
        problem p = sample(index), q;
        p.attn.q_heads = g[0];
        p.attn.q_len = index % 2 ? p.attn.q_len : 1; /* decoding too */
        q = like(&p);
        p.attn.k_heads = g[1];
        p.attn.v_heads = g[2];
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        for (int b = 0; b < 2; b++)
            for (int h = 0; h < g[0]; h++) {
                copy_head(&q.q, b, h, &p.q, b, h);
                copy_head(&q.dout, b, h, &p.dout, b, h);
                copy_head(&q.dlse, b, h, &p.dlse, b, h);
                copy_head(&q.alibi, 0, h, &p.alibi, 0, h);
                copy_head(&q.k, b, h, &p.k, b, h / (g[0] / g[1]));
                copy_head(&q.v, b, h, &p.v, b, h / (g[0] / g[2]));
            }
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            for (int b = 0; b < 2; b++)
                for (int h = 0; h < g[0]; h++)
                    same_head(&p, b, h, &q, b, h, "groups", *isa);
        }
        problem_free(&p);
        problem_free(&q);
    }
}

/* ---- options that do nothing ------------------------------------------------------ */

typedef enum nothing {
    SINK_FAR,
    GATE_ONE,
    VISIBLE_ALL,
    BIAS_ZERO,
    LENS_FULL,
    WIDE_BAND
} nothing;

static void set_nothing(problem *q, nothing which)
{
    int h = q->attn.q_heads;
    for (int n = 0; n < h && which == SINK_FAR; n++)
        tensor_set(&q->sink, 0, n, 0, 0, -INFINITY);
    for (int n = 0; n < h && which == GATE_ONE; n++) tensor_set(&q->gate, 0, n, 0, 0, 1);
    if (which == VISIBLE_ALL) memset(q->visible, 1, (size_t)q->attn.kv_len);
    if (which == BIAS_ZERO) tensor_set_row(&q->bias, 0, 0, 0, 0);
    for (int b = 0; b < 2 && which == LENS_FULL; b++) {
        q->q_lens[b] = q->attn.q_len;
        q->kv_lens[b] = q->attn.kv_len;
    }
}

/* An option at the value where it means nothing: the bits of the call without it. */
static void neutral_options(void)
{
    static const char *const names[] = {"sink -inf", "gate 1",    "visible 1",
                                        "bias 0",    "full lens", "wide band"};
    for (int index = 0; index < 60; index++) {
        nothing which = (nothing)(index % 6);
        problem p = sample(index), q;
        if (which == WIDE_BAND) p.attn.mask = PH_MASK_CAUSAL;
        q = like(&p);
        q.with.sink = which == SINK_FAR;
        q.with.gate = which == GATE_ONE;
        q.with.q_lens = q.with.kv_lens = which == LENS_FULL;
        if (which == VISIBLE_ALL) q.attn.visible = (ph_broadcast){1, 1, 1};
        if (which == BIAS_ZERO) q.attn.bias = (ph_broadcast){1, 1, 1};
        if (which == WIDE_BAND) {
            q.attn.mask = PH_MASK_BAND;
            q.attn.band_left = -1;
            q.attn.band_right = 0;
        }
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        tensor *to[] = {&q.q, &q.k, &q.v, &q.dout, &q.dlse, &q.alibi};
        const tensor *from[] = {&p.q, &p.k, &p.v, &p.dout, &p.dlse, &p.alibi};
        for (int n = 0; n < 6; n++)
            for (int b = 0; b < from[n]->batch; b++)
                for (int h = 0; h < 4; h++) copy_head(to[n], b, h, from[n], b, h);
        set_nothing(&q, which);
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            for (int b = 0; b < 2; b++)
                for (int h = 0; h < 4; h++)
                    same_head(&p, b, h, &q, b, h, names[which], *isa);
            CHECK(tensor_same(&p.dk, &q.dk) && tensor_same(&p.dv, &q.dv),
                  "%s on %s: dk or dv differs", names[which], *isa);
        }
        problem_free(&p);
        problem_free(&q);
    }
}

/* A far cap changes little; a gate of 0 is a row beyond q_lens; gates by row and by
   head. */
static void far_cap(void)
{
    for (int index = 0; index < 20; index++) {
        problem p = sample(index), q;
        p.attn.softcap = 0;
        q = like(&p);
        q.attn.softcap = 5000;
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_forward(ctx, &p));
            must(ctx, drive_forward(ctx, &q));
            for (int i = 0; i < p.attn.q_len; i++)
                for (int d = 0; d < p.attn.v_dim; d++) {
                    double x = tensor_get(&p.out, 0, 1, i, d),
                           y = tensor_get(&q.out, 0, 1, i, d);
                    CHECK(fabs(x - y) < 2e-5, "case %d on %s: %g and %g", index, *isa, x,
                          y);
                }
        }
        problem_free(&p);
        problem_free(&q);
    }
}

static void gate_zero_is_absent(void)
{
    for (int index = 0; index < 20; index++) {
        problem p = sample(index), q;
        p.attn.anchor = PH_ANCHOR_OFFSET; /* END would move with q_lens */
        p.attn.gate = PH_GATE_ROW;
        p.with.gate = p.with.sink = p.with.q_lens = 1;
        q = like(&p);
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        int n = p.attn.q_len * 2 / 3;
        for (int b = 0; b < 2; b++) {
            p.q_lens[b] = p.attn.q_len;
            q.q_lens[b] = n;
            for (int h = 0; h < 4; h++)
                for (int i = n; i < p.attn.q_len; i++)
                    tensor_set(&p.gate, b, h, i, 0, index % 2 ? -0.0 : 0.0);
        }
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            for (int b = 0; b < 2; b++)
                for (int h = 0; h < 4; h++) same_head(&p, b, h, &q, b, h, "gate 0", *isa);
            CHECK(tensor_same(&p.dk, &q.dk) && tensor_same(&p.dv, &q.dv) &&
                      tensor_same(&p.dsink, &q.dsink) && tensor_same(&p.dgate, &q.dgate),
                  "case %d on %s: a gradient differs", index, *isa);
        }
        problem_free(&p);
        problem_free(&q);
    }
}

static void gate_by_row_and_by_head(void)
{
    for (int index = 0; index < 20; index++) {
        problem p = sample(index), q;
        p.with.gate = 1;
        q = like(&p);
        q.attn.gate = PH_GATE_ROW;
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        for (int b = 0; b < 2; b++)
            for (int h = 0; h < 4; h++) {
                tensor *to[] = {&q.q, &q.k, &q.v, &q.dout, &q.dlse};
                const tensor *from[] = {&p.q, &p.k, &p.v, &p.dout, &p.dlse};
                for (int n = 0; n < 5; n++) copy_head(to[n], b, h, from[n], b, h);
                copy_head(&q.alibi, 0, h, &p.alibi, 0, h);
                for (int i = 0; i < p.attn.q_len; i++)
                    tensor_copy_row(&q.gate, b, h, i, &p.gate, 0, h, 0);
            }
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            for (int h = 0; h < 4; h++) {
                double sum = 0, size = 0, whole = tensor_get(&p.dgate, 0, h, 0, 0);
                for (int b = 0; b < 2; b++) {
                    same_head(&p, b, h, &q, b, h, "gate", *isa);
                    for (int i = 0; i < p.attn.q_len; i++) {
                        sum += tensor_get(&q.dgate, b, h, i, 0);
                        size += fabs(tensor_get(&q.dgate, b, h, i, 0));
                    }
                }
                CHECK(fabs(sum - whole) <= 1e-5 * (size + 1e-3),
                      "case %d on %s: dgate %g, %g", index, *isa, whole, sum);
            }
        }
        problem_free(&p);
        problem_free(&q);
    }
}

/* ---- values without rounding ------------------------------------------------------ */

/* One key: the output is v itself, subnormal and huge values included. */
static void one_key(void)
{
    static const double extreme[] = {0, 1e-45, -1e-40, 3e38, -3e38, 1.17e-38, 1, -7.25};
    for (int type = PH_F32; type <= PH_BF16; type++) {
        problem p = {.attn = {.batch = 1,
                              .q_heads = 2,
                              .k_heads = 1,
                              .v_heads = 1,
                              .q_len = 7,
                              .kv_len = 1,
                              .qk_dim = 5,
                              .v_dim = 19,
                              .dtype = (ph_dtype)type},
                     .with = {.lse = 1}};
        problem_build(&p, 2);
        for (int d = 0; d < 8; d++)
            if (type != PH_F16) tensor_set(&p.v, 0, 0, 0, d, extreme[d]);
        tensor_set(&p.v, 0, 0, 0, 9, 6e-8); /* the smallest f16 */
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            must(ctx, drive_forward(ctx, &p));
            for (int h = 0; h < 2; h++)
                for (int i = 0; i < 7; i++)
                    for (int d = 0; d < 19; d++)
                        CHECK(tensor_get(&p.out, 0, h, i, d) ==
                                  tensor_get(&p.v, 0, 0, 0, d),
                              "type %d on %s: out %.9g, v %.9g", type, *isa,
                              tensor_get(&p.out, 0, h, i, d),
                              tensor_get(&p.v, 0, 0, 0, d));
        }
        problem_free(&p);
    }
}

/* q, k and v may be one tensor: the bits of three copies. */
static void one_tensor(void)
{
    problem p = {.attn = {.batch = 2,
                          .q_heads = 3,
                          .q_len = 50,
                          .kv_len = 50,
                          .qk_dim = 24,
                          .mask = PH_MASK_CAUSAL},
                 .with = {.lse = 1}};
    problem q = like(&p);
    problem_build(&p, 3);
    problem_build(&q, 3);
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < 3; h++) {
            copy_head(&q.k, b, h, &p.q, b, h);
            copy_head(&q.v, b, h, &p.q, b, h);
        }
    p.args.k = p.args.v = p.args.q;
    FOR_EACH_ISA(isa)
    {
        ph_ctx *ctx = need_ctx(*isa);
        must(ctx, drive_forward(ctx, &p));
        must(ctx, drive_forward(ctx, &q));
        CHECK(tensor_same(&p.out, &q.out) && tensor_same(&p.lse, &q.lse),
              "on %s: bits differ", *isa);
    }
    problem_free(&p);
    problem_free(&q);
}

/* ---- the floating-point mode ------------------------------------------------------ */

#ifdef __SSE__
/* Control bits only: a computation may raise sticky flags. */
enum { CONTROL = 0xffc0, FLUSH = 0x8040, TOWARD_ZERO = 0x6000 };

static void mode_untouched(void)
{
    unsigned before = _mm_getcsr(),
             modes[] = {0, FLUSH, TOWARD_ZERO, FLUSH | TOWARD_ZERO};
    FOR_EACH_ISA(isa)
    for (int n = 0; n < 4; n++) {
        problem p = sample(n);
        problem_build(&p, 1);
        _mm_setcsr(before | modes[n]);
        ph_ctx *ctx = NULL;
        ph_options options = {.isa = *isa, .threads = 2};
        ph_status status = ph_open(&ctx, &options);
        if (status == PH_OK) status = drive_backward(ctx, &p);
        ph_close(ctx);
        unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        CHECK(status == PH_OK, "refused: %s", ph_status_text(status));
        CHECK((after & CONTROL) == ((before | modes[n]) & CONTROL),
              "on %s: mode %#x became %#x", *isa, before | modes[n], after);
        problem_free(&p);
    }
}
#else
static void mode_untouched(void)
{
    SKIP("no SSE control register on this machine");
}
#endif

static const check_case cases[] = {
    {"rows_sum_to_one", rows_sum_to_one},
    {"key_permutation", key_permutation},
    {"head_and_batch_permutation", head_and_batch_permutation},
    {"causal_past", causal_past},
    {"grouped_equals_repeated", grouped_equals_repeated},
    {"neutral_options", neutral_options},
    {"far_cap", far_cap},
    {"gate_zero_is_absent", gate_zero_is_absent},
    {"gate_by_row_and_by_head", gate_by_row_and_by_head},
    {"one_key", one_key},
    {"one_tensor", one_tensor},
    {"mode_untouched", mode_untouched},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
