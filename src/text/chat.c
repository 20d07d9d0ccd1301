/* chat.c - prompts of chat models; see chat.h. */
#define _POSIX_C_SOURCE 200809L
#include "text/chat.h"

#include <string.h>

#include "base/base.h"
#include "text/jinja.h"

/* A mark of one family may occur in a later one: the first that fits is taken. */
static const ph_chat families[] = {
    {"chatml", "<|im_start|>", "<|im_end|>"},
    {"llama3", "<|start_header_id|>", "<|eot_id|>"},
    {"gemma", "<start_of_turn>", "<end_of_turn>"},
    {"phi3", "<|end|>", "<|end|>"},
    {"zephyr", "<|user|>", "</s>"},
    {"llama2", "<<SYS>>", "</s>"},
    {"mistral", "[INST]", "</s>"},
    {"cohere", "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
    {"granite", "<|start_of_role|>", "<|end_of_text|>"}};

const char *const ph_chat_names[PH_CHAT_TOKENS] = {"bos_token", "eos_token", "pad_token",
                                                   "unk_token"};

const ph_chat *ph_chat_find(const char *template_text)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strstr(template_text, families[i].mark)) return &families[i];
    return NULL;
}

static ph_jinja_value make_message(ph_jinja *j, const char *role, const char *content)
{
    const char *const texts[] = {"role", role, "content", content};
    ph_jinja_value v = ph_jinja_items(j, PH_JINJA_DICT, 2);
    for (int i = 0; i < 4 && !j->status; i++) v.items[i] = ph_jinja_string(texts[i]);
    return v;
}

/* The names that transformers gives to every template. */
static void set_names(ph_jinja *j, const ph_chat_request *r)
{
    const ph_jinja_value none = {.kind = PH_JINJA_NONE};
    ph_jinja_value list = ph_jinja_items(j, PH_JINJA_LIST, r->system ? 2 : 1);
    if (j->status) return;
    if (r->system) list.items[0] = make_message(j, "system", r->system);
    list.items[list.length - 1] = make_message(j, "user", r->message);
    ph_jinja_set(j, "messages", list);
    ph_jinja_set(j, "tools", none);
    ph_jinja_set(j, "documents", none);
    ph_jinja_set(j, "add_generation_prompt", ph_jinja_bool(1));
    for (int i = 0; i < PH_CHAT_TOKENS; i++)
        if (r->tokens[i])
            ph_jinja_set(j, ph_chat_names[i], ph_jinja_string(r->tokens[i]));
}

static ph_status render(const ph_chat_request *r, char **prompt, const ph_io *io)
{
    size_t texts = strlen(r->template_text) + strlen(r->message) +
                   (r->system ? strlen(r->system) : 0);
    size_t length;
    const char *text;
    time_t now = time(NULL);
    struct tm today;
    *prompt = NULL;
    if (r->today)
        today = *r->today;
    else if (!localtime_r(&now, &today))
        return ph_io_fail(io, PH_UNSUPPORTED, "the system does not tell the date");
    ph_jinja *j = ph_jinja_open(io, 4 * texts + (1 << 20), &today);
    if (!j) return ph_io_no_memory(io, sizeof *j, "a chat template");
    set_names(j, r);
    ph_status status = ph_jinja_render(j, r->template_text, &text, &length);
    if (status == PH_OK && !(*prompt = ph_io_alloc(io, length + 1)))
        status = ph_io_no_memory(io, length + 1, "a prompt");
    if (*prompt) memcpy(*prompt, text, length), (*prompt)[length] = 0;
    ph_jinja_close(j);
    return status;
}

/* A template that writes the same for another message drops what the user said: it wants
   messages of another form. */
ph_status ph_chat_print(const ph_chat_request *request, char **prompt, const ph_io *io)
{
    PH_TRY(render(request, prompt, io));
    if (strstr(*prompt, request->message)) return PH_OK;
    ph_chat_request other = *request;
    char *twin;
    other.message = "?";
    if (!strcmp(request->message, "?")) other.message = "!";
    ph_status status = render(&other, &twin, io);
    if (status == PH_OK && !strcmp(twin, *prompt))
        status = ph_io_fail(io, PH_UNSUPPORTED,
                            "the chat template does not write the message of a user");
    ph_io_release(io, twin);
    if (status == PH_OK) return PH_OK;
    ph_io_release(io, *prompt);
    *prompt = NULL;
    return status;
}
