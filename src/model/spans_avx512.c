/*
 * spans_avx512.c - the loops for AVX-512.
 */
#include <math.h>
#include <string.h>

#include "model/spans.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(                                                            \
    __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw")
#endif

#define SPANS ph_spans_avx512
#include "model/spans_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
