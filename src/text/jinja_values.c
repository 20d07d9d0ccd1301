/*
 * jinja_values.c - values of templates: memory, comparing, looking up. They behave as
 * those of Python do; see jinja.h.
 */
#include <stdarg.h>

#include "base/format.h"
#include "io/utf8.h"
#include "text/jinja.h"

typedef ph_jinja_value value;

enum { DEPTH = 200, CHUNK = 1 << 16 };

/* ---- failures, work, memory -------------------------------------------------------- */

void ph_jinja_fail(ph_jinja *j, const char *format, ...)
{
    char words[400];
    int line = 1;
    va_list list;
    if (j->status) return;
    for (const char *s = j->source; s && s < j->at; s++) line += *s == '\n';
    va_start(list, format);
    ph_format_list(words, sizeof words, format, list);
    va_end(list);
    j->status =
        ph_io_fail(j->io, PH_UNSUPPORTED, "chat template, line %d: %s", line, words);
}

int ph_jinja_charge(ph_jinja *j, size_t work)
{
    if (!j->status && work > j->work)
        ph_jinja_fail(j, "the template takes more work than %zu steps", 64 * j->limit);
    if (j->status) return 0;
    j->work -= work;
    return 1;
}

int ph_jinja_enter(ph_jinja *j)
{
    if (j->depth >= DEPTH) ph_jinja_fail(j, "more than %d levels are nested", DEPTH);
    if (!ph_jinja_charge(j, 16)) return 0;
    j->depth++;
    return 1;
}

typedef struct ph_jinja_chunk {
    struct ph_jinja_chunk *older;
    size_t size;
} ph_jinja_chunk;

void *ph_jinja_take(ph_jinja *j, size_t bytes)
{
    if (!ph_jinja_charge(j, bytes)) return NULL;
    bytes = (bytes + 15) & ~(size_t)15;
    if (bytes > j->left) {
        size_t size = bytes > CHUNK ? bytes : CHUNK;
        ph_jinja_chunk *chunk = ph_io_alloc(j->io, sizeof *chunk + size);
        if (!chunk) {
            j->status = ph_io_no_memory(j->io, size, "a chat template");
            return NULL;
        }
        *chunk = (ph_jinja_chunk){j->chunks, size};
        j->chunks = chunk, j->left = size;
    }
    char *taken = (char *)(j->chunks + 1) + (j->chunks->size - j->left);
    j->left -= bytes;
    return memset(taken, 0, bytes);
}

ph_jinja *ph_jinja_open(const ph_io *io, size_t limit, const struct tm *today)
{
    ph_jinja *j = ph_io_alloc(io, sizeof *j);
    if (!j) return NULL;
    *j = (ph_jinja){.io = io, .limit = limit, .work = 64 * limit, .today = *today};
    j->scope = ph_jinja_take(j, sizeof *j->scope);
    return j;
}

void ph_jinja_close(ph_jinja *j)
{
    while (j->chunks) {
        ph_jinja_chunk *older = j->chunks->older;
        ph_io_release(j->io, j->chunks);
        j->chunks = older;
    }
    ph_io_release(j->io, j);
}

void ph_jinja_add(ph_jinja *j, ph_jinja_buffer *to, const char *text, size_t length)
{
    if (j->status || !length) return;
    if (length > j->limit - to->length)
        return ph_jinja_fail(j, "a text grows beyond %zu bytes", j->limit);
    if (to->length + length > to->capacity) {
        size_t capacity = 2 * (to->length + length) + 48;
        char *more = ph_jinja_take(j, capacity);
        if (!more) return;
        if (to->length) memcpy(more, to->text, to->length);
        to->text = more, to->capacity = capacity;
    }
    memcpy(to->text + to->length, text, length);
    to->length += length;
}

/* ---- making values ----------------------------------------------------------------- */

value ph_jinja_undefined(const char *name, size_t length)
{
    return (value){.kind = PH_JINJA_UNDEFINED, .text = name, .length = length};
}

value ph_jinja_bool(int truth)
{
    return (value){.kind = PH_JINJA_BOOL, .integer = truth != 0};
}

value ph_jinja_int(int64_t integer)
{
    return (value){.kind = PH_JINJA_INT, .integer = integer};
}

value ph_jinja_text(const char *text, size_t length)
{
    return (value){.kind = PH_JINJA_TEXT, .text = text, .length = length};
}

value ph_jinja_string(const char *text)
{
    return ph_jinja_text(text, strlen(text));
}

value ph_jinja_taken(const ph_jinja_buffer *from)
{
    return ph_jinja_text(from->text ? from->text : "", from->length);
}

