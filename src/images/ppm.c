/*
 * ppm.c - PPM: P6 (bytes) and P3 (decimal), up to 16 bits a sample.
 */
#include <string.h>

#include "base/base.h"
#include "images/image.h"

typedef struct ppm_reader {
    const uint8_t *at, *end;
} ppm_reader;

static int is_blank(int c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The next decimal, behind blanks and comments; -1: there is none up to `max`. */
static long next_number(ppm_reader *r, long max)
{
    long value = 0;
    while (r->at < r->end && (is_blank(*r->at) || *r->at == '#'))
        if (*r->at++ == '#')
            while (r->at < r->end && *r->at != '\n') r->at++;
    const uint8_t *first = r->at;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        value = value * 10 + (*r->at - '0');
        if (value > max) return -1;
    }
    return r->at > first ? value : -1;
}

/* Rounded to 8 bits. */
static uint8_t to_byte(long value, long max)
{
    return (uint8_t)((value * 255 + max / 2) / max);
}

static int read_binary(ppm_reader *r, uint8_t *to, size_t count, long max)
{
    for (size_t i = 0; i < count; i++) {
        long value = *r->at++;
        if (max > 255) value = value << 8 | *r->at++;
        if (value > max) return -1;
        to[i] = to_byte(value, max);
    }
    return 0;
}

static int read_decimal(ppm_reader *r, uint8_t *to, size_t count, long max)
{
    for (size_t i = 0; i < count; i++) {
        long value = next_number(r, max);
        if (value < 0) return -1;
        to[i] = to_byte(value, max);
    }
    return 0;
}

ph_status ph_ppm_read(ph_image *out, const char *name, const uint8_t *bytes, size_t size,
                      const ph_io *io)
{
    ppm_reader r = {bytes + 2, bytes + size};
    int binary = bytes[1] == '6';
    long width = next_number(&r, PH_IMAGE_SIDE), height = next_number(&r, PH_IMAGE_SIDE);
    long max = next_number(&r, 65535);
    if (width < 1 || height < 1 || max < 1 || r.at == r.end || !is_blank(*r.at++))
        return ph_io_fail(io, PH_BAD_FILE,
                          "%.200s: the header of the PPM file is malformed, expected "
                          "width and height up to %d and a maximum up to 65535",
                          name, PH_IMAGE_SIDE);
    /* Both sides are at most 2^15. A decimal needs a digit and, but for the last, a
       blank. */
    size_t count = (size_t)width * (size_t)height * 3, left = (size_t)(r.end - r.at);
    size_t need = binary ? count * (max > 255 ? 2 : 1) : 2 * count - 1;
    if (left < need)
        return ph_io_fail(io, PH_BAD_FILE,
                          "%.200s: %zu bytes of pixels, expected at least %zu", name,
                          left, need);
    PH_TRY(ph_image_create(out, name, (size_t)width, (size_t)height, io));
    if (!(binary ? read_binary : read_decimal)(&r, out->rgb, count, max)) return PH_OK;
    return ph_io_fail(io, PH_BAD_FILE, "%.200s: a sample is no number from 0 to %ld",
                      name, max);
}
