/*
 * tokenizer_file.c - tokenizer.json: its sections, added tokens, and fields in general;
 * see tokenizer_file.h.
 */
#include "text/tokenizer_file.h"

#include <string.h>

#include "base/base.h"

/* ---- fields ---- */

/* What sentences call a component by its type, and an added token by its text. */
static const char *type_of(ph_tokenizer_file *file, const ph_json_node *node)
{
    const ph_json_node *type = ph_json_get(&file->tree, node, "type");
    if (!type) type = ph_json_get(&file->tree, node, "content");
    return type && type->kind == PH_JSON_STRING ? type->text : "component";
}

ph_status ph_file_refuse(ph_tokenizer_file *file, const char *what,
                         const ph_json_node *node)
{
    const char *type = type_of(file, node);
    return ph_io_fail(file->io, PH_UNSUPPORTED, "'%.200s': the %s %s is not supported",
                      file->name, what, ph_io_quote(type, strlen(type)).text);
}

ph_status ph_file_bad(ph_tokenizer_file *file, const ph_json_node *node,
                      const char *field, const char *expected)
{
    const char *type = type_of(file, node);
    return ph_io_fail(file->io, PH_BAD_FILE, "'%.200s': %s of %s: expected %s",
                      file->name, field, ph_io_quote(type, strlen(type)).text, expected);
}

ph_status ph_file_flag(ph_tokenizer_file *file, const ph_json_node *node,
                       const char *field, int usual, int *out)
{
    const ph_json_node *member = ph_json_get(&file->tree, node, field);
    if (!ph_json_is_set(member) && usual >= 0)
        *out = usual;
    else if (member && (member->kind == PH_JSON_TRUE || member->kind == PH_JSON_FALSE))
        *out = member->kind == PH_JSON_TRUE;
    else
        return ph_file_bad(file, node, field, "true or false");
    return PH_OK;
}

ph_status ph_file_text(ph_tokenizer_file *file, const ph_json_node *node,
                       const char *field, const char **text, size_t *length)
{
    const ph_json_node *member = ph_json_get(&file->tree, node, field);
    if (!member || member->kind != PH_JSON_STRING)
        return ph_file_bad(file, node, field, "a string");
    *length = member->length;
    *text = ph_tokenizer_copy(file->t, member->text, member->length);
    return *text ? PH_OK : PH_OUT_OF_MEMORY;
}

ph_status ph_file_size(ph_tokenizer_file *file, const ph_json_node *node,
                       const char *field, size_t *out)
{
    if (ph_json_node_size(ph_json_get(&file->tree, node, field), out))
        return ph_file_bad(file, node, field, "a whole number");
    return PH_OK;
}

ph_status ph_file_pattern(ph_tokenizer_file *file, const ph_json_node *node,
                          ph_pattern *pattern)
{
    const ph_json_node *member = ph_json_get(&file->tree, node, "pattern");
    const ph_json_node *regex = ph_json_get(&file->tree, member, "Regex");
    *pattern = (ph_pattern){0};
    if (regex && regex->kind == PH_JSON_STRING) {
        if (!ph_pattern_of_regex(pattern, regex->text, regex->length)) return PH_OK;
        return ph_io_fail(file->io, PH_UNSUPPORTED,
                          "'%.200s': the pattern %s (Regex) is not supported", file->name,
                          ph_io_quote(regex->text, regex->length).text);
    }
    if (!ph_json_get(&file->tree, member, "String"))
        return ph_file_bad(file, node, "pattern", "String or Regex");
    PH_TRY(ph_file_text(file, member, "String", &pattern->text, &pattern->length));
    return pattern->length ? PH_OK : ph_file_bad(file, node, "pattern", "some text");
}

