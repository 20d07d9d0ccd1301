/*
 * cmd_plot.c - `polyhead plot RUN...`: the curves of trainings as one offline HTML page.
 *
 * Three pictures in SVG, all runs overlaid: loss while training (logarithmic, smoothed),
 * loss and token accuracy on unseen texts. A run of several trainings is drawn as their
 * mean with the range between them. No script, no file beside it.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "commands/cmd_plot.h"
#include "framework/cli.h"
#include "io/number.h"
#include "io/unsafe.h"

enum {
    RUNS_MOST = 16,
    WIDTH = 860,
    HEIGHT = 300,
    LEFT = 70,
    RIGHT = 20,
    TOP = 20,
    LOW = 40
};
enum { LOSS = 0, TEST_LOSS, TEST_RIGHT, CURVES };

typedef struct point {
    double step, value, low, high; /* mean of the trainings, least, largest */
} point;

typedef struct curve {
    point *points;
    size_t count, capacity;
} curve;

typedef struct run_curves {
    const char *name;
    curve curves[CURVES];
} run_curves;

typedef struct plot_chart {
    const char *title, *key;
    int logarithmic;
} plot_chart;

/* What a page shows. */
typedef struct plot_sheet {
    const char *heading;
    const plot_chart *charts; /* (CURVES) those without a point are left out */
    int of_training;          /* 1: a table of last values */
    const plot_extra *extra;  /* or NULL */
} plot_sheet;

static const plot_chart charts[CURVES] = {{"Loss while training", "\"loss\":", 1},
                    {"Loss on unseen texts", "\"test_loss\":", 1},
                    {"Token accuracy on unseen texts", "\"token_accuracy\":", 0}};

static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#666666", "#a0522d"};

/* ---- reading ---- */

static int add_point(curve *c, double step, double value)
{
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 256;
        point *more = realloc(c->points, capacity * sizeof *more);
        if (!more) return -1;
        c->points = more, c->capacity = capacity;
    }
    c->points[c->count++] = (point){step, value, value, value};
    return 0;
}

/* The number behind a key of a line. */
static int value_of(const char *line, const char *key, double *value)
{
    const char *at = strstr(line, key);
    if (!at) return 0;
    at += strlen(key);
    return ph_number_parse(at, strspn(at, "0123456789.eE+-"), value) == 0;
}

static int read_log(run_curves *r, const char *path)
{
    char *line = NULL;
    size_t capacity = 0;
    int rc = EXIT_OK;
    FILE *f = fopen(path, "r");
    if (!f) return cli_fail(EXIT_IO, "%s: %s", path, strerror(errno));
    while (!rc && getline(&line, &capacity, f) > 0) {
        double step, value;
        if (!value_of(line, "\"step\":", &step)) continue;
        for (int i = 0; i < CURVES && !rc; i++)
            if (value_of(line, charts[i].key, &value) &&
                add_point(&r->curves[i], step, value))
                rc = cli_fail(EXIT_MEMORY, "out of memory");
    }
    free(line);
    fclose(f);
    if (!rc && !r->curves[LOSS].count)
        rc = cli_fail(EXIT_BAD_INPUT, "%s holds no steps of a training", path);
    return rc;
}

static int by_step(const void *a, const void *b)
{
    double first = ((const point *)a)->step, second = ((const point *)b)->step;
    return (first > second) - (first < second);
}

/* The points of all trainings become one for each step. */
static void merge(curve *c)
{
    size_t merged = 0, next;
    if (c->count) qsort(c->points, c->count, sizeof *c->points, by_step);
    for (size_t i = 0; i < c->count; i = next) {
        point all = c->points[i];
        for (next = i + 1; next < c->count && c->points[next].step == all.step; next++) {
            double value = c->points[next].value;
            all.value += value;
            all.low = fmin(all.low, value), all.high = fmax(all.high, value);
        }
        all.value /= (double)(next - i);
        c->points[merged++] = all;
    }
    c->count = merged;
}

static int read_run(run_curves *r, const plot_run *from)
{
    int rc = EXIT_OK;
    r->name = from->name;
    for (int i = 0; i < from->count && !rc; i++) {
        struct stat info;
        char log[4200];
        int folder = stat(from->paths[i], &info) == 0 && S_ISDIR(info.st_mode);
        snprintf(log, sizeof log, "%s%s", from->paths[i], folder ? "/log.jsonl" : "");
        rc = read_log(r, log);
    }
    for (int i = 0; i < CURVES; i++) merge(&r->curves[i]);
    return rc;
}

