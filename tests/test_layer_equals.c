/*
 * test_layer_equals.c - what must be the same by the formulas of each variant of a layer:
 * exact tests of the specifications beside those of test_layer_degenerate.c. Number 0 of
 * every token is 1, so that row 0 of a matrix is a bias.
 */
#include <math.h>

#include "check.h"
#include "layer_bed.h"

enum { LEN = 6, MODEL = 8, HEADS = 4, DIM = 4, BATCH = 2, TOKENS = BATCH * LEN };

static ph_ctx *ctx;

static ph_layer_desc describe(const char *variant)
{
    ph_layer_desc d = {.model_dim = MODEL};
    d.attn = (ph_attn){.batch = BATCH,
                       .q_heads = HEADS,
                       .q_len = LEN,
                       .kv_len = LEN,
                       .qk_dim = DIM,
                       .mask = PH_MASK_CAUSAL,
                       .variant = variant,
                       .backward = 1};
    return d;
}

static void make(layer_bed *b, ph_layer_desc d)
{
    CHECK(layer_bed_make(b, ctx, &d, check_seed + 3) == PH_OK, "%s", ph_error(ctx));
    for (int t = 0; t < TOKENS && t * MODEL < (int)b->x_count; t++) b->x[t * MODEL] = 1;
    b->args.gate_out = ph_layer_about(b->layer).gates ? b->gate : NULL;
}

static void run(layer_bed *b)
{
    CHECK(layer_bed_run(b) == PH_OK, "%s", ph_error(ctx));
}

static float *numbers(const layer_bed *b, const char *name)
{
    int i = layer_bed_find(b, name);
    CHECK(i >= 0, "no parameter %s", name);
    return b->w[i];
}

static float *gradient(const layer_bed *b, const char *name)
{
    return b->dw[layer_bed_find(b, name)];
}

static void set(layer_bed *b, const char *name, float value)
{
    float *x = numbers(b, name);
    for (size_t n = 0; n < b->count[layer_bed_find(b, name)]; n++) x[n] = value;
}

static double apart(const float *a, const float *b, size_t count)
{
    double far = 0;
    for (size_t i = 0; i < count; i++) far = fmax(far, fabs((double)a[i] - b[i]));
    return far;
}

/* A second layer with the parameters and tokens of the first. */
static void make_like(layer_bed *b, ph_layer_desc d, const layer_bed *from)
{
    make(b, d);
    layer_bed_copy(b, from);
}

/* Exchanges blocks of `n` columns, of rows of `all`, in every row of a matrix. */
static void swap_columns(float *w, int rows, int all, int a, int b, int n)
{
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) {
            float *x = &w[r * all + a + i], *y = &w[r * all + b + i], old = *x;
            *x = *y, *y = old;
        }
}

/* Exchanges two heads in all matrices of plain heads. */
static void swap_heads(layer_bed *b, int one, int two)
{
    static const char *const names[] = {"wq", "wk", "wv", "bq", "bk", "bv"};
    for (int i = 0; i < 6; i++)
        swap_columns(numbers(b, names[i]), i < 3 ? MODEL : 1, HEADS * DIM, one * DIM,
                     two * DIM, DIM);
    swap_columns(numbers(b, "wo"), 1, HEADS * DIM * MODEL, one * DIM * MODEL,
                 two * DIM * MODEL, DIM * MODEL);
}

/* ---- mixture of heads -------------------------------------------------------------- */

/* Few heads of many: queries are projected for routed pairs only, and everything equals
   mha with the same gates, bit for bit. */
