/*
 * test_cuda_fast.c - 16-bit plans on the GPU's tensor cores: judged by the oracle, same
 * bits however a prompt is cut, and NaN and Inf only where they are seen.
 */
#include <math.h>

#include "fast_bed.h"
#include "ragged_twin.h"
#include "sweep.h"

/* Those that are not multiples of 8 are copied first. */
static const int fast_dims[][2] = {{64, 64},  {128, 128}, {256, 256}, {8, 8},
                                   {32, 64},  {128, 40},  {192, 128}, {96, 128},
                                   {64, 16},  {120, 72},  {136, 256}, {1, 1},
                                   {33, 50},  {100, 100}, {7, 128},   {250, 253},
                                   {64, 130}};
enum { FAST_DIMS = sizeof fast_dims / sizeof fast_dims[0] };

/* 16-bit plans of every mask, lengths around the edges of tiles, several splits. */
static void fast_case(ph_ctx *ctx, int n)
{
    static const int lens[] = {1, 64, 127, 129, 192, 193, 260, 385};
    static const int keys[] = {1, 63, 128, 129, 200, 256, 300, 513};
    const int *dim = fast_dims[n / 2 % FAST_DIMS];
    int long_row = n % 16 == 15, wide = dim[0] + dim[1] > 256;
    int drop = n % 7 == 6 && !long_row;
    problem p = {.attn = {.batch = long_row || wide ? 1 : 2,
                          .q_heads = long_row ? 1
                                     : wide   ? 2
                                              : 4,
                          .k_heads = long_row || wide ? 1 : 2,
                          .v_heads = 1,
                          .q_len = long_row ? 70 : lens[n % 8],
                          .kv_len = long_row ? 4200 + n : keys[n / 3 % 8],
                          .qk_dim = dim[0],
                          .v_dim = dim[1],
                          .dtype = n % 2 ? PH_BF16 : PH_F16,
                          .mask = (ph_mask)(n % 3),
                          .band_left = n % 5 ? 3 * n : -1,
                          .band_right = n % 7 ? n : -1,
                          .anchor = PH_ANCHOR_END,
                          .softcap = n % 7 == 3 ? 2.0f + n % 3 * 20.0f : 0,
                          .dropout = drop ? 0.3f : 0,
                          .gate = n % 18 == 1 ? PH_GATE_HEAD : PH_GATE_ROW},
                 .with = {.lse = 1,
                          .weights = drop, /* say to the judge what was dropped */
                          .alibi = n % 7 == 5,
                          .kv_lens = n % 4 == 1,
                          .q_lens = n % 4 == 2,
                          .sink = n % 5 == 1,
                          .gate = n % 6 == 1,
                          .gate_zeros = n % 12 == 1}};
    problem_build(&p, (uint64_t)n);
    run_and_judge(ctx, &p);
    problem_free(&p);
}

static void fast_forward(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 8 * FAST_DIMS; n++) fast_case(ctx, n);
    ph_close(ctx);
}

/* Rows first to first + count of a causal prompt in a call of their own: same bits. */
static void fast_chunk(ph_ctx *ctx, const problem *whole, int first, int count)
{
    problem part = {.attn = whole->attn, .with = whole->with};
    part.attn.q_len = count, part.attn.kv_len = first + count;
    problem_build(&part, 1);
    for (int h = 0; h < part.attn.q_heads; h++)
        for (int i = 0; i < count; i++)
            tensor_copy_row(&part.q, 0, h, i, &whole->q, 0, h, first + i);
    for (int h = 0; whole->alibi.mem && h < part.attn.q_heads; h++)
        tensor_copy_row(&part.alibi, 0, h, 0, &whole->alibi, 0, h, 0);
    copy_keys(&part, whole, 0, first + count);
    must(ctx, device_run(ctx, &part, 0));
    for (int h = 0; h < part.attn.q_heads; h++)
        for (int i = 0; i < count; i++)
            CHECK(tensor_same_row(&part.out, 0, h, i, &whole->out, 0, h, first + i) &&
                      tensor_same_row(&part.lse, 0, h, i, &whole->lse, 0, h, first + i),
                  "row %d differs when rows %d to %d are one call", first + i, first,
                  first + count - 1);
    problem_free(&part);
}

