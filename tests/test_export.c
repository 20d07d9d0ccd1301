/*
 * test_export.c - models written as Hugging Face folders: no byte of a tensor changes on
 * the way, what a type cannot express is refused by name, nothing is half written.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "export_bed.h"
#include "model/generate.h"

static ph_ctx *open_ctx(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 2}) == PH_OK, "ph_open failed");
    return ctx;
}

/* ---- folders ----------------------------------------------------------------------- */

static ph_file *map_file(const char *folder, const char *name)
{
    char path[256];
    ph_file *file;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK(ph_file_map(&file, path, NULL) == PH_OK, "cannot read %s", path);
    return file;
}

/* How many tensors of one file the other holds with the same type, shape and bytes. */
static size_t equal_tensors(const ph_file *file, const ph_file *other)
{
    const ph_tensor *a;
    size_t count = 0;
    for (size_t i = 0; (a = ph_file_tensor(file, i)); i++, count++) {
        const ph_tensor *b = ph_file_find(other, a->name);
        CHECK(b && a->type == b->type && a->rank == b->rank && a->bytes == b->bytes &&
                  !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) &&
                  !memcmp(a->data, b->data, a->bytes),
              "%s changed", a->name);
    }
    return count;
}

static void check_same_text(const char *folder, const char *other, const char *name)
{
    char path[256];
    char texts[2][4096] = {"", ""};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", i ? other : folder, name);
        FILE *f = fopen(path, "rb");
        CHECK(f && fread(texts[i], 1, sizeof texts[i] - 1, f) > 0, "cannot read %s",
              path);
        fclose(f);
    }
    CHECK(!strcmp(texts[0], texts[1]), "%s changed", name);
}

static void round_trip(void)
{
    static const char *const names[] = {"llama", "gpt2", "gpt2-plain", "qwen3"};
    begin();
    ph_ctx *ctx = open_ctx();
    for (int i = 0; i < 4; i++) {
        char from[256], to[256];
        snprintf(from, sizeof from, FOLDER "%s", names[i]);
        strcpy(to, in_place(names[i]));
        CHECK(ph_model_export(ctx, from, to, NULL) == PH_OK, "%s: %s", from,
              ph_error(ctx));
        ph_file *a = map_file(from, "model.safetensors");
        ph_file *b = map_file(to, "model.safetensors");
        CHECK(equal_tensors(a, b) == equal_tensors(b, a), "%s: other tensors", from);
        check_same_text(from, to, "config.json");
        ph_file_free(a);
        ph_file_free(b);
    }
    ph_close(ctx);
    end();
}

static void shards_become_one_file(void)
{
    begin();
    ph_ctx *ctx = open_ctx();
    const char *to = in_place("one");
    size_t count = 0, all = 0;
    CHECK(ph_model_export(ctx, FOLDER "llama-shards", to, NULL) == PH_OK, "%s",
          ph_error(ctx));
    ph_file *one = map_file(to, "model.safetensors");
    for (int i = 1; i <= 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-00004.safetensors", i);
        ph_file *shard = map_file(FOLDER "llama-shards", name);
        count += equal_tensors(shard, one);
        ph_file_free(shard);
    }
    while (ph_file_tensor(one, all)) all++;
    CHECK(count == all && entries(to) == 2, "%zu of %zu tensors", count, all);
    ph_file_free(one);
    ph_close(ctx);
    end();
}

static void converted(void)
{
    begin();
    ph_ctx *ctx = open_ctx();
    const char *to = in_place("half");
    const ph_dtype type = PH_BF16;
    char path[512], text[4096] = "";
    CHECK(ph_model_export(ctx, FOLDER "llama", to, &type) == PH_OK, "%s", ph_error(ctx));
    ph_file *a = map_file(FOLDER "llama", "model.safetensors");
    ph_file *b = map_file(to, "model.safetensors");
    const ph_tensor *t;
    for (size_t i = 0; (t = ph_file_tensor(a, i)); i++) {
        const ph_tensor *half = ph_file_find(b, t->name);
        uint16_t *expected = malloc(t->bytes);
        CHECK(ph_tensor_convert(t, PH_BF16, expected) == PH_OK, "no conversion");
        CHECK(half && half->type == PH_BF16 && half->bytes == t->bytes / 2 &&
                  !memcmp(half->data, expected, half->bytes),
              "%s is not rounded", t->name);
        free(expected);
    }
    snprintf(path, sizeof path, "%s/config.json", to);
    FILE *f = fopen(path, "rb");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0, "no config.json");
    fclose(f);
    CHECK(strstr(text, "\"dtype\": \"bfloat16\",\n") && !strstr(text, "float32"),
          "config.json says another type: %s", text);
    ph_file_free(a);
    ph_file_free(b);
    ph_close(ctx);
    end();
}

