/*
 * test_chat.c - messages for chat models: templates of every family, the places where a
 * checkpoint has its template, tokens of the prompt, what is refused.
 */
#define _GNU_SOURCE
#include "text/chat.h"

#include <unistd.h>

#include "check.h"
#include "model/generate.h"
#include "model/model_text.h"

/* ---- families ---------------------------------------------------------------------- */

/* Templates as short as their family allows; what they say is what is expected. */
static const struct {
    const char *name, *text, *message, *prompt;
} families[] = {
    {"chatml", "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}",
     " Hi ", "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"},
    {"chatml", "{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{{ '<|im_start|>' }}",
     "Hi",
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {"chatml",
     "{{ '<|im_start|>system\\n' + tools }}"
     "{{ '<|im_start|>system\nBe brief.<|im_end|>' }}",
     "Hi",
     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
     "<|im_start|>assistant\n"},
    {"llama3", "{{ bos_token }}{{ '<|start_header_id|>' + m.content | trim }}", " Hi\n",
     "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
     "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama3", "{{ '<|start_header_id|>' }}{{ 'Cutting Knowledge Date: ' }}", "Hi",
     "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
     "2023\nToday Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>"
     "\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"gemma", "{{ bos_token + '<start_of_turn>' }}", "Hi",
     "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"},
    {"phi3", "{{ '<|user|>\\n' + m.content + '<|end|>\\n' }}", "Hi",
     "<|user|>\nHi<|end|>\n<|assistant|>\n"},
    {"zephyr", "{{ '<|user|>\\n' + m.content + eos_token }}", "Hi",
     "<|user|>\nHi</s>\n<|assistant|>\n"},
    {"llama2", "{{ bos_token + '[INST] <<SYS>>' + m.content.strip() + ' [/INST]' }}",
     " Hi ", "<s>[INST] Hi [/INST]"},
    {"mistral", "{{ bos_token }}{{ '[INST] ' + m.content + ' [/INST]' }}", "Hi",
     "<s>[INST] Hi [/INST]"},
    {"mistral", "{{ bos_token }}{{ '[INST] ' + m.content + '[/INST]' }}", "Hi",
     "<s>[INST] Hi[/INST]"},
    {"mistral", "{{ bos_token }}{{ '[INST]' + m.content + '[/INST]' }}", "",
     "<s>[INST][/INST]"},
};

static void all_families(void)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        char prompt[512], cut[8];
        const ph_chat *chat = ph_chat_find(families[i].text);
        CHECK(chat && !strcmp(chat->name, families[i].name), "%s is taken for %s",
              families[i].text, chat ? chat->name : "none");
        size_t length = ph_chat_print(chat, families[i].text, families[i].message, prompt,
                                      sizeof prompt);
        CHECK(!strcmp(prompt, families[i].prompt), "'%s', expected '%s'", prompt,
              families[i].prompt);
        CHECK(length == strlen(prompt), "%zu bytes", length);
        CHECK(ph_chat_print(chat, families[i].text, families[i].message, cut,
                            sizeof cut) == length &&
                  !strncmp(cut, prompt, sizeof cut - 1) && !cut[sizeof cut - 1],
              "cut to '%s'", cut);
    }
    CHECK(!ph_chat_find("") && !ph_chat_find("{{ messages }}"), "found in nothing");
}

/* ---- checkpoints ------------------------------------------------------------------- */

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "cannot write %s", name);
}

static void link_file(const char *name)
{
    char from[256], *here = realpath("tests/golden/checkpoints/llama", NULL);
    snprintf(from, sizeof from, "%s/%s", here, name);
    free(here);
    CHECK(symlink(from, path_of(name)) == 0, "cannot link %s", name);
}

