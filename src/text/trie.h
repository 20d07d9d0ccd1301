/*
 * trie.h - the texts of many tokens as one tree of bytes: all tokens that begin at a
 * place of a text are found in one walk.
 *
 * Nodes are numbered level by level, so the children of a node stand side by side, in
 * the order of their bytes.
 */
#ifndef PH_TEXT_TRIE_H
#define PH_TEXT_TRIE_H

#include "io/io.h"

typedef struct ph_trie_key {
    const char *text;
    uint32_t length;
    int32_t value;
} ph_trie_key;

typedef struct ph_trie {
    uint32_t *first;      /* node -> its first child; the next node's is the end */
    unsigned char *label; /* node -> the byte that leads to it */
    int32_t *value;       /* node -> value of the key that ends here, or -1 */
    size_t nodes, capacity[3];
    uint32_t root[256]; /* children of node 0 by byte; 0: none */
} ph_trie;

/* Sorts the keys. Of two equal keys the one with the larger value counts. */
ph_status ph_trie_build(ph_trie *trie, ph_trie_key *keys, size_t count, const ph_io *io);
void ph_trie_free(ph_trie *trie, const ph_io *io);

/* The child of `node` by byte c, or 0. */
static inline uint32_t ph_trie_step(const ph_trie *trie, uint32_t node, unsigned char c)
{
    if (node == 0) return trie->root[c];
    uint32_t low = trie->first[node], high = trie->first[node + 1];
    while (high - low > 8) {
        uint32_t middle = low + (high - low) / 2;
        if (trie->label[middle] <= c)
            low = middle;
        else
            high = middle;
    }
    for (; low < high; low++)
        if (trie->label[low] == c) return low;
    return 0;
}

#endif
