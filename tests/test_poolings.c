/*
 * test_poolings.c - sentence encoders of several modules against what
 * sentence-transformers makes of them (tests/golden/checkpoints, written by ends.py
 * there): vectors and gradients; files of ours and folders made of them; what is refused.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"

static const struct {
    const char *name;
    int dim;
} list[] = {{"bert-dense", 20},
            {"bert-poolings", 32},
            {"bert-two", 64},
            {"qwen3-sentence", 32},
            {"gpt2-sentence", 12},
            {"t5-sentence", 20}};

enum { COUNT = sizeof list / sizeof list[0], DIM_MOST = 64, TEXTS = 3 };

static const char *const texts[TEXTS] = {"a b c", "d", "the z of a x y w"};

static void parity(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, list[i].name, 0);
        CHECK(ph_model_vector_dim(c.m) == list[i].dim, "%s: %d elements", list[i].name,
              ph_model_vector_dim(c.m));
        compare(&c, "vector", -1, c.p->pooled->out);
        end(&c);
    }
}

static void gradients(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, list[i].name, 1);
        float *grads = compare_loss(&c);
        compare_gradients(&c, grads);
        free(grads);
        end(&c);
    }
}

/* A text alone has the bits it has among others. */
static void alone(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        float all[TEXTS * DIM_MOST], one[DIM_MOST];
        begin(&c, list[i].name, 0);
        ph_texts given = {.texts = texts, .count = TEXTS};
        CHECK(ph_model_embed(c.m, &given, all) == PH_OK, "%s", ph_error(c.ctx));
        for (int t = 0; t < TEXTS; t++) {
            ph_texts single = {.texts = texts + t, .count = 1};
            CHECK(ph_model_embed(c.m, &single, one) == PH_OK, "%s", ph_error(c.ctx));
            CHECK(!memcmp(one, all + t * list[i].dim, (size_t)list[i].dim * sizeof *one),
                  "%s: text %d has other bits alone", list[i].name, t);
        }
        end(&c);
    }
}

/* T5's distances have no end: texts may be longer than n_positions, here 40. */
static void longer(void)
{
    static char letters[2][4 * 40 + 1];
    const char *both[2] = {letters[0], letters[1]};
    float vectors[2][20];
    checkpoint c;
    begin(&c, "t5-sentence", 0);
    for (int i = 0; i < 80; i++) memcpy(letters[0] + 2 * i, "a ", 2);
    memcpy(letters[1], letters[0], sizeof letters[0]);
    letters[1][2 * 79] = 'z';
    ph_texts given = {.texts = both, .count = 2};
    CHECK(ph_model_embed(c.m, &given, vectors[0]) == PH_OK, "%s", ph_error(c.ctx));
    CHECK(memcmp(vectors[0], vectors[1], sizeof vectors[0]), "token 80 counts not");
    end(&c);
}

/* ---- files ------------------------------------------------------------------------- */

static void check_same(const checkpoint *c, const char *path, const float *expected)
{
    float found[TEXTS * DIM_MOST];
    ph_model *m;
    size_t floats = TEXTS * (size_t)ph_model_vector_dim(c->m);
    CHECK(ph_model_read(&m, c->ctx, path) == PH_OK, "%s", ph_error(c->ctx));
    ph_texts given = {.texts = texts, .count = TEXTS};
    CHECK(ph_model_embed(m, &given, found) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(!memcmp(found, expected, floats * sizeof *found), "%s: other vectors", c->name);
    ph_model_free(m);
}

/* Through a file of ours and back, and from folder to folder. */
static void files(void)
{
    for (int i = 0; i < COUNT; i++) {
        char place[] = "/tmp/test_poolings.XXXXXX", own[64], to[64], copy[64];
        char command[96];
        float expected[TEXTS * DIM_MOST];
        checkpoint c;
        begin(&c, list[i].name, 1);
        CHECK(mkdtemp(place), "no folder");
        snprintf(own, sizeof own, "%s/own.safetensors", place);
        snprintf(to, sizeof to, "%s/exported", place);
        snprintf(copy, sizeof copy, "%s/copy", place);
        ph_texts given = {.texts = texts, .count = TEXTS};
        CHECK(ph_model_embed(c.m, &given, expected) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(ph_model_write(c.m, own) == PH_OK, "%s", ph_error(c.ctx));
        check_same(&c, own, expected);
        CHECK(ph_model_export(c.ctx, own, to, NULL) == PH_OK, "%s", ph_error(c.ctx));
        check_same(&c, to, expected);
        CHECK(ph_model_export(c.ctx, c.path, copy, NULL) == PH_OK, "%s", ph_error(c.ctx));
        check_same(&c, copy, expected);
        snprintf(command, sizeof command, "rm -r %s", place);
        CHECK(system(command) == 0, "%s stays", place);
        end(&c);
    }
}

/* ---- decoders ---------------------------------------------------------------------- */

/* A decoder that gives vectors has no output head; GGUF says how it pools, and not that
   the vector is scaled. */
static void decoders(void)
{
    checkpoint c;
    ph_model *m;
    ph_pass *p;
    begin(&c, "qwen3-sentence", 0);
    const float *expected = c.p->pooled->out;
    CHECK(c.m->config.no_output && c.m->output < 0, "it has an output head");
    CHECK(ph_model_read(&m, c.ctx, FOLDER "qwen3-sentence.gguf") == PH_OK, "%s",
          ph_error(c.ctx));
    CHECK(m->config.no_output && m->config.pooling == PH_POOL_LAST, "pooling %d",
          m->config.pooling);
    ph_pass_shape shape = {.batch = 1, .source_len = c.p->stacks[0].len};
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(c.ctx));
    CHECK(ph_pass_forward(p, &c.batch, 0) == PH_OK, "%s", ph_error(c.ctx));
    for (int d = 0; d < 32; d++)
        CHECK(p->pooled->out[d] / c.p->pooled->norm[0] == expected[d], "element %d", d);
    ph_pass_free(p);
    ph_model_free(m);
    end(&c);
}

/* ---- what is refused --------------------------------------------------------------- */

static void config_lies(void)
{
    static const char dense[] = "2_Dense/config.json";
    static const lie lies[] = {
        {"bert-dense", dense, "activation.Tanh", "activation.Sigmoid",
         "activation.Sigmoid', expected Tanh, Identity, ReLU or GELU"},
        {"bert-dense", dense, "\"out_features\": 20", "\"out_features\": 21",
         "dense.linear.weight' is F32 (20, 32), expected F32 (21, 32)"},
        {"bert-dense", dense, "\"out_features\": 20", "\"x\": 20",
         "dense.out_features is missing"},
        {"bert-dense", dense, "\"bias\": true", "\"bias\": false",
         "tensor 'dense.linear.bias' is unknown"},
        {"bert-dense", dense, "\"bias\": true", "\"bias\": true, \"use_residual\": true",
         "dense.use_residual is true"},
        {"bert-dense", dense, "\"module_input_name\": \"sentence_embedding\"",
         "\"module_input_name\": \"token_embeddings\"",
         "dense.module_input_name is 'token_embeddings'"}};
    refuse_all(lies, sizeof lies / sizeof lies[0]);
}

static const check_case cases[] = {{"parity", parity},
                                   {"gradients", gradients},
                                   {"alone", alone},
                                   {"longer", longer},
                                   {"files", files},
                                   {"decoders", decoders},
                                   {"config_lies", config_lies},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
