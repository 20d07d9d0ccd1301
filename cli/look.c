/*
 * look.c - `polyhead look`: what every head attends to, on the terminal, as numbers, as a
 * page and as a figure.
 */
#include <stdlib.h>
#include <string.h>

#include "look.h"
#include "term.h"

typedef struct look_options {
    look_choice choice;
    int64_t layer, head; /* 0: all */
    int ascii, plain, csv, json;
    const char *html, *svg, *png;
} look_options;

/* clang-format off */
#define AT(field) offsetof(look_options, field)
static const ph_option table[] = {
    LOOK_SOURCE_OPTIONS(look_options, choice),
    {.name = "layer", .letter = 'l', .kind = PH_OPT_INT, .low = 1, .high = 100000,
     .at = AT(layer), .group = "Which heads, counted from 1",
     .help = "this layer only"},
    {.name = "head", .kind = PH_OPT_INT, .low = 1, .high = 100000, .at = AT(head),
     .help = "this head of each layer; with --layer one map with its numbers"},
    {.name = "ascii", .kind = PH_OPT_FLAG, .at = AT(ascii), .group = "How",
     .help = "nothing but ASCII; the rule where the locale is not UTF-8"},
    {.name = "plain", .kind = PH_OPT_FLAG, .at = AT(plain),
     .help = "weights as numbers, one row of a map per line, parts separated by tabs"},
    {.name = "csv", .kind = PH_OPT_FLAG, .at = AT(csv),
     .help = "weights as numbers, one per line"},
    {.name = "json", .kind = PH_OPT_FLAG, .at = AT(json),
     .help = "words, numbers, labels and weights as one JSON object"},
    {.name = "html", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(html),
     .group = "Files to write",
     .help = "one page that holds everything, opens from disk, needs no network"},
    {.name = "svg", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(svg),
     .help = "write a figure: the chosen heads with words, or all of them small"},
    {.name = "png", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(png),
     .help = "the same as pixels"},
    PH_OPTION_THREADS(look_options, choice.machine),
    PH_OPTION_ISA(look_options, choice.machine),
    {.name = NULL}};
/* clang-format on */

static void write_stdout(void *user, const char *bytes, size_t count)
{
    (void)user;
    fwrite(bytes, 1, count, stdout);
}

static int show(const look_options *o, const ph_report *report, const look_heads *heads)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    int chosen = o->layer || o->head;
    const ph_terminal terminal = {.width = term_width(stdout, 1000),
                                  .ascii = o->ascii || !look_utf8(),
                                  .colors = term_color(stdout) ? 256 : 0,
                                  .picks = chosen ? heads->picks : NULL,
                                  .pick_count = chosen ? heads->count : 0,
                                  .write = write_stdout};
    ph_status status = ph_terminal_write(report, &terminal, &io);
    if (status == PH_OK) return EXIT_OK;
    return cli_fail(cli_exit_code(status), "%s", error);
}

/* The files that were asked for. */
static int write_files(const look_options *o, const ph_report *report,
                       const look_heads *heads)
{
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_pick first = o->layer || o->head ? heads->picks[0] : (ph_pick){0, 0, 0};
    const ph_page page = {.stack = first.stack, .layer = first.layer, .head = first.head};
    ph_figure figure = {.picks = heads->picks,
                        .pick_count = o->layer || o->head ? heads->count : 0};
    ph_status status = PH_OK;
    if (o->html) status = ph_page_write(o->html, report, NULL, &page, &io);
    if (status == PH_OK && o->svg) status = ph_figure_write(o->svg, report, &figure, &io);
    figure.kind = PH_FIGURE_PNG;
    if (status == PH_OK && o->png) status = ph_figure_write(o->png, report, &figure, &io);
    if (status == PH_OK) return EXIT_OK;
    return cli_fail(cli_exit_code(status), "%s", *error ? error : ph_status_text(status));
}

/* One way to print; several at once would mix. */
static int check_usage(const look_options *o)
{
    if (o->plain + o->csv + o->json > 1)
        return cli_fail(EXIT_USAGE, "--plain, --csv and --json exclude each other");
    return EXIT_OK;
}

static int print(const look_options *o, const look_source *source,
                 const look_heads *heads)
{
    if (o->plain) return look_plain(&source->report, heads);
    if (o->csv) return look_csv(&source->report, heads);
    if (o->json) return look_json(source, heads);
    return show(o, &source->report, heads);
}

static int look(const void *given, int count, const char *const *words)
{
    const look_options *o = given;
    look_source source = {0};
    look_heads heads = {0};
    int rc = check_usage(o);
    if (rc == EXIT_OK) rc = look_open(&source, &o->choice, count ? words[0] : NULL);
    if (rc == EXIT_OK) rc = look_select(&source.report, o->layer, o->head, &heads);
    if (rc == EXIT_OK) rc = write_files(o, &source.report, &heads);
    if (rc == EXIT_OK) rc = print(o, &source, &heads);
    free(heads.picks);
    look_close(&source);
    return rc;
}

static const char *const examples[] = {
    "polyhead look \"The robot picked up the block because it was light.\"",
    "what every head of the embedded model looks at in your own sentence",
    "polyhead look --layer 2 --head 3",
    "one head: its map with numbers, all its scores and what they mean",
    "polyhead look --html look.html --svg figure.svg",
    "a page to explore, and a figure for a paper",
    "polyhead look --weights maps.safetensors --tokens words.txt",
    "attention maps of any other program",
    NULL};

const ph_command command_look = {
    .name = "look",
    .summary = "what every head attends to",
    .usage = "[TEXT] [options]",
    .about =
        "Letters in the grid are roles; each comes with the number and the threshold "
        "that gave it. Colours stand for weights from 0 to 1, by their square root.",
    .examples = examples,
    .options = table,
    .size = sizeof(look_options),
    .word = "TEXT",
    .most_words = 1,
    .run = look};
