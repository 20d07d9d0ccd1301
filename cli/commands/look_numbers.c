/*
 * look_numbers.c - heads as numbers on stdout: plain lines, CSV, JSON.
 *
 * Weights and scores have the fewest digits that bring the same float back. Layers,
 * heads, rows and keys are counted from 0, as in files and programs; "name" is the form
 * of papers, layer-head from 1. Rows are read one at a time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/json.h"
#include "commands/cmd_look.h"

/* ---- single values ---- */

static void put_float(float value)
{
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value) break;
    }
    fputs(text, stdout);
}

/* A field of CSV: in quotes where it must be, control characters as escapes. */
static void put_field(const char *word)
{
    char clean[LOOK_WORD];
    look_word(word, clean);
    if (!strpbrk(clean, ",\" ")) {
        fputs(clean, stdout);
        return;
    }
    putchar('"');
    for (const char *at = clean; *at; at++) {
        if (*at == '"') putchar('"');
        putchar(*at);
    }
    putchar('"');
}

static const ph_axis *rows_of(const ph_report *report, const ph_pick *pick)
{
    return &report->axes[report->stacks[pick->stack].q_axis];
}

static const ph_axis *keys_of(const ph_report *report, const ph_pick *pick)
{
    return &report->axes[report->stacks[pick->stack].k_axis];
}

/* Keys that row i may see; the weights behind them mean nothing. */
static int keys_seen(const ph_report *report, const ph_pick *pick, int i)
{
    const ph_stack *stack = &report->stacks[pick->stack];
    int keys = keys_of(report, pick)->count;
    int seen = stack->causal ? i + stack->q_offset + 1 : keys;
    return seen < keys ? seen : keys;
}

/* ---- each row of each head ---- */

typedef void put_row(const ph_report *report, const ph_pick *pick, int i,
                     const float *weights, void *user);

static int each_row(const ph_report *report, const ph_pick *pick, put_row *put,
                    void *user)
{
    int keys = keys_of(report, pick)->count, rows = rows_of(report, pick)->count;
    float *weights = malloc(((size_t)keys + 1) * sizeof *weights);
    if (!weights) return cli_fail(EXIT_MEMORY, "out of memory");
    ph_status status = PH_OK;
    for (int i = 0; i < rows && status == PH_OK; i++) {
        status = report->weights(report->user, pick->stack, pick->layer, pick->head, i, 1,
                                 weights);
        for (int j = keys_seen(report, pick, i); j < keys; j++) weights[j] = 0;
        if (status == PH_OK) put(report, pick, i, weights, user);
    }
    free(weights);
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, NULL);
}

static int each_head(const ph_report *report, const look_heads *heads, put_row *put)
{
    int rc = EXIT_OK;
    for (int n = 0; n < heads->count && rc == EXIT_OK; n++)
        rc = each_row(report, &heads->picks[n], put, NULL);
    return rc;
}

/* ---- plain: one row per line ---- */

static void plain_row(const ph_report *report, const ph_pick *pick, int i,
                      const float *weights, void *user)
{
    char word[LOOK_WORD];
    (void)user;
    if (report->stack_count > 1)
        printf("%s\t", look_word(report->stacks[pick->stack].name, word));
    printf("%d-%d\t%d\t%s\t", pick->layer + 1, pick->head + 1, i + 1,
           look_word(rows_of(report, pick)->tokens[i], word));
    for (int j = 0; j < keys_of(report, pick)->count; j++) {
        if (j) putchar(' ');
        put_float(weights[j]);
    }
    putchar('\n');
}

int look_plain(const ph_report *report, const look_heads *heads)
{
    return each_head(report, heads, plain_row);
}

/* ---- CSV: one weight per line ---- */

static void csv_row(const ph_report *report, const ph_pick *pick, int i,
                    const float *weights, void *user)
{
    const ph_axis *rows = rows_of(report, pick), *keys = keys_of(report, pick);
    (void)user;
    for (int j = 0; j < keys_seen(report, pick, i); j++) {
        put_field(report->stacks[pick->stack].name);
        printf(",%d,%d,%d,%d,", pick->layer, pick->head, i, j);
        put_field(rows->tokens[i]);
        putchar(',');
        put_field(keys->tokens[j]);
        putchar(',');
        put_float(weights[j]);
        putchar('\n');
    }
}

int look_csv(const ph_report *report, const look_heads *heads)
{
    puts("stack,layer,head,row,key,row_word,key_word,weight");
    return each_head(report, heads, csv_row);
}

/* ---- JSON ---- */

static void json_words(json *j, const ph_report *report)
{
    json_open(j, "axes", '[');
    for (int a = 0; a < report->axis_count; a++) {
        json_open(j, NULL, '{');
        json_text(j, "name", report->axes[a].name);
        json_open(j, "words", '[');
        for (int n = 0; n < report->axes[a].count; n++)
            json_text(j, NULL, report->axes[a].tokens[n]);
        json_close(j);
        json_close(j);
    }
    json_close(j);
}

static void json_labels(json *j, const ph_head_stats *head, const char *const *relations)
{
    ph_label labels[PH_LABELS];
    int count = ph_head_labels(head, labels);
    json_open(j, "labels", '[');
    for (int n = 0; n < count; n++) {
        char why[160];
        ph_label_why(&labels[n], head, relations, why, sizeof why);
        json_open(j, NULL, '{');
        json_text(j, "label", labels[n].rule->key);
        json_real(j, "value", labels[n].value);
        json_real(j, "threshold", labels[n].rule->threshold);
        json_text(j, "why", why);
        json_close(j);
    }
    json_close(j);
}

