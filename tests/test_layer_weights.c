/*
 * test_layer_weights.c - layers whose matrices are stored as f16, bf16 or in blocks, in
 * every form, against the same values stored as f32, (in, columns): same bits of
 * out, of a cache filled token by token, and of all gradients.
 *
 * Every matrix ends at an unmapped page, so a read beyond its last block is a fault.
 */
#include "base/half.h"
#include "base/quant.h"
#include "check.h"
#include "guard.h"
#include "layer_bed.h"
#include "stored_copy.h"

static const char *const names[] = {"wq", "wk", "wv", "wo"};

/* ---- two layers with the same values ----------------------------------------------- */

typedef struct pair {
    layer_bed plain, stored;
    ph_form form[4];
    int rows[4], heads[4], dim[4]; /* of the matrices, (rows, heads*dim) */
} pair;

/* Where element (i, column) lies in a form. */
static size_t place(const pair *p, int w, int i, int column)
{
    size_t rows = (size_t)p->rows[w], dim = (size_t)p->dim[w], c = (size_t)column;
    size_t columns = (size_t)p->heads[w] * dim, row = (size_t)i;
    if (p->form[w] == PH_FORM_LINEAR) return c * rows + row;
    if (p->form[w] == PH_FORM_WHOLE) return row * columns + c;
    return (c / dim * rows + row) * dim + c % dim;
}

static void measure(pair *p)
{
    const ph_layer_desc *d = &p->stored.desc;
    for (int w = 0; w < 4; w++) {
        int at = layer_bed_find(&p->plain, names[w]);
        if (at < 0) continue;
        p->rows[w] = p->plain.param[at]->dims[0];
        p->dim[w] = p->plain.param[at]->dims[1], p->heads[w] = 1;
    }
    p->form[0] = d->q_form, p->form[1] = d->k_form, p->form[2] = d->v_form;
    p->form[3] = d->o_form;
    for (int w = 0; w < 3; w++) {
        int at = layer_bed_find(&p->stored, names[w]);
        if (at < 0 || p->form[w] != PH_FORM_HEADS) continue;
        p->heads[w] = p->stored.param[at]->dims[0];
        p->dim[w] = p->stored.param[at]->dims[2];
    }
}

static ph_dtype type_of(const ph_layer_desc *d, int w)
{
    const ph_dtype types[] = {d->wq_dtype, d->wk_dtype, d->wv_dtype, d->wo_dtype};
    return types[w];
}

/* The stored layer gets the matrices of the plain one in its types and forms; the plain
   one then gets what these hold. */
static void copy_matrices(pair *p)
{
    const void **fields[] = {&p->stored.weights.wq, &p->stored.weights.wk,
                             &p->stored.weights.wv, &p->stored.weights.wo};
    for (int w = 0; w < 4; w++) {
        int from = layer_bed_find(&p->plain, names[w]);
        int to = layer_bed_find(&p->stored, names[w]);
        ph_dtype type = type_of(&p->stored.desc, w);
        if (to < 0) continue;
        float *x = p->plain.w[from], *y = p->stored.w[to];
        int columns = p->heads[w] * p->dim[w];
        for (int i = 0; i < p->rows[w]; i++)
            for (int c = 0; c < columns; c++) y[place(p, w, i, c)] = x[i * columns + c];
        void *data = stored_copy(y, p->stored.count[to], type);
        for (int i = 0; i < p->rows[w]; i++)
            for (int c = 0; c < columns; c++)
                x[i * columns + c] = ph_element(data, type, (int64_t)place(p, w, i, c));
        guard_free(y);
        p->stored.w[to] = data, *fields[w] = data;
    }
}

static ph_status pair_make(pair *p, ph_ctx *ctx, const ph_layer_desc *stored,
                           uint64_t seed)
{
    ph_layer_desc plain = *stored;
    memset(p, 0, sizeof *p);
    plain.q_form = plain.k_form = plain.v_form = plain.o_form = PH_FORM_WHOLE;
    plain.wq_dtype = plain.wk_dtype = plain.wv_dtype = plain.wo_dtype = PH_F32;
    ph_status status = layer_bed_make(&p->stored, ctx, stored, seed);
    if (status != PH_OK) return status;
    CHECK(layer_bed_make(&p->plain, ctx, &plain, seed) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < p->plain.params; i++) /* vectors and the variant's own */
        if (p->plain.count[i] == p->stored.count[i])
            memcpy(p->stored.w[i], p->plain.w[i], p->plain.count[i] * sizeof(float));
    memcpy(p->stored.x, p->plain.x, p->plain.x_count * sizeof(float));
    memcpy(p->stored.memory, p->plain.memory, p->plain.memory_count * sizeof(float));
    memcpy(p->stored.dout, p->plain.dout, p->plain.out_count * sizeof(float));
    measure(p);
    copy_matrices(p);
    return PH_OK;
}

static void pair_free(pair *p)
{
    layer_bed_free(&p->plain);
    layer_bed_free(&p->stored);
}

