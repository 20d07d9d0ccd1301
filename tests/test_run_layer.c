/*
 * test_run_layer.c - layer mode of `polyhead run`: what it refuses, with which exit code
 * and words.
 */
#include "check.h"
#include "run_trial.h"

enum { USAGE = 2, INPUT = 3 };

#define F   PH_F32
#define ANY "F32, F16 or BF16"

/* x (2, 3, 8), 4 heads of 6 for q and k (2 key heads), of 5 for v (1 value head). */
static float elements[4096];

static trial good(void)
{
    trial t = {0};
    trial_add(&t, "x", F, elements, 2, 3, 8, -1);
    trial_add(&t, "wq", F, elements, 8, 24, -1, -1);
    trial_add(&t, "wk", F, elements, 8, 12, -1, -1);
    trial_add(&t, "wv", F, elements, 8, 5, -1, -1);
    trial_add(&t, "wo", F, elements, 20, 7, -1, -1);
    return t;
}

#define HEADS "--heads 4 --k-heads 2 --v-heads 1"

/* One tensor of `good` replaced, added, or taken out (rank -1). */
typedef struct wrong {
    const char *name;
    ph_dtype type;
    int rank, n[4];
    int code;
    const char *words;
    const char *options; /* NULL: HEADS */
} wrong;

