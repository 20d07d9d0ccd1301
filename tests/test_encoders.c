/*
 * test_encoders.c - tiny encoders of published architectures against what transformers
 * makes of them (tests/golden/checkpoints, written by encoders.py there): hidden states,
 * weights of every head, scores, gradients of every parameter; vectors and classes of
 * texts; and what is refused.
 */
#define _GNU_SOURCE
#include <math.h>
#include <unistd.h>

#include "golden_checkpoint.h"

static const char *const names[] = {"bert",
                                    "bert-classes",
                                    "bert-sentence",
                                    "roberta",
                                    "roberta-classes",
                                    "roberta-tokens",
                                    "distilbert",
                                    "distilbert-classes",
                                    "distilbert-multi",
                                    "bert-untied",
                                    "roberta-untied",
                                    "distilbert-untied",
                                    "vit",
                                    "vit-plain",
                                    "deit",
                                    "deit-teacher",
                                    "mpnet",
                                    "mpnet-classes",
                                    "mpnet-tokens",
                                    "electra",
                                    "electra-classes",
                                    "electra-tokens",
                                    "albert",
                                    "albert-classes",
                                    "albert-tokens",
                                    "albert-sentence",
                                    "modernbert",
                                    "modernbert-biased",
                                    "modernbert-classes",
                                    "modernbert-tokens",
                                    "modernbert-first",
                                    "t5-encoder"};

enum { COUNT = sizeof names / sizeof names[0] };

/* ---- values ------------------------------------------------------------------------ */

static const float *hidden_state(const ph_pass *p, int layer)
{
    const ph_pass_stack *s = &p->stacks[0];
    const ph_config *c = &p->model->config;
    const ph_residual *r = layer ? &s->acts[2 * layer - 1].residual : &s->entry;
    /* the last state of ViT is that before the norm at the end */
    if (layer == c->layers && !c->image_size) return ph_pass_output(p);
    int normed =
        layer ? c->norm_place == PH_POST_NORM : c->embed_norm && ph_stack_normed(s->def);
    return normed ? r->n : r->s;
}

static void parity(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 0);
        for (int l = 0; l <= c.m->config.layers; l++)
            compare(&c, "hidden", l, hidden_state(c.p, l));
        for (int l = 0; l < c.m->config.layers; l++)
            compare_maps(&c, "attention", l, 0, 2 * l);
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

static void gradients(void)
{
    int models = 0;
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 1);
        if (find(&c, "grad.", "classifier.bias", -1) ||
            find(&c, "grad.", "classifier.out_proj.bias", -1) ||
            find(&c, "grad.", "cls_classifier.bias", -1) ||
            find(&c, "grad.", "cls.predictions.bias", -1) ||
            find(&c, "grad.", "lm_head.bias", -1) ||
            find(&c, "grad.", "generator_lm_head.bias", -1) ||
            find(&c, "grad.", "predictions.bias", -1) ||
            find(&c, "grad.", "head.norm.weight", -1) ||
            find(&c, "grad.", "cls.predictions.decoder.bias", -1)) {
            float *grads = compare_loss(&c);
            compare_gradients(&c, grads);
            free(grads);
            models++;
        }
        end(&c);
    }
    CHECK(models == 19, "%d models with gradients", models);
}

/* ---- texts ------------------------------------------------------------------------- */

