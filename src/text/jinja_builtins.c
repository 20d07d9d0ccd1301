/*
 * jinja_builtins.c - filters, tests, methods and functions of templates, but for those of
 * texts (jinja_texts.c); see jinja.h.
 *
 * Each is a line of a table with the names of its parameters: arguments are bound to
 * slots before it runs. A name that is in no table is refused when it is called.
 */
#include <stdio.h>

#include "text/jinja.h"

typedef ph_jinja_value value;
typedef ph_jinja_arguments arguments;

static const value nothing = {.kind = PH_JINJA_UNDEFINED, .text = "", .length = 0};
static const value none = {.kind = PH_JINJA_NONE};

/* ---- sequences --------------------------------------------------------------------- */

/* A member by a name with points, as map and selectattr take it. */
static value by_path(ph_jinja *j, value v, value path)
{
    if (path.kind == PH_JINJA_INT) return ph_jinja_member(j, v, path, 0);
    path = ph_jinja_need_text(j, path);
    while (!j->status) {
        const char *point = memchr(path.text, '.', path.length);
        size_t length = point ? (size_t)(point - path.text) : path.length;
        if (length && path.text[0] >= '0' && path.text[0] <= '9')
            ph_jinja_fail(j, "an attribute is looked up by a number");
        v = ph_jinja_member(j, v, ph_jinja_text(path.text, length), 0);
        if (!point) return v;
        path = ph_jinja_text(point + 1, path.length - length - 1);
    }
    return nothing;
}

static value join(ph_jinja *j, value by, value items, const value *attribute)
{
    ph_jinja_buffer to = {0};
    value list = ph_jinja_list(j, items);
    by = ph_jinja_str(j, by);
    for (size_t i = 0; i < list.length && !j->status; i++) {
        if (i) ph_jinja_add(j, &to, by.text, by.length);
        ph_jinja_print(
            j, &to, attribute ? by_path(j, list.items[i], *attribute) : list.items[i], 0);
    }
    return ph_jinja_taken(&to);
}

static value join_filter(ph_jinja *j, value v, const arguments *a)
{
    return join(j, ph_jinja_slot(a, 0, ph_jinja_string("")), v, a->slot[1]);
}

value ph_jinja_join_method(ph_jinja *j, value v, const arguments *a)
{
    value list = ph_jinja_list(j, *a->slot[0]);
    for (size_t i = 0; i < list.length && !j->status; i++)
        ph_jinja_need_text(j, list.items[i]);
    return join(j, v, list, NULL);
}

static value length(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return ph_jinja_int((int64_t)ph_jinja_length(j, v));
}

static value list_of(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return ph_jinja_list(j, v);
}

static value first(ph_jinja *j, value v, const arguments *a)
{
    value list = ph_jinja_list(j, v);
    (void)a;
    return list.length && !j->status ? list.items[0] : nothing;
}

static value last(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    if (v.kind == PH_JINJA_GENERATOR) ph_jinja_fail(j, "last takes no generator");
    value list = ph_jinja_list(j, v);
    return list.length && !j->status ? list.items[list.length - 1] : nothing;
}

static value pairs(ph_jinja *j, value v, ph_jinja_kind kind, int part)
{
    if (v.kind != PH_JINJA_DICT)
        return ph_jinja_fail(j, "%s has no items, expected a dict", ph_jinja_name(v)), v;
    value list = ph_jinja_items(j, kind, v.length);
    for (size_t i = 0; i < list.length && !j->status; i++)
        list.items[i] = part < 2 ? v.items[2 * i + (size_t)part]
                                 : ph_jinja_pair(j, v.items[2 * i], v.items[2 * i + 1]);
    return list;
}

static value items_filter(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    if (v.kind == PH_JINJA_UNDEFINED) return ph_jinja_items(j, PH_JINJA_GENERATOR, 0);
    return pairs(j, v, PH_JINJA_GENERATOR, 2);
}

static value items(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return pairs(j, v, PH_JINJA_VIEW, 2);
}

static value keys(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return pairs(j, v, PH_JINJA_VIEW, 0);
}

