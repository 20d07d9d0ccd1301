/*
 * unicode.c - tables of characters; see unicode.h.
 *
 * The arrays of unicode.bin are searched where they lie; only classes, which every
 * character needs, are spread out. Hangul syllables go by rule.
 */
#include "text/unicode.h"

#include <string.h>

#include "text/tables.h"

enum array {
    FLAGS,
    RANGES,
    CANONICAL,
    COMPATIBILITY,
    LOWER,
    POOL,
    PAIRS,
    CLASSES,
    ARRAYS
};

static uint32_t word_at(size_t index)
{
    uint32_t word;
    memcpy(&word, ph_text_unicode_bin + 4 * index, 4);
    return word;
}

/* Index of the first word of an array; *count becomes the number of its items. */
static size_t find_array(enum array array, size_t *count)
{
    static const unsigned char words[ARRAYS] = {1, 1, 2, 2, 2, 1, 3, 1};
    size_t at = ARRAYS;
    for (int i = 0; i < (int)array; i++) at += words[i] * (size_t)word_at((size_t)i);
    *count = word_at((size_t)array);
    return at;
}

/* ---- classes ---- */

void ph_unicode_fill(ph_unicode *unicode)
{
    size_t flags, ranges, at = find_array(FLAGS, &flags);
    for (size_t i = 0; i < flags; i++) unicode->flags[i] = word_at(at + i);
    at = find_array(RANGES, &ranges);
    for (size_t i = 0; i < ranges; i++) {
        size_t start = word_at(at + i) >> 8;
        size_t end = i + 1 < ranges ? word_at(at + i + 1) >> 8 : PH_UNICODE_FLAT;
        if (end > PH_UNICODE_FLAT) end = PH_UNICODE_FLAT;
        if (start < end)
            memset(unicode->flat + start, (int)(word_at(at + i) & 255), end - start);
    }
}

uint32_t ph_unicode_high(const ph_unicode *unicode, uint32_t point)
{
    size_t count, at = find_array(RANGES, &count), low = 0;
    while (count - low > 1) { /* the last range that begins at or before the point */
        size_t middle = low + (count - low) / 2;
        if (word_at(at + middle) >> 8 <= point)
            low = middle;
        else
            count = middle;
    }
    return unicode->flags[word_at(at + low) & 255];
}

/* ---- mappings ---- */

/* Copies what `point` maps to in one of the three mappings; 0 if it is not there. */
static int look_up(enum array array, uint32_t point, uint32_t *parts)
{
    size_t count, pool_count, at = find_array(array, &count), low = 0;
    size_t pool = find_array(POOL, &pool_count);
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        uint32_t word = word_at(at + 2 * middle);
        if ((word & 0xffffff) == point) {
            int length = (int)(word >> 24);
            size_t first = pool + word_at(at + 2 * middle + 1);
            for (int i = 0; i < length; i++) parts[i] = word_at(first + (size_t)i);
            return length;
        }
        if ((word & 0xffffff) < point)
            low = middle + 1;
        else
            count = middle;
    }
    return 0;
}

enum { S_BASE = 0xac00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11a7 };
enum { L_COUNT = 19, V_COUNT = 21, T_COUNT = 28, S_COUNT = L_COUNT * V_COUNT * T_COUNT };

int ph_char_decompose(uint32_t point, int compatibility, uint32_t *parts)
{
    int count = 0;
    if (point - S_BASE < S_COUNT) {
        uint32_t s = point - S_BASE, t = s % T_COUNT;
        parts[0] = L_BASE + s / (V_COUNT * T_COUNT);
        parts[1] = V_BASE + s / T_COUNT % V_COUNT;
        parts[2] = T_BASE + t;
        return t ? 3 : 2;
    }
    if (compatibility) count = look_up(COMPATIBILITY, point, parts);
    if (!count) count = look_up(CANONICAL, point, parts);
    if (!count) parts[count++] = point;
    return count;
}

int ph_char_lower(uint32_t point, uint32_t *parts)
{
    int count = look_up(LOWER, point, parts);
    if (!count) parts[count++] = point;
    return count;
}

/* ---- composition ---- */

static uint32_t compose_hangul(uint32_t first, uint32_t second)
{
    if (first - L_BASE < L_COUNT && second - V_BASE < V_COUNT)
        return S_BASE + ((first - L_BASE) * V_COUNT + (second - V_BASE)) * T_COUNT;
    if (first - S_BASE < S_COUNT && (first - S_BASE) % T_COUNT == 0 &&
        second - T_BASE - 1 < T_COUNT - 1)
        return first + (second - T_BASE);
    return 0;
}

uint32_t ph_char_compose(uint32_t first, uint32_t second)
{
    size_t count, at = find_array(PAIRS, &count), low = 0;
    uint64_t wanted = (uint64_t)first << 32 | second;
    uint32_t hangul = compose_hangul(first, second);
    if (hangul) return hangul;
    while (low < count) {
        size_t middle = low + (count - low) / 2, pair = at + 3 * middle;
        uint64_t here = (uint64_t)word_at(pair) << 32 | word_at(pair + 1);
        if (here == wanted) return word_at(pair + 2);
        if (here < wanted)
            low = middle + 1;
        else
            count = middle;
    }
    return 0;
}

int ph_char_combining_class(uint32_t point)
{
    size_t count, at = find_array(CLASSES, &count), low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        uint32_t word = word_at(at + middle);
        if (word >> 8 == point) return (int)(word & 255);
        if (word >> 8 < point)
            low = middle + 1;
        else
            count = middle;
    }
    return 0;
}