/* Mean over a window of a fiftieth of the points. */
static void smooth(curve *c)
{
    size_t half = c->count / 100;
    point *out = half ? malloc(c->count * sizeof *out) : NULL;
    for (size_t i = 0; out && i < c->count; i++) {
        size_t first = i > half ? i - half : 0;
        size_t last = i + half < c->count ? i + half : c->count - 1;
        double share = 1 / (double)(last - first + 1);
        out[i] = (point){.step = c->points[i].step};
        for (size_t k = first; k <= last; k++) {
            out[i].value += c->points[k].value * share;
            out[i].low += c->points[k].low * share;
            out[i].high += c->points[k].high * share;
        }
    }
    if (!out) return;
    free(c->points);
    c->points = out, c->capacity = c->count;
}

/* ---- drawing ---- */

typedef struct plot_frame {
    double last_step, low, high; /* low and high as drawn: logarithms where so */
    int logarithmic;
} plot_frame;

static double level(const plot_frame *f, double value)
{
    return f->logarithmic ? log10(value > 1e-6 ? value : 1e-6) : value;
}

static double x_of(const plot_frame *f, double step)
{
    return LEFT + step / f->last_step * (WIDTH - LEFT - RIGHT);
}

static double y_of(const plot_frame *f, double at)
{
    return TOP + (f->high - at) / (f->high - f->low) * (HEIGHT - TOP - LOW);
}

static plot_frame frame_of(const run_curves *runs, int count, int which, int logarithmic)
{
    plot_frame f = {1, INFINITY, -INFINITY, logarithmic};
    for (int r = 0; r < count; r++)
        for (size_t i = 0; i < runs[r].curves[which].count; i++) {
            const point *p = &runs[r].curves[which].points[i];
            f.last_step = fmax(f.last_step, p->step);
            f.low = fmin(f.low, level(&f, p->low));
            f.high = fmax(f.high, level(&f, p->high));
        }
    if (!(f.high > f.low)) f.low -= 0.5, f.high += 0.5;
    return f;
}

static void draw_axes(FILE *out, const plot_frame *f)
{
    for (int i = 0; i <= 4; i++) {
        double at = f->low + (f->high - f->low) * i / 4, y = y_of(f, at);
        double step = f->last_step * i / 4, x = x_of(f, step);
        fprintf(out, "<line class=g x1=%d x2=%d y1=%.1f y2=%.1f />", LEFT, WIDTH - RIGHT,
                y, y);
        fprintf(out, "<text x=%d y=%.1f text-anchor=end>%.3g</text>", LEFT - 8, y + 4,
                f->logarithmic ? pow(10, at) : at);
        fprintf(out, "<text x=%.1f y=%d text-anchor=middle>%.0f</text>\n", x,
                HEIGHT - LOW + 20, step);
    }
}

static int has_range(const curve *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->points[i].low < c->points[i].high) return 1;
    return 0;
}

/* The range between trainings: along the largest values, back along the least. */
static void draw_range(FILE *out, const plot_frame *f, const curve *c, int number)
{
    size_t every = c->count / 1500 + 1, last = c->count - 1;
    fprintf(out, "<polygon class=r style=\"fill:%s\" points=\"", colours[number % 8]);
    for (size_t i = 0; i <= last; i = i < last && i + every > last ? last : i + every)
        fprintf(out, "%.1f,%.1f ", x_of(f, c->points[i].step),
                y_of(f, level(f, c->points[i].high)));
    for (size_t i = last;; i = i > every ? i - every : 0) {
        fprintf(out, "%.1f,%.1f ", x_of(f, c->points[i].step),
                y_of(f, level(f, c->points[i].low)));
        if (!i) break;
    }
    fputs("\"/>", out);
}

static void draw_curve(FILE *out, const plot_frame *f, const curve *c, int number)
{
    size_t every = c->count / 1500 + 1;
    if (!c->count) return;
    if (has_range(c)) draw_range(out, f, c, number);
    fprintf(out, "<polyline class=c style=\"stroke:%s\" points=\"", colours[number % 8]);
    for (size_t i = 0; i < c->count; i += every)
        fprintf(out, "%.1f,%.1f ", x_of(f, c->points[i].step),
                y_of(f, level(f, c->points[i].value)));
    const point *last = &c->points[c->count - 1];
    fprintf(out, "%.1f,%.1f\"/>", x_of(f, last->step), y_of(f, level(f, last->value)));
    fprintf(out,
            "<circle r=3 style=\"fill:%s\" cx=%.1f cy=%.1f><title>step %.0f: %.6g "
            "(%.6g to %.6g)</title></circle>\n",
            colours[number % 8], x_of(f, last->step), y_of(f, level(f, last->value)),
            last->step, last->value, last->low, last->high);
}

