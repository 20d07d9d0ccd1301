/*
 * overlap.h - do the tensors of a call overlap in memory?
 *
 * Exact for strided tensors: those of q, k and v may lie side by side in one buffer, row
 * by row, without sharing an element.
 */
#ifndef PH_BASE_OVERLAP_H
#define PH_BASE_OVERLAP_H

#include "base/ctx.h"

enum { PH_SPANS_MAX = 128, PH_SPAN_AXES = 3 };

/* Runs of `run` bytes at every combination of indices. */
typedef struct ph_mem_range {
    const char *prefix, *name; /* "d" and "q" of dq */
    const char *base;
    int written; /* 0: the call only reads it */
    int axes;
    int64_t count[PH_SPAN_AXES], step[PH_SPAN_AXES]; /* step in bytes, largest first */
    int64_t run;
} ph_mem_range;

typedef struct ph_mem_ranges {
    int count;
    ph_mem_range span[PH_SPANS_MAX];
} ph_mem_ranges;

enum { PH_READ = 0, PH_WRITTEN = 1 };

/* A tensor that is NULL or empty adds nothing. */
void ph_mem_ranges_add(ph_mem_ranges *s, const char *prefix, const char *name,
                       const void *base, size_t bytes, int written);
void ph_spans_add_rows(ph_mem_ranges *s, const char *name, const void *base,
                       ph_dtype type, const int sizes[4], const ph_strides *strides,
                       int written);

/* Refuses an output that shares a byte with any other tensor. */
ph_status ph_mem_ranges_check(const ph_mem_ranges *s, ph_ctx *ctx);

#endif
