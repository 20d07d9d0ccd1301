/* jinja_texts.c - filters and methods of texts, and conversions; see jinja.h. */
#include "io/number.h"
#include "io/utf8.h"
#include "text/jinja.h"
#include "text/unicode.h"

typedef ph_jinja_value value;
typedef ph_jinja_arguments arguments;

static const value nothing = {.kind = PH_JINJA_UNDEFINED, .text = "", .length = 0};
static const value none = {.kind = PH_JINJA_NONE};

value ph_jinja_slot(const arguments *a, int i, value fallback)
{
    return a->slot[i] ? *a->slot[i] : fallback;
}

value ph_jinja_need_text(ph_jinja *j, value v)
{
    if (v.kind == PH_JINJA_TEXT) return v;
    ph_jinja_fail(j, "found %s, expected a text", ph_jinja_name(v));
    return ph_jinja_string("");
}

int64_t ph_jinja_need_int(ph_jinja *j, value v)
{
    if (ph_jinja_is(v, PH_JINJA_WHOLE)) return v.integer;
    ph_jinja_fail(j, "found %s, expected an integer", ph_jinja_name(v));
    return 0;
}

/* One of the characters, or white space where there are none, at an end of a text. */
static size_t strip_step(value chars, const char *s, const char *end, int at_end)
{
    size_t length = 1;
    if (chars.kind == PH_JINJA_NONE)
        return at_end ? ph_jinja_space_before(s, end) : ph_jinja_space(s, end);
    if (s >= end) return 0;
    if (at_end)
        while (length < (size_t)(end - s) && (end[-(int)length] & 0xc0) == 0x80) length++;
    else
        while (s + length < end && (s[length] & 0xc0) == 0x80) length++;
    const char *one = at_end ? end - length : s;
    for (size_t i = 0; i + length <= chars.length; i++)
        if (!memcmp(chars.text + i, one, length)) return length;
    return 0;
}

static value strip(ph_jinja *j, value v, value chars, int ends)
{
    const char *s = v.text, *end = v.text + v.length;
    if (chars.kind != PH_JINJA_NONE) chars = ph_jinja_need_text(j, chars);
    if (!ph_jinja_charge(j, v.length / 8 + 1)) return v;
    for (size_t step; ends & 1 && (step = strip_step(chars, s, end, 0));) s += step;
    for (size_t step; ends & 2 && (step = strip_step(chars, s, end, 1));) end -= step;
    return ph_jinja_text(s, (size_t)(end - s));
}

static value strip_both(ph_jinja *j, value v, const arguments *a)
{
    return strip(j, ph_jinja_str(j, v), ph_jinja_slot(a, 0, none), 3);
}

static value strip_left(ph_jinja *j, value v, const arguments *a)
{
    return strip(j, v, ph_jinja_slot(a, 0, none), 1);
}

static value strip_right(ph_jinja *j, value v, const arguments *a)
{
    return strip(j, v, ph_jinja_slot(a, 0, none), 2);
}

/* Upper case is that of ASCII: other letters are refused, since one may become two. Of
   lower case only the sigma depends on what is around it. */
typedef enum case_kind {
    CASE_LOWER,
    CASE_UPPER,
    CASE_CAPITAL,
    CASE_TITLE,
    CASE_WORDS
} case_kind;

static int is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void lower_point(ph_jinja *j, ph_jinja_buffer *to, uint32_t point)
{
    uint32_t parts[PH_CHAR_MAX_PARTS];
    int count = point == 0x3a3 ? 0 : ph_char_lower(point, parts);
    char bytes[4];
    if (!count) ph_jinja_fail(j, "the lower case of a sigma is not known");
    for (int i = 0; i < count; i++)
        ph_jinja_add(j, to, bytes, (size_t)ph_utf8_encode(parts[i], bytes));
}

