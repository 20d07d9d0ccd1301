/*
 * variant_judge.h - is what the program wrote close enough to the oracle of variants?
 *
 * The truth is the oracle in double. How close is close enough comes from the data: the
 * oracle once more, every intermediate number off by up to one unit in the last place of
 * a float (options.noise), strays from the truth by Y, and the program may stray by
 *
 *     |found - truth| <= F Y + U 2^-23 (1 + peak) size + half a step of the type
 *                        (+ what differences lose of a gradient, 1e-11 of the loss)
 *
 * size  the largest element of the tensor
 * Y     how far the noisy oracle strays in the tensor, the largest of some draws
 * F     3 forward, 10 for gradients: they add up over tokens and keys, in sums that the
 *       noisy oracle does not round, and Y comes from some of their elements only
 * U     4: a few units in the last place, for the cases where the draws are lucky
 * peak  the largest score: its rounding alone moves a weight by 2^-24 peak
 *
 * A backward pass keeps no weights: it recomputes them from lse, so the derivative of
 * attention is taken at other roundings than its outputs have, on which the steps behind
 * it (differences of heads, norms, gates) have gone on. It shows where heads cancel. With
 * u = a v, a = sum_h a_h, and out = u / |u|, as in a row of `diff` with one key, the
 * gradient of v has the factor a_b / (a_f |v|): a of the backward pass over a of the
 * forward pass. They differ by an ulp of the terms, sum |a_h| / |a| ulps of themselves;
 * noise in a function that is then differentiated has a_b = a_f and shows nothing of it.
 * So the noisy oracle recomputes too (variant_options.recompute_seed).
 *
 * A backward pass takes dout.out of a row from sums that were rounded (and in core mode
 * from an out of the file's type). An error there acts like a gradient through the lse of
 * the row, so that is how the noisy oracle gets it. The gradient of a gate is dout.out
 * itself, over the gate: one unit in the last place of its terms is added to Y, and what
 * routers make of theirs shows in the noisy oracle.
 *
 * A gradient is judged at some of its elements, and whole, along random directions: an
 * error in any element shows there. Elements at a corner of the loss are left out and
 * counted.
 */
#ifndef VARIANT_JUDGE_H
#define VARIANT_JUDGE_H

#include "variant_case.h"

enum { DRAWS = 3 }; /* of noise */

typedef struct variant_judge {
    variant_case *c;
    bag truth, noisy[DRAWS]; /* results of the forward pass */
    bag stray_in[DRAWS];     /* inputs of the noisy gradients: other dlse */
    double peak;
    double *frozen; /* of the exact oracle and of the noisy ones */
    double *stray[DRAWS];
    double *attended[DRAWS]; /* of gradients: by how much noise moves attention */
    int elements, directions; /* of a gradient to be looked at */
    int tried, corners;       /* looked at, left out */
    double worst;             /* largest share of a tolerance that was used */
    char worst_in[40];
    char why[400];
} variant_judge;

void variant_judge_open(variant_judge *j, variant_case *c);
void variant_judge_close(variant_judge *j);

/* NULL if all of OUT is as it should be, else one sentence. Names, types and shapes are
   part of it. */
const char *variant_judge_file(variant_judge *j, const ph_file *out);

#endif
