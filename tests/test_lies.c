/*
 * test_lies.c - every field of a checkpoint that is looked at lies: config.json, the
 * files beside it and the metadata of GGUF, of every architecture.
 *
 * No field can be forgotten here: the values tell which keys are looked for while a
 * checkpoint is imported, and each of them, and each object around it, becomes something
 * else in turn. A field has one kind: any other is refused with a sentence that names it
 * or what stands around it. Of its own kind a value is refused with a sentence, or gives
 * a model: an epsilon of one half is strange, but nothing in the file contradicts it.
 */
#include <math.h>

#include "architectures/architecture.h"
#include "check.h"
#include "model/model.h"
#include "model/store.h"

#define FOLDER "tests/golden/checkpoints/"

static const char *const checkpoints[] = {"llama",
                                          "mistral",
                                          "qwen2",
                                          "qwen3",
                                          "gpt2",
                                          "bert",
                                          "bert-classes",
                                          "bert-sentence",
                                          "llama-classes",
                                          "roberta",
                                          "electra",
                                          "electra-classes",
                                          "albert",
                                          "albert-classes",
                                          "modernbert",
                                          "modernbert-biased",
                                          "modernbert-classes",
                                          "modernbert-tokens",
                                          "modernbert-first",
                                          "mpnet",
                                          "mpnet-classes",
                                          "distilbert-classes",
                                          "distilbert-multi",
                                          "vit",
                                          "deit",
                                          "deit-teacher",
                                          "t5",
                                          "t5-gated",
                                          "t5-encoder",
                                          "gemma3",
                                          "gemma3-pictures",
                                          "gemma2",
                                          "gemma",
                                          "phi3",
                                          "phi3-plain",
                                          "gpt_neox",
                                          "opt",
                                          "smollm3",
                                          "olmo2",
                                          "marian",
                                          "whisper",
                                          "whisper-forced",
                                          "bart",
                                          "bart-forced",
                                          "llama-gguf/model.gguf",
                                          "gemma3-gguf/model.gguf",
                                          "gemma2-gguf/model.gguf",
                                          "gemma-gguf/model.gguf",
                                          "phi3-gguf/model.gguf",
                                          "gpt_neox-gguf/model.gguf",
                                          "smollm3-gguf/model.gguf",
                                          "olmo2-gguf/model.gguf",
                                          "bert.gguf"};

enum { CHECKPOINTS = sizeof checkpoints / sizeof checkpoints[0], KEYS = 256, KEY = 160 };

static ph_ctx *ctx;
static char asked[KEYS][KEY];
static int asked_count, flat; /* flat: keys of GGUF have nothing around them */

/* Documents beside config.json: their prefix is no value. */
static int is_document(const char *key)
{
    static const char *const names[] = {
        "generation",   "modules",          "pooling",       "sentence",
        "preprocessor", "tokenizer_config", "chat_template", "sentence_transformers"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(key, names[i])) return 1;
    return 0;
}

static void remember(const char *key)
{
    char around[KEY];
    if (is_document(key)) return;
    for (int i = 0; i < asked_count; i++)
        if (!strcmp(asked[i], key)) return;
    CHECK(asked_count < KEYS && strlen(key) < KEY, "%s does not fit", key);
    strcpy(asked[asked_count++], key);
    const char *dot = strrchr(key, '.');
    if (!dot || !dot[1] || flat) return;
    snprintf(around, sizeof around, "%.*s", (int)(dot - key), key);
    remember(around);
}

static ph_checkpoint *open_checkpoint(const char *name)
{
    char path[200], error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_checkpoint *c;
    snprintf(path, sizeof path, FOLDER "%s", name);
    CHECK(ph_checkpoint_open(&c, path, &io) == PH_OK, "%s: %s", name, error);
    return c;
}

/* The value under a key, and all inside it, become the lie. */
static void tell(ph_checkpoint *c, const char *key, ph_value lie)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_values *v = &c->values;
    size_t length = strlen(key), kept = 0;
    for (size_t i = 0; i < v->count; i++) {
        const char *k = v->list[i].key;
        int inside = !strncmp(k, key, length) && (!k[length] || k[length] == '.');
        if (!inside) v->list[kept++] = v->list[i];
    }
    v->count = kept;
    lie.key = key;
    CHECK(ph_values_add(v, &lie, &io) == PH_OK, "%s", error);
    CHECK(ph_values_sort(v, key, &io) == PH_OK, "%s", error);
}

/* Consumes the checkpoint. */
static ph_status import(ph_checkpoint *c, const char *name)
{
    char path[200];
    ph_model *m;
    snprintf(path, sizeof path, FOLDER "%s", name);
    ph_status status = ph_model_import(&m, ctx, c, path);
    if (status == PH_OK)
        ph_model_free(m);
    else
        ph_checkpoint_free(c);
    return status;
}

