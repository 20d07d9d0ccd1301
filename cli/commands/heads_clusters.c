/*
 * heads_clusters.c - `polyhead heads --clusters`: heads that attend alike, as a map on
 * the terminal, as JSON and as a figure.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "commands/cmd_look.h"
#include "framework/json.h"
#include "framework/term.h"
#include "polyhead_clusters.h"

/* Heads of one stack. */
typedef struct cluster_run {
    const look_source *source;
    int stack;
    ph_pick *picks;
    int count;
    ph_clusters *clusters;
    char error[CLI_ERROR_SIZE];
    ph_io io;
} cluster_run;

/* ---- measuring ---- */

/* Rows that are compared: all of a short text; of a long one evenly spaced, so that pairs
   x rows x keys stays near two billion. */
static int row_step(const cluster_run *r, int rows, int keys)
{
    double pairs = 0.5 * r->count * (r->count - 1.0) + 1;
    double fit = floor(2e9 / (pairs * keys));
    int most = fit < 8 ? 8 : fit > rows ? rows : (int)fit;
    return (rows + most - 1) / most;
}

/* One row of every head. */
static ph_status add_row(cluster_run *r, const ph_report *report, int row, float *weights)
{
    const ph_stack *stack = &report->stacks[r->stack];
    int keys = report->axes[stack->k_axis].count;
    int seen = stack->causal ? row + stack->q_offset + 1 : keys;
    ph_status status = PH_OK;
    if (stack->causal && seen < 2) return PH_OK; /* it sees nothing but itself */
    if (seen > keys) seen = keys;
    for (int h = 0; h < r->count && status == PH_OK; h++)
        status =
            report->weights(report->user, r->stack, r->picks[h].layer, r->picks[h].head,
                            row, 1, weights + (size_t)h * (size_t)keys);
    if (status == PH_OK)
        status = ph_clusters_add(r->clusters, weights, (size_t)keys, seen, r->source->ctx,
                                 &r->io);
    return status;
}

static ph_status add_report(cluster_run *r, const ph_report *report)
{
    const ph_stack *stack = &report->stacks[r->stack];
    int rows = report->axes[stack->q_axis].count;
    int keys = report->axes[stack->k_axis].count, step = row_step(r, rows, keys);
    float *weights = malloc((size_t)r->count * (size_t)keys * sizeof *weights);
    ph_status status = weights ? PH_OK : PH_OUT_OF_MEMORY;
    for (int i = rows - 1; i >= 0 && status == PH_OK; i -= step)
        status = add_row(r, report, i, weights);
    free(weights);
    return status;
}

static ph_status add_text(cluster_run *r, const char *text)
{
    ph_reading *reading = NULL;
    ph_scene *scene = NULL;
    const ph_model *model = r->source->model;
    ph_status status = ph_reading_create(&reading, model, text, NULL);
    if (status == PH_OK)
        status = ph_scene_create(&scene, model, reading, NULL, text, NULL, &r->io);
    if (status == PH_OK) {
        const ph_report report = ph_scene_report(scene);
        status = add_report(r, &report);
    }
    ph_scene_free(scene);
    ph_reading_free(reading);
    return status;
}

static ph_status measure(cluster_run *r)
{
    const look_source *source = r->source;
    ph_status status = ph_clusters_create(&r->clusters, r->count, &r->io);
    if (source->text_count < 2 && status == PH_OK)
        status = add_report(r, &source->report);
    for (int n = 0; source->text_count > 1 && n < source->text_count; n++) {
        if (status == PH_OK) status = add_text(r, source->texts[n]);
        if (status == PH_BAD_SHAPE) status = PH_OK; /* too long: look_open warned */
    }
    return status == PH_OK ? ph_clusters_end(r->clusters, &r->io) : status;
}

int heads_distances(const look_source *source, int stack, const look_heads *heads,
                    ph_clusters **out)
{
    cluster_run r = {.source = source,
                     .stack = stack,
                     .picks = heads->picks,
                     .count = heads->count};
    r.io = (ph_io){.error = r.error, .error_size = sizeof r.error};
    ph_status status = measure(&r);
    if (status != PH_OK) ph_clusters_free(r.clusters);
    *out = status == PH_OK ? r.clusters : NULL;
    return cli_result(status, r.error);
}

/* ---- drawing ---- */

enum { MAP_WIDTH = 72, MAP_HEIGHT = 24 };

static int cell_of(double value, double reach, int cells)
{
    int cell = (int)floor((value / reach + 1) / 2 * cells);
    return cell < 0 ? 0 : cell >= cells ? cells - 1 : cell;
}

/* A letter where heads of one cluster lie, '*' where several clusters meet. */
static void draw_map(const cluster_run *r)
{
    char map[MAP_HEIGHT][MAP_WIDTH + 1];
    double reach = 1e-300, point[2];
    memset(map, ' ', sizeof map);
    for (int h = 0; h < r->count; h++) {
        ph_clusters_point(r->clusters, h, point);
        reach = fmax(reach, fmax(fabs(point[0]), fabs(point[1])));
    }
    for (int h = 0; h < r->count; h++) {
        ph_clusters_point(r->clusters, h, point);
        char *cell = &map[cell_of(-point[1], reach, MAP_HEIGHT)]
                         [cell_of(point[0], reach, MAP_WIDTH)];
        char letter = (char)('a' + ph_clusters_of(r->clusters, h));
        *cell = *cell == ' ' || *cell == letter ? letter : '*';
    }
    for (int y = 0; y < MAP_HEIGHT; y++) {
        int end = MAP_WIDTH;
        while (end > 0 && map[y][end - 1] == ' ') end--;
        printf("%.*s\n", end, map[y]);
    }
}