value ph_jinja_items(ph_jinja *j, ph_jinja_kind kind, size_t length)
{
    value v = {.kind = kind, .length = length};
    size_t count = (kind == PH_JINJA_DICT ? 2 * length : length) + 1;
    if (!ph_jinja_charge(j, length)) return ph_jinja_undefined("", 0);
    v.items = ph_jinja_take(j, count * sizeof(value));
    return v.items ? v : ph_jinja_undefined("", 0);
}

value ph_jinja_pair(ph_jinja *j, value first, value second)
{
    value v = ph_jinja_items(j, PH_JINJA_TUPLE, 2);
    if (!j->status) v.items[0] = first, v.items[1] = second;
    return v;
}

const char *ph_jinja_name(value v)
{
    static const char *const names[] = {"an undefined value",
                                        "none",
                                        "a boolean",
                                        "an integer",
                                        "a float",
                                        "a text",
                                        "a safe text",
                                        "a list",
                                        "a tuple",
                                        "a view",
                                        "a generator",
                                        "a dict",
                                        "a namespace",
                                        "a loop",
                                        "a macro",
                                        "a function"};
    return names[v.kind];
}

/* ---- texts ------------------------------------------------------------------------- */

int ph_jinja_says(value v, const char *text)
{
    return v.kind == PH_JINJA_TEXT && v.length == strlen(text) &&
           !memcmp(v.text, text, v.length);
}

