/*
 * test_run_layer_numbers.c - numbers of `polyhead run` in layer mode, against plain loops
 * in double (layer_loops.h).
 *
 * Gradients are judged by central differences of the same loops, so a gradient has no
 * formula here that could be wrong in the same way.
 */
#include <math.h>

#include "check.h"
#include "layer_loops.h"

enum { MOST = LOOPS_MOST };

#define F PH_F32

/* ---- comparing ---- */

/* A float tensor of OUT as floats, its type and shape checked. */
static const float *elements(const ph_file *out, const char *name, ph_dtype type, int n0,
                             int n1, int n2, int n3)
{
    static float wide[4 * MOST];
    const ph_tensor *t = ph_file_find(out, name);
    const int n[] = {n0, n1, n2, n3};
    int rank = 0;
    CHECK(t, "OUT has no %s", name);
    CHECK(t->type == type, "%s is %s", name, ph_dtype_name(t->type));
    while (rank < 4 && n[rank] >= 0) rank++;
    CHECK(t->rank == rank, "%s has rank %d, expected %d", name, t->rank, rank);
    for (int i = 0; i < rank; i++)
        CHECK(t->shape[i] == (size_t)n[i], "axis %d of %s is %zu, expected %d", i, name,
              t->shape[i], n[i]);
    ph_tensor_convert(t, PH_F32, wide);
    return wide;
}

static void near(const char *name, const float *x, const double *expected, int count,
                 ph_dtype type)
{
    double part = type == F ? 4e-5 : type == PH_F16 ? 2e-3 : 1e-2;
    for (int i = 0; i < count; i++)
        CHECK((isinf(expected[i]) && (double)x[i] == expected[i]) ||
                  fabs((double)x[i] - expected[i]) < part * (1 + fabs(expected[i])),
              "%s[%d] is %.9g, expected %.9g", name, i, (double)x[i], expected[i]);
}

static void check_results(const loops_problem *p, const ph_file *out, ph_dtype type)
{
    static loops_result r;
    int n = p->batch, h = p->heads, rows = p->q_len, keys = p->kv_len;
    loops_solve(p, &r);
    near("lse", elements(out, "lse", F, n, h, rows, -1), r.lse, n * h * rows, F);
    near("weights", elements(out, "weights", F, n, h, rows, keys), r.weights,
         n * h * rows * keys, F);
    near("heads", elements(out, "heads", F, n, h, rows, p->v_dim), r.heads,
         n * h * rows * p->v_dim, F);
    near("col_sum", elements(out, "col_sum", F, n, h, keys, -1), r.col_sum, n * h * keys,
         F);
    near("entropy", elements(out, "entropy", F, n, h, rows, -1), r.entropy, n * h * rows,
         F);
    near("out", elements(out, "out", type, n, rows, p->out_dim, -1), r.out,
         n * rows * p->out_dim, type);
}

/* d(loss) by central differences of tensor i, against its gradient in OUT. */
static void check_gradient(loops_problem *p, const ph_file *out, int i)
{
    static double expected[MOST], whole[MOST];
    loops_item *t = &p->t[i];
    char name[16];
    int count = loops_size(t), n = t->n[0], c = t->n[1], h = loops_heads(p, i);
    const float *x;
    snprintf(name, sizeof name, "d%s", loops_names[i]);
    for (int k = 0; k < count; k++) {
        const double step = 0x1p-13, old = t->v[k];
        t->v[k] = old + step;
        double up = loops_loss(p);
        t->v[k] = old - step;
        whole[k] = expected[k] = (up - loops_loss(p)) / (2 * step);
        t->v[k] = old;
    }
    if (p->transposed && i >= WQ && i <= WO) {
        for (int k = 0; k < count; k++) expected[k % c * n + k / c] = whole[k];
        x = elements(out, name, t->type, c, n, -1, -1);
    } else if (p->per_head && i >= WQ && i <= WV) {
        int dim = c / h;
        for (int k = 0; k < count; k++)
            expected[(k / dim % h * n + k / c) * dim + k % dim] = whole[k];
        x = elements(out, name, t->type, h, n, dim, -1);
    } else if (p->per_head && i == WO) {
        x = elements(out, name, t->type, h, n / h, c, -1);
    } else {
        x = elements(out, name, t->type, n, t->rank > 1 ? c : -1,
                     t->rank > 2 ? t->n[2] : -1, t->rank > 3 ? t->n[3] : -1);
    }
    near(name, x, expected, count, t->type);
}

