/*
 * completions.c - `polyhead completions SHELL`: scripts for bash, zsh and fish, written
 * from the tables.
 *
 * Hidden from help: it is for `make install`. Each shell has one function that prints a
 * whole script; nothing is asked of the program while a user is typing.
 */
#include <string.h>

#include "framework/cli.h"

static void words_of(const char *const *list)
{
    for (int i = 0; list && list[i]; i++) printf("%s%s", i ? " " : "", list[i]);
}

static const char *const *words_known(const ph_command *c)
{
    return c->known_words ? c->known_words() : NULL;
}

/* Calls print for each visible option of a command, then for the global ones. */
static void each_option(const ph_command *command,
                        void (*print)(const ph_command *, const ph_option *))
{
    const ph_option *const tables[] = {command->options, cli_global_options};
    for (int t = 0; t < 2; t++)
        for (const ph_option *o = tables[t]; o && o->name; o++)
            if (!o->hidden) print(command, o);
}

/* A text inside single quotes, where a quote must leave them for a moment. */
static void quoted(const char *text, const char *escape)
{
    for (; *text; text++) {
        if (strchr(escape, *text)) putchar('\\');
        fputs(*text == '\'' ? "'\\''" : (char[]){*text, 0}, stdout);
    }
}

/* ---- bash ---- */

static void bash_name(const ph_command *command, const ph_option *o)
{
    (void)command;
    printf(" --%s", o->name);
}

static void bash_value(const ph_command *command, const ph_option *o)
{
    if (o->kind == PH_OPT_FLAG) return;
    printf("    '%s --%s'", command->name, o->name);
    if (o->letter) printf("|'%s -%c'", command->name, o->letter);
    fputs(") ", stdout);
    if (o->kind == PH_OPT_CHOICE) {
        fputs("words='", stdout);
        words_of(o->choices);
        putchar('\'');
    } else if (o->kind == PH_OPT_TEXT) {
        fputs("files=1", stdout);
    } else {
        putchar(':');
    }
    puts(" ;;");
}

static void bash_command(const ph_command *c)
{
    printf("    '%s '*) words='", c->name);
    words_of(words_known(c));
    each_option(c, bash_name);
    printf("'%s ;;\n", c->word && !c->known_words ? " files=1" : "");
}

static void bash(void)
{
    puts(
        "# bash completion for polyhead; made by 'polyhead completions bash'\n"
        "_polyhead() {\n"
        "  local now=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
        "  local command= words= files= i\n"
        "  COMPREPLY=()\n"
        "  [[ $now == = ]] && now=\n"
        "  [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
        "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
        "    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac\n"
        "  done\n"
        "  case \"$command $before\" in");
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden) each_option(*c, bash_value);
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden) bash_command(*c);
    fputs("    ' '*) words='", stdout);
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden) printf("%s ", (*c)->name);
    for (const ph_option *o = cli_global_options; o->name; o++) printf("--%s ", o->name);
    puts("' ;;\n"
         "  esac\n"
         "  [[ -n $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$now\"))\n"
         "  [[ -n $files ]] && COMPREPLY+=($(compgen -f -- \"$now\"))\n"
         "}\n"
         "complete -o filenames -o bashdefault -F _polyhead polyhead");
}

/* ---- zsh ---- */

static void zsh_option(const ph_command *command, const ph_option *o)
{
    char buffer[128];
    (void)command;
    fputs("        ", stdout);
    if (o->letter)
        printf("'(-%c --%s)'{-%c,--%s}'[", o->letter, o->name, o->letter, o->name);
    else
        printf("'--%s[", o->name);
    quoted(o->help, "[]:\\");
    putchar(']');
    if (o->kind != PH_OPT_FLAG) {
        putchar(':');
        quoted(cli_metavar(o, buffer, sizeof buffer), "[]:\\");
        putchar(':');
        if (o->kind == PH_OPT_CHOICE) {
            putchar('(');
            words_of(o->choices);
            putchar(')');
        } else if (o->kind == PH_OPT_TEXT) {
            fputs("_files", stdout);
        }
    }
    puts("' \\");
}

static void zsh_command(const ph_command *c)
{
    printf("    %s)\n      _arguments \\\n", c->name);
    each_option(c, zsh_option);
    if (c->known_words) {
        printf("        '*:%s:(", c->word);
        words_of(words_known(c));
        puts(")' ;;");
    } else {
        puts(c->word ? "        '*:file:_files' ;;" : "        ;;");
    }
}

static void zsh(void)
{
    puts("#compdef polyhead\n"
         "# made by 'polyhead completions zsh'\n"
         "_polyhead() {\n"
         "  local -a commands\n"
         "  commands=(");
    for (const ph_command *const *c = cli_commands; *c; c++) {
        if ((*c)->hidden) continue;
        printf("    '%s:", (*c)->name);
        quoted((*c)->summary, ":\\");
        puts("'");
    }
    puts("  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words\n"
         "  (( CURRENT-- ))\n"
         "  case $command in");
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden) zsh_command(*c);
    puts("  esac\n"
         "}\n"
         "_polyhead \"$@\"");
}

/* ---- fish ---- */

static void fish_option(const ph_command *command, const ph_option *o)
{
    printf("complete -c polyhead -n '__fish_seen_subcommand_from %s' -l %s",
           command->name, o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->kind == PH_OPT_TEXT)
        fputs(" -r -F", stdout);
    else if (o->kind != PH_OPT_FLAG)
        fputs(" -x", stdout);
    if (o->kind == PH_OPT_CHOICE) {
        fputs(" -a '", stdout);
        words_of(o->choices);
        putchar('\'');
    }
    fputs(" -d '", stdout);
    quoted(o->help, "\\");
    puts("'");
}

static void fish_command(const ph_command *c)
{
    printf("complete -c polyhead -n __fish_use_subcommand -x -a %s -d '", c->name);
    quoted(c->summary, "\\");
    puts("'");
    if (c->known_words) {
        printf("complete -c polyhead -n '__fish_seen_subcommand_from %s' -x -a '",
               c->name);
        words_of(words_known(c));
        puts("'");
    }
    each_option(c, fish_option);
}

static void fish(void)
{
    puts("# fish completion for polyhead; made by 'polyhead completions fish'");
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden) fish_command(*c);
}

/* ---- the command ---- */

static const struct {
    const char *name;
    void (*print)(void);
} shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

static const char *const *known_shells(void)
{
    static const char *const names[] = {"bash", "zsh", "fish", NULL};
    return names;
}

static int completions(const void *options, int count, const char *const *words)
{
    (void)options, (void)count;
    char quote[CLI_QUOTE_SIZE];
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++) {
        if (strcmp(words[0], shells[i].name)) continue;
        shells[i].print();
        return EXIT_OK;
    }
    return cli_fail(EXIT_USAGE, "no completions for %s: there are bash, zsh and fish",
                    cli_quote(words[0], quote, sizeof quote));
}

const ph_command command_completions = {.name = "completions",
                                        .summary = "write completions for a shell",
                                        .usage = "bash|zsh|fish",
                                        .word = "SHELL",
                                        .fewest_words = 1,
                                        .most_words = 1,
                                        .known_words = known_shells,
                                        .run = completions,
                                        .hidden = 1};
