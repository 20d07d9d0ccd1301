/*
 * png_write.c - pixels as a PNG file: RGB or a palette, 8 bits, no filter.
 */
#include "io/file.h"
#include "io/io.h"
#include "polyhead_picture.h"
#include "view/png_write.h"

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

static void put_header(ph_bytes *out, const ph_png *png)
{
    static const unsigned char rgb[] = {8, 2, 0, 0, 0}, palette[] = {8, 3, 0, 0, 0};
    ph_bytes header = {.io = out->io};
    put_big_endian(&header, (uint32_t)png->width);
    put_big_endian(&header, (uint32_t)png->height);
    ph_bytes_add(&header, png->colors ? palette : rgb, sizeof rgb);
    if (header.status == PH_OK)
        put_chunk(out, "IHDR", header.data, header.count);
    else
        out->status = header.status;
    ph_bytes_free(&header);
}

/* Lines of pixels, each with filter type 0 in front, as one zlib stream. */
static void put_pixels(ph_bytes *out, const ph_png *png)
{
    static const unsigned char zlib[] = {0x78, 0x01};
    size_t line = (png->colors ? 1 : 3) * (size_t)png->width;
    ph_bytes lines = {.io = out->io}, packed = {.io = out->io};
    for (size_t row = 0; row < (size_t)png->height; row++) {
        ph_bytes_zeros(&lines, 1);
        ph_bytes_add(&lines, png->pixels + row * line, line);
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

void ph_png_write(ph_bytes *out, const ph_png *png)
{
    static const unsigned char signature[] = {0x89, 'P',  'N',  'G',
                                              '\r', '\n', 0x1a, '\n'};
    ph_bytes_add(out, signature, sizeof signature);
    put_header(out, png);
    if (png->colors) put_chunk(out, "PLTE", png->palette, 3 * (size_t)png->colors);
    put_pixels(out, png);
    put_chunk(out, "IEND", "", 0);
}

ph_status ph_picture_write(const char *path, const uint8_t *rgb, int width, int height,
                           const ph_io *io)
{
    enum { MOST = 1 << 14 };
    ph_bytes bytes = {.io = io};
    ph_png png = {.width = width, .height = height, .pixels = rgb};
    if (!path || !rgb) return ph_io_null(io, "path or rgb");
    if (width < 1 || height < 1 || width > MOST || height > MOST)
        return ph_io_fail(io, PH_BAD_ARGUMENT,
                          "a picture of %d x %d pixels, expected 1 to %d of a side",
                          width, height, MOST);
    ph_png_write(&bytes, &png);
    ph_status status = bytes.status == PH_OK
                           ? ph_output_save(path, bytes.data, bytes.count, io)
                           : ph_io_no_memory(io, bytes.count, "a picture");
    ph_bytes_free(&bytes);
    return status;
}
