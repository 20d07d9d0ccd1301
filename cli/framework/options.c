/*
 * options.c - the parser: arguments, read by the table of one command, into its struct.
 *
 * Order: zero, defaults of the table, environment, command line (the last one wins). An
 * option may be written --name value, --name=value, -n value or -nvalue; letters of flags
 * may share one dash; '_' may stand for '-' in names; "--" ends the options; "-" is a
 * word.
 * The parser prints nothing: a mistake becomes one sentence in ph_parsed.error.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "framework/cli.h"

static const char *const color_names[] = {"auto", "always", "never", NULL};

/* clang-format off */
const ph_option cli_global_options[] = {
    {.name = "help", .letter = 'h', .kind = PH_OPT_FLAG, .at = offsetof(ph_parsed, help),
     .group = "Everywhere", .help = "print this help"},
    {.name = "version", .kind = PH_OPT_FLAG, .at = offsetof(ph_parsed, version),
     .help = "print the version"},
    {.name = "color", .kind = PH_OPT_CHOICE, .metavar = "WHEN", .choices = color_names,
     .at = offsetof(ph_parsed, color), .fallback = "auto",
     .help = "auto, always or never; auto: on a terminal, unless NO_COLOR is set or TERM "
             "is dumb"},
    {.name = "no-color", .kind = PH_OPT_FLAG, .at = offsetof(ph_parsed, no_color),
     .help = "the same as --color=never"},
    {.name = NULL}};
/* clang-format on */

/* What is being read, and where it goes. */
typedef struct reader {
    const ph_command *command;
    char *options; /* command->size bytes */
    ph_parsed *parsed;
    const char *const *args;
    int count, next; /* args[next] is the next to read */
} reader;

/* A row of a table, and the struct its offsets belong to. */
typedef struct target {
    const ph_option *option; /* NULL: not found */
    char *base;
} target;

static int refuse(ph_parsed *parsed, const char *format, ...) CLI_PRINTF(2, 3);

static int refuse(ph_parsed *parsed, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(parsed->error, sizeof parsed->error, format, list);
    va_end(list);
    return EXIT_USAGE;
}

/* ---- values: one function per kind, chosen by table ---- */

typedef int read_value(const ph_option *option, const char *label, const char *text,
                       void *field, ph_parsed *parsed);

static int outside(const ph_option *option, const char *label, const char *text,
                   ph_parsed *parsed)
{
    char quote[CLI_QUOTE_SIZE];
    if (option->kind == PH_OPT_REAL)
        return refuse(parsed, "%s: %s is outside %g to %g", label,
                      cli_quote(text, quote, sizeof quote), option->least, option->most);
    return refuse(parsed, "%s: %s is outside %lld to %lld", label,
                  cli_quote(text, quote, sizeof quote), (long long)option->low,
                  (long long)option->high);
}

static int not_a(const char *what, const char *label, const char *text, ph_parsed *parsed)
{
    char quote[CLI_QUOTE_SIZE];
    return refuse(parsed, "%s: '%s' is not %s", label,
                  cli_quote(text, quote, sizeof quote), what);
}

/* Digits only: then the number was well written and too large for 64 bits. */
static int all_digits(const char *text)
{
    if (*text == '-' || *text == '+') text++;
    return *text && text[strspn(text, "0123456789")] == 0;
}

static int read_int(const ph_option *option, const char *label, const char *text,
                    void *field, ph_parsed *parsed)
{
    int64_t value = 0;
    int good = cli_read_int(text, &value);
    if (!good && !all_digits(text)) return not_a("a whole number", label, text, parsed);
    if (!good || value < option->low || value > option->high)
        return outside(option, label, text, parsed);
    memcpy(field, &value, sizeof value);
    return EXIT_OK;
}

static int read_real(const ph_option *option, const char *label, const char *text,
                     void *field, ph_parsed *parsed)
{
    double value = 0;
    if (!cli_read_real(text, &value))
        return not_a("a finite number", label, text, parsed);
    if (value < option->least || value > option->most)
        return outside(option, label, text, parsed);
    memcpy(field, &value, sizeof value);
    return EXIT_OK;
}

