/*
 * test_ragged.c - ragged batches: random problems against the same rows with padding,
 * bit by bit, which itself is judged by the oracle; each sequence alone; wrong offsets.
 *
 *     test_ragged random --case=17 [--seed N]     one case alone, said in full
 */
#include <float.h>
#include <math.h>

#include "ragged_twin.h"
#include "sweep.h"

/* ---- random problems -------------------------------------------------------------- */

static const char *run_both(ph_ctx *ctx, ragged_twin *t, judge *j)
{
    int backward = t->padded.attn.backward;
    ph_status (*drive)(ph_ctx *, problem *) = backward ? drive_backward : drive_forward;
    problem_wipe(&t->padded);
    problem_wipe(&t->ragged);
    const char *why = refused(ctx, drive(ctx, &t->padded));
    if (!why && j && !t->padded.attn.reach) {
        judge_open(j, &t->padded);
        why = judge_forward(j, &t->padded);
        if (!why && backward) why = judge_backward(j, &t->padded);
        judge_close(j);
    }
    if (!why) why = refused(ctx, drive(ctx, &t->ragged));
    /* On a GPU the two layouts may take different kernels. */
    if (why || t->padded.tensor_cores != t->ragged.tensor_cores) return why;
    why = twin_differs(t);
    if (why || !backward || t->padded.tensor_grads != t->ragged.tensor_grads) return why;
    return twin_grads_differ(t);
}

static void random_case(int index)
{
    static const int threads[] = {2, 1, 3, 8};
    ragged_twin t = {.extras = 0};
    judge j;
    int judged = 0;
    case_draw(&t.padded.attn, &t.padded.with, check_seed + 77, index,
              index % 40 == 7 ? CASE_LARGE : CASE_SMALL);
    if (t.padded.attn.batch == 1) t.padded.attn.batch = 2 + index % 3;
    t.padded.attn.backward = index % 2;
    twin_build(&t, check_seed * 1000003 + (uint64_t)index, index);
    FOR_EACH_ISA(isa)
    {
        if (skip_isa(*isa, index)) continue;
        ph_ctx *ctx = drive_ctx(*isa, threads[index / 2 % 4]);
        const char *why = ctx ? run_both(ctx, &t, judged++ ? NULL : &j) : "no ctx";
        sweep_note("random", index, *isa, &t.padded, why);
    }
    twin_free(&t);
}

static void random_problems(void)
{
    sweep_begin();
    for (int index = 0; index < 240 / CASES_SLOW; index++)
        if (!left_out(index)) random_case(index);
    sweep_end();
}

/* ---- variants --------------------------------------------------------------------- */

/* Extras of dcmha with a row per token: (batch, len, ...). */
static int is_tokens(const ph_param *param)
{
    return !strncmp(param->name, "pre", 3) || !strncmp(param->name, "post", 4);
}

/* Elements of a token; there may be no token. */
static size_t row_size(const ph_param *param)
{
    size_t row = 1;
    for (int i = 2; i < param->rank; i++) row *= (size_t)param->dims[i];
    return row;
}

/* They lose their padding. */
static void pack_tokens(const ragged_twin *t, const ph_param *param, const float *from,
                        float *to)
{
    int keys = strchr(param->name, '_')[-1] == 'k', len = param->dims[1];
    size_t row = row_size(param);
    for (int b = 0; b < t->padded.attn.batch; b++) {
        int first = keys ? t->kv_offsets[b] : t->q_offsets[b];
        int count = keys ? t->padded.kv_lens[b] : t->padded.q_lens[b];
        memcpy(to + (size_t)first * row, from + (size_t)(b * len) * row,
               (size_t)count * row * sizeof *to);
    }
}

