/*
 * bytes.h - a growing byte string, and what embeds it in a page: deflate, base64, and the
 * SHA-256 digest that names a script in the content security policy.
 *
 * The first failure is sticky: later calls do nothing, and the status is checked once, at
 * the end.
 */
#ifndef PH_VIEW_BYTES_H
#define PH_VIEW_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "polyhead_io.h"

typedef struct ph_bytes {
    const ph_io *io; /* allocator */
    unsigned char *data;
    size_t count, capacity;
    ph_status status; /* PH_OK or PH_OUT_OF_MEMORY */
} ph_bytes;

void ph_bytes_add(ph_bytes *bytes, const void *data, size_t count);
void ph_bytes_write(void *bytes, const char *data, size_t count); /* for ph_json_writer */
void ph_bytes_text(ph_bytes *bytes, const char *text);
void ph_bytes_zeros(ph_bytes *bytes, size_t count);
void ph_bytes_base64(ph_bytes *bytes, const void *data, size_t count);
void ph_bytes_free(ph_bytes *bytes);

/* Little-endian, whatever the machine. */
void ph_bytes_u16(ph_bytes *bytes, uint32_t value);
void ph_bytes_u32(ph_bytes *bytes, uint32_t value);
void ph_bytes_float(ph_bytes *bytes, float value);

/* Appends the data as one raw deflate stream (RFC 1951). */
void ph_bytes_deflate(ph_bytes *bytes, const void *data, size_t count);

/* The digest of FIPS 180-4. */
void ph_sha256(const void *data, size_t count, unsigned char digest[32]);

#endif
