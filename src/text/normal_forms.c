/*
 * normal_forms.c - NFC, NFD, NFKC and NFKD, and BERT's cleaning, with alignment.
 *
 * Marks that are reordered and characters that are composed take the alignment of the
 * characters whose places they come to stand on: that is what the reference does, and
 * offsets of tokens depend on it.
 */
#include <string.h>

#include "base/base.h"
#include "io/utf8.h"
#include "text/steps.h"

/* ---- decomposition ---- */

/* Sorts the marks in [start, count) by combining class, equal ones in their order. */
static ph_status sort_marks(ph_changes *changes, ph_changes *scratch, size_t start)
{
    size_t first[257], count = changes->count - start;
    int sorted = 1;
    if (count < 2) return PH_OK;
    memset(first, 0, sizeof first);
    for (size_t i = 0; i < count; i++) {
        first[changes->items[start + i].order + 1]++;
        if (i > 0 &&
            changes->items[start + i].order < changes->items[start + i - 1].order)
            sorted = 0;
    }
    if (sorted) return PH_OK;
    for (int i = 0; i < 256; i++) first[i + 1] += first[i];
    void *items = scratch->items;
    ph_status status =
        ph_io_grow(scratch->io, &items, &scratch->capacity, count, sizeof(ph_change));
    scratch->items = items;
    if (status != PH_OK) return status;
    for (size_t i = 0; i < count; i++) {
        const ph_change *c = &changes->items[start + i];
        scratch->items[first[c->order]++] = *c;
    }
    memcpy(changes->items + start, scratch->items, count * sizeof(ph_change));
    return PH_OK;
}

/* The changes that decompose [start, end) of a text, marks in canonical order. */
static ph_status decompose(ph_pieces *pieces, const ph_aligned *text, ph_text_range range,
                           int compatibility)
{
    ph_changes *changes = &pieces->changes;
    const uint32_t differs = compatibility ? PH_CHAR_COMPATIBILITY : PH_CHAR_CANONICAL;
    size_t marks = 0; /* where the run of marks at the end begins */
    changes->count = 0;
    for (size_t at = range.start; at < range.end;) {
        uint32_t point = 0, parts[PH_CHAR_MAX_PARTS];
        at += (size_t)ph_utf8_decode(text->bytes + at, range.end - at, &point);
        int count = 1;
        parts[0] = point;
        if (ph_char_flags(pieces->unicode, point) & differs)
            count = ph_char_decompose(point, compatibility, parts);
        for (int i = 0; i < count; i++) {
            int order = ph_char_flags(pieces->unicode, parts[i]) & PH_CHAR_REORDER
                            ? ph_char_combining_class(parts[i])
                            : 0;
            if (order == 0) {
                PH_TRY(sort_marks(changes, &pieces->sorted, marks));
                marks = changes->count + 1;
            }
            PH_TRY(ph_changes_add(changes, parts[i], i > 0));
            changes->items[changes->count - 1].order = (uint32_t)order;
        }
    }
    return sort_marks(changes, &pieces->sorted, marks);
}

/* ---- composition ---- */

/* Composes in place: a starter with each character behind it that is not blocked. */
static void compose(ph_changes *changes)
{
    size_t out = 0, starter = SIZE_MAX;
    int64_t last = -1; /* class of the last mark behind the starter */
    for (size_t i = 0; i < changes->count; i++) {
        ph_change c = changes->items[i];
        if (starter != SIZE_MAX && (last < 0 || last < (int64_t)c.order)) {
            uint32_t whole = ph_char_compose(changes->items[starter].point, c.point);
            if (whole) {
                changes->items[starter].point = whole;
                changes->items[starter].change += c.change - 1;
                continue;
            }
        }
        if (c.order == 0) {
            starter = out;
            last = -1;
        } else if (starter != SIZE_MAX) {
            last = c.order;
        }
        changes->items[out++] = c;
    }
    changes->count = out;
}

/* The next character from `at` on whose flags meet `flags` or, `without`, do not; or the
   end. *before is where the last character passed over begins. */
static size_t find_flags(const ph_pieces *pieces, ph_text_range range, uint32_t flags,
                         int without, size_t *before)
{
    size_t at = range.start;
    while (at < range.end) {
        uint32_t point = 0;
        size_t step =
            (size_t)ph_utf8_decode(pieces->text.bytes + at, range.end - at, &point);
        if (((ph_char_flags(pieces->unicode, point) & flags) == 0) == without) break;
        *before = at;
        at += step;
    }
    return at;
}

/* Only characters that the form may change are rewritten, with the one before them, which
   they may compose with; the others stand for themselves. */
ph_status ph_step_normal_form(ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    uint32_t flags = PH_CHAR_REORDER |
                     (step->compatibility ? PH_CHAR_COMPATIBILITY : PH_CHAR_CANONICAL) |
                     (step->compose ? PH_CHAR_COMPOSES : 0);
    while (range.start < range.end) {
        size_t before = range.start;
        size_t first = find_flags(pieces, range, flags, 0, &before), unused;
        if (first == range.end) before = first;
        PH_TRY(ph_aligned_append_part(&pieces->next_text, &pieces->text, range.start,
                                      before));
        ph_text_range rest = {(uint32_t)first, range.end};
        ph_text_range part = {(uint32_t)before,
                              (uint32_t)find_flags(pieces, rest, flags, 1, &unused)};
        range.start = part.end;
        if (part.start == part.end) break;
        PH_TRY(decompose(pieces, &pieces->text, part, step->compatibility));
        if (step->compose) compose(&pieces->changes);
        PH_TRY(ph_aligned_append_changed(&pieces->next_text, &pieces->text, part.start,
                                         part.end, &pieces->changes));
    }
    return PH_OK;
}

