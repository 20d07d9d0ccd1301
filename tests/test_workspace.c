/*
 * test_workspace.c - no scratch is smaller than what runs in it: layers whose token
 * counts, widths and routes differ from those their scratch was measured with, in memory
 * that ends at an unmapped page.
 */
#include "check.h"
#include "every.h"
#include "guard.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "layer_bed.h"

enum { MOST_ROWS = 3000, MOST_WIDTH = 4096 };

static ph_layer_desc describe(const char *variant, int heads, int v_heads, int dim,
                              int v_dim, int len)
{
    ph_layer_desc d = {.model_dim = heads * dim};
    d.attn = (ph_attn){.batch = 1,
                       .q_heads = heads,
                       .k_heads = heads,
                       .v_heads = v_heads,
                       .q_len = len,
                       .kv_len = len,
                       .qk_dim = dim,
                       .v_dim = v_dim,
                       .mask = PH_MASK_CAUSAL,
                       .variant = variant,
                       .backward = 1};
    return d;
}

static ph_ctx *open_guarded(const char *isa, int threads)
{
    ph_options o = guard_options(isa, threads);
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    return ctx;
}

/* `count` of the tokens go to the first routed head, the others to none of their own. */
static void route_to_one(layer_bed *b, int count)
{
    int at = layer_bed_find(b, "moh_wr"), dim = b->desc.model_dim;
    int routed = b->param[at]->dims[1];
    for (int i = 0; i < dim; i++) b->w[at][(size_t)i * (size_t)routed] = i ? 0 : 10;
    for (int t = 0; t < b->desc.attn.q_len; t++)
        b->x[(size_t)t * (size_t)dim] = t < count ? 10.0f : -10.0f;
}

static void run_guarded(const char *isa, int threads, const ph_layer_desc *d, int routed)
{
    layer_bed b;
    ph_ctx *ctx = open_guarded(isa, threads);
    CHECK(layer_bed_make(&b, ctx, d, check_seed) == PH_OK, "%s: %s", d->attn.variant,
          ph_error(ctx));
    if (routed) route_to_one(&b, routed);
    CHECK(layer_bed_run(&b) == PH_OK, "%s: %s", d->attn.variant, ph_error(ctx));
    for (size_t i = 0; i < b.out_count; i++)
        CHECK(b.out[i] == b.out[i], "%s: out has a NaN", d->attn.variant);
    for (size_t i = 0; i < b.x_count && d->attn.backward; i++)
        CHECK(b.dx[i] == b.dx[i], "%s: dx has a NaN", d->attn.variant);
    layer_bed_free(&b);
    ph_close(ctx);
}

/* A head may get any number of tokens, 320 of 600 too. */
static void tokens_of_one_head(void)
{
    ph_layer_desc d = describe("moh:shared=1,top=4", 24, 24, 64, 64, 600);
    d.attn.backward = 0;
    run_guarded(NULL, 1, &d, 320);
}

static void gated_remainder(void)
{
    ph_layer_desc d = describe("gated:element", 24, 24, 64, 64, 1521);
    run_guarded(NULL, 2, &d, 0);
}

static void diff_remainder(void)
{
    ph_layer_desc d = describe("diff", 24, 12, 64, 128, 1336);
    run_guarded(NULL, 1, &d, 0);
}

/* Every variant that has scratch of its own, one after the other. */
static ph_layer_desc any_layer(int index, int heads, int dim, int len)
{
    static const char *const variants[] = {"mha",           "moh:shared=1,top=1",
                                           "gated:element", "mohsa:overlap=2",
                                           "collab",        "merged",
                                           "talking",       "moh-norm:shared=1,top=2",
                                           "dcmha:rank=1",  "entmax:alpha=1.5",
                                           "gated:head"};
    const char *variant = variants[index % (int)(sizeof variants / sizeof *variants)];
    ph_layer_desc d = describe(variant, heads, heads, dim, dim, len);
    if (!strcmp(variant, "collab")) d.attn.k_heads = 1;
    if (!strcmp(variant, "merged")) d.memory_dim = d.model_dim;
    return d;
}

/* Sizes at random; the wider, the fewer tokens. */
static void random_layers(void)
{
    uint64_t r = check_seed + 2;
    for (int i = 0; i < 33 / EVERY; i++) {
        int heads = 4 << check_below(&r, 3), dim = 4 + check_below(&r, 30);
        int tokens = 1 + check_below(&r, (1 << 22) / (heads * dim) / (heads * dim));
        ph_layer_desc d = any_layer(i, heads, dim, ph_min(tokens, 300));
        run_guarded(i % 2 ? NULL : "ref", 1 + i % 3, &d, 0);
    }
}