static void list_fields(const char *name)
{
    ph_checkpoint *c = open_checkpoint(name);
    flat = c->kind == PH_CHECKPOINT_GGUF;
    asked_count = 0;
    c->values.asked = remember;
    CHECK(import(c, name) == PH_OK, "%s: %s", name, ph_error(ctx));
}

/* ---- what may be taken ------------------------------------------------------------- */

static int contains(const char *key, const char *part)
{
    return strstr(key, part) != NULL;
}

/* Settings of generation that count for nothing: whether one is set is all that is asked,
   so any number will do. */
static int counts_for_nothing(const char *key)
{
    static const char *const names[] = {
        "num_beam",      "diversity_penalty",          "length_penalty",
        "penalty_alpha", "encoder_repetition_penalty", "encoder_no_repeat_ngram_size",
        "sequence_bias", "guidance_scale",             "force_words_ids",
        "stop_strings",  "max_time",                   "watermarking_config"};
    int found = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        found |= contains(key, names[i]);
    return found;
}

/* An id of a token may be -1 for none; ends of a text are one or a list. */
static int may_be(const char *key, const ph_value *lie)
{
    int token = contains(key, "_token") || contains(key, "transcribe");
    int ends = contains(key, "eos_token_id") || contains(key, "eot_token_id");
    if (lie->kind == PH_VALUE_NUMBER)
        return (token && lie->number == -1) || counts_for_nothing(key);
    if (lie->kind == PH_VALUE_LIST)
        return ends || contains(key, "suppress_tokens") ||
               contains(key, "forced_decoder_ids") || contains(key, "bad_words_ids") ||
               counts_for_nothing(key) || contains(key, "modules.") ||
               contains(key, "architectures") || contains(key, "id2label") ||
               contains(key, "chat_template") || contains(key, "ggml.merges") ||
               contains(key, "charsmap");
    return 1;
}

/* Does the sentence name the key, by its last part or by what stands around it? */
static int is_named(const char *key, const char *sentence)
{
    char part[KEY];
    for (const char *at = key; *at;) {
        size_t length = strcspn(at, ".");
        snprintf(part, sizeof part, "%.*s", (int)length, at);
        if (length > 2 && contains(sentence, part)) return 1;
        at += length + (at[length] == '.');
    }
    return 0;
}

/* ---- the lies ---------------------------------------------------------------------- */

/* The last four may be meant, and contradict something else in the file. */
static const ph_value lies[] = {{.kind = PH_VALUE_TEXT, .text = "lie", .length = 3},
                                {.kind = PH_VALUE_BOOL, .number = 1},
                                {.kind = PH_VALUE_LIST},
                                {.kind = PH_VALUE_OBJECT},
                                {.kind = PH_VALUE_NUMBER, .number = -1},
                                {.kind = PH_VALUE_NUMBER, .number = 1e300},
                                {.kind = PH_VALUE_NUMBER, .number = NAN},
                                {.kind = PH_VALUE_NUMBER, .number = 0.5},
                                {.kind = PH_VALUE_NUMBER, .number = 0},
                                {.kind = PH_VALUE_NUMBER, .number = 1 << 30},
                                {.kind = PH_VALUE_NULL}};
enum { LIES = sizeof lies / sizeof lies[0], SOFT = LIES - 4 };

/* Tells one field every lie. */
static void lie_about(const char *name, const char *key)
{
    int kinds = 0; /* bits of those that were taken */
    for (int l = 0; l < LIES; l++) {
        ph_checkpoint *c = open_checkpoint(name);
        tell(c, key, lies[l]);
        ph_status status = import(c, name);
        ph_io_quoted lie = ph_value_show(&lies[l]);
        const char *shown = lie.text, *says = ph_error(ctx);
        if (status != PH_OK) {
            CHECK(*says, "%s: %s %s is refused without a sentence", name, key, shown);
            int soft = l >= SOFT || (lies[l].kind == PH_VALUE_OBJECT &&
                                     contains(says, "tensor")); /* {}: the defaults */
            CHECK(soft || is_named(key, says), "%s: %s %s is refused by: %s", name, key,
                  shown, says);
        } else if (lies[l].kind != PH_VALUE_NULL) {
            CHECK(l >= SOFT || may_be(key, &lies[l]), "%s: %s %s is taken", name, key,
                  shown);
            kinds |= 1 << lies[l].kind;
        }
    }
    if (may_be(key, &lies[2])) kinds &= ~(1 << PH_VALUE_LIST);
    CHECK((kinds & (kinds - 1)) == 0, "%s: %s is of several kinds (%#x)", name, key,
          (unsigned)kinds);
}

