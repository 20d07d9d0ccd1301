/*
 * test_masked.c - masked means never read: NaN, Inf and random bits where no row looks
 * change
 * no bit of any result; NaN where a row does look reaches that row and no other; rows
 * that
 * see nothing give zeros; sizes of zero are legal. Every instruction set.
 *
 *     test_masked unseen --case=17 [--seed N]     one case alone
 */
#include <float.h>
#include <math.h>

#include "sweep.h"

/* Name of the first output in which the two problems differ, or NULL. */
static const char *differs(const problem *p, const problem *q)
{
    const tensor *x[] = {&p->out,        &p->lse,   &p->weights, &p->col_sum, &p->entropy,
                         &p->top_weight, &p->rect,  &p->dq,      &p->dk,      &p->dv,
                         &p->dbias,      &p->dgate, &p->dsink};
    const tensor *y[] = {&q->out,        &q->lse,   &q->weights, &q->col_sum, &q->entropy,
                         &q->top_weight, &q->rect,  &q->dq,      &q->dk,      &q->dv,
                         &q->dbias,      &q->dgate, &q->dsink};
    static const char *const names[] = {
        "out", "lse", "weights", "col_sum", "entropy", "top_weight", "rect",
        "dq",  "dk",  "dv",      "dbias",   "dgate",   "dsink"};
    for (size_t n = 0; n < sizeof x / sizeof *x; n++)
        if (!tensor_same(x[n], y[n])) return names[n];
    if (p->top_index && memcmp(p->top_index->bytes, q->top_index->bytes,
                               p->top_index->count * p->top_index->size))
        return "top_index";
    return NULL;
}

/* ---- NaN and Inf where no row looks ------------------------------------------------ */

/* The same random problem twice, once with NaN or Inf in everything masked. */
static void unseen(void)
{
    char why[60];
    sweep_begin();
    for (int index = 0; index < 500 / CASES_SLOW; index++) {
        problem p = {.slab_count = 0}, q = {.slab_count = 0};
        if (left_out(index)) continue;
        case_draw(&p.attn, &p.with, check_seed + 200, index,
                  index % 3 ? CASE_TINY : CASE_SMALL);
        p.attn.backward = 1;
        if (p.with.layout >= LAYOUT_OVERLAP) p.with.layout = LAYOUT_PADDED;
        q.attn = p.attn;
        q.with = p.with;
        p.with.clean = 1;
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            problem_wipe(&p);
            problem_wipe(&q);
            must(ctx, drive_backward(ctx, &p));
            must(ctx, drive_backward(ctx, &q));
            const char *name = differs(&p, &q);
            snprintf(why, sizeof why, "a masked value reached %s",
                     name ? name : "nothing");
            sweep_note("unseen", index, *isa, &p, name ? why : NULL);
        }
        problem_free(&p);
        problem_free(&q);
    }
    sweep_end();
}

/* Bias is an input too: what stands in it where the band hides the key is not read. */
static void unseen_bias(void)
{
    ph_attn attn = {.batch = 2,
                    .q_heads = 2,
                    .q_len = 40,
                    .kv_len = 40,
                    .qk_dim = 16,
                    .mask = PH_MASK_CAUSAL,
                    .bias = {2, 2, 40},
                    .backward = 1};
    problem p = {.attn = attn, .with = {.kv_lens = 1, .clean = 1, .lse = 1}};
    problem q = p;
    problem_build(&p, 3);
    problem_build(&q, 3);
    for (int b = 0; b < 2; b++) {
        p.kv_lens[b] = q.kv_lens[b] = 33;
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 40; i++)
                for (int j = 0; j < 40; j++)
                    if (j > i || j >= 33) tensor_set(&q.bias, b, h, i, j, (double)NAN);
    }
    FOR_EACH_ISA(isa)
    {
        ph_ctx *ctx = need_ctx(*isa);
        must(ctx, drive_backward(ctx, &p));
        must(ctx, drive_backward(ctx, &q));
        const char *name = differs(&p, &q);
        CHECK(!name, "on %s: NaN in the bias of hidden keys reached %s", *isa, name);
    }
    problem_free(&p);
    problem_free(&q);
}

/* ---- NaN where somebody looks ----------------------------------------------------- */

/* 1: row (b, h, i) must be NaN after NaN was put into row j of head g of this tensor. */
static int reached(const dense *p, char where, int b, int h, int i, int c, int g, int j)
{
    int heads = where == 'q' ? p->q_heads : where == 'k' ? p->k_heads : p->v_heads;
    if (b != c || h / (p->q_heads / heads) != g) return 0;
    if (where != 'q') return dense_sees(p, b, h, i, j);
    int any = 0;
    for (int n = 0; n < p->kv_len; n++) any |= dense_sees(p, b, h, i, n);
    return i == j && any;
}

