/*
 * variant_gated.c - sigmoid gates on the output of the heads (score-modifiers, B4).
 *
 *     O'_h = O_h sigmoid( (x w_gate)_h )     head: one per head, element: v_dim per head
 *
 * B0: the last step before wo, behind what other variants make of the heads. Where a
 * router has gates too, a gate per head becomes one with them in what is shown.
 */
#include <math.h>

#include "variant_parts.h"

static void gate(work *w)
{
    int wide = columns(w, "w_gate") / w->out_heads; /* 1 or v_dim */
    int rows = w->batch * w->out_heads * w->q_len;
    const double *z =
        apply(w, w->x, w->q_len, w->model, "w_gate", NULL, w->out_heads, wide);
    int element = option_number(w, "element", 0) != 0;
    for (int n = 0; n < rows * w->v_dim; n++) {
        int at = n / w->v_dim * wide + (wide > 1 ? n % w->v_dim : 0);
        w->out[n] /= 1 + exp(-z[at]);
    }
    jitter(w, w->out, rows * w->v_dim);
    for (int n = 0; n < rows && w->route && !element; n++) w->route[n] /= 1 + exp(-z[n]);
}

const variant variant_gated = {.name = "gated", .gate = gate};
