/*
 * test_encoders.c - tiny encoders of published architectures against what transformers
 * makes of them (tests/golden/checkpoints, written by encoders.py there): hidden states,
 * weights of every head, scores, gradients of every parameter; vectors and classes of
 * texts; and what is refused.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "architectures/architecture.h"
#include "check.h"
#include "model/pass.h"

#define FOLDER "tests/golden/checkpoints/"

static const char *const names[] = {"bert",
                                    "bert-classes",
                                    "bert-sentence",
                                    "roberta",
                                    "roberta-classes",
                                    "roberta-tokens",
                                    "distilbert",
                                    "distilbert-classes",
                                    "vit",
                                    "vit-plain",
                                    "deit"};

enum { COUNT = sizeof names / sizeof names[0] };

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

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "ph_open failed");
    return ctx;
}

static const ph_tensor *find(const checkpoint *c, const char *prefix, const char *name,
                             int number)
{
    char whole[160];
    if (number < 0)
        snprintf(whole, sizeof whole, "%s%s", prefix, name);
    else
        snprintf(whole, sizeof whole, "%s%s.%d", prefix, name, number);
    return ph_file_find(c->golden, whole);
}

static void begin(checkpoint *c, const char *name, int own)
{
    char path[160];
    memset(c, 0, sizeof *c);
    c->name = name, c->ctx = open_ctx();
    snprintf(c->path, sizeof c->path, FOLDER "%s", name);
    snprintf(path, sizeof path, "%s/golden.safetensors", c->path);
    CHECK(ph_file_read(&c->golden, path, NULL) == PH_OK, "cannot read %s", path);
    CHECK(ph_model_read(&c->m, c->ctx, c->path) == PH_OK, "%s: %s", name,
          ph_error(c->ctx));
    if (own) CHECK(ph_model_own(c->m) == PH_OK, "%s", ph_error(c->ctx));
    const ph_tensor *ids = find(c, "", "ids", -1), *types = find(c, "", "types", -1);
    const ph_tensor *labels = find(c, "", "labels", -1);
    const ph_tensor *pixels = find(c, "", "pixels", -1);
    ph_pass_shape shape = {.batch = 1};
    shape.open = !own, shape.backward = own;
    shape.source_len = pixels ? c->m->config.max_len : (int)ids->shape[1];
    if (pixels)
        c->batch.pixels = pixels->data;
    else
        c->batch.source = ids->data;
    if (types) c->batch.types = types->data;
    if (labels) c->batch.labels = labels->data;
    CHECK(ph_pass_create(&c->p, c->m, &shape) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_pass_forward(c->p, &c->batch, 0) == PH_OK, "%s", ph_error(c->ctx));
}

static void end(checkpoint *c)
{
    ph_pass_free(c->p);
    ph_model_free(c->m);
    ph_file_free(c->golden);
    ph_close(c->ctx);
}

/* Within four times the error that the reference itself has in float32, and one rounding
   of the golden value, which is stored as a float. */
static void compare(const checkpoint *c, const char *name, int number, const float *found)
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

/* ---- values ------------------------------------------------------------------------ */

static const float *hidden_state(const ph_pass *p, int layer)
{
    const ph_pass_stack *s = &p->stacks[0];
    int post = p->model->config.norm_place == PH_POST_NORM;
    const ph_residual *r = layer ? &s->acts[2 * layer - 1].residual : &s->entry;
    return post ? r->n : r->s;
}

static void compare_maps(const checkpoint *c, int layer)
{
    size_t len = (size_t)c->p->stacks[0].len, heads = (size_t)c->m->config.heads;
    float *weights = malloc(heads * len * len * sizeof *weights);
    float *out = malloc(len * heads * (size_t)c->m->config.head_dim * sizeof *out);
    ph_look_at at = {.weights = weights};
    CHECK(ph_attend_look(c->p, 0, 2 * layer, &at, out) == PH_OK, "%s", ph_error(c->ctx));
    compare(c, "attention", layer, weights);
    free(weights);
    free(out);
}