static value values(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return pairs(j, v, PH_JINJA_VIEW, 1);
}

static value get(ph_jinja *j, value v, const arguments *a)
{
    const value *found = ph_jinja_get(j, v, *a->slot[0]);
    return found ? *found : ph_jinja_slot(a, 1, none);
}

/* What a sort compares: texts without regard to case, unless that is asked for. */
static value sort_keys(ph_jinja *j, value list, const value *attribute, int exact)
{
    value made = ph_jinja_items(j, PH_JINJA_LIST, list.length);
    for (size_t i = 0; i < made.length && !j->status; i++) {
        value key = attribute ? by_path(j, list.items[i], *attribute) : list.items[i];
        made.items[i] =
            key.kind == PH_JINJA_TEXT && !exact ? ph_jinja_lower(j, key) : key;
    }
    return made;
}

static value copied(ph_jinja *j, value list)
{
    value copy = ph_jinja_items(j, PH_JINJA_LIST, list.length);
    if (!j->status && list.length)
        memcpy(copy.items, list.items, list.length * sizeof(value));
    return copy;
}

static value sort(ph_jinja *j, value v, const arguments *a)
{
    value list = copied(j, ph_jinja_list(j, v));
    const value *attribute =
        a->slot[2] && a->slot[2]->kind != PH_JINJA_NONE ? a->slot[2] : NULL;
    if (attribute &&
        memchr(ph_jinja_need_text(j, *attribute).text, ',', attribute->length))
        ph_jinja_fail(j, "sort by several attributes is not known");
    if (j->status) return nothing;
    value by =
        sort_keys(j, list, attribute, ph_jinja_truth(ph_jinja_slot(a, 1, nothing)));
    if (!j->status)
        ph_jinja_sort(j, list, by, ph_jinja_truth(ph_jinja_slot(a, 0, nothing)));
    return list;
}

static value dict_sort(ph_jinja *j, value v, const arguments *a)
{
    value list = pairs(j, v, PH_JINJA_LIST, 2);
    value by = ph_jinja_slot(a, 1, ph_jinja_string("key")),
          at = ph_jinja_int(ph_jinja_says(by, "value"));
    if (!j->status && !at.integer && !ph_jinja_says(by, "key"))
        ph_jinja_fail(j, "dictsort is by key or value");
    value with =
        j->status ? list
                  : sort_keys(j, list, &at, ph_jinja_truth(ph_jinja_slot(a, 0, nothing)));
    if (!j->status)
        ph_jinja_sort(j, list, with, ph_jinja_truth(ph_jinja_slot(a, 2, nothing)));
    return list;
}

static value unique(ph_jinja *j, value v, const arguments *a)
{
    value list = copied(j, ph_jinja_list(j, v)), by = nothing;
    size_t count = 0;
    (void)a;
    if (!j->status) by = sort_keys(j, list, NULL, 0);
    for (size_t i = 0; i < list.length && !j->status; i++) {
        value so_far = {.kind = PH_JINJA_LIST, .items = by.items, .length = count};
        if (ph_jinja_contains(j, so_far, by.items[i])) continue;
        by.items[count] = by.items[i], list.items[count++] = list.items[i];
    }
    if (j->status) return nothing;
    list.kind = PH_JINJA_GENERATOR, list.length = count;
    list.items[count] = nothing;
    return list;
}

static value reverse(ph_jinja *j, value v, const arguments *a)
{
    static const value at[3] = {{.kind = PH_JINJA_NONE},
                                {.kind = PH_JINJA_NONE},
                                {.kind = PH_JINJA_INT, .integer = -1}};
    (void)a;
    value list = ph_jinja_slice(j, v.kind == PH_JINJA_TEXT ? v : ph_jinja_list(j, v), at);
    if (list.kind == PH_JINJA_LIST) list.kind = PH_JINJA_GENERATOR;
    return list;
}

