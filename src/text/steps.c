/*
 * steps.c - normalizers and pre-tokenizers; see steps.h.
 */
#include "text/steps.h"

#include <string.h>

#include "base/base.h"
#include "io/utf8.h"

/* ---- pieces ---- */

void ph_pieces_init(ph_pieces *pieces, const ph_unicode *unicode, const ph_io *io)
{
    *pieces = (ph_pieces){.io = io, .unicode = unicode};
    pieces->text.io = pieces->next_text.io = io;
    pieces->changes.io = pieces->sorted.io = pieces->decomposed.io = io;
}

void ph_pieces_free(ph_pieces *pieces)
{
    ph_aligned_free(&pieces->text);
    ph_aligned_free(&pieces->next_text);
    ph_io_release(pieces->io, pieces->items);
    ph_io_release(pieces->io, pieces->next_items);
    ph_io_release(pieces->io, pieces->changes.items);
    ph_io_release(pieces->io, pieces->sorted.items);
    ph_aligned_free(&pieces->decomposed);
}

static ph_status add_piece(ph_pieces *pieces, size_t start, size_t end)
{
    void *items = pieces->next_items;
    if (start == end) return PH_OK;
    ph_status status = ph_io_grow(pieces->io, &items, &pieces->next_capacity,
                                  pieces->next_count + 1, sizeof(ph_text_range));
    pieces->next_items = items;
    if (status != PH_OK) return status;
    pieces->next_items[pieces->next_count++] =
        (ph_text_range){(uint32_t)start, (uint32_t)end};
    return PH_OK;
}

static void swap_items(ph_pieces *pieces)
{
    ph_text_range *items = pieces->items;
    size_t capacity = pieces->capacity;
    pieces->items = pieces->next_items;
    pieces->count = pieces->next_count;
    pieces->capacity = pieces->next_capacity;
    pieces->next_items = items;
    pieces->next_capacity = capacity;
    pieces->next_count = 0;
}

ph_status ph_pieces_load(ph_pieces *pieces, const char *original, size_t start,
                         size_t end)
{
    /* Steps of a hostile file could double a text again and again. */
    pieces->text.limit = pieces->next_text.limit = 64 * (end - start) + 65536;
    pieces->text.length = pieces->next_count = 0;
    PH_TRY(ph_aligned_append_original(&pieces->text, original, start, end));
    PH_TRY(add_piece(pieces, 0, end - start));
    swap_items(pieces);
    return PH_OK;
}

ph_status ph_pieces_load_part(ph_pieces *pieces, const ph_aligned *text, size_t start,
                              size_t end)
{
    pieces->text.length = pieces->next_count = 0;
    PH_TRY(ph_aligned_append_part(&pieces->text, text, start, end));
    PH_TRY(add_piece(pieces, 0, end - start));
    swap_items(pieces);
    return PH_OK;
}

/* ---- splitting ---- */

/* Pieces of [start, end), a match or not, joined as the behavior says. */
typedef struct splitting {
    ph_pieces *pieces;
    const ph_step *step;
    size_t start, end; /* of the piece that may still grow */
    int open, matched; /* is there one; was the last part a match */
} splitting;

/* Next parts come in order. MergedWithNext: a match begins the piece that the part
   behind it ends; of neighbouring matches only the last does. */
static ph_status split_part(splitting *s, size_t start, size_t end, int match)
{
    ph_split_behavior behavior = s->step->behavior;
    int was = s->matched, grows = 0;
    match ^= s->step->invert;
    if (behavior == PH_SPLIT_CONTIGUOUS) grows = match == was;
    if (behavior == PH_SPLIT_MERGED_WITH_PREVIOUS) grows = match && !was;
    if (behavior == PH_SPLIT_MERGED_WITH_NEXT) grows = was && !match;
    s->matched = match;
    if (grows && s->open) {
        s->end = end;
        return PH_OK;
    }
    if (s->open) PH_TRY(add_piece(s->pieces, s->start, s->end));
    s->open = !(match && behavior == PH_SPLIT_REMOVED);
    s->start = start;
    s->end = end;
    return PH_OK;
}

static ph_status split_piece(ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    splitting s = {.pieces = pieces, .step = step};
    const char *text = pieces->text.bytes + range.start;
    size_t length = range.end - range.start, at = 0, end = 0;
    while (at < length) {
        size_t found =
            ph_pattern_find(&step->pattern, pieces->unicode, text, length, at, &end);
        if (found > at) PH_TRY(split_part(&s, range.start + at, range.start + found, 0));
        if (found < length)
            PH_TRY(split_part(&s, range.start + found, range.start + end, 1));
        at = end;
    }
    return s.open ? add_piece(pieces, s.start, s.end) : PH_OK;
}

/* ---- rewriting ---- */

