/*
 * test_chat_tokens.c - what a chat template gets from the files around it: the tokens
 * that it writes by name, from folders, GGUF files and what is exported; which of several
 * templates is taken; tokens that end an answer from a GGUF file.
 */
#define _GNU_SOURCE
#include "gguf_bytes.h"
#include "llama_folder.h"
#include "model/generate.h"
#include "model/model_text.h"

#define GGUF "tests/golden/checkpoints/llama-gguf/model.gguf"

enum { NEW = 8, TEXT = 8, U32 = 4, LIST_OF_TEXTS_BEFORE = 4 + 8 };

static ph_ctx *ctx;

/* Two tokens that are set apart, and letters. */
static const char tokenizer[] =
    "{\"added_tokens\":["
    "{\"id\":0,\"content\":\"<s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":1,\"content\":\"</s>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true}],"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"<s>\":0,\"</s>\":1,\"h\":2,\"i\":3,"
    "\"d\":4},\"merges\":[]}}";

static void begin_folder(void)
{
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_llama_folder(tokenizer);
}

static void end_folder(void)
{
    end_llama_folder();
    ph_close(ctx);
}

static void expect_prompt(const ph_model *m, const char *wanted)
{
    char *prompt;
    CHECK(ph_chat_wrap(m, "hi", NULL, &prompt) == PH_OK, "%s, expected '%s'",
          ph_error(ctx), wanted);
    CHECK(!strcmp(prompt, wanted), "'%s', expected '%s'", prompt, wanted);
    ph_ctx_release(ctx, prompt);
}

/* ---- folders ----------------------------------------------------------------------- */

#define NAMES                                                                            \
    "\"chat_template\": \"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}|"      \
    "{{ pad_token }}{{ unk_token }}\""
#define TOKEN(text) "{\"content\": \"" text "\", \"special\": true}"

/* As transformers has it: special_tokens_map.json says more unless tokenizer_config.json
   lists added tokens. */
static void names_in_folders(void)
{
    static const struct {
        const char *config, *map, *prompt;
    } folders[] = {
        {"{" NAMES ", \"bos_token\": \"<s>\", \"eos_token\": " TOKEN("</s>") "}", NULL,
         "<s>hi</s>|"},
        {"{" NAMES "}", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}",
         "<s>hi</s>|"},
        {"{" NAMES ", \"eos_token\": \"<s>\"}",
         "{\"bos_token\": " TOKEN("<s>") ", \"eos_token\": \"</s>\", \"pad_token\": "
         "\"</s>\", \"unk_token\": \"<s>\"}",
         "<s>hi</s>|</s><s>"},
        {"{" NAMES ", \"bos_token\": \"<s>\", \"eos_token\": null, "
         "\"added_tokens_decoder\": {\"0\": " TOKEN("<s>") "}}",
         "{\"bos_token\": \"</s>\", \"eos_token\": \"</s>\"}", "<s>hi|"},
        {"{" NAMES ", \"eos_token\": null}", NULL, "hi|"}};
    begin_folder();
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        unlink(path_of("special_tokens_map.json"));
        write_file("tokenizer_config.json", folders[i].config);
        if (folders[i].map) write_file("special_tokens_map.json", folders[i].map);
        ph_model *m = open_model(ctx);
        expect_prompt(m, folders[i].prompt);
        ph_model_free(m);
    }
    end_folder();
}

static void expect_exported(const char *from, const char *prompt)
{
    static const char *const names[] = {
        "config.json",           "model.safetensors",       "tokenizer.json",
        "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"};
    char to[80], path[160];
    ph_model *m;
    snprintf(to, sizeof to, "%s.out", folder);
    CHECK(ph_model_export(ctx, from, to, NULL) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_model_read(&m, ctx, to) == PH_OK, "%s", ph_error(ctx));
    expect_prompt(m, prompt);
    ph_model_free(m);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        unlink(path);
    }
    rmdir(to);
}

/* Ours keep the names, and so does what is exported of a folder and of ours. A token that
   is a word too, which no reader may set apart, is left out. */