static const wrong list[] = {
    {"wq", F, -1, {0}, INPUT, "tensor 'wq' is missing, expected because layer mode", 0},
    {"wk", F, -1, {0}, INPUT, "tensor 'wk' is missing", 0},
    {"wv", F, -1, {0}, INPUT, "tensor 'wv' is missing", 0},
    {"x", F, -1, {0}, INPUT, "tensor 'q' or 'x' is missing", 0},
    {"q", F, 4, {1, 1, 1, 1}, INPUT, "tensor 'x' stands beside 'q', 'k' or 'v'", 0},
    {"memry", F, 3, {2, 3, 8}, INPUT, "'memry' is unknown, did you mean 'memory'?", 0},
    {"w_q", F, 1, {1}, INPUT, "'w_q' is unknown, did you mean 'wq'?", 0},
    {"x",
     F,
     2,
     {3, 8},
     INPUT,
     "tensor 'x' is F32 (3, 8), expected F32, F16 or BF16 (batch, "
     "q_len, model_dim)",
     0},
    {"x", PH_I32, 3, {2, 3, 8}, INPUT, "tensor 'x' is I32", 0},
    {"wq", PH_I32, 2, {8, 24}, INPUT, "tensor 'wq' is I32 (8, 24), expected F32", 0},
    {"memory",
     PH_BF16,
     3,
     {2, 5, 8},
     INPUT,
     "'memory' is BF16 (2, 5, 8), expected F32",
     0},
    {"x",
     F,
     3,
     {2, 3, 9},
     INPUT,
     "tensor 'wq' is F32 (8, 24), expected " ANY " (in_dim = 9, "
     "heads*dim)",
     0},
    {"memory",
     F,
     3,
     {1, 5, 8},
     INPUT,
     "tensor 'memory' is F32 (1, 5, 8), expected F32 (batch "
     "= 2, kv_len, memory_dim)",
     0},
    {"memory",
     F,
     3,
     {2, 5, 6},
     INPUT,
     "tensor 'wk' is F32 (8, 12), expected " ANY " (in_dim = 6",
     0},
    {"wq",
     F,
     2,
     {8, 25},
     INPUT,
     "tensor 'wq' is F32 (8, 25), expected a number of columns "
     "that 4 heads (--heads) divide",
     0},
    {"wq",
     F,
     3,
     {3, 8, 6},
     INPUT,
     "tensor 'wq' is F32 (3, 8, 6), expected " ANY " (heads = 4",
     0},
    {"wq",
     F,
     3,
     {4, 9, 6},
     INPUT,
     "tensor 'wq' is F32 (4, 9, 6), expected " ANY " (heads = 4, "
     "in_dim = 8, dim)",
     0},
    {"wq", F, 1, {8}, INPUT, "tensor 'wq' is F32 (8), expected " ANY " (in_dim = 8", 0},
    {"wk",
     F,
     2,
     {8, 14},
     INPUT,
     "tensor 'wk' is F32 (8, 14), expected heads of qk_dim = 6 as "
     "in 'wq', found 2 heads of 7 (--k-heads)",
     0},
    {"wk",
     F,
     3,
     {3, 8, 6},
     INPUT,
     "expected a number of heads that divides the 4 of 'wq'",
     "--heads 4 --v-heads 1"},
    {"wv",
     F,
     3,
     {3, 8, 6},
     INPUT,
     "tensor 'wv' is F32 (3, 8, 6), expected a number of heads",
     "--heads 4 --k-heads 2"},
    {"wo",
     F,
     2,
     {21, 7},
     INPUT,
     "tensor 'wo' is F32 (21, 7), expected " ANY " (q_heads*v_dim = "
     "20, out_dim)",
     0},
    {"wo",
     F,
     3,
     {4, 6, 7},
     INPUT,
     "tensor 'wo' is F32 (4, 6, 7), expected " ANY " (q_heads = 4, "
     "v_dim = 5, out_dim)",
     0},
    {"wo", PH_F64, 2, {20, 7}, INPUT, "tensor 'wo' is F64 (20, 7), expected " ANY, 0},
    {"bq",
     F,
     1,
     {12},
     INPUT,
     "tensor 'bq' is F32 (12), expected " ANY " (heads*dim = 24)",
     0},
    {"bk",
     F,
     1,
     {24},
     INPUT,
     "tensor 'bk' is F32 (24), expected " ANY " (heads*dim = 12)",
     0},
    {"bv",
     F,
     2,
     {1, 5},
     INPUT,
     "tensor 'bv' is F32 (1, 5), expected " ANY " (heads*dim = 5)",
     0},
    {"bo", F, 1, {8}, INPUT, "tensor 'bo' is F32 (8), expected " ANY " (out_dim = 7)", 0},
    {"q_norm",
     F,
     1,
     {5},
     INPUT,
     "tensor 'q_norm' is F32 (5), expected " ANY " (qk_dim = 6)",
     HEADS " --qk-norm"},
    {"q_norm",
     F,
     1,
     {6},
     INPUT,
     "tensor 'k_norm' is missing, expected because --qk-norm",
     HEADS " --qk-norm"},
    {"k_norm",
     F,
     1,
     {6},
     USAGE,
     "option --qk-norm is missing, expected because tensor "
     "'k_norm' is there",
     0},
    {"dout",
     F,
     3,
     {2, 3, 8},
     INPUT,
     "tensor 'dout' is F32 (2, 3, 8), expected F32, F16 or "
     "BF16 (batch = 2, q_len = 3, out_dim = 7)",
     0},
    {"dlse", F, 3, {2, 4, 3}, INPUT, "tensor 'dout' is missing", 0},
    {"bias", F, 4, {2, 4, 3, 4}, INPUT, "tensor 'bias' is F32 (2, 4, 3, 4), expected", 0},
    {"sink", F, 1, {2}, INPUT, "tensor 'sink' is F32 (2), expected F32 (q_heads = 4)", 0},
    {"x",
     F,
     3,
     {2, 3, 8},
     USAGE,
     "option --heads is missing, expected a number of heads, "
     "because tensor 'wq' is one matrix",
     ""},
    {"x",
     F,
     3,
     {2, 3, 8},
     INPUT,
     "tensor 'wk' is F32 (8, 12), expected heads of qk_dim = 6",
     "--heads 4 --v-heads 1"},
    {"x",
     F,
     3,
     {2, 3, 8},
     USAGE,
     "--rope is '0', expected a base above 0",
     HEADS " --rope 0"},
    {"x",
     F,
     3,
     {2, 3, 8},
     USAGE,
     "--rope is '10000,halb', expected",
     HEADS " --rope 10000,halb"},
    {"x", F, 3, {2, 3, 8}, USAGE, "--rope is 'x,half', expected", HEADS " --rope x,half"},
    {"x", F, 3, {2, 3, 8}, USAGE, "--rope is '10000,', expected", HEADS " --rope 10000,"},
    {"x",
     F,
     3,
     {2, 3, 8},
     USAGE,
     "--rope is '1e-50', expected a base above 0",
     HEADS " --rope 1e-50"},
    {"x",
     F,
     3,
     {2, 3, 8},
     USAGE,
     "option --offset is -1, expected 0 or more with --rope",
     HEADS " --rope 100 --offset -1"},
    {"x", F, 3, {2, 3, 8}, USAGE, "option --balance belongs to", HEADS " --balance 1"},
    {"x",
     F,
     3,
     {2, 3, 8},
     USAGE,
     "option --rope-dims is 3, expected an even number of at most",
     HEADS " --rope 100 --rope-dims 3"},
    {"wo",
     F,
     -1,
     {0},
     INPUT,
     "tensor 'wq' is F32 (8, 24), expected heads of an even qk_dim because of --rope",
     "--heads 8 --k-heads 4 --v-heads 1 --rope 100"},
    {"wq",
     F,
     3,
     {4, 8, 6},
     INPUT,
     "tensor 'wq' is F32 (4, 8, 6), expected " ANY " (columns, in_dim)",
     HEADS " --transposed"},
    {"wo",
     F,
     -1,
     {0},
     INPUT,
     "'wq' is F32 (8, 24), expected " ANY " (heads*dim, in_dim = 8)",
     HEADS " --transposed"},
    {"value_memory",
     F,
     3,
     {2, 5, 8},
     INPUT,
     "tensor 'memory' is missing, expected because 'value_memory' is there",
     0},
    {"memory", F, 3, {2, 5, 8}, USAGE, "option --offset is missing", HEADS " --causal"},
};