/* ---- models ------------------------------------------------------------------------ */

enum { LEN = 9, VOCAB = 23 };

static void run_logits(ph_model *m, float *logits)
{
    static const int32_t ids[LEN] = {1, 7, 5, 22, 0, 11, 5, 3, 19};
    ph_pass_shape shape = {.batch = 1, .source_len = LEN};
    ph_batch batch = {.source = ids};
    ph_pass *p;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(m->ctx));
    memcpy(logits, p->logits, LEN * (size_t)m->config.vocab * sizeof *logits);
    ph_pass_free(p);
}

static ph_config like_llama(void)
{
    return (ph_config){.arch = PH_ARCH_DECODER,
                       .vocab = VOCAB,
                       .layers = 2,
                       .model_dim = 24,
                       .heads = 4,
                       .kv_heads = 2,
                       .head_dim = 6,
                       .ff_dim = 40,
                       .max_len = 16,
                       .norm = PH_NORM_RMS,
                       .activation = PH_SWIGLU,
                       .positions = PH_POS_ROPE,
                       .no_bias = PH_NO_BIAS,
                       .dropout = 0.1f};
}

static ph_config like_gpt2(void)
{
    return (ph_config){.arch = PH_ARCH_DECODER,
                       .vocab = VOCAB,
                       .layers = 2,
                       .model_dim = 24,
                       .heads = 4,
                       .max_len = 16,
                       .positions = PH_POS_LEARNED};
}

/* Random biases and gains too: initial ones would hide a mistake. */
static void write_model(ph_ctx *ctx, const ph_config *c, const char *path)
{
    ph_model *m;
    size_t floats;
    uint64_t state = check_seed;
    CHECK(ph_model_create(&m, ctx, c, PH_SPLIT_WORDS, NULL, 0, 5) == PH_OK, "%s",
          ph_error(ctx));
    float *block = ph_model_block(m, &floats);
    for (size_t i = 0; i < floats; i++)
        block[i] = (float)((double)(check_random(&state) >> 40) / (1 << 24) - 0.5);
    CHECK(ph_model_write(m, path) == PH_OK, "%s", ph_error(ctx));
    ph_model_free(m);
}

/* A model of ours, its folder: the same bits. */
static void check_own(const ph_config *c, const char *expected)
{
    static float ours[LEN * VOCAB], theirs[LEN * VOCAB];
    char from[256], to[256], path[300], text[4096] = "";
    ph_model *m;
    begin();
    ph_ctx *ctx = open_ctx();
    strcpy(from, in_place("own.safetensors"));
    strcpy(to, in_place("folder"));
    write_model(ctx, c, from);
    CHECK(ph_model_export(ctx, from, to, NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_read(&m, ctx, from) == PH_OK, "%s", ph_error(ctx));
    run_logits(m, ours);
    ph_model_free(m);
    CHECK(ph_model_read(&m, ctx, to) == PH_OK, "%s", ph_error(ctx));
    run_logits(m, theirs);
    ph_model_free(m);
    CHECK(!memcmp(ours, theirs, sizeof ours), "%s: other bits", expected);
    snprintf(path, sizeof path, "%s/config.json", to);
    FILE *f = fopen(path, "rb");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0, "no config.json");
    fclose(f);
    CHECK(strstr(text, expected), "config.json lacks %s: %s", expected, text);
    ph_close(ctx);
    end();
}

static void own_as_llama(void)
{
    ph_config c = like_llama();
    check_own(&c, "\"model_type\": \"llama\"");
    c.untied = 1, c.embed_scale = 1, c.no_bias &= ~PH_NO_BIAS_FF;
    check_own(&c, "\"mlp_bias\": true");
}

static void own_as_mistral_and_qwen(void)
{
    ph_config c = like_llama();
    c.window = 5;
    check_own(&c, "\"model_type\": \"mistral\"");
    c = like_llama();
    c.no_bias &= ~(PH_NO_BIAS_Q | PH_NO_BIAS_K | PH_NO_BIAS_V);
    c.window = 3, c.window_from = 1;
    check_own(&c, "\"model_type\": \"qwen2\"");
    c = like_llama();
    c.qk_norm = 1;
    check_own(&c, "\"model_type\": \"qwen3\"");
}

