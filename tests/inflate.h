/*
 * inflate.h - a deflate decoder (RFC 1951) for tests: slow, short, written from the
 * document and not from the encoder it judges.
 */
#ifndef INFLATE_H
#define INFLATE_H

#include <stddef.h>

/* Decodes a raw stream into out, which holds capacity bytes. Returns the number of bytes,
   or -1 if the stream is malformed, too long, or followed by anything. */
long inflate_raw(const unsigned char *in, size_t size, unsigned char *out,
                 size_t capacity);

#endif