static void moh_sparse(void)
{
    for (int form = 0; form < 2; form++) {
        ph_layer_desc d = describe("mha"), v = describe("moh:shared=1,top=2");
        layer_bed plain, b;
        d.attn.q_heads = v.attn.q_heads = 8, d.attn.k_heads = v.attn.k_heads = 2;
        d.attn.batch = v.attn.batch = 3, d.attn.q_len = v.attn.q_len = 400;
        d.attn.kv_len = v.attn.kv_len = 400, d.attn.gate = PH_GATE_ROW;
        d.q_form = v.q_form = form ? PH_FORM_HEADS : PH_FORM_WHOLE;
        d.rope = v.rope = PH_ROPE_HALF;
        make(&b, v);
        make_like(&plain, d, &b);
        run(&b);
        plain.args.attn.gate = b.gate;
        run(&plain);
        CHECK(apart(plain.out, b.out, b.out_count) == 0, "out differs");
        CHECK(apart(gradient(&plain, "wq"), gradient(&b, "wq"), MODEL * 8 * DIM) == 0,
              "dwq differs");
        double most = ph_layer_about(plain.layer).flops;
        CHECK(ph_layer_about(b.layer).flops < 0.75 * most, "it counts what is not done");
        layer_bed_free(&plain);
        layer_bed_free(&b);
    }
}

/* A router that is sure of one head: attention with that head alone, bit for bit. */
static void moh_one_head(void)
{
    layer_bed plain, b;
    make(&plain, describe("mha"));
    make_like(&b, describe("moh:shared=0,top=1"), &plain);
    set(&b, "moh_wr", 0);
    numbers(&b, "moh_wr")[2] = 50;
    for (int i = 0; i < HEADS * DIM * MODEL; i++)
        if (i / (DIM * MODEL) != 2) numbers(&plain, "wo")[i] = 0;
    run(&plain);
    run(&b);
    CHECK(apart(plain.out, b.out, b.out_count) == 0, "out differs");
    layer_bed_free(&plain);
    layer_bed_free(&b);
}

static void moh_permuted(void)
{
    layer_bed a, b;
    make(&a, describe("moh:shared=1,top=2"));
    make_like(&b, describe("moh:shared=1,top=2"), &a);
    swap_heads(&b, 1, 3);
    swap_columns(numbers(&b, "moh_wr"), MODEL, HEADS - 1, 0, 2, 1);
    run(&a);
    run(&b);
    double far = apart(a.out, b.out, a.out_count);
    CHECK(far < 1e-5, "out differs by %g", far);
    layer_bed_free(&a);
    layer_bed_free(&b);
}

/* The same number added to all logits changes nothing; gates of a token sum to
   2 (softmax(zh)_0 S + softmax(zh)_1 K). */
static void moh_shifted(void)
{
    layer_bed a, b;
    make(&a, describe("moh:shared=2,top=1"));
    make_like(&b, describe("moh:shared=2,top=1"), &a);
    for (int e = 0; e < 2; e++) {
        numbers(&b, "moh_wr")[e] += 3;
        numbers(&b, "moh_ws")[e] -= 2;
        numbers(&b, "moh_wh")[e] += 1;
    }
    run(&a);
    run(&b);
    CHECK(apart(a.gate, b.gate, a.gate_count) < 1e-5, "gates differ");
    for (int t = 0; t < TOKENS; t++) {
        double z[2] = {0, 0}, sum = 0;
        for (int c = 0; c < MODEL; c++)
            for (int e = 0; e < 2; e++)
                z[e] += (double)a.x[t * MODEL + c] * numbers(&a, "moh_wh")[c * 2 + e];
        double first = 1 / (1 + exp(z[1] - z[0])), want = 2 * (first * 2 + (1 - first));
        for (int h = 0; h < HEADS; h++)
            sum += a.gate[(t / LEN * HEADS + h) * LEN + t % LEN];
        CHECK(fabs(sum - want) < 1e-5, "gates of token %d sum to %g, not %g", t, sum,
              want);
    }
    layer_bed_free(&a);
    layer_bed_free(&b);
}

/* A head that nobody chooses: its router learns nothing from the task, exactly; and what
   the balance loss teaches sums to 0 over the heads. */