void plot_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *entity = ph_markup_entity(*text);
        if (entity)
            fputs(entity, out);
        else
            fputc(*text, out);
    }
}

/* The last value; of several trainings their mean and range. */
static void draw_value(FILE *out, const point *last, int percent)
{
    const char *unit = percent ? " %" : "";
    double scale = percent ? 100 : 1;
    int digits = percent ? 2 : 4;
    fprintf(out, "<td>%.*f%s", digits, scale * last->value, unit);
    if (last->low < last->high)
        fprintf(out, " (%.*f to %.*f)", digits, scale * last->low, digits,
                scale * last->high);
}

static void draw_legend(FILE *out, const run_curves *runs, int count)
{
    fputs(
        "<table><tr><th>run<th>steps<th>loss<th>loss on unseen texts<th>token accuracy\n",
        out);
    for (int r = 0; r < count; r++) {
        fprintf(out, "<tr><td><span style=\"color:%s\">&#9632;</span> ", colours[r % 8]);
        plot_text(out, runs[r].name);
        for (int i = 0; i < CURVES; i++) {
            const curve *c = &runs[r].curves[i];
            const point *last = c->count ? &c->points[c->count - 1] : NULL;
            if (i == LOSS) fprintf(out, "<td>%.0f", last ? last->step : 0);
            if (last)
                draw_value(out, last, i == TEST_RIGHT);
            else
                fputs("<td>", out);
        }
        fputc('\n', out);
    }
    fputs("</table>\n", out);
}

/* Names and colours alone. */
static void draw_names(FILE *out, const run_curves *runs, int count)
{
    fputs("<p>", out);
    for (int r = 0; r < count; r++) {
        fprintf(out, "<span style=\"color:%s\">&#9632;</span> ", colours[r % 8]);
        plot_text(out, runs[r].name);
        fputs(" &nbsp; ", out);
    }
    fputs("</p>\n", out);
}

static void draw_head(FILE *out, const char *heading)
{
    fprintf(out, "<!doctype html><html lang=en><meta charset=utf-8><title>polyhead: %s",
            heading);
    fputs(
        "</title>\n<style>body{font:15px system-ui,sans-serif;margin:2em auto;max-width:"
        "900px;color:#222;background:#fff}svg{width:100%}text{font-size:12px;fill:#555}"
        ".g{stroke:#ddd}.c{fill:none;stroke-width:1.6}.r{fill-opacity:.15}"
        "h2{font-size:16px;margin:1.6em 0 0}table{border-collapse:collapse}"
        "td,th{padding:3px 14px 3px 0;text-align:left}"
        "@media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}text{fill:"
        "#aaa}.g{stroke:#333}}</style>\n",
        out);
    fprintf(out, "<h1>%s</h1>\n", heading);
}

/* What draw_page is handed. */
typedef struct plot_drawing {
    const plot_sheet *sheet;
    const run_curves *runs;
    int count;
} plot_drawing;

static void draw_page(FILE *out, const void *what)
{
    const plot_drawing *drawing = what;
    const plot_sheet *sheet = drawing->sheet;
    const run_curves *runs = drawing->runs;
    int count = drawing->count;
    (sheet->of_training ? draw_legend : draw_names)(out, runs, count);
    if (sheet->extra) sheet->extra->draw(out, sheet->extra->what);
    for (int i = 0; i < CURVES; i++) {
        size_t points = 0;
        for (int r = 0; r < count; r++) points += runs[r].curves[i].count;
        if (!points) continue;
        plot_frame f = frame_of(runs, count, i, sheet->charts[i].logarithmic);
        fprintf(out,
                "<h2>%s</h2>\n<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"%s\">",
                sheet->charts[i].title, WIDTH, HEIGHT, sheet->charts[i].title);
        draw_axes(out, &f);
        for (int r = 0; r < count; r++) draw_curve(out, &f, &runs[r].curves[i], r);
        fputs("</svg>\n", out);
    }
}

/* ---- the command ---- */

