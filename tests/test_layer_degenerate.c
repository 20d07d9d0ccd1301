/*
 * test_layer_degenerate.c - variants that are plain attention after all: with these
 * parameters each must give what multi-head attention gives, bit for bit where it runs
 * the same arithmetic; and numbers worked out by hand.
 */
#include <math.h>

#include "check.h"
#include "guard.h"
#include "layer_bed.h"

enum { LEN = 6, MODEL = 8, HEADS = 4, DIM = 4 };

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx = NULL;
    ph_options o = guard_options(NULL, 2);
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    return ctx;
}

static ph_layer_desc describe(const char *variant)
{
    ph_layer_desc d = {.model_dim = MODEL};
    d.attn = (ph_attn){.batch = 2,
                       .q_heads = HEADS,
                       .q_len = LEN,
                       .kv_len = LEN,
                       .qk_dim = DIM,
                       .mask = PH_MASK_CAUSAL,
                       .variant = variant,
                       .backward = 1};
    return d;
}

static void make(layer_bed *b, ph_ctx *ctx, const ph_layer_desc *d)
{
    CHECK(layer_bed_make(b, ctx, d, check_seed + 3) == PH_OK, "%s", ph_error(ctx));
}

static void run(layer_bed *b)
{
    CHECK(layer_bed_run(b) == PH_OK, "%s", ph_error(b->ctx));
}

static void set(layer_bed *b, const char *name, float value)
{
    int i = layer_bed_find(b, name);
    CHECK(i >= 0, "no parameter %s", name);
    for (size_t n = 0; n < b->count[i]; n++) b->w[i][n] = value;
}

static float *numbers(layer_bed *b, const char *name)
{
    int i = layer_bed_find(b, name);
    CHECK(i >= 0, "no parameter %s", name);
    return b->w[i];
}

static float *gradient(layer_bed *b, const char *name)
{
    return b->dw[layer_bed_find(b, name)];
}

/* out, dx and the gradients of all parameters that both have: the same bits if most is 0,
   else at most that far apart. */
static void check_like(const layer_bed *a, const layer_bed *b, double most)
{
    double far = 0;
    for (size_t i = 0; i < a->out_count; i++)
        far = fmax(far, fabs((double)a->out[i] - b->out[i]));
    CHECK(far <= most, "%s: out differs by %g", b->desc.attn.variant, far);
    for (size_t i = 0; i < a->x_count; i++)
        far = fmax(far, fabs((double)a->dx[i] - b->dx[i]));
    CHECK(far <= most, "%s: dx differs by %g", b->desc.attn.variant, far);
    for (int i = 0; i < a->params; i++) {
        int at = layer_bed_find(b, a->param[i]->name);
        if (at < 0 || b->count[at] != a->count[i]) continue;
        for (size_t n = 0; n < a->count[i]; n++)
            far = fmax(far, fabs((double)a->dw[i][n] - b->dw[at][n]));
        CHECK(far <= most, "%s: d%s differs by %g", b->desc.attn.variant,
              a->param[i]->name, far);
    }
}

/* A plain layer, and one of the variant with the same parameters; zero: one of them that
   becomes 0 everywhere. */
static void pair(ph_ctx *ctx, const char *variant, layer_bed *plain, layer_bed *other)
{
    ph_layer_desc d = describe("mha"), v = describe(variant);
    make(plain, ctx, &d);
    make(other, ctx, &v);
    layer_bed_copy(other, plain);
    run(plain);
}

static void done(layer_bed *a, layer_bed *b)
{
    layer_bed_free(a);
    layer_bed_free(b);
}

/* ---- entmax ------------------------------------------------------------------------ */

static void run_entmax(ph_ctx *ctx, float logit, layer_bed *plain, layer_bed *b)
{
    pair(ctx, "entmax", plain, b);
    set(b, "alpha_logit", logit);
    run(b);
    for (int h = 0; h < HEADS; h++)
        CHECK(fabs(gradient(b, "alpha_logit")[h]) < 0.01, "logit %g: %g", logit,
              gradient(b, "alpha_logit")[h]);
}

static void extrapolate(size_t count, float *near, const float *far)
{
    for (size_t i = 0; i < count; i++) near[i] = 2 * near[i] - far[i];
}