static const char *const texts[] = {
    "the cat sat on the mat.", "dog", "is the dog good?",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z"};
enum { TEXTS = 4, DIM = 32 };

/* The mean x of the rows is off by no more than the rows are, rms by four times what
   float32 costs transformers, and x / |x| by twice that over |x|. The mean of n rows, its
   norm, the division and the golden value are rounded n + DIM + 4 times. */
static void check_vector(const checkpoint *c)
{
    const float *expected = find(c, "", "vector", -1)->data, *found = c->p->pooled->out;
    double rows_off = 4 * (double)*(const float *)find(c, "f32.", "hidden", 2)->data;
    double limit = 2 * sqrt(DIM) * rows_off / (double)c->p->pooled->norm[0] +
                   (c->p->stacks[0].rows + DIM + 4) * 0x1p-24;
    double square = 0;
    for (int d = 0; d < DIM; d++)
        square += pow((double)found[d] - (double)expected[d], 2);
    CHECK(sqrt(square) <= limit, "the vector is off by %.3g, limit %.3g", sqrt(square),
          limit);
    CHECK(limit < 1e-5, "a limit of %.3g says nothing", limit);
}

/* A text alone has the bits it has in a batch; the mean of a pass, of norm 1. */
static void vectors(void)
{
    checkpoint c;
    float all[TEXTS * DIM], one[DIM];
    begin(&c, "bert-sentence", 0);
    const ph_config *k = ph_model_config(c.m);
    CHECK(k->pooling == PH_POOL_MEAN && k->unit_norm && k->pool_len == 20,
          "pooling %d, norm %d, length %d", k->pooling, k->unit_norm, k->pool_len);
    check_vector(&c);
    int truncated = -1;
    ph_texts given = {.texts = texts, .count = TEXTS, .truncated = &truncated};
    CHECK(ph_model_embed(c.m, &given, all) == PH_OK, "%s", ph_error(c.ctx));
    CHECK(truncated == 1, "%d texts are said to be truncated", truncated);
    for (int i = 0; i < TEXTS; i++) {
        CHECK(ph_model_embed(c.m, &(ph_texts){.texts = texts + i, .count = 1}, one) ==
                  PH_OK,
              "%s", ph_error(c.ctx));
        CHECK(!memcmp(one, all + i * DIM, sizeof one), "text %d: other bits alone", i);
    }
    /* 26 letters and two marks are more than 20: the last letters do not count */
    const char *shorter = "a b c d e f g h i j k l m n o p q r";
    given = (ph_texts){.texts = &shorter, .count = 1, .truncated = &truncated};
    CHECK(ph_model_embed(c.m, &given, one) == PH_OK, "%s", ph_error(c.ctx));
    CHECK(truncated == 0, "a text of 20 tokens is said to be truncated");
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

/* Bytes of the largest block that was asked for. */
static void *largest_alloc(void *user, size_t bytes)
{
    size_t *largest = user;
    if (bytes > *largest) *largest = bytes;
    return malloc(bytes);
}

static void largest_release(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

/* The memory of a pass stays with the model: a second call like the first, and one with
   fewer texts, ask for little. */
static void memory_stays(void)
{
    enum { MANY = 32 };
    const char *list[MANY];
    size_t largest = 0;
    float all[MANY * DIM], again[MANY * DIM];
    ph_options options = {.threads = 1, .alloc = largest_alloc, .user = &largest};
    ph_ctx *ctx;
    ph_model *m;
    options.release = largest_release;
    CHECK(ph_open(&ctx, &options) == PH_OK, "ph_open failed");
    CHECK(ph_model_read(&m, ctx, FOLDER "bert") == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < MANY; i++) list[i] = texts[3];
    largest = 0;
    CHECK(ph_model_embed(m, &(ph_texts){.texts = list, .count = MANY}, all) == PH_OK,
          "%s", ph_error(ctx));
    size_t rows = (size_t)MANY * 28 * DIM * sizeof(float); /* one matrix of activations */
    CHECK(largest > rows, "%zu bytes at most, not even %zu", largest, rows);
    for (int count = MANY; count > 0; count -= MANY / 2) {
        largest = 0;
        CHECK(ph_model_embed(m, &(ph_texts){.texts = list, .count = count}, again) ==
                  PH_OK,
              "%s", ph_error(ctx));
        CHECK(largest < rows, "%d texts: %zu bytes at once", count, largest);
        CHECK(!memcmp(all, again, (size_t)count * DIM * sizeof *all), "other bits");
    }
    ph_model_free(m);
    ph_close(ctx);
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

/* Sigmoids where several classes may be right; each is rounded once, from double. */
static void probabilities(void)
{
    checkpoint c;
    begin(&c, "bert-classes", 0);
    float one_of[3] = {0, 2, -1000}, any_of[3] = {0, 2, -1000};
    ph_class_probabilities(c.m, one_of);
    c.m->config.problem_type = PH_MULTI_LABEL;
    ph_class_probabilities(c.m, any_of);
    CHECK(one_of[0] == (float)(exp(-2) / (exp(-2) + 1)) &&
              one_of[1] == (float)(1 / (exp(-2) + 1)) && one_of[2] == 0,
          "softmax %.9g %.9g %.9g", one_of[0], one_of[1], one_of[2]);
    CHECK(any_of[0] == 0.5f && any_of[1] == (float)(1 / (1 + exp(-2))) && any_of[2] == 0,
          "sigmoids %.9g %.9g %.9g", any_of[0], any_of[1], any_of[2]);
    float alone[3] = {2, 0, 0}, scores[3] = {0, 2, -1000};
    c.m->config.problem_type = PH_SINGLE_LABEL, c.m->config.classes = 1;
    ph_class_probabilities(c.m, alone);
    CHECK(alone[0] == (float)(1 / (1 + exp(-2))) && ph_model_has_probabilities(c.m),
          "one class %.9g", alone[0]);
    c.m->config.problem_type = PH_REGRESSION, c.m->config.classes = 3;
    ph_class_probabilities(c.m, scores);
    CHECK(scores[0] == 0 && scores[1] == 2 && scores[2] == -1000 &&
              !ph_model_has_probabilities(c.m),
          "a regression %.9g %.9g %.9g", scores[0], scores[1], scores[2]);
    end(&c);
}

/* A class of a token is one of a softmax, whatever problem_type says. */
static void token_probabilities(void)
{
    static const char *const types[] = {"multi_label_classification", "regression"};
    ph_ctx *ctx = open_ctx();
    ph_model *m;
    char path[128];
    strcpy(folder, "/tmp/polyhead-encoder-XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (int i = 0; i < 2; i++) {
        char to[96];
        float p[8] = {0, 2, -1000, -1000, -1000, -1000, -1000, -1000};
        snprintf(to, sizeof to, "\"problem_type\": \"%s\", \"model_type\"", types[i]);
        make_folder("roberta-tokens", "config.json", "\"model_type\"", to);
        snprintf(path, sizeof path, "%s", folder);
        CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
        CHECK(m->config.problem_type == (ph_problem)(i + 1), "it is not kept");
        ph_class_probabilities(m, p);
        CHECK(p[0] == (float)(exp(-2) / (exp(-2) + 1)) && ph_model_has_probabilities(m),
              "%s: %.9g", types[i], p[0]);
        ph_model_free(m);
    }
    remove_folder();
    ph_close(ctx);
}

/* A file of ours has said multi_label where it says problem_type now; a folder that is
   written says it too. */
static void problem_types(void)
{
    static const char *const types[] = {
        "single_label_classification", "multi_label_classification", "regression"};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/polyhead-encoder-XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (int i = 0; i < 3; i++) {
        ph_model *m, *again;
        char to[96], out[128], remove[300];
        snprintf(to, sizeof to, "\"problem_type\": \"%s\", \"model_type\"", types[i]);
        make_folder("bert-classes", "config.json", "\"model_type\"", to);
        CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
        CHECK(m->config.problem_type == (ph_problem)i, "%s is %d", types[i],
              m->config.problem_type);
        snprintf(out, sizeof out, "%s/out", folder);
        snprintf(remove, sizeof remove, "rm -rf %s %s/own", out, folder);
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, path_of("own")) == PH_OK &&
                  ph_model_export(ctx, path_of("own"), out, NULL) == PH_OK,
              "%s", ph_error(ctx));
        for (int k = 0; k < 2; k++) {
            CHECK(ph_model_read(&again, ctx, k ? out : path_of("own")) == PH_OK, "%s",
                  ph_error(ctx));
            CHECK(again->config.problem_type == (ph_problem)i, "%s: %d", types[i],
                  again->config.problem_type);
            ph_model_free(again);
        }
        CHECK(!system(remove), "%s", remove);
        ph_model_free(m);
    }
    ph_config c;
    char older[2][64] = {"{\"multi_label\": true}", "{\"multi_label\": false}"};
    for (int i = 0; i < 2; i++)
        CHECK(ph_config_read(ctx, &c, older[i], strlen(older[i])) == PH_OK &&
                  c.problem_type == (i ? PH_SINGLE_LABEL : PH_MULTI_LABEL),
              "an older file: %d", c.problem_type);
    remove_folder();
    ph_close(ctx);
}

/* More pictures than one batch, each with the bits it has alone. */
static void pictures(void)
{
    enum { SIZE = 3 * 12 * 12, MANY = 6 };
    static float pixels[MANY * SIZE], vectors[MANY * DIM], one[DIM];
    checkpoint c;
    float scores[3 * MANY], alone[3];
    begin(&c, "vit", 0);
    for (int i = 0; i < MANY; i++) {
        memcpy(pixels + i * SIZE, c.batch.pixels, SIZE * sizeof *pixels);
        pixels[i * SIZE] += (float)i;
    }
    CHECK(ph_model_pictures(c.m, pixels, MANY, vectors, scores) == PH_OK, "%s",
          ph_error(c.ctx));
    compare(&c, "logits", -1, scores);
    for (int i = 0; i < MANY; i++) {
        CHECK(ph_model_pictures(c.m, pixels + i * SIZE, 1, one, alone) == PH_OK, "%s",
              ph_error(c.ctx));
        CHECK(!memcmp(one, vectors + i * DIM, sizeof one), "vector %d differs", i);
        CHECK(!memcmp(alone, scores + i * 3, sizeof alone), "scores %d differ", i);
    }
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
        checkpoint c;
        begin(&c, names[i], 1);
        ph_model *again = write_and_read(&c);
        ph_model_free(again);
        end(&c);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static void config_lies(void)
{
    static const lie lies[] = {
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
         "type_vocab_size is 1000000000"},
        {"bert", "config.json", "embeddings\": 40", "embeddings\": 41",
         "position_embeddings.weight' is F32 (40"},
        {"bert", "config.json", "embeddings\": 40", "embeddings\": 0",
         "max_position_embeddings is 0"},
        {"bert", "config.json", "eps\": 0.001", "eps\": -1", "above 0"},
        {"bert", "config.json", "\"gelu\"", "\"mish\"", "activation 'mish' is unknown"},
        {"bert", "config.json", "\"gelu\"", "7", "expected a text"},
        {"modernbert", "config.json", "\"classifier_activation\": \"gelu\"",
         "\"classifier_activation\": \"relu\"", "expected that of hidden_activation"},
        {"modernbert", "config.json", "\"hidden_activation\": \"gelu\"",
         "\"hidden_activation\": \"relu\"", "'relu' is unknown with a gate"},
        {"modernbert", "config.json", "local_attention\": 5", "local_attention\": 0",
         "local_attention is 0"},
        {"modernbert", "config.json", "\"rope_parameters\"",
         "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, \"rope_parameters\"",
         "rope_scaling.rope_type is 'linear'"},
        {"modernbert-classes", "config.json", "pooling\": \"mean\"", "pooling\": \"max\"",
         "classifier_pooling is 'max', expected cls or mean"},
        {"modernbert-classes", "config.json", "\"classifier_activation\": \"gelu\"",
         "\"classifier_activation\": \"silu\"", "classifier_activation is 'silu'"},
        {"modernbert-biased", "config.json", "n_layers\": 2", "n_layers\": 0",
         "global_attn_every_n_layers is 0"},
        {"bert", "config.json", "\"is_decoder\": false", "\"is_decoder\": true",
         "is_decoder is true"},
        {"bert", "config.json", "\"bert\"",
         "\"bert\", \"position_embedding_type\": \"relative_key\"",
         "position_embedding_type is 'relative_key'"},
        {"roberta", "config.json", "pad_token_id\": 5", "pad_token_id\": 99",
         "max_len is -60"},
        {"roberta", "config.json", "\"gelu\"", "\"relu\"", "hidden_act differs"},
        {"mpnet", "config.json", "num_buckets\": 32", "num_buckets\": 16",
         "relative_attention_num_buckets is 16, expected 32"},
        {"vit", "config.json", "image_size\": 12", "image_size\": 13",
         "image_size 13 is no multiple of patch_size 4"},
        {"vit", "config.json", "image_size\": 12", "image_size\": 16",
         "position_embeddings' is F32 (10, 32)"},
        {"vit", "config.json", "image_size\": 12", "image_size\": [12, 16]",
         "image_size is no square, expected one number, or two that are the same"},
        {"vit", "config.json", "image_size\": 12", "image_size\": [12]",
         "image_size.1"},
        {"vit", "config.json", "image_size\": 12", "image_size\": 1e9",
         "image_size is 1000000000"},
        {"vit", "config.json", "patch_size\": 4", "patch_size\": 0", "patch_size is 0"},
        {"vit", "config.json", "patch_size\": 4", "patch_size\": 6",
         "projection.weight' is F32 (32, 48), expected F32 (32, 108)"},
        {"vit", "config.json", "num_channels\": 3", "num_channels\": 1000000",
         "channels is 1000000"},
        {"vit", "config.json", "ViTForImageClassification", "ViTForXWithTeacher",
         "distilled is set, expected with it classes of the first of two"},
        {"bert-sentence", "modules.json", "models.Normalize", "models.LayerNorm",
         "expected Transformer, Pooling, Dense and Normalize in this order"},
        {"bert-sentence", "modules.json", "models.Normalize", "models.Dense",
         "2_Normalize holds no model.safetensors"},
        {"bert-sentence", "modules.json", "\"1_Pooling\"", "\"../1_Pooling\"",
         "expected the name of a folder beside modules.json"},
        {"bert-sentence", "modules.json", "\"1_Pooling\"", "\"..\"",
         "expected the name of a folder beside modules.json"},
        {"bert-sentence", "modules.json", "\"1_Pooling\"", "7",
         "modules.1.path is 7, expected the name of a folder"},
        {"bert-sentence", "modules.json", "\"type\": \"sentence_transformers.models.Norm",
         "\"type\": 3, \"x\": \"", "expected a text"},
        {"bert-sentence", "1_Pooling/config.json", "mean_tokens\": true",
         "mean_tokens\": false", "has 0 ways to pool"},
        {"bert-sentence", "1_Pooling/config.json", "\"pooling_mode_cls",
         "\"pooling_mode\": \"sum\", \"pooling_mode_cls", "no known way to pool"},
        {"bert-sentence", "1_Pooling/config.json", "\"pooling_mode_cls",
         "\"pooling_mode\": [\"cls\", \"sum\"], \"pooling_mode_cls",
         "pooling_mode.1 is 'sum', which is no known way to pool"},
        {"bert-sentence", "1_Pooling/config.json", "\"pooling_mode_cls",
         "\"pooling_mode\": [\"cls\", \"max\", \"cls\", \"max\", \"cls\"], "
         "\"pooling_mode_cls",
         "has 5 ways to pool"},
        {"bert-sentence", "1_Pooling/config.json", "\"pooling_mode_cls",
         "\"pooling_mode\": [], \"pooling_mode_cls", "has 0 ways to pool"},
        {"bert-sentence", "1_Pooling/config.json", "dimension\": 32", "dimension\": 384",
         "pooling.word_embedding_dimension is 384, expected 32 as the model has"},
        {"bert-sentence", "sentence_bert_config.json", "20", "-20",
         "expected a whole number"}};
    refuse_all(lies, sizeof lies / sizeof lies[0]);
}

/* Ways to pool by their names, old and new. */
static void poolings(void)
{
    static const struct {
        const char *mode;
        ph_pooling pooling;
    } list[] = {{"\"cls\"", PH_POOL_FIRST},
                {"\"max\"", PH_POOL_MAX},
                {"[\"max\"]", PH_POOL_MAX},
                {"\"mean_sqrt_len_tokens\"", PH_POOL_MEAN_SQRT},
                {"\"weightedmean\"", PH_POOL_WEIGHTED},
                {"\"lasttoken\"", PH_POOL_LAST}};
    ph_ctx *ctx = open_ctx();
    strcpy(folder, "/tmp/test_encoders.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char to[96];
        ph_model *m;
        snprintf(to, sizeof to, "\"pooling_mode\": %s, \"pooling_mode_cls", list[i].mode);
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
                                   {"memory_stays", memory_stays},
                                   {"classes", classes},
                                   {"probabilities", probabilities},
                                   {"token_probabilities", token_probabilities},
                                   {"problem_types", problem_types},
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
