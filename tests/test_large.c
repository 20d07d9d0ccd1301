/*
 * test_large.c - long rows, far strides, little memory.
 *
 * Key and query counts beyond 46,341 and 65,536 (squares and products that leave 31 and
 * 32
 * bits), tensors whose elements lie more than 2^32 apart, and scratch memory that does
 * not
 * grow with the square of the length.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sys/mman.h>

#include "sweep.h"

static void long_case(int q_len, int kv_len, int how)
{
    problem p = {.attn = {.batch = 1,
                          .q_heads = 2,
                          .k_heads = 1,
                          .v_heads = 1,
                          .q_len = q_len,
                          .kv_len = kv_len,
                          .qk_dim = 3,
                          .v_dim = 2,
                          .backward = 1},
                 .with = {.lse = 1, .col_sum = 1, .entropy = 1, .top_k = 3, .clean = 1}};
    if (how == 1) p.attn.bias = (ph_broadcast){1, 2, q_len};
    if (how == 2) p.attn.visible = (ph_broadcast){1, 1, q_len};
    if (how == 3) p.attn.mask = PH_MASK_CAUSAL;
    if (how == 3) p.attn.anchor = PH_ANCHOR_END;
    p.with.alibi = how == 3;
    p.with.hidden = 0.5f;
    p.with.q_lens = p.with.kv_lens = how == 2;
    problem_build(&p, (uint64_t)how);
    ph_ctx *ctx = need_ctx(NULL);
    must(ctx, drive_backward(ctx, &p));
    judge j;
    judge_open(&j, &p);
    const char *why = judge_forward(&j, &p);
    if (!why) why = judge_backward(&j, &p);
    CHECK(!why, "%d x %d: %s", q_len, kv_len, why);
    judge_close(&j);
    problem_free(&p);
}

static void long_keys(void)
{
    static const int lens[] = {46341, 65537, 131072};
    for (int n = 0; n < 3; n++)
        for (int how = 0; how < 4; how++) long_case(1 + n, lens[n], how);
}

static void long_queries(void)
{
    static const int lens[] = {46341, 65537};
    for (int n = 0; n < 2; n++)
        for (int how = 0; how < 4; how++) long_case(lens[n], 3 + n, how);
}

/* ---- far strides ------------------------------------------------------------------ */

/* Memory that exists only where it is touched. */
static float *sparse(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void spread(float *to, ph_strides far, const tensor *from)
{
    for (int b = 0; b < from->batch; b++)
        for (int h = 0; h < from->heads; h++)
            for (int i = 0; i < from->len; i++)
                for (int d = 0; d < from->dim; d++)
                    to[b * far.batch + h * far.head + i * far.time + d] =
                        (float)tensor_get(from, b, h, i, d);
}

static void same_spread(const float *found, ph_strides far, const tensor *t,
                        const char *name, int axis)
{
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++)
                for (int d = 0; d < t->dim; d++)
                    CHECK(
                        (double)found[b * far.batch + h * far.head + i * far.time + d] ==
                            tensor_get(t, b, h, i, d),
                        "axis %d: %s(%d,%d,%d,%d) differs", axis, name, b, h, i, d);
}

/* One axis of every tensor strides over 2^32 elements; the bits are those of a packed
   call. */
