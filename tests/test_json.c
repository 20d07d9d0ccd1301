/*
 * test_json.c - the JSON reader, and numbers to and from text.
 *
 * Texts are judged through a trace: every token as a short mark, so a whole document and
 * what the reader made of it stand on one line.
 */
#define _GNU_SOURCE /* mkdtemp */
#include <float.h>
#include <math.h>

#include "check.h"
#include "comma_locale.h"
#include "io/json_read.h"
#include "io/number.h"

static const ph_json_limits usual = {.depth = 8, .string = 100};

/* The tokens of a text: { } [ ] marks, k:KEY s:TEXT n:NUMBER t f z (null) . (end), or
   "! what is wrong". */
static const char *trace(const char *bytes, size_t length, ph_json_limits limits,
                         const ph_io *io)
{
    static char out[4096];
    static const char *const marks[] = {
        [PH_JSON_END] = ".",     [PH_JSON_OBJECT] = "{",    [PH_JSON_OBJECT_END] = "}",
        [PH_JSON_ARRAY] = "[",   [PH_JSON_ARRAY_END] = "]", [PH_JSON_KEY] = "k:",
        [PH_JSON_STRING] = "s:", [PH_JSON_NUMBER] = "n:",   [PH_JSON_TRUE] = "t",
        [PH_JSON_FALSE] = "f",   [PH_JSON_NULL] = "z"};
    char *text = malloc(length + 1), words[200];
    ph_json_reader json;
    size_t at = 0;
    memcpy(text, bytes, length);
    text[length] = 'X'; /* the reader must not look here */
    ph_json_open(&json, text, length, limits, io);
    ph_json_token token;
    do {
        token = ph_json_next(&json);
        if (at > sizeof out - 300) break;
        if (at > 0) out[at++] = ' ';
        if (token == PH_JSON_ERROR) {
            ph_json_explain(&json, words, sizeof words);
            at += (size_t)sprintf(out + at, "! %s", words);
        } else {
            at += (size_t)sprintf(out + at, "%s", marks[token]);
        }
        if (token == PH_JSON_KEY || token == PH_JSON_STRING || token == PH_JSON_NUMBER)
            at += (size_t)sprintf(out + at, "%.*s", (int)json.length, json.text);
    } while (token > PH_JSON_END);
    CHECK(ph_json_next(&json) == token, "the last token does not stay");
    ph_json_close(&json);
    free(text);
    return out;
}

typedef struct example {
    const char *text, *trace;
} example;

static void run_examples(const example *e)
{
    for (; e->text; e++) {
        const char *found = trace(e->text, strlen(e->text), usual, NULL);
        CHECK(strcmp(found, e->trace) == 0, "%s\n      gives    %s\n      expected %s",
              e->text, found, e->trace);
    }
}

/* ---- reading ---- */

static void values(void)
{
    static const example list[] = {
        {"null", "z ."},
        {" true ", "t ."},
        {"\t\r\nfalse\n", "f ."},
        {"0", "n:0 ."},
        {"-0", "n:-0 ."},
        {"-12.50e+3", "n:-12.50e+3 ."},
        {"1E5", "n:1E5 ."},
        {"\"\"", "s: ."},
        {"\"a b\"", "s:a b ."},
        {"[]", "[ ] ."},
        {"{}", "{ } ."},
        {"[ ]", "[ ] ."},
        {"{ }", "{ } ."},
        {"[1,[2,[]],{}]", "[ n:1 [ n:2 [ ] ] { } ] ."},
        {"{\"a\":1,\"b\":{\"a\":[null]}}", "{ k:a n:1 k:b { k:a [ z ] } } ."},
        {" { \"a\" : [ 1 , 2 ] } ", "{ k:a [ n:1 n:2 ] } ."},
        {"[[[[[[[[1]]]]]]]]", "[ [ [ [ [ [ [ [ n:1 ] ] ] ] ] ] ] ] ."},
        {"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
         "s:\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f ."},
        {NULL, NULL}};
    run_examples(list);
}

