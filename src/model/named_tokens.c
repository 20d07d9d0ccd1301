/*
 * named_tokens.c - tokens that files beside tokenizer.json or vocab.txt name:
 * transformers sets them apart from text, and so must the tokenizer, or it is refused.
 *
 * Where tokenizer_config.json lists added tokens, it alone counts there; otherwise
 * special_tokens_map.json and added_tokens.json do too.
 */
#include "model/named_tokens.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

typedef struct named_tokens {
    const ph_tokenizer *t;
    const char *file; /* that it was read from */
    int roles;        /* 1: the marks around a text are the named ones */
    const ph_io *io;
} named_tokens;

int32_t ph_named_token(const ph_tokenizer *t, const char *text, size_t length)
{
    int32_t id = ph_tokenizer_id(t, text, length);
    return id >= 0 && t->tokens.entries[id].added ? id : -1;
}

static ph_status refuse(const named_tokens *n, const char *key, const char *token,
                        const char *what)
{
    return ph_io_fail(n->io, PH_UNSUPPORTED,
                      "%s names the token %s, which %s %s: load the tokenizer once with "
                      "transformers (from_pretrained, then save_pretrained), which "
                      "writes a tokenizer.json that does",
                      ph_value_field(key).text, ph_io_quote(token, strlen(token)).text,
                      n->file, what);
}

/* ---- which values name a token ----------------------------------------------------- */

static const char *const lists[] = {"added_tokens_decoder", "additional_special_tokens",
                                    "extra_special_tokens", NULL};
static const char *const kinds[] = {"cls_token", "sep_token", "unk_token", "pad_token",
                                    "mask_token", "bos_token", "eos_token", NULL};

/* "cls_token" or "cls_token.content", without what stands before. */
static int is_key(const char *key, const char *name)
{
    size_t length = strlen(name);
    return !strncmp(key, name, length) &&
           (!key[length] || !strcmp(key + length, ".content"));
}

/* An item of a list of tokens, or of an object of them by their names. */
static int is_item(const char *key, const char *list)
{
    size_t length = strlen(list);
    if (strncmp(key, list, length) || key[length] != '.') return 0;
    const char *dot = strchr(key + length + 1, '.');
    return !dot || !strcmp(dot, ".content");
}

static int names_token(const char *key)
{
    int found = 0;
    for (int i = 0; lists[i]; i++) found |= is_item(key, lists[i]);
    for (int i = 0; kinds[i]; i++) found |= is_key(key, kinds[i]);
    return found;
}

/* ---- what may stand there ---------------------------------------------------------- */

static ph_status bad_form(const ph_value *v, const char *expected, const ph_io *io)
{
    return ph_io_fail(io, PH_BAD_FILE, "%s is %s, expected %s",
                      ph_value_field(v->key).text, ph_value_show(v).text, expected);
}

/* A list or an object of tokens, or null; ids as keys of added_tokens_decoder. */
static ph_status check_list(const ph_value *v, const char *key, const ph_io *io)
{
    if (v->kind == PH_VALUE_NULL || v->kind == PH_VALUE_OBJECT) return PH_OK;
    if (!strcmp(key, "added_tokens_decoder")) return bad_form(v, "an object", io);
    if (v->kind == PH_VALUE_LIST) return PH_OK;
    return bad_form(v, "a list or an object of tokens", io);
}

/* A text, or an object with `content`; of a role, which may have no token, null. */
static ph_status check_token(const ph_values *values, const ph_value *v, int role,
                             const ph_io *io)
{
    static const char expected[] = "the text of a token, or an object with `content`";
    char key[512];
    if (v->kind == PH_VALUE_TEXT || (role && v->kind == PH_VALUE_NULL)) return PH_OK;
    if (v->kind != PH_VALUE_OBJECT) return bad_form(v, expected, io);
    int length = snprintf(key, sizeof key, "%s.content", v->key);
    const ph_value *content =
        length < (int)sizeof key ? ph_values_find(values, key) : NULL;
    if (!content) return bad_form(v, expected, io);
    return content->kind == PH_VALUE_TEXT ? PH_OK : bad_form(content, "a text", io);
}

static int is_one_of(const char *key, const char *const *names)
{
    while (*names && strcmp(key, *names)) names++;
    return *names != NULL;
}

/* The keys of a list are read, and those of the objects in it are not. */
static int is_direct_item(const char *key)
{
    for (int i = 0; lists[i]; i++) {
        size_t length = strlen(lists[i]);
        if (!strncmp(key, lists[i], length) && key[length] == '.')
            return !strchr(key + length + 1, '.');
    }
    return 0;
}

