/*
 * aligned.c - texts with the origin of every byte; see aligned.h.
 */
#include "text/aligned.h"

#include <string.h>

#include "base/base.h"
#include "base/size.h"
#include "io/utf8.h"

void ph_aligned_free(ph_aligned *text)
{
    ph_io_release(text->io, text->bytes);
    ph_io_release(text->io, text->spans);
    text->bytes = NULL;
    text->spans = NULL;
}

ph_status ph_aligned_grow(ph_aligned *text, size_t more)
{
    size_t need = 0;
    void *bytes = text->bytes, *spans = text->spans;
    if (ph_size_add(text->length, more, &need)) return PH_OUT_OF_MEMORY;
    if (text->limit && need > text->limit) return PH_UNSUPPORTED;
    ph_status status = ph_io_grow(text->io, &bytes, &text->byte_capacity, need, 1);
    text->bytes = bytes;
    if (status == PH_OK)
        status = ph_io_grow(text->io, &spans, &text->span_capacity, need,
                            sizeof(ph_text_span));
    text->spans = spans;
    return status;
}

ph_status ph_aligned_append_original(ph_aligned *text, const char *original, size_t start,
                                     size_t end)
{
    if (start == end) return PH_OK;
    PH_TRY(ph_aligned_reserve(text, end - start));
    memcpy(text->bytes + text->length, original + start, end - start);
    ph_text_span *spans = text->spans + text->length;
    for (size_t i = start; i < end;) {
        uint32_t point;
        size_t step = (size_t)ph_utf8_decode(original + i, end - i, &point);
        for (size_t k = 0; k < step; k++)
            *spans++ = (ph_text_span){(uint32_t)i, (uint32_t)(i + step)};
        i += step;
    }
    text->length += end - start;
    return PH_OK;
}

ph_status ph_aligned_append_part(ph_aligned *text, const ph_aligned *from, size_t start,
                                 size_t end)
{
    size_t count = end - start;
    if (count == 0) return PH_OK;
    PH_TRY(ph_aligned_reserve(text, count));
    memcpy(text->bytes + text->length, from->bytes + start, count);
    memcpy(text->spans + text->length, from->spans + start, count * sizeof(ph_text_span));
    text->length += count;
    return PH_OK;
}

/* Where the character after the one at `at` begins. */
static size_t next_character(const ph_aligned *text, size_t at, size_t end)
{
    uint32_t point;
    return at < end ? at + (size_t)ph_utf8_decode(text->bytes + at, end - at, &point)
                    : end;
}

ph_status ph_aligned_append_changed(ph_aligned *text, const ph_aligned *from,
                                    size_t start, size_t end, const ph_changes *changes)
{
    size_t at = start; /* in `from`: the next character to take */
    char bytes[4];
    PH_TRY(ph_aligned_reserve(text, end - start));
    for (size_t i = 0; i < changes->count; i++) {
        const ph_change *c = &changes->items[i];
        size_t source = c->change > 0 || at == end ? at - (at > start) : at;
        ph_text_span span = from->spans[source];
        if (c->change > 0 && at == start) span.end = span.start;
        for (int k = c->change; k <= 0; k++) at = next_character(from, at, end);
        PH_TRY(ph_aligned_append(text, bytes, (size_t)ph_utf8_encode(c->point, bytes),
                                 span));
    }
    return PH_OK;
}

ph_status ph_changes_grow(ph_changes *changes)
{
    void *items = changes->items;
    ph_status status = ph_io_grow(changes->io, &items, &changes->capacity,
                                  changes->count + 1, sizeof(ph_change));
    changes->items = items;
    return status;
}
