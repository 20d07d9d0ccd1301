/*
 * row_sums_avx512.c - the pass over a row for AVX-512.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "heads/row_sums.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(                                                            \
    __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw")
#endif

#define ROW_SUMS ph_row_sums_avx512
#include "heads/row_sums_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
