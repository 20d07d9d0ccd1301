/*
 * main.c - the program: the table of commands, and the way from main to one of them.
 *
 *     polyhead [global options] COMMAND [options] [arguments]
 *
 * Results go to stdout, everything else to stderr; exit codes stand in cli.h. A reader
 * that goes away (SIGPIPE) ends the program without a message; a disk that is full or
 * output that was closed does not.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/cli.h"
#include "framework/term.h"

const ph_command *const cli_commands[] = {
    &command_look,     &command_heads,  &command_explain, &command_train,
    &command_generate, &command_embed,  &command_fill,    &command_classify,
    &command_tokens,   &command_importance, &command_prune, &command_convert,
    &command_export,   &command_compare,
    &command_plot,     &command_run,    &command_bench,   &command_doctor,
    &command_variants,
    &command_help,     &command_man,    &command_completions, NULL};

/* The program itself, as the parser sees it. */
static const ph_command program = {
    .name = "polyhead", .word = "COMMAND", .most_words = 1, .first_word_ends = 1};

const ph_command *cli_find(const char *name)
{
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!strcmp(name, (*c)->name)) return *c;
    return NULL;
}

static int unknown_command(const char *word)
{
    enum { MOST = 32 };
    const char *names[MOST + 1];
    char quote[CLI_QUOTE_SIZE];
    int count = 0;
    for (const ph_command *const *c = cli_commands; *c && count < MOST; c++)
        if (!(*c)->hidden) names[count++] = (*c)->name;
    names[count] = NULL;
    const char *near = cli_nearest(word, names);
    cli_quote(word, quote, sizeof quote);
    if (near)
        return cli_fail(EXIT_USAGE, "unknown command %s: did you mean %s?", quote, near);
    return cli_fail(EXIT_USAGE, "unknown command %s: 'polyhead --help' lists them",
                    quote);
}

static void use_color(const ph_parsed *parsed)
{
    if (parsed->no_color)
        term_setup(2);
    else if (parsed->color)
        term_setup(parsed->color);
}

static int print_version(void)
{
    printf("polyhead %s\n", ph_version());
    return EXIT_OK;
}

static int run_command(const ph_command *command, int count, const char *const *args)
{
    static ph_parsed parsed;
    void *options = calloc(1, command->size ? command->size : 1);
    if (!options) return cli_fail(EXIT_MEMORY, "out of memory");
    int rc = cli_parse(command, count, args, options, &parsed);
    use_color(&parsed);
    if (rc)
        cli_fail(rc, "%s", parsed.error);
    else if (parsed.help)
        cli_help_command(stdout, command);
    else if (parsed.version)
        print_version();
    else
        rc = command->run(options, parsed.word_count, parsed.words);
    free(options);
    return rc;
}

static int run_program(int count, const char *const *args)
{
    static ph_parsed parsed;
    int rc = cli_parse(&program, count, args, NULL, &parsed);
    use_color(&parsed);
    if (rc) return cli_fail(rc, "%s", parsed.error);
    if (parsed.help) {
        cli_help_program(stdout);
        return EXIT_OK;
    }
    if (parsed.version) return print_version();
    if (parsed.word_count == 0) {
        cli_help_short(stdout);
        return EXIT_OK;
    }
    const ph_command *command = cli_find(parsed.words[0]);
    if (!command) return unknown_command(parsed.words[0]);
    return run_command(command, count - parsed.taken, args + parsed.taken);
}

/* Output that did not reach its place is a failure, even if all was computed well. */
static int finish_output(int rc)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) return rc;
    const char *reason = errno ? strerror(errno) : "write error";
    int code = cli_fail(EXIT_IO, "cannot write to standard output: %s", reason);
    return rc ? rc : code;
}

/* A standard stream that the parent closed would be the number of the next file that is
   opened, and messages would go into that file. Standard output stays one that cannot be
   written, so that a result which is lost is a failure; messages may be lost. */
static void open_streams(void)
{
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", modes[fd]);
}

void cli_output_may_be_closed(void)
{
    int flags = fcntl(STDOUT_FILENO, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY) return;
    int nothing = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDOUT_FILENO), close(nothing);
}

int main(int argc, char **argv)
{
    open_streams();
    signal(SIGPIPE, SIG_DFL); /* a parent may have left it ignored */
    signal(SIGXFSZ, SIG_IGN); /* a file over its limit is a failed write, told as one */
    int rc =
        run_program(argc > 1 ? argc - 1 : 0, (const char *const *)(argv + (argc > 0)));
    return finish_output(rc);
}
