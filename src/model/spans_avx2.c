/*
 * spans_avx2.c - the loops for AVX2.
 */
#include <math.h>
#include <string.h>

#include "model/spans.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define SPANS ph_spans_avx2
#include "model/spans_loops.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
