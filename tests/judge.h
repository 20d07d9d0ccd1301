/*
 * judge.h - are the results of a call close enough to the truth?
 *
 * The truth is the oracle in double. How close is close enough comes from the data: the
 * yardstick (plain loops in float on the same inputs) makes an error of its own, and the
 * engine may make a small multiple of it,
 *
 *     |found - truth| <= (F Y + U 2^-23 (1 + peak)) size + half a step of the type,
 *
 * size  what the largest element of the row would be if no terms cancelled
 * Y     the yardstick's largest error in the tensor, in units of size; at least two
 *       standard deviations of the rounding of a score (a chain of qk_dim sums)
 * F     2 forward, 3 for gradients
 * U     4: a few units in the last place, for the cases where the yardstick is lucky;
 * peak  the largest score or lse: its rounding alone moves a weight by 2^-24 peak.
 *
 * The half step counts only for f16 and bf16, which are rounded once at the end.
 *
 * Tensor cores (p->tensor_cores) add a known error of their own to out and lse. A step of
 * 16 terms cuts each of them, and the sum before, 2^-25 below the largest, and its result
 * to a float: 21 * 2^-25 of the running sum at most. Each weight is rounded to the type,
 * by at most half a step: 2^-8 of it in bf16, 2^-11 in f16; there a weight below 2^-14 of
 * the largest is rounded by 2^-25 of that. A soft-capped score is cap (1 - 2 / (1 + e)),
 * by approximate instructions: e is off by 2^-22 of it, its argument moves it by less
 * than that where e counts, the reciprocal is off by 2^-23: the score by 2^-21 cap.
 *
 * Gradients on tensor cores (p->tensor_grads) have four errors of that kind: p by that of
 * its score, ds also by the cuts of dout v, both by rounding to the type, and the cuts of
 * the sums over keys or rows. All are relative to terms before they cancel, as size is;
 * in f16 p and ds below 2^-14 are rounded by 2^-25.
 */
#ifndef JUDGE_H
#define JUDGE_H

#include "cases.h"

typedef struct judge {
    dense p;
    answer truth, size, yard;
    double scores_cut, values_cut; /* of tensor cores: errors of s and of p v, relative */
    double cap_error;              /* of a soft-capped score */
    double weight_step;            /* half a step of a weight */
    double weights_lost;           /* the most that weights below f16 add up to in out */
    double grad_error[3], grad_lost[3]; /* the same of dq, dk, dv */
    char why[700];
    double worst;         /* largest share of a tolerance that was used      */
    const char *worst_in; /* and the tensor it was in                        */
} judge;

/* Works out truth and yardstick for the inputs of p. With dropout, which weights were
   dropped is read from p->weights, so the engine must have run. */
void judge_open(judge *j, const problem *p);
void judge_close(judge *j);

/* NULL if all is well, else one sentence: out, lse and every look of p. */
const char *judge_forward(judge *j, const problem *p);
/* The gradients; the yardstick reads out and lse of p as the engine left them. */
const char *judge_backward(judge *j, const problem *p);

/* ---- running the engine ----------------------------------------------------------- */

/* A ctx with this instruction set (NULL: the best) and number of threads; kept and shared
   by later calls. NULL if it cannot be opened. */
ph_ctx *drive_ctx(const char *isa, int threads);
void drive_close(void);

/* The device of every ctx (PH_CPU), and the instruction sets to run there. */
extern ph_device drive_device;
const char *const *drive_isas(void);

/* Plan, one call, free. */
ph_status drive_forward(ph_ctx *ctx, problem *p);
ph_status drive_look(ph_ctx *ctx, problem *p); /* args.look must be set */
/* Both passes with one plan; p->attn.backward must be set. */
ph_status drive_backward(ph_ctx *ctx, problem *p);

/* The same with tensors in device memory; looks are made by the CPU from its lse. */
ph_status device_run(ph_ctx *ctx, problem *p, int backward);

#endif
