/*
 * token_table.c - tokens by id and by text; see token_table.h.
 */
#include "text/token_table.h"

#include <string.h>

#include "base/base.h"
#include "base/hash.h"

void ph_token_table_free(ph_token_table *table)
{
    ph_io_release(table->io, table->entries);
    ph_io_release(table->io, table->pool);
    ph_io_release(table->io, table->slots);
    table->entries = NULL;
    table->pool = NULL;
    table->slots = NULL;
}

/* The slot of a text: its own, or the free one where it belongs. */
static size_t find_slot(const ph_token_table *table, const char *text, size_t length)
{
    uint64_t hash = ph_hash_bytes(table->seed, text, length) >> 32;
    size_t slot = (size_t)(hash * table->slot_count >> 32);
    while (table->slots[slot] != PH_TOKEN_NONE) {
        const ph_token_entry *e = &table->entries[table->slots[slot]];
        if (e->length == length && !memcmp(table->pool + e->at, text, length)) break;
        slot = slot + 1 < table->slot_count ? slot + 1 : 0;
    }
    return slot;
}

/* A table of `count` slots; a third of them stays free. */
static ph_status grow_slots(ph_token_table *table, size_t count)
{
    int32_t *old = table->slots, *slots;
    size_t old_count = table->slot_count;
    slots = ph_io_alloc(table->io, count * sizeof *slots);
    if (!slots) return ph_io_no_memory(table->io, count * sizeof *slots, "a vocabulary");
    for (size_t i = 0; i < count; i++) slots[i] = PH_TOKEN_NONE;
    table->slots = slots;
    table->slot_count = count;
    for (size_t i = 0; i < old_count; i++) {
        if (old[i] == PH_TOKEN_NONE) continue;
        const ph_token_entry *e = &table->entries[old[i]];
        slots[find_slot(table, table->pool + e->at, e->length)] = old[i];
    }
    ph_io_release(table->io, old);
    return PH_OK;
}

static ph_status reserve(ph_token_table *table, size_t id, size_t length)
{
    void *entries = table->entries, *pool = table->pool;
    ph_status status = ph_io_grow(table->io, &entries, &table->entry_capacity, id + 1,
                                  sizeof(ph_token_entry));
    table->entries = entries;
    if (status == PH_OK)
        status = ph_io_grow(table->io, &pool, &table->pool_capacity,
                            table->pool_length + length + 1, 1);
    table->pool = pool;
    if (status == PH_OK && 3 * (table->used + 1) > 2 * table->slot_count)
        status = grow_slots(table, table->slot_count ? 2 * table->slot_count : 1024);
    return status;
}

ph_status ph_token_table_expect(ph_token_table *table, size_t count)
{
    if (count == 0 || count > PH_TOKEN_MAX_ID) return PH_OK;
    size_t slots = count + count / 2 + 16;
    if (slots > table->slot_count) PH_TRY(grow_slots(table, slots));
    return reserve(table, count - 1, 8 * count);
}

ph_status ph_token_table_add(ph_token_table *table, size_t id, const char *text,
                             size_t length)
{
    if (id > PH_TOKEN_MAX_ID)
        return ph_io_fail(table->io, PH_BAD_FILE,
                          "the token %s has id %zu, expected at most %d",
                          ph_io_quote(text, length).text, id, PH_TOKEN_MAX_ID);
    if (ph_token_known(table, (int64_t)id))
        return ph_io_fail(table->io, PH_BAD_FILE, "two tokens have id %zu", id);
    if (table->pool_length + length >= UINT32_MAX)
        return ph_io_fail(table->io, PH_BAD_FILE, "the texts of all tokens exceed 4 GB");
    PH_TRY(reserve(table, id, length));
    for (; table->count <= id; table->count++)
        table->entries[table->count] = (ph_token_entry){0};
    size_t slot = find_slot(table, text, length);
    if (table->slots[slot] == PH_TOKEN_NONE) table->used++;
    table->slots[slot] = (int32_t)id;
    table->entries[id] = (ph_token_entry){
        .at = (uint32_t)table->pool_length, .length = (uint32_t)length, .used = 1};
    memcpy(table->pool + table->pool_length, text, length);
    table->pool[table->pool_length + length] = 0;
    table->pool_length += length + 1;
    return PH_OK;
}

int32_t ph_token_table_find(const ph_token_table *table, const char *text, size_t length)
{
    return table->slot_count ? table->slots[find_slot(table, text, length)]
                             : PH_TOKEN_NONE;
}
