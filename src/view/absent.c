/*
 * absent.c - see absent.h.
 */
#include "view/absent.h"

#include "io/io.h"

int ph_absent_head(const ph_site *site, int head)
{
    if (!site || !site->original) return site ? head : -1;
    for (int h = 0; h < site->heads; h++)
        if (site->original[h] == head) return h;
    return -1;
}

ph_status ph_absent_mark(const ph_reading *reading, const int *sites, uint8_t **absent,
                         const ph_io *io, ph_stack *stack)
{
    uint8_t *to = ph_io_alloc(io, (size_t)stack->layers * (size_t)stack->heads);
    stack->absent = *absent = to;
    if (!to) return PH_OUT_OF_MEMORY;
    for (int l = 0; l < stack->layers; l++) {
        const ph_site *site = ph_reading_site(reading, sites[l]);
        for (int h = 0; h < stack->heads; h++) *to++ = ph_absent_head(site, h) < 0;
    }
    return PH_OK;
}
