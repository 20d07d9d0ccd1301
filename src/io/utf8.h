/*
 * utf8.h - one character of UTF-8 at a time, strict: no overlong form, no surrogate,
 * nothing above U+10FFFF.
 */
#ifndef PH_IO_UTF8_H
#define PH_IO_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the byte order mark that text begins with, or 0: some editors put one at the
   start of a file, and it is no part of what it says. */
static inline size_t ph_utf8_mark(const char *text, size_t size)
{
    return size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
}

/* Length in bytes of the character at text (1 to 4) and its code point, or 0 if the bytes
   are no valid UTF-8 or `left` bytes do not hold all of it. */
static inline int ph_utf8_decode(const char *text, size_t left, uint32_t *point)
{
    const unsigned char *s = (const unsigned char *)text;
    int length = 0;
    uint32_t least = 0, value = 0;
    if (left == 0) return 0;
    if (s[0] < 0x80) {
        *point = s[0];
        return 1;
    }
    if (s[0] >= 0xc2 && s[0] <= 0xdf) length = 2, least = 0x80, value = s[0] & 0x1fu;
    if (s[0] >= 0xe0 && s[0] <= 0xef) length = 3, least = 0x800, value = s[0] & 0x0fu;
    if (s[0] >= 0xf0 && s[0] <= 0xf4) length = 4, least = 0x10000, value = s[0] & 0x07u;
    if (length == 0 || left < (size_t)length) return 0;
    for (int i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80) return 0;
        value = value << 6 | (s[i] & 0x3fu);
    }
    if (value < least || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *point = value;
    return length;
}

/* Writes the character to out (4 bytes at least) and returns its length. */
static inline int ph_utf8_encode(uint32_t point, char *out)
{
    int length = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = length - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)(lead[length] | point);
    return length;
}

/* Bytes of valid UTF-8 at the start of text; equals length when all of it is. */
static inline size_t ph_utf8_valid(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length) {
        uint64_t eight;
        uint32_t point;
        if (length - at >= 8) { /* ASCII, by far the most common, eight at a time */
            memcpy(&eight, text + at, 8);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        int step = ph_utf8_decode(text + at, length - at, &point);
        if (step == 0) break;
        at += (size_t)step;
    }
    return at;
}

#endif
