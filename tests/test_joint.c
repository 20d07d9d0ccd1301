/*
 * test_joint.c - memory of mixed heads and entmax: bounded at any number of keys, and how
 * the work is cut for that changes no bit of any result.
 */
#include <math.h>
#include <string.h>

#include "attn/plan.h"
#include "judge.h"
#include "variant_direct.h"
#include "variant_sweep.h"

enum { VARIANTS = 5, PROBLEMS = 8 };

static const char *const variants[VARIANTS] = {"talking", "dcmha", "entmax", "sparsemax",
                                               "dcmha+entmax"};

/* ---- bytes ------------------------------------------------------------------------- */

static const double MB = 1 << 20;

/* What attn/joint.h says, at 32 heads of 128: packed keys, held joint blocks, and for
   each thread the blocks of 128 keys and 96 rows of all heads. */
static double bound(const ph_attn *a, int threads)
{
    double per_row = 3.0 * sizeof(float) * a->batch * a->q_heads * a->q_len;
    double held = a->backward ? fmax(256, 24 * threads) : fmax(64, 6 * threads);
    return (288 + held + 18 * threads) * MB + per_row;
}

static size_t workspace(const ph_attn *a, int threads)
{
    ph_plan *plan;
    ph_options o = {.threads = threads};
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &o) == PH_OK, "no context");
    CHECK(ph_plan_create(&plan, ctx, a) == PH_OK, "%s: %s", a->variant, ph_error(ctx));
    size_t bytes = ph_plan_workspace(plan);
    ph_plan_free(plan);
    ph_close(ctx);
    return bytes;
}

static ph_attn describe(const char *variant, int q_len, int kv_len, int backward)
{
    return (ph_attn){.batch = 2,
                     .q_heads = 32,
                     .k_heads = 32,
                     .v_heads = 32,
                     .q_len = q_len,
                     .kv_len = kv_len,
                     .qk_dim = 128,
                     .v_dim = 128,
                     .variant = variant,
                     .backward = backward};
}

static const char *const bounded[] = {"talking",   "dcmha:rank=2",   "entmax:alpha=1.5",
                                      "sparsemax", "talking+entmax", "dcmha+sparsemax"};

static void memory_is_bounded(void)
{
    static const int threads[] = {1, 2, 8, 16}, keys[] = {2048, 8192, 20000, 131072};
    for (int n = 0; n < 6 * 4 * 4 * 2; n++) {
        int t = threads[n / 6 % 4], q_len = n % 2 ? 1024 : 4096;
        for (int backward = 0; backward < 2; backward++) {
            ph_attn a = describe(bounded[n % 6], q_len, keys[n / 24 % 4], backward);
            double bytes = (double)workspace(&a, t);
            CHECK(bytes <= bound(&a, t), "%s, %d keys, %d threads%s: %.0f MB of %.0f",
                  a.variant, a.kv_len, t, backward ? ", backward" : "", bytes / MB,
                  bound(&a, t) / MB);
        }
    }
}

/* From the length on where nothing is packed or held beforehand, more keys take no more
   memory, except for the single row of all heads. */
static void long_keys_take_no_more(void)
{
    for (int v = 0; v < 6; v++)
        for (int t = 1; t <= 16; t *= 2) {
            ph_attn a = describe(bounded[v], 1024, 65536, 1);
            ph_attn b = describe(bounded[v], 1024, 131072, 1);
            double less = (double)workspace(&a, t), more = (double)workspace(&b, t);
            CHECK(more <= less + t * 2 * MB, "%s, %d threads: %.0f MB, then %.0f",
                  bounded[v], t, less / MB, more / MB);
        }
}

/* ---- bits -------------------------------------------------------------------------- */

static int threads_share, packed, recomputed; /* how plans are cut */
static int long_plans;                        /* cut plans with several blocks of keys */

static void cut(ph_plan *plan)
{
    ph_joint_plan *j = &plan->joint;
    if (!ph_plan_is_joint(plan)) return; /* alpha = 1 runs as softmax */
    long_plans += j->blocks > 1 && plan->attn.backward;
    j->together = threads_share && j->blocks > 1;
    j->wave = packed;
    j->grad_wave = plan->attn.backward ? packed : 0;
    j->grad_blocks = recomputed ? 1 : j->blocks;
    ph_joint_forward_measure(plan);
    ph_joint_look_measure(plan);
    if (plan->attn.backward) ph_joint_backward_measure(plan);
}

