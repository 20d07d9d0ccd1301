/*
 * text.c - words made safe, measured and cut; see text.h.
 */
#include "view/text.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "io/unsafe.h"
#include "io/utf8.h"

typedef struct ph_range {
    uint32_t first, last;
} ph_range;

#include "view/text_tables.h"

enum { JOINER = 0x200d, EMOJI_STYLE = 0xfe0f, REPLACEMENT = 0xfffd };

static int within(uint32_t point, const ph_range *table, size_t count)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (point > table[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && point >= table[low].first;
}

#define IS(table, point) within(point, table, sizeof table / sizeof table[0])

static int is_flag_letter(uint32_t point)
{
    return point >= 0x1f1e6 && point <= 0x1f1ff;
}

static int is_skin_tone(uint32_t point)
{
    return point >= 0x1f3fb && point <= 0x1f3ff;
}

/* ---- columns ---- */

/* A truncated character ends at the NUL, so a length of four bytes is always safe. */
static uint32_t next_point(const char *text, size_t *bytes)
{
    uint32_t point = 0;
    *bytes = *text ? (size_t)ph_utf8_decode(text, 4, &point) : 0;
    return point;
}

size_t ph_text_cluster(const char *text, int *columns)
{
    size_t bytes = 0, used;
    uint32_t base = next_point(text, &used), point = base, before = base;
    *columns = IS(no_columns, base) ? 0 : IS(two_columns, base) ? 2 : 1;
    int flag = is_flag_letter(base);
    while (used > 0) {
        bytes += used;
        before = point;
        point = next_point(text + bytes, &used);
        if (flag && is_flag_letter(point)) { /* two letters are one flag */
            *columns = 2;
            flag = 0;
            continue;
        }
        int joined = before == JOINER && *columns == 2 && IS(two_columns, point);
        int toned = is_skin_tone(point) && *columns == 2;
        if (!joined && !toned && !IS(no_columns, point)) break;
    }
    return bytes;
}

int ph_text_columns(const char *text)
{
    if (!text) return 0;
    int sum = 0, columns = 0;
    for (size_t n; (n = ph_text_cluster(text, &columns)) > 0; text += n) sum += columns;
    return sum;
}

/* ---- cleaning ---- */

/* How one character is written: itself, or an escape. A combining mark or joiner at the
   start of a word has no base character: it would be invisible, or modify what comes
   before the word. */
static size_t show(uint32_t point, int valid, unsigned char byte, int first, int ascii,
                   char out[16])
{
    static const char *const known[] = {['\t'] = "\\t", ['\n'] = "\\n", ['\r'] = "\\r"};
    if (!valid && ascii) return (size_t)snprintf(out, 16, "\\x%02x", byte);
    if (!valid) return (size_t)ph_utf8_encode(REPLACEMENT, out);
    if (point <= '\r' && known[point])
        return (size_t)snprintf(out, 16, "%s", known[point]);
    if (point < 0x20 || point == 0x7f)
        return (size_t)snprintf(out, 16, "\\x%02x", (unsigned)point);
    if (ph_unsafe_character(point) || (first && IS(no_columns, point)) ||
        (ascii && point >= 0x80))
        return (size_t)snprintf(out, 16, point > 0xffff ? "\\U%06x" : "\\u%04x",
                                (unsigned)point);
    return (size_t)ph_utf8_encode(point, out);
}

/* With a variation selector some terminals widen a narrow character and others do not;
   without it all agree. */
static int is_dropped(uint32_t point, uint32_t before)
{
    return point == EMOJI_STYLE && before && !IS(two_columns, before);
}

static int all_blank(const char *word)
{
    return *word && word[strspn(word, " ")] == 0;
}

/* Removes the last whole cluster so that an ellipsis fits. */
static size_t cut(char *out, size_t used, size_t size, const char *ellipsis)
{
    size_t at = 0, keep = 0, limit = size - 1 - strlen(ellipsis);
    int columns;
    out[used] = 0;
    for (size_t n; (n = ph_text_cluster(out + at, &columns)) > 0; at += n) {
        if (at + n > limit) break;
        keep = at + n;
    }
    strcpy(out + keep, ellipsis);
    return keep + strlen(ellipsis);
}

size_t ph_text_clean(const char *word, int ascii, char *out, size_t size)
{
    if (!out || !size) return 0;
    if (!word) word = "";
    static const char *const blank[] = {"\xe2\x90\xa3", "_"};
    static const char *const ellipsis[] = {"\xe2\x80\xa6", "..."};
    char one[16];
    size_t used = 0;
    uint32_t before = 0;
    if (all_blank(word)) word = blank[ascii != 0];
    while (*word) {
        uint32_t point = 0;
        size_t bytes = (size_t)ph_utf8_decode(word, 4, &point);
        size_t length = show(point, bytes > 0, (unsigned char)*word, !before, ascii, one);
        if (bytes > 0 && is_dropped(point, before)) length = 0;
        if (used + length >= size) return cut(out, used, size, ellipsis[ascii != 0]);
        memcpy(out + used, one, length);
        used += length;
        before = point;
        word += bytes ? bytes : 1;
    }
    out[used] = 0;
    return used;
}

/* ---- fitting ---- */

static size_t put_blanks(char *out, size_t used, size_t size, int count)
{
    while (count-- > 0 && used + 1 < size) out[used++] = ' ';
    return used;
}

void ph_text_fit(const char *text, int columns, int ascii, int right_aligned, char *out,
                 size_t size)
{
    int whole = ph_text_columns(text), limit = whole > columns ? columns - 1 : columns;
    int width = 0, step;
    size_t length = 0, used = 0;
    for (size_t n; (n = ph_text_cluster(text + length, &step)) > 0; length += n) {
        if (width + step > limit) break;
        width += step;
    }
    int cut_off = whole > columns && columns > 0;
    int blanks = columns - width - cut_off;
    if (right_aligned) used = put_blanks(out, used, size, blanks);
    const char *mark = !cut_off ? "" : ascii ? "~" : "\xe2\x80\xa6";
    if (length + strlen(mark) < size - used)
        used += (size_t)sprintf(out + used, "%.*s%s", (int)length, text, mark);
    if (!right_aligned) used = put_blanks(out, used, size, blanks);
    out[used] = 0;
}
