/*
 * model_chat.c - messages for chat models: the template of a checkpoint, and prompts by
 * it.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model_text.h"
#include "text/chat.h"

/* ---- the template of a checkpoint -------------------------------------------------- */

static ph_status refuse(const ph_model *m, const ph_value *v, const char *expected)
{
    return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected %s",
                   ph_value_field(v->key).text, ph_value_show(v).text, expected);
}

/* The key of one of several templates in tokenizer_config.json: of the one named
   "default", as transformers takes it where there are no tools; "": there is none. */
static ph_status find_default(const ph_model *m, const ph_values *values, char *key,
                              size_t size)
{
    for (int i = 0;; i++) {
        snprintf(key, size, "tokenizer_config.chat_template.%d", i);
        const ph_value *item = ph_values_find(values, key);
        if (item && item->kind != PH_VALUE_OBJECT)
            return refuse(m, item, "an object with name and template");
        snprintf(key, size, "tokenizer_config.chat_template.%d.name", i);
        const ph_value *name = ph_values_find(values, key);
        if (name && name->kind != PH_VALUE_TEXT) return refuse(m, name, "a text");
        snprintf(key, size, "tokenizer_config.chat_template.%d.template", i);
        if (name && !strcmp(name->text, "default")) return PH_OK;
        if (item || name) continue;
        *key = 0;
        return PH_OK;
    }
}

/* A file of its own, a text in tokenizer_config.json, one of several there, or a value
   of GGUF. */
static ph_status find_template(const ph_model *m, const ph_checkpoint *c,
                               const ph_value **out)
{
    char one[64];
    PH_TRY(find_default(m, &c->values, one, sizeof one));
    const char *const keys[] = {"chat_template.jinja",
                                one[0] ? one : "tokenizer_config.chat_template",
                                "tokenizer.chat_template"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const ph_value *v = ph_values_find(&c->values, keys[i]);
        if (v && v->kind == PH_VALUE_TEXT) return *out = v, PH_OK;
        if (i > 0 && !v) v = ph_values_around(&c->values, keys[i]);
        int several = i == 1 && !one[0] && v && v->kind == PH_VALUE_LIST;
        if (v && v->kind != PH_VALUE_NULL && !several)
            return refuse(m, v, "a chat template");
    }
    return PH_OK;
}

static ph_status copy(const ph_model *m, const char *text, size_t length, char **out)
{
    *out = ph_ctx_alloc(m->ctx, length + 1);
    if (!*out) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a chat template");
    memcpy(*out, text, length);
    (*out)[length] = 0;
    return PH_OK;
}

/* The text of a token that templates write by its name: as tokenizer_config.json has it,
   else of an id; NULL: there is none. */
static ph_status import_token(const ph_model *m, const ph_values *values,
                              const char *const keys[2], int32_t id, char **out)
{
    const ph_value *v = ph_values_find(values, keys[0]);
    if (v && v->kind == PH_VALUE_OBJECT) v = ph_values_find(values, keys[1]);
    if (v && v->kind == PH_VALUE_TEXT) return copy(m, v->text, v->length, out);
    const char *text = v ? NULL : ph_tokenizer_token(m->tokenizer, id, NULL);
    return text ? copy(m, text, strlen(text), out) : PH_OK;
}

ph_status ph_chat_import(ph_model *m, const ph_checkpoint *c)
{
    static const char *const bos[2] = {"tokenizer_config.bos_token",
                                       "tokenizer_config.bos_token.content"};
    static const char *const eos[2] = {"tokenizer_config.eos_token",
                                       "tokenizer_config.eos_token.content"};
    const ph_value *v = NULL;
    PH_TRY(find_template(m, c, &v));
    if (!v) return PH_OK;
    PH_TRY(copy(m, v->text, v->length, &m->chat_template));
    PH_TRY(import_token(m, &c->values, bos, m->marks.start, &m->chat_bos));
    PH_TRY(import_token(m, &c->values, eos, m->marks.end_count ? m->marks.ends[0] : -1,
                        &m->chat_eos));
    const ph_chat *chat = ph_chat_find(m->chat_template);
    /* What ends an answer of this family ends a text. */
    if (chat)
        ph_marks_add_end(m, ph_tokenizer_id(m->tokenizer, chat->end, strlen(chat->end)));
    return PH_OK;
}

/* ---- prompts ----------------------------------------------------------------------- */

static ph_status print(const ph_model *m, const char *message, const char *system,
                       char **prompt, const ph_io *io)
{
    const ph_chat_request request = {.template_text = m->chat_template,
                                     .message = message,
                                     .system = system,
                                     .bos = m->chat_bos,
                                     .eos = m->chat_eos};
    return ph_chat_print(&request, prompt, io);
}

const char *ph_model_chat(const ph_model *m)
{
    ph_io io = {0};
    char *prompt = NULL;
    if (!m || !m->chat_template || print(m, "Hi", NULL, &prompt, &io) != PH_OK)
        return NULL;
    ph_io_release(&io, prompt);
    const ph_chat *chat = ph_chat_find(m->chat_template);
    return chat ? chat->name : "other";
}

ph_status ph_chat_wrap(const ph_model *m, const char *message, const char *system,
                       char **prompt)
{
    char error[512] = "", *made;
    ph_io io = {.error = error, .error_size = sizeof error};
    *prompt = NULL;
    if (!m->chat_template)
        return ph_fail(
            m->ctx, PH_UNSUPPORTED,
            "this model has no chat template, or none of several is named default: "
            "expected a published chat model");
    ph_status status = print(m, message, system, &made, &io);
    if (status != PH_OK) return ph_fail(m->ctx, status, "%s", error);
    status = copy(m, made, strlen(made), prompt);
    ph_io_release(&io, made);
    return status;
}
