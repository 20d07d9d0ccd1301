/*
 * pattern.c - finding what tokenizer files search for; see pattern.h.
 */
#define _GNU_SOURCE /* memmem */
#include "text/pattern.h"

#include <limits.h>
#include <string.h>

#include "io/utf8.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES       "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE       "[^\\r\\n\\p{L}\\p{N}]?"
#define LLAMA3(number)                                                                   \
    CONTRACTIONS "|" BEFORE "\\p{L}+|" number "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES
#define O200K(tail, number)                                                              \
    BEFORE UPPER "*" LOWER "+" tail "|" BEFORE UPPER "+" LOWER "*" tail "|" number       \
                 "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES

static const struct {
    const char *regex;
    ph_pattern pattern;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {.kind = PH_PATTERN_GPT2}},
    {LLAMA3("\\p{N}{1,3}"), {.kind = PH_PATTERN_LLAMA3, .digits = 3}},
    {LLAMA3("\\p{N}"), {.kind = PH_PATTERN_LLAMA3, .digits = 1}},
    {CONTRACTIONS "|" BEFORE
                  "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES,
     {.kind = PH_PATTERN_LLAMA3, .digits = 1, .marks = 1}},
    {O200K(CONTRACTIONS "?", "\\p{N}{1,3}"),
     {.kind = PH_PATTERN_O200K, .digits = 3, .contractions = 1}},
    {O200K("", "\\p{N}"), {.kind = PH_PATTERN_O200K, .digits = 1}},
    {"\\w+|[^\\w\\s]+", {.kind = PH_PATTERN_WORDS, .regex = 1}},
    {"\\s+", {.kind = PH_PATTERN_RUN, .flags = PH_CHAR_SPACE, .least = 1}},
    {"\\s{2,}", {.kind = PH_PATTERN_RUN, .flags = PH_CHAR_SPACE, .least = 2}},
    {" +", {.kind = PH_PATTERN_RUN, .text = " ", .length = 1, .least = 1}},
    {" {2,}", {.kind = PH_PATTERN_RUN, .text = " ", .length = 1, .least = 2}},
    {"\\s", {.kind = PH_PATTERN_CLASS, .flags = PH_CHAR_SPACE, .least = 1}},
    {"\\p{N}", {.kind = PH_PATTERN_CLASS, .flags = PH_CHAR_NUMBER, .least = 1}},
    {"\\p{N}{1,3}",
     {.kind = PH_PATTERN_RUN, .flags = PH_CHAR_NUMBER, .least = 1, .digits = 3}},
};

int ph_pattern_of_regex(ph_pattern *pattern, const char *regex, size_t length)
{
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strlen(known[i].regex) != length || memcmp(known[i].regex, regex, length))
            continue;
        *pattern = known[i].pattern;
        return 0;
    }
    return -1;
}

static size_t find_text(const ph_pattern *pattern, const char *text, size_t length,
                        size_t from, size_t *end)
{
    const char *found =
        pattern->length == 1
            ? memchr(text + from, pattern->text[0], length - from)
            : memmem(text + from, length - from, pattern->text, pattern->length);
    size_t at = found ? (size_t)(found - text) : length;
    *end = found ? at + pattern->length : length;
    return at;
}

/* Does the character at `at` belong to the class or run? *next is the one behind it. */
static int belongs(const ph_pattern *pattern, const ph_unicode *unicode, const char *text,
                   size_t length, size_t at, size_t *next)
{
    uint32_t point = 0;
    *next = at + (size_t)ph_utf8_decode(text + at, length - at, &point);
    if (pattern->text) return text[at] == pattern->text[0];
    return (ph_char_flags(unicode, point) & pattern->flags) != 0;
}

static size_t find_run(const ph_pattern *pattern, const ph_unicode *unicode,
                       const char *text, size_t length, size_t at, size_t *end)
{
    const int one = pattern->kind == PH_PATTERN_CLASS;
    const int most = one ? 1 : pattern->digits ? pattern->digits : INT_MAX;
    while (at < length) {
        size_t next = at;
        int count = 0;
        *end = at;
        while (*end < length && count < most &&
               belongs(pattern, unicode, text, length, *end, &next))
            *end = next, count++;
        if (count >= pattern->least) return at;
        at = next;
    }
    *end = length;
    return length;
}

/* White space, a word character, or neither. The reference has two engines for regular
   expressions, which differ in what a word character is: that of `Regex` counts the
   Latin-1 fractions and superscripts, and does not count the joiners. */
static uint32_t word_flags(const ph_pattern *pattern, const ph_unicode *unicode,
                           uint32_t point)
{
    uint32_t flags = ph_char_flags(unicode, point) & (PH_CHAR_SPACE | PH_CHAR_WORD);
    if (!pattern->regex) return flags;
    if (point == 0x200c || point == 0x200d) return 0;
    int number = point == 0xb2 || point == 0xb3 || point == 0xb9;
    return number || (point >= 0xbc && point <= 0xbe) ? PH_CHAR_WORD : flags;
}

/* A run of word characters, or of others that are no white space. */
static size_t find_word(const ph_pattern *pattern, const ph_unicode *unicode,
                        const char *text, size_t length, size_t at, size_t *end)
{
    uint32_t kind = 0; /* of the run: what its characters have in common */
    *end = at;
    while (*end < length) {
        uint32_t point = 0;
        size_t step = (size_t)ph_utf8_decode(text + *end, length - *end, &point);
        uint32_t flags = word_flags(pattern, unicode, point);
        if (*end > at && flags != kind) break;
        *end += step;
        kind = flags;
        if (flags & PH_CHAR_SPACE) at = *end;
    }
    return at;
}

size_t ph_pattern_find(const ph_pattern *pattern, const ph_unicode *unicode,
                       const char *text, size_t length, size_t from, size_t *end)
{
    *end = length;
    if (from >= length) return length;
    switch (pattern->kind) {
    case PH_PATTERN_TEXT: return find_text(pattern, text, length, from, end);
    case PH_PATTERN_CLASS:
    case PH_PATTERN_RUN: return find_run(pattern, unicode, text, length, from, end);
    case PH_PATTERN_WORDS: return find_word(pattern, unicode, text, length, from, end);
    case PH_PATTERN_GPT2: *end = ph_split_gpt2(unicode, text, length, from); break;
    default: *end = ph_split_llama3(pattern, unicode, text, length, from); break;
    }
    return from;
}
