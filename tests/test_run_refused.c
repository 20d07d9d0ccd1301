/*
 * test_run_refused.c - what `polyhead run` refuses, with which exit code and words, and
 * that an older OUT is then as it was; types, empty tensors and odd places of OUT.
 */
#define _XOPEN_SOURCE 700
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "run_trial.h"

enum { USAGE = 2, INPUT = 3, UNSUPPORTED = 4, MEMORY = 5, IO = 7 };

/* q (2, 4, 3, 8), k (2, 2, 5, 8), v (2, 2, 5, 6), elements below 1. */
static float elements[4096];

static trial good(ph_dtype type)
{
    trial t = {0};
    trial_add(&t, "q", type, elements, 2, 4, 3, 8);
    trial_add(&t, "k", type, elements, 2, 2, 5, 8);
    trial_add(&t, "v", type, elements, 2, 2, 5, 6);
    return t;
}

static ph_tensor *find(trial *t, const char *name)
{
    for (int i = 0; i < t->count; i++)
        if (!strcmp(t->tensor[i].name, name)) return &t->tensor[i];
    return NULL;
}

/* Runs on IN with an older OUT that must survive. */
static void refuse(const trial *t, const char *options, int code, const char *words)
{
    char in[400], out[400], line[1000], bytes[8] = "";
    strcpy(in, trial_path("in.safetensors"));
    strcpy(out, trial_path("out.safetensors"));
    CHECK(ph_file_write(in, t->tensor, (size_t)t->count, NULL, 0, NULL) == PH_OK,
          "write");
    FILE *f = fopen(out, "wb");
    CHECK(f && fputs("old", f) >= 0 && fclose(f) == 0, "cannot write OUT");
    snprintf(line, sizeof line, "run %s -o %s %s", in, out, options);
    trial_result got = trial_start(line);
    CHECK(got.code == code, "%s: code %d, expected %d: %s", words, got.code, code,
          got.said);
    CHECK(strstr(got.said, words), "\"%s\" lacks \"%s\"", got.said, words);
    CHECK(!strncmp(got.said, "polyhead: ", 10) && !strchr(got.said, '\n'),
          "\"%s\" is no single sentence", got.said);
    f = fopen(out, "rb");
    CHECK(f && fread(bytes, 1, sizeof bytes, f) == 3 && !memcmp(bytes, "old", 3),
          "%s: OUT was touched", words);
    fclose(f);
}

/* ---- one tensor that does not fit ---- */

typedef struct wrong {
    const char *name; /* replaced if it is there, else added; rank -1: taken out */
    ph_dtype type;
    int rank, n[5];
    const char *words;
    const char *options;
} wrong;

static void refuse_tensors(const wrong *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        trial t = good(PH_F32);
        const wrong *w = &list[i];
        ph_tensor *at = find(&t, w->name);
        if (w->rank < 0) {
            *at = t.tensor[--t.count];
        } else {
            ph_tensor n = {
                .name = w->name, .type = w->type, .rank = w->rank, .data = elements};
            for (int k = 0; k < w->rank; k++) n.shape[k] = (size_t)w->n[k];
            *(at ? at : &t.tensor[t.count++]) = n;
        }
        refuse(&t, w->options ? w->options : "", INPUT, w->words);
    }
}

#define F PH_F32