/* Where alpha is all but 1: as far from softmax as such an alpha is, not further. A
   weight is that of softmax times 1 - e t^2 / 2 + O(e^2), e = alpha - 1, t its logarithm:
   twice the results of e minus those of 2e are softmax but for O(e^2). */
static void entmax_near_softmax(void)
{
    static const float logits[] = {-9.5f, -15, -40, -200};
    ph_ctx *ctx = open_ctx();
    layer_bed plain, b, far;
    pair(ctx, "entmax:alpha=1.0000001", &plain, &b);
    run(&b);
    check_like(&plain, &b, 0);
    done(&plain, &b);
    for (int i = 0; i < 4; i++) {
        run_entmax(ctx, logits[i] + (float)log(2), &plain, &far);
        layer_bed_free(&plain);
        run_entmax(ctx, logits[i], &plain, &b);
        extrapolate(b.out_count, b.out, far.out);
        extrapolate(b.x_count, b.dx, far.dx);
        for (int n = 0; n < b.params; n++) extrapolate(b.count[n], b.dw[n], far.dw[n]);
        check_like(&plain, &b, 1e-4);
        done(&plain, &b);
        layer_bed_free(&far);
    }
    ph_close(ctx);
}

/* ---- mixture of heads -------------------------------------------------------------- */

static void moh_all_on(void)
{
    ph_ctx *ctx = open_ctx();
    layer_bed plain, b;
    pair(ctx, "moh:shared=1,top=3", &plain, &b);
    set(&b, "moh_wr", 0);
    set(&b, "moh_wh", 0);
    run(&b);
    check_like(&plain, &b, 0);
    done(&plain, &b);
    pair(ctx, "moh:shared=4", &plain, &b);
    set(&b, "moh_ws", 0);
    run(&b);
    check_like(&plain, &b, 0);
    done(&plain, &b);
    pair(ctx, "moh-norm:shared=4", &plain, &b);
    run(&b);
    check_like(&plain, &b, 0);
    done(&plain, &b);
    ph_close(ctx);
}

/* Equal scores choose the lowest heads: the others are as if wo had no rows for them. */
static void moh_ties(void)
{
    ph_ctx *ctx = open_ctx();
    layer_bed plain, b;
    float loss, gate[2 * HEADS * LEN];
    pair(ctx, "moh:shared=1,top=1", &plain, &b);
    set(&b, "moh_wr", 0);
    set(&b, "moh_wh", 0);
    b.args.balance_loss = &loss;
    b.args.gate_out = gate;
    run(&b);
    memset(numbers(&plain, "wo") + 2 * DIM * MODEL, 0, 2 * DIM * MODEL * sizeof(float));
    run(&plain);
    CHECK(!memcmp(plain.out, b.out, plain.out_count * sizeof(float)), "out differs");
    CHECK(!memcmp(plain.dx, b.dx, plain.x_count * sizeof(float)), "dx differs");
    for (int h = 0; h < HEADS; h++)
        CHECK(gate[h * LEN] == (h < 2), "gate of head %d is %g", h,
              (double)gate[h * LEN]);
    CHECK(fabs((double)loss - 1) < 1e-6, "loss is %g, expected top = 1", (double)loss);
    done(&plain, &b);
    ph_close(ctx);
}

static void moh_golden(void)
{
    ph_ctx *ctx = open_ctx();
    ph_layer_desc d = describe("moh:shared=1,top=1");
    const float wr[2] = {0.5f, -0.5f}, wh[2] = {0.2f, -0.2f};
    const double want[3] = {1.197375, 0.802625, 0};
    float loss, gate[3];
    layer_bed b;
    d.model_dim = 1, d.attn.batch = 1, d.attn.q_heads = 3;
    d.attn.q_len = d.attn.kv_len = 1;
    make(&b, ctx, &d);
    b.x[0] = 1;
    memcpy(numbers(&b, "moh_wr"), wr, sizeof wr);
    memcpy(numbers(&b, "moh_wh"), wh, sizeof wh);
    b.args.balance_loss = &loss;
    b.args.gate_out = gate;
    run(&b);
    for (int h = 0; h < 3; h++)
        CHECK(fabs((double)gate[h] - want[h]) < 1e-6, "gate %d is %g", h,
              (double)gate[h]);
    CHECK(fabs((double)loss - 1.462117) < 1e-6, "loss is %g", (double)loss);
    layer_bed_free(&b);
    ph_close(ctx);
}

