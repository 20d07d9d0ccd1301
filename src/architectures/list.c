/*
 * list.c - all architectures, and the one of a checkpoint.
 */
#include <stdio.h>
#include <string.h>

#include "architectures/architecture.h"

static const ph_architecture *const all[] = {
    &ph_llama,    &ph_gpt2,       &ph_bert,    &ph_electra, &ph_roberta,
    &ph_mpnet,    &ph_distilbert, &ph_vit,     &ph_deit,    &ph_t5_family,
    &ph_gemma,    &ph_gemma_1,    &ph_marian,  &ph_whisper, &ph_phi3,
    &ph_gpt_neox, &ph_opt,        &ph_smollm3, &ph_olmo2,   &ph_modernbert,
    &ph_bart,     &ph_albert};

enum { COUNT = sizeof all / sizeof all[0] };

const ph_architecture *ph_architecture_at(int i)
{
    return i >= 0 && i < COUNT ? all[i] : NULL;
}

static int is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name)) list++;
    return *list != NULL;
}

/* "llama, mistral, ..." */
static void list_types(int gguf, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < COUNT; i++) {
        const char *const *name = gguf ? all[i]->gguf : all[i]->types;
        for (; *name && used < size; name++)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     *name);
    }
}

/* A GGUF file that is no part of a split one. */
static ph_status check_whole(ph_import *in)
{
    const ph_value *parts = ph_values_find(&in->checkpoint->values, "split.count");
    if (!parts) return PH_OK;
    int number = parts->kind == PH_VALUE_NUMBER;
    if (number && parts->number >= 0 && parts->number <= 1) return PH_OK;
    return ph_fail(in->ctx, PH_UNSUPPORTED,
                   "split.count is %s, expected one whole GGUF file, as llama-gguf-split "
                   "--merge makes of the parts",
                   ph_value_show(parts).text);
}

static ph_status find_architecture(ph_import *in)
{
    int gguf = ph_import_is_gguf(in);
    const char *key = gguf ? "general.architecture" : "model_type";
    const ph_value *type = ph_values_find(&in->checkpoint->values, key);
    char known[512];
    if (gguf) PH_TRY(check_whole(in));
    if (!type || type->kind != PH_VALUE_TEXT)
        return ph_fail(in->ctx, PH_BAD_FILE, "%s is %s, expected a name", key,
                       type ? ph_value_show(type).text : "missing");
    in->type = type->text;
    for (int i = 0; i < COUNT; i++)
        if (is_in(gguf ? all[i]->gguf : all[i]->types, type->text))
            in->architecture = all[i];
    if (in->architecture) return PH_OK;
    list_types(gguf, known, sizeof known);
    return ph_fail(in->ctx, PH_UNSUPPORTED, "%s is %s, expected one of %s", key,
                   ph_io_quote(type->text, type->length).text, known);
}

/* What stands before the anchor, where it ends a name; NULL: it does not. */
static const char *before_anchor(const char *name, const char *anchor, size_t *length)
{
    size_t all_of_it = strlen(name), tail = strlen(anchor);
    if (all_of_it < tail || strcmp(name + all_of_it - tail, anchor)) return NULL;
    *length = all_of_it - tail;
    return *length == 0 || name[*length - 1] == '.' ? name : NULL;
}

/* What stands before a tensor of a layer, `layers.#.x` in the table of names. */
static const char *before_layer(const char *name, const char *pattern, size_t *length)
{
    const char *hole = pattern ? strchr(pattern, '#') : NULL;
    size_t all_of_it = strlen(name), head, tail;
    if (!hole || (tail = strlen(hole + 1)) > all_of_it) return NULL;
    const char *digits = name + all_of_it - tail;
    if (strcmp(digits, hole + 1)) return NULL;
    while (digits > name && digits[-1] >= '0' && digits[-1] <= '9') digits--;
    head = (size_t)(hole - pattern);
    if ((size_t)(digits - name) < head || strncmp(digits - head, pattern, head))
        return NULL;
    *length = (size_t)(digits - name) - head;
    return name;
}

/* Without the anchor: under the name it would have beside the tensors of layers. */
static ph_status refuse_anchor(const ph_import *in)
{
    const ph_checkpoint *c = in->checkpoint;
    char name[PH_IMPORT_NAME];
    size_t length = 0;
    const char *found = NULL;
    for (size_t i = 0; i < c->count && !found; i++)
        for (const ph_tensor_name *n = in->architecture->names; n->ours && !found; n++)
            found = before_layer(c->tensors[i].tensor.name, n->folder, &length);
    snprintf(name, sizeof name, "%.*s%s", found && length < 64 ? (int)length : 0,
             found ? found : "", in->architecture->anchor);
    return ph_fail(in->ctx, PH_BAD_FILE, "tensor %s is missing",
                   ph_io_quote(name, strlen(name)).text);
}

static ph_status find_prefix(ph_import *in)
{
    const ph_checkpoint *c = in->checkpoint;
    const char *anchor = in->architecture->anchor, *found = NULL;
    size_t length = 0, other = 0;
    for (size_t i = 0; i < c->count; i++) {
        const char *name = c->tensors[i].tensor.name;
        if (!before_anchor(name, anchor, &other)) continue;
        if (found)
            return ph_fail(in->ctx, PH_UNSUPPORTED,
                           "tensors %s and %s both end in %s, expected one",
                           ph_io_quote(found, strlen(found)).text,
                           ph_io_quote(name, strlen(name)).text, anchor);
        found = name, length = other;
    }
    if (!found) return refuse_anchor(in);
    if (length >= sizeof in->prefix)
        return ph_fail(in->ctx, PH_BAD_FILE, "tensor %s: its name is too long",
                       ph_io_quote(found, strlen(found)).text);
    memcpy(in->prefix, found, length);
    in->prefix[length] = 0;
    return PH_OK;
}

ph_status ph_import_begin(ph_import *in, ph_ctx *ctx, ph_checkpoint *checkpoint)
{
    *in = (ph_import){.ctx = ctx, .checkpoint = checkpoint, .section = ""};
    PH_TRY(find_architecture(in));
    int text_config = in->architecture->text_config;
    if (text_config && ph_import_value(in, "text_config.hidden_size", NULL))
        in->section = "text_config.";
    PH_TRY(in->status);
    return ph_import_is_gguf(in) ? PH_OK : find_prefix(in);
}
