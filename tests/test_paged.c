/*
 * test_paged.c - keys and values in pages and in types of their own: the bits of the same
 * values in one piece of f32, for any page length, order of pages, layout and type;
 * hostile page tables.
 *
 *     test_paged bits --case=17 [--seed N]     one case alone
 */
#include <math.h>

#include "base/ctx.h"
#include "guard.h"
#include "kernels/kernels.h"
#include "sweep.h"

/* ---- elements of the stored types --- */

enum { BLOCK = 32 };

static double half_of(double x, unsigned char *to)
{
    oracle_encode(PH_F16, to, 0, x);
    return oracle_decode(PH_F16, to, 0);
}

static int clamp(double x, int low, int high)
{
    return x < low ? low : x > high ? high : (int)lrint(x);
}

/* 32 elements as a block; x becomes what the block holds. */
static void store_block(ph_dtype type, double x[BLOCK], unsigned char *to)
{
    int with_min = type == PH_Q4_1, wide = type == PH_Q8_0;
    double most = x[0], least = x[0], sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        sum += x[i] * 0;
        if (x[i] > most) most = x[i];
        if (x[i] < least) least = x[i];
    }
    double range = with_min ? (most - least) / 15 : fmax(most, -least) / (wide ? 127 : 7);
    if (!(range > 0 && range < 1000)) range = 1;
    if (!(fabs(least) < 1000)) least = 0;
    double scale = half_of(sum == 0 ? range : NAN, to);
    double minimum = with_min ? half_of(least, to + 2) : 0;
    unsigned char *n = to + (with_min ? 4 : 2);
    if (!wide) memset(n, 0, BLOCK / 2);
    for (int i = 0; i < BLOCK; i++) {
        int zero = type == PH_Q4_0 ? 8 : 0, low = wide ? -127 : 0, high = wide ? 127 : 15;
        double whole = sum == 0 ? (x[i] - minimum) / scale + zero : 0;
        int e = clamp(whole, low, high);
        if (wide)
            n[i] = (unsigned char)e;
        else
            n[i % 16] |= (unsigned char)(e << (i / 16 * 4));
        x[i] = (float)((float)scale * (float)(e - zero)) + (float)minimum;
    }
}

/* A row of a tensor of f32 in its stored type; the tensor gets what is stored. */
static void store_row(ph_dtype type, tensor *t, int b, int h, int j, unsigned char *to)
{
    if (type == t->dtype) {
        size_t size = oracle_size(type);
        memcpy(to, t->mem->bytes + (size_t)tensor_at(t, b, h, j, 0) * size,
               (size_t)t->dim * size);
        return;
    }
    for (int d = 0; d < t->dim && type <= PH_BF16; d++) {
        oracle_encode(type, to, d, tensor_get(t, b, h, j, d));
        tensor_set(t, b, h, j, d, oracle_decode(type, to, d));
    }
    for (int d = 0; d < t->dim && type > PH_BF16; d += BLOCK) {
        double x[BLOCK];
        for (int i = 0; i < BLOCK; i++) x[i] = tensor_get(t, b, h, j, d + i);
        store_block(type, x, to + ph_dtype_bytes(type, (size_t)d));
        for (int i = 0; i < BLOCK; i++) tensor_set(t, b, h, j, d + i, x[i]);
    }
}

/* ---- the keys of a problem, in pages ----------------------------------------------- */

typedef struct pages {
    void *k, *v;
    int32_t *table;
} pages;

/* (blocks, heads, len, dim) in some order, with or without gaps. */
static ph_strides page_strides(uint64_t *rng, int heads, int len, int dim, int unit)
{
    int64_t gap = check_below(rng, 2) * 3 * unit;
    if (check_below(rng, 2)) {
        ph_strides by_head = {.time = dim + gap};
        by_head.head = len * by_head.time + gap;
        by_head.batch = heads * by_head.head + gap;
        return by_head;
    }
    ph_strides by_time = {.head = dim + gap};
    by_time.time = heads * by_time.head + gap;
    by_time.batch = len * by_time.time + gap;
    return by_time;
}