/* Everything there is to compare, forward and backward. */
static void compare(loops_problem *p, const char *words)
{
    char line[200];
    int expected = 6, found = 0;
    trial b = loops_load(p);
    snprintf(line, sizeof line, "%s --weights --stats", words);
    trial_result got = trial_run(&b, line);
    CHECK(got.code == 0 && got.out, "code %d: %s", got.code, got.said);
    CHECK(got.said[0] == 0, "said \"%s\"", got.said);
    check_results(p, got.out, p->t[X].type);
    for (int i = 0; p->t[DOUT].there && i < GRADIENTS; i++) {
        if (!p->t[i].there) continue;
        check_gradient(p, got.out, i);
        expected++;
    }
    while (ph_file_tensor(got.out, (size_t)found)) found++;
    CHECK(found == expected, "%d tensors in OUT, expected %d", found, expected);
    trial_free(&got);
}

/* ---- cases ---- */

static void mha(void)
{
    loops_problem *p = loops_make(4, 4, 4, 0, F);
    compare(p, "--heads 4");
    loops_put_biases(p, F);
    compare(p, "--heads 4 --threads 2");
    loops_put(p, DLSE, F, 2, 4, 5, -1);
    p->scale = 0.7;
    compare(p, "--heads 4 --scale 0.7 --threads 1 --isa ref");
}

static void no_output_matrix(void)
{
    loops_problem *p = loops_make(4, 4, 4, 0, F);
    p->t[WO].there = 0;
    p->out_dim = 12;
    loops_put(p, DOUT, F, 2, 5, 12, -1);
    compare(p, "--heads 4");
}

/* Heads of the per-head form need no option; a bias on its own is fine. */
static void per_head(void)
{
    loops_problem *p = loops_make(4, 2, 1, 0, F);
    p->per_head = 1;
    loops_put(p, BK, F, 8, -1, -1, -1);
    compare(p, "");
    compare(p, "--heads 4 --k-heads 2 --v-heads 1");
}

static void cross(void)
{
    loops_problem *p = loops_make(4, 4, 4, 7, F);
    loops_put_biases(p, F);
    compare(p, "--heads 4");
    p->right = 0, p->offset = 2;
    compare(p, "--heads 4 --causal --offset 2");
}

static void grouped(void)
{
    compare(loops_make(4, 2, 2, 0, F), "--heads 4 --k-heads 2 --v-heads 2");
    compare(loops_make(4, 1, 2, 7, F), "--heads 4 --k-heads 1 --v-heads 2");
    compare(loops_make(4, 2, 4, 0, F), "--heads 4 --k-heads 2");
}

/* The matrices as nn.Linear stores them, and their gradients. */
static void transposed(void)
{
    loops_problem *p = loops_make(4, 2, 2, 0, F);
    p->transposed = 1;
    loops_put_biases(p, F);
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --transposed");
    p = loops_make(4, 4, 1, 7, PH_BF16);
    p->transposed = 1;
    loops_put(p, WK, PH_F16, 5, 16, -1, -1);
    compare(p, "--heads 4 --v-heads 1 --transposed");
}

/* Matrices of three types in one layer; gradients come in the type of each. */
static void stored_types(void)
{
    loops_problem *p = loops_make(4, 2, 2, 0, F);
    loops_put(p, WQ, PH_BF16, 6, 16, -1, -1);
    loops_put(p, WK, PH_F16, 6, 8, -1, -1);
    loops_put(p, WO, PH_BF16, 12, 7, -1, -1);
    compare(p, "--heads 4 --variant gqa:2");
}

/* Keys from memory, values from another tensor of another width. */
static void value_memory(void)
{
    loops_problem *p = loops_make(4, 2, 1, 7, F);
    loops_put_value_memory(p, F);
    compare(p, "--heads 4 --k-heads 2 --v-heads 1");
    loops_put_biases(p, F);
    p->per_head = 1;
    compare(p, "");
    p->per_head = 0, p->transposed = 1;
    compare(p, "--heads 4 --k-heads 2 --v-heads 1 --transposed");
    p = loops_make(4, 4, 4, 5, PH_F16);
    loops_put_value_memory(p, PH_F16);
    compare(p, "--heads 4");
}