/* All queries equally long, or 0: nothing divides by their deviation of 0. */
static void moh_norm_equal(void)
{
    ph_ctx *ctx = open_ctx();
    ph_layer_desc d = describe("moh-norm:shared=0,top=2");
    for (int zero = 0; zero < 2; zero++) {
        layer_bed b;
        make(&b, ctx, &d);
        float *wq = numbers(&b, "wq");
        for (int i = 0; i < MODEL * HEADS * DIM; i++)
            wq[i] = zero ? 0 : wq[i / (HEADS * DIM) * HEADS * DIM + i % DIM];
        set(&b, "bq", 0);
        b.args.balance = 1;
        run(&b);
        for (size_t i = 0; i < b.x_count; i++)
            CHECK(isfinite(b.dx[i]), "dx[%zu] is %g", i, (double)b.dx[i]);
        for (int i = 0; i < MODEL * HEADS * DIM; i++)
            CHECK(isfinite(gradient(&b, "wq")[i]), "dwq[%d]", i);
        layer_bed_free(&b);
    }
    ph_close(ctx);
}

/* ---- gates ------------------------------------------------------------------------- */

/* Logits of 0 halve everything, exactly. */
static void gated_half(void)
{
    static const char *const variants[] = {"gated:head", "gated:element"};
    ph_ctx *ctx = open_ctx();
    for (int v = 0; v < 2; v++) {
        layer_bed plain, b;
        pair(ctx, variants[v], &plain, &b);
        set(&plain, "bo", 0);
        set(&b, "bo", 0);
        set(&b, "w_gate", 0);
        run(&plain);
        run(&b);
        for (size_t i = 0; i < b.out_count; i++)
            CHECK(b.out[i] == plain.out[i] / 2, "%s: out[%zu] is %g of %g", variants[v],
                  i, (double)b.out[i], (double)plain.out[i]);
        done(&plain, &b);
    }
    ph_close(ctx);
}

/* ---- overlapping heads ------------------------------------------------------------- */

static void mohsa_none(void)
{
    ph_ctx *ctx = open_ctx();
    layer_bed plain, b;
    pair(ctx, "mohsa:overlap=0", &plain, &b);
    run(&b);
    check_like(&plain, &b, 0);
    done(&plain, &b);
    ph_close(ctx);
}

/* One head has no neighbours: only the middle rows of wo count, and the rows of the two
   outer pads never get a gradient. */
static void mohsa_alone(void)
{
    enum { OVERLAP = 3 };
    ph_ctx *ctx = open_ctx();
    ph_layer_desc d = describe("mha"), v = describe("mohsa:overlap=3");
    layer_bed plain, b;
    d.attn.q_heads = v.attn.q_heads = 1;
    make(&plain, ctx, &d);
    make(&b, ctx, &v);
    layer_bed_copy(&b, &plain);
    memcpy(numbers(&b, "wo") + OVERLAP * MODEL, numbers(&plain, "wo"),
           DIM * MODEL * sizeof(float));
    run(&plain);
    run(&b);
    check_like(&plain, &b, 1e-5);
    const float *dwo = gradient(&b, "wo");
    for (int i = 0; i < OVERLAP * MODEL; i++)
        CHECK(dwo[i] == 0 && dwo[(OVERLAP + DIM) * MODEL + i] == 0, "dwo of a pad");
    done(&plain, &b);
    ph_close(ctx);
}

/* ---- collaborative heads ----------------------------------------------------------- */

