/* jinja_print.c - values of templates as str, repr and JSON of Python; see jinja.h. */
#include <math.h>
#include <stdio.h>

#include "io/number.h"
#include "io/utf8.h"
#include "text/jinja.h"

typedef ph_jinja_value value;

static void add_string(ph_jinja *j, ph_jinja_buffer *to, const char *text)
{
    ph_jinja_add(j, to, text, strlen(text));
}

static void add_number(ph_jinja *j, ph_jinja_buffer *to, value v)
{
    char text[PH_NUMBER_TEXT];
    if (v.kind == PH_JINJA_FLOAT) {
        if (!isfinite(v.real) || fabs(v.real) >= 1e16 ||
            (v.real != 0 && fabs(v.real) < 1e-4))
            return ph_jinja_fail(j, "a float is printed that has an exponent");
        ph_number_print(v.real, text);
        add_string(j, to, text);
        if (!strpbrk(text, ".e")) add_string(j, to, ".0");
        return;
    }
    snprintf(text, sizeof text, "%lld", (long long)v.integer);
    add_string(j, to, text);
}

/* repr of a text: in single quotes, unless it has only these. */
static void add_quoted(ph_jinja *j, ph_jinja_buffer *to, value v)
{
    static const char names[] = "\nn\tt\rr\\\\";
    char quote =
        memchr(v.text, '\'', v.length) && !memchr(v.text, '"', v.length) ? '"' : '\'';
    char code[8];
    ph_jinja_add(j, to, &quote, 1);
    for (size_t i = 0; i < v.length && !j->status; i++) {
        unsigned char c = (unsigned char)v.text[i];
        const char *known =
            c == '\\' || c == '\n' || c == '\t' || c == '\r' ? strchr(names, c) : NULL;
        if (c >= 0x7f)
            return ph_jinja_fail(j, "a text beyond ASCII is printed inside of a list");
        snprintf(code, sizeof code,
                 known    ? "\\%c"
                 : c < 32 ? "\\x%02x"
                          : "%c",
                 known ? known[1] : c);
        if (c == (unsigned char)quote) memcpy(code, "\\'", 3);
        add_string(j, to, code);
    }
    ph_jinja_add(j, to, &quote, 1);
}

void ph_jinja_print(ph_jinja *j, ph_jinja_buffer *to, value v, int quoted)
{
    const char *open = v.kind == PH_JINJA_LIST   ? "["
                       : v.kind == PH_JINJA_DICT ? "{"
                                                 : "(";
    const char *close = v.kind == PH_JINJA_LIST   ? "]"
                        : v.kind == PH_JINJA_DICT ? "}"
                                                  : ",)";
    if (v.kind == PH_JINJA_UNDEFINED && !quoted) return;
    if (v.kind == PH_JINJA_NONE) return add_string(j, to, "None");
    if (v.kind == PH_JINJA_BOOL) return add_string(j, to, v.integer ? "True" : "False");
    if (ph_jinja_is(v, PH_JINJA_NUMBERS)) return add_number(j, to, v);
    if (v.kind == PH_JINJA_TEXT && quoted) return add_quoted(j, to, v);
    if (ph_jinja_is(v, PH_JINJA_TEXTS) && !quoted)
        return ph_jinja_add(j, to, v.text, v.length);
    if (!ph_jinja_is(v, PH_JINJA_ARRAYS | 1u << PH_JINJA_DICT))
        return ph_jinja_fail(j, "%s is printed", ph_jinja_name(v));
    if (!ph_jinja_enter(j)) return;
    add_string(j, to, open);
    for (size_t i = 0; i < v.length && !j->status; i++) {
        if (i) add_string(j, to, ", ");
        ph_jinja_print(j, to, v.items[v.kind == PH_JINJA_DICT ? 2 * i : i], 1);
        if (v.kind != PH_JINJA_DICT) continue;
        add_string(j, to, ": ");
        ph_jinja_print(j, to, v.items[2 * i + 1], 1);
    }
    add_string(j, to, *close == ',' && v.length != 1 ? ")" : close);
    j->depth--;
}

