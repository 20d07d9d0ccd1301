/*
 * test_chat.c - messages for chat models: templates of every family, every feature of
 * their language, the places where a checkpoint has its template, tokens of the prompt,
 * what is refused.
 */
#define _GNU_SOURCE
#include "text/chat.h"

#include "check.h"
#include "llama_folder.h"
#include "model/generate.h"
#include "model/model_text.h"

/* ---- templates --------------------------------------------------------------------- */

/* The statements of published templates, as short as their family allows, and what
   transformers 5.23 makes of them (apply_chat_template with an answer asked for). */
static const struct {
    const char *name, *text, *message, *prompt;
} templates[] = {
    {"chatml",
     "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n"
     "' + m['content'] + '<|im_end|>\\n' }}{% endfor %}{% if add_"
     "generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endi"
     "f %}",
     " Hi ", "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"},
    {"chatml",
     "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + "
     "m['role'] + '\\n' + m['content'] + '<|im_end|>\\n' }}{% endf"
     "or %}{% if add_generation_prompt %}{{ '<|im_start|>assista"
     "nt\\n' }}{% endif %}",
     "Hi", "<B><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {"chatml",
     "{% for message in messages %}{% if loop.first and messages"
     "[0]['role'] != 'system' %}{{ \"<|im_start|>system\\nYou're k"
     "ind.<|im_end|>\\n\" }}{% endif %}{{ '<|im_start|>' + message"
     "['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\"
     "n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_st"
     "art|>assistant\\n' }}{% endif %}",
     " Hi\n",
     "<|im_start|>system\nYou're kind.<|im_end|>\n<|im_start|>user"
     "\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {"chatml",
     "{% if messages[0]['role'] == 'system' %}{% set system = me"
     "ssages[0]['content'] %}{% set first = 1 %}{% else %}{% set"
     " system = 'Be kind.' %}{% set first = 0 %}{% endif %}{{ '<"
     "|im_start|>system\\n' + system + '<|im_end|>\\n' }}{% for m "
     "in messages[first:] %}{{ '<|im_start|>' + m.role + '\\n' + "
     "m.content + '<|im_end|>\\n' }}{% endfor %}{% if add_generat"
     "ion_prompt %}{{ '<|im_start|>assistant\\n<think>\\n' }}{% en"
     "dif %}",
     "Hi",
     "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<"
     "|im_end|>\n<|im_start|>assistant\n<think>\n"},
    {"chatml",
     "{%- if tools %}\n    {{- '# Tools' + tools | tojson }}\n{%- "
     "elif messages[0].role == 'system' %}\n    {{- messages[0].c"
     "ontent }}\n{%- endif %}\n{%- set ns = namespace(last=message"
     "s|length - 1, open=true) %}\n{%- for message in messages[::"
     "-1] %}\n    {%- if ns.open and not(message.content.startswi"
     "th('<tool>')) %}\n        {%- set ns.last = 7 %}\n    {%- en"
     "dif %}\n{%- endfor %}\n{%- for message in messages %}\n    {%"
     "- if (message.role == \"user\") or (message.role == \"system\""
     " and not loop.first) %}\n        {{- '<|im_start|>' + messa"
     "ge.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
     "    {%- elif loop.index0 > ns.last %}\n        {{- message."
     "reasoning_content.strip('\\n') }}\n    {%- endif %}\n{%- endf"
     "or %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|"
     ">assistant\\n' }}\n    {%- if enable_thinking is defined and"
     " enable_thinking is false %}\n        {{- '<think>\\n\\n</thi"
     "nk>\\n\\n' }}\n    {%- endif %}\n{%- endif %}\n",
     "Hi", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {"llama3",
     "{% for message in messages %}{% set content = '<|start_hea"
     "der_id|>' + message['role'] + '<|end_header_id|>\n\n' + mess"
     "age['content'] | trim + '<|eot_id|>' %}{% if loop.index0 ="
     "= 0 %}{% set content = bos_token + content %}{% endif %}{{"
     " content }}{% endfor %}{% if add_generation_prompt %}{{ '<"
     "|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif"
     " %}",
     " Hi\n",
     "<B><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><"
     "|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama3",
     "{{- bos_token }}\n{%- if not date_string is defined %}\n    "
     "{%- set date_string = \"26 Jul 2024\" %}\n{%- endif %}\n{%- if"
     " not tools is defined %}{%- set tools = none %}{%- endif %"
     "}\n{{- \"<|start_header_id|>system<|end_header_id|>\\n\\nToday"
     " Date: \" + date_string + \"\\n\\n<|eot_id|>\" }}\n{%- for messa"
     "ge in messages %}\n    {%- if not (message.role == 'ipython"
     "' or 'tool_calls' in message) %}\n        {{- '<|start_head"
     "er_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + mes"
     "sage['content'] | trim + '<|eot_id|>' }}\n    {%- endif %}\n"
     "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|s"
     "tart_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- end"
     "if %}\n",
     "Hi",
     "<B><|start_header_id|>system<|end_header_id|>\n\nToday Date:"
     " 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_heade"
     "r_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_head"
     "er_id|>\n\n"},
    {"gemma",
     "{{ bos_token }}{% for message in messages %}{% if (message"
     "['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_e"
     "xception('no') }}{% endif %}{% if (message['role'] == 'ass"
     "istant') %}{% set role = 'model' %}{% else %}{% set role ="
     " message['role'] %}{% endif %}{{ '<start_of_turn>' + role "
     "+ '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% "
     "endfor %}{% if add_generation_prompt %}{{'<start_of_turn>m"
     "odel\n'}}{% endif %}",
     " Hi",
     "<B><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>mode"
     "l\n"},
    {"phi3",
     "{% for message in messages %}{% if message['role'] in ['sy"
     "stem', 'user'] and message['content'] is string %}{{ '<|' "
     "+ message['role'] + '|>\n' + message['content'] + '<|end|>\n"
     "' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{"
     "{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
     "Hi", "<|user|>\nHi<|end|>\n<|assistant|>\n"},
    {"zephyr",
     "{% for message in messages %}\n{% if message['role'] == 'us"
     "er' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
     "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{"
     "{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
     "Hi", "<|user|>\nHi</s>\n<|assistant|>\n"},
    {"llama2",
     "{% if messages[0]['role'] == 'system' %}{% set loop_messag"
     "es = messages[1:] %}{% set system_message = '<<SYS>>' %}{%"
     " else %}{% set loop_messages = messages %}{% set system_me"
     "ssage = '' %}{% endif %}{% for message in loop_messages %}"
     "{{ bos_token + '[INST] ' + system_message + message['conte"
     "nt'].strip() + ' [/INST]' }}{% endfor %}",
     " Hi ", "<B>[INST] Hi [/INST]"},
    {"mistral",
     "{{ bos_token }}{# a comment #}{% for message in messages %"
     "}{{ '[INST]' ~ message['content'] ~ '[/INST]' if message['"
     "role'] == 'user' else message['content'] }}{% endfor %}",
     "", "<B>[INST][/INST]"},
};

enum { TEMPLATES = sizeof templates / sizeof templates[0] };

static char sentence[500];
static const ph_io io = {.error = sentence, .error_size = sizeof sentence};

static ph_status print(const char *text, const char *message, char **prompt)
{
    const ph_chat_request request = {
        .template_text = text, .message = message, .tokens = {"<B>", "</s>"}};
    sentence[0] = 0;
    ph_status status = ph_chat_print(&request, prompt, &io);
    CHECK(status == PH_OK ? *prompt != NULL : !*prompt && sentence[0],
          "%d without a sentence or with a prompt", (int)status);
    return status;
}

static void all_families(void)
{
    for (int i = 0; i < TEMPLATES; i++) {
        char *prompt;
        const ph_chat *chat = ph_chat_find(templates[i].text);
        CHECK(chat && !strcmp(chat->name, templates[i].name), "%d is taken for %s", i,
              chat ? chat->name : "none");
        CHECK(print(templates[i].text, templates[i].message, &prompt) == PH_OK, "%d: %s",
              i, sentence);
        CHECK(!strcmp(prompt, templates[i].prompt), "%d: '%s', expected '%s'", i, prompt,
              templates[i].prompt);
        ph_io_release(&io, prompt);
    }
    CHECK(!ph_chat_find("") && !ph_chat_find("{{ messages }}"), "found in nothing");
}

/* Every feature of the interpreter, as transformers has it (golden/chat.py). */
static const struct {
    const char *text, *message, *system, *prompt;
} golden[] = {
#include "golden/chat.inc"
};

/* 2025-03-07 15:04:09, a Friday. */
static const struct tm day = {.tm_year = 125,
                              .tm_mon = 2,
                              .tm_mday = 7,
                              .tm_hour = 15,
                              .tm_min = 4,
                              .tm_sec = 9,
                              .tm_wday = 5,
                              .tm_yday = 65};

static void features(void)
{
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        char *prompt;
        const ph_chat_request request = {.template_text = golden[i].text,
                                         .message = golden[i].message,
                                         .system = golden[i].system,
                                         .tokens = {"<B>", "</s>"},
                                         .today = &day};
        sentence[0] = 0;
        ph_status status = ph_chat_print(&request, &prompt, &io);
        if (!golden[i].prompt) {
            CHECK(status == PH_UNSUPPORTED && strstr(sentence, "line 1: ") && !prompt,
                  "%s: %d %s", golden[i].text, (int)status, sentence);
            continue;
        }
        CHECK(status == PH_OK, "%s: %s", golden[i].text, sentence);
        CHECK(!strcmp(prompt, golden[i].prompt), "%s: '%s', expected '%s'",
              golden[i].text, prompt, golden[i].prompt);
        ph_io_release(&io, prompt);
    }
}