static void moh_unchosen(void)
{
    layer_bed b;
    make(&b, describe("moh:shared=1,top=1"));
    numbers(&b, "moh_wr")[2] = -50;
    run(&b);
    for (int c = 0; c < MODEL; c++)
        CHECK(gradient(&b, "moh_wr")[c * 3 + 2] == 0, "gradient of an unused router");
    for (int t = 0; t < TOKENS; t++)
        CHECK(b.gate[(t / LEN * HEADS + 3) * LEN + t % LEN] == 0, "the head is used");
    numbers(&b, "moh_wr")[2] = 0;
    memset(b.dout, 0, b.out_count * sizeof(float));
    b.args.balance = 1;
    run(&b);
    double size = 0;
    for (int c = 0; c < MODEL; c++) {
        const float *d = gradient(&b, "moh_wr") + c * 3;
        size = fmax(size, fabs((double)d[0]));
        CHECK(fabs((double)d[0] + d[1] + d[2]) < 1e-6, "balance gradients sum to %g",
              (double)d[0] + d[1] + d[2]);
    }
    CHECK(size > 1e-4, "no balance gradient");
    layer_bed_free(&b);
}

/* Routing by norm is invariant to the scale of the queries and to their positions. */
static void moh_norm_invariant(void)
{
    layer_bed a, b, c;
    ph_layer_desc rotated = describe("moh-norm:shared=1,top=2");
    rotated.rope = PH_ROPE_HALF;
    make(&a, describe("moh-norm:shared=1,top=2"));
    make_like(&b, describe("moh-norm:shared=1,top=2"), &a);
    make_like(&c, rotated, &a);
    for (int i = 0; i < MODEL * HEADS * DIM; i++) numbers(&b, "wq")[i] *= 4;
    for (int i = 0; i < HEADS * DIM; i++) numbers(&b, "bq")[i] *= 4;
    run(&a);
    run(&b);
    run(&c);
    CHECK(apart(a.gate, b.gate, a.gate_count) == 0, "longer queries route otherwise");
    CHECK(apart(a.gate, c.gate, a.gate_count) == 0, "rotated queries route otherwise");
    layer_bed_free(&a);
    layer_bed_free(&b);
    layer_bed_free(&c);
}

/* ---- overlapping and collaborative heads ------------------------------------------- */

/* Nothing at the borders of the heads: windows give the scores of plain heads. */
static void mohsa_borders(void)
{
    static const char *const names[] = {"wq", "wk", "bq", "bk"};
    layer_bed plain, b;
    make(&plain, describe("mha"));
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < (n < 2 ? MODEL : 1) * HEADS * DIM; i++)
            if (i % DIM == 0 || i % DIM == DIM - 1) numbers(&plain, names[n])[i] = 0;
    make_like(&b, describe("mohsa:overlap=1"), &plain);
    run(&plain);
    run(&b);
    CHECK(apart(plain.lse, b.lse, plain.gate_count) == 0, "scores differ");
    layer_bed_free(&plain);
    layer_bed_free(&b);
}

/* The scores of overlapping heads are those of collaborative ones with a banded mix. */
static void mohsa_banded(void)
{
    enum { OVERLAP = 2, SHARED = HEADS * DIM };
    ph_layer_desc v = describe("collab");
    layer_bed a, b;
    v.attn.qk_dim = SHARED, v.attn.v_dim = DIM, v.attn.scale = 1 / sqrtf(DIM);
    make(&a, describe("mohsa:overlap=2"));
    make_like(&b, v, &a);
    for (int h = 0; h < HEADS; h++)
        for (int r = 0; r < SHARED; r++)
            numbers(&b, "mix")[h * SHARED + r] =
                r >= h * DIM - OVERLAP && r < (h + 1) * DIM + OVERLAP;
    run(&a);
    run(&b);
    CHECK(apart(a.lse, b.lse, a.gate_count) < 1e-5, "scores differ by %g",
          apart(a.lse, b.lse, a.gate_count));
    layer_bed_free(&a);
    layer_bed_free(&b);
}

static ph_layer_desc collab(int heads, float scale)
{
    ph_layer_desc d = describe("collab");
    d.attn.q_heads = heads, d.attn.qk_dim = 6, d.attn.v_dim = DIM, d.attn.scale = scale;
    return d;
}