ph_status ph_named_tokens_form(const ph_values *values, const char *prefix,
                               const ph_io *io)
{
    size_t length = strlen(prefix);
    for (size_t i = 0; i < values->count; i++) {
        const ph_value *v = &values->list[i];
        const char *key = v->key + length;
        if (strncmp(v->key, prefix, length)) continue;
        if (is_one_of(key, lists)) PH_TRY(check_list(v, key, io));
        if (is_one_of(key, kinds)) PH_TRY(check_token(values, v, 1, io));
        if (is_direct_item(key)) PH_TRY(check_token(values, v, 0, io));
    }
    return PH_OK;
}

/* {token: id} */
static ph_status check_ids(const ph_values *values, const ph_io *io)
{
    for (size_t i = 1; i < values->count; i++) { /* behind the object itself */
        const ph_value *v = &values->list[i];
        double id = v->number;
        if (v->kind == PH_VALUE_NUMBER && id >= 0 && id <= PH_TOKEN_MAX_ID &&
            id == floor(id))
            continue;
        return ph_io_fail(io, PH_BAD_FILE,
                          "added_tokens.json: the id of %s is %s, expected a whole "
                          "number from 0 to %d",
                          ph_io_quote(v->key, strlen(v->key)).text,
                          ph_value_show(v).text, PH_TOKEN_MAX_ID);
    }
    return PH_OK;
}

/* ---- what a tokenizer must do with them -------------------------------------------- */

/* What stands around a text, and for what is unknown. */
static ph_status check_role(const named_tokens *n, const ph_value *v, const char *key,
                            int32_t id)
{
    const ph_tokenizer *t = n->t;
    const ph_template *s = &t->single;
    int marks = t->has_template && s->count > 1;
    if (is_key(key, "cls_token") && marks && s->items[0].id != id)
        return refuse(n, v->key, v->text, "does not put before a text");
    if (is_key(key, "sep_token") && marks && s->items[s->count - 1].id != id)
        return refuse(n, v->key, v->text, "does not put behind a text");
    int words =
        t->model.kind == PH_MODEL_WORDPIECE || t->model.kind == PH_MODEL_WORDLEVEL;
    if (is_key(key, "unk_token") && words && t->model.unknown != id)
        return refuse(n, v->key, v->text, "does not have for what is unknown");
    return PH_OK;
}

/* All values under a prefix. */
static ph_status check_values(const named_tokens *n, const ph_values *values,
                              const char *prefix)
{
    size_t length = strlen(prefix);
    for (size_t i = 0; i < values->count; i++) {
        const ph_value *v = &values->list[i];
        const char *key = v->key + length;
        if (strncmp(v->key, prefix, length) || v->kind != PH_VALUE_TEXT ||
            !names_token(key))
            continue;
        int32_t id = ph_named_token(n->t, v->text, v->length);
        if (id < 0) return refuse(n, v->key, v->text, "does not set apart from text");
        if (n->roles) PH_TRY(check_role(n, v, key, id));
    }
    return PH_OK;
}

static ph_status check_added(const named_tokens *n, const ph_values *values)
{
    PH_TRY(check_ids(values, n->io));
    for (size_t i = 1; i < values->count; i++) {
        const char *token = values->list[i].key;
        if (ph_named_token(n->t, token, strlen(token)) < 0)
            return refuse(n, "added_tokens.json", token, "does not set apart from text");
    }
    return PH_OK;
}

static ph_status check_folder(const named_tokens *n, const char *folder)
{
    ph_values map = {.io = ph_io_hooks(n->io)}, added = {.io = ph_io_hooks(n->io)};
    ph_status status = ph_values_add_file(&map, folder, "special_tokens_map.json",
                                          "special_tokens_map.", n->io);
    if (status == PH_OK)
        status = ph_values_add_file(&added, folder, "added_tokens.json", "", n->io);
    if (status == PH_OK) status = ph_values_sort(&map, "special_tokens_map.json", n->io);
    if (status == PH_OK)
        status = ph_named_tokens_form(&map, "special_tokens_map.", n->io);
    if (status == PH_OK) status = check_values(n, &map, "special_tokens_map.");
    if (status == PH_OK) status = check_added(n, &added);
    ph_values_free(&map);
    ph_values_free(&added);
    return status;
}

ph_status ph_named_tokens_check(const ph_tokenizer *t, const ph_values *values,
                                const char *folder, const char *file, int roles,
                                const ph_io *io)
{
    const named_tokens n = {t, file, roles, io};
    const ph_value *list =
        ph_values_find(values, "tokenizer_config.added_tokens_decoder");
    PH_TRY(check_values(&n, values, "tokenizer_config."));
    return list && list->kind == PH_VALUE_OBJECT ? PH_OK : check_folder(&n, folder);
}
