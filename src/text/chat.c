/*
 * chat.c - see chat.h.
 */
#include "text/chat.h"

#include <string.h>

/* A mark of one family may occur in a later one: the first that fits is taken. */
static const ph_chat families[] = {
    {.name = "chatml",
     .mark = "<|im_start|>",
     .before = "<|im_start|>user\n",
     .after = "<|im_end|>\n<|im_start|>assistant\n",
     .end = "<|im_end|>"},
    {.name = "llama3",
     .mark = "<|start_header_id|>",
     .bos = "<|begin_of_text|>",
     .before = "<|start_header_id|>user<|end_header_id|>\n\n",
     .after = "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
     .end = "<|eot_id|>",
     .trims = 1},
    {.name = "gemma",
     .mark = "<start_of_turn>",
     .bos = "<bos>",
     .before = "<start_of_turn>user\n",
     .after = "<end_of_turn>\n<start_of_turn>model\n",
     .end = "<end_of_turn>",
     .trims = 1},
    {.name = "phi3",
     .mark = "<|end|>",
     .before = "<|user|>\n",
     .after = "<|end|>\n<|assistant|>\n",
     .end = "<|end|>"},
    {.name = "zephyr",
     .mark = "<|user|>",
     .before = "<|user|>\n",
     .after = "</s>\n<|assistant|>\n",
     .end = "</s>"},
    {.name = "llama2",
     .mark = "<<SYS>>",
     .bos = "<s>",
     .before = "[INST] ",
     .after = " [/INST]",
     .end = "</s>",
     .trims = 1},
    {.name = "mistral",
     .mark = "[INST]",
     .bos = "<s>",
     .before = "[INST] ",
     .after = " [/INST]",
     .end = "</s>"}};

const ph_chat *ph_chat_find(const char *template_text)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strstr(template_text, families[i].mark)) return &families[i];
    return NULL;
}

typedef struct chat_sink {
    char *out;
    size_t size, used;
} chat_sink;

static void add(chat_sink *s, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++, s->used++)
        if (s->used + 1 < s->size) s->out[s->used] = text[i];
}

static void add_text(chat_sink *s, const char *text)
{
    add(s, text, strlen(text));
}

/* ChatML: a template may hold the message of the system that it uses where none is given,
   as a literal: no quote and no brace up to its end. */
static void add_system(chat_sink *s, const char *template_text)
{
    static const char begin[] = "<|im_start|>system", end[] = "<|im_end|>";
    for (const char *at = template_text; (at = strstr(at, begin));) {
        at += strlen(begin);
        size_t newline = *at == '\n' ? 1 : !strncmp(at, "\\n", 2) ? 2 : 0;
        size_t length = strcspn(at + newline, "'\"{}<");
        const char *text = at + newline;
        if (!newline || !length || strncmp(text + length, end, strlen(end))) continue;
        add_text(s, "<|im_start|>system\n");
        add(s, text, length);
        add_text(s, "<|im_end|>\n");
        return;
    }
}

/* Llama 3.1: dates, always. */
static void add_dates(chat_sink *s, const char *template_text)
{
    if (strstr(template_text, "Cutting Knowledge Date"))
        add_text(s, "<|start_header_id|>system<|end_header_id|>\n\n"
                    "Cutting Knowledge Date: December 2023\n"
                    "Today Date: 26 Jul 2024\n\n<|eot_id|>");
}

/* Mistral: later versions have no blanks between marks and message. */
static const char *without_blank(const char *text, const char *template_text)
{
    static const char *const blanks[] = {"[INST] ", " [/INST]"};
    static const char *const none[] = {"[INST]", "[/INST]"};
    for (int i = 0; i < 2; i++)
        if (!strcmp(text, blanks[i]) && !strstr(template_text, text)) return none[i];
    return text;
}

size_t ph_chat_print(const ph_chat *chat, const char *template_text, const char *message,
                     char *out, size_t size)
{
    chat_sink s = {out, size, 0};
    size_t first = chat->trims ? strspn(message, " \t\r\n") : 0;
    size_t length = strlen(message + first);
    while (chat->trims && length && strchr(" \t\r\n", message[first + length - 1]))
        length--;
    if (chat->bos &&
        (strstr(template_text, "bos_token") || strstr(template_text, chat->bos)))
        add_text(&s, chat->bos);
    add_system(&s, template_text);
    add_dates(&s, template_text);
    add_text(&s, without_blank(chat->before, template_text));
    add(&s, message + first, length);
    add_text(&s, without_blank(chat->after, template_text));
    if (size) out[s.used < size ? s.used : size - 1] = 0;
    return s.used;
}
