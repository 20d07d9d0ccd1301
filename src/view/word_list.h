/*
 * word_list.h - a list of words from a file.
 */
#ifndef PH_VIEW_WORD_LIST_H
#define PH_VIEW_WORD_LIST_H

#include "polyhead_io.h"

typedef struct ph_words {
    char *bytes;        /* of all words, each closed by NUL */
    const char **words; /* (count) */
    int count;
} ph_words;

/* All of a file and a NUL behind it, to be released. */
ph_status ph_words_file(const char *path, char **bytes, size_t *size, const ph_io *io);

/* One word per line, or a JSON list of strings. */
ph_status ph_words_read(ph_words *out, const char *path, const ph_io *io);

/* "1", "2", ... */
ph_status ph_words_count(ph_words *out, int count, const ph_io *io);

void ph_words_free(ph_words *words, const ph_io *io);

#endif
