/* jinja_tokens.c - tokens of templates; see jinja_tokens.h. */
#include "text/jinja_tokens.h"

#include "io/number.h"
#include "io/utf8.h"

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

int ph_token_is(const ph_jinja_parser *p, const char *text)
{
    return p->kind != PH_TOKEN_CONSTANT && p->kind != PH_TOKEN_END &&
           p->length == strlen(text) && !memcmp(p->text, text, p->length);
}

void ph_token_refuse(ph_jinja_parser *p, const char *expected)
{
    p->j->at = p->text;
    if (p->kind == PH_TOKEN_END)
        ph_jinja_fail(p->j, "the tag ends, expected %s", expected);
    else
        ph_jinja_fail(p->j, "found %s, expected %s", ph_io_quote(p->text, p->length).text,
                      expected);
}

/* \xhh, \uhhhh, \Uhhhhhhhh, \ooo behind the backslash; 0: another escape. */
static int read_code(ph_jinja_parser *p, const char **at, const char *end,
                     uint32_t *point)
{
    const char *s = *at;
    int octal = *s >= '0' && *s <= '7';
    int digits = octal ? 3 : *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0, i;
    *point = 0;
    if (!digits) return 0;
    if (!octal) s++;
    for (i = 0; i < digits && s < end; i++, s++) {
        int c = *s | 32, digit = is_digit(*s) ? *s - '0' : c - 'a' + 10;
        if (digit < 0 || digit >= (octal ? 8 : 16) || (!is_digit(*s) && c < 'a')) break;
        *point = *point << (octal ? 3 : 4) | (uint32_t)digit;
    }
    if ((!octal && i < digits) || *point == 0 || *point > 0x10ffff ||
        (*point >= 0xd800 && *point < 0xe000))
        ph_jinja_fail(p->j, "%s is an escape of no character",
                      ph_io_quote(*at - 1, (size_t)(s - *at) + 1).text);
    *at = s - 1;
    return 1;
}

/* A text in quotes, of which Python's escapes are decoded. */
static void read_string(ph_jinja_parser *p)
{
    static const char names[] = "ntr\\'\"abfv", escaped[] = "\n\t\r\\'\"\a\b\f\v";
    const char *s = p->at + 1, *end = s;
    ph_jinja_buffer to = {0};
    while (end < p->end && *end != *p->at) end += *end == '\\' ? 2 : 1;
    if (end >= p->end) ph_jinja_fail(p->j, "a text in quotes has no end");
    for (const char *from = s; s < end && !p->j->status; s++, from = s) {
        uint32_t point;
        char bytes[4];
        while (s < end && *s != '\\') s++;
        ph_jinja_add(p->j, &to, from, (size_t)(s - from));
        if (s >= end) break;
        const char *escape = ++s, *known = *escape ? strchr(names, *escape) : NULL;
        if (known)
            ph_jinja_add(p->j, &to, &escaped[known - names], 1);
        else if (*escape == 'N')
            ph_jinja_fail(p->j, "the escape \\N is not known");
        else if (read_code(p, &s, end, &point))
            ph_jinja_add(p->j, &to, bytes,
                         p->j->status ? 0 : (size_t)ph_utf8_encode(point, bytes));
        else if (*escape != '\n')
            ph_jinja_add(p->j, &to, escape - 1, 2);
    }
    p->kind = PH_TOKEN_CONSTANT, p->value = ph_jinja_taken(&to);
    p->at = end + 1;
}

static void read_number(ph_jinja_parser *p)
{
    const char *s = p->at, *start = s;
    int64_t value = 0;
    int real = 0;
    for (; s < p->end && is_digit(*s); s++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *s - '0', &value))
            return ph_jinja_fail(p->j, "a number is too large");
    if (s + 1 < p->end && *s == '.' && is_digit(s[1]) &&
        (start == p->j->source || start[-1] != '.'))
        for (real = 1, s++; s < p->end && is_digit(*s);) s++;
    if ((s < p->end && is_name(*s)) || (*start == '0' && !real && s > start + 1))
        return ph_jinja_fail(p->j, "%s is no number that is known",
                             ph_io_quote(start, (size_t)(s - start) + 1).text);
    p->kind = PH_TOKEN_CONSTANT, p->value = ph_jinja_int(value), p->at = s;
    if (!real) return;
    p->value.kind = PH_JINJA_FLOAT;
    if (ph_number_parse(start, (size_t)(s - start), &p->value.real))
        ph_jinja_fail(p->j, "a number is too large");
}

const char *ph_token_tag_end(const ph_jinja_parser *p)
{
    int sign = *p->at == '-' || (*p->at == '+' && p->close[0] != '}');
    const char *s = p->at + sign;
    if (p->end - s < 2 || memcmp(s, p->close, 2)) return NULL;
    s += 2;
    if (sign && *p->at == '-')
        for (size_t step; (step = ph_jinja_space(s, p->end));) s += step;
    else if (!sign && p->close[0] != '}' && s < p->end && *s == '\n')
        s++;
    return s;
}

void ph_token_next(ph_jinja_parser *p)
{
    static const char doubles[] = "== != <= >= // **", singles[] = "+-*/%~<>=.:,|()[]{}";
    if (!ph_jinja_charge(p->j, 4)) {
        p->kind = PH_TOKEN_END;
        return;
    }
    for (size_t step; (step = ph_jinja_space(p->at, p->end));) p->at += step;
    p->text = p->j->at = p->at, p->length = 0, p->kind = PH_TOKEN_END;
    if (p->at == p->end)
        return ph_jinja_fail(p->j, "a tag has no end, expected %s", p->close);
    const char *after = p->brackets ? NULL : ph_token_tag_end(p), c = *p->at;
    if (after) {
        p->at = after;
    } else if (c == '\'' || c == '"') {
        read_string(p);
    } else if (is_digit(c)) {
        read_number(p);
    } else if (is_name(c)) {
        for (p->kind = PH_TOKEN_NAME; p->at < p->end && is_name(*p->at);) p->at++;
    } else {
        char two[3] = {c, p->at + 1 < p->end ? p->at[1] : ' ', 0};
        p->kind = PH_TOKEN_MARK;
        p->length = two[1] > ' ' && strstr(doubles, two) ? 2 : 1;
        if (!c || !strchr(singles, c))
            if (p->length == 1) return ph_token_refuse(p, "an expression");
        p->brackets +=
            (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
        p->at += p->length;
    }
    if (p->kind != PH_TOKEN_MARK) p->length = (size_t)(p->at - p->text);
}

int ph_token_take(ph_jinja_parser *p, const char *text)
{
    if (!ph_token_is(p, text) || p->j->status) return 0;
    ph_token_next(p);
    return 1;
}

void ph_token_expect(ph_jinja_parser *p, const char *text)
{
    if (!ph_token_take(p, text)) ph_token_refuse(p, text);
}

void ph_token_expect_end(ph_jinja_parser *p)
{
    if (p->kind != PH_TOKEN_END) ph_token_refuse(p, "the end of the tag");
}
