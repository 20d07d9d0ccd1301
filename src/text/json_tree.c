/*
 * json_tree.c - a JSON document as a list of nodes; see json_tree.h.
 */
#include "text/json_tree.h"

#include <string.h>

#include "base/base.h"
#include "io/number.h"

enum { DEPTH = 16 };
#define MAX_STRING ((size_t)1 << 26) /* a character map in base64 has 400 KB */

static ph_status add_node(ph_json_tree *tree, ph_json_node node)
{
    void *nodes = tree->nodes;
    if (tree->count >= UINT32_MAX) return PH_OUT_OF_MEMORY;
    ph_status status =
        ph_io_grow(tree->io, &nodes, &tree->capacity, tree->count + 1, sizeof node);
    tree->nodes = nodes;
    if (status == PH_OK) tree->nodes[tree->count++] = node;
    return status;
}

/* Links the newest node to what is open: `last` is the node before it, if any. */
static void link_node(ph_json_tree *tree, size_t parent, size_t last)
{
    uint32_t node = (uint32_t)(tree->count - 1);
    if (node == 0) return;
    if (last)
        tree->nodes[last].next = node;
    else
        tree->nodes[parent].first = node;
    tree->nodes[parent].members++;
}

static ph_status read_nodes(ph_json_tree *tree, ph_json_reader *json)
{
    size_t parent[DEPTH + 1] = {0}, last[DEPTH + 1] = {0};
    int depth = 0;
    ph_json_node node = {0};
    while (ph_json_next(json) > PH_JSON_END) {
        ph_json_token kind = json->token;
        if (kind == PH_JSON_OBJECT_END || kind == PH_JSON_ARRAY_END) {
            depth--;
            continue;
        }
        if (kind == PH_JSON_KEY) {
            node.key = json->text;
            node.key_length = (uint32_t)json->length;
            continue;
        }
        node.kind = kind;
        if (kind == PH_JSON_STRING || kind == PH_JSON_NUMBER) {
            node.text = json->text;
            node.length = (uint32_t)json->length;
        }
        PH_TRY(add_node(tree, node));
        link_node(tree, parent[depth], last[depth]);
        last[depth] = tree->count - 1;
        if (kind == PH_JSON_OBJECT || kind == PH_JSON_ARRAY) {
            parent[++depth] = tree->count - 1;
            last[depth] = 0;
        }
        node = (ph_json_node){0};
    }
    return PH_OK;
}

ph_status ph_json_tree_read(ph_json_tree *tree, const char *name, char *text,
                            size_t length, const ph_io *io)
{
    ph_json_reader json;
    char words[200];
    void *nodes = NULL;
    *tree = (ph_json_tree){.io = io};
    /* One node for 16 bytes is about what a vocabulary needs: it seldom has to move. */
    ph_io_grow(io, &nodes, &tree->capacity, length / 16, sizeof *tree->nodes);
    tree->nodes = nodes;
    ph_json_open(&json, text, length, (ph_json_limits){DEPTH, MAX_STRING}, io);
    ph_status status = read_nodes(tree, &json);
    if (status != PH_OK) {
        ph_io_fail(io, status, "'%.200s': out of memory while it is read", name);
    } else if (json.token == PH_JSON_ERROR) {
        status = json.status;
        ph_json_explain(&json, words, sizeof words);
        ph_io_fail(io, status, "'%.200s' is not valid JSON: %s", name, words);
    }
    ph_json_close(&json);
    if (status != PH_OK) ph_json_tree_free(tree);
    return status;
}

void ph_json_tree_free(ph_json_tree *tree)
{
    ph_io_release(tree->io, tree->nodes);
    tree->nodes = NULL;
    tree->count = 0;
}

const ph_json_node *ph_json_first(const ph_json_tree *tree, const ph_json_node *node)
{
    return node && node->first ? &tree->nodes[node->first] : NULL;
}

const ph_json_node *ph_json_after(const ph_json_tree *tree, const ph_json_node *node)
{
    return node->next ? &tree->nodes[node->next] : NULL;
}

const ph_json_node *ph_json_get(const ph_json_tree *tree, const ph_json_node *object,
                                const char *key)
{
    size_t length = strlen(key);
    if (!object || object->kind != PH_JSON_OBJECT) return NULL;
    const ph_json_node *member = ph_json_first(tree, object);
    for (; member; member = ph_json_after(tree, member))
        if (member->key_length == length && !memcmp(member->key, key, length))
            return member;
    return NULL;
}

int ph_json_is_set(const ph_json_node *node)
{
    return node && node->kind != PH_JSON_NULL;
}

int ph_json_equals(const ph_json_node *node, const char *text)
{
    return node && node->kind == PH_JSON_STRING && node->length == strlen(text) &&
           !memcmp(node->text, text, node->length);
}

int ph_json_node_size(const ph_json_node *node, size_t *out)
{
    size_t value = 0;
    if (!node || node->kind != PH_JSON_NUMBER) return -1;
    for (size_t i = 0; i < node->length; i++) {
        if (node->text[i] < '0' || node->text[i] > '9') return -1;
        size_t digit = (size_t)(node->text[i] - '0');
        if (value > (SIZE_MAX - digit) / 10) return -1;
        value = value * 10 + digit;
    }
    *out = value;
    return 0;
}

int ph_json_node_double(const ph_json_node *node, double *out)
{
    if (!node || node->kind != PH_JSON_NUMBER) return -1;
    return ph_number_read(node->text, node->length, out);
}
