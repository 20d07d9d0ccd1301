/*
 * variants.c - `polyhead variants [NAME]`: what heads are built in, their tensors.
 *
 * Everything comes from ph_variant_list, so a variant that is added to the library needs
 * no line here.
 */
#include <string.h>

#include "cli.h"
#include "json.h"
#include "term.h"

enum { MOST = 128 };

typedef struct variants_options {
    int json;
} variants_options;

static const ph_option table[] = {{.name = "json",
                                   .kind = PH_OPT_FLAG,
                                   .at = offsetof(variants_options, json),
                                   .help = "one JSON object instead of text"},
                                  {.name = NULL}};

static const char *const *known_names(void)
{
    static const char *names[MOST + 1];
    int count = 0;
    for (const ph_variant_info *v; count < MOST && (v = ph_variant_list(count)); count++)
        names[count] = v->name;
    names[count] = NULL;
    return names;
}

/* ---- text ---- */

static void print_all(void)
{
    printf("%s%-12s %s%s\n", term_on(stdout, TERM_DIM), "variant", "what it is",
           term_on(stdout, TERM_PLAIN));
    for (int i = 0; ph_variant_list(i); i++) {
        const ph_variant_info *v = ph_variant_list(i);
        printf("%s%-12s%s ", term_on(stdout, TERM_NAME), v->name,
               term_on(stdout, TERM_PLAIN));
        term_wrap(stdout, v->help, 13, 13, term_width(stdout, 90));
    }
    puts("\nIts tensors and options: polyhead variants NAME");
}

/* "name (shape) meaning" in columns; a shape holds blanks, so it ends at its bracket. */
static void print_tensor(const char *line, int length)
{
    enum { NAME = 14, SHAPE = 44 };
    int name = (int)strcspn(line, " \n");
    const char *shape = line + name + (name < length);
    int open = shape[0] == '(';
    int size = open ? (int)strcspn(shape, ")\n") + 1 : 0;
    if (size > length - name - 1) size = 0;
    const char *meaning = shape + size + (open && shape[size] == ' ');
    int rest = length - (int)(meaning - line);
    char text[512];
    snprintf(text, sizeof text, "%.*s", rest > 0 ? rest : 0, meaning);
    printf("  %s%-*.*s%s %-*.*s ", term_on(stdout, TERM_NAME), NAME, name, line,
           term_on(stdout, TERM_PLAIN), SHAPE - NAME - 4, size, shape);
    int column = size > SHAPE - NAME - 4 ? SHAPE - 4 + size : SHAPE;
    term_wrap(stdout, text, column, SHAPE, term_width(stdout, 100));
}

static void print_one(const ph_variant_info *v)
{
    printf("%s%s%s: %s\n", term_on(stdout, TERM_BOLD), v->name,
           term_on(stdout, TERM_PLAIN), v->help);
    if (v->options && *v->options) printf("\nwritten  %s\n", v->options);
    if (!v->tensors || !*v->tensors) {
        puts("\nIt needs no tensors besides the usual ones.");
        return;
    }
    puts("\ntensors");
    for (const char *line = v->tensors; *line;) {
        int length = (int)strcspn(line, "\n");
        if (length) print_tensor(line, length);
        line += length + (line[length] == '\n');
    }
}

/* ---- JSON ---- */

static void json_variant(json *j, const ph_variant_info *v)
{
    json_open(j, NULL, '{');
    json_text(j, "name", v->name);
    json_text(j, "options", v->options);
    json_text(j, "help", v->help);
    json_open(j, "tensors", '[');
    for (const char *line = v->tensors ? v->tensors : ""; *line;) {
        char text[512];
        int length = (int)strcspn(line, "\n");
        snprintf(text, sizeof text, "%.*s", length, line);
        if (length) json_text(j, NULL, text);
        line += length + (line[length] == '\n');
    }
    json_close(j);
    json_close(j);
}

static void print_json(const ph_variant_info *only)
{
    json j = json_begin("polyhead.variants/1");
    json_open(&j, "variants", '[');
    for (int i = 0; ph_variant_list(i); i++)
        if (!only || only == ph_variant_list(i)) json_variant(&j, ph_variant_list(i));
    json_end(&j);
}

/* ---- the command ---- */

/* "dcmha:rank=2" means dcmha. */
static const ph_variant_info *find(const char *word)
{
    size_t length = strcspn(word, ":");
    for (int i = 0; ph_variant_list(i); i++) {
        const ph_variant_info *v = ph_variant_list(i);
        if (strlen(v->name) == length && !memcmp(v->name, word, length)) return v;
    }
    return NULL;
}

static int unknown(const char *word)
{
    char quote[CLI_QUOTE_SIZE], list[512] = "";
    const char *const *names = known_names(), *near = cli_nearest(word, names);
    size_t used = 0;
    for (int i = 0; names[i] && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 names[i]);
    cli_quote(word, quote, sizeof quote);
    if (near)
        return cli_fail(EXIT_UNSUPPORTED, "no variant %s: did you mean %s? There are: %s",
                        quote, near, list);
    return cli_fail(EXIT_UNSUPPORTED, "no variant %s; there are: %s", quote, list);
}

static int variants(const void *chosen, int count, const char *const *words)
{
    const variants_options *options = chosen;
    const ph_variant_info *only = count ? find(words[0]) : NULL;
    if (count && !only) return unknown(words[0]);
    if (options->json)
        print_json(only);
    else if (only)
        print_one(only);
    else
        print_all();
    return EXIT_OK;
}

static const char *const examples[] = {
    "polyhead variants", "what heads are built in", "polyhead variants mha",
    "the tensors of one of them and their shapes", NULL};

const ph_command command_variants = {.name = "variants",
                                     .summary =
                                         "ways of arranging heads that are built in",
                                     .usage = "[NAME] [--json]",
                                     .examples = examples,
                                     .options = table,
                                     .size = sizeof(variants_options),
                                     .word = "NAME",
                                     .most_words = 1,
                                     .known_words = known_names,
                                     .run = variants};