static void every_field(void)
{
    int fields = 0;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (int i = 0; i < CHECKPOINTS; i++) {
        list_fields(checkpoints[i]);
        CHECK(asked_count > 20, "%s: %d fields", checkpoints[i], asked_count);
        fields += asked_count;
        for (int k = 0; k < asked_count; k++) lie_about(checkpoints[i], asked[k]);
    }
    CHECK(fields > 1000, "%d fields", fields);
    ph_close(ctx);
}

/* GGUF has ids of 32 bits without a sign, and -1 among them as the largest. */
static void no_token(void)
{
    static const char *const keys[] = {"bos_token_id", "eos_token_id", "eot_token_id",
                                       "eom_token_id", "padding_token_id"};
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (int i = 0; i < 5; i++) {
        char key[KEY];
        ph_checkpoint *c = open_checkpoint("llama-gguf/model.gguf");
        snprintf(key, sizeof key, "tokenizer.ggml.%s", keys[i]);
        tell(c, key, (ph_value){.kind = PH_VALUE_NUMBER, .number = UINT32_MAX});
        CHECK(import(c, "llama-gguf/model.gguf") == PH_OK, "%s", ph_error(ctx));
    }
    ph_close(ctx);
}

/* A text would begin without the token that it shall begin with. */
static void no_such_token(void)
{
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (double id = 97; id < 1e9; id *= 1000) { /* of 97 tokens */
        ph_checkpoint *c = open_checkpoint("llama-gguf/model.gguf");
        tell(c, "tokenizer.ggml.bos_token_id",
             (ph_value){.kind = PH_VALUE_NUMBER, .number = id});
        CHECK(import(c, "llama-gguf/model.gguf") == PH_BAD_FILE, "%g is taken", id);
        CHECK(contains(ph_error(ctx), "bos_token_id is 97") &&
                  contains(ph_error(ctx), "expected a token of the vocabulary"),
              "%s", ph_error(ctx));
    }
    ph_close(ctx);
}

/* GGUF may list what each layer has: the same everywhere is a number. */
static void lists_of_layers(void)
{
    static const uint32_t same[] = {2, 2, 2}, other[] = {2, 4}, none[] = {0, 0};
    const struct {
        const uint32_t *items;
        size_t count;
        const char *sentence;
    } all[] = {{same, 2, NULL},
               {same, 0, "head_count_kv lists 0 values, expected one for each of 2 "},
               {same, 1, "head_count_kv lists 1 values, expected one for each of 2 "},
               {same, 3, "lists 3 values, expected one for each of 2 layers"},
               {none, 2, "head_count_kv is 0, expected"},
               {other, 2, "head_count_kv is 2 in layer 0 and 4 in layer 1, expected"}};
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ph_checkpoint *c = open_checkpoint("llama-gguf/model.gguf");
        ph_value list = {.kind = PH_VALUE_LIST, .count = all[i].count, .item_type = 4};
        list.items = (const unsigned char *)all[i].items;
        tell(c, "llama.attention.head_count_kv", list);
        ph_status status = import(c, "llama-gguf/model.gguf");
        int refused = status != PH_OK;
        CHECK(refused == (all[i].sentence != NULL), "%zu: %s", i, ph_error(ctx));
        CHECK(!refused || contains(ph_error(ctx), all[i].sentence), "%zu: %s", i,
              ph_error(ctx));
    }
    ph_checkpoint *c = open_checkpoint("llama-gguf/model.gguf");
    ph_value list = {.kind = PH_VALUE_LIST, .count = 1, .item_type = 4};
    list.items = (const unsigned char *)same;
    tell(c, "llama.block_count", list);
    CHECK(import(c, "llama-gguf/model.gguf") == PH_BAD_FILE &&
              contains(ph_error(ctx), "block_count is a list, expected a whole number"),
          "%s", ph_error(ctx));
    ph_close(ctx);
}

/* ---- every architecture is there --------------------------------------------------- */

static void every_architecture(void)
{
    const ph_architecture *a;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    for (int i = 0; (a = ph_architecture_at(i)); i++) {
        int found = 0;
        for (int k = 0; k < CHECKPOINTS; k++) {
            ph_checkpoint *c = open_checkpoint(checkpoints[k]);
            ph_import in;
            CHECK(ph_import_begin(&in, ctx, c) == PH_OK, "%s", ph_error(ctx));
            found += in.architecture == a;
            ph_checkpoint_free(c);
        }
        CHECK(found, "no checkpoint of %s lies", a->types[0]);
    }
    ph_close(ctx);
}

static const check_case cases[] = {{"every_field", every_field},
                                   {"no_token", no_token},
                                   {"no_such_token", no_such_token},
                                   {"lists_of_layers", lists_of_layers},
                                   {"every_architecture", every_architecture},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
