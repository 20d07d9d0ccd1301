/*
 * man.c - `polyhead man`: the manual page polyhead(1) as roff, written from the tables.
 *
 * Hidden from help: it is for `make install`. Text is escaped so that no word can become
 * a roff request, and dashes stay dashes that can be copied into a shell.
 */
#include <string.h>

#include "framework/cli.h"
#include "framework/help.h"

/* Text up to `end`; a line of roff must not start with a dot or a quote. */
static void roff(const char *text, const char *end)
{
    int line_start = 1;
    for (; text < end; text++) {
        if (line_start && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
        line_start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
    }
}

static void roff_all(const char *text)
{
    roff(text, text + strlen(text));
}

/* Paragraphs: an empty line becomes .PP */
static void roff_paragraphs(const char *text)
{
    for (;;) {
        const char *end = strstr(text, "\n\n");
        if (!end) break;
        roff(text, end);
        puts("\n.PP");
        text = end + 2;
    }
    roff_all(text);
    putchar('\n');
}

static void roff_option(const ph_option *option)
{
    char value[128];
    const char *metavar = cli_metavar(option, value, sizeof value);
    fputs(".TP\n\\fB", stdout);
    if (option->letter) printf("\\-%c\\fR, \\fB", option->letter);
    fputs("\\-\\-", stdout);
    roff_all(option->name);
    fputs("\\fR", stdout);
    if (metavar) {
        fputs(" \\fI", stdout);
        roff_all(metavar);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    roff_all(option->help);
    if (option->fallback) {
        fputs(" (default ", stdout);
        roff_all(option->fallback);
        putchar(')');
    }
    if (option->env) printf(" [%s]", option->env);
    putchar('\n');
}

static void roff_options(const ph_option *table)
{
    for (const ph_option *o = table; o && o->name; o++)
        if (!o->hidden) roff_option(o);
}

static void roff_command(const ph_command *command)
{
    printf(".SS polyhead %s\n.B polyhead %s\n", command->name, command->name);
    roff_all(command->usage);
    puts("\n.PP");
    roff_all(command->summary);
    puts(".");
    if (command->about) {
        puts(".PP");
        roff_paragraphs(command->about);
    }
    roff_options(command->options);
}

static void roff_examples(void)
{
    puts(".SH EXAMPLES");
    for (const ph_command *const *c = cli_commands; *c; c++) {
        const char *const *e = (*c)->hidden ? NULL : (*c)->examples;
        for (; e && e[0] && e[1]; e += 2) {
            fputs(".TP\n.B ", stdout);
            roff_all(e[0]);
            putchar('\n');
            roff_all(e[1]);
            putchar('\n');
        }
    }
}

/* A topic becomes a section of its own, its lines as they are. */
static void roff_topic(const cli_topic *topic, const char *section)
{
    printf(".SH %s\n.nf\n", section);
    roff_all(topic->text);
    puts("\n.fi");
}

static int man(const void *options, int count, const char *const *words)
{
    static const char *const sections[] = {"EXIT STATUS", "ENVIRONMENT", "SHAPES"};
    (void)options, (void)count, (void)words;
    printf(".TH POLYHEAD 1 %s \"polyhead %s\" \"User Commands\"\n", CLI_DATE,
           ph_version());
    fputs(".SH NAME\npolyhead \\- ", stdout);
    roff_all(CLI_SUMMARY);
    puts("\n.SH SYNOPSIS\n.B polyhead\n.I COMMAND\n[options]\n.SH DESCRIPTION");
    puts("Results go to standard output, messages and progress to standard error.\n"
         "The program never asks, never uses the network, and reads standard input only\n"
         "where a dash stands for a text, or generate gets none.");
    puts(".SH COMMANDS");
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden) roff_command(*c);
    puts(".SH OPTIONS OF EVERY COMMAND");
    roff_options(cli_global_options);
    roff_examples();
    for (int i = 0; cli_topics[i].name; i++) roff_topic(&cli_topics[i], sections[i]);
    return EXIT_OK;
}

const ph_command command_man = {.name = "man",
                                .summary = "write the manual page as roff",
                                .usage = "",
                                .run = man,
                                .hidden = 1};
