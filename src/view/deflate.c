/*
 * deflate.c - a small deflate encoder (RFC 1951): matches from hash chains, one Huffman
 * code per block.
 *
 * The same bytes in give the same bytes out. Code lengths come from a Huffman tree; where
 * one would exceed its limit all frequencies are halved and the tree is rebuilt, which
 * costs next to nothing in size and needs no second algorithm.
 */
#include <string.h>

#include "io/io.h"
#include "view/bytes.h"

enum {
    WINDOW = 32768,
    HASHES = 32768,
    SHORTEST = 3, /* match of the format */
    WORTH = 6,    /* match that pays: weights are noise, shorter ones cost bits */
    LONGEST = 258,
    TRIES = 16,           /* candidates tried for one match */
    BLOCK_TOKENS = 32768, /* literals and matches of one block */
    LITERALS = 286,       /* symbols: bytes, end of block, lengths */
    DISTANCES = 30,
    LENGTHS = 19, /* symbols of the code for code lengths */
    END_OF_BLOCK = 256
};

typedef struct token {
    uint16_t distance; /* 0: a literal */
    uint16_t value;    /* the byte, or the length of the match */
} token;

typedef struct code {
    uint8_t length[LITERALS]; /* bits of each symbol, 0: not used */
    uint16_t bits[LITERALS];  /* reversed, as they are written */
} code;

typedef struct deflater {
    ph_bytes *out;
    uint64_t held; /* pending bits, the oldest lowest */
    int held_bits;
    int count;              /* tokens of this block */
    int64_t first[HASHES];  /* last position of each hash, -1: none */
    int64_t before[WINDOW]; /* previous position with the same hash */
    token tokens[BLOCK_TOKENS];
    uint8_t buffer[4096];
    int buffered;
} deflater;

/* ---- bits ---- */

static void put_bits(deflater *d, uint32_t bits, int count)
{
    d->held |= (uint64_t)bits << d->held_bits;
    for (d->held_bits += count; d->held_bits >= 8; d->held_bits -= 8, d->held >>= 8) {
        d->buffer[d->buffered++] = (uint8_t)d->held;
        if (d->buffered == (int)sizeof d->buffer) {
            ph_bytes_add(d->out, d->buffer, sizeof d->buffer);
            d->buffered = 0;
        }
    }
}

static void flush(deflater *d)
{
    if (d->held_bits > 0) put_bits(d, 0, 8 - d->held_bits);
    ph_bytes_add(d->out, d->buffer, (size_t)d->buffered);
}

static void put_symbol(deflater *d, const code *c, int symbol)
{
    put_bits(d, c->bits[symbol], c->length[symbol]);
}

/* ---- Huffman codes ---- */

/* Depth of each leaf in the tree of the frequencies; returns the largest. */
static int tree_depths(const uint32_t *freq, int count, uint8_t *length)
{
    uint64_t weight[2 * LITERALS];
    int parent[2 * LITERALS], alive[LITERALS], nodes = count, left = 0, deepest = 0;
    for (int i = 0; i < count; i++) {
        length[i] = 0;
        weight[i] = freq[i];
        if (freq[i]) alive[left++] = i;
    }
    while (left > 1) { /* merge the two lightest; the first of equal ones */
        int a = 0, b = 1;
        if (weight[alive[b]] < weight[alive[a]]) a = 1, b = 0;
        for (int i = 2; i < left; i++) {
            if (weight[alive[i]] < weight[alive[a]])
                b = a, a = i;
            else if (weight[alive[i]] < weight[alive[b]])
                b = i;
        }
        weight[nodes] = weight[alive[a]] + weight[alive[b]];
        parent[alive[a]] = parent[alive[b]] = nodes;
        alive[a] = nodes++;
        alive[b] = alive[--left];
    }
    for (int i = 0; i < count; i++) {
        if (!freq[i]) continue;
        int depth = 0;
        for (int at = i; nodes > count && at != nodes - 1; at = parent[at]) depth++;
        length[i] = (uint8_t)(depth ? depth : 1); /* a lone symbol takes one bit */
        if (depth > deepest) deepest = depth;
    }
    return deepest;
}

