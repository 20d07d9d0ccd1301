/*
 * cmd_look.c - `polyhead look`: what every head attends to, on the terminal, as numbers,
 * as a page and as a figure.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/cmd_look.h"
#include "framework/term.h"

typedef struct look_options {
    look_choice choice;
    look_wish wish;
    int ascii, plain, csv, json;
    const char *html, *svg, *compare, *data;
    int serve;
    int64_t port;
} look_options;

/* clang-format off */
#define AT(field) offsetof(look_options, field)
static const ph_option table[] = {
    LOOK_SOURCE_OPTIONS(look_options, choice),
    {.name = "stack", .kind = PH_OPT_TEXT, .metavar = "NAME", .at = AT(wish.stack),
     .group = "Which heads, counted from 1",
     .help = "this stack only: encoder, decoder, cross, links, or a name in the file"},
    {.name = "layer", .letter = 'l', .kind = PH_OPT_INT, .low = 1, .high = 100000,
     .at = AT(wish.layer), .help = "this layer only"},
    {.name = "head", .kind = PH_OPT_INT, .low = 1, .high = 100000, .at = AT(wish.head),
     .help = "this head of each layer; a single head is shown with its numbers"},
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
    {.name = "compare", .kind = PH_OPT_TEXT, .metavar = "WHAT", .at = AT(compare),
     .help = "what the page compares with: another text, another model, or with "
             "--weights another file of maps"},
    {.name = "svg", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(svg),
     .help = "write a figure: the chosen heads with words, or all of them small"},
    {.name = "serve", .kind = PH_OPT_FLAG, .at = AT(serve), .group = "Live",
     .help = "the page with the model behind it, on this machine only: type a text or "
             "choose a picture, switch heads off, hide words or join tokens to words, "
             "prune those worth least, see what changes"},
    {.name = "data", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(data),
     .help = "texts that the live page can measure heads on: one per line; source TAB "
             "target for an encoder-decoder, label TAB text for a classifier"},
    {.name = "port", .kind = PH_OPT_INT, .low = 0, .high = 65535, .at = AT(port),
     .help = "where to serve; 0: any port that is free"},
    PH_OPTION_THREADS(look_options, choice.machine),
    PH_OPTION_ISA(look_options, choice.machine),
    {.name = NULL}};
/* clang-format on */

static void write_stdout(void *user, const char *bytes, size_t count)
{
    (void)user;
    fwrite(bytes, 1, count, stdout);
}

static int show(const look_options *o, const look_source *source, const look_heads *heads)
{
    const ph_report *report = &source->report;
    ph_pick telling[LOOK_TELLING];
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    int chosen = heads->chosen;
    ph_terminal terminal = {.width = term_width(stdout, 1000),
                            .ascii = o->ascii || !look_utf8(),
                            .colors = term_color(stdout) ? 256 : 0,
                            .picks = chosen ? heads->picks : telling,
                            .pick_count = chosen ? heads->count : 0,
                            .write = write_stdout};
    if (!chosen) {
        int count = look_telling(source, telling), fit = terminal.width / 40;
        terminal.pick_count = count < fit ? count : fit;
    }
    ph_status status = ph_terminal_write(report, &terminal, &io);
    return cli_result(status, error);
}

/* The head a page shows first. */
static ph_pick first_head(const look_source *source, const look_heads *heads)
{
    ph_pick telling[LOOK_TELLING] = {{0, 0, 0}};
    if (heads->chosen) return heads->picks[0];
    if (look_telling(source, telling) == 0) ph_report_picks(&source->report, telling, 1);
    return telling[0];
}

/* The files that were asked for. second: a report to compare with, or NULL. */
static int write_files(const look_options *o, const look_source *source,
                       const ph_report *second, const look_heads *heads)
{
    const ph_report *report = &source->report;
    char error[CLI_ERROR_SIZE] = "";
    const ph_io io = {.error = error, .error_size = sizeof error};
    const ph_pick first = first_head(source, heads);
    const ph_page page = {.stack = first.stack, .layer = first.layer, .head = first.head};
    const ph_figure figure = {.picks = heads->picks,
                              .pick_count = heads->chosen ? heads->count : 0};
    ph_status status = PH_OK;
    if (o->html) status = ph_page_write(o->html, report, second, &page, &io);
    if (status == PH_OK && o->svg) status = ph_figure_write(o->svg, report, &figure, &io);
    return cli_result(status, error);
}

static const ph_outcome *find_outcome(const ph_report *report, int about)
{
    for (int n = 0; n < report->outcome_count; n++)
        if (report->outcomes[n].about == about) return &report->outcomes[n];
    return NULL;
}

