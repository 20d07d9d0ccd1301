/*
 * trie.c - building a trie from sorted keys; see trie.h.
 */
#include "text/trie.h"

#include <string.h>

#include "base/base.h"
#include "io/sort.h"

static int compare_keys(const void *left, const void *right)
{
    const ph_trie_key *a = left, *b = right;
    size_t shorter = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->text, b->text, shorter);
    if (order) return order;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

/* Keys [start, end) share the bytes that lead to a node. */
typedef struct key_range {
    uint32_t start, end;
} key_range;

typedef struct builder {
    ph_trie *trie;
    const ph_trie_key *keys;
    key_range *ranges; /* of each node */
    size_t capacity;
    const ph_io *io;
} builder;

static ph_status add_node(builder *b, unsigned char label, key_range range)
{
    ph_trie *t = b->trie;
    void *first = t->first, *labels = t->label, *value = t->value, *ranges = b->ranges;
    size_t need = t->nodes + 2; /* one more `first` than nodes */
    ph_status status = ph_io_grow(b->io, &first, &t->capacity[0], need, sizeof *t->first);
    t->first = first;
    if (status == PH_OK) status = ph_io_grow(b->io, &labels, &t->capacity[1], need, 1);
    t->label = labels;
    if (status == PH_OK)
        status = ph_io_grow(b->io, &value, &t->capacity[2], need, sizeof *t->value);
    t->value = value;
    if (status == PH_OK)
        status = ph_io_grow(b->io, &ranges, &b->capacity, need, sizeof *b->ranges);
    b->ranges = ranges;
    if (status != PH_OK) return status;
    t->label[t->nodes] = label;
    t->value[t->nodes] = -1;
    b->ranges[t->nodes++] = range;
    return PH_OK;
}

/* The children of a node at this depth; keys that end here come first in its range. */
static ph_status add_children(builder *b, size_t node, uint32_t depth)
{
    key_range range = b->ranges[node];
    b->trie->first[node] = (uint32_t)b->trie->nodes;
    while (range.start < range.end && b->keys[range.start].length == depth)
        b->trie->value[node] = b->keys[range.start++].value;
    while (range.start < range.end) {
        char c = b->keys[range.start].text[depth];
        uint32_t end = range.start + 1;
        while (end < range.end && b->keys[end].text[depth] == c) end++;
        PH_TRY(add_node(b, (unsigned char)c, (key_range){range.start, end}));
        range.start = end;
    }
    return PH_OK;
}

static ph_status build(builder *b, size_t count)
{
    size_t node = 0, level_end = 1;
    PH_TRY(add_node(b, 0, (key_range){0, (uint32_t)count}));
    for (uint32_t depth = 0; node < b->trie->nodes; depth++) {
        for (; node < level_end; node++) PH_TRY(add_children(b, node, depth));
        level_end = b->trie->nodes;
    }
    b->trie->first[node] = (uint32_t)b->trie->nodes;
    for (uint32_t child = b->trie->first[0]; child < b->trie->first[1]; child++)
        b->trie->root[b->trie->label[child]] = child;
    return PH_OK;
}

ph_status ph_trie_build(ph_trie *trie, ph_trie_key *keys, size_t count, const ph_io *io)
{
    builder b = {.trie = trie, .keys = keys, .io = io};
    memset(trie, 0, sizeof *trie);
    ph_sort(keys, count, sizeof *keys, compare_keys);
    ph_status status = build(&b, count);
    ph_io_release(io, b.ranges);
    if (status != PH_OK) {
        ph_trie_free(trie, io);
        return ph_io_no_memory(io, trie->nodes, "the trie of a vocabulary");
    }
    return PH_OK;
}

void ph_trie_free(ph_trie *trie, const ph_io *io)
{
    ph_io_release(io, trie->first);
    ph_io_release(io, trie->label);
    ph_io_release(io, trie->value);
    trie->first = NULL;
    trie->label = NULL;
    trie->value = NULL;
}
