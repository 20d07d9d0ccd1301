/*
 * prompt.c - the prompt that sentence-transformers puts before every text, and the side
 * that a text is truncated on.
 */
#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "model/model_text.h"

static ph_status bad(const ph_model *m, const ph_value *v, const char *expected)
{
    return ph_fail(m->ctx, PH_BAD_FILE, "%s is %s, expected %s",
                   ph_value_field(v->key).text, ph_value_show(v).text, expected);
}

/* The text of default_prompt_name among prompts; "query" and "document" are there, and
   empty, where a file does not have them. NULL: there is none. */
static ph_status find_prompt(const ph_model *m, const ph_values *values,
                             const ph_value **out)
{
    static const char name_key[] = "sentence_transformers.default_prompt_name";
    char key[256];
    const ph_value *name = ph_values_find(values, name_key);
    *out = NULL;
    if (!name || name->kind == PH_VALUE_NULL) return PH_OK;
    if (name->kind != PH_VALUE_TEXT) return bad(m, name, "the name of a prompt");
    int length =
        snprintf(key, sizeof key, "sentence_transformers.prompts.%s", name->text);
    if (length < (int)sizeof key) *out = ph_values_find(values, key);
    if (*out && (*out)->kind == PH_VALUE_NULL) *out = NULL;
    if (*out && (*out)->kind != PH_VALUE_TEXT) return bad(m, *out, "a prompt");
    if (*out || !strcmp(name->text, "query") || !strcmp(name->text, "document"))
        return PH_OK;
    return bad(m, name, "one of the prompts");
}

/* Tokens of the prompt that do not count in the vector would need a pooling of their
   own. */
static ph_status check_pooling(const ph_model *m, const ph_values *values)
{
    const ph_value *v = ph_values_find(values, "pooling.include_prompt");
    if (!v || v->kind == PH_VALUE_NULL) return PH_OK;
    if (v->kind != PH_VALUE_BOOL) return bad(m, v, "true or false");
    if (v->number != 0) return PH_OK;
    return ph_fail(m->ctx, PH_UNSUPPORTED,
                   "include_prompt of 1_Pooling/config.json is false beside a default "
                   "prompt, expected a vector of all tokens");
}

static ph_status import_side(ph_model *m, const ph_values *values)
{
    const ph_value *v = ph_values_find(values, "tokenizer_config.truncation_side");
    if (!v || v->kind == PH_VALUE_NULL) return PH_OK;
    m->truncate_left = v->kind == PH_VALUE_TEXT && !strcmp(v->text, "left");
    if (m->truncate_left || (v->kind == PH_VALUE_TEXT && !strcmp(v->text, "right")))
        return PH_OK;
    return bad(m, v, "left or right");
}

ph_status ph_prompt_import(ph_model *m, const ph_values *values)
{
    const ph_value *prompt;
    PH_TRY(import_side(m, values));
    if (!m->config.pooling || m->config.classes || !ph_values_find(values, "modules."))
        return PH_OK;
    PH_TRY(find_prompt(m, values, &prompt));
    if (!prompt || !prompt->length) return PH_OK;
    PH_TRY(check_pooling(m, values));
    m->prompt = ph_ctx_alloc(m->ctx, prompt->length + 1);
    if (!m->prompt) return ph_fail(m->ctx, PH_OUT_OF_MEMORY, "no memory for a prompt");
    memcpy(m->prompt, prompt->text, prompt->length + 1);
    return PH_OK;
}