static void names_of_exports(void)
{
    begin_folder();
    write_file("tokenizer_config.json", "{" NAMES ", \"bos_token\": \"<s>\"}");
    write_file("special_tokens_map.json", "{\"pad_token\": \"</s>\"}");
    ph_model *m = open_model(ctx);
    expect_prompt(m, "<s>hih|</s>"); /* config.json: token 2 ends a text */
    CHECK(ph_model_own(m) == PH_OK && ph_model_write(m, path_of("own")) == PH_OK, "%s",
          ph_error(ctx));
    ph_model_free(m);
    CHECK(ph_model_read(&m, ctx, path_of("own")) == PH_OK, "%s", ph_error(ctx));
    expect_prompt(m, "<s>hih|</s>");
    ph_model_free(m);
    expect_exported(folder, "<s>hih|</s>");
    expect_exported(path_of("own"), "<s>hih|</s>");
    unlink(path_of("own"));
    end_folder();
}

#define TEMPLATE(name, text)                                                             \
    "{\"name\": \"" name "\", \"template\": \"" text "{{ messages[0].content }}\"}"
#define TOOLS   TEMPLATE("tool_use", "d")
#define DEFAULT TEMPLATE("default", "i")

static void several_templates(void)
{
    char out[64];
    begin_folder();
    write_file("tokenizer_config.json", "{\"chat_template\": [" TOOLS ", " DEFAULT "]}");
    ph_model *m = open_model(ctx);
    expect_prompt(m, "ihi");
    ph_model_free(m);
    write_file("tokenizer_config.json",
               "{\"chat_template\": [" TOOLS "]}");
    m = open_model(ctx);
    CHECK(ph_generate(m, "hi", &(ph_generation){.chat = 1}, out, sizeof out, NULL) ==
                  PH_UNSUPPORTED &&
              strstr(ph_error(ctx), "none of several is named default"),
          "%s", ph_error(ctx));
    CHECK(ph_generate(m, "hi", NULL, out, sizeof out, NULL) == PH_OK, "%s",
          ph_error(ctx));
    ph_model_free(m);
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", "
                                        "\"template\": 7}]}");
    CHECK(ph_model_read(&m, ctx, folder) == PH_BAD_FILE &&
              strstr(ph_error(ctx), "chat_template.0.template is 7, expected"),
          "%s", ph_error(ctx));
    write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": 7}]}");
    CHECK(ph_model_read(&m, ctx, folder) == PH_BAD_FILE &&
              strstr(ph_error(ctx), "chat_template.0.name is 7, expected a text"),
          "%s", ph_error(ctx));
    end_folder();
}

/* ---- GGUF files -------------------------------------------------------------------- */

static unsigned char file_bytes[1 << 17];
static size_t file_size;

static void insert(size_t at, const gguf_bytes *g)
{
    CHECK(file_size + g->used <= sizeof file_bytes, "the file is too long");
    memmove(file_bytes + at + g->used, file_bytes + at, file_size - at);
    memcpy(file_bytes + at, g->bytes, g->used);
    file_size += g->used;
}

static void put_key(gguf_bytes *g, const char *key, int type)
{
    put_text(g, key);
    put_number(g, (uint64_t)type, 4);
}

/* The golden file with a template (NULL: none), an end of messages (0: none), and token
   `renamed`, a letter (0: none), under another name; the data stay aligned. */
static void write_gguf(const char *template_text, int message_end, int renamed,
                       const char *name)
{
    static const char tokens[] = "tokenizer.ggml.tokens";
    gguf_bytes g = {.used = 0};
    uint64_t pairs = 1 + (template_text != NULL) + (message_end != 0);
    FILE *file = fopen(GGUF, "rb");
    file_size = file ? fread(file_bytes, 1, sizeof file_bytes, file) : 0;
    CHECK(file_size && fclose(file) == 0, "cannot read %s", GGUF);
    if (renamed) {
        size_t more = strlen(name) - 1;
        unsigned char *at = memmem(file_bytes, file_size, tokens, sizeof tokens - 1);
        at += sizeof tokens - 1 + 4 + LIST_OF_TEXTS_BEFORE;
        for (int i = 0; i < renamed; i++) at += 8 + at[0];
        CHECK(at[0] == 1, "token %d is no letter", renamed);
        at[0] = (unsigned char)(more + 1), at[8] = (unsigned char)name[0];
        put_bytes(&g, name + 1, more);
        insert((size_t)(at + 9 - file_bytes), &g);
    }
    gguf_bytes header = {.used = 0};
    if (template_text) {
        put_key(&header, "tokenizer.chat_template", TEXT);
        put_text(&header, template_text);
    }
    if (message_end) {
        put_key(&header, "tokenizer.ggml.eom_token_id", U32);
        put_number(&header, (uint64_t)message_end, 4);
    }
    put_key(&header, "padding", TEXT);
    char blanks[33] = "                                ";
    blanks[32 - (header.used + 8 + g.used) % 32] = 0;
    put_text(&header, blanks);
    insert(24, &header);
    file_bytes[16] = (unsigned char)(file_bytes[16] + pairs);
    file = fopen(path_of("model.gguf"), "wb");
    CHECK(file && fwrite(file_bytes, 1, file_size, file) == file_size &&
              fclose(file) == 0,
          "cannot write a file");
}