/* R = H*d and blocks of ones: plain heads, biases of q as content. */
static void collab_blocks(void)
{
    enum { SHARED = HEADS * DIM };
    ph_ctx *ctx = open_ctx();
    ph_layer_desc d = describe("mha"), v = describe("collab:content=1");
    layer_bed plain, b;
    v.attn.qk_dim = SHARED, v.attn.v_dim = DIM;
    v.attn.scale = (float)(1 / sqrt(DIM));
    make(&plain, ctx, &d);
    make(&b, ctx, &v);
    layer_bed_copy(&b, &plain);
    float *mix = numbers(&b, "mix"), *content = numbers(&b, "content");
    for (int i = 0; i < HEADS * SHARED; i++) mix[i] = i / SHARED == i % SHARED / DIM;
    for (int h = 0; h < HEADS; h++)
        for (int c = 0; c < MODEL; c++) {
            double sum = 0;
            for (int e = h * DIM; e < (h + 1) * DIM; e++)
                sum += (double)numbers(&plain, "bq")[e] *
                       numbers(&plain, "wk")[c * SHARED + e];
            content[h * MODEL + c] = (float)sum;
        }
    set(&b, "bq", 0);
    run(&plain);
    run(&b);
    double far = 0;
    for (size_t i = 0; i < b.out_count; i++)
        far = fmax(far, fabs((double)plain.out[i] - b.out[i]));
    CHECK(far < 1e-5, "out differs by %g", far);
    done(&plain, &b);
    ph_close(ctx);
}

/* ---- mixed heads ------------------------------------------------------------------- */

static void dcmha_zero(void)
{
    ph_ctx *ctx = open_ctx();
    layer_bed plain, b;
    pair(ctx, "dcmha:rank=2", &plain, &b);
    float *w2 = numbers(&b, "dc_w2");
    for (int i = 0; i < 4 * 4 * HEADS * 4 * HEADS; i++)
        if (i / HEADS % 4 >= 2) w2[i] = 0; /* w2 of both ranks */
    set(&b, "dc_wg", 0);
    set(&b, "dc_static", 0);
    run(&b);
    check_like(&plain, &b, 2e-5);
    done(&plain, &b);
    ph_close(ctx);
}

static void talking_to_itself(void)
{
    ph_ctx *ctx = open_ctx();
    layer_bed plain, b;
    pair(ctx, "talking", &plain, &b);
    for (int i = 0; i < HEADS * HEADS; i++)
        numbers(&b, "w_logits")[i] = numbers(&b, "w_weights")[i] = i / HEADS == i % HEADS;
    run(&b);
    check_like(&plain, &b, 2e-5);
    done(&plain, &b);
    ph_close(ctx);
}

/* Heads that change places before the softmax and go back after it. */
static void permuted_and_inverted(void)
{
    static const char *const variants[] = {"talking", "dcmha:rank=2"};
    ph_ctx *ctx = open_ctx();
    for (int n = 0; n < 2; n++) {
        layer_bed plain, b;
        pair(ctx, variants[n], &plain, &b);
        float *there = numbers(&b, n ? "dc_static" : "w_logits");
        float *back = n ? there + HEADS * HEADS : numbers(&b, "w_weights");
        for (int i = 0; i < HEADS * HEADS; i++) {
            int from = i / HEADS, to = i % HEADS, own = n && from == to; /* beside I */
            there[i] = (float)((to == (from + 1) % HEADS) - own);
            back[i] = (float)((from == (to + 1) % HEADS) - own);
        }
        if (n) set(&b, "dc_w2", 0), set(&b, "dc_wg", 0);
        run(&b);
        check_like(&plain, &b, 2e-5);
        done(&plain, &b);
    }
    ph_close(ctx);
}

/* With alpha = 1 a mixer is alone: bit for bit, gradients included. */
static void mixed_softmax(void)
{
    static const char *const pairs[][2] = {
        {"talking", "talking+entmax:alpha=1"},
        {"dcmha:rank=1", "entmax:alpha=1+dcmha:rank=1"}};
    ph_ctx *ctx = open_ctx();
    for (int n = 0; n < 2; n++) {
        ph_layer_desc d = describe(pairs[n][0]), e = describe(pairs[n][1]);
        layer_bed a, b;
        make(&a, ctx, &d);
        make(&b, ctx, &e);
        layer_bed_copy(&b, &a);
        run(&a);
        run(&b);
        check_like(&a, &b, 0);
        done(&a, &b);
    }
    ph_close(ctx);
}

/* ---- differential ------------------------------------------------------------------ */

