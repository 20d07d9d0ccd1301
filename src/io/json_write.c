/*
 * json_write.c - the JSON writer; see json_write.h.
 *
 * Output goes to the caller's write function at once; the state is the depth, whether a
 * comma is due, and which levels are arrays.
 */
#include "io/json_write.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "io/number.h"
#include "io/unsafe.h"
#include "io/utf8.h"

void ph_json_write_file(void *file, const char *bytes, size_t count)
{
    fwrite(bytes, 1, count, file); /* the file remembers a failure */
}

static void put(ph_json_writer *out, const char *bytes, size_t count)
{
    if (count > 0) out->write(out->user, bytes, count);
}

static int must_escape(const ph_json_writer *out, uint32_t point)
{
    int markup = point == '<' || point == '>' || point == '&';
    return point == '"' || point == '\\' || (out->in_html && markup) ||
           ph_unsafe_character(point);
}

static void put_escape(ph_json_writer *out, uint32_t point)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *found = point > 0 && point < 0x80 ? strchr(from, (int)point) : NULL;
    char text[16];
    uint32_t above = point - 0x10000;
    if (found)
        snprintf(text, sizeof text, "\\%c", to[found - from]);
    else if (point < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", (unsigned)point);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xd800 + (above >> 10)),
                 (unsigned)(0xdc00 + (above & 0x3ff)));
    put(out, text, strlen(text));
}

static void put_quoted(ph_json_writer *out, const char *text)
{
    size_t length = strlen(text), start = 0, at = 0;
    put(out, "\"", 1);
    while (at < length) {
        uint32_t point = 0;
        int valid = ph_utf8_decode(text + at, length - at, &point);
        size_t step = valid ? (size_t)valid : 1;
        if (!valid || must_escape(out, point)) {
            put(out, text + start, at - start); /* the characters before it */
            if (valid)
                put_escape(out, point);
            else
                put(out, "\xef\xbf\xbd", 3); /* U+FFFD */
            start = at + step;
        }
        at += step;
    }
    put(out, text + start, at - start);
    put(out, "\"", 1);
}

static void put_line_break(ph_json_writer *out)
{
    put(out, "\n", 1);
    for (int i = 0; i < out->indent * out->depth; i++) put(out, " ", 1);
}

/* Before every value: a comma if one is due, and its key. */
static void put_key(ph_json_writer *out, const char *key)
{
    int in_array = out->depth > 0 && (out->arrays >> (out->depth - 1) & 1);
    if (out->comma) put(out, ",", 1);
    if (out->indent && out->depth) put_line_break(out);
    out->comma = 1;
    if (out->depth > 0 && !in_array) {
        put_quoted(out, key ? key : "");
        put(out, ": ", out->indent ? 2 : 1);
    }
}

static void begin(ph_json_writer *out, const char *key, int is_array)
{
    put_key(out, key);
    put(out, is_array ? "[" : "{", 1);
    if (out->depth < 64) {
        uint64_t bit = UINT64_C(1) << out->depth++;
        out->arrays = is_array ? out->arrays | bit : out->arrays & ~bit;
    }
    out->comma = 0;
}

void ph_json_begin_object(ph_json_writer *out, const char *key)
{
    begin(out, key, 0);
}

void ph_json_begin_array(ph_json_writer *out, const char *key)
{
    begin(out, key, 1);
}

void ph_json_end(ph_json_writer *out)
{
    if (out->depth == 0) return;
    out->depth--;
    if (out->indent && out->comma) put_line_break(out); /* not within {} */
    put(out, out->arrays >> out->depth & 1 ? "]" : "}", 1);
    out->comma = out->depth > 0;
}

void ph_json_string(ph_json_writer *out, const char *key, const char *text)
{
    put_key(out, key);
    if (text)
        put_quoted(out, text);
    else
        put(out, "null", 4);
}

void ph_json_integer(ph_json_writer *out, const char *key, int64_t value)
{
    char text[32];
    put_key(out, key);
    put(out, text, (size_t)snprintf(text, sizeof text, "%" PRId64, value));
}

void ph_json_unsigned(ph_json_writer *out, const char *key, uint64_t value)
{
    char text[32];
    put_key(out, key);
    put(out, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, value));
}

void ph_json_double(ph_json_writer *out, const char *key, double value)
{
    char text[PH_NUMBER_TEXT];
    put_key(out, key);
    put(out, text, (size_t)ph_number_print(value, text));
}

void ph_json_float(ph_json_writer *out, const char *key, float value)
{
    char text[PH_NUMBER_TEXT];
    put_key(out, key);
    put(out, text, (size_t)ph_number_print_float(value, text));
}

void ph_json_bool(ph_json_writer *out, const char *key, int value)
{
    put_key(out, key);
    put(out, value ? "true" : "false", value ? 4 : 5);
}

void ph_json_raw(ph_json_writer *out, const char *key, const char *json)
{
    put_key(out, key);
    put(out, json, strlen(json));
}
