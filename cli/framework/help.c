/*
 * help.c - help on the terminal, and as JSON, written from the tables of the commands.
 */
#include <stdlib.h>
#include <string.h>

#include "framework/cli.h"
#include "framework/help.h"
#include "framework/json.h"
#include "framework/term.h"

const cli_topic cli_topics[] = {
    {"exit-codes", "what the program's exit status says",
     "0  done\n"
     "1  failed for a reason without a better number\n"
     "2  the command line is wrong\n"
     "3  an input file is malformed, or its tensors do not fit together\n"
     "4  a variant, device or option that this build does not have\n"
     "5  out of memory\n"
     "6  a verification failed: numbers differ\n"
     "7  the system could not read or write"},
    {"environment", "variables that the program reads",
     "POLYHEAD_ISA      use no instruction set above this one: ref, avx2, avx512, amx,\n"
     "                  neon; or amx-f32, which is amx with gradients of f32 layers and\n"
     "                  models in tiles: as exact, but with bits of their own\n"
     "POLYHEAD_THREADS  number of threads where --threads is not given\n"
     "NO_COLOR          not empty: no colour\n"
     "TERM              dumb: no colour, no progress line"},
    {"shapes", "the names of sizes, here and in the library",
     "batch        sequences computed side by side\n"
     "q_len        rows: how many queries; kv_len how many keys and values\n"
     "model_dim    length of a token's vector, d_model in papers\n"
     "q_heads      query heads; k_heads and v_heads divide it (fewer: GQA, one: MQA)\n"
     "qk_dim       length of a query or key in one head, d_k in papers\n"
     "v_dim        length of a value in one head, d_v in papers\n"
     "Tensors are written (batch, heads, len, dim), last axis contiguous."},
    {NULL, NULL, NULL}};

enum { HELP_WIDTH = 90, NAME_COLUMN = 26 };

static void heading(FILE *out, const char *text)
{
    fprintf(out, "\n%s%s%s\n", term_on(out, TERM_BOLD), text, term_on(out, TERM_PLAIN));
}

/* A name at the left, its text wrapped at the right. */
static void entry(FILE *out, const char *name, int column, const char *text)
{
    int used =
        fprintf(out, "  %s%s%s", term_on(out, TERM_NAME), name, term_on(out, TERM_PLAIN));
    used = 2 + (int)strlen(name);
    if (used + 2 > column) {
        fputc('\n', out);
        used = 0;
    }
    fprintf(out, "%*s", column - used, "");
    term_wrap(out, text, column, column, term_width(out, HELP_WIDTH));
}

void cli_option_spelling(const ph_option *option, char *buffer, size_t size)
{
    char value[128];
    const char *metavar = cli_metavar(option, value, sizeof value);
    char letter[8] = "    ";
    if (option->letter) snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(buffer, size, "%s--%s%s%s", letter, option->name, metavar ? " " : "",
             metavar ? metavar : "");
}

static void print_option(FILE *out, const ph_option *option)
{
    char name[192], text[512];
    cli_option_spelling(option, name, sizeof name);
    snprintf(text, sizeof text, "%s%s%s%s", option->help,
             option->fallback ? " (default " : "",
             option->fallback ? option->fallback : "", option->fallback ? ")" : "");
    entry(out, name, NAME_COLUMN, text);
}

static void print_options(FILE *out, const ph_option *table)
{
    int first = 1;
    for (const ph_option *o = table; o && o->name; o++) {
        if (o->hidden) continue;
        if (o->group || first) heading(out, o->group ? o->group : "Options");
        print_option(out, o);
        first = 0;
    }
}

static void print_examples(FILE *out, const char *const *examples)
{
    if (!examples) return;
    heading(out, "Examples");
    for (; examples[0] && examples[1]; examples += 2) {
        fprintf(out, "  %s%s%s\n      ", term_on(out, TERM_NAME), examples[0],
                term_on(out, TERM_PLAIN));
        term_wrap(out, examples[1], 6, 6, term_width(out, HELP_WIDTH));
    }
}

void cli_help_command(FILE *out, const ph_command *command)
{
    const char *bold = term_on(out, TERM_BOLD), *plain = term_on(out, TERM_PLAIN);
    fprintf(out, "%spolyhead %s%s: %s\n", bold, command->name, plain, command->summary);
    heading(out, "Usage");
    fprintf(out, "  polyhead %s%s%s\n", command->name, *command->usage ? " " : "",
            command->usage);
    if (command->about) {
        fputc('\n', out);
        term_wrap(out, command->about, 0, 0, term_width(out, HELP_WIDTH));
    }
    print_options(out, command->options);
    print_options(out, cli_global_options);
    print_examples(out, command->examples);
}

static void print_commands(FILE *out)
{
    for (const ph_command *const *c = cli_commands; *c; c++)
        if (!(*c)->hidden) entry(out, (*c)->name, 14, (*c)->summary);
}

void cli_help_program(FILE *out)
{
    fprintf(out, "%spolyhead %s%s: %s\n", term_on(out, TERM_BOLD), ph_version(),
            term_on(out, TERM_PLAIN), CLI_SUMMARY);
    heading(out, "Usage");
    fputs("  polyhead COMMAND [options]\n", out);
    heading(out, "Commands");
    print_commands(out);
    print_options(out, cli_global_options);
    heading(out, "More");
    entry(out, "polyhead COMMAND --help", NAME_COLUMN + 6,
          "options of a command, examples");
    entry(out, "polyhead help TOPIC", NAME_COLUMN + 6, "exit-codes, environment, shapes");
    entry(out, "polyhead help --json", NAME_COLUMN + 6,
          "every command and option, as JSON");
}

