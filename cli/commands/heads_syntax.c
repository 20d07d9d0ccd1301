/*
 * heads_syntax.c - `polyhead heads --conllu`: heads against the dependencies of a
 * treebank.
 */
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_treebank.h"

typedef struct syntax_run {
    look_source source;
    look_heads heads; /* that attend from words of the text to words of the text */
    ph_treebank *treebank;
    ph_syntax *scores;
    int sentences, left_out; /* read; too long for the model */
    char error[CLI_ERROR_SIZE];
    ph_io io;
} syntax_run;

/* ---- measuring ---- */

/* The word in which a token begins, blanks before it aside; -1: in none. */
static int word_at(const ph_tree *tree, const ph_word *token)
{
    int at = token->start, end = token->start + token->length;
    while (at < end && strchr(" \t\n", tree->text[at])) at++;
    for (int w = 0; at < end && w < tree->word_count; w++)
        if (at >= tree->words[w].start &&
            at < tree->words[w].start + tree->words[w].length)
            return w;
    return -1;
}

static ph_status add_heads(syntax_run *r, const ph_report *report, float *weights)
{
    int tokens = report->axes[0].count;
    ph_status status = PH_OK;
    for (int n = 0; n < r->heads.count && status == PH_OK; n++) {
        const ph_pick *at = &r->heads.picks[n];
        status = report->weights(report->user, at->stack, at->layer, at->head, 0, tokens,
                                 weights);
        if (status == PH_OK)
            status =
                ph_syntax_add(r->scores, n, report->stacks[at->stack].causal, weights);
    }
    return status;
}

static ph_status add_reading(syntax_run *r, int number, const ph_reading *reading)
{
    const ph_tree *tree = ph_treebank_sentence(r->treebank, number);
    ph_scene *scene = NULL;
    int tokens = ph_reading_length(reading, 0);
    int *word_of = malloc(((size_t)tokens + 1) * sizeof *word_of);
    float *weights = malloc(((size_t)tokens * (size_t)tokens + 1) * sizeof *weights);
    ph_status status = word_of && weights ? PH_OK : PH_OUT_OF_MEMORY;
    for (int i = 0; i < tokens && status == PH_OK; i++)
        word_of[i] = word_at(tree, ph_reading_word(reading, 0, i));
    if (status == PH_OK)
        status = ph_syntax_begin(r->scores, number, word_of, tokens, &r->io);
    if (status == PH_OK)
        status = ph_scene_create(&scene, r->source.model, reading, NULL, tree->text, NULL,
                                 &r->io);
    if (status == PH_OK) {
        const ph_report report = ph_scene_report(scene);
        status = add_heads(r, &report, weights);
    }
    ph_scene_free(scene);
    free(weights);
    free(word_of);
    return status;
}

static ph_status read_sentences(syntax_run *r)
{
    const ph_tree *tree;
    ph_status status = PH_OK;
    for (int n = 0; status == PH_OK && (tree = ph_treebank_sentence(r->treebank, n));
         n++) {
        ph_reading *reading = NULL;
        status = ph_reading_create(&reading, r->source.model, tree->text, NULL);
        if (status == PH_OK) status = add_reading(r, n, reading);
        ph_reading_free(reading);
        r->sentences += status == PH_OK;
        r->left_out += status == PH_BAD_SHAPE;
        if (status == PH_BAD_SHAPE) status = PH_OK;
    }
    return status;
}

/* Heads whose rows and keys are the text; cross-attention and a decoder that reads a
   translation are none. */
static int select_heads(syntax_run *r)
{
    const ph_report *report = &r->source.report;
    int rc = look_select(report, &(look_wish){0}, &r->heads), count = 0;
    for (int n = 0; rc == EXIT_OK && n < r->heads.count; n++) {
        const ph_stack *stack = &report->stacks[r->heads.picks[n].stack];
        if (stack->q_axis == 0 && stack->k_axis == 0)
            r->heads.picks[count++] = r->heads.picks[n];
    }
    if (rc == EXIT_OK) r->heads.count = count;
    return rc;
}

static int measure(syntax_run *r, const look_choice *given, const char *conllu)
{
    look_choice choice = *given;
    ph_status status = ph_treebank_read(&r->treebank, conllu, &r->io);
    if (status != PH_OK) return cli_result(status, r->error);
    choice.text = ph_treebank_sentence(r->treebank, 0)->text;
    choice.by_text = 1;
    int rc = look_open(&r->source, &choice);
    if (rc == EXIT_OK) rc = select_heads(r);
    if (rc != EXIT_OK) return rc;
    status = ph_syntax_create(&r->scores, r->treebank, r->heads.count, &r->io);
    if (status == PH_OK) status = read_sentences(r);
    if (status != PH_OK)
        return r->error[0] ? cli_result(status, r->error)
                           : cli_fail_status(status, r->source.ctx);
    if (r->left_out)
        cli_warn("%d of %d sentences were left out: too long for the model", r->left_out,
                 r->sentences + r->left_out);
    return EXIT_OK;
}

/* ---- printing ---- */

typedef struct relation_row {
    int relation;
    ph_syntax_score score;
} relation_row;

/* "all", then by number of words, then by name. */
static int by_words(const void *left, const void *right)
{
    const relation_row *a = left, *b = right;
    if (!a->relation != !b->relation) return a->relation ? 1 : -1;
    if (a->score.words != b->score.words) return a->score.words > b->score.words ? -1 : 1;
    return a->relation - b->relation;
}

