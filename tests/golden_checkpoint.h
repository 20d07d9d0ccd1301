/*
 * golden_checkpoint.h - tiny checkpoints of published architectures with what
 * transformers makes of them (tests/golden/checkpoints): read, run, compared; and folders
 * with a field that lies. Included after _GNU_SOURCE.
 */
#ifndef GOLDEN_CHECKPOINT_H
#define GOLDEN_CHECKPOINT_H

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "architectures/architecture.h"
#include "check.h"
#include "model/pass.h"

#define FOLDER "tests/golden/checkpoints/"

/* One checkpoint with its golden values. */
typedef struct checkpoint {
    const char *name;
    char path[128];
    ph_ctx *ctx;
    ph_model *m;
    ph_file *golden;
    ph_pass *p;
    ph_batch batch;
} checkpoint;

static inline ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "ph_open failed");
    return ctx;
}

static inline const ph_tensor *find(const checkpoint *c, const char *prefix,
                                    const char *name, int number)
{
    char whole[160];
    if (number < 0)
        snprintf(whole, sizeof whole, "%s%s", prefix, name);
    else
        snprintf(whole, sizeof whole, "%s%s.%d", prefix, name, number);
    return ph_file_find(c->golden, whole);
}

static inline void begin(checkpoint *c, const char *name, int own)
{
    char path[160];
    memset(c, 0, sizeof *c);
    c->name = name, c->ctx = open_ctx();
    snprintf(c->path, sizeof c->path, FOLDER "%s", name);
    snprintf(path, sizeof path, "%s/golden.safetensors", c->path);
    CHECK(ph_file_read(&c->golden, path, NULL) == PH_OK, "cannot read %s", path);
    if (strstr(name, "-gguf")) strcat(c->path, "/model.gguf");
    CHECK(ph_model_read(&c->m, c->ctx, c->path) == PH_OK, "%s: %s", name,
          ph_error(c->ctx));
    if (own) CHECK(ph_model_own(c->m) == PH_OK, "%s", ph_error(c->ctx));
    const ph_tensor *ids = find(c, "", "ids", -1), *types = find(c, "", "types", -1);
    const ph_tensor *labels = find(c, "", "labels", -1);
    const ph_tensor *pixels = find(c, "", "pixels", -1);
    const ph_tensor *features = find(c, "", "features", -1);
    const ph_tensor *target = find(c, "", "target", -1);
    ph_pass_shape shape = {.batch = 1};
    shape.open = !own, shape.backward = own;
    shape.source_len = pixels     ? c->m->config.max_len
                       : features ? (int)features->shape[1] / 2
                                  : (int)ids->shape[1];
    if (target) shape.target_len = (int)target->shape[1], c->batch.target = target->data;
    if (pixels)
        c->batch.pixels = pixels->data;
    else if (features)
        c->batch.features = features->data;
    else
        c->batch.source = ids->data;
    if (types) c->batch.types = types->data;
    if (labels) c->batch.labels = labels->data;
    const ph_tensor *wanted = find(c, "", "wanted", -1);
    if (wanted) c->batch.wanted = wanted->data;
    const ph_tensor *goal = find(c, "", "goal", -1);
    if (goal) c->batch.vectors = goal->data;
    CHECK(ph_pass_create(&c->p, c->m, &shape) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_pass_forward(c->p, &c->batch, 0) == PH_OK, "%s", ph_error(c->ctx));
}

static inline void end(checkpoint *c)
{
    ph_pass_free(c->p);
    ph_model_free(c->m);
    ph_file_free(c->golden);
    ph_close(c->ctx);
}

/* Within four times the error that the reference itself has in float32, and one rounding
   of the golden value, which is stored as a float. */
static inline void compare(const checkpoint *c, const char *name, int number,
                           const float *found)
{
    const ph_tensor *truth = find(c, "", name, number),
                    *own = find(c, "f32.", name, number);
    CHECK(truth && own, "%s has no %s.%d", c->name, name, number);
    const float *expected = truth->data;
    size_t count = truth->bytes / sizeof(float);
    double square = 0, wrong = 0;
    for (size_t i = 0; i < count; i++) {
        double off = (double)found[i] - (double)expected[i];
        square += (double)expected[i] * (double)expected[i], wrong += off * off;
    }
    double limit =
        4 * (double)*(const float *)own->data + 0x1p-24 * sqrt(square / (double)count);
    CHECK(sqrt(wrong / (double)count) <= limit, "%s: %s.%d is off by %.3g, expected %.3g",
          c->name, name, number, sqrt(wrong / (double)count), limit);
}

/* Weights of all heads of an attention site: sublayer number `sublayer` of a stack. */
static inline void compare_maps(const checkpoint *c, const char *name, int number,
                                int stack, int sublayer)
{
    const ph_pass_stack *s = &c->p->stacks[stack];
    int cross = s->def->sublayers[sublayer].kind == PH_SUBLAYER_CROSS;
    size_t len = (size_t)s->len, heads = (size_t)c->m->config.heads;
    size_t keys = cross ? (size_t)c->p->stacks[0].len : len;
    float *weights = malloc(heads * len * keys * sizeof *weights);
    float *out = malloc(len * heads * (size_t)c->m->config.head_dim * sizeof *out);
    ph_look_at at = {.weights = weights};
    CHECK(ph_attend_look(c->p, stack, sublayer, &at, out) == PH_OK, "%s",
          ph_error(c->ctx));
    compare(c, name, number, weights);
    free(weights);
    free(out);
}

/* ---- gradients --------------------------------------------------------------------- */

/* A gradient in the order of the checkpoint: matrices (out, in) unless they are tables or
   the architecture has them (in, out); `whole` holds all parts of a fused tensor. */
