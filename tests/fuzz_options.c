/*
 * fuzz_options.c - any bytes as a command line.
 *
 * The input is cut at zero bytes and line ends into arguments for a command that has
 * every
 * kind of option. Whatever comes, the parser must either refuse with one clean sentence
 * or
 * leave every field within the limits of the table; and the second time it must do the
 * same. The sources are included because the program is not part of the library.
 */
#include "../cli/framework/options.c"
#include "../cli/framework/words.c"
#include "fuzz.h"

typedef struct all_kinds {
    int flag, other;
    int64_t number;
    int has_number;
    double real;
    const char *text;
    int choice;
    ph_sizes sizes;
    int sentinel; /* belongs to no option: must stay zero */
} all_kinds;

static const char *const fruits[] = {"apple", "banana", "cherry", NULL};

/* clang-format off */
#define AT(field) offsetof(all_kinds, field)
static const ph_option table[] = {
    {.name = "causal", .letter = 'c', .kind = PH_OPT_FLAG, .at = AT(flag), .help = "x"},
    {.name = "dry-run", .letter = 'd', .kind = PH_OPT_FLAG, .at = AT(other), .help = "x"},
    {.name = "k-heads", .letter = 'k', .kind = PH_OPT_INT, .low = -5, .high = 1000,
     .at = AT(number), .given = AT(has_number), .fallback = "7", .help = "x"},
    {.name = "scale", .kind = PH_OPT_REAL, .least = -2, .most = 1e6, .at = AT(real),
     .help = "x"},
    {.name = "output", .letter = 'o', .kind = PH_OPT_TEXT, .at = AT(text), .help = "x"},
    {.name = "fruit", .kind = PH_OPT_CHOICE, .choices = fruits, .at = AT(choice),
     .fallback = "banana", .help = "x"},
    {.name = "shape", .kind = PH_OPT_SIZES, .low = 1, .high = 99999, .fewest = 2,
     .longest = 4, .at = AT(sizes), .help = "x"},
    {.name = NULL}};
/* clang-format on */

static const ph_command command = {.name = "fuzz",
                                   .options = table,
                                   .size = sizeof(all_kinds),
                                   .word = "FILE",
                                   .most_words = 3};

enum { ARGS = 40 };

static void check_refusal(const ph_parsed *parsed)
{
    size_t length = strlen(parsed->error);
    REQUIRE(length > 0 && length < sizeof parsed->error);
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)parsed->error[i];
        REQUIRE(c >= 32 && c != 127);
    }
}

static void check_values(const all_kinds *o, const ph_parsed *parsed)
{
    REQUIRE((o->flag & ~1) == 0 && (o->other & ~1) == 0 && (o->has_number & ~1) == 0);
    REQUIRE(o->number >= -5 && o->number <= 1000);
    REQUIRE(o->has_number || o->number == 7);
    REQUIRE(o->real >= -2 && o->real <= 1e6);
    REQUIRE(!o->text || *o->text);
    REQUIRE(o->choice >= 0 && o->choice < 3);
    REQUIRE(o->sizes.count == 0 || (o->sizes.count >= 2 && o->sizes.count <= 4));
    for (int i = 0; i < o->sizes.count; i++)
        REQUIRE(o->sizes.value[i] >= 1 && o->sizes.value[i] <= 99999);
    REQUIRE(parsed->word_count >= 0 && parsed->word_count <= 3);
    for (int i = 0; i < parsed->word_count; i++) REQUIRE(parsed->words[i]);
    REQUIRE(parsed->color >= 0 && parsed->color < 3);
}

/* A number that is accepted must survive being written and read again. */
static void check_numbers(const char *text)
{
    int64_t whole, again;
    double real, twin;
    char text_again[40];
    if (cli_read_int(text, &whole)) {
        snprintf(text_again, sizeof text_again, "%lld", (long long)whole);
        REQUIRE(cli_read_int(text_again, &again) && again == whole);
        REQUIRE(cli_read_real(text, &real));
    }
    if (cli_read_real(text, &real)) {
        REQUIRE(isfinite(real));
        snprintf(text_again, sizeof text_again, "%.17g", real);
        REQUIRE(cli_read_real(text_again, &twin) && twin == real);
    }
    char quote[CLI_QUOTE_SIZE];
    REQUIRE(strlen(cli_quote(text, quote, sizeof quote)) < sizeof quote);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *args[ARGS];
    int count = 0;
    char *text = malloc(size + 1);
    REQUIRE(text);
    if (size) memcpy(text, data, size);
    text[size] = 0;
    for (size_t i = 0; i < size && count < ARGS;) {
        args[count++] = text + i;
        i += strcspn(text + i, "\n");
        text[i++] = 0;
    }
    for (int i = 0; i < count; i++) check_numbers(args[i]);

    static ph_parsed first, second;
    all_kinds a, b;
    memset(&a, 0xA5, sizeof a);
    memset(&b, 0x5A, sizeof b);
    int rc = cli_parse(&command, count, args, &a, &first);
    REQUIRE(rc == cli_parse(&command, count, args, &b, &second));
    REQUIRE(rc == EXIT_OK || rc == EXIT_USAGE);
    REQUIRE(!memcmp(&first, &second, sizeof first) && !memcmp(&a, &b, sizeof a));
    REQUIRE(a.sentinel == 0 && first.taken >= 0 && first.taken <= count);
    if (rc == EXIT_USAGE)
        check_refusal(&first);
    else
        check_values(&a, &first);
    free(text);
    return 0;
}
