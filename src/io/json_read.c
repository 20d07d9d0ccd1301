/*
 * json_read.c - a strict JSON pull parser; see json_read.h.
 *
 * The state between two tokens is the last token and the bracket that is innermost:
 * together they say what may come next. Duplicate keys are found when an object closes,
 * by a hash table, or by sorting where keys were made to collide: a hostile file must not
 * be slow.
 */
#include "io/json_read.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "io/number.h"
#include "io/sort.h"
#include "io/utf8.h"

/* ---- errors ------------------------------------------------------------------------ */

static ph_json_token fail_as(ph_json_reader *json, ph_status status, const char *message)
{
    json->status = status;
    json->message = message;
    return PH_JSON_ERROR;
}

static ph_json_token fail(ph_json_reader *json, const char *message)
{
    return fail_as(json, PH_BAD_FILE, message);
}

/* ---- strings ----------------------------------------------------------------------- */

/* The four hex digits at json->at, or -1. */
static int32_t read_hex(ph_json_reader *json)
{
    int32_t value = 0;
    if (json->size - json->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = json->input[json->at + (size_t)i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    json->at += 4;
    return value;
}

/* After "\u": one code point, maybe from a surrogate pair. NULL, or what is wrong. */
static const char *read_code_point(ph_json_reader *json, uint32_t *point)
{
    int32_t high = read_hex(json), low = 0;
    if (high < 0) return "expected four hex digits after \\u";
    *point = (uint32_t)high;
    if (high < 0xd800 || high > 0xdfff) return NULL;
    if (high > 0xdbff) return "second half of a surrogate pair without the first";
    if (json->size - json->at < 2 || memcmp(json->input + json->at, "\\u", 2) != 0)
        return "first half of a surrogate pair without the second";
    json->at += 2;
    low = read_hex(json);
    if (low < 0xdc00 || low > 0xdfff)
        return "first half of a surrogate pair without the second";
    *point = 0x10000u + (((uint32_t)high - 0xd800u) << 10) + ((uint32_t)low - 0xdc00u);
    return NULL;
}

/* After a backslash: writes the character to *out and moves it on. */
static const char *read_escape(ph_json_reader *json, char **out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char letter = json->at < json->size ? json->input[json->at] : 0;
    const char *found = letter ? strchr(from, letter) : NULL;
    const char *wrong = NULL;
    uint32_t point = 0;
    if (found) {
        json->at++;
        *(*out)++ = to[found - from];
    } else if (letter == 'u') {
        json->at++;
        wrong = read_code_point(json, &point);
        if (!wrong) *out += ph_utf8_encode(point, *out);
    } else {
        wrong = "unknown escape after a backslash";
    }
    return wrong;
}

/* The first byte from `at` on that is a quote, a backslash or a control. */
static size_t run_end(const ph_json_reader *json, size_t at)
{
    const unsigned char *s = (const unsigned char *)json->input;
    while (at < json->size && s[at] != '"' && s[at] != '\\' && s[at] >= 0x20) at++;
    return at;
}

/* At the opening quote. Decodes in place: an escape is never shorter than what it decodes
   to, and the NUL takes the place of the closing quote. */
static const char *read_string(ph_json_reader *json)
{
    const char *wrong = NULL;
    char *out = json->input + ++json->at;
    json->text = out;
    while (!wrong) {
        size_t start = json->at, end = run_end(json, start);
        if (out != json->input + start) memmove(out, json->input + start, end - start);
        out += end - start;
        json->at = end;
        if ((size_t)(out - json->text) > json->limits.string) {
            wrong = "string longer than allowed";
        } else if (end == json->size) {
            wrong = "string without a closing quote";
        } else if (json->input[end] == '"') {
            break;
        } else if (json->input[end] == '\\') {
            json->at++;
            wrong = read_escape(json, &out);
        } else {
            wrong = "control character inside a string";
        }
    }
    if (wrong) return wrong;
    json->at++;
    json->length = (size_t)(out - json->text);
    *out = 0;
    return NULL;
}

/* ---- keys -------------------------------------------------------------------------- */

static uint32_t hash_of(const char *text, size_t length) /* FNV-1a */
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash;
}

static int compare_keys(const void *left, const void *right)
{
    const ph_json_key *a = left, *b = right;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    if (a->length != b->length) return a->length < b->length ? -1 : 1;
    return memcmp(a->text, b->text, a->length);
}

static ph_json_token keep_key(ph_json_reader *json)
{
    void *keys = json->keys;
    ph_status status = PH_OK;
    if (json->key_count == json->key_capacity) {
        status = ph_io_grow(json->io, &keys, &json->key_capacity, json->key_count + 1,
                            sizeof *json->keys);
        json->keys = keys;
    }
    if (status != PH_OK) return fail_as(json, status, "out of memory");
    json->keys[json->key_count++] = (ph_json_key){hash_of(json->text, json->length),
                                                  (uint32_t)json->length, json->text};
    return PH_JSON_KEY;
}

/* The later of two equal keys, or NULL: sorted, they are neighbours. */
static const ph_json_key *twice_by_sorting(ph_json_key *keys, size_t count)
{
    const ph_json_key *found = NULL;
    ph_sort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count && !found; i++)
        if (compare_keys(&keys[i - 1], &keys[i]) == 0) found = &keys[i];
    return found;
}

