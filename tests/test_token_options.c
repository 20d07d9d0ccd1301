/*
 * test_token_options.c - what tokenizer_config.json says on top of tokenizer.json and
 * vocab.txt: ids that AutoTokenizer of transformers 5.23 gives for the same folders, made
 * of tests/golden_tokens; kept in our own files and exported.
 */
#define _GNU_SOURCE
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "polyhead_model.h"
#include "polyhead_prune.h"
#include "polyhead_text.h"

#define GOLDEN "tests/golden_tokens/"

static char sentence[500], folder[64];
static const ph_io io = {.error = sentence, .error_size = sizeof sentence};

#define LES     "Les Caf\303\251 \347\232\204\344\270\255x"
#define GENERIC "\"tokenizer_class\": \"PreTrainedTokenizerFast\"}"

enum { MOST = 12 };

static const struct {
    const char *file, *model_type, *config, *text;
    int ids[MOST], count;
} golden[] = {
    {"bert_uncased",
     "bert",
     NULL,
     LES,
     {2, 702, 312, 45, 307, 314, 308, 1, 213, 66, 3},
     11},
    {"bert_uncased",
     "bert",
     "{\"do_lower_case\": false}",
     LES,
     {2, 1, 1, 1, 213, 66, 3},
     7},
    {"bert_uncased",
     "bert",
     "{\"do_lower_case\": true, \"strip_accents\": false}",
     LES,
     {2, 702, 312, 1, 1, 213, 66, 3},
     8},
    {"bert_uncased",
     "bert",
     "{\"strip_accents\": true, \"do_lower_case\": false, "
     "\"tokenizer_class\": \"BertTokenizerFast\"}",
     LES,
     {2, 1, 1, 1, 213, 66, 3},
     7},
    {"bert_uncased",
     "bert",
     "{\"tokenize_chinese_chars\": false, \"strip_accents\": null}",
     LES,
     {2, 702, 312, 45, 307, 314, 308, 1, 3},
     9},
    {"bert_uncased",
     "distilbert",
     "{\"do_lower_case\": false, \"tokenizer_class\": \"DistilBertTokenizer\"}",
     LES,
     {2, 1, 1, 1, 213, 66, 3},
     7},
    {"bert_uncased",
     "bert",
     "{\"do_lower_case\": false, " GENERIC,
     LES,
     {2, 702, 312, 45, 307, 314, 308, 1, 213, 66, 3},
     11},
    {"bert_uncased",
     "mistral",
     "{\"do_lower_case\": false, \"tokenizer_class\": \"BertTokenizer\"}",
     LES,
     {2, 702, 312, 45, 307, 314, 308, 1, 213, 66, 3},
     11},
    {"bert_cased", "bert", NULL, LES, {2, 723, 308, 898, 329, 306, 1, 1, 92, 3}, 10},
    {"bert_cased",
     "bert",
     "{\"do_lower_case\": false}",
     LES,
     {2, 48, 539, 39, 309, 329, 386, 1, 1, 92, 3},
     11},
    {"bert_cased",
     "bert",
     "{" GENERIC,
     LES,
     {2, 48, 539, 39, 309, 329, 386, 1, 1, 92, 3},
     11},
    {"gpt2", "gpt2", NULL, "the cat", {384, 291, 341}, 3},
    {"gpt2", "gpt2", "{\"add_prefix_space\": true}", "the cat", {277, 291, 341}, 3},
    {"gpt2",
     "gpt2",
     "{\"add_prefix_space\": true, " GENERIC,
     "the cat",
     {384, 291, 341},
     3},
    {"gpt2",
     "llama",
     "{\"add_prefix_space\": true, \"tokenizer_class\": \"GPT2TokenizerFast\"}",
     "the cat",
     {277, 291, 341},
     3},
    {"roberta", "roberta", NULL, "the cat", {0, 478, 294, 352, 2}, 5},
    {"roberta",
     "roberta",
     "{\"add_prefix_space\": true}",
     "the cat",
     {0, 277, 294, 352, 2},
     5},
    {"roberta",
     "roberta",
     "{\"add_prefix_space\": false, " GENERIC,
     "the cat",
     {0, 277, 294, 352, 2},
     5}};

enum { GOLDENS = sizeof golden / sizeof golden[0], WORDS = 6 }; /* the first: vocab.txt */

/* ---- folders ----------------------------------------------------------------------- */

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void begin_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/test_token_options_XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
}