/* ---- BERT ---- */

static int is_chinese(uint32_t c)
{
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
           (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

static ph_status append_lower(ph_pieces *pieces, const ph_step *step, uint32_t point,
                              ph_text_span span)
{
    uint32_t parts[PH_CHAR_MAX_PARTS] = {point};
    char bytes[4];
    int count = 1;
    if (step->lowercase && ph_char_flags(pieces->unicode, point) & PH_CHAR_CASE)
        count = ph_char_lower(point, parts);
    for (int i = 0; i < count; i++)
        PH_TRY(ph_aligned_append(&pieces->next_text, bytes,
                                 (size_t)ph_utf8_encode(parts[i], bytes), span));
    return PH_OK;
}

/* A character after cleaning: accents off, then lower case. */
static ph_status append_bert(ph_pieces *pieces, const ph_step *step, uint32_t point,
                             ph_text_span span)
{
    uint32_t parts[PH_CHAR_MAX_PARTS] = {point};
    int count = 1;
    if (step->accents && ph_char_flags(pieces->unicode, point) & PH_CHAR_CANONICAL)
        count = ph_char_decompose(point, 0, parts);
    for (int i = 0; i < count; i++) {
        uint32_t flags = ph_char_flags(pieces->unicode, parts[i]);
        if (step->accents && flags & PH_CHAR_ACCENT) continue;
        PH_TRY(append_lower(pieces, step, parts[i], span));
    }
    return PH_OK;
}

static ph_status clean_character(ph_pieces *pieces, const ph_step *step, uint32_t point,
                                 ph_text_span span)
{
    uint32_t flags = ph_char_flags(pieces->unicode, point);
    if (step->clean && flags & PH_CHAR_CONTROL) return PH_OK;
    if (step->clean && flags & PH_CHAR_SPACE) point = ' ';
    if (!step->chinese || !is_chinese(point))
        return append_bert(pieces, step, point, span);
    PH_TRY(ph_aligned_append(&pieces->next_text, " ", 1, span));
    PH_TRY(append_bert(pieces, step, point, span));
    return ph_aligned_append(&pieces->next_text, " ", 1, span);
}

/* ASCII needs no table but this: 0 is dropped. */
static char clean_ascii(const ph_step *step, char c)
{
    if (step->clean && (c < ' ' || c == 127))
        return c == '\t' || c == '\n' || c == '\r' ? ' ' : 0;
    return step->lowercase && c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/* All of BERT's cleaning at once, character by character. *mixed becomes 1 at a mark that
   stays although accents go: its neighbours may have to be reordered. */
static ph_status clean_text(ph_pieces *pieces, const ph_step *step,
                            const ph_aligned *from, ph_text_range range, int *mixed)
{
    ph_aligned *to = &pieces->next_text;
    PH_TRY(ph_aligned_reserve(to, range.end - range.start));
    for (size_t at = range.start; at < range.end;) {
        uint32_t point = (unsigned char)from->bytes[at];
        ph_text_span span = from->spans[at];
        if (point < 0x80) {
            char c = clean_ascii(step, from->bytes[at++]);
            if (!c && step->clean) continue;
            PH_TRY(ph_aligned_append(to, &c, 1, span));
        } else {
            at += (size_t)ph_utf8_decode(from->bytes + at, range.end - at, &point);
            uint32_t flags = ph_char_flags(pieces->unicode, point);
            if (flags & PH_CHAR_REORDER && !(flags & PH_CHAR_ACCENT)) *mixed = 1;
            PH_TRY(clean_character(pieces, step, point, span));
        }
    }
    return PH_OK;
}

ph_status ph_step_bert(ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    size_t start = pieces->next_text.length;
    ph_step first = *step, last = *step;
    int mixed = 0;
    PH_TRY(clean_text(pieces, step, &pieces->text, range, &mixed));
    if (!mixed || !step->accents) return PH_OK;
    /* Again in the order of the reference: clean, decompose, then strip. */
    first.accents = first.lowercase = 0;
    last.clean = last.chinese = 0;
    pieces->next_text.length = start;
    pieces->decomposed.length = 0;
    PH_TRY(clean_text(pieces, &first, &pieces->text, range, &mixed));
    range = (ph_text_range){(uint32_t)start, (uint32_t)pieces->next_text.length};
    PH_TRY(decompose(pieces, &pieces->next_text, range, 0));
    PH_TRY(ph_aligned_append_changed(&pieces->decomposed, &pieces->next_text, range.start,
                                     range.end, &pieces->changes));
    pieces->next_text.length = start;
    range = (ph_text_range){0, (uint32_t)pieces->decomposed.length};
    return clean_text(pieces, &last, &pieces->decomposed, range, &mixed);
}