static ph_status replace(ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    const ph_aligned *from = &pieces->text;
    size_t at = range.start, end = 0;
    while (at < range.end) {
        size_t length = range.end - at;
        size_t found = ph_pattern_find(&step->pattern, pieces->unicode, from->bytes + at,
                                       length, 0, &end);
        PH_TRY(ph_aligned_append_part(&pieces->next_text, from, at, at + found));
        if (found < length) /* stands for the last character it replaces */
            PH_TRY(ph_aligned_append(&pieces->next_text, step->text, step->length,
                                     from->spans[at + end - 1]));
        at += end;
    }
    return PH_OK;
}

static int is_missing(const ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    size_t length = range.end - range.start;
    if (step->when == PH_PREPEND_ALWAYS) return 1;
    if (step->when == PH_PREPEND_MISSING_FIRST &&
        pieces->text.spans[range.start].start != 0)
        return 0;
    return length < step->length ||
           memcmp(pieces->text.bytes + range.start, step->text, step->length) != 0;
}

static ph_status prepend(ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    const ph_aligned *from = &pieces->text;
    if (range.start < range.end && is_missing(pieces, step, range))
        PH_TRY(ph_aligned_append(&pieces->next_text, step->text, step->length,
                                 from->spans[range.start]));
    return ph_aligned_append_part(&pieces->next_text, from, range.start, range.end);
}

static ph_status strip(ph_pieces *pieces, const ph_step *step, ph_text_range range)
{
    const char *text = pieces->text.bytes;
    size_t start = range.start, end = range.end;
    uint32_t point = 0;
    while (step->left && start < end) {
        size_t next = start + (size_t)ph_utf8_decode(text + start, end - start, &point);
        if (!(ph_char_flags(pieces->unicode, point) & PH_CHAR_SPACE)) break;
        start = next;
    }
    while (step->right && end > start) {
        size_t last = end - 1;
        while (((unsigned char)text[last] & 0xc0) == 0x80) last--;
        ph_utf8_decode(text + last, end - last, &point);
        if (!(ph_char_flags(pieces->unicode, point) & PH_CHAR_SPACE)) break;
        end = last;
    }
    return ph_aligned_append_part(&pieces->next_text, &pieces->text, start, end);
}

/* Lower case, or marks dropped: character by character. */
static ph_status map_characters(ph_pieces *pieces, const ph_step *step,
                                ph_text_range range)
{
    const ph_aligned *from = &pieces->text;
    for (size_t at = range.start; at < range.end;) {
        uint32_t point = 0, parts[PH_CHAR_MAX_PARTS];
        char bytes[4];
        ph_text_span span = from->spans[at];
        at += (size_t)ph_utf8_decode(from->bytes + at, range.end - at, &point);
        uint32_t flags = ph_char_flags(pieces->unicode, point);
        int count = 1;
        parts[0] = point;
        if (step->kind == PH_STEP_STRIP_ACCENTS && flags & PH_CHAR_COMBINING) count = 0;
        if (step->kind == PH_STEP_LOWERCASE && flags & PH_CHAR_CASE)
            count = ph_char_lower(point, parts);
        for (int i = 0; i < count; i++)
            PH_TRY(ph_aligned_append(&pieces->next_text, bytes,
                                     (size_t)ph_utf8_encode(parts[i], bytes), span));
    }
    return PH_OK;
}

static ph_status rewrite_piece(ph_pieces *pieces, const ph_step *step,
                               ph_text_range range)
{
    switch (step->kind) {
    case PH_STEP_BERT: return ph_step_bert(pieces, step, range);
    case PH_STEP_NORMAL_FORM: return ph_step_normal_form(pieces, step, range);
    case PH_STEP_CHARSMAP: return ph_step_charsmap(pieces, step, range);
    case PH_STEP_STRIP: return strip(pieces, step, range);
    case PH_STEP_REPLACE: return replace(pieces, step, range);
    case PH_STEP_PREPEND: return prepend(pieces, step, range);
    default: return map_characters(pieces, step, range);
    }
}

static ph_status run_step(ph_pieces *pieces, const ph_step *step)
{
    pieces->next_count = 0;
    pieces->next_text.length = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        if (step->kind == PH_STEP_SPLIT) {
            PH_TRY(split_piece(pieces, step, pieces->items[i]));
            continue;
        }
        size_t start = pieces->next_text.length;
        PH_TRY(rewrite_piece(pieces, step, pieces->items[i]));
        if (pieces->next_text.length > UINT32_MAX) return PH_OUT_OF_MEMORY;
        PH_TRY(add_piece(pieces, start, pieces->next_text.length));
    }
    swap_items(pieces);
    if (step->kind != PH_STEP_SPLIT) {
        ph_aligned text = pieces->text;
        pieces->text = pieces->next_text;
        pieces->next_text = text;
    }
    return PH_OK;
}

ph_status ph_pieces_run(ph_pieces *pieces, const ph_step *steps, size_t count)
{
    for (size_t i = 0; i < count; i++) PH_TRY(run_step(pieces, &steps[i]));
    return PH_OK;
}
