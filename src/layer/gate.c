/*
 * gate.c - the gate that attention applies is the product of the kind's and the caller's;
 * the backward pass gives each its gradient.
 */
#include <string.h>

#include "layer/layer.h"

/* Index of a row in the caller's gate. */
static int64_t given_at(const ph_attn *a, int64_t row)
{
    return a->gate == PH_GATE_ROW ? row : row / ph_line_tokens(a) % a->q_heads;
}

void ph_layer_multiply_gates(const ph_layer *l, const float *own, const float *given,
                             float *both)
{
    int64_t rows = (int64_t)l->q_rows * l->desc.attn.q_heads;
    for (int64_t i = 0; i < rows; i++)
        both[i] = own[i] * given[given_at(&l->desc.attn, i)];
}

void ph_layer_multiply_gates_backward(const ph_layer *l, const float *own,
                                      const float *given, float *dboth, float *dgiven)
{
    const ph_attn *a = &l->desc.attn;
    int64_t rows = (int64_t)l->q_rows * a->q_heads;
    size_t count = a->gate == PH_GATE_ROW ? (size_t)rows : (size_t)a->q_heads;
    if (dgiven) memset(dgiven, 0, count * sizeof *dgiven);
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = given_at(a, i);
        if (dgiven) dgiven[at] += dboth[i] * own[i];
        dboth[i] *= given[at];
    }
}