static void fast_bits(void)
{
    static const int chunks[][2] = {{0, 1},     {0, 77},   {50, 200},   {127, 130},
                                    {2000, 90}, {2047, 2}, {2048, 300}, {1000, 3000},
                                    {4290, 10}, {4299, 1}};
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 9; n++) {
        problem p = {.attn = {.batch = 1,
                              .q_heads = 8,
                              .k_heads = n % 2 ? 2 : 8,
                              .v_heads = n % 3 ? 4 : 8,
                              .q_len = 4300,
                              .kv_len = 4300,
                              .qk_dim = 64 << n % 3,
                              .dtype = n % 2 ? PH_F16 : PH_BF16,
                              .mask = PH_MASK_CAUSAL,
                              .softcap = n == 4 || n == 5 ? 30 : 0,
                              .anchor = PH_ANCHOR_END},
                     .with = {.lse = 1, .clean = 1, .alibi = n > 5}};
        problem_build(&p, (uint64_t)n);
        must(ctx, device_run(ctx, &p, 0));
        CHECK(p.tensor_cores, "case %d took the plain kernels", n);
        for (int c = 0; c < 10; c++) fast_chunk(ctx, &p, chunks[c][0], chunks[c][1]);
        problem_free(&p);
    }
    ph_close(ctx);
}

/* Batch row b in a call of its own: same bits. */
static void fast_alone(ph_ctx *ctx, const problem *all, int b)
{
    problem one = {.attn = all->attn, .with = all->with};
    one.attn.batch = 1;
    problem_build(&one, 1);
    one.kv_lens[0] = all->kv_lens[b];
    if (one.q_lens) one.q_lens[0] = all->q_lens[b];
    for (int h = 0; h < one.attn.q_heads; h++)
        for (int i = 0; i < one.attn.q_len; i++) {
            tensor_copy_row(&one.q, 0, h, i, &all->q, b, h, i);
            if (one.gate.mem) tensor_copy_row(&one.gate, 0, h, i, &all->gate, b, h, i);
        }
    copy_keys(&one, all, b, one.attn.kv_len);
    must(ctx, device_run(ctx, &one, 0));
    for (int h = 0; h < one.attn.q_heads; h++)
        for (int i = 0; i < one.attn.q_len; i++)
            CHECK(tensor_same_row(&one.out, 0, h, i, &all->out, b, h, i) &&
                      tensor_same_row(&one.lse, 0, h, i, &all->lse, b, h, i),
                  "batch row %d, head %d, row %d differs alone", b, h, i);
    problem_free(&one);
}

/* Decoding: caches of different lengths, up to three splits. Alone a batch row has fewer
   items, which more CTAs share. */
static void decode_company(ph_ctx *ctx, int batch, int n)
{
    static const int lens[] = {4999, 1, 2048, 2049, 4097};
    problem p = {.attn = {.batch = batch,
                          .q_heads = 8,
                          .k_heads = n % 2 ? 1 : 2,
                          .v_heads = 2,
                          .q_len = n < 3 ? 1 : 7,
                          .kv_len = 5000,
                          .qk_dim = 64 << n % 3,
                          .dtype = n % 2 ? PH_F16 : PH_BF16,
                          .mask = PH_MASK_CAUSAL,
                          .anchor = PH_ANCHOR_END},
                 .with = {.lse = 1, .clean = 1, .again = 1, .kv_lens = 1}};
    problem_build(&p, (uint64_t)n);
    for (int b = 0; b < batch; b++) p.kv_lens[b] = lens[b % 5];
    run_and_judge(ctx, &p);
    for (int b = 0; b < batch; b++) fast_alone(ctx, &p, b);
    problem_free(&p);
}

static void fast_company(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 6; n++) decode_company(ctx, 5, n);
    ph_close(ctx);
}

/* As many items as pairs of CTAs share on a GPU of 132 SMs, and alone quads. */
static void fast_pairs(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 3; n++) decode_company(ctx, 10, n);
    ph_close(ctx);
}

/* Decoding with more items than SMs: no pair of CTAs shares one, as it would alone. */
static void fast_crowd(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 6; n++) {
        problem p = {.attn = {.batch = 90,
                              .q_heads = 8,
                              .k_heads = 2,
                              .v_heads = n % 2 ? 1 : 2,
                              .q_len = n < 3 ? 1 : 2,
                              .kv_len = 2500,
                              .qk_dim = 64 << n % 3,
                              .dtype = n % 2 ? PH_F16 : PH_BF16,
                              .mask = n < 3 ? PH_MASK_NONE : PH_MASK_CAUSAL,
                              .anchor = PH_ANCHOR_END},
                     .with = {.lse = 1, .clean = 1, .again = 1, .kv_lens = 1}};
        problem_build(&p, (uint64_t)n);
        for (int b = 0; b < 90; b++) p.kv_lens[b] = (b * 611 + 2500) % 2501;
        for (int b = 0; b < 90; b += 7)
            tensor_set(&p.v, b, 0, p.kv_lens[b] / 2, 3, (double)INFINITY);
        must(ctx, device_run(ctx, &p, 0));
        CHECK(p.tensor_cores, "case %d took the plain kernels", n);
        for (int b = 0; b < 90; b += 7) fast_alone(ctx, &p, b);
        problem_free(&p);
    }
    ph_close(ctx);
}

