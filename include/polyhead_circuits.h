/*
 * polyhead_circuits.h - what heads contribute
 *
 *     ph_head_contribution   what one head adds to the output of its attention
 *     ph_head_shares         the same of all heads of a site, as shares that sum to 1
 *     ph_circuit_create      the weights of one head, to be asked about tokens:
 *     ph_circuit_scores      its QK circuit: which token it would attend to from which
 *     ph_circuit_writes      its OV circuit: what it writes where it attends to a token
 *     ph_qk_ranks            how many directions the query-key matrices of a site use
 *
 * Contributions depend on the text that was read; circuits and ranks on the weights
 * alone. Circuits take the direct path: the input is the embedding of a token, normalised
 * as the site's input is, without positions, biases and what earlier layers add. Sites
 * other than plain attention (variants with parameters of their own, cross-attention,
 * links) are refused. The rules of polyhead.h hold here too.
 */
#ifndef POLYHEAD_CIRCUITS_H
#define POLYHEAD_CIRCUITS_H

#include "polyhead_io.h"
#include "polyhead_model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* c (q_len, model_dim) = head output times the head's rows of W_O. The contributions of
   all heads and the bias of W_O add up to the output of the attention site. */
PH_API ph_status ph_head_contribution(const ph_model *model, const ph_reading *reading,
                                      int site, int head, float *c, const ph_io *io);

/* share (heads) = sum over rows of c_h . o, divided by that of o . o, where o is the sum
   of all c_h: how much of the output lies along what the head adds. Negative: it works
   against the others. All shares sum to 1. */
PH_API ph_status ph_head_shares(const ph_model *model, const ph_reading *reading,
                                int site, double *share, const ph_io *io);

typedef struct ph_circuit ph_circuit;

PH_API ph_status ph_circuit_create(ph_circuit **out, const ph_model *model,
                                   const ph_reading *reading, int site, int head,
                                   const ph_io *io);
PH_API void ph_circuit_free(ph_circuit *circuit); /* accepts NULL */

/* scores (count, count): x_a W_Q W_K^T x_b / sqrt(head_dim), a the token that attends. */
PH_API ph_status ph_circuit_scores(const ph_circuit *circuit, const int32_t *tokens,
                                   int count, double *scores);

/* writes (vocab): x W_V W_O E^T, E the matrix of output tokens, or of embeddings where
   there is none. */
PH_API ph_status ph_circuit_writes(const ph_circuit *circuit, int32_t token,
                                   double *writes);

/* Singular values of the products W_Q W_K^T as how many equal ones would be: e to the
   entropy of the values divided by their sum. one: the mean over heads, each on its own;
   all: of the heads' products side by side, at most model_dim. Where all is much less
   than heads times one, heads share directions and collaborative heads could store fewer.
   energy (model_dim) or NULL: squared singular values of all, falling. */
PH_API ph_status ph_qk_ranks(const ph_model *model, const ph_reading *reading, int site,
                             double *one, double *all, double *energy, const ph_io *io);

#ifdef __cplusplus
}
#endif
#endif
