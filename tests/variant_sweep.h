/*
 * variant_sweep.h - the sweep of random problems that test_variants.c and
 * test_run_variants.c share: draw, drive, judge.
 *
 * --case=N runs the N-th problem of each case alone; --cases=N more or fewer of them;
 * --keep leaves the files of the last one.
 *
 * A header, because a failed CHECK leaves through a jump buffer that each program owns.
 */
#ifndef VARIANT_SWEEP_H
#define VARIANT_SWEEP_H

#include "cases.h"
#include "check.h"
#include "run_trial.h"
#include "variant_draw.h"
#include "variant_judge.h"

/* Results of a problem as a file, or NULL and *why (NULL: it is not for this driver). */
typedef ph_file *sweep_drive(const variant_case *c, const char **why);

/* NULL, or how OUT differs from results that another program compares with the oracle. */
typedef const char *sweep_compare(variant_case *c, const ph_file *out);

static int only = -1, how_many = 12, keep_files;
static sweep_compare *sweep_other; /* if there is one, the oracle judges every third */
static uint64_t sweep_salt; /* so that programs do not draw the same problems */
static double sweep_worst;
static char sweep_worst_in[40];
static int sweep_tried, sweep_corners, sweep_failed;

/* NULL, or what the oracle finds wrong. */
static inline const char *sweep_judge(variant_case *c, const ph_file *out, int index)
{
    static char text[sizeof((variant_judge *)0)->why];
    variant_judge j;
    variant_judge_open(&j, c);
    if (index % 8 == 7) j.elements = 2, j.directions = 1;
    const char *why = variant_judge_file(&j, out);
    if (!why && j.worst > sweep_worst) {
        sweep_worst = j.worst;
        snprintf(sweep_worst_in, sizeof sweep_worst_in, "%s", j.worst_in);
    }
    if (why) why = strcpy(text, why);
    sweep_tried += j.tried, sweep_corners += j.corners;
    variant_judge_close(&j);
    return why;
}

/* Runs one problem; the first faults are told. */
static inline void sweep_one(sweep_drive *drive, const char *name, int layer, int index)
{
    variant_case c;
    char words[400];
    const char *why = NULL;
    variant_draw(&c, name, layer, check_seed + sweep_salt, index);
    variant_words(&c, words, sizeof words);
    ph_file *out = drive(&c, &why);
    if (out) why = sweep_other ? sweep_other(&c, out) : NULL;
    int judged = out && (!sweep_other || index % 3 == 0);
    if (judged && !why) why = sweep_judge(&c, out, index);
    if (why && sweep_failed++ < 5)
        printf("    %s %s --case=%d: %s\n      run%s\n      %s\n", name,
               layer ? "layer" : "core", index, why, words, variant_text(&c));
    ph_file_free(out);
    variant_case_free(&c);
}

static inline void sweep(sweep_drive *drive, const char *name, int layer)
{
    int count = how_many / CASES_SLOW + 1;
    sweep_worst = 0, sweep_tried = sweep_corners = sweep_failed = 0;
    sweep_worst_in[0] = 0;
    for (int index = 0; index < count; index++)
        if (only < 0 || only == index) sweep_one(drive, name, layer, index);
    printf(
        "    %s: at most %.2f of the tolerance (%s), %d of %d differences at corners\n",
        name, sweep_worst, sweep_worst_in, sweep_corners, sweep_tried);
    CHECK(sweep_failed == 0, "%d of %d problems failed", sweep_failed, count);
    CHECK(sweep_corners * 25 <= sweep_tried, "%d of %d differences at corners",
          sweep_corners, sweep_tried);
}

/* ---- a case per variant, with the `drive` of the program --------------------------- */

#define SWEEP_VARIANTS(BOTH, LAYER)                                                      \
    BOTH(mha, "mha")                                                                     \
    BOTH(entmax, "entmax")                                                               \
    BOTH(sparsemax, "sparsemax")                                                         \
    BOTH(talking, "talking")                                                             \
    BOTH(dcmha, "dcmha")                                                                 \
    BOTH(talking_entmax, "talking+entmax")                                               \
    BOTH(sparsemax_talking, "sparsemax+talking")                                         \
    BOTH(dcmha_entmax, "dcmha+entmax")                                                   \
    LAYER(moh, "moh")                                                                    \
    LAYER(moh_norm, "moh-norm")                                                          \
    LAYER(collab, "collab")                                                              \
    LAYER(mohsa, "mohsa")                                                                \
    LAYER(diff, "diff")                                                                  \
    LAYER(mla, "mla")                                                                    \
    LAYER(gated, "gated")                                                                \
    LAYER(merged, "merged")                                                              \
    LAYER(diff2, "diff2")

#define SWEEP_LAYER(id, name)                                                            \
    static void id##_layer(void)                                                         \
    {                                                                                    \
        sweep(drive, name, 1);                                                           \
    }
#define SWEEP_BOTH(id, name)                                                             \
    static void id##_core(void)                                                          \
    {                                                                                    \
        sweep(drive, name, 0);                                                           \
    }                                                                                    \
    SWEEP_LAYER(id, name)

/* Rows of the table of cases. */
#define SWEEP_LAYER_ROW(id, name) {#id "_layer", id##_layer},
#define SWEEP_BOTH_ROW(id, name)  {#id "_core", id##_core}, SWEEP_LAYER_ROW(id, name)

/* The program's own options; files lie in a folder of its own. */
static inline int sweep_main(int argc, char **argv, const check_case *cases)
{
    for (int n = 1; n < argc; n++) {
        if (!strncmp(argv[n], "--case=", 7)) only = atoi(argv[n] + 7);
        if (!strncmp(argv[n], "--cases=", 8)) how_many = atoi(argv[n] + 8);
        if (!strcmp(argv[n], "--keep")) keep_files = 1;
    }
    if (only >= how_many) how_many = only + 1;
    if (trial_begin() != 0) return 2;
    int status = check_main(argc, argv, cases);
    if (keep_files)
        printf("files: %s\n", trial_path(""));
    else
        trial_end();
    return status;
}

#endif