static value change_case(ph_jinja *j, value v, case_kind how)
{
    value text = ph_jinja_str(j, v);
    ph_jinja_buffer to = {0};
    char before = ' ';
    for (size_t i = 0, length; i < text.length && !j->status; i += length) {
        uint32_t point = 0;
        length = (size_t)ph_utf8_decode(text.text + i, text.length - i, &point);
        if (!length || (length > 1 && how != CASE_LOWER))
            return ph_jinja_fail(j, "upper case beyond ASCII is not known"), nothing;
        if (length > 1) {
            lower_point(j, &to, point);
            continue;
        }
        char c = (char)point;
        int starts = how == CASE_TITLE ? !is_letter(before)
                     : how == CASE_WORDS
                         ? strchr("-({[<", before) || ph_jinja_space(&before, &before + 1)
                         : i == 0;
        int upper = how == CASE_UPPER || (how > CASE_UPPER && starts);
        before = c;
        if (is_letter(c)) c = upper ? (char)(c & ~32) : (char)(c | 32);
        ph_jinja_add(j, &to, &c, 1);
    }
    return ph_jinja_taken(&to);
}

#define CASE(name, how)                                                                  \
    static value name(ph_jinja *j, value v, const arguments *a)                          \
    {                                                                                    \
        (void)a;                                                                         \
        return change_case(j, v, how);                                                   \
    }
CASE(lower, CASE_LOWER)
CASE(upper, CASE_UPPER)
CASE(capitalize, CASE_CAPITAL)
CASE(title, CASE_TITLE)
CASE(title_words, CASE_WORDS)

static value replace_text(ph_jinja *j, value v, const arguments *a)
{
    value old = ph_jinja_str(j, *a->slot[0]), new = ph_jinja_str(j, *a->slot[1]);
    value rest = ph_jinja_str(j, v), limit = ph_jinja_slot(a, 2, ph_jinja_int(-1));
    int64_t left = limit.kind == PH_JINJA_NONE ? -1 : ph_jinja_need_int(j, limit);
    ph_jinja_buffer to = {0};
    if (!old.length) ph_jinja_fail(j, "replace looks for an empty text");
    for (const char *at;
         left-- != 0 && (at = ph_jinja_search(j, rest, old)) && !j->status;) {
        size_t before = (size_t)(at - rest.text);
        ph_jinja_add(j, &to, rest.text, before);
        ph_jinja_add(j, &to, new.text, new.length);
        rest = ph_jinja_text(at + old.length, rest.length - before - old.length);
    }
    ph_jinja_add(j, &to, rest.text, rest.length);
    return ph_jinja_taken(&to);
}

/* The next separator, or run of white space where `by` is none; *length: its bytes. */
static const char *find_gap(ph_jinja *j, value rest, value by, size_t *length)
{
    const char *s = rest.text, *end = s + rest.length;
    if (by.kind == PH_JINJA_TEXT)
        return *length = by.length, ph_jinja_search(j, rest, by);
    if (!ph_jinja_charge(j, rest.length / 8 + 1)) return NULL;
    while (s < end && !ph_jinja_space(s, end)) s++;
    const char *stop = s;
    for (size_t step; (step = ph_jinja_space(stop, end));) stop += step;
    *length = (size_t)(stop - s);
    return s < end ? s : NULL;
}

static value split_text(ph_jinja *j, value v, const arguments *a)
{
    value by = ph_jinja_slot(a, 0, none), limit = ph_jinja_slot(a, 1, ph_jinja_int(-1));
    value list = {0};
    if (by.kind != PH_JINJA_NONE && !ph_jinja_need_text(j, by).length)
        ph_jinja_fail(j, "split takes a text that is not empty");
    int64_t most = ph_jinja_need_int(j, limit);
    for (int store = 0; store < 2 && !j->status; store++) { /* count, then store */
        value rest = by.kind == PH_JINJA_NONE ? strip(j, v, none, 1) : v;
        size_t count = 0, gap;
        const char *at = NULL;
        int more = rest.length || by.kind != PH_JINJA_NONE;
        for (int64_t left = most; more && !j->status; count++, left--) {
            at = left == 0 ? NULL : find_gap(j, rest, by, &gap);
            size_t before = at ? (size_t)(at - rest.text) : rest.length;
            if (store) list.items[count] = ph_jinja_text(rest.text, before);
            if (at) rest = ph_jinja_text(at + gap, rest.length - before - gap);
            more = at && (rest.length || by.kind != PH_JINJA_NONE);
        }
        if (!store) list = ph_jinja_items(j, PH_JINJA_LIST, count);
    }
    if (most >= 0 && by.kind == PH_JINJA_NONE)
        ph_jinja_fail(j, "split by white space has a limit");
    return list;
}

