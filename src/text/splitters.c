/*
 * splitters.c - the regular expressions of published byte-level tokenizers, written out.
 *
 * Each function takes a place and returns the end of the piece that begins there; the
 * alternatives of the expression are tried in its order. Classes: S white space, L
 * letters, N numbers, M marks, O all others.
 */
#include "io/utf8.h"
#include "text/pattern.h"

enum {
    S = PH_CHAR_SPACE,
    L = PH_CHAR_LETTER,
    N = PH_CHAR_NUMBER,
    M = PH_CHAR_MARK,
    UPPER = PH_CHAR_UPPER,
    LOWER = PH_CHAR_LOWER
};

typedef struct text_place {
    const ph_unicode *unicode;
    const char *text;
    size_t length;
} text_place;

/* The character at `at`: its code point, and its class bits; *next is where the one
   behind it begins. At the end of the text no bit is set. */
static uint32_t look(const text_place *p, size_t at, uint32_t *point, size_t *next)
{
    *next = at;
    *point = 0;
    if (at >= p->length) return 0;
    *next += (size_t)ph_utf8_decode(p->text + at, p->length - at, point);
    return ph_char_flags(p->unicode, *point);
}

static uint32_t flags_at(const text_place *p, size_t at)
{
    uint32_t point;
    size_t next;
    return look(p, at, &point, &next);
}

/* The end of a run of characters that have one of `some` bits and none of `none`, at
   most `most` characters. */
static size_t run(const text_place *p, size_t at, uint32_t some, uint32_t none,
                  size_t most)
{
    for (; most > 0 && at < p->length; most--) {
        uint32_t point;
        size_t next;
        uint32_t flags = look(p, at, &point, &next);
        if ((some && !(flags & some)) || flags & none) break;
        at = next;
    }
    return at;
}

static int is_newline(const text_place *p, size_t at)
{
    return at < p->length && (p->text[at] == '\r' || p->text[at] == '\n');
}

/* ---- contractions: 's 't 're 've 'm 'll 'd ---- */

/* The letter at `at` as a small ASCII letter, or 0; long s folds to s. */
static char small_letter(const text_place *p, size_t at, int any_case, size_t *next)
{
    uint32_t point;
    look(p, at, &point, next);
    if (any_case && point >= 'A' && point <= 'Z') point += 'a' - 'A';
    if (any_case && point == 0x17f) point = 's';
    return point < 0x80 ? (char)point : 0;
}

static size_t contraction(const text_place *p, size_t at, int any_case)
{
    size_t next, end;
    if (at >= p->length || p->text[at] != '\'') return at;
    char first = small_letter(p, at + 1, any_case, &next);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return next;
    char second = small_letter(p, next, any_case, &end);
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
        return end;
    return at;
}

/* ---- white space: \s+(?!\S)|\s+ ---- */

/* All of a run at the end of the text; else the last character of it is left to the next
   piece, unless it is the only one. */
static size_t space(const text_place *p, size_t at)
{
    size_t end = at, last = at, next;
    uint32_t point;
    while (end < p->length && look(p, end, &point, &next) & S) {
        last = end;
        end = next;
    }
    return end == p->length || last == at ? end : last;
}

size_t ph_split_gpt2(const ph_unicode *unicode, const char *text, size_t length,
                     size_t at)
{
    const text_place p = {unicode, text, length};
    size_t end = contraction(&p, at, 0), from = at;
    if (end > at) return end;
    if (text[at] == ' ' && at + 1 < length && !(flags_at(&p, at + 1) & S)) from++;
    uint32_t flags = flags_at(&p, from);
    if (flags & S) return space(&p, at);
    if (flags & L) return run(&p, from, L, 0, SIZE_MAX);
    if (flags & N) return run(&p, from, N, 0, SIZE_MAX);
    return run(&p, from, 0, S | L | N, SIZE_MAX);
}

/* ---- llama3 and o200k ---- */

/* \p{L}+, or [\p{L}\p{M}]+, with one character before it that is no newline, letter or
   number; `at` if there is no such word. */
static size_t word_llama3(const text_place *p, size_t at, uint32_t letters)
{
    uint32_t point;
    size_t next, flags = look(p, at, &point, &next);
    if (!(flags & (L | N)) && point != '\r' && point != '\n' && next > at) {
        size_t end = run(p, next, letters, 0, SIZE_MAX);
        if (end > next) return end;
    }
    return run(p, at, letters, 0, SIZE_MAX);
}

/* Is the character one of Lm, Lo, M: both in [U] and in [W]? */
static int is_both(uint32_t flags)
{
    return flags & M || (flags & L && !(flags & (UPPER | LOWER)));
}

/* [U]*[W]+ from `at`: U = Lu Lt Lm Lo M, W = Ll Lm Lo M; `at` if it does not match. */
static size_t mixed_case(const text_place *p, size_t at)
{
    size_t upper = at, both = at, next; /* end of the U run, of its last Lm Lo M */
    uint32_t point, flags;
    while (upper < p->length &&
           (flags = look(p, upper, &point, &next), flags & UPPER || is_both(flags))) {
        upper = next;
        if (is_both(flags)) both = next;
    }
    size_t end = upper;
    while (end < p->length &&
           (flags = look(p, end, &point, &next), flags & LOWER || is_both(flags)))
        end = next;
    return end > upper ? end : both;
}

static size_t upper_case(const text_place *p, size_t at)
{
    uint32_t point, flags;
    size_t next;
    while (at < p->length &&
           (flags = look(p, at, &point, &next), flags & UPPER || is_both(flags)))
        at = next;
    return at;
}

/* The first two alternatives of o200k, without what may follow them. */
static size_t word_o200k(const text_place *p, size_t at)
{
    uint32_t point, flags;
    size_t next, end;
    flags = look(p, at, &point, &next);
    int prefix = !(flags & (L | N)) && point != '\r' && point != '\n';
    if (prefix && (end = mixed_case(p, next)) > next) return end;
    if ((end = mixed_case(p, at)) > at) return end;
    if (prefix && (end = upper_case(p, next)) > next) return end;
    return upper_case(p, at);
}

/* \s*[\r\n]+ : up to the last newline of a run of white space; `at` if it holds none. */
static size_t newlines(const text_place *p, size_t at)
{
    size_t end = at, next;
    uint32_t point;
    for (size_t i = at; i < p->length && look(p, i, &point, &next) & S; i = next)
        if (point == '\r' || point == '\n') end = next;
    return end;
}

size_t ph_split_llama3(const ph_pattern *pattern, const ph_unicode *unicode,
                       const char *text, size_t length, size_t at)
{
    const text_place p = {unicode, text, length};
    int o200k = pattern->kind == PH_PATTERN_O200K;
    uint32_t letters = pattern->marks ? L | M : L;
    size_t end = o200k ? at : contraction(&p, at, 1), from = at;
    if (end > at) return end;
    end = o200k ? word_o200k(&p, at) : word_llama3(&p, at, letters);
    if (end > at) return pattern->contractions ? contraction(&p, end, 1) : end;
    end = run(&p, at, N, 0, (size_t)pattern->digits);
    if (end > at) return end;
    if (text[at] == ' ') from++;
    end = run(&p, from, 0, S | N | letters, SIZE_MAX);
    if (end > from) {
        while (is_newline(&p, end) || (o200k && end < length && text[end] == '/')) end++;
        return end;
    }
    end = newlines(&p, at);
    return end > at ? end : space(&p, at);
}