static void parity(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 0);
        for (int l = 0; l <= c.m->config.layers; l++)
            compare(&c, "hidden", l, hidden_state(c.p, l));
        for (int l = 0; l < c.m->config.layers; l++) compare_maps(&c, l);
        if (c.m->classifier >= 0) {
            compare(&c, "logits", -1, c.p->pooled->scores);
        } else if (c.m->masked >= 0) {
            CHECK(ph_pass_logits(c.p) == PH_OK, "%s", ph_error(c.ctx));
            compare(&c, "logits", -1, c.p->logits);
        } else if (c.m->config.image_size) {
            compare(&c, "vector", -1, c.p->pooled->out);
        }
        end(&c);
    }
}

/* ---- gradients --------------------------------------------------------------------- */

/* A gradient in the order of the checkpoint: matrices (out, in), tables as ours. */
static float *as_stored(const ph_weight *w, const float *grad, int table)
{
    float *to = malloc(w->count * sizeof *to);
    size_t rows = (size_t)w->dims[0], columns = w->count / rows;
    for (size_t i = 0; i < w->count; i++) {
        size_t r = i / columns, c = i % columns;
        to[w->rank == 2 && !table ? c * rows + r : i] = grad[i];
    }
    return to;
}

static void compare_gradients(const checkpoint *c, const float *grads)
{
    char error[512] = "", name[PH_IMPORT_NAME + 8];
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_checkpoint *file;
    ph_import in;
    int compared = 0;
    CHECK(ph_checkpoint_open(&file, c->path, &io) == PH_OK, "%s", error);
    CHECK(ph_import_begin(&in, c->ctx, file) == PH_OK, "%s", ph_error(c->ctx));
    for (int i = 0; i < c->m->param_count; i++) {
        const ph_weight *w = &c->m->params[i];
        strcpy(name, "grad.");
        ph_import_tensor(&in, w->name, name + 5);
        float *found = as_stored(w, grads + w->at, ph_import_name(&in, w->name)->table);
        compare(c, name, -1, found);
        free(found);
        compared++;
    }
    CHECK(compared > 30, "%d gradients", compared);
    ph_checkpoint_free(file);
}

static void gradients(void)
{
    int models = 0;
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        double loss;
        begin(&c, names[i], 1);
        if (find(&c, "grad.", "classifier.bias", -1) ||
            find(&c, "grad.", "classifier.out_proj.bias", -1) ||
            find(&c, "grad.", "cls.predictions.bias", -1)) {
            float *grads = calloc(c.m->floats, sizeof *grads);
            CHECK(ph_pass_loss(c.p, 0, 1, &loss) == PH_OK, "%s", ph_error(c.ctx));
            float as_float = (float)loss;
            compare(&c, "loss", -1, &as_float);
            CHECK(ph_pass_backward(c.p, grads) == PH_OK, "%s", ph_error(c.ctx));
            compare_gradients(&c, grads);
            free(grads);
            models++;
        }
        end(&c);
    }
    CHECK(models == 5, "%d models with gradients", models);
}

/* ---- texts ------------------------------------------------------------------------- */

