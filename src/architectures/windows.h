/*
 * windows.h - which layers see through a window, and which rotate.
 */
#ifndef PH_ARCHITECTURES_WINDOWS_H
#define PH_ARCHITECTURES_WINDOWS_H

#include <string.h>

#include "polyhead_model.h"

static inline int ph_config_windowed(const ph_config *c, int layer)
{
    size_t pattern = strlen(c->window_layers);
    if (!c->window) return 0;
    if (pattern) return c->window_layers[(size_t)layer % pattern] == 's';
    int whole = c->window_period && (layer + 1) % c->window_period == 0;
    return layer >= c->window_from && !whole;
}

/* Whether layers have rotary positions. */
static inline int ph_config_rotates(const ph_config *c, int layer)
{
    size_t pattern = strlen(c->rope_layers);
    if (c->positions != PH_POS_ROPE) return 0;
    return !pattern || c->rope_layers[(size_t)layer % pattern] == 'r';
}

#endif
