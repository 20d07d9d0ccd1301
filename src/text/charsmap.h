/*
 * charsmap.h - the precompiled character maps of SentencePiece: a double-array trie from
 * sequences of bytes to the texts that replace them.
 */
#ifndef PH_TEXT_CHARSMAP_H
#define PH_TEXT_CHARSMAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct ph_charsmap {
    unsigned char *bytes; /* all of it, as stored */
    size_t units;         /* of the trie, 4 bytes each, from bytes + 4 on */
    const char *texts;    /* NUL-ended, then the next */
    size_t texts_length;
} ph_charsmap;

/* Reads the layout of `size` bytes; 0, or -1 if they are no character map. */
int ph_charsmap_open(ph_charsmap *map, unsigned char *bytes, size_t size);

/* What the shortest known prefix of [text, text + length) becomes, or NULL. */
const char *ph_charsmap_find(const ph_charsmap *map, const char *text, size_t length);

/* Decodes base64 into out (length / 4 * 3 bytes at most); -1 if it is malformed. */
int ph_base64_decode(const char *text, size_t length, unsigned char *out, size_t *size);

#endif
