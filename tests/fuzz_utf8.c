/*
 * fuzz_utf8.c - the UTF-8 decoder against the table of well-formed byte sequences of the
 * Unicode Standard (table 3-7), and back through the encoder.
 */
#include <string.h>

#include "fuzz.h"
#include "io/utf8.h"

/* Lengths and allowed ranges of the first two bytes; later ones are 80..BF. */
static const struct {
    uint8_t length, first, last, low, high;
} rows[] = {{1, 0x00, 0x7f, 0, 0},       {2, 0xc2, 0xdf, 0x80, 0xbf},
            {3, 0xe0, 0xe0, 0xa0, 0xbf}, {3, 0xe1, 0xec, 0x80, 0xbf},
            {3, 0xed, 0xed, 0x80, 0x9f}, {3, 0xee, 0xef, 0x80, 0xbf},
            {4, 0xf0, 0xf0, 0x90, 0xbf}, {4, 0xf1, 0xf3, 0x80, 0xbf},
            {4, 0xf4, 0xf4, 0x80, 0x8f}};

static int expected_length(const uint8_t *s, size_t left)
{
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        if (s[0] < rows[r].first || s[0] > rows[r].last) continue;
        if (rows[r].length > left) return 0;
        if (rows[r].length > 1 && (s[1] < rows[r].low || s[1] > rows[r].high)) return 0;
        for (int i = 2; i < rows[r].length; i++)
            if (s[i] < 0x80 || s[i] > 0xbf) return 0;
        return rows[r].length;
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    size_t valid = size;
    for (size_t at = 0; at < size;) {
        uint32_t point = 0;
        char again[4];
        int length = ph_utf8_decode(text + at, size - at, &point);
        REQUIRE(length == expected_length(data + at, size - at));
        if (length > 0) {
            REQUIRE(ph_utf8_encode(point, again) == length);
            REQUIRE(memcmp(again, text + at, (size_t)length) == 0);
        } else if (valid == size) {
            valid = at;
        }
        at += length > 0 ? (size_t)length : 1;
    }
    REQUIRE(ph_utf8_valid(text, size) == valid);
    return 0;
}