static void make_extras(ragged_twin *t, ph_ctx *ctx, uint64_t seed)
{
    ph_plan *plan[2] = {NULL, NULL};
    must(ctx, ph_plan_create(&plan[0], ctx, &t->padded.attn));
    must(ctx, ph_plan_create(&plan[1], ctx, &t->ragged.attn));
    for (; ph_plan_extra(plan[0], t->extras); t->extras++) {
        int e = t->extras;
        const ph_param *p = ph_plan_extra(plan[0], e), *r = ph_plan_extra(plan[1], e);
        size_t sizes[2] = {ph_param_size(p), ph_param_size(r)};
        for (int n = 0; n < 2; n++) {
            t->extra[n][e] = calloc(sizes[n] + 1, sizeof(float));
            t->dextra[n][e] = calloc(sizes[n] + 1, sizeof(float));
        }
        for (size_t i = 0; i < sizes[0]; i++)
            t->extra[0][e][i] = 0.3f * check_normal(&seed);
        if (is_tokens(p))
            pack_tokens(t, p, t->extra[0][e], t->extra[1][e]);
        else
            memcpy(t->extra[1][e], t->extra[0][e], sizes[0] * sizeof(float));
    }
    problem *both[2] = {&t->padded, &t->ragged};
    for (int n = 0; n < 2; n++) {
        both[n]->args.extra = (const float *const *)t->extra[n];
        both[n]->grads.dextra = t->dextra[n];
        ph_plan_free(plan[n]);
    }
}

/* Gradients of per-token extras have the same bits; those that all tokens share are sums
   in another order of the sequences: each of the two rounds once per key of a row, then
   once per row. */
static const char *differs_extras(const ragged_twin *t, ph_ctx *ctx)
{
    ph_plan *plan = NULL;
    must(ctx, ph_plan_create(&plan, ctx, &t->padded.attn));
    const char *why = NULL;
    const ph_attn *a = &t->ragged.attn;
    const float sums = (float)(a->q_total + a->kv_total) * FLT_EPSILON;
    for (int e = 0; e < t->extras; e++) {
        const ph_param *p = ph_plan_extra(plan, e);
        size_t count = ph_param_size(p);
        int tokens = is_tokens(p);
        float *packed = calloc(count + 1, sizeof *packed);
        if (tokens) pack_tokens(t, p, t->dextra[0][e], packed);
        size_t row = row_size(p);
        int total = tokens && strchr(p->name, '_')[-1] == 'k' ? t->ragged.attn.kv_total
                                                              : t->ragged.attn.q_total;
        if (tokens && !same_floats(t->dextra[1][e], packed, row * (size_t)total))
            why = "dextra differs";
        for (size_t i = 0; i < count && !tokens; i++)
            if (fabsf(t->dextra[0][e][i] - t->dextra[1][e][i]) >
                sums * (1 + fabsf(t->dextra[0][e][i])))
                why = "a sum of dextra differs";
        free(packed);
    }
    ph_plan_free(plan);
    return why;
}

static int is_near(const float *a, const float *b, size_t count)
{
    for (size_t i = 0; a && i < count; i++)
        if (fabsf(a[i] - b[i]) > FLT_EPSILON * fabsf(a[i]) + 0x1p-40f) return 0;
    return 1;
}

/* Sums over all sequences, which a ragged batch takes in another order: in double, where
   thousands of terms of about 1 are off by less than 2^-40, and rounded once. */
static const char *differs_sums(const ragged_twin *t)
{
    const ph_grads *a = &t->padded.grads, *b = &t->ragged.grads;
    size_t heads = (size_t)t->padded.attn.q_heads;
    size_t distances = 2 * (size_t)t->padded.attn.reach + 1;
    if (!is_near(a->dsink, b->dsink, heads)) return "dsink differs by more than rounding";
    if (!is_near(a->drelative, b->drelative, heads * distances))
        return "drelative differs by more than rounding";
    return NULL;
}

static const char *const variants[] = {
    "talking",      "entmax:alpha=1.5",    "sparsemax",
    "dcmha:rank=2", "dcmha:rank=1,side=k", "talking+sparsemax"};

static void variant_case_at(int index)
{
    ragged_twin t = {.extras = 0};
    ph_attn *a = &t.padded.attn;
    case_draw(a, &t.padded.with, check_seed + 5, index, CASE_SMALL);
    a->variant = variants[index % 6];
    a->batch = 1 + index % 5, a->q_heads = 4, a->k_heads = a->v_heads = index % 2 ? 2 : 4;
    if (a->q_len > 90) a->q_len = 90;
    if (a->kv_len > 150) a->kv_len = 150;
    if (a->mask && a->anchor == PH_ANCHOR_UNSET) a->anchor = PH_ANCHOR_END;
    a->backward = 1;
    t.padded.with.sink = t.padded.with.dlse = 0;
    if (index % 3) t.padded.with.rect = 0;
    twin_build(&t, check_seed * 1009 + (uint64_t)index, index);
    ph_ctx *ctx = drive_ctx(NULL, 1 + index % 4);
    make_extras(&t, ctx, (uint64_t)index);
    const char *why = run_both(ctx, &t, NULL);
    if (why && strstr("dsink differs drelative differs", why)) why = differs_sums(&t);
    if (!why) why = differs_extras(&t, ctx);
    sweep_note(a->variant, index, "best", &t.padded, why);
    twin_free(&t);
}

