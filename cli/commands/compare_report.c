/*
 * compare_report.c - what `polyhead compare` found: on the terminal, as JSON, as a page.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands/cmd_compare.h"
#include "commands/cmd_importance.h"
#include "commands/cmd_plot.h"
#include "framework/json.h"
#include "framework/term.h"

/* ---- the table ---- */

typedef struct spread {
    double mean, deviation; /* NaN: one seed has none */
} spread;

static spread mean_over_seeds(const compare_entry *e, int seeds, size_t at)
{
    spread s = {0, 0};
    for (int i = 0; i < seeds; i++)
        s.mean +=
            *(const double *)(const void *)((const char *)&e->results[i] + at) / seeds;
    for (int i = 0; i < seeds; i++) {
        double x = *(const double *)(const void *)((const char *)&e->results[i] + at);
        s.deviation += (x - s.mean) * (x - s.mean);
    }
    s.deviation = seeds > 1 ? sqrt(s.deviation / (seeds - 1)) : NAN;
    return s;
}

/* "3.3256 +- 0.0012" and the unit. */
static void put_spread(spread s, int digits, const char *unit, int columns)
{
    char deviation[32] = "", text[80];
    if (!isnan(s.deviation))
        snprintf(deviation, sizeof deviation, " +- %.*f", digits, s.deviation);
    snprintf(text, sizeof text, "%.*f%s%s", digits, s.mean, deviation, unit);
    printf("  %-*s", columns, text);
}

static spread in_percent(spread s)
{
    return (spread){100 * s.mean, 100 * s.deviation};
}

static long peak_of(const compare_entry *e, int seeds)
{
    long most = 0;
    for (int i = 0; i < seeds; i++)
        if (e->results[i].peak_kib > most) most = e->results[i].peak_kib;
    return most;
}

/* Everything about a variant in one line; a narrow terminal gets no deviations of what is
   right. `name` columns for the name. */
static void print_row(const compare_entry *e, int seeds, int name, int wide)
{
    spread loss = mean_over_seeds(e, seeds, offsetof(compare_result, loss));
    spread right = mean_over_seeds(e, seeds, offsetof(compare_result, token_accuracy));
    spread exact = mean_over_seeds(e, seeds, offsetof(compare_result, exact_match));
    spread speed = mean_over_seeds(e, seeds, offsetof(compare_result, per_second));
    printf("%-*s %8lld %8.2fM %7.0f %4ld", name, e->name, (long long)e->parameters,
           e->arithmetic / 1e6, speed.mean, peak_of(e, seeds) / 1024);
    put_spread(loss, 3 + wide, "", 14 + 2 * wide);
    if (wide) put_spread(in_percent(right), 2, " %", 16);
    if (wide) put_spread(in_percent(exact), 2, " %", 0);
    if (!wide) printf(" %5.1f %5.1f", 100 * right.mean, 100 * exact.mean);
    putchar('\n');
}

void compare_print_table(const compare_report *r)
{
    const compare_entry *entries = r->entries;
    int count = r->count, seeds = r->seeds;
    enum { NUMBERS = 88 }; /* columns of the wide table behind the names */
    int name = (int)strlen("variant");
    for (int i = 0; i < count; i++)
        if ((int)strlen(entries[i].name) > name) name = (int)strlen(entries[i].name);
    int wide = !isatty(STDOUT_FILENO) || term_width(stdout, 1000) >= name + NUMBERS;
    printf("%s%-*s %8s %9s %7s %4s  %-*s", term_on(stdout, TERM_BOLD), name, "variant",
           "params", "FLOP/tok", "token/s", "MiB", 14 + 2 * wide, "loss (unseen)");
    if (wide)
        printf("  %-16s  %s", "token accuracy", "exact match");
    else
        printf(" %5s %5s", "token", "exact");
    printf("%s\n", term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < count; i++) print_row(&entries[i], seeds, name, wide);
    if (!wide)
        printf("token, exact: token accuracy and exact match on unseen texts, %%\n");
}