/* Rows that are gated off, among them whole parts of a sequence. */
static void gate_parts(problem *p)
{
    for (int b = 0; b < p->attn.batch; b++)
        for (int h = 0; h < p->attn.q_heads; h++)
            for (int i = b % 5 * 60; i < p->attn.q_len && i < b % 5 * 60 + h * 70; i++)
                tensor_set(&p->gate, b, h, i, 0, 0);
}

/* Several tiles per SM, one behind the other: sequences of every length, rows and blocks
   that parts of a tile do not see, and values that make some tiles be computed again. */
static void fast_many(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 9; n++) {
        problem p = {.attn = {.batch = 90,
                              .q_heads = 4,
                              .k_heads = 2,
                              .v_heads = 2,
                              .q_len = 330,
                              .kv_len = 390,
                              .qk_dim = 64 << n % 3,
                              .dtype = n % 2 ? PH_F16 : PH_BF16,
                              .mask = (ph_mask)(n / 3),
                              .band_left = 70,
                              .band_right = 20,
                              .gate = PH_GATE_ROW,
                              .anchor = n % 2 ? PH_ANCHOR_END : PH_ANCHOR_OFFSET},
                     .with = {.lse = 1,
                              .clean = 1,
                              .again = 1,
                              .kv_lens = 1,
                              .q_lens = n > 3,
                              .gate = n == 3 || n == 6}};
        problem_build(&p, (uint64_t)n);
        if (p.gate.mem) gate_parts(&p);
        for (int b = 0; b < 90; b++) p.kv_lens[b] = (b * 83 + 390) % 391;
        for (int b = 0; b < 90 && p.q_lens; b++) p.q_lens[b] = (b * 47 + 330) % 331;
        for (int b = 0; b < 90; b += 7) tensor_set(&p.v, b, b % 2, b, 3, (double)NAN);
        must(ctx, device_run(ctx, &p, 0));
        CHECK(p.tensor_cores, "case %d took the plain kernels", n);
        for (int b = 0; b < 90; b += n == 0 ? 1 : 11) fast_alone(ctx, &p, b);
        problem_free(&p);
    }
    ph_close(ctx);
}

/* Where row j of a head lies in pages of (heads, page_len, dim). */
static void *page_row(void *pages, const tensor *t, int page_len, int page, int h, int j)
{
    size_t row = ((size_t)page * (size_t)t->heads + (size_t)h) * (size_t)page_len;
    return (char *)pages + (row + (size_t)j) * (size_t)t->dim * oracle_size(t->dtype);
}

/* k or v of p in pages; one page more holds NaN. */
static void *fill_pages(const problem *p, const tensor *t, int page_len, int pages,
                        const int32_t *table)
{
    size_t size = oracle_size(t->dtype), row = (size_t)t->dim * size;
    size_t bytes = (size_t)pages * (size_t)t->heads * (size_t)page_len * row;
    int per_batch = (p->attn.kv_len + page_len - 1) / page_len;
    void *to = malloc(bytes);
    memset(to, 0xff, bytes);
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int j = 0; j < t->len; j++)
                memcpy(page_row(to, t, page_len, table[b * per_batch + j / page_len], h,
                                j % page_len),
                       t->mem->bytes + (size_t)tensor_at(t, b, h, j, 0) * size, row);
    return to;
}

/* The same keys in pages, in reverse order: same bits. Entries behind the last key of a
   batch row are hostile. */
static void fast_in_pages(ph_ctx *ctx, problem *p, int page_len)
{
    int row = (p->attn.kv_len + page_len - 1) / page_len, count = row * p->attn.batch;
    int32_t *table = malloc((size_t)count * sizeof *table);
    problem q = {.attn = p->attn, .with = p->with};
    for (int i = 0; i < count; i++) table[i] = count - 1 - i;
    problem_build(&q, 1);
    for (int b = 0; b < q.attn.batch; b++) {
        q.kv_lens[b] = p->kv_lens[b];
        for (int h = 0; h < q.attn.q_heads; h++)
            for (int i = 0; i < q.attn.q_len; i++)
                tensor_copy_row(&q.q, b, h, i, &p->q, b, h, i);
    }
    q.attn.page_len = page_len, q.attn.pages = count + 1;
    q.args.page_table = table;
    q.args.k = fill_pages(p, &p->k, page_len, count + 1, table);
    q.args.v = fill_pages(p, &p->v, page_len, count + 1, table);
    for (int b = 0; b < q.attn.batch; b++)
        for (int i = 0; i < row; i++)
            if (i * page_len >= q.kv_lens[b]) table[b * row + i] = INT32_MIN + i;
    must(ctx, device_run(ctx, &q, 0));
    CHECK(q.tensor_cores == p->tensor_cores && tensor_same(&q.out, &p->out) &&
              tensor_same(&q.lse, &p->lse),
          "pages of %d keys: other bits or other kernels: %s", page_len, problem_text(p));
    free((void *)q.args.k), free((void *)q.args.v), free(table);
    problem_free(&q);
}