/* gqa and mqa are head counts, written as a variant. */
static void grouped_by_variant(void)
{
    compare(loops_make(4, 2, 2, 0, F), "--heads 4 --variant gqa:2");
    compare(loops_make(4, 1, 1, 7, F), "--heads 4 --variant mqa");
    compare(loops_make(4, 4, 4, 0, F), "--heads 4 --variant gqa:4 --k-heads 4");
    compare(loops_make(4, 2, 2, 0, F), "--heads 4 --variant gqa:2+mha --v-heads 2");
}

static void rope(void)
{
    loops_problem *p = loops_make(4, 2, 2, 0, F);
    p->base = 10000, p->rope = 1;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --rope 10000");
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --rope 10000,half");
    p->base = 12.5, p->rope = 2;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --rope 12.5,interleaved");
}

/* A query is rotated by its position among the keys. */
static void rope_offset(void)
{
    loops_problem *p = loops_make(4, 2, 2, 7, F);
    p->base = 100, p->rope = 1, p->offset = 2;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --rope 100 --offset 2");
    p = loops_make(2, 2, 1, 0, F);
    p->base = 100, p->rope = 2, p->offset = 3, p->right = 0;
    compare(p, "--heads 2 --v-heads 1 --rope 100,interleaved --offset 3 --causal");
}

static void qk_norm(void)
{
    loops_problem *p = loops_make(4, 2, 2, 0, F);
    loops_put_norm(p, F);
    p->norm = 1;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --qk-norm");
    loops_put_biases(p, F);
    p->base = 100, p->rope = 1;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --qk-norm --rope 100");
}

static void masks(void)
{
    loops_problem *p = loops_make(2, 2, 2, 0, F);
    p->right = 0;
    compare(p, "--heads 2 --causal");
    p->left = 2, p->right = 1;
    compare(p, "--heads 2 --window 2,1");
    p->has_visible = 1;
    for (int i = 0; i < 10; i++) p->visible[i] = i % 3 != 0;
    loops_put(p, BIAS, F, 1, 2, 5, 5);
    p->softcap = 1.5;
    compare(p, "--heads 2 --window 2,1 --softcap 1.5");
    loops_put(p, ALIBI, F, 2, -1, -1, -1);
    compare(p, "--heads 2 --window 2,1 --softcap 1.5");
}

static void gate_and_sink(void)
{
    loops_problem *p = loops_make(2, 2, 2, 0, F);
    loops_put_biases(p, F);
    loops_put(p, GATE, F, 2, -1, -1, -1);
    loops_put(p, SINK, F, 2, -1, -1, -1);
    compare(p, "--heads 2");
    loops_put(p, GATE, F, 2, 2, 5, -1);
    compare(p, "--heads 2");
}

/* NaN beyond the lengths must be seen nowhere. */
static void lengths(void)
{
    loops_problem *p = loops_make(4, 2, 2, 7, F);
    loops_put_biases(p, F);
    p->has_lens = 1;
    p->q_lens[0] = 3, p->q_lens[1] = 5, p->kv_lens[0] = 7, p->kv_lens[1] = 4;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2");
    for (int i = 3 * 6; i < 5 * 6; i++) p->t[X].file[i] = NAN;
    for (int i = (7 + 4) * 5; i < 14 * 5; i++) p->t[MEMORY].file[i] = NAN;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2");
    p = loops_make(2, 2, 2, 0, F);
    loops_put_norm(p, F);
    p->has_lens = p->norm = 1, p->right = 0;
    p->q_lens[0] = 0, p->q_lens[1] = 4, p->kv_lens[0] = 2, p->kv_lens[1] = 5;
    compare(p, "--heads 2 --causal --qk-norm");
}