ph_status ph_file_metaspace(ph_tokenizer_file *file, const ph_json_node *node,
                            const char **mark, size_t *length, ph_prepend_when *when)
{
    const ph_json_node *scheme = ph_json_get(&file->tree, node, "prepend_scheme");
    int prefix = 1;
    PH_TRY(ph_file_text(file, node, "replacement", mark, length));
    PH_TRY(ph_file_flag(file, node, "add_prefix_space", 1, &prefix));
    *when = PH_PREPEND_MISSING;
    if (*length == 0) return ph_file_bad(file, node, "replacement", "a character");
    if (ph_json_equals(scheme, "never") || (!scheme && !prefix))
        *when = PH_PREPEND_NEVER;
    else if (ph_json_equals(scheme, "first"))
        *when = PH_PREPEND_MISSING_FIRST;
    else if (scheme && !ph_json_equals(scheme, "always"))
        return ph_file_bad(file, node, "prepend_scheme", "always, first or never");
    if (!prefix && *when != PH_PREPEND_NEVER)
        return ph_file_bad(file, node, "add_prefix_space", "what prepend_scheme says");
    return PH_OK;
}

ph_status ph_file_components(ph_tokenizer_file *file, const ph_json_node *section,
                             const char *what, const char *list,
                             ph_component_reader *read)
{
    if (!ph_json_is_set(section)) return PH_OK;
    if (section->kind != PH_JSON_OBJECT)
        return ph_io_fail(file->io, PH_BAD_FILE, "'%.200s': %s: expected an object",
                          file->name, what);
    if (!ph_json_equals(ph_json_get(&file->tree, section, "type"), "Sequence"))
        return read(file, section);
    const ph_json_node *members = ph_json_get(&file->tree, section, list);
    if (!members || members->kind != PH_JSON_ARRAY)
        return ph_file_bad(file, section, list, "an array");
    const ph_json_node *node = ph_json_first(&file->tree, members);
    for (; node; node = ph_json_after(&file->tree, node))
        PH_TRY(ph_file_components(file, node, what, list, read));
    return PH_OK;
}

/* ---- added tokens ---- */

static ph_status bad_added(ph_tokenizer_file *file, const char *why)
{
    return ph_io_fail(file->io, PH_BAD_FILE, "'%.200s': added_tokens: %s", file->name,
                      why);
}

static ph_status read_added_flags(ph_tokenizer_file *file, const ph_json_node *node,
                                  ph_added_token *token)
{
    static const char *const fields[] = {"special", "normalized", "single_word", "lstrip",
                                         "rstrip"};
    unsigned char *flags[] = {&token->special, &token->normalized, &token->single_word,
                              &token->left, &token->right};
    for (int i = 0; i < 5; i++) {
        int value = 0;
        PH_TRY(ph_file_flag(file, node, fields[i], -1, &value));
        *flags[i] = (unsigned char)value;
    }
    return PH_OK;
}

static ph_status read_added_token(ph_tokenizer_file *file, const ph_json_node *node)
{
    ph_token_table *tokens = &file->t->tokens;
    const ph_json_node *text = ph_json_get(&file->tree, node, "content");
    size_t id = 0;
    if (node->kind != PH_JSON_OBJECT || !text || text->kind != PH_JSON_STRING)
        return bad_added(file, "expected objects with a string `content`");
    PH_TRY(ph_file_size(file, node, "id", &id));
    int32_t known = ph_token_table_find(tokens, text->text, text->length);
    if (known == PH_TOKEN_NONE && ph_token_known(tokens, (int64_t)id))
        return ph_io_fail(
            file->io, PH_BAD_FILE,
            "'%.200s': added_tokens: %s has id %zu, which another token has", file->name,
            ph_io_quote(text->text, text->length).text, id);
    if (known == PH_TOKEN_NONE)
        PH_TRY(ph_token_table_add(tokens, id, text->text, text->length));
    else if ((size_t)known != id)
        return ph_io_fail(file->io, PH_BAD_FILE,
                          "'%.200s': added_tokens: %s has id %zu, but %d in the "
                          "vocabulary",
                          file->name, ph_io_quote(text->text, text->length).text, id,
                          (int)known);
    ph_added_token token = {
        .id = (int32_t)id, .text = text->text, .length = text->length};
    PH_TRY(read_added_flags(file, node, &token));
    tokens->entries[id].outside = known == PH_TOKEN_NONE;
    if (tokens->entries[id].added) return bad_added(file, "a token stands there twice");
    tokens->entries[id].added = 1;
    return ph_add_token(file->t, token);
}

