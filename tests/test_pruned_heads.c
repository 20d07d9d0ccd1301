/*
 * test_pruned_heads.c - folders with pruned_heads, as transformers 4 wrote them: matrices
 * have no rows and columns of these heads. Each is cut out of a tiny checkpoint here, and
 * gives what the whole checkpoint gives whose output projections are 0 there.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"

enum { HEADS = 4, TENSORS = 128 };

/* The heads that are left of two layers; all of the second may be gone. */
static const char *const lists[] = {"{\"1\": [0, 3]}",
                                    "{\"0\": [2], \"1\": [0, 1, 2, 3]}"};
static const int kept[][2][HEADS] = {{{1, 1, 1, 1}, {0, 1, 1, 0}},
                                     {{1, 1, 0, 1}, {0, 0, 0, 0}}};

/* A tensor that has something of every head: ends of its names, along which axis, how
   many parts side by side, whether it is the output projection. */
typedef struct headed {
    const char *tail;
    int axis, parts, output;
} headed;

typedef struct pruned_model {
    const char *name, *layer; /* before the number of a layer */
    headed tensors[8];
} pruned_model;

static const pruned_model models[] = {
    {"bert",
     "encoder.layer.",
     {{"attention.self.query.weight", 0, 1, 0},
      {"attention.self.query.bias", 0, 1, 0},
      {"attention.self.key.weight", 0, 1, 0},
      {"attention.self.key.bias", 0, 1, 0},
      {"attention.self.value.weight", 0, 1, 0},
      {"attention.self.value.bias", 0, 1, 0},
      {"attention.output.dense.weight", 1, 1, 1}}},
    {"distilbert",
     "transformer.layer.",
     {{"attention.q_lin.weight", 0, 1, 0},
      {"attention.q_lin.bias", 0, 1, 0},
      {"attention.k_lin.weight", 0, 1, 0},
      {"attention.k_lin.bias", 0, 1, 0},
      {"attention.v_lin.weight", 0, 1, 0},
      {"attention.v_lin.bias", 0, 1, 0},
      {"attention.out_lin.weight", 1, 1, 1}}},
    {"gpt2",
     "h.",
     {{"attn.c_attn.weight", 1, 3, 0},
      {"attn.c_attn.bias", 0, 3, 0},
      {"attn.c_proj.weight", 0, 1, 1}}}};

static const headed *find_headed(const pruned_model *m, const char *name, int *layer)
{
    const char *at = strstr(name, m->layer);
    if (!at) return NULL;
    *layer = atoi(at + strlen(m->layer));
    for (const headed *h = m->tensors; h->tail; h++)
        if (strlen(name) > strlen(h->tail) &&
            !strcmp(name + strlen(name) - strlen(h->tail), h->tail))
            return h;
    return NULL;
}

/* Blocks of heads that are gone: left out, or 0 where the tensor stays whole. */
static void cut(ph_tensor *t, const headed *h, const int *left, int whole)
{
    size_t outer = (size_t)h->parts * (h->axis ? t->shape[0] : 1);
    size_t inner = t->bytes / outer / HEADS; /* bytes */
    const char *from = t->data;
    char *to = calloc(1, t->bytes), *at = to;
    int count = 0;
    for (int i = 0; i < HEADS; i++) count += left[i];
    for (size_t o = 0; o < outer; o++)
        for (int i = 0; i < HEADS; i++, from += inner) {
            if (left[i]) memcpy(at, from, inner);
            if (left[i] || whole) at += inner;
        }
    t->data = to;
    if (whole) return;
    t->shape[h->axis] = t->shape[h->axis] / HEADS * (size_t)count;
    t->bytes = t->bytes / HEADS * (size_t)count;
}

/* Tensors of a checkpoint with some heads gone, or all there and some of them 0. */
static void write_tensors(const pruned_model *m, const int left[2][HEADS], int whole)
{
    char path[160], error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_file *file;
    ph_tensor list[TENSORS];
    size_t count = 0;
    snprintf(path, sizeof path, FOLDER "%s/model.safetensors", m->name);
    CHECK(ph_file_read(&file, path, &io) == PH_OK, "%s", error);
    for (const ph_tensor *t; (t = ph_file_tensor(file, count)); count++) {
        int layer = 0;
        const headed *h = find_headed(m, t->name, &layer);
        CHECK(count < TENSORS, "%s", t->name);
        list[count] = *t;
        if (h && (h->output || !whole)) cut(&list[count], h, left[layer], whole);
    }
    unlink(path_of("model.safetensors"));
    CHECK(ph_file_write(path_of("model.safetensors"), list, count, NULL, 0, &io) == PH_OK,
          "%s", error);
    for (size_t i = 0; i < count; i++) {
        const ph_tensor *t = ph_file_tensor(file, i);
        if (list[i].data != t->data) free((void *)list[i].data);
    }
    ph_file_free(file);
}