static void assign_bits(code *c, int count)
{
    uint32_t next[17] = {0}, used[17] = {0};
    for (int i = 0; i < count; i++) used[c->length[i]]++;
    used[0] = 0;
    for (int i = 1; i <= 15; i++) next[i + 1] = (next[i] + used[i]) << 1;
    for (int i = 0; i < count; i++) {
        uint32_t forward = next[c->length[i]]++, reversed = 0;
        for (int bit = 0; bit < c->length[i]; bit++)
            reversed |= (forward >> bit & 1) << (c->length[i] - 1 - bit);
        c->bits[i] = (uint16_t)reversed;
    }
}

static void make_code(code *c, uint32_t *freq, int count, int limit)
{
    while (tree_depths(freq, count, c->length) > limit)
        for (int i = 0; i < count; i++) freq[i] = (freq[i] + 1) / 2;
    assign_bits(c, count);
}

/* ---- symbols of lengths and distances ---- */

/* The format codes lengths and distances as a symbol for a range and extra bits for the
   offset in it; sizes of ranges double after every `step` of them. */
typedef struct range {
    int symbol, extra_bits, extra;
} range;

static range find_range(int offset, int step)
{
    range r = {offset, 0, 0};
    while (offset >= 2 * step << r.extra_bits) r.extra_bits++;
    if (r.extra_bits) {
        r.symbol = r.extra_bits * step + (offset >> r.extra_bits);
        r.extra = offset & ((1 << r.extra_bits) - 1);
    }
    return r;
}

static range length_range(int length)
{
    range r = length == LONGEST ? (range){28, 0, 0} : find_range(length - SHORTEST, 4);
    r.symbol += END_OF_BLOCK + 1;
    return r;
}

static range distance_range(int distance)
{
    return find_range(distance - 1, 2);
}

/* ---- blocks ---- */

static void count_tokens(const deflater *d, uint32_t *literals, uint32_t *distances)
{
    for (int i = 0; i < d->count; i++) {
        token t = d->tokens[i];
        if (!t.distance) {
            literals[t.value]++;
            continue;
        }
        literals[length_range(t.value).symbol]++;
        distances[distance_range(t.distance).symbol]++;
    }
    literals[END_OF_BLOCK]++;
}

/* The lengths of both codes as runs: 0..15 a length, 16 the last one again (2 bits), 17
   and 18 zeros (3 and 7 bits). */
typedef struct length_run {
    uint8_t symbol, extra_bits, extra;
} length_run;

static int find_runs(const uint8_t *lengths, int count, length_run *runs)
{
    int found = 0;
    for (int i = 0, same; i < count; i += same) {
        for (same = 1; i + same < count && lengths[i + same] == lengths[i]; same++) {}
        if (lengths[i] == 0 && same >= 3) {
            if (same > 138) same = 138;
            if (same > 10)
                runs[found++] = (length_run){18, 7, (uint8_t)(same - 11)};
            else
                runs[found++] = (length_run){17, 3, (uint8_t)(same - 3)};
        } else if (i > 0 && lengths[i] == lengths[i - 1] && same >= 3) {
            if (same > 6) same = 6;
            runs[found++] = (length_run){16, 2, (uint8_t)(same - 3)};
        } else {
            same = 1;
            runs[found++] = (length_run){lengths[i], 0, 0};
        }
    }
    return found;
}