static void end_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0, "%s stays", folder);
}

static void write_file(const char *name, const char *text)
{
    unlink(path_of(name));
    if (!text) return;
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "cannot write %s", name);
}

static void link_file(const char *from, const char *name)
{
    char *whole = realpath(from, NULL);
    unlink(path_of(name));
    CHECK(whole && symlink(whole, path_of(name)) == 0, "cannot link %s", from);
    free(whole);
}

/* The tokens of a tokenizer.json as BERT's older vocab.txt. */
static void write_words(const char *json)
{
    ph_tokenizer *t;
    size_t length;
    CHECK(ph_tokenizer_read(&t, json, &io) == PH_OK, "%s", sentence);
    FILE *file = fopen(path_of("vocab.txt"), "wb");
    CHECK(file, "cannot write vocab.txt");
    for (int32_t i = 0; ph_tokenizer_token(t, i, &length); i++)
        fprintf(file, "%s\n", ph_tokenizer_token(t, i, &length));
    fclose(file);
    ph_tokenizer_free(t);
}

/* ---- ids --------------------------------------------------------------------------- */

static void compare(int i, const char *what)
{
    ph_tokenizer *t;
    ph_encoder *e;
    const ph_text_token *tokens;
    size_t count;
    ph_encode_args args = {.text = golden[i].text, .length = strlen(golden[i].text)};
    CHECK(ph_tokenizer_open(&t, folder, &io) == PH_OK, "%s", sentence);
    CHECK(ph_encoder_create(&e, t, &io) == PH_OK, "%s", sentence);
    CHECK(ph_encode(e, &args, &tokens, &count) == PH_OK, "%s", sentence);
    CHECK((int)count == golden[i].count, "%d, %s: %zu tokens", i, what, count);
    for (size_t k = 0; k < count; k++)
        CHECK(tokens[k].id == golden[i].ids[k], "%d, %s: token %zu is %d, expected %d", i,
              what, k, (int)tokens[k].id, golden[i].ids[k]);
    if (!strcmp(golden[i].file, "roberta")) /* a blank put before is no byte of it */
        CHECK(tokens[1].start == 0, "%d: the first token begins at %zu", i,
              tokens[1].start);
    ph_encoder_free(e);
    ph_tokenizer_free(t);
}

static void ids(void)
{
    begin_folder();
    for (int i = 0; i < GOLDENS; i++) {
        char path[128], config[128];
        snprintf(path, sizeof path, GOLDEN "%s.json", golden[i].file);
        snprintf(config, sizeof config, "{\"model_type\": \"%s\"}", golden[i].model_type);
        write_file("config.json", config);
        write_file("tokenizer_config.json", golden[i].config);
        link_file(path, "tokenizer.json");
        compare(i, "tokenizer.json");
        if (i >= WORDS) continue;
        write_file("tokenizer.json", NULL);
        write_words(path);
        compare(i, "vocab.txt");
        write_file("vocab.txt", NULL);
    }
    end_folder();
}

static void refused(void)
{
    ph_tokenizer *t;
    begin_folder();
    link_file(GOLDEN "bert_cased.json", "tokenizer.json");
    write_file("tokenizer_config.json",
               "{\"tokenizer_class\": \"BertTokenizer\", \"do_lower_case\": 7}");
    CHECK(ph_tokenizer_open(&t, folder, &io) == PH_BAD_FILE &&
              strstr(sentence,
                     "tokenizer_config.json: do_lower_case is 7, expected true"),
          "%s", sentence);
    write_file("tokenizer_config.json", NULL);
    write_file("tokenizer.json", NULL);
    write_words(GOLDEN "bert_cased.json");
    write_file("vocab.txt", NULL);
    end_folder();
}

/* ---- tokens that other files name -------------------------------------------------- */