/* Any width up to 4096 and any number of tokens up to 3000, as far as time allows. */
static void wide_and_long(void)
{
    ph_layer_desc wide = describe("mha", 32, 32, 128, 128, 1); /* 4096 */
    ph_layer_desc longest = describe("gated:head", 2, 2, 8, 8, MOST_ROWS);
    uint64_t r = check_seed + 3;
    wide.attn.backward = 0;
    run_guarded(NULL, 2, &wide, 0);
    run_guarded(NULL, 2, &longest, 0);
    for (int i = 0; i < 22 / EVERY; i++) {
        int heads = 4 << check_below(&r, 2), dim = 4 + check_below(&r, 30);
        int width = 1 + check_below(&r, MOST_WIDTH);
        int most = ph_min(MOST_ROWS, (1 << 25) / (width * heads * dim));
        ph_layer_desc d = any_layer(i, heads, dim, 1 + check_below(&r, most));
        d.model_dim = width;
        if (d.memory_dim) d.memory_dim = width;
        run_guarded(NULL, 1 + i % 3, &d, 0);
    }
}

/* ---- every number of rows ---------------------------------------------------------- */

/* Runs no item of a parallel loop: a call then does little but carve its memory. */
static void run_nothing(void *user, int count, ph_task *task, void *arg)
{
    (void)user, (void)count, (void)task, (void)arg;
}

/* A layer whose tensors all lie in one block of zeros: nothing is computed. */
static void carve_layer(ph_ctx *ctx, const ph_layer_desc *d, float *zeros)
{
    const float *extra[BED_MOST];
    float *dextra[BED_MOST];
    ph_layer *layer;
    for (int i = 0; i < BED_MOST; i++) extra[i] = dextra[i] = zeros;
    ph_layer_weights w = {.wq = zeros, .wk = zeros, .wv = zeros, .wo = zeros};
    ph_layer_grads g = {.dout = zeros, .dx = zeros, .dwq = zeros, .dwk = zeros};
    w.extra = extra, g.dextra = dextra, g.dwv = g.dwo = zeros;
    CHECK(ph_layer_create(&layer, ctx, d) == PH_OK, "%s", ph_error(ctx));
    ph_layer_args a = {.x = zeros, .out = zeros, .memory = d->memory_dim ? zeros : NULL};
    if (d->memory_dim) g.dmemory = zeros;
    a.saved_size = ph_layer_saved(layer);
    a.saved = aligned_alloc(64, a.saved_size);
    CHECK(ph_layer_forward(layer, &w, &a) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_layer_backward(layer, &w, &a, &g) == PH_OK, "%s", ph_error(ctx));
    free(a.saved);
    ph_layer_free(layer);
}

/* Token counts of every residue modulo 512, the largest number of rows that a step of a
   layer takes at a time, up to 3000 of them and 4096 wide: each finds the scratch that
   it carves; the arena stops the process otherwise. What single items of products carve
   is tried below. */
static void every_residue(void)
{
    ph_options o = {.parallel = run_nothing};
    ph_ctx *ctx;
    float *zeros = calloc((size_t)MOST_WIDTH * MOST_WIDTH, sizeof *zeros);
    uint64_t r = check_seed + 4;
    for (int i = 0; i < 512; i += EVERY) {
        int len = 1 + i + 512 * check_below(&r, (MOST_ROWS - i - 1) / 512 + 1);
        int heads = 8 << check_below(&r, 3), dim = MOST_WIDTH / heads;
        ph_layer_desc d = any_layer(i, heads, dim >> check_below(&r, 3), len);
        o.threads = 2 + i % 5;
        CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
        carve_layer(ctx, &d, zeros);
        ph_close(ctx);
    }
    free(zeros);
}

/* ---- products ---------------------------------------------------------------------- */

/* One of the forms of gemm.h, in any types and with any strides. */
static ph_gemm random_form(uint64_t *r, int n, int k)
{
    const ph_dtype stored[] = {PH_F32, PH_F32, PH_BF16, PH_Q8_0, PH_Q6_K};
    ph_gemm g = {.n = n, .k = k, .a_type = (ph_dtype)check_below(r, 3)};
    int transposed_a = check_below(r, 3) == 0, transposed_b = check_below(r, 2);
    g.a_row = transposed_a ? 1 : k, g.a_col = transposed_a ? MOST_ROWS : 1;
    g.b_row = transposed_b ? 1 : n, g.b_col = transposed_b ? k : 1;
    g.b_type = stored[check_below(r, 5)];
    if ((transposed_b ? k : n) % ph_quant_block(g.b_type)) g.b_type = PH_F32;
    g.c_row = n, g.c_type = check_below(r, 2) ? PH_F32 : PH_BF16;
    if (check_below(r, 4) == 0 && n % 4 == 0) g.c_block = n / 4, g.c_step = n / 4;
    g.add = check_below(r, 3) == 0, g.tiles = check_below(r, 2);
    return g;
}

