/*
 * model_chat.c - messages for chat models: the template of a checkpoint, and prompts by
 * it.
 */
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model_text.h"
#include "text/chat.h"

/* ---- the template of a checkpoint -------------------------------------------------- */

/* A file of its own, a text in tokenizer_config.json, the first of several there, or a
   value of GGUF. */
static ph_status find_template(const ph_model *m, const ph_checkpoint *c,
                               const ph_value **out)
{
    static const char *const keys[] = {
        "chat_template.jinja", "tokenizer_config.chat_template",
        "tokenizer_config.chat_template.0.template", "tokenizer.chat_template"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const ph_value *v = ph_values_find(&c->values, keys[i]);
        if (v && v->kind == PH_VALUE_TEXT) return *out = v, PH_OK;
        if (i > 0 && !v) v = ph_values_around(&c->values, keys[i]);
        if (v && v->kind != PH_VALUE_NULL && !(i == 1 && v->kind == PH_VALUE_LIST))
            return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected a chat template",
                           v->key, ph_value_show(v).text);
    }
    return PH_OK;
}

/* What ends an answer of this family ends a text. */
static void add_end(ph_model *m, const char *text)
{
    int32_t id = ph_tokenizer_id(m->tokenizer, text, strlen(text));
    if (id >= 0 && !ph_is_end(m, id) && m->marks.end_count < PH_MARKS_ENDS)
        m->marks.ends[m->marks.end_count++] = id;
}

ph_status ph_chat_import(ph_model *m, const ph_checkpoint *c)
{
    const ph_value *v = NULL;
    PH_TRY(find_template(m, c, &v));
    if (!v) return PH_OK;
    m->chat_template = ph_ctx_alloc(m->ctx, v->length + 1);
    if (!m->chat_template)
        return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a chat template");
    memcpy(m->chat_template, v->text, v->length);
    m->chat_template[v->length] = 0;
    const ph_chat *chat = ph_chat_find(m->chat_template);
    if (chat) add_end(m, chat->end);
    return PH_OK;
}

const char *ph_model_chat(const ph_model *m)
{
    if (!m) return NULL;
    const ph_chat *chat = m->chat_template ? ph_chat_find(m->chat_template) : NULL;
    return chat ? chat->name : NULL;
}

/* ---- prompts ----------------------------------------------------------------------- */

ph_status ph_chat_wrap(const ph_model *m, const char *message, char **prompt)
{
    const ph_chat *chat = m->chat_template ? ph_chat_find(m->chat_template) : NULL;
    *prompt = NULL;
    if (!m->chat_template)
        return ph_fail(
            m->ctx, PH_UNSUPPORTED,
            "this model has no chat template, expected a published chat model");
    if (!chat)
        return ph_fail(m->ctx, PH_UNSUPPORTED,
                       "the chat template of this model is not known, expected one of "
                       "%s",
                       PH_CHAT_NAMES);
    size_t size = ph_chat_print(chat, m->chat_template, message, NULL, 0) + 1;
    *prompt = ph_ctx_alloc(m->ctx, size);
    if (!*prompt) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a prompt");
    ph_chat_print(chat, m->chat_template, message, *prompt, size);
    return PH_OK;
}