static void compare_gradients(const pair *p, const char *what)
{
    for (int i = 0; i < p->plain.params; i++) {
        const float *a = p->plain.dw[i], *b = p->stored.dw[i];
        int w = 0;
        while (w < 4 && strcmp(names[w], p->plain.param[i]->name)) w++;
        int columns = w < 4 ? p->heads[w] * p->dim[w] : 1;
        for (size_t e = 0; e < p->plain.count[i]; e++) {
            size_t at = w < 4 ? place(p, w, (int)e / columns, (int)e % columns) : e;
            CHECK(ph_bits(a[e]) == ph_bits(b[at]), "%s: d%s[%zu] is %g, not %g", what,
                  p->plain.param[i]->name, e, (double)b[at], (double)a[e]);
        }
    }
}

static void check_pair(pair *p, const char *what)
{
    CHECK(layer_bed_run(&p->plain) == PH_OK, "%s: %s", what, ph_error(p->plain.ctx));
    CHECK(layer_bed_run(&p->stored) == PH_OK, "%s: %s", what, ph_error(p->plain.ctx));
    CHECK(!memcmp(p->plain.out, p->stored.out, p->plain.out_count * sizeof(float)),
          "%s: out differs", what);
    if (!p->plain.desc.attn.backward) return;
    CHECK(!memcmp(p->plain.dx, p->stored.dx, p->plain.x_count * sizeof(float)),
          "%s: dx differs", what);
    compare_gradients(p, what);
}

/* ---- random layers ----------------------------------------------------------------- */

/* Any type that fits; rows of a head are too short for K types. */
static ph_dtype draw_type(uint64_t *r, int backward, int wide, ph_form form)
{
    ph_dtype last = wide && form != PH_FORM_HEADS ? PH_Q6_K : PH_Q4_1;
    return (ph_dtype)check_below(r, (int)(backward ? PH_BF16 : last) + 1);
}

static ph_layer_desc draw(uint64_t *r, const char *variant, int backward)
{
    static const ph_form forms[] = {PH_FORM_WHOLE, PH_FORM_HEADS, PH_FORM_LINEAR};
    int wide = check_below(r, 2); /* rows of 256, for K types */
    ph_layer_desc d = {.model_dim = wide ? 256 : 32 * (1 + check_below(r, 3)),
                       .rope = PH_ROPE_HALF};
    d.attn = (ph_attn){.batch = 1 + check_below(r, 2),
                       .q_heads = 4,
                       .qk_dim = wide ? 64 : 32,
                       .q_len = 1 + check_below(r, 20),
                       .mask = PH_MASK_CAUSAL,
                       .variant = variant,
                       .backward = backward};
    d.attn.kv_len = d.attn.q_len;
    d.q_form = forms[check_below(r, 3)], d.k_form = forms[check_below(r, 3)];
    d.v_form = forms[check_below(r, 3)], d.o_form = forms[2 * check_below(r, 2)];
    d.wq_dtype = draw_type(r, backward, wide, d.q_form);
    d.wk_dtype = draw_type(r, backward, wide, d.k_form);
    d.wv_dtype = draw_type(r, backward, wide, d.v_form);
    d.wo_dtype = draw_type(r, backward, wide, d.o_form);
    if (!strncmp(variant, "merged", 6)) {
        d.memory_dim = d.model_dim;
        d.attn.mask = PH_MASK_NONE, d.rope = PH_ROPE_NONE;
    }
    if (!strncmp(variant, "mla", 3)) { /* has no wk and wv */
        d.k_form = d.v_form = PH_FORM_WHOLE, d.wk_dtype = d.wv_dtype = PH_F32;
        d.rope = PH_ROPE_NONE;
    }
    return d;
}

static const char *const variants[] = {"mha",
                                       "mha",
                                       "diff",
                                       "talking",
                                       "entmax",
                                       "gated:head",
                                       "moh:shared=1,top=1",
                                       "moh-norm:shared=1,top=2",
                                       "merged",
                                       "mohsa",
                                       "dcmha"};

static void each_isa(void (*body)(ph_ctx *ctx, uint64_t *r))
{
    static const char *const isas[] = {"ref", "avx2", "avx512", "neon", NULL};
    for (int i = 0; i < 5; i++) {
        ph_options o = guard_options(isas[i], 1 + i % 2);
        ph_ctx *ctx;
        uint64_t r = check_seed + (uint64_t)i;
        if (ph_open(&ctx, &o) != PH_OK) continue;
        body(ctx, &r);
        ph_close(ctx);
    }
}

static void run_drawn(ph_ctx *ctx, uint64_t *r, int backward)
{
    enum { VARIANTS = sizeof variants / sizeof variants[0] };
    for (int i = 0; i < 2 * VARIANTS; i++) {
        const char *variant = variants[i % VARIANTS];
        ph_layer_desc d = draw(r, variant, backward);
        char what[200];
        pair p;
        snprintf(what, sizeof what, "%s, forms %d%d%d%d of %d%d%d%d, %d tokens of %d",
                 variant, (int)d.q_form, (int)d.k_form, (int)d.v_form, (int)d.o_form,
                 (int)d.wq_dtype, (int)d.wk_dtype, (int)d.wv_dtype, (int)d.wo_dtype,
                 d.attn.q_len, d.model_dim);
        CHECK(pair_make(&p, ctx, &d, *r) == PH_OK, "%s: %s", what, ph_error(ctx));
        check_pair(&p, what);
        pair_free(&p);
    }
}