/* Decoding, chunks of a prompt and f32, whose kernels are the plain ones. */
static void fast_paged(void)
{
    static const int page_lens[] = {16, 48, 128, 256, 20};
    static const int lens[] = {999, 1, 600, 257};
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 9; n++) {
        problem p = {.attn = {.batch = 4,
                              .q_heads = 8,
                              .k_heads = 2,
                              .v_heads = n % 2 ? 2 : 4,
                              .q_len = n < 3   ? 1
                                       : n < 6 ? 7
                                               : 130,
                              .kv_len = 1000,
                              .qk_dim = 64 << n % 3,
                              .dtype = n == 8  ? PH_F32
                                       : n % 2 ? PH_F16
                                               : PH_BF16,
                              .mask = PH_MASK_CAUSAL,
                              .anchor = PH_ANCHOR_END},
                     .with = {.lse = 1, .clean = 1, .kv_lens = 1}};
        problem_build(&p, (uint64_t)n);
        for (int b = 0; b < 4; b++) p.kv_lens[b] = lens[b];
        must(ctx, device_run(ctx, &p, 0));
        for (int i = 0; i < 5; i++) fast_in_pages(ctx, &p, page_lens[i]);
        problem_free(&p);
    }
    ph_close(ctx);
}

/* Sequences side by side: the bits they have with padding. */
static void fast_ragged(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 24; n++) {
        ragged_twin t = {.padded = {.attn = {.batch = 4,
                                             .q_heads = 4,
                                             .k_heads = n % 2 ? 2 : 4,
                                             .v_heads = 4,
                                             .q_len = n % 4 ? 300 : 3,
                                             .kv_len = 700,
                                             .qk_dim = 64 << n % 3,
                                             .dtype = n % 2 ? PH_F16 : PH_BF16,
                                             .mask = (ph_mask)(n / 2 % 3),
                                             .band_left = 90,
                                             .band_right = 5,
                                             .anchor = PH_ANCHOR_END,
                                             .gate = PH_GATE_ROW},
                                    .with = {.gate = n % 3 == 1, .sink = n % 5 == 1}}};
        twin_build(&t, (uint64_t)n, 1 + n % 2);
        must(ctx, device_run(ctx, &t.padded, 0));
        must(ctx, device_run(ctx, &t.ragged, 0));
        CHECK(t.padded.tensor_cores && t.ragged.tensor_cores, "case %d: plain kernels",
              n);
        const char *why = twin_differs(&t);
        CHECK(!why, "case %d: %s", n, why);
        twin_free(&t);
    }
    ph_close(ctx);
}

/* What row i sees in column d when v holds a NaN in column 3 of key 70, +Inf and -Inf in
   column 5 of keys 200 and 201. */
static int is_expected(double found, int i, int d)
{
    if (d == 3 && i >= 70) return isnan(found);
    if (d == 5 && i == 200) return found == (double)INFINITY;
    if (d == 5 && i > 200) return isnan(found);
    return isfinite(found);
}

/* NaN and Inf reach the rows that see them, and in those their column only. */
static void fast_values(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 6; n++) {
        problem p = {.attn = {.batch = 1,
                              .q_heads = 2,
                              .q_len = 450,
                              .kv_len = 450,
                              .qk_dim = 64 << n % 3,
                              .dtype = n % 2 ? PH_F16 : PH_BF16,
                              .mask = PH_MASK_CAUSAL},
                     .with = {.lse = 1, .clean = 1}};
        problem q = p;
        problem_build(&p, (uint64_t)n);
        problem_build(&q, (uint64_t)n);
        tensor_set(&q.v, 0, 1, 70, 3, (double)NAN);
        tensor_set(&q.v, 0, 1, 200, 5, (double)INFINITY);
        tensor_set(&q.v, 0, 1, 201, 5, -(double)INFINITY);
        must(ctx, device_run(ctx, &p, 0));
        must(ctx, device_run(ctx, &q, 0));
        CHECK(p.tensor_cores && tensor_same(&p.lse, &q.lse), "lse differs");
        for (int i = 0; i < 450; i++)
            for (int d = 0; d < q.v.dim; d++) {
                double found = tensor_get(&q.out, 0, 1, i, d);
                CHECK(is_expected(found, i, d), "case %d: row %d, column %d is %g", n, i,
                      d, found);
                CHECK(!isfinite(found) || found == tensor_get(&p.out, 0, 1, i, d),
                      "case %d: row %d, column %d changed", n, i, d);
            }
        problem_free(&p);
        problem_free(&q);
    }
    ph_close(ctx);
}

