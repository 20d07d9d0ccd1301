/*
 * cmd_plot.h - curves of trainings as one page that needs nothing else.
 */
#ifndef PH_CLI_PLOT_H
#define PH_CLI_PLOT_H

#include <stdio.h>

/* One curve: the mean of its trainings, with the range between them. */
typedef struct plot_run {
    const char *name;         /* for the legend */
    const char *const *paths; /* directories or log files */
    int count;
} plot_run;

/* What stands between the table of last values and the curves. */
typedef struct plot_extra {
    void (*draw)(FILE *out, const void *what);
    const void *what;
} plot_extra;

/* Draws `count` runs into the page `out`; extra may be NULL. Returns an exit code, its
   sentence said. */
int plot_page(const plot_run *runs, int count, const plot_extra *extra, const char *out);

void plot_text(FILE *out, const char *text); /* as HTML */

/* A line of a chart: y over x, with a range where low and high are given. */
typedef struct plot_line {
    const char *name;
    int chart;
    int count;
    const double *x, *y, *low, *high; /* (count); low and high may be NULL */
} plot_line;

enum { PLOT_CHARTS_MOST = 3 };

/* Draws lines into charts with these titles, NULL after the last; lines of one name have
   one colour. */
int plot_lines(const char *heading, const char *const *titles, const plot_line *lines,
               int count, const char *out);

/* Writes the page that `draw` fills, with a heading and the style of these pages; it
   appears whole or not at all. "-": stdout. */
int plot_write(const char *path, const char *heading,
               void (*draw)(FILE *out, const void *what), const void *what);

#endif
