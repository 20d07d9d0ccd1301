/*
 * chat_values.c - expressions of a chat template: texts, names and the few operators that
 * templates put between them; see chat_values.h.
 *
 * Names that a template does not set are looked up in a fixed conversation. Whatever else
 * there is (calls, filters, arithmetic) makes a value unknown, never wrong.
 */
#define _POSIX_C_SOURCE 200809L /* localtime_r */
#include "text/chat_values.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct expression {
    ph_chat_scope *scope;
    const char *at, *end;
    int depth;
} expression;

static const ph_chat_value unknown = {.kind = PH_CHAT_UNKNOWN};

static ph_chat_value parse(expression *e);

static ph_chat_value truth_of(int truth)
{
    return truth < 0 ? unknown : (ph_chat_value){.kind = PH_CHAT_BOOL, .number = truth};
}

static ph_chat_value number_of(int number)
{
    return (ph_chat_value){.kind = PH_CHAT_NUMBER, .number = number};
}

static ph_chat_value text_of(const char *text, size_t length)
{
    return (ph_chat_value){.kind = PH_CHAT_TEXT, .text = text, .length = length};
}

int ph_chat_truth(const ph_chat_value *v)
{
    if (v->kind == PH_CHAT_UNKNOWN) return -1;
    if (v->kind == PH_CHAT_BOOL || v->kind == PH_CHAT_NUMBER) return v->number != 0;
    if (v->kind != PH_CHAT_TEXT)
        return v->kind == PH_CHAT_MESSAGE || v->kind == PH_CHAT_MESSAGES;
    for (size_t i = 0; i < v->length; i++)
        if ((unsigned char)v->text[i] > PH_CHAT_TRIMMED) return 1;
    return v->length ? -1 : 0; /* a message may be empty */
}

/* Memory for a text; NULL: there is none left. */
static char *take(ph_chat_scope *s, size_t length)
{
    if (length > s->size - s->used) return NULL;
    char *text = s->memory + s->used;
    s->used += length;
    return text;
}

/* ---- variables --------------------------------------------------------------------- */

static ph_chat_variable *find(ph_chat_scope *s, const char *name, size_t length)
{
    for (int i = 0; i < s->count; i++)
        if (strlen(s->variables[i].name) == length &&
            !memcmp(s->variables[i].name, name, length))
            return &s->variables[i];
    return NULL;
}

void ph_chat_set(ph_chat_scope *s, const char *name, size_t length, ph_chat_value value)
{
    ph_chat_variable *v = find(s, name, length);
    if (!v && (s->count == PH_CHAT_VARIABLES || length >= sizeof v->name)) return;
    if (!v) {
        v = &s->variables[s->count++];
        memcpy(v->name, name, length);
        v->name[length] = 0;
    }
    v->value = value;
}

/* ---- tokens of an expression ------------------------------------------------------- */

static void skip_blanks(expression *e)
{
    while (e->at < e->end && isspace((unsigned char)*e->at)) e->at++;
}

static int is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static int take_mark(expression *e, const char *mark)
{
    size_t length = strlen(mark);
    skip_blanks(e);
    if ((size_t)(e->end - e->at) < length || memcmp(e->at, mark, length)) return 0;
    if (is_name(mark[0]) && e->at + length < e->end && is_name(e->at[length])) return 0;
    e->at += length;
    return 1;
}

static char peek(expression *e)
{
    skip_blanks(e);
    return e->at < e->end ? *e->at : 0;
}

/* Behind what [ or ( opens, texts inside included; 0: it has no end. */
static int skip_group(expression *e)
{
    int depth = 0;
    char quote = 0;
    for (; e->at < e->end; e->at++) {
        char c = *e->at;
        if (quote) {
            if (c == '\\') e->at++;
            if (c == quote) quote = 0;
        } else if (c == '\'' || c == '"') {
            quote = c;
        } else if (c == '(' || c == '[' || c == '{') {
            depth++;
        } else if ((c == ')' || c == ']' || c == '}') && --depth == 0) {
            e->at++;
            return 1;
        }
    }
    e->at = e->end;
    return 0;
}

/* A text in quotes; an escape that is not usual, or a byte that stands for the message,
   makes it unknown. */