/* What transformers sets apart from text, or puts around it, and the file does not. */
static const struct {
    const char *json; /* tokenizer.json; NULL: its words as vocab.txt */
    const char *file, *text;
    const char *sentence; /* NULL: it is read */
} naming[] = {
    {NULL, "added_tokens.json", "{\"[MASK]\": 4}", NULL},
    {NULL, "added_tokens.json", "{\"[MASK]\": 4, \"[E1]\": 900}",
     "added_tokens.json names the token '[E1]', which vocab.txt does not set apart"},
    {NULL, "added_tokens.json", "{\"the\": 100}", "names the token 'the'"},
    {NULL, "special_tokens_map.json",
     "{\"cls_token\": \"[CLS]\", \"mask_token\": {\"content\": \"[MASK]\"}}", NULL},
    {NULL, "special_tokens_map.json", "{\"additional_special_tokens\": [\"[E1]\"]}",
     "additional_special_tokens.0 names the token '[E1]', which vocab.txt"},
    {NULL, "special_tokens_map.json",
     "{\"additional_special_tokens\": [{\"content\": \"[E1]\", \"lstrip\": false}]}",
     "additional_special_tokens.0.content names the token '[E1]'"},
    {NULL, "special_tokens_map.json", "{\"cls_token\": \"[SEP]\"}",
     "names the token '[SEP]', which vocab.txt does not put before a text"},
    {NULL, "tokenizer_config.json",
     "{\"added_tokens_decoder\": {\"900\": {\"content\": \"[E1]\"}}}",
     "added_tokens_decoder.900.content names the token '[E1]', which vocab.txt"},
    {NULL, "tokenizer_config.json", "{\"extra_special_tokens\": {\"a\": \"[E1]\"}}",
     "extra_special_tokens.a names the token '[E1]'"},
    {NULL, "tokenizer_config.json", "{\"sep_token\": \"[MASK]\"}",
     "which vocab.txt does not put behind a text"},
    {NULL, "tokenizer_config.json", "{\"unk_token\": \"[MASK]\"}",
     "which vocab.txt does not have for what is unknown"},
    {"bert_cased", "tokenizer_config.json",
     "{\"added_tokens_decoder\": {\"900\": {\"content\": \"[E1]\"}}}",
     "names the token '[E1]', which tokenizer.json does not set apart"},
    {"bert_cased", "tokenizer_config.json",
     "{\"added_tokens_decoder\": {\"900\": {\"content\": \"[E1]\"}}, " GENERIC,
     "names the token '[E1]', which tokenizer.json does not set apart"},
    {"bert_cased", "tokenizer_config.json", "{\"cls_token\": \"[SEP]\"}",
     "which tokenizer.json does not put before a text"},
    {"bert_cased", "tokenizer_config.json", "{\"cls_token\": \"[SEP]\", " GENERIC, NULL},
    {"roberta", "tokenizer_config.json",
     "{\"tokenizer_class\": \"RobertaTokenizer\", \"eos_token\": \"<end>\"}",
     "names the token '<end>', which tokenizer.json does not set apart"},
    {"gpt2", "tokenizer_config.json", "{\"tokenizer_class\": \"RobertaTokenizer\"}",
     "tokenizer.json puts no tokens around a text, as the class RobertaTokenizer does"}};

static void named(void)
{
    begin_folder();
    for (size_t i = 0; i < sizeof naming / sizeof naming[0]; i++) {
        ph_tokenizer *t;
        char path[128];
        write_file("config.json", "{\"model_type\": \"bert\"}");
        snprintf(path, sizeof path, GOLDEN "%s.json",
                 naming[i].json ? naming[i].json : "bert_cased");
        if (naming[i].json)
            link_file(path, "tokenizer.json");
        else
            write_words(path);
        write_file(naming[i].file, naming[i].text);
        ph_status status = ph_tokenizer_open(&t, folder, &io);
        if (!naming[i].sentence)
            CHECK(status == PH_OK, "%zu: %s", i, sentence);
        else
            CHECK(status == PH_UNSUPPORTED && strstr(sentence, naming[i].sentence),
                  "%zu: %s", i, sentence);
        ph_tokenizer_free(t);
        write_file(naming[i].file, NULL);
        write_file("tokenizer.json", NULL);
        write_file("vocab.txt", NULL);
    }
    end_folder();
}

