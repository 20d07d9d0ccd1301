/*
 * byte_alphabet.c - bytes as characters of byte-level vocabularies; see byte_alphabet.h.
 */
#include "text/byte_alphabet.h"

#include "io/utf8.h"

static int stands_for_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) ||
           (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

uint32_t ph_byte_alphabet_char(unsigned char byte)
{
    if (stands_for_itself(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xa0) return 0x100u + 0x21 + (byte - 0x7fu);
    return 0x100 + 0x21 + 0x22; /* 0xad */
}

int ph_byte_alphabet_byte(uint32_t point)
{
    if (point < 0x100) return stands_for_itself(point) ? (int)point : -1;
    if (point <= 0x120) return (int)(point - 0x100);
    if (point <= 0x142) return (int)(point - 0x121 + 0x7f);
    return point == 0x143 ? 0xad : -1;
}

size_t ph_byte_alphabet_write(const char *bytes, size_t count, char *out)
{
    char *at = out;
    for (size_t i = 0; i < count; i++)
        at += ph_utf8_encode(ph_byte_alphabet_char((unsigned char)bytes[i]), at);
    return (size_t)(at - out);
}

int ph_byte_alphabet_read(const char *text, size_t length, char *out, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < length;) {
        uint32_t point = 0;
        int step = ph_utf8_decode(text + i, length - i, &point);
        int byte = step ? ph_byte_alphabet_byte(point) : -1;
        if (byte < 0) return -1;
        out[(*count)++] = (char)byte;
        i += (size_t)step;
    }
    return 0;
}
