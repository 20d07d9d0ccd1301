/*
 * spans_base.c - the loops for any CPU, and the choice between tables.
 */
#define SPANS ph_spans_base
#include "model/spans_loops.h"

const ph_spans *ph_spans_pick(const char *vectors)
{
#if defined(__x86_64__)
    if (!strcmp(vectors, "avx512")) return &ph_spans_avx512;
    if (!strcmp(vectors, "avx2")) return &ph_spans_avx2;
#endif
    (void)vectors;
    return &ph_spans_base;
}