static int keys_of(const problem *p, int b)
{
    return p->kv_lens ? p->kv_lens[b] : p->attn.kv_len;
}

/* The page numbers in any order; entries that are not needed are hostile. */
static int32_t *draw_table(uint64_t *rng, const problem *p, int page_len, int count)
{
    int row = (p->attn.kv_len + page_len - 1) / page_len, total = row * p->attn.batch;
    int32_t *table = guard_alloc((size_t)total * sizeof *table + !total);
    int *number = calloc((size_t)count + 1, sizeof *number);
    for (int i = 0; i < count; i++) number[i] = i;
    for (int i = 0; i < total; i++) {
        int other = i + check_below(rng, count - i), page = number[other];
        number[other] = number[i];
        table[i] = i % row * page_len < keys_of(p, i / row) ? page : INT32_MIN + i;
    }
    free(number);
    return table;
}

/* k or v of p as `stored` says; without a table each batch row is a page of its own. */
static void *fill_pages(const problem *p, tensor *from, const ph_attn *stored,
                        const ph_strides *s, const int32_t *table)
{
    ph_dtype type = stored->kv_dtype ? stored->kv_dtype : p->attn.dtype;
    int len = table ? stored->page_len : p->attn.kv_len + !p->attn.kv_len;
    int row = (p->attn.kv_len + len - 1) / len,
        count = table ? stored->pages : row * from->batch;
    if (count == 0) return guard_alloc(1);
    int64_t last =
        (count - 1) * s->batch + (from->heads - 1) * s->head + (len - 1) * s->time;
    unsigned char *to =
        guard_alloc(ph_dtype_bytes(type, (size_t)(last + from->dim)) + !from->dim);
    for (int b = 0; b < from->batch; b++)
        for (int h = 0; h < from->heads; h++)
            for (int j = 0; j < keys_of(p, b); j++) {
                int page = table ? table[b * row + j / len] : b;
                int64_t at = page * s->batch + h * s->head + j % len * s->time;
                store_row(type, from, b, h, j, to + ph_dtype_bytes(type, (size_t)at));
            }
    return to;
}

/* Gives q the keys of p in pages, or in one piece, in the type q.attn.kv_dtype. */
static pages to_pages(problem *p, problem *q, int in_pages, uint64_t seed)
{
    static const int lens[] = {16, 32, 48, 64, 112, 128, 144, 256, 384, 512, 1024, 5};
    ph_attn *a = &q->attn;
    uint64_t rng = seed;
    pages out = {0};
    int unit = a->kv_dtype > PH_BF16 ? BLOCK : 1, len = a->kv_len;
    if (in_pages) {
        len = a->page_len = lens[check_below(&rng, (int)(sizeof lens / sizeof *lens))];
        int row = (a->kv_len + len - 1) / len;
        a->pages = row * a->batch + 1 + check_below(&rng, 3);
        out.table = draw_table(&rng, p, len, a->pages);
    }
    a->k = page_strides(&rng, p->k.heads, len, p->k.dim, unit);
    a->v = page_strides(&rng, p->v.heads, len, p->v.dim, unit);
    out.k = fill_pages(p, &p->k, a, &a->k, out.table);
    out.v = fill_pages(p, &p->v, a, &a->v, out.table);
    q->args.k = out.k, q->args.v = out.v, q->args.page_table = out.table;
    return out;
}

static void free_pages(pages *p)
{
    guard_free(p->k);
    guard_free(p->v);
    guard_free(p->table);
}

/* Every third case in the problem's own type, the others in each of the stored ones. */
static void draw_type(problem *p, problem *q, int index)
{
    static const ph_dtype types[] = {PH_F16, PH_BF16, PH_Q8_0, PH_Q4_0, PH_Q4_1};
    ph_attn *a = &p->attn;
    q->attn.kv_dtype = PH_F32;
    if (index % 3 == 0) return;
    a->dtype = PH_F32;
    ph_dtype type = types[index % 5];
    if (type > PH_BF16) {
        a->qk_dim = (a->qk_dim / 16 % 4 + 1) * BLOCK;
        a->v_dim = (a->v_dim / 16 % 4 + 1) * BLOCK;
    }
    if (p->with.layout >= LAYOUT_OVERLAP) p->with.layout = LAYOUT_TIME;
    q->attn = *a, q->with = p->with;
    q->attn.kv_dtype = type;
}