static void far_strides(void)
{
    enum { Q, K, V, OUT, DOUT, DQ, DK, DV, COUNT };
    const int64_t leap = ((int64_t)1 << 32) + 16;
    const size_t bytes = ((size_t)leap * 2 + 4096) * sizeof(float);
    for (int axis = 0; axis < 3; axis++) {
        int two = axis == 2 ? 3 : 2; /* rows, so that time has two leaps */
        problem p = {.attn = {.batch = axis == 0 ? 2 : 1,
                              .q_heads = axis == 1 ? 2 : 1,
                              .q_len = two,
                              .kv_len = two,
                              .qk_dim = 5,
                              .backward = 1},
                     .with = {.lse = 1, .clean = 1}};
        problem_build(&p, 4);
        float *far[COUNT];
        for (int n = 0; n < COUNT; n++) {
            far[n] = sparse(bytes);
            if (!far[n]) SKIP("no %zu bytes of address space", bytes);
        }
        ph_strides s = {axis == 0 ? leap : 32, axis == 1 ? leap : 16,
                        axis == 2 ? leap : 5};
        ph_attn attn = p.attn;
        attn.q = attn.k = attn.v = attn.out = s;
        ph_args args = {
            .q = far[Q], .k = far[K], .v = far[V], .out = far[OUT], .lse = p.args.lse};
        ph_grads grads = {.dout = far[DOUT], .dq = far[DQ], .dk = far[DK], .dv = far[DV]};
        spread(far[Q], s, &p.q);
        spread(far[K], s, &p.k);
        spread(far[V], s, &p.v);
        spread(far[DOUT], s, &p.dout);
        ph_ctx *ctx = need_ctx(NULL);
        ph_plan *plan = NULL;
        must(ctx, ph_plan_create(&plan, ctx, &attn));
        must(ctx, ph_forward(plan, &args));
        must(ctx, ph_backward(plan, &args, &grads));
        ph_plan_free(plan);
        must(ctx, drive_backward(ctx, &p));
        same_spread(far[OUT], s, &p.out, "out", axis);
        same_spread(far[DQ], s, &p.dq, "dq", axis);
        same_spread(far[DK], s, &p.dk, "dk", axis);
        same_spread(far[DV], s, &p.dv, "dv", axis);
        for (int n = 0; n < COUNT; n++) munmap(far[n], bytes);
        problem_free(&p);
    }
}

/* ---- memory ----------------------------------------------------------------------- */

/* Scratch for both passes: under 64 MB at 32,768 tokens, at most twice that at twice. */
static void scratch_is_small(void)
{
    static const int lens[] = {1024, 8192, 32768, 65536};
    ph_ctx *ctx = need_ctx(NULL);
    for (int n = 0; n < 4; n++)
        for (int type = 0; type < 2; type++) {
            ph_attn attn = {.batch = 1,
                            .q_heads = 8,
                            .q_len = lens[n],
                            .kv_len = lens[n],
                            .qk_dim = 64,
                            .mask = PH_MASK_CAUSAL,
                            .backward = 1,
                            .dtype = type ? PH_BF16 : PH_F32};
            ph_plan *plan = NULL;
            must(ctx, ph_plan_create(&plan, ctx, &attn));
            size_t bytes = ph_plan_workspace(plan);
            ph_plan_free(plan);
            size_t most = (size_t)64 << 20;
            if (lens[n] > 32768) most *= 2;
            CHECK(bytes < most, "%d tokens: %zu bytes of scratch", lens[n], bytes);
        }
}

/* What a ctx has asked its caller for. */
typedef struct heap {
    size_t live, most;
} heap;

static void *heap_alloc(void *user, size_t bytes)
{
    heap *h = user;
    size_t *block = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!block) return NULL;
    *block = bytes;
    h->live += bytes;
    if (h->live > h->most) h->most = h->live;
    return (char *)block + 64;
}

static void heap_release(void *user, void *block)
{
    heap *h = user;
    if (!block) return;
    size_t *start = (size_t *)(void *)((char *)block - 64);
    h->live -= *start;
    free(start);
}

/* Both passes and all looks of a variant: 8 heads of 64, 8192 tokens, of which only the
   first rows are computed. That saves time; memory is taken for all of them. */