static void all_variants(void)
{
    sweep_begin();
    for (int index = 0; index < 60 / CASES_SLOW; index++)
        if (!left_out(index)) variant_case_at(index);
    sweep_end();
}

/* ---- lengths at the edges of blocks, one long among short ones --------------------- */

enum { HEADS = 4, KV_HEADS = 2, DIM = 32 };

typedef struct batch {
    int count, total;
    const int *lens;
    int32_t offsets[32];
    float *q, *k, *v, *out, *lse, *dout, *dq, *dk, *dv;
} batch;

static float *floats(size_t count, uint64_t *seed)
{
    float *x = malloc((count + 1) * sizeof *x);
    for (size_t i = 0; i < count; i++) x[i] = seed ? check_normal(seed) : -3;
    return x;
}

static void batch_build(batch *b, const int *lens, int count)
{
    uint64_t seed = check_seed;
    *b = (batch){.count = count, .lens = lens};
    for (int i = 0; i < count; i++) b->offsets[i + 1] = b->offsets[i] + lens[i];
    b->total = b->offsets[count];
    size_t q = (size_t)b->total * HEADS * DIM, k = (size_t)b->total * KV_HEADS * DIM;
    b->q = floats(q, &seed), b->k = floats(k, &seed), b->v = floats(k, &seed);
    b->dout = floats(q, &seed), b->out = floats(q, NULL), b->dq = floats(q, NULL);
    b->dk = floats(k, NULL), b->dv = floats(k, NULL);
    b->lse = floats((size_t)b->total * HEADS, NULL);
}

static void batch_free(batch *b)
{
    float *all[] = {b->q, b->k, b->v, b->out, b->lse, b->dout, b->dq, b->dk, b->dv};
    for (int i = 0; i < 9; i++) free(all[i]);
}

/* Tokens side by side, their heads together, as a layer has them. */
static ph_attn batch_attn(int total)
{
    ph_strides q = {0, DIM, HEADS * DIM}, k = {0, DIM, KV_HEADS * DIM};
    return (ph_attn){.q_heads = HEADS,
                     .k_heads = KV_HEADS,
                     .v_heads = KV_HEADS,
                     .qk_dim = DIM,
                     .q_total = total,
                     .kv_total = total,
                     .q = q,
                     .k = k,
                     .v = k,
                     .out = q,
                     .mask = PH_MASK_CAUSAL,
                     .ragged = PH_RAGGED_ALL,
                     .backward = 1};
}

static void batch_run(ph_ctx *ctx, const ph_attn *attn, const batch *b, int first,
                      const int32_t *offsets)
{
    ph_plan *plan = NULL;
    size_t q = (size_t)first * HEADS * DIM, k = (size_t)first * KV_HEADS * DIM;
    float *lse = attn->ragged ? b->lse : b->lse + (size_t)first * HEADS;
    ph_args args = {.q = b->q + q, .k = b->k + k, .v = b->v + k, .out = b->out + q};
    ph_grads grads = {.dout = b->dout + q};
    args.lse = lse, args.q_offsets = offsets;
    grads.dq = b->dq + q, grads.dk = b->dk + k, grads.dv = b->dv + k;
    must(ctx, ph_plan_create(&plan, ctx, attn));
    must(ctx, ph_forward(plan, &args));
    must(ctx, ph_backward(plan, &args, &grads));
    ph_plan_free(plan);
}