static ph_chat_value parse_text(expression *e)
{
    static const char escapes[] = "n\nt\tr\r\\\\''\"\"";
    char quote = *e->at++, *to = take(e->scope, (size_t)(e->end - e->at));
    size_t length = 0, taken = (size_t)(e->end - e->at);
    int good = to != NULL;
    for (; e->at < e->end && *e->at != quote; e->at++) {
        char c = *e->at;
        if (c == '\\' && e->at + 1 < e->end) {
            const char *escape = escapes;
            e->at++;
            while (*escape && *escape != *e->at) escape += 2;
            good &= *escape != 0;
            c = escape[*escape != 0];
        }
        good &= (unsigned char)c > PH_CHAT_TRIMMED;
        if (good) to[length++] = c;
    }
    if (to) e->scope->used -= taken - length;
    if (e->at < e->end)
        e->at++;
    else
        good = 0;
    return good ? text_of(to, length) : unknown;
}

/* ---- names ------------------------------------------------------------------------- */

static ph_chat_value field_of(const char *name)
{
    static const char user[] = "user", content[] = {PH_CHAT_CONTENT};
    if (!strcmp(name, "role")) return text_of(user, 4);
    if (!strcmp(name, "content")) return text_of(content, 1);
    return (ph_chat_value){.kind = PH_CHAT_UNDEFINED};
}

static ph_chat_value token_of(const char *token)
{
    return token ? text_of(token, strlen(token))
                 : (ph_chat_value){.kind = PH_CHAT_UNDEFINED};
}

/* messages[first:], where a variable says where the message of a system ends. */
static ph_chat_value messages_from(ph_chat_scope *s, const char *name)
{
    size_t length = strlen(name);
    const ph_chat_variable *v = NULL;
    if (length > 11 && !strcmp(name + length - 2, ":]"))
        v = find(s, name + 9, length - 11);
    if (!v || v->value.kind != PH_CHAT_NUMBER) return unknown;
    return (ph_chat_value){.kind = v->value.number ? PH_CHAT_EMPTY : PH_CHAT_MESSAGES};
}

/* A whole name, with points and brackets as they were joined by read_name. */
static ph_chat_value look_up(ph_chat_scope *s, const char *name)
{
    static const struct {
        const char *name;
        ph_chat_value value;
    } known[] = {{"messages", {.kind = PH_CHAT_MESSAGES}},
                 {"messages[::-1]", {.kind = PH_CHAT_MESSAGES}},
                 {"messages[1:]", {.kind = PH_CHAT_EMPTY}},
                 {"messages[0]", {.kind = PH_CHAT_MESSAGE}},
                 {"messages[-1]", {.kind = PH_CHAT_MESSAGE}},
                 {"add_generation_prompt", {.kind = PH_CHAT_BOOL, .number = 1}},
                 {"true", {.kind = PH_CHAT_BOOL, .number = 1}},
                 {"false", {.kind = PH_CHAT_BOOL}},
                 {"True", {.kind = PH_CHAT_BOOL, .number = 1}},
                 {"False", {.kind = PH_CHAT_BOOL}},
                 {"none", {.kind = PH_CHAT_NONE}},
                 {"None", {.kind = PH_CHAT_NONE}},
                 {"tools", {.kind = PH_CHAT_NONE}},
                 {"documents", {.kind = PH_CHAT_NONE}},
                 {"strftime_now", {.kind = PH_CHAT_BOOL, .number = 1}},
                 {"namespace", {.kind = PH_CHAT_UNKNOWN}},
                 {"loop.first", {.kind = PH_CHAT_BOOL, .number = 1}},
                 {"loop.last", {.kind = PH_CHAT_BOOL, .number = 1}},
                 {"loop.index0", {.kind = PH_CHAT_NUMBER}},
                 {"loop.index", {.kind = PH_CHAT_NUMBER, .number = 1}}};
    const ph_chat_variable *v = find(s, name, strlen(name));
    if (v) return v->value;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(known[i].name, name)) return known[i].value;
    size_t loop = strlen(s->loop);
    if (loop && !strcmp(name, s->loop)) return (ph_chat_value){.kind = PH_CHAT_MESSAGE};
    if (loop && !strncmp(name, s->loop, loop) && name[loop] == '.')
        return field_of(name + loop + 1);
    if (!strncmp(name, "messages[0].", 12)) return field_of(name + 12);
    if (!strncmp(name, "messages[-1].", 13)) return field_of(name + 13);
    if (!strncmp(name, "messages[", 9)) return messages_from(s, name);
    if (!strcmp(name, "bos_token")) return token_of(s->bos);
    if (!strcmp(name, "eos_token")) return token_of(s->eos);
    if (strpbrk(name, ".[")) return unknown;
    size_t length = strlen(name); /* other special tokens are defined */
    if (length > 6 && !strcmp(name + length - 6, "_token")) return unknown;
    return (ph_chat_value){.kind = PH_CHAT_UNDEFINED};
}

