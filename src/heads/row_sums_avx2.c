/*
 * row_sums_avx2.c - the pass over a row for AVX2.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "heads/row_sums.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define ROW_SUMS ph_row_sums_avx2
#include "heads/row_sums_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