/* What the plan did to the answers. */
static void show_plan(const look_source *source)
{
    const ph_report before = ph_scene_report(source->plain_scene);
    const ph_report *after = &source->report;
    char one[LOOK_WORD], two[LOOK_WORD];
    int moved = 0;
    if (after->cosine)
        printf("\nUnder the plan the text's vector has a cosine of %.4f to its own.\n",
               (double)*after->cosine);
    if (!after->divergence) return;
    printf("\nThe plan moves the answers by %.4f nats (Kullback-Leibler, mean over "
           "words).\n",
           (double)*after->divergence);
    for (int n = 0; n < after->outcome_count; n++) {
        const ph_outcome *b = &after->outcomes[n], *a = find_outcome(&before, b->about);
        if (!a) continue;
        if (!strcmp(a->text, b->text) && fabsf(a->value - b->value) < 0.005f) continue;
        printf("  %s %.0f %%  becomes  %s %.0f %%\n", look_word(a->text, one),
               100 * (double)a->value, look_word(b->text, two), 100 * (double)b->value);
        moved++;
    }
    if (!moved) puts("  No answer is another one, none moved by half a per cent.");
}

/* Where the page is, how roles were found, and what to try next; for people only. */
static void show_next(const look_options *o, const look_source *source,
                      const look_heads *heads)
{
    const char *bold = term_on(stdout, TERM_BOLD), *plain = term_on(stdout, TERM_PLAIN);
    if (source->plain_scene) show_plan(source);
    if (source->sentences)
        printf("\nRoles were measured on %d sentences that the model has not seen.\n",
               source->sentences);
    if (o->html)
        printf("The page: %s%s%s (open it in a browser)\n", bold, o->html, plain);
    if (o->svg) printf("The figure: %s%s%s\n", bold, o->svg, plain);
    if (!source->sentences || heads->chosen) return;
    puts("\nTry next (type ./run for polyhead where it is not installed):\n"
         "  polyhead look \"The dog didn't cross the street because it was too wide.\"");
    if (!o->ascii && look_utf8())
        puts("  polyhead look \"\xe9\x82\xa3\xe5\x8f\xaa\xe5\x8a\xa8\xe7\x89\xa9"
             "\xe6\xb2\xa1\xe6\x9c\x89\xe7\xa9\xbf\xe8\xbf\x87\xe9\xa9\xac"
             "\xe8\xb7\xaf\xef\xbc\x8c\xe5\x9b\xa0\xe4\xb8\xba\xe5\xae\x83"
             "\xe5\xa4\xaa\xe7\xb4\xaf\xe4\xba\x86\xe3\x80\x82\"");
    ph_pick telling[LOOK_TELLING];
    if (look_telling(source, telling) > 1)
        printf("  polyhead look --layer %d --head %d       one head with all its "
               "numbers\n",
               telling[1].layer + 1, telling[1].head + 1);
    puts("  polyhead look --serve                  the page live: switch heads off\n"
         "  polyhead heads                         the numbers of every head");
}

/* --csv and --json take no file: "out.csv" behind them is hardly a text. */
static int check_text(const look_options *o, const char *text)
{
    const char *option = o->csv ? "csv" : o->json ? "json" : NULL;
    size_t length = text ? strlen(text) : 0, ending = option ? strlen(option) : 0;
    if (!option || length <= ending + 1 || strpbrk(text, " \t\n")) return EXIT_OK;
    if (strcmp(text + length - ending, option) || text[length - ending - 1] != '.')
        return EXIT_OK;
    return cli_fail(EXIT_USAGE, "--%s prints to standard output: write --%s > %s", option,
                    option, text);
}

/* One way to print; several at once would mix. */
static int check_usage(const look_options *o)
{
    if (o->plain + o->csv + o->json > 1)
        return cli_fail(EXIT_USAGE, "--plain, --csv and --json exclude each other");
    if (o->serve && o->plain + o->csv + o->json)
        return cli_fail(EXIT_USAGE, "--serve prints no numbers: leave out --plain, --csv "
                                    "and --json");
    if (o->data && !o->serve)
        return cli_fail(EXIT_USAGE, "--data is for the live page: it needs --serve");
    if (o->port && !o->serve) return cli_fail(EXIT_USAGE, "--port needs --serve");
    if (o->compare && !o->html)
        return cli_fail(EXIT_USAGE, "--compare is for the page: it needs --html FILE");
    return EXIT_OK;
}

static int print(const look_options *o, const look_source *source,
                 const look_heads *heads)
{
    if (o->plain) return look_plain(&source->report, heads);
    if (o->csv) return look_csv(&source->report, heads);
    if (o->json) return look_json(source, heads);
    int rc = show(o, source, heads);
    if (rc == EXIT_OK) show_next(o, source, heads);
    return rc;
}