/* The same for many keys in linear time, by a hash table. Keys made to collide could make
   that quadratic, so after too many probes it gives up (*done stays 0). */
static const ph_json_key *twice_by_table(const ph_json_key *keys, size_t count,
                                         uint32_t *table, size_t mask, int *done)
{
    size_t steps_left = 16 * count;
    for (size_t i = 0; i < count; i++) {
        size_t slot = (keys[i].hash * UINT32_C(0x9e3779b1)) & mask;
        for (; table[slot]; slot = (slot + 1) & mask) {
            if (compare_keys(&keys[table[slot] - 1], &keys[i]) == 0) {
                *done = 1;
                return &keys[i];
            }
            if (steps_left-- == 0) return NULL;
        }
        table[slot] = (uint32_t)(i + 1);
    }
    *done = 1;
    return NULL;
}

static const ph_json_key *find_twice(const ph_json_reader *json, ph_json_key *keys,
                                     size_t count)
{
    const ph_json_key *found = NULL;
    size_t slots = 1, bytes = 0;
    int done = 0;
    while (slots < 2 * count) slots *= 2;
    if (count > 64 && count < UINT32_MAX &&
        !ph_size_mul(slots, sizeof(uint32_t), &bytes)) {
        uint32_t *table = ph_io_alloc(json->io, bytes);
        if (table) { /* without memory there is still the slow way */
            memset(table, 0, bytes);
            found = twice_by_table(keys, count, table, slots - 1, &done);
            ph_io_release(json->io, table);
        }
    }
    return done ? found : twice_by_sorting(keys, count);
}

/* At the end of an object: forgets its keys, or finds one of them twice. */
static ph_json_token drop_keys(ph_json_reader *json)
{
    size_t first = json->first_key[json->depth], count = json->key_count - first;
    const ph_json_key *found =
        count > 1 ? find_twice(json, json->keys + first, count) : NULL;
    json->key_count = first;
    if (!found) return PH_JSON_OBJECT_END;
    json->text = found->text;
    json->length = found->length;
    json->twice = 1;
    return fail(json, "the same key twice in one object");
}

/* ---- numbers and words ------------------------------------------------------------- */

static size_t digits_end(const ph_json_reader *json, size_t at)
{
    while (at < json->size && json->input[at] >= '0' && json->input[at] <= '9') at++;
    return at;
}

static int is_at(const ph_json_reader *json, size_t at, char c)
{
    return at < json->size && json->input[at] == c;
}

static ph_json_token read_number(ph_json_reader *json)
{
    size_t start = json->at, at = start + (json->input[start] == '-');
    size_t end = digits_end(json, at), whole = end - at;
    const char *wrong = NULL;
    double value;
    int has_exponent = 0;
    if (end == at) wrong = "expected a digit after '-'";
    if (whole > 1 && json->input[at] == '0') wrong = "number with a leading zero";
    if (!wrong && is_at(json, end, '.')) {
        at = end + 1;
        end = digits_end(json, at);
        if (end == at) wrong = "expected a digit after the decimal point";
    }
    if (!wrong && (is_at(json, end, 'e') || is_at(json, end, 'E'))) {
        has_exponent = 1;
        at = end + 1;
        if (is_at(json, at, '+') || is_at(json, at, '-')) at++;
        end = digits_end(json, at);
        if (end == at) wrong = "expected a digit in the exponent";
    }
    json->at = end;
    json->text = json->input + start;
    json->length = end - start;
    /* Short numbers without exponent are always in range: no need to look. */
    if (!wrong && (has_exponent || whole > 300) && ph_json_as_double(json, &value) != 0)
        wrong = "number too large for a double";
    return wrong ? fail(json, wrong) : PH_JSON_NUMBER;
}

static ph_json_token read_word(ph_json_reader *json)
{
    static const struct {
        const char *word;
        ph_json_token token;
    } words[] = {
        {"true", PH_JSON_TRUE}, {"false", PH_JSON_FALSE}, {"null", PH_JSON_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i].word);
        if (json->size - json->at >= length &&
            memcmp(json->input + json->at, words[i].word, length) == 0) {
            json->at += length;
            return words[i].token;
        }
    }
    return fail(json, "expected a value");
}

/* ---- structure --------------------------------------------------------------------- */

static void skip_space(ph_json_reader *json)
{
    const char *s = json->input;
    while (json->at < json->size && (s[json->at] == ' ' || s[json->at] == '\n' ||
                                     s[json->at] == '\t' || s[json->at] == '\r'))
        json->at++;
}