static const wrong wrong_tensors[] = {
    {"q", F, -1, {0}, "tensor 'q' is missing, expected because core mode needs q, k", 0},
    {"k", F, -1, {0}, "tensor 'k' is missing", 0},
    {"v", F, -1, {0}, "tensor 'v' is missing", 0},
    {"biass", F, 1, {1}, "'biass' is unknown, did you mean 'bias'?", 0},
    {"Q", F, 1, {1}, "tensor 'Q' is unknown, did you mean 'q'?", 0},
    {"zzzz", F, 1, {1}, "is unknown (core mode knows q, k, v, bias, visible,", 0},
    {"", F, 1, {1}, "tensor '' is unknown", 0},
    {"wq", F, 2, {8, 8}, "tensor 'wq' is unknown", 0},
    {"x", F, 3, {1, 1, 1}, "tensor 'x' stands beside 'q', 'k' or 'v'", 0},
    {"q",
     F,
     3,
     {4, 3, 8},
     "tensor 'q' is F32 (4, 3, 8), expected F32, F16 or BF16 (batch"
     ", q_heads, q_len, qk_dim)",
     0},
    {"q", F, 5, {1, 2, 4, 3, 8}, "tensor 'q' is F32 (1, 2, 4, 3, 8), expected", 0},
    {"q", PH_F64, 4, {2, 4, 3, 8}, "tensor 'q' is F64 (2, 4, 3, 8), expected F32", 0},
    {"q", PH_I32, 4, {2, 4, 3, 8}, "tensor 'q' is I32", 0},
    {"q", PH_F16, 4, {2, 4, 3, 8}, "tensor 'k' is F32 (2, 2, 5, 8), expected F16", 0},
    {"q", F, 4, {2, 0, 3, 8}, "tensor 'q' is F32 (2, 0, 3, 8), expected at least one", 0},
    {"q",
     F,
     4,
     {2, 3, 3, 8},
     "tensor 'k' is F32 (2, 2, 5, 8), expected a number of heads "
     "that divides the 3 heads of 'q'",
     0},
    {"k",
     F,
     4,
     {1, 2, 5, 8},
     "tensor 'k' is F32 (1, 2, 5, 8), expected F32 (batch = 2, "
     "k_heads, kv_len, qk_dim = 8)",
     0},
    {"k", F, 4, {2, 2, 5, 7}, "tensor 'k' is F32 (2, 2, 5, 7)", 0},
    {"k", F, 4, {2, 0, 5, 8}, "tensor 'k' is F32 (2, 0, 5, 8), expected a number of", 0},
    {"k", PH_BF16, 4, {2, 2, 5, 8}, "tensor 'k' is BF16", 0},
    {"v",
     F,
     4,
     {2, 2, 4, 6},
     "tensor 'v' is F32 (2, 2, 4, 6), expected F32 (batch = 2, "
     "v_heads, kv_len = 5, v_dim)",
     0},
    {"v", F, 4, {2, 3, 5, 6}, "tensor 'v' is F32 (2, 3, 5, 6), expected a number of", 0},
    {"bias",
     F,
     4,
     {2, 4, 3, 4},
     "tensor 'bias' is F32 (2, 4, 3, 4), expected F32 (batch "
     "= 2 or 1, q_heads = 4 or 1, q_len = 3 or 1, kv_len = 5)",
     0},
    {"bias", F, 4, {2, 4, 3, 1}, "tensor 'bias' is F32 (2, 4, 3, 1)", 0},
    {"bias", F, 4, {2, 2, 3, 5}, "tensor 'bias' is F32 (2, 2, 3, 5)", 0},
    {"bias", F, 2, {3, 5}, "tensor 'bias' is F32 (3, 5), expected", 0},
    {"bias", PH_F16, 4, {1, 1, 1, 5}, "tensor 'bias' is F16", 0},
    {"visible",
     F,
     4,
     {1, 1, 1, 5},
     "tensor 'visible' is F32 (1, 1, 1, 5), expected U8 or "
     "BOOL (",
     0},
    {"visible", PH_BOOL, 4, {1, 1, 2, 5}, "tensor 'visible' is BOOL (1, 1, 2,", 0},
    {"q_lens", PH_I32, 1, {3}, "tensor 'q_lens' is I32 (3), expected I32 (batch = 2)", 0},
    {"q_lens", PH_I64, 1, {2}, "tensor 'q_lens' is I64 (2), expected I32", 0},
    {"kv_lens", PH_I32, 2, {2, 1}, "tensor 'kv_lens' is I32 (2, 1), expected", 0},
    {"gate", F, 1, {2}, "tensor 'gate' is F32 (2), expected F32 (q_heads = 4)", 0},
    {"gate",
     F,
     3,
     {2, 4, 5},
     "tensor 'gate' is F32 (2, 4, 5), expected F32 (batch = 2, "
     "q_heads = 4, q_len = 3)",
     0},
    {"gate",
     F,
     2,
     {2, 4},
     "tensor 'gate' is F32 (2, 4), expected F32 (q_heads = 4) or "
     "(batch = 2, q_heads = 4, q_len = 3)",
     0},
    {"gate", PH_BF16, 1, {4}, "tensor 'gate' is BF16", 0},
    {"sink", F, 1, {2}, "tensor 'sink' is F32 (2), expected F32 (q_heads = 4)", 0},
    {"sink", F, 0, {0}, "tensor 'sink' is F32 ()", 0},
    {"alibi", F, 1, {5}, "tensor 'alibi' is F32 (5)", 0},
    {"alibi", PH_F64, 1, {4}, "tensor 'alibi' is F64", 0},
    {"dout",
     F,
     4,
     {2, 4, 3, 8},
     "tensor 'dout' is F32 (2, 4, 3, 8), expected F32, F16 or"
     " BF16 (batch = 2, q_heads = 4, q_len = 3, v_dim = 6)",
     0},
    {"dout", PH_F64, 4, {2, 4, 3, 6}, "tensor 'dout' is F64", 0},
    {"dlse", F, 3, {2, 4, 3}, "tensor 'dout' is missing, expected because 'dlse' is", 0},
    {"w_logits",
     F,
     2,
     {4, 3},
     "tensor 'w_logits' is F32 (4, 3), expected F32 (4, 4)",
     "--variant talking"},
    {"alpha_logit", F, 1, {3}, "is F32 (3), expected F32 (4)", "--variant entmax"},
};

