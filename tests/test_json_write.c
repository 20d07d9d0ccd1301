/*
 * test_json_write.c - the JSON writer: values, lines and blanks, what is escaped.
 */
#include <math.h>

#include "check.h"
#include "io/json_read.h"
#include "io/json_write.h"

static char written[1024];
static size_t written_length;

static void append(void *user, const char *bytes, size_t count)
{
    (void)user;
    if (written_length + count < sizeof written) {
        memcpy(written + written_length, bytes, count);
        written_length += count;
    }
    written[written_length] = 0;
}

/* 1: the strict reader takes what was written. It changes the text. */
static int is_readable(void)
{
    const ph_json_limits limits = {.depth = 8, .string = 100};
    ph_json_reader json;
    ph_json_open(&json, written, written_length, limits, NULL);
    while (ph_json_next(&json) > PH_JSON_END) continue;
    ph_json_token last = json.token;
    ph_json_close(&json);
    return last == PH_JSON_END;
}

static void every_kind(void)
{
    ph_json_writer out = {.write = append};
    written_length = 0;
    ph_json_begin_object(&out, NULL);
    ph_json_string(&out, "te\"xt", "a\\b\n\x01\x7f\xc3\xa9\xff\xe2\x82z");
    ph_json_begin_array(&out, "list");
    ph_json_integer(&out, NULL, INT64_MIN);
    ph_json_unsigned(&out, NULL, UINT64_MAX);
    ph_json_double(&out, NULL, 0.5);
    ph_json_float(&out, NULL, 0.1f);
    ph_json_bool(&out, NULL, 1);
    ph_json_bool(&out, NULL, 0);
    ph_json_string(&out, NULL, NULL);
    ph_json_begin_object(&out, NULL);
    ph_json_end(&out);
    ph_json_begin_array(&out, NULL);
    ph_json_end(&out);
    ph_json_end(&out);
    ph_json_double(&out, "nan", NAN);
    ph_json_raw(&out, "raw", "{\"a\":[1]}");
    ph_json_raw(&out, "more", "2");
    ph_json_end(&out);
    const char *expected =
        "{\"te\\\"xt\":\"a\\\\b\\n\\u0001\\u007f\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd"
        "\xef\xbf\xbdz\",\"list\":[-9223372036854775808,18446744073709551615,0.5,"
        "0.1,true,false,null,{},[]],\"nan\":null,\"raw\":{\"a\":[1]},\"more\":2}";
    CHECK(strcmp(written, expected) == 0, "%s\n      expected %s", written, expected);
    ph_json_end(&out); /* one too many does nothing */
    CHECK(strcmp(written, expected) == 0, "a bracket too many");
    CHECK(is_readable(), "unreadable");
}

/* Lines and blanks between the values, none inside what is empty. */
static void indents(void)
{
    ph_json_writer out = {.write = append, .indent = 2};
    written_length = 0;
    ph_json_begin_object(&out, NULL);
    ph_json_begin_array(&out, "a");
    ph_json_integer(&out, NULL, 1);
    ph_json_integer(&out, NULL, 2);
    ph_json_end(&out);
    ph_json_begin_object(&out, "b");
    ph_json_end(&out);
    ph_json_end(&out);
    const char *expected = "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}";
    CHECK(strcmp(written, expected) == 0, "%s\n      expected %s", written, expected);
}

/* What moves the cursor, hides or reorders text is escaped; a page also needs its markup
   escaped. Joiners shape letters and stay. */
static void escapes(void)
{
    const char *text = "<&>\xc2\x9b\xe2\x80\xae\xe2\x80\x8d\xf3\xa0\x80\xa0\xc2\xad";
    const char *expected[2] = {
        "\"<&>\\u009b\\u202e\xe2\x80\x8d\\udb40\\udc20\\u00ad\"",
        "\"\\u003c\\u0026\\u003e\\u009b\\u202e\xe2\x80\x8d\\udb40\\udc20\\u00ad\""};
    for (int in_html = 0; in_html < 2; in_html++) {
        ph_json_writer out = {.write = append, .in_html = in_html};
        written_length = 0;
        ph_json_string(&out, NULL, text);
        CHECK(strcmp(written, expected[in_html]) == 0, "%s\n      expected %s", written,
              expected[in_html]);
    }
}

static const check_case cases[] = {
    {"every_kind", every_kind}, {"indents", indents}, {"escapes", escapes}, {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