/* One text, or any of a tuple of them. */
static int meets(ph_jinja *j, value v, value what, int at_end)
{
    if (what.kind == PH_JINJA_TUPLE) {
        for (size_t i = 0; i < what.length && !j->status; i++)
            if (what.items[i].kind != PH_JINJA_TUPLE &&
                meets(j, v, what.items[i], at_end))
                return 1;
        return 0;
    }
    what = ph_jinja_need_text(j, what);
    return what.length <= v.length && ph_jinja_charge(j, what.length) &&
           !memcmp(v.text + (at_end ? v.length - what.length : 0), what.text,
                   what.length);
}

static value starts_with(ph_jinja *j, value v, const arguments *a)
{
    return ph_jinja_bool(meets(j, v, *a->slot[0], 0));
}

static value ends_with(ph_jinja *j, value v, const arguments *a)
{
    return ph_jinja_bool(meets(j, v, *a->slot[0], 1));
}

/* {} and {0} and {name} of a format, without specifications. */
static value format_text(ph_jinja *j, value v, const arguments *a)
{
    ph_jinja_buffer to = {0};
    size_t used = 0;
    for (size_t i = 0; i < v.length && !j->status; i++) {
        char c = v.text[i];
        if ((c == '{' || c == '}') && i + 1 < v.length && v.text[i + 1] == c) {
            ph_jinja_add(j, &to, &c, 1), i++;
        } else if (c == '{' && i + 1 < v.length && v.text[i + 1] == '}') {
            if (used < a->count && !a->all[used].name)
                ph_jinja_print(j, &to, a->all[used++].value, 0), i++;
            else
                ph_jinja_fail(j, "format has too few arguments");
        } else if (c == '{' || c == '}') {
            ph_jinja_fail(j, "format is known with {} only");
        } else {
            ph_jinja_add(j, &to, &c, 1);
        }
    }
    return ph_jinja_taken(&to);
}

/* s.splitlines of a text that ends with a newline, as the filter has it. */
static value indent(ph_jinja *j, value v, const arguments *a)
{
    value text = ph_jinja_need_text(j, v), width = ph_jinja_slot(a, 0, ph_jinja_int(4));
    int first = ph_jinja_truth(ph_jinja_slot(a, 1, nothing));
    int blank = ph_jinja_truth(ph_jinja_slot(a, 2, nothing));
    ph_jinja_buffer to = {0}, by = {0};
    if (width.kind == PH_JINJA_TEXT) ph_jinja_add(j, &by, width.text, width.length);
    for (int64_t i = width.kind == PH_JINJA_TEXT ? 0 : ph_jinja_need_int(j, width);
         i > 0 && !j->status; i--)
        ph_jinja_add(j, &by, " ", 1);
    for (size_t i = 0; i < text.length && !j->status; i++) {
        char c = text.text[i];
        if ((c > 9 && c < 14 && c != '\n') || (c > 27 && c < 31) || c & 0x80)
            if (c & 0x80 ? ph_jinja_space(text.text + i, text.text + text.length) : 1)
                ph_jinja_fail(j, "indent of lines that end otherwise than with \\n");
        if ((i == 0 && first) ||
            (i > 0 && text.text[i - 1] == '\n' && (blank || c != '\n')))
            ph_jinja_add(j, &to, by.text, by.length);
        ph_jinja_add(j, &to, &c, 1);
    }
    int open = !text.length ? first : text.text[text.length - 1] == '\n' && blank;
    if (open) ph_jinja_add(j, &to, by.text, by.length);
    return ph_jinja_taken(&to);
}

value ph_jinja_lower(ph_jinja *j, value v)
{
    return change_case(j, v, CASE_LOWER);
}

/* ---- conversions ----------------------------------------------------------------- */

