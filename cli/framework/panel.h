/*
 * panel.h - small matrices on the terminal, several side by side, and numbers for people.
 */
#ifndef PH_CLI_PANEL_H
#define PH_CLI_PANEL_H

#include <stddef.h>
#include <stdio.h>

#include "framework/term.h"

typedef struct panel {
    const char *title;
    const float *data; /* (rows, cols), packed */
    int rows, cols;
    term_style style; /* of title and numbers */
} panel;

/* Prints the panels beside each other, indented, an empty line behind. Numbers get as
   many decimals as they need, at most four. */
void panel_row(FILE *out, const panel *panels, int count);

/* "335 M", "1.30 G": three digits, a letter for the thousands, then `unit`. */
const char *panel_count(double value, const char *unit, char *buffer, size_t size);

/* "4.21 ms" */
const char *panel_time(double seconds, char *buffer, size_t size);

#endif