/* What is not known is named, with its line, where it is reached. */
static void unknown_statements(void)
{
    static const char *const refused[][2] = {
        {"\n{{ '<|im_start|>' + render(messages[0]) }}", "line 2: 'render' is called"},
        {"{{ messages[0].content | wordcount }}", "the filter 'wordcount' is not known"},
        {"{{ messages[0].content.isdigit() }}", "the method 'isdigit' is not known"},
        {"{{ messages[0].content is upper }}", "the test 'upper' is not known"},
        {"{% include 'x' %}", "found 'include', expected a statement"},
        {"{{ raise_exception('no') }}", "refuses this conversation: 'no'"},
        {"{{ '<|im_start|>' }}", "does not write the message"},
        {"{{ messages[0].content", "a tag has no end"},
        {"{% if tools %}{{ messages[0].content }}", "expected elif else endif"},
        {"{{ messages[0].content }}{% endif %}", "endif"},
        {"{{ '<b>' + ('x' | safe) }}", "a text + a safe text"},
        {"{{ messages[0].content | upper ~ '\303\244' | upper }}", "beyond ASCII"},
        {"{{ ['\303\244'] }}", "beyond ASCII"},
        {"{{ messages[0].items }}", "the method 'items' is not called"},
        {"{{ sep_token }}", "sep_token is not known"},
        {"{{ messages.__class__ }}", "begin with __"},
        {"{% macro f() %}{{ varargs }}{% endmacro %}{{ f() }}", "varargs"},
        {"{% set x = ['b'] | unique %}{{ x | list }}{{ x | list }}", "a second time"},
        {"{{ messages[0].content }}{{ strftime_now('%U') }}", "strftime_now"}};
    static const char *const taken[] = {
        "{% if tools %}{{ f(messages) | g }}{% endif %}{{ messages[0].content }}",
        "{% macro f(x) %}{{ g(x) }}{% endmacro %}{{ messages[0].content }}",
        "{% if not tools %}{{ messages[0].content }}{% else %}{{ g() }}{% endif %}"};
    char *prompt;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CHECK(print(refused[i][0], "Hi", &prompt) != PH_OK, "%s is taken", refused[i][0]);
        CHECK(strstr(sentence, refused[i][1]), "%s: %s", refused[i][0], sentence);
    }
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        CHECK(print(taken[i], "Hi", &prompt) == PH_OK, "%s: %s", taken[i], sentence);
        CHECK(!strcmp(prompt, "Hi"), "%s: '%s'", taken[i], prompt);
        ph_io_release(&io, prompt);
    }
}

