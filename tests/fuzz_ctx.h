/* fuzz_ctx.h - a ctx whose memory is counted, for readers that make models. */
#ifndef FUZZ_CTX_H
#define FUZZ_CTX_H

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "polyhead.h"

enum { FRONT = 64 }; /* keeps the size of a block and its alignment */

static size_t in_use, most;

static inline void *counted_alloc(void *user, size_t bytes)
{
    (void)user;
    char *block = bytes < (size_t)1 << 30
                      ? aligned_alloc(FRONT, (bytes / FRONT + 2) * FRONT)
                      : NULL;
    if (!block) return NULL;
    memcpy(block, &bytes, sizeof bytes);
    in_use += bytes;
    most = in_use > most ? in_use : most;
    return block + FRONT;
}

static inline void counted_release(void *user, void *ptr)
{
    size_t bytes;
    (void)user;
    if (!ptr) return;
    memcpy(&bytes, (char *)ptr - FRONT, sizeof bytes);
    in_use -= bytes;
    free((char *)ptr - FRONT);
}

static inline ph_ctx *open_ctx(void)
{
    static ph_ctx *ctx;
    ph_options options = {
        .threads = 1, .alloc = counted_alloc, .release = counted_release};
    if (!ctx) REQUIRE(ph_open(&ctx, &options) == PH_OK);
    return ctx;
}

#endif
