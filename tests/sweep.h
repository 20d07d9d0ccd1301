/*
 * sweep.h - what the test programs of the engine share: a loop over instruction sets,
 * calls that must succeed, and two options: --case=N runs one case of a random sweep
 * alone, --device=cuda runs on the GPU (tests/gpu_check knows which cases can).
 *
 * A header, because a failed CHECK leaves through a jump buffer that each program owns.
 */
#ifndef SWEEP_H
#define SWEEP_H

#include "check.h"
#include "judge.h"

#define FOR_EACH_ISA(isa) for (const char *const *isa = drive_isas(); *isa; isa++)

static int only = -1;                /* --case=N; -1: all cases              */
static int sweep_failed, sweep_runs; /* since sweep_begin                    */
static double sweep_worst;           /* largest share of a tolerance used    */
static const char *sweep_worst_in;   /* its tensor                           */
static int sweep_worst_at;           /* its case                             */

static inline int left_out(int index)
{
    return only >= 0 && only != index;
}

static inline void sweep_begin(void)
{
    sweep_failed = sweep_runs = 0;
    sweep_worst = 0;
    sweep_worst_in = "none";
    sweep_worst_at = -1;
}

/* One call was made; why: NULL if it was right. The first five faults are told. */
static inline void sweep_note(const char *name, int index, const char *isa,
                              const problem *p, const char *why)
{
    sweep_runs++;
    if (!why || sweep_failed++ >= 5) return;
    printf("    %s --case=%d on %s: %s\n      %s\n", name, index, isa, why,
           problem_text(p));
}

static inline void sweep_tolerance(int index, const judge *j)
{
    if (j->worst <= sweep_worst) return;
    sweep_worst = j->worst;
    sweep_worst_in = j->worst_in;
    sweep_worst_at = index;
}

static inline void sweep_end(void)
{
    if (sweep_worst > 0)
        printf("    %d calls, at most %.2f of the tolerance used (case %d, %s)\n",
               sweep_runs, sweep_worst, sweep_worst_at, sweep_worst_in);
    CHECK(sweep_runs > 0, "no call was made");
    CHECK(sweep_failed == 0, "%d of %d calls failed", sweep_failed, sweep_runs);
}

/* The reference kernels are slow: they get every fifth case. */
static inline int skip_isa(const char *isa, int index)
{
    return !strcmp(isa, "ref") && index % 5 && only < 0;
}

static inline ph_ctx *need_ctx(const char *isa)
{
    ph_ctx *ctx = drive_ctx(isa, 2);
    CHECK(ctx, "no ctx for %s", isa ? isa : "the best instruction set");
    return ctx;
}

static inline void must(ph_ctx *ctx, ph_status status)
{
    CHECK(status == PH_OK, "refused: %s: %s", ph_status_text(status), ph_error(ctx));
}

/* NULL, or why the call was refused. */
static inline const char *refused(ph_ctx *ctx, ph_status status)
{
    static _Thread_local char text[600];
    if (status == PH_OK) return NULL;
    snprintf(text, sizeof text, "refused: %s: %s", ph_status_text(status), ph_error(ctx));
    return text;
}

static inline int sweep_main(int argc, char **argv, const check_case *cases)
{
    for (int n = 1; n < argc; n++)
        if (!strncmp(argv[n], "--case=", 7))
            only = atoi(argv[n] + 7);
        else if (!strcmp(argv[n], "--device=cuda"))
            drive_device = PH_CUDA, case_gap = 8;
    int status = check_main(argc, argv, cases);
    drive_close();
    return status;
}

#endif