/* One head that weighs all numbers alike is a plain one; several have the same scores. */
static void collab_alike(void)
{
    ph_layer_desc one = describe("mha");
    layer_bed plain, b, four;
    one.attn.q_heads = 1, one.attn.qk_dim = 6, one.attn.v_dim = DIM;
    make(&plain, one);
    make_like(&b, collab(1, (float)(1 / sqrt(6))), &plain);
    set(&b, "mix", 1);
    run(&plain);
    run(&b);
    CHECK(apart(plain.out, b.out, b.out_count) == 0, "out differs");
    CHECK(apart(plain.dx, b.dx, b.x_count) < 1e-5, "dx differs");
    make(&four, collab(HEADS, 0.5f));
    set(&four, "mix", 1);
    run(&four);
    for (int i = 0; i < BATCH * HEADS * LEN; i++)
        CHECK(four.lse[i] == four.lse[i / (HEADS * LEN) * HEADS * LEN + i % LEN],
              "heads differ");
    layer_bed_free(&plain);
    layer_bed_free(&b);
    layer_bed_free(&four);
}

/* Twice the mix and half the scale; twice a query and half the mix: the same bits, and
   half or twice the gradients. */
static void collab_scaled(void)
{
    layer_bed a, b, c;
    make(&a, collab(HEADS, 0.5f));
    make_like(&b, collab(HEADS, 0.25f), &a);
    make_like(&c, collab(HEADS, 0.5f), &a);
    for (int i = 0; i < HEADS * 6; i++) numbers(&b, "mix")[i] *= 2;
    for (int i = 0; i < HEADS * 6; i++) numbers(&c, "mix")[i] *= 0.5f;
    for (int i = 0; i < MODEL * 6; i++) numbers(&c, "wq")[i] *= 2;
    for (int i = 0; i < 6; i++) numbers(&c, "bq")[i] *= 2;
    run(&a);
    run(&b);
    run(&c);
    CHECK(apart(a.out, b.out, a.out_count) == 0, "out with twice the mix");
    CHECK(apart(a.out, c.out, a.out_count) == 0, "out with twice the query");
    for (int i = 0; i < HEADS * 6; i++) {
        CHECK(gradient(&a, "mix")[i] == 2 * gradient(&b, "mix")[i], "dmix[%d]", i);
        CHECK(2 * gradient(&a, "mix")[i] == gradient(&c, "mix")[i], "dmix[%d]", i);
    }
    layer_bed_free(&a);
    layer_bed_free(&b);
    layer_bed_free(&c);
}

static void collab_permuted(void)
{
    layer_bed a, b;
    make(&a, collab(HEADS, 0));
    make_like(&b, collab(HEADS, 0), &a);
    swap_columns(numbers(&b, "mix"), 1, HEADS * 6, 0, 12, 6);
    swap_columns(numbers(&b, "wv"), MODEL, HEADS * DIM, 0, 2 * DIM, DIM);
    swap_columns(numbers(&b, "bv"), 1, HEADS * DIM, 0, 2 * DIM, DIM);
    swap_columns(numbers(&b, "wo"), 1, HEADS * DIM * MODEL, 0, 2 * DIM * MODEL,
                 DIM * MODEL);
    run(&a);
    run(&b);
    CHECK(apart(a.out, b.out, a.out_count) < 1e-5, "out differs");
    layer_bed_free(&a);
    layer_bed_free(&b);
}

/* ---- differential, merged, gated --------------------------------------------------- */

/* Nothing subtracted: plain attention of the even heads, bit for bit. */
static void diff2_off(void)
{
    ph_layer_desc even = describe("mha"), pairs = describe("diff2");
    layer_bed plain, b;
    even.attn.q_heads = HEADS / 2;
    make(&b, pairs);
    make(&plain, even);
    layer_bed_copy(&plain, &b);
    set(&b, "w_lambda", 0);
    for (int m = 0; m < HEADS / 2; m++) numbers(&b, "w_lambda")[m] = -200;
    for (int r = 0; r < MODEL + 1; r++)
        for (int i = 0; i < HEADS / 2 * DIM; i++) {
            const char *name = r < MODEL ? "wq" : "bq";
            int row = r < MODEL ? r : 0, from = i / DIM * 2 * DIM + i % DIM;
            numbers(&plain, name)[row * HEADS / 2 * DIM + i] =
                numbers(&b, name)[row * HEADS * DIM + from];
        }
    run(&plain);
    run(&b);
    CHECK(apart(plain.out, b.out, b.out_count) == 0, "out differs");
    layer_bed_free(&plain);
    layer_bed_free(&b);
}

