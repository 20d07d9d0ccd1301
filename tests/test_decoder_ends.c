/*
 * test_decoder_ends.c - decoders that end in a classifier, against what transformers
 * makes of them (tests/golden/checkpoints, written by ends.py there): weights of every
 * head, scores, gradients; files of ours and folders made of them; what is refused.
 */
#define _GNU_SOURCE
#include "golden_checkpoint.h"

static const char *const names[] = {"gpt2-classes",  "gpt2-tokens",   "llama-classes",
                                    "qwen2-classes", "qwen3-classes", "qwen3-tokens"};

enum { COUNT = sizeof names / sizeof names[0] };

static void parity(void)
{
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 0);
        const ph_config *k = ph_model_config(c.m);
        int by_token = strstr(names[i], "-tokens") != NULL;
        CHECK(k->no_output && k->pooling == (by_token ? PH_POOL_NONE : PH_POOL_LAST) &&
                  k->no_head_bias == !by_token,
              "%s: pooling %d", names[i], k->pooling);
        for (int l = 0; l < k->layers; l++) compare_maps(&c, "attention", l, 0, 2 * l);
        compare(&c, "logits", -1, c.p->pooled->scores);
        end(&c);
    }
}

static void gradients(void)
{
    int models = 0;
    for (int i = 0; i < COUNT; i++) {
        checkpoint c;
        begin(&c, names[i], 1);
        if (find(&c, "grad.", "score.weight", -1)) {
            float *grads = compare_loss(&c);
            compare_gradients(&c, grads);
            free(grads);
            models++;
        }
        end(&c);
    }
    CHECK(models == 2, "%d models with gradients", models);
}

/* ---- files ------------------------------------------------------------------------- */

/* The scores of a model for the golden text. */
static void score(checkpoint *c, ph_model *m, float *scores)
{
    const ph_tensor *ids = find(c, "", "ids", -1);
    ph_pass_shape shape = {.batch = 1, .source_len = (int)ids->shape[1]};
    ph_pass *p;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(c->ctx));
    CHECK(ph_pass_forward(p, &c->batch, 0) == PH_OK, "%s", ph_error(c->ctx));
    memcpy(scores, p->pooled->scores, (size_t)m->config.classes * sizeof *scores);
    ph_pass_free(p);
}

static void files(void)
{
    for (int i = 0; i < COUNT; i++) {
        char own[] = "/tmp/test_decoder_ends.XXXXXX", to[64], command[192];
        float scores[3][8];
        checkpoint c;
        ph_model *again;
        begin(&c, names[i], 1);
        score(&c, c.m, scores[0]);
        again = write_and_read(&c);
        score(&c, again, scores[1]);
        ph_model_free(again);
        close(mkstemp(own));
        snprintf(to, sizeof to, "%s.folder", own);
        CHECK(ph_model_write(c.m, own) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(ph_model_export(c.ctx, own, to, NULL) == PH_OK, "%s", ph_error(c.ctx));
        CHECK(ph_model_read(&again, c.ctx, to) == PH_OK, "%s", ph_error(c.ctx));
        score(&c, again, scores[2]);
        size_t bytes = (size_t)c.m->config.classes * sizeof(float);
        CHECK(!memcmp(scores[0], scores[1], bytes), "%s: own file", names[i]);
        CHECK(!memcmp(scores[0], scores[2], bytes), "%s: exported folder", names[i]);
        CHECK(!strcmp(ph_model_class(c.m, 1), ph_model_class(again, 1)), "%s: class",
              names[i]);
        ph_model_free(again);
        snprintf(command, sizeof command, "rm -r %s %s", own, to);
        CHECK(system(command) == 0, "%s stays", own);
        end(&c);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static void config_lies(void)
{
    static const lie lies[] = {
        {"llama-classes", "config.json", "LlamaForSequenceClassification",
         "LlamaForTokenClassification", "tensor 'score.bias' is missing"},
        {"qwen3-tokens", "config.json", "Qwen3ForTokenClassification",
         "Qwen3ForSequenceClassification", "tensor 'score.bias' is unknown"}};
    refuse_all(lies, sizeof lies / sizeof lies[0]);
}

/* A decoder with pooling or classes has no output head. */
static void configs(void)
{
    ph_ctx *ctx = open_ctx();
    ph_config c = {.arch = PH_ARCH_DECODER, .vocab = 9, .layers = 1, .model_dim = 8};
    ph_model *m;
    c.heads = 2, c.max_len = 8, c.pooling = PH_POOL_LAST, c.classes = 2;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1) == PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "a decoder with no_output"),
          "%s", ph_error(ctx));
    c.no_output = 1;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1) == PH_OK, "%s",
          ph_error(ctx));
    ph_model_free(m);
    c.classes = 0, c.pooling = PH_POOL_NONE, c.no_head_bias = 1;
    CHECK(ph_model_create(&m, ctx, &c, PH_SPLIT_WORDS, NULL, 0, 1) == PH_BAD_ARGUMENT &&
              strstr(ph_error(ctx), "no_head_bias is set"),
          "%s", ph_error(ctx));
    ph_close(ctx);
}

static const check_case cases[] = {{"parity", parity},   {"gradients", gradients},
                                   {"files", files},     {"config_lies", config_lies},
                                   {"configs", configs}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
