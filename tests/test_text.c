/*
 * test_text.c - words made safe, measured in columns, cut to fit.
 */
#include "check.h"
#include "io/utf8.h"
#include "view/text.h"

static const char *clean(const char *word, int ascii)
{
    static char out[200];
    ph_text_clean(word, ascii, out, sizeof out);
    return out;
}

static const struct {
    const char *word, *shown, *ascii;
    int columns; /* of shown */
} words[] = {
    {"tired", "tired", "tired", 5},
    {"", "", "", 0},
    {" ", "\xe2\x90\xa3", "_", 1},
    {"a b", "a b", "a b", 3},
    {"a\nb\t\r", "a\\nb\\t\\r", "a\\nb\\t\\r", 8},
    {"\033[2J", "\\x1b[2J", "\\x1b[2J", 7},
    {"\x7f", "\\x7f", "\\x7f", 4},
    {"\xc2\x9b"
     "2J",
     "\\u009b2J", "\\u009b2J", 8}, /* C1 control */
    {"\xe2\x80\xae"
     "cod",
     "\\u202ecod", "\\u202ecod", 9}, /* right-to-left override */
    {"\xe2\x81\xa6x\xe2\x81\xa9", "\\u2066x\\u2069", "\\u2066x\\u2069", 13},
    {"\xe2\x80\xa8", "\\u2028", "\\u2028", 6},         /* line separator */
    {"\xf3\xa0\x81\xa1", "\\U0e0061", "\\U0e0061", 8}, /* a tag letter, invisible */
    {"\xff\xfe", "\xef\xbf\xbd\xef\xbf\xbd", "\\xff\\xfe", 2},
    {"\xc3", "\xef\xbf\xbd", "\\xc3", 1}, /* cut short */
    {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "\\xed\\xa0\\x80", 3},
    {"\xe5\x8a\xa8\xe7\x89\xa9", "\xe5\x8a\xa8\xe7\x89\xa9", "\\u52a8\\u7269", 4},
    {"\xef\xbc\x8c", "\xef\xbc\x8c", "\\uff0c", 2}, /* full-width comma */
    {"e\xcc\x81", "e\xcc\x81", "e\\u0301", 1},      /* e and an accent */
    {"\xed\x95\x9c", "\xed\x95\x9c", "\\ud55c", 2}, /* Hangul */
    {"\xe1\x84\x92\xe1\x85\xa1", "\xe1\x84\x92\xe1\x85\xa1", "\\u1112\\u1161", 2},
    {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80", "\\U01f600", 2},
    {"\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd", "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd",
     "\\U01f44d\\U01f3fd", 2}, /* thumb with a skin tone */
    {"\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa", "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa",
     "\\U01f1e9\\U01f1ea", 2}, /* a flag */
    {"\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7",
     "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7", "\\U01f469\\u200d\\U01f467", 2},
    {"\xe2\x9d\xa4\xef\xb8\x8f", "\xe2\x9d\xa4", "\\u2764", 1}, /* heart, style dropped */
    {"\xe2\x80\x8d", "\\u200d", "\\u200d", 6},                  /* a joiner of nothing */
    {"\xcc\x81x", "\\u0301x", "\\u0301x", 7},                   /* an accent on nothing */
    {"\xef\xb8\x8f", "\\ufe0f", "\\ufe0f", 6},                  /* a style of nothing */
    {"\\n", "\\n", "\\n", 2},
    {"</script>\"&", "</script>\"&", "</script>\"&", 11},
};

static void cleaned(void)
{
    for (size_t n = 0; n < sizeof words / sizeof words[0]; n++) {
        CHECK(!strcmp(clean(words[n].word, 0), words[n].shown), "word %zu became '%s'", n,
              clean(words[n].word, 0));
        CHECK(ph_text_columns(words[n].shown) == words[n].columns,
              "'%s' takes %d columns, expected %d", words[n].shown,
              ph_text_columns(words[n].shown), words[n].columns);
        CHECK(!strcmp(clean(words[n].word, 1), words[n].ascii), "in ASCII word %zu '%s'",
              n, clean(words[n].word, 1));
    }
}

/* No byte sequence whatever gives anything that is not UTF-8, or a control character.
   */
static void any_bytes(void)
{
    uint64_t state = check_seed;
    char word[40], out[64];
    for (int round = 0; round < 20000; round++) {
        int length = check_below(&state, 39);
        size_t size = 5 + (size_t)check_below(&state, 60);
        for (int n = 0; n < length; n++) word[n] = (char)(1 + check_below(&state, 255));
        word[length] = 0;
        size_t used = ph_text_clean(word, round & 1, out, size < 64 ? size : 64);
        CHECK(used == strlen(out) && used < size, "%zu bytes in a buffer of %zu", used,
              size);
        CHECK(ph_utf8_valid(out, used) == used, "no UTF-8 came out");
        for (size_t n = 0; n < used; n++)
            CHECK((unsigned char)out[n] >= 32 && out[n] != 127, "a control character");
        if (round & 1)
            for (size_t n = 0; n < used; n++) CHECK((out[n] & 0x80) == 0, "not ASCII");
    }
}
static void too_long(void)
{
    char out[16];
    static char million[1 << 20];
    memset(million, 'x', sizeof million - 1);
    CHECK(ph_text_clean(million, 0, out, sizeof out) == 15, "'%s'", out);
    CHECK(!strcmp(out, "xxxxxxxxxxxx\xe2\x80\xa6"), "'%s'", out);
    CHECK(ph_text_clean(million, 1, out, sizeof out) == 15, "'%s'", out);
    CHECK(!strcmp(out, "xxxxxxxxxxxx..."), "'%s'", out);
    for (size_t n = 1; n + 2 < sizeof million; n += 2) memcpy(million + n, "\xcc\x81", 2);
    million[sizeof million - 1] = 0; /* one letter and half a million accents */
    ph_text_clean(million, 0, out, sizeof out);
    CHECK(!strcmp(out, "\xe2\x80\xa6"), "'%s'", out);
}

static void fitted(void)
{
    static const struct {
        const char *text;
        int columns, ascii, right;
        const char *expected;
    } cases[] = {
        {"tired", 8, 0, 0, "tired   "},
        {"tired", 8, 0, 1, "   tired"},
        {"tired", 5, 0, 0, "tired"},
        {"because", 4, 0, 0, "bec\xe2\x80\xa6"},
        {"because", 4, 1, 0, "bec~"},
        {"\xe5\x8a\xa8\xe7\x89\xa9", 4, 0, 0, "\xe5\x8a\xa8\xe7\x89\xa9"},
        {"\xe5\x8a\xa8\xe7\x89\xa9", 3, 0, 0, "\xe5\x8a\xa8\xe2\x80\xa6"},
        {"\xe5\x8a\xa8\xe7\x89\xa9", 2, 0, 0, "\xe2\x80\xa6 "}, /* half does not fit */
        {"\xe5\x8a\xa8\xe7\x89\xa9", 6, 0, 1, "  \xe5\x8a\xa8\xe7\x89\xa9"},
        {"e\xcc\x81t\xc3\xa9", 2, 0, 0, "e\xcc\x81\xe2\x80\xa6"},
        {"", 3, 0, 0, "   "},
        {"abc", 1, 0, 0, "\xe2\x80\xa6"},
        {"abc", 0, 0, 0, ""}};
    char out[64];
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++) {
        ph_text_fit(cases[n].text, cases[n].columns, cases[n].ascii, cases[n].right, out,
                    sizeof out);
        CHECK(!strcmp(out, cases[n].expected), "case %zu: '%s', expected '%s'", n, out,
              cases[n].expected);
        CHECK(ph_text_columns(out) == cases[n].columns, "case %zu: %d columns", n,
              ph_text_columns(out));
    }
}

static const check_case cases[] = {{"cleaned", cleaned},
                                   {"any_bytes", any_bytes},
                                   {"too_long", too_long},
                                   {"fitted", fitted},
                                   {0, 0}};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases);
}