/* ---- same bits --------------------------------------------------------------------- */

static const char *differs(const problem *p, const problem *q)
{
    const tensor *x[] = {&p->out,     &p->lse,     &p->weights,
                         &p->col_sum, &p->entropy, &p->top_weight};
    const tensor *y[] = {&q->out,     &q->lse,     &q->weights,
                         &q->col_sum, &q->entropy, &q->top_weight};
    static const char *const names[] = {"out differs",     "lse differs",
                                        "weights differ",  "col_sum differs",
                                        "entropy differs", "top_weight differs"};
    for (size_t n = 0; n < sizeof x / sizeof *x; n++)
        if (!tensor_same(x[n], y[n])) return names[n];
    return NULL;
}

/* ref with the bf16 operands of AMX, in plain loops, where the case is bf16. */
static ph_ctx *ctx_for(const char *isa, const problem *p, int index)
{
    static ph_kernels tiled;
    ph_ctx *ctx = drive_ctx(isa, 1 + index % 3);
    CHECK(ctx, "no ctx for %s", isa);
    tiled = ph_kernels_ref;
    tiled.bf16_pairs = &ph_bf16_pairs_ref;
    if (!strcmp(isa, "ref"))
        ctx->kernels = p->attn.dtype == PH_BF16 ? &tiled : &ph_kernels_ref;
    return ctx;
}

static void bits_case(int index)
{
    problem p, q;
    case_size size = index % 5 == 2 ? CASE_LARGE : CASE_SMALL;
    case_draw(&p.attn, &p.with, check_seed + 1600, index, size);
    p.attn.backward = 0;
    if (index % 7 == 3) p.attn.variant = index % 2 ? "entmax" : "sparsemax";
    q.attn = p.attn, q.with = p.with;
    draw_type(&p, &q, index);
    problem_build(&p, (uint64_t)index);
    problem_build(&q, (uint64_t)index);
    int in_pages = index % 3 == 0 || index % 4;
    pages memory = to_pages(&p, &q, in_pages, check_seed * 1000 + (uint64_t)index);
    FOR_EACH_ISA(isa)
    {
        if (skip_isa(*isa, index) && p.attn.dtype != PH_BF16) continue;
        ph_ctx *ctx = ctx_for(*isa, &p, index);
        problem_wipe(&p);
        problem_wipe(&q);
        const char *why = refused(ctx, drive_forward(ctx, &p));
        if (!why) why = refused(ctx, drive_forward(ctx, &q));
        if (!why) why = problem_gaps(&q);
        sweep_note("bits", index, *isa, &q, why ? why : differs(&p, &q));
        ctx->kernels = ph_kernels_pick(*isa);
    }
    free_pages(&memory);
    problem_free(&p);
    problem_free(&q);
}

static void bits(void)
{
    sweep_begin();
    for (int index = 0; index < 240 / CASES_SLOW; index++)
        if (!left_out(index)) bits_case(index);
    sweep_end();
}

/* ---- a text that grows, and pages that texts share --------------------------------- */

enum { TEXT = 700, HEADS = 4, KEY_HEADS = 2, DIM = 32, PAGE = 48, ROW = 16 };

typedef struct text {
    float *q, *k, *v; /* (HEADS or KEY_HEADS, TEXT, DIM) */
    float *k_pages, *v_pages;
    int32_t table[2 * ROW];
} text;

static float *random_floats(uint64_t *rng, size_t count)
{
    float *x = malloc(count * sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)check_below(rng, 2001) / 1000.0f - 1.0f;
    return x;
}

/* Two batch rows with the same text, of which the second shares all full pages with the
   first; page 2 * ROW - 1 is its last one. */