/* Types without head_dim, which are tried before, would rotate 24 / 8 elements. */
static void own_as_olmo2(void)
{
    ph_config c = like_llama();
    c.heads = c.kv_heads = 8, c.head_dim = 4;
    c.norm_place = PH_OUTPUT_NORM, c.qk_norm = c.qk_norm_whole = 1;
    check_own(&c, "\"model_type\": \"olmo2\"");
}

static void own_as_gpt2(void)
{
    ph_config c = like_gpt2();
    check_own(&c, "\"model_type\": \"gpt2\"");
    c.scale_by_layer = 1, c.activation = PH_RELU, c.untied = 1;
    check_own(&c, "\"activation_function\": \"relu\"");
    c.activation = PH_SILU;
    check_own(&c, "\"activation_function\": \"silu\"");
}

/* Pooling, tokenizers and what becomes of a picture are in files of their own. */
static void check_read_back(const ph_model *m, const char *folder)
{
    ph_model *again;
    CHECK(ph_model_read(&again, m->ctx, folder) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_model_own(again) == PH_OK && m->floats == again->floats &&
              !memcmp(m->block, again->block, m->floats * sizeof *m->block),
          "%s: other parameters", folder);
    const char *field = ph_config_differs(&m->config, &again->config);
    CHECK(!field, "%s: another %s", folder, field);
    CHECK(!memcmp(&m->preprocess, &again->preprocess, sizeof m->preprocess),
          "%s: another preprocessing", folder);
    CHECK(m->tokenizer_size == again->tokenizer_size &&
              m->target_size == again->target_size &&
              (!m->target_file ||
               !memcmp(m->target_file, again->target_file, m->target_size)),
          "%s: other tokenizers", folder);
    ph_model_free(again);
}

/* Scores of the decoder for the golden inputs. */
static void run_pair(ph_model *m, const char *folder, float *logits)
{
    ph_file *golden = map_file(folder, "golden.safetensors");
    const ph_tensor *source = ph_file_find(golden, m->config.mels ? "features" : "ids");
    const ph_tensor *target = ph_file_find(golden, "target");
    ph_pass_shape shape = {.batch = 1, .target_len = LEN - 2};
    ph_batch batch = {.target = target->data};
    ph_pass *p;
    shape.source_len = (int)source->shape[1] / (m->config.mels ? 2 : 1);
    if (m->config.mels)
        batch.features = source->data;
    else
        batch.source = source->data;
    CHECK(ph_pass_create(&p, m, &shape) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_forward(p, &batch, 0) == PH_OK, "%s", ph_error(m->ctx));
    CHECK(ph_pass_logits(p) == PH_OK, "%s", ph_error(m->ctx));
    memcpy(logits, p->logits, (LEN - 2) * 97 * sizeof *logits);
    ph_pass_free(p);
    ph_file_free(golden);
}

/* The same scores, marks, and tokens that are forced and suppressed. */
static void check_same_pair(ph_model *m, const char *from, const char *to)
{
    static float before[(LEN - 2) * 97], after[(LEN - 2) * 97];
    ph_model *again;
    check_read_back(m, to);
    CHECK(ph_model_read(&again, m->ctx, to) == PH_OK, "%s", ph_error(m->ctx));
    run_pair(m, from, before);
    run_pair(again, from, after);
    CHECK(!memcmp(before, after, sizeof before), "%s: other scores", from);
    CHECK(!memcmp(&m->marks, &again->marks, sizeof m->marks), "%s: other marks", from);
    CHECK(!m->suppressed == !again->suppressed &&
              (!m->suppressed || !memcmp(m->suppressed, again->suppressed, 97)),
          "%s: other tokens are suppressed", from);
    ph_model_free(again);
}

/* A folder as a file of ours, and back: every tensor has its values. Some folders hold
   one table under several names, or positions that are computed. */
