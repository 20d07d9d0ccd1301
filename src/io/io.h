/*
 * io.h - what every file of this folder shares: memory through the caller's hooks,
 * growing arrays, and the sentence that goes with a failure.
 *
 * Text from files is untrusted: names reach a sentence only through ph_io_quote, which
 * shortens them and shows control and direction characters as escapes.
 */
#ifndef PH_IO_IO_H
#define PH_IO_IO_H

#include "base/reserved.h"
#include "polyhead_io.h"

#if defined(__GNUC__)
#define PH_IO_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define PH_IO_PRINTF(text, first)
#endif

void *ph_io_alloc(const ph_io *io,
                  size_t bytes); /* io may be NULL; 0 bytes gives memory */
void ph_io_release(const ph_io *io, void *ptr);

/* The memory hooks alone: what a handle stores to free itself later. */
ph_io ph_io_hooks(const ph_io *io);

/* Grows *items to a capacity of at least `need` items of `item` bytes; it may move.
   PH_OUT_OF_MEMORY changes nothing. */
ph_status ph_io_grow(const ph_io *io, void **items, size_t *capacity, size_t need,
                     size_t item);

/* Writes the sentence to io->error, if there is one, and returns status. */
ph_status ph_io_fail(const ph_io *io, ph_status status, const char *format, ...)
    PH_IO_PRINTF(3, 4);

/* Returns from the function if a program uses what this version does not know. */
#define PH_IO_CHECK_RESERVED(io, name, words)                                            \
    do {                                                                                 \
        if (!PH_ALL_ZERO(words))                                                         \
            return ph_io_fail(io, PH_BAD_ARGUMENT, name ".reserved " PH_RESERVED_WORDS); \
    } while (0)

/* "out of memory (needed N bytes for WHAT)" */
ph_status ph_io_no_memory(const ph_io *io, size_t bytes, const char *what);

/* PH_BAD_ARGUMENT: "WHAT is NULL" */
ph_status ph_io_null(const ph_io *io, const char *what);

/* The text of an errno value, safe in any thread. */
typedef struct ph_io_words {
    char text[96];
} ph_io_words;

ph_io_words ph_io_system_error(int number);

/* A name in quotes, fit for a terminal: at most 60 bytes of it, escapes where needed. */
typedef struct ph_io_quoted {
    char text[128];
} ph_io_quoted;

ph_io_quoted ph_io_quote(const char *text, size_t length);

#endif
