/*
 * arena.h - carve a workspace, or just measure it.
 *
 * A function that lays out scratch memory is written once and called twice: with an empty
 * arena it only counts, with a real one it hands out pointers. Every piece starts on a
 * cache line. An arena knows its end: a piece beyond it is a bug of the measuring code,
 * and the process stops before anything is overwritten.
 */
#ifndef PH_BASE_ARENA_H
#define PH_BASE_ARENA_H

#include "base/base.h"

/* Memory of a known size, aligned to PH_ALIGN. */
typedef struct ph_workspace {
    void *data;
    size_t size; /* bytes */
} ph_workspace;

typedef struct ph_arena {
    char *base;  /* NULL: only count */
    size_t used; /* bytes handed out so far, a multiple of PH_ALIGN */
    size_t size; /* bytes at base */
} ph_arena;

static inline ph_arena ph_arena_of(void *data, size_t size)
{
    return (ph_arena){.base = data, .size = size};
}

static inline void *ph_arena_take(ph_arena *arena, size_t bytes)
{
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used += (bytes + PH_ALIGN - 1) / PH_ALIGN * PH_ALIGN;
    if (arena->base && arena->used > arena->size) __builtin_trap();
    return piece;
}

static inline float *ph_arena_floats(ph_arena *arena, size_t count)
{
    return ph_arena_take(arena, count * sizeof(float));
}

#endif