/* The other side of a comparison: the same, but for what --compare names. */
static int open_second(look_source *second, const look_choice *first, const char *what)
{
    look_choice choice = *first;
    if (choice.weights)
        choice.weights = what;
    else if (look_is_model(what))
        choice.model = what;
    else
        choice.text = what;
    return look_open(second, &choice);
}

/* The page shows what a plan changes. */
static int open_unplanned(look_source *second, const look_choice *first)
{
    look_choice choice = *first;
    choice.plan = NULL;
    return look_open(second, &choice);
}

static int refuse_second(const char *const *words)
{
    char quote[CLI_QUOTE_SIZE];
    if (look_is_model(words[0]))
        return cli_fail(EXIT_USAGE,
                        "look takes one TEXT, and '%s' is a model: it is given by "
                        "--model, or -m",
                        cli_quote(words[0], quote, sizeof quote));
    return cli_fail(EXIT_USAGE,
                    "look takes one TEXT, found '%s' too: put the text in quotes",
                    cli_quote(words[1], quote, sizeof quote));
}

/* A path is a text too, but hardly the one that was meant. */
static void warn_path(const look_source *source, const look_choice *choice)
{
    struct stat info;
    char quote[CLI_QUOTE_SIZE];
    const ph_config *c = source->model ? ph_model_config(source->model) : NULL;
    if (!c || c->image_size || c->mels || !choice->text) return;
    if (stat(choice->text, &info) != 0) return;
    cli_warn("'%s' names a %s and is read as a text: %s",
             cli_quote(choice->text, quote, sizeof quote),
             S_ISDIR(info.st_mode) ? "folder" : "file",
             choice->model ? "- reads standard input" : "a model is given by --model");
}

static int look(const void *given, int count, const char *const *words)
{
    const look_options *o = given;
    look_choice choice = o->choice;
    look_source source = {0}, second = {0};
    look_heads heads = {0};
    choice.text = count ? words[0] : NULL;
    int rc = count > 1 ? refuse_second(words) : check_usage(o);
    if (rc == EXIT_OK) rc = check_text(o, choice.text);
    if (o->serve) choice.plan = NULL; /* the page makes the changes */
    choice.unread = o->serve && choice.model && !o->html && !o->svg;
    if (rc == EXIT_OK) rc = look_open(&source, &choice);
    if (rc == EXIT_OK) warn_path(&source, &choice);
    if (rc == EXIT_OK && o->compare) rc = open_second(&second, &choice, o->compare);
    if (rc == EXIT_OK && choice.plan && o->html && !o->compare)
        rc = open_unplanned(&second, &choice);
    if (rc == EXIT_OK) rc = look_select(&source.report, &o->wish, &heads);
    if (rc == EXIT_OK)
        rc = write_files(o, &source, second.survey ? &second.report : NULL, &heads);
    if (rc == EXIT_OK)
        rc = o->serve
                 ? look_serve(&source, &choice, o->choice.plan, o->data, (int)o->port)
                 : print(o, &source, &heads);
    free(heads.picks);
    look_close(&source);
    look_close(&second);
    return rc;
}

static const char *const examples[] = {
    "polyhead look \"The robot picked up the block because it was light.\"",
    "what every head of the embedded model looks at in your own sentence",
    "polyhead look --layer 2 --head 1",
    "one head: its map with numbers, all its scores and what they mean",
    "polyhead look --html look.html --svg figure.svg",
    "a page to explore, and a figure for a paper",
    "polyhead look --weights maps.safetensors --tokens words.txt",
    "attention maps of any other program",
    "polyhead look --model vit-base-patch16-224 cat.png",
    "where on a picture the class token of each head attends to",
    NULL};

const ph_command command_look = {
    .name = "look",
    .summary = "what every head attends to",
    .usage = "[TEXT] [options]",
    .about =
        "Letters in the grid are roles; each comes with the number and the threshold "
        "that gave it. Colours stand for weights from 0 to 1, by their square root. The "
        "TEXT '-' is standard input. For an encoder of pictures TEXT is a PNG, JPEG or "
        "PPM file, tokens are patches named by row and column, and the terminal shows "
        "them as a grid, coloured by what the class token attends to. For one of sound "
        "it is a .npy or safetensors file of log-mel features, tokens are pairs of "
        "frames.",
    .examples = examples,
    .options = table,
    .size = sizeof(look_options),
    .word = "TEXT",
    .most_words = CLI_WORDS_MAX, /* a second one is refused with more to say */
    .run = look};