static int read_text(const ph_option *option, const char *label, const char *text,
                     void *field, ph_parsed *parsed)
{
    if (!*text && !option->may_be_empty)
        return refuse(parsed, "%s: the value is empty", label);
    memcpy(field, &text, sizeof text);
    return EXIT_OK;
}

static int read_texts(const ph_option *option, const char *label, const char *text,
                      void *field, ph_parsed *parsed)
{
    ph_text_list *all = field;
    if (all->count == PH_TEXTS_MAX)
        return refuse(parsed, "%s: given more than %d times", label, PH_TEXTS_MAX);
    return read_text(option, label, text, &all->value[all->count++], parsed);
}

static int read_choice(const ph_option *option, const char *label, const char *text,
                       void *field, ph_parsed *parsed)
{
    char list[CLI_ERROR_SIZE / 2] = "", quote[CLI_QUOTE_SIZE];
    size_t used = 0;
    for (int i = 0; option->choices[i]; i++) {
        if (!strcmp(text, option->choices[i])) {
            memcpy(field, &i, sizeof i);
            return EXIT_OK;
        }
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s",
                                     i ? ", " : "", option->choices[i]);
    }
    const char *near = cli_nearest(text, option->choices);
    return refuse(parsed, "%s: '%s' is none of %s%s%s%s", label,
                  cli_quote(text, quote, sizeof quote), list,
                  near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
}

static int read_sizes(const ph_option *option, const char *label, const char *text,
                      void *field, ph_parsed *parsed)
{
    ph_sizes sizes = {0};
    char part[32], quote[CLI_QUOTE_SIZE], shape[64];
    const ph_option one = {.kind = PH_OPT_INT, .low = option->low, .high = option->high};
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, ",");
        if (length >= sizeof part || sizes.count == option->longest) break;
        memcpy(part, at, length);
        part[length] = 0;
        int rc = read_int(&one, label, part, &sizes.value[sizes.count], parsed);
        if (rc) return rc;
        sizes.count++;
        at += length;
        if (*at) continue;
        if (sizes.count < option->fewest) break;
        memcpy(field, &sizes, sizeof sizes);
        return EXIT_OK;
    }
    return refuse(parsed, "%s: '%s' is not of the form %s", label,
                  cli_quote(text, quote, sizeof quote),
                  cli_metavar(option, shape, sizeof shape));
}

static read_value *const readers[] = {[PH_OPT_INT] = read_int,
                                      [PH_OPT_REAL] = read_real,
                                      [PH_OPT_TEXT] = read_text,
                                      [PH_OPT_CHOICE] = read_choice,
                                      [PH_OPT_SIZES] = read_sizes,
                                      [PH_OPT_TEXTS] = read_texts};

const char *cli_metavar(const ph_option *option, char *buffer, size_t size)
{
    static const char *const usual[] = {[PH_OPT_INT] = "N",
                                        [PH_OPT_REAL] = "X",
                                        [PH_OPT_TEXT] = "TEXT",
                                        [PH_OPT_SIZES] = "N,N",
                                        [PH_OPT_TEXTS] = "TEXT"};
    if (option->kind == PH_OPT_FLAG) return NULL;
    if (option->metavar) return option->metavar;
    if (option->kind != PH_OPT_CHOICE) return usual[option->kind];
    size_t used = 0;
    for (int i = 0; option->choices[i] && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? "|" : "",
                                 option->choices[i]);
    return buffer;
}

/* ---- finding options ---- */

static int same_name(const char *written, size_t length, const char *name)
{
    for (size_t i = 0; i < length; i++)
        if (!name[i] || (written[i] == '_' ? '-' : written[i]) != name[i]) return 0;
    return name[length] == 0;
}

