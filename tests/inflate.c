/*
 * inflate.c - a deflate decoder for tests; see inflate.h.
 */
#include "inflate.h"

#include <string.h>

typedef struct stream {
    const unsigned char *in;
    size_t bits, at; /* bits there are, bits taken */
    unsigned char *out;
    size_t capacity, count;
    int bad;
} stream;

typedef struct table {
    int count[16];   /* codes of each length */
    int symbol[288]; /* in the order of their codes */
} table;

static int take(stream *s, int count)
{
    int value = 0;
    for (int i = 0; i < count; i++, s->at++) {
        if (s->at >= s->bits) {
            s->bad = 1;
            return 0;
        }
        value |= (s->in[s->at / 8] >> s->at % 8 & 1) << i;
    }
    return value;
}

static void put(stream *s, int byte)
{
    if (s->count >= s->capacity)
        s->bad = 1;
    else
        s->out[s->count++] = (unsigned char)byte;
}

/* Codes of one length are consecutive numbers in the order of their symbols. */
static void build(table *t, const int *length, int count)
{
    int start[16], at = 0;
    memset(t, 0, sizeof *t);
    for (int i = 0; i < count; i++) t->count[length[i]]++;
    t->count[0] = 0;
    for (int i = 0; i < 16; i++) start[i] = at, at += t->count[i];
    for (int i = 0; i < count; i++)
        if (length[i]) t->symbol[start[length[i]]++] = i;
}

static int decode(stream *s, const table *t)
{
    int code = 0, first = 0, index = 0;
    for (int bits = 1; bits < 16; bits++) {
        code |= take(s, 1);
        if (code - first < t->count[bits]) return t->symbol[index + code - first];
        index += t->count[bits];
        first = (first + t->count[bits]) << 1;
        code <<= 1;
    }
    s->bad = 1;
    return 0;
}

static void read_tables(stream *s, table *literals, table *distances)
{
    static const int order[19] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                  11, 4,  12, 3, 13, 2, 14, 1, 15};
    int many = take(s, 5) + 257, few = take(s, 5) + 1, sent = take(s, 4) + 4;
    int length[320 + 138] = {0}, small[19] = {0}, n = 0;
    table lengths;
    for (int i = 0; i < sent; i++) small[order[i]] = take(s, 3);
    build(&lengths, small, 19);
    while (n < many + few && !s->bad) {
        int symbol = decode(s, &lengths), value = symbol, repeat = 1;
        if (symbol == 16) value = n ? length[n - 1] : 0, repeat = 3 + take(s, 2);
        if (symbol == 17) value = 0, repeat = 3 + take(s, 3);
        if (symbol == 18) value = 0, repeat = 11 + take(s, 7);
        while (repeat--) length[n++] = value;
    }
    if (n != many + few || many > 286 || few > 30) s->bad = 1;
    if (s->bad) return;
    build(literals, length, many);
    build(distances, length + many, few);
}

static void copy(stream *s, int length, size_t distance)
{
    if (distance > s->count) s->bad = 1;
    for (int i = 0; i < length && !s->bad; i++) put(s, s->out[s->count - distance]);
}

static void read_block(stream *s)
{
    static const int base[] = {3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                               15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                               67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const int extra[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    table literals, distances;
    read_tables(s, &literals, &distances);
    while (!s->bad) {
        int symbol = decode(s, &literals);
        if (symbol == 256) break;
        if (symbol < 256) {
            put(s, symbol);
            continue;
        }
        int length = base[symbol - 257] + take(s, extra[symbol - 257]);
        int far = decode(s, &distances), bits = far < 4 ? 0 : far / 2 - 1;
        size_t from = far < 4 ? (size_t)far + 1 : ((size_t)(2 + far % 2) << bits) + 1;
        copy(s, length, from + (size_t)take(s, bits));
    }
}

long inflate_raw(const unsigned char *in, size_t size, unsigned char *out,
                 size_t capacity)
{
    stream s = {.in = in, .bits = 8 * size, .out = out, .capacity = capacity};
    for (int last = 0; !last && !s.bad;) {
        last = take(&s, 1);
        if (take(&s, 2) != 2) s.bad = 1; /* the encoder makes this kind only */
        if (!s.bad) read_block(&s);
    }
    return s.bad || (s.at + 7) / 8 != size ? -1 : (long)s.count;
}