static void encoder_decoders(void)
{
    static const struct {
        const char *name;
        int same; /* 2: all tensors, 1: those of the export, 0: under other names */
    } models[] = {{"t5", 2},      {"t5-gated", 0},       {"mt5", 2},
                  {"marian", 2},  {"marian-relu", 1},    {"bart", 0},
                  {"whisper", 2}, {"whisper-forced", 2}, {"bart-forced", 1}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const char *name = models[i].name;
        char from[256], own[256], to[256];
        ph_model *m;
        begin();
        ph_ctx *ctx = open_ctx();
        snprintf(from, sizeof from, FOLDER "%s", name);
        strcpy(own, in_place("own.safetensors"));
        strcpy(to, in_place("folder"));
        CHECK(ph_model_read(&m, ctx, from) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
              ph_error(ctx));
        ph_file *a = map_file(from, "model.safetensors");
        ph_dtype type = ph_file_tensor(a, 0)->type; /* f32 in between changes no value */
        CHECK(ph_model_export(ctx, own, to, &type) == PH_OK, "%s: %s", name,
              ph_error(ctx));
        ph_file *b = map_file(to, "model.safetensors");
        if (models[i].same)
            CHECK(equal_tensors(b, a) == (size_t)m->param_count, "%s: others", name);
        if (models[i].same == 2)
            CHECK(equal_tensors(a, b) == (size_t)m->param_count, "%s: more", name);
        check_same_pair(m, from, to);
        ph_model_free(m);
        ph_file_free(a);
        ph_file_free(b);
        ph_close(ctx);
        end();
    }
}

/* One of ours: embeddings that are not tied to the output have three names. */
static void own_as_marian(void)
{
    ph_config c = like_gpt2();
    c.arch = PH_ARCH_ENCODER_DECODER, c.decoder_layers = 1, c.output_bias = 1;
    c.norm_place = PH_POST_NORM, c.positions = PH_POS_SINUSOIDAL_HALVES;
    for (c.untied = 0; c.untied < 2; c.untied++) {
        char from[256], to[256];
        ph_model *m;
        size_t count = 0;
        begin();
        ph_ctx *ctx = open_ctx();
        strcpy(from, in_place("own.safetensors"));
        strcpy(to, in_place("folder"));
        write_model(ctx, &c, from);
        CHECK(ph_model_export(ctx, from, to, NULL) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_read(&m, ctx, from) == PH_OK, "%s", ph_error(ctx));
        check_read_back(m, to);
        ph_file *file = map_file(to, "model.safetensors");
        while (ph_file_tensor(file, count)) count++;
        CHECK(count == (size_t)(m->param_count + 2 * c.untied), "%zu tensors", count);
        ph_file_free(file);
        ph_model_free(m);
        ph_close(ctx);
        end();
    }
}

/* Encoders that were read, trained or not, and written by us: the same tensors under the
   names they had, the tokenizer, the names of classes. */
static void own_as_encoders(void)
{
    static const char *const names[] = {"bert",
                                        "bert-classes",
                                        "bert-sentence",
                                        "roberta",
                                        "distilbert",
                                        "distilbert-classes",
                                        "distilbert-multi",
                                        "roberta-classes",
                                        "vit",
                                        "vit-plain",
                                        "deit",
                                        "deit-teacher",
                                        "mpnet",
                                        "mpnet-classes",
                                        "mpnet-tokens",
                                        "roberta-tokens",
                                        "electra",
                                        "electra-classes",
                                        "albert",
                                        "albert-classes",
                                        "albert-tokens",
                                        "electra-tokens",
                                        "modernbert",
                                        "modernbert-biased",
                                        "modernbert-classes",
                                        "modernbert-tokens",
                                        "modernbert-first",
                                        "t5-encoder"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char from[256], own[256], to[256], text[8192] = "";
        ph_model *m;
        begin();
        ph_ctx *ctx = open_ctx();
        snprintf(from, sizeof from, FOLDER "%s", names[i]);
        strcpy(own, in_place("own.safetensors"));
        strcpy(to, in_place("folder"));
        CHECK(ph_model_read(&m, ctx, from) == PH_OK, "%s", ph_error(ctx));
        CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
              ph_error(ctx));
        ph_file *a = map_file(from, "model.safetensors");
        ph_dtype type = ph_file_tensor(a, 0)->type; /* f32 in between changes no value */
        CHECK(ph_model_export(ctx, own, to, &type) == PH_OK, "%s: %s", names[i],
              ph_error(ctx));
        ph_file *b = map_file(to, "model.safetensors");
        int renamed = !strcmp(names[i], "bert-sentence"); /* gamma and beta */
        int fused = !strncmp(names[i], "modernbert", 10); /* several are one tensor */
        size_t expected = fused ? equal_tensors(a, b) : (size_t)m->param_count;
        CHECK(renamed || equal_tensors(b, a) == expected, "%s: other tensors", names[i]);
        if (m->tokenizer) check_same_text(from, to, "vocab.txt");
        FILE *f = fopen(in_place("folder/config.json"), "rb");
        CHECK(f && fread(text, 1, sizeof text - 1, f) > 0, "no config.json");
        fclose(f);
        const char *name = m->config.classes  ? ph_model_class(m, 1)
                           : m->config.masked ? "ForMaskedLM"
                                              : "Model\"";
        CHECK(strstr(text, name), "%s: config.json has no %s", names[i], name);
        CHECK(!fused || strstr(text, "\"pad_token_id\": 0"), "%s: no padding", names[i]);
        check_read_back(m, to);
        ph_file_free(a);
        ph_file_free(b);
        ph_model_free(m);
        ph_close(ctx);
        end();
    }
}