size_t ph_jinja_space(const char *text, const char *end)
{
    uint32_t c = 0;
    if (text >= end) return 0;
    int length = ph_utf8_decode(text, (size_t)(end - text), &c);
    int is = (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 ||
             c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
             c == 0x202f || c == 0x205f || c == 0x3000;
    return length && is ? (size_t)length : 0;
}

size_t ph_jinja_space_before(const char *text, const char *end)
{
    const char *s = end;
    while (s > text && s > end - 3 && (s[-1] & 0xc0) == 0x80) s--;
    if (s == text) return 0;
    size_t length = ph_jinja_space(s - 1, end);
    return length == (size_t)(end - s) + 1 ? length : 0;
}

/* Bytes of the character at text. */
static size_t step(const char *text, const char *end)
{
    size_t length = 1;
    while (text + length < end && (text[length] & 0xc0) == 0x80) length++;
    return length;
}

const char *ph_jinja_search(ph_jinja *j, value in, value what)
{
    if (!ph_jinja_charge(j, in.length / 8 + 1)) return NULL;
    if (!what.length) return in.text;
    const char *s = in.text, *end = in.text + in.length;
    while ((size_t)(end - s) >= what.length) {
        s = memchr(s, what.text[0], (size_t)(end - s) - what.length + 1);
        if (!s || !memcmp(s, what.text, what.length)) return s;
        if (!ph_jinja_charge(j, what.length / 8 + 1)) return NULL;
        s++;
    }
    return NULL;
}

/* ---- variables --------------------------------------------------------------------- */

ph_jinja_variable *ph_jinja_find(ph_jinja *j, ph_jinja_scope *scope, const char *name,
                                 size_t length)
{
    for (ph_jinja_variable *v = scope->variables; v; v = v->next) {
        if (!ph_jinja_charge(j, 1)) return NULL;
        if (v->length == length && !memcmp(v->name, name, length)) return v;
    }
    return NULL;
}

void ph_jinja_bind(ph_jinja *j, ph_jinja_scope *scope, const char *name, size_t length,
                   value v)
{
    ph_jinja_variable *found = scope ? ph_jinja_find(j, scope, name, length) : NULL;
    if (!found) {
        found = ph_jinja_take(j, sizeof *found);
        if (!found || !scope) return;
        *found = (ph_jinja_variable){name, length, v, scope->variables};
        scope->variables = found;
    }
    found->value = v;
}

void ph_jinja_set(ph_jinja *j, const char *name, value v)
{
    ph_jinja_bind(j, j->scope, name, strlen(name), v);
}

/* ---- comparing --------------------------------------------------------------------- */

int ph_jinja_truth(value v)
{
    switch (v.kind) {
    case PH_JINJA_UNDEFINED:
    case PH_JINJA_NONE: return 0;
    case PH_JINJA_BOOL:
    case PH_JINJA_INT: return v.integer != 0;
    case PH_JINJA_FLOAT: return v.real != 0;
    case PH_JINJA_TEXT:
    case PH_JINJA_MARKUP:
    case PH_JINJA_LIST:
    case PH_JINJA_TUPLE:
    case PH_JINJA_VIEW:
    case PH_JINJA_DICT: return v.length != 0;
    default: return 1;
    }
}

static double number_of(value v)
{
    return v.kind == PH_JINJA_FLOAT ? v.real : (double)v.integer;
}

static int equal_items(ph_jinja *j, value a, value b)
{
    int same = a.length == b.length;
    if (!same || !ph_jinja_enter(j)) return 0;
    for (size_t i = 0; i < a.length && same && !j->status; i++) {
        const value *other = &b.items[i];
        if (a.kind == PH_JINJA_DICT) other = ph_jinja_get(j, b, a.items[2 * i]);
        same = other && ph_jinja_equal(
                            j, a.items[a.kind == PH_JINJA_DICT ? 2 * i + 1 : i], *other);
    }
    j->depth--;
    return same;
}

int ph_jinja_equal(ph_jinja *j, value a, value b)
{
    if (!ph_jinja_charge(j, 1)) return 0;
    if (ph_jinja_is(a, PH_JINJA_WHOLE) && ph_jinja_is(b, PH_JINJA_WHOLE))
        return a.integer == b.integer;
    if (ph_jinja_is(a, PH_JINJA_NUMBERS) && ph_jinja_is(b, PH_JINJA_NUMBERS))
        return number_of(a) == number_of(b);
    if (ph_jinja_is(a, PH_JINJA_TEXTS) && ph_jinja_is(b, PH_JINJA_TEXTS))
        return a.length == b.length && ph_jinja_charge(j, a.length / 8) &&
               !memcmp(a.text, b.text, a.length);
    if (a.kind != b.kind) return 0;
    if (a.kind == PH_JINJA_UNDEFINED || a.kind == PH_JINJA_NONE) return 1;
    if (ph_jinja_is(a, PH_JINJA_ARRAYS | 1u << PH_JINJA_DICT))
        return equal_items(j, a, b);
    ph_jinja_fail(j, "%s cannot be compared here", ph_jinja_name(a));
    return 0;
}

int ph_jinja_order(ph_jinja *j, value a, value b)
{
    if (ph_jinja_is(a, PH_JINJA_WHOLE) && ph_jinja_is(b, PH_JINJA_WHOLE))
        return (a.integer > b.integer) - (a.integer < b.integer);
    if (ph_jinja_is(a, PH_JINJA_NUMBERS) && ph_jinja_is(b, PH_JINJA_NUMBERS))
        return (number_of(a) > number_of(b)) - (number_of(a) < number_of(b));
    if (a.kind != PH_JINJA_TEXT || b.kind != PH_JINJA_TEXT) {
        ph_jinja_fail(j, "%s and %s have no order", ph_jinja_name(a), ph_jinja_name(b));
        return 0;
    }
    size_t common = a.length < b.length ? a.length : b.length;
    int order = ph_jinja_charge(j, common / 8 + 1) ? memcmp(a.text, b.text, common) : 0;
    return order ? order : (a.length > b.length) - (a.length < b.length);
}

int ph_jinja_contains(ph_jinja *j, value in, value what)
{
    if (in.kind == PH_JINJA_TEXT && what.kind == PH_JINJA_TEXT)
        return ph_jinja_search(j, in, what) != NULL;
    if (in.kind == PH_JINJA_DICT) return ph_jinja_get(j, in, what) != NULL;
    if (ph_jinja_is(in, PH_JINJA_TEXTS))
        ph_jinja_fail(j, "%s is searched for in a text", ph_jinja_name(what));
    value list = ph_jinja_list(j, in);
    for (size_t i = 0; i < list.length && !j->status; i++)
        if (ph_jinja_equal(j, list.items[i], what)) return 1;
    return 0;
}

/* Insertion, which keeps the order of equals, as Python does. */
void ph_jinja_sort(ph_jinja *j, value list, value keys, int reverse)
{
    for (size_t i = 1; i < list.length && !j->status; i++) {
        value item = list.items[i], key = keys.items[i];
        size_t to = i;
        for (; to > 0 && !j->status; to--) {
            int order = ph_jinja_order(j, keys.items[to - 1], key);
            if (!ph_jinja_charge(j, 1) || (reverse ? order >= 0 : order <= 0)) break;
            list.items[to] = list.items[to - 1], keys.items[to] = keys.items[to - 1];
        }
        list.items[to] = item, keys.items[to] = key;
    }
}

/* ---- looking up -------------------------------------------------------------------- */

const value *ph_jinja_get(ph_jinja *j, value dict, value key)
{
    if (!ph_jinja_is(key, PH_JINJA_TEXTS | PH_JINJA_NUMBERS | 1u << PH_JINJA_NONE))
        ph_jinja_fail(j, "%s is the key of a dict", ph_jinja_name(key));
    for (size_t i = 0; i < dict.length && !j->status; i++)
        if (ph_jinja_equal(j, dict.items[2 * i], key)) return &dict.items[2 * i + 1];
    return NULL;
}

static value loop_member(ph_jinja *j, const ph_jinja_loop *loop, value key)
{
    static const char *const names[] = {"index",  "index0", "revindex", "revindex0",
                                        "length", "first",  "last"};
    int64_t at = (int64_t)loop->at, count = (int64_t)loop->count;
    const int64_t numbers[] = {at + 1, at,      count - at,     count - at - 1,
                               count,  at == 0, at + 1 == count};
    for (int i = 0; i < 7; i++)
        if (ph_jinja_says(key, names[i]))
            return i < 5 ? ph_jinja_int(numbers[i]) : ph_jinja_bool((int)numbers[i]);
    if (ph_jinja_says(key, "previtem"))
        return at ? loop->items[at - 1] : ph_jinja_undefined("previtem", 8);
    if (ph_jinja_says(key, "nextitem"))
        return at + 1 < count ? loop->items[at + 1] : ph_jinja_undefined("nextitem", 8);
    ph_jinja_fail(j, "loop.%s is not known", ph_io_quote(key.text, key.length).text);
    return key;
}

/* Texts and sequences by a number, from the end where it is negative. */
static value item_at(ph_jinja *j, value of, int64_t at)
{
    int64_t length = (int64_t)ph_jinja_length(j, of);
    if (at < 0) at += length;
    if (at < 0 || at >= length) return ph_jinja_undefined("an item", 7);
    if (of.kind != PH_JINJA_TEXT) return of.items[at];
    const char *s = of.text, *end = s + of.length;
    for (; at > 0; at--) s += step(s, end);
    return ph_jinja_text(s, step(s, end));
}

/* Names of Python's methods are no members: as attributes they come before keys. */
static int is_method(value key)
{
    static const char names[] =
        " append capitalize casefold center clear copy count encode endswith expandtabs "
        "extend find format format_map fromkeys get index insert isalnum isalpha isascii "
        "isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
        "isupper items join keys ljust lower lstrip maketrans partition pop popitem "
        "remove removeprefix removesuffix replace reverse rfind rindex rjust rpartition "
        "rsplit rstrip setdefault sort split splitlines startswith strip swapcase title "
        "translate update upper values zfill ";
    char name[24] = " ";
    if (key.kind != PH_JINJA_TEXT || key.length > 20) return 0;
    memcpy(name + 1, key.text, key.length);
    memcpy(name + 1 + key.length, " ", 2);
    return strstr(names, name) != NULL;
}

/* of.key where `attribute`, else of[key]. */
value ph_jinja_member(ph_jinja *j, value of, value key, int attribute)
{
    int dict = of.kind == PH_JINJA_DICT;
    const value *found = NULL;
    ph_jinja_variable *variable = NULL;
    if (of.kind == PH_JINJA_UNDEFINED)
        ph_jinja_fail(j, "%s is undefined, expected a value with members",
                      ph_io_quote(of.text, of.length).text);
    if (key.kind == PH_JINJA_TEXT && key.length > 1 && !memcmp(key.text, "__", 2))
        ph_jinja_fail(j, "members that begin with __ are not known");
    int method =
        (dict || ph_jinja_is(of, PH_JINJA_TEXTS | PH_JINJA_ARRAYS)) && is_method(key);
    if (dict && !(attribute && method)) found = ph_jinja_get(j, of, key);
    if (method && !found)
        ph_jinja_fail(j, "the method %s is not called",
                      ph_io_quote(key.text, key.length).text);
    if (j->status) return key;
    if (found) return *found;
    if (of.kind == PH_JINJA_LOOP) return loop_member(j, of.loop, key);
    if (of.kind == PH_JINJA_NAMESPACE && key.kind == PH_JINJA_TEXT)
        variable = ph_jinja_find(j, of.scope, key.text, key.length);
    if (variable) return variable->value;
    if (of.kind >= PH_JINJA_LOOP ||
        ph_jinja_is(of, 1u << PH_JINJA_MARKUP | 1u << PH_JINJA_VIEW |
                            1u << PH_JINJA_GENERATOR))
        ph_jinja_fail(j, "a member of %s is not known", ph_jinja_name(of));
    if (ph_jinja_is(of, PH_JINJA_ARRAYS | 1u << PH_JINJA_TEXT) &&
        ph_jinja_is(key, PH_JINJA_WHOLE))
        return item_at(j, of, key.integer);
    return key.kind == PH_JINJA_TEXT ? ph_jinja_undefined(key.text, key.length)
                                     : ph_jinja_undefined("an item", 7);
}

size_t ph_jinja_length(ph_jinja *j, value v)
{
    size_t length = 0;
    if (v.kind == PH_JINJA_UNDEFINED) return 0;
    if (v.kind == PH_JINJA_TEXT && ph_jinja_charge(j, v.length / 8 + 1)) {
        for (size_t at = 0; at < v.length; length++)
            at += step(v.text + at, v.text + v.length);
        return length;
    }
    if (!ph_jinja_is(v, PH_JINJA_ARRAYS | 1u << PH_JINJA_VIEW | 1u << PH_JINJA_DICT))
        ph_jinja_fail(j, "%s has no length", ph_jinja_name(v));
    return v.length;
}

static value characters(ph_jinja *j, value text)
{
    value list = ph_jinja_items(j, PH_JINJA_LIST, ph_jinja_length(j, text));
    const char *s = text.text;
    for (size_t i = 0; i < list.length && !j->status; i++) {
        list.items[i] = ph_jinja_text(s, step(s, text.text + text.length));
        s += list.items[i].length;
    }
    return list;
}

value ph_jinja_list(ph_jinja *j, value v)
{
    if (v.kind == PH_JINJA_TEXT) return characters(j, v);
    if (v.kind == PH_JINJA_DICT) {
        value keys = ph_jinja_items(j, PH_JINJA_LIST, v.length);
        for (size_t i = 0; i < keys.length && !j->status; i++)
            keys.items[i] = v.items[2 * i];
        return keys;
    }
    if (v.kind == PH_JINJA_UNDEFINED) return ph_jinja_items(j, PH_JINJA_LIST, 0);
    if (v.kind == PH_JINJA_GENERATOR) {
        if (v.items[v.length].kind)
            ph_jinja_fail(j, "a generator is read a second time, expected |list");
        v.items[v.length] = ph_jinja_bool(1);
    } else if (!ph_jinja_is(v, PH_JINJA_ARRAYS | 1u << PH_JINJA_VIEW)) {
        ph_jinja_fail(j, "%s cannot be iterated over", ph_jinja_name(v));
    }
    if (j->status) return (value){.kind = PH_JINJA_LIST};
    v.kind = PH_JINJA_LIST;
    return v;
}

value ph_jinja_slice(ph_jinja *j, value of, const value at[3])
{
    ph_jinja_buffer to = {0};
    int64_t length, by = 1, from, end;
    if (of.kind == PH_JINJA_NONE) return ph_jinja_undefined("a slice", 7);
    if (!ph_jinja_is(of, PH_JINJA_ARRAYS | 1u << PH_JINJA_TEXT))
        ph_jinja_fail(j, "%s has no slices", ph_jinja_name(of));
    for (int i = 0; i < 3; i++)
        if (!ph_jinja_is(at[i], PH_JINJA_WHOLE | 1u << PH_JINJA_NONE))
            ph_jinja_fail(j, "%s bounds a slice", ph_jinja_name(at[i]));
    value all = of.kind == PH_JINJA_TEXT ? characters(j, of) : of;
    if (j->status) return of;
    length = (int64_t)all.length;
    if (at[2].kind) by = at[2].kind == PH_JINJA_NONE ? 1 : at[2].integer;
    if (by == 0 || by < -length - 1 || by > length + 1)
        by = by > 0 ? length + 1 : by < 0 ? -length - 1 : 0;
    if (!by) return ph_jinja_fail(j, "a slice has a step of 0"), of;
    int64_t low = by < 0 ? -1 : 0, high = by < 0 ? length - 1 : length;
    from = by < 0 ? high : low, end = by < 0 ? low : high;
    for (int i = 0; i < 2; i++)
        if (at[i].kind != PH_JINJA_NONE) {
            int64_t v = at[i].integer < 0 ? at[i].integer + length : at[i].integer;
            *(i ? &end : &from) = v < low ? low : v > high ? high : v;
        }
    int64_t span = by > 0 ? end - from : from - end, size = by > 0 ? by : -by;
    value part = ph_jinja_items(j, of.kind == PH_JINJA_TEXT ? PH_JINJA_LIST : of.kind,
                                span > 0 ? (size_t)((span + size - 1) / size) : 0);
    for (size_t i = 0; i < part.length && !j->status; i++, from += by) {
        part.items[i] = all.items[from];
        if (of.kind == PH_JINJA_TEXT)
            ph_jinja_add(j, &to, all.items[from].text, all.items[from].length);
    }
    return of.kind == PH_JINJA_TEXT ? ph_jinja_taken(&to) : part;
}