/* The loss of each value as a bar: what a sweep is made for. */
void compare_print_bars(const compare_report *r)
{
    const compare_entry *entries = r->entries;
    int count = r->count, seeds = r->seeds;
    enum { BAR = 50 };
    double most = 0;
    int name = 0;
    for (int i = 0; i < count; i++) {
        spread loss = mean_over_seeds(&entries[i], seeds, offsetof(compare_result, loss));
        most = fmax(most, loss.mean);
        name = (int)strlen(entries[i].name) > name ? (int)strlen(entries[i].name) : name;
    }
    printf("\n%sloss on unseen texts%s\n", term_on(stdout, TERM_BOLD),
           term_on(stdout, TERM_PLAIN));
    for (int i = 0; i < count; i++) {
        spread loss = mean_over_seeds(&entries[i], seeds, offsetof(compare_result, loss));
        int cells = most > 0 ? (int)(loss.mean / most * BAR + 0.5) : 0;
        printf("%-*s %8.4f  ", name, entries[i].name, loss.mean);
        for (int n = 0; n < cells; n++) putchar('#');
        putchar('\n');
    }
}

static void print_spread(ph_json_writer *j, const char *key, spread s)
{
    ph_json_begin_object(j, key);
    ph_json_double(j, "mean", s.mean);
    ph_json_double(j, "deviation", s.deviation);
    ph_json_end(j);
}

void compare_print_json(const compare_report *r)
{
    const ph_train *base = r->base;
    const compare_entry *entries = r->entries;
    int count = r->count, seeds = r->seeds;
    ph_json_writer j = json_begin("polyhead.compare/1");
    ph_json_string(&j, "recipe", base->recipe);
    ph_json_integer(&j, "steps", base->steps);
    ph_json_integer(&j, "batch", base->batch);
    ph_json_integer(&j, "seeds", seeds);
    ph_json_begin_array(&j, "variants");
    for (int i = 0; i < count; i++) {
        const compare_entry *e = &entries[i];
        ph_json_begin_object(&j, NULL);
        ph_json_string(&j, "variant", e->name);
        ph_json_integer(&j, "heads", e->train.config.heads);
        ph_json_integer(&j, "parameters", e->parameters);
        ph_json_integer(&j, "ff_dim", e->train.config.ff_dim);
        ph_json_double(&j, "flop_per_token", e->arithmetic);
        ph_json_integer(&j, "peak_kib", peak_of(e, seeds));
        print_spread(&j, "tokens_per_second",
                     mean_over_seeds(e, seeds, offsetof(compare_result, per_second)));
        print_spread(&j, "loss",
                     mean_over_seeds(e, seeds, offsetof(compare_result, loss)));
        print_spread(&j, "token_accuracy",
                     mean_over_seeds(e, seeds, offsetof(compare_result, token_accuracy)));
        print_spread(&j, "exact_match",
                     mean_over_seeds(e, seeds, offsetof(compare_result, exact_match)));
        ph_json_end(&j);
    }
    json_end(&j);
}

/* ---- heads ---- */

static void heads_path(char *path, size_t size, const char *folder)
{
    snprintf(path, size, "%s/heads.csv", folder);
}

int compare_write_heads(const ph_model *m, const ph_estimate *worth, const char *folder)
{
    char path[4300];
    ph_head_place place;
    heads_path(path, sizeof path, folder);
    if (!worth) return remove(path), EXIT_OK;
    FILE *out = fopen(path, "w");
    if (!out) return cli_fail(EXIT_IO, "%s: %s", path, strerror(errno));
    fputs("site,head,token,token_error\n", out);
    for (int h = 0; ph_model_head(m, h, &place) == PH_OK; h++)
        fprintf(out, "%s,%d,%.9g,%.9g\n", place.site, place.head, worth[h].value,
                worth[h].error);
    int bad = ferror(out);
    if (fclose(out) || bad) return cli_fail(EXIT_IO, "%s: cannot be written", path);
    return EXIT_OK;
}

/* Reads what compare_write_heads wrote; returns how many heads there are. */
static int read_heads(const char *folder, ph_head_place *place, ph_estimate *worth,
                      int most)
{
    char path[4300], line[256];
    int count = 0;
    heads_path(path, sizeof path, folder);
    FILE *in = fopen(path, "r");
    if (!in) return 0;
    if (!fgets(line, sizeof line, in)) line[0] = 0; /* the header */
    while (count < most && fgets(line, sizeof line, in))
        count += sscanf(line, "%31[^,],%d,%lf,%lf", place[count].site, &place[count].head,
                        &worth[count].value, &worth[count].error) == 4;
    fclose(in);
    return count;
}