/* Work, memory, depth and output have bounds. */
static void hostile(void)
{
    static const char *const refused[][2] = {
        {"{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
         "more work"},
        {"{% set n = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set n.s = n.s "
         "~ n.s %}{% endfor %}",
         "a text grows beyond"},
        {"{{ 'a' * 999999999 }}", "a text grows beyond"},
        {"{{ 'aaaa' * 262144 * 999 }}", "a text grows beyond"},
        {"{{ [1] * 999999999 }}", "more work"},
        {"{{ range(100001) }}", "a range is too large"},
        {"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "levels are nested"},
        {"{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = [n.x] %}"
         "{% endfor %}{{ n.x }}",
         "levels are nested"},
        {"{{ 9223372036854775807 + 1 }}", "too large"},
        {"{{ 9999999999999999999 }}", "too large"},
        {"{{ (-9223372036854775807 - 1) // -1 }}", "too large"}};
    char *prompt;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        CHECK(print(refused[i][0], "Hi", &prompt) != PH_OK, "%s is taken", refused[i][0]);
        CHECK(strstr(sentence, refused[i][1]), "%s: %s", refused[i][0], sentence);
    }
}

/* The date of today, where none is given. */
static void dates(void)
{
    char *prompt;
    int day_of_month, year, month;
    CHECK(print("{{ strftime_now(\"%Y-%m-%d\") + messages[0].content }}", "", &prompt) ==
                  PH_OK &&
              sscanf(prompt, "%4d-%2d-%2d", &year, &month, &day_of_month) == 3 &&
              year > 2024 && month < 13,
          "'%s'", sentence);
    ph_io_release(&io, prompt);
}