/* Values of another type where tokens stand, and the forms that transformers writes. */
static const struct {
    const char *file, *text;
    const char *sentence; /* NULL: it is read */
} forms[] = {
    {"added_tokens.json", "[]", "added_tokens.json is a list, expected an object"},
    {"added_tokens.json", "7", "added_tokens.json is 7, expected an object"},
    {"added_tokens.json", "{\"[MASK]\": \"4\"}",
     "added_tokens.json: the id of '[MASK]' is '4', expected a whole number from 0"},
    {"added_tokens.json", "{\"[MASK]\": {\"id\": 4}}", "id of '[MASK]' is an object"},
    {"added_tokens.json", "{\"[MASK]\": 4.5}", "id of '[MASK]' is 4.5"},
    {"added_tokens.json", "{\"[MASK]\": -1}", "id of '[MASK]' is -1"},
    {"added_tokens.json", "{\"[MASK]\": null}", "id of '[MASK]' is null"},
    {"added_tokens.json", "{}", NULL},
    {"special_tokens_map.json", "\"x\"",
     "special_tokens_map.json is 'x', expected an object"},
    {"special_tokens_map.json", "[\"[MASK]\"]", "special_tokens_map.json is a list"},
    {"special_tokens_map.json", "{\"cls_token\": 101}",
     "special_tokens_map.json: cls_token is 101, expected the text of a token, or an "
     "object with `content`"},
    {"special_tokens_map.json", "{\"mask_token\": [\"[MASK]\"]}",
     "special_tokens_map.json: mask_token is a list, expected the text"},
    {"special_tokens_map.json", "{\"mask_token\": {\"text\": \"[MASK]\"}}",
     "special_tokens_map.json: mask_token is an object, expected the text"},
    {"special_tokens_map.json", "{\"mask_token\": {\"content\": 4}}",
     "special_tokens_map.json: mask_token.content is 4, expected a text"},
    {"special_tokens_map.json", "{\"additional_special_tokens\": \"[MASK]\"}",
     "special_tokens_map.json: additional_special_tokens is '[MASK]', expected a list"},
    {"special_tokens_map.json", "{\"additional_special_tokens\": [7]}",
     "special_tokens_map.json: additional_special_tokens.0 is 7, expected the text"},
    {"special_tokens_map.json", "{\"additional_special_tokens\": null}", NULL},
    {"special_tokens_map.json", "{\"pad_token\": null, \"mask_token\": \"[MASK]\", "
                                "\"additional_special_tokens\": [\"[MASK]\"]}",
     NULL},
    {"tokenizer_config.json", "[]",
     "tokenizer_config.json is a list, expected an object"},
    {"tokenizer_config.json", "null",
     "tokenizer_config.json is null, expected an object"},
    {"tokenizer_config.json", "{\"unk_token\": true}",
     "tokenizer_config.json: unk_token is true, expected the text of a token"},
    {"tokenizer_config.json", "{\"extra_special_tokens\": 7}",
     "tokenizer_config.json: extra_special_tokens is 7, expected a list or an object"},
    {"tokenizer_config.json", "{\"extra_special_tokens\": {\"image\": 7}}",
     "tokenizer_config.json: extra_special_tokens.image is 7, expected the text"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": [\"[MASK]\"]}",
     "tokenizer_config.json: added_tokens_decoder is a list, expected an object"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"4\": 7}}",
     "tokenizer_config.json: added_tokens_decoder.4 is 7, expected the text of a token"},
    {"tokenizer_config.json",
     "{\"added_tokens_decoder\": {\"4\": {\"special\": true}}}",
     "tokenizer_config.json: added_tokens_decoder.4 is an object, expected the text"},
    {"tokenizer_config.json",
     "{\"added_tokens_decoder\": {\"4\": {\"content\": \"[MASK]\", "
     "\"special\": true}}, "
     "\"mask_token\": {\"__type\": \"AddedToken\", \"content\": \"[MASK]\"}, "
     "\"bos_token\": null, \"extra_special_tokens\": {}, "
     "\"additional_special_tokens\": []}",
     NULL},
    {"config.json", "[]", "config.json is a list, expected an object"},
    {"modules.json", "{}", "modules.json is an object, expected a list"}};

static void formed(void)
{
    begin_folder();
    write_words(GOLDEN "bert_cased.json");
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        ph_tokenizer *t;
        write_file("config.json", "{\"model_type\": \"bert\"}");
        write_file(forms[i].file, forms[i].text);
        ph_status status = ph_tokenizer_open(&t, folder, &io);
        if (!forms[i].sentence)
            CHECK(status == PH_OK, "%zu: %s", i, sentence);
        else
            CHECK(status == PH_BAD_FILE && strstr(sentence, forms[i].sentence),
                  "%zu, %s: %s", i, forms[i].text, status ? sentence : "it is taken");
        ph_tokenizer_free(t);
        write_file(forms[i].file, NULL);
    }
    write_file("vocab.txt", NULL);
    write_file("config.json", "{\"model_type\": \"llama\"}"); /* any class */
    link_file(GOLDEN "bert_cased.json", "tokenizer.json");
    write_file("tokenizer_config.json", "{\"bos_token\": 7}");
    ph_tokenizer *t;
    CHECK(ph_tokenizer_open(&t, folder, &io) == PH_BAD_FILE &&
              strstr(sentence, "tokenizer_config.json: bos_token is 7, expected"),
          "%s", sentence);
    write_file("tokenizer_config.json", NULL);
    write_file("tokenizer.json", NULL);
    end_folder();
}

