/*
 * model_chat.c - messages for chat models: the template of a checkpoint, and prompts by
 * it.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model_text.h"
#include "model/named_tokens.h"
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

/* ---- tokens that templates name ---------------------------------------------------- */

/* "bos_token" under a prefix: a text, or an object with it. NULL: the file is silent. */
static const ph_value *find_named(const ph_values *values, const char *prefix,
                                  const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    const ph_value *v = ph_values_find(values, key);
    if (!v || v->kind != PH_VALUE_OBJECT) return v;
    snprintf(key, sizeof key, "%s%s.content", prefix, name);
    return ph_values_find(values, key);
}

/* What no file spells: GGUF has ids, and the first token that ends a text is its end. */
static int32_t find_id(const ph_model *m, const ph_checkpoint *c, int token)
{
    static const char *const keys[PH_CHAT_TOKENS] = {
        "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.padding_token_id", "tokenizer.ggml.unknown_token_id"};
    int32_t id = ph_token_of(ph_values_find(&c->values, keys[token]));
    if (id < 0 && token == PH_CHAT_EOS && m->marks.end_count) id = m->marks.ends[0];
    return id;
}

static ph_status import_token(ph_model *m, const ph_checkpoint *c, const ph_values *map,
                              int token)
{
    const char *name = ph_chat_names[token];
    char **out = &m->chat_tokens[token];
    const ph_value *v = find_named(map, "special_tokens_map.", name);
    if (!v) v = find_named(&c->values, "tokenizer_config.", name);
    if (v)
        return v->kind == PH_VALUE_TEXT ? copy(m, v->text, v->length, out) : PH_OK;
    const char *text = ph_tokenizer_token(m->tokenizer, find_id(m, c, token), NULL);
    return text ? copy(m, text, strlen(text), out) : PH_OK;
}

/* special_tokens_map.json, which says more than tokenizer_config.json where that does not
   list added tokens (named_tokens.c), and nothing where it does. */
static ph_status read_map(const ph_checkpoint *c, const char *path, ph_values *map,
                          const ph_io *io)
{
    static const char name[] = "special_tokens_map.json";
    const ph_value *added =
        ph_values_find(&c->values, "tokenizer_config.added_tokens_decoder");
    if (c->kind != PH_CHECKPOINT_FOLDER || (added && added->kind == PH_VALUE_OBJECT))
        return PH_OK;
    PH_TRY(ph_values_add_file(map, path, name, "special_tokens_map.", io));
    return ph_values_sort(map, name, io);
}

static ph_status import_tokens(ph_model *m, const ph_checkpoint *c, const char *path)
{
    char error[512] = "";
    ph_io io = {.error = error, .error_size = sizeof error};
    ph_values map = {0};
    ph_status status = read_map(c, path, &map, &io);
    if (status != PH_OK) ph_fail(m->ctx, status, "%s", error);
    for (int i = 0; status == PH_OK && i < PH_CHAT_TOKENS; i++)
        status = import_token(m, c, &map, i);
    ph_values_free(&map);
    return status;
}

ph_status ph_chat_import(ph_model *m, const ph_checkpoint *c, const char *path)
{
    const ph_value *v = NULL;
    PH_TRY(find_template(m, c, &v));
    if (!v) return PH_OK;
    PH_TRY(copy(m, v->text, v->length, &m->chat_template));
    PH_TRY(import_tokens(m, c, path));
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
                                     .tokens = {m->chat_tokens[0], m->chat_tokens[1],
                                                m->chat_tokens[2], m->chat_tokens[3]}};
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
