/*
 * test_masked_variants.c - masked means never read where heads are mixed or rows are not
 * softmax: NaN, Inf, and numbers so large that their products overflow, in keys that no
 * row sees, change no bit of any output or gradient. Every instruction set.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "polyhead.h"

enum { HEADS = 3, ROWS = 21, KEYS = 150, DIM = 10, EXTRAS = 16 };

typedef struct inputs {
    float q[HEADS * ROWS * DIM], k[HEADS * KEYS * DIM], v[HEADS * KEYS * DIM];
    float dout[HEADS * ROWS * DIM], *extra[EXTRAS];
    uint8_t visible[KEYS];
} inputs;

typedef struct results {
    float out[HEADS * ROWS * DIM], lse[HEADS * ROWS], dq[HEADS * ROWS * DIM];
    float dk[HEADS * KEYS * DIM], dv[HEADS * KEYS * DIM], *dextra[EXTRAS];
} results;

static uint64_t state;

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(state >> 40) / (1 << 24) * 2 - 1;
    }
}

static size_t extra_size(const ph_plan *plan, int i)
{
    const ph_param *param = i < EXTRAS ? ph_plan_extra(plan, i) : NULL;
    return param ? ph_param_size(param) : 0;
}

static void make_inputs(const ph_plan *plan, inputs *in)
{
    state = check_seed;
    fill(in->q, sizeof in->q / 4), fill(in->k, sizeof in->k / 4);
    fill(in->v, sizeof in->v / 4), fill(in->dout, sizeof in->dout / 4);
    for (int j = 0; j < KEYS; j++) in->visible[j] = j % 7 != 3;
    for (int i = 0; extra_size(plan, i); i++) {
        in->extra[i] = calloc(extra_size(plan, i), sizeof(float));
        fill(in->extra[i], extra_size(plan, i));
    }
}

static int run(ph_ctx *ctx, const ph_plan *plan, const inputs *in, results *to)
{
    ph_args args = {.q = in->q,
                    .k = in->k,
                    .v = in->v,
                    .out = to->out,
                    .lse = to->lse,
                    .visible = in->visible,
                    .extra = (const float *const *)in->extra};
    ph_grads grads = {
        .dout = in->dout, .dq = to->dq, .dk = to->dk, .dv = to->dv, .dextra = to->dextra};
    for (int i = 0; extra_size(plan, i); i++)
        to->dextra[i] = calloc(extra_size(plan, i), sizeof(float));
    ph_status status = ph_forward(plan, &args);
    if (status == PH_OK) status = ph_backward(plan, &args, &grads);
    CHECK(status == PH_OK, "%s", ph_error(ctx));
    return status == PH_OK;
}

static void compare(const ph_plan *plan, const char *what, double value, const results *x,
                    const results *y)
{
#define SAME(field)                                                                      \
    CHECK(!memcmp(x->field, y->field, sizeof x->field), "%s: %g changes " #field, what,  \
          value)
    SAME(out);
    SAME(lse);
    SAME(dq);
    SAME(dk);
    SAME(dv);
#undef SAME
    for (int i = 0; extra_size(plan, i); i++)
        CHECK(!memcmp(x->dextra[i], y->dextra[i], extra_size(plan, i) * sizeof(float)),
              "%s: %g changes d%s", what, value, ph_plan_extra(plan, i)->name);
}

static void put_masked(inputs *in, float value, int keys, int values)
{
    for (int at = 0; at < HEADS * KEYS * DIM; at++) {
        if (in->visible[at / DIM % KEYS]) continue;
        if (keys) in->k[at] = value;
        if (values) in->v[at] = value;
    }
}

static void free_all(float **x)
{
    for (int i = 0; i < EXTRAS; i++) free(x[i]);
}

static void one_variant(ph_ctx *ctx, const char *variant)
{
    static const float values[] = {NAN, INFINITY, -INFINITY, 3e38f};
    ph_attn a = {.batch = 1, .q_heads = HEADS, .q_len = ROWS, .kv_len = KEYS};
    a.qk_dim = DIM, a.variant = variant, a.backward = 1;
    a.visible = (ph_broadcast){1, 1, 1};
    ph_plan *plan = NULL;
    CHECK(ph_plan_create(&plan, ctx, &a) == PH_OK, "%s", ph_error(ctx));
    if (!plan) return;
    for (int n = 0; n < 4 * 3; n++) {
        static inputs in;
        static results clean, masked;
        make_inputs(plan, &in);
        int ran = run(ctx, plan, &in, &clean);
        put_masked(&in, values[n / 3], n % 3 != 1, n % 3 != 0);
        if (run(ctx, plan, &in, &masked) && ran)
            compare(plan, variant, (double)values[n / 3], &clean, &masked);
        free_all(in.extra), free_all(clean.dextra), free_all(masked.dextra);
        memset(in.extra, 0, sizeof in.extra);
        memset(clean.dextra, 0, sizeof clean.dextra);
        memset(masked.dextra, 0, sizeof masked.dextra);
    }
    ph_plan_free(plan);
}

static void hidden_keys(void)
{
    static const char *const variants[] = {
        "mha",     "entmax:alpha=1.5",         "sparsemax",
        "talking", "talking+entmax:alpha=1.3", "dcmha:rank=2,side=q"};
    for (const char *const *isa = ph_isa_list(); *isa; isa++) {
        ph_ctx *ctx;
        CHECK(ph_open(&ctx, &(ph_options){.isa = *isa, .threads = 2}) == PH_OK, "no ctx");
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
            one_variant(ctx, variants[v]);
        ph_close(ctx);
    }
}

int main(int argc, char **argv)
{
    static const check_case cases[] = {{"hidden_keys", hidden_keys}, {0, 0}};
    return check_main(argc, argv, cases);
}
