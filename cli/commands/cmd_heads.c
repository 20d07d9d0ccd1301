/*
 * cmd_heads.c - `polyhead heads`: the numbers and labels of every head as a table.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "framework/term.h"

typedef struct heads_options {
    look_choice choice;
    const char *conllu, *svg;
    const char *circuit, *stack;
    int clusters, contributions, csv, json;
} heads_options;

/* clang-format off */
#define AT(field) offsetof(heads_options, field)
static const ph_option table[] = {
    LOOK_SOURCE_OPTIONS(heads_options, choice),
    {.name = "conllu", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(conllu),
     .group = "What to measure",
     .help = "a treebank in CoNLL-U: for each relation the head that finds the word "
             "another one depends on best, beside the best fixed offset"},
    {.name = "clusters", .kind = PH_OPT_FLAG, .at = AT(clusters),
     .help = "which heads attend alike: a map of heads, and clusters of them"},
    {.name = "contributions", .kind = PH_OPT_FLAG, .at = AT(contributions),
     .help = "each head's share of what its layer writes, how far heads of a layer "
             "differ, and how many directions their query-key matrices use"},
    {.name = "circuit", .kind = PH_OPT_TEXT, .metavar = "L-H", .at = AT(circuit),
     .help = "one head, layer and head from 1: which tokens of the text it would attend "
             "to from which, and what it writes, by its weights alone"},
    {.name = "stack", .kind = PH_OPT_TEXT, .metavar = "NAME", .at = AT(stack),
     .help = "with --circuit: the stack of that head; without it the first"},
    {.name = "svg", .kind = PH_OPT_TEXT, .metavar = "FILE", .at = AT(svg),
     .help = "with --clusters: write the map as a figure"},
    {.name = "csv", .kind = PH_OPT_FLAG, .at = AT(csv), .group = "How",
     .help = "every number as CSV"},
    {.name = "json", .kind = PH_OPT_FLAG, .at = AT(json),
     .help = "every number, its rows and definition, as one JSON object"},
    PH_OPTION_THREADS(heads_options, choice.machine),
    PH_OPTION_ISA(heads_options, choice.machine),
    {.name = NULL}};
/* clang-format on */

/* Columns of the table; those that no head has are left out. */
static const struct {
    ph_measure measure;
    const char *title;
} columns[] = {{PH_PREV, "prev"},     {PH_NEXT, "next"},        {PH_SELF, "self"},
               {PH_FIRST, "first"},   {PH_SEP, "sep"},          {PH_PUNCT, "punct"},
               {PH_BREADTH, "brdth"}, {PH_CONFIDENCE, "conf"},  {PH_POSITIONAL, "pos"},
               {PH_DUPLICATE, "dup"}, {PH_INDUCTION, "induc"},  {PH_RARE, "rare"},
               {PH_LINK, "link"},     {PH_PATCH_DISTANCE, "px"}};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

/* A blank, and the title or a number such as 0.25; a margin may be negative, and pixels
   are hundreds. */
static int width_of(int c)
{
    if (columns[c].measure == PH_PATCH_DISTANCE) return 7;
    return columns[c].measure == PH_LINK || strlen(columns[c].title) > 4 ? 6 : 5;
}

static const ph_head_stats *head_at(const look_source *source, const ph_pick *pick)
{
    return ph_survey_head(source->survey, pick->stack, pick->layer, pick->head);
}

/* Zero or unknown everywhere: separators in a text without any, say. */
static int is_idle(const look_source *source, const look_heads *all, ph_measure measure)
{
    for (int n = 0; n < all->count; n++) {
        double value = head_at(source, &all->picks[n])->value[measure];
        if (!isnan(value) && value != 0) return 0;
    }
    return 1;
}

static void print_head(const look_source *source, const ph_pick *pick, const int *idle)
{
    const ph_head_stats *head = head_at(source, pick);
    ph_label labels[PH_MAX_LABELS];
    int count = ph_head_labels(head, labels);
    char name[32];
    snprintf(name, sizeof name, "%d-%d", pick->layer + 1, pick->head + 1);
    printf("%-6s", name);
    for (int c = 0; c < COLUMNS; c++) {
        double value = head->value[columns[c].measure];
        if (idle[c]) continue;
        if (isnan(value))
            printf("%*s", width_of(c), "-");
        else
            printf("%*.2f", width_of(c), value);
    }
    fputs("  ", stdout);
    for (int n = 0; n < count; n++)
        printf("%s%s%s%s", n ? " " : "", term_on(stdout, TERM_NAME), labels[n].rule->key,
               term_on(stdout, TERM_PLAIN));
    puts(count ? "" : ".");
}

