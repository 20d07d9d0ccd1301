/*
 * json_tree.h - a whole JSON document in memory, for files whose keys come in any order.
 */
#ifndef PH_TEXT_JSON_TREE_H
#define PH_TEXT_JSON_TREE_H

#include "io/json_read.h"

typedef struct ph_json_node {
    ph_json_token kind; /* the token that begins it */
    uint32_t length, key_length;
    const char *text; /* of a string or number; ends with NUL if it is a string */
    const char *key;  /* NULL in an array */
    uint32_t first;   /* index of its first member; 0: none */
    uint32_t next;    /* of the one behind it; 0: none */
    uint32_t members;
} ph_json_node;

typedef struct ph_json_tree {
    const ph_io *io;
    ph_json_node *nodes; /* nodes[0] is the document */
    size_t count, capacity;
} ph_json_tree;

/* The text is changed and must live as long as the tree. On failure the sentence names
   the file. */
ph_status ph_json_tree_read(ph_json_tree *tree, const char *name, char *text,
                            size_t length, const ph_io *io);
void ph_json_tree_free(ph_json_tree *tree);

/* The member of an object by key, or NULL; NULL is an object without members. */
const ph_json_node *ph_json_get(const ph_json_tree *tree, const ph_json_node *object,
                                const char *key);

/* First member, and the next one after it; NULL behind the last. */
const ph_json_node *ph_json_first(const ph_json_tree *tree, const ph_json_node *node);
const ph_json_node *ph_json_after(const ph_json_tree *tree, const ph_json_node *node);

/* Is it there and not null? Is it this string? Whole numbers: 0, or -1. */
int ph_json_is_set(const ph_json_node *node);
int ph_json_equals(const ph_json_node *node, const char *text);
int ph_json_node_size(const ph_json_node *node, size_t *out);
int ph_json_node_double(const ph_json_node *node, double *out);

#endif