static target find_in(const ph_option *table, char *base, const char *name, size_t length)
{
    for (const ph_option *o = table; o && o->name; o++) {
        int hit = name ? same_name(name, length, o->name)
                       : o->letter && o->letter == (char)length;
        if (hit) return (target){o, base};
    }
    return (target){NULL, NULL};
}

/* By name; or with name NULL by the letter that stands in `length`. */
static target find(const reader *r, const char *name, size_t length)
{
    target found = find_in(r->command->options, r->options, name, length);
    if (found.option) return found;
    return find_in(cli_global_options, (char *)r->parsed, name, length);
}

enum { NAMES_MAX = 96 };

static int collect(const ph_option *table, const char **names, int count)
{
    for (const ph_option *o = table; o && o->name && count < NAMES_MAX; o++)
        if (!o->hidden) names[count++] = o->name;
    return count;
}

static int unknown(reader *r, const char *arg, size_t length)
{
    const char *names[NAMES_MAX + 1];
    int count = collect(r->command->options, names, 0);
    count = collect(cli_global_options, names, count);
    names[count] = NULL;
    char word[CLI_QUOTE_SIZE], quote[CLI_QUOTE_SIZE];
    size_t dashes = strspn(arg, "-");
    size_t size = length - dashes < sizeof word - 1 ? length - dashes : sizeof word - 1;
    memcpy(word, arg + dashes, size);
    word[size] = 0;
    const char *near = cli_nearest(word, names);
    cli_quote(word, quote, sizeof quote);
    if (near)
        return refuse(r->parsed, "unknown option %.*s%s: did you mean --%s?", (int)dashes,
                      "--", quote, near);
    int whole = r->command->first_word_ends; /* the program, not one of its commands */
    return refuse(r->parsed, "unknown option %.*s%s: 'polyhead%s%s --help' lists them",
                  (int)dashes, "--", quote, whole ? "" : " ",
                  whole ? "" : r->command->name);
}

/* ---- reading one argument ---- */

static int store(reader *r, target t, const char *label, const char *text)
{
    const int one = 1;
    char *field = t.base + t.option->at;
    int rc = EXIT_OK;
    if (t.option->kind == PH_OPT_FLAG)
        memcpy(field, &one, sizeof one);
    else
        rc = readers[t.option->kind](t.option, label, text, field, r->parsed);
    if (rc == EXIT_OK && t.option->given)
        memcpy(t.base + t.option->given, &one, sizeof one);
    return rc;
}

/* In --output --causal the text was forgotten: it is itself the name of an option. */
static int forgotten(const reader *r, const ph_option *option, const char *text)
{
    if (option->kind != PH_OPT_TEXT && option->kind != PH_OPT_CHOICE) return 0;
    return !strncmp(text, "--", 2) && find(r, text + 2, strcspn(text + 2, "=")).option;
}

/* The value of an option: behind the '=' or in the next argument. */
static int take_value(reader *r, target t, const char *label, const char *attached)
{
    char shape[128];
    if (t.option->kind == PH_OPT_FLAG) {
        if (attached) return refuse(r->parsed, "%s takes no value", label);
        return store(r, t, label, NULL);
    }
    if (attached) return store(r, t, label, attached);
    if (r->next >= r->count || forgotten(r, t.option, r->args[r->next]))
        return refuse(r->parsed, "%s needs a value: %s", label,
                      cli_metavar(t.option, shape, sizeof shape));
    return store(r, t, label, r->args[r->next++]);
}

static int read_long(reader *r, const char *arg)
{
    size_t length = strcspn(arg + 2, "=");
    target t = find(r, arg + 2, length);
    char label[64];
    if (!t.option) return unknown(r, arg, length + 2);
    snprintf(label, sizeof label, "option --%s", t.option->name);
    return take_value(r, t, label, arg[length + 2] ? arg + length + 3 : NULL);
}