void cli_help_short(FILE *out)
{
    fprintf(out, "%spolyhead%s: %s\n", term_on(out, TERM_BOLD), term_on(out, TERM_PLAIN),
            CLI_SUMMARY);
    heading(out, "Commands");
    print_commands(out);
    static const char *const examples[] = {
        "polyhead look \"The dog ate the fish because it was hungry.\"",
        "what every head attends to in a sentence",
        "polyhead run in.safetensors -o out.safetensors --causal",
        "attention over the tensors q, k, v of a file", NULL};
    print_examples(out, examples);
    fputs("\nAll about it: polyhead --help\n", out);
}

/* ---- the help command ---- */

typedef struct help_options {
    int json;
} help_options;

static const ph_option help_table[] = {{.name = "json",
                                        .kind = PH_OPT_FLAG,
                                        .at = offsetof(help_options, json),
                                        .help = "list every command and option as JSON"},
                                       {.name = NULL}};

static void json_option(ph_json_writer *j, const ph_option *o)
{
    static const char *const kinds[] = {
        [PH_OPT_FLAG] = "flag", [PH_OPT_INT] = "int",       [PH_OPT_REAL] = "real",
        [PH_OPT_TEXT] = "text", [PH_OPT_CHOICE] = "choice", [PH_OPT_SIZES] = "sizes",
        [PH_OPT_TEXTS] = "texts"};
    const char letter[2] = {o->letter, 0};
    char buffer[128];
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "name", o->name);
    if (o->letter) ph_json_string(j, "letter", letter);
    ph_json_string(j, "kind", kinds[o->kind]);
    if (o->kind != PH_OPT_FLAG)
        ph_json_string(j, "value", cli_metavar(o, buffer, sizeof buffer));
    ph_json_string(j, "help", o->help);
    if (o->fallback) ph_json_string(j, "default", o->fallback);
    if (o->env) ph_json_string(j, "environment", o->env);
    if (o->kind == PH_OPT_INT || o->kind == PH_OPT_SIZES) {
        ph_json_integer(j, "low", o->low);
        ph_json_integer(j, "high", o->high);
    }
    if (o->kind == PH_OPT_REAL) {
        ph_json_double(j, "low", o->least);
        ph_json_double(j, "high", o->most);
    }
    if (o->choices) {
        ph_json_begin_array(j, "choices");
        for (int i = 0; o->choices[i]; i++) ph_json_string(j, NULL, o->choices[i]);
        ph_json_end(j);
    }
    ph_json_end(j);
}

static void json_options(ph_json_writer *j, const ph_option *table)
{
    ph_json_begin_array(j, "options");
    for (const ph_option *o = table; o && o->name; o++)
        if (!o->hidden) json_option(j, o);
    ph_json_end(j);
}

static int help_json(void)
{
    ph_json_writer j = json_begin("polyhead.help/1");
    ph_json_string(&j, "version", ph_version());
    ph_json_begin_array(&j, "commands");
    for (const ph_command *const *c = cli_commands; *c; c++) {
        if ((*c)->hidden) continue;
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "name", (*c)->name);
        ph_json_string(&j, "summary", (*c)->summary);
        ph_json_string(&j, "usage", (*c)->usage);
        json_options(&j, (*c)->options);
        ph_json_end(&j);
    }
    ph_json_end(&j);
    json_options(&j, cli_global_options);
    json_end(&j);
    return EXIT_OK;
}

static const char *const *known_topics(void)
{
    enum { MOST = 32 };
    static const char *names[MOST + 1];
    int count = 0;
    for (const ph_command *const *c = cli_commands; *c && count < MOST; c++)
        if (!(*c)->hidden) names[count++] = (*c)->name;
    for (const cli_topic *t = cli_topics; t->name && count < MOST; t++)
        names[count++] = t->name;
    names[count] = NULL;
    return names;
}

static int unknown_topic(const char *word)
{
    char quote[CLI_QUOTE_SIZE];
    const char *near = cli_nearest(word, known_topics());
    cli_quote(word, quote, sizeof quote);
    if (near) return cli_fail(EXIT_USAGE, "no help on %s: did you mean %s?", quote, near);
    return cli_fail(EXIT_USAGE, "no help on %s: 'polyhead help' lists what there is",
                    quote);
}

static int help(const void *chosen, int count, const char *const *words)
{
    const help_options *options = chosen;
    if (options->json) return help_json();
    if (count == 0) {
        cli_help_program(stdout);
        return EXIT_OK;
    }
    const ph_command *command = cli_find(words[0]);
    if (command) {
        cli_help_command(stdout, command);
        return EXIT_OK;
    }
    for (const cli_topic *t = cli_topics; t->name; t++) {
        if (strcmp(t->name, words[0])) continue;
        printf("%s%s%s: %s\n\n%s\n", term_on(stdout, TERM_BOLD), t->name,
               term_on(stdout, TERM_PLAIN), t->summary, t->text);
        return EXIT_OK;
    }
    return unknown_topic(words[0]);
}

const ph_command command_help = {.name = "help",
                                 .summary = "help on a command or a topic",
                                 .usage = "[COMMAND|TOPIC] [--json]",
                                 .about = "Topics: exit-codes, environment, shapes.",
                                 .options = help_table,
                                 .size = sizeof(help_options),
                                 .word = "TOPIC",
                                 .most_words = 1,
                                 .known_words = known_topics,
                                 .run = help};
