/*
 * unicode.h - what tokenizers must know of characters: classes, normal forms, lower case.
 *
 * The tables (unicode.bin, made by tools/text-tables) answer as the reference
 * implementation does, which takes its classes from several versions of Unicode.
 */
#ifndef PH_TEXT_UNICODE_H
#define PH_TEXT_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Property bits, in the order of tools/text-tables. */
enum {
    PH_CHAR_SPACE = 1 << 0,       /* White_Space */
    PH_CHAR_UPPER = 1 << 1,       /* Lu, Lt */
    PH_CHAR_LOWER = 1 << 2,       /* Ll */
    PH_CHAR_LETTER = 1 << 3,      /* L */
    PH_CHAR_NUMBER = 1 << 4,      /* N, in patterns */
    PH_CHAR_MARK = 1 << 5,        /* M, in patterns */
    PH_CHAR_DIGIT = 1 << 6,       /* N, of the splitter Digits */
    PH_CHAR_PUNCTUATION = 1 << 7, /* as BERT splits */
    PH_CHAR_CONTROL = 1 << 8,     /* what BERT drops */
    PH_CHAR_ACCENT = 1 << 9,      /* Mn, as BERT strips */
    PH_CHAR_COMBINING = 1 << 10,  /* M, of the normalizer StripAccents */
    PH_CHAR_WORD = 1 << 11,       /* \w */
    PH_CHAR_REORDER = 1 << 12,    /* has a canonical combining class */
    PH_CHAR_COMPOSES = 1 << 13,   /* may compose with the character before it */
    PH_CHAR_CANONICAL = 1 << 14,  /* has a canonical decomposition */
    PH_CHAR_COMPATIBILITY = 1 << 15,
    PH_CHAR_CASE = 1 << 16,    /* lower case differs */
    PH_CHAR_JOINS = 1 << 17,   /* belongs to the grapheme cluster before it */
    PH_CHAR_PREPEND = 1 << 18, /* belongs to the one after it */
    PH_CHAR_BREAKS = 1 << 19,  /* is a cluster alone */
    PH_CHAR_PICTOGRAPH = 1 << 20
};

enum { PH_UNICODE_FLAT = 0x40000 }; /* classes of planes 0 to 3 lie in a flat table */

typedef struct ph_unicode {
    uint32_t flags[256];                 /* of a class */
    unsigned char flat[PH_UNICODE_FLAT]; /* code point -> class */
} ph_unicode;

void ph_unicode_fill(ph_unicode *unicode);

/* Class bits of a code point beyond the flat table. */
uint32_t ph_unicode_high(const ph_unicode *unicode, uint32_t point);

static inline uint32_t ph_char_flags(const ph_unicode *unicode, uint32_t point)
{
    return point < PH_UNICODE_FLAT ? unicode->flags[unicode->flat[point]]
                                   : ph_unicode_high(unicode, point);
}

enum { PH_CHAR_MAX_PARTS = 20 }; /* code points one decomposes to, at most */

/* What a code point becomes; at most PH_CHAR_MAX_PARTS code points, at least one.
   Decompositions are complete. */
int ph_char_decompose(uint32_t point, int compatibility, uint32_t *parts);
int ph_char_lower(uint32_t point, uint32_t *parts);

uint32_t ph_char_compose(uint32_t first, uint32_t second); /* 0: they do not compose */
int ph_char_combining_class(uint32_t point);

#endif