static value extreme(ph_jinja *j, value v, int sign)
{
    value list = ph_jinja_list(j, v), best = nothing, key = nothing;
    for (size_t i = 0; i < list.length && !j->status; i++) {
        value one = list.items[i];
        if (one.kind == PH_JINJA_TEXT) one = ph_jinja_lower(j, one);
        if (i && sign * ph_jinja_order(j, one, key) <= 0) continue;
        best = list.items[i], key = one;
    }
    return best;
}

static value least(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return extreme(j, v, -1);
}

static value greatest(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    return extreme(j, v, 1);
}

/* The arguments from slot `from` on, for a filter or test that is called by name. */
static arguments rest_of(ph_jinja *j, const arguments *a, size_t from)
{
    arguments rest = {0};
    rest.all = ph_jinja_take(j, PH_JINJA_SLOTS * sizeof *rest.all);
    for (size_t i = from; rest.all && i < 3 && a->slot[i]; i++)
        rest.all[rest.count++].value = *a->slot[i];
    return rest;
}

/* What map, select and their like go through: whatever is false counts as empty. */
static value given(ph_jinja *j, value v)
{
    return ph_jinja_list(j, ph_jinja_truth(v) ? v : nothing);
}

static value map(ph_jinja *j, value v, const arguments *a)
{
    value list = given(j, v);
    value made = ph_jinja_items(j, PH_JINJA_GENERATOR, list.length);
    if (!a->slot[0] == !a->slot[3])
        ph_jinja_fail(j, "map takes a filter or an attribute");
    for (size_t i = 0; i < list.length && !j->status; i++) {
        arguments rest = rest_of(j, a, 1);
        made.items[i] = a->slot[3]
                            ? by_path(j, list.items[i], *a->slot[3])
                            : ph_jinja_filter(j, *a->slot[0], list.items[i], &rest);
        if (a->slot[4] && made.items[i].kind == PH_JINJA_UNDEFINED)
            made.items[i] = *a->slot[4];
    }
    return made;
}

/* Items, or attributes of them, for which a test holds, or does not. */
static value choose(ph_jinja *j, value v, const arguments *a, int attribute, int wanted)
{
    value list = given(j, v);
    value made = ph_jinja_items(j, PH_JINJA_GENERATOR, list.length);
    size_t count = 0;
    for (size_t i = 0; i < list.length && !j->status; i++) {
        arguments rest = rest_of(j, a, (size_t)attribute + 1);
        value item = attribute ? by_path(j, list.items[i], *a->slot[0]) : list.items[i];
        int holds = a->slot[attribute]
                        ? ph_jinja_test(j, *a->slot[attribute], item, &rest)
                        : ph_jinja_truth(item);
        if (!j->status && holds == wanted) made.items[count++] = list.items[i];
    }
    if (!j->status) made.length = count, made.items[count] = nothing;
    return made;
}

#define CHOOSE(name, attribute, wanted)                                                  \
    static value name(ph_jinja *j, value v, const arguments *a)                          \
    {                                                                                    \
        return choose(j, v, a, attribute, wanted);                                       \
    }
CHOOSE(select_items, 0, 1)
CHOOSE(reject_items, 0, 0)
CHOOSE(select_by, 1, 1)
CHOOSE(reject_by, 1, 0)

/* ---- other filters ----------------------------------------------------------------- */

static value or_default(ph_jinja *j, value v, const arguments *a)
{
    int empty = ph_jinja_truth(ph_jinja_slot(a, 1, nothing)) && !ph_jinja_truth(v);
    (void)j;
    return v.kind == PH_JINJA_UNDEFINED || empty
               ? ph_jinja_slot(a, 0, ph_jinja_string(""))
               : v;
}

/* ---- functions --------------------------------------------------------------------- */

