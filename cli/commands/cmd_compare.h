/*
 * cmd_compare.h - what `polyhead compare` found, shared by its files.
 */
#ifndef PH_CLI_COMPARE_H
#define PH_CLI_COMPARE_H

#include "commands/cmd_train.h"
#include "polyhead_prune.h"

enum { VARIANTS_MOST = 16, SEEDS_MOST = 32, NAME_MOST = PH_VARIANT_TEXT };
enum { VALUE_MOST = 64 };

/* One training's result, sent through a pipe. */
typedef struct compare_result {
    double loss, token_accuracy, exact_match, per_second;
    long peak_kib;
} compare_result;

typedef struct compare_entry {
    char name[NAME_MOST]; /* what the table calls it */
    char variant[NAME_MOST];
    char value[VALUE_MOST]; /* of the swept option; "": none is */
    ph_train train;
    int64_t parameters;
    double arithmetic; /* operations per token */
    compare_result results[SEEDS_MOST];
    char folder[SEEDS_MOST][4200];
} compare_entry;

typedef struct compare_report {
    const ph_train *base;
    const compare_entry *entries;
    int count, seeds;
} compare_report;

/* compare_report.c: tables on stdout; the page compare.html in a folder. */
void compare_print_table(const compare_report *r);
void compare_print_bars(const compare_report *r);
void compare_print_json(const compare_report *r);
int compare_page(const compare_report *r, const char *folder, int say);

/* What heads are worth, FOLDER/heads.csv, for the page; NULL: an older file goes. */
int compare_write_heads(const ph_model *m, const ph_estimate *worth, const char *folder);

#endif
