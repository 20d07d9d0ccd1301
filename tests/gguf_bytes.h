/*
 * gguf_bytes.h - GGUF files and folders of a test, byte by byte, so that any field can
 * lie.
 */
#ifndef GGUF_BYTES_H
#define GGUF_BYTES_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct gguf_bytes {
    unsigned char bytes[1 << 15];
    size_t used;
} gguf_bytes;

static inline void put_bytes(gguf_bytes *g, const void *bytes, size_t count)
{
    memcpy(g->bytes + g->used, bytes, count);
    g->used += count;
}

static inline void put_number(gguf_bytes *g, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) g->bytes[g->used++] = (unsigned char)(value >> 8 * i);
}

static inline void put_text(gguf_bytes *g, const char *text)
{
    put_number(g, strlen(text), 8);
    put_bytes(g, text, strlen(text));
}

static inline void put_header(gguf_bytes *g, uint64_t tensors, uint64_t pairs)
{
    g->used = 0;
    put_bytes(g, "GGUF", 4);
    put_number(g, 3, 4);
    put_number(g, tensors, 8);
    put_number(g, pairs, 8);
}

static inline void put_tensor(gguf_bytes *g, const char *name, uint64_t inner,
                              uint64_t outer, uint64_t type, uint64_t offset)
{
    put_text(g, name);
    put_number(g, 2, 4);
    put_number(g, inner, 8);
    put_number(g, outer, 8);
    put_number(g, type, 4);
    put_number(g, offset, 8);
}

static inline void put_data(gguf_bytes *g, size_t alignment, size_t count)
{
    while (g->used % alignment) g->bytes[g->used++] = 0;
    for (size_t i = 0; i < count; i++) g->bytes[g->used++] = (unsigned char)i;
}

#endif
