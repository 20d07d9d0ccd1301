/*
 * row_sums.c - the pass over a row for any CPU, and the choice between instruction sets.
 */
#define ROW_SUMS ph_row_sums_base
#include "base/cpu.h"
#include "heads/row_sums_loops.h"

ph_row_sums_fn *ph_row_sums_pick(unsigned features)
{
#if defined(__x86_64__)
    if (features & PH_CPU_AVX512) return ph_row_sums_avx512;
    if (features & PH_CPU_AVX2) return ph_row_sums_avx2;
#endif
    (void)features;
    return ph_row_sums_base;
}