static inline void put_stored(const ph_weight *w, const ph_fused *f, int linear,
                              const float *grad, float *whole)
{
    size_t rows = w->rank == 2 ? (size_t)w->dims[0] : 1, columns = w->count / rows;
    for (size_t i = 0; i < w->count; i++) {
        size_t r = i / columns, c = ph_fused_at(f, i % columns);
        whole[linear ? c * rows + r : r * f->total + c] = grad[i];
    }
}

static inline void compare_gradients(const checkpoint *c, const float *grads)
{
    char error[512] = "", name[PH_IMPORT_NAME + 8];
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_checkpoint *file;
    ph_import in;
    int compared = 0;
    float *whole = malloc(c->m->floats * sizeof *whole);
    float *fused = malloc(c->m->floats * sizeof *fused);
    CHECK(ph_checkpoint_open(&file, c->path, &io) == PH_OK, "%s", error);
    CHECK(ph_import_begin(&in, c->ctx, file) == PH_OK, "%s", ph_error(c->ctx));
    for (int i = 0; i < c->m->param_count; i++) {
        const ph_weight *w = &c->m->params[i];
        const ph_tensor_name *n = ph_import_name(&in, w->name);
        strcpy(name, "grad.");
        ph_import_tensor(&in, w->name, name + 5);
        size_t outputs = w->rank == 2 ? (size_t)w->dims[1] : w->count;
        ph_fused f = ph_import_fused(&in, &c->m->config, n, outputs);
        float *to = n->parts ? fused : whole;
        put_stored(w, &f, w->rank == 2 && ph_import_is_linear(in.architecture, n),
                   grads + w->at, to);
        if (n->part + 1 < n->parts) continue;
        compare(c, name, -1, to);
        compared++;
    }
    CHECK(compared > 10, "%d gradients", compared);
    free(whole);
    free(fused);
    ph_checkpoint_free(file);
}

/* Compares the loss; returns the gradients of all parameters, to be freed. */
static inline float *compare_loss(const checkpoint *c)
{
    double loss;
    float *grads = calloc(c->m->floats, sizeof *grads);
    CHECK(ph_pass_loss(c->p, 0, 1, &loss) == PH_OK, "%s", ph_error(c->ctx));
    float as_float = (float)loss;
    compare(c, "loss", -1, &as_float);
    CHECK(ph_pass_backward(c->p, grads) == PH_OK, "%s", ph_error(c->ctx));
    return grads;
}

/* The model out of a file of ours: the same configuration and values. */
static inline ph_model *write_and_read(const checkpoint *c)
{
    char path[] = "/tmp/golden_checkpoint.XXXXXX";
    ph_model *again;
    close(mkstemp(path));
    CHECK(ph_model_write(c->m, path) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_model_read(&again, c->ctx, path) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(!memcmp(&again->config, &c->m->config, sizeof again->config), "%s: config",
          c->name);
    CHECK(!memcmp(again->block, c->m->block, c->m->floats * sizeof(float)),
          "%s: other values", c->name);
    unlink(path);
    return again;
}

/* ---- folders that lie -------------------------------------------------------------- */

static char folder[64];

static inline const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A copy of a file of a checkpoint with one text replaced; "": as it is. */
static inline void copy_file(const char *name, const char *file, const char *from,
                             const char *to)
{
    static char text[1 << 16];
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s/%s", name, file);
    FILE *in = fopen(path, "rb");
    if (!in) return;
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
    char *at = strstr(text, from);
    CHECK(at, "%s has no %s", path, from);
    FILE *out = fopen(path_of(file), "wb");
    fprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(out);
}

/* Files that may be replaced, and those that are linked. */
static const char *const folder_files[] = {
    "config.json",  "1_Pooling/config.json",     "2_Dense/config.json",
    "modules.json", "sentence_bert_config.json", "generation_config.json"};
static const char *const folder_tensors[] = {"model.safetensors",
                                             "2_Dense/model.safetensors"};

static inline void make_folder(const char *name, const char *file, const char *from,
                               const char *to)
{
    char path[256], *here = realpath(FOLDER, NULL);
    mkdir(path_of("1_Pooling"), 0700);
    mkdir(path_of("2_Dense"), 0700);
    for (int i = 0; i < 6; i++) {
        int replaced = !strcmp(folder_files[i], file);
        unlink(path_of(folder_files[i]));
        copy_file(name, folder_files[i], replaced ? from : "", replaced ? to : "");
    }
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s/%s", here, name, folder_tensors[i]);
        unlink(path_of(folder_tensors[i]));
        CHECK(symlink(path, path_of(folder_tensors[i])) == 0, "no link");
    }
    free(here);
}

static inline void remove_folder(void)
{
    for (int i = 0; i < 6; i++) unlink(path_of(folder_files[i]));
    for (int i = 0; i < 2; i++) unlink(path_of(folder_tensors[i]));
    rmdir(path_of("1_Pooling"));
    rmdir(path_of("2_Dense"));
    rmdir(folder);
}

/* One text of a file replaced by another, and what the refusal says. */
typedef struct lie {
    const char *name, *file, *from, *to, *sentence;
} lie;

static inline void refuse_all(const lie *lies, size_t count)
{
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_checkpoints.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < count; i++) {
        ph_model *m;
        make_folder(lies[i].name, lies[i].file, lies[i].from, lies[i].to);
        ph_status status = ph_model_read(&m, ctx, folder);
        CHECK(status != PH_OK && !m, "%s is accepted", lies[i].to);
        CHECK(strstr(ph_error(ctx), lies[i].sentence), "%s: \"%s\" lacks \"%s\"",
              lies[i].to, ph_error(ctx), lies[i].sentence);
    }
    remove_folder();
    ph_close(ctx);
}

#endif