static text make_text(void)
{
    uint64_t rng = check_seed;
    size_t page = (size_t)KEY_HEADS * PAGE * DIM;
    text t = {.q = random_floats(&rng, (size_t)HEADS * TEXT * DIM),
              .k = random_floats(&rng, (size_t)KEY_HEADS * TEXT * DIM),
              .v = random_floats(&rng, (size_t)KEY_HEADS * TEXT * DIM),
              .k_pages = calloc(2 * ROW * page, sizeof(float)),
              .v_pages = calloc(2 * ROW * page, sizeof(float))};
    for (int i = 0; i < ROW; i++) t.table[i] = t.table[ROW + i] = (i * 7 + 3) % ROW;
    t.table[ROW + TEXT / PAGE] = 2 * ROW - 1;
    for (int b = 0; b < 2; b++)
        for (int h = 0; h < KEY_HEADS; h++)
            for (int j = 0; j < TEXT; j++) {
                size_t to = (size_t)t.table[b * ROW + j / PAGE] * page +
                            ((size_t)h * PAGE + (size_t)(j % PAGE)) * DIM;
                size_t from = ((size_t)h * TEXT + (size_t)j) * DIM;
                memcpy(t.k_pages + to, t.k + from, DIM * sizeof(float));
                memcpy(t.v_pages + to, t.v + from, DIM * sizeof(float));
            }
    return t;
}

static void free_text(text *t)
{
    free(t->q), free(t->k), free(t->v), free(t->k_pages), free(t->v_pages);
}

/* Rows [first, first + count) of both batch rows against the pages. */
static void paged_rows(ph_ctx *ctx, const text *t, int first, int count, float *out)
{
    ph_plan *plan = NULL;
    int32_t lens[2] = {first + count, first + count};
    ph_attn a = {.batch = 2,
                 .q_heads = HEADS,
                 .k_heads = KEY_HEADS,
                 .v_heads = KEY_HEADS,
                 .q_len = count,
                 .kv_len = ROW * PAGE,
                 .qk_dim = DIM,
                 .q = {0, TEXT * DIM, DIM},
                 .page_len = PAGE,
                 .pages = 2 * ROW,
                 .mask = PH_MASK_CAUSAL,
                 .anchor = PH_ANCHOR_END};
    ph_args args = {.q = t->q + (size_t)first * DIM,
                    .k = t->k_pages,
                    .v = t->v_pages,
                    .out = out,
                    .kv_lens = lens,
                    .page_table = t->table};
    must(ctx, ph_plan_create(&plan, ctx, &a));
    must(ctx, ph_forward(plan, &args));
    ph_plan_free(plan);
}

/* Whole, in chunks and token by token, in pages: the bits of the whole text in one
   piece. */
static void growing_text(void)
{
    static const int steps[] = {TEXT, 129, 48, 1};
    text t = make_text();
    float *whole = malloc((size_t)HEADS * TEXT * DIM * sizeof *whole);
    float *rows = malloc((size_t)2 * HEADS * TEXT * DIM * sizeof *rows);
    FOR_EACH_ISA(isa)
    {
        ph_ctx *ctx = need_ctx(*isa);
        ph_plan *plan = NULL;
        ph_attn a = {.batch = 1,
                     .q_heads = HEADS,
                     .k_heads = KEY_HEADS,
                     .v_heads = KEY_HEADS,
                     .q_len = TEXT,
                     .kv_len = TEXT,
                     .qk_dim = DIM,
                     .mask = PH_MASK_CAUSAL};
        ph_args args = {.q = t.q, .k = t.k, .v = t.v, .out = whole};
        must(ctx, ph_plan_create(&plan, ctx, &a));
        must(ctx, ph_forward(plan, &args));
        ph_plan_free(plan);
        for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
            for (int first = 0, n; first < TEXT; first += n) {
                n = TEXT - first < steps[s] ? TEXT - first : steps[s];
                if (n == 1 && first % 37 && first < TEXT - 60) continue;
                paged_rows(ctx, &t, first, n, rows);
                for (int h = 0; h < 2 * HEADS; h++)
                    CHECK(!memcmp(rows + (size_t)h * (size_t)n * DIM,
                                  whole +
                                      ((size_t)(h % HEADS) * TEXT + (size_t)first) * DIM,
                                  (size_t)n * DIM * sizeof *rows),
                          "%s: rows %d to %d of head %d differ", *isa, first, first + n,
                          h);
            }
    }
    free(whole), free(rows);
    free_text(&t);
}