static ph_json_token open_bracket(ph_json_reader *json, char bracket)
{
    if (json->depth >= json->limits.depth)
        return fail(json, "nested deeper than allowed");
    json->at++;
    json->first_key[json->depth] = json->key_count;
    json->open[json->depth++] = bracket;
    return bracket == '{' ? PH_JSON_OBJECT : PH_JSON_ARRAY;
}

static ph_json_token close_bracket(ph_json_reader *json)
{
    json->at++;
    json->depth--;
    return json->open[json->depth] == '{' ? drop_keys(json) : PH_JSON_ARRAY_END;
}

static ph_json_token read_value(ph_json_reader *json)
{
    char c = json->at < json->size ? json->input[json->at] : 0;
    const char *wrong = NULL;
    if (json->at >= json->size) return fail(json, "text ends where a value is expected");
    if (c == '{' || c == '[') return open_bracket(json, c);
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(json);
    if (c != '"') return read_word(json);
    wrong = read_string(json);
    return wrong ? fail(json, wrong) : PH_JSON_STRING;
}

static ph_json_token read_key(ph_json_reader *json)
{
    const char *wrong = NULL;
    if (!is_at(json, json->at, '"')) return fail(json, "expected a key in quotes");
    wrong = read_string(json);
    if (wrong) return fail(json, wrong);
    skip_space(json);
    if (!is_at(json, json->at, ':')) return fail(json, "expected ':' after a key");
    json->at++;
    return keep_key(json);
}

/* Inside an object or array, not directly after a key. */
static ph_json_token read_member(ph_json_reader *json)
{
    int in_object = json->open[json->depth - 1] == '{';
    int first = json->token == PH_JSON_OBJECT || json->token == PH_JSON_ARRAY;
    if (is_at(json, json->at, in_object ? '}' : ']')) return close_bracket(json);
    if (!first) {
        if (!is_at(json, json->at, ','))
            return fail(json, in_object ? "expected ',' or '}'" : "expected ',' or ']'");
        json->at++;
        skip_space(json);
    }
    return in_object ? read_key(json) : read_value(json);
}

/* ---- the functions of json_read.h -------------------------------------------------- */

void ph_json_open(ph_json_reader *json, char *text, size_t length, ph_json_limits limits,
                  const ph_io *io)
{
    memset(json, 0, sizeof *json);
    json->input = text;
    json->size = length;
    json->limits = limits;
    json->io = io;
    json->token = PH_JSON_NULL; /* anything that is neither an error nor the end */
    if (limits.depth > PH_JSON_MAX_DEPTH) json->limits.depth = PH_JSON_MAX_DEPTH;
    if (limits.string > UINT32_MAX) json->limits.string = UINT32_MAX;
    json->at = ph_utf8_valid(text, length);
    if (json->at < length)
        json->token = fail(json, "not valid UTF-8");
    else
        json->at = 0;
}

ph_json_token ph_json_next(ph_json_reader *json)
{
    if (json->token == PH_JSON_ERROR || json->token == PH_JSON_END) return json->token;
    int started = json->at > 0;
    skip_space(json);
    if (json->depth > 0 && json->token != PH_JSON_KEY)
        json->token = read_member(json);
    else if (json->depth > 0 || !started)
        json->token = read_value(json);
    else if (json->at < json->size)
        json->token = fail(json, "something follows the end of the value");
    else
        json->token = PH_JSON_END;
    return json->token;
}

void ph_json_close(ph_json_reader *json)
{
    ph_io_release(json->io, json->keys);
    json->keys = NULL;
}

ph_status ph_json_skip(ph_json_reader *json)
{
    int outside = json->depth;
    if (json->token == PH_JSON_OBJECT || json->token == PH_JSON_ARRAY) outside--;
    while (json->token != PH_JSON_ERROR && json->depth > outside) ph_json_next(json);
    return json->token == PH_JSON_ERROR ? json->status : PH_OK;
}

int ph_json_as_size(const ph_json_reader *json, size_t *out)
{
    size_t value = 0;
    for (size_t i = 0; i < json->length; i++) {
        if (json->text[i] < '0' || json->text[i] > '9') return -1;
        size_t digit = (size_t)(json->text[i] - '0');
        if (value > (SIZE_MAX - digit) / 10) return -1;
        value = value * 10 + digit;
    }
    *out = value;
    return 0;
}

int ph_json_as_double(const ph_json_reader *json, double *out)
{
    return ph_number_read(json->text, json->length, out);
}

void ph_json_explain(const ph_json_reader *json, char *text, size_t size)
{
    if (json->twice)
        snprintf(text, size, "the key %s stands twice in one object",
                 ph_io_quote(json->text, json->length).text);
    else
        snprintf(text, size, "%s at byte %zu", json->message, json->at);
}

const char *ph_json_token_words(ph_json_token token)
{
    static const char *const words[] = {"an error",  "the end",
                                        "an object", "the end of an object",
                                        "an array",  "the end of an array",
                                        "a key",     "a string",
                                        "a number",  "true",
                                        "false",     "null"};
    return words[token];
}