static value range(ph_jinja *j, value v, const arguments *a)
{
    int64_t from = a->slot[1] ? ph_jinja_need_int(j, *a->slot[0]) : 0;
    int64_t to = ph_jinja_need_int(j, a->slot[1] ? *a->slot[1] : *a->slot[0]);
    int64_t by = a->slot[2] ? ph_jinja_need_int(j, *a->slot[2]) : 1, most = 100000;
    if (from < -most || from > most || to < -most || to > most || !by || by < -most ||
        by > most)
        return ph_jinja_fail(j, "a range is too large"), v;
    int64_t span = by > 0 ? to - from : from - to, size = by > 0 ? by : -by;
    value list = ph_jinja_items(j, PH_JINJA_VIEW,
                                span > 0 ? (size_t)((span + size - 1) / size) : 0);
    for (size_t i = 0; i < list.length && !j->status; i++, from += by)
        list.items[i] = ph_jinja_int(from);
    return list;
}

static value make_namespace(ph_jinja *j, value v, const arguments *a)
{
    v = (value){.kind = PH_JINJA_NAMESPACE, .scope = ph_jinja_take(j, sizeof *v.scope)};
    for (size_t i = 0; i < a->count && !j->status; i++)
        if (a->all[i].name && a->all[i].name[0] != '_')
            ph_jinja_bind(j, v.scope, a->all[i].name, a->all[i].length, a->all[i].value);
        else
            ph_jinja_fail(j,
                          "a namespace is known with names, not beginning with _, only");
    return v;
}

static value make_dict(ph_jinja *j, value v, const arguments *a)
{
    v = ph_jinja_items(j, PH_JINJA_DICT, a->count);
    for (size_t i = 0; i < a->count && !j->status; i++) {
        if (!a->all[i].name) ph_jinja_fail(j, "dict is known with names only");
        v.items[2 * i] = ph_jinja_text(a->all[i].name, a->all[i].length);
        v.items[2 * i + 1] = a->all[i].value;
    }
    return v;
}

static value raise(ph_jinja *j, value v, const arguments *a)
{
    v = ph_jinja_str(j, *a->slot[0]);
    ph_jinja_fail(j, "the template refuses this conversation: %s",
                  ph_io_quote(v.text, v.length).text);
    return v;
}

static value date(ph_jinja *j, value v, const arguments *a)
{
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    const struct tm *t = &j->today;
    ph_jinja_buffer to = {0};
    v = ph_jinja_need_text(j, *a->slot[0]);
    for (size_t i = 0; i < v.length && !j->status; i++) {
        char text[16], c = v.text[i];
        const char *month = months[t->tm_mon], *day = days[t->tm_wday];
        int hour = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
        if (c == '%' && ++i < v.length) switch (v.text[i]) {
            case 'Y': snprintf(text, sizeof text, "%d", t->tm_year + 1900); break;
            case 'y': snprintf(text, sizeof text, "%02d", t->tm_year % 100); break;
            case 'm': snprintf(text, sizeof text, "%02d", t->tm_mon + 1); break;
            case 'd': snprintf(text, sizeof text, "%02d", t->tm_mday); break;
            case 'j': snprintf(text, sizeof text, "%03d", t->tm_yday + 1); break;
            case 'H': snprintf(text, sizeof text, "%02d", t->tm_hour); break;
            case 'I': snprintf(text, sizeof text, "%02d", hour); break;
            case 'M': snprintf(text, sizeof text, "%02d", t->tm_min); break;
            case 'S': snprintf(text, sizeof text, "%02d", t->tm_sec); break;
            case 'p': snprintf(text, sizeof text, t->tm_hour < 12 ? "AM" : "PM"); break;
            case 'B': snprintf(text, sizeof text, "%s", month); break;
            case 'b': snprintf(text, sizeof text, "%.3s", month); break;
            case 'A': snprintf(text, sizeof text, "%s", day); break;
            case 'a': snprintf(text, sizeof text, "%.3s", day); break;
            case '%': snprintf(text, sizeof text, "%%"); break;
            default:
                text[0] = 0,
                ph_jinja_fail(j, "%%%c of strftime_now is not known", v.text[i]);
            }
        else
            text[0] = c, text[1] = 0;
        ph_jinja_add(j, &to, text, strlen(text));
    }
    return ph_jinja_taken(&to);
}

/* ---- tests ------------------------------------------------------------------------- */