static void check_alone(ph_ctx *ctx, const int *lens, int count)
{
    batch all, alone;
    batch_build(&all, lens, count);
    batch_build(&alone, lens, count);
    ph_attn attn = batch_attn(all.total);
    attn.batch = count;
    batch_run(ctx, &attn, &all, 0, all.offsets);
    for (int i = 0; i < count; i++) { /* as a dense batch of one */
        ph_attn one = batch_attn(0);
        one.ragged = PH_RAGGED_NONE, one.q_total = one.kv_total = 0;
        one.batch = 1, one.q_len = one.kv_len = lens[i];
        batch_run(ctx, &one, &alone, alone.offsets[i], NULL);
    }
    size_t q = (size_t)all.total * HEADS * DIM, k = (size_t)all.total * KV_HEADS * DIM;
    CHECK(same_floats(all.out, alone.out, q), "out differs from the sequences alone");
    CHECK(same_floats(all.dq, alone.dq, q), "dq differs from the sequences alone");
    CHECK(same_floats(all.dk, alone.dk, k), "dk differs from the sequences alone");
    CHECK(same_floats(all.dv, alone.dv, k), "dv differs from the sequences alone");
    for (int i = 0; i < count; i++)
        for (int h = 0; h < HEADS; h++)
            CHECK(same_floats(all.lse + h * all.total + all.offsets[i],
                              alone.lse + all.offsets[i] * HEADS + h * lens[i],
                              (size_t)lens[i]),
                  "lse of sequence %d differs from that alone", i);
    batch_free(&all);
    batch_free(&alone);
}

static void each_alone(void)
{
    static const int edges[] = {0, 1, 2, 13, 127, 128, 129, 0, 257, 31, 512, 513, 97, 0};
    static const int uneven[] = {3, 700, 1, 1, 5, 17, 2, 0, 9, 4, 16, 12};
    static const int equal[] = {64, 64, 64, 64};
    for (int threads = 1; threads <= 8; threads++) {
        ph_ctx *ctx = drive_ctx(NULL, threads);
        check_alone(ctx, edges, threads < 3 ? 14 : 7);
        check_alone(ctx, uneven, 12);
        check_alone(ctx, equal, 4);
    }
    check_alone(drive_ctx("ref", 2), uneven, 12);
}

/* ---- ragged queries against caches ------------------------------------------------- */

/* Queries side by side, keys by batch row: what a padded batch of queries gives. */
static void cached_keys(void)
{
    enum { BATCH = 3, CAPACITY = 600 };
    static const int32_t counts[BATCH] = {2, 0, 5}, filled[BATCH] = {600, 30, 129};
    static const int32_t offsets[BATCH + 1] = {0, 2, 2, 7};
    uint64_t seed = check_seed;
    float *q = floats(BATCH * HEADS * 5 * DIM, &seed),
          *side = floats(HEADS * 7 * DIM, NULL);
    float *k = floats(BATCH * KV_HEADS * CAPACITY * DIM, &seed);
    float *out = floats(BATCH * HEADS * 5 * DIM, NULL),
          *found = floats(HEADS * 7 * DIM, NULL);
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < counts[b]; i++)
                memcpy(side + (h * 7 + offsets[b] + i) * DIM,
                       q + ((b * HEADS + h) * 5 + i) * DIM, DIM * sizeof *q);
    for (int threads = 1; threads <= 4; threads++) {
        ph_ctx *ctx = drive_ctx(NULL, threads);
        ph_plan *plan = NULL;
        ph_attn attn = {.batch = BATCH, .q_heads = HEADS, .k_heads = KV_HEADS};
        attn.v_heads = KV_HEADS, attn.qk_dim = DIM, attn.kv_len = CAPACITY;
        attn.mask = PH_MASK_CAUSAL, attn.anchor = PH_ANCHOR_END, attn.q_len = 5;
        ph_args args = {.q = q, .k = k, .v = k, .out = out, .kv_lens = filled};
        args.q_lens = counts;
        must(ctx, ph_plan_create(&plan, ctx, &attn));
        must(ctx, ph_forward(plan, &args));
        ph_plan_free(plan);
        attn.ragged = PH_RAGGED_QUERIES, attn.q_total = 7;
        args.q = side, args.out = found, args.q_lens = NULL, args.q_offsets = offsets;
        must(ctx, ph_plan_create(&plan, ctx, &attn));
        must(ctx, ph_forward(plan, &args));
        ph_plan_free(plan);
        for (int b = 0; b < BATCH; b++)
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < counts[b]; i++)
                    CHECK(same_floats(found + (h * 7 + offsets[b] + i) * DIM,
                                      out + ((b * HEADS + h) * 5 + i) * DIM, DIM),
                          "row %d of sequence %d, head %d differs", i, b, h);
    }
    free(q), free(side), free(k), free(out), free(found);
}

/* ---- refused ---- */

