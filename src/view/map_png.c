/*
 * map_png.c - a map as PNG with a palette, for figures of many heads; see figure.h.
 */
#include "view/figure.h"

static void put_big_endian(ph_bytes *bytes, uint32_t value)
{
    const unsigned char four[] = {(unsigned char)(value >> 24),
                                  (unsigned char)(value >> 16),
                                  (unsigned char)(value >> 8), (unsigned char)value};
    ph_bytes_add(bytes, four, 4);
}

/* CRC-32, the checksum of PNG. */
static uint32_t crc32(const unsigned char *data, size_t count)
{
    uint32_t crc = 0xffffffffu;
    for (size_t n = 0; n < count; n++) {
        crc ^= data[n];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

/* The checksum of zlib. */
static uint32_t adler32(const unsigned char *data, size_t count)
{
    uint32_t a = 1, b = 0;
    for (size_t n = 0; n < count; n++) {
        a = (a + data[n]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

static void put_chunk(ph_bytes *out, const char type[4], const void *data, size_t count)
{
    ph_bytes chunk = {.io = out->io};
    ph_bytes_add(&chunk, type, 4);
    ph_bytes_add(&chunk, data, count);
    put_big_endian(out, (uint32_t)count);
    ph_bytes_add(out, chunk.data, chunk.count);
    if (chunk.status == PH_OK)
        put_big_endian(out, crc32(chunk.data, chunk.count));
    else
        out->status = chunk.status;
    ph_bytes_free(&chunk);
}

static void put_header(ph_bytes *out, int width, int height)
{
    static const unsigned char format[] = {8, 3, 0, 0, 0}; /* 8 bits, with a palette */
    ph_bytes header = {.io = out->io};
    put_big_endian(&header, (uint32_t)width);
    put_big_endian(&header, (uint32_t)height);
    ph_bytes_add(&header, format, sizeof format);
    if (header.status == PH_OK)
        put_chunk(out, "IHDR", header.data, header.count);
    else
        out->status = header.status;
    ph_bytes_free(&header);
}

/* Lines of pixels, each with filter type 0 in front, as one zlib stream. */
static void put_pixels(ph_bytes *out, const uint8_t *pixels, int width, int height)
{
    static const unsigned char zlib[] = {0x78, 0x01};
    ph_bytes lines = {.io = out->io}, packed = {.io = out->io};
    for (int row = 0; row < height; row++) {
        ph_bytes_zeros(&lines, 1);
        ph_bytes_add(&lines, pixels + (size_t)row * (size_t)width, (size_t)width);
    }
    ph_bytes_add(&packed, zlib, 2);
    ph_bytes_deflate(&packed, lines.data, lines.count);
    if (lines.status == PH_OK) put_big_endian(&packed, adler32(lines.data, lines.count));
    if (lines.status == PH_OK && packed.status == PH_OK)
        put_chunk(out, "IDAT", packed.data, packed.count);
    else
        out->status = PH_OUT_OF_MEMORY;
    ph_bytes_free(&lines);
    ph_bytes_free(&packed);
}

void ph_map_png(ph_bytes *out, const uint8_t *pixels, int width, int height,
                const unsigned char palette[PH_PALETTE][3])
{
    static const unsigned char signature[] = {0x89, 'P',  'N',  'G',
                                              '\r', '\n', 0x1a, '\n'};
    ph_bytes_add(out, signature, sizeof signature);
    put_header(out, width, height);
    put_chunk(out, "PLTE", palette, (size_t)PH_PALETTE * 3);
    put_pixels(out, pixels, width, height);
    put_chunk(out, "IEND", "", 0);
}