static value to_text(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return ph_jinja_str(j, v);
}

static value safe(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    v = ph_jinja_str(j, v);
    v.kind = PH_JINJA_MARKUP;
    return v;
}

static value to_int(ph_jinja *j, value v, const arguments *a)
{
    value fallback = ph_jinja_slot(a, 0, ph_jinja_int(0));
    double number = v.real;
    if (ph_jinja_is(v, PH_JINJA_WHOLE)) return ph_jinja_int(v.integer);
    if (v.kind == PH_JINJA_UNDEFINED) ph_jinja_fail(j, "int of an undefined value");
    if (!ph_jinja_is(v, 1u << PH_JINJA_FLOAT | 1u << PH_JINJA_TEXT)) return fallback;
    if (v.kind == PH_JINJA_TEXT) {
        v = strip(j, v, none, 3);
        for (size_t i = 0; i < v.length; i++)
            if (v.text[i] & 0x80 || v.text[i] == '_')
                ph_jinja_fail(j, "int of other texts than digits");
        if (j->status || ph_number_parse(v.text, v.length, &number)) return fallback;
    }
    if (!(number > -9e15 && number < 9e15))
        return ph_jinja_fail(j, "int of a number that is too large"), v;
    return ph_jinja_int((int64_t)number);
}

static value to_json(ph_jinja *j, value v, const arguments *a)
{
    ph_jinja_buffer to = {0};
    value width = ph_jinja_slot(a, 1, none), marks = ph_jinja_slot(a, 2, none);
    ph_jinja_json how = {.indent = -1, .colon = ph_jinja_string(": ")};
    if (width.kind != PH_JINJA_NONE) {
        int64_t indent = ph_jinja_need_int(j, width);
        how.indent = indent < 0 ? 0 : indent > 64 ? 64 : (int)indent;
        if (indent > 64) ph_jinja_fail(j, "JSON is indented by more than 64");
    }
    how.comma = ph_jinja_string(how.indent < 0 ? ", " : ",");
    how.ascii = ph_jinja_truth(ph_jinja_slot(a, 0, nothing));
    how.sorted = ph_jinja_truth(ph_jinja_slot(a, 3, nothing));
    if (marks.kind != PH_JINJA_NONE) {
        if (!ph_jinja_is(marks, PH_JINJA_ARRAYS) || marks.length != 2)
            return ph_jinja_fail(j, "separators of JSON are not two texts"), v;
        how.comma = ph_jinja_need_text(j, marks.items[0]),
        how.colon = ph_jinja_need_text(j, marks.items[1]);
    }
    ph_jinja_dump(j, &to, v, &how, 0);
    return ph_jinja_taken(&to);
}

/* ---- tables ------------------------------------------------------------------------ */

const ph_jinja_builtin ph_jinja_text_filters[] = {
    {"tojson", "ensure_ascii,indent,separators,sort_keys", 0, to_json},
    {"int", "default", 0, to_int},
    {"safe", "", 0, safe},
    {"string", "", 0, to_text},
    {"trim", "chars", 0, strip_both},
    {"upper", "", 0, upper},
    {"lower", "", 0, lower},
    {"capitalize", "", 0, capitalize},
    {"title", "", 0, title_words},
    {"replace", "old,new,count", 2, replace_text},
    {"indent", "width,first,blank", 0, indent},
    {NULL, NULL, 0, NULL}};

const ph_jinja_builtin ph_jinja_text_methods[] = {
    {"strip", " chars", 0, strip_both},
    {"lstrip", " chars", 0, strip_left},
    {"rstrip", " chars", 0, strip_right},
    {"split", "sep,maxsplit", 0, split_text},
    {"startswith", " prefix", 1, starts_with},
    {"endswith", " suffix", 1, ends_with},
    {"upper", "", 0, upper},
    {"lower", "", 0, lower},
    {"capitalize", "", 0, capitalize},
    {"title", "", 0, title},
    {"replace", " old, new, count", 2, replace_text},
    {"join", " iterable", 1, ph_jinja_join_method},
    {"format", "*", 0, format_text},
    {NULL, NULL, 0, NULL}};