static void forward_body(ph_ctx *ctx, uint64_t *r)
{
    run_drawn(ctx, r, 0);
}

static void backward_body(ph_ctx *ctx, uint64_t *r)
{
    run_drawn(ctx, r, 1);
}

static void forward(void)
{
    each_isa(forward_body);
}

static void backward(void)
{
    each_isa(backward_body);
}

/* Token by token with a cache: the bits of the whole prompt, in every type and form. */
static void decode_body(ph_ctx *ctx, uint64_t *r)
{
    for (int i = 0; i < 12; i++) {
        ph_layer_desc d = draw(r, "mha", 0), one;
        pair whole;
        d.attn.batch = 1, d.attn.q_len = d.attn.kv_len = 6, d.cache = 1;
        CHECK(pair_make(&whole, ctx, &d, *r) == PH_OK, "%s", ph_error(ctx));
        layer_bed *b = &whole.stored;
        CHECK(layer_bed_run(b) == PH_OK, "%s", ph_error(ctx));
        one = d, one.attn.q_len = 1;
        ph_layer *step;
        CHECK(ph_layer_create(&step, ctx, &one) == PH_OK, "%s", ph_error(ctx));
        ph_layer_args args = b->args;
        float *out = guard_alloc((size_t)d.model_dim * sizeof *out);
        for (int32_t t = 0; t < d.attn.q_len; t++) {
            args.x = b->x + t * d.model_dim, args.out = out, args.past = &t;
            args.attn.lse = NULL;
            CHECK(ph_layer_forward(step, &b->weights, &args) == PH_OK, "%s",
                  ph_error(ctx));
            CHECK(!memcmp(out, b->out + t * d.model_dim,
                          (size_t)d.model_dim * sizeof *out),
                  "token %d alone differs, types %d%d%d%d forms %d%d%d%d", (int)t,
                  (int)d.wq_dtype, (int)d.wk_dtype, (int)d.wv_dtype, (int)d.wo_dtype,
                  (int)d.q_form, (int)d.k_form, (int)d.v_form, (int)d.o_form);
        }
        guard_free(out);
        ph_layer_free(step);
        pair_free(&whole);
    }
}

static void decode(void)
{
    each_isa(decode_body);
}

/* ---- refusals ---------------------------------------------------------------------- */

static void refused(void)
{
    ph_ctx *ctx;
    ph_options o = guard_options(NULL, 1);
    uint64_t r = check_seed;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no ctx");
    const struct {
        const char *variant, *text;
        ph_dtype wq;
        int model_dim, qk_dim, backward;
        ph_form q_form, o_form;
    } all[] = {
        {"mha", "wq_dtype is", PH_F64, 64, 32, 0, 0, 0},
        {"mha", "wq_dtype is", (ph_dtype)-1, 64, 32, 0, 0, 0},
        {"mha", "rows of 40 elements", PH_Q8_0, 40, 32, 0, PH_FORM_LINEAR, 0},
        {"mha", "rows of 8 elements", PH_Q4_0, 64, 8, 0, PH_FORM_HEADS, 0},
        {"mha", "rows of 12 elements", PH_Q4_1, 64, 3, 0, 0, 0},
        {"mha", "rows of 64 elements, expected a multiple of 256", PH_Q4_K, 64, 64, 0,
         PH_FORM_LINEAR, 0},
        {"mha", "rows of 64 elements, expected a multiple of 256", PH_Q6_K, 256, 64, 0,
         PH_FORM_HEADS, 0},
        {"mha", "attn.backward is 1", PH_Q5_K, 256, 64, 1, PH_FORM_LINEAR, 0},
        {"mha", "attn.backward is 1", PH_Q8_0, 64, 32, 1, 0, 0},
        {"mha", "q_form is 3", PH_F32, 64, 32, 0, (ph_form)3, 0},
        {"mha", "o_form is 1", PH_F32, 64, 32, 0, 0, PH_FORM_HEADS},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_layer_desc d = draw(&r, all[i].variant, all[i].backward);
        ph_layer *layer;
        d.k_form = d.v_form = PH_FORM_WHOLE, d.rope = PH_ROPE_NONE;
        d.wk_dtype = d.wv_dtype = d.wo_dtype = PH_F32;
        d.wq_dtype = all[i].wq, d.model_dim = all[i].model_dim;
        d.attn.qk_dim = all[i].qk_dim;
        d.q_form = all[i].q_form, d.o_form = all[i].o_form;
        ph_status status = ph_layer_create(&layer, ctx, &d);
        CHECK(status != PH_OK && !layer && strstr(ph_error(ctx), all[i].text),
              "case %zu: \"%s\", expected \"%s\"", i, ph_error(ctx), all[i].text);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"forward", forward},
                                   {"backward", backward},
                                   {"decode", decode},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
