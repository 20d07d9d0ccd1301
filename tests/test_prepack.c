/*
 * test_prepack.c - matrices that are packed once: products and encoders give the bits
 * they give without, and entries go with their model.
 */
#include "check.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "model/model.h"

#define FOLDER "tests/golden/checkpoints/"

static void fill(float *x, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) x[i] = check_normal(state);
}

static void run_list(ph_ctx *ctx, const ph_gemm *list, int count)
{
    size_t bytes = ph_gemm_bytes(ctx, list, count);
    void *space = ph_ctx_alloc(ctx, bytes);
    CHECK(space, "no memory");
    ph_gemm_run(ctx, list, count, (ph_workspace){space, bytes});
    ph_ctx_release(ctx, space);
}

static void run(ph_ctx *ctx, const ph_gemm *g)
{
    run_list(ctx, g, 1);
}

/* Both storage orders, sizes that end within panels. */
static void one_product(ph_ctx *ctx, int m, int k, int n, int linear, uint64_t *state)
{
    size_t rows = (size_t)m, depth = (size_t)k, columns = (size_t)n;
    float *a = malloc(rows * depth * sizeof *a), *b = malloc(depth * columns * sizeof *b);
    float *c = malloc(2 * rows * columns * sizeof *c),
          *bias = malloc(columns * sizeof *bias);
    float *panels = malloc(ph_gemm_prepack_floats(ctx, k, n) * sizeof *panels);
    fill(a, rows * depth, state);
    fill(b, depth * columns, state);
    fill(bias, columns, state);
    ph_gemm g = {
        .m = m, .n = n, .k = k, .a = a, .a_row = k, .a_col = 1, .b = b, .bias = bias};
    g.b_row = linear ? 1 : n, g.b_col = linear ? k : 1;
    g.c = c, g.c_row = n;
    run(ctx, &g);
    ph_prepacked entry;
    ph_gemm_prepack(ctx, &g, panels);
    ph_gemm_remember(ctx, &g, panels, &entry);
    memset(b, 0, depth * columns * sizeof *b); /* products of many rows do not read it */
    g.c = c + rows * columns;
    run(ctx, &g);
    CHECK(!memcmp(c, g.c, rows * columns * sizeof *c), "%d x %d x %d: other bits", m, k,
          n);
    ph_gemm_forget(ctx, &entry);
    CHECK(!ctx->prepacked, "an entry is left");
    free(a), free(b), free(c), free(bias), free(panels);
}

static void products(void)
{
    static const int sizes[][3] = {
        {64, 33, 17}, {128, 384, 384}, {65, 700, 100}, {200, 96, 1}, {97, 1300, 50}};
    uint64_t state = check_seed;
    for (int i = 0; ph_isa_list()[i]; i++) {
        ph_ctx *ctx;
        ph_options options = {.isa = ph_isa_list()[i], .threads = 1 + i % 2};
        CHECK(ph_open(&ctx, &options) == PH_OK, "no %s", ph_isa_list()[i]);
        for (int s = 0; s < 5; s++)
            for (int linear = 0; linear < 2; linear++)
                one_product(ctx, sizes[s][0], sizes[s][1], sizes[s][2], linear, &state);
        ph_close(ctx);
    }
}

enum { ROWS = 131, DEEP = 700, WIDE = 40, LIST = 4 };

/* Products of one list: the first two of one a, the third of another, the fourth of a
   again and added to c; rows of c with a gap behind them. */
static void one_list(ph_ctx *ctx, int rows, uint64_t *state)
{
    static float a[2][ROWS * DEEP], b[LIST][DEEP * WIDE], c[2][LIST][ROWS * (WIDE + 1)];
    float *panels[LIST];
    ph_gemm list[LIST];
    ph_prepacked entries[LIST];
    fill(a[0], 2 * ROWS * DEEP, state);
    fill(b[0], LIST * DEEP * WIDE, state);
    fill(c[0][0], LIST * ROWS * (WIDE + 1), state);
    memcpy(c[1], c[0], sizeof c[1]);
    for (int i = 0; i < LIST; i++) {
        list[i] = (ph_gemm){.m = rows, .n = WIDE - i, .k = i < 2 ? DEEP : 33};
        list[i].a = a[i == 2], list[i].a_row = DEEP, list[i].a_col = 1;
        list[i].same_a = i == 1, list[i].add = i == 3;
        list[i].b = b[i], list[i].b_row = 1, list[i].b_col = list[i].k;
        list[i].c = c[0][i], list[i].c_row = WIDE + 1;
    }
    run_list(ctx, list, LIST);
    for (int i = 0; i < LIST; i++) {
        size_t floats = ph_gemm_prepack_floats(ctx, list[i].k, list[i].n);
        panels[i] = malloc(floats * sizeof(float));
        ph_gemm_prepack(ctx, &list[i], panels[i]);
        ph_gemm_remember(ctx, &list[i], panels[i], &entries[i]);
        list[i].c = c[1][i];
    }
    run_list(ctx, list, LIST);
    CHECK(!memcmp(c[0], c[1], sizeof c[0]), "a list of %d rows: other bits", rows);
    for (int i = 0; i < LIST; i++) ph_gemm_forget(ctx, &entries[i]), free(panels[i]);
}

static void lists(void)
{
    uint64_t state = check_seed;
    for (int i = 0; ph_isa_list()[i]; i++)
        for (int threads = 1; threads < 4; threads++) {
            ph_ctx *ctx;
            ph_options options = {.isa = ph_isa_list()[i], .threads = threads};
            CHECK(ph_open(&ctx, &options) == PH_OK, "no %s", ph_isa_list()[i]);
            one_list(ctx, ROWS, &state);
            one_list(ctx, 49, &state);
            ph_close(ctx);
        }
}

/* Vectors and classes of a model that packs, against one whose parameters are its own. */
static void encoders(void)
{
    static const char *const names[] = {FOLDER "bert", FOLDER "bert-classes"};
    static const char *const texts[] = {"the cat sat on the mat. is the dog good?",
                                        "a b c d e f g h i j k l m n o p q r s t", "dog"};
    for (int i = 0; i < 2; i++) {
        ph_ctx *ctx;
        ph_model *m[2];
        float out[2][3 * 32];
        CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "ph_open failed");
        for (int k = 0; k < 2; k++) {
            CHECK(ph_model_read(&m[k], ctx, names[i]) == PH_OK, "%s", ph_error(ctx));
            if (k) CHECK(ph_model_own(m[k]) == PH_OK, "%s", ph_error(ctx));
            ph_texts given = {.texts = texts, .count = 3};
            for (int again = 0; again < 2; again++)
                CHECK((i ? ph_model_classify : ph_model_embed)(m[k], &given, out[k]) ==
                          PH_OK,
                      "%s", ph_error(ctx));
        }
        size_t floats = i ? 3 * (size_t)m[0]->config.classes : 3 * 32;
        CHECK(m[0]->panels && !m[1]->panels, "not packed, or both are");
        CHECK(ctx->prepacked, "no entry");
        CHECK(!memcmp(out[0], out[1], floats * sizeof(float)), "%s: other bits",
              names[i]);
        ph_model_free(m[0]);
        CHECK(!ctx->prepacked, "an entry outlives its model");
        ph_model_free(m[1]);
        ph_close(ctx);
    }
}

static const check_case cases[] = {
    {"products", products}, {"lists", lists}, {"encoders", encoders}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