/* The next name, a.b, a['b'] and a[0] in one; 0: too long. Stops before a call. */
static int read_name(expression *e, char *name, size_t size)
{
    size_t used = 0;
    for (;;) {
        while (e->at < e->end && is_name(*e->at) && used + 2 < size)
            name[used++] = *e->at++;
        name[used] = 0;
        if (e->at >= e->end || used + 2 >= size) break;
        if (*e->at == '.') {
            name[used++] = *e->at++;
            continue;
        }
        if (*e->at != '[') break;
        const char *begin = e->at + 1;
        if (!skip_group(e)) return 0;
        const char *stop = e->at - 1;
        while (begin < stop && isspace((unsigned char)*begin)) begin++;
        while (stop > begin && isspace((unsigned char)stop[-1])) stop--;
        int quoted = stop - begin > 2 && (*begin == '\'' || *begin == '"');
        int count = snprintf(name + used, size - used, quoted ? ".%.*s" : "[%.*s]",
                             (int)(stop - begin - 2 * quoted), begin + quoted);
        if (count < 0 || (size_t)count >= size - used) return 0;
        used += (size_t)count;
    }
    return used + 2 < size;
}

/* The two ways in which templates write the date: "07 Mar 2025" and "2025-03-07". */
static ph_chat_value today(ph_chat_scope *s, const char *format, size_t length)
{
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm date;
    int by_name = length == 8 && !memcmp(format, "%d %b %Y", 8);
    if (!by_name && (length != 8 || memcmp(format, "%Y-%m-%d", 8))) return unknown;
    char *text = take(s, 32);
    if (!text || !localtime_r(&now, &date)) return unknown;
    int year = date.tm_year + 1900, day = date.tm_mday;
    int count = by_name ? snprintf(text, 32, "%02d %s %d", day, months[date.tm_mon], year)
                        : snprintf(text, 32, "%d-%02d-%02d", year, date.tm_mon + 1, day);
    return text_of(text, (size_t)count);
}

/* ---- calls and filters ------------------------------------------------------------- */

static int is_blank(char c)
{
    return c && strchr(" \t\r\n\v\f", c);
}

/* Texts with a message at an end cannot be trimmed before it is known. */
static ph_chat_value trim(ph_chat_value v)
{
    static const char trimmed[] = {PH_CHAT_TRIMMED};
    if (v.kind != PH_CHAT_TEXT) return unknown;
    if (v.length == 1 && (unsigned char)v.text[0] <= PH_CHAT_TRIMMED)
        return text_of(trimmed, 1);
    while (v.length && is_blank(*v.text)) v.text++, v.length--;
    while (v.length && is_blank(v.text[v.length - 1])) v.length--;
    if (v.length && ((unsigned char)v.text[0] <= PH_CHAT_TRIMMED ||
                     (unsigned char)v.text[v.length - 1] <= PH_CHAT_TRIMMED))
        return unknown;
    return v;
}

/* name(...): what strips, what a message does not have, and the date. */
static ph_chat_value parse_call(expression *e, const char *name)
{
    const char *point = strrchr(name, '.'), *begin = e->at;
    char owner[128] = "";
    if (!skip_group(e)) return unknown;
    size_t inside = (size_t)(e->at - begin) - 2;
    if (peek(e) == '[' || peek(e) == '.') {
        while (e->at < e->end && (*e->at == '[' || *e->at == '.' || *e->at == '('))
            if (*e->at == '.') {
                for (e->at++; e->at < e->end && is_name(*e->at);) e->at++;
            } else if (!skip_group(e)) {
                return unknown;
            }
        return unknown;
    }
    if (!strcmp(name, "strftime_now") && inside > 2)
        return today(e->scope, begin + 2, inside - 2);
    if (!point) return unknown;
    snprintf(owner, sizeof owner, "%.*s", (int)(point - name), name);
    ph_chat_value v = look_up(e->scope, owner);
    if (!strcmp(point, ".strip") && inside == 0) return trim(v);
    if (!strcmp(point, ".get") && v.kind == PH_CHAT_MESSAGE && inside > 2) {
        char field[64];
        snprintf(field, sizeof field, "%.*s", (int)(inside - 2), begin + 2);
        return field_of(field);
    }
    return unknown;
}

