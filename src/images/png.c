/*
 * png.c - PNG without interlacing: 1 to 16 bits; grey, RGB, palette, alpha.
 *
 * Checksums are compared last, so that hostile files meet every other check.
 */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "images/image.h"

enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGB_ALPHA = 6 };

typedef struct png {
    const char *name;
    const ph_io *io;
    const uint8_t *bytes; /* the whole file */
    size_t size;
    size_t width, height;
    int depth, kind;
    size_t row;             /* bytes of a row, without its filter */
    int pixel;              /* bytes of a whole pixel, at least 1: the step of filters */
    uint8_t palette[256 * 3]; /* black where it is too short for a pixel */
    size_t palette_size;      /* bytes; 0: none so far */
    uint8_t *packed;          /* IDAT chunks in a row */
    size_t packed_size;
    uint8_t *raw; /* (height, 1 + row) */
} png;

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static ph_status bad(const png *p, const char *what)
{
    return ph_io_fail(p->io, PH_BAD_FILE, "%.200s: the PNG file %s", p->name, what);
}

/* ---- chunks ------------------------------------------------------------------------ */

typedef struct chunk {
    const uint8_t *type, *data; /* 4 bytes; `size` bytes, then 4 of checksum */
    size_t size;
} chunk;

/* The chunk at *at; 0: it does not lie within the file. */
static int next_chunk(const png *p, size_t *at, chunk *out)
{
    if (p->size - *at < 12) return 0;
    *out = (chunk){p->bytes + *at + 4, p->bytes + *at + 8, big_endian(p->bytes + *at)};
    if (out->size > p->size - *at - 12) return 0;
    *at += out->size + 12;
    return 1;
}

static int is_type(const chunk *c, const char *type)
{
    return !memcmp(c->type, type, 4);
}

static uint32_t checksum(const uint8_t *data, size_t count)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < count; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (0xedb88320 & (0 - (crc & 1)));
    }
    return ~crc;
}

static ph_status check_sums(const png *p)
{
    chunk c;
    for (size_t at = 8; next_chunk(p, &at, &c) && !is_type(&c, "IEND");)
        if (checksum(c.type, c.size + 4) != big_endian(c.data + c.size))
            return bad(p, "is damaged: a checksum differs");
    return PH_OK;
}

/* ---- header ------------------------------------------------------------------------ */

static int samples_of(int kind)
{
    return kind == RGB ? 3 : kind == GREY_ALPHA ? 2 : kind == RGB_ALPHA ? 4 : 1;
}

static int depth_allowed(int kind, int depth)
{
    if (kind == GREY || kind == PALETTE)
        if (depth == 1 || depth == 2 || depth == 4) return 1;
    if (kind > 6 || kind == 1 || kind == 5) return 0;
    return depth == 8 || (depth == 16 && kind != PALETTE);
}

static ph_status read_header(png *p, const chunk *c)
{
    if (!is_type(c, "IHDR") || c->size != 13) return bad(p, "does not begin with IHDR");
    p->width = big_endian(c->data), p->height = big_endian(c->data + 4);
    p->depth = c->data[8], p->kind = c->data[9];
    if (!depth_allowed(p->kind, p->depth) || c->data[10] || c->data[11])
        return bad(p, "has an unknown colour type, depth, compression or filter");
    if (c->data[12])
        return ph_io_fail(p->io, PH_UNSUPPORTED,
                          "%.200s is interlaced, expected a PNG file without: save it "
                          "again, with 'magick in.png -interlace none out.png' for "
                          "instance",
                          p->name);
    PH_TRY(ph_image_check(p->name, p->width, p->height, p->io));
    size_t bits = p->width * (size_t)(samples_of(p->kind) * p->depth);
    p->row = (bits + 7) / 8;
    p->pixel = samples_of(p->kind) * p->depth / 8;
    if (p->pixel < 1) p->pixel = 1;
    return PH_OK;
}

/* RGB may have one too, as a hint. */
static ph_status read_palette(png *p, const chunk *c)
{
    if (p->kind != PALETTE) return PH_OK;
    if (!c->size || c->size % 3 || c->size > sizeof p->palette)
        return bad(p, "has a palette that is not 3 bytes for each of 1 to 256 colours");
    memcpy(p->palette, c->data, c->size);
    p->palette_size = c->size;
    return PH_OK;
}