/* Templates with bytes exchanged, left out and repeated: a prompt or a sentence. */
static void damaged(void)
{
    uint64_t state = check_seed;
    for (int round = 0; round < 4000; round++) {
        const char *from = templates[check_below(&state, TEMPLATES)].text;
        size_t length = strlen(from), used = 0;
        char *text = malloc(2 * length + 1), *prompt;
        for (size_t i = 0; i < length; i++) {
            int what = check_below(&state, 60);
            if (what == 0) continue;
            text[used++] = what == 1 ? from[check_below(&state, (int)length)] : from[i];
            if (what == 2) text[used++] = from[i];
        }
        text[used] = 0;
        text = realloc(text, used + 1);
        if (print(text, "Hi", &prompt) == PH_OK) ph_io_release(&io, prompt);
        free(text);
    }
    char deep[4001];
    for (int i = 0; i < 2000; i++) deep[i] = '(', deep[2000 + i] = ')';
    deep[0] = deep[1] = '{', deep[4000] = 0;
    char *prompt;
    CHECK(print(deep, "Hi", &prompt) != PH_OK, "taken");
}

/* ---- checkpoints ------------------------------------------------------------------- */

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
    begin_llama_folder(tokenizer);
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

#define CHATML                                                                           \
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "           \
    "'<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"

static void from_checkpoints(void)
{
    static const struct {
        const char *name, *text;
    } places[] = {{"tokenizer_config.json", "{\"chat_template\": \"" CHATML "\"}"},
                  {"tokenizer_config.json",
                   "{\"chat_template\": [{\"name\": \"default\", "
                   "\"template\": \"" CHATML "\"}]}"},
                  {"chat_template.jinja", CHATML}};
    ph_ctx *ctx;
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_folder();
    for (int i = 0; i < 3; i++) {
        write_file(places[i].name, places[i].text);
        ph_model *m = open_model(ctx);
        compare_answer(ctx, m);
        ph_model_free(m);
    }
    end_llama_folder();
    ph_close(ctx);
}