/* ---- against the oracle ------------------------------------------------------------ */

static void oracle(void)
{
    sweep_begin();
    for (int index = 0; index < 60 / CASES_SLOW; index++) {
        problem p, q;
        judge j;
        if (left_out(index)) continue;
        case_draw(&p.attn, &p.with, check_seed + 1700, index, CASE_SMALL);
        p.attn.backward = 0;
        q.attn = p.attn, q.with = p.with;
        problem_build(&p, (uint64_t)index);
        problem_build(&q, (uint64_t)index);
        ph_attn contiguous = q.attn;
        const ph_args in_one_piece = q.args;
        pages memory = to_pages(&p, &q, 1, check_seed * 1000 + (uint64_t)index);
        ph_ctx *ctx = need_ctx(NULL);
        const char *why = refused(ctx, drive_forward(ctx, &q));
        q.attn = contiguous, q.args = in_one_piece; /* what the judge knows */
        judge_open(&j, &q);
        if (!why) why = judge_forward(&j, &q);
        sweep_tolerance(index, &j);
        sweep_note("oracle", index, "best", &q, why);
        judge_close(&j);
        free_pages(&memory);
        problem_free(&p);
        problem_free(&q);
    }
    sweep_end();
}

/* ---- refused ----------------------------------------------------------------------- */

static ph_attn small_attn(void)
{
    return (ph_attn){.batch = 2,
                     .q_heads = 2,
                     .q_len = 3,
                     .kv_len = 40,
                     .qk_dim = 16,
                     .page_len = 16,
                     .pages = 4};
}

static void expect_plan(ph_attn a, ph_status expected, const char *sentence)
{
    ph_ctx *ctx = need_ctx(NULL);
    ph_plan *plan = NULL;
    ph_status status = ph_plan_create(&plan, ctx, &a);
    CHECK(status == expected && !plan, "gave %s", ph_status_text(status));
    CHECK(strstr(ph_error(ctx), sentence), "said \"%s\", expected \"%s\"", ph_error(ctx),
          sentence);
}

static void plans(void)
{
    ph_attn a = small_attn();
    a.page_len = -16;
    expect_plan(a, PH_BAD_ARGUMENT, "page_len is -16");
    a.page_len = 0;
    expect_plan(a, PH_BAD_ARGUMENT, "pages is 4 and page_len 0");
    a = small_attn(), a.pages = -1;
    expect_plan(a, PH_BAD_ARGUMENT, "pages is -1");
    a = small_attn(), a.backward = 1;
    expect_plan(a, PH_UNSUPPORTED, "backward is 1 with page_len 16");
    a = small_attn(), a.pages = INT32_MAX, a.page_len = INT32_MAX / 16 * 16;
    a.q_heads = 1 << 20;
    expect_plan(a, PH_BAD_SHAPE, "past the end of memory");
    a = small_attn(), a.k = (ph_strides){INT64_MAX / 4, 16, 32};
    expect_plan(a, PH_BAD_SHAPE, "strides of k");
}

static void types(void)
{
    ph_attn a = small_attn();
    a.kv_dtype = PH_I32;
    expect_plan(a, PH_BAD_ARGUMENT, "(I32)");
    for (int type = PH_Q4_K; type <= PH_Q6_K; type++) {
        a.kv_dtype = (ph_dtype)type;
        expect_plan(a, PH_BAD_ARGUMENT, ph_dtype_name(a.kv_dtype));
    }
    a.kv_dtype = (ph_dtype)-1;
    expect_plan(a, PH_BAD_ARGUMENT, "kv_dtype is -1 (no type)");
    a.kv_dtype = PH_Q8_0;
    expect_plan(a, PH_BAD_SHAPE, "kv_dtype is Q8_0 and k has rows of 16");
    a.qk_dim = 32, a.v_dim = 48;
    expect_plan(a, PH_BAD_SHAPE, "v has rows of 48");
    a.v_dim = 64, a.k = (ph_strides){4096, 2048, 40};
    expect_plan(a, PH_BAD_SHAPE, "expected multiples of 32");
    a = small_attn(), a.kv_dtype = PH_BF16, a.dtype = PH_F16;
    expect_plan(a, PH_UNSUPPORTED, "kv_dtype is BF16 and dtype F16");
    a = small_attn(), a.kv_dtype = PH_BF16, a.backward = 1, a.page_len = a.pages = 0;
    expect_plan(a, PH_UNSUPPORTED, "backward is 1 with kv_dtype BF16");
}