static void escapes(void)
{
    static const example list[] = {
        {"\"\\\"\\\\\\/\"", "s:\"\\/ ."},
        {"\"\\b\\f\\n\\r\\t\"", "s:\b\f\n\r\t ."},
        {"\"\\u0041\\u00e9\\u20AC\"", "s:A\xc3\xa9\xe2\x82\xac ."},
        {"\"\\ud83d\\uDE00x\"", "s:\xf0\x9f\x98\x80x ."},
        {"\"\\uD800\\uDC00\\udbff\\udfff\"", "s:\xf0\x90\x80\x80\xf4\x8f\xbf\xbf ."},
        {"{\"a\\u0062\":1}", "{ k:ab n:1 } ."},
        {"[\"a\\n\",\"b\"]", "[ s:a\n s:b ] ."},
        {NULL, NULL}};
    run_examples(list);
}

static void nul_is_counted(void)
{
    char text[] = "\"a\\u0000b\"";
    ph_json_reader json;
    ph_json_open(&json, text, strlen(text), usual, NULL);
    CHECK(ph_json_next(&json) == PH_JSON_STRING, "no string");
    CHECK(json.length == 3 && memcmp(json.text, "a\0b", 4) == 0, "length %zu",
          json.length);
    ph_json_close(&json);
}

static void refused(void)
{
    static const example list[] = {
        {"", "! text ends where a value is expected at byte 0"},
        {"  ", "! text ends where a value is expected at byte 2"},
        {"nul", "! expected a value at byte 0"},
        {"True", "! expected a value at byte 0"},
        {"'a'", "! expected a value at byte 0"},
        {"NaN", "! expected a value at byte 0"},
        {"Infinity", "! expected a value at byte 0"},
        {"// x\n1", "! expected a value at byte 0"},
        {"\xef\xbb\xbf{}", "! expected a value at byte 0"},
        {"\v1", "! expected a value at byte 0"},
        {"+1", "! expected a value at byte 0"},
        {".5", "! expected a value at byte 0"},
        {"-", "! expected a digit after '-' at byte 1"},
        {"-a", "! expected a digit after '-' at byte 1"},
        {"01", "! number with a leading zero at byte 2"},
        {"-00", "! number with a leading zero at byte 3"},
        {"1.", "! expected a digit after the decimal point at byte 2"},
        {"1.e5", "! expected a digit after the decimal point at byte 2"},
        {"1e", "! expected a digit in the exponent at byte 2"},
        {"1e+", "! expected a digit in the exponent at byte 3"},
        {"1e999", "! number too large for a double at byte 5"},
        {"-2e308", "! number too large for a double at byte 6"},
        {"0x10", "n:0 ! something follows the end of the value at byte 1"},
        {"1 2", "n:1 ! something follows the end of the value at byte 2"},
        {"{}{}", "{ } ! something follows the end of the value at byte 2"},
        {"[1,]", "[ n:1 ! expected a value at byte 3"},
        {"[,1]", "[ ! expected a value at byte 1"},
        {"[1 2]", "[ n:1 ! expected ',' or ']' at byte 3"},
        {"[1", "[ n:1 ! expected ',' or ']' at byte 2"},
        {"[", "[ ! text ends where a value is expected at byte 1"},
        {"[}", "[ ! expected a value at byte 1"},
        {"]", "! expected a value at byte 0"},
        {"{", "{ ! expected a key in quotes at byte 1"},
        {"{1:2}", "{ ! expected a key in quotes at byte 1"},
        {"{\"a\"}", "{ ! expected ':' after a key at byte 4"},
        {"{\"a\" 1}", "{ ! expected ':' after a key at byte 5"},
        {"{\"a\":}", "{ k:a ! expected a value at byte 5"},
        {"{\"a\":1,}", "{ k:a n:1 ! expected a key in quotes at byte 7"},
        {"{\"a\":1 \"b\":2}", "{ k:a n:1 ! expected ',' or '}' at byte 7"},
        {"{\"a\":1]", "{ k:a n:1 ! expected ',' or '}' at byte 6"},
        {"\"abc", "! string without a closing quote at byte 4"},
        {"\"\\", "! unknown escape after a backslash at byte 2"},
        {"\"\\x41\"", "! unknown escape after a backslash at byte 2"},
        {"\"\\U0041\"", "! unknown escape after a backslash at byte 2"},
        {"\"\\u004\"", "! expected four hex digits after \\u at byte 3"},
        {"\"\\u00g0\"", "! expected four hex digits after \\u at byte 3"},
        {"\"\\u12", "! expected four hex digits after \\u at byte 3"},
        {"\"\\ud800\"", "! first half of a surrogate pair without the second at byte 7"},
        {"\"\\ud800\\n\"",
         "! first half of a surrogate pair without the second at byte 7"},
        {"\"\\ud800\\u0041\"",
         "! first half of a surrogate pair without the second at byte 13"},
        {"\"\\udc00\"", "! second half of a surrogate pair without the first at byte 7"},
        {"\"a\nb\"", "! control character inside a string at byte 2"},
        {"\"a\tb\"", "! control character inside a string at byte 2"},
        {"[[[[[[[[[1]]]]]]]]]", "[ [ [ [ [ [ [ [ ! nested deeper than allowed at byte 8"},
        {NULL, NULL}};
    run_examples(list);
}