static value sequence(ph_jinja *j, value v, const arguments *a)
{
    (void)a;
    if (v.kind == PH_JINJA_VIEW) ph_jinja_fail(j, "sequence of a view is not known");
    return ph_jinja_bool(ph_jinja_is(v, PH_JINJA_TEXTS | PH_JINJA_ARRAYS |
                                            1u << PH_JINJA_DICT |
                                            1u << PH_JINJA_UNDEFINED));
}

static value within(ph_jinja *j, value v, const arguments *a)
{
    return ph_jinja_bool(ph_jinja_contains(j, *a->slot[0], v));
}

/* Tests that only look at the kind, and those that are operators. */
static const struct {
    const char *name;
    unsigned kinds;
} kind_tests[] = {{"defined", ~(1u << PH_JINJA_UNDEFINED)},
                  {"undefined", 1u << PH_JINJA_UNDEFINED},
                  {"none", 1u << PH_JINJA_NONE},
                  {"boolean", 1u << PH_JINJA_BOOL},
                  {"integer", 1u << PH_JINJA_INT},
                  {"float", 1u << PH_JINJA_FLOAT},
                  {"number", PH_JINJA_NUMBERS},
                  {"string", PH_JINJA_TEXTS},
                  {"mapping", 1u << PH_JINJA_DICT},
                  {"iterable", PH_JINJA_TEXTS | PH_JINJA_ARRAYS | 1u << PH_JINJA_DICT |
                                   1u << PH_JINJA_VIEW | 1u << PH_JINJA_GENERATOR |
                                   1u << PH_JINJA_UNDEFINED | 1u << PH_JINJA_LOOP},
                  {"callable", 1u << PH_JINJA_MACRO | 1u << PH_JINJA_FUNCTION |
                                   1u << PH_JINJA_UNDEFINED}};

static const struct {
    const char *name;
    ph_jinja_op op;
} operator_tests[] = {{"==", PH_OP_EQUAL},
                      {"eq", PH_OP_EQUAL},
                      {"equalto", PH_OP_EQUAL},
                      {"!=", PH_OP_UNEQUAL},
                      {"ne", PH_OP_UNEQUAL},
                      {"<", PH_OP_LESS},
                      {"lt", PH_OP_LESS},
                      {"lessthan", PH_OP_LESS},
                      {"<=", PH_OP_AT_MOST},
                      {"le", PH_OP_AT_MOST},
                      {">", PH_OP_GREATER},
                      {"gt", PH_OP_GREATER},
                      {"greaterthan", PH_OP_GREATER},
                      {">=", PH_OP_AT_LEAST},
                      {"ge", PH_OP_AT_LEAST}};

/* ---- tables ------------------------------------------------------------------------ */

static const ph_jinja_builtin filters[] = {
    {"length", "", 0, length},
    {"count", "", 0, length},
    {"join", "d,attribute", 0, join_filter},
    {"default", "default_value,boolean", 0, or_default},
    {"d", "default_value,boolean", 0, or_default},
    {"first", "", 0, first},
    {"last", "", 0, last},
    {"list", "", 0, list_of},
    {"items", "", 0, items_filter},
    {"dictsort", "case_sensitive,by,reverse", 0, dict_sort},
    {"sort", "reverse,case_sensitive,attribute", 0, sort},
    {"unique", "", 0, unique},
    {"reverse", "", 0, reverse},
    {"min", "", 0, least},
    {"max", "", 0, greatest},
    {"map", " filter, first, second,attribute,default", 0, map},
    {"select", " test, first, second", 0, select_items},
    {"reject", " test, first, second", 0, reject_items},
    {"selectattr", " attribute, test, first", 1, select_by},
    {"rejectattr", " attribute, test, first", 1, reject_by},
    {NULL, NULL, 0, NULL}};

static const ph_jinja_builtin tests[] = {
    {"sequence", "", 0, sequence}, {"in", "seq", 1, within}, {NULL, NULL, 0, NULL}};

static const ph_jinja_builtin dict_methods[] = {{"get", " key, default", 1, get},
                                                {"items", "", 0, items},
                                                {"keys", "", 0, keys},
                                                {"values", "", 0, values},
                                                {NULL, NULL, 0, NULL}};

