/*
 * aligned.h - a text that is being rewritten, and for each of its bytes the part of the
 * original text it came from, so that tokens can say where they stand in the original.
 */
#ifndef PH_TEXT_ALIGNED_H
#define PH_TEXT_ALIGNED_H

#include "io/io.h"

typedef struct ph_text_span {
    uint32_t start, end; /* bytes of the original text */
} ph_text_span;

typedef struct ph_aligned {
    char *bytes;
    ph_text_span *spans; /* one per byte */
    size_t length, byte_capacity, span_capacity;
    size_t limit; /* of length: PH_UNSUPPORTED beyond it; 0: none */
    const ph_io *io;
} ph_aligned;

/* One character of a rewritten text and what it does to the characters before the
   rewriting: 1 adds to the one last taken, 0 takes the place of the next one, -n takes
   the place of the next one and of n more. */
typedef struct ph_change {
    uint32_t point;
    int32_t change;
    uint32_t order; /* canonical combining class while a normal form is made */
} ph_change;

typedef struct ph_changes {
    ph_change *items;
    size_t count, capacity;
    const ph_io *io;
} ph_changes;

void ph_aligned_free(ph_aligned *text);
ph_status ph_aligned_grow(ph_aligned *text, size_t more);

static inline ph_status ph_aligned_reserve(ph_aligned *text, size_t more)
{
    if (more <= text->byte_capacity - text->length &&
        more <= text->span_capacity - text->length)
        return PH_OK;
    return ph_aligned_grow(text, more);
}

/* Appends bytes that all came from `span`, or [start, end) of the original. */
static inline ph_status ph_aligned_append(ph_aligned *text, const char *bytes,
                                          size_t count, ph_text_span span)
{
    ph_status status = ph_aligned_reserve(text, count);
    if (status != PH_OK) return status;
    for (size_t i = 0; i < count; i++) {
        text->bytes[text->length] = bytes[i];
        text->spans[text->length++] = span;
    }
    return PH_OK;
}

ph_status ph_aligned_append_original(ph_aligned *text, const char *original, size_t start,
                                     size_t end);

/* Appends a part of another aligned text. */
ph_status ph_aligned_append_part(ph_aligned *text, const ph_aligned *from, size_t start,
                                 size_t end);

/* Appends the part [start, end) of `from` rewritten by the changes. */
ph_status ph_aligned_append_changed(ph_aligned *text, const ph_aligned *from,
                                    size_t start, size_t end, const ph_changes *changes);

ph_status ph_changes_grow(ph_changes *changes);

static inline ph_status ph_changes_add(ph_changes *changes, uint32_t point, int change)
{
    if (changes->count == changes->capacity) {
        ph_status status = ph_changes_grow(changes);
        if (status != PH_OK) return status;
    }
    changes->items[changes->count++] = (ph_change){.point = point, .change = change};
    return PH_OK;
}

#endif