static const char *check_reach(const problem *p, const problem *clean, const dense *d,
                               char where, int c, int g, int j, int e)
{
    static char text[200];
    for (int b = 0; b < d->batch; b++)
        for (int h = 0; h < d->q_heads; h++)
            for (int i = 0; i < d->q_len; i++) {
                int hit = reached(d, where, b, h, i, c, g, j), fine = 1;
                if (!hit)
                    fine = tensor_same_row(&p->out, b, h, i, &clean->out, b, h, i) &&
                           tensor_same_row(&p->lse, b, h, i, &clean->lse, b, h, i);
                for (int n = 0; hit && n < d->v_dim; n++)
                    if (where != 'v' || n == e)
                        fine &= isnan(tensor_get(&p->out, b, h, i, n));
                if (hit && where != 'v') fine &= isnan(tensor_get(&p->lse, b, h, i, 0));
                if (hit && where == 'v')
                    fine &= tensor_same_row(&p->lse, b, h, i, &clean->lse, b, h, i);
                if (fine) continue;
                snprintf(text, sizeof text,
                         "NaN in %c(%d,%d,%d,%d) %s row (%d,%d,%d): out %g, lse %g",
                         where, c, g, j, e, hit ? "did not reach" : "changed", b, h, i,
                         tensor_get(&p->out, b, h, i, 0),
                         tensor_get(&p->lse, b, h, i, 0));
                return text;
            }
    return NULL;
}

static void nan_case(int index)
{
    uint64_t rng = (uint64_t)index * 31 + check_seed;
    problem p = {.slab_count = 0}, clean = {.slab_count = 0};
    case_draw(&p.attn, &p.with, check_seed + 300, index,
              index % 3 ? CASE_TINY : CASE_SMALL);
    if (p.with.layout >= LAYOUT_OVERLAP) p.with.layout = LAYOUT_TIME;
    p.attn.dropout = 0; /* a dropped NaN is neither seen nor unseen */
    p.with.lse = p.with.clean = 1;
    p.with.no_look = 1;
    if (!p.attn.batch || !p.attn.q_len || !p.attn.kv_len) return;
    clean.attn = p.attn;
    clean.with = p.with;
    problem_build(&p, (uint64_t)index);
    problem_build(&clean, (uint64_t)index);
    dense d;
    dense_load(&d, &p.attn, &p.args, NULL);
    char where = "qkv"[index % 3];
    tensor *t = where == 'q' ? &p.q : where == 'k' ? &p.k : &p.v;
    int b = check_below(&rng, t->batch), g = check_below(&rng, t->heads);
    int j = check_below(&rng, t->len), e = check_below(&rng, t->dim);
    tensor_set(t, b, g, j, e, (double)NAN);
    FOR_EACH_ISA(isa)
    {
        ph_ctx *ctx = need_ctx(*isa);
        must(ctx, drive_forward(ctx, &clean));
        must(ctx, drive_forward(ctx, &p));
        const char *why = check_reach(&p, &clean, &d, where, b, g, j, e);
        sweep_note("nan_reach", index, *isa, &p, why);
    }
    dense_free(&d);
    problem_free(&p);
    problem_free(&clean);
}

static void nan_reach(void)
{
    sweep_begin();
    for (int index = 0; index < 450 / CASES_SLOW; index++)
        if (!left_out(index)) nan_case(index);
    sweep_end();
}

/* ---- rows that see nothing -------------------------------------------------------- */

static void expect_zero(const tensor *t, const char *name, const char *how,
                        const char *isa)
{
    for (int b = 0; t->mem && b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++)
                for (int d = 0; d < t->dim; d++)
                    CHECK(tensor_get(t, b, h, i, d) == 0, "%s, %s: %s(%d,%d,%d,%d) is %g",
                          how, isa, name, b, h, i, d, tensor_get(t, b, h, i, d));
}

/* Runs p, none of whose rows sees a key, and checks every result. */
static void all_empty(problem *p, const char *how)
{
    static const char *const names[] = {"out",        "weights", "col_sum", "entropy",
                                        "top_weight", "dq",      "dk",      "dv",
                                        "dbias",      "dgate"};
    FOR_EACH_ISA(isa)
    {
        ph_ctx *ctx = need_ctx(*isa);
        problem_wipe(p);
        must(ctx, drive_backward(ctx, p));
        const tensor *zero[] = {&p->out,        &p->weights, &p->col_sum, &p->entropy,
                                &p->top_weight, &p->dq,      &p->dk,      &p->dv,
                                &p->dbias,      &p->dgate};
        for (int n = 0; n < 10; n++) expect_zero(zero[n], names[n], how, *isa);
        const int32_t *index = (const int32_t *)p->top_index->bytes;
        for (size_t n = 0; n < p->top_index->count; n++)
            CHECK(index[n] == -1, "%s, %s: top_index %d", how, *isa, (int)index[n]);
        for (int b = 0; b < p->lse.batch; b++)
            for (int h = 0; h < p->lse.heads; h++)
                for (int i = 0; i < p->lse.len; i++) {
                    double want =
                        p->sink.mem ? tensor_get(&p->sink, 0, h, 0, 0) : -INFINITY;
                    double lse = tensor_get(&p->lse, b, h, i, 0);
                    CHECK(lse == want, "%s, %s: lse %g, expected %g", how, *isa, lse,
                          want);
                }
    }
}