static void refused_utf8(void)
{
    static const char *const list[] = {"\x80",
                                       "\xc3",
                                       "\xc3(",
                                       "\xc0\x80",
                                       "\xc1\xbf",
                                       "\xe0\x80\x80",
                                       "\xe0\x9f\xbf",
                                       "\xed\xa0\x80",
                                       "\xed\xbf\xbf",
                                       "\xf0\x80\x80\x80",
                                       "\xf0\x8f\xbf\xbf",
                                       "\xf4\x90\x80\x80",
                                       "\xf5\x80\x80\x80",
                                       "\xff",
                                       "\xfe",
                                       "\xe2\x82",
                                       "\xf0\x9f\x98"};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char text[32];
        snprintf(text, sizeof text, "\"12345678%s\"", list[i]);
        const char *found = trace(text, strlen(text), usual, NULL);
        CHECK(strcmp(found, "! not valid UTF-8 at byte 9") == 0, "%zu: %s", i, found);
    }
    CHECK(strcmp(trace("1 \xff", 3, usual, NULL), "! not valid UTF-8 at byte 2") == 0,
          "behind the value");
    CHECK(strstr(trace("{}\0", 3, usual, NULL), "something follows"), "NUL padding");
}

static void duplicate_keys(void)
{
    static const example list[] = {
        {"{\"a\":1,\"a\":2}",
         "{ k:a n:1 k:a n:2 ! the key 'a' stands twice in one object"},
        {"{\"a\":1,\"\\u0061\":2}",
         "{ k:a n:1 k:a n:2 ! the key 'a' stands twice in one object"},
        {"{\"\":1,\"\":2}", "{ k: n:1 k: n:2 ! the key '' stands twice in one object"},
        {"[{\"x\":{\"b\":1,\"c\":1,\"b\":1}}]",
         "[ { k:x { k:b n:1 k:c n:1 k:b n:1 ! the key 'b' stands twice in one object"},
        {"{\"a\":{\"a\":1},\"b\":{\"a\":1}}", "{ k:a { k:a n:1 } k:b { k:a n:1 } } ."},
        {"{\"a\":{\"b\":1},\"b\":1,\"a\":1}",
         "{ k:a { k:b n:1 } k:b n:1 k:a n:1 ! the key 'a' stands twice in one object"},
        {"[{\"a\":1},{\"a\":1}]", "[ { k:a n:1 } { k:a n:1 } ] ."},
        {"{\"a\":1,\"aa\":1,\"A\":1,\"a \":1}",
         "{ k:a n:1 k:aa n:1 k:A n:1 k:a  n:1 } ."},
        {NULL, NULL}};
    run_examples(list);
}

/* Ten thousand keys in one object; then once more with one of them twice. */
static void many_keys(void)
{
    enum { COUNT = 10000 };
    static char text[COUNT * 16];
    for (int twice = 0; twice < 2; twice++) {
        size_t at = (size_t)sprintf(text, "{");
        for (int i = 0; i < COUNT; i++)
            at += (size_t)sprintf(text + at, "%s\"%d\":1", i ? "," : "",
                                  twice && i == COUNT - 1 ? 4711 : i);
        at += (size_t)sprintf(text + at, "}");
        ph_json_reader json;
        ph_json_open(&json, text, at, usual, NULL);
        while (ph_json_next(&json) > PH_JSON_END) continue;
        CHECK(json.token == (twice ? PH_JSON_ERROR : PH_JSON_END), "token %d",
              json.token);
        CHECK(!twice || strcmp(json.text, "4711") == 0, "key %s", json.text);
        ph_json_close(&json);
    }
}

