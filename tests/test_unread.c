/*
 * test_unread.c - every tensor of a checkpoint is read, ignored for a reason, or refused
 * by name: the tiny checkpoints of tests/golden/checkpoints with a tensor more or less,
 * under the names that classes of transformers give; and decoders without an output head.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"
#include "model/generate.h"
#include "model/model.h"

#define FOLDER "tests/golden/checkpoints/"

enum { TENSORS = 128 };

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* config.json of a checkpoint with one text replaced. */
static void copy_config(const char *name, const char *from, const char *to)
{
    static char text[1 << 16];
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s/config.json", name);
    FILE *in = fopen(path, "rb");
    CHECK(in, "cannot read %s", path);
    text[fread(text, 1, sizeof text - 1, in)] = 0;
    fclose(in);
    char *at = strstr(text, from);
    CHECK(at, "%s has no %s", path, from);
    FILE *out = fopen(path_of("config.json"), "wb");
    fprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    fclose(out);
}

/* Tensors of a checkpoint without one and with another, a vector of seven. */
static void copy_tensors(const char *name, const char *without, const char *with)
{
    static float vector[7] = {1, 2, 3, 4, 5, 6, 7};
    ph_tensor list[TENSORS + 1];
    const ph_tensor *t;
    ph_file *file;
    char path[256];
    size_t count = 0;
    snprintf(path, sizeof path, FOLDER "%s/model.safetensors", name);
    CHECK(ph_file_read(&file, path, NULL) == PH_OK, "cannot read %s", path);
    for (size_t i = 0; (t = ph_file_tensor(file, i)) && count < TENSORS; i++)
        if (!without || strcmp(t->name, without)) list[count++] = *t;
    if (with)
        list[count++] = (ph_tensor){
            .name = with, .type = PH_F32, .rank = 1, .shape = {7}, .data = vector};
    CHECK(ph_file_write(path_of("model.safetensors"), list, count, NULL, 0, NULL) ==
              PH_OK,
          "cannot write");
    ph_file_free(file);
}

static ph_status read_folder(ph_model **m, ph_ctx *ctx)
{
    return ph_model_read(m, ctx, folder);
}

static void begin(ph_ctx **ctx)
{
    CHECK(ph_open(ctx, &(ph_options){.threads = 2}) == PH_OK, "ph_open failed");
    strcpy(folder, "/tmp/test_unread.XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
}

static void end(ph_ctx *ctx)
{
    unlink(path_of("config.json"));
    unlink(path_of("model.safetensors"));
    rmdir(folder);
    ph_close(ctx);
}

/* ---- one tensor more --------------------------------------------------------------- */

/* What other classes of the same types hold beside the stacks. */
static void unknown(void)
{
    static const char *const more[][2] = {{"llama", "v_head.summary.weight"},
                                          {"llama", "model.layers.9.mlp.up_proj.weight"},
                                          {"qwen3", "model.embed_tokens.bias"},
                                          {"gpt2", "transformer.h.0.attn.c_attn.scale"},
                                          {"gemma3", "vision_towers.weight"},
                                          {"t5", "classification_head.dense.weight"},
                                          {"t5", "qa_outputs.weight"},
                                          {"marian", "lm_head.bias"},
                                          {"whisper", "classifier.weight"},
                                          {"bart", "classification_head.dense.weight"},
                                          {"bart-forced", "model.encoder.norm.bias"},
                                          {"bert", "cls.predictions.other"},
                                          {"bert-sentence", "linear.weight"},
                                          {"roberta", "lm_head.dense.scale"},
                                          {"distilbert", "projector.weight"},
                                          {"vit", "decoder.0.weight"}};
    ph_ctx *ctx;
    begin(&ctx);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        char sentence[128];
        ph_model *m;
        copy_config(more[i][0], "", "");
        copy_tensors(more[i][0], NULL, more[i][1]);
        snprintf(sentence, sizeof sentence, "tensor '%s' is unknown", more[i][1]);
        CHECK(read_folder(&m, ctx) == PH_UNSUPPORTED && !m, "%s: %s is accepted",
              more[i][0], more[i][1]);
        CHECK(strstr(ph_error(ctx), sentence), "\"%s\" lacks \"%s\"", ph_error(ctx),
              sentence);
    }
    end(ctx);
}

/* What means nothing here. */
static void ignored(void)
{
    static const char *const more[][2] = {
        {"llama", "model.layers.0.self_attn.rotary_emb.inv_freq"},
        {"bert", "bert.embeddings.position_ids"},
        {"bert", "bert.pooler.dense.weight"},
        {"bert", "cls.seq_relationship.weight"},
        {"gpt2", "transformer.h.1.attn.bias"},
        {"gpt2", "transformer.h.0.attn.masked_bias"},
        {"gpt2", "multiple_choice_head.summary.weight"},
        {"gemma3", "vision_tower.vision_model.post_layernorm.weight"},
        {"gemma3", "multi_modal_projector.mm_soft_emb_norm.weight"}};
    ph_ctx *ctx;
    begin(&ctx);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        ph_model *m;
        copy_config(more[i][0], "", "");
        copy_tensors(more[i][0], NULL, more[i][1]);
        CHECK(read_folder(&m, ctx) == PH_OK, "%s: %s", more[i][1], ph_error(ctx));
        ph_model_free(m);
    }
    end(ctx);
}

