/*
 * test_layer_golden.c - the layer and its oracle against numbers computed by PyTorch.
 *
 * tests/golden_layer/layers.bin holds the problems, make.py beside it says how it was
 * made and how it is laid out. The oracle must agree to the rounding of the stored
 * floats, the library to a few of them.
 */
#include <math.h>

#include "check.h"
#include "layer_oracle.h"

/* ---- reading the file ------------------------------------------------------------- */

static char *file;

static void load(void)
{
    if (file) return;
    FILE *in = fopen("tests/golden_layer/layers.bin", "rb");
    CHECK(in, "tests/golden_layer/layers.bin is missing; start in the project's root");
    size_t capacity = 1 << 20;
    file = malloc(capacity);
    file[fread(file, 1, capacity - 1, in)] = 0;
    fclose(in);
}

typedef struct golden {
    char name[40];
    const char *line;    /* its first line */
    const char *tensors; /* where its tensors begin */
    const char *next;    /* the case behind it */
} golden;

/* Value of "key=" in the first line of a case, or 0. */
static double field(const golden *g, const char *key)
{
    char word[40];
    snprintf(word, sizeof word, " %s=", key);
    const char *at = strstr(g->line, word);
    return at && at < g->tensors ? strtod(at + strlen(word), NULL) : 0;
}

static int number(const golden *g, const char *key)
{
    return (int)field(g, key);
}

/* The data of a tensor and its count, or NULL; it is not aligned. With an empty name the
   end of the case. */
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
    CHECK(!strncmp(at, "end\n", 4), "case %s has no end", g->name);
    return name[0] ? NULL : at + 4;
}

static int next_case(golden *g, const char *at)
{
    size_t count;
    if (strncmp(at, "case ", 5)) return 0;
    CHECK(sscanf(at, "case %39s", g->name) == 1, "a case without a name");
    g->line = at;
    g->tensors = strchr(at, '\n') + 1;
    g->next = find(g, "", &count);
    return 1;
}

static double element(const char *data, size_t i)
{
    float x;
    memcpy(&x, data + i * sizeof x, sizeof x);
    return (double)x;
}

/* ---- a case as a problem ---------------------------------------------------------- */

static ph_layer_desc describe(const golden *g)
{
    ph_layer_desc d = {.model_dim = number(g, "model_dim"),
                       .memory_dim = number(g, "memory_dim"),
                       .out_dim = number(g, "out_dim"),
                       .rope = (ph_rope)number(g, "rope"),
                       .rope_base = (float)field(g, "rope_base"),
                       .rope_dims = number(g, "qk_dim"),
                       .qk_norm = number(g, "qk_norm"),
                       .norm_eps = 1e-6f};
    d.attn = (ph_attn){.batch = number(g, "batch"),
                       .q_heads = number(g, "q_heads"),
                       .k_heads = number(g, "k_heads"),
                       .v_heads = number(g, "v_heads"),
                       .q_len = number(g, "q_len"),
                       .kv_len = number(g, "kv_len"),
                       .qk_dim = number(g, "qk_dim"),
                       .v_dim = number(g, "v_dim"),
                       .mask = (ph_mask)number(g, "mask"),
                       .backward = 1};
    d.attn.bias = (ph_broadcast){number(g, "bias_batch"), number(g, "bias_heads"),
                                 number(g, "bias_q_len")};
    return d;
}

static int32_t *lens_of(layer_case *c, const golden *g, const char *name)
{
    size_t count;
    const char *data = find(g, name, &count);
    int batch = c->desc.attn.batch;
    int32_t *lens = malloc((size_t)batch * sizeof *lens);
    for (int b = 0; b < batch; b++)
        lens[b] = data ? (int32_t)element(data, (size_t)b) : number(g, name);
    return lens;
}

static void build(layer_case *c, const golden *g)
{
    size_t count;
    unsigned have = 1u << LT_OUT | 1u << LT_HEADS | 1u << LT_LSE;
    memset(c, 0, sizeof *c);
    c->desc = describe(g);
    for (int id = 0; id < LT_OUT; id++)
        if (find(g, layer_names[id], &count)) have |= 1u << id;
    layer_build(c, 1, have, 0);
    for (int id = 0; id < LT_OUT; id++) {
        const char *data = find(g, layer_names[id], &count);
        if (!data) continue;
        CHECK(count == c->t[id].count, "%s: %zu elements in %s, expected %zu", g->name,
              count, layer_names[id], c->t[id].count);
        memcpy(c->t[id].data, data, count * sizeof(float));
        for (size_t i = 0; i < count; i++) c->t[id].value[i] = element(data, i);
    }
    if (find(g, "kv_lens", &count))
        c->args.attn.kv_lens = c->kv_lens = lens_of(c, g, "kv_lens");
    if (number(g, "past")) c->args.past = c->past = lens_of(c, g, "past");
}

static void run(layer_case *c, const char *name)
{
    ph_ctx *ctx = NULL;
    ph_layer *layer = NULL;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "no context");
    CHECK(ph_layer_create(&layer, ctx, &c->desc) == PH_OK, "%s: %s", name, ph_error(ctx));
    c->args.saved_size = ph_layer_saved(layer);
    c->args.saved = c->saved = aligned_alloc(64, c->args.saved_size + 64);
    CHECK(ph_layer_forward(layer, &c->weights, &c->args) == PH_OK, "%s: %s", name,
          ph_error(ctx));
    CHECK(ph_layer_backward(layer, &c->weights, &c->args, &c->grads) == PH_OK, "%s: %s",
          name, ph_error(ctx));
    ph_layer_free(layer);
    ph_close(ctx);
}

static int compared; /* tensors that were found in the file */

/* The oracle and the library against one stored tensor. */
static void compare(const layer_case *c, const golden *g, const layer_tensor *t, int id,
                    const char *prefix)
{
    char name[24];
    size_t count;
    double largest = 0;
    snprintf(name, sizeof name, "%s%s", prefix, layer_names[id]);
    const char *data = find(g, name, &count);
    if (!data) return;
    compared++;
    CHECK(count == t->count, "%s: %zu elements in %s, expected %zu", g->name, count, name,
          t->count);
    for (size_t i = 0; i < count; i++) largest = fmax(largest, fabs(element(data, i)));
    for (size_t i = 0; i < count; i++) {
        double want = element(data, i), found = layer_get(c, t, id, i);
        CHECK(fabs(t->value[i] - want) <= 1e-6 * largest + 1e-9,
              "%s: the oracle's %s[%zu] is %.9g, "
              "PyTorch's %.9g",
              g->name, name, i, t->value[i], want);
        CHECK(fabs(found - want) <= 1e-5 * largest + 2e-6,
              "%s: %s[%zu] is %.9g, PyTorch's %.9g", g->name, name, i, found, want);
    }
}

static void every_case(void)
{
    golden g;
    int count = 0;
    load();
    for (const char *at = file; next_case(&g, at); at = g.next, count++) {
        layer_case c;
        build(&c, &g);
        run(&c, g.name);
        layer_oracle_forward(&c);
        layer_oracle_backward(&c);
        compare(&c, &g, &c.t[LT_OUT], LT_OUT, "");
        for (int id = 0; id < LT_BIAS; id++)
            if (c.g[id].data) compare(&c, &g, &c.g[id], id, "d");
        layer_case_free(&c);
    }
    CHECK(count == 15 && compared == 128, "%d tensors of %d cases", compared, count);
}

static const check_case cases[] = {{"every_case", every_case}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
