/*
 * words.c - reading words and lines: strict numbers, ends of lines, quoting, what a
 * misspelt word meant.
 *
 * The C library's own readers accept blanks, hexadecimal, "inf", "nan" and rubbish behind
 * the number, so they are not used.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/cli.h"
#include "io/number.h"
#include "io/unsafe.h"
#include "io/utf8.h"

/* ---- numbers ---- */

int cli_read_int(const char *text, int64_t *value)
{
    int negative = *text == '-';
    int64_t sum = 0;
    if (*text == '-' || *text == '+') text++;
    if (!*text) return 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return 0;
        int digit = *text - '0';
        /* counted downwards, since the smallest number has no positive twin */
        if (sum < (INT64_MIN + digit) / 10) return 0;
        sum = sum * 10 - digit;
    }
    if (!negative && sum == INT64_MIN) return 0;
    *value = negative ? sum : -sum;
    return 1;
}

int cli_read_real(const char *text, double *value)
{
    return ph_number_parse(text, strlen(text), value) == 0;
}

/* ---- lines ---- */

static int is_line_end(char c)
{
    return c == '\n' || c == '\r';
}

size_t cli_line(const char *text, size_t size, size_t *next)
{
    size_t length = 0;
    while (length < size && !is_line_end(text[length])) length++;
    *next = length + (length < size);
    if (*next < size && text[length] == '\r' && text[*next] == '\n') ++*next;
    return length;
}

size_t cli_most_lines(const char *text)
{
    size_t lines = 1;
    for (; *text; text++) lines += is_line_end(*text);
    return lines;
}

/* ---- quoting ---- */

const char *cli_quote(const char *word, char *buffer, size_t size)
{
    size_t length = strlen(word), limit = size - 4, at = 0, n = 0;
    while (at < length) {
        uint32_t point = 0;
        int step = ph_utf8_decode(word + at, length - at, &point);
        int shown = step > 0 && !ph_unsafe_character(point);
        size_t wide = shown ? (size_t)step : 1;
        if (n + wide > limit) break;
        memcpy(buffer + n, shown ? word + at : "?", wide);
        n += wide;
        at += step > 0 ? (size_t)step : 1;
    }
    strcpy(buffer + n, at < length ? "..." : "");
    return buffer;
}

/* ---- misspelt words ---- */

enum { NEAR_MAX = 32 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* '_' for '-' and capitals for small letters do not count as mistakes. */
static int plain(char c)
{
    return c == '_' ? '-' : tolower((unsigned char)c);
}

/* Edit distance with swapped neighbours as one mistake. */
static int distance(const char *a, size_t n, const char *b, size_t m)
{
    int row[3][NEAR_MAX + 1];
    for (size_t j = 0; j <= m; j++) row[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *now = row[i % 3];
        const int *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int same = plain(a[i - 1]) == plain(b[j - 1]);
            now[j] = least(before[j - 1] + !same, least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) &&
                plain(a[i - 2]) == plain(b[j - 1]))
                now[j] = least(now[j], earlier[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

/* The start of a name counts as a small mistake: people stop typing early. */
static int mistakes(const char *word, size_t n, const char *name)
{
    size_t m = strlen(name);
    if (m > NEAR_MAX) return NEAR_MAX;
    if (n >= 2 && n < m && distance(word, n, name, n) == 0) return 1;
    return distance(word, n, name, m);
}

const char *cli_nearest(const char *word, const char *const *list)
{
    size_t n = strlen(word);
    if (n == 0 || n > NEAR_MAX) return NULL;
    int allowed = n <= 2 ? 1 : n <= 5 ? 2 : 3, best = allowed + 1;
    const char *nearest = NULL;
    for (; *list; list++) {
        int count = mistakes(word, n, *list);
        int hopeless = count >= (int)n; /* nothing of the word is left */
        if (!hopeless && count < best) {
            best = count;
            nearest = *list;
        }
    }
    return nearest;
}