/* A pipe or device is written to: renaming a file onto it would remove it. */
static int is_device(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

int plot_write(const char *path, const char *heading,
               void (*draw)(FILE *out, const void *what), const void *what)
{
    char fresh[4200];
    int to_stdout = !strcmp(path, "-"), direct = is_device(path);
    snprintf(fresh, sizeof fresh, "%s%s", path, direct ? "" : ".new");
    FILE *out = to_stdout ? stdout : fopen(fresh, "w");
    if (!out) return cli_fail(EXIT_IO, "%s: %s", fresh, strerror(errno));
    draw_head(out, heading);
    draw(out, what);
    if (to_stdout) return EXIT_OK;
    int bad = ferror(out);
    bad |= fclose(out);
    if (bad || (!direct && rename(fresh, path))) {
        int reason = errno;
        if (!direct) remove(fresh);
        return cli_fail(EXIT_IO, "%s: %s", path, strerror(reason));
    }
    return EXIT_OK;
}

static int write_page(const plot_sheet *sheet, const run_curves *runs, int count,
                      const char *path)
{
    const plot_drawing drawing = {sheet, runs, count};
    return plot_write(path, sheet->heading, draw_page, &drawing);
}

static void free_runs(run_curves *runs, int count)
{
    for (int i = 0; runs && i < count; i++)
        for (int c = 0; c < CURVES; c++) free(runs[i].curves[c].points);
    free(runs);
}

int plot_page(const plot_run *from, int count, const plot_extra *extra, const char *out)
{
    run_curves *runs = calloc((size_t)count, sizeof *runs);
    int rc = runs ? EXIT_OK : cli_fail(EXIT_MEMORY, "out of memory");
    for (int i = 0; i < count && !rc; i++) {
        rc = read_run(&runs[i], &from[i]);
        smooth(&runs[i].curves[LOSS]);
    }
    const plot_sheet sheet = {"Training", charts, 1, extra};
    if (!rc) rc = write_page(&sheet, runs, count, out);
    free_runs(runs, count);
    return rc;
}

/* ---- lines of others ---- */

static int add_line(run_curves *run, const plot_line *line)
{
    curve *c = &run->curves[line->chart];
    run->name = line->name;
    for (int i = 0; i < line->count; i++) {
        if (add_point(c, line->x[i], line->y[i]))
            return cli_fail(EXIT_MEMORY, "out of memory");
        if (line->low) c->points[c->count - 1].low = line->low[i];
        if (line->high) c->points[c->count - 1].high = line->high[i];
    }
    return EXIT_OK;
}

int plot_lines(const char *heading, const char *const *titles, const plot_line *lines,
               int count, const char *out)
{
    plot_chart own[CURVES] = {{0}};
    run_curves *runs = calloc((size_t)count + 1, sizeof *runs);
    int rc = runs ? EXIT_OK : cli_fail(EXIT_MEMORY, "out of memory"), used = 0;
    for (int i = 0; i < CURVES && titles[i]; i++) own[i].title = titles[i];
    for (int i = 0; i < count && !rc; i++) {
        int r = 0;
        while (r < used && strcmp(runs[r].name, lines[i].name)) r++;
        if (r == used) used++;
        rc = add_line(&runs[r], &lines[i]);
    }
    const plot_sheet sheet = {heading, own, 0, NULL};
    if (!rc) rc = write_page(&sheet, runs, used, out);
    free_runs(runs, used);
    return rc;
}

typedef struct plot_options {
    const char *out;
} plot_options;

static const ph_option table[] = {{.name = "output",
                                   .letter = 'o',
                                   .kind = PH_OPT_TEXT,
                                   .metavar = "FILE",
                                   .at = offsetof(plot_options, out),
                                   .fallback = "training.html",
                                   .help = "where the page goes; -: stdout"},
                                  {.name = NULL}};

static int plot(const void *chosen, int count, const char *const *words)
{
    const plot_options *o = chosen;
    plot_run runs[RUNS_MOST];
    for (int i = 0; i < count; i++) runs[i] = (plot_run){words[i], &words[i], 1};
    int rc = plot_page(runs, count, NULL, o->out);
    if (!rc && strcmp(o->out, "-")) printf("%s\n", o->out);
    return rc;
}

static const char *const examples[] = {
    "polyhead plot runs/copy", "the curves of one training, into training.html",
    "polyhead plot runs/a runs/b -o both.html", "two of them in the same pictures", NULL};

const ph_command command_plot = {.name = "plot",
                                 .summary = "draw the curves of trainings into a page",
                                 .usage = "RUN... [-o FILE]",
                                 .about = "RUN is the directory of a training or its "
                                          "log.jsonl. The page needs nothing beside it.",
                                 .examples = examples,
                                 .options = table,
                                 .size = sizeof(plot_options),
                                 .word = "RUN",
                                 .fewest_words = 1,
                                 .most_words = RUNS_MOST,
                                 .run = plot};
