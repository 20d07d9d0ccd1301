/*
 * token_table.h - the tokens of a vocabulary: id to text and text to id.
 *
 * Ids come from files: they may have holes and stand in any order.
 */
#ifndef PH_TEXT_TOKEN_TABLE_H
#define PH_TEXT_TOKEN_TABLE_H

#include "io/io.h"

enum { PH_TOKEN_NONE = -1, PH_TOKEN_MAX_ID = (1 << 22) - 1 };

typedef struct ph_token_entry {
    uint32_t at, length;               /* of its text in the pool */
    uint32_t added;                    /* index of the added token plus 1; 0: none */
    unsigned char used, special, byte; /* byte: <0x0A>, which no text spells */
    unsigned char outside;             /* 1: added; no token of the model */
} ph_token_entry;

typedef struct ph_token_table {
    const ph_io *io;
    ph_token_entry *entries; /* by id */
    size_t count, entry_capacity;
    char *pool; /* texts, each with a NUL behind it */
    size_t pool_length, pool_capacity;
    uint64_t seed;           /* of the hash: a file cannot choose texts that collide */
    int32_t *slots;          /* open addressing; PH_TOKEN_NONE is free */
    size_t slot_count, used; /* slot_count: more than used, or 0 */
} ph_token_table;

void ph_token_table_free(ph_token_table *table);

/* Makes place for this many tokens at once, which is faster. */
ph_status ph_token_table_expect(ph_token_table *table, size_t count);

/* Adds a token. A text that is there already keeps its entry and gains a second id; its
   text then leads to the last one. PH_BAD_FILE: the id is too large or taken. */
ph_status ph_token_table_add(ph_token_table *table, size_t id, const char *text,
                             size_t length);

int32_t ph_token_table_find(const ph_token_table *table, const char *text, size_t length);

static inline const char *ph_token_text(const ph_token_table *table, int32_t id)
{
    return table->pool + table->entries[id].at;
}

static inline int ph_token_known(const ph_token_table *table, int64_t id)
{
    return id >= 0 && (size_t)id < table->count && table->entries[id].used;
}

#endif