static void put_codes(deflater *d, const code *literals, const code *distances)
{
    static const uint8_t order[LENGTHS] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                           11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITERALS + DISTANCES];
    length_run runs[LITERALS + DISTANCES];
    uint32_t freq[LENGTHS] = {0};
    code meta = {{0}, {0}};
    int sent = LENGTHS;
    memcpy(lengths, literals->length, LITERALS);
    memcpy(lengths + LITERALS, distances->length, DISTANCES);
    int count = find_runs(lengths, LITERALS + DISTANCES, runs);
    for (int i = 0; i < count; i++) freq[runs[i].symbol]++;
    make_code(&meta, freq, LENGTHS, 7);
    while (sent > 4 && !meta.length[order[sent - 1]]) sent--;
    put_bits(d, LITERALS - 257, 5);
    put_bits(d, DISTANCES - 1, 5);
    put_bits(d, (uint32_t)sent - 4, 4);
    for (int i = 0; i < sent; i++) put_bits(d, meta.length[order[i]], 3);
    for (int i = 0; i < count; i++) {
        put_symbol(d, &meta, runs[i].symbol);
        put_bits(d, runs[i].extra, runs[i].extra_bits);
    }
}

static void put_range(deflater *d, const code *c, range r)
{
    put_symbol(d, c, r.symbol);
    put_bits(d, (uint32_t)r.extra, r.extra_bits);
}

static void put_block(deflater *d, int last)
{
    uint32_t literal_freq[LITERALS] = {0}, distance_freq[DISTANCES] = {0};
    code literals = {{0}, {0}}, distances = {{0}, {0}};
    count_tokens(d, literal_freq, distance_freq);
    make_code(&literals, literal_freq, LITERALS, 15);
    make_code(&distances, distance_freq, DISTANCES, 15);
    put_bits(d, (uint32_t)last, 1);
    put_bits(d, 2, 2);
    put_codes(d, &literals, &distances);
    for (int i = 0; i < d->count; i++) {
        token t = d->tokens[i];
        if (!t.distance) {
            put_symbol(d, &literals, t.value);
            continue;
        }
        put_range(d, &literals, length_range(t.value));
        put_range(d, &distances, distance_range(t.distance));
    }
    put_symbol(d, &literals, END_OF_BLOCK);
    d->count = 0;
}

/* ---- matches ---- */

static uint32_t hash_at(const uint8_t *p)
{
    return ((uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2]) * 2654435761u >> 17;
}

static void remember(deflater *d, const uint8_t *p, int64_t at)
{
    uint32_t hash = hash_at(p + at);
    d->before[at % WINDOW] = d->first[hash];
    d->first[hash] = at;
}

/* The longest match for the bytes at `at`; a literal where there is none. */
static token find_match(const deflater *d, const uint8_t *p, int64_t at, int64_t count)
{
    token best = {0, p[at]};
    int longest = WORTH - 1;
    int limit = count - at < LONGEST ? (int)(count - at) : LONGEST;
    if (limit < WORTH) return best;
    int64_t from = d->first[hash_at(p + at)];
    for (int i = 0; i < TRIES && from >= 0 && at - from < WINDOW; i++) {
        int same = 0;
        while (same < limit && p[from + same] == p[at + same]) same++;
        if (same > longest) {
            longest = same;
            best = (token){(uint16_t)(at - from), (uint16_t)same};
            if (same == limit) break;
        }
        from = d->before[from % WINDOW];
    }
    return best;
}

static void encode(deflater *d, const uint8_t *p, int64_t count)
{
    for (int64_t at = 0; at < count;) {
        token t = find_match(d, p, at, count);
        int step = t.distance ? t.value : 1;
        d->tokens[d->count++] = t;
        for (int i = 0; i < step; i++, at++)
            if (count - at >= SHORTEST) remember(d, p, at);
        if (d->count == BLOCK_TOKENS && at < count) put_block(d, 0);
    }
    put_block(d, 1);
    flush(d);
}

void ph_bytes_deflate(ph_bytes *bytes, const void *data, size_t count)
{
    deflater *d = ph_io_alloc(bytes->io, sizeof *d);
    if (!d) {
        bytes->status = ph_io_no_memory(bytes->io, sizeof *d, "packing a page");
        return;
    }
    d->out = bytes;
    d->held = 0;
    d->held_bits = d->count = d->buffered = 0;
    for (int i = 0; i < HASHES; i++) d->first[i] = -1;
    encode(d, data, (int64_t)count);
    ph_io_release(bytes->io, d);
}
