/*
 * model_errors.h - how far losses and gradients of small models may be from those in
 * double.
 *
 * Of the library's floats: a loss is 16 roundings deep (two sublayers, a norm, logits and
 * their logarithm); the backward pass has two products for each of the forward pass, 48
 * in all, of magnitudes up to that of 1 and the largest gradient.
 *
 * Some models magnify errors, by a norm over small elements or gradients that cancel.
 * How much is measured: noise of one unit in the last place, once in every intermediate
 * array, moves a gradient by a stray. The library rounds three times for each of these
 * (forward, and in two products backward), and its sums of some ten terms twice as far.
 */
#ifndef MODEL_ERRORS_H
#define MODEL_ERRORS_H

static const double LOSS_ERROR = 16 * 0x1p-24, GRADIENT_ERROR = 48 * 0x1p-24,
                    GRADIENT_STRAY = 3 * 2;

#endif