/* A message of the system comes first, or is refused in the words of the template. */
static void systems(void)
{
    ph_ctx *ctx;
    char out[64], whole[64];
    ph_generation how = {.max_tokens = NEW, .chat = 1, .system = "as"};
    CHECK(ph_open(&ctx, &(ph_options){.threads = 1}) == PH_OK, "ph_open failed");
    begin_folder();
    write_file("chat_template.jinja",
               "{% for m in messages %}{{ m.content }}{% endfor %}");
    ph_model *m = open_model(ctx);
    CHECK(ph_generate(m, "ese", &how, out, sizeof out, NULL) == PH_OK, "%s",
          ph_error(ctx));
    CHECK(ph_generate(m, "asese", &(ph_generation){.max_tokens = NEW}, whole,
                      sizeof whole, NULL) == PH_OK,
          "%s", ph_error(ctx));
    CHECK(!strcmp(out, whole), "'%s', expected '%s'", out, whole);
    ph_model_free(m);
    write_file("chat_template.jinja",
               "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No "
               "systems') }}{% endif %}{{ m.content }}{% endfor %}");
    m = open_model(ctx);
    CHECK(ph_model_chat(m) && !strcmp(ph_model_chat(m), "other"), "not other");
    CHECK(ph_generate(m, "ese", &how, out, sizeof out, NULL) == PH_UNSUPPORTED &&
              strstr(ph_error(ctx), "refuses this conversation: 'No systems'"),
          "%s", ph_error(ctx));
    how.system = NULL;
    CHECK(ph_generate(m, "ese", &how, out, sizeof out, NULL) == PH_OK, "%s",
          ph_error(ctx));
    ph_model_free(m);
    end_llama_folder();
    ph_close(ctx);
}

static void refuse(ph_ctx *ctx, const char *wanted)
{
    char out[8] = "left";
    ph_model *m = open_model(ctx);
    CHECK(!ph_model_chat(m), "%s", ph_model_chat(m));
    CHECK(ph_generate(m, "ese", &(ph_generation){.chat = 1}, out, sizeof out, NULL) ==
              PH_UNSUPPORTED,
          "taken");
    CHECK(strstr(ph_error(ctx), wanted), "%s", ph_error(ctx));
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
              strstr(ph_error(ctx),
                     "tokenizer_config.json: chat_template is 7, expected"),
          "%s", ph_error(ctx));
    write_file("tokenizer_config.json", "{\"chat_template\": \"{{ bos_token }}\"}");
    refuse(ctx, "the chat template does not write the message of a user");
    write_file("tokenizer_config.json",
               "{\"chat_template\": \"{{ '<|im_start|>' + f(messages) }}\"}");
    refuse(ctx, "chat template, line 1: 'f' is called and not known");
    end_llama_folder();
    ph_close(ctx);
}

static const check_case cases[] = {{"all_families", all_families},
                                   {"features", features},
                                   {"unknown_statements", unknown_statements},
                                   {"hostile", hostile},
                                   {"systems", systems},
                                   {"dates", dates},
                                   {"damaged", damaged},
                                   {"from_checkpoints", from_checkpoints},
                                   {"refused", refused},
                                   {0, 0}};

/* --render FILE MESSAGE [SYSTEM]: prints the prompt by a template of a file, on `day`,
   for bench/chat_templates.py. */
static int render_file(int argc, char **argv)
{
    static char text[1 << 20];
    char *prompt;
    FILE *file = fopen(argv[2], "rb");
    if (!file) return 2;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const ph_chat_request request = {.template_text = text,
                                     .message = argv[3],
                                     .system = argc > 4 ? argv[4] : NULL,
                                     .tokens = {"<B>", "</s>"},
                                     .today = &day};
    ph_status status = ph_chat_print(&request, &prompt, &io);
    if (status == PH_OK) fputs(prompt, stdout);
    if (status != PH_OK) fprintf(stderr, "%s\n", sentence);
    ph_io_release(&io, prompt);
    return status != PH_OK;
}

int main(int argc, char **argv)
{
    if (argc > 3 && !strcmp(argv[1], "--render")) return render_file(argc, argv);
    return check_main(argc, argv, cases);
}
