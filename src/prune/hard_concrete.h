/*
 * hard_concrete.h - gates that are 0 or 1 with learned probabilities, and in between
 * where it helps gradients: a sigmoid of noise, stretched beyond [0, 1] and clipped.
 *
 *     s = sigmoid((ln u - ln(1 - u) + logit) / beta)    u uniform in (0, 1)
 *     g = min(1, max(0, s (zeta - gamma) + gamma))
 */
#ifndef PH_PRUNE_HARD_CONCRETE_H
#define PH_PRUNE_HARD_CONCRETE_H

typedef struct ph_hard_concrete {
    double beta, gamma, zeta; /* temperature; ends of the stretch, below 0 and above 1 */
} ph_hard_concrete;

/* The constants of the published code. */
extern const ph_hard_concrete ph_hard_concrete_default;

/* The gate for one u, and *derivative its derivative with respect to the logit. */
double ph_gate_sample(const ph_hard_concrete *c, double logit, double u,
                      double *derivative);

double ph_gate_closed(const ph_hard_concrete *c, double logit); /* P(g = 0) */
double ph_gate_open(const ph_hard_concrete *c, double logit);   /* P(g = 1) */

/* Expected penalty of a gate, P(g > 0), and its derivative. */
double ph_gate_penalty(const ph_hard_concrete *c, double logit, double *derivative);

#endif