value ph_jinja_str(ph_jinja *j, value v)
{
    ph_jinja_buffer to = {0};
    if (ph_jinja_is(v, PH_JINJA_TEXTS)) return ph_jinja_text(v.text, v.length);
    ph_jinja_print(j, &to, v, 0);
    return ph_jinja_taken(&to);
}

static void dump_text(ph_jinja *j, ph_jinja_buffer *to, value v, int ascii)
{
    static const char escaped[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
    char code[16];
    add_string(j, to, "\"");
    for (size_t i = 0, length = 0; i < v.length && !j->status; i += length) {
        uint32_t c = (unsigned char)v.text[i];
        const char *known = c && c < 128 ? strchr(escaped, (char)c) : NULL;
        length = 1;
        if (c >= 128) length = (size_t)ph_utf8_decode(v.text + i, v.length - i, &c);
        if (!length) return ph_jinja_fail(j, "a text that is no UTF-8 becomes JSON");
        if (known)
            snprintf(code, sizeof code, "\\%c", names[known - escaped]);
        else if (c >= 0x10000)
            snprintf(code, sizeof code, "\\u%04x\\u%04x", 0xd7c0 + (c >> 10),
                     0xdc00 + (c & 0x3ff));
        else
            snprintf(code, sizeof code, "\\u%04x", c);
        if (known || c < 32 || (ascii && c >= 127))
            add_string(j, to, code);
        else
            ph_jinja_add(j, to, v.text + i, length);
    }
    add_string(j, to, "\"");
}

static void dump_break(ph_jinja *j, ph_jinja_buffer *to, const ph_jinja_json *how,
                       int level)
{
    if (how->indent < 0) return;
    add_string(j, to, "\n");
    for (int i = 0; i < how->indent * level && !j->status; i++) add_string(j, to, " ");
}

/* The keys of a dict are texts here, as those of JSON are. */
static void dump_items(ph_jinja *j, ph_jinja_buffer *to, value v,
                       const ph_jinja_json *how, int level)
{
    int dict = v.kind == PH_JINJA_DICT;
    value left = dict ? ph_jinja_list(j, v) : v;
    if (dict && how->sorted) ph_jinja_sort(j, left, left, 0);
    add_string(j, to, dict ? "{" : "[");
    for (size_t i = 0; i < v.length && !j->status; i++) {
        value item = left.items[i];
        if (i) ph_jinja_add(j, to, how->comma.text, how->comma.length);
        dump_break(j, to, how, level + 1);
        if (dict) {
            if (item.kind != PH_JINJA_TEXT)
                return ph_jinja_fail(j, "%s is a key of JSON", ph_jinja_name(item));
            dump_text(j, to, item, how->ascii);
            ph_jinja_add(j, to, how->colon.text, how->colon.length);
            const value *found = ph_jinja_get(j, v, item);
            if (!found) return;
            item = *found;
        }
        ph_jinja_dump(j, to, item, how, level + 1);
    }
    if (v.length) dump_break(j, to, how, level);
    add_string(j, to, dict ? "}" : "]");
}

void ph_jinja_dump(ph_jinja *j, ph_jinja_buffer *to, value v, const ph_jinja_json *how,
                   int level)
{
    if (v.kind == PH_JINJA_NONE) return add_string(j, to, "null");
    if (v.kind == PH_JINJA_BOOL) return add_string(j, to, v.integer ? "true" : "false");
    if (ph_jinja_is(v, PH_JINJA_NUMBERS)) return add_number(j, to, v);
    if (ph_jinja_is(v, PH_JINJA_TEXTS)) return dump_text(j, to, v, how->ascii);
    if (!ph_jinja_is(v, PH_JINJA_ARRAYS | 1u << PH_JINJA_DICT))
        return ph_jinja_fail(j, "%s becomes JSON", ph_jinja_name(v));
    if (!ph_jinja_enter(j)) return;
    dump_items(j, to, v, how, level);
    j->depth--;
}
