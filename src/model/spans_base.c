/*
 * spans_base.c - the loops for any CPU, and the choice between tables.
 */
#define SPANS ph_spans_base
#include "model/spans_loops.h"

const ph_spans *ph_spans_pick(const char *isa)
{
#if defined(__x86_64__)
    if (!strcmp(isa, "avx512") || !strncmp(isa, "amx", 3)) return &ph_spans_avx512;
    if (!strcmp(isa, "avx2")) return &ph_spans_avx2;
#endif
    (void)isa;
    return &ph_spans_base;
}