/* ---- the page ---- */

static void draw_spread(FILE *out, spread s, double scale, int digits)
{
    fprintf(out, "<td>%.*f", digits, scale * s.mean);
    if (s.deviation > 0) fprintf(out, " &plusmn; %.*f", digits, scale * s.deviation);
}

static void draw_row(FILE *out, const compare_report *r, const compare_entry *e)
{
    fputs("<tr><th>", out);
    plot_text(out, e->name);
    fprintf(out, "<td>%d<td>%lld<td>%.2f", e->train.config.heads,
            (long long)e->parameters, e->arithmetic / 1e6);
    spread speed = mean_over_seeds(e, r->seeds, offsetof(compare_result, per_second));
    fprintf(out, "<td>%.0f<td>%ld", speed.mean, peak_of(e, r->seeds) / 1024);
    draw_spread(out, mean_over_seeds(e, r->seeds, offsetof(compare_result, loss)), 1, 4);
    draw_spread(out,
                mean_over_seeds(e, r->seeds, offsetof(compare_result, token_accuracy)),
                100, 2);
    draw_spread(out, mean_over_seeds(e, r->seeds, offsetof(compare_result, exact_match)),
                100, 2);
    fputc('\n', out);
}

static void draw_heads(FILE *out, const compare_entry *e)
{
    enum { HEADS_MOST = 4096 };
    ph_head_place *place = calloc(HEADS_MOST, sizeof *place);
    ph_estimate *worth = calloc(HEADS_MOST, sizeof *worth);
    int heads = place && worth ? read_heads(e->folder[0], place, worth, HEADS_MOST) : 0;
    fputs("<figure><figcaption>", out);
    plot_text(out, e->name);
    fputs("</figcaption>\n", out);
    if (heads)
        importance_grid(out, place, worth, heads);
    else
        fputs("<p>heads that cannot be changed one by one</p>", out);
    fputs("</figure>\n", out);
    free(place);
    free(worth);
}

static void draw_compared(FILE *out, const void *what)
{
    const compare_report *r = what;
    fputs(
        "<style>.scroll{overflow-x:auto}.scroll td{text-align:right;white-space:nowrap}"
        "figure th+th,.scroll th+th{text-align:right}.heads{display:flex;"
        "flex-wrap:wrap;gap:8px 32px}figure{margin:0}figcaption{font-weight:600;margin:"
        "8px 0 2px}figure td{border:1px solid #8884;padding:3px 6px;text-align:right}"
        "</style>\n<h2>Compared on unseen texts</h2>\n<div class=scroll><table><tr><th>"
        "variant<th>heads<th>parameters<th>MFLOP a token<th>tokens a second<th>MiB<th>"
        "loss<th>token accuracy, %<th>exact match, %\n",
        out);
    for (int i = 0; i < r->count; i++) draw_row(out, r, &r->entries[i]);
    fputs(
        "</table></div>\n<h2>What each head is worth</h2>\n<p>Gradient importance "
        "(<code>token</code>) on 64 unseen texts, first seed: rows are attention sites, "
        "columns heads; the bluer, the more.</p>\n<div class=heads>\n",
        out);
    for (int i = 0; i < r->count; i++) draw_heads(out, &r->entries[i]);
    fputs("</div>\n", out);
}

/* A curve for each variant, the mean over its seeds. */
int compare_page(const compare_report *r, const char *folder, int say)
{
    const char *folders[VARIANTS_MOST][SEEDS_MOST];
    plot_run runs[VARIANTS_MOST];
    char path[4200];
    for (int i = 0; i < r->count; i++) {
        for (int s = 0; s < r->seeds; s++) folders[i][s] = r->entries[i].folder[s];
        runs[i] = (plot_run){r->entries[i].name, folders[i], r->seeds};
    }
    snprintf(path, sizeof path, "%s/compare.html", folder);
    const plot_extra extra = {draw_compared, r};
    int rc = plot_page(runs, r->count, &extra, path);
    if (!rc && say) fprintf(stderr, "table, heads, curves: %s\n", path);
    return rc;
}