/* What the model makes of the tokens of the checkpoint; to be freed. */
static float *run(ph_ctx *ctx, const char *name, int heads, size_t *count)
{
    char path[160];
    ph_file *golden;
    ph_model *m;
    ph_pass *p;
    snprintf(path, sizeof path, FOLDER "%s/golden.safetensors", name);
    CHECK(ph_file_read(&golden, path, NULL) == PH_OK, "no %s", path);
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s: %s", name, ph_error(ctx));
    CHECK(m->head_count == heads, "%s: %d heads, expected %d", name, m->head_count,
          heads);
    const ph_tensor *ids = ph_file_find(golden, "ids");
    ph_pass_shape shape = {.batch = 1, .source_len = (int)ids->shape[1], .open = 1};
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_pass_forward(p, &(ph_batch){.source = ids->data}, 0) == PH_OK, "%s",
          ph_error(ctx));
    const ph_pass_stack *s = &p->stacks[0];
    *count = (size_t)s->rows * (size_t)m->config.model_dim;
    float *out = malloc(*count * sizeof *out);
    memcpy(out, s->acts[s->def->count - 1].residual.n, *count * sizeof *out);
    ph_pass_free(p);
    ph_model_free(m);
    ph_file_free(golden);
    return out;
}

/* Both add the same terms but for zeros, in an order of their own. */
static void compare_runs(const char *name, const float *a, const float *b, size_t count)
{
    double square = 0, wrong = 0;
    for (size_t i = 0; i < count; i++) {
        double off = (double)a[i] - (double)b[i];
        square += (double)b[i] * (double)b[i], wrong += off * off;
    }
    CHECK(square > 0 && sqrt(wrong / square) < 1e-6, "%s: off by %g", name,
          sqrt(wrong / square));
}

static void folders(void)
{
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_pruned_heads.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < 2 * sizeof models / sizeof models[0]; i++) {
        const pruned_model *m = &models[i / 2];
        char config[128];
        size_t count, same;
        int heads = 0;
        for (int h = 0; h < 2 * HEADS; h++) heads += kept[i % 2][h / HEADS][h % HEADS];
        copy_file(m->name, "config.json", "", "");
        write_tensors(m, kept[i % 2], 1);
        float *whole = run(ctx, m->name, 2 * HEADS, &count);
        snprintf(config, sizeof config, "{\"pruned_heads\": %s,", lists[i % 2]);
        copy_file(m->name, "config.json", "{", config);
        write_tensors(m, kept[i % 2], 0);
        float *fewer = run(ctx, m->name, heads, &same);
        CHECK(same == count, "%zu values", same);
        compare_runs(m->name, fewer, whole, count);
        free(whole);
        free(fewer);
    }
    unlink(path_of("config.json"));
    unlink(path_of("model.safetensors"));
    rmdir(folder);
    ph_close(ctx);
}

#define PRUNED(list) "{\"pruned_heads\": " list ","

static void lies(void)
{
    static const lie all[] = {
        {"bert", "config.json", "{", PRUNED("{\"0\": [4]}"),
         "pruned_heads.0.0 is 4, expected a head, 0 to 3"},
        {"bert", "config.json", "{", PRUNED("{\"0\": [\"1\"]}"), "pruned_heads.0.0"},
        {"bert", "config.json", "{", PRUNED("{\"0\": 1}"),
         "pruned_heads.0 is 1, expected lists of heads of layers 0 to 1"},
        {"bert", "config.json", "{", PRUNED("{\"2\": [0]}"),
         "pruned_heads.2 is a list, expected lists of heads of layers 0 to 1"},
        {"bert", "config.json", "{", PRUNED("{\"0\": [1]}"),
         "query.weight' is F32 (32, 32), expected F32 (24, 32)"},
        {"llama", "config.json", "{", PRUNED("{\"0\": [1]}"),
         "pruned_heads is set, expected an encoder or a decoder whose heads have keys"},
        {"t5", "config.json", "{", PRUNED("{\"0\": [1]}"), "pruned_heads is set"}};
    refuse_all(all, sizeof all / sizeof all[0]);
}

static const check_case cases[] = {{"folders", folders}, {"lies", lies}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