static ph_file *drive(const variant_case *c, const char **why)
{
    return variant_direct(drive_ctx(NULL, 1 + (int)(c->random % 2)), c,
                          trial_path("out.safetensors"), why);
}

static void same_bits(const variant_case *c, const ph_file *a, const ph_file *b)
{
    const ph_tensor *t, *u;
    for (size_t i = 0; (t = ph_file_tensor(a, i)) != NULL; i++) {
        u = ph_file_tensor(b, i);
        CHECK(u && t->bytes == u->bytes && !memcmp(t->data, u->data, t->bytes),
              "%s, %s: other bits with threads_share %d, packed %d, recomputed %d",
              variant_text(c), t->name, threads_share, packed, recomputed);
    }
}

static void try_cuts(const variant_case *c, const ph_file *expected)
{
    variant_direct_change = cut;
    for (int how = 0; how < 12; how++) {
        const char *why;
        threads_share = how & 1, recomputed = how >> 1 & 1, packed = how >> 2;
        ph_file *out = drive(c, &why);
        CHECK(out, "%s: %s", variant_text(c), why);
        same_bits(c, expected, out);
        ph_file_free(out);
    }
    variant_direct_change = NULL;
}

/* At least PROBLEMS of each variant, and until one had several blocks of keys. */
static void cuts_change_no_bit(void)
{
    const int most = 10 * VARIANTS * PROBLEMS;
    for (int n = 0; n < VARIANTS * PROBLEMS || (!long_plans && n < most); n++) {
        variant_case c;
        const char *why;
        variant_draw(&c, variants[n % VARIANTS], 0, check_seed, n / VARIANTS);
        ph_file *out = drive(&c, &why);
        CHECK(out, "%s: %s", variant_text(&c), why);
        try_cuts(&c, out);
        ph_file_free(out);
        variant_case_free(&c);
    }
    CHECK(long_plans > 0, "no problem has several blocks of keys");
}

/* The cut that takes least memory, against the oracle. */
static void least_memory_is_right(void)
{
    threads_share = recomputed = 1, packed = 0;
    variant_direct_change = cut;
    for (int v = 0; v < VARIANTS; v++) sweep(drive, variants[v], 0);
    variant_direct_change = NULL;
}

/* A NaN that is seen reaches out and lse, as it does with the softmax. */
static void seen_nan(void)
{
    static const char *const sparse[] = {"entmax", "sparsemax", "entmax:alpha=1.2"};
    const float q[2] = {1, 2}, v[6] = {1, 2, 3, 4, 5, 6}, k[6] = {1, 0, NAN, 1, 0, 2};
    float out[2], lse;
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, NULL) == PH_OK, "no ctx");
    for (int i = 0; i < 3; i++) {
        const ph_attn attn = {.batch = 1,
                              .q_heads = 1,
                              .q_len = 1,
                              .kv_len = 3,
                              .qk_dim = 2,
                              .variant = sparse[i]};
        const ph_args args = {.q = q, .k = k, .v = v, .out = out, .lse = &lse};
        ph_plan *plan;
        CHECK(ph_plan_create(&plan, ctx, &attn) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_forward(plan, &args) == PH_OK, "%s", ph_error(ctx));
        CHECK(isnan(lse) && isnan(out[0]) && isnan(out[1]), "%s: lse %g, out %g %g",
              sparse[i], (double)lse, (double)out[0], (double)out[1]);
        ph_plan_free(plan);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"seen_nan", seen_nan},
                                   {"memory_is_bounded", memory_is_bounded},
                                   {"long_keys_take_no_more", long_keys_take_no_more},
                                   {"cuts_change_no_bit", cuts_change_no_bit},
                                   {"least_memory_is_right", least_memory_is_right},
                                   {0, 0}};

int main(int argc, char **argv)
{
    int status = sweep_main(argc, argv, cases);
    drive_close();
    return status;
}
