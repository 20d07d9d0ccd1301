/*
 * arena.h - carve a workspace, or just measure it.
 *
 * A function that lays out scratch memory is written once and called twice: with a NULL
 * base it only counts, with the real base it hands out pointers. Every piece starts on a
 * cache line.
 */
#ifndef PH_BASE_ARENA_H
#define PH_BASE_ARENA_H

#include "base/base.h"

typedef struct ph_arena {
    char *base;  /* aligned to PH_ALIGN, or NULL: only count */
    size_t used; /* bytes handed out so far, a multiple of PH_ALIGN */
} ph_arena;

static inline void *ph_arena_take(ph_arena *arena, size_t bytes)
{
    void *piece = arena->base ? arena->base + arena->used : NULL;
    arena->used += (bytes + PH_ALIGN - 1) / PH_ALIGN * PH_ALIGN;
    return piece;
}

static inline float *ph_arena_floats(ph_arena *arena, size_t count)
{
    return ph_arena_take(arena, count * sizeof(float));
}

#endif