/* Cross-attention plus the mean of x wv + bv so far: nothing where that is 0, itself if
   all tokens are the same. */
static void merged_means(void)
{
    for (int same = 0; same < 2; same++) {
        ph_layer_desc d = describe("mha"), v = describe("merged");
        layer_bed plain, b;
        d.memory_dim = v.memory_dim = MODEL, d.concat = v.concat = 1;
        d.attn.mask = v.attn.mask = PH_MASK_NONE;
        d.out_dim = v.out_dim = HEADS * DIM;
        make(&plain, d);
        for (int i = 0; i < TOKENS * MODEL; i++)
            plain.x[i] = same ? plain.x[i % MODEL] : 0;
        if (!same) set(&plain, "bv", 0);
        make(&b, v);
        layer_bed_copy(&b, &plain);
        run(&plain);
        run(&b);
        for (int i = 0; i < TOKENS * HEADS * DIM; i++) {
            double u = numbers(&b, "bv")[i % (HEADS * DIM)];
            for (int c = 0; c < MODEL; c++)
                u += (double)b.x[c] *
                     numbers(&b, "wv")[c * HEADS * DIM + i % (HEADS * DIM)];
            double far = fabs(b.out[i] - (double)plain.out[i] - u);
            CHECK(same ? far < 1e-5 : b.out[i] == plain.out[i], "out[%d] is off by %g", i,
                  far);
        }
        layer_bed_free(&plain);
        layer_bed_free(&b);
    }
}

/* A gate that is wide open leaves every kind what it is, gradients included. */
static void gates_open(void)
{
    static const char *const kinds[] = {"mha",
                                        "moh:shared=1,top=2",
                                        "moh-norm:shared=1,top=2",
                                        "mohsa:overlap=2",
                                        "diff",
                                        "diff2",
                                        "collab",
                                        "mla:rope=2,latent=5",
                                        "dcmha:rank=1"};
    for (size_t n = 0; n < 2 * sizeof kinds / sizeof kinds[0]; n++) {
        char gated[64];
        layer_bed a, b;
        int plain = n / 2 == 0;
        snprintf(gated, sizeof gated, "gated:%s%s%s", n % 2 ? "element" : "head",
                 plain ? "" : "+", plain ? "" : kinds[n / 2]);
        make(&a, describe(kinds[n / 2]));
        make_like(&b, describe(gated), &a);
        size_t count = b.count[layer_bed_find(&b, "w_gate")];
        for (size_t i = 0; i < count; i++)
            numbers(&b, "w_gate")[i] = i < count / MODEL ? 200 : 0;
        run(&a);
        run(&b);
        CHECK(apart(a.out, b.out, a.out_count) == 0, "%s: out differs", gated);
        CHECK(apart(a.dx, b.dx, a.x_count) == 0, "%s: dx differs", gated);
        for (int i = 0; i < a.params; i++)
            CHECK(apart(a.dw[i], gradient(&b, a.param[i]->name), a.count[i]) == 0,
                  "%s: d%s differs", gated, a.param[i]->name);
        layer_bed_free(&a);
        layer_bed_free(&b);
    }
}

static const check_case cases[] = {{"moh_sparse", moh_sparse},
                                   {"moh_one_head", moh_one_head},
                                   {"moh_permuted", moh_permuted},
                                   {"moh_shifted", moh_shifted},
                                   {"moh_unchosen", moh_unchosen},
                                   {"moh_norm_invariant", moh_norm_invariant},
                                   {"mohsa_borders", mohsa_borders},
                                   {"mohsa_banded", mohsa_banded},
                                   {"collab_alike", collab_alike},
                                   {"collab_scaled", collab_scaled},
                                   {"collab_permuted", collab_permuted},
                                   {"diff2_off", diff2_off},
                                   {"merged_means", merged_means},
                                   {"gates_open", gates_open},
                                   {0, 0}};

int main(int argc, char **argv)
{
    if (ph_open(&ctx, &(ph_options){.threads = 2}) != PH_OK) return 1;
    int failed = check_main(argc, argv, cases);
    ph_close(ctx);
    return failed;
}