/* Keys that all fall on one place of a hash table: still quick, still exact. */
static void colliding_keys(void)
{
    enum { COUNT = 1000, SLOTS = 2048 };
    static char text[COUNT * 24];
    for (int twice = 0; twice < 2; twice++) {
        size_t at = (size_t)sprintf(text, "{\"first\":1");
        int found = 0;
        for (unsigned n = 0; found < COUNT; n++) {
            char key[16];
            uint32_t hash = 2166136261u; /* FNV-1a, as the reader has it */
            sprintf(key, "%u", n);
            for (const char *c = key; *c; c++)
                hash = (hash ^ (unsigned char)*c) * 16777619u;
            if ((hash * 0x9e3779b1u & (SLOTS - 1)) != 77) continue;
            at += (size_t)sprintf(text + at, ",\"%s\":1", key);
            found++;
        }
        at += (size_t)sprintf(text + at, "%s}", twice ? ",\"first\":1" : "");
        ph_json_reader json;
        ph_json_open(&json, text, at, usual, NULL);
        while (ph_json_next(&json) > PH_JSON_END) continue;
        CHECK(json.token == (twice ? PH_JSON_ERROR : PH_JSON_END), "token %d",
              json.token);
        CHECK(!twice || strcmp(json.text, "first") == 0, "key %s", json.text);
        ph_json_close(&json);
    }
}

static void limits(void)
{
    char text[200];
    for (int length = 98; length <= 102; length++) {
        snprintf(text, sizeof text, "\"%0*d\"", length, 0);
        const char *found = trace(text, strlen(text), usual, NULL);
        int good = found[0] == 's';
        CHECK(good == (length <= 100), "%d: %s", length, found);
        CHECK(good || strstr(found, "string longer than allowed"), "%s", found);
    }
    const ph_json_limits deep = {.depth = 1000, .string = 10};
    memset(text, '[', 100);
    CHECK(strstr(trace(text, 100, deep, NULL), "nested deeper than allowed at byte 64"),
          "no limit of its own");
}

static void skipping(void)
{
    char text[] = "{\"a\":{\"x\":[1,{}],\"y\":\"z\"},\"b\":[[],[]],\"c\":7,\"d\":{}}";
    ph_json_reader json;
    size_t value = 0;
    ph_json_open(&json, text, strlen(text), usual, NULL);
    ph_json_next(&json);
    while (ph_json_next(&json) == PH_JSON_KEY) {
        int wanted = json.text[0] == 'c';
        ph_json_next(&json);
        if (wanted) CHECK(ph_json_as_size(&json, &value) == 0, "no size");
        CHECK(ph_json_skip(&json) == PH_OK, "skip");
    }
    CHECK(json.token == PH_JSON_OBJECT_END && value == 7, "value %zu", value);
    CHECK(ph_json_next(&json) == PH_JSON_END, "end");
    ph_json_close(&json);

    char bad[] = "[{\"a\":1,\"a\":1}]";
    ph_json_open(&json, bad, strlen(bad), usual, NULL);
    ph_json_next(&json);
    CHECK(ph_json_skip(&json) == PH_BAD_FILE, "a fault inside what is skipped");
    ph_json_close(&json);
}

/* ---- numbers ---- */

static int as_size(const char *text, size_t *out)
{
    char copy[64];
    ph_json_reader json;
    strcpy(copy, text);
    ph_json_open(&json, copy, strlen(copy), usual, NULL);
    CHECK(ph_json_next(&json) == PH_JSON_NUMBER, "%s is no number", text);
    int result = ph_json_as_size(&json, out);
    ph_json_close(&json);
    return result;
}