static void tensors(void)
{
    refuse_tensors(wrong_tensors, sizeof wrong_tensors / sizeof wrong_tensors[0]);
}

/* ---- values inside tensors ---- */

static void values(void)
{
    float nan4[4] = {0, NAN, 0, 0}, inf5[5] = {0, 0, INFINITY, 0, 0};
    const uint8_t two[5] = {1, 1, 1, 2, 1};
    const int32_t high[2] = {2, 4}, low[2] = {-1, 2}, six[2] = {5, 6};
    const struct {
        const char *name, *words;
        ph_dtype type;
        const void *data;
        int n0, n1, n2, n3;
    } list[] = {
        {"bias", "in.safetensors: bias[2] is inf", F, inf5, 1, 1, 1, 5},
        {"gate", "in.safetensors: gate[1] is nan", F, nan4, 4, -1, -1, -1},
        {"sink", "in.safetensors: sink[1] is nan", F, nan4, 4, -1, -1, -1},
        {"alibi", "in.safetensors: alibi[1] is nan", F, nan4, 4, -1, -1, -1},
        {"visible", "tensor 'visible' has 2 at element 3, expected 0 or 1", PH_U8, two, 1,
         1, 1, 5},
        {"visible", "tensor 'visible' has 2 at element 3", PH_BOOL, two, 1, 1, 1, 5},
        {"q_lens", "in.safetensors: q_lens[1] is 4, expected 0 to 3", PH_I32, high, 2, -1,
         -1, -1},
        {"q_lens", "in.safetensors: q_lens[0] is -1", PH_I32, low, 2, -1, -1, -1},
        {"kv_lens", "in.safetensors: kv_lens[1] is 6, expected 0 to 5", PH_I32, six, 2,
         -1, -1, -1}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        trial t = good(F);
        trial_add(&t, list[i].name, list[i].type, list[i].data, list[i].n0, list[i].n1,
                  list[i].n2, list[i].n3);
        refuse(&t, "", INPUT, list[i].words);
    }
}

/* ---- options ---- */

