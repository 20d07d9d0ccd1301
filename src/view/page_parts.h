/*
 * page_parts.h - what the two halves of packing share: the offsets of the arrays of a
 * page.
 */
#ifndef PH_VIEW_PAGE_PARTS_H
#define PH_VIEW_PAGE_PARTS_H

#include "view/page.h"

/* Offsets of one head's arrays in the byte string; -1: left out. */
typedef struct ph_page_place {
    int64_t map, thumb, vectors;
} ph_page_place;

typedef struct ph_page_parts {
    const ph_page_source *source;
    ph_page_plan plan;
    ph_bytes *blob;
    ph_page_place *places[PH_PAGE_REPORTS]; /* (all heads of all stacks) */
    int64_t *norms[PH_PAGE_REPORTS];        /* (stacks) */
} ph_page_parts;

/* The entry of a head; stacks are consecutive. */
static inline ph_page_place *ph_page_place_of(const ph_page_parts *parts, int r, int s,
                                              int layer, int head)
{
    const ph_stack *stacks = parts->source->reports[r]->stacks;
    ph_page_place *place = parts->places[r];
    for (int i = 0; i < s; i++) place += stacks[i].layers * stacks[i].heads;
    return place + layer * stacks[s].heads + head;
}

ph_status ph_page_pack_arrays(ph_page_parts *parts);

/* The description of everything, as JSON that may be inside a script element. */
void ph_page_describe(const ph_page_parts *parts, ph_bytes *json);

#endif