static ph_chat_value parse_filters(expression *e, ph_chat_value v)
{
    while (take_mark(e, "|")) {
        char name[64];
        skip_blanks(e);
        if (!read_name(e, name, sizeof name)) return unknown;
        int call = peek(e) == '(';
        if (call && !skip_group(e)) return unknown;
        if (!strcmp(name, "trim") && !call)
            v = trim(v);
        else if (!strcmp(name, "length") && v.kind == PH_CHAT_MESSAGES)
            v = number_of(1);
        else
            v = unknown;
    }
    return v;
}

static ph_chat_value parse_primary(expression *e)
{
    char c = peek(e), name[128];
    if (c == '\'' || c == '"') {
        ph_chat_value v = parse_text(e);
        if (peek(e) == '.' || peek(e) == '[') e->at = e->end, v = unknown;
        return v;
    }
    if (c == '(') {
        e->at++;
        ph_chat_value v = parse(e);
        if (!take_mark(e, ")")) return e->at = e->end, unknown;
        if (e->at < e->end && (*e->at == '.' || *e->at == '['))
            e->at = e->end, v = unknown;
        return v;
    }
    if (isdigit((unsigned char)c)) {
        int number = 0;
        while (e->at < e->end && isdigit((unsigned char)*e->at) && number < 1 << 20)
            number = 10 * number + (*e->at++ - '0');
        return number_of(number);
    }
    if (!is_name(c) || !read_name(e, name, sizeof name)) return e->at = e->end, unknown;
    return peek(e) == '(' ? parse_call(e, name) : look_up(e->scope, name);
}

/* ---- operators --------------------------------------------------------------------- */

static ph_chat_value join(expression *e, ph_chat_value a, ph_chat_value b)
{
    if (a.kind == PH_CHAT_NUMBER && b.kind == PH_CHAT_NUMBER)
        return number_of(a.number + b.number);
    char *text = a.kind == PH_CHAT_TEXT && b.kind == PH_CHAT_TEXT
                     ? take(e->scope, a.length + b.length)
                     : NULL;
    if (!text) return unknown;
    memcpy(text, a.text, a.length);
    memcpy(text + a.length, b.text, b.length);
    return text_of(text, a.length + b.length);
}

static ph_chat_value parse_sum(expression *e)
{
    ph_chat_value v = parse_filters(e, parse_primary(e));
    for (;;) {
        int percent = 0;
        if (!take_mark(e, "+") && !take_mark(e, "~") && !(percent = take_mark(e, "%")))
            break;
        ph_chat_value other = parse_filters(e, parse_primary(e));
        if (!percent)
            v = join(e, v, other);
        else if (v.kind == PH_CHAT_NUMBER && other.kind == PH_CHAT_NUMBER && other.number)
            v = number_of(v.number % other.number);
        else
            v = unknown;
    }
    return v;
}

static int holds_message(const ph_chat_value *v)
{
    for (size_t i = 0; v->kind == PH_CHAT_TEXT && i < v->length; i++)
        if ((unsigned char)v->text[i] <= PH_CHAT_TRIMMED) return 1;
    return 0;
}

static int equal(ph_chat_value a, ph_chat_value b)
{
    if (!a.kind || !b.kind || holds_message(&a) || holds_message(&b)) return -1;
    if (a.kind != b.kind) /* a truth may stand for a value of which no more is known */
        return a.kind == PH_CHAT_BOOL || b.kind == PH_CHAT_BOOL ? -1 : 0;
    if (a.kind == PH_CHAT_TEXT)
        return a.length == b.length && !memcmp(a.text, b.text, a.length);
    return a.number == b.number;
}

/* x is defined, none, string, ... */
static int parse_test(expression *e, const ph_chat_value *v)
{
    static const struct {
        const char *name;
        unsigned kinds;
    } tests[] = {{"none", 1u << PH_CHAT_NONE},
                 {"undefined", 1u << PH_CHAT_UNDEFINED},
                 {"string", 1u << PH_CHAT_TEXT},
                 {"mapping", 1u << PH_CHAT_MESSAGE},
                 {"iterable", 1u << PH_CHAT_TEXT | 1u << PH_CHAT_MESSAGE |
                                  1u << PH_CHAT_MESSAGES | 1u << PH_CHAT_EMPTY},
                 {"sequence", 1u << PH_CHAT_TEXT | 1u << PH_CHAT_MESSAGE |
                                  1u << PH_CHAT_MESSAGES | 1u << PH_CHAT_EMPTY}};
    char name[64];
    skip_blanks(e);
    if (!read_name(e, name, sizeof name) || !v->kind) return -1;
    if (!strcmp(name, "defined")) return v->kind != PH_CHAT_UNDEFINED;
    if (!strcmp(name, "true")) return v->kind == PH_CHAT_BOOL && v->number;
    if (!strcmp(name, "false")) return v->kind == PH_CHAT_BOOL && !v->number;
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++)
        if (!strcmp(name, tests[i].name)) return (int)(tests[i].kinds >> v->kind & 1);
    return -1;
}