static void options(void)
{
    static const struct {
        int code;
        const char *options, *words;
    } list[] = {
        {USAGE, "--causal",
         "option --offset is missing, expected the position of query 0"},
        {USAGE, "--window 1,1", "because q_len is 3 and kv_len is 5"},
        {USAGE, "--window 1", "--window"},
        {USAGE, "--window 1,2,3", "--window"},
        {USAGE, "--window 1,-2", "--window"},
        {USAGE, "--window a,b", "--window"},
        {USAGE, "--offset x --causal", "--offset"},
        {USAGE, "--offset 99999999999", "--offset"},
        {USAGE, "--scale nan", "--scale"},
        {USAGE, "--scale", "--scale"},
        {USAGE, "--softcap -1", "--softcap"},
        {USAGE, "--dropout 1", "dropout is 1, expected 0 <= dropout < 1"},
        {USAGE, "--dropout 1.5", "--dropout"},
        {USAGE, "--seed -1", "--seed"},
        {USAGE, "--threads -1", "--threads"},
        {USAGE, "--isa sse9", "--isa"},
        {USAGE, "--device tpu", "--device"},
        {USAGE, "--dtype f64", "--dtype"},
        {USAGE, "--causl", "did you mean --causal?"},
        {USAGE, "--heads 4", "option --heads belongs to layer mode"},
        {USAGE, "--k-heads 2", "option --k-heads belongs to layer mode"},
        {USAGE, "--v-heads 2", "option --v-heads belongs to layer mode"},
        {USAGE, "--rope 10000", "option --rope belongs to layer mode"},
        {USAGE, "--qk-norm", "option --qk-norm belongs to layer mode"},
        {USAGE, "--variant mha:rank=2", "mha has no options"},
        {USAGE, "--variant gqa", "expected gqa:G"},
        {USAGE, "--variant gqa:0", "gqa is \"0\", expected a whole number from 1"},
        {USAGE, "--variant mqa:2", "mqa has no options"},
        {UNSUPPORTED, "--variant talking+mqa", "stands behind another"},
        {INPUT, "--variant gqa:3", "k_heads is 2, expected 3 as the variant says"},
        {UNSUPPORTED, "--variant nonsense", "this build has: mha"},
        {UNSUPPORTED, "--variant mh", "this build has: mha"},
    };
    trial t = good(F);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        refuse(&t, list[i].options, list[i].code, list[i].words);
}

/* Without a GPU the device is refused by name; with one the call is legal. */
static void no_accelerator(void)
{
    ph_ctx *ctx = NULL;
    ph_options o = {.device = PH_CUDA};
    if (ph_open(&ctx, &o) == PH_OK) {
        ph_close(ctx);
        SKIP("this machine has an accelerator");
    }
    trial t = good(F);
    refuse(&t, "--device cuda", UNSUPPORTED, "--device cuda");
}

/* An unknown variant is refused before its tensors are. */
static void variant_first(void)
{
    trial t = good(F);
    trial_add(&t, "w_nonsense", F, elements, 4, 4, -1, -1);
    refuse(&t, "--variant nonsense:a=1", UNSUPPORTED, "nonsense");
}

static void command_line(void)
{
    char line[1000], in[400];
    trial t = good(F);
    strcpy(in, trial_path("in.safetensors"));
    CHECK(ph_file_write(in, t.tensor, 3, NULL, 0, NULL) == PH_OK, "write");
    const struct {
        int code;
        const char *format, *words;
    } list[] = {
        {USAGE, "run %s", "option -o is missing"},
        {USAGE, "run -o /dev/null", "IN"},
        {USAGE, "run %s %s -o /dev/null", ""},
        {USAGE, "run %s -o", "-o"},
        {IO, "run %s.none -o /dev/null", "none': No such file or directory"},
        {IO, "run /dev/null -o /dev/null", "expected a regular file"},
        {IO, "run / -o /dev/null", "cannot read '/': it is a directory"},
        {IO, "run %s -o /", "cannot write '/': it is a directory"},
        {IO, "run %s -o /dev/full", "cannot write '/dev/full': No space left"},
        {IO, "run %s -o /nowhere/x", "cannot write '/nowhere/x': its directory: No"},
        {IO, "run %s -o %s/x", "/x': Not a directory"}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const char *second = strstr(list[i].format, "%s");
        snprintf(line, sizeof line, "%s", list[i].format);
        if (second && strstr(second + 1, "%s")) {
            int at = (int)(second - list[i].format);
            const char *rest = second + 2, *other = strstr(rest, "%s");
            snprintf(line, sizeof line, "%.*s%s%.*s%s%s", at, list[i].format, in,
                     (int)(other - rest), rest, in, other + 2);
        } else if (second) {
            int at = (int)(second - list[i].format);
            snprintf(line, sizeof line, "%.*s%s%s", at, list[i].format, in, second + 2);
        }
        trial_result got = trial_start(line);
        CHECK(got.code == list[i].code, "%s: code %d: %s", line, got.code, got.said);
        CHECK(strstr(got.said, list[i].words), "\"%s\" lacks \"%s\"", got.said,
              list[i].words);
    }
}