static const char *const texts[] = {
    "the cat sat on the mat.", "dog", "is the dog good?",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z"};
enum { TEXTS = 4, DIM = 32 };

/* A text alone has the bits it has in a batch; the mean of a pass, of norm 1. */
static void vectors(void)
{
    checkpoint c;
    float all[TEXTS * DIM], one[DIM];
    begin(&c, "bert-sentence", 0);
    const ph_config *k = ph_model_config(c.m);
    CHECK(k->pooling == PH_POOL_MEAN && k->unit_norm && k->pool_len == 20,
          "pooling %d, norm %d, length %d", k->pooling, k->unit_norm, k->pool_len);
    const float *expected = find(&c, "", "vector", -1)->data;
    for (int d = 0; d < DIM; d++) /* the rms of a vector of norm 1 is 0.18 */
        CHECK(fabsf(c.p->pooled->out[d] - expected[d]) < 1e-6f,
              "element %d is %g, not %g", d, (double)c.p->pooled->out[d],
              (double)expected[d]);
    CHECK(ph_model_embed(c.m, &(ph_texts){.texts = texts, .count = TEXTS}, all) == PH_OK,
          "%s", ph_error(c.ctx));
    for (int i = 0; i < TEXTS; i++) {
        CHECK(ph_model_embed(c.m, &(ph_texts){.texts = texts + i, .count = 1}, one) ==
                  PH_OK,
              "%s", ph_error(c.ctx));
        CHECK(!memcmp(one, all + i * DIM, sizeof one), "text %d: other bits alone", i);
    }
    /* 26 letters and two marks are more than 20: the last letters do not count */
    const char *shorter = "a b c d e f g h i j k l m n o p q r";
    CHECK(ph_model_embed(c.m, &(ph_texts){.texts = &shorter, .count = 1}, one) == PH_OK,
          "%s", ph_error(c.ctx));
    CHECK(!memcmp(one, all + 3 * DIM, sizeof one), "not truncated to 20 tokens");
    CHECK(ph_model_embed(c.m, &(ph_texts){.texts = texts}, one) == PH_BAD_ARGUMENT,
          "none");
    CHECK(ph_model_classify(c.m, &(ph_texts){.texts = texts, .count = 1}, one) ==
                  PH_UNSUPPORTED &&
              strstr(ph_error(c.ctx), "no classifier"),
          "%s", ph_error(c.ctx));
    end(&c);
}

/* More texts than one batch, in any order of lengths. */
static void many_texts(void)
{
    enum { MANY = 70 };
    static const char *list[MANY];
    static float all[MANY * DIM], one[DIM];
    checkpoint c;
    begin(&c, "bert", 0);
    for (int i = 0; i < MANY; i++) list[i] = texts[(i * 7 + i / 5) % TEXTS];
    CHECK(ph_model_embed(c.m, &(ph_texts){.texts = list, .count = MANY}, all) == PH_OK,
          "%s", ph_error(c.ctx));
    for (int i = 0; i < MANY; i++) {
        CHECK(ph_model_embed(c.m, &(ph_texts){.texts = list + i, .count = 1}, one) ==
                  PH_OK,
              "%s", ph_error(c.ctx));
        CHECK(!memcmp(one, all + i * DIM, sizeof one), "text %d: other bits alone", i);
    }
    end(&c);
}

static void classes(void)
{
    static const char *const first[] = {"the cat", "the cat"}, *const second[] = {"sat",
                                                                                  "dog"};
    checkpoint c;
    float scores[6];
    begin(&c, "bert-classes", 0);
    CHECK(!strcmp(ph_model_class(c.m, 0), "bad") &&
              !strcmp(ph_model_class(c.m, 2), "good") && !*ph_model_class(c.m, 3) &&
              !*ph_model_class(c.m, -1),
          "names of classes");
    CHECK(ph_model_classify(c.m, &(ph_texts){.texts = first, .pairs = second, .count = 2},
                            scores) == PH_OK,
          "%s", ph_error(c.ctx));
    CHECK(memcmp(scores, scores + 3, 3 * sizeof *scores), "the second text is not read");
    end(&c);
    begin(&c, "roberta-tokens", 0);
    CHECK(ph_model_classify(c.m, &(ph_texts){.texts = first, .count = 1}, scores) ==
                  PH_UNSUPPORTED &&
              strstr(ph_error(c.ctx), "no vector of a text"),
          "%s", ph_error(c.ctx));
    end(&c);
}

/* Two pictures, each with the values it has alone. */
static void pictures(void)
{
    enum { SIZE = 3 * 12 * 12 };
    static float pixels[2 * SIZE], vectors[2 * DIM];
    checkpoint c;
    float scores[6];
    begin(&c, "vit", 0);
    memcpy(pixels, c.batch.pixels, SIZE * sizeof *pixels);
    memcpy(pixels + SIZE, c.batch.pixels, SIZE * sizeof *pixels);
    pixels[SIZE] += 1;
    CHECK(ph_model_pictures(c.m, pixels, 2, vectors, scores) == PH_OK, "%s",
          ph_error(c.ctx));
    compare(&c, "logits", -1, scores);
    CHECK(memcmp(scores, scores + 3, 3 * sizeof *scores), "the second picture is unread");
    CHECK(ph_model_embed(c.m, &(ph_texts){.texts = texts, .count = 1}, vectors) ==
                  PH_UNSUPPORTED &&
              strstr(ph_error(c.ctx), "reads pictures, not text"),
          "%s", ph_error(c.ctx));
    CHECK(ph_model_pictures(c.m, NULL, 1, NULL, scores) == PH_BAD_ARGUMENT, "no pixels");
    end(&c);
    begin(&c, "vit-plain", 0);
    CHECK(ph_model_pictures(c.m, pixels, 1, NULL, scores) == PH_UNSUPPORTED, "classes");
    end(&c);
    begin(&c, "bert", 0);
    CHECK(ph_model_pictures(c.m, pixels, 1, vectors, NULL) == PH_UNSUPPORTED &&
              strstr(ph_error(c.ctx), "reads text, not pictures"),
          "%s", ph_error(c.ctx));
    end(&c);
}

/* What a masked token may be, through a reading. */
static void masked(void)
{
    checkpoint c;
    ph_reading *r;
    begin(&c, "bert", 0);
    CHECK(ph_model_mask(c.m) == 4, "the mask is token %d", ph_model_mask(c.m));
    CHECK(ph_reading_create(&r, c.m, "the [MASK] sat", NULL) == PH_OK, "%s",
          ph_error(c.ctx));
    CHECK(ph_reading_length(r, 0) == 5 && ph_reading_word(r, 0, 2)->token == 4,
          "%d tokens", ph_reading_length(r, 0));
    float *log_p = malloc(5 * 97 * sizeof *log_p);
    double sum = 0;
    CHECK(ph_reading_next(r, log_p) == PH_OK, "%s", ph_error(c.ctx));
    for (int v = 0; v < 97; v++) sum += exp((double)log_p[2 * 97 + v]);
    /* a logarithm below 16 is rounded by 2^-21, its sum before that by 8 units */
    CHECK(fabs(sum - 1) < 0x1p-20, "probabilities sum to %g", sum);
    free(log_p);
    ph_reading_free(r);
    end(&c);
}

/* ---- our own checkpoints ----------------------------------------------------------- */

static void own_files(void)
{
    for (int i = 0; i < COUNT; i++) {
        char path[] = "/tmp/test_encoders.XXXXXX";
        checkpoint c;
        ph_model *again;
        begin(&c, names[i], 1);
        close(mkstemp(path));
        CHECK(ph_model_write(c.m, path) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(ph_model_read(&again, c.ctx, path) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(!memcmp(&again->config, &c.m->config, sizeof again->config), "%s: config",
              names[i]);
        CHECK(!memcmp(again->block, c.m->block, c.m->floats * sizeof(float)),
              "%s: other values", names[i]);
        unlink(path);
        ph_model_free(again);
        end(&c);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A copy of a file of a checkpoint with one text replaced; "": as it is. */
static void copy_file(const char *name, const char *file, const char *from,
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

static void make_folder(const char *name, const char *file, const char *from,
                        const char *to)
{
    static const char *const files[] = {"config.json", "modules.json",
                                        "1_Pooling/config.json",
                                        "sentence_bert_config.json"};
    char path[256];
    mkdir(path_of("1_Pooling"), 0700);
    for (int i = 0; i < 4; i++) {
        int here = !strcmp(files[i], file);
        unlink(path_of(files[i]));
        copy_file(name, files[i], here ? from : "", here ? to : "");
    }
    char *here = realpath(FOLDER, NULL);
    snprintf(path, sizeof path, "%s/%s/model.safetensors", here, name);
    unlink(path_of("model.safetensors"));
    CHECK(symlink(path, path_of("model.safetensors")) == 0, "no link");
    free(here);
}

static void remove_folder(void)
{
    static const char *const files[] = {"config.json", "modules.json",
                                        "1_Pooling/config.json",
                                        "sentence_bert_config.json", "model.safetensors"};
    for (int i = 0; i < 5; i++) unlink(path_of(files[i]));
    rmdir(path_of("1_Pooling"));
    rmdir(folder);
}

static void config_lies(void)
{
    static const struct {
        const char *name, *file, *from, *to, *sentence;
    } lies[] = {
        {"bert", "config.json", "\"hidden_size\": 32", "\"hidden_size\": 36",
         "expected F32 (97, 36)"},
        {"bert", "config.json", "heads\": 4", "heads\": 5", "no multiple of heads 5"},
        {"bert", "config.json", "heads\": 4", "heads\": 0", "heads is 0"},
        {"bert", "config.json", "layers\": 2", "layers\": 3", "is missing"},
        {"bert", "config.json", "layers\": 2", "layers\": 1",
         "tensor 'bert.encoder.layer.1."},
        {"bert", "config.json", "type_vocab_size\": 3", "type_vocab_size\": 2",
         "token_type_embeddings.weight' is F32 (3, 32)"},
        {"bert", "config.json", "type_vocab_size\": 3", "type_vocab_size\": 0",
         "token_type_embeddings.weight' is unknown"},
        {"bert", "config.json", "type_vocab_size\": 3", "type_vocab_size\": 1e9",
         "types is 1000000000"},
        {"bert", "config.json", "embeddings\": 40", "embeddings\": 41",
         "position_embeddings.weight' is F32 (40"},
        {"bert", "config.json", "embeddings\": 40", "embeddings\": 0", "max_len is 0"},
        {"bert", "config.json", "eps\": 0.001", "eps\": -1", "at least 0"},
        {"bert", "config.json", "\"gelu\"", "\"swish\"", "activation 'swish' is unknown"},
        {"bert", "config.json", "\"gelu\"", "7", "expected a text"},
        {"bert", "config.json", "\"is_decoder\": false", "\"is_decoder\": true",
         "is_decoder is true"},
        {"bert", "config.json", "\"bert\"",
         "\"bert\", \"position_embedding_type\": \"relative_key\"",
         "position_embedding_type is 'relative_key'"},
        {"roberta", "config.json", "pad_token_id\": 5", "pad_token_id\": 99",
         "max_len is -60"},
        {"roberta", "config.json", "\"gelu\"", "\"relu\"", "hidden_act differs"},
        {"vit", "config.json", "image_size\": 12", "image_size\": 13",
         "image_size 13 is no multiple of patch_size 4"},
        {"vit", "config.json", "image_size\": 12", "image_size\": 16",
         "position_embeddings' is F32 (10, 32)"},
        {"vit", "config.json", "image_size\": 12", "image_size\": [12, 12]",
         "expected a whole number"},
        {"vit", "config.json", "image_size\": 12", "image_size\": 1e9",
         "image_size is 1000000000"},
        {"vit", "config.json", "patch_size\": 4", "patch_size\": 0", "patch_size 0"},
        {"vit", "config.json", "patch_size\": 4", "patch_size\": 6",
         "projection.weight' is F32 (32, 48), expected F32 (32, 108)"},
        {"vit", "config.json", "num_channels\": 3", "num_channels\": 1000000",
         "channels is 1000000"},
        {"vit", "config.json", "ViTForImageClassification", "ViTForXWithTeacher",
         "has two classifiers"},
        {"bert-sentence", "modules.json", "models.Normalize", "models.Dense",
         "expected a Transformer, Pooling or Normalize"},
        {"bert-sentence", "modules.json", "\"type\": \"sentence_transformers.models.Norm",
         "\"type\": 3, \"x\": \"", "expected a text"},
        {"bert-sentence", "1_Pooling/config.json", "max_tokens\": false",
         "max_tokens\": true", "has 2 ways to pool"},
        {"bert-sentence", "1_Pooling/config.json", "mean_tokens\": true",
         "mean_tokens\": false", "has 0 ways to pool"},
        {"bert-sentence", "1_Pooling/config.json", "\"pooling_mode_cls",
         "\"pooling_mode\": \"sum\", \"pooling_mode_cls", "has 0 ways to pool"},
        {"bert-sentence", "sentence_bert_config.json", "20", "-20",
         "expected a whole number"}};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_encoders.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
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

/* Ways to pool by their names, old and new. */
static void poolings(void)
{
    static const struct {
        const char *mode;
        ph_pooling pooling;
    } list[] = {{"cls", PH_POOL_FIRST},
                {"max", PH_POOL_MAX},
                {"mean_sqrt_len_tokens", PH_POOL_MEAN_SQRT},
                {"weightedmean", PH_POOL_WEIGHTED},
                {"lasttoken", PH_POOL_LAST}};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_encoders.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char to[96];
        ph_model *m;
        snprintf(to, sizeof to, "\"pooling_mode\": \"%s\", \"pooling_mode_cls",
                 list[i].mode);
        make_folder("bert-sentence", "1_Pooling/config.json", "\"pooling_mode_cls", to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_config(m)->pooling == list[i].pooling, "%s", list[i].mode);
        ph_model_free(m);
    }
    remove_folder();
    ph_close(ctx);
}

static const check_case cases[] = {{"parity", parity},
                                   {"gradients", gradients},
                                   {"vectors", vectors},
                                   {"many_texts", many_texts},
                                   {"classes", classes},
                                   {"pictures", pictures},
                                   {"masked", masked},
                                   {"own_files", own_files},
                                   {"config_lies", config_lies},
                                   {"poolings", poolings},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
