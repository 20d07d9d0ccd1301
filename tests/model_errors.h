/*
 * model_errors.h - how far losses and gradients of small models may be from those in
 * double.
 *
 * Of the library's floats: a loss is 16 roundings deep (two sublayers, a norm, logits and
 * their logarithm); the backward pass has two products for each of the forward pass, 48
 * in all, of magnitudes up to that of 1 and the largest gradient. A model of random
 * numbers may multiply them (small rows before a norm do): model_bed.h measures by how
 * much, with the oracle of a forward pass that is rounded (model_oracle.h).
 */
#ifndef MODEL_ERRORS_H
#define MODEL_ERRORS_H

static const double LOSS_ERROR = 16 * 0x1p-24, GRADIENT_ERROR = 48 * 0x1p-24;

#endif