/* RoBERTa's class takes trim_offsets from its own file: blanks belong to tokens then. */
static void offsets(void)
{
    static const struct {
        const char *config;
        size_t start[3], end[3];
    } all[] = {{NULL, {1, 5, 6}, {4, 6, 8}},
               {"{\"trim_offsets\": true, \"add_prefix_space\": true}",
                {0, 5, 6},
                {4, 6, 8}},
               {"{\"trim_offsets\": false}", {0, 4, 6}, {4, 6, 8}}};
    begin_folder();
    write_file("config.json", "{\"model_type\": \"roberta\"}");
    link_file(GOLDEN "roberta.json", "tokenizer.json");
    for (int i = 0; i < 3; i++) {
        ph_tokenizer *t;
        ph_encoder *e;
        const ph_text_token *tokens;
        size_t count;
        ph_encode_args args = {.text = " the cat", .length = 8};
        write_file("tokenizer_config.json", all[i].config);
        CHECK(ph_tokenizer_open(&t, folder, &io) == PH_OK, "%s", sentence);
        CHECK(ph_encoder_create(&e, t, &io) == PH_OK, "%s", sentence);
        CHECK(ph_encode(e, &args, &tokens, &count) == PH_OK, "%s", sentence);
        CHECK(count == 5, "%d: %zu tokens", i, count);
        for (size_t k = 0; k < 3; k++)
            CHECK(tokens[k + 1].start == all[i].start[k] &&
                      tokens[k + 1].end == all[i].end[k],
                  "%d: token %zu from %zu to %zu", i, k + 1, tokens[k + 1].start,
                  tokens[k + 1].end);
        ph_encoder_free(e);
        ph_tokenizer_free(t);
    }
    end_folder();
}

/* ---- models ------------------------------------------------------------------------ */

static void compare_words(ph_ctx *ctx, const char *path, const ph_word *expected,
                          int wanted)
{
    ph_word words[MOST];
    ph_model *m;
    int count = 0;
    CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_split(m, "The CAT", words, MOST, &count) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(count == wanted, "%s: %d tokens, expected %d", path, count, wanted);
    for (int i = 0; i < count; i++)
        CHECK(words[i].token == expected[i].token, "%s: token %d is %d", path, i,
              words[i].token);
    ph_model_free(m);
}

/* Words of vocab.txt are lowercased by default; the option against it stays with what
   is made of the model. */
static void kept(void)
{
    static const char *const files[] = {"config.json", "model.safetensors", "vocab.txt"};
    char path[128], own[128], exported[128];
    ph_word words[MOST];
    ph_ctx *ctx;
    ph_model *m;
    int count = 0;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_folder();
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "tests/golden/checkpoints/bert/%s", files[i]);
        link_file(path, files[i]);
    }
    write_file("tokenizer_config.json", "{\"do_lower_case\": false}");
    snprintf(own, sizeof own, "%s/own.safetensors", folder);
    snprintf(exported, sizeof exported, "%s/exported", folder);
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_split(m, "The CAT", words, MOST, &count) == PH_OK && count == 4,
          "%d tokens: %s", count, ph_error(ctx));
    CHECK(!ph_model_knows(m, words[1].token) && !ph_model_knows(m, words[2].token),
          "capitals are known");
    CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, own) == PH_OK, "%s",
          ph_error(ctx));
    ph_model_free(m);
    compare_words(ctx, own, words, count);
    CHECK(ph_model_export(ctx, own, exported, NULL) == PH_OK, "%s", ph_error(ctx));
    compare_words(ctx, exported, words, count);
    end_folder();
    ph_close(ctx);
}

static const check_case cases[] = {
    {"ids", ids}, {"refused", refused}, {"named", named},
    {"formed", formed},   {"offsets", offsets}, {"kept", kept},
    {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
