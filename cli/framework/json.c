/*
 * json.c - writes JSON to stdout; see json.h.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/json.h"

/* Length of a valid UTF-8 character at text, 0 if there is none. */
static int utf8_length(const unsigned char *text)
{
    static const struct {
        unsigned char mask, lead, length;
    } forms[] = {{0x80, 0x00, 1}, {0xE0, 0xC0, 2}, {0xF0, 0xE0, 3}, {0xF8, 0xF0, 4}};
    for (int f = 0; f < 4; f++) {
        if ((text[0] & forms[f].mask) != forms[f].lead) continue;
        for (int i = 1; i < forms[f].length; i++)
            if ((text[i] & 0xC0) != 0x80) return 0;
        /* overlong forms, halves of surrogate pairs, beyond the last code point */
        int wrong =
            (text[0] == 0xC0 || text[0] == 0xC1) || (text[0] == 0xE0 && text[1] < 0xA0) ||
            (text[0] == 0xED && text[1] > 0x9F) || (text[0] == 0xF0 && text[1] < 0x90) ||
            (text[0] == 0xF4 && text[1] > 0x8F) || text[0] > 0xF4;
        return wrong ? 0 : forms[f].length;
    }
    return 0;
}

/* Control and direction characters beyond ASCII, all of them two or three bytes long:
   a terminal must not see them, and JSON can say them otherwise. 0: another character. */
static unsigned harmful(const unsigned char *text, int length)
{
    unsigned point = length == 2   ? (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu)
                     : length == 3 ? (text[0] & 0x0Fu) << 12 | (text[1] & 0x3Fu) << 6 |
                                         (text[2] & 0x3Fu)
                                   : 0;
    int is = (point >= 0x80 && point < 0xA0) || point == 0x61C ||
             (point >= 0x200E && point <= 0x200F) ||
             (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
    return is ? point : 0;
}

static void put_string(const char *text)
{
    putchar('"');
    while (*text) {
        unsigned char c = (unsigned char)*text;
        int length = utf8_length((const unsigned char *)text);
        unsigned point = harmful((const unsigned char *)text, length);
        if (c == '"' || c == '\\')
            printf("\\%c", c);
        else if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 32 || c == 127)
            printf("\\u%04x", c);
        else if (point)
            printf("\\u%04x", point);
        else if (length == 0)
            fputs("\\ufffd", stdout); /* not UTF-8: the replacement character */
        else
            fwrite(text, 1, (size_t)length, stdout);
        text += length ? length : 1;
    }
    putchar('"');
}

/* Comma, line break, indentation and key of the next entry. */
static void entry(json *j, const char *key)
{
    if (j->filled[j->depth]) putchar(',');
    j->filled[j->depth] = 1;
    printf("\n%*s", 2 * j->depth, "");
    if (!key) return;
    put_string(key);
    fputs(": ", stdout);
}

static void push(json *j, char bracket)
{
    putchar(bracket);
    if (j->depth + 1 >= JSON_DEPTH) abort(); /* a mistake of the program */
    j->depth++;
    j->closer[j->depth] = bracket == '{' ? '}' : ']';
    j->filled[j->depth] = 0;
}

json json_begin(const char *schema)
{
    json j;
    memset(&j, 0, sizeof j);
    push(&j, '{');
    json_text(&j, "schema", schema);
    return j;
}

void json_end(json *j)
{
    while (j->depth) json_close(j);
    putchar('\n');
}

void json_open(json *j, const char *key, char bracket)
{
    entry(j, key);
    push(j, bracket);
}

void json_close(json *j)
{
    if (j->filled[j->depth]) printf("\n%*s", 2 * (j->depth - 1), "");
    putchar(j->closer[j->depth--]);
}

void json_text(json *j, const char *key, const char *text)
{
    entry(j, key);
    if (text)
        put_string(text);
    else
        fputs("null", stdout);
}

void json_int(json *j, const char *key, int64_t value)
{
    entry(j, key);
    printf("%lld", (long long)value);
}

/* The shortest of the given precisions that reads back as the same number. */
static void put_real(double value, int digits, int single)
{
    char text[40];
    if (!isfinite(value)) {
        fputs("null", stdout);
        return;
    }
    for (int precision = 1; precision <= digits; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, value);
        if (single ? strtof(text, NULL) == (float)value : strtod(text, NULL) == value)
            break;
    }
    fputs(text, stdout);
}

void json_real(json *j, const char *key, double value)
{
    entry(j, key);
    put_real(value, 17, 0);
}

void json_float(json *j, const char *key, float value)
{
    entry(j, key);
    put_real((double)value, 9, 1);
}

void json_bool(json *j, const char *key, int value)
{
    entry(j, key);
    fputs(value ? "true" : "false", stdout);
}