/* Relations with words to predict; the root depends on no word. */
static int list_rows(const syntax_run *r, relation_row **out)
{
    int count = 0, all = 0;
    while (ph_treebank_relation(r->treebank, all)) all++;
    *out = calloc((size_t)all, sizeof **out);
    for (int i = 0; *out && i < all; i++) {
        relation_row *row = &(*out)[count];
        row->relation = i;
        ph_syntax_read(r->scores, i, &row->score);
        count +=
            row->score.words > 0 && strcmp(ph_treebank_relation(r->treebank, i), "root");
    }
    if (*out) qsort(*out, (size_t)count, sizeof **out, by_words);
    return count;
}

static double per_cent(int64_t part, int64_t whole)
{
    return 100 * (double)part / (double)whole;
}

static void head_name(const syntax_run *r, int head, char name[64])
{
    const ph_pick *at = &r->heads.picks[head];
    const ph_report *report = &r->source.report;
    int several = report->stack_count > 1;
    snprintf(name, 64, "%s%s%d-%d", several ? report->stacks[at->stack].name : "",
             several ? " " : "", at->layer + 1, at->head + 1);
}

static void print_row(const syntax_run *r, const relation_row *row)
{
    const ph_syntax_score *s = &row->score;
    char name[64], word[LOOK_WORD];
    double margin = per_cent(s->right - s->baseline, s->words);
    int better = margin >= 100 * ph_label_rules(0)->threshold;
    head_name(r, s->head, name);
    printf("%-14s%7lld  %-10s %s%9.1f %%%8.1f %% (%+d)   %s%+6.1f%s\n",
           look_word(ph_treebank_relation(r->treebank, row->relation), word),
           (long long)s->words, name, s->direction == PH_TO_HEAD ? "->" : "<-",
           per_cent(s->right, s->words), per_cent(s->baseline, s->words), s->offset,
           better ? term_on(stdout, TERM_GOOD) : "", margin,
           better ? term_on(stdout, TERM_PLAIN) : "");
}

static void print_table(const syntax_run *r, const relation_row *rows, int count)
{
    printf("%s%-14s%7s  %-10s   %11s%15s   %6s%s\n", term_on(stdout, TERM_BOLD),
           "relation", "words", "best head", "accuracy", "best offset", "margin",
           term_on(stdout, TERM_PLAIN));
    for (int n = 0; n < count; n++) print_row(r, &rows[n]);
    putchar('\n');
    term_wrap(stdout,
              "-> the word attends to the one it depends on, <- that one attends to it. "
              "Only the margin over the best fixed offset says something about a head.",
              0, 0, term_width(stdout, 90));
    printf("%d sentences, %d heads\n", r->sentences, r->heads.count);
}

static void json_counts(ph_json_writer *j, const syntax_run *r, int relation,
                        ph_direction direction, const char *key)
{
    ph_json_begin_array(j, key);
    for (int h = 0; h < r->heads.count; h++)
        ph_json_integer(j, NULL, ph_syntax_right(r->scores, relation, h, direction));
    ph_json_end(j);
}

static void json_relation(ph_json_writer *j, const syntax_run *r, const relation_row *row)
{
    const ph_syntax_score *s = &row->score;
    char name[64];
    head_name(r, s->head, name);
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "relation", ph_treebank_relation(r->treebank, row->relation));
    ph_json_integer(j, "words", s->words);
    ph_json_string(j, "best", name);
    ph_json_string(j, "direction", s->direction == PH_TO_HEAD ? "to_head" : "from_head");
    ph_json_integer(j, "right", s->right);
    ph_json_integer(j, "baseline", s->baseline);
    ph_json_integer(j, "best_offset", s->offset);
    json_counts(j, r, row->relation, PH_TO_HEAD, "to_head");
    json_counts(j, r, row->relation, PH_FROM_HEAD, "from_head");
    ph_json_end(j);
}

static void print_json(const syntax_run *r, const relation_row *rows, int count)
{
    ph_json_writer j = json_begin("polyhead.syntax/1");
    ph_json_string(&j, "title", r->source.report.title);
    ph_json_integer(&j, "sentences", r->sentences);
    ph_json_integer(&j, "sentences_left_out", r->left_out);
    ph_json_begin_array(&j, "heads");
    for (int n = 0; n < r->heads.count; n++) {
        char name[64];
        head_name(r, n, name);
        ph_json_string(&j, NULL, name);
    }
    ph_json_end(&j);
    ph_json_begin_array(&j, "relations");
    for (int n = 0; n < count; n++) json_relation(&j, r, &rows[n]);
    json_end(&j);
}

int heads_syntax(const look_choice *choice, const char *conllu, int json)
{
    relation_row *rows = NULL;
    syntax_run *r = calloc(1, sizeof *r);
    if (!r) return cli_fail(EXIT_MEMORY, "out of memory");
    r->io = (ph_io){.error = r->error, .error_size = sizeof r->error};
    int rc = measure(r, choice, conllu), count = 0;
    if (rc == EXIT_OK) count = list_rows(r, &rows);
    if (rc == EXIT_OK && !rows) rc = cli_fail(EXIT_MEMORY, "out of memory");
    if (rc == EXIT_OK && json) print_json(r, rows, count);
    if (rc == EXIT_OK && !json) print_table(r, rows, count);
    free(rows);
    free(r->heads.picks);
    ph_syntax_free(r->scores);
    ph_treebank_free(r->treebank);
    look_close(&r->source);
    free(r);
    return rc;
}