/* Twins that look the same leave (1 - lambda) of a head; its norm forgets the factor. */
static void diff_twins(void)
{
    ph_ctx *ctx = open_ctx();
    layer_bed a, b;
    ph_layer_desc d = describe("diff:depth=0"), e = describe("diff:depth=0");
    make(&a, ctx, &d);
    make(&b, ctx, &e);
    layer_bed_copy(&b, &a);
    float *q = numbers(&a, "wq"), *k = numbers(&a, "wk");
    int row = HEADS * DIM;
    for (int i = 0; i < MODEL * row; i++)
        if (i % row / DIM % 2) q[i] = q[i - DIM], k[i] = k[i - DIM];
    for (int i = 0; i < row; i++)
        if (i / DIM % 2) {
            numbers(&a, "bq")[i] = numbers(&a, "bq")[i - DIM];
            numbers(&a, "bk")[i] = numbers(&a, "bk")[i - DIM];
        }
    layer_bed_copy(&b, &a);
    /* lambda 0.2 with zero vectors, 0.2 + e^-0.04 - 1 with these */
    const char *const zero[] = {"lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2"};
    for (int i = 0; i < 4; i++) set(&a, zero[i], 0), set(&b, zero[i], 0);
    numbers(&b, "lambda_q1")[0] = 0.2f, numbers(&b, "lambda_k1")[0] = -0.2f;
    run(&a);
    run(&b);
    double far = 0;
    for (size_t i = 0; i < a.out_count; i++)
        far = fmax(far, fabs((double)a.out[i] - b.out[i]));
    CHECK(far < 1e-4, "out differs by %g", far); /* eps of the norm is left */
    done(&a, &b);
    ph_close(ctx);
}

/* ---- norms ------------------------------------------------------------------------- */

/* One head is the whole; gains of 1 + 0 and no gains are the same. */
static void norm_kinds(void)
{
    ph_ctx *ctx = open_ctx();
    ph_layer_desc d = describe("mha");
    layer_bed a, b;
    d.attn.q_heads = 1, d.qk_norm = PH_QK_NORM_HEAD;
    make(&a, ctx, &d);
    d.qk_norm = PH_QK_NORM_WHOLE;
    make(&b, ctx, &d);
    layer_bed_copy(&b, &a);
    run(&a);
    run(&b);
    check_like(&a, &b, 0);
    done(&a, &b);
    d = describe("mha");
    d.qk_norm = PH_QK_NORM_HEAD;
    make(&a, ctx, &d);
    d.norm_plus_one = 1;
    make(&b, ctx, &d);
    layer_bed_copy(&b, &a);
    a.weights.q_norm = a.weights.k_norm = NULL;
    a.grads.dq_norm = a.grads.dk_norm = NULL;
    set(&b, "q_norm", 0);
    set(&b, "k_norm", 0);
    run(&a);
    run(&b);
    CHECK(!memcmp(a.out, b.out, a.out_count * sizeof(float)), "out differs");
    CHECK(!memcmp(a.dx, b.dx, a.x_count * sizeof(float)), "dx differs");
    done(&a, &b);
    ph_close(ctx);
}

/* ---- positions --------------------------------------------------------------------- */

/* The score of one key under one query at `past`, pairs rotated by hand. */
static float score(ph_ctx *ctx, float factor, int past, int dims)
{
    ph_layer_desc d = describe("mha");
    layer_bed b;
    int32_t at[2] = {past, past};
    d.memory_dim = MODEL, d.attn.q_len = d.attn.kv_len = 1, d.attn.mask = PH_MASK_NONE;
    d.rope = PH_ROPE_HALF, d.rope_dims = dims;
    d.rope_scaling = factor > 0 ? PH_ROPE_YARN : PH_ROPE_UNSCALED;
    d.rope_factor = factor, d.rope_length = 2;
    make(&b, ctx, &d);
    b.args.past = at;
    run(&b);
    float lse = b.lse[0];
    layer_bed_free(&b);
    return lse;
}

/* Position 0 is not rotated, but scores grow by the square of 0.1 ln 4 + 1. */
static void yarn(void)
{
    ph_ctx *ctx = open_ctx();
    double grown = 0.1 * log(4) + 1;
    double plain = score(ctx, 0, 0, 0), long_text = score(ctx, 4, 0, 0);
    CHECK(fabs(long_text - grown * grown * plain) < 1e-5, "%g is not %g of %g", long_text,
          grown * grown, plain);
    CHECK(score(ctx, 1, 2, 0) == score(ctx, 0, 2, 0), "a factor of 1 changes the score");
    ph_close(ctx);
}