/* ---- the output head --------------------------------------------------------------- */

static int generates(ph_ctx *ctx, const ph_model *m)
{
    int32_t prompt[2] = {7, 8}, out[2];
    int count;
    ph_status status =
        ph_generate_tokens(m, &(ph_generation){0}, prompt, 2, out, 2, &count);
    CHECK(status == PH_OK || (status == PH_UNSUPPORTED &&
                              strstr(ph_error(ctx), "has no output head (lm_head)")),
          "%s", ph_error(ctx));
    return status == PH_OK;
}

/* A file of ours and a folder that is made of it have none either. */
static void compare_written(ph_ctx *ctx, const ph_model *m)
{
    char own[] = "/tmp/test_unread_own.XXXXXX", exported[64];
    ph_model *again;
    close(mkstemp(own));
    snprintf(exported, sizeof exported, "%s.folder", own);
    CHECK(ph_model_write(m, own) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_read(&again, ctx, own) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_config(again)->no_output == 1 && !generates(ctx, again), "own file");
    ph_model_free(again);
    CHECK(ph_model_export(ctx, own, exported, NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_read(&again, ctx, exported) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_config(again)->no_output == 1 && !generates(ctx, again), "exported");
    ph_model_free(again);
    char path[128];
    snprintf(path, sizeof path, "rm -r %s %s", own, exported);
    CHECK(system(path) == 0, "%s stays", own);
}

/* LlamaModel holds no lm_head; only tied embeddings are one. */
static void headless(void)
{
    static const struct {
        const char *name, *from, *to;
        int generates;
    } list[] = {
        {"llama", "", "", 0},
        {"llama", "\"tie_word_embeddings\": false", "\"x\": 0", 0},
        {"llama", "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true", 1},
        {"gpt2", "", "", 1},
        {"gpt2", "\"tie_word_embeddings\": true", "\"x\": 0", 1},
        {"gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", 0},
        {"qwen3", "\"tie_word_embeddings\": true", "\"x\": 0", 0},
        {"gemma3", "\"tie_word_embeddings\": true", "\"x\": 0", 1},
        {"t5", "", "", 1},
        {"t5", "T5ForConditionalGeneration", "T5Model", 0}};
    ph_ctx *ctx;
    begin(&ctx);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        ph_model *m;
        copy_config(list[i].name, list[i].from, list[i].to);
        copy_tensors(list[i].name, "lm_head.weight", NULL);
        CHECK(read_folder(&m, ctx) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_config(m)->no_output == !list[i].generates, "%s %s: no_output",
              list[i].name, list[i].to);
        CHECK(generates(ctx, m) == list[i].generates, "%s %s", list[i].name, list[i].to);
        CHECK(ph_model_own(m) == PH_OK, "%s", ph_error(ctx));
        if (!list[i].generates) compare_written(ctx, m);
        ph_model_free(m);
    }
    end(ctx);
}

/* A masked language model that is not tied needs its matrix. */
static void masked_untied(void)
{
    ph_ctx *ctx;
    ph_model *m;
    begin(&ctx);
    copy_config("bert", "\"tie_word_embeddings\": true",
                "\"tie_word_embeddings\": false");
    copy_tensors("bert", NULL, NULL);
    CHECK(read_folder(&m, ctx) == PH_BAD_FILE &&
              strstr(ph_error(ctx), "cls.predictions.decoder.weight missing"),
          "%s", ph_error(ctx));
    end(ctx);
}

/* Its bias is written where transformers reads it. */
static void masked_exported(void)
{
    static const char *const list[][2] = {{"bert-untied", "cls.predictions.decoder.bias"},
                                          {"roberta-untied", "lm_head.decoder.bias"},
                                          {"distilbert-untied", "vocab_projector.bias"},
                                          {"bert", "cls.predictions.bias"}};
    ph_ctx *ctx;
    begin(&ctx);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char from[128], own[128], to[128], path[160];
        ph_model *m, *again;
        ph_file *file;
        snprintf(from, sizeof from, FOLDER "%s", list[i][0]);
        snprintf(own, sizeof own, "%s/model.safetensors", folder);
        snprintf(to, sizeof to, "%s/exported", folder);
        CHECK(ph_model_read(&m, ctx, from) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
              ph_error(ctx));
        CHECK(ph_model_export(ctx, own, to, NULL) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_read(&again, ctx, to) == PH_OK && ph_model_own(again) == PH_OK,
              "%s", ph_error(ctx));
        CHECK(m->floats == again->floats &&
                  !memcmp(m->block, again->block, m->floats * sizeof(float)),
              "%s: other values", list[i][0]);
        snprintf(path, sizeof path, "%s/model.safetensors", to);
        CHECK(ph_file_read(&file, path, NULL) == PH_OK, "cannot read %s", path);
        CHECK(ph_file_find(file, list[i][1]), "%s has no %s", path, list[i][1]);
        ph_file_free(file);
        ph_model_free(m);
        ph_model_free(again);
        snprintf(path, sizeof path, "rm -r %s", to);
        CHECK(system(path) == 0, "%s stays", to);
    }
    end(ctx);
}

static const check_case cases[] = {{"unknown", unknown},
                                   {"ignored", ignored},
                                   {"headless", headless},
                                   {"masked_untied", masked_untied},
                                   {"masked_exported", masked_exported},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