/* The weights say what dropout took. */
static void dropout(void)
{
    static float kept[MOST];
    loops_problem *p = loops_make(2, 2, 2, 0, F);
    const char *words = "--heads 2 --dropout 0.4 --seed 9";
    char line[100];
    int dropped = 0;
    trial b = loops_load(p);
    snprintf(line, sizeof line, "%s --weights", words);
    trial_result got = trial_run(&b, line);
    CHECK(got.code == 0, "code %d: %s", got.code, got.said);
    memcpy(kept, elements(got.out, "weights", F, 2, 2, 5, 5), 100 * sizeof kept[0]);
    trial_free(&got);
    for (int i = 0; i < 100; i++) dropped += kept[i] == 0;
    CHECK(dropped > 20 && dropped < 60, "%d of 100 weights dropped", dropped);
    p->kept = kept, p->grown = 1 / 0.6;
    compare(p, words);
}

/* Parameters may have types of their own; gradients come in them. */
static void types(void)
{
    loops_problem *p = loops_make(4, 2, 2, 0, PH_BF16);
    loops_put_biases(p, F);
    compare(p, "--heads 4 --k-heads 2 --v-heads 2");
    loops_put(p, WQ, PH_BF16, 6, 16, -1, -1);
    loops_put(p, WO, PH_F16, 12, 7, -1, -1);
    loops_put_biases(p, PH_BF16);
    loops_put_norm(p, PH_BF16);
    p->norm = 1;
    compare(p, "--heads 4 --k-heads 2 --v-heads 2 --qk-norm");
    p = loops_make(4, 2, 2, 7, PH_F16);
    compare(p, "--heads 4 --k-heads 2 --v-heads 2");
}

static trial_result run_good(const loops_problem *p, const char *words)
{
    trial b = loops_load(p);
    trial_result got = trial_run(&b, words);
    CHECK(got.code == 0 && got.out, "%s: code %d: %s", words, got.code, got.said);
    return got;
}

/* Every tensor of one file has the same bytes in the other; cut matrices put together. */
static void same_bytes(const ph_file *a, const ph_file *b)
{
    static float whole[MOST];
    const ph_tensor *x, *y;
    for (size_t i = 0; (x = ph_file_tensor(a, i)) != NULL; i++) {
        y = ph_file_find(b, x->name);
        CHECK(y && y->bytes == x->bytes, "%s differs in size", x->name);
        const float *f = y->data;
        if (y->rank == 3 && x->rank == 2 && strcmp(x->name, "dwo")) {
            size_t in = y->shape[1], dim = y->shape[2], heads = y->shape[0];
            for (size_t k = 0; k < heads * in * dim; k++)
                whole[(k / dim % in * heads + k / dim / in) * dim + k % dim] = f[k];
            f = whole;
        }
        CHECK(!memcmp(x->data, f, x->bytes), "%s differs", x->name);
    }
}

static void same_in_both_forms(void)
{
    const char *words = "--heads 4 --k-heads 2 --v-heads 1 --rope 100 --qk-norm --causal";
    loops_problem *p = loops_make(4, 2, 1, 0, F);
    loops_put_biases(p, F);
    loops_put_norm(p, F);
    trial_result whole = run_good(p, words);
    p->per_head = 1;
    trial_result cut = run_good(p, words);
    same_bytes(whole.out, cut.out);
    trial_free(&cut);
    cut = run_good(p, "--rope 100 --qk-norm --causal --threads 3");
    same_bytes(whole.out, cut.out);
    trial_free(&whole);
    trial_free(&cut);
}

/* --dtype is as if the file had been in that type. */
static void converted_first(void)
{
    static float wide[ITEMS][MOST];
    loops_problem *p = loops_make(2, 2, 2, 0, PH_BF16);
    for (int i = WQ; i <= WV; i++) loops_put(p, i, PH_BF16, 6, p->t[i].n[1], -1, -1);
    loops_put(p, WO, PH_BF16, 6, 7, -1, -1);
    loops_put_biases(p, PH_BF16);
    trial_result narrow = run_good(p, "--heads 2");
    for (int i = 0; i < ITEMS; i++) {
        if (!p->t[i].there) continue;
        p->t[i].type = F;
        for (int k = 0; k < loops_size(&p->t[i]); k++) /* bits that rounding takes off */
            wide[i][k] = (float)(p->t[i].v[k] * (1 + 0x1p-12));
        memcpy(p->t[i].file, wide[i], sizeof wide[i]);
    }
    trial_result got = run_good(p, "--heads 2 --dtype bf16");
    same_bytes(narrow.out, got.out);
    CHECK(ph_file_find(got.out, "dwq")->type == PH_BF16, "dwq is not BF16");
    trial_free(&narrow);
    trial_free(&got);
}