/* ---- refused ----------------------------------------------------------------------- */

static void check_refused(const ph_config *c, const char *sentence)
{
    char from[256], to[256];
    begin();
    ph_ctx *ctx = open_ctx();
    strcpy(from, in_place("own.safetensors"));
    strcpy(to, in_place("folder"));
    write_model(ctx, c, from);
    CHECK(ph_model_export(ctx, from, to, NULL) == PH_UNSUPPORTED &&
              strstr(ph_error(ctx), sentence),
          "expected '%s', found '%s'", sentence, ph_error(ctx));
    CHECK(entries(place) == 1, "something was left behind");
    ph_close(ctx);
    end();
}

static void not_expressible(void)
{
    ph_config c = like_gpt2();
    c.positions = PH_POS_ALIBI;
    check_refused(&c, "gpt2 differs in positions");
    c = like_gpt2();
    c.no_bias = PH_NO_BIAS_NORM;
    check_refused(&c, "gpt2 differs in bias");
    c = like_llama();
    c.norm_place = PH_POST_NORM;
    check_refused(&c, "llama differs in norm_place");
    c = like_llama();
    c.kv_heads = 0;
    strcpy(c.variant, "talking");
    check_refused(&c, "attention is talking");
    c = like_llama();
    c.window = 5, c.window_period = 2;
    check_refused(&c, "llama differs in window_period");
    c = like_gpt2();
    c.arch = PH_ARCH_ENCODER_DECODER, c.decoder_layers = 1;
    check_refused(&c, "marian differs in norm_place, whisper differs in mels");
}

static void targets(void)
{
    begin();
    ph_ctx *ctx = open_ctx();
    const char *to = in_place("there");
    const ph_dtype wrong = PH_Q8_0;
    CHECK(mkdir(to, 0777) == 0, "mkdir");
    CHECK(ph_model_export(ctx, FOLDER "llama", to, NULL) == PH_OK, "an empty folder: %s",
          ph_error(ctx));
    CHECK(ph_model_export(ctx, FOLDER "gpt2", to, NULL) == PH_IO_ERROR &&
              strstr(ph_error(ctx), "new or empty"),
          "%s", ph_error(ctx));
    check_same_text(FOLDER "llama", to, "config.json");
    CHECK(ph_model_export(ctx, FOLDER "nothing", in_place("x"), NULL) == PH_IO_ERROR,
          "%s", ph_error(ctx));
    CHECK(ph_model_export(ctx, FOLDER "llama", in_place("a/b"), NULL) == PH_IO_ERROR,
          "%s", ph_error(ctx));
    CHECK(ph_model_export(ctx, FOLDER "llama", in_place("x"), &wrong) == PH_BAD_ARGUMENT,
          "%s", ph_error(ctx));
    CHECK(entries(place) == 1, "something was left behind");
    ph_close(ctx);
    end();
}

static const check_case cases[] = {{"round_trip", round_trip},
                                   {"shards_become_one_file", shards_become_one_file},
                                   {"converted", converted},
                                   {"own_as_llama", own_as_llama},
                                   {"own_as_mistral_and_qwen", own_as_mistral_and_qwen},
                                   {"own_as_olmo2", own_as_olmo2},
                                   {"own_as_gpt2", own_as_gpt2},
                                   {"encoder_decoders", encoder_decoders},
                                   {"own_as_marian", own_as_marian},
                                   {"own_as_encoders", own_as_encoders},
                                   {"not_expressible", not_expressible},
                                   {"targets", targets},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