static void partial_rope(void)
{
    ph_ctx *ctx = open_ctx();
    CHECK(score(ctx, 0, 0, 2) == score(ctx, 0, 0, DIM), "position 0 is rotated");
    CHECK(score(ctx, 0, 3, 2) != score(ctx, 0, 3, DIM), "two dims rotate like four");
    ph_close(ctx);
}

/* ---- helpers ----------------------------------------------------------------------- */

/* Extra parameters of ViT-Tiny and CaiT-xxs24 (spec mohsa, section 6). */
static void overlaps(void)
{
    const struct {
        int layers, heads, dim, schedule;
        long want;
    } list[] = {{12, 12, 192, 0, 304128},
                {12, 12, 192, PH_OVERLAP_PLUS_ONE, 359424},
                {12, 12, 192, PH_OVERLAP_HALF, 138240},
                {12, 12, 192, PH_OVERLAP_HALF + PH_OVERLAP_PLUS_ONE, 193536},
                {12, 12, 192, PH_OVERLAP_REVERSE, 304128},
                {12, 12, 192, PH_OVERLAP_REVERSE + PH_OVERLAP_PLUS_ONE, 359424},
                {24, 4, 192, PH_OVERLAP_HALF, 202752},
                {24, 4, 192, PH_OVERLAP_PLUS_ONE, 460800}};
    for (size_t n = 0; n < sizeof list / sizeof list[0]; n++) {
        long sum = 0;
        for (int l = 0; l < list[n].layers; l++)
            sum += 2L * ph_mohsa_overlap(list[n].schedule, l, list[n].layers) *
                   list[n].heads * list[n].dim;
        CHECK(sum == list[n].want, "schedule %d: %ld, expected %ld", list[n].schedule,
              sum, list[n].want);
    }
    CHECK(ph_mohsa_overlap(PH_OVERLAP_REVERSE, 0, 5) == 4, "reverse starts at %d",
          ph_mohsa_overlap(PH_OVERLAP_REVERSE, 0, 5));
}

static void alibi_slopes(void)
{
    const float twelve[] = {0.707107f, 0.353553f, 0.176777f, 0.088388f};
    float s[12];
    ph_alibi_slopes(8, s);
    CHECK(s[0] == 0.5f && s[7] == 1 / 256.0f, "8 heads");
    ph_alibi_slopes(6, s);
    CHECK(s[0] == 0.25f && s[3] == 1 / 256.0f && s[4] == 0.5f && s[5] == 0.125f, "6");
    ph_alibi_slopes(12, s);
    for (int i = 0; i < 4; i++)
        CHECK(fabs((double)s[8 + i] - twelve[i]) < 1e-6, "slope %d of 12", 8 + i);
}

static void depth_bounds(void)
{
    float one = ph_depth_bound(10, 14, 1, 1, 0.5f);
    CHECK(one == 0.5f, "Xavier's bound is %g", (double)one);
    CHECK(fabs(ph_depth_bound(10, 14, 6, 1, 0.5f) / 0.5 - 0.408) < 5e-4, "paper");
    CHECK(fabs(ph_depth_bound(10, 14, 30, 1, 0.25f) / 0.5 - 0.427) < 5e-4, "code");
}

static const check_case cases[] = {{"entmax_near_softmax", entmax_near_softmax},
                                   {"moh_all_on", moh_all_on},
                                   {"moh_ties", moh_ties},
                                   {"moh_golden", moh_golden},
                                   {"moh_norm_equal", moh_norm_equal},
                                   {"gated_half", gated_half},
                                   {"mohsa_none", mohsa_none},
                                   {"mohsa_alone", mohsa_alone},
                                   {"collab_blocks", collab_blocks},
                                   {"dcmha_zero", dcmha_zero},
                                   {"talking_to_itself", talking_to_itself},
                                   {"permuted_and_inverted", permuted_and_inverted},
                                   {"mixed_softmax", mixed_softmax},
                                   {"diff_twins", diff_twins},
                                   {"norm_kinds", norm_kinds},
                                   {"yarn", yarn},
                                   {"partial_rope", partial_rope},
                                   {"overlaps", overlaps},
                                   {"depth_bounds", depth_bounds},
                                   {"alibi_slopes", alibi_slopes},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
