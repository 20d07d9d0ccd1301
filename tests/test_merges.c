/*
 * test_merges.c - vocab.json and merges.txt as a tokenizer: the files that a golden
 * tokenizer.json (tests/golden_tokens) would have been in older folders give the same
 * ids, and files that lie are refused with a sentence that names them.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"
#include "model/model_text.h"
#include "text/json_tree.h"
#include "text/merge_files.h"

#define GOLDEN "tests/golden_tokens/"

static char sentence[500];
static long live; /* blocks not yet freed */
static long left; /* allocations until one fails; -1: none does */

static void *take(void *user, size_t bytes)
{
    (void)user;
    if (left == 0) return NULL;
    if (left > 0) left--;
    live++;
    return malloc(bytes);
}

static void give(void *user, void *block)
{
    (void)user;
    live -= block != NULL;
    free(block);
}

static const ph_io io = {.error = sentence, .error_size = sizeof sentence};
static const ph_io counted = {
    .alloc = take, .release = give, .error = sentence, .error_size = sizeof sentence};

static const char *const names[PH_MERGE_FILES] = {"vocab.json",
                                                  "merges.txt",
                                                  "added_tokens.json",
                                                  "special_tokens_map.json",
                                                  "tokenizer_config.json",
                                                  "config.json"};

/* ---- files ---- */