/* 20,000 x 20,000 weights do not fit into 1 GB. */
static void no_memory(void)
{
    const int length = 20000;
    trial_memory = 1000000000;
    if (trial_start("--version").code != 0)
        SKIP("the program itself needs more than 1 GB");
    float *rows = calloc((size_t)length, sizeof *rows);
    trial t = {0};
    trial_add(&t, "q", F, rows, 1, 1, length, 1);
    trial_add(&t, "k", F, rows, 1, 1, length, 1);
    trial_add(&t, "v", F, rows, 1, 1, length, 1);
    trial_memory = 1000000000;
    refuse(&t, "--weights --threads 1", MEMORY, "out of memory: no 400000000 x 4 bytes");
    free(rows);
}

static void bad_files(void)
{
    char line[1000], in[400];
    static const struct {
        const char *bytes, *words;
        size_t size;
    } list[] = {{"", "0 bytes are too few", 0},
                {"\2\0\0\0\0\0\0\0{]", "expected a key in quotes at byte 1", 10},
                {"\2\0\0\0\0\0\0\0{}", "tensor 'q' or 'x' is missing", 10},
                {"PK\3\4zipfile...", "is it a safetensors file?", 14}};
    strcpy(in, trial_path("bad"));
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        FILE *f = fopen(in, "wb");
        CHECK(f && fwrite(list[i].bytes, 1, list[i].size, f) == list[i].size, "write");
        fclose(f);
        snprintf(line, sizeof line, "run %s -o %s.out", in, in);
        trial_result got = trial_start(line);
        CHECK(got.code == INPUT, "code %d: %s", got.code, got.said);
        CHECK(strstr(got.said, list[i].words), "\"%s\" lacks \"%s\"", got.said,
              list[i].words);
        CHECK(access(trial_path("bad.out"), F_OK) != 0, "OUT was made");
    }
}

/* ---- what is accepted at the edges ---- */

static void empty_sizes(void)
{
    for (int axis = 0; axis < 6; axis++) { /* batch, q_len, kv_len, qk_dim, v_dim, both */
        int n[5] = {2, 3, 5, 8, 6};
        if (axis < 5) n[axis] = 0;
        if (axis == 5) n[3] = n[4] = 0;
        trial t = {0};
        trial_add(&t, "q", F, elements, n[0], 4, n[1], n[3]);
        trial_add(&t, "k", F, elements, n[0], 2, n[2], n[3]);
        trial_add(&t, "v", F, elements, n[0], 2, n[2], n[4]);
        trial_add(&t, "dout", F, elements, n[0], 4, n[1], n[4]);
        trial_add(&t, "bias", F, elements, 1, 4, 1, n[2]);
        trial_add(&t, "gate", F, elements + 1, n[0], 4, n[1], -1);
        trial_add(&t, "sink", F, elements, 4, -1, -1, -1);
        trial_result got = trial_run(&t, "--weights --stats");
        CHECK(got.code == 0 && got.out, "axis %d: code %d: %s", axis, got.code, got.said);
        const ph_tensor *out = ph_file_find(got.out, "out"),
                        *lse = ph_file_find(got.out, "lse");
        CHECK(out->shape[3] == (size_t)n[4] && out->shape[2] == (size_t)n[1], "out");
        for (size_t i = 0; i < lse->bytes / 4; i++)
            CHECK(isfinite(((const float *)lse->data)[i]), "axis %d: lse[%zu]", axis, i);
        for (size_t i = 0; axis == 2 && i < out->bytes / 4; i++)
            CHECK(((const float *)out->data)[i] == 0, "no key, but out[%zu]", i);
        CHECK(ph_file_find(got.out, "dv")->bytes ==
                  (size_t)n[0] * 2 * (size_t)n[2] * (size_t)n[4] * 4,
              "dv");
        CHECK(ph_file_find(got.out, "dbias") && ph_file_find(got.out, "dsink"),
              "gradients");
        trial_free(&got);
    }
}