static size_t memory_of(const char *variant)
{
    enum { LEN = 8192, HEADS = 8, ROWS = HEADS * LEN, ALL = ROWS * 64, EXTRAS = 16 };
    heap h = {0, 0};
    ph_options options = {
        .threads = 2, .alloc = heap_alloc, .release = heap_release, .user = &h};
    ph_attn attn = {.batch = 1,
                    .q_heads = HEADS,
                    .q_len = LEN,
                    .kv_len = LEN,
                    .qk_dim = 64,
                    .mask = PH_MASK_CAUSAL,
                    .variant = variant,
                    .backward = 1};
    ph_ctx *ctx = NULL;
    ph_plan *plan = NULL;
    CHECK(ph_open(&ctx, &options) == PH_OK, "no context");
    must(ctx, ph_plan_create(&plan, ctx, &attn));
    float *block[8], *extra[EXTRAS] = {NULL};
    for (int n = 0; n < 8; n++) block[n] = calloc(ALL, sizeof(float));
    for (int e = 0; ph_plan_extra(plan, e); e++) /* gradients go to the same place */
        extra[e] = calloc(ph_param_size(ph_plan_extra(plan, e)), sizeof(float));
    const int32_t some = 24;
    ph_look_at look = {.col_sum = calloc(ROWS, sizeof(float)),
                       .entropy = calloc(ROWS, sizeof(float))};
    ph_args a = {.q = block[0], .k = block[1], .v = block[2], .out = block[3]};
    ph_grads g = {.dout = block[4], .dq = block[5], .dk = block[6], .dv = block[7]};
    a.lse = calloc(ROWS, sizeof(float));
    a.look = &look, a.q_lens = &some;
    a.extra = (const float *const *)extra, g.dextra = extra;
    must(ctx, ph_forward(plan, &a));
    must(ctx, ph_backward(plan, &a, &g));
    for (int n = 0; n < 8; n++) free(block[n]);
    for (int e = 0; e < EXTRAS; e++) free(extra[e]);
    free(a.lse), free(look.col_sum), free(look.entropy);
    ph_plan_free(plan);
    ph_close(ctx);
    return h.most;
}

static void variants_are_small(void)
{
    static const char *const variants[] = {"mha",
                                           "entmax",
                                           "sparsemax",
                                           "talking",
                                           "talking+entmax",
                                           "dcmha:rank=2",
                                           "dcmha:rank=2+entmax"};
    for (size_t n = 0; n < sizeof variants / sizeof variants[0]; n++) {
        size_t bytes = memory_of(variants[n]);
        printf("    %s: %.1f MB at 8192 tokens\n", variants[n], (double)bytes / 1e6);
        CHECK(bytes < (size_t)128 << 20, "%s: %zu bytes", variants[n], bytes);
    }
}

/* Variants that hold the logits of rows against all keys: 64 MB of them for each thread,
   or one row of all heads, and as much again for what is summed; backward keys and values
   are packed too. */
static void many_heads_and_keys(void)
{
    static const char *const variants[] = {"talking", "dcmha:rank=2", "entmax:alpha=1.5",
                                           "talking+entmax:alpha=1.5"};
    enum { HEADS = 32, KEYS = 128 << 10, DIM = 64, THREADS = 2, TILES = 4 };
    const size_t row = (size_t)HEADS * KEYS * sizeof(float), packed = 2 * DIM * row;
    size_t held = TILES * row > 64 << 20 ? TILES * row : 64 << 20;
    for (int i = 0; i < 8; i++) {
        int backward = i / 4;
        ph_attn attn = {.batch = 1,
                        .q_heads = HEADS,
                        .q_len = 256,
                        .kv_len = KEYS,
                        .qk_dim = DIM,
                        .variant = variants[i % 4],
                        .backward = backward};
        size_t most =
            THREADS * (held + (32 << 20)) + (backward ? packed + (96 << 20) : 0);
        ph_ctx *ctx = drive_ctx(NULL, THREADS);
        ph_plan *plan = NULL;
        must(ctx, ph_plan_create(&plan, ctx, &attn));
        size_t bytes = ph_plan_workspace(plan);
        ph_plan_free(plan);
        CHECK(bytes <= most, "%s%s takes %zu MB, at most %zu", attn.variant,
              backward ? " backward" : "", bytes >> 20, most >> 20);
    }
}

static const check_case cases[] = {
    {"long_keys", long_keys},
    {"long_queries", long_queries},
    {"far_strides", far_strides},
    {"scratch_is_small", scratch_is_small},
    {"variants_are_small", variants_are_small},
    {"many_heads_and_keys", many_heads_and_keys},
    {0, 0},
};

int main(int argc, char **argv)
{
    return sweep_main(argc, argv, cases);
}
