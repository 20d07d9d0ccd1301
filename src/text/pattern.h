/*
 * pattern.h - what tokenizer files search for: a fixed text, one class of characters, or
 * one of the regular expressions that published tokenizers use.
 *
 * There is no regular expression engine. Each expression that occurs has a splitter
 * written out, chosen by comparing the whole expression; any other is refused.
 */
#ifndef PH_TEXT_PATTERN_H
#define PH_TEXT_PATTERN_H

#include <stddef.h>

#include "text/unicode.h"

typedef enum ph_pattern_kind {
    PH_PATTERN_TEXT = 0, /* a fixed text */
    PH_PATTERN_CLASS,    /* each single character with one of `flags` */
    PH_PATTERN_RUN,   /* `least` or more characters with one of `flags`, or of `text`; at
                         most `digits` unless that is 0 */
    PH_PATTERN_WORDS, /* \w+|[^\w\s]+; as a Regex it has its own \w, see `regex` */
    PH_PATTERN_GPT2,
    PH_PATTERN_LLAMA3, /* and its relatives; see `digits` and `marks` */
    PH_PATTERN_O200K
} ph_pattern_kind;

typedef struct ph_pattern {
    ph_pattern_kind kind;
    const char *text;
    size_t length;
    uint32_t flags;
    int least;        /* of PH_PATTERN_RUN */
    int digits;       /* numbers are split into this many */
    int marks;        /* marks count as letters */
    int contractions; /* of PH_PATTERN_O200K: words end with 's, 't, ... */
    int regex;        /* of PH_PATTERN_WORDS */
} ph_pattern;

/* The pattern of a regular expression; 0, or -1 if none is written out for it. */
int ph_pattern_of_regex(ph_pattern *pattern, const char *regex, size_t length);

/* Finds the first match at or behind `from`: its start, and its end in *end. Without one
   returns length. */
size_t ph_pattern_find(const ph_pattern *pattern, const ph_unicode *unicode,
                       const char *text, size_t length, size_t from, size_t *end);

/* End of the piece that begins at `at`, by one of the splitters that cover all text. */
size_t ph_split_gpt2(const ph_unicode *unicode, const char *text, size_t length,
                     size_t at);
size_t ph_split_llama3(const ph_pattern *pattern, const ph_unicode *unicode,
                       const char *text, size_t length, size_t at);

#endif