/* --dtype gives what the converted tensors give, bit by bit. */
static void types(void)
{
    static const char *const words[] = {"--dtype f32", "--dtype f16", "--dtype bf16"};
    static const ph_dtype type[] = {F, PH_F16, PH_BF16};
    static uint16_t half[4096];
    for (int to = 0; to < 3; to++) {
        trial t = good(F), h = good(type[to]);
        trial_add(&t, "dout", F, elements, 2, 4, 3, 6);
        trial_add(&h, "dout", type[to], half, 2, 4, 3, 6);
        const ph_tensor all = {
            .name = "n", .type = F, .rank = 1, .shape = {4096}, .data = elements};
        CHECK(ph_tensor_convert(&all, type[to], to ? (void *)half : elements) == PH_OK,
              "c");
        for (int i = 0; i < 4; i++) h.tensor[i].data = to ? (void *)half : elements;
        trial_result a = trial_run(&t, words[to]), b = trial_run(&h, "");
        CHECK(a.code == 0 && b.code == 0, "%s %s", a.said, b.said);
        const ph_tensor *x;
        for (size_t i = 0; (x = ph_file_tensor(a.out, i)) != NULL; i++) {
            const ph_tensor *y = ph_file_find(b.out, x->name);
            CHECK(y && x->bytes == y->bytes && !memcmp(x->data, y->data, x->bytes), "%s",
                  x->name);
            CHECK(x->type == (strcmp(x->name, "lse") ? type[to] : F), "type of %s",
                  x->name);
        }
        trial_free(&a);
        trial_free(&b);
    }
}

static void dropout_repeats(void)
{
    trial t = good(F);
    trial_result a = trial_run(&t, "--dropout 0.5 --seed 7 --weights --threads 1");
    trial_result b = trial_run(&t, "--dropout 0.5 --seed 7 --weights --threads 2");
    trial_result c = trial_run(&t, "--dropout 0.5 --seed 8 --weights");
    CHECK(a.out && b.out && c.out, "%s", a.said);
    const ph_tensor *x = ph_file_find(a.out, "weights");
    CHECK(!memcmp(x->data, ph_file_find(b.out, "weights")->data, x->bytes),
          "not repeated");
    CHECK(memcmp(x->data, ph_file_find(c.out, "weights")->data, x->bytes),
          "same for seeds");
    trial_free(&a);
    trial_free(&b);
    trial_free(&c);
}

/* IN and OUT may be one file; both may be pipes. */
static void places_of_out(void)
{
    char line[1000], in[400];
    trial t = good(F);
    strcpy(in, trial_path("both.safetensors"));
    CHECK(ph_file_write(in, t.tensor, 3, NULL, 0, NULL) == PH_OK, "write");
    snprintf(line, sizeof line, "run %s -o %s", in, in);
    trial_result got = trial_start(line);
    ph_file *file = NULL;
    CHECK(got.code == 0, "%s", got.said);
    CHECK(ph_file_read(&file, in, NULL) == PH_OK && ph_file_find(file, "out"), "both");
    ph_file_free(file);

    const char *program = getenv("POLYHEAD");
    CHECK(ph_file_write(in, t.tensor, 3, NULL, 0, NULL) == PH_OK, "write");
    snprintf(line, sizeof line, "cat %s | %s run - -o - | cat >%s.piped", in,
             program ? program : "build/polyhead", in);
    CHECK(system(line) == 0, "%s", line);
    CHECK(ph_file_read(&file, trial_path("both.safetensors.piped"), NULL) == PH_OK,
          "pipe");
    CHECK(ph_file_find(file, "lse"), "lse");
    ph_file_free(file);
}

static const check_case cases[] = {{"tensors", tensors},
                                   {"values", values},
                                   {"options", options},
                                   {"no_accelerator", no_accelerator},
                                   {"variant_first", variant_first},
                                   {"command_line", command_line},
                                   {"no_memory", no_memory},
                                   {"bad_files", bad_files},
                                   {"empty_sizes", empty_sizes},
                                   {"types", types},
                                   {"dropout_repeats", dropout_repeats},
                                   {"places_of_out", places_of_out},
                                   {0, 0}};

int main(int argc, char **argv)
{
    uint64_t state = 5;
    for (int i = 0; i < 4096; i++) elements[i] = (float)check_uniform(&state) - 0.4f;
    if (trial_begin() != 0) return 1;
    int failed = check_main(argc, argv, cases);
    trial_end();
    return failed;
}