static ph_model *open_gguf(void)
{
    ph_model *m;
    CHECK(ph_model_read(&m, ctx, path_of("model.gguf")) == PH_OK, "%s", ph_error(ctx));
    return m;
}

static void end_gguf(ph_model *m)
{
    ph_model_free(m);
    unlink(path_of("model.gguf"));
}

/* The template of Llama 3, which adds BOS to a text, is given it; BOS comes once although
   the tokenizer puts one before texts too. */
static void names_in_gguf(void)
{
    ph_word words[16];
    int count;
    begin_folder();
    write_gguf("{% set c = bos_token + messages[0].content %}{{ c }}{{ eos_token }}|"
               "{{ unk_token }}{{ pad_token }}",
               0, 0, NULL);
    ph_model *m = open_gguf();
    expect_prompt(m, "<s>hi</s>|<unk>");
    CHECK(ph_tokens_split(m, "hi", PH_TOKENS_SOURCE, words, 16, &count) == PH_OK &&
              words[0].token == 1,
          "%s", ph_error(ctx));
    CHECK(ph_tokens_split(m, "<s>hi", PH_TOKENS_BARE, words, 16, &count) == PH_OK &&
              words[0].token == 1 && words[1].token != 1,
          "%s", ph_error(ctx));
    end_gguf(m);
    end_folder();
}

static void generate_tokens(const ph_model *m, int32_t *tokens, int *made)
{
    ph_word words[16];
    int32_t prompt[16];
    int count;
    CHECK(ph_model_split(m, "the cat", words, 16, &count) == PH_OK, "%s", ph_error(ctx));
    for (int i = 0; i < count; i++) prompt[i] = words[i].token;
    CHECK(ph_generate_tokens(m, &(ph_generation){.max_tokens = NEW}, prompt, count,
                             tokens, NEW, made) == PH_OK,
          "%s", ph_error(ctx));
}

static int comes_before(const int32_t *tokens, int at)
{
    int i = 0;
    while (tokens[i] != tokens[at]) i++;
    return i < at;
}

/* A letter that is generated, not first, becomes an end by each name; not by another. */
static void ends_of_gguf(void)
{
    static const char *const names[] = {"<|endoftext|>", "<|eot_id|>",   "<|eom_id|>",
                                        "<|im_end|>",    "<|end|>",      "<end_of_turn>",
                                        "<EOT>",         "<|fim_pad|>",  "[PAD]",
                                        "<|return|>",    "<|file_sep|>", "<eos>"};
    int32_t tokens[NEW], fewer[NEW];
    int made, count, at = 1;
    begin_folder();
    write_gguf(NULL, 0, 0, NULL);
    ph_model *m = open_gguf();
    generate_tokens(m, tokens, &made);
    while (at < made && (tokens[at] < 4 || comes_before(tokens, at))) at++;
    CHECK(at < made && made == NEW, "no letter of %d tokens", made);
    end_gguf(m);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        write_gguf(NULL, 0, tokens[at], names[i]);
        m = open_gguf();
        generate_tokens(m, fewer, &count);
        CHECK(count == at && ph_is_end(m, tokens[at]), "%s: %d tokens", names[i], count);
        end_gguf(m);
    }
    write_gguf(NULL, 0, tokens[at], "<|eot|>");
    m = open_gguf();
    generate_tokens(m, fewer, &count);
    CHECK(count == NEW, "<|eot|>: %d tokens", count);
    end_gguf(m);
    write_gguf(NULL, tokens[at], 0, NULL);
    m = open_gguf();
    generate_tokens(m, fewer, &count);
    CHECK(count == at, "eom_token_id: %d tokens", count);
    end_gguf(m);
    end_folder();
}

static const check_case cases[] = {{"names_in_folders", names_in_folders},
                                   {"names_of_exports", names_of_exports},
                                   {"several_templates", several_templates},
                                   {"names_in_gguf", names_in_gguf},
                                   {"ends_of_gguf", ends_of_gguf},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