/* Two special tokens, a newline, and letters; other characters have no token. */
static const char tokenizer[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
    "{\"id\":0,\"content\":\"<|im_start|>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true},"
    "{\"id\":1,\"content\":\"<|im_end|>\",\"single_word\":false,\"lstrip\":false,"
    "\"rstrip\":false,\"normalized\":false,\"special\":true}],"
    "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
    "\"byte_fallback\":false,\"vocab\":{\"<|im_start|>\":0,\"<|im_end|>\":1,\"\\n\":2,"
    "\"u\":3,\"s\":4,\"e\":5,\"r\":6,\"a\":7,\"i\":8,\"t\":9,\"n\":10},\"merges\":[]}}";

static const int32_t expected[] = {0, 3, 4, 5, 6, 2, 5, 4, 5,  1, 2,
                                   0, 7, 4, 4, 8, 4, 9, 7, 10, 9, 2};

enum { EXPECTED = sizeof expected / sizeof expected[0], NEW = 8 };

static void begin_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/test_chat_XXXXXX");
    CHECK(mkdtemp(folder), "no folder");
    link_file("config.json");
    link_file("model.safetensors");
    write_file("tokenizer.json", tokenizer);
}

static void end_folder(void)
{
    static const char *const names[] = {"config.json", "model.safetensors",
                                        "tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    for (int i = 0; i < 5; i++) unlink(path_of(names[i]));
    rmdir(folder);
}

static ph_model *open_model(ph_ctx *ctx)
{
    ph_model *m;
    CHECK(ph_model_read(&m, ctx, folder) == PH_OK, "%s", ph_error(ctx));
    return m;
}

/* A message is continued as the tokens of its prompt are. */
static void compare_answer(ph_ctx *ctx, ph_model *m)
{
    int32_t tokens[NEW];
    int count;
    char out[256];
    ph_generation how = {.max_tokens = NEW, .chat = 1};
    ph_prompt prompt = {.text = "ese", .out = out, .size = sizeof out};
    CHECK(ph_model_chat(m) && !strcmp(ph_model_chat(m), "chatml"), "not recognised");
    CHECK(ph_is_end(m, 1), "<|im_end|> does not end a text");
    CHECK(ph_generate_tokens(m, &how, expected, EXPECTED, tokens, NEW, &count) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(ph_generate_batch(m, &prompt, 1, &how) == PH_OK, "%s", ph_error(ctx));
    ph_text text;
    CHECK(ph_text_begin(&text, m, (ph_token_list){expected, EXPECTED}) == PH_OK, "text");
    for (int i = 0; i < count; i++)
        CHECK(ph_text_add(&text, tokens[i]) == PH_OK, "%s", ph_error(ctx));
    CHECK(ph_text_end(&text) == PH_OK && !strcmp(text.data, out) &&
              prompt.tokens == count,
          "'%s', expected '%s'", out, text.data);
    ph_text_free(&text);
}

static void from_checkpoints(void)
{
    static const struct {
        const char *name, *text;
    } places[] = {
        {"tokenizer_config.json", "{\"chat_template\": \"{{ '<|im_start|>' }}\"}"},
        {"tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", "
                                  "\"template\": \"{{ '<|im_start|>' }}\"}]}"},
        {"chat_template.jinja", "{{ '<|im_start|>' }}"}};
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_folder();
    for (int i = 0; i < 3; i++) {
        write_file(places[i].name, places[i].text);
        ph_model *m = open_model(ctx);
        compare_answer(ctx, m);
        ph_model_free(m);
    }
    end_folder();
    ph_close(ctx);
}

static void refuse(ph_ctx *ctx, const char *sentence)
{
    char out[8] = "left";
    ph_model *m = open_model(ctx);
    CHECK(!ph_model_chat(m), "%s", ph_model_chat(m));
    CHECK(ph_generate(m, "ese", &(ph_generation){.chat = 1}, out, sizeof out, NULL) ==
              PH_UNSUPPORTED,
          "taken");
    CHECK(strstr(ph_error(ctx), sentence), "%s", ph_error(ctx));
    CHECK(!strcmp(out, "left"), "out was written");
    ph_model_free(m);
}

static void refused(void)
{
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_folder();
    refuse(ctx, "this model has no chat template");
    write_file("tokenizer_config.json", "{\"chat_template\": 7}");
    ph_model *m;
    CHECK(ph_model_read(&m, ctx, folder) == PH_BAD_FILE &&
              strstr(ph_error(ctx), "tokenizer_config.chat_template is 7, expected"),
          "%s", ph_error(ctx));
    write_file("tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\"}");
    refuse(ctx, "the chat template of this model is not known, expected one of chatml");
    end_folder();
    ph_close(ctx);
}

static const check_case cases[] = {{"all_families", all_families},
                                   {"from_checkpoints", from_checkpoints},
                                   {"refused", refused},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
