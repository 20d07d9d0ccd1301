/*
 * test_golden.c - the oracle and the engine against numbers computed by PyTorch.
 *
 * tests/golden/attention.bin holds the problems, tests/golden/make.py says how it was
 * made
 * and how it is laid out. The oracle must agree to the rounding of the stored floats, the
 * engine to a few of them.
 */
#include <math.h>

#include "sweep.h"

/* ---- reading the file ------------------------------------------------------------- */

static char *file, *file_end;

static void load(void)
{
    if (file) return;
    FILE *in = fopen("tests/golden/attention.bin", "rb");
    CHECK(in, "tests/golden/attention.bin is missing; start in the project's root");
    size_t capacity = 1 << 20;
    file = malloc(capacity);
    file_end = file + fread(file, 1, capacity - 1, in);
    *file_end = 0;
    fclose(in);
}

/* Value of "key=" in a line of text, or 0. */
static double field(const char *line, const char *key)
{
    const char *end = strchr(line, '\n');
    char word[40];
    snprintf(word, sizeof word, " %s=", key);
    const char *at = strstr(line, word);
    return at && at < end ? strtod(at + strlen(word), NULL) : 0;
}

typedef struct golden {
    char name[40];
    const char *line;    /* its first line                       */
    const char *tensors; /* where its tensors begin              */
} golden;

/* The data of a tensor, count elements, or NULL. Not aligned: read it with element(). */
static const char *find(const golden *g, const char *name, size_t *count)
{
    const char *at = g->tensors;
    char word[24];
    while (!strncmp(at, "tensor ", 7)) {
        unsigned long elements = 0;
        CHECK(sscanf(at, "tensor %20s %lu", word, &elements) == 2, "bad line in %s",
              g->name);
        const char *data = strchr(at, '\n') + 1;
        *count = elements;
        if (!strcmp(word, name)) return data;
        at = data + elements * sizeof(float) + 1;
    }
    CHECK(!strncmp(at, "end", 3), "case %s has no end", g->name);
    return NULL;
}

static double element(const char *data, size_t n)
{
    return oracle_decode(PH_F32, data, (int64_t)n);
}

/* Next case at or after *at; 0 at the end of the file. */
static int next(golden *g, const char **at)
{
    if (strncmp(*at, "case ", 5)) return 0;
    size_t count;
    sscanf(*at, "case %39s", g->name);
    g->line = *at;
    g->tensors = strchr(*at, '\n') + 1;
    find(g, "no such tensor", &count);
    const char *end = g->tensors;
    while (!strncmp(end, "tensor ", 7)) {
        unsigned long elements = 0;
        sscanf(end, "tensor %*s %lu", &elements);
        end = strchr(end, '\n') + 1 + elements * sizeof(float) + 1;
    }
    *at = end + 4; /* "end\n" */
    return 1;
}

/* ---- a problem from a case -------------------------------------------------------- */

static void put(tensor *t, const golden *g, const char *name)
{
    size_t count = 0, n = 0;
    const char *data = find(g, name, &count);
    if (!t->mem) return;
    CHECK(data && count == tensor_count(t), "%s: %s has %zu elements, expected %zu",
          g->name, name, count, tensor_count(t));
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++)
                for (int d = 0; d < t->dim; d++, n++)
                    tensor_set(t, b, h, i, d, element(data, n));
}

static void describe(problem *p, const golden *g, int layout)
{
    const char *l = g->line;
    size_t none;
    ph_attn a = {.batch = (int)field(l, "batch"),
                 .q_heads = (int)field(l, "q_heads"),
                 .k_heads = (int)field(l, "k_heads"),
                 .v_heads = (int)field(l, "v_heads"),
                 .q_len = (int)field(l, "q_len"),
                 .kv_len = (int)field(l, "kv_len"),
                 .qk_dim = (int)field(l, "qk_dim"),
                 .v_dim = (int)field(l, "v_dim"),
                 .mask = (ph_mask)field(l, "mask"),
                 .anchor = (ph_anchor)field(l, "anchor"),
                 .band_left = (int)field(l, "band_left"),
                 .q_offset = (int)field(l, "q_offset"),
                 .band_right = (int)field(l, "band_right"),
                 .scale = (float)field(l, "scale"),
                 .softcap = (float)field(l, "softcap"),
                 .dtype = (ph_dtype)field(l, "dtype"),
                 .gate = field(l, "gate_rows") != 0 ? PH_GATE_ROW : PH_GATE_HEAD,
                 .bias = {(int)field(l, "bias_batch"), (int)field(l, "bias_heads"),
                          (int)field(l, "bias_q_len")},
                 .visible = {(int)field(l, "visible_batch"),
                             (int)field(l, "visible_heads"),
                             (int)field(l, "visible_q_len")},
                 .backward = 1};
    case_with w = {.lse = 1,
                   .dlse = 1,
                   .clean = 1,
                   .layout = (case_layout)layout,
                   .gate = find(g, "gate", &none) != NULL,
                   .sink = find(g, "sink", &none) != NULL,
                   .alibi = find(g, "alibi", &none) != NULL,
                   .kv_lens = find(g, "kv_lens", &none) != NULL};
    p->attn = a;
    p->with = w;
    problem_build(p, 1);
}

