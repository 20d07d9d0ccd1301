/*
 * absent.h - heads that were removed from a model: they leave their cells in the grid, so
 * that the others keep their names.
 */
#ifndef PH_VIEW_ABSENT_H
#define PH_VIEW_ABSENT_H

#include "polyhead_model.h"
#include "polyhead_view.h"

/* The index of a head in the reading; -1: it was removed, or (NULL) its whole site. */
int ph_absent_head(const ph_site *site, int head);

/* Marks the heads of a stack that are gone in *absent, (layers, heads), which is taken
   from io and which the stack has then. */
ph_status ph_absent_mark(const ph_reading *reading, const int *sites, uint8_t **absent,
                         const ph_io *io, ph_stack *stack);

#endif
