/*
 * cmd_plot.h - curves of trainings as one page that needs nothing else.
 */
#ifndef PH_CLI_PLOT_H
#define PH_CLI_PLOT_H

/* Draws the logs of `count` runs (directories or log files) into `out`. Returns an exit
   code, its sentence said. names: for the legend, NULL: the paths. */
int plot_page(const char *const *runs, const char *const *names, int count,
              const char *out);

#endif