/* Tables of this CPU, and the best of them with the tiles of bf16 in plain C. */
static int list_tables(ph_kernels *with_tiles, const ph_kernels **list)
{
    int count = 0;
    for (const ph_kernels *const *k = ph_kernels_list(); *k; k++) list[count++] = *k;
    *with_tiles = *list[count - 1];
    with_tiles->bf16_pairs = &ph_bf16_pairs_ref;
    list[count++] = with_tiles;
    return count;
}

/* Bytes grow with the rows, whatever their number. */
static void bytes_of_fewer_rows(void)
{
    const ph_kernels *tables[16];
    ph_kernels with_tiles;
    uint64_t r = check_seed;
    int count = list_tables(&with_tiles, tables);
    for (int i = 0; i < 500 / EVERY; i++) {
        ph_ctx ctx = {.threads = 1 + i % 5, .kernels = tables[i % count]};
        int k = 1 + check_below(&r, 4096), n = 1 + check_below(&r, 4096);
        ph_gemm g[2] = {random_form(&r, n, k), random_form(&r, 1 + n / 3, k)};
        size_t before = 0;
        for (int m = 0; m <= MOST_ROWS; m++) {
            g[0].m = g[1].m = m;
            size_t bytes = ph_gemm_bytes(&ctx, g, 2);
            CHECK(bytes >= before, "%s, case %d: %d rows need %zu bytes, one less %zu",
                  ctx.kernels->name, i, m, bytes, before);
            CHECK(ph_gemm_bytes(&ctx, g + 1, 1) <= bytes,
                  "%s, case %d: a part of a list needs more", ctx.kernels->name, i);
            before = bytes;
        }
    }
}

/* Products find in these bytes what they carve; the arena stops them otherwise. Rows
   about which a round is full are tried, and others. */
static void carves_of_fewer_rows(void)
{
    const ph_kernels *tables[16];
    ph_kernels with_tiles;
    uint64_t r = check_seed + 1;
    int count = list_tables(&with_tiles, tables);
    float *zeros = calloc((size_t)4096 * 4096, sizeof *zeros);
    for (int i = 0; i < 2000 / EVERY; i++) {
        ph_ctx ctx = {.threads = 2 + i % 5, .kernels = tables[i % count]};
        int full[] = {1 << 12, 1 << 19, 1 << 20, check_below(&r, 1 << 16)};
        int k = 1 + check_below(&r, 4096), n = 1 + check_below(&r, 4096);
        int m = full[check_below(&r, 4)] / k + check_below(&r, 3);
        ph_gemm g = random_form(&r, n, k);
        ctx.options.parallel = run_nothing;
        g.m = m < MOST_ROWS ? m : MOST_ROWS;
        size_t bytes = ph_gemm_bytes(&ctx, &g, 1);
        ph_workspace work = {aligned_alloc(PH_ALIGN, bytes), bytes};
        g.a = g.b = g.c = zeros;
        if (g.m) ph_gemm_run(&ctx, &g, 1, work);
        free(work.data);
    }
    free(zeros);
}

/* The same computed: what is touched lies in front of an unmapped page. */
static void products_of_fewer_rows(void)
{
    const ph_kernels *tables[16];
    ph_kernels with_tiles;
    uint64_t r = check_seed + 1;
    int count = list_tables(&with_tiles, tables);
    float *zeros = calloc((size_t)4096 * 4096, sizeof *zeros);
    ph_ctx *ctx = open_guarded(NULL, 2);
    const ph_kernels *own = ctx->kernels;
    for (int i = 0; i < 60 / EVERY; i++) {
        ctx->kernels = tables[i % count];
        int k = 1 + check_below(&r, 4096), rows = 1 + check_below(&r, MOST_ROWS);
        ph_gemm g = random_form(&r, 1 + check_below(&r, 4096), k);
        g.m = MOST_ROWS;
        size_t bytes = ph_gemm_bytes(ctx, &g, 1);
        ph_workspace work = {guard_alloc(bytes), bytes};
        int64_t affordable = 1 + (int64_t)(1 << 22) / g.n / k;
        g.m = affordable < rows ? (int)affordable : rows;
        g.a = g.b = zeros, g.c = calloc((size_t)g.m * (size_t)g.n, sizeof(float));
        ph_gemm_run(ctx, &g, 1, work);
        free(g.c);
        guard_free(work.data);
    }
    ctx->kernels = own;
    ph_close(ctx);
    free(zeros);
}

static const check_case cases[] = {{"tokens_of_one_head", tokens_of_one_head},
                                   {"gated_remainder", gated_remainder},
                                   {"diff_remainder", diff_remainder},
                                   {"random_layers", random_layers},
                                   {"wide_and_long", wide_and_long},
                                   {"every_residue", every_residue},
                                   {"bytes_of_fewer_rows", bytes_of_fewer_rows},
                                   {"carves_of_fewer_rows", carves_of_fewer_rows},
                                   {"products_of_fewer_rows", products_of_fewer_rows},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
