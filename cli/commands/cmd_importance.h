/*
 * cmd_importance.h - what `polyhead importance` measured, shared by its files.
 */
#ifndef PH_CLI_IMPORTANCE_H
#define PH_CLI_IMPORTANCE_H

#include "commands/prune_input.h"

typedef struct worths {
    int heads, count; /* methods */
    int all;          /* 1: every method was asked for */
    ph_worth method[PH_WORTHS];
    ph_estimate *value[PH_WORTHS]; /* (heads) */
    ph_head_place *place;
    ph_result whole;
    int texts;
} worths;

/* importance_page.c: grids of heads as one page. Returns an exit code. */
int importance_page(const worths *w, const char *path);

/* A grid of heads, coloured by worth, as an HTML table. */
void importance_grid(FILE *out, const ph_head_place *place, const ph_estimate *values,
                     int heads);

#endif