static void fill(problem *p, const golden *g)
{
    tensor *to[] = {&p->q,    &p->k,     &p->v,    &p->bias, &p->gate,
                    &p->sink, &p->alibi, &p->dout, &p->dlse};
    static const char *const names[] = {"q",    "k",     "v",    "bias", "gate",
                                        "sink", "alibi", "dout", "dlse"};
    for (int n = 0; n < 9; n++) put(to[n], g, names[n]);
    size_t count = 0;
    const char *data = find(g, "kv_lens", &count);
    for (int b = 0; data && b < p->attn.batch; b++)
        p->kv_lens[b] = (int)element(data, (size_t)b);
    data = find(g, "visible", &count);
    for (size_t n = 0; data && n < count; n++) p->visible[n] = (uint8_t)element(data, n);
}

/* ---- comparing -------------------------------------------------------------------- */

enum { STORED = 214 }; /* results in the file */

static int compared; /* tensors that were found in the file */

/* tolerance is in units of the largest element of the tensor. */
static void same_elements(const golden *g, const char *name, const double *found,
                          double tolerance)
{
    size_t count = 0;
    double top = 0;
    const char *data = find(g, name, &count);
    if (!data) return;
    compared++;
    for (size_t n = 0; n < count; n++)
        if (isfinite(element(data, n))) top = fmax(top, fabs(element(data, n)));
    for (size_t n = 0; n < count; n++) {
        double want = element(data, n);
        CHECK(found[n] == want || fabs(found[n] - want) <= tolerance * top,
              "%s: %s[%zu] is %.9g, PyTorch has %.9g", g->name, name, n, found[n], want);
    }
}

static void same_tensor(const golden *g, const char *name, const tensor *t,
                        double tolerance)
{
    if (!t->mem) return;
    double *elements = malloc((tensor_count(t) + 1) * sizeof *elements);
    size_t n = 0;
    for (int b = 0; b < t->batch; b++)
        for (int h = 0; h < t->heads; h++)
            for (int i = 0; i < t->len; i++)
                for (int d = 0; d < t->dim; d++)
                    elements[n++] = tensor_get(t, b, h, i, d);
    same_elements(g, name, elements, tolerance);
    free(elements);
}

static void oracle_agrees(void)
{
    load();
    golden g;
    int cases = 0;
    compared = 0;
    for (const char *at = file; next(&g, &at); cases++) {
        problem p;
        dense d;
        answer a;
        describe(&p, &g, LAYOUT_PACKED);
        fill(&p, &g);
        dense_load(&d, &p.attn, &p.args, &p.grads);
        answer_init(&a, &d, 1);
        oracle_forward(&d, &a, NULL);
        oracle_backward(&d, &a, NULL);
        const double *found[] = {a.out, a.lse,   a.dq,    a.dk,
                                 a.dv,  a.dbias, a.dgate, a.dsink};
        static const char *const names[] = {"out", "lse",   "dq",    "dk",
                                            "dv",  "dbias", "dgate", "dsink"};
        /* float64 stored as float32, or computed in float32 */
        double tolerance = strstr(g.name, "-f32") ? 1e-6 : 6.1e-8;
        for (int n = 0; n < 8; n++)
            if (found[n]) same_elements(&g, names[n], found[n], tolerance);
        answer_free(&a);
        dense_free(&d);
        problem_free(&p);
    }
    CHECK(cases == 40 && compared == STORED, "%d tensors of %d cases", compared, cases);
}

static void engine_agrees(void)
{
    load();
    static const double steps[] = {2e-6, 1.0 / 1024, 1.0 / 128}; /* of f32, f16, bf16 */
    golden g;
    int isas = 0;
    compared = 0;
    FOR_EACH_ISA(isa) isas++;
    for (const char *at = file; next(&g, &at);)
        for (int layout = LAYOUT_PACKED; layout <= LAYOUT_TIME; layout++) {
            problem p;
            describe(&p, &g, layout);
            fill(&p, &g);
            FOR_EACH_ISA(isa)
            {
                ph_ctx *ctx = need_ctx(*isa);
                problem_wipe(&p);
                must(ctx, drive_backward(ctx, &p));
                double tolerance = steps[p.attn.dtype];
                same_tensor(&g, "out", &p.out, tolerance);
                same_tensor(&g, "lse", &p.lse, 1e-6);
                same_tensor(&g, "dq", &p.dq, 4 * tolerance);
                same_tensor(&g, "dk", &p.dk, 4 * tolerance);
                same_tensor(&g, "dv", &p.dv, 4 * tolerance);
                same_tensor(&g, "dbias", &p.dbias, 4 * tolerance);
                same_tensor(&g, "dgate", &p.dgate, 4 * tolerance);
                same_tensor(&g, "dsink", &p.dsink, 4 * tolerance);
            }
            problem_free(&p);
        }
    CHECK(compared == 4 * isas * STORED, "%d tensors for %d instruction sets", compared,
          isas);
}

static const check_case cases[] = {
    {"oracle_agrees", oracle_agrees},
    {"engine_agrees", engine_agrees},
    {0, 0},
};

int main(int argc, char **argv)
{
    int status = sweep_main(argc, argv, cases);
    free(file);
    return status;
}
