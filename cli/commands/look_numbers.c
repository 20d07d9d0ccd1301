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

#include "commands/cmd_look.h"
#include "framework/json.h"
#include "io/number.h"

/* ---- single values ---- */

static void put_float(float value)
{
    char text[PH_NUMBER_TEXT];
    if (isfinite(value))
        ph_number_print_float(value, text);
    else
        snprintf(text, sizeof text, "%g", (double)value);
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

static void json_words(ph_json_writer *j, const ph_report *report)
{
    ph_json_begin_array(j, "axes");
    for (int a = 0; a < report->axis_count; a++) {
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "name", report->axes[a].name);
        ph_json_begin_array(j, "words");
        for (int n = 0; n < report->axes[a].count; n++)
            ph_json_string(j, NULL, report->axes[a].tokens[n]);
        ph_json_end(j);
        ph_json_begin_array(j, "unknown");
        for (int n = 0; n < report->axes[a].count; n++)
            if (report->axes[a].unknown && report->axes[a].unknown[n])
                ph_json_integer(j, NULL, n);
        ph_json_end(j);
        ph_json_end(j);
    }
    ph_json_end(j);
}

static void json_labels(ph_json_writer *j, const ph_head_stats *head,
                        const char *const *relations)
{
    ph_label labels[PH_MAX_LABELS];
    int count = ph_head_labels(head, labels);
    ph_json_begin_array(j, "labels");
    for (int n = 0; n < count; n++) {
        char why[160];
        ph_label_why(&labels[n], head, relations, why, sizeof why);
        ph_json_begin_object(j, NULL);
        ph_json_string(j, "label", labels[n].rule->key);
        ph_json_double(j, "value", labels[n].value);
        ph_json_double(j, "threshold", labels[n].rule->threshold);
        ph_json_string(j, "why", why);
        ph_json_end(j);
    }
    ph_json_end(j);
}

static void json_links(ph_json_writer *j, const look_source *source,
                       const ph_head_stats *head)
{
    ph_json_begin_object(j, "links");
    for (int r = 0; r < source->relation_count; r++) {
        ph_json_begin_object(j, source->relations[r]);
        ph_json_integer(j, "links", head->link[r].links);
        ph_json_integer(j, "right", head->link[r].right);
        ph_json_integer(j, "baseline", head->link[r].baseline);
        ph_json_integer(j, "best_offset", head->link[r].best_offset);
        ph_json_end(j);
    }
    ph_json_end(j);
}

/* Every number of a head, how many rows stand behind it, and its labels. */
static void json_head(ph_json_writer *j, const look_source *source, const ph_pick *pick)
{
    const ph_head_stats *head =
        ph_survey_head(source->survey, pick->stack, pick->layer, pick->head);
    char name[32];
    snprintf(name, sizeof name, "%d-%d", pick->layer + 1, pick->head + 1);
    ph_json_string(j, "stack", source->report.stacks[pick->stack].name);
    ph_json_integer(j, "layer", pick->layer);
    ph_json_integer(j, "head", pick->head);
    ph_json_string(j, "name", name);
    json_labels(j, head, source->relation_count ? source->relations : NULL);
    ph_json_integer(j, "rows", head->rows);
    ph_json_integer(j, "rows_left_out", head->skipped);
    ph_json_integer(j, "rows_invalid", head->invalid);
    ph_json_integer(j, "top_offset", head->top_offset);
    ph_json_begin_object(j, "scores");
    for (int m = 0; m < PH_MEASURES; m++)
        ph_json_double(j, ph_measure_about((ph_measure)m)->key, head->value[m]);
    ph_json_end(j);
    ph_json_begin_object(j, "counts");
    for (int m = 0; m < PH_MEASURES; m++)
        ph_json_integer(j, ph_measure_about((ph_measure)m)->key, head->count[m]);
    ph_json_end(j);
    if (source->relation_count) json_links(j, source, head);
}

static void json_row(const ph_report *report, const ph_pick *pick, int i,
                     const float *weights, void *user)
{
    ph_json_writer *j = user;
    (void)i;
    ph_json_begin_array(j, NULL);
    for (int k = 0; k < keys_of(report, pick)->count; k++)
        ph_json_float(j, NULL, weights[k]);
    ph_json_end(j);
}

/* What reaches the class token of a picture through all layers. */
static int json_rollout(ph_json_writer *j, const ph_report *report)
{
    int keys = report->axes[0].count;
    if (!report->patch_columns) return EXIT_OK;
    float *row = malloc(((size_t)keys + 1) * sizeof *row);
    ph_status status = row ? ph_rollout(report, 0, 0, row, NULL) : PH_OUT_OF_MEMORY;
    ph_json_begin_array(j, "rollout");
    for (int k = 0; k < keys && status == PH_OK; k++) ph_json_float(j, NULL, row[k]);
    ph_json_end(j);
    free(row);
    return status == PH_OK ? EXIT_OK : cli_fail_status(status, NULL);
}

int look_json(const look_source *source, const look_heads *heads)
{
    const ph_report *report = &source->report;
    ph_json_writer j = json_begin("polyhead.look/1");
    ph_json_string(&j, "title", report->title);
    ph_json_string(&j, "text", report->text);
    ph_json_string(&j, "found", report->found);
    json_words(&j, report);
    int rc = json_rollout(&j, report);
    ph_json_begin_array(&j, "heads");
    for (int n = 0; n < heads->count && rc == EXIT_OK; n++) {
        const ph_pick *pick = &heads->picks[n];
        ph_json_begin_object(&j, NULL);
        json_head(&j, source, pick);
        ph_json_integer(&j, "row_axis", report->stacks[pick->stack].q_axis);
        ph_json_integer(&j, "key_axis", report->stacks[pick->stack].k_axis);
        ph_json_bool(&j, "causal", report->stacks[pick->stack].causal);
        ph_json_begin_array(&j, "weights");
        rc = each_row(report, pick, json_row, &j);
        ph_json_end(&j);
        ph_json_end(&j);
    }
    json_end(&j);
    return rc;
}

/* ---- every head ---- */

static void json_definitions(ph_json_writer *j)
{
    ph_json_begin_object(j, "measures");
    for (int m = 0; m < PH_MEASURES; m++)
        ph_json_string(j, ph_measure_about((ph_measure)m)->key,
                       ph_measure_about((ph_measure)m)->help);
    ph_json_end(j);
    ph_json_begin_object(j, "labels");
    for (int i = 0; ph_label_rules(i); i++)
        ph_json_string(j, ph_label_rules(i)->key, ph_label_rules(i)->help);
    ph_json_end(j);
}

int heads_json(const look_source *source)
{
    look_heads all;
    int rc = look_select(&source->report, &(look_wish){0}, &all);
    if (rc) return rc;
    ph_json_writer j = json_begin("polyhead.heads/1");
    ph_json_string(&j, "title", source->report.title);
    ph_json_string(&j, "found", source->report.found);
    json_definitions(&j);
    rc = json_rollout(&j, &source->report);
    ph_json_begin_array(&j, "heads");
    for (int n = 0; n < all.count; n++) {
        ph_json_begin_object(&j, NULL);
        json_head(&j, source, &all.picks[n]);
        ph_json_end(&j);
    }
    json_end(&j);
    free(all.picks);
    return rc;
}

static void csv_head(const look_source *source, const ph_pick *pick)
{
    const ph_head_stats *head =
        ph_survey_head(source->survey, pick->stack, pick->layer, pick->head);
    ph_label labels[PH_MAX_LABELS];
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