static const ph_jinja_builtin functions[] = {{"range", " start, stop, step", 1, range},
                                             {"namespace", "*", 0, make_namespace},
                                             {"dict", "*", 0, make_dict},
                                             {"raise_exception", "message", 1, raise},
                                             {"strftime_now", "format", 1, date},
                                             {NULL, NULL, 0, NULL}};

static const ph_jinja_builtin *find(const ph_jinja_builtin *table, value name)
{
    while (table->name && !ph_jinja_says(name, table->name)) table++;
    return table->name ? table : NULL;
}

/* Which parameter an argument is for, or -1. */
static int slot_of(const char *parameters, const ph_jinja_argument *argument, size_t at)
{
    for (int i = 0; *parameters; i++) {
        size_t length = strcspn(parameters, ",");
        if (argument->name ? length == argument->length &&
                                 !memcmp(parameters, argument->name, length)
                           : (size_t)i == at)
            return i;
        parameters += length + (parameters[length] == ',');
    }
    return -1;
}

static value run(ph_jinja *j, const ph_jinja_builtin *b, value v, arguments *a)
{
    for (size_t i = 0; i < a->count && strcmp(b->parameters, "*") && !j->status; i++) {
        int slot = slot_of(b->parameters, &a->all[i], i);
        if (slot < 0 || a->slot[slot])
            ph_jinja_fail(j, "%s has an argument that is not known", b->name);
        else
            a->slot[slot] = &a->all[i].value;
    }
    for (int i = 0; i < b->needed; i++)
        if (!a->slot[i]) ph_jinja_fail(j, "%s lacks an argument", b->name);
    if (!ph_jinja_enter(j)) return nothing;
    v = b->run(j, v, a);
    j->depth--;
    return j->status ? nothing : v;
}

static value run_named(ph_jinja *j, const ph_jinja_builtin *table, const char *what,
                       value name, value v, arguments *a)
{
    const ph_jinja_builtin *b = find(table, name);
    if (!b && table == filters) b = find(ph_jinja_text_filters, name);
    if (b) return run(j, b, v, a);
    ph_jinja_fail(j, "the %s %s is not known", what,
                  name.kind == PH_JINJA_TEXT ? ph_io_quote(name.text, name.length).text
                                             : ph_jinja_name(name));
    return nothing;
}

value ph_jinja_filter(ph_jinja *j, value name, value v, arguments *a)
{
    return run_named(j, filters, "filter", name, v, a);
}

int ph_jinja_test(ph_jinja *j, value name, value v, arguments *a)
{
    for (size_t i = 0; i < sizeof kind_tests / sizeof kind_tests[0]; i++)
        if (a->count == 0 && ph_jinja_says(name, kind_tests[i].name))
            return ph_jinja_is(v, kind_tests[i].kinds);
    for (size_t i = 0; i < sizeof operator_tests / sizeof operator_tests[0]; i++)
        if (a->count == 1 && ph_jinja_says(name, operator_tests[i].name))
            return ph_jinja_truth(
                ph_jinja_compute(j, operator_tests[i].op, v, a->all[0].value));
    if (a->count == 0 && (ph_jinja_says(name, "true") || ph_jinja_says(name, "false")))
        return v.kind == PH_JINJA_BOOL && v.integer == ph_jinja_says(name, "true");
    return ph_jinja_truth(run_named(j, tests, "test", name, v, a));
}

value ph_jinja_method(ph_jinja *j, value name, value v, arguments *a)
{
    return run_named(j, v.kind == PH_JINJA_TEXT ? ph_jinja_text_methods : dict_methods,
                     "method", name, v, a);
}

value ph_jinja_call(ph_jinja *j, const ph_jinja_builtin *function, arguments *a)
{
    return run(j, function, nothing, a);
}

value ph_jinja_function(const char *name, size_t length)
{
    const ph_jinja_builtin *b = find(functions, ph_jinja_text(name, length));
    return b ? (value){.kind = PH_JINJA_FUNCTION, .function = b}
             : ph_jinja_undefined(name, length);
}