/* The label that most heads of a cluster have, and how many. */
static const char *common_label(const cluster_run *r, int cluster, int *count)
{
    int having[PH_LABELS] = {0}, best = 0;
    for (int h = 0; h < r->count; h++) {
        ph_label labels[PH_MAX_LABELS];
        const ph_head_stats *head = ph_survey_head(r->source->survey, r->stack,
                                                   r->picks[h].layer, r->picks[h].head);
        if (ph_clusters_of(r->clusters, h) != cluster) continue;
        int found = ph_head_labels(head, labels);
        for (int i = 0; i < found; i++) having[labels[i].rule - ph_label_rules(0)]++;
    }
    for (int i = 1; i < PH_LABELS; i++)
        if (having[i] > having[best]) best = i;
    *count = having[best];
    return ph_label_rules(best)->name;
}

static void list_cluster(const cluster_run *r, int cluster)
{
    char *text = malloc(32 * (size_t)r->count + 64);
    size_t used = 0;
    int members = 0, labelled;
    const char *label = common_label(r, cluster, &labelled);
    if (!text) return;
    for (int h = 0; h < r->count; h++) {
        if (ph_clusters_of(r->clusters, h) != cluster) continue;
        used += (size_t)sprintf(text + used, "%s%d-%d", used ? " " : "",
                                r->picks[h].layer + 1, r->picks[h].head + 1);
        members++;
    }
    printf("%s%c%s  %d head%s", term_on(stdout, TERM_NAME), 'a' + cluster,
           term_on(stdout, TERM_PLAIN), members, members == 1 ? "" : "s");
    if (labelled) printf(", %d of them %s", labelled, label);
    fputs("\n   ", stdout);
    term_wrap(stdout, text, 3, 3, term_width(stdout, 90));
    free(text);
}

static void print_text(const cluster_run *r)
{
    int clusters = ph_clusters_count(r->clusters);
    if (r->source->report.stack_count > 1) {
        char word[LOOK_WORD];
        printf("%s%s%s\n", term_on(stdout, TERM_BOLD),
               look_word(r->source->report.stacks[r->stack].name, word),
               term_on(stdout, TERM_PLAIN));
    }
    draw_map(r);
    putchar('\n');
    for (int k = 0; k < clusters; k++) list_cluster(r, k);
    printf("\n%d heads, %d cluster%s; stress of the map %.2f\n", r->count, clusters,
           clusters == 1 ? "" : "s", ph_clusters_stress(r->clusters));
}

static void print_json(ph_json_writer *j, const cluster_run *r)
{
    ph_json_begin_object(j, NULL);
    ph_json_string(j, "stack", r->source->report.stacks[r->stack].name);
    ph_json_integer(j, "clusters", ph_clusters_count(r->clusters));
    ph_json_double(j, "stress", ph_clusters_stress(r->clusters));
    ph_json_begin_array(j, "heads");
    for (int h = 0; h < r->count; h++) {
        double point[2];
        ph_clusters_point(r->clusters, h, point);
        ph_json_begin_object(j, NULL);
        ph_json_integer(j, "layer", r->picks[h].layer);
        ph_json_integer(j, "head", r->picks[h].head);
        ph_json_double(j, "x", point[0]);
        ph_json_double(j, "y", point[1]);
        ph_json_integer(j, "cluster", ph_clusters_of(r->clusters, h));
        ph_json_begin_array(j, "distances");
        for (int other = 0; other < r->count; other++)
            ph_json_double(j, NULL, ph_clusters_distance(r->clusters, h, other));
        ph_json_end(j);
        ph_json_end(j);
    }
    ph_json_end(j);
    ph_json_end(j);
}

static ph_status write_figure(const cluster_run *r, const char *path)
{
    enum { NAME = 32 };
    char *text = calloc((size_t)r->count, NAME);
    const char **names = calloc((size_t)r->count, sizeof *names);
    ph_status status = text && names ? PH_OK : PH_OUT_OF_MEMORY;
    for (int h = 0; h < r->count && status == PH_OK; h++) {
        names[h] = text + (size_t)h * NAME;
        snprintf(text + (size_t)h * NAME, NAME, "%d-%d", r->picks[h].layer + 1,
                 r->picks[h].head + 1);
    }
    if (status == PH_OK)
        status =
            ph_clusters_write(r->clusters, path, r->source->report.title, names, &r->io);
    free(names);
    free(text);
    return status;
}

/* ---- the command ---- */

static int run_stack(cluster_run *r, const char *svg, ph_json_writer *json)
{
    const look_wish wish = {.stack = r->source->report.stacks[r->stack].name};
    look_heads heads;
    int rc = look_select(&r->source->report, &wish, &heads);
    if (rc) return rc;
    r->picks = heads.picks, r->count = heads.count;
    r->io = (ph_io){.error = r->error, .error_size = sizeof r->error};
    ph_status status = measure(r);
    if (status == PH_OK && svg && r->stack == 0) status = write_figure(r, svg);
    if (status == PH_OK && json) print_json(json, r);
    if (status == PH_OK && !json) print_text(r);
    ph_clusters_free(r->clusters);
    free(heads.picks);
    return cli_result(status, r->error);
}

int heads_clusters(const look_source *source, const char *svg, int json)
{
    ph_json_writer j;
    int rc = EXIT_OK;
    if (json) {
        j = json_begin("polyhead.clusters/1");
        ph_json_string(&j, "title", source->report.title);
        ph_json_begin_array(&j, "stacks");
    }
    for (int s = 0; s < source->report.stack_count && rc == EXIT_OK; s++) {
        cluster_run r = {.source = source, .stack = s};
        if (s > 0 && !json) putchar('\n');
        rc = run_stack(&r, svg, json ? &j : NULL);
    }
    if (json) json_end(&j);
    return rc;
}