/* The labels that occur, with their rule. */
static void print_rules(const look_source *source, const look_heads *all)
{
    int used[PH_LABELS] = {0};
    ph_label labels[PH_MAX_LABELS];
    for (int n = 0; n < all->count; n++) {
        int count = ph_head_labels(head_at(source, &all->picks[n]), labels);
        for (int k = 0; k < count; k++) used[labels[k].rule - ph_label_rules(0)] = 1;
    }
    putchar('\n');
    for (int i = 0; i < PH_LABELS; i++) {
        if (!used[i]) continue;
        printf("%s%-11s%s", term_on(stdout, TERM_NAME), ph_label_rules(i)->key,
               term_on(stdout, TERM_PLAIN));
        term_wrap(stdout, ph_label_rules(i)->help, 11, 11, term_width(stdout, 90));
    }
}

/* ---- links ---- */

enum { LINK_NAME = 12, LINK_CELL = 6 }; /* columns of a head's name, of a number */

static double per_cent(int64_t part, int64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* Kinds of links, how many there were, and what the best fixed offset finds of them. */
static void print_link_lines(const look_source *source, const ph_head_stats *any)
{
    printf("\n%s%-*s", term_on(stdout, TERM_BOLD), LINK_NAME, "links found");
    for (int r = 0; r < source->relation_count; r++) {
        int cut = strlen(source->relations[r]) > LINK_CELL - 1;
        printf(" %*.*s%s", LINK_CELL - 1 - cut, LINK_CELL - 1 - cut, source->relations[r],
               cut ? "." : "");
    }
    printf("%s\n%-*s", term_on(stdout, TERM_PLAIN), LINK_NAME, "how many");
    for (int r = 0; r < source->relation_count; r++)
        printf("%*lld", LINK_CELL, (long long)any->link[r].links);
    printf("\n%-*s", LINK_NAME, "best offset");
    for (int r = 0; r < source->relation_count; r++)
        printf("%*.0f", LINK_CELL, per_cent(any->link[r].baseline, any->link[r].links));
    printf("  %%\n%-*s", LINK_NAME, "  which is");
    for (int r = 0; r < source->relation_count; r++)
        printf("%+*d", LINK_CELL, any->link[r].best_offset);
    putchar('\n');
}

/* How often a head finds the partner, in per cent; what beats the offset stands out. */
static void print_link_head(const look_source *source, const ph_pick *pick)
{
    const ph_head_stats *head = head_at(source, pick);
    const char *stack = source->report.stacks[pick->stack].name;
    char name[64];
    snprintf(name, sizeof name, "%s %d-%d", stack, pick->layer + 1, pick->head + 1);
    printf("%-*.*s", LINK_NAME, LINK_NAME, name);
    for (int r = 0; r < source->relation_count; r++) {
        const ph_link_score *score = &head->link[r];
        double margin = per_cent(score->right - score->baseline, score->links);
        int better = margin >= 100 * ph_label_rules(0)->threshold;
        printf("%s%*.0f%s", better ? term_on(stdout, TERM_GOOD) : "", LINK_CELL,
               per_cent(score->right, score->links),
               better ? term_on(stdout, TERM_PLAIN) : "");
    }
    puts("  %");
}

static void print_links(const look_source *source, const look_heads *all)
{
    print_link_lines(source, head_at(source, &all->picks[0]));
    for (int n = 0; n < all->count; n++) print_link_head(source, &all->picks[n]);
}

/* ---- the command ---- */

static int print_table(const look_source *source)
{
    look_heads all;
    int idle[COLUMNS], rc = look_select(&source->report, &(look_wish){0}, &all);
    if (rc) return rc;
    printf("%s%-6s", term_on(stdout, TERM_BOLD), "head");
    for (int c = 0; c < COLUMNS; c++) {
        idle[c] = is_idle(source, &all, columns[c].measure);
        if (!idle[c]) printf("%*s", width_of(c), columns[c].title);
    }
    printf("  labels%s\n", term_on(stdout, TERM_PLAIN));
    for (int n = 0; n < all.count; n++) {
        const char *stack = source->report.stacks[all.picks[n].stack].name;
        int new_stack = n == 0 || all.picks[n].stack != all.picks[n - 1].stack;
        char word[LOOK_WORD];
        if (new_stack && source->report.stack_count > 1) puts(look_word(stack, word));
        print_head(source, &all.picks[n], idle);
    }
    if (source->relation_count) print_links(source, &all);
    print_rules(source, &all);
    putchar('\n');
    term_wrap(stdout, source->report.found, 0, 0, term_width(stdout, 90));
    free(all.picks);
    return EXIT_OK;
}

/* A path of a file that does not exist must not be measured as a text of one word: no
   blank, and a slash or an ending like ".txt". */
static int looks_like_path(const char *word)
{
    const char *dot = strrchr(word, '.');
    size_t ending = dot && dot > word && isalpha((unsigned char)dot[1])
                        ? strspn(dot + 1, "abcdefghijklmnopqrstuvwxyz0123456789")
                        : 0;
    if (strpbrk(word, " \t\n")) return 0;
    return strchr(word, '/') != NULL || (ending > 0 && !dot[1 + ending]);
}

/* [MODEL] [TEXT|FILE]: two words are in that order, one is told by what it names. */
static int sort_words(look_choice *choice, int count, const char *const *words)
{
    const char *text = count > 0 ? words[count - 1] : NULL;
    if (count == 2 || (count == 1 && look_is_model(text))) {
        if (choice->model)
            return cli_fail(EXIT_USAGE, "a model is named twice: '%s' and --model",
                            words[0]);
        choice->model = words[0];
        if (count == 1) text = NULL;
    }
    if (text && (look_is_file(text) || looks_like_path(text)))
        choice->file = text;
    else
        choice->text = text;
    choice->by_text = text != NULL;
    return EXIT_OK;
}

static int heads(const void *given, int count, const char *const *words)
{
    const heads_options *o = given;
    look_choice choice = o->choice;
    look_source source = {0};
    if (o->csv && o->json)
        return cli_fail(EXIT_USAGE, "--csv and --json exclude each other");
    int rc = sort_words(&choice, count, words);
    if (o->svg && !o->clusters) return cli_fail(EXIT_USAGE, "--svg needs --clusters");
    if (o->clusters && (o->csv || o->conllu))
        return cli_fail(EXIT_USAGE, "--clusters goes with --json and --svg only");
    if (o->stack && !o->circuit) return cli_fail(EXIT_USAGE, "--stack needs --circuit");
    if ((o->contributions || o->circuit) &&
        (o->csv || o->conllu || o->clusters || choice.weights))
        return cli_fail(EXIT_USAGE, "--%s needs a model and goes with --json only",
                        o->circuit ? "circuit" : "contributions");
    if (rc == EXIT_OK && o->conllu) {
        if (choice.by_text || choice.weights || o->csv)
            return cli_fail(EXIT_USAGE, "--conllu brings its own sentences and needs a "
                                        "model: no text, --weights or --csv with it");
        return heads_syntax(&choice, o->conllu, o->json);
    }
    choice.measures = !o->contributions && !o->circuit;
    choice.weights_again = o->clusters;
    if (rc == EXIT_OK) rc = look_open(&source, &choice);
    if (rc == EXIT_OK)
        rc = o->clusters        ? heads_clusters(&source, o->svg, o->json)
             : o->contributions ? heads_contributions(&source, o->json)
             : o->circuit       ? heads_circuit(&source, o->stack, o->circuit, o->json)
             : o->json          ? heads_json(&source)
             : o->csv           ? heads_csv(&source)
                                : print_table(&source);
    look_close(&source);
    return rc;
}

static const char *const examples[] = {
    "polyhead heads",
    "links found and labels of every head of the embedded model",
    "polyhead heads model.safetensors texts.txt",
    "shares, entropy, confidence and labels, averaged over the lines of a file",
    "polyhead heads model --conllu en_ewt-ud-dev.conllu",
    "which head finds subjects, objects, articles of a treebank",
    "polyhead heads model texts.txt --clusters --svg map.svg",
    "a map on which heads that attend alike lie close together",
    "polyhead heads --contributions",
    "what each head writes of its layer's output, and how far heads differ",
    "polyhead heads --circuit 2-6",
    "which tokens one head prefers, and what it writes for them",
    "polyhead heads --weights maps.safetensors --json",
    "all numbers with their definitions",
    NULL};

const ph_command command_heads = {
    .name = "heads",
    .summary = "numbers and labels of every head",
    .usage = "[MODEL] [TEXT|FILE] [options]",
    .about =
        "A FILE holds one text per line; numbers are averaged over them. Without a "
        "text the embedded model is measured on sentences of its grammar that it has "
        "not seen.",
    .examples = examples,
    .options = table,
    .size = sizeof(heads_options),
    .word = "MODEL and TEXT",
    .most_words = 2,
    .run = heads};