static char *read_whole(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    CHECK(file, "%s cannot be opened", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    CHECK(fread(bytes, 1, *size, file) == *size, "%s cannot be read", path);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

/* The texts of the files, copied: each block ends where the text does. */
static ph_status convert(const char *const texts[PH_MERGE_FILES], char **json,
                         size_t *length, const ph_io *hooks)
{
    ph_merge_text files[PH_MERGE_FILES];
    for (int i = 0; i < PH_MERGE_FILES; i++) {
        files[i] = (ph_merge_text){.name = names[i]};
        if (!texts[i]) continue;
        files[i].text = strdup(texts[i]);
        files[i].size = strlen(texts[i]);
    }
    sentence[0] = 0;
    ph_status status = ph_merges_to_json(files, json, length, hooks);
    CHECK(status == PH_OK ? *json && strlen(*json) == *length : sentence[0] && !*json,
          "%d without a sentence or with a result", (int)status);
    for (int i = 0; i < PH_MERGE_FILES; i++) free(files[i].text);
    return status;
}

/* vocab.json and merges.txt of a golden file; one more token where `more` is set. */
static void write_pair(const char *name, const char *more, char **vocab, char **merges)
{
    char path[200];
    size_t size;
    ph_json_tree tree = {0};
    snprintf(path, sizeof path, GOLDEN "%s.json", name);
    char *file = read_whole(path, &size);
    FILE *to = open_memstream(vocab, &size);
    CHECK(ph_json_tree_read(&tree, path, file, strlen(file), &io) == PH_OK, "%s",
          sentence);
    const ph_json_node *model = ph_json_get(&tree, &tree.nodes[0], "model");
    const ph_json_node *node = ph_json_first(&tree, ph_json_get(&tree, model, "vocab"));
    fprintf(to, "{%s", more);
    for (const char *comma = *more ? "," : ""; node; node = ph_json_after(&tree, node)) {
        fprintf(to, "%s\"", comma);
        for (const char *c = node->key; *c; c++)
            fprintf(to, "%s%c", *c == '"' || *c == '\\' ? "\\" : "", *c);
        fprintf(to, "\":%.*s", (int)node->length, node->text);
        comma = ",";
    }
    fputs("}", to);
    fclose(to);
    to = open_memstream(merges, &size);
    fputs("#version: 0.2\n", to);
    node = ph_json_first(&tree, ph_json_get(&tree, model, "merges"));
    for (; node; node = ph_json_after(&tree, node)) {
        const ph_json_node *first = ph_json_first(&tree, node);
        fprintf(to, "%s %s\n", first->text, ph_json_after(&tree, first)->text);
    }
    fclose(to);
    ph_json_tree_free(&tree);
    free(file);
}

/* ---- the same ids ---- */

typedef struct twins {
    ph_tokenizer *t[2];
    ph_encoder *e[2];
} twins;

static void compare_text(const twins *both, const ph_encode_args *args, int offsets)
{
    const ph_text_token *found[2];
    size_t count[2];
    for (int i = 0; i < 2; i++)
        CHECK(ph_encode(both->e[i], args, &found[i], &count[i]) == PH_OK, "%s", sentence);
    CHECK(count[0] == count[1], "'%.60s': %zu and %zu tokens", args->text, count[0],
          count[1]);
    for (size_t i = 0; i < count[0]; i++) {
        const ph_text_token *a = &found[0][i], *b = &found[1][i];
        CHECK(a->id == b->id && a->type == b->type, "'%.60s': token %zu is %d, not %d",
              args->text, i, b->id, a->id);
        CHECK(!offsets || (a->start == b->start && a->end == b->end),
              "'%.60s': token %zu has other offsets", args->text, i);
    }
}

/* Over the strings of the golden files, alone and as pairs. */
static void compare_strings(const twins *both, int offsets)
{
    size_t size, at = 0;
    uint32_t length;
    char *strings = read_whole(GOLDEN "strings.bin", &size);
    for (int i = 0; at < size; i++, at += 4 + length) {
        memcpy(&length, strings + at, 4);
        ph_encode_args args = {.text = strings + at + 4, .length = length};
        compare_text(both, &args, offsets);
        if (i % 8) continue;
        args.pair = "a <mask>b", args.pair_length = strlen(args.pair);
        compare_text(both, &args, offsets);
    }
    free(strings);
}

#define TOKEN(text, flags) "{\"content\":\"" text "\"," flags "}"

/* The golden files of GPT-2 and Qwen2 leave blanks out of offsets, older folders do not:
   only those of RoBERTa are compared. */
static void same_ids(void)
{
    static const struct {
        const char *name, *more;
        const char *files[PH_MERGE_FILES];
    } list[] = {
        {"gpt2", "", {[PH_MERGE_MODEL] = "{\"model_type\":\"gpt2\"}"}},
        {"qwen2",
         "",
         {[PH_MERGE_OPTIONS] = "{\"tokenizer_class\":\"Qwen2TokenizerFast\","
                               "\"added_tokens_decoder\":{\"0\":" TOKEN(
                                   "<|endoftext|>", "\"special\":true") "}}"}},
        {"roberta",
         "\"<mask>\":800",
         {[PH_MERGE_SPECIAL] = "{\"mask_token\":" TOKEN("<mask>", "\"lstrip\":true") "}",
          [PH_MERGE_MODEL] = "{\"model_type\":\"roberta\"}",
          [PH_MERGE_OPTIONS] = "{\"add_prefix_space\":true}"}},
        {"roberta",
         "\"<mask>\":800",
         {[PH_MERGE_MODEL] = "{\"tokenizer_class\":\"RobertaTokenizer\"}",
          [PH_MERGE_OPTIONS] = "{\"add_prefix_space\":true}"}}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        twins both;
        char path[200], *json, *vocab, *merges;
        size_t length;
        const char *texts[PH_MERGE_FILES];
        memcpy(texts, list[i].files, sizeof texts);
        write_pair(list[i].name, list[i].more, &vocab, &merges);
        texts[PH_MERGE_VOCAB] = vocab, texts[PH_MERGE_PAIRS] = merges;
        snprintf(path, sizeof path, GOLDEN "%s.json", list[i].name);
        CHECK(ph_tokenizer_read(&both.t[0], path, &io) == PH_OK, "%s", sentence);
        CHECK(convert(texts, &json, &length, &io) == PH_OK, "%s", sentence);
        CHECK(ph_tokenizer_parse(&both.t[1], "joined", json, length, &io) == PH_OK, "%s",
              sentence);
        for (int k = 0; k < 2; k++)
            CHECK(ph_encoder_create(&both.e[k], both.t[k], &io) == PH_OK, "%s", sentence);
        compare_strings(&both, i >= 2);
        for (int k = 0; k < 2; k++)
            ph_encoder_free(both.e[k]), ph_tokenizer_free(both.t[k]);
        ph_io_release(&io, json);
        free(vocab), free(merges);
    }
}

/* ---- small files ---- */

#define VOCAB                                                                            \
    "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"<|endoftext|>\":4,\"\\u0120a\":5}"
#define MERGES "#version: 0.2\r\na b\r\n\xc4\xa0 a"
#define GPT2   "{\"model_type\":\"gpt2\"}"

static void expect(const char *const texts[PH_MERGE_FILES], const char *text,
                   const char *ids)
{
    char *json, found[200] = "";
    size_t length, count;
    const ph_text_token *tokens;
    ph_tokenizer *t;
    ph_encoder *e;
    CHECK(convert(texts, &json, &length, &io) == PH_OK, "%s", sentence);
    CHECK(ph_tokenizer_parse(&t, "joined", json, length, &io) == PH_OK, "%s", sentence);
    CHECK(ph_encoder_create(&e, t, &io) == PH_OK, "%s", sentence);
    ph_encode_args args = {.text = text, .length = strlen(text)};
    CHECK(ph_encode(e, &args, &tokens, &count) == PH_OK, "%s", sentence);
    for (size_t i = 0; i < count; i++)
        sprintf(found + strlen(found), "%s%d", i ? " " : "", tokens[i].id);
    CHECK(!strcmp(found, ids), "'%s': %s, expected %s", text, found, ids);
    ph_encoder_free(e);
    ph_tokenizer_free(t);
    ph_io_release(&io, json);
}

/* Bytes without a token disappear; marks around a text and added tokens by each kind of
   file that may name them. */
static void options(void)
{
    static const char text[] = "ab a<|endoftext|>c";
    expect((const char *[PH_MERGE_FILES]){VOCAB, MERGES, [PH_MERGE_MODEL] = GPT2}, text,
           "2 5 4");
    expect((const char *[PH_MERGE_FILES]){VOCAB, MERGES,
                                          [PH_MERGE_OPTIONS] =
                                              "{\"tokenizer_class\":\"GPT2Tokenizer\","
                                              "\"add_bos_token\":true,"
                                              "\"add_eos_token\":true,"
                                              "\"add_prefix_space\":true,"
                                              "\"eos_token\":\"b\"}"},
           "a a", "4 5 5 1");
    expect((const char *[PH_MERGE_FILES]){VOCAB, MERGES, "{\"<x>\":6,\"<y>\":9}",
                                          "{\"bos_token\":\"<x>\",\"eos_token\":null}",
                                          "{\"add_bos_token\":true}", GPT2},
           "ab<y>", "6 2 9");
    expect((const char *[PH_MERGE_FILES]){VOCAB, MERGES,
                                          "{\"<|startoftranscript|>\":6,\"<|en|>\":7,"
                                          "\"<|notimestamps|>\":8,\"<|transcribe|>\":9}",
                                          NULL,
                                          "{\"tokenizer_class\":\"WhisperTokenizer\","
                                          "\"language\":\"en\",\"task\":\"transcribe\"}"},
           "ab", "6 7 9 8 2 4");
}

/* A folder as `tokens` opens it; each file is needed. */
static void folder(void)
{
    char path[] = "/tmp/polyhead-merges-XXXXXX", file[64];
    ph_tokenizer *t;
    CHECK(mkdtemp(path), "no temporary folder");
    const char *const texts[PH_MERGE_FILES] = {VOCAB, MERGES, [PH_MERGE_MODEL] = GPT2};
    for (int i = 0; i < PH_MERGE_FILES; i++) {
        if (!texts[i]) continue;
        CHECK(ph_tokenizer_open(&t, path, &io) != PH_OK, "%s is not needed", names[i]);
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        FILE *to = fopen(file, "wb");
        fputs(texts[i], to);
        fclose(to);
    }
    CHECK(ph_tokenizer_open(&t, path, &io) == PH_OK, "%s", sentence);
    CHECK(ph_tokenizer_about(t).vocab_size == 6, "%zu tokens",
          ph_tokenizer_about(t).vocab_size);
    ph_tokenizer_free(t);
    snprintf(file, sizeof file, "%s/vocab.json", path);
    remove(file);
    CHECK(ph_tokenizer_open(&t, path, &io) == PH_IO_ERROR &&
              strstr(sentence, "vocab.json' does not exist"),
          "%s", sentence);
    for (int i = 0; i < PH_MERGE_FILES; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        remove(file);
    }
    CHECK(rmdir(path) == 0, "%s is not empty", path);
}

/* A model with these files beside it: they are read, and its own file keeps them. */
static void of_a_model(void)
{
    char path[] = "/tmp/polyhead-merges-XXXXXX", file[64], *target;
    ph_ctx *ctx;
    ph_model *m;
    CHECK(mkdtemp(path) && ph_open(&ctx, NULL) == PH_OK, "no temporary folder or ctx");
    static const char *const links[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "tests/golden/checkpoints/gpt2/%s", links[i]);
        target = realpath(file, NULL);
        snprintf(file, sizeof file, "%s/%s", path, links[i]);
        CHECK(target && symlink(target, file) == 0, "no link to %s", links[i]);
        free(target);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        FILE *to = fopen(file, "wb");
        fputs(i ? MERGES : VOCAB, to);
        fclose(to);
    }
    CHECK(ph_model_read(&m, ctx, path) == PH_OK, "%s", ph_error(ctx));
    snprintf(file, sizeof file, "%s/own", path);
    for (int again = 0; again < 2; again++) {
        ph_word words[4];
        int count;
        CHECK(ph_model_split(m, "ab a", words, 4, &count) == PH_OK, "%s", ph_error(ctx));
        CHECK(count == 2 && words[0].token == 2 && words[1].token == 5, "%d tokens",
              count);
        if (!again)
            CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, file) == PH_OK, "%s",
                  ph_error(ctx));
        ph_model_free(m);
        if (!again) CHECK(ph_model_read(&m, ctx, file) == PH_OK, "%s", ph_error(ctx));
    }
    ph_close(ctx);
    remove(file);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", path, i < 2 ? names[i] : links[i - 2]);
        remove(file);
    }
    CHECK(rmdir(path) == 0, "%s is not empty", path);
}

