/*
 * io.c - memory, growing arrays and error sentences of the io folder; see io.h.
 */
#define _POSIX_C_SOURCE 200809L /* strerror_r */
#include "io/io.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/format.h"
#include "base/size.h"
#include "io/unsafe.h"
#include "io/utf8.h"

ph_io ph_io_hooks(const ph_io *io)
{
    if (!io) return (ph_io){0};
    return (ph_io){.alloc = io->alloc, .release = io->release, .user = io->user};
}

void *ph_io_alloc(const ph_io *io, size_t bytes)
{
    if (bytes == 0) bytes = 1; /* so that NULL always means failure */
    return io && io->alloc ? io->alloc(io->user, bytes) : malloc(bytes);
}

void ph_io_release(const ph_io *io, void *ptr)
{
    if (!io || !io->alloc)
        free(ptr);
    else if (io->release)
        io->release(io->user, ptr);
}

ph_status ph_io_grow(const ph_io *io, void **items, size_t *capacity, size_t need,
                     size_t item)
{
    size_t wanted = 0, bytes = 0;
    if (need <= *capacity) return PH_OK;
    /* By half: while moving, old and new exist together, and that must stay small beside
       the file the items come from. */
    if (ph_size_add(*capacity, *capacity / 2, &wanted) || wanted < need) wanted = need;
    if (wanted < 16) wanted = 16;
    if (ph_size_mul(wanted, item, &bytes)) return PH_OUT_OF_MEMORY;
    void *moved = ph_io_alloc(io, bytes);
    if (!moved) return PH_OUT_OF_MEMORY;
    if (*items) memcpy(moved, *items, *capacity * item);
    ph_io_release(io, *items);
    *items = moved;
    *capacity = wanted;
    return PH_OK;
}

ph_status ph_io_fail(const ph_io *io, ph_status status, const char *format, ...)
{
    if (io && io->error && io->error_size > 0) {
        va_list list;
        va_start(list, format);
        ph_format_list(io->error, io->error_size, format, list);
        va_end(list);
    }
    return status;
}

ph_status ph_io_no_memory(const ph_io *io, size_t bytes, const char *what)
{
    return ph_io_fail(io, PH_OUT_OF_MEMORY, "out of memory: no %zu bytes for %s", bytes,
                      what);
}

ph_status ph_io_null(const ph_io *io, const char *what)
{
    return ph_io_fail(io, PH_BAD_ARGUMENT, "%s is NULL", what);
}

ph_io_words ph_io_system_error(int number)
{
    ph_io_words words;
    if (strerror_r(number, words.text, sizeof words.text) != 0)
        snprintf(words.text, sizeof words.text, "system error %d", number);
    return words;
}

ph_io_quoted ph_io_quote(const char *text, size_t length)
{
    ph_io_quoted quoted;
    const size_t longest = 60, capacity = sizeof quoted.text - sizeof "...'";
    size_t at = 0, used = 0;
    quoted.text[used++] = '\'';
    while (at < length && at < longest && used + 10 < capacity) {
        uint32_t point = 0;
        int step = ph_utf8_decode(text + at, length - at, &point);
        if (step == 0) {
            used += (size_t)sprintf(quoted.text + used, "\\x%02x",
                                    (unsigned)(unsigned char)text[at]);
            step = 1;
        } else if (ph_unsafe_character(point)) {
            used += (size_t)sprintf(quoted.text + used, "\\u%04x", (unsigned)point);
        } else {
            memcpy(quoted.text + used, text + at, (size_t)step);
            used += (size_t)step;
        }
        at += (size_t)step;
    }
    strcpy(quoted.text + used, at < length ? "...'" : "'");
    return quoted;
}