/* 'user' in ['user', 'system'], 'tool_calls' in message */
static int parse_in(expression *e, ph_chat_value v)
{
    if (peek(e) == '[') {
        int found = 0;
        e->at++;
        do {
            int same = equal(v, parse(e));
            found = found == 1 || same == 1 ? 1 : same < 0 ? -1 : found;
        } while (take_mark(e, ","));
        return take_mark(e, "]") ? found : -1;
    }
    ph_chat_value in = parse_sum(e);
    if (in.kind != PH_CHAT_MESSAGE || v.kind != PH_CHAT_TEXT) return -1;
    return (v.length == 4 && !memcmp(v.text, "role", 4)) ||
           (v.length == 7 && !memcmp(v.text, "content", 7));
}

static int flip(int truth, int inverse)
{
    return truth < 0 ? -1 : truth != inverse;
}

static ph_chat_value parse_comparison(expression *e)
{
    ph_chat_value v = parse_sum(e);
    for (;;) {
        if (take_mark(e, "==")) {
            v = truth_of(equal(v, parse_sum(e)));
        } else if (take_mark(e, "!=")) {
            v = truth_of(flip(equal(v, parse_sum(e)), 1));
        } else if (take_mark(e, "is")) {
            int inverse = take_mark(e, "not");
            v = truth_of(flip(parse_test(e, &v), inverse));
        } else if (take_mark(e, "in")) {
            v = truth_of(parse_in(e, v));
        } else if (take_mark(e, "not")) {
            if (!take_mark(e, "in")) return unknown;
            v = truth_of(flip(parse_in(e, v), 1));
        } else if (take_mark(e, ">") || take_mark(e, "<")) {
            take_mark(e, "=");
            parse_sum(e);
            v = unknown;
        } else {
            return v;
        }
    }
}

static ph_chat_value parse_not(expression *e)
{
    if (!take_mark(e, "not")) return parse_comparison(e);
    if (++e->depth > PH_CHAT_DEPTH) return e->at = e->end, unknown;
    ph_chat_value v = parse_not(e);
    e->depth--;
    return truth_of(flip(ph_chat_truth(&v), 1));
}

static ph_chat_value parse_and(expression *e)
{
    ph_chat_value v = parse_not(e);
    while (take_mark(e, "and")) {
        ph_chat_value other = parse_not(e);
        int a = ph_chat_truth(&v);
        if (a == 0) continue;
        int b = ph_chat_truth(&other);
        v = a > 0 ? other : truth_of(b == 0 ? 0 : -1);
    }
    return v;
}

static ph_chat_value parse_or(expression *e)
{
    ph_chat_value v = parse_and(e);
    while (take_mark(e, "or")) {
        ph_chat_value other = parse_and(e);
        int a = ph_chat_truth(&v);
        if (a > 0) continue;
        int b = ph_chat_truth(&other);
        v = a == 0 ? other : truth_of(b > 0 ? 1 : -1);
    }
    return v;
}

/* a if b else c */
static ph_chat_value parse(expression *e)
{
    if (++e->depth > PH_CHAT_DEPTH) return e->at = e->end, unknown;
    ph_chat_value v = parse_or(e);
    if (take_mark(e, "if")) {
        ph_chat_value condition = parse_or(e);
        ph_chat_value other = {.kind = PH_CHAT_UNDEFINED};
        if (take_mark(e, "else")) other = parse(e);
        int truth = ph_chat_truth(&condition);
        v = truth < 0 ? unknown : truth ? v : other;
    }
    e->depth--;
    return v;
}

ph_chat_value ph_chat_evaluate(ph_chat_scope *scope, const char *text, size_t length)
{
    expression e = {scope, text, text + length, 0};
    ph_chat_value v = parse(&e);
    skip_blanks(&e);
    return e.at == e.end ? v : unknown;
}