static ph_status read_chunks(png *p)
{
    size_t at = 8;
    chunk c;
    if (!next_chunk(p, &at, &c)) return bad(p, "ends within its header");
    PH_TRY(read_header(p, &c));
    p->packed = ph_io_alloc(p->io, p->size);
    if (!p->packed) return ph_io_no_memory(p->io, p->size, "a picture");
    while (next_chunk(p, &at, &c) && !is_type(&c, "IEND")) {
        if (is_type(&c, "PLTE")) PH_TRY(read_palette(p, &c));
        if (!is_type(&c, "IDAT")) continue;
        if (p->kind == PALETTE && !p->palette_size)
            return bad(p, "has no palette (PLTE) before its data");
        memcpy(p->packed + p->packed_size, c.data, c.size);
        p->packed_size += c.size;
    }
    return PH_OK;
}

/* ---- filters ----------------------------------------------------------------------- */

static int paeth(int left, int up, int corner)
{
    int guess = left + up - corner;
    int by_left = abs(guess - left), by_up = abs(guess - up);
    int by_corner = abs(guess - corner);
    if (by_left <= by_up && by_left <= by_corner) return left;
    return by_up <= by_corner ? up : corner;
}

/* Rows are differences from their neighbours; above is NULL for the first. */
static int unfilter_row(const png *p, int filter, uint8_t *row, const uint8_t *above)
{
    size_t pixel = (size_t)p->pixel;
    for (size_t i = 0; i < p->row && filter; i++) {
        int left = i >= pixel ? row[i - pixel] : 0, up = above ? above[i] : 0;
        int corner = above && i >= pixel ? above[i - pixel] : 0;
        row[i] = (uint8_t)(row[i] + (filter == 1   ? left
                                     : filter == 2 ? up
                                     : filter == 3 ? (left + up) / 2
                                                   : paeth(left, up, corner)));
    }
    return filter > 4 ? -1 : 0;
}

static ph_status unpack(png *p)
{
    size_t count = p->height * (1 + p->row);
    /* Deflate shrinks at most 1032-fold: a small file cannot ask for much memory. */
    if (count / 1032 > p->packed_size) return bad(p, "has too little data for its size");
    p->raw = ph_io_alloc(p->io, count);
    if (!p->raw) return ph_io_no_memory(p->io, count, "a picture");
    if (ph_inflate(p->packed, p->packed_size, p->raw, count))
        return bad(p, "has malformed or too little compressed data");
    for (size_t y = 0; y < p->height; y++) {
        uint8_t *row = p->raw + y * (1 + p->row);
        const uint8_t *above = y ? row - p->row : NULL;
        if (unfilter_row(p, row[0], row + 1, above))
            return bad(p, "has an unknown filter");
    }
    return PH_OK;
}

/* ---- pixels ------------------------------------------------------------------------ */

/* Sample i of a row: its upper 8 bits, or below 8 bits the number itself. */
static int sample_at(const png *p, const uint8_t *row, size_t i)
{
    if (p->depth >= 8) return row[i * (size_t)(p->depth / 8)];
    size_t bit = i * (size_t)p->depth;
    return row[bit / 8] >> (8 - p->depth - (int)(bit % 8)) & ((1 << p->depth) - 1);
}

static void store_pixel(const png *p, const uint8_t *row, size_t x, uint8_t *to)
{
    size_t at = x * (size_t)samples_of(p->kind);
    int first = sample_at(p, row, at), colours = p->kind == RGB || p->kind == RGB_ALPHA;
    if (p->kind == PALETTE) {
        memcpy(to, p->palette + 3 * first, 3);
        return;
    }
    if (p->depth < 8) first = first * 255 / ((1 << p->depth) - 1);
    to[0] = (uint8_t)first;
    to[1] = colours ? (uint8_t)sample_at(p, row, at + 1) : (uint8_t)first;
    to[2] = colours ? (uint8_t)sample_at(p, row, at + 2) : (uint8_t)first;
}

static ph_status read_pixels(png *p, ph_image *out)
{
    PH_TRY(read_chunks(p));
    PH_TRY(unpack(p));
    PH_TRY(ph_image_create(out, p->name, p->width, p->height, p->io));
    for (size_t y = 0; y < p->height; y++)
        for (size_t x = 0; x < p->width; x++)
            store_pixel(p, p->raw + y * (1 + p->row) + 1, x,
                        out->rgb + 3 * (y * p->width + x));
    return check_sums(p);
}

ph_status ph_png_read(ph_image *out, const char *name, const uint8_t *bytes, size_t size,
                      const ph_io *io)
{
    png p = {.name = name, .io = io, .bytes = bytes, .size = size};
    ph_status status = read_pixels(&p, out);
    if (p.packed) ph_io_release(io, p.packed);
    if (p.raw) ph_io_release(io, p.raw);
    return status;
}