/* -n value, -nvalue, -abc for three flags */
static int read_letters(reader *r, const char *arg)
{
    char label[16];
    for (const char *at = arg + 1; *at; at++) {
        target t = find(r, NULL, (size_t)*at);
        if (!t.option) return unknown(r, arg, strlen(arg));
        snprintf(label, sizeof label, "option -%c", *at);
        if (t.option->kind != PH_OPT_FLAG)
            return take_value(r, t, label, at[1] ? at + 1 : NULL);
        store(r, t, label, NULL);
    }
    return EXIT_OK;
}

static int read_word(reader *r, const char *arg)
{
    const ph_command *c = r->command;
    char quote[CLI_QUOTE_SIZE];
    int most = c->most_words < CLI_WORDS_MAX ? c->most_words : CLI_WORDS_MAX;
    cli_quote(arg, quote, sizeof quote);
    if (r->parsed->word_count < most) {
        r->parsed->words[r->parsed->word_count++] = arg;
        return EXIT_OK;
    }
    if (most == 0)
        return refuse(r->parsed, "%s takes no argument, found '%s'", c->name, quote);
    if (most > 1 && !strcmp(c->word, "TEXT"))
        cli_quote(r->parsed->words[1], quote, sizeof quote);
    if (!strcmp(c->word, "TEXT"))
        return refuse(r->parsed,
                      "%s takes one TEXT, found '%s' too: put the text in quotes",
                      c->name, quote);
    if (most == 1)
        return refuse(r->parsed, "%s takes one %s, found '%s' too", c->name, c->word,
                      quote);
    if (most == 2 && strstr(c->usage, "TEXT"))
        return refuse(r->parsed,
                      "%s takes one MODEL and one TEXT, found '%s' too: put the text in "
                      "quotes",
                      c->name, quote);
    return refuse(r->parsed, "%s takes at most %d %s, found '%s' too", c->name, most,
                  c->word, quote);
}

static int read_all(reader *r)
{
    int rc = EXIT_OK, words_only = 0;
    while (rc == EXIT_OK && r->next < r->count) {
        const char *arg = r->args[r->next++];
        int dashed = !words_only && arg[0] == '-' && arg[1];
        if (dashed && !strcmp(arg, "--"))
            words_only = 1;
        else if (dashed)
            rc = arg[1] == '-' ? read_long(r, arg) : read_letters(r, arg);
        else
            rc = read_word(r, arg);
        if (r->command->first_word_ends && r->parsed->word_count) break;
    }
    return rc;
}

/* ---- defaults and environment ---- */

static int apply_table(reader *r, const ph_option *table, char *base)
{
    char label[96];
    int rc = EXIT_OK;
    for (const ph_option *o = table; o && o->name && rc == EXIT_OK; o++) {
        const char *set = o->env ? getenv(o->env) : NULL;
        char *field = base + o->at;
        snprintf(label, sizeof label, "default of --%s", o->name);
        if (o->fallback) rc = readers[o->kind](o, label, o->fallback, field, r->parsed);
        snprintf(label, sizeof label, "environment variable %s", o->env ? o->env : "");
        if (rc == EXIT_OK && set && *set)
            rc = readers[o->kind](o, label, set, field, r->parsed);
    }
    return rc;
}

int cli_parse(const ph_command *command, int count, const char *const *args,
              void *options, ph_parsed *parsed)
{
    reader r = {.command = command,
                .options = options,
                .parsed = parsed,
                .args = args,
                .count = count};
    memset(parsed, 0, sizeof *parsed);
    if (command->size) memset(options, 0, command->size);
    int rc = apply_table(&r, cli_global_options, (char *)parsed);
    if (rc == EXIT_OK) rc = apply_table(&r, command->options, options);
    if (rc == EXIT_OK) rc = read_all(&r);
    parsed->taken = r.next;
    if (rc == EXIT_OK && !parsed->help && parsed->word_count < command->fewest_words)
        rc = refuse(parsed, "%s needs %s: see 'polyhead %s --help'", command->name,
                    command->word, command->name);
    return rc;
}