static void wrong_plan(ph_ctx *ctx, ph_attn attn, const char *sentence)
{
    ph_plan *plan = NULL;
    ph_status status = ph_plan_create(&plan, ctx, &attn);
    CHECK(status != PH_OK && !plan, "a plan was made, expected \"%s\"", sentence);
    CHECK(strstr(ph_error(ctx), sentence), "said \"%s\", expected \"%s\"", ph_error(ctx),
          sentence);
}

static void wrong_plans(void)
{
    ph_ctx *ctx = drive_ctx(NULL, 2);
    ph_attn a = batch_attn(10), x;
    a.batch = 3;
    x = a, x.q.batch = 5, wrong_plan(ctx, x, "q.batch is 5, expected 0");
    x = a, x.bias = (ph_broadcast){1, 1, 1}, wrong_plan(ctx, x, "bias has a shape");
    x = a, x.visible = (ph_broadcast){1, 1, 1}, wrong_plan(ctx, x, "visible has a shape");
    x = a, x.q_len = 11, wrong_plan(ctx, x, "q_len is 11 and q_total 10");
    x = a, x.kv_len = 11, wrong_plan(ctx, x, "kv_len is 11 and kv_total 10");
    x = a, x.q_total = -1, wrong_plan(ctx, x, "q_total -1");
    x = a, x.ragged = (ph_ragged)3, wrong_plan(ctx, x, "ragged is 3");
    x = a, x.ragged = PH_RAGGED_NONE, wrong_plan(ctx, x, "q_total is 10 but");
    x = a, x.ragged = PH_RAGGED_QUERIES, wrong_plan(ctx, x, "kv_total is 10 but");
}

static void wrong_offsets(void)
{
    static const struct {
        int32_t q[4], kv[4];
        const char *sentence;
    } wrong[] = {{{0, 3, 2, 10}, {0, 3, 7, 10}, "q_offsets[2] is 2 after 3"},
                 {{1, 3, 7, 10}, {0, 3, 7, 10}, "q_offsets run from 1 to 10"},
                 {{0, 3, 7, 9}, {0, 3, 7, 10}, "q_offsets run from 0 to 9"},
                 {{0, 3, 7, 10}, {0, 3, 7, 11}, "kv_offsets run from 0 to 11"},
                 {{0, 3, 7, 10}, {0, 12, 7, 10}, "kv_offsets[1] is 12 after 0"},
                 {{0, 0, 0, 10}, {0, 3, 7, 10}, "q_offsets[3] is 10 after 0"},
                 {{0, -2147483647, 2147483647, 10}, {0, 3, 7, 10}, "q_offsets[1] is"}};
    ph_ctx *ctx = drive_ctx(NULL, 2);
    static const int lens[] = {3, 4, 3};
    batch b;
    ph_plan *plan = NULL;
    batch_build(&b, lens, 3);
    ph_attn attn = batch_attn(b.total);
    attn.batch = 3, attn.q_len = attn.kv_len = 6;
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    ph_args args = {.q = b.q, .k = b.k, .v = b.v, .out = b.out, .lse = b.lse};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        args.q_offsets = wrong[i].q, args.kv_offsets = wrong[i].kv;
        CHECK(ph_forward(plan, &args) == PH_BAD_SHAPE, "case %zu was not refused", i);
        CHECK(strstr(ph_error(ctx), wrong[i].sentence), "said \"%s\", expected \"%s\"",
              ph_error(ctx), wrong[i].sentence);
    }
    args.q_offsets = args.kv_offsets = NULL;
    CHECK(ph_forward(plan, &args) == PH_BAD_ARGUMENT, "no offsets were not refused");
    args.q_offsets = b.offsets, args.q_lens = b.offsets;
    CHECK(ph_forward(plan, &args) == PH_BAD_ARGUMENT, "q_lens were not refused");
    for (int i = 0; i < b.total * HEADS * DIM; i++)
        CHECK(b.out[i] == -3, "a refused call wrote out[%d]", i);
    args.q_lens = NULL;
    must(ctx, ph_forward(plan, &args));
    ph_plan_free(plan);
    batch_free(&b);
}

static const check_case cases[] = {{"random", random_problems},
                                   {"variants", all_variants},
                                   {"alone", each_alone},
                                   {"cached", cached_keys},
                                   {"wrong_plans", wrong_plans},
                                   {"wrong_offsets", wrong_offsets},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