typedef struct small_call {
    float q[2 * 2 * 3 * 16], k[4 * 2 * 16 * 16], v[4 * 2 * 16 * 16], out[2 * 2 * 3 * 16];
    int32_t table[6], kv_lens[2];
    ph_args args;
} small_call;

static void make_call(small_call *c)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < 6; i++) c->table[i] = i % 4;
    for (int i = 0; i < 2 * 2 * 3 * 16; i++) c->out[i] = -7;
    c->kv_lens[0] = 40, c->kv_lens[1] = 17;
    c->args = (ph_args){.q = c->q,
                        .k = c->k,
                        .v = c->v,
                        .out = c->out,
                        .kv_lens = c->kv_lens,
                        .page_table = c->table};
}

static void expect_call(small_call *c, ph_status expected, const char *sentence)
{
    ph_ctx *ctx = need_ctx(NULL);
    ph_plan *plan = NULL;
    ph_attn a = small_attn();
    must(ctx, ph_plan_create(&plan, ctx, &a));
    ph_status status = ph_forward(plan, &c->args);
    ph_plan_free(plan);
    CHECK(status == expected, "gave %s: %s", ph_status_text(status), ph_error(ctx));
    if (expected == PH_OK) return;
    CHECK(strstr(ph_error(ctx), sentence), "said \"%s\", expected \"%s\"", ph_error(ctx),
          sentence);
    for (int i = 0; i < 2 * 2 * 3 * 16; i++)
        CHECK(c->out[i] == -7, "out was written by a refused call");
}

static void tables(void)
{
    small_call c;
    make_call(&c);
    expect_call(&c, PH_OK, "");
    make_call(&c), c.table[1] = 4;
    expect_call(&c, PH_BAD_SHAPE, "page_table[0][1] is 4, expected 0 to 3");
    make_call(&c), c.table[4] = -1;
    expect_call(&c, PH_BAD_SHAPE, "page_table[1][1] is -1");
    make_call(&c), c.table[5] = INT32_MAX; /* beyond kv_lens: not read */
    expect_call(&c, PH_OK, "");
    make_call(&c), c.table[5] = INT32_MIN, c.args.kv_lens = NULL;
    expect_call(&c, PH_BAD_SHAPE, "page_table[1][2]");
    make_call(&c), c.kv_lens[1] = 49;
    expect_call(&c, PH_BAD_SHAPE, "kv_lens[1] is 49, expected 0 to 40");
    make_call(&c), c.args.page_table = NULL;
    expect_call(&c, PH_BAD_ARGUMENT, "page_table is NULL");
}

static void table_without_pages(void)
{
    small_call c;
    ph_ctx *ctx = need_ctx(NULL);
    ph_plan *plan = NULL;
    ph_attn a = small_attn();
    a.page_len = a.pages = 0, a.kv_len = 16;
    make_call(&c);
    c.args.kv_lens = NULL;
    must(ctx, ph_plan_create(&plan, ctx, &a));
    ph_status status = ph_forward(plan, &c.args);
    ph_plan_free(plan);
    CHECK(status == PH_BAD_ARGUMENT && strstr(ph_error(ctx), "page_table is given"),
          "gave %s: %s", ph_status_text(status), ph_error(ctx));
}

static const check_case cases[] = {
    {"bits", bits},
    {"growing_text", growing_text},
    {"oracle", oracle},
    {"plans", plans},
    {"types", types},
    {"tables", tables},
    {"table_without_pages", table_without_pages},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