static void sizes(void)
{
    static const char *const bad[] = {"-1",
                                      "-0",
                                      "1.0",
                                      "0.0",
                                      "1e0",
                                      "0e0",
                                      "1E2",
                                      "18446744073709551616",
                                      "99999999999999999999999"};
    size_t value = 7;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        CHECK(as_size(bad[i], &value) == -1 && value == 7, "%s was taken", bad[i]);
    CHECK(as_size("0", &value) == 0 && value == 0, "0");
    CHECK(as_size("1234567890", &value) == 0 && value == 1234567890, "1234567890");
#if SIZE_MAX == 0xffffffffffffffffu
    CHECK(as_size("18446744073709551615", &value) == 0 && value == SIZE_MAX, "largest");
#endif
}

static void reads(const char *text, double expected)
{
    double value = -1;
    CHECK(ph_number_read(text, strlen(text), &value) == 0, "%s refused", text);
    CHECK(memcmp(&value, &expected, sizeof value) == 0, "%s gives %a, expected %a", text,
          value, expected);
}

/* Each expected value is written in hexadecimal, so no other conversion is trusted. */
static void decimal_to_double(void)
{
    reads("0", 0.0);
    reads("-0", -0.0);
    reads("-0.000e-5", -0.0);
    reads("1", 0x1p0);
    reads("0.1", 0x1.999999999999ap-4);
    reads("123456789", 0x1.d6f3454p26);
    reads("9007199254740993", 0x1p53); /* tie, to even */
    reads("9007199254740993.0000000000000000000000001", 0x1.0000000000001p53);
    reads("9007199254740995", 0x1.0000000000002p53); /* tie, to even, up */
    reads("1e23", 0x1.52d02c7e14af6p76);
    reads("8.5e22", 0x1.1ffdbf6b2b2ebp76);
    reads("1.7976931348623157e308", DBL_MAX);
    reads("1.79769313486231580793e308", DBL_MAX);
    reads("2.2250738585072014e-308", 0x1p-1022);
    reads("2.2250738585072011e-308", 0x1.ffffffffffffep-1023); /* largest subnormal */
    reads("4.9406564584124654e-324", 0x1p-1074);
    reads("2.4703282292062327e-324", 0.0); /* below half the smallest */
    reads("2.4703282292062328e-324", 0x1p-1074);
    reads("1e-400", 0.0);
    reads("0e99999999999999999999", 0.0);
    reads("1e-99999999999999999999", 0.0);
    reads("100000000000000000000000000000000000000000e-41", 1.0);
    reads("0.00000000000000000000000000000000000001e38", 1.0);
    double value;
    CHECK(ph_number_read("1.7976931348623159e308", 22, &value) == -1,
          "above the largest");
    CHECK(ph_number_read("1e99999999999999999999", 22, &value) == -1, "far above");
}

/* A tie between two doubles written out to 767 digits, and the digit that breaks it. */
static void long_tie(void)
{
    static char text[1200];
    int length = snprintf(text, sizeof text, "%.*e", 766, 0x1.fffffffffffffp-1022);
    reads(text, 0x1.fffffffffffffp-1022);
    char *e = strchr(text, 'e');
    char exponent[16];
    strcpy(exponent, e);
    for (int i = 0; i < 300; i++) *e++ = '0';
    sprintf(e, "1%s", exponent);
    reads(text, 0x1.fffffffffffffp-1022);
    CHECK(length > 760, "only %d digits", length);
}

static void prints(double value, const char *expected)
{
    char text[PH_NUMBER_TEXT];
    int length = ph_number_print(value, text);
    CHECK(strcmp(text, expected) == 0, "%a gives %s, expected %s", value, text, expected);
    CHECK((int)strlen(text) == length, "length %d of %s", length, text);
}

static void shortest_digits(void)
{
    char text[PH_NUMBER_TEXT];
    prints(0.0, "0");
    prints(-0.0, "-0");
    prints(1.0, "1");
    prints(-12.5, "-12.5");
    prints(0.1, "0.1");
    prints(0.1 + 0.2, "0.30000000000000004");
    prints(1.0 / 3, "0.3333333333333333");
    prints(100.0, "100");
    prints(1e16, "10000000000000000");
    prints(1e17, "1e17");
    prints(0x1.fffffffffffffp52, "9007199254740991");
    prints(0.00001, "0.00001");
    prints(0.000001, "1e-6");
    prints(1.5e-7, "1.5e-7");
    prints(DBL_MAX, "1.7976931348623157e308");
    prints(0x1p-1074, "5e-324");
    prints(NAN, "null");
    prints(INFINITY, "null");
    prints(-INFINITY, "null");
    ph_number_print_float(0.1f, text);
    CHECK(strcmp(text, "0.1") == 0, "0.1f gives %s", text);
    ph_number_print_float(FLT_MAX, text);
    CHECK(strcmp(text, "3.4028235e38") == 0, "FLT_MAX gives %s", text);
    ph_number_print_float(0x1p-149f, text);
    CHECK(strcmp(text, "1e-45") == 0, "smallest float gives %s", text);
}