/* ---- lies ---- */

typedef struct lie {
    ph_merge_file file;
    const char *text, *says;
} lie;

static const lie lies[] = {
    {PH_MERGE_VOCAB, NULL, "'vocab.json' does not exist"},
    {PH_MERGE_VOCAB, "", "'vocab.json'"},
    {PH_MERGE_VOCAB, "{\"a\":0", "'vocab.json'"},
    {PH_MERGE_VOCAB, "[\"a\"]", "'vocab.json': expected an object"},
    {PH_MERGE_VOCAB, "{\"a\":\"0\"}", "'vocab.json': the id of 'a': expected a number"},
    {PH_MERGE_VOCAB, "{\"a\":-1}", "'vocab.json': the id of 'a': expected a number"},
    {PH_MERGE_VOCAB, "{\"a\":0,\"b\":0}", "'vocab.json': 'b' has id 0, which another"},
    {PH_MERGE_VOCAB, "{\"a\":4194304}", "'vocab.json': 'a' has id 4194304, expected at"},
    {PH_MERGE_VOCAB, "{\"a\\u0000\":0}", "'vocab.json': the texts of its tokens"},
    {PH_MERGE_PAIRS, NULL, "'merges.txt' does not exist"},
    {PH_MERGE_PAIRS, "ab", "'merges.txt': line 1: expected two tokens"},
    {PH_MERGE_PAIRS, "a b\n\na b b\n", "'merges.txt': line 3: expected two tokens"},
    {PH_MERGE_PAIRS, "a \n", "'merges.txt': line 1: expected two tokens"},
    {PH_MERGE_PAIRS, " a\n", "'merges.txt': line 1: expected two tokens"},
    {PH_MERGE_PAIRS, "a b\nb b\n", "'merges.txt': model.merges: merge 1 to 'bb' has"},
    {PH_MERGE_PAIRS, "a \xff\n", "'merges.txt': model.merges: merge 0"},
    {PH_MERGE_ADDED, "{\"x\":0}", "'added_tokens.json': 'x' has id 0, which another"},
    {PH_MERGE_ADDED, "{\"a\":1}", "'added_tokens.json': 'a' has id 1, but 0 before it"},
    {PH_MERGE_ADDED, "{\"x\":0.5}", "'added_tokens.json': the id of 'x'"},
    {PH_MERGE_ADDED, "[]", "'added_tokens.json': expected an object"},
    {PH_MERGE_SPECIAL, "{\"bos_token\":3}",
     "'special_tokens_map.json': bos_token: expec"},
    {PH_MERGE_SPECIAL, "{\"additional_special_tokens\":\"a\"}",
     "'special_tokens_map.json': additional_special_tokens: expected a list"},
    {PH_MERGE_SPECIAL, "{\"eos_token\":{\"content\":\"a\",\"lstrip\":1}}",
     "'special_tokens_map.json': lstrip: expected true or false"},
    {PH_MERGE_OPTIONS, "{\"tokenizer_class\":\"CLIPTokenizer\"}",
     "'tokenizer_config.json': a tokenizer of merges.txt with the tokenizer_class "
     "'CLIPTokenizer' is not supported"},
    {PH_MERGE_OPTIONS, "{\"tokenizer_class\":1}",
     "'tokenizer_config.json': tokenizer_class: expected a string"},
    {PH_MERGE_OPTIONS, "{\"add_prefix_space\":1}",
     "'tokenizer_config.json': add_prefix_space: expected true or false"},
    {PH_MERGE_OPTIONS, "{\"added_tokens_decoder\":[]}",
     "'tokenizer_config.json': added_tokens_decoder: expected an object"},
    {PH_MERGE_OPTIONS, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}",
     "'tokenizer_config.json': added_tokens_decoder: expected ids"},
    {PH_MERGE_OPTIONS, "{\"added_tokens_decoder\":{\"7\":{\"text\":\"y\"}}}",
     "'tokenizer_config.json': added_tokens_decoder: expected the text"},
    {PH_MERGE_OPTIONS, "{\"tokenizer_class\":\"RobertaTokenizer\"}",
     "'vocab.json': expected the token '</s>'"},
    {PH_MERGE_OPTIONS, "{\"tokenizer_class\":\"WhisperTokenizer\"}",
     "'vocab.json': expected the token '<|startoftranscript|>'"},
    {PH_MERGE_MODEL, "{}", "'merges.txt': the class of its tokenizer: expected"},
    {PH_MERGE_MODEL, "{\"model_type\":\"clip\"}",
     "'config.json': a tokenizer of merges.txt with the model_type 'clip'"}};