static void empty_rows(void)
{
    for (int sink = 0; sink < 2; sink++)
        for (int way = 0; way < 5; way++) {
            static const char *const ways[] = {"kv_lens 0", "band beside the keys",
                                               "visible 0", "bias -inf",
                                               "causal before key 0"};
            problem p = {.attn = {.batch = 2,
                                  .q_heads = 4,
                                  .k_heads = 2,
                                  .v_heads = 1,
                                  .q_len = 21,
                                  .kv_len = 35,
                                  .qk_dim = 9,
                                  .v_dim = 5,
                                  .backward = 1,
                                  .gate = PH_GATE_ROW},
                         .with = {.sink = sink,
                                  .lse = 1,
                                  .weights = 1,
                                  .col_sum = 1,
                                  .entropy = 1,
                                  .top_k = 3,
                                  .gate = 1}};
            if (way == 0) p.with.kv_lens = 1;
            if (way == 1) p.attn.mask = PH_MASK_BAND;
            if (way == 2) p.attn.visible = (ph_broadcast){1, 4, 21};
            if (way == 3) p.attn.bias = (ph_broadcast){2, 1, 1};
            if (way == 4) p.attn.mask = PH_MASK_CAUSAL;
            if (p.attn.mask) p.attn.anchor = PH_ANCHOR_OFFSET;
            if (p.attn.mask) p.attn.q_offset = way == 1 ? 60 : -21;
            p.attn.band_left = p.attn.band_right = 4;
            problem_build(&p, 11);
            if (way == 0) p.kv_lens[0] = p.kv_lens[1] = 0;
            if (way == 2) memset(p.visible, 0, 4 * 21 * 35);
            for (int b = 0; way == 3 && b < 2; b++)
                tensor_set_row(&p.bias, b, 0, 0, -INFINITY);
            all_empty(&p, ways[way]);
            problem_free(&p);
        }
}

/* ---- sizes of zero ---------------------------------------------------------------- */

static void zero_sizes(void)
{
    for (int way = 0; way < 4; way++) {
        problem p = {.attn = {.batch = way == 0 ? 0 : 2,
                              .q_heads = 3,
                              .q_len = way == 1 || way == 3 ? 0 : 7,
                              .kv_len = way == 2 || way == 3 ? 0 : 19,
                              .qk_dim = 8,
                              .backward = 1,
                              .mask = PH_MASK_CAUSAL,
                              .anchor = PH_ANCHOR_END},
                     .with = {.lse = 1,
                              .weights = 1,
                              .col_sum = 1,
                              .entropy = 1,
                              .top_k = 2,
                              .sink = 1,
                              .gate = 1,
                              .dlse = 1,
                              .q_lens = 1,
                              .kv_lens = 1}};
        problem_build(&p, 2);
        FOR_EACH_ISA(isa)
        {
            ph_ctx *ctx = need_ctx(*isa);
            problem_wipe(&p);
            must(ctx, drive_backward(ctx, &p));
            judge j;
            judge_open(&j, &p);
            const char *why = judge_forward(&j, &p);
            if (!why) why = judge_backward(&j, &p);
            CHECK(!why, "way %d on %s: %s", way, *isa, why);
            judge_close(&j);
        }
        problem_free(&p);
    }
}

/* ---- the smallest finite number --------------------------------------------------- */

/* A bias of -FLT_MAX everywhere leaves nothing but itself in the scores: equal weights.
   */
static void smallest_finite(void)
{
    problem p = {.attn = {.batch = 1,
                          .q_heads = 2,
                          .q_len = 5,
                          .kv_len = 70,
                          .qk_dim = 4,
                          .bias = {1, 1, 5}},
                 .with = {.lse = 1, .clean = 1}};
    problem_build(&p, 8);
    for (int i = 0; i < 5; i++) tensor_set_row(&p.bias, 0, 0, i, (double)-FLT_MAX);
    tensor_set(&p.bias, 0, 0, 4, 33, 0); /* row 4: all weight on key 33 */
    FOR_EACH_ISA(isa)
    {
        ph_ctx *ctx = need_ctx(*isa);
        must(ctx, drive_forward(ctx, &p));
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 5; i++)
                for (int d = 0; d < 4; d++) {
                    double mean = 0, out = tensor_get(&p.out, 0, h, i, d);
                    for (int j = 0; j < 70; j++)
                        mean += tensor_get(&p.v, 0, h, j, d) / 70;
                    if (i == 4) mean = tensor_get(&p.v, 0, h, 33, d);
                    CHECK(fabs(out - mean) < 2e-6,
                          "on %s: out(%d,%d,%d) is %g, expected %g", *isa, h, i, d, out,
                          mean);
                }
    }
    problem_free(&p);
}

static const check_case cases[] = {
    {"unseen", unseen},
    {"unseen_bias", unseen_bias},
    {"nan_reach", nan_reach},
    {"empty_rows", empty_rows},
    {"zero_sizes", zero_sizes},
    {"smallest_finite", smallest_finite},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