static ph_status read_added(ph_tokenizer_file *file, const ph_json_node *list)
{
    if (!ph_json_is_set(list)) return PH_OK;
    if (list->kind != PH_JSON_ARRAY) return bad_added(file, "expected an array");
    const ph_json_node *node = ph_json_first(&file->tree, list);
    for (; node; node = ph_json_after(&file->tree, node))
        PH_TRY(read_added_token(file, node));
    return PH_OK;
}

/* ---- truncation and padding: told, not applied ---- */

static ph_status read_habits(ph_tokenizer_file *file, const ph_json_node *root)
{
    const ph_json_node *truncation = ph_json_get(&file->tree, root, "truncation");
    const ph_json_node *padding = ph_json_get(&file->tree, root, "padding");
    size_t id = 0;
    if (ph_json_is_set(truncation) &&
        ph_json_node_size(ph_json_get(&file->tree, truncation, "max_length"),
                          &file->t->max_tokens))
        return ph_io_fail(file->io, PH_BAD_FILE,
                          "'%.200s': truncation.max_length: expected a whole number",
                          file->name);
    if (!ph_json_is_set(padding)) return PH_OK;
    if (ph_json_node_size(ph_json_get(&file->tree, padding, "pad_id"), &id) ||
        id > PH_TOKEN_MAX_ID)
        return ph_io_fail(file->io, PH_BAD_FILE,
                          "'%.200s': padding.pad_id: expected the id of a token",
                          file->name);
    file->t->padding = (int32_t)id;
    return PH_OK;
}

/* ---- the file ---- */

static ph_status read_sections(ph_tokenizer_file *file)
{
    const ph_json_tree *tree = &file->tree;
    const ph_json_node *root = tree->count ? &tree->nodes[0] : NULL;
    const ph_json_node *model = ph_json_get(tree, root, "model");
    if (!model || model->kind != PH_JSON_OBJECT)
        return ph_io_fail(file->io, PH_BAD_FILE,
                          "'%.200s' is not a tokenizer: it has no object `model`",
                          file->name);
    PH_TRY(ph_file_components(file, ph_json_get(tree, root, "normalizer"), "normalizer",
                              "normalizers", ph_file_normalizer));
    PH_TRY(ph_file_components(file, ph_json_get(tree, root, "pre_tokenizer"),
                              "pre_tokenizer", "pretokenizers", ph_file_splitter));
    PH_TRY(ph_file_model(file, model));
    PH_TRY(read_added(file, ph_json_get(tree, root, "added_tokens")));
    PH_TRY(ph_file_components(file, ph_json_get(tree, root, "post_processor"),
                              "post_processor", "processors", ph_file_processor));
    PH_TRY(ph_file_components(file, ph_json_get(tree, root, "decoder"), "decoder",
                              "decoders", ph_file_decoder));
    PH_TRY(read_habits(file, root));
    if (file->t->decoder_count > 0) return PH_OK;
    return ph_add_decoder(
        file->t, (ph_decode_step){.kind = PH_DECODE_JOIN, .text = " ", .length = 1});
}

ph_status ph_read_tokenizer_json(ph_tokenizer *t, const char *name, char *bytes,
                                 size_t size, const ph_io *io)
{
    ph_tokenizer_file file = {.t = t, .name = name, .io = io};
    PH_TRY(ph_json_tree_read(&file.tree, name, bytes, size, io));
    ph_status status = read_sections(&file);
    if (status == PH_OUT_OF_MEMORY)
        ph_io_fail(io, status, "'%.200s': out of memory while it is read", name);
    ph_json_tree_free(&file.tree);
    return status;
}