static void refused(void)
{
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        const char *texts[PH_MERGE_FILES] = {VOCAB, MERGES, [PH_MERGE_MODEL] = GPT2};
        char *json;
        size_t length;
        ph_tokenizer *t = NULL;
        texts[lies[i].file] = lies[i].text;
        live = 0, left = -1;
        ph_status status = convert(texts, &json, &length, &counted);
        if (status == PH_OK) /* what a merge says is looked at there */
            status = ph_tokenizer_parse(&t, "merges.txt", json, length, &counted);
        CHECK(status != PH_OK && !t, "%s is accepted", lies[i].text);
        CHECK(strstr(sentence, lies[i].says), "%s\n      says     %s\n      expected %s",
              lies[i].text, sentence, lies[i].says);
        ph_io_release(&counted, json);
        CHECK(live == 0, "%s leaves %ld blocks", lies[i].text, live);
    }
}

static const char *const rich[PH_MERGE_FILES] = {
    VOCAB, MERGES, "{\"<x>\":6,\"<y>\":9}",
    "{\"bos_token\":\"<x>\",\"additional_special_tokens\":[\"<y>\",\"b\"]}",
    "{\"tokenizer_class\":\"GPT2Tokenizer\",\"add_bos_token\":true}"};

/* Memory that runs out at each allocation in turn. */
static void no_memory(void)
{
    char *json;
    size_t length;
    long most = 0;
    for (;; most++) {
        live = 0, left = most;
        ph_status status = convert(rich, &json, &length, &counted);
        ph_io_release(&counted, json);
        CHECK(live == 0, "%ld blocks are left", live);
        if (status == PH_OK) break;
        CHECK(status == PH_OUT_OF_MEMORY, "%d: %s", (int)status, sentence);
    }
    CHECK(most > 5, "only %ld allocations", most);
    left = -1;
}

