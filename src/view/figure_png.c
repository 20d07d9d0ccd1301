/*
 * figure_png.c - a figure as PNG; see figure.h.
 *
 * One byte per pixel, an index into the palette. Words are drawn with the letters of
 * figure_font.h, which are those of ASCII; a word that holds others is drawn as its
 * number, so figures of Chinese texts are better written as SVG.
 */
#include <string.h>

#include "io/io.h"
#include "view/figure.h"
#include "view/figure_font.h"

/* ---- pixels ---- */

static void png_open(ph_sheet *sheet, int width, int height)
{
    sheet->width = width * PH_PNG_SCALE;
    sheet->height = height * PH_PNG_SCALE;
    size_t bytes = (size_t)sheet->width * (size_t)sheet->height;
    sheet->pixels = ph_io_alloc(sheet->io, bytes);
    if (!sheet->pixels) {
        sheet->out->status = PH_OUT_OF_MEMORY;
        return;
    }
    memset(sheet->pixels, PH_PAPER, bytes);
}

/* Fills a rectangle of pixels, as much of it as is on the sheet. */
static void fill(ph_sheet *sheet, int x, int y, int width, int height, int color)
{
    if (!sheet->pixels) return;
    int right = x + width < sheet->width ? x + width : sheet->width;
    int bottom = y + height < sheet->height ? y + height : sheet->height;
    if (x < 0) x = 0;
    for (int row = y < 0 ? 0 : y; row < bottom; row++)
        if (right > x)
            memset(sheet->pixels + (size_t)row * (size_t)sheet->width + (size_t)x, color,
                   (size_t)(right - x));
}

static void png_box(ph_sheet *sheet, int x, int y, int width, int height, int color)
{
    enum { S = PH_PNG_SCALE };
    fill(sheet, x * S, y * S, width * S, height * S, color);
}

/* One letter whose base line begins at (x, y), in units. */
static void put_letter(ph_sheet *sheet, int x, int y, char letter, int upright, int color)
{
    enum { S = PH_PNG_SCALE, BASE = 7 };
    if (letter < ' ' || letter > '~') letter = '?';
    const unsigned char *dots = font[letter - ' '];
    for (int row = 0; row < 8; row++)
        for (int column = 0; column < 5; column++) {
            if (!(dots[row] >> (4 - column) & 1)) continue;
            if (upright) /* rotated to the left: right is up, up is left */
                fill(sheet, (x - BASE + row) * S, (y - 1 - column) * S, S, S, color);
            else
                fill(sheet, (x + column) * S, (y - BASE + row) * S, S, S, color);
        }
}

static void png_text(ph_sheet *sheet, int x, int y, const char *text, ph_anchor_at anchor,
                     int upright, int color)
{
    size_t length = strlen(text);
    int units = (int)length * PH_LETTER - 1;
    int start = anchor == PH_LEFT ? 0 : anchor == PH_RIGHT ? -units : -units / 2;
    for (size_t n = 0; n < length; n++) {
        int at = start + (int)n * PH_LETTER;
        if (upright)
            put_letter(sheet, x, y - at, text[n], 1, color);
        else
            put_letter(sheet, x + at, y, text[n], 0, color);
    }
}

static void png_map(ph_sheet *sheet, int x, int y, int size, int rows, int columns,
                    const uint8_t *colors)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            png_box(sheet, x + j * size, y + i * size, size, size,
                    colors[i * columns + j]);
}

/* ---- the file ---- */

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

static void put_chunk(ph_sheet *sheet, const char type[4], const void *data, size_t count)
{
    ph_bytes chunk = {.io = sheet->io};
    ph_bytes_add(&chunk, type, 4);
    ph_bytes_add(&chunk, data, count);
    put_big_endian(sheet->out, (uint32_t)count);
    ph_bytes_add(sheet->out, chunk.data, chunk.count);
    if (chunk.status == PH_OK)
        put_big_endian(sheet->out, crc32(chunk.data, chunk.count));
    else
        sheet->out->status = chunk.status;
    ph_bytes_free(&chunk);
}

static void put_header(ph_sheet *sheet)
{
    static const unsigned char format[] = {8, 3, 0, 0, 0}; /* 8 bits, with a palette */
    ph_bytes header = {.io = sheet->io};
    put_big_endian(&header, (uint32_t)sheet->width);
    put_big_endian(&header, (uint32_t)sheet->height);
    ph_bytes_add(&header, format, sizeof format);
    if (header.status == PH_OK)
        put_chunk(sheet, "IHDR", header.data, header.count);
    else
        sheet->out->status = header.status;
    ph_bytes_free(&header);
}

/* Lines of pixels, each with filter type 0 in front, as one zlib stream. */
static void put_pixels(ph_sheet *sheet)
{
    static const unsigned char zlib[] = {0x78, 0x01};
    ph_bytes lines = {.io = sheet->io}, packed = {.io = sheet->io};
    for (int row = 0; row < sheet->height; row++) {
        ph_bytes_zeros(&lines, 1);
        ph_bytes_add(&lines, sheet->pixels + (size_t)row * (size_t)sheet->width,
                     (size_t)sheet->width);
    }
    ph_bytes_add(&packed, zlib, 2);
    ph_bytes_deflate(&packed, lines.data, lines.count);
    if (lines.status == PH_OK) put_big_endian(&packed, adler32(lines.data, lines.count));
    if (lines.status == PH_OK && packed.status == PH_OK)
        put_chunk(sheet, "IDAT", packed.data, packed.count);
    else
        sheet->out->status = PH_OUT_OF_MEMORY;
    ph_bytes_free(&lines);
    ph_bytes_free(&packed);
}

static void png_close(ph_sheet *sheet)
{
    static const unsigned char signature[] = {0x89, 'P',  'N',  'G',
                                              '\r', '\n', 0x1a, '\n'};
    if (sheet->pixels) {
        ph_bytes_add(sheet->out, signature, sizeof signature);
        put_header(sheet);
        put_chunk(sheet, "PLTE", sheet->palette, sizeof sheet->palette);
        put_pixels(sheet);
        put_chunk(sheet, "IEND", "", 0);
    }
    ph_io_release(sheet->io, sheet->pixels);
    sheet->pixels = NULL;
}

ph_sheet ph_sheet_png(ph_bytes *out, const ph_io *io)
{
    return (ph_sheet){.open = png_open,
                      .box = png_box,
                      .text = png_text,
                      .map = png_map,
                      .close = png_close,
                      .ascii = 1,
                      .out = out,
                      .io = io};
}