static void scale_of_zero(void)
{
    loops_problem *p = loops_make(2, 2, 2, 0, F);
    loops_put_biases(p, F);
    loops_put_norm(p, F);
    p->norm = 1;
    p->scale = 1e-30;
    compare(p, "--heads 2 --qk-norm --scale 0");
}

/* Sizes of 0, each alone: what is left is computed. */
static void nothing(void)
{
    static const float none[512];
    const struct {
        int batch, len, keys, model, memory, dim, v_dim, out;
    } list[] = {{0, 3, 4, 5, 6, 2, 2, 3}, {2, 0, 4, 5, 6, 2, 2, 3},
                {2, 3, 0, 5, 6, 2, 2, 3}, {2, 3, 4, 0, 6, 2, 2, 3},
                {2, 3, 4, 5, 0, 2, 2, 3}, {2, 3, 4, 5, 6, 0, 2, 3},
                {2, 3, 4, 5, 6, 2, 0, 3}, {2, 3, 4, 5, 6, 2, 2, 0}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        trial b = {0};
        int n = list[i].batch, in = list[i].model, source = list[i].memory;
        int out = list[i].out, len = list[i].len, v_dim = list[i].v_dim;
        const float ones[] = {1, 1, 1};
        trial_add(&b, "x", F, none, n, len, in, -1);
        trial_add(&b, "memory", F, none, n, list[i].keys, source, -1);
        trial_add(&b, "wq", F, none, in, 2 * list[i].dim, -1, -1);
        trial_add(&b, "wk", F, none, 2, source, list[i].dim, -1);
        trial_add(&b, "wv", F, none, source, 2 * v_dim, -1, -1);
        trial_add(&b, "wo", F, none, 2, v_dim, out, -1);
        trial_add(&b, "bo", F, ones, out, -1, -1, -1);
        trial_add(&b, "dout", F, none, n, len, out, -1);
        trial_result got = trial_run(&b, "--heads 2 --weights --stats --rope 100");
        CHECK(got.code == 0, "%zu: code %d: %s", i, got.code, got.said);
        const float *x = elements(got.out, "out", F, n, len, out, -1);
        for (int k = 0; k < n * len * out; k++)
            CHECK(x[k] == 1, "%zu: out[%d] is %g", i, k, (double)x[k]);
        elements(got.out, "heads", F, n, 2, len, v_dim);
        elements(got.out, "dx", F, n, len, in, -1);
        elements(got.out, "dmemory", F, n, list[i].keys, source, -1);
        elements(got.out, "dwk", F, 2, source, list[i].dim, -1);
        elements(got.out, "dwo", F, 2, v_dim, out, -1);
        trial_free(&got);
    }
}

static const check_case cases[] = {{"mha", mha},
                                   {"no_output_matrix", no_output_matrix},
                                   {"per_head", per_head},
                                   {"cross", cross},
                                   {"grouped", grouped},
                                   {"transposed", transposed},
                                   {"stored_types", stored_types},
                                   {"value_memory", value_memory},
                                   {"grouped_by_variant", grouped_by_variant},
                                   {"rope", rope},
                                   {"rope_offset", rope_offset},
                                   {"qk_norm", qk_norm},
                                   {"masks", masks},
                                   {"gate_and_sink", gate_and_sink},
                                   {"lengths", lengths},
                                   {"dropout", dropout},
                                   {"types", types},
                                   {"same_in_both_forms", same_in_both_forms},
                                   {"converted_first", converted_first},
                                   {"scale_of_zero", scale_of_zero},
                                   {"nothing", nothing},
                                   {0, 0}};

int main(int argc, char **argv)
{
    loops_seed = &check_seed;
    if (trial_begin() != 0) return 1;
    int failed = check_main(argc, argv, cases);
    trial_end();
    return failed;
}