/* Any byte of any file changed, or the file cut off: no fault, whatever becomes of it. */
static void changed_bytes(void)
{
    uint64_t random = check_seed;
    int accepted = 0;
    for (int i = 0; i < 4000; i++) {
        const char *texts[PH_MERGE_FILES];
        char *json, *changed;
        size_t length;
        memcpy(texts, rich, sizeof texts);
        int file = (int)(check_random(&random) % 5);
        texts[file] = changed = strdup(rich[file]);
        size_t at = check_random(&random) % strlen(changed);
        changed[at] = i % 4 ? (char)(check_random(&random) % 128) : 0;
        if (convert(texts, &json, &length, &io) == PH_OK) {
            ph_tokenizer *t;
            accepted++;
            ph_status status = ph_tokenizer_parse(&t, "joined", json, length, &io);
            CHECK(status == PH_OK || (sentence[0] && !t), "no sentence");
            ph_tokenizer_free(t);
            ph_io_release(&io, json);
        }
        free(changed);
    }
    CHECK(accepted > 100 && accepted < 3900, "%d are accepted", accepted);
}

static const check_case cases[] = {{"same_ids", same_ids},
                                   {"options", options},
                                   {"folder", folder},
                                   {"of_a_model", of_a_model},
                                   {"refused", refused},
                                   {"no_memory", no_memory},
                                   {"changed_bytes", changed_bytes},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
