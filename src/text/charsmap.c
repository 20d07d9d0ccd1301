/*
 * charsmap.c - precompiled character maps; see charsmap.h.
 *
 * Files are not trusted: every place the trie points to is checked when it is followed,
 * and the texts are checked once to be UTF-8 with a NUL at the end.
 */
#include "text/charsmap.h"

#include <string.h>

#include "base/base.h"
#include "io/utf8.h"
#include "text/steps.h"

static uint32_t read_word(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

int ph_charsmap_open(ph_charsmap *map, unsigned char *bytes, size_t size)
{
    if (size < 8) return -1;
    size_t trie = read_word(bytes);
    if (trie < 4 || trie % 4 || trie > size - 5) return -1;
    map->bytes = bytes;
    map->units = trie / 4;
    map->texts = (const char *)bytes + 4 + trie;
    map->texts_length = size - 4 - trie;
    if (map->texts[map->texts_length - 1] != 0) return -1;
    return ph_utf8_valid(map->texts, map->texts_length) == map->texts_length ? 0 : -1;
}

/* The unit at a place of the trie; 0, which is no unit's label, if it lies outside. */
static uint32_t unit_at(const ph_charsmap *map, size_t at)
{
    return at < map->units ? read_word(map->bytes + 4 + 4 * at) : 0;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 512) >> 6);
}

static const char *text_at(const ph_charsmap *map, uint32_t value)
{
    value &= 0x7fffffff;
    if (value >= map->texts_length) return NULL;
    const char *text = map->texts + value;
    return ((unsigned char)*text & 0xc0) == 0x80 ? NULL : text; /* inside a character */
}

const char *ph_charsmap_find(const ph_charsmap *map, const char *text, size_t length)
{
    size_t node = offset_of(unit_at(map, 0));
    for (size_t i = 0; i < length && text[i]; i++) {
        unsigned char c = (unsigned char)text[i];
        node ^= c;
        uint32_t unit = unit_at(map, node);
        if ((unit & (0x80000000u | 255)) != c) return NULL;
        node ^= offset_of(unit);
        if (unit & 256) return text_at(map, unit_at(map, node));
    }
    return NULL;
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int ph_base64_decode(const char *text, size_t length, unsigned char *out, size_t *size)
{
    size_t padding = 0, done = 0;
    if (length % 4) return -1;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
        padding++;
    for (size_t i = 0; i < length; i += 4) {
        uint32_t bits = 0;
        size_t digits = i + 4 == length ? 4 - padding : 4;
        for (size_t k = 0; k < digits; k++) {
            int digit = digit_of(text[i + k]);
            if (digit < 0) return -1;
            bits |= (uint32_t)digit << (18 - 6 * k);
        }
        for (size_t k = 0; k + 1 < digits; k++)
            out[done++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    *size = done;
    return 0;
}

/* ---- the step ---- */

/* One grapheme cluster, as far as it matters here: those of 6 bytes and more are mapped
   by code point, so rules that only join long characters are left out. */
static size_t cluster_end(const ph_unicode *unicode, const char *text, size_t at,
                          size_t end)
{
    uint32_t first = 0, point = 0, before;
    size_t next = at + (size_t)ph_utf8_decode(text + at, end - at, &first);
    uint32_t flags = ph_char_flags(unicode, first);
    if (first == '\r' && next < end && text[next] == '\n') return next + 1;
    if (flags & PH_CHAR_BREAKS || first == '\r' || first == '\n') return next;
    before = first;
    while (next < end) {
        size_t step = (size_t)ph_utf8_decode(text + next, end - next, &point);
        uint32_t now = ph_char_flags(unicode, point);
        int picture = before == 0x200d && now & PH_CHAR_PICTOGRAPH &&
                      ph_char_flags(unicode, first) & PH_CHAR_PICTOGRAPH;
        if (now & PH_CHAR_BREAKS || point == '\r' || point == '\n') break;
        if (!(now & PH_CHAR_JOINS) && !(flags & PH_CHAR_PREPEND) && !picture) break;
        next += step;
        before = point;
        flags = now;
    }
    return next;
}

static size_t count_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* The characters of `text` in the place of `old` characters. With none in their place
   the character before takes them along; at the very start nothing can, and what follows
   is aligned too early, as in the reference. */
static ph_status put(ph_changes *changes, const char *text, size_t old)
{
    size_t length = strlen(text), count = count_characters(text, length), done = 0;
    for (size_t i = 0; i < length; done++) {
        uint32_t point = 0;
        i += (size_t)ph_utf8_decode(text + i, length - i, &point);
        PH_TRY(ph_changes_add(changes, point, done >= old));
    }
    if (count < old && changes->count > 0)
        changes->items[changes->count - 1].change -= (int32_t)(old - count);
    return PH_OK;
}

static ph_status map_characters(ph_changes *changes, const ph_charsmap *map,
                                const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        uint32_t point = 0;
        size_t step = (size_t)ph_utf8_decode(text + i, length - i, &point);
        const char *found = ph_charsmap_find(map, text + i, step);
        if (found)
            PH_TRY(put(changes, found, 1));
        else
            PH_TRY(ph_changes_add(changes, point, 0));
        i += step;
    }
    return PH_OK;
}

ph_status ph_step_charsmap(ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    const char *text = pieces->text.bytes;
    ph_changes *changes = &pieces->changes;
    changes->count = 0;
    for (size_t at = range.start; at < range.end;) {
        size_t next = cluster_end(pieces->unicode, text, at, range.end);
        const char *found = next - at < 6
                                ? ph_charsmap_find(&step->charsmap, text + at, next - at)
                                : NULL;
        if (found)
            PH_TRY(put(changes, found, count_characters(text + at, next - at)));
        else
            PH_TRY(map_characters(changes, &step->charsmap, text + at, next - at));
        at = next;
    }
    return ph_aligned_append_changed(&pieces->next_text, &pieces->text, range.start,
                                     range.end, changes);
}
