/*
 * decompress.c - decompresses a zlib stream (RFC 1950, 1951).
 *
 * Codes are decoded bit by bit by their canonical order: codes of one length are
 * consecutive numbers, so a length's first code and count say which symbol is meant.
 */
#include <string.h>

#include "images/image.h"

enum { BITS = 15, LITERALS = 288, DISTANCES = 30, END_OF_BLOCK = 256 };

typedef struct stream {
    const uint8_t *at, *end; /* input */
    uint8_t *out;
    size_t done, count; /* bytes written, bytes wanted */
    uint32_t held;      /* bits read ahead, the next one lowest */
    int held_bits;
    int failed; /* sticky: bits are 0 from then on */
} stream;

typedef struct huffman {
    uint16_t count[BITS + 1];   /* codes of each length */
    uint16_t symbol[LITERALS]; /* by length, then by value */
} huffman;

/* At most 16 bits. */
static uint32_t take_bits(stream *s, int count)
{
    for (; s->held_bits < count; s->held_bits += 8) {
        if (s->at == s->end) {
            s->failed = 1;
            return 0;
        }
        s->held |= (uint32_t)*s->at++ << s->held_bits;
    }
    uint32_t bits = s->held & ((1u << count) - 1);
    s->held >>= count;
    s->held_bits -= count;
    return bits;
}

/* -1: more codes than fit. A code with unused bit patterns is allowed; decoding one of
   those fails. */
static int make_code(huffman *c, const uint8_t *lengths, int symbols)
{
    uint16_t at[BITS + 2] = {0};
    int left = 1;
    memset(c->count, 0, sizeof c->count);
    for (int i = 0; i < symbols; i++) c->count[lengths[i]]++;
    c->count[0] = 0;
    for (int bits = 1; bits <= BITS; bits++) {
        left = 2 * left - c->count[bits];
        if (left < 0) return -1;
        at[bits + 1] = (uint16_t)(at[bits] + c->count[bits]);
    }
    for (int i = 0; i < symbols; i++)
        if (lengths[i]) c->symbol[at[lengths[i]]++] = (uint16_t)i;
    return 0;
}

static int decode(stream *s, const huffman *c)
{
    int value = 0, first = 0, before = 0; /* first code, symbols of shorter codes */
    for (int bits = 1; bits <= BITS && !s->failed; bits++) {
        value = value << 1 | (int)take_bits(s, 1);
        if (value - first < c->count[bits]) return c->symbol[before + value - first];
        before += c->count[bits];
        first = (first + c->count[bits]) << 1;
    }
    s->failed = 1;
    return END_OF_BLOCK;
}

/* Symbols of lengths and distances stand for ranges that double after every `step` of
   them; extra bits say where in the range. */
static int range_value(stream *s, int symbol, int step)
{
    if (symbol < 2 * step) return symbol;
    int extra = symbol / step - 1;
    return ((symbol % step + step) << extra) + (int)take_bits(s, extra);
}

static void copy_match(stream *s, int symbol, const huffman *distances)
{
    int length = symbol == 285 ? 258 : 3 + range_value(s, symbol - 257, 4);
    int range = decode(s, distances);
    if (symbol > 285 || range >= DISTANCES) s->failed = 1;
    if (s->failed) return;
    size_t distance = 1 + (size_t)range_value(s, range, 2);
    if (distance > s->done) s->failed = 1;
    if (s->failed) return;
    for (; length > 0 && s->done < s->count; length--, s->done++)
        s->out[s->done] = s->out[s->done - distance];
}

static void read_block(stream *s, const huffman *literals, const huffman *distances)
{
    while (!s->failed && s->done < s->count) {
        int symbol = decode(s, literals);
        if (symbol == END_OF_BLOCK) return;
        if (symbol < END_OF_BLOCK)
            s->out[s->done++] = (uint8_t)symbol;
        else
            copy_match(s, symbol, distances);
    }
}

static void read_stored(stream *s)
{
    take_bits(s, s->held_bits % 8); /* to the next byte */
    uint32_t length = take_bits(s, 16), check = take_bits(s, 16);
    if (length != (check ^ 0xffff)) s->failed = 1;
    for (; length > 0 && !s->failed && s->done < s->count; length--) {
        uint32_t byte = take_bits(s, 8);
        if (!s->failed) s->out[s->done++] = (uint8_t)byte;
    }
}

static void read_fixed(stream *s)
{
    uint8_t lengths[LITERALS], five[DISTANCES];
    huffman literals, distances;
    for (int i = 0; i < LITERALS; i++)
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    memset(five, 5, sizeof five);
    make_code(&literals, lengths, LITERALS);
    make_code(&distances, five, DISTANCES);
    read_block(s, &literals, &distances);
}

/* Lengths of both codes: 0 to 15 a length, 16 the last one again, 17 and 18 zeros. */
static void read_lengths(stream *s, const huffman *meta, uint8_t *lengths, int count)
{
    for (int i = 0; i < count && !s->failed;) {
        int symbol = decode(s, meta), repeat = 1;
        uint8_t length = (uint8_t)symbol;
        if (symbol == 16) {
            repeat = 3 + (int)take_bits(s, 2);
            if (i == 0) s->failed = 1;
            length = i ? lengths[i - 1] : 0;
        } else if (symbol > 16) {
            repeat = symbol == 17 ? 3 + (int)take_bits(s, 3) : 11 + (int)take_bits(s, 7);
            length = 0;
        }
        if (repeat > count - i) s->failed = 1;
        if (s->failed) return;
        memset(lengths + i, length, (size_t)repeat);
        i += repeat;
    }
}

static void read_dynamic(stream *s)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                      11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITERALS + 32] = {0}, sent[19] = {0};
    huffman meta, literals, distances;
    int symbols = 257 + (int)take_bits(s, 5), ranges = 1 + (int)take_bits(s, 5);
    int count = 4 + (int)take_bits(s, 4);
    for (int i = 0; i < count; i++) sent[order[i]] = (uint8_t)take_bits(s, 3);
    if (symbols > 286 || ranges > DISTANCES || make_code(&meta, sent, 19)) s->failed = 1;
    if (s->failed) return;
    read_lengths(s, &meta, lengths, symbols + ranges);
    if (s->failed || make_code(&literals, lengths, symbols) ||
        make_code(&distances, lengths + symbols, ranges)) {
        s->failed = 1;
        return;
    }
    read_block(s, &literals, &distances);
}

int ph_inflate(const uint8_t *in, size_t size, uint8_t *out, size_t count)
{
    if (size < 2 || (in[0] & 15) != 8 || (in[0] * 256 + in[1]) % 31 || in[1] & 32)
        return -1;
    stream s = {.at = in + 2, .end = in + size, .out = out, .count = count};
    for (int last = 0; !last && !s.failed && s.done < count;) {
        last = (int)take_bits(&s, 1);
        switch (take_bits(&s, 2)) {
        case 0: read_stored(&s); break;
        case 1: read_fixed(&s); break;
        case 2: read_dynamic(&s); break;
        default: s.failed = 1;
        }
    }
    return !s.failed && s.done == count ? 0 : -1;
}