/* The first `rows` rows of every head see no key: out is 0, lse the sink but for
   rounding. */
static void check_blind_rows(const problem *p, int rows)
{
    for (int h = 0; h < p->attn.q_heads; h++)
        for (int i = 0; i < rows; i++) {
            double sink = -(double)INFINITY;
            if (p->sink.mem) sink = tensor_get(&p->sink, 0, h, 0, 0);
            double lse = tensor_get(&p->lse, 0, h, i, 0);
            CHECK(lse == sink || fabs(lse - sink) <= 2.4e-7 * fabs(sink),
                  "lse %.9g of no key, expected %.9g", lse, sink);
            for (int d = 0; d < p->v.dim; d++)
                CHECK(tensor_get(&p->out, 0, h, i, d) == 0, "out of no key is not 0");
        }
}

/* Decoded rows whose windows lie behind the last key, at the end of a split; and the
   first rows of a prompt that begins before its keys. */
static void fast_behind(void)
{
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 9; n++) {
        const int prompt = n >= 6;
        problem p = {.attn = {.batch = 1,
                              .q_heads = 4,
                              .k_heads = 2,
                              .v_heads = 2,
                              .q_len = prompt  ? 200
                                       : n < 3 ? 3
                                               : 20,
                              .kv_len = prompt ? 150 : 4096,
                              .qk_dim = 64 << n % 3,
                              .dtype = n % 2 ? PH_F16 : PH_BF16,
                              .mask = prompt ? PH_MASK_CAUSAL : PH_MASK_BAND,
                              .band_left = 10,
                              .band_right = 5,
                              .q_offset = prompt ? -70 : 5000,
                              .anchor = PH_ANCHOR_OFFSET},
                     .with = {.lse = 1, .sink = prompt || n % 2}};
        problem_build(&p, (uint64_t)n);
        run_and_judge(ctx, &p);
        check_blind_rows(&p, prompt ? 70 : p.attn.q_len);
        problem_free(&p);
    }
    ph_close(ctx);
}

/* What a plan says of tensors that are copied first. */
static void fast_described(void)
{
    static const struct {
        ph_attn attn;
        const char *part;
    } plans[] = {{{.q_heads = 2, .qk_dim = 64}, "tensor cores, "},
                 {{.q_heads = 2, .qk_dim = 100}, "tensor cores, copied first: q k v, "},
                 {{.q_heads = 2, .qk_dim = 64, .v_dim = 30}, "copied first: v, "},
                 {{.q_heads = 2, .qk_dim = 64, .q = {0, 33 * 66, 66}},
                  "copied first: q, "},
                 {{.q_heads = 2, .qk_dim = 64, .page_len = 20, .pages = 4},
                  "copied first: k v, "}};
    ph_ctx *ctx = need_gpu();
    for (int n = 0; n < 5; n++) {
        ph_attn attn = plans[n].attn;
        ph_plan *plan = NULL;
        char text[300];
        attn.batch = 1, attn.q_len = 33, attn.kv_len = 70, attn.dtype = PH_BF16;
        must(ctx, ph_plan_create(&plan, ctx, &attn));
        ph_plan_describe(plan, text, sizeof text);
        CHECK(strstr(text, plans[n].part) && (n > 0 || !strstr(text, "copied")),
              "plan %d: %s", n, text);
        ph_plan_free(plan);
    }
    ph_close(ctx);
}

static const check_case cases[] = {
    {"fast_forward", fast_forward},
    {"fast_described", fast_described},
    {"fast_bits", fast_bits},
    {"fast_company", fast_company},
    {"fast_pairs", fast_pairs},
    {"fast_crowd", fast_crowd},
    {"fast_many", fast_many},
    {"fast_paged", fast_paged},
    {"fast_ragged", fast_ragged},
    {"fast_values", fast_values},
    {"fast_behind", fast_behind},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