static void round_trips(void)
{
    uint64_t state = check_seed;
    for (int i = 0; i < 20000; i++) {
        char text[PH_NUMBER_TEXT];
        double value, again = 0;
        uint64_t bits = check_random(&state);
        if (i % 4 == 1) bits &= 0x800fffffffffffffu; /* subnormal */
        memcpy(&value, &bits, sizeof value);
        if (i % 4 == 2) value = (double)(float)check_normal(&state);
        if (i % 4 == 3) value = (double)(int64_t)bits / 1000;
        if (!isfinite(value)) continue;
        int length = ph_number_print(value, text);
        CHECK(length < PH_NUMBER_TEXT, "%s is too long", text);
        CHECK(ph_number_read(text, (size_t)length, &again) == 0, "%s refused", text);
        CHECK(memcmp(&value, &again, sizeof value) == 0, "%a became %s", value, text);
        float narrow = (float)value;
        if (!isfinite(narrow)) continue;
        length = ph_number_print_float(narrow, text);
        CHECK(ph_number_read(text, (size_t)length, &again) == 0, "%s refused", text);
        CHECK((float)again == narrow, "%a became %s", (double)narrow, text);
    }
}

/* A locale with another decimal point must not change anything. */
static void other_locale(void)
{
    if (!comma_locale_set())
        SKIP("no locale with a decimal comma: install the package locales");
    char text[PH_NUMBER_TEXT];
    double value = 0;
    ph_number_print(-1.25, text);
    ph_number_read("3.5", 3, &value);
    setlocale(LC_NUMERIC, "C");
    CHECK(strcmp(text, "-1.25") == 0, "prints %s", text);
    CHECK(value == 3.5, "reads %g", value);
}

/* ---- memory ---- */

static int allocations_left;

static void *failing_alloc(void *user, size_t bytes)
{
    (void)user;
    return allocations_left-- > 0 ? malloc(bytes) : NULL;
}

static void release(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

static void no_memory(void)
{
    const ph_io io = {.alloc = failing_alloc, .release = release};
    char text[2000] = "{", *at = text + 1;
    for (int i = 0; i < 100; i++) at += sprintf(at, "%s\"%d\":{}", i ? "," : "", i);
    strcpy(at, "}");
    int refusals = 0;
    for (int left = 0;; left++) {
        char copy[2000];
        ph_json_reader json;
        strcpy(copy, text);
        allocations_left = left;
        ph_json_open(&json, copy, strlen(copy), usual, &io);
        while (ph_json_next(&json) > PH_JSON_END) continue;
        ph_status status = json.status;
        ph_json_token token = json.token;
        ph_json_close(&json);
        if (token == PH_JSON_END) break;
        CHECK(status == PH_OUT_OF_MEMORY, "status %d", status);
        refusals++;
    }
    CHECK(refusals >= 3, "only %d allocations were made", refusals);
}

static const check_case cases[] = {{"values", values},
                                   {"escapes", escapes},
                                   {"nul_is_counted", nul_is_counted},
                                   {"refused", refused},
                                   {"refused_utf8", refused_utf8},
                                   {"duplicate_keys", duplicate_keys},
                                   {"many_keys", many_keys},
                                   {"colliding_keys", colliding_keys},
                                   {"limits", limits},
                                   {"skipping", skipping},
                                   {"sizes", sizes},
                                   {"decimal_to_double", decimal_to_double},
                                   {"long_tie", long_tie},
                                   {"shortest_digits", shortest_digits},
                                   {"round_trips", round_trips},
                                   {"other_locale", other_locale},
                                   {"no_memory", no_memory},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