static void refuse(const wrong *w)
{
    trial t = good();
    ph_tensor n = {.name = w->name, .type = w->type, .data = elements};
    int at = 0;
    while (at < t.count && strcmp(t.tensor[at].name, w->name)) at++;
    if (w->rank < 0) {
        t.tensor[at] = t.tensor[--t.count];
    } else {
        n.rank = w->rank;
        for (int k = 0; k < w->rank; k++) n.shape[k] = (size_t)w->n[k];
        t.tensor[at] = n;
        t.count += at == t.count;
    }
    trial_result got = trial_run(&t, w->options ? w->options : HEADS);
    CHECK(got.code == w->code, "%s: code %d: %s", w->words, got.code, got.said);
    CHECK(strstr(got.said, w->words), "\"%s\" lacks \"%s\"", got.said, w->words);
    CHECK(!got.out, "%s: OUT was made", w->words);
}

static void refused(void)
{
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) refuse(&list[i]);
}

static void refused_value_memory(void)
{
    static const struct {
        ph_dtype type;
        int code, len, dim;
        const char *options, *words;
    } bad[] = {
        {F, INPUT, 4, 8, HEADS, "'value_memory' is F32 (2, 4, 8), expected F32 (batch"},
        {PH_F16, INPUT, 5, 8, HEADS, "'value_memory' is F16 (2, 5, 8), expected F32"},
        {F, INPUT, 5, 9, HEADS, "'wv' is F32 (8, 5), expected " ANY " (in_dim = 9"},
        {F, 4, 5, 8, HEADS " --variant moh:shared=1,top=2", "beside --variant moh"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        trial t = good();
        trial_add(&t, "memory", F, elements, 2, 5, 8, -1);
        trial_add(&t, "value_memory", bad[i].type, elements, 2, bad[i].len, bad[i].dim,
                  -1);
        trial_result got = trial_run(&t, bad[i].options);
        CHECK(got.code == bad[i].code && !got.out, "%d: %s", got.code, got.said);
        CHECK(strstr(got.said, bad[i].words), "\"%s\"", got.said);
    }
}

/* What only the library can see in the elements. */
static void refused_elements(void)
{
    static const int32_t lens[] = {3, 4};
    static const float nan_gate[] = {1, 1, 0.0f / 0.0f, 1};
    trial t = good();
    trial_add(&t, "q_lens", PH_I32, lens, 2, -1, -1, -1);
    trial_result got = trial_run(&t, HEADS);
    CHECK(got.code == INPUT && !got.out, "code %d: %s", got.code, got.said);
    CHECK(strstr(got.said, "q_lens[1] is 4, expected 0 to 3"), "\"%s\"", got.said);
    t = good();
    trial_add(&t, "gate", F, nan_gate, 4, -1, -1, -1);
    got = trial_run(&t, HEADS);
    CHECK(got.code == INPUT && !got.out, "code %d: %s", got.code, got.said);
    CHECK(strstr(got.said, "gate"), "\"%s\"", got.said);
}

static const check_case cases[] = {{"refused", refused},
                                   {"refused_value_memory", refused_value_memory},
                                   {"refused_elements", refused_elements},
                                   {0, 0}};

int main(int argc, char **argv)
{
    if (trial_begin() != 0) return 1;
    int failed = check_main(argc, argv, cases);
    trial_end();
    return failed;
}