static void json_links(json *j, const look_source *source, const ph_head_stats *head)
{
    json_open(j, "links", '{');
    for (int r = 0; r < source->relation_count; r++) {
        json_open(j, source->relations[r], '{');
        json_int(j, "links", head->link[r].links);
        json_int(j, "right", head->link[r].right);
        json_int(j, "baseline", head->link[r].baseline);
        json_int(j, "best_offset", head->link[r].best_offset);
        json_close(j);
    }
    json_close(j);
}

/* Every number of a head, how many rows stand behind it, and its labels. */
static void json_head(json *j, const look_source *source, const ph_pick *pick)
{
    const ph_head_stats *head =
        ph_survey_head(source->survey, pick->stack, pick->layer, pick->head);
    char name[32];
    snprintf(name, sizeof name, "%d-%d", pick->layer + 1, pick->head + 1);
    json_text(j, "stack", source->report.stacks[pick->stack].name);
    json_int(j, "layer", pick->layer);
    json_int(j, "head", pick->head);
    json_text(j, "name", name);
    json_labels(j, head, source->relation_count ? source->relations : NULL);
    json_int(j, "rows", head->rows);
    json_int(j, "rows_left_out", head->skipped);
    json_int(j, "rows_odd", head->odd);
    json_int(j, "top_offset", head->top_offset);
    json_open(j, "scores", '{');
    for (int m = 0; m < PH_MEASURES; m++)
        json_real(j, ph_measure_about((ph_measure)m)->key, head->value[m]);
    json_close(j);
    json_open(j, "counts", '{');
    for (int m = 0; m < PH_MEASURES; m++)
        json_int(j, ph_measure_about((ph_measure)m)->key, head->count[m]);
    json_close(j);
    if (source->relation_count) json_links(j, source, head);
}

static void json_row(const ph_report *report, const ph_pick *pick, int i,
                     const float *weights, void *user)
{
    json *j = user;
    (void)i;
    json_open(j, NULL, '[');
    for (int k = 0; k < keys_of(report, pick)->count; k++)
        json_float(j, NULL, weights[k]);
    json_close(j);
}

int look_json(const look_source *source, const look_heads *heads)
{
    const ph_report *report = &source->report;
    int rc = EXIT_OK;
    json j = json_begin("polyhead.look/1");
    json_text(&j, "title", report->title);
    json_text(&j, "text", report->text);
    json_text(&j, "found", report->found);
    json_words(&j, report);
    json_open(&j, "heads", '[');
    for (int n = 0; n < heads->count && rc == EXIT_OK; n++) {
        const ph_pick *pick = &heads->picks[n];
        json_open(&j, NULL, '{');
        json_head(&j, source, pick);
        json_int(&j, "row_axis", report->stacks[pick->stack].q_axis);
        json_int(&j, "key_axis", report->stacks[pick->stack].k_axis);
        json_bool(&j, "causal", report->stacks[pick->stack].causal);
        json_open(&j, "weights", '[');
        rc = each_row(report, pick, json_row, &j);
        json_close(&j);
        json_close(&j);
    }
    json_end(&j);
    return rc;
}

/* ---- every head ---- */

static void json_definitions(json *j)
{
    json_open(j, "measures", '{');
    for (int m = 0; m < PH_MEASURES; m++)
        json_text(j, ph_measure_about((ph_measure)m)->key,
                  ph_measure_about((ph_measure)m)->help);
    json_close(j);
    json_open(j, "labels", '{');
    for (int i = 0; ph_label_rules(i); i++)
        json_text(j, ph_label_rules(i)->key, ph_label_rules(i)->help);
    json_close(j);
}

int heads_json(const look_source *source)
{
    look_heads all;
    int rc = look_select(&source->report, &(look_wish){0}, &all);
    if (rc) return rc;
    json j = json_begin("polyhead.heads/1");
    json_text(&j, "title", source->report.title);
    json_text(&j, "found", source->report.found);
    json_definitions(&j);
    json_open(&j, "heads", '[');
    for (int n = 0; n < all.count; n++) {
        json_open(&j, NULL, '{');
        json_head(&j, source, &all.picks[n]);
        json_close(&j);
    }
    json_end(&j);
    free(all.picks);
    return EXIT_OK;
}

static void csv_head(const look_source *source, const ph_pick *pick)
{
    const ph_head_stats *head =
        ph_survey_head(source->survey, pick->stack, pick->layer, pick->head);
    ph_label labels[PH_LABELS];
    int count = ph_head_labels(head, labels);
    put_field(source->report.stacks[pick->stack].name);
    printf(",%d,%d,%d-%d,", pick->layer, pick->head, pick->layer + 1, pick->head + 1);
    for (int n = 0; n < count; n++) printf("%s%s", n ? "+" : "", labels[n].rule->key);
    printf(",%lld,%d", (long long)head->rows, head->top_offset);
    for (int m = 0; m < PH_MEASURES; m++) {
        putchar(',');
        if (!isnan(head->value[m])) put_float((float)head->value[m]);
    }
    putchar('\n');
}

int heads_csv(const look_source *source)
{
    look_heads all;
    int rc = look_select(&source->report, &(look_wish){0}, &all);
    if (rc) return rc;
    fputs("stack,layer,head,name,labels,rows,top_offset", stdout);
    for (int m = 0; m < PH_MEASURES; m++)
        printf(",%s", ph_measure_about((ph_measure)m)->key);
    putchar('\n');
    for (int n = 0; n < all.count; n++) csv_head(source, &all.picks[n]);
    free(all.picks);
    return EXIT_OK;
}
