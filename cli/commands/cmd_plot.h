/*
 * cmd_plot.h - curves of trainings as one page that needs nothing else.
 */
#ifndef PH_CLI_PLOT_H
#define PH_CLI_PLOT_H

/* One curve: the mean of its trainings, with the range between them. */
typedef struct plot_run {
    const char *name;         /* for the legend */
    const char *const *paths; /* directories or log files */
    int count;
} plot_run;

/* Draws `count` runs into the page `out`. Returns an exit code, its sentence said. */
int plot_page(const plot_run *runs, int count, const char *out);

#endif
